//! What the harness knows of each op: cases, inputs, expected values and budgets, and how its typed arguments are made.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    Access, AnyDescriptor, DType, Descriptor, Device, Error, Mem, MemMut, Plan, PlanOptions, Queue, Slot, TensorDesc,
    Workspace,
};
use serde_json::Value;

use crate::case::{Case, Huge, Random};
use crate::judge::{By, Expected, budget};
use crate::values::Tensors;

mod activation;
mod attention;
mod batch_norm;
mod channel_norm;
mod cholesky;
mod concat;
mod conv;
mod conv_transpose;
mod copy;
mod cross_entropy;
mod fft;
mod gemm;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod linear_cross_entropy;
mod local_response_norm;
mod lookup;
mod movement;
mod nonzero;
mod order;
mod pad;
pub(crate) mod pointwise;
mod pool;
mod reduce;
mod resize;
mod rms_norm;
mod row_norm;
mod scan;
mod scatter;
mod search_sorted;
mod softmax;
mod triangular_solve;

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
    cross_entropy::FORWARD,
    cross_entropy::BACKWARD,
    linear_cross_entropy::FORWARD,
    linear_cross_entropy::BACKWARD,
    attention::FORWARD,
    attention::BACKWARD,
    activation::FORWARD,
    activation::BACKWARD,
    pointwise::POINTWISE,
    reduce::REDUCE,
    scan::SCAN,
    fft::FFT,
    fft::RFFT,
    fft::IRFFT,
    copy::COPY,
    pad::PAD,
    concat::CONCAT,
    lookup::INDEX_SELECT,
    lookup::GATHER,
    scatter::INDEX_ADD,
    scatter::SCATTER,
    nonzero::NONZERO,
    order::SORT,
    order::TOP_K,
    search_sorted::SEARCH_SORTED,
    pool::FORWARD,
    pool::BACKWARD,
    resize::FORWARD,
    resize::BACKWARD,
    gemm::FORWARD,
    gemm::BACKWARD,
    conv::FORWARD,
    conv::BACKWARD_DATA,
    conv::BACKWARD_WEIGHT,
    conv::BACKWARD_BIAS,
    conv_transpose::FORWARD,
    triangular_solve::TRIANGULAR_SOLVE,
    cholesky::CHOLESKY,
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
    /// an operand, rounded. Some output has elements: [`Subject::expected`] asks for no others.
    pub expect: fn(&AnyDescriptor, &Tensors, &Tensors, By) -> Result<Vec<Expected>>,
    /// The budgets, in words.
    pub contracts: &'static [Contract],
    /// Runs with the op's own argument struct.
    pub run_typed: RunTyped,
    /// Its descriptors in the support table: what is asked for, and the descriptor.
    pub features: fn() -> Vec<(String, AnyDescriptor)>,
}

impl Subject {
    /// What the outputs should be, and the budget of each element. Outputs without elements need no formula, which would go over every row of
    /// no columns.
    ///
    /// # Errors
    /// Those of the reference in f64, and an input or output that is missing.
    pub fn expected(
        &self,
        descriptor: &AnyDescriptor,
        inputs: &Tensors,
        outputs: &Tensors,
        by: By,
    ) -> Result<Vec<Expected>> {
        if has_elements(descriptor) {
            return match without_accumulation(descriptor)? {
                Some((plain, added)) => self.expected_sums(&plain, &added, inputs, outputs, by),
                None => (self.expect)(descriptor, inputs, outputs, by),
            };
        }
        let empty = |slot: &Slot| Expected { name: slot.name.into(), values: Vec::new(), budgets: Vec::new() };
        Ok(descriptor.slots().iter().filter(|slot| slot.access != Access::In).map(empty).collect())
    }

    /// What gradients should be of which some are added to what is there: the gradient, rounded to its type, and one rounded sum.
    fn expected_sums(
        &self,
        plain: &AnyDescriptor,
        added: &[String],
        inputs: &Tensors,
        outputs: &Tensors,
        by: By,
    ) -> Result<Vec<Expected>> {
        let mut all = (self.expect)(plain, inputs, outputs, by)?;
        for expected in all.iter_mut().filter(|expected| added.contains(&expected.name)) {
            let before = inputs.values(&expected.name).with_context(|| format!("no {} before", expected.name))?;
            let dtype = outputs.get(&expected.name).with_context(|| format!("no {}", expected.name))?.dtype;
            let Expected { values, budgets, .. } = expected;
            for ((value, own), before) in values.iter_mut().zip(budgets).zip(before) {
                *value += before;
                *own = *own * (1.0 + 2.0 * dtype.unit_roundoff())
                    + budget(dtype, dtype.accumulator(), *value, value.abs());
            }
        }
        Ok(all)
    }
}

