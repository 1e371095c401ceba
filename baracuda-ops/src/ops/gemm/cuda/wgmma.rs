//! Products through wgmma: what the copy engine takes, and the tiles.

use baracuda_ops_sys as sys;

use crate::backend::cuda::Props;
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::gemm::geometry::{Epilogue, Extents, Formula, Matrix, Product};

use super::product::{FactorCopy, First, Limits, Planned, Source, Sums, bounded_blocks, dense_bytes, splits, tiles};
use super::{WORKSPACE_ALIGN, regions, vendor, wgmma_words};

/// What divides strides of factors and their addresses, in bytes.
const COPY_ALIGN_BYTES: u64 = 16;
/// Strides that the copy engine takes are below this, in bytes.
const MOST_STRIDE_BYTES: u64 = 1 << 40;
/// Extents that the copy engine takes are below this.
const MOST_EXTENT: u64 = 1 << 31;
/// Terms of a step along k.
const DEPTH: u64 = 64;
/// The fewest steps of a block's share of a sum, whose part is written and read once more: 512 terms, as `TileSizes::IN_STEPS` has it.
const LEAST_STEPS: u64 = 8;
/// The least time that copies of factors have to save, in picoseconds. [`picoseconds_saved`] counts their bytes, but not their launches: there are at
/// most two, of about 2 us each (`LAUNCH_PS` of `wgmma_words.rs`), and 5 us are more than both. A smaller number would choose this form where it
/// saves nothing.
const LEAST_PICOSECONDS_SAVED: u64 = 5_000_000;
/// Rows of tiles of a band; `band_rows` of `csrc/gemm/gemm.cuh` says why there are 8.
pub(super) const BAND_ROWS: u32 = 8;

/// Rows of a tile, whose column sums are one line.
const ROWS: u64 = 128;
/// Columns of a tile that any product has.
const COLUMNS: u64 = 128;
/// Columns of a wide tile. Factors pass through shared memory less often for wide tiles, which leave no registers for threads to read or store out
/// themselves.
const WIDE_COLUMNS: u64 = 192;
/// Time of a column of a wide tile, in hundredths of the time of a column of a narrow one: on an H200 92 to 99, for k from 768 to 8192.
const WIDE_COST_PERCENT: u64 = 96;

/// # Errors
/// The device lacks its instructions.
pub(super) fn runs_on(props: &Props) -> Result<(), Reason> {
    if !props.sm_90a {
        let (major, minor) = (props.capability / 10, props.capability % 10);
        return Err(if props.capability == 90 {
            "the build has no code for sm_90a, which it needs: BARACUDA_CUDA_ARCHS has to list 90".into()
        } else {
            format!("it needs compute capability 9.0, the device has {major}.{minor}").into()
        });
    }
    Ok(())
}

/// Whether the form is faster than the vendor's product with a pass for the epilogue: on an H200 by 1.2 to 1.8x for bf16, if the tiles keep all
/// SMs busy.
pub(super) fn is_better(product: &Product, limits: &Limits<'_>) -> bool {
    let Epilogue { formula, activation, beside, .. } = &product.epilogue;
    let has_pass = *formula == Formula::Forward && (!activation.is_identity() || beside.is_some());
    if product.left.dtype == DType::F32 {
        return has_pass
            && plan(product, limits).is_ok_and(|planned| wgmma_words::is_better(product, &planned, limits));
    }
    let is_busy = tiles([product.m, product.n], [ROWS, COLUMNS], product) >= limits.props.multiprocessors.into();
    let saves = |planned: &Planned| picoseconds_saved(product, planned) > LEAST_PICOSECONDS_SAVED;
    is_busy && plan(product, limits).is_ok_and(|planned| has_pass || saves(&planned))
}

/// How much less time a product takes than through cuBLASLt, whose fast kernels need better aligned rows than these. An H200 then does 120 operations
/// a picosecond, or 250 if rows lie at multiples of 4 bytes; this form does 500. `gemm_repack` reads and writes memory at 3 bytes a picosecond; the 4
/// bytes of `BYTES_PER_PS` in `wgmma_words.rs` are those of `gemm_turn`.
fn picoseconds_saved(product: &Product, planned: &Planned) -> u64 {
    let factors = [2, product.m, product.n, product.terms(), product.batch.count()];
    let flops = factors.into_iter().fold(1, u64::saturating_mul);
    let copied: u64 = planned.copies.iter().flatten().map(FactorCopy::bytes).sum();
    let vendor = match vendor::row_alignment(product) {
        ..4 => flops / 120,
        4..16 => flops / 250,
        _ => 0,
    };
    vendor.saturating_sub(flops / 500).saturating_sub(copied / 3 * 2)
}

