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
//! | `dx` | of x | of x | out | always |
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
//! `csrc/pointwise/activation_backward.wgsl`, and the reference in `cpu.rs`.
//!
//! [`Activation`]: crate::ops::activation

use serde::{Deserialize, Serialize};

use crate::any::AnyDescriptor;
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::activation::Activation;
use crate::ops::fields::{beside, float, is_false, only_dx, require};
use crate::ops::norm::Gradients;
use crate::plan::{Access, Args, Descriptor, Kernel, Plan, Slot, sealed};
use crate::slots::{Layouts, Slots, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod dense;
#[cfg(feature = "wgpu")]
mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::wgsl_variants;

const NAME: &str = "activation";
const BACKWARD_NAME: &str = "activation_backward";
const OPERANDS: &[&str] = &["x", "y"];
const BACKWARD_OPERANDS: &[&str] = &["dy", "x", "y", "dx"];

/// The fields of both descriptors, in the order of their JSON; `from_y` is false in forward.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
struct Fields {
    x: TensorDesc,
    activation: Activation,
    #[serde(default, skip_serializing_if = "is_false")]
    from_y: bool,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    layouts: Layouts,
}

/// Validated fields, with the slots that follow from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Valid {
    op: &'static str,
    fields: Fields,
    slots: Slots,
}

impl Valid {
    fn plain(op: &'static str, x: TensorDesc, activation: Activation) -> Result<Self> {
        Self::new(op, Fields { x, activation, from_y: false, layouts: Layouts::new() })
    }

    fn new(op: &'static str, mut fields: Fields) -> Result<Self> {
        let (x, activation) = (fields.x, fields.activation);
        float(op, "x", &x)?;
        let output = beside(&x)?;
        let slots = if op == NAME {
            require(op, "from_y", !fields.from_y, || "is a field of the backward alone".into())?;
            let mut slots = SlotsBuilder::new(op, OPERANDS, &mut fields.layouts);
            slots.declare("x", Access::In, x)?;
            slots.declare("y", Access::Out, output)?;
            slots.in_place("x", "y");
            slots
        } else {
            require(op, "from_y", !fields.from_y || activation.has_gradient_from_output(), || {
                format!("needs a derivative that is a function of y: relu, sigmoid or tanh; got {}", activation.name())
            })?;
            let mut slots = SlotsBuilder::new(op, BACKWARD_OPERANDS, &mut fields.layouts);
            slots.declare("dy", Access::In, output)?;
            if fields.from_y {
                slots.declare("y", Access::In, output)?;
            } else if !activation.is_identity() {
                slots.declare("x", Access::In, x)?;
            }
            slots.declare("dx", Access::Out, output)?;
            slots.in_place("dy", "dx");
            slots
        };
        let slots = slots.finish()?;
        Ok(Self { op, fields, slots })
    }

    /// Changes fields and validates again.
    fn with(&self, change: impl FnOnce(&mut Fields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(self.op, fields)
    }

    fn layout(&self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(|fields| {
            fields.layouts.insert(operand.into(), desc);
        })
    }

    /// The position of the operand from which backward computes the derivative, if it needs any.
    fn saved(&self) -> Option<usize> {
        self.slots.named(if self.fields.from_y { "y" } else { "x" }).map(|slot| slot.position)
    }
}

/// What the kernels of both passes need of a descriptor: one implementation serves forward and backward.
trait Pass: Descriptor {
    const IS_BACKWARD: bool;
    fn valid(&self) -> &Valid;
}

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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<Fields>", into = "Fields")]
pub struct ActivationDescriptor(Valid);

impl ActivationDescriptor {
    /// The activation of each element of `x`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type.
    pub fn new(x: TensorDesc, activation: Activation) -> Result<Self> {
        Valid::plain(NAME, x, activation).map(Self)
    }

    /// Gives an operand other strides or another alignment than its default.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such operand, if shape or type differ, or if an output would write an element twice.
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(operand, desc).map(Self)
    }

    /// Gives `y` other strides than x's.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn y(self, desc: TensorDesc) -> Result<Self> {
        self.layout("y", desc)
    }

    /// The backward with the same type and layouts: `dy` lies as `y`, `dx` as `x`.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn backward(&self) -> Result<ActivationBackwardDescriptor> {
        let mut fields = self.0.fields.clone();
        fields.layouts = Layouts::new();
        if let Some(y) = self.0.slots.named("y") {
            fields.layouts.insert("dy".into(), y.desc);
        }
        Valid::new(BACKWARD_NAME, fields).map(ActivationBackwardDescriptor)
    }
}

/// The gradient of [`ActivationDescriptor`]. See the [formulas and operands](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<Fields>", into = "Fields")]
pub struct ActivationBackwardDescriptor(Valid);

impl ActivationBackwardDescriptor {
    /// The gradient of `x`, computed from `dy` and `x`.
    ///
    /// # Errors
    /// As [`ActivationDescriptor::new`].
    pub fn new(x: TensorDesc, activation: Activation) -> Result<Self> {
        Valid::plain(BACKWARD_NAME, x, activation).map(Self)
    }

