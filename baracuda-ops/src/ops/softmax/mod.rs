//! Softmax and log-softmax along any one axis, forward and backward.
//!
//! With `t = scale * x`, and sums and maxima over the axis:
//!
//! - softmax: `y = exp(t - max(t)) / sum(exp(t - max(t)))`; backward: `dx = scale * y * (dy - sum(dy * y))`;
//! - log-softmax: `y = t - max(t) - log(sum(exp(t - max(t))))`; backward: `dx = scale * (dy - exp(y) * sum(dy))`.
//!
//! A tensor of rank 0 is a line of one element along axis 0.
//!
//! The largest element is subtracted before the scale multiplies, the smallest if the scale is negative.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any | f64, f32, f16, bf16 | in | always |
//! | `y` | of x | of x, or f32 where x is f16 or bf16 | out | always |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `y` | any | f64, f32, f16, bf16 | in | always; what forward wrote |
//! | `dy` | of y | of y | in | always |
//! | `dx` | of y | of y, or f16 or bf16 where y is f32 | out | always |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU. On GPUs either the axis is dense in every operand (rows: the last axis of a contiguous
//! tensor, the channels of a channels-last one), or the same other axes are, in the same order (channels of a contiguous tensor); what
//! remains collapses to at most three strides. `y` may lie at `x`, `dx` at `dy`, where the layouts and the types agree.
//!
//! Accumulation: f32, for f64 operands f64; sums and maxima meet in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: where a line along the axis has a NaN, where scaled it has +infinity, or only -infinity, its `y` is NaN
//! throughout; another -infinity gives `y = 0`, of log-softmax -infinity. Backward is what the formula says. With a zero extent nothing
//! is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: J. S. Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990; P. Blanchard, D. J. Higham,
//! N. J. Higham, "Accurately computing the log-sum-exp and softmax functions", IMA Journal of Numerical Analysis 41 (2021), for the shift;
//! M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, for the merge of parts of a line.
//!
//! Kernels, in the order in which they are tried. On CUDA (`csrc/softmax/softmax.cu`, `softmax_backward.cu`) `softmax_rows_resident` and
//! `softmax_rows_shared` for rows that registers, or the shared memory of a cluster, hold; `softmax_channels_resident` for lines side by side that
//! registers hold, of gradients `softmax_backward_channels_shared` for those that shared memory holds beside them; `softmax_split` for all others,
//! which it reads twice. Through wgpu (`csrc/softmax/*.wgsl`) `softmax_rows_resident`; `softmax_rows_twice` for many longer rows, forward alone;
//! `softmax_channels_resident`; `softmax_split`. Backward, names begin with `softmax_backward`. On the CPU the reference in `cpu.rs`.

use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{beside, float, in_range, require};
use crate::ops::valid::{Described, Op, Valid, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
mod geometry;
#[cfg(feature = "wgpu")]
mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always, in place y => "Input.";
        Y y: Out, always => "Output.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        Y y: In, always => "What forward wrote.";
        DY dy: In, always, in place dx => "Gradient of y.";
        DX dx: Out, always => "Gradient of x.";
    }
}

fields! {
    /// The fields of a forward descriptor.
    ForwardFields: Fields<Kind = (), Derived = ()> + normalise {
        x: TensorDesc,
        axis: usize,
        log: bool = default,
        scale: Real = one,
        /// The type of y where it is not that of x.
        output: Option<DType> = default,
    }
}

fields! {
    /// The fields of a backward descriptor.
    BackwardFields: Fields<Kind = (), Derived = ()> + normalise {
        y: TensorDesc,
        axis: usize,
        log: bool = default,
        scale: Real = one,
        /// The type of dx, which is that of forward's input, where it is not that of y.
        input: Option<DType> = default,
    }
}

/// Whether results computed in f32 from inputs of a type may be kept as f32.
fn widens(input: DType, output: DType) -> bool {
    matches!(input, DType::F16 | DType::BF16) && output == DType::F32
}

