// Generated from csrc/bops.h by `scripts/bindings`; not edited by hand.

pub type bops_status = i32;
pub type bops_stream = *mut ::core::ffi::c_void;
pub type bops_dtype = u32;
pub const BOPS_F64: _bindgen_ty_1 = 0;
pub const BOPS_F32: _bindgen_ty_1 = 1;
pub const BOPS_F16: _bindgen_ty_1 = 2;
pub const BOPS_BF16: _bindgen_ty_1 = 3;
pub type _bindgen_ty_1 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_row_strides {
    pub s0: u64,
    pub s1: u64,
    pub s2: u64,
}
pub type bops_row_norm_variant = u32;
pub const BOPS_ROW_NORM_RESIDENT: _bindgen_ty_2 = 0;
pub const BOPS_ROW_NORM_PERSISTENT: _bindgen_ty_2 = 1;
pub const BOPS_ROW_NORM_SPLIT: _bindgen_ty_2 = 2;
pub const BOPS_ROW_NORM_BACKWARD_PERSISTENT: _bindgen_ty_2 = 3;
pub const BOPS_ROW_NORM_BACKWARD_FEW_ROWS: _bindgen_ty_2 = 4;
pub const BOPS_ROW_NORM_BACKWARD_SPLIT: _bindgen_ty_2 = 5;
pub const BOPS_ROW_NORM_BACKWARD_ZERO: _bindgen_ty_2 = 6;
pub const BOPS_ROW_NORM_SHARED: _bindgen_ty_2 = 7;
pub const BOPS_ROW_NORM_RING: _bindgen_ty_2 = 8;
pub const BOPS_ROW_NORM_BACKWARD_RING: _bindgen_ty_2 = 9;
pub type _bindgen_ty_2 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_row_norm_choice {
    pub variant: bops_row_norm_variant,
    pub vec_bytes: u32,
    pub vectors: u32,
    pub threads: u32,
    pub threads_per_row: u32,
    pub cluster: u32,
    pub stages: u32,
    pub grid: u32,
    pub flush_rows: u32,
    pub flushes: u32,
    pub chunks: u32,
    pub overlaps: u32,
    pub partial_rows: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_row_norm_params {
    pub rows: u64,
    pub cols: u64,
    pub extent1: u64,
    pub extent2: u64,
    pub x: bops_row_strides,
    pub residual: bops_row_strides,
    pub y: bops_row_strides,
    pub h: bops_row_strides,
    pub eps: f64,
    pub weight_offset: f64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct bops_row_norm_operands {
    pub x: *const ::core::ffi::c_void,
    pub residual: *const ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub h: *mut ::core::ffi::c_void,
    pub mean: *mut ::core::ffi::c_void,
    pub rstd: *mut ::core::ffi::c_void,
}
impl Default for bops_row_norm_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_row_norm_backward_params {
    pub rows: u64,
    pub cols: u64,
    pub extent1: u64,
    pub extent2: u64,
    pub dy: bops_row_strides,
    pub x: bops_row_strides,
    pub dh: bops_row_strides,
    pub dx: bops_row_strides,
    pub weight_offset: f64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct bops_row_norm_backward_operands {
    pub dy: *const ::core::ffi::c_void,
    pub x: *const ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub mean: *const ::core::ffi::c_void,
    pub rstd: *const ::core::ffi::c_void,
    pub dh: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
    pub dweight: *mut ::core::ffi::c_void,
    pub dbias: *mut ::core::ffi::c_void,
}
impl Default for bops_row_norm_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}

#[cfg(feature = "cuda")]
unsafe extern "C" {
    pub fn bops_copy_prepare() -> bops_status;
    pub fn bops_copy_launch(
        from: *const ::core::ffi::c_void,
        to: *mut ::core::ffi::c_void,
        bytes: u64,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_layer_norm_prepare(
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        has_residual: u32,
    ) -> bops_status;
    pub fn bops_layer_norm_launch(
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_rms_norm_prepare(
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        has_residual: u32,
    ) -> bops_status;
    pub fn bops_rms_norm_launch(
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_layer_norm_backward_prepare(
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        has_dh: u32,
    ) -> bops_status;
    pub fn bops_layer_norm_backward_launch(
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_rms_norm_backward_prepare(
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        has_dh: u32,
    ) -> bops_status;
    pub fn bops_rms_norm_backward_launch(
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_choice,
        dtype: bops_dtype,
        weight_dtype: bops_dtype,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
}
