//! What runs on the CPU promise to callers with threads of their own.

use std::cell::{OnceCell, RefCell};
use std::sync::Barrier;

use anyhow::{Context, Result, anyhow, bail, ensure};
use baracuda_ops::{
    Buffer, Device, LayerNormArgs, LayerNormDescriptor, LayerNormPlan, Mem, MemMut, Operand, Plan, PlanOptions,
    Workspace,
};
use rayon::prelude::*;

use crate::{MemIn, MemOut, x};

type Law = fn() -> Result<()>;

/// The laws and their names.
pub(crate) const LAWS: [(&str, Law); 4] = [
    ("a_run_never_executes_tasks_of_its_caller", no_foreign_tasks),
    ("buffers_of_one_thread_are_never_in_use", buffers_of_a_thread),
    ("disjoint_ranges_of_a_buffer_run_at_once", disjoint_ranges),
    ("operands_move_to_other_threads", moved_operands),
];

/// Enough elements that several threads compute them.
const ROWS: usize = 2048;
const COLS: usize = 64;
const ELEMENTS: usize = ROWS * COLS;

/// Tasks of a caller.
const TASKS: usize = 400;

/// A LayerNorm that tells the mean of each row.
fn plan() -> Result<LayerNormPlan> {
    let descriptor = LayerNormDescriptor::new(x(&[ROWS as u64, COLS as u64]), 1)?.stats()?;
    Ok(Plan::new(&Device::cpu(), descriptor, &PlanOptions::default())?)
}

/// Tasks in a pool of the caller, more threads than cores.
fn in_a_pool(task: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(8).build()?;
    let failed: Vec<String> =
        pool.install(|| (0..TASKS).into_par_iter().filter_map(|i| task(i).err()).map(|e| format!("{e:#}")).collect());
    match failed.first() {
        Some(first) => bail!("{} of {TASKS} tasks failed, one of them: {first}", failed.len()),
        None => Ok(()),
    }
}

/// Host memory of a thread, for one task after the other.
struct Scratch {
    x: Vec<f32>,
    y: Vec<f32>,
    mean: Vec<f32>,
    rstd: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        x: vec![0.0; ELEMENTS],
        y: vec![0.0; ELEMENTS],
        mean: vec![0.0; ROWS],
        rstd: vec![0.0; ROWS],
    });
    static BUFFERS: OnceCell<[Buffer; 4]> = const { OnceCell::new() };
}

fn no_foreign_tasks() -> Result<()> {
    let plan = plan()?.erase();
    in_a_pool(|i| {
        SCRATCH.with(|scratch| {
            let mut scratch = scratch.try_borrow_mut().context("begun in the middle of another task")?;
            let Scratch { x, y, mean, rstd } = &mut *scratch;
            x.fill(i as f32);
            let mut operands: [Operand<'_>; 4] =
                [Mem::host(x).into(), MemMut::host(y).into(), MemMut::host(mean).into(), MemMut::host(rstd).into()];
            plan.run(&mut plan.device().queue(), &mut operands, Workspace::none())?;
            ensure!(mean.iter().all(|mean| *mean == i as f32), "means of other rows: {mean:?}");
            ensure!(y.iter().all(|y| *y == 0.0), "a constant row is not 0");
            Ok(())
        })
    })
}

fn buffers_of_a_thread() -> Result<()> {
    let plan = plan()?;
    in_a_pool(|_| {
        BUFFERS.with(|buffers| {
            let new = || [ELEMENTS, ELEMENTS, ROWS, ROWS].map(|n| plan.device().alloc(4 * n as u64).expect("memory"));
            let [x, y, mean, rstd] = buffers.get_or_init(new);
            let args = LayerNormArgs::new(x, y).stats(mean, rstd);
            Ok(plan.run(&mut plan.device().queue(), args, Workspace::none())?)
        })
    })
}

/// Eight threads that read one range of a buffer and write others of it.
fn disjoint_ranges() -> Result<()> {
    const THREADS: usize = 8;
    const BYTES: u64 = 4 * ELEMENTS as u64;
    /// Of mean or rstd.
    const STATS: u64 = 4 * ROWS as u64;
    let plan = plan()?;
    let device = plan.device();
    let pool = device.alloc(BYTES + THREADS as u64 * (BYTES + 2 * STATS))?;
    device.write(&pool, 0, bytemuck::cast_slice(&[3f32; ELEMENTS]))?;
    let start = Barrier::new(THREADS);
    let runs = |thread: u64| -> Result<()> {
        let y = BYTES + thread * (BYTES + 2 * STATS);
        start.wait();
        for _ in 0..100 {
            let args = LayerNormArgs::new(MemIn(&pool, 0, BYTES), MemOut(&pool, y, BYTES))
                .stats(MemOut(&pool, y + BYTES, STATS), MemOut(&pool, y + BYTES + STATS, STATS));
            plan.run(&mut device.queue(), args, Workspace::none())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64).map(|thread| scope.spawn(move || runs(thread))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let all = device.queue().download::<f32>(&pool)?;
    for own in all[ELEMENTS..].chunks(ELEMENTS + 2 * ROWS) {
        let (y, stats) = own.split_at(ELEMENTS);
        ensure!(y.iter().all(|y| *y == 0.0) && stats[..ROWS].iter().all(|mean| *mean == 3.0), "a run is missing");
    }
    Ok(())
}

fn moved_operands() -> Result<()> {
    let plan = plan()?;
    let (x, mut y) = (vec![5f32; ELEMENTS], vec![7f32; ELEMENTS]);
    let (mut mean, mut rstd) = (vec![0f32; ROWS], vec![0f32; ROWS]);
    let args = LayerNormArgs::new(&x, &mut y).stats(&mut mean, &mut rstd);
    let (plan, workspace) = (&plan, Workspace::none());
    std::thread::scope(|scope| {
        scope.spawn(move || plan.run(&mut plan.device().queue(), args, workspace)).join().expect("no panic")
    })?;
    ensure!(y.iter().all(|y| *y == 0.0) && mean.iter().all(|mean| *mean == 5.0), "the run is missing");
    Ok(())
}
