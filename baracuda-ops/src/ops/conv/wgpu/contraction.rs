//! The dispatches of one contraction: its tile and the parts of its terms, and how its operands are read and written.

use bytemuck::{Pod, Zeroable};

use super::super::geometry::{Contraction, Epilogue, Gathered, Indices, Strided, Vector};
use super::digits::{Digits, digits_of, ordered};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, elements_in, groups, has_whole_lines, lines_in, lines_out, prelude,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{single, stride, word};
use crate::ops::activation::Activation;
use crate::ops::gemm::wgpu::{DEPTH, MOST_STEPS_IN_SOFTWARE, Tile};

/// Steps that are worth a part of the terms: fewer, and the sums cost more than the products.
const LEAST_STEPS: u64 = 8;
/// Parts that a thread adds up.
const MOST_PARTS: u64 = 128;
/// Threads of a workgroup that adds up parts.
const SUMS_WORKGROUP: u32 = 128;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    m: u32,
    n: u32,
    terms: u32,
    part_terms: u32,
    parts: u32,
    channel_groups: u32,
    groups: u32,
    groups_x: u32,
    tiles_m: u32,
    tiles_n: u32,
    gathered_is_along: u32,
    gathered_has_lines: u32,
    plain_is_along: u32,
    plain_has_lines: u32,
    rows_lead_last: u32,
    terms_lead_last: u32,
    has_divisors: u32,
    row_lead: u32,
    term_lead: u32,
    gathered_group: u32,
    plain_group: u32,
    plain_column: u32,
    out_part: u32,
    out_group: u32,
    out_column: u32,
    out_n: u32,
    beside_group: u32,
    beside_column: u32,
    beside_n: u32,
    quads_are_rows: u32,
    has_bias: u32,
    has_beside: u32,
    bias_group: u32,
    bias_column: u32,
    activation: u32,
    beta: f32,
    rows: [u32; 4],
    term_digits: [u32; 4],
    term_step: [u32; 4],
    plain_digits: [u32; 4],
    plain_step: [u32; 4],
    plain_strides: [u32; 4],
    out_digits: [u32; 4],
    out_strides: [u32; 4],
    beside_strides: [u32; 4],
    of_row: [i32; 4],
    of_term: [i32; 4],
    offset: [i32; 4],
    image: [u32; 4],
    image_strides: [u32; 4],
    divisors: [u32; 4],
}

/// The tile of a workgroup, and into how many parts of how many steps the terms are divided, of which a workgroup has one.
struct Partition {
    tile: Tile,
    parts: u64,
    part_steps: u64,
}

impl Partition {
    /// The one that takes least time: where tiles are few, parts keep the device busy.
    fn of(contraction: &Contraction, terms: u64, props: &Props) -> Self {
        let steps = terms.div_ceil(DEPTH).max(1);
        let extents = [contraction.rows.count(), contraction.n];
        let divided = |tile: &Tile| {
            let count = tile.tiles(extents).into_iter().fold(contraction.groups, u64::saturating_mul);
            let mut parts = (tile.busy() / count.max(1)).min(steps / LEAST_STEPS).clamp(1, MOST_PARTS);
            if props.is_cpu {
                parts = parts.max(steps.div_ceil(MOST_STEPS_IN_SOFTWARE));
            }
            let part_steps = steps.div_ceil(parts);
            (count, steps.div_ceil(part_steps), part_steps)
        };
        let tile = Tile::least(props, |tile| {
            let (count, parts, part_steps) = divided(tile);
            tile.time(count.saturating_mul(parts)).saturating_mul(part_steps)
        });
        let (_, parts, part_steps) = divided(&tile);
        Self { tile, parts, part_steps }
    }
}

/// Where sums go, and what becomes of them on the way.
#[derive(Clone, Copy)]
struct Output {
    place: Place,
    out: Strided,
    /// From part to part.
    part: u64,
    bias: Option<Vector>,
    activation: Activation,
    pre: Option<Strided>,
    beta: f64,
    /// Of the rows, in out and in pre.
    digits: Digits<2>,
    /// Whether quads lie along the rows, or else along the columns.
    quads_are_rows: bool,
}