/// The layout of a tensor beside another, of a type of its own; promises are bytes and stay.
fn beside_of(desc: &TensorDesc, dtype: Option<DType>) -> Result<TensorDesc> {
    let beside = beside(desc)?;
    let Some(dtype) = dtype else { return Ok(beside) };
    TensorDesc::strided(dtype, beside.dims(), beside.strides())?.align(beside.align_bytes().max(dtype.size_bytes()))
}

/// Requires a floating-point dtype, and an axis below the rank; a tensor of rank 0 is a line of one element along axis 0.
fn check_axis(op: &'static str, operand: &'static str, desc: &TensorDesc, axis: usize) -> Result<()> {
    float(op, operand, desc)?;
    require(op, "axis", axis < desc.rank().max(1), || match desc.rank() {
        0 => format!("must be 0 where {operand} has rank 0; got {axis}"),
        rank => format!("must be below the rank of {operand}, {rank}; got {axis}"),
    })
}

impl ForwardFields {
    fn normalise(&mut self, _: &Op<()>) -> Result<()> {
        self.output = self.output.filter(|output| *output != self.x.dtype());
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let x = self.x;
        check_axis(op.name, "x", &x, self.axis)?;
        in_range(op.name, "scale", self.scale, &x)?;
        slots.declare(forward::X, x)?;
        if let Some(output) = self.output {
            require(op.name, "output", widens(x.dtype(), output), || match x.dtype() {
                of_x @ (DType::F16 | DType::BF16) => format!("must be {of_x}, the type of x, or f32; got {output}"),
                of_x => format!("must be {of_x}, the type of x; got {output}"),
            })?;
        }
        slots.declare(forward::Y, slots.derived(forward::Y, beside_of(&x, self.output))?)?;
        Ok(())
    }
}

impl BackwardFields {
    fn normalise(&mut self, _: &Op<()>) -> Result<()> {
        self.input = self.input.filter(|input| *input != self.y.dtype());
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let y = self.y;
        check_axis(op.name, "y", &y, self.axis)?;
        in_range(op.name, "scale", self.scale, &y)?;
        if let Some(input) = self.input {
            require(op.name, "input", widens(input, y.dtype()), || match y.dtype() {
                DType::F32 => format!("must be f32, the type of y, f16 or bf16; got {input}"),
                of_y => format!("must be {of_y}, the type of y; got {input}"),
            })?;
        }
        slots.declare(backward::Y, y)?;
        slots.declare(backward::DY, slots.derived(backward::DY, beside(&y))?)?;
        slots.declare(backward::DX, slots.derived(backward::DX, beside_of(&y, self.input))?)?;
        Ok(())
    }
}

descriptor! {
    /// Softmax along one axis of a tensor. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, SoftmaxDescriptor, TensorDesc};
    /// let scores = TensorDesc::contiguous(DType::BF16, &[32, 12, 128, 128])?;
    /// let attention = SoftmaxDescriptor::new(scores, 3)?.scale(0.125)?;
    /// let logits = TensorDesc::contiguous(DType::F32, &[8, 21, 512, 512])?;
    /// let classes = SoftmaxDescriptor::new(logits, 1)?.log()?;
    /// // PyTorch's `softmax(scores, 3, dtype=torch.float32)`.
    /// let exact = SoftmaxDescriptor::new(scores, 3)?.output(DType::F32)?;
    /// # let _ = (attention, classes, exact);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    SoftmaxDescriptor(ForwardFields): "softmax", ();
    args: SoftmaxArgs of forward;
    plan: SoftmaxPlan;
    kernels: kernels!(
        cuda: {
            "rows_resident" => cuda::rows_resident, "rows_shared" => cuda::rows_shared,
            "channels_resident" => cuda::channels_resident, "split" => cuda::split
        };
        wgpu: {
            "rows_resident" => wgpu::rows_resident, "rows_twice" => wgpu::rows_twice,
            "channels_resident" => wgpu::channels_resident, "split" => wgpu::split
        };
        cpu: cpu::forward
    );
    gradients: ["y"] => ["x"], |forward, derivation| {
        derivation.push(forward.backward()?, &[]);
        Ok(())
    };
    /// Softmax of `x` along `axis`, counted from 0.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, or `axis` is not below its rank; of rank 0, if
    /// `axis` is not 0.
    fn new(x: TensorDesc, axis: usize) = ForwardFields::minimal(x, axis);
}

