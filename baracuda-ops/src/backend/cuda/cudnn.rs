//! cuDNN, opened at run time: its functions, handles of a device, and convolutions whose engine is fixed.
//!
//! A convolution is a graph of operations: the convolution, and in forward what is added to it and applied to it, with values in between that have
//! no memory. The heuristics propose engines for the graph, from the fastest they know on; the first is taken that is exact and reproducible enough
//! by its numerical notes, that [`ERRATA`] do not name, that needs no more workspace than there may be, and whose call can be recorded.
//!
//! Two threads may neither use one handle nor execute one plan at the same time: runs borrow a handle of the device, and a plan is locked.
//!
//! Before cuDNN 9.28 recorded calls of engines that are compiled at run time are valid as long as the plan lives.
//!
//! Source: the cuDNN documentation, and `cudnn_graph.h` of 9.28, in which what is used has been the same since 9.0. For [`ERRATA`]
//! pytorch/pytorch#188288.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::cublaslt::{dummy, file, functions};
use super::{Current, Device, LEGACY_STREAM};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::narrow::single;
use crate::ops::conv::pass::Pass;

/// What an engine may use of the workspace where the options set no limit.
pub(crate) const WORKSPACE_BYTES: u64 = 256 << 20;
/// Extents of a tensor: samples, channels, and up to three spatial ones.
pub(crate) const MAX_RANK: usize = 5;
/// The library whose functions are those of this file.
const MAJOR: usize = 9;
/// Handles for runs on one device: as many threads enqueue at the same time; further ones wait.
const MOST_HANDLES: usize = 4;
/// Memory spent on recording a call whose engine wants addresses that exist.
const MOST_RECORDING_BYTES: u64 = 1 << 30;

/// A `cudnnStatus_t`.
type Status = c_int;

// Numbers of cudnn_graph.h. Descriptors:
const POINTWISE: c_int = 0;
const CONVOLUTION: c_int = 1;
const ENGINE: c_int = 2;
const ENGINE_CONFIG: c_int = 3;
const HEURISTICS: c_int = 4;
const EXECUTION_PLAN: c_int = 5;
const CONVOLUTION_FORWARD: c_int = 10;
const CONVOLUTION_BACKWARD_FILTER: c_int = 11;
const CONVOLUTION_BACKWARD_DATA: c_int = 12;
const POINTWISE_OPERATION: c_int = 13;
const OPERATION_GRAPH: c_int = 15;
const VARIANT_PACK: c_int = 16;
const TENSOR: c_int = 17;
// Attributes:
const POINTWISE_MODE: c_int = 0;
const POINTWISE_MATH_PRECISION: c_int = 1;
const POINTWISE_NAN_PROPAGATION: c_int = 2;
const CONVOLUTION_COMPUTE_TYPE: c_int = 100;
const CONVOLUTION_MODE: c_int = 101;
const CONVOLUTION_DILATIONS: c_int = 102;
const CONVOLUTION_STRIDES: c_int = 103;
const CONVOLUTION_POST_PADDINGS: c_int = 104;
const CONVOLUTION_PRE_PADDINGS: c_int = 105;
const CONVOLUTION_SPATIAL_DIMS: c_int = 106;
const HEURISTICS_MODE: c_int = 200;
const HEURISTICS_GRAPH: c_int = 201;
const HEURISTICS_RESULTS: c_int = 202;
const ENGINE_CONFIG_ENGINE: c_int = 300;
const EXECUTION_PLAN_HANDLE: c_int = 400;
const EXECUTION_PLAN_CONFIG: c_int = 401;
const EXECUTION_PLAN_WORKSPACE_BYTES: c_int = 402;
/// Of the forward convolution alpha; beta, the convolution, the weight, x and y follow.
const FORWARD_ALPHA: c_int = 700;
/// As [`FORWARD_ALPHA`], of the gradient of the data, which is x there, and of y.
const DATA_ALPHA: c_int = 706;
/// As [`FORWARD_ALPHA`], of the gradient of the weight, which is the weight there, and of y.
const FILTER_ALPHA: c_int = 712;
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
const DATA_BFLOAT16: DataType = Number(9);
const CROSS_CORRELATION: Number<7> = Number(1);
const MODE_FALLBACK: HeuristicsMode = Number(2);
const MODE_A: HeuristicsMode = Number(3);
const POINTWISE_ADD: PointwiseMode = Number(0);
const POINTWISE_RELU: PointwiseMode = Number(100);
const PROPAGATE_NAN: Number<10> = Number(1);
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
    Functions {
        version = "cudnnGetVersion": unsafe extern "C" fn() -> usize,
        /// The version of the CUDA runtime in it: 1000 times major plus 10 times minor.
        runtime = "cudnnGetCudartVersion": unsafe extern "C" fn() -> usize,
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

/// A call of the library that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    call: Call,
    /// The number of the attribute or, if the call has none, of the kind of descriptor.
    about: Option<c_int>,
    status: Status,
}

