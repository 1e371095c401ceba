//! Padding: modes, amounts on both sides and between elements, cropping, layouts.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, DType, Error, PadArgs, PadDescriptor, PadMode, TensorDesc};

use super::movement::{TYPES, data, exact, index, input, is_few, number, stands_for_size};
use super::{Contract, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, distinct};
use crate::judge::{By, Expected};
use crate::values::{Tensors, rounded};

pub(super) const PAD: Subject = Subject {
    name: "pad",
    cases,
    is_cpu_only: |_| false,
    may_be_constant: |descriptor| {
        let [x, y] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
        // Most of it is the constant.
        is_few(y) || x.strides().contains(&0) || y.elements() > 4 * x.elements()
    },
    input,
    expect,
    contracts: CONTRACTS,
    run_typed,
    features: || features(asked_for, Form::descriptor),
};

const MODES: [PadMode; 4] = [PadMode::Constant(2.5), PadMode::Reflect, PadMode::Replicate, PadMode::Circular];

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    x: TensorDesc,
    /// Before and after, along each axis.
    amounts: Vec<(i64, i64)>,
    mode: PadMode,
    interior: Vec<u64>,
    y: Option<TensorDesc>,
}

impl Form {
    fn new(x: TensorDesc, amounts: &[(i64, i64)], mode: PadMode) -> Self {
        Self { x, amounts: amounts.to_vec(), mode, interior: Vec::new(), y: None }
    }

    fn interior(self, interior: &[u64]) -> Self {
        Self { interior: interior.to_vec(), ..self }
    }

    fn to(self, y: TensorDesc) -> Self {
        Self { y: Some(y), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let (before, after) = self.amounts.iter().copied().unzip();
        // Integers have no halves.
        let mode = match self.mode {
            PadMode::Constant(value) if !self.x.dtype().is_float() => PadMode::Constant(value.trunc()),
            mode => mode,
        };
        let mut pad = PadDescriptor::new(self.x, before, after, mode)?;
        if !self.interior.is_empty() {
            pad = pad.interior(self.interior.clone())?;
        }
        if let Some(y) = self.y {
            pad = pad.layout("y", y)?;
        }
        Ok(AnyDescriptor::new(pad))
    }
}

/// The forms, and whether each runs in every mode of the matrix.
fn forms(dtype: DType) -> Vec<(Form, bool)> {
    let x = |dims: &[u64]| dense(dtype, dims);
    let mut forms = Vec::new();
    for mode in MODES {
        forms.push((Form::new(x(&[5, 13]), &[(1, 2), (3, 2)], mode), true));
        if !stands_for_size(dtype) {
            continue;
        }
        let last = channels_last(dtype, &[2, 8, 5, 4]);
        for (form, is_core) in [
            (Form::new(x(&[40]), &[(7, 9)], mode), false),
            (Form::new(x(&[43]), &[(0, 0)], mode), false),
            (Form::new(x(&[40]), &[(-3, 5)], mode), true),
            (Form::new(x(&[40]), &[(8, -12)], mode), false),
            (Form::new(x(&[9, 40]), &[(-2, -1), (-8, -16)], mode), false),
            (Form::new(x(&[2, 3, 6, 7]), &[(0, 0), (0, 0), (1, 1), (1, 1)], mode), true),
            (Form::new(x(&[2, 3, 6, 8]), &[(1, 0), (0, 2), (0, 0), (0, 0)], mode), false),
            (Form::new(x(&[3, 16]), &[(2, 2), (0, 0)], mode), false),
            (Form::new(last, &[(0, 0), (0, 0), (2, 1), (1, 3)], mode), true),
            (Form::new(strided(dtype, &[12, 30], &[1, 12]), &[(2, 2), (3, 4)], mode), false),
            (Form::new(strided(dtype, &[6, 10], &[0, 1]), &[(2, 2), (3, 4)], mode), false),
            (Form::new(x(&[6, 10]), &[(1, 1), (2, 2)], mode).to(strided(dtype, &[8, 14], &[1, 9])), false),
            (Form::new(x(&[6, 10]), &[(1, 1), (2, 2)], mode).to(strided(dtype, &[8, 14], &[40, 2])), false),
            (Form::new(x(&[2, 3, 2, 2, 3, 2, 2, 3]), &[(0, 1); 8], mode), false),
            (Form::new(x(&[4, 9]), &[(3, 3), (8, 8)], mode), false),
            (Form::new(x(&[5, 0]), &[(1, 1), (0, 0)], mode), false),
            (Form::new(x(&[]), &[], mode), false),
        ] {
            forms.push((form, is_core));
        }
    }
    if stands_for_size(dtype) {
        let zeros = PadMode::Constant(0.0);
        // Bytes have neither signs nor infinities.
        let [least, none] = [f64::NEG_INFINITY, f64::NAN].map(|value| if dtype.is_float() { value } else { 255.0 });
        for (form, is_core) in [
            (Form::new(x(&[5, 9]), &[(1, 2), (0, 3)], zeros).interior(&[1, 2]), true),
            (Form::new(x(&[5, 9]), &[(-2, 1), (-4, -1)], zeros).interior(&[0, 2]), false),
            (Form::new(x(&[5, 9]), &[(0, 0), (0, 0)], zeros).interior(&[3, 0]), false),
            (
                Form::new(x(&[0, 4]), &[(2, 3), (1, 1)], PadMode::Constant(if dtype.is_float() { -1.0 } else { 7.0 })),
                true,
            ),
            (Form::new(x(&[3]), &[(0, 100)], PadMode::Constant(1.0)), false),
            (Form::new(x(&[3]), &[(-3, 20)], PadMode::Constant(1.0)), false),
            (Form::new(x(&[1]), &[(3, 3)], PadMode::Replicate), false),
            (Form::new(x(&[1]), &[(1, 1)], PadMode::Circular), false),
            (Form::new(x(&[7, 33]), &[(1, 1), (1, 1)], PadMode::Constant(least)), false),
            (Form::new(x(&[7, 33]), &[(1, 1), (1, 1)], PadMode::Constant(none)), false),
        ] {
            forms.push((form, is_core));
        }
    }
    forms
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        for (at, (form, is_core)) in forms(dtype).into_iter().enumerate() {
            let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
            cases.push(Case::new(descriptor.clone(), Data::Normal).core(is_core));
            if at < 1 {
                cases.extend(data(dtype)[1..].iter().map(|&data| Case::new(descriptor.clone(), data)));
            }
        }
    }
    distinct(cases)
}

