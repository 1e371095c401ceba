//! Every gate of the harness against a fault planted for it: a gate that lets its fault pass proves nothing about the rest.
//!
//! Faults that only tools can see are beside this file: `sanitizer.cu` for compute-sanitizer (a write out of bounds, a missing barrier),
//! `spill.cu`, `warning.cu` and `no_kernel.cu` for the kernel gate.

use std::collections::HashSet;

use baracuda_ops::{AnyPlan, Backend, Device, Math, PlanOptions, WorkspaceReq};
use baracuda_ops_tests::arena::{Arena, InPlace, Layout, POISON};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::faulty::{Fault, Faulty};
use baracuda_ops_tests::floor::{self, Ended, Record};
use baracuda_ops_tests::judge::{By, Expected, budget, compare, units};
use baracuda_ops_tests::matrix;
use baracuda_ops_tests::modes::{self, Mode, Outcome, run_and_judge, same_bits};
use baracuda_ops_tests::target::{TARGETS, target};
use baracuda_ops_tests::values::Tensors;

/// The workspace that the reference, which needs none, pretends to need.
const WORKSPACE: WorkspaceReq = WorkspaceReq { bytes: 64, align: 16 };

fn case(line: &str) -> Case {
    Case::parse(line).unwrap()
}

fn plan(case: &Case) -> AnyPlan {
    case.plan(&Device::cpu()).unwrap()
}

fn outcome(line: &str, fault: Fault) -> Result<f64, String> {
    outcome_with(line, fault, |_| {})
}

/// With inputs that are changed before the run.
fn outcome_with(line: &str, fault: Fault, change: impl Fn(&mut Tensors)) -> Result<f64, String> {
    let case = case(line);
    let plan = plan(&case);
    let mut inputs = case.inputs(0).unwrap();
    change(&mut inputs);
    let layout = Layout::Apart { shift: 0 };
    let mut arena = Arena::new(plan.slots(), WORKSPACE, &inputs, layout, InPlace::No, POISON);
    let executor = Faulty { plan: &plan, fault };
    run_and_judge(&case, By::of(&plan), &inputs, &mut arena, &executor).map(|w| w.units).map_err(|e| e.to_string())
}

/// The fault is caught, for the reason it should be, and the same case without it passes.
fn is_caught(line: &str, fault: Fault, because: &str) {
    outcome(line, Fault::None).unwrap();
    let why = outcome(line, fault).expect_err("the fault was not caught");
    assert!(why.contains(because), "{fault:?} was caught, but because: {why}");
}

const PLAIN: &str = r#"layer_norm {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"eps":1e-5}"#;
const HALF: &str = r#"layer_norm {"x":{"dtype":"bf16","dims":[5,127]},"normalized_dims":1,"eps":1e-5,"stats":true}"#;
const STRIDED: &str = r#"rms_norm {"x":{"dtype":"f32","dims":[5,64],"strides":[72,1]},"normalized_dims":1,"eps":1e-5}"#;
const BACKWARD: &str = r#"layer_norm_backward {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","dx":true,"dweight":true,"dbias":"f32"}"#;
const CHANNELS: &str = r#"batch_norm {"x":{"dtype":"bf16","dims":[3,4,5,7]},"weight":"f32","bias":"f32","eps":1e-5,"momentum":0.1,"stats":true}"#;
const CHANNELS_BACKWARD: &str = r#"group_norm_backward {"x":{"dtype":"f32","dims":[2,6,5,7],"strides":[210,1,42,6]},"groups":3,"weight":"f32","bias":"f32","activation":"silu","dx":true,"dweight":true,"dbias":true}"#;

#[test]
fn writes_outside_outputs() {
    for line in [PLAIN, HALF, STRIDED, BACKWARD, CHANNELS, CHANNELS_BACKWARD] {
        is_caught(line, Fault::WritesPastTheEnd, "past");
        is_caught(line, Fault::WritesBeforeTheStart, "before");
    }
    is_caught(STRIDED, Fault::WritesBetweenRows, "no element of an output");
}

