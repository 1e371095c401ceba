//! How GPUs divide a transform: into passes, each of which transforms lines that the memory of a workgroup holds.
//!
//! A line of `n = a b` points that is longer takes two passes: point `i b + j` is row `i`, column `j`. The first pass transforms columns, and multiplies result `k` of
//! column `j` by `exp(-2 pi i j k / n)`; the second one transforms rows, and result `l` of row `k` is result `k + a l` of the line. A line of other prime factors than those of
//! radices is a convolution with a chirp, of lines of a power of two points: the chirp's transform, that of the line times it, and back.
//!
//! All transforms are forward: those of numbers whose parts are exchanged are the inverse ones.

use super::{Geometry, Transform};
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::walk::Walk;

/// The most stages of a pass, as in the kernels: those of 3^7 points, and more than any other number of points up to 4096 has.
pub(super) const MOST_STAGES: usize = 8;
/// The most points of a pass on any backend, which positions in 32 bits rely on: those of two passes are at most its square.
const MOST_POINTS: u64 = 4096;
/// The most lines of a workgroup: short lines of a small tensor keep more than one busy.
const MOST_LINES: u64 = 64;

/// Where the numbers of a pass come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// x.
    X,
    /// What an earlier pass wrote, in the range of that number.
    Work(usize),
    /// The conjugates of the chirp, around 0.
    Chirp,
}

/// Where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Y,
    Work(usize),
}

/// The ranges of the workspace: between two passes, of a convolution, and the transform of its chirp.
pub(super) const BETWEEN: usize = 0;
pub(super) const CONVOLVED: usize = 1;
pub(super) const SPECTRUM: usize = 2;

/// What a pass does beside transforming, as bits.
pub(super) mod flags {
    /// Exchanges the parts of what is read.
    pub(in super::super) const TURNS_READ: u32 = 1;
    /// Exchanges the parts of results before anything else.
    pub(in super::super) const TURNS_RESULT: u32 = 2;
    /// Exchanges the parts of what is written.
    pub(in super::super) const TURNS_WRITTEN: u32 = 4;
    /// Multiplies what is read by the chirp, and results.
    pub(in super::super) const CHIRPS_READ: u32 = 8;
    pub(in super::super) const CHIRPS_RESULT: u32 = 16;
    /// Multiplies results by the transform of the chirp.
    pub(in super::super) const CONVOLVES: u32 = 32;
    /// Neighbouring threads read neighbouring lines, and write them.
    pub(in super::super) const READS_COLUMNS: u32 = 64;
    pub(in super::super) const WRITES_COLUMNS: u32 = 128;
}

/// One pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    pub(super) source: Source,
    pub(super) target: Target,
    pub(super) flags: u32,
    /// Of a line of the pass.
    pub(super) points: u64,
    pub(super) radices: Vec<u32>,
    /// Lines of the pass in one of the transform, and in all.
    pub(super) inners: u64,
    pub(super) lines: u64,
    /// Of a workgroup, and from one to the next in its memory.
    pub(super) of_group: u64,
    pub(super) line_step: u64,
    /// From a line of the pass to the next, and from point to point, in points of the transform.
    pub(super) from: [u64; 2],
    pub(super) to: [u64; 2],
    /// The points of the transform if results are multiplied by roots, or 0.
    pub(super) whole: u64,
    /// Points of the transform.
    pub(super) padded: u64,
    pub(super) factor: f64,
}

/// The passes of a transform.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Passes {
    pub(super) passes: Vec<Pass>,
    /// Complex numbers in each range of the workspace.
    pub(super) ranges: [u64; 3],
}

/// The radices of a number of points, those of powers of two first, if it has no other prime factors.
fn radices(mut points: u64) -> Option<Vec<u32>> {
    let mut radices = Vec::new();
    let mut twos = points.max(1).trailing_zeros();
    points >>= twos;
    while twos > 0 {
        // No radix 2 but for 2 itself.
        let bits = if twos == 2 || twos == 4 { 2 } else { twos.min(3) };
        radices.push(1 << bits);
        twos -= bits;
    }
    for radix in [7, 5, 3] {
        while points.is_multiple_of(radix) && points > 1 {
            radices.push(word(radix));
            points /= radix;
        }
    }
    (points == 1 && radices.len() <= MOST_STAGES).then_some(radices)
}