impl Output {
    fn new(contraction: &Contraction) -> Self {
        let Contraction { rows, n, out, epilogue, .. } = contraction;
        let (bias, activation, pre, beta) = match *epilogue {
            Epilogue::Forward { bias, activation, pre } => (bias, activation, pre, 0.0),
            Epilogue::Gradient { beta } => (None, Activation::Identity, None, beta),
        };
        let digits = Digits::fewest(rows, [out, pre.as_ref().unwrap_or(out)]);
        let (extent, stride) = digits.fastest(0);
        Self {
            place: Place::Operand(out.position),
            out: *out,
            part: 0,
            bias,
            activation,
            pre,
            beta,
            digits,
            quads_are_rows: *n == 1 || (extent > 1 && stride < out.column),
        }
    }

    /// Sums of parts, whose quads lie as those of the output, in the workspace: with their bytes.
    fn of_parts(&self, contraction: &Contraction, parts: u64) -> (Self, u64) {
        let (m, n) = (contraction.rows.count(), contraction.n);
        let (line, lines) = if self.quads_are_rows { (m, n) } else { (n, m) };
        // Elements of sums are no more than those of an operand, but for the padding of lines.
        let line = line.next_multiple_of(4);
        let group = line.saturating_mul(lines);
        let part = group.saturating_mul(contraction.groups);
        let (row, column) = if self.quads_are_rows { (1, line) } else { (line, 1) };
        let bytes = part.saturating_mul(parts).saturating_mul(4);
        let sums = Self {
            place: Place::Workspace { offset: 0, bytes },
            out: Strided { dtype: DType::F32, group, column, ..self.out },
            part,
            bias: None,
            activation: Activation::Identity,
            pre: None,
            beta: 0.0,
            digits: Digits::single(m, [row; 2]),
            ..*self
        };
        (sums, bytes)
    }

    /// What is not there is bound to the output in its place.
    fn beside(&self) -> Strided {
        self.pre.unwrap_or(self.out)
    }

    fn has_whole_lines(&self, contraction: &Contraction) -> bool {
        let is_whole = |operand: usize, strided: &Strided| {
            let columns = (contraction.n, strided.column);
            let group = (contraction.groups, strided.group);
            if self.quads_are_rows {
                let others = self.digits.slower(operand).chain([columns, group]);
                has_whole_lines(self.digits.fastest(operand), others)
            } else {
                has_whole_lines(columns, self.digits.all(operand).chain([group]))
            }
        };
        is_whole(0, &self.out) && self.pre.as_ref().is_none_or(|pre| is_whole(1, pre))
    }

    /// What the shaders are told of it.
    fn params(&self) -> Params {
        let beside = self.beside();
        let quad_step = |operand: usize, strided: &Strided| {
            stride(if self.quads_are_rows { self.digits.fastest(operand).1 } else { strided.column })
        };
        Params {
            out_part: stride(self.part),
            out_group: stride(self.out.group),
            out_column: stride(self.out.column),
            out_n: quad_step(0, &self.out),
            beside_group: stride(beside.group),
            beside_column: stride(beside.column),
            beside_n: quad_step(1, &beside),
            quads_are_rows: self.quads_are_rows.into(),
            has_bias: self.bias.is_some().into(),
            has_beside: self.pre.is_some().into(),
            bias_group: self.bias.map_or(0, |bias| stride(bias.group)),
            bias_column: self.bias.map_or(0, |bias| stride(bias.column)),
            activation: self.activation as u32,
            beta: single(self.beta),
            out_digits: self.digits.extents(),
            out_strides: self.digits.strides(0),
            beside_strides: self.digits.strides(1),
            ..Params::zeroed()
        }
    }

    /// The output, pre and the bias. What is not there is bound to the output in its place.
    fn bindings(&self) -> [Binding; 3] {
        let Self { place, out, pre, bias, .. } = self;
        let beside = pre.map_or(*place, |pre| Place::Operand(pre.position));
        let (bias_place, bias_type) =
            bias.map_or((*place, out.dtype), |bias| (Place::Operand(bias.position), bias.dtype));
        [
            elements_in("bias", bias_place, bias_type),
            Binding { name: "out", place: Some(*place), accessors: lines_out(out.dtype) },
            Binding { name: "pre", place: Some(beside), accessors: lines_out(self.beside().dtype) },
        ]
    }

