//! Products of at most 16 rows, or columns, on compute capability 9.0: the copy engine keeps memory busy with the other factor.

use baracuda_ops_sys as sys;

use super::few_rows::few_rows;
use super::product::{First, Limits, Planned, bounded_blocks, out_in_quads};
use super::wgmma;
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::gemm::geometry::Product;

/// Columns of a block.
const COLUMNS: u64 = 64;
/// Terms of a step.
const DEPTH: u64 = 128;
/// Steps in flight of a block that has an SM to itself: 200 KB of its 227. With half as many the form is slower (docs/rejected.md).
const STAGES_ALONE: u64 = 10;
/// Steps in flight of a block that shares an SM with another: 100 KB each.
const STAGES_SHARED: u64 = 5;
/// Blocks of a cluster that share sums.
const SPLITS: [u64; 3] = [1, 2, 4];
/// Bytes of the other factor from which on this form is faster than cuBLASLt on an H200.
const LEAST_BYTES: u64 = 8 << 20;

pub(super) fn plan(product: &Product, limits: &Limits<'_>) -> Result<Planned, Reason> {
    wgmma::runs_on(limits.props)?;
    let (of, is_swapped) = few_rows(product)?;
    let Product { m: rows, n: others, k, left, right, .. } = of;
    Reason::unless(k != 0 && others != 0 && product.batch.count() != 0, || {
        format!("it takes products of at least one term, got {k} of {} rows and {} columns", product.m, product.n)
    })?;

    // 1. The factors.
    wgmma::fits_copy_engine(product)?;
    let [few, other] = if is_swapped { ["b", "a"] } else { ["a", "b"] };
    Reason::unless(!wgmma::is_across(few, &left, [rows, left.rows], [k, left.cols], product)?, || {
        format!("it takes the few rows along k, got strides of {} and {}", left.rows, left.cols)
    })?;
    let right_across = wgmma::is_across(other, &right, [others, right.cols], [k, right.rows], product)?;

    // 2. The blocks.
    let multiprocessors = u64::from(limits.props.multiprocessors);
    let tiles = others.div_ceil(COLUMNS).saturating_mul(product.batch.count());
    let steps = k.div_ceil(DEPTH);
    let is_busy = |splits: u64| 4 * tiles.saturating_mul(splits) >= 3 * multiprocessors;
    let mut splits = SPLITS.into_iter().filter(|&splits| splits <= steps);
    let splits = splits.clone().find(|&splits| is_busy(splits)).or_else(|| splits.next_back()).unwrap_or(1);
    bounded_blocks([tiles, splits])?;
    let blocks = tiles * splits;
    if !limits.is_pinned {
        let factors = [k, others, product.batch.count(), product.left.dtype.size_bytes()];
        let bytes = factors.into_iter().fold(1, u64::saturating_mul);
        Reason::unless(bytes >= LEAST_BYTES, || {
            format!("it is faster for a factor of at least {LEAST_BYTES} bytes beside the few rows, got {bytes}")
        })?;
        Reason::unless(4 * blocks >= multiprocessors, || {
            format!("its {blocks} blocks would leave most of {multiprocessors} SMs idle")
        })?;
    }
    let stages = if blocks > multiprocessors { STAGES_SHARED } else { STAGES_ALONE }.min(steps.div_ceil(splits));

    let mut planned = Planned::bare(product, is_swapped)?;
    planned.first = Some(First::FewRowsStream(sys::bops_gemm_few_rows_stream_choice {
        splits: word(splits),
        stages: word(stages),
        quads: u32::from(out_in_quads(product, is_swapped)),
        right_across: u32::from(right_across),
    }));
    Ok(planned)
}
