//! What the CUDA runtime does for compiled kernels: it registers them, tells their attributes, and launches them.
//!
//! Status codes are those of `cudaError_t`.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::driver::{self, CAPABILITY, MULTIPROCESSORS, SHARED_PER_BLOCK, SHARED_PER_MULTIPROCESSOR};
use crate::machine::{self, Launch};
use crate::program::{self, Program};
use crate::{image, ptx};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const INVALID_CONFIGURATION: c_int = 9;
const INVALID_DEVICE_FUNCTION: c_int = 98;
const NO_KERNEL_IMAGE_FOR_DEVICE: c_int = 209;
const LAUNCH_FAILURE: c_int = 719;
const COOPERATIVE_LAUNCH_TOO_LARGE: c_int = 720;
/// Shared memory that a kernel gets without asking.
const SHARED_UNASKED: u32 = 48 << 10;
/// Blocks of the largest cluster that a kernel gets without asking.
const CLUSTER_UNASKED: u32 = 8;
const THREADS_PER_MULTIPROCESSOR: u32 = 2048;

#[derive(Default)]
struct Registry {
    images: Vec<Image>,
    functions: HashMap<usize, Function>,
}

struct Image {
    address: usize,
    text: Option<Arc<String>>,
}

struct Function {
    image: usize,
    name: String,
    program: Option<Arc<Program>>,
    dynamic_limit: u32,
    takes_large_clusters: bool,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A launch with its own copy of the parameters, which a graph can keep.
#[derive(Clone)]
pub(crate) struct Recorded {
    program: Arc<Program>,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    dynamic_bytes: u32,
    is_cooperative: bool,
    parameters: Vec<u8>,
}

impl Recorded {
    /// Runs it now.
    pub(crate) fn run(&self) -> c_int {
        // A size and a counter, as cooperative groups expect them; counters start at 0.
        let mut meeting_place = [0u64; 2];
        let place = meeting_place.as_mut_ptr() as u64;
        let mut allocations = driver::allocations().to_vec();
        allocations.push((place, place + size_of_val(&meeting_place) as u64));
        allocations.sort_unstable();
        let launch = Launch {
            program: &self.program,
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_bytes: self.dynamic_bytes,
            is_cooperative: self.is_cooperative,
            parameters: &self.parameters,
            allocations: &allocations,
            meeting_place: if self.is_cooperative { place } else { 0 },
            is_reversed: driver::is_reversed(),
        };
        let ran = machine::run(&launch);
        // Written through its address.
        std::hint::black_box(&mut meeting_place);
        match ran {
            Ok(()) => SUCCESS,
            Err(fault) => {
                eprintln!("emulated device: {fault}");
                LAUNCH_FAILURE
            }
        }
    }
}

/// The program of a function, decoded at its first use; else a status, and why.
fn program(registry: &mut Registry, function: usize) -> Result<Arc<Program>, (c_int, String)> {
    let Registry { images, functions } = registry;
    let invalid = |why: String| (INVALID_DEVICE_FUNCTION, why);
    let function = functions.get_mut(&function).ok_or_else(|| invalid("not a registered kernel".into()))?;
    if let Some(program) = &function.program {
        return Ok(program.clone());
    }
    let image = &mut images[function.image];
    let text = match &image.text {
        Some(text) => text.clone(),
        None => {
            // SAFETY: the address is that of a fat binary in the program's data, registered by code that the compiler made.
            let text = unsafe { image::text(image.address as *const u8, CAPABILITY) };
            let text = Arc::new(text.map_err(|problem| {
                let is_missing = problem == image::Problem::NoPtx;
                let status = if is_missing { NO_KERNEL_IMAGE_FOR_DEVICE } else { INVALID_DEVICE_FUNCTION };
                (status, format!("{}: {problem}", function.name))
            })?);
            image.text = Some(text.clone());
            text
        }
    };
    let entries = ptx::entries(&text);
    let named = |why: &str| invalid(format!("{}: {why}", function.name));
    let entry = entries.get(function.name.as_str()).ok_or_else(|| named("its image does not have it"))?;
    let program = Arc::new(program::decode(&function.name, entry).map_err(|why| named(&why))?);
    function.program = Some(program.clone());
    Ok(program)
}

fn decoded(function: *const c_void) -> Result<Arc<Program>, c_int> {
    program(&mut registry(), function as usize).map_err(|(status, why)| {
        eprintln!("emulated device: {why}");
        status
    })
}

/// Registers a fat binary; the result stands for it.
///
/// # Safety
/// `image` points to a fat binary that stays.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_register_image(image: *const c_void) -> usize {
    let mut registry = registry();
    registry.images.push(Image { address: image as usize, text: None });
    registry.images.len() - 1
}

/// Registers a kernel under the address of its function on the host.
///
/// # Safety
/// `name` is a string that ends with 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_register_function(image: usize, function: *const c_void, name: *const c_char) {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let function_of_image =
        Function { image, name, program: None, dynamic_limit: SHARED_UNASKED, takes_large_clusters: false };
    registry().functions.insert(function as usize, function_of_image);
}

