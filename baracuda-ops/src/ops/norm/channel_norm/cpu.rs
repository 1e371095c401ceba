//! The reference: the formulas of the family in f64, with compensated sums, for any strides; results are rounded once, to the output's type.

use super::{BackwardFields, ChannelNorm, ChannelShape, ForwardFields, Valid};
use crate::backend::cpu::{Operands, Outcome, Sum, Tensor, held, threads};
use crate::narrow::to_usize;
use crate::ops::norm::statistics::Statistics;

/// A tensor `[batch, channels, spatial..]`. It takes the same memory whatever its extents, which may be huge where strides are 0.
struct Segments<'a> {
    tensor: Tensor<'a>,
    /// The spatial axes, outermost first.
    spatial: [Axis; 3],
}

/// An axis, or neighbouring axes whose elements are evenly spaced.
#[derive(Clone, Copy)]
struct Axis {
    dim: u64,
    stride: u64,
}

impl<'a> Segments<'a> {
    fn new(tensor: Tensor<'a>) -> Self {
        const ONE: Axis = Axis { dim: 1, stride: 0 };
        let desc = tensor.desc();
        let (mut spatial, mut first) = ([ONE; 3], 3);
        for (&dim, &stride) in desc.dims().iter().zip(desc.strides()).skip(2).rev().filter(|(dim, _)| **dim != 1) {
            match spatial.get_mut(first) {
                Some(inner) if inner.dim.checked_mul(inner.stride) == Some(stride) => inner.dim *= dim,
                _ => {
                    first -= 1;
                    spatial[first] = Axis { dim, stride };
                }
            }
        }
        Self { tensor, spatial }
    }

    /// Offsets of the elements of a segment, in row-major order.
    fn offsets(&self, (n, c): (u64, u64)) -> Offsets {
        let strides = self.tensor.desc().strides();
        let [outer, middle, inner] = self.spatial;
        let lines = outer.dim * middle.dim;
        Offsets { start: n * strides[0] + c * strides[1], outer, middle, inner, line: 0, lines, at: 0, left: 0 }
    }

    fn load(&self, segment: (u64, u64)) -> impl Iterator<Item = f64> {
        self.offsets(segment).map(|at| self.tensor.load(at))
    }

    /// # Safety
    /// No other thread reads or writes that segment during the call.
    unsafe fn store(&self, segment: (u64, u64), values: impl Iterator<Item = f64>) {
        for (at, value) in self.offsets(segment).zip(values) {
            // SAFETY: no other thread uses this segment, and an output has no two elements at one address.
            unsafe { self.tensor.store(at, value) };
        }
    }
}

/// Offsets of the elements of a segment: three nested loops, as an iterator with few instructions a step.
struct Offsets {
    start: u64,
    outer: Axis,
    middle: Axis,
    inner: Axis,
    /// The next line along the inner axis.
    line: u64,
    lines: u64,
    /// The next element of the line that is being walked.
    at: u64,
    /// How many elements that line still has.
    left: u64,
}

impl Iterator for Offsets {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            if self.line == self.lines || self.inner.dim == 0 {
                return None;
            }
            let [i, j] = [self.line / self.middle.dim, self.line % self.middle.dim];
            self.at = self.start + i * self.outer.stride + j * self.middle.stride;
            self.left = self.inner.dim;
            self.line += 1;
        }
        let at = self.at;
        self.at = at.wrapping_add(self.inner.stride); // After the last element this may overflow, and is not used.
        self.left -= 1;
        Some(at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = (self.lines - self.line).saturating_mul(self.inner.dim).saturating_add(self.left);
        (usize::try_from(rest).unwrap_or(usize::MAX), usize::try_from(rest).ok())
    }
}

/// Elements of a segment of an operand.
fn values(tensor: &Option<Segments<'_>>, segment: (u64, u64)) -> Option<impl Iterator<Item = f64>> {
    tensor.as_ref().map(move |tensor| tensor.load(segment))
}

