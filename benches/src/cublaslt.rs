//! A product that cuBLASLt is called for directly: what a run through the library is compared with.

use std::ffi::{c_int, c_void};
use std::ptr;

use anyhow::{Context, Result, ensure};
use libloading::{Library, Symbol};

// Numbers of cublasLt.h and library_types.h.
const R_32F: c_int = 0;
const R_16BF: c_int = 14;
const COMPUTE_32F: c_int = 68;

/// A `cublasLtMatmulHeuristicResult_t`: the algorithm, the workspace in bytes, the status, and what is not read.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type Matmul = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    *const f32,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    *const f32,
    *const c_void,
    *const c_void,
    *mut c_void,
    *const c_void,
    *const [u64; 8],
    *mut c_void,
    usize,
    *mut c_void,
) -> c_int;

/// A product of two square bf16 matrices, whose algorithm is fixed and needs no workspace.
pub(crate) struct Direct {
    matmul: Matmul,
    handle: *mut c_void,
    desc: *mut c_void,
    layout: *mut c_void,
    algorithm: [u64; 8],
    /// Behind the function, which points into it.
    _library: Library,
}

impl Direct {
    /// Of matrices with `extent` rows; a context is current. What cuBLASLt makes lives as long as the process.
    pub(crate) fn new(extent: u64) -> Result<Self> {
        let names = ["libcublasLt.so.13", "libcublasLt.so.12"];
        // SAFETY: the library runs its own initialisation only.
        let library =
            names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok()).context("cuBLASLt is not found")?;
        let mut handle = ptr::null_mut();
        let (mut desc, mut layout, mut preference) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut found, mut count) = (Heuristic::default(), 0);
        // SAFETY: the types are those of cublasLt.h, and every pointer leads to a local variable or to what the library made.
        let matmul = unsafe {
            type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
            type CreateDesc = unsafe extern "C" fn(*mut *mut c_void, c_int, c_int) -> c_int;
            type CreateLayout = unsafe extern "C" fn(*mut *mut c_void, c_int, u64, u64, i64) -> c_int;
            type Ask = unsafe extern "C" fn(
                *mut c_void,
                *const c_void,
                *const c_void,
                *const c_void,
                *const c_void,
                *const c_void,
                *const c_void,
                c_int,
                *mut Heuristic,
                *mut c_int,
            ) -> c_int;
            let create: Symbol<'_, Create> = library.get(b"cublasLtCreate\0")?;
            let create_desc: Symbol<'_, CreateDesc> = library.get(b"cublasLtMatmulDescCreate\0")?;
            let create_layout: Symbol<'_, CreateLayout> = library.get(b"cublasLtMatrixLayoutCreate\0")?;
            let create_preference: Symbol<'_, Create> = library.get(b"cublasLtMatmulPreferenceCreate\0")?;
            let ask: Symbol<'_, Ask> = library.get(b"cublasLtMatmulAlgoGetHeuristic\0")?;
            let status = [
                create(&mut handle),
                create_desc(&mut desc, COMPUTE_32F, R_32F),
                create_layout(&mut layout, R_16BF, extent, extent, extent.cast_signed()),
                create_preference(&mut preference),
                ask(handle, desc, layout, layout, layout, layout, preference, 1, &mut found, &mut count),
            ];
            ensure!(status == [0; 5] && count == 1 && found.workspace_bytes == 0, "cuBLASLt refused: {status:?}");
            *library.get::<Matmul>(b"cublasLtMatmul\0")?
        };
        Ok(Self { matmul, handle, desc, layout, algorithm: found.algorithm, _library: library })
    }

    /// Enqueues it.
    ///
    /// # Safety
    /// The three addresses are those of such matrices, which live until the stream has done it; the stream is alive.
    pub(crate) unsafe fn run(&self, [a, b, out]: [u64; 3], stream: *mut c_void) -> Result<()> {
        let (alpha, beta) = (1f32, 0f32);
        let at = |address: u64| address as *mut c_void;
        // SAFETY: the caller's promise; the description and the algorithm are those of `new`.
        let status = unsafe {
            (self.matmul)(
                self.handle,
                self.desc,
                &alpha,
                at(a),
                self.layout,
                at(b),
                self.layout,
                &beta,
                at(out),
                self.layout,
                at(out),
                self.layout,
                &self.algorithm,
                ptr::null_mut(),
                0,
                stream,
            )
        };
        ensure!(status == 0, "cublasLtMatmul failed with status {status}");
        Ok(())
    }
}
