//! The CUDA kernels: which serves a layout, and how what is reduced to an output is divided over threads and pieces.
//!
//! The division follows from the extents that are reduced and from their layout, never from the number of outputs, so that an output has the same bits
//! whatever else there is beside it.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::reduction::{Combine, Each, Finish};
use super::{Geometry, OUTPUT, Valid};
use crate::backend::cuda::{Launch, Props, c_dtype, c_element, number_of};
use crate::backend::{Device, Located, Location};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Ask, Built, Candidate, Exec};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map;
use crate::ops::pointwise::map::cuda::{Code, Lying, bits, has_integrals};
use crate::options::WorkspaceReq;
use crate::tensor::TensorDesc;

/// Threads of a block, columns of accesses in a block, and accesses of a thread that are in flight at once, as in the kernels.
const THREADS: u64 = sys::BOPS_REDUCE_THREADS as u64;
const ACROSS: u64 = sys::BOPS_REDUCE_ACROSS as u64;
const BATCH: u64 = sys::BOPS_REDUCE_BATCH as u64;
/// The fewest threads of a team: accesses of a warp lie in runs of this many.
const FEWEST: u64 = 8;
/// Outputs that a team takes at once, where each has few accesses.
const ROWS: u64 = 4;
/// Batches of a piece: with fewer, large tensors have more parts than need be; with more, few outputs keep fewer SMs busy.
const BATCHES: u64 = 4;
/// Values of a thread in a piece of a program.
const ROUNDS: u64 = 16;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
const EXTENTS: usize = sys::BOPS_POINTWISE_EXTENTS as usize;

const fn c_combine(combine: Combine) -> sys::bops_combine {
    match combine {
        Combine::Add => sys::BOPS_COMBINE_ADD,
        Combine::Multiply => sys::BOPS_COMBINE_MULTIPLY,
        Combine::Greatest | Combine::Least => sys::BOPS_COMBINE_GREATEST,
        Combine::Exponentials => sys::BOPS_COMBINE_EXPONENTIALS,
        Combine::Moments => sys::BOPS_COMBINE_MOMENTS,
        Combine::FirstGreatest | Combine::FirstLeast => sys::BOPS_COMBINE_POSITION,
        Combine::Count => sys::BOPS_COMBINE_COUNT,
    }
}

const fn c_each(each: Each, combine: Combine) -> sys::bops_each {
    match (each, combine) {
        (_, Combine::Least | Combine::FirstLeast) => sys::BOPS_EACH_NEGATIVE,
        (Each::Value, _) => sys::BOPS_EACH_VALUE,
        (Each::Magnitude, _) => sys::BOPS_EACH_MAGNITUDE,
        (Each::Square, _) => sys::BOPS_EACH_SQUARE,
        (Each::IsNonzero, _) => sys::BOPS_EACH_NONZERO,
        (Each::IsZero, _) => sys::BOPS_EACH_ZERO,
    }
}

const fn c_finish(finish: Finish, combine: Combine) -> sys::bops_finish {
    match (finish, combine) {
        (_, Combine::Least) => sys::BOPS_FINISH_NEGATIVE,
        (Finish::Total, _) => sys::BOPS_FINISH_TOTAL,
        (Finish::Mean, _) => sys::BOPS_FINISH_MEAN,
        (Finish::Root, _) => sys::BOPS_FINISH_ROOT,
        (Finish::RootOfMean, _) => sys::BOPS_FINISH_ROOT_OF_MEAN,
        (Finish::IsNone, _) => sys::BOPS_FINISH_NONE,
    }
}

/// Bytes of what is held of the values of a piece, as the kernels have it. `values`: bytes of one.
const fn held_bytes(combine: sys::bops_combine, values: u64) -> u64 {
    match combine {
        sys::BOPS_COMBINE_EXPONENTIALS => 2 * values,
        sys::BOPS_COMBINE_MOMENTS => 3 * values,
        sys::BOPS_COMBINE_COUNT => 8,
        sys::BOPS_COMBINE_POSITION => 16,
        sys::BOPS_COMBINE_ANY if values == 4 => 24,
        sys::BOPS_COMBINE_ANY => 32,
        _ => values,
    }
}

