//! cuDNN, opened at run time: its functions, handles of a device, and graphs of operations whose engine is fixed.
//!
//! A [`Problem`] states itself as a [`Graph`], with values in between that have no memory: a convolution ([`conv`]) or attention ([`attention`]). The
//! heuristics propose engines for the graph, from the fastest they know on; the first is taken that the problem admits by its numerical notes, that needs
//! no more workspace than there may be, and whose call can be recorded.
//!
//! Reasons of refusals have what the library last said of itself; with `CUDNN_LOGLEVEL_DBG=2` and `CUDNN_LOGDEST_DBG=stderr` in the environment it says
//! of every engine why it does not serve.
//!
//! Two threads may neither use one handle nor execute one plan at the same time: runs borrow a handle of the device, and a plan is locked.
//!
//! Before cuDNN 9.28 recorded calls of engines that are compiled at run time are valid as long as the plan lives.
//!
//! Source: the cuDNN documentation, and `cudnn_graph.h` of 9.28, in which what is used has been the same since 9.0.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::cublaslt::{dummy, file, functions};
use super::{Current, Device, LEGACY_STREAM};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::narrow::to_usize;

pub(crate) mod attention;
pub(crate) mod conv;

/// What an engine may use of the workspace where the options set no limit.
pub(crate) const WORKSPACE_BYTES: u64 = 256 << 20;
/// What the workspace is aligned to, and each of its parts.
pub(crate) const WORKSPACE_ALIGN: u64 = 256;
/// Extents of a tensor of a convolution: samples, channels, and up to three spatial ones.
pub(crate) const MAX_RANK: usize = 5;
/// The library whose functions are those of this file.
const MAJOR: usize = 9;
/// Handles for runs on one device: as many threads enqueue at the same time; further ones wait.
const MOST_HANDLES: usize = 4;
/// Memory spent on recording a call whose engine wants addresses that exist.
const MOST_RECORDING_BYTES: u64 = 1 << 30;
/// Tensors of a graph that have addresses.
const MOST_ADDRESSES: usize = 24;
/// The longest text that the library has of an error, and the longest that is told of it.
const MESSAGE_BYTES: usize = 4096;
const TOLD_BYTES: usize = 200;

/// A `cudnnStatus_t`.
type Status = c_int;

// Numbers of cudnn_graph.h. Descriptors:
const POINTWISE: c_int = 0;
const ENGINE: c_int = 2;
const ENGINE_CONFIG: c_int = 3;
const HEURISTICS: c_int = 4;
const EXECUTION_PLAN: c_int = 5;
const POINTWISE_OPERATION: c_int = 13;
const OPERATION_GRAPH: c_int = 15;
const VARIANT_PACK: c_int = 16;
const TENSOR: c_int = 17;
// Attributes:
const POINTWISE_MODE: c_int = 0;
const POINTWISE_MATH_PRECISION: c_int = 1;
const HEURISTICS_MODE: c_int = 200;
const HEURISTICS_GRAPH: c_int = 201;
const HEURISTICS_RESULTS: c_int = 202;
const ENGINE_CONFIG_ENGINE: c_int = 300;
const EXECUTION_PLAN_HANDLE: c_int = 400;
const EXECUTION_PLAN_CONFIG: c_int = 401;
const EXECUTION_PLAN_WORKSPACE_BYTES: c_int = 402;
const POINTWISE_OPERATION_DESC: c_int = 750;
const POINTWISE_OPERATION_X: c_int = 751;
const POINTWISE_OPERATION_B: c_int = 752;
const POINTWISE_OPERATION_Y: c_int = 753;
const GRAPH_HANDLE: c_int = 800;
const GRAPH_OPERATIONS: c_int = 801;
const TENSOR_ALIGNMENT: c_int = 900;
const TENSOR_DATA_TYPE: c_int = 901;
const TENSOR_DIMENSIONS: c_int = 902;
const TENSOR_STRIDES: c_int = 903;
const TENSOR_UNIQUE_ID: c_int = 906;
const TENSOR_IS_VIRTUAL: c_int = 907;
const TENSOR_IS_BY_VALUE: c_int = 908;
const VARIANT_PACK_UNIQUE_IDS: c_int = 1000;
const VARIANT_PACK_POINTERS: c_int = 1001;
const VARIANT_PACK_WORKSPACE: c_int = 1003;
const ENGINE_INDEX: c_int = 1301;
const ENGINE_NUMERICAL_NOTES: c_int = 1303;
// Values:
const DATA_FLOAT: DataType = Number(0);
const DATA_DOUBLE: DataType = Number(1);
const DATA_HALF: DataType = Number(2);
const DATA_INT32: DataType = Number(4);
const DATA_BFLOAT16: DataType = Number(9);
const DATA_BOOLEAN: DataType = Number(11);
const MODE_FALLBACK: HeuristicsMode = Number(2);
const MODE_A: HeuristicsMode = Number(3);
const POINTWISE_ADD: PointwiseMode = Number(0);
// Numerical notes. Those that are not named here are of engines that round what they multiply, sum in less than the compute type, or transform:
// DOWN_CONVERT_INPUTS (1), REDUCED_PRECISION_REDUCTION (2), FFT (3), WINOGRAD (5 to 8).
const NOTE_TENSOR_CORE: Note = Number(0);
const NOTE_NONDETERMINISTIC: Note = Number(4);
const NOTE_STRICT_NAN_PROPAGATION: Note = Number(9);
/// How many there are.
const NOTES: usize = 10;