/// Offset of an element of a tensor of one or two extents, in row-major order.
fn offset(tensor: &Tensor<'_>, index: u64) -> u64 {
    let desc = tensor.desc();
    let (inner, strides) = (desc.dims()[desc.rank() - 1], desc.strides());
    if desc.rank() == 1 { index * strides[0] } else { index / inner * strides[0] + index % inner * strides[1] }
}

/// Element `index` of an operand of one or two extents.
pub(super) fn element(tensor: &Option<Tensor<'_>>, index: u64) -> Option<f64> {
    tensor.as_ref().map(|tensor| tensor.load(offset(tensor, index)))
}

/// Writes element `index` of an operand of one or two extents.
///
/// # Safety
/// No other thread reads or writes that element during the call.
pub(super) unsafe fn set(tensor: &Option<Tensor<'_>>, index: u64, value: f64) {
    if let Some(tensor) = tensor {
        // SAFETY: no other thread uses this element.
        unsafe { tensor.store(offset(tensor, index), value) };
    }
}

impl ChannelShape {
    /// Sample and channel of each segment of a group; none if segments have no elements.
    fn segments(&self, group: u64) -> impl Iterator<Item = (u64, u64)> {
        let Self { groups, .. } = *self;
        let of_group = if groups == 0 { self.batch } else { self.group_segments() };
        let count = if self.spatial == 0 { 0 } else { of_group };
        (0..count).map(move |at| match groups {
            0 => (at, group),
            _ => (group / groups, group % groups * of_group + at),
        })
    }

    /// The number of elements of a group.
    pub(super) fn group_elements(&self) -> u64 {
        let segments = if self.groups == 0 { self.batch } else { self.group_segments() };
        segments.saturating_mul(self.spatial)
    }

    /// The group of a segment.
    pub(super) fn group_of(&self, (n, c): (u64, u64)) -> u64 {
        if self.groups == 0 { c } else { n * self.groups + c / self.group_segments().max(1) }
    }
}

