//! Few channels of x, as the first layer of an image network has them: what the kernels take, in which tiles, and the launches of a run.
//!
//! A block keeps the weights of 64 filters, or sums of their gradients, and goes from tile to tile down the rows of y. The rows of x under a tile lie in
//! shared memory once, each pixel with a power of two of channels, so that tensor cores read the windows from there as they overlap.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::depthwise::{extent, last_two, strides};
use super::product::merged;
use super::workspace;
use crate::backend::Located;
use crate::backend::cuda::calls::{self, calls};
use crate::backend::cuda::{self, Launch, c_activation, c_dtype};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::word;
use crate::ops::activation::Activation;
use crate::ops::conv::Pass;
use crate::ops::conv::geometry::{Contraction, Strided};
use crate::ops::gemm::cuda::launch::prepare_dbias;
use crate::ops::gemm::cuda::product::{Limits, bounded_blocks};
use crate::ops::gemm::geometry::Fused;
use crate::options::Math;

type Calls = calls::Calls<
    sys::bops_dtype,
    sys::bops_conv_few_channels_params,
    sys::bops_conv_few_channels_choice,
    sys::bops_conv_few_channels_operands,
>;

const FORWARD: Calls = calls!(bops_conv_few_channels_prepare, bops_conv_few_channels_launch);
const WEIGHT: Calls = calls!(bops_conv_few_channels_weight_prepare, bops_conv_few_channels_weight_launch);

const MOST_CHANNELS: u64 = sys::BOPS_CONV_FEW_CHANNELS_MOST as u64;
const FILTERS: u64 = sys::BOPS_CONV_FEW_CHANNELS_FILTERS as u64;
const POSITIONS: u64 = sys::BOPS_CONV_FEW_CHANNELS_POSITIONS as u64;
const GROUP: u64 = sys::BOPS_CONV_FEW_CHANNELS_GROUP as u64;
const CHUNKS: u64 = sys::BOPS_CONV_FEW_CHANNELS_CHUNKS as u64;
/// Bytes of one chunk of shared memory.
const CHUNK_BYTES: u64 = 16;
/// Coordinates are below it.
const REACH: i128 = 1 << 30;
/// Shared memory of a multiprocessor that each block takes beside what it asks for.
const RESERVED_SHARED_BYTES: u64 = 1024;

/// Blocks of a multiprocessor at most, forward and for the gradient of the weight: registers allow no more.
const BLOCKS: [u64; 2] = [3, 2];
/// Channels up to which it is preferred to other forms, which multiply more of what is not there.
const PREFERRED_CHANNELS: u64 = 4;
/// Columns of y from which on it is preferred: narrower tiles leave warps without work.
const PREFERRED_COLUMNS: u64 = 24;
/// Multiplications from which on it is preferred: blocks begin with the weights, which has to pay.
const PREFERRED_PRODUCTS: u64 = 1 << 26;

/// A product with its launches.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pass: Pass,
    dtype: DType,
    pub(super) params: sys::bops_conv_few_channels_params,
    pub(super) choice: sys::bops_conv_few_channels_choice,
    /// Adds up the parts of the gradient of the weight, whose type this is.
    last: Option<(sys::bops_gemm_dbias_params, DType)>,
    gathered: usize,
    plain: usize,
    bias: Option<usize>,
    out: usize,
    other: Option<usize>,
}

pub(super) fn candidate<'d>(of: &Contraction, limits: &Limits<'_>) -> Accepted<'d> {
    let planned = Planned::new(of, limits)?;
    Ok(Candidate {
        workspace: workspace(planned.part_bytes()),
        launches: 1 + u32::from(planned.last.is_some()),
        math: if planned.dtype == DType::F32 { Math::Tf32 } else { Math::Strict },
        ..Candidate::new(planned.choice, move |device| planned.build(device))
    })
}

