//! Runs a trial again, and compares a whole run of them with the floor.

use std::fmt::{self, Display};
use std::io::{Write, stdout};

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::case_file::names_a_kernel;
use baracuda_ops_tests::floor;
use baracuda_ops_tests::matrix;
use baracuda_ops_tests::modes::{self, Mode, Outcome};
use baracuda_ops_tests::said;
use baracuda_ops_tests::target::{TARGETS, Target, target};

/// No device was left to run a case on.
#[derive(Debug)]
pub(crate) struct NotApplicable(&'static str);

impl NotApplicable {
    /// The exit code.
    pub(crate) const EXIT: u8 = 3;
}

impl Display for NotApplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {} applies to this case on none of the devices: nothing was run", self.0)
    }
}

impl std::error::Error for NotApplicable {}

pub(crate) fn repro(line: &str, device: Option<&str>, mode: Option<&str>) -> Result<()> {
    // A trial's name says where and how, unless the caller does.
    let head = line.split(" {").next().unwrap_or_default();
    let words: Vec<&str> = head.split('/').collect();
    let (named_mode, named_device) =
        if let [_, mode, device, _] = words[..] { (Some(mode), Some(device)) } else { (None, None) };
    let case = Case::parse(line)?;
    if let Some(kernel) = case.options.kernel.as_deref() {
        names_a_kernel(case.descriptor.name(), kernel)?;
    }
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
    case.fits()?;
    writeln!(stdout(), "{} in mode {}", case.line(), mode.name())?;
    let (mut failed, mut applied) = (0, 0);
    for target in targets {
        if let Err(why) = mode.is_possible(&case, target) {
            writeln!(stdout(), "{:10} not run: mode {} does not apply, {why}", target.name, mode.name())?;
            continue;
        }
        applied += 1;
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
                writeln!(stdout(), "{:10} FAILED: {}", target.name, said(&error))?;
            }
        }
    }
    ensure!(failed == 0, "{failed} failed");
    ensure!(applied > 0, NotApplicable(mode.name()));
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
