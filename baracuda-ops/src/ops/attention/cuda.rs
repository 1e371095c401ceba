//! The CUDA kernels: how wide their tiles are, which operands they access in vectors, and the launches of backward.

use std::ffi::c_void;
use std::fmt::Debug;

use baracuda_ops_sys as sys;

use super::geometry::{Geometry, Mask};
use super::{BackwardFields, ForwardFields, Gradient, Valid, backward as rows_of_backward, forward as rows_of_forward};
use crate::backend::Located;
use crate::backend::cuda::{Device, Launch, Numbers, Props, Start, c_dtype, c_element};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Ask, Built, Candidate};
use crate::narrow::word;
use crate::ops::calls::{Calls, calls};
use crate::options::WorkspaceReq;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// Neighbours of an access.
const WIDTH: u64 = 4;
pub(super) const VEC_BYTES: u64 = 16;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// The fewest queries, keys and rows of delta of a block.
const LEAST_ROWS: u64 = 4;
/// The fewest queries, and keys, of a block of the gradient of the bias.
const LEAST_OF_BIAS: u64 = 16;
/// Queries and keys that are counted in 32 bits with a sign, with room for a tile.
const MOST_ROWS: u64 = (1 << 31) - 257;
/// A window without a bound: more keys than there are, and few enough to be added to positions.
const UNBOUNDED: u64 = 1 << 40;

/// The columns of a tile, for the widest rows. `classes`: of the kernels, ascending.
fn padded(geometry: &Geometry, classes: &[u32]) -> u32 {
    let depth = geometry.depth.max(geometry.value_depth);
    classes.iter().copied().find(|&padded| depth <= u64::from(padded)).unwrap_or(256)
}

fn classes(dtype: DType) -> &'static [u32] {
    if dtype == DType::F64 { &[64, 256] } else { &[32, 64, 128, 256] }
}

/// Whether rows are whole vectors that start at multiples of one.
fn has_vectors(desc: &TensorDesc) -> bool {
    let strides = desc.strides();
    let [rest @ .., column] = strides else { return false };
    let columns = desc.dims().last().copied().unwrap_or(0);
    (*column == 1 || columns == 1)
        && columns.is_multiple_of(WIDTH)
        && rest.iter().all(|stride| stride.is_multiple_of(WIDTH))
        && desc.align_bytes() >= VEC_BYTES.min(WIDTH * desc.dtype().size_bytes())
}

/// Whether rows are whole vectors of 16 bytes that start at multiples of one.
pub(super) fn has_chunks(desc: &TensorDesc) -> bool {
    let [rest @ .., column] = desc.strides() else { return false };
    let columns = desc.dims().last().copied().unwrap_or(0);
    let width = VEC_BYTES / desc.dtype().size_bytes();
    (*column == 1 || columns == 1)
        && columns.is_multiple_of(width)
        && rest.iter().all(|stride| stride.is_multiple_of(width))
        && desc.align_bytes() >= VEC_BYTES
}

/// The sum of the numbers of those operands that have vectors.
fn vectors(slots: &Slots, operands: &[(usize, u32)]) -> u32 {
    let fits = |&&(row, _): &&(usize, u32)| slots.at(row).is_some_and(|slot| has_vectors(&slot.desc));
    operands.iter().filter(fits).map(|&(_, number)| number).sum()
}

fn strides(desc: &TensorDesc) -> sys::bops_attention_strides {
    let at = |axis: usize| desc.strides().get(axis).copied().unwrap_or(0);
    sys::bops_attention_strides { sample: at(0), head: at(1), row: at(2), column: at(3) }
}

fn strides_of(slots: &Slots, row: usize) -> sys::bops_attention_strides {
    slots.at(row).map_or_else(Default::default, |slot| strides(&slot.desc))
}

pub(super) fn check_blocks(blocks: u64) -> Result<(), Reason> {
    Reason::unless(blocks <= MOST_BLOCKS, || {
        format!("it needs up to {blocks} blocks, a launch has at most {MOST_BLOCKS}")
    })
}

