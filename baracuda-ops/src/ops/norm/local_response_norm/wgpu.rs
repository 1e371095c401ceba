//! The WGSL kernels: which variant serves what, and what they bind.

use super::{Geometry, LocalResponseNormDescriptor, Valid, backward, forward};
use crate::backend::wgpu::{
    Binding, Place, Props, ShaderType, StepBuilder, Variants, Work, check_reach, check_workspace, groups, padded,
    params,
};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::{single, stride, word};
use crate::ops::valid::Direction;
use crate::plan::{Access, Slot};
use crate::tensor::TensorDesc;

/// How elements are given to invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Neighbouring positions, walking over channels with the window in registers.
    Walk,
    /// Neighbouring channels; the windows' other values come through workgroup memory.
    Rows,
    /// An element, with all of its window read again.
    Direct,
}

/// What was chosen: invocations of a workgroup, positions or channels of an access, channels of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuned {
    variant: Variant,
    workgroup: u32,
    width: u32,
    chunk: u32,
}

/// Windows that invocations hold in registers.
const UNROLLED: [u64; 4] = [3, 5, 7, 9];
/// Invocations of a workgroup that walks.
const WALK_WORKGROUP: u64 = 128;
/// Invocations of the other workgroups.
const WORKGROUP: u64 = 256;
/// Invocations that keep a large GPU busy.
const BUSY_INVOCATIONS: u64 = 132 * 1024;
/// A sample of one position whose channels are neighbours is a row.
const FEW_POSITIONS: u64 = 2;

