// Generated from the headers of csrc by `scripts/bindings`; not edited by hand.

pub type bops_status = i32;
pub type bops_stream = *mut ::core::ffi::c_void;
pub type bops_dtype = u32;
pub const BOPS_F64: _bindgen_ty_1 = 0;
pub const BOPS_F32: _bindgen_ty_1 = 1;
pub const BOPS_F16: _bindgen_ty_1 = 2;
pub const BOPS_BF16: _bindgen_ty_1 = 3;
pub const BOPS_I64: _bindgen_ty_1 = 4;
pub const BOPS_I32: _bindgen_ty_1 = 5;
pub const BOPS_U32: _bindgen_ty_1 = 6;
pub const BOPS_BOOL: _bindgen_ty_1 = 7;
pub const BOPS_U8: _bindgen_ty_1 = 8;
pub const BOPS_I8: _bindgen_ty_1 = 9;
pub const BOPS_F8E4M3: _bindgen_ty_1 = 10;
pub const BOPS_F8E5M2: _bindgen_ty_1 = 11;
pub type _bindgen_ty_1 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_strides {
    pub s0: u64,
    pub s1: u64,
    pub s2: u64,
}
pub type bops_activation = u32;
pub const BOPS_IDENTITY: _bindgen_ty_2 = 0;
pub const BOPS_RELU: _bindgen_ty_2 = 1;
pub const BOPS_GELU_ERF: _bindgen_ty_2 = 2;
pub const BOPS_GELU_TANH: _bindgen_ty_2 = 3;
pub const BOPS_SILU: _bindgen_ty_2 = 4;
pub const BOPS_SIGMOID: _bindgen_ty_2 = 5;
pub const BOPS_TANH: _bindgen_ty_2 = 6;
pub type _bindgen_ty_2 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_activation_choice {
    pub vec_bytes: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_activation_params {
    pub elements: u64,
    pub activation: bops_activation,
    pub from_y: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_activation_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_activation_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_activation_backward_operands {
    pub dy: *const ::core::ffi::c_void,
    pub saved: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
}
impl Default for bops_activation_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_ATTENTION_Q: _bindgen_ty_3 = 1;
pub const BOPS_ATTENTION_K: _bindgen_ty_3 = 2;
pub const BOPS_ATTENTION_V: _bindgen_ty_3 = 4;
pub const BOPS_ATTENTION_Y: _bindgen_ty_3 = 8;
pub const BOPS_ATTENTION_DY: _bindgen_ty_3 = 16;
pub const BOPS_ATTENTION_DQ: _bindgen_ty_3 = 32;
pub const BOPS_ATTENTION_DK: _bindgen_ty_3 = 64;
pub const BOPS_ATTENTION_DV: _bindgen_ty_3 = 128;
pub type _bindgen_ty_3 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_choice {
    pub padded: u32,
    pub vectors: u32,
}
pub type bops_attention_mask = u32;
pub const BOPS_ATTENTION_UNMASKED: _bindgen_ty_4 = 0;
pub const BOPS_ATTENTION_BOOL: _bindgen_ty_4 = 1;
pub const BOPS_ATTENTION_BIAS: _bindgen_ty_4 = 2;
pub const BOPS_ATTENTION_BIAS_WIDE: _bindgen_ty_4 = 3;
pub type _bindgen_ty_4 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_strides {
    pub sample: u64,
    pub head: u64,
    pub row: u64,
    pub column: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_pages {
    pub count: u64,
    pub sample: u64,
    pub column: u64,
    pub page: u32,
    pub dtype: bops_dtype,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_attention_params {
    pub samples: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub queries: u32,
    pub keys: u32,
    pub depth: u32,
    pub value_depth: u32,
    pub shared_by: u32,
    pub from_end: u32,
    pub left: i64,
    pub right: i64,
    pub dtype: bops_dtype,
    pub lengths: bops_dtype,
    pub has_lengths: u32,
    pub mask: bops_attention_mask,
    pub length_stride: u64,
    pub pages: bops_attention_pages,
    pub q: bops_attention_strides,
    pub k: bops_attention_strides,
    pub v: bops_attention_strides,
    pub y: bops_attention_strides,
    pub lse: bops_attention_strides,
    pub bias: bops_attention_strides,
    pub scale: f64,
    pub soft_cap: f64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_operands {
    pub q: *const ::core::ffi::c_void,
    pub k: *const ::core::ffi::c_void,
    pub v: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub lengths: *const ::core::ffi::c_void,
    pub pages: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub lse: *mut ::core::ffi::c_void,
}
impl Default for bops_attention_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_split_choice {
    pub padded: u32,
    pub rows: u32,
    pub vectors: u32,
    pub parts: u32,
    pub keys_per_part: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_mma_choice {
    pub padded: u32,
    pub is_plain: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_attention_gradient {
    pub strides: bops_attention_strides,
    pub beta: f64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_attention_backward_params {
    pub of: bops_attention_params,
    pub dy: bops_attention_strides,
    pub dq: bops_attention_gradient,
    pub dk: bops_attention_gradient,
    pub dv: bops_attention_gradient,
    pub dbias: bops_attention_gradient,
    pub bias_samples: u32,
    pub bias_heads: u32,
    pub bias_queries: u32,
    pub bias_keys: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_attention_backward_operands {
    pub q: *const ::core::ffi::c_void,
    pub k: *const ::core::ffi::c_void,
    pub v: *const ::core::ffi::c_void,
    pub y: *const ::core::ffi::c_void,
    pub lse: *const ::core::ffi::c_void,
    pub dy: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub lengths: *const ::core::ffi::c_void,
    pub dq: *mut ::core::ffi::c_void,
    pub dk: *mut ::core::ffi::c_void,
    pub dv: *mut ::core::ffi::c_void,
    pub dbias: *mut ::core::ffi::c_void,
}
impl Default for bops_attention_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_strides {
    pub batch: u64,
    pub channel: u64,
    pub spatial: u64,
}
pub type bops_norm_team = u32;
pub const BOPS_NORM_CLUSTER: _bindgen_ty_5 = 0;
pub const BOPS_NORM_GRID: _bindgen_ty_5 = 1;
pub type _bindgen_ty_5 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_split_choice {
    pub access_bytes: u32,
    pub threads: u32,
    pub accesses: u32,
    pub parts: u32,
    pub writes_gapless: u32,
    pub later_overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_stripe_choice {
    pub channels: u32,
    pub samples_at_once: u32,
    pub threads: u32,
    pub blocks: u32,
    pub in_registers: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_segment_choice {
    pub vectors: u32,
    pub threads: u32,
    pub blocks: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_single_choice {
    pub cluster_blocks: u32,
    pub vectors: u32,
    pub register_vectors: u32,
    pub threads: u32,
    pub blocks: u32,
    pub overlaps: u32,
    pub stagger_cycles: u32,
    pub multiprocessors: u32,
    pub residents: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_backward_single_choice {
    pub cluster_blocks: u32,
    pub vectors: u32,
    pub threads: u32,
    pub blocks: u32,
    pub merges_samples: u32,
    pub keeps_dpre: u32,
    pub overlaps: u32,
    pub stagger_cycles: u32,
    pub multiprocessors: u32,
    pub residents: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_backward_single_masked_choice {
    pub cluster_blocks: u32,
    pub vectors: u32,
    pub threads: u32,
    pub blocks: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_backward_held_choice {
    pub team: bops_norm_team,
    pub team_blocks: u32,
    pub steps: u32,
    pub places: u32,
    pub threads: u32,
    pub blocks: u32,
    pub reads_extra: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_relay_choice {
    pub team: bops_norm_team,
    pub team_blocks: u32,
    pub steps: u32,
    pub places: u32,
    pub residual_places: u32,
    pub repeated_steps: u32,
    pub repeated_places: u32,
    pub arriving_places: u32,
    pub threads: u32,
    pub blocks: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_backward_relay_choice {
    pub team: bops_norm_team,
    pub team_blocks: u32,
    pub steps: u32,
    pub places: u32,
    pub arriving_places: u32,
    pub threads: u32,
    pub blocks: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channels_last_norm_split_choice {
    pub access_bytes: u32,
    pub tile_vectors: u32,
    pub chunks: u32,
    pub is_merged: u32,
    pub threads: u32,
    pub blocks: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channels_last_norm_cooperative_choice {
    pub tile_vectors: u32,
    pub chunks: u32,
    pub is_merged: u32,
    pub threads: u32,
    pub blocks: u32,
    pub ring_batches: u32,
    pub tensors: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channels_last_norm_cluster_choice {
    pub tile_vectors: u32,
    pub chunks: u32,
    pub is_merged: u32,
    pub cluster_blocks: u32,
    pub threads: u32,
    pub thread_rows: u32,
    pub tensors: u32,
    pub blocks: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channels_last_norm_resident_choice {
    pub tile_vectors: u32,
    pub chunks: u32,
    pub is_merged: u32,
    pub threads: u32,
    pub blocks: u32,
    pub ring_batches: u32,
    pub cached_batches: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channels_last_norm_slabs_choice {
    pub tile_vectors: u32,
    pub chunks: u32,
    pub is_merged: u32,
    pub threads: u32,
    pub blocks: u32,
    pub ring_batches: u32,
    pub cached_batches: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channels_last_norm_rows_choice {
    pub tile_vectors: u32,
    pub chunks: u32,
    pub cluster_blocks: u32,
    pub threads: u32,
    pub thread_rows: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_channel_norm_params {
    pub batch: u64,
    pub channels: u64,
    pub spatial: u64,
    pub groups: u64,
    pub x: bops_channel_strides,
    pub residual: bops_channel_strides,
    pub y: bops_channel_strides,
    pub eps: f64,
    pub momentum: f64,
    pub activation: bops_activation,
    pub uses_running: u32,
    pub is_cumulative: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_operands {
    pub x: *const ::core::ffi::c_void,
    pub residual: *const ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub running_mean: *mut ::core::ffi::c_void,
    pub running_var: *mut ::core::ffi::c_void,
    pub num_batches: *mut ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub mean: *mut ::core::ffi::c_void,
    pub rstd: *mut ::core::ffi::c_void,
}
impl Default for bops_channel_norm_operands {
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
pub struct bops_channel_norm_backward_params {
    pub batch: u64,
    pub channels: u64,
    pub spatial: u64,
    pub groups: u64,
    pub dy: bops_channel_strides,
    pub x: bops_channel_strides,
    pub residual: bops_channel_strides,
    pub y: bops_channel_strides,
    pub dx: bops_channel_strides,
    pub dresidual: bops_channel_strides,
    pub eps: f64,
    pub activation: bops_activation,
    pub uses_running: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_backward_operands {
    pub dy: *const ::core::ffi::c_void,
    pub x: *const ::core::ffi::c_void,
    pub residual: *const ::core::ffi::c_void,
    pub y: *const ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub mean: *const ::core::ffi::c_void,
    pub rstd: *const ::core::ffi::c_void,
    pub running_mean: *const ::core::ffi::c_void,
    pub running_var: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
    pub dresidual: *mut ::core::ffi::c_void,
    pub dweight: *mut ::core::ffi::c_void,
    pub dbias: *mut ::core::ffi::c_void,
}
impl Default for bops_channel_norm_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_channel_norm_specialisation {
    pub dtype: bops_dtype,
    pub weight_dtype: bops_dtype,
    pub has_residual: u32,
}
pub const BOPS_GEMM_EXTENTS: _bindgen_ty_6 = 6;
pub type _bindgen_ty_6 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_matrix {
    pub row: u64,
    pub column: u64,
    pub batch: [u64; 6usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_factor {
    pub matrix: bops_gemm_matrix,
    pub summed: [u64; 6usize],
}
pub type bops_gemm_epilogue = u32;
pub const BOPS_GEMM_FORWARD: _bindgen_ty_7 = 0;
pub const BOPS_GEMM_DERIVATIVE: _bindgen_ty_7 = 1;
pub const BOPS_GEMM_GRADIENT: _bindgen_ty_7 = 2;
pub type _bindgen_ty_7 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_gemm_params {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch_rank: u32,
    pub summed_rank: u32,
    pub batch: [u64; 6usize],
    pub summed: [u64; 6usize],
    pub left: bops_gemm_factor,
    pub right: bops_gemm_factor,
    pub out: bops_gemm_matrix,
    pub other: bops_gemm_matrix,
    pub bias: bops_gemm_matrix,
    pub out_dtype: bops_dtype,
    pub other_dtype: bops_dtype,
    pub bias_dtype: bops_dtype,
    pub epilogue: bops_gemm_epilogue,
    pub activation: bops_activation,
    pub alpha: f64,
    pub beta: f64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_choice {
    pub tile: u32,
    pub splits: u32,
    pub across: u32,
    pub quads: u32,
    pub left_bytes: u32,
    pub right_bytes: u32,
    pub left_across: u32,
    pub right_across: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_operands {
    pub left: *const ::core::ffi::c_void,
    pub right: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub out: *mut ::core::ffi::c_void,
    pub other: *mut ::core::ffi::c_void,
    pub parts: *mut ::core::ffi::c_void,
    pub column_sums: *mut ::core::ffi::c_void,
}
impl Default for bops_gemm_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_few_rows_choice {
    pub columns: u32,
    pub right_across: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_wgmma_choice {
    pub rows: u32,
    pub columns: u32,
    pub splits: u32,
    pub band_rows: u32,
    pub blocks: u32,
    pub wide: u32,
    pub copies: u32,
    pub reads: u32,
    pub left_across: u32,
    pub right_across: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_repack_params {
    pub lines: u64,
    pub length: u64,
    pub stride: u64,
    pub rank: u32,
    pub multiprocessors: u32,
    pub outer: [u64; 6usize],
    pub strides: [u64; 6usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_finish_choice {
    pub split_stride: u64,
    pub source: bops_gemm_matrix,
    pub splits: u32,
    pub across: u32,
    pub quads: u32,
}
pub const BOPS_GEMM_FINISH_ROWS: _bindgen_ty_8 = 32;
pub type _bindgen_ty_8 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_dpre_params {
    pub m: u64,
    pub n: u64,
    pub batch_rank: u32,
    pub batch: [u64; 6usize],
    pub dout: bops_gemm_matrix,
    pub saved: bops_gemm_matrix,
    pub dout_dtype: bops_dtype,
    pub saved_dtype: bops_dtype,
    pub activation: bops_activation,
    pub from_out: u32,
    pub quads: u32,
    pub vectors: u32,
    pub rows: u32,
}
pub const BOPS_GEMM_DPRE_ROWS: _bindgen_ty_9 = 32;
pub const BOPS_GEMM_DPRE_COLUMNS: _bindgen_ty_9 = 128;
pub type _bindgen_ty_9 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_gemm_dbias_params {
    pub rows: u64,
    pub n: u64,
    pub stride: u64,
    pub beta: f64,
}
pub const BOPS_CONV_DIGITS: _bindgen_ty_10 = 4;
pub const BOPS_CONV_AXES: _bindgen_ty_10 = 3;
pub type _bindgen_ty_10 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_index {
    pub extents: [u64; 4usize],
    pub gathered: [i64; 4usize],
    pub coordinate: [i64; 3usize],
    pub lead_last: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_axis {
    pub extent: i64,
    pub stride: i64,
    pub divisor: i64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_conv_params {
    pub product: bops_gemm_params,
    pub rows: bops_conv_index,
    pub terms: bops_conv_index,
    pub axes: [bops_conv_axis; 3usize],
    pub first_coordinate: [i64; 3usize],
    pub first_element: i64,
    pub gathered_group: u64,
    pub plain_group: u64,
    pub plain_column: u64,
    pub plain_term: [u64; 4usize],
    pub bias_group: u64,
    pub gathered_dtype: bops_dtype,
    pub plain_dtype: bops_dtype,
    pub is_divided: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_choice {
    pub product: bops_gemm_choice,
    pub is_long: u32,
}
pub const BOPS_CONV_DEPTHWISE_AXES: _bindgen_ty_11 = 2;
pub const BOPS_CONV_DEPTHWISE_THREADS: _bindgen_ty_11 = 128;
pub type _bindgen_ty_11 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_strides {
    pub sample: u64,
    pub channel: u64,
    pub axes: [u64; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_conv_depthwise_params {
    pub samples: u32,
    pub channels: u32,
    pub out_extents: [u32; 2usize],
    pub gathered_extents: [u32; 2usize],
    pub first: [i32; 2usize],
    pub repeats: u32,
    pub gathered: bops_conv_strides,
    pub out: bops_conv_strides,
    pub other: bops_conv_strides,
    pub weight_channel: u64,
    pub weight_first: i64,
    pub weight_axes: [i64; 2usize],
    pub bias_stride: u64,
    pub beta: f64,
    pub activation: bops_activation,
    pub out_dtype: bops_dtype,
    pub other_dtype: bops_dtype,
    pub bias_dtype: bops_dtype,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_depthwise_choice {
    pub kernel: u32,
    pub channels: u32,
    pub lanes: u32,
    pub rows: u32,
    pub columns: u32,
    pub gathered_run: u32,
    pub out_run: u32,
    pub light: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_depthwise_operands {
    pub gathered: *const ::core::ffi::c_void,
    pub plain: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub out: *mut ::core::ffi::c_void,
    pub other: *mut ::core::ffi::c_void,
}
impl Default for bops_conv_depthwise_operands {
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
pub struct bops_conv_backward_bias_params {
    pub channels: u64,
    pub runs: u64,
    pub run: u64,
    pub run_stride: u64,
    pub channel_stride: u64,
    pub vector: u32,
    pub dbias_dtype: bops_dtype,
    pub dbias_stride: u64,
    pub beta: f64,
}
pub const BOPS_CONV_SUMS_THREADS: _bindgen_ty_12 = 256;
pub const BOPS_CONV_SUMS_LOADS: _bindgen_ty_12 = 16;
pub type _bindgen_ty_12 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_column_sums_params {
    pub channels: u64,
    pub rows: u64,
    pub row_stride: u64,
    pub lanes: u32,
    pub parts: u32,
}
pub const BOPS_CONV_FEW_CHANNELS_MOST: _bindgen_ty_13 = 8;
pub const BOPS_CONV_FEW_CHANNELS_FILTERS: _bindgen_ty_13 = 64;
pub const BOPS_CONV_FEW_CHANNELS_POSITIONS: _bindgen_ty_13 = 128;
pub const BOPS_CONV_FEW_CHANNELS_GROUP: _bindgen_ty_13 = 16;
pub const BOPS_CONV_FEW_CHANNELS_CHUNKS: _bindgen_ty_13 = 28;
pub const BOPS_CONV_FEW_CHANNELS_COLUMNS: _bindgen_ty_13 = 64;
pub type _bindgen_ty_13 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_conv_few_channels_params {
    pub samples: u32,
    pub filters: u32,
    pub channels: u32,
    pub y_extents: [u32; 2usize],
    pub x_extents: [u32; 2usize],
    pub kernel: [u32; 2usize],
    pub stride: [u32; 2usize],
    pub first: [i32; 2usize],
    pub x: bops_conv_strides,
    pub y: bops_conv_strides,
    pub other: bops_conv_strides,
    pub weight_filter: u64,
    pub weight_channel: u64,
    pub weight_axes: [u64; 2usize],
    pub bias_stride: u64,
    pub beta: f64,
    pub activation: bops_activation,
    pub out_dtype: bops_dtype,
    pub other_dtype: bops_dtype,
    pub bias_dtype: bops_dtype,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_few_channels_choice {
    pub rows: u32,
    pub columns: u32,
    pub padded: u32,
    pub parts: u32,
    pub across: u32,
    pub quads: u32,
    pub light: u32,
    pub eights: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_few_channels_data_choice {
    pub cells: u32,
    pub positions: u32,
    pub parts: u32,
    pub across: u32,
    pub eights: u32,
    pub lowest: [i32; 2usize],
    pub taps: [u32; 2usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_few_channels_operands {
    pub x: *mut ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub other: *mut ::core::ffi::c_void,
}
impl Default for bops_conv_few_channels_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_wgmma_choice {
    pub columns: u32,
    pub splits: u32,
    pub blocks: u32,
    pub across: u32,
    pub quads: u32,
    pub light: u32,
    pub of_weight: u32,
    pub right_across: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_conv_turn_params {
    pub outer: u64,
    pub rows: u64,
    pub columns: u64,
    pub outer_stride: u64,
    pub row_stride: u64,
    pub pitch: u64,
    pub element_bytes: u32,
    pub vector: u32,
}
pub const BOPS_CROSS_ENTROPY_THREADS: _bindgen_ty_14 = 512;
pub const BOPS_CROSS_ENTROPY_EXTENTS: _bindgen_ty_14 = 7;
pub const BOPS_CROSS_ENTROPY_TOTAL: _bindgen_ty_14 = 4096;
pub type _bindgen_ty_14 = ::core::ffi::c_uint;
pub type bops_loss_reduction = u32;
pub const BOPS_LOSS_MEAN: _bindgen_ty_15 = 0;
pub const BOPS_LOSS_SUM: _bindgen_ty_15 = 1;
pub const BOPS_LOSS_NONE: _bindgen_ty_15 = 2;
pub type _bindgen_ty_15 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_cross_entropy_choice {
    pub width: u32,
    pub threads: u32,
    pub lines: u32,
    pub grid: u32,
    pub totals: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_cross_entropy_strides {
    pub strides: [u64; 7usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_cross_entropy_params {
    pub dim: u64,
    pub lines: u32,
    pub rank: u32,
    pub extents: [u32; 7usize],
    pub targets: bops_dtype,
    pub strides: [bops_cross_entropy_strides; 5usize],
    pub steps: [u64; 3usize],
    pub ignored: i64,
    pub has_ignored: u32,
    pub has_logsumexp: u32,
    pub reduction: bops_loss_reduction,
    pub has_missing: u32,
    pub has_options: u32,
    pub has_probabilities: u32,
    pub has_weight: u32,
    pub has_f32_weight: u32,
    pub weight_step: u64,
    pub keep: f64,
    pub smooth: f64,
    pub z: f64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_cross_entropy_operands {
    pub x: *const ::core::ffi::c_void,
    pub targets: *const ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub loss: *mut ::core::ffi::c_void,
    pub logsumexp: *mut ::core::ffi::c_void,
    pub divisor: *mut ::core::ffi::c_void,
    pub missing: *mut u32,
}
impl Default for bops_cross_entropy_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_cross_entropy_backward_operands {
    pub dloss: *const ::core::ffi::c_void,
    pub x: *const ::core::ffi::c_void,
    pub targets: *const ::core::ffi::c_void,
    pub weight: *const ::core::ffi::c_void,
    pub divisor: *const ::core::ffi::c_void,
    pub logsumexp: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
}
impl Default for bops_cross_entropy_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type bops_function = u32;
pub const BOPS_FUNCTION_NEG: _bindgen_ty_16 = 0;
pub const BOPS_FUNCTION_SQRT: _bindgen_ty_16 = 1;
pub const BOPS_FUNCTION_ABS: _bindgen_ty_16 = 2;
pub const BOPS_FUNCTION_SIGN: _bindgen_ty_16 = 3;
pub const BOPS_FUNCTION_CEIL: _bindgen_ty_16 = 4;
pub const BOPS_FUNCTION_FLOOR: _bindgen_ty_16 = 5;
pub const BOPS_FUNCTION_ROUND: _bindgen_ty_16 = 6;
pub const BOPS_FUNCTION_TRUNC: _bindgen_ty_16 = 7;
pub const BOPS_FUNCTION_FRAC: _bindgen_ty_16 = 8;
pub const BOPS_FUNCTION_RECIPROCAL: _bindgen_ty_16 = 9;
pub const BOPS_FUNCTION_SQUARE: _bindgen_ty_16 = 10;
pub const BOPS_FUNCTION_RSQRT: _bindgen_ty_16 = 11;
pub const BOPS_FUNCTION_CBRT: _bindgen_ty_16 = 12;
pub const BOPS_FUNCTION_RELU: _bindgen_ty_16 = 13;
pub const BOPS_FUNCTION_RELU6: _bindgen_ty_16 = 14;
pub const BOPS_FUNCTION_SOFTSIGN: _bindgen_ty_16 = 15;
pub const BOPS_FUNCTION_HARDSIGMOID: _bindgen_ty_16 = 16;
pub const BOPS_FUNCTION_HARDSWISH: _bindgen_ty_16 = 17;
pub const BOPS_FUNCTION_LEAKY_RELU: _bindgen_ty_16 = 18;
pub const BOPS_FUNCTION_PRELU: _bindgen_ty_16 = 19;
pub const BOPS_FUNCTION_HARDTANH: _bindgen_ty_16 = 20;
pub const BOPS_FUNCTION_HARDSHRINK: _bindgen_ty_16 = 21;
pub const BOPS_FUNCTION_SOFTSHRINK: _bindgen_ty_16 = 22;
pub const BOPS_FUNCTION_THRESHOLD: _bindgen_ty_16 = 23;
pub const BOPS_FUNCTION_MAXIMUM: _bindgen_ty_16 = 24;
pub const BOPS_FUNCTION_MINIMUM: _bindgen_ty_16 = 25;
pub const BOPS_FUNCTION_FMAX: _bindgen_ty_16 = 26;
pub const BOPS_FUNCTION_FMIN: _bindgen_ty_16 = 27;
pub const BOPS_FUNCTION_COPYSIGN: _bindgen_ty_16 = 28;
pub const BOPS_FUNCTION_FMOD: _bindgen_ty_16 = 29;
pub const BOPS_FUNCTION_REMAINDER: _bindgen_ty_16 = 30;
pub const BOPS_FUNCTION_DIV_FLOOR: _bindgen_ty_16 = 31;
pub const BOPS_FUNCTION_DIV_TRUNC: _bindgen_ty_16 = 32;
pub const BOPS_FUNCTION_HYPOT: _bindgen_ty_16 = 33;
pub const BOPS_FUNCTION_HEAVISIDE: _bindgen_ty_16 = 34;
pub const BOPS_FUNCTION_ISNAN: _bindgen_ty_16 = 35;
pub const BOPS_FUNCTION_ISINF: _bindgen_ty_16 = 36;
pub const BOPS_FUNCTION_ISFINITE: _bindgen_ty_16 = 37;
pub const BOPS_FUNCTION_SIGNBIT: _bindgen_ty_16 = 38;
pub const BOPS_FUNCTION_LOGICAL_NOT: _bindgen_ty_16 = 39;
pub const BOPS_FUNCTION_BITWISE_NOT: _bindgen_ty_16 = 40;
pub const BOPS_FUNCTION_POPCOUNT: _bindgen_ty_16 = 41;
pub const BOPS_FUNCTION_EQ: _bindgen_ty_16 = 42;
pub const BOPS_FUNCTION_NE: _bindgen_ty_16 = 43;
pub const BOPS_FUNCTION_LT: _bindgen_ty_16 = 44;
pub const BOPS_FUNCTION_LE: _bindgen_ty_16 = 45;
pub const BOPS_FUNCTION_GT: _bindgen_ty_16 = 46;
pub const BOPS_FUNCTION_GE: _bindgen_ty_16 = 47;
pub const BOPS_FUNCTION_LOGICAL_AND: _bindgen_ty_16 = 48;
pub const BOPS_FUNCTION_LOGICAL_OR: _bindgen_ty_16 = 49;
pub const BOPS_FUNCTION_LOGICAL_XOR: _bindgen_ty_16 = 50;
pub const BOPS_FUNCTION_BITWISE_AND: _bindgen_ty_16 = 51;
pub const BOPS_FUNCTION_BITWISE_OR: _bindgen_ty_16 = 52;
pub const BOPS_FUNCTION_BITWISE_XOR: _bindgen_ty_16 = 53;
pub const BOPS_FUNCTION_SHIFT_LEFT: _bindgen_ty_16 = 54;
pub const BOPS_FUNCTION_SHIFT_RIGHT: _bindgen_ty_16 = 55;
pub const BOPS_FUNCTION_GCD: _bindgen_ty_16 = 56;
pub const BOPS_FUNCTION_LCM: _bindgen_ty_16 = 57;
pub const BOPS_FUNCTION_WHERE: _bindgen_ty_16 = 58;
pub const BOPS_FUNCTION_CLAMP: _bindgen_ty_16 = 59;
pub const BOPS_FUNCTION_LERP: _bindgen_ty_16 = 60;
pub const BOPS_FUNCTION_ADDCMUL: _bindgen_ty_16 = 61;
pub const BOPS_FUNCTION_ADDCDIV: _bindgen_ty_16 = 62;
pub const BOPS_FUNCTION_FMA: _bindgen_ty_16 = 63;
pub const BOPS_FUNCTION_EXP: _bindgen_ty_16 = 64;
pub const BOPS_FUNCTION_LOG: _bindgen_ty_16 = 65;
pub const BOPS_FUNCTION_SIGMOID: _bindgen_ty_16 = 66;
pub const BOPS_FUNCTION_TANH: _bindgen_ty_16 = 67;
pub const BOPS_FUNCTION_SILU: _bindgen_ty_16 = 68;
pub const BOPS_FUNCTION_SOFTPLUS: _bindgen_ty_16 = 69;
pub const BOPS_FUNCTION_LOG_SIGMOID: _bindgen_ty_16 = 70;
pub const BOPS_FUNCTION_GELU_ERF: _bindgen_ty_16 = 71;
pub const BOPS_FUNCTION_GELU_TANH: _bindgen_ty_16 = 72;
pub const BOPS_FUNCTION_ERF: _bindgen_ty_16 = 73;
pub const BOPS_FUNCTION_ERFC: _bindgen_ty_16 = 74;
pub const BOPS_FUNCTION_MISH: _bindgen_ty_16 = 75;
pub const BOPS_FUNCTION_SELU: _bindgen_ty_16 = 76;
pub const BOPS_FUNCTION_EXPM1: _bindgen_ty_16 = 77;
pub const BOPS_FUNCTION_LOG1P: _bindgen_ty_16 = 78;
pub const BOPS_FUNCTION_EXP2: _bindgen_ty_16 = 79;
pub const BOPS_FUNCTION_LOG2: _bindgen_ty_16 = 80;
pub const BOPS_FUNCTION_LOG10: _bindgen_ty_16 = 81;
pub const BOPS_FUNCTION_SIN: _bindgen_ty_16 = 82;
pub const BOPS_FUNCTION_COS: _bindgen_ty_16 = 83;
pub const BOPS_FUNCTION_TAN: _bindgen_ty_16 = 84;
pub const BOPS_FUNCTION_TANHSHRINK: _bindgen_ty_16 = 85;
pub const BOPS_FUNCTION_ASIN: _bindgen_ty_16 = 86;
pub const BOPS_FUNCTION_ACOS: _bindgen_ty_16 = 87;
pub const BOPS_FUNCTION_ATAN: _bindgen_ty_16 = 88;
pub const BOPS_FUNCTION_SINH: _bindgen_ty_16 = 89;
pub const BOPS_FUNCTION_COSH: _bindgen_ty_16 = 90;
pub const BOPS_FUNCTION_ASINH: _bindgen_ty_16 = 91;
pub const BOPS_FUNCTION_ACOSH: _bindgen_ty_16 = 92;
pub const BOPS_FUNCTION_ATANH: _bindgen_ty_16 = 93;
pub const BOPS_FUNCTION_LOGIT: _bindgen_ty_16 = 94;
pub const BOPS_FUNCTION_ELU: _bindgen_ty_16 = 95;
pub const BOPS_FUNCTION_CELU: _bindgen_ty_16 = 96;
pub const BOPS_FUNCTION_POW: _bindgen_ty_16 = 97;
pub const BOPS_FUNCTION_XLOGY: _bindgen_ty_16 = 98;
pub const BOPS_FUNCTION_ATAN2: _bindgen_ty_16 = 99;
pub const BOPS_FUNCTION_SINC: _bindgen_ty_16 = 100;
pub const BOPS_FUNCTION_LGAMMA: _bindgen_ty_16 = 101;
pub const BOPS_FUNCTION_DIGAMMA: _bindgen_ty_16 = 102;
pub const BOPS_FUNCTION_ZETA: _bindgen_ty_16 = 103;
pub const BOPS_FUNCTION_IGAMMA: _bindgen_ty_16 = 104;
pub const BOPS_FUNCTION_IGAMMAC: _bindgen_ty_16 = 105;
pub const BOPS_FUNCTION_IGAMMA_GRAD_A: _bindgen_ty_16 = 106;
pub const BOPS_FUNCTION_BETAINC: _bindgen_ty_16 = 107;
pub const BOPS_FUNCTION_ERFINV: _bindgen_ty_16 = 108;
pub const BOPS_FUNCTION_NDTRI: _bindgen_ty_16 = 109;
pub const BOPS_FUNCTION_LOG_NDTR: _bindgen_ty_16 = 110;
pub const BOPS_FUNCTION_ERFCX: _bindgen_ty_16 = 111;
pub const BOPS_FUNCTION_BESSEL_J0: _bindgen_ty_16 = 112;
pub const BOPS_FUNCTION_BESSEL_J1: _bindgen_ty_16 = 113;
pub const BOPS_FUNCTION_BESSEL_Y0: _bindgen_ty_16 = 114;
pub const BOPS_FUNCTION_BESSEL_Y1: _bindgen_ty_16 = 115;
pub const BOPS_FUNCTION_I0: _bindgen_ty_16 = 116;
pub const BOPS_FUNCTION_I0E: _bindgen_ty_16 = 117;
pub const BOPS_FUNCTION_I1: _bindgen_ty_16 = 118;
pub const BOPS_FUNCTION_I1E: _bindgen_ty_16 = 119;
pub const BOPS_FUNCTION_MODIFIED_BESSEL_K0: _bindgen_ty_16 = 120;
pub const BOPS_FUNCTION_MODIFIED_BESSEL_K1: _bindgen_ty_16 = 121;
pub const BOPS_FUNCTION_SCALED_MODIFIED_BESSEL_K0: _bindgen_ty_16 = 122;
pub const BOPS_FUNCTION_SCALED_MODIFIED_BESSEL_K1: _bindgen_ty_16 = 123;
pub const BOPS_FUNCTION_LOGADDEXP: _bindgen_ty_16 = 124;
pub const BOPS_FUNCTION_LOGADDEXP2: _bindgen_ty_16 = 125;
pub const BOPS_FUNCTION_LDEXP: _bindgen_ty_16 = 126;
pub const BOPS_FUNCTION_NEXTAFTER: _bindgen_ty_16 = 127;
pub const BOPS_FUNCTION_NAN_TO_NUM: _bindgen_ty_16 = 128;
pub const BOPS_FUNCTION_ADD: _bindgen_ty_16 = 129;
pub const BOPS_FUNCTION_SUB: _bindgen_ty_16 = 130;
pub const BOPS_FUNCTION_MUL: _bindgen_ty_16 = 131;
pub const BOPS_FUNCTION_DIV: _bindgen_ty_16 = 132;
pub type _bindgen_ty_16 = ::core::ffi::c_uint;
pub type bops_cost = u32;
pub const BOPS_COST_LIGHT: _bindgen_ty_17 = 0;
pub const BOPS_COST_EXPONENTIAL: _bindgen_ty_17 = 1;
pub const BOPS_COST_DIGITS: _bindgen_ty_17 = 2;
pub const BOPS_COST_SPECIAL: _bindgen_ty_17 = 3;
pub const BOPS_COST_SERIES: _bindgen_ty_17 = 4;
pub const BOPS_COST_INTEGRAL: _bindgen_ty_17 = 5;
pub type _bindgen_ty_17 = ::core::ffi::c_uint;
pub const BOPS_POINTWISE_EXTENTS: _bindgen_ty_18 = 8;
pub const BOPS_POINTWISE_INPUTS: _bindgen_ty_18 = 16;
pub const BOPS_POINTWISE_OUTPUTS: _bindgen_ty_18 = 8;
pub const BOPS_POINTWISE_INSTRUCTIONS: _bindgen_ty_18 = 64;
pub const BOPS_POINTWISE_LITERALS: _bindgen_ty_18 = 128;
pub type _bindgen_ty_18 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_divisor {
    pub extent: u32,
    pub shift: u32,
    pub multiplier: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_walk {
    pub elements: u64,
    pub rank: u32,
    pub is_long: u32,
    pub inner: [bops_divisor; 7usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_walked {
    pub strides: [u64; 8usize],
    pub dtype: bops_dtype,
    pub is_repeated: u32,
    pub is_dense: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_function_choice {
    pub vec_bytes: u32,
    pub extents: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_argument {
    pub walked: bops_walked,
    pub literal: u64,
    pub is_literal: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_function_params {
    pub walk: bops_walk,
    pub out: bops_walked,
    pub x: bops_pointwise_argument,
    pub y: bops_pointwise_argument,
    pub z: bops_pointwise_argument,
    pub function: bops_function,
    pub cost: bops_cost,
    pub arguments: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_function_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *const ::core::ffi::c_void,
    pub z: *const ::core::ffi::c_void,
    pub out: *mut ::core::ffi::c_void,
}
impl Default for bops_pointwise_function_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_program_choice {
    pub dtype: bops_dtype,
    pub is_uniform: u32,
    pub extents: u32,
    pub slots: u32,
}
pub const BOPS_VALUE_LAST: _bindgen_ty_19 = 127;
pub const BOPS_VALUE_LITERAL: _bindgen_ty_19 = 128;
pub type _bindgen_ty_19 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_program_params {
    pub walk: bops_walk,
    pub inputs: u32,
    pub outputs: u32,
    pub instructions: u32,
    pub result: [u32; 8usize],
    pub instruction: [u64; 64usize],
    pub literal: [u64; 128usize],
    pub input: [bops_walked; 16usize],
    pub output: [bops_walked; 8usize],
}
impl Default for bops_pointwise_program_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_program_operands {
    pub input: [*const ::core::ffi::c_void; 16usize],
    pub output: [*mut ::core::ffi::c_void; 8usize],
}
impl Default for bops_pointwise_program_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_POINTWISE_SOURCES: _bindgen_ty_20 = 4;
pub const BOPS_POINTWISE_SOURCE_LITERALS: _bindgen_ty_20 = 64;
pub type _bindgen_ty_20 = ::core::ffi::c_uint;
pub type bops_source_kind = u32;
pub const BOPS_SOURCE_INDEX: _bindgen_ty_21 = 0;
pub const BOPS_SOURCE_UNIFORM: _bindgen_ty_21 = 1;
pub const BOPS_SOURCE_BERNOULLI: _bindgen_ty_21 = 2;
pub const BOPS_SOURCE_RANDINT: _bindgen_ty_21 = 3;
pub const BOPS_SOURCE_NORMAL: _bindgen_ty_21 = 4;
pub const BOPS_SOURCE_EXPONENTIAL: _bindgen_ty_21 = 5;
pub type _bindgen_ty_21 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_source {
    pub walked: bops_walked,
    pub kind: bops_source_kind,
    pub stream: u32,
    pub digits: u32,
    pub seed_stride: u32,
    pub range: u64,
    pub low: i64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_source_choice {
    pub extents: u32,
    pub slots: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_source_params {
    pub walk: bops_walk,
    pub inputs: u32,
    pub sources: u32,
    pub outputs: u32,
    pub instructions: u32,
    pub result: [u32; 8usize],
    pub instruction: [u64; 64usize],
    pub literal: [u64; 64usize],
    pub input: [bops_walked; 16usize],
    pub source: [bops_pointwise_source; 4usize],
    pub output: [bops_walked; 8usize],
}
impl Default for bops_pointwise_source_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_source_operands {
    pub input: [*const ::core::ffi::c_void; 16usize],
    pub seed: [*const u32; 4usize],
    pub offset: [*const u32; 4usize],
    pub output: [*mut ::core::ffi::c_void; 8usize],
}
impl Default for bops_pointwise_source_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_FFT_POINTS: _bindgen_ty_22 = 4096;
pub const BOPS_FFT_POINTS_F64: _bindgen_ty_22 = 2048;
pub const BOPS_FFT_STAGES: _bindgen_ty_22 = 8;
pub const BOPS_FFT_PASSES: _bindgen_ty_22 = 6;
pub type _bindgen_ty_22 = ::core::ffi::c_uint;
pub const BOPS_FFT_TURNS_READ: _bindgen_ty_23 = 1;
pub const BOPS_FFT_TURNS_RESULT: _bindgen_ty_23 = 2;
pub const BOPS_FFT_TURNS_WRITTEN: _bindgen_ty_23 = 4;
pub const BOPS_FFT_CHIRPS_READ: _bindgen_ty_23 = 8;
pub const BOPS_FFT_CHIRPS_RESULT: _bindgen_ty_23 = 16;
pub const BOPS_FFT_CONVOLVES: _bindgen_ty_23 = 32;
pub const BOPS_FFT_READS_COLUMNS: _bindgen_ty_23 = 64;
pub const BOPS_FFT_WRITES_COLUMNS: _bindgen_ty_23 = 128;
pub type _bindgen_ty_23 = ::core::ffi::c_uint;
pub type bops_fft_kind = u32;
pub const BOPS_FFT_PAIRS: _bindgen_ty_24 = 0;
pub const BOPS_FFT_REAL: _bindgen_ty_24 = 1;
pub const BOPS_FFT_HALF: _bindgen_ty_24 = 2;
pub const BOPS_FFT_WORK: _bindgen_ty_24 = 3;
pub const BOPS_FFT_CHIRP: _bindgen_ty_24 = 4;
pub type _bindgen_ty_24 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_fft_choice {
    pub points: u32,
    pub passes: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_fft_pass {
    pub lines: u64,
    pub blocks: u64,
    pub from_work: u64,
    pub to_work: u64,
    pub factor: f64,
    pub from: bops_fft_kind,
    pub to: bops_fft_kind,
    pub flags: u32,
    pub points: u32,
    pub inners: u32,
    pub of_group: u32,
    pub line_step: u32,
    pub from_inner: u32,
    pub from_step: u32,
    pub to_inner: u32,
    pub to_step: u32,
    pub whole: u32,
    pub padded: u32,
    pub stages: u32,
    pub radix: [u32; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_fft_params {
    pub walk: bops_walk,
    pub x: bops_walked,
    pub y: bops_walked,
    pub x_step: u64,
    pub x_part: u64,
    pub y_step: u64,
    pub y_part: u64,
    pub spectrum: u64,
    pub inner: f64,
    pub points: u32,
    pub x_is_packed: u32,
    pub y_is_packed: u32,
    pub passes: u32,
    pub pass: [bops_fft_pass; 6usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_fft_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_fft_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_few_rows_stream_choice {
    pub splits: u32,
    pub stages: u32,
    pub quads: u32,
    pub right_across: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_gemm_wgmma_words_choice {
    pub rows: u32,
    pub splits: u32,
    pub band_rows: u32,
    pub blocks: u32,
    pub reads: u32,
}
pub const BOPS_MOVEMENT_EXTENTS: _bindgen_ty_25 = 8;
pub type _bindgen_ty_25 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_movement_strides {
    pub to: u64,
    pub from: i64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_movement_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_movement_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_copy_strided_choice {
    pub unit_bytes: u32,
    pub width: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_copy_strided_params {
    pub parts: u64,
    pub line: u64,
    pub from: u64,
    pub to: u64,
    pub rank: u32,
    pub is_long: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [bops_movement_strides; 8usize],
    pub tail_bytes: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_copy_tiles_choice {
    pub unit_bytes: u32,
    pub access_bytes: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_copy_tiles_params {
    pub tiles: u64,
    pub rows: u64,
    pub columns: u64,
    pub from: u64,
    pub to: u64,
    pub row: bops_movement_strides,
    pub column: bops_movement_strides,
    pub rank: u32,
    pub column_tiles: bops_divisor,
    pub row_tiles: bops_divisor,
    pub outer: [bops_divisor; 6usize],
    pub strides: [bops_movement_strides; 6usize],
}
pub type bops_outside = u32;
pub const BOPS_OUTSIDE_CONSTANT: _bindgen_ty_26 = 0;
pub const BOPS_OUTSIDE_REFLECT: _bindgen_ty_26 = 1;
pub const BOPS_OUTSIDE_REPLICATE: _bindgen_ty_26 = 2;
pub const BOPS_OUTSIDE_CIRCULAR: _bindgen_ty_26 = 3;
pub type _bindgen_ty_26 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pad_edge {
    pub before: i64,
    pub extent: u64,
    pub dilation: u64,
    pub has_edge: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pad_params {
    pub moved: bops_copy_strided_params,
    pub edges: [bops_pad_edge; 8usize],
    pub value: u64,
    pub outside: bops_outside,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_strides {
    pub y: u64,
    pub x: u64,
    pub index: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_axis {
    pub extent: u64,
    pub apart: u64,
    pub dtype: u32,
    pub from_end: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_operands {
    pub x: *const ::core::ffi::c_void,
    pub indices: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub missing: *mut u32,
}
impl Default for bops_lookup_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_params {
    pub axis: bops_lookup_axis,
    pub parts: u64,
    pub line: u64,
    pub fill: u64,
    pub rank: u32,
    pub is_long: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [bops_lookup_strides; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_rows_choice {
    pub lanes: u32,
}
pub const BOPS_LOOKUP_VECTORS: _bindgen_ty_27 = 4;
pub type _bindgen_ty_27 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_rows_params {
    pub moved: bops_lookup_params,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_lookup_missing_params {
    pub axis: bops_lookup_axis,
    pub elements: u64,
    pub rank: u32,
    pub is_long: u32,
    pub blocks: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [u64; 8usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_nonzero_operands {
    pub x: *const ::core::ffi::c_void,
    pub indices: *mut ::core::ffi::c_void,
    pub count: *mut ::core::ffi::c_void,
}
impl Default for bops_nonzero_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_nonzero_choice {
    pub bytes: u32,
    pub width: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_nonzero_params {
    pub walk: bops_walk,
    pub x: bops_walked,
    pub mask: u64,
    pub tiles: u64,
    pub rows: u64,
    pub row: u64,
    pub column: u64,
    pub fill: u64,
    pub blocks: u32,
    pub index_bytes: u32,
    pub count_bytes: u32,
    pub columns: u32,
    pub is_long: u32,
    pub inner: [bops_divisor; 7usize],
}
pub const BOPS_SORT_THREADS: _bindgen_ty_28 = 256;
pub const BOPS_SORT_ITEMS: _bindgen_ty_28 = 16;
pub const BOPS_SORT_ITEMS_FEW: _bindgen_ty_28 = 4;
pub const BOPS_SORT_FEW_TILES: _bindgen_ty_28 = 64;
pub type _bindgen_ty_28 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_entry_strides {
    pub index: u64,
    pub key: u64,
    pub place: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_order_operands {
    pub indices: *const ::core::ffi::c_void,
}
impl Default for bops_scatter_order_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_order_params {
    pub axis: bops_lookup_axis,
    pub entries: u64,
    pub keys: u32,
    pub digits: u32,
    pub tiles: u32,
    pub rank: u32,
    pub is_long: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [bops_scatter_entry_strides; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_row_strides {
    pub source: u64,
    pub y: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_rows {
    pub entries: u64,
    pub units: u64,
    pub place: u64,
    pub key: u64,
    pub blocks: u64,
    pub keys: u32,
    pub lanes: u32,
    pub of_row: u32,
    pub rank: u32,
    pub is_long: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [bops_scatter_row_strides; 8usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_operands {
    pub source: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_scatter_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type bops_scatter_combine = u32;
pub const BOPS_SCATTER_ADD: _bindgen_ty_29 = 0;
pub const BOPS_SCATTER_MULTIPLY: _bindgen_ty_29 = 1;
pub const BOPS_SCATTER_MIN: _bindgen_ty_29 = 2;
pub const BOPS_SCATTER_MAX: _bindgen_ty_29 = 3;
pub type _bindgen_ty_29 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_choice {
    pub unit_bytes: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_params {
    pub rows: bops_scatter_rows,
    pub parts: u64,
    pub part: u32,
    pub combine: bops_scatter_combine,
    pub has_base: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_set_params {
    pub rows: bops_scatter_rows,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_lines_choice {
    pub threads: u32,
    pub is_wide: u32,
    pub set_bytes: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_lines_operands {
    pub source: *const ::core::ffi::c_void,
    pub indices: *const ::core::ffi::c_void,
    pub base: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_scatter_lines_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scatter_lines_params {
    pub axis: bops_lookup_axis,
    pub lines: u64,
    pub entries: u64,
    pub step: bops_scatter_entry_strides,
    pub combine: bops_scatter_combine,
    pub has_base: u32,
    pub rank: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [bops_scatter_entry_strides; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_linalg_side {
    pub matrices: bops_walked,
    pub row: u64,
    pub column: u64,
}
pub const BOPS_TRIANGULAR_SOLVE_TILE: _bindgen_ty_30 = 32;
pub type _bindgen_ty_30 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_triangular_solve_params {
    pub walk: bops_walk,
    pub a: bops_linalg_side,
    pub b: bops_linalg_side,
    pub x: bops_linalg_side,
    pub n: u64,
    pub systems: u64,
    pub panels: u64,
    pub groups: u64,
    pub alpha: f64,
    pub is_reversed: u32,
    pub is_unit: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_triangular_solve_operands {
    pub a: *const ::core::ffi::c_void,
    pub b: *const ::core::ffi::c_void,
    pub x: *mut ::core::ffi::c_void,
}
impl Default for bops_triangular_solve_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_CHOLESKY_TILE: _bindgen_ty_31 = 32;
pub type _bindgen_ty_31 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_cholesky_params {
    pub walk: bops_walk,
    pub a: bops_linalg_side,
    pub factor: bops_linalg_side,
    pub info: bops_walked,
    pub n: u64,
    pub groups: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_cholesky_operands {
    pub a: *const ::core::ffi::c_void,
    pub factor: *mut ::core::ffi::c_void,
    pub info: *mut i32,
}
impl Default for bops_cholesky_operands {
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
pub struct bops_local_response_norm_params {
    pub batch: u64,
    pub channels: u64,
    pub spatial: u64,
    pub x: bops_channel_strides,
    pub y: bops_channel_strides,
    pub size: u64,
    pub before: u64,
    pub scale: f64,
    pub beta: f64,
    pub k: f64,
    pub half_powers: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_local_response_norm_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_local_response_norm_operands {
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
pub struct bops_local_response_norm_backward_params {
    pub batch: u64,
    pub channels: u64,
    pub spatial: u64,
    pub dy: bops_channel_strides,
    pub x: bops_channel_strides,
    pub dx: bops_channel_strides,
    pub size: u64,
    pub before: u64,
    pub scale: f64,
    pub beta: f64,
    pub k: f64,
    pub half_powers: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_local_response_norm_backward_operands {
    pub dy: *const ::core::ffi::c_void,
    pub x: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
}
impl Default for bops_local_response_norm_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_local_response_norm_walk_choice {
    pub vector_bytes: u32,
    pub thread_vectors: u32,
    pub chunk_channels: u32,
    pub chunks: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_local_response_norm_rows_choice {
    pub block_threads: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_local_response_norm_tile_choice {
    pub vector_bytes: u32,
    pub block_threads: u32,
    pub position_threads: u32,
    pub chunk_channels: u32,
    pub chunks: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_local_response_norm_direct_choice {
    pub channels_first: u32,
}
pub const BOPS_ORDER_ITEMS: _bindgen_ty_32 = 8;
pub const BOPS_ORDER_THREADS: _bindgen_ty_32 = 512;
pub const BOPS_ORDER_THREADS_WIDE: _bindgen_ty_32 = 256;
pub type _bindgen_ty_32 = ::core::ffi::c_uint;
pub const BOPS_ORDER_FEW: _bindgen_ty_33 = 8;
pub const BOPS_ORDER_FEW_LENGTH: _bindgen_ty_33 = 8192;
pub const BOPS_ORDER_GROUP_MOST: _bindgen_ty_33 = 512;
pub type _bindgen_ty_33 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_order_side {
    pub lines: bops_walked,
    pub step: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_order_keys {
    pub sign: u64,
    pub infinity: u64,
    pub is_bool: u32,
    pub is_descending: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_order_params {
    pub walk: bops_walk,
    pub x: bops_order_side,
    pub values: bops_order_side,
    pub indices: bops_order_side,
    pub keys: bops_order_keys,
    pub lines: u64,
    pub length: u64,
    pub kept: u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_order_choice {
    pub threads: u32,
    pub is_selected: u32,
    pub group: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_order_operands {
    pub x: *const ::core::ffi::c_void,
    pub values: *mut ::core::ffi::c_void,
    pub indices: *mut ::core::ffi::c_void,
}
impl Default for bops_order_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_order_element {
    pub bytes: u32,
}
pub const BOPS_SEARCH_SORTED_ITEMS: _bindgen_ty_34 = 4;
pub type _bindgen_ty_34 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_search_sorted_params {
    pub walk: bops_walk,
    pub indices: bops_walked,
    pub values: bops_walked,
    pub lines: bops_walked,
    pub keys: bops_order_keys,
    pub length: u64,
    pub step: u64,
    pub is_right: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_search_sorted_operands {
    pub sorted: *const ::core::ffi::c_void,
    pub values: *const ::core::ffi::c_void,
    pub indices: *mut ::core::ffi::c_void,
}
impl Default for bops_search_sorted_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_SETS_NUMBERS: _bindgen_ty_35 = 32;
pub const BOPS_SETS_SCALARS: _bindgen_ty_35 = 8;
pub const BOPS_SETS_BLOCK: _bindgen_ty_35 = 4096;
pub const BOPS_SETS_WORDS: _bindgen_ty_35 = 368;
pub type _bindgen_ty_35 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_sets_choice {
    pub slots: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_sets_params {
    pub inputs: u32,
    pub outputs: u32,
    pub instructions: u32,
    pub scalars: u32,
    pub result: [u32; 8usize],
    pub instruction: [u64; 64usize],
    pub literal: [u64; 32usize],
    pub scalar_dtype: [bops_dtype; 8usize],
    pub number: [u32; 8usize],
    pub input: [bops_dtype; 16usize],
    pub output: [bops_dtype; 8usize],
}
impl Default for bops_pointwise_sets_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pointwise_sets_operands {
    pub scalar: [*const ::core::ffi::c_void; 8usize],
    pub word: [u64; 368usize],
    pub sets: u32,
    pub blocks: u32,
}
impl Default for bops_pointwise_sets_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_POOL_AXES: _bindgen_ty_36 = 3;
pub const BOPS_POOL_CHAIN: _bindgen_ty_36 = 16;
pub const BOPS_POOL_TILE_ROWS: _bindgen_ty_36 = 2;
pub type _bindgen_ty_36 = ::core::ffi::c_uint;
pub type bops_pooling = u32;
pub const BOPS_POOLING_MAX: _bindgen_ty_37 = 0;
pub const BOPS_POOLING_AVERAGE: _bindgen_ty_37 = 1;
pub const BOPS_POOLING_NORM1: _bindgen_ty_37 = 2;
pub const BOPS_POOLING_NORM2: _bindgen_ty_37 = 3;
pub type _bindgen_ty_37 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pool_axis {
    pub input: u32,
    pub output: u32,
    pub kernel: u32,
    pub dilation: u32,
    pub before: u32,
    pub after: u32,
    pub stride: bops_divisor,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pool_strides {
    pub sample: u64,
    pub channel: u64,
    pub spatial: [u64; 3usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pool_choice {
    pub width: u32,
    pub is_channels_last: u32,
    pub kernel: u32,
    pub has_tiles: u32,
    pub has_planes: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_pool_params {
    pub axes: [bops_pool_axis; 3usize],
    pub parts: u64,
    pub inner: [bops_divisor; 4usize],
    pub is_long: u32,
    pub is_adaptive: u32,
    pub pooling: bops_pooling,
    pub excludes_padding: u32,
    pub factor: f64,
    pub has_int_offsets: u32,
    pub x: bops_pool_strides,
    pub y: bops_pool_strides,
    pub dy: bops_pool_strides,
    pub dx: bops_pool_strides,
    pub offsets: bops_pool_strides,
    pub indices: bops_pool_strides,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pool_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub offsets: *mut ::core::ffi::c_void,
    pub indices: *mut ::core::ffi::c_void,
}
impl Default for bops_pool_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pool_wide_choice {
    pub width: u32,
    pub is_channels_last: u32,
    pub lanes: u32,
    pub across: u32,
    pub is_flat: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_pool_backward_operands {
    pub dy: *const ::core::ffi::c_void,
    pub offsets: *const ::core::ffi::c_void,
    pub x: *const ::core::ffi::c_void,
    pub y: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
}
impl Default for bops_pool_backward_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_REDUCE_THREADS: _bindgen_ty_38 = 256;
pub const BOPS_REDUCE_ACROSS: _bindgen_ty_38 = 32;
pub const BOPS_REDUCE_BATCH: _bindgen_ty_38 = 8;
pub type _bindgen_ty_38 = ::core::ffi::c_uint;
pub type bops_combine = u32;
pub const BOPS_COMBINE_ADD: _bindgen_ty_39 = 0;
pub const BOPS_COMBINE_MULTIPLY: _bindgen_ty_39 = 1;
pub const BOPS_COMBINE_GREATEST: _bindgen_ty_39 = 2;
pub const BOPS_COMBINE_EXPONENTIALS: _bindgen_ty_39 = 3;
pub const BOPS_COMBINE_MOMENTS: _bindgen_ty_39 = 4;
pub const BOPS_COMBINE_POSITION: _bindgen_ty_39 = 5;
pub const BOPS_COMBINE_COUNT: _bindgen_ty_39 = 6;
pub const BOPS_COMBINE_ANY: _bindgen_ty_39 = 7;
pub type _bindgen_ty_39 = ::core::ffi::c_uint;
pub type bops_each = u32;
pub const BOPS_EACH_VALUE: _bindgen_ty_40 = 0;
pub const BOPS_EACH_MAGNITUDE: _bindgen_ty_40 = 1;
pub const BOPS_EACH_SQUARE: _bindgen_ty_40 = 2;
pub const BOPS_EACH_NEGATIVE: _bindgen_ty_40 = 3;
pub const BOPS_EACH_NONZERO: _bindgen_ty_40 = 4;
pub const BOPS_EACH_ZERO: _bindgen_ty_40 = 5;
pub type _bindgen_ty_40 = ::core::ffi::c_uint;
pub type bops_finish = u32;
pub const BOPS_FINISH_TOTAL: _bindgen_ty_41 = 0;
pub const BOPS_FINISH_MEAN: _bindgen_ty_41 = 1;
pub const BOPS_FINISH_ROOT: _bindgen_ty_41 = 2;
pub const BOPS_FINISH_NEGATIVE: _bindgen_ty_41 = 3;
pub const BOPS_FINISH_ROOT_OF_MEAN: _bindgen_ty_41 = 4;
pub const BOPS_FINISH_NONE: _bindgen_ty_41 = 5;
pub type _bindgen_ty_41 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_reduce_results {
    pub kept: bops_walk,
    pub out: bops_walked,
    pub outputs: u64,
    pub pieces: u64,
    pub count: f64,
    pub threads: u32,
    pub finish: bops_finish,
    pub combine: bops_combine,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_reduce_choice {
    pub combine: bops_combine,
    pub vec_bytes: u32,
    pub extents: u32,
    pub rows: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_reduce_rows_params {
    pub results: bops_reduce_results,
    pub reduced: bops_walk,
    pub in_: bops_walked,
    pub in_kept: bops_walked,
    pub accesses: u64,
    pub blocks: u64,
    pub threads: u32,
    pub batches: u32,
    pub each: bops_each,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_reduce_columns_params {
    pub results: bops_reduce_results,
    pub kept: bops_walk,
    pub reduced: bops_walk,
    pub in_: bops_walked,
    pub in_kept: bops_walked,
    pub out: bops_walked,
    pub items: u64,
    pub groups: u64,
    pub out_step: u64,
    pub deep: u32,
    pub batches: u32,
    pub each: bops_each,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_reduce_operands {
    pub in_: *const ::core::ffi::c_void,
    pub out: *mut ::core::ffi::c_void,
}
impl Default for bops_reduce_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_reduce_program_choice {
    pub combine: bops_combine,
    pub slots: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct bops_reduce_program_params {
    pub results: bops_reduce_results,
    pub reduced: bops_walk,
    pub items: u64,
    pub groups: u64,
    pub threads: u32,
    pub rounds: u32,
    pub is_columns: u32,
    pub kept_extents: u32,
    pub each: bops_each,
    pub inputs: u32,
    pub instructions: u32,
    pub result: u32,
    pub instruction: [u64; 64usize],
    pub literal: [u64; 128usize],
    pub input: [bops_walked; 16usize],
}
impl Default for bops_reduce_program_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_reduce_program_operands {
    pub input: [*const ::core::ffi::c_void; 16usize],
    pub out: *mut ::core::ffi::c_void,
}
impl Default for bops_reduce_program_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_reduce_lines_choice {
    pub dtype: bops_dtype,
    pub is_uniform: u32,
    pub slots: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct bops_reduce_lines_params {
    pub results: bops_reduce_results,
    pub accesses: u64,
    pub blocks: u64,
    pub threads: u32,
    pub rounds: u32,
    pub each: bops_each,
    pub inputs: u32,
    pub instructions: u32,
    pub result: u32,
    pub instruction: [u64; 64usize],
    pub literal: [u64; 128usize],
    pub input: [bops_walked; 16usize],
}
impl Default for bops_reduce_lines_params {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BOPS_RESIZE_SAMPLINGS: _bindgen_ty_42 = 3;
pub type _bindgen_ty_42 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_resize_sampling {
    pub slope: i64,
    pub start: i64,
    pub unit: i64,
    pub from: u64,
    pub to: u64,
    pub step: u64,
    pub inverse: f64,
    pub by_unit: bops_divisor,
    pub by_slope: bops_divisor,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_resize_operands {
    pub source: *const ::core::ffi::c_void,
    pub target: *mut ::core::ffi::c_void,
}
impl Default for bops_resize_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_resize_choice {
    pub taps: u32,
    pub is_backward: u32,
    pub width: u32,
    pub is_vector: u32,
    pub is_doubled: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_resize_params {
    pub parts: u64,
    pub rank: u32,
    pub is_long: u32,
    pub samplings: u32,
    pub has_long: u32,
    pub inner: [bops_divisor; 7usize],
    pub strides: [bops_movement_strides; 8usize],
    pub sampling: [u32; 8usize],
    pub of: [bops_resize_sampling; 3usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_specialisation {
    pub dtype: bops_dtype,
    pub weight_dtype: bops_dtype,
    pub is_centered: u32,
    pub has_dh: u32,
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
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
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
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_resident_choice {
    pub vec_bytes: u32,
    pub vectors: u32,
    pub threads_per_row: u32,
    pub threads: u32,
    pub cluster: u32,
    pub is_whole: u32,
    pub grid: u32,
    pub overlaps: u32,
    pub lets_next_overlap: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_packed_choice {
    pub threads: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_packed_warp_choice {
    pub vectors: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_shared_choice {
    pub cluster: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_ring_choice {
    pub vectors: u32,
    pub slots: u32,
    pub threads: u32,
    pub cluster: u32,
    pub is_whole: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_split_choice {
    pub vec_bytes: u32,
    pub chunks: u32,
    pub grid: u32,
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
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
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
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_backward_persistent_choice {
    pub vectors: u32,
    pub threads_per_row: u32,
    pub threads: u32,
    pub cluster: u32,
    pub stages: u32,
    pub grid: u32,
    pub overlaps: u32,
    pub flush_rows: u32,
    pub flushes: u32,
    pub late_blocks: u32,
    pub early_turns: u32,
    pub partial_rows: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_backward_few_rows_choice {
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_backward_ring_choice {
    pub vectors: u32,
    pub slots: u32,
    pub threads: u32,
    pub cluster: u32,
    pub is_whole: u32,
    pub grid: u32,
    pub overlaps: u32,
    pub flush_rows: u32,
    pub partial_rows: u32,
}
pub const BOPS_ROW_NORM_COOPERATIVE_STAGES: _bindgen_ty_43 = 6;
pub const BOPS_ROW_NORM_COOPERATIVE_TURNS: _bindgen_ty_43 = 16;
pub const BOPS_ROW_NORM_COOPERATIVE_TEAM: _bindgen_ty_43 = 160;
pub const BOPS_ROW_NORM_COOPERATIVE_MESSAGE: _bindgen_ty_43 = 16;
pub type _bindgen_ty_43 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_backward_cooperative_choice {
    pub vectors: u32,
    pub readers: u32,
    pub team_blocks: u32,
    pub grid: u32,
    pub overlaps: u32,
    pub flush_rows: u32,
    pub flushes: u32,
    pub partial_rows: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_backward_split_choice {
    pub vec_bytes: u32,
    pub chunks: u32,
    pub grid: u32,
    pub flush_rows: u32,
    pub flushes: u32,
    pub partial_rows: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_row_norm_backward_parameters_choice {
    pub partial_rows: u32,
    pub overlaps: u32,
}
pub const BOPS_SCAN_THREADS: _bindgen_ty_44 = 256;
pub const BOPS_SCAN_WIDTH: _bindgen_ty_44 = 8;
pub const BOPS_SCAN_CHUNKS: _bindgen_ty_44 = 2;
pub type _bindgen_ty_44 = ::core::ffi::c_uint;
pub const BOPS_SCAN_ACROSS: _bindgen_ty_45 = 16;
pub const BOPS_SCAN_DEEP: _bindgen_ty_45 = 32;
pub const BOPS_SCAN_STEPS: _bindgen_ty_45 = 8;
pub const BOPS_SCAN_STEPS_F32: _bindgen_ty_45 = 16;
pub type _bindgen_ty_45 = ::core::ffi::c_uint;
pub const BOPS_SCAN_CHAIN: _bindgen_ty_46 = 8;
pub type _bindgen_ty_46 = ::core::ffi::c_uint;
pub type bops_scan_combine = u32;
pub const BOPS_SCAN_ADD: _bindgen_ty_47 = 0;
pub const BOPS_SCAN_MULTIPLY: _bindgen_ty_47 = 1;
pub const BOPS_SCAN_GREATEST: _bindgen_ty_47 = 2;
pub const BOPS_SCAN_GREATEST_AT: _bindgen_ty_47 = 3;
pub const BOPS_SCAN_LOG_ADD_EXP: _bindgen_ty_47 = 4;
pub type _bindgen_ty_47 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scan_choice {
    pub combine: bops_scan_combine,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scan_side {
    pub lines: bops_walked,
    pub step: u64,
    pub is_run: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scan_params {
    pub walk: bops_walk,
    pub x: bops_scan_side,
    pub y: bops_scan_side,
    pub indices: bops_scan_side,
    pub lines: u64,
    pub length: u64,
    pub pieces: u64,
    pub blocks: u64,
    pub groups: u64,
    pub least: i64,
    pub threads: u32,
    pub tiles: u32,
    pub is_reverse: u32,
    pub is_exclusive: u32,
    pub is_least: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_scan_operands {
    pub x: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
    pub indices: *mut ::core::ffi::c_void,
}
impl Default for bops_scan_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_rows_resident_choice {
    pub vec_bytes: u32,
    pub vectors: u32,
    pub threads_per_row: u32,
    pub threads: u32,
    pub cluster: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_rows_shared_choice {
    pub threads: u32,
    pub cluster: u32,
    pub grid: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_channels_resident_choice {
    pub vec_bytes: u32,
    pub vectors: u32,
    pub threads: u32,
    pub across: u32,
    pub tiles: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_backward_channels_shared_choice {
    pub threads: u32,
    pub across: u32,
    pub tiles: u32,
    pub grid: u32,
    pub overlaps: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_split_choice {
    pub vec_bytes: u32,
    pub chunks: u32,
    pub grid: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_specialisation {
    pub dtype: bops_dtype,
    pub x_dtype: bops_dtype,
    pub is_log: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_softmax_params {
    pub outer: u64,
    pub dim: u64,
    pub inner: u64,
    pub extent1: u64,
    pub extent2: u64,
    pub strides: [bops_row_strides; 3usize],
    pub steps: [u64; 3usize],
    pub scale: f64,
}
pub const BOPS_SOFTMAX_MASKED_THREADS: _bindgen_ty_48 = 512;
pub const BOPS_SOFTMAX_MASKED_EXTENTS: _bindgen_ty_48 = 7;
pub type _bindgen_ty_48 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_masked_choice {
    pub width: u32,
    pub is_held: u32,
    pub threads: u32,
    pub lines: u32,
    pub grid: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_masked_strides {
    pub strides: [u64; 7usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct bops_softmax_masked_params {
    pub dim: u64,
    pub lines: u32,
    pub rank: u32,
    pub queries: u32,
    pub extents: [u32; 7usize],
    pub strides: [bops_softmax_masked_strides; 3usize],
    pub steps: [u64; 3usize],
    pub scale: f64,
    pub has_bias: u32,
    pub bias_is_f32: u32,
    pub bias_is_neighbours: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_operands {
    pub x: *const ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_void,
    pub y: *mut ::core::ffi::c_void,
}
impl Default for bops_softmax_operands {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bops_softmax_backward_operands {
    pub y: *const ::core::ffi::c_void,
    pub dy: *const ::core::ffi::c_void,
    pub dx: *mut ::core::ffi::c_void,
}
impl Default for bops_softmax_backward_operands {
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
    pub fn bops_activation_prepare(
        of: *const bops_dtype,
        params: *const bops_activation_params,
        choice: *const bops_activation_choice,
    ) -> bops_status;
    pub fn bops_activation_launch(
        of: *const bops_dtype,
        params: *const bops_activation_params,
        choice: *const bops_activation_choice,
        operands: *const bops_activation_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_activation_backward_prepare(
        of: *const bops_dtype,
        params: *const bops_activation_params,
        choice: *const bops_activation_choice,
    ) -> bops_status;
    pub fn bops_activation_backward_launch(
        of: *const bops_dtype,
        params: *const bops_activation_params,
        choice: *const bops_activation_choice,
        operands: *const bops_activation_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_simt_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_choice,
    ) -> bops_status;
    pub fn bops_attention_simt_launch(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_choice,
        operands: *const bops_attention_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_mma_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_mma_choice,
    ) -> bops_status;
    pub fn bops_attention_mma_launch(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_mma_choice,
        operands: *const bops_attention_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_split_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_split_choice,
    ) -> bops_status;
    pub fn bops_attention_split_launch(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_split_choice,
        operands: *const bops_attention_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_split_mma_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_split_choice,
    ) -> bops_status;
    pub fn bops_attention_split_mma_launch(
        of: *const bops_dtype,
        params: *const bops_attention_params,
        choice: *const bops_attention_split_choice,
        operands: *const bops_attention_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_delta_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_delta_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_queries_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_queries_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_keys_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_keys_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_bias_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_bias_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_mma_delta_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_mma_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_mma_delta_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_mma_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_mma_queries_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_mma_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_mma_queries_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_mma_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_attention_backward_mma_keys_prepare(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_mma_choice,
    ) -> bops_status;
    pub fn bops_attention_backward_mma_keys_launch(
        of: *const bops_dtype,
        params: *const bops_attention_backward_params,
        choice: *const bops_attention_mma_choice,
        operands: *const bops_attention_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_split_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_split_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_split_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_split_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_stripe_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_stripe_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_stripe_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_stripe_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_segment_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_segment_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_segment_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_segment_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_single_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_single_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_single_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_single_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_relay_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_relay_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_relay_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channel_norm_relay_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_split_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_split_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_split_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_split_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_cooperative_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_cooperative_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_cooperative_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_cooperative_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_cluster_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_cluster_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_cluster_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_cluster_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_resident_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_resident_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_resident_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_resident_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_slabs_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_slabs_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_slabs_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_slabs_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_rows_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_rows_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_rows_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_params,
        choice: *const bops_channels_last_norm_rows_choice,
        operands: *const bops_channel_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_split_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_split_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_split_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_split_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_stripe_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_stripe_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_stripe_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_stripe_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_segment_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_segment_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_segment_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_segment_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_single_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_single_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_single_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_single_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_single_masked_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_single_masked_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_single_masked_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_single_masked_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_held_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_held_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_held_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_held_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_relay_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_relay_choice,
    ) -> bops_status;
    pub fn bops_channel_norm_backward_relay_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channel_norm_backward_relay_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_split_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_split_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_split_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_split_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_cooperative_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_cooperative_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_cooperative_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_cooperative_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_cluster_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_cluster_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_cluster_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_cluster_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_slabs_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_slabs_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_slabs_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_slabs_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_rows_prepare(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_rows_choice,
    ) -> bops_status;
    pub fn bops_channels_last_norm_backward_rows_launch(
        of: *const bops_channel_norm_specialisation,
        params: *const bops_channel_norm_backward_params,
        choice: *const bops_channels_last_norm_rows_choice,
        operands: *const bops_channel_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_simt_prepare(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_choice,
    ) -> bops_status;
    pub fn bops_gemm_simt_launch(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_mma_prepare(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_choice,
    ) -> bops_status;
    pub fn bops_gemm_mma_launch(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_few_rows_prepare(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_few_rows_choice,
    ) -> bops_status;
    pub fn bops_gemm_few_rows_launch(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_few_rows_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_wgmma_prepare(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_wgmma_choice,
    ) -> bops_status;
    pub fn bops_gemm_wgmma_launch(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_wgmma_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_repack_prepare(params: *const bops_gemm_repack_params) -> bops_status;
    pub fn bops_gemm_repack_launch(
        params: *const bops_gemm_repack_params,
        from: *const ::core::ffi::c_void,
        to: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_finish_prepare(
        params: *const bops_gemm_params,
        choice: *const bops_gemm_finish_choice,
        dtype: bops_dtype,
    ) -> bops_status;
    pub fn bops_gemm_finish_launch(
        params: *const bops_gemm_params,
        choice: *const bops_gemm_finish_choice,
        dtype: bops_dtype,
        source: *const ::core::ffi::c_void,
        operands: *const bops_gemm_operands,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_dpre_prepare(params: *const bops_gemm_dpre_params, dtype: bops_dtype) -> bops_status;
    pub fn bops_gemm_dpre_launch(
        params: *const bops_gemm_dpre_params,
        dtype: bops_dtype,
        dout: *const ::core::ffi::c_void,
        saved: *const ::core::ffi::c_void,
        dpre: *mut ::core::ffi::c_void,
        column_sums: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_dbias_prepare(params: *const bops_gemm_dbias_params, dtype: bops_dtype) -> bops_status;
    pub fn bops_gemm_dbias_launch(
        params: *const bops_gemm_dbias_params,
        dtype: bops_dtype,
        column_sums: *const ::core::ffi::c_void,
        dbias: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_simt_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_params,
        choice: *const bops_conv_choice,
    ) -> bops_status;
    pub fn bops_conv_simt_launch(
        of: *const bops_dtype,
        params: *const bops_conv_params,
        choice: *const bops_conv_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_mma_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_params,
        choice: *const bops_conv_choice,
    ) -> bops_status;
    pub fn bops_conv_mma_launch(
        of: *const bops_dtype,
        params: *const bops_conv_params,
        choice: *const bops_conv_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_depthwise_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_depthwise_params,
        choice: *const bops_conv_depthwise_choice,
    ) -> bops_status;
    pub fn bops_conv_depthwise_launch(
        of: *const bops_dtype,
        params: *const bops_conv_depthwise_params,
        choice: *const bops_conv_depthwise_choice,
        operands: *const bops_conv_depthwise_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_depthwise_weight_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_depthwise_params,
        choice: *const bops_conv_depthwise_choice,
    ) -> bops_status;
    pub fn bops_conv_depthwise_weight_launch(
        of: *const bops_dtype,
        params: *const bops_conv_depthwise_params,
        choice: *const bops_conv_depthwise_choice,
        operands: *const bops_conv_depthwise_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_backward_bias_prepare(
        params: *const bops_conv_backward_bias_params,
        dtype: bops_dtype,
    ) -> bops_status;
    pub fn bops_conv_backward_bias_launch(
        params: *const bops_conv_backward_bias_params,
        dtype: bops_dtype,
        dy: *const ::core::ffi::c_void,
        parts: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_column_sums_prepare(params: *const bops_conv_column_sums_params, dtype: bops_dtype)
    -> bops_status;
    pub fn bops_conv_column_sums_launch(
        params: *const bops_conv_column_sums_params,
        dtype: bops_dtype,
        dy: *const ::core::ffi::c_void,
        parts: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_few_channels_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_few_channels_params,
        choice: *const bops_conv_few_channels_choice,
    ) -> bops_status;
    pub fn bops_conv_few_channels_launch(
        of: *const bops_dtype,
        params: *const bops_conv_few_channels_params,
        choice: *const bops_conv_few_channels_choice,
        operands: *const bops_conv_few_channels_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_few_channels_weight_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_few_channels_params,
        choice: *const bops_conv_few_channels_choice,
    ) -> bops_status;
    pub fn bops_conv_few_channels_weight_launch(
        of: *const bops_dtype,
        params: *const bops_conv_few_channels_params,
        choice: *const bops_conv_few_channels_choice,
        operands: *const bops_conv_few_channels_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_few_channels_data_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_few_channels_params,
        choice: *const bops_conv_few_channels_data_choice,
    ) -> bops_status;
    pub fn bops_conv_few_channels_data_launch(
        of: *const bops_dtype,
        params: *const bops_conv_few_channels_params,
        choice: *const bops_conv_few_channels_data_choice,
        operands: *const bops_conv_few_channels_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_wgmma_prepare(
        of: *const bops_dtype,
        params: *const bops_conv_params,
        choice: *const bops_conv_wgmma_choice,
    ) -> bops_status;
    pub fn bops_conv_wgmma_launch(
        of: *const bops_dtype,
        params: *const bops_conv_params,
        choice: *const bops_conv_wgmma_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_conv_turn_prepare(params: *const bops_conv_turn_params) -> bops_status;
    pub fn bops_conv_turn_launch(
        params: *const bops_conv_turn_params,
        from: *const ::core::ffi::c_void,
        to: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_cross_entropy_prepare(
        of: *const bops_dtype,
        params: *const bops_cross_entropy_params,
        choice: *const bops_cross_entropy_choice,
    ) -> bops_status;
    pub fn bops_cross_entropy_launch(
        of: *const bops_dtype,
        params: *const bops_cross_entropy_params,
        choice: *const bops_cross_entropy_choice,
        operands: *const bops_cross_entropy_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_cross_entropy_backward_prepare(
        of: *const bops_dtype,
        params: *const bops_cross_entropy_params,
        choice: *const bops_cross_entropy_choice,
    ) -> bops_status;
    pub fn bops_cross_entropy_backward_launch(
        of: *const bops_dtype,
        params: *const bops_cross_entropy_params,
        choice: *const bops_cross_entropy_choice,
        operands: *const bops_cross_entropy_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pointwise_function_prepare(
        of: *const bops_dtype,
        params: *const bops_pointwise_function_params,
        choice: *const bops_pointwise_function_choice,
    ) -> bops_status;
    pub fn bops_pointwise_function_launch(
        of: *const bops_dtype,
        params: *const bops_pointwise_function_params,
        choice: *const bops_pointwise_function_choice,
        operands: *const bops_pointwise_function_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pointwise_program_prepare(
        of: *const bops_dtype,
        params: *const bops_pointwise_program_params,
        choice: *const bops_pointwise_program_choice,
    ) -> bops_status;
    pub fn bops_pointwise_program_launch(
        of: *const bops_dtype,
        params: *const bops_pointwise_program_params,
        choice: *const bops_pointwise_program_choice,
        operands: *const bops_pointwise_program_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pointwise_source_prepare(
        of: *const bops_dtype,
        params: *const bops_pointwise_source_params,
        choice: *const bops_pointwise_source_choice,
    ) -> bops_status;
    pub fn bops_pointwise_source_launch(
        of: *const bops_dtype,
        params: *const bops_pointwise_source_params,
        choice: *const bops_pointwise_source_choice,
        operands: *const bops_pointwise_source_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_fft_prepare(
        of: *const bops_dtype,
        params: *const bops_fft_params,
        choice: *const bops_fft_choice,
    ) -> bops_status;
    pub fn bops_fft_launch(
        of: *const bops_dtype,
        params: *const bops_fft_params,
        choice: *const bops_fft_choice,
        operands: *const bops_fft_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_few_rows_stream_prepare(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_few_rows_stream_choice,
    ) -> bops_status;
    pub fn bops_gemm_few_rows_stream_launch(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_few_rows_stream_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_wgmma_words_prepare(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_wgmma_words_choice,
    ) -> bops_status;
    pub fn bops_gemm_wgmma_words_launch(
        of: *const bops_dtype,
        params: *const bops_gemm_params,
        choice: *const bops_gemm_wgmma_words_choice,
        operands: *const bops_gemm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_gemm_turn_prepare(params: *const bops_gemm_repack_params) -> bops_status;
    pub fn bops_gemm_turn_launch(
        params: *const bops_gemm_repack_params,
        from: *const ::core::ffi::c_void,
        to: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_copy_strided_prepare(
        of: *const u32,
        params: *const bops_copy_strided_params,
        choice: *const bops_copy_strided_choice,
    ) -> bops_status;
    pub fn bops_copy_strided_launch(
        of: *const u32,
        params: *const bops_copy_strided_params,
        choice: *const bops_copy_strided_choice,
        operands: *const bops_movement_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_copy_tiles_prepare(
        of: *const u32,
        params: *const bops_copy_tiles_params,
        choice: *const bops_copy_tiles_choice,
    ) -> bops_status;
    pub fn bops_copy_tiles_launch(
        of: *const u32,
        params: *const bops_copy_tiles_params,
        choice: *const bops_copy_tiles_choice,
        operands: *const bops_movement_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pad_prepare(
        of: *const u32,
        params: *const bops_pad_params,
        choice: *const bops_copy_strided_choice,
    ) -> bops_status;
    pub fn bops_pad_launch(
        of: *const u32,
        params: *const bops_pad_params,
        choice: *const bops_copy_strided_choice,
        operands: *const bops_movement_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_lookup_prepare(
        of: *const u32,
        params: *const bops_lookup_params,
        choice: *const bops_copy_strided_choice,
    ) -> bops_status;
    pub fn bops_lookup_launch(
        of: *const u32,
        params: *const bops_lookup_params,
        choice: *const bops_copy_strided_choice,
        operands: *const bops_lookup_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_lookup_rows_prepare(
        of: *const u32,
        params: *const bops_lookup_rows_params,
        choice: *const bops_lookup_rows_choice,
    ) -> bops_status;
    pub fn bops_lookup_rows_launch(
        of: *const u32,
        params: *const bops_lookup_rows_params,
        choice: *const bops_lookup_rows_choice,
        operands: *const bops_lookup_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_lookup_missing_prepare(
        of: *const u32,
        params: *const bops_lookup_missing_params,
        choice: *const u32,
    ) -> bops_status;
    pub fn bops_lookup_missing_launch(
        of: *const u32,
        params: *const bops_lookup_missing_params,
        choice: *const u32,
        operands: *const bops_lookup_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_nonzero_prepare(
        of: *const u32,
        params: *const bops_nonzero_params,
        choice: *const bops_nonzero_choice,
    ) -> bops_status;
    pub fn bops_nonzero_launch(
        of: *const u32,
        params: *const bops_nonzero_params,
        choice: *const bops_nonzero_choice,
        operands: *const bops_nonzero_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_scatter_order_prepare(
        of: *const u32,
        params: *const bops_scatter_order_params,
        choice: *const u32,
    ) -> bops_status;
    pub fn bops_scatter_order_launch(
        of: *const u32,
        params: *const bops_scatter_order_params,
        choice: *const u32,
        operands: *const bops_scatter_order_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_scatter_prepare(
        of: *const bops_dtype,
        params: *const bops_scatter_params,
        choice: *const bops_scatter_choice,
    ) -> bops_status;
    pub fn bops_scatter_launch(
        of: *const bops_dtype,
        params: *const bops_scatter_params,
        choice: *const bops_scatter_choice,
        operands: *const bops_scatter_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_scatter_set_prepare(
        of: *const u32,
        params: *const bops_scatter_set_params,
        choice: *const bops_scatter_choice,
    ) -> bops_status;
    pub fn bops_scatter_set_launch(
        of: *const u32,
        params: *const bops_scatter_set_params,
        choice: *const bops_scatter_choice,
        operands: *const bops_scatter_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_scatter_lines_prepare(
        of: *const bops_dtype,
        params: *const bops_scatter_lines_params,
        choice: *const bops_scatter_lines_choice,
    ) -> bops_status;
    pub fn bops_scatter_lines_launch(
        of: *const bops_dtype,
        params: *const bops_scatter_lines_params,
        choice: *const bops_scatter_lines_choice,
        operands: *const bops_scatter_lines_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_triangular_solve_prepare(
        of: *const bops_dtype,
        params: *const bops_triangular_solve_params,
        choice: *const u32,
    ) -> bops_status;
    pub fn bops_triangular_solve_launch(
        of: *const bops_dtype,
        params: *const bops_triangular_solve_params,
        choice: *const u32,
        operands: *const bops_triangular_solve_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_cholesky_prepare(
        of: *const bops_dtype,
        params: *const bops_cholesky_params,
        choice: *const u32,
    ) -> bops_status;
    pub fn bops_cholesky_launch(
        of: *const bops_dtype,
        params: *const bops_cholesky_params,
        choice: *const u32,
        operands: *const bops_cholesky_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_walk_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_walk_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_walk_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_walk_choice,
        operands: *const bops_local_response_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_rows_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_rows_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_rows_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_rows_choice,
        operands: *const bops_local_response_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_tile_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_tile_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_tile_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_tile_choice,
        operands: *const bops_local_response_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_direct_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_direct_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_direct_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_params,
        choice: *const bops_local_response_norm_direct_choice,
        operands: *const bops_local_response_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_walk_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_walk_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_walk_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_walk_choice,
        operands: *const bops_local_response_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_rows_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_rows_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_rows_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_rows_choice,
        operands: *const bops_local_response_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_tile_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_tile_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_tile_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_tile_choice,
        operands: *const bops_local_response_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_direct_prepare(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_direct_choice,
    ) -> bops_status;
    pub fn bops_local_response_norm_backward_direct_launch(
        of: *const bops_dtype,
        params: *const bops_local_response_norm_backward_params,
        choice: *const bops_local_response_norm_direct_choice,
        operands: *const bops_local_response_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_order_tiles_prepare(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
    ) -> bops_status;
    pub fn bops_order_tiles_launch(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
        operands: *const bops_order_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_order_groups_prepare(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
    ) -> bops_status;
    pub fn bops_order_groups_launch(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
        operands: *const bops_order_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_order_few_prepare(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
    ) -> bops_status;
    pub fn bops_order_few_launch(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
        operands: *const bops_order_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_order_merge_prepare(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
    ) -> bops_status;
    pub fn bops_order_merge_launch(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
        operands: *const bops_order_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_order_radix_prepare(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
    ) -> bops_status;
    pub fn bops_order_radix_launch(
        of: *const bops_order_element,
        params: *const bops_order_params,
        choice: *const bops_order_choice,
        operands: *const bops_order_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_search_sorted_prepare(
        of: *const bops_order_element,
        params: *const bops_search_sorted_params,
        choice: *const u32,
    ) -> bops_status;
    pub fn bops_search_sorted_launch(
        of: *const bops_order_element,
        params: *const bops_search_sorted_params,
        choice: *const u32,
        operands: *const bops_search_sorted_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pointwise_sets_prepare(
        of: *const bops_dtype,
        params: *const bops_pointwise_sets_params,
        choice: *const bops_pointwise_sets_choice,
    ) -> bops_status;
    pub fn bops_pointwise_sets_launch(
        of: *const bops_dtype,
        params: *const bops_pointwise_sets_params,
        choice: *const bops_pointwise_sets_choice,
        operands: *const bops_pointwise_sets_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pool_prepare(
        of: *const bops_dtype,
        params: *const bops_pool_params,
        choice: *const bops_pool_choice,
    ) -> bops_status;
    pub fn bops_pool_launch(
        of: *const bops_dtype,
        params: *const bops_pool_params,
        choice: *const bops_pool_choice,
        operands: *const bops_pool_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pool_wide_prepare(
        of: *const bops_dtype,
        params: *const bops_pool_params,
        choice: *const bops_pool_wide_choice,
    ) -> bops_status;
    pub fn bops_pool_wide_launch(
        of: *const bops_dtype,
        params: *const bops_pool_params,
        choice: *const bops_pool_wide_choice,
        operands: *const bops_pool_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_pool_backward_prepare(
        of: *const bops_dtype,
        params: *const bops_pool_params,
        choice: *const bops_pool_choice,
    ) -> bops_status;
    pub fn bops_pool_backward_launch(
        of: *const bops_dtype,
        params: *const bops_pool_params,
        choice: *const bops_pool_choice,
        operands: *const bops_pool_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_reduce_rows_prepare(
        of: *const bops_dtype,
        params: *const bops_reduce_rows_params,
        choice: *const bops_reduce_choice,
    ) -> bops_status;
    pub fn bops_reduce_rows_launch(
        of: *const bops_dtype,
        params: *const bops_reduce_rows_params,
        choice: *const bops_reduce_choice,
        operands: *const bops_reduce_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_reduce_columns_prepare(
        of: *const bops_dtype,
        params: *const bops_reduce_columns_params,
        choice: *const bops_reduce_choice,
    ) -> bops_status;
    pub fn bops_reduce_columns_launch(
        of: *const bops_dtype,
        params: *const bops_reduce_columns_params,
        choice: *const bops_reduce_choice,
        operands: *const bops_reduce_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_reduce_program_prepare(
        of: *const bops_dtype,
        params: *const bops_reduce_program_params,
        choice: *const bops_reduce_program_choice,
    ) -> bops_status;
    pub fn bops_reduce_program_launch(
        of: *const bops_dtype,
        params: *const bops_reduce_program_params,
        choice: *const bops_reduce_program_choice,
        operands: *const bops_reduce_program_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_reduce_lines_prepare(
        of: *const bops_combine,
        params: *const bops_reduce_lines_params,
        choice: *const bops_reduce_lines_choice,
    ) -> bops_status;
    pub fn bops_reduce_lines_launch(
        of: *const bops_combine,
        params: *const bops_reduce_lines_params,
        choice: *const bops_reduce_lines_choice,
        operands: *const bops_reduce_program_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_resize_prepare(
        of: *const bops_dtype,
        params: *const bops_resize_params,
        choice: *const bops_resize_choice,
    ) -> bops_status;
    pub fn bops_resize_launch(
        of: *const bops_dtype,
        params: *const bops_resize_params,
        choice: *const bops_resize_choice,
        operands: *const bops_resize_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_resident_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_resident_choice,
    ) -> bops_status;
    pub fn bops_row_norm_resident_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_resident_choice,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_packed_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_packed_choice,
    ) -> bops_status;
    pub fn bops_row_norm_packed_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_packed_choice,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_packed_warp_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_packed_warp_choice,
    ) -> bops_status;
    pub fn bops_row_norm_packed_warp_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_packed_warp_choice,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_shared_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_shared_choice,
    ) -> bops_status;
    pub fn bops_row_norm_shared_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_shared_choice,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_ring_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_ring_choice,
    ) -> bops_status;
    pub fn bops_row_norm_ring_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_ring_choice,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_split_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_split_choice,
    ) -> bops_status;
    pub fn bops_row_norm_split_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_params,
        choice: *const bops_row_norm_split_choice,
        operands: *const bops_row_norm_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_backward_persistent_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_persistent_choice,
    ) -> bops_status;
    pub fn bops_row_norm_backward_persistent_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_persistent_choice,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_backward_few_rows_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_few_rows_choice,
    ) -> bops_status;
    pub fn bops_row_norm_backward_few_rows_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_few_rows_choice,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_backward_ring_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_ring_choice,
    ) -> bops_status;
    pub fn bops_row_norm_backward_ring_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_ring_choice,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_backward_cooperative_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_cooperative_choice,
    ) -> bops_status;
    pub fn bops_row_norm_backward_cooperative_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_cooperative_choice,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_backward_split_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_split_choice,
    ) -> bops_status;
    pub fn bops_row_norm_backward_split_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_split_choice,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_row_norm_backward_parameters_prepare(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_parameters_choice,
    ) -> bops_status;
    pub fn bops_row_norm_backward_parameters_launch(
        of: *const bops_row_norm_specialisation,
        params: *const bops_row_norm_backward_params,
        choice: *const bops_row_norm_backward_parameters_choice,
        operands: *const bops_row_norm_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_scan_rows_prepare(
        of: *const bops_dtype,
        params: *const bops_scan_params,
        choice: *const bops_scan_choice,
    ) -> bops_status;
    pub fn bops_scan_rows_launch(
        of: *const bops_dtype,
        params: *const bops_scan_params,
        choice: *const bops_scan_choice,
        operands: *const bops_scan_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_scan_columns_prepare(
        of: *const bops_dtype,
        params: *const bops_scan_params,
        choice: *const bops_scan_choice,
    ) -> bops_status;
    pub fn bops_scan_columns_launch(
        of: *const bops_dtype,
        params: *const bops_scan_params,
        choice: *const bops_scan_choice,
        operands: *const bops_scan_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_rows_resident_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_resident_choice,
    ) -> bops_status;
    pub fn bops_softmax_rows_resident_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_resident_choice,
        operands: *const bops_softmax_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_rows_shared_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_shared_choice,
    ) -> bops_status;
    pub fn bops_softmax_rows_shared_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_shared_choice,
        operands: *const bops_softmax_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_channels_resident_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_channels_resident_choice,
    ) -> bops_status;
    pub fn bops_softmax_channels_resident_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_channels_resident_choice,
        operands: *const bops_softmax_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_split_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_split_choice,
    ) -> bops_status;
    pub fn bops_softmax_split_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_split_choice,
        operands: *const bops_softmax_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_backward_rows_resident_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_resident_choice,
    ) -> bops_status;
    pub fn bops_softmax_backward_rows_resident_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_resident_choice,
        operands: *const bops_softmax_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_backward_rows_shared_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_shared_choice,
    ) -> bops_status;
    pub fn bops_softmax_backward_rows_shared_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_rows_shared_choice,
        operands: *const bops_softmax_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_backward_channels_resident_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_channels_resident_choice,
    ) -> bops_status;
    pub fn bops_softmax_backward_channels_resident_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_channels_resident_choice,
        operands: *const bops_softmax_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_backward_split_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_split_choice,
    ) -> bops_status;
    pub fn bops_softmax_backward_split_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_split_choice,
        operands: *const bops_softmax_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_backward_channels_shared_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_backward_channels_shared_choice,
    ) -> bops_status;
    pub fn bops_softmax_backward_channels_shared_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_params,
        choice: *const bops_softmax_backward_channels_shared_choice,
        operands: *const bops_softmax_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_masked_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_masked_params,
        choice: *const bops_softmax_masked_choice,
    ) -> bops_status;
    pub fn bops_softmax_masked_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_masked_params,
        choice: *const bops_softmax_masked_choice,
        operands: *const bops_softmax_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
    pub fn bops_softmax_backward_masked_prepare(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_masked_params,
        choice: *const bops_softmax_masked_choice,
    ) -> bops_status;
    pub fn bops_softmax_backward_masked_launch(
        of: *const bops_softmax_specialisation,
        params: *const bops_softmax_masked_params,
        choice: *const bops_softmax_masked_choice,
        operands: *const bops_softmax_backward_operands,
        workspace: *mut ::core::ffi::c_void,
        stream: bops_stream,
    ) -> bops_status;
}

#[cfg(feature = "cuda")]
pub mod forms {
    pub mod bops_activation {
        pub use super::super::bops_activation_launch as launch;
        pub use super::super::bops_activation_prepare as prepare;
    }
    pub mod bops_activation_backward {
        pub use super::super::bops_activation_backward_launch as launch;
        pub use super::super::bops_activation_backward_prepare as prepare;
    }
    pub mod bops_attention_simt {
        pub use super::super::bops_attention_simt_launch as launch;
        pub use super::super::bops_attention_simt_prepare as prepare;
    }
    pub mod bops_attention_mma {
        pub use super::super::bops_attention_mma_launch as launch;
        pub use super::super::bops_attention_mma_prepare as prepare;
    }
    pub mod bops_attention_split {
        pub use super::super::bops_attention_split_launch as launch;
        pub use super::super::bops_attention_split_prepare as prepare;
    }
    pub mod bops_attention_split_mma {
        pub use super::super::bops_attention_split_mma_launch as launch;
        pub use super::super::bops_attention_split_mma_prepare as prepare;
    }
    pub mod bops_attention_backward_delta {
        pub use super::super::bops_attention_backward_delta_launch as launch;
        pub use super::super::bops_attention_backward_delta_prepare as prepare;
    }
    pub mod bops_attention_backward_queries {
        pub use super::super::bops_attention_backward_queries_launch as launch;
        pub use super::super::bops_attention_backward_queries_prepare as prepare;
    }
    pub mod bops_attention_backward_keys {
        pub use super::super::bops_attention_backward_keys_launch as launch;
        pub use super::super::bops_attention_backward_keys_prepare as prepare;
    }
    pub mod bops_attention_backward_bias {
        pub use super::super::bops_attention_backward_bias_launch as launch;
        pub use super::super::bops_attention_backward_bias_prepare as prepare;
    }
    pub mod bops_attention_backward_mma_delta {
        pub use super::super::bops_attention_backward_mma_delta_launch as launch;
        pub use super::super::bops_attention_backward_mma_delta_prepare as prepare;
    }
    pub mod bops_attention_backward_mma_queries {
        pub use super::super::bops_attention_backward_mma_queries_launch as launch;
        pub use super::super::bops_attention_backward_mma_queries_prepare as prepare;
    }
    pub mod bops_attention_backward_mma_keys {
        pub use super::super::bops_attention_backward_mma_keys_launch as launch;
        pub use super::super::bops_attention_backward_mma_keys_prepare as prepare;
    }
    pub mod bops_channel_norm_split {
        pub use super::super::bops_channel_norm_split_launch as launch;
        pub use super::super::bops_channel_norm_split_prepare as prepare;
    }
    pub mod bops_channel_norm_stripe {
        pub use super::super::bops_channel_norm_stripe_launch as launch;
        pub use super::super::bops_channel_norm_stripe_prepare as prepare;
    }
    pub mod bops_channel_norm_segment {
        pub use super::super::bops_channel_norm_segment_launch as launch;
        pub use super::super::bops_channel_norm_segment_prepare as prepare;
    }
    pub mod bops_channel_norm_single {
        pub use super::super::bops_channel_norm_single_launch as launch;
        pub use super::super::bops_channel_norm_single_prepare as prepare;
    }
    pub mod bops_channel_norm_relay {
        pub use super::super::bops_channel_norm_relay_launch as launch;
        pub use super::super::bops_channel_norm_relay_prepare as prepare;
    }
    pub mod bops_channels_last_norm_split {
        pub use super::super::bops_channels_last_norm_split_launch as launch;
        pub use super::super::bops_channels_last_norm_split_prepare as prepare;
    }
    pub mod bops_channels_last_norm_cooperative {
        pub use super::super::bops_channels_last_norm_cooperative_launch as launch;
        pub use super::super::bops_channels_last_norm_cooperative_prepare as prepare;
    }
    pub mod bops_channels_last_norm_cluster {
        pub use super::super::bops_channels_last_norm_cluster_launch as launch;
        pub use super::super::bops_channels_last_norm_cluster_prepare as prepare;
    }
    pub mod bops_channels_last_norm_resident {
        pub use super::super::bops_channels_last_norm_resident_launch as launch;
        pub use super::super::bops_channels_last_norm_resident_prepare as prepare;
    }
    pub mod bops_channels_last_norm_slabs {
        pub use super::super::bops_channels_last_norm_slabs_launch as launch;
        pub use super::super::bops_channels_last_norm_slabs_prepare as prepare;
    }
    pub mod bops_channels_last_norm_rows {
        pub use super::super::bops_channels_last_norm_rows_launch as launch;
        pub use super::super::bops_channels_last_norm_rows_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_split {
        pub use super::super::bops_channel_norm_backward_split_launch as launch;
        pub use super::super::bops_channel_norm_backward_split_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_stripe {
        pub use super::super::bops_channel_norm_backward_stripe_launch as launch;
        pub use super::super::bops_channel_norm_backward_stripe_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_segment {
        pub use super::super::bops_channel_norm_backward_segment_launch as launch;
        pub use super::super::bops_channel_norm_backward_segment_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_single {
        pub use super::super::bops_channel_norm_backward_single_launch as launch;
        pub use super::super::bops_channel_norm_backward_single_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_single_masked {
        pub use super::super::bops_channel_norm_backward_single_masked_launch as launch;
        pub use super::super::bops_channel_norm_backward_single_masked_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_held {
        pub use super::super::bops_channel_norm_backward_held_launch as launch;
        pub use super::super::bops_channel_norm_backward_held_prepare as prepare;
    }
    pub mod bops_channel_norm_backward_relay {
        pub use super::super::bops_channel_norm_backward_relay_launch as launch;
        pub use super::super::bops_channel_norm_backward_relay_prepare as prepare;
    }
    pub mod bops_channels_last_norm_backward_split {
        pub use super::super::bops_channels_last_norm_backward_split_launch as launch;
        pub use super::super::bops_channels_last_norm_backward_split_prepare as prepare;
    }
    pub mod bops_channels_last_norm_backward_cooperative {
        pub use super::super::bops_channels_last_norm_backward_cooperative_launch as launch;
        pub use super::super::bops_channels_last_norm_backward_cooperative_prepare as prepare;
    }
    pub mod bops_channels_last_norm_backward_cluster {
        pub use super::super::bops_channels_last_norm_backward_cluster_launch as launch;
        pub use super::super::bops_channels_last_norm_backward_cluster_prepare as prepare;
    }
    pub mod bops_channels_last_norm_backward_slabs {
        pub use super::super::bops_channels_last_norm_backward_slabs_launch as launch;
        pub use super::super::bops_channels_last_norm_backward_slabs_prepare as prepare;
    }
    pub mod bops_channels_last_norm_backward_rows {
        pub use super::super::bops_channels_last_norm_backward_rows_launch as launch;
        pub use super::super::bops_channels_last_norm_backward_rows_prepare as prepare;
    }
    pub mod bops_gemm_simt {
        pub use super::super::bops_gemm_simt_launch as launch;
        pub use super::super::bops_gemm_simt_prepare as prepare;
    }
    pub mod bops_gemm_mma {
        pub use super::super::bops_gemm_mma_launch as launch;
        pub use super::super::bops_gemm_mma_prepare as prepare;
    }
    pub mod bops_gemm_few_rows {
        pub use super::super::bops_gemm_few_rows_launch as launch;
        pub use super::super::bops_gemm_few_rows_prepare as prepare;
    }
    pub mod bops_gemm_wgmma {
        pub use super::super::bops_gemm_wgmma_launch as launch;
        pub use super::super::bops_gemm_wgmma_prepare as prepare;
    }
    pub mod bops_conv_simt {
        pub use super::super::bops_conv_simt_launch as launch;
        pub use super::super::bops_conv_simt_prepare as prepare;
    }
    pub mod bops_conv_mma {
        pub use super::super::bops_conv_mma_launch as launch;
        pub use super::super::bops_conv_mma_prepare as prepare;
    }
    pub mod bops_conv_depthwise {
        pub use super::super::bops_conv_depthwise_launch as launch;
        pub use super::super::bops_conv_depthwise_prepare as prepare;
    }
    pub mod bops_conv_depthwise_weight {
        pub use super::super::bops_conv_depthwise_weight_launch as launch;
        pub use super::super::bops_conv_depthwise_weight_prepare as prepare;
    }
    pub mod bops_conv_few_channels {
        pub use super::super::bops_conv_few_channels_launch as launch;
        pub use super::super::bops_conv_few_channels_prepare as prepare;
    }
    pub mod bops_conv_few_channels_weight {
        pub use super::super::bops_conv_few_channels_weight_launch as launch;
        pub use super::super::bops_conv_few_channels_weight_prepare as prepare;
    }
    pub mod bops_conv_few_channels_data {
        pub use super::super::bops_conv_few_channels_data_launch as launch;
        pub use super::super::bops_conv_few_channels_data_prepare as prepare;
    }
    pub mod bops_conv_wgmma {
        pub use super::super::bops_conv_wgmma_launch as launch;
        pub use super::super::bops_conv_wgmma_prepare as prepare;
    }
    pub mod bops_cross_entropy {
        pub use super::super::bops_cross_entropy_launch as launch;
        pub use super::super::bops_cross_entropy_prepare as prepare;
    }
    pub mod bops_cross_entropy_backward {
        pub use super::super::bops_cross_entropy_backward_launch as launch;
        pub use super::super::bops_cross_entropy_backward_prepare as prepare;
    }
    pub mod bops_pointwise_function {
        pub use super::super::bops_pointwise_function_launch as launch;
        pub use super::super::bops_pointwise_function_prepare as prepare;
    }
    pub mod bops_pointwise_program {
        pub use super::super::bops_pointwise_program_launch as launch;
        pub use super::super::bops_pointwise_program_prepare as prepare;
    }
    pub mod bops_pointwise_source {
        pub use super::super::bops_pointwise_source_launch as launch;
        pub use super::super::bops_pointwise_source_prepare as prepare;
    }
    pub mod bops_fft {
        pub use super::super::bops_fft_launch as launch;
        pub use super::super::bops_fft_prepare as prepare;
    }
    pub mod bops_gemm_few_rows_stream {
        pub use super::super::bops_gemm_few_rows_stream_launch as launch;
        pub use super::super::bops_gemm_few_rows_stream_prepare as prepare;
    }
    pub mod bops_gemm_wgmma_words {
        pub use super::super::bops_gemm_wgmma_words_launch as launch;
        pub use super::super::bops_gemm_wgmma_words_prepare as prepare;
    }
    pub mod bops_copy_strided {
        pub use super::super::bops_copy_strided_launch as launch;
        pub use super::super::bops_copy_strided_prepare as prepare;
    }
    pub mod bops_copy_tiles {
        pub use super::super::bops_copy_tiles_launch as launch;
        pub use super::super::bops_copy_tiles_prepare as prepare;
    }
    pub mod bops_pad {
        pub use super::super::bops_pad_launch as launch;
        pub use super::super::bops_pad_prepare as prepare;
    }
    pub mod bops_lookup {
        pub use super::super::bops_lookup_launch as launch;
        pub use super::super::bops_lookup_prepare as prepare;
    }
    pub mod bops_lookup_rows {
        pub use super::super::bops_lookup_rows_launch as launch;
        pub use super::super::bops_lookup_rows_prepare as prepare;
    }
    pub mod bops_lookup_missing {
        pub use super::super::bops_lookup_missing_launch as launch;
        pub use super::super::bops_lookup_missing_prepare as prepare;
    }
    pub mod bops_nonzero {
        pub use super::super::bops_nonzero_launch as launch;
        pub use super::super::bops_nonzero_prepare as prepare;
    }
    pub mod bops_scatter_order {
        pub use super::super::bops_scatter_order_launch as launch;
        pub use super::super::bops_scatter_order_prepare as prepare;
    }
    pub mod bops_scatter {
        pub use super::super::bops_scatter_launch as launch;
        pub use super::super::bops_scatter_prepare as prepare;
    }
    pub mod bops_scatter_set {
        pub use super::super::bops_scatter_set_launch as launch;
        pub use super::super::bops_scatter_set_prepare as prepare;
    }
    pub mod bops_scatter_lines {
        pub use super::super::bops_scatter_lines_launch as launch;
        pub use super::super::bops_scatter_lines_prepare as prepare;
    }
    pub mod bops_triangular_solve {
        pub use super::super::bops_triangular_solve_launch as launch;
        pub use super::super::bops_triangular_solve_prepare as prepare;
    }
    pub mod bops_cholesky {
        pub use super::super::bops_cholesky_launch as launch;
        pub use super::super::bops_cholesky_prepare as prepare;
    }
    pub mod bops_local_response_norm_walk {
        pub use super::super::bops_local_response_norm_walk_launch as launch;
        pub use super::super::bops_local_response_norm_walk_prepare as prepare;
    }
    pub mod bops_local_response_norm_rows {
        pub use super::super::bops_local_response_norm_rows_launch as launch;
        pub use super::super::bops_local_response_norm_rows_prepare as prepare;
    }
    pub mod bops_local_response_norm_tile {
        pub use super::super::bops_local_response_norm_tile_launch as launch;
        pub use super::super::bops_local_response_norm_tile_prepare as prepare;
    }
    pub mod bops_local_response_norm_direct {
        pub use super::super::bops_local_response_norm_direct_launch as launch;
        pub use super::super::bops_local_response_norm_direct_prepare as prepare;
    }
    pub mod bops_local_response_norm_backward_walk {
        pub use super::super::bops_local_response_norm_backward_walk_launch as launch;
        pub use super::super::bops_local_response_norm_backward_walk_prepare as prepare;
    }
    pub mod bops_local_response_norm_backward_rows {
        pub use super::super::bops_local_response_norm_backward_rows_launch as launch;
        pub use super::super::bops_local_response_norm_backward_rows_prepare as prepare;
    }
    pub mod bops_local_response_norm_backward_tile {
        pub use super::super::bops_local_response_norm_backward_tile_launch as launch;
        pub use super::super::bops_local_response_norm_backward_tile_prepare as prepare;
    }
    pub mod bops_local_response_norm_backward_direct {
        pub use super::super::bops_local_response_norm_backward_direct_launch as launch;
        pub use super::super::bops_local_response_norm_backward_direct_prepare as prepare;
    }
    pub mod bops_order_tiles {
        pub use super::super::bops_order_tiles_launch as launch;
        pub use super::super::bops_order_tiles_prepare as prepare;
    }
    pub mod bops_order_groups {
        pub use super::super::bops_order_groups_launch as launch;
        pub use super::super::bops_order_groups_prepare as prepare;
    }
    pub mod bops_order_few {
        pub use super::super::bops_order_few_launch as launch;
        pub use super::super::bops_order_few_prepare as prepare;
    }
    pub mod bops_order_merge {
        pub use super::super::bops_order_merge_launch as launch;
        pub use super::super::bops_order_merge_prepare as prepare;
    }
    pub mod bops_order_radix {
        pub use super::super::bops_order_radix_launch as launch;
        pub use super::super::bops_order_radix_prepare as prepare;
    }
    pub mod bops_search_sorted {
        pub use super::super::bops_search_sorted_launch as launch;
        pub use super::super::bops_search_sorted_prepare as prepare;
    }
    pub mod bops_pointwise_sets {
        pub use super::super::bops_pointwise_sets_launch as launch;
        pub use super::super::bops_pointwise_sets_prepare as prepare;
    }
    pub mod bops_pool {
        pub use super::super::bops_pool_launch as launch;
        pub use super::super::bops_pool_prepare as prepare;
    }
    pub mod bops_pool_wide {
        pub use super::super::bops_pool_wide_launch as launch;
        pub use super::super::bops_pool_wide_prepare as prepare;
    }
    pub mod bops_pool_backward {
        pub use super::super::bops_pool_backward_launch as launch;
        pub use super::super::bops_pool_backward_prepare as prepare;
    }
    pub mod bops_reduce_rows {
        pub use super::super::bops_reduce_rows_launch as launch;
        pub use super::super::bops_reduce_rows_prepare as prepare;
    }
    pub mod bops_reduce_columns {
        pub use super::super::bops_reduce_columns_launch as launch;
        pub use super::super::bops_reduce_columns_prepare as prepare;
    }
    pub mod bops_reduce_program {
        pub use super::super::bops_reduce_program_launch as launch;
        pub use super::super::bops_reduce_program_prepare as prepare;
    }
    pub mod bops_reduce_lines {
        pub use super::super::bops_reduce_lines_launch as launch;
        pub use super::super::bops_reduce_lines_prepare as prepare;
    }
    pub mod bops_resize {
        pub use super::super::bops_resize_launch as launch;
        pub use super::super::bops_resize_prepare as prepare;
    }
    pub mod bops_row_norm_resident {
        pub use super::super::bops_row_norm_resident_launch as launch;
        pub use super::super::bops_row_norm_resident_prepare as prepare;
    }
    pub mod bops_row_norm_packed {
        pub use super::super::bops_row_norm_packed_launch as launch;
        pub use super::super::bops_row_norm_packed_prepare as prepare;
    }
    pub mod bops_row_norm_packed_warp {
        pub use super::super::bops_row_norm_packed_warp_launch as launch;
        pub use super::super::bops_row_norm_packed_warp_prepare as prepare;
    }
    pub mod bops_row_norm_shared {
        pub use super::super::bops_row_norm_shared_launch as launch;
        pub use super::super::bops_row_norm_shared_prepare as prepare;
    }
    pub mod bops_row_norm_ring {
        pub use super::super::bops_row_norm_ring_launch as launch;
        pub use super::super::bops_row_norm_ring_prepare as prepare;
    }
    pub mod bops_row_norm_split {
        pub use super::super::bops_row_norm_split_launch as launch;
        pub use super::super::bops_row_norm_split_prepare as prepare;
    }
    pub mod bops_row_norm_backward_persistent {
        pub use super::super::bops_row_norm_backward_persistent_launch as launch;
        pub use super::super::bops_row_norm_backward_persistent_prepare as prepare;
    }
    pub mod bops_row_norm_backward_few_rows {
        pub use super::super::bops_row_norm_backward_few_rows_launch as launch;
        pub use super::super::bops_row_norm_backward_few_rows_prepare as prepare;
    }
    pub mod bops_row_norm_backward_ring {
        pub use super::super::bops_row_norm_backward_ring_launch as launch;
        pub use super::super::bops_row_norm_backward_ring_prepare as prepare;
    }
    pub mod bops_row_norm_backward_cooperative {
        pub use super::super::bops_row_norm_backward_cooperative_launch as launch;
        pub use super::super::bops_row_norm_backward_cooperative_prepare as prepare;
    }
    pub mod bops_row_norm_backward_split {
        pub use super::super::bops_row_norm_backward_split_launch as launch;
        pub use super::super::bops_row_norm_backward_split_prepare as prepare;
    }
    pub mod bops_row_norm_backward_parameters {
        pub use super::super::bops_row_norm_backward_parameters_launch as launch;
        pub use super::super::bops_row_norm_backward_parameters_prepare as prepare;
    }
    pub mod bops_scan_rows {
        pub use super::super::bops_scan_rows_launch as launch;
        pub use super::super::bops_scan_rows_prepare as prepare;
    }
    pub mod bops_scan_columns {
        pub use super::super::bops_scan_columns_launch as launch;
        pub use super::super::bops_scan_columns_prepare as prepare;
    }
    pub mod bops_softmax_rows_resident {
        pub use super::super::bops_softmax_rows_resident_launch as launch;
        pub use super::super::bops_softmax_rows_resident_prepare as prepare;
    }
    pub mod bops_softmax_rows_shared {
        pub use super::super::bops_softmax_rows_shared_launch as launch;
        pub use super::super::bops_softmax_rows_shared_prepare as prepare;
    }
    pub mod bops_softmax_channels_resident {
        pub use super::super::bops_softmax_channels_resident_launch as launch;
        pub use super::super::bops_softmax_channels_resident_prepare as prepare;
    }
    pub mod bops_softmax_split {
        pub use super::super::bops_softmax_split_launch as launch;
        pub use super::super::bops_softmax_split_prepare as prepare;
    }
    pub mod bops_softmax_backward_rows_resident {
        pub use super::super::bops_softmax_backward_rows_resident_launch as launch;
        pub use super::super::bops_softmax_backward_rows_resident_prepare as prepare;
    }
    pub mod bops_softmax_backward_rows_shared {
        pub use super::super::bops_softmax_backward_rows_shared_launch as launch;
        pub use super::super::bops_softmax_backward_rows_shared_prepare as prepare;
    }
    pub mod bops_softmax_backward_channels_resident {
        pub use super::super::bops_softmax_backward_channels_resident_launch as launch;
        pub use super::super::bops_softmax_backward_channels_resident_prepare as prepare;
    }
    pub mod bops_softmax_backward_split {
        pub use super::super::bops_softmax_backward_split_launch as launch;
        pub use super::super::bops_softmax_backward_split_prepare as prepare;
    }
    pub mod bops_softmax_backward_channels_shared {
        pub use super::super::bops_softmax_backward_channels_shared_launch as launch;
        pub use super::super::bops_softmax_backward_channels_shared_prepare as prepare;
    }
    pub mod bops_softmax_masked {
        pub use super::super::bops_softmax_masked_launch as launch;
        pub use super::super::bops_softmax_masked_prepare as prepare;
    }
    pub mod bops_softmax_backward_masked {
        pub use super::super::bops_softmax_backward_masked_launch as launch;
        pub use super::super::bops_softmax_backward_masked_prepare as prepare;
    }
}
