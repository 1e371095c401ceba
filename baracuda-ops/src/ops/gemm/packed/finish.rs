//! What is done with the sums of a tile, line by line.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::COLS;
use crate::backend::cpu::Tensor;
use crate::dtype::{DType, Element};
use crate::narrow::{single, to_usize};
use crate::ops::activation::Activation;
use crate::ops::pointwise::map::fast::to_bf16;
use crate::ops::pointwise::program::activations::{Saved, activate, gradient};

/// An epilogue with its operands: that of a product, or of a convolution.
pub(in crate::ops) struct Finish<'v> {
    pub(in crate::ops) alpha: f64,
    pub(in crate::ops) out: Tensor<'v>,
    pub(in crate::ops) bias: Option<Tensor<'v>>,
    /// The pre-activation, or the gradient of the output.
    pub(in crate::ops) beside: Option<Tensor<'v>>,
    pub(in crate::ops) activation: Activation,
    pub(in crate::ops) is_derivative: bool,
    pub(in crate::ops) beta: f64,
}

/// Where a line lies in a tensor: its first element, and the distance of its elements.
#[derive(Clone, Copy, Default)]
pub(in crate::ops) struct Line {
    pub(in crate::ops) offset: u64,
    pub(in crate::ops) stride: u64,
}

/// Where a line lies in the operands of an epilogue.
#[derive(Clone, Copy, Default)]
pub(in crate::ops) struct Places {
    pub(in crate::ops) out: Line,
    pub(in crate::ops) bias: Line,
    pub(in crate::ops) beside: Line,
}

impl Finish<'_> {
    /// Does what the epilogue says with up to [`COLS`] sums.
    ///
    /// # Safety
    /// No other thread uses these elements of the outputs meanwhile.
    #[inline(always)]
    pub(in crate::ops) unsafe fn line(&self, sums: &[f32], places: &Places) {
        let (mut buffer, mut other) = ([0.0; COLS], [0.0; COLS]);
        let (values, other) = (&mut buffer[..sums.len()], &mut other[..sums.len()]);
        let alpha = single(self.alpha);
        values.iter_mut().zip(sums).for_each(|(value, sum)| *value = alpha * sum);
        if let Some(bias) = &self.bias {
            load(bias, places.bias, other);
            values.iter_mut().zip(&*other).for_each(|(value, bias)| *value += bias);
        }
        if self.is_derivative {
            match &self.beside {
                Some(dout) => load(dout, places.beside, other),
                None => other.fill(0.0),
            }
            gradient(self.activation, Saved::Input(values), other);
            values.copy_from_slice(other);
        } else {
            if let Some(pre) = &self.beside {
                // SAFETY: by the contract.
                unsafe { store(pre, places.beside, values) };
            }
            if !self.activation.is_identity() {
                activate(self.activation, values);
            }
            if self.beta != 0.0 {
                let beta = single(self.beta);
                load(&self.out, places.out, other);
                values.iter_mut().zip(&*other).for_each(|(value, before)| *value += beta * before);
            }
        }
        // SAFETY: by the contract.
        unsafe { store(&self.out, places.out, values) };
    }
}

/// Elements of f32, f16 or bf16, widened.
#[inline(always)]
pub(in crate::ops) fn load(from: &Tensor<'_>, line: Line, to: &mut [f32]) {
    match from.desc().dtype() {
        DType::F16 => load_as(from, line, to, |from, to| from.convert_to_f32_slice(to), f16::to_f32),
        DType::BF16 => load_as(
            from,
            line,
            to,
            |from, to| to.iter_mut().zip(from).for_each(|(to, from)| *to = from_bf16(*from)),
            from_bf16,
        ),
        _ => load_as(from, line, to, |from, to| to.copy_from_slice(from), |value: f32| value),
    }
}

#[inline(always)]
fn load_as<T: Element>(
    from: &Tensor<'_>,
    line: Line,
    to: &mut [f32],
    convert: impl Fn(&[T], &mut [f32]),
    widen: impl Fn(T) -> f32,
) {
    let Some(first) = inside::<T>(from, line, to.len()) else { return };
    // SAFETY: the elements of the line are inside the tensor, and no other thread writes to them.
    unsafe {
        if line.stride == 1 {
            return convert(std::slice::from_raw_parts(first, to.len()), to);
        }
        for (at, to) in to.iter_mut().enumerate() {
            *to = widen(*first.wrapping_add(at * to_usize(line.stride)));
        }
    }
}

#[inline(always)]
fn from_bf16(element: bf16) -> f32 {
    f32::from_bits(u32::from(element.to_bits()) << 16)
}

/// The first element of a line that is inside the tensor.
#[inline(always)]
fn inside<T: Element>(tensor: &Tensor<'_>, line: Line, count: usize) -> Option<*mut T> {
    let last = (count as u64).checked_sub(1)?;
    // Strides are not negative, so that all elements lie between the first and the last; `element` checks both.
    tensor.element::<T>(line.offset + last * line.stride);
    Some(tensor.element(line.offset))
}

/// Stores numbers as f32, f16 or bf16, rounded to nearest even.
///
/// # Safety
/// No other thread uses these elements meanwhile.
#[inline(always)]
pub(in crate::ops) unsafe fn store(to: &Tensor<'_>, line: Line, values: &[f32]) {
    // SAFETY: by the contract.
    unsafe {
        match to.desc().dtype() {
            DType::F16 => store_as(to, line, values, |values, to| to.convert_from_f32_slice(values), f16::from_f32),
            DType::BF16 => store_as(
                to,
                line,
                values,
                |from, to| to.iter_mut().zip(from).for_each(|(to, from)| *to = to_bf16(*from)),
                to_bf16,
            ),
            _ => store_as(to, line, values, |values, to| to.copy_from_slice(values), |value: f32| value),
        }
    }
}

/// # Safety
/// As [`store`].
#[inline(always)]
unsafe fn store_as<T: Element>(
    to: &Tensor<'_>,
    line: Line,
    values: &[f32],
    convert: impl Fn(&[f32], &mut [T]),
    narrow: impl Fn(f32) -> T,
) {
    let Some(first) = inside::<T>(to, line, values.len()) else { return };
    // SAFETY: the elements of the line are inside the tensor, and the caller is alone at them.
    unsafe {
        if line.stride == 1 {
            return convert(values, std::slice::from_raw_parts_mut(first, values.len()));
        }
        for (at, &value) in values.iter().enumerate() {
            *first.wrapping_add(at * to_usize(line.stride)) = narrow(value);
        }
    }
}
