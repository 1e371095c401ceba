//! Devices and their memory.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::queue::{Queue, Recorder};
use super::recent::Recent;
use super::text::{Numbers, Source};
use crate::backend::cpu::threads;
use crate::error::{Error, Result};
use crate::narrow::{to_usize, word};
use crate::slots::MAX_SLOTS;

/// Storage buffers that one dispatch may bind: the operands of an op and its workspace.
pub(super) const MAX_BINDINGS: usize = MAX_SLOTS;
/// Threads that every device offers a workgroup, as Vulkan promises, unless it was requested without compute shaders.
pub(super) const LEAST_THREADS: u32 = 128;
/// Bytes that buffers consist of.
const WORD_BYTES: u64 = 4;
/// Bytes of workgroup memory that every device has, as Vulkan and WebGPU promise.
pub(crate) const LEAST_WORKGROUP_BYTES: u64 = 16384;
/// The unit of large uploads. It bounds the memory that staging them takes; smaller units would wait for the device more often.
const UPLOAD_BYTES: usize = 64 << 20;
/// Sources whose pipelines a device holds: many times those of a model.
const KEPT_SOURCES: usize = 1024;
/// The same where a driver compiles for the CPU: Mesa's takes 7 MB of host memory for each.
const KEPT_SOURCES_OF_SOFTWARE: usize = 256;

/// What the choice of a kernel through wgpu may depend on: plain numbers.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Props {
    /// The adapter's name.
    pub adapter: String,
    /// Vulkan, Metal or Dx12.
    pub api: String,
    /// The driver and its version.
    pub driver: String,
    /// Whether the adapter computes on the host's processor.
    pub is_cpu: bool,
    /// The narrowest and the widest subgroup, if the device has subgroup operations.
    pub subgroup_sizes: Option<(u32, u32)>,
    /// Bytes of immediates, 0 if the device has none.
    pub immediate_bytes: u32,
    /// Most bytes of one binding.
    pub max_binding_bytes: u64,
    /// Most bytes of one buffer.
    pub max_buffer_bytes: u64,
    /// Most storage buffers that one dispatch binds.
    pub max_storage_buffers: u32,
    /// Most bytes of workgroup memory.
    pub max_workgroup_bytes: u32,
    /// Most threads of a workgroup.
    pub max_threads: u32,
    /// Most workgroups along one dimension.
    pub max_groups: u32,
    /// Alignment of bindings in bytes.
    pub binding_align: u32,
}

impl Props {
    fn new(device: &::wgpu::Device) -> Self {
        let (info, limits, features) = (device.adapter_info(), device.limits(), device.features());
        let subgroups = features.contains(::wgpu::Features::SUBGROUP);
        let immediates = features.contains(::wgpu::Features::IMMEDIATES);
        Self {
            adapter: info.name,
            api: info.backend.to_string(),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
            is_cpu: info.device_type == ::wgpu::DeviceType::Cpu,
            subgroup_sizes: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
            immediate_bytes: if immediates { limits.max_immediate_size } else { 0 },
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            max_buffer_bytes: limits.max_buffer_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_threads: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
            max_groups: limits.max_compute_workgroups_per_dimension,
            binding_align: limits.min_storage_buffer_offset_alignment,
        }
    }

    /// Alignment of ranges of the workspace in bytes: such a range can start a binding.
    pub(crate) fn workspace_align(&self) -> u64 {
        u64::from(self.binding_align.max(16))
    }

    /// Whether offsets that are not a multiple of the alignment reach kernels as immediates. If they do, any run can pass them.
    pub(crate) fn has_immediates(&self) -> bool {
        self.immediate_bytes as usize >= 4 * MAX_BINDINGS
    }
}

/// A handle. Clones of it are equal to it, and no other handle is.
#[derive(Clone)]
pub(crate) struct Device(Arc<Inner>);

