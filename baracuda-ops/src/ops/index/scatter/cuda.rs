//! The CUDA kernels: which lines of y fit on a chip, in which units rows move, how threads share them, and what lies where in the workspace.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::geometry::EntryAxis;
use super::{Combine, Scatters, Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::{Device, Launch, Props, c_element};
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Candidate};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::index::lookup::cuda::{axis, check_blocks, divisors, missing};
use crate::ops::movement::cuda::{Part, Start};
use crate::options::WorkspaceReq;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// Bytes of a vector.
const VEC_BYTES: u64 = 16;
/// Pairs of a tile of the sort, and digits of 8 bits of a key.
const TILE: u64 = (sys::BOPS_SORT_THREADS * sys::BOPS_SORT_ITEMS) as u64;
const FEW_TILE: u64 = (sys::BOPS_SORT_THREADS * sys::BOPS_SORT_ITEMS_FEW) as u64;
const FEW_TILES: u64 = sys::BOPS_SORT_FEW_TILES as u64;
const DIGITS: u64 = 256;
/// Entries of a part, and of one where threads are fewer than this otherwise.
const PART: u64 = 32;
const SHORT_PART: u64 = 8;
const FULL_THREADS: u64 = 1 << 17;
/// The most entries of a line: each 1024 of them lengthen the chains of its sums.
const LINE_ENTRIES: u64 = 1 << 14;
/// A line has at most so many positions for each of its entries: it is written whole.
const LINE_PART: u64 = 16;
/// Where there are fewer lines than this, a block has at most so many entries.
const FEW_LINES: u64 = 128;
const FEW_ENTRIES: u64 = 4096;
/// Bytes of a block's shared memory beside its line, at most.
const STATIC_BYTES: u64 = 1024;
/// Blocks that a multiprocessor has room for at least.
const LINES_AT_ONCE: u64 = 2;

/// What a plan launches.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a plan has one")]
enum Work {
    Lines(sys::bops_dtype, sys::bops_scatter_lines_params, sys::bops_scatter_lines_choice),
    Sorted { order: sys::bops_scatter_order_params, rows: Rows, choice: sys::bops_scatter_choice },
}

#[derive(Clone, Copy, Debug)]
enum Rows {
    Set(sys::bops_scatter_set_params),
    Combined(sys::bops_dtype, sys::bops_scatter_params),
}

/// Tiles of the sort of so many entries: one, or up to [`FEW_TILES`] of few entries, or more of many.
fn tiles(entries: u64) -> u64 {
    if entries > TILE && entries <= FEW_TILES * FEW_TILE { entries.div_ceil(FEW_TILE) } else { entries.div_ceil(TILE) }
}

/// Entries of a part, of rows of so many units.
fn part(entries: u64, units: u64) -> u64 {
    if (entries / PART).saturating_mul(units) < FULL_THREADS { SHORT_PART } else { PART }
}

fn combine(valid: &Valid) -> sys::bops_scatter_combine {
    match valid.fields.combine {
        Combine::Set | Combine::Add => sys::BOPS_SCATTER_ADD,
        Combine::Multiply => sys::BOPS_SCATTER_MULTIPLY,
        Combine::Min => sys::BOPS_SCATTER_MIN,
        Combine::Max => sys::BOPS_SCATTER_MAX,
    }
}

