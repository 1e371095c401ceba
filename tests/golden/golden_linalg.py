"""Golden cases of systems of equations, for make_golden.py: PyTorch in float64, of float64 50 digits."""
import zlib

import mpmath
import numpy as np
import torch

import case_file

PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} on the CPU in float64"
DIGITS = f"mpmath {mpmath.__version__} with 50 digits"


def rng_of(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def substitution(t, c):
    """`t y = c` with a lower triangular t, in 50 digits."""
    rows = []
    for i in range(len(t)):
        rest = c[i] - sum((t[i, j] * rows[j] for j in range(i)), np.full(c.shape[1], mpmath.mpf(0)))
        rows.append(rest / t[i, i])
    return np.array(rows)


def many_digits(t):
    return np.vectorize(mpmath.mpf, otypes=[object])(t)


def triangular_solve(write, dtype, batch, n, systems, upper=False, transpose=False, unit_diagonal=False, right=False, alpha=1.0):
    flags = {"upper": upper, "transpose": transpose, "unit_diagonal": unit_diagonal, "right": right}
    words = [word for word, is_set in flags.items() if is_set] + ([f"alpha{alpha}"] if alpha != 1 else [])
    name = "-".join(["triangular_solve", "x".join(map(str, (*batch, n, systems))), dtype, *words])
    rng = rng_of(name)
    a = rng.standard_normal((*batch, n, n)) * 0.7 / np.sqrt(n)
    diagonal = rng.standard_normal((*batch, n))
    a[..., np.arange(n), np.arange(n)] = np.nan if unit_diagonal else np.copysign(1 + np.abs(diagonal) / 2, diagonal)
    # What is not read is NaN.
    a = case_file.rounded(np.where(np.triu(np.ones((n, n)), 1).T > 0 if upper else np.triu(np.ones((n, n)), 1) > 0, np.nan, a), dtype)
    b = case_file.rounded(rng.standard_normal((*batch, systems, n) if right else (*batch, n, systems)), dtype)
    read = np.where(np.isnan(a), 0, a) + (np.eye(n) if unit_diagonal else 0)
    t, is_upper = (read.swapaxes(-1, -2), not upper) if transpose else (read, upper)
    if dtype == "f64":
        # X T = B is T^T X^T = B^T; an upper triangle is a lower one from the last row on.
        turned = (t.swapaxes(-1, -2), not is_upper, b.swapaxes(-1, -2)) if right else (t, is_upper, b)
        order = slice(None, None, -1) if turned[1] else slice(None)
        found = [
            substitution(many_digits(m[order, order]), mpmath.mpf(alpha) * many_digits(c[order]))[order]
            for m, c in zip(turned[0].reshape(-1, n, n), turned[2].reshape(-1, n, systems))
        ]
        x = np.array(found).astype(np.float64).reshape(*batch, n, systems)
        x, source = x.swapaxes(-1, -2) if right else x, DIGITS
    else:
        solve = torch.linalg.solve_triangular
        x = solve(torch.from_numpy(np.ascontiguousarray(t)), torch.from_numpy(alpha * b), upper=is_upper, left=not right).numpy()
        source = PYTORCH
    descriptor = {"a": {"dtype": dtype, "dims": list(a.shape)}, "b": {"dtype": dtype, "dims": list(b.shape)}}
    descriptor |= {word: True for word, is_set in flags.items() if is_set} | ({"alpha": alpha} if alpha != 1 else {})
    inputs = {"a": (dtype, a), "b": (dtype, b)}
    write(f"{name}.safetensors", "triangular_solve", descriptor, source, inputs, {"x": (dtype, np.ascontiguousarray(x))})


def factor_of(t):
    """The lower factor, in 50 digits."""
    n = len(t)
    l = np.full((n, n), mpmath.mpf(0), dtype=object)
    for i in range(n):
        for j in range(i + 1):
            rest = t[i, j] - sum(l[i, k] * l[j, k] for k in range(j))
            l[i, j] = mpmath.sqrt(rest) if i == j else rest / l[j, j]
    return l


def cholesky(write, dtype, batch, n, upper=False):
    name = "-".join(["cholesky", "x".join(map(str, (*batch, n))), dtype, *["upper"] * upper])
    rng = rng_of(name)
    m = rng.standard_normal((*batch, n, n)) / np.sqrt(n)
    a = case_file.rounded(m @ m.swapaxes(-1, -2) + np.eye(n), dtype)
    read = np.triu(a) if upper else np.tril(a)
    whole = read + read.swapaxes(-1, -2) - a * np.eye(n)
    factor, info = torch.linalg.cholesky_ex(torch.from_numpy(whole))
    factor, source = factor.numpy(), PYTORCH
    if dtype == "f64":
        exact = np.array([factor_of(many_digits(t)) for t in whole.reshape(-1, n, n)]).astype(np.float64).reshape(whole.shape)
        assert np.allclose(factor, exact, rtol=1e-12, atol=1e-12), name
        factor, source = exact, DIGITS
    factor = factor.swapaxes(-1, -2) if upper else factor
    # What does not matter is NaN.
    a = np.where((np.tril if upper else np.triu)(np.ones((n, n)), -1 if upper else 1) > 0, np.nan, a)
    descriptor = {"a": {"dtype": dtype, "dims": list(a.shape)}} | ({"upper": True} if upper else {}) | {"info": True}
    outputs = {"factor": (dtype, np.ascontiguousarray(factor)), "info": ("i32", info.numpy())}
    write(f"{name}.safetensors", "cholesky", descriptor, source, {"a": (dtype, a)}, outputs)


def cases(write):
    for dtype in ("f32", "f64"):
        for bits in range(16) if dtype == "f32" else (0, 7, 10, 13):
            upper, transpose, unit_diagonal, right = (bool(bits >> k & 1) for k in range(4))
            triangular_solve(write, dtype, (2,), 4, 3, upper, transpose, unit_diagonal, right)
        triangular_solve(write, dtype, (), 33, 2, upper=True, alpha=-0.75)
        triangular_solve(write, dtype, (), 1, 1)
        for upper in (False, True):
            cholesky(write, dtype, (2,), 5, upper)
    cholesky(write, "f32", (), 33)
