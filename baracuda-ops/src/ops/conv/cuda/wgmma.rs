//! Convolutions through wgmma: which operands the copy engine reads in place, which are copied for it first, and how blocks share the sums.

use baracuda_ops_sys as sys;

use super::product::{First, Planned, lowered, merged, params};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{signed, word};
use crate::ops::activation::Activation;
use crate::ops::conv::geometry::{Contraction, DIGITS, Gathered, Indices, Strided};
use crate::ops::conv::{MAX_AXES, Pass};
use crate::ops::gemm::cuda::WORKSPACE_ALIGN;
use crate::ops::gemm::cuda::product::{self as gemm, Limits, Sums, Tiles, bounded_blocks, dense_bytes};
use crate::ops::gemm::geometry::{Epilogue, Product};

/// Rows of a tile.
const ROWS: u64 = 128;
/// Bytes of a row, or a column, of a step along the terms.
const STEP_BYTES: u64 = 128;
/// In the gradient of the weight: rows of a block of shared memory, which are channels of one kernel element, and positions of a step.
const WEIGHT_ROWS: u64 = 64;
/// Bytes of one access of the copy engine, or of a thread of `conv_turn`.
const CHUNK_BYTES: u64 = 16;
/// Strides that the copy engine takes are below this, in bytes.
const MOST_STRIDE_BYTES: u64 = 1 << 40;
/// Counts of positions, terms and columns are below this.
const MOST_EXTENT: u64 = 1 << 31;
/// The copy engine's range for the first coordinate of the windows, and for the last one less the extent: 8 bits with a sign.
const CORNERS: std::ops::RangeInclusive<i64> = -128..=127;
/// The greatest distance of the last kernel element from the first: offsets of the copy engine have 8 bits.
const MOST_SPREAD: i64 = 255;
/// The greatest step between positions, which the copy engine's map limits.
const MOST_STEP: i64 = 8;
/// The fewest bytes of channels, unless the form is asked for by name: with fewer a step is mostly empty, and `conv_mma` has shorter ones.
const LEAST_BYTES: u64 = 64;

/// The columns of a tile, with times measured on an H200.
struct Width {
    columns: u64,
    /// Time of a step.
    step_picoseconds: u64,
    /// Time of a step if the last 64 columns of a row of tiles are beyond the product. Filling them with 0 takes the copy engine longer than loading.
    half_empty_picoseconds: u64,
}
/// The widths of tiles that there are kernels for.
const WIDTHS: [Width; 2] = [
    Width { columns: 128, step_picoseconds: 380_000, half_empty_picoseconds: 470_000 },
    Width { columns: 64, step_picoseconds: 290_000, half_empty_picoseconds: 290_000 },
];
/// Time on an H200 of the launch of `gemm_finish`, besides that of its bytes. A copy's launch is counted by `LAUNCH_PS` of gemm's `wgmma_words.rs`.
const LAUNCH_PICOSECONDS: u64 = 3_000_000;
/// Time in which an H200 writes a kilobyte of a part of the sums and reads it again. `tiles` counts half of it for each way.
const KILOBYTE_PICOSECONDS: u64 = 500;

/// A copy of an operand in the workspace, in which channels are contiguous.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) params: sys::bops_conv_turn_params,
    /// Where it begins in the workspace, in bytes.
    pub(super) at: u64,
}

impl Turn {
    fn bytes(&self) -> u64 {
        let sys::bops_conv_turn_params { outer, columns, pitch, element_bytes, .. } = self.params;
        outer.saturating_mul(columns).saturating_mul(pitch).saturating_mul(element_bytes.into())
    }