/// Lines of y along the axis that blocks have on chip, if entries are many of their elements. The entries of a line are neighbours.
fn lines(valid: &Valid, props: &Props) -> Result<Option<Work>, Reason> {
    let Valid { fields, derived, slots, .. } = valid;
    let Some((own, outer)) = derived.entries.split_last() else { return Ok(None) };
    let lines: u64 = outer.iter().map(|axis| axis.extent).product();
    let (is_set, extent, bytes) = (fields.combine == Combine::Set, derived.extent, derived.unit_bytes);
    let of_element = if is_set { 4 } else { 4 + bytes.max(4) };
    let is_line = derived.row.is_empty() && own.y == 0 && outer.iter().all(|axis| axis.y > 0);
    let is_taken = lines < FEW_LINES && own.extent > FEW_ENTRIES || own.extent > LINE_ENTRIES;
    let is_wanted = is_line && !is_taken && extent <= LINE_PART * own.extent && lines < 1 << 31;
    let room = u64::from(props.shared_bytes) / LINES_AT_ONCE - STATIC_BYTES;
    if !is_wanted || extent.next_multiple_of(4) * of_element > room {
        return Ok(None);
    }
    let strides =
        |axis: &EntryAxis| sys::bops_scatter_entry_strides { index: axis.index, key: axis.y, place: axis.source };
    let mut params = sys::bops_scatter_lines_params {
        axis: axis(fields.indices.dtype(), fields.from_end, extent, derived.apart),
        lines,
        entries: own.extent,
        step: strides(own),
        combine: combine(valid),
        has_base: fields.base.into(),
        rank: word(outer.len().max(1) as u64),
        ..Default::default()
    };
    let extents = outer.iter().rev().map(|axis| axis.extent);
    divisors(extents.take(outer.len().saturating_sub(1)), false, &mut params.inner)?;
    for (to, axis) in params.strides.iter_mut().zip(outer.iter().rev()) {
        *to = strides(axis);
    }
    let width = VEC_BYTES / bytes;
    let is_aligned = slots.always(forward::Y).desc.align_bytes() >= VEC_BYTES
        && slots.at(forward::BASE).is_none_or(|base| base.desc.align_bytes() >= VEC_BYTES);
    let are_whole = extent.is_multiple_of(width) && outer.iter().all(|axis| axis.y.is_multiple_of(width));
    let is_wide = !is_set && is_aligned && are_whole && derived.apart == 1;
    let threads = own.extent.div_ceil(4).max(extent.div_ceil(VEC_BYTES)).next_power_of_two().clamp(32, THREADS);
    let set_bytes = if is_set { bytes } else { 0 };
    let choice =
        sys::bops_scatter_lines_choice { threads: word(threads), is_wide: is_wide.into(), set_bytes: word(set_bytes) };
    Ok(Some(Work::Lines(c_element(fields.y.dtype()), params, choice)))
}

/// Numbers of keys and places are words, and so are those of entries.
fn check_words(scatters: &Scatters) -> Result<(), Reason> {
    let most = u64::from(u32::MAX) - 1;
    for (count, what) in
        [(scatters.count(), "entries"), (scatters.keys(), "places in y"), (scatters.places(), "places in the source")]
    {
        Reason::unless(count <= most, || {
            format!("it sorts by keys of 32 bits: there are {count} {what}, at most {most}")
        })?;
    }
    Ok(())
}

fn order(valid: &Valid, scatters: &Scatters) -> Result<sys::bops_scatter_order_params, Reason> {
    let (entries, rank, keys) = (scatters.count(), scatters.entries.len(), scatters.keys());
    let (key_units, place_units) = (scatters.key_units(), scatters.place_units());
    let is_long = entries >= 1 << 31;
    let mut params = sys::bops_scatter_order_params {
        axis: axis(valid.fields.indices.dtype(), valid.fields.from_end, scatters.extent, scatters.apart / key_units),
        entries,
        keys: word(keys),
        digits: (u64::BITS - keys.leading_zeros()).div_ceil(8),
        tiles: word(tiles(entries)),
        rank: word(rank.max(1) as u64),
        is_long: is_long.into(),
        ..Default::default()
    };
    let extents = scatters.entries.iter().rev().map(|axis| axis.extent);
    divisors(extents.take(rank.saturating_sub(1)), is_long, &mut params.inner)?;
    for (to, axis) in params.strides.iter_mut().zip(scatters.entries.iter().rev()) {
        *to = sys::bops_scatter_entry_strides {
            index: axis.index,
            key: axis.y / key_units,
            place: axis.source / place_units,
        };
    }
    Ok(params)
}

/// Words of workspace of the sort: pairs, and of several tiles other pairs and counts.
fn sorted_words(order: &sys::bops_scatter_order_params) -> u64 {
    match u64::from(order.tiles) {
        1 => 2 * order.entries,
        tiles if tiles <= FEW_TILES => 4 * order.entries + DIGITS * tiles * u64::from(order.digits),
        tiles => 4 * order.entries + DIGITS * (tiles + 1),
    }
}

/// `shares`: what teams take, entries or parts of them.
fn rows(scatters: &Scatters, shares: u64) -> Result<sys::bops_scatter_rows, Reason> {
    let (units, rank) = (scatters.units(), scatters.row.len());
    let lanes = units.next_power_of_two().min(THREADS);
    let of_row = units.div_ceil(lanes);
    let blocks = shares.div_ceil(THREADS / lanes).saturating_mul(of_row);
    check_blocks(blocks)?;
    let is_long = units >= 1 << 31;
    let mut rows = sys::bops_scatter_rows {
        entries: scatters.count(),
        units,
        place: scatters.place_units(),
        key: scatters.key_units(),
        blocks,
        keys: word(scatters.keys()),
        lanes: word(lanes),
        of_row: word(of_row),
        rank: word(rank.max(1) as u64),
        is_long: is_long.into(),
        ..Default::default()
    };
    let extents = scatters.row.iter().rev().map(|axis| axis.extent);
    divisors(extents.take(rank.saturating_sub(1)), is_long, &mut rows.inner)?;
    for (to, axis) in rows.strides.iter_mut().zip(scatters.row.iter().rev()) {
        *to = sys::bops_scatter_row_strides { source: axis.source, y: axis.y };
    }
    Ok(rows)
}

