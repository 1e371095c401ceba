//! Elements in order: every type, both directions, equal elements, NaN, signed zeros, layouts, lines of a thread, a team, a tile and several tiles, and any k.

use std::cmp::Ordering;

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, DType, Error, PlanOptions, Slot, SortArgs, SortDescriptor, TensorDesc, TopKArgs, TopKDescriptor,
};

use super::movement::exact;
use super::{Contract, FLOATS, Subject, channels_last, dense, json_of, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const SORT: Subject = Subject {
    name: "sort",
    cases: || cases(Op::Sort),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed: |run| {
        let mut args = SortArgs::new(run.input("x"));
        if let Some(values) = run.named.mem_mut("values") {
            args = args.values(values);
        }
        if let Some(indices) = run.named.mem_mut("indices") {
            args = args.indices(indices);
        }
        run.plan::<SortDescriptor>(args)
    },
    features: || features(Op::Sort),
};

pub(super) const TOP_K: Subject = Subject {
    name: "top_k",
    cases: || cases(Op::TopK),
    run_typed: |run| {
        let mut args = TopKArgs::new(run.input("x"));
        if let Some(values) = run.named.mem_mut("values") {
            args = args.values(values);
        }
        if let Some(indices) = run.named.mem_mut("indices") {
            args = args.indices(indices);
        }
        run.plan::<TopKDescriptor>(args)
    },
    features: || features(Op::TopK),
    ..SORT
};

pub(super) const INTEGERS: [DType; 6] = [DType::I64, DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool];

#[derive(Clone, Copy, PartialEq)]
enum Op {
    Sort,
    TopK,
}

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    op: Op,
    x: TensorDesc,
    axis: usize,
    k: u64,
    /// Whether the order is the other one than the default: falling of sort, rising of top-k.
    is_turned: bool,
    values: bool,
    indices: Option<DType>,
    /// The strides of the outputs, if they are not dense.
    strides: Option<Vec<u64>>,
}

impl Form {
    /// Values and indices of i64.
    fn new(op: Op, x: TensorDesc, axis: usize) -> Self {
        Self { op, x, axis, k: 1, is_turned: false, values: true, indices: Some(DType::I64), strides: None }
    }

    fn k(self, k: u64) -> Self {
        Self { k, ..self }
    }

    fn turned(self) -> Self {
        Self { is_turned: true, ..self }
    }

    fn values_alone(self) -> Self {
        Self { indices: None, ..self }
    }

    fn indices(self, dtype: DType) -> Self {
        Self { indices: Some(dtype), ..self }
    }

    fn indices_alone(self, dtype: DType) -> Self {
        Self { values: false, indices: Some(dtype), ..self }
    }

