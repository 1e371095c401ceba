//! Products of bf16 in tiles of 16 by 16 sums, by AMX's `tdpbf16ps`.
//!
//! Terms are added in groups of [`TERMS`]: the products of its even terms one by one from 0 on, those of its odd terms likewise, each with one rounding for
//! product and sum; then both sums to each other, and that to the sum of the groups before it, of which [`CHAIN`](super::CHAIN) are a chain. Results that are
//! subnormal count as 0. The instruction takes subnormal factors as 0, too: a block that has any is multiplied in the same order by AVX-512, which does not.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS.

use std::ops::Range;

use half::bf16;

use super::{COLS, Word};

#[cfg(target_arch = "x86_64")]
mod amx;

/// Rows whose sums of a panel of columns are computed at once: two tiles of them.
pub(super) const ROWS: usize = 32;
/// Terms of a group.
pub(super) const TERMS: usize = 32;

// Two tiles of columns are a panel.
const _: () = assert!(COLS == 32);

/// Whether this processor multiplies tiles as the module says, which a few sums show.
pub(super) fn are_exact() -> bool {
    #[cfg(target_arch = "x86_64")]
    return amx::are_exact();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Copies `lines` by `length` elements.
///
/// # Safety
/// - `from` and what its strides of lines and of elements lead to, within the extents, are elements that nobody writes.
/// - `to` has room for `length` elements every `to_pitch`, which this thread alone uses.
pub(super) unsafe fn copy(
    [lines, length]: [usize; 2],
    from: *const bf16,
    strides: [usize; 2],
    to: *mut bf16,
    to_pitch: usize,
) {
    // SAFETY: by the contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if strides[0] == 1 && strides[1] != 1 && lines > 1 && amx::has_vectors() {
            return amx::copy_transposed([lines, length], from, strides[1], to, to_pitch);
        }
        for line in 0..lines {
            let (from, to) = (from.add(line * strides[0]), to.add(line * to_pitch));
            if strides[1] == 1 {
                std::ptr::copy_nonoverlapping(from, to, length);
            } else {
                (0..length).for_each(|at| *to.add(at) = *from.add(at * strides[1]));
            }
        }
    }
}

/// Copies neighbours to a range of a line, and zeros to the rest of it, by masked vectors; says whether the processor has them.
///
/// # Safety
/// `from` points to as many elements as the range, which is inside the line.
pub(super) unsafe fn padded(from: *const bf16, range: &Range<usize>, line: &mut [bf16]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if amx::has_vectors() {
        // SAFETY: by the contract; the instructions are there.
        unsafe { amx::padded(from, range, line) };
        return true;
    }
    let _ = (from, range, line);
    false
}

/// Copies `terms` by `cols` elements, at most [`COLS`], into a panel: rows of [`COLS`] pairs of terms, with 0 in place of the columns that are not there and
/// beside the last of an odd number of terms.
///
/// # Safety
/// As [`copy`]; `to` has room for the pairs of the terms from 0 to the last one.
pub(super) unsafe fn copy_panel(
    [terms, cols]: [usize; 2],
    from: *const bf16,
    strides: [usize; 2],
    first_term: usize,
    to: *mut bf16,
) {
    // SAFETY: by the contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if amx::has_vectors() && first_term.is_multiple_of(2) {
            let to = to.add(first_term * COLS);
            if strides[1] == 1 {
                return amx::pair_rows([terms, cols], from, strides[0], to);
            }
            if strides[0] == 1 {
                return amx::pair_columns([terms, cols], from, strides[1], to);
            }
        }
        for at in 0..terms {
            let term = first_term + at;
            let row = to.add(term / 2 * 2 * COLS + term % 2);
            for col in 0..COLS {
                let value = if col < cols { *from.add(at * strides[0] + col * strides[1]) } else { bf16::ZERO };
                *row.add(2 * col) = value;
                if term.is_multiple_of(2) && at + 1 == terms {
                    *row.add(2 * col + 1) = bf16::ZERO;
                }
            }
        }
    }
}

