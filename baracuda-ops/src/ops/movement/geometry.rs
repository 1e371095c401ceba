//! Which element goes where: the extents of an output, and along each of them where elements are written and read.

use std::cmp::Reverse;

use crate::narrow::signed;
use crate::tensor::TensorDesc;

/// An extent of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) extent: u64,
    /// Units from one element that is written to the next.
    pub(super) to: u64,
    /// Units from one element of the input to the next. Below 0 the input is read backwards.
    pub(super) from: i64,
    /// Where positions may lie outside the input, or between its elements; else the element of a position is that of the same number.
    pub(super) edge: Option<Edge>,
}

/// Along an extent: position `i` reads element `(i - before) / dilation` of `extent`, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) extent: u64,
    /// Positions before the first element; below 0 the elements that are left out there.
    pub(super) before: i64,
    /// Positions from one element to the next; 1 unless what lies outside is a constant.
    pub(super) dilation: u64,
}

/// What positions without an element have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Outside {
    /// There are none.
    #[default]
    Nothing,
    /// A constant of these bits, in the low bytes.
    Constant(u64),
    /// The element mirrored at the first or the last, which is not repeated.
    Reflect,
    /// The nearest element.
    Replicate,
    /// The element as many extents further on or back.
    Circular,
}

impl Outside {
    /// The bits of the constant, as often as 8 bytes hold it; 0 if there is none.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn repeated(self, element_bytes: u64) -> u64 {
        let Self::Constant(bits) = self else { return 0 };
        (0..8 / element_bytes).fold(0, |all, at| all | bits << (8 * element_bytes * at))
    }
}

impl Edge {
    /// The element that a position reads, if it is none outside that is a constant. Positions and extents are below 2^62, and beyond both ends lie no
    /// more positions than the mode takes.
    pub(super) fn source(&self, position: u64, outside: Outside) -> Option<u64> {
        let (at, last) = (signed(position) - self.before, signed(self.extent) - 1);
        let found = match outside {
            Outside::Nothing | Outside::Constant(_) => {
                let dilation = signed(self.dilation);
                Some(at.div_euclid(dilation))
                    .filter(|element| at.rem_euclid(dilation) == 0 && (0..=last).contains(element))
            }
            Outside::Reflect => Some(if at > last { 2 * last - at } else { at.abs() }),
            Outside::Replicate => Some(at.clamp(0, last.max(0))),
            Outside::Circular => Some(at.rem_euclid(last + 1)),
        };
        found.and_then(|element| u64::try_from(element).ok())
    }

    /// The positions from and to before which elements follow one another, where the dilation is 1.
    pub(super) fn inside(&self, positions: u64) -> (u64, u64) {
        let within = |at: i64| u64::try_from(at).unwrap_or(0).min(positions);
        (within(self.before), within(self.before.saturating_add(signed(self.extent))))
    }
}

/// Elements that move from one operand to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Moves {
    /// Outermost first, in the order of the output's memory. A single element has none.
    pub(super) axes: Vec<Axis>,
    /// Where the first position reads, but for axes with an edge, and writes, in units after the first of the operand.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Bytes that move as one: an element, a part of one, or several.
    pub(super) unit_bytes: u64,
}

impl Moves {
    /// From element `from` of an input to element `to` of an output. Extents of 1 do not count, and those that one stride of either side walks through
    /// are joined.
    pub(super) fn new(axes: impl IntoIterator<Item = Axis>, [mut from, to]: [u64; 2], unit_bytes: u64) -> Self {
        let mut axes: Vec<Axis> = axes.into_iter().collect();
        if axes.iter().any(|axis| axis.extent == 0) {
            let none = Axis { extent: 0, to: 0, from: 0, edge: None };
            return Self { axes: vec![none], from: 0, to: 0, unit_bytes };
        }
        for axis in &mut axes {
            // Where all positions have elements in a row, the edge is only where they begin.
            let Some(edge) = axis.edge else { continue };
            if edge.dilation == 1 && edge.inside(axis.extent) == (0, axis.extent) {
                from += edge.before.unsigned_abs() * axis.from.unsigned_abs();
                axis.edge = None;
            }
        }
        axes.retain(|axis| axis.extent != 1 || axis.edge.is_some());
        // The sort is stable. An extent of 1 that reads outside is outermost.
        axes.sort_by_key(|axis| Reverse(if axis.extent == 1 { u64::MAX } else { axis.to }));
        let mut moves = Self { axes, from, to, unit_bytes };
        moves.join();
        moves
    }

    /// All elements of a tensor to those of another one of the same extents.
    pub(in crate::ops) fn between(x: &TensorDesc, y: &TensorDesc) -> Self {
        sliced(x, y, &[], &[])
    }