pub(crate) struct Inner {
    pub(super) device: ::wgpu::Device,
    pub(super) queue: ::wgpu::Queue,
    props: Props,
    /// Zeros that stand for the offsets of operands that start where their bindings do.
    pub(super) no_offsets: ::wgpu::Buffer,
    /// Of the sources that plans asked for last, with inputs only read and with all operands bound for reading and writing. Plans hold
    /// what they run.
    pipelines: Mutex<Recent<Source, [Pipeline; 2]>>,
    /// Uniforms by their contents, as long as a plan has them.
    params: Mutex<HashMap<Vec<u8>, Weak<::wgpu::Buffer>>>,
    recorder: Mutex<Recorder>,
    lost: Arc<Lost>,
}

/// What is known of the loss of a device. An owned device knows what the driver said.
#[derive(Default)]
struct Lost {
    is_lost: AtomicBool,
    words: OnceLock<String>,
}

/// A pipeline with the layout of its bindings.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) pipeline: ::wgpu::ComputePipeline,
    pub(super) layout: ::wgpu::BindGroupLayout,
    pub(super) numbers: Numbers,
}

impl Deref for Device {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// What the owned layer looks for.
const BACKENDS: ::wgpu::Backends =
    ::wgpu::Backends::VULKAN.union(::wgpu::Backends::METAL).union(::wgpu::Backends::DX12);

/// All owned devices come from one instance, so that a buffer of another of them is recognised.
static INSTANCE: LazyLock<::wgpu::Instance> = LazyLock::new(|| {
    let mut descriptor = ::wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = BACKENDS;
    #[cfg(target_os = "linux")]
    if let Some(instance) = without_wayland(&descriptor) {
        return instance;
    }
    ::wgpu::Instance::new(descriptor)
});

/// An instance that asks no Wayland server which GPU draws: Mesa's layer of Vulkan does so where an instance may draw there, and prints
/// an error where no desktop session has set XDG_RUNTIME_DIR. On Linux there is no backend but Vulkan.
#[cfg(target_os = "linux")]
fn without_wayland(descriptor: &::wgpu::InstanceDescriptor) -> Option<::wgpu::Instance> {
    use ::wgpu::hal::{self, api::Vulkan, vulkan};
    let wanted = hal::InstanceDescriptor {
        name: "baracuda-ops",
        flags: descriptor.flags,
        memory_budget_thresholds: descriptor.memory_budget_thresholds,
        backend_options: descriptor.backend_options.clone(),
        telemetry: None,
        display: None,
    };
    let headless = |made: vulkan::CreateInstanceCallbackArgs<'_, '_, '_>| {
        made.extensions.retain(|name| *name != c"VK_KHR_wayland_surface");
    };
    // SAFETY: all that is taken away from the features of the instance is the function that makes surfaces of Wayland windows. wgpu calls
    // it in `create_surface` alone, and nobody makes a surface of this instance, which is private to this module. Nothing is added.
    let instance = unsafe { vulkan::Instance::init_with_callback(&wanted, Some(Box::new(headless))) }.ok()?;
    // SAFETY: the instance was made on the line before, and is wgpu's from here on.
    Some(unsafe { ::wgpu::Instance::from_hal::<Vulkan>(instance) })
}

fn adapters() -> Vec<::wgpu::Adapter> {
    let mut adapters = pollster::block_on(INSTANCE.enumerate_adapters(BACKENDS));
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        ::wgpu::DeviceType::DiscreteGpu => 0,
        ::wgpu::DeviceType::IntegratedGpu => 1,
        ::wgpu::DeviceType::VirtualGpu | ::wgpu::DeviceType::Other => 2,
        ::wgpu::DeviceType::Cpu => 3,
    });
    adapters
}