/// The reference of forward.
pub(super) fn forward(norm: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
    use super::forward::{BIAS, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
    let (fields, shape) = (&norm.fields, norm.shape());
    let of = |operand| operands.get(operand);
    let tensor = |operand| of(operand).map(Segments::new);
    let (x, residual, y) = (tensor(X), tensor(RESIDUAL), tensor(Y));
    let (weight, bias) = (of(WEIGHT), of(BIAS));
    let (running_mean, running_var) = (of(RUNNING_MEAN), of(RUNNING_VAR));
    let (mean_out, rstd_out) = (of(MEAN), of(RSTD));
    let eps = fields.eps.get();
    if y.is_none() && mean_out.is_none() {
        return Ok(()); // Nothing is to be written, however many groups there are.
    }

    let groups = threads::map(shape.group_count(), fields.x.elements(), |group| {
        // A group is read before any of it is written, since y may lie in the place of x.
        let all = x.iter().flat_map(|x| shape.segments(group).flat_map(|segment| x.load(segment)));
        let values = held(shape.group_elements(), all)?;
        let statistics = if fields.inference {
            let (mean, var) = (element(&running_mean, group), element(&running_var, group));
            Statistics { mean: mean.unwrap_or(0.0), correction: 0.0, var: var.unwrap_or(f64::NAN) }
        } else {
            Statistics::of(&values)
        };
        let Statistics { mean, correction, var } = statistics;
        // A running variance is given, and may be infinite.
        let rstd = if fields.inference { 1.0 / (var + eps).sqrt() } else { statistics.rstd(eps) };
        for (segment, values) in shape.segments(group).zip(values.chunks_exact(to_usize(shape.spatial.max(1)))) {
            let Some(y) = &y else { continue };
            let scale = element(&weight, segment.1).unwrap_or(1.0);
            let shift = element(&bias, segment.1).unwrap_or(0.0);
            let more = residual.as_ref().map(|residual| held(shape.spatial, residual.load(segment))).transpose()?;
            let results = values.iter().enumerate().map(|(i, value)| {
                let affine = ((value - mean) - correction) * rstd * scale + shift;
                fields.activation.apply(more.as_ref().map_or(affine, |more| affine + more[i]))
            });
            // SAFETY: each group is one task, and segments belong to one group.
            unsafe { y.store(segment, results) };
        }
        // SAFETY: each group is one task.
        unsafe {
            set(&mean_out, group, mean + correction);
            set(&rstd_out, group, rstd);
        }
        Ok(statistics)
    })?;

    if !fields.inference {
        update_running(norm, &groups, operands);
    }
    Ok(())
}

/// Moves the running statistics towards those of the groups, and counts the batch.
pub(super) fn update_running(norm: &Valid<ForwardFields>, groups: &[Statistics], operands: &Operands<'_>) {
    use super::forward::{NUM_BATCHES, RUNNING_MEAN, RUNNING_VAR};
    let (fields, shape) = (&norm.fields, norm.shape());
    let of = |operand| operands.get(operand);
    let (running_mean, running_var, num_batches) = (of(RUNNING_MEAN), of(RUNNING_VAR), of(NUM_BATCHES));
    let values = match norm.op.kind {
        ChannelNorm::Batch => shape.batch.saturating_mul(shape.spatial),
        ChannelNorm::Group | ChannelNorm::Instance => shape.spatial,
    };
    if values == 0 || shape.batch == 0 {
        return;
    }
    let batches = num_batches.as_ref().map(|t| t.load_integer(0));
    let momentum = batches.map_or(fields.momentum.map_or(0.0, |m| m.get()), |t| 1.0 / (t as f64 + 1.0));
    let unbiased = values as f64 / (values as f64 - 1.0);
    for c in 0..shape.channels {
        // BatchNorm has one group for a channel, InstanceNorm one for each sample.
        let of_channel = || groups.iter().skip(to_usize(c)).step_by(to_usize(shape.channels));
        let count = of_channel().count() as f64;
        let mean = of_channel().map(|s| s.mean + s.correction).collect::<Sum>().total() / count;
        let var = of_channel().map(|s| s.var * unbiased).collect::<Sum>().total() / count;
        for (running, batch) in [(&running_mean, mean), (&running_var, var)] {
            let Some(before) = element(running, c) else { continue };
            // SAFETY: all tasks have ended.
            unsafe { set(running, c, (1.0 - momentum) * before + momentum * batch) };
        }
    }
    if let (Some(num_batches), Some(batches)) = (&num_batches, batches) {
        // SAFETY: all tasks have ended.
        unsafe { num_batches.store_integer(0, batches.wrapping_add(1)) };
    }
}

/// What the gradients are computed from.
struct Gradient<'a> {
    fields: &'a BackwardFields,
    shape: ChannelShape,
    dy: Option<Segments<'a>>,
    x: Option<Segments<'a>>,
    residual: Option<Segments<'a>>,
    y: Option<Segments<'a>>,
    weight: Option<Tensor<'a>>,
    bias: Option<Tensor<'a>>,
    /// The saved mean, in inference the running one.
    mean: Option<Tensor<'a>>,
    /// The saved rstd, in inference the running variance.
    rstd: Option<Tensor<'a>>,
}

impl Gradient<'_> {
    /// Mean and rstd of a group.
    fn statistics(&self, group: u64) -> (f64, f64) {
        let mean = element(&self.mean, group).unwrap_or(0.0);
        let second = element(&self.rstd, group).unwrap_or(f64::NAN);
        (mean, self.fields.eps.map_or(second, |eps| 1.0 / (second + eps.get()).sqrt()))
    }

    /// The weight of a segment.
    fn scale(&self, (_, c): (u64, u64)) -> f64 {
        element(&self.weight, c).unwrap_or(1.0)
    }

    /// The gradient of the pre-activation, and xhat, of each element of a segment. They are not stored: a segment whose strides are 0 may have far
    /// more elements than memory.
    fn terms(&self, segment: (u64, u64)) -> impl Iterator<Item = (f64, f64)> {
        let (mean, rstd) = self.statistics(self.shape.group_of(segment));
        let (scale, shift) = (self.scale(segment), element(&self.bias, segment.1).unwrap_or(0.0));
        let (mut dy, mut x) = (values(&self.dy, segment), values(&self.x, segment));
        let (mut more, mut y) = (values(&self.residual, segment), values(&self.y, segment));
        std::iter::from_fn(move || {
            let (dy, x) = (dy.as_mut()?.next()?, x.as_mut()?.next()?);
            let more = more.as_mut().and_then(Iterator::next);
            let y = y.as_mut().and_then(Iterator::next);
            let xhat = (x - mean) * rstd;
            let pre = y.unwrap_or_else(|| xhat * scale + shift + more.unwrap_or(0.0));
            Some((self.fields.activation.gradient(pre, dy), xhat))
        })
    }
}

