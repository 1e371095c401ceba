//! NVIDIA GPUs through the driver API. Kernels are launched through the C functions of `baracuda-ops-sys`.
//!
//! The owned layer uses the context's legacy default stream: one order of submission for every handle of a context, also ordered with
//! the caller's blocking streams.

use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdevice_attribute_enum as attribute, CUresult,
};

use prepared::Prepared;
pub(crate) use prepared::{Numbers, number_of};

use super::{DeviceKind, DeviceProps, Located};
use crate::dtype::DType;
use crate::error::{BuildError, Error, Reason, Result};
use crate::narrow::word;
use crate::ops::activation::Activation;
use crate::options::WorkspaceReq;

pub(crate) mod cublaslt;
pub(crate) mod cudnn;
mod interop;
mod prepared;
pub(crate) mod reach;

/// Kernels remembered as prepared. Where more shapes than that come and go, all are forgotten, and prepared again in microseconds.
const MOST_PREPARED: usize = 4096;
/// The most blocks of a launch that strides over its work: enough to keep any device busy.
pub(crate) const MOST_STRIDING_BLOCKS: u64 = 1 << 19;
/// Handle of a context's legacy default stream.
const LEGACY_STREAM: usize = 1;

/// What the choice of a CUDA kernel may depend on.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Props {
    /// The product's name.
    pub name: String,
    /// Its number among the driver's devices.
    pub ordinal: u32,
    /// Compute capability: major times 10 plus minor.
    pub capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that one block may ask for, in bytes.
    pub shared_bytes: u32,
    /// Blocks in the largest cluster; 1 where there are none.
    pub cluster: u32,
    /// L2 cache in bytes.
    pub l2_bytes: u64,
    /// Whether code for `sm_90a` runs, and is in this build.
    pub sm_90a: bool,
    /// The driver's CUDA version: 1000 times major plus 10 times minor.
    pub driver: u32,
}

impl Props {
    /// Devices like an A100, an RTX 3090, an RTX 4090, an H200, a B200 and an RTX 5090, for checks of choices. The numbers are not measured.
    pub(crate) fn examples() -> impl Iterator<Item = Self> {
        [
            ("A100", 80, 108, 163, 1, 40),
            ("RTX 3090", 86, 82, 99, 1, 6),
            ("RTX 4090", 89, 128, 99, 1, 72),
            ("H200", 90, 132, 227, 16, 50),
            ("B200", 100, 148, 227, 16, 126),
            ("RTX 5090", 120, 170, 99, 8, 96),
        ]
        .into_iter()
        .map(|(name, capability, multiprocessors, shared_kib, cluster, l2_mib)| Self {
            name: name.into(),
            ordinal: 0,
            capability,
            multiprocessors,
            shared_bytes: shared_kib << 10,
            cluster,
            l2_bytes: l2_mib << 20,
            sm_90a: capability == 90,
            driver: 13000,
        })
    }
}

impl Props {
    /// The properties of a CUDA device, for kernels that run only there.
    pub(crate) fn of(props: &DeviceProps) -> Result<&Self, Reason> {
        match props {
            DeviceProps::Cuda(props) => Ok(props),
            _ => Err("it runs on CUDA".into()),
        }
    }
}

impl fmt::Display for Props {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.ordinal, self.name)
    }
}

/// A context and what the library needs of it.
#[derive(Clone)]
pub(crate) struct Device(Arc<Inner>);

struct Inner {
    context: CUcontext,
    owner: Owner,
    props: Props,
    has_pools: bool,
    /// Kernels whose attributes are set and whose module is loaded in this context.
    prepared: Mutex<HashSet<Box<dyn Prepared>>>,
    /// Opened by the first plan that asks for it.
    cublaslt: OnceLock<Result<Arc<cublaslt::CublasLt>, Reason>>,
    /// cuDNN, opened as cuBLASLt is.
    cudnn: OnceLock<Result<Arc<cudnn::Cudnn>, Reason>>,
}

