//! The gradients of every op against finite differences of its forward, in f64 on the CPU, with random cotangents.
//!
//! The loss is the sum over the outputs that have gradients of output times cotangent. Each element of each gradient is compared with the
//! central difference of the loss. What backward takes beside cotangents are inputs and outputs of forward.

use std::collections::BTreeMap;

use baracuda_ops::{Access, AnyDescriptor, DType, Device, Mem, MemMut, Operand, PlanOptions, Workspace};
use baracuda_ops_tests::case::Random;
use baracuda_ops_tests::ops::SUBJECTS;

/// Forward without the fields that every line has, its backward likewise, and the dimensions. Both get x (backward of softmax y) in f64;
/// what forward saves for backward is among its fields.
const PAIRS: &[(&str, &str, &str, &str)] = &[
    (
        "layer_norm",
        "[4,7]",
        r#""normalized_dims":1,"weight":"f64","bias":"f64","eps":1e-5,"stats":true"#,
        r#""normalized_dims":1,"weight":"f64","dx":true,"dweight":true,"dbias":"f64""#,
    ),
    (
        "layer_norm",
        "[3,2,4]",
        r#""normalized_dims":2,"weight":"f64","eps":0.1,"stats":true,"residual":true"#,
        r#""normalized_dims":2,"weight":"f64","dx":true,"dweight":true,"dh":true"#,
    ),
    (
        "rms_norm",
        "[4,7]",
        r#""normalized_dims":1,"weight":"f64","eps":1e-5,"weight_offset":1.0,"stats":true,"residual":true"#,
        r#""normalized_dims":1,"weight":"f64","weight_offset":1.0,"dx":true,"dweight":true,"dh":true"#,
    ),
    (
        "batch_norm",
        "[3,4,2,3]",
        r#""weight":"f64","bias":"f64","eps":1e-5,"stats":true"#,
        r#""weight":"f64","bias":"f64","dx":true,"dweight":true,"dbias":true"#,
    ),
    (
        "batch_norm",
        "[5,3]",
        r#""weight":"f64","bias":"f64","eps":1e-3,"activation":"silu","residual":true,"momentum":0.1,"stats":true"#,
        r#""weight":"f64","bias":"f64","activation":"silu","residual":true,"dx":true,"dresidual":true,"dweight":true,"dbias":true"#,
    ),
    (
        "batch_norm",
        "[3,4,2,3]",
        r#""weight":"f64","bias":"f64","eps":1e-5,"activation":"relu","residual":true,"cumulative":true,"stats":true"#,
        r#""weight":"f64","bias":"f64","activation":"relu","residual":true,"from_y":true,"dx":true,"dresidual":true,"dweight":true,"dbias":true"#,
    ),
    (
        "batch_norm",
        "[3,4,2,3]",
        r#""weight":"f64","bias":"f64","eps":1e-5,"activation":"gelu_erf","residual":true,"inference":true"#,
        r#""weight":"f64","bias":"f64","eps":1e-5,"activation":"gelu_erf","residual":true,"inference":true,"dx":true,"dresidual":true,"dweight":true,"dbias":true"#,
    ),
    (
        "group_norm",
        "[2,6,5]",
        r#""groups":3,"weight":"f64","bias":"f64","eps":1e-5,"stats":true"#,
        r#""groups":3,"weight":"f64","bias":"f64","dx":true,"dweight":true,"dbias":true"#,
    ),
    (
        "group_norm",
        "[2,4,1,2,3]",
        r#""groups":1,"weight":"f64","bias":"f64","eps":1e-5,"activation":"gelu_tanh","stats":true"#,
        r#""groups":1,"weight":"f64","bias":"f64","activation":"gelu_tanh","dx":true,"dweight":true,"dbias":true"#,
    ),
    (
        "group_norm",
        "[2,4,2,3]",
        r#""groups":2,"bias":"f64","eps":0.01,"activation":"tanh","stats":true"#,
        r#""groups":2,"bias":"f64","activation":"tanh","dx":true,"dbias":true"#,
    ),
    (
        "instance_norm",
        "[2,3,7]",
        r#""weight":"f64","bias":"f64","eps":1e-5,"activation":"sigmoid","momentum":0.1,"stats":true"#,
        r#""weight":"f64","bias":"f64","activation":"sigmoid","dx":true,"dweight":true,"dbias":true"#,
    ),
    (
        "instance_norm",
        "[2,3,2,3]",
        r#""weight":"f64","bias":"f64","eps":1e-5,"activation":"relu","inference":true"#,
        r#""weight":"f64","bias":"f64","eps":1e-5,"activation":"relu","inference":true,"dx":true,"dweight":true,"dbias":true"#,
    ),
    ("softmax", "[4,7]", r#""axis":1"#, r#""axis":1"#),
    ("softmax", "[2,5,3]", r#""axis":1,"scale":-0.7"#, r#""axis":1,"scale":-0.7"#),
    ("softmax", "[4,7]", r#""axis":0,"log":true,"scale":2.5"#, r#""axis":0,"log":true,"scale":2.5"#),
    (
        "local_response_norm",
        "[2,7,3]",
        r#""size":5,"alpha":0.7,"beta":0.75,"k":1.5"#,
        r#""size":5,"alpha":0.7,"beta":0.75,"k":1.5"#,
    ),
    (
        "local_response_norm",
        "[2,5,2,2]",
        r#""size":4,"alpha":2.0,"beta":1.3,"k":0.5"#,
        r#""size":4,"alpha":2.0,"beta":1.3,"k":0.5"#,
    ),
    ("activation", "[3,5]", r#""activation":"identity""#, r#""activation":"identity""#),
    ("activation", "[3,5]", r#""activation":"relu""#, r#""activation":"relu","from_y":true"#),
    ("activation", "[3,5]", r#""activation":"gelu_erf""#, r#""activation":"gelu_erf""#),
    ("activation", "[3,5]", r#""activation":"gelu_tanh""#, r#""activation":"gelu_tanh""#),
    ("activation", "[3,5]", r#""activation":"silu""#, r#""activation":"silu""#),
    ("activation", "[3,5]", r#""activation":"sigmoid""#, r#""activation":"sigmoid","from_y":true"#),
    ("activation", "[3,5]", r#""activation":"tanh""#, r#""activation":"tanh""#),
    (
        "gemm",
        "[4,3]",
        r#""b":{"dtype":"f64","dims":[3,5]},"bias":"f64""#,
        r#""b":{"dtype":"f64","dims":[3,5]},"da":{"dtype":"f64"},"db":{"dtype":"f64"},"dbias":{"dtype":"f64"}"#,
    ),
    (
        "gemm",
        "[3,4]",
        r#""b":{"dtype":"f64","dims":[3,5]},"transpose_a":true,"alpha":-0.5,"bias":"f64","activation":"silu","pre":"f64""#,
        r#""b":{"dtype":"f64","dims":[3,5]},"transpose_a":true,"alpha":-0.5,"activation":"silu","da":{"dtype":"f64"},"db":{"dtype":"f64"},"dbias":{"dtype":"f64"}"#,
    ),
    (
        "gemm",
        "[4,3]",
        r#""b":{"dtype":"f64","dims":[5,3]},"transpose_b":true,"activation":"sigmoid""#,
        r#""b":{"dtype":"f64","dims":[5,3]},"transpose_b":true,"activation":"sigmoid","saved":"out","da":{"dtype":"f64","beta":0.5},"db":{"dtype":"f64","beta":-1.0}"#,
    ),
    (
        "gemm",
        "[3,4]",
        r#""b":{"dtype":"f64","dims":[5,3]},"transpose_a":true,"transpose_b":true,"alpha":0.7,"bias":"f64","activation":"gelu_erf""#,
        r#""b":{"dtype":"f64","dims":[5,3]},"transpose_a":true,"transpose_b":true,"alpha":0.7,"bias":"f64","activation":"gelu_erf","saved":"recompute","da":{"dtype":"f64"},"db":{"dtype":"f64","beta":2.0},"dbias":{"dtype":"f64","beta":1.0}"#,
    ),
    (
        "gemm",
        "[2,2,3,4]",
        r#""b":{"dtype":"f64","dims":[4,2]},"bias":"f64","activation":"tanh""#,
        r#""b":{"dtype":"f64","dims":[4,2]},"bias":"f64","activation":"tanh","saved":"out","da":{"dtype":"f64"},"db":{"dtype":"f64","beta":1.0},"dbias":{"dtype":"f64"}"#,
    ),
    (
        "gemm",
        "[3,4,2]",
        r#""b":{"dtype":"f64","dims":[1,3,4]},"transpose_a":true,"transpose_b":true,"activation":"gelu_tanh""#,
        r#""b":{"dtype":"f64","dims":[1,3,4]},"transpose_a":true,"transpose_b":true,"activation":"gelu_tanh","saved":"recompute","da":{"dtype":"f64"},"db":{"dtype":"f64"}"#,
    ),
    (
        "gemm",
        "[2,3,4]",
        r#""b":{"dtype":"f64","dims":[2,4,3]},"bias":"f64","activation":"relu""#,
        r#""b":{"dtype":"f64","dims":[2,4,3]},"activation":"relu","saved":"out","da":{"dtype":"f64"},"db":{"dtype":"f64","beta":-0.5},"dbias":{"dtype":"f64"}"#,
    ),
    (
        "gemm",
        "[2,1,3,4]",
        r#""b":{"dtype":"f64","dims":[3,4,2]},"bias":"f64","activation":"tanh""#,
        r#""b":{"dtype":"f64","dims":[3,4,2]},"bias":"f64","activation":"tanh","saved":"out","da":{"dtype":"f64"},"db":{"dtype":"f64","beta":1.0},"dbias":{"dtype":"f64"}"#,
    ),
];

/// The repro line of a forward whose gradients are ops of their own, and their lines. Operands of one name lie alike in all of them.
const SEPARATE: &[(&str, &[&str])] = &[
    (
        r#"conv {"x":{"dtype":"f64","dims":[2,3,5,4]},"weight":{"dtype":"f64","dims":[4,3,3,2]},"padding":[[1,1],[0,1]],"bias":"f64"}"#,
        &[
            r#"conv_backward_data {"dy":{"dtype":"f64","dims":[2,4,5,4]},"weight":{"dtype":"f64","dims":[4,3,3,2]},"dx":{"dtype":"f64","dims":[2,3,5,4]},"padding":[[1,1],[0,1]]}"#,
            r#"conv_backward_weight {"x":{"dtype":"f64","dims":[2,3,5,4]},"dy":{"dtype":"f64","dims":[2,4,5,4]},"dweight":{"dtype":"f64","dims":[4,3,3,2]},"padding":[[1,1],[0,1]]}"#,
            r#"conv_backward_bias {"dy":{"dtype":"f64","dims":[2,4,5,4]}}"#,
        ],
    ),
    (
        r#"conv {"x":{"dtype":"f64","dims":[2,4,6,5],"strides":[120,1,20,4]},"weight":{"dtype":"f64","dims":[6,2,2,3]},"stride":[2,1],"dilation":[1,2],"padding":[[1,0],[0,3]],"groups":2,"bias":"f64"}"#,
        &[
            r#"conv_backward_data {"dy":{"dtype":"f64","dims":[2,6,3,4],"strides":[72,1,24,6]},"weight":{"dtype":"f64","dims":[6,2,2,3]},"dx":{"dtype":"f64","dims":[2,4,6,5],"strides":[120,1,20,4]},"stride":[2,1],"dilation":[1,2],"padding":[[1,0],[0,3]],"groups":2,"beta":0.5}"#,
            r#"conv_backward_weight {"x":{"dtype":"f64","dims":[2,4,6,5],"strides":[120,1,20,4]},"dy":{"dtype":"f64","dims":[2,6,3,4],"strides":[72,1,24,6]},"dweight":{"dtype":"f64","dims":[6,2,2,3]},"stride":[2,1],"dilation":[1,2],"padding":[[1,0],[0,3]],"groups":2,"beta":-1.0}"#,
            r#"conv_backward_bias {"dy":{"dtype":"f64","dims":[2,6,3,4],"strides":[72,1,24,6]},"beta":2.0}"#,
        ],
    ),
    (
        r#"conv {"x":{"dtype":"f64","dims":[1,3,11]},"weight":{"dtype":"f64","dims":[3,1,2]},"stride":[3],"groups":3}"#,
        &[
            r#"conv_backward_data {"dy":{"dtype":"f64","dims":[1,3,4]},"weight":{"dtype":"f64","dims":[3,1,2]},"dx":{"dtype":"f64","dims":[1,3,11]},"stride":[3],"groups":3}"#,
            r#"conv_backward_weight {"x":{"dtype":"f64","dims":[1,3,11]},"dy":{"dtype":"f64","dims":[1,3,4]},"dweight":{"dtype":"f64","dims":[3,1,2]},"stride":[3],"groups":3}"#,
        ],
    ),
    (
        r#"conv {"x":{"dtype":"f64","dims":[1,2,3,2,4]},"weight":{"dtype":"f64","dims":[2,2,2,3,1]},"padding":[[1,0],[1,1],[0,0]],"stride":[1,1,2]}"#,
        &[
            r#"conv_backward_data {"dy":{"dtype":"f64","dims":[1,2,3,2,2]},"weight":{"dtype":"f64","dims":[2,2,2,3,1]},"dx":{"dtype":"f64","dims":[1,2,3,2,4]},"padding":[[1,0],[1,1],[0,0]],"stride":[1,1,2]}"#,
            r#"conv_backward_weight {"x":{"dtype":"f64","dims":[1,2,3,2,4]},"dy":{"dtype":"f64","dims":[1,2,3,2,2]},"dweight":{"dtype":"f64","dims":[2,2,2,3,1]},"padding":[[1,0],[1,1],[0,0]],"stride":[1,1,2]}"#,
        ],
    ),
];

/// Half the distance of the two losses of a difference.
const STEP: f64 = 2e-5;
/// What a gradient may differ by from the difference quotient, of the greater of 1 and itself.
const TOLERANCE: f64 = 1e-6;

type Values = BTreeMap<String, Vec<f64>>;

fn descriptor(op: &str, dims: &str, fields: &str) -> AnyDescriptor {
    let tensor = match op {
        "softmax_backward" => "y",
        "gemm" | "gemm_backward" => "a",
        _ => "x",
    };
    AnyDescriptor::parse(op, &format!(r#"{{"{tensor}":{{"dtype":"f64","dims":{dims}}},{fields}}}"#)).unwrap()
}

/// Runs a descriptor on the CPU. Counts are integers of value 0.
fn run(descriptor: &AnyDescriptor, inputs: &Values) -> Values {
    let device = Device::cpu();
    let plan = descriptor.plan(&device, &PlanOptions::default()).unwrap();
    let mut written: Vec<(usize, Vec<f64>)> = Vec::new();
    let mut counts = [0i64];
    let mut counts = Some(&mut counts[..]);
    for (i, slot) in plan.slots().iter().enumerate().filter(|(_, s)| s.access != Access::In) {
        let elements = slot.desc.elements() as usize;
        written.push((i, inputs.get(slot.name).cloned().unwrap_or_else(|| vec![f64::NAN; elements])));
    }
    let mut places = written.iter_mut();
    let mut operands: Vec<Operand<'_>> = plan
        .slots()
        .iter()
        .map(|slot| match (slot.access, slot.desc.dtype()) {
            (Access::In, _) => Mem::host(inputs[slot.name].as_slice()).into(),
            (_, DType::I64) => {
                places.next();
                MemMut::host(counts.take().unwrap()).into()
            }
            _ => MemMut::host(places.next().unwrap().1.as_mut_slice()).into(),
        })
        .collect();
    plan.run(&mut device.queue(), &mut operands, Workspace::none()).unwrap();
    drop(operands);
    written.into_iter().map(|(i, values)| (plan.slots()[i].name.to_string(), values)).collect()
}

/// [`worst`] of a line of [`PAIRS`].
fn worst_of_pair(op: &str, dims: &str, forward: &str, backward: &str, spoil: impl Fn(&mut Values)) -> (f64, String) {
    worst(&descriptor(op, dims, forward), &descriptor(&format!("{op}_backward"), dims, backward), spoil)
}

/// The largest difference between a gradient and the difference quotient of the loss, in units of the tolerance.
fn worst(forward: &AnyDescriptor, backward: &AnyDescriptor, spoil: impl Fn(&mut Values)) -> (f64, String) {
    let mut random = Random::of(&forward.line());
    let mut inputs = Values::new();
    for slot in forward.slots().iter().filter(|s| s.access != Access::Out) {
        let mut draw = || match slot.name {
            "weight" => 1.0 + 0.3 * random.normal(),
            "running_var" => 0.3 + random.normal().powi(2),
            _ => random.normal(),
        };
        let values = (0..slot.desc.elements()).map(|_| draw()).collect();
        inputs.insert(slot.name.into(), values);
    }
    let outputs = run(forward, &inputs);

    // Cotangents are those operands of backward that are a d and the name of an output.
    let mut given = Values::new();
    for slot in backward.slots().iter().filter(|s| s.access == Access::In) {
        let is_cotangent = slot.name.strip_prefix('d').is_some_and(|name| outputs.contains_key(name));
        let values = if is_cotangent {
            (0..slot.desc.elements()).map(|_| random.normal()).collect()
        } else if let (Some(h), "x") = (outputs.get("h"), slot.name) {
            h.clone()
        } else if let (Some(values), true) = (outputs.get(slot.name), !inputs.contains_key(slot.name)) {
            values.clone()
        } else {
            inputs[slot.name].clone()
        };
        given.insert(slot.name.into(), values);
    }
    // What gradients are added to, which is no part of them.
    let fields = serde_json::to_value(backward).unwrap();
    for slot in backward.slots().iter().filter(|s| s.access == Access::InOut) {
        given.insert(slot.name.into(), (0..slot.desc.elements()).map(|_| random.normal()).collect());
    }
    let loss = |inputs: &Values| -> f64 {
        let outputs = run(forward, inputs);
        let product = |(name, values): (&String, &Vec<f64>)| -> f64 {
            let cotangent = given.get(&format!("d{name}"));
            cotangent.map_or(0.0, |d| values.iter().zip(d).map(|(value, d)| value * d).sum())
        };
        outputs.iter().map(product).sum()
    };
    let mut gradients = run(backward, &given);
    for (name, gradient) in &mut gradients {
        let Some(before) = given.get(name) else { continue };
        // An op of one gradient has its beta among its own fields.
        let descriptor = &fields["descriptor"];
        let beta = descriptor[name]["beta"].as_f64().or(descriptor["beta"].as_f64()).unwrap();
        gradient.iter_mut().zip(before).for_each(|(g, before)| *g -= beta * before);
    }
    spoil(&mut gradients);
    assert!(!gradients.is_empty());
    let mut found = (0.0, String::new());
    for (name, gradient) in &gradients {
        let of = name.strip_prefix('d').unwrap();
        assert_eq!(inputs[of].len(), gradient.len());
        for (i, gradient) in gradient.iter().enumerate() {
            let at = |sign: f64| {
                let mut inputs = inputs.clone();
                inputs.get_mut(of).unwrap()[i] += sign * STEP;
                loss(&inputs)
            };
            let quotient = (at(1.0) - at(-1.0)) / (2.0 * STEP);
            let units = (gradient - quotient).abs() / (TOLERANCE * gradient.abs().max(1.0));
            // A NaN is the worst.
            if units.is_nan() || units > found.0 {
                found = (
                    if units.is_nan() { f64::INFINITY } else { units },
                    format!("{name}[{i}] is {}, the difference quotient {quotient}", gradient),
                );
            }
        }
    }
    found
}

#[test]
fn gradients_are_difference_quotients() {
    for (op, dims, forward, backward) in PAIRS {
        let (units, words) = worst_of_pair(op, dims, forward, backward, |_| {});
        assert!(units <= 1.0, "{op} {dims} {forward}: {words}");
    }
    for (forward, backwards) in SEPARATE {
        for backward in *backwards {
            let [of, gradient] = [forward, backward].map(|line| AnyDescriptor::parse_line(line).unwrap());
            let (units, words) = worst(&of, &gradient, |_| {});
            assert!(units <= 1.0, "{forward} {backward}: {words}");
        }
    }
}

#[test]
fn every_backward_is_compared() {
    for subject in SUBJECTS.iter().filter_map(|s| s.name.strip_suffix("_backward")) {
        assert!(PAIRS.iter().any(|pair| pair.0 == subject), "{subject} has no line in tests/gradients.rs");
    }
    let is_separate = |name: &str| name.contains("_backward_");
    for name in SUBJECTS.iter().map(|s| s.name).filter(|name| is_separate(name)) {
        let of_op = |line: &&str| line.starts_with(&format!("{name} "));
        assert!(SEPARATE.iter().any(|(_, lines)| lines.iter().any(of_op)), "{name} has no line in tests/gradients.rs");
    }
}

#[test]
fn a_gradient_with_an_error_is_caught() {
    let is_gemm = |pair: &&(&str, &str, &str, &str)| pair.0 == "gemm";
    let of_gemm = PAIRS.iter().find(is_gemm).unwrap();
    let spoiled = ["dx", "dweight", "dbias"].map(|name| (&PAIRS[3], name));
    for ((op, dims, forward, backward), name) in
        spoiled.into_iter().chain(["da", "db", "dbias"].map(|name| (of_gemm, name)))
    {
        let spoil = |gradients: &mut Values| gradients.get_mut(name).unwrap()[1] *= 1.0 + 1e-4;
        let (units, words) = worst_of_pair(op, dims, forward, backward, spoil);
        assert!(units > 1.0 && words.starts_with(name), "{units} {words}");
    }
    let (forward, backwards) = SEPARATE[1];
    for (backward, name) in backwards.iter().zip(["dx", "dweight", "dbias"]) {
        let [forward, backward] = [forward, backward].map(|line| AnyDescriptor::parse_line(line).unwrap());
        let spoil = |gradients: &mut Values| gradients.get_mut(name).unwrap()[1] *= 1.0 + 1e-4;
        let (units, words) = worst(&forward, &backward, spoil);
        assert!(units > 1.0 && words.starts_with(name), "{units} {words}");
    }
}