impl SoftmaxDescriptor {
    /// The backward with the same types, layouts and options: `y` and `dy` are as forward's `y`, `dx` as `x`.
    ///
    /// # Errors
    /// None that a valid forward leads to.
    pub fn backward(&self) -> Result<SoftmaxBackwardDescriptor> {
        let ForwardFields { x, axis, log, scale, output, .. } = self.0.fields;
        let y = self.0.slots.at(forward::Y).map_or(x, |slot| slot.desc);
        let (input, layouts) = (output.map(|_| x.dtype()), Layouts::from([("dx".into(), beside(&x)?)]));
        let fields = BackwardFields { y, axis, log, scale, input, layouts };
        Valid::new(SoftmaxBackwardDescriptor::OP, fields).map(SoftmaxBackwardDescriptor)
    }
}

shared_steps! { SoftmaxDescriptor: layout, y }

steps! { SoftmaxDescriptor
    /// The logarithm of softmax.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    log() = |it| it.with(|f| f.log = true);
    /// Multiplies x by a number first, 1 by default; it may be negative or 0.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is, unless operands are f64, neither 0 nor a normal number of f32.
    scale(scale: f64) = |it| it.real("scale", scale, |f, scale| f.scale = scale);
    /// The type of y: x's, which is the default, or f32 where x is of 16 bits. Its values are then those before they would be rounded to x's type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is another one, or if `layout` has given y one of another type.
    output(dtype: DType) = |it| it.with(|f| f.output = Some(dtype));
}

descriptor! {
    /// The gradient of [`SoftmaxDescriptor`] from its output. See the [formulas and operands](self).
    SoftmaxBackwardDescriptor(BackwardFields): "softmax_backward", ();
    args: SoftmaxBackwardArgs of backward;
    plan: SoftmaxBackwardPlan;
    kernels: kernels!(
        cuda: {
            "rows_resident" => cuda::rows_resident, "rows_shared" => cuda::rows_shared,
            "channels_resident" => cuda::channels_resident, "channels_shared" => cuda::channels_shared,
            "split" => cuda::split
        };
        wgpu: {
            "rows_resident" => wgpu::rows_resident, "channels_resident" => wgpu::channels_resident,
            "split" => wgpu::split
        };
        cpu: cpu::backward
    );
    /// The gradient of softmax along `axis`, counted from 0, whose output was `y`.
    ///
    /// # Errors
    /// As [`SoftmaxDescriptor::new`].
    fn new(y: TensorDesc, axis: usize) = BackwardFields::minimal(y, axis);
}

shared_steps! { SoftmaxBackwardDescriptor: layout }

steps! { SoftmaxBackwardDescriptor
    /// As [`SoftmaxDescriptor::log`]: `y` is the logarithm of softmax.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    log() = |it| it.with(|f| f.log = true);
    /// As [`SoftmaxDescriptor::scale`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is, unless operands are f64, neither 0 nor a normal number of f32.
    scale(scale: f64) = |it| it.real("scale", scale, |f, scale| f.scale = scale);
    /// The type of forward's input, which is that of dx: y's, which is the default, or f16 or bf16 where y is f32.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is another one, or if `layout` has given dx one of another type.
    input(dtype: DType) = |it| it.with(|f| f.input = Some(dtype));
}

args! {
    /// Operands of [`SoftmaxDescriptor`]; their shapes and types are in the [tables](self).
    SoftmaxArgs of forward {
        /// The operands.
        new(x, y);
    }
}

