//! The CUDA kernels: which serves a layout, and how lines are divided over threads, tiles and pieces.
//!
//! The division follows from the extent of the axis and the type alone, so that a line has the same bits whatever else there is beside it.

use baracuda_ops_sys as sys;

use super::scans::Combine;
use super::{Geometry, Valid, forward};
use crate::backend::cuda::Props;
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::Lying;
use crate::ops::walk::Walk;
use crate::options::WorkspaceReq;

/// Threads of a block of rows, neighbours of a chunk, and elements of a thread in a tile, as in the kernels.
const THREADS: u64 = sys::BOPS_SCAN_THREADS as u64;
const WIDTH: u64 = sys::BOPS_SCAN_WIDTH as u64;
const OF_THREAD: u64 = WIDTH * sys::BOPS_SCAN_CHUNKS as u64;
/// Tiles of a piece of rows. With fewer, lines have more totals to combine; with more, one long line keeps fewer SMs busy.
const TILES: u64 = 8;
/// Lines side by side in a block of columns, and the most threads of one, as in the kernels.
const ACROSS: u64 = sys::BOPS_SCAN_ACROSS as u64;
const DEEP: u64 = sys::BOPS_SCAN_DEEP as u64;
/// The least threads of a line in columns: a block is whole warps.
const LEAST_DEEP: u64 = 2;
/// Tiles of a piece of columns: lines of up to 32768 elements of 4 bytes are read once.
const TILES_OF_COLUMNS: u64 = 64;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Bytes of an access to neighbours.
const VEC_BYTES: u64 = 16;

/// A scan as kernels are told it.
struct Task<'v> {
    valid: &'v Valid,
    walk: Walk,
    lines: u64,
}

impl<'v> Task<'v> {
    fn new(valid: &'v Valid) -> Self {
        let walk = valid.derived.lines();
        Self { valid, lines: walk.elements(), walk }
    }

    fn geometry(&self) -> &'v Geometry {
        &self.valid.derived
    }

    fn has_work(&self) -> bool {
        self.lines > 0 && self.geometry().length > 0
    }

    /// The type in which values are combined at the C ABI.
    fn computing(&self) -> sys::bops_dtype {
        match self.geometry().computing {
            DType::F64 => sys::BOPS_F64,
            DType::F32 => sys::BOPS_F32,
            _ => sys::BOPS_I64,
        }
    }

    fn combine(&self) -> sys::bops_scan_combine {
        match self.valid.fields.scan.combine() {
            Combine::Add => sys::BOPS_SCAN_ADD,
            Combine::Multiply => sys::BOPS_SCAN_MULTIPLY,
            Combine::LogAddExp => sys::BOPS_SCAN_LOG_ADD_EXP,
            Combine::Greatest | Combine::Least if self.valid.fields.indices.is_some() => sys::BOPS_SCAN_GREATEST_AT,
            Combine::Greatest | Combine::Least => sys::BOPS_SCAN_GREATEST,
        }
    }

    /// Bytes of what is known of a piece.
    fn state_bytes(&self) -> u64 {
        let bytes = self.geometry().computing.size_bytes();
        match self.combine() {
            sys::BOPS_SCAN_GREATEST_AT => 16,
            sys::BOPS_SCAN_LOG_ADD_EXP => 2 * bytes,
            _ => bytes,
        }
    }

    /// How an operand lies: 0 is y, 1 is x, 2 the indices.
    fn side(&self, lying: &Lying, operand: usize) -> Result<sys::bops_scan_side, Reason> {
        let geometry = self.geometry();
        let Some(desc) = geometry.others.get(operand) else { return Ok(sys::bops_scan_side::default()) };
        let starts_access =
            |elements: u64| elements.saturating_mul(desc.dtype().size_bytes()).is_multiple_of(VEC_BYTES);
        // y of another type than those that are computed in the same is stored one by one.
        let has_chunks = desc.dtype().is_computed() && desc.dtype().accumulator() == geometry.computing;
        let is_run = has_chunks
            && geometry.steps[operand] == 1
            && geometry.length.is_multiple_of(WIDTH)
            && desc.align_bytes() >= VEC_BYTES
            && self.walk.strides[operand].iter().all(|&stride| starts_access(stride));
        Ok(sys::bops_scan_side {
            lines: lying.c_walked(operand, 1)?,
            step: geometry.steps[operand],
            is_run: is_run.into(),
        })
    }

    /// The candidate of a form whose threads, tiles and pieces these are.
    fn params(&self, threads: u64, tiles: u64, pieces: u64) -> Result<sys::bops_scan_params, Reason> {
        let (geometry, fields) = (self.geometry(), &self.valid.fields);
        let lying = Lying { operands: geometry.others.clone(), walk: self.walk.clone() };
        let least = match (fields.scan.combine(), geometry.computing) {
            (Combine::Greatest, DType::I64) => Combine::Greatest.none_of(fields.x.dtype()),
            // Of inverted bits.
            (Combine::Least, DType::I64) => !Combine::Least.none_of(fields.x.dtype()),
            _ => i64::MIN,
        };
        check_blocks(self.lines)?;
        Ok(sys::bops_scan_params {
            walk: lying.c_walk(1)?,
            x: self.side(&lying, 1)?,
            y: self.side(&lying, 0)?,
            indices: self.side(&lying, 2)?,
            lines: self.lines,
            length: geometry.length,
            pieces,
            least,
            threads: word(threads),
            tiles: word(tiles),
            is_reverse: fields.reverse.into(),
            is_exclusive: fields.exclusive.into(),
            is_least: (fields.scan.combine() == Combine::Least).into(),
            ..Default::default()
        })
    }

    /// With the workspace and the launches that pieces need.
    fn with_pieces<'d>(&self, candidate: Candidate<'d>, pieces: u64) -> Candidate<'d> {
        if pieces <= 1 || !self.has_work() {
            return candidate;
        }
        let bytes = pieces.saturating_mul(self.lines).saturating_mul(self.state_bytes());
        Candidate { workspace: WorkspaceReq::new(bytes, VEC_BYTES), launches: 3, ..candidate }
    }
}

