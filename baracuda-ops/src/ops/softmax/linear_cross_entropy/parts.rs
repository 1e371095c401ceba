//! The sequences of other ops.
//!
//! The classes are divided into chunks. Forward has the logits of one chunk at a time, and of each its logsumexp. Backward has them again, and of each chunk the
//! gradient of its logits, from which come the chunk's rows of `dweight`, and what is added to `dx`.

use std::ops::Range;

use super::{Fields, LossReduction, Valid, backward, forward};
use crate::dtype::DType;
use crate::error::Result;
use crate::narrow::to_usize;
use crate::ops::gemm::{GemmBackwardDescriptor, GemmDescriptor, GemmFactor};
use crate::ops::index::IndexSelectDescriptor;
use crate::ops::pointwise::map::{INPUTS, OUTPUTS};
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program, ProgramBuilder, Term};
use crate::ops::reduce::{ReduceDescriptor, Reduction};
use crate::sequence::{Sequence, Tensor};

/// Fewer classes make products that are too small for a large device.
const LEAST_CLASSES: u64 = 1024;
/// Chunks of forward whose gradients of logits backward has together: each product that adds to `dx` reads and writes all its sums in f32.
const CHUNKS_TOGETHER: u64 = 2;
/// More chunks would only make more launches.
const MOST_CHUNKS: u64 = 128;
/// Chunks are multiples of it, so that tiles of products are whole.
const TILE: u64 = 128;

/// How many classes a chunk has. It depends on nothing else, so that neither a device nor the number of rows changes the order of sums.
fn step(classes: u64) -> u64 {
    classes.div_ceil(MOST_CHUNKS).next_multiple_of(TILE).max(LEAST_CLASSES)
}

/// The classes of each chunk, with the chunk's number.
fn chunks(classes: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let step = step(classes);
    (0..classes.div_ceil(step)).map(move |at| (at, at * step..classes.min((at + 1) * step)))
}

pub(super) fn forward(valid: &Valid) -> Result<Sequence> {
    let of = |row| Tensor::operand(valid.slots.always(row));
    let [x, weight, targets] = [forward::X, forward::WEIGHT, forward::TARGETS].map(of);
    let [loss, logsumexp] = [forward::LOSS, forward::LOGSUMEXP].map(of);
    let (dtype, rows, classes) = (loss.desc.dtype(), x.desc.dims()[0], weight.desc.dims()[0]);
    let mut sequence = Sequence::default();
    let s = &mut sequence;
    let flags = Flags::new(s, &valid.fields, targets)?;

    let of_chunks = s.matrix(dtype, classes.div_ceil(step(classes)), rows)?;
    for (at, chunk) in chunks(classes) {
        let mark = s.mark();
        let logits = s.tensor(dtype, &[rows, chunk.end - chunk.start])?;
        product(s, x, rows_of(weight, &chunk)?, logits)?;
        reduce(s, &[logits], Reduction::LogSumExp, 1, line(of_chunks, at)?, |_, of| of[0])?;
        s.release(mark);
    }
    reduce(s, &[of_chunks], Reduction::LogSumExp, 0, logsumexp, |_, of| of[0])?;

    let of_target = s.tensor(dtype, &[rows])?;
    let mark = s.mark();
    let named = s.tensor(x.desc.dtype(), x.desc.dims())?;
    // A target out of range names no row, and makes a loss of NaN.
    let select = IndexSelectDescriptor::new(weight.desc, 0, targets.desc)?.fill(f64::NAN)?;
    s.push(select, &[("x", weight), ("indices", targets), ("y", named)]);
    reduce(s, &[x, named], Reduction::Sum, 1, of_target, |b, of| b.call(Function::Mul, [of[0], of[1]]))?;
    s.release(mark);

    let inputs: Vec<Tensor> = [logsumexp, of_target].into_iter().chain(flags.ignored).collect();
    let loss_of_row = |b: &mut ProgramBuilder, of: &[Term]| {
        let loss = b.call(Function::Sub, [of[0], of[1]]);
        match of.get(2) {
            Some(&is_ignored) => b.call(Function::Where, [is_ignored, 0.0.into(), loss]),
            None => loss,
        }
    };
    match valid.fields.reduction {
        LossReduction::None => map(s, &inputs, loss, loss_of_row)?,
        LossReduction::Sum => reduce(s, &inputs, Reduction::Sum, 0, loss, loss_of_row)?,
        LossReduction::Mean => {
            let (sum, divisor) = (s.tensor(dtype, &[])?, of(forward::DIVISOR));
            reduce(s, &inputs, Reduction::Sum, 0, sum, loss_of_row)?;
            reduce(s, &flags.all(), Reduction::CountNonzero, 0, divisor, counts)?;
            map(s, &[sum, divisor], loss, |b, of| b.call(Function::Div, [of[0], of[1]]))?;
        }
    }
    Ok(sequence)
}