/// A reduction as kernels are told it.
struct Task<'v> {
    geometry: &'v Geometry,
    /// The output and the inputs along the outputs, and the inputs along what is reduced.
    kept: Lying,
    reduced: Lying,
    outputs: u64,
    combine: sys::bops_combine,
    each: sys::bops_each,
    finish: sys::bops_finish,
}

impl<'v> Task<'v> {
    fn new(valid: &'v Valid) -> Self {
        let geometry = &valid.derived;
        let row = geometry.row;
        let out = valid.slots.always(OUTPUT).desc;
        let operands = std::iter::once(out).chain(geometry.inputs.iter().copied()).collect();
        Self {
            geometry,
            kept: Lying { operands, walk: geometry.kept() },
            reduced: Lying { operands: geometry.inputs.clone(), walk: geometry.reduced() },
            outputs: Geometry::outputs(&valid.slots),
            combine: c_combine(row.combine),
            each: c_each(row.each, row.combine),
            finish: c_finish(row.finish, row.combine),
        }
    }

    /// The input, if it is reduced as it is.
    fn plain(&self) -> Result<DType, Reason> {
        let count = self.geometry.program.instructions().len();
        Reason::unless(self.geometry.program.is_identity(), || {
            format!(
                "it reduces elements of one input, the program has {count} instructions of {}",
                self.geometry.inputs.len()
            )
        })?;
        let dtype = self.geometry.inputs[0].dtype();
        Reason::unless(dtype.is_computed(), || {
            format!("it reduces elements of f64, f32, f16 and bf16, not of {dtype}")
        })?;
        Ok(dtype)
    }

    /// Whether elements of an input along the innermost of these extents are neighbours in whole accesses of `width`, which all other strides step over.
    fn has_neighbours(&self, inner: &Lying, outer: &Lying, [at, at_outer]: [usize; 2], width: u64) -> bool {
        let input = &self.geometry.inputs[0];
        let strides = &inner.walk.strides[at];
        let others = strides.iter().rev().skip(1).chain(&outer.walk.strides[at_outer]);
        strides.last() == Some(&1)
            && inner.walk.dims.last().is_some_and(|dim| dim.is_multiple_of(width))
            && input.align_bytes() >= width * input.dtype().size_bytes()
            && others.into_iter().all(|stride| stride.is_multiple_of(width))
    }

    /// Whether what is reduced of each input is one element, or elements that are neighbours in whole accesses of `width`, which the strides along the
    /// outputs step over.
    fn are_lines(&self, width: u64) -> bool {
        let [count] = self.reduced.walk.dims[..] else { return false };
        let is_line = |(at, input): (usize, &TensorDesc)| match self.reduced.walk.strides[at][0] {
            0 => true,
            1 => {
                let outer = &self.kept.walk.strides[1 + at];
                input.align_bytes() >= (width * input.dtype().size_bytes()).min(16)
                    && outer.iter().all(|stride| stride.is_multiple_of(width))
            }
            _ => false,
        };
        count.is_multiple_of(width) && self.geometry.inputs.iter().enumerate().all(is_line)
    }

    /// `pieces`: of an output.
    #[expect(clippy::cast_precision_loss, reason = "a count is rounded to the computing type, in which it divides")]
    fn results(&self, pieces: u64) -> Result<sys::bops_reduce_results, Reason> {
        let threads = pieces.div_ceil(4).next_power_of_two().clamp(1, THREADS);
        Self::blocks(self.outputs.div_ceil(THREADS / threads))?;
        Ok(sys::bops_reduce_results {
            kept: self.kept.c_walk(1)?,
            out: self.kept.c_walked(0, 1)?,
            outputs: self.outputs,
            pieces,
            count: self.geometry.divisor as f64,
            threads: word(threads),
            finish: self.finish,
            combine: self.combine,
        })
    }

    fn blocks(count: u64) -> Result<u64, Reason> {
        Reason::unless(count <= MOST_BLOCKS, || {
            format!("it needs {count} blocks, a launch has at most {MOST_BLOCKS}")
        })?;
        Ok(count)
    }

