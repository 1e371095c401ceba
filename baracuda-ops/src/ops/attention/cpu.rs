//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output. A thread takes a query, a key, or an element of the
//! bias.

use super::geometry::{Geometry, Mask};
use super::{BackwardFields, ForwardFields, Gradient, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, Tensor, held, room, threads};
use crate::kernel::Accepted;
use crate::narrow::to_usize;

/// The reference of forward.
pub(super) fn forward(valid: &Valid<ForwardFields>) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_forward).batch_invariant())
}

/// The reference of backward.
pub(super) fn backward(valid: &Valid<BackwardFields>) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_backward).batch_invariant_if(valid.fields.dbias.is_none()))
}

/// A place of the scores: the sample, the head of q, the query and the key.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) sample: u64,
    pub(super) head: u64,
    pub(super) query: u64,
    pub(super) key: u64,
}

impl At {
    /// The query with a number, at its first key.
    pub(super) fn query(geometry: &Geometry, number: u64) -> Self {
        let (rest, query) = (number / geometry.queries, number % geometry.queries);
        Self { sample: rest / geometry.heads, head: rest % geometry.heads, query, key: 0 }
    }

    /// The key with a number, at the first query of the first head that shares it.
    fn key(geometry: &Geometry, number: u64) -> Self {
        let (rest, key) = (number / geometry.keys, number % geometry.keys);
        let head = rest % geometry.kv_heads * geometry.group();
        Self { sample: rest / geometry.kv_heads, head, query: 0, key }
    }
}

/// The operands that both ops have.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) q: Option<Tensor<'a>>,
    pub(super) k: Option<Tensor<'a>>,
    pub(super) v: Option<Tensor<'a>>,
    pub(super) bias: Option<Tensor<'a>>,
    pub(super) lengths: Option<Tensor<'a>>,
    pub(super) pages: Option<Tensor<'a>>,
}

/// Where the row of a tensor with extents `[.., .., .., depth]` begins.
pub(super) fn row(tensor: &Tensor<'_>, [sample, head, at]: [u64; 3]) -> u64 {
    let strides = tensor.desc().strides();
    sample * strides[0] + head * strides[1] + at * strides[2]
}

/// The elements of a row.
pub(super) fn values<'t>(tensor: &'t Tensor<'_>, at: [u64; 3]) -> impl Iterator<Item = f64> + 't {
    let (first, desc) = (row(tensor, at), tensor.desc());
    let (depth, step) = (desc.dims()[3], desc.strides()[3]);
    (0..depth).map(move |d| tensor.load(first + d * step))
}

/// The product of a row that is held and of another.
fn dot(row: &[f64], tensor: &Tensor<'_>, at: [u64; 3]) -> f64 {
    row.iter().zip(values(tensor, at)).map(|(a, b)| a * b).collect::<Sum>().total()
}

/// Adds a row with a weight to sums.
fn add(sums: &mut [Sum], weight: f64, tensor: &Tensor<'_>, at: [u64; 3]) {
    sums.iter_mut().zip(values(tensor, at)).for_each(|(sum, value)| sum.add(weight * value));
}

/// Writes `beta` times what is there and a value.
///
/// # Safety
/// No other thread uses this element.
pub(super) unsafe fn store(tensor: &Tensor<'_>, offset: u64, value: f64, beta: f64) {
    let before = if beta == 0.0 { 0.0 } else { beta * tensor.load(offset) };
    // SAFETY: the caller is alone at this element.
    unsafe { tensor.store(offset, before + value) };
}

/// As [`store`], a row.
///
/// # Safety
/// No other thread uses this row.
unsafe fn store_row(tensor: &Tensor<'_>, at: [u64; 3], sums: &[Sum], factor: f64, beta: f64) {
    let (first, step) = (row(tensor, at), tensor.desc().strides()[3]);
    for (d, sum) in (0..).zip(sums) {
        // SAFETY: the caller is alone at this row.
        unsafe { store(tensor, first + d * step, factor * sum.total(), beta) };
    }
}

fn no_sums(count: u64) -> Result<Vec<Sum>, Shortage> {
    held(count, (0..count).map(|_| Sum::default()))
}

impl<'a> Inputs<'a> {
    /// The keys that the query of a place sees by its number.
    pub(super) fn visible(&self, at: At) -> std::ops::Range<u64> {
        self.geometry.visible(at.query, self.length(at.sample))
    }

