//! The descriptor and the operands of the gradients.

use serde::{Deserialize, Serialize};

use super::geometry::BackwardGeometry;
use super::{
    BACKWARD_NAME, GemmFactor, GemmGradients, GemmSaved, Gradient, Saved, Shape, Valid, backward_kernels,
    beside_factors, is_identity, is_one, is_pre, one, relaid, valid_alpha,
};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::activation::Activation;
use crate::ops::fields::{in_range, is_false, real, require};
use crate::plan::{Access, Args, Descriptor, Kernel, Plan, Slot, sealed};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) const OPERANDS: &[&str] = &["a", "b", "bias", "out", "pre", "dout", "da", "db", "dbias"];
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const BIAS: usize = 2;
pub(super) const OUT: usize = 3;
pub(super) const PRE: usize = 4;
pub(super) const DOUT: usize = 5;
pub(super) const DA: usize = 6;
pub(super) const DB: usize = 7;
pub(super) const DBIAS: usize = 8;

/// The fields of the descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(super) struct BackwardFields {
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
    #[serde(default, skip_serializing_if = "is_pre")]
    pub(super) saved: Saved,
    /// The type of dout and of forward's output; none is that of a.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) out: Option<DType>,
    /// The type of the saved pre-activation; none is that of a.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pre: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) da: Option<Gradient>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) db: Option<Gradient>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dbias: Option<Gradient>,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(super) layouts: Layouts,
}

impl BackwardFields {
    /// Whether the forward product is computed again.
    pub(super) fn recomputes(&self) -> bool {
        self.saved == Saved::Recompute && !self.activation.is_identity()
    }

    /// The operand of forward beside a and b that the derivative is computed from.
    pub(super) fn saved_operand(&self) -> Option<&'static str> {
        match self.saved {
            _ if self.activation.is_identity() => None,
            Saved::Pre => Some("pre"),
            Saved::Out => Some("out"),
            Saved::Recompute => self.bias.map(|_| "bias"),
        }
    }
}

impl Valid<BackwardFields> {
    pub(super) fn new(mut fields: BackwardFields) -> Result<Self> {
        let op = BACKWARD_NAME;
        fields.a = relaid(op, "a", &mut fields.layouts, fields.a)?;
        fields.b = relaid(op, "b", &mut fields.layouts, fields.b)?;
        let (a, b, activation) = (fields.a, fields.b, fields.activation);
        let shape = Shape::new(op, [&a, &b], [fields.transpose_a, fields.transpose_b])?;
        valid_alpha(op, fields.alpha, &a)?;
        let gradients = [("da", fields.da), ("db", fields.db), ("dbias", fields.dbias)];
        let of_gradients = gradients.map(|(field, gradient)| (field, gradient.map(|gradient| gradient.dtype)));
        let saved = [("bias", fields.bias), ("out", fields.out), ("pre", fields.pre)];
        for (field, dtype) in saved.into_iter().chain(of_gradients) {
            dtype.map_or(Ok(()), |dtype| beside_factors(op, field, &a, dtype))?;
        }
        for (field, gradient) in gradients {
            gradient.map_or(Ok(()), |gradient| in_range(op, field, gradient.beta, &a))?;
        }
        let is_known = fields.saved != Saved::Out || activation.is_identity() || activation.has_gradient_from_output();
        require(op, "saved", is_known, || {
            format!("needs a derivative that is a function of out: relu, sigmoid or tanh; got {}", activation.name())
        })?;
        require(op, "da", gradients.iter().any(|(_, gradient)| gradient.is_some()), || {
            "must be asked for, or another gradient: none is".into()
        })?;
        fields.out = fields.out.filter(|&dtype| dtype != a.dtype());
        fields.pre = fields.pre.filter(|&dtype| dtype != a.dtype());

        let (recomputes, saved) = (fields.recomputes(), fields.saved_operand());
        let output = |dtype: Option<DType>| TensorDesc::contiguous(dtype.unwrap_or(a.dtype()), shape.output.dims());
        let row = |dtype| TensorDesc::contiguous(dtype, &[shape.n]);
        let mut slots = SlotsBuilder::new(op, OPERANDS, &mut fields.layouts);
        if recomputes || fields.db.is_some() {
            slots.declare("a", Access::In, a)?;
        }
        if recomputes || fields.da.is_some() {
            slots.declare("b", Access::In, b)?;
        }
        if let Some(dtype) = fields.bias.filter(|_| saved == Some("bias")) {
            slots.declare("bias", Access::In, row(dtype)?)?;
        }
        match saved {
            Some("out") => drop(slots.declare("out", Access::In, output(fields.out)?)?),
            Some("pre") => drop(slots.declare("pre", Access::In, output(fields.pre)?)?),
            _ => {}
        }
        slots.declare("dout", Access::In, output(fields.out)?)?;
        let access = |gradient: Gradient| if gradient.beta.get() == 0.0 { Access::Out } else { Access::InOut };
        if let Some(gradient) = fields.da {
            slots.declare("da", access(gradient), beside(&a, a.dims(), gradient.dtype)?)?;
        }
        if let Some(gradient) = fields.db {
            let mut dims = b.dims().to_vec();
            if shape.is_shared {
                let batch = dims.len() - 2;
                dims[..batch].fill(1);
            }
            slots.declare("db", access(gradient), beside(&b, &dims, gradient.dtype)?)?;
        }
        if let Some(gradient) = fields.dbias {
            slots.declare("dbias", access(gradient), row(gradient.dtype)?)?;
        }
        let slots = slots.finish()?;
        Ok(Self { fields, shape, slots })
    }

