//! The CUDA kernels: how many threads take a line, and how lines are added up.

use baracuda_ops_sys as sys;

use super::{At, LossReduction, Valid, backward, forward};
use crate::backend::cuda::{Props, c_dtype, c_element};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::samples::are_packed;
use crate::ops::softmax::masked::Lines;
use crate::options::WorkspaceReq;
use crate::tensor::TensorDesc;

/// Threads of the largest team, and the fewest of a block.
const MOST_THREADS: u64 = sys::BOPS_CROSS_ENTROPY_THREADS as u64;
const BLOCK: u64 = 128;
/// Accesses that a thread has in flight, as in the kernels.
const BATCH: u64 = 4;
/// The most elements of a line that one thread takes where the classes do not lie side by side: with more, the additions in its three chains would be more than
/// the contract allows.
const MOST_OF_THREAD: u64 = 8192;
/// Lines that a block adds up.
const OF_TOTAL: u64 = sys::BOPS_CROSS_ENTROPY_TOTAL as u64;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
const EXTENTS: usize = sys::BOPS_CROSS_ENTROPY_EXTENTS as usize;
const VEC_BYTES: u64 = 16;

/// Forward.
pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let lines = &valid.derived;
    let x = valid.slots.always(forward::X).desc;
    let (params, choice) = (params(valid)?, choose(lines, &[x])?);
    let is_reduced = valid.fields.reduction != LossReduction::None;
    let also = (params.reduction, lines.count.min(1), [params.has_options, params.has_missing]);
    let kernels = (c_dtype(x.dtype())?, params, choice, also);
    let has_work = lines.count > 0 || is_reduced || valid.fields.missing;
    let candidate =
        calls!(bops_cross_entropy).candidate(has_work, kernels, |located| sys::bops_cross_entropy_operands {
            x: located.pointer(forward::X).cast_const(),
            targets: located.pointer(forward::TARGETS).cast_const(),
            weight: located.pointer(forward::WEIGHT).cast_const(),
            loss: located.pointer(forward::LOSS),
            logsumexp: located.pointer(forward::LOGSUMEXP),
            divisor: located.pointer(forward::DIVISOR),
            missing: located.pointer(forward::MISSING).cast(),
        });
    let has_lines = u32::from(lines.count > 0);
    let counting = if valid.fields.missing { 1 + has_lines } else { 0 };
    if !is_reduced {
        let candidate = Candidate { launches: has_lines + counting, ..candidate };
        return Ok(candidate.batch_invariant_if(are_packed(&x, valid.fields.axis)));
    }
    let totals = u64::from(choice.totals);
    let parts = lines.count + if totals > 1 { totals } else { 0 };
    let of_each = if valid.fields.reduction == LossReduction::Mean { 2 } else { 1 };
    let bytes = parts * of_each * x.dtype().accumulator().size_bytes();
    let launches = has_lines + counting + u32::from(totals > 1) + 1;
    Ok(Candidate { workspace: WorkspaceReq::new(bytes, VEC_BYTES), launches, ..candidate })
}

/// Backward.
pub(super) fn accept_backward<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let [x, dx] = [backward::X, backward::DX].map(|operand| valid.slots.always(operand).desc);
    let (params, choice) = (params(valid)?, choose(&valid.derived, &[x, dx])?);
    let kernels = (c_dtype(x.dtype())?, params, choice, params.has_options);
    let are_packed = [x, dx].iter().all(|tensor| are_packed(tensor, valid.fields.axis));
    let candidate = calls!(bops_cross_entropy_backward).candidate(valid.derived.count > 0, kernels, |located| {
        sys::bops_cross_entropy_backward_operands {
            dloss: located.pointer(backward::DLOSS).cast_const(),
            x: located.pointer(backward::X).cast_const(),
            targets: located.pointer(backward::TARGETS).cast_const(),
            weight: located.pointer(backward::WEIGHT).cast_const(),
            divisor: located.pointer(backward::DIVISOR).cast_const(),
            logsumexp: located.pointer(backward::LOGSUMEXP).cast_const(),
            dx: located.pointer(backward::DX),
        }
    });
    let is_of_lines = valid.fields.reduction == LossReduction::None;
    Ok(candidate.batch_invariant_if(is_of_lines && are_packed))
}

