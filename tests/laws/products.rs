//! Products too large for a reference, judged on whole rows and columns of their outputs. Factors follow from the places of their elements, so
//! that what a sum should be is computed where it is judged, in f64, and nothing is kept.

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    Activation, Buffer, DType, Descriptor, Device, Error, GemmArgs, GemmBackwardArgs, GemmBackwardDescriptor,
    GemmDescriptor, GemmSaved, OPS, Plan, PlanOptions, TensorDesc, Workspace,
};
use baracuda_ops_tests::judge::{budget, units};
use half::bf16;
use rayon::prelude::*;

/// Elements that are computed or copied at a time.
const PART: u64 = 1 << 24;
/// Products of two elements that judging the rows of an output may take, and again those of its columns.
const WORK: u64 = 1 << 32;
/// The most rows and columns that are judged.
const SAMPLES: u64 = 48;

/// The element at an index, a multiple of 1/64 from -1 to 1, and bits that it does not follow from; no index that differs by a power of two shares
/// them for long.
pub(super) fn element(index: u64) -> (f64, u64) {
    let mixed = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((((mixed >> 32) * 129) >> 32) as f64 / 64.0 - 1.0, mixed & u64::from(u32::MAX))
}

/// The sum of products of bf16, and what it may be off by: docs/numerics.md, Budgets, "gemm" with factors whose elements have no common sign.
pub(super) fn within(products: impl Iterator<Item = f64>) -> (f64, f64) {
    let add = |(sum, all, terms), product: f64| (sum + product, all + product.abs(), terms + 1.0);
    let (sum, magnitude, terms): (f64, f64, f64) = products.fold((0.0, 0.0, 0.0), add);
    let chain = 8.0 + (terms / 4.0).min(2.0 * terms.sqrt());
    (sum, budget(DType::BF16, DType::F32, sum, chain * magnitude))
}

/// A matrix of bf16 whose elements follow from their places: multiples of 1/64 from -1 to 1.
#[derive(Clone, Copy)]
struct Matrix {
    seed: u64,
    rows: u64,
    cols: u64,
}

impl Matrix {
    fn new(seed: u64, [rows, cols]: [u64; 2]) -> Self {
        Self { seed: seed << 60, rows, cols }
    }

    fn element(self, index: u64) -> f64 {
        element(index ^ self.seed).0
    }

    fn at(self, row: u64, col: u64) -> f64 {
        self.element(row * self.cols + col)
    }

    fn desc(self) -> Result<TensorDesc> {
        Ok(TensorDesc::contiguous(DType::BF16, &[self.rows, self.cols])?)
    }

    fn upload(self, device: &Device) -> Result<Buffer> {
        let elements = self.rows * self.cols;
        let buffer = device.alloc(2 * elements)?;
        for start in (0..elements).step_by(PART as usize) {
            let indices = start..elements.min(start + PART);
            let part: Vec<bf16> = indices.into_par_iter().map(|i| bf16::from_f64(self.element(i))).collect();
            device.write(&buffer, 2 * start, bytemuck::cast_slice(&part))?;
        }
        Ok(buffer)
    }
}

/// Sums of `terms` products of elements of two factors, which are given by their row or column of the output and by their term.
struct Sums<F, G> {
    rows: u64,
    cols: u64,
    terms: u64,
    of_row: F,
    of_col: G,
}

impl<F: Fn(u64, u64) -> f64 + Sync, G: Fn(u64, u64) -> f64 + Sync> Sums<F, G> {
    fn row(&self, row: u64) -> Vec<f64> {
        (0..self.terms).map(|term| (self.of_row)(row, term)).collect()
    }

    fn col(&self, col: u64) -> Vec<f64> {
        (0..self.terms).map(|term| (self.of_col)(col, term)).collect()
    }

    /// The last of `all` rows or columns, those in which elements after the `2^31`th and the `2^32`th of an operand lie, the first, and others
    /// in even steps, as many as the work allows.
    fn samples(&self, all: u64, others: u64) -> Vec<u64> {
        let count = (WORK / (others * self.terms).max(1)).clamp(1, SAMPLES);
        let wrapped = |cols: u64| [(1 << 31) / cols.max(1), (1 << 32) / cols.max(1)];
        let marked = [all.saturating_sub(1)].into_iter().chain(wrapped(self.terms)).chain(wrapped(others)).chain([0]);
        let mut samples: Vec<u64> = Vec::new();
        for at in marked.chain((1..count).map(|i| i * all / count)) {
            if at < all && (samples.len() as u64) < count && !samples.contains(&at) {
                samples.push(at);
            }
        }
        samples
    }

