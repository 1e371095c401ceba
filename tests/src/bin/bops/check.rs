//! Replays case files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use baracuda_ops::Error;
use baracuda_ops_tests::case_file::{CaseFile, Replay};
use baracuda_ops_tests::floor;
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

/// How one file fared on one device.
struct Outcome {
    ended: Ended,
    units: Option<f64>,
    words: String,
    /// Why the device refused it, without the names of op and device.
    reason: String,
}

impl Outcome {
    fn of(replay: Result<Replay>) -> Self {
        let (ended, units, words, reason) = match replay {
            Ok(Replay::Ran(worst)) if worst.over == 0 => (Ended::Ok, Some(worst.units), worst.words, String::new()),
            Ok(Replay::Ran(worst)) => (Ended::Failed, Some(worst.units), worst.words, String::new()),
            Ok(Replay::Refused(error)) => (Ended::Refused, None, error.to_string(), reason(&error)),
            Err(error) => (Ended::Failed, None, format!("{error:#}"), String::new()),
        };
        Self { ended, units, words, reason }
    }

    fn unreadable(why: &anyhow::Error) -> Self {
        Self { ended: Ended::Unreadable, units: None, words: format!("{why:#}"), reason: String::new() }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    path: String,
    op: Option<&'a str>,
    device: &'a str,
    outcome: Ended,
    /// JSON has no infinity, so that `null` stands for it, too.
    units: Option<f64>,
    words: &'a str,
}

/// A file, its op if it could be read, and how it fared on each device.
struct Checked {
    path: String,
    op: Option<String>,
    outcomes: Vec<Outcome>,
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

    let bar = progress(entries.len() * present.len());
    // While some files wait for a software adapter's devices, others find one that is free.
    let crowd = if present.iter().any(|t| t.is_software()) { 4 } else { 1 };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(crowd * rayon::current_num_threads()).build()?;
    let checked: Vec<Checked> =
        pool.install(|| entries.into_par_iter().map(|entry| check(entry, &present, &bar)).collect());
    bar.finish_and_clear();
    if let Some(file) = json {
        let mut out = BufWriter::new(file);
        lines(&checked, &present).try_for_each(|line| writeln!(out, "{}", serde_json::to_string(&line)?))?;
        out.flush()?;
    }
    report(&checked, &asked, &present)
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

fn check(entry: Entry, present: &[&Target], bar: &ProgressBar) -> Checked {
    let path = entry.path.display().to_string();
    let file = match entry.problem {
        Some(problem) => Err(anyhow!(problem)),
        None => CaseFile::read(&entry.path),
    };
    let on = |target: &&Target| {
        bar.set_message(format!("{path} on {}", target.name));
        let outcome = match &file {
            Ok(file) => Outcome::of(file.replay(target)),
            Err(why) => Outcome::unreadable(why),
        };
        bar.inc(1);
        outcome
    };
    let outcomes = present.iter().map(on).collect();
    Checked { op: file.ok().map(|file| file.op), path, outcomes }
}

fn lines<'a>(checked: &'a [Checked], present: &'a [&Target]) -> impl Iterator<Item = Line<'a>> {
    checked.iter().flat_map(move |Checked { path, op, outcomes }| {
        present.iter().zip(outcomes).map(move |(target, outcome)| Line {
            path: path.clone(),
            op: op.as_deref(),
            device: target.name,
            outcome: outcome.ended,
            units: outcome.units.filter(|units| units.is_finite()),
            words: &outcome.words,
        })
    })
}

/// Prints what went wrong file by file, then the counts of each device.
fn report(checked: &[Checked], asked: &[&Target], present: &[&Target]) -> Result<()> {
    let (mut unreadable, mut failed) = (0, 0);
    for Checked { path, outcomes, .. } in checked {
        if let Some(Outcome { words, .. }) = outcomes.iter().find(|o| o.ended == Ended::Unreadable) {
            unreadable += 1;
            writeln!(stdout(), "UNREADABLE {path}: {words}")?;
        }
        for (target, Outcome { words, .. }) in present.iter().zip(outcomes).filter(|(_, o)| o.ended == Ended::Failed) {
            failed += 1;
            writeln!(stdout(), "FAILED {path} on {}: {words}", target.name)?;
        }
    }
    for target in asked {
        if let Err(why) = &target.device {
            writeln!(stdout(), "{:5} absent: {why}", target.name)?;
            continue;
        }
        let Some(at) = present.iter().position(|t| t.name == target.name) else { continue };
        let of = |ended| checked.iter().map(|c| &c.outcomes[at]).filter(move |o| o.ended == ended);
        let worst = of(Ended::Ok).filter_map(|o| o.units).fold(0.0, f64::max);
        let (ok, failed) = (of(Ended::Ok).count(), of(Ended::Failed).count());
        let failed = if failed > 0 { format!(", {failed} FAILED") } else { String::new() };
        let all = checked.len();
        let line = format!("{ok} of {all} files agree, largest error {worst:.2} of the contract{failed}");
        writeln!(stdout(), "{:5} {line}", target.name)?;
        let mut refusals: BTreeMap<&str, usize> = BTreeMap::new();
        of(Ended::Refused).for_each(|o| *refusals.entry(&o.reason).or_default() += 1);
        for (reason, count) in refusals {
            writeln!(stdout(), "{:5} {count} of {all} files refused as they must be: {reason}", target.name)?;
        }
    }
    let mut wrong = Vec::new();
    if failed > 0 {
        wrong.push(format!("{failed} of {} replays failed", checked.len() * present.len()));
    }
    if unreadable > 0 {
        let all = checked.len();
        wrong.push(format!("{unreadable} of {all} files could not be read (docs/case-files.md says what one holds)"));
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
