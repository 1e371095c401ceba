//! Reductions on the CPU, block by block: a program's values are computed over blocks that the first cache holds, and folded by loops that compilers turn into
//! vector instructions.
//!
//! What is reduced to an output is divided into pieces, whose size follows from the descriptor alone. Values of a piece are combined in trees and chains of at
//! most [`CHAIN`], pieces in f64, one after the other: the bits do not depend on the threads.

use std::marker::PhantomData;
use std::ops::Range;

use super::reduction::{Combine, Each, Row};
use super::sets::Set;
use super::{Geometry, OUTPUT, Valid};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::pointwise::map::fast::{BLOCK, Block, Converted, Segment, Segments, Widest, widest};
use crate::ops::pointwise::program::Lane;
use crate::ops::walk::Walk;

/// Values that are combined side by side: a few vectors, whose additions do not wait for each other.
const LANES: usize = 64;
/// Blocks, or positions of columns, that are combined one after another.
const CHAIN: u64 = 32;
/// Positions of a piece along the elements of an output: with fewer, more results wait in memory; with more, one long row keeps fewer threads busy.
const PIECE: u64 = CHAIN * BLOCK as u64;
/// Positions of a piece of columns.
const PIECE_OF_COLUMNS: u64 = CHAIN * CHAIN;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    let Geometry { row, computing, .. } = valid.derived;
    Reason::unless(
        row.each != Each::Square,
        || "squares may leave the range of their type; the reference scales them",
    )?;
    Reason::unless(row.combine.is_scalar() && computing.is_float(), || {
        format!("it has no {} of {computing}", row.name)
    })?;
    let is_f64 = computing == DType::F64;
    Ok(Candidate::on_cpu(move || {
        let work = Reduced::new(valid);
        let sets: Vec<OfSet> = valid.derived.sets.iter().filter(|set| set.has_elements()).map(OfSet::new).collect();
        let has_sets = !valid.derived.sets.is_empty();
        let [run, run_sets] = if is_f64 { [run::<f64>, run_sets::<f64>] } else { [run::<f32>, run_sets::<f32>] };
        move |operands: &Operands<'_>| {
            if has_sets { run_sets(&work, &sets, operands) } else { run(&work, &sets, operands) }
        }
    })
    .batch_invariant_if(valid.has_packed_samples()))
}

/// A set with the indices of its inputs.
struct OfSet {
    work: Reduced,
    indices: Vec<usize>,
}

impl OfSet {
    fn new(set: &Set) -> Self {
        Self { work: Reduced::new(&set.valid), indices: set.places.iter().map(|&(index, _)| index).collect() }
    }

    /// All elements of the set as one.
    fn total<T: Lane + Converted + Folded>(&self, operands: &Operands<'_>) -> Result<f64, Shortage> {
        let Self { work, indices } = self;
        let mut tensors: Vec<Tensor<'_>> = room(indices.len() as u64)?;
        tensors.extend(indices.iter().filter_map(|&index| operands.get(index)));
        let count = work.geometry.count;
        let totals = threads::map(count.div_ceil(PIECE), count, |piece| {
            let positions = piece * PIECE..count.min((piece + 1) * PIECE);
            widest(Task::<T> { work, tensors: &tensors, outputs: 0..1, positions, is_columns: false, of: PhantomData })
        })?;
        Ok(totals.into_iter().flatten().fold(work.row.combine.identity(), |x, y| work.row.combine.of(x, y)))
    }
}

/// All elements of several sets become one, set after set.
fn run_sets<T: Lane + Converted + Folded>(work: &Reduced, sets: &[OfSet], operands: &Operands<'_>) -> Outcome {
    let Some(out) = operands.get(OUTPUT) else { return Ok(()) };
    let mut total = [work.row.combine.identity()];
    for set in sets {
        total[0] = work.row.combine.of(total[0], set.total::<T>(operands)?);
    }
    work.store::<T>(&out, 0, &mut total)
}

/// A reduction with its walks.
struct Reduced {
    row: Row,
    geometry: Geometry,
    kept: Walk,
    reduced: Walk,
    outputs: u64,
}

impl Reduced {
    fn new(valid: &Valid) -> Self {
        let (geometry, outputs) = (valid.derived.clone(), Geometry::outputs(&valid.slots));
        Self { row: geometry.row, kept: geometry.kept(), reduced: geometry.reduced(), geometry, outputs }
    }

    /// Whether a block has neighbouring outputs, not neighbouring values of one output: where these are nearer to each other.
    fn is_columns(&self) -> bool {
        let most = self.geometry.largest();
        let nearest = |strides: &[u64]| strides.last().copied().filter(|&stride| stride > 0);
        let line = self.kept.dims.last().copied().unwrap_or(1);
        match (nearest(&self.kept.strides[1 + most]), nearest(&self.reduced.strides[most])) {
            (Some(of_kept), Some(of_reduced)) => of_kept < of_reduced && line >= 8,
            (of_kept, _) => of_kept.is_some(),
        }
    }