/// A value of an attribute.
///
/// # Safety
/// Values are those that the header has for the type.
unsafe trait Element: Copy {
    /// Its `cudnnBackendAttributeType_t`.
    const TYPE: c_int;
}

/// An enumerator.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number<const TYPE: c_int>(c_int);

/// What the library or the device owns.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pointer<const TYPE: c_int>(*mut c_void);

type DataType = Number<1>;
type HeuristicsMode = Number<8>;
type Note = Number<11>;
type PointwiseMode = Number<14>;
type Address = Pointer<6>;
/// A descriptor that another one refers to.
type Child = Pointer<15>;

// SAFETY: enumerations of the header are ints.
unsafe impl<const T: c_int> Element for Number<T> {
    const TYPE: c_int = T;
}

// SAFETY: handles, descriptors and addresses are pointers.
unsafe impl<const T: c_int> Element for Pointer<T> {
    const TYPE: c_int = T;
}

// SAFETY: the header's boolean is that of C.
unsafe impl Element for bool {
    const TYPE: c_int = 2;
}

// SAFETY: an int64_t.
unsafe impl Element for i64 {
    const TYPE: c_int = 3;
}

// SAFETY: a float.
unsafe impl Element for f32 {
    const TYPE: c_int = 4;
}

// SAFETY: a double.
unsafe impl Element for f64 {
    const TYPE: c_int = 5;
}

functions! {
    /// The functions that are used. The library is never closed: it has opened others, which stay, and so do the kernels that they have registered.
    pub(crate) Functions {
        version = "cudnnGetVersion": unsafe extern "C" fn() -> usize,
        /// The version of the CUDA runtime in it: 1000 times major plus 10 times minor.
        runtime = "cudnnGetCudartVersion": unsafe extern "C" fn() -> usize,
        /// What the library last said of an error on this thread, which it forgets by that.
        last_error = "cudnnGetLastErrorString": unsafe extern "C" fn(*mut c_char, usize),
        create = "cudnnCreate": unsafe extern "C" fn(*mut *mut c_void) -> Status,
        destroy = "cudnnDestroy": unsafe extern "C" fn(*mut c_void) -> Status,
        set_stream = "cudnnSetStream": unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status,
        create_descriptor = "cudnnBackendCreateDescriptor": unsafe extern "C" fn(c_int, *mut *mut c_void) -> Status,
        destroy_descriptor = "cudnnBackendDestroyDescriptor": unsafe extern "C" fn(*mut c_void) -> Status,
        set_attribute = "cudnnBackendSetAttribute":
            unsafe extern "C" fn(*mut c_void, c_int, c_int, i64, *const c_void) -> Status,
        get_attribute = "cudnnBackendGetAttribute":
            unsafe extern "C" fn(*mut c_void, c_int, c_int, i64, *mut i64, *mut c_void) -> Status,
        finalize = "cudnnBackendFinalize": unsafe extern "C" fn(*mut c_void) -> Status,
        execute = "cudnnBackendExecute": unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> Status,
    }
}

