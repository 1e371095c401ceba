//! Host time of what is done per call: checks, runs, replays, plans.
//!
//! A number is the median over 31 rounds of the mean time of a call in a round, after 200 ms of rounds that do not count: a core that was idle
//! takes tens of milliseconds to reach its clock, and the first calls miss every cache. What is compared is measured in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use baracuda_ops::AnyPlan;
use baracuda_ops::{
    DType, Device, GemmArgs, GemmDescriptor, LayerNormArgs, LayerNormDescriptor, Plan, PlanOptions, TensorDesc,
    Workspace,
};

use crate::line::{HostLine, Origin};
use crate::median;

const WARM_UP: Duration = Duration::from_millis(200);
const ROUNDS: usize = 31;

/// Nanoseconds of one call of each of `N` things, `calls` of which `round` times.
fn ns_each<const N: usize>(calls: usize, mut round: impl FnMut(usize) -> Result<Duration>) -> Result<[f64; N]> {
    let mut turn = || -> Result<[f64; N]> {
        let mut times = [0.0; N];
        for (which, time) in times.iter_mut().enumerate() {
            *time = round(which)?.as_secs_f64() * 1e9 / calls as f64;
        }
        Ok(times)
    };
    let start = Instant::now();
    while start.elapsed() < WARM_UP {
        turn()?;
    }
    let turns: Vec<[f64; N]> = (0..ROUNDS).map(|_| turn()).collect::<Result<_>>()?;
    Ok(std::array::from_fn(|which| median(&mut turns.iter().map(|turn| turn[which]).collect::<Vec<_>>())))
}

/// How long some calls take together.
fn timed(calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    (0..calls).try_for_each(|_| call())?;
    Ok(start.elapsed())
}

/// LayerNorm of a small matrix with everything a forward can have: the most operands to check.
fn descriptor(rows: u64) -> Result<LayerNormDescriptor> {
    let x = TensorDesc::contiguous(DType::F32, &[rows, 256])?;
    Ok(LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?.bias(DType::F32)?.stats()?)
}

/// Calls of a round of checks, which then takes milliseconds.
const CHECKS: usize = 50_000;

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
    let [ns] = ns_each(CHECKS, |_| {
        timed(CHECKS, || {
            let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&weight).stats(&stats, &stats);
            // mean and rstd overlap, which the last check finds.
            black_box(plan.run(&mut queue, args, Workspace::none())).unwrap_err();
            Ok(())
        })
    })?;
    Ok(vec![HostLine::new("checks of a run with 6 operands, until the last one refuses", "baracuda-cpu", ns, &origin)])
}

/// A product of f32 matrices on the CPU beside the crate that multiplies its tiles, called directly on one thread. The library uses every core
/// that the process may run on: confined to one core, both have the same thread.
///
/// # Errors
/// The library's.
pub fn products() -> Result<Vec<HostLine>> {
    const EXTENT: usize = 1024;
    let device = Device::cpu();
    let origin = Origin::of(&device);
    let matrix = TensorDesc::contiguous(DType::F32, &[EXTENT as u64; 2])?;
    let plan = Plan::new(&device, GemmDescriptor::new(matrix, matrix)?, &PlanOptions::default())?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut factor = || (0..EXTENT * EXTENT).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
    let (a, b, mut out) = (factor(), factor(), vec![0f32; EXTENT * EXTENT]);
    let mut direct = out.clone();
    let mut queue = device.queue();
    let [library, crate_alone] = ns_each(1, |which| {
        timed(1, || {
            let (rows, columns) = (EXTENT as isize, 1);
            match which {
                0 => plan.run(&mut queue, GemmArgs::new(&a[..], &b[..], &mut out[..]), Workspace::none())?,
                // SAFETY: the three matrices have EXTENT rows of EXTENT elements each, and nothing else uses `direct`.
                _ => unsafe {
                    let (to, [a, b]) = (direct.as_mut_ptr(), [a.as_ptr(), b.as_ptr()]);
                    let [m, k, n] = [EXTENT; 3];
                    matrixmultiply::sgemm(m, k, n, 1.0, a, rows, columns, b, rows, columns, 0.0, to, rows, columns);
                },
            }
            black_box(());
            Ok(())
        })
    })?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(vec![
        HostLine::new(&format!("gemm of f32, 1024^3, {threads} threads"), "baracuda-cpu", library, &origin),
        HostLine::new("gemm of f32, 1024^3, one thread", "matrixmultiply", crate_alone, &origin),
    ])
}

