//! The functions of integers, which wrap: of one position for the reference, and of blocks.
//!
//! A Bool is 0 or 1 in the computing type.

use super::lanes::{map, select, zip};
use super::{Function, Lane};
use crate::dtype::DType;

/// A function of integers of a type in which programs compute.
pub(crate) fn value(function: Function, computing: DType, [x, y, z]: [i64; 3]) -> i64 {
    match computing {
        DType::I32 => i64::from(of(function, [x, y, z].map(i32::of_whole))),
        DType::U32 => i64::from(of(function, [x, y, z].map(u32::of_whole))),
        _ => of(function, [x, y, z]),
    }
}

/// A type of integers in which programs compute.
pub(crate) trait Whole: Copy + Ord + Default + Send + Sync + 'static {
    const BITS: u32;
    /// The low bits of a whole number.
    fn of_whole(value: i64) -> Self;
    /// The bits, without copies of the sign.
    fn bits(self) -> u64;
    fn of_bits(bits: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Quotient without its fraction, and rest; 0 and 0 of a divisor of 0.
    fn divided(self, by: Self) -> (Self, Self);
    /// Shifts by less than the number of bits.
    fn raised(self, by: u32) -> Self;
    fn lowered(self, by: u32) -> Self;
}

macro_rules! whole {
    ($($Type:ident of $Bits:ident),*) => {
        $(impl Whole for $Type {
            const BITS: u32 = $Type::BITS;

            #[inline(always)]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::unnecessary_cast,
                reason = "integers are cast by their low bits"
            )]
            fn of_whole(value: i64) -> Self {
                value as $Type
            }

            #[inline(always)]
            #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "bits")]
            fn bits(self) -> u64 {
                u64::from(self as $Bits)
            }

            #[inline(always)]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                clippy::unnecessary_cast,
                reason = "bits"
            )]
            fn of_bits(bits: u64) -> Self {
                bits as $Bits as $Type
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn divided(self, by: Self) -> (Self, Self) {
                if by == 0 { (0, 0) } else { (self.wrapping_div(by), self.wrapping_rem(by)) }
            }

            #[inline(always)]
            fn raised(self, by: u32) -> Self {
                self << by
            }

            #[inline(always)]
            fn lowered(self, by: u32) -> Self {
                self >> by
            }
        }

        impl Lane for $Type {
            #[inline(always)]
            fn apply<const FUSED: bool>(function: Function, arguments: [&[Self]; 3], results: &mut [Self]) {
                apply(function, arguments, results);
            }

            fn number(value: f64) -> Self {
                Self::of_whole(crate::narrow::whole(value))
            }
        })*
    };
}
whole!(i32 of u32, u32 of u32, i64 of u64);

/// A Bool.
#[inline(always)]
fn truth<T: Whole>(holds: bool) -> T {
    T::of_bits(holds.into())
}

/// Whether numbers have different signs.
#[inline(always)]
fn are_opposite<T: Whole>(x: T, y: T) -> bool {
    (x < T::default()) != (y < T::default())
}

#[inline(always)]
fn div_floor<T: Whole>(x: T, y: T) -> T {
    let (quotient, rest) = x.divided(y);
    if rest != T::default() && are_opposite(rest, y) { quotient.minus(truth(true)) } else { quotient }
}

#[inline(always)]
fn remainder<T: Whole>(x: T, y: T) -> T {
    let rest = x.divided(y).1;
    if rest != T::default() && are_opposite(rest, y) { rest.plus(y) } else { rest }
}

#[inline(always)]
fn sign<T: Whole>(x: T) -> T {
    let (zero, one) = (T::default(), truth(true));
    if x < zero { zero.minus(one) } else { x.min(one) }
}

/// A number of places, if there are more bits than that.
#[inline(always)]
fn places<T: Whole>(y: T) -> Option<u32> {
    // What is below 0 has higher bits.
    u32::try_from(y.bits()).ok().filter(|&by| by < T::BITS)
}

#[inline(always)]
fn shift_left<T: Whole>(x: T, y: T) -> T {
    places(y).map_or(T::default(), |by| x.raised(by))
}

#[inline(always)]
fn shift_right<T: Whole>(x: T, y: T) -> T {
    // All places but that of the sign and then that one leave copies of the sign.
    places(y).map_or_else(|| x.lowered(T::BITS - 1).lowered(1), |by| x.lowered(by))
}

