//! Host time of what is done per call: checks, runs, replays, plans.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use baracuda_ops::AnyPlan;
use baracuda_ops::{DType, Device, LayerNormArgs, LayerNormDescriptor, Plan, PlanOptions, TensorDesc, Workspace};

use crate::line::{HostLine, Origin};
use crate::median;

/// Nanoseconds of one call: median of 15 rounds of `calls`.
fn ns_each(calls: usize, mut round: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    round(calls)?;
    let mut times = Vec::new();
    for _ in 0..15 {
        let start = Instant::now();
        round(calls)?;
        times.push(start.elapsed().as_secs_f64() * 1e9 / calls as f64);
    }
    Ok(median(&mut times))
}

/// LayerNorm of a small matrix with everything a forward can have: the most operands to check.
fn descriptor(rows: u64) -> Result<LayerNormDescriptor> {
    let x = TensorDesc::contiguous(DType::F32, &[rows, 256])?;
    Ok(LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?.bias(DType::F32)?.stats()?)
}

/// The checks alone. A plan whose last check fails does all of them and launches nothing; what is left is building the error.
///
/// # Errors
/// The library's.
pub fn checks() -> Result<Vec<HostLine>> {
    let device = Device::cpu();
    let origin = Origin::of(&device);
    let plan = Plan::new(&device, descriptor(4)?, &PlanOptions::default())?;
    let (x, weight) = (device.alloc(4 * 256 * 4)?, device.alloc(256 * 4)?);
    let (y, stats) = (device.alloc(4 * 256 * 4)?, device.alloc(32)?);
    let mut queue = device.queue();
    let ns = ns_each(10_000, |calls| {
        for _ in 0..calls {
            let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&weight).stats(&stats, &stats);
            // mean and rstd overlap, which the last check finds.
            black_box(plan.run(&mut queue, args, Workspace::none())).unwrap_err();
        }
        Ok(())
    })?;
    Ok(vec![HostLine::new("checks of a run with 6 operands, until the last one refuses", "baracuda-cpu", ns, &origin)])
}

/// What a typed run costs above the bare launch of the same kernel, and a repeated plan.
///
/// # Errors
/// The driver's.
#[cfg(feature = "cuda")]
pub fn cuda() -> Result<Vec<HostLine>> {
    use crate::cuda::{Bench, PEER};
    let bench = Bench::new()?;
    let device = &bench.device;
    let origin = bench.origin().clone();
    let plan = Plan::new(device, descriptor(8)?, &PlanOptions::default())?;
    let (x, weight) = (device.alloc(8 * 256 * 4)?, device.alloc(256 * 4)?);
    let (y, mean, rstd) = (device.alloc(8 * 256 * 4)?, device.alloc(32)?, device.alloc(32)?);
    let workspace = device.alloc(plan.workspace().bytes.max(4))?;
    device.queue().finish()?;
    let mut queue = bench.queue()?;
    // Few enough calls that the stream's own queue does not fill up and make the host wait.
    const CALLS: usize = 200;
    let mut lines = Vec::new();
    let mut line = |what: &str, ns: f64| lines.push(HostLine::new(what, PEER, ns, &origin));
    let waiting = |call: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..51 {
            bench.wait()?;
            let start = Instant::now();
            (0..CALLS).try_for_each(|_| call())?;
            times.push(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
        }
        Ok(median(&mut times))
    };
    let raw = waiting(&mut || {
        let (from, to) = (x.cuda_address().unwrap_or(0), y.cuda_address().unwrap_or(0));
        // SAFETY: both buffers hold 8192 bytes and are aligned; the stream is alive.
        let code =
            unsafe { baracuda_ops_sys::bops_copy_launch(from as *const _, to as *mut _, 8192, bench.stream().cast()) };
        anyhow::ensure!(code == 0, "the copy kernel failed with code {code}");
        Ok(())
    })?;
    line("raw launch of the copy kernel", raw);
    let run = waiting(&mut || {
        let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&weight).stats(&mean, &rstd);
        Ok(plan.run(&mut queue, args, Workspace::new(&workspace))?)
    })?;
    line("run of layer_norm with 6 operands", run);
    line("run above the raw launch", run - raw);
    // A failing last check: all checks, no launch.
    let checks = ns_each(10_000, |calls| {
        for _ in 0..calls {
            let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&weight).stats(&mean, &mean);
            black_box(plan.run(&mut queue, args, Workspace::new(&workspace))).unwrap_err();
        }
        Ok(())
    })?;
    line("checks of a run with 6 operands, until the last one refuses", checks);
    let again = descriptor(8)?;
    let options = PlanOptions::default();
    let plans = ns_each(2000, |calls| {
        for _ in 0..calls {
            black_box(Plan::new(device, again.clone(), &options)?);
        }
        Ok(())
    })?;
    line("Plan::new, again", plans);
    bench.wait()?;
    let erased: AnyPlan = plan.erase();
    let operands = [(&x).into(), (&weight).into(), (&weight).into()];
    let [a, b, c] = operands.map(|m: baracuda_ops::Mem<'_>| m.into());
    let outputs = [&y, &mean, &rstd].map(|m| baracuda_ops::MemMut::from(m).into());
    let [d, e, f] = outputs;
    let all = [a, b, c, d, e, f];
    let bound = erased.bind(&all, Workspace::new(&workspace))?;
    let replay = waiting(&mut || Ok(bound.run(&mut queue)?))?;
    line("Bound replay", replay);
    bench.wait()?;
    Ok(lines)
}