    /// Changes fields and validates again.
    fn with(&self, change: impl FnOnce(&mut BackwardFields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(fields)
    }
}

/// The layout of a factor's gradient, unless told otherwise: the factor's, or the dense one where that addresses an element twice.
fn beside(factor: &TensorDesc, dims: &[u64], dtype: DType) -> Result<TensorDesc> {
    let same = TensorDesc::strided(dtype, dims, factor.strides())?;
    let laid = if same.is_injective() { same } else { TensorDesc::contiguous(dtype, dims)? };
    laid.align(factor.align_bytes().max(dtype.size_bytes()))
}

/// The gradients of [`GemmDescriptor`](super::GemmDescriptor). See the [formulas and operands](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<BackwardFields>", into = "BackwardFields")]
pub struct GemmBackwardDescriptor(pub(super) Valid<BackwardFields>);

impl GemmBackwardDescriptor {
    /// The gradients of a product of two factors, in the type that both have. `dbias` is that of a bias of this type.
    ///
    /// # Errors
    /// As [`GemmDescriptor::new`](super::GemmDescriptor::new), and [`Error::InvalidDescriptor`] if no gradient is wanted.
    pub fn new(a: impl Into<GemmFactor>, b: impl Into<GemmFactor>, wanted: GemmGradients) -> Result<Self> {
        let (a, b) = (a.into(), b.into());
        let gradient = |is_wanted: bool| is_wanted.then_some(Gradient { dtype: a.desc.dtype(), beta: Real::default() });
        Valid::<BackwardFields>::new(BackwardFields {
            a: a.desc,
            b: b.desc,
            transpose_a: a.is_transposed,
            transpose_b: b.is_transposed,
            alpha: one(),
            bias: None,
            activation: Activation::Identity,
            saved: Saved::Pre,
            out: None,
            pre: None,
            da: gradient(wanted.da),
            db: gradient(wanted.db),
            dbias: gradient(wanted.dbias),
            layouts: Layouts::new(),
        })
        .map(Self)
    }

    /// Forward's alpha.
    ///
    /// # Errors
    /// As [`GemmDescriptor::alpha`](super::GemmDescriptor::alpha).
    pub fn alpha(self, alpha: f64) -> Result<Self> {
        let alpha = real(BACKWARD_NAME, "alpha", alpha)?;
        self.0.with(|fields| fields.alpha = alpha).map(Self)
    }

