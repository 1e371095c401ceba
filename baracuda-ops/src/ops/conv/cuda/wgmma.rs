//! Convolutions through wgmma: what the copy engine gathers as it lies, what is copied for it first, and how blocks share the sums.

use baracuda_ops_sys as sys;

use super::product::{First, Planned, lowered, merged, params};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::activation::Activation;
use crate::ops::conv::geometry::{Contraction, DIGITS, Epilogue, Gathered, Indices, Strided};
use crate::ops::conv::{MAX_AXES, Pass};
use crate::ops::gemm::cuda::WORKSPACE_ALIGN;
use crate::ops::gemm::cuda::product::{self as gemm, Limits, Sums, Tiles, bounded_blocks, dense_bytes};
use crate::ops::gemm::geometry::Product;

/// Rows and columns of a tile.
const TILE: u64 = 128;
/// Channels, or positions, of a step.
const DEPTH: u64 = 64;
/// Elements of 16 bytes.
const CHUNK: u64 = 8;
/// Strides are below it.
const MOST_STRIDE: u64 = 1 << 39;
/// Counts of positions and columns are below it.
const MOST_EXTENT: u64 = 1 << 31;
/// Coordinates of the windows' first and last place, the latter less the extent.
const CORNERS: std::ops::RangeInclusive<i64> = -128..=127;
/// How far the last kernel element may be from the first.
const MOST_SPREAD: i64 = 255;
/// How far positions may be apart.
const MOST_STEP: i64 = 8;
/// Channels from which on it is preferred to `conv_mma`, whose steps are shorter.
const LEAST_CHANNELS: u64 = 32;

/// Time of a step of a tile, of a further launch, and of a kilobyte of a part of the sums that is written or read, on an H200.
const STEP_PICOSECONDS: u64 = 430_000;
const KILOBYTE_PICOSECONDS: u64 = 250;

/// A copy of an operand in the workspace whose channels are neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) params: sys::bops_conv_turn_params,
    /// Where it begins in the workspace.
    pub(super) at: u64,
}

impl Turn {
    fn bytes(&self) -> u64 {
        let sys::bops_conv_turn_params { outer, columns, pitch, .. } = self.params;
        outer.saturating_mul(columns).saturating_mul(pitch).saturating_mul(2)
    }

    /// That of an operand `[outer, channels, axes]` whose positions follow one another.
    fn new(
        name: &str,
        [outer, outer_stride]: [u64; 2],
        [channels, channel_stride]: [u64; 2],
        extents: [u64; MAX_AXES],
        strides: [u64; MAX_AXES],
        align_bytes: u64,
    ) -> Result<Self, Reason> {
        if merged(&extents, &strides) != Some(1) {
            return Err(format!(
                "it takes operands whose channels or whose positions follow one another, {name} has strides {channel_stride} and {strides:?}"
            )
            .into());
        }
        let columns: u64 = extents.iter().product();
        let fits = |&vector: &u64| {
            let is_whole = |count: u64, stride: u64| count == 1 || stride.is_multiple_of(vector);
            align_bytes >= 2 * vector
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
            pitch: channels.next_multiple_of(CHUNK),
            vector: word([8, 4, 2].into_iter().find(fits).unwrap_or(1)),
        };
        Ok(Self { params, at: 0 })
    }

    /// Strides of the outermost extent and of the axes in the copy.
    fn strides(&self, [_, height, width]: [u64; MAX_AXES]) -> (u64, [u64; MAX_AXES]) {
        let pitch = self.params.pitch;
        (self.params.columns * pitch, [height * width * pitch, width * pitch, pitch])
    }
}

/// What is wrong with an operand that is read as it lies: a stride that the copy engine does not take.
fn odd_stride(extents: &[u64], strides: &[u64]) -> Option<u64> {
    let is_odd = |&(&extent, &stride): &(&u64, &u64)| {
        extent > 1 && (stride == 0 || !stride.is_multiple_of(CHUNK) || stride >= MOST_STRIDE)
    };
    extents.iter().zip(strides).find(is_odd).map(|(_, &stride)| stride)
}