/// Greater than every status.
const STATUSES: i32 = 100_000;

impl Failure {
    fn check(call: Call, about: Option<c_int>, status: Status) -> Result<(), Self> {
        if status == 0 { Ok(()) } else { Err(Self { call, about, status }) }
    }

    /// The error as a launch's status: less than 0, and read by [`failed`].
    fn code(self) -> i32 {
        -((1 + self.call as i32) * STATUSES + self.status.clamp(1, STATUSES - 1))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, about, status } = self;
        f.write_str(call.name())?;
        if let Some(about) = about {
            write!(f, " {about}")?;
        }
        write!(f, " failed with cudnnStatus_t {status}")
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
        Failure::check(Call::CreateDescriptor, Some(kind), status)?;
        Ok(Self { raw, kind, functions: functions.clone() })
    }

    fn set<T: Element>(&self, attribute: c_int, values: &[T]) -> Result<(), Failure> {
        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: the values are those of the type, and as many as are said; they are copied.
        let status =
            unsafe { (self.functions.set_attribute)(self.raw, attribute, T::TYPE, count, values.as_ptr().cast()) };
        Failure::check(Call::SetAttribute, Some(attribute), status)
    }

    /// Reads as many values as there is room for. Returns how many there are.
    fn get<T: Element>(&self, attribute: c_int, into: &mut [T]) -> Result<usize, Failure> {
        let room = i64::try_from(into.len()).unwrap_or(i64::MAX);
        let to = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast() };
        let mut count = 0;
        // SAFETY: there is room for as many values of the type as are said.
        let status = unsafe { (self.functions.get_attribute)(self.raw, attribute, T::TYPE, room, &mut count, to) };
        Failure::check(Call::GetAttribute, Some(attribute), status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn finalized(self) -> Result<Self, Failure> {
        // SAFETY: the descriptor exists.
        let status = unsafe { (self.functions.finalize)(self.raw) };
        Failure::check(Call::Finalize, Some(self.kind), status)?;
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
        Failure::check(Call::Create, None, status)?;
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

    /// Fixes the engine of a convolution, and loads its kernels: the call is recorded and the record dropped.
    pub(crate) fn plan(self: &Arc<Self>, device: &Device, problem: &ConvProblem) -> Result<Plan, BuildError> {
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
        let warm_up = |execution: &Execution| self.warm_up(device, problem, execution);
        let engine = self.choose(problem, capability, warm_up).map_err(BuildError::Refused)?;
        let (workspace_bytes, launches) = (engine.execution.workspace_bytes, engine.launches);
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
        problem: &ConvProblem,
        capability: u32,
        warm_up: impl Fn(&Execution) -> Result<u32, String>,
    ) -> Result<Engine, Reason> {
        let handle = lock(&self.builder);
        let version = self.version();
        let graph = self.graph(handle.raw, problem)?;
        let mut refused = Refused::default();
        for mode in [MODE_A, MODE_FALLBACK] {
            let configs = match self.configs(&graph, mode) {
                Ok(configs) => configs,
                Err(failure) => {
                    refused.last = Some(failure.to_string());
                    continue;
                }
            };
            for config in configs {
                refused.offered += 1;
                let mut attempt = || {
                    let traits = Traits::of(&config).map_err(|failure| failure.to_string())?;
                    if !traits.serves(problem, capability, version) {
                        refused.barred += 1;
                        return Ok(None);
                    }
                    let execution = self.execution(handle.raw, &config, problem).map_err(|f| f.to_string())?;
                    if execution.workspace_bytes > problem.workspace_bytes {
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
                            pass = ?problem.pass,
                            engine = traits.index,
                            notes = ?traits.notes(),
                            workspace_bytes = execution.workspace_bytes,
                            "cuDNN engine chosen"
                        );
                        return Ok(Engine { execution, launches, _config: config, _graph: graph });
                    }
                    Ok(None) => {}
                    Err(words) => refused.last = Some(words),
                }
            }
        }
        Err(refused.reason(problem.workspace_bytes))
    }

    /// The operations of a problem.
    fn graph(&self, handle: *mut c_void, problem: &ConvProblem) -> Result<Graph, Failure> {
        let functions = &self.functions;
        let compute = problem.compute_type();
        // 1. What has memory, and what lies between operations.
        let x = tensor(functions, Id::X, &problem.x, false)?;
        let weight = tensor(functions, Id::Weight, &problem.weight, false)?;
        let y = tensor(functions, Id::Y, &problem.y, false)?;
        let bias = problem.bias.as_ref().map(|bias| tensor(functions, Id::Bias, bias, false)).transpose()?;
        let between = |id| tensor(functions, id, &Tensor { dtype: problem.sum_type(), ..problem.y }, true);
        let sum = if bias.is_some() || problem.relu { Some(between(Id::Sum)?) } else { None };
        let pre = if bias.is_some() && problem.relu { Some(between(Id::Pre)?) } else { None };
        let mut parts = Vec::new();
        // 2. The convolution.
        let window = Descriptor::new(functions, CONVOLUTION)?;
        let count = problem.rank.saturating_sub(2).min(MAX_RANK - 2);
        let spatial = i64::try_from(count).unwrap_or(0);
        window.set(CONVOLUTION_COMPUTE_TYPE, &[compute])?;
        window.set(CONVOLUTION_MODE, &[CROSS_CORRELATION])?;
        window.set(CONVOLUTION_SPATIAL_DIMS, &[spatial])?;
        window.set(CONVOLUTION_DILATIONS, &problem.dilation[..count])?;
        window.set(CONVOLUTION_STRIDES, &problem.stride[..count])?;
        window.set(CONVOLUTION_PRE_PADDINGS, &problem.padding[..count])?;
        window.set(CONVOLUTION_POST_PADDINGS, &problem.padding[..count])?;
        let window = window.finalized()?;
        let (kind, alpha) = match problem.pass {
            Pass::Forward => (CONVOLUTION_FORWARD, FORWARD_ALPHA),
            Pass::Data => (CONVOLUTION_BACKWARD_DATA, DATA_ALPHA),
            Pass::Weight => (CONVOLUTION_BACKWARD_FILTER, FILTER_ALPHA),
        };
        let convolution = Descriptor::new(functions, kind)?;
        if problem.sum_type() == DType::F64 {
            convolution.set(alpha, &[1.0f64])?;
            convolution.set(alpha + 1, &[problem.beta])?;
        } else {
            convolution.set(alpha, &[1.0f32])?;
            convolution.set(alpha + 1, &[single(problem.beta)])?;
        }
        convolution.set(alpha + 2, &[window.child()])?;
        convolution.set(alpha + 3, &[weight.child()])?;
        convolution.set(alpha + 4, &[x.child()])?;
        convolution.set(alpha + 5, &[sum.as_ref().unwrap_or(&y).child()])?;
        let mut operations = vec![convolution.finalized()?];
        // 3. What is added to the result and applied to it.
        let mut pointwise = |mode, x: &Descriptor, bias: Option<&Descriptor>, to: &Descriptor| {
            let function = Descriptor::new(functions, POINTWISE)?;
            function.set(POINTWISE_MODE, &[mode])?;
            function.set(POINTWISE_MATH_PRECISION, &[compute])?;
            if mode == POINTWISE_RELU {
                function.set(POINTWISE_NAN_PROPAGATION, &[PROPAGATE_NAN])?;
            }
            let function = function.finalized()?;
            let operation = Descriptor::new(functions, POINTWISE_OPERATION)?;
            operation.set(POINTWISE_OPERATION_DESC, &[function.child()])?;
            operation.set(POINTWISE_OPERATION_X, &[x.child()])?;
            if let Some(bias) = bias {
                operation.set(POINTWISE_OPERATION_B, &[bias.child()])?;
            }
            operation.set(POINTWISE_OPERATION_Y, &[to.child()])?;
            operations.push(operation.finalized()?);
            parts.push(function);
            Ok::<_, Failure>(())
        };
        if let (Some(bias), Some(sum)) = (&bias, &sum) {
            pointwise(POINTWISE_ADD, sum, Some(bias), pre.as_ref().unwrap_or(&y))?;
        }
        if let (true, Some(last)) = (problem.relu, pre.as_ref().or(sum.as_ref())) {
            pointwise(POINTWISE_RELU, last, None, &y)?;
        }
        // 4. The whole graph.
        let graph = Descriptor::new(functions, OPERATION_GRAPH)?;
        let children: Vec<Child> = operations.iter().map(Descriptor::child).collect();
        graph.set(GRAPH_HANDLE, &[Pointer::<0>(handle)])?;
        graph.set(GRAPH_OPERATIONS, &children)?;
        let whole = graph.finalized()?;
        parts.extend(operations);
        parts.push(window);
        parts.extend([x, weight, y].into_iter().chain(bias).chain(sum).chain(pre));
        Ok(Graph { whole, _parts: parts })
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

    fn execution(&self, handle: *mut c_void, config: &Descriptor, problem: &ConvProblem) -> Result<Execution, Failure> {
        let plan = Descriptor::new(&self.functions, EXECUTION_PLAN)?;
        plan.set(EXECUTION_PLAN_HANDLE, &[Pointer::<0>(handle)])?;
        plan.set(EXECUTION_PLAN_CONFIG, &[config.child()])?;
        let plan = plan.finalized()?;
        let mut bytes = [0i64];
        plan.get(EXECUTION_PLAN_WORKSPACE_BYTES, &mut bytes)?;
        // A negative number would be an error of the library's, which no workspace serves.
        let workspace_bytes = u64::try_from(bytes[0]).unwrap_or(u64::MAX);
        Ok(Execution { plan, workspace_bytes, has_bias: problem.bias.is_some() })
    }

    /// Enqueues a convolution.
    ///
    /// # Safety
    /// As [`Plan::launch`].
    unsafe fn execute(&self, execution: &Execution, at: &Operands, stream: *mut c_void) -> Result<(), Failure> {
        let functions = &self.functions;
        let (ids, addresses) = at.listed();
        let count = if execution.has_bias { ids.len() } else { ids.len() - 1 };
        // A finalized descriptor cannot be changed, so each run has one of its own.
        let pack = Descriptor::new(&self.functions, VARIANT_PACK)?;
        pack.set(VARIANT_PACK_UNIQUE_IDS, &ids[..count])?;
        pack.set(VARIANT_PACK_POINTERS, &addresses[..count])?;
        pack.set::<Address>(VARIANT_PACK_WORKSPACE, &[Pointer(at.workspace)])?;
        let pack = pack.finalized()?;
        // The null stream means the legacy stream to a library that is compiled as usual.
        let stream = if stream as usize == LEGACY_STREAM { ptr::null_mut() } else { stream };
        let handle = self.handles.lend();
        // SAFETY: no other run has the handle, and the stream is one of its device.
        Failure::check(Call::SetStream, None, unsafe { (functions.set_stream)(handle.raw(), stream) })?;
        // SAFETY: no other run has the handle, both descriptors are finalized, and the caller promises the rest.
        let status = unsafe { (functions.execute)(handle.raw(), execution.plan.raw, pack.raw) };
        Failure::check(Call::Execute, None, status)
    }

    /// Records the call, drops the record, and returns how many launches it is. Kernels are content with addresses that nothing lies at;
    /// fills and copies, which some engines enqueue as well, are recorded with memory only.
    fn warm_up(&self, device: &Device, problem: &ConvProblem, execution: &Execution) -> Result<u32, String> {
        let record = |at: Operands| {
            let recorded = super::rehearse(|stream| {
                // SAFETY: recorded calls read and write no memory of the device.
                unsafe { self.execute(execution, &at, stream) }.err().map_or(0, Failure::code)
            });
            match recorded {
                Ok(Ok(launches)) => Ok(launches),
                Ok(Err(status)) => Err(match failed(status) {
                    Some((call, status)) => format!("{call}, recorded, failed with cudnnStatus_t {status}"),
                    None => format!("a recorded call failed with status {status}"),
                }),
                Err(error) => Err(error.to_string()),
            }
        };
        let dummies = Operands {
            x: dummy(0) as *mut c_void,
            weight: dummy(1) as *mut c_void,
            y: dummy(2) as *mut c_void,
            bias: dummy(3) as *mut c_void,
            workspace: dummy(4) as *mut c_void,
        };
        let words = match record(dummies) {
            Ok(launches) => return Ok(launches),
            Err(words) => words,
        };
        let spans = [Some(&problem.x), Some(&problem.weight), Some(&problem.y), problem.bias.as_ref()]
            .map(|tensor| tensor.map_or(0, Tensor::span_bytes));
        let bytes = spans.iter().fold(execution.workspace_bytes, |sum, &span| sum.saturating_add(span));
        if bytes > MOST_RECORDING_BYTES {
            return Err(words);
        }
        let alloc = |bytes| device.alloc(bytes).map_err(|error| error.to_string());
        let [x, weight, y, bias] = spans;
        let held = [alloc(x)?, alloc(weight)?, alloc(y)?, alloc(bias)?, alloc(execution.workspace_bytes)?];
        let [x, weight, y, bias, workspace] = held.each_ref().map(|memory| memory.address() as *mut c_void);
        record(Operands { x, weight, y, bias, workspace })
    }
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

/// Numbers of tensors in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    X = 1,
    Weight,
    Y,
    Bias,
    /// The sums of the convolution, before anything is added.
    Sum,
    /// The value that ReLU is applied to.
    Pre,
}

fn tensor(functions: &Arc<Functions>, id: Id, tensor: &Tensor, is_virtual: bool) -> Result<Descriptor, Failure> {
    let desc = Descriptor::new(functions, TENSOR)?;
    let rank = tensor.rank.min(MAX_RANK);
    desc.set(TENSOR_UNIQUE_ID, &[id as i64])?;
    desc.set(TENSOR_DATA_TYPE, &[data_type(tensor.dtype)])?;
    desc.set(TENSOR_ALIGNMENT, &[if is_virtual { 16 } else { tensor.align_bytes }])?;
    desc.set(TENSOR_DIMENSIONS, &tensor.dims[..rank])?;
    desc.set(TENSOR_STRIDES, &tensor.strides[..rank])?;
    desc.set(TENSOR_IS_VIRTUAL, &[is_virtual])?;
    desc.set(TENSOR_IS_BY_VALUE, &[false])?;
    desc.finalized()
}

fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F64 => DATA_DOUBLE,
        DType::F16 => DATA_HALF,
        DType::BF16 => DATA_BFLOAT16,
        _ => DATA_FLOAT,
    }
}

