//! Products through cuBLASLt: what it takes, in column-major terms, and when a second launch for the epilogue is worth it.
//!
//! It computes the product, and where the activation is the identity adds the bias. Other epilogues are `gemm_finish`, over sums in f32 (of f64
//! factors f64) that lie in out or pre where those have that type, else in the workspace: a sum that was rounded first would make two roundings.

use crate::backend::cuda::cublaslt::{Factor, ProductProblem, WORKSPACE_BYTES};
use crate::backend::cuda::reach::{check_reach, sum_of_products};
use crate::dtype::DType;
use crate::error::Reason;
use crate::ops::gemm::geometry::{Epilogue, Formula, Matrix, Product};
use crate::options::Math;

use super::product::{First, Limits, Planned, Source, Sums, accumulator_bytes, dense_bytes};
use super::{WORKSPACE_ALIGN, regions};

/// The most bytes of sums in the workspace, unless the form is pinned.
const MOST_SUM_BYTES: u64 = 512 << 20;
/// The alignment of a bias that cuBLASLt assumes and does not check.
const BIAS_ALIGN_BYTES: u64 = 16;
/// Rows of factors and output at multiples of this let it use its fast kernels, and add a bias to the sums before they are rounded. Of bf16 rows at multiples of 2 bytes
/// cuBLASLt 13.1 was seen to err as if it rounded the sums first.
const ROW_ALIGN_BYTES: u64 = 16;
/// The most calls of the library for one product.
const MOST_CALLS: u64 = 64;
/// Operations from which on a call is worth its launch.
const LEAST_FLOPS_OF_CALL: u64 = 1 << 30;

pub(super) fn plan(product: &Product, limits: &Limits<'_>) -> Result<Planned, Reason> {
    Reason::unless(
        product.summed.is_empty(),
        || "it does not sum over a batch whose strides do not continue those of k",
    )?;
    let calls = Calls::of(product, limits)?;
    let dtype = product.left.dtype;
    for (name, value) in [("alpha", product.alpha), ("beta", product.epilogue.beta)] {
        let is_normal = value == 0.0 || dtype == DType::F64 || value.abs() >= f64::from(f32::MIN_POSITIVE);
        Reason::unless(is_normal, || format!("it may take a subnormal number as 0, {name} is {value:e}"))?;
    }
    let is_sum_type = |m: &Matrix| m.dtype == if dtype == DType::F64 { DType::F64 } else { DType::F32 };

    // 1. What it leaves to `gemm_finish`, and where the sums lie until then.
    let Epilogue { formula, bias, activation, beside, beta } = &product.epilogue;
    let source = match beside {
        None if activation.is_identity() => None,
        _ if *formula == Formula::Forward && is_sum_type(&product.out) => Some((Source::Out, product.out)),
        Some(pre) if *formula == Formula::Forward && is_sum_type(pre) => Some((Source::Other, *pre)),
        _ => Some((Source::Scratch, in_workspace(product))),
    };
    let bias = bias.as_ref().filter(|_| source.is_none());
    let product_bytes = match source {
        Some((Source::Scratch, _)) => regions(dense_bytes(product)),
        _ => 0,
    };
    if source.is_some() && !limits.is_pinned {
        is_worth_a_pass(product, limits)?;
        Reason::unless(product_bytes <= MOST_SUM_BYTES, || {
            format!("its sums take {product_bytes} bytes of workspace, at most {MOST_SUM_BYTES} are spent on them")
        })?;
    }
    Reason::unless(product_bytes <= limits.workspace_bytes, || {
        format!("its sums take {product_bytes} bytes of workspace, the limit leaves {}", limits.workspace_bytes)
    })?;
    let workspace_bytes =
        WORKSPACE_BYTES.min(limits.workspace_bytes - product_bytes) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;

    // 2. Column-major: out^T = op(B)^T op(A)^T, or where out lies column after column, out = op(A) op(B).
    let target = source.map_or(product.out, |(_, matrix)| matrix);
    let is_swapped = !is_row_major(&target, product);
    if let Some(bias) = bias {
        Reason::unless(!is_swapped, || "a bias needs an out whose rows are contiguous")?;
        Reason::unless(bias.dtype == product.out.dtype, || {
            format!("it adds a bias of the type of out, {}; got {}", product.out.dtype, bias.dtype)
        })?;
        Reason::unless(bias.stride == 1 || product.n <= 1, || {
            format!("it takes a dense bias, got stride {}", bias.stride)
        })?;
        Reason::unless(bias.align_bytes >= BIAS_ALIGN_BYTES, || {
            format!("it needs a bias at a multiple of {BIAS_ALIGN_BYTES} bytes, got {}", bias.align_bytes)
        })?;
    }
    let adds = bias.is_some() || *beta != 0.0;
    if adds && target.dtype.size_bytes() < 4 {
        for (name, matrix) in [("a", &product.left), ("b", &product.right), ("out", &target)] {
            let align = alignment(matrix);
            Reason::unless(align >= ROW_ALIGN_BYTES, || {
                format!(
                    "{} sums that it adds to err as if rounded before, unless rows lie at multiples of {ROW_ALIGN_BYTES} bytes, {name} has them at {align}",
                    target.dtype
                )
            })?;
        }
    }
    let of = Product { out: target, ..*product };
    let (of, [left_name, right_name]) = if is_swapped { (of, ["a", "b"]) } else { (of.transposed(), ["b", "a"]) };
    let Product { m: rows, n: columns, k, left, right, out, .. } = of;
    let first = factor(left_name, &left, calls.axis, [rows, left.rows], [k, left.cols])?;
    let second = factor(right_name, &right, calls.axis, [k, right.rows], [columns, right.cols])?;
    let out = factor("out", &out, calls.axis, [rows, out.rows], [columns, out.cols])?;
    let rounds_to_tf32 = dtype == DType::F32 && limits.math == Math::Tf32;
    let problem = ProductProblem {
        dtype,
        out_dtype: target.dtype,
        rows,
        columns,
        depth: k,
        batch: calls.matrices,
        first,
        second,
        out,
        alpha: product.alpha,
        beta: *beta,
        bias: bias.is_some(),
        tf32: rounds_to_tf32,
        workspace_bytes,
    };
    check_numbers(&problem, [left_name, right_name])?;

    // 3. The launches. Operands are those of the library, which takes the factors in reverse order.
    let mut planned = Planned::bare(product, false)?;
    (planned.left, planned.right) = (right.place, left.place);
    if let Some((source, _)) = source {
        planned.finish(product, Sums { splits: 1, source }, false)?;
        planned.finish_params.alpha = 1.0;
    }
    planned.first = Some(First::Vendor(problem));
    planned.calls = calls.starts(&of);
    planned.product_bytes = product_bytes;
    planned.scratch_bytes = product_bytes + workspace_bytes;
    planned.rounds_to_tf32 = rounds_to_tf32;
    Ok(planned)
}