impl Planned {
    pub(super) fn new(of: &Contraction, limits: &Limits<'_>) -> Result<Self, Reason> {
        let Contraction { n, gathered, plain, out, .. } = of;
        let (pass, dtype) = (of.pass, gathered.dtype);
        check(of, limits)?;
        // 1. Extents, strides and coordinates.
        let is_weight = pass == Pass::Weight;
        let (positions, taps) = of.positions_and_taps();
        // What has their extents, and what has those of the kernel.
        let (output, weight) = if is_weight { (plain, out) } else { (out, plain) };
        let (sample, channel) =
            if is_weight { (gathered.term_lead, gathered.row_lead) } else { (gathered.row_lead, gathered.term_lead) };
        let Fused { bias, activation, beside: other, beta } = of.epilogue.fused();
        let mut params = sys::bops_conv_few_channels_params {
            samples: extent(positions.lead, "samples")?,
            filters: extent(*n, "filters")?,
            channels: word(taps.lead),
            gathered: sys::bops_conv_strides {
                sample,
                channel,
                axes: last_two(gathered.axes.each_ref().map(|axis| axis.stride)),
            },
            out: strides(output),
            weight_filter: weight.column,
            weight_channel: weight.lead,
            weight_axes: last_two(weight.axes),
            activation: c_activation(activation),
            out_dtype: c_dtype(out.dtype)?,
            ..Default::default()
        };
        if let Some(bias) = bias {
            (params.bias_stride, params.bias_dtype) = (bias.column, c_dtype(bias.dtype)?);
        }
        if let Some(pre) = &other {
            (params.other, params.other_dtype) = (strides(pre), c_dtype(pre.dtype)?);
        }
        for (at, axis) in last_two(gathered.axes.each_ref()).into_iter().enumerate() {
            let (places, kernel) = (last_two(positions.axes)[at], last_two(taps.axes)[at]);
            let step = if is_weight { axis.of_term } else { axis.of_row };
            let reach = i128::from(axis.offset).abs()
                + i128::from(step) * (i128::from(places) + i128::from(POSITIONS))
                + i128::from(kernel);
            if reach >= REACH {
                return Err(format!("it counts coordinates in 30 bits, here they are as large as {reach}").into());
            }
            params.out_extents[at] = extent(places, "positions")?;
            params.gathered_extents[at] = extent(axis.extent, "positions")?;
            params.kernel[at] = extent(kernel, "kernel elements")?;
            params.stride[at] = extent(step.unsigned_abs(), "positions")?;
            params.first[at] = i32::try_from(axis.offset).unwrap_or(i32::MIN);
        }
        let mut planned = Self {
            pass,
            dtype,
            params,
            choice: sys::bops_conv_few_channels_choice::default(),
            last: None,
            gathered: gathered.position,
            plain: plain.position,
            bias: bias.map(|bias| bias.position),
            out: out.position,
            other: other.map(|pre| pre.position),
        };
        // 2. What one access to out and to plain has.
        let across = output.axes[2] != 0 && (output.column == 0 || output.axes[2] < output.column);
        let in_runs = |of: &Strided, elements: u64| {
            let [fast, slow] = if across { [of.axes[2], of.column] } else { [of.column, of.axes[2]] };
            let bytes = (elements * of.dtype.size_bytes()).min(16);
            let slow = [of.lead, of.axes[1], slow].iter().all(|stride| stride.is_multiple_of(elements));
            fast == 1 && slow && of.align_bytes >= bytes
        };
        let quads = in_runs(output, 4) && other.as_ref().is_none_or(|pre| in_runs(pre, 4));
        let each = 16 / dtype.size_bytes();
        let has_whole_runs = if across {
            params.out_extents[1].is_multiple_of(4)
        } else {
            n.is_multiple_of(each) && in_runs(output, each)
        };
        let is_light = quads
            && out.dtype == dtype
            && other.is_none()
            && matches!(activation, Activation::Identity | Activation::Relu)
            && has_whole_runs;
        planned.choice = sys::bops_conv_few_channels_choice {
            padded: if taps.lead <= 4 && (u64::from(params.stride[1]) * 4 * dtype.size_bytes()).is_multiple_of(16) {
                4
            } else {
                8
            },
            across: u32::from(across),
            quads: u32::from(quads && !is_weight),
            light: u32::from(is_light && !is_weight),
            eights: u32::from(is_weight && in_runs(output, 8)),
            ..Default::default()
        };
        // 3. Tiles, and how blocks share them.
        let shared_bytes = planned.choose_tiles(limits)?;
        planned.share_tiles(shared_bytes, limits)?;
        if is_weight {
            planned.lay_parts(of, beta, limits)?;
        }
        Ok(planned)
    }

