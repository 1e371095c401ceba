//! The table of functions: a row states a function's name, arguments, formula, cost, value in f64 and derivatives. Everything else follows from it.

use super::lanes::Floating;
use super::{ProgramBuilder, Term, double, incomplete};
use crate::dtype::DType;
use crate::json;

/// How much arithmetic a function is: kernels are compiled by it, and budgets are stated by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cost {
    /// A few instructions, within 4 ulp of the computing type.
    Light,
    /// One exponential, logarithm or root, within 8 ulp.
    Exponential,
    /// What takes several of them, within 8 ulp.
    Exponentials,
    /// What is further off, or takes the reduction of an angle, within 16 ulp.
    Special,
    /// Remainders, whose quotients are found digit by digit: rounded at most once.
    Digits,
    /// Sums of several powers, within 16 ulp.
    Series,
    /// Integrals by several points, within 16 ulp. Kernels compute them one by one, whatever the operands.
    Integral,
}

impl Cost {
    /// The most by which a result differs from the exact function of its arguments, in ulp of the computing type; through wgpu twice as much.
    pub(crate) const fn ulps(self) -> f64 {
        match self {
            Self::Light => 4.0,
            Self::Exponential | Self::Exponentials => 8.0,
            Self::Special | Self::Series | Self::Integral => 16.0,
            Self::Digits => 1.0,
        }
    }
}

/// The types in which a function is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Floats,
    Integers,
    Numbers,
}

/// Of which types the arguments and the result of a function are: Bool, or else numbers of the type in which the program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) domain: Domain,
    pub(crate) takes_bool: [bool; MAX_ARITY],
    pub(crate) gives_bool: bool,
}

impl Signature {
    /// Floating-point numbers give one. Rows that say nothing else have this signature.
    const FLOAT: Self = Self { domain: Domain::Floats, takes_bool: [false; MAX_ARITY], gives_bool: false };
    /// Numbers of any kind give one.
    const NUMBER: Self = Self { domain: Domain::Numbers, ..Self::FLOAT };
    /// Integers give one.
    const INTEGER: Self = Self { domain: Domain::Integers, ..Self::FLOAT };
    /// Numbers of any kind give a Bool.
    const COMPARISON: Self = Self { domain: Domain::Numbers, gives_bool: true, ..Self::FLOAT };
    /// A floating-point number gives a Bool.
    const TEST: Self = Self { gives_bool: true, ..Self::FLOAT };
    /// Bools give one.
    const LOGICAL: Self = Self { takes_bool: [true; MAX_ARITY], ..Self::COMPARISON };
    /// A Bool says which of two numbers it is.
    const SELECTION: Self = Self { domain: Domain::Numbers, takes_bool: [true, false, false], gives_bool: false };

    /// That of a row.
    const fn of(said: &[Self]) -> Self {
        if said.is_empty() { Self::FLOAT } else { said[0] }
    }
}

/// What a row says of a function.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The number of arguments.
    pub(crate) arity: usize,
    pub(crate) signature: Signature,
    pub(crate) cost: Cost,
    /// The budget in ulp, if it is not that of the cost.
    ulps: Option<f64>,
    /// The size of what a result is made of: where it is larger than the result, the ulps are of it. 0 where they are always those of the result.
    scale: fn([f64; MAX_ARITY]) -> f64,
    /// The number that stands for the type of the first operand, which kernels take as a further argument, if the function depends on it.
    pub(crate) of_type: Option<fn(DType) -> f64>,
    /// The value, in f64, in which a Bool is 0 or 1. Arguments that the function does not have are 0.
    pub(crate) value: fn([f64; MAX_ARITY]) -> f64,
    /// What reaches each argument that is a number, of a gradient that arrives at the result. The number 0 says that nothing does: it is neither multiplied
    /// nor added. None arrives at results that are Bools or integers: their functions have no derivatives.
    pub(crate) derivatives: &'static [fn(&mut ProgramBuilder, Call) -> Term],
}

/// The most arguments that a function has.
pub(crate) const MAX_ARITY: usize = 3;

/// The first of what a row says, if it says it.
const fn first<T: Copy>(said: &[T]) -> Option<T> {
    if said.is_empty() { None } else { Some(said[0]) }
}

/// The scale of a row.
const fn scale_of(said: Option<fn([f64; MAX_ARITY]) -> f64>) -> fn([f64; MAX_ARITY]) -> f64 {
    match said {
        Some(scale) => scale,
        None => |_| 0.0,
    }
}

/// A function at work, for the program of its gradients.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) x: [Term; MAX_ARITY],
    /// The result.
    pub(crate) y: Term,
    /// The gradient that arrives at the result.
    pub(crate) dy: Term,
}

/// The functions, each as `/// formula and rules` `Name = "name"(arguments) cost, value, [derivative of each argument] as SIGNATURE;`, where `as FLOAT` is
/// left out. What a function takes of the type of its first operand stands behind its arguments, as `; name: number of a type`. Behind the signature stand
/// `at` its ulps, if they are not those of its cost, and `beside` its scale, if it has one.
macro_rules! functions {
    ($($(#[$doc:meta])* $Name:ident = $name:literal($($x:ident),* $(; $own:ident: $of_type:expr)?) $cost:ident, $value:expr, [$($derivative:expr),*]
        $(as $signature:ident)? $(at $ulps:literal)? $(beside $scale:expr)?;)*) => {
        /// A function of a [`Program`](super::Program), by the name that PyTorch has for it.
        ///
        /// The formulas hold for floating-point elements, which compute in f32, or in f64 where all are f64, where a NaN argument gives NaN unless the
        /// function says otherwise; and for integers where [`computes_in`](Self::computes_in) says so. Integers wrap. What is true or false is of type
        /// Bool, which has no gradient. Gradients of numbers are PyTorch's: functions that are constant between their jumps have gradients of 0, and
        /// where a function chooses among its arguments, those that it did not choose have gradients of 0, also if the gradient that arrives is infinite
        /// or NaN.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Function {
            $($(#[$doc])* $Name,)*
        }

        impl Function {
            /// Every function, in declaration order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Name),*];

            /// The name used in JSON and errors.
            pub const fn name(self) -> &'static str {
                self.row().name
            }

            /// The results for blocks of equal length, each computed in f64 and rounded once.
            #[inline(always)]
            pub(crate) fn fill<T: Floating>(self, arguments: [&[T]; MAX_ARITY], results: &mut [T]) {
                match self {
                    $(Self::$Name => {
                        const ARITY: usize = [$(stringify!($x),)* $(stringify!($own))?].len();
                        fill::<T, ARITY>(arguments, results, |[$($x,)* $($own,)? ..]| $value);
                    })*
                }
            }

            pub(crate) const fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    arity: [$(stringify!($x)),*].len(),
                    signature: Signature::of(&[$(Signature::$signature)?]),
                    cost: Cost::$cost,
                    ulps: first(&[$($ulps)?]),
                    scale: scale_of(first(&[$($scale)?])),
                    of_type: first(&[$($of_type)?]),
                    value: |[$($x,)* $($own,)? ..]| $value,
                    derivatives: &[$($derivative),*],
                }),*];
                &ROWS[self as usize]
            }
        }
    };
}

