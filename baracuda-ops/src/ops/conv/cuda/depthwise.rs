//! Groups of one channel of x: what the depthwise kernels take, how threads share it, and the launches of a run.
//!
//! Windows slide down the rows, and threads have several columns each: both extents of the kernel are one of [`WALKED`], without strides and dilation.
//! Threads have four channels where those lie one after the other, else one.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::product::merged;
use super::{Products, limits, workspace};
use crate::backend::cuda::{self, Launch, c_activation, c_dtype};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{signed, word};
use crate::ops::conv::geometry::{Axis, Contraction, Epilogue, Strided};
use crate::ops::gemm::cuda::product::{Limits, bounded_blocks};
use crate::options::PlanOptions;
use crate::plan::{Ask, BuildError, Built, Candidate, Descriptor, Exec, Kernel};

/// The form for each of the three products.
pub(in crate::ops::conv) struct Depthwise;

/// Extents of the kernels.
const WALKED: [u32; 3] = [3, 5, 7];
/// The greatest extent of a kernel of which a thread has the gradients of four channels.
const MOST_OF_FOUR: u32 = 3;
/// The greatest extent of a kernel whose gradient one thread has the sums of.
const MOST_KERNEL: u64 = 5;
/// Rows that a thread walks down, and where it adds them all up for four channels.
const ROWS: [u32; 2] = [28, 56];
/// Blocks of each multiprocessor that share the sums of the gradient of the weight, of one channel and of four for each thread.
const BLOCKS: [u64; 2] = [16, 4];
/// Filters of a group that read its channel each for itself, unless the form is asked for.
const MOST_FILTERS: u64 = 4;
/// Coordinates are below it.
const REACH: i128 = 1 << 30;
/// Spatial extents.
const AXES: usize = sys::BOPS_CONV_DEPTHWISE_AXES as usize;
/// Columns, or channels, of one access.
const FOUR: u64 = 4;

/// Which product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    Data,
    Weight,
}

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

impl<D: Descriptor + Products> Kernel<D> for Depthwise {
    fn name(&self) -> &'static str {
        D::DEPTHWISE
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn accept<'d>(
        &self,
        descriptor: &'d D,
        options: &PlanOptions,
        props: &DeviceProps,
        ask: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        let planned = Planned::new(D::PASS, &descriptor.product(), &limits(options, props, ask)?)?;
        Ok(Candidate {
            workspace: workspace(planned.part_bytes()),
            launches: 1 + u32::from(planned.last.is_some()),
            ..Candidate::new(planned.choice, move |device| planned.build(device))
        })
    }
}

