//! candle-nn's `ops`, of which those below are plans of baracuda-ops, with gradients.
//!
//! Where candle-nn has a function of the name, the arguments are its own. Tensors are f32, f16, bf16 or f64, in any layout; a parameter of a norm, or a
//! bias, may be f32 beside 16 bits. Results are contiguous, of the type of the first tensor. Gradients are rounded once, to the type of what they belong to,
//! and have no gradients themselves.
//!
//! # Errors
//! Where baracuda-ops refuses: [`cause`](crate::cause) tells what. Shapes that do not fit the op, tensors of several devices, or of one that is neither the
//! CPU nor, with the feature `cuda`, of CUDA.

use baracuda_ops::{
    Activation as Function, ActivationDescriptor, AnyDescriptor, AttentionDescriptor, CausalMask, ConvDescriptor,
    ConvWindow, CrossEntropyDescriptor, Descriptor, GemmDescriptor, GemmFactor, GroupNormDescriptor,
    IndexSelectDescriptor, LayerNormDescriptor, PointwiseDescriptor, RmsNormDescriptor, SoftmaxDescriptor, TensorDesc,
    stock,
};
use candle_core::shape::Dim;
use candle_core::{D, DType, Error, Module, Result, Tensor};
use candle_nn::{Activation, Conv1dConfig, Conv2dConfig};

pub use baracuda_ops::LossReduction;
pub use candle_nn::ops::*;

use crate::error::{dtype, refused};
use crate::op::Call;

type Described = baracuda_ops::Result<AnyDescriptor>;

/// The layout of a result of these extents.
fn dense(like: &TensorDesc) -> baracuda_ops::Result<TensorDesc> {
    TensorDesc::contiguous(like.dtype(), like.dims())
}

/// The layout that a descriptor gives an operand, once it is contiguous.
fn dense_slot<D: Descriptor>(descriptor: &D, operand: &str) -> baracuda_ops::Result<Option<TensorDesc>> {
    descriptor.slots().iter().find(|slot| slot.name == operand).map(|slot| dense(&slot.desc)).transpose()
}

/// The named operands of those that are there.
fn present<'a, const N: usize>(operands: [(&'static str, Option<&'a Tensor>); N]) -> Vec<(&'static str, &'a Tensor)> {
    operands.into_iter().filter_map(|(name, tensor)| Some((name, tensor?))).collect()
}

/// LayerNorm over the last extent, with candle-nn's arguments, whose fused op has no gradient.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// let x = Var::new(&[[1f32, 2.0, 4.0]], &Device::Cpu)?;
/// let (weight, bias) = (Tensor::new(&[1f32, 1.0, 1.0], &Device::Cpu)?, Tensor::new(&[0f32, 0.0, 0.0], &Device::Cpu)?);
/// let y = baracuda_candle::ops::layer_norm(&x, &weight, &bias, 1e-5)?;
/// assert!(y.sqr()?.sum_all()?.backward()?.get(&x).is_some());
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// As [all](self).
pub fn layer_norm(xs: &Tensor, alpha: &Tensor, beta: &Tensor, eps: f32) -> Result<Tensor> {
    layer_norm_with(xs, 1, Some(alpha), Some(beta), f64::from(eps))
}

/// LayerNorm over the last `normalized_dims` extents, whose shape weight and bias have: `(x - mean) / sqrt(var + eps) * weight + bias`.
///
/// # Errors
/// As [all](self).
pub fn layer_norm_with(
    xs: &Tensor,
    normalized_dims: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let of = |parameter: Option<&Tensor>| parameter.map(|tensor| dtype("layer_norm", tensor.dtype())).transpose();
    let (of_weight, of_bias) = (of(weight)?, of(bias)?);
    let inputs = present([("x", Some(xs)), ("weight", weight), ("bias", bias)]);
    Call { op: "layer_norm", inputs, constants: Vec::new(), output: "y" }.apply(|descs, saves| -> Described {
        let mut norm = LayerNormDescriptor::new(descs[0], normalized_dims)?.eps(eps)?.y(dense(&descs[0])?)?;
        if let Some(dtype) = of_weight {
            norm = norm.weight(dtype)?;
        }
        if let Some(dtype) = of_bias {
            norm = norm.bias(dtype)?;
        }
        Ok(AnyDescriptor::new(if saves { norm.stats()? } else { norm }))
    })
}

/// RMSNorm over the last extent, with candle-nn's arguments, whose fused op has no gradient.
///
/// # Errors
/// As [all](self).
pub fn rms_norm(xs: &Tensor, alpha: &Tensor, eps: f32) -> Result<Tensor> {
    rms_norm_with(xs, 1, Some(alpha), f64::from(eps))
}