    /// Forward had a bias of the given type, which only recomputing reads.
    ///
    /// # Errors
    /// As [`GemmDescriptor::bias`](super::GemmDescriptor::bias).
    pub fn bias(self, dtype: DType) -> Result<Self> {
        self.0.with(|fields| fields.bias = Some(dtype)).map(Self)
    }

    /// Forward's activation, and from what its derivative is computed.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for [`GemmSaved::Out`] with another activation than ReLU, sigmoid and tanh (and identity, which needs
    /// nothing), or if an operand that is not declared any more has been given a layout.
    pub fn activation(self, activation: Activation, saved: GemmSaved) -> Result<Self> {
        self.0.with(|fields| (fields.activation, fields.saved) = (activation, saved)).map(Self)
    }

    /// From what the derivative of the activation is computed. Layouts of what was read for it before are dropped.
    ///
    /// # Errors
    /// As [`activation`](Self::activation).
    pub fn saved(self, saved: GemmSaved) -> Result<Self> {
        let change = |fields: &mut BackwardFields| {
            let before = fields.saved_operand();
            fields.saved = saved;
            if let Some(name) = before.filter(|&name| fields.saved_operand() != Some(name)) {
                fields.layouts.remove(name);
            }
        };
        self.0.with(change).map(Self)
    }

    /// The type of forward's output and of `dout`, a's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pub fn out(self, dtype: DType) -> Result<Self> {
        self.0.with(|fields| fields.out = Some(dtype)).map(Self)
    }

    /// The type of the saved pre-activation, a's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pub fn pre(self, dtype: DType) -> Result<Self> {
        self.0.with(|fields| fields.pre = Some(dtype)).map(Self)
    }

    /// Asks for the gradient of `a` in a type, added to `beta` times what is there; a beta of 0 reads nothing.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither a's nor f32 (for f64, if it is not f64), or if beta is not in the range of f32
    /// (of f64 for f64 operands).
    pub fn da(self, dtype: DType, beta: f64) -> Result<Self> {
        let gradient = Gradient { dtype, beta: real(BACKWARD_NAME, "da", beta)? };
        self.0.with(|fields| fields.da = Some(gradient)).map(Self)
    }

    /// As [`da`](Self::da), the gradient of `b`.
    ///
    /// # Errors
    /// As [`da`](Self::da).
    pub fn db(self, dtype: DType, beta: f64) -> Result<Self> {
        let gradient = Gradient { dtype, beta: real(BACKWARD_NAME, "db", beta)? };
        self.0.with(|fields| fields.db = Some(gradient)).map(Self)
    }

    /// As [`da`](Self::da), the gradient of the bias.
    ///
    /// # Errors
    /// As [`da`](Self::da).
    pub fn dbias(self, dtype: DType, beta: f64) -> Result<Self> {
        let gradient = Gradient { dtype, beta: real(BACKWARD_NAME, "dbias", beta)? };
        self.0.with(|fields| fields.dbias = Some(gradient)).map(Self)
    }

    /// As [`GemmDescriptor::layout`](super::GemmDescriptor::layout).
    ///
    /// # Errors
    /// As [`GemmDescriptor::layout`](super::GemmDescriptor::layout).
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        let insert = |fields: &mut BackwardFields| {
            fields.layouts.insert(operand.into(), desc);
        };
        self.0.with(insert).map(Self)
    }

    /// The dense output, of the type of the factors: how dpre lies.
    pub(super) fn output(&self) -> TensorDesc {
        self.0.shape.output
    }

    /// What the kernels compute.
    pub(super) fn geometry(&self) -> BackwardGeometry {
        BackwardGeometry::new(&self.0)
    }
}

