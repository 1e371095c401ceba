//! The tables under docs, rendered from docs/data.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops_benches::line::{HostLine, Line, Origin};
use baracuda_ops_tests::floor;
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::published::{Accuracy, Support, documented, present, support};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::drawing;

fn data() -> PathBuf {
    floor::root().join("docs/data")
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
    let line =
        |(i, line): (usize, &str)| serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), i + 1));
    text.lines().enumerate().filter(|(_, l)| l.starts_with('{')).map(line).collect()
}

fn write<T: Serialize>(path: &Path, lines: &[T]) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{}", serde_json::to_string(line)?);
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

pub(crate) fn print_support() -> Result<()> {
    write!(stdout(), "{}", render_support(&merged(support(present), read(&data().join("support.jsonl"))?)))?;
    Ok(())
}

/// Rows found out, and the recorded ones of backends that this program is built without; in the recorded order, new ones last.
fn merged(found: Vec<Support>, recorded: Vec<Support>) -> Vec<Support> {
    let key = |row: &Support| (row.op.clone(), row.feature.clone(), row.target.clone());
    let places: HashMap<_, usize> = recorded.iter().enumerate().map(|(i, row)| (key(row), i)).collect();
    let is_found = |row: &Support| found.iter().any(|r| r.target == row.target);
    let mut rows: Vec<Support> = recorded.into_iter().filter(|r| !is_found(r)).collect();
    rows.extend(found);
    rows.sort_by_key(|row| places.get(&key(row)).copied().unwrap_or(places.len()));
    rows
}

fn render_support(rows: &[Support]) -> String {
    let mut text = String::from(
        "# What runs where\n\nRendered by `bops tables` from the kernels' own answers (`DeviceProps::supports`), on CUDA for an H200. \
         A cell names the kernel; a dash has its reason below.\n",
    );
    for subject in SUBJECTS {
        let _ = write!(text, "\n## {}\n\n| | cpu | cuda | wgpu |\n|---|---|---|---|\n", subject.name);
        let mut reasons: Vec<String> = Vec::new();
        for (feature, _) in (subject.features)() {
            let mut cell = |target: &str| {
                let row = rows.iter().find(|r| r.op == subject.name && r.target == target && r.feature == feature);
                match row {
                    Some(Support { kernel: Some(kernel), .. }) => kernel.clone(),
                    Some(Support { reason, .. }) => {
                        let words = format!("{target}: {reason}");
                        let at = reasons.iter().position(|r| *r == words).unwrap_or_else(|| {
                            reasons.push(words);
                            reasons.len() - 1
                        });
                        format!("- [{}]", at + 1)
                    }
                    None => "not recorded".into(),
                }
            };
            let (cpu, cuda, wgpu) = (cell("cpu"), cell("cuda"), cell("wgpu"));
            let _ = writeln!(text, "| {feature} | {cpu} | {cuda} | {wgpu} |");
        }
        if !reasons.is_empty() {
            text.push('\n');
        }
        for (i, reason) in reasons.iter().enumerate() {
            let _ = writeln!(text, "{}. {reason}", i + 1);
        }
    }
    text
}

