//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output. Every logit is computed where it is needed.

use super::{LossReduction, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, Tensor, held, room, threads};
use crate::kernel::Accepted;
use crate::narrow::to_usize;
use crate::ops::softmax::cross_entropy::cpu::Target;

/// The reference of forward.
pub(super) fn forward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_forward))
}

/// The reference of backward.
pub(super) fn backward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_backward))
}

/// A matrix of rows.
#[derive(Clone, Copy)]
struct Rows<'a>(Tensor<'a>);

impl Rows<'_> {
    fn count(&self) -> u64 {
        self.0.desc().dims()[0]
    }

    fn columns(&self) -> u64 {
        self.0.desc().dims()[1]
    }

    /// The place of an element.
    fn at(&self, row: u64, column: u64) -> u64 {
        let strides = self.0.desc().strides();
        row * strides[0] + column * strides[1]
    }

    fn row(&self, row: u64) -> Result<Vec<f64>, Shortage> {
        held(self.columns(), (0..self.columns()).map(|column| self.0.load(self.at(row, column))))
    }

    /// The sum of the products of a row with some values.
    fn dot(&self, row: u64, values: &[f64]) -> f64 {
        (0..).zip(values).map(|(column, value)| self.0.load(self.at(row, column)) * value).collect::<Sum>().total()
    }
}

/// An element of a vector, or the one of a tensor of rank 0.
fn element(vector: Tensor<'_>, at: u64) -> f64 {
    vector.load(at * vector.desc().strides().first().copied().unwrap_or(0))
}

impl Valid {
    fn target(&self, targets: Tensor<'_>, row: u64) -> Target {
        let number = targets.load_integer(row * targets.desc().strides()[0]);
        Target::new(number, self.fields.ignore_index, self.fields.weight.dims()[0])
    }

    /// Products of the extents.
    fn products(&self) -> u64 {
        self.fields.flops(1) / 2
    }
}

fn log_sum_exp(values: &[f64]) -> f64 {
    let larger = |largest: f64, &value: &f64| if value > largest || value.is_nan() { value } else { largest };
    let largest = values.iter().fold(f64::NEG_INFINITY, larger);
    if !largest.is_finite() {
        return largest;
    }
    largest + values.iter().map(|value| (value - largest).exp()).collect::<Sum>().total().ln()
}

fn compute_forward(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let rows = valid.fields.x.dims()[0];
    let tensors = (operands.get(forward::X), operands.get(forward::WEIGHT), operands.get(forward::TARGETS));
    // The loss of a row, and what it adds to the divisor.
    let of_row = |row: u64| {
        let (Some(x), Some(weight), Some(targets)) = tensors else { return Ok::<_, Shortage>((0.0, 0.0)) };
        let weight = Rows(weight);
        let values = Rows(x).row(row)?;
        let logits = held(weight.count(), (0..weight.count()).map(|class| weight.dot(class, &values)))?;
        let sum = log_sum_exp(&logits);
        if let Some(logsumexp) = operands.get(forward::LOGSUMEXP) {
            // SAFETY: each row is one task, and outputs address every element once.
            unsafe { logsumexp.store(row * logsumexp.desc().strides()[0], sum) };
        }
        Ok(match valid.target(targets, row) {
            Target::Class(class) => (sum - logits[to_usize(class)], 1.0),
            Target::Ignored => (0.0, 0.0),
            Target::OutOfRange => (f64::NAN, 0.0),
        })
    };
    let of_rows = threads::map(rows, valid.products(), of_row)?;
    let Some(loss) = operands.get(forward::LOSS) else { return Ok(()) };
    // SAFETY: no other thread is at work, here and below.
    let store = |tensor: Tensor<'_>, at: u64, value: f64| unsafe { tensor.store(at, value) };
    if valid.fields.reduction == LossReduction::None {
        (0..).zip(&of_rows).for_each(|(row, of_row)| store(loss, row * loss.desc().strides()[0], of_row.0));
        return Ok(());
    }
    let sum = of_rows.iter().map(|of_row| of_row.0).collect::<Sum>().total();
    match operands.get(forward::DIVISOR) {
        Some(divisor) => {
            let count = of_rows.iter().map(|of_row| of_row.1).sum::<f64>();
            store(divisor, 0, count);
            store(loss, 0, sum / count);
        }
        None => store(loss, 0, sum),
    }
    Ok(())
}

/// What backward reads of the rows of x and of the classes.
struct Logits<'a> {
    valid: &'a Valid,
    x: Rows<'a>,
    weight: Rows<'a>,
    targets: Tensor<'a>,
    logsumexp: Tensor<'a>,
    dloss: Tensor<'a>,
    divisor: f64,
}

impl Logits<'_> {
    /// The gradient of a logit, given the row's elements.
    fn gradient(&self, row: u64, values: &[f64], class: u64) -> f64 {
        let Target::Class(target) = self.valid.target(self.targets, row) else { return 0.0 };
        let g = element(self.dloss, row) / self.divisor;
        if g == 0.0 {
            return 0.0;
        }
        let share = (self.weight.dot(class, values) - element(self.logsumexp, row)).exp();
        (share - if target == class { 1.0 } else { 0.0 }) * g
    }
}

fn compute_backward(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let get = |row| operands.get(row);
    let dweight = get(backward::DWEIGHT).map(Rows);
    let (Some(x), Some(weight), Some(targets), Some(logsumexp), Some(dloss)) = (
        get(backward::X),
        get(backward::WEIGHT),
        get(backward::TARGETS),
        get(backward::LOGSUMEXP),
        get(backward::DLOSS),
    ) else {
        // Without rows dweight is a sum of none.
        return store_rows(valid, dweight, |_, _| Ok(()));
    };
    let divisor = get(backward::DIVISOR).map_or(1.0, |divisor| divisor.load(0));
    let logits = Logits { valid, x: Rows(x), weight: Rows(weight), targets, logsumexp, dloss, divisor };
    let (rows, classes) = (logits.x.count(), logits.weight.count());
    store_rows(valid, get(backward::DX).map(Rows), |row, sums| {
        let values = logits.x.row(row)?;
        for class in 0..classes {
            add(sums, logits.gradient(row, &values, class), &logits.weight.row(class)?);
        }
        Ok(())
    })?;
    store_rows(valid, dweight, |class, sums| {
        for row in 0..rows {
            let values = logits.x.row(row)?;
            add(sums, logits.gradient(row, &values, class), &values);
        }
        Ok(())
    })
}

fn add(sums: &mut [Sum], factor: f64, values: &[f64]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| sum.add(factor * value));
}

/// Writes the rows of a gradient, if there is one: sums, to which `add_up` adds.
fn store_rows(
    valid: &Valid,
    gradient: Option<Rows<'_>>,
    add_up: impl Fn(u64, &mut [Sum]) -> Outcome + Sync,
) -> Outcome {
    let Some(gradient) = gradient else { return Ok(()) };
    threads::try_for_each(gradient.count(), valid.products(), |row| {
        let mut sums = room(gradient.columns())?;
        sums.resize(to_usize(gradient.columns()), Sum::default());
        add_up(row, &mut sums)?;
        for (column, sum) in (0..).zip(&sums) {
            // SAFETY: each row is one task, and outputs address every element once.
            unsafe { gradient.0.store(gradient.at(row, column), sum.total()) };
        }
        Ok(())
    })
}
