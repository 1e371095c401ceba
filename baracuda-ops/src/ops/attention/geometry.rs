//! What the kernels of attention share: extents, how operands lie, and which keys a query sees.

use std::ops::Range;

use crate::dtype::{DType, Real};
use crate::tensor::TensorDesc;

/// What the operand `bias` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mask {
    /// It is not declared.
    None,
    /// Bool: which keys may be seen.
    Bool,
    /// Numbers of this type, which are added to scores.
    Bias(DType),
}

/// The pages of a pool in which keys lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pages {
    /// The type of their numbers.
    pub(crate) dtype: DType,
    /// P.
    pub(crate) count: u64,
    /// The keys of one.
    pub(crate) page: u64,
    /// M.
    pub(crate) per_sample: u64,
}

/// The extents of a descriptor, and its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    /// B.
    pub(crate) samples: u64,
    /// Hq.
    pub(crate) heads: u64,
    /// Hk, which divides Hq.
    pub(crate) kv_heads: u64,
    /// Sq.
    pub(crate) queries: u64,
    /// Sk.
    pub(crate) keys: u64,
    /// Where keys lie if not one after another.
    pub(crate) pages: Option<Pages>,
    /// D.
    pub(crate) depth: u64,
    /// Dv.
    pub(crate) value_depth: u64,
    pub(crate) scale: Real,
    pub(crate) soft_cap: Option<Real>,
    pub(crate) mask: Mask,
    /// The bias with the extents [B, Hq, Sq, Sk]: strides of 0 where it is repeated.
    pub(crate) bias: Option<TensorDesc>,
    /// The bias's own extents, 1 where it is repeated.
    pub(crate) bias_dims: [u64; 4],
    /// The type of the lengths, if there are any.
    pub(crate) lengths: Option<DType>,
    /// How many keys before, and after, its own position a query sees; `None` is all.
    pub(crate) left: Option<u64>,
    pub(crate) right: Option<u64>,
    /// Whether the last query's own position is the last key, and not the first query's the first key.
    pub(crate) from_end: bool,
}

/// A number of an extent: extents lie far below 2^63, and so do their sums.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Geometry {
    /// The heads of q that share one of k.
    pub(crate) fn group(&self) -> u64 {
        self.heads.checked_div(self.kv_heads).unwrap_or(1)
    }

    /// The keys of a sample, from what its length says.
    pub(crate) fn length(&self, length: i64) -> u64 {
        u64::try_from(length).unwrap_or(0).min(self.keys)
    }

    /// The keys that a query sees in a sample of `length` keys, whatever the bias says.
    pub(crate) fn visible(&self, query: u64, length: u64) -> Range<u64> {
        let own = signed(query) + if self.from_end { signed(length) - signed(self.queries) } else { 0 };
        let clamped = |key: i64| u64::try_from(key).unwrap_or(0).min(length);
        let first = self.left.map_or(0, |left| clamped(own.saturating_sub(signed(left))));
        let end = self.right.map_or(length, |right| clamped(own.saturating_add(signed(right)).saturating_add(1)));
        first..end.max(first)
    }

    /// Pairs of a query and a key that it sees, of one sample and head, in samples of all keys and whatever the bias says.
    fn pairs(&self) -> u64 {
        let [queries, keys] = [self.queries, self.keys].map(i128::from);
        let ahead = if self.from_end { keys - queries } else { 0 };
        // Query i sees the keys before i + `by`, of those that are there.
        let before = |by: i128| {
            let first = (-by).clamp(0, queries);
            let all = (keys - by).clamp(first, queries);
            (all - first) * (first + all - 1 + 2 * by) / 2 + (queries - all) * keys
        };
        let end = self.right.map_or(queries * keys, |right| before(ahead + i128::from(right) + 1));
        let start = self.left.map_or(0, |left| before(ahead - i128::from(left)));
        u64::try_from(end - start).unwrap_or(u64::MAX)
    }

    /// Floating-point operations of so many products of rows of D, and so many of rows of Dv, for each pair of a query and a key that it sees.
    pub(crate) fn flops(&self, [of_depth, of_value_depth]: [u64; 2]) -> u64 {
        let terms = self.depth.saturating_mul(of_depth).saturating_add(self.value_depth.saturating_mul(of_value_depth));
        [self.samples, self.heads, self.pairs()].into_iter().fold(terms.saturating_mul(2), u64::saturating_mul)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(queries: u64, keys: u64) -> Geometry {
        Geometry {
            samples: 1,
            heads: 1,
            kv_heads: 1,
            queries,
            keys,
            pages: None,
            depth: 1,
            value_depth: 1,
            scale: Real::default(),
            soft_cap: None,
            mask: Mask::None,
            bias: None,
            bias_dims: [1; 4],
            lengths: None,
            left: None,
            right: None,
            from_end: true,
        }
    }

    #[test]
    fn queries_see_the_keys_that_the_rules_leave() {
        let all = |it: Geometry, length| (0..it.queries).map(|query| it.visible(query, length)).collect::<Vec<_>>();
        let it = geometry(3, 5);
        assert_eq!(all(it, 5), [0..5, 0..5, 0..5]);
        let causal = Geometry { right: Some(0), ..it };
        assert_eq!(all(causal, 5), [0..3, 0..4, 0..5]);
        assert_eq!(all(causal, 4), [0..2, 0..3, 0..4]);
        // Fewer keys than queries: the first ones see none.
        assert_eq!(all(causal, 2), [0..0, 0..1, 0..2]);
        assert!(all(causal, 0).iter().all(Range::is_empty));
        let top_left = Geometry { from_end: false, ..causal };
        assert_eq!(all(top_left, 5), [0..1, 0..2, 0..3]);
        assert_eq!(all(top_left, 2), [0..1, 0..2, 0..2]);
        let window = Geometry { left: Some(1), right: Some(1), ..it };
        assert_eq!(all(window, 5), [1..4, 2..5, 3..5]);
        let far = Geometry { left: Some(u64::MAX), right: Some(u64::MAX), ..it };
        assert_eq!(all(far, 5), all(it, 5));
        assert_eq!([-1, 0, 3, 9].map(|length| it.length(length)), [0, 0, 3, 5]);
    }

    #[test]
    fn pairs_are_those_of_all_queries() {
        for (queries, keys) in [(3, 5), (5, 3), (1, 7), (4, 4), (0, 3), (3, 0)] {
            for (left, right) in [None, Some(0), Some(1), Some(9), Some(u64::MAX)]
                .into_iter()
                .flat_map(|left| [(left, None), (left, Some(0)), (left, Some(2))])
            {
                for from_end in [false, true] {
                    let it = Geometry { left, right, from_end, ..geometry(queries, keys) };
                    let counted = (0..queries)
                        .map(|query| it.visible(query, keys))
                        .map(|seen| seen.end - seen.start)
                        .sum::<u64>();
                    assert_eq!(it.pairs(), counted, "{queries} {keys} {left:?} {right:?} {from_end}");
                }
            }
        }
    }
}