/// The descriptor that only writes its gradients, and the names of those that this one adds to what is there behind its kernels, if there are any.
///
/// # Errors
/// A descriptor that has no JSON.
fn without_accumulation(descriptor: &AnyDescriptor) -> Result<Option<(AnyDescriptor, Vec<String>)>> {
    let mut json = json_of(descriptor)?;
    let Some(added) = json.as_object_mut().and_then(|fields| fields.remove("accumulate")) else { return Ok(None) };
    Ok(Some((AnyDescriptor::parse(descriptor.name(), &json.to_string())?, serde_json::from_value(added)?)))
}

/// What a gradient is added to, if a slot is that of one which is added behind the op's kernels.
///
/// # Errors
/// A descriptor that has no JSON.
pub fn before_accumulation(descriptor: &AnyDescriptor, slot: &Slot, random: &mut Random) -> Result<Option<Vec<f64>>> {
    let added = without_accumulation(descriptor)?.is_some_and(|(_, added)| added.iter().any(|name| name == slot.name));
    Ok(added.then(|| (0..slot.desc.elements()).map(|_| random.normal()).collect()))
}

/// The cases of a backward, and some of them of each type again with gradients that are added to what is there: all of them and the last in turn.
fn accumulating(cases: Vec<Case>) -> Vec<Case> {
    const STEP: usize = 24;
    let is_plain = |case: &&Case| case.options.workspace_limit.is_none();
    let mut more = Vec::new();
    for dtype in FLOATS {
        let of_type: Vec<&Case> = cases.iter().filter(|case| case.dtype() == dtype).filter(is_plain).collect();
        for (at, case) in of_type.into_iter().step_by(STEP).enumerate() {
            let gradients: Vec<&str> =
                case.slots().iter().filter(|slot| slot.access == Access::Out).map(|slot| slot.name).collect();
            let from = if at % 2 == 0 { 0 } else { gradients.len() - 1 };
            let descriptor = case.descriptor.accumulate(&gradients[from..]).expect("gradients are added");
            more.push(Case { descriptor, is_core: at < 2, may_be_constant: true, ..case.clone() });
        }
    }
    cases.into_iter().chain(more).collect()
}

/// Whether some output has elements.
pub fn has_elements(descriptor: &AnyDescriptor) -> bool {
    descriptor.slots().iter().any(|slot| slot.access != Access::In && !slot.desc.is_empty())
}

/// A descriptor and every output that the reference in f64 writes for it: a norm's statistics and a product's pre-activation, where the op has them.
pub fn with_all_outputs(descriptor: &AnyDescriptor) -> AnyDescriptor {
    let dtype = descriptor.slots()[0].desc.dtype().name();
    let further = [("stats", Value::from(true)), ("pre", Value::from(dtype))];
    further.into_iter().fold(descriptor.clone(), |descriptor, (field, value)| {
        let Ok(mut json) = json_of(&descriptor) else { return descriptor };
        if json.get(field).is_none() {
            json[field] = value;
        }
        // An op without the field does not know it.
        AnyDescriptor::parse(descriptor.name(), &json.to_string()).unwrap_or(descriptor)
    })
}

/// Makes the op's own argument struct of the operands, and runs the plan with it.
pub type RunTyped = fn(TypedRun<'_, '_>) -> Result<(), Error>;

/// A run that is asked for by the op's own types.
pub struct TypedRun<'r, 'q> {
    /// What to plan.
    pub descriptor: &'r AnyDescriptor,
    /// Where.
    pub device: &'r Device,
    /// What is asked of the plan.
    pub options: &'r PlanOptions,
    /// Where to enqueue.
    pub queue: &'r mut Queue<'q>,
    /// The operands.
    pub named: &'r dyn Named,
    /// The workspace.
    pub workspace: Workspace<'r>,
}

impl<'r> TypedRun<'r, '_> {
    /// An operand that the op always reads.
    fn input(&self, name: &str) -> Mem<'r> {
        self.named.mem(name).unwrap_or_else(|| panic!("no operand {name}"))
    }

    /// An operand that the op always writes.
    fn output(&self, name: &str) -> MemMut<'r> {
        self.named.mem_mut(name).unwrap_or_else(|| panic!("no operand {name}"))
    }

    /// Plans the descriptor, which is of type `D`, and runs it.
    fn plan<D: Descriptor>(self, args: D::Args<'_>) -> Result<(), Error> {
        let descriptor: &D = self.descriptor.downcast().unwrap_or_else(|| panic!("no descriptor of {}", D::NAME));
        Plan::new(self.device, descriptor.clone(), self.options)?.run(self.queue, args, self.workspace)
    }
}

