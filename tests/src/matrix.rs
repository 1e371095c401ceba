//! Every trial.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use baracuda_ops::Backend;

use crate::case::{Case, Data, hash};
use crate::floor::{Ended, Record};
use crate::modes::{self, Mode, Outcome};
use crate::ops::SUBJECTS;
use crate::said;
use crate::target::{TARGETS, Target, target};

/// An adapter that is software compiles shaders for a CPU, half a second each. Beside the cases that show every form of a shader, it runs
/// one in so many of those that run in every mode.
const SOFTWARE_CORE: u64 = 24;
/// The same where a further device would compile the shaders again.
const SOFTWARE_AGAIN: u64 = 48;
/// The same of the cases that run in `values` alone.
const SOFTWARE_VALUES: u64 = 128;
/// The same in modes that try the ways of running a plan, which cases of an op have in common.
const SOFTWARE_WAYS: u64 = 64;
/// The CPU runs one in so many cases in such a mode.
const CPU_WAYS: u64 = 4;
/// Ops that are sequences of other ops, which have trials of their own: a plan is a dozen shaders.
const SEQUENCES: [&str; 2] = ["linear_cross_entropy", "linear_cross_entropy_backward"];
/// Beside the first of each type, the share of the cases of a sequence that an adapter runs in `values` which is software.
const SOFTWARE_SEQUENCES: u64 = 16;
/// The most bytes of operands of such a case, where it is not needed for a form: with thousands of workgroups one of them takes a minute.
const SOFTWARE_BYTES: u64 = 1 << 20;
/// The most samples or rows of a case that shows a form which others have, too: GroupNorm's gradients over more take a minute.
const SOFTWARE_SAMPLES: u64 = 1 << 16;
/// The most bytes of operands of a case that the CPU runs where there is no CUDA device: larger ones are there to reach its kernels, and
/// show nothing of the reference that smaller ones do not.
const REFERENCE_BYTES: u64 = 4 << 20;

/// One trial.
pub struct Entry {
    /// The case.
    pub case: Arc<Case>,
    /// The mode.
    pub mode: Mode,
    /// The target.
    pub target: &'static Target,
    /// The case's repro line, which its trials share.
    line: Arc<str>,
    /// Whether the target serves the case, and no case before it that it serves runs in this mode, on this target, with this type.
    is_first: bool,
    /// Whether it is the trial in `values` that shows a form of its shaders: the smallest of those that have it.
    shows_form: bool,
}

impl Entry {
    /// A trial that no list holds.
    pub fn random(case: Arc<Case>, target: &'static Target) -> Self {
        let line = case.line().into();
        Self { case, mode: Mode::Random, target, line, is_first: false, shows_form: false }
    }

    /// The repro line of its case.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// `<op>/<mode>/<backend>/<repro line>`
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.case.descriptor.name(), self.mode.name(), self.target.name, self.line)
    }

    /// Whether the trial is left out on its device, which is there; none is where the environment has `BOPS_EVERY`.
    pub fn is_left_out(&self) -> bool {
        let is_left_out = match self.target.backend {
            _ if self.mode == Mode::Random => false,
            Backend::Cpu => self.is_for_cuda() || self.is_way_again(CPU_WAYS),
            _ => self.target.is_software() && !self.is_for_software(),
        };
        is_left_out && std::env::var_os("BOPS_EVERY").is_none()
    }

    /// Whether the mode tries a way of running a plan that an earlier case of its op and type shows, and the case is none of the one in
    /// `share` that show it again.
    fn is_way_again(&self, share: u64) -> bool {
        let is_way = !matches!(self.mode, Mode::Values | Mode::Bitwise | Mode::Sanitize);
        is_way && !self.is_first && !hash(&self.line).is_multiple_of(share)
    }

    /// Whether the case is one for a CUDA device, and there is none.
    fn is_for_cuda(&self) -> bool {
        let is_large = !self.case.is_core && self.case.bytes() > REFERENCE_BYTES;
        is_large && target("cuda").is_none_or(|cuda| cuda.device.is_err())
    }

    /// Whether the trial is of the fixed part of the matrix that an adapter runs which is software.
    pub fn is_for_software(&self) -> bool {
        if self.is_way_again(SOFTWARE_WAYS) {
            return false;
        }
        if SEQUENCES.contains(&self.case.descriptor.name()) {
            let is_asked = self.mode == Mode::Values && self.target.name == "wgpu";
            return self.is_first || self.shows_form || is_asked && hash(&self.line).is_multiple_of(SOFTWARE_SEQUENCES);
        }
        let is_again = self.target.name == "wgpu-plain";
        let share = match self.case.is_core {
            true if is_again => SOFTWARE_AGAIN,
            true => SOFTWARE_CORE,
            false => SOFTWARE_VALUES,
        };
        let is_small = self.case.is_core || self.case.bytes() <= SOFTWARE_BYTES;
        // The hardest data and layouts once for each op and type: other cases have the shaders compiled.
        let is_hard = matches!(self.case.data, Data::Huge | Data::Sparse | Data::Wide | Data::LargeBias)
            || self.case.interleaves();
        let is_hard = is_hard && self.case.is_core || self.case.data.is_structured();
        let is_hard = is_hard && self.mode == Mode::Values && !is_again;
        // Through an activation, forms that read vectors and such that do not have to agree.
        let has_vectors = self.case.slots()[0].desc.dims().ends_with(&[16, 16]);
        let crosses_forms =
            self.case.is_core && self.mode == Mode::Bitwise && has_vectors && self.line.contains("\"activation\"");
        self.is_first
            || self.shows_form
            || is_hard
            || crosses_forms
            || is_small && hash(&self.line).is_multiple_of(share)
    }

    /// A record of the trial.
    pub fn record(&self, ended: Ended, words: String, units: f64) -> Record {
        Record {
            op: self.case.descriptor.name().into(),
            mode: self.mode.name().into(),
            target: self.target.name.into(),
            dtype: self.case.dtype().name().into(),
            case: self.line.to_string(),
            ended,
            words,
            units,
            outputs: Vec::new(),
            ms: 0.0,
        }
    }

    /// Runs it.
    pub fn run(&self) -> Record {
        let start = Instant::now();
        let record = self.outcome();
        Record { ms: start.elapsed().as_secs_f64() * 1e3, ..record }
    }

    fn outcome(&self) -> Record {
        // A panic of the library is a failure of this trial, not the end of the others.
        match catch_unwind(AssertUnwindSafe(|| modes::run(&self.case, self.mode, self.target))) {
            Ok(Ok(Outcome::Ran(worst))) => {
                Record { outputs: worst.outputs, ..self.record(Ended::Ran, worst.words, worst.units) }
            }
            Ok(Ok(Outcome::Refused(why))) => self.record(Ended::Refused, why, 0.0),
            Ok(Err(error)) => self.record(Ended::Failed, said(&error), 0.0),
            Err(_) => self.record(Ended::Failed, "panicked".into(), 0.0),
        }
    }
}

