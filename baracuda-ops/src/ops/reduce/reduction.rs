//! The table of reductions: a row states a reduction's name, what becomes of each value, how two are combined, and what becomes of the result.
//! Everything else follows from it.

use crate::json;

/// What becomes of a value before it is combined with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Each {
    /// The value itself.
    Value,
    /// Its magnitude.
    Magnitude,
    /// Its square.
    Square,
}

/// How two values become one. Each way is associative but for rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Combine {
    Add,
    Multiply,
    /// The greater one; NaN if one is.
    Greatest,
    /// The lesser one; NaN if one is.
    Least,
}

/// What becomes of all values together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Finish {
    /// The result.
    Total,
    /// The result, divided by the number of values.
    Mean,
    /// Its square root.
    Root,
}

impl Each {
    pub(crate) fn of(self, value: f64) -> f64 {
        match self {
            Self::Value => value,
            Self::Magnitude => value.abs(),
            Self::Square => value * value,
        }
    }
}

impl Combine {
    /// What changes no value that it is combined with.
    pub(crate) const fn identity(self) -> f64 {
        match self {
            Self::Add => 0.0,
            Self::Multiply => 1.0,
            Self::Greatest => f64::NEG_INFINITY,
            Self::Least => f64::INFINITY,
        }
    }

    pub(crate) fn of(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add => x + y,
            Self::Multiply => x * y,
            _ if x.is_nan() || y.is_nan() => f64::NAN,
            Self::Greatest => x.max(y),
            Self::Least => x.min(y),
        }
    }

    /// Whether there is a result without values.
    pub(crate) const fn is_of_none(self) -> bool {
        matches!(self, Self::Add | Self::Multiply)
    }
}

impl Finish {
    /// `count`: of the values.
    #[expect(clippy::cast_precision_loss, reason = "a count is rounded as a literal is")]
    pub(crate) fn of(self, total: f64, count: u64) -> f64 {
        match self {
            Self::Total => total,
            Self::Mean => total / count as f64,
            Self::Root => total.sqrt(),
        }
    }
}

/// What a row says of a reduction.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) each: Each,
    pub(crate) combine: Combine,
    pub(crate) finish: Finish,
}

/// The reductions, each as `/// formula and rules` `Name = "name": each, combine, finish;`.
macro_rules! reductions {
    ($($(#[$doc:meta])* $Name:ident = $name:literal: $each:ident, $combine:ident, $finish:ident;)*) => {
        /// What many values become one by, under the name that PyTorch has for it.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reduction {
            $($(#[$doc])* $Name,)*
        }

        impl Reduction {
            /// Every reduction, in declaration order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Name),*];

            /// The name used in JSON and errors.
            pub const fn name(self) -> &'static str {
                self.row().name
            }

            pub(crate) const fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    each: Each::$each,
                    combine: Combine::$combine,
                    finish: Finish::$finish,
                }),*];
                &ROWS[self as usize]
            }
        }
    };
}

reductions! {
    /// `x_1 + .. + x_n`; 0 of no values.
    Sum = "sum": Value, Add, Total;
    /// The sum, divided by n; NaN of no values.
    Mean = "mean": Value, Add, Mean;
    /// `x_1 .. x_n`; 1 of no values.
    Prod = "prod": Value, Multiply, Total;
    /// The greatest value; NaN if one is NaN. Of no values it is refused.
    Max = "max": Value, Greatest, Total;
    /// The least value; NaN if one is NaN. Of no values it is refused.
    Min = "min": Value, Least, Total;
    /// `|x_1| + .. + |x_n|`; 0 of no values.
    Norm1 = "norm1": Magnitude, Add, Total;
    /// `sqrt(x_1^2 + .. + x_n^2)`; 0 of no values. Kernels that compute in f32 give infinity where the sum of the squares is beyond its range, and may take
    /// squares below 2^-126 for 0.
    Norm2 = "norm2": Square, Add, Root;
}

json::named!(Reduction);

impl Reduction {
    /// The reduction of some values in f64, combined one after another.
    pub fn value(self, values: &[f64]) -> f64 {
        let Row { each, combine, finish, .. } = self.row();
        let total = values.iter().fold(combine.identity(), |total, &value| combine.of(total, each.of(value)));
        finish.of(total, values.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_formulas() {
        for (reduction, of_three, of_none) in [
            (Reduction::Sum, 3.0, 0.0),
            (Reduction::Mean, 1.0, f64::NAN),
            (Reduction::Prod, -24.0, 1.0),
            (Reduction::Max, 4.0, f64::NEG_INFINITY),
            (Reduction::Min, -3.0, f64::INFINITY),
            (Reduction::Norm1, 9.0, 0.0),
            (Reduction::Norm2, 29f64.sqrt(), 0.0),
        ] {
            assert_eq!(reduction.value(&[2.0, -3.0, 4.0]), of_three, "{reduction:?}");
            assert!(reduction.value(&[1.0, f64::NAN, 2.0]).is_nan(), "{reduction:?}");
            let found = reduction.value(&[]);
            assert!(found == of_none || (found.is_nan() && of_none.is_nan()), "{reduction:?}: {found}");
            assert_eq!(serde_json::to_string(&reduction).unwrap(), format!("\"{}\"", reduction.name()));
        }
    }
}
