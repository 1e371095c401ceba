//! Activations on the CPU, block by block, in f32.

use super::Valid;
use crate::backend::cpu::{Operands, Tensor, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::activation::Activation;
use crate::ops::pointwise::map::fast::{BLOCK, Widest, load, store, widest};
use crate::ops::pointwise::program::activations::{Saved, activate, gradient};
use crate::ops::valid::Direction;
use crate::ops::walk::Walk;

/// Positions of a task. With fewer, handing tasks to threads takes a larger share of the time; with more, a short tensor keeps fewer threads busy.
const PIECE: u64 = 16 * 1024;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Reason::unless(valid.fields.x.dtype() != DType::F64, || "it computes in f32; the reference computes f64")?;
    Ok(Candidate::on_cpu(move || {
        let work = Work::new(valid);
        move |operands: &Operands<'_>| work.run(operands)
    })
    .batch_invariant())
}

/// What computes every element on its own.
struct Work {
    activation: Activation,
    is_forward: bool,
    from_y: bool,
    /// The result, what each element is computed from, and what backward computes the derivative from, as the walk has them.
    operands: [usize; 3],
    walk: Walk,
}

impl Work {
    fn new(valid: &Valid) -> Self {
        let [input, saved, output] = valid.operands();
        let operands = [output, input, saved];
        let desc = |operand| valid.slots.at(operand).map_or(valid.fields.x, |slot| slot.desc);
        Self {
            activation: valid.fields.activation,
            is_forward: valid.op.kind == Direction::Forward,
            from_y: valid.fields.from_y,
            operands,
            walk: Walk::new(&operands.map(desc)),
        }
    }

    fn run(&self, operands: &Operands<'_>) {
        let [output, input, saved] = self.operands.map(|operand| operands.get(operand));
        let (Some(output), Some(input)) = (output, input) else { return };
        let elements = self.walk.elements();
        threads::for_each(elements.div_ceil(PIECE), elements, |piece| {
            let (first, end) = (piece * PIECE, elements.min((piece + 1) * PIECE));
            widest(Task { work: self, output, input, saved, first, end });
        });
    }
}

/// Some positions of the walk.
struct Task<'t> {
    work: &'t Work,
    output: Tensor<'t>,
    input: Tensor<'t>,
    saved: Option<Tensor<'t>>,
    first: u64,
    end: u64,
}

impl Widest for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { work: Work { activation, is_forward, from_y, walk, .. }, output, input, saved, first, end } = self;
        let mut blocks = [[0.0f32; BLOCK]; 2];
        let [values, of_saved] = &mut blocks;
        let mut at = first;
        while at < end {
            let block = at..end.min(at + BLOCK as u64);
            let length = to_usize(block.end - block.start);
            let (values, of_saved) = (&mut values[..length], &mut of_saved[..length]);
            load(&input, walk, 1, block.clone(), values);
            if *is_forward {
                activate(*activation, values);
            } else if let Some(saved) = &saved {
                load(saved, walk, 2, block.clone(), of_saved);
                let saved = if *from_y { Saved::Output(of_saved) } else { Saved::Input(of_saved) };
                gradient(*activation, saved, values);
            }
            store(&output, walk, 0, block.clone(), values);
            at = block.end;
        }
    }
}