/// Makes rows of pairs of each two rows at a distance of `pitch`, as many as there are terms, with 0 beside the last of an odd number and from column `cols`
/// to the end of its panel.
pub(super) fn interleave(rows: &mut [bf16], pitch: usize, cols: usize, terms: usize) {
    let mut last = vec![bf16::ZERO; pitch];
    for (pair, rows) in rows.chunks_exact_mut(2 * pitch).take(terms.div_ceil(2)).enumerate() {
        let (even, odd) = rows.split_at_mut(pitch);
        even[cols..cols.next_multiple_of(COLS)].fill(bf16::ZERO);
        odd[cols..cols.next_multiple_of(COLS)].fill(bf16::ZERO);
        if 2 * pair + 1 == terms {
            odd.fill(bf16::ZERO);
        }
        last.copy_from_slice(odd);
        #[cfg(target_arch = "x86_64")]
        if amx::has_vectors() {
            // SAFETY: the instructions are there.
            unsafe { amx::interleave(rows, &last, cols.div_ceil(COLS)) };
            continue;
        }
        for col in (0..cols.next_multiple_of(COLS)).rev() {
            (rows[2 * col], rows[2 * col + 1]) = (rows[col], last[col]);
        }
    }
}

/// A right factor that was packed: panels of [`COLS`] columns.
pub(super) struct Right<'m> {
    pub(super) words: &'m mut [bf16],
    pub(super) panels: usize,
    /// Words from a panel to the next one.
    pub(super) panel: usize,
    /// Words from a row of pairs to the next one.
    pub(super) pitch: usize,
}

/// A block of terms of both factors, filled with 0 up to a whole number of groups.
pub(super) struct Block<'m> {
    left: &'m [bf16],
    rows: usize,
    right: Right<'m>,
    groups: usize,
    /// Whether no factor is subnormal.
    is_normal: bool,
}

impl<'m> Block<'m> {
    /// A block of `terms` of so many rows of `left` and of the columns of `right`.
    pub(super) fn new(left: &'m mut [bf16], rows: usize, right: Right<'m>, terms: usize) -> Self {
        let groups = terms.div_ceil(TERMS);
        let mut is_normal = true;
        for row in left.chunks_exact_mut(bf16::PITCH).take(rows) {
            row[terms..groups * TERMS].fill(bf16::ZERO);
            is_normal &= are_normal(&row[..terms]);
        }
        let Right { words, panels, panel, pitch } = right;
        for first in (0..panels).map(|number| number * panel) {
            for pair in 0..groups * TERMS / 2 {
                let row = &mut words[first + pair * pitch..][..2 * COLS];
                if pair < terms.div_ceil(2) {
                    is_normal &= are_normal(row);
                } else {
                    row.fill(bf16::ZERO);
                }
            }
        }
        Self { left, rows, right: Right { words, panels, panel, pitch }, groups, is_normal }
    }

