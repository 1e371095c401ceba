//! Places among sorted elements: every type, both sides, equal elements, NaN, signed zeros, layouts, lines that values share, and lines of none and of one.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, DType, Error, SearchSortedArgs, SearchSortedDescriptor, Slot, TensorDesc};

use super::movement::{exact, index, is_few, number};
use super::order::{INTEGERS, compare, integers};
use super::{Contract, FLOATS, Subject, channels_last, dense, json_of, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const SEARCH_SORTED: Subject = Subject {
    name: "search_sorted",
    cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: &[Contract {
        outputs: &["indices"],
        budget: "0",
        why: "One order says how many elements are before a value.",
    }],
    run_typed: |run| {
        let args = SearchSortedArgs::new(run.input("sorted"), run.input("values"), run.output("indices"));
        run.plan::<SearchSortedDescriptor>(args)
    },
    features,
};

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    sorted: TensorDesc,
    values: TensorDesc,
    right: bool,
    indices: DType,
    strides: Option<Vec<u64>>,
}

impl Form {
    fn new(sorted: TensorDesc, values: TensorDesc) -> Self {
        Self { sorted, values, right: false, indices: DType::I64, strides: None }
    }

    fn right(self) -> Self {
        Self { right: true, ..self }
    }

    fn indices(self, indices: DType) -> Self {
        Self { indices, ..self }
    }

    fn to(self, strides: &[u64]) -> Self {
        Self { strides: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let mut search = SearchSortedDescriptor::new(self.sorted, self.values)?.indices(self.indices)?;
        if self.right {
            search = search.right()?;
        }
        if let Some(strides) = &self.strides {
            search = search.layout("indices", TensorDesc::strided(self.indices, self.values.dims(), strides)?)?;
        }
        Ok(AnyDescriptor::new(search))
    }
}

/// The forms of a type with the data they run on, and whether each runs in every mode.
fn forms(dtype: DType) -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    let of = |sorted: &[u64], values: &[u64]| Form::new(dense(dtype, sorted), dense(dtype, values));
    if dtype.is_float() {
        for data in [Data::Nan, Data::Inf, Data::NegInf, Data::Sparse, Data::Constant, Data::Wide, Data::Ramp] {
            add(of(&[4, 40], &[4, 70]), data, data == Data::Sparse);
            add(of(&[4, 40], &[4, 70]).right(), data, data == Data::Nan);
        }
    }
    add(of(&[33], &[5, 66]), Data::Normal, true);
    add(of(&[33], &[5, 66]).right().indices(DType::I32), Data::Normal, true);
    add(of(&[3, 1, 100], &[3, 5, 17]).indices(DType::U32), Data::Normal, true);
    add(of(&[1, 1000], &[3, 300]).right(), Data::Normal, false);
    // One value, one element, and none of either.
    add(of(&[9], &[]), Data::Normal, true);
    add(of(&[1], &[80]), Data::Normal, false);
    add(of(&[0], &[80]), Data::Normal, true);
    add(of(&[3, 0], &[3, 4]).right(), Data::Normal, false);
    add(of(&[9], &[0]), Data::Normal, false);
    add(of(&[0, 9], &[0, 4]), Data::Normal, false);
    if !matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::U8) {
        return forms;
    }
    // Around powers of two, and more values than a block has.
    for n in [2, 3, 4, 5, 7, 8, 31, 64, 1023, 4096] {
        add(of(&[n], &[100]), Data::Normal, n == 7);
        add(of(&[2, n], &[2, 9]).right(), Data::Normal, false);
    }
    add(of(&[500], &[3000]), Data::Normal, false);
    add(of(&[70_000], &[1, 1025]).right(), Data::Normal, dtype == DType::F32);
    // Other layouts of each operand.
    let last = channels_last(dtype, &[2, 3, 4, 5]);
    let higher = strided(dtype, &[2, 3, 1, 2, 2, 3, 1, 5], &[1000, 300, 1, 100, 50, 10, 1, 2]);
    for (form, is_core) in [
        (Form::new(strided(dtype, &[4, 40], &[48, 1]), dense(dtype, &[4, 9])), true),
        (Form::new(strided(dtype, &[4, 40], &[1, 4]), dense(dtype, &[4, 9])), true),
        (Form::new(strided(dtype, &[4, 40], &[0, 1]), strided(dtype, &[4, 9], &[1, 4])), true),
        (Form::new(strided(dtype, &[4, 40], &[7, 0]), dense(dtype, &[4, 9])), false),
        (Form::new(strided(dtype, &[40], &[3]), strided(dtype, &[4, 9], &[31, 3])), true),
        (Form::new(dense(dtype, &[40]), strided(dtype, &[4, 90], &[0, 1])), false),
        (Form::new(dense(dtype, &[2, 3, 1, 7]), last), true),
        (Form::new(dense(dtype, &[2, 1, 1, 1, 2, 3, 1, 9]), higher).right(), true),
        (of(&[4, 40], &[4, 9]).to(&[16, 1]), true),
        (of(&[4, 40], &[4, 9]).to(&[1, 5]).right().indices(DType::I32), true),
        (of(&[40], &[4, 9]).to(&[99, 2]), false),
    ] {
        add(form, Data::Normal, is_core);
    }
    let narrow = |dims: &[u64]| dense(dtype, dims).align(dtype.size_bytes()).expect("a promise");
    add(Form::new(narrow(&[50]), narrow(&[64])), Data::Normal, false);
    forms
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): (Form, Data, bool)| {
        Case::new(form.descriptor().expect("the case lists hold valid descriptors"), data).core(core)
    };
    distinct(FLOATS.into_iter().chain(INTEGERS).flat_map(forms).map(of).collect())
}

