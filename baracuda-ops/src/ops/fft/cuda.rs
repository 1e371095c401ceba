//! The CUDA kernel: what its passes are told.

use baracuda_ops_sys as sys;

use super::passes::{self, MOST_STAGES, Pass, SPECTRUM, Source, Target, flags, kinds};
use super::{Geometry, Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::{Props, c_dtype};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::Lying;
use crate::ops::walk::Walk;
use crate::options::WorkspaceReq;

/// Points that a block holds, of f32 and of f64: 32 KiB, and 8 of each thread.
const POINTS: u64 = sys::BOPS_FFT_POINTS as u64;
const POINTS_F64: u64 = sys::BOPS_FFT_POINTS_F64 as u64;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// The alignment of the workspace.
const WORKSPACE_ALIGN: u64 = 16;
/// Room for passes at the C ABI.
const PASSES: usize = sys::BOPS_FFT_PASSES as usize;

const _: () = {
    assert!(MOST_STAGES == sys::BOPS_FFT_STAGES as usize);
    assert!(flags::TURNS_READ == sys::BOPS_FFT_TURNS_READ);
    assert!(flags::TURNS_RESULT == sys::BOPS_FFT_TURNS_RESULT);
    assert!(flags::TURNS_WRITTEN == sys::BOPS_FFT_TURNS_WRITTEN);
    assert!(flags::CHIRPS_READ == sys::BOPS_FFT_CHIRPS_READ);
    assert!(flags::CHIRPS_RESULT == sys::BOPS_FFT_CHIRPS_RESULT);
    assert!(flags::CONVOLVES == sys::BOPS_FFT_CONVOLVES);
    assert!(flags::READS_COLUMNS == sys::BOPS_FFT_READS_COLUMNS);
    assert!(flags::WRITES_COLUMNS == sys::BOPS_FFT_WRITES_COLUMNS);
};

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let geometry = &valid.derived;
    let walk = geometry.lines();
    let divided =
        passes::passes(geometry, &walk, if geometry.others[0].dtype() == DType::F64 { POINTS_F64 } else { POINTS })?;
    let lying = Lying { operands: geometry.others.to_vec(), walk };
    let dtype = c_dtype(geometry.others[0].dtype())?;
    // Pairs from the start of the workspace to each range, and to its end.
    let mut starts = [0; 4];
    for (at, &pairs) in divided.ranges.iter().enumerate() {
        starts[at + 1] = starts[at] + pairs;
    }
    let mut pass = [sys::bops_fft_pass::default(); PASSES];
    for (to, of) in pass.iter_mut().zip(&divided.passes) {
        *to = c_pass(geometry, of, &starts)?;
    }
    let count = word(divided.passes.len() as u64);
    let params = sys::bops_fft_params {
        walk: lying.c_walk(1)?,
        x: lying.c_walked(1, 1)?,
        y: lying.c_walked(0, 1)?,
        x_step: geometry.steps[1],
        x_part: geometry.parts[1],
        y_step: geometry.steps[0],
        y_part: geometry.parts[0],
        spectrum: starts[SPECTRUM],
        inner: geometry.inner.get(),
        points: word(geometry.points),
        x_is_packed: is_packed(geometry, &lying.walk, 1).into(),
        y_is_packed: is_packed(geometry, &lying.walk, 0).into(),
        passes: count,
        pass,
    };
    let most = divided.passes.iter().map(|pass| pass.points).max().unwrap_or(0);
    let choice = sys::bops_fft_choice { points: word(most), passes: count };
    let operands = |located: &Located<'_>| sys::bops_fft_operands {
        x: located.pointer(forward::X).cast_const(),
        y: located.pointer(forward::Y),
    };
    let candidate = calls!(bops_fft).candidate(count > 0, (dtype, params, choice, ()), operands);
    let bytes = starts[3].saturating_mul(2 * geometry.others[0].dtype().size_bytes());
    let workspace = if bytes > 0 { WorkspaceReq::new(bytes, WORKSPACE_ALIGN) } else { WorkspaceReq::NONE };
    Ok(Candidate { workspace, launches: count, ..candidate }.batch_invariant_if(valid.has_packed_samples()))
}

/// Whether pairs of an operand, 0 of y and 1 of x, are loaded or stored at once: parts are neighbours, and every pair starts at a multiple of its bytes.
fn is_packed(geometry: &Geometry, walk: &Walk, operand: usize) -> bool {
    let desc = &geometry.others[operand];
    geometry.parts[operand] == 1
        && desc.align_bytes() >= 2 * desc.dtype().size_bytes()
        && (geometry.steps[operand].is_multiple_of(2) || geometry.points <= 1)
        && walk.strides[operand].iter().all(|stride| stride.is_multiple_of(2))
}

fn c_pass(geometry: &Geometry, pass: &Pass, starts: &[u64; 4]) -> Result<sys::bops_fft_pass, Reason> {
    let kinds = kinds(geometry);
    let (from, from_work) = match pass.source {
        Source::X => (kinds[0], 0),
        Source::Work(at) => (sys::BOPS_FFT_WORK, starts[at]),
        Source::Chirp => (sys::BOPS_FFT_CHIRP, 0),
    };
    let (to, to_work) = match pass.target {
        Target::Y => (kinds[1], 0),
        Target::Work(at) => (sys::BOPS_FFT_WORK, starts[at]),
    };
    let blocks = pass.lines.div_ceil(pass.of_group);
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    let mut radix = [0; MOST_STAGES];
    radix[..pass.radices.len()].copy_from_slice(&pass.radices);
    Ok(sys::bops_fft_pass {
        lines: pass.lines,
        blocks,
        from_work,
        to_work,
        factor: pass.factor,
        from,
        to,
        flags: pass.flags,
        points: word(pass.points),
        inners: word(pass.inners),
        of_group: word(pass.of_group),
        line_step: word(pass.line_step),
        from_inner: word(pass.from[0]),
        from_step: word(pass.from[1]),
        to_inner: word(pass.to[0]),
        to_step: word(pass.to[1]),
        whole: word(pass.whole),
        padded: word(pass.padded),
        stages: word(pass.radices.len() as u64),
        radix,
    })
}
