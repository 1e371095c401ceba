//! The gradient of the data. A cell is `stride[0]` rows by `stride[1]` columns of dx, whose elements all see the same positions of dy.

use baracuda_ops_sys as sys;

use super::{GROUP, POSITIONS, RESERVED_SHARED_BYTES, Roles, places};
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::conv::cuda::depthwise::extent;
use crate::ops::gemm::cuda::product::{Limits, bounded_blocks};

/// Columns of the product, at most.
const COLUMNS: u64 = sys::BOPS_CONV_FEW_CHANNELS_COLUMNS as u64;
/// Filters that one instruction sums over.
const DEPTH: u64 = 16;
/// The most blocks of an SM, which registers limit; tiles are made small enough for as many if possible.
const BLOCKS: u64 = 2;

pub(super) fn choose(
    roles: &Roles,
    params: &sys::bops_conv_few_channels_params,
    limits: &Limits<'_>,
) -> Result<sys::bops_conv_few_channels_data_choice, Reason> {
    let mut choice = sys::bops_conv_few_channels_data_choice {
        across: u32::from(roles.is_across()),
        eights: u32::from(roles.in_runs(&roles.y, 8)),
        ..Default::default()
    };
    // 1. The positions of dy that a cell sees, relative to the cell's index.
    for at in 0..2 {
        let [stride, kernel] = [params.stride[at], params.kernel[at]].map(i64::from);
        let padding = -i64::from(params.first[at]);
        let highest = (stride - 1 + padding).div_euclid(stride);
        let lowest = (padding + stride - kernel).div_euclid(stride);
        choice.lowest[at] = i32::try_from(lowest).unwrap_or(i32::MIN);
        choice.taps[at] = word((highest - lowest + 1).unsigned_abs());
    }
    let [_, taps] = choice.taps.map(u64::from);
    let [rows, of_cell] = params.stride.map(u64::from);
    let of_row = (taps * of_cell * roles.shape.channels_in).next_multiple_of(8);
    let columns = of_row.saturating_mul(rows);
    Reason::unless(columns <= COLUMNS, || {
        format!(
            "its product has at most {COLUMNS} columns, got {columns}: for {rows} rows of a cell {taps} positions of dy, {of_cell} columns and {} channels each",
            roles.shape.channels_in
        )
    })?;
    // 2. The widest tiles that fit, so that few positions are seen by two tiles.
    let [down, cells] =
        std::array::from_fn(|at| u64::from(params.x_extents[at]).div_ceil(u64::from(params.stride[at])));
    // Positions of a row of dy that a tile takes beyond one for each cell: those of the other taps and, with `across`, up to 7 before all of them,
    // since the row then starts at a multiple of 8.
    let further = taps - 1 + if choice.across == 1 { 7 } else { 0 };
    let limit = u64::from(limits.props.shared_bytes);
    let mut least = u64::MAX;
    for room in [limit / BLOCKS - RESERVED_SHARED_BYTES, limit] {
        for most in (1..=POSITIONS).rev() {
            let of_tile = cells.div_ceil(cells.div_ceil(most));
            let positions = (of_tile + further).next_multiple_of(GROUP);
            if positions > POSITIONS {
                continue;
            }
            (choice.cells, choice.positions) = (word(of_tile), word(positions));
            let bytes = shared_bytes(params, &choice, columns);
            if bytes <= room {
                let tiles = (down * cells.div_ceil(of_tile)).saturating_mul(params.samples.into());
                let tiles = u64::from(extent(tiles, "tiles")?);
                let parts = places(bytes, BLOCKS, limits).min(tiles);
                bounded_blocks([parts])?;
                choice.parts = word(parts);
                return Ok(choice);
            }
            least = least.min(bytes);
        }
    }
    Err(format!(
        "the rows of dy that a cell sees and the weights of {} filters take {least} bytes of shared memory at least, a block has {limit}",
        params.filters
    )
    .into())
}

/// Shared memory of a block, as `data_places` of `csrc/conv` counts it.
fn shared_bytes(
    params: &sys::bops_conv_few_channels_params,
    choice: &sys::bops_conv_few_channels_data_choice,
    columns: u64,
) -> u64 {
    let filters = u64::from(params.filters).next_multiple_of(DEPTH);
    let [taps, _] = choice.taps.map(u64::from);
    let positions = u64::from(choice.positions);
    let [lines, line] = if choice.across == 1 { [filters, positions] } else { [positions, filters] };
    let weights = (filters.saturating_mul(taps) + 8).saturating_mul(columns.next_multiple_of(16) * 2);
    let ring = (taps + 1).saturating_mul(lines * (line + 8) * 2);
    let of_stage = if (columns / 8).is_multiple_of(2) { columns + 8 } else { columns };
    weights.saturating_add(ring).saturating_add(positions * of_stage * 4)
}
