//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::geometry::{
    BackwardGeometry, ColumnSums, Dpre, DprePass, Epilogue, Extents, Matrix, MatrixPlace, Product, Starts, Vector,
};
use super::{GemmBackwardDescriptor, GemmDescriptor, packed};
use crate::backend::cpu::{Operands, Sum, Sums, Tensor, threads};
use crate::dtype::DType;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::tensor::TensorDesc;

/// The reference kernel of the product.
pub(super) fn forward<'d>(descriptor: &'d GemmDescriptor) -> Accepted<'d> {
    Ok(Candidate::on_cpu(|| {
        let product = descriptor.product();
        move |operands| multiply(&product, Values::of(operands))
    })
    .batch_invariant())
}

/// The reference kernel of the gradients.
pub(super) fn backward<'d>(descriptor: &'d GemmBackwardDescriptor) -> Accepted<'d> {
    // dpre as computed, not rounded to the type of the factors.
    gradients(descriptor, DType::F64, multiply)
}

/// Most elements of dpre that are in memory at once: 128 MiB of f64.
const MOST_DPRE: u64 = 1 << 24;

/// The kernel of the gradients with scratch memory for `dpre` of the type in which it is computed, f32 or f64, and with a way to compute one product.
pub(super) fn gradients<'d>(
    descriptor: &'d GemmBackwardDescriptor,
    dtype: DType,
    multiply: impl Fn(&Product, Values<'_>) + Copy + Send + Sync + 'static,
) -> Accepted<'d> {
    let tensors = descriptor.tensors();
    let stored = tensors.stored_elements(MOST_DPRE);
    let scratch = TensorDesc::contiguous(dtype, &[stored]).map_err(|e| e.to_string())?;
    Ok(Candidate::on_cpu(move || {
        move |operands| {
            let mut memory = vec![0.0; to_usize(scratch.span_bytes().div_ceil(8))];
            let dpre = (stored > 0).then(|| Tensor::scratch(&scratch, &mut memory));
            tensors.for_each_part(MOST_DPRE, |geometry, &starts| {
                gradients_of_part(geometry, Values { operands, starts, dpre }, dtype == DType::F32, multiply);
            });
        }
    }))
}

/// Computes the gradients of one part; `in_lines`: all but the products line by line in f32, in place of element by element in f64.
fn gradients_of_part(
    geometry: &BackwardGeometry,
    values: Values<'_>,
    in_lines: bool,
    multiply: impl Fn(&Product, Values<'_>),
) {
    // 1. The gradient of the pre-activation, and the sums of its columns.
    let sums = geometry.dbias.as_ref();
    match &geometry.dpre {
        Some(Dpre::Recomputed(product)) if in_lines => {
            multiply(product, values);
            packed::stored_column_sums(sums, values, &product.out, &product.batch, [product.m, product.n]);
        }
        Some(Dpre::Elementwise(pass)) if in_lines => packed::elementwise(pass, sums, values),
        Some(Dpre::Recomputed(product)) => {
            multiply(product, values);
            let dpre = |at| values.load(&product.out, product.out.at(&product.batch, at));
            column_sums(sums, &values, [product.batch.count(), product.m, product.n], dpre);
        }
        Some(Dpre::Elementwise(pass)) => {
            if let Some(stored) = &pass.dpre {
                let rows = pass.batch.count() * pass.m;
                threads::for_each(rows, rows * pass.n, |row| {
                    for n in 0..pass.n {
                        let at = At { z: row / pass.m, m: row % pass.m, n };
                        // SAFETY: each row is one task.
                        unsafe { values.store(stored, stored.at(&pass.batch, at), values.dpre(pass, at)) };
                    }
                });
            }
            column_sums(sums, &values, [pass.batch.count(), pass.m, pass.n], |at| values.dpre(pass, at));
        }
        None => {}
    }

    // 2. The gradients of the factors.
    for product in [&geometry.da, &geometry.db].into_iter().flatten() {
        multiply(product, values);
    }
}

/// The gradient of the bias, if it is wanted, given dpre.
fn column_sums(
    sums: Option<&ColumnSums>,
    values: &Values<'_>,
    [batch, rows, cols]: [u64; 3],
    dpre: impl Fn(At) -> f64 + Sync,
) {
    let Some(sums) = sums else { return };
    let Some(grad) = values.operand(sums.sums.position) else { return };
    let cols_of_task = COLS as u64;
    threads::for_each(cols.div_ceil(cols_of_task), batch.saturating_mul(rows).saturating_mul(cols), |task| {
        let first = task * cols_of_task;
        let columns = first..cols.min(first + cols_of_task);
        let mut totals = [Sum::default(); COLS];
        // If its matrices have no rows, a batch may have any number of them.
        for row in 0..batch * rows {
            for (n, total) in columns.clone().zip(&mut totals) {
                total.add(dpre(At { z: row / rows, m: row % rows, n }));
            }
        }
        for (n, total) in columns.zip(totals) {
            let offset = n * sums.sums.stride;
            // SAFETY: each column is of one task.
            unsafe { grad.store(offset, accumulated(total.total(), sums.beta, || grad.load(offset))) };
        }
    });
}

/// `sum + beta * before`; with beta 0 nothing is read.
pub(in crate::ops) fn accumulated(sum: f64, beta: f64, before: impl FnOnce() -> f64) -> f64 {
    if beta == 0.0 { sum } else { sum + beta * before() }
}

/// An element of the output of a product: of which matrix of the batch, which row, which column.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) z: u64,
    pub(super) m: u64,
    pub(super) n: u64,
}

