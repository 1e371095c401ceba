//! Convolutions through cuDNN: the problem in its terms, and what it leaves to kernels of this library.
//!
//! One launch computes a product, adds the previous contents of a gradient and, in forward, a bias of y's type. cuDNN applies ReLU only by engines that are slow
//! if NaN has to propagate, and does not say how exact its other activations are. A problem with one spatial extent is stated with two, of which the first
//! is 1.

use std::ffi::c_void;

use super::is_left_to_gemm;
use crate::backend::cuda::cublaslt::version_words;
use crate::backend::cuda::cudnn::conv::ConvProblem;
use crate::backend::cuda::cudnn::{At, MAX_RANK, Tensor, WORKSPACE_BYTES};
use crate::backend::cuda::reach::{check_reach, sum_of_products};
use crate::backend::cuda::{self, Launch, Props};
use crate::backend::{Device, DeviceProps, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, BuildError, Built, Candidate, Exec};
use crate::narrow::signed;
use crate::ops::activation::Activation;
use crate::ops::conv::geometry::Contracting;
use crate::ops::conv::{MAX_AXES, Pass, SpatialAxis, table};
use crate::ops::gemm::cuda::{WORKSPACE_ALIGN, workspace};
use crate::ops::gemm::geometry::Epilogue;
use crate::options::{Determinism, Math, PlanOptions};
use crate::slots::Slot;
use crate::tensor::TensorDesc;

/// The greatest alignment that engines ask for.
const MOST_ALIGN_BYTES: u64 = 16;

/// The library and its version.
pub(super) fn library(device: &Device) -> Option<String> {
    let version = cuda::Device::of(device).ok()?.cudnn().ok()?.version();
    Some(format!("cuDNN {}", version_words(version)))
}

pub(super) fn candidate<'d, D: Contracting>(
    descriptor: &'d D,
    options: &PlanOptions,
    props: &DeviceProps,
    ask: Ask,
) -> Accepted<'d> {
    Props::of(props)?;
    let planned = Planned::new(descriptor, options, ask)?;
    Reason::unless(
        ask.is_pinned() || !is_left_to_gemm(&descriptor.contraction(), options, props),
        || "it leaves products of matrices of f32 to kernels of gemm, which are faster",
    )?;
    Ok(Candidate {
        workspace: workspace(planned.problem.workspace_bytes),
        math: if planned.dtype == DType::F32 { options.math } else { Math::Strict },
        determinism: options.determinism.min(Determinism::RunToRun),
        ..Candidate::new(planned.problem, move |device| planned.build(device))
    })
}

/// A problem, and the positions of its operands.
struct Planned {
    /// The type of the factors.
    dtype: DType,
    problem: ConvProblem,
    /// Positions of the tensors with the extents of x, of the weight and of y.
    indices: [usize; 3],
    bias: Option<usize>,
}

