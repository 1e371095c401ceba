//! The functions of the CUDA driver that this repository calls. Work is done when a call returns, streams have no order to keep.
//!
//! Status codes are those of `CUresult`. Pointers are those that the driver's documentation asks for; each function checks no more than a
//! caller could get wrong without breaking that contract.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::slice;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::runtime::Recorded;
use crate::tensor_map::{MAP_BYTES, MOST_RANK, Part, Tensor, TensorMap};

/// As an H200 has it.
pub(crate) const CAPABILITY: u32 = 90;
pub(crate) const MULTIPROCESSORS: u32 = 132;
pub(crate) const SHARED_PER_BLOCK: u32 = 227 << 10;
pub(crate) const SHARED_PER_MULTIPROCESSOR: u32 = 228 << 10;
const L2_BYTES: c_int = 50 << 20;
const MEMORY_BYTES: usize = 4 << 30;
const VERSION: c_int = 13000;
const NAME: &[u8] = b"emulated H200\0";
/// Allocations start at multiples of it, as the driver's do.
const ALIGN: usize = 512;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const INVALID_HANDLE: c_int = 400;

type Handle = *mut c_void;

/// The one context.
const CONTEXT: usize = 0x10;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
struct State {
    /// Lengths of allocations by their start.
    allocations: BTreeMap<u64, u64>,
    snapshot: Option<Arc<Vec<(u64, u64)>>>,
    allocated: usize,
    streams: HashMap<usize, Option<Vec<Recorded>>>,
    graphs: HashMap<usize, Vec<Recorded>>,
    events: HashMap<usize, Option<Instant>>,
    handles: usize,
}

impl State {
    fn handle(&mut self) -> usize {
        self.handles += 1;
        0x1000 + 16 * self.handles
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Start and end of each allocation, ascending.
pub(crate) fn allocations() -> Arc<Vec<(u64, u64)>> {
    let mut state = state();
    if let Some(snapshot) = &state.snapshot {
        return snapshot.clone();
    }
    let ranges = Arc::new(state.allocations.iter().map(|(&start, &bytes)| (start, start + bytes)).collect::<Vec<_>>());
    state.snapshot = Some(ranges.clone());
    ranges
}

/// Places a table of a module in memory of the device, where it stays; returns its address.
pub(crate) fn place(table: &[u8]) -> u64 {
    // Words keep the alignment that tables have.
    let mut words = vec![0u128; table.len().div_ceil(16)];
    let address = words.as_mut_ptr() as u64;
    for (word, bytes) in words.iter_mut().zip(table.chunks(16)) {
        let mut held = [0; 16];
        held[..bytes.len()].copy_from_slice(bytes);
        *word = u128::from_ne_bytes(held);
    }
    std::mem::forget(words);
    let mut state = state();
    state.allocations.insert(address, table.len() as u64);
    state.snapshot = None;
    address
}

/// Whether warps and blocks run in reversed order.
pub(crate) fn is_reversed() -> bool {
    static REVERSED: LazyLock<bool> = LazyLock::new(|| env::var_os("BOPS_EMULATOR_REVERSED").is_some_and(|v| v == "1"));
    *REVERSED
}

/// Adds a launch to the graph of a stream that captures; gives it back where it does not.
pub(crate) fn capture(stream: usize, launch: Recorded) -> Option<Recorded> {
    match state().streams.get_mut(&stream) {
        Some(Some(graph)) => {
            graph.push(launch);
            None
        }
        _ => Some(launch),
    }
}

/// Writes a result through a pointer of the caller.
macro_rules! answer {
    ($to:expr, $value:expr) => {{
        let to = $to;
        if to.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: the pointer is the caller's, valid by the contract of the driver's function, and not null.
        unsafe { to.write($value) };
    }};
}

macro_rules! functions {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $ty:ty),*) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $ty),*) -> c_int $body
        )*
    };
}