impl Matrix {
    /// The offset of an element of the output.
    pub(super) fn at(&self, batch: &Extents, At { z, m, n }: At) -> u64 {
        offset(batch, &self.batch, z) + m * self.rows + n * self.cols
    }
}

/// Offset of index tuple `index`, in row-major order.
pub(super) fn offset(extents: &Extents, strides: &[u64], mut index: u64) -> u64 {
    let mut offset = 0;
    for (&extent, stride) in extents.iter().zip(strides).rev() {
        offset += index % extent * stride;
        index /= extent;
    }
    offset
}

/// What products read and write.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    operands: &'a Operands<'a>,
    starts: Starts,
    /// The scratch memory of backward.
    dpre: Option<Tensor<'a>>,
}

impl<'a> Values<'a> {
    /// Those of a product of operands.
    pub(super) fn of(operands: &'a Operands<'a>) -> Self {
        Self { operands, starts: Starts::default(), dpre: None }
    }
}

impl Values<'_> {
    /// An operand from where the part begins, unless it is empty.
    pub(super) fn operand(&self, position: usize) -> Option<Tensor<'_>> {
        self.operands.get(position).map(|tensor| tensor.starting_at(self.starts[position]))
    }

    /// The memory of a matrix, unless it is empty.
    pub(super) fn tensor(&self, matrix: &Matrix) -> Option<Tensor<'_>> {
        match matrix.place {
            MatrixPlace::Operand(position) => self.operand(position),
            MatrixPlace::Dpre => self.dpre,
        }
    }

    fn load(&self, matrix: &Matrix, offset: u64) -> f64 {
        self.tensor(matrix).map_or(0.0, |tensor| tensor.load(offset))
    }

    /// # Safety
    /// No other thread uses that element meanwhile.
    unsafe fn store(&self, matrix: &Matrix, offset: u64, value: f64) {
        let Some(tensor) = self.tensor(matrix) else { return };
        // SAFETY: the caller is alone at this element.
        unsafe { tensor.store(offset, value) };
    }

    /// An element of the gradient of the pre-activation.
    fn dpre(&self, pass: &DprePass, at: At) -> f64 {
        let load = |matrix: &Matrix| self.load(matrix, matrix.at(&pass.batch, at));
        let dout = load(&pass.dout);
        match &pass.saved {
            Some(out) if pass.from_out => pass.activation.gradient_from_output(load(out), dout),
            Some(pre) => pass.activation.gradient(load(pre), dout),
            None => dout,
        }
    }
}

/// What is done with the sums of a product.
pub(super) struct Finish<'v> {
    product: &'v Product,
    out: Option<Tensor<'v>>,
    bias: Option<(Tensor<'v>, Vector)>,
    /// The pre-activation, or the gradient of the output.
    beside: Option<Tensor<'v>>,
}

impl<'v> Finish<'v> {
    pub(super) fn new(product: &'v Product, values: &'v Values<'_>) -> Self {
        let Epilogue { bias, beside, .. } = product.epilogue;
        let bias = bias.and_then(|bias| Some((values.operand(bias.position)?, bias)));
        let beside = beside.and_then(|matrix| values.tensor(&matrix));
        Self { product, out: values.tensor(&product.out), bias, beside }
    }

