//! The CUDA kernels: which lines warps, tiles, groups, digits and merges take, how many threads share a tile, and the workspace.

use baracuda_ops_sys as sys;

use super::geometry::{INDICES, Stage, VALUES, X};
use super::{Order, Ordered, Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::{to_usize, word};
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

/// Records that a warp finds, and positions of its line; neighbours of a group, at least and at most; as in the kernels.
const FEW: u64 = sys::BOPS_ORDER_FEW as u64;
const FEW_LENGTH: u64 = sys::BOPS_ORDER_FEW_LENGTH as u64;
const LEAST_FEW_LENGTH: u64 = 32;
const GROUPS: [u32; 5] = [5, 6, 7, 8, 9];
/// Groups are worth it where they and what is read again are at most this part of a line.
const GROUPS_PART: u64 = 4;
/// Digits of a byte, and tiles of a line that blocks of a pass count alone; as in the kernels.
const DIGITS: u64 = 256;
const FEW_TILES: u64 = sys::BOPS_SORT_FEW_TILES as u64;

/// The logarithm of how many neighbours are a group: so many that groups and the elements of those that are wanted are fewest.
fn group(length: u64, kept: u64) -> Option<u32> {
    let fitting = GROUPS.into_iter().filter(|group| kept << group <= length);
    fitting.min_by_key(|group| length.div_ceil(1 << group) + (kept << group))
}

/// Records of a line that launches write in turns to two buffers, each as long as the longest of them: of groups, of the tiles that find the first of these, and
/// of the tiles that find the first of their elements, of which the last writes the results.
fn of_groups(length: u64, kept: u64, group: u32, tile: u64) -> (usize, [u64; 2]) {
    let groups = length.div_ceil(1 << group);
    let mut written = vec![groups];
    written.extend(Stage::all(groups, kept, tile).iter().map(|stage| stage.records));
    written.extend(Stage::all(kept << group, kept, tile).iter().map(|stage| stage.records));
    let launches = written.len();
    written.pop();
    let longest = |turn: usize| written.iter().skip(turn).step_by(2).copied().max().unwrap_or(0);
    (launches, [longest(0), longest(1)])
}

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

    /// A candidate of those launches, of which all but the last write records to buffers of these sizes, by line. Behind them are `words` of each line.
    fn candidate(
        &self,
        calls: Calls<sys::bops_order_element, sys::bops_order_params, sys::bops_order_choice, sys::bops_order_operands>,
        (params, choice): (sys::bops_order_params, sys::bops_order_choice),
        launches: usize,
        (buffers, words): ([u64; 2], u64),
    ) -> Accepted<'static> {
        let element = sys::bops_order_element { bytes: word(self.bytes) };
        // Which kernels these are.
        let kernels = (element, params, choice, (launches.min(2) as u64, words > DIGITS * (FEW_TILES + 1)));
        let candidate = calls.candidate(self.has_work(), kernels, operands);
        if launches < 2 || !self.has_work() {
            return Ok(candidate);
        }
        let record = if self.bytes == 8 { 12 } else { 8 };
        let of_line = (buffers[0] + buffers[1]).saturating_mul(record).saturating_add(words.saturating_mul(4));
        let bytes = of_line.saturating_mul(self.lines);
        let workspace = WorkspaceReq::new(bytes, WORKSPACE_ALIGN);
        Ok(Candidate { workspace, launches: word(launches as u64), ..candidate })
    }
}

/// Where a warp reads a line once.
pub(super) fn few<'d, F: Ordered>(valid: &'d Valid<F>, _: &Props, ask: Ask) -> Accepted<'d> {
    let task = Task::new(&valid.derived)?;
    let (length, kept) = (task.order.length, task.order.kept);
    Reason::unless(kept <= FEW && length <= FEW_LENGTH, || {
        format!("of {length} positions {kept} are kept; a warp finds at most {FEW} of at most {FEW_LENGTH}")
    })?;
    ask.leave_if(length < LEAST_FEW_LENGTH, "most of a warp would have no element of a line")?;
    task.candidate(calls!(bops_order_few), (task.params(1)?, Default::default()), 1, ([0, 0], 0))
}

