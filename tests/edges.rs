//! The edges of what docs/numerics.md calls valid inputs, on every device that is there. The greatest magnitudes are those of the data
//! `huge` in the parity matrix.

use baracuda_ops::Backend;
use baracuda_ops_tests::arena::{Arena, InPlace, Layout, POISON};
use baracuda_ops_tests::case::{Case, Random};
use baracuda_ops_tests::exec::{Executor, OnDevice};
use baracuda_ops_tests::judge::By;
use baracuda_ops_tests::modes::judge;
use baracuda_ops_tests::target::TARGETS;
use baracuda_ops_tests::values::{Tensors, rounded};

const LAYER: &str = r#"layer_norm {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","bias":"f32","eps":1e-5,"stats":true}"#;
const LAYER_BACKWARD: &str = r#"layer_norm_backward {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","dx":true,"dweight":true,"dbias":"f32"}"#;
const RMS: &str =
    r#"rms_norm {"x":{"dtype":"bf16","dims":[5,127]},"normalized_dims":1,"weight":"f32","eps":1e-5,"stats":true}"#;
const RMS_BACKWARD: &str = r#"rms_norm_backward {"x":{"dtype":"f32","dims":[5,127]},"normalized_dims":1,"weight":"f32","dx":true,"dweight":true}"#;
const BATCH: &str = r#"batch_norm {"x":{"dtype":"f32","dims":[3,6,5,7]},"weight":"f32","bias":"f32","eps":1e-5,"momentum":0.1,"stats":true}"#;
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

/// Standard normal numbers times a factor, in place of those of an input.
fn scale_to(inputs: &mut Tensors, name: &str, factor: f64) {
    let input = inputs.0.iter_mut().find(|t| t.name == name).expect("an input");
    let mut random = Random::of(name);
    input.values.iter_mut().for_each(|value| *value = rounded(input.dtype, factor * random.normal()));
}

fn fill(inputs: &mut Tensors, name: &str, number: f64) {
    let input = inputs.0.iter_mut().find(|t| t.name == name).expect("an input");
    input.values.fill(rounded(input.dtype, number));
}

/// Runs a case with changed inputs on every device and hands what comes of it to `look`.
fn on_every_device(line: &str, change: impl Fn(&mut Tensors), look: impl Fn(&Case, By, &Tensors, &Tensors)) {
    let case = Case { may_be_constant: true, ..Case::parse(line).unwrap() };
    let mut inputs = case.inputs(0).unwrap();
    change(&mut inputs);
    for target in TARGETS.iter().filter(|target| target.device.is_ok()) {
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
    // Without a mean the rest of the row is finite over an infinite root: 0.
    on_every_device(
        RMS,
        |inputs| inputs.0[0].values[3] = f64::INFINITY,
        |_, by, _, outputs| {
            let (y, rstd) = (outputs.values("y").unwrap(), outputs.values("rstd").unwrap());
            assert_eq!(rstd[0], 0.0, "{by:?}");
            assert!((0..127).all(|i| if i == 3 { y[i].is_nan() } else { y[i] == 0.0 }), "{by:?}");
        },
    );
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
            let small = |inputs: &mut Tensors| {
                scale_to(inputs, "weight", 2f64.powi(exponent));
                if inputs.get("bias").is_some() {
                    fill(inputs, "bias", 0.0);
                }
            };
            let normal = |inputs: &mut Tensors| {
                small(inputs);
                let weight = inputs.0.iter_mut().find(|t| t.name == "weight").expect("a weight");
                let least = f64::from(f32::MIN_POSITIVE);
                weight.values.iter_mut().for_each(|w| *w = w.abs().max(least).copysign(*w));
            };
            holds(line, normal);
            // Through wgpu a subnormal weight may count as 0.
            on_every_device(line, small, |case, by, inputs, outputs| {
                if by.backend != Backend::Wgpu {
                    judge(case, by, inputs, outputs).unwrap_or_else(|error| panic!("{by:?}: {line}: {error:#}"));
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
