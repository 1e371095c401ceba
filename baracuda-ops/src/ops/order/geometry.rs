//! How the operands lie along the axis and along the others, and how elements become keys.

use crate::dtype::DType;
use crate::error::Result;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// The operands in the order of [`Order::others`].
pub(super) const X: usize = 0;
pub(super) const VALUES: usize = 1;
pub(super) const INDICES: usize = 2;

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    /// Positions of a line.
    pub(super) length: u64,
    /// Of these the first in order that are written.
    pub(super) kept: u64,
    pub(super) is_descending: bool,
    /// Of x, the values and the indices the stride along the axis. What is not written lies as x does.
    pub(super) steps: [u64; 3],
    /// The same operands along the other axes.
    pub(super) others: [TensorDesc; 3],
}

impl Order {
    /// `operands`: x, the values and the indices, or x in their place.
    pub(super) fn new(operands: [&TensorDesc; 3], axis: usize, kept: u64, is_descending: bool) -> Result<Self> {
        let [x, ..] = operands;
        let (mut steps, mut others) = ([1; 3], [*x; 3]);
        for (at, desc) in operands.into_iter().enumerate() {
            let stay = || (0..desc.rank()).filter(|&at| at != axis);
            let of = |numbers: &[u64]| stay().map(|at| numbers[at]).collect::<Vec<_>>();
            let (dims, strides) = (of(desc.dims()), of(desc.strides()));
            others[at] = TensorDesc::strided(desc.dtype(), &dims, &strides)?.align(desc.align_bytes())?;
            steps[at] = desc.strides().get(axis).copied().unwrap_or(1);
        }
        let length = x.dims().get(axis).copied().unwrap_or(1);
        Ok(Self { length, kept, is_descending, steps, others })
    }

    /// The operands along the other axes, in the order in which x lies.
    pub(super) fn lines(&self) -> Walk {
        Walk::new(&self.others)
    }

    pub(super) fn keys(&self) -> Keys {
        Keys::of(self.others[X].dtype(), self.is_descending)
    }
}

/// How bits of an element become a key: an unsigned integer that has the element's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Keys {
    /// The bit of the sign, or 0 of types without one.
    pub(super) sign: u64,
    /// The bits of infinity, or 0 of integers and bool.
    pub(super) infinity: u64,
    pub(super) is_bool: bool,
    pub(super) is_descending: bool,
    /// Whether keys have 64 bits; else they have 32.
    pub(super) is_wide: bool,
}

impl Keys {
    pub(super) fn of(dtype: DType, is_descending: bool) -> Self {
        let (has_sign, infinity) = match dtype {
            DType::F64 => (true, 0x7ff0_0000_0000_0000),
            DType::F32 => (true, 0x7f80_0000),
            DType::F16 => (true, 0x7c00),
            DType::BF16 => (true, 0x7f80),
            DType::I64 | DType::I32 | DType::I8 => (true, 0),
            _ => (false, 0),
        };
        let bytes = dtype.size_bytes();
        let sign = if has_sign { 1 << (8 * bytes - 1) } else { 0 };
        Self { sign, infinity, is_bool: dtype == DType::Bool, is_descending, is_wide: bytes == 8 }
    }

    /// The key of an element. `bits`: those of its type, and zeros.
    pub(super) fn key(self, bits: u64) -> u64 {
        let key = if self.infinity > 0 {
            let magnitude = bits & (self.sign - 1);
            let all = self.sign | (self.sign - 1);
            if magnitude > self.infinity {
                all
            } else if bits & self.sign != 0 && magnitude > 0 {
                bits ^ all
            } else {
                magnitude | self.sign
            }
        } else if self.is_bool {
            u64::from(bits != 0)
        } else {
            bits ^ self.sign
        };
        match (self.is_descending, self.is_wide) {
            (false, _) => key,
            (true, false) => key ^ u64::from(u32::MAX),
            (true, true) => !key,
        }
    }
}

/// A launch over tiles of lines, of elements of x or of records of an earlier launch, as `order_stage` of `csrc/order/order.cuh`.
#[cfg(any(feature = "cuda", feature = "wgpu", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage {
    /// Records of a line that are read, and its tiles.
    pub(super) length: u64,
    pub(super) tiles: u64,
    /// Records of a tile that are kept, at most.
    pub(super) kept: u64,
    /// Records of a line that the tiles keep.
    pub(super) records: u64,
}

