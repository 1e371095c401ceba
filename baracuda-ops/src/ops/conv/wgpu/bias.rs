//! The dispatches of the gradient of the bias: one that sums parts of dy, and one that adds up these sums.

use super::super::geometry::ChannelSums;
use super::digits::Digits;
use crate::backend::wgpu::team::MOST_COLUMN_CHAINS;
use crate::backend::wgpu::{Binding, Place, Props, StepBuilder, groups, has_whole_lines, lines_in, params, prelude};
use crate::error::Reason;
use crate::narrow::{stride, word};
use crate::ops::gemm::wgpu::{sums_step, tree_workgroup};

/// Neighbouring quads of channels in a workgroup, if channels are contiguous: one for each thread of a subgroup of 32, so that it reads 512 bytes of a
/// position in f32.
const DENSE_QUADS: u32 = 32;
/// The most items of a thread, unless the chains of the second dispatch would then be longer than those of a thread. 16 items are one chain of the
/// shader (`CHAIN`).
const ROUNDS: u64 = 16;
/// Workgroups that keep a GPU of 132 SMs busy: eight of 256 threads are all that an SM has room for. If there are fewer, threads get fewer items. Chosen on an
/// H200.
const BUSY_GROUPS: u64 = 8 * 132;

/// How dy is divided over workgroups.
struct Partition {
    /// Samples and positions.
    digits: Digits<1>,
    /// Whether lines lie along the positions.
    is_along: bool,
    /// For each quad of channels: positions, or fours of them if lines lie along the positions.
    items: u64,
    rounds: u64,
    column_quads: u32,
    column_groups: u64,
    /// Sums of each channel.
    parts: u64,
}

impl Partition {
    fn new(sums: &ChannelSums, props: &Props) -> Self {
        let (count, quads) = (sums.terms.count(), sums.channels.div_ceil(4));
        let digits = Digits::fewest(&sums.terms, [&sums.dy]);
        let (extent, step) = digits.fastest(0);
        let is_along = sums.channels == 1 || (extent > 1 && step < sums.dy.column);
        let items = if is_along { count / extent.max(1) * extent.div_ceil(4) } else { count };
        let column_quads = if is_along { 1 } else { word(quads.next_power_of_two().min(DENSE_QUADS.into())) };
        let column_groups = quads.div_ceil(column_quads.into());
        let lanes = u64::from(tree_workgroup(props) / column_quads);
        // Chains of additions are as long in a thread as in the second dispatch, where `MOST_COLUMN_CHAINS` chains share the parts.
        let most_rounds = ROUNDS.max((items / (lanes * MOST_COLUMN_CHAINS)).isqrt());
        let rounds = items.div_ceil(lanes * BUSY_GROUPS.div_ceil(column_groups)).clamp(1, most_rounds);
        let parts = items.div_ceil(lanes * rounds);
        Self { digits, is_along, items, rounds, column_quads, column_groups, parts }
    }
}

/// The dispatches, if there are channels, and the bytes of workspace between them.
pub(super) fn steps(sums: &ChannelSums, props: &Props) -> Result<(Vec<StepBuilder>, u64), Reason> {
    if sums.channels == 0 {
        return Ok((Vec::new(), 0));
    }
    let partition = Partition::new(sums, props);
    let bytes = partition.parts * sums.channels.div_ceil(4) * 16;
    let place = Place::Workspace { offset: 0, bytes };
    let mut steps = Vec::with_capacity(2);
    if partition.parts > 0 {
        steps.push(parts_step(sums, &partition, place, props)?);
    }
    let dbias = (sums.dbias.position, sums.dbias.dtype, sums.dbias.stride);
    steps.push(sums_step(dbias, sums.beta, sums.channels, (partition.parts, place), props)?);
    Ok((steps, bytes))
}

fn parts_step(sums: &ChannelSums, partition: &Partition, place: Place, props: &Props) -> Result<StepBuilder, Reason> {
    let Partition { digits, is_along, items, rounds, column_quads, column_groups, parts } = partition;
    let ChannelSums { channels, dy, .. } = sums;
    let count = parts * column_groups;
    let grid = groups(count, props)?;
    let columns = (*channels, dy.column);
    let can_chunk = match is_along {
        true => has_whole_lines(digits.fastest(0), digits.slower(0).chain([columns])),
        false => has_whole_lines(columns, digits.all(0)),
    };
    let params = params! {
        channels: u32 = word(*channels),
        items: u32 = word(*items),
        rounds: u32 = word(*rounds),
        groups: u32 = word(count),
        groups_x: u32 = grid[0],
        column_groups: u32 = word(*column_groups),
        channel_stride: u32 = stride(dy.column),
        padding: u32 = 0,
        digits: [u32; 4] = digits.extents(),
        strides: [u32; 4] = digits.strides(0),
    };
    let mut files = prelude([dy.dtype])?;
    files.extend(["common/column_sums", "conv/conv_backward_bias"]);
    Ok(StepBuilder {
        constants: vec![("WORKGROUP", tree_workgroup(props)), ("COLUMN_QUADS", *column_quads)],
        flags: vec![("ALONG", *is_along)],
        bindings: vec![
            Binding { name: "dy", place: Some(Place::Operand(dy.position)), accessors: lines_in(dy.dtype) },
            Binding { name: "partials", place: Some(place), accessors: ["partials_out"; 2] },
        ],
        can_chunk,
        ignores_layouts: true,
        ..StepBuilder::new("conv_backward_bias", files, params, grid)
    })
}