    /// Computes the derivative from forward's output, so that x need not be kept. `y` has the shape and, unless told otherwise, the
    /// layout of x.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for another activation than ReLU, sigmoid and tanh, or if `x` has been given a layout of its own.
    pub fn from_y(self) -> Result<Self> {
        self.0.with(|fields| fields.from_y = true).map(Self)
    }

    /// As [`ActivationDescriptor::layout`].
    ///
    /// # Errors
    /// As [`ActivationDescriptor::layout`].
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(operand, desc).map(Self)
    }
}

/// Operands of [`ActivationDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct ActivationArgs<'a> {
    /// Input.
    pub x: Mem<'a>,
    /// Output.
    pub y: MemMut<'a>,
}

impl<'a> ActivationArgs<'a> {
    /// The operands.
    pub fn new(x: impl Into<Mem<'a>>, y: impl Into<MemMut<'a>>) -> Self {
        Self { x: x.into(), y: y.into() }
    }
}

/// Operands of [`ActivationBackwardDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct ActivationBackwardArgs<'a> {
    /// Gradient of y.
    pub dy: Mem<'a>,
    /// Forward's input.
    pub x: Option<Mem<'a>>,
    /// Forward's output.
    pub y: Option<Mem<'a>>,
    /// Gradient of x.
    pub dx: MemMut<'a>,
}

impl<'a> ActivationBackwardArgs<'a> {
    /// The operands that are always there.
    pub fn new(dy: impl Into<Mem<'a>>, dx: impl Into<MemMut<'a>>) -> Self {
        Self { dy: dy.into(), x: None, y: None, dx: dx.into() }
    }

    /// Forward's input.
    pub fn x(self, x: impl Into<Mem<'a>>) -> Self {
        Self { x: Some(x.into()), ..self }
    }

    /// Forward's output, for a descriptor [`from_y`](ActivationBackwardDescriptor::from_y).
    pub fn y(self, y: impl Into<Mem<'a>>) -> Self {
        Self { y: Some(y.into()), ..self }
    }
}

/// A plan of [`ActivationDescriptor`].
pub type ActivationPlan = Plan<ActivationDescriptor>;

/// A plan of [`ActivationBackwardDescriptor`].
pub type ActivationBackwardPlan = Plan<ActivationBackwardDescriptor>;

impl TryFrom<Object<Fields>> for ActivationDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<Fields>) -> Result<Self> {
        Valid::new(NAME, fields).map(Self)
    }
}

impl From<ActivationDescriptor> for Fields {
    fn from(descriptor: ActivationDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl TryFrom<Object<Fields>> for ActivationBackwardDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<Fields>) -> Result<Self> {
        Valid::new(BACKWARD_NAME, fields).map(Self)
    }
}

impl From<ActivationBackwardDescriptor> for Fields {
    fn from(descriptor: ActivationBackwardDescriptor) -> Self {
        descriptor.0.fields
    }
}

/// The kernels of a pass, in the order in which they are tried.
fn kernels<D: Pass>() -> &'static [&'static dyn Kernel<D>] {
    &[
        #[cfg(feature = "cuda")]
        &cuda::Cuda,
        #[cfg(feature = "wgpu")]
        &wgpu::Wgpu,
        &cpu::Reference,
    ]
}

impl sealed::Sealed for ActivationDescriptor {}

impl Descriptor for ActivationDescriptor {
    const NAME: &'static str = NAME;
    const OPERANDS: &'static [&'static str] = OPERANDS;
    type Args<'a> = ActivationArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, Fields>(json)
    }

    fn any_backward(&self, wanted: Gradients) -> Result<Vec<AnyDescriptor>> {
        only_dx(BACKWARD_NAME, wanted)?;
        self.backward().map(|backward| vec![AnyDescriptor::new(backward)])
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        kernels()
    }
}

impl Pass for ActivationDescriptor {
    const IS_BACKWARD: bool = false;

    fn valid(&self) -> &Valid {
        &self.0
    }
}

impl sealed::Sealed for ActivationBackwardDescriptor {}

impl Descriptor for ActivationBackwardDescriptor {
    const NAME: &'static str = BACKWARD_NAME;
    const OPERANDS: &'static [&'static str] = BACKWARD_OPERANDS;
    type Args<'a> = ActivationBackwardArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, Fields>(json)
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        kernels()
    }
}

impl Pass for ActivationBackwardDescriptor {
    const IS_BACKWARD: bool = true;

    fn valid(&self) -> &Valid {
        &self.0
    }
}

impl sealed::Sealed for ActivationArgs<'_> {}

impl<'a> Args<'a> for ActivationArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        Operands::new([Some(self.x.0), Some(self.y.0)])
    }
}

impl sealed::Sealed for ActivationBackwardArgs<'_> {}

impl<'a> Args<'a> for ActivationBackwardArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        Operands::new([Some(self.dy.0), self.x.map(|x| x.0), self.y.map(|y| y.0), Some(self.dx.0)])
    }
}
