//! What is chosen on devices that need not be here, as `tests/choices.txt` holds it: for each cell in full where cells are timed, and as one
//! number elsewhere; for all cases of an op as one number.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use baracuda_ops::{AnyDescriptor, DeviceProps, Error, Math, PlanOptions};
use baracuda_ops_benches::cells::{OPS, cells};

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

/// Whether `docs/data` has cells of such a device.
fn is_timed(props: &DeviceProps) -> bool {
    ["cuda like H200", "wgpu with subgroups of 32 to 32"].contains(&&*label(props))
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

/// What is chosen on every example device of this build.
///
/// # Errors
/// A cell that is not valid.
pub fn sections() -> Result<Vec<Section>> {
    let labels: Vec<String> = OPS.iter().map(|op| op.to_string()).collect();
    let cells = cells(&labels, false)?;
    let cases: Vec<_> = SUBJECTS.iter().map(|subject| (subject.name, (subject.cases)())).collect();
    let section = |props: &DeviceProps| {
        let options = PlanOptions::default();
        let of_cells = cells.iter().map(|cell| {
            let shape = cell.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
            let each = cell.planned(&options).map(|(descriptor, options)| chosen(descriptor, &options, props));
            let words = each.collect::<Vec<_>>().join(" + ");
            let dtype = if cell.math == Math::Strict { cell.dtype.name() } else { cell.dtype_name() };
            format!("{} {} {shape} {dtype}: {words}", cell.op, cell.pass)
        });
        let mut lines: Vec<String> = of_cells.collect();
        if !is_timed(props) {
            lines = vec![number("cells", &lines)];
        }
        lines.extend(cases.iter().map(|(op, cases)| {
            let of_case = |case: &Case| format!("{}: {}", case.line(), chosen(&case.descriptor, &case.options, props));
            number(op, &cases.iter().map(of_case).collect::<Vec<_>>())
        }));
        Section { device: label(props), lines }
    };
    Ok(DeviceProps::examples().iter().map(section).collect())
}

/// The choice for every case of an op on every example device, a line each: what the number of [`sections`] is made of.
pub fn of_cases(op: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for props in DeviceProps::examples() {
        for case in SUBJECTS.iter().filter(|subject| subject.name == op).flat_map(|subject| (subject.cases)()) {
            let words = chosen(&case.descriptor, &case.options, &props);
            lines.push(format!("{}: {}: {words}", label(&props), case.line()));
        }
    }
    lines
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
        "# What is chosen on devices like these: for each cell of `bops bench` in full where cells are timed, and as one number elsewhere;\n\
         # for all cases of an op as one number. `{RENEW}=1 cargo test -p baracuda-ops-tests --features cuda --test choices` renews it; `bops choices OP`\n\
         # prints the choice for every case of an op.\n"
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
