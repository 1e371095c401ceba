//! The table of functions: a row states a function's name, arguments, formula, cost, value in f64 and derivatives. Everything else follows from it.

use super::{ProgramBuilder, Term};
use crate::dtype::DType;
use crate::json;

/// How much arithmetic a function is: kernels are compiled by it, and budgets are stated by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cost {
    /// A few instructions, within 4 ulp of the computing type.
    Light,
    /// What exponentials and logarithms make, within 8 ulp.
    Exponential,
}

impl Cost {
    /// The most by which a result differs from the exact function of its arguments, in ulp of the computing type; through wgpu twice as much.
    pub(crate) const fn ulps(self) -> f64 {
        match self {
            Self::Light => 4.0,
            Self::Exponential => 8.0,
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
    /// The value, in f64, in which a Bool is 0 or 1. Arguments that the function does not have are 0.
    pub(crate) value: fn([f64; MAX_ARITY]) -> f64,
    /// What reaches each argument that is a number, of a gradient that arrives at the result. None passes through functions without derivatives.
    pub(crate) derivatives: &'static [fn(&mut ProgramBuilder, Call) -> Term],
}

/// The most arguments that a function has.
pub(crate) const MAX_ARITY: usize = 3;

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
/// left out.
macro_rules! functions {
    ($($(#[$doc:meta])* $Name:ident = $name:literal($($x:ident),*) $cost:ident, $value:expr, [$($derivative:expr),*] $(as $signature:ident)?;)*) => {
        /// A function of a [`Program`](super::Program), by the name that PyTorch has for it.
        ///
        /// The formulas hold for floating-point elements, which compute in f32, or in f64 where all are f64, where a NaN argument gives NaN if nothing else is
        /// said; and for integers where [`computes_in`](Self::computes_in) says so. Integers wrap. What is true or false is of type Bool.
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

            pub(crate) const fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    arity: [$(stringify!($x)),*].len(),
                    signature: Signature::of(&[$(Signature::$signature)?]),
                    cost: Cost::$cost,
                    value: |[$($x,)* ..]| $value,
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
    /// `e^x`.
    Exp = "exp"(x) Exponential, x.exp(), [|b, at| b.mul(at.dy, at.y)];
    /// The natural logarithm; of 0 -infinity, of a number below 0 NaN.
    Log = "log"(x) Exponential, x.ln(), [|b, at| b.div(at.dy, at.x[0])];
    /// `1 / (1 + e^-x)`.
    Sigmoid = "sigmoid"(x) Exponential, sigmoid(x), [|b, at| {
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
    /// The number of bits of x that are set, in two's complement.
    PopCount = "popcount"(x) Light, no_number([x]), [] as INTEGER;
    /// `x + y`.
    Add = "add"(x, y) Light, x + y, [|_, at| at.dy, |_, at| at.dy] as NUMBER;
    /// `x - y`.
    Sub = "sub"(x, y) Light, x - y, [|_, at| at.dy, |b, at| b.neg(at.dy)] as NUMBER;
    /// `x y`.
    Mul = "mul"(x, y) Light, x * y, [|b, at| b.mul(at.dy, at.x[1]), |b, at| b.mul(at.dy, at.x[0])] as NUMBER;
    /// `x / y`; by 0 infinity, `0 / 0` is NaN.
    Div = "div"(x, y) Light, x / y, [
        |b, at| b.div(at.dy, at.x[1]),
        |b, at| { let share = b.mul(at.dy, at.y); let share = b.div(share, at.x[1]); b.neg(share) }
    ];
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
    /// The greatest whole number that is not above `x / y`; by 0 it is 0.
    DivFloor = "div_floor"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// `x / y` without its fraction; by 0 it is 0.
    DivTrunc = "div_trunc"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// `x - y div_floor(x, y)`, which has the sign of y; by 0 it is 0.
    Remainder = "remainder"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// `x - y div_trunc(x, y)`, which has the sign of x; by 0 it is 0.
    Fmod = "fmod"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// The greater one.
    Maximum = "maximum"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// The lesser one.
    Minimum = "minimum"(x, y) Light, no_number([x, y]), [] as INTEGER;
    /// y where the condition x is true, else z.
    Where = "where"(x, y, z) Light, if x == 0.0 { z } else { y }, [
        |b, at| b.call(Function::Where, [at.x[0], at.dy, 0.0.into()]),
        |b, at| b.call(Function::Where, [at.x[0], 0.0.into(), at.dy])
    ] as SELECTION;
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
        self.row().cost.ulps()
    }
}

/// A Bool among numbers.
fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// In place of the value of a function of integers alone: `integers.rs` has that.
fn no_number<const N: usize>(_: [f64; N]) -> f64 {
    f64::NAN
}

fn sigmoid(x: f64) -> f64 {
    // For a positive number exp would overflow.
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// The functions that derivatives are made of.
impl ProgramBuilder {
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
            let has_none = row.signature.gives_bool || row.signature.domain == Domain::Integers;
            assert_eq!(row.derivatives.len(), if has_none { 0 } else { numbers }, "{function:?}");
            assert_eq!(serde_json::to_string(&function).unwrap(), format!("\"{}\"", row.name));
            assert!(row.signature.gives_bool || function.value([f64::NAN; 3]).is_nan(), "{function:?}");
        }
    }
}