    /// Writes the results of outputs from `first` on.
    fn store<T: Lane + Folded>(&self, out: &Tensor<'_>, first: u64, totals: &mut [f64]) -> Result<(), Shortage> {
        totals.iter_mut().for_each(|total| *total = self.row.finish.of(*total, self.geometry.divisor));
        if let Some(finish) = &self.geometry.finish {
            let mut block = Block::<T>::new(finish)?;
            for totals in totals.chunks_mut(BLOCK) {
                block.input(0).iter_mut().zip(&*totals).for_each(|(value, &total)| *value = T::number(total));
                block.evaluate(totals.len());
                totals.iter_mut().zip(block.output(0)).for_each(|(total, value)| *total = value.wide());
            }
        }
        for (output, &total) in (first..).zip(&*totals) {
            // SAFETY: each output is of one task, and the operand addresses every element once.
            unsafe { out.store(self.kept.offset(0, output), total) };
        }
        Ok(())
    }
}

fn run<T: Lane + Converted + Folded>(work: &Reduced, _: &[OfSet], operands: &Operands<'_>) -> Outcome {
    let Some(out) = operands.get(OUTPUT).filter(|_| work.outputs > 0) else { return Ok(()) };
    let count = work.geometry.count;
    if count == 0 {
        return (0..work.outputs).step_by(BLOCK).try_for_each(|first| {
            let mut totals = [work.row.combine.identity(); BLOCK];
            work.store::<T>(&out, first, &mut totals[..to_usize((work.outputs - first).min(BLOCK as u64))])
        });
    }
    let inputs = work.geometry.inputs.len();
    let mut tensors: Vec<Tensor<'_>> = room(inputs as u64)?;
    tensors.extend((0..inputs).filter_map(|at| operands.get(at)));
    let is_columns = work.is_columns();
    // Outputs of a task: a block of columns, or as many rows as are worth a task.
    let group = if is_columns { BLOCK as u64 } else { (PIECE / count).max(1) };
    let piece = if is_columns { PIECE_OF_COLUMNS } else { PIECE };
    let (groups, pieces) = (work.outputs.div_ceil(group), count.div_ceil(piece));
    let mut totals = threads::map(groups * pieces, work.outputs.saturating_mul(count), |task| {
        let (first, of_piece) = (task / pieces * group, task % pieces * piece);
        let mut totals = widest(Task::<T> {
            work,
            tensors: &tensors,
            outputs: first..work.outputs.min(first + group),
            positions: of_piece..count.min(of_piece + piece),
            is_columns,
            of: PhantomData,
        })?;
        if pieces > 1 {
            return Ok(totals);
        }
        work.store::<T>(&out, first, &mut totals)?;
        Ok::<_, Shortage>(Vec::new())
    })?;
    if pieces > 1 {
        for (of_group, totals) in (0..).zip(totals.chunks_mut(to_usize(pieces))) {
            let Some((combined, pieces)) = totals.split_first_mut() else { continue };
            for piece in pieces {
                combined
                    .iter_mut()
                    .zip(piece)
                    .for_each(|(total, of_piece)| *total = work.row.combine.of(*total, *of_piece));
            }
            work.store::<T>(&out, of_group * group, combined)?;
        }
    }
    Ok(())
}

/// A piece of some outputs.
struct Task<'t, T> {
    work: &'t Reduced,
    tensors: &'t [Tensor<'t>],
    outputs: Range<u64>,
    positions: Range<u64>,
    is_columns: bool,
    of: PhantomData<T>,
}

impl<T: Lane + Converted + Folded> Widest for Task<'_, T> {
    type Output = Result<Vec<f64>, Shortage>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        let mut values = Block::<T>::new(&self.work.geometry.program)?;
        let mut totals: Vec<f64> = room(self.outputs.end - self.outputs.start)?;
        if self.is_columns {
            self.columns::<FUSED>(&mut values, &mut totals)?;
        } else {
            for output in self.outputs.clone() {
                totals.push(self.row::<FUSED>(&mut values, output));
            }
        }
        Ok(totals)
    }
}

