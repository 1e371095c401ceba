//! Random descriptors, JSON and arguments: never a panic, and every refusal is a typed error that names what is wrong.

use std::process::Command;
use std::time::{Duration, Instant};

use baracuda_ops::{
    Access, Activation, ActivationDescriptor, AnyDescriptor, AnyPlan, AttentionDescriptor, Backend,
    BatchNormDescriptor, Buffer, CausalMask, CholeskyDescriptor, Combine, ConcatDescriptor, ConvBackwardBiasDescriptor,
    ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor, ConvTransposeDescriptor, ConvWindow,
    Coordinates, CopyDescriptor, CrossEntropyDescriptor, DType, Descriptor, Device, DeviceProps, Error, FftDescriptor,
    FftDirection, Function, GatherDescriptor, GemmDescriptor, GemmFactor, GemmSaved, GroupNormDescriptor,
    IndexAddDescriptor, IndexSelectDescriptor, InstanceNormDescriptor, IrfftDescriptor, LayerNormDescriptor,
    LinearCrossEntropyDescriptor, LocalResponseNormDescriptor, LossReduction, Mem, MemMut, NonzeroDescriptor, OPS,
    Operand, PadDescriptor, PadMode, PlanOptions, PointwiseDescriptor, PoolDescriptor, PoolWindow, Pooling, Program,
    ReduceDescriptor, Reduction, ResizeDescriptor, ResizeMode, RfftDescriptor, RmsNormDescriptor, Scan, ScanDescriptor,
    ScatterDescriptor, SearchSortedDescriptor, Slot, SoftmaxDescriptor, SortDescriptor, TensorDesc, TopKDescriptor,
    TriangularSolveDescriptor, Workspace,
};
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::tape::check;
use fastrand::Rng;
use serde_json::Value;

/// Random descriptors in all; the arguments and texts below make it more than a million.
const DESCRIPTORS: usize = 600_000;
const TEXTS: usize = 150_000;
const ARGUMENTS: usize = 300_000;

fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

fn extent(random: &mut Rng) -> u64 {
    match random.u32(..40) {
        0 => 0,
        1 if random.bool() => random.u64(..),
        2 => 1 << random.u32(..64),
        3 => u64::MAX - random.u64(..4),
        _ => random.u64(1..9),
    }
}

fn tensor(random: &mut Rng) -> Result<TensorDesc, Error> {
    let most = if random.u32(..20) == 0 { 12 } else { 5 };
    let rank = random.usize(..most);
    let dims: Vec<u64> = (0..rank).map(|_| extent(random)).collect();
    let floats = [DType::F64, DType::F32, DType::F16, DType::BF16];
    let dtype = if random.u32(..8) == 0 { pick(random, &DType::ALL) } else { pick(random, &floats) };
    let mut desc = match random.u32(..6) {
        0 => TensorDesc::channels_last(dtype, &dims)?,
        1 => {
            let strides: Vec<u64> = (0..rank + usize::from(random.u32(..9) == 0)).map(|_| extent(random)).collect();
            TensorDesc::strided(dtype, &dims, &strides)?
        }
        _ => TensorDesc::contiguous(dtype, &dims)?,
    };
    if random.u32(..8) == 0 {
        desc = desc.align(extent(random))?;
    }
    if random.u32(..8) == 0 {
        desc = desc.for_offset(extent(random))?;
    }
    if random.u32(..6) == 0 { view(random, desc) } else { Ok(desc) }
}

/// A view that is right about every second time.
fn view(random: &mut Rng, desc: TensorDesc) -> Result<TensorDesc, Error> {
    let rank = desc.rank();
    match random.u32(..3) {
        0 => {
            let mut axes: Vec<usize> = (0..rank).collect();
            random.shuffle(&mut axes);
            if let Some(axis) = axes.first_mut().filter(|_| random.u32(..4) == 0) {
                *axis = random.usize(..10);
            }
            desc.permute(&axes)
        }
        1 => {
            let (part, offset) = desc.narrow(random.usize(..rank + 1), extent(random), extent(random))?;
            assert!(offset.is_multiple_of(part.align_bytes()) && part.align_bytes() <= desc.align_bytes());
            assert!(part.is_empty() || offset + part.span_bytes() <= desc.span_bytes(), "{desc:?} {part:?}");
            Ok(part)
        }
        _ => {
            let mut dims: Vec<u64> = (0..random.usize(..3)).map(|_| extent(random)).collect();
            dims.extend(desc.dims().iter().map(|&dim| if dim == 1 { extent(random) } else { dim }));
            if random.u32(..4) == 0 {
                dims.truncate(random.usize(..9));
            }
            let repeated = desc.broadcast_to(&dims)?;
            assert!(repeated.is_empty() || repeated.span_bytes() == desc.span_bytes(), "{desc:?} {repeated:?}");
            Ok(repeated)
        }
    }
}

fn eps(random: &mut Rng) -> f64 {
    match random.u32(..10) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -1e-5,
        3 => f64::from_bits(random.u64(..)),
        _ => 1e-5,
    }
}

fn parameter(random: &mut Rng, x: DType) -> DType {
    match random.u32(..8) {
        0 => pick(random, &DType::ALL),
        1 => DType::F32,
        _ => x,
    }
}

/// Softmax with random calls.
fn softmax(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let axis = if random.u32(..8) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    let mut d = SoftmaxDescriptor::new(x, axis)?;
    for _ in 0..random.u32(..4) {
        d = match random.u32(..6) {
            0 => d.log()?,
            4 => d.causal()?,
            5 => {
                let mut bias = if random.u32(..8) == 0 { tensor(random)? } else { x };
                let rank = bias.rank();
                if random.bool() && rank > 0 {
                    bias = bias.narrow(random.usize(..rank), 0, 1)?.0;
                }
                d.bias(bias)?
            }
            1 => d.scale(eps(random))?,
            2 => d.output(pick(random, &[DType::F32, DType::F32, DType::F64, DType::BF16]))?,
            _ => {
                let name = pick(random, &["x", "y", "bias", "dy", "dx", "nothing", ""]);
                d.layout(name, if random.bool() { x } else { tensor(random)? })?
            }
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward()?) } else { AnyDescriptor::new(d) })
}

/// Cross-entropy with random calls. The axis, the type of targets, the ignored index and layouts may be wrong.
fn cross_entropy(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let axis = if random.u32(..8) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    let types = [DType::I64, DType::I64, DType::I32, DType::U32, DType::F32, x.dtype()];
    let targets = if random.u32(..16) == 0 { pick(random, &DType::ALL) } else { pick(random, &types) };
    let mut d = CrossEntropyDescriptor::new(x, axis, targets)?;
    for _ in 0..random.u32(..4) {
        d = match random.u32(..9) {
            0 => d.ignore_index(pick(random, &[-100, 0, 1 << 31, i64::MIN, i64::MAX]))?,
            1 => d.stats()?,
            2 => d.reduction(pick(random, &LossReduction::ALL))?,
            3 => d.weight(if random.u32(..4) == 0 { pick(random, &DType::ALL) } else { x.dtype() })?,
            4 => d.label_smoothing(pick(random, &[0.0, 0.1, 0.999, 1.0, -0.1, 1e-50, f64::NAN]))?,
            5 => d.z_loss(pick(random, &[0.0, 1e-4, 2.0, -1.0, 1e-50, f64::INFINITY]))?,
            6 => d.count_missing()?,
            _ => {
                let name = pick(
                    random,
                    &["x", "targets", "weight", "loss", "logsumexp", "divisor", "missing", "dloss", "dx", ""],
                );
                let slot = d.slots().iter().find(|slot| slot.name == name).map(|slot| slot.desc);
                d.layout(name, if random.bool() { slot.unwrap_or(x) } else { tensor(random)? })?
            }
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward()?) } else { AnyDescriptor::new(d) })
}

/// Cross-entropy of a product with random calls. The weight, the types, the ignored index and layouts may be wrong.
fn linear_cross_entropy(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let dtype = pick(random, &[DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32]);
    let mut any = || if random.u32(..12) == 0 { extent(random) } else { random.u64(..9) };
    let [rows, classes, width] = [(); 3].map(|()| any());
    let [x, weight] = [rows, classes].map(|dim| TensorDesc::contiguous(dtype, &[dim, width]));
    let [x, weight] =
        [x?, weight?].map(|fits| if random.u32(..16) == 0 { tensor(random).unwrap_or(fits) } else { fits });
    let targets = pick(random, &[DType::I64, DType::I64, DType::I32, DType::U32, DType::F32]);
    let mut d = LinearCrossEntropyDescriptor::new(x, weight, targets)?;
    for _ in 0..random.u32(..4) {
        d = match random.u32(..4) {
            0 => d.ignore_index(pick(random, &[-100, 0, 1 << 31, i64::MIN, i64::MAX]))?,
            1 => d.reduction(pick(random, &LossReduction::ALL))?,
            _ => {
                let name = pick(random, &["x", "weight", "targets", "loss", "logsumexp", "divisor", "dloss", "dx", ""]);
                let slot = d.slots().iter().find(|slot| slot.name == name).map(|slot| slot.desc);
                d.layout(name, if random.bool() { slot.unwrap_or(x) } else { tensor(random)? })?
            }
        };
    }
    let wanted = &["x", "weight"][random.usize(..2)..];
    Ok(if random.bool() { AnyDescriptor::new(d.backward(wanted)?) } else { AnyDescriptor::new(d) })
}

/// Attention with random calls: mostly of tensors that fit each other, all of whose rules may be wrong.
fn attention(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let dtype = pick(random, &[DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32]);
    let mut any = || if random.u32(..12) == 0 { extent(random) } else { random.u64(..9) };
    let [samples, kv_heads, group, queries, keys, depth, value_depth] = [(); 7].map(|()| any());
    let fitting = |dims: &[u64; 4]| TensorDesc::contiguous(dtype, dims);
    let q = fitting(&[samples, kv_heads.saturating_mul(group), queries, depth])?;
    let (k, v) = (fitting(&[samples, kv_heads, keys, depth])?, fitting(&[samples, kv_heads, keys, value_depth])?);
    let [q, k, v] = [q, k, v].map(|fits| if random.u32(..24) == 0 { tensor(random).unwrap_or(fits) } else { fits });
    let mut d = if random.u32(..4) == 0 {
        let numbers = pick(random, &[DType::I32, DType::I32, DType::I64, DType::U32, DType::F32]);
        let of_sample = if random.u32(..8) == 0 { extent(random) } else { random.u64(..9) };
        let fits = TensorDesc::contiguous(numbers, &[samples, of_sample])?;
        let pages = if random.u32(..12) == 0 { tensor(random)? } else { fits };
        AttentionDescriptor::paged(q, k, v, pages)?
    } else {
        AttentionDescriptor::new(q, k, v)?
    };
    let windows = [None, Some(0), Some(3), Some(-1), Some(i64::MAX), Some(i64::MIN)];
    for _ in 0..random.u32(..5) {
        d = match random.u32(..9) {
            0 => d.causal(pick(random, &CausalMask::ALL))?,
            1 => d.window(pick(random, &windows), pick(random, &windows))?,
            2 => d.scale(eps(random))?,
            3 => d.soft_cap(eps(random))?,
            4 => d.lengths(pick(random, &[DType::I64, DType::I32, DType::U32, DType::F32]))?,
            5 => d.stats()?,
            6 => {
                let scores =
                    [q.dims()[0], q.dims()[1], q.dims()[2], k.dims()[2]].map(|dim| if random.bool() { dim } else { 1 });
                let of = pick(random, &[DType::Bool, dtype, DType::F32]);
                let bias = TensorDesc::contiguous(of, &scores[random.usize(..5)..])?;
                d.bias(if random.u32(..8) == 0 { tensor(random)? } else { bias })?
            }
            _ => {
                let name = pick(random, &["q", "k", "v", "bias", "lengths", "pages", "y", "lse", "dy", "nothing", ""]);
                let slot = d.slots().iter().find(|slot| slot.name == name).map(|slot| slot.desc);
                d.layout(name, if random.bool() { slot.unwrap_or(q) } else { tensor(random)? })?
            }
        };
    }
    if random.bool() {
        let backward = d.stats()?.backward(&["q", "k", "v"][random.usize(..3)..])?;
        let backward = if random.bool() { backward.dq(eps(random))? } else { backward };
        return Ok(AnyDescriptor::new(if random.bool() { backward.dbias(eps(random))? } else { backward }));
    }
    Ok(AnyDescriptor::new(d))
}

