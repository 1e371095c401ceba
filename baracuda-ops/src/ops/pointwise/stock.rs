//! Programs that every framework needs, as [`Program`]s: constants and positions, dropout, gated units, rotary embeddings, losses of each element, optimizers,
//! and the scale that clips gradients.
//!
//! What changes from step to step, such as a learning rate or the scale of a loss, is an input that is the same everywhere, of rank 0, so that a plan serves
//! every step. Such inputs come last, which lets all [sets](super::PointwiseDescriptor::sets) of a descriptor share them.
//!
//! Optimizers write what they update, in the order of their inputs: [`Adam`] takes `p, g, m, v` and writes `p, m, v`, each of which may lie in place. With
//! `copy` they write the parameter once more, last. So parameters of 16 bits have f32 ones beside them, of which they are the rounded copies: `p` is f32,
//! `g` of 16 bits, and [`outputs`](super::PointwiseDescriptor::outputs) says the type of the copy.
//!
//! ```
//! use baracuda_ops::stock::Adam;
//! use baracuda_ops::{DType, PointwiseDescriptor, TensorDesc};
//! let adam = Adam { copy: true, scaled: true, ..Adam::w(0.01) };
//! let [f32, bf16] = [DType::F32, DType::BF16];
//! let of = |dims: &[u64]| -> Result<Vec<TensorDesc>, baracuda_ops::Error> {
//!     [f32, bf16, f32, f32].into_iter().map(|dtype| TensorDesc::contiguous(dtype, dims)).collect()
//! };
//! let scalar = TensorDesc::contiguous(f32, &[])?;
//! // rate, root, kept, scale
//! let first = [of(&[128, 64])?, vec![scalar; 4]].concat();
//! let step = PointwiseDescriptor::new(adam.program()?, first)?.outputs(vec![f32, f32, f32, bf16])?;
//! // The other parameters, in the same plan.
//! let step = step.sets(vec![of(&[64])?, of(&[64, 256])?])?;
//! # Ok::<(), baracuda_ops::Error>(())
//! ```

use super::{Distribution, Function, Program, ProgramBuilder, Term};
use crate::error::{Error, Result};

/// A number at every position, and no input.
///
/// # Errors
/// None; the type is that of every other program.
pub fn full(value: f64) -> Result<Program> {
    let mut b = Program::builder();
    let same = b.call(Function::Maximum, [value.into(), value.into()]);
    b.finish([same])
}

/// `start + step i` at position i along an axis, and no input.
///
/// # Errors
/// None; the type is that of every other program.
pub fn arange(axis: usize, start: f64, step: f64) -> Result<Program> {
    let mut b = Program::builder();
    let index = b.index(axis);
    let scaled = b.call(Function::Mul, [index, step.into()]);
    let value = b.call(Function::Add, [scaled, start.into()]);
    b.finish([value])
}

/// Dropout of x: each element is 0 with probability `p`, else `x / (1 - p)`. The inputs are `x`, `seed` and `offset` (U32 of extents `[2]` and `[]`);
/// with equal ones, and the same `stream`, the same elements are 0. The program of its gradients draws them again. Source: Srivastava et al., "Dropout: A
/// Simple Way to Prevent Neural Networks from Overfitting" (2014), with the scale at training as in PyTorch.
///
/// # Errors
/// [`Error::InvalidDescriptor`] if `p` is not from 0 to below 1.
pub fn dropout(p: f64, stream: u32) -> Result<Program> {
    share("p", p)?;
    let mut b = Program::builder();
    let [x, seed, offset] = ["x", "seed", "offset"].map(|name| b.input(name));
    let is_kept = b.random(Distribution::Bernoulli { p: 1.0 - p }, seed, offset, stream);
    let scaled = b.call(Function::Mul, [x, (1.0 / (1.0 - p)).into()]);
    let y = b.call(Function::Where, [is_kept, scaled, 0.0.into()]);
    b.finish([y])
}

/// x where it is finite, else the number in place of NaN, of infinity and of -infinity. [`Function::NanToNum`] has the limits of a type in place of
/// infinities.
///
/// # Errors
/// None; the type is that of every other program.
pub fn nan_to_num(nan: f64, infinity: f64, minus_infinity: f64) -> Result<Program> {
    let mut b = Program::builder();
    let x = b.input("x");
    let is_nan = b.call(Function::IsNan, [x]);
    let is_finite = b.call(Function::IsFinite, [x]);
    let is_above = b.call(Function::Gt, [x, 0.0.into()]);
    let limit = b.call(Function::Where, [is_above, infinity.into(), minus_infinity.into()]);
    let bounded = b.call(Function::Where, [is_finite, x, limit]);
    let y = b.call(Function::Where, [is_nan, nan.into(), bounded]);
    b.finish([y])
}

/// A gated unit with SiLU, `silu(gate) up`, of the inputs `gate` and `up`. Source: Shazeer, "GLU Variants Improve Transformer" (2020), equation 6.
///
/// # Errors
/// None; the type is that of every other program.
pub fn swiglu() -> Result<Program> {
    gated(Function::Silu)
}

/// A gated unit with GELU by the error function, `gelu(gate) up`, of the inputs `gate` and `up`. Source: as [`swiglu`], equation 5.
///
/// # Errors
/// None; the type is that of every other program.
pub fn geglu() -> Result<Program> {
    gated(Function::GeluErf)
}

/// As [`geglu`], with the approximation of GELU by tanh.
///
/// # Errors
/// None; the type is that of every other program.
pub fn geglu_tanh() -> Result<Program> {
    gated(Function::GeluTanh)
}

fn gated(function: Function) -> Result<Program> {
    let mut b = Program::builder();
    let [gate, up] = ["gate", "up"].map(|name| b.input(name));
    let gate = b.call(function, [gate]);
    let y = b.call(Function::Mul, [gate, up]);
    b.finish([y])
}

