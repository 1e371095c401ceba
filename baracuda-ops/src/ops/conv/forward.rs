//! The descriptor and the operands of the convolution.

use serde::{Deserialize, Serialize};

use super::backward_bias::{BiasFields, ConvBackwardBiasDescriptor};
use super::backward_data::{ConvBackwardDataDescriptor, DataFields};
use super::backward_weight::{ConvBackwardWeightDescriptor, WeightFields};
use super::geometry::Contraction;
use super::{
    ConvWindow, Shape, Window, forward_kernels, gradient_of, is_one_group, lying_as, normalise, one_group, same_type,
};
use crate::any::AnyDescriptor;
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::activation::Activation;
use crate::ops::fields::{beside_factors, is_identity, relaid, require};
use crate::ops::norm::Gradients;
use crate::ops::valid::{Described, Fields, Op, Valid, descriptor, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

operands! { $
    /// Operands of the convolution.
    mod table {
        X x: In, always => "Input.";
        WEIGHT weight: In, always => "Weight.";
        BIAS bias: In, if bias => "Added to each channel of y, if declared.", step "The bias.";
        Y y: Out, always => "Output.";
        PRE pre: Out, if pre => "What the activation is applied to, if declared.",
            step "Where the pre-activation goes.";
    }
}

/// The fields of the descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct ForwardFields {
    pub(super) x: TensorDesc,
    pub(super) weight: TensorDesc,
    /// One for each spatial extent; none where each is 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stride: Vec<u64>,
    /// As stride.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dilation: Vec<u64>,
    /// Before and after each spatial extent; none where all are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) padding: Vec<[u64; 2]>,
    #[serde(default = "one_group", skip_serializing_if = "is_one_group")]
    pub(super) groups: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bias: Option<DType>,
    #[serde(default, skip_serializing_if = "is_identity")]
    pub(super) activation: Activation,
    /// None is the type of x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) y: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pre: Option<DType>,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(super) layouts: Layouts,
}

impl Fields for ForwardFields {
    type Kind = ();
    type Derived = Shape;

    fn layouts(&mut self) -> &mut Layouts {
        &mut self.layouts
    }

    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        self.x = relaid(op.name, "x", &mut self.layouts, self.x)?;
        self.weight = relaid(op.name, "weight", &mut self.layouts, self.weight)?;
        self.y = self.y.filter(|&dtype| dtype != self.x.dtype());
        normalise(self.x.rank(), &mut self.stride, &mut self.dilation, &mut self.padding);
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let (x, weight) = (self.x, self.weight);
        same_type(op.name, ("x", &x), ("weight", &weight))?;
        let window =
            Window { stride: &self.stride, dilation: &self.dilation, padding: &self.padding, groups: self.groups };
        let shape = Shape::new(op.name, ("x", &x), ("weight", &weight), window)?;
        for (field, dtype) in [("bias", self.bias), ("y", self.y), ("pre", self.pre)] {
            dtype.map_or(Ok(()), |dtype| beside_factors(op.name, field, dtype, ("x", x.dtype())))?;
        }
        let output = |dtype| {
            let dims = shape.output();
            let rule = || format!("must have fewer than 2^64 bytes, its extents are {dims:?}");
            lying_as(&x, dtype, &dims).map_err(|_| Error::InvalidDescriptor { op: op.name, field: "y", rule: rule() })
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
    /// let gradients = (forward.backward_data()?, forward.backward_weight()?, forward.backward_bias()?);
    /// # let _ = gradients;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ConvDescriptor(ForwardFields): "conv", ();
    args: ConvArgs of table;
    plan: ConvPlan;
    kernels: forward_kernels();
    backwards: Self::wanted_backwards;
    flops: |valid: &Valid<ForwardFields>| valid.derived.flops();
}

impl ConvDescriptor {
    /// The convolution of `x` with `weight`, in the type that both have. Each lies as its descriptor says.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or weight not of x's; if the ranks are not 3 to 5 and equal; if groups
    /// do not divide the channels, or the weight has not as many as a group; if strides, dilations or paddings are not one for each spatial
    /// extent, 0 (paddings may be), or 2^31 or more; if the dilated kernel is larger than the padded extents, or empty.
    pub fn new(x: TensorDesc, weight: TensorDesc, window: ConvWindow) -> Result<Self> {
        let ConvWindow { stride, dilation, padding, groups } = window;
        let fields = ForwardFields {
            x,
            weight,
            stride,
            dilation,
            padding,
            groups,
            bias: None,
            activation: Activation::Identity,
            y: None,
            pre: None,
            layouts: Layouts::new(),
        };
        Valid::new(Self::OP, fields).map(Self)
    }

