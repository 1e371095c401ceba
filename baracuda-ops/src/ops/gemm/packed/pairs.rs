//! Products of bf16, two at a time, by AVX-512's `vdpbf16ps`.
//!
//! The instruction adds two products to a sum, one after the other, each with one rounding, and takes subnormal factors and sums as 0. A block is
//! multiplied by it only if none of its factors is so small or so large that this could be seen, so that sums have the bits that f32 gives them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::sync::OnceLock;

use super::PITCH;
use super::isa::{COLS, by_rows};

/// The least magnitude of a factor but 0. Factors from it on are multiples of 2^-62, and their products of 2^-124: no sum is subnormal.
#[cfg(target_arch = "x86_64")]
const LEAST: f32 = f32::from_bits((127 - 55) << 23);
/// What the magnitude of a finite factor stays below, so that no product overflows by itself.
#[cfg(target_arch = "x86_64")]
const LIMIT: f32 = f32::from_bits((127 + 63) << 23);

/// Whether this processor adds pairs of products as the module says, which a few sums show.
pub(super) fn are_exact() -> bool {
    static EXACT: OnceLock<bool> = OnceLock::new();
    *EXACT.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16") {
            return probe();
        }
        false
    })
}

/// Adds pairs of products whose sums depend on the order and on every rounding, and compares them with f32's.
#[cfg(target_arch = "x86_64")]
fn probe() -> bool {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Magnitudes of 2^-7 to 2^8, of either sign.
        f32::from_bits((state & 0x807f_0000) | ((120 + (state >> 8) % 16) << 23))
    };
    let (mut left, mut right, mut sums) = ([0u32; 32], [0u32; 32 * COLS], [0.0f32; COLS]);
    let mut expected = [0.0f32; COLS];
    for (pair, left) in left.iter_mut().enumerate() {
        let factors = [next(), next()];
        *left = paired(factors);
        for (right, expected) in right[pair * COLS..].iter_mut().zip(&mut expected) {
            let columns = [next(), next()];
            *right = paired(columns);
            *expected = factors[0].mul_add(columns[0], *expected);
            *expected = factors[1].mul_add(columns[1], *expected);
        }
    }
    let offsets: [usize; 32] = std::array::from_fn(|pair| pair * COLS);
    // SAFETY: there are 32 pairs of one row and of COLS columns each; the instructions were found.
    unsafe { add(1, left.as_ptr().cast(), (right.as_ptr().cast(), &offsets), sums.as_mut_ptr(), true) };
    sums.map(f32::to_bits) == expected.map(f32::to_bits)
}

/// Two numbers of bf16, the first of which is the one that is added first.
#[cfg(any(target_arch = "x86_64", test))]
fn paired(values: [f32; 2]) -> u32 {
    (values[0].to_bits() & 0xffff_0000) | (values[1].to_bits() >> 16)
}

/// A right factor that was packed: panels, each of whose terms is a row of some columns.
pub(super) struct Panels<'m> {
    pub(super) numbers: &'m mut [f32],
    pub(super) count: usize,
    /// Numbers from a panel to the next one.
    pub(super) length: usize,
    /// Numbers from a row to the next one.
    pub(super) pitch: usize,
    pub(super) cols: usize,
}

/// Turns the packed rows of the left factor and the rows of the right one, with `terms` each, into pairs in place, unless a factor is so small or so
/// large that it could be seen.
pub(super) fn pair(left: &mut [f32], rows: usize, right: Panels<'_>, terms: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if are_exact() {
        // SAFETY: the instructions were found.
        return unsafe { pair_by_vectors(left, rows, right, terms) };
    }
    let _ = (left, rows, right, terms);
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn pair_by_vectors(left: &mut [f32], rows: usize, right: Panels<'_>, terms: usize) -> bool {
    let is_left = left.chunks(PITCH).take(rows).all(|row| are_moderate(&row[..terms]));
    let Panels { numbers, count, length, pitch, cols } = right;
    let of_panel = |panel: &[f32]| panel.chunks(pitch).take(terms).all(|row| are_moderate(&row[..cols]));
    if !is_left || !numbers.chunks(length).take(count).all(of_panel) {
        return false;
    }
    for row in left.chunks_mut(PITCH).take(rows) {
        pair_terms(row, terms);
    }
    for panel in numbers.chunks_mut(length).take(count) {
        pair_rows(panel, pitch, cols.next_multiple_of(COLS), terms);
    }
    true
}

/// Whether factors are numbers of bf16, and 0, infinite, NaN, or of a magnitude from [`LEAST`] to below [`LIMIT`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn are_moderate(factors: &[f32]) -> bool {
    factors.iter().fold(true, |moderate, factor| {
        let bits = factor.to_bits() & 0x7fff_ffff;
        let is_of_bf16 = bits & 0xffff == 0;
        let is_small = bits.wrapping_sub(1) < LEAST.to_bits() - 1;
        moderate & is_of_bf16 & !is_small & (bits < LIMIT.to_bits() || bits >= f32::INFINITY.to_bits())
    })
}

/// Numbers that are turned into pairs at once.
#[cfg(target_arch = "x86_64")]
const AT_ONCE: usize = 32;

/// Pairs the terms of a row of the left factor.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn pair_terms(row: &mut [f32], terms: usize) {
    if !terms.is_multiple_of(2) {
        row[terms] = 0.0;
    }
    for first in (0..terms).step_by(AT_ONCE) {
        let mut numbers = [0.0; AT_ONCE];
        numbers.copy_from_slice(&row[first..first + AT_ONCE]);
        for (pair, to) in row[first / 2..][..AT_ONCE / 2].iter_mut().enumerate() {
            *to = f32::from_bits(paired([numbers[2 * pair], numbers[2 * pair + 1]]));
        }
    }
}