    /// Extents come with their strides. `others` are all extents other than `outer` and the channels, the slowest first.
    ///
    /// # Errors
    /// `others` that are not one contiguous index.
    fn new(
        name: &str,
        [outer, outer_stride]: [u64; 2],
        [channels, channel_stride]: [u64; 2],
        others: &[[u64; 2]],
        (dtype, align_bytes): (DType, u64),
    ) -> Result<Self, Reason> {
        let [extents, strides] = [0, 1].map(|of| others.iter().map(|other| other[of]).collect::<Vec<u64>>());
        Reason::unless(merged(&extents, &strides) == Some(1), || {
            format!(
                "it takes operands whose channels or positions are contiguous, {name} has strides {channel_stride} and {strides:?}"
            )
        })?;
        let columns: u64 = extents.iter().product();
        let element_bytes = dtype.size_bytes();
        let fits = |&vector: &u64| {
            let is_whole = |count: u64, stride: u64| count == 1 || stride.is_multiple_of(vector);
            element_bytes * vector <= align_bytes.min(CHUNK_BYTES)
                && columns.is_multiple_of(vector)
                && is_whole(outer, outer_stride)
                && is_whole(channels, channel_stride)
        };
        bounded_blocks([outer, columns.div_ceil(64), channels.div_ceil(64)])?;
        let params = sys::bops_conv_turn_params {
            outer,
            rows: channels,
            columns,
            outer_stride,
            row_stride: channel_stride,
            pitch: channels.next_multiple_of(CHUNK_BYTES / element_bytes),
            element_bytes: word(element_bytes),
            vector: word([8, 4, 2].into_iter().find(fits).unwrap_or(1)),
        };
        Ok(Self { params, at: 0 })
    }

    /// The stride of `outer` in the copy.
    fn outer_stride(&self) -> u64 {
        self.params.columns * self.params.pitch
    }

    /// The stride in the copy of an extent whose stride in the operand is `stride`, other than `outer` and the channels.
    fn stride(&self, stride: u64) -> u64 {
        stride * self.params.pitch
    }
}

/// A stride that the copy engine does not take, if there is one.
fn odd_stride(dtype: DType, extents: &[u64], strides: &[u64]) -> Option<u64> {
    let [chunk, most] = [CHUNK_BYTES, MOST_STRIDE_BYTES].map(|bytes| bytes / dtype.size_bytes());
    let is_odd = |&(&extent, &stride): &(&u64, &u64)| {
        extent > 1 && (stride == 0 || !stride.is_multiple_of(chunk) || stride >= most)
    };
    extents.iter().zip(strides).find(is_odd).map(|(_, &stride)| stride)
}

pub(super) fn plan(contraction: &Contraction, dtype: DType, limits: &Limits<'_>) -> Result<Planned, Reason> {
    check(contraction, dtype, limits)?;
    let is_weight = contraction.pass == Pass::Weight;
    let mut of = *contraction;
    // Channels are the fastest digit of the kernel's elements.
    let (&positions, taps) = contraction.positions_and_taps();
    let taps = Indices { lead_last: true, ..*taps };
    *(if is_weight { &mut of.rows } else { &mut of.terms }) = taps;

    // 1. The operands in place, or copies of them.
    let mut turns = [None; 2];
    (of.gathered, turns[0]) = gathered(contraction, &positions, &taps)?;
    (of.plain, turns[1]) = plain(&of.plain, &of, &taps, is_weight)?;
    let mut at = 0;
    for turn in turns.iter_mut().flatten() {
        turn.at = at;
        at += turn.bytes().next_multiple_of(WORKSPACE_ALIGN);
    }
    Reason::unless(at <= limits.workspace_bytes, || {
        let limit = limits.workspace_bytes;
        format!("its copies of operands take {at} bytes of workspace, the limit is {limit}")
    })?;
    let limits = &limits.less(at);

    // 2. The product. In the gradient of the weight the kernel sees all rows as one index.
    let product = lowered(&of, dtype);
    let (mut params, _) = params(&of, &product)?;
    let whole =
        if is_weight { Product { m: of.rows.count(), batch: [1].into_iter().collect(), ..product } } else { product };
    let is_dense = !is_weight || product.batch.count() == 1;
    let steps = if is_weight {
        whole.k.div_ceil(WEIGHT_ROWS)
    } else {
        taps.lead.div_ceil(STEP_BYTES / dtype.size_bytes()).saturating_mul(taps.count() / taps.lead)
    };
    let (columns, splits) = tiles(&whole, steps, is_dense, limits)?;
    let mut planned = gemm::Planned::bare(&product, false)?;
    let tiled = planned.tiled(&whole, Tiles { tile: columns, splits }, false)?;
    let choice = sys::bops_conv_wgmma_choice {
        columns: word(columns),
        splits: tiled.splits,
        blocks: limits.props.multiprocessors,
        across: tiled.across,
        quads: tiled.quads,
        light: u32::from(is_light(&of, &whole, splits)),
        of_weight: u32::from(is_weight),
        right_across: u32::from(of.plain.column == 1 && (is_weight || of.plain.lead != 1) && dtype != DType::F32),
    };
    if !is_dense {
        planned.finish(&product, Sums { splits, source: gemm::Source::Scratch }, false)?;
        scatter(&mut planned, &of, &whole, choice.across != 0);
    }
    params.product = planned.params;
    if is_weight {
        (params.product.m, params.product.batch_rank) = (whole.m, 1);
        params.product.k = positions.count();
        params.product.right.matrix.row = merged(&positions.digits(), &of.plain.digits(&positions)).unwrap_or(0);
    } else {
        params.product.k = taps.lead;
        params.product.right.matrix.row = of.plain.lead;
    }
    params.product.summed_rank = 1;
    let kernel_elements = if is_weight { 1 } else { taps.count() / taps.lead };
    params.product.summed[0] = kernel_elements;
    if !is_weight {
        params.product.right.summed[0] = merged(&taps.axes, &of.plain.axes).unwrap_or(0);
    }
    planned.scratch_bytes = planned.scratch_bytes.next_multiple_of(WORKSPACE_ALIGN);
    for turn in turns.iter_mut().flatten() {
        turn.at += planned.scratch_bytes;
    }
    planned.scratch_bytes += at;
    Ok(Planned {
        product: planned,
        params,
        choice: Some(First::Wgmma(choice)),
        rounds_to_tf32: dtype == DType::F32,
        turns,
    })
}