/// What keeps the context alive.
enum Owner {
    /// This handle, by a retained primary context.
    Primary(CUdevice),
    /// The caller.
    Borrowed,
    /// A cudarc handle.
    Cudarc(#[expect(dead_code, reason = "keeps the context alive")] Arc<cudarc::driver::CudaContext>),
}

// SAFETY: a context may be used from every thread; the driver synchronises.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl Device {
    /// The device behind the public one, for kernels that run on CUDA only.
    pub(crate) fn of(device: &super::Device) -> Result<&Self, BuildError> {
        match &device.0 {
            DeviceKind::Cuda(device) => Ok(device),
            _ => Err(BuildError::Refused("it runs on CUDA".into())),
        }
    }

    pub(crate) fn primary(ordinal: u32) -> Result<Self> {
        let count = count()?;
        if ordinal >= count {
            return Err(no_device(format!("the driver has {count} devices, number {ordinal} was asked for")));
        }
        let ordinal = c_int::try_from(ordinal).map_err(|e| no_device(e.to_string()))?;
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: the ordinal exists and the pointers are valid; the retained context is released in `Drop`.
        unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
        }
        Self::new(context, device, Owner::Primary(device))
    }

    /// # Safety
    /// `context` stays valid while the device and what is made from it exist.
    pub(crate) unsafe fn borrowed(context: *mut c_void) -> Result<Self> {
        init()?;
        Self::of_context(context.cast(), Owner::Borrowed)
    }

    fn of_context(context: CUcontext, owner: Owner) -> Result<Self> {
        let mut device = 0;
        {
            let _current = Current::set(context)?;
            // SAFETY: a context is current and the pointer is valid.
            check("cuCtxGetDevice", unsafe { sys::cuCtxGetDevice(&mut device) })?;
        }
        Self::new(context, device, owner)
    }

    fn new(context: CUcontext, device: CUdevice, owner: Owner) -> Result<Self> {
        let inner = Inner {
            context,
            owner,
            props: props(device)?,
            has_pools: has_pools(device)?,
            prepared: Mutex::default(),
            cublaslt: OnceLock::new(),
            cudnn: OnceLock::new(),
        };
        let Props { name, capability, .. } = &inner.props;
        let compiled = baracuda_ops_sys::CUDA_ARCHS;
        if !has_image(compiled, *capability) {
            return Err(Error::NoKernelImage {
                device: name.clone(),
                capability: *capability,
                compiled: compiled.to_vec(),
            });
        }
        Ok(Self(Arc::new(inner)))
    }

    pub(crate) fn props(&self) -> &Props {
        &self.0.props
    }

    /// cuBLASLt with its handle of this device.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn cublaslt(&self) -> Result<&Arc<cublaslt::CublasLt>, BuildError> {
        let _current = Current::set(self.0.context)?;
        let opened = self.0.cublaslt.get_or_init(|| cublaslt::CublasLt::open(self.0.props.driver).map(Arc::new));
        opened.as_ref().map_err(|reason| BuildError::Refused(reason.clone()))
    }

    /// cuDNN with its handles of this device.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn cudnn(&self) -> Result<&Arc<cudnn::Cudnn>, BuildError> {
        let _current = Current::set(self.0.context)?;
        let opened = self.0.cudnn.get_or_init(|| cudnn::Cudnn::open(self.0.props.driver).map(Arc::new));
        opened.as_ref().map_err(|reason| BuildError::Refused(reason.clone()))
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Result<Memory> {
        let _current = Current::set(self.0.context)?;
        let size = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        let mut address = 0;
        // SAFETY: the context is current and the pointer is valid; the memory is freed in `Drop`.
        let result = unsafe {
            if self.0.has_pools {
                sys::cuMemAllocAsync(&mut address, size, legacy())
            } else {
                sys::cuMemAlloc_v2(&mut address, size)
            }
        };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::OutOfMemory { device: self.to_string(), bytes });
        }
        check("cuMemAlloc", result)?;
        let memory = Memory(Arc::new(Allocation { device: self.clone(), address }));
        // SAFETY: the memory holds `size` bytes.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, 0, size, legacy()) })?;
        Ok(memory)
    }

    /// Copies `bytes` to `offset`; the caller has checked that they fit.
    pub(crate) fn write(&self, memory: &Memory, offset: u64, bytes: &[u8]) -> Result<()> {
        let _current = Current::set(self.0.context)?;
        // SAFETY: the range lies in the allocation; the copy is ordered in the legacy stream and has read `bytes` when it returns.
        check("cuMemcpyHtoD", unsafe {
            sys::cuMemcpyHtoD_v2(memory.address() + offset, bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Copies from `offset` on; the caller has checked that the bytes exist.
    pub(crate) fn read(&self, memory: &Memory, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let _current = Current::set(self.0.context)?;
        // SAFETY: the range lies in the allocation; the copy is ordered in the legacy stream and has written `bytes` when it returns.
        check("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory.address() + offset, bytes.len())
        })
    }

    pub(crate) fn queue(&self) -> Queue {
        Queue { device: self.clone(), stream: LEGACY_STREAM, keep: None }
    }

    /// # Safety
    /// `stream` stays valid while the queue exists.
    pub(crate) unsafe fn borrowed_queue(&self, stream: *mut c_void) -> Result<Queue> {
        let _current = Current::set(self.0.context)?;
        let mut context = ptr::null_mut();
        // SAFETY: the stream is valid by the caller's promise, and so is the pointer.
        check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(stream.cast(), &mut context) })?;
        if context != self.0.context {
            return Err(Error::WrongDevice {
                op: "queue",
                operand: "stream",
                expected: self.to_string(),
                got: "another CUDA context".into(),
            });
        }
        Ok(Queue { device: self.clone(), stream: stream as usize, keep: None })
    }

    /// Runs `prepare` in this context, unless it succeeded before with the same call and key.
    pub(crate) fn prepare(&self, call: &'static str, key: impl Numbers, prepare: impl FnOnce() -> i32) -> Result<()> {
        let key: Box<dyn Prepared> = Box::new((call, key));
        let prepared = || self.0.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if prepared().contains(&key) {
            return Ok(());
        }
        let _current = Current::set(self.0.context)?;
        launched(call, prepare())?;
        let mut prepared = prepared();
        if prepared.len() >= MOST_PREPARED {
            prepared.clear();
        }
        prepared.insert(key);
        Ok(())
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.0.context == other.0.context
    }
}

