#!/usr/bin/env python3
"""Golden cases of the functions of programs: values of 60 digits on edges and random points, a pack for each type.

usage: golden_functions.py OUTPUT_FOLDER        (needs mpmath and numpy; seconds); make_golden.py makes these packs as well

Each case is one function as a program of one instruction. Of 16-bit types the outputs are f32, so that the digits in which the function is computed
count. Functions of integers, comparisons, tests and bitwise functions are exact, and have no cases here. A formula stands for finite arguments
that are no pole; what the rules say of the rest is written beside it.
"""
import math
import os
import sys
import zlib
from fractions import Fraction

import mpmath
import numpy as np
from mpmath import mp, mpf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import case_file

DIGITS, POINTS = 60, 128
MAX_BYTES = 1_500_000
INF, NAN = math.inf, math.nan
DTYPES = ["f64", "f32", "f16", "bf16"]
GREATEST = {"f64": 1.7976931348623157e308, "f32": 3.4028234663852886e38, "f16": 65504.0, "bf16": 3.3895313892515355e38}
LEAST_NORMAL = {"f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
FRACTION_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
mp.dps = DIGITS


# ---- formulas of finite arguments, as mpf ----


def exact(x):
    """An argument as a fraction, for what whole numbers compute."""
    return Fraction(float(x))


def trunc(x):
    return mpf(math.trunc(exact(x)))


def floor(x):
    return mpf(math.floor(exact(x)))


def softplus(x):
    return max(x, mpf(0)) + mpmath.log1p(mpmath.exp(-abs(x)))


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x)) if x >= 0 else mpmath.exp(x) / (1 + mpmath.exp(x))


def tanhshrink(x):
    # The difference is of the third order in x.
    lost = 0 if x == 0 else max(0, -int(mpmath.log10(abs(x)))) * 3
    with mp.workdps(DIGITS + lost):
        return x - mpmath.tanh(x)


def erfc(x):
    # Beyond, it is below all numbers or next to 2.
    return mpf(0) if x > 10**4 else mpf(2) if x < -(10**4) else mpmath.erfc(x)


def gelu_tanh(x):
    return x * sigmoid(2 * mpmath.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))


def sinc(x):
    return mpf(1) if x == 0 else mpf(0) if x == floor(x) else mpmath.sinpi(x) / (mp.pi * x)


def lgamma(x):
    return INF if x <= 0 and x == floor(x) else mpmath.re(mpmath.loggamma(x))


def digamma(x):
    if x == 0:
        return -INF
    return NAN if x < 0 and x == floor(x) else mpmath.digamma(x)


def erfinv(x):
    return NAN if abs(x) > 1 else INF * int(mpmath.sign(x)) if abs(x) == 1 else mpmath.erfinv(x)


def log_ndtr(x):
    # The product of two large numbers of this size has no digits left.
    return -x * x / 2 if x < -mpf(10) ** 60 else mpmath.log(erfcx(-x / mpmath.sqrt(2)) / 2) - x * x / 2 if x < 0 else mpmath.log1p(-erfc(x / mpmath.sqrt(2)) / 2)


def erfcx(x):
    # Beyond, it is beyond all numbers, or the first terms of the asymptotic series are all that counts.
    if x > 1000:
        return (1 - 1 / (2 * x**2) + 3 / (4 * x**4) - 15 / (8 * x**6) + 105 / (16 * x**8)) / (x * mpmath.sqrt(mp.pi))
    return INF if x < -1000 else mpmath.exp(x * x) * mpmath.erfc(x)


def ndtri(p):
    """By Newton's steps for the logarithm of the tail; near 1/2 by the inverse error function."""
    if not 0 <= p <= 1:
        return NAN
    if p in (0, 1):
        return -INF if p == 0 else INF
    if abs(p - mpf(1) / 2) < mpf(1) / 4:
        return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)
    tail = min(p, 1 - p)
    y = -mpmath.sqrt(-2 * mpmath.log(tail))
    for _ in range(60):
        step = (log_ndtr(y) - mpmath.log(tail)) * mpmath.sqrt(mp.pi / 2) * erfcx(-y / mpmath.sqrt(2))
        y -= step
        if abs(step) < mpf(10) ** -(DIGITS - 10):
            break
    return y if p < mpf(1) / 2 else -y