/// Those of some inputs that a forward has.
fn existing<'n>(forward: &impl Descriptor, inputs: &[&'n str]) -> Vec<&'n str> {
    let has = |input: &&&str| forward.slots().iter().any(|slot| slot.name == **input);
    inputs.iter().filter(has).copied().collect()
}

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

/// The element types that every op has.
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// The longest chain of additions plus the depth of the tree above it that the contract allows a reduction.
const CHAIN: f64 = 48.0;

/// What of [`Data::Huge`](crate::case::Data::Huge) a norm over groups of `n` elements takes: docs/numerics.md, Valid inputs.
fn huge_of_norm(dtype: DType, n: u64, is_backward: bool, has_mean: bool) -> Huge {
    let (squares, deviation) = if dtype == DType::F64 { (509, 400) } else { (61, 50) };
    let largest = 2f64.powi(squares) / (n.max(1) as f64).sqrt();
    let largest = if is_backward { largest.min(2f64.powi(deviation)) } else { largest };
    // A row of one number is all mean: in units of sqrt(eps), of an eps of 1e-5.
    let constant = if has_mean { 2f64.powi(20) * 1e-5f64.sqrt() } else { largest };
    Huge::of(dtype).at_most(largest, constant)
}

fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(dtype, dims).expect("a valid shape")
}

fn channels_last(dtype: DType, dims: &[u64]) -> TensorDesc {
    TensorDesc::channels_last(dtype, dims).expect("a valid shape")
}

fn strided(dtype: DType, dims: &[u64], strides: &[u64]) -> TensorDesc {
    TensorDesc::strided(dtype, dims, strides).expect("a valid layout")
}

/// Rows of the support table: of each type what is asked for, where it makes a descriptor.
fn features<W: std::fmt::Display, F>(
    asked_for: fn(DType) -> Vec<(W, F)>,
    pass: fn(&F) -> Result<AnyDescriptor, Error>,
) -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS {
        for (what, form) in asked_for(dtype) {
            if let Ok(descriptor) = pass(&form) {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}

/// The fields of a descriptor, as they are written.
fn json_of(descriptor: &AnyDescriptor) -> Result<Value> {
    let line = descriptor.line();
    let (_, json) = line.split_once(' ').context("a repro line has a JSON")?;
    Ok(serde_json::from_str(json)?)
}

/// Runs a descriptor whose operands are all dense f64 by the plain formulas, on the CPU. Operands that are read and written are among inputs and outputs.
fn run_in_f64(op: &str, json: &Value, inputs: &BTreeMap<&str, &[f64]>) -> Result<BTreeMap<String, Vec<f64>>> {
    let device = Device::cpu();
    let plan = AnyDescriptor::parse(op, &json.to_string())?
        .plan(&device, &PlanOptions::default().kernel(format!("{op}_reference")))?;
    let input = |name: &str| inputs.get(name).copied().with_context(|| format!("no input {name}"));
    let mut outputs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut count: Vec<i64> = Vec::new();
    for slot in plan.slots() {
        let elements = slot.desc.elements() as usize;
        let values = match slot.access {
            Access::In => continue,
            Access::Out => vec![f64::NAN; elements],
            Access::InOut => input(slot.name)?.to_vec(),
        };
        if slot.desc.dtype() == DType::I64 {
            count = values.iter().map(|v| *v as i64).collect();
        } else {
            outputs.insert(slot.name.into(), values);
        }
    }
    let mut writable: BTreeMap<&str, &mut Vec<f64>> = outputs.iter_mut().map(|(n, v)| (n.as_str(), v)).collect();
    let mut writable_count = Some(&mut count);
    let mut operands = Vec::new();
    for slot in plan.slots() {
        operands.push(match (writable.remove(slot.name), slot.desc.dtype()) {
            (Some(values), _) => MemMut::host(values.as_mut_slice()).into(),
            (None, DType::I64) => MemMut::host(writable_count.take().context("one count")?.as_mut_slice()).into(),
            (None, _) => Mem::host(input(slot.name)?).into(),
        });
    }
    plan.run(&mut device.queue(), &mut operands, Workspace::none())?;
    drop(operands);
    if !count.is_empty() {
        outputs.insert("num_batches".into(), count.iter().map(|v| *v as f64).collect());
    }
    Ok(outputs)
}