    /// Tiles as wide as the rows of y, or as equal parts of these, of several rows where they are short. Returns the shared memory of a block.
    fn choose_tiles(&mut self, limits: &Limits<'_>) -> Result<u64, Reason> {
        let [rows, columns] = self.params.out_extents.map(u64::from);
        let limit = u64::from(limits.props.shared_bytes);
        let mut least = u64::MAX;
        let mut most = POSITIONS;
        while most >= GROUP {
            let wide = columns.div_ceil(columns.div_ceil(most)).next_multiple_of(GROUP);
            for high in [(POSITIONS / wide).min(rows), 1] {
                (self.choice.rows, self.choice.columns) = (word(high), word(wide));
                let bytes = self.shared_bytes();
                if bytes <= limit {
                    return Ok(bytes);
                }
                least = least.min(bytes);
            }
            most /= 2;
        }
        let [height, width] = self.params.kernel;
        Err(format!(
            "the windows and weights of a kernel of {height} by {width} take {least} bytes of shared memory at least, a block has {limit}"
        )
        .into())
    }

    /// Chunks under a row of the kernel, and under all.
    fn chunks(&self) -> [u64; 2] {
        let [height, width] = self.params.kernel.map(u64::from);
        let of_row = (width * self.pixel_bytes()).div_ceil(CHUNK_BYTES);
        [of_row, of_row.saturating_mul(height)]
    }

    fn pixel_bytes(&self) -> u64 {
        u64::from(self.choice.padded) * self.dtype.size_bytes()
    }

    /// Shared memory of a block, as `patch_shape`, `forward_places` and `weight_places` of `csrc/conv` count it.
    fn shared_bytes(&self) -> u64 {
        let Self { params, choice, .. } = self;
        let [of_row, all] = self.chunks();
        let pitch =
            (u64::from(choice.columns) - 1) * u64::from(params.stride[1]) * self.pixel_bytes() + of_row * CHUNK_BYTES;
        let down = u64::from(choice.rows) * u64::from(params.stride[0]);
        let rows = down - u64::from(params.stride[0]) + u64::from(params.kernel[0]);
        let ring = (rows + rows.min(down)).saturating_mul(pitch);
        let lines = |across: u32| if across == 1 { [FILTERS, POSITIONS] } else { [POSITIONS, FILTERS] };
        let [slow, fast] = lines(choice.across);
        let beside = if self.pass == Pass::Weight {
            2 * slow * (fast / 8 + 1) * CHUNK_BYTES
        } else {
            let weights = (all.next_multiple_of(2) + 1).saturating_mul(FILTERS * CHUNK_BYTES);
            let stage = if choice.light == 1 { 0 } else { slow * (fast + 4) * 4 };
            weights.saturating_add(4 * FILTERS + stage)
        };
        CHUNK_BYTES.saturating_add(ring).saturating_add(beside)
    }

    /// As many blocks as run at once, each with as many tiles as the others.
    fn share_tiles(&mut self, shared_bytes: u64, limits: &Limits<'_>) -> Result<(), Reason> {
        let Self { params, choice, .. } = self;
        let is_weight = self.pass == Pass::Weight;
        let down = u64::from(params.out_extents[0].div_ceil(choice.rows));
        let across = u64::from(params.out_extents[1].div_ceil(choice.columns));
        let tiles = down * across;
        let tiles = u64::from(extent(tiles.saturating_mul(params.samples.into()), "tiles")?);
        let of_multiprocessor = u64::from(limits.props.shared_bytes) / (shared_bytes + RESERVED_SHARED_BYTES);
        let places =
            of_multiprocessor.clamp(1, BLOCKS[usize::from(is_weight)]) * u64::from(limits.props.multiprocessors);
        let alike = u64::from(params.filters).div_ceil(FILTERS) * self.slices();
        let parts = (places / alike).clamp(1, tiles);
        self.choice.parts = word(parts);
        bounded_blocks([parts, alike])
    }

    /// Blocks that have sums of a part of the chunks.
    fn slices(&self) -> u64 {
        if self.pass == Pass::Weight { self.chunks()[1].div_ceil(CHUNKS) } else { 1 }
    }

