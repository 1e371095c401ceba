//! The instructions of products: sums of a tile, and the copies that widen elements of 16 bits, each for AVX-512, for AVX2 with FMA, and in plain Rust.
//!
//! Both vector forms add the products of an element one by one in the order of k with one rounding for product and sum, so that they make the same bits.
//! Plain Rust rounds products too.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::ops::Range;

use half::{bf16, f16};

/// Most rows of a tile of sums: with two vectors of columns each, 28 of the 32 registers of AVX-512.
pub(in crate::ops) const ROWS: usize = 14;
/// Columns of a tile of sums.
pub(in crate::ops) const COLS: usize = 32;
/// Distance of the rows of the packed left factor: an odd number of cache lines, so that the rows of a tile share no set of the cache.
pub(in crate::ops) const PITCH: usize = super::BLOCK + 16;

/// Calls a kernel with the number of rows of a tile as its parameter.
macro_rules! by_rows {
    ($rows:expr, $kernel:ident $arguments:tt) => {
        by_rows!($rows, $kernel $arguments: 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    ($rows:expr, $kernel:ident $arguments:tt: $($count:literal)*) => {
        match $rows {
            // SAFETY: by the contract of the function that this is part of.
            $($count => unsafe { $kernel::<$count> $arguments },)*
            _ => debug_assert!(false, "a tile has 1 to 14 rows, got {}", $rows),
        }
    };
}
pub(super) use by_rows;

/// The instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Plain,
}

impl Isa {
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            return if is_x86_feature_detected!("avx512f") { Self::Avx512 } else { Self::Avx2 };
        }
        Self::Plain
    }

    /// Adds a product for each term to each of `rows` by [`COLS`] sums, or begins them: of the rows of `left` at a distance of [`PITCH`] and the rows of
    /// `right`, of which there is an offset for each term. Sums are a row after another.
    ///
    /// # Safety
    /// - `rows` is 1 to [`ROWS`].
    /// - Rows of `left` hold an element for each term, rows of `right` [`COLS`], and `sums` has room for `rows` times [`COLS`].
    /// - The processor has these instructions.
    pub(super) unsafe fn add_products(
        self,
        rows: usize,
        left: *const f32,
        (right, offsets): (*const f32, &[usize]),
        sums: *mut f32,
        is_first: bool,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => by_rows!(rows, add_avx512(left, right, offsets, sums, is_first)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => by_rows!(rows, add_avx2(left, right, offsets, sums, is_first)),
            Self::Plain => by_rows!(rows, add_plain(left, right, offsets, sums, is_first)),
        }
    }
}

/// # Safety
/// As [`Isa::add_products`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn add_avx512<const R: usize>(
    left: *const f32,
    right: *const f32,
    offsets: &[usize],
    sums: *mut f32,
    is_first: bool,
) {
    // SAFETY: every access is within what the caller promises.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); 2]; R];
        for (k, &offset) in offsets.iter().enumerate() {
            let row = right.add(offset);
            let columns = [_mm512_loadu_ps(row), _mm512_loadu_ps(row.add(16))];
            for (r, acc) in acc.iter_mut().enumerate() {
                let factor = _mm512_set1_ps(*left.add(r * PITCH + k));
                acc[0] = _mm512_fmadd_ps(factor, columns[0], acc[0]);
                acc[1] = _mm512_fmadd_ps(factor, columns[1], acc[1]);
            }
        }
        store_avx512(acc, sums, is_first);
    }
}

/// Adds the sums of a chain to those of `R` rows, or begins them.
///
/// # Safety
/// There is room for `R` times [`COLS`] sums.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn store_avx512<const R: usize>(acc: [[__m512; 2]; R], sums: *mut f32, is_first: bool) {
    // SAFETY: the rows are inside the sums.
    unsafe {
        for (r, acc) in acc.iter().enumerate() {
            for (half, &chain) in acc.iter().enumerate() {
                let to = sums.add(r * COLS + half * 16);
                let sum = if is_first { chain } else { _mm512_add_ps(_mm512_loadu_ps(to), chain) };
                _mm512_storeu_ps(to, sum);
            }
        }
    }
}

