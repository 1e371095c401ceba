//! Convolutions: the convolution, and in forward what is added to it and applied to it. The engine is one that [`ERRATA`] do not name.
//!
//! Source: as [`super`]; for [`ERRATA`] pytorch/pytorch#188288.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use super::{
    Child, DataType, Descriptor, Failure, Functions, GRAPH_HANDLE, GRAPH_OPERATIONS, Graph, MAX_RANK,
    NOTE_STRICT_NAN_PROPAGATION, Number, OPERATION_GRAPH, POINTWISE, POINTWISE_ADD, POINTWISE_MATH_PRECISION,
    POINTWISE_MODE, POINTWISE_OPERATION, POINTWISE_OPERATION_B, POINTWISE_OPERATION_DESC, POINTWISE_OPERATION_X,
    POINTWISE_OPERATION_Y, Pointer, PointwiseMode, Problem, Tensor, Tensors, Traits, data_type, tensor,
};
use crate::dtype::DType;
use crate::narrow::single;
use crate::ops::conv::pass::Pass;

// Numbers of cudnn_graph.h. Descriptors:
const CONVOLUTION: c_int = 1;
const CONVOLUTION_FORWARD: c_int = 10;
const CONVOLUTION_BACKWARD_FILTER: c_int = 11;
const CONVOLUTION_BACKWARD_DATA: c_int = 12;
// Attributes:
const POINTWISE_NAN_PROPAGATION: c_int = 2;
const CONVOLUTION_COMPUTE_TYPE: c_int = 100;
const CONVOLUTION_MODE: c_int = 101;
const CONVOLUTION_DILATIONS: c_int = 102;
const CONVOLUTION_STRIDES: c_int = 103;
const CONVOLUTION_POST_PADDINGS: c_int = 104;
const CONVOLUTION_PRE_PADDINGS: c_int = 105;
const CONVOLUTION_SPATIAL_DIMS: c_int = 106;
/// Of the forward convolution alpha; beta, the convolution, the weight, x and y follow.
const FORWARD_ALPHA: c_int = 700;
/// As [`FORWARD_ALPHA`], of the gradient of the data, which is x there, and of y.
const DATA_ALPHA: c_int = 706;
/// As [`FORWARD_ALPHA`], of the gradient of the weight, which is the weight there, and of y.
const FILTER_ALPHA: c_int = 712;
// Values:
const CROSS_CORRELATION: Number<7> = Number(1);
const POINTWISE_RELU: PointwiseMode = Number(100);
const PROPAGATE_NAN: Number<10> = Number(1);

/// Numbers of tensors in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    X = 1,
    Weight,
    Y,
    Bias,
    /// The sums of the convolution, before anything is added.
    Sum,
    /// The value that ReLU is applied to.
    Pre,
}

/// A convolution: `out = result + beta * out`, where forward may add a bias and apply ReLU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConvProblem {
    pub(crate) pass: Pass,
    /// Extents of each operand but the bias; all have the same rank.
    pub(crate) rank: usize,
    /// The type of x, or of its gradient if that is computed. The two fields after this one likewise have the types of weight and y, or of their
    /// gradients.
    pub(crate) x: Tensor,
    pub(crate) weight: Tensor,
    pub(crate) y: Tensor,
    pub(crate) bias: Option<Tensor>,
    pub(crate) relu: bool,
    /// One for each spatial extent, of which there are two fewer than the rank; the two fields after this one have as many.
    pub(crate) stride: [i64; MAX_RANK - 2],
    pub(crate) dilation: [i64; MAX_RANK - 2],
    /// Padding on both sides.
    pub(crate) padding: [i64; MAX_RANK - 2],
    pub(crate) beta: f64,
    /// Whether tensor cores may multiply. They round f32 to tf32.
    pub(crate) tensor_cores: bool,
    /// Whether every run must compute the same bits.
    pub(crate) is_reproducible: bool,
    pub(crate) workspace_bytes: u64,
}

impl ConvProblem {
    /// What sums are made in.
    fn sum_type(&self) -> DType {
        self.x.dtype.accumulator()
    }

