//! Index tuples as digits, through which shaders count.

use super::super::geometry::{DIGITS, Indices, Strided};
use crate::narrow::{stride, word};
use crate::ops::gemm::geometry::{Extent, join};

/// Extents, the slowest first, each with a stride in each of some operands. An extent of 1 has the stride 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digits<const OPERANDS: usize> {
    digits: [Extent<OPERANDS>; DIGITS],
}

impl<const OPERANDS: usize> Digits<OPERANDS> {
    /// Digits that are joined as far as the strides of the operands allow.
    pub(super) fn fewest(indices: &Indices, operands: [&Strided; OPERANDS]) -> Self {
        Self::last(&join(indices.extents(operands.map(|operand| operand.digits(indices)))))
    }

    /// One digit.
    pub(super) fn single(extent: u64, strides: [u64; OPERANDS]) -> Self {
        Self::last(&[Extent { extent, strides }])
    }

    fn last(extents: &[Extent<OPERANDS>]) -> Self {
        let mut digits = [Extent { extent: 1, strides: [0; OPERANDS] }; DIGITS];
        digits[DIGITS - extents.len()..].copy_from_slice(extents);
        Self { digits }
    }

    /// The extent of the fastest digit, and its stride in an operand.
    pub(super) fn fastest(&self, operand: usize) -> (u64, u64) {
        let Extent { extent, strides } = self.digits[DIGITS - 1];
        (extent, strides[operand])
    }

    /// Extents and strides of all digits but the fastest, the slowest first.
    pub(super) fn slower(&self, operand: usize) -> impl Iterator<Item = (u64, u64)> {
        let [slower @ .., _] = self.digits;
        slower.into_iter().map(move |digit| (digit.extent, digit.strides[operand]))
    }

    /// Extents and strides of all digits, the slowest first.
    pub(super) fn all(&self, operand: usize) -> impl Iterator<Item = (u64, u64)> {
        self.slower(operand).chain([self.fastest(operand)])
    }

    pub(super) fn extents(&self) -> [u32; DIGITS] {
        self.digits.map(|digit| word(digit.extent))
    }

    pub(super) fn strides(&self, operand: usize) -> [u32; DIGITS] {
        self.digits.map(|digit| stride(digit.strides[operand]))
    }

    /// The digits of a number.
    pub(super) fn of(&self, number: u64) -> [u32; DIGITS] {
        digits_of(number, self.digits.map(|digit| digit.extent))
    }
}

/// The digits of a number below 2^32. The slowest one may reach its extent or more.
pub(super) fn digits_of(number: u64, [_, y, z, w]: [u64; DIGITS]) -> [u32; DIGITS] {
    let [y, z, w] = [y, z, w].map(|extent| extent.max(1));
    [number / w / z / y, number / w / z % y, number / w % z, number % w].map(word)
}
