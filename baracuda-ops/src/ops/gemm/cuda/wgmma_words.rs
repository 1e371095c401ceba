//! Products of f32 through wgmma, which the copy engine rounds to tf32. wgmma reads them along k alone: factors that lie across are copied first.

use baracuda_ops_sys as sys;

use super::product::{First, Limits, Planned, Source, Sums, bounded_blocks, dense_bytes, in_quads, splits, tiles};
use super::wgmma::BAND_ROWS;
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::gemm::geometry::{Matrix, Product};

/// Columns of a tile, and rows of a short tile, which serves any product.
const TILE: u64 = 128;
/// Rows of a tall tile. Its factors pass through shared memory less often, and it leaves no registers for what the epilogue reads.
const TALL_ROWS: u64 = 192;
/// Time of a row of a tall tile on an H200, in hundredths of the time of a row of a short one.
const TALL_COST_PERCENT: u64 = 96;
/// Terms of a step along k.
const DEPTH: u64 = 32;
/// The fewest steps of a block's share of a sum, whose part is written and read once more: 512 terms, as `TileSizes::IN_STEPS` has it.
const LEAST_STEPS: u64 = 16;

/// Operations of this kernel in a picosecond, on an H200: 330 to 366 if k is at least 4096.
const OPERATIONS_PER_PS: u64 = 345;
/// Operations of cuBLASLt in a picosecond, on an H200, by the number of factors that lie across.
const VENDOR_OPERATIONS_PER_PS: [u64; 3] = [370, 320, 245];
/// Bytes that `gemm_turn`, and passes for the epilogue, read and write in a picosecond, on an H200.
const BYTES_PER_PS: u64 = 4;
/// Time of a launch of `gemm_turn`, or of a pass for the epilogue, besides that of its bytes, in picoseconds.
const LAUNCH_PS: u64 = 2_000_000;

/// Whether the form is faster than cuBLASLt with a pass for the epilogue, which loads and stores the results once more. `planned` has the copies of factors
/// that lie across.
pub(super) fn is_better(product: &Product, planned: &Planned, limits: &Limits<'_>) -> bool {
    let extents = [2, product.m, product.n, product.terms(), product.batch.count()];
    let operations = extents.into_iter().fold(1, u64::saturating_mul);
    let copies = planned.copies.iter().flatten();
    let vendor_operations = VENDOR_OPERATIONS_PER_PS[copies.clone().count()];
    let of_copies = copies.fold(0, |sum: u64, copy| sum.saturating_add(2 * copy.bytes() / BYTES_PER_PS + LAUNCH_PS));
    let of_pass = LAUNCH_PS.saturating_add(dense_bytes(product).saturating_mul(2) / BYTES_PER_PS);
    let is_busy = 4 * tiles([product.m, product.n], [TILE; 2], product) >= 3 * u64::from(limits.props.multiprocessors);
    is_busy
        && (operations / OPERATIONS_PER_PS).saturating_add(of_copies)
            < (operations / vendor_operations).saturating_add(of_pass)
}

/// Plans a product whose factors lie along k as the copy engine takes them, and whose out has a stride of 1.
pub(super) fn plan(product: &Product, is_swapped: bool, limits: &Limits<'_>) -> Result<Planned, Reason> {
    // 1. What out and the batch have to be.
    Reason::unless(
        product.batch.len() <= 1 || product.summed.is_empty(),
        || "of f32 it takes two batch extents or one that is summed over",
    )?;
    let [m, n] = if is_swapped { [product.n, product.m] } else { [product.m, product.n] };
    let is_in_quads = |matrix: &Matrix| {
        let (fast, slow) = if is_swapped { (matrix.rows, matrix.cols) } else { (matrix.cols, matrix.rows) };
        in_quads(matrix, fast, if m == 1 { 0 } else { slow }, &product.batch)
    };
    let steps = product.k.div_ceil(DEPTH).saturating_mul(product.summed.count());
    let splits = splits(product, tiles([m, n], [TILE; 2], product), steps / LEAST_STEPS, limits);
    let are_in_quads =
        splits > 1 || is_in_quads(&product.out) && product.epilogue.beside.as_ref().is_none_or(is_in_quads);
    Reason::unless(n.is_multiple_of(4) && are_in_quads, || {
        format!("it writes rows of f32 that begin and end at multiples of 16 bytes, got {n} elements")
    })?;

    // 2. The tiles.
    let reads = splits == 1 && product.epilogue.reads();
    let multiprocessors = u64::from(limits.props.multiprocessors);
    let cost = |rows: u64| tiles([m, n], [rows, TILE], product).div_ceil(multiprocessors).saturating_mul(rows);
    let is_faster = cost(TALL_ROWS).saturating_mul(TALL_COST_PERCENT) < cost(TILE).saturating_mul(100);
    let rows = if is_faster && splits == 1 && !reads { TALL_ROWS } else { TILE };
    bounded_blocks([tiles([m, n], [rows, TILE], product), splits])?;

    let mut planned = Planned::bare(product, is_swapped)?;
    planned.rounds_to_tf32 = true;
    planned.sum_rows = product.batch.count() * product.m.div_ceil(TILE);
    if splits > 1 {
        planned.scratch_bytes = splits * dense_bytes(product);
        planned.finish(product, Sums { splits, source: Source::Scratch }, is_swapped)?;
    }
    planned.first = Some(First::WgmmaWords(sys::bops_gemm_wgmma_words_choice {
        rows: word(rows),
        splits: word(splits),
        band_rows: BAND_ROWS,
        blocks: limits.props.multiprocessors,
        reads: u32::from(reads),
    }));
    Ok(planned)
}