/// What forward and backward are told. `rows`: of q, k, v, y, lse and the lengths.
fn params(
    geometry: &Geometry,
    slots: &Slots,
    dtype: DType,
    [q, k, v, y, lse, lengths]: [usize; 6],
) -> Result<sys::bops_attention_params, Reason> {
    let &Geometry { samples, heads, kv_heads, queries, keys, .. } = geometry;
    for (what, rows) in [("queries", queries), ("keys", keys)] {
        Reason::unless(rows <= MOST_ROWS, || {
            format!("it counts {what} in 32 bits, of which there are {rows}, the limit is {MOST_ROWS}")
        })?;
    }
    let blocks =
        [samples, heads.max(kv_heads), queries.max(keys).div_ceil(LEAST_ROWS)].into_iter().fold(1, u64::saturating_mul);
    check_blocks(blocks)?;
    let of = |row| strides_of(slots, row);
    let bound = |keys: Option<u64>| keys.unwrap_or(UNBOUNDED).min(UNBOUNDED).cast_signed();
    Ok(sys::bops_attention_params {
        samples: word(samples),
        heads: word(heads),
        kv_heads: word(kv_heads),
        queries: word(queries),
        keys: word(keys),
        depth: word(geometry.depth),
        value_depth: word(geometry.value_depth),
        shared_by: word(geometry.group()),
        from_end: geometry.from_end.into(),
        left: bound(geometry.left),
        right: bound(geometry.right),
        dtype: c_dtype(dtype)?,
        lengths: geometry.lengths.map_or(0, c_element),
        has_lengths: geometry.lengths.is_some().into(),
        mask: match geometry.mask {
            Mask::None => sys::BOPS_ATTENTION_UNMASKED,
            Mask::Bool => sys::BOPS_ATTENTION_BOOL,
            Mask::Bias(of_bias) if of_bias == dtype => sys::BOPS_ATTENTION_BIAS,
            Mask::Bias(_) => sys::BOPS_ATTENTION_BIAS_WIDE,
        },
        length_stride: of(lengths).sample,
        pages: Default::default(),
        q: of(q),
        k: of(k),
        v: of(v),
        y: of(y),
        lse: of(lse),
        bias: geometry.bias.as_ref().map_or_else(Default::default, strides),
        scale: geometry.scale.get(),
        soft_cap: geometry.soft_cap.map_or(0.0, |cap| cap.get()),
    })
}

/// What the forms of forward are told, and of the numbers of operands that of y if it has vectors.
pub(super) fn params_of_forward(valid: &Valid<ForwardFields>) -> Result<(sys::bops_attention_params, u32), Reason> {
    use rows_of_forward::{K, LENGTHS, LSE, PAGES, Q, V, Y};
    let (geometry, slots) = (&valid.derived, &valid.slots);
    let mut params = params(geometry, slots, valid.fields.q.dtype(), [Q, K, V, Y, LSE, LENGTHS])?;
    // Without keys nothing is looked up.
    if let Some(pages) = geometry.pages.filter(|_| geometry.keys > 0) {
        let numbers = strides_of(slots, PAGES);
        params.pages = sys::bops_attention_pages {
            count: pages.count,
            sample: numbers.sample,
            column: numbers.head,
            page: word(pages.page),
            dtype: c_element(pages.dtype),
        };
    }
    Ok((params, vectors(slots, &[(Y, sys::BOPS_ATTENTION_Y)])))
}

/// The operands of a run of forward.
pub(super) fn operands_of_forward(located: &Located<'_>) -> sys::bops_attention_operands {
    use rows_of_forward::{BIAS, K, LENGTHS, LSE, PAGES, Q, V, Y};
    sys::bops_attention_operands {
        q: located.pointer(Q).cast_const(),
        k: located.pointer(K).cast_const(),
        v: located.pointer(V).cast_const(),
        bias: located.pointer(BIAS).cast_const(),
        lengths: located.pointer(LENGTHS).cast_const(),
        pages: located.pointer(PAGES).cast_const(),
        y: located.pointer(Y),
        lse: located.pointer(LSE),
    }
}

