//! Convolutions of few channels, such as the first layer of an image network: what the kernels serve, their choices, and the launches of a run.
//!
//! A block walks down the rows of y, or of dx, from tile to tile. It keeps the weights, or the sums of their gradient, and those rows of the gathered
//! factor that the next tile sees as well. Each of their elements is in shared memory once, although windows overlap. [`tiles`] chooses for forward and
//! the gradient of the weight, [`cells`] for the gradient of the data.

use baracuda_ops_sys as sys;

use super::depthwise::{extent, last_two, strides};
use super::{AddUp, workspace};
use crate::backend::cuda::{c_activation, c_dtype};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Built, Candidate};
use crate::narrow::word;
use crate::ops::calls::{self, calls};
use crate::ops::conv::geometry::{Contraction, Strided};
use crate::ops::conv::{Pass, Shape, SpatialAxis};
use crate::ops::gemm::cuda::product::Limits;
use crate::ops::gemm::geometry::Epilogue;
use crate::options::Math;

mod cells;
mod tiles;

type Calls<C> =
    calls::Calls<sys::bops_dtype, sys::bops_conv_few_channels_params, C, sys::bops_conv_few_channels_operands>;

const FORWARD: Calls<sys::bops_conv_few_channels_choice> = calls!(bops_conv_few_channels);
const WEIGHT: Calls<sys::bops_conv_few_channels_choice> = calls!(bops_conv_few_channels_weight);
const DATA: Calls<sys::bops_conv_few_channels_data_choice> = calls!(bops_conv_few_channels_data);

/// Channels of x, at most.
const MOST_CHANNELS: u64 = sys::BOPS_CONV_FEW_CHANNELS_MOST as u64;
/// Positions of a tile, at most.
const POSITIONS: u64 = sys::BOPS_CONV_FEW_CHANNELS_POSITIONS as u64;
/// Neighbouring positions that one instruction multiplies.
const GROUP: u64 = sys::BOPS_CONV_FEW_CHANNELS_GROUP as u64;
/// Bytes of one chunk of shared memory, which one `ldmatrix` address selects.
const CHUNK_BYTES: u64 = 16;
/// Coordinates are below this, so that sums of two fit into 32 bits.
const REACH: i128 = 1 << 30;
/// Shared memory that CUDA reserves for each block on an SM, beside what the block asks for.
const RESERVED_SHARED_BYTES: u64 = 1024;

// Limits within which this form was faster than cuDNN on an H200, measured with 3 channels.

/// The most channels: 3 and 4 channels are padded to as many elements, so that they are as much work. More are padded to 8, which is twice the work
/// of 4 if `tiles::padded` pads those to 4.
const PREFERRED_CHANNELS: u64 = 4;
/// The most filters: a block has this many, so that more would load x, or dy, several times.
const PREFERRED_FILTERS: u64 = 64;
/// The fewest elements of a filter for the gradient of the weight if filters of dy are contiguous: with fewer the kernel waits for dy.
const PREFERRED_TERMS: u64 = 64;
/// The fewest columns of y: narrower tiles leave warps without work.
const PREFERRED_COLUMNS: u64 = 24;
/// The fewest multiplications: each block first loads all weights, which short runs do not make up for.
const PREFERRED_PRODUCTS: u64 = 1 << 26;

/// A product with its launches.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    of: Contraction,
    pub(super) params: sys::bops_conv_few_channels_params,
    pub(super) choice: Choice,
}

/// What was chosen for each pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    Forward(sys::bops_conv_few_channels_choice),
    Weight(sys::bops_conv_few_channels_choice, AddUp),
    Data(sys::bops_conv_few_channels_data_choice),
}

pub(super) fn candidate<'d>(of: &Contraction, limits: &Limits<'_>) -> Accepted<'d> {
    let planned = Planned::new(of, limits)?;
    let (part_bytes, launches) = match planned.choice {
        Choice::Weight(_, add_up) => (add_up.part_bytes(), 2),
        Choice::Forward(_) | Choice::Data(_) => (0, 1),
    };
    Ok(Candidate {
        workspace: workspace(part_bytes),
        launches,
        math: if of.gathered.dtype == DType::F32 { Math::Tf32 } else { Math::Strict },
        ..Candidate::new(planned.choice, move |device| planned.build(device))
    })
}

