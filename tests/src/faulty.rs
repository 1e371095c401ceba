//! Planted faults: executors that compute the right answer and then do one thing wrong.
//!
//! They run on an arena as a device would, so that what catches them is the code that judges devices.

use anyhow::Result;
use baracuda_ops::{Access, AnyPlan, TensorDesc};

use crate::arena::{Arena, Place};
use crate::exec::{Executor, OnDevice};
use crate::values::{gather, offsets, scatter};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the control.
    None,
    /// One element past the end of an output is written.
    WritesPastTheEnd,
    /// One element before an output is written.
    WritesBeforeTheStart,
    /// The gap between two rows of a strided output is written.
    WritesBetweenRows,
    /// The last elements of each row are not written, as by a loop over whole vectors.
    SkipsTheTail,
    /// The variance is E[x^2] - mean^2 in f32.
    SubtractsSquares,
    /// A NaN becomes 0.
    SwallowsNan,
    /// The workspace is used one byte beyond its end.
    OverrunsWorkspace,
    /// An operand that its slot says is only read is written.
    WritesAnInput,
    /// An output that its slot says is never read is added to.
    ReadsAnOutput,
    /// What the workspace held before finds its way into an output.
    ReadsWorkspace,
    /// Every output is the same number.
    WritesOneNumber,
    /// Every output is half as much again.
    ScalesOutputs,
    /// What an output should be and 1e-20 more: of no account but beside an exact 0.
    LeaksANumber,
    /// Outputs are rounded as if all of them had the exponent of the largest.
    SharesOneExponent,
    /// The first operand is read as if it were dense.
    IgnoresStrides,
}

/// A plan on the CPU with a fault.
pub struct Faulty<'p> {
    /// The plan.
    pub plan: &'p AnyPlan,
    /// The fault.
    pub fault: Fault,
}

impl Executor for Faulty<'_> {
    fn run(&self, arena: &mut Arena) -> Result<()> {
        let before = arena.clone();
        if self.fault == Fault::IgnoresStrides {
            lay_as_dense(arena);
        }
        OnDevice(self.plan).run(arena)?;
        let outputs: Vec<usize> =
            arena.slots().iter().enumerate().filter(|s| s.1.access != Access::In).map(|s| s.0).collect();
        let slot = arena.slots()[outputs[0]].clone();
        let place = arena.operands[outputs[0]].expect("outputs have a place");
        let size = slot.desc.dtype().size_bytes();
        let beside = |offset: u64| Place { offset, bytes: size, ..place };
        match self.fault {
            Fault::None => {}
            Fault::WritesPastTheEnd => arena.bytes_mut(beside(place.offset + place.bytes)).fill(0),
            Fault::WritesBeforeTheStart => arena.bytes_mut(beside(place.offset - size)).fill(0),
            Fault::WritesBetweenRows => {
                let row = slot.desc.dims()[1] * size;
                arena.bytes_mut(beside(place.offset + row)).fill(0);
            }
            Fault::SkipsTheTail => {
                let cols = slot.desc.dims()[slot.desc.rank() - 1];
                let old = before.bytes(place).to_vec();
                for (i, at) in offsets(&slot.desc).into_iter().enumerate() {
                    if i as u64 % cols >= cols / 4 * 4 {
                        let range = (at * size) as usize..((at + 1) * size) as usize;
                        arena.bytes_mut(place)[range.clone()].copy_from_slice(&old[range]);
                    }
                }
            }
            Fault::SubtractsSquares => subtract_squares(arena),
            Fault::SwallowsNan => each(arena, |v| if v.is_nan() { 0.0 } else { v }),
            Fault::OverrunsWorkspace => {
                let space = arena.workspace.expect("a plan with workspace");
                let past = Place { offset: space.offset + space.bytes, bytes: 1, ..space };
                arena.bytes_mut(past)[0] ^= 1;
            }
            Fault::WritesAnInput => {
                let input = arena.operands[0].expect("inputs have a place");
                arena.bytes_mut(input)[..4].copy_from_slice(&0.25f32.to_le_bytes());
            }
            Fault::ReadsAnOutput => {
                let old = gather(&slot.desc, before.bytes(place));
                let sum: Vec<f64> =
                    gather(&slot.desc, arena.bytes(place)).iter().zip(old).map(|(a, b)| a + b).collect();
                scatter(&slot.desc, &sum, arena.bytes_mut(place));
            }
            Fault::ReadsWorkspace => {
                let space = arena.workspace.expect("a plan with workspace");
                let left = f32::from_le_bytes(before.bytes(space)[..4].try_into().expect("four bytes"));
                each(arena, |v| v + f64::from(left));
            }
            Fault::WritesOneNumber => each(arena, |_| 0.5),
            Fault::ScalesOutputs => each(arena, |v| 1.5 * v),
            Fault::LeaksANumber => each(arena, |v| v + 1e-20),
            Fault::SharesOneExponent => {
                let values = gather(&slot.desc, arena.bytes(place));
                let step = values.iter().fold(0f64, |most, v| most.max(v.abs())) * 2f64.powi(-24);
                each(arena, |v| if step > 0.0 { (v / step).round() * step } else { v });
            }
            Fault::IgnoresStrides => {
                let input = arena.operands[0].expect("inputs have a place");
                arena.bytes_mut(input).copy_from_slice(before.bytes(input));
            }
        }
        Ok(())
    }
}

/// Moves what a reader that takes the first operand for dense would find to where the elements lie.
fn lay_as_dense(arena: &mut Arena) {
    let (desc, place) = (arena.slots()[0].desc, arena.operands[0].expect("inputs have a place"));
    let dense = TensorDesc::contiguous(desc.dtype(), desc.dims()).expect("valid extents");
    let found = gather(&dense, arena.bytes(place));
    scatter(&desc, &found, arena.bytes_mut(place));
}

/// Changes every element of every output.
fn each(arena: &mut Arena, change: impl Fn(f64) -> f64) {
    for i in 0..arena.slots().len() {
        let slot = arena.slots()[i].clone();
        let (Some(place), false) = (arena.operands[i], slot.access == Access::In) else { continue };
        let values: Vec<f64> = gather(&slot.desc, arena.bytes(place)).into_iter().map(&change).collect();
        scatter(&slot.desc, &values, arena.bytes_mut(place));
    }
}

/// LayerNorm without parameters, the wrong way.
fn subtract_squares(arena: &mut Arena) {
    let (x, y) = (0, arena.slots().iter().position(|s| s.name == "y").expect("a norm has y"));
    let desc = arena.slots()[x].desc;
    let values = gather(&desc, arena.bytes(arena.operands[x].expect("x has a place")));
    let mut result = Vec::new();
    for row in values.chunks(desc.dims()[1] as usize) {
        let n = row.len() as f32;
        let (mut sum, mut squares) = (0f32, 0f32);
        for &v in row {
            sum += v as f32;
            squares += (v * v) as f32;
        }
        let mean = sum / n;
        let rstd = 1.0 / ((squares / n - mean * mean).max(0.0) + 1e-5).sqrt();
        result.extend(row.iter().map(|&v| f64::from((v as f32 - mean) * rstd)));
    }
    let (desc, place) = (arena.slots()[y].desc, arena.operands[y].expect("y has a place"));
    scatter(&desc, &result, arena.bytes_mut(place));
}