    /// Adds the products to sums, or begins them: of each panel of columns one row of [`COLS`] after another.
    pub(super) fn add(&self, sums: &mut [f32], is_first: bool) {
        // Tiles are read and written whole, also where the last has fewer rows.
        let rows = self.rows.next_multiple_of(ROWS);
        let of_panel = rows * COLS;
        assert!(self.left.len() >= rows * bf16::PITCH && sums.len() >= self.right.panels * of_panel);
        #[cfg(target_arch = "x86_64")]
        for (number, sums) in sums.chunks_exact_mut(of_panel).take(self.right.panels).enumerate() {
            let right = self.right.words[number * self.right.panel..].as_ptr();
            // SAFETY: `are_exact` has found the instructions.
            unsafe {
                if self.is_normal {
                    amx::add_tiles(self, right, sums, is_first)
                } else {
                    amx::add_rows(self, right, sums, is_first)
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = is_first;
    }
}

/// Whether no element is subnormal.
fn are_normal(elements: &[bf16]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if amx::has_vectors() {
        // SAFETY: the instructions are there.
        return unsafe { amx::are_normal(elements) };
    }
    elements.iter().all(|element| !is_subnormal(*element))
}

#[inline(always)]
fn is_subnormal(element: bf16) -> bool {
    // Without the sign 1 to 0x7f.
    (element.to_bits() & 0x7fff).wrapping_sub(1) < 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<bf16> {
        (0..count).map(|i| bf16::from_f32(((i * 37 + seed) % 101) as f32 / 64.0 - 0.75)).collect()
    }

    #[test]
    fn copies_take_every_element_and_write_nothing_else() {
        let from = numbers(40 * 40, 11);
        for extents in [[1, 1], [3, 17], [16, 32], [19, 33], [37, 5], [1, 20], [20, 1]] {
            for strides in [[40, 1], [1, 40], [40, 2], [0, 1], [1, 0]] {
                let ([lines, length], pitch) = (extents, 36);
                if (lines - 1) * strides[0] + (length - 1) * strides[1] >= from.len() {
                    continue;
                }
                let mut to = vec![bf16::NAN; 40 * pitch];
                // SAFETY: the strides lead to elements of `from`, and 40 lines of 36 elements hold the extents.
                unsafe { copy(extents, from.as_ptr(), strides, to.as_mut_ptr(), pitch) };
                for (at, value) in to.iter().enumerate() {
                    let (line, element) = (at / pitch, at % pitch);
                    let expected =
                        (line < lines && element < length).then(|| from[line * strides[0] + element * strides[1]]);
                    assert_eq!(
                        expected.unwrap_or(bf16::NAN).to_bits(),
                        value.to_bits(),
                        "{extents:?} {strides:?}: {line} {element}"
                    );
                }
            }
        }
    }

    #[test]
    fn panels_hold_pairs_of_terms() {
        let from = numbers(40 * 40, 5);
        for [terms, cols] in [[1, 1], [2, 32], [7, 32], [33, 31], [40, 16], [6, 20]] {
            for strides in [[40, 1], [1, 40], [38, 2]] {
                for first_term in [0, 2, 3] {
                    if (terms - 1) * strides[0] + (cols - 1) * strides[1] >= from.len() {
                        continue;
                    }
                    let mut to = vec![bf16::NAN; 44 * COLS];
                    // SAFETY: the strides lead to elements of `from`, and there is room for 44 terms.
                    unsafe { copy_panel([terms, cols], from.as_ptr(), strides, first_term, to.as_mut_ptr()) };
                    for (at, value) in to.iter().enumerate() {
                        let (col, term) = (at / 2 % COLS, at / (2 * COLS) * 2 + at % 2);
                        let expected = match term.checked_sub(first_term) {
                            Some(at) if at < terms && col < cols => from[at * strides[0] + col * strides[1]],
                            Some(at) if at < terms || (at == terms && term % 2 == 1) => bf16::ZERO,
                            _ => bf16::NAN,
                        };
                        assert_eq!(
                            value.to_bits(),
                            expected.to_bits(),
                            "{terms} {cols} {strides:?} {first_term}: {term} {col}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_interleaved_in_place() {
        for (cols, terms) in [(1_usize, 1_usize), (32, 2), (40, 5), (96, 4)] {
            let pitch = cols.next_multiple_of(COLS) + 16;
            let from = numbers(6 * pitch, 3);
            let mut rows = from.clone();
            interleave(&mut rows, pitch, cols, terms);
            for pair in 0..terms.div_ceil(2) {
                for col in 0..cols.next_multiple_of(COLS) {
                    for odd in 0..2 {
                        let is_there = col < cols && 2 * pair + odd < terms;
                        let expected = if is_there { from[(2 * pair + odd) * pitch + col] } else { bf16::ZERO };
                        assert_eq!(
                            rows[2 * pair * pitch + 2 * col + odd],
                            expected,
                            "{cols} {terms}: {pair} {col} {odd}"
                        );
                    }
                }
            }
            assert_eq!(rows[terms.next_multiple_of(2) * pitch..], from[terms.next_multiple_of(2) * pitch..]);
        }
    }

    /// The sums of one panel of columns, in the order of the module, in plain Rust.
    fn expected(left: &[bf16], right: &[bf16], [rows, terms]: [usize; 2], before: &[f32]) -> Vec<f32> {
        let flushed = |value: f32| if value.is_subnormal() { 0.0 } else { value };
        let mut sums = before.to_vec();
        for row in 0..rows {
            for col in 0..COLS {
                let sum = &mut sums[row * COLS + col];
                for first in (0..terms).step_by(TERMS) {
                    let mut chains = [0.0f32; 2];
                    for term in first..terms.min(first + TERMS) {
                        let factors = [left[row * bf16::PITCH + term], right[term / 2 * 2 * COLS + 2 * col + term % 2]]
                            .map(bf16::to_f32);
                        chains[term % 2] = flushed(factors[0].mul_add(factors[1], chains[term % 2]));
                    }
                    *sum = flushed(*sum + flushed(chains[0] + chains[1]));
                }
            }
        }
        sums
    }

    #[test]
    fn tiles_and_rows_have_the_sums_of_the_order_that_is_stated() {
        if !are_exact() {
            return;
        }
        let wide = |seed: usize| -> Vec<bf16> {
            let mut state = seed as u32;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 8
            };
            // Magnitudes of 2^-79 to 2^78, so that some products are subnormal and none overflows.
            (0..64 * bf16::PITCH)
                .map(|_| bf16::from_bits(((next() & 0x807f) | ((48 + next() % 158) << 7)) as u16))
                .collect()
        };
        for (rows, terms) in [(1, 1), (3, 2), (16, 32), (17, 63), (32, 64), (33, 256), (2, 5)] {
            for (left, right) in [(numbers(64 * bf16::PITCH, 11), numbers(bf16::BLOCK * COLS, 7)), (wide(1), wide(2))] {
                for has_subnormal in [false, true] {
                    let (mut left, mut right) = (left.clone(), right[..bf16::BLOCK * COLS].to_vec());
                    if has_subnormal {
                        left[0] = bf16::from_bits(0x8011);
                    }
                    if terms % 2 == 1 {
                        (0..COLS).for_each(|col| right[terms / 2 * 2 * COLS + 2 * col + 1] = bf16::ZERO);
                    }
                    let before: Vec<f32> = (0..64 * COLS).map(|at| at as f32 / 77.0).collect();
                    for is_first in [true, false] {
                        let start = if is_first { vec![0.0; 64 * COLS] } else { before.clone() };
                        let expected = expected(&left, &right, [rows, terms], &start);
                        let mut sums = if is_first { vec![f32::NAN; 64 * COLS] } else { before.clone() };
                        let packed = Right { words: &mut right, panels: 1, panel: bf16::BLOCK * COLS, pitch: 2 * COLS };
                        let block = Block::new(&mut left, rows, packed, terms);
                        assert_eq!(block.is_normal, !has_subnormal);
                        block.add(&mut sums, is_first);
                        for (at, (sum, expected)) in sums.iter().zip(&expected).take(rows * COLS).enumerate() {
                            assert_eq!(
                                sum.to_bits(),
                                expected.to_bits(),
                                "{rows} {terms} {has_subnormal} {is_first}: {at}: {sum:e}, {expected:e}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn elements_between_0_and_the_least_normal_one_are_subnormal() {
        for bits in 0..=u16::MAX {
            let element = bf16::from_bits(bits);
            let mut elements = numbers(70, 3);
            elements[65] = element;
            assert_eq!(are_normal(&elements), !element.to_f32().is_subnormal(), "{element}");
        }
    }
}
