//! The table of reductions: a row states a reduction's name, what becomes of each value, how two are combined, what becomes of the result, and of which type
//! it is. Everything else follows from it.

use crate::backend::cpu::Sum;
use crate::dtype::DType;
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
    /// 1, or 0 of a value that is 0.
    IsNonzero,
    /// 0, or 1 of a value that is 0.
    IsZero,
}

/// How values become one. Each way is associative but for rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Combine {
    Add,
    Multiply,
    /// The greater one; NaN if one is.
    Greatest,
    /// The lesser one; NaN if one is.
    Least,
    /// The logarithm of the sum of exponentials: the greatest, and the sum of the others' exponentials relative to that one's.
    Exponentials,
    /// The sum of the squares of the differences from the mean, with the mean and the number of values.
    Moments,
    /// The position of the greatest one, the first of equals; of the first NaN if one is.
    FirstGreatest,
    /// The position of the least one, the first of equals; of the first NaN if one is.
    FirstLeast,
    /// The number of those that are 1, of zeros and ones: an integer, whatever the type of the values.
    Count,
}

/// What becomes of all values together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Finish {
    /// The result.
    Total,
    /// The result, divided by the number of values less the correction.
    Mean,
    /// Its square root.
    Root,
    /// The square root of the result that is divided so.
    RootOfMean,
    /// Whether it is 0.
    IsNone,
}

/// What a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Gives {
    /// A number made of floating-point numbers.
    Float,
    /// A number made of any numbers. Sums and products of integers have 64 bits.
    Number,
    /// One of the values.
    Value,
    /// How many, as an integer; or as a floating-point number, if one is asked for.
    Count,
    /// A position along what is reduced.
    Position,
    /// Whether something holds.
    Truth,
}

impl Each {
    pub(crate) fn of(self, value: f64) -> f64 {
        match self {
            Self::Value => value,
            Self::Magnitude => value.abs(),
            Self::Square => value * value,
            Self::IsNonzero => f64::from(u8::from(value != 0.0)),
            Self::IsZero => f64::from(u8::from(value == 0.0)),
        }
    }

    /// As [`of`](Self::of), of an integer, which has neither magnitude nor square here.
    fn of_integer(self, value: i64) -> i64 {
        match self {
            Self::IsNonzero => (value != 0).into(),
            Self::IsZero => (value == 0).into(),
            _ => value,
        }
    }
}

impl Combine {
    /// What changes no value that it is combined with, where values become one of their own type.
    pub(crate) const fn identity(self) -> f64 {
        match self {
            Self::Multiply => 1.0,
            Self::Greatest | Self::FirstGreatest | Self::Exponentials => f64::NEG_INFINITY,
            Self::Least | Self::FirstLeast => f64::INFINITY,
            Self::Add | Self::Moments | Self::Count => 0.0,
        }
    }

    /// Two values as one, where that is of their own type; else the first.
    pub(crate) fn of(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add | Self::Count => x + y,
            Self::Multiply => x * y,
            Self::Greatest | Self::Least if x.is_nan() || y.is_nan() => f64::NAN,
            Self::Greatest => x.max(y),
            Self::Least => x.min(y),
            _ => x,
        }
    }

    /// Whether there is a result without values.
    pub(crate) const fn is_of_none(self) -> bool {
        !matches!(self, Self::Greatest | Self::Least | Self::FirstGreatest | Self::FirstLeast)
    }

    /// Whether two values become one of their own type, which is all that is kept of them.
    pub(crate) const fn is_scalar(self) -> bool {
        matches!(self, Self::Add | Self::Multiply | Self::Greatest | Self::Least)
    }

    /// Whether positions count.
    pub(crate) const fn is_position(self) -> bool {
        matches!(self, Self::FirstGreatest | Self::FirstLeast)
    }
}

