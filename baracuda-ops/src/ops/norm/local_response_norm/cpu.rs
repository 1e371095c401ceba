//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::{
    Fields, LocalResponseNormBackwardDescriptor, LocalResponseNormDescriptor,
    backward::{DX, DY},
    forward::{X, Y},
};
use crate::backend::cpu::{Operands, Sum, Tensor, threads};
use crate::backend::{Backend, DeviceProps};
use crate::error::Reason;
use crate::narrow::to_usize;
use crate::options::PlanOptions;
use crate::plan::{Ask, Candidate, Kernel, MAX_WORK};
use crate::tensor::TensorDesc;

/// The reference kernel.
pub(super) struct Reference;

impl Kernel<LocalResponseNormDescriptor> for Reference {
    fn name(&self) -> &'static str {
        "local_response_norm_reference"
    }

    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn accept<'d>(
        &self,
        descriptor: &'d LocalResponseNormDescriptor,
        _: &PlanOptions,
        _: &DeviceProps,
        _: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        bounded(&descriptor.0.fields)?;
        Ok(Candidate::on_cpu(|| {
            let fields = descriptor.0.fields.clone();
            move |operands| norm_forward(&fields, operands)
        }))
    }
}

/// The reference kernel of the gradient.
pub(super) struct BackwardReference;

impl Kernel<LocalResponseNormBackwardDescriptor> for BackwardReference {
    fn name(&self) -> &'static str {
        "local_response_norm_backward_reference"
    }

    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn accept<'d>(
        &self,
        descriptor: &'d LocalResponseNormBackwardDescriptor,
        _: &PlanOptions,
        _: &DeviceProps,
        _: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        bounded(&descriptor.0.fields)?;
        Ok(Candidate::on_cpu(|| {
            let fields = descriptor.0.fields.clone();
            move |operands| norm_backward(&fields, operands)
        }))
    }
}

/// Terms of all sums, each of which costs what an element of another op does.
fn additions(fields: &Fields) -> u64 {
    fields.x.elements().saturating_mul(fields.size.min(fields.x.dims()[1]))
}

/// Refuses windows that are too long for that many elements.
fn bounded(fields: &Fields) -> Result<(), Reason> {
    match additions(fields) {
        terms if terms > MAX_WORK => {
            Err(format!("windows of {} over x have {terms} terms, the limit is {MAX_WORK}", fields.size).into())
        }
        _ => Ok(()),
    }
}

/// The channels of one sample at one position, of one tensor.
struct Column<'a> {
    tensor: Tensor<'a>,
    start: u64,
    step: u64,
}

impl<'a> Column<'a> {
    /// Column number `index` in row-major order of batch and spatial extents.
    fn new(tensor: Tensor<'a>, index: u64) -> Self {
        let desc = tensor.desc();
        let (mut rest, mut start) = (index, 0);
        for axis in (0..desc.rank()).rev().filter(|axis| *axis != 1) {
            start += rest % desc.dims()[axis] * desc.strides()[axis];
            rest /= desc.dims()[axis];
        }
        let step = desc.strides()[1];
        Self { tensor, start, step }
    }

    fn load(&self, channels: usize) -> Vec<f64> {
        (0..channels as u64).map(|c| self.tensor.load(self.start + c * self.step)).collect()
    }

    /// # Safety
    /// No other thread uses that column meanwhile.
    unsafe fn store(&self, values: impl Iterator<Item = f64>) {
        for (c, value) in (0..).zip(values) {
            // SAFETY: the caller is alone at this column, and outputs address every element once.
            unsafe { self.tensor.store(self.start + c * self.step, value) };
        }
    }
}

/// The channels from `before` before c on, `size` in all, that exist.
fn window(c: usize, before: u64, size: u64, channels: usize) -> std::ops::Range<usize> {
    let first = (c as u64).saturating_sub(before);
    let end = (c as u64).saturating_add(size - before).min(channels as u64);
    to_usize(first)..to_usize(end)
}

/// `d` of every channel of a column.
fn denominators(fields: &Fields, x: &[f64]) -> Vec<f64> {
    let scale = fields.alpha.get() / fields.size as f64;
    let sum = |c| {
        let all = window(c, fields.size / 2, fields.size, x.len());
        x[all].iter().map(|x| x * x).collect::<Sum>().total()
    };
    (0..x.len()).map(|c| fields.k.get() + scale * sum(c)).collect()
}

fn columns(x: &TensorDesc) -> u64 {
    if x.is_empty() { 0 } else { x.elements() / x.dims()[1] }
}

fn norm_forward(fields: &Fields, operands: &Operands<'_>) {
    let (Some(x), Some(y)) = (operands.get(X), operands.get(Y)) else { return };
    let channels = to_usize(fields.x.dims()[1]);
    threads::for_each(columns(&fields.x), additions(fields), |column| {
        let x = Column::new(x, column).load(channels);
        let d = denominators(fields, &x);
        let values = x.iter().zip(&d).map(|(x, d)| x * d.powf(-fields.beta.get()));
        // SAFETY: each column is one task.
        unsafe { Column::new(y, column).store(values) };
    });
}

fn norm_backward(fields: &Fields, operands: &Operands<'_>) {
    let (Some(dy), Some(x), Some(dx)) = (operands.get(DY), operands.get(super::backward::X), operands.get(DX)) else {
        return;
    };
    let channels = to_usize(fields.x.dims()[1]);
    let (beta, size) = (fields.beta.get(), fields.size);
    let slope = 2.0 * fields.alpha.get() * beta / size as f64;
    threads::for_each(columns(&fields.x), additions(fields), |column| {
        let (dy, x) = (Column::new(dy, column).load(channels), Column::new(x, column).load(channels));
        let d = denominators(fields, &x);
        let terms: Vec<f64> = (0..channels).map(|c| dy[c] * x[c] * d[c].powf(-beta - 1.0)).collect();
        let values = (0..channels).map(|c| {
            let all = window(c, size - size / 2 - 1, size, channels);
            let sum = terms[all].iter().copied().collect::<Sum>().total();
            dy[c] * d[c].powf(-beta) - slope * x[c] * sum
        });
        // SAFETY: each column is one task.
        unsafe { Column::new(dx, column).store(values) };
    });
}