fn check_blocks(blocks: u64) -> Result<u64, Reason> {
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    Ok(blocks)
}

/// Along lines.
pub(super) fn rows<'d>(valid: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let task = Task::new(valid);
    let length = task.geometry().length;
    let threads = length.div_ceil(OF_THREAD).next_power_of_two().clamp(1, THREADS);
    let tiles = length.div_ceil(threads * OF_THREAD);
    let pieces = tiles.div_ceil(TILES).max(1);
    let teams = task.lines.saturating_mul(pieces);
    let mut params = task.params(threads, tiles.min(TILES), pieces)?;
    params.blocks = check_blocks(teams.div_ceil(THREADS / threads))?;
    let choice = sys::bops_scan_choice { combine: task.combine() };
    let kernels = (task.computing(), params, choice, pieces.min(2));
    let candidate = calls!(bops_scan_rows).candidate(task.has_work(), kernels, operands);
    Ok(task.with_pieces(candidate, pieces).batch_invariant_if(valid.has_packed_samples()))
}

/// Across lines whose elements are neighbours.
pub(super) fn columns<'d>(valid: &'d Valid, _: &Props, ask: Ask) -> Accepted<'d> {
    let task = Task::new(valid);
    let geometry = task.geometry();
    ask.leave_if(!geometry.has_columns(), "elements of y are nearest to each other along the axis")?;
    let of_thread = match geometry.computing {
        DType::F32 => sys::BOPS_SCAN_STEPS_F32,
        _ => sys::BOPS_SCAN_STEPS,
    };
    let of_thread = u64::from(of_thread);
    let threads = geometry.length.div_ceil(of_thread).next_power_of_two().clamp(LEAST_DEEP, DEEP);
    let tiles = geometry.length.div_ceil(threads * of_thread);
    let pieces = tiles.div_ceil(TILES_OF_COLUMNS).max(1);
    let groups = task.lines.div_ceil(ACROSS);
    let mut params = task.params(threads, tiles.min(TILES_OF_COLUMNS), pieces)?;
    params.groups = groups;
    params.blocks = check_blocks(groups.saturating_mul(pieces))?;
    let choice = sys::bops_scan_choice { combine: task.combine() };
    let kernels = (task.computing(), params, choice, pieces.min(2));
    let candidate = calls!(bops_scan_columns).candidate(task.has_work(), kernels, operands);
    Ok(task.with_pieces(candidate, pieces).batch_invariant_if(valid.has_packed_samples()))
}

fn operands(located: &crate::backend::Located<'_>) -> sys::bops_scan_operands {
    sys::bops_scan_operands {
        x: located.pointer(forward::X).cast_const(),
        y: located.pointer(forward::Y),
        indices: located.pointer(forward::INDICES),
    }
}