pub(super) fn plan(product: &Product, limits: &Limits<'_>) -> Result<Planned, Reason> {
    let dtype = product.left.dtype;
    runs_on(limits.props)?;
    limits.check_tensor_cores(dtype)?;
    fits_copy_engine(product)?;

    // 1. Rows of out lie one after the other, or its columns do, as those of the transposed product.
    let is_row_major = product.out.cols == 1 || product.n == 1;
    let is_swapped = !is_row_major && (product.out.rows == 1 || product.m == 1);
    Reason::unless(is_row_major || is_swapped, || {
        format!("it writes matrices with a stride of 1, out has {} and {}", product.out.rows, product.out.cols)
    })?;
    Reason::unless(
        !is_swapped || (product.epilogue.bias.is_none() && !product.epilogue.is_derivative()),
        || "a bias and column sums need an out whose rows are contiguous",
    )?;
    if let Some(other) = &product.epilogue.beside {
        let (stride, extent) = if is_swapped { (other.rows, product.m) } else { (other.cols, product.n) };
        Reason::unless(stride == 1 || extent <= 1, || {
            format!("it takes pre and dout that lie as out does, got a stride of {stride}")
        })?;
    }

    // 2. The factors, and copies of those that the copy engine does not take as they lie.
    let of_left = [[product.m, product.left.rows], [product.k, product.left.cols]];
    let left = Factor::new("a", &product.left, of_left, product, limits)?;
    let of_right = [[product.n, product.right.cols], [product.k, product.right.rows]];
    let right = Factor::new("b", &product.right, of_right, product, limits)?;
    let across = [u32::from(left.is_across), u32::from(right.is_across)];
    let copies = if is_swapped { [right.copy, left.copy] } else { [left.copy, right.copy] };
    let copies_bytes: u64 = copies.iter().flatten().map(|copy| regions(copy.bytes())).sum();
    Reason::unless(copies_bytes <= limits.workspace_bytes, || {
        format!(
            "its copies of factors take {copies_bytes} bytes of workspace, the limit leaves {}",
            limits.workspace_bytes
        )
    })?;
    let limits = &limits.less(copies_bytes);
    let ([left_row, left_k], [right_column, right_k]) = (left.strides, right.strides);
    let product = &Product {
        left: Matrix { rows: left_row, cols: left_k, ..left.matrix },
        right: Matrix { rows: right_k, cols: right_column, ..right.matrix },
        ..*product
    };
    if dtype == DType::F32 {
        let mut planned = wgmma_words::plan(product, is_swapped, limits)?;
        planned.copies = copies;
        return Ok(planned);
    }

    // 3. The tiles.
    let mut planned = Planned::bare(product, is_swapped)?;
    planned.copies = copies;
    let (m, n) = if is_swapped { (product.n, product.m) } else { (product.m, product.n) };
    let is_wide =
        |matrix: &Matrix| is_in_runs(matrix, if is_swapped { matrix.cols } else { matrix.rows }, &product.batch);
    let beside = product.epilogue.beside.as_ref();
    let is_wide = is_wide(&product.out) && beside.is_none_or(is_wide);
    // The copy engine writes rows in chunks of 16 bytes.
    let is_short = |matrix: &Matrix| matrix.dtype.size_bytes() == 2;
    let is_copied = is_wide && n.is_multiple_of(8) && is_short(&product.out) && beside.is_none_or(is_short);
    let reads = product.epilogue.reads();
    let Tiling { columns, splits } = Tiling::choose(product, [m, n], is_copied && !reads, limits);
    bounded_blocks([m.div_ceil(ROWS), n.div_ceil(columns), product.batch.count(), splits])?;
    let mut choice = sys::bops_gemm_wgmma_choice {
        rows: word(ROWS),
        columns: word(columns),
        splits: word(splits),
        band_rows: BAND_ROWS,
        blocks: limits.props.multiprocessors,
        wide: u32::from(is_wide),
        copies: u32::from(is_copied && splits == 1),
        reads: u32::from(reads && splits == 1),
        left_across: across[usize::from(is_swapped)],
        right_across: across[usize::from(!is_swapped)],
    };
    planned.sum_rows = product.batch.count() * product.m.div_ceil(ROWS);
    if splits > 1 {
        choice.wide = u32::from(n.is_multiple_of(2));
        planned.scratch_bytes = splits * dense_bytes(product);
        planned.finish(product, Sums { splits, source: Source::Scratch }, is_swapped)?;
    }
    planned.first = Some(First::Wgmma(choice));
    Ok(planned)
}