/// # Errors
/// What neither the copy engine nor the instruction supports.
fn check(contraction: &Contraction, dtype: DType, limits: &Limits<'_>) -> Result<(), Reason> {
    let Contraction { groups, n, gathered, .. } = contraction;
    Reason::unless(limits.props.sm_90a, || {
        let (major, minor) = (limits.props.capability / 10, limits.props.capability % 10);
        format!("it needs compute capability 9.0 and code for sm_90a, the device has {major}.{minor}")
    })?;
    limits.check_tensor_cores(dtype)?;
    contraction.factor_type()?;
    Reason::unless(
        dtype != DType::F32 || contraction.pass != Pass::Weight,
        || "wgmma reads tf32 along the terms only; in the gradient of the weight they are positions, which are not contiguous if channels are",
    )?;
    Reason::unless(*groups == 1, || format!("it serves one group, got {groups}"))?;
    contraction.check_is_image()?;
    let is_weight = contraction.pass == Pass::Weight;
    let (positions, taps) = contraction.positions_and_taps();
    Reason::unless(*n < MOST_EXTENT && positions.count() < MOST_EXTENT && taps.count() < MOST_EXTENT, || {
        format!("it serves fewer than {MOST_EXTENT} positions, terms and columns")
    })?;
    for (at, axis) in gathered.axes.iter().enumerate().skip(1) {
        let [step, spread] = contraction.position_and_tap_steps(axis);
        let [places, elements, extent] = [positions.axes[at], taps.axes[at], axis.extent].map(signed);
        Reason::unless(
            axis.divisor == 1,
            || "it does not serve the gradient of the data of a convolution with strides",
        )?;
        let reach = spread.saturating_mul(elements - 1);
        let low = axis.offset.saturating_add(reach.min(0));
        let high = low.saturating_add(step.saturating_mul(places - 1)).saturating_add(1).saturating_sub(extent);
        Reason::unless(
            CORNERS.contains(&low) && CORNERS.contains(&high) && reach.abs() <= MOST_SPREAD && step <= MOST_STEP,
            || {
                format!(
                    "the copy engine takes windows that begin at most 128 outside the image, are at most {MOST_SPREAD} wide and {MOST_STEP} apart; along an axis of {extent} they begin at {low}, are {reach} wide and {step} apart"
                )
            },
        )?;
    }
    let channels = taps.lead;
    Reason::unless(!is_weight || channels.is_multiple_of(WEIGHT_ROWS), || {
        format!("the gradient of the weight needs a multiple of {WEIGHT_ROWS} channels, there are {channels}")
    })?;
    Reason::unless(limits.is_pinned || channels * dtype.size_bytes() >= LEAST_BYTES, || {
        let depth = STEP_BYTES / dtype.size_bytes();
        format!("its steps have {depth} channels, there are {channels}")
    })?;
    Ok(())
}