/// Bounds the extents, the strides, and the offsets of the last elements, which bound all others.
fn check_numbers(problem: &ProductProblem, [left, right]: [&str; 2]) -> Result<(), Reason> {
    let ProductProblem { rows, columns, depth, batch, first, second, out, .. } = problem;
    let [of_rows, of_columns] = if left == "a" { ["m", "n"] } else { ["n", "m"] };
    for (what, extent) in [(of_rows, rows), (of_columns, columns), ("k", depth), ("the number of matrices", batch)] {
        check_reach(*extent, || what.into())?;
    }
    let operands = [(left, first, [rows, depth]), (right, second, [depth, columns]), ("out", out, [rows, columns])];
    for (name, factor, [inner, outer]) in operands {
        let lines = if factor.is_transposed { inner } else { outer };
        check_reach(factor.leading, || format!("the leading stride of {name}"))?;
        check_reach(factor.batch, || format!("the batch stride of {name}"))?;
        let span = sum_of_products([[factor.leading, *lines], [factor.batch, batch.saturating_sub(1)]]);
        check_reach(span, || {
            let Factor { leading, batch: stride, .. } = factor;
            format!(
                "leading stride * lines + batch stride * matrices of {name} = {leading} * {lines} + {stride} * ({batch} - 1)"
            )
        })?;
    }
    Ok(())
}

/// Whether its product, written and read once more, is faster than one launch of our own. Each term of a sum takes it less time than it takes ours:
/// on an H200 with bf16 a quarter (700 and 175 TFLOP/s), where a pass moves 10 bytes an element at 4 TB/s, which pays from 292 terms on.
fn is_worth_a_pass(product: &Product, limits: &Limits<'_>) -> Result<(), Reason> {
    let dtype = product.left.dtype;
    let has_own_tensor_cores =
        matches!(dtype, DType::F16 | DType::BF16) || (dtype == DType::F32 && limits.math == Math::Tf32);
    let least = match limits.props.capability {
        _ if dtype == DType::F64 => 64,
        _ if !has_own_tensor_cores => 256,
        90 | 100 | 103 => 320,
        _ => 4096,
    };
    Reason::unless(product.k >= least, || {
        format!("its epilogue would be a pass of its own, worth it from k = {least} on; k is {}", product.k)
    })?;
    Ok(())
}

/// How a batch is shared out over calls, each of which takes one batch stride.
struct Calls {
    /// The batch axis that a call takes whole.
    axis: usize,
    matrices: u64,
}

