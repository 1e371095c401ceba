//! Case files: one safetensors file with an op, its descriptor, inputs and expected outputs (docs/case-files.md).

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use baracuda_ops::{Access, AnyDescriptor, AnyPlan, Backend, DType, Error, OPS, PlanOptions, TensorDesc};
use safetensors::{Dtype, SafeTensors};
use serde::de::IgnoredAny;

use crate::arena::{Arena, InPlace, Layout, POISON};
use crate::case::{Case, Data};
use crate::exec::{Executor, OnDevice, refusal};
use crate::judge::{By, Worst, compare};
use crate::ops::subject;
use crate::target::Target;
use crate::values::{Tensors, gather, offsets};

/// The keys of a file's metadata. Others are the author's own.
pub const KEYS: [&str; 5] = ["op", "descriptor", "source", "options", "refused"];
/// How element types are called in a file, and by the library.
pub const DTYPES: [(Dtype, DType); 7] = [
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
];
/// The most bytes that the operands of a file may span in memory, where a small tensor with large strides would take all there is.
pub const MOST_BYTES: u64 = 8 << 30;

const BACKENDS: [Backend; 3] = [Backend::Cpu, Backend::Cuda, Backend::Wgpu];

/// A case file in memory.
pub struct CaseFile {
    /// The op.
    pub op: String,
    /// Who computed the expected values.
    pub source: String,
    /// The devices that must refuse the case.
    pub refused: Vec<Backend>,
    /// The case, or why the library takes the descriptor for none: a refusal by every device.
    pub case: Result<Case, Error>,
    /// The inputs; none where every device must refuse the case.
    pub inputs: Tensors,
    /// The expected outputs, in f64 or in the output's type; none where every device must refuse the case.
    pub outputs: Tensors,
}

/// How the replay of a case file ended.
pub enum Replay {
    /// It ran.
    Ran {
        /// What served it.
        kernel: &'static str,
        /// The errors found, which are within the contract if none is over its budget.
        worst: Worst,
    },
    /// The device refused it, as it must.
    Refused(Error),
}

impl CaseFile {
    /// Reads a file and checks it against its descriptor.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).context("cannot be read")?;
        unless_it_panics(|| Self::parse(&bytes)).context("is no case file")
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let (_, header) = SafeTensors::read_metadata(bytes).context("the safetensors header is broken")?;
        let metadata = header.metadata().as_ref().context("the header has no metadata")?;
        let of = |key: &str| metadata.get(key).with_context(|| format!("no {key} in the metadata"));
        let (op, descriptor, source) = (of("op")?, of("descriptor")?, of("source")?);
        let refused = metadata.get("refused").map_or(Ok(Vec::new()), |names| backends(names))?;
        serde_json::from_str::<IgnoredAny>(descriptor).context("the descriptor is no JSON")?;
        let options = match metadata.get("options") {
            Some(json) => serde_json::from_str(json).with_context(|| format!("the options are {json:?}"))?,
            None => PlanOptions::default(),
        };
        let descriptor = AnyDescriptor::parse(op, descriptor);
        if let (Ok(_), Some(name)) = (&descriptor, options.kernel.as_deref()) {
            names_a_kernel(op, name)?;
        }
        let case = match descriptor {
            Ok(descriptor) => Ok(Case::new(descriptor, Data::Normal).with(options)),
            Err(error @ Error::UnknownOp { .. }) => return Err(error.into()),
            Err(error) => Err(error),
        };
        let (mut inputs, mut outputs) = (Tensors::default(), Tensors::default());
        if let Ok(case) = &case
            && !BACKENDS.iter().all(|backend| refused.contains(backend))
        {
            (inputs, outputs) = tensors(case, &SafeTensors::deserialize(bytes)?)?;
        }
        Ok(Self { op: op.clone(), source: source.clone(), refused, case, inputs, outputs })
    }

    /// Replays the file on a target that is present.
    ///
    /// # Errors
    /// The device's, a refusal that the file does not ask for, or the lack of one that it does.
    pub fn replay(&self, target: &Target) -> Result<Replay> {
        unless_it_panics(|| {
            let case = match &self.case {
                Ok(case) => case,
                Err(error) => return self.refused_with(target, error.clone(), false),
            };
            let target = target.lane(case.dtype());
            match self.plan(case, target) {
                Ok(_) if self.refused.contains(&target.backend) => {
                    bail!("accepts this, though the file says that it must refuse it")
                }
                Ok(plan) => {
                    let kernel = plan.info().kernel;
                    let worst = self.run(case, &plan, target).with_context(|| kernel)?;
                    Ok(Replay::Ran { kernel, worst })
                }
                Err(error) => match refusal(&error) {
                    Some(why) => self.refused_with(target, why.clone(), case.must_be_refused_by(target.backend)),
                    None => Err(error),
                },
            }
        })
    }

    fn plan(&self, case: &Case, target: &Target) -> Result<AnyPlan> {
        let device = target.device.as_ref().map_err(|why| anyhow!("{why}"))?;
        Ok(case.plan(device)?)
    }

    fn refused_with(&self, target: &Target, why: Error, is_the_rule: bool) -> Result<Replay> {
        if is_the_rule || self.refused.contains(&target.backend) {
            return Ok(Replay::Refused(why));
        }
        bail!("refuses this, which the file does not ask for: {why}")
    }

    fn run(&self, case: &Case, plan: &AnyPlan, target: &Target) -> Result<Worst> {
        let layout = Layout::Apart { shift: 0 };
        let mut arena = Arena::new(plan.slots(), plan.workspace(), &self.inputs, layout, InPlace::No, POISON);
        {
            let _turn = target.turn();
            OnDevice(plan).run(&mut arena)?;
        }
        arena.check_surroundings()?;
        self.judge(case, By::of(plan), &arena.outputs())
    }

    /// Compares outputs with the file's, under the budgets of the op's contract.
    fn judge(&self, case: &Case, by: By, outputs: &Tensors) -> Result<Worst> {
        let expected = (subject(&self.op)?.expect)(&case.descriptor, &self.inputs, outputs, by)?;
        let mut worst = Worst::default();
        let mut failures = Vec::new();
        for slot in case.slots().iter().filter(|s| s.access != Access::In) {
            let mut expected = expected
                .iter()
                .find(|e| e.name == slot.name)
                .with_context(|| format!("no budget for {}", slot.name))?
                .clone();
            let given = self.outputs.get(slot.name).context("every output was read")?;
            if self.source.starts_with("onnx ") {
                // ONNX computes its expected values in the case's own type: they carry a second error like ours.
                expected.budgets.iter_mut().for_each(|b| *b *= 2.0);
            }
            expected.values.clone_from(&given.values);
            let found = compare(slot, outputs.values(slot.name).context("every output was gathered")?, &expected)?;
            if found.over > 0 {
                failures.push(found.words.clone());
            }
            worst.take(slot.name, found);
        }
        if !failures.is_empty() {
            worst.words = failures.join("; ");
        }
        Ok(worst)
    }
}