pub(super) fn backward(valid: &Valid) -> Result<Sequence> {
    let of = |row| Tensor::operand(valid.slots.always(row));
    let [x, weight, targets] = [backward::X, backward::WEIGHT, backward::TARGETS].map(of);
    let [dloss, logsumexp] = [backward::DLOSS, backward::LOGSUMEXP].map(of);
    let [divisor, dx, dweight] =
        [backward::DIVISOR, backward::DX, backward::DWEIGHT].map(|row| valid.slots.at(row).map(Tensor::operand));
    let (narrow, dtype) = (x.desc.dtype(), logsumexp.desc.dtype());
    let [rows, classes] = [x.desc.dims()[0], weight.desc.dims()[0]];
    let mut sequence = Sequence::default();
    let s = &mut sequence;
    let flags = Flags::new(s, &valid.fields, targets)?;

    // The gradient of each row's loss.
    let g = s.tensor(dtype, &[rows])?;
    let inputs: Vec<Tensor> = flags.all().into_iter().chain([dloss]).chain(divisor).collect();
    map(s, &inputs, g, |b, of| {
        let (flags, of) = of.split_at(flags.all().len());
        let gradient = if let [dloss, divisor] = *of { b.call(Function::Div, [dloss, divisor]) } else { of[0] };
        let counts = counts(b, flags);
        b.call(Function::Where, [counts, gradient, 0.0.into()])
    })?;

    // Where each target lies in each chunk, from the chunk's first class on, modulo 2^32.
    let count = classes.div_ceil(step(classes));
    let within = s.matrix(dtype, count, rows)?;
    let repeated = flags.low.view(DType::U32, &[count, rows], &[0, flags.low.desc.strides()[0]])?;
    map(s, &[repeated], within, |b, of| {
        let chunk = b.index(0);
        let first = b.call(Function::Mul, [chunk, as_number(step(classes)).into()]);
        b.call(Function::Sub, [of[0], first])
    })?;

    let sum = match dx {
        Some(dx) if narrow != dtype => Some(s.tensor(dtype, dx.desc.dims())?),
        other => other,
    };
    for first in (0..count).step_by(to_usize(CHUNKS_TOGETHER)) {
        let mark = s.mark();
        let together =
            Range { start: first * step(classes), end: classes.min((first + CHUNKS_TOGETHER) * step(classes)) };
        let dlogits = s.tensor(narrow, &[rows, together.end - together.start])?;
        for (at, chunk) in chunks(classes).filter(|(at, _)| (first..first + CHUNKS_TOGETHER).contains(at)) {
            let mark = s.mark();
            let extent = chunk.end - chunk.start;
            let dlogits = dlogits.narrow(1, chunk.start - together.start, extent)?;
            let logits = if narrow == dtype { dlogits } else { s.tensor(dtype, &[rows, extent])? };
            product(s, x, rows_of(weight, &chunk)?, logits)?;
            let [logsumexp, g, target] = [column(logsumexp)?, column(g)?, column(line(within, at)?)?];
            map(s, &[logits, logsumexp, g, target], dlogits, |b, of| {
                let apart = b.call(Function::Sub, [of[0], of[1]]);
                let share = b.call(Function::Exp, [apart]);
                let class = b.index(1);
                let is_target = b.call(Function::Eq, [class, of[3]]);
                let of_target = b.call(Function::Where, [is_target, 1.0.into(), 0.0.into()]);
                let slope = b.call(Function::Sub, [share, of_target]);
                let gradient = b.call(Function::Mul, [slope, of[2]]);
                let is_none = b.call(Function::Eq, [of[2], 0.0.into()]);
                b.call(Function::Where, [is_none, 0.0.into(), gradient])
            })?;
            s.release(mark);
        }
        let weight = rows_of(weight, &together)?;
        let mut gradients = Vec::new();
        let mut operands = vec![("a", x), ("b", weight), ("dout", dlogits)];
        if let Some(sum) = sum {
            gradients.push("a");
            operands.push(("da", sum));
        }
        if let Some(dweight) = dweight {
            gradients.push("b");
            operands.push(("db", rows_of(dweight, &together)?));
        }
        let mut products = GemmBackwardDescriptor::new(x.desc, GemmFactor::transposed(weight.desc), &gradients)?;
        if sum.is_some() {
            products = products.da(dtype, if first == 0 { 0.0 } else { 1.0 })?;
        }
        for (name, tensor) in &operands[3..] {
            products = products.layout(name, tensor.desc)?;
        }
        s.push(products, &operands);
        s.release(mark);
    }
    if let (Some(sum), Some(dx)) = (sum, dx)
        && narrow != dtype
    {
        map(s, &[sum], dx, |_, of| of[0])?;
    }
    Ok(sequence)
}