/// The rotary embedding, by cosines and sines: of the inputs `x0`, `x1`, `cos` and `sin` the pair `(x0 cos - x1 sin, x1 cos + x0 sin)`, which is `(x0, x1)`
/// turned by an angle.
///
/// Which elements are pairs is said by the layouts of `x0` and `x1`, which are views of one tensor: its first and its second half along the extent of a head,
/// or its even and its odd elements. Elements beyond the pairs of a narrower embedding belong to neither view. `cos` and `sin` broadcast, so that heads share
/// those of a position and samples those of all positions. Of inputs of 16 bits they may be f32;
/// [`outputs`](super::PointwiseDescriptor::outputs) then says the type of the results.
///
/// `pair` says where the results go:
///
/// - `None`: there are two outputs, each of which may lie in the place of its input. Through wgpu the memory of one must not lie between the elements of the other:
///   views of one tensor can be read there, but not written in one run.
/// - `Some(axis)`: there is one output, and along its `axis`, of extent 2, `y0` lies at 0 and `y1` at 1. `x0` and `x1` are repeated along it. Every backend takes
///   this, and the output is a tensor with the pairs where they were in x.
///
/// Its gradients are what arrives, turned back: the program with `-sin` for `sin`. Those that [`Descriptor::gradients`](crate::Descriptor::gradients) derives are
/// a program as well, and with `Some(axis)` sums along it. Every kernel interprets these programs; none is compiled for them alone.
///
/// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021), equation 34, whose pairs are neighbours; in halves they are those
/// of GPT-NeoX.
///
/// ```
/// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, PointwiseArgs, PointwiseDescriptor, TensorDesc, Workspace, stock};
/// let device = Device::cpu();
/// // Two positions of three heads of ten elements, of which eight are turned; heads share cosines and sines.
/// let (x, angles) = (TensorDesc::contiguous(DType::F32, &[2, 3, 10])?, TensorDesc::contiguous(DType::F32, &[2, 1, 4])?);
/// let (turned, _) = x.narrow(2, 0, 8)?;
///
/// // Pairs in halves, in place: x0 at elements 0 to 3, x1 at 4 to 7.
/// let (x0, _) = turned.narrow(2, 0, 4)?;
/// let (x1, offset) = turned.narrow(2, 4, 4)?;
/// let rope = PointwiseDescriptor::new(stock::rope(None)?, vec![x0, x1, angles, angles])?;
/// let plan = Plan::new(&device, rope, &PlanOptions::default())?;
/// // The angles are 0 at the first position and a quarter of a turn at the second.
/// let (cos, sin) = ([1f32, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0f32, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
/// let values: Vec<f32> = (0..60).map(|i| i as f32).collect();
/// let (memory, cos, sin) = (device.upload(&values)?, device.upload(&cos)?, device.upload(&sin)?);
/// let halves = [(0, x0), (offset, x1)];
/// let [a, b] = halves.map(|(offset, half)| Mem::buffer(&memory, offset, half.span_bytes()));
/// let written = halves.map(|(offset, half)| MemMut::buffer(&memory, offset, half.span_bytes()));
/// let mut queue = device.queue();
/// plan.run(&mut queue, PointwiseArgs::new([a, b, Mem::from(&cos), Mem::from(&sin)], written), Workspace::none())?;
/// let turned: Vec<f32> = queue.download(&memory)?;
/// assert_eq!(turned[..30], values[..30]);
/// assert_eq!(turned[30..40], [-34.0, -35.0, -36.0, -37.0, 30.0, 31.0, 32.0, 33.0, 38.0, 39.0]);
///
/// // Pairs of neighbours, and the pair as an axis of the output: [2, 3, 4, 2].
/// let even = TensorDesc::strided(DType::F32, &[2, 3, 4, 2], &[30, 10, 2, 0])?;
/// let (odd, offset) = (even.for_offset(4)?, 4);
/// let angles = TensorDesc::contiguous(DType::F32, &[2, 1, 4, 1])?;
/// let rope = PointwiseDescriptor::new(stock::rope(Some(3))?, vec![even, odd, angles, angles])?;
/// let plan = Plan::new(&device, rope, &PlanOptions::default())?;
/// let (x, mut y) = (device.upload(&values)?, [0f32; 48]);
/// let [a, b] = [0, offset].map(|offset| Mem::buffer(&x, offset, even.span_bytes()));
/// plan.run(&mut queue, PointwiseArgs::new([a, b, Mem::from(&cos), Mem::from(&sin)], [MemMut::host(&mut y)]), Workspace::none())?;
/// assert_eq!(y[24..32], [-31.0, 30.0, -33.0, 32.0, -35.0, 34.0, -37.0, 36.0]);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
///
/// # Errors
/// None; the type is that of every other program. [`PointwiseDescriptor::new`](super::PointwiseDescriptor::new) refuses an axis that the outputs do not have.
pub fn rope(pair: Option<usize>) -> Result<Program> {
    let mut b = Program::builder();
    let [x0, x1, cos, sin] = ["x0", "x1", "cos", "sin"].map(|name| b.input(name));
    turned(b, [x0, x1], [cos, sin], pair)
}

/// The rotary embedding, by positions: as [`rope`], of the inputs `x0`, `x1`, `position` and `frequency`, turned by the angle `position frequency` in radians.
///
/// Positions may be known to the device alone, as those of a cache that grows. They are numbers of floating-point types: a program without instructions casts
/// integers, and f32 has all whole numbers up to 2^24. The angle is rounded to f32, of f64 inputs to f64, so that at position p it is off by up to
/// p 2^-24 radians where the frequency is 1, as in every implementation in f32. The source has `frequency = 10000^(-2 i / d)` for pair i of the d / 2 of a head.
///
/// ```
/// use baracuda_ops::{DType, Descriptor, PointwiseDescriptor, TensorDesc, stock};
/// // Queries [B, S, H, D] of bf16, pairs in halves, as [B, S, H, 2, D / 2].
/// let x0 = TensorDesc::strided(DType::BF16, &[8, 1, 12, 2, 32], &[768, 768, 64, 0, 1])?;
/// let x1 = x0.for_offset(64)?;
/// // A position for each sample, and the frequencies.
/// let position = TensorDesc::contiguous(DType::F32, &[8, 1, 1, 1, 1])?;
/// let frequency = TensorDesc::contiguous(DType::F32, &[32])?;
/// let rope = PointwiseDescriptor::new(stock::rope_at(Some(3))?, vec![x0, x1, position, frequency])?.outputs(vec![DType::BF16])?;
/// assert_eq!(rope.slots()[4].desc, TensorDesc::contiguous(DType::BF16, &[8, 1, 12, 2, 32])?);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
///
/// # Errors
/// As [`rope`].
pub fn rope_at(pair: Option<usize>) -> Result<Program> {
    let mut b = Program::builder();
    let [x0, x1, position, frequency] = ["x0", "x1", "position", "frequency"].map(|name| b.input(name));
    let angle = b.call(Function::Mul, [position, frequency]);
    let turn = [Function::Cos, Function::Sin].map(|function| b.call(function, [angle]));
    turned(b, [x0, x1], turn, pair)
}