/// The launches behind the one that begins y, and the bytes of workspace; none where nothing goes anywhere.
fn work(valid: &Valid, props: &Props) -> Result<Option<(Work, u64)>, Reason> {
    let Valid { fields, derived, slots, .. } = valid;
    if derived.count() == 0 {
        return Ok(None);
    }
    if let Some(lines) = lines(valid, props)? {
        return Ok(Some((lines, 0)));
    }
    let align = |index| slots.always(index).desc.align_bytes();
    let wide = derived.clone().widened(VEC_BYTES, align(forward::SOURCE).min(align(forward::Y)));
    let dtype = fields.y.dtype();
    // What is combined moves in vectors or element by element.
    let is_set = fields.combine == Combine::Set;
    let scatters = if is_set || wide.unit_bytes == VEC_BYTES { wide } else { derived.clone() };
    check_words(&scatters)?;
    let order = order(valid, &scatters)?;
    let sorted = sorted_words(&order);
    let choice = sys::bops_scatter_choice { unit_bytes: word(scatters.unit_bytes) };
    if is_set {
        let rows = Rows::Set(sys::bops_scatter_set_params { rows: rows(&scatters, order.entries)? });
        return Ok(Some((Work::Sorted { order, rows, choice }, 4 * sorted)));
    }
    let part = part(order.entries, scatters.units());
    let shares = order.entries.div_ceil(part);
    let parts = (4 * sorted).next_multiple_of(VEC_BYTES);
    let params = sys::bops_scatter_params {
        rows: rows(&scatters, shares)?,
        parts,
        part: word(part),
        combine: combine(valid),
        has_base: fields.base.into(),
    };
    // In accumulators of 4 bytes, of 8 for types of 8.
    let of_part = derived.units().saturating_mul(dtype.size_bytes().max(4)).saturating_mul(2);
    let bytes = if shares > 1 { parts.saturating_add(of_part.saturating_mul(shares)) } else { 4 * sorted };
    Ok(Some((Work::Sorted { order, rows: Rows::Combined(c_element(dtype), params), choice }, bytes)))
}

impl Work {
    fn launches(&self) -> u32 {
        let Self::Sorted { order, rows, .. } = self else { return 1 };
        // Few tiles: keys are made, and each digit moves them. Else they are counted, counts are added up, and they move.
        let sort = match u64::from(order.tiles) {
            1 => 1,
            tiles if tiles <= FEW_TILES => 1 + order.digits,
            _ => 3 * order.digits,
        };
        sort + 1 + u32::from(matches!(rows, Rows::Combined(_, params) if order.entries > u64::from(params.part)))
    }

    /// `writes_all`: whether nothing is in y yet, so that the base is where the caller has it.
    fn prepare(self, device: &Device, writes_all: bool) -> Result<Start, BuildError> {
        let (order, rows, choice) = match self {
            Self::Lines(dtype, params, choice) => {
                let put = calls!(bops_scatter_lines).prepare(device, dtype, params, choice, ())?;
                let base = if writes_all && params.has_base != 0 { forward::BASE } else { forward::Y };
                return Ok(Box::new(move |located, stream| {
                    let operands = sys::bops_scatter_lines_operands {
                        source: located.pointer(forward::SOURCE).cast_const(),
                        indices: located.pointer(forward::INDICES).cast_const(),
                        base: located.pointer(base).cast_const(),
                        y: located.pointer(forward::Y),
                    };
                    put(&operands, located.workspace_pointer(), stream)
                }));
            }
            Self::Sorted { order, rows, choice } => (order, rows, choice),
        };
        let is_short = order.entries <= FEW_TILES * FEW_TILE;
        let steps = (order.tiles > 1, is_short, u64::from(order.tiles) > FEW_TILES, order.digits > 1);
        let sort = calls!(bops_scatter_order).prepare(device, 0, order, 0, steps)?;
        let of_order = |located: &Located<'_>| sys::bops_scatter_order_operands {
            indices: located.pointer(forward::INDICES).cast_const(),
        };
        let of_rows = |located: &Located<'_>| sys::bops_scatter_operands {
            source: located.pointer(forward::SOURCE).cast_const(),
            y: located.pointer(forward::Y),
        };
        macro_rules! start {
            ($put:expr) => {{
                let put = $put;
                Box::new(move |located: &Located<'_>, stream: *mut c_void| {
                    let workspace = located.workspace_pointer();
                    match sort(&of_order(located), workspace, stream) {
                        0 => put(&of_rows(located), workspace, stream),
                        status => status,
                    }
                })
            }};
        }
        Ok(match rows {
            Rows::Set(params) => start!(calls!(bops_scatter_set).prepare(device, 0, params, choice, ())?),
            Rows::Combined(dtype, params) => {
                let is_parted = order.entries > u64::from(params.part);
                start!(calls!(bops_scatter).prepare(device, dtype, params, choice, is_parted)?)
            }
        })
    }
}

