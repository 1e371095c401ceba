//! Which terms of a sum have an element of the gathered tensor: along each axis those at equal distances, between a first and a last one. Forms that visit
//! these alone need not try the others, of which there are many if strides or paddings are large.

use super::MAX_AXES;
use super::geometry::{Axis, Contraction};
use crate::narrow::signed;

/// The terms along an axis of the gathered tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    axis: Axis,
    terms: u64,
    /// The greatest common divisor of the term's factor and of the coordinates' divisor. Rows that it does not divide have no terms.
    common: u64,
    /// The distance of terms whose numbers the divisor divides.
    pub(super) step: u64,
    /// What the number of a row, divided by `common`, is multiplied with modulo `step` to give one of its terms.
    pub(super) inverse: u64,
}

/// Indices `first`, `first + step` and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) first: u64,
    pub(super) step: u64,
    pub(super) count: u64,
}

impl Walk {
    fn new(axis: &Axis, terms: u64) -> Self {
        let common = greatest_common_divisor(axis.of_term.unsigned_abs(), axis.divisor);
        let step = axis.divisor / common;
        let back = (-axis.of_term / signed(common)).rem_euclid(signed(step));
        Self { axis: *axis, terms, common, step, inverse: inverse(back, signed(step)) }
    }

    /// The number of the last coordinate.
    pub(super) fn top(&self) -> i64 {
        signed(self.axis.extent.saturating_sub(1).saturating_mul(self.axis.divisor))
    }

    /// The first term that the divisor of a row's number allows; `None` if it allows none.
    fn residue(&self, number: i64) -> Option<u64> {
        let (common, step) = (signed(self.common), signed(self.step));
        let quotient = number.div_euclid(common).rem_euclid(step).unsigned_abs();
        // Both factors are below 2^31.
        (number.rem_euclid(common) == 0).then(|| quotient * self.inverse % self.step)
    }

    /// The terms of a row whose coordinates are inside the tensor.
    pub(super) fn inside(&self, row: u64) -> Steps {
        let Axis { extent, of_row, of_term, offset, .. } = self.axis;
        let number = of_row * signed(row) + offset;
        let Some(residue) = self.residue(number).filter(|_| extent > 0) else { return Steps::default() };
        let (top, step) = (self.top(), signed(self.step));
        let (low, high) = if of_term > 0 {
            (-number.div_euclid(of_term), top.saturating_sub(number).div_euclid(of_term))
        } else {
            (-top.saturating_sub(number).div_euclid(-of_term), number.div_euclid(-of_term))
        };
        let (low, high) = (low.max(0), high.min(signed(self.terms) - 1));
        let first = low + (signed(residue) - low).rem_euclid(step);
        if first > high {
            return Steps::default();
        }
        let [first, last] = [first, high].map(i64::unsigned_abs);
        Steps { first, step: self.step, count: (last - first) / self.step + 1 }
    }
}

impl Contraction {
    /// How the terms are walked along each axis.
    pub(super) fn walks(&self) -> [Walk; MAX_AXES] {
        std::array::from_fn(|at| Walk::new(&self.gathered.axes[at], self.terms.axes[at]))
    }

    /// The most products whose factors are inside the tensor, over all sums: exact but for the ends of the axes.
    pub(super) fn products_inside(&self) -> u64 {
        let Self { groups, rows, terms, n, gathered, .. } = self;
        let pairs = gathered.axes.iter().zip(rows.axes).zip(terms.axes).map(|((axis, rows), terms)| {
            let of_row = most_inside(axis, axis.of_term, terms);
            let of_term = most_inside(axis, axis.of_row, rows);
            rows.saturating_mul(of_row).min(terms.saturating_mul(of_term))
        });
        pairs.chain([*groups, *n, rows.lead, terms.lead]).fold(1, u64::saturating_mul)
    }

    /// The most terms of a sum whose factors are inside the tensor.
    #[cfg(feature = "wgpu")]
    pub(super) fn most_terms_inside(&self) -> u64 {
        let axes = self.gathered.axes.iter().zip(self.terms.axes);
        axes.map(|(axis, terms)| most_inside(axis, axis.of_term, terms)).fold(self.terms.lead, u64::saturating_mul)
    }
}

