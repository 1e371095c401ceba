//! The descriptor and the operands of the gradients.

use super::geometry::{BackwardGeometry, BackwardTensors};
use super::{
    GemmFactor, GemmSaved, Gradient, Saved, Shape, backward_kernels, product_fields, unrepeated, valid_factor,
};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::gradients::wanted_among;
use crate::operands::{args, operands};
use crate::ops::accumulation::by_beta;
use crate::ops::activation::Activation;
use crate::ops::fields::{beside_factors, demand, relay, require};
use crate::ops::valid::{Described, Op, Valid, descriptor, fields, shared_steps, steps};
use crate::slots::Access;
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

operands! { $
    /// Operands of the gradients; the first five are at the indices that they have in the product.
    mod table {
        A a: In, if reads_a => "First factor, if declared.", step "The first factor.";
        B b: In, if reads_b => "Second factor, if declared.", step "The second factor.";
        BIAS bias: In, if reads_bias => "Forward's bias, if declared.", step "Forward's bias.";
        OUT out: In, if reads_out => "Forward's output, if declared.", step "Forward's output.";
        PRE pre: In, if reads_pre => "What the activation was applied to, if declared.",
            step "What the activation was applied to.";
        DOUT dout: In, always => "Gradient of the output.";
        DA da: Out, if da => "Gradient of a, if declared.", step "Where the gradient of a goes.";
        DB db: Out, if db => "Gradient of b, if declared.", step "Where the gradient of b goes.";
        DBIAS dbias: Out, if dbias => "Gradient of the bias, if declared.", step "Where the gradient of the bias goes.";
    }
}

product_fields! {
    /// The fields of the descriptor.
    BackwardFields {
        saved: Saved = default,
        /// The type of dout and of forward's output; `None` is a's type.
        out: Option<DType> = default,
        /// The type of the saved pre-activation; `None` is a's type.
        pre: Option<DType> = default,
        da: Option<Gradient> = default,
        db: Option<Gradient> = default,
        dbias: Option<Gradient> = default,
    }
}

impl BackwardFields {
    /// Whether the forward product is computed again.
    pub(super) fn recomputes(&self) -> bool {
        self.saved == Saved::Recompute && !self.activation.is_identity()
    }

    /// The operand of forward beside a and b that the derivative is computed from.
    pub(super) fn saved_operand(&self) -> Option<usize> {
        match self.saved {
            _ if self.activation.is_identity() => None,
            Saved::Pre => Some(table::PRE),
            Saved::Out => Some(table::OUT),
            Saved::Recompute => self.bias.map(|_| table::BIAS),
        }
    }
}

/// The name of an operand.
pub(super) const fn name(index: usize) -> &'static str {
    table::TABLE[index].name
}

impl BackwardFields {
    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        relay(op.name, &mut self.layouts, [("a", &mut self.a), ("b", &mut self.b)])?;
        (self.a, self.b) = (unrepeated(op.name, "a", self.a)?, unrepeated(op.name, "b", self.b)?);
        for dtype in [&mut self.out, &mut self.pre] {
            *dtype = dtype.filter(|&dtype| dtype != self.a.dtype());
        }
        for (name, gradient) in [("da", &mut self.da), ("db", &mut self.db), ("dbias", &mut self.dbias)] {
            if let Some(Gradient { beta, .. }) = gradient {
                by_beta(op.name, &mut self.accumulate, name, beta)?;
            }
        }
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let (a, b, activation) = (self.a, self.b, self.activation);
        let shape = Shape::new(op.name, [&a, &b], [self.transpose_a, self.transpose_b])?;
        valid_factor(op.name, "alpha", self.alpha, &a)?;
        let gradients = [("da", self.da), ("db", self.db), ("dbias", self.dbias)];
        let of_gradients = gradients.map(|(field, gradient)| (field, gradient.map(|gradient| gradient.dtype)));
        let saved = [("bias", self.bias), ("out", self.out), ("pre", self.pre)];
        for (field, dtype) in saved.into_iter().chain(of_gradients) {
            dtype.map_or(Ok(()), |dtype| beside_factors(op.name, field, dtype, ("a", a.dtype())))?;
        }
        for (field, gradient) in gradients {
            gradient.map_or(Ok(()), |gradient| valid_factor(op.name, field, gradient.beta, &a))?;
        }
        let is_known = self.saved != Saved::Out || activation.is_identity() || activation.has_gradient_from_output();
        require(op.name, "saved", is_known, || {
            format!("needs a derivative that is a function of out: relu, sigmoid or tanh; got {}", activation.name())
        })?;
        let rule = "must be asked for, or another gradient: none is";
        demand(op.name, "da", gradients.iter().any(|(_, gradient)| gradient.is_some()), rule)?;

