//! Every op: the one place that knows them all, where descriptors are made from names.

use serde_json::Value;

use crate::any::{AnyDescriptor, Json};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::json::Document;
use crate::ops::attention::{AttentionBackwardDescriptor, AttentionDescriptor};
use crate::ops::conv::conv_transpose::ConvTransposeDescriptor;
use crate::ops::conv::{
    ConvBackwardBiasDescriptor, ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor,
};
use crate::ops::fft::{FftDescriptor, IrfftDescriptor, RfftDescriptor};
use crate::ops::gemm::{GemmBackwardDescriptor, GemmDescriptor};
use crate::ops::index::{
    GatherDescriptor, IndexAddDescriptor, IndexSelectDescriptor, NonzeroDescriptor, ScatterDescriptor,
};
use crate::ops::linalg::{CholeskyDescriptor, TriangularSolveDescriptor};
use crate::ops::movement::{ConcatDescriptor, CopyDescriptor, PadDescriptor};
use crate::ops::norm::{
    BatchNormBackwardDescriptor, BatchNormDescriptor, GroupNormBackwardDescriptor, GroupNormDescriptor,
    InstanceNormBackwardDescriptor, InstanceNormDescriptor, LayerNormBackwardDescriptor, LayerNormDescriptor,
    LocalResponseNormBackwardDescriptor, LocalResponseNormDescriptor, RmsNormBackwardDescriptor, RmsNormDescriptor,
};
use crate::ops::order::{SearchSortedDescriptor, SortDescriptor, TopKDescriptor};
use crate::ops::pointwise::{ActivationBackwardDescriptor, ActivationDescriptor, PointwiseDescriptor};
use crate::ops::reduce::ReduceDescriptor;
use crate::ops::scan::ScanDescriptor;
use crate::ops::softmax::cross_entropy::{CrossEntropyBackwardDescriptor, CrossEntropyDescriptor};
use crate::ops::softmax::linear_cross_entropy::{LinearCrossEntropyBackwardDescriptor, LinearCrossEntropyDescriptor};
use crate::ops::softmax::{SoftmaxBackwardDescriptor, SoftmaxDescriptor};
use crate::ops::window::{PoolBackwardDescriptor, PoolDescriptor, ResizeBackwardDescriptor, ResizeDescriptor};
use crate::plan::Descriptor;

/// Every op of this crate.
pub static OPS: &[OpEntry] = &[
    OpEntry::of::<LayerNormDescriptor>(),
    OpEntry::of::<LayerNormBackwardDescriptor>(),
    OpEntry::of::<RmsNormDescriptor>(),
    OpEntry::of::<RmsNormBackwardDescriptor>(),
    OpEntry::of::<BatchNormDescriptor>(),
    OpEntry::of::<BatchNormBackwardDescriptor>(),
    OpEntry::of::<GroupNormDescriptor>(),
    OpEntry::of::<GroupNormBackwardDescriptor>(),
    OpEntry::of::<InstanceNormDescriptor>(),
    OpEntry::of::<InstanceNormBackwardDescriptor>(),
    OpEntry::of::<LocalResponseNormDescriptor>(),
    OpEntry::of::<LocalResponseNormBackwardDescriptor>(),
    OpEntry::of::<SoftmaxDescriptor>(),
    OpEntry::of::<SoftmaxBackwardDescriptor>(),
    OpEntry::of::<CrossEntropyDescriptor>(),
    OpEntry::of::<CrossEntropyBackwardDescriptor>(),
    OpEntry::of::<LinearCrossEntropyDescriptor>(),
    OpEntry::of::<LinearCrossEntropyBackwardDescriptor>(),
    OpEntry::of::<AttentionDescriptor>(),
    OpEntry::of::<AttentionBackwardDescriptor>(),
    OpEntry::of::<ActivationDescriptor>(),
    OpEntry::of::<ActivationBackwardDescriptor>(),
    OpEntry::of::<PointwiseDescriptor>(),
    OpEntry::of::<ReduceDescriptor>(),
    OpEntry::of::<ScanDescriptor>(),
    OpEntry::of::<FftDescriptor>(),
    OpEntry::of::<RfftDescriptor>(),
    OpEntry::of::<IrfftDescriptor>(),
    OpEntry::of::<CopyDescriptor>(),
    OpEntry::of::<PadDescriptor>(),
    OpEntry::of::<ConcatDescriptor>(),
    OpEntry::of::<IndexSelectDescriptor>(),
    OpEntry::of::<GatherDescriptor>(),
    OpEntry::of::<IndexAddDescriptor>(),
    OpEntry::of::<ScatterDescriptor>(),
    OpEntry::of::<NonzeroDescriptor>(),
    OpEntry::of::<SortDescriptor>(),
    OpEntry::of::<TopKDescriptor>(),
    OpEntry::of::<SearchSortedDescriptor>(),
    OpEntry::of::<PoolDescriptor>(),
    OpEntry::of::<PoolBackwardDescriptor>(),
    OpEntry::of::<ResizeDescriptor>(),
    OpEntry::of::<ResizeBackwardDescriptor>(),
    OpEntry::of::<GemmDescriptor>(),
    OpEntry::of::<GemmBackwardDescriptor>(),
    OpEntry::of::<ConvDescriptor>(),
    OpEntry::of::<ConvBackwardDataDescriptor>(),
    OpEntry::of::<ConvBackwardWeightDescriptor>(),
    OpEntry::of::<ConvBackwardBiasDescriptor>(),
    OpEntry::of::<ConvTransposeDescriptor>(),
    OpEntry::of::<TriangularSolveDescriptor>(),
    OpEntry::of::<CholeskyDescriptor>(),
];