/// An engine as it describes itself.
struct Traits {
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

    /// Whether the engine is exact and reproducible enough. A note that is not known here could say that it is not.
    fn serves(&self, problem: &ConvProblem, capability: u32, version: usize) -> bool {
        let allows = |&note: &Note| match note {
            NOTE_TENSOR_CORE => problem.tensor_cores,
            NOTE_NONDETERMINISTIC => !problem.is_reproducible,
            NOTE_STRICT_NAN_PROPAGATION => true,
            _ => false,
        };
        let bars = |erratum: &Erratum| {
            let Erratum { pass, engine, fault, capabilities, versions } = erratum;
            let is_named = *pass == problem.pass && *engine == self.index;
            let matters = match fault {
                Fault::Varies => problem.is_reproducible,
                Fault::IsInexact => !problem.tensor_cores,
                Fault::LosesInfinity(dtype) => *dtype == problem.x.dtype,
            };
            is_named && matters && capabilities.contains(&capability) && versions.contains(&version)
        };
        let keeps_nan = !problem.relu || self.notes().contains(&NOTE_STRICT_NAN_PROPAGATION);
        self.count <= NOTES && self.notes().iter().all(allows) && keeps_nan && !ERRATA.iter().any(bars)
    }
}

/// A fault of an engine that no note mentions.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Results differ from run to run.
    Varies,
    /// Results of f32 have about 10 bits.
    IsInexact,
    /// Results of this type are 0 in place of an infinity.
    LosesInfinity(DType),
}

