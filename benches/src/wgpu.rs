//! wgpu: bound plans in one pass between timestamps.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use baracuda_ops::{Bound, Device, PlanOptions, Queue};

use crate::cells::{COPIES, Cell};
use crate::line::{Line, Origin, Timed};
use crate::sets::Sets;
use crate::{BURST_US, L2_BYTES, REPEATS, median, sets_for};

/// Label of our lines.
pub const PEER: &str = "baracuda-wgpu";

/// How long a cell runs before it is timed.
const WARM_UP: Duration = Duration::from_millis(200);

/// A device of our own, lent to the library, so that passes can carry timestamps.
pub struct Bench {
    /// The device as the library knows it.
    pub device: Device,
    raw: wgpu::Device,
    queue: wgpu::Queue,
    origin: Origin,
    timestamps: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    has_hardware: bool,
}

impl Bench {
    /// Of the best adapter.
    ///
    /// # Errors
    /// There is none, or it has no timestamps.
    pub fn new() -> Result<Self> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
        let hardware = |a: &&wgpu::Adapter| a.get_info().device_type != wgpu::DeviceType::Cpu;
        let adapter =
            adapters.iter().find(hardware).or(adapters.first()).context("no wgpu adapter; install a Vulkan driver")?;
        let wanted = wgpu::Features::SUBGROUP | wgpu::Features::IMMEDIATES | wgpu::Features::TIMESTAMP_QUERY;
        let (raw, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("bench"),
            required_features: (adapter.features() & wanted) | wgpu::Features::TIMESTAMP_QUERY,
            required_limits: adapter.limits(),
            ..Default::default()
        }))?;
        let device = Device::wgpu(&raw, &queue)?;
        let timestamps =
            raw.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: 2 });
        let buffer = |usage| {
            raw.create_buffer(&wgpu::BufferDescriptor { label: None, size: 16, usage, mapped_at_creation: false })
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let origin = Origin::of(&device);
        let has_hardware = hardware(&adapter);
        Ok(Self { device, raw, queue, origin, timestamps, resolved, staging, has_hardware })
    }

    /// Where lines come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether the adapter is no CPU.
    pub fn has_hardware(&self) -> bool {
        self.has_hardware
    }

    /// The device and queue.
    pub fn raw(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.raw, &self.queue)
    }

    /// Times a cell, planned with options.
    ///
    /// # Errors
    /// A refusal, or the driver's.
    pub fn cell(&self, cell: &Cell, options: &PlanOptions) -> Result<Line> {
        let plans = cell.plans(&self.device, options)?;
        let count = sets_for(cell.in_bytes, L2_BYTES);
        let sets: Vec<Sets> = plans.iter().map(|plan| Sets::new(plan, count)).collect::<Result<_>>()?;
        let mut bound: Vec<Vec<Bound>> = Vec::new();
        for (plan, sets) in plans.iter().zip(&sets) {
            bound.push(sets.operands().iter().map(|o| plan.bind(o, sets.workspace())).collect::<Result<_, _>>()?);
        }
        let timed = self.time(count, |pass, i| {
            let mut queue = Queue::wgpu_pass(&self.device, pass)?;
            Ok(bound.iter().try_for_each(|bound| bound[i].run(&mut queue))?)
        })?;
        Ok(Line::of_cell(cell, PEER, &plans, timed, &self.origin))
    }

    /// Times the copy shader.
    ///
    /// # Errors
    /// The driver's.
    pub fn copies(&self) -> Result<Vec<Line>> {
        // Chunks of 16 bytes that one workgroup of csrc/copy.wgsl copies.
        const CHUNKS: u64 = 256 * 4;
        let module = self.raw.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("copy"),
            source: wgpu::ShaderSource::Wgsl(baracuda_ops_sys::wgsl::copy::COPY.into()),
        });
        let pipeline = self.raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("copy"),
            layout: None,
            module: &module,
            entry_point: Some("copy"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        let mut lines = Vec::new();
        for elements in COPIES {
            let (bytes, chunks) = (4 * elements, elements / 4);
            if bytes > self.raw.limits().max_storage_buffer_binding_size || (!self.has_hardware && elements > 1 << 24) {
                continue;
            }
            let groups = chunks.div_ceil(CHUNKS);
            let groups_x = groups.min(u64::from(self.raw.limits().max_compute_workgroups_per_dimension));
            let mut groups_of = Vec::new();
            let mut buffers = Vec::new();
            for _ in 0..2 {
                let (from, to) = (self.device.alloc(bytes)?, self.device.alloc(bytes)?);
                let data: Vec<u8> = (0..1 << 24).map(|_| fastrand::u8(..)).collect();
                for at in (0..bytes).step_by(1 << 24) {
                    self.device.write(&from, at, &data[..(bytes - at).min(1 << 24) as usize])?;
                }
                let raw = |buffer: &baracuda_ops::Buffer| buffer.wgpu_buffer().cloned().context("a wgpu buffer");
                let ends = [raw(&from)?, raw(&to)?];
                let entry = |binding: usize| wgpu::BindGroupEntry {
                    binding: binding as u32,
                    resource: ends[binding].as_entire_binding(),
                };
                groups_of.push(self.raw.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout: &pipeline.get_bind_group_layout(0),
                    entries: &[entry(0), entry(1)],
                }));
                buffers.push((from, to));
            }
            let grid = (groups_x as u32, groups.div_ceil(groups_x) as u32);
            let timed = self.time(2, |pass, i| {
                pass.set_pipeline(&pipeline);
                pass.set_bind_group(0, &groups_of[i], &[]);
                pass.dispatch_workgroups(grid.0, grid.1, 1);
                Ok(())
            })?;
            lines.push(Line::of_copy(elements, PEER, timed, &self.origin));
        }
        Ok(lines)
    }

    /// Median time of `record(pass, i)`, i rotating below `count`.
    fn time(
        &self,
        count: usize,
        mut record: impl FnMut(&mut wgpu::ComputePass<'static>, usize) -> Result<()>,
    ) -> Result<Timed> {
        // A GPU that was idle while the host made data has lowered its clocks.
        let start = Instant::now();
        while start.elapsed() < WARM_UP && self.has_hardware {
            self.pass(8 * count, count, &mut record)?;
        }
        self.pass(count, count, &mut record)?;
        let estimate = self.pass(count, count, &mut record)?.0 / count as f64;
        let calls = count * ((BURST_US / (estimate.max(1.0) * count as f64)).ceil() as usize).max(1);
        let repeats = if self.has_hardware { REPEATS } else { 3 };
        let (mut times, mut host) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let (us, host_us) = self.pass(calls, count, &mut record)?;
            times.push(us / calls as f64);
            host.push(host_us / calls as f64);
        }
        Ok(Timed { us: median(&mut times), host_us: median(&mut host), timing: "timestamp" })
    }

    /// Time between the timestamps of one pass of `calls` calls, and host time of recording it, in microseconds.
    fn pass(
        &self,
        calls: usize,
        count: usize,
        record: &mut impl FnMut(&mut wgpu::ComputePass<'static>, usize) -> Result<()>,
    ) -> Result<(f64, f64)> {
        let mut encoder = self.raw.create_command_encoder(&Default::default());
        let start = Instant::now();
        {
            let descriptor = wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: &self.timestamps,
                    beginning_of_pass_write_index: Some(0),
                    end_of_pass_write_index: Some(1),
                }),
            };
            let mut pass = encoder.begin_compute_pass(&descriptor).forget_lifetime();
            (0..calls).try_for_each(|i| record(&mut pass, i % count))?;
        }
        let host_us = start.elapsed().as_secs_f64() * 1e6;
        encoder.resolve_query_set(&self.timestamps, 0..2, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, 16);
        self.queue.submit([encoder.finish()]);
        self.staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.raw.poll(wgpu::PollType::wait_indefinitely())?;
        let ticks: [u64; 2] = {
            let view = self.staging.get_mapped_range(..).map_err(|e| anyhow!("{e}"))?;
            bytemuck::pod_read_unaligned(&view)
        };
        self.staging.unmap();
        let ns = ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(self.queue.get_timestamp_period());
        Ok((ns / 1e3, host_us))
    }
}