/// One op of the list.
#[derive(Debug)]
pub struct OpEntry {
    /// The op's name.
    pub name: &'static str,
    /// Names of all its operands.
    pub operands: &'static [&'static str],
    parse: fn(&str) -> Result<AnyDescriptor>,
    read: fn(&Value) -> Result<AnyDescriptor>,
    kernels: fn() -> Vec<(Backend, &'static str)>,
    #[cfg(test)]
    pub(crate) table: &'static [crate::slots::OperandEntry],
    #[cfg(test)]
    differentiable: crate::gradients::Differentiable,
}

impl OpEntry {
    const fn of<D: Descriptor>() -> Self {
        Self {
            name: D::NAME,
            operands: D::OPERANDS,
            parse: parse::<D>,
            read: read::<D>,
            kernels: kernels::<D>,
            #[cfg(test)]
            table: D::TABLE,
            #[cfg(test)]
            differentiable: D::DIFFERENTIABLE,
        }
    }

    fn find(name: &str) -> Result<&'static Self> {
        let known = || OPS.iter().map(|entry| entry.name).collect();
        OPS.iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| Error::UnknownOp { name: name.into(), known: known() })
    }

    /// The op's kernels of this build, one of which [`PlanOptions`](crate::PlanOptions) may ask for, each with its backend: those of a backend are tried in
    /// this order.
    pub fn kernels(&self) -> Vec<(Backend, &'static str)> {
        (self.kernels)()
    }
}

fn kernels<D: Descriptor>() -> Vec<(Backend, &'static str)> {
    D::kernels().iter().map(|kernel| (kernel.backend(), kernel.name())).collect()
}

fn parse<D: Descriptor>(json: &str) -> Result<AnyDescriptor> {
    D::from_json(json).map(AnyDescriptor::new)
}

fn read<D: Descriptor>(json: &Value) -> Result<AnyDescriptor> {
    D::from_value(json).map(AnyDescriptor::new)
}

impl AnyDescriptor {
    /// A descriptor from an op's name and its JSON.
    ///
    /// # Errors
    /// [`Error::UnknownOp`], or [`Error::InvalidJson`] with what is wrong, and its type as the source.
    pub fn parse(name: &str, json: &str) -> Result<Self> {
        (OpEntry::find(name)?.parse)(json)
    }

    /// A descriptor from a repro line: the op's name, a space, its JSON.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_line(line: &str) -> Result<Self> {
        let (name, json) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        Self::parse(name, json)
    }
}

impl TryFrom<Document<Json>> for AnyDescriptor {
    type Error = Error;

    fn try_from(Document(Json { op, descriptor }): Document<Json>) -> Result<Self> {
        (OpEntry::find(&op)?.read)(&descriptor.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_have_gradients_or_are_gradients_or_positions() {
        for op in OPS {
            // Positions have no gradients, and gradients none of their own.
            let is_gradient = op.name.contains("_backward") || ["nonzero", "search_sorted"].contains(&op.name);
            let [outputs, inputs] = [op.differentiable.outputs, op.differentiable.inputs];
            assert!(is_gradient == outputs.is_empty() && is_gradient == inputs.is_empty(), "{}", op.name);
            assert!(outputs.iter().chain(inputs).all(|name| op.operands.contains(name)), "{}", op.name);
        }
    }
}
