//! The edges of what docs/numerics.md calls valid inputs, on every device that is there. The greatest magnitudes are those of the data
//! `huge` in the parity matrix.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use baracuda_ops::{Access, AnyDescriptor, Backend, DType, Device, Function, PlanOptions, Slot};
use baracuda_ops_tests::arena::{Arena, InPlace, Layout, POISON};
use baracuda_ops_tests::case::{Case, Data, Random, distinct};
use baracuda_ops_tests::exec::{Executor, OnDevice};
use baracuda_ops_tests::judge::By;
use baracuda_ops_tests::modes::judge;
use baracuda_ops_tests::ops::{SUBJECTS, subject};
use baracuda_ops_tests::random::program;
use baracuda_ops_tests::showcase::{Showcase, showcases};
use baracuda_ops_tests::target::{TARGETS, Target};
use baracuda_ops_tests::values::{Tensors, rounded};
use half::{bf16, f16};
use serde_json::Value;

const LAYER: &str = r#"layer_norm {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","bias":"f32","eps":1e-5,"stats":true}"#;
const LAYER_BACKWARD: &str = r#"layer_norm_backward {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","dx":true,"dweight":true,"dbias":"f32"}"#;
const RMS: &str =
    r#"rms_norm {"x":{"dtype":"bf16","dims":[5,127]},"normalized_dims":1,"weight":"f32","eps":1e-5,"stats":true}"#;
const RMS_BACKWARD: &str = r#"rms_norm_backward {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","dx":true,"dweight":true}"#;
const BATCH: &str = r#"batch_norm {"x":{"dtype":"f32","dims":[3,6,5,7]},"weight":"f32","bias":"f32","eps":1e-5,"momentum":0.1,"stats":true}"#;
/// Channels last, of more positions than one block takes.
const BATCH_LAST: &str = r#"batch_norm {"x":{"dtype":"f32","dims":[2,11,17,509],"strides":[95183,1,5599,11]},"weight":"f32","bias":"f32","eps":1e-5,"stats":true}"#;
const INSTANCE_LAST: &str = r#"instance_norm {"x":{"dtype":"f32","dims":[1,2,509,61],"strides":[62098,1,122,2]},"weight":"f32","bias":"f32","eps":1e-5,"activation":"tanh","stats":true}"#;
const BATCH_BACKWARD: &str = r#"batch_norm_backward {"x":{"dtype":"f32","dims":[3,6,5,7]},"weight":"f32","bias":"f32","dx":true,"dweight":true,"dbias":true}"#;
const GROUP: &str = r#"group_norm {"x":{"dtype":"bf16","dims":[3,6,5,7]},"groups":3,"weight":"bf16","bias":"bf16","eps":1e-5,"stats":true}"#;
const INSTANCE: &str =
    r#"instance_norm {"x":{"dtype":"f32","dims":[3,6,5,7]},"weight":"f32","bias":"f32","eps":1e-5,"stats":true}"#;
const RESPONSE: &str =
    r#"local_response_norm {"x":{"dtype":"f32","dims":[2,16,4,4]},"size":5,"alpha":0.5,"beta":0.75,"k":2.0}"#;
const RESPONSE_BACKWARD: &str =
    r#"local_response_norm_backward {"x":{"dtype":"f32","dims":[2,16,4,4]},"size":5,"alpha":0.5,"beta":0.75,"k":2.0}"#;
const SOFTMAX: &str = r#"softmax {"x":{"dtype":"f32","dims":[5,127]},"axis":1}"#;
const SOFTMAX_BACKWARD: &str = r#"softmax_backward {"y":{"dtype":"f32","dims":[5,127]},"axis":1}"#;

const GEMM: &str = r#"gemm {"a":{"dtype":"f32","dims":[9,32]},"b":{"dtype":"f32","dims":[32,7]},"bias":"f32","activation":"relu","out":"f32","pre":"f32"}"#;
const GEMM_BACKWARD: &str = r#"gemm_backward {"a":{"dtype":"f32","dims":[9,32]},"b":{"dtype":"f32","dims":[32,7]},"bias":"f32","activation":"relu","saved":"recompute","out":"f32","da":{"dtype":"f32","beta":0.0},"db":{"dtype":"f32","beta":0.0},"dbias":{"dtype":"f32","beta":0.0}}"#;