/// The bits of the magnitudes, and those of the greatest number that divides both, by Euclid.
#[inline(always)]
fn divisor<T: Whole>(x: T, y: T) -> ([u64; 2], u64) {
    let zero = T::default();
    let sizes = [x, y].map(|x| if x < zero { zero.minus(x) } else { x }.bits());
    let [mut a, mut b] = sizes;
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (sizes, a)
}

#[inline(always)]
fn lcm<T: Whole>(x: T, y: T) -> T {
    let ([x, y], divisor) = divisor(x, y);
    T::of_bits((x / divisor.max(1)).wrapping_mul(y))
}

/// A function of blocks of equal length.
#[inline(always)]
fn apply<T: Whole>(function: Function, [x, y, z]: [&[T]; 3], results: &mut [T]) {
    let zero = T::default();
    match function {
        Function::Neg => map(x, results, |x| zero.minus(x)),
        Function::LogicalNot => map(x, results, |x| truth(x == zero)),
        Function::BitwiseNot => map(x, results, |x| T::of_bits(!x.bits())),
        Function::PopCount => zip(x, y, results, |x, bits| T::of_bits((x.bits() & bits.bits()).count_ones().into())),
        Function::Abs => map(x, results, |x| if x < zero { zero.minus(x) } else { x }),
        Function::Sign => map(x, results, sign),
        Function::Square => map(x, results, |x| x.times(x)),
        Function::Relu => map(x, results, |x| x.max(zero)),
        Function::Add => zip(x, y, results, T::plus),
        Function::Sub => zip(x, y, results, T::minus),
        Function::Mul => zip(x, y, results, T::times),
        Function::Eq => zip(x, y, results, |x, y| truth(x == y)),
        Function::Ne => zip(x, y, results, |x, y| truth(x != y)),
        Function::Lt => zip(x, y, results, |x, y| truth(x < y)),
        Function::Le => zip(x, y, results, |x, y| truth(x <= y)),
        Function::Gt => zip(x, y, results, |x, y| truth(x > y)),
        Function::Ge => zip(x, y, results, |x, y| truth(x >= y)),
        Function::LogicalAnd => zip(x, y, results, |x, y| truth(x != zero && y != zero)),
        Function::LogicalOr => zip(x, y, results, |x, y| truth(x != zero || y != zero)),
        Function::LogicalXor => zip(x, y, results, |x, y| truth((x != zero) != (y != zero))),
        Function::BitwiseAnd => zip(x, y, results, |x, y| T::of_bits(x.bits() & y.bits())),
        Function::BitwiseOr => zip(x, y, results, |x, y| T::of_bits(x.bits() | y.bits())),
        Function::BitwiseXor => zip(x, y, results, |x, y| T::of_bits(x.bits() ^ y.bits())),
        Function::ShiftLeft => zip(x, y, results, shift_left),
        Function::ShiftRight => zip(x, y, results, shift_right),
        Function::Gcd => zip(x, y, results, |x, y| T::of_bits(divisor(x, y).1)),
        Function::Lcm => zip(x, y, results, lcm),
        Function::DivFloor => zip(x, y, results, div_floor),
        Function::Div | Function::DivTrunc => zip(x, y, results, |x, y| x.divided(y).0),
        Function::Remainder => zip(x, y, results, remainder),
        Function::Fmod => zip(x, y, results, |x, y| x.divided(y).1),
        Function::Maximum => zip(x, y, results, T::max),
        Function::Minimum => zip(x, y, results, T::min),
        Function::Where => select(x, y, z, results),
        Function::Clamp => {
            for (((result, &x), &low), &high) in results.iter_mut().zip(x).zip(y).zip(z) {
                *result = x.max(low).min(high);
            }
        }
        // Types are checked when a descriptor is made: programs of integers have no other functions.
        other => unreachable!("{} is no function of integers", other.name()),
    }
}