/// Few values may be at one place, and among few elements there are few places.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let [sorted, values] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    let is_repeated = |desc: &TensorDesc| desc.strides().contains(&0);
    is_few(values) || sorted.dims().last().is_none_or(|&n| n < 8) || is_repeated(sorted) || !values.dtype().is_float()
}

/// Lines in order, and values of which about every second one is among them.
fn input(case: &Case, slot: &Slot, random: &mut Random, before: &Tensors) -> Result<Vec<f64>> {
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    let mut values = match dtype.is_float() {
        true => case.data.rows(dtype, elements / cols, cols, random),
        false => integers(dtype, elements, random),
    };
    if slot.name == "sorted" {
        values.chunks_mut(cols as usize).for_each(|line| line.sort_by(|&a, &b| compare(a, b)));
        return Ok(values);
    }
    let sorted = before.values("sorted").context("sorted")?;
    for value in &mut values {
        if !sorted.is_empty() && random.uniform() < 0.5 {
            *value = sorted[(random.uniform() * sorted.len() as f64) as usize % sorted.len()];
        }
    }
    Ok(values)
}

/// How many elements of its line are before each value, one by one.
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let is_right = json_of(descriptor)?["right"] == true;
    let [of_sorted, of_values] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    let (sorted, values) = (inputs.values("sorted").context("sorted")?, inputs.values("values").context("values")?);
    let length = of_sorted.dims().last().copied().context("an extent")? as usize;
    let lines = &of_sorted.dims()[..of_sorted.rank() - 1];
    let position = |at: usize| {
        let mut place = index(of_values.dims(), at as u64);
        place.truncate(lines.len());
        place.iter_mut().zip(lines).for_each(|(at, &extent)| *at = if extent == 1 { 0 } else { *at });
        let line = &sorted[number(lines, &place) * length..][..length];
        let is_before = |element: f64| match compare(element, values[at]) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => is_right,
            std::cmp::Ordering::Greater => false,
        };
        line.iter().filter(|&&element| is_before(element)).count() as f64
    };
    Ok(vec![exact("indices", (0..values.len()).map(position).collect())])
}

fn features() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        let of = |sorted: &[u64], values: &[u64]| Form::new(dense(dtype, sorted), dense(dtype, values));
        for (what, form) in [
            ("boundaries for all", of(&[1000], &[1024, 768])),
            ("behind equal ones", of(&[1000], &[1024, 768]).right()),
            ("a line for each row", of(&[1024, 500], &[1024, 768])),
            ("indices of i32", of(&[1000], &[1024, 768]).indices(DType::I32)),
            ("one long line", of(&[1 << 20], &[1 << 20])),
            ("lines apart", Form::new(strided(dtype, &[64, 500], &[512, 1]), dense(dtype, &[64, 768]))),
        ] {
            if let Ok(descriptor) = form.descriptor() {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}