functions! {
    /// `-x`: the sign bit is inverted.
    Neg = "neg"(x) Light, -x, [|b, at| b.neg(at.dy)] as NUMBER;
    /// The square root; of a number below 0 NaN, of -0 it is -0.
    Sqrt = "sqrt"(x) Light, x.sqrt(), [|b, at| { let half = b.mul(at.dy, 0.5); b.div(half, at.y) }];
    /// The magnitude; the sign bit is cleared. Of the least integer it is itself.
    Abs = "abs"(x) Light, x.abs(), [|b, at| { let sign = b.call(Function::Sign, [at.x[0]]); b.mul(at.dy, sign) }] as NUMBER;
    /// 1 above 0, -1 below; 0, -0 and NaN are their own.
    Sign = "sign"(x) Light, sign(x), [|_, _| NOTHING] as NUMBER;
    /// The least whole number that is not below x.
    Ceil = "ceil"(x) Light, x.ceil(), [|_, _| NOTHING];
    /// The greatest whole number that is not above x.
    Floor = "floor"(x) Light, x.floor(), [|_, _| NOTHING];
    /// The nearest whole number, the even one of two.
    Round = "round"(x) Light, x.round_ties_even(), [|_, _| NOTHING];
    /// The whole number towards 0.
    Trunc = "trunc"(x) Light, x.trunc(), [|_, _| NOTHING];
    /// `x - trunc(x)`, exact; of an infinity NaN.
    Frac = "frac"(x) Light, x - x.trunc(), [|_, at| at.dy];
    /// `1 / x`; of 0 infinity, with its sign.
    Reciprocal = "reciprocal"(x) Light, 1.0 / x, [|b, at| {
        let share = b.mul(at.dy, at.y);
        let share = b.mul(share, at.y);
        b.neg(share)
    }];
    /// `x x`.
    Square = "square"(x) Light, x * x, [|b, at| { let twice = b.mul(at.dy, 2.0); b.mul(twice, at.x[0]) }] as NUMBER;
    /// `1 / sqrt(x)`; of 0 infinity, with its sign, of a number below 0 NaN.
    Rsqrt = "rsqrt"(x) Light, 1.0 / x.sqrt(), [|b, at| {
        let half = b.mul(at.dy, -0.5);
        let share = b.mul(half, at.y);
        b.div(share, at.x[0])
    }];
    /// The cube root, of every number.
    Cbrt = "cbrt"(x) Exponential, x.cbrt(), [|b, at| {
        let third = b.div(at.dy, 3.0);
        let share = b.div(third, at.y);
        b.div(share, at.y)
    }];
    /// x above 0, else 0.
    Relu = "relu"(x) Light, if x <= 0.0 { 0.0 } else { x }, [|b, at| b.if_le(at.x[0], 0.0, 0.0, at.dy)] as NUMBER;
    /// x from 0 to 6, below 0, above 6.
    Relu6 = "relu6"(x) Light, minimum(maximum(x, 0.0), 6.0), [|b, at| {
        let dy = b.if_le(6.0, at.x[0], 0.0, at.dy);
        b.if_le(at.x[0], 0.0, 0.0, dy)
    }];
    /// `x / (1 + |x|)`; of an infinity 1 with its sign, which is the limit.
    Softsign = "softsign"(x) Light, if x.is_infinite() { sign(x) } else { x / (1.0 + x.abs()) }, [|b, at| {
        let size = b.call(Function::Abs, [at.x[0]]);
        let size = b.add(1.0, size);
        let share = b.div(at.dy, size);
        b.div(share, size)
    }];
    /// `(x + 3) / 6`, at least 0 and at most 1.
    Hardsigmoid = "hardsigmoid"(x) Light, minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0, [|b, at| {
        let share = b.div(at.dy, 6.0);
        b.within(at.x[0], [-3.0, 3.0], share)
    }];
    /// `x (x + 3) / 6` from -3 to 3, below 0, above x.
    Hardswish = "hardswish"(x) Light, hardswish(x), [|b, at| {
        let slope = b.div(at.x[0], 3.0);
        let slope = b.add(slope, 0.5);
        let share = b.mul(at.dy, slope);
        let share = b.if_le(3.0, at.x[0], at.dy, share);
        b.if_le(at.x[0], -3.0, 0.0, share)
    }];
    /// x above 0, else `slope x`.
    LeakyRelu = "leaky_relu"(x, slope) Light, leaky_relu(x, slope), [
        |b, at| { let share = b.mul(at.dy, at.x[1]); b.if_lt(0.0, at.x[0], at.dy, share) },
        |b, at| { let share = b.mul(at.dy, at.x[0]); b.if_lt(0.0, at.x[0], 0.0, share) }
    ];
    /// [`LeakyRelu`](Self::LeakyRelu) with a weight that is learnt.
    Prelu = "prelu"(x, weight) Light, leaky_relu(x, weight), [
        |b, at| { let share = b.mul(at.dy, at.x[1]); b.if_lt(0.0, at.x[0], at.dy, share) },
        |b, at| { let share = b.mul(at.dy, at.x[0]); b.if_lt(0.0, at.x[0], 0.0, share) }
    ];
    /// `minimum(maximum(x, lo), hi)`, as [`Clamp`](Self::Clamp); x has no gradient at lo and at hi.
    Hardtanh = "hardtanh"(x, lo, hi) Light, minimum(maximum(x, lo), hi), [
        |b, at| { let dy = b.if_le(at.x[2], at.x[0], 0.0, at.dy); b.if_le(at.x[0], at.x[1], 0.0, dy) },
        |b, at| { let dy = b.if_le(at.x[0], at.x[1], at.dy, 0.0); b.if_le(at.x[2], at.x[1], 0.0, dy) },
        |b, at| { let dy = b.if_le(at.x[2], at.x[1], at.dy, 0.0); b.if_le(at.x[2], at.x[0], at.dy, dy) }
    ];
    /// 0 from `-lambda` to `lambda`, elsewhere x; with a NaN lambda x.
    Hardshrink = "hardshrink"(x, lambda) Light, if -lambda <= x && x <= lambda { 0.0 } else { x }, [
        |b, at| b.outside(at.x[0], at.x[1], at.dy),
        |_, _| NOTHING
    ];
    /// `x - lambda` above `lambda`, else `x + lambda` below `-lambda`, else 0; with a NaN lambda 0.
    Softshrink = "softshrink"(x, lambda) Light, softshrink(x, lambda), [
        |b, at| b.outside(at.x[0], at.x[1], at.dy),
        |b, at| {
            let sign = b.call(Function::Sign, [at.x[0]]);
            let share = b.mul(at.dy, sign);
            let share = b.neg(share);
            b.outside(at.x[0], at.x[1], share)
        }
    ];
    /// x above `threshold`, else `value`; x where it is NaN or `threshold` is.
    Threshold = "threshold"(x, threshold, value) Light, if x <= threshold { value } else { x }, [
        |b, at| b.if_le(at.x[0], at.x[1], 0.0, at.dy),
        |_, _| NOTHING,
        |b, at| b.if_le(at.x[0], at.x[1], at.dy, 0.0)
    ];
    /// The greater one; 0 is above -0. The gradient is shared evenly where they are equal.
    Maximum = "maximum"(x, y) Light, maximum(x, y), [|b, at| b.share(at, 0, false), |b, at| b.share(at, 1, false)] as NUMBER;
    /// The lesser one; -0 is below 0. The gradient is shared evenly where they are equal.
    Minimum = "minimum"(x, y) Light, minimum(x, y), [|b, at| b.share(at, 0, true), |b, at| b.share(at, 1, true)] as NUMBER;
    /// The greater one; where one is NaN the other. The gradient is that of x where they are equal.
    Fmax = "fmax"(x, y) Light, if x.is_nan() { y } else if y.is_nan() { x } else { maximum(x, y) }, [
        |b, at| b.pick(at, 0, false),
        |b, at| b.pick(at, 1, false)
    ];
    /// The lesser one; where one is NaN the other. The gradient is that of x where they are equal.
    Fmin = "fmin"(x, y) Light, if x.is_nan() { y } else if y.is_nan() { x } else { minimum(x, y) }, [
        |b, at| b.pick(at, 0, true),
        |b, at| b.pick(at, 1, true)
    ];
    /// x with the sign of y, also of -0 and of a NaN; that of a NaN which was computed may be either.
    Copysign = "copysign"(x, y) Light, x.copysign(y), [
        |b, at| {
            let sign = b.call(Function::Sign, [at.x[0]]);
            let other = b.call(Function::Copysign, [1.0.into(), at.x[1]]);
            let slope = b.mul(sign, other);
            b.mul(at.dy, slope)
        },
        |_, _| NOTHING
    ];
    /// `x - y trunc(x / y)` of the exact quotient, with the sign of x, exact; of an infinite x or of `y = 0` NaN. Of integers by 0 it is 0.
    Fmod = "fmod"(x, y) Digits, x % y, [
        |_, at| at.dy,
        |b, at| { let whole = b.call(Function::DivTrunc, [at.x[0], at.x[1]]); let share = b.mul(at.dy, whole); b.neg(share) }
    ] as NUMBER;
    /// `x - y floor(x / y)` of the exact quotient: [`Fmod`](Self::Fmod), to which y is added where the signs differ. Of integers by 0 it is 0.
    Remainder = "remainder"(x, y) Digits, remainder(x, y), [
        |_, at| at.dy,
        |b, at| { let whole = b.call(Function::DivFloor, [at.x[0], at.x[1]]); let share = b.mul(at.dy, whole); b.neg(share) }
    ] as NUMBER;
    /// `floor(x / y)` of the exact quotient; an infinite quotient stays. Of integers by 0 it is 0.
    DivFloor = "div_floor"(x, y) Light, div_floor(x, y), [|_, _| NOTHING, |_, _| NOTHING] as NUMBER;
    /// `trunc(x / y)` of the exact quotient; an infinite quotient stays. Of integers by 0 it is 0.
    DivTrunc = "div_trunc"(x, y) Light, div_trunc(x, y), [|_, _| NOTHING, |_, _| NOTHING] as NUMBER;
    /// `sqrt(x x + y y)`, of squares that may be beyond all numbers; infinite where an argument is, also beside NaN.
    Hypot = "hypot"(x, y) Light, x.hypot(y), [
        |b, at| { let slope = b.div(at.x[0], at.y); b.mul(at.dy, slope) },
        |b, at| { let slope = b.div(at.x[1], at.y); b.mul(at.dy, slope) }
    ];
    /// 0 below 0, 1 above, `value` at 0, which elsewhere may be NaN.
    Heaviside = "heaviside"(x, value) Light, heaviside(x, value), [
        |_, _| NOTHING,
        |b, at| { let size = b.call(Function::Abs, [at.x[0]]); b.if_le(size, 0.0, at.dy, 0.0) }
    ];
    /// Whether x is NaN.
    IsNan = "isnan"(x) Light, truth(x.is_nan()), [] as TEST;
    /// Whether x is infinite.
    IsInf = "isinf"(x) Light, truth(x.is_infinite()), [] as TEST;
    /// Whether x is neither infinite nor NaN.
    IsFinite = "isfinite"(x) Light, truth(x.is_finite()), [] as TEST;
    /// Whether the sign bit of x is set, also that of -0. NaN, whose sign a cast may lose, gives either.
    SignBit = "signbit"(x) Light, truth(x.is_sign_negative()), [] as TEST;
    /// Whether x is false.
    LogicalNot = "logical_not"(x) Light, truth(x == 0.0), [] as LOGICAL;
    /// All bits of x inverted.
    BitwiseNot = "bitwise_not"(x) Light, no_number([x]), [] as INTEGER;
    /// The number of bits of x that are set, in two's complement: of an input those of its own type, of a result those of the computing type.
    PopCount = "popcount"(x; bits: all_bits) Light, no_number([x, bits]), [] as INTEGER;
    /// `x = y`. A NaN equals nothing, -0 equals 0.
    Eq = "eq"(x, y) Light, truth(x == y), [] as COMPARISON;
    /// Not `x = y`: true where either is NaN.
    Ne = "ne"(x, y) Light, truth(x != y), [] as COMPARISON;
    /// `x < y`; false where either is NaN.
    Lt = "lt"(x, y) Light, truth(x < y), [] as COMPARISON;
    /// `x <= y`; false where either is NaN.
    Le = "le"(x, y) Light, truth(x <= y), [] as COMPARISON;
    /// `x > y`; false where either is NaN.
    Gt = "gt"(x, y) Light, truth(x > y), [] as COMPARISON;
    /// `x >= y`; false where either is NaN.
    Ge = "ge"(x, y) Light, truth(x >= y), [] as COMPARISON;
    /// Whether both are true.
    LogicalAnd = "logical_and"(x, y) Light, truth(x != 0.0 && y != 0.0), [] as LOGICAL;
    /// Whether either is true.
    LogicalOr = "logical_or"(x, y) Light, truth(x != 0.0 || y != 0.0), [] as LOGICAL;
    /// Whether one of both is true.
    LogicalXor = "logical_xor"(x, y) Light, truth((x != 0.0) != (y != 0.0)), [] as LOGICAL;
    /// The bits that both have.
    BitwiseAnd = "bitwise_and"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// The bits that either has.
    BitwiseOr = "bitwise_or"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// The bits that one of both has.
    BitwiseXor = "bitwise_xor"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// x with its bits y places higher; 0 if that is below 0 or as many as there are.
    ShiftLeft = "shift_left"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// x with its bits y places lower, of a signed number with copies of its sign before them; if y is below 0 or as many as there are, those alone.
    ShiftRight = "shift_right"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// The greatest whole number that divides both, which is not negative; of 0 and another number that one's magnitude.
    Gcd = "gcd"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// The least whole number that both divide, which is not negative; 0 if either is 0. One beyond the type wraps.
    Lcm = "lcm"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// y where the condition x is true, else z.
    Where = "where"(x, y, z) Light, if x == 0.0 { z } else { y }, [
        |b, at| b.call(Function::Where, [at.x[0], at.dy, 0.0.into()]),
        |b, at| b.call(Function::Where, [at.x[0], 0.0.into(), at.dy])
    ] as SELECTION;
    /// `minimum(maximum(x, lo), hi)`: hi where `lo > hi`.
    Clamp = "clamp"(x, lo, hi) Light, minimum(maximum(x, lo), hi), [
        |b, at| { let dy = b.if_le(at.x[0], at.x[2], at.dy, 0.0); b.if_le(at.x[1], at.x[0], dy, 0.0) },
        |b, at| { let dy = b.if_lt(at.x[1], at.x[2], at.dy, 0.0); b.if_lt(at.x[0], at.x[1], dy, 0.0) },
        |b, at| { let dy = b.if_lt(at.x[2], at.x[1], at.dy, 0.0); b.if_lt(at.x[2], at.x[0], at.dy, dy) }
    ] as NUMBER;
    /// `a + w (b - a)`, for w from 1/2 on `b - (b - a) (1 - w)`, as [`Sub`](Self::Sub), [`Mul`](Self::Mul) and [`Add`](Self::Add) compute them.
    Lerp = "lerp"(a, b, w) Light, lerp(a, b, w), [
        |b, at| { let rest = b.sub(1.0, at.x[2]); b.mul(at.dy, rest) },
        |b, at| b.mul(at.dy, at.x[2]),
        |b, at| { let way = b.sub(at.x[1], at.x[0]); b.mul(at.dy, way) }
    ];
    /// `x + a b`, as [`Mul`](Self::Mul) and [`Add`](Self::Add) compute them.
    Addcmul = "addcmul"(x, a, b) Light, x + a * b, [
        |_, at| at.dy,
        |b, at| b.mul(at.dy, at.x[2]),
        |b, at| b.mul(at.dy, at.x[1])
    ];
    /// `x + a / b`, as [`Div`](Self::Div) and [`Add`](Self::Add) compute them.
    Addcdiv = "addcdiv"(x, a, b) Light, x + a / b, [
        |_, at| at.dy,
        |b, at| b.div(at.dy, at.x[2]),
        |b, at| {
            let share = b.div(at.dy, at.x[2]);
            let slope = b.div(at.x[1], at.x[2]);
            let share = b.mul(share, slope);
            b.neg(share)
        }
    ];
    /// `a b + c`, rounded once; through wgpu the product may be rounded, too.
    Fma = "fma"(a, b, c) Light, a.mul_add(b, c), [
        |b, at| b.mul(at.dy, at.x[1]),
        |b, at| b.mul(at.dy, at.x[0]),
        |_, at| at.dy
    ];
    /// `e^x`.
    Exp = "exp"(x) Exponential, x.exp(), [|b, at| b.mul(at.dy, at.y)];
    /// The natural logarithm; of 0 -infinity, of a number below 0 NaN.
    Log = "log"(x) Exponential, x.ln(), [|b, at| b.div(at.dy, at.x[0])];
    /// `1 / (1 + e^-x)`.
    Sigmoid = "sigmoid"(x) Exponential, double::sigmoid(x), [|b, at| {
        // s'(x) is s(x) s(-x), which loses nothing where s(x) is near 1.
        let opposite = b.neg(at.x[0]);
        let opposite = b.call(Function::Sigmoid, [opposite]);
        let slope = b.mul(at.y, opposite);
        b.mul(at.dy, slope)
    }];
    /// The hyperbolic tangent.
    Tanh = "tanh"(x) Exponential, x.tanh(), [|b, at| {
        // tanh'(x) is 4 s(2x) s(-2x) with the sigmoid s, which loses nothing where tanh(x) is near 1.
        let twice = b.mul(at.x[0], 2.0);
        let opposite = b.neg(twice);
        let [sigmoid, opposite] = [twice, opposite].map(|x| b.call(Function::Sigmoid, [x]));
        let slope = b.mul(sigmoid, opposite);
        let slope = b.mul(slope, 4.0);
        b.mul(at.dy, slope)
    }];
    /// `x / (1 + e^-x)`; of -infinity NaN.
    Silu = "silu"(x) Exponentials, double::silu(x), [|b, at| {
        let [sigmoid, opposite] = b.sigmoids(at.x[0]);
        let slope = b.mul(at.x[0], opposite);
        let slope = b.add(slope, 1.0);
        let slope = b.mul(sigmoid, slope);
        b.mul(at.dy, slope)
    }];
    /// `log(1 + e^x)`.
    Softplus = "softplus"(x) Exponentials, double::softplus(x), [|b, at| {
        let slope = b.of(Function::Sigmoid, at.x[0]);
        b.mul(at.dy, slope)
    }];
    /// `-log(1 + e^-x)`, the logarithm of the sigmoid.
    LogSigmoid = "log_sigmoid"(x) Exponentials, -double::softplus(-x), [|b, at| {
        let [_, opposite] = b.sigmoids(at.x[0]);
        b.mul(at.dy, opposite)
    }];
    /// `x / 2 (1 + erf(x / sqrt(2)))`; of -infinity NaN.
    GeluErf = "gelu_erf"(x) Special, double::gelu_erf(x), [|b, at| {
        let x = at.x[0];
        let z = b.mul(x, -std::f64::consts::FRAC_1_SQRT_2);
        let twice = b.of(Function::Erfc, z);
        let below = b.mul(twice, 0.5);
        let half = b.mul(x, -0.5);
        let exponent = b.mul(half, x);
        let power = b.of(Function::Exp, exponent);
        // 1 / sqrt(2 pi) is the normal density at 0.
        let density = b.mul(power, 0.398_942_280_401_432_7);
        let share = b.mul(x, density);
        let slope = b.add(below, share);
        b.mul(at.dy, slope)
    }];
    /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`; of -infinity NaN.
    GeluTanh = "gelu_tanh"(x) Exponentials, double::gelu_tanh(x), [|b, at| {
        // It is x s(t) with the sigmoid s, t = x (a + c x^2); the slope is s(t) + x s(t) s(-t) (a + 3 c x^2).
        let (x, a, c) = (at.x[0], 1.595_769_121_605_730_8, 0.071_354_816_272_600_25);
        let square = b.mul(x, x);
        let [cubic, slope_of_cubic] = [c, 3.0 * c].map(|c| b.mul(square, c));
        let [linear, inner] = [cubic, slope_of_cubic].map(|cubic| b.add(cubic, a));
        let t = b.mul(x, linear);
        let [sigmoid, opposite] = b.sigmoids(t);
        let share = b.mul(x, sigmoid);
        let share = b.mul(share, opposite);
        let share = b.mul(share, inner);
        let slope = b.add(sigmoid, share);
        b.mul(at.dy, slope)
    }];
    /// `2 / sqrt(pi)` times the integral of `e^(-t^2)` from 0 to x.
    Erf = "erf"(x) Special, libm::erf(x), [|b, at| {
        let slope = b.gaussian(at.x[0], std::f64::consts::FRAC_2_SQRT_PI);
        b.mul(at.dy, slope)
    }];
    /// `1 - erf(x)`, without loss where that is small.
    Erfc = "erfc"(x) Special, libm::erfc(x), [|b, at| {
        let slope = b.gaussian(at.x[0], -std::f64::consts::FRAC_2_SQRT_PI);
        b.mul(at.dy, slope)
    }];
    /// `x tanh(log(1 + e^x))`; of -infinity NaN.
    Mish = "mish"(x) Exponentials, double::mish(x), [|b, at| {
        // With t = tanh(p), p = softplus(x): t + x s(x) tanh'(p), tanh'(p) = 4 s(2p) s(-2p).
        let x = at.x[0];
        let p = b.of(Function::Softplus, x);
        let t = b.of(Function::Tanh, p);
        let twice = b.mul(p, 2.0);
        let [of_twice, opposite] = b.sigmoids(twice);
        let inner = b.mul(of_twice, opposite);
        let inner = b.mul(inner, 4.0);
        let sigmoid = b.of(Function::Sigmoid, x);
        let share = b.mul(x, sigmoid);
        let share = b.mul(share, inner);
        let slope = b.add(t, share);
        b.mul(at.dy, slope)
    }];
    /// x above 0, else `1.6732632423543772 (e^x - 1)`; all of it times `1.0507009873554805`.
    Selu = "selu"(x) Exponentials, double::selu(x), [|b, at| {
        let power = b.exp_below_zero(at.x[0]);
        let below = b.mul(power, 1.758_099_340_847_376_8);
        let slope = b.above_or_below_zero(at.x[0], 1.050_700_987_355_480_5, below);
        b.mul(at.dy, slope)
    }];
    /// `e^x - 1`.
    Expm1 = "expm1"(x) Exponentials, x.exp_m1(), [|b, at| {
        let slope = b.of(Function::Exp, at.x[0]);
        b.mul(at.dy, slope)
    }];
    /// `log(1 + x)`; of -1 -infinity, of a number below -1 NaN.
    Log1p = "log1p"(x) Exponentials, x.ln_1p(), [|b, at| { let sum = b.add(at.x[0], 1.0); b.div(at.dy, sum) }];
    /// `2^x`.
    Exp2 = "exp2"(x) Exponentials, x.exp2(), [|b, at| {
        let slope = b.mul(at.y, std::f64::consts::LN_2);
        b.mul(at.dy, slope)
    }];
    /// The logarithm to base 2; of 0 -infinity, of a number below 0 NaN.
    Log2 = "log2"(x) Exponentials, x.log2(), [|b, at| {
        let scaled = b.mul(at.dy, std::f64::consts::LOG2_E);
        b.div(scaled, at.x[0])
    }];
    /// The logarithm to base 10; of 0 -infinity, of a number below 0 NaN.
    Log10 = "log10"(x) Exponentials, x.log10(), [|b, at| {
        let scaled = b.mul(at.dy, std::f64::consts::LOG10_E);
        b.div(scaled, at.x[0])
    }];
    /// The sine of an angle in radians, of any size; of an infinite one NaN.
    Sin = "sin"(x) Special, x.sin(), [|b, at| {
        let slope = b.of(Function::Cos, at.x[0]);
        b.mul(at.dy, slope)
    }];
    /// The cosine of an angle in radians, of any size; of an infinite one NaN.
    Cos = "cos"(x) Special, x.cos(), [|b, at| {
        let slope = b.of(Function::Sin, at.x[0]);
        let slope = b.neg(slope);
        b.mul(at.dy, slope)
    }];
    /// The tangent of an angle in radians, of any size; of an infinite one NaN.
    Tan = "tan"(x) Special, x.tan(), [|b, at| {
        let square = b.mul(at.y, at.y);
        let slope = b.add(square, 1.0);
        b.mul(at.dy, slope)
    }];
    /// `x - tanh(x)`, without loss where that is small.
    Tanhshrink = "tanhshrink"(x) Exponentials, double::tanhshrink(x), [|b, at| {
        let tanh = b.of(Function::Tanh, at.x[0]);
        let slope = b.mul(tanh, tanh);
        b.mul(at.dy, slope)
    }];
    /// The angle from `-pi / 2` to `pi / 2` with this sine; beyond 1 and -1 NaN.
    Asin = "asin"(x) Special, x.asin(), [|b, at| { let root = b.root_of_complement(at.x[0]); b.div(at.dy, root) }];
    /// The angle from 0 to pi with this cosine; beyond 1 and -1 NaN.
    Acos = "acos"(x) Special, x.acos(), [|b, at| {
        let root = b.root_of_complement(at.x[0]);
        let share = b.div(at.dy, root);
        b.neg(share)
    }];
    /// The angle from `-pi / 2` to `pi / 2` with this tangent.
    Atan = "atan"(x) Special, x.atan(), [|b, at| {
        let square = b.mul(at.x[0], at.x[0]);
        let sum = b.add(square, 1.0);
        b.div(at.dy, sum)
    }];
    /// `(e^x - e^-x) / 2`.
    Sinh = "sinh"(x) Exponentials, x.sinh(), [|b, at| { let slope = b.of(Function::Cosh, at.x[0]); b.mul(at.dy, slope) }];
    /// `(e^x + e^-x) / 2`.
    Cosh = "cosh"(x) Exponentials, x.cosh(), [|b, at| { let slope = b.of(Function::Sinh, at.x[0]); b.mul(at.dy, slope) }];
    /// The number with this hyperbolic sine, `log(x + sqrt(x^2 + 1))`.
    Asinh = "asinh"(x) Exponentials, libm::asinh(x), [|b, at| {
        // sqrt(x^2 + 1) is the hyperbolic cosine of the result, which is finite where x^2 is not.
        let slope = b.of(Function::Cosh, at.y);
        b.div(at.dy, slope)
    }];
    /// The positive number with this hyperbolic cosine, `log(x + sqrt(x^2 - 1))`; below 1 NaN.
    Acosh = "acosh"(x) Exponentials, double::acosh(x), [|b, at| {
        let [less, more] = [-1.0, 1.0].map(|one| { let sum = b.add(at.x[0], one); b.of(Function::Sqrt, sum) });
        let root = b.mul(less, more);
        b.div(at.dy, root)
    }];
    /// The number with this hyperbolic tangent, `log((1 + x) / (1 - x)) / 2`; of 1 and -1 infinite, beyond NaN.
    Atanh = "atanh"(x) Exponentials, libm::atanh(x), [|b, at| {
        let complement = b.complement_of_square(at.x[0]);
        b.div(at.dy, complement)
    }];
    /// `log(x / (1 - x))`; of 0 and 1 infinite, of other numbers that are not between them NaN.
    Logit = "logit"(x) Exponentials, double::logit(x), [|b, at| {
        let rest = b.sub(1.0, at.x[0]);
        let product = b.mul(at.x[0], rest);
        b.div(at.dy, product)
    }];
    /// x above 0, where y does not count, else `y (e^x - 1)`.
    Elu = "elu"(x, y) Exponentials, double::elu(x, y), [
        |b, at| {
            let power = b.exp_below_zero(at.x[0]);
            let below = b.mul(power, at.x[1]);
            let slope = b.above_or_below_zero(at.x[0], 1.0, below);
            b.mul(at.dy, slope)
        },
        |b, at| {
            let least = b.at_most_zero(at.x[0]);
            let slope = b.of(Function::Expm1, least);
            b.mul(at.dy, slope)
        }
    ];
    /// x above 0, where y does not count, else `y (e^(x / y) - 1)`; of an x of 0 it is x, unless y is 0, too.
    Celu = "celu"(x, y) Exponentials, double::celu(x, y), [
        |b, at| {
            let least = b.at_most_zero(at.x[0]);
            let z = b.div(least, at.x[1]);
            let below = b.of(Function::Exp, z);
            let slope = b.above_or_below_zero(at.x[0], 1.0, below);
            b.mul(at.dy, slope)
        },
        |b, at| {
            // With z = x / y: e^z - 1 - z e^z.
            let least = b.at_most_zero(at.x[0]);
            let z = b.div(least, at.x[1]);
            let [less, power] = [Function::Expm1, Function::Exp].map(|function| b.of(function, z));
            let share = b.mul(z, power);
            let slope = b.sub(less, share);
            b.mul(at.dy, slope)
        }
    ];
    /// `x^y`, as IEEE 754 has it: 1 if x is 1 or y is 0, also beside a NaN; of a finite x below 0 and a y that is no whole number NaN.
    Pow = "pow"(x, y) Special, x.powf(y), [
        |b, at| {
            // y x^(y - 1), and 0 where y is 0, also of an x of 0.
            let [x, y] = [at.x[0], at.x[1]];
            let less = b.sub(y, 1.0);
            let power = b.call(Function::Pow, [x, less]);
            let slope = b.mul(y, power);
            let slope = b.unless_zero(y, slope);
            b.mul(at.dy, slope)
        },
        |b, at| {
            // x^y log(x); of an x of 0 it is 0, or -infinity where y is below 0.
            let [x, y] = [at.x[0], at.x[1]];
            let logarithm = b.of(Function::Log, x);
            let slope = b.mul(at.y, logarithm);
            let slope = b.unless_zero(x, slope);
            let opposite = b.neg(y);
            let nonzero = b.unless_zero(x, 1.0);
            let at_zero = b.of(Function::Log, nonzero);
            let at_zero = b.gate(opposite, at_zero);
            let slope = b.add(slope, at_zero);
            b.mul(at.dy, slope)
        }
    ];
    /// `x log(y)`; of an x of 0 it is 0, unless y is NaN.
    Xlogy = "xlogy"(x, y) Exponentials, double::xlogy(x, y), [
        |b, at| {
            let slope = b.of(Function::Log, at.x[1]);
            let slope = b.unless_zero(at.x[0], slope);
            b.mul(at.dy, slope)
        },
        |b, at| { let slope = b.div(at.x[0], at.x[1]); b.mul(at.dy, slope) }
    ];
    /// The angle from -pi to pi of the point whose abscissa is y and whose ordinate is x.
    Atan2 = "atan2"(x, y) Special, x.atan2(y), [
        |b, at| { let share = b.over_sum_of_squares(at.x[1], at.x); b.mul(at.dy, share) },
        |b, at| {
            let share = b.over_sum_of_squares(at.x[0], at.x);
            let share = b.mul(at.dy, share);
            b.neg(share)
        }
    ];
    /// `sin(pi x) / (pi x)`, 1 at 0; 0 at other whole numbers, of an infinity NaN.
    Sinc = "sinc"(x) Special, double::sinc(x), [|b, at| { let slope = b.slope_of_sinc(at); b.mul(at.dy, slope) }];
    /// The logarithm of the magnitude of the gamma function; of 0, whole numbers below it and infinities infinite. Below 0, where it is a difference and
    /// has roots beside whole numbers, the ulps are those of `1 + |lgamma(-x)|`.
    Lgamma = "lgamma"(x) Special, libm::lgamma(x), [|b, at| {
        let slope = b.of(Function::Digamma, at.x[0]);
        b.mul(at.dy, slope)
    }] beside |[x, ..]| if x < 0.0 { 1.0 + libm::lgamma(-x).abs() } else { 0.0 };
    /// The derivative of [`Lgamma`](Self::Lgamma); of 0 infinite with the other sign, of whole numbers below it and -infinity NaN. Below 0, where it is a
    /// difference and has roots, the ulps are those of `1 + log(1 - x)`.
    Digamma = "digamma"(x) Special, double::digamma(x), [|b, at| {
        let slope = b.slope_of_digamma(at.x[0]);
        b.mul(at.dy, slope)
    }] beside |[x, ..]| if x < 0.0 { 1.0 + (1.0 - x).ln() } else { 0.0 };
    /// Hurwitz's zeta function, the sum of `(q + k)^-s` over all whole k from 0 on; of s below 1 NaN, of 1 infinite. Of q that is 0 or a whole number below it
    /// infinite, of others below 0 NaN. The polygamma function of order n is `(-1)^(n + 1) n! zeta(n + 1, x)` for x above 0. No gradient passes to s.
    Zeta = "zeta"(s, q) Series, double::zeta(s, q), [
        |_, _| NOTHING,
        |b, at| {
            let [s, q] = [at.x[0], at.x[1]];
            let above = b.add(s, 1.0);
            let slope = b.call(Function::Zeta, [above, q]);
            let slope = b.mul(s, slope);
            let share = b.mul(at.dy, slope);
            b.neg(share)
        }
    ];
    /// The lower incomplete gamma function `P(a, x)`, the integral of `t^(a - 1) e^-t / Gamma(a)` over t from 0 to x; NaN of a number below 0 and where both are 0
    /// or both infinite, else 1 of `a = 0` and 0 of an infinite a. The ulps are those of `y (1 - log(y))` of a result y: it is a power of e.
    Igamma = "igamma"(a, x) Integral, incomplete::igamma(a, x), [
        |b, at| { let slope = b.call(Function::IgammaGradA, [at.x[0], at.x[1]]); b.mul(at.dy, slope) },
        |b, at| { let slope = b.gamma_density(at.x[0], at.x[1]); b.mul(at.dy, slope) }
    ] beside |[a, x, _]| incomplete::scale(incomplete::igamma(a, x));
    /// The upper incomplete gamma function, `1 - P(a, x)` of [`Igamma`](Self::Igamma), which has digits where that is near 1. Its ulps are those of
    /// `y (1 - log(y))`, too.
    Igammac = "igammac"(a, x) Integral, incomplete::igammac(a, x), [
        |b, at| {
            let slope = b.call(Function::IgammaGradA, [at.x[0], at.x[1]]);
            let share = b.mul(at.dy, slope);
            b.neg(share)
        },
        |b, at| {
            let slope = b.gamma_density(at.x[0], at.x[1]);
            let share = b.mul(at.dy, slope);
            b.neg(share)
        }
    ] beside |[a, x, _]| incomplete::scale(incomplete::igammac(a, x));
    /// The derivative of [`Igamma`](Self::Igamma) by a; NaN of `a = 0`, 0 of `x = 0` and where one is infinite. Its ulps are those of `y (1 - log(|y|))` of a result
    /// whose size is below 1. No gradient passes to a.
    IgammaGradA = "igamma_grad_a"(a, x) Integral, incomplete::igamma_grad_a(a, x), [
        |_, _| NOTHING,
        |b, at| {
            // The density times log(x) - digamma(a).
            let [a, x] = [at.x[0], at.x[1]];
            let density = b.gamma_density(a, x);
            let [logarithm, digamma] = [b.of(Function::Log, x), b.of(Function::Digamma, a)];
            let slope = b.sub(logarithm, digamma);
            let slope = b.mul(density, slope);
            b.mul(at.dy, slope)
        }
    ] beside |[a, x, _]| incomplete::scale(incomplete::igamma_grad_a(a, x));
    /// The incomplete beta function `I_x(a, b)`, the integral of `t^(a - 1) (1 - t)^(b - 1) / B(a, b)` over t from 0 to x; NaN of an x that is not from 0 to 1, of a
    /// or b below 0, and where both are 0 or both infinite. Of other zeros and infinities all lies at 0, if a is 0 or b infinite, or else at 1. The ulps are those
    /// of `y (1 - log(y))` of a result y. No gradient passes to a and b.
    Betainc = "betainc"(a, b, x) Integral, incomplete::betainc(a, b, x), [
        |_, _| NOTHING,
        |_, _| NOTHING,
        |b, at| { let slope = b.beta_density(at.x); b.mul(at.dy, slope) }
    ] beside |arguments| incomplete::scale(incomplete::betainc(arguments[0], arguments[1], arguments[2]));
    /// The number whose error function is x; of 1 and -1 infinite, beyond NaN.
    Erfinv = "erfinv"(x) Special, double::erfinv(x), [|b, at| {
        let square = b.mul(at.y, at.y);
        let power = b.of(Function::Exp, square);
        // sqrt(pi) / 2.
        let slope = b.mul(power, 0.886_226_925_452_758);
        b.mul(at.dy, slope)
    }];
    /// The number up to which the normal distribution has the integral x, the inverse of `erfc(-x / sqrt(2)) / 2`; of 0 and 1 infinite, of other numbers that
    /// are not between them NaN.
    Ndtri = "ndtri"(x) Special, double::ndtri(x), [|b, at| {
        let square = b.mul(at.y, at.y);
        let exponent = b.mul(square, 0.5);
        let power = b.of(Function::Exp, exponent);
        // sqrt(2 pi).
        let slope = b.mul(power, 2.506_628_274_631_000_2);
        b.mul(at.dy, slope)
    }];
    /// The logarithm of the normal distribution's integral up to x, `log(erfc(-x / sqrt(2)) / 2)`.
    LogNdtr = "log_ndtr"(x) Special, double::log_ndtr(x), [|b, at| {
        // The density over the integral: sqrt(2 / pi) / erfcx(-x / sqrt(2)).
        let z = b.mul(at.x[0], -std::f64::consts::FRAC_1_SQRT_2);
        let scaled = b.of(Function::Erfcx, z);
        let slope = b.div(0.797_884_560_802_865_4, scaled);
        b.mul(at.dy, slope)
    }];
    /// `e^(x^2) erfc(x)`.
    Erfcx = "erfcx"(x) Special, double::erfcx(x), [|b, at| {
        let share = b.mul(at.x[0], at.y);
        let share = b.mul(share, 2.0);
        let slope = b.sub(share, std::f64::consts::FRAC_2_SQRT_PI);
        b.mul(at.dy, slope)
    }];
    /// The Bessel function of the first kind and order 0; of an infinity 0. The ulps are those of 1 and, where that is less, of its waves' size
    /// `sqrt(2 / (pi |x|))`: it has roots.
    BesselJ0 = "bessel_j0"(x) Special, libm::j0(x), [|b, at| {
        let of_one = b.of(Function::BesselJ1, at.x[0]);
        let share = b.mul(at.dy, of_one);
        b.neg(share)
    }] beside |[x, ..]| double::bessel_wave(x).min(1.0);
    /// The Bessel function of the first kind and order 1; of an infinity 0. The ulps are those of `x / 2` and, where that is less, of its waves' size
    /// `sqrt(2 / (pi |x|))`: it has roots.
    BesselJ1 = "bessel_j1"(x) Special, libm::j1(x.abs()) * x.signum(), [|b, at| {
        // J0(x) - J1(x) / x, of 0 1/2.
        let of_zero = b.of(Function::BesselJ0, at.x[0]);
        let slope = b.less_quotient(of_zero, at);
        b.mul(at.dy, slope)
    }] beside |[x, ..]| double::bessel_wave(x).min(0.5 * x.abs());
    /// The Bessel function of the second kind and order 0; of 0 -infinity, below it NaN, of infinity 0. The ulps are those of the result, of 1 or of its waves'
    /// size `sqrt(2 / (pi x))`, of the latter two the less: it has roots.
    BesselY0 = "bessel_y0"(x) Special, libm::y0(x), [|b, at| {
        let of_one = b.of(Function::BesselY1, at.x[0]);
        let share = b.mul(at.dy, of_one);
        b.neg(share)
    }] beside |[x, ..]| double::bessel_wave(x).min(1.0);
    /// The Bessel function of the second kind and order 1; of 0 -infinity, below it NaN, of infinity 0. The ulps are those of the result, of 1 or of its waves'
    /// size `sqrt(2 / (pi x))`, of the latter two the less: it has roots.
    BesselY1 = "bessel_y1"(x) Special, libm::y1(x), [|b, at| {
        let of_zero = b.of(Function::BesselY0, at.x[0]);
        let over = b.div(at.y, at.x[0]);
        let slope = b.sub(of_zero, over);
        b.mul(at.dy, slope)
    }] beside |[x, ..]| double::bessel_wave(x).min(1.0);
    /// The modified Bessel function of the first kind and order 0.
    I0 = "i0"(x) Special, double::i0(x), [|b, at| {
        let slope = b.of(Function::I1, at.x[0]);
        b.mul(at.dy, slope)
    }];
    /// `e^-|x|` times the modified Bessel function of the first kind and order 0.
    I0e = "i0e"(x) Special, double::i0e(x), [|b, at| {
        let of_one = b.of(Function::I1e, at.x[0]);
        let sign = b.of(Function::Sign, at.x[0]);
        let less = b.mul(sign, at.y);
        let slope = b.sub(of_one, less);
        b.mul(at.dy, slope)
    }];
    /// The modified Bessel function of the first kind and order 1.
    I1 = "i1"(x) Special, double::i1(x), [|b, at| {
        // I0(x) - I1(x) / x, of 0 1/2.
        let of_zero = b.of(Function::I0, at.x[0]);
        let slope = b.less_quotient(of_zero, at);
        b.mul(at.dy, slope)
    }];
    /// `e^-|x|` times the modified Bessel function of the first kind and order 1.
    I1e = "i1e"(x) Special, double::i1e(x), [|b, at| {
        // Of order 0 less this one with the sign of x, and less this one over x.
        let of_zero = b.of(Function::I0e, at.x[0]);
        let size = b.of(Function::Abs, at.y);
        let less = b.sub(of_zero, size);
        let slope = b.less_quotient(less, at);
        b.mul(at.dy, slope)
    }];
    /// The modified Bessel function of the second kind and order 0; of 0 infinite, below it NaN.
    ModifiedBesselK0 = "modified_bessel_k0"(x) Special, double::modified_bessel_k0(x), [|b, at| {
        let slope = b.of(Function::ModifiedBesselK1, at.x[0]);
        let share = b.mul(at.dy, slope);
        b.neg(share)
    }];
    /// The modified Bessel function of the second kind and order 1; of 0 infinite, below it NaN.
    ModifiedBesselK1 = "modified_bessel_k1"(x) Special, double::modified_bessel_k1(x), [|b, at| {
        let of_zero = b.of(Function::ModifiedBesselK0, at.x[0]);
        let over = b.div(at.y, at.x[0]);
        let slope = b.add(of_zero, over);
        let share = b.mul(at.dy, slope);
        b.neg(share)
    }];
    /// `e^x` times the modified Bessel function of the second kind and order 0; of 0 infinite, below it NaN.
    ScaledModifiedBesselK0 = "scaled_modified_bessel_k0"(x) Special, double::scaled_modified_bessel_k0(x), [|b, at| {
        let of_one = b.of(Function::ScaledModifiedBesselK1, at.x[0]);
        let slope = b.sub(at.y, of_one);
        b.mul(at.dy, slope)
    }];
    /// `e^x` times the modified Bessel function of the second kind and order 1; of 0 infinite, below it NaN.
    ScaledModifiedBesselK1 = "scaled_modified_bessel_k1"(x) Special, double::scaled_modified_bessel_k1(x), [|b, at| {
        let of_zero = b.of(Function::ScaledModifiedBesselK0, at.x[0]);
        let over = b.div(at.y, at.x[0]);
        let less = b.sub(at.y, of_zero);
        let slope = b.sub(less, over);
        b.mul(at.dy, slope)
    }];
    /// `log(e^x + e^y)`. Where that is near 0 it is a difference: the ulps are those of `e^-|x - y|`, if that is larger.
    LogAddExp = "logaddexp"(x, y) Special, double::logaddexp(x, y), [
        |b, at| { let by = b.sub(at.x[0], at.x[1]); b.share_of_sum(at, by, 1.0) },
        |b, at| { let by = b.sub(at.x[1], at.x[0]); b.share_of_sum(at, by, 1.0) }
    ] beside |[x, y, _]| (-(x - y).abs()).exp();
    /// `log2(2^x + 2^y)`. Where that is near 0 it is a difference: the ulps are those of `2^(1 - |x - y|)`, if that is larger.
    LogAddExp2 = "logaddexp2"(x, y) Special, double::logaddexp2(x, y), [
        |b, at| { let by = b.sub(at.x[0], at.x[1]); b.share_of_sum(at, by, std::f64::consts::LN_2) },
        |b, at| { let by = b.sub(at.x[1], at.x[0]); b.share_of_sum(at, by, std::f64::consts::LN_2) }
    ] beside |[x, y, _]| (1.0 - (x - y).abs()).exp2();
    /// `x 2^n` for the whole number n nearest to y, the even one of two; 0 and infinite x are their own also beside an infinite y.
    Ldexp = "ldexp"(x, y) Light, double::ldexp(x, y), [
        |b, at| b.call(Function::Ldexp, [at.dy, at.x[1]]),
        |_, _| NOTHING
    ] at 1.0;
    /// The number next to x in the direction of y, among those of the type that both are of: inputs of one type, numbers of the program, or results, which have
    /// the computing type. y where they are equal. It has no derivative, as in PyTorch.
    NextAfter = "nextafter"(x, y; least: least_number) Light, double::next_after(x, y, least), [] at 0.0;
    /// x where it is finite, `nan` where it is NaN, else the greatest number of its type or the least: of an input its own type, of a result the computing type.
    /// [`stock::nan_to_num`](crate::stock::nan_to_num) has other numbers in place of infinities.
    NanToNum = "nan_to_num"(x, nan; limit: greatest_number) Light, nan_to_num(x, nan, limit), [
        |b, at| { let is_finite = b.of(Function::IsFinite, at.x[0]); b.call(Function::Where, [is_finite, at.dy, 0.0.into()]) },
        |b, at| { let is_nan = b.of(Function::IsNan, at.x[0]); b.call(Function::Where, [is_nan, at.dy, 0.0.into()]) }
    ] at 0.0;
    /// `x + y`.
    Add = "add"(x, y) Light, x + y, [|_, at| at.dy, |_, at| at.dy] as NUMBER;
    /// `x - y`.
    Sub = "sub"(x, y) Light, x - y, [|_, at| at.dy, |b, at| b.neg(at.dy)] as NUMBER;
    /// `x y`.
    Mul = "mul"(x, y) Light, x * y, [|b, at| b.mul(at.dy, at.x[1]), |b, at| b.mul(at.dy, at.x[0])] as NUMBER;
    /// `x / y`; by 0 infinity, `0 / 0` is NaN. Of integers it is [`DivTrunc`](Self::DivTrunc).
    Div = "div"(x, y) Light, x / y, [
        |b, at| b.div(at.dy, at.x[1]),
        |b, at| { let share = b.mul(at.dy, at.y); let share = b.div(share, at.x[1]); b.neg(share) }
    ] as NUMBER;
}

json::named!(Function);

impl Function {
    /// The number of its arguments.
    pub const fn arity(self) -> usize {
        self.row().arity
    }

    /// Whether an argument, by its place, is of type Bool; otherwise it is a number.
    pub const fn takes_bool(self, argument: usize) -> bool {
        argument < self.arity() && self.row().signature.takes_bool[argument]
    }

    /// Whether the result is of type Bool; otherwise it is a number.
    pub const fn gives_bool(self) -> bool {
        self.row().signature.gives_bool
    }

    /// Whether programs with this function compute in a type: f32, f64, i32, u32 or i64.
    pub const fn computes_in(self, computing: DType) -> bool {
        match self.row().signature.domain {
            Domain::Floats => matches!(computing, DType::F32 | DType::F64),
            Domain::Integers => matches!(computing, DType::I32 | DType::U32 | DType::I64),
            Domain::Numbers => matches!(computing, DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64),
        }
    }

    /// The value in f64, which the reference computes of floating-point numbers and Bools, which are 0 and 1. Arguments beyond the arity do not count.
    pub fn value(self, arguments: [f64; 3]) -> f64 {
        (self.row().value)(arguments)
    }

    /// The most by which a result of a kernel differs from the exact function of its arguments, in ulp of the type in which it computes. Through
    /// wgpu it is twice as much.
    pub const fn ulps(self) -> f64 {
        match self.row().ulps {
            Some(ulps) => ulps,
            None => self.row().cost.ulps(),
        }
    }

    /// The size of what a result is made of: where it is larger than the result, as near roots of a difference, the [`ulps`](Self::ulps) are of it.
    /// 0 of most functions, whose ulps are those of the result everywhere.
    pub fn scale(self, arguments: [f64; 3]) -> f64 {
        (self.row().scale)(arguments)
    }

    /// Whether gradients pass through it. None do through functions whose results are bools or integers, and through some whose derivative is no program.
    pub const fn has_gradient(self) -> bool {
        !self.row().derivatives.is_empty()
    }

    /// Whether an argument, by its place, has no gradient through it, though its result is a floating-point number.
    pub(crate) const fn lacks_gradient_of(self, argument: usize) -> bool {
        match self {
            Self::NextAfter => true,
            Self::Zeta | Self::IgammaGradA => argument == 0,
            Self::Betainc => argument < 2,
            _ => false,
        }
    }

    /// Why arguments that lack a gradient have none.
    pub(crate) const fn why_no_gradient(self) -> Option<&'static str> {
        match self {
            Self::Zeta => Some(
                "has no gradient, since an output depends on it through the first argument of zeta, in which its derivative is no function of programs",
            ),
            Self::IgammaGradA => Some(
                "has no gradient, since an output depends on it through the first argument of igamma_grad_a, in which its derivative is no function of programs",
            ),
            Self::Betainc => Some(
                "has no gradient, since an output depends on it through the first or the second argument of betainc, in which its derivative is no function of programs",
            ),
            Self::NextAfter => {
                Some("has no gradient, since an output depends on it through nextafter, which has no derivative")
            }
            _ => None,
        }
    }
}

/// What reaches an argument on which the result does not depend but for its jumps.
const NOTHING: Term = Term::NOTHING;

/// A function on blocks of equal length.
#[inline(always)]
fn fill<T: Floating, const ARITY: usize>(
    [x, y, z]: [&[T]; MAX_ARITY],
    results: &mut [T],
    value: impl Fn([f64; MAX_ARITY]) -> f64,
) {
    match ARITY {
        1 => {
            for (result, &x) in results.iter_mut().zip(x) {
                *result = T::number(value([x.value(), 0.0, 0.0]));
            }
        }
        2 => {
            for ((result, &x), &y) in results.iter_mut().zip(x).zip(y) {
                *result = T::number(value([x.value(), y.value(), 0.0]));
            }
        }
        _ => {
            for (((result, &x), &y), &z) in results.iter_mut().zip(x).zip(y).zip(z) {
                *result = T::number(value([x.value(), y.value(), z.value()]));
            }
        }
    }
}

/// A Bool among numbers.
#[inline(always)]
fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// The greatest number of a floating-point type.
fn greatest_number(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        DType::BF16 => f32::from_bits(0x7f7f_0000).into(),
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57344.0,
        _ => f32::MAX.into(),
    }
}

/// The least number above 0 of a floating-point type.
fn least_number(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::from_bits(1),
        DType::F16 => double::LEAST_F16,
        DType::BF16 => double::LEAST_BF16,
        _ => f32::from_bits(1).into(),
    }
}

/// The integer that has all bits of a type, in the type in which it computes.
fn all_bits(dtype: DType) -> f64 {
    match dtype {
        DType::U8 | DType::I8 => 255.0,
        DType::U32 => u32::MAX.into(),
        _ => -1.0,
    }
}

#[inline(always)]
fn nan_to_num(x: f64, nan: f64, limit: f64) -> f64 {
    let bounded = if x.is_infinite() { limit.copysign(x) } else { x };
    if x.is_nan() { nan } else { bounded }
}

/// In place of the value of a function of integers alone: `integers.rs` has that.
fn no_number<const N: usize>(_: [f64; N]) -> f64 {
    f64::NAN
}

#[inline(always)]
fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

#[inline(always)]
fn maximum(x: f64, y: f64) -> f64 {
    // Only zeros are equal and have other bits.
    let equal = f64::from_bits(x.to_bits() & y.to_bits());
    let greater = if x > y { x } else { y };
    let greater = if x == y { equal } else { greater };
    if x.is_nan() { x } else { greater }
}

#[inline(always)]
fn minimum(x: f64, y: f64) -> f64 {
    -maximum(-x, -y)
}

#[inline(always)]
fn hardswish(x: f64) -> f64 {
    let between = x * (x + 3.0) / 6.0;
    let value = if x >= 3.0 { x } else { between };
    if x <= -3.0 { 0.0 } else { value }
}

#[inline(always)]
fn leaky_relu(x: f64, slope: f64) -> f64 {
    let below = x * slope;
    if x > 0.0 { x } else { below }
}

#[inline(always)]
fn softshrink(x: f64, lambda: f64) -> f64 {
    let below = if x < -lambda { x + lambda } else { 0.0 };
    let value = if x > lambda { x - lambda } else { below };
    if x.is_nan() { x } else { value }
}

#[inline(always)]
fn heaviside(x: f64, value: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        0.0
    } else if x == 0.0 {
        value
    } else {
        x
    }
}

#[inline(always)]
fn remainder(x: f64, y: f64) -> f64 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

/// `x - n y`, of which the sign is exact, for n that is the rounded quotient made whole.
#[inline(always)]
fn rest(x: f64, y: f64, n: f64) -> f64 {
    if n == 0.0 { x } else { (-n).mul_add(y, x) }
}

#[inline(always)]
fn div_floor(x: f64, y: f64) -> f64 {
    let n = (x / y).floor();
    // Rounded up to a whole number the quotient leaves a rest of the other sign than y.
    let rest = rest(x, y, n);
    let is_above = if y < 0.0 { rest > 0.0 } else { rest < 0.0 };
    if is_above { n - 1.0 } else { n }
}

#[inline(always)]
fn div_trunc(x: f64, y: f64) -> f64 {
    let n = (x / y).trunc();
    let rest = rest(x, y, n);
    let is_beyond = if x < 0.0 { rest > 0.0 } else { rest < 0.0 };
    if is_beyond { n - 1f64.copysign(n) } else { n }
}

#[inline(always)]
fn lerp(a: f64, b: f64, w: f64) -> f64 {
    let way = b - a;
    if w < 0.5 { a + w * way } else { b - way * (1.0 - w) }
}

/// The functions that derivatives are made of.
impl ProgramBuilder {
    /// A function of one argument.
    fn of(&mut self, function: Function, x: Term) -> Term {
        self.call(function, [x])
    }

    /// `cos(pi x) / x - sin(pi x) / (pi x^2)`. Up to 1/4, where that is a small difference, it is its series, the sum of
    /// `(-1)^k 2 k pi^(2 k) x^(2 k - 1) / (2 k + 1)!`.
    fn slope_of_sinc(&mut self, at: Call) -> Term {
        let x = at.x[0];
        let angle = self.mul(x, std::f64::consts::PI);
        let square = self.mul(angle, angle);
        let mut factors = [0.0; 8];
        let mut of_odd = 1.0;
        for (k, factor) in (1u32..).zip(&mut factors) {
            of_odd *= -f64::from(2 * k * (2 * k + 1));
            *factor = f64::from(2 * k) / of_odd;
        }
        let mut series = Term::from(factors[7]);
        for factor in factors[..7].iter().rev() {
            series = self.call(Function::Fma, [series, square, (*factor).into()]);
        }
        let near = self.mul(angle, series);
        let near = self.mul(near, std::f64::consts::PI);
        // cos(pi x) by the distance to the nearest even number, which is exact.
        let half = self.mul(x, 0.5);
        let half = self.of(Function::Round, half);
        let rest = self.call(Function::Fma, [half, (-2.0).into(), x]);
        let rest = self.mul(rest, std::f64::consts::PI);
        let cosine = self.of(Function::Cos, rest);
        let less = self.sub(cosine, at.y);
        let far = self.div(less, x);
        let size = self.of(Function::Abs, x);
        self.if_lt(size, 0.25, near, far)
    }

    /// The derivative of digamma, `zeta(2, x)`; below 1/2 `(pi / sin(pi x))^2 - zeta(2, 1 - x)`.
    fn slope_of_digamma(&mut self, x: Term) -> Term {
        let opposite = self.sub(1.0, x);
        let z = self.if_lt(x, 0.5, opposite, x);
        let zeta = self.call(Function::Zeta, [2.0.into(), z]);
        let whole = self.of(Function::Round, x);
        let distance = self.sub(x, whole);
        let angle = self.mul(distance, std::f64::consts::PI);
        let sine = self.of(Function::Sin, angle);
        let root = self.div(std::f64::consts::PI, sine);
        let square = self.mul(root, root);
        let below = self.sub(square, zeta);
        self.if_lt(x, 0.5, below, zeta)
    }

    /// `x^(a - 1) e^-x / Gamma(a)`, the derivative of the lower incomplete gamma function by x.
    fn gamma_density(&mut self, a: Term, x: Term) -> Term {
        let less = self.sub(a, 1.0);
        let power = self.call(Function::Xlogy, [less, x]);
        let exponent = self.sub(power, x);
        let logarithm = self.of(Function::Lgamma, a);
        let exponent = self.sub(exponent, logarithm);
        self.of(Function::Exp, exponent)
    }

    /// `x^(a - 1) (1 - x)^(b - 1) / B(a, b)`, the derivative of the incomplete beta function by x.
    fn beta_density(&mut self, [a, b, x]: [Term; MAX_ARITY]) -> Term {
        let [less_of_a, less_of_b] = [a, b].map(|of| self.sub(of, 1.0));
        let opposite = self.sub(1.0, x);
        let power = self.call(Function::Xlogy, [less_of_a, x]);
        let opposite = self.call(Function::Xlogy, [less_of_b, opposite]);
        let powers = self.add(power, opposite);
        let sum = self.add(a, b);
        let [of_a, of_b, of_sum] = [a, b, sum].map(|of| self.of(Function::Lgamma, of));
        // In this order the two of large numbers that are alike meet.
        let more = self.sub(of_sum, of_a);
        let more = self.sub(more, of_b);
        let exponent = self.add(powers, more);
        self.of(Function::Exp, exponent)
    }

    /// A value less `y / x`, which of an x of 0 counts as 1/2.
    fn less_quotient(&mut self, value: Term, at: Call) -> Term {
        let over = self.div(at.y, at.x[0]);
        let is_zero = self.call(Function::Eq, [at.x[0], 0.0.into()]);
        let over = self.call(Function::Where, [is_zero, 0.5.into(), over]);
        self.sub(value, over)
    }

    /// The gradient times `e^by / (1 + e^by)` of a difference times `scale`, which is of two equal infinities, of which there is none, 1/2.
    fn share_of_sum(&mut self, at: Call, by: Term, scale: f64) -> Term {
        let by = if scale == 1.0 { by } else { self.mul(by, scale) };
        let equal = self.call(Function::Eq, [at.x[0], at.x[1]]);
        let by = self.call(Function::Where, [equal, 0.0.into(), by]);
        let share = self.of(Function::Sigmoid, by);
        self.mul(at.dy, share)
    }

    /// The sigmoid of x, and that of -x, which is 1 less it.
    fn sigmoids(&mut self, x: Term) -> [Term; 2] {
        let opposite = self.neg(x);
        [x, opposite].map(|x| self.of(Function::Sigmoid, x))
    }

    /// `factor e^(-x^2)`.
    fn gaussian(&mut self, x: Term, factor: f64) -> Term {
        let opposite = self.neg(x);
        let exponent = self.mul(opposite, x);
        let power = self.of(Function::Exp, exponent);
        self.mul(power, factor)
    }

    /// `1 - x^2`.
    fn complement_of_square(&mut self, x: Term) -> Term {
        let less = self.sub(1.0, x);
        let more = self.add(x, 1.0);
        self.mul(less, more)
    }

    /// `sqrt(1 - x^2)`.
    fn root_of_complement(&mut self, x: Term) -> Term {
        let complement = self.complement_of_square(x);
        self.of(Function::Sqrt, complement)
    }

    /// z over the sum of the squares of the first two.
    fn over_sum_of_squares(&mut self, z: Term, [x, y, _]: [Term; MAX_ARITY]) -> Term {
        let [x, y] = [x, y].map(|x| self.mul(x, x));
        let sum = self.add(x, y);
        self.div(z, sum)
    }

    /// y where x is above 0 or NaN, else 0.
    fn gate(&mut self, x: impl Into<Term>, y: impl Into<Term>) -> Term {
        let (x, y) = (x.into(), y.into());
        self.if_le(x, 0.0, 0.0, y)
    }

    /// y where x is not 0, else 0.
    fn unless_zero(&mut self, x: Term, y: impl Into<Term>) -> Term {
        let condition = self.call(Function::Ne, [x, 0.0.into()]);
        self.call(Function::Where, [condition, y.into(), 0.0.into()])
    }

    /// x where it is at most 0, else 0.
    fn at_most_zero(&mut self, x: Term) -> Term {
        self.if_lt(0.0, x, 0.0, x)
    }

    /// `e^x` where x is at most 0, else 1.
    fn exp_below_zero(&mut self, x: Term) -> Term {
        let least = self.at_most_zero(x);
        self.of(Function::Exp, least)
    }

    /// A number where x is above 0, else `below`.
    fn above_or_below_zero(&mut self, x: Term, above: f64, below: Term) -> Term {
        self.if_lt(0.0, x, above, below)
    }

    fn neg(&mut self, x: impl Into<Term>) -> Term {
        self.call(Function::Neg, [x.into()])
    }

    pub(super) fn add(&mut self, x: impl Into<Term>, y: impl Into<Term>) -> Term {
        self.call(Function::Add, [x.into(), y.into()])
    }

    fn mul(&mut self, x: impl Into<Term>, y: impl Into<Term>) -> Term {
        self.call(Function::Mul, [x.into(), y.into()])
    }

    fn div(&mut self, x: impl Into<Term>, y: impl Into<Term>) -> Term {
        self.call(Function::Div, [x.into(), y.into()])
    }

    fn sub(&mut self, x: impl Into<Term>, y: impl Into<Term>) -> Term {
        self.call(Function::Sub, [x.into(), y.into()])
    }

    /// `dy` where `x < y`, else the other one.
    fn if_lt(&mut self, x: impl Into<Term>, y: impl Into<Term>, dy: impl Into<Term>, other: impl Into<Term>) -> Term {
        let condition = self.call(Function::Lt, [x.into(), y.into()]);
        self.call(Function::Where, [condition, dy.into(), other.into()])
    }

    /// `dy` where `x <= y`, else the other one.
    fn if_le(&mut self, x: impl Into<Term>, y: impl Into<Term>, dy: impl Into<Term>, other: impl Into<Term>) -> Term {
        let condition = self.call(Function::Le, [x.into(), y.into()]);
        self.call(Function::Where, [condition, dy.into(), other.into()])
    }

    /// 0, whatever the gradient is.
    pub(super) fn zero(&mut self, dy: Term) -> Term {
        self.call(Function::Where, [0.0.into(), dy, 0.0.into()])
    }

    /// The gradient of the argument `at.x[0]` of a maximum of it and `y`, or with `is_least` of a minimum: equal ones share it.
    fn share(&mut self, at: Call, x: usize, is_least: bool) -> Term {
        let (own, other) = (at.x[x], at.x[1 - x]);
        let (low, high) = if is_least { (other, own) } else { (own, other) };
        let half = self.mul(at.dy, 0.5);
        let reached = self.if_le(low, high, half, at.dy);
        self.if_lt(low, high, 0.0, reached)
    }

    /// The gradients of the arguments of a maximum of numbers, or with `is_least` of a minimum: the first has it where they are equal.
    fn pick(&mut self, at: Call, x: usize, is_least: bool) -> Term {
        let [own, other] = [at.x[0], at.x[1]];
        let (low, high) = if is_least { (own, other) } else { (other, own) };
        let (first, second) = if x == 0 { (at.dy, 0.0.into()) } else { (0.0.into(), at.dy) };
        // Where the second is NaN, too.
        let where_none_is_less = self.if_le(other, other, second, first);
        self.if_le(low, high, first, where_none_is_less)
    }

    /// `dy` where x lies strictly between two numbers.
    fn within(&mut self, x: Term, [low, high]: [f64; 2], dy: Term) -> Term {
        let below = self.if_lt(x, high, dy, 0.0);
        self.if_lt(low, x, below, 0.0)
    }

    /// `dy` where x is not between `-lambda` and `lambda`.
    fn outside(&mut self, x: Term, lambda: Term, dy: Term) -> Term {
        let least = self.neg(lambda);
        let above = self.if_le(x, lambda, 0.0, dy);
        self.if_le(least, x, above, dy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_derivative_for_each_argument() {
        for function in Function::ALL {
            let row = function.row();
            assert!((1..=MAX_ARITY).contains(&row.arity), "{function:?}");
            let numbers = (0..row.arity).filter(|&at| !function.takes_bool(at)).count();
            let is_of_floats = !row.signature.gives_bool && row.signature.domain != Domain::Integers;
            let has_some = is_of_floats && !(0..row.arity).all(|at| function.lacks_gradient_of(at));
            assert_eq!(
                function.why_no_gradient().is_some(),
                (0..row.arity).any(|at| function.lacks_gradient_of(at)),
                "{function:?}"
            );
            assert_eq!(row.derivatives.len(), if has_some { numbers } else { 0 }, "{function:?}");
            assert_eq!(serde_json::to_string(&function).unwrap(), format!("\"{}\"", row.name));
            assert_eq!(function.value([f64::NAN; 3]).is_nan(), !row.signature.gives_bool, "{function:?}");
        }
    }
}