    fn compute_type(&self) -> DataType {
        data_type(self.sum_type())
    }
}

impl Problem for ConvProblem {
    fn name(&self) -> &'static str {
        match self.pass {
            Pass::Forward => "convolution",
            Pass::Data => "gradient of the data",
            Pass::Weight => "gradient of the weight",
        }
    }

    /// The operands are x, the weight, y and, where there is one, the bias.
    fn graph(&self, functions: &Arc<Functions>, handle: *mut c_void) -> Result<Graph, Failure> {
        let problem = self;
        let compute = problem.compute_type();
        // 1. What has memory, and what lies between operations.
        let of = |id: Id, is: &Tensor| tensor(functions, id as i64, is, false, false);
        let x = of(Id::X, &problem.x)?;
        let weight = of(Id::Weight, &problem.weight)?;
        let y = of(Id::Y, &problem.y)?;
        let bias = problem.bias.as_ref().map(|bias| of(Id::Bias, bias)).transpose()?;
        let between = |id: Id| {
            let sums = Tensor { dtype: problem.sum_type(), ..problem.y };
            tensor(functions, id as i64, &sums, true, false)
        };
        let sum = if bias.is_some() || problem.relu { Some(between(Id::Sum)?) } else { None };
        let pre = if bias.is_some() && problem.relu { Some(between(Id::Pre)?) } else { None };
        let mut parts = Vec::new();
        // 2. The convolution.
        let window = Descriptor::new(functions, CONVOLUTION)?;
        let count = problem.rank.saturating_sub(2).min(MAX_RANK - 2);
        let spatial = i64::try_from(count).unwrap_or(0);
        window.set(CONVOLUTION_COMPUTE_TYPE, &[compute])?;
        window.set(CONVOLUTION_MODE, &[CROSS_CORRELATION])?;
        window.set(CONVOLUTION_SPATIAL_DIMS, &[spatial])?;
        window.set(CONVOLUTION_DILATIONS, &problem.dilation[..count])?;
        window.set(CONVOLUTION_STRIDES, &problem.stride[..count])?;
        window.set(CONVOLUTION_PRE_PADDINGS, &problem.padding[..count])?;
        window.set(CONVOLUTION_POST_PADDINGS, &problem.padding[..count])?;
        let window = window.finalized()?;
        let (kind, alpha) = match problem.pass {
            Pass::Forward => (CONVOLUTION_FORWARD, FORWARD_ALPHA),
            Pass::Data => (CONVOLUTION_BACKWARD_DATA, DATA_ALPHA),
            Pass::Weight => (CONVOLUTION_BACKWARD_FILTER, FILTER_ALPHA),
        };
        let convolution = Descriptor::new(functions, kind)?;
        if problem.sum_type() == DType::F64 {
            convolution.set(alpha, &[1.0f64])?;
            convolution.set(alpha + 1, &[problem.beta])?;
        } else {
            convolution.set(alpha, &[1.0f32])?;
            convolution.set(alpha + 1, &[single(problem.beta)])?;
        }
        convolution.set(alpha + 2, &[window.child()])?;
        convolution.set(alpha + 3, &[weight.child()])?;
        convolution.set(alpha + 4, &[x.child()])?;
        convolution.set(alpha + 5, &[sum.as_ref().unwrap_or(&y).child()])?;
        let mut operations = vec![convolution.finalized()?];
        // 3. What is added to the result and applied to it.
        let mut pointwise = |mode, x: &Descriptor, bias: Option<&Descriptor>, to: &Descriptor| {
            let function = Descriptor::new(functions, POINTWISE)?;
            function.set(POINTWISE_MODE, &[mode])?;
            function.set(POINTWISE_MATH_PRECISION, &[compute])?;
            if mode == POINTWISE_RELU {
                function.set(POINTWISE_NAN_PROPAGATION, &[PROPAGATE_NAN])?;
            }
            let function = function.finalized()?;
            let operation = Descriptor::new(functions, POINTWISE_OPERATION)?;
            operation.set(POINTWISE_OPERATION_DESC, &[function.child()])?;
            operation.set(POINTWISE_OPERATION_X, &[x.child()])?;
            if let Some(bias) = bias {
                operation.set(POINTWISE_OPERATION_B, &[bias.child()])?;
            }
            operation.set(POINTWISE_OPERATION_Y, &[to.child()])?;
            operations.push(operation.finalized()?);
            parts.push(function);
            Ok::<_, Failure>(())
        };
        if let (Some(bias), Some(sum)) = (&bias, &sum) {
            pointwise(POINTWISE_ADD, sum, Some(bias), pre.as_ref().unwrap_or(&y))?;
        }
        if let (true, Some(last)) = (problem.relu, pre.as_ref().or(sum.as_ref())) {
            pointwise(POINTWISE_RELU, last, None, &y)?;
        }
        // 4. The whole graph.
        let graph = Descriptor::new(functions, OPERATION_GRAPH)?;
        let children: Vec<Child> = operations.iter().map(Descriptor::child).collect();
        graph.set(GRAPH_HANDLE, &[Pointer::<0>(handle)])?;
        graph.set(GRAPH_OPERATIONS, &children)?;
        let whole = graph.finalized()?;
        parts.extend(operations);
        parts.push(window);
        parts.extend([x, weight, y].into_iter().chain(bias).chain(sum).chain(pre));
        let operands = [
            (Id::X, Some(&problem.x)),
            (Id::Weight, Some(&problem.weight)),
            (Id::Y, Some(&problem.y)),
            (Id::Bias, problem.bias.as_ref()),
        ];
        let mut tensors = Tensors::default();
        for (id, operand) in operands {
            if let Some(operand) = operand {
                tensors.ids.push(id as i64);
                tensors.spans.push(operand.span_bytes());
            }
        }
        Ok(Graph { whole, tensors, _parts: parts })
    }

    fn admits(&self, engine: &Traits, capability: u32, version: usize) -> bool {
        let bars = |erratum: &Erratum| {
            let Erratum { pass, engine: index, fault, capabilities, versions } = erratum;
            let is_named = *pass == self.pass && *index == engine.index;
            let matters = match fault {
                Fault::Varies => self.is_reproducible,
                Fault::IsInexact => !self.tensor_cores,
                Fault::LosesInfinity(dtype) => *dtype == self.x.dtype,
            };
            is_named && matters && capabilities.contains(&capability) && versions.contains(&version)
        };
        let keeps_nan = !self.relu || engine.notes().contains(&NOTE_STRICT_NAN_PROPAGATION);
        engine.is_exact(self.tensor_cores, self.is_reproducible) && keeps_nan && !ERRATA.iter().any(bars)
    }

    fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }
}