impl Planned {
    pub(super) fn new(of: &Contraction, limits: &Limits<'_>) -> Result<Self, Reason> {
        let roles = Roles::of(of);
        check(of, &roles, limits)?;
        let mut params = params(of, &roles)?;
        let choice = match of.pass {
            Pass::Forward => Choice::Forward(tiles::forward(of, &roles, &params, limits)?),
            Pass::Data => Choice::Data(cells::choose(&roles, &params, limits)?),
            Pass::Weight => {
                let mut choice = tiles::weight(&roles, &params, limits)?;
                let add_up = tiles::in_parts(of, &mut params, &mut choice, limits)?;
                Choice::Weight(choice, add_up)
            }
        };
        Ok(Self { of: *of, params, choice })
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let Self { of, params, choice } = self;
        let dtype = c_dtype(of.gathered.dtype)?;
        let Roles { x, y, .. } = Roles::of(&of);
        // The gradient of the weight goes to the workspace.
        let weight = (of.pass != Pass::Weight).then_some(of.plain.position);
        let Epilogue { bias, beside, .. } = of.epilogue;
        let operands = move |located: &Located<'_>| sys::bops_conv_few_channels_operands {
            x: located.pointer(x.position),
            weight: located.optional(weight),
            bias: located.optional(bias.map(|bias| bias.position)),
            y: located.pointer(y.position),
            other: located.optional(beside.map(|pre| pre.position)),
        };
        match choice {
            Choice::Forward(choice) => FORWARD.build(device, true, (dtype, params, choice, ()), operands),
            Choice::Data(choice) => DATA.build(device, true, (dtype, params, choice, ()), operands),
            Choice::Weight(choice, add_up) => add_up.build(device, &WEIGHT, (dtype, params, choice), operands),
        }
    }
}

/// The tensors with the extents of x, y and the weight, in each pass, whichever of them are gradients.
struct Roles {
    shape: Shape,
    /// The column is a channel of x, the lead a sample.
    x: Strided,
    /// The column is a filter, the lead a sample.
    y: Strided,
    weight: Strided,
    /// Strides of the weight, in elements.
    weight_filter: u64,
    weight_channel: u64,
}

impl Roles {
    fn of(of: &Contraction) -> Self {
        let Contraction { pass, shape, plain, out, .. } = *of;
        let gathered = of.gathered_by_positions();
        let (x, y, weight) = match pass {
            Pass::Forward => (gathered, out, plain),
            Pass::Data => (out, gathered, plain),
            Pass::Weight => (gathered, plain, out),
        };
        let (weight_filter, weight_channel) = match pass {
            Pass::Forward | Pass::Weight => (weight.column, weight.lead),
            Pass::Data => (weight.lead, weight.column),
        };
        Self { shape, x, y, weight, weight_filter, weight_channel }
    }

    /// Whether neighbouring columns of y are closer to each other in memory than neighbouring filters.
    fn is_across(&self) -> bool {
        self.y.axes[2] != 0 && (self.y.column == 0 || self.y.axes[2] < self.y.column)
    }

    /// Whether `elements` elements along the fast axis of y, from any multiple of that number on, are one aligned access, or several of 16 bytes. `of` is y
    /// or the pre-activation.
    fn in_runs(&self, of: &Strided, elements: u64) -> bool {
        let [fast, slow] = if self.is_across() { [of.axes[2], of.column] } else { [of.column, of.axes[2]] };
        let bytes = (elements * of.dtype.size_bytes()).min(16);
        let is_whole = [of.lead, of.axes[1], slow].iter().all(|stride| stride.is_multiple_of(elements));
        fast == 1 && is_whole && of.align_bytes >= bytes
    }
}