impl Planned {
    pub(super) fn new(pass: Pass, of: &Contraction, limits: &Limits<'_>) -> Result<Self, Reason> {
        let Contraction { groups, rows, terms, n, gathered, plain, out, .. } = of;
        let dtype = gathered.dtype;
        serves(pass, of, limits)?;
        // 1. Extents, strides and coordinates.
        let (positions, kernel) = if pass == Pass::Weight { (terms, rows) } else { (rows, terms) };
        let [filters, of_data] = if pass == Pass::Data { [terms.lead, 1] } else { [*n, 0] };
        let channels = groups * n;
        let strides =
            |of: &Strided| sys::bops_conv_strides { sample: of.lead, channel: of.column, axes: last_two(of.axes) };
        let [row, column] = last_two([0, 1, 2]).map(|axis| Line::new(pass, &gathered.axes[axis]));
        let lines = [row, column];
        let kernels = last_two(kernel.axes);
        let mut params = sys::bops_conv_depthwise_params {
            samples: extent(positions.lead, "samples")?,
            channels: extent(channels, "channels")?,
            repeats: if pass == Pass::Data { 1 } else { word(filters) },
            sources: if pass == Pass::Data { word(filters) } else { 1 },
            gathered: sys::bops_conv_strides {
                sample: if pass == Pass::Weight { gathered.term_lead } else { gathered.row_lead },
                channel: if pass == Pass::Data { gathered.term_lead } else { gathered.group },
                axes: lines.map(|line| line.stride),
            },
            out: strides(if pass == Pass::Weight { plain } else { out }),
            weight_channel: if pass == Pass::Data { plain.group } else { plain.column },
            weight_source: of_data * plain.lead,
            weight_axes: last_two(plain.axes).map(signed),
            activation: sys::BOPS_IDENTITY,
            out_dtype: c_dtype(out.dtype)?,
            ..Default::default()
        };
        for (axis, line) in lines.iter().enumerate() {
            let positions = last_two(positions.axes)[axis];
            params.out_extents[axis] = extent(positions, "positions")?;
            params.gathered_extents[axis] = extent(line.extent, "positions")?;
            params.kernel[axis] = extent(kernels[axis], "positions")?;
            let last = i128::from(kernels[axis]) - 1;
            // Backward: the last term comes first.
            let is_turned = line.of_term < 0;
            let first = i128::from(line.first) + if is_turned { last * i128::from(line.of_term) } else { 0 };
            if is_turned {
                params.weight_first += (signed(kernels[axis]) - 1) * params.weight_axes[axis];
                params.weight_axes[axis] = -params.weight_axes[axis];
            }
            let reach =
                first.abs() + i128::from(line.of_row) * i128::from(positions) + last * i128::from(line.of_term.abs());
            if reach >= REACH {
                return Err(format!("it counts coordinates in 30 bits, here they are as large as {reach}").into());
            }
            params.first[axis] = small(first);
            params.of_row[axis] = small(line.of_row.into());
            params.of_term[axis] = small(line.of_term.abs().into());
            params.divisor[axis] = word(line.divisor);
        }
        let mut planned = Self {
            pass,
            dtype,
            params,
            choice: sys::bops_conv_depthwise_choice::default(),
            last: None,
            gathered: gathered.position,
            plain: plain.position,
            bias: None,
            out: out.position,
            other: None,
        };
        // 2. What is done with the sums.
        let other = planned.finish_with(of)?;
        // 3. How threads share them.
        let is_one = |at: usize| lines[at].of_row == 1 && lines[at].divisor == 1 && params.of_term[at] == 1;
        let [height, width] = params.kernel;
        let is_square = height == width && WALKED.contains(&height);
        if !is_square || params.sources != 1 || !is_one(0) || !is_one(1) {
            let rule = "without stride and dilation, and data gradients of as many filters as channels";
            return Err(format!("it serves square kernels of {WALKED:?} {rule}, here of {height} by {width}").into());
        }
        let written = if pass == Pass::Weight { plain } else { out };
        let align = |of: &Strided| of.align_bytes >= FOUR * of.dtype.size_bytes();
        let is_aligned = gathered.align_bytes >= FOUR * dtype.size_bytes() && align(written) && other.is_none_or(align);
        let source = &planned.params.gathered;
        let outputs = [Some(planned.params.out), other.map(strides)];
        let outputs: Vec<_> = outputs.into_iter().flatten().collect();
        let in_channels = |of: &sys::bops_conv_strides| {
            of.channel == 1 && [of.sample, of.axes[0], of.axes[1]].iter().all(|stride| stride.is_multiple_of(FOUR))
        };
        let in_columns = |of: &sys::bops_conv_strides| {
            of.axes[1] == 1 && [of.sample, of.axes[0], of.channel].iter().all(|stride| stride.is_multiple_of(FOUR))
        };
        let is_small = height.max(width) <= MOST_OF_FOUR;
        let four = is_aligned
            && (is_small || pass != Pass::Weight)
            && params.repeats == 1
            && params.sources == 1
            && channels.is_multiple_of(FOUR)
            && in_channels(source)
            && outputs.iter().all(in_channels);
        let each = if four { FOUR } else { 1 };
        let has_near_channels = source.channel < source.axes[1].max(1) || source.axes[1] == 0 && source.channel == 1;
        let most_lanes = if four || has_near_channels { 32 } else { 1 };
        let margin = i64::from(params.first[1]) == -i64::from(width / 2);
        let is_whole =
            |extent: u32, fits: bool| u32::from(is_aligned && fits && u64::from(extent).is_multiple_of(FOUR));
        let halves = if width > 5 { 2 } else { 1 };
        planned.choice = sys::bops_conv_depthwise_choice {
            kernel: width,
            channels: word(each),
            lanes: lanes(channels / each, most_lanes),
            rows: ROWS[usize::from(four && pass == Pass::Weight)].min(params.out_extents[0]),
            columns: if four { 4 } else { 8 } / halves,
            gathered_whole: is_whole(params.gathered_extents[1], margin && in_columns(source)),
            out_whole: is_whole(params.out_extents[1], outputs.iter().all(in_columns)),
            parts: 0,
        };
        planned.share_strips(out, limits)?;
        Ok(planned)
    }