/// The gathered factor with contiguous channels, and the copy that it is, if it is not read in place.
fn gathered(
    contraction: &Contraction,
    positions: &Indices,
    taps: &Indices,
) -> Result<(Gathered, Option<Turn>), Reason> {
    let of = &contraction.gathered;
    let (samples, channels) = (positions.lead, taps.lead);
    let Strided { lead: sample_stride, column: channel_stride, .. } = contraction.gathered_by_positions();
    let axes = of.axes.map(|axis| [axis.extent, axis.stride]);
    let samples_and_axes = [[samples, sample_stride], axes[1], axes[2]];
    let [extents, strides] = [0, 1].map(|of| samples_and_axes.map(|extent| extent[of]));
    let is_whole = channels.is_multiple_of(CHUNK_BYTES / of.dtype.size_bytes()) && of.align_bytes >= CHUNK_BYTES;
    if (channel_stride == 1 || channels == 1) && is_whole && odd_stride(of.dtype, &extents, &strides).is_none() {
        return Ok((*of, None));
    }
    let turn =
        Turn::new("x or dy", [samples, sample_stride], [channels, channel_stride], &axes, (of.dtype, of.align_bytes))?;
    let sample_stride = turn.outer_stride();
    let mut axes = of.axes;
    for axis in &mut axes {
        axis.stride = turn.stride(axis.stride);
    }
    let is_weight = contraction.pass == Pass::Weight;
    let [row_lead, term_lead] = if is_weight { [1, sample_stride] } else { [sample_stride, 1] };
    Ok((Gathered { row_lead, term_lead, axes, align_bytes: WORKSPACE_ALIGN, group: 0, ..*of }, Some(turn)))
}

/// The plain factor with contiguous channels of a kernel element, or contiguous columns, and the copy that it is, if it is not read in place.
fn plain(
    of: &Strided,
    contraction: &Contraction,
    taps: &Indices,
    is_weight: bool,
) -> Result<(Strided, Option<Turn>), Reason> {
    let Contraction { terms, n, .. } = contraction;
    let starts = of.align_bytes >= CHUNK_BYTES;
    let kernel = merged(&taps.axes, &of.axes);
    let is_along_terms = of.dtype == DType::F32; // wgmma reads tf32 along the terms only.
    let is_taken = if is_weight {
        let row = merged(&terms.digits(), &of.digits(terms));
        of.column == 1 && row.is_some_and(|row| odd_stride(of.dtype, &[terms.count()], &[row]).is_none())
    } else {
        let elements: u64 = taps.axes.iter().product();
        let is_whole = |stride: u64, extent: u64| {
            odd_stride(of.dtype, &[elements, extent], &[kernel.unwrap_or(1), stride]).is_none()
        };
        let along_columns = of.column == 1 && !is_along_terms && is_whole(of.lead, terms.lead);
        (of.lead == 1 && is_whole(of.column, *n)) || along_columns
    };
    if starts && is_taken {
        return Ok((*of, None));
    }
    let (terms_lead, columns) = ([terms.lead, of.lead], [*n, of.column]);
    let axes: [_; MAX_AXES] = std::array::from_fn(|axis| [terms.axes[axis], of.axes[axis]]);
    let new = |outer, rows, others: &[[u64; 2]]| {
        Turn::new("the weight or dy", outer, rows, others, (of.dtype, of.align_bytes))
    };
    // The outer extent of the copy is filters of the weight, or samples of dy; in the gradient of the data it is the filters, which are summed over.
    let (turn, lead, column);
    if contraction.pass == Pass::Forward {
        turn = new(columns, terms_lead, &axes)?;
        (lead, column) = (1, turn.outer_stride());
    } else if is_along_terms {
        let [a, b, c] = axes;
        turn = new([1, 0], terms_lead, &if of.column == 1 { [a, b, c, columns] } else { [columns, a, b, c] })?;
        (lead, column) = (1, turn.stride(of.column));
    } else {
        turn = new(terms_lead, columns, &axes)?;
        (lead, column) = (turn.outer_stride(), 1);
    }
    let axes = of.axes.map(|stride| turn.stride(stride));
    Ok((Strided { lead, column, axes, align_bytes: WORKSPACE_ALIGN, group: 0, ..*of }, Some(turn)))
}

/// What divides the fast extent, and of results that are no parts also strides, if the choice is light: a thread then stores eight results of 16 bits
/// at once from registers. Results of f32, parts among them, it stores two at a time, or one if the choice is `across`.
const LIGHT: u64 = 8;

