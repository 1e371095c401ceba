//! The WGSL kernels: how many workgroups share x, and both dispatches.

use super::{NonzeroDescriptor, Valid, forward};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, Variants, Work, check_bindings, check_reach, check_workspace, groups,
};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::{stride, word};
use crate::ops::movement::wgpu::{binding, bytes, halves, workgroup};
use crate::tensor::TensorDesc;

/// Elements of a thread in a tile.
const STEPS: u64 = 8;
/// The most workgroups that share x. Each of the second dispatch adds up the counts of all.
const MOST_SHARES: u64 = 1024;

pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let (nonzero, slots) = (&valid.derived, &valid.slots);
    check_reach(slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let mut work = Work::none((), props);
    if nonzero.rows == 0 && valid.fields.count.is_none() {
        return Ok(work);
    }
    let (walk, x) = (nonzero.walk(), &nonzero.x);
    let elements = walk.elements();
    let threads = workgroup(props);
    let tiles = elements.div_ceil(u64::from(threads) * STEPS);
    let of_share = tiles.div_ceil(MOST_SHARES).max(1);
    let shares = tiles.div_ceil(of_share).max(1);
    let grid = groups(shares, props)?;
    let [mask, fill] = [nonzero.mask, nonzero.fill].map(halves);
    let columns = if valid.fields.per_axis { x.rank() } else { 0 };
    let mut words = vec![
        [word(elements), grid[0], word(tiles), word(shares)],
        [word(nonzero.rows), stride(nonzero.row), stride(nonzero.column), word(of_share)],
        [mask[0], mask[1], fill[0], fill[1]],
    ];
    let axes = walk.dims.len().max(columns).max(1);
    // Beside an extent of 0 another may have any size, and none is looked at.
    let extent_word = |extent: u64| if elements == 0 { 1 } else { word(extent) };
    for at in 0..axes {
        let of_walk = walk.dims.len().checked_sub(at + 1);
        let (extent, step) = of_walk.map_or((1, 0), |axis| (walk.dims[axis], walk.strides[1][axis]));
        let of_x = x.rank().checked_sub(at + 1).map_or(1, |axis| x.dims()[axis]);
        words.push([extent_word(extent), stride(step), extent_word(of_x), 0]);
    }
    let counts = Place::Workspace { offset: 0, bytes: 4 * shares };
    work.workspace_bytes = 4 * shares;
    check_workspace(work.workspace_bytes, props)?;
    let is_there = match (elements, x.dtype().size_bytes()) {
        (0, _) => "false",
        (_, 8) => "((x_bits(2u * at) & params.mask.x) | (x_bits(2u * at + 1u) & params.mask.y)) != 0u",
        _ => "(x_bits(at) & params.mask.x) != 0u",
    };
    let of_x = format!("fn is_there(at: u32) -> bool {{\n    return {is_there};\n}}\n");
    let step = |entry: &'static str, file: &'static str, generated: String, bindings: Vec<Binding>| StepBuilder {
        entry,
        files: vec!["movement/movement", "index/sum_before", "index/nonzero_shares", file],
        generated,
        constants: vec![
            ("WORKGROUP", threads),
            ("ELEMENTS", 4),
            ("STEPS", word(STEPS)),
            ("AXES", word(axes as u64)),
            ("COLUMNS", word(columns as u64)),
        ],
        bindings,
        ignores_layouts: true,
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    };
    let own = |accessor: &'static str| Binding { name: "counts", place: Some(counts), accessors: [accessor; 2] };
    let read = (elements > 0).then(|| binding("x", forward::X, [accessor(x.dtype()); 2]));
    let counting = read.iter().cloned().chain([own("scattered_f32_out")]).collect();
    work.steps.push(step("nonzero_count", "index/nonzero_count", of_x.clone(), counting));
    let mut bindings: Vec<_> = read.into_iter().chain([own("scattered_f32_in")]).collect();
    let mut put_index = String::new();
    if nonzero.rows > 0 {
        bindings.push(binding("indices", forward::INDICES, ["scattered_f32_out"; 2]));
        let words = index_words(valid);
        put_index = format!("    indices_scatter({words}u * at, 1u, {words}u, vec4<u32>(index.x, index.y, 0u, 0u));\n");
    }
    let mut put_count = String::new();
    if let Some(dtype) = valid.fields.count {
        bindings.push(binding("count", forward::COUNT, ["scattered_f32_out"; 2]));
        put_count = format!("    count_scatter(0u, 1u, {}u, vec4<u32>(count, 0u, 0u, 0u));\n", dtype.size_bytes() / 4);
    }
    let generated = format!(
        "{of_x}\nfn put_index(at: u32, index: vec2<u32>) {{\n{put_index}}}\n\nfn put_count(count: u32) {{\n{put_count}}}\n"
    );
    work.steps.push(step("nonzero", "index/nonzero", generated, bindings));
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// Words of an index.
fn index_words(valid: &Valid) -> u64 {
    valid.slots.always(forward::INDICES).desc.dtype().size_bytes() / 4
}

/// How elements of a type are read one by one.
fn accessor(dtype: DType) -> &'static str {
    match dtype.size_bytes() {
        1 => "scattered_byte_in",
        2 => "scattered_half_in",
        _ => "scattered_f32_in",
    }
}

/// The texts of the kernels, for the tests that validate them.
///
/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::Bool] {
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 8], &[1000, 2, 7, 500, 50])?;
            for x in [TensorDesc::contiguous(dtype, &[40, 3])?, higher, TensorDesc::contiguous(dtype, &[0, 3])?] {
                let name = format!("nonzero of {dtype}");
                let nonzero = NonzeroDescriptor::of_size(x, 9)?;
                variants.add_work(&name, work(&nonzero.0, props), props);
                variants.add_work(&name, work(&nonzero.clone().per_axis()?.count(DType::I64)?.0, props), props);
                variants.add_work(
                    &name,
                    work(&nonzero.clone().indices(DType::U32)?.count(DType::U32)?.0, props),
                    props,
                );
                variants.add_work(&name, work(&nonzero.size(0)?.count(DType::U32)?.0, props), props);
            }
        }
    }
    Ok(())
}
