//! Matrix products with bias and activation, forward and backward.
//!
//! - forward: `acc = alpha * op(a) op(b)`, `pre = acc + bias`, `out = act(pre)`, where op(a) is a, or with `transpose_a` its transpose in
//!   the last two extents, and likewise op(b);
//! - backward: `dpre = dout * act'(pre)`, `dbias = sum of dpre over rows and batch`, and the gradients `alpha dpre op(b)^T` of op(a) and
//!   `alpha op(a)^T dpre` of op(b), transposed where the factor is stored transposed, and summed over the batch extents that share the factor.
//!   Each gradient can be added to what is there: `grad = beta * grad + ..`, rounded once.
//!
//! The functions and their derivatives are in the table of [`Activation`].
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `a` | `[batch of a.., M, K]`, transposed `[.., K, M]` | T: f64, f32, f16 or bf16 | in | always |
//! | `b` | `[batch of b.., K, N]`, transposed `[.., N, K]` | T | in | always |
//! | `bias` | `[N]` | T or f32 | in | `bias` |
//! | `out` | `[batch.., M, N]` | T or f32 | out | always |
//! | `pre` | of out | T or f32 | out | `pre` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `a` | as in forward | T | in | `db`, or recomputing |
//! | `b` | as in forward | T | in | `da`, or recomputing |
//! | `bias` | `[N]` | T or f32 | in | recomputing, if forward had one |
//! | `out` | `[batch.., M, N]` | T or f32 | in | `saved` is `out`, unless the activation is identity |
//! | `pre` | `[batch.., M, N]` | T or f32 | in | `saved` is `pre`, unless the activation is identity |
//! | `dout` | `[batch.., M, N]` | of out | in | always |
//! | `da` | of a; where a has a batch stride of 0, the extent is 1 | T or f32 | out; with a beta other than 0 in and out | `da` |
//! | `db` | as da, of b | T or f32 | out; as da | `db` |
//! | `dbias` | `[N]` | T or f32 | out; as da | `dbias` |
//!
//! Of f64 every operand is f64. Recomputing is `saved` being `recompute` with another activation than identity.
//!
//! Units: all values are plain numbers.
//!
//! Batch: the batch extents of a and b are broadcast against each other, as by `torch.matmul`: counted from the last, they are equal, or one
//! of them is 1 or missing. A factor is shared by the extents that it lacks, and by those where its stride is 0. A weight `[K, N]` is
//! shared by a whole batch; in grouped-query attention, with a `[B, Hk, G, M, K]` and b `[B, Hk, 1, K, N]`, G heads share each b. Strides of a
//! factor without elements do not matter.
//!
//! Layout and aliasing: any strides. Rows of a factor may overlap, as frames of a signal do, and so may its columns; gradients of such a factor
//! are dense, an element for each index. No operand may lie at another.
//!
//! Accumulation: f32, for f64 operands f64, in a fixed order, so that the same device makes the same bits every time. Products of f32 are
//! f32 throughout, unless the options let them be [`Tf32`](crate::Math::Tf32). Of f16 and bf16, backward may round dpre once to T before the
//! products of da and db; dbias sums the unrounded one.
//!
//! NaN, infinity, empty: NaN and infinity go where the formula sends them, but that the derivative at an infinite `pre` or `out` is its limit. A
//! dpre beyond the largest number of f16 or bf16 factors may become infinite, also where dout is f32. With K = 0 out is `act(bias)`; with M, N
//! or the batch of 0 nothing is written but `dbias` and gradients of shared factors, which are `beta * grad`, sums over nothing. With an alpha of 0
//! the product counts as 0, as in BLAS: neither factor is read for it, so that no NaN comes from them; the gradients of both are `beta * grad`.
//!
//! Out of scope: grouped products, a third matrix in the epilogue, gated activations, a bias for each row, alpha in device memory, 8-bit
//! types.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and both numbers that do not fit; [`Error::Unsupported`] says why each kernel
//! refused.
//!
//! Source: J. J. Dongarra et al., "A Set of Level 3 Basic Linear Algebra Subprograms", ACM TOMS 16 (1990), for the product; as for
//! [`Activation`] for the rest.
//!
//! Kernels: on the CPU `fast.rs`, with `packed` for all types but f64, then the reference in `cpu.rs`; through wgpu `csrc/gemm/*.wgsl`. On CUDA, in the order in which
//! they are tried:
//! - `gemm_few_rows_stream` (`csrc/gemm/gemm_few_rows_stream.cu`), forward, for 16-bit factors of which one has at most 16 rows or columns and the other
//!   is large, on compute capability 9.0.
//! - `gemm_cublaslt`, through the vendor's library where that is installed. It leaves to `gemm_wgmma` products with an activation or `pre`, which
//!   would take it a launch more, and those of rows that are not aligned, for which it is slow.
//! - `gemm_few_rows` (`gemm_few_rows.cu`), forward, for few rows or columns on any device.
//! - `gemm_wgmma`, the tensor cores and the copy engine of compute capability 9.0: for 16-bit factors (`gemm_wgmma.cu`), which it copies first where
//!   their rows are not at multiples of 16 bytes (`gemm_repack.cu`), and for factors of f32 that it rounds to tf32 (`gemm_wgmma_words.cu`).
//! - `gemm_mma`, tensor cores of compute capability 8.0 (`gemm_mma.cu`), which rounds factors of f32 to tf32.
//! - `gemm_simt`, any type and strides (`gemm_simt.cu`).
//!
//! `gemm.cu` has the epilogue of sums that lie in memory, `gemm_backward.cu` the gradients of the pre-activation and of the bias.
//!
//! [`Activation`]: crate::ops::activation
//! [`Error::InvalidDescriptor`]: crate::Error::InvalidDescriptor
//! [`Error::Unsupported`]: crate::Error::Unsupported

