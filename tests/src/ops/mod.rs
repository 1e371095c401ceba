//! What the harness knows of each op: cases, inputs, expected values and budgets, and how its typed arguments are made.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, Backend, Device, Error, Mem, MemMut, PlanOptions, Queue, Slot, Workspace};

use crate::case::{Case, Random};
use crate::judge::Expected;
use crate::values::Tensors;

mod batch_norm;
mod channel_norm;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod local_response_norm;
mod rms_norm;
mod row_norm;
mod softmax;

/// Every op, forward and backward.
pub static SUBJECTS: &[Subject] = &[
    layer_norm::FORWARD,
    layer_norm::BACKWARD,
    rms_norm::FORWARD,
    rms_norm::BACKWARD,
    batch_norm::FORWARD,
    batch_norm::BACKWARD,
    group_norm::FORWARD,
    group_norm::BACKWARD,
    instance_norm::FORWARD,
    instance_norm::BACKWARD,
    local_response_norm::FORWARD,
    local_response_norm::BACKWARD,
    softmax::FORWARD,
    softmax::BACKWARD,
];

/// One op.
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// Its cases.
    pub cases: fn() -> Vec<Case>,
    /// Whether only the CPU serves the layout of a descriptor.
    pub is_cpu_only: fn(&AnyDescriptor) -> bool,
    /// Whether the formula itself gives outputs that are the same number nearly everywhere, whatever the data.
    pub may_be_constant: fn(&AnyDescriptor) -> bool,
    /// Values for one input, given those of the slots before it.
    pub input: fn(&Case, &Slot, &mut Random, &Tensors) -> Result<Vec<f64>>,
    /// What the outputs should be, and the budget of each element. The outputs found are there for formulas of which one output is
    /// an operand, rounded.
    pub expect: fn(&AnyDescriptor, &Tensors, &Tensors, Backend) -> Result<Vec<Expected>>,
    /// The budgets, in words.
    pub contracts: &'static [Contract],
    /// Plans and runs with the op's own argument struct.
    pub run_typed: RunTyped,
    /// Its descriptors in the support table: what is asked for, and the descriptor.
    pub features: fn() -> Vec<(String, AnyDescriptor)>,
}

/// Plans a descriptor on a device and runs it with the operands of these names.
pub type RunTyped =
    fn(&AnyDescriptor, &Device, &PlanOptions, &mut Queue<'_>, &dyn Named, Workspace<'_>) -> Result<(), Error>;

/// The budget of some outputs, in words.
pub struct Contract {
    /// The outputs.
    pub outputs: &'static [&'static str],
    /// The formula.
    pub budget: &'static str,
    /// Why it is no tighter, where the errors seen are far below it.
    pub why: &'static str,
}

/// Operands by name.
pub trait Named {
    /// To read.
    fn mem(&self, name: &str) -> Option<Mem<'_>>;
    /// To write.
    fn mem_mut(&self, name: &str) -> Option<MemMut<'_>>;
}

/// The op of that name.
///
/// # Errors
/// Its absence.
pub fn subject(name: &str) -> Result<&'static Subject> {
    SUBJECTS.iter().find(|s| s.name == name).with_context(|| format!("{name} has no cases under tests/src/ops"))
}
