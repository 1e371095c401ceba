//! Replays cases.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::case_file::CaseFile;
use baracuda_ops_tests::floor;
use baracuda_ops_tests::judge::Worst;
use baracuda_ops_tests::matrix;
use baracuda_ops_tests::modes::{self, Mode, Outcome};
use baracuda_ops_tests::target::{TARGETS, Target, require, target};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

/// Shown only on a terminal.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

pub(crate) fn files(files: Vec<PathBuf>) -> Result<()> {
    require().map_err(anyhow::Error::msg)?;
    let files = if files.is_empty() { golden()? } else { files };
    let present: Vec<&Target> = TARGETS.iter().filter(|t| t.device.is_ok() && t.name != "wgpu-plain").collect();
    let bar = progress(files.len() * present.len());
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let replay = |path: &PathBuf| -> Result<Vec<Result<Option<Worst>>>> {
        let file = CaseFile::read(path)?;
        let on = |target: &&Target| {
            bar.set_message(format!("{} on {}", name(path), target.name));
            let found = file.replay(target);
            bar.inc(1);
            found
        };
        Ok(present.iter().map(on).collect())
    };
    // While some files wait for a software adapter's devices, others find one that is free.
    let crowd = if present.iter().any(|t| t.is_software()) { 4 } else { 1 };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(crowd * rayon::current_num_threads()).build()?;
    let replays = pool.install(|| files.par_iter().map(replay).collect::<Result<Vec<_>>>())?;
    bar.finish_and_clear();
    let mut failures = Vec::new();
    let mut sums = vec![(0, 0, 0f64); present.len()];
    for (path, replays) in files.iter().zip(replays) {
        for ((target, (ran, refused, worst)), found) in present.iter().zip(&mut sums).zip(replays) {
            match found {
                Ok(Some(found)) => {
                    *ran += 1;
                    *worst = worst.max(found.units);
                }
                Ok(None) => *refused += 1,
                Err(error) => failures.push(format!("{} on {}: {error:#}", name(path), target.name)),
            }
        }
    }
    for (target, (ran, refused, worst)) in present.iter().zip(&sums) {
        let refused = if *refused > 0 { format!(", {refused} refused as they must be") } else { String::new() };
        writeln!(stdout(), "{:5} {ran} files agree, largest error {worst:.2} of the contract{refused}", target.name)?;
    }
    for failure in &failures {
        writeln!(stdout(), "FAILED {failure}")?;
    }
    ensure!(failures.is_empty(), "{} of {} replays failed", failures.len(), files.len() * present.len());
    Ok(())
}

fn golden() -> Result<Vec<PathBuf>> {
    let folder = floor::root().join("tests/golden");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("no {}; name the case files", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "{} holds no case file; name some", folder.display());
    Ok(files)
}

pub(crate) fn repro(line: &str, device: Option<&str>, mode: Option<&str>) -> Result<()> {
    // A trial's name says where and how, unless the caller does.
    let head = line.split(" {").next().unwrap_or_default();
    let words: Vec<&str> = head.split('/').collect();
    let (named_mode, named_device) =
        if let [_, mode, device, _] = words[..] { (Some(mode), Some(device)) } else { (None, None) };
    let case = Case::parse(line)?;
    let mode = mode.or(named_mode).unwrap_or("values");
    let modes = || Mode::ALL.map(Mode::name).join(", ");
    let mode = Mode::parse(mode).with_context(|| format!("unknown mode {mode:?}; the modes are {}", modes()))?;
    let targets: Vec<&Target> = match device.or(named_device) {
        Some(name) => vec![target(name).with_context(|| {
            format!(
                "unknown device {name:?}; the devices are {}",
                TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(", ")
            )
        })?],
        None => TARGETS.iter().filter(|t| t.device.is_ok()).collect(),
    };
    writeln!(stdout(), "{} in mode {}", case.line(), mode.name())?;
    let mut failed = 0;
    for target in targets {
        match modes::run(&case, mode, target) {
            Ok(Outcome::Ran(worst)) => {
                writeln!(
                    stdout(),
                    "{:10} ok, largest error {:.3} of the contract {}",
                    target.name,
                    worst.units,
                    worst.words
                )?;
            }
            Ok(Outcome::Refused(why)) => writeln!(stdout(), "{:10} refused: {why}", target.name)?,
            Err(error) => {
                failed += 1;
                writeln!(stdout(), "{:10} FAILED: {error:#}", target.name)?;
            }
        }
    }
    ensure!(failed == 0, "{failed} failed");
    Ok(())
}

pub(crate) fn floor(is_update: bool) -> Result<()> {
    let path = floor::record_path();
    let records = matrix::read(&path).with_context(|| {
        format!("no record of a run in {}; run `cargo test -p baracuda-ops-tests --test parity`", path.display())
    })?;
    let now = floor::of(&records);
    if is_update {
        ensure!(!records.iter().any(|r| r.ended == floor::Ended::Failed), "trials failed in that run; mend them first");
        let committed = floor::root().join("tests/floor.txt");
        std::fs::write(&committed, floor::render(&now))?;
        writeln!(stdout(), "{} renewed", committed.display())?;
        return Ok(());
    }
    let present = |name: &str| target(name).is_some_and(|t| t.device.is_ok());
    let complaints = floor::below(&floor::committed(), &now, present);
    if complaints.is_empty() {
        writeln!(stdout(), "{} trials, none below the floor", records.len())?;
        return Ok(());
    }
    bail!("{}", complaints.join("\n"))
}