pub(super) fn plan(contraction: &Contraction, dtype: DType, limits: &Limits<'_>) -> Result<Planned, Reason> {
    check(contraction, dtype, limits)?;
    let is_weight = contraction.pass == Pass::Weight;
    let mut of = *contraction;
    // The positions of the output, and the kernel's elements with their channels.
    let (&positions, taps) = contraction.positions_and_taps();
    let taps = Indices { lead_last: true, ..*taps };
    *(if is_weight { &mut of.rows } else { &mut of.terms }) = taps;

    // 1. The operands as they lie, or copies of them.
    let mut turns = [None; 2];
    (of.gathered, turns[0]) = gathered(&of.gathered, &positions, &taps, is_weight)?;
    (of.plain, turns[1]) = plain(&of.plain, &of, &taps, is_weight)?;
    let mut at = 0;
    for turn in turns.iter_mut().flatten() {
        turn.at = at;
        at += turn.bytes().next_multiple_of(WORKSPACE_ALIGN);
    }
    if at > limits.workspace_bytes {
        let limit = limits.workspace_bytes;
        return Err(format!("its copies of operands take {at} bytes of workspace, the limit is {limit}").into());
    }
    let limits = &limits.less(at);

    // 2. The product. Of the gradient of the weight all rows are one index to the kernel.
    let product = lowered(&of, dtype);
    let (mut params, _) = params(&of, &product)?;
    let whole =
        if is_weight { Product { m: of.rows.count(), batch: [1].into_iter().collect(), ..product } } else { product };
    let is_dense = !is_weight || product.batch.count() == 1;
    let splits = splits(&whole, &taps, is_weight, is_dense, limits)?;
    let mut planned = gemm::Planned::bare(&product, false)?;
    let tiled = planned.tiled(&whole, Tiles { tile: TILE, splits }, false)?;
    let choice = sys::bops_conv_wgmma_choice {
        splits: tiled.splits,
        blocks: limits.props.multiprocessors,
        across: tiled.across,
        quads: tiled.quads,
        light: u32::from(is_light(&of, &whole, splits)),
        of_weight: u32::from(is_weight),
        right_across: u32::from(of.plain.column == 1 && (is_weight || of.plain.lead != 1)),
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
    Ok(Planned { product: planned, params, choice: Some(First::Wgmma(choice)), rounds_to_tf32: false, turns })
}

/// # Errors
/// What the copy engine and the instruction do not do.
fn check(contraction: &Contraction, dtype: DType, limits: &Limits<'_>) -> Result<(), Reason> {
    let Contraction { groups, n, gathered, plain, .. } = contraction;
    if !limits.props.sm_90a {
        let (major, minor) = (limits.props.capability / 10, limits.props.capability % 10);
        let words = format!("it needs compute capability 9.0 and code for sm_90a, the device has {major}.{minor}");
        return Err(words.into());
    }
    if !matches!(dtype, DType::F16 | DType::BF16) || gathered.dtype != plain.dtype {
        let (gathered, plain) = (gathered.dtype, plain.dtype);
        return Err(format!("it multiplies f16 by f16 or bf16 by bf16, here they are {gathered} and {plain}").into());
    }
    if *groups != 1 {
        return Err(format!("it is for one group, got {groups}").into());
    }
    contraction.check_is_image()?;
    let is_weight = contraction.pass == Pass::Weight;
    let (positions, taps) = contraction.positions_and_taps();
    if *n >= MOST_EXTENT || positions.count() >= MOST_EXTENT || taps.count() >= MOST_EXTENT {
        return Err(format!("it counts rows, terms and columns below {MOST_EXTENT}").into());
    }
    for (at, axis) in gathered.axes.iter().enumerate().skip(1) {
        let (step, spread) = if is_weight { (axis.of_term, axis.of_row) } else { (axis.of_row, axis.of_term) };
        let (places, elements) = (i64::try_from(positions.axes[at]), i64::try_from(taps.axes[at]));
        let (Ok(places), Ok(elements), Ok(extent)) = (places, elements, i64::try_from(axis.extent)) else {
            return Err("an extent is too large".into());
        };
        if axis.divisor != 1 {
            return Err("it has no gradient of the data of a convolution with strides".into());
        }
        let reach = spread.saturating_mul(elements - 1);
        let low = axis.offset.saturating_add(reach.min(0));
        let high = low.saturating_add(step.saturating_mul(places - 1)).saturating_add(1).saturating_sub(extent);
        if !CORNERS.contains(&low) || !CORNERS.contains(&high) || reach.abs() > MOST_SPREAD || step > MOST_STEP {
            return Err(format!(
                "the copy engine takes windows that begin within 128 of the image's corners, are at most {MOST_SPREAD} wide and {MOST_STEP} apart; along an axis of {extent} they begin at {low}, are {reach} wide and {step} apart"
            )
            .into());
        }
    }
    let channels = taps.lead;
    if is_weight && !channels.is_multiple_of(DEPTH) {
        return Err(format!(
            "64 rows of the gradient of the weight are channels of one kernel element, of which there are {channels}"
        )
        .into());
    }
    if !limits.is_pinned && channels < LEAST_CHANNELS {
        return Err(format!("its steps are of {DEPTH} channels, here there are {channels}").into());
    }
    Ok(())
}

/// The gathered factor with neighbouring channels, and the copy that makes them so.
fn gathered(
    of: &Gathered,
    positions: &Indices,
    taps: &Indices,
    is_weight: bool,
) -> Result<(Gathered, Option<Turn>), Reason> {
    let (samples, channels) = (positions.lead, taps.lead);
    let (channel_stride, sample_stride) =
        if is_weight { (of.row_lead, of.term_lead) } else { (of.term_lead, of.row_lead) };
    let extents = of.axes.map(|axis| axis.extent);
    let strides = of.axes.map(|axis| axis.stride);
    let odd = odd_stride(&[samples, extents[1], extents[2]], &[sample_stride, strides[1], strides[2]]);
    let is_taken = (channel_stride == 1 || channels == 1) && channels.is_multiple_of(CHUNK) && of.align_bytes >= 16;
    if is_taken && odd.is_none() {
        return Ok((*of, None));
    }
    let turn =
        Turn::new("x or dy", [samples, sample_stride], [channels, channel_stride], extents, strides, of.align_bytes)?;
    let (sample_stride, strides) = turn.strides(extents);
    let mut axes = of.axes;
    for (axis, stride) in axes.iter_mut().zip(strides) {
        axis.stride = if axis.extent > 1 { stride } else { 0 };
    }
    let [row_lead, term_lead] = if is_weight { [1, sample_stride] } else { [sample_stride, 1] };
    Ok((Gathered { row_lead, term_lead, axes, align_bytes: WORKSPACE_ALIGN, group: 0, ..*of }, Some(turn)))
}

/// The plain factor as the copy engine takes it: along the channels of a kernel element, or along its columns.
fn plain(
    of: &Strided,
    contraction: &Contraction,
    taps: &Indices,
    is_weight: bool,
) -> Result<(Strided, Option<Turn>), Reason> {
    let Contraction { terms, n, .. } = contraction;
    let starts = of.align_bytes >= 16;
    let kernel = merged(&taps.axes, &of.axes);
    let is_taken = if is_weight {
        let row = merged(&terms.digits(), &of.digits(terms));
        of.column == 1 && row.is_some_and(|row| odd_stride(&[terms.count()], &[row]).is_none())
    } else {
        let elements: u64 = taps.axes.iter().product();
        let is_whole =
            |stride: u64, extent: u64| odd_stride(&[elements, extent], &[kernel.unwrap_or(1), stride]).is_none();
        (of.lead == 1 && is_whole(of.column, *n)) || (of.column == 1 && is_whole(of.lead, terms.lead))
    };
    if starts && is_taken {
        return Ok((*of, None));
    }
    let (terms_lead, columns) = ([terms.lead, of.lead], [*n, of.column]);
    // Filters of the weight, or samples of dy, are outside; of the gradient of the data filters are summed over.
    let is_forward = contraction.pass == Pass::Forward;
    let (outer, rows) = if is_forward { (columns, terms_lead) } else { (terms_lead, columns) };
    let extents = terms.axes;
    let turn = Turn::new("the weight or dy", outer, rows, extents, of.axes, of.align_bytes)?;
    let (outer_stride, axes) = turn.strides(extents);
    let [lead, column] = if is_forward { [1, outer_stride] } else { [outer_stride, 1] };
    let axes = std::array::from_fn(|axis| if extents[axis] > 1 { axes[axis] } else { 0 });
    Ok((Strided { lead, column, axes, align_bytes: WORKSPACE_ALIGN, group: 0, ..*of }, Some(turn)))
}

/// Whether the end of a tile stores eight elements at a time, and does nothing else with them but add a bias and apply a ReLU.
fn is_light(of: &Contraction, product: &Product, splits: u64) -> bool {
    let by_rows = product.out.rows == 1 && product.out.cols != 1;
    let (fast, slow, stride) = if by_rows {
        (product.m, product.out.cols, product.out.rows)
    } else {
        (product.n, product.out.rows, product.out.cols)
    };
    if splits > 1 {
        return fast.is_multiple_of(CHUNK);
    }
    let is_plain = match &of.epilogue {
        Epilogue::Forward { activation, pre, .. } => {
            pre.is_none() && matches!(activation, Activation::Identity | Activation::Relu)
        }
        Epilogue::Gradient { beta } => *beta == 0.0,
    };
    let batch = product.batch.iter().zip(product.out.batch).map(|(_, stride)| stride);
    let is_whole = batch.chain([slow, fast]).all(|number| number.is_multiple_of(CHUNK));
    is_plain && is_whole && stride == 1 && product.out.align_bytes >= 16
}

/// Blocks that share the sums of a tile, with which the last blocks end soonest.
fn splits(
    whole: &Product,
    taps: &Indices,
    is_weight: bool,
    is_dense: bool,
    limits: &Limits<'_>,
) -> Result<u64, Reason> {
    let multiprocessors = u64::from(limits.props.multiprocessors);
    let tiles = whole.m.div_ceil(TILE).saturating_mul(whole.n.div_ceil(TILE)).saturating_mul(whole.batch.count());
    let steps = if is_weight {
        whole.k.div_ceil(DEPTH)
    } else {
        taps.lead.div_ceil(DEPTH).saturating_mul(taps.count() / taps.lead)
    };
    let bytes = dense_bytes(whole);
    let most =
        (limits.workspace_bytes.min(2 * gemm::MOST_PART_BYTES) / bytes.max(1)).min(steps).min(4 * multiprocessors);
    let least = if is_dense { 1 } else { 2 };
    if !is_dense && most < least {
        let limit = limits.workspace_bytes;
        return Err(format!(
            "it needs {least} parts of {bytes} bytes, of at least a step each, of {limit} bytes of workspace"
        )
        .into());
    }
    let cost = |splits: u64| {
        let rounds = tiles.saturating_mul(splits).div_ceil(multiprocessors);
        let sums = rounds.saturating_mul(steps.div_ceil(splits)).saturating_mul(STEP_PICOSECONDS);
        let parts =
            if splits == 1 { 0 } else { (splits * 2 + 1).saturating_mul(bytes / 1024) * KILOBYTE_PICOSECONDS / 2 };
        sums.saturating_add(parts)
    };
    Ok((least..=most.max(least)).min_by_key(|&splits| cost(splits)).unwrap_or(least))
}

/// Tells `gemm_finish` where the rows of a part lie: as one index, of which the product has several.
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