/// A product of f32 factors, and with factors of 16 bits, by the kernel that is chosen and by those that tell apart how sums are made.
fn products(line: &str) -> Vec<String> {
    let (op, _) = line.split_once(' ').expect("an op");
    let pinned = |dtype: &str, form: &str| {
        let options = format!(r#" options={{"kernel":"{op}_{form}"}}"#);
        let line = line.replace(r#"{"dtype":"f32","dims""#, &format!(r#"{{"dtype":"{dtype}","dims""#));
        if form.is_empty() { line } else { line + &options }
    };
    let forms = ["", "simt", "mma"];
    forms
        .map(|form| ["bf16", "f16"].map(|dtype| pinned(dtype, form)))
        .into_iter()
        .flatten()
        .chain(["", "simt", "reference"].map(|form| pinned("f32", form)))
        .collect()
}

/// Standard normal numbers times a factor, in place of those of an input.
fn scale_to(inputs: &mut Tensors, name: &str, factor: f64) {
    let input = inputs.0.iter_mut().find(|t| t.name == name).expect("an input");
    let mut random = Random::of(name);
    input.values.iter_mut().for_each(|value| *value = rounded(input.dtype, factor * random.normal()));
}

/// As [`scale_to`], without subnormal numbers of f32 and bf16, which may count as 0 through wgpu.
fn scale_to_normal(inputs: &mut Tensors, name: &str, factor: f64) {
    scale_to(inputs, name, factor);
    let input = inputs.0.iter_mut().find(|t| t.name == name).expect("an input");
    if input.dtype != DType::F16 {
        let least = f64::from(f32::MIN_POSITIVE);
        input.values.iter_mut().for_each(|value| *value = value.abs().max(least).copysign(*value));
    }
}

fn fill(inputs: &mut Tensors, name: &str, number: f64) {
    let input = inputs.0.iter_mut().find(|t| t.name == name).expect("an input");
    input.values.fill(rounded(input.dtype, number));
}

/// Numbers one after the other in place of those of an input.
fn set(inputs: &mut Tensors, name: &str, number: impl Fn(usize) -> f64) {
    let input = inputs.0.iter_mut().find(|t| t.name == name).expect("an input");
    input.values.iter_mut().enumerate().for_each(|(i, value)| *value = rounded(input.dtype, number(i)));
}

/// Runs a case with changed inputs on every device and hands what comes of it to `look`.
fn on_every_device(line: &str, change: impl Fn(&mut Tensors), look: impl Fn(&Case, By, &Tensors, &Tensors)) {
    on_devices(|_| true, line, change, look);
}

/// The same on those devices that are meant.
fn on_devices(
    is_meant: impl Fn(&Target) -> bool,
    line: &str,
    change: impl Fn(&mut Tensors),
    look: impl Fn(&Case, By, &Tensors, &Tensors),
) {
    let case = Case { may_be_constant: true, ..Case::parse(line).unwrap() };
    let mut inputs = case.inputs(0).unwrap();
    change(&mut inputs);
    let serves = |target: &&Target| target.device.is_ok() && !case.must_be_refused_by(target.backend);
    for target in TARGETS.iter().filter(serves).filter(|target| is_meant(target)) {
        let plan = target.plan(&case).unwrap();
        let layout = Layout::Apart { shift: 0 };
        let mut arena = Arena::new(plan.slots(), plan.workspace(), &inputs, layout, InPlace::No, POISON);
        {
            let _turn = target.turn();
            OnDevice(&plan).run(&mut arena).unwrap();
        }
        look(&case, By::of(&plan), &inputs, &arena.outputs());
    }
}

/// Every device holds the budgets.
fn holds(line: &str, change: impl Fn(&mut Tensors)) {
    on_every_device(line, change, |case, by, inputs, outputs| {
        judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
    });
}

/// A change of inputs that gives them magnitudes by the function it is handed.
type Scaled<'c> = &'c dyn Fn(&mut Tensors, fn(&mut Tensors, &str, f64));

/// As [`holds`], through wgpu with normal numbers only.
fn holds_scaled(line: &str, change: Scaled<'_>) {
    for (scale, is_wgpu) in [(scale_to as fn(&mut Tensors, &str, f64), false), (scale_to_normal, true)] {
        let is_meant = |target: &Target| (target.backend == Backend::Wgpu) == is_wgpu;
        let change = |inputs: &mut Tensors| change(inputs, scale);
        on_devices(is_meant, line, change, |case, by, inputs, outputs| {
            judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
        });
    }
}

#[test]
fn the_mean_of_an_infinity_is_nan_and_so_is_its_group() {
    for (line, group) in [(LAYER, 127), (BATCH, 35), (GROUP, 70), (INSTANCE, 35)] {
        for infinity in [f64::INFINITY, f64::NEG_INFINITY] {
            let change = |inputs: &mut Tensors| inputs.0[0].values[3] = infinity;
            on_every_device(line, change, |_, by, _, outputs| {
                for name in ["mean", "rstd"] {
                    let values = outputs.values(name).unwrap();
                    assert!(values[0].is_nan() && values[1].is_finite(), "{by:?}: {line}: {name} {values:?}");
                }
                assert!(outputs.values("y").unwrap()[..group].iter().all(|y| y.is_nan()), "{by:?}: {line}");
            });
        }
    }
    for line in [BATCH_LAST, INSTANCE_LAST] {
        for infinity in [f64::INFINITY, f64::NEG_INFINITY] {
            let change = |inputs: &mut Tensors| inputs.0[0].values[3] = infinity;
            on_every_device(line, change, |_, by, _, outputs| {
                let mean = outputs.values("mean").unwrap();
                assert!(mean[0].is_nan() && mean[1..].iter().all(|mean| mean.is_finite()), "{by:?}: {line}: {mean:?}");
            });
        }
    }
    // The mean square of a row with an infinity is no number to divide by, as that of finite numbers whose squares overflow is none.
    on_every_device(
        RMS,
        |inputs| inputs.0[0].values[3] = f64::INFINITY,
        |_, by, _, outputs| {
            let (y, rstd) = (outputs.values("y").unwrap(), outputs.values("rstd").unwrap());
            assert!(rstd[0].is_nan() && rstd[1].is_finite(), "{by:?}: {rstd:?}");
            assert!((0..2 * 127).all(|i| y[i].is_nan() == (i < 127)), "{by:?}");
        },
    );
    on_every_device(
        RESPONSE,
        |inputs| inputs.0[0].values[3] = f64::INFINITY,
        |_, by, _, outputs| {
            // Channels 0 to 2 of the first sample have channel 0 in their windows of 5.
            let y = outputs.values("y").unwrap();
            assert!((0..y.len()).all(|i| y[i].is_nan() == (i % 16 == 3 && i < 3 * 16)), "{by:?}");
        },
    );
}

/// Shares of a magnitude by the number of the element, none of which has large means beside its deviations.
const PATTERNS: [fn(usize) -> f64; 5] = [
    |i| if i.is_multiple_of(2) { 1.0 } else { -1.0 },
    |i| if i % 8 < 4 { 1.0 } else { -0.5 },
    |i| (i % 13) as f64 / 13.0,
    |i| if i % 11 == 7 { 1.0 } else { 0.0 },
    |i| if i % 32 < 16 { 0.0 } else { 1.0 },
];

#[test]
fn squares_that_overflow_give_nan_and_no_wrong_number() {
    let of_edges = [LAYER, RMS, BATCH, BATCH_LAST, GROUP, INSTANCE, INSTANCE_LAST, RESPONSE, RESPONSE_BACKWARD];
    let others = [
        r#"rms_norm {"x":{"dtype":"f32","dims":[3,5000]},"normalized_dims":1,"eps":1e-5,"stats":true}"#,
        r#"layer_norm {"x":{"dtype":"bf16","dims":[3,5000]},"normalized_dims":1,"eps":1e-5,"stats":true}"#,
        r#"layer_norm {"x":{"dtype":"f32","dims":[2,70000]},"normalized_dims":1,"eps":1e-5,"stats":true}"#,
        r#"group_norm {"x":{"dtype":"f32","dims":[2,4,64,64],"strides":[16384,1,256,4]},"groups":2,"eps":1e-5,"activation":"relu","stats":true}"#,
        r#"batch_norm {"x":{"dtype":"bf16","dims":[4,3,8,8]},"eps":1e-5,"momentum":0.1,"stats":true}"#,
    ];
    let even = RESPONSE.replace(r#""size":5"#, r#""size":4"#);
    let power = RESPONSE.replace("0.75", "0.6");
    let lines: Vec<String> = of_edges.into_iter().chain(others).map(String::from).chain([even, power]).collect();
    for line in lines {
        let of_double = line.replace("bf16", "f64").replace(r#""f32""#, r#""f64""#);
        // The first magnitude is one whose squares have a sum.
        for (line, magnitudes) in [(line, &[1e15, 1e18, 1e20, 1e25, 3e38][..]), (of_double, &[1e145, 1e160, 1e300])] {
            for (at, pattern) in (0..magnitudes.len()).flat_map(|at| PATTERNS.map(|pattern| (at, pattern))) {
                let change = |inputs: &mut Tensors| set(inputs, "x", |i| magnitudes[at] * pattern(i));
                on_every_device(&line, change, |case, by, inputs, outputs| {
                    let what = format!("{by:?}: {line}: {:e}", magnitudes[at]);
                    let expected =
                        (subject(case.descriptor.name()).unwrap().expect)(&case.descriptor, inputs, outputs, by);
                    let expected = expected.unwrap();
                    // What is NaN is not judged, nor are the means beside it and an infinite running variance.
                    let is_unknown = |output: &str, i: usize| {
                        let of = |name| outputs.values(name).map(|values: &[f64]| values[i]);
                        let found = if output.ends_with("mean") { of("rstd") } else { of(output) };
                        found.is_none_or(|value| value.is_nan() || output == "running_var" && value.is_infinite())
                    };
                    let mut judged = outputs.clone();
                    for output in &mut judged.0 {
                        let expected = expected.iter().find(|expected| expected.name == output.name).unwrap();
                        for (i, value) in output.values.iter_mut().enumerate() {
                            if is_unknown(&output.name, i) {
                                assert!(at > 0, "{what}: {}[{i}] is NaN", output.name);
                                *value = expected.values[i];
                            }
                        }
                    }
                    judge(case, by, inputs, &judged).unwrap_or_else(|error| panic!("{what}: {error:#}"));
                });
            }
        }
    }
}

/// Hands every extent of the tensors of a descriptor's JSON to `change`.
fn each_extent(json: &mut Value, change: &mut impl FnMut(&mut Value)) {
    match json {
        Value::Array(values) => values.iter_mut().for_each(|value| each_extent(value, change)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("dims", Value::Array(dims)) => dims.iter_mut().for_each(&mut *change),
                    (_, value) => each_extent(value, change),
                }
            }
        }
        _ => {}
    }
}

/// Small descriptors made from that of a case: extents of one number become 0, and if `is_large` those of another become 2^32.
fn emptied(case: &Case, is_large: bool) -> Vec<Case> {
    let line = case.descriptor.line();
    let (op, json) = line.split_once(' ').expect("a repro line has a JSON");
    let mut json: Value = serde_json::from_str(json).expect("a repro line has a JSON");
    let mut numbers = BTreeSet::new();
    each_extent(&mut json, &mut |extent| numbers.extend(extent.as_u64()));
    let pairs = numbers.iter().flat_map(|&zero| numbers.iter().map(move |&large| (zero, large)));
    let mut cases = Vec::new();
    for (zero, large) in pairs.filter(|(zero, large)| (zero != large) == is_large) {
        let mut changed = json.clone();
        each_extent(&mut changed, &mut |extent| match extent.as_u64() {
            Some(number) if number == zero => *extent = 0.into(),
            Some(number) if number == large => *extent = (1u64 << 32).into(),
            _ => {}
        });
        // Not every op takes an extent of 0 everywhere.
        let descriptor = AnyDescriptor::parse(op, &changed.to_string());
        cases.extend(descriptor.ok().map(|descriptor| Case::new(descriptor, Data::Normal)));
    }
    cases.retain(|case| case.slots().iter().map(|slot| slot.desc.elements()).fold(0, u64::saturating_add) < 1 << 14);
    cases
}

/// A device says of a case that it supports it, plans it, and gives the right answer, or does none of it where it may refuse. With a large extent the
/// answers of products are not judged and the CPU does not compute them: what it does beside such an extent is tested in tests/hostile.rs.
fn is_served_as_it_is_said(case: &Case, target: &Target, is_large: bool) -> Result<()> {
    let Ok(device) = &target.device else { return Ok(()) };
    let is_unjudged =
        is_large && ["gemm", "conv", "reduce", "scan"].iter().any(|op| case.descriptor.name().starts_with(op));
    if is_unjudged && target.backend == Backend::Cpu {
        return Ok(());
    }
    let supported = case.descriptor.supported_by(device, &case.options);
    let planned = case.plan(device);
    let is_planned = planned.is_ok();
    ensure!(supported.is_ok() == is_planned, "supported: {supported:?}, planned: {:?}", planned.err());
    let is_written = |slot: &Slot| slot.access != Access::In && !slot.desc.is_empty();
    let writes = case.slots().iter().any(is_written);
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) => {
            let may_be_refused = case.must_be_refused_by(target.backend)
                || case.may_be_refused_on(&device.props(), &error)
                || is_unjudged && writes;
            ensure!(may_be_refused, "{error:?}");
            return Ok(());
        }
    };
    let inputs = case.inputs(0)?;
    let mut arena =
        Arena::new(plan.slots(), plan.workspace(), &inputs, Layout::Apart { shift: 0 }, InPlace::No, POISON);
    {
        let _turn = target.turn();
        OnDevice(&plan).run(&mut arena)?;
    }
    // Expected values of norms come with the statistics of every sample.
    let has_few_samples = case.slots()[0].desc.dims().first().is_none_or(|&dim| dim < 1 << 16);
    if writes && has_few_samples && !is_unjudged {
        judge(&Case { may_be_constant: true, ..case.clone() }, By::of(&plan), &inputs, &arena.outputs())?;
    }
    Ok(())
}

