//! Few channels of x, as the first layer of an image network has them: what the kernels take, and the launches of a run.
//!
//! A block goes from tile to tile down the rows of y or of dx and keeps what it can: the weights, the sums of their gradients, and those rows of the
//! gathered factor that the next tile sees as well. Of these every element lies in shared memory once, and tensor cores read windows from there as they
//! overlap. [`tiles`] has forward and the gradient of the weight, [`cells`] the gradient of the data.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::depthwise::{extent, last_two, strides};
use super::workspace;
use crate::backend::Located;
use crate::backend::cuda::calls::{self, calls};
use crate::backend::cuda::{self, Launch, c_activation, c_dtype};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Built, Candidate};
use crate::narrow::word;
use crate::ops::conv::geometry::{Contraction, Strided};
use crate::ops::conv::{MAX_AXES, Pass};
use crate::ops::gemm::cuda::launch::prepare_dbias;
use crate::ops::gemm::cuda::product::Limits;
use crate::ops::gemm::geometry::Fused;
use crate::options::Math;

mod cells;
mod tiles;

type Calls<C> =
    calls::Calls<sys::bops_dtype, sys::bops_conv_few_channels_params, C, sys::bops_conv_few_channels_operands>;

const FORWARD: Calls<sys::bops_conv_few_channels_choice> =
    calls!(bops_conv_few_channels_prepare, bops_conv_few_channels_launch);
const WEIGHT: Calls<sys::bops_conv_few_channels_choice> =
    calls!(bops_conv_few_channels_weight_prepare, bops_conv_few_channels_weight_launch);
const DATA: Calls<sys::bops_conv_few_channels_data_choice> =
    calls!(bops_conv_few_channels_data_prepare, bops_conv_few_channels_data_launch);

const MOST_CHANNELS: u64 = sys::BOPS_CONV_FEW_CHANNELS_MOST as u64;
const POSITIONS: u64 = sys::BOPS_CONV_FEW_CHANNELS_POSITIONS as u64;
const GROUP: u64 = sys::BOPS_CONV_FEW_CHANNELS_GROUP as u64;
/// Bytes of one chunk of shared memory.
const CHUNK_BYTES: u64 = 16;
/// Coordinates are below it.
const REACH: i128 = 1 << 30;
/// Shared memory of a multiprocessor that each block takes beside what it asks for.
const RESERVED_SHARED_BYTES: u64 = 1024;

/// Channels up to which it is preferred to cuDNN. This and the others were measured on an H200, with 3 channels.
const PREFERRED_CHANNELS: u64 = 4;
/// Filters up to which it is preferred: more of them read x, or dy, several times.
const PREFERRED_FILTERS: u64 = 64;
/// Terms of forward from which on the gradient of the weight is preferred if the filters of dy are neighbours: with fewer it waits for dy.
const PREFERRED_TERMS: u64 = 64;
/// Columns of y from which on it is preferred: narrower tiles leave warps without work.
const PREFERRED_COLUMNS: u64 = 24;
/// Multiplications from which on it is preferred: blocks begin with the weights, which has to pay.
const PREFERRED_PRODUCTS: u64 = 1 << 26;

/// A product with its launches.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    dtype: DType,
    pub(super) params: sys::bops_conv_few_channels_params,
    pub(super) choice: Choice,
    x: usize,
    y: usize,
    /// None of its own gradient.
    weight: Option<usize>,
    bias: Option<usize>,
    other: Option<usize>,
}

/// What was chosen, with what decides it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    Forward(sys::bops_conv_few_channels_choice),
    Weight(sys::bops_conv_few_channels_choice, AddUp),
    Data(sys::bops_conv_few_channels_data_choice),
}

/// What adds up the parts of the gradient of the weight, and writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AddUp {
    pub(super) sums: sys::bops_gemm_dbias_params,
    dtype: DType,
    dweight: usize,
}