impl<T: Lane + Converted + Folded> Task<'_, T> {
    /// The values of one output.
    #[inline(always)]
    fn row<const FUSED: bool>(&self, values: &mut Block<'_, T>, output: u64) -> f64 {
        let Row { each, combine, .. } = self.work.row;
        let mut lanes = [T::number(combine.identity()); LANES];
        let mut folded = [T::default(); BLOCK];
        let mut first = self.positions.start;
        while first < self.positions.end {
            let block = first..self.positions.end.min(first + BLOCK as u64);
            let length = to_usize(block.end - block.start);
            for (at, tensor) in self.tensors.iter().enumerate() {
                let start = self.work.kept.offset(1 + at, output);
                let given = &mut values.input(at)[..length];
                for Segment { first, step, places } in Segments::new(&self.work.reduced, at, block.clone()) {
                    T::read(tensor, start + first, step, &mut given[places]);
                }
            }
            values.evaluate(length);
            let folded = &mut folded[..length];
            folded.copy_from_slice(&values.output(0)[..length]);
            T::each(each, folded);
            let left = fold(combine, folded, LANES);
            T::combine(combine, &mut lanes[..left], &folded[..left]);
            first = block.end;
        }
        let used = LANES.min(to_usize((self.positions.end - self.positions.start).min(LANES as u64)));
        fold(combine, &mut lanes[..used], 1);
        lanes[0].wide()
    }

    /// A block of neighbouring outputs.
    #[inline(always)]
    fn columns<const FUSED: bool>(&self, values: &mut Block<'_, T>, totals: &mut Vec<f64>) -> Result<(), Shortage> {
        let Row { each, combine, .. } = self.work.row;
        let length = to_usize(self.outputs.end - self.outputs.start);
        totals.resize(length, combine.identity());
        let mut chain: Vec<T> = room(BLOCK as u64)?;
        let mut of_each = [T::default(); BLOCK];
        let mut first = self.positions.start;
        while first < self.positions.end {
            chain.clear();
            chain.resize(length, T::number(combine.identity()));
            let end = self.positions.end.min(first + CHAIN);
            for position in first..end {
                for (at, tensor) in self.tensors.iter().enumerate() {
                    let start = self.work.reduced.offset(at, position);
                    let given = &mut values.input(at)[..length];
                    for Segment { first, step, places } in Segments::new(&self.work.kept, 1 + at, self.outputs.clone())
                    {
                        T::read(tensor, start + first, step, &mut given[places]);
                    }
                }
                values.evaluate(length);
                if each == Each::Value {
                    T::combine(combine, &mut chain, &values.output(0)[..length]);
                } else {
                    of_each[..length].copy_from_slice(&values.output(0)[..length]);
                    T::each(each, &mut of_each[..length]);
                    T::combine(combine, &mut chain, &of_each[..length]);
                }
            }
            for (total, value) in totals.iter_mut().zip(&chain) {
                *total = combine.of(*total, value.wide());
            }
            first = end;
        }
        Ok(())
    }
}

/// Combines values in halves until at most `most` are left, and returns how many these are.
#[inline(always)]
fn fold<T: Folded>(combine: Combine, values: &mut [T], most: usize) -> usize {
    let mut left = values.len();
    while left > most {
        let half = left.next_power_of_two() / 2;
        let (into, from) = values[..left].split_at_mut(half);
        T::combine(combine, &mut into[..left - half], from);
        left = half;
    }
    left
}

/// A type in which values are combined.
trait Folded: Copy {
    /// Each of `into` becomes it and the value beside it.
    fn combine(combine: Combine, into: &mut [Self], values: &[Self]);
    fn each(each: Each, values: &mut [Self]);
    fn wide(self) -> f64;
}

macro_rules! folded {
    ($($Type:ident),*) => {$(
        impl Folded for $Type {
            #[inline(always)]
            fn combine(combine: Combine, into: &mut [Self], values: &[Self]) {
                #[inline(always)]
                fn zip(into: &mut [$Type], values: &[$Type], of: impl Fn($Type, $Type) -> $Type) {
                    for (into, &value) in into.iter_mut().zip(values) {
                        *into = of(*into, value);
                    }
                }
                match combine {
                    Combine::Add => zip(into, values, |x, y| x + y),
                    Combine::Multiply => zip(into, values, |x, y| x * y),
                    // A NaN is not greater, nor is anything greater than it: the second test keeps it.
                    Combine::Greatest => zip(into, values, |x, y| if x > y || x.is_nan() { x } else { y }),
                    Combine::Least => zip(into, values, |x, y| if x < y || x.is_nan() { x } else { y }),
                    // What is not one value has no blocks.
                    _ => {}
                }
            }

            #[inline(always)]
            fn each(each: Each, values: &mut [Self]) {
                match each {
                    Each::Value => {}
                    Each::Magnitude => values.iter_mut().for_each(|value| *value = value.abs()),
                    Each::Square => values.iter_mut().for_each(|value| *value *= *value),
                    // Of what is counted no blocks are folded.
                    Each::IsNonzero | Each::IsZero => {}
                }
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}

folded!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_folded_in_halves_whatever_their_number() {
        for length in 1..200u32 {
            let mut values: Vec<f64> = (1..=length).map(f64::from).collect();
            let left = fold(Combine::Add, &mut values, LANES);
            assert!((1..=LANES).contains(&left));
            assert_eq!(fold(Combine::Add, &mut values[..left], 1), 1);
            assert_eq!(values[0], f64::from(length * (length + 1) / 2));
        }
        let mut values = [1.0f32, f32::NAN, 3.0];
        fold(Combine::Greatest, &mut values, 1);
        assert!(values[0].is_nan());
    }
}