/// Rows of a part of a tile whose sums fit into the 16 registers of AVX2, with two vectors of columns each.
#[cfg(target_arch = "x86_64")]
const AVX2_ROWS: usize = 6;

/// # Safety
/// As [`Isa::add_products`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_avx2<const R: usize>(
    left: *const f32,
    right: *const f32,
    offsets: &[usize],
    sums: *mut f32,
    is_first: bool,
) {
    macro_rules! part {
        ($rows:literal, $first:expr, $column:expr) => {
            // SAFETY: a part of the tile that the caller describes.
            unsafe {
                let (left, sums) = (left.add($first * PITCH), sums.add($first * COLS + $column));
                part_avx2::<$rows>(left, right.add($column), offsets, sums, is_first)
            }
        };
    }
    for column in [0, 16] {
        let mut first = 0;
        while first + AVX2_ROWS <= R {
            part!(6, first, column);
            first += AVX2_ROWS;
        }
        match R - first {
            1 => part!(1, first, column),
            2 => part!(2, first, column),
            3 => part!(3, first, column),
            4 => part!(4, first, column),
            5 => part!(5, first, column),
            _ => {}
        }
    }
}

/// `R` rows by 16 columns of a tile.
///
/// # Safety
/// As [`Isa::add_products`], with 16 columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn part_avx2<const R: usize>(
    left: *const f32,
    right: *const f32,
    offsets: &[usize],
    sums: *mut f32,
    is_first: bool,
) {
    // SAFETY: every access is within what the caller promises.
    unsafe {
        let mut acc = [[_mm256_setzero_ps(); 2]; R];
        for (k, &offset) in offsets.iter().enumerate() {
            let row = right.add(offset);
            let columns = [_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(8))];
            for (r, acc) in acc.iter_mut().enumerate() {
                let factor = _mm256_broadcast_ss(&*left.add(r * PITCH + k));
                acc[0] = _mm256_fmadd_ps(factor, columns[0], acc[0]);
                acc[1] = _mm256_fmadd_ps(factor, columns[1], acc[1]);
            }
        }
        for (r, acc) in acc.iter().enumerate() {
            for (half, &chain) in acc.iter().enumerate() {
                let to = sums.add(r * COLS + half * 8);
                let sum = if is_first { chain } else { _mm256_add_ps(_mm256_loadu_ps(to), chain) };
                _mm256_storeu_ps(to, sum);
            }
        }
    }
}

/// # Safety
/// As [`Isa::add_products`].
unsafe fn add_plain<const R: usize>(
    left: *const f32,
    right: *const f32,
    offsets: &[usize],
    sums: *mut f32,
    is_first: bool,
) {
    for r in 0..R {
        let mut acc = [0.0f32; COLS];
        for (k, &offset) in offsets.iter().enumerate() {
            // SAFETY: every access is within what the caller promises.
            let (factor, columns) = unsafe { (*left.add(r * PITCH + k), &*right.add(offset).cast::<[f32; COLS]>()) };
            for (sum, &column) in acc.iter_mut().zip(columns) {
                *sum += factor * column;
            }
        }
        // SAFETY: the sums are the caller's own, and this row is among them.
        let sums = unsafe { &mut *sums.add(r * COLS).cast::<[f32; COLS]>() };
        for (sum, chain) in sums.iter_mut().zip(acc) {
            *sum = if is_first { chain } else { *sum + chain };
        }
    }
}

/// An element type of a factor, each value of which f32 has.
pub(super) trait Narrow: Copy {
    fn widened(self) -> f32;

    /// Eight neighbours in memory.
    ///
    /// # Safety
    /// `from` points to eight elements.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load8(from: *const Self) -> __m256;

    /// The elements of up to 16 neighbours that a mask has; the others are 0.
    ///
    /// # Safety
    /// `from` points to the elements of the mask.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load_masked(from: *const Self, mask: u16) -> __m512;
}

