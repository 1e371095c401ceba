//! Cross-entropy on the CPU in f32: blocks of a line that the first cache holds, sums in short chains that meet in f64. Losses and what the target's gradient is
//! are computed in f64.

use super::cpu::{Target, lines_of_task, loss_of_line, losses, total_weight, weight_of};
use super::{At, LossReduction, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, held, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::{single, to_usize};
use crate::ops::blocks::{BLOCK, EMPTY, Room, Run, blocks, sums};
use crate::ops::pointwise::map::fast::{Converted as _, Widest, widest};
use crate::ops::pointwise::program::{exp, fma};
use crate::ops::softmax::masked::Lines;

/// Sums side by side: a few vectors. A block is a whole number of them.
const LANES: usize = 32;

/// The form of forward.
pub(super) fn forward(valid: &Valid) -> Accepted<'_> {
    takes(valid)?;
    Ok(valid.on_cpu(compute_forward).batch_invariant_if(valid.fields.reduction == LossReduction::None))
}

/// The form of backward.
pub(super) fn backward(valid: &Valid) -> Accepted<'_> {
    takes(valid)?;
    Ok(valid.on_cpu(compute_backward).batch_invariant_if(valid.fields.reduction == LossReduction::None))
}

fn takes(valid: &Valid) -> Result<(), Reason> {
    Reason::unless(valid.fields.x.dtype() != DType::F64, || "it computes in f32; the reference computes f64")
}

/// The elements of a line of an operand.
fn run<'a>(lines: &Lines, tensor: Tensor<'a>, operand: At, line: u64) -> Run<'a> {
    Run { tensor, first: lines.offset(operand as usize, line), step: lines.steps[operand as usize] }
}

/// Copies a block from element `at` on, behind which there is what changes no sum and no maximum.
#[inline(always)]
fn read<'r>(run: &Run<'_>, at: u64, length: usize, beyond: f32, room: &'r mut Room) -> &'r mut [f32] {
    let values = &mut room[..length.next_multiple_of(LANES)];
    f32::read(&run.tensor, run.first + at * run.step, run.step, &mut values[..length]);
    values[length..].fill(beyond);
    values
}

/// The largest element of a line, and the logarithm of the sum of the exponentials of the others' differences from it. Where there is a NaN or +infinity both
/// are NaN, where there is only -infinity both are -infinity.
struct Exponentials<'a> {
    x: Run<'a>,
    dim: u64,
}

impl Widest for Exponentials<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> (f64, f64) {
        let Self { x, dim } = self;
        let mut room = EMPTY;
        // The sum is about the largest element so far.
        let (mut largest, mut total) = (f32::NEG_INFINITY, 0.0);
        for (at, length) in blocks(dim) {
            let values = read(&x, at, length, f32::NEG_INFINITY, &mut room);
            let of_block = greatest(values);
            if of_block.is_nan() || of_block == f32::INFINITY {
                return (f64::NAN, f64::NAN);
            }
            if of_block > largest {
                total *= (f64::from(largest) - f64::from(of_block)).exp();
                largest = of_block;
            }
            if largest > f32::NEG_INFINITY {
                total += sum_of_exponentials::<FUSED>(values, largest);
            }
        }
        (largest.into(), total.ln())
    }
}

/// The greatest value of whole vectors; a NaN if there is one.
#[inline(always)]
fn greatest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for values in values.chunks_exact(LANES) {
        for lane in 0..LANES {
            let (best, value) = (lanes[lane], values[lane]);
            lanes[lane] = if best > value || best.is_nan() { best } else { value };
        }
    }
    let mut best = f32::NEG_INFINITY;
    for value in lanes {
        best = if best > value || best.is_nan() { best } else { value };
    }
    best
}

/// The sum of `exp(x - largest)` over whole vectors: chains of at most 16 additions in f32.
#[inline(always)]
fn sum_of_exponentials<const FUSED: bool>(values: &[f32], largest: f32) -> f64 {
    const { assert!(BLOCK / LANES <= 16) };
    let mut lanes = [0f32; LANES];
    for values in values.chunks_exact(LANES) {
        for lane in 0..LANES {
            lanes[lane] += exp::<FUSED>(values[lane] - largest);
        }
    }
    sums([&lanes[..]], |[e]: [f64; 1]| [e])[0]
}

