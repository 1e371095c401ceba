//! The CUDA kernels: how many threads share a tile, whether tiles find what they keep before they sort it, and the workspace.

use baracuda_ops_sys as sys;

use super::geometry::{INDICES, Stage, VALUES, X};
use super::{Order, Ordered, Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls::{Calls, calls};
use crate::ops::pointwise::map::cuda::Lying;
use crate::ops::walk::Walk;
use crate::options::WorkspaceReq;

/// Records of a thread, as in the kernels.
const ITEMS: u64 = sys::BOPS_ORDER_ITEMS as u64;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Alignment of the workspace.
const WORKSPACE_ALIGN: u64 = 16;
/// Tiles keep at most this part of their records: each launch over what they kept has that much less to do.
const LEAST_PART: u64 = 4;
/// Tiles find what they keep before they sort it if it is at most this part of them: to find it takes about as long as to merge as often as this halves a tile.
const SELECTED_PART: u64 = 4;

/// Lines as kernels are told them.
struct Task<'v> {
    order: &'v Order,
    walk: Walk,
    lines: u64,
    bytes: u64,
}

impl<'v> Task<'v> {
    fn new(order: &'v Order) -> Result<Self, Reason> {
        let (walk, most) = (order.lines(), u64::from(u32::MAX));
        Reason::unless(order.length <= most, || {
            format!("the axis has {} positions, its kernels count at most {most}", order.length)
        })?;
        Ok(Self { order, lines: walk.elements(), walk, bytes: order.others[X].dtype().size_bytes() })
    }

    fn has_work(&self) -> bool {
        self.lines > 0 && self.order.kept > 0
    }

    /// The most threads of a tile.
    fn most_threads(&self) -> u64 {
        if self.bytes == 8 { sys::BOPS_ORDER_THREADS_WIDE.into() } else { sys::BOPS_ORDER_THREADS.into() }
    }

    fn tile(&self) -> u64 {
        self.most_threads() * ITEMS
    }

    /// Threads of a tile: as few as hold a line.
    fn threads(&self) -> u64 {
        self.order.length.div_ceil(ITEMS).next_power_of_two().min(self.most_threads())
    }

    fn params(&self, blocks_of_line: u64) -> Result<sys::bops_order_params, Reason> {
        let (order, keys) = (self.order, self.order.keys());
        let blocks = self.lines.saturating_mul(blocks_of_line);
        Reason::unless(blocks <= MOST_BLOCKS, || {
            format!("it needs up to {blocks} blocks, a launch has at most {MOST_BLOCKS}")
        })?;
        let lying = Lying { operands: order.others.to_vec(), walk: self.walk.clone() };
        let side = |operand: usize| -> Result<sys::bops_order_side, Reason> {
            Ok(sys::bops_order_side { lines: lying.c_walked(operand, 1)?, step: order.steps[operand] })
        };
        Ok(sys::bops_order_params {
            walk: lying.c_walk(1)?,
            x: side(X)?,
            values: side(VALUES)?,
            indices: side(INDICES)?,
            keys: sys::bops_order_keys {
                sign: keys.sign,
                infinity: keys.infinity,
                is_bool: keys.is_bool.into(),
                is_descending: keys.is_descending.into(),
            },
            lines: self.lines,
            length: order.length,
            kept: order.kept,
        })
    }

    /// A candidate of those launches, of which all but the last write records to buffers of these sizes, by line.
    fn candidate(
        &self,
        calls: Calls<sys::bops_order_element, sys::bops_order_params, sys::bops_order_choice, sys::bops_order_operands>,
        (params, choice): (sys::bops_order_params, sys::bops_order_choice),
        launches: usize,
        buffers: [u64; 2],
    ) -> Accepted<'static> {
        let element = sys::bops_order_element { bytes: word(self.bytes) };
        let kernels = (element, params, choice, launches.min(2) as u64);
        let candidate = calls.candidate(self.has_work(), kernels, operands);
        if launches < 2 || !self.has_work() {
            return Ok(candidate);
        }
        let record = if self.bytes == 8 { 12 } else { 8 };
        let bytes = (buffers[0] + buffers[1]).saturating_mul(self.lines).saturating_mul(record);
        let workspace = WorkspaceReq::new(bytes, WORKSPACE_ALIGN);
        Ok(Candidate { workspace, launches: word(launches as u64), ..candidate })
    }
}

/// Where a tile holds a line, or keeps few of its records.
pub(super) fn tiles<'d, F: Ordered>(valid: &'d Valid<F>, _: &Props, _: Ask) -> Accepted<'d> {
    let task = Task::new(&valid.derived)?;
    let (length, kept, tile) = (task.order.length, task.order.kept, task.tile());
    Reason::unless(length <= tile || kept <= tile / LEAST_PART, || {
        format!(
            "of {length} positions {kept} are kept; it takes {tile} positions, or any number of which at most {} are kept",
            tile / LEAST_PART
        )
    })?;
    let threads = task.threads();
    let is_selected = threads == task.most_threads() && kept <= tile / SELECTED_PART;
    let choice = sys::bops_order_choice { threads: word(threads), is_selected: is_selected.into() };
    let params = task.params(length.div_ceil(tile))?;
    let stages = if task.has_work() { Stage::all(length, kept, threads * ITEMS) } else { Vec::new() };
    // A launch that writes records has another after it.
    let buffer = |at: usize| if at + 1 < stages.len() { stages[at].records } else { 0 };
    task.candidate(calls!(bops_order_tiles), (params, choice), stages.len(), [buffer(0), buffer(1)])
}

/// Sorted tiles, merged.
pub(super) fn merge<'d, F: Ordered>(valid: &'d Valid<F>, _: &Props, _: Ask) -> Accepted<'d> {
    let task = Task::new(&valid.derived)?;
    let length = task.order.length;
    let tiles = length.div_ceil(task.tile()).max(1);
    let choice = sys::bops_order_choice { threads: word(task.threads()), is_selected: 0 };
    let params = task.params(tiles)?;
    let merges = tiles.next_power_of_two().trailing_zeros() as usize;
    let buffer = |at: usize| if at < merges { length } else { 0 };
    task.candidate(calls!(bops_order_merge), (params, choice), 1 + merges, [buffer(0), buffer(1)])
}

fn operands(located: &Located<'_>) -> sys::bops_order_operands {
    sys::bops_order_operands {
        x: located.pointer(forward::X).cast_const(),
        values: located.pointer(forward::VALUES),
        indices: located.pointer(forward::INDICES),
    }
}