    /// A candidate with the workspace and the launches that the pieces need.
    fn with_pieces<'d>(&self, candidate: Candidate<'d>, pieces: u64, combine: sys::bops_combine) -> Candidate<'d> {
        if self.outputs == 0 || pieces == 1 {
            return candidate;
        }
        let values = if self.geometry.computing == DType::F32 { 4 } else { 8 };
        let bytes = pieces.saturating_mul(self.outputs).saturating_mul(held_bytes(combine, values));
        let workspace = if pieces == 0 { WorkspaceReq::NONE } else { WorkspaceReq::new(bytes, 16) };
        Candidate { workspace, launches: if pieces == 0 { 1 } else { 2 }, ..candidate }
    }
}

/// A kernel of reductions.
type Form = fn(&Valid, &Props, Ask) -> Accepted<'static>;

/// Alignment of what is in the workspace, which accesses to vectors need.
pub(super) const ALIGN: u64 = 256;

/// A kernel's answer with what is to become of the results: they go to the workspace, in the computing type, and a program of each element makes the output
/// of them.
pub(super) fn with_finish(form: Form, valid: &Valid, props: &Props, ask: Ask) -> Accepted<'static> {
    valid.derived.one_set()?;
    let Some(finish) = &valid.derived.finish else { return form(valid, props, ask) };
    let refused = |error: crate::error::Error| Reason::from(error.to_string());
    let mut unfinished = valid.fields.unfinished(valid.derived.computing).map_err(refused)?;
    // Of what several sets gave the fields do not tell it.
    (unfinished.derived.row, unfinished.derived.divisor) = (valid.derived.row, valid.derived.divisor);
    let results = unfinished.slots.always(OUTPUT).desc;
    let out = valid.slots.always(OUTPUT).desc;
    let last = map::of_one(finish.clone(), results, out).map_err(refused)?;
    let first = form(&unfinished, props, ask)?;
    let last = map::cuda::function(&last, props, ask).or_else(|_| map::cuda::program(&last, props, ask))?;
    let scratch = results.span_bytes().next_multiple_of(ALIGN);
    let bytes = scratch.saturating_add(first.workspace.bytes);
    let workspace = if out.is_empty() { WorkspaceReq::NONE } else { WorkspaceReq::new(bytes, ALIGN) };
    let build = move |device: &Device| -> Result<Built, BuildError> {
        let (Built(Exec::Cuda(first)), Built(Exec::Cuda(last))) = (first.build.on(device)?, last.build.on(device)?)
        else {
            return Err(BuildError::Refused("it runs on CUDA".into()));
        };
        let call = first.call;
        let run = move |located: &Located<'_>, stream: *mut c_void| {
            let start = located.workspace.start;
            let place = |start, end| Location { start, end, ..Location::default() };
            let results = place(start, start + scratch);
            let mut of_first = Located { operands: located.operands, ..Located::default() };
            (of_first.operands[OUTPUT], of_first.workspace) = (results, place(start + scratch, located.workspace.end));
            let mut of_last = Located::default();
            (of_last.operands[0], of_last.operands[map::FIRST_OUTPUT]) = (results, located.operands[OUTPUT]);
            match (first.launch)(&of_first, stream) {
                0 => (last.launch)(&of_last, stream),
                status => status,
            }
        };
        Ok(Launch::new(call, run).into())
    };
    Ok(Candidate {
        workspace,
        launches: first.launches + last.launches,
        choice: first.choice,
        ..Candidate::new((), build)
    })
}

pub(super) fn rows(valid: &Valid, props: &Props, ask: Ask) -> Accepted<'static> {
    with_finish(along_rows, valid, props, ask)
}

pub(super) fn columns(valid: &Valid, props: &Props, ask: Ask) -> Accepted<'static> {
    with_finish(along_columns, valid, props, ask)
}

pub(super) fn lines(valid: &Valid, props: &Props, ask: Ask) -> Accepted<'static> {
    with_finish(of_lines, valid, props, ask)
}