    fn to(self, strides: &[u64]) -> Self {
        Self { strides: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        macro_rules! with_steps {
            ($order:expr, $turned:ident) => {{
                let mut order = $order;
                if self.values {
                    order = order.with_values()?;
                }
                if let Some(dtype) = self.indices {
                    order = order.indices(dtype)?;
                }
                if self.is_turned {
                    order = order.$turned()?;
                }
                if let Some(strides) = &self.strides {
                    let slots = AnyDescriptor::new(order.clone()).slots().to_vec();
                    for slot in &slots[1..] {
                        let desc = TensorDesc::strided(slot.desc.dtype(), slot.desc.dims(), strides)?;
                        order = order.layout(slot.name, desc)?;
                    }
                }
                Ok(AnyDescriptor::new(order))
            }};
        }
        match (self.op, self.values) {
            (Op::Sort, true) => with_steps!(SortDescriptor::new(self.x, self.axis)?, descending),
            (Op::Sort, false) => with_steps!(SortDescriptor::argsort(self.x, self.axis)?, descending),
            (Op::TopK, true) => with_steps!(TopKDescriptor::new(self.x, self.axis, self.k)?, least),
            (Op::TopK, false) => with_steps!(TopKDescriptor::positions(self.x, self.axis, self.k)?, least),
        }
    }
}

/// Extents around what a thread, a team and a tile hold, on CUDA and through wgpu.
const LENGTHS: [u64; 22] =
    [1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 33, 64, 100, 127, 256, 257, 1000, 1024, 1025, 2048, 2049, 4096];
/// Lines of several tiles, up to three merges on CUDA.
const LONG: [u64; 4] = [4097, 6000, 8200, 20_001];

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms(op: Op) -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        let of = |dims: &[u64], axis: usize| Form::new(op, dense(dtype, dims), axis);
        // Some of k: one, as many as a thread holds, one more, a half, all.
        let some_k = |n: u64| match op {
            Op::Sort => vec![n],
            Op::TopK => {
                let mut some = vec![1, 4.min(n), 9.min(n), n.div_ceil(2), n];
                some.dedup();
                some
            }
        };
        if dtype.is_float() {
            let special =
                [Data::Nan, Data::Inf, Data::NegInf, Data::Sparse, Data::Constant, Data::Tiny, Data::Wide, Data::Ramp];
            for data in special {
                for axis in [0, 1] {
                    add(of(&[6, 40], axis).k(5), data, data == Data::Sparse && axis == 1);
                    add(of(&[6, 40], axis).k(3).turned(), data, data == Data::Nan && axis == 1);
                }
            }
        }
        for axis in 0..3 {
            add(of(&[3, 5, 66], axis).k(3), Data::Normal, true);
            add(of(&[3, 5, 66], axis).k(2).turned().values_alone(), Data::Normal, false);
            add(of(&[3, 5, 66], axis).k(2).indices_alone(DType::I32), Data::Normal, axis == 0);
        }
        add(of(&[5, 48], 1).k(7).indices(DType::U32), Data::Normal, true);
        // One element, and none.
        add(of(&[], 0), Data::Normal, true);
        add(of(&[], 0).turned().indices_alone(DType::I64), Data::Normal, false);
        add(of(&[0, 5], 1), Data::Normal, true);
        add(of(&[5, 0], 1).k(0), Data::Normal, false);
        add(of(&[5, 1], 1), Data::Normal, false);
        if op == Op::TopK {
            add(of(&[5, 9], 1).k(0), Data::Normal, true);
        }
        let is_all = matches!(dtype, DType::F32 | DType::F64 | DType::U8);
        for n in LENGTHS.into_iter().filter(|n| dtype == DType::F32 || (is_all && n % 8 == 1) || [33, 1025].contains(n))
        {
            let is_core = [17, 1025].contains(&n);
            for k in some_k(n) {
                let data = if dtype.is_float() && n % 2 == 0 { Data::Sparse } else { Data::Normal };
                add(of(&[3, n], 1).k(k), data, is_core && k != 4);
                add(of(&[n, 2], 0).k(k).turned().indices(DType::I32), data, false);
            }
        }
        for n in LONG.into_iter().filter(|n| is_all || *n == 8200) {
            let ks = if op == Op::Sort { vec![n] } else { vec![1, 50, 300, 1024, 1025, 3000, n] };
            for k in ks {
                let is_core = n == 8200 && (op == Op::Sort || k == 50 || k == 3000);
                add(of(&[2, n], 1).k(k), Data::Normal, is_core);
                let data = if dtype.is_float() { Data::Sparse } else { Data::Normal };
                add(of(&[n], 0).k(k).turned().indices_alone(DType::I64), data, false);
            }
        }
        // Other layouts, of x and of what is written.
        let higher = dense(dtype, &[2, 3, 1, 2, 2, 3, 1, 5]);
        let last = channels_last(dtype, &[2, 6, 4, 8]);
        for (x, axis, is_core) in [
            (strided(dtype, &[6, 40], &[48, 1]), 1, true),
            (strided(dtype, &[6, 40], &[48, 1]), 0, false),
            (strided(dtype, &[37, 66], &[1, 37]), 0, true),
            (strided(dtype, &[37, 66], &[1, 37]), 1, true),
            (strided(dtype, &[6, 40], &[0, 1]), 0, true),
            (strided(dtype, &[6, 40], &[1, 0]), 1, false),
            (strided(dtype, &[7, 9], &[31, 3]), 1, true),
            (higher, 7, true),
            (higher, 3, false),
            (higher, 2, false),
            (last, 1, true),
            (last, 3, false),
        ] {
            let k = x.dims()[axis].min(3);
            add(Form::new(op, x, axis).k(k), Data::Normal, is_core);
        }
        for (strides, is_core) in [(&[64, 1], true), (&[1, 5], false), (&[99, 2], true)] {
            add(of(&[5, 48], 1).k(12).to(strides), Data::Normal, is_core);
            add(of(&[5, 48], 1).k(12).to(strides).turned(), Data::Normal, false);
        }
        let narrow = dense(dtype, &[3, 1024]).align(dtype.size_bytes()).expect("a promise");
        add(Form::new(op, narrow, 1).k(20), Data::Normal, true);
        // Many lines.
        add(of(&[700, 9], 1).k(4), Data::Normal, false);
    }
    forms
}