    /// Compares rows and columns of an output.
    fn judge(&self, device: &Device, output: &Buffer) -> Result<()> {
        let (rows, cols) = (self.samples(self.rows, self.cols), self.samples(self.cols, self.rows));
        let of_cols: Vec<(u64, Vec<f64>)> = cols.par_iter().map(|&col| (col, self.col(col))).collect();
        let wrong = |row: u64, col: u64, of_row: &[f64], of_col: &[f64], found: bf16| {
            let (sum, budget) = within(of_row.iter().zip(of_col).map(|(a, b)| a * b));
            let units = units(DType::BF16, found.to_f64(), sum, budget);
            (units.is_nan() || units > 1.0)
                .then(|| format!("[{row}, {col}] is {found:e}, expected {sum:e} within {budget:.3e}: {units:.2} units"))
        };
        let mut queue = device.queue();
        let height = (PART / self.cols.max(1)).max(1);
        let mut part = Vec::new();
        for start in (0..self.rows).step_by(height as usize) {
            let height = height.min(self.rows - start);
            part.resize((height * self.cols) as usize, bf16::NAN);
            queue.download_range(output, 2 * start * self.cols, &mut part)?;
            let found = |row: u64, col: u64| part[((row - start) * self.cols + col) as usize];
            let in_part = |row: &&u64| (start..start + height).contains(*row);
            let in_rows = rows.iter().filter(in_part).find_map(|&row| {
                let of_row = self.row(row);
                let each = (0..self.cols).into_par_iter();
                each.find_map_any(|col| wrong(row, col, &of_row, &self.col(col), found(row, col)))
            });
            let in_cols = || {
                (start..start + height).into_par_iter().find_map_any(|row| {
                    let of_row = self.row(row);
                    of_cols.iter().find_map(|(col, of_col)| wrong(row, *col, &of_row, of_col, found(row, *col)))
                })
            };
            let first = in_rows.or_else(in_cols);
            ensure!(first.is_none(), "{}", first.unwrap_or_default());
        }
        Ok(())
    }
}