def scaled_bessel_i(order):
    """e^-|x| times the function; far out the first terms of the asymptotic series."""
    def of(x):
        size, mu = abs(x), 4 * order**2
        if size < 2000:
            return mpmath.besseli(order, x) * mpmath.exp(-size)
        term = total = mpf(1)
        for k in range(1, 20):
            term *= mpf((2 * k - 1) ** 2 - mu) / (8 * k * size)
            total += term
        return (-1 if x < 0 and order else 1) * total / mpmath.sqrt(2 * mp.pi * size)

    return of


def bessel_k(order, is_scaled):
    def of(x):
        if x <= 0:
            return INF if x == 0 else NAN
        if x < 2000:
            return mpmath.besselk(order, x) * (mpmath.exp(x) if is_scaled else 1)
        term = total = mpf(1)
        for k in range(1, 20):
            term *= mpf(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
            total += term
        return total * mpmath.sqrt(mp.pi / (2 * x)) if is_scaled else mpf(0)

    return of


def bessel(kind, order):
    """The Bessel function of the first or the second kind; far out by Hankel's asymptotic series, with as many more digits as a turned angle takes."""
    def of(x):
        if kind == 2 and x <= 0:
            return -INF if x == 0 else NAN
        size = abs(x)
        if size < 500:
            return mpmath.besselj(order, x) if kind == 1 else mpmath.bessely(order, x)
        with mp.workdps(DIGITS + int(mpmath.log10(size)) + 10):
            term, parts = mpf(1), [mpf(1), mpf(0)]
            for k in range(1, 60):
                term *= mpf(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * size)
                parts[k % 2] += term if k % 4 < 2 else -term
            angle = size - (2 * order + 1) * mp.pi / 4
            s, c = mpmath.sin(angle), mpmath.cos(angle)
            wave = parts[0] * c - parts[1] * s if kind == 1 else parts[0] * s + parts[1] * c
            return (-1 if x < 0 and order else 1) * wave * mpmath.sqrt(2 / (mp.pi * size))

    return of


def zeta(s, q):
    """By its first terms and Euler and Maclaurin's formula, with as many of both as its digits take."""
    if s < 1:
        return NAN
    if s == 1 or q <= 0:
        return INF if s == 1 or q == floor(q) else NAN
    power = lambda a: mpmath.exp(-s * mpmath.log(a)) if abs(s * mpmath.log(a)) < mpf(10) ** 9 else INF if a < 1 else mpf(0)
    total = mpf(0)
    for k in range(40):
        term = power(q + k)
        total += term
        if term == INF or term < total * mpf(10) ** -DIGITS:
            return total
    a = q + 40
    total += power(a) * (a / (s - 1) + mpf(1) / 2)
    factor = s / a
    for k in range(1, 60):
        part = power(a) * factor * mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k)
        total += part
        if abs(part) < total * mpf(10) ** -DIGITS:
            break
        factor *= (s + 2 * k - 1) * (s + 2 * k) / a**2
    return total


def deviance(scale, difference):
    u = difference / scale
    return scale * (u - mpmath.log1p(u)) if u > -1 else INF


def fraction(part):
    """A continued fraction b0 + a1 / (b1 + a2 / (b2 + ..)) of part(n) = (an, bn), by Lentz's method."""
    tiny = mpf(10) ** -200
    value = part(0)[1] or tiny
    c, d, n = value, mpf(0), 0
    while True:
        n += 1
        a, b = part(n)
        d, c = b + a * d, b + a / c
        d, c = 1 / (d or tiny), c or tiny
        value *= c * d
        if abs(c * d - 1) < mpf(10) ** -(DIGITS - 5):
            return value


