//! Products of f32 and of f64 on the CPU by the crate `matrixmultiply`, tile by tile in the library's own threads.
//!
//! Accumulation: in the type of the factors, in short chains. Tiles do not depend on the number of threads, so that bits do not either.

use std::ops::Add;

use super::chains::{CHAIN, Chains};
use super::cpu::{At, Finish, Values, accumulated, gradients, offset};
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
pub(in crate::ops) trait Factor:
    Element + Default + Into<f64> + Add<Output = Self> + Send + Sync
{
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
    let Epilogue { bias, activation, beside, beta, .. } = &product.epilogue;
    let terms = values.tensor(left).zip(values.tensor(right)).filter(|_| product.terms() > 0);
    // The sum over no terms is 0. What is left is beta times the output, for which factors are not read.
    let (count, k) = if terms.is_some() { (summed.count(), *k) } else { (1, 1) };
    // The sums of a few chains lie in the output from the first one on.
    let of_tile = count.saturating_mul(k.div_ceil(CHAIN as u64));
    let is_in_place = of_tile == 1 || (*beta == 0.0 && of_tile <= CHAIN as u64);
    let mut chains = Chains::new(to_usize(rows * cols));
    for s in 0..count {
        for first_k in (0..k).step_by(CHAIN) {
            let (a, b, terms) = match &terms {
                Some((a, b)) => (
                    a.element::<T>(left_start + offset(summed, &left.summed, s) + first_k * left.cols),
                    b.element::<T>(right_start + offset(summed, &right.summed, s) + first_k * right.rows),
                    to_usize((k - first_k).min(CHAIN as u64)),
                ),
                None => (start, start, 0),
            };
            let multiply = |beta: T, to: *mut T, [to_rows, to_cols]: [isize; 2]| {
                // SAFETY: the first elements lie in their tensors, and so do those that strides lead to within the extents, by the check of the
                // operands; the caller is alone at those of the output, which is injective and meets neither factor, and sums of chains are this
                // task's own.
                unsafe {
                    gemm(
                        to_usize(rows),
                        terms,
                        to_usize(cols),
                        T::of(product.alpha),
                        a,
                        left_rows,
                        left_cols,
                        b,
                        right_rows,
                        right_cols,
                        beta,
                        to,
                        to_rows,
                        to_cols,
                    );
                }
            };
            let is_first = s == 0 && first_k == 0;
            if is_in_place {
                multiply(T::of(if is_first { *beta } else { 1.0 }), start, [out_rows, out_cols]);
            } else {
                chains.add(|sums, is_first| {
                    let beta = T::of(if is_first { 0.0 } else { 1.0 });
                    multiply(beta, sums.as_mut_ptr(), [to_usize(cols).cast_signed(), 1]);
                });
            }
        }
    }
    if !is_in_place {
        for (row, sums) in (0..).zip(chains.total().chunks_exact(to_usize(cols))) {
            for (col, &sum) in (0..).zip(sums) {
                let to = start.wrapping_offset(row * out_rows + col * out_cols);
                // SAFETY: the caller is alone at this element of the output, where strides lead within the extents.
                unsafe { *to = T::of(accumulated(sum.into(), *beta, || (*to).into())) };
            }
        }
    }
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