fn cases(op: Op) -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    let mut cases: Vec<Case> = forms(op).iter().map(of).collect();
    // Merges of lines that tiles take by themselves.
    let name = if op == Op::Sort { "sort_merge" } else { "top_k_merge" };
    for (dtype, n, k) in [(DType::F32, 100, 10), (DType::I64, 5000, 3), (DType::BF16, 9000, 40)] {
        let form = Form::new(op, dense(dtype, &[2, n]), 1).k(k);
        cases.push(of(&(form, Data::Normal, false)).with(PlanOptions::default().kernel(name)));
    }
    // Kernels of CUDA, of lines that others would take.
    let named = |form: &str| {
        let op = if op == Op::Sort { "sort" } else { "top_k" };
        PlanOptions::default().kernel(format!("{op}_{form}"))
    };
    for (dtype, n, k) in [(DType::F32, 9000, 70), (DType::I64, 3000, 3000), (DType::BF16, 5000, 2), (DType::U8, 70, 9)]
    {
        let form = Form::new(op, dense(dtype, &[2, n]), 1).k(k);
        cases.push(of(&(form, Data::Normal, false)).with(named("radix")));
    }
    if op == Op::TopK {
        for (dtype, n, k) in [(DType::F32, 31, 3), (DType::I64, 8192, 8), (DType::F16, 1500, 1), (DType::Bool, 300, 7)]
        {
            let form = Form::new(op, dense(dtype, &[3, n]), 1).k(k);
            cases.push(of(&(form, Data::Normal, false)).with(named("few")));
        }
        for (dtype, n, k) in
            [(DType::F32, 20_011, 40), (DType::I64, 5000, 130), (DType::BF16, 9000, 3), (DType::U8, 40, 1)]
        {
            let form = Form::new(op, dense(dtype, &[2, n]), 1).k(k);
            cases.push(of(&(form, Data::Normal, false)).with(named("groups")));
        }
    }
    distinct(cases)
}

/// Few elements may agree by chance, and so do many that are equal; of lines of one element all indices are 0.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let [x, y] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    let is_few = x.elements() < 64 || y.elements() < 64 || x.strides().contains(&0) || !x.dtype().is_float();
    let axis = json_of(descriptor).ok().and_then(|json| json["axis"].as_u64()).unwrap_or(0) as usize;
    is_few || x.dims().get(axis).is_none_or(|&extent| extent == 1)
}

/// Numbers as the case has them, or integers.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    if dtype.is_float() {
        let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
        return Ok(case.data.rows(dtype, elements / cols, cols, random));
    }
    Ok(integers(dtype, elements, random))
}