#[test]
fn extents_of_0_are_supported_planned_and_run_alike() {
    let mut failures = Vec::new();
    for subject in SUBJECTS {
        let is_small = |case: &Case| case.options == PlanOptions::default() && case.bytes() < 1 << 16;
        let is_tried = |case: &Case| case.dtype() == DType::F32 && is_small(case);
        let whole: Vec<Case> = (subject.cases)().into_iter().filter(is_tried).collect();
        for is_large in [false, true] {
            let some = whole.iter().filter(|case| !is_large || case.is_core);
            let cases = distinct(some.flat_map(|case| emptied(case, is_large)).collect());
            // Without rows a weight is there, and so is its large extent; irfft has the extents of its lines from their length.
            let has_none = is_large && (subject.name.starts_with("linear_cross_entropy") || subject.name == "irfft");
            assert_eq!(cases.is_empty(), has_none, "{}", subject.name);
            let tries = cases.iter().enumerate().flat_map(|case| TARGETS.iter().map(move |target| (case, target)));
            for ((at, case), target) in tries {
                // A software adapter compiles shaders for many of them: it runs one in four.
                if target.is_software() && !at.is_multiple_of(4) {
                    continue;
                }
                let served = is_served_as_it_is_said(case, target, is_large);
                failures.extend(served.err().map(|error| format!("{}: {case:?}: {error:#}", target.name)));
            }
        }
    }
    let first: Vec<&String> = failures.iter().take(20).collect();
    assert!(failures.is_empty(), "{} failures, the first of them {first:#?}", failures.len());
}

