//! The descriptor and the operands of the convolution.

use super::geometry::{Contracting, Contraction};
use super::{
    ConvBackwardBiasDescriptor, ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvWindow, Pass, Shape,
    gradient_of, gradient_of_pre, leave_out, lying_as, product_kernels, table, window_fields,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::Derivation;
use crate::operands::args;
use crate::ops::activation::Activation;
use crate::ops::fields::{beside_factors, float, relay, require};
use crate::ops::pointwise::ActivationBackwardDescriptor;
use crate::ops::valid::{Described, Op, Valid, descriptor, fields, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

window_fields! {
    /// The fields of the convolution.
    ForwardFields<Pass, Shape>: x, weight;
    bias: Option<DType> = default,
    activation: Activation = default,
    /// None is the type of x.
    y: Option<DType> = default,
    pre: Option<DType> = default,
}

impl ForwardFields {
    fn normalise(&mut self, op: &Op<Pass>) -> Result<()> {
        relay(op.name, &mut self.layouts, [("x", &mut self.x), ("weight", &mut self.weight)])?;
        self.y = self.y.filter(|&dtype| dtype != self.x.dtype());
        self.normalise_window(self.x.rank());
        Ok(())
    }

    fn declare(&self, &Op { name: op, .. }: &Op<Pass>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let (x, weight) = (self.x, self.weight);
        float(op, "x", &x)?;
        require(op, "weight", weight.dtype() == x.dtype(), || {
            format!("must be of the type of x, {}; got {}", x.dtype(), weight.dtype())
        })?;
        let shape = Shape::new(op, ("x", &x), ("weight", &weight), &self.window())?;
        for (field, dtype) in [("bias", self.bias), ("y", self.y), ("pre", self.pre)] {
            dtype.map_or(Ok(()), |dtype| beside_factors(op, field, dtype, ("x", x.dtype())))?;
        }
        let output = |dtype| {
            let dims = shape.output();
            let rule = || format!("must have fewer than 2^64 bytes, its extents are {dims:?}");
            lying_as(&x, dtype, &dims).map_err(|_| Error::InvalidDescriptor { op, field: "y", rule: rule() })
        };
        slots.declare(table::X, x)?;
        slots.declare(table::WEIGHT, weight)?;
        slots.declare_dense(&weight.dims()[..1], [(table::BIAS, self.bias)])?;
        slots.declare(table::Y, output(self.y.unwrap_or(x.dtype()))?)?;
        if let Some(dtype) = self.pre {
            slots.declare(table::PRE, output(dtype)?)?;
        }
        Ok(shape)
    }
}

descriptor! {
    /// A convolution with bias and activation. See the [formulas and operands](super).
    ///
    /// ```
    /// use baracuda_ops::{Activation, ConvDescriptor, ConvWindow, DType, Descriptor, TensorDesc};
    /// let x = TensorDesc::channels_last(DType::BF16, &[32, 64, 56, 56])?;
    /// let weight = TensorDesc::channels_last(DType::BF16, &[128, 64, 3, 3])?;
    /// let window = ConvWindow::new().stride(&[2, 2]).padding(&[1, 1]);
    /// let forward = ConvDescriptor::new(x, weight, window)?
    ///     .bias(DType::F32)?
    ///     .activation(Activation::Relu)?;
    /// assert_eq!(forward.slots()[3].desc, TensorDesc::channels_last(DType::BF16, &[32, 128, 28, 28])?);
    /// // The derivative of ReLU, then the gradients of x, of the weight and of the bias.
    /// assert_eq!(forward.gradients_all()?.len(), 4);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ConvDescriptor(ForwardFields): "conv", Pass::Forward;
    args: ConvArgs of table;
    plan: ConvPlan;
    kernels: product_kernels();
    gradients: ["y"] => ["x", "weight", "bias"], Self::derive_gradients;
    flops: |valid: &Valid<ForwardFields>| valid.derived.flops();
    /// The convolution of `x` with `weight`, in the type and with the layouts of these two.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or weight not of x's; if the ranks are not 3 to 5 and equal; if groups
    /// do not divide the channels, or the weight has not as many as a group; if strides, dilations or paddings are not one for each spatial
    /// extent, 0 (paddings may be), or 2^31 or more; if the dilated kernel is larger than the padded extents, or empty.
    fn new(x: TensorDesc, weight: TensorDesc, window: ConvWindow) = ForwardFields::with_window(x, weight, window);
}

impl ConvDescriptor {
    /// The gradient of the data with this op's types, layouts and options: `dy` has the layout of `y`, `dx` that of `x`.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] with an activation, which another op undoes first: [`gradients`](crate::Descriptor::gradients) has both.
    pub fn backward_data(&self) -> Result<ConvBackwardDataDescriptor> {
        self.check_one_step(ConvBackwardDataDescriptor::OP.name)?;
        self.data()
    }

    fn data(&self) -> Result<ConvBackwardDataDescriptor> {
        let ForwardFields { x, weight, .. } = &self.0.fields;
        let dx = gradient_of(ConvBackwardDataDescriptor::OP.name, "dx", x)?;
        ConvBackwardDataDescriptor::new(self.output(), *weight, dx, self.0.fields.window())
    }

    /// The gradient of the weight with this op's types, layouts and options: `dy` has the layout of `y`, `dweight` that of `weight`.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] with an activation, which another op undoes first: [`gradients`](crate::Descriptor::gradients) has both.
    pub fn backward_weight(&self) -> Result<ConvBackwardWeightDescriptor> {
        self.check_one_step(ConvBackwardWeightDescriptor::OP.name)?;
        self.weight()
    }

    fn weight(&self) -> Result<ConvBackwardWeightDescriptor> {
        let ForwardFields { x, weight, .. } = &self.0.fields;
        let dweight = gradient_of(ConvBackwardWeightDescriptor::OP.name, "dweight", weight)?;
        ConvBackwardWeightDescriptor::new(*x, self.output(), dweight, self.0.fields.window())
    }

    /// The gradient of the bias, in its type. `dy` has the layout of `y`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no bias, [`Error::SeveralSteps`] with an activation.
    pub fn backward_bias(&self) -> Result<ConvBackwardBiasDescriptor> {
        self.check_one_step(ConvBackwardBiasDescriptor::OP.name)?;
        self.bias_sums()
    }

    fn bias_sums(&self) -> Result<ConvBackwardBiasDescriptor> {
        let dy = self.output();
        let rule = || "must be declared to have a gradient".into();
        require(Self::OP.name, "bias", self.0.fields.bias.is_some(), rule)?;
        ConvBackwardBiasDescriptor::new(dy)?.dbias(self.0.fields.bias.unwrap_or(dy.dtype()))
    }

    /// The output as it is declared.
    fn output(&self) -> TensorDesc {
        self.0.slots.always(table::Y).desc
    }

    fn derive_gradients(&self, derivation: &mut Derivation) -> Result<()> {
        let y = self.output();
        let saves_pre = self.0.slots.at(table::PRE).is_some_and(|pre| pre.desc == y);
        let dy = gradient_of_pre(derivation, self.0.fields.activation, y, saves_pre, || {
            let linear = self.0.clone().with(|fields| {
                fields.activation = Activation::Identity;
                fields.pre = None;
                fields.layouts.remove("pre");
            });
            linear.map(Self)
        })?;
        let dy = [("dy", dy)];
        if derivation.wants("x") {
            derivation.push(self.data()?, &dy);
        }
        if derivation.wants("weight") {
            derivation.push(self.weight()?, &dy);
        }
        if derivation.wants("bias") {
            derivation.push(self.bias_sums()?, &dy);
        }
        Ok(())
    }

    /// Refuses to make one op of what is two: the gradient of y is that of the pre-activation only without an activation.
    fn check_one_step(&self, gradient: &'static str) -> Result<()> {
        if self.0.fields.activation.is_identity() {
            return Ok(());
        }
        let steps = vec![ActivationBackwardDescriptor::OP.name, gradient];
        Err(Error::SeveralSteps {
            op: Self::OP.name,
            why: "what arrives at y goes through the derivative of the activation first",
            steps,
        })
    }
}

impl Contracting for ConvDescriptor {
    fn contraction(&self) -> Contraction {
        Contraction::forward(&self.0)
    }
}

shared_steps! { ConvDescriptor: activation, layout }

steps! { ConvDescriptor
    /// Adds a bias of the given type to each channel of y.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32; for f64, if it is not f64.
    bias(dtype: DType) = |it| it.with(|f| f.bias = Some(dtype));
    /// The type of the output, x's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    y(dtype: DType) = |it| it.with(|f| f.y = Some(dtype));
    /// Also writes what the activation is applied to, for its backward.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pre(dtype: DType) = |it| it.with(|f| f.pre = Some(dtype));
}

args! {
    /// Operands of [`ConvDescriptor`]; their shapes and types are in the [tables](super).
    ConvArgs of table {
        /// The operands that every convolution has.
        new(x, weight, y);
        bias(bias); pre(pre);
    }
}
