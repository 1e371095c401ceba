//! Depthwise convolutions: what the kernels serve, how threads share the work, and the launches of a run.
//!
//! A thread has a strip: some columns and rows of one channel, or of four contiguous channels. Its windows slide down the rows, which are counted through
//! all samples. Kernels are square with an extent of [`WALKED`], without stride and dilation.

use baracuda_ops_sys as sys;

use super::product::merged;
use super::{AddUp, workspace};
use crate::backend::cuda::{c_activation, c_dtype};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, BuildError, Built, Candidate};
use crate::narrow::{signed, word};
use crate::ops::calls::{self, calls};
use crate::ops::conv::depthwise::{self, lanes};
use crate::ops::conv::geometry::{Contraction, Strided};
use crate::ops::conv::{Pass, SpatialAxis};
use crate::ops::gemm::cuda::product::{Limits, bounded_blocks};
use crate::ops::gemm::geometry::Epilogue;

type Calls = calls::Calls<
    sys::bops_dtype,
    sys::bops_conv_depthwise_params,
    sys::bops_conv_depthwise_choice,
    sys::bops_conv_depthwise_operands,
>;

/// Forward and the gradient of the data.
const FORWARD: Calls = calls!(bops_conv_depthwise);
/// The gradient of the weight.
const WEIGHT: Calls = calls!(bops_conv_depthwise_weight);

/// Extents of the kernels that there is code for.
const WALKED: [u32; 3] = [3, 5, 7];
/// The greatest extent of a kernel whose gradient a thread computes for four channels: registers hold no more sums.
const MOST_OF_FOUR: u32 = 3;
/// The greatest extent of a kernel whose gradient a thread computes for one channel.
const MOST_OF_WEIGHT: u32 = 5;
/// Blocks of an SM among which rows are shared out.
struct Blocks {
    /// If a thread has one channel.
    of_one: u64,
    /// If a thread has four channels.
    of_four: u64,
}
/// Blocks of forward and of the gradient of the data, chosen on an H200.
const BLOCKS_OUTPUT: Blocks = Blocks { of_one: 16, of_four: 4 };
/// Blocks of the gradient of the weight, chosen on an H200.
const BLOCKS_WEIGHT: Blocks = Blocks { of_one: 6, of_four: 3 };
/// The fewest rows of a strip. Its windows see `kernel - 1` rows more, which the neighbouring strip loads as well.
const LEAST_ROWS: u64 = 7;
/// The most terms that a thread adds up in one chain for the gradient of the weight (docs/numerics.md).
const MOST_TERMS: u64 = 256;
/// Coordinates are below this, so that sums of two fit into 32 bits.
const REACH: i128 = 1 << 30;
/// Number of spatial axes.
const AXES: usize = sys::BOPS_CONV_DEPTHWISE_AXES as usize;
/// Columns, or channels, of one access of a thread.
const FOUR: u64 = 4;

/// A product with its launches.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    of: Contraction,
    pub(super) params: sys::bops_conv_depthwise_params,
    pub(super) choice: sys::bops_conv_depthwise_choice,
    /// Only in the gradient of the weight.
    last: Option<AddUp>,
}

pub(super) fn candidate<'d>(of: &Contraction, limits: &Limits<'_>) -> Accepted<'d> {
    let planned = Planned::new(of, limits)?;
    Ok(Candidate {
        workspace: workspace(planned.last.map_or(0, |add_up| add_up.part_bytes())),
        launches: 1 + u32::from(planned.last.is_some()),
        ..Candidate::new(planned.choice, move |device| planned.build(device))
    })
}