impl Finish {
    /// `divisor`: the number of the values, less the correction.
    #[expect(clippy::cast_precision_loss, reason = "a count is rounded as a literal is")]
    pub(crate) fn of(self, total: f64, divisor: u64) -> f64 {
        match self {
            Self::Total => total,
            Self::Mean => total / divisor as f64,
            Self::Root => total.sqrt(),
            Self::RootOfMean => (total / divisor as f64).sqrt(),
            Self::IsNone => f64::from(u8::from(total == 0.0)),
        }
    }
}

/// What a row says of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) each: Each,
    pub(crate) combine: Combine,
    pub(crate) finish: Finish,
    pub(crate) gives: Gives,
}

impl Row {
    /// The row by which values of type Bool are reduced, which are counted: their sum is the number of those that are true, and so on.
    pub(crate) const fn of_bools(self) -> Self {
        let (each, combine, finish) = match self.combine {
            Combine::Add => (Each::IsNonzero, Combine::Count, Finish::Total),
            Combine::Greatest => (Each::IsNonzero, Combine::Count, Finish::Total),
            Combine::Multiply | Combine::Least => (Each::IsZero, Combine::Count, Finish::IsNone),
            _ => (self.each, self.combine, self.finish),
        };
        Self { each, combine, finish, ..self }
    }

    /// Whether it is refused of integers.
    pub(crate) const fn is_of_floats(self) -> bool {
        matches!(self.gives, Gives::Float)
    }

    /// Whether of floating-point values it gives numbers of their type.
    pub(crate) const fn gives_values_of_floats(self) -> bool {
        matches!(self.gives, Gives::Float | Gives::Number | Gives::Value)
    }

    /// Whether the output's type says how many elements its values have to hold.
    pub(crate) const fn is_counted(self) -> bool {
        matches!(self.gives, Gives::Count | Gives::Position)
    }

    /// The types that the output may have, the default first; `shared`: that of the inputs, `values`: that of what is reduced, f32 for every
    /// floating-point type.
    pub(crate) fn outputs(self, shared: DType, values: DType) -> Vec<DType> {
        const WHOLE: [DType; 3] = [DType::I64, DType::I32, DType::U32];
        const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];
        let with = |default: DType, of: &[DType]| {
            let others = of.iter().copied().filter(|&dtype| dtype != default);
            std::iter::once(default).chain(others).collect()
        };
        match self.gives {
            Gives::Truth => vec![DType::Bool],
            Gives::Position => WHOLE.into(),
            Gives::Count => [&WHOLE[..], &FLOATS].concat(),
            Gives::Float | Gives::Number | Gives::Value if values.is_float() => with(shared, &FLOATS),
            Gives::Float | Gives::Number => WHOLE.into(),
            Gives::Value if values == DType::Bool => vec![DType::Bool],
            Gives::Value => vec![shared],
        }
    }

    /// The reduction of numbers in f64, which are read several times if need be. `divisor`: their count, less the correction.
    pub(crate) fn value<V: Iterator<Item = f64>>(self, values: impl Fn() -> V, divisor: u64) -> f64 {
        // Squares that overflow or vanish are those of numbers that a power of two has brought near 1.
        let has_squares = self.each == Each::Square || self.combine == Combine::Moments;
        let scale = if has_squares { scale(values()) } else { 1.0 };
        let each = || values().map(|value| self.each.of(value / scale));
        let total = match self.combine {
            Combine::Add | Combine::Count => each().collect::<Sum>().total(),
            Combine::Exponentials => {
                let greatest = each().fold(f64::NEG_INFINITY, |x, y| Combine::Greatest.of(x, y));
                // An infinity is the result, of which differences would be NaN.
                let sum = || each().map(|value| (value - greatest).exp()).collect::<Sum>().total();
                if greatest.is_finite() { greatest + sum().ln() } else { greatest }
            }
            Combine::Moments => {
                let (sum, count) = each().fold((Sum::default(), 0.0), |(mut sum, count), value| {
                    sum.add(value);
                    (sum, count + 1.0)
                });
                let mean = sum.total() / count;
                each().map(|value| (value - mean) * (value - mean)).collect::<Sum>().total()
            }
            Combine::FirstGreatest | Combine::FirstLeast => first(each(), |value, best| match self.combine {
                _ if best.is_nan() => false,
                Combine::FirstGreatest => value > best || value.is_nan(),
                _ => value < best || value.is_nan(),
            }),
            combine => each().fold(combine.identity(), |total, value| combine.of(total, value)),
        };
        let scale_back = if self.finish == Finish::Mean { scale * scale } else { scale };
        self.finish.of(total, divisor) * scale_back
    }

    /// The reduction of integers, which wrap.
    pub(crate) fn integer(self, values: impl Iterator<Item = i64>) -> i64 {
        let mut each = values.map(|value| self.each.of_integer(value));
        let total = match self.combine {
            Combine::Multiply => each.fold(1, i64::wrapping_mul),
            Combine::Greatest => each.max().unwrap_or(i64::MIN),
            Combine::Least => each.min().unwrap_or(i64::MAX),
            Combine::FirstGreatest => return whole_position(&mut each, |value, best| value > best),
            Combine::FirstLeast => return whole_position(&mut each, |value, best| value < best),
            _ => each.fold(0, i64::wrapping_add),
        };
        if self.finish == Finish::IsNone { (total == 0).into() } else { total }
    }
}

