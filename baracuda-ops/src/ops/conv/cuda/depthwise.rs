//! Groups of one channel of x: what the depthwise kernels take, how threads share it, and the launches of a run.
//!
//! Windows slide down the rows, and threads have several columns each: both extents of the kernel are one of [`WALKED`], without strides and dilation.
//! Threads have four channels where those lie one after the other, else one. The rows of all samples are one sequence, of which each has as many.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::product::merged;
use super::workspace;
use crate::backend::cuda::{self, Launch, c_activation, c_dtype};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, BuildError, Built, Candidate, Exec};
use crate::narrow::{signed, word};
use crate::ops::conv::Pass;
use crate::ops::conv::depthwise::{self, lanes};
use crate::ops::conv::geometry::{Axis, Contraction, Strided};
use crate::ops::gemm::cuda::launch::prepare_dbias;
use crate::ops::gemm::cuda::product::{Limits, bounded_blocks};
use crate::ops::gemm::geometry::Fused;

/// Extents of the kernels.
const WALKED: [u32; 3] = [3, 5, 7];
/// The greatest extent of a kernel of which a thread has the gradients of four channels.
const MOST_OF_FOUR: u32 = 3;
/// The greatest extent of a kernel whose gradient one thread has the sums of.
const MOST_OF_WEIGHT: u32 = 5;
/// Blocks of each multiprocessor that rows are shared out among, of threads of one channel and of four: forward and of the data, and of the weight.
const BLOCKS: [[u64; 2]; 2] = [[16, 4], [6, 3]];
/// The least rows of a thread: its windows see two more at least.
const LEAST_ROWS: u64 = 7;
/// Coordinates are below it.
const REACH: i128 = 1 << 30;
/// Spatial extents.
const AXES: usize = sys::BOPS_CONV_DEPTHWISE_AXES as usize;
/// Columns, or channels, of one access.
const FOUR: u64 = 4;

/// A product with its launches.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pass: Pass,
    dtype: DType,
    pub(super) params: sys::bops_conv_depthwise_params,
    pub(super) choice: sys::bops_conv_depthwise_choice,
    /// Adds up the sums of the gradient of the weight, whose type this is.
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
        // What has their extents.
        let output = if pass == Pass::Weight { plain } else { out };
        let channels = groups * n;
        let axes = last_two([0, 1, 2]).map(|axis| &gathered.axes[axis]);
        let Fused { bias, activation, beside: other, beta } = of.epilogue.fused();
        let mut params = sys::bops_conv_depthwise_params {
            samples: extent(positions.lead, "samples")?,
            channels: extent(channels, "channels")?,
            repeats: if pass == Pass::Data { 1 } else { word(*n) },
            gathered: sys::bops_conv_strides {
                sample: if pass == Pass::Weight { gathered.term_lead } else { gathered.row_lead },
                channel: gathered.group,
                axes: axes.map(|axis| axis.stride),
            },
            out: strides(output),
            weight_channel: if pass == Pass::Data { plain.group } else { plain.column },
            weight_axes: last_two(plain.axes).map(signed),
            activation: c_activation(activation),
            beta,
            out_dtype: c_dtype(out.dtype)?,
            ..Default::default()
        };
        if let Some(bias) = bias {
            (params.bias_stride, params.bias_dtype) = (bias.column, c_dtype(bias.dtype)?);
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
                // The last term comes first.
                let last = i64::from(width) - 1;
                first -= i128::from(last);
                params.weight_first += last * params.weight_axes[at];
                params.weight_axes[at] = -params.weight_axes[at];
            }
            let reach = first.abs() + i128::from(positions) + i128::from(width);
            if reach >= REACH {
                return Err(format!("it counts coordinates in 30 bits, here they are as large as {reach}").into());
            }
            params.first[at] = i32::try_from(first).unwrap_or(i32::MAX);
        }
        let mut planned = Self {
            pass,
            dtype,
            params,
            choice: sys::bops_conv_depthwise_choice::default(),
            last: None,
            gathered: gathered.position,
            plain: plain.position,
            bias: bias.map(|bias| bias.position),
            out: out.position,
            other: other.map(|pre| pre.position),
        };
        // 2. How threads share the sums.
        let params = &planned.params;
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
        // Columns of a strip that one access may have.
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
        planned.choice = sys::bops_conv_depthwise_choice {
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
        planned.share_rows(out, limits)?;
        Ok(planned)
    }

    /// The rows of a thread, with which blocks are about as many as the device has places for, and of the gradient of the weight the sums that they
    /// leave.
    fn share_rows(&mut self, dweight: &Strided, limits: &Limits<'_>) -> Result<(), Reason> {
        let Self { params, choice, .. } = self;
        let [height, width] = params.out_extents.map(u64::from);
        let (all, across) = (u64::from(params.samples) * height, width.div_ceil(choice.columns.into()));
        extent(all, "rows")?;
        let tiles = u64::from(params.channels.div_ceil(choice.channels * choice.lanes));
        let workers = u64::from(sys::BOPS_CONV_DEPTHWISE_THREADS / choice.lanes);
        let is_weight = self.pass == Pass::Weight;
        let places = BLOCKS[usize::from(is_weight)][usize::from(choice.channels > 1)];
        let mut most = (places * u64::from(limits.props.multiprocessors) / tiles).max(1);
        let kernel = u64::from(choice.kernel);
        let n = u64::from(params.channels) * kernel * kernel;
        if is_weight {
            most = most.min(limits.workspace_bytes / (4 * n));
            if most == 0 {
                return Err(format!("it needs {} bytes of workspace for each of its parts", 4 * n).into());
            }
        }
        // A chunk of rows has as many threads as there are strips across.
        let chunks = (most * workers / across).max(1);
        let rows = all.div_ceil(chunks).max(LEAST_ROWS).min(all);
        let strips = all.div_ceil(rows) * across;
        let groups = strips.div_ceil(workers);
        (choice.rows, _) = (word(rows), extent(strips, "strips of each channel")?);
        bounded_blocks([groups, tiles])?;
        if is_weight {
            if groups * n * 4 > limits.workspace_bytes {
                return Err(format!("it needs {} bytes of workspace for its {groups} parts", 4 * n * groups).into());
            }
            let [.., rows, cols] = dweight.axes;
            let stride = merged(&[params.channels.into(), kernel, kernel], &[dweight.column, rows, cols]);
            let Some(stride) = stride else { return Err("the gradient has to be dense".into()) };
            self.last =
                Some((sys::bops_gemm_dbias_params { rows: groups, n, stride, beta: params.beta }, dweight.dtype));
        }
        Ok(())
    }

    fn part_bytes(&self) -> u64 {
        self.last.map_or(0, |(last, _)| 4 * last.rows * last.n)
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let Self { pass, dtype, params, choice, last, gathered, plain, bias, out, other } = self;
        let dtype = c_dtype(dtype)?;
        let numbers = [dtype, choice.kernel, choice.channels, choice.light];
        if pass == Pass::Weight {
            device.prepare("bops_conv_depthwise_weight", numbers, || {
                // SAFETY: the structs live across the call and hold what the choice allows.
                unsafe { sys::bops_conv_depthwise_weight_prepare(&params, &choice, dtype) }
            })?;
        } else {
            device.prepare("bops_conv_depthwise", numbers, || {
                // SAFETY: as above.
                unsafe { sys::bops_conv_depthwise_prepare(&params, &choice, dtype) }
            })?;
        }
        let add_up = last.map(|(params, dtype)| prepare_dbias(device, params, dtype)).transpose()?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let address = |position: usize| located.pointer(position);
            let optional = |position: Option<usize>| position.map_or(std::ptr::null_mut(), address);
            let parts = located.workspace_pointer();
            let operands = sys::bops_conv_depthwise_operands {
                gathered: address(gathered),
                plain: address(plain),
                bias: optional(bias),
                out: if add_up.is_some() { parts } else { address(out) },
                other: optional(other),
            };
            let Some(add_up) = &add_up else {
                // SAFETY: the generic check proved every operand's span and alignment.
                return unsafe { sys::bops_conv_depthwise_launch(&params, &choice, dtype, &operands, stream) };
            };
            // SAFETY: as above, and that the workspace holds the parts.
            let status = unsafe { sys::bops_conv_depthwise_weight_launch(&params, &choice, dtype, &operands, stream) };
            if status == 0 { add_up(parts, address(out), stream) } else { status }
        };
        Ok(Built(Exec::Cuda(Launch::new("bops_conv_depthwise", start))))
    }
}