impl Planned {
    pub(super) fn new(of: &Contraction, limits: &Limits<'_>) -> Result<Self, Reason> {
        let Contraction { groups, n, gathered, plain, out, .. } = of;
        let pass = of.pass;
        let dtype = gathered.dtype;
        let width = serves(of, limits)?;
        // 1. Extents, strides and coordinates.
        let (positions, _) = of.positions_and_taps();
        // The operand with the extents of the positions.
        let output = if pass == Pass::Weight { plain } else { out };
        let channels = groups * n;
        let axes = last_two([0, 1, 2]).map(|axis| &gathered.axes[axis]);
        let Epilogue { bias, activation, beside: other, beta, .. } = of.epilogue;
        let mut params = sys::bops_conv_depthwise_params {
            samples: extent(positions.lead, "samples")?,
            channels: extent(channels, "channels")?,
            repeats: if pass == Pass::Data { 1 } else { word(*n) },
            gathered: sys::bops_conv_strides { channel: gathered.group, ..strides(&of.gathered_by_positions()) },
            out: strides(output),
            weight_channel: if pass == Pass::Data { plain.group } else { plain.column },
            weight_axes: last_two(plain.axes).map(signed),
            activation: c_activation(activation),
            beta,
            out_dtype: c_dtype(out.dtype)?,
            ..Default::default()
        };
        if let Some(bias) = bias {
            (params.bias_stride, params.bias_dtype) = (bias.stride, c_dtype(bias.dtype)?);
        }
        if let Some(pre) = &other {
            (params.other, params.other_dtype) = (strides(pre), c_dtype(pre.dtype)?);
        }
        for (at, axis) in axes.into_iter().enumerate() {
            let positions = last_two(positions.axes)[at];
            params.out_extents[at] = extent(positions, "positions")?;
            params.gathered_extents[at] = extent(axis.extent, "positions")?;
            let mut first = i128::from(axis.offset);
            if pass == Pass::Data {
                // The last kernel element has the lowest coordinate.
                let last = i64::from(width) - 1;
                first -= i128::from(last);
                params.weight_first += last * params.weight_axes[at];
                params.weight_axes[at] = -params.weight_axes[at];
            }
            let reach = first.abs() + i128::from(positions) + i128::from(width);
            Reason::unless(reach < REACH, || format!("it counts coordinates in 30 bits, they reach {reach}"))?;
            params.first[at] = i32::try_from(first).unwrap_or(i32::MAX);
        }
        // 2. How threads share the output.
        let align = |of: &Strided| of.align_bytes >= FOUR * of.dtype.size_bytes();
        let is_aligned =
            gathered.align_bytes >= FOUR * dtype.size_bytes() && align(output) && other.as_ref().is_none_or(align);
        let source = &params.gathered;
        let outputs: Vec<_> = [Some(params.out), other.as_ref().map(strides)].into_iter().flatten().collect();
        let in_channels = |of: &sys::bops_conv_strides| {
            of.channel == 1 && [of.sample, of.axes[0], of.axes[1]].iter().all(|stride| stride.is_multiple_of(FOUR))
        };
        let four = is_aligned
            && (width <= MOST_OF_FOUR || pass != Pass::Weight)
            && params.repeats == 1
            && channels.is_multiple_of(FOUR)
            && in_channels(source)
            && outputs.iter().all(in_channels);
        let each = if four { FOUR } else { 1 };
        let has_near_channels = source.channel < source.axes[1].max(1) || source.axes[1] == 0 && source.channel == 1;
        let most_lanes = if four || has_near_channels { 32 } else { 1 };
        let columns = match (four, width > 5) {
            (true, true) => 2,
            (false, false) if dtype != DType::F32 => 8,
            _ => 4,
        };
        // The columns of a strip that are loaded or stored at once.
        let run = |extent: u32, align_bytes: u64, all: &[sys::bops_conv_strides]| {
            let fits = |&run: &u64| {
                let bytes = (run * dtype.size_bytes()).min(16);
                let is_whole = |of: &sys::bops_conv_strides| {
                    of.axes[1] == 1
                        && [of.sample, of.axes[0], of.channel].iter().all(|stride| stride.is_multiple_of(run))
                };
                run <= u64::from(columns)
                    && is_aligned
                    && align_bytes >= bytes
                    && u64::from(extent).is_multiple_of(run)
                    && all.iter().all(is_whole)
            };
            word([2 * FOUR, FOUR].into_iter().find(fits).unwrap_or(1))
        };
        let has_margin = params.first[1] == -i32::try_from(width / 2).unwrap_or(i32::MAX);
        let out_run = run(params.out_extents[1], output.align_bytes, &outputs);
        let is_light = pass != Pass::Weight
            && params.beta == 0.0
            && other.is_none()
            && [sys::BOPS_IDENTITY, sys::BOPS_RELU].contains(&params.activation)
            && out.dtype == dtype
            && (four || out_run > 1);
        let choice = sys::bops_conv_depthwise_choice {
            kernel: width,
            channels: word(each),
            lanes: word(lanes(channels / each, most_lanes)),
            rows: 0,
            columns,
            gathered_run: if has_margin {
                run(params.gathered_extents[1], gathered.align_bytes, &[*source])
            } else {
                1
            },
            out_run,
            light: u32::from(is_light),
        };
        let mut planned = Self { of: *of, params, choice, last: None };
        planned.share_rows(limits)?;
        Ok(planned)
    }

