//! The CUDA kernels: in which units rows move, how threads share them, and what lies where in the workspace.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

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
const DIGITS: u64 = 256;
/// Entries of a part.
const PART: u64 = sys::BOPS_SCATTER_PART as u64;

/// What a plan launches.
#[derive(Clone, Copy, Debug)]
struct Work {
    order: sys::bops_scatter_order_params,
    rows: Rows,
    choice: sys::bops_scatter_choice,
}

#[derive(Clone, Copy, Debug)]
enum Rows {
    Set(sys::bops_scatter_set_params),
    Combined(sys::bops_dtype, sys::bops_scatter_params),
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
        tiles: word(entries.div_ceil(TILE)),
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
fn work(valid: &Valid) -> Result<Option<(Work, u64)>, Reason> {
    let Valid { fields, derived, slots, .. } = valid;
    if derived.count() == 0 {
        return Ok(None);
    }
    let align = |index| slots.always(index).desc.align_bytes();
    let wide = derived.clone().widened(VEC_BYTES, align(forward::SOURCE).min(align(forward::Y)));
    let dtype = fields.y.dtype();
    // What is combined moves in vectors or element by element.
    let is_set = fields.combine == Combine::Set;
    let scatters = if is_set || wide.unit_bytes == VEC_BYTES { wide } else { derived.clone() };
    check_words(&scatters)?;
    let order = order(valid, &scatters)?;
    let tiles = u64::from(order.tiles);
    let sorted = if tiles > 1 { 4 * order.entries + DIGITS * (tiles + 1) } else { 2 * order.entries };
    let choice = sys::bops_scatter_choice { unit_bytes: word(scatters.unit_bytes) };
    if is_set {
        let rows = Rows::Set(sys::bops_scatter_set_params { rows: rows(&scatters, order.entries)? });
        return Ok(Some((Work { order, rows, choice }, 4 * sorted)));
    }
    let shares = order.entries.div_ceil(PART);
    let parts = (4 * sorted).next_multiple_of(VEC_BYTES);
    let params = sys::bops_scatter_params {
        rows: rows(&scatters, shares)?,
        parts,
        combine: match fields.combine {
            Combine::Set | Combine::Add => sys::BOPS_SCATTER_ADD,
            Combine::Multiply => sys::BOPS_SCATTER_MULTIPLY,
            Combine::Min => sys::BOPS_SCATTER_MIN,
            Combine::Max => sys::BOPS_SCATTER_MAX,
        },
        has_base: fields.base.into(),
    };
    // In accumulators of 4 bytes, of 8 for types of 8.
    let of_part = derived.units().saturating_mul(dtype.size_bytes().max(4)).saturating_mul(2);
    let bytes = if shares > 1 { parts.saturating_add(of_part.saturating_mul(shares)) } else { 4 * sorted };
    Ok(Some((Work { order, rows: Rows::Combined(c_element(dtype), params), choice }, bytes)))
}

impl Work {
    fn launches(&self) -> u32 {
        let order = if self.order.tiles == 1 { 1 } else { 1 + 3 * self.order.digits };
        order + 1 + u32::from(matches!(self.rows, Rows::Combined(..)) && self.order.entries > PART)
    }

    fn prepare(self, device: &Device) -> Result<Start, BuildError> {
        let Self { order, choice, .. } = self;
        let sort = calls!(bops_scatter_order).prepare(device, 0, order, 0, order.tiles.min(2))?;
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
        Ok(match self.rows {
            Rows::Set(params) => start!(calls!(bops_scatter_set).prepare(device, 0, params, choice, ())?),
            Rows::Combined(dtype, params) => {
                let is_parted = order.entries > PART;
                start!(calls!(bops_scatter).prepare(device, dtype, params, choice, is_parted)?)
            }
        })
    }
}

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let Valid { fields, derived, slots, .. } = valid;
    let begin = match (derived.has_y, slots.at(forward::BASE)) {
        (false, _) => None,
        (true, Some(base)) => Some(Part::between(&base.desc, &fields.y)?),
        (true, None) => Some(Part::zeros(&fields.y)?),
    };
    let (work, bytes) = work(valid)?.unzip();
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
        let work = work.map(|work| work.prepare(device)).transpose()?;
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
    let choice = work.map_or(sys::bops_scatter_choice::default(), |work| work.choice);
    Ok(Candidate {
        workspace: WorkspaceReq::new(bytes.unwrap_or(0), VEC_BYTES),
        launches,
        ..Candidate::new(choice, build)
    })
}
