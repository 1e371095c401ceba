//! cuBLASLt, opened at run time: its functions, a handle of a device, and products whose algorithm is fixed.
//!
//! Matrices are column-major here, so that a row-major product is that of the factors in reverse order. Epilogues are none and bias: those with an
//! activation turn NaN into 0. Parts of sums are added in the compute type, in a fixed order.
//!
//! Source: the cuBLAS documentation, and `cublasLt.h` of CUDA 13.0, which agrees with 12 in what is used.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::Arc;

use libloading::Library;

use super::{Current, Device};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::narrow::single;

/// What a product may use of the workspace where the options set no limit.
pub(crate) const WORKSPACE_BYTES: u64 = 32 << 20;
/// The newest and the oldest library whose functions are those of this file.
const MAJORS: [u32; 2] = [13, 12];

/// A `cublasStatus_t`.
type Status = c_int;

// Numbers of cublasLt.h and library_types.h.
const R_32F: c_int = 0;
const R_64F: c_int = 1;
const R_16F: c_int = 2;
const R_16BF: c_int = 14;
const COMPUTE_32F: c_int = 68;
const COMPUTE_64F: c_int = 70;
const COMPUTE_32F_FAST_TF32: c_int = 77;
const DESC_TRANSPOSE_A: c_int = 3;
const DESC_TRANSPOSE_B: c_int = 4;
const DESC_EPILOGUE: c_int = 7;
const DESC_BIAS_POINTER: c_int = 8;
const LAYOUT_BATCH_COUNT: c_int = 5;
const LAYOUT_BATCH_STRIDE: c_int = 6;
const PREFERENCE_WORKSPACE_BYTES: c_int = 1;
const PREFERENCE_REDUCTION_SCHEMES: c_int = 3;
/// The attribute of A; those of B, C and D follow.
const PREFERENCE_ALIGNMENT_A: c_int = 5;
const EPILOGUE_BIAS: u32 = 4;
const REDUCE_IN_COMPUTE_TYPE: u32 = 2;

/// A `cublasLtMatmulDescOpaque_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Desc([u64; 32]);

/// A `cublasLtMatrixLayoutOpaque_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Layout([u64; 8]);

/// A `cublasLtMatmulPreferenceOpaque_t`.
#[repr(C)]
struct Preference([u64; 8]);

/// A `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Algorithm([u64; 8]);

/// A `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct Heuristic {
    algorithm: Algorithm,
    workspace_bytes: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Heuristic>() == 96 && offset_of!(Heuristic, state) == 72);

type Set = unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> Status;