/// Operands of [`GemmBackwardDescriptor`]; their shapes and types are in the [tables](super).
#[non_exhaustive]
#[derive(Debug)]
pub struct GemmBackwardArgs<'a> {
    /// First factor, if declared.
    pub a: Option<Mem<'a>>,
    /// Second factor, if declared.
    pub b: Option<Mem<'a>>,
    /// Forward's bias, if declared.
    pub bias: Option<Mem<'a>>,
    /// Forward's output, if declared.
    pub out: Option<Mem<'a>>,
    /// What the activation was applied to, if declared.
    pub pre: Option<Mem<'a>>,
    /// Gradient of the output.
    pub dout: Mem<'a>,
    /// Gradient of a, if declared.
    pub da: Option<MemMut<'a>>,
    /// Gradient of b, if declared.
    pub db: Option<MemMut<'a>>,
    /// Gradient of the bias, if declared.
    pub dbias: Option<MemMut<'a>>,
}

impl<'a> GemmBackwardArgs<'a> {
    /// The operand that every backward has.
    pub fn new(dout: impl Into<Mem<'a>>) -> Self {
        let dout = dout.into();
        Self { a: None, b: None, bias: None, out: None, pre: None, dout, da: None, db: None, dbias: None }
    }

    /// The first factor.
    pub fn a(self, a: impl Into<Mem<'a>>) -> Self {
        Self { a: Some(a.into()), ..self }
    }

    /// The second factor.
    pub fn b(self, b: impl Into<Mem<'a>>) -> Self {
        Self { b: Some(b.into()), ..self }
    }

    /// Forward's bias.
    pub fn bias(self, bias: impl Into<Mem<'a>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// Forward's output.
    pub fn out(self, out: impl Into<Mem<'a>>) -> Self {
        Self { out: Some(out.into()), ..self }
    }

    /// What the activation was applied to.
    pub fn pre(self, pre: impl Into<Mem<'a>>) -> Self {
        Self { pre: Some(pre.into()), ..self }
    }

    /// Where the gradient of a goes.
    pub fn da(self, da: impl Into<MemMut<'a>>) -> Self {
        Self { da: Some(da.into()), ..self }
    }

    /// Where the gradient of b goes.
    pub fn db(self, db: impl Into<MemMut<'a>>) -> Self {
        Self { db: Some(db.into()), ..self }
    }

    /// Where the gradient of the bias goes.
    pub fn dbias(self, dbias: impl Into<MemMut<'a>>) -> Self {
        Self { dbias: Some(dbias.into()), ..self }
    }
}

/// A plan of [`GemmBackwardDescriptor`].
pub type GemmBackwardPlan = Plan<GemmBackwardDescriptor>;

impl TryFrom<Object<BackwardFields>> for GemmBackwardDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<BackwardFields>) -> Result<Self> {
        Valid::<BackwardFields>::new(fields).map(Self)
    }
}

impl From<GemmBackwardDescriptor> for BackwardFields {
    fn from(descriptor: GemmBackwardDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl sealed::Sealed for GemmBackwardDescriptor {}

impl Descriptor for GemmBackwardDescriptor {
    const NAME: &'static str = BACKWARD_NAME;
    const OPERANDS: &'static [&'static str] = OPERANDS;
    type Args<'a> = GemmBackwardArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, BackwardFields>(json)
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        backward_kernels()
    }

    fn flops(&self) -> u64 {
        let fields = &self.0.fields;
        let products = [fields.recomputes(), fields.da.is_some(), fields.db.is_some()];
        let count = products.iter().map(|&is_computed| u64::from(is_computed)).sum::<u64>();
        self.0.shape.flops().saturating_mul(count)
    }
}

impl sealed::Sealed for GemmBackwardArgs<'_> {}

impl<'a> Args<'a> for GemmBackwardArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        let (read, write) = (|m: Mem<'a>| m.0, |m: MemMut<'a>| m.0);
        Operands::new([
            self.a.map(read),
            self.b.map(read),
            self.bias.map(read),
            self.out.map(read),
            self.pre.map(read),
            Some(self.dout.0),
            self.da.map(write),
            self.db.map(write),
            self.dbias.map(write),
        ])
    }
}
