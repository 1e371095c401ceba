//! Whether strided tensors share elements.
//!
//! An element lies at a sum of one multiple of each stride. Two elements share memory if a difference of such sums, of one tensor or of two, has a certain
//! value, and the differences are sums of the same kind, of digits with a sign. A search from the largest stride down finds whether a sum has a value: what
//! the smaller strides reach bounds each digit, to two values at most where each stride steps over what the smaller ones reach.

use crate::tensor::{MAX_RANK, TensorDesc};

/// Digits that are tried until a search is given up. Strides that fit together need a few for each extent.
const MOST_STEPS: u32 = 1 << 12;

/// Multiples of a stride: those by `low` to `high`.
#[derive(Clone, Copy, Debug, Default)]
struct Axis {
    stride: i128,
    low: i128,
    high: i128,
}

/// What sums of the strides from one on reach, and what all of them are multiples of.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    low: i128,
    high: i128,
    unit: i128,
}

/// Sums of one multiple of each stride.
#[derive(Default)]
struct Sums {
    /// Of the strides and of the bytes of an element, in no order until a search begins.
    axes: [Axis; 2 * MAX_RANK + 1],
    count: usize,
}

impl Sums {
    /// Adds multiples of a stride, which may be there already.
    fn add(&mut self, stride: u64, low: i128, high: i128) {
        let stride = i128::from(stride);
        if stride == 0 || low == high {
            return;
        }
        if let Some(axis) = self.axes[..self.count].iter_mut().find(|axis| axis.stride == stride) {
            (axis.low, axis.high) = (axis.low + low, axis.high + high);
            return;
        }
        self.axes[self.count] = Axis { stride, low, high };
        self.count += 1;
    }

    /// The axes, the largest stride first.
    fn sorted(&mut self) -> &mut [Axis] {
        let axes = &mut self.axes[..self.count];
        axes.sort_unstable_by_key(|axis| std::cmp::Reverse(axis.stride));
        axes
    }
}

/// Whether a sum has a value; `None` where that takes too long to tell. The largest stride comes first.
fn reaches(axes: &[Axis], value: i128) -> Option<bool> {
    let mut of_rest = [Reach::default(); 2 * MAX_RANK + 2];
    for (at, axis) in axes.iter().enumerate().rev() {
        let rest = of_rest[at + 1];
        of_rest[at] = Reach {
            low: rest.low + axis.stride * axis.low,
            high: rest.high + axis.stride * axis.high,
            unit: common_divisor(axis.stride, rest.unit),
        };
    }
    let mut steps = MOST_STEPS;
    search(axes, &of_rest[1..], value, &mut steps)
}

/// `of_rest`: what the axes behind each reach.
fn search(axes: &[Axis], of_rest: &[Reach], value: i128, steps: &mut u32) -> Option<bool> {
    let Some((axis, axes)) = axes.split_first() else { return Some(value == 0) };
    let (rest, of_rest) = (of_rest[0], &of_rest[1..]);
    let first = axis.low.max(-(rest.high - value).div_euclid(axis.stride));
    let last = axis.high.min((value - rest.low).div_euclid(axis.stride));
    for digit in first..=last {
        *steps = steps.checked_sub(1)?;
        let left = value - digit * axis.stride;
        let is_multiple = if rest.unit == 0 { left == 0 } else { left % rest.unit == 0 };
        if is_multiple && search(axes, of_rest, left, steps)? {
            return Some(true);
        }
    }
    Some(false)
}

fn common_divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The most that an index is.
fn last(dim: u64) -> i128 {
    i128::from(dim.saturating_sub(1))
}

/// Whether no two indices address the same element; also `false` where that takes too long to tell.
pub(crate) fn is_injective(dims: &[u64], strides: &[u64]) -> bool {
    if dims.contains(&0) {
        return true;
    }
    let mut sums = Sums::default();
    for (&dim, &stride) in dims.iter().zip(strides).filter(|(dim, _)| **dim > 1) {
        let before = sums.count;
        sums.add(stride, -last(dim), last(dim));
        if sums.count == before {
            // A stride of 0, or one that is there twice.
            return false;
        }
    }
    let axes = sums.sorted();
    // Of two indices of one element the first difference is above 0, or it is with the two exchanged.
    (0..axes.len()).all(|at| {
        let axes = &mut axes[at..];
        let low = std::mem::replace(&mut axes[0].low, 1);
        let meets = reaches(axes, 0);
        axes[0].low = low;
        meets == Some(false)
    })
}