/// # Errors
/// Extents that the copy engine does not take.
pub(super) fn fits_copy_engine(product: &Product) -> Result<(), Reason> {
    for (what, extent) in [("m", product.m), ("n", product.n), ("k", product.k)] {
        Reason::unless(extent < MOST_EXTENT, || {
            format!("the copy engine takes extents below {MOST_EXTENT}, {what} is {extent}")
        })?;
    }
    let (batch, summed) = (product.batch.len(), product.summed.len());
    Reason::unless(batch <= 2 && summed <= 1, || {
        format!("the copy engine takes two batch extents and one that is summed over, got {batch} and {summed}")
    })?;
    Ok(())
}

/// A factor as the copy engine takes it.
pub(super) struct Factor {
    /// Its dtype, place, and strides of the batch and of what is summed over.
    pub(super) matrix: Matrix,
    /// Strides of its rows and of k.
    pub(super) strides: [u64; 2],
    /// Whether its rows, not k, have a stride of 1.
    is_across: bool,
    pub(super) copy: Option<FactorCopy>,
}

impl Factor {
    /// # Errors
    /// What neither the copy engine takes nor the copy of a factor mends.
    pub(super) fn new(
        name: &str,
        matrix: &Matrix,
        [rows, depth]: [[u64; 2]; 2],
        product: &Product,
        limits: &Limits<'_>,
    ) -> Result<Self, Reason> {
        let is_word = matrix.dtype == DType::F32;
        match is_across(name, matrix, rows, depth, product) {
            // Instructions read f32 only along k.
            Ok(true) if is_word => Self::copied(matrix, rows, depth, product, limits)
                .ok_or_else(|| format!("{name} has more elements than memory").into()),
            Err(reason) if is_word => Err(reason),
            Ok(is_across) => Ok(Self { matrix: *matrix, strides: [rows[1], depth[1]], is_across, copy: None }),
            Err(reason) => {
                let copied = Self::copied(matrix, rows, depth, product, limits).ok_or(reason)?;
                let [row_stride, depth_stride] = copied.strides;
                is_across(name, &copied.matrix, [rows[0], row_stride], [depth[0], depth_stride], product)?;
                Ok(copied)
            }
        }
    }

    /// `None` if elements are neighbours along no index.
    fn copied(
        matrix: &Matrix,
        [rows, row_stride]: [u64; 2],
        [depth, depth_stride]: [u64; 2],
        product: &Product,
        limits: &Limits<'_>,
    ) -> Option<Self> {
        let is_across = match (row_stride, depth_stride) {
            (_, 1) if depth > 1 => false,
            (1, _) if rows > 1 => true,
            _ if depth == 1 => false,
            _ if rows == 1 => true,
            _ => return None,
        };
        let (length, lines, stride) = if is_across { (rows, depth, depth_stride) } else { (depth, rows, row_stride) };
        // The copy of f32 turns lines into columns.
        let is_turned = matrix.dtype == DType::F32;
        let width = if is_turned { lines } else { length };
        let width = width.checked_next_multiple_of(COPY_ALIGN_BYTES / matrix.dtype.size_bytes())?;
        let strides = if is_across && !is_turned { [1, width] } else { [width, 1] };
        let mut copied = Matrix { align_bytes: WORKSPACE_ALIGN, ..*matrix };
        let params = sys::bops_gemm_repack_params {
            lines,
            length,
            stride,
            multiprocessors: limits.props.multiprocessors,
            ..Default::default()
        };
        let mut copy = FactorCopy { params, is_turned, at: 0 };
        // The last of the extents outside of lines varies fastest.
        let mut elements = (if is_turned { length } else { lines }).checked_mul(width)?;
        let summed = product.summed.iter().zip(&mut copied.summed).rev();
        let batch = product.batch.iter().zip(&mut copied.batch).rev().filter(|(_, stride)| **stride != 0);
        let mut outer = Vec::new();
        for (&extent, stride) in summed.chain(batch) {
            outer.push((extent, std::mem::replace(stride, elements)));
            elements = elements.checked_mul(extent)?;
        }
        for (axis, (extent, stride)) in outer.into_iter().rev().enumerate() {
            (copy.params.outer[axis], copy.params.strides[axis]) = (extent, stride);
            copy.params.rank += 1;
        }
        elements.checked_mul(matrix.dtype.size_bytes())?;
        Some(Self { matrix: copied, strides, is_across: is_across && !is_turned, copy: Some(copy) })
    }
}