def incomplete_gamma(a, x):
    """P, Q and the derivative of P by a, by DLMF 8.11.4 or 8.9.2."""
    if a < 0 or x < 0 or a == x == 0:
        return NAN, NAN, NAN
    if a == 0 or x == 0:
        return (mpf(1), mpf(0), NAN) if a == 0 else (mpf(0), mpf(1), mpf(0))
    if deviance(a, x - a) > 3000:
        return (mpf(0), mpf(1), mpf(0)) if x < a else (mpf(1), mpf(0), mpf(0))
    with mp.workdps(2 * DIGITS):
        power = mpmath.exp(a * mpmath.log(x) - x)
        if x < a + 1 or x < 2:
            term, total, weighed, sum_of_parts, n = power / mpmath.gamma(a + 1), mpf(0), mpf(0), mpf(0), 0
            while n == 0 or term > total * mpf(10) ** -(2 * DIGITS):
                total, weighed, n = total + term, weighed + term * sum_of_parts, n + 1
                sum_of_parts, term = sum_of_parts + 1 / (a + n), term * x / (a + n)
            return total, 1 - total, total * (mpmath.log(x) - mpmath.digamma(a + 1)) - weighed
        rest = lambda a: fraction(lambda n: (1 if n == 1 else (n - 1) * (a - n + 1), x + 2 * n - 1 - a if n else mpf(0)))
        upper, step = power / mpmath.gamma(a) * rest(a), a * mpf(10) ** -(DIGITS // 3)
        slope = (rest(a + step) - rest(a - step)) / (2 * step) * power / mpmath.gamma(a)
        return 1 - upper, upper, -upper * (mpmath.log(x) - mpmath.digamma(a)) - slope


def betainc(a, b, x):
    """By DLMF 8.17.22."""
    if a < 0 or b < 0 or not 0 <= x <= 1 or a == b == 0:
        return NAN
    if x in (0, 1) or a == 0 or b == 0:
        return x if x in (0, 1) else mpf(1) if a == 0 else mpf(0)
    with mp.workdps(2 * DIGITS):
        difference = (a + b) * x - a
        if deviance(a, difference) + deviance(b, -difference) > 3000:
            return mpf(0) if difference < 0 else mpf(1)
        if x > (a + 1) / (a + b + 2):
            return 1 - betainc(b, a, 1 - x)

        def part(n):
            m = n // 2
            if n < 2:
                return (1, mpf(n))
            n, m = n - 1, (n - 1) // 2
            if n % 2 == 0:
                return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), mpf(1)
            return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), mpf(1)

        return mpmath.exp(a * mpmath.log(x) + b * mpmath.log1p(-x) - mpmath.loggamma(a) - mpmath.loggamma(b) + mpmath.loggamma(a + b)) / a * fraction(part)


def between(formula, least, most=INF):
    """A formula that is NaN outside a closed range."""
    return lambda x: formula(x) if least <= x <= most else NAN


def pole(formula, poles):
    """A formula with results at single arguments."""
    return lambda x: poles[float(x)] if float(x) in poles else formula(x)


SELU = [mpf(1.0507009873554805), mpf(1.6732632423543772)]