/// What a typed run costs above the bare launch of the same kernel, and a repeated plan.
///
/// # Errors
/// The driver's.
#[cfg(feature = "cuda")]
pub fn cuda() -> Result<Vec<HostLine>> {
    use crate::cuda::{Bench, PEER};
    use baracuda_ops::{Mem, MemMut, Operand};
    let bench = Bench::new()?;
    let device = &bench.device;
    let origin = bench.origin().clone();
    let plan = Plan::new(device, descriptor(8)?, &PlanOptions::default())?;
    let (x, weight) = (device.alloc(8 * 256 * 4)?, device.alloc(256 * 4)?);
    let (y, mean, rstd) = (device.alloc(8 * 256 * 4)?, device.alloc(32)?, device.alloc(32)?);
    let workspace = device.alloc(plan.workspace().bytes.max(4))?;
    device.queue().finish()?;
    let mut queue = bench.queue()?;
    let erased: AnyPlan = plan.clone().erase();
    let inputs = [&x, &weight, &weight].map(|m| Operand::from(Mem::from(m)));
    let outputs = [&y, &mean, &rstd].map(|m| Operand::from(MemMut::from(m)));
    let operands: Vec<Operand<'_>> = inputs.into_iter().chain(outputs).collect();
    let bound = erased.bind(&operands, Workspace::new(&workspace))?;
    // Few enough calls that the stream's own queue does not fill up and make the host wait.
    const CALLS: usize = 200;
    let [raw, run, replay] = ns_each(CALLS, |which| {
        bench.wait()?;
        match which {
            0 => timed(CALLS, || {
                let (from, to) = (x.cuda_address().unwrap_or(0), y.cuda_address().unwrap_or(0));
                let stream = bench.stream().cast();
                // SAFETY: both buffers hold 8192 bytes and are aligned; the stream is alive.
                let code = unsafe { baracuda_ops_sys::bops_copy_launch(from as *const _, to as *mut _, 8192, stream) };
                anyhow::ensure!(code == 0, "the copy kernel failed with code {code}");
                Ok(())
            }),
            1 => timed(CALLS, || {
                let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&weight).stats(&mean, &rstd);
                Ok(plan.run(&mut queue, args, Workspace::new(&workspace))?)
            }),
            _ => timed(CALLS, || Ok(bound.run(&mut queue)?)),
        }
    })?;
    bench.wait()?;
    // A failing last check: all checks, no launch.
    let [checks] = ns_each(CHECKS, |_| {
        timed(CHECKS, || {
            let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&weight).stats(&mean, &mean);
            black_box(plan.run(&mut queue, args, Workspace::new(&workspace))).unwrap_err();
            Ok(())
        })
    })?;
    let again = descriptor(8)?;
    let plans = plans(device, &again)?;
    let line = |what: &str, ns: f64| HostLine::new(what, PEER, ns, &origin);
    Ok(vec![
        line("raw launch of the copy kernel", raw),
        line("run of layer_norm with 6 operands", run),
        line("run above the raw launch", run - raw),
        line("checks of a run with 6 operands, until the last one refuses", checks),
        line("Plan::new, again", plans),
        line("Bound replay", replay),
    ])
}

/// What a run of a product through cuBLASLt costs above calling the library directly.
///
/// # Errors
/// The driver's, or that cuBLASLt is missing.
#[cfg(feature = "cuda")]
pub fn cublaslt() -> Result<Vec<HostLine>> {
    use crate::cublaslt::Direct;
    use crate::cuda::{Bench, PEER};
    const EXTENT: u64 = 256;
    let bench = Bench::new()?;
    let device = &bench.device;
    let origin = bench.origin().clone();
    let matrix = TensorDesc::contiguous(DType::BF16, &[EXTENT; 2])?;
    let options = PlanOptions::default().kernel("gemm_cublaslt");
    let plan = Plan::new(device, GemmDescriptor::new(matrix, matrix)?, &options)?;
    let factor = || device.alloc(EXTENT * EXTENT * 2);
    let (a, b, out) = (factor()?, factor()?, factor()?);
    let workspace = device.alloc(plan.workspace().bytes.max(4))?;
    let direct = Direct::new(EXTENT)?;
    let addresses = [&a, &b, &out].map(|matrix| matrix.cuda_address().unwrap_or(0));
    device.queue().finish()?;
    let mut queue = bench.queue()?;
    // Few enough calls that the stream's own queue does not fill up and make the host wait.
    const CALLS: usize = 200;
    let [raw, run] = ns_each(CALLS, |which| {
        bench.wait()?;
        match which {
            // SAFETY: the addresses are those of three matrices, which live until the stream is waited for.
            0 => timed(CALLS, || unsafe { direct.run(addresses, bench.stream().cast()) }),
            _ => timed(CALLS, || Ok(plan.run(&mut queue, GemmArgs::new(&a, &b, &out), Workspace::new(&workspace))?)),
        }
    })?;
    bench.wait()?;
    let line = |what: &str, ns: f64| HostLine::new(what, PEER, ns, &origin);
    Ok(vec![
        line("cublasLtMatmul called directly", raw),
        line("run of gemm through gemm_cublaslt", run),
        line("run above cublasLtMatmul", run - raw),
    ])
}