    /// The gradient of the data with the same types, layouts and options: `dy` lies as `y`, `dx` as `x`. With an activation `dy` is the
    /// gradient of the pre-activation.
    ///
    /// # Errors
    /// None; the type is that of a constructor.
    pub fn backward_data(&self) -> Result<ConvBackwardDataDescriptor> {
        let fields = self.0.fields.clone();
        ConvBackwardDataDescriptor::of(DataFields {
            dy: self.output(),
            weight: fields.weight,
            dx: gradient_of(&fields.x).map_err(|error| error.of_operand(ConvBackwardDataDescriptor::OP.name, "dx"))?,
            stride: fields.stride,
            dilation: fields.dilation,
            padding: fields.padding,
            groups: fields.groups,
            beta: Real::default(),
            layouts: Layouts::new(),
        })
    }

    /// The gradient of the weight with the same types, layouts and options: `dy` lies as `y`, `dweight` as `weight`. With an activation `dy`
    /// is the gradient of the pre-activation.
    ///
    /// # Errors
    /// None; the type is that of a constructor.
    pub fn backward_weight(&self) -> Result<ConvBackwardWeightDescriptor> {
        let fields = self.0.fields.clone();
        ConvBackwardWeightDescriptor::of(WeightFields {
            x: fields.x,
            dy: self.output(),
            dweight: gradient_of(&fields.weight)
                .map_err(|error| error.of_operand(ConvBackwardWeightDescriptor::OP.name, "dweight"))?,
            stride: fields.stride,
            dilation: fields.dilation,
            padding: fields.padding,
            groups: fields.groups,
            beta: Real::default(),
            layouts: Layouts::new(),
        })
    }

    /// The gradient of the bias, in its type: `dy` lies as `y`. With an activation `dy` is the gradient of the pre-activation.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no bias.
    pub fn backward_bias(&self) -> Result<ConvBackwardBiasDescriptor> {
        let bias = self.0.fields.bias;
        require(Self::OP.name, "bias", bias.is_some(), || "must be declared to have a gradient".into())?;
        ConvBackwardBiasDescriptor::of(BiasFields {
            dy: self.output(),
            dbias: bias,
            beta: Real::default(),
            layouts: Layouts::new(),
        })
    }

    /// The output as it is declared.
    fn output(&self) -> TensorDesc {
        self.0.slots.at(table::Y).map_or(self.0.fields.x, |slot| slot.desc) // It is always declared.
    }

    fn wanted_backwards(&self, wanted: Gradients) -> Result<Vec<AnyDescriptor>> {
        let with_bias = wanted.dbias && self.0.fields.bias.is_some();
        require(Self::OP.name, "dx", wanted.dx || wanted.dweight || with_bias, || {
            "must be asked for, or another gradient: none is".into()
        })?;
        let mut backwards = Vec::new();
        if wanted.dx {
            backwards.push(AnyDescriptor::new(self.backward_data()?));
        }
        if wanted.dweight {
            backwards.push(AnyDescriptor::new(self.backward_weight()?));
        }
        if with_bias {
            backwards.push(AnyDescriptor::new(self.backward_bias()?));
        }
        Ok(backwards)
    }

    /// What the kernels compute.
    pub(super) fn contraction(&self) -> Contraction {
        let Valid { fields, derived, slots, .. } = &self.0;
        Contraction::forward(derived, slots, fields.activation)
    }
}

steps! { ConvDescriptor
    /// Adds a bias of the given type to each channel of y.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32; for f64, if it is not f64.
    bias(dtype: DType) = |it| it.with(|f| f.bias = Some(dtype));
    /// Applies an activation.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    activation(activation: Activation) = |it| it.with(|f| f.activation = activation);
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
    /// Gives a declared operand other strides or another alignment than its default.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no such operand is declared, if shape or type differ, or if an output would write an element twice.
    layout(operand: &str, desc: TensorDesc) = |it| it.layout(operand, desc);
}

args! {
    /// Operands of [`ConvDescriptor`]; their shapes and types are in the [tables](super).
    ConvArgs of table {
        /// The operands that every convolution has.
        new(x, weight, y);
        bias(bias); pre(pre);
    }
}
