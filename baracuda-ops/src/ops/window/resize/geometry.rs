//! Where elements lie, and which of the other tensor make one, in rational numbers.

use std::ops::Range;

use super::{Coordinates, ResizeMode};
use crate::ops::valid::Direction;
use crate::tensor::TensorDesc;

/// How the positions of an extent of y lie in that of x: position o at `(slope o + start) / unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sampling {
    pub(super) slope: i64,
    pub(super) start: i64,
    pub(super) unit: i64,
    /// Elements of x, and of y.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Elements of the source from one position to the next.
    pub(super) step: u64,
}

/// A number of at most 2^30 with a sign.
fn signed(number: u64) -> i64 {
    crate::narrow::signed(number)
}

impl Sampling {
    /// `None` if every position of y lies at that of x.
    fn new(mode: ResizeMode, coordinates: Coordinates, [from, to]: [u64; 2], step: u64) -> Option<Self> {
        if from == to {
            return None;
        }
        let (n, m) = (signed(from), signed(to));
        let (slope, start, unit) = match (coordinates, mode) {
            // The half is added before it is rounded down.
            (Coordinates::HalfPixel, ResizeMode::Nearest) => (2 * n, n, 2 * m),
            (Coordinates::HalfPixel, _) => (2 * n, n - m, 2 * m),
            (Coordinates::AlignCorners, _) => (n - 1, 0, (m - 1).max(1)),
            (Coordinates::Asymmetric, _) => (n, 0, m),
        };
        let shared = divisor(divisor(slope.unsigned_abs(), start.unsigned_abs()), unit.unsigned_abs());
        let [slope, start, unit] = [slope, start, unit].map(|number| number / signed(shared));
        Some(Self { slope, start, unit, from, to, step })
    }

    /// The element below a position of y, and how far behind it the position lies, in parts of `unit`.
    pub(super) fn place(&self, position: u64) -> (i64, i64) {
        let at = self.slope * signed(position) + self.start;
        (at.div_euclid(self.unit), at.rem_euclid(self.unit))
    }

    /// The first position of y whose element below is `element` or a later one.
    fn first_at(&self, element: i64) -> u64 {
        let ahead = element * self.unit - self.start;
        match ahead {
            ..=0 => 0,
            _ if self.slope == 0 => self.to,
            _ => (ahead.unsigned_abs().div_ceil(self.slope.unsigned_abs())).min(self.to),
        }
    }

    /// The positions of y that an element of x is part of, and no others but such as give it the weight 0.
    pub(super) fn positions(&self, mode: ResizeMode, element: u64) -> Range<u64> {
        let (taps, before) = mode.taps();
        let (at, before) = (signed(element), i64::from(before));
        // Elements beyond either end are the last there.
        let first = if element == 0 { 0 } else { self.first_at(at + before + 1 - i64::from(taps)) };
        let end = if element + 1 == self.from { self.to } else { self.first_at(at + before + 1) };
        first..end.max(first)
    }

    /// The elements of x that make a position of y, with their weights, but for those of weight 0.
    pub(super) fn elements(&self, mode: ResizeMode, position: u64) -> impl Iterator<Item = (u64, f64)> + use<> {
        let (below, rest) = self.place(position);
        let (taps, before) = mode.taps();
        let (t, last) = (rest as f64 / self.unit as f64, signed(self.from) - 1);
        (0..taps).filter_map(move |tap| {
            let element = (below + i64::from(tap) - i64::from(before)).clamp(0, last);
            Some((element.unsigned_abs(), weight(mode, t, tap))).filter(|&(_, weight)| weight != 0.0)
        })
    }

    /// The weight of an element of x in a position of y.
    pub(super) fn weight(&self, mode: ResizeMode, element: u64, position: u64) -> f64 {
        self.elements(mode, position).filter(|&(at, _)| at == element).map(|(_, weight)| weight).sum()
    }

    /// Whether numbers of 31 bits hold what kernels compute.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn is_short(&self) -> bool {
        let elements = signed(self.from) + 4;
        let largest =
            (self.slope * signed(self.to)).max(elements * self.unit) + self.start.abs() + 2 * self.unit + self.slope;
        largest < 1 << 31
    }
}