pub(super) fn candidate<'d>(of: &Contraction, limits: &Limits<'_>) -> Accepted<'d> {
    let planned = Planned::new(of, limits)?;
    let (part_bytes, launches) = match planned.choice {
        Choice::Weight(_, AddUp { sums, .. }) => (4 * sums.rows * sums.n, 2),
        Choice::Forward(_) | Choice::Data(_) => (0, 1),
    };
    Ok(Candidate {
        workspace: workspace(part_bytes),
        launches,
        math: if planned.dtype == DType::F32 { Math::Tf32 } else { Math::Strict },
        ..Candidate::new(planned.choice, move |device| planned.build(device))
    })
}

impl Planned {
    pub(super) fn new(of: &Contraction, limits: &Limits<'_>) -> Result<Self, Reason> {
        let roles = Roles::of(of);
        check(of, &roles, limits)?;
        let params = params(of, &roles)?;
        let choice = match of.pass {
            Pass::Forward => Choice::Forward(tiles::forward(of, &roles, &params, limits)?),
            Pass::Weight => {
                let choice = tiles::weight(&roles, &params, limits)?;
                return tiles::with_parts(Self::with(of, &roles, params, Choice::Forward(choice)), of, choice, limits);
            }
            Pass::Data => Choice::Data(cells::choose(&roles, &params, limits)?),
        };
        Ok(Self::with(of, &roles, params, choice))
    }

    fn with(of: &Contraction, roles: &Roles, params: sys::bops_conv_few_channels_params, choice: Choice) -> Self {
        let Fused { bias, beside, .. } = of.epilogue.fused();
        Self {
            dtype: of.gathered.dtype,
            params,
            choice,
            x: roles.x_position,
            y: roles.y.position,
            weight: (of.pass != Pass::Weight).then_some(of.plain.position),
            bias: bias.map(|bias| bias.position),
            other: beside.map(|pre| pre.position),
        }
    }

    fn build(self, device: &crate::backend::Device) -> Result<Built, BuildError> {
        let Self { dtype, params, choice, x, y, weight, bias, other } = self;
        let dtype = c_dtype(dtype)?;
        let operands = move |located: &Located<'_>| {
            let optional = |position: Option<usize>| position.map_or(std::ptr::null_mut(), |at| located.pointer(at));
            sys::bops_conv_few_channels_operands {
                x: located.pointer(x),
                weight: optional(weight),
                bias: optional(bias),
                y: located.pointer(y),
                other: optional(other),
            }
        };
        match choice {
            Choice::Forward(choice) => FORWARD.build(device, true, (dtype, params, choice, ()), operands),
            Choice::Data(choice) => DATA.build(device, true, (dtype, params, choice, ()), operands),
            Choice::Weight(choice, AddUp { sums, dtype: of_gradient, dweight }) => {
                let device = cuda::Device::of(device)?;
                let sum_up = WEIGHT.prepare(device, dtype, params, choice, ())?;
                let add_up = prepare_dbias(device, sums, of_gradient)?;
                let start = move |located: &Located<'_>, stream: *mut c_void| {
                    let parts = located.workspace_pointer();
                    let status = sum_up(&operands(located), parts, stream);
                    if status == 0 { add_up(parts, located.pointer(dweight), stream) } else { status }
                };
                Ok(Launch::new(WEIGHT.name, start).into())
            }
        }
    }
}

/// What has the extents and strides of x, y and the weight in each pass, whichever of them are gradients.
struct Roles {
    samples: u64,
    filters: u64,
    channels: u64,
    kernel: [u64; MAX_AXES],
    axes: [RoleAxis; MAX_AXES],
    x: sys::bops_conv_strides,
    x_position: usize,
    y: Strided,
    weight: Strided,
    /// Of the weight, in elements.
    weight_filter: u64,
    weight_channel: u64,
}

#[derive(Clone, Copy)]
struct RoleAxis {
    x_extent: u64,
    y_extent: u64,
    stride: i64,
    dilation: i64,
    first: i64,
}