/// An engine with a fault.
struct Erratum {
    pass: Pass,
    engine: i64,
    fault: Fault,
    /// Compute capabilities: major times 10 plus minor.
    capabilities: Range<u32>,
    /// Versions of the library.
    versions: Range<usize>,
}

/// Engines that are known to have such faults.
const ERRATA: &[Erratum] = &[
    Erratum { fault: Fault::Varies, pass: Pass::Forward, engine: 5, capabilities: 86..87, versions: 92300..92400 },
    // Seen with version 9.19 on an H200, with 40 and 131 channels of 2 x 3 elements. It is not known where else it occurs.
    Erratum {
        fault: Fault::IsInexact,
        pass: Pass::Weight,
        engine: 17,
        capabilities: ANY_CAPABILITY,
        versions: ANY_VERSION,
    },
    // Seen with version 9.19 on an H200, channels last, with 3 channels.
    Erratum {
        fault: Fault::LosesInfinity(DType::F16),
        pass: Pass::Forward,
        engine: 47,
        capabilities: ANY_CAPABILITY,
        versions: ANY_VERSION,
    },
];

const ANY_CAPABILITY: Range<u32> = 0..u32::MAX;
const ANY_VERSION: Range<usize> = 0..usize::MAX;

/// The operations of a graph, and the tensors between them.
struct Graph {
    whole: Descriptor,
    _parts: Vec<Descriptor>,
}

