//! Which elements the windows see, along each spatial axis.

use std::ops::Range;

use super::Fields;
use crate::error::Result;
use crate::narrow::signed;
use crate::ops::fields::require;

/// The most spatial extents.
pub(crate) const MAX_AXES: usize = 3;

/// Paddings, strides and reaches of the dilated kernel are below this, so that they fit into 32 bits with a sign.
const LIMIT: u64 = 1 << 31;

/// One spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Axis {
    pub(super) input: u64,
    pub(super) output: u64,
    /// Places of the longest window.
    pub(super) kernel: u64,
    pub(super) stride: u64,
    pub(super) dilation: u64,
    pub(super) before: u64,
    pub(super) after: u64,
    /// Windows divide the input evenly, whatever the other numbers are.
    pub(super) is_adaptive: bool,
}

/// What a window has along an axis: places, of which those of a range lie in x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Where place 0 lies, from the first element of x on.
    pub(super) start: i64,
    /// From one place to the next.
    pub(super) step: u64,
    /// Places of the window.
    pub(super) places: u64,
    /// Those in x.
    pub(super) inside: Range<u64>,
    /// Places up to the end of the padding, by which averages divide.
    pub(super) padded: u64,
}

impl Span {
    /// The element at a place in x.
    pub(super) fn element(&self, place: u64) -> u64 {
        self.start.saturating_add(signed(place * self.step)).unsigned_abs()
    }

    pub(super) fn elements(&self) -> u64 {
        self.inside.end - self.inside.start
    }

    /// The place of an element, if it has one.
    pub(super) fn place(&self, element: u64) -> Option<u64> {
        let behind = u64::try_from(signed(element) - self.start).ok()?;
        let place = behind / self.step;
        (behind.is_multiple_of(self.step) && place < self.places).then_some(place)
    }
}

/// The greatest common divisor of two numbers, not both 0.
fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Parts of an extent that meet part `at` of `count` equal ones, among `others` equal ones.
fn shared(at: u64, count: u64, others: u64) -> Range<u64> {
    let [at, count, others] = [at, count, others].map(u128::from);
    let bounds = [at * others / count, ((at + 1) * others).div_ceil(count)];
    // Both are at most `others`.
    let [start, end] = bounds.map(|bound| u64::try_from(bound).unwrap_or(u64::MAX));
    start..end
}

impl Axis {
    /// In place of an axis that the tensors do not have.
    const NONE: Self =
        Self { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, before: 0, after: 0, is_adaptive: false };

    fn adaptive(input: u64, output: u64) -> Self {
        // Of all remainders of the starts the greatest makes the longest window.
        let kernel = (input + output - common_divisor(input, output)).div_ceil(output);
        Self { input, output, kernel, is_adaptive: true, ..Self::NONE }
    }

    /// From the first place of a window to its last.
    pub(super) fn reach(&self) -> u64 {
        self.dilation * (self.kernel - 1)
    }

    /// What a window sees.
    pub(super) fn window(&self, output: u64) -> Span {
        if self.is_adaptive {
            let range = shared(output, self.output, self.input);
            let places = range.end - range.start;
            return Span { start: signed(range.start), step: 1, places, inside: 0..places, padded: places };
        }
        let start = signed(output * self.stride) - signed(self.before);
        let first = if start < 0 { start.unsigned_abs().div_ceil(self.dilation) } else { 0 };
        // Places from `start` on up to a bound behind it.
        let until = |bound: u64| {
            let left = signed(bound).saturating_sub(start).max(0).unsigned_abs();
            left.div_ceil(self.dilation).min(self.kernel)
        };
        let end = until(self.input);
        let inside = first.min(end)..end;
        Span { start, step: self.dilation, places: self.kernel, inside, padded: until(self.input + self.after) }
    }

    /// Windows that may see an element: those that reach over it.
    pub(super) fn seen_by(&self, element: u64) -> Range<u64> {
        if self.is_adaptive {
            return shared(element, self.input, self.output);
        }
        let at = element + self.before;
        let first = at.saturating_sub(self.reach()).div_ceil(self.stride);
        let end = (at / self.stride + 1).min(self.output);
        first.min(end)..end
    }
}