/// A tile of queries to a block.
pub(super) fn forward<'d>(valid: &'d Valid<ForwardFields>, _: &Props, _: Ask) -> Accepted<'d> {
    use rows_of_forward::{K, Q, V, Y};
    let (geometry, slots) = (&valid.derived, &valid.slots);
    let dtype = valid.fields.q.dtype();
    let (params, of_y) = params_of_forward(valid)?;
    let in_vectors = [(Q, sys::BOPS_ATTENTION_Q), (K, sys::BOPS_ATTENTION_K), (V, sys::BOPS_ATTENTION_V)];
    let choice = sys::bops_attention_choice {
        padded: padded(geometry, classes(dtype)),
        vectors: vectors(slots, &in_vectors) | of_y,
    };
    let has_work = !valid.slots.always(Y).desc.is_empty();
    let is_paged = params.pages.page != 0;
    Ok(calls!(bops_attention_simt)
        .candidate(has_work, (params.dtype, params, choice, is_paged), operands_of_forward)
        .batch_invariant())
}

/// A form of backward whose choice is a `C`.
pub(super) type Form<C> =
    Calls<sys::bops_dtype, sys::bops_attention_backward_params, C, sys::bops_attention_backward_operands>;

fn operands(located: &Located<'_>) -> sys::bops_attention_backward_operands {
    use rows_of_backward::{BIAS, DBIAS, DK, DQ, DV, DY, K, LENGTHS, LSE, Q, V, Y};
    sys::bops_attention_backward_operands {
        q: located.pointer(Q).cast_const(),
        k: located.pointer(K).cast_const(),
        v: located.pointer(V).cast_const(),
        y: located.pointer(Y).cast_const(),
        lse: located.pointer(LSE).cast_const(),
        dy: located.pointer(DY).cast_const(),
        bias: located.pointer(BIAS).cast_const(),
        lengths: located.pointer(LENGTHS).cast_const(),
        dq: located.pointer(DQ),
        dk: located.pointer(DK),
        dv: located.pointer(DV),
        dbias: located.pointer(DBIAS),
    }
}

/// What the forms of backward are told.
pub(super) fn params_of_backward(valid: &Valid<BackwardFields>) -> Result<sys::bops_attention_backward_params, Reason> {
    use rows_of_backward::{DBIAS, DK, DQ, DV, DY, K, LENGTHS, LSE, Q, V, Y};
    let (fields, geometry, slots) = (&valid.fields, &valid.derived, &valid.slots);
    let dtype = fields.q.dtype();
    let of = params(geometry, slots, dtype, [Q, K, V, Y, LSE, LENGTHS])?;
    let gradient = |row, gradient: Option<Gradient>| sys::bops_attention_gradient {
        strides: strides_of(slots, row),
        beta: gradient.map_or(0.0, Gradient::beta),
    };
    let [bias_samples, bias_heads, bias_queries, bias_keys] = geometry.bias_dims;
    if fields.dbias.is_some() {
        let tiles = [bias_queries, bias_keys].map(|extent| extent.div_ceil(LEAST_OF_BIAS));
        check_blocks([bias_samples, bias_heads].into_iter().chain(tiles).fold(1, u64::saturating_mul))?;
    }
    // The strides of the gradient of the bias are those of its own axes, the last ones of the scores.
    let mut of_bias = gradient(DBIAS, fields.dbias);
    if let Some(slot) = slots.at(DBIAS) {
        let mut own = [0; 4];
        own[4 - slot.desc.rank()..].copy_from_slice(slot.desc.strides());
        let [sample, head, row, column] = own;
        of_bias.strides = sys::bops_attention_strides { sample, head, row, column };
    }
    Ok(sys::bops_attention_backward_params {
        of,
        dy: strides_of(slots, DY),
        dq: gradient(DQ, fields.dq),
        dk: gradient(DK, fields.dk),
        dv: gradient(DV, fields.dv),
        dbias: of_bias,
        bias_samples: word(bias_samples),
        bias_heads: word(bias_heads),
        bias_queries: word(bias_queries),
        bias_keys: word(bias_keys),
    })
}

/// The launches of a backward.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    delta: bool,
    queries: Option<sys::bops_attention_choice>,
    keys: Option<sys::bops_attention_choice>,
    bias: Option<sys::bops_attention_choice>,
}