/// Functions of a library that is opened at run time: of each the symbol and the type, which is that of the header.
macro_rules! functions {
    ($(#[$doc:meta])* $vis:vis $Functions:ident { $($(#[$of:meta])* $function:ident = $symbol:literal: $type:ty,)* }) => {
        $(#[$doc])*
        $vis struct $Functions {
            $($(#[$of])* $function: $type,)*
        }

        impl $Functions {
            fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the header.
                unsafe { Ok(Self { $($function: *library.get(concat!($symbol, "\0").as_bytes())?,)* }) }
            }
        }
    };
}
pub(super) use functions;

functions! {
    /// The functions of cuBLASLt that are used.
    Functions {
        create = "cublasLtCreate": unsafe extern "C" fn(*mut *mut c_void) -> Status,
        destroy = "cublasLtDestroy": unsafe extern "C" fn(*mut c_void) -> Status,
        version = "cublasLtGetVersion": unsafe extern "C" fn() -> usize,
        init_desc = "cublasLtMatmulDescInit_internal": unsafe extern "C" fn(*mut Desc, usize, c_int, c_int) -> Status,
        set_desc = "cublasLtMatmulDescSetAttribute": Set,
        init_layout = "cublasLtMatrixLayoutInit_internal":
            unsafe extern "C" fn(*mut Layout, usize, c_int, u64, u64, i64) -> Status,
        set_layout = "cublasLtMatrixLayoutSetAttribute": Set,
        init_preference = "cublasLtMatmulPreferenceInit_internal": unsafe extern "C" fn(*mut Preference, usize) -> Status,
        set_preference = "cublasLtMatmulPreferenceSetAttribute": Set,
        heuristic = "cublasLtMatmulAlgoGetHeuristic": unsafe extern "C" fn(
            *mut c_void,
            *const Desc,
            *const Layout,
            *const Layout,
            *const Layout,
            *const Layout,
            *const Preference,
            c_int,
            *mut Heuristic,
            *mut c_int,
        ) -> Status,
        matmul = "cublasLtMatmul": unsafe extern "C" fn(
            *mut c_void,
            *const Desc,
            *const c_void,
            *const c_void,
            *const Layout,
            *const c_void,
            *const Layout,
            *const c_void,
            *const c_void,
            *const Layout,
            *mut c_void,
            *const Layout,
            *const Algorithm,
            *mut c_void,
            usize,
            *mut c_void,
        ) -> Status,
    }
}

/// The file of a version of one of the vendor's libraries.
pub(super) fn file(library: &str, major: impl std::fmt::Display) -> String {
    if cfg!(windows) { format!("{library}64_{major}.dll") } else { format!("lib{library}.so.{major}") }
}

/// A version as people write it.
pub(crate) fn version_words(version: usize) -> String {
    format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
}

/// The library, and a handle for one device.
pub(crate) struct CublasLt {
    handle: *mut c_void,
    functions: Functions,
    /// The opened library, after the functions, which point into it: fields are dropped in this order.
    _library: Library,
}

// SAFETY: the library may be called with one handle from every thread.
unsafe impl Send for CublasLt {}
// SAFETY: the library may be called with one handle from several threads at once.
unsafe impl Sync for CublasLt {}

impl CublasLt {
    /// Opens the newest library that the driver can serve; the device's context is current.
    pub(super) fn open(driver: u32) -> Result<Self, Reason> {
        let served = MAJORS.into_iter().filter(|&major| major <= driver / 1000);
        let served: Vec<String> = served.map(|major| file("cublasLt", major)).collect();
        // SAFETY: the library runs its own initialisation only.
        let found = served.iter().find_map(|name| unsafe { Library::new(name) }.ok());
        let Some(library) = found else {
            return Err(match served.is_empty() {
                true => format!("the driver serves CUDA {}, cuBLASLt is used from CUDA 12 on", driver / 1000).into(),
                false => format!("cuBLASLt is not found: the loader knows no {}", served.join(" or ")).into(),
            });
        };
        let functions = Functions::of(&library).map_err(|e| Reason::from(format!("cuBLASLt lacks a function: {e}")))?;
        let mut handle = ptr::null_mut();
        // SAFETY: a context is current and the pointer is valid; the handle is destroyed in `Drop`.
        match unsafe { (functions.create)(&mut handle) } {
            0 => Ok(Self { handle, functions, _library: library }),
            status => Err(format!("cublasLtCreate failed with cublasStatus_t {status}").into()),
        }
    }

    /// The library's version: 10000 times major, plus 100 times minor, plus patch.
    pub(crate) fn version(&self) -> usize {
        // SAFETY: may be called any time.
        unsafe { (self.functions.version)() }
    }

    /// Fixes the algorithm of a product, and loads its kernels: the call is captured once and the capture dropped.
    pub(crate) fn plan(self: &Arc<Self>, device: &Device, problem: &ProductProblem) -> Result<Plan, BuildError> {
        let _current = Current::set(device.0.context)?;
        let refused = |reason: String| BuildError::Refused(reason.into());
        let functions = &self.functions;
        let scale = if problem.dtype == DType::F64 { R_64F } else { R_32F };
        let compute = match (problem.dtype, problem.tf32) {
            (DType::F64, _) => COMPUTE_64F,
            (DType::F32, true) => COMPUTE_32F_FAST_TF32,
            _ => COMPUTE_32F,
        };
        // 1. What is computed.
        let mut desc = Desc([0; 32]);
        // SAFETY: the struct is as large as the size says.
        check("cublasLtMatmulDescInit", unsafe {
            (functions.init_desc)(&mut desc, size_of::<Desc>(), compute, scale)
        })?;
        self.set_desc(&mut desc, DESC_TRANSPOSE_A, &i32::from(problem.first.is_transposed))?;
        self.set_desc(&mut desc, DESC_TRANSPOSE_B, &i32::from(problem.second.is_transposed))?;
        if problem.bias {
            self.set_desc(&mut desc, DESC_EPILOGUE, &EPILOGUE_BIAS)?;
            self.set_desc(&mut desc, DESC_BIAS_POINTER, &dummy(3))?;
        }
        // 2. Where the matrices lie.
        let layout = |factor: &Factor, dtype: DType, rows: u64, columns: u64| -> Result<Layout, BuildError> {
            let mut layout = Layout([0; 8]);
            let [rows, columns] = if factor.is_transposed { [columns, rows] } else { [rows, columns] };
            let leading = i64::try_from(factor.leading).map_err(|e| refused(e.to_string()))?;
            let size = size_of::<Layout>();
            // SAFETY: the struct is as large as the size says.
            check("cublasLtMatrixLayoutInit", unsafe {
                (functions.init_layout)(&mut layout, size, c_type(dtype), rows, columns, leading)
            })?;
            let count = i32::try_from(problem.batch).map_err(|e| refused(e.to_string()))?;
            let stride = i64::try_from(factor.batch).map_err(|e| refused(e.to_string()))?;
            let set = (functions.set_layout, "cublasLtMatrixLayoutSetAttribute");
            // SAFETY: the attributes have the types of the header.
            unsafe {
                set_attribute(set, &mut layout, LAYOUT_BATCH_COUNT, &count)?;
                set_attribute(set, &mut layout, LAYOUT_BATCH_STRIDE, &stride)?;
            }
            Ok(layout)
        };
        let layouts = [
            layout(&problem.first, problem.dtype, problem.rows, problem.depth)?,
            layout(&problem.second, problem.dtype, problem.depth, problem.columns)?,
            layout(&problem.out, problem.out_dtype, problem.rows, problem.columns)?,
        ];
        // 3. The algorithm.
        let mut preference = Preference([0; 8]);
        // SAFETY: the struct is as large as the size says.
        check("cublasLtMatmulPreferenceInit", unsafe {
            (functions.init_preference)(&mut preference, size_of::<Preference>())
        })?;
        let aligned = |bytes: u64| bytes.min(256) as u32;
        let [a, b, d] = [problem.first.align_bytes, problem.second.align_bytes, problem.out.align_bytes].map(aligned);
        let words = [a, b, d, d].into_iter().zip(PREFERENCE_ALIGNMENT_A..);
        let set = (functions.set_preference, "cublasLtMatmulPreferenceSetAttribute");
        for (value, attribute) in words.chain([(REDUCE_IN_COMPUTE_TYPE, PREFERENCE_REDUCTION_SCHEMES)]) {
            // SAFETY: the attribute has the type of the header.
            unsafe { set_attribute(set, &mut preference, attribute, &value)? };
        }
        // SAFETY: the attribute has the type of the header.
        unsafe { set_attribute(set, &mut preference, PREFERENCE_WORKSPACE_BYTES, &problem.workspace_bytes)? };
        let mut best =
            Heuristic { algorithm: Algorithm([0; 8]), workspace_bytes: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        let [of_a, of_b, of_d] = &layouts;
        // SAFETY: the library initialised all structs, and there is room for one result.
        let status = unsafe {
            (functions.heuristic)(self.handle, &desc, of_a, of_b, of_d, of_d, &preference, 1, &mut best, &mut count)
        };
        if status != 0 || count < 1 || best.state != 0 {
            return Err(refused(format!("cuBLASLt has no algorithm for it: cublasStatus_t {status}")));
        }
        let scalars = if problem.dtype == DType::F64 {
            [problem.alpha.to_bits(), problem.beta.to_bits()]
        } else {
            [problem.alpha, problem.beta].map(|scalar| u64::from(single(scalar).to_bits()))
        };
        // Scalars are read from the first bytes.
        let scalars =
            if cfg!(target_endian = "big") && problem.dtype != DType::F64 { scalars.map(|s| s << 32) } else { scalars };
        let mut plan = Plan {
            library: self.clone(),
            device: device.clone(),
            desc,
            layouts,
            algorithm: best.algorithm,
            workspace_bytes: best.workspace_bytes,
            scalars,
            has_bias: problem.bias,
            launches: 0,
        };
        // 4. Its kernels.
        plan.launches = plan.warm_up()?;
        Ok(plan)
    }

    fn set_desc<T>(&self, desc: &mut Desc, attribute: c_int, value: &T) -> Result<(), Reason> {
        // SAFETY: the attribute has the type of the header.
        unsafe { set_attribute((self.functions.set_desc, "cublasLtMatmulDescSetAttribute"), desc, attribute, value) }
    }
}

/// # Safety
/// The function sets attributes of such objects, and this one has that type.
unsafe fn set_attribute<O, T>((set, call): (Set, &str), of: &mut O, attribute: c_int, value: &T) -> Result<(), Reason> {
    // SAFETY: the caller promises the type; the size is that of the value.
    let status = unsafe { set(ptr::from_mut(of).cast(), attribute, ptr::from_ref(value).cast(), size_of::<T>()) };
    check(&format!("{call} {attribute}"), status)
}

fn check(call: &str, status: Status) -> Result<(), Reason> {
    if status == 0 { Ok(()) } else { Err(format!("{call} failed with cublasStatus_t {status}").into()) }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: created in `open`, and no plan is left.
        let _ = unsafe { (self.functions.destroy)(self.handle) };
    }
}

/// Addresses that are never read: they are aligned as well as any promise asks for.
pub(super) fn dummy(number: u64) -> u64 {
    (1 << 40) + (number << 32)
}

fn c_type(dtype: DType) -> c_int {
    match dtype {
        DType::F64 => R_64F,
        DType::F16 => R_16F,
        DType::BF16 => R_16BF,
        _ => R_32F,
    }
}

/// A matrix, column-major: columns are `leading` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor {
    /// Whether the transpose of this matrix is what lies in memory.
    pub(crate) is_transposed: bool,
    pub(crate) leading: u64,
    /// Elements from one matrix of the batch to the next.
    pub(crate) batch: u64,
    pub(crate) align_bytes: u64,
}

/// `out = alpha * first * second + beta * out`, plus a bias for each row: first is `rows * depth`, second `depth * columns`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProductProblem {
    /// The type of both factors.
    pub(crate) dtype: DType,
    /// The type of out and bias.
    pub(crate) out_dtype: DType,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) depth: u64,
    pub(crate) batch: u64,
    pub(crate) first: Factor,
    pub(crate) second: Factor,
    pub(crate) out: Factor,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) bias: bool,
    /// Whether factors of f32 may be rounded to tf32.
    pub(crate) tf32: bool,
    pub(crate) workspace_bytes: u64,
}

