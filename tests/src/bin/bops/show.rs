//! The devices of this machine, and whether they agree.

use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use baracuda_ops::{DType, Device, PlanOptions};
use baracuda_ops_tests::arena::{Arena, InPlace, Layout, POISON};
use baracuda_ops_tests::case::{Case, Data};
use baracuda_ops_tests::exec::{Executor, OnDevice, Uploaded};
use baracuda_ops_tests::modes::judge;
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::target::{TARGETS, Target};
use comfy_table::{Table, presets};

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

/// Time that one op may take on one device.
const PATIENCE: Duration = Duration::from_millis(600);

pub(crate) fn all() -> Result<()> {
    devices()?;
    writeln!(stdout())?;
    let present: Vec<&Target> = TARGETS.iter().filter(|t| t.device.is_ok() && t.name != "wgpu-plain").collect();
    let dtypes = [DType::F32, DType::BF16];
    let bar = progress(SUBJECTS.len() * dtypes.len() * present.len());
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["op", "case", "device", "kernel", "largest error", "median", "GB/s"]);
    let mut failures = 0;
    for subject in SUBJECTS {
        for dtype in dtypes {
            let Some(case) = showcase((subject.features)(), dtype) else { continue };
            for target in &present {
                bar.set_message(format!("{} {dtype} on {}", subject.name, target.name));
                let shape = case.slots()[0].desc.dims().iter().map(u64::to_string).collect::<Vec<_>>().join("x");
                let what = format!("{dtype} {shape}");
                match show(&case, target) {
                    Ok(shown) => table.add_row([
                        subject.name.to_string(),
                        what,
                        target.name.to_string(),
                        shown.kernel,
                        format!("{:.2} of the contract", shown.units),
                        format!("{:.1} us", shown.us),
                        format!("{:.1}", shown.gbps),
                    ]),
                    Err(error) => {
                        failures += 1;
                        table.add_row([
                            subject.name.into(),
                            what,
                            target.name.into(),
                            String::new(),
                            format!("FAILED: {error:#}"),
                        ])
                    }
                };
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    writeln!(stdout(), "{table}")?;
    ensure!(failures == 0, "{failures} of the above failed");
    writeln!(stdout(), "Every device agrees with the reference within the accuracy contract (docs/ACCURACY.md).")?;
    Ok(())
}

/// The first feature of that type with parameters of x's type.
fn showcase(features: Vec<(String, baracuda_ops::AnyDescriptor)>, dtype: DType) -> Option<Case> {
    let wanted = |name: &str| name.starts_with(&format!("{dtype}: ")) && name.contains("of x's type");
    features.into_iter().find(|(name, _)| wanted(name)).map(|(_, descriptor)| Case::new(descriptor, Data::Normal))
}

struct Shown {
    kernel: String,
    units: f64,
    us: f64,
    gbps: f64,
}

fn show(case: &Case, target: &Target) -> Result<Shown> {
    let device: &Device = target.device.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let plan = case.descriptor.plan(device, &PlanOptions::default())?;
    let inputs = case.inputs(0)?;
    let layout = Layout::Apart { shift: 0 };
    let mut arena = Arena::new(plan.slots(), plan.workspace(), &inputs, layout, InPlace::No, POISON);
    OnDevice(&plan).run(&mut arena)?;
    arena.check_surroundings()?;
    let worst = judge(case, target.backend, &inputs, &arena.outputs())?;

    // Planned once, run many times: the owned queue's time of a batch, submission and waiting included.
    let memory = Uploaded::new(device, &arena)?;
    let mut operands = memory.operands(&arena);
    let mut queue = device.queue();
    let (start, mut times, batch) = (Instant::now(), Vec::new(), if device.is_software() { 4 } else { 200 });
    while times.len() < 5 || (times.len() < 50 && start.elapsed() < PATIENCE) {
        let begin = Instant::now();
        for _ in 0..batch {
            plan.run(&mut queue, &mut operands, memory.workspace(&arena))?;
        }
        queue.finish()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(batch));
    }
    let us = baracuda_ops_benches::median(&mut times);
    let gbps = plan.info().fewest_bytes as f64 / us / 1e3;
    Ok(Shown { kernel: plan.info().kernel.into(), units: worst.units, us, gbps })
}
