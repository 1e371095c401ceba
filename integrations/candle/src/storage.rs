//! Runs of plans on candle's memory: inputs are borrowed where they lie, outputs are new storages.

use std::sync::LazyLock;

use baracuda_ops::{Access, AnyDescriptor, AnyPlan, DType, Device, PlanCache, PlanOptions, Slot, TensorDesc};
#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, Error, Layout, Result, Shape, Storage};

use crate::error::{dtype, refused};

/// `$use` of the elements of a storage, where they have one of the types that candle and baracuda-ops share, those of [`dtype`]; else an error.
macro_rules! elements_of {
    ($op:ident, $slot:ident, $Storage:ident, $storage:expr, $elements:ident => $use:expr) => {
        match $storage {
            $Storage::F64($elements) => Ok($use),
            $Storage::F32($elements) => Ok($use),
            $Storage::F16($elements) => Ok($use),
            $Storage::BF16($elements) => Ok($use),
            $Storage::I64($elements) => Ok($use),
            $Storage::I32($elements) => Ok($use),
            $Storage::U32($elements) => Ok($use),
            $Storage::U8($elements) => Ok($use),
            _ => Err(mismatch($op, $slot, "another type")),
        }
    };
}

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

/// Plans of all devices, by device and descriptor.
static PLANS: LazyLock<PlanCache> = LazyLock::new(|| PlanCache::with_capacity(1024));

/// The plans that the functions of this crate have made, at most 1024: to look at what the cache has done, or to drop them.
pub fn plans() -> &'static PlanCache {
    &PLANS
}

/// A storage that an op reads, as candle passes it.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Cpu(&'a CpuStorage),
    #[cfg(feature = "cuda")]
    Cuda(&'a CudaStorage),
}

impl<'a> Source<'a> {
    /// # Errors
    /// The storage is of a device that this crate does not run on.
    pub(crate) fn of(op: &'static str, storage: &'a Storage) -> Result<Self> {
        match storage {
            Storage::Cpu(storage) => Ok(Self::Cpu(storage)),
            #[cfg(feature = "cuda")]
            Storage::Cuda(storage) => Ok(Self::Cuda(storage)),
            other => Err(elsewhere(op, &other.device())),
        }
    }
}

/// The device of baracuda-ops that stands for one of candle's.
///
/// # Errors
/// This crate does not run there, or has no kernels for the GPU.
pub(crate) fn device(op: &'static str, device: &candle_core::Device) -> Result<Device> {
    match device {
        candle_core::Device::Cpu => Ok(cpu::device()),
        #[cfg(feature = "cuda")]
        candle_core::Device::Cuda(device) => cuda::device(op, device),
        other => Err(elsewhere(op, other)),
    }
}

fn elsewhere(op: &'static str, device: &candle_core::Device) -> Error {
    let known = if cfg!(feature = "cuda") { "CPU and CUDA devices" } else { "CPU device" };
    Error::msg(format!("baracuda-candle {op}: runs on candle's {known}, got {:?}", device.location())).bt()
}

/// A storage with the place of the first element.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) storage: Source<'a>,
    pub(crate) offset: usize,
}

/// How a tensor of candle lies, for a plan.
///
/// # Errors
/// The type is none of baracuda-ops, or there are more than 8 extents.
pub(crate) fn describe(op: &'static str, of: candle_core::DType, layout: &Layout) -> Result<TensorDesc> {
    let [dims, strides] =
        [layout.dims(), layout.stride()].map(|list| list.iter().map(|&n| n as u64).collect::<Vec<_>>());
    let of = dtype(op, of)?;
    let desc = TensorDesc::strided(of, &dims, &strides);
    // Plans promise alignment by the place in the storage, which begins at a multiple of what a type needs on the host, of 256 bytes on a GPU.
    let offset = layout.start_offset() as u64 * of.size_bytes();
    desc.and_then(|desc| desc.for_offset(offset)).map_err(refused(op))
}

/// The plan of a descriptor, from the cache if it has been made.
///
/// # Errors
/// What baracuda-ops refuses.
pub(crate) fn plan(op: &'static str, descriptor: &AnyDescriptor, device: &Device) -> Result<AnyPlan> {
    descriptor.cached_plan(&PLANS, device, &PlanOptions::default()).map_err(refused(op))
}

/// Runs an op on the device of its inputs: `inputs` in the order of the descriptor's slots, none where the slot is an output. The outputs are new storages, in
/// the order of their slots, each of as many elements as the slot spans. On CUDA the run is enqueued on candle's stream, and the host does not wait for it.
///
/// # Errors
/// What baracuda-ops refuses, inputs of several devices, or a storage that ends before the operand does.
pub(crate) fn run(op: &'static str, descriptor: &AnyDescriptor, inputs: &[Option<Input<'_>>]) -> Result<Vec<Storage>> {
    match inputs.iter().flatten().next().map(|input| input.storage) {
        Some(Source::Cpu(_)) => cpu::run(op, descriptor, inputs),
        #[cfg(feature = "cuda")]
        Some(Source::Cuda(storage)) => cuda::run(op, descriptor, &storage.device, inputs),
        None => Err(Error::msg(format!("baracuda-candle {op}: has no inputs")).bt()),
    }
}

fn is_written(slot: &&Slot) -> bool {
    slot.access != Access::In
}

/// How many elements take so many bytes.
pub(crate) fn elements(bytes: u64, dtype: DType) -> usize {
    // What lies in memory has fewer than 2^63 bytes, which a usize of 64 bits holds; candle's shapes are of usize in any case.
    usize::try_from(bytes.div_ceil(dtype.size_bytes())).unwrap_or(usize::MAX)
}

/// How many elements there are from a slot's first to its last.
fn span(slot: &Slot) -> usize {
    elements(slot.span_bytes, slot.desc.dtype())
}

fn mismatch(op: &'static str, slot: &Slot, got: &str) -> Error {
    let (name, expected) = (slot.name, slot.desc.dtype());
    Error::msg(format!("baracuda-candle {op}: operand {name} is {expected} of the device of the first, got {got}")).bt()
}

fn too_short(op: &'static str, slot: &Slot, offset: usize, held: usize) -> Error {
    let (name, end) = (slot.name, offset.saturating_add(span(slot)));
    Error::msg(format!("baracuda-candle {op}: operand {name} ends at element {end} of a storage of {held}")).bt()
}

/// A result as the storage of the CPU that candle asks for.
pub(crate) fn on_cpu((storage, shape): (Storage, Shape)) -> Result<(CpuStorage, Shape)> {
    match storage {
        Storage::Cpu(storage) => Ok((storage, shape)),
        _ => Err(Error::msg("a run on the CPU writes to its memory").bt()),
    }
}

/// A result as the storage of CUDA that candle asks for.
#[cfg(feature = "cuda")]
pub(crate) fn on_cuda((storage, shape): (Storage, Shape)) -> Result<(CudaStorage, Shape)> {
    match storage {
        Storage::Cuda(storage) => Ok((storage, shape)),
        _ => Err(Error::msg("a run on CUDA writes to its memory").bt()),
    }
}
