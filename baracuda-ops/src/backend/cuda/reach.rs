//! Numbers that cuDNN and cuBLASLt are asked for. Their interfaces take them in 64 bits, but kernels behind them were seen to count in 32 bits with a sign, and to
//! return NaN where a stride, times the outputs, did not fit. So whatever they are told, and the sums and products that they would make of it, stays
//! within 31 bits; the rest is for kernels of this library.

use crate::error::Reason;

/// # Errors
/// A number that does not fit, with the limit. `what` says what it is of.
pub(crate) fn check_reach(number: u64, what: impl FnOnce() -> String) -> Result<(), Reason> {
    let most = u64::from(i32::MAX.unsigned_abs());
    Reason::unless(number <= most, || format!("it is asked for numbers up to {most}, {} is {number}", what()))?;
    Ok(())
}

/// The sum of products of a vendor's numbers, or the greatest number.
pub(crate) fn sum_of_products<const N: usize>(products: [[u64; 2]; N]) -> u64 {
    products.into_iter().fold(0, |sum, [a, b]| sum.saturating_add(a.saturating_mul(b)))
}
