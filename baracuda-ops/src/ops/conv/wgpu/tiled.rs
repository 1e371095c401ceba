//! Contractions by tiles: the tile, the parts of the terms, and how factors are loaded.

use super::super::geometry::{Contraction, Gathered, Indices};
use super::digits::Digits;
use super::output::{Output, Params, Terms, check_coordinates, divided, sums_step};
use crate::backend::wgpu::{Binding, Props, StepBuilder, groups, has_whole_lines, lines_in, prelude};
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::gemm::wgpu::{DEPTH, Tile};

/// The fewest steps of a part of the terms, 128 terms. A part costs a sum that is written and read again: with fewer terms this weighs more against the
/// products, with more there are fewer parts to keep a device busy.
const LEAST_STEPS: u64 = 8;

/// The tile of a workgroup, and into how many parts of how many steps the terms are divided, of which a workgroup has one.
struct Partition {
    tile: Tile,
    parts: u64,
    part_steps: u64,
}

impl Partition {
    /// The partition that takes least time. If there are few tiles, parts keep the device busy.
    fn of(contraction: &Contraction, terms: u64, props: &Props) -> Self {
        let steps = terms.div_ceil(DEPTH).max(1);
        let extents = [contraction.rows.count(), contraction.n];
        let divided = |tile: &Tile| {
            let count = tile.tiles(extents).into_iter().fold(contraction.groups, u64::saturating_mul);
            let (parts, part_steps) = divided(steps, tile.busy / count.max(1), LEAST_STEPS, props);
            (count, parts, part_steps)
        };
        let tile = Tile::least(props, |tile| {
            let (count, parts, part_steps) = divided(tile);
            tile.time(count.saturating_mul(parts)).saturating_mul(part_steps)
        });
        let (_, parts, part_steps) = divided(&tile);
        Self { tile, parts, part_steps }
    }
}

/// The time that a contraction takes, in the units of [`Tile::time`].
pub(super) fn time(contraction: &Contraction, props: &Props) -> u64 {
    let Partition { tile, parts, part_steps } = Partition::of(contraction, Terms::of(contraction).count, props);
    let [tiles_m, tiles_n] = tile.tiles([contraction.rows.count(), contraction.n]);
    let count = [tiles_m, tiles_n, contraction.groups].into_iter().fold(parts, u64::saturating_mul);
    tile.time(count).saturating_mul(part_steps)
}

/// How a factor is loaded.
struct Reading {
    /// Whether lines run along the terms.
    is_along: bool,
    /// Whether the four elements of a line are equally spaced.
    has_lines: bool,
    /// Whether lines are whole chunks of memory.
    is_whole: bool,
}

impl Reading {
    fn gathered(contraction: &Contraction) -> Self {
        let Contraction { groups, rows, terms, gathered, .. } = contraction;
        let Gathered { group, row_lead, term_lead, axes, .. } = gathered;
        let has_lines = |indices: &Indices| indices.lead_last && indices.lead.is_multiple_of(4);
        let image = axes.map(|axis| (axis.extent, axis.stride));
        let others = |lead: (u64, u64)| image.into_iter().chain([lead, (*groups, *group)]);
        let (of_rows, of_terms) = ((rows.lead, *row_lead), (terms.lead, *term_lead));
        let whole_along = has_lines(terms) && has_whole_lines(of_terms, others(of_rows));
        let whole_across = has_lines(rows) && has_whole_lines(of_rows, others(of_terms));
        // Else neighbouring threads load along whichever index has the closer neighbours.
        let is_closer = closest(terms, *term_lead, gathered, true) < closest(rows, *row_lead, gathered, false);
        let is_along = whole_along || (!whole_across && is_closer);
        let has_lines = has_lines(if is_along { terms } else { rows });
        Self { is_along, has_lines, is_whole: whole_along || whole_across }
    }

    fn plain(contraction: &Contraction, digits: &Digits<1>) -> Self {
        let Contraction { groups, n, plain, .. } = contraction;
        let (columns, group) = ((*n, plain.column), (*groups, plain.group));
        let fastest = digits.fastest(0);
        let whole_along = has_whole_lines(fastest, digits.slower(0).chain([columns, group]));
        let whole_across = has_whole_lines(columns, digits.all(0).chain([group]));
        let is_closer = *n == 1 || (fastest.0 > 1 && fastest.1 < plain.column);
        let is_along = whole_along || (!whole_across && is_closer);
        let has_lines = !is_along || fastest.0.is_multiple_of(4);
        Self { is_along, has_lines, is_whole: whole_along || whole_across }
    }
}

