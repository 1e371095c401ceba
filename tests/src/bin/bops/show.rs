//! The devices of this machine, and whether they agree.

use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use baracuda_ops::{DType, Device};
use baracuda_ops_tests::arena::{Arena, InPlace, Layout, POISON};
use baracuda_ops_tests::case::{Case, Data};
use baracuda_ops_tests::choices::of;
use baracuda_ops_tests::exec::{Executor, OnDevice, Uploaded};
use baracuda_ops_tests::judge::By;
use baracuda_ops_tests::modes::judge;
use baracuda_ops_tests::said;
use baracuda_ops_tests::showcase::{Showcase, showcases};
use baracuda_ops_tests::target::{TARGETS, Target};
use comfy_table::{CellAlignment, LineStyle, Table, presets};

use crate::check::progress;

pub(crate) fn devices() -> Result<()> {
    for target in TARGETS.iter().filter(|t| t.name != "wgpu-plain") {
        match &target.device {
            Ok(device) => writeln!(stdout(), "{:5} {device}", target.name)?,
            Err(why) => writeln!(stdout(), "{:5} absent: {why}", target.name)?,
        }
    }
    Ok(())
}

pub(crate) fn choices(op: &str) -> Result<()> {
    of(op)?.iter().try_for_each(|line| Ok(writeln!(stdout(), "{line}")?))
}

/// Time that one op's batches may take on one device, but for the first: all of them together take seconds, and most of the time goes to
/// the compilation of shaders.
const PATIENCE: Duration = Duration::from_millis(50);
/// Time of a batch of runs, and the most of them: submission and waiting count little.
const BATCH: Duration = Duration::from_millis(10);
const MOST_RUNS: f64 = 200.0;
const DTYPES: [DType; 2] = [DType::F32, DType::BF16];

pub(crate) fn all() -> Result<()> {
    devices()?;
    writeln!(stdout())?;
    let present: Vec<&Target> = TARGETS.iter().filter(|t| t.device.is_ok() && t.name != "wgpu-plain").collect();
    let shown = DTYPES.map(showcases).into_iter().collect::<Result<Vec<_>>>()?;
    let bar = progress(shown.iter().map(Vec::len).sum::<usize>() * present.len());
    let mut table = Table::new();
    table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(["op", "case", "device", "kernel", "error", "us", "GB/s"]);
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut failures = Vec::new();
    // f32, which every op has, comes first.
    for first in &shown[0] {
        let alike = DTYPES
            .iter()
            .zip(&shown)
            .filter_map(|(dtype, of_type)| Some((dtype, of_type.iter().find(|case| case.label == first.label)?)));
        for (dtype, Showcase { label, descriptor }) in alike {
            let case = Case::new(descriptor.clone(), Data::Normal);
            let dims = case.slots()[0].desc.dims().iter().map(u64::to_string).collect::<Vec<_>>().join("x");
            for target in &present {
                // A newcomer without a GPU would wait as long again for a CPU's code of the same shaders.
                if target.is_software() && *dtype != DType::F32 {
                    bar.inc(1);
                    continue;
                }
                bar.set_message(format!("{label} {dtype} on {}", target.name));
                let mut cells = vec![label.to_string(), format!("{dtype} {dims}"), target.name.into()];
                match show(&case, target) {
                    Ok(found) => cells.extend([
                        found
                            .kernel
                            .strip_prefix(&format!("{}_", case.descriptor.name()))
                            .unwrap_or(&found.kernel)
                            .into(),
                        format!("{:.2}", found.units),
                        format!("{:.1}", found.us),
                        format!("{:.1}", found.gbps),
                    ]),
                    Err(error) => {
                        cells.push("FAILED".into());
                        failures.push(format!("FAILED {label} {dtype} on {}: {}", target.name, said(&error)));
                    }
                }
                table.add_row(cells);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    writeln!(stdout(), "{table}\n")?;
    for failure in &failures {
        writeln!(stdout(), "{failure}")?;
    }
    ensure!(failures.is_empty(), "{} of the above failed", failures.len());
    if present.iter().any(|target| target.is_software()) {
        writeln!(stdout(), "On an adapter that is software f32 alone is shown.")?;
    }
    writeln!(
        stdout(),
        "Every device agrees with the reference: no error is above 1, which is its budget (docs/ACCURACY.md).\n\
         us: a run among others of a batch, the median of batches. GB/s: each operand read or written once.\n\
         The kernels named reference are the formulas in f64, to compare with: their times are not what a CPU can do."
    )?;
    Ok(())
}

struct Shown {
    kernel: String,
    units: f64,
    us: f64,
    gbps: f64,
}

fn show(case: &Case, target: &Target) -> Result<Shown> {
    let device: &Device = target.device.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let plan = case.plan(device)?;
    let inputs = case.inputs(0)?;
    let layout = Layout::Apart { shift: 0 };
    let mut arena = Arena::new(plan.slots(), plan.workspace(), &inputs, layout, InPlace::No, POISON);
    OnDevice(&plan).run(&mut arena)?;
    arena.check_surroundings()?;
    let worst = judge(case, By::of(&plan), &inputs, &arena.outputs())?;

    // Planned once, run many times: the owned queue's time of a batch, submission and waiting included.
    let memory = Uploaded::new(device, &arena)?;
    let mut operands = memory.operands(&arena);
    let mut queue = device.queue();
    let mut time = |runs: u32| -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..runs {
            plan.run(&mut queue, &mut operands, memory.workspace(&arena))?;
        }
        queue.finish()?;
        Ok(begin.elapsed().as_secs_f64() / f64::from(runs))
    };
    let runs = (BATCH.as_secs_f64() / time(1)?).clamp(1.0, MOST_RUNS) as u32;
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || (times.len() < 50 && start.elapsed() < PATIENCE) {
        times.push(time(runs)? * 1e6);
    }
    let us = baracuda_ops_benches::median(&mut times);
    let gbps = plan.info().fewest_bytes as f64 / us / 1e3;
    Ok(Shown { kernel: plan.info().kernel.into(), units: worst.units, us, gbps })
}