fn params(valid: &Valid) -> Result<sys::bops_cross_entropy_params, Reason> {
    let (fields, lines) = (&valid.fields, &valid.derived);
    Reason::unless(lines.extents.len() <= EXTENTS && lines.count <= u64::from(u32::MAX), || {
        format!("there are {} lines, the limit is 2^32 - 1", lines.count)
    })?;
    let [keep, smooth] = fields.smoothing();
    let mut params = sys::bops_cross_entropy_params {
        has_missing: fields.missing.into(),
        has_options: valid.has_options().into(),
        has_probabilities: fields.has_probabilities().into(),
        has_weight: fields.weight.is_some().into(),
        has_f32_weight: (fields.weight == Some(DType::F32)).into(),
        weight_step: valid.weight_step(),
        keep,
        smooth,
        z: fields.z_loss.get(),
        dim: lines.dim,
        lines: word(lines.count),
        targets: c_element(fields.targets),
        ignored: fields.ignore_index.unwrap_or(0),
        has_ignored: fields.ignore_index.is_some().into(),
        has_logsumexp: fields.stats.into(),
        reduction: match fields.reduction {
            LossReduction::Mean => sys::BOPS_LOSS_MEAN,
            LossReduction::Sum => sys::BOPS_LOSS_SUM,
            LossReduction::None => sys::BOPS_LOSS_NONE,
        },
        ..Default::default()
    };
    if lines.count == 0 {
        return Ok(params);
    }
    params.rank = word(lines.extents.len() as u64);
    for (to, &extent) in params.extents.iter_mut().zip(&lines.extents) {
        *to = word(extent);
    }
    for (to, strides) in params.strides.iter_mut().zip(&lines.strides) {
        to.strides[..strides.len()].copy_from_slice(strides);
    }
    for (to, operand) in params.steps.iter_mut().zip([At::X, At::Dx, At::Targets]) {
        *to = lines.steps.get(operand as usize).copied().unwrap_or(0);
    }
    Ok(params)
}

/// `wide`: x and, backward, dx, of which kernels make accesses of several neighbours.
fn choose(lines: &Lines, wide: &[TensorDesc]) -> Result<sys::bops_cross_entropy_choice, Reason> {
    let (dtype, steps) = (wide[0].dtype(), &lines.steps);
    let full = VEC_BYTES / dtype.size_bytes();
    let places = [At::X, At::Dx];
    let fits = |(tensor, place): (&TensorDesc, At)| {
        lines.has_neighbours(place as usize, full) && tensor.align_bytes() >= VEC_BYTES
    };
    let is_wide = dtype != DType::F64 && wide.iter().zip(places).all(fits);
    let width = if is_wide { full } else { 1 };
    let accesses = lines.dim.div_ceil(width);
    let is_row = lines.dim == 1 || steps[At::X as usize] == 1;
    let threads = match is_row {
        true => accesses.div_ceil(BATCH).next_power_of_two().max(accesses.next_power_of_two().min(32)),
        // Neighbouring threads take neighbouring lines.
        false => lines.dim.div_ceil(MOST_OF_THREAD).next_power_of_two(),
    };
    let threads = threads.min(MOST_THREADS);
    let of_block = (BLOCK / threads).max(1);
    let grid = lines.count.div_ceil(of_block);
    Reason::unless(grid <= MOST_BLOCKS, || format!("it needs {grid} blocks, a launch has at most {MOST_BLOCKS}"))?;
    Ok(sys::bops_cross_entropy_choice {
        width: word(width),
        threads: word(threads),
        lines: word(of_block),
        grid: word(grid),
        totals: word(lines.count.div_ceil(OF_TOTAL).max(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::softmax::cross_entropy::CrossEntropyDescriptor;

    fn chosen(x: TensorDesc, axis: usize) -> sys::bops_cross_entropy_choice {
        let valid = CrossEntropyDescriptor::new(x, axis, DType::I64).unwrap().0;
        choose(&valid.derived, &[x]).unwrap()
    }

    #[test]
    fn every_line_has_a_team_and_every_block_whole_warps() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for dim in (1..600).chain([1000, 1024, 4096, 8191, 8192, 8193, 50_257, 128_256, 1 << 20]) {
                for (dims, axis) in [([300, dim], 1), ([dim, 300], 0)] {
                    let choice = chosen(TensorDesc::contiguous(dtype, &dims).unwrap(), axis);
                    let threads = u64::from(choice.threads);
                    assert!(threads.is_power_of_two() && threads <= MOST_THREADS, "{dtype} {dims:?} {choice:?}");
                    assert!((threads * u64::from(choice.lines)).is_multiple_of(32), "{dtype} {dims:?} {choice:?}");
                    assert!(u64::from(choice.grid * choice.lines) >= 300, "{dtype} {dims:?} {choice:?}");
                }
            }
        }
    }

    #[test]
    fn rows_are_read_in_whole_accesses_and_columns_line_by_line() {
        let of = |dtype, dims: &[u64], axis| chosen(TensorDesc::contiguous(dtype, dims).unwrap(), axis);
        let rows = of(DType::BF16, &[8192, 128_256], 1);
        assert_eq!((rows.width, rows.threads, rows.lines, rows.totals), (8, 512, 1, 2));
        assert_eq!(of(DType::F32, &[8, 50_257], 1).width, 1);
        let columns = of(DType::F32, &[8, 21, 4096], 1);
        assert_eq!((columns.width, columns.threads, columns.lines), (1, 1, 128));
    }
}
