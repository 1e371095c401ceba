//! Tensor maps: what the copy engine knows of a tensor in global memory, and which lines of it a copy touches.

use std::ops::Range;
use std::ptr;

/// Bytes of a `CUtensorMap`.
pub(crate) const MAP_BYTES: usize = 128;
const MAGIC: u32 = 0x7465_6e73;
/// Shared memory is swizzled in chunks of so many bytes.
pub(crate) const CHUNK_BYTES: u64 = 16;
pub(crate) const MOST_RANK: usize = 5;
/// Of a rank of 5 there are three indices between channels and samples.
pub(crate) const MOST_AXES: usize = MOST_RANK - 2;

/// What the opaque bytes of a `CUtensorMap` hold here. All indices are in the order of the copy engine: the one whose elements are neighbours first.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TensorMap {
    base: u64,
    /// In bytes, of all indices but the first.
    strides: [u64; MOST_RANK - 1],
    extents: [u32; MOST_RANK],
    magic: u32,
    /// Elements of a box; of windows the channels alone.
    box_extents: [u16; MOST_RANK],
    /// Positions that a copy of windows walks over; 0 where copies are boxes.
    positions: u16,
    /// The first and the last coordinate at which a window may begin, along each axis.
    corners: [[i32; 2]; MOST_AXES],
    /// From a position to the next, along each axis.
    steps: [u8; MOST_AXES],
    rank: u8,
    element_bytes: u8,
    /// Lines of shared memory that are swizzled; 0 where they are not.
    swizzled_bytes: u8,
    /// f32 that is rounded to tf32 when it is read.
    is_tf32: u8,
}

const _: () = assert!(size_of::<TensorMap>() <= MAP_BYTES);

/// What `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` are given, apart from boxes and windows.
pub(crate) struct Tensor<'t> {
    pub(crate) dtype: i32,
    pub(crate) base: u64,
    pub(crate) extents: &'t [u64],
    pub(crate) strides: &'t [u64],
    pub(crate) steps: &'t [u32],
    pub(crate) interleave: i32,
    pub(crate) swizzle: i32,
    pub(crate) fill: i32,
}

/// The part of a tensor that a copy touches.
pub(crate) enum Part<'t> {
    Box(&'t [u32]),
    Windows { lower: &'t [i32], upper: &'t [i32], channels: u32, positions: u32 },
}

/// Where a copy begins: its indices, and of windows the offset of a kernel element along each axis.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: [i32; MOST_RANK],
    pub(crate) offsets: [u16; MOST_AXES],
}