pub(super) fn program(valid: &Valid, props: &Props, ask: Ask) -> Accepted<'static> {
    with_finish(of_program, valid, props, ask)
}

/// Elements of an access where they lie side by side.
const fn full_access(dtype: DType) -> u64 {
    match dtype {
        DType::F64 => 1,
        _ => 16 / dtype.size_bytes(),
    }
}

/// Along extents in which elements are neighbours.
pub(super) fn along_rows(valid: &Valid, _: &Props, ask: Ask) -> Accepted<'static> {
    let task = Task::new(valid);
    let dtype = task.plain()?;
    ask.leave_if(has_better_columns(&task), "elements are nearer to each other along an extent that stays")?;
    let full = full_access(dtype);
    let width = if task.has_neighbours(&task.reduced, &task.kept, [0, 1], full) { full } else { 1 };
    let accesses = task.geometry.count / width;
    let threads = accesses.div_ceil(BATCH).next_power_of_two().clamp(FEWEST, THREADS).min(accesses.next_power_of_two());
    let pieces = accesses.div_ceil(threads * BATCH * BATCHES);
    // Sums and greatest elements have kernels for one extent, also for several outputs of a team.
    let has_lines = [sys::BOPS_COMBINE_ADD, sys::BOPS_COMBINE_GREATEST].contains(&task.combine);
    let is_line = has_lines && width > 1 && task.reduced.walk.dims.len() == 1;
    let is_short = is_line && accesses <= 2 * threads && pieces == 1;
    let rows = if is_short { ROWS } else { 1 };
    let batches = if rows > 1 { 1 } else { accesses.div_ceil(threads * BATCH).min(BATCHES) };
    let teams = task.outputs.div_ceil(rows).saturating_mul(pieces);
    let params = sys::bops_reduce_rows_params {
        results: task.results(pieces)?,
        reduced: task.reduced.c_walk(width)?,
        in_: task.reduced.c_walked(0, width)?,
        in_kept: task.kept.c_walked(1, 1)?,
        accesses,
        blocks: Task::blocks(teams.div_ceil(THREADS / threads))?,
        threads: word(threads),
        batches: word(batches),
        each: task.each,
    };
    let choice = sys::bops_reduce_choice {
        combine: task.combine,
        vec_bytes: word(width * dtype.size_bytes()),
        extents: if is_line { 1 } else { word(EXTENTS as u64) },
        rows: word(rows),
    };
    let kernels = (c_dtype(dtype)?, params, choice, pieces.min(2));
    let candidate = calls!(bops_reduce_rows).candidate(task.outputs > 0, kernels, |located| {
        sys::bops_reduce_operands { in_: located.pointer(0).cast_const(), out: located.pointer(OUTPUT) }
    });
    let candidate = candidate.batch_invariant_if(valid.has_packed_samples());
    Ok(task.with_pieces(candidate, pieces, choice.combine))
}

/// Whether elements of the largest input are nearer to each other along an extent that stays than along those that are reduced.
fn has_better_columns(task: &Task<'_>) -> bool {
    let most = task.geometry.largest();
    let nearest = |strides: &[u64]| strides.last().copied().filter(|&stride| stride > 0);
    match (nearest(&task.kept.walk.strides[1 + most]), nearest(&task.reduced.walk.strides[most])) {
        (Some(of_kept), Some(of_reduced)) => of_kept < of_reduced,
        (of_kept, _) => of_kept.is_some(),
    }
}