impl Narrow for f32 {
    fn widened(self) -> f32 {
        self
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load8(from: *const Self) -> __m256 {
        // SAFETY: by the contract.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn load_masked(from: *const Self, mask: u16) -> __m512 {
        // SAFETY: by the contract.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
}

impl Narrow for bf16 {
    fn widened(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load8(from: *const Self) -> __m256 {
        // SAFETY: by the contract.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn load_masked(from: *const Self, mask: u16) -> __m512 {
        // SAFETY: by the contract.
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
                mask,
                from.cast(),
            ))))
        }
    }
}

impl Narrow for f16 {
    fn widened(self) -> f32 {
        self.to_f32()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load8(from: *const Self) -> __m256 {
        // SAFETY: by the contract.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn load_masked(from: *const Self, mask: u16) -> __m512 {
        // SAFETY: by the contract.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())) }
    }
}

/// Copies neighbours to a range of a line, and zeros to the rest of it, by masked vectors; says whether the processor has them.
///
/// # Safety
/// `from` points to as many elements as the range, which is inside the line.
pub(super) unsafe fn padded<T: Narrow>(isa: Isa, from: *const T, range: &Range<usize>, line: &mut [f32]) -> bool {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn vectors<T: Narrow>(from: *const T, range: &Range<usize>, line: &mut [f32]) {
        for at in (0..line.len()).step_by(16) {
            let first = |count: usize| if count < 16 { (1u16 << count) - 1 } else { u16::MAX };
            let mask = first(range.end.saturating_sub(at)) & !first(range.start.saturating_sub(at));
            // SAFETY: the lanes of the mask are elements of the range, and those that are stored are in the line.
            unsafe {
                let numbers = T::load_masked(from.wrapping_add(at).wrapping_sub(range.start), mask);
                _mm512_mask_storeu_ps(line.as_mut_ptr().add(at), first(line.len() - at), numbers);
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
        // SAFETY: by the contract.
        unsafe { vectors(from, range, line) };
        return true;
    }
    let _ = (isa, from, range, line);
    false
}

/// Copies `lines` by `length` elements to f32.
///
/// # Safety
/// - `from` and what its strides of lines and of elements lead to, within the extents, are elements that nobody writes.
/// - `to` has room for `length` elements every `to_pitch`, which this thread alone uses.
/// - The processor has the instructions.
pub(super) unsafe fn widen<T: Narrow>(
    isa: Isa,
    [lines, length]: [usize; 2],
    from: *const T,
    strides: [usize; 2],
    to: *mut f32,
    to_pitch: usize,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if isa != Isa::Plain {
            match strides {
                [_, 1] => return widen_lines(lines, length, from, strides[0], to, to_pitch),
                [1, _] => return widen_transposed(lines, length, from, strides[1], to, to_pitch),
                _ => {}
            }
        }
        let _ = isa;
        widen_any([lines, length], from, strides, to, to_pitch);
    }
}

/// # Safety
/// As [`widen`].
#[inline(always)]
unsafe fn widen_any<T: Narrow>(
    [lines, length]: [usize; 2],
    from: *const T,
    [line_stride, stride]: [usize; 2],
    to: *mut f32,
    to_pitch: usize,
) {
    for line in 0..lines {
        for at in 0..length {
            // SAFETY: both are inside the extents.
            unsafe { *to.add(line * to_pitch + at) = (*from.add(line * line_stride + at * stride)).widened() };
        }
    }
}

/// Lines whose elements are neighbours.
///
/// # Safety
/// As [`widen`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn widen_lines<T: Narrow>(
    lines: usize,
    length: usize,
    from: *const T,
    line_stride: usize,
    to: *mut f32,
    to_pitch: usize,
) {
    let whole = length / 8 * 8;
    for line in 0..lines {
        // SAFETY: the vectors and the elements after them are inside the extents.
        unsafe {
            let (from, to) = (from.add(line * line_stride), to.add(line * to_pitch));
            for at in (0..whole).step_by(8) {
                _mm256_storeu_ps(to.add(at), T::load8(from.add(at)));
            }
            for at in whole..length {
                *to.add(at) = (*from.add(at)).widened();
            }
        }
    }
}

/// Elements whose lines are neighbours, in blocks of eight by eight.
///
/// # Safety
/// As [`widen`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn widen_transposed<T: Narrow>(
    lines: usize,
    length: usize,
    from: *const T,
    stride: usize,
    to: *mut f32,
    to_pitch: usize,
) {
    let (whole_lines, whole) = (lines / 8 * 8, length / 8 * 8);
    // SAFETY: blocks, and the edges after them, are inside the extents.
    unsafe {
        for line in (0..whole_lines).step_by(8) {
            for at in (0..whole).step_by(8) {
                let rows = std::array::from_fn(|i| T::load8(from.add(line + (at + i) * stride)));
                for (i, row) in transposed(rows).into_iter().enumerate() {
                    _mm256_storeu_ps(to.add((line + i) * to_pitch + at), row);
                }
            }
        }
        let (edge_from, edge_to) = (from.add(whole * stride), to.add(whole));
        widen_any([whole_lines, length - whole], edge_from, [1, stride], edge_to, to_pitch);
        let (edge_from, edge_to) = (from.add(whole_lines), to.add(whole_lines * to_pitch));
        widen_any([lines - whole_lines, length], edge_from, [1, stride], edge_to, to_pitch);
    }
}