impl Device {
    pub(crate) fn best() -> Result<Self> {
        let mut reason =
            "no adapter was found; install a Vulkan driver (on Linux also libvulkan1, and for a machine without a \
                          GPU mesa-vulkan-drivers)"
                .to_string();
        for adapter in adapters() {
            match Self::owned(&adapter) {
                Ok(device) => return Ok(device),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(Error::NoDevice { backend: "wgpu", reason })
    }

    pub(crate) fn all() -> Vec<Self> {
        adapters().iter().filter_map(|adapter| Self::owned(adapter).ok()).collect()
    }

    fn owned(adapter: &::wgpu::Adapter) -> Result<Self> {
        let wanted = ::wgpu::Features::SUBGROUP
            | ::wgpu::Features::IMMEDIATES
            | ::wgpu::Features::TIMESTAMP_QUERY
            | ::wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
            | ::wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES;
        let descriptor = ::wgpu::DeviceDescriptor {
            label: Some("baracuda-ops"),
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).map_err(|error| {
            Error::NoDevice { backend: "wgpu", reason: format!("{}: {error}", adapter.get_info().name) }
        })?;
        let lost = Arc::new(Lost::default());
        let record = lost.clone();
        device.set_device_lost_callback(move |reason, words| {
            // wgpu reports that the last handle was dropped as a loss, too; at that time no handle is left that could ask.
            let _ = record.words.set(format!("{reason:?}: {words}"));
            record.is_lost.store(true, Ordering::Release);
        });
        // Every call runs in an error scope; the default handler would end the process.
        device.on_uncaptured_error(Arc::new(|error| {
            tracing::error!(target: "baracuda_ops", %error, "wgpu error outside of any scope");
        }));
        Self::new(device, queue, lost)
    }

    pub(crate) fn borrowed(device: &::wgpu::Device, queue: &::wgpu::Queue) -> Result<Self> {
        // The callbacks are the caller's.
        let lost = Arc::new(Lost::default());
        let name = Props::new(device).to_string();
        check_alive(device, &lost, &name)?;
        if !is_own_queue(device, queue) {
            let got = "another wgpu device".into();
            return Err(Error::WrongDevice { op: "device", operand: "queue", expected: name, got });
        }
        Self::new(device.clone(), queue.clone(), lost)
    }

    pub(crate) fn handles(&self) -> (&::wgpu::Device, &::wgpu::Queue) {
        (&self.device, &self.queue)
    }

    fn new(device: ::wgpu::Device, queue: ::wgpu::Queue, lost: Arc<Lost>) -> Result<Self> {
        let props = Props::new(&device);
        let name = props.to_string();
        if props.max_threads < LEAST_THREADS || props.max_groups == 0 {
            let reason = format!(
                "{name} was requested with at most {} workgroups of {} threads, too few for compute shaders: request the limits of the \
                 adapter",
                props.max_groups, props.max_threads
            );
            return Err(Error::NoDevice { backend: "wgpu", reason });
        }
        let descriptor = ::wgpu::BufferDescriptor {
            label: Some("baracuda-ops offsets"),
            size: 4 * MAX_BINDINGS as u64,
            usage: ::wgpu::BufferUsages::UNIFORM,
            mapped_at_creation: false,
        };
        let no_offsets = guarded(&device, "create_buffer", || device.create_buffer(&descriptor))
            .map_err(|failure| failure.into_error(&device, &lost, &name, descriptor.size))?;
        let kept = if props.is_cpu { KEPT_SOURCES_OF_SOFTWARE } else { KEPT_SOURCES };
        Ok(Self(Arc::new(Inner {
            device,
            queue,
            props,
            no_offsets,
            pipelines: Mutex::new(Recent::with_capacity(kept)),
            params: Mutex::default(),
            recorder: Mutex::default(),
            lost,
        })))
    }

    pub(crate) fn props(&self) -> &Props {
        &self.props
    }

    /// Zeroed storage of `bytes` bytes, rounded up to whole words.
    pub(crate) fn alloc(&self, bytes: u64) -> Result<Memory> {
        let limit_bytes = self.props.max_buffer_bytes / WORD_BYTES * WORD_BYTES;
        let size = bytes.max(WORD_BYTES).checked_next_multiple_of(WORD_BYTES).filter(|&size| size <= limit_bytes);
        let size = size.ok_or_else(|| Error::BufferTooLarge { device: self.to_string(), bytes, limit_bytes })?;
        let usage = ::wgpu::BufferUsages::STORAGE | ::wgpu::BufferUsages::COPY_SRC | ::wgpu::BufferUsages::COPY_DST;
        self.create_buffer("baracuda-ops buffer", size, usage, None).map(Memory)
    }

    pub(super) fn create_buffer(
        &self,
        label: &'static str,
        size: u64,
        usage: ::wgpu::BufferUsages,
        contents: Option<&[u8]>,
    ) -> Result<::wgpu::Buffer> {
        let descriptor =
            ::wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: contents.is_some() };
        let made = guarded(&self.device, "create_buffer", || {
            let buffer = self.device.create_buffer(&descriptor);
            if let Some(contents) = contents {
                buffer.get_mapped_range_mut(..)?.slice(..contents.len()).copy_from_slice(contents);
                buffer.unmap();
            }
            Ok::<_, ::wgpu::MapRangeError>(buffer)
        });
        let made = made.map_err(|failure| failure.into_error(&self.device, &self.lost, &self.to_string(), size))?;
        self.alive()?;
        made.map_err(|error| self.failed("create_buffer", error.to_string()))
    }

    /// Writes `bytes` at `offset`, after everything recorded before; the caller has checked that they fit.
    pub(crate) fn write(&self, memory: &Memory, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut recorder = self.recorder();
        let (start, end) = whole_words(offset, bytes);
        if (start, end) == (offset, offset + bytes.len() as u64) {
            return self.write_words(&mut recorder, memory, offset, bytes);
        }
        // Copies move words: the bytes around stay as they are. The recorder is held all the while, so that another thread that writes
        // the other half of a word does so before or after.
        let mut words = vec![0; to_usize(end - start)];
        let staged = self.stage(&mut recorder, memory, start, end)?;
        self.fetch(staged, 0, &mut words)?;
        words[to_usize(offset - start)..][..bytes.len()].copy_from_slice(bytes);
        self.write_words(&mut recorder, memory, start, &words)
    }

    fn write_words(&self, recorder: &mut Recorder, memory: &Memory, offset: u64, bytes: &[u8]) -> Result<()> {
        recorder.submit(self);
        for (i, part) in bytes.chunks(UPLOAD_BYTES).enumerate() {
            self.guarded("write_buffer", || {
                self.queue.write_buffer(&memory.0, offset + (i * UPLOAD_BYTES) as u64, part);
                self.queue.submit([]);
            })?;
            if bytes.len() > UPLOAD_BYTES {
                self.wait(None)?;
            }
        }
        self.alive()
    }

    /// Reads from `offset` on, after everything recorded before; the caller has checked that the bytes exist.
    pub(crate) fn read(&self, memory: &Memory, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let (start, end) = whole_words(offset, bytes);
        let staged = self.stage(&mut self.recorder(), memory, start, end)?;
        self.fetch(staged, to_usize(offset - start), bytes)
    }

    /// Submits a copy of the words from `start` to `end` to memory that the host can read.
    fn stage(&self, recorder: &mut Recorder, memory: &Memory, start: u64, end: u64) -> Result<Staged> {
        let usage = ::wgpu::BufferUsages::MAP_READ | ::wgpu::BufferUsages::COPY_DST;
        let buffer = self.create_buffer("baracuda-ops download", end - start, usage, None)?;
        recorder.submit(self);
        let submission = self.submit(|encoder| {
            encoder.copy_buffer_to_buffer(&memory.0, start, &buffer, 0, end - start);
        })?;
        Ok(Staged { buffer, submission })
    }

    /// Waits for staged words and reads them, but for the first `skipped` bytes.
    fn fetch(&self, Staged { buffer, submission }: Staged, skipped: usize, bytes: &mut [u8]) -> Result<()> {
        let (tell, told) = mpsc::channel();
        self.guarded("map", || {
            buffer.map_async(::wgpu::MapMode::Read, .., move |result| {
                // Nobody listens any more only if waiting failed.
                let _ = tell.send(result);
            });
        })?;
        self.wait(Some(submission))?;
        // Another thread that waits may be the one that calls back, a little later.
        let result = loop {
            match told.recv_timeout(Duration::from_millis(10)) {
                Ok(result) => break result,
                Err(mpsc::RecvTimeoutError::Timeout) => self.wait(None)?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(self.failed("map", "the device did not answer".into()));
                }
            }
        };
        result.map_err(|error| self.failed("map", error.to_string()))?;
        let view = buffer.get_mapped_range(..).map_err(|error| self.failed("map", error.to_string()))?;
        bytes.copy_from_slice(&view[skipped..][..bytes.len()]);
        Ok(())
    }

