//! What is chosen on devices that need not be here, as `tests/choices.txt` holds it: for the cells of `bops bench` of an op, and for its cases,
//! as one number each.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use baracuda_ops::{AnyDescriptor, DeviceProps, Error, Math, PlanOptions};
use baracuda_ops_benches::cells::{Cell, OPS, cells};

use crate::case::{Case, hash};
use crate::floor::root;
use crate::ops::SUBJECTS;

/// The environment variable that renews the file.
pub const RENEW: &str = "BOPS_RENEW_CHOICES";

/// What is chosen on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The device.
    pub device: String,
    /// Of the cells, then a line for each op.
    pub lines: Vec<String>,
}

/// Where the file lies.
pub fn path() -> PathBuf {
    root().join("tests/choices.txt")
}

/// The committed file: the repository's or, where there is none, the one built in.
pub fn committed() -> String {
    std::fs::read_to_string(path()).unwrap_or_else(|_| include_str!("../choices.txt").into())
}

/// What tells example devices apart.
fn label(props: &DeviceProps) -> String {
    match props {
        #[cfg(feature = "cuda")]
        DeviceProps::Cuda(props) => format!("cuda like {}", props.name),
        #[cfg(feature = "wgpu")]
        DeviceProps::Wgpu(props) => match props.subgroup_sizes {
            Some((from, to)) => format!("wgpu with subgroups of {from} to {to}"),
            None => "wgpu without subgroups".into(),
        },
        other => other.to_string(),
    }
}

/// The choice, or why there is none.
fn chosen(descriptor: &AnyDescriptor, options: &PlanOptions, props: &DeviceProps) -> String {
    match descriptor.chosen_with(props, options) {
        Ok(words) => words,
        Err(Error::Unsupported { tried, .. }) => {
            let reasons = tried.iter().map(|rejection| format!("{}: {}", rejection.kernel, rejection.reason));
            format!("refused by {}", reasons.collect::<Vec<_>>().join("; "))
        }
        Err(error) => error.to_string(),
    }
}

/// Lines as one number.
fn number(what: &str, lines: &[String]) -> String {
    format!("{what}: {} choices, {:016x}", lines.len(), hash(&lines.join("\n")))
}

/// The choice for a cell of the benchmarks.
fn of_cell(cell: &Cell, props: &DeviceProps) -> String {
    let shape = cell.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let default = PlanOptions::default();
    let each = cell.planned(&default).map(|(descriptor, options)| chosen(descriptor, &options, props));
    let words = each.collect::<Vec<_>>().join(" + ");
    let dtype = if cell.math == Math::Strict { cell.dtype.name() } else { cell.dtype_name() };
    format!("{} {} {shape} {dtype}: {words}", cell.op, cell.pass)
}

fn of_case(case: &Case, props: &DeviceProps) -> String {
    format!("{}: {}", case.line(), chosen(&case.descriptor, &case.options, props))
}

/// What is chosen on every example device of this build.
///
/// # Errors
/// A cell that is not valid.
pub fn sections() -> Result<Vec<Section>> {
    let labels: Vec<String> = OPS.iter().map(|op| op.to_string()).collect();
    let mut of_labels: Vec<(String, Vec<Cell>)> = Vec::new();
    for label in labels {
        let cells = cells(std::slice::from_ref(&label), false)?;
        of_labels.push((format!("cells of {label}"), cells));
    }
    let cases: Vec<_> = SUBJECTS.iter().map(|subject| (subject.name, (subject.cases)())).collect();
    let section = |props: &DeviceProps| {
        let of_cells = of_labels.iter().map(|(name, cells)| {
            let lines: Vec<String> = cells.iter().map(|cell| of_cell(cell, props)).collect();
            number(name, &lines)
        });
        let of_cases = cases.iter().map(|(op, cases)| {
            let lines: Vec<String> = cases.iter().map(|case| of_case(case, props)).collect();
            number(op, &lines)
        });
        Section { device: label(props), lines: of_cells.chain(of_cases).collect() }
    };
    Ok(DeviceProps::examples().iter().map(section).collect())
}

/// The choice for every cell and case of an op on every example device, a line each: what the numbers of [`sections`] are made of.
///
/// # Errors
/// A cell that is not valid, or a name that neither cells nor cases have.
pub fn of(op: &str) -> Result<Vec<String>> {
    let cells = if OPS.contains(&op) { cells(&[op.into()], false)? } else { Vec::new() };
    let cases: Vec<Case> = SUBJECTS.iter().filter(|subject| subject.name == op).flat_map(|s| (s.cases)()).collect();
    if cells.is_empty() && cases.is_empty() {
        let names: BTreeSet<&str> = SUBJECTS.iter().map(|subject| subject.name).chain(OPS.iter().copied()).collect();
        bail!("unknown op {op:?}; the ops are {}", names.into_iter().collect::<Vec<_>>().join(", "));
    }
    let lines = |props: DeviceProps| {
        let of_cells = cells.iter().map(|cell| of_cell(cell, &props));
        let all = of_cells.chain(cases.iter().map(|case| of_case(case, &props)));
        all.map(|line| format!("{}: {line}", label(&props))).collect::<Vec<_>>()
    };
    Ok(DeviceProps::examples().into_iter().flat_map(lines).collect())
}

/// The sections of a file.
pub fn parse(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match (line.strip_prefix('[').and_then(|line| line.strip_suffix(']')), sections.last_mut()) {
            (Some(device), _) => sections.push(Section { device: device.into(), lines: Vec::new() }),
            (None, Some(section)) => section.lines.push(line.into()),
            (None, None) => {}
        }
    }
    sections
}

/// The file with these sections in place of its own; those of devices that this build does not have stay.
pub fn render(committed: &[Section], found: &[Section]) -> String {
    let mut text = format!(
        "# What is chosen on devices like these, as one number for the cells of `bops bench` of an op and one for its cases, which\n\
         # `bops choices OP` prints in full. `{RENEW}=1 cargo test -p baracuda-ops-tests --features cuda --test choices` renews it.\n"
    );
    let is_known = |device: &str| found.iter().any(|section| section.device == device);
    for section in found.iter().chain(committed.iter().filter(|section| !is_known(&section.device))) {
        let _ = write!(text, "\n[{}]\n{}\n", section.device, section.lines.join("\n"));
    }
    text
}

/// The first lines that differ, and how many do: none if every section found is as committed.
pub fn difference(committed: &[Section], found: &[Section]) -> Option<String> {
    let none = Vec::new();
    let mut differences = Vec::new();
    for Section { device, lines } in found {
        let expected = committed.iter().find(|section| section.device == *device).map_or(&none, |s| &s.lines);
        let head = |line: &str| line.split_once(": ").map_or(line.to_string(), |(head, _)| head.to_string());
        let of = |lines: &[String], name: &str| lines.iter().find(|line| head(line) == name).cloned();
        for line in lines.iter().filter(|line| !expected.contains(line)) {
            let was = of(expected, &head(line)).unwrap_or_else(|| "(nothing)".into());
            differences.push(format!("{device}\n  found     {line}\n  committed {was}"));
        }
        for line in expected.iter().filter(|line| of(lines, &head(line)).is_none()) {
            differences.push(format!("{device}\n  found     (nothing)\n  committed {line}"));
        }
    }
    let (count, first) = (differences.len(), differences.into_iter().take(8).collect::<Vec<_>>().join("\n"));
    (count > 0).then(|| format!("{count} choices differ, the first of them:\n{first}\n{RENEW}=1 renews them"))
}