impl Roles {
    fn of(of: &Contraction) -> Self {
        let Contraction { pass, rows, terms, n, gathered, plain, out, .. } = of;
        let read = |sample: u64, channel: u64| sys::bops_conv_strides {
            sample,
            channel,
            axes: last_two(gathered.axes.each_ref().map(|axis| axis.stride)),
        };
        let axes = |of_axis: fn(&crate::ops::conv::geometry::Axis, u64) -> RoleAxis, extents: [u64; MAX_AXES]| {
            std::array::from_fn(|at| of_axis(&gathered.axes[at], extents[at]))
        };
        match pass {
            Pass::Forward => Self {
                samples: rows.lead,
                filters: *n,
                channels: terms.lead,
                kernel: terms.axes,
                axes: axes(
                    |axis, y_extent| RoleAxis {
                        x_extent: axis.extent,
                        y_extent,
                        stride: axis.of_row,
                        dilation: axis.of_term,
                        first: axis.offset,
                    },
                    rows.axes,
                ),
                x: read(gathered.row_lead, gathered.term_lead),
                x_position: gathered.position,
                y: *out,
                weight: *plain,
                weight_filter: plain.column,
                weight_channel: plain.lead,
            },
            Pass::Weight => Self {
                samples: terms.lead,
                filters: *n,
                channels: rows.lead,
                kernel: rows.axes,
                axes: axes(
                    |axis, y_extent| RoleAxis {
                        x_extent: axis.extent,
                        y_extent,
                        stride: axis.of_term,
                        dilation: axis.of_row,
                        first: axis.offset,
                    },
                    terms.axes,
                ),
                x: read(gathered.term_lead, gathered.row_lead),
                x_position: gathered.position,
                y: *plain,
                weight: *out,
                weight_filter: out.column,
                weight_channel: out.lead,
            },
            Pass::Data => Self {
                samples: rows.lead,
                filters: terms.lead,
                channels: *n,
                kernel: terms.axes,
                axes: axes(
                    |axis, x_extent| RoleAxis {
                        x_extent,
                        y_extent: axis.extent,
                        stride: i64::try_from(axis.divisor).unwrap_or(i64::MAX),
                        dilation: -axis.of_term,
                        first: -axis.offset,
                    },
                    rows.axes,
                ),
                x: strides(out),
                x_position: out.position,
                y: Strided {
                    position: gathered.position,
                    dtype: gathered.dtype,
                    align_bytes: gathered.align_bytes,
                    group: gathered.group,
                    column: gathered.term_lead,
                    lead: gathered.row_lead,
                    axes: gathered.axes.each_ref().map(|axis| axis.stride),
                },
                weight: *plain,
                weight_filter: plain.lead,
                weight_channel: plain.column,
            },
        }
    }

    /// Whether neighbouring columns of y lie closer to each other than neighbouring filters.
    fn is_across(&self) -> bool {
        self.y.axes[2] != 0 && (self.y.column == 0 || self.y.axes[2] < self.y.column)
    }

    /// Whether so many elements of what lies as y, from any multiple of their number on, are one access, or several of 16 bytes.
    fn in_runs(&self, of: &Strided, elements: u64) -> bool {
        let [fast, slow] = if self.is_across() { [of.axes[2], of.column] } else { [of.column, of.axes[2]] };
        let bytes = (elements * of.dtype.size_bytes()).min(16);
        let is_whole = [of.lead, of.axes[1], slow].iter().all(|stride| stride.is_multiple_of(elements));
        fast == 1 && is_whole && of.align_bytes >= bytes
    }
}