/// RMSNorm over the last `normalized_dims` extents, whose shape the weight has: `x / sqrt(mean(x^2) + eps) * weight`.
///
/// # Errors
/// As [all](self).
pub fn rms_norm_with(xs: &Tensor, normalized_dims: usize, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let of_weight = weight.map(|tensor| dtype("rms_norm", tensor.dtype())).transpose()?;
    let inputs = present([("x", Some(xs)), ("weight", weight)]);
    Call { op: "rms_norm", inputs, constants: Vec::new(), output: "y" }.apply(|descs, saves| -> Described {
        let mut norm = RmsNormDescriptor::new(descs[0], normalized_dims)?.eps(eps)?.y(dense(&descs[0])?)?;
        if let Some(dtype) = of_weight {
            norm = norm.weight(dtype)?;
        }
        Ok(AnyDescriptor::new(if saves { norm.stats()? } else { norm }))
    })
}

/// GroupNorm of `[N, C, spatial..]` with groups of channels; weight and bias are `[C]`.
///
/// # Errors
/// As [all](self).
pub fn group_norm(
    xs: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let of = |parameter: Option<&Tensor>| parameter.map(|tensor| dtype("group_norm", tensor.dtype())).transpose();
    let (of_weight, of_bias) = (of(weight)?, of(bias)?);
    let inputs = present([("x", Some(xs)), ("weight", weight), ("bias", bias)]);
    Call { op: "group_norm", inputs, constants: Vec::new(), output: "y" }.apply(|descs, saves| -> Described {
        let mut norm = GroupNormDescriptor::new(descs[0], groups as u64)?.eps(eps)?.y(dense(&descs[0])?)?;
        if let Some(dtype) = of_weight {
            norm = norm.weight(dtype)?;
        }
        if let Some(dtype) = of_bias {
            norm = norm.bias(dtype)?;
        }
        Ok(AnyDescriptor::new(if saves { norm.stats()? } else { norm }))
    })
}

/// Softmax along an axis.
///
/// # Errors
/// As [all](self).
pub fn softmax<A: Dim>(xs: &Tensor, dim: A) -> Result<Tensor> {
    let axis = dim.to_index(xs.shape(), "softmax")?;
    softmax_of("softmax", xs, axis, Ok)
}

/// Softmax along the last axis; candle-nn's fused op of this name has no gradient.
///
/// # Errors
/// As [all](self).
pub fn softmax_last_dim(xs: &Tensor) -> Result<Tensor> {
    softmax(xs, D::Minus1)
}

/// Logarithm of softmax along an axis.
///
/// # Errors
/// As [all](self).
pub fn log_softmax<A: Dim>(xs: &Tensor, d: A) -> Result<Tensor> {
    let axis = d.to_index(xs.shape(), "log_softmax")?;
    softmax_of("log_softmax", xs, axis, SoftmaxDescriptor::log)
}

fn softmax_of(
    op: &'static str,
    xs: &Tensor,
    axis: usize,
    with: impl Fn(SoftmaxDescriptor) -> baracuda_ops::Result<SoftmaxDescriptor>,
) -> Result<Tensor> {
    Call { op, inputs: vec![("x", xs)], constants: Vec::new(), output: "y" }.apply(|descs, _| -> Described {
        Ok(AnyDescriptor::new(with(SoftmaxDescriptor::new(descs[0], axis)?.y(dense(&descs[0])?)?)?))
    })
}

/// Softmax of scores `[.., queries, keys]` along the keys: of `scale * xs + bias`, where the bias broadcasts to the scores and -infinity masks a place;
/// `causal` masks keys after the query, of which the last sees all. A line of masked places alone is 0. The bias has a gradient.
///
/// # Errors
/// As [all](self).
pub fn masked_softmax(xs: &Tensor, scale: f64, causal: bool, bias: Option<&Tensor>) -> Result<Tensor> {
    let axis = D::Minus1.to_index(xs.shape(), "masked_softmax")?;
    let inputs = present([("x", Some(xs)), ("bias", bias)]);
    Call { op: "masked_softmax", inputs, constants: Vec::new(), output: "y" }.apply(|descs, _| -> Described {
        let mut softmax = SoftmaxDescriptor::new(descs[0], axis)?.scale(scale)?.y(dense(&descs[0])?)?;
        if causal {
            softmax = softmax.causal()?;
        }
        if let Some(bias) = descs.get(1) {
            softmax = softmax.bias(*bias)?;
        }
        Ok(AnyDescriptor::new(softmax))
    })
}