/// Sometimes a descriptor with an operand that is added to what is there, which may be no gradient.
fn accumulating(descriptor: AnyDescriptor, random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let share = if descriptor.name().contains("_backward") { 4 } else { 64 };
    if random.u32(..share) > 0 {
        return Ok(descriptor);
    }
    descriptor.accumulate(&[descriptor.slots()[random.usize(..descriptor.slots().len())].name])
}

/// A builder's calls in random order and number.
fn descriptor(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    match random.u32(..11) {
        0 => return softmax(random),
        1 if random.bool() => return softmax(random),
        1 if random.bool() => return cross_entropy(random),
        1 if random.u32(..4) == 0 => return linear_cross_entropy(random),
        1 => return attention(random),
        2 => return gemm(random),
        3 => return conv(random),
        4 if random.bool() => return reduce(random),
        4 if random.bool() => return if random.bool() { scan(random) } else { fft(random) },
        4 if random.u32(..4) == 0 => return linalg(random),
        4 => return pointwise(random),
        5 if random.bool() => return if random.bool() { lookup(random) } else { scatter(random) },
        5 if random.bool() => return if random.bool() { order(random) } else { positions(random) },
        5 if random.bool() => return if random.bool() { pool(random) } else { resize(random) },
        5 => return movement(random),
        _ => {}
    }
    let x = tensor(random)?;
    let k = if random.u32(..8) == 0 { random.usize(..10) } else { 1 + random.usize(..x.rank().max(1)) };
    let name = pick(random, &["x", "y", "h", "weight", "bias", "mean", "rstd", "residual", "dy", "dx", "nothing", ""]);
    match random.u32(..8) {
        0 => return batch_norm(random, x, name),
        1 => return group_norm(random, x, name),
        2 => return instance_norm(random, x, name),
        3 => return local_response_norm(random, x, name),
        4 => return activation(random, x, name),
        _ => {}
    }
    if random.bool() {
        let mut d = LayerNormDescriptor::new(x, k)?;
        for _ in 0..random.u32(..5) {
            d = match random.u32(..6) {
                0 => d.weight(parameter(random, x.dtype()))?,
                1 => d.bias(parameter(random, x.dtype()))?,
                2 => d.eps(eps(random))?,
                3 => d.stats()?,
                4 => d.residual()?,
                _ => d.layout(name, if random.bool() { x } else { tensor(random)? })?,
            };
        }
        if random.bool() {
            let backward = d.backward(&wanted(random, &d))?.dh(random.bool())?;
            return Ok(AnyDescriptor::new(backward));
        }
        return Ok(AnyDescriptor::new(d));
    }
    let mut d = RmsNormDescriptor::new(x, k)?;
    for _ in 0..random.u32(..5) {
        d = match random.u32(..6) {
            0 => d.weight(parameter(random, x.dtype()))?,
            1 => d.weight_offset(eps(random))?,
            2 => d.eps(eps(random))?,
            3 => d.stats()?,
            4 => d.residual()?,
            _ => d.layout(name, if random.bool() { x } else { tensor(random)? })?,
        };
    }
    if random.bool() {
        return Ok(AnyDescriptor::new(d.backward(&wanted(random, &d))?.dh(random.bool())?));
    }
    Ok(AnyDescriptor::new(d))
}

/// A layout that is right about every second time.
fn other(random: &mut Rng, x: TensorDesc) -> Result<TensorDesc, Error> {
    if random.bool() { Ok(x) } else { tensor(random) }
}

/// Some of the inputs of a forward that have gradients.
fn wanted(random: &mut Rng, forward: &impl Descriptor) -> Vec<&'static str> {
    let inputs = ["x", "residual", "weight", "bias", "a", "b"].into_iter();
    let has = |input: &&str| forward.slots().iter().any(|slot| slot.name == *input);
    inputs.filter(|input| has(input) && random.u32(..4) > 0).collect()
}

fn batch_norm(random: &mut Rng, x: TensorDesc, name: &str) -> Result<AnyDescriptor, Error> {
    let mut d = if random.bool() { BatchNormDescriptor::new(x)? } else { BatchNormDescriptor::inference(x)? };
    for _ in 0..random.u32(..6) {
        d = match random.u32(..9) {
            0 => d.weight(parameter(random, x.dtype()))?,
            1 => d.bias(parameter(random, x.dtype()))?,
            2 => d.eps(eps(random))?,
            3 => d.stats()?,
            4 => d.residual()?,
            5 => d.activation(pick(random, &Activation::ALL))?,
            6 => d.momentum(eps(random))?,
            7 => d.cumulative()?,
            _ => d.layout(name, other(random, x)?)?,
        };
    }
    if random.bool() {
        let backward = d.backward(&wanted(random, &d))?;
        let backward = if random.u32(..3) == 0 { backward.from_y()? } else { backward };
        let backward = if random.bool() { backward.layout(name, other(random, x)?)? } else { backward };
        return Ok(AnyDescriptor::new(backward));
    }
    Ok(AnyDescriptor::new(d))
}

fn group_norm(random: &mut Rng, x: TensorDesc, name: &str) -> Result<AnyDescriptor, Error> {
    let mut d = GroupNormDescriptor::new(x, if random.bool() { 1 } else { extent(random) })?;
    for _ in 0..random.u32(..6) {
        d = match random.u32(..6) {
            0 => d.weight(parameter(random, x.dtype()))?,
            1 => d.bias(parameter(random, x.dtype()))?,
            2 => d.eps(eps(random))?,
            3 => d.stats()?,
            4 => d.activation(pick(random, &Activation::ALL))?,
            _ => d.layout(name, other(random, x)?)?,
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward(&wanted(random, &d))?) } else { AnyDescriptor::new(d) })
}

fn instance_norm(random: &mut Rng, x: TensorDesc, name: &str) -> Result<AnyDescriptor, Error> {
    let mut d = if random.bool() { InstanceNormDescriptor::new(x)? } else { InstanceNormDescriptor::inference(x)? };
    for _ in 0..random.u32(..6) {
        d = match random.u32(..7) {
            0 => d.weight(parameter(random, x.dtype()))?,
            1 => d.bias(parameter(random, x.dtype()))?,
            2 => d.eps(eps(random))?,
            3 => d.stats()?,
            4 => d.activation(pick(random, &Activation::ALL))?,
            5 => d.momentum(eps(random))?,
            _ => d.layout(name, other(random, x)?)?,
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward(&wanted(random, &d))?) } else { AnyDescriptor::new(d) })
}

/// A refusal of a descriptor names a field and says what is allowed.
fn is_informative(error: &Error) {
    match error {
        Error::InvalidDescriptor { field, rule, .. } => assert!(!field.is_empty() && rule.len() > 5, "{error}"),
        Error::SeveralSteps { steps, .. } => assert!(!steps.is_empty(), "{error}"),
        Error::NoGradient { op: "pointwise" | "reduce", operand, why, .. } => {
            assert!(operand.starts_with("in") && why.len() > 5, "{error}");
        }
        Error::NoGradient { op: "index_add" | "scatter", operand, why, known } => {
            assert!(matches!(&operand[..], "base" | "source") && why.len() > 5 && known[..] == ["add"], "{error}");
        }
        Error::NoGradient { op: "attention", operand, why, .. } => {
            assert!(["q", "k", "v", "bias"].contains(&&operand[..]) && why.contains("pages"), "{error}");
        }
        Error::NoGradient { op: "pad" | "scan" | "index_select" | "gather", operand, why, .. } => {
            assert!(operand == "x" && why.len() > 5, "{error}");
        }
        _ => panic!("an unexpected kind of error: {error:?}"),
    }
}

fn local_response_norm(random: &mut Rng, x: TensorDesc, name: &str) -> Result<AnyDescriptor, Error> {
    let mut d = LocalResponseNormDescriptor::new(x, extent(random))?;
    for _ in 0..random.u32(..5) {
        d = match random.u32(..4) {
            0 => d.alpha(eps(random))?,
            1 => d.beta(eps(random))?,
            2 => d.k(eps(random))?,
            _ => d.layout(name, other(random, x)?)?,
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward()?) } else { AnyDescriptor::new(d) })
}

fn activation(random: &mut Rng, x: TensorDesc, name: &str) -> Result<AnyDescriptor, Error> {
    let mut d = ActivationDescriptor::new(x, pick(random, &Activation::ALL))?;
    if random.bool() {
        d = d.layout(name, other(random, x)?)?;
    }
    let any = match random.u32(..3) {
        0 => AnyDescriptor::new(d),
        1 => AnyDescriptor::new(d.backward()?),
        _ => AnyDescriptor::new(d.backward()?.from_y()?),
    };
    Ok(any)
}

/// A program of few instructions, of inputs that broadcast about every second time. Calls, numbers and outputs may be wrong.
fn pointwise(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let mut inputs = vec![x];
    for _ in 0..random.usize(..3) {
        inputs.push(match random.u32(..4) {
            0 => tensor(random)?,
            1 => x,
            _ => {
                let dims: Vec<u64> = x.dims().iter().map(|&dim| if random.bool() { dim } else { 1 }).collect();
                let dtype = parameter(random, x.dtype());
                TensorDesc::contiguous(dtype, &dims[random.usize(..dims.len() + 1)..])?
            }
        });
    }
    let mut b = Program::builder();
    let count = if random.u32(..12) == 0 { random.usize(..18) } else { inputs.len() };
    let mut terms: Vec<_> = (0..count).map(|at| b.input(format!("x{at}"))).collect();
    for _ in 0..random.usize(..6) {
        let function = pick(random, &Function::ALL);
        let arity = if random.u32(..24) == 0 { random.usize(..4) } else { function.arity() };
        let argument = |random: &mut Rng| match random.u32(..6) {
            0 => eps(random).into(),
            _ if terms.is_empty() => 1.0.into(),
            _ => pick(random, &terms),
        };
        let arguments: Vec<_> = (0..arity).map(|_| argument(random)).collect();
        terms.push(b.call(function, arguments));
    }
    let most = if random.u32(..12) == 0 { 10 } else { 3 };
    let output = |random: &mut Rng| match terms.last() {
        Some(&last) if random.u32(..24) > 0 => last,
        _ => 1.0.into(),
    };
    let outputs: Vec<_> = (0..random.usize(..most)).map(|_| output(random)).collect();
    let outputs_count = outputs.len();
    let mut d = PointwiseDescriptor::new(b.finish(outputs)?, inputs.clone())?;
    if random.u32(..6) == 0 {
        let own = if random.u32(..8) == 0 { random.usize(..4) } else { inputs.len() - usize::from(inputs.len() > 1) };
        let set = |random: &mut Rng| -> Result<Vec<TensorDesc>, Error> {
            let own = if random.u32(..24) == 0 { random.usize(..4) } else { own };
            (0..own)
                .map(|at| if random.u32(..4) == 0 { tensor(random) } else { Ok(*inputs.get(at).unwrap_or(&x)) })
                .collect()
        };
        let count = if random.u32(..24) == 0 { 4096 } else { random.usize(..4) };
        d = d.sets((0..count).map(|_| set(random)).collect::<Result<_, _>>()?)?;
    }
    if random.u32(..3) == 0 {
        let types = (0..outputs_count + usize::from(random.u32(..8) == 0)).map(|_| parameter(random, x.dtype()));
        d = d.outputs(types.collect())?;
    }
    if random.u32(..3) == 0 {
        let name = pick(random, &["in0", "in1", "in15", "out0", "out1", "out7", "in0.1", "out0.2", "out0.01", "x", ""]);
        d = d.layout(name, other(random, x)?)?;
    }
    Ok(AnyDescriptor::new(d))
}

