//! The descriptor and the operands of the product.

use serde::{Deserialize, Serialize};

use super::backward::{BackwardFields, GemmBackwardDescriptor};
use super::geometry::Product;
use super::{
    GemmFactor, GemmGradients, Gradient, NAME, Saved, Shape, Valid, beside_factors, forward_kernels, is_identity,
    is_one, one, relaid, valid_alpha,
};
use crate::any::AnyDescriptor;
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::activation::Activation;
use crate::ops::fields::{is_false, real};
use crate::ops::norm::Gradients;
use crate::plan::{Access, Args, Descriptor, Kernel, Plan, Slot, sealed};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) const OPERANDS: &[&str] = &["a", "b", "bias", "out", "pre"];
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const BIAS: usize = 2;
pub(super) const OUT: usize = 3;
pub(super) const PRE: usize = 4;

/// The fields of the descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(super) struct ForwardFields {
    pub(super) a: TensorDesc,
    pub(super) b: TensorDesc,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) transpose_a: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) transpose_b: bool,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) alpha: Real,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bias: Option<DType>,
    #[serde(default, skip_serializing_if = "is_identity")]
    pub(super) activation: Activation,
    /// None is the type of a.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) out: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pre: Option<DType>,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(super) layouts: Layouts,
}

impl Valid<ForwardFields> {
    fn new(mut fields: ForwardFields) -> Result<Self> {
        let op = NAME;
        fields.a = relaid(op, "a", &mut fields.layouts, fields.a)?;
        fields.b = relaid(op, "b", &mut fields.layouts, fields.b)?;
        let (a, b) = (fields.a, fields.b);
        let shape = Shape::new(op, [&a, &b], [fields.transpose_a, fields.transpose_b])?;
        valid_alpha(op, fields.alpha, &a)?;
        for (field, dtype) in [("bias", fields.bias), ("out", fields.out), ("pre", fields.pre)] {
            dtype.map_or(Ok(()), |dtype| beside_factors(op, field, &a, dtype))?;
        }
        fields.out = fields.out.filter(|&dtype| dtype != a.dtype());

        let output = |dtype| TensorDesc::contiguous(dtype, shape.output.dims());
        let mut slots = SlotsBuilder::new(op, OPERANDS, &mut fields.layouts);
        slots.declare("a", Access::In, a)?;
        slots.declare("b", Access::In, b)?;
        if let Some(dtype) = fields.bias {
            slots.declare("bias", Access::In, TensorDesc::contiguous(dtype, &[shape.n])?)?;
        }
        slots.declare("out", Access::Out, output(fields.out.unwrap_or(a.dtype()))?)?;
        if let Some(dtype) = fields.pre {
            slots.declare("pre", Access::Out, output(dtype)?)?;
        }
        let slots = slots.finish()?;
        Ok(Self { fields, shape, slots })
    }

    /// Changes fields and validates again.
    fn with(&self, change: impl FnOnce(&mut ForwardFields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(fields)
    }
}

/// A product with bias and activation. See the [formulas and operands](super).
///
/// ```
/// use baracuda_ops::{Activation, DType, GemmDescriptor, GemmFactor, GemmGradients, TensorDesc};
/// let x = TensorDesc::contiguous(DType::BF16, &[8192, 4096])?;
/// let weight = TensorDesc::contiguous(DType::BF16, &[14336, 4096])?;
/// let forward = GemmDescriptor::new(x, GemmFactor::transposed(weight))?
///     .bias(DType::F32)?
///     .activation(Activation::GeluTanh)?
///     .pre(DType::BF16)?;
/// let backward = forward.backward(GemmGradients::ALL)?;
/// # let _ = backward;
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<ForwardFields>", into = "ForwardFields")]
pub struct GemmDescriptor(Valid<ForwardFields>);

impl GemmDescriptor {
    /// The product of two factors, in the type that both have.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if a is not of a floating-point type or b not of a's; if the inner extents or the batch extents do not
    /// fit; if a factor holds an element twice within a matrix; if a is broadcast, or b by some of the batch extents only.
    pub fn new(a: impl Into<GemmFactor>, b: impl Into<GemmFactor>) -> Result<Self> {
        let (a, b) = (a.into(), b.into());
        Valid::<ForwardFields>::new(ForwardFields {
            a: a.desc,
            b: b.desc,
            transpose_a: a.is_transposed,
            transpose_b: b.is_transposed,
            alpha: one(),
            bias: None,
            activation: Activation::Identity,
            out: None,
            pre: None,
            layouts: Layouts::new(),
        })
        .map(Self)
    }

    /// Multiplies the product, 1 unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is 0, or not in the range of f32 (of f64 for f64 operands).
    pub fn alpha(self, alpha: f64) -> Result<Self> {
        let alpha = real(NAME, "alpha", alpha)?;
        self.0.with(|fields| fields.alpha = alpha).map(Self)
    }

    /// Adds a bias of the given type to each row.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither a's nor f32; for f64, if it is not f64.
    pub fn bias(self, dtype: DType) -> Result<Self> {
        self.0.with(|fields| fields.bias = Some(dtype)).map(Self)
    }

    /// Applies an activation.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn activation(self, activation: Activation) -> Result<Self> {
        self.0.with(|fields| fields.activation = activation).map(Self)
    }