pub(super) fn accept<'d>(valid: &'d Valid, props: &Props) -> Accepted<'d> {
    let Valid { fields, derived, slots, .. } = valid;
    let (work, bytes) = work(valid, props)?.unzip();
    // Lines that are all of y need nothing there before.
    let writes_all = match &work {
        Some(Work::Lines(_, params, _)) => params.lines * params.axis.extent == fields.y.elements(),
        _ => false,
    };
    let begin = match (derived.has_y && !writes_all, slots.at(forward::BASE)) {
        (false, _) => None,
        (true, Some(base)) => Some(Part::between(&base.desc, &fields.y)?),
        (true, None) => Some(Part::zeros(&fields.y)?),
    };
    let count = match fields.missing {
        true => Some(missing(&fields.indices, axis(fields.indices.dtype(), fields.from_end, derived.extent, 0))?),
        false => None,
    };
    let counting = count.map_or(0, |count| 1 + u32::from(count.elements > 0));
    let launches = u32::from(begin.is_some()) + work.map_or(0, |work: Work| work.launches()) + counting;
    let has_base = fields.base;
    let build = move |device: &crate::backend::Device| {
        let device = Device::of(device)?;
        let begin = begin.map(|part| part.prepare(device, [forward::BASE, forward::Y])).transpose()?;
        let work = work.map(|work| work.prepare(device, writes_all)).transpose()?;
        let count = match count {
            Some(params) => Some(calls!(bops_lookup_missing).prepare(device, 0, params, 0, params.elements.min(1))?),
            None => None,
        };
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let is_in_place = has_base && located.pointer(forward::BASE) == located.pointer(forward::Y);
            let begin = begin.as_ref().filter(|_| !is_in_place).map_or(0, |begin| begin(located, stream));
            if begin != 0 {
                return begin;
            }
            let status = work.as_ref().map_or(0, |work| work(located, stream));
            if status != 0 {
                return status;
            }
            let counted = sys::bops_lookup_operands {
                x: std::ptr::null(),
                indices: located.pointer(forward::INDICES).cast_const(),
                y: std::ptr::null_mut(),
                missing: located.pointer(forward::MISSING).cast(),
            };
            count.as_ref().map_or(0, |count| count(&counted, located.workspace_pointer(), stream))
        };
        Ok(Launch::new("bops_scatter", start).into())
    };
    let candidate = match work {
        Some(Work::Lines(_, _, choice)) => Candidate::new(choice, build),
        Some(Work::Sorted { choice, .. }) => Candidate::new(choice, build),
        None => Candidate::new(sys::bops_scatter_choice::default(), build),
    };
    Ok(Candidate { workspace: WorkspaceReq::new(bytes.unwrap_or(0), VEC_BYTES), launches, ..candidate })
}

#[cfg(test)]
mod tests {
    use super::{part, sorted_words, sys, tiles};

    #[test]
    fn workspaces_have_room_for_pairs_and_counts() {
        let of = |entries, digits| {
            let order =
                sys::bops_scatter_order_params { entries, digits, tiles: tiles(entries) as u32, ..Default::default() };
            sorted_words(&order)
        };
        assert_eq!(of(4096, 3), 2 * 4096);
        assert_eq!(of(65_536, 3), 4 * 65_536 + 256 * 64 * 3);
        assert_eq!(of(1 << 20, 3), 4 * (1 << 20) + 256 * 257);
    }

    #[test]
    fn parts_are_short_where_threads_are_few() {
        assert_eq!([part(65_536, 16), part(65_536, 512), part(8192, 512)], [8, 32, 32]);
    }

    #[test]
    fn tiles_are_small_where_they_are_few() {
        let of = [1, 4096, 4097, 65_536, 65_537, 1 << 20].map(tiles);
        assert_eq!(of, [1, 1, 5, 64, 17, 256]);
    }
}