/// A scan. Its axis, the types of its outputs and its indices may be wrong.
fn scan(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let axis = if random.u32(..24) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    let mut d = ScanDescriptor::of(x, axis, pick(random, &Scan::ALL))?;
    for _ in 0..random.u32(..4) {
        d = match random.u32(..8) {
            0 => d.reverse()?,
            1 => d.exclusive()?,
            2 => d.with_indices()?,
            3 => d.indices(pick(random, &[DType::I64, DType::I32, DType::U32, DType::F32]))?,
            4 => d.output(pick(random, &[DType::I64, DType::I32, DType::F32, DType::F64, DType::BF16]))?,
            _ => {
                let name = pick(random, &["x", "y", "indices", "nothing", ""]);
                d.layout(name, if random.bool() { x } else { tensor(random)? })?
            }
        };
    }
    Ok(AnyDescriptor::new(d))
}

/// A Fourier transform. Its axis, its last extent and its length may be wrong.
fn fft(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let dims = x.dims();
    // Mostly of a type that is transformed, with parts.
    let dtype = if random.u32(..8) == 0 { x.dtype() } else { pick(random, &[DType::F32, DType::F64]) };
    let real = TensorDesc::contiguous(dtype, dims)?;
    let pairs = || TensorDesc::contiguous(dtype, &[&dims[..dims.len().min(7)], &[2]].concat());
    let pairs = if random.u32(..8) == 0 { real } else { pairs()? };
    let axis = if random.u32(..24) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    let scale = if random.bool() { 1.0 } else { eps(random) };
    let name = pick(random, &["x", "y", "nothing", ""]);
    let has_layout = random.u32(..4) == 0;
    let layout = if random.bool() { x } else { tensor(random)? };
    match random.u32(..3) {
        0 => {
            let d = FftDescriptor::new(pairs, axis)?.direction(pick(random, &FftDirection::ALL))?.scale(scale)?;
            Ok(AnyDescriptor::new(if has_layout { d.layout(name, layout)? } else { d }))
        }
        1 => {
            let d = RfftDescriptor::new(real, axis)?.scale(scale)?;
            let d = if random.bool() { d.adjoint()? } else { d };
            Ok(AnyDescriptor::new(if has_layout { d.layout(name, layout)? } else { d }))
        }
        _ => {
            let bins = pairs.dims().get(axis).copied().unwrap_or(1);
            let length = if random.u32(..8) == 0 { extent(random) } else { bins.saturating_mul(2).saturating_sub(1) };
            let d = IrfftDescriptor::new(pairs, axis, length)?.scale(scale)?;
            let d = if random.bool() { d.adjoint()? } else { d };
            Ok(AnyDescriptor::new(if has_layout { d.layout(name, layout)? } else { d }))
        }
    }
}

/// A reduction along some axes, about every second time of what a program makes of its elements. Axes and the program may be wrong.
fn reduce(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let axis =
        |random: &mut Rng| if random.u32(..24) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    let mut axes: Vec<usize> = (0..x.rank()).filter(|_| random.bool()).collect();
    if random.u32(..8) == 0 {
        axes.push(axis(random));
    }
    let reduction = pick(random, &Reduction::ALL);
    let mut d = if random.bool() {
        ReduceDescriptor::of(x, &axes, reduction)?
    } else {
        let dims: Vec<u64> = x.dims().iter().map(|&dim| if random.bool() { dim } else { 1 }).collect();
        let row = TensorDesc::contiguous(parameter(random, x.dtype()), &dims[random.usize(..dims.len() + 1)..])?;
        let mut b = Program::builder();
        let [v, w] = ["v", "w"].map(|name| b.input(name));
        let result = b.call(pick(random, &[Function::Add, Function::Mul, Function::Div, Function::Exp]), [v, w]);
        let outputs = if random.u32(..24) == 0 { vec![result, v] } else { vec![result] };
        ReduceDescriptor::new(b.finish(outputs)?, vec![x, row], axes.clone(), reduction)?
    };
    for _ in 0..random.u32(..3) {
        d = match random.u32(..6) {
            4 => {
                let own = if random.bool() { vec![x] } else { vec![tensor(random)?, x] };
                let count = if random.u32(..24) == 0 { 4096 } else { random.usize(..4) };
                let all: Vec<usize> = (0..x.rank()).collect();
                let d = if random.bool() { ReduceDescriptor::of(x, &all, reduction)? } else { d };
                d.sets(vec![own; count])?
            }
            0 => d.keep_axes()?,
            3 => {
                let mut b = Program::builder();
                let v = b.input("v");
                let by = if random.bool() { b.count() } else { pick(random, &[0.0, f64::NAN, 3.5, 1e300]).into() };
                let functions = [Function::Div, Function::Pow, Function::Lt, Function::LogicalOr, Function::Maximum];
                let y = b.call(pick(random, &functions), [v, by]);
                d.finish(b.finish([y])?)?
            }
            1 => {
                let first = (random.u32(..12) == 0).then_some(0);
                d.keep(axes.iter().copied().filter(|_| random.bool()).chain(first).collect())?
            }
            2 => d.output(parameter(random, x.dtype()))?,
            _ => {
                let name = pick(random, &["in0", "in1", "out0", "out1", "x", ""]);
                d.layout(name, other(random, x)?)?
            }
        };
    }
    Ok(AnyDescriptor::new(d))
}

/// Elements that indices name. The axis, the type of the indices and their extents may be wrong.
fn lookup(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let axis = if random.u32(..24) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    let of = pick(random, &[DType::I64, DType::I32, DType::U32]);
    let of = if random.u32(..24) == 0 { pick(random, &DType::ALL) } else { of };
    macro_rules! with_steps {
        ($lookup:expr) => {{
            let mut d = $lookup;
            for _ in 0..random.u32(..4) {
                d = match random.u32(..6) {
                    0 => d.from_end()?,
                    1 => d.count_missing()?,
                    2 => d.fill(pick(random, &[0.0, 1.0, -1.0, 300.0, f64::NAN, f64::INFINITY, 0.5]))?,
                    3 => d.fill(eps(random))?,
                    _ => {
                        let name = pick(random, &["x", "y", "indices", "missing", "nothing", ""]);
                        d.layout(name, if random.bool() { x } else { tensor(random)? })?
                    }
                };
            }
            Ok(AnyDescriptor::new(d))
        }};
    }
    if random.bool() {
        let other = tensor(random)?;
        let indices = match random.u32(..4) {
            0 => TensorDesc::strided(of, other.dims(), other.strides())?,
            _ => TensorDesc::contiguous(of, other.dims())?,
        };
        return with_steps!(IndexSelectDescriptor::new(x, axis, indices)?);
    }
    let mut dims: Vec<u64> = x.dims().iter().map(|&dim| dim.min(random.u64(..12))).collect();
    if let Some(dim) = dims.get_mut(axis) {
        *dim = extent(random);
    }
    if random.u32(..24) == 0 {
        dims.push(1);
    }
    let indices = match random.u32(..4) {
        0 => TensorDesc::strided(of, &dims, &vec![0; dims.len()])?,
        _ => TensorDesc::contiguous(of, &dims)?,
    };
    with_steps!(GatherDescriptor::new(x, axis, indices)?)
}

/// Elements that go where indices name. The axis, the type of the indices, their extents and how elements are combined may be wrong.
fn scatter(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let y = tensor(random)?;
    let axis = if random.u32(..24) == 0 { random.usize(..10) } else { random.usize(..y.rank().max(1)) };
    let of = pick(random, &[DType::I64, DType::I32, DType::U32]);
    let of = if random.u32(..24) == 0 { pick(random, &DType::ALL) } else { of };
    let combine = pick(random, &Combine::ALL);
    macro_rules! with_steps {
        ($scatter:expr) => {{
            let mut d = $scatter;
            for _ in 0..random.u32(..4) {
                d = match random.u32(..6) {
                    0 => d.from_end()?,
                    1 => d.count_missing()?,
                    2 | 3 => d.base()?,
                    _ => {
                        let name = pick(random, &["y", "source", "base", "indices", "missing", "nothing", ""]);
                        d.layout(name, if random.bool() { y } else { tensor(random)? })?
                    }
                };
            }
            Ok(AnyDescriptor::new(d))
        }};
    }
    if random.bool() {
        let other = tensor(random)?;
        let indices = match random.u32(..4) {
            0 => TensorDesc::strided(of, other.dims(), other.strides())?,
            _ => TensorDesc::contiguous(of, other.dims())?,
        };
        return with_steps!(IndexAddDescriptor::new(y, axis, indices, combine)?);
    }
    let mut dims: Vec<u64> = y.dims().iter().map(|&dim| dim.min(random.u64(..12))).collect();
    if let Some(dim) = dims.get_mut(axis) {
        *dim = extent(random);
    }
    if random.u32(..24) == 0 {
        dims.push(1);
    }
    let indices = match random.u32(..4) {
        0 => TensorDesc::strided(of, &dims, &vec![0; dims.len()])?,
        _ => TensorDesc::contiguous(of, &dims)?,
    };
    with_steps!(ScatterDescriptor::new(y, axis, indices, combine)?)
}

/// Elements in order. The axis, k and the type of the indices may be wrong.
fn order(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let axis = if random.u32(..24) == 0 { random.usize(..10) } else { random.usize(..x.rank().max(1)) };
    macro_rules! with_steps {
        ($order:expr, $turned:ident) => {{
            let mut d = $order;
            for _ in 0..random.u32(..4) {
                d = match random.u32(..6) {
                    0 => d.$turned()?,
                    1 => d.with_values()?,
                    2 => d.with_indices()?,
                    3 => d.indices(pick(random, &[DType::I64, DType::I32, DType::U32, DType::F32]))?,
                    _ => {
                        let name = pick(random, &["x", "values", "indices", "nothing", ""]);
                        d.layout(name, if random.bool() { x } else { tensor(random)? })?
                    }
                };
            }
            Ok(AnyDescriptor::new(d))
        }};
    }
    let length = x.dims().get(axis).copied().unwrap_or(1);
    let k = if random.u32(..8) == 0 { extent(random) } else { random.u64(..length.saturating_add(1).max(1)) };
    match random.u32(..4) {
        0 => with_steps!(SortDescriptor::new(x, axis)?, descending),
        1 => with_steps!(SortDescriptor::argsort(x, axis)?, descending),
        2 => with_steps!(TopKDescriptor::new(x, axis, k)?, least),
        _ => with_steps!(TopKDescriptor::positions(x, axis, k)?, least),
    }
}

/// Systems of equations. Types, extents and layouts may be wrong.
fn linalg(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let like = tensor(random)?;
    let dtype = match random.u32(..6) {
        0 => like.dtype(),
        1 | 2 => DType::F64,
        _ => DType::F32,
    };
    let batch = like.dims().get(2..).unwrap_or_default();
    let (n, systems) = (extent(random), extent(random));
    let of = |rows: u64, columns: u64| TensorDesc::contiguous(dtype, &[batch, &[rows, columns]].concat());
    let is_right = random.bool();
    if random.bool() {
        let a = if random.u32(..16) == 0 { like } else { of(n, n)? };
        let mut d = CholeskyDescriptor::new(a)?;
        for _ in 0..random.u32(..5) {
            d = match random.u32(..5) {
                0 => d.upper()?,
                1 => d.with_info()?,
                _ => {
                    let name = pick(random, &["a", "factor", "info", "nothing", ""]);
                    d.layout(name, pick(random, &[a, spread(&a)?, like]))?
                }
            };
        }
        return Ok(AnyDescriptor::new(d));
    }
    let (a, b) = (of(n, n)?, if is_right { of(systems, n)? } else { of(n, systems)? });
    let a = if random.u32(..16) == 0 { tensor(random)? } else { a };
    let b = if random.u32(..16) == 0 { like } else { b };
    let mut d = if is_right { TriangularSolveDescriptor::right(a, b)? } else { TriangularSolveDescriptor::new(a, b)? };
    for _ in 0..random.u32(..6) {
        d = match random.u32(..6) {
            0 => d.upper()?,
            1 => d.transpose()?,
            2 => d.unit_diagonal()?,
            3 => d.alpha(eps(random))?,
            _ => {
                let name = pick(random, &["a", "b", "x", "nothing", ""]);
                d.layout(name, pick(random, &[a, b, spread(&a)?, spread(&b)?, like]))?
            }
        };
    }
    Ok(AnyDescriptor::new(d))
}