# Name: (formula, results at infinity and -infinity, where random arguments lie). A result at NaN is NaN.
UNARY = {
    "neg": (lambda x: -x, (-INF, INF), "wide"),
    "sqrt": (between(mpmath.sqrt, 0), (INF, NAN), "positive"),
    "abs": (abs, (INF, INF), "wide"),
    "sign": (mpmath.sign, (1, -1), "wide"),
    "ceil": (lambda x: -floor(-x), (INF, -INF), "halves"),
    "floor": (floor, (INF, -INF), "halves"),
    "round": (lambda x: mpf(round(exact(x))), (INF, -INF), "halves"),
    "trunc": (trunc, (INF, -INF), "halves"),
    "frac": (lambda x: x - trunc(x), (NAN, NAN), "halves"),
    "reciprocal": (pole(lambda x: 1 / x, {0.0: INF}), (0, 0), "wide"),
    "square": (lambda x: x * x, (INF, INF), "wide"),
    "rsqrt": (pole(between(lambda x: 1 / mpmath.sqrt(x), 0), {0.0: INF}), (0, NAN), "positive"),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), (INF, -INF), "wide"),
    "relu": (lambda x: max(x, mpf(0)), (INF, 0), "near"),
    "relu6": (lambda x: min(max(x, mpf(0)), mpf(6)), (6, 0), "near"),
    "softsign": (lambda x: x / (1 + abs(x)), (1, -1), "wide"),
    "hardsigmoid": (lambda x: min(max(x + 3, mpf(0)), mpf(6)) / 6, (1, 0), "near"),
    "hardswish": (lambda x: mpf(0) if x <= -3 else x * (x + 3) / 6 if x < 3 else x, (INF, 0), "near"),
    "exp": (mpmath.exp, (INF, 0), "near"),
    "log": (pole(between(mpmath.log, 0), {0.0: -INF}), (INF, NAN), "positive"),
    "sigmoid": (sigmoid, (1, 0), "near"),
    "tanh": (mpmath.tanh, (1, -1), "near"),
    "silu": (lambda x: x * sigmoid(x), (INF, NAN), "near"),
    "softplus": (softplus, (INF, 0), "near"),
    "log_sigmoid": (lambda x: -softplus(-x), (0, -INF), "near"),
    "gelu_erf": (lambda x: x * erfc(-x / mpmath.sqrt(2)) / 2, (INF, NAN), "near"),
    "gelu_tanh": (gelu_tanh, (INF, NAN), "near"),
    "erf": (lambda x: 1 - erfc(x) if abs(x) > 1 else mpmath.erf(x), (1, -1), "near"),
    "erfc": (erfc, (0, 2), "near"),
    "mish": (lambda x: x * mpmath.tanh(softplus(x)), (INF, NAN), "near"),
    "selu": (lambda x: SELU[0] * (x if x > 0 else SELU[1] * mpmath.expm1(x)), (INF, -SELU[0] * SELU[1]), "near"),
    "expm1": (mpmath.expm1, (INF, -1), "near"),
    "log1p": (pole(between(mpmath.log1p, -1), {-1.0: -INF}), (INF, NAN), "above -1"),
    "exp2": (lambda x: mpf(2) ** x, (INF, 0), "near"),
    "log2": (pole(between(lambda x: mpmath.log(x) / mpmath.log(2), 0), {0.0: -INF}), (INF, NAN), "positive"),
    "log10": (pole(between(mpmath.log10, 0), {0.0: -INF}), (INF, NAN), "positive"),
    "sin": (mpmath.sin, (NAN, NAN), "angles"),
    "cos": (mpmath.cos, (NAN, NAN), "angles"),
    "tan": (mpmath.tan, (NAN, NAN), "angles"),
    "tanhshrink": (tanhshrink, (INF, -INF), "near"),
    "asin": (between(mpmath.asin, -1, 1), (NAN, NAN), "to 1"),
    "acos": (between(mpmath.acos, -1, 1), (NAN, NAN), "to 1"),
    "atan": (mpmath.atan, (mp.pi / 2, -mp.pi / 2), "wide"),
    "sinh": (mpmath.sinh, (INF, -INF), "near"),
    "cosh": (mpmath.cosh, (INF, INF), "near"),
    "asinh": (mpmath.asinh, (INF, -INF), "wide"),
    "acosh": (between(mpmath.acosh, 1), (INF, NAN), "from 1"),
    "atanh": (pole(between(mpmath.atanh, -1, 1), {1.0: INF, -1.0: -INF}), (NAN, NAN), "to 1"),
    "logit": (pole(between(lambda x: mpmath.log(x / (1 - x)), 0, 1), {0.0: -INF, 1.0: INF}), (NAN, NAN), "0 to 1"),
    "sinc": (sinc, (NAN, NAN), "halves"),
    "lgamma": (lgamma, (INF, INF), "halves"),
    "digamma": (digamma, (INF, NAN), "halves"),
    "erfinv": (erfinv, (NAN, NAN), "to 1"),
    "ndtri": (ndtri, (NAN, NAN), "0 to 1"),
    "log_ndtr": (log_ndtr, (0, -INF), "near"),
    "erfcx": (erfcx, (0, INF), "near"),
    "bessel_j0": (bessel(1, 0), (0, 0), "angles"),
    "bessel_j1": (bessel(1, 1), (0, 0), "angles"),
    "bessel_y0": (bessel(2, 0), (0, NAN), "positive angles"),
    "bessel_y1": (bessel(2, 1), (0, NAN), "positive angles"),
    "i0e": (scaled_bessel_i(0), (0, 0), "wide"),
    "i1": (lambda x: mpmath.besseli(1, x) if abs(x) < 2000 else INF * int(mpmath.sign(x)), (INF, -INF), "near"),
    "i1e": (scaled_bessel_i(1), (0, 0), "wide"),
    "modified_bessel_k0": (bessel_k(0, False), (0, NAN), "positive"),
    "modified_bessel_k1": (bessel_k(1, False), (0, NAN), "positive"),
    "scaled_modified_bessel_k0": (bessel_k(0, True), (0, NAN), "positive"),
    "scaled_modified_bessel_k1": (bessel_k(1, True), (0, NAN), "positive"),
    "i0": (lambda x: mpmath.besseli(0, x) if abs(x) < 2000 else INF, (INF, INF), "near"),
}


def remainder(x, y):
    return NAN if y == 0 else exact(x) - exact(y) * math.floor(exact(x) / exact(y))


