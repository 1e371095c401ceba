//! The descriptor and the operands of the product.

use super::backward::{BackwardFields, GemmBackwardDescriptor, name};
use super::geometry::Product;
use super::{GemmFactor, Gradient, Saved, Shape, forward_kernels, product_fields, unrepeated, valid_factor};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::gradients::{Derivation, one_step};
use crate::operands::{args, operands};
use crate::ops::activation::Activation;
use crate::ops::fields::{beside_factors, relay};
use crate::ops::valid::{Described, Op, Valid, descriptor, fields, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

operands! { $
    /// Operands of the product.
    mod table {
        A a: In, always => "First factor.";
        B b: In, always => "Second factor.";
        BIAS bias: In, if bias => "Added to each row, if declared.", step "The bias.";
        OUT out: Out, always => "Output.";
        PRE pre: Out, if pre => "What the activation is applied to, if declared.",
            step "Where the pre-activation goes.";
    }
}

product_fields! {
    /// The fields of the descriptor.
    ForwardFields {
        /// `None` is a's type.
        out: Option<DType> = default,
        pre: Option<DType> = default,
    }
}

impl ForwardFields {
    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        relay(op.name, &mut self.layouts, [("a", &mut self.a), ("b", &mut self.b)])?;
        (self.a, self.b) = (unrepeated(op.name, "a", self.a)?, unrepeated(op.name, "b", self.b)?);
        self.out = self.out.filter(|&dtype| dtype != self.a.dtype());
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let (a, b) = (self.a, self.b);
        let shape = Shape::new(op.name, [&a, &b], [self.transpose_a, self.transpose_b])?;
        valid_factor(op.name, "alpha", self.alpha, &a)?;
        for (field, dtype) in [("bias", self.bias), ("out", self.out), ("pre", self.pre)] {
            dtype.map_or(Ok(()), |dtype| beside_factors(op.name, field, dtype, ("a", a.dtype())))?;
        }
        slots.declare(table::A, a)?;
        slots.declare(table::B, b)?;
        slots.declare_dense(&[shape.n], [(table::BIAS, self.bias)])?;
        let out = self.out.unwrap_or(a.dtype());
        slots.declare_dense(shape.output.dims(), [(table::OUT, Some(out)), (table::PRE, self.pre)])?;
        Ok(shape)
    }
}

descriptor! {
    /// A product with bias and activation. See the [formulas and operands](super).
    ///
    /// ```
    /// use baracuda_ops::{Activation, DType, GemmDescriptor, GemmFactor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::BF16, &[8192, 4096])?;
    /// let weight = TensorDesc::contiguous(DType::BF16, &[14336, 4096])?;
    /// let forward = GemmDescriptor::new(x, GemmFactor::transposed(weight))?
    ///     .bias(DType::F32)?
    ///     .activation(Activation::GeluTanh)?
    ///     .pre(DType::BF16)?;
    /// let backward = forward.backward_all()?;
    /// # let _ = backward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    GemmDescriptor(ForwardFields): "gemm", ();
    args: GemmArgs of table;
    plan: GemmPlan;
    kernels: forward_kernels();
    gradients: ["out"] => ["a", "b", "bias"], Self::derive_gradients;
    flops: |valid: &Valid<ForwardFields>| valid.derived.flops();
}

impl GemmDescriptor {
    /// The product of two factors, in the type that both have.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if a is not of a floating-point type or b not of a's; if the inner extents are not equal, or the batch
    /// extents neither equal nor 1.
    pub fn new(a: impl Into<GemmFactor>, b: impl Into<GemmFactor>) -> Result<Self> {
        Valid::new(Self::OP, ForwardFields::of(a.into(), b.into())).map(Self)
    }

    /// The backward with the same types, layouts and options, for the gradients of these inputs: `dout` lies as `out`, `da` as `a`, `db` as `b`.
    /// Gradients are of the type of what they belong to. The derivative of the activation comes from `pre` if forward writes it, else from `out`
    /// where that is possible, else from the product computed again; [`saved`](GemmBackwardDescriptor::saved) says otherwise.
    ///
    /// ```
    /// use baracuda_ops::{DType, Descriptor, GemmDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 64])?;
    /// let weight = TensorDesc::contiguous(DType::F32, &[64, 10])?;
    /// let forward = GemmDescriptor::new(x, weight)?.bias(DType::F32)?;
    /// let names: Vec<_> = forward.backward(&["b", "bias"])?.slots().iter().map(|slot| slot.name).collect();
    /// assert_eq!(names, ["a", "dout", "db", "dbias"]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoGradient`] of an input that forward does not have; [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<GemmBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of every input.
    ///
    /// # Errors
    /// None; the type is that of [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<GemmBackwardDescriptor> {
        one_step(self, None)
    }

    fn derive_gradients(&self, derivation: &mut Derivation) -> Result<()> {
        let Valid { fields, slots, .. } = &self.0;
        let saved = match fields.activation {
            Activation::Identity => Saved::Pre,
            _ if fields.pre.is_some() => Saved::Pre,
            activation if activation.has_gradient_from_output() => Saved::Out,
            _ => Saved::Recompute,
        };
        let gradient = |is_wanted: bool, dtype| is_wanted.then_some(Gradient { dtype, beta: Real::default() });
        let dtype = fields.a.dtype();
        let a = GemmFactor { desc: fields.a, is_transposed: fields.transpose_a };
        let b = GemmFactor { desc: fields.b, is_transposed: fields.transpose_b };
        let mut backward = BackwardFields {
            alpha: fields.alpha,
            bias: fields.bias,
            activation: fields.activation,
            saved,
            out: fields.out,
            pre: fields.pre,
            da: gradient(derivation.wants("a"), dtype),
            db: gradient(derivation.wants("b"), dtype),
            dbias: fields.bias.and_then(|dtype| gradient(derivation.wants("bias"), dtype)),
            ..BackwardFields::of(a, b)
        };
        let saved = backward.saved_operand().map(|index| (index, name(index)));
        for (forward, name) in saved.into_iter().chain([(table::OUT, "dout")]) {
            if let Some(slot) = slots.at(forward) {
                backward.layouts.insert(name.into(), slot.desc);
            }
        }
        derivation.push(GemmBackwardDescriptor::of(backward)?, &[]);
        Ok(())
    }

    /// What the kernels compute.
    pub(super) fn product(&self) -> Product {
        Product::forward(&self.0)
    }
}

shared_steps! { GemmDescriptor: activation, layout }

steps! { GemmDescriptor
    /// Multiplies the product, 1 unless told otherwise. With 0 the product counts as 0 whatever the factors hold, which are not read.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is not in the range of f32 (of f64 for f64 operands), subnormal numbers included.
    alpha(alpha: f64) = |it| it.real("alpha", alpha, |f, alpha| f.alpha = alpha);
    /// Adds a bias of the given type to each row.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither a's nor f32; for f64, if it is not f64.
    bias(dtype: DType) = |it| it.with(|f| f.bias = Some(dtype));
    /// The type of the output, a's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    out(dtype: DType) = |it| it.with(|f| f.out = Some(dtype));
    /// Also writes what the activation is applied to, for backward.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pre(dtype: DType) = |it| it.with(|f| f.pre = Some(dtype));
}

args! {
    /// Operands of [`GemmDescriptor`]; their shapes and types are in the [tables](super).
    GemmArgs of table {
        /// The operands that every product has.
        new(a, b, out);
        bias(bias); pre(pre);
    }
}