impl Planned {
    fn new<D: Contracting>(descriptor: &D, options: &PlanOptions, ask: Ask) -> Result<Self, Reason> {
        let contraction = descriptor.contraction();
        let pass = contraction.pass;
        let slots = &descriptor.valid().slots;
        let [x, weight, y] = pass.tensors().map(|row| slots.always(row));
        let (factors, written) = match pass {
            Pass::Forward => ([x, weight], y),
            Pass::Data => ([weight, y], x),
            Pass::Weight => ([x, y], weight),
        };
        let [dtype, other] = factors.map(|factor| factor.desc.dtype());
        Reason::unless(other == dtype, || format!("it multiplies factors of one type, got {dtype} and {other}"))?;

        // 1. The epilogue.
        let Epilogue { activation, beta, .. } = contraction.epilogue;
        Reason::unless(beta == 0.0 || written.desc.dtype().size_bytes() >= 4, || {
            let (name, dtype) = (written.name, written.desc.dtype());
            format!("sums that cuDNN adds to {name} err as if they were first rounded to {dtype}")
        })?;
        Reason::unless(slots.at(table::PRE).is_none(), || "it writes y only, not what the activation is applied to")?;
        match activation {
            Activation::Identity => {}
            Activation::Relu if ask.is_pinned() => {}
            Activation::Relu => return Err("with ReLU, which has to keep NaN, cuDNN has slow engines only".into()),
            _ => return Err(format!("cuDNN does not say how exact its {} is", activation.name()).into()),
        }
        let bias = slots.at(table::BIAS);
        if let Some(bias) = bias {
            let (got, dtype) = (bias.desc.dtype(), y.desc.dtype());
            Reason::unless(got == dtype, || format!("it adds a bias of the type of y, {dtype}; got {got}"))?;
            Reason::unless(bias.desc.is_contiguous(), || {
                format!("it takes a dense bias, got stride {}", bias.desc.strides()[0])
            })?;
        }

        // 2. The layouts of the operands.
        let operands = [x, weight, y];
        for slot in operands.into_iter().chain(bias) {
            Reason::unless(!slot.desc.is_empty(), || {
                format!("cuDNN takes no tensor without elements, {} is {:?}", slot.name, slot.desc.dims())
            })?;
            // Dense tensors without gaps: no extent, stride or offset exceeds this.
            check_reach(slot.desc.elements(), || format!("the number of elements of {}", slot.name))?;
        }
        let [x_lies, weight_lies, y_lies] = operands.map(Lie::of);
        let lies = [x_lies?, weight_lies?, y_lies?];
        // Tensors that have both layouts are stated with the layout of the others.
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

        // 3. The windows.
        let rank = x_tensor.rank;
        let spatial = rank - 2;
        let kernel = &weight_tensor.dims[2..rank];
        let mut windows = [SymmetricWindow::NONE; MAX_AXES];
        for (at, axis) in contraction.shape.axes[MAX_AXES - spatial..].iter().enumerate() {
            check_axis(axis, (at + contraction.shape.rank).saturating_sub(spatial))?;
            let window = SymmetricWindow::new(axis);
            let (input, output) = (x_tensor.dims[2 + at], y_tensor.dims[2 + at]);
            // With uneven padding, engines for the gradient of the weight were seen to give wrong sums, and NaN, in f32 and f64.
            let outputs = window.outputs(input, kernel[at]);
            Reason::unless(outputs == output, || {
                let before = window.padding;
                format!(
                    "its engines are not right about uneven padding; with {before} on both sides of {input} there are {outputs} outputs, not {output}"
                )
            })?;
            windows[at] = window;
        }
        // With results of another type, engines were seen to give NaN that differed from run to run with several groups, and wrong sums with a beta.
        Reason::unless(written.desc.dtype() == dtype, || {
            format!("its engines for {dtype} are not right about results in {}", written.desc.dtype())
        })?;
        let has_tensor_cores = dtype != DType::F32 || options.math == Math::Tf32;
        // Seen with f16 and bf16: groups share a product, in which the weights of other groups are 0, and 0 times NaN is NaN.
        let groups = contraction.groups;
        Reason::unless(pass != Pass::Data || groups <= 1 || !has_tensor_cores || dtype == DType::F64, || {
            format!("its engines let NaN and infinity of one of {groups} groups reach the others")
        })?;
        let limit = options.workspace_limit.unwrap_or(WORKSPACE_BYTES);
        let problem = ConvProblem {
            pass,
            rank,
            x: x_tensor,
            weight: weight_tensor,
            y: y_tensor,
            bias: bias_tensor,
            relu: activation == Activation::Relu,
            stride: windows.map(|window| window.stride),
            dilation: windows.map(|window| window.dilation),
            padding: windows.map(|window| window.padding),
            beta,
            tensor_cores: has_tensor_cores,
            is_reproducible: options.determinism != Determinism::Any,
            workspace_bytes: limit / WORKSPACE_ALIGN * WORKSPACE_ALIGN,
        };
        Ok(Self { dtype, problem, indices: operands.map(|slot| slot.index), bias: bias.map(|slot| slot.index) })
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let plan = device.cudnn()?.plan(device, &self.problem)?;
        let launches = plan.launches();
        let used = plan.workspace_bytes().next_multiple_of(WORKSPACE_ALIGN);
        let [x, weight, y] = self.indices;
        let bias = self.bias;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let tensors = [x, weight, y, bias.unwrap_or(y)].map(|index| located.pointer(index));
            let count = if bias.is_some() { tensors.len() } else { tensors.len() - 1 };
            let at = At { tensors: &tensors[..count], workspace: located.workspace_pointer() };
            // SAFETY: the generic check proved every operand's span and alignment, and that the workspace holds what the plan uses.
            unsafe { plan.launch(&at, stream) }
        };
        let launch = Launch {
            workspace: Some(workspace(used)),
            launches: Some(launches),
            ..Launch::new("cudnnBackendExecute", start)
        };
        Ok(Built(Exec::Cuda(launch)))
    }
}

