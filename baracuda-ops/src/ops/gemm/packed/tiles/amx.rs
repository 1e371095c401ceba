//! The instructions of AMX and AVX-512.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::OnceLock;

use half::bf16;

use super::super::{COLS, Word};
use super::{Block, ROWS, Right, TERMS};

/// Rows of a tile.
const HEIGHT: u8 = 16;
/// Bytes of a row of a tile.
const WIDTH: u8 = 64;
/// Rows of the upper one of two tiles.
const UPPER: usize = ROWS / 2;

/// Whether the processor and the system have tiles, and they multiply as the module above says.
pub(super) fn are_exact() -> bool {
    static EXACT: OnceLock<bool> = OnceLock::new();
    *EXACT.get_or_init(|| has_vectors() && has_tiles() && is_permitted() && probe())
}

/// Whether the copies of this module can run.
pub(super) fn has_vectors() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

fn has_tiles() -> bool {
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) == AMX_BF16 | AMX_TILE
}

/// Asks Linux, which gives a process the registers of tiles if it asks for them, and says no if it does not know them.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_COMPONENT: i64 = 0x1023;
    const DATA_OF_TILES: i64 = 18;
    let answer: i64;
    // SAFETY: the call takes two numbers, touches no memory of the process, and changes the registers that are named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") REQUEST_COMPONENT,
            in("rsi") DATA_OF_TILES,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Multiplies a block by tiles and by rows, whose sums depend on the order and on every rounding, and compares them.
fn probe() -> bool {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Magnitudes of 2^-7 to 2^8, of either sign.
        bf16::from_f32(f32::from_bits((state & 0x807f_0000) | ((120 + (state >> 8) % 16) << 23)))
    };
    let terms = 2 * TERMS;
    let mut left: Vec<bf16> = (0..ROWS * bf16::PITCH).map(|_| next()).collect();
    let mut right: Vec<bf16> = (0..terms * COLS).map(|_| next()).collect();
    let right = Right { words: &mut right, panels: 1, panel: terms * COLS, pitch: 2 * COLS };
    let block = Block::new(&mut left, ROWS, right, terms);
    let [mut of_tiles, mut of_rows] = [(); 2].map(|()| vec![0.0; ROWS * COLS]);
    for is_first in [true, false] {
        let right = block.right.words.as_ptr();
        // SAFETY: the instructions were found.
        unsafe {
            add_tiles(&block, right, &mut of_tiles, is_first);
            add_rows(&block, right, &mut of_rows, is_first);
        }
    }
    of_tiles.iter().zip(&of_rows).all(|(tile, row)| tile.to_bits() == row.to_bits())
}

/// What the registers of tiles hold.
#[repr(C, align(64))]
struct Shape([u8; 64]);

/// Registers of tiles of 16 rows of 64 bytes, which are given back when this is dropped.
struct Tiles;

impl Tiles {
    /// # Safety
    /// The processor and the system have tiles.
    unsafe fn new() -> Self {
        let mut shape = Shape([0; 64]);
        // The palette, then the bytes of the rows of each register, and their number.
        shape.0[0] = 1;
        for register in 0..8 {
            shape.0[16 + 2 * register] = WIDTH;
            shape.0[48 + register] = HEIGHT;
        }
        // SAFETY: by the contract; the shape is read, and its registers are used in this module alone.
        unsafe { asm!("ldtilecfg [{shape}]", shape = in(reg) &shape, options(nostack)) };
        Self
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: tiles were configured.
        unsafe { asm!("tilerelease", options(nostack)) };
    }
}

