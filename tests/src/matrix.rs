//! Every trial.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::case::Case;
use crate::floor::{Ended, Record};
use crate::modes::{self, Mode, Outcome};
use crate::ops::SUBJECTS;
use crate::target::{TARGETS, Target};

/// One trial.
pub struct Entry {
    /// The case.
    pub case: Arc<Case>,
    /// The mode.
    pub mode: Mode,
    /// The target.
    pub target: &'static Target,
}

impl Entry {
    /// `<op>/<mode>/<backend>/<repro line>`
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.case.descriptor.name(), self.mode.name(), self.target.name, self.case.line())
    }

    /// A record of the trial.
    pub fn record(&self, ended: Ended, words: String, units: f64) -> Record {
        Record {
            op: self.case.descriptor.name().into(),
            mode: self.mode.name().into(),
            target: self.target.name.into(),
            dtype: self.case.dtype().name().into(),
            case: self.case.line(),
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
            Ok(Err(error)) => self.record(Ended::Failed, format!("{error:#}"), 0.0),
            Err(_) => self.record(Ended::Failed, "panicked".into(), 0.0),
        }
    }
}

/// Every trial, those of absent devices included. The small cases come first.
pub fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for subject in SUBJECTS {
        for case in (subject.cases)().into_iter().map(Arc::new) {
            for target in TARGETS.iter() {
                let modes = Mode::ALL.into_iter().filter(|m| m.applies(&case, target));
                entries.extend(modes.map(|mode| Entry { case: case.clone(), mode, target }));
            }
        }
    }
    entries
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
