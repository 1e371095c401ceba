//! Lines of the target, each as the sum of the lines of the source that are part of it, in f32; of f64 element by element in f64.

use super::geometry::{Resizing, Sampling};
use super::{Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, held, room, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::narrow::{single, to_usize};
use crate::ops::gemm::packed::{Line, load, store};
use crate::ops::valid::Direction;

/// Elements of a line that are made at once.
const WIDTH: usize = 1024;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands: &Operands<'_>| -> Outcome {
        let [source, target] = match valid.op.kind {
            Direction::Forward => [forward::X, forward::Y],
            Direction::Backward => [backward::DY, backward::DX],
        };
        let (Some(source), Some(target)) = (operands.get(source), operands.get(target)) else { return Ok(()) };
        let parts = valid.derived.samplings.iter().map(|sampling| Parts::new(&valid.derived, sampling));
        let resize = Resize { resizing: &valid.derived, parts: parts.collect::<Result<_, _>>()?, source, target };
        match target_type(valid) {
            DType::F64 => resize.elements(),
            _ => return resize.lines(),
        }
        Ok(())
    }))
}

fn target_type(valid: &Valid) -> DType {
    valid.fields.x.dtype()
}

/// What each position of an extent of the target is made of.
struct Parts {
    /// Where those of each position begin in the list, and behind the last where they end.
    starts: Vec<usize>,
    /// Elements of the source in the memory before it, and weights.
    list: Vec<(u64, f64)>,
}

impl Parts {
    fn new(resizing: &Resizing, sampling: &Sampling) -> Result<Self, Shortage> {
        let (mode, is_backward) = (resizing.mode, resizing.is_backward);
        let extent = if is_backward { sampling.from } else { sampling.to };
        // Of dx, each position of y is in the range of so many elements at most, and of one more at either end.
        let (taps, _) = mode.taps();
        let most = if is_backward { sampling.to * u64::from(taps + 1) + sampling.to } else { extent * u64::from(taps) };
        let (mut starts, mut list) = (room(extent + 1)?, room(most)?);
        for position in 0..extent {
            starts.push(list.len());
            if is_backward {
                let positions = sampling.positions(mode, position);
                let weighted = positions.map(|at| (at * sampling.step, sampling.weight(mode, position, at)));
                list.extend(weighted.filter(|&(_, weight)| weight != 0.0));
            } else {
                list.extend(sampling.elements(mode, position).map(|(at, weight)| (at * sampling.step, weight)));
            }
        }
        starts.push(list.len());
        Ok(Self { starts, list })
    }

    fn of(&self, position: u64) -> &[(u64, f64)] {
        let at = to_usize(position);
        &self.list[self.starts[at]..self.starts[at + 1]]
    }
}

struct Resize<'v> {
    resizing: &'v Resizing,
    parts: Vec<Parts>,
    source: Tensor<'v>,
    target: Tensor<'v>,
}

impl Resize<'_> {
    /// Where a line begins in the target and, along the extents that stay, in the source; and its positions along the others.
    fn start(&self, mut number: u64) -> (u64, u64, [u64; 3]) {
        let outer = self.resizing.axes.split_last().map_or(&[][..], |(_, outer)| outer);
        let (mut to, mut from, mut positions) = (0, 0, [0; 3]);
        for axis in outer.iter().rev() {
            let position = number % axis.extent;
            number /= axis.extent;
            to += position * axis.to;
            match axis.sampling {
                Some(sampling) => positions[sampling] = position,
                None => from += position * axis.from,
            }
        }
        (to, from, positions)
    }

    /// Calls `add` for each part of a position along the extents that are resized but `line`, from the outermost on, with where it begins in the source
    /// and its weight.
    fn each_part(&self, line: Option<usize>, positions: [u64; 3], mut add: impl FnMut(u64, f64)) {
        const ONE: &[(u64, f64)] = &[(0, 1.0)];
        let parts: [&[(u64, f64)]; 3] = std::array::from_fn(|at| match self.parts.get(at) {
            Some(parts) if line != Some(at) => parts.of(positions[at]),
            _ => ONE,
        });
        for (plane, of_plane) in parts[2] {
            for (row, of_row) in parts[1] {
                for (column, of_column) in parts[0] {
                    add(plane + row + column, of_plane * of_row * of_column);
                }
            }
        }
    }

    /// Element by element, in f64.
    fn elements(&self) {
        let (elements, line) = (self.resizing.elements(), self.resizing.line());
        let lines = elements / line.extent.max(1);
        threads::for_each(lines, elements, |number| {
            let (to, from, mut positions) = self.start(number);
            for at in 0..line.extent {
                let mut from = from;
                match line.sampling {
                    Some(sampling) => positions[sampling] = at,
                    None => from += at * line.from,
                }
                let mut sum = 0.0;
                self.each_part(None, positions, |part, weight| sum += weight * self.source.load(from + part));
                // SAFETY: each line is one task, and its elements are of no other.
                unsafe { self.target.store(to + at * line.to, sum) };
            }
        });
    }

    /// Line by line, in f32.
    fn lines(&self) -> Outcome {
        let (elements, line) = (self.resizing.elements(), self.resizing.line());
        let pieces = line.extent.div_ceil(WIDTH as u64);
        let tasks = elements / line.extent.max(1) * pieces;
        threads::try_for_each(tasks, elements, |task| {
            let (first, (to, from, positions)) = (task % pieces * WIDTH as u64, self.start(task / pieces));
            let count = to_usize((line.extent - first).min(WIDTH as u64));
            let mut sums = [0.0f32; WIDTH];
            let sums = &mut sums[..count];
            match line.sampling {
                Some(sampling) => self.resized(sums, first, sampling, (from, positions))?,
                None => {
                    let of_line = Line { offset: 0, stride: line.from };
                    let mut read = [0.0f32; WIDTH];
                    let read = &mut read[..count];
                    self.each_part(None, positions, |part, weight| {
                        load(&self.source, Line { offset: from + first * line.from + part, ..of_line }, read);
                        add(sums, single(weight), read);
                    });
                }
            }
            // SAFETY: each piece of a line is one task, and its elements are of no other.
            unsafe { store(&self.target, Line { offset: to + first * line.to, stride: line.to }, sums) };
            Ok(())
        })
    }

    /// Adds up a piece of a line whose extent is resized: of each line of the source that is part of it, the elements between the first and the last that count.
    fn resized(&self, sums: &mut [f32], first: u64, sampling: usize, (from, positions): (u64, [u64; 3])) -> Outcome {
        let (parts, step) = (&self.parts[sampling], self.resizing.samplings[sampling].step.max(1));
        let range = parts.starts[to_usize(first)]..parts.starts[to_usize(first) + sums.len()];
        let list = &parts.list[range];
        let offsets = || list.iter().map(|&(offset, _)| offset);
        let (Some(least), Some(greatest)) = (offsets().min(), offsets().max()) else { return Ok(()) };
        let mut read = held((greatest - least) / step + 1, std::iter::repeat(0.0f32))?;
        self.each_part(Some(sampling), positions, |part, weight| {
            load(&self.source, Line { offset: from + part + least, stride: step }, &mut read);
            let weight = single(weight);
            for (at, sum) in sums.iter_mut().enumerate() {
                let mut of_line = 0.0f32;
                for &(offset, weight) in parts.of(first + at as u64) {
                    of_line += single(weight) * read[to_usize((offset - least) / step)];
                }
                *sum += weight * of_line;
            }
        });
        Ok(())
    }
}

/// Adds `factor` times a line.
fn add(sums: &mut [f32], factor: f32, line: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(line) {
        *sum += factor * value;
    }
}