/// `(x0 cos - x1 sin, x1 cos + x0 sin)`, as two outputs or along an axis of one.
fn turned(mut b: ProgramBuilder, [x0, x1]: [Term; 2], [cos, sin]: [Term; 2], pair: Option<usize>) -> Result<Program> {
    let Some(axis) = pair else {
        let [own, other] = [[x0, cos], [x1, sin]].map(|factors| b.call(Function::Mul, factors));
        let y0 = b.call(Function::Sub, [own, other]);
        let [own, other] = [[x1, cos], [x0, sin]].map(|factors| b.call(Function::Mul, factors));
        let y1 = b.call(Function::Add, [own, other]);
        return b.finish([y0, y1]);
    };
    let place = b.index(axis);
    let is_second = b.call(Function::Gt, [place, 0.5.into()]);
    let minus = b.call(Function::Neg, [sin]);
    let of_x0 = b.call(Function::Where, [is_second, sin, cos]);
    let of_x1 = b.call(Function::Where, [is_second, cos, minus]);
    let [of_x0, of_x1] = [[x0, of_x0], [x1, of_x1]].map(|factors| b.call(Function::Mul, factors));
    let y = b.call(Function::Add, [of_x0, of_x1]);
    b.finish([y])
}

/// `x scale + shift`, of the inputs `x`, `scale` and `shift`.
///
/// # Errors
/// None; the type is that of every other program.
pub fn scale_shift() -> Result<Program> {
    let mut b = Program::builder();
    let [x, scale, shift] = ["x", "scale", "shift"].map(|name| b.input(name));
    let scaled = b.call(Function::Mul, [x, scale]);
    let y = b.call(Function::Add, [scaled, shift]);
    b.finish([y])
}

/// `clamp(x scale, lo, hi)`, of the inputs `x` and `scale`; NaN stays NaN.
///
/// # Errors
/// [`Error::InvalidDescriptor`] if `lo` is above `hi`, or one of them is NaN.
pub fn clamp_scale(lo: f64, hi: f64) -> Result<Program> {
    require(lo <= hi, "lo", || format!("must be at most hi, {hi}; got {lo}"))?;
    let mut b = Program::builder();
    let [x, scale] = ["x", "scale"].map(|name| b.input(name));
    let scaled = b.call(Function::Mul, [x, scale]);
    let y = b.call(Function::Clamp, [scaled, lo.into(), hi.into()]);
    b.finish([y])
}

/// The squared error of each element, `(x - target)^2`.
///
/// # Errors
/// None; the type is that of every other program.
pub fn mse() -> Result<Program> {
    loss(|b, x, target| {
        let by = b.call(Function::Sub, [x, target]);
        b.call(Function::Square, [by])
    })
}

/// The absolute error of each element, `|x - target|`.
///
/// # Errors
/// None; the type is that of every other program.
pub fn l1() -> Result<Program> {
    loss(|b, x, target| {
        let by = b.call(Function::Sub, [x, target]);
        b.call(Function::Abs, [by])
    })
}

/// Huber's loss of each element: with `d = |x - target|` it is `d^2 / 2` where `d <= delta`, else `delta (d - delta / 2)`. It is computed as
/// `c (d - c / 2)` with `c = min(d, delta)`. Source: Huber, "Robust Estimation of a Location Parameter" (1964).
///
/// # Errors
/// [`Error::InvalidDescriptor`] if `delta` is not positive.
pub fn huber(delta: f64) -> Result<Program> {
    require(delta > 0.0, "delta", || format!("must be positive; got {delta}"))?;
    loss(|b, x, target| b.huber(x, target, delta))
}

/// The smooth L1 loss of each element, [`huber`] divided by `beta`: `d^2 / (2 beta)` where `d = |x - target|` is at most `beta`, else `d - beta / 2`.
/// Source: Girshick, "Fast R-CNN" (2015), equation 3.
///
/// # Errors
/// [`Error::InvalidDescriptor`] if `beta` is not positive; with 0 it would be [`l1`].
pub fn smooth_l1(beta: f64) -> Result<Program> {
    require(beta > 0.0, "beta", || format!("must be positive; got {beta}"))?;
    loss(|b, x, target| {
        let huber = b.huber(x, target, beta);
        b.call(Function::Div, [huber, beta.into()])
    })
}

/// The binary cross-entropy of each element, `-(target log(x) + (1 - target) log(1 - x))`, of probabilities `x`. Logarithms are at least -100, as in
/// PyTorch, so that a probability of 0 or 1 gives a finite loss.
///
/// # Errors
/// None; the type is that of every other program.
pub fn bce() -> Result<Program> {
    loss(|b, x, target| {
        let log = b.call(Function::Log, [x]);
        let log = b.call(Function::Maximum, [log, (-100.0).into()]);
        let negated = b.call(Function::Neg, [x]);
        let rest = b.call(Function::Log1p, [negated]);
        let rest = b.call(Function::Maximum, [rest, (-100.0).into()]);
        // (target - 1) log(1 - x) - target log(x)
        let other = b.call(Function::Sub, [target, 1.0.into()]);
        let other = b.call(Function::Mul, [other, rest]);
        let own = b.call(Function::Mul, [target, log]);
        b.call(Function::Sub, [other, own])
    })
}

/// The binary cross-entropy of each element of which `x` is the logit: `softplus(x) - target x`, computed as `(1 - target) x + softplus(-x)`, which is finite
/// for all finite `x`.
///
/// # Errors
/// None; the type is that of every other program.
pub fn bce_with_logits() -> Result<Program> {
    loss(|b, x, target| {
        let rest = b.call(Function::Sub, [1.0.into(), target]);
        let rest = b.call(Function::Mul, [rest, x]);
        let log = b.call(Function::LogSigmoid, [x]);
        b.call(Function::Sub, [rest, log])
    })
}