#[cfg(any(feature = "cuda", feature = "wgpu", test))]
impl Stage {
    /// A line has elements.
    pub(super) fn new(length: u64, kept: u64, tile: u64) -> Self {
        let (tiles, kept) = (length.div_ceil(tile), kept.min(tile));
        let last = length - (tiles - 1) * tile;
        Self { length, tiles, kept, records: (tiles - 1) * kept + last.min(kept) }
    }

    /// The launches by which each line becomes its first `kept` records.
    pub(super) fn all(length: u64, kept: u64, tile: u64) -> Vec<Self> {
        let mut stages = vec![Self::new(length, kept, tile)];
        while let Some(&last) = stages.last().filter(|last| last.tiles > 1) {
            stages.push(Self::new(last.records, kept, tile));
        }
        stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dtype: DType, bits: u64) -> u64 {
        Keys::of(dtype, false).key(bits)
    }

    #[test]
    fn each_launch_leaves_fewer_records() {
        let lengths = |kept| Stage::all(1 << 24, kept, 4096).iter().map(|stage| stage.records).collect::<Vec<_>>();
        assert_eq!(lengths(100), [409_600, 10_000, 300, 100]);
        assert_eq!(lengths(1), [4096, 1]);
        let one = Stage { length: 7, tiles: 1, kept: 7, records: 7 };
        assert_eq!(Stage::all(7, 7, 8), [one]);
        // The last tile has fewer records than it may keep.
        assert_eq!(Stage::new(17, 4, 8), Stage { length: 17, tiles: 3, kept: 4, records: 9 });
    }

    #[test]
    fn keys_have_the_order_of_the_numbers() {
        let numbers =
            [f64::NEG_INFINITY, -3.5, -1.0, -1e-40, 0.0, 1e-40, 0.5, 1.0, 2.0, 300.0, f64::INFINITY, f64::NAN];
        for pair in numbers.windows(2) {
            let [less, more] = [pair[0], pair[1]];
            assert!(key(DType::F64, less.to_bits()) < key(DType::F64, more.to_bits()), "{less} {more}");
            let single = |value| u64::from(crate::narrow::single(value).to_bits());
            assert!(key(DType::F32, single(less)) < key(DType::F32, single(more)), "{less} {more}");
            let brain = |value| u64::from(half::bf16::from_f64(value).to_bits());
            assert!(key(DType::BF16, brain(less)) < key(DType::BF16, brain(more)), "{less} {more}");
            let of_half = |value| u64::from(half::f16::from_f64(value).to_bits());
            assert!(key(DType::F16, of_half(less)) <= key(DType::F16, of_half(more)), "{less} {more}");
        }
        for (dtype, zero, nan) in [
            (DType::F64, 1 << 63, [0x7ff8_0000_0000_0001, 0xfff0_0000_0000_0001]),
            (DType::F32, 1 << 31, [0x7f80_0001, 0xffff_ffff]),
            (DType::F16, 1 << 15, [0x7c01, 0xfe00]),
            (DType::BF16, 1 << 15, [0x7f81, 0xffc0]),
        ] {
            assert_eq!(key(dtype, zero), key(dtype, 0), "{dtype}");
            assert_eq!(key(dtype, nan[0]), key(dtype, nan[1]), "{dtype}");
        }
        for (dtype, ascending) in [
            (DType::I64, &[1 << 63, u64::MAX, 0, 1, (1 << 63) - 1][..]),
            (DType::I32, &[1 << 31, 0xffff_ffff, 0, 1, (1 << 31) - 1]),
            (DType::I8, &[0x80, 0xff, 0, 1, 0x7f]),
            (DType::U32, &[0, 1, 0x8000_0000, 0xffff_ffff]),
            (DType::U8, &[0, 1, 0x80, 0xff]),
            (DType::Bool, &[0, 1]),
        ] {
            for pair in ascending.windows(2) {
                assert!(key(dtype, pair[0]) < key(dtype, pair[1]), "{dtype} {pair:x?}");
                let falling = Keys::of(dtype, true);
                assert!(falling.key(pair[0]) > falling.key(pair[1]), "{dtype} {pair:x?}");
            }
        }
        assert_eq!(key(DType::Bool, 0x80), key(DType::Bool, 1));
    }
}
