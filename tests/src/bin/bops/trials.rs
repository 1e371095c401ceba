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

fn mode_of(name: &str) -> Result<Mode> {
    let modes = || Mode::ALL.map(Mode::name).join(", ");
    Mode::parse(name).with_context(|| format!("unknown mode {name:?}; the modes are {}", modes()))
}

fn device_of(name: &str) -> Result<&'static Target> {
    let devices = || TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(", ");
    target(name).with_context(|| format!("unknown device {name:?}; the devices are {}", devices()))
}

pub(crate) fn repro(line: &str, device: Option<&str>, mode: Option<&str>) -> Result<()> {
    let case = Case::parse(line)?;
    let op = case.descriptor.name();
    if let Some(kernel) = case.options.kernel.as_deref() {
        names_a_kernel(op, kernel)?;
    }
    // A trial's name says where and how, unless the caller does.
    let head = line.split(" {").next().unwrap_or_default().trim();
    let (named_mode, named_device) = match head.split('/').collect::<Vec<_>>()[..] {
        [_] => (None, None),
        [of_name, mode, device, _] => {
            ensure!(of_name == op, "the name is that of a trial of {of_name:?}, the case behind it one of {op}");
            (Some(mode_of(mode)?), Some(device_of(device)?))
        }
        _ => bail!("{head:?} is neither the name of an op nor <op>/<mode>/<device>/<op>, as names of trials begin"),
    };
    let mode = mode.map(mode_of).transpose()?.or(named_mode).unwrap_or(Mode::Values);
    let targets: Vec<&Target> = match device.map(device_of).transpose()?.or(named_device) {
        Some(target) => vec![target],
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
