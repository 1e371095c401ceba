//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::{SoftmaxBackwardDescriptor, SoftmaxDescriptor, backward, forward};
use crate::backend::cpu::{Operands, Sum, Tensor, threads};
use crate::backend::{Backend, DeviceProps};
use crate::error::Reason;
use crate::options::PlanOptions;
use crate::plan::{Ask, Candidate, Kernel};

/// The reference of forward.
pub(crate) struct Reference;

impl Kernel<SoftmaxDescriptor> for Reference {
    fn name(&self) -> &'static str {
        "softmax_reference"
    }

    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn accept<'d>(
        &self,
        descriptor: &'d SoftmaxDescriptor,
        _: &PlanOptions,
        _: &DeviceProps,
        _: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        Ok(Candidate::on_cpu(|| {
            let descriptor = descriptor.clone();
            move |operands| softmax_forward(&descriptor, operands)
        }))
    }
}

/// The reference of backward.
pub(crate) struct BackwardReference;

impl Kernel<SoftmaxBackwardDescriptor> for BackwardReference {
    fn name(&self) -> &'static str {
        "softmax_backward_reference"
    }

    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn accept<'d>(
        &self,
        descriptor: &'d SoftmaxBackwardDescriptor,
        _: &PlanOptions,
        _: &DeviceProps,
        _: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        Ok(Candidate::on_cpu(|| {
            let descriptor = descriptor.clone();
            move |operands| softmax_backward(&descriptor, operands)
        }))
    }
}

/// The lines of a tensor along one axis.
struct Lines<'a> {
    tensor: Tensor<'a>,
    axis: usize,
}

impl Lines<'_> {
    fn count(&self) -> u64 {
        let desc = self.tensor.desc();
        desc.elements().checked_div(self.len()).unwrap_or(0)
    }

    /// Elements of a line; a tensor of rank 0 is one of one element.
    fn len(&self) -> u64 {
        self.tensor.desc().dims().get(self.axis).copied().unwrap_or(1)
    }

    /// Offsets of a line's elements; lines count row-major over the other extents.
    fn offsets(&self, mut line: u64) -> impl Iterator<Item = u64> {
        let desc = self.tensor.desc();
        let mut first = 0;
        for axis in (0..desc.rank()).rev().filter(|axis| *axis != self.axis) {
            let dim = desc.dims()[axis];
            first += line % dim * desc.strides()[axis];
            line /= dim;
        }
        let step = desc.strides().get(self.axis).copied().unwrap_or(0);
        (0..self.len()).map(move |i| first + i * step)
    }

    fn load(&self, line: u64) -> Vec<f64> {
        self.offsets(line).map(|at| self.tensor.load(at)).collect()
    }

    /// # Safety
    /// No other thread uses that line meanwhile.
    unsafe fn store(&self, line: u64, values: impl Iterator<Item = f64>) {
        for (at, value) in self.offsets(line).zip(values) {
            // SAFETY: the caller is alone at this line, and outputs address every element once.
            unsafe { self.tensor.store(at, value) };
        }
    }
}

/// What scaling makes the largest element; NaN if there is one.
fn extreme(values: &[f64], scale: f64) -> f64 {
    let is_larger = |a: f64, b: f64| if scale < 0.0 { a < b } else { a > b };
    let larger = |best: f64, value: f64| if value.is_nan() || is_larger(value, best) { value } else { best };
    values.iter().copied().reduce(larger).unwrap_or(f64::NAN)
}

/// `scale * (value - extreme)`. In f64, the difference of finite numbers of either sign may overflow though what the scale makes of it does
/// not; their scaled values have either sign, too, so that their difference is no `inf - inf`.
fn scaled_difference(scale: f64, value: f64, extreme: f64) -> f64 {
    let difference = value - extreme;
    if difference.is_infinite() && value.is_finite() && extreme.is_finite() {
        return scale * value - scale * extreme;
    }
    scale * difference
}

fn softmax_forward(softmax: &SoftmaxDescriptor, operands: &Operands<'_>) {
    let fields = &softmax.fields;
    let lines_of = |position| operands.get(position).map(|tensor| Lines { tensor, axis: fields.axis });
    let (Some(x), Some(y)) = (lines_of(forward::X), lines_of(forward::Y)) else { return };
    let scale = fields.scale.get();
    threads::for_each(x.count(), x.tensor.desc().elements(), |line| {
        let mut values = x.load(line);
        let extreme = extreme(&values, scale);
        values.iter_mut().for_each(|value| *value = scaled_difference(scale, *value, extreme));
        let sum = values.iter().map(|t| t.exp()).collect::<Sum>().total();
        let log_sum = sum.ln();
        let result = values.iter().map(|t| if fields.log { t - log_sum } else { t.exp() / sum });
        // SAFETY: each line is one task, and the whole line was read before.
        unsafe { y.store(line, result) };
    });
}

fn softmax_backward(softmax: &SoftmaxBackwardDescriptor, operands: &Operands<'_>) {
    let fields = &softmax.fields;
    let lines_of = |position| operands.get(position).map(|tensor| Lines { tensor, axis: fields.axis });
    let (Some(y), Some(dy), Some(dx)) = (lines_of(backward::Y), lines_of(backward::DY), lines_of(backward::DX)) else {
        return;
    };
    let scale = fields.scale.get();
    threads::for_each(y.count(), y.tensor.desc().elements(), |line| {
        let (y, dy) = (y.load(line), dy.load(line));
        let pairs = || y.iter().zip(&dy);
        let sum = pairs().map(|(y, dy)| if fields.log { *dy } else { dy * y }).collect::<Sum>().total();
        let gradient = pairs().map(|(y, dy)| scale * if fields.log { dy - y.exp() * sum } else { y * (dy - sum) });
        // SAFETY: each line is one task, and the whole line of dy was read before.
        unsafe { dx.store(line, gradient) };
    });
}
