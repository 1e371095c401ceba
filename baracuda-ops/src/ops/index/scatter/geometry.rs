//! How the elements of y, of the source and of the indices lie towards each other.

use super::Addressing;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::walk::Walk;
use crate::tensor::{MAX_RANK, TensorDesc};

/// An extent of the entries, which are the elements of the source that one index each sends somewhere, or rows of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryAxis {
    pub(super) extent: u64,
    /// From one entry to the next: units of the source, elements of the indices, and units of y, where that moves with the entry.
    pub(super) source: u64,
    pub(super) index: u64,
    pub(super) y: u64,
}

/// An extent of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowAxis {
    pub(super) extent: u64,
    /// Units from one to the next: of the source and of y.
    pub(super) source: u64,
    pub(super) y: u64,
}

/// Rows of the source that go to rows of y.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scatters {
    /// Outermost first, in the order of the source's elements. A single entry has none.
    pub(super) entries: Vec<EntryAxis>,
    /// Outermost first, in the order of y's memory. A row of a single unit has none.
    pub(super) row: Vec<RowAxis>,
    /// Positions that an index may name.
    pub(super) extent: u64,
    /// Units of y from one of these to the next.
    pub(super) apart: u64,
    /// Bytes that move as one: an element or several.
    pub(super) unit_bytes: u64,
    /// Whether y has elements.
    pub(super) has_y: bool,
}

impl Scatters {
    pub(super) fn new(
        kind: Addressing,
        y: &TensorDesc,
        axis: usize,
        indices: &TensorDesc,
        source: &TensorDesc,
    ) -> Result<Self> {
        let extent = y.dims().get(axis).copied().unwrap_or(1);
        let apart = if extent > 1 { y.strides()[axis] } else { 0 };
        let mut scatters = Self {
            entries: vec![EntryAxis { extent: 0, source: 0, index: 0, y: 0 }],
            row: Vec::new(),
            extent,
            apart,
            unit_bytes: y.dtype().size_bytes(),
            has_y: !y.is_empty(),
        };
        if source.is_empty() || y.is_empty() {
            return Ok(scatters);
        }
        // Of each extent of the source: strides of y and of the indices, if these have it.
        let (of_y, of_indices): (Vec<Option<u64>>, Vec<Option<u64>>) = match kind {
            Addressing::Select => {
                let (rank, of_indices) = (y.rank().max(1), indices.strides().iter().map(|&stride| Some(stride)));
                let some = |strides: &[u64]| strides.iter().map(|&stride| Some(stride)).collect::<Vec<_>>();
                let (before, after) = (some(&y.strides()[..axis]), some(y.strides().get(axis + 1..).unwrap_or(&[])));
                let none = |count: usize| vec![None; count];
                let of_y = [before, none(indices.rank()), after].concat();
                (of_y, [none(axis), of_indices.collect(), none(rank - axis - 1)].concat())
            }
            Addressing::Gather => {
                let of_y = (0..y.rank()).map(|at| (at != axis).then_some(y.strides()[at]));
                (of_y.collect(), indices.strides().iter().map(|&stride| Some(stride)).collect())
            }
        };
        let (mut entries, mut row): (Vec<EntryAxis>, Vec<[u64; 3]>) = (Vec::new(), Vec::new());
        for (at, (&extent, &stride)) in source.dims().iter().zip(source.strides()).enumerate() {
            let index = of_indices[at].unwrap_or(0);
            match of_y[at] {
                _ if extent == 1 => {}
                // One index sends all of it to different places.
                Some(y) if index == 0 => row.push([extent, stride, y]),
                y => entries.push(EntryAxis { extent, source: stride, index, y: y.unwrap_or(0) }),
            }
        }
        scatters.entries = joined(&entries);
        // Places alone count here; the least type has room for those of every other.
        let dims: Vec<u64> = row.iter().map(|[extent, ..]| *extent).collect();
        let lying = |operand: usize| {
            let strides: Vec<u64> = row.iter().map(|axis| axis[operand]).collect();
            TensorDesc::strided(DType::U8, &dims, &strides)
        };
        let walk = Walk::new(&[lying(2)?, lying(1)?]);
        let axes = walk.dims.iter().zip(&walk.strides[0]).zip(&walk.strides[1]);
        scatters.row = axes.map(|((&extent, &y), &source)| RowAxis { extent, source, y }).collect();
        debug_assert!(scatters.row.len() <= MAX_RANK && scatters.entries.len() <= MAX_RANK);
        Ok(scatters)
    }