/// The most of `count` indices that one index of the other kind, with which they make a coordinate, has inside the tensor.
fn most_inside(axis: &Axis, factor: i64, count: u64) -> u64 {
    let factor = factor.unsigned_abs();
    let common = greatest_common_divisor(factor, axis.divisor);
    count.div_ceil(axis.divisor / common).min(axis.extent.div_ceil(factor / common))
}

/// The parts of a contraction in which no coordinate is divided: rows at the distance of the divisors, with the terms that these see. If nothing is divided
/// there is one, the whole.
pub(super) struct Phases<'c> {
    whole: &'c Contraction,
    walks: [Walk; MAX_AXES],
    pub(super) count: u64,
}

/// One of these parts.
pub(super) struct Phase {
    pub(super) contraction: Contraction,
    /// Where its part of the plain factor, and of the output, begins.
    pub(super) plain_start: u64,
    pub(super) out_start: u64,
}

impl<'c> Phases<'c> {
    pub(super) fn of(whole: &'c Contraction) -> Self {
        let count = (0..MAX_AXES).map(|at| phases(whole, at)).fold(1, u64::saturating_mul);
        Self { whole, walks: whole.walks(), count }
    }

    /// A contraction that has as many rows as the largest part, and as many terms.
    pub(super) fn largest(&self) -> Contraction {
        let mut largest = *self.whole;
        for (at, walk) in self.walks.iter().enumerate() {
            largest.rows.axes[at] = largest.rows.axes[at].div_ceil(walk.axis.divisor);
            largest.terms.axes[at] = largest.terms.axes[at].div_ceil(walk.step);
        }
        largest
    }

    /// Part number `index`.
    pub(super) fn at(&self, mut index: u64) -> Phase {
        let mut phase = Phase { contraction: *self.whole, plain_start: 0, out_start: 0 };
        for (at, walk) in self.walks.iter().enumerate().filter(|(_, walk)| walk.axis.divisor > 1) {
            let Contraction { rows, terms, gathered, plain, out, .. } = &mut phase.contraction;
            // Only the gradient of the data divides coordinates, and there a row's factor is 1.
            let divisor = walk.axis.divisor;
            let first = index % phases(self.whole, at);
            index /= phases(self.whole, at);
            let number = signed(first) + walk.axis.offset;
            rows.axes[at] = (rows.axes[at] - first).div_ceil(divisor);
            phase.out_start += first * out.axes[at];
            out.axes[at] = out.axes[at].saturating_mul(divisor);
            gathered.axes[at].divisor = 1;
            let Some(term) = walk.residue(number).filter(|&term| term < walk.terms) else {
                terms.axes[at] = 0;
                continue;
            };
            terms.axes[at] = (walk.terms - term).div_ceil(walk.step);
            phase.plain_start += term * plain.axes[at];
            plain.axes[at] = plain.axes[at].saturating_mul(walk.step);
            gathered.axes[at].of_term = walk.axis.of_term / signed(walk.common);
            gathered.axes[at].offset = (number + walk.axis.of_term * signed(term)) / signed(divisor);
        }
        phase
    }
}

/// The number of parts along an axis.
fn phases(contraction: &Contraction, at: usize) -> u64 {
    contraction.gathered.axes[at].divisor.min(contraction.rows.axes[at])
}