impl Eq for Device {}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.context as usize).hash(state);
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.props.fmt(f)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("cuda::Device").field("context", &self.0.context).field("props", &self.0.props).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Handles go before the context that they belong to.
        let vendors = (self.cublaslt.take().and_then(Result::ok), self.cudnn.take().and_then(Result::ok));
        if vendors.0.is_some() || vendors.1.is_some() {
            let _current = Current::set(self.context);
            drop(vendors);
        }
        if let Owner::Primary(device) = self.owner {
            // SAFETY: retained in `primary`. A failure leaves the context to the driver, which is all that can be done here.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
        }
    }
}

/// Owned device memory.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Allocation>);

struct Allocation {
    device: Device,
    address: u64,
}

impl Memory {
    pub(crate) fn address(&self) -> u64 {
        self.0.address
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:#x})", self.0.address)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Ok(_current) = Current::set(self.device.0.context) else { return };
        // SAFETY: allocated in `alloc`; freed after the work of the legacy stream. Failures are those of a lost device.
        unsafe {
            let _ = if self.device.0.has_pools {
                sys::cuMemFreeAsync(self.address, legacy())
            } else {
                let _ = sys::cuStreamSynchronize(legacy());
                sys::cuMemFree_v2(self.address)
            };
        }
    }
}

/// A stream on which runs are enqueued.
pub(crate) struct Queue {
    device: Device,
    stream: usize,
    #[expect(dead_code, reason = "keeps the stream alive")]
    keep: Option<Arc<cudarc::driver::CudaStream>>,
}

impl Queue {
    /// Waits for the stream.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let _current = Current::set(self.device.0.context)?;
        // SAFETY: the stream is the legacy one, or valid by the promise made when the queue was created.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream as sys::CUstream) })
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda::Queue({:#x} on {})", self.stream, self.device)
    }
}

/// An element type at the C ABI.
///
/// # Errors
/// Kernels have no such elements.
pub(crate) fn c_dtype(dtype: DType) -> Result<baracuda_ops_sys::bops_dtype, Reason> {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Ok(c_element(dtype)),
        _ => Err(format!("its kernels have no elements of {dtype}").into()),
    }
}