        let (recomputes, saved) = (self.recomputes(), self.saved_operand());
        slots.declare_if(recomputes || self.db.is_some(), table::A, a)?;
        slots.declare_if(recomputes || self.da.is_some(), table::B, b)?;
        slots.declare_dense(&[shape.n], [(table::BIAS, self.bias.filter(|_| saved == Some(table::BIAS)))])?;
        let (out, pre) = (self.out.unwrap_or(a.dtype()), self.pre.unwrap_or(a.dtype()));
        let [of_out, of_pre] = [(table::OUT, out), (table::PRE, pre)]
            .map(|(operand, dtype)| (operand, (saved == Some(operand)).then_some(dtype)));
        slots.declare_dense(shape.output.dims(), [of_out, of_pre, (table::DOUT, Some(out))])?;
        let laid = |row: usize, gradient: Gradient| match row {
            table::DA => beside(&a, gradient.dtype),
            table::DB => beside(&b, gradient.dtype),
            _ => TensorDesc::contiguous(gradient.dtype, &[shape.n]),
        };
        for (row, gradient) in [(table::DA, self.da), (table::DB, self.db), (table::DBIAS, self.dbias)] {
            let Some(gradient) = gradient else { continue };
            let desc = slots.derived(row, laid(row, gradient))?;
            let access = if gradient.beta.get() == 0.0 { Access::Out } else { Access::InOut };
            slots.declare_as(access, row, desc)?;
        }
        Ok(shape)
    }
}

/// The gradient of a factor, which has an extent of 1 where a batch extent of the factor has a stride of 0. It lies as the factor, unless told
/// otherwise, or densely where that addresses an element twice.
fn beside(factor: &TensorDesc, dtype: DType) -> Result<TensorDesc> {
    let mut dims = factor.dims().to_vec();
    let batch = factor.rank() - 2;
    for (dim, &stride) in dims[..batch].iter_mut().zip(factor.strides()) {
        *dim = if stride == 0 { 1 } else { *dim };
    }
    let same = TensorDesc::strided(dtype, &dims, factor.strides())?;
    let laid = if same.is_injective() { same } else { TensorDesc::contiguous(dtype, &dims)? };
    laid.align(factor.align_bytes().max(dtype.size_bytes()))
}

descriptor! {
    /// The gradients of [`GemmDescriptor`](super::GemmDescriptor). See the [formulas and operands](super).
    GemmBackwardDescriptor(BackwardFields): "gemm_backward", ();
    args: GemmBackwardArgs of table;
    plan: GemmBackwardPlan;
    kernels: backward_kernels();
    flops: |valid: &Valid<BackwardFields>| {
        let fields = &valid.fields;
        let products = [fields.recomputes(), fields.da.is_some(), fields.db.is_some()];
        let count = products.iter().map(|&is_computed| u64::from(is_computed)).sum::<u64>();
        valid.derived.flops().saturating_mul(count)
    };
}

