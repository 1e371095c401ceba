//! The WGSL kernel of both passes: what it is told of the extents, and its grid.

use super::geometry::Sampling;
use super::{Coordinates, ResizeDescriptor, ResizeMode, Valid, backward, forward};
use crate::backend::wgpu::{Props, ShaderType, StepBuilder, Variants, Work, check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::word;
use crate::ops::movement::wgpu::{Side, binding, bytes, pack_units, units_of_chunk, workgroup, wrapped};
use crate::ops::valid::Direction;
use crate::tensor::TensorDesc;

/// Extents that are resized at most, as in the shader.
const SAMPLINGS: usize = 3;

/// Both passes.
pub(super) fn work(valid: &Valid, props: &Props) -> std::result::Result<Work<()>, Reason> {
    let resizing = &valid.derived;
    let of_x = ShaderType::of(valid.fields.x.dtype())?;
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    Reason::unless(
        resizing.samplings.iter().all(Sampling::is_short),
        || "it computes positions in numbers of 31 bits: the product of an extent before and after, each by their greatest common divisor, passes them",
    )?;
    let mut work = Work::none((), props);
    if resizing.elements() > 0 {
        work.steps.push(step(valid, of_x, props)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

fn step(valid: &Valid, of_x: ShaderType, props: &Props) -> std::result::Result<StepBuilder, Reason> {
    let resizing = &valid.derived;
    let unit_bytes = valid.fields.x.dtype().size_bytes();
    let (line, per_chunk) = (resizing.line(), units_of_chunk(unit_bytes));
    let chunks_of_line = line.extent.div_ceil(per_chunk);
    let chunks = resizing.elements() / line.extent * chunks_of_line;
    let workgroup = workgroup(props);
    let grid = groups(chunks.div_ceil(workgroup.into()), props)?;
    let outer = || resizing.axes.iter().rev().skip(1);
    let y =
        Side { is_run: line.to == 1, is_aligned: outer().all(|axis| axis.to.is_multiple_of(per_chunk)), unit_bytes };
    let mut words = vec![[word(chunks), grid[0], word(chunks_of_line), 0]];
    // Of a single element there is no axis.
    let axes: Vec<_> = std::iter::once(line).chain(outer().copied()).collect();
    words.extend(axes.iter().map(|axis| {
        let sampling = axis.sampling.unwrap_or(SAMPLINGS);
        [word(axis.extent), word(axis.to), word(axis.from), word(sampling as u64)]
    }));
    for at in 0..SAMPLINGS {
        let [first, second] = match resizing.samplings.get(at) {
            Some(&Sampling { slope, start, unit, from, to, step }) => {
                [[wrapped(slope), wrapped(start), wrapped(unit), 0], [word(from), word(to), word(step), 0]]
            }
            None => [[0; 4]; 2],
        };
        words.extend([first, second]);
    }
    let [source, target] = match valid.op.kind {
        Direction::Forward => [forward::X, forward::Y],
        Direction::Backward => [backward::DY, backward::DX],
    };
    let half = if of_x.is_half() { of_x } else { ShaderType::F16 };
    let (read, bits, elements) = match of_x.is_half() {
        true => ("unpack(x_bits(at)).x", "round_to_half(value)", "scattered_half_in"),
        false => ("bitcast<f32>(x_bits(at))", "bitcast<u32>(value)", "scattered_f32_in"),
    };
    let generated = format!(
        "fn element_at(at: u32) -> f32 {{\n    return {read};\n}}\nfn bits(value: f32) -> u32 {{\n    return {bits};\n}}\n{}{}",
        y.store("params.axes[0].y"),
        pack_units(unit_bytes),
    );
    let (taps, _) = resizing.mode.taps();
    Ok(StepBuilder {
        entry: "resize",
        files: vec![half.file(), "movement/movement", "window/resize", "common/chunk"],
        generated,
        constants: vec![
            ("WORKGROUP", workgroup),
            ("ELEMENTS", word(per_chunk)),
            ("AXES", word(axes.len() as u64)),
            ("TAPS", taps),
            ("SAMPLED", word(resizing.samplings.len() as u64)),
        ],
        flags: vec![("IS_BACKWARD", resizing.is_backward)],
        bindings: vec![binding("x", source, [elements; 2]), binding("y", target, y.accessors_out())],
        can_chunk: line.extent.is_multiple_of(per_chunk),
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    })
}

/// The texts of the kernel, for the tests that validate them.
///
/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for mode in ResizeMode::ALL {
                let (x, last) =
                    (TensorDesc::contiguous(dtype, &[2, 3, 4, 8])?, TensorDesc::channels_last(dtype, &[2, 3, 4, 8])?);
                for x in [x, last] {
                    for sizes in [vec![16], vec![5, 7], vec![1, 4, 8], vec![2, 6, 9]] {
                        let resize = ResizeDescriptor::new(x, sizes, mode)?.coordinates(Coordinates::Asymmetric)?;
                        let backward = resize.backward()?;
                        variants.add_work(&format!("resize of {dtype}"), work(&resize.0, props), props);
                        variants.add_work(&format!("resize_backward of {dtype}"), work(&backward.0, props), props);
                    }
                }
            }
        }
    }
    Ok(())
}
