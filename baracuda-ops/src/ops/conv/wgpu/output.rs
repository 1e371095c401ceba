//! What the dispatches of a contraction share: the parameters, the output of sums, and the dispatch that adds up parts of the terms.

use bytemuck::{Pod, Zeroable};

use super::super::MAX_AXES;
use super::super::geometry::{Axis, Contraction, Gathered, Indices, Strided};
use super::digits::{Digits, digits_of};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, elements_in, groups, has_whole_lines, lines_out, prelude,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{single, stride, word};
use crate::ops::activation::Activation;
use crate::ops::gemm::geometry::{Epilogue, Vector};
use crate::ops::gemm::wgpu::MOST_STEPS_IN_SOFTWARE;

/// Threads of a workgroup that adds up parts: as many as every device offers.
const SUMS_WORKGROUP: u32 = 128;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) terms: u32,
    pub(super) part_terms: u32,
    pub(super) parts: u32,
    pub(super) channel_groups: u32,
    pub(super) groups: u32,
    pub(super) groups_x: u32,
    pub(super) tiles_m: u32,
    pub(super) tiles_n: u32,
    pub(super) gathered_is_along: u32,
    pub(super) gathered_has_lines: u32,
    pub(super) plain_is_along: u32,
    pub(super) plain_has_lines: u32,
    pub(super) rows_lead_last: u32,
    pub(super) terms_lead_last: u32,
    pub(super) has_divisors: u32,
    pub(super) row_lead: u32,
    pub(super) term_lead: u32,
    pub(super) gathered_group: u32,
    pub(super) plain_group: u32,
    pub(super) plain_column: u32,
    pub(super) out_part: u32,
    pub(super) out_group: u32,
    pub(super) out_column: u32,
    pub(super) out_n: u32,
    pub(super) beside_group: u32,
    pub(super) beside_column: u32,
    pub(super) beside_n: u32,
    pub(super) quads_are_rows: u32,
    pub(super) has_bias: u32,
    pub(super) has_beside: u32,
    pub(super) bias_group: u32,
    pub(super) bias_column: u32,
    pub(super) activation: u32,
    pub(super) beta: f32,
    pub(super) chain: u32,
    pub(super) padding: [u32; 3],
    pub(super) rows: [u32; 4],
    pub(super) term_digits: [u32; 4],
    pub(super) term_step: [u32; 4],
    pub(super) plain_digits: [u32; 4],
    pub(super) plain_step: [u32; 4],
    pub(super) plain_strides: [u32; 4],
    pub(super) out_digits: [u32; 4],
    pub(super) out_strides: [u32; 4],
    pub(super) beside_strides: [u32; 4],
    pub(super) of_row: [i32; 4],
    pub(super) of_term: [i32; 4],
    pub(super) offset: [i32; 4],
    pub(super) image: [u32; 4],
    pub(super) image_strides: [u32; 4],
    pub(super) divisors: [u32; 4],
    pub(super) steps: [u32; 4],
    pub(super) inverses: [u32; 4],
    pub(super) tops: [u32; 4],
}

/// The terms for which the factors have elements.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) count: u64,
    /// Extents of the digits, the slowest first.
    pub(super) digits: [u64; 4],
}

impl Terms {
    pub(super) fn of(contraction: &Contraction) -> Self {
        // Without terms, and with an image that is only padding, factors have no elements that could be bound.
        let is_padding = contraction.gathered.axes.iter().any(|axis| axis.extent == 0);
        match contraction.terms.count() {
            count if count > 0 && !is_padding => Self { count, digits: extents(&contraction.terms) },
            _ => Self { count: 0, digits: [1; 4] },
        }
    }

    /// What is bound as a factor: the output, if factors have no elements.
    pub(super) fn place(&self, position: usize, output: &Output) -> Place {
        if self.count > 0 { Place::Operand(position) } else { output.place }
    }