/// Plans of a descriptor by each kernel that takes it.
pub(super) fn plans<D: Descriptor>(device: &Device, op: &str, descriptor: &D) -> Result<Vec<Plan<D>>> {
    let op = OPS.iter().find(|entry| entry.name == op).context("no such op")?;
    let mut plans = Vec::new();
    for (_, kernel) in op.kernels().into_iter().filter(|(backend, _)| *backend == device.backend()) {
        let options = PlanOptions::default().kernel(kernel);
        match Plan::new(device, descriptor.clone(), &options) {
            Ok(plan) => plans.push(plan),
            Err(Error::Unsupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(!plans.is_empty(), "no kernel takes it");
    Ok(plans)
}

/// An `m` by `n` product over `k`.
fn forward(device: &Device, [m, n, k]: [u64; 3]) -> Result<()> {
    let (a, b) = (Matrix::new(1, [m, k]), Matrix::new(2, [k, n]));
    let sums = Sums { rows: m, cols: n, terms: k, of_row: |i, t| a.at(i, t), of_col: |j, t| b.at(t, j) };
    let descriptor = GemmDescriptor::new(a.desc()?, b.desc()?)?;
    let (of_a, of_b) = (a.upload(device)?, b.upload(device)?);
    let out = device.alloc(2 * m * n)?;
    for plan in plans(device, "gemm", &descriptor)? {
        let workspace = device.alloc(plan.workspace().bytes)?;
        plan.run(&mut device.queue(), GemmArgs::new(&of_a, &of_b, &out), Workspace::new(&workspace))?;
        sums.judge(device, &out).with_context(|| format!("{}: out", plan.info().kernel))?;
    }
    Ok(())
}

/// The gradients of both factors through a relu, from its output: what is not 0 of dout is exact.
fn backward(device: &Device, [m, n, k]: [u64; 3]) -> Result<()> {
    let (a, b) = (Matrix::new(1, [m, k]), Matrix::new(2, [k, n]));
    let (out, dout) = (Matrix::new(3, [m, n]), Matrix::new(4, [m, n]));
    let dpre = |i: u64, j: u64| if out.at(i, j) > 0.0 { dout.at(i, j) } else { 0.0 };
    let of_a = Sums { rows: m, cols: k, terms: n, of_row: dpre, of_col: |j, t| b.at(j, t) };
    let of_b = Sums { rows: k, cols: n, terms: m, of_row: |i, t| a.at(t, i), of_col: |j, t| dpre(t, j) };
    let descriptor = GemmBackwardDescriptor::new(a.desc()?, b.desc()?, &["a", "b"])?;
    let descriptor = descriptor.activation(Activation::Relu, GemmSaved::Out)?;
    let [a, b, out, dout] = [a, b, out, dout].map(|matrix| matrix.upload(device));
    let (a, b, out, dout) = (a?, b?, out?, dout?);
    let (da, db) = (device.alloc(2 * m * k)?, device.alloc(2 * k * n)?);
    for plan in plans(device, "gemm_backward", &descriptor)? {
        let workspace = device.alloc(plan.workspace().bytes)?;
        let args = GemmBackwardArgs::new(&dout).a(&a).b(&b).out(&out).da(&da).db(&db);
        plan.run(&mut device.queue(), args, Workspace::new(&workspace))?;
        of_a.judge(device, &da).with_context(|| format!("{}: da", plan.info().kernel))?;
        of_b.judge(device, &db).with_context(|| format!("{}: db", plan.info().kernel))?;
    }
    Ok(())
}

/// Products of more than `2^31` elements: in a, with rows that vectors divide and with others; in b; in the output.
#[cfg(feature = "cuda")]
pub(super) fn more_than_2_to_the_31(device: &Device) -> Result<()> {
    const LARGE: [[u64; 3]; 4] = [[524_309, 24, 4096], [524_309, 8, 4097], [24, 524_320, 4096], [65_544, 32_776, 16]];
    assert!(LARGE.iter().all(|[m, n, k]| (m * k).max(k * n).max(m * n) > 1 << 31));
    for extents in LARGE {
        forward(device, extents).and_then(|()| backward(device, extents)).with_context(|| format!("{extents:?}"))?;
    }
    Ok(())
}

/// Small products are judged in the same way, and one of other factors is noticed.
pub(super) fn sampled(device: &Device) -> Result<()> {
    for extents in [[517, 24, 64], [131, 8, 61], [24, 520, 64], [136, 264, 16]] {
        forward(device, extents).and_then(|()| backward(device, extents)).with_context(|| format!("{extents:?}"))?;
    }
    let (matrix, other) = (Matrix::new(1, [61, 40]), Matrix::new(2, [61, 40]));
    let output = matrix.upload(device)?;
    // Products with the unit matrix, for which the same elements and others are expected.
    let sums = |matrix: Matrix| {
        let of_col = |j: u64, t: u64| f64::from(u8::from(j == t));
        Sums { rows: 61, cols: 40, terms: 40, of_row: move |i, t| matrix.at(i, t), of_col }
    };
    sums(matrix).judge(device, &output)?;
    ensure!(sums(other).judge(device, &output).is_err(), "another product passes");
    Ok(())
}

/// Factors over no terms, whatever their strides: the product is the bias.
pub(crate) fn empty(device: &Device) -> Result<()> {
    let factor = |dims: [u64; 4], strides: [u64; 4]| TensorDesc::strided(DType::F32, &dims, &strides);
    let a = [[0, 0, 0, 1], [0, 0, 0, 0], [15, 5, 1, 1]];
    let b = [[0, 7, 7, 1], [7, 0, 7, 1], [0, 0, 7, 1], [21, 7, 7, 1]];
    let bias = device.upload(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])?;
    for (a, b) in a.into_iter().flat_map(|a| b.map(|b| (a, b))) {
        let descriptor = GemmDescriptor::new(factor([2, 3, 5, 0], a)?, factor([2, 3, 0, 7], b)?)?.bias(DType::F32)?;
        descriptor.backward_all()?;
        let plan = Plan::new(device, descriptor, &PlanOptions::default())?;
        let (none, out) = (device.alloc(0)?, device.upload(&[f32::NAN; 210])?);
        let workspace = device.alloc(plan.workspace().bytes)?;
        let mut queue = device.queue();
        plan.run(&mut queue, GemmArgs::new(&none, &none, &out).bias(&bias), Workspace::new(&workspace))?;
        let out = queue.download::<f32>(&out)?;
        ensure!(out.chunks(7).all(|row| row == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), "{a:?} {b:?}: {out:?}");
    }
    Ok(())
}