    /// The number of entries.
    pub(super) fn count(&self) -> u64 {
        self.entries.iter().map(|axis| axis.extent).product()
    }

    /// Units of a row.
    pub(super) fn units(&self) -> u64 {
        self.row.iter().map(|axis| axis.extent).product()
    }

    /// The innermost axis of a row; of a single unit one of extent 1.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn line(&self) -> RowAxis {
        self.row.last().copied().unwrap_or(RowAxis { extent: 1, source: 1, y: 1 })
    }

    /// Units of y from one key to the next: rows begin at multiples of it.
    pub(super) fn key_units(&self) -> u64 {
        let moving = self.entries.iter().map(|axis| axis.y);
        moving.fold(self.apart, gcd).max(1)
    }

    /// Keys, each of which is a row of y that an entry may go to.
    #[cfg(any(feature = "cuda", feature = "wgpu", test))]
    pub(super) fn keys(&self) -> u64 {
        let moving: u64 = self.entries.iter().map(|axis| axis.extent.saturating_sub(1) * axis.y).sum();
        (moving + self.extent.saturating_sub(1) * self.apart) / self.key_units() + 1
    }

    /// Units of the source from one number of a place to the next: entries begin at multiples of it.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn place_units(&self) -> u64 {
        self.entries.iter().map(|axis| axis.source).fold(0, gcd).max(1)
    }

    /// Numbers of places at which entries begin in the source.
    #[cfg(feature = "cuda")]
    pub(super) fn places(&self) -> u64 {
        let reach: u64 = self.entries.iter().map(|axis| axis.extent.saturating_sub(1) * axis.source).sum();
        reach / self.place_units() + 1
    }

    /// Whether units of a row lie next to each other along the innermost axis, in y and in the source.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn has_runs(&self) -> bool {
        let line = self.line();
        !self.row.is_empty() && (line.y, line.source) == (1, 1)
    }

    /// Moves several units as one, up to `most_bytes`, where runs are whole numbers of them on both sides and memory that starts at multiples of
    /// `align_bytes` keeps them aligned.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn widened(mut self, most_bytes: u64, align_bytes: u64) -> Self {
        while self.has_runs() && 2 * self.unit_bytes <= most_bytes.min(align_bytes) {
            let Some((line, outer)) = self.row.split_last_mut() else { break };
            let are_even = outer.iter().all(|axis| axis.y.is_multiple_of(2) && axis.source.is_multiple_of(2))
                && self.entries.iter().all(|axis| axis.y.is_multiple_of(2) && axis.source.is_multiple_of(2));
            if !(line.extent.is_multiple_of(2) && self.apart.is_multiple_of(2) && are_even) {
                break;
            }
            for axis in outer {
                (axis.y, axis.source) = (axis.y / 2, axis.source / 2);
            }
            for axis in &mut self.entries {
                (axis.y, axis.source) = (axis.y / 2, axis.source / 2);
            }
            line.extent /= 2;
            (self.apart, self.unit_bytes) = (self.apart / 2, 2 * self.unit_bytes);
            if line.extent == 1 {
                self.row.pop();
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
            for axis in &mut self.row {
                (axis.y, axis.source) = (axis.y * parts, axis.source * parts);
            }
            for axis in &mut self.entries {
                (axis.y, axis.source) = (axis.y * parts, axis.source * parts);
            }
            match self.row.last_mut().filter(|_| joins) {
                Some(line) => *line = RowAxis { extent: line.extent * parts, y: 1, source: 1 },
                None => self.row.push(RowAxis { extent: parts, y: 1, source: 1 }),
            }
            (self.apart, self.unit_bytes) = (self.apart * parts, self.unit_bytes / parts);
        }
        self
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Extents that one stride of every operand walks through become one. Their order stays.
fn joined(axes: &[EntryAxis]) -> Vec<EntryAxis> {
    let mut joined: Vec<EntryAxis> = Vec::with_capacity(axes.len());
    for axis in axes {
        let continues = |before: &EntryAxis| {
            [(before.source, axis.source), (before.index, axis.index), (before.y, axis.y)]
                .into_iter()
                .all(|(before, own)| own.checked_mul(axis.extent) == Some(before))
        };
        match joined.last_mut() {
            Some(before) if continues(before) => *before = EntryAxis { extent: before.extent * axis.extent, ..*axis },
            _ => joined.push(*axis),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    fn scatters(kind: Addressing, y: &[u64], at: usize, indices: &[u64], source: &[u64]) -> Scatters {
        let [y, source] = [y, source].map(|dims| dense(DType::BF16, dims));
        Scatters::new(kind, &y, at, &dense(DType::I64, indices), &source).unwrap()
    }

    fn entry(extent: u64, source: u64, index: u64, y: u64) -> EntryAxis {
        EntryAxis { extent, source, index, y }
    }

    fn row(extent: u64, source: u64, y: u64) -> RowAxis {
        RowAxis { extent, source, y }
    }

    #[test]
    fn entries_stay_in_order_and_rows_are_joined() {
        let rows = scatters(Addressing::Select, &[50, 4, 6], 0, &[2, 3], &[2, 3, 4, 6]);
        assert_eq!((&rows.entries[..], &rows.row[..]), (&[entry(6, 24, 1, 0)][..], &[row(24, 1, 1)][..]));
        assert_eq!((rows.key_units(), rows.keys(), rows.count(), rows.units()), (24, 50, 6, 24));
        let inner = scatters(Addressing::Select, &[5, 7], 1, &[3], &[5, 3]);
        assert_eq!((&inner.entries[..], &inner.row[..]), (&[entry(3, 1, 1, 0)][..], &[row(5, 3, 7)][..]));
        let each = scatters(Addressing::Gather, &[9, 4], 0, &[3, 4], &[3, 4]);
        assert_eq!((&each.entries[..], each.units()), (&[entry(3, 4, 4, 0), entry(4, 1, 1, 1)][..], 1));
        assert_eq!((each.key_units(), each.keys()), (1, 36));
        let turned = TensorDesc::strided(DType::BF16, &[3, 5], &[1, 3]).unwrap();
        let late =
            Scatters::new(Addressing::Select, &dense(DType::BF16, &[9]), 0, &dense(DType::I32, &[3, 5]), &turned);
        assert_eq!(late.unwrap().entries, [entry(3, 1, 5, 0), entry(5, 3, 1, 0)]);
        assert_eq!(scatters(Addressing::Select, &[], 0, &[], &[]).count(), 1);
        assert_eq!(scatters(Addressing::Gather, &[0, 4], 0, &[3, 4], &[3, 4]).count(), 0);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn units_are_as_wide_as_both_sides_allow() {
        let rows = scatters(Addressing::Select, &[50, 24], 0, &[6], &[6, 24]);
        let wide = rows.clone().widened(16, 16);
        assert_eq!(
            (&wide.entries[..], &wide.row[..], wide.unit_bytes),
            (&[entry(6, 3, 1, 0)][..], &[row(3, 1, 1)][..], 16)
        );
        assert_eq!((wide.keys(), wide.places(), wide.place_units()), (50, 6, 3));
        assert_eq!(rows.widened(16, 4).unit_bytes, 4);
        let each = scatters(Addressing::Gather, &[9, 4], 0, &[3, 4], &[3, 4]);
        assert_eq!(each.clone().widened(16, 16), each);
    }
}