    pub(crate) fn queue(&self) -> Queue<'static> {
        Queue::owned(self.clone())
    }

    /// Waits for a submission, or for all.
    pub(super) fn wait(&self, submission: Option<::wgpu::SubmissionIndex>) -> Result<()> {
        let waited = poll(&self.device, submission);
        self.alive()?;
        waited.map_err(|detail| self.failed("poll", detail))
    }

    pub(super) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits what `encode` encodes.
    pub(super) fn submit(&self, encode: impl FnOnce(&mut ::wgpu::CommandEncoder)) -> Result<::wgpu::SubmissionIndex> {
        let descriptor = ::wgpu::CommandEncoderDescriptor { label: Some("baracuda-ops") };
        self.guarded("submit", || {
            let mut encoder = self.device.create_command_encoder(&descriptor);
            encode(&mut encoder);
            self.queue.submit([encoder.finish()])
        })
    }

    /// Runs wgpu calls whose errors are returned.
    pub(super) fn guarded<T>(&self, call: &'static str, calls: impl FnOnce() -> T) -> Result<T> {
        guarded(&self.device, call, calls)
            .map_err(|failure| failure.into_error(&self.device, &self.lost, &self.to_string(), 0))
    }

    /// Fails if the device is gone.
    pub(super) fn alive(&self) -> Result<()> {
        check_alive(&self.device, &self.lost, &self.props)
    }

    fn failed(&self, call: &'static str, detail: String) -> Error {
        self.alive().err().unwrap_or(Error::Backend { call, code: 0, detail })
    }

    /// A uniform with these contents, which nobody writes: plans with equal ones share it.
    pub(super) fn params(&self, contents: &[u8]) -> Result<Arc<::wgpu::Buffer>> {
        let mut params = self.params.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = params.get(contents).and_then(Weak::upgrade) {
            return Ok(buffer);
        }
        let size = (contents.len() as u64).next_multiple_of(16);
        let buffer = self.create_buffer("baracuda-ops params", size, ::wgpu::BufferUsages::UNIFORM, Some(contents))?;
        let buffer = Arc::new(buffer);
        if params.len() == params.capacity() {
            params.retain(|_, buffer| buffer.strong_count() > 0);
        }
        params.insert(contents.to_vec(), Arc::downgrade(&buffer));
        Ok(buffer)
    }

    /// The pipelines of each source, with inputs only read and with all operands bound alike, compiled if they are not known.
    pub(super) fn pipelines(&self, sources: &[Source]) -> Result<Vec<[Pipeline; 2]>> {
        let lock = || self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(sources);
        let unknown: HashSet<&Source> =
            sources.iter().zip(&known).filter(|(_, k)| k.is_none()).map(|(s, _)| s).collect();
        let mut compiled = HashMap::new();
        if !unknown.is_empty() {
            // Drivers take long for each: they compile side by side, while other threads find what is known.
            let forms: Vec<_> = unknown.iter().flat_map(|source| [(source, false), (source, true)]).collect();
            let compile = |i: u64| self.compile(forms[to_usize(i)].0, forms[to_usize(i)].1);
            let pipelines = threads::map(forms.len() as u64, u64::MAX, compile)?;
            compiled.extend(
                unknown.into_iter().zip(pipelines.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()])),
            );
            let left = lock().insert(compiled.iter().map(|(source, pair)| ((*source).clone(), pair.clone())));
            // Outside of the lock: the driver may take its time.
            drop(left);
        }
        let pairs = sources.iter().zip(known).map(|(source, pair)| pair.or_else(|| compiled.get(source).cloned()));
        pairs.collect::<Option<_>>().ok_or_else(|| self.failed("create_compute_pipeline", "a pipeline vanished".into()))
    }

    fn compile(&self, source: &Source, is_shared: bool) -> Result<Pipeline> {
        let numbers = source.numbers(&self.props);
        let text = source.assemble(is_shared, numbers);
        let buffer = |binding: u32, ty, min_bytes| ::wgpu::BindGroupLayoutEntry {
            binding,
            visibility: ::wgpu::ShaderStages::COMPUTE,
            ty: ::wgpu::BindingType::Buffer {
                ty,
                has_dynamic_offset: false,
                min_binding_size: ::wgpu::BufferSize::new(min_bytes),
            },
            count: None,
        };
        let bound: Vec<_> = source.operands.iter().filter(|operand| operand.is_bound()).collect();
        let mut entries = Vec::with_capacity(bound.len() + 2);
        if numbers != Numbers::Immediate {
            entries.push(buffer(0, ::wgpu::BufferBindingType::Uniform, source.params_bytes));
        }
        for (i, operand) in bound.iter().enumerate() {
            let read_only = !is_shared && operand.accessor.ends_with("_in");
            let ty = ::wgpu::BufferBindingType::Storage { read_only };
            entries.push(buffer(1 + word(i as u64), ty, operand.element_bytes()));
        }
        let offsets_bytes = 4 * word(bound.len() as u64);
        if numbers == Numbers::Uniform {
            entries.push(buffer(
                1 + word(bound.len() as u64),
                ::wgpu::BufferBindingType::Uniform,
                offsets_bytes.into(),
            ));
        }
        let immediate_size = match numbers {
            Numbers::Immediate => word(source.params_bytes) + offsets_bytes,
            Numbers::OffsetsImmediate => offsets_bytes,
            Numbers::Uniform => 0,
        };
        const CALL: &str = "create_compute_pipeline";
        let internal = self.device.push_error_scope(::wgpu::ErrorFilter::Internal);
        let pipeline = self.guarded(CALL, || {
            let device = &self.device;
            let layout = device.create_bind_group_layout(&::wgpu::BindGroupLayoutDescriptor {
                label: Some(source.entry),
                entries: &entries,
            });
            let pipeline_layout = device.create_pipeline_layout(&::wgpu::PipelineLayoutDescriptor {
                label: Some(source.entry),
                bind_group_layouts: &[Some(&layout)],
                immediate_size,
            });
            let descriptor = ::wgpu::ShaderModuleDescriptor {
                label: Some(source.entry),
                source: ::wgpu::ShaderSource::Wgsl(text.into()),
            };
            // SAFETY: no shader reaches outside of its bindings or loops for ever: every index is that of an element inside the span
            // of its operand, which the generic check has found inside the memory that is bound; rows and columns past the end are
            // masked; loops run to constants or to numbers from the plan's own uniform; and no divisor is 0.
            let module =
                unsafe { device.create_shader_module_trusted(descriptor, ::wgpu::ShaderRuntimeChecks::unchecked()) };
            let pipeline = device.create_compute_pipeline(&::wgpu::ComputePipelineDescriptor {
                label: Some(source.entry),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(source.entry),
                compilation_options: ::wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            });
            Pipeline { pipeline, layout, numbers }
        });
        match popped(internal) {
            Some(error) => {
                Err(Failure { call: CALL, error }.into_error(&self.device, &self.lost, &self.to_string(), 0))
            }
            None => pipeline,
        }
    }
}

