//! Conversions to narrower numbers. The lints on casts, which `lib.rs` turns on, leave no other place that could cut a number off.

/// What kernels are told in 32 bits: extents, counts, threads, bytes of an element.
///
/// The number fits: what the caller chooses has been refused before where it does not (through wgpu by `check_reach`, `check_workspace` and
/// `groups`, on CUDA by the conditions of each form), and other numbers come from tables or from the limits of a device. Builds with
/// assertions, which tests are, stop where that is not so. Elsewhere the greatest number stands for it, which no device offers of anything, so that
/// the launch is refused: a number cut off could be a valid one.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn word(n: u64) -> u32 {
    debug_assert!(u32::try_from(n).is_ok(), "{n} does not fit into 32 bits");
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A stride as shaders take it: what `check_reach` leaves that does not fit into 32 bits is multiplied by no index but 0.
#[cfg(feature = "wgpu")]
pub(crate) fn stride(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A place in memory that this process holds, or a number of such places, which the address space bounds.
///
/// On 32-bit targets, too: the caller has compared the number with the size of that memory, or the memory has been allocated with as many. Builds
/// with assertions stop where that is not so.
pub(crate) fn to_usize(n: u64) -> usize {
    debug_assert!(usize::try_from(n).is_ok(), "{n} is no place in memory");
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A number that is below 2^63, or only compared with others of its kind: those beyond count as equal.
pub(crate) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A real number rounded to f32, to nearest, ties to even; above its range infinite.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what it is for")]
pub(crate) fn single(value: f64) -> f32 {
    value as f32
}

/// A real number cut to a whole number and to the range of i64; NaN is 0.
#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]
pub(crate) fn whole(value: f64) -> i64 {
    value as i64
}

/// The grid of a kernel with so many blocks, if one dimension of a grid has room for them.
#[cfg(feature = "cuda")]
pub(crate) fn grid(blocks: u64) -> Option<u32> {
    i32::try_from(blocks).ok().map(i32::unsigned_abs)
}
