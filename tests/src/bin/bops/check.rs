//! Replays case files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use baracuda_ops::Error;
use baracuda_ops_tests::case_file::{self, FiledCase, Replay};
use baracuda_ops_tests::floor;
use baracuda_ops_tests::said;
use baracuda_ops_tests::target::{TARGETS, Target, require};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde::Serialize;

pub(crate) struct Request {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) devices: Vec<String>,
    pub(crate) json: Option<PathBuf>,
}

/// Shown only on a terminal.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len}, {eta} left {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// What an argument names, in the order of paths: a file, or what keeps one from being found.
struct Entry {
    path: PathBuf,
    problem: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    Ok,
    Failed,
    Refused,
    Unreadable,
}

/// How one case fared on one device.
struct Outcome {
    ended: Ended,
    /// What served it, if it ran to its end.
    kernel: Option<&'static str>,
    units: Option<f64>,
    words: String,
    /// Why the device refused it, without the names of op and device.
    reason: String,
}

impl Outcome {
    fn of(replay: Result<Replay>) -> Self {
        let without_kernel = |ended, words| Self { ended, kernel: None, units: None, words, reason: String::new() };
        match replay {
            Ok(Replay::Ran { kernel, worst }) => {
                let ended = if worst.over == 0 { Ended::Ok } else { Ended::Failed };
                let (kernel, units) = (Some(kernel), Some(worst.units));
                Self { ended, kernel, units, words: worst.words, reason: String::new() }
            }
            Ok(Replay::Refused(error)) => {
                Self { reason: reason(&error), ..without_kernel(Ended::Refused, error.to_string()) }
            }
            Err(error) => without_kernel(Ended::Failed, said(&error)),
        }
    }

    fn unreadable(why: &anyhow::Error) -> Self {
        let words = said(why);
        Self { ended: Ended::Unreadable, kernel: None, units: None, words, reason: String::new() }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    path: &'a str,
    op: Option<&'a str>,
    device: &'a str,
    kernel: Option<&'a str>,
    outcome: Ended,
    /// JSON has no infinity, so that `null` stands for it, too.
    units: Option<f64>,
    words: &'a str,
}

/// Where each outcome is written as soon as it is known, so that a run that is cut short has told what it found.
struct Log {
    bar: ProgressBar,
    json: Option<Mutex<File>>,
}

impl Log {
    fn write(&self, path: &str, op: Option<&str>, device: &str, outcome: &Outcome) -> Result<()> {
        if let Some(file) = &self.json {
            let units = outcome.units.filter(|units| units.is_finite());
            let &Outcome { ended: outcome, kernel, ref words, .. } = outcome;
            let line = serde_json::to_string(&Line { path, op, device, kernel, outcome, units, words })?;
            writeln!(file.lock().unwrap_or_else(PoisonError::into_inner), "{line}")?;
        }
        if outcome.ended == Ended::Failed {
            let by = outcome.kernel.map(|kernel| format!(" by {kernel}")).unwrap_or_default();
            self.print(&format!("FAILED {path} on {device}{by}: {}", outcome.words))?;
        }
        self.bar.inc(1);
        Ok(())
    }