/// Whether the choice is light: a thread adds a bias, applies a ReLU and stores, all from registers.
fn is_light(of: &Contraction, product: &Product, splits: u64) -> bool {
    let by_rows = product.out.rows == 1 && product.out.cols != 1;
    let (fast, slow, stride) = if by_rows {
        (product.m, product.out.cols, product.out.rows)
    } else {
        (product.n, product.out.rows, product.out.cols)
    };
    if splits > 1 {
        return fast.is_multiple_of(LIGHT);
    }
    let Epilogue { activation, beside, beta, .. } = &of.epilogue;
    let is_plain = matches!(activation, Activation::Identity | Activation::Relu) && beside.is_none() && *beta == 0.0;
    let batch = product.batch.iter().zip(product.out.batch).map(|(_, stride)| stride);
    let is_whole = batch.chain([slow, fast]).all(|number| number.is_multiple_of(LIGHT));
    is_plain && is_whole && stride == 1 && product.out.align_bytes >= 16
}

/// The columns of a tile, and the number of blocks that share its sums, with which a run takes least time. `steps`: steps of each sum.
fn tiles(whole: &Product, steps: u64, is_dense: bool, limits: &Limits<'_>) -> Result<(u64, u64), Reason> {
    let multiprocessors = u64::from(limits.props.multiprocessors);
    let bytes = dense_bytes(whole);
    // Parts may take twice as many bytes as those of a product of matrices. They need not stay in the L2: `cost` counts their bytes at the speed of
    // memory. Four units of work for each SM are the most that are tried: more splits of a single tile would only add parts.
    let most =
        (limits.workspace_bytes.min(2 * gemm::MOST_PART_BYTES) / bytes.max(1)).min(steps).min(4 * multiprocessors);
    let least = if is_dense { 1 } else { 2 };
    Reason::unless(is_dense || most >= least, || {
        let limit = limits.workspace_bytes;
        format!(
            "it needs workspace for {least} parts of {bytes} bytes, each of at least one step; the limit is {limit} bytes"
        )
    })?;
    let cost = |width: &Width, splits: u64| {
        let tiles = whole.m.div_ceil(ROWS).saturating_mul(whole.n.div_ceil(width.columns));
        let units = tiles.saturating_mul(whole.batch.count()).saturating_mul(splits);
        let rounds = units.div_ceil(multiprocessors);
        let is_full = whole.n.div_ceil(64).is_multiple_of(width.columns / 64);
        let step = if is_full { width.step_picoseconds } else { width.half_empty_picoseconds };
        let sums = rounds.saturating_mul(steps.div_ceil(splits)).saturating_mul(step);
        // Each part is written and read, and out is written.
        let parts = (splits * 2 + 1).saturating_mul(bytes / 1024) * KILOBYTE_PICOSECONDS / 2;
        sums.saturating_add(if splits == 1 { 0 } else { LAUNCH_PICOSECONDS + parts })
    };
    let all = WIDTHS.iter().flat_map(|width| (least..=most.max(least)).map(move |splits| (width, splits)));
    let best = all.min_by_key(|&(width, splits)| cost(width, splits));
    Ok(best.map_or((WIDTHS[0].columns, least), |(width, splits)| (width.columns, splits)))
}

/// Sets where `gemm_finish` finds the rows of a part: in a part they are one index, in the product several.
fn scatter(planned: &mut gemm::Planned, of: &Contraction, whole: &Product, across: bool) {
    let Some((finish, _)) = &mut planned.finish else { return };
    let extents = of.rows.digits();
    let unit = if across { 1 } else { whole.n };
    finish.source.row = unit;
    finish.source.column = if across { whole.m } else { 1 };
    finish.split_stride = whole.m * whole.n;
    finish.across = u32::from(across);
    let rank = planned.finish_params.batch_rank as usize;
    let mut strides = [0; DIGITS];
    let mut stride = 1;
    for (to, extent) in strides.iter_mut().zip(extents).rev() {
        *to = stride;
        stride *= extent;
    }
    // The outer digits that have more than one value, after the groups.
    let outer = extents.iter().zip(strides).filter(|&(&extent, _)| extent != 1);
    for (to, (_, stride)) in finish.source.batch[1..rank].iter_mut().zip(outer) {
        *to = stride * unit;
    }
}