/// Recording of runs and replays into one pass, and a plan whose pipelines are cached.
///
/// # Errors
/// The driver's.
#[cfg(feature = "wgpu")]
pub fn wgpu() -> Result<Vec<HostLine>> {
    use crate::wgpu::{Bench, PEER};
    use baracuda_ops::{Mem, MemMut, Operand, Queue};
    let bench = Bench::new()?;
    let device = &bench.device;
    let origin = bench.origin().clone();
    let (raw, queue) = bench.raw();
    let typed = descriptor(8)?;
    let plan: AnyPlan = Plan::new(device, typed.clone(), &PlanOptions::default())?.erase();
    let (x, weight) = (device.alloc(8 * 256 * 4)?, device.alloc(256 * 4)?);
    let (y, mean, rstd) = (device.alloc(8 * 256 * 4)?, device.alloc(32)?, device.alloc(32)?);
    let workspace = device.alloc(plan.workspace().bytes.max(4))?;
    let operands: Vec<Operand<'_>> = vec![
        Mem::from(&x).into(),
        Mem::from(&weight).into(),
        Mem::from(&weight).into(),
        MemMut::from(&y).into(),
        MemMut::from(&mean).into(),
        MemMut::from(&rstd).into(),
    ];
    let bound = plan.bind(&operands, Workspace::new(&workspace))?;
    const CALLS: usize = 1000;
    let record = |what: &mut dyn FnMut(&mut Queue<'_>) -> Result<()>| -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..15 {
            let mut encoder = raw.create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
                let mut lent = Queue::wgpu_pass(device, &mut pass)?;
                let start = Instant::now();
                (0..CALLS).try_for_each(|_| what(&mut lent))?;
                times.push(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
            }
            queue.submit([encoder.finish()]);
            raw.poll(::wgpu::PollType::wait_indefinitely())?;
        }
        Ok(median(&mut times))
    };
    let mut lines = Vec::new();
    let mut line = |what: &str, ns: f64| lines.push(HostLine::new(what, PEER, ns, &origin));
    line(
        "run of layer_norm with 6 operands, recorded into a pass",
        record(&mut |lent| Ok(plan.run(lent, &operands, Workspace::new(&workspace))?))?,
    );
    line("Bound replay, recorded into a pass", record(&mut |lent| Ok(bound.run(lent)?))?);
    let options = PlanOptions::default();
    let plans = ns_each(500, |calls| {
        for _ in 0..calls {
            black_box(Plan::new(device, typed.clone(), &options)?);
        }
        Ok(())
    })?;
    line("Plan::new with cached pipelines", plans);
    Ok(lines)
}
