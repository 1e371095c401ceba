//! The WGSL kernels: how many threads take a line, and how lines are added up.

use super::{At, LossReduction, Valid, backward, forward};
use crate::backend::wgpu::{
    Binding, Place, Props, ShaderType, StepBuilder, Variants, Work, check_bindings, check_reach, check_workspace,
    groups, params,
};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::{single, stride, word};
use crate::ops::valid::Direction;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Elements of a chunk.
const ELEMENTS: u64 = 4;
/// The most elements of a line that one thread takes where the classes do not lie side by side: with more, the additions in its three chains would be more than
/// the contract allows.
const MOST_OF_THREAD: u64 = 8192;
/// Lines that a workgroup adds up.
const OF_TOTAL: u64 = 4096;
/// Extents of a line's number, and operands.
const EXTENTS: usize = 8;
const OPERANDS: usize = 5;

/// Both passes.
pub(super) fn work(valid: &Valid, props: &Props) -> std::result::Result<Work<()>, Reason> {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let of_x = ShaderType::of(fields.x.dtype())?;
    // Of what is empty nothing is addressed; a reduction is written all the same.
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let mut work = Work::none((), props).batch_invariant_if(fields.reduction == LossReduction::None);
    let is_reduced = valid.op.kind == Direction::Forward && fields.reduction != LossReduction::None;
    // Losses of lines, for the mean what they add to the divisor, and the sums of several workgroups of either, each from where a binding can start.
    let totals = lines.count.div_ceil(OF_TOTAL);
    let [of_lines, of_totals] =
        [lines.count, totals].map(|count| (count * 4).next_multiple_of(props.workspace_align().max(4)));
    if is_reduced {
        let each = if fields.reduction == LossReduction::Mean { 2 } else { 1 };
        work.workspace_bytes = each * (of_lines + if totals > 1 { of_totals } else { 0 });
        check_workspace(work.workspace_bytes, props)?;
    }
    let part = |at: u64, bytes: u64| Some(Place::Workspace { offset: at, bytes });
    let [losses, weights] = [part(0, of_lines), part(of_lines, of_lines)];
    if lines.count > 0 {
        work.steps.push(lines_step(valid, of_x, props, [losses, weights])?);
    }
    if fields.missing {
        let phases: &[bool] = if lines.count > 0 { &[true, false] } else { &[true] };
        for &is_clear in phases {
            work.steps.push(missing_step(valid, props, is_clear)?);
        }
    }
    if is_reduced {
        let operands = [Some(Place::Operand(forward::LOSS)), Some(Place::Operand(forward::DIVISOR))];
        let from = [losses, weights];
        if totals > 1 {
            let first = if fields.reduction == LossReduction::Mean { 2 * of_lines } else { of_lines };
            let to = [part(first, of_totals), part(first + of_totals, of_totals)];
            work.steps.push(total_step(valid, props, lines.count, totals, [from, to], false)?);
            work.steps.push(total_step(valid, props, totals, 1, [to, operands], true)?);
        } else {
            work.steps.push(total_step(valid, props, lines.count, 1, [from, operands], true)?);
        }
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// The step over the lines. `parts`: where losses and weights of lines go, with a reduction.
fn lines_step(
    valid: &Valid,
    of_x: ShaderType,
    props: &Props,
    [losses, weights]: [Option<Place>; 2],
) -> std::result::Result<StepBuilder, Reason> {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let is_backward = valid.op.kind == Direction::Backward;
    let is_mean = fields.reduction == LossReduction::Mean;
    let is_each = fields.reduction == LossReduction::None;
    let workgroup = u64::from(WORKGROUP.min(props.max_threads));
    let is_row = lines.dim == 1 || lines.steps[At::X as usize] == 1;
    let threads = match is_row {
        true => lines.dim.div_ceil(ELEMENTS).next_power_of_two(),
        // Neighbouring threads take neighbouring lines.
        false => lines.dim.div_ceil(MOST_OF_THREAD).next_power_of_two(),
    };
    let threads = threads.min(workgroup);
    let grid = groups(lines.count.div_ceil(workgroup / threads), props)?;
    let half = if of_x.is_half() { of_x } else { ShaderType::F16 };
    let (entry, file) = match valid.op.kind {
        Direction::Forward => ("cross_entropy", "softmax/cross_entropy"),
        Direction::Backward => ("cross_entropy_backward", "softmax/cross_entropy_backward"),
    };
    let files = vec![half.file(), "common/exponential", "softmax/line_chunks", "softmax/cross_entropy_lines", file];
    let mut step = StepBuilder::new(entry, files, lines_params(valid, grid[0]), grid);
    let operand =
        |name, index, accessor| Binding { name, place: Some(Place::Operand(index)), accessors: [accessor; 2] };
    let part = |name, place| Binding { name, place, accessors: ["scattered_f32_out"; 2] };
    let read_by = |is_half: bool| if is_half { "scattered_half_in" } else { "scattered_f32_in" };
    let is_half_weight = fields.weight.is_some_and(|weight| weight != DType::F32);
    let (elements, of_weight) = (read_by(of_x.is_half()), read_by(is_half_weight));
    let are_half_targets = fields.has_probabilities() && fields.targets != DType::F32;
    let of_targets = read_by(are_half_targets);
    if is_backward {
        step.bindings.push(operand("x", backward::X, elements));
        step.bindings.push(operand("targets", backward::TARGETS, of_targets));
        if fields.weight.is_some() {
            step.bindings.push(operand("weight", backward::WEIGHT, of_weight));
        }
        step.bindings.push(operand("dloss", backward::DLOSS, "scattered_f32_in"));
        if is_mean {
            step.bindings.push(operand("divisor", backward::DIVISOR, "scattered_f32_in"));
        }
        if fields.stats {
            step.bindings.push(operand("logsumexp", backward::LOGSUMEXP, "scattered_f32_in"));
        }
        let elements = if of_x.is_half() { "scattered_half_out" } else { "scattered_f32_out" };
        step.bindings.push(operand("dx", backward::DX, elements));
        step.generated =
            [read("saved", "logsumexp", "at: u32", "at", fields.stats), read("divisor", "divisor", "", "0u", is_mean)]
                .concat();
        step.flags.extend([
            ("HAS_LOGSUMEXP", fields.stats),
            ("IS_MEAN", is_mean),
            ("HAS_WEIGHT", fields.weight.is_some()),
        ]);
    } else {
        step.bindings.push(operand("x", forward::X, elements));
        step.bindings.push(operand("targets", forward::TARGETS, of_targets));
        if fields.weight.is_some() {
            step.bindings.push(operand("weight", forward::WEIGHT, of_weight));
        }
        if is_each {
            step.bindings.push(operand("loss", forward::LOSS, "scattered_f32_out"));
        } else {
            step.bindings.push(part("loss", losses));
        }
        if fields.stats {
            step.bindings.push(operand("logsumexp", forward::LOGSUMEXP, "scattered_f32_out"));
        }
        if is_mean {
            step.bindings.push(part("weights", weights));
        }
        step.generated = [
            written("put_loss", "loss", true),
            written("put_logsumexp", "logsumexp", fields.stats),
            written("put_weight", "weights", is_mean),
        ]
        .concat();
        step.flags.push(("IS_EACH", is_each));
    }
    let weights = match fields.weight {
        Some(_) => format!("values_of(weight_gather(first * params.steps.z, params.steps.z, count), {is_half_weight})"),
        None => "vec4<f32>(1.0)".into(),
    };
    step.generated += &format!("fn class_weights(first: u32, count: u32) -> vec4<f32> {{\n    return {weights};\n}}\n");
    step.flags.extend([
        ("HAS_OPTIONS", valid.has_options()),
        ("HAS_SHARES", fields.has_probabilities() || fields.label_smoothing.get() > 0.0),
        ("HAS_PROBABILITIES", fields.has_probabilities()),
        ("TARGETS_ARE_HALF", are_half_targets),
        ("HAS_Z", fields.z_loss.get() > 0.0),
        ("X_IS_HALF", of_x.is_half()),
        ("IS_WIDE", fields.targets == DType::I64),
        ("HAS_IGNORED", fields.ignore_index.is_some()),
    ]);
    step.constants =
        vec![("WORKGROUP", word(workgroup)), ("THREADS", word(threads)), ("ELEMENTS", word(ELEMENTS)), ("QUADS", 1)];
    Ok(step)
}

/// Adds up `count` losses, `totals` workgroups of them. `from`, `to`: losses and weights.
fn total_step(
    valid: &Valid,
    props: &Props,
    count: u64,
    totals: u64,
    [from, to]: [[Option<Place>; 2]; 2],
    is_last: bool,
) -> std::result::Result<StepBuilder, Reason> {
    let is_mean = valid.fields.reduction == LossReduction::Mean;
    let grid = groups(totals, props)?;
    let params = params! {
        count: u32 = word(count),
        of_group: u32 = word(if totals > 1 { OF_TOTAL } else { count }),
        groups_x: u32 = grid[0],
        all_bits: u32 = u32::MAX,
    };
    let mut step = StepBuilder::new("cross_entropy_total", vec!["softmax/cross_entropy_total"], params, grid);
    let binding = |name, place, accessor| Binding { name, place, accessors: [accessor; 2] };
    let has_lines = count > 0;
    if has_lines {
        step.bindings.push(binding("line_losses", from[0], "scattered_f32_in"));
    }
    if has_lines && is_mean {
        step.bindings.push(binding("line_weights", from[1], "scattered_f32_in"));
    }
    step.bindings.push(binding("loss", to[0], "scattered_f32_out"));
    if is_mean {
        step.bindings.push(binding("divisor", to[1], "scattered_f32_out"));
    }
    let bits = |name: &str, of: &str, is_there: bool| {
        let value = if is_there { format!("{of}_bits(i)") } else { "0u".into() };
        format!("fn {name}(i: u32) -> u32 {{\n    return {value};\n}}\n")
    };
    step.generated = [
        bits("loss_of", "line_losses", has_lines),
        bits("weight_of", "line_weights", has_lines && is_mean),
        written("put_loss", "loss", true),
        written("put_weight", "divisor", is_mean),
    ]
    .concat();
    step.flags = vec![("IS_MEAN", is_mean), ("IS_LAST", is_last)];
    step.constants = vec![("WORKGROUP", WORKGROUP.min(props.max_threads)), ("ELEMENTS", word(ELEMENTS))];
    Ok(step)
}

/// Counts the targets that are out of range, or clears the count.
fn missing_step(valid: &Valid, props: &Props, is_clear: bool) -> std::result::Result<StepBuilder, Reason> {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let walk = Walk::new(&[valid.slots.always(forward::TARGETS).desc]);
    let workgroup = WORKGROUP.min(props.max_threads);
    let [elements, classes] = if is_clear { [0; 2] } else { [walk.elements(), lines.dim] };
    // One clears.
    let grid = groups(elements.div_ceil(workgroup.into()).max(1), props)?;
    let [low, high] = halves(fields.ignore_index.unwrap_or(0), fields.targets);
    let mut words = vec![[word(elements), grid[0], word(classes), low], [high, 0, 0, 0]];
    if !is_clear {
        let axes = walk.dims.iter().zip(&walk.strides[0]).rev();
        words.extend(axes.map(|(&extent, &of_axis)| [word(extent), stride(of_axis), 0, 0]));
    }
    if words.len() == 2 {
        words.push([1, 0, 0, 0]);
    }
    let files = vec!["movement/movement", "softmax/cross_entropy_missing"];
    let params = bytemuck::cast_slice(words.as_flattened()).to_vec();
    let mut step = StepBuilder::new("cross_entropy_missing", files, params, grid);
    let operand =
        |name, index, accessor| Binding { name, place: Some(Place::Operand(index)), accessors: [accessor; 2] };
    if !is_clear {
        step.bindings.push(operand("targets", forward::TARGETS, "scattered_f32_in"));
    }
    step.bindings.push(operand("missing", forward::MISSING, "tally_out"));
    let bits = if is_clear { "0u" } else { "targets_bits(at)" };
    step.generated = format!("fn target_bits(at: u32) -> u32 {{\n    return {bits};\n}}\n");
    step.flags = vec![
        ("IS_CLEAR", is_clear),
        ("IS_WIDE", fields.targets == DType::I64),
        ("HAS_IGNORED", fields.ignore_index.is_some()),
    ];
    step.constants =
        vec![("WORKGROUP", workgroup), ("AXES", word(words.len() as u64 - 2)), ("ELEMENTS", word(ELEMENTS))];
    step.ignores_layouts = true;
    Ok(step)
}

/// A function that reads a number, 0 if the operand is not there.
fn read(name: &str, operand: &str, argument: &str, at: &str, is_there: bool) -> String {
    let value = if is_there { format!("bitcast<f32>({operand}_bits({at}))") } else { "0.0".into() };
    format!("fn {name}({argument}) -> f32 {{\n    return {value};\n}}\n")
}

/// A function that writes the bits of a number, if the operand is there.
fn written(name: &str, operand: &str, is_there: bool) -> String {
    let store = format!("    {operand}_scatter(at, 1u, 1u, vec4<u32>(bits, 0u, 0u, 0u));\n");
    format!("fn {name}(at: u32, bits: u32) {{\n{}}}\n", if is_there { &store } else { "" })
}

/// The params of the shaders of lines.
fn lines_params(valid: &Valid, groups_x: u32) -> Vec<u8> {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let [low, high] = halves(fields.ignore_index.unwrap_or(0), fields.targets);
    let rank = word(lines.extents.len() as u64);
    let mut params = vec![word(lines.count), word(lines.dim), rank, groups_x, u32::MAX, low, high, 0];
    let mut put = |numbers: &mut dyn Iterator<Item = u32>| {
        let first = params.len();
        params.extend(numbers);
        params.resize(first + EXTENTS, 0);
    };
    put(&mut lines.extents.iter().rev().map(|&extent| word(extent)));
    for operand in 0..OPERANDS {
        let strides = lines.strides.get(operand).map_or(&[][..], |strides| &strides[..]);
        put(&mut strides.iter().rev().map(|&step| stride(step)));
    }
    let step = |operand: At| lines.steps.get(operand as usize).copied().map_or(0, stride);
    params.extend([step(At::X), step(At::Dx), stride(valid.weight_step()), step(At::Targets)]);
    let [keep, smooth] = fields.smoothing();
    params.extend([keep, smooth, fields.z_loss.get(), 0.0].map(|number| single(number).to_bits()));
    bytemuck::cast_slice(&params).to_vec()
}

/// The words of a target of a type, of which those of 32 bits have one.
fn halves(number: i64, dtype: DType) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    let high = if dtype == DType::I64 { u32::from_le_bytes([e, f, g, h]) } else { 0 };
    [u32::from_le_bytes([a, b, c, d]), high]
}

/// Every kind of shader of the op, without a device.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    use super::CrossEntropyDescriptor;
    let shapes: [(&[u64], usize); 4] = [(&[1000, 64], 1), (&[9, 40_000], 1), (&[8, 21, 4096], 1), (&[20_000, 7], 0)];
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (dims, axis) in shapes {
                for reduction in LossReduction::ALL {
                    for (targets, ignored) in [(DType::I64, Some(-100)), (DType::I32, None), (DType::U32, Some(3))] {
                        let x = TensorDesc::contiguous(dtype, dims)?;
                        let mut forward = CrossEntropyDescriptor::new(x, axis, targets)?.reduction(reduction)?;
                        if let Some(ignored) = ignored {
                            forward = forward.ignore_index(ignored)?.stats()?;
                        }
                        let of = if ignored.is_some() { dtype } else { DType::F32 };
                        let soft =
                            CrossEntropyDescriptor::new(x, axis, of)?.reduction(reduction)?.label_smoothing(0.1)?;
                        let soft = if ignored.is_some() { soft.weight(DType::F32)?.stats()? } else { soft };
                        let name =
                            format!("cross_entropy of {dtype} {dims:?} with probabilities, {}", reduction.name());
                        variants.add_work(&name, work(&soft.0, props), props);
                        variants.add_work(&name, work(&soft.backward()?.0, props), props);
                        let weighted = forward.clone().weight(dtype)?.label_smoothing(0.1)?.count_missing()?;
                        let name =
                            format!("cross_entropy with a weight of {dtype} {dims:?}, {}, {targets}", reduction.name());
                        variants.add_work(&name, work(&weighted.0, props), props);
                        variants.add_work(&name, work(&weighted.z_loss(1e-4)?.backward()?.0, props), props);
                        let name = format!("cross_entropy of {dtype} {dims:?}, {}, {targets}", reduction.name());
                        variants.add_work(&name, work(&forward.0, props), props);
                        variants.add_work(&name, work(&forward.backward()?.0, props), props);
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_targets_are_words_of_their_type() {
        assert_eq!(halves(-100, DType::I64), [u32::MAX - 99, u32::MAX]);
        assert_eq!(halves(-100, DType::I32), [u32::MAX - 99, 0]);
        assert_eq!(halves(u32::MAX.into(), DType::U32), [u32::MAX, 0]);
        assert_eq!(halves(1 << 32, DType::I64), [0, 1]);
    }
}
