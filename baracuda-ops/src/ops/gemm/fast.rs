//! Products on the CPU, tile by tile in the library's own threads: of f64 by the crate `matrixmultiply`, of other types by [`packed`](super::packed).
//!
//! Accumulation: in f32, of f64 in f64, in short chains, whose order does not depend on the number of threads, so that bits do not either.

use super::chains::{CHAIN, Chains};
use super::cpu::{At, Finish, Values, accumulated, gradients, offset};
use super::geometry::{Epilogue, Product};
use super::{GemmBackwardDescriptor, GemmDescriptor, packed};
use crate::backend::cpu::{Operands, threads};
use crate::dtype::DType;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::plan::Descriptor;

/// The kernel of the product.
pub(super) fn forward<'d>(descriptor: &'d GemmDescriptor) -> Accepted<'d> {
    Ok(Candidate::on_cpu(|| {
        let product = descriptor.product();
        move |operands| multiply(&product, operands)
    })
    // The crate `matrixmultiply`, which adds up those of f64, does not say that rows of whole and of partial tiles are rounded alike.
    .batch_invariant_if(descriptor.slots().iter().all(|slot| slot.desc.dtype() != DType::F64)))
}

/// The kernel of the gradients.
pub(super) fn backward<'d>(descriptor: &'d GemmBackwardDescriptor) -> Accepted<'d> {
    gradients(descriptor, descriptor.output().dtype().accumulator(), multiply_values)
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
        DType::F64 => multiply_tiles(product, values),
        _ => packed::multiply_values(product, values),
    }
}

/// Computes one product of f64.
fn multiply_tiles(product: &Product, values: Values<'_>) {
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
        unsafe { tile(product, values, first, extents) };
    });
}

/// The tile of `rows` by `cols` elements from `first` on.
///
/// # Safety
/// No other thread uses its elements of the output meanwhile.
unsafe fn tile(product: &Product, values: Values<'_>, first: At, [rows, cols]: [u64; 2]) {
    let Product { left, right, out, batch, summed, k, .. } = product;
    let Some(output) = values.tensor(out) else { return };
    let start = output.element::<f64>(out.at(batch, first));
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
                    a.element::<f64>(left_start + offset(summed, &left.summed, s) + first_k * left.cols),
                    b.element::<f64>(right_start + offset(summed, &right.summed, s) + first_k * right.rows),
                    to_usize((k - first_k).min(CHAIN as u64)),
                ),
                None => (start, start, 0),
            };
            let multiply = |beta: f64, to: *mut f64, [to_rows, to_cols]: [isize; 2]| {
                // SAFETY: the first elements lie in their tensors, and so do those that strides lead to within the extents, by the check of the
                // operands; the caller is alone at those of the output, which is injective and meets neither factor, and sums of chains are this
                // task's own.
                unsafe {
                    matrixmultiply::dgemm(
                        to_usize(rows),
                        terms,
                        to_usize(cols),
                        product.alpha,
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
                multiply(if is_first { *beta } else { 1.0 }, start, [out_rows, out_cols]);
            } else {
                chains.add(|sums, is_first| {
                    let beta = if is_first { 0.0 } else { 1.0 };
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
                unsafe { *to = accumulated(sum, *beta, || *to) };
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