/// Any element type at the C ABI.
pub(crate) const fn c_element(dtype: DType) -> baracuda_ops_sys::bops_dtype {
    match dtype {
        DType::F64 => baracuda_ops_sys::BOPS_F64,
        DType::F32 => baracuda_ops_sys::BOPS_F32,
        DType::F16 => baracuda_ops_sys::BOPS_F16,
        DType::BF16 => baracuda_ops_sys::BOPS_BF16,
        DType::I64 => baracuda_ops_sys::BOPS_I64,
        DType::I32 => baracuda_ops_sys::BOPS_I32,
        DType::U32 => baracuda_ops_sys::BOPS_U32,
        DType::Bool => baracuda_ops_sys::BOPS_BOOL,
        DType::U8 => baracuda_ops_sys::BOPS_U8,
        DType::I8 => baracuda_ops_sys::BOPS_I8,
        DType::F8E4M3 => baracuda_ops_sys::BOPS_F8E4M3,
        DType::F8E5M2 => baracuda_ops_sys::BOPS_F8E5M2,
    }
}

/// An activation at the C ABI.
pub(crate) fn c_activation(activation: Activation) -> baracuda_ops_sys::bops_activation {
    match activation {
        Activation::Identity => baracuda_ops_sys::BOPS_IDENTITY,
        Activation::Relu => baracuda_ops_sys::BOPS_RELU,
        Activation::GeluErf => baracuda_ops_sys::BOPS_GELU_ERF,
        Activation::GeluTanh => baracuda_ops_sys::BOPS_GELU_TANH,
        Activation::Silu => baracuda_ops_sys::BOPS_SILU,
        Activation::Sigmoid => baracuda_ops_sys::BOPS_SIGMOID,
        Activation::Tanh => baracuda_ops_sys::BOPS_TANH,
    }
}

/// Clusters of `cluster` blocks that are resident at once, with `blocks` blocks on a multiprocessor. A cluster lies within one GPC, and what its size
/// leaves over of the multiprocessors of a GPC has no cluster. Measured on an H200.
pub(crate) fn resident_clusters(multiprocessors: u32, cluster: u64, blocks: u64) -> u64 {
    let all = u64::from(multiprocessors);
    let usable = match cluster {
        1 | 2 => all,
        3 | 4 | 8 => all * 10 / 11,
        _ => all * 7 / 8,
    };
    (usable / cluster * blocks).max(1)
}

impl Located<'_> {
    /// Where the operand at an index lies, as kernels are told; null if it is absent or empty.
    pub(crate) fn pointer(&self, index: usize) -> *mut c_void {
        self.at(index).address() as *mut c_void
    }

    /// As [`pointer`](Self::pointer), null without an index.
    pub(crate) fn optional(&self, index: Option<usize>) -> *mut c_void {
        index.map_or(std::ptr::null_mut(), |index| self.pointer(index))
    }

    /// Where the workspace lies.
    pub(crate) fn workspace_pointer(&self) -> *mut c_void {
        self.workspace.address() as *mut c_void
    }
}