    /// The parameters that say how rows and terms gather the image, `step` terms at a time.
    pub(super) fn params(&self, contraction: &Contraction, step: u64) -> Params {
        let Contraction { rows, terms, gathered, plain, .. } = contraction;
        Params {
            terms: word(self.count),
            rows_lead_last: rows.lead_last.into(),
            terms_lead_last: terms.lead_last.into(),
            has_divisors: gathered.axes.iter().any(|axis| axis.divisor != 1).into(),
            row_lead: stride(gathered.row_lead),
            term_lead: stride(gathered.term_lead),
            gathered_group: stride(gathered.group),
            plain_group: stride(plain.group),
            plain_column: stride(plain.column),
            rows: extents(rows).map(word),
            term_digits: self.digits.map(word),
            term_step: digits_of(step, self.digits),
            of_row: in_quad(gathered.axes.map(|axis| coordinate(axis.of_row))),
            of_term: in_quad(gathered.axes.map(|axis| coordinate(axis.of_term))),
            offset: in_quad(gathered.axes.map(|axis| coordinate(axis.offset))),
            image: in_quad(gathered.axes.map(|axis| word(axis.extent))),
            image_strides: in_quad(gathered.axes.map(|axis| stride(axis.stride))),
            divisors: in_quad(gathered.axes.map(|axis| word(axis.divisor))),
            ..Params::zeroed()
        }
    }
}

fn extents(indices: &Indices) -> [u64; 4] {
    indices.digits().map(|extent| extent.max(1))
}

/// The contraction as shaders are told of it. Factors without elements have no terms, and nothing bounds their extents and strides: those of empty
/// factors stand for all.
pub(super) fn bounded(contraction: &Contraction) -> Contraction {
    if Terms::of(contraction).count > 0 || contraction.is_empty() {
        return *contraction;
    }
    let axis = Axis { extent: 0, stride: 0, of_row: 1, of_term: 1, offset: 0, divisor: 1 };
    let Contraction { terms, gathered, plain, .. } = *contraction;
    Contraction {
        terms: Indices { lead: 0, axes: [1; MAX_AXES], ..terms },
        gathered: Gathered { group: 0, row_lead: 0, term_lead: 0, axes: [axis; MAX_AXES], ..gathered },
        plain: Strided { group: 0, column: 0, lead: 0, axes: [0; MAX_AXES], ..plain },
        ..*contraction
    }
}

/// The output of sums, and their epilogue.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) place: Place,
    out: Strided,
    /// The distance from part to part.
    part: u64,
    bias: Option<Vector>,
    activation: Activation,
    pre: Option<Strided>,
    beta: f64,
    /// Digits of the rows, with strides in out and in pre.
    digits: Digits<2>,
    /// Whether a quad is four rows; else it is four columns.
    quads_are_rows: bool,
}