/// An engine that was chosen, with its plan.
struct Engine {
    execution: Execution,
    /// Workspace of a run.
    launches: u32,
    _config: Descriptor,
    _graph: Graph,
}

/// The execution plan of the library.
struct Execution {
    plan: Descriptor,
    workspace_bytes: u64,
    has_bias: bool,
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

/// A convolution: `out = result + beta * out`, where forward may add a bias and apply ReLU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConvProblem {
    pub(crate) pass: Pass,
    /// Extents of each operand but the bias; all have the same rank.
    pub(crate) rank: usize,
    /// The type of x, or of its gradient if that is computed. The two fields after this one likewise have the types of weight and y, or of their
    /// gradients.
    pub(crate) x: Tensor,
    pub(crate) weight: Tensor,
    pub(crate) y: Tensor,
    pub(crate) bias: Option<Tensor>,
    pub(crate) relu: bool,
    /// One for each spatial extent, of which there are two fewer than the rank; the two fields after this one have as many.
    pub(crate) stride: [i64; MAX_RANK - 2],
    pub(crate) dilation: [i64; MAX_RANK - 2],
    /// Padding on both sides.
    pub(crate) padding: [i64; MAX_RANK - 2],
    pub(crate) beta: f64,
    /// Whether tensor cores may multiply. They round f32 to tf32.
    pub(crate) tensor_cores: bool,
    /// Whether every run must compute the same bits.
    pub(crate) is_reproducible: bool,
    pub(crate) workspace_bytes: u64,
}

