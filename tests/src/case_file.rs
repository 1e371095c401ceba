//! Case files: safetensors files with ops, their descriptors, inputs and expected outputs, one case each or many (docs/case-files.md).

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use baracuda_ops::{Access, AnyDescriptor, AnyPlan, Backend, DType, Error, OPS, PlanOptions, TensorDesc};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::arena::{Arena, InPlace, Layout, POISON};
use crate::case::{Case, Data};
use crate::exec::{Executor, OnDevice, refusal};
use crate::judge::{By, Worst, compare};
use crate::ops::subject;
use crate::target::Target;
use crate::values::{Tensors, gather, offsets};

/// The keys of the metadata of a file of one case. Others are the author's own.
pub const KEYS: [&str; 5] = ["op", "descriptor", "source", "options", "refused"];
/// The key of the metadata of a pack: the list of its cases, whose entries have the keys [`KEYS`] and `name`.
pub const PACK_KEY: &str = "cases";
/// How element types are called in a file, and by the library.
pub const DTYPES: [(Dtype, DType); 12] = [
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
    (Dtype::BOOL, DType::Bool),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::I8),
    (Dtype::F8_E4M3, DType::F8E4M3),
    (Dtype::F8_E5M2, DType::F8E5M2),
];

const BACKENDS: [Backend; 3] = [Backend::Cpu, Backend::Cuda, Backend::Wgpu];

/// A case of a file.
pub struct FiledCase {
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

/// A case of a file under its name, or what is wrong with it.
pub struct Entry {
    /// The name of a case of a pack, by default its number; none for the case of a file that holds one.
    pub name: Option<String>,
    /// The case.
    pub case: Result<FiledCase>,
}

/// How the replay of a case ended.
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

/// What the header says of a case.
struct Header<'a> {
    op: &'a str,
    descriptor: &'a str,
    source: &'a str,
    options: Option<&'a str>,
    refused: Option<&'a str>,
}

/// An entry of the list of a pack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Packed {
    name: Option<String>,
    op: String,
    descriptor: Box<RawValue>,
    source: String,
    options: Option<Box<RawValue>>,
    refused: Option<String>,
}

/// Reads the cases of a file and checks each against its descriptor.
///
/// # Errors
/// What is wrong with the file as a whole; what is wrong with a case of a pack is in its entry.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let bytes = std::fs::read(path).context("cannot be read")?;
    unless_it_panics(|| parse(&bytes)).context("is no case file")
}

fn parse(bytes: &[u8]) -> Result<Vec<Entry>> {
    let (_, header) = SafeTensors::read_metadata(bytes).context("the safetensors header is broken")?;
    let metadata = header.metadata().as_ref().context("the header has no metadata")?;
    let file = SafeTensors::deserialize(bytes)?;
    if let Some(list) = metadata.get(PACK_KEY) {
        return parse_pack(list, &file);
    }
    let of = |key: &str| metadata.get(key).with_context(|| format!("no {key} in the metadata"));
    let optional = |key: &str| metadata.get(key).map(String::as_str);
    let header = Header {
        op: of("op")?,
        descriptor: of("descriptor")?,
        source: of("source")?,
        options: optional("options"),
        refused: optional("refused"),
    };
    Ok(vec![Entry { name: None, case: Ok(FiledCase::new(&header, &file, "")?) }])
}

fn parse_pack(list: &str, file: &SafeTensors) -> Result<Vec<Entry>> {
    let list: Vec<Packed> = serde_json::from_str(list).with_context(|| format!("{PACK_KEY} is no list of cases"))?;
    ensure!(!list.is_empty(), "{PACK_KEY} is an empty list");
    let is_of_a_case = |name: &str| {
        let number = name.split_once('.').and_then(|(number, _)| number.parse::<usize>().ok());
        number.is_some_and(|number| number < list.len())
    };
    if let Some(stray) = file.names().into_iter().find(|name| !is_of_a_case(name)) {
        bail!("tensor {stray} belongs to none of the {} cases, which are counted from 0", list.len());
    }
    let entry = |(number, packed): (usize, &Packed)| {
        let header = Header {
            op: &packed.op,
            descriptor: packed.descriptor.get(),
            source: &packed.source,
            options: packed.options.as_ref().map(|json| json.get()),
            refused: packed.refused.as_deref(),
        };
        let case = unless_it_panics(|| FiledCase::new(&header, file, &format!("{number}.")));
        Entry { name: Some(packed.name.clone().unwrap_or_else(|| number.to_string())), case }
    };
    Ok(list.iter().enumerate().map(entry).collect())
}

