//! How the operands of a transform lie along the axis, between parts, and along the other extents.

use crate::dtype::Real;
use crate::error::Result;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Which of x and y are complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transform {
    /// Both.
    Complex,
    /// y, which has half of the spectrum.
    FromReal,
    /// x, which has half of the spectrum.
    ToReal,
}

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    pub(crate) transform: Transform,
    /// Points of a line.
    pub(crate) points: u64,
    pub(crate) is_inverse: bool,
    /// What bins other than 0 and n/2 are multiplied by: 1 or 2.
    pub(crate) inner: Real,
    pub(crate) scale: Real,
    /// Of y and x the stride along the axis.
    pub(crate) steps: [u64; 2],
    /// Of y and x the stride between parts; 0 of real numbers.
    pub(crate) parts: [u64; 2],
    /// Both along the other extents.
    pub(crate) others: [TensorDesc; 2],
}

impl Geometry {
    pub(super) fn new(
        transform: Transform,
        (points, axis): (u64, usize),
        operands: [&TensorDesc; 2],
        is_inverse: bool,
        inner: f64,
        scale: Real,
    ) -> Result<Self> {
        let are_complex = [transform != Transform::ToReal, transform != Transform::FromReal];
        let (mut steps, mut parts, mut others) = ([0; 2], [0; 2], [*operands[0]; 2]);
        for (at, (desc, is_complex)) in operands.into_iter().zip(are_complex).enumerate() {
            let last = desc.rank() - usize::from(is_complex);
            let stay = || (0..last).filter(|&extent| extent != axis);
            let of = |numbers: &[u64]| stay().map(|extent| numbers[extent]).collect::<Vec<_>>();
            let (dims, strides) = (of(desc.dims()), of(desc.strides()));
            others[at] = TensorDesc::strided(desc.dtype(), &dims, &strides)?.align(desc.align_bytes())?;
            steps[at] = desc.strides()[axis];
            parts[at] = if is_complex { desc.strides()[last] } else { 0 };
        }
        let inner = Real::new(inner).unwrap_or_default();
        Ok(Self { transform, points, is_inverse, inner, scale, steps, parts, others })
    }

    /// The operands along the other extents, in the order in which y lies.
    pub(super) fn lines(&self) -> Walk {
        Walk::new(&self.others)
    }

    /// The bins of half a spectrum.
    pub(super) fn bins(&self) -> u64 {
        self.points / 2 + 1
    }

    /// The elements of a line of y, as pairs or as real numbers.
    pub(super) fn results(&self) -> u64 {
        if self.transform == Transform::FromReal { self.bins() } else { self.points }
    }

    /// What a bin of half a spectrum counts.
    #[inline(always)]
    pub(super) fn weight(&self, bin: u64) -> f64 {
        if self.is_real_bin(bin) { 1.0 } else { self.inner.get() }
    }

    /// Whether the imaginary part of a bin of a real line is 0.
    #[inline(always)]
    pub(super) fn is_real_bin(&self, bin: u64) -> bool {
        bin == 0 || 2 * bin == self.points
    }

    /// An operation count by which tasks are divided over threads: some for each point and factor of two.
    pub(super) fn work(&self, lines: u64) -> u64 {
        let factors = u64::from(self.points.max(1).ilog2()) + 1;
        lines.saturating_mul(self.points).saturating_mul(factors)
    }
}