/// Adds the products of a block with a panel of columns to their sums, or begins them.
///
/// # Safety
/// The processor and the system have tiles.
pub(super) unsafe fn add_tiles(block: &Block<'_>, right: *const bf16, sums: &mut [f32], is_first: bool) {
    const LEFT: usize = bf16::PITCH * 2;
    const SUMS: usize = COLS * 4;
    let pitch = block.right.pitch * 2;
    // SAFETY: the first call of this function with tiles.
    let _tiles = unsafe { Tiles::new() };
    for (number, sums) in sums.chunks_exact_mut(ROWS * COLS).enumerate() {
        let has_two = block.rows - number * ROWS > UPPER;
        let mut left: *const u8 = block.left[number * ROWS * bf16::PITCH..].as_ptr().cast();
        let (mut right, mut groups): (*const u8, usize) = (right.cast(), block.groups);
        let sums: *mut u8 = sums.as_mut_ptr().cast();
        // Registers 0 to 3 are the sums: two tiles of columns of the upper rows, and of the lower ones.
        // SAFETY: tiles lie inside the block, which holds whole groups, and inside the sums of the panel; rows that are not there are memory of the
        // left factor all the same.
        unsafe {
            if is_first {
                asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack));
            } else {
                asm!(
                    "tileloadd tmm0, [{sums} + {pitch}]",
                    "tileloadd tmm1, [{sums} + {pitch} + 64]",
                    "tileloadd tmm2, [{sums} + {pitch} + 2048]",
                    "tileloadd tmm3, [{sums} + {pitch} + 2048 + 64]",
                    sums = in(reg) sums, pitch = in(reg) SUMS, options(nostack)
                );
            }
            if has_two {
                asm!(
                    "2:",
                    "tileloadd tmm6, [{right} + {pitch}]",
                    "tileloadd tmm4, [{left} + {left_pitch}]",
                    "tileloadd tmm7, [{right} + {pitch} + 64]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{lower} + {left_pitch}]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {left}, 64",
                    "add {lower}, 64",
                    "add {right}, {step}",
                    "dec {groups}",
                    "jnz 2b",
                    left = inout(reg) left, lower = inout(reg) left.wrapping_add(UPPER * LEFT) => _, right = inout(reg) right,
                    groups = inout(reg) groups, pitch = in(reg) pitch, left_pitch = in(reg) LEFT, step = in(reg) UPPER * pitch,
                    options(nostack)
                );
            } else {
                asm!(
                    "2:",
                    "tileloadd tmm6, [{right} + {pitch}]",
                    "tileloadd tmm4, [{left} + {left_pitch}]",
                    "tileloadd tmm7, [{right} + {pitch} + 64]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "add {left}, 64",
                    "add {right}, {step}",
                    "dec {groups}",
                    "jnz 2b",
                    left = inout(reg) left, right = inout(reg) right, groups = inout(reg) groups,
                    pitch = in(reg) pitch, left_pitch = in(reg) LEFT, step = in(reg) UPPER * pitch,
                    options(nostack)
                );
            }
            let _ = (left, right, groups);
            asm!(
                "tilestored [{sums} + {pitch}], tmm0",
                "tilestored [{sums} + {pitch} + 64], tmm1",
                "tilestored [{sums} + {pitch} + 2048], tmm2",
                "tilestored [{sums} + {pitch} + 2048 + 64], tmm3",
                sums = in(reg) sums, pitch = in(reg) SUMS, options(nostack)
            );
        }
    }
}

/// As [`add_tiles`], in the same order, but with subnormal factors as they are.
///
/// # Safety
/// The processor has AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn add_rows(block: &Block<'_>, right: *const bf16, sums: &mut [f32], is_first: bool) {
    for (row, sums) in sums.chunks_exact_mut(COLS).take(block.rows).enumerate() {
        for half in 0..2 {
            // SAFETY: groups are whole in what was packed, where rows of the right factor hold a panel, and the sums have its columns.
            unsafe {
                let left: *const i32 = block.left[row * bf16::PITCH..].as_ptr().cast();
                let to = sums.as_mut_ptr().add(half * 16);
                let mut sum = if is_first { _mm512_setzero_ps() } else { _mm512_loadu_ps(to) };
                for group in 0..block.groups {
                    let [mut even, mut odd] = [_mm512_setzero_ps(); 2];
                    for pair in group * TERMS / 2..(group + 1) * TERMS / 2 {
                        let factors = widened(_mm512_set1_epi32(*left.add(pair)));
                        let columns: *const i32 = right.add(pair * block.right.pitch + half * 32).cast();
                        let columns = widened(_mm512_loadu_epi32(columns));
                        even = flushed(_mm512_fmadd_ps(factors[0], columns[0], even));
                        odd = flushed(_mm512_fmadd_ps(factors[1], columns[1], odd));
                    }
                    sum = flushed(_mm512_add_ps(sum, flushed(_mm512_add_ps(even, odd))));
                }
                _mm512_storeu_ps(to, sum);
            }
        }
    }
}