/// What the losses of the classes of a line count beside that of a target.
#[derive(Clone, Copy)]
enum Shares<'a> {
    /// All this much.
    Alike(f32),
    /// Each its own.
    Each(&'a [f32]),
    /// `keep q + smooth` of each probability q, times its weight if there are any.
    Probabilities { of: Run<'a>, keep: f32, smooth: f32, weights: &'a [f32] },
}

impl Shares<'_> {
    /// Those of a block from class `at` on.
    #[inline(always)]
    fn block<'r>(&self, at: u64, length: usize, room: &'r mut Room) -> &'r [f32] {
        let shares = &mut room[..length];
        match self {
            Self::Alike(share) => shares.fill(*share),
            Self::Each(each) => shares.copy_from_slice(&each[to_usize(at)..][..length]),
            Self::Probabilities { of, keep, smooth, weights } => {
                f32::read(&of.tensor, of.first + at * of.step, of.step, shares);
                for share in &mut *shares {
                    *share = *keep * *share + *smooth;
                }
                if !weights.is_empty() {
                    for (share, weight) in shares.iter_mut().zip(&weights[to_usize(at)..]) {
                        *share *= weight;
                    }
                }
            }
        }
        shares
    }
}

/// What multiplies the loss of each class, if they differ and any but that of a target counts: with probabilities its weight, else the part of it that label
/// smoothing leaves.
fn weights(valid: &Valid, weight: Option<Tensor<'_>>) -> Result<Vec<f32>, Shortage> {
    let ([_, smooth], dim) = (valid.fields.smoothing(), valid.derived.dim);
    let factor = if valid.fields.has_probabilities() { 1.0 } else { smooth };
    match weight {
        Some(_) if factor > 0.0 => held(dim, (0..dim).map(|class| single(factor * weight_of(weight, class)))),
        _ => Ok(Vec::new()),
    }
}

/// The shares of a line.
fn shares<'a>(valid: &Valid, targets: Option<Tensor<'a>>, line: u64, weights: &'a [f32]) -> Shares<'a> {
    let [keep, smooth] = valid.fields.smoothing().map(single);
    match targets {
        Some(targets) if valid.fields.has_probabilities() => {
            Shares::Probabilities { of: run(&valid.derived, targets, At::Targets, line), keep, smooth, weights }
        }
        _ if weights.is_empty() => Shares::Alike(smooth),
        _ => Shares::Each(weights),
    }
}

/// The sum of the shares of a line, in f64.
struct Total<'a> {
    dim: u64,
    shares: Shares<'a>,
}

impl Widest for Total<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> f64 {
        let mut room = EMPTY;
        let mut total = 0.0;
        for (at, length) in blocks(self.dim) {
            total += sums([self.shares.block(at, length, &mut room)], |[share]: [f64; 1]| [share])[0];
        }
        total
    }
}

/// The sum of the losses of the classes of a line, each by its share, in f64.
struct OfClasses<'a> {
    x: Run<'a>,
    dim: u64,
    shares: Shares<'a>,
    about: (f64, f64),
}

impl Widest for OfClasses<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> f64 {
        let Self { x, dim, shares, about: (largest, log_sum) } = self;
        let [mut of_x, mut of_shares] = [EMPTY; 2];
        let mut total = 0.0;
        for (at, length) in blocks(dim) {
            let x = &read(&x, at, length, 0.0, &mut of_x)[..length];
            let shares = shares.block(at, length, &mut of_shares);
            total += sums([shares, x], |[share, x]: [f64; 2]| [share * ((largest - x) + log_sum)])[0];
        }
        total
    }
}

fn compute_forward(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let lines = &valid.derived;
    let Some(x) = operands.get(forward::X) else { return losses(valid, operands, |_| Ok((0.0, 0.0))) };
    let weights = weights(valid, operands.get(forward::WEIGHT))?;
    losses(valid, operands, |line| {
        let x = run(lines, x, At::X, line);
        let about = widest(Exponentials { x, dim: lines.dim });
        let shares = shares(valid, operands.get(forward::TARGETS), line, &weights);
        let of_classes = || widest(OfClasses { x, dim: lines.dim, shares, about });
        Ok(loss_of_line(valid, operands, line, about, of_classes))
    })
}