args! {
    /// Operands of [`SoftmaxBackwardDescriptor`]; their shapes and types are in the [tables](self).
    SoftmaxBackwardArgs of backward {
        /// The operands.
        new(y, dy, dx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Descriptor;
    use crate::slots::Slot;

    fn desc(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn refuses_an_axis_past_the_rank_and_a_scale_that_is_not_finite() {
        let refused = |result: Result<SoftmaxDescriptor>| match result {
            Err(Error::InvalidDescriptor { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(SoftmaxDescriptor::new(desc(&[2, 3]), 2)), "axis");
        assert_eq!(refused(SoftmaxDescriptor::new(desc(&[]), 1)), "axis");
        assert_eq!(refused(SoftmaxDescriptor::new(desc(&[3]), 0).unwrap().scale(f64::NAN)), "scale");
        let integers = TensorDesc::contiguous(DType::I32, &[3]).unwrap();
        assert_eq!(refused(SoftmaxDescriptor::new(integers, 0)), "x");
    }

    #[test]
    fn results_of_16_bits_may_stay_in_f32_and_no_others() {
        let x = |dtype| TensorDesc::contiguous(dtype, &[2, 3]).unwrap();
        let forward = |of_x, output| SoftmaxDescriptor::new(x(of_x), 1).unwrap().output(output);
        let backward = |of_y, input| SoftmaxBackwardDescriptor::new(x(of_y), 1).unwrap().input(input);
        let all = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32];
        for (narrow, wide) in all.into_iter().flat_map(|narrow| all.map(|wide| (narrow, wide))) {
            if !narrow.is_float() || !wide.is_float() {
                continue;
            }
            let is_taken = narrow == wide || (narrow.size_bytes() == 2 && wide == DType::F32);
            for (field, refused) in [("output", forward(narrow, wide).err()), ("input", backward(wide, narrow).err())] {
                assert_eq!(refused.is_none(), is_taken, "{narrow} {wide}");
                assert!(
                    refused.is_none_or(|e| matches!(e, Error::InvalidDescriptor { field: got, .. } if got == field))
                );
            }
        }
        assert!(forward(DType::F16, DType::I32).is_err() && backward(DType::F32, DType::I32).is_err());
        // What says what the default says is the default.
        assert_eq!(forward(DType::F16, DType::F16).unwrap(), SoftmaxDescriptor::new(x(DType::F16), 1).unwrap());
        let forward = forward(DType::BF16, DType::F32).unwrap();
        let backward = forward.backward().unwrap();
        let types = |slots: &[Slot]| slots.iter().map(|slot| slot.desc.dtype()).collect::<Vec<_>>();
        assert_eq!(types(forward.slots()), [DType::BF16, DType::F32]);
        assert_eq!(types(backward.slots()), [DType::F32, DType::F32, DType::BF16]);
        assert!(forward.slots().iter().chain(backward.slots()).all(|slot| slot.in_place.is_none()));
        let json = r#"{"y":{"dtype":"f32","dims":[2,3]},"axis":1,"input":"bf16"}"#;
        assert_eq!(serde_json::to_string(&backward).unwrap(), json);
        assert_eq!(serde_json::from_str::<SoftmaxBackwardDescriptor>(json).unwrap(), backward);
    }

    #[test]
    fn backward_carries_options_and_layouts_over() {
        let x = TensorDesc::strided(DType::F32, &[2, 3], &[4, 1]).unwrap();
        let forward = SoftmaxDescriptor::new(x, 1).unwrap().log().unwrap().scale(-2.0).unwrap();
        let backward = forward.y(desc(&[2, 3])).unwrap().backward().unwrap();
        let json = serde_json::to_string(&backward).unwrap();
        let layouts = r#"{"dx":{"dtype":"f32","dims":[2,3],"strides":[4,1]}}"#;
        let expected = r#"{"y":{"dtype":"f32","dims":[2,3]},"axis":1,"log":true,"scale":-2.0,"layouts":"#;
        assert_eq!(json, format!("{expected}{layouts}}}"));
        assert_eq!(serde_json::from_str::<SoftmaxBackwardDescriptor>(&json).unwrap(), backward);
    }
}
