//! Concatenation: axes, counts of inputs, layouts on both sides.

use anyhow::{Context, Result};
use baracuda_ops::{Access, AnyDescriptor, ConcatArgs, ConcatDescriptor, DType, Error, Mem, TensorDesc};

use super::movement::{TYPES, data, exact, index, input, is_few, number, stands_for_size};
use super::{Contract, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const CONCAT: Subject = Subject {
    name: "concat",
    cases,
    is_cpu_only: |_| false,
    may_be_constant: |descriptor| {
        let is_repeated = descriptor.slots().iter().any(|slot| slot.desc.strides().contains(&0));
        is_repeated || descriptor.slots().last().is_some_and(|out| is_few(&out.desc))
    },
    input,
    expect,
    contracts: CONTRACTS,
    run_typed,
    features: || features(asked_for, Form::descriptor),
};

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    inputs: Vec<TensorDesc>,
    axis: usize,
    out: Option<TensorDesc>,
}

impl Form {
    fn new(inputs: impl Into<Vec<TensorDesc>>, axis: usize) -> Self {
        Self { inputs: inputs.into(), axis, out: None }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let mut concat = ConcatDescriptor::new(self.inputs.clone(), self.axis)?;
        if let Some(out) = self.out {
            concat = concat.layout("out", out)?;
        }
        Ok(AnyDescriptor::new(concat))
    }
}

/// The forms, and whether each runs in every mode.
fn forms(dtype: DType) -> Vec<(Form, bool)> {
    let x = |dims: &[u64]| dense(dtype, dims);
    let mut forms = vec![
        (Form::new([x(&[5, 16]), x(&[5, 24])], 1), true),
        (Form::new([x(&[5, 16]), x(&[3, 16])], 0), true),
        (Form::new([x(&[9, 7]), x(&[9, 3]), x(&[9, 1])], 1), false),
    ];
    if !stands_for_size(dtype) {
        return forms;
    }
    let turned = |dims: &[u64], axes: &[usize]| dense(dtype, dims).permute(axes).expect("an order");
    let last = channels_last(dtype, &[2, 8, 3, 4]);
    let spread = Form { out: Some(strided(dtype, &[6, 20], &[48, 2])), ..Form::new([x(&[6, 12]), x(&[6, 8])], 1) };
    let turned_out =
        Form { out: Some(strided(dtype, &[40, 52], &[1, 40])), ..Form::new([x(&[40, 20]), x(&[40, 32])], 1) };
    for (form, is_core) in [
        (Form::new([x(&[5, 16])], 0), false),
        (Form::new(vec![x(&[4, 3]); 23], 1), true),
        (Form::new(vec![x(&[2, 3]); 24], 0), true),
        (Form::new((0..64).map(|at| x(&[4, at % 5])).collect::<Vec<_>>(), 1), true),
        (Form::new([x(&[2, 3, 5]), x(&[2, 4, 5]), x(&[2, 0, 5])], 1), true),
        (Form::new([x(&[0, 3]), x(&[0, 3])], 0), false),
        (Form::new([x(&[0, 3]), x(&[2, 3])], 0), true),
        (Form::new([x(&[7]), x(&[1]), x(&[8])], 0), false),
        (Form::new([last, last], 1), true),
        (Form { out: Some(channels_last(dtype, &[2, 16, 3, 4])), ..Form::new([last, last], 1) }, false),
        (Form::new([turned(&[40, 36], &[1, 0]), turned(&[48, 36], &[1, 0])], 1), true),
        (Form::new([turned(&[33, 35], &[1, 0]), x(&[35, 5])], 1), false),
        (Form::new([strided(dtype, &[6, 10], &[0, 1]), x(&[6, 10])], 0), false),
        (spread, true),
        (turned_out, false),
        (Form::new([x(&[2, 1, 2, 2, 3, 2, 2, 3]), x(&[2, 2, 2, 2, 3, 2, 2, 3])], 1), false),
    ] {
        forms.push((form, is_core));
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

const CONTRACTS: &[Contract] = &[Contract { outputs: &["out"], budget: "0", why: "Elements move as bits." }];

fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let axis = json_of(descriptor)?["axis"].as_u64().context("an axis")? as usize;
    let slots = descriptor.slots();
    let (out, parts) = slots.split_last().context("an output")?;
    let mut starts = Vec::new();
    let mut end = 0;
    for part in parts {
        starts.push(end);
        end += part.desc.dims()[axis];
    }
    let joined = (0..out.desc.elements()).map(|element| {
        let mut at = index(out.desc.dims(), element);
        // The last that begins at or before it and has elements.
        let begins =
            |part: &usize| starts[*part] <= at[axis] && at[axis] < starts[*part] + parts[*part].desc.dims()[axis];
        let part = (0..parts.len()).find(begins).context("an input")?;
        at[axis] -= starts[part];
        Ok(inputs.values(parts[part].name).context("an input")?[number(parts[part].desc.dims(), &at)])
    });
    Ok(vec![exact("out", joined.collect::<Result<_>>()?)])
}

fn run_typed(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let slots = run.descriptor.slots();
    let of = slots.iter().filter(|slot| slot.access == Access::In);
    let inputs: Vec<Mem<'_>> = of.map(|slot| run.input(slot.name)).collect();
    let args = ConcatArgs::new(inputs, run.output("out"));
    run.plan::<ConcatDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let rows = dense(dtype, &[1024, 768]);
    let last = channels_last(dtype, &[8, 64, 28, 28]);
    vec![
        ("along the last axis", Form::new([rows, rows], 1)),
        ("along the first axis", Form::new([rows, rows], 0)),
        ("channels", Form::new(vec![dense(dtype, &[8, 64, 28, 28]); 3], 1)),
        ("channels, channels-last", Form::new([last, last], 1)),
        ("64 inputs", Form::new(vec![dense(dtype, &[64, 48]); 64], 1)),
        ("odd extents", Form::new([dense(dtype, &[129, 33]), dense(dtype, &[129, 31])], 1)),
    ]
}
