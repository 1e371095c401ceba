//! The WGSL kernel: its text and a dispatch for each pass.

mod variants;

use std::fmt::Write;

use super::passes::{self, MOST_STAGES, Pass, SPECTRUM, Source, Target, flags, kinds};
use super::{Geometry, Valid, forward};
use crate::backend::wgpu::{
    Binding, LEAST_WORKGROUP_BYTES, Place, Props, StepBuilder, Work, check_bindings, check_reach, check_workspace,
    file, groups,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{single, stride, word};
use crate::ops::walk::Walk;

pub(in crate::ops) use variants::add_variants;

/// Threads of a workgroup: the most that WebGPU promises, each with 8 points.
const THREADS: u32 = 256;
/// Bytes of a complex number.
const PAIR_BYTES: u64 = 8;
/// Points that a workgroup holds in the memory that WebGPU promises.
const POINTS: u64 = LEAST_WORKGROUP_BYTES / PAIR_BYTES;
/// How numbers are read and written beside pairs, real numbers and halves, as `csrc/fft/fft.wgsl` numbers it.
const WORK: u32 = 3;
const CHIRP: u32 = 4;

pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let geometry = &valid.derived;
    Reason::unless(geometry.others[0].dtype() == DType::F32, || "WGSL has no arithmetic of f64 to rely on")?;
    Reason::unless(props.max_threads >= THREADS, || {
        format!("its workgroups have {THREADS} threads, this device has at most {}", props.max_threads)
    })?;
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let walk = geometry.lines();
    let passes::Passes { passes, ranges } = passes::passes(geometry, &walk, POINTS)?;
    let mut work = Work::none((), props).batch_invariant_if(valid.has_packed_samples());
    // Each range starts where a binding can.
    let mut places = [(0, 0); 3];
    for (place, pairs) in places.iter_mut().zip(ranges) {
        let bytes = pairs.saturating_mul(PAIR_BYTES);
        check_workspace(bytes, props)?;
        *place = (work.workspace_bytes, bytes);
        work.workspace_bytes += bytes.next_multiple_of(props.workspace_align());
    }
    check_workspace(work.workspace_bytes, props)?;
    for pass in &passes {
        work.steps.push(step(geometry, &walk, pass, &places, props)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

fn step(
    geometry: &Geometry,
    walk: &Walk,
    pass: &Pass,
    places: &[(u64, u64); 3],
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let grid = groups(pass.lines.div_ceil(pass.of_group), props)?;
    let kinds = kinds(geometry);
    let range = |name, at: usize, accessor| {
        let (offset, bytes) = places[at];
        Binding { name, place: Some(Place::Workspace { offset, bytes }), accessors: [accessor; 2] }
    };
    let operand =
        |name, index, accessor| Binding { name, place: Some(Place::Operand(index)), accessors: [accessor; 2] };
    let mut bindings = Vec::new();
    let from = match pass.source {
        Source::X => {
            bindings.push(operand("x", forward::X, "scattered_f32_in"));
            kinds[0]
        }
        Source::Work(at) => {
            bindings.push(range("x", at, "scattered_f32_in"));
            WORK
        }
        Source::Chirp => CHIRP,
    };
    let has_spectrum = pass.flags & flags::CONVOLVES != 0;
    if has_spectrum {
        bindings.push(range("spectrum", SPECTRUM, "scattered_f32_in"));
    }
    let to = match pass.target {
        Target::Y => {
            bindings.push(operand("y", forward::Y, "scattered_f32_out"));
            kinds[1]
        }
        Target::Work(at) => {
            bindings.push(range("y", at, "scattered_f32_out"));
            WORK
        }
    };
    Ok(StepBuilder {
        entry: "fft",
        files: vec!["fft/fft"],
        generated: text(pass, from != CHIRP, has_spectrum),
        constants: vec![
            ("WORKGROUP", THREADS),
            ("MOST_POINTS", word(POINTS)),
            ("AXES", word(walk.dims.len().max(1) as u64)),
        ],
        bindings,
        ignores_layouts: true,
        params: params(geometry, walk, pass, grid, [from, to]),
        grid,
        ..StepBuilder::default()
    })
}

/// The stages of the radices of a pass, in the order of their first use, what calls them, and what reads operands, where there are any.
fn text(pass: &Pass, has_source: bool, has_spectrum: bool) -> String {
    let mut text = String::with_capacity(8 << 10);
    let mut radices = pass.radices.clone();
    radices.sort_unstable();
    radices.dedup();
    for radix in &radices {
        text.push_str(&file("fft/fft_stage").replace("RADIX", &radix.to_string()));
    }
    let mut line = |line: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    line("fn stage(index: u32, radix: u32, lines: u32, before: u32) {\n    switch (radix) {");
    for radix in &radices {
        line(&format!("        case {radix}u: {{ stage_{radix}(index, lines, before); }}"));
    }
    line("        default: {}\n    }\n}\n");
    for (name, operand, is_there) in [("source", "x", has_source), ("spectrum_number", "spectrum", has_spectrum)] {
        let number = if is_there { format!("bitcast<f32>({operand}_bits(at))") } else { "0.0".into() };
        line(&format!("fn {name}(at: u32) -> f32 {{\n    return {number};\n}}\n"));
    }
    text
}

fn params(geometry: &Geometry, walk: &Walk, pass: &Pass, grid: [u32; 2], [from, to]: [u32; 2]) -> Vec<u8> {
    let mut radices = [0; MOST_STAGES];
    radices[..pass.radices.len()].copy_from_slice(&pass.radices);
    let bits = |value: f64| single(value).to_bits();
    let mut words = vec![
        [word(pass.lines), grid[0], pass.flags, bits(pass.factor)],
        [from, to, word(pass.points), word(pass.inners)],
        [word(pass.of_group), word(pass.line_step), word(pass.whole), word(pass.padded)],
        [word(pass.from[0]), word(pass.from[1]), word(pass.to[0]), word(pass.to[1])],
        [stride(geometry.steps[1]), stride(geometry.parts[1]), stride(geometry.steps[0]), stride(geometry.parts[0])],
        [word(geometry.points), bits(geometry.inner.get()), word(pass.radices.len() as u64), 0],
        [radices[0], radices[1], radices[2], radices[3]],
        [radices[4], radices[5], radices[6], radices[7]],
    ];
    let own = |operand: usize, axis: usize| stride(walk.strides[operand][axis]);
    for (axis, &extent) in walk.dims.iter().enumerate().rev() {
        words.push([word(extent), own(1, axis), own(0, axis), 0]);
    }
    if walk.dims.is_empty() {
        words.push([1, 0, 0, 0]);
    }
    bytemuck::cast_slice(&words).to_vec()
}
