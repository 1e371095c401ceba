//! The WGSL kernel: its text and its one dispatch, a thread for each value.

use super::{INDICES, LINES, SearchSortedDescriptor, VALUES, Valid, forward};
use crate::backend::wgpu::{Binding, Place, Props, StepBuilder, Variants, Work, check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::{stride, word};
use crate::ops::movement::wgpu::halves;
use crate::ops::order::wgpu::accessor;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;

pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let (search, slots) = (&valid.derived, &valid.slots);
    check_reach(slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let mut work = Work::none((), props);
    let walk = Walk::new(&search.operands);
    let elements = walk.elements();
    if elements == 0 {
        return Ok(work);
    }
    let keys = search.keys();
    let workgroup = WORKGROUP.min(props.max_threads);
    let grid = groups(elements.div_ceil(workgroup.into()), props)?;
    let ([sign, infinity], has_sorted) = ([keys.sign, keys.infinity].map(halves), search.length > 0);
    let mut words = vec![
        [word(elements), grid[0], word(search.length), stride(search.step)],
        [sign[0], sign[1], infinity[0], infinity[1]],
    ];
    let own = |operand: usize, axis: usize| stride(walk.strides[operand][axis]);
    for (axis, &extent) in walk.dims.iter().enumerate().rev() {
        words.push([word(extent), own(INDICES, axis), own(VALUES, axis), own(LINES, axis)]);
    }
    if walk.dims.is_empty() {
        words.push([1, 0, 0, 0]);
    }
    let bits = |operand: &str| match keys.is_wide {
        false => format!("{operand}_bits(at)"),
        true => format!("vec2<u32>({operand}_bits(2u * at), {operand}_bits(2u * at + 1u))"),
    };
    let of_sorted = if has_sorted { bits("sorted") } else { "LAST_KEY".into() };
    // Of 64 bits two words, of which the upper one is 0.
    let index_words = slots.always(forward::INDICES).desc.dtype().size_bytes() / 4;
    let generated = format!(
        "fn sorted_element(at: u32) -> Key {{\n    return {of_sorted};\n}}\n\nfn value_element(at: u32) -> Key {{\n    return {};\n}}\n\nfn put_index(at: u32, index: u32) {{\n    indices_scatter({index_words}u * at, 1u, {index_words}u, vec4<u32>(index, 0u, 0u, 0u));\n}}\n",
        bits("values"),
    );
    let mut bindings = Vec::new();
    for row in [forward::SORTED, forward::VALUES, forward::INDICES] {
        let slot = slots.always(row);
        if row != forward::SORTED || has_sorted {
            let accessors = [accessor(slot.desc.dtype(), row == forward::INDICES); 2];
            bindings.push(Binding { name: slot.name, place: Some(Place::Operand(row)), accessors });
        }
    }
    work.steps.push(StepBuilder {
        entry: "search_sorted",
        files: vec!["order/search_sorted", if keys.is_wide { "order/keys_of_pairs" } else { "order/keys_of_words" }],
        generated,
        constants: vec![("WORKGROUP", workgroup), ("ELEMENTS", 4), ("AXES", word(words.len() as u64 - 2))],
        flags: vec![
            ("IS_FLOAT", keys.infinity > 0),
            ("IS_BOOL", keys.is_bool),
            ("IS_DESCENDING", keys.is_descending),
            ("IS_RIGHT", search.is_right),
        ],
        bindings,
        ignores_layouts: true,
        params: bytemuck::cast_slice(&words).to_vec(),
        grid,
        ..StepBuilder::default()
    });
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// The texts of the kernel, for the tests that validate them.
///
/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    let types =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U32, DType::Bool, DType::I8];
    for props in &Variants::devices() {
        for dtype in types {
            let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 8], &[1000, 2, 7, 500, 50])?;
            for (sorted, values) in
                [(dense(&[9])?, dense(&[4, 5])?), (dense(&[2, 1, 5, 1, 9])?, higher), (dense(&[0])?, dense(&[5])?)]
            {
                let search = SearchSortedDescriptor::new(sorted, values)?;
                let name = format!("search_sorted of {dtype}");
                variants.add_work(&name, work(&search.0, props), props);
                variants.add_work(&name, work(&search.right()?.indices(DType::U32)?.0, props), props);
            }
        }
    }
    Ok(())
}