/// Whether the rows, not k, have a stride of 1.
///
/// # Errors
/// What the copy engine does not take.
pub(super) fn is_across(
    name: &str,
    matrix: &Matrix,
    [rows, row_stride]: [u64; 2],
    [depth, depth_stride]: [u64; 2],
    product: &Product,
) -> Result<bool, Reason> {
    Reason::unless(matrix.align_bytes >= COPY_ALIGN_BYTES, || {
        format!(
            "the copy engine takes addresses at multiples of {COPY_ALIGN_BYTES} bytes, {name} promises {}",
            matrix.align_bytes
        )
    })?;
    let in_bytes = |stride: u64| stride.saturating_mul(matrix.dtype.size_bytes());
    let fits = |stride: u64, extent: u64| {
        extent == 1
            || (stride > 0 && in_bytes(stride).is_multiple_of(COPY_ALIGN_BYTES) && in_bytes(stride) < MOST_STRIDE_BYTES)
    };
    let is_run = |stride: u64, extent: u64| stride == 1 || extent == 1;
    let steps_over = |run: u64, stride: u64, extent: u64| fits(stride, extent) && (extent == 1 || stride >= run);
    let is_across = if is_run(depth_stride, depth) && steps_over(depth, row_stride, rows) {
        false
    } else if is_run(row_stride, rows) && steps_over(rows, depth_stride, depth) {
        true
    } else {
        return Err(format!(
            "the copy engine takes matrices with a stride of 1 and one of a multiple of {COPY_ALIGN_BYTES} bytes that steps over a row, {name} has {row_stride} and {depth_stride}"
        )
        .into());
    };
    // One matrix may serve the whole batch, but the copy engine cannot sum over it more than once.
    let batch = product.batch.iter().zip(matrix.batch).filter(|&(_, stride)| stride != 0);
    let summed = product.summed.iter().zip(matrix.summed);
    if let Some((_, stride)) =
        batch.chain(summed).find(|&(&extent, stride)| extent >= MOST_EXTENT || !fits(stride, extent))
    {
        return Err(format!(
            "the copy engine takes batch strides of a multiple of {COPY_ALIGN_BYTES} bytes, {name} has {stride}"
        )
        .into());
    }
    Ok(is_across)
}

/// Whether a row is stored in accesses of 16 bytes, or where it has f32 of 8, from any multiple of that many on.
fn is_in_runs(matrix: &Matrix, row_stride: u64, batch: &Extents) -> bool {
    let (elements, bytes) = if matrix.dtype.size_bytes() == 2 { (8, 16) } else { (2, 8) };
    let strides = matrix.batch[..batch.len()].iter().chain([&row_stride]);
    let fits = |stride: u64| {
        stride.is_multiple_of(elements) && stride.saturating_mul(matrix.dtype.size_bytes()) < MOST_STRIDE_BYTES
    };
    matrix.align_bytes >= bytes && strides.copied().all(fits)
}

/// The tiles of a product.
struct Tiling {
    columns: u64,
    /// Blocks that share the sums of a tile.
    splits: u64,
}

impl Tiling {
    /// Wide tiles if they take less time, which is the time of the columns that one SM computes. Several blocks share the sums of a tile if there are fewer
    /// tiles than SMs and k is long.
    fn choose(product: &Product, extents: [u64; 2], may_be_wide: bool, limits: &Limits<'_>) -> Self {
        let multiprocessors = u64::from(limits.props.multiprocessors);
        let tiles = |columns: u64| tiles(extents, [ROWS, columns], product);
        let steps = product.k.div_ceil(DEPTH).saturating_mul(product.summed.count());
        let splits = splits(product, tiles(COLUMNS), steps / LEAST_STEPS, limits);
        let cost = |columns: u64| tiles(columns).div_ceil(multiprocessors).saturating_mul(columns);
        let is_faster = cost(WIDE_COLUMNS).saturating_mul(WIDE_COST_PERCENT) < cost(COLUMNS).saturating_mul(100);
        let columns = if may_be_wide && splits == 1 && is_faster { WIDE_COLUMNS } else { COLUMNS };
        Self { columns, splits }
    }
}