/// The sums of dy and y of queries, then a tile of queries, of keys or of the bias to a block.
pub(super) fn backward<'d>(valid: &'d Valid<BackwardFields>, _: &Props, _: Ask) -> Accepted<'d> {
    use rows_of_backward::{DBIAS, DK, DQ, DV, DY, K, Q, V};
    let (fields, geometry, slots) = (&valid.fields, &valid.derived, &valid.slots);
    let dtype = fields.q.dtype();
    let params = params_of_backward(valid)?;
    let in_vectors = [
        (Q, sys::BOPS_ATTENTION_Q),
        (K, sys::BOPS_ATTENTION_K),
        (V, sys::BOPS_ATTENTION_V),
        (DY, sys::BOPS_ATTENTION_DY),
        (DQ, sys::BOPS_ATTENTION_DQ),
        (DK, sys::BOPS_ATTENTION_DK),
        (DV, sys::BOPS_ATTENTION_DV),
    ];
    let vectors = vectors(slots, &in_vectors);
    let with = |classes| sys::bops_attention_choice { padded: padded(geometry, classes), vectors };
    let has_elements = |rows: &[usize]| slots.all_at(rows).any(|slot| !slot.desc.is_empty());
    let rows = [geometry.samples, geometry.heads, geometry.queries].into_iter().product::<u64>();
    let choice = Choice {
        delta: rows > 0,
        queries: has_elements(&[DQ]).then(|| with(classes(dtype))),
        keys: has_elements(&[DK, DV]).then(|| with(classes(dtype))),
        bias: has_elements(&[DBIAS]).then(|| with(&[64, 256])),
    };
    let forms: Vec<_> = [
        (calls!(bops_attention_backward_delta), choice.delta.then_some(with(classes(dtype)))),
        (calls!(bops_attention_backward_queries), choice.queries),
        (calls!(bops_attention_backward_keys), choice.keys),
        (calls!(bops_attention_backward_bias), choice.bias),
    ]
    .into_iter()
    .filter_map(|(form, choice)| Some((form, choice?)))
    .collect();
    let bytes = rows * dtype.accumulator().size_bytes();
    Ok(in_turn(choice, forms, params, bytes).batch_invariant_if(fields.dbias.is_none()))
}

/// The candidate that launches forms one after another, each with its choice, and a workspace of so many bytes for all. `choice`: what it is known by.
pub(super) fn in_turn<C: Numbers>(
    choice: impl Debug + Copy + PartialEq + Send + Sync + 'static,
    forms: Vec<(Form<C>, C)>,
    params: sys::bops_attention_backward_params,
    workspace_bytes: u64,
) -> Candidate<'static> {
    let launches = word(forms.len() as u64);
    let build = move |device: &crate::backend::Device| {
        let device = Device::of(device)?;
        let starts: Vec<Box<Start>> = forms
            .into_iter()
            .map(|(form, choice)| {
                let run = form.prepare(device, params.of.dtype, params, choice, ())?;
                let start = move |located: &Located<'_>, stream: *mut c_void| {
                    run(&operands(located), located.workspace_pointer(), stream)
                };
                Ok(Box::new(start) as Box<Start>)
            })
            .collect::<Result<_, BuildError>>()?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            starts.iter().map(|start| start(located, stream)).find(|&status| status != 0).unwrap_or(0)
        };
        Ok(Built::from(Launch::new("bops_attention_backward", start)))
    };
    let workspace = WorkspaceReq::new(workspace_bytes, VEC_BYTES);
    Candidate { workspace, launches, ..Candidate::new(choice, build) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_of_rows_that_start_at_multiples_of_them() {
        let fits =
            |dtype, dims: &[u64], strides: &[u64]| has_vectors(&TensorDesc::strided(dtype, dims, strides).unwrap());
        assert!(fits(DType::F32, &[2, 3, 5, 8], &[120, 40, 8, 1]) && fits(DType::BF16, &[2, 3, 5, 4], &[60, 4, 12, 1]));
        assert!(!fits(DType::F32, &[2, 3, 5, 6], &[120, 40, 8, 1]));
        assert!(!fits(DType::F32, &[2, 3, 5, 8], &[120, 40, 9, 1]));
        assert!(!fits(DType::F32, &[2, 3, 5, 8], &[120, 40, 1, 5]));
    }
}
