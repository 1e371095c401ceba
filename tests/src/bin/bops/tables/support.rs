//! docs/SUPPORT.md, and what `bops support` prints.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};

use anyhow::{Result, ensure};
use baracuda_ops::DType;
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::published::{Support, documented, present, support};

const TARGETS: [&str; 3] = ["cpu", "cuda", "wgpu"];

/// Reasons, numbered in the order in which they came up.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    fn number(&mut self, words: String) -> usize {
        let at = self.0.iter().position(|r| *r == words).unwrap_or_else(|| {
            self.0.push(words);
            self.0.len() - 1
        });
        at + 1
    }

    fn list(&self) -> String {
        self.0.iter().enumerate().fold(String::new(), |mut text, (i, reason)| {
            let _ = writeln!(text, "{}. {reason}", i + 1);
            text
        })
    }
}

/// Prints the kernel that serves each feature of an op, or of all.
pub(crate) fn print(op: Option<&str>) -> Result<()> {
    let names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
    if let Some(op) = op {
        ensure!(names.contains(&op), "unknown op {op:?}; the ops are {}", names.join(", "));
    }
    let rows = support(present);
    for name in names.into_iter().filter(|name| op.is_none_or(|op| op == *name)) {
        let mut reasons = Reasons::default();
        let mut text = format!("## {name}\n\n| | {} |\n|---|---|---|---|\n", TARGETS.join(" | "));
        for feature in features(&rows, name) {
            let cells = TARGETS.map(|target| match found(&rows, name, feature, target) {
                Some(Support { kernel: Some(kernel), .. }) => kernel.clone(),
                Some(row) => format!("- [{}]", reasons.number(format!("{target}: {}", row.reason))),
                None => "not built in".into(),
            });
            let _ = writeln!(text, "| {feature} | {} |", cells.join(" | "));
        }
        writeln!(stdout(), "{text}\n{}", reasons.list())?;
    }
    Ok(())
}

/// The features of an op, each once.
fn features<'a>(rows: &'a [Support], op: &str) -> Vec<&'a str> {
    let mut features: Vec<&str> = rows.iter().filter(|row| row.op == op).map(|row| &*row.feature).collect();
    features.dedup();
    features
}

fn found<'a>(rows: &'a [Support], op: &str, feature: &str, target: &str) -> Option<&'a Support> {
    rows.iter().find(|row| row.op == op && row.feature == feature && row.target == target)
}

/// The page: a row for the features of an op that are served alike, a column for each type.
///
/// # Errors
/// This program is built without a backend.
pub(super) fn render() -> Result<String> {
    let rows = support(documented);
    for target in TARGETS {
        ensure!(rows.iter().any(|row| row.target == target), "SUPPORT.md needs a program with the feature {target}");
    }
    let types = DType::ALL.map(DType::name);
    let columns: Vec<&str> =
        types.into_iter().filter(|of| rows.iter().any(|row| split(&row.feature).0 == *of)).collect();
    let mut text = format!(
        "# What runs where\n\nRendered by `bops tables` from the kernels' own answers (`DeviceProps::supports`), on CUDA for an H200. A \
         cell names the backends that serve a type of elements: `all`, or some, or none (-); a number in brackets is the reason of the \
         others, below. `bops support OP` names the kernels, `bops choices OP` those of every tested case.\n\n| op | what | {} |\n|---|---|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
    let mut reasons = Reasons::default();
    for subject in SUBJECTS {
        let mut groups: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
        let all = features(&rows, subject.name);
        let mut names: Vec<&str> = Vec::new();
        for (_, name) in all.iter().map(|feature| split(feature)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let mut cell = |dtype: &&str| match all.iter().find(|feature| split(feature) == (dtype, name)) {
                Some(feature) => served(&rows, subject.name, feature, &mut reasons),
                None => String::new(),
            };
            let cells: Vec<String> = columns.iter().map(&mut cell).collect();
            match groups.iter_mut().find(|(of, _)| *of == cells) {
                Some((_, names)) => names.push(name),
                None => groups.push((cells, vec![name])),
            }
        }
        for (cells, names) in groups {
            let _ = writeln!(text, "| {} | {} | {} |", subject.name, names.join("; "), cells.join(" | "));
        }
    }
    let _ = write!(text, "\n{}", reasons.list());
    Ok(text)
}

/// The type and the name of a feature such as `f32: residual`.
fn split(feature: &str) -> (&str, &str) {
    feature.split_once(": ").unwrap_or(("", feature))
}

/// Who serves a feature, and the numbers of the reasons of those that do not.
fn served(rows: &[Support], op: &str, feature: &str, reasons: &mut Reasons) -> String {
    let (mut names, mut numbers) = (Vec::new(), String::new());
    for row in TARGETS.iter().filter_map(|target| found(rows, op, feature, target)) {
        match row.kernel {
            Some(_) => names.push(&*row.target),
            None => {
                let _ = write!(numbers, " [{}]", reasons.number(format!("{}: {}", row.target, row.reason)));
            }
        }
    }
    match names.len() {
        0 => format!("-{numbers}"),
        3 => "all".into(),
        _ => format!("{}{numbers}", names.join(", ")),
    }
}