/// A copy of words on its way to the host.
struct Staged {
    buffer: ::wgpu::Buffer,
    submission: ::wgpu::SubmissionIndex,
}

/// From the first to past the last of the words that hold `bytes` at `offset`.
fn whole_words(offset: u64, bytes: &[u8]) -> (u64, u64) {
    (offset & !3, (offset + bytes.len() as u64).next_multiple_of(4))
}

/// An error that a scope caught.
struct Failure {
    call: &'static str,
    error: ::wgpu::Error,
}

/// Makes wgpu calls and returns the first error they raise, which is then not reported anywhere else. Internal errors, which only the
/// compilation of a pipeline raises, are its own to catch.
fn guarded<T>(device: &::wgpu::Device, call: &'static str, calls: impl FnOnce() -> T) -> Result<T, Failure> {
    let memory = device.push_error_scope(::wgpu::ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(::wgpu::ErrorFilter::Validation);
    let result = calls();
    let errors = [popped(validation), popped(memory)];
    match errors.into_iter().flatten().next() {
        Some(error) => Err(Failure { call, error }),
        None => Ok(result),
    }
}

/// The error that a scope caught. Outside of browsers it is there at once.
fn popped(scope: ::wgpu::ErrorScopeGuard) -> Option<::wgpu::Error> {
    let mut popped = pin!(scope.pop());
    match popped.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(error) => error,
        Poll::Pending => pollster::block_on(popped),
    }
}