/// Across an extent that stays, in which elements are neighbours.
fn along_columns(valid: &Valid, _: &Props, _: Ask) -> Accepted<'static> {
    let task = Task::new(valid);
    let dtype = task.plain()?;
    let full = full_access(dtype);
    let width = if task.has_neighbours(&task.kept, &task.reduced, [1, 0], full) { full } else { 1 };
    let items = task.geometry.count;
    let deep = items.div_ceil(BATCH).next_power_of_two().clamp(1, THREADS / ACROSS);
    let pieces = items.div_ceil(deep * BATCH * BATCHES);
    let groups = task.outputs.div_ceil(width * ACROSS);
    Task::blocks(groups.saturating_mul(pieces))?;
    let params = sys::bops_reduce_columns_params {
        results: task.results(pieces)?,
        kept: task.kept.c_walk(width)?,
        reduced: task.reduced.c_walk(1)?,
        in_: task.reduced.c_walked(0, 1)?,
        in_kept: task.kept.c_walked(1, width)?,
        out: task.kept.c_walked(0, width)?,
        items,
        groups,
        out_step: task.kept.walk.strides[0].last().copied().unwrap_or_default(),
        deep: word(deep),
        batches: word(items.div_ceil(deep * BATCH).min(BATCHES)),
        each: task.each,
    };
    let choice = sys::bops_reduce_choice {
        combine: task.combine,
        vec_bytes: word(width * dtype.size_bytes()),
        extents: word(EXTENTS as u64),
        rows: 1,
    };
    let kernels = (c_dtype(dtype)?, params, choice, pieces.min(2));
    let candidate = calls!(bops_reduce_columns).candidate(task.outputs > 0, kernels, |located| {
        sys::bops_reduce_operands { in_: located.pointer(0).cast_const(), out: located.pointer(OUTPUT) }
    });
    let candidate = candidate.batch_invariant_if(valid.has_packed_columns());
    Ok(task.with_pieces(candidate, pieces, choice.combine))
}

/// Sums of what programs make of lines, in which elements of every input are neighbours or one is repeated.
pub(super) fn of_lines(valid: &Valid, _: &Props, _: Ask) -> Accepted<'static> {
    let task = Task::new(valid);
    Reason::unless(
        task.geometry.computing == DType::F32 && task.combine == sys::BOPS_COMBINE_ADD,
        || "it adds what is computed in f32, the program or the reduction is another one",
    )?;
    let code = Code::new(&task.geometry.program, |number| bits(DType::F32, number));
    Reason::unless(code.slots <= 8, || format!("it holds 8 values at once, the program has {}", code.slots))?;
    Reason::unless(
        !has_integrals(&task.geometry.program),
        || "it holds values in registers, of which functions of the program leave none; reduce_program does not",
    )?;
    let dtype = task.reduced.dtype().filter(|dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16));
    let uniform = dtype.filter(|dtype| code.slots <= 4 && task.are_lines(16 / dtype.size_bytes()));
    let width = 16 / uniform.unwrap_or(DType::F32).size_bytes();
    Reason::unless(uniform.is_some() || task.are_lines(width), || {
        format!(
            "what is reduced of an input is one element, or elements that are neighbours in whole accesses of {width}"
        )
    })?;
    let accesses = task.geometry.count / width;
    let threads = accesses.div_ceil(4).next_power_of_two().clamp(1, THREADS);
    let rounds = accesses.div_ceil(threads).next_multiple_of(4).min(ROUNDS);
    let pieces = accesses.div_ceil(threads * ROUNDS);
    let teams = task.outputs.saturating_mul(pieces);
    let inputs = code.inputs.len();
    let mut params = sys::bops_reduce_lines_params {
        results: task.results(pieces)?,
        accesses,
        blocks: Task::blocks(teams.div_ceil(THREADS / threads))?,
        threads: word(threads),
        rounds: word(rounds),
        each: task.each,
        inputs: word(inputs as u64),
        instructions: word(code.instructions.len() as u64),
        result: code.results[0],
        ..Default::default()
    };
    params.instruction[..code.instructions.len()].copy_from_slice(&code.instructions);
    params.literal[..code.literals.len()].copy_from_slice(&code.literals);
    for (to, &input) in params.input.iter_mut().zip(&code.inputs) {
        *to = task.kept.c_walked(1 + input, 1)?;
        to.is_repeated = u32::from(task.reduced.walk.strides[input].last().is_none_or(|&stride| stride == 0));
    }
    let choice = sys::bops_reduce_lines_choice {
        dtype: c_element(uniform.unwrap_or(DType::F32)),
        is_uniform: uniform.is_some().into(),
        slots: if uniform.is_some() { 4 } else { 8 },
    };
    // Some programs have kernels of their own.
    let kernels = (task.combine, params, choice, (pieces.min(2), number_of(&(params.inputs, params.instruction))));
    let candidate = calls!(bops_reduce_lines).candidate(task.outputs > 0, kernels, move |located| {
        let mut operands = sys::bops_reduce_program_operands { out: located.pointer(OUTPUT), ..Default::default() };
        for (to, &input) in operands.input.iter_mut().zip(&code.inputs) {
            *to = located.pointer(input).cast_const();
        }
        operands
    });
    Ok(task.with_pieces(candidate, pieces, sys::BOPS_COMBINE_ADD))
}

