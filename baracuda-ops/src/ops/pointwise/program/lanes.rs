//! The functions on blocks of elements, for the CPU: loops that compilers turn into vector instructions.
//!
//! In f32 exponentials and logarithms are polynomials without branches, which stay within the budget of their row. Special values are selected at the
//! end. Other functions are the formulas of their rows, in f64.
//!
//! Source: W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980, for the reduction of arguments and for tanh; P. T. P. Tang,
//! "Table-Driven Implementation of the Logarithm Function in IEEE Floating-Point Arithmetic", 1990, for the logarithm as a series of
//! `f / (2 + f)`; the coefficients of exp are those of Taylor's series, whose rest is below half an ulp on the reduced range.

use super::{Function, single};

/// A type in which programs compute.
pub(crate) trait Lane: Copy + Default + Send + Sync + 'static {
    /// The results of a function of blocks of equal length. `FUSED`: a product and a sum are one instruction.
    fn apply<const FUSED: bool>(function: Function, arguments: [&[Self]; 3], results: &mut [Self]);

    /// A number in this type.
    fn number(value: f64) -> Self;
}

/// A type of floating-point numbers in which programs compute.
pub(crate) trait Floating: Lane {
    /// The number in f64, exact.
    fn value(self) -> f64;
}

impl Lane for f32 {
    #[inline(always)]
    fn apply<const FUSED: bool>(function: Function, arguments: [&[f32]; 3], results: &mut [f32]) {
        let [x, y, z] = arguments;
        match function {
            Function::Neg => map(x, results, |x| -x),
            Function::Sqrt => map(x, results, f32::sqrt),
            Function::Exp => map(x, results, exp::<FUSED>),
            Function::Log => map(x, results, log::<FUSED>),
            Function::Sigmoid => map(x, results, sigmoid::<FUSED>),
            Function::Tanh => map(x, results, tanh::<FUSED>),
            Function::Silu => map(x, results, single::silu::<FUSED>),
            Function::Softplus => map(x, results, single::softplus::<FUSED>),
            Function::LogSigmoid => map(x, results, single::log_sigmoid::<FUSED>),
            Function::GeluErf => map(x, results, single::gelu_erf::<FUSED>),
            Function::GeluTanh => map(x, results, single::gelu_tanh::<FUSED>),
            Function::Erf => map(x, results, single::erf::<FUSED>),
            Function::Erfc => map(x, results, single::erfc::<FUSED>),
            Function::Mish => map(x, results, single::mish::<FUSED>),
            Function::Selu => map(x, results, single::selu::<FUSED>),
            Function::Expm1 => map(x, results, single::expm1::<FUSED>),
            Function::Log1p => map(x, results, single::log1p::<FUSED>),
            Function::Exp2 => map(x, results, single::exp2::<FUSED>),
            Function::Log2 => map(x, results, single::log2::<FUSED>),
            Function::Log10 => map(x, results, single::log10::<FUSED>),
            Function::Sin => single::sin::<FUSED>(x, results),
            Function::Cos => single::cos::<FUSED>(x, results),
            Function::Tan => single::tan::<FUSED>(x, results),
            Function::Tanhshrink => map(x, results, single::tanhshrink::<FUSED>),
            Function::Asin => map(x, results, single::asin::<FUSED>),
            Function::Acos => map(x, results, single::acos::<FUSED>),
            Function::Atan => map(x, results, single::atan::<FUSED>),
            Function::Sinh => map(x, results, single::sinh::<FUSED>),
            Function::Cosh => map(x, results, single::cosh::<FUSED>),
            Function::Asinh => map(x, results, single::asinh::<FUSED>),
            Function::Acosh => map(x, results, single::acosh::<FUSED>),
            Function::Atanh => map(x, results, single::atanh::<FUSED>),
            Function::Logit => map(x, results, single::logit::<FUSED>),
            Function::Erfcx => map(x, results, single::erfcx::<FUSED>),
            Function::LogNdtr => map(x, results, single::log_ndtr::<FUSED>),
            Function::Ndtri => map(x, results, single::ndtri::<FUSED>),
            Function::I0e => map(x, results, single::i0e::<FUSED>),
            Function::I1 => map(x, results, single::i1::<FUSED>),
            Function::I1e => map(x, results, single::i1e::<FUSED>),
            Function::ModifiedBesselK0 => map(x, results, single::modified_bessel_k0::<FUSED>),
            Function::ModifiedBesselK1 => map(x, results, single::modified_bessel_k1::<FUSED>),
            Function::ScaledModifiedBesselK0 => map(x, results, single::scaled_modified_bessel_k0::<FUSED>),
            Function::ScaledModifiedBesselK1 => map(x, results, single::scaled_modified_bessel_k1::<FUSED>),
            Function::Elu => zip(x, y, results, single::elu::<FUSED>),
            Function::Celu => zip(x, y, results, single::celu::<FUSED>),
            Function::Pow => zip(x, y, results, single::pow::<FUSED>),
            Function::Xlogy => zip(x, y, results, single::xlogy::<FUSED>),
            Function::Atan2 => zip(x, y, results, single::atan2::<FUSED>),
            Function::Add => zip(x, y, results, |x, y| x + y),
            Function::Sub => zip(x, y, results, |x, y| x - y),
            Function::Mul => zip(x, y, results, |x, y| x * y),
            Function::Div => zip(x, y, results, |x, y| x / y),
            Function::IsNan => map(x, results, |x| truth(x.is_nan())),
            Function::IsInf => map(x, results, |x| truth(x.is_infinite())),
            Function::IsFinite => map(x, results, |x| truth(x.is_finite())),
            Function::SignBit => map(x, results, |x| truth(x.is_sign_negative())),
            Function::LogicalNot => map(x, results, |x| truth(x == 0.0)),
            Function::Eq => zip(x, y, results, |x, y| truth(x == y)),
            Function::Ne => zip(x, y, results, |x, y| truth(x != y)),
            Function::Lt => zip(x, y, results, |x, y| truth(x < y)),
            Function::Le => zip(x, y, results, |x, y| truth(x <= y)),
            Function::Gt => zip(x, y, results, |x, y| truth(x > y)),
            Function::Ge => zip(x, y, results, |x, y| truth(x >= y)),
            Function::LogicalAnd => zip(x, y, results, |x, y| truth(x != 0.0 && y != 0.0)),
            Function::LogicalOr => zip(x, y, results, |x, y| truth(x != 0.0 || y != 0.0)),
            Function::LogicalXor => zip(x, y, results, |x, y| truth((x != 0.0) != (y != 0.0))),
            Function::Where => select(x, y, z, results),
            other => other.fill(arguments, results),
        }
    }

