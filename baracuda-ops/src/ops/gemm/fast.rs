//! Products of f32 and of f64 on the CPU by the crate `matrixmultiply`, tile by tile in the library's own threads.
//!
//! Accumulation: in the type of the factors. Tiles do not depend on the number of threads, so that bits do not either.

use std::ops::Add;

use super::cpu::{At, Finish, Values, gradients, offset};
use super::geometry::{Epilogue, Product};
use super::{GemmBackwardDescriptor, GemmDescriptor};
use crate::backend::cpu::{Operands, threads};
use crate::dtype::{DType, Element};
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{single, to_usize};

/// The kernel of the product.
pub(super) fn forward<'d>(descriptor: &'d GemmDescriptor) -> Accepted<'d> {
    check(descriptor.dtype())?;
    Ok(Candidate::on_cpu(|| {
        let product = descriptor.product();
        move |operands| multiply(&product, operands)
    }))
}

/// The kernel of the gradients.
pub(super) fn backward<'d>(descriptor: &'d GemmBackwardDescriptor) -> Accepted<'d> {
    let dtype = descriptor.output().dtype();
    check(dtype)?;
    gradients(descriptor, dtype, multiply_values)
}

fn check(dtype: DType) -> Result<(), Reason> {
    Reason::unless(matches!(dtype, DType::F32 | DType::F64), || format!("it multiplies f32 and f64, not {dtype}"))
}

/// Rows and columns of a tile, which is one task: a product of 1024 by 1024 has 16, each of which packs its factors once.
const TILE: u64 = 256;

/// Computes one product of operands.
pub(in crate::ops) fn multiply(product: &Product, operands: &Operands<'_>) {
    multiply_values(product, Values::of(operands));
}

/// Computes one product.
fn multiply_values(product: &Product, values: Values<'_>) {
    match product.left.dtype {
        DType::F64 => multiply_tiles(product, values, matrixmultiply::dgemm),
        _ => multiply_tiles(product, values, matrixmultiply::sgemm),
    }
}

/// `c = alpha a b + beta c`, given m, k, n, alpha, a of m by k and b of k by n elements, beta and c, matrices as a pointer and the strides of
/// rows and of columns; with beta 0 c is never read.
pub(in crate::ops) type Gemm<T> =
    unsafe fn(usize, usize, usize, T, *const T, isize, isize, *const T, isize, isize, T, *mut T, isize, isize);

/// A type that the crate multiplies.
pub(in crate::ops) trait Factor: Element + Into<f64> + Add<Output = Self> + Send + Sync {
    fn of(value: f64) -> Self;
}

impl Factor for f32 {
    fn of(value: f64) -> Self {
        single(value)
    }
}

impl Factor for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

fn multiply_tiles<T: Factor>(product: &Product, values: Values<'_>, gemm: Gemm<T>) {
    if product.is_empty() {
        return;
    }
    let Product { m, n, batch, .. } = product;
    let (row_tiles, col_tiles) = (m.div_ceil(TILE), n.div_ceil(TILE));
    let elements = batch.count() * m * n;
    let tasks = batch.count() * row_tiles * col_tiles;
    threads::for_each(tasks, elements.saturating_mul(product.terms().max(1)), |task| {
        let (first_m, first_n) = (task / col_tiles % row_tiles * TILE, task % col_tiles * TILE);
        let first = At { z: task / (row_tiles * col_tiles), m: first_m, n: first_n };
        let extents = [(m - first_m).min(TILE), (n - first_n).min(TILE)];
        // SAFETY: tiles share no element of the output, and each is one task.
        unsafe { tile(product, values, first, extents, gemm) };
    });
}

/// The tile of `rows` by `cols` elements from `first` on.
///
/// # Safety
/// No other thread uses its elements of the output meanwhile.
unsafe fn tile<T: Factor>(product: &Product, values: Values<'_>, first: At, [rows, cols]: [u64; 2], gemm: Gemm<T>) {
    let Product { left, right, out, batch, summed, k, .. } = product;
    let Some(output) = values.tensor(out) else { return };
    let start = output.element::<T>(out.at(batch, first));
    let (left_start, right_start) = (
        offset(batch, &left.batch, first.z) + first.m * left.rows,
        offset(batch, &right.batch, first.z) + first.n * right.cols,
    );
    // Spans are at most i64::MAX bytes, so that strides along extents above 1 fit; others address nothing.
    // Of tensors in memory, whose bytes an isize counts.
    let strides = |rows: u64, cols: u64| [to_usize(rows).cast_signed(), to_usize(cols).cast_signed()];
    let ([left_rows, left_cols], [right_rows, right_cols], [out_rows, out_cols]) =
        (strides(left.rows, left.cols), strides(right.rows, right.cols), strides(out.rows, out.cols));
    let mut beta = T::of(product.epilogue.beta);
    let terms = values.tensor(left).zip(values.tensor(right)).filter(|_| product.terms() > 0);
    let count = if terms.is_some() { summed.count() } else { 1 };
    for s in 0..count {
        let (a, b, k) = match &terms {
            Some((a, b)) => (
                a.element::<T>(left_start + offset(summed, &left.summed, s)),
                b.element::<T>(right_start + offset(summed, &right.summed, s)),
                to_usize(*k),
            ),
            // The sum over no terms is 0. What is left is beta times the output, for which factors are not read.
            None => (start, start, 0),
        };
        // SAFETY: the first elements lie in their tensors, and so do those that strides lead to within the extents, by the check of the
        // operands; the caller is alone at those of the output, which is injective and meets neither factor.
        unsafe {
            gemm(
                to_usize(rows),
                k,
                to_usize(cols),
                T::of(product.alpha),
                a,
                left_rows,
                left_cols,
                b,
                right_rows,
                right_cols,
                beta,
                start,
                out_rows,
                out_cols,
            );
        }
        beta = T::of(1.0);
    }
    let Epilogue { bias, activation, beside, .. } = &product.epilogue;
    if bias.is_none() && beside.is_none() && activation.is_identity() {
        return;
    }
    let finish = Finish::new(product, &values);
    for m in first.m..first.m + rows {
        for n in first.n..first.n + cols {
            let at = At { m, n, ..first };
            // SAFETY: the caller is alone at these elements.
            unsafe { finish.element(at, output.load(out.at(batch, at))) };
        }
    }
}