/// The columns of eight rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn transposed(rows: [__m256; 8]) -> [__m256; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let pairs = [
        [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)],
        [_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)],
        [_mm256_unpacklo_ps(e, f), _mm256_unpackhi_ps(e, f)],
        [_mm256_unpacklo_ps(g, h), _mm256_unpackhi_ps(g, h)],
    ];
    let four = |low: __m256, high: __m256| [_mm256_shuffle_ps::<0x44>(low, high), _mm256_shuffle_ps::<0xee>(low, high)];
    let [upper, lower] = [[pairs[0], pairs[1]], [pairs[2], pairs[3]]].map(|[first, second]| {
        let ([i, j], [k, l]) = (four(first[0], second[0]), four(first[1], second[1]));
        [i, j, k, l]
    });
    let mut columns = rows;
    for i in 0..4 {
        columns[i] = _mm256_permute2f128_ps::<0x20>(upper[i], lower[i]);
        columns[i + 4] = _mm256_permute2f128_ps::<0x31>(upper[i], lower[i]);
    }
    columns
}

/// Eight neighbours at a time, and those after them one by one.
#[cfg(target_arch = "x86_64")]
macro_rules! by_eight {
    ($count:expr, $vector:expr, $single:expr) => {
        let whole = $count / 8 * 8;
        for at in (0..whole).step_by(8) {
            $vector(at);
        }
        for at in whole..$count {
            $single(at);
        }
    };
}

/// Adds `factor` times an element to each sum.
///
/// # Safety
/// - `from` points to as many elements as there are sums.
/// - The processor has the instructions.
pub(super) unsafe fn add_scaled<T: Narrow>(isa: Isa, sums: &mut [f32], factor: f32, from: *const T) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vectors<T: Narrow>(sums: &mut [f32], factor: f32, from: *const T) {
        let (to, factors) = (sums.as_mut_ptr(), _mm256_set1_ps(factor));
        // SAFETY: `at` is below the number of sums.
        let vector = |at: usize| unsafe {
            let sum = _mm256_fmadd_ps(factors, T::load8(from.add(at)), _mm256_loadu_ps(to.add(at)));
            _mm256_storeu_ps(to.add(at), sum);
        };
        // SAFETY: as above.
        let single = |at: usize| unsafe { *to.add(at) = factor.mul_add((*from.add(at)).widened(), *to.add(at)) };
        by_eight!(sums.len(), vector, single);
    }
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Plain {
        // SAFETY: by the contract.
        return unsafe { vectors(sums, factor, from) };
    }
    let _ = isa;
    for (at, sum) in sums.iter_mut().enumerate() {
        // SAFETY: there are as many elements as sums.
        *sum += factor * unsafe { *from.add(at) }.widened();
    }
}