    #[inline(always)]
    fn number(value: f64) -> Self {
        crate::narrow::single(value)
    }
}

impl Floating for f32 {
    #[inline(always)]
    fn value(self) -> f64 {
        self.into()
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn apply<const FUSED: bool>(function: Function, arguments: [&[f64]; 3], results: &mut [f64]) {
        function.fill(arguments, results);
    }

    #[inline(always)]
    fn number(value: f64) -> Self {
        value
    }
}

impl Floating for f64 {
    #[inline(always)]
    fn value(self) -> f64 {
        self
    }
}

#[inline(always)]
pub(super) fn map<T: Copy>(x: &[T], results: &mut [T], function: impl Fn(T) -> T) {
    for (result, &x) in results.iter_mut().zip(x) {
        *result = function(x);
    }
}

#[inline(always)]
pub(super) fn zip<T: Copy>(x: &[T], y: &[T], results: &mut [T], function: impl Fn(T, T) -> T) {
    for ((result, &x), &y) in results.iter_mut().zip(x).zip(y) {
        *result = function(x, y);
    }
}

/// A Bool among numbers.
#[inline(always)]
fn truth(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

/// y where x is true, else z.
#[inline(always)]
pub(super) fn select<T: Copy + Default + PartialEq>(x: &[T], y: &[T], z: &[T], results: &mut [T]) {
    for (((result, x), &y), &z) in results.iter_mut().zip(x).zip(y).zip(z) {
        *result = if *x == T::default() { z } else { y };
    }
}

/// `a b + c`, rounded once or twice.
#[inline(always)]
pub(in crate::ops) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// A polynomial by Horner's rule, the highest power first.
#[inline(always)]
pub(super) fn polynomial<const FUSED: bool, const N: usize>(coefficients: [f32; N], x: f32) -> f32 {
    let mut value = 0.0;
    for coefficient in coefficients {
        value = fma::<FUSED>(value, x, coefficient);
    }
    value
}

/// Adding it to a number of magnitude below 2^22 rounds that to a whole number, which the sum's low bits are.
pub(super) const ROUNDING: f32 = 12_582_912.0;

/// `2^n` for n from -126 to 127.
#[inline(always)]
pub(super) fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n + 127).cast_unsigned() << 23)
}

