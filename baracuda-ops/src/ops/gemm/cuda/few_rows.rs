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

/// The product with the few rows, and whether it is the transposed one.
///
/// # Errors
/// What no form for few rows multiplies.
pub(super) fn few_rows(product: &Product) -> Result<(Product, bool), Reason> {
    let (dtype, m, n) = (product.left.dtype, product.m, product.n);
    Reason::unless(matches!(dtype, DType::F16 | DType::BF16), || {
        format!("it has instructions for f16 and bf16, none for {dtype}")
    })?;
    let is_swapped = m > ROWS;
    let of = if is_swapped { product.transposed() } else { *product };
    Reason::unless(of.m <= ROWS && of.m != 0, || format!("it takes 1 to {ROWS} rows or columns, got {m} and {n}"))?;
    Reason::unless(
        !product.epilogue.is_derivative() && product.summed.is_empty(),
        || "it computes no derivatives and has no summed extents besides k",
    )?;
    Ok((of, is_swapped))
}

pub(super) fn plan(product: &Product, limits: &Limits<'_>) -> Result<Planned, Reason> {
    let (of, is_swapped) = few_rows(product)?;
    let Product { n, k, left, right, .. } = &of;
    Reason::unless(*k != 0 && k.is_multiple_of(8), || format!("it takes a multiple of 8 terms, got {k}"))?;

    // 1. The factors: along k or, of the other factor, across.
    let is_along = |stride: u64, other: u64, extent: u64, matrix: &Matrix, bytes: u64| {
        stride == 1 && (is_in_vectors(matrix, &product.batch, bytes, if extent == 1 { 0 } else { other }))
    };
    Reason::unless(is_along(left.cols, left.rows, of.m, left, VECTOR_BYTES), || {
        format!(
            "it takes the few rows along k at multiples of {VECTOR_BYTES} bytes, got strides of {} and {}",
            left.rows, left.cols
        )
    })?;
    let multiprocessors = u64::from(limits.props.multiprocessors);
    let blocks = |columns: u64| n.div_ceil(columns).saturating_mul(product.batch.count());
    let is_busy = 10 * blocks(WIDE) >= 9 * multiprocessors;
    let fits_across = |columns: u64| {
        let vector = columns / 8;
        n.is_multiple_of(vector) && is_along(right.cols, right.rows, *k, right, vector * right.dtype.size_bytes())
    };
    let (columns, right_across) = if is_along(right.rows, right.cols, *n, right, VECTOR_BYTES) {
        (if is_busy { WIDE } else { NARROW }, false)
    } else if is_busy && fits_across(WIDE) {
        (WIDE, true)
    } else if fits_across(NARROW) {
        (NARROW, true)
    } else {
        let least = NARROW / 8 * right.dtype.size_bytes();
        return Err(format!(
            "it takes the other factor along k at multiples of {VECTOR_BYTES} bytes, or across at multiples of {least}, got strides of {} and {}",
            right.cols, right.rows
        )
        .into());
    };
    Reason::unless(limits.is_pinned || *k <= SHORT_TERMS || 4 * blocks(columns) >= multiprocessors, || {
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