/// The windows of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Windows {
    pub(super) samples: u64,
    pub(super) channels: u64,
    /// The spatial axes. If there are fewer than three, axes of extent 1 come first.
    pub(super) axes: [Axis; MAX_AXES],
    /// How many of these axes the tensors have: the last ones.
    pub(super) rank: usize,
}

impl Windows {
    pub(super) fn new(op: &'static str, fields: &Fields) -> Result<Self> {
        let Fields { x, kernel, stride, dilation, padding, adaptive, .. } = fields;
        let rank = x.rank();
        require(op, "x", (3..=2 + MAX_AXES).contains(&rank), || {
            format!("must be [N, C, spatial..] of rank 3 to {}, got rank {rank}: one sample has N = 1", 2 + MAX_AXES)
        })?;
        let count = rank - 2;
        for at in 0..count {
            require(op, "x", x.dims()[2 + at] > 0, || {
                format!("must have an element or more along each spatial extent, got {:?}", x.dims())
            })?;
        }
        let mut axes = [Axis::NONE; MAX_AXES];
        if !adaptive.is_empty() {
            require(op, "adaptive", adaptive.len() == count, || {
                format!("must have one entry for each of the {count} spatial extents, got {}", adaptive.len())
            })?;
            let others = [("kernel", kernel.len()), ("stride", stride.len()), ("dilation", dilation.len())];
            let others = others.into_iter().chain([("padding", padding.len())]);
            for (field, given) in others.chain([("ceil_mode", fields.ceil_mode.into())]) {
                require(op, field, given == 0, || "is not there of adaptive windows".into())?;
            }
            for (at, &output) in adaptive.iter().enumerate() {
                require(op, "adaptive", (1..LIMIT).contains(&output), || {
                    format!("must be from 1 to {} along axis {at}, got {output}", LIMIT - 1)
                })?;
                axes[MAX_AXES - count + at] = Axis::adaptive(x.dims()[2 + at], output);
            }
            return Ok(Self { samples: x.dims()[0], channels: x.dims()[1], axes, rank: count });
        }
        require(op, "kernel", kernel.len() == count, || {
            format!("must have one entry for each of the {count} spatial extents, got {}", kernel.len())
        })?;
        for (field, given) in [("stride", stride.len()), ("dilation", dilation.len()), ("padding", padding.len())] {
            require(op, field, given == 0 || given == count, || {
                format!("must have one entry for each of the {count} spatial extents, got {given}")
            })?;
        }
        for at in 0..count {
            let (input, kernel) = (x.dims()[2 + at], kernel[at]);
            let stride = stride.get(at).copied().unwrap_or(kernel);
            let dilation = dilation.get(at).copied().unwrap_or(1);
            let [before, after] = padding.get(at).copied().unwrap_or([0; 2]);
            for (field, number) in [("kernel", kernel), ("stride", stride)] {
                require(op, field, (1..LIMIT).contains(&number), || {
                    format!("must be from 1 to {} along axis {at}, got {number}", LIMIT - 1)
                })?;
            }
            require(op, "dilation", dilation > 0, || format!("must be at least 1 along axis {at}, got 0"))?;
            let steps = kernel - 1;
            let reach = dilation.saturating_mul(steps);
            require(op, "dilation", reach < LIMIT, || {
                format!("times (kernel - 1) must be below {LIMIT} along axis {at}, got {dilation} times {steps}")
            })?;
            require(op, "padding", before.max(after) <= reach, || {
                format!(
                    "must be shorter than the window along axis {at}, {dilation} * ({kernel} - 1) + 1; got [{before}, {after}]"
                )
            })?;
            // Kernels count coordinates in numbers with a sign.
            let padded = input.saturating_add(before + after).saturating_add(stride + reach);
            require(op, "padding", padded <= i64::MAX as u64, || {
                format!("must leave axis {at} an extent below 2^63, got {input} with [{before}, {after}]")
            })?;
            let padded = input + before + after;
            require(op, "kernel", padded > reach, || {
                format!(
                    "must not reach over the padded extent along axis {at}: {input} + {before} + {after} < {dilation} * ({kernel} - 1) + 1"
                )
            })?;
            let left = padded - reach - 1;
            let floor = left / stride + 1;
            // A further window starts in x or before it.
            let has_further = fields.ceil_mode && !left.is_multiple_of(stride) && floor * stride < input + before;
            let output = floor + u64::from(has_further);
            // With one place the dilation has no effect, and may be any number.
            let dilation = if kernel == 1 { 1 } else { dilation };
            axes[MAX_AXES - count + at] =
                Axis { input, output, kernel, stride, dilation, before, after, is_adaptive: false };
        }
        Ok(Self { samples: x.dims()[0], channels: x.dims()[1], axes, rank: count })
    }