/// Static shared memory, local memory and the most threads of a kernel.
///
/// # Safety
/// `sizes` has room for three numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_attributes(function: *const c_void, sizes: *mut u64) -> c_int {
    match decoded(function) {
        Ok(program) => {
            // SAFETY: the caller's promise.
            let sizes = unsafe { slice::from_raw_parts_mut(sizes, 3) };
            sizes.copy_from_slice(&[program.shared_bytes, program.local_bytes, u64::from(program.max_threads)]);
            SUCCESS
        }
        Err(status) => status,
    }
}

/// Sets the most dynamic shared memory (8), the preferred carve-out (9), or whether clusters of more than 8 blocks are taken (14).
#[unsafe(no_mangle)]
extern "C" fn emulated_set_attribute(function: *const c_void, attribute: c_int, value: c_int) -> c_int {
    let program = match decoded(function) {
        Ok(program) => program,
        Err(status) => return status,
    };
    let mut registry = registry();
    let Some(function) = registry.functions.get_mut(&(function as usize)) else { return INVALID_DEVICE_FUNCTION };
    let value = value.unsigned_abs();
    match attribute {
        8 if u64::from(value) + program.shared_bytes > u64::from(SHARED_PER_BLOCK) => INVALID_VALUE,
        8 => {
            function.dynamic_limit = value;
            SUCCESS
        }
        9 => SUCCESS,
        14 => {
            function.takes_large_clusters = value != 0;
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

/// Launches a kernel, or records it where its stream captures.
///
/// # Safety
/// `shape` has the extents of grid, block and cluster; `arguments` points to one pointer for each of the kernel's parameters.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_launch(
    function: *const c_void,
    shape: *const u32,
    dynamic_bytes: u32,
    is_cooperative: c_int,
    stream: *mut c_void,
    arguments: *const *const c_void,
) -> c_int {
    let program = match decoded(function) {
        Ok(program) => program,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    let shape = unsafe { slice::from_raw_parts(shape, 9) };
    let of = |first: usize| [shape[first], shape[first + 1], shape[first + 2]];
    let mut parameters = Vec::new();
    for (i, parameter) in program.parameters.iter().enumerate() {
        parameters.resize(parameter.offset, 0);
        // SAFETY: the caller's promise; the kernel declares how large each parameter is.
        let bytes = unsafe { slice::from_raw_parts((*arguments.add(i)).cast::<u8>(), parameter.bytes) };
        parameters.extend_from_slice(bytes);
    }
    let recorded = Recorded {
        program,
        grid: of(0),
        block: of(3),
        cluster: of(6),
        dynamic_bytes,
        is_cooperative: is_cooperative != 0,
        parameters,
    };
    let status = refusal(&recorded, function as usize);
    if status != SUCCESS {
        eprintln!(
            "emulated device: {}: refused a grid of {:?}, blocks of {:?}, clusters of {:?}, {dynamic_bytes} bytes: {status}",
            recorded.program.name, recorded.grid, recorded.block, recorded.cluster
        );
        return status;
    }
    match driver::capture(stream as usize, recorded) {
        None => SUCCESS,
        Some(recorded) => recorded.run(),
    }
}

/// What a driver refuses.
fn refusal(launch: &Recorded, function: usize) -> c_int {
    let registry = registry();
    let Some(function) = registry.functions.get(&function) else { return INVALID_DEVICE_FUNCTION };
    let threads = launch.block.iter().map(|&n| u64::from(n)).product::<u64>();
    let cluster = launch.cluster.iter().product::<u32>();
    let divides = launch.grid.iter().zip(launch.cluster).all(|(&grid, cluster)| cluster > 0 && grid % cluster == 0);
    let is_empty = threads == 0 || launch.grid.contains(&0);
    if is_empty
        || threads > u64::from(launch.program.max_threads)
        || launch.block[2] > 64
        || launch.grid[0] > i32::MAX as u32
        || launch.grid[1..].iter().any(|&n| n > 0xffff)
        || !divides
        || cluster > if function.takes_large_clusters { 16 } else { CLUSTER_UNASKED }
    {
        return INVALID_CONFIGURATION;
    }
    if launch.dynamic_bytes > function.dynamic_limit {
        return INVALID_VALUE;
    }
    if launch.is_cooperative {
        let shared = launch.program.shared_bytes as u32 + launch.dynamic_bytes + 1024;
        let resident = (SHARED_PER_MULTIPROCESSOR / shared).min(THREADS_PER_MULTIPROCESSOR / threads as u32).min(32);
        let blocks = launch.grid.iter().map(|&n| u64::from(n)).product::<u64>();
        if blocks > u64::from(resident * MULTIPROCESSORS) {
            return COOPERATIVE_LAUNCH_TOO_LARGE;
        }
    }
    SUCCESS
}
