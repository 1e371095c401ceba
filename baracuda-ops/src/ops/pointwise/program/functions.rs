//! The table of functions: a row states a function's name, arguments, formula, cost, value in f64 and derivatives. Everything else follows from it.

use super::{ProgramBuilder, Term};
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

/// What a row says of a function.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The number of arguments.
    pub(crate) arity: usize,
    pub(crate) cost: Cost,
    /// The value, in f64. Arguments that the function does not have are 0.
    pub(crate) value: fn([f64; MAX_ARITY]) -> f64,
    /// What reaches each argument of a gradient that arrives at the result.
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

/// The functions, each as `/// formula and rules` `Name = "name"(arguments) cost, value, [derivative of each argument];`.
macro_rules! functions {
    ($($(#[$doc:meta])* $Name:ident = $name:literal($($x:ident),*) $cost:ident, $value:expr, [$($derivative:expr),*];)*) => {
        /// A function of a [`Program`](super::Program), by the name that PyTorch has for it.
        ///
        /// The formulas hold for floating-point elements, which compute in f32, or in f64 where all are f64. A NaN argument gives NaN.
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
    Neg = "neg"(x) Light, -x, [|b, at| b.neg(at.dy)];
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
    /// `x + y`.
    Add = "add"(x, y) Light, x + y, [|_, at| at.dy, |_, at| at.dy];
    /// `x - y`.
    Sub = "sub"(x, y) Light, x - y, [|_, at| at.dy, |b, at| b.neg(at.dy)];
    /// `x y`.
    Mul = "mul"(x, y) Light, x * y, [|b, at| b.mul(at.dy, at.x[1]), |b, at| b.mul(at.dy, at.x[0])];
    /// `x / y`; by 0 infinity, `0 / 0` is NaN.
    Div = "div"(x, y) Light, x / y, [
        |b, at| b.div(at.dy, at.x[1]),
        |b, at| { let share = b.mul(at.dy, at.y); let share = b.div(share, at.x[1]); b.neg(share) }
    ];
}

json::named!(Function);

impl Function {
    /// The number of its arguments.
    pub const fn arity(self) -> usize {
        self.row().arity
    }

    /// The value in f64, which the reference computes. Arguments beyond the arity do not count.
    pub fn value(self, arguments: [f64; 3]) -> f64 {
        (self.row().value)(arguments)
    }

    /// The most by which a result of a kernel differs from the exact function of its arguments, in ulp of the type in which it computes. Through
    /// wgpu it is twice as much.
    pub const fn ulps(self) -> f64 {
        self.row().cost.ulps()
    }
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
            assert_eq!(row.derivatives.len(), row.arity, "{function:?}");
            assert_eq!(serde_json::to_string(&function).unwrap(), format!("\"{}\"", row.name));
            assert!(function.value([f64::NAN; 3]).is_nan(), "{function:?}");
        }
    }
}