/// The position of the first value that no later one is better than.
#[expect(clippy::cast_precision_loss, reason = "as many values as f64 has no numbers of are not read one by one")]
fn first(values: impl Iterator<Item = f64>, is_better: impl Fn(f64, f64) -> bool) -> f64 {
    let mut best: Option<(u64, f64)> = None;
    for (at, value) in (0..).zip(values) {
        if best.is_none_or(|(_, best)| is_better(value, best)) {
            best = Some((at, value));
        }
    }
    best.map_or(f64::NAN, |(at, _)| at as f64)
}

/// As [`first`], of integers.
fn whole_position(values: &mut dyn Iterator<Item = i64>, is_better: impl Fn(i64, i64) -> bool) -> i64 {
    let mut best: Option<(i64, i64)> = None;
    for (at, value) in (0..).zip(values) {
        if best.is_none_or(|(_, best)| is_better(value, best)) {
            best = Some((at, value));
        }
    }
    best.map_or(0, |(at, _)| at)
}

/// A power of two near the largest magnitude; 1 where that is 0 or not finite.
fn scale(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, |most: f64, value| most.max(value.abs()));
    let power = f64::from_bits(most.to_bits() & f64::INFINITY.to_bits());
    if power > 0.0 && power.is_finite() { power } else { 1.0 }
}

/// The reductions, each as `/// formula and rules` `Name = "name": each, combine, finish, gives;`.
macro_rules! reductions {
    ($($(#[$doc:meta])* $Name:ident = $name:literal: $each:ident, $combine:ident, $finish:ident, $gives:ident;)*) => {
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
                    gives: Gives::$gives,
                }),*];
                &ROWS[self as usize]
            }
        }
    };
}