    /// The type of the output, a's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pub fn out(self, dtype: DType) -> Result<Self> {
        self.0.with(|fields| fields.out = Some(dtype)).map(Self)
    }

    /// Also writes what the activation is applied to, for backward.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pub fn pre(self, dtype: DType) -> Result<Self> {
        self.0.with(|fields| fields.pre = Some(dtype)).map(Self)
    }

    /// Gives a declared operand other strides or another alignment than its default.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no such operand is declared, if shape or type differ, or if an output would write an element twice.
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        let insert = |fields: &mut ForwardFields| {
            fields.layouts.insert(operand.into(), desc);
        };
        self.0.with(insert).map(Self)
    }

    /// The backward with the same types, layouts and options: `dout` lies as `out`, `da` as `a`, `db` as `b`. Gradients are of the type of
    /// what they belong to. The derivative of the activation comes from `pre` if forward writes it, else from `out` where that is
    /// possible, else from the product computed again; [`saved`](GemmBackwardDescriptor::saved) says otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no gradient is left to compute.
    pub fn backward(&self, wanted: GemmGradients) -> Result<GemmBackwardDescriptor> {
        let Valid { fields, slots, .. } = &self.0;
        let saved = match fields.activation {
            Activation::Identity => Saved::Pre,
            _ if fields.pre.is_some() => Saved::Pre,
            activation if activation.has_gradient_from_output() => Saved::Out,
            _ => Saved::Recompute,
        };
        let gradient = |is_wanted: bool, dtype| is_wanted.then_some(Gradient { dtype, beta: Real::default() });
        let dtype = fields.a.dtype();
        let mut backward = BackwardFields {
            a: fields.a,
            b: fields.b,
            transpose_a: fields.transpose_a,
            transpose_b: fields.transpose_b,
            alpha: fields.alpha,
            bias: fields.bias,
            activation: fields.activation,
            saved,
            out: fields.out,
            pre: fields.pre,
            da: gradient(wanted.da, dtype),
            db: gradient(wanted.db, dtype),
            dbias: fields.bias.and_then(|dtype| gradient(wanted.dbias, dtype)),
            layouts: Layouts::new(),
        };
        let laid = backward.saved_operand().into_iter().map(|name| (name, name)).chain([("out", "dout")]);
        for (forward, name) in laid {
            if let Some(slot) = slots.named(forward) {
                backward.layouts.insert(name.into(), slot.desc);
            }
        }
        Valid::<BackwardFields>::new(backward).map(GemmBackwardDescriptor)
    }

    /// The type of the factors.
    pub(super) fn dtype(&self) -> DType {
        self.0.fields.a.dtype()
    }

    /// What the kernels compute.
    pub(super) fn product(&self) -> Product {
        Product::forward(&self.0)
    }
}

/// Operands of [`GemmDescriptor`]; their shapes and types are in the [tables](super).
#[non_exhaustive]
#[derive(Debug)]
pub struct GemmArgs<'a> {
    /// First factor.
    pub a: Mem<'a>,
    /// Second factor.
    pub b: Mem<'a>,
    /// Added to each row, if declared.
    pub bias: Option<Mem<'a>>,
    /// Output.
    pub out: MemMut<'a>,
    /// What the activation is applied to, if declared.
    pub pre: Option<MemMut<'a>>,
}

impl<'a> GemmArgs<'a> {
    /// The operands that every product has.
    pub fn new(a: impl Into<Mem<'a>>, b: impl Into<Mem<'a>>, out: impl Into<MemMut<'a>>) -> Self {
        Self { a: a.into(), b: b.into(), bias: None, out: out.into(), pre: None }
    }

    /// The bias.
    pub fn bias(self, bias: impl Into<Mem<'a>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// Where the pre-activation goes.
    pub fn pre(self, pre: impl Into<MemMut<'a>>) -> Self {
        Self { pre: Some(pre.into()), ..self }
    }
}

/// A plan of [`GemmDescriptor`].
pub type GemmPlan = Plan<GemmDescriptor>;

impl TryFrom<Object<ForwardFields>> for GemmDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<ForwardFields>) -> Result<Self> {
        Valid::<ForwardFields>::new(fields).map(Self)
    }
}

impl From<GemmDescriptor> for ForwardFields {
    fn from(descriptor: GemmDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl sealed::Sealed for GemmDescriptor {}

impl Descriptor for GemmDescriptor {
    const NAME: &'static str = NAME;
    const OPERANDS: &'static [&'static str] = OPERANDS;
    type Args<'a> = GemmArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, ForwardFields>(json)
    }

    /// The input's gradient is that of a, the weight's that of b.
    fn any_backward(&self, wanted: Gradients) -> Result<Vec<AnyDescriptor>> {
        let wanted = GemmGradients { da: wanted.dx, db: wanted.dweight, dbias: wanted.dbias };
        self.backward(wanted).map(|backward| vec![AnyDescriptor::new(backward)])
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        forward_kernels()
    }

    fn flops(&self) -> u64 {
        self.0.shape.flops()
    }
}

impl sealed::Sealed for GemmArgs<'_> {}

impl<'a> Args<'a> for GemmArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        Operands::new([
            Some(self.a.0),
            Some(self.b.0),
            self.bias.map(|bias| bias.0),
            Some(self.out.0),
            self.pre.map(|pre| pre.0),
        ])
    }
}