    pub(super) fn length(&self, sample: u64) -> u64 {
        let Some(lengths) = self.lengths else { return self.geometry.keys };
        self.geometry.length(lengths.load_integer(sample * lengths.desc().strides()[0]))
    }

    /// Where the bias of a place lies.
    pub(super) fn bias_offset(&self, at: At) -> u64 {
        let strides =
            self.geometry.bias.as_ref().map_or([0; 4], |bias| std::array::from_fn(|axis| bias.strides()[axis]));
        let place = [at.sample, at.head, at.query, at.key];
        place.iter().zip(strides).map(|(at, stride)| at * stride).sum()
    }

    /// Where the key of a place lies, and its value, if not in a page.
    pub(super) fn kv(&self, at: At) -> [u64; 3] {
        [at.sample, at.head / self.geometry.group(), at.key]
    }

    /// Where the key of a place lies, and its value, unless it is in no page.
    pub(super) fn place(&self, at: At) -> Option<[u64; 3]> {
        let [_, head, _] = self.kv(at);
        let (Some(of), Some(pages)) = (self.geometry.pages, self.pages) else { return Some(self.kv(at)) };
        let strides = pages.desc().strides();
        let number = pages.load_integer(at.sample * strides[0] + at.key / of.page * strides[1]);
        let page = u64::try_from(number).ok().filter(|&page| page < of.count)?;
        Some([page, head, at.key % of.page])
    }

    /// The score of a key that is seen, and the derivative of the soft cap there.
    fn score(&self, query: &[f64], at: At) -> Option<(f64, f64)> {
        let seen = match (self.geometry.mask, self.bias) {
            (Mask::Bool, Some(bias)) => bias.load_integer(self.bias_offset(at)) != 0,
            _ => true,
        };
        let (k, place) = (self.k.filter(|_| seen)?, self.place(at)?);
        let product = self.geometry.scale.get() * dot(query, &k, place);
        let (capped, slope) = match self.geometry.soft_cap {
            None => (product, 1.0),
            Some(cap) => {
                let tanh = (product / cap.get()).tanh();
                (cap.get() * tanh, 1.0 - tanh * tanh)
            }
        };
        match (self.geometry.mask, self.bias) {
            (Mask::Bias(_), Some(bias)) => Some((capped + bias.load(self.bias_offset(at)), slope)),
            _ => Some((capped, slope)),
        }
    }
}

/// The largest score, and the logarithm of the sum of exponentials of differences from it: where there is a NaN or +infinity both are NaN, without a score above
/// -infinity both are that.
fn largest_and_log_sum(scores: &[(u64, f64)]) -> (f64, f64) {
    let larger =
        |largest: f64, &(_, score): &(u64, f64)| if score > largest || score.is_nan() { score } else { largest };
    let largest = scores.iter().fold(f64::NEG_INFINITY, larger);
    if largest == f64::NEG_INFINITY {
        return (largest, largest);
    }
    if !largest.is_finite() {
        return (f64::NAN, f64::NAN);
    }
    let sum = scores.iter().map(|(_, score)| (score - largest).exp()).collect::<Sum>().total();
    (largest, sum.ln())
}

fn compute_forward(valid: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
    use forward::{BIAS, K, LENGTHS, LSE, PAGES, Q, V, Y};
    let geometry = &valid.derived;
    let [q, k, v, bias, lengths, pages] = [Q, K, V, BIAS, LENGTHS, PAGES].map(|row| operands.get(row));
    let inputs = Inputs { geometry, q, k, v, bias, lengths, pages };
    let (Some(q), Some(y)) = (q, operands.get(Y)) else { return Ok(()) };
    let queries = geometry.samples * geometry.heads * geometry.queries;
    let elements = queries.saturating_mul(geometry.keys.max(1)).saturating_mul(geometry.depth);
    threads::try_for_each(queries, elements, |number| {
        let at = At::query(geometry, number);
        let place = [at.sample, at.head, at.query];
        let query = held(geometry.depth, values(&q, place))?;
        let visible = inputs.visible(at);
        let mut scores = room(visible.end - visible.start)?;
        scores.extend(visible.filter_map(|key| Some((key, inputs.score(&query, At { key, ..at })?.0))));
        let (largest, log_sum) = largest_and_log_sum(&scores);
        let mut sums = no_sums(geometry.value_depth)?;
        if let Some(v) = v.filter(|_| largest != f64::NEG_INFINITY) {
            for &(key, score) in &scores {
                let weight = ((score - largest) - log_sum).exp();
                if let Some(place) = inputs.place(At { key, ..at }) {
                    add(&mut sums, weight, &v, place);
                }
            }
        }
        // SAFETY: each query is one task, and outputs address every element once.
        unsafe {
            store_row(&y, place, &sums, 1.0, 0.0);
            if let Some(lse) = operands.get(LSE) {
                let lse_at = if largest == f64::NEG_INFINITY { largest } else { largest + log_sum };
                lse.store(row(&lse, place), lse_at);
            }
        }
        Ok(())
    })
}

