//! Products of at most 16 rows, or columns, as when a language model decodes: the other factor goes through the chip once.

use baracuda_ops_sys as sys;

use super::product::{First, Limits, Planned, bounded_blocks};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::gemm::geometry::{Extents, Matrix, Product};

/// Rows of an instruction, and so the most rows.
const ROWS: u64 = 16;
/// Bytes of an access to left, and to right if it lies along k.
const VECTOR_BYTES: u64 = 16;
/// Columns of a block if there are about as many blocks as SMs.
const WIDE: u64 = 32;
/// Columns of a block if there are fewer.
const NARROW: u64 = 16;
/// Terms of a sum up to which a few blocks are as fast as any number of them.
const SHORT_TERMS: u64 = 2048;

/// The few rows: those of the product, or of the transposed one.
pub(super) struct FewRows {
    pub(super) is_swapped: bool,
    pub(super) rows: u64,
    /// Columns of the few rows.
    pub(super) others: u64,
}

impl FewRows {
    /// # Errors
    /// What no form for few rows multiplies.
    pub(super) fn of(product: &Product) -> Result<Self, Reason> {
        let (dtype, m, n) = (product.left.dtype, product.m, product.n);
        Reason::unless(matches!(dtype, DType::F16 | DType::BF16), || {
            format!("it has instructions for f16 and bf16, none for {dtype}")
        })?;
        let is_swapped = m > ROWS;
        let (rows, others) = if is_swapped { (n, m) } else { (m, n) };
        Reason::unless(rows <= ROWS && rows != 0, || format!("it takes 1 to {ROWS} rows or columns, got {m} and {n}"))?;
        Reason::unless(
            !product.epilogue.is_derivative() && product.summed.is_empty(),
            || "it makes no derivatives, and sums over k alone",
        )?;
        Ok(Self { is_swapped, rows, others })
    }
}

pub(super) fn plan(product: &Product, limits: &Limits<'_>) -> Result<Planned, Reason> {
    let FewRows { is_swapped, rows, others } = FewRows::of(product)?;
    let (dtype, k) = (product.left.dtype, product.k);
    Reason::unless(k != 0 && k.is_multiple_of(8), || format!("it takes a multiple of 8 terms, got {k}"))?;

    // 1. The factors, as strides of rows or columns and of k.
    let of_left = (&product.left, product.left.rows, product.left.cols);
    let of_right = (&product.right, product.right.cols, product.right.rows);
    let ((left, left_row, left_k), (right, column, right_k)) =
        if is_swapped { (of_right, of_left) } else { (of_left, of_right) };
    let is_along = |stride: u64, other: u64, extent: u64, matrix: &Matrix, bytes: u64| {
        stride == 1 && (is_in_vectors(matrix, &product.batch, bytes, if extent == 1 { 0 } else { other }))
    };
    Reason::unless(is_along(left_k, left_row, rows, left, VECTOR_BYTES), || {
        format!(
            "it takes the few rows along k at multiples of {VECTOR_BYTES} bytes, got strides of {left_row} and {left_k}"
        )
    })?;
    let multiprocessors = u64::from(limits.props.multiprocessors);
    let blocks = |columns: u64| others.div_ceil(columns).saturating_mul(product.batch.count());
    let is_busy = 10 * blocks(WIDE) >= 9 * multiprocessors;
    let fits_across = |columns: u64| {
        let vector = columns / 8;
        others.is_multiple_of(vector) && is_along(column, right_k, k, right, vector * dtype.size_bytes())
    };
    let (columns, right_across) = if is_along(right_k, column, others, right, VECTOR_BYTES) {
        (if is_busy { WIDE } else { NARROW }, false)
    } else if is_busy && fits_across(WIDE) {
        (WIDE, true)
    } else if fits_across(NARROW) {
        (NARROW, true)
    } else {
        let least = NARROW / 8 * dtype.size_bytes();
        return Err(format!(
            "it takes the other factor along k at multiples of {VECTOR_BYTES} bytes, or across at multiples of {least}, got strides of {column} and {right_k}"
        )
        .into());
    };
    Reason::unless(limits.is_pinned || k <= SHORT_TERMS || 4 * blocks(columns) >= multiprocessors, || {
        let blocks = blocks(columns);
        format!("its {blocks} blocks would leave most of {multiprocessors} SMs idle")
    })?;
    bounded_blocks([blocks(columns)])?;

    let mut planned = Planned::bare(product, is_swapped)?;
    let choice = sys::bops_gemm_few_rows_choice { columns: word(columns), right_across: u32::from(right_across) };
    planned.first = Some(First::FewRows(choice));
    Ok(planned)
}

/// Whether accesses of so many bytes are aligned, from any multiple of the stride on.
fn is_in_vectors(matrix: &Matrix, batch: &Extents, bytes: u64, stride: u64) -> bool {
    let strides = matrix.batch[..batch.len()].iter().chain([&stride]);
    matrix.align_bytes >= bytes
        && strides.copied().all(|stride| (stride * matrix.dtype.size_bytes()).is_multiple_of(bytes))
}