impl Output {
    pub(super) fn new(contraction: &Contraction) -> Self {
        let Contraction { rows, n, out, epilogue, .. } = contraction;
        let Epilogue { bias, activation, beside: pre, beta, .. } = *epilogue;
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

    /// The output of parts of the sums in the workspace, with quads along the index along which those of this output lie, and its bytes.
    pub(super) fn of_parts(&self, contraction: &Contraction, parts: u64) -> (Self, u64) {
        let (m, n) = (contraction.rows.count(), contraction.n);
        let (line, lines) = if self.quads_are_rows { (m, n) } else { (n, m) };
        // Up to the padding of lines there are as many sums as elements of an operand, so the products fit.
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

    /// What is bound as pre: the output, if there is no pre.
    pub(super) fn beside(&self) -> Strided {
        self.pre.unwrap_or(self.out)
    }

    /// The number of quads.
    pub(super) fn quads(&self, contraction: &Contraction) -> u64 {
        let (m, n) = (contraction.rows.count(), contraction.n);
        let (line, lines) = if self.quads_are_rows { (m, n) } else { (n, m) };
        [line.div_ceil(4), lines, contraction.groups].into_iter().fold(1, u64::saturating_mul)
    }

    pub(super) fn has_whole_lines(&self, contraction: &Contraction) -> bool {
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

    /// The parameters, to which those of the output are added.
    pub(super) fn params(&self, gathering: Params) -> Params {
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
            bias_column: self.bias.map_or(0, |bias| stride(bias.stride)),
            activation: self.activation as u32,
            beta: single(self.beta),
            out_digits: self.digits.extents(),
            out_strides: self.digits.strides(0),
            beside_strides: self.digits.strides(1),
            ..gathering
        }
    }

    /// The bias, the output and pre. In place of an absent bias another operand that is read is bound, and in place of an absent pre the output.
    pub(super) fn bindings(&self, (spare, spare_type): (Place, DType)) -> [Binding; 3] {
        let Self { place, out, pre, bias, .. } = self;
        let beside = pre.map_or(*place, |pre| Place::Operand(pre.position));
        let (bias_place, bias_type) =
            bias.map_or((spare, spare_type), |bias| (Place::Operand(bias.position), bias.dtype));
        [
            elements_in("bias", bias_place, bias_type),
            Binding { name: "out", place: Some(*place), accessors: lines_out(out.dtype) },
            Binding { name: "pre", place: Some(beside), accessors: lines_out(self.beside().dtype) },
        ]
    }

    pub(super) fn dtypes(&self) -> impl Iterator<Item = DType> {
        [self.out.dtype, self.beside().dtype].into_iter().chain(self.bias.map(|bias| bias.dtype))
    }
}

/// # Errors
/// Coordinates that do not fit into 32 bits with a sign.
pub(super) fn check_coordinates(contraction: &Contraction) -> Result<(), Reason> {
    for (at, axis) in contraction.gathered.axes.iter().enumerate() {
        let last = |indices: &Indices| i128::from(indices.axes[at].saturating_sub(1));
        let ends = [(axis.of_row, &contraction.rows), (axis.of_term, &contraction.terms)]
            .map(|(factor, indices)| i128::from(factor).saturating_mul(last(indices)));
        let least =
            ends.iter().filter(|end| **end < 0).fold(i128::from(axis.offset), |sum, end| sum.saturating_add(*end));
        let most =
            ends.iter().filter(|end| **end > 0).fold(i128::from(axis.offset), |sum, end| sum.saturating_add(*end));
        Reason::unless(i32::try_from(least).is_ok() && i32::try_from(most).is_ok(), || {
            let (from, to) = (i32::MIN, i32::MAX);
            format!(
                "with its padding a spatial extent of {} reaches from {least} to {most}, 32-bit indices from {from} to {to}",
                axis.extent
            )
        })?;
    }
    Ok(())
}

/// The most parts. One thread adds up those of a quad, one after the other, and each takes workspace as large as the output. With 128 an output of one tile
/// still occupies nearly all of 132 SMs.
const MOST_PARTS: u64 = 128;

/// Divides `count` terms, or steps, into `wanted` parts, or into fewer so that each has at least `least`. Returns the number of parts and the size of one.
pub(super) fn divided(count: u64, wanted: u64, least: u64, props: &Props) -> (u64, u64) {
    let mut parts = wanted.min(count / least).clamp(1, MOST_PARTS);
    if props.is_cpu {
        parts = parts.max(count.div_ceil(MOST_STEPS_IN_SOFTWARE));
    }
    let of_part = count.div_ceil(parts).max(1);
    (count.div_ceil(of_part).max(1), of_part)
}

/// A factor or an offset of coordinates, all of which are below 2^31.
fn coordinate(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(0)
}

pub(super) fn in_quad<T: Default + Copy>([x, y, z]: [T; 3]) -> [T; 4] {
    [x, y, z, T::default()]
}

/// The dispatch that adds up the parts and applies the epilogue.
pub(super) fn sums_step(
    contraction: &Contraction,
    output: &Output,
    sums: &Output,
    parts: u64,
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let (m, n) = (contraction.rows.count(), contraction.n);
    let count = (sums.part / 4).div_ceil(SUMS_WORKGROUP.into());
    let grid = groups(count, props)?;
    let params = Params {
        m: word(m),
        n: word(n),
        parts: word(parts),
        channel_groups: word(contraction.groups),
        groups: word(count),
        groups_x: grid[0],
        ..output.params(Params::zeroed())
    };
    let mut bindings = vec![Binding { name: "partials", place: Some(sums.place), accessors: ["partials_in"; 2] }];
    // Single accesses: there are few sums.
    bindings.extend(
        output
            .bindings((sums.place, output.out.dtype))
            .map(|binding| Binding { accessors: [binding.accessors[1]; 2], ..binding }),
    );
    let mut files = prelude(output.dtypes())?;
    files.extend(["common/activation", "common/subnormal", "conv/conv_output", "gemm/gemm_output", "conv/conv_sums"]);
    Ok(StepBuilder {
        constants: vec![("WORKGROUP", SUMS_WORKGROUP)],
        bindings,
        ignores_layouts: true,
        ..StepBuilder::new("conv_sums", files, bytemuck::bytes_of(&params).to_vec(), grid)
    })
}