/// The term of each element of the Kullback-Leibler divergence, `target (log(target) - x)`, of log-probabilities `x` and probabilities `target`; a target of 0
/// gives 0 for finite `x`.
///
/// # Errors
/// None; the type is that of every other program.
pub fn kl_div() -> Result<Program> {
    loss(|b, x, target| {
        let entropy = b.call(Function::Xlogy, [target, target]);
        let cross = b.call(Function::Mul, [target, x]);
        b.call(Function::Sub, [entropy, cross])
    })
}

/// The hinge loss of each element, `max(0, 1 - target x)`, of targets -1 and 1.
///
/// # Errors
/// None; the type is that of every other program.
pub fn hinge() -> Result<Program> {
    loss(|b, x, target| {
        let product = b.call(Function::Mul, [target, x]);
        let margin = b.call(Function::Sub, [1.0.into(), product]);
        b.call(Function::Relu, [margin])
    })
}

/// A program of the inputs `x` and `target`.
fn loss(of: impl FnOnce(&mut ProgramBuilder, Term, Term) -> Term) -> Result<Program> {
    let mut b = Program::builder();
    let [x, target] = ["x", "target"].map(|name| b.input(name));
    let y = of(&mut b, x, target);
    b.finish([y])
}

impl ProgramBuilder {
    fn huber(&mut self, x: Term, target: Term, delta: f64) -> Term {
        let by = self.call(Function::Sub, [x, target]);
        let by = self.call(Function::Abs, [by]);
        let cut = self.call(Function::Minimum, [by, delta.into()]);
        let half = self.call(Function::Mul, [cut, 0.5.into()]);
        let rest = self.call(Function::Sub, [by, half]);
        self.call(Function::Mul, [cut, rest])
    }
}

/// The factor that clips gradients by their norm, of the input `squares`, the sum of the squares of all their elements: `min(1, limit / (norm + 1e-6))`, which
/// is what [`Adam`] and others take as `scale`; and, as the second output, the norm. A NaN norm gives NaN. Source: Pascanu, Mikolov, Bengio, "On the difficulty
/// of training recurrent neural networks" (2013), algorithm 1, with the 1e-6 of PyTorch's `clip_grad_norm_`.
///
/// # Errors
/// [`Error::InvalidDescriptor`] if `limit` is not positive.
pub fn clip_factor(limit: f64) -> Result<Program> {
    require(limit > 0.0, "limit", || format!("must be positive; got {limit}"))?;
    let mut b = Program::builder();
    let squares = b.input("squares");
    let norm = b.call(Function::Sqrt, [squares]);
    let below = b.call(Function::Add, [norm, 1e-6.into()]);
    let factor = b.call(Function::Div, [limit.into(), below]);
    let factor = b.call(Function::Minimum, [factor, 1.0.into()]);
    b.finish([factor, norm])
}

/// What the programs of optimizers begin with: the gradient, scaled if it is.
struct Update {
    b: ProgramBuilder,
    p: Term,
    g: Term,
}

impl Update {
    fn new() -> Self {
        let mut b = Program::builder();
        let [p, g] = ["p", "g"].map(|name| b.input(name));
        Self { b, p, g }
    }

    fn call<const N: usize>(&mut self, function: Function, arguments: [Term; N]) -> Term {
        self.b.call(function, arguments)
    }

    /// Multiplies the gradient by an input, which is the last one.
    fn scale(&mut self, is_scaled: bool) {
        if is_scaled {
            let scale = self.b.input("scale");
            self.g = self.b.call(Function::Mul, [self.g, scale]);
        }
    }

    /// Adds to the gradient that of half the squared parameter.
    fn decay(&mut self, decay: f64) {
        if decay != 0.0 {
            let pull = self.call(Function::Mul, [self.p, decay.into()]);
            self.g = self.call(Function::Add, [self.g, pull]);
        }
    }

    /// The parameter that has moved by `rate by` against `by`.
    fn moved(&mut self, from: Term, rate: Term, by: Term) -> Term {
        let step = self.call(Function::Mul, [rate, by]);
        self.call(Function::Sub, [from, step])
    }

    fn finish(self, p: Term, state: &[Term], has_copy: bool) -> Result<Program> {
        let copy = has_copy.then_some(p);
        self.b.finish([p].into_iter().chain(state.iter().copied()).chain(copy))
    }
}

/// Adam and AdamW. Inputs: `p`, `g`, `m`, `v`, with amsgrad `most`; then of rank 0 `rate`, `root`, where the decay is decoupled `kept`, and where it is `scaled`
/// `scale`. Outputs: `p`, `m`, `v`, `most` where it is an input, and a copy of `p` where there is one.
///
/// With `g` times `scale`, plus `weight_decay p` where the decay is not decoupled:
/// `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`, `p = kept p - rate m / (sqrt(v) / root + eps)`, with amsgrad of the greatest `v` so far in place of `v`.
///
/// `rate = lr / (1 - b1^t)`, `root = sqrt(1 - b2^t)` and `kept = 1 - lr weight_decay` in step `t`, from 1 on, are what [`clock`](Self::clock) computes, once for
/// all elements. `m` and `v` begin as zeros.
///
/// Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), algorithm 1; Loshchilov and Hutter, "Decoupled Weight Decay Regularization"
/// (2019), algorithm 2, without its schedule, as PyTorch's AdamW; Reddi, Kale, Kumar, "On the Convergence of Adam and Beyond" (2018), algorithm 2, where the
/// corrections of the bias are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How much of the mean of gradients stays; 0.9 by default.
    pub beta1: f64,
    /// How much of the mean of squares stays; 0.999 by default.
    pub beta2: f64,
    /// What is added to the root; 1e-8 by default.
    pub eps: f64,
    /// The weight decay; 0 by default.
    pub weight_decay: f64,
    /// Whether the decay acts on the parameter, as in AdamW, not through the gradient.
    pub decoupled: bool,
    /// Whether steps are divided by the root of the greatest mean of squares so far.
    pub amsgrad: bool,
    /// Whether gradients are multiplied by an input, such as what undoes the scale of a loss, or [`clip_factor`].
    pub scaled: bool,
    /// Whether the parameter is written once more, as the last output.
    pub copy: bool,
}

