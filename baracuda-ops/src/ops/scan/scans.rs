//! The table of scans: a row states the name and how values are combined.

use crate::dtype::DType;
use crate::json;

/// How two values become one. Each way is associative but for rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Combine {
    Add,
    Multiply,
    /// The greater one, of equal ones the later; NaN if one is.
    Greatest,
    /// The lesser one, of equal ones the later; NaN if one is.
    Least,
    /// The logarithm of the sum of the exponentials.
    LogAddExp,
}

impl Combine {
    /// Whether values are chosen, not computed.
    pub(crate) const fn is_choice(self) -> bool {
        matches!(self, Self::Greatest | Self::Least)
    }

    /// What no values are together, in floating-point numbers.
    pub(crate) const fn none(self) -> f64 {
        match self {
            Self::Add => 0.0,
            Self::Multiply => 1.0,
            Self::Greatest | Self::LogAddExp => f64::NEG_INFINITY,
            Self::Least => f64::INFINITY,
        }
    }

    /// What no values are together, in an integer type or Bool.
    pub(crate) fn none_of(self, dtype: DType) -> i64 {
        let (least, greatest) = match dtype {
            DType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DType::U32 => (0, u32::MAX.into()),
            DType::Bool => (0, 1),
            DType::U8 => (0, u8::MAX.into()),
            DType::I8 => (i8::MIN.into(), i8::MAX.into()),
            _ => (i64::MIN, i64::MAX),
        };
        match self {
            Self::Add | Self::LogAddExp => 0,
            Self::Multiply => 1,
            Self::Greatest => least,
            Self::Least => greatest,
        }
    }

    /// Whether the earlier of two values is the greatest or the least of them, as this says. Of equal values and of two NaN it is the later.
    pub(crate) fn is_earlier(self, earlier: f64, later: f64) -> bool {
        let is_beyond = if self == Self::Least { later > earlier } else { later < earlier };
        is_beyond || (earlier.is_nan() && !later.is_nan())
    }

    /// As [`is_earlier`](Self::is_earlier), of integers.
    pub(crate) fn is_earlier_integer(self, earlier: i64, later: i64) -> bool {
        if self == Self::Least { later > earlier } else { later < earlier }
    }
}

/// The scans, each as `/// formula and rules` `Name = "name": combine;`.
macro_rules! scans {
    ($($(#[$doc:meta])* $Name:ident = $name:literal: $combine:ident;)*) => {
        /// What the values up to each position become, under the name of the reduction that PyTorch has for it.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Scan {
            $($(#[$doc])* $Name,)*
        }

        impl Scan {
            /// Every scan, in declaration order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Name),*];

            /// The name used in JSON and errors.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Name => $name),*
                }
            }

            pub(crate) const fn combine(self) -> Combine {
                match self {
                    $(Self::$Name => Combine::$combine),*
                }
            }
        }
    };
}

scans! {
    /// `x_1 + .. + x_i`, PyTorch's `cumsum`; 0 of no values. Integers wrap.
    Sum = "sum": Add;
    /// `x_1 .. x_i`, PyTorch's `cumprod`; 1 of no values. Integers wrap.
    Prod = "prod": Multiply;
    /// The greatest value so far, PyTorch's `cummax`; NaN from the first NaN on. Of no values minus infinity, or the least integer.
    Max = "max": Greatest;
    /// The least value so far, PyTorch's `cummin`; NaN from the first NaN on. Of no values infinity, or the greatest integer.
    Min = "min": Least;
    /// `log(exp(x_1) + .. + exp(x_i))`, PyTorch's `logcumsumexp`, without overflow; minus infinity of no values. It is of floating-point numbers.
    LogSumExp = "logsumexp": LogAddExp;
}

json::named!(Scan);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for scan in Scan::ALL {
            assert_eq!(serde_json::to_string(&scan).unwrap(), format!("\"{}\"", scan.name()));
        }
    }

    #[test]
    fn no_values_change_no_value() {
        for combine in [Combine::Greatest, Combine::Least] {
            for value in [f64::NEG_INFINITY, -1.0, 0.0, f64::INFINITY, f64::NAN] {
                assert!(!combine.is_earlier(combine.none(), value), "{combine:?} {value}");
            }
            assert!(combine.is_earlier(f64::NAN, 1.0) && !combine.is_earlier(1.0, f64::NAN));
            assert!(!combine.is_earlier(2.0, 2.0) && !combine.is_earlier(f64::NAN, f64::NAN));
            for dtype in [DType::I64, DType::I32, DType::U32, DType::Bool, DType::U8, DType::I8] {
                assert!(!combine.is_earlier_integer(combine.none_of(dtype), 0), "{combine:?} {dtype}");
                assert!(!combine.is_earlier_integer(combine.none_of(dtype), 1), "{combine:?} {dtype}");
            }
        }
    }
}