    /// Does what the epilogue says with one sum times alpha.
    ///
    /// # Safety
    /// No other thread finishes that element of the output.
    pub(super) unsafe fn element(&self, at: At, acc: f64) {
        let Product { batch, out, epilogue, .. } = self.product;
        let Some(output) = &self.out else { return };
        let pre_activation = self.bias.as_ref().map_or(acc, |(bias, vector)| acc + bias.load(at.n * vector.stride));
        let offset = out.at(batch, at);
        let Epilogue { activation, beta, .. } = epilogue;
        let beside = epilogue.beside.as_ref().zip(self.beside).map(|(matrix, tensor)| (matrix.at(batch, at), tensor));
        let value = if epilogue.is_derivative() {
            activation.gradient(pre_activation, beside.map_or(0.0, |(offset, dout)| dout.load(offset)))
        } else {
            if let Some((offset, pre)) = beside {
                // SAFETY: the caller is alone at this element, and outputs address every element once.
                unsafe { pre.store(offset, pre_activation) };
            }
            accumulated(activation.apply(pre_activation), *beta, || output.load(offset))
        };
        // SAFETY: as for pre.
        unsafe { output.store(offset, value) };
    }
}

/// Rows of a tile of sums, which is one task.
const ROWS: usize = 16;
/// Columns of a tile.
const COLS: usize = 64;
/// Terms of each sum for which both factors are in f64 at once.
const TERMS: usize = 256;

/// Computes one product.
fn multiply(product: &Product, values: Values<'_>) {
    if product.is_empty() {
        return;
    }
    let (row_tiles, col_tiles) = (product.m.div_ceil(ROWS as u64), product.n.div_ceil(COLS as u64));
    let tasks = product.batch.count() * row_tiles * col_tiles;
    let elements = product.batch.count() * product.m * product.n;
    let finish = Finish::new(product, &values);
    threads::for_each(tasks, elements.saturating_mul(product.terms().max(1)), |task| {
        let z = task / (row_tiles * col_tiles);
        let (first_m, first_n) = (task / col_tiles % row_tiles * ROWS as u64, task % col_tiles * COLS as u64);
        let rows = to_usize((product.m - first_m).min(ROWS as u64));
        let cols = to_usize((product.n - first_n).min(COLS as u64));
        let sums = tile(product, values, At { z, m: first_m, n: first_n }, [rows, cols]);
        for (m, row) in sums.iter().enumerate().take(rows) {
            for n in 0..cols {
                let at = At { z, m: first_m + m as u64, n: first_n + n as u64 };
                // SAFETY: each element is of one tile, and each tile is one task.
                unsafe { finish.element(at, product.alpha * row.total(n)) };
            }
        }
    });
}

/// The sums of `rows` by `cols` elements from `first` on.
fn tile(product: &Product, values: Values<'_>, first: At, [rows, cols]: [usize; 2]) -> Vec<Sums<COLS>> {
    let Product { left, right, batch, summed, k, .. } = product;
    let (left_tensor, right_tensor) = (values.tensor(left), values.tensor(right));
    let load = |tensor: &Option<Tensor<'_>>, offset| tensor.as_ref().map_or(0.0, |tensor| tensor.load(offset));
    let mut sums = vec![Sums::default(); rows];
    if product.terms() == 0 {
        return sums;
    }
    let (mut left_terms, mut right_terms) = (vec![0.0; rows * TERMS], vec![0.0; TERMS * cols]);
    let left_start = offset(batch, &left.batch, first.z) + first.m * left.rows;
    let right_start = offset(batch, &right.batch, first.z) + first.n * right.cols;
    for s in 0..summed.count() {
        let left_start = left_start + offset(summed, &left.summed, s);
        let right_start = right_start + offset(summed, &right.summed, s);
        for first_k in (0..*k).step_by(TERMS) {
            let terms = to_usize((k - first_k).min(TERMS as u64));
            for m in 0..rows {
                let start = left_start + m as u64 * left.rows + first_k * left.cols;
                for i in 0..terms {
                    left_terms[m * terms + i] = load(&left_tensor, start + i as u64 * left.cols);
                }
            }
            for i in 0..terms {
                let start = right_start + (first_k + i as u64) * right.rows;
                for n in 0..cols {
                    right_terms[i * cols + n] = load(&right_tensor, start + n as u64 * right.cols);
                }
            }
            for (sums, factors) in sums.iter_mut().zip(left_terms.chunks_exact(terms)) {
                for (&factor, others) in factors.iter().zip(right_terms.chunks_exact(cols)) {
                    if left.dtype == DType::F64 {
                        sums.add::<true>(factor, others);
                    } else {
                        sums.add::<false>(factor, others);
                    }
                }
            }
        }
    }
    sums
}
