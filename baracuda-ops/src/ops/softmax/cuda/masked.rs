//! The form of biases and masks: lines of any layout, which a team of threads holds in registers where they are short enough.

use baracuda_ops_sys as sys;

use super::super::masked::Lines;
use super::super::{Valid, check_masked};
use super::{Along, Pass};
use crate::backend::Device;
use crate::backend::cuda::{Launch, Props, c_dtype};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::samples::are_packed;
use crate::tensor::TensorDesc;

/// Threads of the largest team, and the fewest of a block.
const MOST_THREADS: u64 = sys::BOPS_SOFTMAX_MASKED_THREADS as u64;
const BLOCK: u64 = 128;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
const EXTENTS: usize = sys::BOPS_SOFTMAX_MASKED_EXTENTS as usize;

/// Accesses of so many elements that a thread holds, as the kernels do: 32 elements, of single ones 16, of f64 8.
const fn held(width: u64, dtype: DType) -> u64 {
    match (width, dtype) {
        (1, DType::F64) => 8,
        (1, _) => 16,
        _ => 32 / width,
    }
}

/// Lines with a bias or a mask, and the gradient of softmax, of any layout.
pub(in super::super) fn masked<'d, F: Pass + 'static>(softmax: &'d Valid<F>, _: &Props, _: Ask) -> Accepted<'d> {
    let lines = check_masked(softmax.derived.as_ref())?;
    let descs: Vec<TensorDesc> = softmax.slots.iter().map(|slot| slot.desc).collect();
    let (&out, inputs) = descs.split_last().ok_or("it has no output")?;
    let Along { axis, is_log, scale, .. } = softmax.fields.along();
    // y, whose type counts, and x or dx.
    let (y, x) = if F::IS_BACKWARD { (inputs[0], out) } else { (out, inputs[0]) };
    let bias = inputs.get(1).filter(|_| !F::IS_BACKWARD);
    let of = sys::bops_softmax_specialisation {
        dtype: c_dtype(y.dtype())?,
        x_dtype: c_dtype(x.dtype())?,
        is_log: is_log.into(),
    };
    if lines.count == 0 {
        let build = move |_: &Device| Ok(Launch::new(F::MASKED.name, |_, _| 0).into());
        return Ok(Candidate { launches: 0, ..Candidate::new((), build) }.batch_invariant());
    }
    let choice = choose(lines, &y, (!F::IS_BACKWARD).then_some(&x))?;
    let width = u64::from(choice.width);
    let bias_is_neighbours = bias.is_some_and(|bias| {
        let bytes = (width * bias.dtype().size_bytes()).min(16);
        width > 1 && lines.has_neighbours(2, width) && bias.align_bytes() >= bytes
    });
    let mut params = sys::bops_softmax_masked_params {
        lines: word(lines.count),
        rank: word(lines.extents.len() as u64),
        dim: lines.dim,
        queries: lines.queries().map_or(0, word),
        scale,
        has_bias: bias.is_some().into(),
        bias_is_f32: bias.is_some_and(|bias| bias.dtype() == DType::F32).into(),
        bias_is_neighbours: bias_is_neighbours.into(),
        ..Default::default()
    };
    for (to, &extent) in params.extents.iter_mut().zip(&lines.extents) {
        *to = word(extent);
    }
    for (operand, (strides, &step)) in lines.strides.iter().zip(&lines.steps).enumerate() {
        params.strides[operand].strides[..strides.len()].copy_from_slice(strides);
        params.steps[operand] = step;
    }
    // The width of an access follows from a line where lines follow one another; nothing else does from their number.
    let are_packed = [&y, &x].into_iter().all(|tensor| are_packed(tensor, axis));
    Ok(F::MASKED.candidate(true, (of, params, choice, ()), F::operands).batch_invariant_if(are_packed))
}

/// `x`: of forward, whose kernels make accesses of several neighbours.
fn choose(lines: &Lines, y: &TensorDesc, x: Option<&TensorDesc>) -> Result<sys::bops_softmax_masked_choice, Reason> {
    Reason::unless(lines.extents.len() <= EXTENTS && lines.count <= u64::from(u32::MAX), || {
        format!("there are {} lines, the limit is 2^32 - 1", lines.count)
    })?;
    let full = 16 / y.dtype().size_bytes();
    let is_held = |width: u64| lines.dim.div_ceil(width) <= held(width, y.dtype()) * MOST_THREADS;
    let fits = |tensor: &TensorDesc, operand| {
        lines.has_neighbours(operand, full) && tensor.align_bytes() >= full * tensor.dtype().size_bytes()
    };
    let is_wide = x.is_some_and(|x| fits(y, 0) && fits(x, 1)) && y.dtype() != DType::F64 && is_held(full);
    let width = if is_wide { full } else { 1 };
    let is_held = x.is_some() && is_held(width);
    let accesses = lines.dim.div_ceil(width);
    let fewest = accesses.div_ceil(held(width, y.dtype())).next_power_of_two();
    let threads = fewest.max(accesses.next_power_of_two().min(32)).min(MOST_THREADS);
    let of_block = (BLOCK / threads).max(1);
    let grid = lines.count.div_ceil(of_block);
    Reason::unless(grid <= MOST_BLOCKS, || format!("it needs {grid} blocks, a launch has at most {MOST_BLOCKS}"))?;
    Ok(sys::bops_softmax_masked_choice {
        width: word(width),
        is_held: is_held.into(),
        threads: word(threads),
        lines: word(of_block),
        grid: word(grid),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(dtype: DType, dims: &[u64]) -> sys::bops_softmax_masked_choice {
        let x = TensorDesc::contiguous(dtype, dims).unwrap();
        let lines = Lines::new(&[x, x], dims.len() - 1, false).unwrap();
        choose(&lines, &x, Some(&x)).unwrap()
    }

    #[test]
    fn every_element_of_a_line_has_a_thread_that_holds_it() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for dim in (1..600).chain([1000, 1024, 4096, 8191, 8192, 8193, 16384, 16392, 100_003]) {
                let choice = chosen(dtype, &[300, dim]);
                let (width, threads) = (u64::from(choice.width), u64::from(choice.threads));
                assert!(threads.is_power_of_two() && threads <= MOST_THREADS, "{dtype} {dim} {choice:?}");
                assert!((threads * u64::from(choice.lines)).is_multiple_of(32), "{dtype} {dim} {choice:?}");
                assert!(u64::from(choice.grid * choice.lines) >= 300, "{dtype} {dim} {choice:?}");
                let holds = threads * width * held(width, dtype);
                assert!(choice.is_held == 0 || holds >= dim, "{dtype} {dim} {choice:?}");
            }
        }
        assert_eq!((chosen(DType::BF16, &[8, 4096]).width, chosen(DType::F32, &[8, 4096]).width), (8, 4));
        assert_eq!(chosen(DType::BF16, &[8, 4097]).width, 1);
        assert_eq!((chosen(DType::F32, &[8, 16384]).is_held, chosen(DType::F32, &[8, 16388]).is_held), (1, 0));
    }
}