functions! {
    fn cuInit(_flags: c_uint) { SUCCESS }

    fn cuDriverGetVersion(version: *mut c_int) {
        answer!(version, VERSION);
        SUCCESS
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        answer!(count, 1);
        SUCCESS
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if ordinal != 0 {
            return INVALID_DEVICE;
        }
        answer!(device, 0);
        SUCCESS
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) {
        if name.is_null() || (len as usize) < NAME.len() {
            return INVALID_VALUE;
        }
        // SAFETY: the caller's buffer has `len` bytes, which are enough.
        unsafe { ptr::copy_nonoverlapping(NAME.as_ptr().cast(), name, NAME.len()) };
        SUCCESS
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) {
        answer!(bytes, MEMORY_BYTES);
        SUCCESS
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        let number = match attribute {
            // Threads of a block and of its dimensions; blocks of a grid's dimensions.
            1..=3 => 1024,
            4 => 64,
            5 => c_int::MAX,
            6 | 7 => 0xffff,
            8 => 48 << 10,
            10 => 32,
            // Registers of a block and of a multiprocessor.
            12 | 82 => 65536,
            16 => MULTIPROCESSORS as c_int,
            38 => L2_BYTES,
            39 => 2048,
            75 => (CAPABILITY / 10) as c_int,
            76 => (CAPABILITY % 10) as c_int,
            81 => SHARED_PER_MULTIPROCESSOR as c_int,
            97 => SHARED_PER_BLOCK as c_int,
            // Concurrent kernels, unified addresses, cooperative launches, memory pools, tensor maps.
            31 | 41 | 95 | 115 | 127 => 1,
            _ => 0,
        };
        answer!(value, number);
        SUCCESS
    }

    fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) {
        answer!(context, CONTEXT);
        SUCCESS
    }

    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) { SUCCESS }

    fn cuCtxGetCurrent(context: *mut usize) {
        answer!(context, CURRENT.get());
        SUCCESS
    }

    fn cuCtxSetCurrent(context: usize) {
        if context != 0 && context != CONTEXT {
            return INVALID_CONTEXT;
        }
        CURRENT.set(context);
        SUCCESS
    }

    fn cuCtxGetDevice(device: *mut c_int) {
        if CURRENT.get() == 0 {
            return INVALID_CONTEXT;
        }
        answer!(device, 0);
        SUCCESS
    }

    fn cuCtxSynchronize() { SUCCESS }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        let Some(layout) = Layout::from_size_align(bytes, ALIGN).ok().filter(|layout| layout.size() > 0) else {
            return INVALID_VALUE;
        };
        let mut state = state();
        if state.allocated.saturating_add(bytes) > MEMORY_BYTES {
            return OUT_OF_MEMORY;
        }
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return OUT_OF_MEMORY;
        }
        state.allocated += bytes;
        state.allocations.insert(memory as u64, bytes as u64);
        state.snapshot = None;
        answer!(address, memory as u64);
        SUCCESS
    }

    fn cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: Handle) { cuMemAlloc_v2(address, bytes) }

    fn cuMemFree_v2(address: u64) {
        let mut state = state();
        let Some(bytes) = state.allocations.remove(&address) else { return INVALID_VALUE };
        state.allocated -= bytes as usize;
        state.snapshot = None;
        let Ok(layout) = Layout::from_size_align(bytes as usize, ALIGN) else { return INVALID_VALUE };
        // SAFETY: allocated by `cuMemAlloc_v2` with this layout, and known there until now.
        unsafe { dealloc(address as *mut u8, layout) };
        SUCCESS
    }

    fn cuMemFreeAsync(address: u64, _stream: Handle) { cuMemFree_v2(address) }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let allocated = state().allocated;
        answer!(free, MEMORY_BYTES - allocated);
        answer!(total, MEMORY_BYTES);
        SUCCESS
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        if !is_allocated(to, bytes) {
            return INVALID_VALUE;
        }
        // SAFETY: the range is allocated; the caller's pointer has `bytes` bytes.
        unsafe { ptr::copy(from.cast::<u8>(), to as *mut u8, bytes) };
        SUCCESS
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, _stream: Handle) {
        cuMemcpyHtoD_v2(to, from, bytes)
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        if !is_allocated(from, bytes) {
            return INVALID_VALUE;
        }
        // SAFETY: as in `cuMemcpyHtoD_v2`.
        unsafe { ptr::copy(from as *const u8, to.cast::<u8>(), bytes) };
        SUCCESS
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, _stream: Handle) {
        cuMemcpyDtoH_v2(to, from, bytes)
    }

    fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, _stream: Handle) { cuMemsetD8_v2(to, value, bytes) }

    fn cuMemsetD8_v2(to: u64, value: u8, bytes: usize) {
        if !is_allocated(to, bytes) {
            return INVALID_VALUE;
        }
        // SAFETY: the range is allocated.
        unsafe { ptr::write_bytes(to as *mut u8, value, bytes) };
        SUCCESS
    }

    fn cuStreamCreate(stream: *mut usize, _flags: c_uint) {
        let mut state = state();
        let handle = state.handle();
        state.streams.insert(handle, None);
        answer!(stream, handle);
        SUCCESS
    }

    fn cuStreamDestroy_v2(stream: usize) {
        if state().streams.remove(&stream).is_some() { SUCCESS } else { INVALID_HANDLE }
    }

    fn cuStreamGetCtx(stream: usize, context: *mut usize) {
        // The default streams have no entry.
        if stream > 2 && !state().streams.contains_key(&stream) {
            return INVALID_HANDLE;
        }
        answer!(context, CONTEXT);
        SUCCESS
    }

    fn cuStreamSynchronize(_stream: usize) { SUCCESS }

    fn cuStreamWaitEvent(_stream: usize, _event: usize, _flags: c_uint) { SUCCESS }

    fn cuStreamIsCapturing(stream: usize, status: *mut c_int) {
        let is_capturing = state().streams.get(&stream).is_some_and(Option::is_some);
        answer!(status, c_int::from(is_capturing));
        SUCCESS
    }

    fn cuStreamBeginCapture_v2(stream: usize, _mode: c_int) {
        match state().streams.get_mut(&stream) {
            Some(graph @ None) => {
                *graph = Some(Vec::new());
                SUCCESS
            }
            _ => INVALID_HANDLE,
        }
    }

    fn cuStreamEndCapture(stream: usize, graph: *mut usize) {
        let mut state = state();
        let Some(launches) = state.streams.get_mut(&stream).and_then(Option::take) else { return INVALID_HANDLE };
        let handle = state.handle();
        state.graphs.insert(handle, launches);
        answer!(graph, handle);
        SUCCESS
    }

    fn cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, _flags: u64) {
        let mut state = state();
        let Some(launches) = state.graphs.get(&graph).cloned() else { return INVALID_HANDLE };
        let handle = state.handle();
        state.graphs.insert(handle, launches);
        answer!(exec, handle);
        SUCCESS
    }

    fn cuGraphLaunch(exec: usize, _stream: usize) {
        let Some(launches) = state().graphs.get(&exec).cloned() else { return INVALID_HANDLE };
        launches.iter().map(Recorded::run).find(|&status| status != SUCCESS).unwrap_or(SUCCESS)
    }

    fn cuGraphDestroy(graph: usize) {
        if state().graphs.remove(&graph).is_some() { SUCCESS } else { INVALID_HANDLE }
    }

    fn cuGraphExecDestroy(exec: usize) { cuGraphDestroy(exec) }

    /// All nodes are kernels.
    fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) {
        let Some(launches) = state().graphs.get(&graph).map(Vec::len) else { return INVALID_HANDLE };
        if !nodes.is_null() {
            for node in 0..launches {
                // SAFETY: the caller's array has room for as many nodes as it was told.
                unsafe { nodes.add(node).write(node + 1) };
            }
        }
        answer!(count, launches);
        SUCCESS
    }

    fn cuGraphNodeGetType(_node: usize, ty: *mut c_int) {
        answer!(ty, 0);
        SUCCESS
    }

    fn cuEventCreate(event: *mut usize, _flags: c_uint) {
        let mut state = state();
        let handle = state.handle();
        state.events.insert(handle, None);
        answer!(event, handle);
        SUCCESS
    }

    fn cuEventRecord(event: usize, _stream: usize) {
        match state().events.get_mut(&event) {
            Some(time) => {
                *time = Some(Instant::now());
                SUCCESS
            }
            None => INVALID_HANDLE,
        }
    }

    fn cuEventSynchronize(_event: usize) { SUCCESS }

    fn cuEventQuery(_event: usize) { SUCCESS }

    fn cuEventElapsedTime_v2(ms: *mut f32, start: usize, end: usize) {
        let state = state();
        let time = |event: usize| state.events.get(&event).copied().flatten();
        let (Some(start), Some(end)) = (time(start), time(end)) else { return INVALID_HANDLE };
        answer!(ms, end.saturating_duration_since(start).as_secs_f32() * 1e3);
        SUCCESS
    }

    fn cuEventElapsedTime(ms: *mut f32, start: usize, end: usize) { cuEventElapsedTime_v2(ms, start, end) }

    fn cuEventDestroy_v2(event: usize) {
        if state().events.remove(&event).is_some() { SUCCESS } else { INVALID_HANDLE }
    }

    fn cuTensorMapEncodeTiled(
        map: *mut c_void,
        dtype: c_int,
        rank: c_uint,
        base: u64,
        extents: *const u64,
        strides: *const u64,
        part: *const c_uint,
        steps: *const c_uint,
        interleave: c_int,
        swizzle: c_int,
        _promotion: c_int,
        fill: c_int
    ) {
        let Some(tensor) = tensor(dtype, rank, base, [extents, strides], steps, [interleave, swizzle, fill]) else {
            return INVALID_VALUE;
        };
        // SAFETY: the caller's array has an extent for each of `rank` indices.
        let part = unsafe { slice::from_raw_parts(part, tensor.extents.len()) };
        encode(map, TensorMap::new(&tensor, &Part::Box(part)))
    }

    fn cuTensorMapEncodeIm2col(
        map: *mut c_void,
        dtype: c_int,
        rank: c_uint,
        base: u64,
        extents: *const u64,
        strides: *const u64,
        lower: *const c_int,
        upper: *const c_int,
        channels: c_uint,
        positions: c_uint,
        steps: *const c_uint,
        interleave: c_int,
        swizzle: c_int,
        _promotion: c_int,
        fill: c_int
    ) {
        let Some(tensor) = tensor(dtype, rank, base, [extents, strides], steps, [interleave, swizzle, fill]) else {
            return INVALID_VALUE;
        };
        let axes = tensor.extents.len().saturating_sub(2);
        // SAFETY: the caller's arrays have a corner for each of the indices between the first and the last.
        let [lower, upper] = [lower, upper].map(|corners| unsafe { slice::from_raw_parts(corners, axes) });
        encode(map, TensorMap::new(&tensor, &Part::Windows { lower, upper, channels, positions }))
    }

    fn cuGetErrorName(_code: c_int, text: *mut *const c_char) {
        answer!(text, c"an error of the emulated driver".as_ptr());
        SUCCESS
    }

    fn cuGetErrorString(_code: c_int, text: *mut *const c_char) {
        answer!(text, c"an error of the emulated driver".as_ptr());
        SUCCESS
    }
}