reductions! {
    /// `x_1 + .. + x_n`; 0 of no values.
    Sum = "sum": Value, Add, Total, Number;
    /// The sum, divided by n; NaN of no values.
    Mean = "mean": Value, Add, Mean, Float;
    /// `x_1 .. x_n`; 1 of no values.
    Prod = "prod": Value, Multiply, Total, Number;
    /// The greatest value; NaN if one is NaN. Of no values it is refused.
    Max = "max": Value, Greatest, Total, Value;
    /// The least value; NaN if one is NaN. Of no values it is refused.
    Min = "min": Value, Least, Total, Value;
    /// `|x_1| + .. + |x_n|`; 0 of no values.
    Norm1 = "norm1": Magnitude, Add, Total, Float;
    /// `sqrt(x_1^2 + .. + x_n^2)`; 0 of no values. Kernels that compute in f32 give infinity where the sum of the squares is beyond its range, and may take
    /// squares below 2^-126 for 0.
    Norm2 = "norm2": Square, Add, Root, Float;
    /// The greatest magnitude; NaN if a value is NaN. Of no values it is refused.
    NormInf = "norm_inf": Magnitude, Greatest, Total, Float;
    /// `log(exp(x_1) + .. + exp(x_n))`, whose exponentials are those of differences from the greatest value, so that none overflows; infinite if a value is
    /// infinity, -infinity of no values and of -infinities alone.
    LogSumExp = "logsumexp": Value, Exponentials, Total, Float;
    /// `((x_1 - mean)^2 + .. + (x_n - mean)^2) / (n - correction)`, of differences from the mean, whose size costs no digits of them; by 0, and never by less,
    /// it is divided where there are no more values than the [correction](crate::ReduceDescriptor::correction), which gives NaN of equal values. NaN if a
    /// value is infinite. As with [`Norm2`](Self::Norm2) squares may leave the range of f32.
    Var = "var": Value, Moments, Mean, Float;
    /// The square root of the [variance](Self::Var).
    Std = "std": Value, Moments, RootOfMean, Float;
    /// How many values are not 0, among which NaN counts; an integer, or, as the norm of order 0, of a floating-point type that is asked for.
    CountNonzero = "count_nonzero": IsNonzero, Count, Total, Count;
    /// Whether a value is not 0, as which NaN counts; false of no values.
    Any = "any": IsNonzero, Count, Total, Truth;
    /// Whether no value is 0; true of no values.
    All = "all": IsZero, Count, IsNone, Truth;
    /// The position of the greatest value, the first of equal ones, or of the first NaN: along one axis, or in row-major order of those that are reduced, from
    /// 0 on. Of no values it is refused.
    ArgMax = "argmax": Value, FirstGreatest, Total, Position;
    /// The position of the least value, as [`ArgMax`](Self::ArgMax).
    ArgMin = "argmin": Value, FirstLeast, Total, Position;
}

json::named!(Reduction);

impl Reduction {
    /// The reduction of some values in f64: true is 1, and a variance has a correction of 1.
    pub fn value(self, values: &[f64]) -> f64 {
        let correction = u64::from(self.row().combine == Combine::Moments);
        let value = self.row().value(|| values.iter().copied(), (values.len() as u64).saturating_sub(correction));
        if self.row().gives == Gives::Truth { value.min(1.0) } else { value }
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
            (Reduction::NormInf, 4.0, f64::NEG_INFINITY),
            (Reduction::LogSumExp, 4.0 + ((-2f64).exp() + (-7f64).exp() + 1.0).ln(), f64::NEG_INFINITY),
            (Reduction::Var, 13.0, f64::NAN),
            (Reduction::Std, 13f64.sqrt(), f64::NAN),
            (Reduction::CountNonzero, 3.0, 0.0),
            (Reduction::Any, 1.0, 0.0),
            (Reduction::All, 1.0, 1.0),
            (Reduction::ArgMax, 2.0, f64::NAN),
            (Reduction::ArgMin, 1.0, f64::NAN),
        ] {
            let found = reduction.value(&[2.0, -3.0, 4.0]);
            assert!((found - of_three).abs() <= 1e-15 * of_three.abs(), "{reduction:?}: {found}");
            let of_nan = reduction.value(&[1.0, f64::NAN, f64::NAN]);
            match reduction.row().gives {
                Gives::Position => assert_eq!(of_nan, 1.0, "{reduction:?}"),
                Gives::Count => assert_eq!(of_nan, 3.0, "{reduction:?}"),
                Gives::Truth => assert_eq!(of_nan, 1.0, "{reduction:?}"),
                _ => assert!(of_nan.is_nan(), "{reduction:?}"),
            }
            let found = reduction.value(&[]);
            assert!(found == of_none || (found.is_nan() && of_none.is_nan()), "{reduction:?}: {found}");
            assert_eq!(serde_json::to_string(&reduction).unwrap(), format!("\"{}\"", reduction.name()));
        }
    }
}
