//! The reference: the formulas in f64 or i64, any strides, one rounding to the output. A thread takes a line.

use super::scans::Combine;
use super::{Geometry, Scan, Valid, forward};
use crate::backend::cpu::{Operands, Sum, Tensor, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::narrow::signed;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(run).batch_invariant())
}

/// What the values so far are together.
#[derive(Clone, Copy)]
enum State {
    Sum(Sum),
    /// A product, or an extreme and its position.
    Value(f64, u64),
    /// `sum * exp(most)`.
    Exponential(f64, Sum),
}

impl State {
    fn none(combine: Combine) -> Self {
        match combine {
            Combine::Add => Self::Sum(Sum::default()),
            Combine::LogAddExp => Self::Exponential(combine.none(), Sum::default()),
            _ => Self::Value(combine.none(), 0),
        }
    }

    /// With one value more.
    fn with(self, combine: Combine, value: f64, position: u64) -> Self {
        match self {
            Self::Sum(mut sum) => {
                sum.add(value);
                Self::Sum(sum)
            }
            Self::Value(product, _) if combine == Combine::Multiply => Self::Value(product * value, position),
            Self::Value(extreme, _) if combine.is_earlier(extreme, value) => self,
            Self::Value(..) => Self::Value(value, position),
            Self::Exponential(most, mut sum) if value <= most => {
                // Of infinities of one sign the difference is no number.
                sum.add(if value == most { 1.0 } else { (value - most).exp() });
                Self::Exponential(most, sum)
            }
            Self::Exponential(most, sum) => {
                let mut scaled = Sum::default();
                scaled.add(sum.total() * (most - value).exp());
                scaled.add(1.0);
                Self::Exponential(if most.is_nan() { most } else { value }, scaled)
            }
        }
    }

    fn result(self) -> f64 {
        match self {
            Self::Sum(sum) => sum.total(),
            Self::Value(value, _) => value,
            Self::Exponential(most, sum) => most + sum.total().ln(),
        }
    }

    fn position(self) -> u64 {
        if let Self::Value(_, position) = self { position } else { 0 }
    }
}

/// A line of every operand.
struct Line<'l> {
    geometry: &'l Geometry,
    /// y, x and the indices.
    operands: [Option<Tensor<'l>>; 3],
    /// Where the line begins in each.
    starts: [u64; 3],
    is_reverse: bool,
    is_exclusive: bool,
}

impl<'l> Line<'l> {
    /// The positions along the axis, in the order of the scan.
    fn positions(&self) -> impl Iterator<Item = u64> + use<> {
        let (length, is_reverse) = (self.geometry.length, self.is_reverse);
        (0..length).map(move |at| if is_reverse { length - 1 - at } else { at })
    }

    fn offset(&self, operand: usize, position: u64) -> u64 {
        self.starts[operand] + position * self.geometry.steps[operand]
    }

    fn operand(&self, operand: usize) -> Option<(Tensor<'l>, impl Fn(u64) -> u64)> {
        self.operands[operand].map(|tensor| (tensor, move |position| self.offset(operand, position)))
    }

    fn store_index(&self, position: u64, index: u64) {
        if let Some((indices, offset)) = self.operand(2) {
            // SAFETY: each line is of one task, and the output addresses every element once.
            unsafe { indices.store_integer(offset(position), signed(index)) };
        }
    }

    fn floats(&self, combine: Combine) {
        let (Some((y, to)), Some((x, from))) = (self.operand(0), self.operand(1)) else { return };
        let mut state = State::none(combine);
        for position in self.positions() {
            let after = state.with(combine, x.load(from(position)), position);
            let result = if self.is_exclusive { state } else { after }.result();
            // SAFETY: as in `store_index`.
            unsafe { y.store(to(position), result) };
            self.store_index(position, after.position());
            state = after;
        }
    }

    fn integers(&self, combine: Combine) {
        let (Some((y, to)), Some((x, from))) = (self.operand(0), self.operand(1)) else { return };
        let (mut state, mut index) = (combine.none_of(x.desc().dtype()), 0);
        for position in self.positions() {
            let value = x.load_integer(from(position));
            let after = match combine {
                Combine::Add => state.wrapping_add(value),
                Combine::Multiply => state.wrapping_mul(value),
                _ if combine.is_earlier_integer(state, value) => state,
                _ => {
                    index = position;
                    value
                }
            };
            // SAFETY: as in `store_index`.
            unsafe { y.store_integer(to(position), if self.is_exclusive { state } else { after }) };
            self.store_index(position, index);
            state = after;
        }
    }
}

fn run(valid: &Valid, operands: &Operands<'_>) {
    let (geometry, fields) = (&valid.derived, &valid.fields);
    let operands = [forward::Y, forward::X, forward::INDICES].map(|index| operands.get(index));
    let scan: Scan = fields.scan;
    let walk = geometry.lines();
    let lines = walk.elements();
    threads::for_each(lines, lines.saturating_mul(geometry.length), |line| {
        let mut starts = [0; 3];
        for (at, start) in starts.iter_mut().enumerate().take(geometry.others.len()) {
            *start = walk.offset(at, line);
        }
        let line = Line { geometry, operands, starts, is_reverse: fields.reverse, is_exclusive: fields.exclusive };
        match geometry.computing {
            DType::I64 => line.integers(scan.combine()),
            _ => line.floats(scan.combine()),
        }
    });
}