/// The parameters of every pass.
fn params(of: &Contraction, roles: &Roles) -> Result<sys::bops_conv_few_channels_params, Reason> {
    let Fused { bias, activation, beside: other, beta } = of.epilogue.fused();
    let mut params = sys::bops_conv_few_channels_params {
        samples: extent(roles.samples, "samples")?,
        filters: extent(roles.filters, "filters")?,
        channels: word(roles.channels),
        x: roles.x,
        y: strides(&roles.y),
        weight_filter: roles.weight_filter,
        weight_channel: roles.weight_channel,
        weight_axes: last_two(roles.weight.axes),
        beta,
        activation: c_activation(activation),
        out_dtype: c_dtype(of.out.dtype)?,
        ..Default::default()
    };
    if let Some(bias) = bias {
        (params.bias_stride, params.bias_dtype) = (bias.column, c_dtype(bias.dtype)?);
    }
    if let Some(pre) = &other {
        (params.other, params.other_dtype) = (strides(pre), c_dtype(pre.dtype)?);
    }
    for (at, (axis, kernel)) in last_two(roles.axes).into_iter().zip(last_two(roles.kernel)).enumerate() {
        let [first, stride, kernel_extent] = [i128::from(axis.first), i128::from(axis.stride), i128::from(kernel)];
        let places = i128::from(axis.y_extent) + i128::from(POSITIONS);
        let reach = first.abs() + stride * places + kernel_extent + i128::from(axis.x_extent);
        if reach >= REACH {
            return Err(format!("it counts coordinates in 30 bits, here they are as large as {reach}").into());
        }
        params.y_extents[at] = extent(axis.y_extent, "positions")?;
        params.x_extents[at] = extent(axis.x_extent, "positions")?;
        params.kernel[at] = extent(kernel, "kernel elements")?;
        params.stride[at] = extent(axis.stride.unsigned_abs(), "positions")?;
        params.first[at] = i32::try_from(axis.first).unwrap_or(i32::MIN);
    }
    Ok(params)
}

/// # Errors
/// What the kernels do not do, and what is left to other forms.
fn check(of: &Contraction, roles: &Roles, limits: &Limits<'_>) -> Result<(), Reason> {
    let Contraction { pass, groups, gathered, plain, .. } = of;
    if *groups != 1 {
        return Err(format!("it is for one group, got {groups}").into());
    }
    if gathered.dtype != plain.dtype {
        let (gathered, plain) = (gathered.dtype, plain.dtype);
        return Err(format!("it multiplies factors of one type, here they are {gathered} and {plain}").into());
    }
    let channels = roles.channels;
    if channels > MOST_CHANNELS {
        return Err(format!("it is for at most {MOST_CHANNELS} channels of x, got {channels}").into());
    }
    limits.check_tensor_cores(gathered.dtype)?;
    if *pass != Pass::Forward && gathered.dtype == DType::F32 {
        return Err("it has gradients of f16 and bf16 alone".into());
    }
    if of.is_empty() || of.terms.count() == 0 {
        return Err("there is nothing to add up".into());
    }
    of.check_is_image()?;
    for (axis, &kernel) in roles.axes.iter().zip(&roles.kernel) {
        if kernel > 1 && axis.dilation != 1 {
            return Err(format!("it has no dilation, here it is {}", axis.dilation).into());
        }
    }
    if limits.is_pinned {
        return Ok(());
    }
    let (filters, columns, products) = (roles.filters, roles.axes[2].y_extent, of.products());
    let elements: u64 = roles.kernel.iter().product();
    let is_other = channels > PREFERRED_CHANNELS || filters > PREFERRED_FILTERS || elements == 1;
    if is_other || columns < PREFERRED_COLUMNS || products < PREFERRED_PRODUCTS {
        return Err(format!(
            "it is for up to {PREFERRED_CHANNELS} channels and {PREFERRED_FILTERS} filters of more than one element, rows of {PREFERRED_COLUMNS} and {PREFERRED_PRODUCTS} products or more; here are {channels} channels, {filters} filters, rows of {columns} and {products} products"
        )
        .into());
    }
    let terms = elements * channels;
    if *pass == Pass::Weight && !roles.is_across() && terms < PREFERRED_TERMS {
        return Err(format!(
            "with neighbouring filters of dy it is for gradients of {PREFERRED_TERMS} elements of a filter or more, here are {terms}"
        )
        .into());
    }
    Ok(())
}

/// Blocks of a launch that run at once, as far as shared memory says, at most `most` a multiprocessor.
fn places(shared_bytes: u64, most: u64, limits: &Limits<'_>) -> u64 {
    let of_multiprocessor = u64::from(limits.props.shared_bytes) / (shared_bytes + RESERVED_SHARED_BYTES);
    of_multiprocessor.clamp(1, most) * u64::from(limits.props.multiprocessors)
}