/// The points of the first and of the second pass of a line, 1 of a first one that is not there; none if no two passes hold it.
fn split(points: u64, most: u64) -> Option<[u64; 2]> {
    if points <= most {
        return radices(points).map(|_| [1, points]);
    }
    let holds = |columns: u64| {
        let rows = points / columns;
        points.is_multiple_of(columns) && rows <= most && radices(columns).is_some() && radices(rows).is_some()
    };
    // The nearest to the root: both passes then have many lines side by side.
    let nearest =
        (1..=most).rev().filter(|&columns| columns.saturating_mul(columns) <= points).find(|&columns| holds(columns));
    nearest.map(|columns| [columns, points / columns])
}

/// A transform as kernels see it: how many points a pass holds, and how lines lie.
struct Division<'g> {
    geometry: &'g Geometry,
    walk: &'g Walk,
    most: u64,
    passes: Passes,
}

/// The passes of a transform by workgroups that hold `most` points.
///
/// # Errors
/// The line is too long.
pub(super) fn passes(geometry: &Geometry, walk: &Walk, most: u64) -> Result<Passes, Reason> {
    let most = most.min(MOST_POINTS);
    let points = geometry.points;
    let limit = most * most;
    Reason::unless(points <= limit, || format!("a line has {points} points, two passes of {most} hold {limit}"))?;
    let mut division = Division { geometry, walk, most, passes: Passes { passes: Vec::new(), ranges: [0; 3] } };
    let lines = walk.elements();
    if lines == 0 || points == 0 {
        return Ok(division.passes);
    }
    let turns = if geometry.is_inverse { [flags::TURNS_READ, flags::TURNS_WRITTEN] } else { [0; 2] };
    let scale = geometry.scale.get();
    if let Some(split) = split(points, most) {
        division.transform(lines, split, (Source::X, turns[0]), (Target::Y, turns[1], scale));
        return Ok(division.passes);
    }
    let padded = (2 * points - 1).next_power_of_two();
    let Some(split) = split(padded, most) else {
        return Err(format!(
            "a line has {points} points, of prime factors above 7 or too many below; a convolution of {padded} points computes it, two passes of {most} hold {limit}"
        )
        .into());
    };
    // 1. The transform of the chirp, divided by its points.
    division.transform(1, split, (Source::Chirp, 0), (Target::Work(SPECTRUM), 0, 1.0 / padded as f64));
    // 2. That of the line, times it.
    let chirped = (Source::X, turns[0] | flags::CHIRPS_READ);
    division.transform(lines, split, chirped, (Target::Work(CONVOLVED), flags::CONVOLVES, 1.0));
    // 3. The convolution of both.
    let last = flags::TURNS_RESULT | flags::CHIRPS_RESULT | turns[1];
    division.transform(lines, split, (Source::Work(CONVOLVED), flags::TURNS_READ), (Target::Y, last, scale));
    Ok(division.passes)
}

impl Division<'_> {
    /// Whether neighbouring threads do best with neighbouring lines of an operand, 0 of y and 1 of x.
    fn has_columns(&self, operand: usize) -> bool {
        let nearest = self.walk.strides[operand].last();
        self.geometry.points > 1 && nearest.is_some_and(|&stride| stride < self.geometry.steps[operand])
    }

    /// The passes of one transform of `lines` lines.
    fn transform(
        &mut self,
        lines: u64,
        [columns, rows]: [u64; 2],
        (source, reading): (Source, u32),
        (target, writing, factor): (Target, u32, f64),
    ) {
        let padded = columns * rows;
        let needs = |at: usize, ranges: &mut [u64; 3]| ranges[at] = ranges[at].max(lines * padded);
        if let Target::Work(at) = target {
            needs(at, &mut self.passes.ranges);
        }
        let reads_columns = if source == Source::X && self.has_columns(1) { flags::READS_COLUMNS } else { 0 };
        let writes_columns = if target == Target::Y && self.has_columns(0) { flags::WRITES_COLUMNS } else { 0 };
        if columns == 1 {
            let flags = reading | writing | reads_columns | writes_columns;
            self.push(lines, [1, padded], [[0, 1]; 2], (source, target, flags), factor);
            return;
        }
        needs(BETWEEN, &mut self.passes.ranges);
        // Columns of numbers whose lines are neighbours are neighbours of nothing, so that it makes no difference.
        let first = reading | flags::READS_COLUMNS | flags::WRITES_COLUMNS;
        self.push(lines, [rows, columns], [[1, rows]; 2], (source, Target::Work(BETWEEN), first), 1.0);
        if let Some(pass) = self.passes.passes.last_mut() {
            pass.whole = padded;
        }
        let second = (Source::Work(BETWEEN), target, writing | flags::WRITES_COLUMNS);
        self.push(lines, [columns, rows], [[rows, 1], [1, columns]], second, factor);
    }

    fn push(
        &mut self,
        lines: u64,
        [inners, points]: [u64; 2],
        [from, to]: [[u64; 2]; 2],
        (source, target, flags): (Source, Target, u32),
        factor: f64,
    ) {
        let all = lines * inners;
        let of_group = (self.most / points).clamp(1, MOST_LINES).min(all);
        // An odd step keeps neighbouring lines out of each other's banks.
        let padded = points | 1;
        let line_step = if of_group * padded <= self.most { padded } else { points };
        self.passes.passes.push(Pass {
            source,
            target,
            flags,
            points,
            radices: radices(points).unwrap_or_default(),
            inners,
            lines: all,
            of_group,
            line_step,
            from,
            to,
            whole: 0,
            padded: inners * points,
            factor,
        });
    }
}