/// A fault of an engine that no note mentions.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Results differ from run to run.
    Varies,
    /// Results of f32 have about 10 bits.
    IsInexact,
    /// Results of this type are 0 in place of an infinity.
    LosesInfinity(DType),
}

/// An engine with a fault.
struct Erratum {
    pass: Pass,
    engine: i64,
    fault: Fault,
    /// Compute capabilities: major times 10 plus minor.
    capabilities: Range<u32>,
    /// Versions of the library.
    versions: Range<usize>,
}

/// Engines that are known to have such faults.
const ERRATA: &[Erratum] = &[
    Erratum { fault: Fault::Varies, pass: Pass::Forward, engine: 5, capabilities: 86..87, versions: 92300..92400 },
    // Seen with version 9.19 on an H200, with 40 and 131 channels of 2 x 3 elements. It is not known where else it occurs.
    Erratum {
        fault: Fault::IsInexact,
        pass: Pass::Weight,
        engine: 17,
        capabilities: ANY_CAPABILITY,
        versions: ANY_VERSION,
    },
    // Seen with version 9.19 on an H200, channels last, with 3 channels.
    Erratum {
        fault: Fault::LosesInfinity(DType::F16),
        pass: Pass::Forward,
        engine: 47,
        capabilities: ANY_CAPABILITY,
        versions: ANY_VERSION,
    },
];

const ANY_CAPABILITY: Range<u32> = 0..u32::MAX;
const ANY_VERSION: Range<usize> = 0..usize::MAX;