/// The functions that can fail, each with its name.
macro_rules! calls {
    ($($Call:ident = $name:literal,)*) => {
        /// A function that can fail.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Call {
            $($Call,)*
        }

        impl Call {
            /// In declaration order.
            const ALL: &[Self] = &[$(Self::$Call,)*];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$Call => $name,)*
                }
            }
        }
    };
}

calls! {
    Create = "cudnnCreate",
    SetStream = "cudnnSetStream",
    CreateDescriptor = "cudnnBackendCreateDescriptor",
    SetAttribute = "cudnnBackendSetAttribute",
    GetAttribute = "cudnnBackendGetAttribute",
    Finalize = "cudnnBackendFinalize",
    Execute = "cudnnBackendExecute",
}

impl Functions {
    /// What the library last said of an error on this thread: the reason in it, if it names one.
    fn said(&self) -> Option<String> {
        let mut text = vec![0u8; MESSAGE_BYTES];
        // SAFETY: there is room for as many bytes as are said.
        unsafe { (self.last_error)(text.as_mut_ptr().cast(), text.len()) };
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        let text = String::from_utf8_lossy(&text[..end]);
        let reason = text.split_once("Reason: ").map_or(&*text, |(_, reason)| reason);
        let line = reason.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(TOLD_BYTES).collect())
    }

    fn check(&self, call: Call, about: Option<c_int>, status: Status) -> Result<(), Failure> {
        if status == 0 { Ok(()) } else { Err(Failure { call, about, status, said: self.said() }) }
    }
}

/// A call of the library that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    call: Call,
    /// The number of the attribute or, if the call has none, of the kind of descriptor.
    about: Option<c_int>,
    status: Status,
    /// What the library says of it.
    said: Option<String>,
}

/// Greater than every status.
const STATUSES: i32 = 100_000;

impl Failure {
    /// The error as a launch's status: less than 0, and read by [`failed`].
    fn code(&self) -> i32 {
        -((1 + self.call as i32) * STATUSES + self.status.clamp(1, STATUSES - 1))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, about, status, said } = self;
        f.write_str(call.name())?;
        if let Some(about) = about {
            write!(f, " {about}")?;
        }
        write!(f, " failed with cudnnStatus_t {status}")?;
        said.as_ref().map_or(Ok(()), |said| write!(f, ": {said}"))
    }
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Self {
        failure.to_string().into()
    }
}

/// The call that failed and its `cudnnStatus_t`, if the status of a launch is one of cuDNN's.
pub(super) fn failed(status: i32) -> Option<(&'static str, Status)> {
    let code = status.checked_neg().filter(|&code| code > STATUSES)?;
    let call = usize::try_from(code / STATUSES - 1).ok().and_then(|index| Call::ALL.get(index))?;
    Some((call.name(), code % STATUSES))
}

/// An owned descriptor of the library.
struct Descriptor {
    raw: *mut c_void,
    kind: c_int,
    functions: Arc<Functions>,
}

// SAFETY: descriptors belong to no thread; those that change are used by one at a time.
unsafe impl Send for Descriptor {}