impl Default for Adam {
    fn default() -> Self {
        let (beta1, beta2, eps, weight_decay) = (0.9, 0.999, 1e-8, 0.0);
        Self { beta1, beta2, eps, weight_decay, decoupled: false, amsgrad: false, scaled: false, copy: false }
    }
}

impl Adam {
    /// AdamW with a weight decay.
    pub fn w(weight_decay: f64) -> Self {
        Self { weight_decay, decoupled: true, ..Self::default() }
    }

    fn check(&self) -> Result<()> {
        share("beta1", self.beta1)?;
        share("beta2", self.beta2)?;
        at_least_zero("eps", self.eps)?;
        at_least_zero("weight_decay", self.weight_decay)
    }

    /// The program of a step.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if a beta is not in `[0, 1)`, or if `eps` or the decay is negative or not finite.
    pub fn program(&self) -> Result<Program> {
        self.check()?;
        let mut u = Update::new();
        let [m, v] = ["m", "v"].map(|name| u.b.input(name));
        let most = self.amsgrad.then(|| u.b.input("most"));
        let [rate, root] = ["rate", "root"].map(|name| u.b.input(name));
        let kept = self.decoupled.then(|| u.b.input("kept"));
        u.scale(self.scaled);
        if !self.decoupled {
            u.decay(self.weight_decay);
        }
        let m = u.call(Function::Lerp, [m, u.g, (1.0 - self.beta1).into()]);
        let square = u.call(Function::Square, [u.g]);
        let v = u.call(Function::Lerp, [v, square, (1.0 - self.beta2).into()]);
        let most = most.map(|most| u.call(Function::Maximum, [most, v]));
        let deviation = u.call(Function::Sqrt, [most.unwrap_or(v)]);
        let deviation = u.call(Function::Div, [deviation, root]);
        let deviation = u.call(Function::Add, [deviation, self.eps.into()]);
        let by = u.call(Function::Div, [m, deviation]);
        let from = kept.map_or(u.p, |kept| u.call(Function::Mul, [u.p, kept]));
        let p = u.moved(from, rate, by);
        let state: Vec<Term> = [m, v].into_iter().chain(most).collect();
        u.finish(p, &state, self.copy)
    }

    /// The program that counts steps and computes what the program of a step takes: of `step`, the steps before, and `lr`, both of rank 0, the step, `rate`,
    /// `root`, and where the decay is decoupled `kept`. A step of f32 counts to 2^24.
    ///
    /// # Errors
    /// As [`program`](Self::program).
    pub fn clock(&self) -> Result<Program> {
        self.check()?;
        let mut b = Program::builder();
        let [step, lr] = ["step", "lr"].map(|name| b.input(name));
        let step = b.call(Function::Add, [step, 1.0.into()]);
        // 1 - beta^t, without the loss of digits where beta^t is near 1.
        let mut correction = |beta: f64| {
            let power = b.call(Function::Mul, [step, beta.max(f64::from(f32::MIN_POSITIVE)).ln().into()]);
            let less = b.call(Function::Expm1, [power]);
            b.call(Function::Neg, [less])
        };
        let (first, second) = (correction(self.beta1), correction(self.beta2));
        let rate = b.call(Function::Div, [lr, first]);
        let root = b.call(Function::Sqrt, [second]);
        let pull = b.call(Function::Mul, [lr, self.weight_decay.into()]);
        let kept = b.call(Function::Sub, [1.0.into(), pull]);
        let outputs = [step, rate, root].into_iter().chain(self.decoupled.then_some(kept));
        b.finish(outputs)
    }
}

/// Stochastic gradient descent. Inputs: `p`, `g`, with momentum `b`; then of rank 0 `lr`, and where it is `scaled` `scale`. Outputs: `p`, `b` where it is an input,
/// and a copy of `p` where there is one.
///
/// With `g` times `scale`, plus `weight_decay p`: `b = momentum b + (1 - dampening) g`, `p = p - lr b`, with Nesterov's momentum `p = p - lr (g + momentum b)`,
/// without momentum `p = p - lr g`. `b` begins as zeros; PyTorch's begins as the first gradient, which without dampening is the same.
///
/// Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning" (2013), in the form of PyTorch's SGD.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    /// How much of the sum of gradients stays; 0 stands for no momentum.
    pub momentum: f64,
    /// How much less a gradient adds to it.
    pub dampening: f64,
    /// Whether the step looks ahead.
    pub nesterov: bool,
    /// The weight decay, through the gradient.
    pub weight_decay: f64,
    /// Whether gradients are multiplied by an input.
    pub scaled: bool,
    /// Whether the parameter is written once more, as the last output.
    pub copy: bool,
}

impl Sgd {
    /// The program of a step.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the momentum is not in `[0, 1)`, the dampening not in `[0, 1]`, or the decay negative or not finite, and if there is
    /// dampening or Nesterov's form without momentum, or both.
    pub fn program(&self) -> Result<Program> {
        let Self { momentum, dampening, nesterov, weight_decay, scaled, copy } = *self;
        share("momentum", momentum)?;
        require((0.0..=1.0).contains(&dampening), "dampening", || format!("must be in [0, 1]; got {dampening}"))?;
        at_least_zero("weight_decay", weight_decay)?;
        require(!nesterov || (momentum > 0.0 && dampening == 0.0), "nesterov", || {
            format!("must have momentum and no dampening; they are {momentum} and {dampening}")
        })?;
        require(dampening == 0.0 || momentum > 0.0, "dampening", || "must be 0 without momentum".into())?;
        let mut u = Update::new();
        let sum = (momentum > 0.0).then(|| u.b.input("b"));
        let lr = u.b.input("lr");
        u.scale(scaled);
        u.decay(weight_decay);
        let sum = sum.map(|sum| {
            let kept = u.call(Function::Mul, [sum, momentum.into()]);
            let added = match dampening {
                0.0 => u.g,
                _ => u.call(Function::Mul, [u.g, (1.0 - dampening).into()]),
            };
            u.call(Function::Add, [kept, added])
        });
        let by = match sum {
            Some(sum) if nesterov => {
                let ahead = u.call(Function::Mul, [sum, momentum.into()]);
                u.call(Function::Add, [u.g, ahead])
            }
            Some(sum) => sum,
            None => u.g,
        };
        let p = u.moved(u.p, lr, by);
        u.finish(p, sum.as_slice(), copy)
    }
}