impl Failure {
    fn into_error(self, device: &::wgpu::Device, lost: &Lost, name: &str, bytes: u64) -> Error {
        if let Err(error) = check_alive(device, lost, &name) {
            return error;
        }
        match self.error {
            ::wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory { device: name.into(), bytes },
            error => Error::Backend { call: self.call, code: 0, detail: error.to_string() },
        }
    }
}

/// Fails if the device is gone. wgpu tells that to one callback alone, which on a borrowed device is the caller's, and to no error scope;
/// but a device that is gone maps no new memory.
fn check_alive(device: &::wgpu::Device, lost: &Lost, name: &dyn fmt::Display) -> Result<()> {
    if !lost.is_lost.load(Ordering::Acquire) {
        let descriptor = ::wgpu::BufferDescriptor {
            label: Some("baracuda-ops probe"),
            size: 4,
            usage: ::wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: true,
        };
        let probe = || device.create_buffer(&descriptor).get_mapped_range_mut(..).is_ok();
        // A device whose errors a scope catches is there.
        if guarded(device, "create_buffer", probe).unwrap_or(true) {
            return Ok(());
        }
        lost.is_lost.store(true, Ordering::Release);
    }
    let detail = lost.words.get().map_or("the driver lost it, or its owner has destroyed it", String::as_str);
    Err(Error::DeviceLost { device: name.to_string(), detail: detail.into() })
}