#[test]
fn rows_without_columns_and_large_extents_of_nothing_are_served() {
    for op in ["layer_norm", "rms_norm"] {
        for dims in ["[3,0]", "[0]", "[4,3,0]", "[0,3,2147483648]", "[2147483648,0]"] {
            for stats in ["", r#","stats":true"#] {
                if dims == "[2147483648,0]" && !stats.is_empty() {
                    continue; // It would write as many statistics.
                }
                let line =
                    format!(r#"{op} {{"x":{{"dtype":"f32","dims":{dims}}},"normalized_dims":1,"eps":1e-5{stats}}}"#);
                for target in TARGETS.iter() {
                    let served = is_served_as_it_is_said(&Case::parse(&line).unwrap(), target, false);
                    served.unwrap_or_else(|error| panic!("{}: {line}: {error:#}", target.name));
                }
            }
        }
    }
}

/// Sums over nothing are 0, or `beta` times what is there, whatever the extents beside the one that is 0.
#[test]
fn gradients_that_are_sums_over_nothing_are_served() {
    for line in [
        r#"conv_backward_bias {"dy":{"dtype":"f32","dims":[2147483647,2,0]}}"#,
        r#"conv_backward_bias {"dy":{"dtype":"f32","dims":[0,2,1099511627776]},"beta":0.5}"#,
        r#"conv_backward_weight {"x":{"dtype":"f32","dims":[0,2,2147483647]},"dy":{"dtype":"f32","dims":[0,3,2147483646]},"dweight":{"dtype":"f32","dims":[3,2,2]}}"#,
        r#"conv_backward_weight {"x":{"dtype":"f32","dims":[0,2,2147483647]},"dy":{"dtype":"f32","dims":[0,3,2147483647]},"dweight":{"dtype":"f32","dims":[3,2,1]},"beta":2.0}"#,
        r#"conv_backward_weight {"x":{"dtype":"f32","dims":[0,2,2147483647]},"dy":{"dtype":"f32","dims":[0,2,2147483646]},"dweight":{"dtype":"f32","dims":[2,1,2]},"groups":2}"#,
        r#"gemm_backward {"a":{"dtype":"f32","dims":[1099511627776,0,3]},"b":{"dtype":"f32","dims":[3,5]},"da":{"dtype":"f32"},"db":{"dtype":"f32"}}"#,
        r#"gemm_backward {"a":{"dtype":"f32","dims":[1099511627776,0,3]},"b":{"dtype":"f32","dims":[3,5]},"db":{"dtype":"f32","beta":0.5},"dbias":{"dtype":"f32"}}"#,
    ] {
        is_served_everywhere(line);
    }
}

/// Where coordinates with a sign need more than 32 bits: of forward's last rows, of the gradient of the data before its last ones, and of the end of a dilated
/// kernel.
#[test]
fn windows_that_reach_beyond_32_bits_are_served() {
    for (spatial, kernel, window) in [
        (5, 3, r#""stride":[2147483647],"padding":[[2147483647,2147483647]]"#),
        (5, 2, r#""stride":[2147483647],"padding":[[0,2147483647]]"#),
        (9, 5, r#""stride":[2147483646],"padding":[[2147483647,2147483647]]"#),
        (5, 2, r#""stride":[1],"dilation":[2147483647],"padding":[[0,2147483647]]"#),
        (6, 2, r#""stride":[2],"dilation":[2147483647],"padding":[[2147483647,3]]"#),
        (7, 3, r#""stride":[1],"dilation":[1073741823],"padding":[[2147483640,6]]"#),
    ] {
        let x = format!(r#""x":{{"dtype":"f32","dims":[2,2,{spatial}]}}"#);
        let weight = format!(r#""weight":{{"dtype":"f32","dims":[3,2,{kernel}]}}"#);
        let forward = AnyDescriptor::parse_line(&format!("conv {{{x},{weight},{window}}}")).unwrap();
        is_served_everywhere(&forward.line());
        let steps = forward.gradients(&["y"], &["x", "weight"]).unwrap();
        assert_eq!(steps.len(), 2);
        steps.iter().for_each(|step| is_served_everywhere(&step.descriptor.line()));
    }
}

/// Where padding cuts off nearly all of an extent that needs more than 32 bits, and where no product reaches the end of y, or any of it.
#[test]
fn transposed_windows_that_reach_far_are_served() {
    for (spatial, kernel, window) in [
        (3, 2, r#""stride":[2147483647],"padding":[[2147483640,2147483600]],"output_padding":[50]"#),
        (2, 3, r#""dilation":[1073741823],"padding":[[2147483640,1]]"#),
        (4, 1, r#""dilation":[1099511627776],"padding":[[7,0]],"output_padding":[20]"#),
        (1, 2, r#""dilation":[5],"padding":[[6,0]],"output_padding":[4]"#),
    ] {
        let x = format!(r#""x":{{"dtype":"f32","dims":[2,2,{spatial}]}}"#);
        let weight = format!(r#""weight":{{"dtype":"f32","dims":[2,3,{kernel}]}}"#);
        for options in ["", r#","bias":"f32""#] {
            let forward =
                AnyDescriptor::parse_line(&format!("conv_transpose {{{x},{weight},{window}{options}}}")).unwrap();
            is_served_everywhere(&forward.line());
            let steps = forward.gradients(&["y"], &["x", "weight"]).unwrap();
            steps.iter().for_each(|step| is_served_everywhere(&step.descriptor.line()));
        }
    }
}

/// No device may refuse the case.
fn is_served_everywhere(line: &str) {
    let case = Case::parse(line).unwrap();
    for target in TARGETS.iter() {
        let Ok(device) = &target.device else { continue };
        let supported = case.descriptor.supported_by(device, &PlanOptions::default());
        supported.unwrap_or_else(|error| panic!("{}: {line}: {error}", target.name));
        let served = is_served_as_it_is_said(&case, target, false);
        served.unwrap_or_else(|error| panic!("{}: {line}: {error:#}", target.name));
    }
}

/// ONNX: `square_sum[n, c] = sum(x[n, i]^2)` over `max(0, c - floor((size - 1) / 2)) <= i <= min(C - 1, c + ceil((size - 1) / 2))`.
#[test]
fn windows_that_are_longer_after_their_channel_are_those_of_onnx() {
    const CHANNELS: usize = 7;
    for size in 1..=16 {
        let line = format!(
            r#"local_response_norm {{"x":{{"dtype":"f32","dims":[2,{CHANNELS}]}},"size":{size},"alpha":0.5,"beta":0.75,"k":2.0,"longer_after":true}}"#
        );
        let (before, after) = ((size - 1) / 2, size / 2);
        on_every_device(
            &line,
            |_| {},
            |_, by, inputs, outputs| {
                let (x, y) = (inputs.values("x").unwrap(), outputs.values("y").unwrap());
                for (row, found) in x.chunks(CHANNELS).zip(y.chunks(CHANNELS)) {
                    for c in 0..CHANNELS {
                        let window = &row[c.saturating_sub(before)..=(c + after).min(CHANNELS - 1)];
                        let square_sum: f64 = window.iter().map(|x| x * x).sum();
                        let expected = row[c] / (2.0 + 0.5 / size as f64 * square_sum).powf(0.75);
                        assert!((found[c] - expected).abs() <= 1e-6, "{by:?}: size {size}: {} {expected}", found[c]);
                    }
                }
            },
        );
    }
}

#[test]
fn a_constant_row_gives_0_within_the_budget() {
    let wide = [1, 8, 37, 300, 333, 1024, 32768].map(|cols| ("f32", cols));
    for (dtype, cols) in wide.into_iter().chain([("bf16", 333)]) {
        let line = format!(
            r#"layer_norm {{"x":{{"dtype":"{dtype}","dims":[16,{cols}]}},"normalized_dims":1,"eps":1e-5,"stats":true}}"#
        );
        let change = |inputs: &mut Tensors| {
            let mut random = Random::of("a number a row");
            let x = &mut inputs.0[0];
            for (row, values) in x.values.chunks_mut(cols).enumerate() {
                let number = if row == 0 { 1000.1 } else { 400.0 * random.normal() };
                values.fill(rounded(x.dtype, number));
            }
        };
        on_every_device(&line, change, |case, by, inputs, outputs| {
            judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
            let left = outputs.values("y").unwrap().iter().filter(|y| **y != 0.0).count();
            // Equal differences from the mean are a few of its ulps: of a power of two of them the mean is exact, and with it the correction.
            if by.backend == Backend::Cpu || cols.is_power_of_two() {
                assert_eq!(left, 0, "{by:?}: {line}");
            }
        });
    }
}

/// Its square may overflow: the mean is exact, and so is the difference from it.
#[test]
fn a_group_of_one_element_may_have_any_magnitude() {
    for dtype in ["f32", "bf16"] {
        for (op, dims) in [
            ("layer_norm", r#"[5,1]},"normalized_dims":1"#),
            ("group_norm", r#"[2,2,1]},"groups":2"#),
            ("group_norm", r#"[3,6]},"groups":6"#),
            ("group_norm", r#"[2,300,1,1],"strides":[300,1,300,300]},"groups":300"#),
        ] {
            let line = format!(r#"{op} {{"x":{{"dtype":"{dtype}","dims":{dims},"eps":1e-5,"stats":true}}"#);
            for magnitude in [3e19, 1e26, 1e30, 3.3e38] {
                let change =
                    |inputs: &mut Tensors| set(inputs, "x", |i| if i % 2 == 0 { magnitude } else { -magnitude });
                on_every_device(&line, change, |case, by, inputs, outputs| {
                    judge(case, by, inputs, outputs)
                        .unwrap_or_else(|error| panic!("{by:?}: {line}: {magnitude:e}: {error:#}"));
                    assert!(outputs.values("y").unwrap().iter().all(|y| *y == 0.0), "{by:?}: {line}: {magnitude:e}");
                });
            }
        }
    }
}

#[test]
fn subnormal_inputs_of_forward_cost_nothing() {
    for line in [LAYER, RMS, BATCH, GROUP, INSTANCE, RESPONSE, SOFTMAX] {
        for exponent in [-126, -130, -140] {
            holds(line, |inputs| scale_to(inputs, "x", 2f64.powi(exponent)));
        }
    }
}

#[test]
fn variances_down_to_the_least_that_norms_take() {
    for line in [LAYER, RMS] {
        let line = line.replace("1e-5", "0.0");
        holds(&line, |inputs| scale_to(inputs, "x", 2f64.powi(-49)));
    }
    for line in [BATCH, GROUP, INSTANCE] {
        holds(&line.replace("1e-5", "1e-30"), |inputs| scale_to(inputs, "x", 2f64.powi(-49)));
    }
}

#[test]
fn gradients_of_the_least_and_the_greatest_scales() {
    for (line, has_mean) in [(LAYER_BACKWARD, true), (RMS_BACKWARD, false), (BATCH_BACKWARD, true)] {
        for exponent in [-50, 50] {
            holds(line, |inputs| {
                scale_to(inputs, "x", 2f64.powi(exponent));
                fill(inputs, "rstd", 2f64.powi(-exponent));
                if has_mean {
                    fill(inputs, "mean", 0.0);
                }
            });
        }
        // Of dy the result is a multiple.
        for exponent in [-60, 90] {
            holds(line, |inputs| scale_to(inputs, "dy", 2f64.powi(exponent)));
        }
    }
    for exponent in [-80, 100] {
        holds(SOFTMAX_BACKWARD, |inputs| scale_to(inputs, "dy", 2f64.powi(exponent)));
        holds(RESPONSE_BACKWARD, |inputs| scale_to(inputs, "dy", 2f64.powi(exponent)));
    }
}

#[test]
fn gradients_of_parameters_lack_at_most_what_is_subnormal() {
    for line in [LAYER_BACKWARD, RMS_BACKWARD, BATCH_BACKWARD] {
        let tiny = |inputs: &mut Tensors, exponent: i32| {
            scale_to(inputs, "x", 2f64.powi(exponent));
            fill(inputs, "rstd", 1e6);
            if inputs.get("mean").is_some() {
                fill(inputs, "mean", 0.0);
            }
        };
        holds(line, |inputs| tiny(inputs, -95));
        // Beyond the edge a device may take x for 0, and does so for all of it or not at all.
        on_every_device(
            line,
            |inputs| tiny(inputs, -135),
            |case, by, inputs, outputs| {
                let dweight = outputs.values("dweight").unwrap();
                let is_zero = dweight.iter().all(|v| *v == 0.0);
                let others = || judge(case, by, inputs, outputs).unwrap_or_else(|e| panic!("{by:?}: {line}: {e:#}"));
                match by.backend {
                    Backend::Wgpu if is_zero => {}
                    _ => drop(others()),
                }
            },
        );
    }
}

#[test]
fn results_around_the_least_normal_number() {
    for line in [LAYER, RMS, BATCH, INSTANCE] {
        for exponent in [-122, -126, -130] {
            holds_scaled(line, &|inputs, scale| {
                scale(inputs, "weight", 2f64.powi(exponent));
                if inputs.get("bias").is_some() {
                    fill(inputs, "bias", 0.0);
                }
            });
        }
    }
    for line in [SOFTMAX.into(), SOFTMAX.replace("f32", "bf16")] {
        // Logits from 0 down to -110: the last results are subnormal numbers and zeros.
        holds(&line, |inputs| {
            let x = &mut inputs.0[0];
            x.values.iter_mut().enumerate().for_each(|(i, v)| *v = rounded(x.dtype, -110.0 * (i % 127) as f64 / 126.0));
        });
    }
}

#[test]
fn products_of_the_greatest_and_the_least_magnitudes() {
    for line in products(GEMM) {
        let is_narrow = line.contains(r#""f16""#);
        let exponents: &[(i32, i32)] = match is_narrow {
            true => &[(13, 13), (13, -13), (-20, 13), (-18, -18)],
            false => &[(112, 0), (0, 112), (56, 56), (-110, 110), (-90, 0), (-45, -45), (-120, 60)],
        };
        for &(of_a, of_b) in exponents {
            holds_scaled(&line, &|inputs, scale| {
                scale(inputs, "a", 2f64.powi(of_a));
                scale(inputs, "b", 2f64.powi(of_b));
                fill(inputs, "bias", 0.0);
            });
        }
    }
    for line in products(GEMM_BACKWARD) {
        let is_narrow = line.contains(r#""f16""#);
        // Of a, b and dout. A loss is scaled by 4096 or by 2^-12 where gradients of 16 bits would be too small or too large.
        let exponents: &[(i32, i32, i32)] = match is_narrow {
            true => &[(0, 0, 12), (0, 0, -12), (13, 0, 13), (-18, -3, 4), (2, -18, -18)],
            false => &[
                (0, 0, 12),
                (0, 0, 100),
                (0, 0, -85),
                (56, 56, 56),
                (-45, -45, -45),
                (100, -100, 10),
                (-100, 100, -10),
            ],
        };
        for &(of_a, of_b, of_dout) in exponents {
            holds_scaled(&line, &|inputs, scale| {
                scale(inputs, "a", 2f64.powi(of_a));
                scale(inputs, "b", 2f64.powi(of_b));
                scale(inputs, "dout", 2f64.powi(of_dout));
                fill(inputs, "bias", 0.0);
            });
        }
    }
}

#[test]
fn activations_along_a_grid() {
    const POINTS: usize = 1 << 16;
    for activation in ["relu", "gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh"] {
        let line = format!(r#"activation {{"x":{{"dtype":"f32","dims":[{POINTS}]}},"activation":"{activation}"}}"#);
        holds(&line, |inputs| set(inputs, "x", |i| 12.0 * (i as f64 / POINTS as f64 - 0.5)));
    }
}

/// Checks every activation with every number of a type of 16 bits: of bf16 without subnormal numbers through wgpu, where they may count as 0.
fn check_every_number(dtype: &str, op: &str) {
    const NUMBERS: usize = 1 << 16;
    for activation in ["identity", "relu", "gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh"] {
        let line = format!(r#"{op} {{"x":{{"dtype":"{dtype}","dims":[{NUMBERS}]}},"activation":"{activation}"}}"#);
        holds_for_every_number(&line, dtype);
    }
}

/// Checks a descriptor whose first tensor has as many elements as a type of 16 bits has numbers.
fn holds_for_every_number(line: &str, dtype: &str) {
    for is_wgpu in [false, true] {
        let change = |inputs: &mut Tensors| {
            // The derivative of identity has no x.
            let name = ["x", "in0", "dy"].into_iter().find(|name| inputs.get(name).is_some()).expect("an input");
            set(inputs, name, |i| {
                let number = match dtype {
                    "f16" => f16::from_bits(i as u16).to_f64(),
                    _ => bf16::from_bits(i as u16).to_f64(),
                };
                let is_subnormal = number.abs() < f64::from(f32::MIN_POSITIVE);
                if is_wgpu && is_subnormal { 0.0 } else { number }
            });
        };
        let is_meant = |target: &Target| (target.backend == Backend::Wgpu) == is_wgpu;
        on_devices(is_meant, line, change, |case, by, inputs, outputs| {
            judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
        });
    }
}

/// Every function of every number of 16 bits, in each of its arguments, with an output of f32 that hides none of its error.
#[test]
fn functions_of_every_number_of_16_bits() {
    let is_of_numbers = |function: &Function| function.computes_in(DType::F32) && !function.takes_bool(0);
    let functions: Vec<Function> = Function::ALL.into_iter().filter(is_of_numbers).collect();
    // References take most of the time: one function to a thread.
    let next = AtomicUsize::new(0);
    let take = || functions.get(next.fetch_add(1, Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| std::iter::from_fn(take).for_each(holds_for_every_argument));
        }
    });
}

/// Any number of 16 bits in the place of each argument in turn.
fn holds_for_every_argument(function: &Function) {
    for (dtype, at) in ["f16", "bf16"].into_iter().flat_map(|dtype| (0..function.arity()).map(move |at| (dtype, at))) {
        let numbers = ["1.7", "-0.3"];
        let arguments: Vec<String> = (0..function.arity())
            .map(|own| if own == at { r#""x""#.into() } else { numbers[own % numbers.len()].into() })
            .collect();
        let (name, arguments) = (function.name(), arguments.join(","));
        let line = format!(
            r#"pointwise {{"program":{{"inputs":["x"],"let":[["y","{name}",{arguments}]],"outputs":["y"]}},"inputs":[{{"dtype":"{dtype}","dims":[65536]}}],"outputs":["f32"]}}"#
        );
        holds_for_every_number(&line, dtype);
    }
}

/// Programs of a fixed seed, beside those that the parity matrix draws for each commit. A software adapter compiles a shader for each.
#[test]
fn random_programs_hold_their_budgets() {
    let mut random = fastrand::Rng::with_seed(17);
    let types = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U8,
        DType::I8,
        DType::Bool,
        DType::F8E4M3,
    ];
    let mut tried = 0usize;
    while tried < 400 {
        let Ok(case) = program(types[tried % types.len()], 1 << 9, &mut random) else { continue };
        let is_for_software = tried.is_multiple_of(20);
        let is_refused = |device: &Device| {
            let refused = case.descriptor.supported_by(device, &case.options).err();
            refused.is_some_and(|error| case.may_be_refused_on(&device.props(), &error))
        };
        let is_meant = |target: &Target| {
            let is_tried = target.name != "wgpu-plain"
                && (is_for_software || !target.is_software())
                && !case.must_be_refused_by(target.backend);
            is_tried && !target.device.as_ref().is_ok_and(is_refused)
        };
        on_devices(
            is_meant,
            &case.line(),
            |_| {},
            |case, by, inputs, outputs| {
                judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {case:?}: {error:#}"));
            },
        );
        tried += 1;
    }
}

#[test]
fn one_thread_of_the_cpu_gives_the_bits_of_all() {
    for dtype in [DType::F32, DType::BF16] {
        for Showcase { label, descriptor } in showcases(dtype).unwrap() {
            let case = Case::new(descriptor, Data::Normal);
            let inputs = case.inputs(0).unwrap();
            let [one, all] = [Device::cpu_with(NonZeroUsize::MIN), Device::cpu()].map(|device| {
                let plan = case.plan(&device).unwrap();
                let layout = Layout::Apart { shift: 0 };
                let mut arena = Arena::new(plan.slots(), plan.workspace(), &inputs, layout, InPlace::No, POISON);
                OnDevice(&plan).run(&mut arena).unwrap();
                let bits = arena.outputs().0.into_iter().flat_map(|output| output.values).map(f64::to_bits);
                bits.collect::<Vec<u64>>()
            });
            assert!(!one.is_empty() && one == all, "{label} {dtype}");
        }
    }
}

#[test]
fn activations_of_every_f16() {
    check_every_number("f16", "activation");
}

#[test]
fn activations_of_every_bf16() {
    check_every_number("bf16", "activation");
}

#[test]
fn gradients_of_activations_at_every_bf16() {
    check_every_number("bf16", "activation_backward");
}

#[test]
fn products_of_small_integers_are_exact() {
    let [of_a, of_b] = [|i: usize| ((i * 37) % 9) as f64 - 4.0, |i: usize| ((i * 23) % 11) as f64 - 5.0];
    for line in products(GEMM) {
        let change = |inputs: &mut Tensors| {
            set(inputs, "a", of_a);
            set(inputs, "b", of_b);
            set(inputs, "bias", |i| i as f64 - 3.0);
        };
        on_every_device(&line, change, |_, by, _, outputs| {
            let product = |row: usize, column: usize| -> f64 {
                (0..32).map(|k| of_a(row * 32 + k) * of_b(k * 7 + column)).sum::<f64>() + column as f64 - 3.0
            };
            let expected: Vec<f64> = (0..9 * 7).map(|i| product(i / 7, i % 7)).collect();
            assert_eq!(outputs.values("pre").unwrap(), expected, "{by:?}: {line}");
            let positive: Vec<f64> = expected.iter().map(|v| v.max(0.0)).collect();
            assert_eq!(outputs.values("out").unwrap(), positive, "{by:?}: {line}");
        });
    }
}

#[test]
fn products_of_subnormal_numbers_count_or_are_0() {
    for line in products(GEMM).into_iter().filter(|line| !line.contains(r#""f16""#)) {
        let change = |inputs: &mut Tensors| {
            // Multiples of the least subnormal of bf16.
            set(inputs, "a", |i| ((i * 37) % 127) as f64 * 2f64.powi(-133));
            scale_to(inputs, "b", 2f64.powi(60));
            fill(inputs, "bias", 0.0);
        };
        on_every_device(&line, change, |case, by, inputs, outputs| {
            let is_zero = outputs.values("pre").unwrap().iter().all(|v| *v == 0.0);
            if by.backend != Backend::Wgpu || !is_zero {
                judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
            }
        });
    }
}

#[test]
fn sums_of_products_that_cancel() {
    for line in products(GEMM) {
        // Every term of the second half of a sum is one of the first with the other sign.
        let factor = if line.contains(r#""f16""#) { 2f64.powi(12) } else { 2f64.powi(54) };
        holds(&line, |inputs| {
            scale_to(inputs, "a", factor);
            scale_to(inputs, "b", factor);
            fill(inputs, "bias", 0.0);
            let [a, b] = [0, 1].map(|i| inputs.0[i].values.clone());
            set(inputs, "a", |i| if i % 32 < 16 { a[i] } else { -a[i - 16] });
            set(inputs, "b", |i| b[i % (16 * 7)]);
        });
        // And a bias that cancels the sum.
        on_every_device(
            &line,
            |inputs| {
                fill(inputs, "a", 8.0);
                fill(inputs, "b", 4.0);
                fill(inputs, "bias", -1024.0);
            },
            |_, by, _, outputs| {
                assert!(outputs.0.iter().all(|t| t.values.iter().all(|v| *v == 0.0)), "{by:?}: {line}");
            },
        );
    }
}

/// Roundings of a running sum of equal numbers all have one sign.
#[test]
fn sums_of_equal_products() {
    for line in products(GEMM) {
        for terms in [32, 129, 4099] {
            let line = line.replace("[9,32]", &format!("[9,{terms}]")).replace("[32,7]", &format!("[{terms},7]"));
            holds(&line, |inputs| {
                fill(inputs, "a", 0.1);
                fill(inputs, "b", 3.0);
            });
        }
    }
    for line in products(GEMM_BACKWARD) {
        let line = line.replace("[9,32]", "[4099,32]");
        holds(&line, |inputs| {
            fill(inputs, "a", 0.1);
            fill(inputs, "b", 3.0);
            fill(inputs, "dout", 0.7);
        });
    }
}

#[test]
fn what_is_not_finite_stays_in_its_row_and_its_column() {
    let (row, col) = (5, 4);
    for line in products(GEMM) {
        let line = line.replace(r#""relu""#, r#""identity""#);
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let change = |inputs: &mut Tensors| {
                inputs.0[0].values[row * 32 + 31] = number;
                inputs.0[1].values[3 * 7 + col] = number;
            };
            on_every_device(&line, change, |case, by, inputs, outputs| {
                judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
                for (i, value) in outputs.values("out").unwrap().iter().enumerate() {
                    let is_apart = i / 7 != row && i % 7 != col;
                    assert_eq!(value.is_finite(), is_apart, "{by:?}: {line}: element {i} is {value}");
                }
            });
        }
    }
    for line in products(GEMM_BACKWARD) {
        let line = line.replace(r#","saved":"recompute""#, "").replace(r#""relu""#, r#""identity""#);
        for number in [f64::NAN, f64::INFINITY] {
            let change = |inputs: &mut Tensors| {
                let dout = inputs.0.iter_mut().find(|t| t.name == "dout").unwrap();
                dout.values[row * 7 + col] = number;
            };
            on_every_device(&line, change, |case, by, inputs, outputs| {
                judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
                let finite =
                    |name: &str| outputs.values(name).unwrap().iter().map(|v| v.is_finite()).collect::<Vec<_>>();
                assert!(
                    finite("da").iter().enumerate().all(|(i, is_finite)| *is_finite == (i / 32 != row)),
                    "{by:?}: {line}"
                );
                assert!(
                    finite("db").iter().enumerate().all(|(i, is_finite)| *is_finite == (i % 7 != col)),
                    "{by:?}: {line}"
                );
                assert!(
                    finite("dbias").iter().enumerate().all(|(i, is_finite)| *is_finite == (i != col)),
                    "{by:?}: {line}"
                );
            });
        }
    }
}

#[test]
fn activations_of_products_far_out_and_at_0() {
    let dims = [(r#""dims":[9,32]"#, r#""dims":[81,1]"#), (r#""dims":[32,7]"#, r#""dims":[1,3]"#)];
    let reshaped = |line: String| dims.iter().fold(line, |line, (from, to)| line.replace(from, to));
    for activation in ["gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh"] {
        let named = |line: String| reshaped(line).replace("relu", activation);
        let change = |inputs: &mut Tensors| {
            // From 0.001 to 30000, of both signs.
            set(inputs, "a", |i| (i as f64 - 40.0).signum() * 10f64.powf((i as f64 - 40.0).abs() / 40.0 * 7.477 - 3.0));
            fill(inputs, "b", 1.0);
            fill(inputs, "bias", 0.0);
        };
        products(GEMM).into_iter().map(named).for_each(|line| holds(&line, change));
        products(GEMM_BACKWARD).into_iter().map(named).for_each(|line| holds(&line, change));
    }
    // The derivative of relu at 0, and at -0, is 0.
    for line in products(GEMM_BACKWARD) {
        on_every_device(
            &line,
            |inputs| {
                set(inputs, "a", |i| if i / 32 < 4 { 0.0 } else { -0.0 });
                fill(inputs, "b", 1.0);
                fill(inputs, "bias", -0.0);
            },
            |_, by, _, outputs| {
                assert!(outputs.0.iter().all(|t| t.values.iter().all(|v| *v == 0.0)), "{by:?}: {line}");
            },
        );
    }
}

/// Where infinite numbers come together, or meet a 0.
#[test]
fn infinities_that_come_together() {
    let gives = |line: &str, given: &[(&str, &[f64])], name: &str, expected: &[f64]| {
        let change = |inputs: &mut Tensors| given.iter().for_each(|(name, values)| set(inputs, name, |i| values[i]));
        on_every_device(line, change, |_, by, _, outputs| {
            let got = outputs.values(name).unwrap();
            let is_same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(got.iter().zip(expected).all(is_same), "{by:?}: {line}: {got:?}, expected {expected:?}");
        });
    };
    const INFINITE: f64 = f64::INFINITY;
    for dtype in ["f32", "f64"] {
        let line = format!(r#"scan {{"x":{{"dtype":"{dtype}","dims":[6]}},"axis":0,"scan":"logsumexp"}}"#);
        let x = [-INFINITE, -INFINITE, 1.0, INFINITE, INFINITE, 2.0];
        gives(&line, &[("x", &x)], "y", &[-INFINITE, -INFINITE, 1.0, INFINITE, INFINITE, INFINITE]);
    }
    // A norm of order 1 has no slope at 0, of which 0 is taken unless what arrives is infinite.
    let line = r#"pool_backward {"x":{"dtype":"f32","dims":[1,1,6]},"pooling":"norm1","kernel":[2]}"#;
    let given: [(&str, &[f64]); 2] = [("x", &[0.0, -0.0, 1.0, -2.0, 0.0, -0.0]), ("dy", &[INFINITE, 3.0, 4.0])];
    gives(line, &given, "dx", &[f64::NAN, f64::NAN, 3.0, -3.0, 0.0, 0.0]);
    // Slopes of activations are their limits.
    let slopes = [("relu", [0.0, 1.0]), ("gelu_erf", [0.0, 1.0]), ("gelu_tanh", [0.0, 1.0]), ("silu", [0.0, 1.0])];
    for (activation, [below, above]) in slopes.into_iter().chain(["sigmoid", "tanh"].map(|name| (name, [0.0; 2]))) {
        let line = format!(
            r#"gemm_backward {{"a":{{"dtype":"f32","dims":[2,1]}},"b":{{"dtype":"f32","dims":[1,1]}},"activation":"{activation}","out":"f32","da":{{"dtype":"f32"}}}}"#
        );
        let given: [(&str, &[f64]); 3] = [("b", &[1.0]), ("dout", &[2.0, 2.0]), ("pre", &[-INFINITE, INFINITE])];
        gives(&line, &given, "da", &[2.0 * below, 2.0 * above]);
    }
}

/// More matrices than CUDA has blocks along an axis of its grid.
#[test]
fn more_products_than_65535() {
    let batch = |line: &str, shared: &str| {
        let line = line.replace(r#""dims":[9,32]"#, r#""dims":[65537,1,2]"#);
        line.replace(r#""dims":[32,7]"#, &format!(r#""dims":[{shared},2,1]"#))
    };
    for line in [GEMM, GEMM_BACKWARD] {
        for shared in ["65537", "1"] {
            let line = batch(line, shared);
            // It launches no more than 256 workgroups.
            let has_many_groups = |target: &Target| target.name != "wgpu-plain";
            on_devices(
                has_many_groups,
                &line,
                |_| (),
                |case, by, inputs, outputs| {
                    judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
                },
            );
        }
    }
}