impl GemmBackwardDescriptor {
    /// The gradients of the `wanted` among `a`, `b` and `bias`, for a product of two factors, in the type that both have. `dbias` is that of a
    /// bias of this type.
    ///
    /// # Errors
    /// As [`GemmDescriptor::new`](super::GemmDescriptor::new), and [`Error::InvalidDescriptor`] if no gradient is wanted;
    /// [`Error::NoGradient`] for another name.
    pub fn new(a: impl Into<GemmFactor>, b: impl Into<GemmFactor>, wanted: &[&str]) -> Result<Self> {
        let (a, b) = (a.into(), b.into());
        let wanted = wanted_among(Self::OP.name, wanted, &["a", "b", "bias"])?;
        let gradient =
            |name: &str| wanted.contains(&name).then_some(Gradient { dtype: a.desc.dtype(), beta: Real::default() });
        Self::of(BackwardFields {
            da: gradient("a"),
            db: gradient("b"),
            dbias: gradient("bias"),
            ..BackwardFields::of(a, b)
        })
    }

    pub(super) fn of(fields: BackwardFields) -> Result<Self> {
        Valid::new(Self::OP, fields).map(Self)
    }

    /// The dense output, of the type of the factors: how dpre lies.
    pub(super) fn output(&self) -> TensorDesc {
        self.0.derived.output
    }

    /// What the kernels compute.
    #[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
    pub(super) fn geometry(&self) -> BackwardGeometry {
        self.tensors().geometry()
    }

    /// What the kernels read and write.
    pub(super) fn tensors(&self) -> BackwardTensors {
        BackwardTensors::new(&self.0)
    }
}

shared_steps! { GemmBackwardDescriptor: accumulate_by_beta, layout }

steps! { GemmBackwardDescriptor
    /// Forward's alpha.
    ///
    /// # Errors
    /// As [`GemmDescriptor::alpha`](super::GemmDescriptor::alpha).
    alpha(alpha: f64) = |it| it.real("alpha", alpha, |f, alpha| f.alpha = alpha);
    /// Forward had a bias of the given type, which only recomputing reads.
    ///
    /// # Errors
    /// As [`GemmDescriptor::bias`](super::GemmDescriptor::bias).
    bias(dtype: DType) = |it| it.with(|f| f.bias = Some(dtype));
    /// Forward's activation, and from what its derivative is computed.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for [`GemmSaved::Out`] with another activation than ReLU, sigmoid and tanh (and identity, which needs
    /// nothing), or if an operand that is not declared any more has been given a layout.
    activation(activation: Activation, saved: GemmSaved) = |it| it.with(|f| (f.activation, f.saved) = (activation, saved));
    /// From what the derivative of the activation is computed. Layouts of what was read for it before are dropped.
    ///
    /// # Errors
    /// As [`activation`](Self::activation).
    saved(saved: GemmSaved) = |it| it.with(|f| {
        let before = f.saved_operand();
        f.saved = saved;
        if let Some(index) = before.filter(|&index| f.saved_operand() != Some(index)) {
            f.layouts.remove(name(index));
        }
    });
    /// The type of forward's output and of `dout`, a's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    out(dtype: DType) = |it| it.with(|f| f.out = Some(dtype));
    /// The type of the saved pre-activation, a's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pre(dtype: DType) = |it| it.with(|f| f.pre = Some(dtype));
    /// Asks for the gradient of `a` in a type, added to `beta` times what is there; a beta of 0 reads nothing.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither a's nor f32 (for f64, if it is not f64), or if beta is not in the range of f32
    /// (of f64 for f64 operands).
    da(dtype: DType, beta: f64) = |it| it.real("da", beta, |f, beta| f.da = Some(Gradient { dtype, beta }));
    /// As [`da`](Self::da), the gradient of `b`.
    ///
    /// # Errors
    /// As [`da`](Self::da).
    db(dtype: DType, beta: f64) = |it| it.real("db", beta, |f, beta| f.db = Some(Gradient { dtype, beta }));
    /// As [`da`](Self::da), the gradient of the bias.
    ///
    /// # Errors
    /// As [`da`](Self::da).
    dbias(dtype: DType, beta: f64) = |it| it.real("dbias", beta, |f, beta| f.dbias = Some(Gradient { dtype, beta }));
}

args! {
    /// Operands of [`GemmBackwardDescriptor`]; their shapes and types are in the [tables](super).
    GemmBackwardArgs of table {
        /// The operand that every backward has.
        new(dout);
        a(a); b(b); bias(bias); out(out); pre(pre); da(da); db(db); dbias(dbias);
    }
}