/// The two numbers of each pair.
#[target_feature(enable = "avx512f")]
#[inline]
fn widened(pairs: __m512i) -> [__m512; 2] {
    let upper = _mm512_and_epi32(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(upper)]
}

/// Subnormal numbers become 0.
#[target_feature(enable = "avx512f")]
#[inline]
fn flushed(values: __m512) -> __m512 {
    let is_small = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(values), _mm512_set1_ps(f32::MIN_POSITIVE));
    let bits = _mm512_castps_si512(values);
    _mm512_castsi512_ps(_mm512_mask_and_epi32(bits, is_small, bits, _mm512_set1_epi32(i32::MIN)))
}

/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn are_normal(elements: &[bf16]) -> bool {
    elements.iter().fold(true, |are_normal, element| are_normal & !super::is_subnormal(*element))
}

/// The first `count` of 32 lanes.
fn first(count: usize) -> u32 {
    if count < 32 { (1 << count) - 1 } else { u32::MAX }
}

/// Two rows of 16-bit numbers as pairs: the lower 16, and the upper ones.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn paired(even: __m512i, odd: __m512i) -> [__m512i; 2] {
    let pair = |even: __m256i, odd: __m256i| {
        _mm512_or_epi32(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(odd)))
    };
    [
        pair(_mm512_castsi512_si256(even), _mm512_castsi512_si256(odd)),
        pair(_mm512_extracti64x4_epi64::<1>(even), _mm512_extracti64x4_epi64::<1>(odd)),
    ]
}

/// # Safety
/// As [`padded`](super::padded); the processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn padded(from: *const bf16, range: &Range<usize>, line: &mut [bf16]) {
    for at in (0..line.len()).step_by(32) {
        let mask = first(range.end.saturating_sub(at)) & !first(range.start.saturating_sub(at));
        // SAFETY: the lanes of the mask are elements of the range, and those that are stored are in the line.
        unsafe {
            let elements = _mm512_maskz_loadu_epi16(mask, from.wrapping_add(at).wrapping_sub(range.start).cast());
            _mm512_mask_storeu_epi16(line.as_mut_ptr().add(at).cast(), first(line.len() - at), elements);
        }
    }
}

/// [`copy`](super::copy) of lines that are neighbours.
///
/// # Safety
/// As there; the processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn copy_transposed(
    [lines, length]: [usize; 2],
    from: *const bf16,
    stride: usize,
    to: *mut bf16,
    to_pitch: usize,
) {
    for at in (0..length).step_by(32) {
        for line in (0..lines).step_by(32) {
            let mask = first(lines - line);
            let [mut low, mut high] = [[_mm512_setzero_si512(); 16]; 2];
            for (pair, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
                let row = |at: usize| match at < length {
                    // SAFETY: the lanes of the mask are elements of the lines.
                    true => unsafe { _mm512_maskz_loadu_epi16(mask, from.add(at * stride + line).cast()) },
                    false => _mm512_setzero_si512(),
                };
                [*low, *high] = paired(row(at + 2 * pair), row(at + 2 * pair + 1));
            }
            let mask = first(length - at);
            for (half, pairs) in [low, high].into_iter().enumerate() {
                for (row, pairs) in
                    transposed(pairs).into_iter().enumerate().take((lines - line).saturating_sub(half * 16))
                {
                    // SAFETY: the lanes of the mask are elements of the line.
                    unsafe {
                        _mm512_mask_storeu_epi16(to.add((line + half * 16 + row) * to_pitch + at).cast(), mask, pairs)
                    };
                }
            }
        }
    }
}