    /// No elements to those of a tensor, all of which have what lies outside.
    pub(in crate::ops) fn into(y: &TensorDesc) -> Self {
        let nothing = Edge { extent: 0, before: 0, dilation: 1 };
        let outside = Axis { extent: 1, to: 0, from: 0, edge: Some(nothing) };
        let along = |at: usize| axis(y.dims()[at], y.strides()[at], signed(y.strides()[at]));
        Self::new(std::iter::once(outside).chain((0..y.rank()).map(along)), [0; 2], y.dtype().size_bytes())
    }

    fn join(&mut self) {
        let mut joined: Vec<Axis> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.drain(..) {
            let continues = |before: &Axis| {
                before.edge.is_none()
                    && axis.edge.is_none()
                    && axis.to.checked_mul(axis.extent) == Some(before.to)
                    && axis.from.checked_mul(signed(axis.extent)) == Some(before.from)
            };
            match joined.last_mut() {
                Some(before) if continues(before) => *before = Axis { extent: before.extent * axis.extent, ..axis },
                _ => joined.push(axis),
            }
        }
        self.axes = joined;
    }

    /// Units that move.
    pub(super) fn units(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// The innermost axis; of a single unit one of extent 1.
    pub(super) fn line(&self) -> Axis {
        self.axes.last().copied().unwrap_or(Axis { extent: 1, to: 1, from: 1, edge: None })
    }

    /// Whether units lie next to each other along the innermost axis, on both sides.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn has_runs(&self) -> bool {
        let line = self.line();
        line.edge.is_none() && (line.to, line.from) == (1, 1)
    }

    /// The axis along which the input's units are nearest to each other, and nearer than along the innermost, so that going along either alone jumps
    /// on the other side.
    pub(super) fn across(&self) -> Option<usize> {
        let (line, others) = self.axes.split_last()?;
        let nearest = others.iter().enumerate().filter(|(_, axis)| axis.from != 0);
        let (at, axis) = nearest.min_by_key(|(_, axis)| axis.from.unsigned_abs())?;
        let is_nearer = axis.from.unsigned_abs() < line.from.unsigned_abs();
        (is_nearer && self.axes.iter().all(|axis| axis.edge.is_none())).then_some(at)
    }

    /// Moves several units as one, up to `most_bytes`, where runs are whole numbers of them on both sides and memory that starts at multiples of
    /// `align_bytes` keeps them aligned.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn widened(mut self, most_bytes: u64, align_bytes: u64) -> Self {
        while self.has_runs() && 2 * self.unit_bytes <= most_bytes.min(align_bytes) {
            let are_even = |axis: &Axis| axis.to.is_multiple_of(2) && axis.from % 2 == 0;
            let starts_even = self.from.is_multiple_of(2) && self.to.is_multiple_of(2);
            let Some((line, outer)) = self.axes.split_last_mut() else { break };
            if !(line.extent.is_multiple_of(2) && starts_even && outer.iter().all(are_even)) {
                break;
            }
            for axis in outer {
                (axis.to, axis.from) = (axis.to / 2, axis.from / 2);
            }
            line.extent /= 2;
            (self.from, self.to, self.unit_bytes) = (self.from / 2, self.to / 2, 2 * self.unit_bytes);
            if line.extent == 1 {
                self.axes.pop();
            }
        }
        self
    }

    /// Moves parts of at most `most_bytes` of what is a unit.
    #[cfg(feature = "wgpu")]
    pub(super) fn narrowed(mut self, most_bytes: u64) -> Self {
        let parts = self.unit_bytes.div_ceil(most_bytes);
        if parts > 1 {
            for axis in &mut self.axes {
                (axis.to, axis.from) = (axis.to * parts, axis.from * signed(parts));
            }
            self.axes.push(Axis { extent: parts, to: 1, from: 1, edge: None });
            (self.from, self.to, self.unit_bytes) = (self.from * parts, self.to * parts, self.unit_bytes / parts);
            self.join();
        }
        self
    }
}

/// The strides of two operands along an extent.
pub(super) fn axis(extent: u64, to: u64, from: i64) -> Axis {
    Axis { extent, to, from, edge: None }
}

