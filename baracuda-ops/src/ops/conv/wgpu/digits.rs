//! Index tuples as digits, which shaders count through.

use super::super::MAX_AXES;
use super::super::geometry::{Indices, Strided};
use crate::narrow::{stride, word};

/// Digits of a tuple: the lead and the axes.
const DIGITS: usize = 1 + MAX_AXES;

/// Extents, the slowest first, each with a stride in each of some operands. An extent of 1 has the stride 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digits<const OPERANDS: usize> {
    digits: [Digit<OPERANDS>; DIGITS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digit<const OPERANDS: usize> {
    extent: u64,
    strides: [u64; OPERANDS],
}

impl<const OPERANDS: usize> Digit<OPERANDS> {
    const ONE: Self = Self { extent: 1, strides: [0; OPERANDS] };

    /// Both as one, if in every operand one stride serves them.
    fn merged(slower: Self, faster: Self) -> Option<Self> {
        let follows = |(&slower, &stride): (&u64, &u64)| faster.extent.checked_mul(stride) == Some(slower);
        let fits = slower.strides.iter().zip(&faster.strides).all(follows);
        let extent = slower.extent.checked_mul(faster.extent)?;
        fits.then_some(Self { extent, strides: faster.strides })
    }
}

impl<const OPERANDS: usize> Digits<OPERANDS> {
    /// As few as the strides let them be.
    pub(super) fn fewest(indices: &Indices, operands: [&Strided; OPERANDS]) -> Self {
        let lead = Digit { extent: indices.lead, strides: operands.map(|operand| operand.lead) };
        let axes: [_; MAX_AXES] = std::array::from_fn(|axis| {
            let strides = operands.map(|operand| operand.axes[axis]);
            Digit { extent: indices.axes[axis], strides }
        });
        let mut joined: Vec<Digit<OPERANDS>> = Vec::with_capacity(DIGITS);
        for digit in ordered(lead, axes, indices.lead_last).into_iter().filter(|digit| digit.extent != 1) {
            match joined.last().and_then(|&slower| Digit::merged(slower, digit)) {
                Some(both) => {
                    joined.pop();
                    joined.push(both);
                }
                None => joined.push(digit),
            }
        }
        let mut digits = [Digit::ONE; DIGITS];
        digits[DIGITS - joined.len()..].copy_from_slice(&joined);
        Self { digits }
    }

    /// One digit.
    pub(super) fn single(extent: u64, strides: [u64; OPERANDS]) -> Self {
        let mut digits = [Digit::ONE; DIGITS];
        digits[DIGITS - 1] = Digit { extent, strides };
        Self { digits }
    }

    /// The extent of the fastest digit, and its stride in an operand.
    pub(super) fn fastest(&self, operand: usize) -> (u64, u64) {
        let Digit { extent, strides } = self.digits[DIGITS - 1];
        (extent, strides[operand])
    }

    /// The same of the slower ones.
    pub(super) fn slower(&self, operand: usize) -> impl Iterator<Item = (u64, u64)> {
        let [slower @ .., _] = self.digits;
        slower.into_iter().map(move |digit| (digit.extent, digit.strides[operand]))
    }

    /// The same of all.
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

/// Each of the digits of index tuples, the slowest first.
pub(super) fn ordered<T: Copy>(lead: T, [x, y, z]: [T; MAX_AXES], lead_last: bool) -> [T; DIGITS] {
    if lead_last { [x, y, z, lead] } else { [lead, x, y, z] }
}

/// The digits of a number below 2^32, of which the slowest may be at or past its extent.
pub(super) fn digits_of(number: u64, [_, y, z, w]: [u64; DIGITS]) -> [u32; DIGITS] {
    let [y, z, w] = [y, z, w].map(|extent| extent.max(1));
    [number / w / z / y, number / w / z % y, number / w % z, number % w].map(word)
}