/// A plan that was built before.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn plans(device: &Device, descriptor: &LayerNormDescriptor) -> Result<f64> {
    const CALLS: usize = 1000;
    let options = PlanOptions::default();
    let [ns] = ns_each(CALLS, |_| {
        timed(CALLS, || {
            black_box(Plan::new(device, descriptor.clone(), &options)?);
            Ok(())
        })
    })?;
    Ok(ns)
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
    let inputs = [&x, &weight, &weight].map(|m| Operand::from(Mem::from(m)));
    let outputs = [&y, &mean, &rstd].map(|m| Operand::from(MemMut::from(m)));
    let mut operands: Vec<Operand<'_>> = inputs.into_iter().chain(outputs).collect();
    let bound = plan.bind(&operands, Workspace::new(&workspace))?;
    let bare = Raw::new(raw, [&x, &weight, &weight, &y, &mean, &rstd])?;
    const CALLS: usize = 500;
    let [alone, run, replay] = ns_each(CALLS, |which| {
        let mut encoder = raw.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
        let time = match which {
            0 => timed(CALLS, || {
                bare.record(&mut pass);
                Ok(())
            }),
            1 => {
                let mut lent = Queue::wgpu_pass(device, &mut pass)?;
                timed(CALLS, || Ok(plan.run(&mut lent, &mut operands, Workspace::new(&workspace))?))
            }
            _ => {
                let mut lent = Queue::wgpu_pass(device, &mut pass)?;
                timed(CALLS, || Ok(bound.run(&mut lent)?))
            }
        };
        drop(pass);
        queue.submit([encoder.finish()]);
        raw.poll(::wgpu::PollType::wait_indefinitely())?;
        time
    })?;
    let plans = plans(device, &typed)?;
    let line = |what: &str, ns: f64| HostLine::new(what, PEER, ns, &origin);
    Ok(vec![
        line("raw bind group of 6 buffers and dispatch, recorded into a pass", alone),
        line("run of layer_norm with 6 operands, recorded into a pass", run),
        line("run above the raw dispatch", run - alone),
        line("Bound replay, recorded into a pass", replay),
        line("Plan::new with cached pipelines", plans),
    ])
}

/// What a run through wgpu cannot do without: a bind group of the operands and a dispatch.
#[cfg(feature = "wgpu")]
struct Raw<'a> {
    device: &'a ::wgpu::Device,
    pipeline: ::wgpu::ComputePipeline,
    layout: ::wgpu::BindGroupLayout,
    buffers: Vec<&'a ::wgpu::Buffer>,
}

#[cfg(feature = "wgpu")]
impl<'a> Raw<'a> {
    const TEXT: &'static str = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read> weight: array<f32>;
        @group(0) @binding(2) var<storage, read> bias: array<f32>;
        @group(0) @binding(3) var<storage, read_write> y: array<f32>;
        @group(0) @binding(4) var<storage, read_write> mean: array<f32>;
        @group(0) @binding(5) var<storage, read_write> rstd: array<f32>;
        @compute @workgroup_size(1) fn sum() {
            y[0] = x[0] + weight[0] + bias[0];
            mean[0] = y[0];
            rstd[0] = y[0];
        }";

    fn new(device: &'a ::wgpu::Device, operands: [&'a baracuda_ops::Buffer; 6]) -> Result<Self> {
        let buffers: Option<Vec<_>> = operands.iter().map(|operand| operand.wgpu_buffer()).collect();
        let Some(buffers) = buffers else { anyhow::bail!("{} has no wgpu buffers", operands[0].device()) };
        let source = ::wgpu::ShaderSource::Wgsl(Self::TEXT.into());
        let module = device.create_shader_module(::wgpu::ShaderModuleDescriptor { label: None, source });
        let pipeline = device.create_compute_pipeline(&::wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        Ok(Self { device, layout: pipeline.get_bind_group_layout(0), pipeline, buffers })
    }

    fn record(&self, pass: &mut ::wgpu::ComputePass<'_>) {
        let entries: [_; 6] = std::array::from_fn(|i| ::wgpu::BindGroupEntry {
            binding: i as u32,
            resource: self.buffers[i].as_entire_binding(),
        });
        let layout = &self.layout;
        let descriptor = ::wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let group = self.device.create_bind_group(&descriptor);
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
    }
}