/// Whether no byte is of an element of both tensors, of each of which the address is given; also `false` where that takes too long to tell.
pub(crate) fn are_apart((a, of_a): (&TensorDesc, u64), (b, of_b): (&TensorDesc, u64)) -> bool {
    if a.is_empty() || b.is_empty() {
        return true;
    }
    let [bytes_of_a, bytes_of_b] = [a, b].map(|desc| desc.dtype().size_bytes());
    let mut sums = Sums::default();
    for (&dim, &stride) in a.dims().iter().zip(a.strides()) {
        sums.add(stride * bytes_of_a, 0, last(dim));
    }
    for (&dim, &stride) in b.dims().iter().zip(b.strides()) {
        sums.add(stride * bytes_of_b, -last(dim), 0);
    }
    sums.add(1, -last(bytes_of_b), last(bytes_of_a));
    reaches(sums.sorted(), i128::from(of_b) - i128::from(of_a)) == Some(false)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::dtype::DType;

    fn elements(dims: &[u64], strides: &[u64]) -> Vec<u64> {
        let mut all = vec![0];
        for (dim, stride) in dims.iter().zip(strides) {
            all = all.iter().flat_map(|at| (0..*dim).map(move |i| at + i * stride)).collect();
        }
        all
    }

    /// Small extents with strides of all kinds.
    fn layouts(count: usize) -> impl Iterator<Item = (Vec<u64>, Vec<u64>)> {
        let mut random = 12345u64;
        let mut below = move |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        (0..count).map(move |_| {
            let rank = 1 + below(4);
            ((0..rank).map(|_| 1 + below(4)).collect(), (0..rank).map(|_| below(12)).collect())
        })
    }

    #[test]
    fn layouts_are_injective_whose_elements_are_distinct() {
        let (mut distinct, mut interleaved) = (0, 0);
        for (dims, strides) in layouts(20_000) {
            let all = elements(&dims, &strides);
            let is_injective = all.iter().collect::<HashSet<_>>().len() == all.len();
            assert_eq!(super::is_injective(&dims, &strides), is_injective, "{dims:?} {strides:?}");
            let mut axes: Vec<(u64, u64)> = strides.iter().copied().zip(dims).filter(|&(_, dim)| dim > 1).collect();
            axes.sort_unstable();
            let reach = |axes: &[(u64, u64)]| axes.iter().map(|(stride, dim)| (dim - 1) * stride).sum::<u64>();
            distinct += u32::from(is_injective);
            interleaved += u32::from(is_injective && (0..axes.len()).any(|at| axes[at].0 <= reach(&axes[..at])));
        }
        assert!(distinct > 1000 && interleaved > 100, "{distinct} {interleaved}");
    }

    #[test]
    fn tensors_are_apart_that_share_no_byte() {
        let (mut apart, mut between) = (0, 0);
        let types = [DType::U8, DType::F16, DType::F32];
        let descs: Vec<TensorDesc> = layouts(300)
            .enumerate()
            .map(|(at, (dims, strides))| TensorDesc::strided(types[at % 3], &dims, &strides).unwrap())
            .collect();
        let bytes = |desc: &TensorDesc, start: u64| -> HashSet<u64> {
            let size = desc.dtype().size_bytes();
            let of = |at: u64| (0..size).map(move |byte| start + at * size + byte);
            elements(desc.dims(), desc.strides()).into_iter().flat_map(of).collect()
        };
        for (at, a) in descs.iter().enumerate() {
            for b in &descs[at % 7..][..20] {
                for start in [100, 101, 104, 110, 131] {
                    let is_apart = bytes(a, 100).is_disjoint(&bytes(b, start));
                    assert_eq!(are_apart((a, 100), (b, start)), is_apart, "{a:?} {b:?} {start}");
                    apart += u32::from(is_apart);
                    between += u32::from(is_apart && start < 100 + a.span_bytes());
                }
            }
        }
        assert!(apart > 1000 && between > 100, "{apart} {between}");
    }

    #[test]
    fn parts_of_one_tensor_are_apart_whatever_its_size() {
        // q, k and v of [tokens, 3, heads, size].
        let part = TensorDesc::strided(DType::F16, &[1 << 30, 64, 128], &[3 * 64 * 128, 128, 1]).unwrap();
        let bytes = 2 * 64 * 128;
        assert!(are_apart((&part, 0), (&part, bytes)) && are_apart((&part, 2 * bytes), (&part, 0)));
        assert!(!are_apart((&part, 0), (&part, 3 * bytes)) && !are_apart((&part, 0), (&part, bytes - 2)));
    }

    #[test]
    fn what_takes_too_long_to_tell_counts_as_shared() {
        let strides: Vec<u64> = (0..8).map(|at| 1_000_003 + 2 * at * at * at + at).collect();
        let desc = TensorDesc::strided(DType::U8, &[60; 8], &strides).unwrap();
        assert!(!is_injective(desc.dims(), desc.strides()));
        assert!(!are_apart((&desc, 0), (&desc, 1)));
    }
}