/// A function of one position.
fn of<T: Whole>(function: Function, [x, y, z]: [T; 3]) -> T {
    let mut result = [T::default()];
    apply(function, [&[x], &[y], &[z]], &mut result);
    result[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPUTING: [(DType, i64, i64); 3] = [
        (DType::I32, i32::MIN as i64, i32::MAX as i64),
        (DType::U32, 0, u32::MAX as i64),
        (DType::I64, i64::MIN, i64::MAX),
    ];

    #[test]
    fn integers_wrap_and_divide_by_the_rules() {
        for (computing, least, most) in COMPUTING {
            let of = |function, x, y| value(function, computing, [x, y, 0]);
            assert_eq!(of(Function::Add, most, 1), least, "{computing}");
            assert_eq!(of(Function::Sub, least, 1), most, "{computing}");
            assert_eq!(of(Function::Mul, most, 2), of(Function::Add, most, most), "{computing}");
            for function in [Function::DivFloor, Function::DivTrunc, Function::Remainder, Function::Fmod] {
                assert_eq!(of(function, 7, 0), 0, "{function:?} {computing}");
            }
            assert_eq!((of(Function::DivFloor, 7, 2), of(Function::Fmod, 7, 2)), (3, 1));
            for by in [64, 100] {
                assert_eq!((of(Function::ShiftLeft, 5, by), of(Function::ShiftRight, 5, by)), (0, 0), "{computing}");
            }
            assert_eq!((of(Function::ShiftLeft, 5, 3), of(Function::ShiftRight, 40, 3)), (40, 5));
            assert_eq!(of(Function::PopCount, most, most), i64::from(most.count_ones()));
            assert_eq!(of(Function::PopCount, most, 255), 8, "{computing}");
            let divisors = [[12, 18], [0, 5], [5, 0], [0, 0]].map(|[x, y]| of(Function::Gcd, x, y));
            assert_eq!(divisors, [6, 5, 5, 0], "{computing}");
            let multiples = [[4, 6], [0, 5], [0, 0]].map(|[x, y]| of(Function::Lcm, x, y));
            assert_eq!(multiples, [12, 0, 0], "{computing}");
            assert_eq!((of(Function::Sign, most, 0), of(Function::Sign, 0, 0)), (1, 0));
            assert_eq!((of(Function::Square, most, 0), of(Function::Div, most, 2)), (1, most / 2), "{computing}");
            let clamped = |x, low, high| value(Function::Clamp, computing, [x, low, high]);
            assert_eq!([clamped(1, 3, 9), clamped(5, 3, 9), clamped(11, 3, 9), clamped(5, 9, 3)], [3, 5, 9, 3]);
            let signed = computing != DType::U32;
            if signed {
                assert_eq!(
                    (of(Function::DivTrunc, least, -1), of(Function::Fmod, least, -1)),
                    (least, 0),
                    "{computing}"
                );
                for (x, y, floor, trunc, remainder, fmod) in
                    [(7, -2, -4, -3, -1, 1), (-7, 2, -4, -3, 1, -1), (-7, -2, 3, 3, -1, -1)]
                {
                    assert_eq!(of(Function::DivFloor, x, y), floor);
                    assert_eq!(of(Function::DivTrunc, x, y), trunc);
                    assert_eq!(of(Function::Remainder, x, y), remainder);
                    assert_eq!(of(Function::Fmod, x, y), fmod);
                }
                for by in [64, -1] {
                    assert_eq!((of(Function::ShiftLeft, -5, by), of(Function::ShiftRight, -5, by)), (0, -1));
                }
                assert_eq!((of(Function::Gcd, -12, 18), of(Function::Gcd, least, 0)), (6, least));
                assert_eq!((of(Function::Lcm, -4, 6), of(Function::Lcm, 4, -4)), (12, 4));
                assert_eq!((of(Function::Abs, least, 0), of(Function::Abs, -3, 0)), (least, 3));
                assert_eq!((of(Function::Sign, least, 0), of(Function::Relu, -3, 0)), (-1, 0));
                assert_eq!((of(Function::Neg, least, 0), of(Function::BitwiseNot, 0, 0)), (least, -1));
            }
        }
    }

    #[test]
    fn every_function_of_integers_is_there() {
        for (computing, ..) in COMPUTING {
            for function in Function::ALL.into_iter().filter(|function| function.computes_in(computing)) {
                let result = value(function, computing, [1, 1, 0]);
                assert!(!function.gives_bool() || [0, 1].contains(&result), "{function:?}");
            }
        }
    }
}