/// From an input of these starts and steps along its extents.
pub(super) fn sliced(x: &TensorDesc, y: &TensorDesc, starts: &[u64], steps: &[i64]) -> Moves {
    let size = x.dtype().size_bytes();
    if y.is_empty() {
        return Moves::new([axis(0, 0, 0)], [0; 2], size);
    }
    let along = |at: usize| (starts.get(at).copied().unwrap_or(0), steps.get(at).copied().unwrap_or(1));
    let from = (0..x.rank()).map(|at| along(at).0 * x.strides()[at]).sum();
    // Where there are two elements, their distance is within the span.
    let axes = (0..x.rank())
        .map(|at| axis(y.dims()[at], y.strides()[at], signed(x.strides()[at]).saturating_mul(along(at).1)));
    Moves::new(axes, [from, 0], size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn desc(dims: &[u64], strides: &[u64]) -> TensorDesc {
        TensorDesc::strided(DType::F32, dims, strides).unwrap()
    }

    #[test]
    fn extents_that_both_sides_walk_through_are_joined() {
        let (x, y) = (desc(&[2, 3, 4], &[12, 4, 1]), desc(&[2, 3, 4], &[12, 4, 1]));
        assert_eq!(sliced(&x, &y, &[], &[]).axes, [axis(24, 1, 1)]);
        // Permuted alike on both sides.
        let (x, y) = (desc(&[2, 3, 4], &[1, 8, 2]), desc(&[2, 3, 4], &[1, 8, 2]));
        assert_eq!(sliced(&x, &y, &[], &[]).axes, [axis(24, 1, 1)]);
        let (x, y) = (desc(&[2, 3, 4], &[1, 2, 6]), desc(&[2, 3, 4], &[12, 4, 1]));
        assert_eq!(sliced(&x, &y, &[], &[]).axes, [axis(2, 12, 1), axis(3, 4, 2), axis(4, 1, 6)]);
        assert_eq!(sliced(&x, &y, &[], &[]).across(), Some(0));
        // Read backwards in one go.
        let flipped = sliced(&y, &y, &[1, 2, 3], &[-1, -1, -1]);
        assert_eq!((flipped.axes, flipped.from), (vec![axis(24, 1, -1)], 23));
        assert_eq!(sliced(&desc(&[], &[]), &desc(&[], &[]), &[], &[]).axes, []);
        assert_eq!(sliced(&desc(&[0, 5], &[5, 1]), &desc(&[0, 5], &[5, 1]), &[], &[]).units(), 0);
    }

    #[test]
    fn positions_read_what_their_mode_says() {
        let edge = Edge { extent: 4, before: 3, dilation: 1 };
        let read = |outside| (0..10).map(|at| edge.source(at, outside)).collect::<Vec<_>>();
        let all = |elements: [u64; 10]| elements.map(Some).to_vec();
        assert_eq!(read(Outside::Reflect), all([3, 2, 1, 0, 1, 2, 3, 2, 1, 0]));
        assert_eq!(read(Outside::Replicate), all([0, 0, 0, 0, 1, 2, 3, 3, 3, 3]));
        assert_eq!(read(Outside::Circular), all([1, 2, 3, 0, 1, 2, 3, 0, 1, 2]));
        let constant = read(Outside::Constant(0));
        assert_eq!(constant, [None, None, None, Some(0), Some(1), Some(2), Some(3), None, None, None]);
        assert_eq!((edge.inside(10), edge.inside(5), edge.inside(2)), ((3, 7), (3, 5), (2, 2)));
        let dilated = Edge { extent: 3, before: -1, dilation: 2 };
        assert_eq!(
            (0..5).map(|at| dilated.source(at, Outside::Constant(0))).collect::<Vec<_>>(),
            [None, Some(1), None, Some(2), None]
        );
        let cropped = Edge { extent: 4, before: -1, dilation: 1 };
        assert_eq!(cropped.inside(2), (0, 2));
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn units_are_as_wide_as_both_sides_allow() {
        let rows = desc(&[6, 12], &[20, 1]);
        let dense = desc(&[6, 12], &[12, 1]);
        let wide = sliced(&rows, &dense, &[], &[]).widened(16, 16);
        assert_eq!((wide.axes, wide.unit_bytes), (vec![axis(6, 3, 5), axis(3, 1, 1)], 16));
        assert_eq!(sliced(&rows, &dense, &[], &[]).widened(16, 8).unit_bytes, 8);
        let later = sliced(&rows, &desc(&[6, 8], &[8, 1]), &[0, 3], &[]);
        assert_eq!(later.widened(16, 16).unit_bytes, 4);
        assert_eq!(sliced(&desc(&[4], &[1]), &desc(&[4], &[1]), &[], &[]).widened(16, 16).axes, []);
        let turned = TensorDesc::strided(DType::F64, &[2, 3], &[1, 2]).unwrap();
        let parts = sliced(&turned, &TensorDesc::contiguous(DType::F64, &[2, 3]).unwrap(), &[], &[]).narrowed(4);
        assert_eq!((parts.axes, parts.unit_bytes), (vec![axis(2, 6, 2), axis(3, 2, 4), axis(2, 1, 1)], 4));
    }
}
