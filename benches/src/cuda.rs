//! CUDA: replays of a captured graph between events.

use std::time::Instant;

use anyhow::{Result, bail};
use baracuda_ops::{Device, DeviceProps, PlanOptions, Queue};
use cudarc::driver::{result, sys};

use crate::cells::{COPIES, Cell};
use crate::line::{Line, Origin, Timed};
use crate::sets::Sets;
use crate::{BURST_US, REPEATS, median, sets_for};

/// Label of our lines.
pub const PEER: &str = "baracuda-cuda";

/// A device and a stream of its own.
pub struct Bench {
    /// The device.
    pub device: Device,
    stream: sys::CUstream,
    origin: Origin,
    l2_bytes: u64,
}

impl Bench {
    /// Of the first CUDA device.
    ///
    /// # Errors
    /// There is none, or the driver's.
    pub fn new() -> Result<Self> {
        let device = Device::cuda(0)?;
        let DeviceProps::Cuda(props) = device.props() else { bail!("{device} is no CUDA device") };
        // SAFETY: the device exists; its context is retained for the life of the process.
        unsafe { result::ctx::set_current(result::primary_ctx::retain(result::device::get(0)?)?) }?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let origin = Origin::of(&device);
        Ok(Self { device, stream, origin, l2_bytes: props.l2_bytes })
    }

    /// Where lines come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The stream.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// A queue on the stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn queue(&self) -> Result<Queue<'static>> {
        // SAFETY: the stream lives as long as the process; callers keep their buffers until they have waited for it.
        Ok(unsafe { Queue::cuda(&self.device, self.stream.cast()) }?)
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream is alive.
        Ok(unsafe { result::stream::synchronize(self.stream) }?)
    }

    /// Times a cell, planned with options.
    ///
    /// # Errors
    /// A refusal, or the driver's.
    pub fn cell(&self, cell: &Cell, options: &PlanOptions) -> Result<Line> {
        let plans = cell.plans(&self.device, options)?;
        let count = sets_for(cell.in_bytes, self.l2_bytes);
        let sets: Vec<Sets> = plans.iter().map(|plan| Sets::new(plan, count)).collect::<Result<_>>()?;
        let mut operands: Vec<_> = sets.iter().map(Sets::operands).collect();
        let mut queue = self.queue()?;
        let timed = self.time(count, |i| {
            for ((plan, sets), operands) in plans.iter().zip(&sets).zip(&mut operands) {
                plan.run(&mut queue, &mut operands[i], sets.workspace())?;
            }
            Ok(())
        })?;
        Ok(Line::of_cell(cell, PEER, &plans, timed, &self.origin))
    }

    /// Times the copy kernel.
    ///
    /// # Errors
    /// The driver's.
    pub fn copies(&self) -> Result<Vec<Line>> {
        let status = |code: i32| if code == 0 { Ok(()) } else { bail!("the copy kernel failed with code {code}") };
        // SAFETY: a context is current.
        status(unsafe { baracuda_ops_sys::bops_copy_prepare() })?;
        let mut lines = Vec::new();
        for elements in COPIES {
            let bytes = 4 * elements;
            let mut pairs = Vec::new();
            for _ in 0..2 {
                let (from, to) = (self.device.alloc(bytes)?, self.device.alloc(bytes)?);
                let data: Vec<u8> = (0..1 << 24).map(|_| fastrand::u8(..)).collect();
                for at in (0..bytes).step_by(1 << 24) {
                    self.device.write(&from, at, &data[..(bytes - at).min(1 << 24) as usize])?;
                }
                pairs.push((from, to));
            }
            self.device.queue().finish()?;
            let address = |b: &baracuda_ops::Buffer| b.cuda_address().unwrap_or(0);
            let timed = self.time(2, |i| {
                let (from, to) = (address(&pairs[i].0), address(&pairs[i].1));
                // SAFETY: both buffers hold `bytes` bytes and are aligned; the stream is alive.
                status(unsafe {
                    baracuda_ops_sys::bops_copy_launch(from as *const _, to as *mut _, bytes, self.stream.cast())
                })
            })?;
            lines.push(Line::of_copy(elements, PEER, timed, &self.origin));
        }
        Ok(lines)
    }

    /// Median time of `call(i)`, i rotating below `count`.
    fn time(&self, count: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<Timed> {
        let mut burst = |calls: usize| (0..calls).try_for_each(|i| call(i % count));
        burst(count)?;
        burst(count)?;
        self.wait()?;
        let estimate = self.replays(3, || burst(count))? / count as f64;
        let calls = count * ((BURST_US / (estimate.max(1.0) * count as f64)).ceil() as usize).max(1);
        let start = Instant::now();
        burst(calls)?;
        let host_us = start.elapsed().as_secs_f64() * 1e6 / calls as f64;
        self.wait()?;
        // SAFETY: the stream is alive; what the graph uses outlives the replays, which are waited for.
        let us = unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            result::stream::begin_capture(self.stream, mode)?;
            let recorded = burst(calls);
            let graph = result::stream::end_capture(self.stream);
            recorded?;
            let graph = graph?;
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0))?;
            let us = self.replays(REPEATS, || Ok(result::graph::launch(exec, self.stream)?))?;
            result::graph::exec_destroy(exec)?;
            result::graph::destroy(graph)?;
            us
        };
        Ok(Timed { us: us / calls as f64, host_us, timing: "graph" })
    }

    /// Median time between events around `enqueue`, in microseconds.
    fn replays(&self, repeats: usize, mut enqueue: impl FnMut() -> Result<()>) -> Result<f64> {
        enqueue()?;
        enqueue()?;
        self.wait()?;
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let (start, end) = (result::event::create(flags)?, result::event::create(flags)?);
        let mut times = Vec::new();
        for _ in 0..repeats {
            // SAFETY: events and stream are alive.
            unsafe {
                result::event::record(start, self.stream)?;
                enqueue()?;
                result::event::record(end, self.stream)?;
                result::event::synchronize(end)?;
                times.push(f64::from(result::event::elapsed(start, end)?) * 1e3);
            }
        }
        // SAFETY: both have completed.
        unsafe {
            result::event::destroy(start)?;
            result::event::destroy(end)?;
        }
        Ok(median(&mut times))
    }
}