/// Lion. Inputs: `p`, `g`, `m`; then of rank 0 `lr`, and where it is `scaled` `scale`. Outputs: `p`, `m`, and a copy of `p` where there is one.
///
/// With `g` times `scale`: `p = p - lr (sign(b1 m + (1 - b1) g) + weight_decay p)`, then `m = b2 m + (1 - b2) g`. `m` begins as zeros.
///
/// Source: Chen and others, "Symbolic Discovery of Optimization Algorithms" (2023), program 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// How much of the mean counts in a step; 0.9 by default.
    pub beta1: f64,
    /// How much of the mean stays; 0.99 by default.
    pub beta2: f64,
    /// The weight decay, decoupled; 0 by default.
    pub weight_decay: f64,
    /// Whether gradients are multiplied by an input.
    pub scaled: bool,
    /// Whether the parameter is written once more, as the last output.
    pub copy: bool,
}

impl Default for Lion {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.99, weight_decay: 0.0, scaled: false, copy: false }
    }
}

impl Lion {
    /// The program of a step.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if a beta is not in `[0, 1)`, or the decay negative or not finite.
    pub fn program(&self) -> Result<Program> {
        share("beta1", self.beta1)?;
        share("beta2", self.beta2)?;
        at_least_zero("weight_decay", self.weight_decay)?;
        let mut u = Update::new();
        let [m, lr] = ["m", "lr"].map(|name| u.b.input(name));
        u.scale(self.scaled);
        let mean = u.call(Function::Lerp, [m, u.g, (1.0 - self.beta1).into()]);
        let mut by = u.call(Function::Sign, [mean]);
        if self.weight_decay != 0.0 {
            let pull = u.call(Function::Mul, [u.p, self.weight_decay.into()]);
            by = u.call(Function::Add, [by, pull]);
        }
        let p = u.moved(u.p, lr, by);
        let m = u.call(Function::Lerp, [m, u.g, (1.0 - self.beta2).into()]);
        u.finish(p, &[m], self.copy)
    }
}

/// RMSprop. Inputs: `p`, `g`, `v`, with momentum `b`; then of rank 0 `lr`, and where it is `scaled` `scale`. Outputs: `p`, `v`, `b` where it is an input, and a copy
/// of `p` where there is one.
///
/// With `g` times `scale`, plus `weight_decay p`: `v = alpha v + (1 - alpha) g^2`, `s = g / (sqrt(v) + eps)`, `p = p - lr s`, with momentum
/// `b = momentum b + s`, `p = p - lr b`. `v` and `b` begin as zeros.
///
/// Source: Tieleman and Hinton, "Lecture 6.5 - rmsprop" (2012), in the form of PyTorch's RMSprop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// How much of the mean of squares stays; 0.99 by default.
    pub alpha: f64,
    /// What is added to the root; 1e-8 by default.
    pub eps: f64,
    /// How much of the sum of steps stays; 0, the default, stands for no momentum.
    pub momentum: f64,
    /// The weight decay, through the gradient; 0 by default.
    pub weight_decay: f64,
    /// Whether gradients are multiplied by an input.
    pub scaled: bool,
    /// Whether the parameter is written once more, as the last output.
    pub copy: bool,
}

impl Default for RmsProp {
    fn default() -> Self {
        Self { alpha: 0.99, eps: 1e-8, momentum: 0.0, weight_decay: 0.0, scaled: false, copy: false }
    }
}

impl RmsProp {
    /// The program of a step.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `alpha` or the momentum is not in `[0, 1)`, or if `eps` or the decay is negative or not finite.
    pub fn program(&self) -> Result<Program> {
        share("alpha", self.alpha)?;
        share("momentum", self.momentum)?;
        at_least_zero("eps", self.eps)?;
        at_least_zero("weight_decay", self.weight_decay)?;
        let mut u = Update::new();
        let v = u.b.input("v");
        let sum = (self.momentum > 0.0).then(|| u.b.input("b"));
        let lr = u.b.input("lr");
        u.scale(self.scaled);
        u.decay(self.weight_decay);
        let square = u.call(Function::Square, [u.g]);
        let v = u.call(Function::Lerp, [v, square, (1.0 - self.alpha).into()]);
        let root = u.call(Function::Sqrt, [v]);
        let root = u.call(Function::Add, [root, self.eps.into()]);
        let by = u.call(Function::Div, [u.g, root]);
        let sum = sum.map(|sum| {
            let kept = u.call(Function::Mul, [sum, self.momentum.into()]);
            u.call(Function::Add, [kept, by])
        });
        let p = u.moved(u.p, lr, sum.unwrap_or(by));
        let state: Vec<Term> = [v].into_iter().chain(sum).collect();
        u.finish(p, &state, self.copy)
    }
}

/// Adagrad. Inputs: `p`, `g`, `s`; then of rank 0 `lr`, and where it is `scaled` `scale`. Outputs: `p`, `s`, and a copy of `p` where there is one.
///
/// With `g` times `scale`, plus `weight_decay p`: `s = s + g^2`, `p = p - lr g / (sqrt(s) + eps)`. `s` begins as zeros, or greater.
///
/// Source: Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (2011), figure 1, with diagonal matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// What is added to the root; 1e-10 by default.
    pub eps: f64,
    /// The weight decay, through the gradient; 0 by default.
    pub weight_decay: f64,
    /// Whether gradients are multiplied by an input.
    pub scaled: bool,
    /// Whether the parameter is written once more, as the last output.
    pub copy: bool,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self { eps: 1e-10, weight_decay: 0.0, scaled: false, copy: false }
    }
}

impl Adagrad {
    /// The program of a step.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `eps` or the decay is negative or not finite.
    pub fn program(&self) -> Result<Program> {
        at_least_zero("eps", self.eps)?;
        at_least_zero("weight_decay", self.weight_decay)?;
        let mut u = Update::new();
        let [s, lr] = ["s", "lr"].map(|name| u.b.input(name));
        u.scale(self.scaled);
        u.decay(self.weight_decay);
        let square = u.call(Function::Square, [u.g]);
        let s = u.call(Function::Add, [s, square]);
        let root = u.call(Function::Sqrt, [s]);
        let root = u.call(Function::Add, [root, self.eps.into()]);
        let by = u.call(Function::Div, [u.g, root]);
        let p = u.moved(u.p, lr, by);
        u.finish(p, &[s], self.copy)
    }
}