/// A product ready to run.
pub(crate) struct Plan {
    library: Arc<CublasLt>,
    /// Keeps the context alive, to which the library's handle belongs.
    device: Device,
    desc: Desc,
    layouts: [Layout; 3],
    algorithm: Algorithm,
    workspace_bytes: usize,
    /// alpha and beta, in the type that scales.
    scalars: [u64; 2],
    has_bias: bool,
    launches: u32,
}

impl Plan {
    /// Launches of a call.
    pub(crate) fn launches(&self) -> u32 {
        self.launches
    }

    /// Enqueues the product. Returns 0, or less where it fails: the `cublasStatus_t`, negated.
    ///
    /// # Safety
    /// - The addresses hold the matrices that the problem describes, as aligned as it says, and are null for none but an absent bias.
    /// - `workspace` holds as many bytes as the problem allows, at a multiple of 256.
    /// - The device's context is current and `stream` is one of its streams.
    pub(crate) unsafe fn launch(&self, operands: Operands, workspace: *mut c_void, stream: *mut c_void) -> i32 {
        // The address of the bias is part of the description: other threads run the same plan with other addresses.
        let mut desc = self.desc;
        if self.has_bias && self.library.set_desc(&mut desc, DESC_BIAS_POINTER, &operands.bias).is_err() {
            return -FAILED_TO_SET;
        }
        let [of_first, of_second, of_out] = &self.layouts;
        let [alpha, beta] = &self.scalars;
        // SAFETY: the structs are those of the header; the caller promises the rest.
        let status = unsafe {
            (self.library.functions.matmul)(
                self.library.handle,
                &desc,
                ptr::from_ref(alpha).cast(),
                operands.first,
                of_first,
                operands.second,
                of_second,
                ptr::from_ref(beta).cast(),
                operands.out,
                of_out,
                operands.out,
                of_out,
                &self.algorithm,
                workspace,
                self.workspace_bytes,
                stream,
            )
        };
        -status
    }

    /// Loads the kernels of the call and counts them.
    fn warm_up(&self) -> Result<u32, BuildError> {
        let operands =
            Operands { first: dummy(0) as _, second: dummy(1) as _, out: dummy(2) as _, bias: dummy(3) as _ };
        // SAFETY: recorded calls read no memory of the device; its context is current.
        let recorded = super::rehearse(|stream| unsafe { self.launch(operands, dummy(4) as *mut c_void, stream) });
        // A library that cannot be warmed up is refused, so that a kernel of our own may serve.
        match recorded {
            Ok(Ok(launches)) => Ok(launches),
            Ok(Err(status)) => {
                let device = &self.device;
                let reason = format!("cublasLtMatmul refuses on {device}: cublasStatus_t {}", -status);
                Err(BuildError::Refused(reason.into()))
            }
            Err(error) => Err(BuildError::Refused(error.to_string().into())),
        }
    }
}

/// `CUBLAS_STATUS_INVALID_VALUE`.
const FAILED_TO_SET: Status = 7;

/// The addresses of a run's operands.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) first: *const c_void,
    pub(crate) second: *const c_void,
    pub(crate) out: *mut c_void,
    /// Null without a bias.
    pub(crate) bias: *const c_void,
}
