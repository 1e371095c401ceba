//! docs/ACCURACY.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};
use baracuda_ops::DType;
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::published::Accuracy;

use super::{commit, data, read, write};

/// Takes the errors that a run of the parity tests left in a folder into docs/data; lines of devices that were not there stay.
pub(super) fn record(folder: &Path) -> Result<()> {
    let new: Vec<Accuracy> = read(&folder.join("accuracy.jsonl"))?;
    ensure!(
        !new.is_empty(),
        "no accuracy.jsonl in {}; a whole run of the parity tests leaves one in the target folder",
        folder.display()
    );
    let mut lines: Vec<Accuracy> = read(&data().join("accuracy.jsonl"))?;
    lines.retain(|old| !new.iter().any(|n| (&n.target, &n.origin.device) == (&old.target, &old.origin.device)));
    lines.extend(new);
    let key =
        |l: &Accuracy| (l.op.clone(), l.output.clone(), l.dtype.clone(), l.target.clone(), l.origin.device.clone());
    lines.sort_by_key(key);
    write(&data().join("accuracy.jsonl"), &lines)
}

const BACKENDS: [&str; 3] = ["cpu", "cuda", "wgpu"];

/// The page: a row for the outputs of an op that have one budget, a column for each type.
pub(super) fn render() -> Result<String> {
    let lines: Vec<Accuracy> = read(&data().join("accuracy.jsonl"))?;
    let types: Vec<&str> =
        DType::ALL.map(DType::name).into_iter().filter(|of| lines.iter().any(|line| line.dtype == *of)).collect();
    let mut text = format!(
        "# How accurate each op is\n\nRendered by `bops tables` from docs/data/accuracy.jsonl, which also names the case of each figure. \
         A cell has the largest error seen in the parity tests as a share of the budget below, over all their cases: on the CPU, on CUDA \
         and through wgpu; 1 would be all of it. Its column is the type of the op's first operand.\n\n`u_o` is half an ulp of the output's \
         type, `u_A` of the accumulator's (f32; f64 for f64), both relative to the value; every budget adds underflow (see \
         [numerics.md](numerics.md)). Outputs in 16 bits are near 1 because their last rounding alone may take all of `u_o |y|`. In f64 \
         the reference of these tests is the CPU itself; what it is checked against are the golden files, computed with 50 digits.\n\n\
         | op | outputs | {} |\n|---|---|{}\n",
        types.join(" | "),
        "---|".repeat(types.len())
    );
    let mut budgets = String::new();
    for subject in SUBJECTS {
        for contract in subject.contracts {
            let largest = |dtype: &str, backend: &str| {
                let of = |l: &&Accuracy| {
                    l.op == subject.name
                        && contract.outputs.contains(&l.output.as_str())
                        && l.dtype == dtype
                        && l.target.starts_with(backend)
                };
                lines.iter().filter(of).map(|l| l.units).max_by(f64::total_cmp)
            };
            let cell = |dtype: &&str| {
                let found = BACKENDS.map(|backend| largest(dtype, backend));
                let words = found.map(|units| units.map_or_else(|| "-".into(), |units| format!("{units:.2}")));
                if found == [None; 3] { String::new() } else { words.join(" / ") }
            };
            let cells: Vec<String> = types.iter().map(cell).collect();
            // Outputs that other ops of the family have.
            if cells.iter().all(String::is_empty) {
                continue;
            }
            let outputs = contract.outputs.join(", ");
            let _ = writeln!(text, "| {} | {outputs} | {} |", subject.name, cells.join(" | "));
            let _ = writeln!(budgets, "- **{}** {outputs}: `{}`. {}", subject.name, contract.budget, contract.why);
        }
    }
    let runs: BTreeSet<String> = lines
        .iter()
        .map(|l| format!("| {} | {} | {} | {} |", l.target, l.origin.device, commit(&l.origin), l.origin.date))
        .collect();
    let runs: Vec<String> = runs.into_iter().collect();
    let _ = write!(
        text,
        "\n## Budgets\n\n{budgets}\n## Runs\n\n| target | device | commit | date |\n|---|---|---|---|\n{}\n",
        runs.join("\n")
    );
    Ok(text)
}