/// Every trial, those of absent devices included, so ordered that all devices have work from the first to the last.
pub fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for subject in SUBJECTS {
        let mut kinds = HashSet::new();
        for case in (subject.cases)().into_iter().map(Arc::new) {
            let line: Arc<str> = case.line().into();
            for target in TARGETS.iter() {
                let is_served = !case.must_be_refused_by(target.backend);
                for mode in Mode::ALL.into_iter().filter(|m| m.applies(&case, target)) {
                    let is_first = is_served && kinds.insert((case.dtype(), case.is_core, mode, target.name));
                    let (case, line) = (case.clone(), line.clone());
                    entries.push(Entry { case, mode, target, line, is_first, shows_form: false });
                }
            }
        }
    }
    find_forms(&mut entries);
    spread(entries)
}

/// What one device runs, in its order, spread evenly over the whole.
pub fn spread(entries: Vec<Entry>) -> Vec<Entry> {
    let mut lengths = HashMap::new();
    let places: Vec<_> = entries
        .iter()
        .map(|entry| {
            let lane = (std::ptr::from_ref(entry.target.lane(entry.case.dtype())), entry.is_left_out());
            let length: &mut usize = lengths.entry(lane).or_default();
            *length += 1;
            (lane, *length)
        })
        .collect();
    let share = |(lane, place)| place as f64 / lengths[&lane] as f64;
    let mut placed: Vec<(f64, Entry)> = places.into_iter().map(share).zip(entries).collect();
    placed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    placed.into_iter().map(|(_, entry)| entry).collect()
}

/// Marks the smallest trial in `values` of each form that a target's shaders have.
fn find_forms(entries: &mut [Entry]) {
    for target in TARGETS.iter() {
        let Some(props) = target.software_props() else { continue };
        let is_of_target = |e: &&mut Entry| e.mode == Mode::Values && e.target.name == target.name;
        let mut trials: Vec<&mut Entry> = entries.iter_mut().filter(is_of_target).collect();
        let samples = |case: &Case| case.slots()[0].desc.dims().first().copied().unwrap_or(1);
        trials.sort_by_key(|entry| (samples(&entry.case) > SOFTWARE_SAMPLES, entry.case.bytes()));
        let mut seen = HashSet::new();
        for entry in trials {
            for form in entry.case.descriptor.shader_forms(&props, &entry.case.options) {
                entry.shows_form |= seen.insert(form);
            }
        }
    }
}

/// Writes records as JSON lines.
///
/// # Errors
/// The file system's.
pub fn write(records: &[impl serde::Serialize], path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for record in records {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}

/// The records of a file.
///
/// # Errors
/// The file system's, or a line that is no record.
pub fn read(path: &Path) -> anyhow::Result<Vec<Record>> {
    std::fs::read_to_string(path)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