use serde::{Deserialize, Serialize};

use crate::dtype::{DType, Real};
use crate::error::Result;
use crate::json::{self, Object};
use crate::kernel::Kernel;
use crate::narrow::single;
use crate::ops::fields::{float, is_zero, require};
use crate::ops::valid::{Valid, kernels};
use crate::plan::Function;
use crate::tensor::{MAX_RANK, TensorDesc};

mod backward;
pub(super) mod chains;
pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod fast;
mod forward;
pub(super) mod geometry;
pub(super) mod packed;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;

pub use backward::{GemmBackwardArgs, GemmBackwardDescriptor, GemmBackwardPlan};
pub use forward::{GemmArgs, GemmDescriptor, GemmPlan};

use geometry::Extents;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

/// A factor of a product, as it is stored.
///
/// ```
/// use baracuda_ops::{DType, GemmDescriptor, GemmFactor, TensorDesc};
/// let x = TensorDesc::contiguous(DType::F32, &[32, 784])?;
/// let weight = TensorDesc::contiguous(DType::F32, &[128, 784])?;
/// let linear = GemmDescriptor::new(x, GemmFactor::transposed(weight))?;
/// # let _ = linear;
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmFactor {
    desc: TensorDesc,
    is_transposed: bool,
}

impl GemmFactor {
    /// A tensor whose last two extents are those of the factor in reverse.
    pub fn transposed(desc: TensorDesc) -> Self {
        Self { desc, is_transposed: true }
    }

    /// A factor that may be transposed.
    pub(crate) fn of(desc: TensorDesc, is_transposed: bool) -> Self {
        Self { desc, is_transposed }
    }
}

/// The factor as it is.
impl From<TensorDesc> for GemmFactor {
    fn from(desc: TensorDesc) -> Self {
        Self { desc, is_transposed: false }
    }
}

/// From what backward computes the derivative of the activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GemmSaved {
    /// The pre-activation that forward wrote as `pre`.
    #[default]
    Pre,
    /// Forward's output: for ReLU, sigmoid and tanh.
    Out,
    /// Nothing: the product is computed again.
    Recompute,
}

