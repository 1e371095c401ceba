//! Random cases, others for each commit: a case of the lists with other extents, numbers and data.
//!
//! They are no part of the floor. The seed is printed first, and a trial's name is its repro line as anywhere else: data follow from it.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, Backend, DType, Function, Program, Reduction, Slot, TensorDesc};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::case::{Case, Data, hash};
use crate::floor::root;
use crate::matrix::Entry;
use crate::modes::Mode;
use crate::ops::SUBJECTS;
use crate::ops::pointwise::computing;
use crate::target::{TARGETS, Target};

/// Cases of an op on a GPU.
const ON_GPU: usize = 200;
/// The same on the CPU, and on an adapter that is software.
const ON_CPU: usize = 20;
/// The most elements of x on a GPU, and elsewhere.
const ELEMENTS: (u64, u64) = (1 << 18, 1 << 12);
/// The cases of the lists that random ones on a software adapter are made of, whose shaders the lists have compiled.
const SOFTWARE_KINDS: usize = 4;
/// The least elements of a group whose data are huge. Of fewer, all may be one number by chance, which norms only take up to
/// `2^20 sqrt(eps)`.
const LEAST_HUGE: u64 = 32;

/// The most elements of an output of a random program, of which the harness follows every instruction at every position.
const PROGRAM_ELEMENTS: u64 = 1 << 12;

/// Odd, prime, one, around powers of two.
const EXTENTS: [u64; 24] =
    [1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 32, 37, 61, 64, 97, 127, 128, 257, 509, 1021, 4099];