/// The greatest common divisor; of 0 and a number the number.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// The weight of an element by its number among those around a position, `t` behind the one below.
fn weight(mode: ResizeMode, t: f64, tap: u32) -> f64 {
    const A: f64 = -0.75;
    let near = |d: f64| ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0;
    let far = |d: f64| ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A;
    match (mode, tap) {
        (ResizeMode::Nearest, _) => 1.0,
        (ResizeMode::Linear, 0) => 1.0 - t,
        (ResizeMode::Linear, _) => t,
        (ResizeMode::Cubic, 0) => far(t + 1.0),
        (ResizeMode::Cubic, 1) => near(t),
        (ResizeMode::Cubic, 2) => near(1.0 - t),
        (ResizeMode::Cubic, _) => far(2.0 - t),
    }
}

/// An extent of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Axis {
    pub(super) extent: u64,
    /// Elements of the target from one position to the next.
    pub(super) to: u64,
    /// Elements of the source, where the extent is not resized.
    pub(super) from: u64,
    /// Which of the samplings it has.
    pub(super) sampling: Option<usize>,
}

/// How the elements of the target, which is y or dx, follow from those of the source, which is x or dy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resizing {
    pub(super) mode: ResizeMode,
    pub(super) is_backward: bool,
    /// Outermost first, in the order of the target's memory.
    pub(super) axes: Vec<Axis>,
    /// Of the extents that change, the last of the tensor first.
    pub(super) samplings: Vec<Sampling>,
}

impl Resizing {
    pub(super) fn new(
        kind: Direction,
        target: &TensorDesc,
        source: &TensorDesc,
        count: usize,
        mode: ResizeMode,
        coordinates: Coordinates,
    ) -> Self {
        let is_backward = kind == Direction::Backward;
        let mut resizing = Self { mode, is_backward, axes: Vec::new(), samplings: Vec::new() };
        if target.is_empty() {
            resizing.axes.push(Axis { extent: 0, to: 0, from: 0, sampling: None });
            return resizing;
        }
        let mut axes: Vec<Axis> = Vec::new();
        for at in (0..target.rank()).rev() {
            let (extent, other) = (target.dims()[at], source.dims()[at]);
            let step = if other > 1 { source.strides()[at] } else { 0 };
            let of_pass = if is_backward { [extent, other] } else { [other, extent] };
            let is_resized = at + count >= target.rank();
            let sampling = Sampling::new(mode, coordinates, of_pass, step).filter(|_| is_resized).map(|sampling| {
                resizing.samplings.push(sampling);
                resizing.samplings.len() - 1
            });
            if extent > 1 || sampling.is_some() {
                let to = if extent > 1 { target.strides()[at] } else { 0 };
                axes.push(Axis { extent, to, from: step, sampling });
            }
        }
        // Innermost is where neighbours in memory are; extents of 1 are no lines.
        axes.reverse();
        axes.sort_by_key(|axis| std::cmp::Reverse(if axis.extent == 1 { u64::MAX } else { axis.to }));
        for axis in axes {
            match resizing.axes.last_mut() {
                // Extents that both tensors walk through with one stride are one.
                Some(outer)
                    if outer.sampling.is_none()
                        && axis.sampling.is_none()
                        && axis.to.checked_mul(axis.extent) == Some(outer.to)
                        && axis.from.checked_mul(axis.extent) == Some(outer.from) =>
                {
                    *outer = Axis { extent: outer.extent * axis.extent, ..axis };
                }
                _ => resizing.axes.push(axis),
            }
        }
        resizing
    }