impl ConvProblem {
    /// What sums are made in.
    fn sum_type(&self) -> DType {
        self.x.dtype.accumulator()
    }

    fn compute_type(&self) -> DataType {
        data_type(self.sum_type())
    }
}

/// A convolution ready to run.
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

    /// Enqueues the convolution. Returns 0, or less where it fails, for [`failed`].
    ///
    /// # Safety
    /// - The addresses hold the tensors that the problem describes, as aligned as it says; that of an absent bias is not read.
    /// - The workspace holds as many bytes as the plan uses, at a multiple of 256.
    /// - The device's context is current and `stream` is one of its streams.
    pub(crate) unsafe fn launch(&self, at: &Operands, stream: *mut c_void) -> i32 {
        let Some(engine) = &self.engine else { return 0 };
        let engine = lock(engine);
        // SAFETY: the caller promises it.
        unsafe { self.cudnn.execute(&engine.execution, at, stream) }.err().map_or(0, Failure::code)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // Dropping the plan unloads the kernels that were compiled for it from the context.
        let _current = Current::set(self.device.0.context);
        drop(self.engine.take());
    }
}

/// The addresses of a run's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) x: *mut c_void,
    pub(crate) weight: *mut c_void,
    pub(crate) y: *mut c_void,
    /// Null without a bias.
    pub(crate) bias: *mut c_void,
    pub(crate) workspace: *mut c_void,
}

impl Operands {
    /// The numbers and the addresses of the tensors that have memory, the bias last.
    fn listed(&self) -> ([i64; 4], [Address; 4]) {
        let ids = [Id::X, Id::Weight, Id::Y, Id::Bias].map(|id| id as i64);
        (ids, [self.x, self.weight, self.y, self.bias].map(Pointer))
    }
}

#[cfg(test)]
mod tests;