/// The extent of the kernel, if this form has one for it.
fn serves(of: &Contraction, limits: &Limits<'_>) -> Result<u32, Reason> {
    let Contraction { pass, terms, gathered, plain, .. } = of;
    if gathered.dtype != plain.dtype {
        let (gathered, plain) = (gathered.dtype, plain.dtype);
        return Err(format!("it multiplies factors of one type, here they are {gathered} and {plain}").into());
    }
    if gathered.dtype == DType::F64 {
        return Err("it adds up in f32, not in f64".into());
    }
    if of.is_empty() || terms.count() == 0 {
        return Err("there is nothing to add up".into());
    }
    let filters = depthwise::filters(of)?;
    if !limits.is_pinned {
        depthwise::check_filters(of, filters)?;
    }
    of.check_is_image()?;
    let (_, taps) = of.positions_and_taps();
    let [height, width] = last_two(taps.axes);
    let known = WALKED.into_iter().find(|&known| [height, width] == [u64::from(known); 2]);
    let slides = |axis: &Axis| [axis.of_row, axis.of_term.abs(), signed(axis.divisor)] == [1; 3];
    let Some(known) = known.filter(|_| gathered.axes[1..].iter().all(slides) && (*pass != Pass::Data || filters == 1))
    else {
        let rule = "without stride and dilation, and data gradients of as many filters as channels";
        return Err(format!("it serves square kernels of {WALKED:?} {rule}, here of {height} by {width}").into());
    };
    if *pass == Pass::Weight && known > MOST_OF_WEIGHT {
        let most = MOST_OF_WEIGHT;
        return Err(format!("a thread has the sums of {most} by {most} of a kernel, here of {known}").into());
    }
    Ok(known)
}

/// Of an operand by columns.
pub(super) fn strides(of: &Strided) -> sys::bops_conv_strides {
    sys::bops_conv_strides { sample: of.lead, channel: of.column, axes: last_two(of.axes) }
}

pub(super) fn last_two<T: Copy>([_, rows, columns]: [T; 3]) -> [T; AXES] {
    [rows, columns]
}

/// What kernels count in 32 bits.
pub(super) fn extent(number: u64, what: &str) -> Result<u32, Reason> {
    let fits = u32::try_from(number).ok().filter(|&number| i128::from(number) < REACH);
    fits.ok_or_else(|| format!("it counts {what} in 30 bits, here there are {number}").into())
}
