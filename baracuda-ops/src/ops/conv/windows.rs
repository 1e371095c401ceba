//! Copies of what windows gather: lines of the tensor's elements, with zeros in place of those outside.

use std::ops::Range;

use super::MAX_AXES;
use super::cpu::At;
use super::geometry::{Axis, Contraction, Indices};
use crate::narrow::{signed, to_usize};

/// The gathered factor of a group, in a contraction none of whose coordinates is divided.
pub(super) struct Windows<'a> {
    pub(super) contraction: &'a Contraction,
    pub(super) group: u64,
}

/// The rows or the terms of the gathered factor: their index tuples, the stride of the lead, and the factors of the coordinates.
#[derive(Clone, Copy)]
pub(super) struct Side<'c> {
    pub(super) indices: &'c Indices,
    lead: u64,
    of: [i64; MAX_AXES],
}

/// Neighbouring tuples, which differ only in their fastest digit.
pub(super) struct Run {
    pub(super) first: At,
    pub(super) length: usize,
}

/// Where gathered lines go: one every `pitch` elements.
pub(super) struct Lines<'l, T> {
    pub(super) to: &'l mut [T],
    pub(super) pitch: usize,
}

impl<'a> Windows<'a> {
    pub(super) fn rows(&self) -> Side<'a> {
        let Contraction { rows, gathered, .. } = self.contraction;
        Side { indices: rows, lead: gathered.row_lead, of: gathered.axes.map(|axis| axis.of_row) }
    }

    pub(super) fn terms(&self) -> Side<'a> {
        let Contraction { terms, gathered, .. } = self.contraction;
        Side { indices: terms, lead: gathered.term_lead, of: gathered.axes.map(|axis| axis.of_term) }
    }

    /// Whether lines along the terms are closer together in memory than lines along the rows.
    pub(super) fn is_along_terms(&self) -> bool {
        self.terms().worth(self.contraction) > self.rows().worth(self.contraction)
    }

    /// Copies a line along `runs` for each of some tuples of the other side. `copy` is given the offset of the first element in the tensor, the distance of
    /// elements, and where they go.
    pub(super) fn gather<T: Copy + Default>(
        &self,
        (fixed, tuples): (&Side<'_>, impl Iterator<Item = At>),
        (along, runs): (&Side<'_>, &[Run]),
        lines: Lines<'_, T>,
        copy: impl Fn(u64, u64, &mut [T]),
    ) {
        let length = runs.iter().map(|run| run.length).sum();
        for (line, at) in lines.to.chunks_mut(lines.pitch).zip(tuples) {
            let base = self.base(fixed, at);
            let mut rest = &mut line[..length];
            for run in runs {
                let (here, after) = rest.split_at_mut(run.length);
                let inside = self.inside(along, run, &base);
                here[..inside.range.start].fill(T::default());
                here[inside.range.end..].fill(T::default());
                let inside_line = &mut here[inside.range];
                if !inside_line.is_empty() {
                    copy(inside.offset, inside.stride, inside_line);
                }
                rest = after;
            }
        }
    }

    /// What a tuple of one side contributes.
    pub(super) fn base(&self, fixed: &Side<'_>, at: At) -> Base {
        let gathered = &self.contraction.gathered;
        Base {
            offset: self.group * gathered.group + at.lead * fixed.lead,
            coordinates: std::array::from_fn(|axis| {
                fixed.of[axis] * signed(at.axes[axis]) + gathered.axes[axis].offset
            }),
        }
    }

    /// The elements of a run that are inside the tensor, with a tuple of the other side.
    pub(super) fn inside(&self, along: &Side<'_>, run: &Run, base: &Base) -> Inside {
        let axes = &self.contraction.gathered.axes;
        let mut offset = base.offset + run.first.lead * along.lead;
        let first: [i64; MAX_AXES] =
            std::array::from_fn(|axis| base.coordinates[axis] + along.of[axis] * signed(run.first.axes[axis]));
        // 1. The axes along which the run does not move.
        let fixed = if along.indices.lead_last { MAX_AXES } else { MAX_AXES - 1 };
        for (axis, &number) in axes.iter().zip(&first).take(fixed) {
            match u64::try_from(number) {
                Ok(coordinate) if coordinate < axis.extent => offset += coordinate * axis.stride,
                _ => return Inside { offset, stride: 1, range: 0..0 },
            }
        }
        if fixed == MAX_AXES {
            return Inside { offset, stride: along.lead, range: 0..run.length };
        }
        // 2. The axis along which it moves. The elements inside the tensor are one range.
        let (axis, factor, first) = (&axes[MAX_AXES - 1], along.of[MAX_AXES - 1], first[MAX_AXES - 1]);
        let range = range_inside(axis, first, factor, run.length);
        let coordinate = (first + signed(range.start as u64) * factor).unsigned_abs();
        let (stride, offset) = (factor.unsigned_abs() * axis.stride, offset + coordinate * axis.stride);
        Inside { offset, stride, range }
    }
}

/// What a tuple of one side contributes to offsets and to coordinates.
pub(super) struct Base {
    offset: u64,
    coordinates: [i64; MAX_AXES],
}

/// The elements of a run that are inside the tensor, and where they lie there.
pub(super) struct Inside {
    pub(super) offset: u64,
    pub(super) stride: u64,
    pub(super) range: Range<usize>,
}

/// Which of `length` coordinates, from a first one on at the distance of a factor, are inside an axis. Several have a positive factor.
fn range_inside(axis: &Axis, first: i64, factor: i64, length: usize) -> Range<usize> {
    let extent = signed(axis.extent);
    if length == 1 {
        return 0..usize::from((0..extent).contains(&first));
    }
    let count = signed(length as u64);
    // Steps until the coordinate is 0, and until it is the extent.
    let steps = |to: i64| if factor == 1 { to - first } else { -(first - to).div_euclid(factor) };
    let from = steps(0).clamp(0, count);
    let until = steps(extent).clamp(from, count);
    to_usize(from.unsigned_abs())..to_usize(until.unsigned_abs())
}

impl Side<'_> {
    fn fastest(&self) -> u64 {
        if self.indices.lead_last { self.indices.lead } else { self.indices.axes[MAX_AXES - 1] }
    }

    /// How much faster runs along this index are than single elements, roughly.
    fn worth(&self, contraction: &Contraction) -> u64 {
        let last = MAX_AXES - 1;
        let step = self.of[last].unsigned_abs().saturating_mul(contraction.gathered.axes[last].stride);
        let stride = if self.indices.lead_last { self.lead } else { step };
        self.fastest().min(64) * if stride == 1 { 4 } else { 1 }
    }

    /// The runs of a range of tuples. If coordinates fall along a run, it has one tuple.
    pub(super) fn runs(&self, range: &Range<u64>) -> Vec<Run> {
        let falls = !self.indices.lead_last && self.of[MAX_AXES - 1] < 0;
        let most = if falls { 1 } else { self.fastest() };
        let (mut runs, mut index) = (Vec::new(), range.start);
        while index < range.end {
            let next = (index / most + 1) * most;
            let length = to_usize(next.min(range.end) - index);
            runs.push(Run { first: self.indices.at(index), length });
            index = next;
        }
        runs
    }
}