use GemmSaved as Saved;

impl Saved {
    const ALL: [Self; 3] = [Self::Pre, Self::Out, Self::Recompute];

    /// The name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Out => "out",
            Self::Recompute => "recompute",
        }
    }
}

json::named!(Saved);

/// One gradient of a backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<GradientFields>")]
pub(crate) struct Gradient {
    dtype: DType,
    #[serde(skip_serializing_if = "is_zero")]
    beta: Real,
}

/// The JSON of a gradient.
#[derive(Deserialize)]
#[serde(expecting = "an object such as {\"dtype\":\"f32\",\"beta\":1.0}", deny_unknown_fields)]
struct GradientFields {
    dtype: DType,
    #[serde(default)]
    beta: Real,
}

impl From<Object<GradientFields>> for Gradient {
    fn from(Object(GradientFields { dtype, beta }): Object<GradientFields>) -> Self {
        Self { dtype, beta }
    }
}

/// The fields of the product, of which backward has all, and others behind them.
macro_rules! product_fields {
    ($(#[$doc:meta])* $Fields:ident { $($other:tt)* }) => {
        fields! {
            $(#[$doc])*
            $Fields: Fields<Kind = (), Derived = Shape> + normalise {
                a: TensorDesc,
                b: TensorDesc,
                transpose_a: bool = default,
                transpose_b: bool = default,
                alpha: Real = one,
                bias: Option<DType> = default,
                activation: Activation = default,
                $($other)*
            }
        }

        impl $Fields {
            /// The fields of a product of two factors; every other field has its default.
            pub(super) fn of(a: GemmFactor, b: GemmFactor) -> Self {
                let (transpose_a, transpose_b) = (a.is_transposed, b.is_transposed);
                Self { transpose_a, transpose_b, ..Self::minimal(a.desc, b.desc) }
            }
        }
    };
}
use product_fields;

/// The extents of `op(a) op(b)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// The batch extents of a and b, broadcast against each other.
    batch: Extents,
    m: u64,
    n: u64,
    k: u64,
    transpose_a: bool,
    transpose_b: bool,
    /// The output, dense and of T.
    output: TensorDesc,
}

impl Shape {
    fn new(op: &'static str, [a, b]: [&TensorDesc; 2], [transpose_a, transpose_b]: [bool; 2]) -> Result<Self> {
        float(op, "a", a)?;
        for (field, desc) in [("a", a), ("b", b)] {
            require(op, field, desc.rank() >= 2, || {
                format!("must be [batch.., rows, columns] of rank 2 to {MAX_RANK}, got rank {}", desc.rank())
            })?;
        }
        let [of_a, of_b] = [a, b].map(TensorDesc::dtype);
        require(op, "b", of_b == of_a, || format!("must be of the type of a, {of_a}; got {of_b}"))?;
        let (a_batch, a_matrix) = a.dims().split_at(a.rank() - 2);
        let (b_batch, b_matrix) = b.dims().split_at(b.rank() - 2);
        let stored = |matrix: &[u64], is_transposed: bool| {
            if is_transposed { [matrix[1], matrix[0]] } else { [matrix[0], matrix[1]] }
        };
        let ([m, k], [b_k, n]) = (stored(a_matrix, transpose_a), stored(b_matrix, transpose_b));
        require(op, "b", b_k == k, || {
            let help = match (n == k, b_k == m) {
                // A weight as most frameworks store it.
                (true, _) if !transpose_b => {
                    "; its columns are as many: transpose_b, in Rust GemmFactor::transposed, says so"
                }
                (true, _) => "; its columns are as many without transpose_b",
                (_, true) if !transpose_a => {
                    "; op(a) has as many rows: transpose_a, in Rust GemmFactor::transposed, says that they are the terms"
                }
                (_, true) => "; op(a) has as many columns without transpose_a",
                _ => "",
            };
            format!("op(b) must have as many rows as op(a) has columns, {k}; got {b_k}{help}")
        })?;
        let batch = broadcast(op, a_batch, b_batch)?;
        let mut dims = batch.to_vec();
        dims.extend([m, n]);
        let output = TensorDesc::contiguous(a.dtype(), &dims).map_err(|error| error.of_operand(op, "out"))?;
        Ok(Self { batch, m, n, k, transpose_a, transpose_b, output })
    }

    /// Elements of the output.
    fn elements(&self) -> u64 {
        self.batch.count() * self.m * self.n
    }

    /// Floating-point operations of the product.
    fn flops(&self) -> u64 {
        let extents = [self.m, self.n, self.k];
        self.batch.iter().chain(&extents).fold(2, |flops, &extent| flops.saturating_mul(extent))
    }
}

/// Batch extents broadcast against each other, counted from the last.
fn broadcast(op: &'static str, a: &[u64], b: &[u64]) -> Result<Extents> {
    let rank = a.len().max(b.len());
    let extent = |dims: &[u64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
    let both = |axis: usize| {
        let (of_a, of_b) = (extent(a, axis), extent(b, axis));
        require(op, "b", of_a == of_b || of_a == 1 || of_b == 1, || {
            format!(
                "batch extents must be equal or 1, counted from the last; a has {a:?} and b {b:?}, which differ in {of_a} and {of_b}"
            )
        })?;
        Ok(if of_a == 1 { of_b } else { of_a })
    };
    (0..rank).map(both).collect()
}

/// A factor with the strides of a dense one if it has no elements and is repeated: then its own strides address nothing.
fn unrepeated(op: &'static str, field: &'static str, factor: TensorDesc) -> Result<TensorDesc> {
    let is_repeated = factor.dims().iter().zip(factor.strides()).any(|(&dim, &stride)| dim > 1 && stride == 0);
    if !(factor.is_empty() && is_repeated) {
        return Ok(factor);
    }
    let dense =
        TensorDesc::contiguous(factor.dtype(), factor.dims()).and_then(|dense| dense.align(factor.align_bytes()));
    dense.map_err(|error| error.of_operand(op, field))
}

/// A number that the kernels multiply by: any that is not infinite or, though it is not 0, 0 in the type in which the op computes.
fn valid_factor(op: &'static str, field: &'static str, value: Real, a: &TensorDesc) -> Result<()> {
    let computed_in = a.dtype().accumulator();
    let magnitude = single(value.get().abs());
    let fits = magnitude.is_finite() && (magnitude != 0.0 || value.get() == 0.0);
    require(op, field, fits || computed_in != DType::F32, || {
        format!("must be in the range of {computed_in}, in which this op computes; got {:e}", value.get())
    })
}

/// The kernels of the product, in the order in which they are tried.
fn forward_kernels() -> &'static [&'static dyn Kernel<GemmDescriptor>] {
    kernels!(
        cuda: [cuda::GemmForm::FewRowsStream, cuda::GemmForm::CublasLt, cuda::GemmForm::FewRows, cuda::GemmForm::Wgmma, cuda::GemmForm::Mma, cuda::GemmForm::Simt];
        wgpu: [Function::WgpuForm("gemm_tiled", wgpu::forward)];
        cpu: [Function::CpuForm("gemm_fast", fast::forward), Function::Cpu(cpu::forward)]
    )
}

/// The kernels of the gradients, in the order in which they are tried.
fn backward_kernels() -> &'static [&'static dyn Kernel<GemmBackwardDescriptor>] {
    kernels!(
        cuda: [cuda::GemmForm::CublasLt, cuda::GemmForm::Wgmma, cuda::GemmForm::Mma, cuda::GemmForm::Simt];
        wgpu: [Function::WgpuForm("gemm_backward_tiled", wgpu::backward)];
        cpu: [Function::CpuForm("gemm_backward_fast", fast::backward), Function::Cpu(cpu::backward)]
    )
}