const CONTRACTS: &[Contract] = &[Contract { outputs: &["y"], budget: "0", why: "Elements move as bits." }];

/// The element of an extent that a position `j` before or behind it stands for, if it is one.
fn source(mode: &str, mut j: i64, n: i64) -> Option<i64> {
    // One step at a time, as the modes say it.
    while !(0..n).contains(&j) {
        j = match mode {
            "reflect" if j < 0 => -j,
            "reflect" => 2 * (n - 1) - j,
            "replicate" => j.clamp(0, n - 1),
            "circular" if j < 0 => j + n,
            "circular" => j - n,
            _ => return None,
        };
    }
    Some(j)
}

fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let json = json_of(descriptor)?;
    let [x, y] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    let values = inputs.values("x").context("x")?;
    let mode = json["mode"].as_str().unwrap_or("constant");
    let constant = match json["value"].as_str() {
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        Some(_) => f64::NAN,
        None => rounded(x.dtype(), json["value"].as_f64().unwrap_or(0.0)),
    };
    let padded = (0..y.elements()).map(|element| {
        let at: Option<Vec<u64>> = index(y.dims(), element)
            .iter()
            .enumerate()
            .map(|(axis, &i)| {
                let j = i as i64 - json["before"][axis].as_i64().unwrap_or(0);
                let apart = json["interior"][axis].as_i64().unwrap_or(0) + 1;
                let element = if j.rem_euclid(apart) == 0 { j.div_euclid(apart) } else { return None };
                source(mode, element, x.dims()[axis] as i64).map(|element| element as u64)
            })
            .collect();
        at.map_or(constant, |at| values[number(x.dims(), &at)])
    });
    Ok(vec![exact("y", padded.collect())])
}

fn run_typed(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = PadArgs::new(run.input("x"), run.output("y"));
    run.plan::<PadDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let image = dense(dtype, &[8, 64, 28, 28]);
    let last = channels_last(dtype, &[8, 64, 28, 28]);
    let around = [(0, 0), (0, 0), (1, 1), (1, 1)];
    let cropped = [(0, 0), (0, 0), (-2, -2), (-2, -2)];
    vec![
        ("a constant around images", Form::new(image, &around, PadMode::Constant(0.0))),
        ("a constant around images, channels-last", Form::new(last, &around, PadMode::Constant(0.0))),
        ("reflected", Form::new(image, &around, PadMode::Reflect)),
        ("replicated", Form::new(image, &around, PadMode::Replicate)),
        ("circular", Form::new(image, &around, PadMode::Circular)),
        ("cropped", Form::new(image, &cropped, PadMode::Constant(0.0))),
        ("zeros between", Form::new(image, &around, PadMode::Constant(0.0)).interior(&[0, 0, 1, 1])),
        ("rows", Form::new(dense(dtype, &[1024, 768]), &[(0, 0), (0, 256)], PadMode::Constant(-1.0))),
    ]
}
