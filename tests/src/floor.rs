//! What ran, and the committed floor below which it must not fall.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::case::hash;

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It ran and passed.
    Ran,
    /// The device refused the descriptor, as it should.
    Refused,
    /// The device is absent, or the trial is left out on it.
    Ignored,
    /// It failed.
    Failed,
}

/// One trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The op.
    pub op: String,
    /// The mode.
    pub mode: String,
    /// The target.
    pub target: String,
    /// Element type.
    pub dtype: String,
    /// The repro line.
    pub case: String,
    /// How it ended.
    pub ended: Ended,
    /// Reason of a refusal or failure; where the largest error is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
    /// The largest error in units of the contract.
    pub units: f64,
    /// The largest of each output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<(String, f64)>,
    /// How long it took, waiting for its device included.
    #[serde(default)]
    pub ms: f64,
}

/// Counts of one (op, mode, target).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Trials that ran.
    pub ran: usize,
    /// Trials that the device refused, as it should.
    pub refused: usize,
    /// A number that changes with any case.
    pub cases: u64,
}

/// The committed floor: the repository's or, where there is none, the one built in.
pub fn committed() -> Floor {
    let text = std::fs::read_to_string(root().join("tests/floor.txt"));
    parse(text.as_deref().unwrap_or(include_str!("../floor.txt")))
}

/// The words of an ignored trial that its device would have to refuse.
pub const MUST_BE_REFUSED: &str = "must be refused";

/// Lines by (op, mode, target).
pub type Floor = BTreeMap<(String, String, String), Line>;

/// The floor of some records. Ignored trials count as what they would have to be; failed ones are missing.
pub fn of(records: &[Record]) -> Floor {
    let mut floor = Floor::new();
    for record in records {
        let line = floor.entry((record.op.clone(), record.mode.clone(), record.target.clone())).or_default();
        match record.ended {
            Ended::Ran => line.ran += 1,
            Ended::Refused => line.refused += 1,
            Ended::Ignored if record.words == MUST_BE_REFUSED => line.refused += 1,
            Ended::Ignored => line.ran += 1,
            Ended::Failed => {}
        }
        // A sum, which does not depend on the order of trials.
        line.cases = line.cases.wrapping_add(hash(&record.case));
    }
    floor
}

/// The floor as text.
pub fn render(floor: &Floor) -> String {
    let mut text = String::from("# op mode target ran refused cases; `bops floor --update` renews it\n");
    for ((op, mode, target), line) in floor {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{op} {mode} {target} {} {} {:016x}", line.ran, line.refused, line.cases);
    }
    text
}

/// The floor in a text.
pub fn parse(text: &str) -> Floor {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [op, mode, target, ran, refused, cases] = words[..] else { return None };
        let counts = Line {
            ran: ran.parse().ok()?,
            refused: refused.parse().ok()?,
            cases: u64::from_str_radix(cases, 16).ok()?,
        };
        Some(((op.to_string(), mode.to_string(), target.to_string()), counts))
    };
    text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect()
}

/// What fell below the floor, given the targets that are present.
pub fn below(floor: &Floor, now: &Floor, is_present: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (key @ (op, mode, target), committed) in floor {
        let what = format!("{op}/{mode}/{target}");
        match now.get(key) {
            None => complaints.push(format!("{what}: all {} trials are gone", committed.ran + committed.refused)),
            Some(found) if found.cases != committed.cases => {
                complaints.push(format!("{what}: the cases are others than the committed ones"));
            }
            Some(found) if is_present(target) && (found.ran, found.refused) != (committed.ran, committed.refused) => {
                complaints.push(format!(
                    "{what}: {} ran and {} were refused; committed are {} and {}",
                    found.ran, found.refused, committed.ran, committed.refused
                ));
            }
            Some(_) => {}
        }
    }
    complaints.extend(
        now.keys()
            .filter(|k| !floor.contains_key(*k))
            .map(|(op, mode, target)| format!("{op}/{mode}/{target}: not in the floor")),
    );
    complaints
}

/// The repository, or where the tool was started.
pub fn root() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let here = std::env::current_dir().unwrap_or_default();
    let is_root = |dir: &std::path::Path| dir.join("csrc").is_dir() && dir.join("tests").is_dir();
    if let Some(dir) = here.ancestors().find(|d| is_root(d)) {
        return dir.to_path_buf();
    }
    if is_root(&built) { built } else { here }
}

/// The target directory: what a run leaves lies there.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where records are written.
pub fn record_path() -> PathBuf {
    target_folder().join("parity.jsonl")
}