/// Launches on a stream and returns the status of that launch.
pub(crate) type Start = dyn Fn(&Located<'_>, *mut c_void) -> i32 + Send + Sync;

/// A prepared kernel: launches with the operands of a run.
pub(crate) struct Launch {
    /// The C function, for errors.
    pub(crate) call: &'static str,
    pub(crate) launch: Box<Start>,
    /// What runs use of the candidate's workspace, where only building tells.
    pub(crate) workspace: Option<WorkspaceReq>,
    /// Launches of a run, where only building tells.
    pub(crate) launches: Option<u32>,
}

impl Launch {
    /// A launch that uses the workspace that its candidate asked for.
    pub(crate) fn new(
        call: &'static str,
        run: impl Fn(&Located<'_>, *mut c_void) -> i32 + Send + Sync + 'static,
    ) -> Self {
        Self { call, launch: Box::new(run), workspace: None, launches: None }
    }

    pub(crate) fn enqueue(&self, queue: &Queue, located: &Located<'_>) -> Result<()> {
        let _current = Current::set(queue.device.0.context)?;
        launched(self.call, (self.launch)(located, queue.stream as *mut c_void))
    }
}

/// Makes a context current and puts back the one before.
struct Current(Option<CUcontext>);

impl Current {
    fn set(context: CUcontext) -> Result<Self> {
        let mut before = ptr::null_mut();
        // SAFETY: the driver is initialised, the pointer valid, and the context alive.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut before))?;
            if before == context {
                return Ok(Self(None));
            }
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
        }
        Ok(Self(Some(before)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // SAFETY: it was current on this thread a moment ago, or is null.
            let _ = unsafe { sys::cuCtxSetCurrent(before) };
        }
    }
}

fn legacy() -> sys::CUstream {
    LEGACY_STREAM as sys::CUstream
}

/// Loads and initialises the driver. cudarc would panic without one.
fn init() -> Result<()> {
    static DRIVER: OnceLock<Result<(), String>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        let names = if cfg!(windows) { &["nvcuda.dll"][..] } else { &["libcuda.so.1", "libcuda.so"] };
        // SAFETY: the driver's library runs no code of ours when loaded.
        let is_present = names.iter().any(|name| unsafe { libloading::Library::new(*name) }.is_ok());
        if !is_present {
            return Err(format!("no NVIDIA driver: {} is not found; install the driver", names[0]));
        }
        // SAFETY: may be called any time.
        match unsafe { sys::cuInit(0) } {
            CUresult::CUDA_SUCCESS => Ok(()),
            CUresult::CUDA_ERROR_NO_DEVICE => Err("the NVIDIA driver finds no GPU (see nvidia-smi)".into()),
            code => Err(format!("cuInit failed with code {}: {} (see nvidia-smi)", code as u32, words(code))),
        }
    });
    driver.clone().map_err(no_device)
}

/// Whether a device runs what was compiled for these architectures, ascending: machine code of its own major capability, else PTX, of which there
/// is that of the lowest and the highest. From 9.0 on kernels are chosen that are empty before it.
fn has_image(compiled: &[u32], capability: u32) -> bool {
    let machine = compiled.iter().rfind(|&&arch| arch <= capability && arch / 10 == capability / 10);
    let text = || [compiled.last(), compiled.first()].into_iter().flatten().find(|&&arch| arch <= capability);
    machine.or_else(text).is_some_and(|&arch| arch >= 90 || capability < 90)
}