impl TensorMap {
    /// `None` for what the driver calls an invalid value, and for kinds of maps that the interpreter does not know.
    pub(crate) fn new(tensor: &Tensor<'_>, part: &Part<'_>) -> Option<Self> {
        // FLOAT16, FLOAT32, BFLOAT16, TFLOAT32.
        let (element_bytes, is_tf32) = match tensor.dtype {
            6 | 9 => (2u8, false),
            7 => (4, false),
            11 => (4, true),
            _ => return None,
        };
        let swizzled_bytes = match tensor.swizzle {
            0 => 0u8,
            1 => 32,
            2 => 64,
            3 => 128,
            _ => return None,
        };
        let rank = tensor.extents.len();
        let strides_fit = tensor.strides.iter().all(|&stride| stride.is_multiple_of(16) && stride < 1 << 40);
        if tensor.interleave != 0
            || tensor.fill != 0
            || !tensor.base.is_multiple_of(16)
            || !strides_fit
            || !tensor.steps.iter().all(|step| (1..=8).contains(step))
        {
            return None;
        }
        let mut map = Self {
            base: tensor.base,
            strides: [0; MOST_RANK - 1],
            extents: [1; MOST_RANK],
            magic: MAGIC,
            box_extents: [1; MOST_RANK],
            positions: 0,
            corners: [[0; 2]; MOST_AXES],
            steps: [1; MOST_AXES],
            rank: rank as u8,
            element_bytes,
            swizzled_bytes,
            is_tf32: u8::from(is_tf32),
        };
        map.strides.get_mut(..tensor.strides.len())?.copy_from_slice(tensor.strides);
        for (to, &extent) in map.extents.iter_mut().zip(tensor.extents) {
            *to = u32::try_from(extent).ok().filter(|&extent| extent > 0)?;
        }
        match *part {
            // Steps between the elements of a box are not known here.
            Part::Box(extents) if tensor.steps.iter().all(|&step| step == 1) => {
                for (to, &extent) in map.box_extents.iter_mut().zip(extents) {
                    *to = u16::try_from(extent).ok().filter(|extent| (1..=256).contains(extent))?;
                }
            }
            Part::Windows { lower, upper, channels, positions } if rank >= 3 => {
                map.box_extents[0] = u16::try_from(channels).ok().filter(|channels| (1..=256).contains(channels))?;
                map.positions = u16::try_from(positions).ok().filter(|positions| (1..=1024).contains(positions))?;
                // A corner has 16 bits, shared by the axes.
                let most = 1 << (16 / (rank - 2) - 1);
                for axis in 0..rank - 2 {
                    if [lower[axis], upper[axis]].iter().any(|corner| !(-most..most).contains(corner)) {
                        return None;
                    }
                    map.corners[axis] = [lower[axis], i32::try_from(map.extents[1 + axis]).ok()? - 1 + upper[axis]];
                    map.steps[axis] = tensor.steps[1 + axis] as u8;
                }
                if tensor.steps[0] != 1 || tensor.steps[rank - 1] != 1 {
                    return None;
                }
            }
            _ => return None,
        }
        // A line fills those of the swizzle: how shorter ones lie is not known here.
        let fills = swizzled_bytes == 0 || map.line_bytes() == u64::from(swizzled_bytes);
        (map.line_bytes().is_multiple_of(CHUNK_BYTES) && fills).then_some(map)
    }

    /// The map in the bytes of a `CUtensorMap`.
    pub(crate) fn read(bytes: &[u8; MAP_BYTES]) -> Result<Self, String> {
        // SAFETY: the bytes are enough, and any are numbers.
        let map = unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<Self>()) };
        if map.magic == MAGIC { Ok(map) } else { Err("not a tensor map".into()) }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank.into()
    }

    pub(crate) fn has_windows(&self) -> bool {
        self.positions > 0
    }

    pub(crate) fn is_tf32(&self) -> bool {
        self.is_tf32 != 0
    }

    pub(crate) fn element_bytes(&self) -> u64 {
        self.element_bytes.into()
    }

    /// Of the elements of a copy that differ in the first index alone.
    pub(crate) fn line_bytes(&self) -> u64 {
        u64::from(self.box_extents[0]) * self.element_bytes()
    }

    fn line_count(&self) -> u32 {
        match self.positions {
            0 => self.box_extents[1..].iter().map(|&extent| u32::from(extent)).product(),
            positions => positions.into(),
        }
    }

    /// All bytes of a copy, which those beyond the tensor count among.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.line_count()) * self.line_bytes()
    }

    /// Where the chunk at an address of shared memory lies. Lines of the swizzle take turns, as many as lie in 1024 bytes of the largest.
    pub(crate) fn swizzled(&self, address: u64) -> u64 {
        swizzle(address, self.swizzled_bytes.into())
    }

    /// Where each line of a copy begins in global memory, as if its first index were 0; `None` outside of the tensor.
    pub(crate) fn lines(&self, place: &Place) -> Vec<Option<u64>> {
        if self.has_windows() { self.windows(place) } else { self.boxes(place) }
    }

    fn boxes(&self, place: &Place) -> Vec<Option<u64>> {
        let line = |number: u32| {
            let mut rest = number;
            let indices = (1..MOST_RANK).map(|d| {
                let extent = u32::from(self.box_extents[d]);
                let index = i64::from(place.at[d]) + i64::from(rest % extent);
                rest /= extent;
                index
            });
            self.line(indices)
        };
        (0..self.line_count()).map(line).collect()
    }

    /// Positions one after the other: along the first axis up to the corner, then along the next, then of the next sample.
    fn windows(&self, place: &Place) -> Vec<Option<u64>> {
        let axes = self.rank() - 2;
        let mut at: Vec<i64> = place.at[1..=axes].iter().map(|&index| index.into()).collect();
        let mut sample = i64::from(place.at[1 + axes]);
        let mut lines = Vec::new();
        for _ in 0..self.positions {
            let moved = at.iter().zip(place.offsets).map(|(&index, offset)| index + i64::from(offset));
            lines.push(self.line(moved.chain([sample])));
            let mut has_turned = true;
            for (axis, index) in at.iter_mut().enumerate() {
                *index += i64::from(self.steps[axis]);
                has_turned = *index > i64::from(self.corners[axis][1]);
                if !has_turned {
                    break;
                }
                *index = self.corners[axis][0].into();
            }
            sample += i64::from(has_turned);
        }
        lines
    }

    /// The line at all indices but the first.
    fn line(&self, indices: impl Iterator<Item = i64>) -> Option<u64> {
        let mut address = self.base;
        for ((index, &extent), &stride) in indices.zip(&self.extents[1..]).zip(&self.strides) {
            if !(0..i64::from(extent)).contains(&index) {
                return None;
            }
            address += index as u64 * stride;
        }
        Some(address)
    }

    /// Which of `count` elements from the first index `first` on are inside of the tensor.
    pub(crate) fn inside(&self, first: i64, count: u64) -> Range<u64> {
        let clamp = |index: i64| index.clamp(0, count as i64) as u64;
        let (start, end) = (clamp(-first), clamp(i64::from(self.extents[0]) - first));
        start..end.max(start)
    }
}