/// Writes the gradients of a line: `(exp(x - shift) * factor * slope - share) * gradient` of each class, and of one what is given.
struct Gradients<'a> {
    x: Run<'a>,
    dx: Run<'a>,
    dim: u64,
    shift: f32,
    factor: f32,
    slope: f32,
    gradient: f32,
    shares: Shares<'a>,
    of_target: Option<(u64, f32)>,
}

impl Widest for Gradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { x, dx, dim, shift, factor, slope, gradient, shares, of_target } = self;
        let [mut of_x, mut of_shares] = [EMPTY; 2];
        for (at, length) in blocks(dim) {
            let values = read(&x, at, length, 0.0, &mut of_x);
            match shares {
                Shares::Alike(share) => {
                    for value in &mut *values {
                        *value = fma::<FUSED>(exp::<FUSED>(*value - shift) * factor, slope, -share) * gradient;
                    }
                }
                Shares::Each(_) | Shares::Probabilities { .. } => {
                    let shares = shares.block(at, length, &mut of_shares);
                    for (value, share) in values.iter_mut().zip(shares) {
                        *value = fma::<FUSED>(exp::<FUSED>(*value - shift) * factor, slope, -share) * gradient;
                    }
                }
            }
            if let Some((class, of_class)) = of_target
                && (at..at + length as u64).contains(&class)
            {
                values[to_usize(class - at)] = of_class;
            }
            f32::write(&dx.tensor, dx.first + at * dx.step, dx.step, &values[..length]);
        }
    }
}