/// `e^x`: x is n log(2) + r, and e^r a polynomial. 2^n multiplies in two steps, of which the last alone rounds, also where the result is subnormal.
#[inline(always)]
pub(in crate::ops) fn exp<const FUSED: bool>(x: f32) -> f32 {
    // Beyond these bounds the result is 0 or infinite.
    let bounded = x.clamp(-104.0, 89.0);
    let shifted = fma::<FUSED>(bounded, std::f32::consts::LOG2_E, ROUNDING);
    let n = shifted - ROUNDING;
    // log(2) in two parts, of which the first has trailing zeros, so that its product with n is exact.
    let r = fma::<FUSED>(n, -0.693_359_4, bounded);
    let r = fma::<FUSED>(n, 2.121_944_4e-4, r);
    let p = polynomial::<FUSED, 8>([1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0], r);
    let n = shifted.to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed();
    let half = n >> 1;
    let value = p * power_of_two(half) * power_of_two(n - half);
    if x.is_nan() { x } else { value }
}

/// The natural logarithm: x is 2^k (1 + f), and log(1 + f) a series of `s = f / (2 + f)`, in which f itself stays exact.
#[inline(always)]
pub(super) fn log<const FUSED: bool>(x: f32) -> f32 {
    const ROOT_HALF: u32 = 0x3f35_04f3;
    let is_subnormal = x < f32::MIN_POSITIVE;
    let bits = (if is_subnormal { x * 8_388_608.0 } else { x }).to_bits();
    let raised = bits.wrapping_add(0x3f80_0000 - ROOT_HALF);
    let k = (raised >> 23).cast_signed() - 127 - if is_subnormal { 23 } else { 0 };
    let f = f32::from_bits((raised & 0x007f_ffff).wrapping_add(ROOT_HALF)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let rest = z * polynomial::<FUSED, 4>([0.242_790_79, 0.284_987_87, 0.400_009_72, 0.666_666_6], z);
    let half_square = 0.5 * f * f;
    #[expect(clippy::cast_precision_loss, reason = "exponents are small")]
    let k = k as f32;
    let low = fma::<FUSED>(k, 9.058_001e-6, s * (half_square + rest));
    let value = fma::<FUSED>(k, 0.693_138_1, (low - half_square) + f);
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    let value = if x < 0.0 { f32::NAN } else { value };
    // Infinity and NaN are their own.
    if x < f32::INFINITY { value } else { x }
}

#[inline(always)]
pub(super) fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    let e = exp::<FUSED>(-x.abs());
    let r = 1.0 / (1.0 + e);
    if x < 0.0 { e * r } else { r }
}