/// Adds the product of a factor and of an element to each sum.
///
/// # Safety
/// As [`add_scaled`].
pub(super) unsafe fn add_multiplied<T: Narrow>(isa: Isa, sums: &mut [f32], factors: &[f32], from: *const T) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vectors<T: Narrow>(sums: &mut [f32], factors: &[f32], from: *const T) {
        let (to, factors) = (sums.as_mut_ptr(), factors.as_ptr());
        // SAFETY: `at` is below the number of sums, which is that of factors.
        let vector = |at: usize| unsafe {
            let sum = _mm256_loadu_ps(to.add(at));
            let sum = _mm256_fmadd_ps(_mm256_loadu_ps(factors.add(at)), T::load8(from.add(at)), sum);
            _mm256_storeu_ps(to.add(at), sum);
        };
        // SAFETY: as above.
        let single =
            |at: usize| unsafe { *to.add(at) = (*factors.add(at)).mul_add((*from.add(at)).widened(), *to.add(at)) };
        by_eight!(sums.len(), vector, single);
    }
    let factors = &factors[..sums.len()];
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Plain {
        // SAFETY: by the contract.
        return unsafe { vectors(sums, factors, from) };
    }
    let _ = isa;
    for (at, (sum, factor)) in sums.iter_mut().zip(factors).enumerate() {
        // SAFETY: there are as many elements as sums.
        *sum += factor * unsafe { *from.add(at) }.widened();
    }
}