/// Where few are kept of long lines: most of their groups are read once.
pub(super) fn groups<'d, F: Ordered>(valid: &'d Valid<F>, _: &Props, ask: Ask) -> Accepted<'d> {
    let task = Task::new(&valid.derived)?;
    let (length, kept, tile) = (task.order.length, task.order.kept, task.tile());
    let refusal = || {
        let most = tile / SELECTED_PART;
        format!("of {length} positions {kept} are kept; it finds at most {most}, of groups of 32 positions or more")
    };
    Reason::unless(kept <= tile / SELECTED_PART, refusal)?;
    let Some(group) = group(length, kept) else { return Err(refusal().into()) };
    let looked_at = length.div_ceil(1 << group) + (kept << group);
    ask.leave_if(length <= tile, "a tile holds a line")?;
    ask.leave_if(looked_at > length / GROUPS_PART, "much of a line would be read again")?;
    let choice = sys::bops_order_choice { threads: word(task.most_threads()), is_selected: 1, group };
    let blocks = length.div_ceil(sys::BOPS_ORDER_GROUP_MOST.into());
    let (launches, buffers) = if task.has_work() { of_groups(length, kept, group, tile) } else { Default::default() };
    task.candidate(calls!(bops_order_groups), (task.params(blocks)?, choice), launches, (buffers, 0))
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
    let choice = sys::bops_order_choice { threads: word(threads), is_selected: is_selected.into(), group: 0 };
    let params = task.params(length.div_ceil(tile))?;
    let stages = if task.has_work() { Stage::all(length, kept, threads * ITEMS) } else { Vec::new() };
    // A launch that writes records has another after it.
    let buffer = |at: usize| if at + 1 < stages.len() { stages[at].records } else { 0 };
    task.candidate(calls!(bops_order_tiles), (params, choice), stages.len(), ([buffer(0), buffer(1)], 0))
}

/// Long lines, sorted byte by byte of their keys.
pub(super) fn radix<'d, F: Ordered>(valid: &'d Valid<F>, _: &Props, ask: Ask) -> Accepted<'d> {
    let task = Task::new(&valid.derived)?;
    let (length, passes) = (task.order.length, task.bytes);
    let tiles = length.div_ceil(task.tile()).max(1);
    ask.leave_if(merges(tiles) < passes, "merges of tiles are fewer than bytes of a key")?;
    let is_scanned = tiles > FEW_TILES;
    // A line has a block for each tile, and one for each digit.
    let params = task.params(tiles.max(DIGITS))?;
    let launches = passes * (2 + u64::from(is_scanned));
    let buffer = |at: u64| if at + 1 < passes { length } else { 0 };
    let workspace = ([buffer(0), buffer(1)], DIGITS * (tiles + 1));
    task.candidate(calls!(bops_order_radix), (params, Default::default()), to_usize(launches), workspace)
}

/// Rounds in which pairs of so many tiles become one.
fn merges(tiles: u64) -> u64 {
    tiles.next_power_of_two().trailing_zeros().into()
}

/// Sorted tiles, merged.
pub(super) fn merge<'d, F: Ordered>(valid: &'d Valid<F>, _: &Props, _: Ask) -> Accepted<'d> {
    let task = Task::new(&valid.derived)?;
    let length = task.order.length;
    let tiles = length.div_ceil(task.tile()).max(1);
    let choice = sys::bops_order_choice { threads: word(task.threads()), ..Default::default() };
    let params = task.params(tiles)?;
    let merges = to_usize(merges(tiles));
    let buffer = |at: usize| if at < merges { length } else { 0 };
    task.candidate(calls!(bops_order_merge), (params, choice), 1 + merges, ([buffer(0), buffer(1)], 0))
}

fn operands(located: &Located<'_>) -> sys::bops_order_operands {
    sys::bops_order_operands {
        x: located.pointer(forward::X).cast_const(),
        values: located.pointer(forward::VALUES),
        indices: located.pointer(forward::INDICES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_large_as_what_is_read_again_allows() {
        assert_eq!(group(128_256, 50), Some(6));
        assert_eq!(group(1 << 24, 100), Some(9));
        assert_eq!(group(1 << 24, 1), Some(9));
        assert_eq!([group(3200, 100), group(3199, 100)], [Some(5), None]);
    }

    #[test]
    fn buffers_have_room_for_every_launch() {
        // 2004 groups, of which a tile finds 50; a tile finds the first of their 3200 elements.
        assert_eq!(of_groups(128_256, 50, 6, 4096), (3, [2004, 50]));
        // 32768 groups, 800 and 100 of these; 51200 elements, 1300 and 100 of these.
        assert_eq!(of_groups(1 << 24, 100, 9, 4096), (5, [32_768, 1300]));
    }

    #[test]
    fn rounds_double_runs() {
        assert_eq!([1, 2, 3, 4, 5, 4096].map(merges), [0, 1, 2, 2, 3, 12]);
    }
}