impl FiledCase {
    /// A case whose tensors have names that begin with a prefix.
    fn new(header: &Header<'_>, file: &SafeTensors, prefix: &str) -> Result<Self> {
        let Header { op, descriptor, source, .. } = *header;
        let refused = header.refused.map_or(Ok(Vec::new()), backends)?;
        serde_json::from_str::<IgnoredAny>(descriptor).context("the descriptor is no JSON")?;
        let options = match header.options {
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
            (inputs, outputs) = tensors(case, file, prefix)?;
        }
        Ok(Self { op: op.into(), source: source.into(), refused, case, inputs, outputs })
    }

    /// Replays the case on a target that is present.
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
        let expected = subject(&self.op)?.expected(&case.descriptor, &self.inputs, outputs, by)?;
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
            let actual = outputs.get(slot.name).context("every output was gathered")?;
            let mut found = compare(slot, &actual.values, &expected)?;
            if let (Some(actual), Some(given)) = (&actual.integers, &given.integers)
                && found.over == 0
                && expected.budgets.iter().all(|budget| *budget < 1.0)
                && let Some(at) = actual.iter().zip(given).position(|(actual, given)| actual != given)
            {
                found.over = 1;
                found.units = f64::INFINITY;
                found.words = format!("{}: element {at} is {}, expected {}", slot.name, actual[at], given[at]);
            }
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
///
/// # Errors
/// The names of the kernels that it knows.
pub fn names_a_kernel(op: &str, name: &str) -> Result<()> {
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

/// The inputs and expected outputs of a case, each of which the file must hold, and nothing else under the prefix.
fn tensors(case: &Case, file: &SafeTensors, prefix: &str) -> Result<(Tensors, Tensors)> {
    case.fits()?;
    let (mut inputs, mut outputs) = (Tensors::default(), Tensors::default());
    for slot in case.slots() {
        let wanted = [("in.", slot.access != Access::Out), ("out.", slot.access != Access::In)];
        for (side, _) in wanted.iter().filter(|w| w.1) {
            let name = format!("{prefix}{side}{}", slot.name);
            let view = file.tensor(&name).map_err(|_| anyhow!("no tensor {name}"))?;
            let dims: Vec<u64> = view.shape().iter().map(|&d| d as u64).collect();
            ensure!(dims == slot.desc.dims(), "{name} is {dims:?}, the descriptor says {:?}", slot.desc.dims());
            let known = DTYPES.iter().find(|(of_file, _)| *of_file == view.dtype());
            let held = known.with_context(|| format!("{name} has elements of type {:?}", view.dtype()))?.1;
            ensure!(
                held == slot.desc.dtype() || (*side == "out." && held == DType::F64),
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
            let tensors = if *side == "in." { &mut inputs } else { &mut outputs };
            tensors.push_bytes(slot.name, &dense, view.data());
        }
    }
    let is_extra = |name: &str| {
        let known = |side: &str, t: &Tensors| name.strip_prefix(side).is_some_and(|n| t.get(n).is_some());
        !known("in.", &inputs) && !known("out.", &outputs)
    };
    if let Some(extra) = file.names().into_iter().find(|name| name.strip_prefix(prefix).is_some_and(is_extra)) {
        let declared: Vec<&str> = case.slots().iter().map(|slot| slot.name).collect();
        bail!("tensor {extra} belongs to no operand; the descriptor declares {}", declared.join(", "));
    }
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