    /// Chooses the rows of a strip so that there are about as many blocks as run at once, and for the gradient of the weight what adds up their sums.
    fn share_rows(&mut self, limits: &Limits<'_>) -> Result<(), Reason> {
        let Self { of, params, choice, .. } = self;
        let [height, width] = params.out_extents.map(u64::from);
        let (all, across) = (u64::from(params.samples) * height, width.div_ceil(choice.columns.into()));
        extent(all, "rows")?;
        let tiles = u64::from(params.channels.div_ceil(choice.channels * choice.lanes));
        let workers = u64::from(sys::BOPS_CONV_DEPTHWISE_THREADS / choice.lanes);
        let is_weight = of.pass == Pass::Weight;
        let blocks = if is_weight { BLOCKS_WEIGHT } else { BLOCKS_OUTPUT };
        let places = if choice.channels > 1 { blocks.of_four } else { blocks.of_one };
        let mut most = (places * u64::from(limits.props.multiprocessors) / tiles).max(1);
        let kernel = u64::from(choice.kernel);
        let n = u64::from(params.channels) * kernel * kernel;
        if is_weight {
            most = most.min(limits.workspace_bytes / (4 * n));
            Reason::unless(most != 0, || format!("it needs {} bytes of workspace for each of its parts", 4 * n))?;
        }
        // A chunk of rows has one strip for each of its parts across.
        let chunks = (most * workers / across).max(1);
        let most_rows = if is_weight { MOST_TERMS / u64::from(choice.columns) } else { all };
        let rows = all.div_ceil(chunks).max(LEAST_ROWS).min(most_rows).min(all);
        let strips = all.div_ceil(rows) * across;
        let groups = strips.div_ceil(workers);
        (choice.rows, _) = (word(rows), extent(strips, "strips of each channel")?);
        bounded_blocks([groups, tiles])?;
        if is_weight {
            Reason::unless(groups * n * 4 <= limits.workspace_bytes, || {
                format!("it needs {} bytes of workspace for its {groups} parts", 4 * n * groups)
            })?;
            let dweight = &of.out;
            let [.., rows, cols] = dweight.axes;
            let stride = merged(&[params.channels.into(), kernel, kernel], &[dweight.column, rows, cols]);
            let Some(stride) = stride else { return Err("the gradient has to be dense".into()) };
            let sums = sys::bops_gemm_dbias_params { rows: groups, n, stride, beta: params.beta };
            self.last = Some(AddUp { sums, dtype: dweight.dtype, dweight: dweight.position });
        }
        Ok(())
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let Self { of: Contraction { gathered, plain, out, epilogue, .. }, params, choice, last } = self;
        let dtype = c_dtype(gathered.dtype)?;
        let is_weight = last.is_some();
        let operands = move |located: &Located<'_>| sys::bops_conv_depthwise_operands {
            gathered: located.pointer(gathered.position),
            plain: located.pointer(plain.position),
            bias: located.optional(epilogue.bias.map(|bias| bias.position)),
            out: if is_weight { located.workspace_pointer() } else { located.pointer(out.position) },
            other: located.optional(epilogue.beside.map(|pre| pre.position)),
        };
        match last {
            Some(add_up) => add_up.build(device, &WEIGHT, (dtype, params, choice), operands),
            None => FORWARD.build(device, true, (dtype, params, choice, ()), operands),
        }
    }
}

/// The extent of the kernel.
///
/// # Errors
/// What the kernels do not serve and, unless the form is asked for by name, what other forms serve better.
fn serves(of: &Contraction, limits: &Limits<'_>) -> Result<u32, Reason> {
    let Contraction { pass, shape, terms, .. } = of;
    Reason::unless(of.factor_type()? != DType::F64, || "it adds up in f32, not in f64")?;
    Reason::unless(!of.is_empty() && terms.count() != 0, || "there is nothing to add up")?;
    let filters = depthwise::filters(of)?;
    if !limits.is_pinned {
        depthwise::check_filters(of, filters)?;
    }
    of.check_is_image()?;
    let (_, taps) = of.positions_and_taps();
    let [height, width] = last_two(taps.axes);
    let known = WALKED.into_iter().find(|&known| [height, width] == [u64::from(known); 2]);
    let slides = |axis: &SpatialAxis| [axis.stride, axis.dilation] == [1; 2];
    let Some(known) = known.filter(|_| shape.axes[1..].iter().all(slides) && (*pass != Pass::Data || filters == 1))
    else {
        let rule = "without stride and dilation, and gradients of the data of one filter for each channel";
        return Err(format!("it serves square kernels of {WALKED:?} {rule}; the kernel is {height} by {width}").into());
    };
    Reason::unless(*pass != Pass::Weight || known <= MOST_OF_WEIGHT, || {
        format!("it serves gradients of kernels of up to {MOST_OF_WEIGHT} by {MOST_OF_WEIGHT}, got {known} by {known}")
    })?;
    Ok(known)
}

/// The strides of an operand whose columns are channels and whose lead is the sample.
pub(super) fn strides(of: &Strided) -> sys::bops_conv_strides {
    sys::bops_conv_strides { sample: of.lead, channel: of.column, axes: last_two(of.axes) }
}

pub(super) fn last_two<T: Copy>([_, rows, columns]: [T; 3]) -> [T; AXES] {
    [rows, columns]
}

/// An extent for the kernels.
///
/// # Errors
/// Extents of 2^30 or more.
pub(super) fn extent(number: u64, what: &str) -> Result<u32, Reason> {
    let fits = u32::try_from(number).ok().filter(|&number| i128::from(number) < REACH);
    fits.ok_or_else(|| format!("it counts {what} in 30 bits, got {number}").into())
}
