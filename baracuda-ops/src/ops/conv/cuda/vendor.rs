//! Convolutions through cuDNN: what it is asked for, in its terms, and what is left to kernels of this library.
//!
//! One launch computes a product, adds what was there, and in forward adds a bias of y's type. Of the activations it could apply ReLU, by an
//! engine that is slow if NaN has to stay; of the others it does not say how exact they are. With one spatial extent it is told two, the first
//! of which is 1.

use std::ffi::c_void;
use std::ptr;

use crate::backend::cuda::cudnn::{MAX_RANK, Operands, Pass, Problem, Tensor, WORKSPACE_BYTES};
use crate::backend::cuda::{self, Launch, Props};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::signed;
use crate::ops::activation::Activation;
use crate::ops::conv::geometry::{Axis, Contraction, Epilogue};
use crate::ops::conv::{ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor, MAX_AXES};
use crate::options::{Determinism, Math, PlanOptions, WorkspaceReq};
use crate::plan::{Ask, BuildError, Built, Candidate, Descriptor, Exec, Kernel, Slot};
use crate::tensor::TensorDesc;

/// Alignment of the workspace.
const WORKSPACE_ALIGN: u64 = 256;
/// The greatest alignment that engines ask for.
const MOST_ALIGN_BYTES: u64 = 16;

/// The library, for each of the three products.
pub(crate) struct Cudnn;

/// The ops that it computes.
trait Product: Descriptor {
    const KERNEL: &'static str;
    const PASS: Pass;
    /// The names of x, the weight and y, or of the gradients that are in their place.
    const NAMES: [&'static str; 3];

    fn contraction(&self) -> Contraction;
}

impl Product for ConvDescriptor {
    const KERNEL: &'static str = "conv_cudnn";
    const PASS: Pass = Pass::Forward;
    const NAMES: [&'static str; 3] = ["x", "weight", "y"];

    fn contraction(&self) -> Contraction {
        self.contraction()
    }
}

impl Product for ConvBackwardDataDescriptor {
    const KERNEL: &'static str = "conv_backward_data_cudnn";
    const PASS: Pass = Pass::Data;
    const NAMES: [&'static str; 3] = ["dx", "weight", "dy"];

    fn contraction(&self) -> Contraction {
        self.contraction()
    }
}

impl Product for ConvBackwardWeightDescriptor {
    const KERNEL: &'static str = "conv_backward_weight_cudnn";
    const PASS: Pass = Pass::Weight;
    const NAMES: [&'static str; 3] = ["x", "dweight", "dy"];

    fn contraction(&self) -> Contraction {
        self.contraction()
    }
}

impl<D: Product> Kernel<D> for Cudnn {
    fn name(&self) -> &'static str {
        D::KERNEL
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn library(&self, device: &Device) -> Option<String> {
        let version = cuda::Device::of(device).ok()?.cudnn().ok()?.version();
        let [major, minor, patch] = [version / 10000, version / 100 % 100, version % 100];
        Some(format!("cuDNN {major}.{minor}.{patch}"))
    }