fn require(holds: bool, field: &'static str, rule: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::InvalidDescriptor { op: "program", field, rule: rule() }) }
}

fn share(field: &'static str, value: f64) -> Result<()> {
    require((0.0..1.0).contains(&value), field, || format!("must be in [0, 1); got {value}"))
}

fn at_least_zero(field: &'static str, value: f64) -> Result<()> {
    require(value >= 0.0 && value.is_finite(), field, || format!("must be finite and at least 0; got {value}"))
}

#[cfg(test)]
mod tests {
    use super::super::program::Origin;
    use super::*;

    /// The outputs at one position.
    fn run(program: &Result<Program>, inputs: &[f64]) -> Vec<f64> {
        let program = program.as_ref().unwrap();
        assert_eq!(program.inputs(), inputs.len());
        let mut outputs = vec![f64::NAN; program.outputs()];
        program.evaluate(inputs, |number| number, &mut outputs);
        outputs
    }

    fn assert_close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() <= 1e-12 * expected.abs().max(1e-3), "{got} is not {expected}");
        }
    }

    const NUMBERS: [f64; 7] = [-3.0, -1.25, -0.3, 0.0, 0.1, 0.75, 4.0];

    #[test]
    fn units_and_losses_are_their_formulas() {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for x in NUMBERS {
            for y in NUMBERS {
                let (d, inner) = ((x - y).abs(), (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x));
                let huber = |delta: f64| if d <= delta { d * d / 2.0 } else { delta * (d - delta / 2.0) };
                for (program, expected) in [
                    (swiglu(), x * sigmoid(x) * y),
                    (geglu(), x * 0.5 * (1.0 + libm::erf(x / 2f64.sqrt())) * y),
                    (geglu_tanh(), x * 0.5 * (1.0 + inner.tanh()) * y),
                    (clamp_scale(-0.5, 2.0), (x * y).clamp(-0.5, 2.0)),
                    (mse(), d * d),
                    (l1(), d),
                    (huber_of(0.8), huber(0.8)),
                    (smooth_l1(0.5), huber(0.5) / 0.5),
                    (bce_with_logits(), -(y * sigmoid(x).ln() + (1.0 - y) * sigmoid(-x).ln())),
                    (hinge(), (1.0 - x * y).max(0.0)),
                ] {
                    assert_close(&run(&program, &[x, y]), &[expected]);
                }
                assert_close(&run(&scale_shift(), &[x, y, 0.5]), &[x * y + 0.5]);
            }
        }
        for p in [0.0, 0.2, 0.9, 1.0] {
            for t in [0.0, 0.3, 1.0f64] {
                let log = |p: f64| p.ln().max(-100.0);
                assert_close(&run(&bce(), &[p, t]), &[-(t * log(p) + (1.0 - t) * log(1.0 - p))]);
                let entropy = if t == 0.0 { 0.0 } else { t * t.ln() };
                assert_close(&run(&kl_div(), &[-0.7, t]), &[entropy + 0.7 * t]);
            }
        }
    }

    #[test]
    fn the_gradient_of_dropout_draws_the_same_numbers() {
        let program = dropout(0.25, 3).unwrap();
        let gradient = program.gradient(&[0], &[0], None).unwrap().unwrap();
        assert_eq!(gradient.inputs, [Origin::Input(1), Origin::Input(2), Origin::GradientOf(0)]);
        let [own, of_gradient] = [&program, &gradient.program].map(|program| *program.sources()[0].draw().unwrap());
        assert_eq!((own.kind, own.numbers, own.stream), (of_gradient.kind, of_gradient.numbers, of_gradient.stream));
        assert_eq!((of_gradient.seed, of_gradient.offset), (0, 1));
        for (is_kept, expected) in [(1.0, 3.0 / 0.75), (0.0, 0.0)] {
            let mut dx = [f64::NAN];
            gradient.program.evaluate(&[5.0, 6.0, 3.0, is_kept], |number| number, &mut dx);
            assert!((dx[0] - expected).abs() < 1e-15, "{dx:?}");
        }
        assert!(dropout(1.0, 0).unwrap_err().to_string().contains("p: must be in [0, 1); got 1"));
    }

    #[test]
    fn pairs_are_turned_by_their_angles() {
        let (position, frequency) = (7.0, 0.31);
        for (x0, x1, angle) in [(1.0, 0.0, 0.5), (-0.4, 2.5, -3.0f64), (0.3, 0.7, position * frequency)] {
            let (sin, cos) = angle.sin_cos();
            let expected = [x0 * cos - x1 * sin, x1 * cos + x0 * sin];
            assert_close(&run(&rope(None), &[x0, x1, cos, sin]), &expected);
            assert_close(&run(&rope_at(None), &[x0, x1, angle / frequency, frequency]), &expected);
            // A source takes the place behind the inputs.
            for (place, expected) in [0.0, 1.0].into_iter().zip(expected) {
                let mut y = [f64::NAN];
                let program = rope(Some(2)).unwrap();
                program.evaluate(&[x0, x1, cos, sin, place], |number| number, &mut y);
                assert_close(&y, &[expected]);
                let program = rope_at(Some(0)).unwrap();
                program.evaluate(&[x0, x1, angle / frequency, frequency, place], |number| number, &mut y);
                assert_close(&y, &[expected]);
            }
        }
    }

    #[test]
    fn the_gradient_of_a_turn_is_the_turn_back() {
        let gradient = rope(None).unwrap().gradient(&[0, 1], &[0, 1], None).unwrap().unwrap();
        let (dy0, dy1, cos, sin) = (0.7, -1.3, 0.8, 0.6);
        let inputs: Vec<f64> = gradient
            .inputs
            .iter()
            .map(|origin| match origin {
                Origin::Input(2) => cos,
                Origin::Input(3) => sin,
                Origin::GradientOf(0) => dy0,
                Origin::GradientOf(1) => dy1,
                other => panic!("reads {other:?}"),
            })
            .collect();
        let back = run(&rope(None), &[dy0, dy1, cos, -sin]);
        assert_close(&run(&Ok(gradient.program), &inputs), &back);
    }

    #[test]
    fn numbers_take_the_place_of_what_is_none() {
        let program = nan_to_num(0.5, 7.0, -9.0);
        for (x, y) in [(1.5, 1.5), (f64::NAN, 0.5), (f64::INFINITY, 7.0), (f64::NEG_INFINITY, -9.0), (0.0, 0.0)] {
            assert_eq!(run(&program, &[x]), [y]);
        }
    }

    fn huber_of(delta: f64) -> Result<Program> {
        huber(delta)
    }

    #[test]
    fn gradients_are_clipped_by_their_norm() {
        assert_close(&run(&clip_factor(2.0), &[25.0]), &[2.0 / (5.0 + 1e-6), 5.0]);
        assert_close(&run(&clip_factor(2.0), &[1.0]), &[1.0, 1.0]);
        assert!(run(&clip_factor(2.0), &[f64::NAN])[0].is_nan());
    }

    #[test]
    fn adam_is_the_algorithm_of_the_papers() {
        let (b1, b2, eps, lr, decay) = (0.8, 0.95, 1e-6, 0.02, 0.1);
        for (decoupled, amsgrad, scaled, copy) in [
            (true, false, true, true),
            (false, false, false, false),
            (false, true, true, false),
            (true, true, false, true),
        ] {
            let adam = Adam { beta1: b1, beta2: b2, eps, weight_decay: decay, decoupled, amsgrad, scaled, copy };
            let (program, clock) = (adam.program(), adam.clock());
            let [mut p, mut m, mut v, mut most, mut step] = [0.7, 0.0, 0.0, 0.0, 0.0];
            let [mut q, mut qm, mut qv, mut q_most] = [p, 0.0, 0.0, 0.0];
            for t in 1..=5 {
                let gradient = 1.5 - 0.9 * f64::from(t);
                let times = run(&clock, &[step, lr]);
                step = times[0];
                let mut inputs = vec![p, gradient, m, v];
                inputs.extend(amsgrad.then_some(most));
                inputs.extend(&times[1..]);
                inputs.extend(scaled.then_some(0.25));
                let outputs = run(&program, &inputs);
                (p, m, v) = (outputs[0], outputs[1], outputs[2]);
                if amsgrad {
                    most = outputs[3];
                }
                if copy {
                    assert_eq!(outputs.last(), Some(&p));
                }
                assert_eq!(outputs.len(), 3 + usize::from(amsgrad) + usize::from(copy));
                // As the papers write it.
                let mut g = if scaled { 0.25 * gradient } else { gradient };
                if decoupled {
                    q -= lr * decay * q;
                } else {
                    g += decay * q;
                }
                (qm, qv) = (b1 * qm + (1.0 - b1) * g, b2 * qv + (1.0 - b2) * g * g);
                q_most = if amsgrad { qv.max(q_most) } else { qv };
                let (mean, square) = (qm / (1.0 - b1.powi(t)), q_most / (1.0 - b2.powi(t)));
                q -= lr * mean / (square.sqrt() + eps);
                assert_close(&[p, m, v, step], &[q, qm, qv, f64::from(t)]);
            }
        }
    }

    #[test]
    fn other_optimizers_are_their_algorithms() {
        let (p, g, s, lr, scale) = (0.7, -1.25, 0.4, 0.1, 0.5);
        let of = |momentum, dampening, nesterov| {
            Sgd { momentum, dampening, nesterov, weight_decay: 0.2, scaled: true, copy: false }.program()
        };
        let h = g * scale + 0.2 * p;
        assert_close(&run(&Sgd::default().program(), &[p, g, lr]), &[p - lr * g]);
        assert_close(&run(&of(0.0, 0.0, false), &[p, g, lr, scale]), &[p - lr * h]);
        let b = 0.9 * s + 0.75 * h;
        assert_close(&run(&of(0.9, 0.25, false), &[p, g, s, lr, scale]), &[p - lr * b, b]);
        let b = 0.9 * s + h;
        assert_close(&run(&of(0.9, 0.0, true), &[p, g, s, lr, scale]), &[p - lr * (h + 0.9 * b), b]);

        let lion = Lion { weight_decay: 0.3, copy: true, ..Lion::default() };
        let q = p - lr * ((0.9 * s + 0.1 * g).signum() + 0.3 * p);
        assert_close(&run(&lion.program(), &[p, g, s, lr]), &[q, 0.99 * s + 0.01 * g, q]);

        let v = 0.99 * s + 0.01 * g * g;
        let by = g / (v.sqrt() + 1e-8);
        assert_close(&run(&RmsProp::default().program(), &[p, g, s, lr]), &[p - lr * by, v]);
        let heavy = RmsProp { momentum: 0.9, ..RmsProp::default() };
        let b = 0.9 * 0.3 + by;
        assert_close(&run(&heavy.program(), &[p, g, s, 0.3, lr]), &[p - lr * b, v, b]);

        let sum = s + g * g;
        assert_close(&run(&Adagrad::default().program(), &[p, g, s, lr]), &[p - lr * g / (sum.sqrt() + 1e-10), sum]);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (program, words) in [
            (Adam { beta1: 1.0, ..Adam::default() }.program(), "beta1: must be in [0, 1); got 1"),
            (Adam { eps: f64::NAN, ..Adam::default() }.clock(), "eps: must be finite and at least 0; got NaN"),
            (Sgd { nesterov: true, ..Sgd::default() }.program(), "nesterov: must have momentum and no dampening"),
            (Sgd { dampening: 0.5, ..Sgd::default() }.program(), "dampening: must be 0 without momentum"),
            (Lion { weight_decay: -1.0, ..Lion::default() }.program(), "weight_decay"),
            (RmsProp { alpha: -0.1, ..RmsProp::default() }.program(), "alpha: must be in [0, 1)"),
            (Adagrad { eps: f64::INFINITY, ..Adagrad::default() }.program(), "eps"),
            (huber(0.0), "delta: must be positive; got 0"),
            (smooth_l1(f64::NAN), "beta: must be positive; got NaN"),
            (clamp_scale(1.0, 0.0), "lo: must be at most hi, 0; got 1"),
            (clip_factor(-1.0), "limit: must be positive; got -1"),
        ] {
            let error = program.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