/// Near 0 an odd polynomial, which keeps every bit of a small x; beyond, by the exponential.
#[inline(always)]
pub(in crate::ops) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let z = x * x;
    let p = polynomial::<FUSED, 5>([-0.005_704_988_7, 0.020_639_09, -0.053_739_715, 0.133_314_41, -0.333_332_8], z);
    let near = fma::<FUSED>(p * z, x, x);
    let e = exp::<FUSED>(2.0 * x.abs());
    let far = (1.0 - 2.0 / (e + 1.0)).copysign(x);
    // The sum of the polynomial would make 0 of -0.
    let value = if x.abs() < 0.625 { near } else { far }.copysign(x);
    if x.is_nan() { x } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance of two numbers in ulp of the expected one.
    fn ulps(got: f32, expected: f64, scale: f64) -> f64 {
        let nearest = crate::narrow::single(expected);
        if got.to_bits() == nearest.to_bits() || (got.is_nan() && expected.is_nan()) {
            return 0.0;
        }
        if got == 0.0 && expected == 0.0 {
            // Of the other sign.
            return f64::INFINITY;
        }
        let size = nearest.abs().max(crate::narrow::single(scale));
        let ulp = (f64::from(size.next_up()) - f64::from(size)).max(f64::from(f32::from_bits(1)));
        (f64::from(got) - expected).abs() / ulp
    }

    #[test]
    fn functions_of_one_argument_keep_their_budget_over_all_exponents() {
        let is_of_one = |function: &Function| {
            function.arity() == 1 && function.computes_in(crate::DType::F32) && !function.takes_bool(0)
        };
        let of_one: Vec<Function> = Function::ALL.into_iter().filter(is_of_one).collect();
        let count = 1 << 12;
        for function in of_one {
            let mut worst = [0.0f64; 2];
            for exponent in 0..=u32::from(u8::MAX) {
                let x: Vec<f32> = (0..count)
                    .map(|at: u32| {
                        f32::from_bits((at & 1) << 31 | exponent << 23 | (at.wrapping_mul(0x9e37_79b9) >> 9))
                    })
                    .chain([exponent << 23, exponent << 23 | 0x8000_0000].map(f32::from_bits))
                    .collect();
                let mut results = vec![0.0; x.len()];
                for (is_fused, worst) in worst.iter_mut().enumerate() {
                    match is_fused {
                        0 => f32::apply::<false>(function, [&x, &[], &[]], &mut results),
                        _ => f32::apply::<true>(function, [&x, &[], &[]], &mut results),
                    }
                    for (x, got) in x.iter().zip(&results) {
                        let arguments = [f64::from(*x), 0.0, 0.0];
                        let expected = function.value(arguments);
                        let error = ulps(*got, expected, function.scale(arguments));
                        assert!(
                            error <= function.ulps(),
                            "{function:?}({x:e}) is {got:e}, expected {expected:e}: {error}"
                        );
                        *worst = worst.max(error);
                    }
                }
            }
            println!("{function:?}: {worst:?} ulp");
        }
    }

    #[test]
    fn functions_of_two_arguments_keep_their_budget() {
        let special = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1.0,
            -1.0,
            0.5,
            -2.5,
            3.0,
            -3.0,
            1e-45,
            -1e-40,
            f32::MAX,
            f32::MIN,
            16_777_217.0,
        ];
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(state >> 32).unwrap()
        };
        let mut pairs: Vec<[f32; 2]> = special.iter().flat_map(|&x| special.map(|y| [x, y])).collect();
        let unit = |bits: u32| crate::narrow::single(f64::from(bits) / 4_294_967_296.0);
        for _ in 0..1 << 17 {
            let any = [(); 2].map(|()| f32::from_bits(next()));
            let [x, y] = [(); 2].map(|()| unit(next()));
            pairs.extend([any, [4.0 * x, 300.0 * y - 150.0], [1.0 + 1e-3 * (x - 0.5), 1e5 * (y - 0.5)]]);
            pairs.extend([
                [-100.0 * x, 8.0 * y - 4.0],
                [10.0 * x - 5.0, 10.0 * y - 5.0],
                [-10.0 * x, (20.0 * y).floor()],
            ]);
        }
        let [x, y]: [Vec<f32>; 2] = [0, 1].map(|at| pairs.iter().map(|pair| pair[at]).collect());
        let is_of_two = |function: &Function| {
            function.arity() == 2 && function.computes_in(crate::DType::F32) && !function.takes_bool(0)
        };
        for function in Function::ALL.into_iter().filter(is_of_two) {
            let of_type = function.row().of_type.map_or(0.0, |of_type| of_type(crate::DType::F32));
            let z = vec![crate::narrow::single(of_type); x.len()];
            let mut results = vec![0.0; x.len()];
            let mut worst = [0.0f64; 2];
            for (is_fused, worst) in worst.iter_mut().enumerate() {
                match is_fused {
                    0 => f32::apply::<false>(function, [&x, &y, &z], &mut results),
                    _ => f32::apply::<true>(function, [&x, &y, &z], &mut results),
                }
                for (&[x, y], got) in pairs.iter().zip(&results) {
                    let arguments = [f64::from(x), f64::from(y), of_type];
                    let error = ulps(*got, function.value(arguments), function.scale(arguments));
                    assert!(error <= function.ulps(), "{function:?}({x:e}, {y:e}) is {got:e}: {error}");
                    *worst = worst.max(error);
                }
            }
            println!("{function:?}: {worst:?} ulp");
        }
    }
}