    /// The parts of the gradient of the weight, each of which lies as the gradient does, and what adds them up.
    fn lay_parts(&mut self, of: &Contraction, beta: f64, limits: &Limits<'_>) -> Result<(), Reason> {
        let Contraction { n, rows, out, .. } = of;
        let extents: Vec<u64> = [*n].into_iter().chain(rows.digits()).collect();
        let lies: Vec<u64> = [out.column].into_iter().chain(out.digits(rows)).collect();
        let Some(stride) = merged(&extents, &lies) else { return Err("the gradient has to be dense".into()) };
        let count = n.saturating_mul(rows.count());
        let most = limits.workspace_bytes / count.saturating_mul(4);
        if most == 0 {
            return Err(format!("it needs {} bytes of workspace for each of its parts", count.saturating_mul(4)).into());
        }
        self.choice.parts = word(u64::from(self.choice.parts).min(most));
        let [height, width] = self.params.kernel.map(u64::from);
        let params = &mut self.params;
        params.weight_filter = rows.count();
        (params.weight_channel, params.weight_axes) =
            if rows.lead_last { (1, [width * rows.lead, rows.lead]) } else { (height * width, [width, 1]) };
        let sums = sys::bops_gemm_dbias_params { rows: self.choice.parts.into(), n: count, stride, beta };
        self.last = Some((sums, out.dtype));
        Ok(())
    }

    fn part_bytes(&self) -> u64 {
        self.last.map_or(0, |(last, _)| 4 * last.rows * last.n)
    }

    fn build(self, device: &crate::backend::Device) -> Result<crate::kernel::Built, crate::error::BuildError> {
        let Self { dtype, params, choice, last, gathered, plain, bias, out, other, .. } = self;
        let dtype = c_dtype(dtype)?;
        let operands = move |located: &Located<'_>, out: *mut c_void| {
            let optional = |position: Option<usize>| position.map_or(std::ptr::null_mut(), |at| located.pointer(at));
            sys::bops_conv_few_channels_operands {
                gathered: located.pointer(gathered),
                plain: located.pointer(plain),
                bias: optional(bias),
                out,
                other: optional(other),
            }
        };
        let Some((sums, of_gradient)) = last else {
            let operands = move |located: &Located<'_>| operands(located, located.pointer(out));
            return FORWARD.build(device, true, (dtype, params, choice, ()), operands);
        };
        let device = cuda::Device::of(device)?;
        let sum_up = WEIGHT.prepare(device, dtype, params, choice, ())?;
        let add_up = prepare_dbias(device, sums, of_gradient)?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let parts = located.workspace_pointer();
            let status = sum_up(&operands(located, std::ptr::null_mut()), parts, stream);
            if status == 0 { add_up(parts, located.pointer(out), stream) } else { status }
        };
        Ok(Launch::new(WEIGHT.name, start).into())
    }
}

/// # Errors
/// What the kernels do not do, and what is left to other forms.
fn check(of: &Contraction, limits: &Limits<'_>) -> Result<(), Reason> {
    let Contraction { pass, groups, gathered, plain, .. } = of;
    if *pass == Pass::Data {
        return Err("it has no gradient of the data".into());
    }
    if *groups != 1 {
        return Err(format!("it is for one group, got {groups}").into());
    }
    if gathered.dtype != plain.dtype {
        let (gathered, plain) = (gathered.dtype, plain.dtype);
        return Err(format!("it multiplies factors of one type, here they are {gathered} and {plain}").into());
    }
    let (positions, taps) = of.positions_and_taps();
    if taps.lead > MOST_CHANNELS {
        return Err(format!("it is for at most {MOST_CHANNELS} channels of x, got {}", taps.lead).into());
    }
    limits.check_tensor_cores(gathered.dtype)?;
    if *pass == Pass::Weight && gathered.dtype == DType::F32 {
        return Err("it has gradients of the weight of f16 and bf16 alone".into());
    }
    if of.is_empty() || of.terms.count() == 0 {
        return Err("there is nothing to add up".into());
    }
    of.check_is_image()?;
    for (axis, &kernel) in gathered.axes.iter().zip(&taps.axes) {
        let dilation = if *pass == Pass::Weight { axis.of_row } else { axis.of_term };
        if kernel > 1 && dilation != 1 {
            return Err(format!("it has no dilation, here it is {dilation}").into());
        }
    }
    if limits.is_pinned {
        return Ok(());
    }
    let (columns, products) = (positions.axes[2], of.products());
    let is_point = taps.count() == taps.lead;
    if taps.lead > PREFERRED_CHANNELS || columns < PREFERRED_COLUMNS || products < PREFERRED_PRODUCTS || is_point {
        return Err(format!(
            "it is for kernels of more than one element, up to {PREFERRED_CHANNELS} channels, rows of {PREFERRED_COLUMNS} and {PREFERRED_PRODUCTS} products or more; here are {} channels, rows of {columns} and {products} products",
            taps.lead
        )
        .into());
    }
    Ok(())
}