/// Positions of elements that are not 0, and of values among sorted elements. Types, extents, fills and sizes may be wrong.
fn positions(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let of = |random: &mut Rng| pick(random, &[DType::I64, DType::I32, DType::U32, DType::I64, DType::F32]);
    if random.bool() {
        let mut d = NonzeroDescriptor::new(x)?;
        for _ in 0..random.u32(..5) {
            d = match random.u32(..7) {
                0 => d.per_axis()?,
                1 => d.indices(of(random))?,
                2 => d.size(extent(random))?,
                3 => d.fill(pick(random, &[-1, 0, -2, 1 << 31, 1 << 32, i64::MAX, i64::MIN]))?,
                4 => d.count(of(random))?,
                _ => {
                    let name = pick(random, &["x", "indices", "count", "nothing", ""]);
                    d.layout(name, if random.bool() { x } else { tensor(random)? })?
                }
            };
        }
        return Ok(AnyDescriptor::new(d));
    }
    let mut dims: Vec<u64> = match random.u32(..3) {
        0 => vec![extent(random)],
        _ => x.dims().iter().map(|&dim| if random.u32(..4) == 0 { 1 } else { dim }).collect(),
    };
    if let Some(last) = dims.last_mut() {
        *last = extent(random);
    }
    if random.u32(..24) == 0 {
        dims.push(1);
    }
    let dtype = if random.u32(..24) == 0 { pick(random, &DType::ALL) } else { x.dtype() };
    let mut d = SearchSortedDescriptor::new(TensorDesc::contiguous(dtype, &dims)?, x)?;
    for _ in 0..random.u32(..4) {
        d = match random.u32(..5) {
            0 => d.right()?,
            1 => d.indices(of(random))?,
            _ => {
                let name = pick(random, &["sorted", "values", "indices", "nothing", ""]);
                d.layout(name, if random.bool() { x } else { tensor(random)? })?
            }
        };
    }
    Ok(AnyDescriptor::new(d))
}

/// Resizing with random calls. Extents, how many of them, and coordinates may be wrong.
fn resize(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let most = if random.u32(..16) == 0 { 6 } else { x.rank().min(3) + 1 };
    let sizes = (0..random.usize(..most)).map(|_| if random.u32(..16) == 0 { extent(random) } else { random.u64(..9) });
    let mut d = ResizeDescriptor::new(x, sizes.collect(), pick(random, &ResizeMode::ALL))?;
    for _ in 0..random.u32(..3) {
        d = match random.u32(..3) {
            0 | 1 => d.coordinates(pick(random, &Coordinates::ALL))?,
            _ => {
                let name = pick(random, &["x", "y", "dy", "dx", "nothing", ""]);
                let slot = d.slots().iter().find(|slot| slot.name == name).map(|slot| slot.desc);
                d.layout(name, if random.bool() { slot.unwrap_or(x) } else { tensor(random)? })?
            }
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward()?) } else { AnyDescriptor::new(d) })
}

/// Pooling with random calls. Extents, the lists of windows, and options of other kinds may be wrong.
fn pool(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let count = if random.u32(..16) == 0 { random.usize(..5) } else { x.rank().saturating_sub(2) };
    let mut list = |most: u64| -> Vec<u64> {
        let one = |_| if random.u32(..16) == 0 { extent(random) } else { random.u64(..most) };
        (0..count).map(one).collect()
    };
    let (kernel, stride, dilation, before, after) = (list(5), list(4), list(4), list(3), list(3));
    let padding: Vec<[u64; 2]> = before.into_iter().zip(after).map(Into::into).collect();
    let mut window = match random.u32(..5) {
        0 => PoolWindow::adaptive(&kernel),
        1 => PoolWindow::global(),
        _ => PoolWindow::new(&kernel),
    };
    for _ in 0..random.u32(..4) {
        window = match random.u32(..4) {
            0 => window.stride(&stride),
            1 => window.dilation(&dilation),
            2 => window.padding_per_side(&padding),
            _ => window.ceil_mode(),
        };
    }
    let mut d = PoolDescriptor::new(x, pick(random, &Pooling::ALL), window)?;
    for _ in 0..random.u32(..4) {
        d = match random.u32(..6) {
            0 => d.offsets()?,
            1 => d.indices()?,
            2 => d.exclude_padding()?,
            3 => d.divisor(extent(random))?,
            _ => {
                let name = pick(random, &["x", "y", "offsets", "indices", "dy", "dx", "nothing", ""]);
                let slot = d.slots().iter().find(|slot| slot.name == name).map(|slot| slot.desc);
                d.layout(name, if random.bool() { slot.unwrap_or(x) } else { tensor(random)? })?
            }
        };
    }
    Ok(if random.bool() { AnyDescriptor::new(d.backward()?) } else { AnyDescriptor::new(d) })
}

/// A slice, padding or concatenation, whose numbers fit about every second time.
fn movement(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = tensor(random)?;
    let count = x.rank() + usize::from(random.u32(..12) == 0);
    let small = |random: &mut Rng| match random.u32(..16) {
        0 => i64::try_from(extent(random) >> 1).unwrap_or(i64::MAX),
        1 => i64::MIN + random.i64(..4).abs(),
        _ => random.i64(-1..3),
    };
    let any = match random.u32(..3) {
        0 => {
            let extents = (0..count).map(|at| x.dims().get(at).map_or(1, |&dim| dim.min(random.u64(..4)))).collect();
            let starts = (0..count).map(|_| if random.bool() { 0 } else { small(random).unsigned_abs() }).collect();
            let steps = (0..count).map(|_| if random.u32(..4) == 0 { small(random) } else { 1 }).collect();
            let copy =
                if random.bool() { CopyDescriptor::new(x)? } else { CopyDescriptor::slice(x, starts, extents, steps)? };
            let copy = if random.u32(..3) == 0 { copy.layout("y", other(random, x)?)? } else { copy };
            AnyDescriptor::new(copy)
        }
        1 => {
            let mode = pick(random, &[PadMode::Constant(0.0), PadMode::Reflect, PadMode::Replicate, PadMode::Circular]);
            let mode = if random.u32(..4) == 0 { PadMode::Constant(eps(random)) } else { mode };
            let [before, after] = [(); 2].map(|()| (0..count).map(|_| small(random)).collect());
            let mut pad = PadDescriptor::new(x, before, after, mode)?;
            if random.u32(..4) == 0 {
                pad = pad.interior((0..count).map(|_| extent(random)).collect())?;
            }
            AnyDescriptor::new(pad)
        }
        _ => {
            let beyond = usize::from(random.u32(..12) == 0);
            let axis = random.usize(..x.rank().max(1) + beyond);
            let most = if random.u32(..12) == 0 { 67 } else { 4 };
            let mut inputs = vec![x];
            for _ in 0..random.usize(..most) {
                let mut dims = x.dims().to_vec();
                if let Some(dim) = dims.get_mut(axis) {
                    *dim = extent(random);
                }
                inputs.push(match random.u32(..8) {
                    0 => tensor(random)?,
                    _ => TensorDesc::contiguous(x.dtype(), &dims)?,
                });
            }
            let concat = ConcatDescriptor::new(inputs, axis)?;
            let name = pick(random, &["in0", "in1", "in22", "in23", "in63", "out", "x", ""]);
            AnyDescriptor::new(if random.u32(..3) == 0 { concat.layout(name, other(random, x)?)? } else { concat })
        }
    };
    Ok(any)
}

/// A tensor, now and then with strides by which it holds elements more than once.
fn repeated(random: &mut Rng, desc: TensorDesc) -> Result<TensorDesc, Error> {
    if random.u32(..4) > 0 {
        return Ok(desc);
    }
    let strides: Vec<u64> = desc.strides().iter().map(|&stride| stride.min(random.u64(..4))).collect();
    TensorDesc::strided(desc.dtype(), desc.dims(), &strides)
}

/// A product whose second factor fits about every second time.
fn gemm(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let a = tensor(random)?;
    let b = if random.u32(..4) == 0 || a.rank() < 2 {
        tensor(random)?
    } else {
        let mut batch = if random.bool() { a.dims()[..a.rank() - 2].to_vec() } else { Vec::new() };
        for extent in batch.iter_mut().filter(|_| random.u32(..4) == 0) {
            *extent = 1;
        }
        let batch = &batch[random.usize(..batch.len() + 1)..];
        let inner = a.dims()[a.rank() - if random.u32(..3) == 0 { 2 } else { 1 }];
        let dims = [batch, &[inner, extent(random)]].concat();
        TensorDesc::contiguous(a.dtype(), &dims)?
    };
    let (a, b) = (repeated(random, a)?, repeated(random, b)?);
    let factor =
        |desc: TensorDesc, transposed: bool| if transposed { GemmFactor::transposed(desc) } else { desc.into() };
    let mut d = GemmDescriptor::new(factor(a, random.u32(..3) == 0), factor(b, random.u32(..3) == 0))?;
    let name = |random: &mut Rng| pick(random, &["a", "b", "bias", "out", "pre", "dout", "da", "db", "dbias", ""]);
    for _ in 0..random.u32(..6) {
        d = match random.u32(..6) {
            0 => d.alpha(eps(random))?,
            1 => d.bias(parameter(random, a.dtype()))?,
            2 => d.activation(pick(random, &Activation::ALL))?,
            3 => d.out(parameter(random, a.dtype()))?,
            4 => d.pre(parameter(random, a.dtype()))?,
            _ => d.layout(name(random), other(random, a)?)?,
        };
    }
    if random.bool() {
        return Ok(AnyDescriptor::new(d));
    }
    let mut backward = d.backward(&wanted(random, &d))?;
    for _ in 0..random.u32(..4) {
        backward = match random.u32(..5) {
            0 => backward.saved(pick(random, &[GemmSaved::Pre, GemmSaved::Out, GemmSaved::Recompute]))?,
            1 => backward.da(parameter(random, a.dtype()), eps(random))?,
            2 => backward.db(parameter(random, a.dtype()), eps(random))?,
            3 => backward.dbias(parameter(random, a.dtype()), eps(random))?,
            _ => backward.layout(name(random), other(random, a)?)?,
        };
    }
    Ok(AnyDescriptor::new(backward))
}