/// The devices that the driver has.
pub(crate) fn count() -> Result<u32> {
    init()?;
    let mut count = 0;
    // SAFETY: the driver is initialised and the pointer is valid.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

fn no_device(reason: String) -> Error {
    Error::NoDevice { backend: "cuda", reason }
}

fn get(device: CUdevice, what: CUdevice_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the device exists and the pointer is valid.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, what, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn has_pools(device: CUdevice) -> Result<bool> {
    get(device, attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED).map(|yes| yes != 0)
}

fn props(device: CUdevice) -> Result<Props> {
    const NAME_BYTES: c_int = 256;
    let mut name = [0; NAME_BYTES.unsigned_abs() as usize];
    let mut driver = 0;
    // SAFETY: the device exists; the buffer holds its length; the pointer is valid.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), NAME_BYTES, device))?;
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut driver))?;
    }
    let bytes = name.map(|c| c.to_ne_bytes()[0]);
    let name = CStr::from_bytes_until_nul(&bytes).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let capability = 10 * get(device, attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
        + get(device, attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let cluster = match capability {
        ..90 => 1,
        // Data-centre GPUs schedule clusters of 16 blocks where the kernel opts in; 8 is what every other GPU has.
        90 | 100 => 16,
        _ => 8,
    };
    Ok(Props {
        name,
        ordinal: u32::try_from(device).unwrap_or(0),
        capability,
        multiprocessors: get(device, attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: get(device, attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        cluster,
        l2_bytes: u64::from(get(device, attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        sm_90a: capability == 90
            && baracuda_ops_sys::CUDA_ARCHS.contains(&90)
            && get(device, attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED)? != 0,
        driver: u32::try_from(driver).unwrap_or(0),
    })
}

/// The driver's description of an error code.
fn words(code: CUresult) -> String {
    let mut text = ptr::null();
    // SAFETY: the pointer is valid; the text, if any, is static.
    unsafe {
        match sys::cuGetErrorString(code, &mut text) {
            CUresult::CUDA_SUCCESS if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
            _ => "unknown to the driver".into(),
        }
    }
}

fn check(call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, result as i32, words(result))) }
}

/// Records what `run` enqueues on a stream of its own, and drops the record: kernels are loaded, nothing runs. The device's context is current.
/// Returns how many launches that is, fills and copies among them, or the status of `run` where it is not 0.
fn rehearse(run: impl FnOnce(*mut c_void) -> i32) -> Result<std::result::Result<u32, i32>> {
    let mut stream = ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the context is current and the pointer valid.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream was made above and is used by nobody else.
    let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, mode) };
    let status = if begun == CUresult::CUDA_SUCCESS { run(stream.cast()) } else { 0 };
    let (mut graph, mut nodes) = (ptr::null_mut(), 0);
    // SAFETY: the stream and the graph are of no further use; a null pointer asks for the number of nodes.
    let (ended, counted) = unsafe {
        let ended = sys::cuStreamEndCapture(stream, &mut graph);
        let mut counted = CUresult::CUDA_SUCCESS;
        if !graph.is_null() {
            counted = sys::cuGraphGetNodes(graph, ptr::null_mut(), &mut nodes);
            let _ = sys::cuGraphDestroy(graph);
        }
        let _ = sys::cuStreamDestroy_v2(stream);
        (ended, counted)
    };
    check("cuStreamBeginCapture", begun)?;
    if status != 0 {
        return Ok(Err(status));
    }
    check("cuStreamEndCapture", ended)?;
    check("cuGraphGetNodes", counted)?;
    Ok(Ok(word(nodes as u64)))
}

/// The status of a C function of `baracuda-ops-sys`: a `cudaError_t`; less than 0, a `cublasStatus_t` negated, or what [`cudnn::failed`] reads.
fn launched(call: &'static str, status: i32) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    if status < 0 {
        if let Some((call, code)) = cudnn::failed(status) {
            return Err(Error::Backend { call, code: i64::from(code), detail: "a cudnnStatus_t".into() });
        }
        let code = -i64::from(status);
        return Err(Error::Backend { call: "cublasLtMatmul", code, detail: "a cublasStatus_t".into() });
    }
    Err(failure(call, status, "a cudaError_t".into()))
}

#[cold]
fn failure(call: &'static str, code: i32, detail: String) -> Error {
    match code {
        35 => no_device(format!(
            "{call}: the NVIDIA driver is older than the CUDA runtime of this build; update the driver"
        )),
        // A context that faulted refuses everything from then on.
        46 | 214 | 700 | 702 | 709 | 710 | 714..=719 | 721 => {
            Error::DeviceLost { device: "cuda".into(), detail: format!("{call}: code {code}: {detail}") }
        }
        _ => Error::Backend { call, code: i64::from(code), detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_run_code_of_their_own_generation_or_ptx_that_knows_clusters_where_they_do() {
        let served =
            |compiled: &[u32]| [75, 80, 86, 89, 90, 100, 120].map(|capability| has_image(compiled, capability));
        assert_eq!(served(&[80, 90]), [false, true, true, true, true, true, true]);
        assert_eq!(served(&[80]), [false, true, true, true, false, false, false]);
        assert_eq!(served(&[90]), [false, false, false, false, true, true, true]);
        assert_eq!(served(&[80, 90, 120]), [false, true, true, true, true, false, true]);
        assert_eq!(served(&[86, 90]), [false, false, true, true, true, true, true]);
        assert_eq!(served(&[]), [false; 7]);
    }
}