def fmod(x, y):
    return NAN if y == 0 else exact(x) - exact(y) * math.trunc(exact(x) / exact(y))


def quotient(x, y, whole):
    if y == 0:
        return NAN if x == 0 else INF * int(mpmath.sign(x))
    return mpf(whole(exact(x) / exact(y)))


def power(x, y):
    if y == 0 or x == 1:
        return mpf(1)
    is_odd = y == floor(y) and math.fmod(float(y), 2) != 0
    if x == 0:
        return INF if y < 0 else mpf(0)
    if x < 0:
        return NAN if y != floor(y) else (-1 if is_odd else 1) * power(-x, y)
    return mpmath.exp(y * mpmath.log(x)) if abs(y * mpmath.log(x)) < mpf(10) ** 9 else INF if (y > 0) == (x > 1) else mpf(0)


def log_of_sum(x, y, base):
    scale = mpmath.log(base)
    return max(x, y) + mpmath.log1p(mpmath.exp(-abs(x - y) * scale)) / scale


def celu(x, y):
    return x if x > 0 or x == 0 != y else NAN if y == 0 and x == 0 else mpf(0) * x if y == 0 else y * mpmath.expm1(x / y)


def softshrink(x, by):
    return x - by if x > by else x + by if x < -by else mpf(0)


def division(x, y):
    return x / y if y != 0 else NAN if x == 0 else INF * int(mpmath.sign(x))


# Name: (formula, where the random arguments of each place lie).
BINARY = {
    "leaky_relu": (lambda x, s: x if x > 0 else s * x, ("wide", "near")),
    "prelu": (lambda x, s: x if x > 0 else s * x, ("wide", "near")),
    "hardshrink": (lambda x, by: mpf(0) if -by <= x <= by else x, ("near", "positive")),
    "softshrink": (softshrink, ("near", "positive")),
    "maximum": (max, ("wide", "wide")),
    "minimum": (min, ("wide", "wide")),
    "fmax": (max, ("wide", "wide")),
    "fmin": (min, ("wide", "wide")),
    "copysign": (lambda x, y: abs(x) if y >= 0 else -abs(x), ("wide", "wide")),
    "fmod": (fmod, ("wide", "wide")),
    "remainder": (remainder, ("wide", "wide")),
    "div_floor": (lambda x, y: quotient(x, y, math.floor), ("wide", "wide")),
    "div_trunc": (lambda x, y: quotient(x, y, math.trunc), ("wide", "wide")),
    "hypot": (lambda x, y: mpmath.sqrt(x * x + y * y), ("wide", "wide")),
    "heaviside": (lambda x, v: v if x == 0 else mpf(1) if x > 0 else mpf(0), ("halves", "near")),
    "elu": (lambda x, y: x if x > 0 else y * mpmath.expm1(x), ("near", "near")),
    "celu": (celu, ("near", "positive")),
    "pow": (power, ("power", "near")),
    "xlogy": (lambda x, y: mpf(0) if x == 0 else NAN if y < 0 else -INF * int(mpmath.sign(x)) if y == 0 else x * mpmath.log(y), ("near", "positive")),
    "atan2": (lambda x, y: mpf(0) if x == 0 == y else mpmath.atan2(x, y), ("wide", "wide")),
    "zeta": (zeta, ("from 1", "positive")),
    "igamma": (lambda a, x: incomplete_gamma(a, x)[0], ("shape", "beside the first")),
    "igammac": (lambda a, x: incomplete_gamma(a, x)[1], ("shape", "beside the first")),
    "igamma_grad_a": (lambda a, x: incomplete_gamma(a, x)[2], ("shape", "beside the first")),
    "logaddexp": (lambda x, y: log_of_sum(x, y, mp.e), ("near", "near")),
    "logaddexp2": (lambda x, y: log_of_sum(x, y, mpf(2)), ("near", "near")),
    "ldexp": (lambda x, y: x * mpf(2) ** round(exact(y)), ("wide", "halves")),
    "nextafter": (None, ("wide", "wide")),
    "nan_to_num": (lambda x, nan: x, ("wide", "near")),
    "add": (lambda x, y: x + y, ("wide", "wide")),
    "sub": (lambda x, y: x - y, ("wide", "wide")),
    "mul": (lambda x, y: x * y, ("wide", "wide")),
    "div": (division, ("wide", "wide")),
}
TERNARY = {
    "hardtanh": (lambda x, lo, hi: min(max(x, lo), hi), ("near", "near", "near")),
    "clamp": (lambda x, lo, hi: min(max(x, lo), hi), ("near", "near", "near")),
    "threshold": (lambda x, least, value: value if x <= least else x, ("near", "near", "near")),
    "betainc": (betainc, ("shape", "shape", "beside the mean")),
    "lerp": (lambda a, b, w: a + w * (b - a), ("near", "near", "0 to 1")),
    "addcmul": (lambda x, a, b: x + a * b, ("near", "near", "near")),
    "addcdiv": (lambda x, a, b: x + a / b if b != 0 else NAN if a == 0 else INF * int(mpmath.sign(a)), ("near", "near", "near")),
    "fma": (lambda a, b, c: a * b + c, ("near", "near", "near")),
}


