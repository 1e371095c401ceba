//! Activations as an op of their own, forward and backward.
//!
//! - forward: `y = act(x)`;
//! - backward: `dx = dy * act'(x)`; with [`from_y`](ActivationBackwardDescriptor::from_y) the derivative is computed from the output: ReLU
//!   `dy` where `y > 0`, else 0; sigmoid `dy * y * (1 - y)`; tanh `dy * (1 - y) * (1 + y)`.
//!
//! The functions and their derivatives are in the table of [`Activation`].
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | f64, f32, f16, bf16 | in | always |
//! | `y` | of x | of x | out | always |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy` | of x | of x | in | always |
//! | `x` | any, rank 0 to 8 | f64, f32, f16, bf16 | in | an activation other than identity, unless `from_y` |
//! | `y` | of x | of x | in | `from_y` |
//! | `dx` | of x | of x | out; accumulated in and out | always |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU. On GPUs the operands are dense, in any order of their extents, and have equal strides.
//! `y` may lie at `x`, `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: nothing is added up; each element is computed in f32, for f64 operands in f64, and rounded once, so that its bits depend
//! on nothing but its inputs.
//!
//! NaN, infinity, empty: as the table of [`Activation`] says. The gradient through ReLU is `dy` where x (or y) is NaN. Without elements
//! nothing is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: as for [`Activation`].
//!
//! Kernels: `csrc/pointwise/activation.cu`, `csrc/pointwise/activation_backward.cu`, `csrc/pointwise/activation.wgsl`,
//! `csrc/pointwise/activation_backward.wgsl`; on the CPU `activation_fast` and `activation_backward_fast`, in blocks (`fast.rs`), of types other than f64,
//! and the reference in `cpu.rs`.
//!
//! [`Activation`]: crate::ops::activation

use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::activation::Activation;
use crate::ops::fields::{beside, demand, float, require};
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
#[cfg(feature = "wgpu")]
mod wgpu;
#[cfg(feature = "wgpu")]
pub(in crate::ops) use wgpu::add_variants;

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
        DY dy: In, always, in place dx => "Gradient of y.";
        X x: In, unless from_y => "Forward's input.", step "Forward's input.";
        Y y: In, if from_y => "Forward's output.",
            step "Forward's output, for a descriptor [`from_y`](ActivationBackwardDescriptor::from_y).";
        DX dx: Out, always => "Gradient of x.";
    }
}

fields! {
    /// The fields of both descriptors; `from_y` is false in forward.
    Fields: Fields<Kind = Direction, Derived = ()> lacks lacks {
        x: TensorDesc,
        activation: Activation,
        from_y: bool = default,
    }
}

/// The fields that the other op alone has.
fn lacks(direction: Direction) -> &'static [&'static str] {
    match direction {
        Direction::Forward => &["from_y"],
        Direction::Backward => &[],
    }
}

type Valid = valid::Valid<Fields>;

impl Fields {
    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let (x, activation) = (self.x, self.activation);
        float(op, "x", &x)?;
        let operand = if kind == Direction::Forward { forward::Y } else { backward::DY };
        let output = slots.derived(operand, beside(&x))?;
        match kind {
            Direction::Forward => {
                demand(op, "from_y", !self.from_y, "is a field of the backward alone")?;
                slots.declare(forward::X, x)?;
                slots.declare(forward::Y, output)?;
            }
            Direction::Backward => {
                require(op, "from_y", !self.from_y || activation.has_gradient_from_output(), || {
                    let name = activation.name();
                    format!("needs a derivative that is a function of y: relu, sigmoid or tanh; got {name}")
                })?;
                slots.declare(backward::DY, output)?;
                if self.from_y {
                    slots.declare(backward::Y, output)?;
                } else if !activation.is_identity() {
                    slots.declare(backward::X, x)?;
                }
                slots.declare(backward::DX, output)?;
            }
        }
        Ok(())
    }
}

impl Valid {
    /// What each element is computed from; what backward computes the derivative from, which the identity does not declare; and the result.
    fn operands(&self) -> [usize; 3] {
        let saved = if self.fields.from_y { backward::Y } else { backward::X };
        match self.op.kind {
            Direction::Forward => [forward::X, forward::X, forward::Y],
            Direction::Backward => [backward::DY, saved, backward::DX],
        }
    }
}

descriptor! {
    /// An activation of each element. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{Activation, ActivationDescriptor, DType, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::BF16, &[8192, 4096])?;
    /// let forward = ActivationDescriptor::new(x, Activation::GeluTanh)?;
    /// let backward = forward.backward()?;
    /// # let _ = backward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ActivationDescriptor(Fields): "activation", Direction::Forward;
    args: ActivationArgs of forward;
    plan: ActivationPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept; before: {"fast" => fast::accept});
    gradients: ["y"] => ["x"], |forward, derivation| {
        derivation.push(forward.backward()?, &[]);
        Ok(())
    };
    /// The activation of each element of `x`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type.
    fn new(x: TensorDesc, activation: Activation) = Fields::minimal(x, activation);
}

impl ActivationDescriptor {
    /// The backward with the same type and layouts: `dy` lies as `y`, `dx` as `x`.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn backward(&self) -> Result<ActivationBackwardDescriptor> {
        let x = self.0.slots.always(forward::X).desc;
        self.0
            .backward_of(ActivationBackwardDescriptor::OP, forward::Y, |fields| fields.x = x)
            .map(ActivationBackwardDescriptor)
    }
}

shared_steps! { ActivationDescriptor: layout, y }

descriptor! {
    /// The gradient of [`ActivationDescriptor`]. See the [formulas and operands](self).
    ActivationBackwardDescriptor(Fields): "activation_backward", Direction::Backward;
    args: ActivationBackwardArgs of backward;
    plan: ActivationBackwardPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept; before: {"fast" => fast::accept});
    /// The gradient of `x`, computed from `dy` and `x`.
    ///
    /// # Errors
    /// As [`ActivationDescriptor::new`].
    fn new(x: TensorDesc, activation: Activation) = Fields::minimal(x, activation);
}

shared_steps! { ActivationBackwardDescriptor: accumulate, layout }

steps! { ActivationBackwardDescriptor
    /// Computes the derivative from forward's output, so that x need not be kept. `y` has the shape and, unless told otherwise, the
    /// layout of x.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for another activation than ReLU, sigmoid and tanh, or if `x` has been given a layout of its own.
    from_y() = |it| it.with(|fields| fields.from_y = true);
}

args! {
    /// Operands of [`ActivationDescriptor`]; their shapes and types are in the [tables](self).
    ActivationArgs of forward {
        /// The operands.
        new(x, y);
    }
}

args! {
    /// Operands of [`ActivationBackwardDescriptor`]; their shapes and types are in the [tables](self).
    ActivationBackwardArgs of backward {
        /// The operands that are always there.
        new(dy, dx);
        x(x); y(y);
    }
}
