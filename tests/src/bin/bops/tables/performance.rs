//! docs/performance.md, and its drawings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use baracuda_ops_benches::line::{HostLine, Line};
use serde::Deserialize;

use super::{commit, data, read};
use crate::drawing;

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
pub(super) fn render(is_check: bool) -> Result<(String, Vec<(String, String)>)> {
    let mut drawings = Vec::new();
    let mut text = String::from(
        "# How fast each op is\n\nRendered by `bops tables` from docs/data. Times are medians in microseconds, on random data, with \
         operands that rotate past three times the L2 cache: CUDA from replays of a captured graph, wgpu from timestamps around many \
         dispatches, the CPU from the host's clock, in turns with PyTorch (`benches/peers/torch_cpu_bench.py`). \"share of copy\" compares bytes per second with our own copy kernel on the same device at the nearest size; \
         \"best other\" is the fastest other library measured on the same kind of device. Figures are those of the commit beside them; kernels \
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
        let stem = ["-cuda", "-wgpu", "-cpu"].iter().find_map(|backend| stem.strip_suffix(backend)).unwrap_or(&stem);
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
        for peer in ["baracuda-cuda", "baracuda-wgpu", "baracuda-cpu"] {
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
