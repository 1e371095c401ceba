//! The reference: the formulas in f64, with compensated sums, for any strides; results are rounded once, to the output's type.

use super::{
    Fields, Valid,
    backward::{DX, DY},
    forward::{X, Y},
};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, held, threads};
use crate::narrow::to_usize;
use crate::ops::lines::{Line, line_count};

/// The axis along which windows lie.
const CHANNELS: usize = 1;

/// Additions of all sums: each element is added to a prefix and to a suffix, and a sum of both is made for its window. An addition takes about as
/// long as an element of another op does.
fn additions(fields: &Fields) -> u64 {
    fields.x.elements().saturating_mul(3)
}

/// The window of `size` channels that begins `before` channels before channel c, cut off at the first and the last channel.
fn window(c: usize, before: u64, size: u64, channels: usize) -> std::ops::Range<usize> {
    let first = (c as u64).saturating_sub(before);
    let end = (c as u64).saturating_add(size - before).min(channels as u64);
    to_usize(first)..to_usize(end)
}

/// The sums of the terms of every window, in a time that does not depend on their size. Blocks have as many terms as a window, or all: a window ends
/// in the block in which it begins, where it is a prefix or a suffix of the block, or in the next one, and is a suffix of the one and a prefix of the
/// other. No term outside of a window is added to its sum and taken away again, so that sums have the errors of separate ones.
struct WindowSums {
    block: usize,
    /// For each term the sum from the start of its block up to this term.
    prefixes: Vec<Sum>,
    /// For each term the sum from this term up to the end of its block.
    suffixes: Vec<Sum>,
}

impl WindowSums {
    /// Of at least one term, in windows of `size` terms.
    fn new(terms: &[f64], size: u64) -> Result<Self, Shortage> {
        let count = terms.len() as u64;
        let block = to_usize(size.min(count));
        let mut sum = Sum::default();
        let prefixes = held(
            count,
            (0..terms.len()).map(|at| {
                sum = sum.after(at % block == 0);
                sum.add(terms[at]);
                sum
            }),
        )?;
        let mut suffixes = held(
            count,
            (0..terms.len()).rev().map(|at| {
                sum = sum.after(at + 1 == terms.len() || (at + 1) % block == 0);
                sum.add(terms[at]);
                sum
            }),
        )?;
        suffixes.reverse();
        Ok(Self { block, prefixes, suffixes })
    }

    /// The sum over a window, of `size` terms unless it is cut off at the first or the last term.
    fn of(&self, window: std::ops::Range<usize>) -> f64 {
        let (first, last) = (window.start, window.end - 1);
        if first.is_multiple_of(self.block) {
            return self.prefixes[last].total();
        }
        let suffix = self.suffixes[first];
        if first / self.block == last / self.block { suffix.total() } else { suffix.plus(self.prefixes[last]).total() }
    }
}

/// `d` of every channel of a column, which is all channels of a sample at one position. NaN in place of infinity: finite values may have squares
/// whose sum overflows, and a power of 0 would make zeros of them.
fn denominators(fields: &Fields, x: &[f64]) -> Result<Vec<f64>, Shortage> {
    let scale = fields.alpha.get() / fields.size as f64;
    let squares = held(x.len() as u64, x.iter().map(|x| x * x))?;
    let sums = WindowSums::new(&squares, fields.size)?;
    let of_channel = |c| {
        let d = fields.k.get() + scale * sums.of(window(c, fields.before(), fields.size, x.len()));
        if d.is_infinite() { f64::NAN } else { d }
    };
    held(x.len() as u64, (0..x.len()).map(of_channel))
}

/// The reference of forward.
pub(super) fn forward(Valid { fields, .. }: &Valid, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(X), operands.get(Y)) else { return Ok(()) };
    threads::try_for_each(line_count(&fields.x, CHANNELS), additions(fields), |column| {
        let x = Line::new(x, CHANNELS, column).load_all()?;
        let d = denominators(fields, &x)?;
        let values = x.iter().zip(&d).map(|(x, d)| x * d.powf(-fields.beta.get()));
        // SAFETY: each column is one task.
        unsafe { Line::new(y, CHANNELS, column).store_all(values) };
        Ok(())
    })
}

/// The reference of the gradient.
pub(super) fn backward(Valid { fields, .. }: &Valid, operands: &Operands<'_>) -> Outcome {
    let (Some(dy), Some(x), Some(dx)) = (operands.get(DY), operands.get(super::backward::X), operands.get(DX)) else {
        return Ok(());
    };
    let channels = to_usize(fields.x.dims()[1]);
    let (beta, size) = (fields.beta.get(), fields.size);
    let slope = 2.0 * fields.alpha.get() * beta / size as f64;
    threads::try_for_each(line_count(&fields.x, CHANNELS), additions(fields), |column| {
        let (dy, x) = (Line::new(dy, CHANNELS, column).load_all()?, Line::new(x, CHANNELS, column).load_all()?);
        let d = denominators(fields, &x)?;
        let terms = held(channels as u64, (0..channels).map(|c| dy[c] * x[c] * d[c].powf(-beta - 1.0)))?;
        let sums = WindowSums::new(&terms, size)?;
        let values = (0..channels).map(|c| {
            let sum = sums.of(window(c, size - fields.before() - 1, size, channels));
            dy[c] * d[c].powf(-beta) - slope * x[c] * sum
        });
        // SAFETY: each column is one task.
        unsafe { Line::new(dx, CHANNELS, column).store_all(values) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_windows_have_the_terms_of_each_and_no_others() {
        for channels in 1..=13usize {
            for size in (1..=2 * channels as u64 + 3).chain([u64::MAX]) {
                for before in [0, 1, size / 2, size - 1].into_iter().filter(|&before| before < size) {
                    // Sums of distinct powers of two say which of them they have. The NaN of a term outside of a window does not reach its sum.
                    let terms: Vec<f64> = (0..channels).map(|c| f64::from(1u32 << c)).collect();
                    let sums = WindowSums::new(&terms, size).unwrap();
                    for c in 0..channels {
                        let all = window(c, before, size, channels);
                        let expected: f64 = terms[all.clone()].iter().sum();
                        assert_eq!(sums.of(all.clone()), expected, "{all:?} of {channels} channels, size {size}");
                        let mut others = vec![f64::NAN; channels];
                        others[all.clone()].copy_from_slice(&terms[all.clone()]);
                        assert_eq!(WindowSums::new(&others, size).unwrap().of(all), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn what_rounding_loses_of_either_part_of_a_window_is_added() {
        // The window of four terms from number 2 on is a suffix and a prefix, each of which loses a term of 1.
        let terms = [0.0, 0.0, 2f64.powi(60), 1.0, 1.0, -2f64.powi(60), 0.0, 0.0];
        assert_eq!(WindowSums::new(&terms, 4).unwrap().of(2..6), 2.0);
    }

    #[test]
    fn windows_of_all_channels_take_as_long_as_short_ones() {
        let terms = vec![1.0; 1 << 20];
        let sums = WindowSums::new(&terms, 1 << 19).unwrap();
        let all = |c| sums.of(window(c, 1 << 18, 1 << 19, terms.len()));
        // Each by itself they would be 2^39 additions.
        assert_eq!((0..terms.len()).map(all).fold(0.0, f64::max), f64::from(1u32 << 19));
    }
}