/// How x is read, or y written, as the kernels number it: 0 of pairs, 1 of real numbers, 2 of half a spectrum.
pub(super) fn kinds(geometry: &Geometry) -> [u32; 2] {
    match geometry.transform {
        Transform::Complex => [0, 0],
        Transform::FromReal => [1, 2],
        Transform::ToReal => [2, 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::fft::FftDescriptor;
    use crate::{DType, TensorDesc};

    fn of(points: u64, most: u64) -> Result<Passes, Reason> {
        let x = TensorDesc::contiguous(DType::F32, &[3, points, 2]).unwrap();
        let geometry = FftDescriptor::new(x, 1).unwrap().0.derived;
        passes(&geometry, &geometry.lines(), most)
    }

    #[test]
    fn radices_multiply_to_the_points() {
        for points in 1..=4096u64 {
            let mut rest = points;
            for prime in [2, 3, 5, 7] {
                while rest.is_multiple_of(prime) {
                    rest /= prime;
                }
            }
            let found = radices(points);
            assert_eq!(found.is_some(), rest == 1, "{points}");
            if let Some(found) = found {
                assert_eq!(found.iter().map(|&radix| u64::from(radix)).product::<u64>(), points);
                assert!(
                    found.len() <= MOST_STAGES
                        && (points == 2 || !found.contains(&2) || found[found.len() - 1] != 2 || points % 4 == 2)
                );
            }
        }
    }

    #[test]
    fn every_pass_fits_and_covers_its_lines() {
        for most in [2048, 4096] {
            for points in [1, 2, 1000, 2048, 4096, 4097, 6000, 65_536, 1 << 20, 1 << 22, 1009, 100_003, 823_543] {
                let Passes { passes, ranges } = of(points, most).unwrap();
                for pass in &passes {
                    assert!(pass.points <= most && pass.of_group * pass.line_step <= most, "{points}: {pass:?}");
                    assert_eq!(pass.radices.iter().map(|&r| u64::from(r)).product::<u64>(), pass.points, "{points}");
                    assert_eq!(pass.lines % pass.inners, 0);
                }
                let needs: Vec<usize> = passes
                    .iter()
                    .filter_map(|pass| match pass.target {
                        Target::Work(at) => Some(at),
                        Target::Y => None,
                    })
                    .collect();
                assert!((0..3).all(|at| needs.contains(&at) == (ranges[at] > 0)), "{points}: {ranges:?}");
                assert_eq!(passes.last().map(|pass| pass.target), Some(Target::Y));
            }
        }
    }

    #[test]
    fn what_two_passes_do_not_hold_is_refused_with_the_limit() {
        let refusal = of((1 << 22) + 1, 2048).unwrap_err().to_string();
        assert!(refusal.contains("4194305 points") && refusal.contains("4194304"), "{refusal}");
        let refusal = of(3_000_017, 2048).unwrap_err().to_string();
        assert!(refusal.contains("8388608"), "{refusal}");
    }
}