/// Refuses a name that no kernel of the op has on any backend. A build without some backend does not know the kernels there, except that
/// their names begin with the op's.
fn names_a_kernel(op: &str, name: &str) -> Result<()> {
    let entry = OPS.iter().find(|entry| entry.name == op).context("every descriptor is one of an op")?;
    let kernels: Vec<&str> = entry.kernels().into_iter().map(|(_, kernel)| kernel).collect();
    let knows_all = cfg!(all(feature = "cuda", feature = "wgpu"));
    let may_be_elsewhere = !knows_all && name.strip_prefix(op).is_some_and(|form| form.starts_with('_'));
    ensure!(
        kernels.contains(&name) || may_be_elsewhere,
        "the options ask for kernel {name:?}; the kernels of {op} in this build are {}",
        kernels.join(", ")
    );
    Ok(())
}

/// The devices of a list such as `cuda,wgpu`.
fn backends(names: &str) -> Result<Vec<Backend>> {
    let of = |name: &str| {
        let backend = BACKENDS.into_iter().find(|b| b.to_string() == name);
        backend.with_context(|| format!("refused is {names:?}: {name:?} is none of cpu, cuda and wgpu"))
    };
    names.split(',').map(|name| of(name.trim())).collect()
}

/// The inputs and expected outputs of a case, each of which the file must hold, and nothing else.
fn tensors(case: &Case, file: &SafeTensors) -> Result<(Tensors, Tensors)> {
    let bytes = case.slots().iter().try_fold(0u64, |sum, slot| sum.checked_add(slot.span_bytes));
    ensure!(
        bytes.is_some_and(|b| b <= MOST_BYTES),
        "the operands span {} bytes in memory; at most {MOST_BYTES} are replayed",
        bytes.map_or("2^64 or more".into(), |b| b.to_string())
    );
    let (mut inputs, mut outputs) = (Tensors::default(), Tensors::default());
    for slot in case.slots() {
        let wanted = [("in.", slot.access != Access::Out), ("out.", slot.access != Access::In)];
        for (prefix, _) in wanted.iter().filter(|w| w.1) {
            let name = format!("{prefix}{}", slot.name);
            let view = file.tensor(&name).map_err(|_| anyhow!("no tensor {name}"))?;
            let dims: Vec<u64> = view.shape().iter().map(|&d| d as u64).collect();
            ensure!(dims == slot.desc.dims(), "{name} is {dims:?}, the descriptor says {:?}", slot.desc.dims());
            let known = DTYPES.iter().find(|(of_file, _)| *of_file == view.dtype());
            let held = known.with_context(|| format!("{name} has elements of type {:?}", view.dtype()))?.1;
            ensure!(
                held == slot.desc.dtype() || (*prefix == "out." && held == DType::F64),
                "{name} is {held}, the descriptor says {}",
                slot.desc.dtype()
            );
            let dense = TensorDesc::contiguous(held, &dims)?;
            let values = gather(&dense, view.data());
            ensure!(
                do_repeats_agree(&slot.desc, &values),
                "{name}: by strides {:?} of {dims:?} some elements share memory, but the file holds different values for them",
                slot.desc.strides()
            );
            let tensors = if *prefix == "in." { &mut inputs } else { &mut outputs };
            tensors.push(slot.name, &dense, values);
        }
    }
    let extra = file.names().into_iter().find(|name| {
        let known = |prefix: &str, t: &Tensors| name.strip_prefix(prefix).is_some_and(|n| t.get(n).is_some());
        !known("in.", &inputs) && !known("out.", &outputs)
    });
    ensure!(extra.is_none(), "tensor {} belongs to no operand", extra.unwrap_or_default());
    Ok((inputs, outputs))
}

/// Whether elements that share memory, as those along a stride of 0 do, have equal values.
fn do_repeats_agree(desc: &TensorDesc, values: &[f64]) -> bool {
    if desc.is_injective() {
        return true;
    }
    let mut held = HashMap::new();
    offsets(desc).iter().zip(values).all(|(at, v)| *held.entry(at).or_insert(v.to_bits()) == v.to_bits())
}

/// Makes an error of a panic, so that one file, or a driver that it upsets, costs no other file.
///
/// # Errors
/// The work's own, or a panic's words.
pub fn unless_it_panics<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let words = |panic: &(dyn Any + Send)| {
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words").to_string()
    };
    // What a replay shares with others are the target's locks, which are taken whether poisoned or not.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(anyhow!("panicked: {}", words(&*panic))))
}
