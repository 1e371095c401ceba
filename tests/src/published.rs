//! What is published of a run: the largest errors, and what each device serves.

use std::collections::BTreeMap;

use baracuda_ops::{Backend, Device, DeviceProps, PlanOptions};
use baracuda_ops_benches::line::Origin;
use serde::{Deserialize, Serialize};

use crate::floor::{Ended, Record};
use crate::ops::SUBJECTS;
use crate::target::{TARGETS, Target};

/// A row of the support table.
#[derive(Clone, Debug, PartialEq)]
pub struct Support {
    /// The op.
    pub op: String,
    /// The target.
    pub target: String,
    /// What is asked for.
    pub feature: String,
    /// The kernel that serves it, if one does.
    pub kernel: Option<String>,
    /// Why not.
    pub reason: String,
}

/// The largest error of one output over all cases of a type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Accuracy {
    /// The op.
    pub op: String,
    /// The output.
    pub output: String,
    /// The type of the op's first operand.
    pub dtype: String,
    /// The target.
    pub target: String,
    /// Cases measured.
    pub cases: usize,
    /// The largest error in units of the contract.
    pub units: f64,
    /// The case that has it.
    pub case: String,
    /// Where and when.
    #[serde(flatten)]
    pub origin: Origin,
}

/// What devices serve, one of each backend that this program is built with: `choose` gives its properties.
pub fn support(choose: impl Fn(&Target) -> Option<DeviceProps>) -> Vec<Support> {
    let targets = TARGETS.iter().filter(|t| t.name != "wgpu-plain");
    let devices: Vec<_> = targets.filter_map(|target| Some((target.name, choose(target)?))).collect();
    let mut rows = Vec::new();
    for subject in SUBJECTS {
        for (feature, descriptor) in (subject.features)() {
            for (target, props) in &devices {
                let (kernel, reason) = match descriptor.supported_with(props, &PlanOptions::default()) {
                    Ok(kernel) => (Some(kernel.to_string()), String::new()),
                    Err(error) => (None, reason(&error)),
                };
                let (op, target, feature) = (subject.name.into(), (*target).into(), feature.clone());
                rows.push(Support { op, target, feature, kernel, reason });
            }
        }
    }
    rows
}

/// The same device of each backend on every machine, which need not have it: on CUDA one like an H200.
pub fn documented(target: &Target) -> Option<DeviceProps> {
    let mut examples = DeviceProps::examples().into_iter().filter(|props| props.backend() == target.backend);
    match target.backend {
        Backend::Cuda => examples.find(|props| props.to_string().contains("H200")),
        _ => examples.next(),
    }
}

/// The device of this machine, else the documented one.
pub fn present(target: &Target) -> Option<DeviceProps> {
    target.device.as_ref().ok().map(Device::props).or_else(|| documented(target))
}

/// The last kernel's words.
fn reason(error: &baracuda_ops::Error) -> String {
    match error {
        baracuda_ops::Error::Unsupported { tried, .. } => {
            tried.last().map_or_else(String::new, |r| r.reason.to_string())
        }
        other => other.to_string(),
    }
}

/// The largest errors of a run.
pub fn accuracy(records: &[Record]) -> Vec<Accuracy> {
    let origins: BTreeMap<&str, Origin> =
        TARGETS.iter().filter_map(|t| Some((t.name, Origin::of(t.device.as_ref().ok()?)))).collect();
    let mut found: BTreeMap<[&str; 4], (usize, f64, &str)> = BTreeMap::new();
    for record in records.iter().filter(|r| r.mode == "values" && r.ended == Ended::Ran) {
        for (output, units) in &record.outputs {
            // An output of one of several sets, such as `out0.17`, is the same output.
            let output = output.split_once('.').map_or(output.as_str(), |(output, _)| output);
            let entry = found.entry([&record.op, output, &record.dtype, &record.target]).or_default();
            entry.0 += 1;
            if *units >= entry.1 {
                (entry.1, entry.2) = (*units, &record.case);
            }
        }
    }
    let line = |([op, output, dtype, target], (cases, units, case)): ([&str; 4], (usize, f64, &str))| {
        let origin = origins.get(target)?.clone();
        let (op, output, dtype, target) = (op.into(), output.into(), dtype.into(), target.into());
        let units = (units * 1000.0).round() / 1000.0;
        Some(Accuracy { op, output, dtype, target, cases, units, case: case.into(), origin })
    };
    found.into_iter().filter_map(line).collect()
}