fn compute_backward(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let (Some(x), Some(targets), Some(dloss), Some(dx)) = (
        operands.get(backward::X),
        operands.get(backward::TARGETS),
        operands.get(backward::DLOSS),
        operands.get(backward::DX),
    ) else {
        return Ok(());
    };
    let ([keep, smooth], z) = (fields.smoothing(), fields.z_loss.get());
    let weight = operands.get(backward::WEIGHT);
    let weights = weights(valid, weight)?;
    let total = smooth * total_weight(valid, weight);
    let divisor = operands.get(backward::DIVISOR).map_or(1.0, |divisor| divisor.load(0));
    let of_line = |line: u64| {
        let (x, dx) = (run(lines, x, At::X, line), run(lines, dx, At::Dx, line));
        let class = match fields.has_probabilities() {
            true => None,
            false => match Target::of(fields, lines, targets, line) {
                Target::Class(class) => Some(class),
                Target::Ignored | Target::OutOfRange => {
                    return blocks(lines.dim).for_each(|(at, length)| dx.write(at, &EMPTY[..length]));
                }
            },
        };
        let shares = shares(valid, Some(targets), line, &weights);
        let gradient = dloss.load(lines.offset(At::Loss as usize, line)) / divisor;
        let (shift, log_sum) = match operands.get(backward::LOGSUMEXP) {
            Some(saved) => (saved.load(lines.offset(At::LogSumExp as usize, line)), 0.0),
            None => widest(Exponentials { x, dim: lines.dim }),
        };
        let of_z = if z > 0.0 { 2.0 * z * (shift + log_sum) } else { 0.0 };
        let of_classes = if class.is_some() { total } else { widest(Total { dim: lines.dim, shares }) };
        let of_class = class.map_or(0.0, |class| keep * weight_of(weight, class));
        let of_target = class.map(|class| {
            // The difference of the target's share from 1, in f64.
            let share = ((x.tensor.load(x.first + class * x.step) - shift) - log_sum).exp();
            let of_smoothing = if smooth > 0.0 { smooth * weight_of(weight, class) } else { 0.0 };
            let slope = of_class * (share - 1.0) + (of_classes + of_z) * share - of_smoothing;
            (class, single(slope * gradient))
        });
        widest(Gradients {
            x,
            dx,
            dim: lines.dim,
            shift: single(shift),
            factor: single((-log_sum).exp()),
            slope: single(of_class + of_classes + of_z),
            gradient: single(gradient),
            shares,
            of_target,
        });
    };
    let of_task = lines_of_task(lines);
    threads::for_each(lines.count.div_ceil(of_task), x.desc().elements(), |task| {
        (task * of_task..lines.count.min((task + 1) * of_task)).for_each(of_line);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::ops::softmax::cross_entropy::{CrossEntropyArgs, CrossEntropyBackwardArgs, CrossEntropyDescriptor};
    use crate::options::PlanOptions;
    use crate::plan::Plan;
    use crate::tensor::TensorDesc;
    use crate::{Device, Workspace};

    /// Numbers from -1.5 to 1.5, and further from 0 along the classes.
    fn logit(at: usize) -> f32 {
        let bits = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        3.0 * single(bits as f64 / f64::from(1 << 24)) - 1.5 + single((at % 700) as f64 / 100.0)
    }

    /// The mean over lines of 700 classes, and the gradient of x, by a kernel.
    fn results(device: &Device, kernel: Option<&str>, lines: usize) -> (f32, Vec<f32>) {
        let options = |op: &str| {
            let plain = PlanOptions::default();
            kernel.map_or(plain.clone(), |kernel| plain.kernel(format!("{op}_{kernel}")))
        };
        let x: Vec<f32> = (0..lines * 700).map(logit).collect();
        let targets: Vec<i32> = (0..lines).map(|line| (line * 37 % 701) as i32 - 1).collect();
        let weight: Vec<f32> = (0..700).map(|class| 0.5 + logit(class).abs()).collect();
        let desc = TensorDesc::contiguous(DType::F32, &[lines as u64, 700]).unwrap();
        let forward = CrossEntropyDescriptor::new(desc, 1, DType::I32).unwrap().ignore_index(-1).unwrap();
        let forward = forward.weight(DType::F32).unwrap().label_smoothing(0.1).unwrap().z_loss(1e-3).unwrap();
        let (mut loss, mut divisor, mut dx) = ([0f32], [0f32], vec![0f32; x.len()]);
        let plan = Plan::new(device, forward.clone(), &options("cross_entropy")).unwrap();
        let args = CrossEntropyArgs::new(&x[..], &targets[..], &mut loss[..]);
        let args = args.divisor(&mut divisor[..]).weight(&weight[..]);
        plan.run(&mut device.queue(), args, Workspace::none()).unwrap();
        let plan = Plan::new(device, forward.backward().unwrap(), &options("cross_entropy_backward")).unwrap();
        let args = CrossEntropyBackwardArgs::new(&x[..], &targets[..], &[1f32][..], &mut dx[..]);
        plan.run(&mut device.queue(), args.divisor(&divisor[..]).weight(&weight[..]), Workspace::none()).unwrap();
        (loss[0], dx)
    }

    #[test]
    fn means_are_those_of_the_reference_and_have_one_value_for_any_number_of_threads() {
        let lines = 3000;
        let (loss, dx) = results(&Device::cpu(), None, lines);
        let (expected, of_dx) = results(&Device::cpu(), Some("reference"), lines);
        assert!((loss - expected).abs() <= 1e-6 * expected, "{loss} should be {expected}");
        let largest = of_dx.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        for (at, (got, expected)) in dx.iter().zip(&of_dx).enumerate() {
            assert!((got - expected).abs() <= 1e-6 * largest, "dx[{at}] is {got}, not {expected}");
        }
        for threads in [1, 3] {
            let device = Device::cpu_with(NonZeroUsize::new(threads).unwrap());
            let (again, of_dx) = results(&device, None, lines);
            assert_eq!(loss.to_bits(), again.to_bits());
            assert!(dx.iter().zip(&of_dx).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn f64_is_left_to_the_reference() {
        let device = Device::cpu();
        for (dtype, kernel) in [
            (DType::F64, "cross_entropy_reference"),
            (DType::F32, "cross_entropy_fast"),
            (DType::BF16, "cross_entropy_fast"),
        ] {
            let x = TensorDesc::contiguous(dtype, &[4, 5]).unwrap();
            let forward = CrossEntropyDescriptor::new(x, 0, DType::I64).unwrap();
            assert_eq!(device.supports(&forward, &PlanOptions::default()).unwrap(), kernel);
        }
    }
}