/// Adds the products of factors and of elements to eight sums, of which each takes every eighth product.
///
/// # Safety
/// - `from` points to as many elements as there are factors.
/// - The processor has the instructions.
pub(super) unsafe fn add_dot<T: Narrow>(isa: Isa, sums: &mut [f32; 8], factors: &[f32], from: *const T) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vectors<T: Narrow>(sums: &mut [f32; 8], factors: &[f32], from: *const T) {
        let whole = factors.len() / 8 * 8;
        // SAFETY: `at` is below the number of factors, which is that of elements.
        unsafe {
            let mut sum = _mm256_loadu_ps(sums.as_ptr());
            for at in (0..whole).step_by(8) {
                sum = _mm256_fmadd_ps(_mm256_loadu_ps(factors.as_ptr().add(at)), T::load8(from.add(at)), sum);
            }
            _mm256_storeu_ps(sums.as_mut_ptr(), sum);
            for (at, sum) in (whole..factors.len()).zip(sums) {
                *sum = factors[at].mul_add((*from.add(at)).widened(), *sum);
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Plain {
        // SAFETY: by the contract.
        return unsafe { vectors(sums, factors, from) };
    }
    let _ = isa;
    for (at, factor) in factors.iter().enumerate() {
        // SAFETY: there are as many elements as factors.
        sums[at % 8] += factor * unsafe { *from.add(at) }.widened();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of instructions that this processor has.
    fn all() -> Vec<Isa> {
        let mut all = vec![Isa::Plain];
        #[cfg(target_arch = "x86_64")]
        match Isa::detect() {
            Isa::Avx512 => all.extend([Isa::Avx512, Isa::Avx2]),
            Isa::Avx2 => all.push(Isa::Avx2),
            Isa::Plain => {}
        }
        all
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + 11) % 101) as f32 / 64.0 - 0.75).collect()
    }

    #[test]
    fn every_number_of_rows_has_the_sums_of_products() {
        let (left, right) = (numbers(ROWS * PITCH), numbers(80 * COLS));
        let offsets: Vec<usize> = (0..64).map(|term| term * 39).collect();
        for rows in 1..=ROWS {
            for terms in [1, 7, 64] {
                let of = |isa: Isa| {
                    let mut sums = vec![f32::NAN; rows * COLS];
                    for is_first in [true, false] {
                        // SAFETY: the last term's row ends at 63 * 39 + 32, which is inside `right`; the other extents are those of the vectors.
                        unsafe {
                            let right = (right.as_ptr(), &offsets[..terms]);
                            isa.add_products(rows, left.as_ptr(), right, sums.as_mut_ptr(), is_first);
                        }
                    }
                    sums
                };
                let expected = |row: usize, col: usize| -> f64 {
                    let product =
                        |term: usize| f64::from(left[row * PITCH + term]) * f64::from(right[offsets[term] + col]);
                    2.0 * (0..terms).map(product).sum::<f64>()
                };
                let sums: Vec<Vec<f32>> = all().into_iter().map(of).collect();
                for (at, &sum) in sums.iter().flat_map(|sums| sums.iter().enumerate()) {
                    let expected = expected(at / COLS, at % COLS);
                    assert!(
                        (f64::from(sum) - expected).abs() < 1e-4,
                        "{rows} rows, {terms} terms, {at}: {sum}, {expected}"
                    );
                }
                // Vectors of either length make the same bits.
                assert_eq!(sums.get(1), sums.last().filter(|_| sums.len() > 1));
            }
        }
    }

    fn widens<T: Narrow>(of: fn(f32) -> T) {
        let from: Vec<T> = numbers(40 * 40).into_iter().map(of).collect();
        for isa in all() {
            for extents in [[1, 1], [3, 17], [8, 8], [19, 33], [16, 5]] {
                for strides in [[40, 1], [1, 40], [40, 2], [0, 1], [1, 0]] {
                    let (pitch, [lines, length]) = (35, extents);
                    let mut to = vec![f32::NAN; 20 * pitch];
                    let reach = lines * strides[0] + length * strides[1];
                    if reach > from.len() {
                        continue;
                    }
                    // SAFETY: the strides lead to elements of `from`, and 20 lines of 35 elements hold the extents.
                    unsafe { widen(isa, extents, from.as_ptr(), strides, to.as_mut_ptr(), pitch) };
                    for (at, &value) in to.iter().enumerate() {
                        let (line, element) = (at / pitch, at % pitch);
                        if line < lines && element < length {
                            let expected = from[line * strides[0] + element * strides[1]].widened();
                            assert_eq!(value, expected, "{isa:?} {extents:?} {strides:?}: {line} {element}");
                        } else {
                            assert!(value.is_nan(), "{isa:?} {extents:?} {strides:?}: {line} {element} is written");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn copies_widen_every_element_and_write_nothing_else() {
        widens(|value| value);
        widens(f16::from_f32);
        widens(bf16::from_f32);
        for isa in all() {
            for bits in 0..=u16::MAX {
                let mut to = [0.0; 8];
                let (half, brain) = ([f16::from_bits(bits); 8], [bf16::from_bits(bits); 8]);
                // SAFETY: eight elements each.
                unsafe { widen(isa, [1, 8], half.as_ptr(), [8, 1], to.as_mut_ptr(), 8) };
                assert_eq!(to.map(f32::to_bits), [half[0].to_f32().to_bits(); 8]);
                // SAFETY: eight elements each.
                unsafe { widen(isa, [1, 8], brain.as_ptr(), [8, 1], to.as_mut_ptr(), 8) };
                assert_eq!(to.map(f32::to_bits), [u32::from(bits) << 16; 8]);
            }
        }
    }

    #[test]
    fn lines_add_up() {
        let (factors, from) = (numbers(29), numbers(29).into_iter().map(bf16::from_f32).collect::<Vec<_>>());
        for isa in all() {
            let (mut scaled, mut multiplied, mut dot) = ([1.0f32; 29], [1.0f32; 29], [0.25f32; 8]);
            // SAFETY: there are 29 elements of each.
            unsafe {
                add_scaled(isa, &mut scaled, 0.5, from.as_ptr());
                add_multiplied(isa, &mut multiplied, &factors, from.as_ptr());
                add_dot(isa, &mut dot, &factors, from.as_ptr());
            }
            let close =
                |value: f32, expected: f32| assert!((value - expected).abs() < 1e-4, "{isa:?}: {value}, {expected}");
            let mut total = 2.0;
            for (at, (&factor, element)) in factors.iter().zip(from.iter().map(|value| value.to_f32())).enumerate() {
                close(scaled[at], 1.0 + 0.5 * element);
                close(multiplied[at], 1.0 + factor * element);
                total += factor * element;
            }
            close(dot.iter().sum(), total);
        }
    }
}