/// A convolution whose weight fits more often than not, and its gradients.
fn conv(random: &mut Rng) -> Result<AnyDescriptor, Error> {
    let x = if random.u32(..4) == 0 {
        tensor(random)?
    } else {
        let dims: Vec<u64> = (0..3 + random.usize(..3)).map(|_| extent(random)).collect();
        let dtype = pick(random, &[DType::F64, DType::F32, DType::F16, DType::BF16]);
        if random.bool() { TensorDesc::channels_last(dtype, &dims)? } else { TensorDesc::contiguous(dtype, &dims)? }
    };
    let number = |random: &mut Rng, least: u64| match random.u32(..12) {
        0 => extent(random),
        1 => (1 << 31) - random.u64(..3),
        _ => random.u64(least..least + 3),
    };
    let channels = x.dims().get(1).copied().unwrap_or(1);
    let axes = x.rank().saturating_sub(2) + usize::from(random.u32(..16) == 0);
    let groups = match random.u32(..6) {
        0 => channels,
        1 => number(random, 1),
        _ => 1,
    };
    let is_transposed = random.u32(..4) == 0;
    let weight = if random.u32(..6) == 0 {
        tensor(random)?
    } else {
        let of_group = number(random, 1);
        let kernel: Vec<u64> = (0..x.rank().saturating_sub(2)).map(|_| number(random, 1)).collect();
        let channels = match is_transposed {
            true => [channels, of_group],
            false => [groups.saturating_mul(of_group), channels.checked_div(groups).unwrap_or(1)],
        };
        TensorDesc::contiguous(x.dtype(), &[&channels, &kernel[..]].concat())?
    };
    let mut window = ConvWindow::new().groups(groups);
    for _ in 0..random.u32(..4) {
        let per_axis: Vec<u64> = (0..axes).map(|_| number(random, 1)).collect();
        window = match random.u32(..4) {
            0 => window.stride(&per_axis),
            1 => window.dilation(&per_axis),
            2 => window.padding(&per_axis),
            _ => {
                let sides: Vec<[u64; 2]> = (0..axes).map(|_| [number(random, 0), number(random, 0)]).collect();
                window.padding_per_side(&sides)
            }
        };
    }
    let name =
        |random: &mut Rng| pick(random, &["x", "weight", "bias", "y", "pre", "dy", "dx", "dweight", "dbias", ""]);
    if is_transposed {
        let further: Vec<u64> = (0..axes).map(|_| number(random, 0)).collect();
        let further = if random.bool() { &further } else { &[][..] };
        let mut d = ConvTransposeDescriptor::with_output_padding(x, weight, window, further)?;
        for _ in 0..random.u32(..6) {
            d = match random.u32(..5) {
                0 => d.bias(parameter(random, x.dtype()))?,
                1 => d.activation(pick(random, &Activation::ALL))?,
                2 => d.y(parameter(random, x.dtype()))?,
                3 => d.pre(parameter(random, x.dtype()))?,
                _ => d.layout(name(random), other(random, x)?)?,
            };
        }
        let any = AnyDescriptor::new(d);
        let mut steps = if random.bool() { any.gradients_all()? } else { Vec::new() };
        return Ok(if steps.is_empty() { any } else { steps.swap_remove(random.usize(..steps.len())).descriptor });
    }
    if random.u32(..4) == 0 {
        let other = [tensor(random)?, tensor(random)?];
        return Ok(match random.u32(..3) {
            0 => AnyDescriptor::new(ConvBackwardDataDescriptor::new(other[0], weight, x, window)?),
            1 => AnyDescriptor::new(ConvBackwardWeightDescriptor::new(x, other[0], other[1], window)?),
            _ => AnyDescriptor::new(ConvBackwardBiasDescriptor::new(x)?.dbias(parameter(random, x.dtype()))?),
        });
    }
    let mut d = ConvDescriptor::new(x, weight, window)?;
    for _ in 0..random.u32(..6) {
        d = match random.u32(..5) {
            0 => d.bias(parameter(random, x.dtype()))?,
            1 => d.activation(pick(random, &Activation::ALL))?,
            2 => d.y(parameter(random, x.dtype()))?,
            3 => d.pre(parameter(random, x.dtype()))?,
            _ => d.layout(name(random), other(random, x)?)?,
        };
    }
    let (beta, dtype) = (if random.bool() { 0.0 } else { eps(random) }, parameter(random, x.dtype()));
    Ok(match random.u32(..5) {
        0 => AnyDescriptor::new(d.backward_data()?.beta(beta)?.dx(dtype)?.layout(name(random), other(random, x)?)?),
        1 => AnyDescriptor::new(d.backward_weight()?.beta(beta)?.dweight(dtype)?),
        2 => AnyDescriptor::new(d.backward_bias()?.beta(beta)?.dbias(dtype)?),
        3 => AnyDescriptor::new(d.backward_data()?),
        _ => AnyDescriptor::new(d),
    })
}

/// One of the steps of a descriptor's gradients, all of which are checked; the descriptor itself, if it has none.
fn step_of(descriptor: AnyDescriptor, random: &mut Rng) -> AnyDescriptor {
    let names = |access: &dyn Fn(&Slot) -> bool| {
        let slots = descriptor.slots().iter().filter(|slot| slot.desc.dtype().is_float() && access(slot));
        slots.map(|slot| slot.name).collect::<Vec<_>>()
    };
    match descriptor.gradients_all() {
        Ok(mut steps) => {
            let is_pointwise = ["pointwise", "reduce", "triangular_solve", "cholesky"].contains(&descriptor.name());
            let arriving = names(&|slot| {
                ["y", "h", "out", "loss", "values"].contains(&slot.name) || is_pointwise && slot.access == Access::Out
            });
            // Positions alone, as those of an order, have no gradients that arrive, and so there are no steps.
            let are_positions = arriving.is_empty() && ["sort", "top_k"].contains(&descriptor.name());
            // Weights and probabilities of classes are given, as running statistics are.
            let is_of_loss = descriptor.name() == "cross_entropy";
            let is_given = |slot: &Slot| {
                slot.name.starts_with("running") || (is_of_loss && ["weight", "targets"].contains(&slot.name))
            };
            let is_wanted = |slot: &Slot| slot.access == Access::In && !is_given(slot);
            let wanted = names(&|slot| !are_positions && is_wanted(slot));
            check(&descriptor, &steps, &arriving, &wanted).unwrap_or_else(|e| panic!("{descriptor:?}: {e:#}"));
            // Of operands none of which is of a floating-point type there are no steps.
            if steps.is_empty() { descriptor } else { steps.swap_remove(random.usize(..steps.len())).descriptor }
        }
        Err(Error::NoBackward { op }) if op.contains("_backward") || ["nonzero", "search_sorted"].contains(&op) => {
            descriptor
        }
        Err(error) => {
            is_informative(&error);
            descriptor
        }
    }
}

/// Elements twice as far apart.
fn spread(desc: &TensorDesc) -> Result<TensorDesc, Error> {
    let strides: Vec<u64> = desc.strides().iter().map(|stride| stride.saturating_mul(2)).collect();
    TensorDesc::strided(desc.dtype(), desc.dims(), &strides)
}

#[test]
fn steps_find_operands_where_a_layout_puts_them() {
    let mut random = Rng::with_seed(17);
    for subject in SUBJECTS {
        let mut laid = 0;
        let cases = (subject.cases)();
        let step = if cases.len() < 500 { 1 } else { 5 };
        for case in cases.into_iter().step_by(step) {
            let slots = case.descriptor.slots().iter();
            let spread = slots.filter_map(|slot| case.descriptor.layout(slot.name, spread(&slot.desc).ok()?).ok());
            laid += spread.map(|descriptor| step_of(descriptor, &mut random)).count();
        }
        assert!(laid > 100, "{}: {laid}", subject.name);
    }
}

fn devices() -> Vec<Device> {
    let targets = baracuda_ops_tests::target::TARGETS.iter();
    targets.filter(|t| t.name != "wgpu-plain").filter_map(|t| t.device.as_ref().ok().cloned()).collect()
}

#[test]
fn descriptors() {
    let mut random = Rng::with_seed(11);
    let devices: Vec<DeviceProps> = devices().iter().map(Device::props).chain(DeviceProps::examples()).collect();
    let options = PlanOptions::default();
    let mut accepted = 0;
    for i in 0..DESCRIPTORS {
        let descriptor = match descriptor(&mut random).and_then(|descriptor| accumulating(descriptor, &mut random)) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                is_informative(&error);
                continue;
            }
        };
        accepted += 1;
        for slot in descriptor.slots() {
            assert_eq!(slot.span_bytes, slot.desc.span_bytes());
        }
        let descriptor = if i % 4 == 0 { step_of(descriptor, &mut random) } else { descriptor };
        if i % 16 == 0 {
            assert_eq!(AnyDescriptor::parse_line(&descriptor.line()).unwrap(), descriptor);
            for device in &devices {
                match descriptor.supported_with(device, &options) {
                    Ok(kernel) => assert!(!kernel.is_empty()),
                    Err(Error::Unsupported { tried, .. }) => {
                        assert!(tried.iter().all(|r| r.reason.to_string().len() > 5), "{tried:?}");
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            // The CPU refuses nothing but more work than it can end with.
            if let Err(error) = descriptor.plan(&Device::cpu(), &options) {
                assert!(error.to_string().contains("the limit is"), "{error}");
            }
        }
    }
    assert!(accepted > DESCRIPTORS / 20, "only {accepted} were valid: the generator tests refusals alone");
}

#[test]
fn texts() {
    let mut random = Rng::with_seed(12);
    let lines: Vec<String> =
        SUBJECTS.iter().flat_map(|s| (s.cases)().into_iter().step_by(40).map(|c| c.descriptor.line())).collect();
    let words = [
        "null",
        "-1",
        "1e999",
        "18446744073709551616",
        "\"f32\"",
        "{}",
        "[]",
        "true",
        "NaN",
        "\"\u{1F980}\"",
        "[[[[",
        "\\",
    ];
    let mut parsed = 0;
    for _ in 0..TEXTS {
        let mut line: Vec<char> = lines[random.usize(..lines.len())].chars().collect();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..line.len());
            match random.u32(..5) {
                0 => drop(line.remove(at)),
                1 => line.insert(at, random.char('\0'..'\u{ff}')),
                2 => drop(line.splice(at..at, pick(&mut random, &words).chars())),
                3 => line.truncate(at.max(1)),
                _ => {
                    let other = random.usize(..line.len());
                    line.swap(at, other);
                }
            }
            if line.is_empty() {
                line.push(' ');
            }
        }
        let line: String = line.into_iter().collect();
        match AnyDescriptor::parse_line(&line) {
            Ok(descriptor) => {
                parsed += 1;
                assert_eq!(AnyDescriptor::parse_line(&descriptor.line()).unwrap(), descriptor, "{line}");
            }
            Err(Error::UnknownOp { known, .. }) => assert_eq!(known.len(), OPS.len()),
            Err(Error::InvalidJson { source, .. }) => assert!(!source.to_string().is_empty()),
            Err(error) => panic!("{line}: {error:?}"),
        }
    }
    assert!(parsed > 0, "no changed text was valid: the generator tests refusals alone");
}

/// Texts like that of `value`, in each of which one object names an entry twice, or is the array of its values, and the words that refuse
/// them. `around` puts an object where it belongs.
fn spoiled(value: &Value, around: &dyn Fn(String) -> String, found: &mut Vec<(String, String)>) {
    let Some(object) = value.as_object() else { return };
    let entries: Vec<String> = object.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    for (i, (key, value)) in object.iter().enumerate() {
        let with = |entry: String| {
            let mut entries = entries.clone();
            entries[i] = entry;
            around(format!("{{{}}}", entries.join(",")))
        };
        found.push((with(format!("{0},{0}", entries[i])), format!("duplicate field `{key}`")));
        spoiled(value, &|inner| with(format!("\"{key}\":{inner}")), found);
        let elements: &[Value] = value.as_array().map_or(&[], Vec::as_slice);
        for (at, element) in elements.iter().enumerate() {
            let in_list = |inner: String| {
                let others = elements.iter().map(Value::to_string);
                let others = others.enumerate().map(|(i, other)| if i == at { inner.clone() } else { other });
                with(format!("\"{key}\":[{}]", others.collect::<Vec<_>>().join(",")))
            };
            spoiled(element, &in_list, found);
        }
    }
    let expected = match object {
        tensor if tensor.contains_key("dims") && tensor.contains_key("dtype") => "a tensor",
        program if program.contains_key("let") => "a program",
        _ => "an object",
    };
    let array = Value::from_iter(object.values().cloned()).to_string();
    found.push((around(array), format!("invalid type: array, expected {expected}")));
}

#[test]
fn objects_that_name_an_entry_twice_or_none() {
    for subject in SUBJECTS {
        for case in (subject.cases)().into_iter().step_by(20) {
            let any = serde_json::to_value(&case.descriptor).unwrap();
            let mut texts = Vec::new();
            spoiled(&any["descriptor"], &|object| object, &mut texts);
            assert!(texts.len() >= 5, "{any}");
            for (text, expected) in &texts {
                let refused = AnyDescriptor::parse(subject.name, text).unwrap_err();
                assert!(matches!(refused, Error::InvalidJson { .. }), "{refused:?}");
                assert!(refused.to_string().contains(expected), "{text}: {refused}");
            }
            texts.clear();
            spoiled(&any, &|object| object, &mut texts);
            for (text, expected) in &texts {
                let refused = serde_json::from_str::<AnyDescriptor>(text).unwrap_err();
                assert!(refused.to_string().contains(expected), "{text}: {refused}");
            }
        }
    }
}