/// The dispatches of both passes.
pub(super) fn work(norm: &Valid, props: &Props) -> Result<Work<Option<Tuned>>, Reason> {
    let fields = &norm.fields;
    let dtype = ShaderType::of(fields.x.dtype())?;
    let geometry = Geometry::new(norm)?;
    check_reach(&norm.slots, &[], props)?;
    let Geometry { batch, channels, spatial, size, .. } = geometry;
    let is_forward = norm.op.kind == Direction::Forward;
    if geometry.elements() == 0 {
        return Ok(Work::none(None, props));
    }

    let is_unrolled = UNROLLED.contains(&size);
    let prefers_channels = geometry.channel_bytes > 0 && (geometry.position_bytes == 0 || spatial < FEW_POSITIONS);
    let rows_workgroup = WORKGROUP.min(u64::from(props.max_threads));
    // Offsets of operands are dealt with at run time: here strides count.
    let has_quads = |axis: usize, extent: u64| {
        let others = geometry.strides.iter().all(|s| (0..3).all(|a| a == axis || s[a].is_multiple_of(4)));
        extent.is_multiple_of(4) && others
    };
    let (variant, is_quad) = if is_unrolled && geometry.position_bytes > 0 && !prefers_channels {
        (Variant::Walk, has_quads(2, spatial))
    } else if is_unrolled && prefers_channels && has_quads(1, channels) && channels / 4 <= rows_workgroup {
        (Variant::Rows, true)
    } else {
        (Variant::Direct, false)
    };
    let width = if is_quad { 4 } else { 1 };
    let (workgroup, vectors, blocks, chunk, count) = match variant {
        Variant::Walk => {
            let vectors = spatial / width;
            let workgroup = WALK_WORKGROUP.min(u64::from(props.max_threads));
            let blocks = (batch * vectors).div_ceil(workgroup);
            let halo = if is_forward { size - 1 } else { 2 * (size - 1) };
            let most = (channels / (4 * halo)).max(1);
            let chunks = BUSY_INVOCATIONS.div_ceil(batch * vectors).clamp(1, most);
            let chunk = channels.div_ceil(chunks);
            (workgroup, vectors, blocks, chunk, blocks * channels.div_ceil(chunk))
        }
        Variant::Rows => {
            let vectors = channels / 4;
            let blocks = rows_workgroup / vectors;
            (rows_workgroup, vectors, blocks, channels, (batch * spatial).div_ceil(blocks))
        }
        Variant::Direct => (rows_workgroup, 1, 1, channels, geometry.elements().div_ceil(rows_workgroup)),
    };
    let dispatch = groups(count, props)?;

    let (beta, k) = (fields.beta.get(), fields.k.get());
    let has_roots = [0.5, 0.75, 1.0].contains(&beta) && (2f64.powi(-126)..=2f64.powi(127)).contains(&k);
    let half_powers = if beta == 0.75 { 3 } else { 1 + u32::from(beta != 0.5) };
    let strides = |position: usize| geometry.strides[position].map(stride);
    let is_last = u32::from(prefers_channels);
    // What both passes have, in the order of the WGSL structs.
    let extents = [word(batch), word(channels), word(spatial), 0];
    let powers = [geometry.scale, beta, k].map(single);
    let walk = [half_powers, word(vectors), word(blocks), word(chunk), is_last, dispatch[0]];
    let params = if is_forward {
        params! {
            extents: [u32; 4] = extents,
            x: [u32; 4] = padded(strides(forward::X)),
            y: [u32; 3] = strides(forward::Y),
            size: u32 = word(size),
            scale_beta_k: [f32; 3] = powers,
            half_powers_to_groups_x: [u32; 6] = walk,
            end: [u32; 3] = [0; 3],
        }
    } else {
        params! {
            extents: [u32; 4] = extents,
            dy: [u32; 4] = padded(strides(backward::DY)),
            x: [u32; 4] = padded(strides(backward::X)),
            dx: [u32; 3] = strides(backward::DX),
            size: u32 = word(size),
            scale_beta_k: [f32; 3] = powers,
            slope: f32 = single(2.0 * geometry.scale * beta),
            half_powers_to_groups_x: [u32; 6] = walk,
            end: [u32; 2] = [0; 2],
        }
    };

    let is_half = dtype.is_half();
    let [input, output] = match (is_quad, is_half) {
        (true, false) => [["chunks_f32_in", "fours_f32_in"], ["chunks_f32_out", "fours_f32_out"]],
        (true, true) => [["pairs_half_in", "fours_half_in"], ["pairs_half_out", "fours_half_out"]],
        (false, false) => [["elements_f32_in"; 2], ["elements_f32_out"; 2]],
        (false, true) => [["elements_half_in"; 2], ["elements_half_out"; 2]],
    };
    let operand = |slot: &Slot| {
        let accessors = if slot.access == Access::In { input } else { output };
        Binding { name: slot.name, place: Some(Place::Operand(slot.index)), accessors }
    };
    let step = |entry: &'static str, file: &'static str, bindings: Vec<Binding>| {
        let mut files = if is_half { vec![dtype.file()] } else { Vec::new() };
        files.push("common/power");
        files.push(if is_quad {
            "norm/local_response/local_response_quad"
        } else {
            "norm/local_response/local_response_single"
        });
        files.extend(["norm/local_response/local_response", file]);
        match variant {
            Variant::Walk => {}
            Variant::Rows if is_forward => files
                .extend(["norm/local_response/local_response_rows", "norm/local_response/local_response_norm_rows"]),
            Variant::Rows => files.extend([
                "norm/local_response/local_response_rows",
                "norm/local_response/local_response_norm_backward_rows",
            ]),
            Variant::Direct => files.push("norm/local_response/local_response_direct"),
        }
        if variant == Variant::Direct {
            files.push(match entry {
                "local_response_norm_direct" => "norm/local_response/local_response_norm_direct",
                "local_response_norm_backward_direct_terms" => {
                    "norm/local_response/local_response_norm_backward_direct_terms"
                }
                _ => "norm/local_response/local_response_norm_backward_direct",
            });
        }
        StepBuilder {
            constants: vec![("WORKGROUP", word(workgroup)), ("SIZE", if is_unrolled { word(size) } else { 1 })],
            flags: vec![("ROOTS", has_roots)],
            bindings,
            can_chunk: is_quad,
            ..StepBuilder::new(entry, files, params.clone(), dispatch)
        }
    };
    let (width, chunk) = (word(width), word(chunk));
    let mut work = Work::none(Some(Tuned { variant, workgroup: word(workgroup), width, chunk }), props);
    let bind = |operands: &[usize]| norm.slots.all_at(operands).map(operand).collect::<Vec<_>>();
    use backward::{DX, DY, X};
    if is_forward {
        let entry = match variant {
            Variant::Walk => "local_response_norm_walk",
            Variant::Rows => "local_response_norm_rows",
            Variant::Direct => "local_response_norm_direct",
        };
        work.steps.push(step(entry, "norm/local_response/local_response_norm", bind(&[forward::X, forward::Y])));
        return Ok(work);
    }
    let file = "norm/local_response/local_response_norm_backward";
    match variant {
        Variant::Walk => work.steps.push(step("local_response_norm_backward_walk", file, bind(&[DY, X, DX]))),
        Variant::Rows => work.steps.push(step("local_response_norm_backward_rows", file, bind(&[DY, X, DX]))),
        Variant::Direct => {
            let bytes = geometry.elements() * 4;
            check_workspace(bytes, props)?;
            let after_terms = bytes.next_multiple_of(props.workspace_align());
            work.workspace_bytes = after_terms + bytes;
            let parts = |accessor| {
                [("terms", 0), ("roots", after_terms)]
                    .map(|(name, offset)| Binding::partials(name, offset, bytes, accessor))
            };
            let mut bindings = bind(&[DY, X]);
            bindings.push(Binding::absent("dx", "absent_elements_out"));
            bindings.extend(parts("elements_f32_out"));
            work.steps.push(step("local_response_norm_backward_direct_terms", file, bindings));
            let mut bindings = bind(&[DY, X, DX]);
            bindings.extend(parts("elements_f32_in"));
            work.steps.push(step("local_response_norm_backward_direct", file, bindings));
        }
    }
    Ok(work)
}

pub(in super::super) fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    Variants::collect(add_variants)
}

/// # Errors
/// A descriptor that is not valid.
fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (dims, is_last) in [([2, 16, 8, 8], false), ([2, 16, 3, 3], false), ([2, 16, 3, 3], true)] {
                let x = if is_last {
                    TensorDesc::channels_last(dtype, &dims)?
                } else {
                    TensorDesc::contiguous(dtype, &dims)?
                };
                for (size, beta) in [(3, 0.5), (5, 0.75), (7, 1.0), (9, 2.0), (4, 0.75), (4, 2.0)] {
                    let forward = LocalResponseNormDescriptor::new(x, size)?.beta(beta)?;
                    let backward = forward.backward()?;
                    for norm in [&forward.0, &backward.0] {
                        let name = format!("{dtype} {dims:?} size {size} beta {beta} channels last {is_last}");
                        variants.add_work(&name, work(norm, props), props);
                    }
                }
            }
        }
    }
    Ok(())
}
