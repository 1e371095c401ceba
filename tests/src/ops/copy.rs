//! Copies: layouts on both sides, slices, every type and size of element.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, CopyArgs, CopyDescriptor, DType, Error, PlanOptions, TensorDesc};

use super::movement::{TYPES, data, exact, index, input, is_few, number, stands_for_size};
use super::{Contract, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const COPY: Subject = Subject {
    name: "copy",
    cases,
    is_cpu_only: |_| false,
    may_be_constant: |descriptor| {
        let [x, y] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
        is_few(y) || x.strides().contains(&0)
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
    x: TensorDesc,
    /// Starts, extents and steps.
    slice: Option<(Vec<u64>, Vec<u64>, Vec<i64>)>,
    /// The layout of y, if it is not dense.
    y: Option<TensorDesc>,
}

impl Form {
    fn of(x: TensorDesc) -> Self {
        Self { x, slice: None, y: None }
    }

    fn slice(x: TensorDesc, starts: &[u64], extents: &[u64], steps: &[i64]) -> Self {
        Self { slice: Some((starts.to_vec(), extents.to_vec(), steps.to_vec())), ..Self::of(x) }
    }

    fn to(self, y: TensorDesc) -> Self {
        Self { y: Some(y), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let mut copy = match self.slice.clone() {
            None => CopyDescriptor::new(self.x)?,
            Some((starts, extents, steps)) => CopyDescriptor::slice(self.x, starts, extents, steps)?,
        };
        if let Some(y) = self.y {
            copy = copy.layout("y", y)?;
        }
        Ok(AnyDescriptor::new(copy))
    }
}

/// A dense tensor with its axes in another order.
fn permuted(dtype: DType, dims: &[u64], axes: &[usize]) -> TensorDesc {
    dense(dtype, dims).permute(axes).expect("an order")
}

/// The forms, and whether each runs in every mode.
fn forms(dtype: DType) -> Vec<(Form, bool)> {
    let x = |dims: &[u64]| dense(dtype, dims);
    let turned = |dims: &[u64], axes: &[usize]| Form::of(permuted(dtype, dims, axes));
    let mut forms = vec![
        (Form::of(x(&[5, 40])), true),
        (turned(&[40, 24], &[1, 0]), true),
        (turned(&[37, 53], &[1, 0]), false),
        (Form::slice(x(&[7, 40]), &[1, 3], &[3, 30], &[2, 1]), true),
        (Form::slice(x(&[6, 33]), &[5, 32], &[6, 33], &[-1, -1]), true),
    ];
    if !stands_for_size(dtype) {
        return forms;
    }
    // Around a vector's width and a block's; none.
    for elements in [1, 2, 3, 7, 8, 9, 255, 1023, 4099, 65537] {
        forms.push((Form::of(x(&[elements])), elements == 1023));
    }
    let last = channels_last(dtype, &[2, 6, 4, 8]);
    let image = x(&[2, 6, 4, 8]);
    let gaps = strided(dtype, &[6, 40], &[48, 1]);
    let odd_gaps = strided(dtype, &[6, 40], &[43, 1]);
    let narrow = x(&[3, 1021]).align(dtype.size_bytes()).expect("a promise");
    for (form, is_core) in [
        (Form::of(x(&[])), true),
        (Form::of(x(&[3, 0, 5])), true),
        (Form::of(x(&[1, 1, 1])), false),
        (Form::of(x(&[2, 3, 1, 2, 2, 3, 1, 5])), false),
        (Form::of(narrow), false),
        // Orders of extents.
        (Form::of(last), true),
        (Form::of(image).to(last), true),
        (Form::of(last).to(last), false),
        (turned(&[2, 8, 4, 16], &[0, 2, 1, 3]), true),
        (turned(&[2, 3, 4, 5], &[3, 2, 1, 0]), false),
        (turned(&[34, 3, 2, 33], &[3, 2, 1, 0]), true),
        (turned(&[2, 3, 2, 2, 3, 2, 2, 3], &[7, 1, 5, 3, 4, 2, 6, 0]), false),
        // Tiles: whole ones, of odd extents, many of them, few rows or columns.
        (turned(&[64, 64], &[1, 0]), true),
        (turned(&[128, 66], &[1, 0]), false),
        (turned(&[65, 129], &[1, 0]), false),
        (turned(&[3, 70, 34], &[0, 2, 1]), true),
        (turned(&[70, 3, 34], &[2, 1, 0]), false),
        (turned(&[3, 300], &[1, 0]), false),
        (turned(&[300, 3], &[1, 0]), false),
        (turned(&[17, 16], &[1, 0]), false),
        (Form::of(strided(dtype, &[48, 40], &[1, 50])), false),
        (Form::of(strided(dtype, &[48, 40], &[1, 51])).to(strided(dtype, &[48, 40], &[41, 1])), false),
        (Form::of(strided(dtype, &[48, 40], &[2, 100])).to(strided(dtype, &[48, 40], &[120, 3])), false),
        // Gaps.
        (Form::of(gaps), true),
        (Form::of(x(&[6, 40])).to(gaps), true),
        (Form::of(gaps).to(odd_gaps), false),
        (Form::of(odd_gaps).to(gaps), false),
        (Form::of(strided(dtype, &[7, 9], &[31, 3])).to(strided(dtype, &[7, 9], &[2, 20])), false),
        // Repeated elements.
        (Form::of(strided(dtype, &[6, 40], &[0, 1])), true),
        (Form::of(strided(dtype, &[40, 6], &[1, 0])), false),
        (Form::of(strided(dtype, &[4, 5, 6], &[6, 0, 1])), true),
        (Form::of(strided(dtype, &[5, 7], &[0, 0])), false),
        // Elements that lie between each other's.
        (Form::of(strided(dtype, &[9, 4], &[1, 1])), false),
        // Slices.
        (Form::slice(x(&[40]), &[3], &[16], &[1]), false),
        (Form::slice(x(&[9, 64]), &[1, 8], &[7, 48], &[1, 1]), true),
        (Form::slice(x(&[9, 64]), &[1, 7], &[7, 49], &[1, 1]), false),
        (Form::slice(x(&[9, 64]), &[0, 1], &[9, 21], &[1, 3]), false),
        (Form::slice(x(&[9, 64]), &[8, 0], &[9, 64], &[-1, 1]), true),
        (Form::slice(x(&[9, 64]), &[0, 63], &[9, 64], &[1, -1]), false),
        (Form::slice(x(&[9, 64]), &[7, 60], &[4, 20], &[-2, -3]), false),
        (Form::slice(x(&[9, 64]), &[9, 0], &[0, 64], &[1, 1]), false),
        (Form::slice(x(&[9, 64]), &[4, 5], &[1, 1], &[7, -3]), false),
        (Form::slice(permuted(dtype, &[70, 50], &[1, 0]), &[1, 2], &[40, 60], &[1, 1]), true),
        (Form::slice(permuted(dtype, &[70, 50], &[1, 0]), &[2, 64], &[48, 64], &[1, -1]), false),
        (Form::slice(permuted(dtype, &[70, 50], &[1, 0]), &[49, 0], &[50, 70], &[-1, 1]), false),
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
            if at < 3 {
                cases.extend(data(dtype)[1..].iter().map(|&data| Case::new(descriptor.clone(), data)));
            }
            // What tiles serve, the form for any strides serves as well.
            let is_turned = form.x.rank() == 2 && form.x.strides()[0] < form.x.strides()[1] && form.slice.is_none();
            if stands_for_size(dtype) && is_turned {
                let case = Case::new(descriptor, Data::Normal).core(form.x.dims() == [64, 64]);
                cases.push(case.with(PlanOptions::default().kernel("copy_strided")));
            }
        }
    }
    distinct(cases)
}

const CONTRACTS: &[Contract] = &[Contract { outputs: &["y"], budget: "0", why: "Elements move as bits." }];

fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let json = json_of(descriptor)?;
    let [x, y] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    let values = inputs.values("x").context("x")?;
    let along = |field: &str, axis: usize, default: i64| json[field][axis].as_i64().unwrap_or(default);
    let copied = (0..y.elements()).map(|element| {
        let at: Vec<u64> = index(y.dims(), element)
            .iter()
            .enumerate()
            .map(|(axis, &i)| (along("starts", axis, 0) + i as i64 * along("steps", axis, 1)) as u64)
            .collect();
        values[number(x.dims(), &at)]
    });
    Ok(vec![exact("y", copied.collect())])
}

fn run_typed(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = CopyArgs::new(run.input("x"), run.output("y"));
    run.plan::<CopyDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let rows = dense(dtype, &[1024, 768]);
    vec![
        ("dense", Form::of(dense(dtype, &[32, 128, 768]))),
        ("transposed", Form::of(permuted(dtype, &[768, 1024], &[1, 0]))),
        ("transposed, odd extents", Form::of(permuted(dtype, &[769, 1023], &[1, 0]))),
        ("heads", Form::of(permuted(dtype, &[8, 128, 12, 64], &[0, 2, 1, 3]))),
        ("channels-last from channels-first", Form::of(permuted(dtype, &[8, 64, 28, 28], &[0, 2, 3, 1]))),
        ("channels-first from channels-last", Form::of(permuted(dtype, &[8, 28, 28, 64], &[0, 3, 1, 2]))),
        ("reversed extents", Form::of(permuted(dtype, &[16, 32, 32, 16], &[3, 2, 1, 0]))),
        ("a row repeated", Form::of(strided(dtype, &[1024, 768], &[0, 1]))),
        ("rows apart", Form::of(strided(dtype, &[1024, 768], &[1024, 1]))),
        ("output rows apart", Form::of(rows).to(strided(dtype, &[1024, 768], &[1024, 1]))),
        ("a slice", Form::slice(rows, &[1, 3], &[1000, 700], &[1, 1])),
        ("a slice with steps", Form::slice(rows, &[1, 0], &[300, 256], &[3, 3])),
        ("flipped", Form::slice(rows, &[0, 767], &[1024, 768], &[1, -1])),
    ]
}