/// The distance in the gathered factor from one tuple to the next.
fn closest(indices: &Indices, lead: u64, gathered: &Gathered, are_terms: bool) -> u64 {
    let axes = std::array::from_fn(|at| {
        let axis = &gathered.axes[at];
        let factor = if are_terms { axis.of_term } else { axis.of_row };
        (indices.axes[at], factor.unsigned_abs().saturating_mul(axis.stride))
    });
    let digits = indices.in_order((indices.lead, lead), axes);
    digits.into_iter().rev().find(|(extent, _)| *extent > 1).map_or(u64::MAX, |(_, distance)| distance)
}

/// The dispatches of a contraction, if it writes anything, and the bytes of workspace between them. In place of absent operands others are bound, so that one
/// shader serves every set of operands.
pub(super) fn steps(contraction: &Contraction, props: &Props) -> Result<(Vec<StepBuilder>, u64), Reason> {
    if contraction.is_empty() {
        return Ok((Vec::new(), 0));
    }
    check_coordinates(contraction)?;
    let Contraction { groups: channel_groups, rows, n, gathered, plain, .. } = contraction;
    let output = Output::new(contraction);
    let terms = Terms::of(contraction);
    let Partition { tile, parts, part_steps } = Partition::of(contraction, terms.count, props);
    let (sums, bytes) = if parts > 1 { output.of_parts(contraction, parts) } else { (output, 0) };

    let plain_digits =
        if terms.count > 0 { Digits::fewest(&contraction.terms, [plain]) } else { Digits::single(1, [0]) };
    let of_gathered = Reading::gathered(contraction);
    let of_plain = Reading::plain(contraction, &plain_digits);
    let can_chunk = terms.count > 0 && of_gathered.is_whole && of_plain.is_whole && sums.has_whole_lines(contraction);
    let [tiles_m, tiles_n] = tile.tiles([rows.count(), *n]);
    let workgroups = [tiles_m, tiles_n, *channel_groups].into_iter().fold(parts, u64::saturating_mul);
    let grid = groups(workgroups, props)?;
    let params = Params {
        m: word(rows.count()),
        n: word(*n),
        part_terms: word(part_steps * DEPTH),
        parts: word(parts),
        channel_groups: word(*channel_groups),
        groups: word(workgroups),
        groups_x: grid[0],
        tiles_m: word(tiles_m),
        tiles_n: word(tiles_n),
        gathered_is_along: of_gathered.is_along.into(),
        gathered_has_lines: of_gathered.has_lines.into(),
        plain_is_along: of_plain.is_along.into(),
        plain_has_lines: of_plain.has_lines.into(),
        chain: word(tile.chain_steps(part_steps)),
        plain_digits: plain_digits.extents(),
        plain_step: plain_digits.of(DEPTH),
        plain_strides: plain_digits.strides(0),
        ..sums.params(terms.params(contraction, DEPTH))
    };

    let factor = |name, position, dtype| {
        let place = terms.place(position, &sums);
        Binding { name, place: Some(place), accessors: lines_in(dtype) }
    };
    let mut bindings =
        vec![factor("gathered", gathered.position, gathered.dtype), factor("plain", plain.position, plain.dtype)];
    bindings.extend(sums.bindings((terms.place(plain.position, &sums), plain.dtype)));
    let mut files = prelude([gathered.dtype, plain.dtype].into_iter().chain(sums.dtypes()))?;
    files.extend(["common/activation", "conv/conv_output", "gemm/gemm_output", "conv/conv_gather", "gemm/gemm_tile"]);
    files.push("conv/conv");
    let mut steps = vec![StepBuilder {
        constants: tile.constants(),
        bindings,
        can_chunk,
        ignores_layouts: true,
        ..StepBuilder::new("conv_tiled", files, bytemuck::bytes_of(&params).to_vec(), grid)
    }];
    if parts > 1 {
        steps.push(sums_step(contraction, &output, &sums, parts, props)?);
    }
    Ok((steps, bytes))
}