/// The reference of the gradients.
pub(super) fn backward(norm: &Valid<BackwardFields>, operands: &Operands<'_>) -> Outcome {
    use super::backward::{
        BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
    };
    let (fields, shape) = (&norm.fields, norm.shape());
    let of = |operand| operands.get(operand);
    let tensor = |operand| of(operand).map(Segments::new);
    let gradient = Gradient {
        fields,
        shape,
        dy: tensor(DY),
        x: tensor(X),
        residual: tensor(RESIDUAL),
        y: tensor(Y),
        weight: of(WEIGHT),
        bias: of(BIAS),
        mean: of(MEAN).or(of(RUNNING_MEAN)),
        rstd: of(RSTD).or(of(RUNNING_VAR)),
    };

    let elements = fields.x.elements();
    // The gradients of parameters come first, since dx may lie in the place of dy.
    let (dweight, dbias) = (of(DWEIGHT), of(DBIAS));
    if dweight.is_some() || dbias.is_some() {
        threads::for_each(shape.channels, elements, |c| {
            let (mut weights, mut biases) = (Sum::default(), Sum::default());
            let samples = if shape.spatial == 0 { 0 } else { shape.batch };
            for n in 0..samples {
                for (dpre, xhat) in gradient.terms((n, c)) {
                    weights.add(dpre * xhat);
                    biases.add(dpre);
                }
            }
            // SAFETY: each channel is one task.
            unsafe {
                set(&dweight, c, weights.total());
                set(&dbias, c, biases.total());
            }
        });
    }

    let (dx, dresidual) = (tensor(DX), tensor(DRESIDUAL));
    if dx.is_none() && dresidual.is_none() {
        return Ok(());
    }
    threads::try_for_each(shape.group_count(), elements, |group| {
        // A group is read before any of it is written.
        let all = shape.segments(group).flat_map(|segment| gradient.terms(segment));
        let terms = held(shape.group_elements(), all)?;
        let of_segment = to_usize(shape.spatial.max(1));
        let segments = || {
            let terms = shape.segments(group).zip(terms.chunks_exact(of_segment));
            terms.map(|(segment, terms)| (segment, gradient.scale(segment), terms))
        };
        let (_, rstd) = gradient.statistics(group);
        let (mut count, mut sum_g, mut sum_gx) = (0.0, Sum::default(), Sum::default());
        for (_, scale, terms) in segments() {
            for (dpre, xhat) in terms {
                count += 1.0;
                sum_g.add(dpre * scale);
                sum_gx.add(dpre * scale * xhat);
            }
        }
        let (mean_g, mean_gx) = (sum_g.total() / count, sum_gx.total() / count);
        for (segment, scale, terms) in segments() {
            let of_x = terms.iter().map(|(dpre, xhat)| match fields.inference {
                true => rstd * (dpre * scale),
                false => rstd * (dpre * scale - mean_g - xhat * mean_gx),
            });
            // SAFETY: each group is one task, and segments belong to one group.
            unsafe {
                if let Some(dx) = &dx {
                    dx.store(segment, of_x);
                }
                if let Some(dresidual) = &dresidual {
                    dresidual.store(segment, terms.iter().map(|(dpre, _)| *dpre));
                }
            }
        }
        Ok(())
    })
}
