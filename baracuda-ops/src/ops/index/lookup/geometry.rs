//! How the elements of y, of x and of the indices lie towards each other.

use super::Addressing;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::walk::Walk;
use crate::tensor::{MAX_RANK, TensorDesc};

/// An extent of y.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Axis {
    pub(super) extent: u64,
    /// Units from one position to the next: of y, of x, and elements of the indices.
    pub(super) y: u64,
    pub(super) x: u64,
    pub(super) index: u64,
}

/// Elements that indices name. What is read lies at the place of its position in x, and as far behind it as the index says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lookups {
    /// Outermost first, in the order of y's memory. A single element has none.
    pub(super) axes: Vec<Axis>,
    /// Positions that an index may name.
    pub(super) extent: u64,
    /// Units of x from one of these to the next.
    pub(super) apart: u64,
    /// Bytes that move as one: an element, a part of one, or several.
    pub(super) unit_bytes: u64,
    /// The bits of the fill, as often as 8 bytes hold it.
    pub(super) fill: u64,
}

impl Lookups {
    /// `fill`: in the low bytes.
    pub(super) fn new(
        kind: Addressing,
        x: &TensorDesc,
        axis: usize,
        indices: &TensorDesc,
        y: &TensorDesc,
        fill: u64,
    ) -> Result<Self> {
        let unit_bytes = x.dtype().size_bytes();
        let extent = x.dims().get(axis).copied().unwrap_or(1);
        let apart = if extent > 1 { x.strides()[axis] } else { 0 };
        let fill = (0..8 / unit_bytes).fold(0, |all, at| all | fill << (8 * unit_bytes * at));
        let mut lookups = Self { axes: Vec::new(), extent, apart, unit_bytes, fill };
        if y.is_empty() {
            lookups.axes.push(Axis { extent: 0, y: 0, x: 0, index: 0 });
            return Ok(lookups);
        }
        // Strides of an x without elements may be any numbers, and no place is made of them.
        let strides_of_x = if extent > 0 { x.strides() } else { &[0; MAX_RANK][..x.rank()] };
        // Strides of x and of the indices along the extents of y: of those that x has not, and of those that the indices have not, 0.
        let (of_x, of_indices): (Vec<u64>, Vec<u64>) = match kind {
            Addressing::Select => {
                let (beside, rank) = (|count: usize| vec![0; count], x.rank().max(1));
                let (before, after) = (&strides_of_x[..axis], strides_of_x.get(axis + 1..).unwrap_or_default());
                let of_x = [before, &beside(indices.rank()), after].concat();
                (of_x, [&beside(axis), indices.strides(), &beside(rank - axis - 1)].concat())
            }
            Addressing::Gather => {
                let of_x = (0..x.rank()).map(|at| if at == axis { 0 } else { strides_of_x[at] }).collect();
                (of_x, indices.strides().to_vec())
            }
        };
        // Places alone count here; the least type has room for those of every other.
        let lying = |strides: &[u64]| TensorDesc::strided(DType::U8, y.dims(), strides);
        let walk = Walk::new(&[*y, lying(&of_x)?, lying(&of_indices)?]);
        let [y, x, index] = [0, 1, 2].map(|operand: usize| &walk.strides[operand]);
        let axes = walk.dims.iter().enumerate();
        lookups.axes = axes.map(|(at, &extent)| Axis { extent, y: y[at], x: x[at], index: index[at] }).collect();
        Ok(lookups)
    }