/// Pairs neighbouring rows of a panel.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn pair_rows(panel: &mut [f32], pitch: usize, width: usize, terms: usize) {
    if !terms.is_multiple_of(2) {
        panel[terms * pitch..][..width].fill(0.0);
    }
    for pair in 0..terms.div_ceil(2) {
        for first in (0..width).step_by(AT_ONCE) {
            let (mut one, mut other) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
            one.copy_from_slice(&panel[2 * pair * pitch + first..][..AT_ONCE]);
            other.copy_from_slice(&panel[(2 * pair + 1) * pitch + first..][..AT_ONCE]);
            for ((to, one), other) in panel[pair * pitch + first..][..AT_ONCE].iter_mut().zip(one).zip(other) {
                *to = f32::from_bits(paired([one, other]));
            }
        }
    }
}

/// As [`Isa::add_products`](super::isa::Isa::add_products), of rows whose numbers are pairs, with an offset for each pair of rows of `right`.
///
/// # Safety
/// As there, and [`are_exact`].
pub(super) unsafe fn add(rows: usize, left: *const f32, right: (*const f32, &[usize]), sums: *mut f32, is_first: bool) {
    #[cfg(target_arch = "x86_64")]
    by_rows!(rows, add_pairs(left, right.0, right.1, sums, is_first));
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (rows, left, right, sums, is_first);
}

/// # Safety
/// As [`add`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn add_pairs<const R: usize>(
    left: *const f32,
    right: *const f32,
    offsets: &[usize],
    sums: *mut f32,
    is_first: bool,
) {
    // SAFETY: every access is within what the caller promises; both types are 64 bytes of any bits.
    unsafe {
        let pairs = |numbers: __m512i| std::mem::transmute::<__m512i, __m512bh>(numbers);
        let mut acc = [[_mm512_setzero_ps(); 2]; R];
        for (k, &offset) in offsets.iter().enumerate() {
            let row = right.add(offset).cast::<i32>();
            let columns = [pairs(_mm512_loadu_epi32(row)), pairs(_mm512_loadu_epi32(row.add(16)))];
            for (r, acc) in acc.iter_mut().enumerate() {
                let factor = pairs(_mm512_set1_epi32(*left.add(r * PITCH + k).cast::<i32>()));
                acc[0] = _mm512_dpbf16_ps(acc[0], factor, columns[0]);
                acc[1] = _mm512_dpbf16_ps(acc[1], factor, columns[1]);
            }
        }
        super::isa::store_avx512(acc, sums, is_first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::packed::BLOCK;
    use crate::ops::gemm::packed::isa::{Isa, ROWS};

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        // Of bf16: 7 bits after the first.
        (0..count).map(|i| ((i * 37 + seed) % 101) as f32 / 64.0 - 0.75).collect()
    }

    #[test]
    fn pairs_make_the_bits_of_single_products() {
        if !are_exact() {
            return;
        }
        for (rows, terms) in [(1, 1), (3, 2), (14, 63), (5, 64), (2, 5)] {
            let (mut left, mut right) = (numbers(ROWS * PITCH, 11), numbers(BLOCK * COLS, 5));
            let of = |left: &[f32], right: &[f32], paired: bool| {
                let mut sums = vec![f32::NAN; rows * COLS];
                let offsets: Vec<usize> = (0..terms).map(|term| term * COLS).collect();
                for is_first in [true, false] {
                    // SAFETY: all rows and terms are in the vectors, and the instructions were found.
                    unsafe {
                        if paired {
                            let right = (right.as_ptr(), &offsets[..terms.div_ceil(2)]);
                            add(rows, left.as_ptr(), right, sums.as_mut_ptr(), is_first);
                        } else {
                            let right = (right.as_ptr(), &offsets[..]);
                            Isa::detect().add_products(rows, left.as_ptr(), right, sums.as_mut_ptr(), is_first);
                        }
                    }
                }
                sums
            };
            let expected = of(&left, &right, false);
            let packed = Panels { numbers: &mut right, count: 1, length: BLOCK * COLS, pitch: COLS, cols: COLS };
            assert!(pair(&mut left, rows, packed, terms));
            assert_eq!(of(&left, &right, true), expected, "{rows} rows, {terms} terms");
        }
    }

    #[test]
    fn small_and_large_factors_are_not_paired() {
        if !are_exact() {
            return;
        }
        let below = f32::from_bits(LEAST.to_bits() - 0x1_0000);
        for (value, is_paired) in [
            (LEAST, true),
            (-LEAST, true),
            (below, false),
            (-below, false),
            (1e-39, false),
            (-0.0, true),
            (f32::NAN, true),
            (f32::INFINITY, true),
            (1.0 + f32::EPSILON, false),
            (LIMIT, false),
            (-LIMIT / 2.0, true),
        ] {
            for is_left in [true, false] {
                let (mut left, mut right) = (numbers(2 * PITCH, 3), numbers(BLOCK * COLS, 5));
                (if is_left { &mut left } else { &mut right })[PITCH.min(5 * COLS + 7)] = value;
                let packed = Panels { numbers: &mut right, count: 1, length: BLOCK * COLS, pitch: COLS, cols: COLS };
                assert_eq!(pair(&mut left, 2, packed, 6), is_paired, "{value}, left: {is_left}");
            }
        }
    }
}