/// The place of a chunk of 16 bytes in shared memory whose lines of `line_bytes`, 32, 64 or 128, are swizzled.
pub(crate) fn swizzle(address: u64, line_bytes: u64) -> u64 {
    match line_bytes {
        0 => address,
        // The chunk's number in the line changes with the three, two or one bits above the seventh.
        line_bytes => address ^ (address >> 7 & (line_bytes / CHUNK_BYTES - 1)) << 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<'t>(extents: &'t [u64], strides: &'t [u64], steps: &'t [u32]) -> Tensor<'t> {
        Tensor { dtype: 6, base: 1 << 20, extents, strides, steps, interleave: 0, swizzle: 3, fill: 0 }
    }

    #[test]
    fn lines_beyond_the_tensor_are_none() {
        let of = tensor(&[64, 3, 2], &[128, 512], &[1; 3]);
        let map = TensorMap::new(&of, &Part::Box(&[64, 2, 2])).unwrap();
        let place = Place { at: [0, 2, 0, 0, 0], offsets: [0; 3] };
        let base = 1 << 20;
        assert_eq!(map.lines(&place), [Some(base + 256), None, Some(base + 256 + 512), None]);
        assert_eq!((map.inside(60, 8), map.inside(-3, 8), map.inside(64, 8)), (0..4, 3..8, 0..0));
        assert_eq!(map.bytes(), 512);
    }

    #[test]
    fn windows_walk_over_positions_up_to_the_corner() {
        // Three columns, two lines, padded by 1: positions begin at -1, and the last at 1 of columns and at 0 of lines.
        let of = tensor(&[64, 3, 2, 2], &[128, 384, 768], &[1, 2, 1, 1]);
        let part = Part::Windows { lower: &[-1, -1], upper: &[-1, -1], channels: 64, positions: 5 };
        let map = TensorMap::new(&of, &part).unwrap();
        let base = 1 << 20;
        let place = |offsets| Place { at: [0, -1, -1, 0, 0], offsets };
        assert_eq!(map.lines(&place([1, 1, 0])), [0, 256, 384, 640, 768].map(|at| Some(base + at)));
        assert_eq!(map.lines(&place([0, 0, 0]))[..4], [None, None, None, Some(base + 128)]);
    }

    #[test]
    fn chunks_take_turns_in_swizzled_lines() {
        assert_eq!(swizzle(0x0480, 128), 0x0490);
        assert_eq!(swizzle(0x0390, 128), 0x03e0);
        assert_eq!([swizzle(0x80, 64), swizzle(0x180, 64), swizzle(0x200, 64)], [0x90, 0x1b0, 0x200]);
    }
}