/// What the targets say: for each row whether its target is a class, and whether it is ignored.
struct Flags {
    in_range: Tensor,
    ignored: Option<Tensor>,
    /// The low words of the targets.
    low: Tensor,
}

impl Flags {
    /// Targets are read as words of 32 bits, one or two each, since shaders have no others: a class is a low word below the number of classes beside a high
    /// word of 0.
    fn new(s: &mut Sequence, fields: &Fields, targets: Tensor) -> Result<Self> {
        let (rows, step) = (targets.desc.dims()[0], targets.desc.strides()[0]);
        let of_each = targets.desc.dtype().size_bytes() / DType::U32.size_bytes();
        let words = targets.view(DType::U32, &[rows, of_each], &[of_each * step, 1])?;
        let low = if cfg!(target_endian = "little") { 0 } else { of_each - 1 };
        let classes = fields.weight.dims()[0];
        let in_range = Self::of_words(s, words, low, |b, word, is_low| {
            let end = b.call(Function::Where, [is_low, as_number(classes).into(), 1.0.into()]);
            b.call(Function::Lt, [word, end])
        })?;
        let ignored = fields.ignore_index.map(|ignored| {
            let [low_word, high_word] = [ignored & 0xffff_ffff, (ignored >> 32) & 0xffff_ffff];
            Self::of_words(s, words, low, |b, word, is_low| {
                let [low, high] = [low_word, high_word].map(|word| as_number(word.unsigned_abs()).into());
                let expected = b.call(Function::Where, [is_low, low, high]);
                b.call(Function::Eq, [word, expected])
            })
        });
        let of_low = words.narrow(1, low, 1)?.view(DType::U32, &[rows], &[of_each * step])?;
        Ok(Self { in_range, ignored: ignored.transpose()?, low: of_low })
    }

    /// For each target whether something holds of all its words, of which it is told whether they are low ones.
    fn of_words(
        s: &mut Sequence,
        words: Tensor,
        low: u64,
        holds: impl FnOnce(&mut ProgramBuilder, Term, Term) -> Term,
    ) -> Result<Tensor> {
        let of_targets = s.tensor(DType::Bool, &words.desc.dims()[..1])?;
        let mark = s.mark();
        let of_words = s.tensor(DType::Bool, words.desc.dims())?;
        map(s, &[words], of_words, |b, of| {
            let place = b.index(1);
            let is_low = b.call(Function::Eq, [place, as_number(low).into()]);
            holds(b, of[0], is_low)
        })?;
        reduce(s, &[of_words], Reduction::All, 1, of_targets, |_, of| of[0])?;
        s.release(mark);
        Ok(of_targets)
    }

    fn all(&self) -> Vec<Tensor> {
        [self.in_range].into_iter().chain(self.ignored).collect()
    }
}

