//! The CUDA kernels: the forms in their order of preference, and the parameters, preparation and launch of each.
//!
//! Rows that registers hold, else rows that the shared memory of a cluster holds; lines side by side that registers hold, else, backward, those
//! that registers and shared memory hold; else `split`, which takes everything. A form takes what it takes whether it is asked among others or by
//! its name; `choice` has the limits and the numbers.

mod choice;
mod masked;

use std::fmt::Debug;

use baracuda_ops_sys as sys;

use choice::{ChannelsResident, Lines, RowsResident, RowsShared, Split};

use super::geometry::{Geometry, Tensors, check_channels, check_rows};
use super::masked::Lines as MaskedLines;
pub(super) use masked::masked;

use super::{BackwardFields, ForwardFields, Valid, backward, check_unmasked, forward};
use crate::backend::cuda::{Launch, Numbers, Props, c_dtype};
use crate::backend::{Device, Located};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls::{self, calls};
use crate::ops::rows::c_rows;
use crate::ops::samples::are_packed;
use crate::ops::valid::Fields;
use crate::options::WorkspaceReq;

/// The C functions of a form with the choice `C` and the operands `O`.
type Calls<C, O> = calls::Calls<sys::bops_softmax_specialisation, sys::bops_softmax_params, C, O>;

/// Those of the form of biases and masks.
type MaskedCalls<O> =
    calls::Calls<sys::bops_softmax_specialisation, sys::bops_softmax_masked_params, sys::bops_softmax_masked_choice, O>;

/// What differs between the two passes.
pub(super) trait Pass: Fields<Derived = Option<MaskedLines>> {
    type Operands: 'static;
    const IS_BACKWARD: bool;
    const ROWS_RESIDENT: Calls<RowsResident, Self::Operands>;
    const ROWS_SHARED: Calls<RowsShared, Self::Operands>;
    const CHANNELS_RESIDENT: Calls<ChannelsResident, Self::Operands>;
    const SPLIT: Calls<Split, Self::Operands>;
    /// The form of biases and masks.
    const MASKED: MaskedCalls<Self::Operands>;
    fn along(&self) -> Along;
    fn operands(located: &Located<'_>) -> Self::Operands;
}

/// What a pass computes along which axis.
pub(super) struct Along {
    axis: usize,
    is_log: bool,
    scale: f64,
    /// Whether kernels of masks alone serve.
    is_masked: bool,
}

impl Pass for ForwardFields {
    type Operands = sys::bops_softmax_operands;
    const IS_BACKWARD: bool = false;
    const ROWS_RESIDENT: Calls<RowsResident, Self::Operands> = calls!(bops_softmax_rows_resident);
    const ROWS_SHARED: Calls<RowsShared, Self::Operands> = calls!(bops_softmax_rows_shared);
    const CHANNELS_RESIDENT: Calls<ChannelsResident, Self::Operands> = calls!(bops_softmax_channels_resident);
    const SPLIT: Calls<Split, Self::Operands> = calls!(bops_softmax_split);
    const MASKED: MaskedCalls<Self::Operands> = calls!(bops_softmax_masked);

    fn along(&self) -> Along {
        Along { axis: self.axis, is_log: self.log, scale: self.scale.get(), is_masked: self.is_masked() }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        forward::memory!(pointers sys::bops_softmax_operands, located)
    }
}

impl Pass for BackwardFields {
    type Operands = sys::bops_softmax_backward_operands;
    const IS_BACKWARD: bool = true;
    const ROWS_RESIDENT: Calls<RowsResident, Self::Operands> = calls!(bops_softmax_backward_rows_resident);
    const ROWS_SHARED: Calls<RowsShared, Self::Operands> = calls!(bops_softmax_backward_rows_shared);
    const CHANNELS_RESIDENT: Calls<ChannelsResident, Self::Operands> = calls!(bops_softmax_backward_channels_resident);
    const SPLIT: Calls<Split, Self::Operands> = calls!(bops_softmax_backward_split);
    const MASKED: MaskedCalls<Self::Operands> = calls!(bops_softmax_backward_masked);

    fn along(&self) -> Along {
        Along { axis: self.axis, is_log: self.log, scale: self.scale.get(), is_masked: self.is_masked() }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        backward::memory!(pointers sys::bops_softmax_backward_operands, located)
    }
}

pub(super) fn rows_resident<'d, F: Pass>(softmax: &'d Valid<F>, props: &Props, ask: Ask) -> Accepted<'d> {
    check_unmasked(softmax.fields.along().is_masked)?;
    check_rows(&softmax.slots, softmax.fields.along().axis)?;
    let candidate =
        Task::new(softmax, ask)?.candidate(F::ROWS_RESIDENT, |lines| choice::rows_resident(lines, props))?;
    Ok(candidate.batch_invariant_if(promises(softmax, ask)))
}