#[test]
fn a_skipped_tail() {
    for line in [PLAIN, HALF, BACKWARD] {
        is_caught(line, Fault::SkipsTheTail, "is NaN");
    }
}

#[test]
fn squares_subtracted() {
    let line = format!("{PLAIN} large_mean");
    is_caught(&line, Fault::SubtractsSquares, "units");
    // On harmless data the same formula passes: the hard data is what catches it.
    outcome(PLAIN, Fault::SubtractsSquares).unwrap();
}

#[test]
fn a_swallowed_nan() {
    for line in [PLAIN, HALF] {
        is_caught(&format!("{line} nan"), Fault::SwallowsNan, "expected NaN");
        is_caught(&format!("{line} inf"), Fault::SwallowsNan, "expected NaN");
    }
    for line in [BACKWARD, CHANNELS, CHANNELS_BACKWARD] {
        is_caught(&format!("{line} nan"), Fault::SwallowsNan, "expected NaN");
    }
}

#[test]
fn infinities_that_are_none() {
    let f32 = baracuda_ops::DType::F32;
    assert_eq!(units(f32, f64::INFINITY, f64::INFINITY, 1.0), 0.0);
    for wrong in [f64::from(f32::MAX), f64::NEG_INFINITY, f64::NAN] {
        assert_eq!(units(f32, wrong, f64::INFINITY, 1.0), f64::INFINITY);
    }
    assert_eq!(units(f32, f64::INFINITY, 1.0, 1.0), f64::INFINITY);
}

/// A backward and forwards in inference.
const INFERENCE: &str = r#"batch_norm_backward {"x":{"dtype":"f32","dims":[3,4,5,7]},"weight":"f32","bias":"f32","activation":"silu","inference":true,"eps":1e-5,"dx":true,"dweight":true,"dbias":true}"#;
const BOUNDED: [&str; 2] = [
    r#"batch_norm {"x":{"dtype":"f32","dims":[3,4,5,7]},"weight":"f32","bias":"f32","inference":true,"activation":"sigmoid","eps":1e-5}"#,
    r#"batch_norm {"x":{"dtype":"bf16","dims":[3,4,5,7]},"inference":true,"activation":"tanh","eps":1e-5}"#,
];

#[test]
fn a_wrong_number_beside_an_infinity_that_an_activation_bounds() {
    // The derivative there is 0 and the error of the argument was infinite: their product is no budget.
    for line in BOUNDED {
        for data in ["inf", "neg_inf"] {
            is_caught(&format!("{line} {data}"), Fault::ScalesOutputs, "units");
        }
    }
}

#[test]
fn a_wrong_number_beside_an_infinite_bias() {
    let infinite = |inputs: &mut Tensors| {
        let bias = inputs.0.iter_mut().find(|t| t.name == "bias").unwrap();
        (bias.values[1], bias.values[2]) = (f64::INFINITY, f64::NEG_INFINITY);
    };
    for line in [INFERENCE, CHANNELS_BACKWARD, BOUNDED[0]] {
        outcome_with(line, Fault::None, infinite).unwrap();
        let why = outcome_with(line, Fault::ScalesOutputs, infinite).expect_err("the fault was not caught");
        assert!(why.contains("units"), "{why}");
    }
    // One sample and one group: every budget is made of the infinite bias.
    let line = r#"group_norm_backward {"x":{"dtype":"f32","dims":[1,4,35]},"groups":1,"weight":"f32","bias":"f32","activation":"silu","dx":true}"#;
    outcome_with(line, Fault::None, infinite).unwrap();
    outcome_with(line, Fault::ScalesOutputs, infinite).expect_err("the fault was not caught");
}

const PRODUCT: &str = r#"gemm {"a":{"dtype":"f32","dims":[33,96]},"b":{"dtype":"f32","dims":[96,40]},"out":"f32"}"#;
const CONVOLUTION: &str =
    r#"conv {"x":{"dtype":"f32","dims":[2,6,7,9]},"weight":{"dtype":"f32","dims":[8,6,3,3]},"padding":[[1,1],[1,1]]}"#;