/// What the caller says of a tensor; `None` of a rank that no map has.
fn tensor<'t>(
    dtype: c_int,
    rank: c_uint,
    base: u64,
    [extents, strides]: [*const u64; 2],
    steps: *const c_uint,
    [interleave, swizzle, fill]: [c_int; 3],
) -> Option<Tensor<'t>> {
    let rank = Some(rank as usize).filter(|rank| (1..=MOST_RANK).contains(rank))?;
    // SAFETY: the caller's arrays have an extent and a step for each of `rank` indices, and a stride for all but the first.
    let (extents, strides, steps) = unsafe {
        (
            slice::from_raw_parts(extents, rank),
            slice::from_raw_parts(strides, rank - 1),
            slice::from_raw_parts(steps, rank),
        )
    };
    Some(Tensor { dtype, base, extents, strides, steps, interleave, swizzle, fill })
}

/// Writes a map to the bytes of a `CUtensorMap`.
fn encode(to: *mut c_void, map: Option<TensorMap>) -> c_int {
    let Some(map) = map.filter(|_| !to.is_null()) else { return INVALID_VALUE };
    let bytes = to.cast::<[u8; MAP_BYTES]>();
    // SAFETY: the caller's map has as many bytes, which are enough for this one, at a multiple of 64.
    unsafe {
        bytes.write([0; MAP_BYTES]);
        to.cast::<TensorMap>().write(map);
    }
    SUCCESS
}

fn is_allocated(address: u64, bytes: usize) -> bool {
    let state = state();
    let before = state.allocations.range(..=address).next_back();
    before.is_some_and(|(&start, &len)| address - start + bytes as u64 <= len)
}