pub(super) fn rows_shared<'d, F: Pass>(softmax: &'d Valid<F>, props: &Props, ask: Ask) -> Accepted<'d> {
    check_unmasked(softmax.fields.along().is_masked)?;
    check_rows(&softmax.slots, softmax.fields.along().axis)?;
    let candidate = Task::new(softmax, ask)?.candidate(F::ROWS_SHARED, |lines| choice::rows_shared(lines, props))?;
    Ok(candidate.batch_invariant_if(promises(softmax, ask)))
}

/// Whether a form of rows, whose choice follows from the axis and `samples`, chooses the same for any number of rows: where rows follow one another, every one
/// of them allows the widest access that the axis and the promised alignment do.
fn promises<F: Pass>(softmax: &Valid<F>, ask: Ask) -> bool {
    ask.is_invariant() && softmax.slots.iter().all(|slot| are_packed(&slot.desc, softmax.fields.along().axis))
}

pub(super) fn channels_resident<'d, F: Pass>(softmax: &'d Valid<F>, props: &Props, ask: Ask) -> Accepted<'d> {
    check_unmasked(softmax.fields.along().is_masked)?;
    check_channels(&softmax.slots, softmax.fields.along().axis)?;
    Task::new(softmax, ask)?.candidate(F::CHANNELS_RESIDENT, |lines| choice::channels_resident(lines, props))
}

/// Backward alone: y, and a part of dy, in shared memory.
pub(super) fn channels_shared<'d>(softmax: &'d Valid<BackwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    check_unmasked(softmax.fields.along().is_masked)?;
    check_channels(&softmax.slots, softmax.fields.axis)?;
    Task::new(softmax, ask)?
        .candidate(calls!(bops_softmax_backward_channels_shared), |lines| choice::channels_shared(lines, props))
}

pub(super) fn split<'d, F: Pass>(softmax: &'d Valid<F>, _: &Props, ask: Ask) -> Accepted<'d> {
    check_unmasked(softmax.fields.along().is_masked)?;
    let task = Task::new(softmax, ask)?;
    let (choice, workspace_bytes) = choice::split(&task.lines)?;
    let candidate = task.candidate(F::SPLIT, |_| Ok(choice))?;
    Ok(match candidate.launches {
        0 => candidate,
        _ => Candidate { workspace: WorkspaceReq::new(workspace_bytes, 16), launches: 3, ..candidate },
    })
}

/// The lines along an axis as forms are told of them; without an element, no block of them.
struct Task<O> {
    lines: Lines,
    of: sys::bops_softmax_specialisation,
    params: sys::bops_softmax_params,
    /// The operands of a run.
    operands: fn(&Located<'_>) -> O,
}

impl<O: 'static> Task<O> {
    fn new<F: Pass<Operands = O>>(softmax: &Valid<F>, ask: Ask) -> Result<Self, Reason> {
        let Along { axis, is_log, scale, .. } = softmax.fields.along();
        let tensors = Tensors::of(&softmax.slots)?;
        let Geometry { outer, dim, inner, extents, strides, steps, vector_bytes } = tensors.geometry(axis)?;
        let ([extent1, extent2], strides) = c_rows(outer, extents, &strides);
        let steps = std::array::from_fn(|tensor| steps.get(tensor).copied().unwrap_or(0));
        let (dtype, other) = (tensors.dtype, tensors.other);
        let [element_bytes, accumulator_bytes] = [dtype, dtype.accumulator()].map(|dtype| word(dtype.size_bytes()));
        let (is_widening, vector_bytes) = (other != dtype, word(vector_bytes));
        let (dtype, x_dtype, is_backward) = (c_dtype(dtype)?, c_dtype(other)?, F::IS_BACKWARD);
        Ok(Self {
            lines: Lines {
                is_backward,
                is_widening,
                outer,
                samples: ask.samples(outer),
                dim,
                inner,
                element_bytes,
                accumulator_bytes,
                vector_bytes,
            },
            of: sys::bops_softmax_specialisation { dtype, x_dtype, is_log: u32::from(is_log) },
            params: sys::bops_softmax_params { outer, dim, inner, extent1, extent2, strides, steps, scale },
            operands: F::operands,
        })
    }

    /// Serves in one launch without workspace; in no launch if there are no elements.
    fn candidate<'d, C: Numbers + Debug>(
        self,
        calls: Calls<C, O>,
        choose: impl FnOnce(&Lines) -> Result<C, String>,
    ) -> Accepted<'d> {
        let Self { lines, of, params, operands } = self;
        if lines.outer == 0 {
            let build = move |_: &Device| Ok(Launch::new(calls.name, |_, _| 0).into());
            return Ok(Candidate { launches: 0, ..Candidate::new((), build) });
        }
        let choice = choose(&lines)?;
        // Lines that fill every thread have kernels of their own.
        let extents = [lines.dim, lines.outer, lines.inner];
        Ok(calls.candidate(true, (of, params, choice, extents), operands))
    }
}