#[test]
fn what_only_hard_factors_show() {
    let hard = [("sparse", Fault::LeaksANumber), ("wide", Fault::SharesOneExponent)];
    for line in [PRODUCT, CONVOLUTION] {
        for (data, fault) in hard {
            is_caught(&format!("{line} {data}"), fault, "units");
            outcome(line, fault).unwrap();
        }
    }
}

#[test]
fn strides_that_are_ignored() {
    let product = |strides: &str| {
        let a = format!(r#"{{"dtype":"f32","dims":[2,3,17,24]{strides}}}"#);
        format!(r#"gemm {{"a":{a},"b":{{"dtype":"f32","dims":[24,40]}},"out":"f32"}}"#)
    };
    // Matrices of one batch extent between those of the other.
    is_caught(&product(r#","strides":[1224,816,24,1]"#), Fault::IgnoresStrides, "units");
    outcome(&product(""), Fault::IgnoresStrides).unwrap();
    let between = CONVOLUTION.replace(r#"[2,6,7,9]"#, r#"[2,6,7,9],"strides":[189,126,9,1]"#);
    is_caught(&between, Fault::IgnoresStrides, "units");
    outcome(CONVOLUTION, Fault::IgnoresStrides).unwrap();
}

#[test]
fn a_budget_that_is_none() {
    let case = case(PLAIN);
    let y = &case.slots()[1];
    let expected = |value, budget| Expected { name: "y".into(), values: vec![1.0, value], budgets: vec![1.0, budget] };
    for budget in [f64::NAN, f64::INFINITY, -1.0] {
        let why = compare(y, &[1.0, 3.0], &expected(3.0, budget)).unwrap_err().to_string();
        assert!(why.contains("y[1], expected 3e0, has a budget of"), "{why}");
        // Where the value is no finite number its class alone is judged.
        for class in [f64::NAN, f64::INFINITY] {
            assert_eq!(compare(y, &[1.0, class], &expected(class, budget)).unwrap().units, 0.0);
            for wrong in [1.0, f64::NEG_INFINITY] {
                // In place of a NaN whose budget is infinite an infinity will do.
                let will_do = class.is_nan() && wrong.is_infinite() && budget == f64::INFINITY;
                let units = if will_do { 0.0 } else { f64::INFINITY };
                assert_eq!(compare(y, &[1.0, wrong], &expected(class, budget)).unwrap().units, units);
            }
        }
    }
    assert_eq!(compare(y, &[1.0, 3.0], &expected(3.0, 0.0)).unwrap().units, 0.0);
    assert_eq!(compare(y, &[1.0, 3.5], &expected(3.0, 0.0)).unwrap().units, f64::INFINITY);
}

#[test]
fn workspace_one_byte_over() {
    is_caught(PLAIN, Fault::OverrunsWorkspace, "past workspace");
}

#[test]
fn workspace_read_before_it_is_written() {
    is_caught(PLAIN, Fault::ReadsWorkspace, "is NaN");
    // Where the sum hides a NaN, different contents give different bits.
    let case = case(PLAIN);
    let plan = plan(&case);
    let inputs = case.inputs(0).unwrap();
    let run = |byte| {
        let layout = Layout::Apart { shift: 0 };
        let mut arena = Arena::new(plan.slots(), WORKSPACE, &inputs, layout, InPlace::No, byte);
        let executor = Faulty { plan: &plan, fault: Fault::ReadsWorkspace };
        let _ = run_and_judge(&case, By::of(&plan), &inputs, &mut arena, &executor);
        arena
    };
    same_bits("equal contents", &run(0x3f), &run(0x3f)).unwrap();
    same_bits("other contents", &run(0x3f), &run(0)).unwrap_err();
}

#[test]
fn a_slot_that_lies() {
    // Said to be read only, and written.
    is_caught(PLAIN, Fault::WritesAnInput, "of x, which is no element of an output");
    // Said to be written only, and read.
    is_caught(PLAIN, Fault::ReadsAnOutput, "is NaN");
}

#[test]
fn an_output_that_proves_nothing() {
    // A case whose reference is itself nearly constant, and not said to be.
    let line = r#"layer_norm {"x":{"dtype":"f32","dims":[5,64]},"normalized_dims":1,"eps":1e-5} constant"#;
    let mut constant = case(line);
    outcome(line, Fault::None).unwrap();
    constant.may_be_constant = false;
    let plan = plan(&constant);
    let inputs = constant.inputs(0).unwrap();
    let layout = Layout::Apart { shift: 0 };
    let mut arena = Arena::new(plan.slots(), WORKSPACE, &inputs, layout, InPlace::No, POISON);
    let executor = Faulty { plan: &plan, fault: Fault::None };
    let why = run_and_judge(&constant, By::of(&plan), &inputs, &mut arena, &executor).unwrap_err().to_string();
    assert!(why.contains("mistrusted"), "{why}");
    for line in [PLAIN, CHANNELS, CHANNELS_BACKWARD] {
        is_caught(line, Fault::WritesOneNumber, "units");
    }
}

#[test]
fn a_tolerance_that_is_too_wide() {
    use baracuda_ops::DType::{BF16, F32};
    // Half an ulp of 1 in bf16 is within the budget of 1, one ulp is not: the budget adds only what f32 rounds.
    let allowed = budget(BF16, F32, 1.0, 16.0);
    assert!(units(BF16, 1.0 + 1.0 / 256.0, 1.0, allowed) < 1.0);
    assert!(units(BF16, 1.0 + 1.0 / 128.0, 1.0, allowed) > 1.9);
    let edge = budget(F32, F32, 1.0, 16.0);
    assert!(units(F32, 1.0 + edge * 0.99, 1.0, edge) < 1.0);
    assert!(units(F32, 1.0 + edge * 1.01, 1.0, edge) > 1.0);
    // 17 roundings of f32, and nothing more.
    assert!((edge / f64::from(f32::EPSILON) - 8.5).abs() < 1e-6);
}

#[test]
fn a_vanished_trial() {
    let record = |case: &str, ended| Record {
        op: "layer_norm".into(),
        mode: "values".into(),
        target: "cpu".into(),
        dtype: "f32".into(),
        case: case.into(),
        ended,
        words: String::new(),
        units: 0.0,
        outputs: Vec::new(),
        ms: 0.0,
    };
    let all = [record("a", Ended::Ran), record("b", Ended::Ran), record("c", Ended::Refused)];
    let committed = floor::parse(&floor::render(&floor::of(&all)));
    let below = |records: &[Record]| floor::below(&committed, &floor::of(records), |_| true);
    assert!(below(&all).is_empty());
    assert_eq!(below(&all[..2]).len(), 1, "one is gone");
    assert_eq!(below(&[]).len(), 1, "all are gone");
    let other = [all[0].clone(), record("d", Ended::Ran), all[2].clone()];
    assert_eq!(below(&other).len(), 1, "one took the place of another");
    let refused = [all[0].clone(), record("b", Ended::Refused), all[2].clone()];
    assert_eq!(below(&refused).len(), 1, "one that ran is refused");
    let failed = [all[0].clone(), record("b", Ended::Failed), all[2].clone()];
    assert_eq!(below(&failed).len(), 1, "one that ran fails");
    // On a machine without the device, only the names count.
    let ignored: Vec<_> = ["a", "b", "c"].map(|c| record(c, Ended::Ignored)).into();
    assert!(floor::below(&committed, &floor::of(&ignored), |_| false).is_empty());
}

#[test]
fn a_refusal_that_is_none() {
    // A descriptor that must be refused and is planned all the same fails its trial, and so does the reverse.
    let target = baracuda_ops_tests::target::target("cpu").unwrap();
    assert!(!case(PLAIN).must_be_refused_by(Backend::Cuda));
    let columns =
        case(r#"layer_norm {"x":{"dtype":"f32","dims":[5,33],"strides":[1,5]},"normalized_dims":1,"eps":1e-5}"#);
    assert!(columns.must_be_refused_by(Backend::Cuda) && columns.must_be_refused_by(Backend::Wgpu));
    assert!(matches!(
        baracuda_ops_tests::modes::run(&columns, baracuda_ops_tests::modes::Mode::Values, target),
        Ok(baracuda_ops_tests::modes::Outcome::Ran(_))
    ));
}

#[test]
fn software_runs_a_part_of_everything() {
    // Of each op, mode, device and type that a trial exists of, one that is not refused is in the part; and it is no more than a part.
    let (mut all, mut part) = (HashSet::new(), HashSet::new());
    let entries = matrix::entries();
    let of_wgpu = |e: &&matrix::Entry| e.target.backend == Backend::Wgpu && !e.case.must_be_refused_by(Backend::Wgpu);
    for entry in entries.iter().filter(of_wgpu) {
        let kind = (entry.case.descriptor.name(), entry.mode, entry.target.name, entry.case.dtype());
        all.insert(kind);
        if entry.is_for_software() {
            part.insert(kind);
        }
    }
    assert_eq!(all.difference(&part).collect::<Vec<_>>(), Vec::<&_>::new());
    let count = |is_for: bool| entries.iter().filter(of_wgpu).filter(|e| e.is_for_software() == is_for).count();
    assert!(count(true) > 1400 && count(false) > 3000, "{} and {}", count(true), count(false));
}

#[test]
fn software_runs_every_form_of_a_shader() {
    let entries = matrix::entries();
    for target in TARGETS.iter() {
        let Some(props) = target.software_props() else { continue };
        let values = entries.iter().filter(|e| e.target.name == target.name && e.mode == Mode::Values);
        let forms: Vec<_> =
            values.map(|e| (e.is_for_software(), e.case.descriptor.shader_forms(&props, &e.case.options))).collect();
        let missing = |runs: &dyn Fn(&[String]) -> bool| {
            let run = forms.iter().filter(|(is_for_software, forms)| *is_for_software && runs(forms));
            let run: HashSet<&String> = run.flat_map(|(_, forms)| forms).collect();
            let all: HashSet<&String> = forms.iter().flat_map(|(_, forms)| forms).collect();
            assert!(all.len() > 150, "{} has {} forms", target.name, all.len());
            println!("{}: {} of {} forms", target.name, run.len(), all.len());
            all.difference(&run).map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(missing(&|_| true), Vec::<String>::new(), "{}", target.name);
        // Without the trials of a form, it is the form that is missing.
        let form = forms.iter().find_map(|(_, forms)| forms.last()).unwrap();
        assert!(missing(&|forms| !forms.contains(form)).contains(form));
    }
}

#[test]
fn every_trial_has_a_name_of_its_own_that_brings_it_back() {
    let entries = matrix::entries();
    let mut names: Vec<String> = entries.iter().map(matrix::Entry::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), entries.len());
    for entry in entries.iter().step_by(7) {
        let parsed = Case::parse(&entry.name()).unwrap();
        assert_eq!(parsed.line(), entry.case.line());
        assert_eq!(parsed.descriptor, entry.case.descriptor);
    }
}

/// A line says what is asked of the plan, and the harness plans by it.
#[test]
fn options_of_a_line_reach_the_plan() {
    const SOFTMAX: &str = r#"softmax {"x":{"dtype":"f32","dims":[5,64]},"axis":1}"#;
    let line = format!(r#"{SOFTMAX} large options={{"math":"tf32","kernel":"softmax_reference"}}"#);
    let pinned = case(&line);
    assert_eq!(pinned.line(), line);
    assert_eq!(pinned.options, PlanOptions::default().math(Math::Tf32).kernel("softmax_reference"));
    // The data are those of the line without options.
    let plain = case(&format!("{SOFTMAX} large"));
    assert_eq!(plain.inputs(0).unwrap().0[0].values, pinned.inputs(0).unwrap().0[0].values);

    let cpu = target("cpu").unwrap();
    assert!(matches!(modes::run(&pinned, Mode::Values, cpu).unwrap(), Outcome::Ran(_)));
    assert!(matches!(modes::run(&pinned, Mode::Erase, cpu), Ok(Outcome::Ran(_))));
    let by = By::of(&plan(&pinned));
    assert_eq!(by, By { backend: Backend::Cpu, kernel: "softmax_reference", math: Math::Strict });

    // Other devices have no such kernel: no trial, and a refusal where one is asked for.
    assert!(pinned.must_be_refused_by(Backend::Wgpu) && !pinned.must_be_refused_by(Backend::Cpu));
    assert!(TARGETS.iter().all(|target| Mode::Values.applies(&pinned, target) == (target.backend == Backend::Cpu)));
    let elsewhere = case(&format!(r#"{SOFTMAX} options={{"kernel":"softmax_nowhere"}}"#));
    let Ok(Outcome::Refused(why)) = modes::run(&elsewhere, Mode::Values, cpu) else { panic!("not refused") };
    assert!(why.contains("ask for kernel \"softmax_nowhere\""), "{why}");

    // Bytes behind the descriptor.
    for (tail, at, because) in [
        (" options={\"kernel\":7}", 10, "the options: kernel: invalid type"),
        (" options={\"colour\":\"red\"}", 10, "the options: colour: unknown field `colour`"),
        (" options={\"math\":\"strict\",\"math\":\"tf32\"}", 10, "the options: duplicate field"),
        (" options={\"math\":", 10, "the options: EOF while parsing"),
        (" options=tf32", 10, "the options: must be a JSON object, begins with 't'"),
        (" options={} normal", 12, "nothing follows the options, got \"normal\""),
        (" hot", 2, "unknown data \"hot\"; known: normal, "),
        (" large normal", 8, "after the data only options={..} may follow, got \"normal\""),
        ("large", 1, "a space is missing"),
    ] {
        let error = format!("{:#}", Case::parse(&format!("{SOFTMAX}{tail}")).unwrap_err());
        assert!(error.starts_with(&format!("byte {}: {because}", SOFTMAX.len() + at)), "{tail}: {error}");
    }
    let error = format!("{:#}", Case::parse(r#"softmax {"x":{"dtype":"f32"},]"#).unwrap_err());
    assert!(error.starts_with("byte 9: the descriptor: key must be a string"), "{error}");
}

/// The tree that sums a row in workgroup memory, with and without its barriers. On a CPU adapter a subgroup runs up to the next barrier
/// before the others start, so the loss of one always shows; on a GPU it may not, and compute-sanitizer's racecheck is the gate.
#[cfg(feature = "wgpu")]
#[test]
fn a_removed_barrier() {
    use baracuda_ops_sys::wgsl::common::REDUCE_TREE;
    let Ok((device, queue)) = baracuda_ops_tests::target::plain_device() else { return };
    let run = |tree: &str| -> Vec<[f32; 2]> {
        let text = format!(
            "const WORKGROUP = 64u;\nconst THREADS = 64u;\n{tree}\n\
             @group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;\n\
             @compute @workgroup_size(WORKGROUP) fn main(at: Invocation) {{\n\
                 out[at.index] = row_sums(at, vec2<f32>(f32(at.index), 1.0), 0u);\n\
             }}"
        );
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 512, usage, mapped_at_creation: false })
        };
        let out = buffer(wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
        let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: out.as_entire_binding() }],
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        encoder.copy_buffer_to_buffer(&out, 0, &staging, 0, 512);
        queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let view = staging.get_mapped_range(..).unwrap();
        bytemuck::pod_collect_to_vec(&view)
    };
    let right = [2016.0, 64.0];
    assert!(run(REDUCE_TREE).iter().all(|sum| *sum == right));
    assert!(REDUCE_TREE.contains("workgroupBarrier();"));
    let without = run(&REDUCE_TREE.replace("workgroupBarrier();", ""));
    if device.adapter_info().device_type == wgpu::DeviceType::Cpu {
        assert!(without.iter().any(|sum| *sum != right), "the missing barriers made no difference");
    }
}
