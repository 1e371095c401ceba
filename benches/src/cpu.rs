//! The CPU: bound plans by the host's clock, beside a copy by as many threads.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::Result;
use baracuda_ops::{Bound, Device, PlanOptions};

use crate::cells::Cell;
use crate::line::{Line, Origin, Timed};
use crate::sets::Sets;
use crate::{median, sets_for};

/// Label of our lines.
pub const PEER: &str = "baracuda-cpu";

/// Bytes and floating-point operations of the largest cell that is timed: the cells are those of GPUs, and a core takes seconds for more.
const MOST_BYTES: u64 = 1 << 30;
const MOST_FLOPS: u64 = 200_000_000_000;
/// Last-level cache that sets of operands rotate past, in bytes.
const CACHE_BYTES: u64 = 32 << 20;
/// Elements of the copy, f32.
const COPY: u64 = 1 << 24;
/// What one measurement takes at least.
const BURST: Duration = Duration::from_millis(20);
/// Measurements, of which the median counts.
const REPEATS: usize = 7;

/// The CPU of this machine with all cores that the process may use.
pub struct Bench {
    /// The device.
    pub device: Device,
    origin: Origin,
}

impl Bench {
    /// Of the embedded CPU backend.
    pub fn new() -> Self {
        let device = Device::cpu();
        let origin = Origin::of(&device);
        Self { device, origin }
    }

    /// Times a cell, planned with options. `None` for a cell that takes too many bytes or operations.
    ///
    /// # Errors
    /// A refusal.
    pub fn cell(&self, cell: &Cell, options: &PlanOptions) -> Result<Option<Line>> {
        let plans = cell.plans(&self.device, options)?;
        let flops: u64 = plans.iter().map(|plan| plan.info().flops).sum();
        if cell.bytes > MOST_BYTES || flops > MOST_FLOPS {
            return Ok(None);
        }
        let count = sets_for(cell.in_bytes, CACHE_BYTES);
        let sets: Vec<Sets> = plans.iter().map(|plan| Sets::new(plan, count)).collect::<Result<_>>()?;
        let mut bound: Vec<Vec<Bound>> = Vec::new();
        for (plan, sets) in plans.iter().zip(&sets) {
            bound.push(sets.operands().iter().map(|o| plan.bind(o, sets.workspace())).collect::<Result<_, _>>()?);
        }
        let mut queue = self.device.queue();
        let timed = time(count, |i| Ok(bound.iter().try_for_each(|bound| bound[i].run(&mut queue))?))?;
        Ok(Some(Line::of_cell(cell, PEER, &plans, timed, &self.origin)))
    }

    /// Times a copy of memory, cut into a part for each thread.
    ///
    /// # Errors
    /// None today.
    pub fn copies(&self) -> Result<Vec<Line>> {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let elements = COPY as usize;
        let part = elements.div_ceil(threads);
        let mut sets = [(vec![1f32; elements], vec![0f32; elements]), (vec![2f32; elements], vec![0f32; elements])];
        let timed = time(sets.len(), |i| {
            let (from, to) = &mut sets[i];
            std::thread::scope(|scope| {
                for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
                    scope.spawn(|| to.copy_from_slice(from));
                }
            });
            Ok(())
        })?;
        Ok(vec![Line::of_copy(COPY, PEER, timed, &self.origin)])
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// Median time of `call(i)`, i rotating below `count`.
fn time(count: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<Timed> {
    let mut calls_of = |calls: usize| -> Result<Duration> {
        let start = Instant::now();
        (0..calls).try_for_each(|i| call(i % count))?;
        Ok(start.elapsed())
    };
    // Threads and clocks; then what is measured.
    calls_of(1)?;
    let estimate = calls_of(1)?;
    let rounds = BURST.as_secs_f64() / (estimate.as_secs_f64() * count as f64).max(1e-9);
    // A call that takes longer than a burst need not touch all sets in it.
    let calls = if estimate > BURST { 1 } else { count * (rounds.ceil() as usize).max(1) };
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        times.push(calls_of(calls)?.as_secs_f64() * 1e6 / calls as f64);
    }
    let us = median(&mut times);
    Ok(Timed { us, host_us: us, timing: "host" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_rotate_and_take_time() {
        let mut seen = [0; 3];
        let timed = time(3, |i| {
            seen[i] += 1;
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        })
        .unwrap();
        assert!(timed.us >= 1000.0, "{}", timed.us);
        let [first, second, third] = seen;
        assert!(second == third && first == second + 2, "{seen:?}");
    }
}