    fn print(&self, line: &str) -> Result<()> {
        Ok(self.bar.suspend(|| writeln!(stdout(), "{line}"))?)
    }
}

pub(crate) fn run(request: &Request) -> Result<()> {
    require().map_err(anyhow::Error::msg)?;
    let is_asked_for = |t: &&Target| {
        t.name != "wgpu-plain" && (request.devices.is_empty() || request.devices.iter().any(|d| d == t.name))
    };
    let asked: Vec<&Target> = TARGETS.iter().filter(is_asked_for).collect();
    if let Some(Target { name, device: Err(why), .. }) =
        asked.iter().find(|t| !request.devices.is_empty() && t.device.is_err())
    {
        bail!("--device {name}, but {name} is absent: {why}");
    }
    let present: Vec<&Target> = asked.iter().copied().filter(|t| t.device.is_ok()).collect();
    let create = |path: &PathBuf| File::create(path).with_context(|| format!("cannot write {}", path.display()));
    let json = request.json.as_ref().map(create).transpose()?;
    let mut entries = Vec::new();
    if request.paths.is_empty() {
        let golden = floor::root().join("tests/golden");
        if !golden.is_dir() {
            bail!("no {}; name case files or folders of them", golden.display());
        }
        expand(&golden, &mut entries);
    }
    request.paths.iter().for_each(|path| expand(path, &mut entries));

    let log = Log { bar: progress(entries.len() * present.len()), json: json.map(Mutex::new) };
    // While some files wait for a software adapter's devices, others find one that is free.
    let crowd = if present.iter().any(|t| t.is_software()) { 4 } else { 1 };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(crowd * rayon::current_num_threads()).build()?;
    let each = || entries.into_par_iter().map(|entry| check(entry, &present, &log)).collect::<Result<Vec<_>>>();
    let checked = pool.install(each)?;
    log.bar.finish_and_clear();
    report(&checked.into_iter().flatten().collect::<Vec<_>>(), &asked, &present)
}

/// The case files that a path names: itself, or those in a folder and the folders in it, sorted.
fn expand(path: &Path, entries: &mut Vec<Entry>) {
    if !path.is_dir() {
        entries.push(Entry { path: path.into(), problem: None });
        return;
    }
    let before = entries.len();
    walk(path, entries);
    if entries.len() == before {
        entries.push(Entry { path: path.into(), problem: Some("is a folder without a *.safetensors file".into()) });
    }
}

fn walk(folder: &Path, entries: &mut Vec<Entry>) {
    let listed =
        fs::read_dir(folder).and_then(|entries| entries.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>());
    let mut paths = match listed {
        Ok(paths) => paths,
        Err(error) => {
            entries.push(Entry { path: folder.into(), problem: Some(format!("cannot be listed: {error}")) });
            return;
        }
    };
    paths.sort();
    for path in paths {
        if path.is_dir() {
            // A link may lead back to a folder that it is in.
            if !path.is_symlink() {
                walk(&path, entries);
            }
        } else if path.extension().is_some_and(|e| e == "safetensors") {
            entries.push(Entry { path, problem: None });
        }
    }
}

/// How the cases of a file fare on each device. A file that cannot be read counts as one case.
fn check(entry: Entry, present: &[&Target], log: &Log) -> Result<Vec<Vec<Outcome>>> {
    let path = entry.path.display().to_string();
    let cases = match entry.problem {
        Some(problem) => Err(anyhow!(problem)),
        None => case_file::read(&entry.path),
    };
    match cases {
        Err(why) => Ok(vec![check_case(&path, Err(why), present, log)?]),
        Ok(cases) => {
            log.bar.inc_length(((cases.len() - 1) * present.len()) as u64);
            let each = |case: case_file::Entry| {
                let path = case.name.map_or_else(|| path.clone(), |name| format!("{path}#{name}"));
                check_case(&path, case.case, present, log)
            };
            cases.into_par_iter().map(each).collect()
        }
    }
}

/// How a case fares on each device.
fn check_case(path: &str, case: Result<FiledCase>, present: &[&Target], log: &Log) -> Result<Vec<Outcome>> {
    if let Err(why) = &case {
        log.print(&format!("UNREADABLE {path}: {}", said(why)))?;
    }
    let on = |target: &&Target| {
        log.bar.set_message(format!("{path} on {}", target.name));
        let outcome = match &case {
            Ok(case) => Outcome::of(case.replay(target)),
            Err(why) => Outcome::unreadable(why),
        };
        log.write(path, case.as_ref().ok().map(|case| case.op.as_str()), target.name, &outcome)?;
        Ok(outcome)
    };
    present.iter().map(on).collect()
}

/// Prints the counts of each device. `checked` holds the outcomes of each case on the devices that are present.
fn report(checked: &[Vec<Outcome>], asked: &[&Target], present: &[&Target]) -> Result<()> {
    let has = |outcome: &Outcome, ended| outcome.ended == ended;
    let unreadable = checked.iter().filter(|c| c.iter().any(|o| has(o, Ended::Unreadable))).count();
    let failed = checked.iter().flatten().filter(|o| has(o, Ended::Failed)).count();
    for target in asked {
        if let Err(why) = &target.device {
            writeln!(stdout(), "{:5} absent: {why}", target.name)?;
            continue;
        }
        let Some(at) = present.iter().position(|t| t.name == target.name) else { continue };
        let of = |ended| checked.iter().map(|c| &c[at]).filter(move |o| o.ended == ended);
        let worst = of(Ended::Ok).filter_map(|o| o.units).fold(0.0, f64::max);
        let (ok, failed) = (of(Ended::Ok).count(), of(Ended::Failed).count());
        let failed = if failed > 0 { format!(", {failed} FAILED") } else { String::new() };
        let all = checked.len();
        let line = format!("{ok} of {all} cases agree, largest error {worst:.2} of the contract{failed}");
        writeln!(stdout(), "{:5} {line}", target.name)?;
        let mut served: BTreeMap<&str, usize> = BTreeMap::new();
        checked.iter().filter_map(|c| c[at].kernel).for_each(|kernel| *served.entry(kernel).or_default() += 1);
        for (kernel, count) in served {
            writeln!(stdout(), "{:5} {count} of {all} cases served by {kernel}", target.name)?;
        }
        let mut refusals: BTreeMap<&str, usize> = BTreeMap::new();
        of(Ended::Refused).for_each(|o| *refusals.entry(&o.reason).or_default() += 1);
        for (reason, count) in refusals {
            writeln!(stdout(), "{:5} {count} of {all} cases refused as they must be: {reason}", target.name)?;
        }
    }
    let mut wrong = Vec::new();
    if failed > 0 {
        wrong.push(format!("{failed} of {} replays failed", checked.len() * present.len()));
    }
    if unreadable > 0 {
        let all = checked.len();
        wrong.push(format!("{unreadable} of {all} cases could not be read (docs/case-files.md says what one holds)"));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join(", "));
    Ok(())
}

/// Why no kernel serves a descriptor, in the words of the last one tried.
fn reason(error: &Error) -> String {
    match error {
        Error::Unsupported { tried, .. } => tried.last().map_or_else(|| error.to_string(), |r| r.reason.to_string()),
        other => other.to_string(),
    }
}