/// The parameters, which all passes share.
fn params(of: &Contraction, roles: &Roles) -> Result<sys::bops_conv_few_channels_params, Reason> {
    let Epilogue { bias, activation, beside: other, beta, .. } = of.epilogue;
    let mut params = sys::bops_conv_few_channels_params {
        samples: extent(roles.shape.samples, "samples")?,
        filters: extent(roles.shape.channels_out, "filters")?,
        channels: word(roles.shape.channels_in),
        x: strides(&roles.x),
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
        (params.bias_stride, params.bias_dtype) = (bias.stride, c_dtype(bias.dtype)?);
    }
    if let Some(pre) = &other {
        (params.other, params.other_dtype) = (strides(pre), c_dtype(pre.dtype)?);
    }
    for (at, axis) in last_two(roles.shape.axes).into_iter().enumerate() {
        let SpatialAxis { input, kernel, output, stride, before, .. } = axis;
        let [first, step, places] = [before, stride, output].map(i128::from);
        let reach = first + step * (places + i128::from(POSITIONS)) + i128::from(kernel) + i128::from(input);
        Reason::unless(reach < REACH, || format!("it counts coordinates in 30 bits, they reach {reach}"))?;
        params.y_extents[at] = extent(output, "positions")?;
        params.x_extents[at] = extent(input, "positions")?;
        params.kernel[at] = extent(kernel, "kernel elements")?;
        params.stride[at] = extent(stride, "positions")?;
        params.first[at] = i32::try_from(-first).unwrap_or(i32::MIN);
    }
    Ok(params)
}

/// # Errors
/// What the kernels do not serve and, unless the form is asked for by name, what other forms serve better.
fn check(of: &Contraction, roles: &Roles, limits: &Limits<'_>) -> Result<(), Reason> {
    let Contraction { pass, groups, .. } = of;
    Reason::unless(*groups == 1, || format!("it serves one group, got {groups}"))?;
    let dtype = of.factor_type()?;
    let Shape { channels_in: channels, channels_out: filters, ref axes, .. } = roles.shape;
    Reason::unless(channels <= MOST_CHANNELS, || {
        format!("it serves at most {MOST_CHANNELS} channels of x, got {channels}")
    })?;
    limits.check_tensor_cores(dtype)?;
    Reason::unless(*pass == Pass::Forward || dtype != DType::F32, || "it computes gradients in f16 and bf16 only")?;
    Reason::unless(!of.is_empty() && of.terms.count() != 0, || "there is nothing to add up")?;
    of.check_is_image()?;
    for SpatialAxis { dilation, .. } in axes {
        Reason::unless(*dilation == 1, || format!("it serves a dilation of 1, got {dilation}"))?;
    }
    if limits.is_pinned {
        return Ok(());
    }
    let (columns, products) = (axes[2].output, of.products());
    let elements: u64 = axes.iter().map(|axis| axis.kernel).product();
    let is_other = channels > PREFERRED_CHANNELS || filters > PREFERRED_FILTERS || elements == 1;
    Reason::unless(!is_other && columns >= PREFERRED_COLUMNS && products >= PREFERRED_PRODUCTS, || {
        format!(
            "it is fast with up to {PREFERRED_CHANNELS} channels and {PREFERRED_FILTERS} filters of more than one element, rows of at least {PREFERRED_COLUMNS} positions and at least {PREFERRED_PRODUCTS} products; got {channels} channels, {filters} filters of {elements} elements, rows of {columns} and {products} products"
        )
    })?;
    let terms = elements * channels;
    Reason::unless(*pass != Pass::Weight || roles.is_across() || terms >= PREFERRED_TERMS, || {
        format!(
            "if filters of dy are contiguous, it is fast with filters of at least {PREFERRED_TERMS} elements, got {terms}"
        )
    })?;
    Ok(())
}

/// Blocks that run at once if each takes `shared_bytes` of shared memory and an SM runs `most` at most.
fn places(shared_bytes: u64, most: u64, limits: &Limits<'_>) -> u64 {
    let of_multiprocessor = u64::from(limits.props.shared_bytes) / (shared_bytes + RESERVED_SHARED_BYTES);
    of_multiprocessor.clamp(1, most) * u64::from(limits.props.multiprocessors)
}