/// Attention of queries `[batch, queries, heads, extent]` to keys and values `[batch, keys, their heads, extent]`, whose heads divide those of the queries:
/// `softmax(scale q k^T) v`, laid out as the queries. `causal` masks keys after the query, of which the last sees all. No tensor of queries by keys is in
/// memory.
///
/// # Errors
/// As [all](self).
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64, causal: bool) -> Result<Tensor> {
    let (batch, queries, heads, _) = q.dims4()?;
    let [q, k, v] = [q, k, v].map(|tensor| tensor.transpose(1, 2));
    let (q, k, v) = (q?, k?, v?);
    let inputs = vec![("q", &q), ("k", &k), ("v", &v)];
    let y =
        Call { op: "attention", inputs, constants: Vec::new(), output: "y" }.apply(|descs, saves| -> Described {
            let mut attention = AttentionDescriptor::new(descs[0], descs[1], descs[2])?.scale(scale)?;
            if causal {
                attention = attention.causal(CausalMask::BottomRight)?;
            }
            // [batch, heads, queries, extent] by extents, the heads of a query next to each other by strides.
            if let Some(y) = attention.slots().iter().find(|slot| slot.name == "y").map(|slot| slot.desc) {
                let &[batch, heads, queries, extent] = y.dims() else { return Ok(AnyDescriptor::new(attention)) };
                let y = TensorDesc::contiguous(y.dtype(), &[batch, queries, heads, extent])?.permute(&[0, 2, 1, 3])?;
                attention = attention.layout("y", y)?;
            }
            Ok(AnyDescriptor::new(if saves { attention.stats()? } else { attention }))
        })?;
    // candle takes the elements of y in the order in which they lie.
    y.reshape((batch, queries, heads, v.dim(3)?))
}

/// The function of baracuda-ops that an activation of candle-nn is, if there is one.
fn function(activation: Activation) -> Option<Function> {
    match activation {
        Activation::Gelu => Some(Function::GeluErf),
        Activation::NewGelu | Activation::GeluPytorchTanh => Some(Function::GeluTanh),
        Activation::Relu => Some(Function::Relu),
        Activation::Silu | Activation::Swish => Some(Function::Silu),
        Activation::Sigmoid => Some(Function::Sigmoid),
        _ => None,
    }
}

/// An activation: GELU, SiLU, ReLU and sigmoid as plans, SwiGLU as [`swiglu`], others as candle-nn has them.
///
/// # Errors
/// As [all](self).
pub fn activation(xs: &Tensor, activation: Activation) -> Result<Tensor> {
    match (function(activation), activation) {
        (Some(function), _) => activation_of("activation", xs, function),
        (None, Activation::Swiglu) => swiglu(xs),
        (None, other) => other.forward(xs),
    }
}

fn activation_of(op: &'static str, xs: &Tensor, function: Function) -> Result<Tensor> {
    Call { op, inputs: vec![("x", xs)], constants: Vec::new(), output: "y" }.apply(|descs, _| -> Described {
        Ok(AnyDescriptor::new(ActivationDescriptor::new(descs[0], function)?.y(dense(&descs[0])?)?))
    })
}

/// GELU by the hyperbolic tangent, as candle's `Tensor::gelu`.
///
/// # Errors
/// As [all](self).
pub fn gelu(xs: &Tensor) -> Result<Tensor> {
    activation_of("gelu", xs, Function::GeluTanh)
}

/// GELU by the error function.
///
/// # Errors
/// As [all](self).
pub fn gelu_erf(xs: &Tensor) -> Result<Tensor> {
    activation_of("gelu_erf", xs, Function::GeluErf)
}

/// `x sigmoid(x)`.
///
/// # Errors
/// As [all](self).
pub fn silu(xs: &Tensor) -> Result<Tensor> {
    activation_of("silu", xs, Function::Silu)
}

/// The positive part.
///
/// # Errors
/// As [all](self).
pub fn relu(xs: &Tensor) -> Result<Tensor> {
    activation_of("relu", xs, Function::Relu)
}

/// The logistic function.
///
/// # Errors
/// As [all](self).
pub fn sigmoid(xs: &Tensor) -> Result<Tensor> {
    activation_of("sigmoid", xs, Function::Sigmoid)
}

/// The hyperbolic tangent.
///
/// # Errors
/// As [all](self).
pub fn tanh(xs: &Tensor) -> Result<Tensor> {
    activation_of("tanh", xs, Function::Tanh)
}

