//! The products of a convolution.

/// Which of the three products of a convolution an op computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    /// y, from x and the weight.
    Forward,
    /// The gradient of x, from those of y and the weight.
    Data,
    /// The gradient of the weight, from x and the gradient of y.
    Weight,
}
