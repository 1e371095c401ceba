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

    /// Copies a line along `runs` for each of some tuples of the other side. `copy` is given which elements of a run are inside the tensor, and where all of
    /// them go; it fills the others with zeros.
    pub(super) fn gather<T>(
        &self,
        (fixed, tuples): (&Side<'_>, impl Iterator<Item = At>),
        (along, runs): (&Side<'_>, &[Run]),
        lines: Lines<'_, T>,
        copy: impl Fn(Inside, &mut [T]),
    ) {
        let starts: Vec<_> = runs.iter().map(|run| (self.start(along, run.first), run.length)).collect();
        let length = runs.iter().map(|run| run.length).sum();
        for (line, at) in lines.to.chunks_mut(lines.pitch).zip(tuples) {
            let base = self.base(fixed, at);
            let mut rest = &mut line[..length];
            for (start, length) in &starts {
                let (here, after) = rest.split_at_mut(*length);
                copy(self.meet(along, start, *length, &base), here);
                rest = after;
            }
        }
    }

    /// What a tuple of one side contributes.
    pub(super) fn base(&self, fixed: &Side<'_>, at: At) -> Base {
        let gathered = &self.contraction.gathered;
        self.contribution(fixed, at, self.group * gathered.group, gathered.axes.map(|axis| axis.offset))
    }

    /// What the first tuple of a run of the other side does.
    fn start(&self, along: &Side<'_>, first: At) -> Base {
        self.contribution(along, first, 0, [0; MAX_AXES])
    }

    fn contribution(&self, side: &Side<'_>, at: At, offset: u64, coordinates: [i64; MAX_AXES]) -> Base {
        let axes = &self.contraction.gathered.axes;
        let coordinates: [i64; MAX_AXES] =
            std::array::from_fn(|axis| side.of[axis] * signed(at.axes[axis]) + coordinates[axis]);
        // Coordinates below 0 make it wrap around, and those of the other side back.
        let along = |(axis, &coordinate): (&Axis, &i64)| axis.stride.wrapping_mul(coordinate.cast_unsigned());
        let offset = offset + at.lead * side.lead;
        Base { offset: axes.iter().zip(&coordinates).map(along).fold(offset, u64::wrapping_add), coordinates }
    }

    /// The elements of a run that are inside the tensor, with a tuple of the other side.
    pub(super) fn inside(&self, along: &Side<'_>, run: &Run, base: &Base) -> Inside {
        self.meet(along, &self.start(along, run.first), run.length, base)
    }

    #[inline(always)]
    fn meet(&self, along: &Side<'_>, start: &Base, length: usize, base: &Base) -> Inside {
        const LAST: usize = MAX_AXES - 1;
        let axes = &self.contraction.gathered.axes;
        let coordinates: [i64; MAX_AXES] = std::array::from_fn(|axis| base.coordinates[axis] + start.coordinates[axis]);
        let offset = base.offset.wrapping_add(start.offset);
        // 1. The axes along which the run does not move.
        let is_outside = |axis: usize| coordinates[axis].cast_unsigned() >= axes[axis].extent;
        if (0..LAST).any(is_outside) || (along.indices.lead_last && is_outside(LAST)) {
            return Inside { offset: 0, stride: 1, range: 0..0 };
        }
        if along.indices.lead_last {
            return Inside { offset, stride: along.lead, range: 0..length };
        }
        // 2. The axis along which it moves. The elements inside the tensor are one range.
        let factor = along.of[LAST];
        let range = range_inside(&axes[LAST], coordinates[LAST], factor, length);
        let stride = factor.unsigned_abs() * axes[LAST].stride;
        // Several have a positive factor.
        Inside { offset: offset.wrapping_add(stride.wrapping_mul(range.start as u64)), stride, range }
    }
}

/// What a tuple of one side contributes to offsets and to coordinates.
pub(super) struct Base {
    /// Of the element at these coordinates, which may lie outside the tensor.
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
#[inline(always)]
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