/// Takes the errors that a run of the parity tests left in a folder into docs/data; lines of devices that were not there stay.
fn record(folder: &Path) -> Result<()> {
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

fn render_accuracy(lines: &[Accuracy]) -> String {
    let mut text = String::from(
        "# How accurate each op is\n\nRendered by `bops tables` from docs/data/accuracy.jsonl. Below is the budget of each output and the \
         largest error seen in the parity tests as a share of it, over all their cases: 1 would be all of it. `u_o` is half an ulp of \
         the output's type, `u_A` of the accumulator's (f32; f64 for f64), both relative to the value; every budget adds underflow \
         (see [numerics.md](numerics.md)).\n\nOutputs in 16 bits are near 1 because their last rounding alone may take all of \
         `u_o |y|`. In f64 the reference of these tests is the CPU itself; what it is checked against are the golden files, computed \
         with 50 digits.\n",
    );
    for subject in SUBJECTS {
        let _ = write!(text, "\n## {}\n", subject.name);
        for contract in subject.contracts {
            let of = |l: &&Accuracy| l.op == subject.name && contract.outputs.contains(&l.output.as_str());
            let found: Vec<&Accuracy> = lines.iter().filter(of).collect();
            let outputs = contract.outputs.join("`, `");
            let _ = write!(text, "\n`{outputs}`: `{}`. {}\n\n", contract.budget, contract.why);
            text.push_str(
                "| output | type | device | cases | largest error | commit | date |\n|---|---|---|---|---|---|---|\n",
            );
            for Accuracy { output, dtype, target, cases, units, origin, .. } in found {
                let (commit, device, date) = (commit(origin), &origin.device, &origin.date);
                let _ = writeln!(
                    text,
                    "| {output} | {dtype} | {target}: {device} | {cases} | {units:.3} | {commit} | {date} |"
                );
            }
        }
    }
    text
}

fn commit(origin: &Origin) -> String {
    let short: String = origin.commit.chars().take(10).collect();
    if origin.dirty { format!("{short} and changes") } else { short }
}

/// A measurement of another library, or a note that there is none.
#[derive(Deserialize)]
struct Peer {
    op: Option<String>,
    #[serde(default)]
    pass: String,
    #[serde(default)]
    shape: Vec<u64>,
    #[serde(default)]
    dtype: String,
    #[serde(default)]
    peer: String,
    us: Option<f64>,
}

/// The text, and the files of its drawings.
fn render_performance(is_check: bool) -> Result<(String, Vec<(String, String)>)> {
    let mut drawings = Vec::new();
    let mut text = String::from(
        "# How fast each op is\n\nRendered by `bops tables` from docs/data. Times are medians in microseconds, on random data, with \
         operands that rotate past three times the L2 cache: CUDA from replays of a captured graph, wgpu from timestamps around many \
         dispatches. \"share of copy\" compares bytes per second with our own copy kernel on the same device at the nearest size; \
         \"best other\" is the fastest other library measured on the same kind of GPU. Figures are those of the commit beside them; kernels \
         may have changed since.\n",
    );
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(data()).map(|d| d.filter_map(|e| Some(e.ok()?.path())).collect()).unwrap_or_default();
    runs.sort();
    let name = |p: &PathBuf| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for run in runs.iter().filter(|p| name(p).starts_with("bench-") && name(p).ends_with(".jsonl")) {
        let lines: Vec<Line> = read(run)?;
        // bench-MACHINE.jsonl, or a backend of it alone, bench-MACHINE-cuda.jsonl, beside peers-MACHINE.jsonl.
        let stem = name(run).replace(".jsonl", "");
        let stem = ["-cuda", "-wgpu"].iter().find_map(|backend| stem.strip_suffix(backend)).unwrap_or(&stem);
        let peers: Vec<Peer> = read(&run.with_file_name(format!("{}.jsonl", stem.replacen("bench-", "peers-", 1))))?;
        let Some(first) = lines.first() else { continue };
        let commits: std::collections::BTreeSet<_> = lines.iter().map(|l| (&l.origin.commit, l.origin.dirty)).collect();
        ensure!(commits.len() == 1, "{} mixes commits", run.display());
        ensure!(!is_check || !first.origin.dirty, "{} was measured on a tree that no commit holds", run.display());
        let _ = write!(
            text,
            "\n## {}, {}\n\nCommit {}; raw lines in `docs/data/{}`.\n",
            first.origin.device,
            first.origin.date,
            commit(&first.origin),
            name(run)
        );
        for peer in ["baracuda-cuda", "baracuda-wgpu"] {
            let rows = comparison(peer, &lines, &peers);
            if !rows.is_empty() {
                let title = format!("{peer}, times as fast as the best other library: {}", first.origin.device);
                let file = format!("{stem}-{peer}.svg");
                let _ = write!(
                    text,
                    "\n![{title}]({file})\n\nA dot is a cell of the table below, a bar and its number their geometric mean.\n"
                );
                drawings.push((format!("docs/{file}"), drawing::draw(&title, &rows)?));
            }
            table_of(&mut text, peer, &lines, &peers);
        }
    }
    for run in runs.iter().filter(|p| name(p).starts_with("host-") && name(p).ends_with(".jsonl")) {
        let lines: Vec<HostLine> = read(run)?;
        let Some(first) = lines.last() else { continue };
        let _ = write!(
            text,
            "\n## Host time, {}, {}\n\n| | what | ns |\n|---|---|---|\n",
            first.origin.device, first.origin.date
        );
        for line in &lines {
            let _ = writeln!(text, "| {} | {} | {:.0} |", line.peer, line.what, line.ns);
        }
    }
    Ok((text, drawings))
}

type Cell<'a> = (&'a str, &'a str, &'a [u64], &'a str);

/// The measurement of each cell; of several the fastest counts, for everyone.
fn cells<'a>(lines: &[&'a Line]) -> BTreeMap<Cell<'a>, &'a Line> {
    let mut cells: BTreeMap<Cell, &Line> = BTreeMap::new();
    for line in lines {
        let cell = cells.entry((&line.op, &line.pass, &line.shape, &line.dtype)).or_insert(line);
        if line.us < cell.us {
            *cell = line;
        }
    }
    cells
}