    /// Units of y.
    pub(super) fn units(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// The innermost axis; of a single unit one of extent 1.
    pub(super) fn line(&self) -> Axis {
        self.axes.last().copied().unwrap_or(Axis { extent: 1, y: 1, x: 1, index: 0 })
    }

    /// Whether one index names units that lie next to each other along the innermost axis, in y and in x.
    #[cfg(any(feature = "cuda", feature = "wgpu", test))]
    pub(super) fn has_runs(&self) -> bool {
        let line = self.line();
        (line.y, line.x, line.index) == (1, 1, 0)
    }

    /// Moves several units as one, up to `most_bytes`, where runs are whole numbers of them on both sides and memory that starts at multiples of
    /// `align_bytes` keeps them aligned.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn widened(mut self, most_bytes: u64, align_bytes: u64) -> Self {
        while self.has_runs() && 2 * self.unit_bytes <= most_bytes.min(align_bytes) {
            let Some((line, outer)) = self.axes.split_last_mut() else { break };
            let are_even = |axis: &Axis| axis.y.is_multiple_of(2) && axis.x.is_multiple_of(2);
            if !(line.extent.is_multiple_of(2) && self.apart.is_multiple_of(2) && outer.iter().all(are_even)) {
                break;
            }
            for axis in outer {
                (axis.y, axis.x) = (axis.y / 2, axis.x / 2);
            }
            line.extent /= 2;
            (self.apart, self.unit_bytes) = (self.apart / 2, 2 * self.unit_bytes);
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
            let joins = self.has_runs();
            for axis in &mut self.axes {
                (axis.y, axis.x) = (axis.y * parts, axis.x * parts);
            }
            match self.axes.last_mut().filter(|_| joins) {
                Some(line) => *line = Axis { extent: line.extent * parts, y: 1, x: 1, index: 0 },
                None => self.axes.push(Axis { extent: parts, y: 1, x: 1, index: 0 }),
            }
            (self.apart, self.unit_bytes) = (self.apart * parts, self.unit_bytes / parts);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    fn axis(extent: u64, y: u64, x: u64, index: u64) -> Axis {
        Axis { extent, y, x, index }
    }

    fn lookups(kind: Addressing, x: &[u64], at: usize, indices: &[u64], y: &[u64]) -> Lookups {
        let [x, y] = [x, y].map(|dims| dense(DType::BF16, dims));
        Lookups::new(kind, &x, at, &dense(DType::I64, indices), &y, 0x3f80).unwrap()
    }

    #[test]
    fn extents_that_all_walk_through_are_joined() {
        let rows = lookups(Addressing::Select, &[50, 4, 6], 0, &[2, 3], &[2, 3, 4, 6]);
        assert_eq!((&rows.axes[..], rows.apart, rows.extent), (&[axis(6, 24, 0, 1), axis(24, 1, 1, 0)][..], 24, 50));
        assert!(rows.has_runs() && rows.fill == 0x3f80_3f80_3f80_3f80);
        let inner = lookups(Addressing::Select, &[5, 7], 1, &[3], &[5, 3]);
        assert_eq!((&inner.axes[..], inner.apart), (&[axis(5, 3, 7, 0), axis(3, 1, 0, 1)][..], 1));
        let each = lookups(Addressing::Gather, &[9, 4], 0, &[3, 4], &[3, 4]);
        assert_eq!((&each.axes[..], each.apart), (&[axis(3, 4, 0, 4), axis(4, 1, 1, 1)][..], 4));
        let part = lookups(Addressing::Gather, &[9, 4], 1, &[3, 11], &[3, 11]);
        assert_eq!((&part.axes[..], part.apart), (&[axis(3, 11, 4, 11), axis(11, 1, 0, 1)][..], 1));
        assert_eq!(lookups(Addressing::Gather, &[0, 4], 0, &[0, 3], &[0, 3]).units(), 0);
        assert_eq!(lookups(Addressing::Select, &[], 0, &[], &[]).axes, []);
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn units_are_as_wide_as_both_sides_allow() {
        let rows = lookups(Addressing::Select, &[50, 24], 0, &[6], &[6, 24]);
        let wide = rows.clone().widened(16, 16);
        assert_eq!((&wide.axes[..], wide.apart, wide.unit_bytes), (&[axis(6, 3, 0, 1), axis(3, 1, 1, 0)][..], 3, 16));
        assert_eq!(rows.clone().widened(16, 4).unit_bytes, 4);
        let halves = rows.clone().narrowed(1);
        assert_eq!((halves.line(), halves.apart, halves.unit_bytes), (axis(48, 1, 1, 0), 48, 1));
        let each = lookups(Addressing::Gather, &[9, 4], 0, &[3, 4], &[3, 4]);
        assert_eq!(each.clone().widened(16, 16), each);
        let parts = each.narrowed(1);
        assert_eq!(parts.axes, [axis(3, 8, 0, 4), axis(4, 2, 2, 1), axis(2, 1, 1, 0)]);
    }
}