impl Calls {
    fn of(product: &Product, limits: &Limits<'_>) -> Result<Self, Reason> {
        let extents = || product.batch.iter().copied().enumerate();
        let (axis, matrices) = extents().max_by_key(|&(_, extent)| extent).unwrap_or((0, 1));
        let count = product.batch.count() / matrices.max(1);
        Reason::unless(count <= MOST_CALLS, || {
            format!("a call takes one batch stride, so that the operands take {count} calls, of at most {MOST_CALLS}")
        })?;
        let of_call =
            [product.m, product.n, product.k].into_iter().fold(matrices.saturating_mul(2), u64::saturating_mul);
        Reason::unless(count <= 1 || of_call >= LEAST_FLOPS_OF_CALL || limits.is_pinned, || {
            format!(
                "a call takes one batch stride, which is worth it from {LEAST_FLOPS_OF_CALL} operations on; each of {count} has {of_call}"
            )
        })?;
        Ok(Self { axis, matrices })
    }

    /// Where the operands of each call begin, in bytes: the first factor of the library, the second, and what it writes.
    fn starts(&self, product: &Product) -> Vec<[u64; 3]> {
        let mut starts = vec![[0; 3]];
        for (axis, &extent) in product.batch.iter().enumerate().filter(|&(axis, _)| axis != self.axis) {
            let steps =
                [product.left, product.right, product.out].map(|matrix| matrix.batch[axis] * matrix.dtype.size_bytes());
            let along = |start: [u64; 3]| {
                (0..extent).map(move |index| std::array::from_fn(|operand| start[operand] + index * steps[operand]))
            };
            starts = starts.into_iter().flat_map(along).collect();
        }
        starts
    }
}

/// The largest power of two, at most 256, that divides the bytes at which rows and matrices begin.
fn alignment(matrix: &Matrix) -> u64 {
    let leading = matrix.rows.max(matrix.cols);
    let strides = matrix.batch.iter().chain([&leading]).filter(|&&stride| stride != 0);
    let of_strides = strides.map(|stride| 1 << (stride * matrix.dtype.size_bytes()).trailing_zeros().min(8));
    of_strides.fold(matrix.align_bytes, u64::min)
}

/// The largest power of two of bytes that divides the starts of all rows of all operands.
pub(super) fn row_alignment(product: &Product) -> u64 {
    [&product.left, &product.right, &product.out].into_iter().map(alignment).min().unwrap_or(1)
}

/// The matrix of sums as it lies in the workspace.
fn in_workspace(product: &Product) -> Matrix {
    let dtype = if product.left.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    // `gemm_finish` walks over the sums as it walks over out.
    let by_columns = product.out.rows == 1 && product.out.cols != 1 && !product.epilogue.is_derivative();
    let (rows, cols) = if by_columns { (1, product.m) } else { (product.n, 1) };
    let align_bytes = WORKSPACE_ALIGN.max(accumulator_bytes(dtype));
    Matrix { dtype, align_bytes, rows, cols, batch: product.dense_batch(), ..product.out }
}

fn is_row_major(target: &Matrix, product: &Product) -> bool {
    target.cols == 1 || product.n == 1 || !(target.rows == 1 || product.m == 1)
}

/// A factor whose rows, or else whose columns, lie one element after the other: `[extent, stride]` of the index along a column of the column-major
/// matrix, and of the other.
fn factor(
    name: &str,
    matrix: &Matrix,
    batch_axis: usize,
    [inner, inner_stride]: [u64; 2],
    [outer, outer_stride]: [u64; 2],
) -> Result<Factor, Reason> {
    let fits = |stride: u64, extent: u64| stride == 1 || extent == 1;
    let leading = |extent: u64, outer: u64, stride: u64| if outer == 1 { extent } else { stride };
    let (is_transposed, extent, leading) = if fits(inner_stride, inner) && leading(inner, outer, outer_stride) >= inner
    {
        (false, inner, leading(inner, outer, outer_stride))
    } else if fits(outer_stride, outer) && name != "out" {
        (true, outer, leading(outer, inner, inner_stride))
    } else {
        return Err(
            format!("it takes matrices with a stride of 1, {name} has {inner_stride} and {outer_stride}").into()
        );
    };
    Reason::unless(leading >= extent, || {
        format!("it takes leading strides of at least {extent}, {name} has {leading}")
    })?;
    // Each call begins at a multiple of the batch strides that are not its own.
    let starts = matrix.batch.iter().enumerate().filter(|&(axis, &stride)| axis != batch_axis && stride != 0);
    let align_bytes = starts.fold(matrix.align_bytes, |align, (_, stride)| {
        align.min(1 << (stride * matrix.dtype.size_bytes()).trailing_zeros().min(8))
    });
    Ok(Factor { is_transposed, leading, batch: matrix.batch[batch_axis], align_bytes })
}