impl Descriptor {
    fn new(functions: &Arc<Functions>, kind: c_int) -> Result<Self, Failure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid; the descriptor is destroyed in `Drop`.
        let status = unsafe { (functions.create_descriptor)(kind, &mut raw) };
        functions.check(Call::CreateDescriptor, Some(kind), status)?;
        Ok(Self { raw, kind, functions: functions.clone() })
    }

    fn set<T: Element>(&self, attribute: c_int, values: &[T]) -> Result<(), Failure> {
        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: the values are those of the type, and as many as are said; they are copied.
        let status =
            unsafe { (self.functions.set_attribute)(self.raw, attribute, T::TYPE, count, values.as_ptr().cast()) };
        self.functions.check(Call::SetAttribute, Some(attribute), status)
    }

    /// Reads as many values as there is room for. Returns how many there are.
    fn get<T: Element>(&self, attribute: c_int, into: &mut [T]) -> Result<usize, Failure> {
        let room = i64::try_from(into.len()).unwrap_or(i64::MAX);
        let to = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast() };
        let mut count = 0;
        // SAFETY: there is room for as many values of the type as are said.
        let status = unsafe { (self.functions.get_attribute)(self.raw, attribute, T::TYPE, room, &mut count, to) };
        self.functions.check(Call::GetAttribute, Some(attribute), status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn finalized(self) -> Result<Self, Failure> {
        // SAFETY: the descriptor exists.
        let status = unsafe { (self.functions.finalize)(self.raw) };
        self.functions.check(Call::Finalize, Some(self.kind), status)?;
        Ok(self)
    }

    fn child(&self) -> Child {
        Pointer(self.raw)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`; descriptors that refer to it are gone, or have what they need of it.
        let _ = unsafe { (self.functions.destroy_descriptor)(self.raw) };
    }
}

/// A handle of one device.
struct Handle {
    raw: *mut c_void,
    functions: Arc<Functions>,
}

// SAFETY: a handle belongs to no thread; one at a time uses it.
unsafe impl Send for Handle {}

impl Handle {
    fn new(functions: &Arc<Functions>) -> Result<Self, Failure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid; the handle is destroyed in `Drop`.
        let status = unsafe { (functions.create)(&mut raw) };
        functions.check(Call::Create, None, status)?;
        Ok(Self { raw, functions: functions.clone() })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        let _ = unsafe { (self.functions.destroy)(self.raw) };
    }
}

/// Handles for runs.
struct Handles {
    free: Mutex<Vec<Handle>>,
    returned: Condvar,
}

impl Handles {
    /// A handle that no other run uses, once there is one. At least one handle exists.
    fn lend(&self) -> Lent<'_> {
        let mut free = lock(&self.free);
        loop {
            match free.pop() {
                Some(handle) => return Lent { handle: Some(handle), handles: self },
                None => free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A handle that goes back when it is dropped.
struct Lent<'h> {
    /// The handle, until it goes back.
    handle: Option<Handle>,
    handles: &'h Handles,
}

impl Lent<'_> {
    fn raw(&self) -> *mut c_void {
        self.handle.as_ref().map_or(ptr::null_mut(), |handle| handle.raw)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(&self.handles.free).extend(self.handle.take());
        self.handles.returned.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library and its handles of one device.
pub(crate) struct Cudnn {
    /// A handle for making plans, which takes long, so that runs need not wait for it.
    builder: Mutex<Handle>,
    handles: Handles,
    /// How many handles there are for runs.
    made: Mutex<usize>,
    functions: Arc<Functions>,
}

impl Cudnn {
    /// Opens the library; the device's context is current.
    pub(super) fn open(driver: u32) -> Result<Self, Reason> {
        let open = |name: &str, major: usize| {
            let name = file(name, major);
            // SAFETY: the library runs its own initialisation only.
            unsafe { libloading::Library::new(&name) }.map_err(|_| name)
        };
        let missing = |name| Reason::from(format!("cuDNN is not found: the loader knows no {name}"));
        let front = open("cudnn", MAJOR).map_err(missing)?;
        let functions = Functions::of(&front).map_err(|e| Reason::from(format!("cuDNN lacks a function: {e}")))?;
        // The library ends the process if one of these is missing; if others are missing it returns an error.
        let incomplete =
            |name| Reason::from(format!("cuDNN is incomplete: the loader knows no {name}, which it needs"));
        let graph = open("cudnn_graph", MAJOR).map_err(incomplete)?;
        // SAFETY: may be called any time.
        let runtime = unsafe { (functions.runtime)() } / 1000;
        if u32::try_from(runtime).is_ok_and(|runtime| runtime > driver / 1000) {
            return Err(format!("this cuDNN is for CUDA {runtime}, the driver serves {}", driver / 1000).into());
        }
        let products = open("cublasLt", runtime).map_err(incomplete)?;
        for library in [front, graph, products] {
            std::mem::forget(library);
        }
        Ok(Self::of(Arc::new(functions))?)
    }

    fn of(functions: Arc<Functions>) -> Result<Self, Failure> {
        let builder = Mutex::new(Handle::new(&functions)?);
        let handles = Handles { free: Mutex::new(vec![Handle::new(&functions)?]), returned: Condvar::new() };
        Ok(Self { builder, handles, made: Mutex::new(1), functions })
    }

    /// The library's version: 10000 times major, plus 100 times minor, plus patch.
    pub(crate) fn version(&self) -> usize {
        // SAFETY: may be called any time.
        unsafe { (self.functions.version)() }
    }

    /// Fixes the engine of a problem, and loads its kernels: the call is recorded and the record dropped.
    pub(crate) fn plan(self: &Arc<Self>, device: &Device, problem: &impl Problem) -> Result<Plan, BuildError> {
        let _current = Current::set(device.0.context)?;
        let refused = |failure: Failure| BuildError::Refused(failure.into());
        {
            // There are as many handles as plans, which bounds how many runs there are at a time.
            let mut made = lock(&self.made);
            if *made < MOST_HANDLES {
                let handle = Handle::new(&self.functions).map_err(refused)?;
                lock(&self.handles.free).push(handle);
                *made += 1;
            }
        }
        let capability = device.0.props.capability;
        let warm_up = |execution: &Execution| self.warm_up(device, execution);
        let engine = self.choose(problem, capability, warm_up).map_err(BuildError::Refused)?;
        let (workspace_bytes, launches) = (engine.execution.workspace_bytes(), engine.launches);
        Ok(Plan {
            engine: Some(Mutex::new(engine)),
            workspace_bytes,
            launches,
            cudnn: self.clone(),
            device: device.clone(),
        })
    }

    /// The first engine that may run the problem and that `warm_up` accepts.
    fn choose(
        &self,
        problem: &impl Problem,
        capability: u32,
        warm_up: impl Fn(&Execution) -> Result<u32, String>,
    ) -> Result<Engine, Reason> {
        let handle = lock(&self.builder);
        let version = self.version();
        let graph = problem.graph(&self.functions, handle.raw)?;
        let mut refused = Refused::default();
        for mode in [MODE_A, MODE_FALLBACK] {
            // What was said before is of something else.
            let _ = self.functions.said();
            let configs = match self.configs(&graph, mode) {
                Ok(configs) => configs,
                Err(failure) => {
                    refused.last = Some(failure.to_string());
                    continue;
                }
            };
            if configs.is_empty() {
                refused.last = self.functions.said().or(refused.last);
            }
            for config in configs {
                refused.offered += 1;
                let mut attempt = || {
                    let traits = Traits::of(&config).map_err(|failure| failure.to_string())?;
                    if !problem.admits(&traits, capability, version) {
                        refused.barred += 1;
                        return Ok(None);
                    }
                    let execution = self.execution(handle.raw, &config, &graph.tensors).map_err(|f| f.to_string())?;
                    if execution.workspace_bytes() > problem.workspace_bytes() {
                        refused.large += 1;
                        return Ok(None);
                    }
                    let launches = warm_up(&execution)?;
                    Ok(Some((traits, execution, launches)))
                };
                match attempt() {
                    Ok(Some((traits, execution, launches))) => {
                        tracing::debug!(
                            target: "baracuda_ops",
                            problem = problem.name(),
                            engine = traits.index,
                            notes = ?traits.notes(),
                            workspace_bytes = execution.workspace_bytes(),
                            "cuDNN engine chosen"
                        );
                        return Ok(Engine { execution, launches, _config: config, _graph: graph });
                    }
                    Ok(None) => {}
                    Err(words) => refused.last = Some(words),
                }
            }
        }
        Err(refused.reason(problem.workspace_bytes()))
    }

    /// The engines that a mode of the heuristics proposes, the best first.
    fn configs(&self, graph: &Graph, mode: HeuristicsMode) -> Result<Vec<Descriptor>, Failure> {
        let heuristics = Descriptor::new(&self.functions, HEURISTICS)?;
        heuristics.set(HEURISTICS_GRAPH, &[graph.whole.child()])?;
        heuristics.set(HEURISTICS_MODE, &[mode])?;
        let heuristics = heuristics.finalized()?;
        let count = heuristics.get::<Child>(HEURISTICS_RESULTS, &mut [])?;
        let configs = (0..count).map(|_| Descriptor::new(&self.functions, ENGINE_CONFIG));
        let mut configs = configs.collect::<Result<Vec<_>, _>>()?;
        let mut children: Vec<Child> = configs.iter().map(Descriptor::child).collect();
        // The list may have fewer than were counted, if some turn out not to serve.
        let filled = if count == 0 { 0 } else { heuristics.get(HEURISTICS_RESULTS, &mut children)? };
        configs.truncate(filled);
        Ok(configs)
    }

    fn execution(&self, handle: *mut c_void, config: &Descriptor, tensors: &Tensors) -> Result<Execution, Failure> {
        let plan = Descriptor::new(&self.functions, EXECUTION_PLAN)?;
        plan.set(EXECUTION_PLAN_HANDLE, &[Pointer::<0>(handle)])?;
        plan.set(EXECUTION_PLAN_CONFIG, &[config.child()])?;
        let plan = plan.finalized()?;
        let mut bytes = [0i64];
        plan.get(EXECUTION_PLAN_WORKSPACE_BYTES, &mut bytes)?;
        // A negative number would be an error of the library's, which no workspace serves.
        let engine_bytes = u64::try_from(bytes[0]).unwrap_or(u64::MAX);
        Ok(Execution { plan, engine_bytes, tensors: tensors.clone() })
    }

    /// Enqueues a run.
    ///
    /// # Safety
    /// As [`Plan::launch`].
    unsafe fn execute(&self, execution: &Execution, at: &At<'_>, stream: *mut c_void) -> Result<(), Failure> {
        let functions = &self.functions;
        let Tensors { ids, scratch, values, .. } = &execution.tensors;
        let mut addresses: [Address; MOST_ADDRESSES] = [Pointer(ptr::null_mut()); MOST_ADDRESSES];
        let mut offset = 0;
        let parts = scratch.iter().map(|&bytes| {
            let part = at.workspace.wrapping_byte_add(offset);
            offset = offset.saturating_add(to_usize(aligned(bytes)));
            part
        });
        let values = values.iter().map(|value| ptr::from_ref(value).cast_mut().cast());
        let mut count = 0;
        for (address, is) in addresses.iter_mut().zip(at.tensors.iter().copied().chain(parts).chain(values)) {
            *address = Pointer(is);
            count += 1;
        }
        let workspace = at.workspace.wrapping_byte_add(offset);
        // A finalized descriptor cannot be changed, so each run has one of its own.
        let pack = Descriptor::new(&self.functions, VARIANT_PACK)?;
        pack.set(VARIANT_PACK_UNIQUE_IDS, ids)?;
        pack.set(VARIANT_PACK_POINTERS, &addresses[..count])?;
        pack.set::<Address>(VARIANT_PACK_WORKSPACE, &[Pointer(workspace)])?;
        let pack = pack.finalized()?;
        // The null stream means the legacy stream to a library that is compiled as usual.
        let stream = if stream as usize == LEGACY_STREAM { ptr::null_mut() } else { stream };
        let handle = self.handles.lend();
        // SAFETY: no other run has the handle, and the stream is one of its device.
        functions.check(Call::SetStream, None, unsafe { (functions.set_stream)(handle.raw(), stream) })?;
        // SAFETY: no other run has the handle, both descriptors are finalized, values are read before the call returns, and the caller promises the rest.
        let status = unsafe { (functions.execute)(handle.raw(), execution.plan.raw, pack.raw) };
        functions.check(Call::Execute, None, status)
    }

    /// Records the call, drops the record, and returns how many launches it is. Kernels are content with addresses that nothing lies at;
    /// fills and copies, which some engines enqueue as well, are recorded with memory only.
    fn warm_up(&self, device: &Device, execution: &Execution) -> Result<u32, String> {
        let record = |at: At<'_>| {
            let mut said = None;
            let recorded = super::rehearse(|stream| {
                // SAFETY: recorded calls read and write no memory of the device.
                let failure = unsafe { self.execute(execution, &at, stream) }.err();
                let code = failure.as_ref().map_or(0, Failure::code);
                said = failure.map(|failure| failure.to_string());
                code
            });
            match recorded {
                Ok(Ok(launches)) => Ok(launches),
                Ok(Err(status)) => Err(match said {
                    Some(said) => format!("recorded, {said}"),
                    None => format!("a recorded call failed with status {status}"),
                }),
                Err(error) => Err(error.to_string()),
            }
        };
        let spans = &execution.tensors.spans;
        let address = |number: usize| dummy(number as u64) as *mut c_void;
        let dummies: Vec<_> = (0..spans.len()).map(address).collect();
        let words = match record(At { tensors: &dummies, workspace: address(spans.len()) }) {
            Ok(launches) => return Ok(launches),
            Err(words) => words,
        };
        let workspace_bytes = execution.workspace_bytes();
        let bytes = spans.iter().fold(workspace_bytes, |sum, &span| sum.saturating_add(span));
        if bytes > MOST_RECORDING_BYTES {
            return Err(words);
        }
        let alloc = |bytes| device.alloc(bytes).map_err(|error| error.to_string());
        let held = spans.iter().map(|&span| alloc(span)).collect::<Result<Vec<_>, _>>()?;
        let workspace = alloc(workspace_bytes)?;
        let tensors: Vec<_> = held.iter().map(|memory| memory.address() as *mut c_void).collect();
        record(At { tensors: &tensors, workspace: workspace.address() as *mut c_void })
    }
}

/// The next multiple of what parts of the workspace are aligned to.
fn aligned(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(WORKSPACE_ALIGN).unwrap_or(u64::MAX)
}

/// What cuDNN may run, as operations of a graph.
pub(crate) trait Problem {
    /// What it is, in a word.
    fn name(&self) -> &'static str;

    /// Its operations.
    fn graph(&self, functions: &Arc<Functions>, handle: *mut c_void) -> Result<Graph, Failure>;

    /// Whether an engine is exact and reproducible enough.
    fn admits(&self, engine: &Traits, capability: u32, version: usize) -> bool;

    /// The most workspace of a run.
    fn workspace_bytes(&self) -> u64;
}

/// What came of the proposed engines.
#[derive(Default)]
struct Refused {
    offered: u32,
    barred: u32,
    large: u32,
    /// Why the last of the engines failed.
    last: Option<String>,
}

impl Refused {
    fn reason(self, limit: u64) -> Reason {
        let Self { offered, barred, large, last } = self;
        let mut words = format!("cuDNN has no engine for it: of {offered} that it proposes");
        words += &format!(" {barred} are less exact, not reproducible or lose NaN");
        words += &format!(", {large} need more than {limit} bytes of workspace");
        if let Some(last) = last {
            words += &format!("; {last}");
        }
        words.into()
    }
}

fn tensor(
    functions: &Arc<Functions>,
    id: i64,
    tensor: &Tensor,
    is_virtual: bool,
    is_by_value: bool,
) -> Result<Descriptor, Failure> {
    let desc = Descriptor::new(functions, TENSOR)?;
    let rank = tensor.rank.min(MAX_RANK);
    desc.set(TENSOR_UNIQUE_ID, &[id])?;
    desc.set(TENSOR_DATA_TYPE, &[data_type(tensor.dtype)])?;
    desc.set(TENSOR_ALIGNMENT, &[if is_virtual { 16 } else { tensor.align_bytes }])?;
    desc.set(TENSOR_DIMENSIONS, &tensor.dims[..rank])?;
    desc.set(TENSOR_STRIDES, &tensor.strides[..rank])?;
    desc.set(TENSOR_IS_VIRTUAL, &[is_virtual])?;
    desc.set(TENSOR_IS_BY_VALUE, &[is_by_value])?;
    desc.finalized()
}

fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F64 => DATA_DOUBLE,
        DType::F16 => DATA_HALF,
        DType::BF16 => DATA_BFLOAT16,
        DType::I32 => DATA_INT32,
        DType::Bool => DATA_BOOLEAN,
        _ => DATA_FLOAT,
    }
}

/// An engine as it describes itself.
pub(crate) struct Traits {
    index: i64,
    list: [Note; NOTES],
    /// How many notes there are, which can be more than the list has room for.
    count: usize,
}

impl Traits {
    fn of(config: &Descriptor) -> Result<Self, Failure> {
        let engine = Descriptor::new(&config.functions, ENGINE)?;
        config.get(ENGINE_CONFIG_ENGINE, &mut [engine.child()])?;
        let mut index = [-1i64];
        engine.get(ENGINE_INDEX, &mut index)?;
        let mut list = [Number(-1); NOTES];
        let count = engine.get(ENGINE_NUMERICAL_NOTES, &mut list)?;
        Ok(Self { index: index[0], list, count })
    }

    fn notes(&self) -> &[Note] {
        &self.list[..self.count.min(NOTES)]
    }

    /// Whether the engine is exact and reproducible enough by its notes. A note that is not known here could say that it is not.
    fn is_exact(&self, tensor_cores: bool, is_reproducible: bool) -> bool {
        let allows = |&note: &Note| match note {
            NOTE_TENSOR_CORE => tensor_cores,
            NOTE_NONDETERMINISTIC => !is_reproducible,
            NOTE_STRICT_NAN_PROPAGATION => true,
            _ => false,
        };
        self.count <= NOTES && self.notes().iter().all(allows)
    }
}

/// The operations of a graph, and the tensors between them.
pub(crate) struct Graph {
    whole: Descriptor,
    tensors: Tensors,
    _parts: Vec<Descriptor>,
}

/// The tensors of a graph that have addresses: those of operands, then those in the workspace, then single values, which the library reads from here.
#[derive(Clone, Debug, Default)]
struct Tensors {
    /// Their numbers in the graph.
    ids: Vec<i64>,
    /// Bytes from the first to the last element of each operand.
    spans: Vec<u64>,
    /// Bytes of each tensor in the workspace.
    scratch: Vec<u64>,
    /// The bits of each value.
    values: Vec<u32>,
}

/// An engine that was chosen, with its plan.
struct Engine {
    execution: Execution,
    /// Launches of a run.
    launches: u32,
    _config: Descriptor,
    _graph: Graph,
}

/// The execution plan of the library.
struct Execution {
    plan: Descriptor,
    /// What the engine uses of the workspace.
    engine_bytes: u64,
    tensors: Tensors,
}

impl Execution {
    /// Workspace of a run: tensors in it, then what the engine uses.
    fn workspace_bytes(&self) -> u64 {
        self.tensors.scratch.iter().fold(self.engine_bytes, |sum, &bytes| sum.saturating_add(aligned(bytes)))
    }
}

/// An operand. The library wants four extents at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) dtype: DType,
    /// How many of the extents and strides count.
    pub(crate) rank: usize,
    pub(crate) dims: [i64; MAX_RANK],
    pub(crate) strides: [i64; MAX_RANK],
    pub(crate) align_bytes: i64,
}

impl Tensor {
    fn span_bytes(&self) -> u64 {
        let ends = self.dims.iter().zip(&self.strides).take(self.rank);
        let last = ends.fold(0i64, |sum, (dim, stride)| sum.saturating_add((dim - 1).saturating_mul(*stride)));
        u64::try_from(last).unwrap_or(0).saturating_add(1).saturating_mul(self.dtype.size_bytes())
    }
}

/// A problem ready to run.
pub(crate) struct Plan {
    /// Kept until the plan is dropped.
    engine: Option<Mutex<Engine>>,
    workspace_bytes: u64,
    launches: u32,
    cudnn: Arc<Cudnn>,
    /// Keeps the context alive, to which handles and engines belong.
    device: Device,
}

impl Plan {
    /// The workspace that a run uses.
    pub(crate) fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }

    /// Launches of a run.
    pub(crate) fn launches(&self) -> u32 {
        self.launches
    }

    /// Enqueues a run. Returns 0, or less where it fails, for [`failed`].
    ///
    /// # Safety
    /// - The addresses hold the operands that the problem describes, in its order and as aligned as it says.
    /// - The workspace holds as many bytes as the plan uses, at a multiple of [`WORKSPACE_ALIGN`].
    /// - The device's context is current and `stream` is one of its streams.
    pub(crate) unsafe fn launch(&self, at: &At<'_>, stream: *mut c_void) -> i32 {
        let Some(engine) = &self.engine else { return 0 };
        let engine = lock(engine);
        // SAFETY: the caller promises it.
        unsafe { self.cudnn.execute(&engine.execution, at, stream) }.err().map_or(0, |failure| failure.code())
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // Dropping the plan unloads the kernels that were compiled for it from the context.
        let _current = Current::set(self.device.0.context);
        drop(self.engine.take());
    }
}

/// The addresses of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// Of the operands, in the order in which the graph has them.
    pub(crate) tensors: &'a [*mut c_void],
    pub(crate) workspace: *mut c_void,
}

#[cfg(test)]
mod tests;
