//! Activations as an op of their own, forward and backward.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    Activation, ActivationArgs, ActivationBackwardArgs, ActivationBackwardDescriptor, ActivationDescriptor,
    AnyDescriptor, Backend, DType, Error, Slot, TensorDesc,
};

use super::channel_norm::curvature;
use super::{
    Contract, FLOATS, Subject, TypedRun, accumulating, channels_last, dense, features, json_of, run_in_f64, strided,
};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected, budget};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "activation",
    cases: || cases(forward),
    is_cpu_only,
    may_be_constant,
    input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "activation_backward",
    cases: || accumulating(cases(backward)),
    is_cpu_only,
    may_be_constant,
    input,
    expect: expect_backward,
    contracts: BACKWARD_CONTRACTS,
    run_typed: run_backward,
    features: || features(asked_for, backward),
};

/// A forward before it is a descriptor.
#[derive(Clone)]
struct Form {
    x: TensorDesc,
    activation: Activation,
    /// The layout of y, and of dy in backward.
    y: Option<TensorDesc>,
    /// Of the backward alone.
    from_y: bool,
}

impl Form {
    fn plain(x: TensorDesc, activation: Activation) -> Self {
        Self { x, activation, y: None, from_y: false }
    }

    fn forward(&self) -> Result<ActivationDescriptor, Error> {
        let descriptor = ActivationDescriptor::new(self.x, self.activation)?;
        match self.y {
            Some(y) => descriptor.y(y),
            None => Ok(descriptor),
        }
    }
}

fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
    form.forward().map(AnyDescriptor::new)
}

fn backward(form: &Form) -> Result<AnyDescriptor, Error> {
    let descriptor = form.forward()?.backward()?;
    let descriptor = if form.from_y { descriptor.from_y()? } else { descriptor };
    Ok(AnyDescriptor::new(descriptor))
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        for activation in Activation::ALL {
            let plain = |x: TensorDesc| Form::plain(x, activation);
            let image = dense(dtype, &[2, 6, 4, 8]);
            add(plain(image), Data::Normal, true);
            add(plain(dense(dtype, &[4099])), Data::Normal, false);
            for data in Data::ALL.into_iter().filter(|data| *data != Data::Normal) {
                add(plain(image), data, false);
            }
            if activation.has_gradient_from_output() {
                add(Form { from_y: true, ..plain(image) }, Data::Normal, true);
                for data in [Data::Nan, Data::Large] {
                    add(Form { from_y: true, ..plain(image) }, data, false);
                }
            }
        }
        // Around a vector's width, a block's and a chunk's; none.
        let plain = |x: TensorDesc| Form::plain(x, Activation::Silu);
        for elements in [1, 2, 3, 7, 8, 9, 255, 1023, 65537] {
            add(plain(dense(dtype, &[elements])), Data::Normal, [7, 1023].contains(&elements));
        }
        add(plain(dense(dtype, &[3, 0, 5])), Data::Normal, true);
        // Every rank and dense order, promises below a vector, layouts of outputs, and layouts for the CPU alone.
        add(plain(dense(dtype, &[])), Data::Normal, true);
        add(plain(dense(dtype, &[2, 3, 1, 2, 2, 3, 1, 5])), Data::Normal, false);
        let last = channels_last(dtype, &[2, 6, 4, 8]);
        add(plain(last), Data::Normal, true);
        add(plain(strided(dtype, &[5, 33], &[1, 5])), Data::Normal, true);
        let narrow = |desc: TensorDesc| desc.align(dtype.size_bytes()).expect("a promise");
        add(plain(narrow(dense(dtype, &[3, 1021]))), Data::Normal, true);
        let x = dense(dtype, &[2, 6, 4, 8]);
        add(Form { y: Some(last), ..plain(x) }, Data::Normal, true);
        add(plain(strided(dtype, &[6, 40], &[48, 1])), Data::Normal, true);
        add(plain(strided(dtype, &[6, 40], &[0, 1])), Data::Normal, false);
        add(Form { y: Some(strided(dtype, &[6, 40], &[48, 1])), ..plain(dense(dtype, &[6, 40])) }, Data::Normal, false);
    }
    forms
}

/// The cases of a pass over every form; forward has none from y.
fn cases(pass: fn(&Form) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = pass(form).expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    distinct(forms().iter().map(of).collect())
}

/// GPUs take dense operands with equal strides.
fn is_cpu_only(descriptor: &AnyDescriptor) -> bool {
    let slots = descriptor.slots();
    let first = &slots[0].desc;
    let is_alike = |slot: &Slot| {
        let is_dense = slot.span_bytes == slot.desc.elements() * slot.desc.dtype().size_bytes();
        is_dense && slot.desc.is_injective() && slot.desc.strides() == first.strides()
    };
    !first.is_empty() && !slots.iter().all(is_alike)
}

/// Few elements may all lie on one side of a ReLU.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    descriptor.slots()[0].desc.elements() < 64
}

fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let elements = slot.desc.elements();
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    let is_backward = case.descriptor.name() == "activation_backward";
    let data = if slot.name == "dy" && is_backward { Data::Normal } else { case.data };
    let values = data.rows(slot.desc.dtype(), elements / cols, cols, random);
    if slot.name != "y" {
        // Beyond the few that a normal distribution reaches.
        let spread = |(i, v): (usize, f64)| if i % 3 == 0 && data == Data::Normal { 6.0 * v } else { v };
        return Ok(values.into_iter().enumerate().map(spread).collect());
    }
    // What forward gives.
    let activation = activation_of(&case.descriptor)?;
    Ok(values.into_iter().map(|v| activation.apply(v)).collect())
}

fn activation_of(descriptor: &AnyDescriptor) -> Result<Activation> {
    Ok(serde_json::from_value(json_of(descriptor)?["activation"].clone())?)
}

const FORWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["y"],
    budget: "u_o |y| + u_A (8 |y| + 4 |x act'(x)|); on wgpu twice the second term; 0 for identity and relu",
    why: "The 4 roundings of the argument of an exponential are taken to have one sign.",
}];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + u_A |dy| (8 + 4 min(|x|, 16) max|act''|), on wgpu twice the second term; from y u_o |dx| + 8 u_A |dx|",
    why: "Absolute, so that zeros of act' need no care; act'' is far below its maximum nearly everywhere.",
}];

/// Factors of the budget on a backend.
fn looseness(backend: Backend) -> f64 {
    if backend == Backend::Wgpu { 2.0 } else { 1.0 }
}

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "activation".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let activation = activation_of(descriptor)?;
    let x = inputs.values("x").context("no x")?;
    let dtype = outputs.get("y").context("no y")?.dtype;
    let values = in_f64(descriptor, &BTreeMap::from([("x", x)]), "y")?;
    let own = |x: f64, y: f64| match activation {
        Activation::Identity | Activation::Relu => 0.0,
        _ if !y.is_finite() || !x.is_finite() => 0.0,
        // Multiples of the largest f64 are beyond f64.
        _ => (looseness(by.backend) * (8.0 * y.abs() + 4.0 * (x * activation.gradient(x, 1.0)).abs())).min(f64::MAX),
    };
    let budgets = x.iter().zip(&values).map(|(&x, &y)| budget(dtype, dtype.accumulator(), y, own(x, y))).collect();
    Ok(vec![Expected { name: "y".into(), values, budgets }])
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "activation, dx".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let activation = activation_of(descriptor)?;
    let dy = inputs.values("dy").context("no dy")?;
    let (x, y) = (inputs.values("x"), inputs.values("y"));
    let dtype = outputs.get("dx").context("no dx")?.dtype;
    let operands = inputs.0.iter().map(|t| (t.name.as_str(), t.values.as_slice())).collect();
    let values = in_f64(descriptor, &operands, "dx")?;
    let own = |i: usize, dx: f64| match (activation, x) {
        (Activation::Identity | Activation::Relu, _) => 0.0,
        _ if !dx.is_finite() => 0.0,
        (_, Some(x)) => {
            dy[i].abs() * (8.0 + 4.0 * x[i].abs().min(16.0) * curvature(activation)) * looseness(by.backend)
        }
        (_, None) => (8.0 * dx.abs()).min(f64::MAX),
    };
    debug_assert!(x.is_none() || y.is_none());
    let budgets =
        values.iter().enumerate().map(|(i, &dx)| budget(dtype, dtype.accumulator(), dx, own(i, dx))).collect();
    Ok(vec![Expected { name: "dx".into(), values, budgets }])
}

/// The reference's output for dense f64 operands.
fn in_f64(descriptor: &AnyDescriptor, inputs: &BTreeMap<&str, &[f64]>, output: &str) -> Result<Vec<f64>> {
    let mut json = json_of(descriptor)?;
    json["x"] = serde_json::json!({"dtype": "f64", "dims": json["x"]["dims"]});
    if let Some(fields) = json.as_object_mut() {
        fields.remove("layouts");
    }
    run_in_f64(descriptor.name(), &json, inputs)?.remove(output).with_context(|| format!("no {output}"))
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = ActivationArgs::new(run.input("x"), run.output("y"));
    run.plan::<ActivationDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = ActivationBackwardArgs::new(run.input("dy"), run.output("dx"));
    if let Some(x) = run.named.mem("x") {
        args = args.x(x);
    }
    if let Some(y) = run.named.mem("y") {
        args = args.y(y);
    }
    run.plan::<ActivationBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let x = dense(dtype, &[32, 128, 768]);
    let mut forms: Vec<_> = Activation::ALL.map(|activation| (activation.name(), Form::plain(x, activation))).into();
    forms.extend([
        ("tanh, gradient from y", Form { from_y: true, ..Form::plain(x, Activation::Tanh) }),
        ("channels-last", Form::plain(channels_last(dtype, &[8, 64, 28, 28]), Activation::Silu)),
        ("rows apart", Form::plain(strided(dtype, &[32, 768], &[1024, 1]), Activation::Silu)),
        (
            "y laid out otherwise",
            Form { y: Some(strided(dtype, &[8, 9], &[1, 8])), ..Form::plain(dense(dtype, &[8, 9]), Activation::Silu) },
        ),
    ]);
    forms
}