/// [`copy_panel`](super::copy_panel) from an even term on, of terms whose columns are neighbours.
///
/// # Safety
/// As there; the processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pair_rows([terms, cols]: [usize; 2], from: *const bf16, stride: usize, to: *mut bf16) {
    let mask = first(cols);
    for term in (0..terms).step_by(2) {
        // SAFETY: the lanes of the mask are elements of a term, and a row of pairs has two vectors.
        unsafe {
            let row = |term: usize| match term < terms {
                true => _mm512_maskz_loadu_epi16(mask, from.add(term * stride).cast()),
                false => _mm512_setzero_si512(),
            };
            let to = to.add(term * COLS);
            for (half, pairs) in paired(row(term), row(term + 1)).into_iter().enumerate() {
                _mm512_storeu_epi16(to.add(half * 32).cast(), pairs);
            }
        }
    }
}

/// [`copy_panel`](super::copy_panel) from an even term on, of columns whose terms are neighbours.
///
/// # Safety
/// As there; the processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pair_columns([terms, cols]: [usize; 2], from: *const bf16, stride: usize, to: *mut bf16) {
    for term in (0..terms).step_by(32) {
        let mask = first(terms - term);
        for half in 0..2 {
            let mut columns = [_mm512_setzero_si512(); 16];
            for (column, col) in columns.iter_mut().zip(half * 16..cols) {
                // SAFETY: the lanes of the mask are terms of the column.
                *column = unsafe { _mm512_maskz_loadu_epi16(mask, from.add(col * stride + term).cast()) };
            }
            for (pair, row) in transposed(columns).into_iter().enumerate().take((terms - term).div_ceil(2)) {
                // SAFETY: a row of pairs has two vectors.
                unsafe { _mm512_storeu_epi16(to.add((term + 2 * pair) * COLS + half * 32).cast(), row) };
            }
        }
    }
}

/// Makes a row of pairs of the first half of `rows` and of `odd`, for some panels of columns.
///
/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn interleave(rows: &mut [bf16], odd: &[bf16], panels: usize) {
    assert!(2 * panels * COLS <= rows.len() && panels * COLS <= odd.len());
    for col in (0..panels).rev().map(|panel| panel * COLS) {
        // SAFETY: both vectors of the even row lie before what later steps read, and inside the rows.
        unsafe {
            let even = _mm512_loadu_epi16(rows.as_ptr().add(col).cast());
            let [low, high] = paired(even, _mm512_loadu_epi16(odd.as_ptr().add(col).cast()));
            let to = rows.as_mut_ptr().add(2 * col);
            _mm512_storeu_epi16(to.cast(), low);
            _mm512_storeu_epi16(to.add(32).cast(), high);
        }
    }
}

/// The columns of sixteen rows.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [__m512i; 16]) -> [__m512i; 16] {
    // Column `4 l + j` of rows `4 g` to `4 g + 3` becomes lane l of vector `4 g + j`.
    let mut lanes = rows;
    for g in (0..16).step_by(4) {
        let [a, b, c, d] = [rows[g], rows[g + 1], rows[g + 2], rows[g + 3]];
        let [ab, cd] = [[a, b], [c, d]].map(|[a, b]| [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)]);
        for half in 0..2 {
            lanes[g + 2 * half] = _mm512_unpacklo_epi64(ab[half], cd[half]);
            lanes[g + 2 * half + 1] = _mm512_unpackhi_epi64(ab[half], cd[half]);
        }
    }
    let mut columns = rows;
    for j in 0..4 {
        let even = |a, b| _mm512_shuffle_i32x4::<0x88>(a, b);
        let odd = |a, b| _mm512_shuffle_i32x4::<0xdd>(a, b);
        let [a, b, c, d] = [lanes[j], lanes[4 + j], lanes[8 + j], lanes[12 + j]];
        columns[j] = even(even(a, b), even(c, d));
        columns[4 + j] = even(odd(a, b), odd(c, d));
        columns[8 + j] = odd(even(a, b), even(c, d));
        columns[12 + j] = odd(odd(a, b), odd(c, d));
    }
    columns
}