/// `act(x weight^T + bias)` in one op, with the weight `[outputs, inputs]` of [`Linear`](crate::Linear) and x of any extents before its inputs. An activation
/// that is no plan follows as candle-nn has it.
///
/// # Errors
/// As [all](self).
pub fn linear(xs: &Tensor, weight: &Tensor, bias: Option<&Tensor>, act: Option<Activation>) -> Result<Tensor> {
    const OP: &str = "linear";
    if xs.rank() == 1 {
        return linear(&xs.unsqueeze(0)?, weight, bias, act)?.squeeze(0);
    }
    let of_bias = bias.map(|tensor| dtype(OP, tensor.dtype())).transpose()?;
    let fused = act.map_or(Some(Function::Identity), function);
    let inputs = present([("a", Some(xs)), ("b", Some(weight)), ("bias", bias)]);
    let y = Call { op: OP, inputs, constants: Vec::new(), output: "out" }.apply(|descs, saves| -> Described {
        let mut product = GemmDescriptor::new(descs[0], GemmFactor::transposed(descs[1]))?;
        if let Some(dtype) = of_bias {
            product = product.bias(dtype)?;
        }
        if let Some(function) = fused.filter(|function| !function.is_identity()) {
            product = product.activation(function)?;
            if saves && !function.has_gradient_from_output() {
                product = product.pre(descs[0].dtype())?;
            }
        }
        Ok(AnyDescriptor::new(product))
    })?;
    match (fused, act) {
        (None, Some(act)) => activation(&y, act),
        _ => Ok(y),
    }
}

/// A convolution of `[N, C, length]` with a weight `[filters, C / groups, kernel]`, with bias and activation in one op.
///
/// # Errors
/// As [all](self).
pub fn conv1d(
    xs: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    config: &Conv1dConfig,
    act: Option<Activation>,
) -> Result<Tensor> {
    let Conv1dConfig { padding, stride, dilation, groups, .. } = *config;
    xs.dims3()?;
    conv("conv1d", [xs, weight], bias, window::<1>(padding, stride, dilation, groups), act)
}

/// A convolution of `[N, C, height, width]` with a weight `[filters, C / groups, kernel, kernel]`, with bias and activation in one op.
///
/// # Errors
/// As [all](self).
pub fn conv2d(
    xs: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    config: &Conv2dConfig,
    act: Option<Activation>,
) -> Result<Tensor> {
    let Conv2dConfig { padding, stride, dilation, groups, .. } = *config;
    xs.dims4()?;
    conv("conv2d", [xs, weight], bias, window::<2>(padding, stride, dilation, groups), act)
}

fn window<const AXES: usize>(padding: usize, stride: usize, dilation: usize, groups: usize) -> ConvWindow {
    let window = ConvWindow::new().padding(&[padding as u64; AXES]).stride(&[stride as u64; AXES]);
    window.dilation(&[dilation as u64; AXES]).groups(groups as u64)
}

fn conv(
    op: &'static str,
    [xs, weight]: [&Tensor; 2],
    bias: Option<&Tensor>,
    window: ConvWindow,
    act: Option<Activation>,
) -> Result<Tensor> {
    let of_bias = bias.map(|tensor| dtype(op, tensor.dtype())).transpose()?;
    let fused = act.map_or(Some(Function::Identity), function);
    let inputs = present([("x", Some(xs)), ("weight", Some(weight)), ("bias", bias)]);
    let y = Call { op, inputs, constants: Vec::new(), output: "y" }.apply(|descs, saves| -> Described {
        let mut conv = ConvDescriptor::new(descs[0], descs[1], window.clone())?;
        if let Some(dtype) = of_bias {
            conv = conv.bias(dtype)?;
        }
        let y = dense_slot(&conv, "y")?;
        if let Some(function) = fused.filter(|function| !function.is_identity()) {
            conv = conv.activation(function)?;
            if saves && !function.has_gradient_from_output() {
                conv = conv.pre(descs[0].dtype())?;
                if let Some(y) = y {
                    conv = conv.layout("pre", y)?;
                }
            }
        }
        if let Some(y) = y {
            conv = conv.layout("y", y)?;
        }
        Ok(AnyDescriptor::new(conv))
    })?;
    match (fused, act) {
        (None, Some(act)) => activation(&y, act),
        _ => Ok(y),
    }
}