/// Whether the queue is the device's own. wgpu has no call that says so, and reports what fails in a queue to the handlers of the queue's
/// device, which is not known here. But callbacks of a queue are called by those who poll its device.
fn is_own_queue(device: &::wgpu::Device, queue: &::wgpu::Queue) -> bool {
    // Another thread that polls the device may be the one that calls back. That it is so every time is out of the question.
    const TRIES: usize = 64;
    let here = thread::current().id();
    (0..TRIES).any(|_| {
        let (tell, told) = mpsc::channel();
        queue.on_submitted_work_done(move || {
            // Nobody listens any more to the queue of another device.
            let _ = tell.send(thread::current().id());
        });
        poll(device, None).is_ok() && told.recv_timeout(Duration::from_millis(10)) == Ok(here)
    })
}

/// Waits for a submission, or for all, and returns what wgpu says where it cannot.
fn poll(device: &::wgpu::Device, submission_index: Option<::wgpu::SubmissionIndex>) -> Result<(), String> {
    // Where the driver answers that it has lost the device, wgpu panics, after it has let go of all its locks.
    let polled =
        catch_unwind(AssertUnwindSafe(|| device.poll(::wgpu::PollType::Wait { submission_index, timeout: None })));
    match polled {
        Ok(waited) => waited.map(|_| ()).map_err(|error| error.to_string()),
        Err(_) => Err("the driver failed while it was waited for".into()),
    }
}

impl fmt::Display for Props {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgpu ({}, {})", self.adapter, self.api)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.props.fmt(f)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.props).finish()
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Owned storage.
#[derive(Clone, Debug)]
pub(crate) struct Memory(::wgpu::Buffer);

impl Memory {
    pub(crate) fn buffer(&self) -> &::wgpu::Buffer {
        &self.0
    }
}