/// Integers of the whole range of a type, many of them equal.
pub(super) fn integers(dtype: DType, elements: u64, random: &mut Random) -> Vec<f64> {
    let (least, greatest) = match dtype {
        DType::I64 => (-(2f64.powi(63)), 2f64.powi(52)),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0.0, u32::MAX.into()),
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        _ => (0.0, 1.0),
    };
    let mut number = || match random.uniform() {
        share if share < 0.05 => least,
        share if share > 0.95 => greatest,
        share if share < 0.5 => (80.0 * share - 22.0).round().clamp(least, greatest),
        _ => (least / 1024.0 + (greatest / 1024.0 - least / 1024.0) * random.uniform()).round().clamp(least, greatest),
    };
    (0..elements).map(|_| number()).collect()
}

/// NaN is above every number.
pub(super) fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

const CONTRACTS: &[Contract] = &[Contract {
    outputs: &["values", "indices"],
    budget: "0",
    why: "Elements move as bits to places that one order decides.",
}];

/// Lines that the standard library sorts stably.
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let json = json_of(descriptor)?;
    let axis = json["axis"].as_u64().context("an axis")? as usize;
    let falls = if descriptor.name() == "sort" { json["descending"] == true } else { json["least"] != true };
    let (x, y) = (&descriptor.slots()[0].desc, &descriptor.slots()[1].desc);
    let extent = |desc: &TensorDesc| desc.dims().get(axis).copied().unwrap_or(1) as usize;
    let (length, kept) = (extent(x), extent(y));
    let inner = x.dims().iter().skip(axis + 1).product::<u64>() as usize;
    let given = inputs.values("x").context("x")?;
    let (mut values, mut indices) = (vec![0.0; y.elements() as usize], vec![0.0; y.elements() as usize]);
    let lines = x.elements() as usize / length.max(1);
    for line in 0..lines {
        let place = |extent: usize, at: usize| (line / inner * extent + at) * inner + line % inner;
        let mut order: Vec<usize> = (0..length).collect();
        order.sort_by(|&a, &b| {
            let [a, b] = [a, b].map(|at| given[place(length, at)]);
            if falls { compare(b, a) } else { compare(a, b) }
        });
        for (at, &position) in order.iter().take(kept).enumerate() {
            values[place(kept, at)] = given[place(length, position)];
            indices[place(kept, at)] = position as f64;
        }
    }
    let written = descriptor.slots()[1..].iter();
    Ok(written
        .map(|slot| exact(slot.name, if slot.name == "values" { values.clone() } else { indices.clone() }))
        .collect())
}

/// What the support table asks for.
fn asked_for(op: Op, dtype: DType) -> Vec<(&'static str, Form)> {
    let rows = |dims: &[u64], axis: usize| Form::new(op, dense(dtype, dims), axis);
    if op == Op::Sort {
        return vec![
            ("last axis", rows(&[1024, 768], 1).values_alone()),
            ("with indices", rows(&[1024, 768], 1)),
            ("descending", rows(&[1024, 768], 1).turned()),
            ("indices alone", rows(&[1024, 768], 1).indices_alone(DType::I64)),
            ("first axis", rows(&[1024, 768], 0)),
            ("one long line", rows(&[1 << 20], 0)),
            ("rows apart", Form::new(op, strided(dtype, &[32, 768], &[1024, 1]), 1)),
        ];
    }
    vec![
        ("last axis", rows(&[1024, 768], 1).k(8)),
        ("least", rows(&[1024, 768], 1).k(8).turned()),
        ("indices alone", rows(&[1024, 768], 1).k(8).indices_alone(DType::I64)),
        ("first axis", rows(&[1024, 768], 0).k(8)),
        ("few of a long line", rows(&[2, 128_256], 1).k(50)),
        ("many of a long line", rows(&[4, 128_256], 1).k(20_000)),
    ]
}

fn features(op: Op) -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        for (what, form) in asked_for(op, dtype) {
            if let Ok(descriptor) = form.descriptor() {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}