/// The fastest other library at what a line measures: its microseconds and name.
fn best_other<'a>(line: &Line, peers: &'a [Peer]) -> Option<(f64, &'a str)> {
    let is_of_line = |p: &&Peer| {
        p.op.as_deref() == Some(&line.op) && p.pass == line.pass && p.shape == line.shape && p.dtype == line.dtype
    };
    let others = peers.iter().filter(is_of_line).filter(|p| !p.peer.starts_with("baracuda"));
    others.filter_map(|p| Some((p.us?, p.peer.as_str()))).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// How many times as fast as the best other library each op is, over its cells; empty without other libraries.
fn comparison(peer: &str, lines: &[Line], peers: &[Peer]) -> Vec<drawing::Row> {
    let ours: Vec<&Line> = lines.iter().filter(|l| l.peer == peer && l.op != "copy").collect();
    let mut rows: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for ((op, pass, ..), line) in cells(&ours) {
        if let Some((us, _)) = best_other(line, peers) {
            rows.entry((op, pass)).or_default().push(us / line.us);
        }
    }
    let row = |((op, pass), ratios): ((&str, &str), _)| drawing::Row { op: op.into(), pass: pass.into(), ratios };
    let mut rows: Vec<drawing::Row> = rows.into_iter().map(row).collect();
    rows.sort_by(|a, b| a.op.cmp(&b.op).then(b.pass.cmp(&a.pass))); // "fw" before "bw"
    rows
}

fn table_of(text: &mut String, peer: &str, lines: &[Line], peers: &[Peer]) {
    let ours: Vec<&Line> = lines.iter().filter(|l| l.peer == peer).collect();
    if ours.is_empty() {
        return;
    }
    // Where operations count beside bytes.
    let has_flops = ours.iter().any(|line| line.flops > 0);
    let (head, rule) = if has_flops { (" TFLOP/s |", "---|") } else { ("", "") };
    let _ = write!(
        text,
        "\n### {peer}\n\n| op | pass | shape | type | us | GB/s |{head} share of copy | best other | times as fast |\n|---|---|---|---|---|---|{rule}---|---|---|\n"
    );
    let cells = cells(&ours);
    let copy_near = |bytes: u64| {
        let distance = |l: &&&Line| (l.bytes as f64 / bytes as f64).ln().abs();
        let copies = cells.values().filter(|l| l.op == "copy");
        copies.min_by(|a, b| distance(a).total_cmp(&distance(b))).map(|l| l.gbps)
    };
    for ((op, pass, shape, dtype), line) in &cells {
        let best = best_other(line, peers);
        let flops = match line.flops {
            _ if !has_flops => String::new(),
            0 => " |".into(),
            _ => format!(" {:.1} |", line.tflops),
        };
        let shape = shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let share = copy_near(line.bytes)
            .filter(|_| *op != "copy")
            .map_or(String::new(), |c| format!("{:.1} %", 100.0 * line.gbps / c));
        let (other, times) = best
            .filter(|_| *op != "copy")
            .map_or_else(Default::default, |(us, name)| (format!("{name} {us:.2}"), format!("{:.2}", us / line.us)));
        let _ = writeln!(
            text,
            "| {op} | {pass} | {shape} | {dtype} | {:.2} | {:.0} |{flops} {share} | {other} | {times} |",
            line.us, line.gbps
        );
    }
}

pub(crate) fn render(is_check: bool, from: Option<Option<PathBuf>>) -> Result<()> {
    if let Some(path) = from {
        record(&path.unwrap_or_else(floor::target_folder))?;
    }
    let recorded: Vec<Support> = read(&data().join("support.jsonl"))?;
    let found = support(documented);
    if is_check {
        let stale = |row: &&Support| !recorded.contains(row);
        if let Some(Support { op, target, feature, .. }) = found.iter().find(stale) {
            bail!("docs/data/support.jsonl is not current: {op} on {target}: {feature}; run `bops tables`");
        }
    }
    let rows = merged(found, recorded);
    if !is_check {
        write(&data().join("support.jsonl"), &rows)?;
    }
    let (performance, drawings) = render_performance(is_check)?;
    let mut files = vec![
        ("docs/SUPPORT.md".into(), render_support(&rows)),
        ("docs/ACCURACY.md".into(), render_accuracy(&read(&data().join("accuracy.jsonl"))?)),
        ("docs/performance.md".into(), performance),
    ];
    files.extend(drawings);
    for (path, text) in files {
        let at = floor::root().join(&path);
        if is_check {
            ensure!(
                std::fs::read_to_string(&at).is_ok_and(|now| now == text),
                "{path} is not what docs/data renders to; run `cargo bops tables`"
            );
        } else {
            std::fs::write(&at, text).with_context(|| at.display().to_string())?;
        }
    }
    writeln!(stdout(), "{}", if is_check { "the tables are current" } else { "the tables are written" })?;
    Ok(())
}