/// What the gradients of a place follow from.
struct Backward<'a> {
    inputs: Inputs<'a>,
    lse: Tensor<'a>,
    dy: Tensor<'a>,
    /// Of each query.
    delta: Vec<f64>,
}

/// The gradients at a place.
struct Slopes {
    /// The weight.
    p: f64,
    /// Of the score with its bias.
    ds: f64,
    /// Of the product of query and key, before the scale.
    dproduct: f64,
}

impl Backward<'_> {
    fn lse(&self, at: At) -> f64 {
        self.lse.load(row(&self.lse, [at.sample, at.head, at.query]))
    }

    /// Of a key that is seen, for a query and its dy.
    fn slopes(&self, query: &[f64], dy: &[f64], at: At) -> Option<Slopes> {
        let geometry = self.inputs.geometry;
        let lse = self.lse(at);
        if lse == f64::NEG_INFINITY {
            return None;
        }
        let (score, slope) = self.inputs.score(query, at)?;
        let p = (score - lse).exp();
        let dp = dot(dy, &self.inputs.v?, self.inputs.kv(at));
        let number = (at.sample * geometry.heads + at.head) * geometry.queries + at.query;
        let ds = p * (dp - self.delta[to_usize(number)]);
        Some(Slopes { p, ds, dproduct: ds * slope })
    }

    fn query_and_dy(&self, at: At) -> Result<[Vec<f64>; 2], Shortage> {
        let (geometry, place) = (self.inputs.geometry, [at.sample, at.head, at.query]);
        let query = self.inputs.q.map_or(Ok(Vec::new()), |q| held(geometry.depth, values(&q, place)))?;
        Ok([query, held(geometry.value_depth, values(&self.dy, place))?])
    }

    fn pairs(&self) -> u64 {
        let Geometry { samples, heads, queries, keys, depth, .. } = *self.inputs.geometry;
        (samples * heads * queries).saturating_mul(keys.max(1)).saturating_mul(depth)
    }

    fn dq(&self, dq: &Tensor<'_>, gradient: Gradient) -> Outcome {
        let geometry = self.inputs.geometry;
        threads::try_for_each(geometry.samples * geometry.heads * geometry.queries, self.pairs(), |number| {
            let at = At::query(geometry, number);
            let [query, dy] = self.query_and_dy(at)?;
            let mut sums = no_sums(geometry.depth)?;
            for key in self.inputs.visible(at) {
                let at = At { key, ..at };
                if let Some((slopes, k)) = self.slopes(&query, &dy, at).zip(self.inputs.k) {
                    add(&mut sums, slopes.dproduct, &k, self.inputs.kv(at));
                }
            }
            // SAFETY: each query is one task, and outputs address every element once.
            unsafe { store_row(dq, [at.sample, at.head, at.query], &sums, geometry.scale.get(), gradient.beta()) };
            Ok(())
        })
    }

    fn dk_and_dv(&self, dk: Option<(Tensor<'_>, Gradient)>, dv: Option<(Tensor<'_>, Gradient)>) -> Outcome {
        let geometry = self.inputs.geometry;
        threads::try_for_each(geometry.samples * geometry.kv_heads * geometry.keys, self.pairs(), |number| {
            let at = At::key(geometry, number);
            let [mut of_k, mut of_v] = [no_sums(geometry.depth)?, no_sums(geometry.value_depth)?];
            let heads = at.head..at.head + geometry.group();
            for (head, query) in heads.flat_map(|head| (0..geometry.queries).map(move |query| (head, query))) {
                let at = At { head, query, ..at };
                if !self.inputs.visible(at).contains(&at.key) {
                    continue;
                }
                let [row, dy] = self.query_and_dy(at)?;
                let Some(slopes) = self.slopes(&row, &dy, at) else { continue };
                of_k.iter_mut().zip(row).for_each(|(sum, value)| sum.add(slopes.dproduct * value));
                of_v.iter_mut().zip(dy).for_each(|(sum, value)| sum.add(slopes.p * value));
            }
            for (out, sums, factor) in [(&dk, of_k, geometry.scale.get()), (&dv, of_v, 1.0)] {
                let Some((tensor, gradient)) = out else { continue };
                // SAFETY: each key is one task, and outputs address every element once.
                unsafe { store_row(tensor, self.inputs.kv(at), &sums, factor, gradient.beta()) };
            }
            Ok(())
        })
    }

    fn dbias(&self, dbias: &Tensor<'_>, gradient: Gradient) -> Outcome {
        let geometry = self.inputs.geometry;
        let own = geometry.bias_dims;
        let scores = [geometry.samples, geometry.heads, geometry.queries, geometry.keys];
        // Along an extent that is repeated every place counts.
        let along = |axis: usize, at: u64| if own[axis] == scores[axis] { at..at + 1 } else { 0..scores[axis] };
        let strides = dbias.desc().strides();
        threads::try_for_each(own.iter().product(), self.pairs(), |number| {
            let mut rest = number;
            let mut place = [0; 4];
            for axis in (0..4).rev() {
                (place[axis], rest) = (rest % own[axis], rest / own[axis]);
            }
            let mut sum = Sum::default();
            let queries = along(0, place[0]).flat_map(|sample| {
                let heads = along(1, place[1]).flat_map(|head| along(2, place[2]).map(move |query| (head, query)));
                heads.map(move |(head, query)| At { sample, head, query, key: 0 })
            });
            for at in queries {
                let [query, dy] = self.query_and_dy(at)?;
                let visible = self.inputs.visible(at);
                for key in along(3, place[3]).filter(|key| visible.contains(key)) {
                    sum.extend(self.slopes(&query, &dy, At { key, ..at }).map(|slopes| slopes.ds));
                }
            }
            let of_rank = place[4 - strides.len()..].iter().zip(strides);
            let offset = of_rank.map(|(at, stride)| at * stride).sum();
            // SAFETY: each element is one task, and outputs address every element once.
            unsafe { store(dbias, offset, sum.total(), gradient.beta()) };
            Ok(())
        })
    }
}