    fn accept<'d>(
        &self,
        descriptor: &'d D,
        options: &PlanOptions,
        props: &DeviceProps,
        ask: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        Props::of(props)?;
        let planned = Planned::new(descriptor, options, ask)?;
        Ok(Candidate {
            workspace: workspace(planned.problem.workspace_bytes),
            math: if planned.dtype == DType::F32 { options.math } else { Math::Strict },
            determinism: options.determinism,
            ..Candidate::new(planned.problem, move |device| planned.build(device))
        })
    }
}

fn workspace(bytes: u64) -> WorkspaceReq {
    if bytes == 0 { WorkspaceReq::NONE } else { WorkspaceReq { bytes, align: WORKSPACE_ALIGN } }
}

/// A problem, and where its operands are among those of a run.
struct Planned {
    /// Of the factors.
    dtype: DType,
    problem: Problem,
    /// Of x, the weight and y, whichever of them are gradients.
    indices: [usize; 3],
    bias: Option<usize>,
}

impl Planned {
    fn new<D: Product>(descriptor: &D, options: &PlanOptions, ask: Ask) -> Result<Self, Reason> {
        let contraction = descriptor.contraction();
        let slot = |name: &str| descriptor.slots().iter().find(|slot| slot.name == name);
        let [Some(x), Some(weight), Some(y)] = D::NAMES.map(slot) else {
            return Err("an operand is not declared".into()); // Each always is.
        };

        let factors = match D::PASS {
            Pass::Forward => [x, weight],
            Pass::Data => [weight, y],
            Pass::Weight => [x, y],
        };
        let [dtype, other] = factors.map(|factor| factor.desc.dtype());
        if other != dtype {
            return Err(format!("it multiplies factors of one type, got {dtype} and {other}").into());
        }

        // 1. What it adds and applies.
        let (activation, beta) = match contraction.epilogue {
            Epilogue::Forward { activation, .. } => (activation, 0.0),
            Epilogue::Gradient { beta } => (Activation::Identity, beta),
        };
        if slot("pre").is_some() {
            return Err("it writes y only, not what the activation is applied to".into());
        }
        match activation {
            Activation::Identity => {}
            Activation::Relu if ask == Ask::Pinned => {}
            Activation::Relu => return Err("with ReLU, which has to keep NaN, cuDNN has slow engines only".into()),
            _ => return Err(format!("cuDNN does not say how exact its {} is", activation.name()).into()),
        }
        let bias = slot("bias");
        if let Some(bias) = bias {
            let (got, dtype) = (bias.desc.dtype(), y.desc.dtype());
            if got != dtype {
                return Err(format!("it adds a bias of the type of y, {dtype}; got {got}").into());
            }
            if !bias.desc.is_contiguous() {
                return Err(format!("it takes a dense bias, got stride {}", bias.desc.strides()[0]).into());
            }
        }

        // 2. Where the operands lie.
        let operands = [x, weight, y];
        for slot in operands.into_iter().chain(bias) {
            if slot.desc.is_empty() {
                return Err(
                    format!("cuDNN takes no tensor without elements, {} is {:?}", slot.name, slot.desc.dims()).into()
                );
            }
            let (elements, limit) = (slot.desc.elements(), i32::MAX.unsigned_abs());
            if elements > u64::from(limit) {
                return Err(format!("it takes tensors of {limit} elements, {} has {elements}", slot.name).into());
            }
        }
        let [x_lies, weight_lies, y_lies] = operands.map(Lie::of);
        let lies = [x_lies?, weight_lies?, y_lies?];
        // What lies both ways is said to lie as the others do.
        let other = if lies.contains(&Lie::ChannelsLast) { Lie::ChannelsLast } else { Lie::Contiguous };
        let [x_tensor, weight_tensor, y_tensor] = [0, 1, 2].map(|i| {
            let lie = if lies[i] == Lie::Both { other } else { lies[i] };
            tensor(&operands[i].desc, operands[i].desc.dims(), lie)
        });
        let bias_tensor = bias.map(|slot| {
            let mut dims = vec![1; x.desc.rank()];
            dims[1] = slot.desc.elements();
            tensor(&slot.desc, &dims, other)
        });

        // 3. Which elements meet: in each op one of the three is gathered.
        let rank = x_tensor.rank;
        let spatial = rank - 2;
        let kernel = &weight_tensor.dims[2..rank];
        let mut windows = [Window::NONE; MAX_AXES];
        for (at, axis) in contraction.gathered.axes[MAX_AXES - spatial..].iter().enumerate() {
            let window = Window::new(D::PASS, axis);
            let (input, output) = (x_tensor.dims[2 + at], y_tensor.dims[2 + at]);
            windows[at] = Window { after: window.padding_after(input, kernel[at], output), ..window };
        }
        let limit = options.workspace_limit.unwrap_or(WORKSPACE_BYTES);
        let problem = Problem {
            pass: D::PASS,
            rank,
            x: x_tensor,
            weight: weight_tensor,
            y: y_tensor,
            bias: bias_tensor,
            relu: activation == Activation::Relu,
            stride: windows.map(|window| window.stride),
            dilation: windows.map(|window| window.dilation),
            before: windows.map(|window| window.before),
            after: windows.map(|window| window.after),
            beta,
            tensor_cores: dtype != DType::F32 || options.math == Math::Tf32,
            is_reproducible: options.determinism != Determinism::Any,
            workspace_bytes: limit / WORKSPACE_ALIGN * WORKSPACE_ALIGN,
        };
        Ok(Self { dtype, problem, indices: operands.map(|slot| slot.index), bias: bias.map(|slot| slot.index) })
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let plan = device.cudnn()?.plan(device, &self.problem)?;
        let used = plan.workspace_bytes().next_multiple_of(WORKSPACE_ALIGN);
        let [x, weight, y] = self.indices;
        let bias = self.bias;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let address = |index: usize| located.operands[index].address() as *mut c_void;
            let at = Operands {
                x: address(x),
                weight: address(weight),
                y: address(y),
                bias: bias.map_or(ptr::null_mut(), address),
                workspace: located.workspace.address() as *mut c_void,
            };
            // SAFETY: the generic check proved every operand's span and alignment, and that the workspace holds what the plan uses.
            unsafe { plan.launch(&at, stream) }
        };
        let launch = Launch { call: "cudnnBackendExecute", launch: Box::new(start), workspace: Some(workspace(used)) };
        Ok(Built(Exec::Cuda(launch)))
    }
}

/// How a dense tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Contiguous,
    ChannelsLast,
    /// With one channel, or one spatial position.
    Both,
}

impl Lie {
    fn of(slot: &Slot) -> Result<Self, Reason> {
        let desc = &slot.desc;
        let last = TensorDesc::channels_last(desc.dtype(), desc.dims()).is_ok_and(|last| {
            let pairs = desc.strides().iter().zip(last.strides());
            pairs.zip(desc.dims()).all(|((stride, last), &dim)| dim == 1 || stride == last)
        });
        match (desc.is_contiguous(), last) {
            (true, true) => Ok(Self::Both),
            (true, false) => Ok(Self::Contiguous),
            (false, true) => Ok(Self::ChannelsLast),
            (false, false) => {
                let (name, strides) = (slot.name, desc.strides());
                Err(format!("{name} is neither contiguous nor channels-last: strides {strides:?}").into())
            }
        }
    }
}

/// A dense tensor of the type and alignment of `of`, with two spatial extents at least.
fn tensor(of: &TensorDesc, dims: &[u64], lie: Lie) -> Tensor {
    let missing = 4usize.saturating_sub(dims.len());
    let rank = dims.len() + missing;
    let mut extents = [1; MAX_RANK];
    for (axis, &dim) in dims.iter().enumerate() {
        extents[if axis < 2 { axis } else { axis + missing }] = signed(dim);
    }
    // From the extent that is walked slowest to the fastest.
    let mut order: Vec<usize> = (0..rank).collect();
    if lie == Lie::ChannelsLast {
        order[1..].rotate_left(1);
    }
    let (mut strides, mut step) = ([1; MAX_RANK], 1i64);
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step = step.saturating_mul(extents[axis]);
    }
    let align_bytes = signed(of.align_bytes().min(MOST_ALIGN_BYTES));
    Tensor { dtype: of.dtype(), rank, dims: extents, strides, align_bytes }
}

/// How the kernel moves along one spatial extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    stride: i64,
    dilation: i64,
    before: i64,
    after: i64,
}

impl Window {
    const NONE: Self = Self { stride: 1, dilation: 1, before: 0, after: 0 };

    /// That of an extent of the gathered operand, without the padding after it.
    fn new(pass: Pass, axis: &Axis) -> Self {
        let Axis { of_row, of_term, offset, divisor, .. } = *axis;
        match pass {
            Pass::Forward => Self { stride: of_row, dilation: of_term, before: -offset, after: 0 },
            Pass::Data => Self { stride: signed(divisor), dilation: -of_term, before: offset, after: 0 },
            Pass::Weight => Self { stride: of_term, dilation: of_row, before: -offset, after: 0 },
        }
    }

    /// A padding after the extent with which the output has the extent it has: as much as before if it can be, which more engines serve, else the
    /// least.
    fn padding_after(self, input: i64, kernel: i64, output: i64) -> i64 {
        let Self { stride, dilation, before, .. } = self;
        let reach = dilation * (kernel - 1);
        if (input + 2 * before - reach - 1).div_euclid(stride) + 1 == output {
            return before;
        }
        ((output - 1) * stride + reach + 1 - input - before).max(0)
    }
}