/// Bounds the coordinates along one axis: strides and dilations with extents one larger, since kernels count on before they compare.
fn check_axis(axis: &SpatialAxis, at: usize) -> Result<(), Reason> {
    let SpatialAxis { input, kernel, output, stride, dilation, before } = *axis;
    let reach = sum_of_products([[1, input], [2, before], [stride, output], [dilation, kernel]]);
    check_reach(reach, || {
        format!(
            "input + 2 * padding + stride * output + dilation * kernel = {input} + 2 * {before} + {stride} * {output} + {dilation} * {kernel} along axis {at}"
        )
    })
}

/// The layout of a dense tensor.
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

/// A dense tensor with the type and the alignment of `of`, and with at least two spatial extents.
fn tensor(of: &TensorDesc, dims: &[u64], lie: Lie) -> Tensor {
    let missing = 4usize.saturating_sub(dims.len());
    let rank = dims.len() + missing;
    let mut extents = [1; MAX_RANK];
    for (axis, &dim) in dims.iter().enumerate() {
        extents[if axis < 2 { axis } else { axis + missing }] = signed(dim);
    }
    // The slowest extent first.
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

/// How the kernel moves along one spatial extent, with equal padding on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SymmetricWindow {
    stride: i64,
    dilation: i64,
    padding: i64,
}

impl SymmetricWindow {
    const NONE: Self = Self { stride: 1, dilation: 1, padding: 0 };

    fn new(axis: &SpatialAxis) -> Self {
        let [stride, dilation, padding] = [axis.stride, axis.dilation, axis.before].map(signed);
        Self { stride, dilation, padding }
    }