/// `silu(a) b` of the halves a and b of the last extent, with candle-nn's argument.
///
/// # Errors
/// As [all](self), and if the last extent is odd.
pub fn swiglu(xs: &Tensor) -> Result<Tensor> {
    let extent = xs.dim(D::Minus1)?;
    if !extent.is_multiple_of(2) {
        candle_core::bail!("baracuda-candle swiglu: the last extent must be even, got {:?}", xs.shape());
    }
    let half = extent / 2;
    gated_silu(&xs.narrow(D::Minus1, 0, half)?, &xs.narrow(D::Minus1, half, half)?)
}

/// `silu(gate) up`, of two tensors of one shape.
///
/// # Errors
/// As [all](self).
pub fn gated_silu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    const OP: &str = "gated_silu";
    if gate.shape() != up.shape() {
        let (lhs, rhs) = (gate.shape().clone(), up.shape().clone());
        return Err(Error::ShapeMismatchBinaryOp { lhs, rhs, op: OP }.bt());
    }
    if gate.dtype() != up.dtype() {
        return Err(Error::DTypeMismatchBinaryOp { lhs: gate.dtype(), rhs: up.dtype(), op: OP }.bt());
    }
    let program = stock::swiglu().map_err(refused(OP))?;
    let inputs = vec![("in0", gate), ("in1", up)];
    Call { op: OP, inputs, constants: Vec::new(), output: "out0" }.apply(|descs, _| -> Described {
        let gated = PointwiseDescriptor::new(program.clone(), descs.to_vec())?.layout("out0", dense(&descs[0])?)?;
        Ok(AnyDescriptor::new(gated))
    })
}

/// The cross-entropy of logits along an axis with the class of each line, u32, i64 or i32, of the extents without the axis. Lines whose class is
/// `ignored` do not count. f32, of f64 logits f64: the loss of each line, their sum or the mean of those that count. A class out of range makes NaN, of a
/// line that has no gradient then.
///
/// # Errors
/// As [all](self).
pub fn cross_entropy<A: Dim>(
    xs: &Tensor,
    targets: &Tensor,
    dim: A,
    reduction: LossReduction,
    ignored: Option<i64>,
) -> Result<Tensor> {
    const OP: &str = "cross_entropy";
    let axis = dim.to_index(xs.shape(), OP)?;
    let targets = if targets.dtype() == DType::U8 { &targets.to_dtype(DType::U32)? } else { targets };
    let (inputs, constants) = (vec![("x", xs)], vec![("targets", targets)]);
    Call { op: OP, inputs, constants, output: "loss" }.apply(|descs, saves| -> Described {
        let mut loss = CrossEntropyDescriptor::new(descs[0], axis, descs[1].dtype())?.reduction(reduction)?;
        let lines: Vec<u64> = (0..descs[0].rank()).filter(|&at| at != axis).map(|at| descs[0].dims()[at]).collect();
        // Of other extents it is refused, by the extents that the descriptor has.
        if lines == descs[1].dims() {
            loss = loss.layout("targets", descs[1])?;
        }
        if let Some(ignored) = ignored {
            loss = loss.ignore_index(ignored)?;
        }
        Ok(AnyDescriptor::new(if saves { loss.stats()? } else { loss }))
    })
}

/// The rows of a table `[rows, columns]` that indices of any extents name, u32, i64, i32 or u8: `[.., columns]`. On CUDA, where the host does not see the
/// indices, one that is no row of the table makes a row of NaN, and its gradient goes nowhere.
///
/// # Errors
/// As [all](self), and on the CPU if an index is no row of the table.
pub fn embedding(table: &Tensor, indices: &Tensor) -> Result<Tensor> {
    const OP: &str = "embedding";
    let (rows, _) = table.dims2()?;
    let indices = if indices.dtype() == DType::U8 { &indices.to_dtype(DType::U32)? } else { indices };
    if indices.device().is_cpu() && indices.dtype().is_int() {
        let named = indices.to_dtype(DType::I64)?.flatten_all()?.to_vec1::<i64>()?;
        let missing = named.iter().filter(|&&row| usize::try_from(row).map_or(true, |row| row >= rows)).count();
        if missing > 0 {
            candle_core::bail!("baracuda-candle {OP}: {missing} indices are no rows of a table of {rows}");
        }
    }
    let (inputs, constants) = (vec![("x", table)], vec![("indices", indices)]);
    Call { op: OP, inputs, constants, output: "y" }.apply(|descs, _| -> Described {
        let select = IndexSelectDescriptor::new(descs[0], 0, descs[1])?;
        Ok(AnyDescriptor::new(if descs[0].dtype().is_float() { select.fill(f64::NAN)? } else { select }))
    })
}
