//! Case files: one safetensors file with an op, its descriptor, inputs and expected outputs.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops::{Access, AnyDescriptor, Backend, DType, PlanOptions};
use safetensors::{Dtype, SafeTensors};

use crate::arena::{Arena, InPlace, Layout, POISON};
use crate::case::{Case, Data};
use crate::exec::{Executor, OnDevice, refusal};
use crate::judge::{Worst, compare};
use crate::ops::subject;
use crate::target::Target;
use crate::values::{Tensors, gather};

/// A case file in memory.
pub struct CaseFile {
    /// The descriptor.
    pub case: Case,
    /// Who computed the expected values.
    pub source: String,
    /// The inputs.
    pub inputs: Tensors,
    /// The expected outputs, in f64 or in the output's type.
    pub outputs: Tensors,
}

fn dtype(dtype: Dtype) -> Result<DType> {
    Ok(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        other => bail!("elements of type {other:?}"),
    })
}

impl CaseFile {
    /// Reads a file and checks it against its descriptor.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} is no case file", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let metadata = header.metadata().as_ref().context("no metadata")?;
        let of = |key: &str| metadata.get(key).with_context(|| format!("no {key} in the metadata"));
        let descriptor = AnyDescriptor::parse(of("op")?, of("descriptor")?)?;
        let source = of("source")?.clone();
        let file = SafeTensors::deserialize(bytes)?;
        let (mut inputs, mut outputs) = (Tensors::default(), Tensors::default());
        for slot in descriptor.slots() {
            let wanted = [("in.", slot.access != Access::Out), ("out.", slot.access != Access::In)];
            for (prefix, _) in wanted.iter().filter(|w| w.1) {
                let name = format!("{prefix}{}", slot.name);
                let view = file.tensor(&name).with_context(|| format!("no tensor {name}"))?;
                let dims: Vec<u64> = view.shape().iter().map(|&d| d as u64).collect();
                ensure!(dims == slot.desc.dims(), "{name} is {dims:?}, the descriptor says {:?}", slot.desc.dims());
                let held = dtype(view.dtype())?;
                ensure!(
                    held == slot.desc.dtype() || (*prefix == "out." && held == DType::F64),
                    "{name} is {held}, the descriptor says {}",
                    slot.desc.dtype()
                );
                let dense = baracuda_ops::TensorDesc::contiguous(held, &dims)?;
                let values = gather(&dense, view.data());
                let tensors = if *prefix == "in." { &mut inputs } else { &mut outputs };
                tensors.push(slot.name, &dense, values);
            }
        }
        let extra = file.names().into_iter().find(|name| {
            let known = |prefix: &str, t: &Tensors| name.strip_prefix(prefix).is_some_and(|n| t.get(n).is_some());
            !known("in.", &inputs) && !known("out.", &outputs)
        });
        ensure!(extra.is_none(), "tensor {} belongs to no operand", extra.unwrap_or_default());
        Ok(Self { case: Case::new(descriptor, Data::Normal), source, inputs, outputs })
    }

    /// Replays the file on a target: the largest error in units of the contract, or `None` where the target does not serve it.
    ///
    /// # Errors
    /// An error over budget, or the device's.
    pub fn replay(&self, target: &Target) -> Result<Option<Worst>> {
        let target = target.lane(self.case.dtype());
        let device = target.device.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
        let plan = match self.case.descriptor.plan(device, &PlanOptions::default()).map_err(anyhow::Error::from) {
            Ok(plan) => plan,
            Err(error) if refusal(&error).is_some() && self.case.must_be_refused_by(target.backend) => return Ok(None),
            Err(error) => return Err(error),
        };
        let layout = Layout::Apart { shift: 0 };
        let mut arena = Arena::new(plan.slots(), plan.workspace(), &self.inputs, layout, InPlace::No, POISON);
        {
            let _turn = target.turn();
            OnDevice(&plan).run(&mut arena)?;
        }
        arena.check_surroundings()?;
        self.judge(target.backend, &arena.outputs()).map(Some)
    }

    /// Compares outputs with the file's, under the budgets of the op's contract.
    fn judge(&self, backend: Backend, outputs: &Tensors) -> Result<Worst> {
        let expected =
            (subject(self.case.descriptor.name())?.expect)(&self.case.descriptor, &self.inputs, outputs, backend)?;
        let mut worst = Worst::default();
        for slot in self.case.slots().iter().filter(|s| s.access != Access::In) {
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
            ensure!(found.units <= 1.0, "{}", found.words);
            worst.take(slot.name, found);
        }
        Ok(worst)
    }
}