/// The paths of what a value holds that is neither object nor array, as errors write them and as JSON pointers.
fn leaves(value: &Value, path: &str, pointer: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            leaves(value, &format!("{path}{dot}{key}"), &format!("{pointer}/{key}"), found);
        }),
        Value::Array(values) => values.iter().enumerate().for_each(|(i, value)| {
            leaves(value, &format!("{path}[{i}]"), &format!("{pointer}/{i}"), found);
        }),
        _ => found.push((path.into(), pointer.into())),
    }
}

#[test]
fn a_wrong_value_is_named_by_its_path() {
    let wrong = [r#"{"wrong":1}"#, "[[1]]", r#""wrong""#].map(|json| serde_json::from_str(json).unwrap());
    for subject in SUBJECTS {
        for case in (subject.cases)().into_iter().step_by(20) {
            let json = serde_json::to_value(&case.descriptor).unwrap()["descriptor"].take();
            let mut places = Vec::new();
            leaves(&json, "", "", &mut places);
            for (path, pointer) in places {
                let of_wrong = |wrong: &Value| {
                    let mut json = json.clone();
                    *json.pointer_mut(&pointer).unwrap() = wrong.clone();
                    json.to_string()
                };
                // A program is looked at as a whole: its names belong together, and one that nothing uses may be any. So are the names of gradients.
                let program = ["program", "finish"].into_iter().find(|field| path.starts_with(&format!("{field}.")));
                let gradients = path.starts_with("accumulate[").then_some("accumulate");
                let (is_name, path) = (program.is_some(), program.or(gradients).unwrap_or(&path));
                for text in wrong.iter().map(of_wrong) {
                    let Err(error) = AnyDescriptor::parse(subject.name, &text) else {
                        assert!(is_name && text.contains(r#""wrong""#), "{text} was accepted");
                        continue;
                    };
                    let words = error.to_string();
                    let rest =
                        words.split_once("the JSON is not a valid descriptor: ").expect("the JSON is at fault").1;
                    assert!(rest.starts_with(path), "{text}: {path}: {words}");
                }
            }
        }
    }
}

#[test]
fn extents_of_nothing_take_no_time() {
    let device = Device::cpu();
    for line in [
        r#"layer_norm {"x":{"dtype":"f32","dims":[1125899906842624,0]},"normalized_dims":1,"eps":1e-5}"#,
        r#"rms_norm {"x":{"dtype":"f32","dims":[1125899906842624,0]},"normalized_dims":1,"eps":1e-5}"#,
        r#"batch_norm {"x":{"dtype":"f32","dims":[1099511627776,4,0]},"eps":1e-5,"stats":true}"#,
        r#"batch_norm_backward {"x":{"dtype":"f32","dims":[1099511627776,4,0]},"weight":"f32","bias":"f32","dx":true,"dweight":true,"dbias":true}"#,
        r#"group_norm {"x":{"dtype":"f32","dims":[2,1099511627776,0]},"groups":2,"eps":1e-5,"stats":true}"#,
        r#"group_norm_backward {"x":{"dtype":"f32","dims":[1099511627776,4,0]},"groups":2,"weight":"f32","dx":true,"dweight":true,"layouts":{"mean":{"dtype":"f32","dims":[1099511627776,2],"strides":[0,0]},"rstd":{"dtype":"f32","dims":[1099511627776,2],"strides":[0,0]}}}"#,
        r#"instance_norm {"x":{"dtype":"f32","dims":[1099511627776,3,0]},"eps":1e-5,"momentum":0.1}"#,
        r#"local_response_norm {"x":{"dtype":"f32","dims":[1099511627776,3,0]},"size":18446744073709551615}"#,
        r#"softmax {"x":{"dtype":"f32","dims":[1099511627776,3,0]},"axis":1}"#,
        r#"pointwise {"program":{"inputs":["x","y"],"let":[["z","add","x","y"]],"outputs":["z"]},"inputs":[{"dtype":"f32","dims":[1099511627776,1,0]},{"dtype":"f32","dims":[1,1048576,1]}]}"#,
        r#"copy {"x":{"dtype":"f32","dims":[1099511627776,0,1048576]}}"#,
        r#"pad {"x":{"dtype":"f32","dims":[1099511627776,0]},"before":[1099511627776,0],"after":[0,0],"mode":"replicate"}"#,
        r#"concat {"inputs":[{"dtype":"f32","dims":[1099511627776,0]},{"dtype":"f32","dims":[1099511627776,0]}],"axis":0}"#,
        r#"conv {"x":{"dtype":"f32","dims":[1099511627776,0,5]},"weight":{"dtype":"f32","dims":[0,0,3]}}"#,
        r#"conv {"x":{"dtype":"f32","dims":[2,3,0]},"weight":{"dtype":"f32","dims":[4,3,1073741824],"strides":[0,0,0]},"padding":[[1073741824,3]]}"#,
        r#"conv_backward_data {"dy":{"dtype":"f32","dims":[1099511627776,0,3]},"weight":{"dtype":"f32","dims":[0,0,3]},"dx":{"dtype":"f32","dims":[1099511627776,0,5]}}"#,
        r#"conv_backward_weight {"x":{"dtype":"f32","dims":[0,3,1099511627776]},"dy":{"dtype":"f32","dims":[0,4,1099511627774]},"dweight":{"dtype":"f32","dims":[4,3,3]}}"#,
        r#"conv_backward_bias {"dy":{"dtype":"f32","dims":[0,4,1099511627776]}}"#,
        r#"gemm {"a":{"dtype":"f32","dims":[1099511627776,1048576,0]},"b":{"dtype":"f32","dims":[0,0]}}"#,
        r#"gemm {"a":{"dtype":"f32","dims":[0,1099511627776]},"b":{"dtype":"f32","dims":[1099511627776,0]}}"#,
        r#"gemm_backward {"a":{"dtype":"f32","dims":[1099511627776,0,4]},"b":{"dtype":"f32","dims":[4,5]},"activation":"silu","saved":"recompute","da":{"dtype":"f32"},"db":{"dtype":"f32"},"dbias":{"dtype":"f32"}}"#,
    ] {
        let plan = AnyDescriptor::parse_line(line).unwrap().plan(&device, &PlanOptions::default()).unwrap();
        let buffers: Vec<Buffer> = plan.slots().iter().map(|slot| device.alloc(slot.span_bytes).unwrap()).collect();
        let mut operands: Vec<Operand<'_>> = buffers.iter().map(Operand::from).collect();
        plan.run(&mut device.queue(), &mut operands, Workspace::none()).unwrap();
    }
}

/// Whether this process runs one test alone; else has another process do so, and fails as the test does there. What a process takes of the processors
/// is then what the test takes.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "BOPS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args([test, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    print!("{said}");
    false
}

/// The time that the threads of this process have taken of processors, where Linux tells it.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the program's name, in hundredths of a second: its own time is the 12th field, what the system takes for it the 13th.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..13)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * ticks))
}

/// How long a run takes, with inputs that are 0: the least of three, since drivers compile late. Where processors do the work, it is their time, to
/// which other programs do not add.
fn time_of(line: &str, device: &Device) -> Duration {
    let plan = AnyDescriptor::parse_line(line).unwrap().plan(device, &PlanOptions::default()).unwrap();
    let buffers: Vec<Buffer> = plan.slots().iter().map(|slot| device.alloc(slot.span_bytes).unwrap()).collect();
    let workspace = device.alloc(plan.workspace().bytes).unwrap();
    let mut operands: Vec<Operand<'_>> = buffers.iter().map(Operand::from).collect();
    let start = Instant::now();
    let now = || processor_time().filter(|_| device.is_software()).unwrap_or_else(|| start.elapsed());
    let mut once = || {
        let start = now();
        plan.run(&mut device.queue(), &mut operands, Workspace::new(&workspace)).unwrap();
        let mut first = [0f32];
        device.queue().download_range(buffers.last().unwrap(), 0, &mut first).unwrap();
        now() - start
    };
    (0..3).map(|_| once()).min().unwrap()
}

/// Fails if a run takes more than a second.
fn take_no_time(test: &str, lines: &[&str]) {
    if !is_alone(test) {
        return;
    }
    for line in lines {
        for device in devices().iter().filter(|device| device.backend() != Backend::Cuda) {
            let time = time_of(line, device);
            println!("{time:?} on {device}: {line}");
            assert!(time < Duration::from_secs(1), "{time:?} on {device}: {line}");
        }
    }
}

/// Strides and paddings leave few products of many places: these are visited, the others are not.
#[test]
fn places_without_elements_take_no_time() {
    take_no_time(
        "places_without_elements_take_no_time",
        &[
            r#"conv_backward_data {"dy":{"dtype":"f32","dims":[1,8,8]},"weight":{"dtype":"f32","dims":[8,1,4096]},"dx":{"dtype":"f32","dims":[1,1,11264]},"stride":[1024]}"#,
            r#"conv_backward_data {"dy":{"dtype":"bf16","dims":[1,8,8]},"weight":{"dtype":"bf16","dims":[8,1,4096]},"dx":{"dtype":"bf16","dims":[1,1,11264]},"stride":[1024]}"#,
            r#"conv_backward_data {"dy":{"dtype":"f32","dims":[1,4,6,6]},"weight":{"dtype":"f32","dims":[4,2,64,64]},"dx":{"dtype":"f32","dims":[1,2,224,224]},"stride":[32,32]}"#,
            r#"conv_backward_data {"dy":{"dtype":"f32","dims":[2,6,5]},"weight":{"dtype":"f32","dims":[6,1,512]},"dx":{"dtype":"f32","dims":[2,3,200576]},"stride":[1024],"dilation":[384],"groups":3}"#,
            r#"conv {"x":{"dtype":"f32","dims":[1,1,8]},"weight":{"dtype":"f32","dims":[2,1,65536]},"padding":[[65536,65536]]}"#,
            r#"conv {"x":{"dtype":"bf16","dims":[1,1,8]},"weight":{"dtype":"bf16","dims":[2,1,65536]},"padding":[[65536,65536]]}"#,
            r#"conv_backward_data {"dy":{"dtype":"f32","dims":[1,2,65545]},"weight":{"dtype":"f32","dims":[2,1,65536]},"dx":{"dtype":"f32","dims":[1,1,8]},"padding":[[65536,65536]]}"#,
            r#"conv_backward_weight {"x":{"dtype":"f32","dims":[1,1,8]},"dy":{"dtype":"f32","dims":[1,2,65545]},"dweight":{"dtype":"f32","dims":[2,1,65536]},"padding":[[65536,65536]]}"#,
        ],
    );
}

/// Each of many channels has a weight of its own to sum up, or each of many samples adds to one.
#[test]
fn small_sums_in_great_number_take_no_time() {
    take_no_time(
        "small_sums_in_great_number_take_no_time",
        &[
            r#"conv_backward_weight {"x":{"dtype":"f32","dims":[1,32768,4,4]},"dy":{"dtype":"f32","dims":[1,32768,4,4]},"dweight":{"dtype":"f32","dims":[32768,1,3,3]},"padding":[[1,1],[1,1]],"groups":32768}"#,
            r#"group_norm_backward {"x":{"dtype":"f32","dims":[32768,4,2]},"groups":2,"weight":"f32","dx":true,"dweight":true}"#,
        ],
    );
}

/// Inputs can have any number of elements in memory of a few bytes: strides of 0 repeat them.
#[test]
fn more_work_than_a_run_can_end_with_is_refused() {
    const LIMIT: u64 = 1 << 48;
    let outcome = |line: &str, device: &Device| {
        AnyDescriptor::parse_line(line).unwrap().supported_by(device, &PlanOptions::default())
    };
    let rms = |dtype: &str, rows: u64| {
        let rest = format!(r#"[{rows},8],"strides":[0,0]}}"#);
        let rstd = format!(r#"{{"dtype":"f32","dims":[{rows}],"strides":[0]}}"#);
        format!(
            r#"rms_norm_backward {{"x":{{"dtype":"{dtype}","dims":{rest},"normalized_dims":1,"weight":"f32","dx":false,"dweight":true,"layouts":{{"dy":{{"dtype":"{dtype}","dims":{rest},"rstd":{rstd}}}}}"#
        )
    };
    let batch = |spatial: u64| {
        let x = format!(r#"{{"dtype":"f32","dims":[2,3,{spatial}],"strides":[0,1,0]}}"#);
        format!(
            r#"batch_norm_backward {{"x":{x},"weight":"f32","bias":"f32","dweight":true,"dbias":true,"layouts":{{"dy":{x}}}}}"#
        )
    };
    for device in &devices() {
        for (line, elements) in [(rms("f32", 1 << 55), 1u64 << 58), (rms("bf16", (LIMIT >> 3) + 1), LIMIT + 8)] {
            let refused = outcome(&line, device).unwrap_err().to_string();
            assert!(refused.contains(&format!("{elements} elements, the limit is {LIMIT}")), "{refused}");
        }
        let refused = outcome(&batch(LIMIT), device).unwrap_err().to_string();
        assert!(refused.contains("elements, the limit is"), "{refused}");
        // The gradient of the bias is summed over dout, also if neither factor has elements.
        let of_bias = r#"gemm_backward {"a":{"dtype":"f32","dims":[1152921504606846976,0]},"b":{"dtype":"f32","dims":[0,1]},"dbias":{"dtype":"f32"},"layouts":{"dout":{"dtype":"f32","dims":[1152921504606846976,1],"strides":[0,0]}}}"#;
        let refused = outcome(of_bias, device).unwrap_err().to_string();
        assert!(refused.contains(&format!("{} elements, the limit is {LIMIT}", 1u64 << 60)), "{refused}");
        let square = r#"{"dtype":"f32","dims":[1048576,1048576]}"#;
        let refused = outcome(&format!(r#"gemm {{"a":{square},"b":{square}}}"#), device).unwrap_err().to_string();
        assert!(refused.contains(&format!("{} products, the limit is {LIMIT}", 1u64 << 60)), "{refused}");
    }
    let cpu = Device::cpu();
    outcome(&rms("f32", LIMIT >> 3), &cpu).unwrap();
    // Factors of few elements may have many terms.
    let conv = r#"conv {"x":{"dtype":"f32","dims":[1,65536,65536],"strides":[0,0,0]},"weight":{"dtype":"f32","dims":[4,65536,32768],"strides":[0,0,0]}}"#;
    let refused = outcome(conv, &cpu).unwrap_err().to_string();
    assert!(refused.contains(&format!("{} products, the limit is {LIMIT}", (4u64 * 32769) << 31)), "{refused}");
    // A window over few elements may have many.
    let lrn = |op: &str, channels: u64, size: u64| {
        format!(r#"{op} {{"x":{{"dtype":"f32","dims":[1,{channels},1]}},"size":{size}}}"#)
    };
    for op in ["local_response_norm", "local_response_norm_backward"] {
        for device in devices().iter().filter(|device| device.backend() != Backend::Cpu) {
            let refused = outcome(&lrn(op, 1 << 30, 1 << 20), device).unwrap_err().to_string();
            assert!(refused.contains(&format!("{} terms, the limit is {LIMIT}", 1u64 << 50)), "{refused}");
        }
        // The CPU does not add up each window by itself.
        outcome(&lrn(op, 1 << 30, 1 << 20), &cpu).unwrap();
        outcome(&lrn(op, 1 << 30, u64::MAX), &cpu).unwrap();
    }
}

/// Shaders count in 32 bits, also what strides of 0 repeat.
#[test]
fn more_elements_than_shaders_count_are_refused_with_the_numbers() {
    let channels = r#"{"dtype":"f32","dims":[65536,4,65537],"strides":[0,1,0]}"#;
    let rows = r#"{"dtype":"bf16","dims":[268435456,8],"strides":[0,1]}"#;
    let lines = [
        (
            format!(
                r#"batch_norm_backward {{"x":{channels},"weight":"f32","bias":"f32","dweight":true,"dbias":true,"layouts":{{"dy":{channels}}}}}"#
            ),
            65536 * 4 * 65537u64,
        ),
        (
            format!(
                r#"rms_norm_backward {{"x":{rows},"normalized_dims":1,"weight":"f32","dx":false,"dweight":true,"layouts":{{"dy":{rows},"rstd":{{"dtype":"f32","dims":[268435456],"strides":[0]}}}}}}"#
            ),
            8 << 28,
        ),
    ];
    for (line, elements) in &lines {
        let descriptor = AnyDescriptor::parse_line(line).unwrap();
        for device in DeviceProps::examples() {
            let outcome = descriptor.supported_with(&device, &PlanOptions::default());
            if device.backend() == Backend::Wgpu {
                let refused = outcome.unwrap_err().to_string();
                assert!(refused.contains(&format!("{elements} elements, the limit of 32-bit indices is")), "{refused}");
            } else if line.starts_with("batch_norm") && device.backend() == Backend::Cpu {
                outcome.unwrap();
            }
        }
    }
}

/// Extents beside one of 0 and strides along them address nothing, however large they are.
#[test]
fn layouts_of_nothing_are_planned_or_refused_without_overflow() {
    let mut devices: Vec<DeviceProps> = devices().iter().map(Device::props).collect();
    devices.extend(DeviceProps::examples());
    for x in [
        r#"{"dtype":"f32","dims":[2,0,2147483648,4],"strides":[0,0,0,1099511627776]}"#,
        r#"{"dtype":"f32","dims":[2,0,1048576,4],"strides":[0,0,0,35184372088832]}"#,
        r#"{"dtype":"bf16","dims":[0,4,1048576,4],"strides":[0,0,0,35184372088832]}"#,
        r#"{"dtype":"f32","dims":[3,0,1152921504606846976]}"#,
        r#"{"dtype":"f16","dims":[1099511627776,0,2]}"#,
        r#"{"dtype":"f64","dims":[0,4611686018427387904,2]}"#,
        r#"{"dtype":"f32","dims":[4611686018427387904,0,2],"strides":[0,1,0]}"#,
    ] {
        for line in [
            format!(r#"batch_norm {{"x":{x},"eps":1e-5}}"#),
            format!(r#"batch_norm_backward {{"x":{x},"dx":true}}"#),
            format!(r#"instance_norm {{"x":{x},"eps":1e-5}}"#),
            format!(r#"group_norm {{"x":{x},"groups":1,"eps":1e-5}}"#),
            format!(r#"group_norm {{"x":{x},"groups":1099511627776,"eps":1e-5}}"#),
            format!(r#"local_response_norm {{"x":{x},"size":5}}"#),
            format!(r#"local_response_norm_backward {{"x":{x},"size":5}}"#),
            format!(r#"layer_norm {{"x":{x},"normalized_dims":1,"eps":1e-5}}"#),
            format!(r#"rms_norm {{"x":{x},"normalized_dims":2,"eps":1e-5}}"#),
            format!(r#"softmax {{"x":{x},"axis":1}}"#),
            format!(r#"activation {{"x":{x},"activation":"relu"}}"#),
            format!(
                r#"pointwise {{"program":{{"inputs":["x","y"],"let":[["z","mul","x","y"]],"outputs":["z"]}},"inputs":[{x},{x}]}}"#
            ),
            format!(r#"reduce {{"inputs":[{x}],"axes":[0],"reduce":"sum"}}"#),
            format!(r#"reduce {{"inputs":[{x}],"axes":[1],"reduce":"sum"}}"#),
            format!(r#"reduce {{"inputs":[{x}],"axes":[0,1,2],"reduce":"prod"}}"#),
            format!(r#"copy {{"x":{x}}}"#),
            format!(r#"pad {{"x":{x},"before":[1,0,0,0],"after":[0,0,0,0]}}"#),
            format!(r#"pad {{"x":{x},"before":[0,1,0,0],"after":[0,0,-1,2]}}"#),
            format!(r#"pad {{"x":{x},"before":[1,1,0],"after":[0,0,0]}}"#),
            format!(r#"concat {{"inputs":[{x},{x}],"axis":0}}"#),
            format!(r#"conv {{"x":{x},"weight":{{"dtype":"f32","dims":[4,0,1,1]}},"bias":"f32"}}"#),
            format!(r#"conv {{"x":{x},"weight":{{"dtype":"f32","dims":[0,4,1,1]}}}}"#),
            format!(r#"conv_backward_weight {{"x":{x},"dy":{x},"dweight":{{"dtype":"f32","dims":[0,0,1,1]}}}}"#),
            format!(r#"conv_backward_data {{"dy":{x},"weight":{{"dtype":"f32","dims":[0,0,1,1]}},"dx":{x}}}"#),
            format!(r#"conv_backward_bias {{"dy":{x}}}"#),
            format!(r#"conv_transpose {{"x":{x},"weight":{{"dtype":"f32","dims":[0,4,1,1]}},"bias":"f32"}}"#),
            format!(r#"gemm {{"a":{x},"b":{{"dtype":"f32","dims":[4,5]}},"bias":"f32"}}"#),
            format!(
                r#"gemm_backward {{"a":{x},"b":{{"dtype":"f32","dims":[4,5]}},"activation":"silu","da":{{"dtype":"f32"}},"db":{{"dtype":"f32"}}}}"#
            ),
        ] {
            let Ok(descriptor) = AnyDescriptor::parse_line(&line) else { continue };
            for device in &devices {
                match descriptor.supported_with(device, &PlanOptions::default()) {
                    Ok(_) | Err(Error::Unsupported { .. }) => {}
                    Err(error) => panic!("{line}: {error:?}"),
                }
            }
        }
    }
}

struct Bench<'d> {
    plan: AnyPlan,
    buffers: Vec<Buffer>,
    other: &'d Buffer,
}

fn offset(random: &mut Rng) -> u64 {
    match random.u32(..8) {
        0 => random.u64(..64),
        1 => random.u64(..),
        2 => u64::MAX,
        _ => 0,
    }
}

/// A run whose operands are right except where chance has it.
fn arguments(random: &mut Rng, bench: &Bench<'_>, spare: &Buffer) -> Result<(), Error> {
    let host = [0f32; 64];
    let mut scratch = vec![0f64; 64];
    let trouble = random.u32(..4) > 0;
    let mut free = Some(&mut scratch);
    let mut operands: Vec<Operand<'_>> = Vec::new();
    for (slot, buffer) in bench.plan.slots().iter().zip(&bench.buffers) {
        let is_bad = trouble && random.u32(..5) == 0;
        let (at, bytes) = if is_bad {
            (offset(random), slot.span_bytes.saturating_sub(random.u64(..3)))
        } else {
            (0, slot.span_bytes)
        };
        let buffer = match random.u32(..12) {
            0 if is_bad => bench.other,
            1 if is_bad => spare,
            2 if is_bad => &bench.buffers[random.usize(..bench.buffers.len())],
            _ => buffer,
        };
        let is_read = slot.access == baracuda_ops::Access::In;
        operands.push(match random.u32(..10) {
            0 if is_bad => Mem::host(&host).into(),
            1 if is_bad => match free.take() {
                Some(values) => MemMut::host(values.as_mut_slice()).into(),
                None => Mem::in_place().into(),
            },
            2 if is_bad => Mem::in_place().into(),
            3 if is_bad => Mem::buffer(buffer, at, bytes).into(),
            _ if is_read => Mem::buffer(buffer, at, bytes).into(),
            _ => MemMut::buffer(buffer, at, bytes).into(),
        });
    }
    if trouble && random.u32(..20) == 0 {
        operands.pop();
    }
    let workspace = match random.u32(..20) {
        0 if trouble => Workspace::none(),
        1 if trouble => Workspace::new(bench.other),
        2 if trouble => Workspace::new(MemMut::buffer(spare, offset(random), offset(random))),
        _ => Workspace::new(spare),
    };
    if random.u32(..4) == 0 {
        let bound = bench.plan.bind(&operands, workspace)?;
        bound.run(&mut bench.plan.device().queue())
    } else {
        bench.plan.run(&mut bench.plan.device().queue(), &mut operands, workspace)
    }
}

#[test]
fn arguments_of_runs() {
    let devices = devices();
    let elsewhere = Device::cpu().upload(&[0f32; 64]).unwrap();
    for device in &devices {
        let mut random = Rng::with_seed(13);
        let lines = [
            r#"layer_norm {"x":{"dtype":"f32","dims":[2,3]},"normalized_dims":1,"weight":"f32","bias":"f32","eps":1e-5,"stats":true}"#,
            r#"layer_norm {"x":{"dtype":"bf16","dims":[3,5]},"normalized_dims":1,"eps":1e-5,"residual":true}"#,
            r#"rms_norm {"x":{"dtype":"f16","dims":[2,8]},"normalized_dims":1,"weight":"f32","eps":1e-5,"stats":true}"#,
            r#"layer_norm_backward {"x":{"dtype":"f32","dims":[2,3]},"normalized_dims":1,"weight":"f32","dx":true,"dweight":true,"dbias":"f32","dh":true}"#,
            r#"rms_norm_backward {"x":{"dtype":"bf16","dims":[3,4]},"normalized_dims":1,"weight":"bf16","dx":true,"dweight":true}"#,
            r#"batch_norm {"x":{"dtype":"f32","dims":[2,3,2]},"weight":"f32","eps":1e-5,"residual":true,"cumulative":true,"stats":true}"#,
            r#"batch_norm_backward {"x":{"dtype":"f32","dims":[2,3]},"weight":"f32","bias":"f32","activation":"relu","residual":true,"dx":true,"dresidual":true,"dweight":true,"dbias":true}"#,
            r#"group_norm {"x":{"dtype":"bf16","dims":[2,4,3]},"groups":2,"weight":"f32","bias":"f32","eps":1e-5,"activation":"silu","stats":true}"#,
            r#"group_norm_backward {"x":{"dtype":"f32","dims":[2,4,2]},"groups":2,"weight":"f32","dx":true,"dweight":true}"#,
            r#"instance_norm {"x":{"dtype":"f32","dims":[2,2,3]},"eps":1e-5,"momentum":0.1}"#,
            r#"instance_norm_backward {"x":{"dtype":"f16","dims":[2,2,4]},"dx":true}"#,
            r#"local_response_norm {"x":{"dtype":"bf16","dims":[2,3,5]},"size":3,"alpha":0.1,"beta":0.75,"k":1.0}"#,
            r#"local_response_norm_backward {"x":{"dtype":"f32","dims":[2,3,5]},"size":4,"alpha":0.1,"beta":0.5,"k":1.0}"#,
            r#"softmax {"x":{"dtype":"bf16","dims":[2,3,5]},"axis":1,"scale":0.5}"#,
            r#"softmax_backward {"y":{"dtype":"f32","dims":[3,5]},"axis":1,"log":true}"#,
            r#"activation {"x":{"dtype":"f16","dims":[3,5]},"activation":"tanh"}"#,
            r#"activation_backward {"x":{"dtype":"f32","dims":[7]},"activation":"relu","from_y":true}"#,
            r#"pointwise {"program":{"inputs":["x","y"],"let":[["s","add","x","y"],["d","sub","x","y"]],"outputs":["s","d"]},"inputs":[{"dtype":"f32","dims":[3,5]},{"dtype":"bf16","dims":[5]}]}"#,
            r#"pointwise {"program":{"inputs":["x","y"],"let":[["z","mul","x","y"]],"outputs":["z"]},"inputs":[{"dtype":"f32","dims":[5]},{"dtype":"f32","dims":[]}],"sets":[[{"dtype":"f32","dims":[2,3]}],[{"dtype":"f32","dims":[]}]]}"#,
            r#"copy {"x":{"dtype":"bf16","dims":[5,3],"strides":[1,5]}}"#,
            r#"pad {"x":{"dtype":"f32","dims":[3,4]},"before":[1,0],"after":[0,2],"value":1.5}"#,
            r#"concat {"inputs":[{"dtype":"f16","dims":[3,4]},{"dtype":"f16","dims":[3,2]}],"axis":1}"#,
            r#"conv {"x":{"dtype":"f32","dims":[1,2,3,4]},"weight":{"dtype":"f32","dims":[3,2,2,2]},"bias":"f32","activation":"silu","pre":"f32"}"#,
            r#"conv_backward_data {"dy":{"dtype":"bf16","dims":[1,2,4]},"weight":{"dtype":"bf16","dims":[2,3,3]},"dx":{"dtype":"f32","dims":[1,3,4]},"padding":[[1,1]],"beta":0.5}"#,
            r#"conv_backward_weight {"x":{"dtype":"f16","dims":[2,2,6]},"dy":{"dtype":"f16","dims":[2,4,3]},"dweight":{"dtype":"f16","dims":[4,1,2]},"stride":[2],"groups":2}"#,
            r#"conv_backward_bias {"dy":{"dtype":"f32","dims":[2,3,4]}}"#,
            r#"conv_transpose {"x":{"dtype":"bf16","dims":[1,2,3]},"weight":{"dtype":"bf16","dims":[2,3,2]},"stride":[2],"bias":"f32","activation":"silu","pre":"f32"}"#,
            r#"gemm {"a":{"dtype":"f32","dims":[3,4]},"b":{"dtype":"f32","dims":[4,5]},"bias":"f32","activation":"silu","pre":"f32"}"#,
            r#"gemm_backward {"a":{"dtype":"bf16","dims":[2,3,4]},"b":{"dtype":"bf16","dims":[4,5]},"bias":"f32","activation":"silu","saved":"recompute","da":{"dtype":"bf16"},"db":{"dtype":"f32","beta":1.0},"dbias":{"dtype":"f32"}}"#,
        ];
        let foreign = if devices.len() > 1 && device.backend() == baracuda_ops::Backend::Cpu {
            devices[1].alloc(256).unwrap()
        } else {
            elsewhere.clone()
        };
        let benches: Vec<Bench<'_>> = lines
            .iter()
            .map(|line| {
                let plan = AnyDescriptor::parse_line(line).unwrap().plan(device, &PlanOptions::default()).unwrap();
                let buffers = plan.slots().iter().map(|s| device.alloc(s.span_bytes).unwrap()).collect();
                Bench { plan, buffers, other: &foreign }
            })
            .collect();
        let spare = device.alloc(1 << 16).unwrap();
        // Runs on a GPU take longer, and the check before them is the same code.
        let runs = if device.backend() == baracuda_ops::Backend::Cpu { ARGUMENTS } else { ARGUMENTS / 20 };
        let (mut passed, mut refused) = (0, 0);
        for i in 0..runs {
            let bench = &benches[i % benches.len()];
            match arguments(&mut random, bench, &spare) {
                Ok(()) => passed += 1,
                Err(error) => {
                    refused += 1;
                    let words = error.to_string();
                    let names_one =
                        bench.plan.slots().iter().any(|s| words.contains(s.name)) || words.contains("workspace");
                    assert!(names_one || matches!(error, Error::OperandCount { .. }), "{words}");
                    assert!(
                        !matches!(error, Error::Backend { .. } | Error::DeviceLost { .. } | Error::OutOfMemory { .. }),
                        "the checks let this through: {words}"
                    );
                }
            }
        }
        assert!(passed > runs / 10 && refused > runs / 10, "{device}: {passed} passed, {refused} refused");
    }
}

/// Runs gradients of a product on the CPU: b holds -0.5, every other operand 1. What the gradients of f32 are then, by their names.
fn gradients(line: &str) -> Vec<(&'static str, Vec<f32>)> {
    let device = Device::cpu();
    let plan = AnyDescriptor::parse_line(line).unwrap().plan(&device, &PlanOptions::default()).unwrap();
    let filled = |slot: &Slot| {
        let bytes = if slot.name == "b" { -0.5f32 } else { 1.0 }.to_le_bytes();
        // The upper half of an f32 is the same number in bf16.
        let bytes = if slot.desc.dtype() == DType::F32 { &bytes[..] } else { &bytes[2..] };
        let buffer = device.alloc(slot.span_bytes).unwrap();
        device.write(&buffer, 0, &bytes.repeat(slot.span_bytes as usize / bytes.len())).unwrap();
        buffer
    };
    let buffers: Vec<Buffer> = plan.slots().iter().map(filled).collect();
    let mut operands: Vec<Operand<'_>> = buffers.iter().map(Operand::from).collect();
    let mut queue = device.queue();
    plan.run(&mut queue, &mut operands, Workspace::none()).unwrap();
    let outputs = plan.slots().iter().zip(&buffers).filter(|(slot, _)| slot.access != Access::In);
    let download = |(slot, buffer): (&Slot, &Buffer)| {
        let mut values = vec![f32::NAN; slot.span_bytes as usize / 4];
        queue.download_range(buffer, 0, &mut values).unwrap();
        (slot.name, values)
    };
    outputs.map(download).collect()
}

#[test]
fn gradients_of_products_need_no_memory_for_the_whole_of_dpre() {
    // More elements of dpre than are in memory at once, along each of its extents.
    let square = [1, 4100, 4100];
    for ([batch, m, n], dtype, saved) in [
        (square, "f32", "pre"),
        (square, "bf16", "pre"),
        (square, "f32", "recompute"),
        ([1, 1, (1 << 24) + 3], "f32", "pre"),
        ([1, (1 << 24) + 3, 1], "f32", "pre"),
        ([70_000, 16, 16], "f32", "pre"),
    ] {
        let tensor = |dims: [u64; 3], strides: [u64; 3]| {
            format!(r#"{{"dtype":"{dtype}","dims":{dims:?},"strides":{strides:?}}}"#)
        };
        let (a, b) = (tensor([batch, m, 1], [0, 0, 1]), tensor([batch, 1, n], [0, 1, 0]));
        let over = tensor([batch, m, n], [0; 3]);
        let kept = if saved == "pre" { format!(r#","pre":{over}"#) } else { String::new() };
        let gradient = r#"{"dtype":"f32","beta":2.0}"#;
        // With an alpha of -1 the product is 0.5, so that dpre is 1.
        let line = format!(
            r#"gemm_backward {{"a":{a},"b":{b},"alpha":-1.0,"activation":"relu","saved":"{saved}","da":{gradient},"db":{gradient},"dbias":{gradient},"layouts":{{"dout":{over}{kept}}}}}"#
        );
        for (name, values) in gradients(&line) {
            let sum = match name {
                "da" => 0.5 * (batch * n) as f64,
                "db" => -((batch * m) as f64),
                _ => (batch * m) as f64,
            };
            // Sums of such numbers are exact up to 2^24, and a few roundings off beyond.
            let is_expected = |value: &f32| (f64::from(*value) - 2.0 - sum).abs() <= 1e-6 * sum.abs();
            let wrong = values.iter().find(|value| !is_expected(value));
            assert!(!values.is_empty() && wrong.is_none(), "{name} is {wrong:?} in place of {}: {line}", 2.0 + sum);
        }
    }
}

#[test]
fn gradients_of_products_over_nothing_take_no_time() {
    for line in [
        r#"gemm_backward {"a":{"dtype":"bf16","dims":[36028797018963968,0,3]},"b":{"dtype":"bf16","dims":[3,5]},"db":{"dtype":"f32","beta":2.0}}"#,
        r#"gemm_backward {"a":{"dtype":"f32","dims":[36028797018963968,0,3]},"b":{"dtype":"f32","dims":[1,3,5]},"db":{"dtype":"f32","beta":2.0}}"#,
        r#"gemm_backward {"a":{"dtype":"bf16","dims":[140737488355328,0]},"b":{"dtype":"bf16","dims":[0,1]},"out":"f32","da":{"dtype":"f32"},"db":{"dtype":"f32"},"layouts":{"dout":{"dtype":"f32","dims":[140737488355328,1],"strides":[0,0]}}}"#,
        r#"gemm_backward {"a":{"dtype":"bf16","dims":[140737488355328,1],"strides":[0,0]},"b":{"dtype":"bf16","dims":[1,1]},"out":"f32","alpha":0.0,"db":{"dtype":"f32","beta":2.0},"layouts":{"dout":{"dtype":"f32","dims":[140737488355328,1],"strides":[0,0]}}}"#,
    ] {
        let before = |values: &[f32]| values.iter().all(|value| *value == 2.0);
        assert!(gradients(line).iter().all(|(_, values)| before(values)), "{line}");
    }
}