    fn outputs(self, input: i64, kernel: i64) -> i64 {
        let Self { stride, dilation, padding } = self;
        (input + 2 * padding - dilation * (kernel - 1) - 1).div_euclid(stride) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConvForm;
    use super::*;
    use crate::ConvWindow;
    use crate::kernel::Kernel;
    use crate::ops::conv::ConvDescriptor;

    fn contiguous(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    fn channels_last(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::channels_last(dtype, dims).unwrap()
    }

    fn planned<D: Contracting>(descriptor: &D) -> Planned {
        Planned::new(descriptor, &PlanOptions::default(), Ask::Chosen).map_err(|reason| reason.to_string()).unwrap()
    }

    fn refusal<D: Contracting>(descriptor: &D) -> String {
        Planned::new(descriptor, &PlanOptions::default(), Ask::Chosen).err().unwrap().to_string()
    }

    fn h200() -> DeviceProps {
        DeviceProps::Cuda(Props::examples().find(|props| props.name == "H200").unwrap())
    }

    /// Rank, extents and strides.
    fn lies(tensor: &Tensor) -> (usize, &[i64], &[i64]) {
        (tensor.rank, &tensor.dims[..tensor.rank], &tensor.strides[..tensor.rank])
    }

    #[test]
    fn one_spatial_extent_is_told_as_two() {
        let window = ConvWindow::new().dilation(&[2]).padding(&[4]).groups(6);
        let (x, weight) = (contiguous(DType::BF16, &[2, 6, 50]), contiguous(DType::BF16, &[6, 1, 5]));
        let forward = ConvDescriptor::new(x, weight, window.clone()).unwrap().bias(DType::BF16).unwrap();
        let Planned { problem, indices, bias, .. } = planned(&forward);
        assert_eq!((indices, bias), ([table::X, table::WEIGHT, table::Y], Some(table::BIAS)));
        assert_eq!(lies(&problem.x), (4, &[2, 6, 1, 50][..], &[300, 50, 50, 1][..]));
        assert_eq!(lies(&problem.weight), (4, &[6, 1, 1, 5][..], &[5, 5, 5, 1][..]));
        assert_eq!(lies(&problem.y), (4, &[2, 6, 1, 50][..], &[300, 50, 50, 1][..]));
        assert_eq!(lies(&problem.bias.unwrap()), (4, &[1, 6, 1, 1][..], &[6, 1, 1, 1][..]));
        let ConvProblem { stride, dilation, padding, .. } = problem;
        assert_eq!([stride, dilation, padding], [[1, 1, 1], [1, 2, 1], [0, 4, 0]]);
        assert!(problem.tensor_cores && problem.is_reproducible && !problem.relu);

        // The weight of a depthwise convolution lies both ways.
        let x = channels_last(DType::BF16, &[2, 6, 50]);
        let Planned { problem, .. } = planned(&ConvDescriptor::new(x, weight, window).unwrap());
        assert_eq!(lies(&problem.x), (4, &[2, 6, 1, 50][..], &[300, 1, 300, 6][..]));
        assert_eq!(lies(&problem.weight), (4, &[6, 1, 1, 5][..], &[5, 1, 5, 1][..]));
        assert_eq!(lies(&problem.y), (4, &[2, 6, 1, 50][..], &[300, 1, 300, 6][..]));
    }

    #[test]
    fn all_three_products_are_told_the_same_extents_and_windows() {
        let window = ConvWindow::new().stride(&[2, 1]).dilation(&[1, 3]).padding_per_side(&[[1, 0], [4, 4]]).groups(2);
        let (x, weight) = (channels_last(DType::F32, &[2, 6, 7, 8]), channels_last(DType::F32, &[10, 3, 2, 3]));
        let forward = ConvDescriptor::new(x, weight, window).unwrap();
        let data = forward.backward_data().unwrap().beta(0.5).unwrap();
        let weight = forward.backward_weight().unwrap().beta(2.0).unwrap();
        let plans = [planned(&forward), planned(&data), planned(&weight)];
        for Planned { problem, .. } in &plans {
            assert_eq!(lies(&problem.x), (4, &[2, 6, 7, 8][..], &[336, 1, 48, 6][..]));
            assert_eq!(lies(&problem.weight), (4, &[10, 3, 2, 3][..], &[18, 1, 9, 3][..]));
            assert_eq!(lies(&problem.y), (4, &[2, 10, 4, 10][..], &[400, 1, 100, 10][..]));
            let ConvProblem { stride, dilation, padding, tensor_cores, .. } = *problem;
            // Padding behind the rows, as before them, makes no more of them.
            assert_eq!([stride, dilation, padding], [[2, 1, 1], [1, 3, 1], [1, 4, 0]]);
            assert!(!tensor_cores);
        }
        let [forward, data, weight] = plans;
        assert_eq!([forward.problem.beta, data.problem.beta, weight.problem.beta], [0.0, 0.5, 2.0]);
        // dx and dy of the one, dweight of the other, wherever a run finds them.
        assert_eq!(data.indices, [table::DX, table::WEIGHT, table::DY]);
        assert_eq!(weight.indices, [table::X, table::DWEIGHT, table::DY]);
        assert_eq!(forward.indices, [table::X, table::WEIGHT, table::Y]);
    }

    #[test]
    fn padding_is_even_or_refused() {
        let padded = |input: u64, kernel: u64, stride: u64, padding: [u64; 2]| {
            let (x, weight) = (contiguous(DType::F32, &[1, 2, input]), contiguous(DType::F32, &[2, 2, kernel]));
            let window = ConvWindow::new().stride(&[stride]).padding_per_side(&[padding]);
            ConvDescriptor::new(x, weight, window).unwrap()
        };
        // Padding behind the rows, as before them, makes no more of them.
        for padding in [[1, 1], [1, 0]] {
            let Planned { problem, .. } = planned(&padded(56, 3, 2, padding));
            assert_eq!((problem.padding[1], problem.y.dims[3]), (1, 28));
        }
        for (input, stride, padding, told) in [
            (56, 1, [1, 0], "with 1 on both sides"),
            (56, 1, [0, 2], "54 outputs, not 56"),
            (10, 4, [2, 6], "with 2 on"),
        ] {
            assert!(refusal(&padded(input, 3, stride, padding)).contains(told));
        }
    }

    #[test]
    fn refusals_name_the_limit() {
        let pair = |dtype| (contiguous(dtype, &[2, 4, 9, 9]), contiguous(dtype, &[8, 4, 3, 3]));
        let bare = |(x, weight)| ConvDescriptor::new(x, weight, ConvWindow::new()).unwrap();
        let forward = bare(pair(DType::BF16));
        assert!(refusal(&forward.clone().pre(DType::F32).unwrap()).contains("y only"));
        assert!(refusal(&forward.clone().activation(Activation::Silu).unwrap()).contains("silu"));
        assert!(refusal(&forward.clone().bias(DType::F32).unwrap()).contains("bf16; got f32"));
        let relu = forward.clone().activation(Activation::Relu).unwrap();
        assert!(refusal(&relu).contains("NaN"));
        assert!(Planned::new(&relu, &PlanOptions::default(), Ask::Pinned).unwrap().problem.relu);
        let spread = TensorDesc::strided(DType::BF16, &[2, 4, 9, 9], &[400, 100, 11, 1]).unwrap();
        let spread = forward.clone().layout("x", spread).unwrap();
        assert!(refusal(&spread).contains("neither contiguous nor channels-last: strides [400, 100, 11, 1]"));
        let wide = forward.clone().y(DType::F32).unwrap().backward_data().unwrap();
        assert!(refusal(&wide).contains("one type, got bf16 and f32"));
        let grouped = ConvDescriptor::new(
            contiguous(DType::BF16, &[1, 24, 5, 6]),
            contiguous(DType::BF16, &[48, 8, 3, 3]),
            ConvWindow::new().groups(3),
        );
        assert!(refusal(&grouped.unwrap().y(DType::F32).unwrap()).contains("results in f32"));
        let (_, weight) = pair(DType::F32);
        assert!(refusal(&bare((contiguous(DType::F32, &[0, 4, 9, 9]), weight))).contains("without elements, x"));
        let long = contiguous(DType::F32, &[1 << 14, 4, 256, 256]);
        assert!(refusal(&bare((long, weight))).contains("up to 2147483647, the number of elements of x is 4294967296"));
    }

    #[test]
    fn coordinates_beyond_31_bits_are_refused_in_every_pass() {
        const MOST: u64 = (1 << 31) - 1;
        let conv = |kernel: u64, window: ConvWindow| {
            let (x, weight) = (contiguous(DType::F32, &[2, 2, 3]), contiguous(DType::F32, &[4, 2, kernel]));
            ConvDescriptor::new(x, weight, window).unwrap()
        };
        let window = ConvWindow::new;
        let far = 1 << 30;
        for (forward, told) in [
            (
                conv(1, window().stride(&[MOST]).padding_per_side(&[[MOST, MOST - 1]])),
                "3 + 2 * 2147483647 + 2147483647 * 3 + 1 * 1 along axis 0 is 10737418239",
            ),
            (
                conv(2, window().stride(&[far]).dilation(&[far]).padding(&[far])),
                "3 + 2 * 1073741824 + 1073741824 * 2 + 1073741824 * 2 along axis 0 is 6442450947",
            ),
            (conv(1, window().stride(&[MOST])), "3 + 2 * 0 + 2147483647 * 1 + 1 * 1 along axis 0 is 2147483651"),
        ] {
            let data = refusal(&forward.backward_data().unwrap());
            let weight = refusal(&forward.backward_weight().unwrap());
            for reason in [refusal(&forward), data, weight] {
                assert!(reason.contains("numbers up to 2147483647") && reason.contains(told), "{reason}");
            }
        }
        let taken = conv(1, window().stride(&[1 << 28]).padding(&[1 << 28]));
        assert_eq!(planned(&taken).problem.stride[1], 1 << 28);
    }

    #[test]
    fn it_comes_first_and_reports_what_the_options_let_it_do() {
        let (x, weight) = (contiguous(DType::F32, &[2, 4, 9, 9]), contiguous(DType::F32, &[8, 4, 3, 3]));
        let forward = ConvDescriptor::new(x, weight, ConvWindow::new()).unwrap();
        let options = PlanOptions::default();
        assert_eq!(h200().supports(&forward, &options).unwrap(), "conv_cudnn");
        let data = forward.backward_data().unwrap();
        assert_eq!(h200().supports(&data, &options).unwrap(), "conv_backward_data_cudnn");
        let weight = forward.backward_weight().unwrap();
        assert_eq!(h200().supports(&weight, &options).unwrap(), "conv_backward_weight_cudnn");
        let accepted = |options: PlanOptions| {
            let candidate = ConvForm::Cudnn.accept(&forward, &options, &h200(), Ask::Chosen).unwrap();
            (candidate.workspace.bytes, candidate.math, candidate.determinism)
        };
        assert_eq!(accepted(options), (256 << 20, Math::Strict, Determinism::RunToRun));
        let loose = PlanOptions::default().math(Math::Tf32).determinism(Determinism::Any).workspace_limit(1000);
        assert_eq!(accepted(loose), (768, Math::Tf32, Determinism::Any));
        assert_eq!(accepted(PlanOptions::default().workspace_limit(255)).0, 0);
        let half = ConvDescriptor::new(
            contiguous(DType::F16, &[2, 4, 9, 9]),
            contiguous(DType::F16, &[8, 4, 3, 3]),
            ConvWindow::new(),
        );
        let tf32 = PlanOptions::default().math(Math::Tf32);
        assert_eq!(
            ConvForm::Cudnn.accept(&half.unwrap(), &tf32, &h200(), Ask::Chosen).map(|c| c.math).ok(),
            Some(Math::Strict)
        );
    }
}