    /// Takes over the epilogue, and says where the pre-activation lies.
    fn finish_with<'c>(&mut self, of: &'c Contraction) -> Result<Option<&'c Strided>, Reason> {
        let params = &mut self.params;
        match &of.epilogue {
            Epilogue::Forward { bias, activation, pre } => {
                if let Some(bias) = bias {
                    self.bias = Some(bias.position);
                    (params.bias_stride, params.bias_dtype) = (bias.column, c_dtype(bias.dtype)?);
                }
                params.activation = c_activation(*activation);
                if let Some(pre) = pre {
                    self.other = Some(pre.position);
                    params.other =
                        sys::bops_conv_strides { sample: pre.lead, channel: pre.column, axes: last_two(pre.axes) };
                    params.other_dtype = c_dtype(pre.dtype)?;
                }
                Ok(pre.as_ref())
            }
            Epilogue::Gradient { beta } => {
                params.beta = *beta;
                Ok(None)
            }
        }
    }

    /// The blocks of a launch, and of the gradient of the weight the sums that each of them leaves.
    fn share_strips(&mut self, dweight: &Strided, limits: &Limits<'_>) -> Result<(), Reason> {
        let Self { params, choice, .. } = self;
        let strips = u64::from(params.samples)
            * u64::from(params.out_extents[0].div_ceil(choice.rows))
            * u64::from(params.out_extents[1].div_ceil(choice.columns));
        extent(strips, "strips of each channel")?;
        let tiles = u64::from(params.channels.div_ceil(choice.channels * choice.lanes));
        let groups = strips.div_ceil(u64::from(sys::BOPS_CONV_DEPTHWISE_THREADS / choice.lanes));
        bounded_blocks([groups, tiles])?;
        if self.pass != Pass::Weight {
            return Ok(());
        }
        let [height, width] = params.kernel.map(u64::from);
        let n = u64::from(params.channels) * height * width;
        let [.., rows, cols] = dweight.axes;
        let stride = merged(&[params.channels.into(), height, width], &[dweight.column, rows, cols]);
        let Some(stride) = stride else { return Err("the gradient has to be dense".into()) };
        let wanted = (BLOCKS[usize::from(choice.channels > 1)] * u64::from(limits.props.multiprocessors))
            .div_ceil(tiles)
            .min(groups);
        let parts = wanted.min(limits.workspace_bytes / (4 * n));
        if parts == 0 {
            return Err(format!("it needs {} bytes of workspace for each of its parts", 4 * n).into());
        }
        choice.parts = word(parts);
        let rows = parts;
        self.last = Some((sys::bops_gemm_dbias_params { rows, n, stride, beta: params.beta }, dweight.dtype));
        Ok(())
    }

    fn part_bytes(&self) -> u64 {
        self.last.map_or(0, |(last, _)| 4 * last.rows * last.n)
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let Self { pass, dtype, params, choice, last, gathered, plain, bias, out, other } = self;
        let dtype = c_dtype(dtype).map_err(BuildError::Refused)?;
        let numbers = [dtype, choice.kernel, choice.channels];
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
        let last = match last {
            Some((last, dtype)) => {
                let dtype = c_dtype(dtype).map_err(BuildError::Refused)?;
                device.prepare("bops_gemm_dbias", [dtype], || {
                    // SAFETY: as above.
                    unsafe { sys::bops_gemm_dbias_prepare(&last, dtype) }
                })?;
                Some((last, dtype))
            }
            None => None,
        };
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let address = |position: usize| located.operands[position].address() as *mut c_void;
            let optional = |position: Option<usize>| position.map_or(std::ptr::null_mut(), address);
            let parts = located.workspace.address() as *mut c_void;
            let operands = sys::bops_conv_depthwise_operands {
                gathered: address(gathered),
                plain: address(plain),
                bias: optional(bias),
                out: if last.is_some() { parts } else { address(out) },
                other: optional(other),
            };
            let Some((last, dtype_of_last)) = &last else {
                // SAFETY: the generic check proved every operand's span and alignment.
                return unsafe { sys::bops_conv_depthwise_launch(&params, &choice, dtype, &operands, stream) };
            };
            // SAFETY: as above, and that the workspace holds the parts.
            let status = unsafe { sys::bops_conv_depthwise_weight_launch(&params, &choice, dtype, &operands, stream) };
            if status != 0 {
                return status;
            }
            // SAFETY: as above.
            unsafe { sys::bops_gemm_dbias_launch(last, *dtype_of_last, parts, address(out), stream) }
        };
        Ok(Built(Exec::Cuda(Launch::new("bops_conv_depthwise", start))))
    }
}