/// Any program and any layout.
pub(super) fn of_program(valid: &Valid, _: &Props, _: Ask) -> Accepted<'static> {
    let task = Task::new(valid);
    let computing = task.geometry.computing;
    let code = Code::new(&task.geometry.program, |number| bits(computing, number));
    let items = task.geometry.count;
    let threads = items.div_ceil(4).next_power_of_two().clamp(1, THREADS);
    // Neighbouring threads share lines of memory where they have neighbouring outputs.
    let is_columns = has_better_columns(&task);
    let threads = if is_columns { threads.min(THREADS / ACROSS) } else { threads };
    let pieces = items.div_ceil(threads * ROUNDS);
    let groups = task.outputs.div_ceil(THREADS / threads);
    Task::blocks(groups.saturating_mul(pieces))?;
    let inputs = code.inputs.len();
    let mut params = sys::bops_reduce_program_params {
        results: task.results(pieces)?,
        reduced: task.reduced.c_walk(1)?,
        items,
        groups,
        threads: word(threads),
        rounds: word(items.div_ceil(threads).min(ROUNDS)),
        is_columns: is_columns.into(),
        kept_extents: word(task.kept.walk.dims.len() as u64),
        each: task.each,
        inputs: word(inputs as u64),
        instructions: word(code.instructions.len() as u64),
        result: code.results[0],
        ..Default::default()
    };
    params.instruction[..code.instructions.len()].copy_from_slice(&code.instructions);
    params.literal[..code.literals.len()].copy_from_slice(&code.literals);
    for (to, &input) in params.input.iter_mut().zip(&code.inputs) {
        let (of_kept, of_reduced) = (task.kept.c_walked(1 + input, 1)?, task.reduced.c_walked(input, 1)?);
        *to = of_kept;
        let kept = task.kept.walk.dims.len();
        to.strides[kept..].copy_from_slice(&of_reduced.strides[..EXTENTS - kept]);
        (to.is_repeated, to.is_dense) = (0, 0);
    }
    let slots = if code.slots <= 8 && !has_integrals(&task.geometry.program) { 8 } else { 0 };
    let has_own = computing == DType::F32 && task.combine == sys::BOPS_COMBINE_ADD && slots == 8;
    let combine = if has_own { task.combine } else { sys::BOPS_COMBINE_ANY };
    let choice = sys::bops_reduce_program_choice { combine, slots };
    let kernels = (c_element(computing), params, choice, pieces.min(2));
    let candidate = calls!(bops_reduce_program).candidate(task.outputs > 0, kernels, move |located| {
        let mut operands = sys::bops_reduce_program_operands { out: located.pointer(OUTPUT), ..Default::default() };
        for (to, &input) in operands.input.iter_mut().zip(&code.inputs) {
            *to = located.pointer(input).cast_const();
        }
        operands
    });
    Ok(task.with_pieces(candidate, pieces, choice.combine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::reduce::Reduction;

    #[test]
    fn reductions_have_words_at_the_abi() {
        for reduction in Reduction::ALL {
            let row = reduction.row();
            let is_least = row.combine == Combine::Least;
            let is_negative = is_least || row.combine == Combine::FirstLeast;
            assert_eq!(c_each(row.each, row.combine) == sys::BOPS_EACH_NEGATIVE, is_negative, "{reduction:?}");
            assert_eq!(c_finish(row.finish, row.combine) == sys::BOPS_FINISH_NEGATIVE, is_least, "{reduction:?}");
        }
    }
}