/// Of numbers that are not both 0.
fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The number whose product with `of` is 1 modulo `modulus`, to which `of` is prime; 0 modulo 1.
fn inverse(of: i64, modulus: i64) -> u64 {
    let ((mut old, mut rest), (mut old_factor, mut factor)) = ((of, modulus), (1, 0));
    while rest != 0 {
        let quotient = old / rest;
        (old, rest) = (rest, old - quotient * rest);
        (old_factor, factor) = (factor, old_factor - quotient * factor);
    }
    (old_factor * old).rem_euclid(modulus).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::conv::geometry::Contracting;
    use crate::ops::conv::{ConvDescriptor, ConvWindow};
    use crate::tensor::TensorDesc;

    /// The three contractions of convolutions along one axis: x, kernel, stride, dilation and padding before and after.
    fn contractions() -> Vec<Contraction> {
        let mut all = Vec::new();
        for (input, kernel) in [(1, 1), (7, 3), (3, 12), (20, 8), (1, 9)] {
            for (stride, dilation) in [(1, 1), (2, 1), (3, 2), (4, 6), (6, 4), (5, 5), (9, 1), (2, 8)] {
                for padding in [[0, 0], [1, 0], [13, 2], [40, 40]] {
                    let dense = |extent| TensorDesc::contiguous(DType::F32, &[2, 1, extent]).unwrap();
                    let window = ConvWindow::new().stride(&[stride]).dilation(&[dilation]).padding_per_side(&[padding]);
                    let Ok(forward) = ConvDescriptor::new(dense(input), dense(kernel), window) else { continue };
                    all.push(forward.contraction());
                    all.push(forward.backward_data().unwrap().contraction());
                    all.push(forward.backward_weight().unwrap().contraction());
                }
            }
        }
        assert!(all.len() > 250, "{}", all.len());
        all
    }

    /// The terms of a row that are inside the tensor, each tried.
    fn tried(contraction: &Contraction, row: u64) -> Vec<u64> {
        let axis = &contraction.gathered.axes[MAX_AXES - 1];
        let number = |term: u64| axis.of_row * signed(row) + axis.of_term * signed(term) + axis.offset;
        (0..contraction.terms.axes[MAX_AXES - 1]).filter(|&term| axis.inside(number(term)).is_some()).collect()
    }

    #[test]
    fn a_walk_visits_the_terms_inside_and_no_others() {
        for contraction in contractions() {
            let walk = contraction.walks()[MAX_AXES - 1];
            let mut pairs = 0;
            for row in 0..contraction.rows.axes[MAX_AXES - 1] {
                let Steps { first, step, count } = walk.inside(row);
                let walked: Vec<u64> = (0..count).map(|at| first + at * step).collect();
                assert_eq!(walked, tried(&contraction, row), "row {row} of {contraction:?}");
                pairs += count;
            }
            let others = contraction.n * contraction.rows.lead * contraction.terms.lead;
            assert!(contraction.products_inside() >= pairs * others, "{pairs} of {contraction:?}");
        }
    }

    #[test]
    fn phases_have_each_row_once_with_its_terms() {
        let last = MAX_AXES - 1;
        for whole in contractions() {
            let phases = Phases::of(&whole);
            let mut rows = Vec::new();
            for Phase { contraction, plain_start, out_start } in (0..phases.count).map(|index| phases.at(index)) {
                assert!(contraction.rows.count() <= phases.largest().rows.count());
                assert!(contraction.terms.count() <= phases.largest().terms.count());
                assert_eq!(contraction.gathered.axes[last].divisor, 1);
                for row in 0..contraction.rows.axes[last] {
                    // Rows and terms by where they lie, which is where they are in tensors without gaps.
                    let (out, plain) = (contraction.out.axes[last], contraction.plain.axes[last]);
                    let terms = tried(&contraction, row).into_iter().map(|term| plain_start + term * plain);
                    rows.push((out_start + row * out, terms.collect::<Vec<_>>()));
                }
            }
            rows.sort_unstable();
            let stride = |axes: [u64; MAX_AXES]| axes[last];
            let expected = (0..whole.rows.axes[last]).map(|row| {
                let terms = tried(&whole, row).into_iter().map(|term| term * stride(whole.plain.axes));
                (row * stride(whole.out.axes), terms.collect::<Vec<_>>())
            });
            assert_eq!(rows, expected.collect::<Vec<_>>(), "{whole:?}");
        }
    }

    #[test]
    fn large_strides_and_paddings_leave_few_products() {
        let dense = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims).unwrap();
        let [samples, kernel, stride] = [1, 4096, 1024];
        let window = ConvWindow::new().stride(&[stride]);
        let forward = ConvDescriptor::new(dense(&[samples, 1, 7 * stride + kernel]), dense(&[8, 1, kernel]), window);
        let data = forward.unwrap().backward_data().unwrap().contraction();
        assert_eq!((data.products_inside(), data.products()), (8 * 8 * 4096, 8 * 11264 * 4096));
        let window = ConvWindow::new().padding(&[4096]);
        let padded = ConvDescriptor::new(dense(&[1, 1, 8]), dense(&[1, 1, 4096]), window).unwrap();
        assert_eq!(padded.contraction().products_inside(), 8 * 4096);
        assert_eq!(padded.backward_weight().unwrap().contraction().products_inside(), 8 * 4096);
        let usual = ConvDescriptor::new(dense(&[2, 3, 9, 9]), dense(&[4, 3, 3, 3]), ConvWindow::new()).unwrap();
        assert_eq!(usual.contraction().products_inside(), usual.contraction().products());
    }
}