/// What random cases follow from: `BOPS_SEED`, else the commit.
pub fn seed() -> String {
    let of_git = || {
        let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let variable = |name: &str| std::env::var(name).ok();
    variable("BOPS_SEED").or_else(|| variable("BOPS_COMMIT")).or_else(of_git).unwrap_or_else(|| "none".into())
}

/// The random trials of all targets that are there, given those of the lists.
pub fn entries(seed: &str, listed: &[Entry]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for target in TARGETS.iter().filter(|t| t.device.is_ok() && t.name != "wgpu-plain") {
        let is_asked = |e: &&Entry| e.mode == Mode::Values && e.target.name == target.name;
        let asked: Vec<&Entry> = listed.iter().filter(is_asked).collect();
        for subject in SUBJECTS {
            let mut random = Rng::with_seed(hash(&format!("{seed} {} {}", subject.name, target.name)));
            let is_run = |e: &Entry| !target.is_software() || e.is_for_software();
            let of_op = asked.iter().filter(|e| e.case.descriptor.name() == subject.name);
            let mut templates: Vec<&Entry> =
                of_op.copied().filter(|e| is_run(e) && is_template(&e.case, target)).collect();
            // The order of trials depends on which devices are there.
            templates.sort_by_key(|entry| entry.line());
            random.shuffle(&mut templates);
            if target.is_software() {
                templates.truncate(SOFTWARE_KINDS);
            }
            let is_gpu = target.backend != Backend::Cpu && !target.is_software();
            let is_cheap = subject.name == "pointwise" && target.backend == Backend::Cpu;
            let count = if is_gpu || is_cheap { ON_GPU } else { ON_CPU };
            let most = if is_gpu { ELEMENTS.0 } else { ELEMENTS.1 };
            let mut seen = HashSet::new();
            let mut cases = Vec::new();
            // Some of what chance makes is no valid descriptor.
            for template in templates.iter().cycle().take(100 * count) {
                if cases.len() == count {
                    break;
                }
                let Ok(case) = variation(&template.case, most, &mut random) else { continue };
                if !case.must_be_refused_by(target.backend) && seen.insert(case.line()) {
                    cases.push(case);
                }
            }
            entries.extend(cases.into_iter().map(|case| Entry::random(Arc::new(case), target)));
        }
    }
    entries
}

/// Whether other extents make another valid case of it.
pub(crate) fn is_template(case: &Case, target: &Target) -> bool {
    let x = &case.slots()[0].desc;
    // The plain formulas know nothing of what is there.
    if case.descriptor.line().contains("\"accumulate\"") {
        return false;
    }
    if ["pointwise", "reduce"].contains(&case.descriptor.name()) {
        return !case.must_be_refused_by(target.backend);
    }
    if case.descriptor.name().starts_with("attention") {
        let line = case.descriptor.line();
        return !line.contains("\"strides\"")
            && !line.contains("\"layouts\"")
            && !case.must_be_refused_by(target.backend);
    }
    if case.descriptor.name().starts_with("gemm") {
        // Other extents may not have the alignment that it needs.
        let takes_all = !case.is_pinned_to_sm_90a();
        return takes_all
            && !case.descriptor.line().contains("\"strides\"")
            && !case.must_be_refused_by(target.backend);
    }
    if case.descriptor.name().starts_with("conv") {
        let is_dense = |slot: &Slot| {
            let desc = &slot.desc;
            desc.is_contiguous() || channels_last(desc).is_some_and(|last| last.strides() == desc.strides())
        };
        // Bias and its gradient have no order.
        let has_layouts = case.descriptor.line().contains("\"layouts\"");
        let is_full = case.slots().iter().all(|slot| is_dense(slot) && !slot.desc.is_empty());
        return is_full && !has_layouts && case.options.kernel.is_none() && !case.must_be_refused_by(target.backend);
    }
    let is_plain = x.is_contiguous() || channels_last(x).is_some_and(|last| last.strides() == x.strides());
    let has_layouts = case.descriptor.line().contains("\"layouts\"");
    // A kernel that is asked for by name may refuse what its op serves.
    let is_pinned = case.options.kernel.is_some();
    is_plain && !has_layouts && !is_pinned && x.elements() > 0 && !case.must_be_refused_by(target.backend)
}

fn channels_last(x: &TensorDesc) -> Option<TensorDesc> {
    (x.rank() > 2).then(|| TensorDesc::channels_last(x.dtype(), x.dims()).ok())?
}

/// Another case of that kind.
fn variation(template: &Case, most: u64, random: &mut Rng) -> Result<Case> {
    let name = template.descriptor.name();
    let line = template.descriptor.line();
    let mut json: Value = serde_json::from_str(line.split_once(' ').context("a repro line has a JSON")?.1)?;
    if name == "pointwise" {
        return program(template.dtype(), most.min(PROGRAM_ELEMENTS), random);
    }
    if name == "reduce" {
        return reduction(template.dtype(), most.min(PROGRAM_ELEMENTS), random);
    }
    if name.starts_with("gemm") {
        return product(name, json, most, random);
    }
    if name.starts_with("attention") {
        return attention(name, json, most, random);
    }
    if name.starts_with("conv") {
        return convolution(name, json, most, random);
    }
    let x = &template.slots()[0].desc;
    let (mut dims, dtype) = (x.dims().to_vec(), x.dtype());
    // The last first: it is the longest.
    let mut left = most;
    for dim in dims.iter_mut().rev() {
        let fitting = EXTENTS.iter().filter(|extent| **extent <= left).count();
        *dim = EXTENTS[random.usize(..fitting)];
        left /= *dim;
    }
    if name.starts_with("group_norm") {
        let divisors: Vec<u64> = (1..=dims[1]).filter(|groups| dims[1] % groups == 0).collect();
        json["groups"] = divisors[random.usize(..divisors.len())].into();
    }
    let first = if json["x"].is_null() { "y" } else { "x" };
    let mut first_json = json!({"dtype": dtype, "dims": dims});
    if !x.is_contiguous() {
        first_json["strides"] = json!(TensorDesc::channels_last(dtype, &dims)?.strides());
    }
    json[first] = first_json;
    let descriptor = AnyDescriptor::parse(name, &json.to_string())?;
    let data = data(&json, &dims, name, random);
    Ok(Case::new(descriptor, data).with(template.options.clone()))
}

/// A random program of inputs of a type or, if it is not f64, of types that mix, which are broadcast.
///
/// # Errors
/// What the library refuses of it, such as too many extents.
pub fn program(dtype: DType, most: u64, random: &mut Rng) -> Result<Case> {
    let computing = computing(dtype);
    let types = match dtype {
        DType::F32 | DType::F16 | DType::BF16 => &[DType::F32, DType::F16, DType::BF16][..],
        DType::I32 | DType::U8 | DType::I8 => &[DType::I32, DType::U8, DType::I8],
        _ => &[dtype],
    };
    let is_mixed = random.u32(..3) == 0;
    let pick = |random: &mut Rng| if is_mixed { types[random.usize(..types.len())] } else { dtype };
    let mut left = most;
    let mut dims: Vec<u64> = Vec::new();
    for _ in 0..random.usize(..5) {
        let fitting = EXTENTS.iter().filter(|extent| **extent <= left).count();
        dims.insert(0, EXTENTS[random.usize(..fitting)]);
        left /= dims[0];
    }
    let count = 1 + random.usize(..3) + if random.u32(..8) == 0 { random.usize(..Program::MAX_INPUTS - 3) } else { 0 };
    let inputs: Vec<Value> = (0..count)
        .map(|_| {
            // A third of them are repeated along some extents, or lack the first ones.
            let mut own = dims.clone();
            if random.u32(..3) == 0 {
                own.iter_mut().filter(|_| random.bool()).for_each(|extent| *extent = 1);
                own.drain(..random.usize(..own.len() + 1));
            }
            let dtype = if random.u32(..6) == 0 { DType::Bool } else { pick(random) };
            match random.u32(..4) {
                0 if own.len() > 1 => {
                    // The same extents in another order of memory.
                    let mut axes: Vec<usize> = (0..own.len()).collect();
                    random.shuffle(&mut axes);
                    let (mut strides, mut step) = (vec![0; own.len()], 1);
                    for axis in axes {
                        (strides[axis], step) = (step, step * own[axis]);
                    }
                    json!({"dtype": dtype, "dims": own, "strides": strides})
                }
                _ => json!({"dtype": dtype, "dims": own}),
            }
        })
        .collect();
    let is_number = |input: &Value| input["dtype"] != json!(DType::Bool);
    // If all are bools, numbers are of f32.
    let computing = if inputs.iter().any(is_number) { computing } else { DType::F32 };
    let functions: Vec<Function> = Function::ALL.into_iter().filter(|f| f.computes_in(computing)).collect();
    let mut names: Vec<String> = (0..count).map(|at| format!("x{at}")).collect();
    let mut is_bool: Vec<bool> = inputs.iter().map(|input| !is_number(input)).collect();
    let longest = if random.u32(..8) == 0 { Program::MAX_INSTRUCTIONS } else { 7 };
    let steps = random.usize(..longest);
    let mut instructions: Vec<Value> = Vec::new();
    for at in 0..steps {
        let function = functions[random.usize(..functions.len())];
        let mut call = vec![json!(format!("t{at}")), json!(function.name())];
        for argument in 0..function.arity() {
            let takes_bool = function.takes_bool(argument);
            let fitting: Vec<&String> = names
                .iter()
                .zip(&is_bool)
                .filter(|(_, is_bool)| **is_bool == takes_bool)
                .map(|(name, _)| name)
                .collect();
            call.push(match random.u32(..6) {
                0 if !takes_bool && computing.is_float() => {
                    NUMBERS[random.usize(..NUMBERS.len())].map_or(json!("inf"), |number| json!(number))
                }
                0 if !takes_bool => json!(INTEGERS[random.usize(..INTEGERS.len())]),
                _ if fitting.is_empty() => json!(random.u32(..2)),
                // The last results more often than others.
                0..=2 => json!(fitting[fitting.len() - 1 - random.usize(..fitting.len().min(2))]),
                _ => json!(fitting[random.usize(..fitting.len())]),
            });
        }
        instructions.push(json!(call));
        names.push(format!("t{at}"));
        is_bool.push(function.gives_bool());
    }
    let outputs = 1 + if random.u32(..3) == 0 { random.usize(..Program::MAX_OUTPUTS) } else { 0 };
    let last = |at: usize| if at == 0 { names.len() - 1 } else { random.usize(..names.len()) };
    let outputs: Vec<usize> = (0..outputs).map(last).collect();
    let of_inputs: Vec<&String> = names.iter().take(count).collect();
    let results: Vec<&String> = outputs.iter().map(|&at| &names[at]).collect();
    let mut json = json!({
        "program": {"inputs": of_inputs, "let": instructions, "outputs": results},
        "inputs": inputs,
    });
    if is_mixed {
        let of_output = |random: &mut Rng| if random.u32(..4) == 0 { DType::Bool } else { pick(random) };
        json["outputs"] = outputs.iter().map(|_| json!(of_output(random))).collect();
    }
    let kinds: Vec<Data> = Data::every().collect();
    let data = if random.u32(..3) == 0 { kinds[random.usize(..kinds.len())] } else { Data::Normal };
    Ok(Case::new(AnyDescriptor::parse("pointwise", &json.to_string())?, data))
}

/// A random reduction of a tensor in any order of memory, along any axes.
///
/// # Errors
/// What the library refuses of it.
fn reduction(dtype: DType, most: u64, random: &mut Rng) -> Result<Case> {
    let (mut left, mut dims) = (most, Vec::<u64>::new());
    for _ in 0..random.usize(..6) {
        let fitting = EXTENTS.iter().filter(|extent| **extent <= left).count();
        let extent = EXTENTS[random.usize(..fitting)];
        dims.insert(random.usize(..dims.len() + 1), extent);
        left /= extent;
    }
    let mut axes: Vec<usize> = (0..dims.len()).collect();
    random.shuffle(&mut axes);
    let (mut strides, mut step) = (vec![0; dims.len()], 1);
    for &axis in &axes {
        (strides[axis], step) = (step, step * dims[axis]);
    }
    let mut input = json!({"dtype": dtype, "dims": dims});
    if random.bool() {
        input["strides"] = json!(strides);
    }
    axes.truncate(random.usize(..axes.len() + 1));
    let kept: Vec<usize> = axes.iter().copied().filter(|_| random.u32(..3) == 0).collect();
    let dtype = if dtype.is_float() { dtype } else { DType::F32 };
    let reduce = Reduction::ALL[random.usize(..Reduction::ALL.len())];
    let mut json = json!({"inputs": [input], "axes": axes, "reduce": reduce, "keep": kept});
    let gives_float = AnyDescriptor::parse("reduce", &json.to_string())?.slots()[1].desc.dtype().is_float();
    if gives_float && dtype != DType::F64 && random.u32(..3) == 0 {
        json["output"] = json!([DType::F32, DType::F16, DType::BF16][random.usize(..3)]);
    }
    if gives_float && reduce != Reduction::CountNonzero && random.u32(..3) == 0 {
        let count = json!(["n", "count"]);
        json["finish"] = match random.usize(..3) {
            0 => json!({"inputs": ["v"], "let": [["y", "square", "v"]], "outputs": ["y"]}),
            1 => {
                json!({"inputs": ["v"], "let": [count, ["m", "div", "v", "n"], ["y", "sigmoid", "m"]], "outputs": ["y"]})
            }
            _ => {
                json!({"inputs": ["v"], "let": [count, ["c", "minimum", "v", "n"], ["y", "sub", "c", 0.25]], "outputs": ["y"]})
            }
        };
    }
    let kinds = [Data::Normal, Data::Normal, Data::Sparse, Data::Constant, Data::Ramp, Data::Nan];
    let data = kinds[random.usize(..kinds.len())];
    Ok(Case::new(AnyDescriptor::parse("reduce", &json.to_string())?, data))
}

/// Numbers of random programs; none is infinity.
const NUMBERS: [Option<f64>; 8] =
    [Some(0.0), Some(-0.0), Some(1.0), Some(-0.5), Some(0.1), Some(1000.1), Some(1e-30), None];

/// The same of integers of every type.
const INTEGERS: [u32; 6] = [0, 1, 2, 3, 7, 100];

/// Another product of that kind: with other extents of matrices and batch.
fn product(name: &str, mut json: Value, most: u64, random: &mut Rng) -> Result<Case> {
    let extent = |most: u64, random: &mut Rng| {
        let fitting = EXTENTS.iter().filter(|extent| **extent <= most.max(1)).count();
        EXTENTS[random.usize(..fitting)]
    };
    let m = extent(most, random);
    let n = extent(most / m, random);
    let k = extent(most / m.max(n), random);
    let rank = |name: &str| json[name]["dims"].as_array().map(Vec::len).context("dims");
    let (rank_a, rank_b) = (rank("a")?, rank("b")?);
    let batch: Vec<u64> = (2..rank_a.max(rank_b)).map(|_| random.u64(1..4)).collect();
    // Each factor has every batch extent, or one in three of them is 1, or all are.
    let mut own = |rank: usize| -> Vec<u64> {
        let shares = random.u32(..3);
        let extents = batch[batch.len() + 2 - rank..].iter();
        extents.map(|extent| if shares == 2 || shares == 1 && random.u32(..3) == 0 { 1 } else { *extent }).collect()
    };
    let (of_a, of_b) = (own(rank_a), own(rank_b));
    let dims = |batch: &[u64], [rows, cols]: [u64; 2], transposed: bool| {
        let matrix = if transposed { [cols, rows] } else { [rows, cols] };
        json!([batch, &matrix].concat())
    };
    let (ta, tb) = (json["transpose_a"] == true, json["transpose_b"] == true);
    json["a"]["dims"] = dims(&of_a, [m, k], ta);
    json["b"]["dims"] = dims(&of_b, [k, n], tb);
    Ok(Case::new(AnyDescriptor::parse(name, &json.to_string())?, data_of_factors(random)))
}

/// Another attention of that kind, with other extents and numbers.
fn attention(name: &str, mut json: Value, most: u64, random: &mut Rng) -> Result<Case> {
    let extent = |most: u64, random: &mut Rng| {
        let fitting = EXTENTS.iter().filter(|extent| **extent <= most.clamp(1, 257)).count();
        EXTENTS[random.usize(..fitting)]
    };
    let [samples, kv_heads, group] = [random.u64(1..4), random.u64(1..4), random.u64(1..4)];
    let heads = kv_heads * group;
    let (depth, value_depth) = (extent(256, random), extent(256, random));
    let queries = extent(most / (samples * heads), random);
    let keys = extent(most / (samples * heads * queries), random);
    // The keys of a sample lie in pages, of which some pools have fewer than a sample names.
    let (keys, of_keys) = match json.get("pages") {
        None => (keys, [samples, keys]),
        Some(_) => {
            let page = [1, 3, 8, 16][random.usize(..4)].min(keys);
            let of_sample = keys.div_ceil(page);
            json["pages"]["dims"] = json!([samples, of_sample]);
            (of_sample * page, [random.u64(1..2 * of_sample + 1), page])
        }
    };
    for (field, dims) in [
        ("q", [samples, heads, queries, depth]),
        ("k", [of_keys[0], kv_heads, of_keys[1], depth]),
        ("v", [of_keys[0], kv_heads, of_keys[1], value_depth]),
    ] {
        json[field]["dims"] = json!(dims);
    }
    if let Some(dims) = json.get_mut("bias").and_then(|bias| bias["dims"].as_array_mut()) {
        for (dim, extent) in dims.iter_mut().rev().zip([keys, queries, heads, samples]) {
            *dim = if random.u32(..3) == 0 { 1 } else { extent }.into();
        }
    }
    for field in ["window_left", "window_right"] {
        if json.get(field).is_some() {
            json[field] = random.u64(..2 * keys).into();
        }
    }
    let data = if random.u32(..3) == 0 { Data::Outlier } else { Data::Normal };
    Ok(Case::new(AnyDescriptor::parse(name, &json.to_string())?, data))
}

/// Another convolution of that kind, with other extents and another window; its operands lie as they did.
fn convolution(name: &str, mut json: Value, most: u64, random: &mut Rng) -> Result<Case> {
    let extent = |most: u64, random: &mut Rng| {
        let fitting = EXTENTS.iter().filter(|extent| **extent <= most.max(1)).count();
        EXTENTS[random.usize(..fitting)]
    };
    let rank = json["dy"]["dims"].as_array().or(json["x"]["dims"].as_array()).context("dims")?.len() - 2;
    let groups = [1, 1, 2, 3, 8][random.usize(..5)];
    let of_group = [(); 2].map(|()| extent(16, random));
    let samples = random.u64(1..5);
    let mut left = most / (samples * groups * of_group[0].max(of_group[1]));
    let (mut spatial, mut kernel, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut stride, mut dilation, mut padding, mut left_over) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rank {
        let [taps, step, spread] = [random.u64(1..5), random.u64(1..4), random.u64(1..3)];
        let reach = spread * (taps - 1) + 1;
        let sides = [random.u64(..reach), random.u64(..reach)];
        let input = extent(left, random).max(reach.saturating_sub(sides[0] + sides[1]));
        left /= input;
        spatial.push(input);
        kernel.push(taps);
        outputs.push((input + sides[0] + sides[1] - reach) / step + 1);
        left_over.push((input + sides[0] + sides[1] - reach) % step);
        stride.push(step);
        dilation.push(spread);
        padding.push(sides);
    }
    let [channels, filters] = of_group.map(|of_group| groups * of_group);
    let x = [&[samples, channels], &spatial[..]].concat();
    let weight = [&[filters, of_group[0]], &kernel[..]].concat();
    let y = [&[samples, filters], &outputs[..]].concat();
    // What is transposed reads what a convolution writes.
    let is_transposed = name == "conv_transpose";
    let read = if is_transposed { &y } else { &x };
    for (field, dims) in [("x", read), ("dx", &x), ("weight", &weight), ("dweight", &weight), ("dy", &y)] {
        let Some(tensor) = json.get_mut(field).filter(|tensor| tensor.is_object()) else { continue };
        tensor["dims"] = json!(dims);
        if tensor.get("strides").is_some() {
            tensor["strides"] = json!(TensorDesc::channels_last(DType::F32, dims)?.strides());
        }
    }
    if name != "conv_backward_bias" {
        json["groups"] = json!(groups);
        json["stride"] = json!(stride);
        json["dilation"] = json!(dilation);
        json["padding"] = json!(padding);
    }
    if is_transposed {
        json["output_padding"] = json!(left_over);
    }
    Ok(Case::new(AnyDescriptor::parse(name, &json.to_string())?, data_of_factors(random)))
}

/// What factors are given: each kind is valid for products of any extents.
fn data_of_factors(random: &mut Rng) -> Data {
    let kinds: Vec<Data> = Data::every().collect();
    match random.u32(..3) {
        0 => kinds[random.usize(..kinds.len())],
        _ => Data::Normal,
    }
}

/// What a descriptor takes: docs/numerics.md, Valid inputs.
fn data(json: &Value, dims: &[u64], name: &str, random: &mut Rng) -> Data {
    let any = match random.u32(..3) {
        0 => {
            let kinds = [&Data::ALL[..], &Data::STRUCTURED].concat();
            kinds[random.usize(..kinds.len())]
        }
        _ => Data::Normal,
    };
    let is_norm = json["normalized_dims"].is_u64() || name.contains("_norm") && !name.starts_with("local");
    let eps = json["eps"].as_f64().unwrap_or(1e-5);
    let may_vanish = json["k"].as_f64() == Some(0.0);
    if is_norm && eps < 1e-5 || may_vanish {
        return Data::Normal;
    }
    // Of a group, or of the part of it that lies in one channel of one sample.
    let first = json["normalized_dims"].as_u64().map_or(2, |normalized| dims.len() - normalized as usize);
    let elements: u64 = dims[first.min(dims.len())..].iter().product();
    if is_norm && any == Data::Huge && elements < LEAST_HUGE { Data::Normal } else { any }
}