    /// Elements of the target.
    pub(super) fn elements(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// The innermost axis; of a single element one of extent 1.
    pub(super) fn line(&self) -> Axis {
        self.axes.last().copied().unwrap_or(Axis { extent: 1, to: 1, from: 0, sampling: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(mode: ResizeMode, coordinates: Coordinates, extents: [u64; 2]) -> Sampling {
        Sampling::new(mode, coordinates, extents, 1).unwrap()
    }

    /// The combinations that descriptors may have.
    fn all() -> impl Iterator<Item = (ResizeMode, Coordinates)> {
        let of = |mode| Coordinates::ALL.map(move |coordinates| (mode, coordinates));
        ResizeMode::ALL.into_iter().flat_map(of).filter(|&of| of != (ResizeMode::Nearest, Coordinates::AlignCorners))
    }

    #[test]
    fn weights_of_a_position_add_up_to_one() {
        for (mode, coordinates) in all() {
            for extents in [[1, 7], [7, 1], [3, 5], [5, 3], [4, 8], [8, 4], [100, 3], [3, 100], [2, 3]] {
                let sampling = sampling(mode, coordinates, extents);
                for position in 0..extents[1] {
                    let elements: Vec<_> = sampling.elements(mode, position).collect();
                    let sum: f64 = elements.iter().map(|(_, weight)| weight).sum();
                    assert!((sum - 1.0).abs() < 1e-12, "{mode:?} {coordinates:?} {extents:?} {position}: {elements:?}");
                    assert!(elements.iter().all(|&(element, _)| element < extents[0]));
                }
            }
        }
    }

    #[test]
    fn every_element_knows_the_positions_that_it_is_part_of() {
        for (mode, coordinates) in all() {
            for extents in [[1, 7], [7, 1], [3, 5], [5, 3], [4, 8], [8, 4], [40, 3], [3, 40], [2, 3], [9, 10]] {
                let sampling = sampling(mode, coordinates, extents);
                for element in 0..extents[0] {
                    let range = sampling.positions(mode, element);
                    for position in 0..extents[1] {
                        let is_part = sampling.elements(mode, position).any(|(at, _)| at == element);
                        assert!(
                            !is_part || range.contains(&position),
                            "{mode:?} {coordinates:?} {extents:?}: {element} in {position}, not in {range:?}"
                        );
                    }
                    // Its neighbours at most lie within without being made of it.
                    let within = range.filter(|&at| !sampling.elements(mode, at).any(|(of, _)| of == element));
                    assert!(within.count() <= 4, "{mode:?} {coordinates:?} {extents:?} {element}");
                }
            }
        }
    }

    #[test]
    fn coordinates_are_those_of_the_table() {
        let place = |mode, coordinates, extents, position| {
            let sampling = sampling(mode, coordinates, extents);
            let (below, rest) = sampling.place(position);
            below as f64 + rest as f64 / sampling.unit as f64
        };
        let linear = ResizeMode::Linear;
        assert_eq!(place(linear, Coordinates::HalfPixel, [4, 8], 0), -0.25);
        assert_eq!(place(linear, Coordinates::HalfPixel, [4, 8], 7), 3.25);
        assert_eq!(place(linear, Coordinates::AlignCorners, [4, 7], 1), 0.5);
        assert_eq!(place(linear, Coordinates::AlignCorners, [4, 1], 0), 0.0);
        assert_eq!(place(linear, Coordinates::Asymmetric, [4, 8], 3), 1.5);
        let nearest = |coordinates, extents, position| {
            sampling(ResizeMode::Nearest, coordinates, extents)
                .elements(ResizeMode::Nearest, position)
                .next()
                .unwrap()
                .0
        };
        assert_eq!([0, 1, 2].map(|at| nearest(Coordinates::Asymmetric, [5, 3], at)), [0, 1, 3]);
        assert_eq!([0, 1, 2].map(|at| nearest(Coordinates::HalfPixel, [5, 3], at)), [0, 2, 4]);
    }

    #[test]
    fn extents_that_stay_are_joined_and_have_no_sampling() {
        let dense = |dims: &[u64]| TensorDesc::contiguous(crate::dtype::DType::F32, dims).unwrap();
        let of = |y: &[u64], x: &[u64]| {
            Resizing::new(Direction::Forward, &dense(y), &dense(x), 2, ResizeMode::Linear, Coordinates::HalfPixel)
        };
        let resizing = of(&[2, 3, 4, 10], &[2, 3, 4, 5]);
        assert_eq!((resizing.axes.len(), resizing.samplings.len()), (2, 1));
        assert_eq!(resizing.axes[0], Axis { extent: 24, to: 10, from: 5, sampling: None });
        assert_eq!(of(&[2, 3, 4, 5], &[2, 3, 4, 5]).axes.len(), 1);
        assert_eq!(of(&[2, 3, 1, 1], &[2, 3, 4, 5]).samplings.len(), 2);
        assert_eq!(of(&[0, 3, 1, 1], &[0, 3, 4, 5]).elements(), 0);
    }
}
