//! The WGSL kernels: in which units elements move, and the dispatches.
//!
//! Shaders move words of 4 bytes, and of elements of 1 or 2 bytes single ones where words do not do. Elements and indices of 8 bytes are two words.

use super::geometry::Axis;
use super::{Valid, forward};
use crate::backend::wgpu::{Props, StepBuilder, Work, check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{stride, word};
use crate::ops::movement::wgpu::{Side, WORD_BYTES, binding, bytes, halves, pack_units, units_of_chunk, workgroup};
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

mod variants;
pub(in crate::ops) use variants::add_variants;

/// Any strides.
pub(super) fn strided(valid: &Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    // Of what is empty nothing is addressed; the count is written all the same.
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let mut work = Work::none((), props).batch_invariant_if(true);
    if valid.derived.units() > 0 {
        work.steps.push(look_up(valid, props)?);
    }
    if valid.fields.missing {
        let (indices, missing) = ((&valid.fields.indices, forward::INDICES), forward::MISSING);
        work.steps.extend(count_steps(indices, missing, (valid.derived.extent, valid.fields.from_end), props)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// What shaders know of the indices.
pub(in crate::ops::index) fn index_constants(dtype: DType, from_end: bool, step: &mut StepBuilder) {
    step.constants.push(("INDEX_WORDS", word(dtype.size_bytes() / WORD_BYTES)));
    step.flags.extend([("IS_SIGNED", dtype != DType::U32), ("FROM_END", from_end)]);
}

fn look_up(valid: &Valid, props: &Props) -> Result<StepBuilder, Reason> {
    let lookups = valid.derived.clone().narrowed(WORD_BYTES).widened(WORD_BYTES, WORD_BYTES);
    let (line, unit_bytes) = (lookups.line(), lookups.unit_bytes);
    let per_chunk = units_of_chunk(unit_bytes);
    let chunks_of_line = line.extent.div_ceil(per_chunk);
    let chunks = lookups.units() / line.extent * chunks_of_line;
    let workgroup = workgroup(props);
    let grid = groups(chunks.div_ceil(workgroup.into()), props)?;
    let outer = || lookups.axes.iter().rev().skip(1);
    let are_aligned = |stride: &dyn Fn(&Axis) -> u64| outer().all(|axis| stride(axis).is_multiple_of(per_chunk));
    let y = Side { is_run: line.y == 1, is_aligned: are_aligned(&|axis| axis.y), unit_bytes };
    let x = Side {
        is_run: lookups.has_runs(),
        is_aligned: are_aligned(&|axis| axis.x) && lookups.apart.is_multiple_of(per_chunk),
        unit_bytes,
    };
    let [even, odd] = halves(lookups.fill);
    let mut words = vec![
        [word(chunks), grid[0], word(chunks_of_line), word(line.extent)],
        [word(lookups.extent), word(lookups.apart), even, odd],
        [word(line.y), word(line.x), word(line.index), 0],
    ];
    words.extend(outer().map(|axis| [word(axis.extent), word(axis.y), word(axis.x), word(axis.index)]));
    if words.len() == 3 {
        words.push([1, 0, 0, 0]);
    }
    let (has_x, is_one_index) = (!valid.slots.always(forward::X).desc.is_empty(), line.index == 0);
    let load = match (has_x && is_one_index, x.is_run) {
        (false, _) => "vec4<u32>()",
        (_, true) => "x_load(at, count)",
        (_, false) => "x_gather(at, params.x_step, count)",
    };
    let read = if has_x && !is_one_index { "x_bits(at)" } else { "0u" };
    let generated = format!(
        "fn load_chunk(at: u32, count: u32) -> vec4<u32> {{\n    return {load};\n}}\nfn read_unit(at: u32) -> u32 {{\n    return {read};\n}}\n{}{}{INDEX_BITS}",
        y.store("params.y_step"),
        pack_units(unit_bytes),
    );
    let mut step = StepBuilder {
        entry: "lookup",
        files: vec!["movement/movement", "index/index", "index/lookup", "common/chunk"],
        generated,
        constants: vec![
            ("WORKGROUP", workgroup),
            ("ELEMENTS", word(per_chunk)),
            ("AXES", word(words.len() as u64 - 3)),
        ],
        flags: vec![("HAS_X", has_x), ("IS_ONE_INDEX", is_one_index)],
        bindings: vec![
            binding("x", forward::X, x.accessors_in()).bound_if(has_x, "absent_in"),
            binding("indices", forward::INDICES, ["scattered_f32_in"; 2]),
            binding("y", forward::Y, y.accessors_out()),
        ],
        can_chunk: line.extent.is_multiple_of(per_chunk),
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    };
    index_constants(valid.fields.indices.dtype(), valid.fields.from_end, &mut step);
    Ok(step)
}

/// How shaders read the words of the indices.
pub(in crate::ops::index) const INDEX_BITS: &str = "fn index_bits(at: u32) -> u32 {\n    return indices_bits(at);\n}\n";

/// Dispatches that count the indices that are out of range of `extent` positions. Both operands come with their rows.
pub(in crate::ops::index) fn count_steps(
    (indices, row): (&TensorDesc, usize),
    missing: usize,
    (extent, from_end): (u64, bool),
    props: &Props,
) -> Result<Vec<StepBuilder>, Reason> {
    let most = u64::from(u32::MAX);
    Reason::unless(extent <= most, || {
        format!("it counts indices along an axis of at most {most} positions; there are {extent}")
    })?;
    let phases: &[bool] = if indices.is_empty() { &[true] } else { &[true, false] };
    let step = |&is_clear: &bool| count(indices, [row, missing], (extent, from_end), props, is_clear);
    phases.iter().map(step).collect()
}

/// Counts the indices that are out of range, or clears the count.
fn count(
    indices: &TensorDesc,
    [row, missing]: [usize; 2],
    (extent, from_end): (u64, bool),
    props: &Props,
    is_clear: bool,
) -> Result<StepBuilder, Reason> {
    let walk = Walk::new(&[*indices]);
    let elements = if is_clear { 0 } else { walk.elements() };
    let workgroup = workgroup(props);
    // One clears.
    let grid = groups(elements.div_ceil(workgroup.into()).max(1), props)?;
    let mut words = vec![[word(elements), grid[0], word(extent), 0]];
    if !is_clear {
        let axes = walk.dims.iter().zip(&walk.strides[0]).rev();
        words.extend(axes.map(|(&extent, &of_axis)| [word(extent), stride(of_axis), 0, 0]));
    }
    if words.len() == 1 {
        words.push([1, 0, 0, 0]);
    }
    let no_bits = "fn index_bits(at: u32) -> u32 {\n    return 0u;\n}\n";
    let mut step = StepBuilder {
        entry: "lookup_missing",
        files: vec!["movement/movement", "index/index", "index/lookup_missing"],
        generated: if is_clear { no_bits } else { INDEX_BITS }.into(),
        constants: vec![("WORKGROUP", workgroup), ("AXES", word(words.len() as u64 - 1))],
        flags: vec![("IS_CLEAR", is_clear)],
        bindings: vec![
            binding("indices", row, ["scattered_f32_in"; 2]).bound_if(!is_clear, "absent_in"),
            binding("missing", missing, ["tally_out"; 2]),
        ],
        ignores_layouts: true,
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    };
    index_constants(indices.dtype(), from_end, &mut step);
    Ok(step)
}