COUNT = len(DTYPES) * len(UNARY | BINARY | TERNARY)


def next_after(x, y, dtype):
    """The next number of the type itself."""
    if x == y:
        return y
    if dtype == "bf16":
        step = np.float32(x).view(np.int32) >> 16
        if x == 0:
            return math.copysign(2.0**-133, y)
        step += 1 if (y > x) == (x > 0) else -1
        return float((np.int32(step) << 16).astype(np.int32).view(np.float32))
    of = {"f64": np.float64, "f32": np.float32, "f16": np.float16}[dtype]
    return float(np.nextafter(of(x), of(y)))


# ---- arguments ----


def random_arguments(where, count, dtype, rng):
    normal, uniform = 3 * rng.standard_normal(count), rng.random(count)
    sign = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    # Of every exponent that the squares and quotients of a few have.
    reach = {"f64": 300, "f32": 60, "f16": 10, "bf16": 60}[dtype]
    wide = sign * np.exp2(reach * (2 * rng.random(count) - 1)) * (1 + uniform)
    third = np.arange(count) % 3
    return {
        "wide": np.where(third == 0, normal, wide),
        "positive": np.abs(np.where(third == 0, normal, wide)),
        "near": np.where(third == 0, 8 * normal, np.where(third == 1, normal, normal / 100)),
        "halves": np.where(third == 0, np.round(2 * normal) / 2, 4 * normal),
        "above -1": np.where(third == 0, -uniform, np.where(third == 1, normal / 1000, np.abs(wide))),
        "angles": np.where(third == 0, 10 * normal, np.where(third == 1, normal, wide)),
        "positive angles": np.abs(np.where(third == 0, 10 * normal, np.where(third == 1, normal, wide))),
        "to 1": np.where(third == 0, sign * (1 - uniform / 1000), np.where(third == 1, sign * uniform, normal / 1000)),
        "0 to 1": np.where(third == 0, uniform / 100, np.where(third == 1, uniform, 0.5 + normal / 1000)),
        "from 1": 1 + np.where(third == 0, uniform / 1000, np.abs(np.where(third == 1, normal, wide))),
        "shape": np.abs(np.where(third == 0, normal, np.where(third == 1, normal / 1000, np.exp2((reach % 100) / 5 * uniform)))),
        # How many deviations from where the function of the arguments before it changes: `arguments` makes numbers of them.
        "beside the first": normal,
        "beside the mean": normal,
        "power": np.where(third == 0, np.round(normal), np.abs(normal) + 0.01),
    }[where]


def edges(dtype):
    """Zeros, ones and their neighbours, where functions turn, ends of the range. Subnormal numbers, which shaders may take for 0, and -0 are of f64 alone;
    those of f16 are normal where they are computed with."""
    largest, least, beside = GREATEST[dtype], LEAST_NORMAL[dtype], 2.0 ** -FRACTION_BITS[dtype]
    sizes = [1.0, 1 - beside / 2, 1 + beside, 0.5, 2.0, 3.0, 6.0, 1.5, math.pi / 2, math.pi, 22.0, 88.5, 103.5, 1e4, 4 * least, largest]
    both = [sign * size for size in sizes for sign in (1, -1)]
    further = {"f64": [-0.0, 5e-324, -5e-324, 1e-310, 709.5, -745.0], "f16": [2.0**-24, -(2.0**-24), 2.0**-20], "f32": [], "bf16": []}[dtype]
    return [0.0, *both, *further]