/// Where along an axis of the gathered factor a position and a term of the kernel meet.
#[derive(Clone, Copy)]
struct Line {
    extent: u64,
    stride: u64,
    of_row: i64,
    of_term: i64,
    first: i64,
    divisor: u64,
}

impl Line {
    fn new(pass: Pass, axis: &Axis) -> Self {
        let Axis { extent, stride, of_row, of_term, offset, divisor } = *axis;
        // Rows of the gradient of the weight are positions of the kernel.
        let [of_row, of_term] = if pass == Pass::Weight { [of_term, of_row] } else { [of_row, of_term] };
        Self { extent, stride, of_row, of_term, first: offset, divisor }
    }
}

fn serves(pass: Pass, of: &Contraction, limits: &Limits<'_>) -> Result<(), Reason> {
    let Contraction { groups, rows, terms, n, gathered, plain, .. } = of;
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
    let (channels, filters) = match pass {
        Pass::Forward => (terms.lead, *n),
        Pass::Data => (*n, terms.lead),
        Pass::Weight => (rows.lead, *n),
    };
    if channels != 1 {
        return Err(format!("it has groups of one channel of x, here there are {channels}").into());
    }
    if !limits.is_pinned && (filters > MOST_FILTERS || (*groups == 1 && filters > 1)) {
        return Err(
            format!("each filter reads x for itself, here they are {filters} in each of {groups} groups").into()
        );
    }
    let first = &gathered.axes[0];
    if [rows.axes[0], terms.axes[0], first.extent] != [1; 3] || first.offset != 0 {
        return Err("it has one or two spatial extents, here there are three".into());
    }
    let kernel = if pass == Pass::Weight { rows.axes } else { terms.axes };
    if let Some(kernel) = kernel.into_iter().find(|&kernel| pass == Pass::Weight && kernel > MOST_KERNEL) {
        return Err(
            format!("a thread has the sums of {MOST_KERNEL} by {MOST_KERNEL} of a kernel, here of {kernel}").into()
        );
    }
    Ok(())
}

/// Threads side by side, so that few of the last ones have nothing to do.
pub(super) fn lanes(vectors: u64, most: u32) -> u32 {
    let mut lanes = most;
    while lanes > 1 && vectors.next_multiple_of(lanes.into()) * 3 > vectors * 4 {
        lanes /= 2;
    }
    lanes
}

fn last_two<T: Copy>([_, rows, columns]: [T; 3]) -> [T; AXES] {
    [rows, columns]
}

/// What kernels count in 32 bits.
fn extent(number: u64, what: &str) -> Result<u32, Reason> {
    let fits = u32::try_from(number).ok().filter(|&number| i128::from(number) < REACH);
    fits.ok_or_else(|| format!("it counts {what} in 30 bits, here there are {number}").into())
}

/// What has been found to be below 2^30.
fn small(number: i128) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