    /// The extents of y.
    pub(super) fn output(&self) -> Vec<u64> {
        let spatial = self.axes[MAX_AXES - self.rank..].iter().map(|axis| axis.output);
        [self.samples, self.channels].into_iter().chain(spatial).collect()
    }

    /// The places that the average of every window divides by, if they are as many.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn common_places(&self, excludes_padding: bool) -> Option<u64> {
        let is_common = |axis: &Axis| {
            if axis.is_adaptive {
                return axis.input.is_multiple_of(axis.output);
            }
            // The last window ends in x, or with the padding.
            let behind = (axis.output - 1) * axis.stride + axis.reach();
            let end = if excludes_padding { axis.input } else { axis.input + axis.before + axis.after };
            behind < end && (axis.before == 0 || !excludes_padding)
        };
        self.axes.iter().all(is_common).then(|| self.places())
    }

    /// Places of the longest window.
    pub(super) fn places(&self) -> u64 {
        self.axes.iter().fold(1, |places: u64, axis| places.saturating_mul(axis.kernel))
    }
}

/// The strides of a tensor with the extents of x or of y: of samples, of channels and of three spatial axes.
pub(super) fn strides(desc: &crate::tensor::TensorDesc) -> [u64; 2 + MAX_AXES] {
    let rank = desc.rank();
    let mut strides = [0; 2 + MAX_AXES];
    strides[..2].copy_from_slice(&desc.strides()[..2]);
    strides[2 + MAX_AXES - (rank - 2)..].copy_from_slice(&desc.strides()[2..]);
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements of each window, one after another.
    fn elements(axis: &Axis) -> Vec<Vec<u64>> {
        let of = |output| {
            let window = axis.window(output);
            window.inside.clone().map(|place| window.element(place)).collect()
        };
        (0..axis.output).map(of).collect()
    }

    fn check(axis: &Axis) {
        let windows = elements(axis);
        for element in 0..axis.input {
            let seen = axis.seen_by(element);
            let seen = seen.filter(|&output| axis.window(output).place(element).is_some());
            let expected = (0..axis.output).filter(|&output| windows[output as usize].contains(&element));
            assert!(seen.eq(expected), "{axis:?} {element}");
        }
        let longest = (0..axis.output).map(|output| axis.window(output).places).max();
        assert_eq!(longest, Some(axis.kernel), "{axis:?}");
    }

    #[test]
    fn elements_know_the_windows_that_see_them() {
        for input in 1..9 {
            for output in 1..12 {
                check(&Axis::adaptive(input, output));
            }
            for (kernel, stride, dilation, before, after) in
                [(3, 2, 1, 1, 1), (2, 2, 1, 0, 0), (2, 3, 1, 1, 0), (3, 1, 2, 2, 1), (1, 2, 1, 0, 0), (4, 3, 3, 7, 9)]
            {
                let reach = dilation * (kernel - 1);
                if input + before + after > reach {
                    let output = (input + before + after - reach - 1) / stride + 2;
                    check(&Axis { input, output, kernel, stride, dilation, before, after, is_adaptive: false });
                }
            }
        }
    }

    #[test]
    fn adaptive_windows_divide_as_in_pytorch() {
        let axis = Axis::adaptive(10, 4);
        assert_eq!(elements(&axis), [vec![0, 1, 2], vec![2, 3, 4], vec![5, 6, 7], vec![7, 8, 9]]);
        assert_eq!((axis.kernel, Axis::adaptive(9, 3).kernel, Axis::adaptive(3, 7).kernel), (3, 3, 2));
    }
}