def arguments(places, dtype, rng):
    """Rounded arguments of a case: one array for each place."""
    special = edges(dtype)
    if len(places) == 1:
        first = [special + [INF, -INF, NAN]]
    else:
        # Pairs of edges whose results are neither beyond all numbers by far nor NaN by other rules than the formula's.
        few = [0.0, 1.0, -1.0, 0.5, -2.5, 3.0]
        turn = [lambda at: at, lambda at: at // len(few), lambda at: at + at // len(few)]
        first = [[few[of(at) % len(few)] for at in range(len(few) ** 2)] for of in turn[: len(places)]]
    rest = POINTS - len(first[0])
    columns = [np.concatenate([of, random_arguments(where, rest, dtype, rng)]) for of, where in zip(first, places)]
    largest = GREATEST[dtype]
    shapes = [case_file.rounded(np.where(np.isfinite(column), column, 1), dtype).astype(np.float64) for column in columns]
    with np.errstate(divide="ignore", invalid="ignore"):
        if places[-1] == "beside the first":
            beside = np.abs(shapes[0] + columns[1] / 3 * np.sqrt(shapes[0]))
            columns[1][len(first[0]) :] = np.where(np.arange(POINTS) % 4 == 0, np.abs(columns[1]), beside)[len(first[0]) :]
        if places[-1] == "beside the mean":
            mean = shapes[0] / (shapes[0] + shapes[1])
            beside = mean + columns[2] / 3 * np.sqrt(mean * (1 - mean) / (shapes[0] + shapes[1] + 1))
            columns[2][len(first[0]) :] = np.abs(np.where((np.arange(POINTS) % 4 == 0) | ~(beside < 1), np.abs(columns[2]) % 1, beside))[len(first[0]) :]
    bounded = [np.where(np.isfinite(column), np.clip(column, -largest, largest), column) for column in columns]
    return [case_file.rounded(column, dtype) for column in bounded]


# ---- cases ----


def value(formula, at_infinity, point):
    if any(math.isnan(x) for x in point):
        return NAN
    if math.isinf(point[0]):
        return float(at_infinity[0 if point[0] > 0 else 1])
    result = formula(*[mpf(x) for x in point])
    if isinstance(result, Fraction):
        # Exact in the type, or rounded once: a division of whole numbers rounds correctly.
        return float(result)
    return float(result)


def case(name, places, evaluate, dtype):
    rng = np.random.default_rng(zlib.crc32(f"{name}-{dtype}".encode()))
    columns = arguments(places, dtype, rng)
    results = np.array([evaluate(point) for point in zip(*(column.tolist() for column in columns))])
    names = ["x", "y", "z"][: len(places)]
    tensor = {"dtype": dtype, "dims": [POINTS]}
    descriptor = {
        "program": {"inputs": names, "let": [["r", name, *names]], "outputs": ["r"]},
        "inputs": [tensor] * len(places),
    }
    if dtype in ("f16", "bf16"):
        descriptor["outputs"] = ["f32"]
    inputs = {f"in{at}": (dtype, column) for at, column in enumerate(columns)}
    return name, "pointwise", descriptor, f"mpmath {mpmath.__version__} with {DIGITS} digits", inputs, {"out0": results}


def cases(dtype):
    for name, (formula, at_infinity, where) in UNARY.items():
        evaluate = lambda point, formula=formula, at=at_infinity, name=name: of_unary(name, formula, at, point)
        yield case(name, (where,), evaluate, dtype)
    for name, (formula, places) in (BINARY | TERNARY).items():
        evaluate = lambda point, formula=formula: value(formula, None, point)
        if name == "nextafter":
            evaluate = lambda point: next_after(*point, dtype)
        yield case(name, places, evaluate, dtype)


def of_unary(name, formula, at_infinity, point):
    (x,) = point
    if x == 0 and math.copysign(1, x) < 0 and name in ("reciprocal", "rsqrt", "digamma"):
        # The only ones whose results at 0 depend on its sign.
        return INF if name == "digamma" else -INF
    return value(formula, at_infinity, point)


def write(folder):
    """Writes the packs and returns their sizes by name."""
    sizes = {}
    for dtype in DTYPES:
        file = f"functions_{dtype}.safetensors"
        sizes[file] = case_file.write_pack(os.path.join(folder, file), list(cases(dtype)))
    assert sum(sizes.values()) <= MAX_BYTES, sizes
    return sizes


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    print(write(sys.argv[1]))
