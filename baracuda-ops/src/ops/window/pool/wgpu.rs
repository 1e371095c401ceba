//! The WGSL kernels: how threads share windows, and what they are told.

use super::geometry::{Axis, strides};
use super::{Pooling, Valid, backward as rows_of_backward, forward};
use crate::backend::wgpu::{Props, ShaderType, StepBuilder, Variants, Work, check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::conv::is_channels_last;
use crate::ops::movement::wgpu::{binding, bytes, workgroup};
use crate::tensor::TensorDesc;

/// Places of a window that are worth several threads.
const LEAST_WIDE: u64 = 128;
/// Elements that each thread of a shared window has at least.
const LEAST_OF_LANE: u64 = 8;
/// The terms that a thread adds up in chains and two further levels of them.
const MOST_OF_THREAD: u64 = 16 * 16 * 16;
/// Elements of a chunk, as accessors of single elements count.
const ELEMENTS: u32 = 4;

type Made<T> = std::result::Result<T, Reason>;

/// A thread to a window.
pub(super) fn windows(valid: &Valid, props: &Props, _: Ask) -> Made<Work<()>> {
    forward_work(valid, props, 1)
}

/// Several threads to a window.
pub(super) fn wide(valid: &Valid, props: &Props, ask: Ask) -> Made<Work<()>> {
    let places = valid.derived.places();
    ask.leave_if(places < LEAST_WIDE, "windows are small enough for a thread each")?;
    let most = u64::from(workgroup(props));
    let lanes = places.div_ceil(LEAST_OF_LANE).next_power_of_two().clamp(2.min(most), most);
    forward_work(valid, props, lanes)
}

/// No dispatch yet, where shaders count what there is.
fn reached(valid: &Valid, props: &Props) -> Made<Work<()>> {
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    for axis in &valid.derived.axes {
        let &Axis { input, output, before, after, stride, is_adaptive, .. } = axis;
        let most = u64::from(u32::MAX >> 1);
        Reason::unless(input.saturating_add(before + after + stride) <= most && output <= most, || {
            format!("it counts along an axis in 32 bits, which has {input} elements and a stride of {stride}")
        })?;
        let product = input.saturating_mul(output).saturating_add(input.max(output));
        Reason::unless(!is_adaptive || product <= u32::MAX.into(), || {
            format!("it divides {input} elements among {output} windows in 32 bits, in which their product has no room")
        })?;
    }
    Reason::unless(valid.derived.places() <= u64::from(u32::MAX >> 1), || {
        format!("it counts the places of a window in 32 bits, the longest has {}", valid.derived.places())
    })?;
    Ok(Work::none((), props))
}

/// The params of a dispatch over the elements of a tensor. `operands`: whose strides shaders take.
fn params(valid: &Valid, parts: u64, groups_x: u32, operands: &[usize]) -> Vec<u8> {
    let windows = &valid.derived;
    let factor = valid.common_divisor().map_or(0.0, |divisor| single(1.0 / divisor as f64));
    let mut words = vec![[word(parts), groups_x, word(windows.channels), factor.to_bits()]];
    for axis in &windows.axes {
        words.push([word(axis.input), word(axis.output), word(axis.kernel), word(axis.stride)]);
        words.push([word(axis.dilation), word(axis.before), word(axis.after), 0]);
    }
    for &operand in operands {
        let of = valid.slots.at(operand).map_or([0; 5], |slot| strides(&slot.desc));
        let [n, c, d, h, w] = of.map(stride);
        words.extend([[n, c, d, h], [w, 0, 0, 0]]);
    }
    bytes(&words)
}

/// What every shader of pooling is told.
fn step(valid: &Valid, dtype: ShaderType, entry: &'static str, file: &'static str, props: &Props) -> StepBuilder {
    let pooling = match valid.fields.pooling {
        Pooling::Max => 0,
        Pooling::Average => 1,
        Pooling::Norm1 => 2,
        Pooling::Norm2 => 3,
    };
    let half = if dtype.is_half() { dtype } else { ShaderType::F16 };
    StepBuilder {
        entry,
        files: vec![half.file(), file, "window/windows"],
        constants: vec![("WORKGROUP", workgroup(props)), ("ELEMENTS", ELEMENTS), ("POOLING", pooling)],
        flags: vec![
            ("X_IS_HALF", dtype.is_half()),
            ("IS_ADAPTIVE", valid.derived.axes.iter().any(|axis| axis.is_adaptive)),
            ("IS_CHANNELS_LAST", is_channels_last(&valid.fields.x)),
            ("EXCLUDES_PADDING", valid.fields.exclude_padding),
            ("HAS_FACTOR", valid.common_divisor().is_some()),
        ],
        ignores_layouts: true,
        ..StepBuilder::default()
    }
}

/// The accessors of single elements.
fn scattered(dtype: DType) -> [&'static str; 2] {
    match dtype.size_bytes() {
        1 => ["scattered_byte_in", "scattered_byte_out"],
        2 => ["scattered_half_in", "scattered_half_out"],
        _ => ["scattered_f32_in", "scattered_f32_out"],
    }
}

/// A function that writes the bits of an element, if the operand is there.
fn written(name: &str, operand: &str, is_there: bool) -> String {
    let store = format!("    {operand}_scatter(at, 1u, 1u, vec4<u32>(bits, 0u, 0u, 0u));\n");
    format!("fn {name}(at: u32, bits: u32) {{\n{}}}\n", if is_there { &store } else { "" })
}

/// A function that reads an element, 0 if the operand is not there.
fn read(name: &str, gives: &str, value: &str, is_there: bool) -> String {
    let value = if is_there {
        value
    } else if gives == "f32" {
        "0.0"
    } else {
        "0u"
    };
    format!("fn {name}(at: u32) -> {gives} {{\n    return {value};\n}}\n")
}

fn forward_work(valid: &Valid, props: &Props, lanes: u64) -> Made<Work<()>> {
    let dtype = ShaderType::of(valid.fields.x.dtype())?;
    let mut work = reached(valid, props)?;
    let of_thread = valid.derived.places().div_ceil(lanes);
    Reason::unless(valid.fields.pooling == Pooling::Max || of_thread <= MOST_OF_THREAD, || {
        format!("a thread adds up at most {MOST_OF_THREAD} terms, of the longest window it would have {of_thread}")
    })?;
    let y = valid.slots.always(forward::Y).desc;
    if y.is_empty() {
        return Ok(work);
    }
    let of_group = u64::from(workgroup(props)) / lanes;
    let grid = groups(y.elements().div_ceil(of_group), props)?;
    let [offsets, indices] = [forward::OFFSETS, forward::INDICES].map(|row| valid.slots.at(row).map(|slot| slot.desc));
    let mut step = step(valid, dtype, "pool", "window/pool", props);
    // Minus infinity, and infinity in the upper half of a word.
    let (lowest, infinity) = match dtype {
        ShaderType::F32 => (0xff80_0000, 0x7f80_0000),
        ShaderType::F16 => (0xfc00, 0x7c00_0000),
        ShaderType::BF16 => (0xff80, 0x7f80_0000),
    };
    step.constants.extend([("LANES", word(lanes)), ("LOWEST_BITS", lowest), ("INFINITY_BITS", infinity)]);
    let [of_x, of_y] = scattered(valid.fields.x.dtype());
    step.bindings = vec![binding("x", forward::X, [of_x; 2]), binding("y", forward::Y, [of_y; 2])];
    if let Some(desc) = offsets {
        step.bindings.push(binding("offset", forward::OFFSETS, [scattered(desc.dtype())[1]; 2]));
    }
    if indices.is_some() {
        step.bindings.push(binding("index", forward::INDICES, ["scattered_f32_out"; 2]));
    }
    let put_index = match indices {
        Some(_) => {
            "fn put_index(at: u32, words: vec2<u32>) {\n    index_scatter(at, 1u, 2u, vec4<u32>(words, 0u, 0u));\n}\n"
        }
        None => "fn put_index(at: u32, words: vec2<u32>) {\n}\n",
    };
    step.generated =
        [written("put_y", "y", true), written("put_offset", "offset", offsets.is_some()), put_index.into()].concat();
    let operands = [forward::X, forward::Y, forward::OFFSETS, forward::INDICES];
    step.params = params(valid, y.elements(), grid[0], &operands);
    step.grid = grid;
    work.steps.push(step);
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// Backward.
pub(super) fn backward(valid: &Valid, props: &Props, _: Ask) -> Made<Work<()>> {
    use rows_of_backward::{DX, DY, OFFSETS, X, Y};
    let of_x = valid.fields.x.dtype();
    let dtype = ShaderType::of(of_x)?;
    let mut work = reached(valid, props)?;
    let dx = valid.slots.always(DX).desc;
    if dx.is_empty() {
        return Ok(work);
    }
    let grid = groups(dx.elements().div_ceil(workgroup(props).into()), props)?;
    let mut step = step(valid, dtype, "pool_backward", "window/pool_backward", props);
    let offsets = valid.slots.at(OFFSETS).map(|slot| slot.desc);
    let [element_in, element_out] = scattered(of_x);
    step.bindings.push(binding("dy", DY, [element_in; 2]));
    if let Some(desc) = offsets {
        step.bindings.push(binding("offsets", OFFSETS, [scattered(desc.dtype())[0]; 2]));
    }
    let [has_x, has_y] = [X, Y].map(|row| valid.slots.at(row).is_some());
    for (name, row, is_there) in [("x", X, has_x), ("y", Y, has_y)] {
        if is_there {
            step.bindings.push(binding(name, row, [element_in; 2]));
        }
    }
    step.bindings.push(binding("dx", DX, [element_out; 2]));
    step.generated = [
        read("offset_at", "u32", "offsets_bits(at)", offsets.is_some()),
        read("x_at", "f32", "value_of(x_bits(at))", has_x),
        read("y_at", "f32", "value_of(y_bits(at))", has_y),
        written("put_dx", "dx", true),
    ]
    .concat();
    step.params = params(valid, dx.elements(), grid[0], &[DY, OFFSETS, X, Y, DX]);
    step.grid = grid;
    work.steps.push(step);
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// Every kind of shader of the op, without a device.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    use super::{PoolDescriptor, PoolWindow};
    let square = PoolWindow::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]);
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for pooling in Pooling::ALL {
                for window in [square.clone(), square.clone().ceil_mode(), PoolWindow::adaptive(&[5, 3])] {
                    for x in [
                        TensorDesc::contiguous(dtype, &[2, 3, 40, 40])?,
                        TensorDesc::channels_last(dtype, &[2, 3, 40, 40])?,
                    ] {
                        let mut forward = PoolDescriptor::new(x, pooling, window.clone())?;
                        if pooling == Pooling::Average {
                            forward = forward.exclude_padding()?;
                        }
                        if pooling == Pooling::Max {
                            add(variants, &forward, props);
                            forward = forward.offsets()?.indices()?;
                        }
                        add(variants, &forward, props);
                        let name = format!("pool_backward of {dtype}, {}", pooling.name());
                        variants.add_work(&name, backward(&forward.backward()?.0, props, Ask::Pinned), props);
                    }
                }
            }
        }
    }
    Ok(())
}

fn add(variants: &mut Variants, forward: &super::PoolDescriptor, props: &Props) {
    let valid = &forward.0;
    let name = format!("pool of {}, {}", valid.fields.x.dtype(), valid.fields.pooling.name());
    variants.add_work(&name, windows(valid, props, Ask::Pinned), props);
    variants.add_work(&name, wide(valid, props, Ask::Pinned), props);
}
