//! The statistics of the references, in f64 with compensated sums.

use crate::backend::cpu::Sum;

/// Statistics of a group or a row: the mean, then the variance about it, corrected for the mean's rounding error.
#[derive(Clone, Copy)]
pub(super) struct Statistics {
    pub(super) mean: f64,
    /// The mean of the differences from `mean`, which is its rounding error.
    pub(super) correction: f64,
    /// The biased variance; for RMSNorm the mean square, which is that about 0.
    pub(super) var: f64,
}

impl Statistics {
    pub(super) fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self { mean: 0.0, correction: 0.0, var: f64::NAN };
        }
        let n = values.len() as f64;
        let mean = values.iter().copied().collect::<Sum>().total() / n;
        let correction = values.iter().map(|x| x - mean).collect::<Sum>().total() / n;
        let square = values.iter().map(|x| (x - mean) * (x - mean)).collect::<Sum>().total() / n;
        let var = square - correction * correction;
        // `f64::max` would return 0 for NaN.
        Self { mean, correction, var: if var < 0.0 { 0.0 } else { var } }
    }

    /// `1 / sqrt(var + eps)` of values that these statistics were taken of. NaN for an infinite sum: finite values may have squares whose sum
    /// overflows, and a root of 0 would make zeros of them.
    pub(super) fn rstd(&self, eps: f64) -> f64 {
        let sum = self.var + eps;
        if sum.is_infinite() { f64::NAN } else { 1.0 / sum.sqrt() }
    }
}