    fn dtypes(&self) -> impl Iterator<Item = DType> {
        [self.out.dtype, self.beside().dtype].into_iter().chain(self.bias.map(|bias| bias.dtype))
    }
}

/// How a factor is read.
struct Reading {
    /// Whether lines run along the terms.
    is_along: bool,
    /// Whether four elements of a line have one step.
    has_lines: bool,
    /// Whether lines are whole and dense.
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
        // Elsewhere threads beside each other read what is close to each other.
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

/// From one tuple to the next, the distance in the gathered factor.
fn closest(indices: &Indices, lead: u64, gathered: &Gathered, are_terms: bool) -> u64 {
    let axes = std::array::from_fn(|at| {
        let axis = &gathered.axes[at];
        let factor = if are_terms { axis.of_term } else { axis.of_row };
        (indices.axes[at], factor.unsigned_abs().saturating_mul(axis.stride))
    });
    let digits = ordered((indices.lead, lead), axes, indices.lead_last);
    digits.into_iter().rev().find(|(extent, _)| *extent > 1).map_or(u64::MAX, |(_, distance)| distance)
}

/// Refuses coordinates that 32 bits with a sign do not hold.
fn check_coordinates(contraction: &Contraction) -> Result<(), Reason> {
    for (at, axis) in contraction.gathered.axes.iter().enumerate() {
        let last = |indices: &Indices| i128::from(indices.axes[at].saturating_sub(1));
        let ends = [(axis.of_row, &contraction.rows), (axis.of_term, &contraction.terms)]
            .map(|(factor, indices)| i128::from(factor).saturating_mul(last(indices)));
        let least =
            ends.iter().filter(|end| **end < 0).fold(i128::from(axis.offset), |sum, end| sum.saturating_add(*end));
        let most =
            ends.iter().filter(|end| **end > 0).fold(i128::from(axis.offset), |sum, end| sum.saturating_add(*end));
        if i32::try_from(least).is_err() || i32::try_from(most).is_err() {
            let (from, to) = (i32::MIN, i32::MAX);
            return Err(format!(
                "with its padding a spatial extent of {} is from {least} to {most}, the limits of 32-bit indices are {from} and {to}",
                axis.extent
            )
            .into());
        }
    }
    Ok(())
}

/// A factor of coordinates or their offset; what does not fit is multiplied by no index but 0.
fn coordinate(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(0)
}

fn in_quad<T: Default + Copy>([x, y, z]: [T; 3]) -> [T; 4] {
    [x, y, z, T::default()]
}

/// The dispatches of a contraction, if it writes anything, and the bytes of workspace between them. Operands that it does without are bound
/// all the same, to others in their place, so that what a contraction has besides its factors is no matter of the shader.
pub(super) fn steps(contraction: &Contraction, props: &Props) -> Result<(Vec<StepBuilder>, u64), Reason> {
    if contraction.is_empty() {
        return Ok((Vec::new(), 0));
    }
    check_coordinates(contraction)?;
    let Contraction { groups: channel_groups, rows, terms, n, gathered, plain, .. } = contraction;
    let output = Output::new(contraction);
    // Over nothing, factors have no elements that could be bound: nor has an image that is all padding.
    let has_terms = terms.count() > 0 && gathered.axes.iter().all(|axis| axis.extent > 0);
    let count = if has_terms { terms.count() } else { 0 };
    let Partition { tile, parts, part_steps } = Partition::of(contraction, count, props);
    let (sums, bytes) = if parts > 1 { output.of_parts(contraction, parts) } else { (output, 0) };

    let plain_digits = if has_terms { Digits::fewest(terms, [plain]) } else { Digits::single(1, [0]) };
    let of_gathered = Reading::gathered(contraction);
    let of_plain = Reading::plain(contraction, &plain_digits);
    let can_chunk = has_terms && of_gathered.is_whole && of_plain.is_whole && sums.has_whole_lines(contraction);
    let [tiles_m, tiles_n] = tile.tiles([rows.count(), *n]);
    let workgroups = [tiles_m, tiles_n, *channel_groups].into_iter().fold(parts, u64::saturating_mul);
    let grid = groups(workgroups, props)?;
    let extents =
        |indices: &Indices| ordered(indices.lead.max(1), indices.axes.map(|extent| extent.max(1)), indices.lead_last);
    let term_digits = if has_terms { extents(terms) } else { [1; 4] };
    let params = Params {
        m: word(rows.count()),
        n: word(*n),
        terms: word(count),
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
        rows_lead_last: rows.lead_last.into(),
        terms_lead_last: terms.lead_last.into(),
        has_divisors: gathered.axes.iter().any(|axis| axis.divisor != 1).into(),
        row_lead: stride(gathered.row_lead),
        term_lead: stride(gathered.term_lead),
        gathered_group: stride(gathered.group),
        plain_group: stride(plain.group),
        plain_column: stride(plain.column),
        rows: extents(rows).map(word),
        term_digits: term_digits.map(word),
        term_step: digits_of(DEPTH, term_digits),
        plain_digits: plain_digits.extents(),
        plain_step: plain_digits.of(DEPTH),
        plain_strides: plain_digits.strides(0),
        of_row: in_quad(gathered.axes.map(|axis| coordinate(axis.of_row))),
        of_term: in_quad(gathered.axes.map(|axis| coordinate(axis.of_term))),
        offset: in_quad(gathered.axes.map(|axis| coordinate(axis.offset))),
        image: in_quad(gathered.axes.map(|axis| word(axis.extent))),
        image_strides: in_quad(gathered.axes.map(|axis| stride(axis.stride))),
        divisors: in_quad(gathered.axes.map(|axis| word(axis.divisor))),
        ..sums.params()
    };

    let factor = |name, position, dtype| {
        let place = if has_terms { Place::Operand(position) } else { sums.place };
        Binding { name, place: Some(place), accessors: lines_in(dtype) }
    };
    let mut bindings =
        vec![factor("gathered", gathered.position, gathered.dtype), factor("plain", plain.position, plain.dtype)];
    bindings.extend(sums.bindings());
    let mut files = prelude([gathered.dtype, plain.dtype].into_iter().chain(sums.dtypes()))?;
    files.extend(["common/activation", "conv/conv_output", "gemm/gemm_output", "conv/conv"]);
    let mut steps = vec![StepBuilder {
        entry: "conv_tiled",
        files,
        constants: tile.constants(),
        bindings,
        can_chunk,
        ignores_layouts: true,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid,
        ..StepBuilder::default()
    }];
    if parts > 1 {
        steps.push(sums_step(contraction, &output, &sums, parts, props)?);
    }
    Ok((steps, bytes))
}

/// The sums of the parts, and the epilogue.
fn sums_step(
    contraction: &Contraction,
    output: &Output,
    sums: &Output,
    parts: u64,
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let (m, n) = (contraction.rows.count(), contraction.n);
    let grid = groups((sums.part / 4).div_ceil(SUMS_WORKGROUP.into()), props)?;
    let params = Params {
        m: word(m),
        n: word(n),
        parts: word(parts),
        channel_groups: word(contraction.groups),
        groups: grid[0] * grid[1],
        groups_x: grid[0],
        ..output.params()
    };
    let mut bindings = vec![Binding { name: "partials", place: Some(sums.place), accessors: ["partials_in"; 2] }];
    bindings.extend(output.bindings());
    let mut files = prelude(output.dtypes())?;
    files.extend(["common/activation", "conv/conv_output", "gemm/gemm_output", "conv/conv_sums"]);
    Ok(StepBuilder {
        entry: "conv_sums",
        files,
        constants: vec![("WORKGROUP", SUMS_WORKGROUP)],
        bindings,
        can_chunk: output.has_whole_lines(contraction),
        ignores_layouts: true,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid,
        ..StepBuilder::default()
    })
}