fn compute_backward(valid: &Valid<BackwardFields>, operands: &Operands<'_>) -> Outcome {
    use backward::{BIAS, DBIAS, DK, DQ, DV, DY, K, LENGTHS, LSE, Q, V, Y};
    let (fields, geometry) = (&valid.fields, &valid.derived);
    let [q, k, v, bias, lengths] = [Q, K, V, BIAS, LENGTHS].map(|row| operands.get(row));
    let inputs = Inputs { geometry, q, k, v, bias, lengths, pages: None };
    let out = |row: usize, gradient: Option<Gradient>| operands.get(row).zip(gradient);
    let (dk, dv) = (out(DK, fields.dk), out(DV, fields.dv));
    let Some(((y, lse), dy)) = operands.get(Y).zip(operands.get(LSE)).zip(operands.get(DY)) else {
        return without_queries([dk, dv, out(DBIAS, fields.dbias)]);
    };
    let queries = geometry.samples * geometry.heads * geometry.queries;
    let delta = threads::map(queries, queries.saturating_mul(geometry.value_depth), |number| {
        let at = At::query(geometry, number);
        let place = [at.sample, at.head, at.query];
        let row: Vec<f64> = held(geometry.value_depth, values(&y, place))?;
        Ok::<_, Shortage>(dot(&row, &dy, place))
    })?;
    let of = Backward { inputs, lse, dy, delta };
    if let Some((dq, gradient)) = out(DQ, fields.dq) {
        of.dq(&dq, gradient)?;
    }
    if dk.is_some() || dv.is_some() {
        of.dk_and_dv(dk, dv)?;
    }
    if let Some((dbias, gradient)) = out(DBIAS, fields.dbias) {
        of.dbias(&dbias, gradient)?;
    }
    Ok(())
}

/// Gradients that are sums over no query.
pub(super) fn without_queries<const N: usize>(outputs: [Option<(Tensor<'_>, Gradient)>; N]) -> Outcome {
    for (tensor, gradient) in outputs.into_iter().flatten() {
        let desc = *tensor.desc();
        for number in 0..desc.elements() {
            let (mut rest, mut offset) = (number, 0);
            for (&dim, &stride) in desc.dims().iter().zip(desc.strides()).rev() {
                offset += rest % dim * stride;
                rest /= dim;
            }
            // SAFETY: no other thread is at work.
            unsafe { store(&tensor, offset, 0.0, gradient.beta()) };
        }
    }
    Ok(())
}