/// Whether a row counts, by its flags.
fn counts(b: &mut ProgramBuilder, flags: &[Term]) -> Term {
    match *flags {
        [in_range, is_ignored] => {
            let is_kept = b.call(Function::LogicalNot, [is_ignored]);
            b.call(Function::LogicalAnd, [in_range, is_kept])
        }
        _ => flags[0],
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of 32 bits")]
fn as_number(word: u64) -> f64 {
    word as f64
}

/// The rows of some classes.
fn rows_of(weight: Tensor, classes: &Range<u64>) -> Result<Tensor> {
    weight.narrow(0, classes.start, classes.end - classes.start)
}

/// A row of a matrix, as a vector.
fn line(matrix: Tensor, at: u64) -> Result<Tensor> {
    matrix.narrow(0, at, 1)?.view(matrix.desc.dtype(), &matrix.desc.dims()[1..], &matrix.desc.strides()[1..])
}

/// A vector as a matrix of one column.
fn column(vector: Tensor) -> Result<Tensor> {
    vector.view(vector.desc.dtype(), &[vector.desc.dims()[0], 1], &[vector.desc.strides()[0], 1])
}

/// The logits of some classes.
fn product(s: &mut Sequence, x: Tensor, weight: Tensor, logits: Tensor) -> Result<()> {
    let product = GemmDescriptor::new(x.desc, GemmFactor::transposed(weight.desc))?.out(logits.desc.dtype())?;
    s.push(product.layout("out", logits.desc)?, &[("a", x), ("b", weight), ("out", logits)]);
    Ok(())
}

/// A program of each element.
fn map(
    s: &mut Sequence,
    inputs: &[Tensor],
    output: Tensor,
    of: impl FnOnce(&mut ProgramBuilder, &[Term]) -> Term,
) -> Result<()> {
    let (program, descs) = (program(inputs, of)?, inputs.iter().map(|input| input.desc).collect());
    let map = PointwiseDescriptor::new(program, descs)?.outputs(vec![output.desc.dtype()])?;
    s.push(map.layout(OUTPUTS[0], output.desc)?, &operands(inputs, output));
    Ok(())
}

/// A reduction of what a program makes of each element.
fn reduce(
    s: &mut Sequence,
    inputs: &[Tensor],
    reduction: Reduction,
    axis: usize,
    output: Tensor,
    of: impl FnOnce(&mut ProgramBuilder, &[Term]) -> Term,
) -> Result<()> {
    let (program, descs) = (program(inputs, of)?, inputs.iter().map(|input| input.desc).collect());
    let reduce = ReduceDescriptor::new(program, descs, vec![axis], reduction)?.output(output.desc.dtype())?;
    s.push(reduce.layout(OUTPUTS[0], output.desc)?, &operands(inputs, output));
    Ok(())
}

fn program(inputs: &[Tensor], of: impl FnOnce(&mut ProgramBuilder, &[Term]) -> Term) -> Result<Program> {
    let mut b = Program::builder();
    let terms: Vec<Term> = INPUTS[..inputs.len()].iter().map(|name| b.input(*name)).collect();
    let result = of(&mut b, &terms);
    b.finish([result])
}

fn operands(inputs: &[Tensor], output: Tensor) -> Vec<(&'static str, Tensor)> {
    INPUTS.into_iter().zip(inputs.iter().copied()).chain([(OUTPUTS[0], output)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_few_and_have_every_class_once() {
        for (classes, expected) in [(1, (1024, 1)), (1024, (1024, 1)), (1025, (1024, 2)), (128_256, (1024, 126))] {
            assert_eq!((step(classes), chunks(classes).count() as u64), expected, "{classes}");
        }
        for classes in [1, 1023, 2049, 128_256, 262_144, 1 << 20, super::super::MOST_CLASSES] {
            let mut end = 0;
            for (at, chunk) in chunks(classes) {
                assert_eq!((at * step(classes), chunk.start), (chunk.start, end));
                end = chunk.end;
            }
            assert!(end == classes && chunks(classes).count() <= 128 && step(classes) <= 1 << 24);
        }
    }
}
