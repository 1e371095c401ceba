//! Scans along any axis: every scan in every type, both directions, layouts, odd extents, lines of several pieces, and indices.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, Backend, DType, Error, Scan, ScanArgs, ScanDescriptor, Slot, TensorDesc};

use super::{CHAIN, Contract, FLOATS, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const SCAN: Subject = Subject {
    name: "scan",
    cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed,
    features: || {
        let mut rows = features(asked_for, Form::descriptor);
        for dtype in INTEGERS {
            let of = |(what, form): (String, Form)| Some((format!("{dtype}: {what}"), form.descriptor().ok()?));
            rows.extend(asked_for(dtype).into_iter().filter_map(of));
        }
        rows
    },
};

const INTEGERS: [DType; 6] = [DType::I64, DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool];

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    x: TensorDesc,
    axis: usize,
    scan: Scan,
    is_reverse: bool,
    is_exclusive: bool,
    indices: Option<DType>,
    /// The type of y, if it is not the default.
    output: Option<DType>,
    /// The strides of y, and of the indices, if they are not dense.
    strides: Option<Vec<u64>>,
}

impl Form {
    fn of(scan: Scan, x: TensorDesc, axis: usize) -> Self {
        let (is_reverse, is_exclusive) = (false, false);
        Self { x, axis, scan, is_reverse, is_exclusive, indices: None, output: None, strides: None }
    }

    fn reverse(self) -> Self {
        Self { is_reverse: true, ..self }
    }

    fn exclusive(self) -> Self {
        Self { is_exclusive: true, ..self }
    }

    fn indices(self, dtype: DType) -> Self {
        Self { indices: Some(dtype), ..self }
    }

    fn output(self, dtype: DType) -> Self {
        Self { output: Some(dtype), ..self }
    }

    fn strides(self, strides: &[u64]) -> Self {
        Self { strides: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let mut scan = ScanDescriptor::of(self.x, self.axis, self.scan)?;
        if self.is_reverse {
            scan = scan.reverse()?;
        }
        if self.is_exclusive {
            scan = scan.exclusive()?;
        }
        scan = match self.indices {
            Some(DType::I64) => scan.with_indices()?,
            Some(dtype) => scan.indices(dtype)?,
            None => scan,
        };
        if let Some(dtype) = self.output {
            scan = scan.output(dtype)?;
        }
        if let Some(strides) = &self.strides {
            let slots = AnyDescriptor::new(scan.clone()).slots().to_vec();
            for slot in &slots[1..] {
                let desc = TensorDesc::strided(slot.desc.dtype(), slot.desc.dims(), strides)?;
                scan = scan.layout(slot.name, desc)?;
            }
        }
        Ok(AnyDescriptor::new(scan))
    }
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        for scan in Scan::ALL {
            let is_choice = matches!(scan, Scan::Max | Scan::Min);
            let with_indices = |form: Form| if is_choice { form.indices(DType::I64) } else { form };
            // Rows, columns, and both with what is not a number.
            let x = dense(dtype, &[6, 40]);
            for data in [Data::Nan, Data::Inf, Data::NegInf, Data::Tiny, Data::Huge, Data::Sparse, Data::Constant] {
                if scan == Scan::Prod && matches!(data, Data::Tiny | Data::Huge | Data::Constant) {
                    continue;
                }
                for axis in [0, 1] {
                    add(with_indices(Form::of(scan, x, axis)), data, false);
                    add(Form::of(scan, x, axis).reverse().exclusive(), data, false);
                }
            }
            for axis in 0..3 {
                let is_core = axis == 2 || scan == Scan::Sum;
                add(with_indices(Form::of(scan, dense(dtype, &[3, 5, 66]), axis)), Data::Normal, is_core);
            }
            for axis in [0, 1] {
                let form = Form::of(scan, dense(dtype, &[33, 35]), axis);
                add(form.clone(), Data::Normal, false);
                add(with_indices(form.clone().reverse()), Data::Normal, axis == 1);
                add(form.clone().exclusive(), Data::Normal, axis == 0);
                add(form.reverse().exclusive(), Data::Normal, scan == Scan::Sum);
            }
            // Chunks in reverse.
            add(with_indices(Form::of(scan, dense(dtype, &[3, 64]), 1).reverse()), Data::Normal, scan == Scan::Sum);
            // One element, and none.
            add(with_indices(Form::of(scan, dense(dtype, &[]), 0)), Data::Normal, scan == Scan::Sum);
            add(Form::of(scan, dense(dtype, &[]), 0).exclusive(), Data::Normal, false);
            add(with_indices(Form::of(scan, dense(dtype, &[0, 5]), 1)), Data::Normal, scan == Scan::Max);
            add(with_indices(Form::of(scan, dense(dtype, &[5, 0]), 1)), Data::Normal, scan == Scan::Sum);
        }
        // Around the width of a chunk, a warp, a team, a block and a tile, of rows and of columns.
        for n in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 255, 256, 257, 511, 513, 1023, 1025, 4096, 4097] {
            let is_core = [7, 257, 4097].contains(&n);
            add(Form::of(Scan::Sum, dense(dtype, &[3, n]), 1), Data::Normal, is_core);
            add(Form::of(Scan::Sum, dense(dtype, &[n, 5]), 0), Data::Normal, is_core);
            add(Form::of(Scan::Max, dense(dtype, &[3, n]), 1).indices(DType::I32), Data::Sparse, false);
            add(Form::of(Scan::Min, dense(dtype, &[n, 3]), 0).indices(DType::U32), Data::Normal, false);
            if n > 16 {
                add(Form::of(Scan::Sum, dense(dtype, &[2, n, 17]), 1).reverse(), Data::Normal, n == 257);
                add(Form::of(Scan::LogSumExp, dense(dtype, &[2, n]), 1), Data::Normal, n == 1025);
                add(Form::of(Scan::LogSumExp, dense(dtype, &[n, 3]), 0), Data::Normal, n == 513);
            }
        }
        // Several pieces; roundings of one sign.
        for (dims, axis) in [(&[70_001][..], 0), (&[2, 33_000], 1), (&[33_000, 3], 0), (&[20_000, 17], 0)] {
            for data in [Data::Normal, Data::Constant, Data::LargeMean] {
                let is_core = data == Data::Normal && dims.len() == 1;
                add(Form::of(Scan::Sum, dense(dtype, dims), axis), data, is_core);
            }
            let x = dense(dtype, dims);
            add(Form::of(Scan::Sum, x, axis).reverse().exclusive(), Data::Halves, false);
            add(Form::of(Scan::Max, x, axis).indices(DType::I64), Data::Normal, dims.len() == 1);
            add(Form::of(Scan::Prod, x, axis).reverse(), Data::Normal, false);
            add(Form::of(Scan::LogSumExp, x, axis), Data::Normal, false);
        }
        for data in [Data::Halves, Data::Ramp, Data::Stripes, Data::Blocks, Data::Wide, Data::Step] {
            add(Form::of(Scan::Sum, dense(dtype, &[4, 3000]), 1), data, false);
            add(Form::of(Scan::Sum, dense(dtype, &[3000, 4]), 0), data, false);
            add(Form::of(Scan::LogSumExp, dense(dtype, &[4, 300]), 1), data, false);
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
            (strided(dtype, &[7, 9], &[31, 3]), 0, false),
            (higher, 7, true),
            (higher, 3, false),
            (higher, 2, false),
            (last, 1, true),
            (last, 3, false),
        ] {
            add(Form::of(Scan::Sum, x, axis), Data::Normal, is_core);
            add(Form::of(Scan::Min, x, axis).indices(DType::I64), Data::Normal, false);
        }
        let narrow = dense(dtype, &[3, 1024]).align(dtype.size_bytes()).expect("a promise");
        add(Form::of(Scan::Sum, narrow, 1), Data::Normal, true);
        add(Form::of(Scan::Sum, dense(dtype, &[5, 48]), 1).strides(&[64, 1]), Data::Normal, true);
        add(Form::of(Scan::Sum, dense(dtype, &[5, 48]), 1).strides(&[1, 5]), Data::Normal, false);
        add(Form::of(Scan::Sum, dense(dtype, &[5, 48]), 1).strides(&[99, 2]).reverse(), Data::Normal, false);
        add(Form::of(Scan::Max, dense(dtype, &[5, 48]), 0).strides(&[50, 1]).indices(DType::I64), Data::Normal, true);
        // Outputs of other types.
        for to in FLOATS.into_iter().filter(|to| *to != dtype) {
            add(Form::of(Scan::Sum, dense(dtype, &[5, 40]), 1).output(to), Data::Normal, true);
            add(Form::of(Scan::Sum, dense(dtype, &[5, 40]), 0).output(to), Data::Large, false);
        }
    }
    for dtype in INTEGERS {
        for scan in [Scan::Sum, Scan::Prod, Scan::Max, Scan::Min] {
            let is_choice = matches!(scan, Scan::Max | Scan::Min);
            let outputs: &[Option<DType>] =
                if is_choice { &[None] } else { &[None, Some(DType::I32), Some(DType::U32)] };
            for (&output, (dims, axis)) in outputs.iter().flat_map(|output| {
                let shapes = [(&[3, 70][..], 1), (&[70, 3], 0), (&[2, 1025], 1), (&[40_000], 0), (&[9000, 2], 0)];
                shapes.map(|shape| (output, shape))
            }) {
                let form = Form { output, ..Form::of(scan, dense(dtype, dims), axis) };
                let form = if is_choice { form.indices(DType::I32) } else { form };
                let is_core = dims == [3, 70] && output != Some(DType::U32);
                forms.push((form.clone(), Data::Normal, is_core));
                if dims[0] < 100 {
                    forms.push((Form { indices: None, ..form }.reverse().exclusive(), Data::Normal, false));
                }
            }
        }
        let apart = strided(dtype, &[5, 7], &[3, 16]);
        forms.push((Form::of(Scan::Max, apart, 1).strides(&[1, 6]), Data::Normal, true));
        forms.push((Form::of(Scan::Min, dense(dtype, &[]), 0).exclusive(), Data::Normal, false));
    }
    forms
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    distinct(forms().iter().map(of).collect())
}

/// What is scanned, as the JSON of a descriptor has it.
struct Scanned {
    scan: Scan,
    axis: usize,
    is_reverse: bool,
    is_exclusive: bool,
}

impl Scanned {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let flag = |name: &str| json.get(name).is_some_and(|value| value == true);
        Ok(Self {
            scan: serde_json::from_value(json["scan"].clone())?,
            axis: json["axis"].as_u64().context("an axis")? as usize,
            is_reverse: flag("reverse"),
            is_exclusive: flag("exclusive"),
        })
    }

    /// The elements of each line, in the order of the scan, as places in row-major order.
    fn lines(&self, dims: &[u64]) -> Vec<Vec<usize>> {
        let length = dims.get(self.axis).copied().unwrap_or(1) as usize;
        let inner: u64 = dims.iter().skip(self.axis + 1).product();
        let outer: u64 = dims.iter().take(self.axis).product();
        let (inner, outer) = (inner as usize, outer as usize);
        let line = |number: usize| -> Vec<usize> {
            let first = number / inner * length * inner + number % inner;
            let places = (0..length).map(|at| first + at * inner);
            if self.is_reverse { places.rev().collect() } else { places.collect() }
        };
        (0..outer * inner).map(line).collect()
    }
}

/// Extremes stay, and few elements may agree by chance.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let x = &descriptor.slots()[0].desc;
    x.elements() < 64
        || x.strides().contains(&0)
        || !x.dtype().is_float()
        || Scanned::of(descriptor).is_ok_and(|of| of.scan != Scan::Sum)
}

/// Values for which no kernel leaves the range of its type on the way, and integers of the whole range of theirs.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let of = Scanned::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    if !dtype.is_float() {
        return Ok((0..elements).map(|_| integer(dtype, of.scan, random)).collect());
    }
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    let n = slot.desc.dims().get(of.axis).copied().unwrap_or(1).max(1) as f64;
    let powers = if dtype == DType::F64 { 1000 } else { 120 };
    let largest = if of.scan == Scan::Sum { 2f64.powi(powers) / n } else { f64::INFINITY };
    let huge = Huge::of(dtype).at_most(largest, largest);
    let mut values = case.data.rows_within(huge, dtype, elements / cols, cols, random);
    if of.scan == Scan::Prod {
        // Factors near 1, whose products stay near it: those of pairs are 1, but for a few.
        let spread = 1.0 / n.sqrt().max(4.0);
        values.iter_mut().filter(|value| value.is_finite() && **value != 0.0).for_each(|value| {
            *value = (1.0 + spread * (value.abs() % 1.0 - 0.4)).copysign(*value);
        });
    }
    Ok(values)
}

fn integer(dtype: DType, scan: Scan, random: &mut Random) -> f64 {
    let (least, greatest) = range(dtype);
    match scan {
        // With equal ones, and now and then the last of the range.
        Scan::Max | Scan::Min => match random.uniform() {
            share if share < 0.01 => least,
            share if share > 0.99 => greatest,
            share => (40.0 * share - 20.0).round().clamp(least, greatest),
        },
        Scan::Prod => (1.0 + 0.6 * random.normal()).round().clamp(least, greatest),
        _ => (least + (greatest - least) * random.uniform()).round(),
    }
}

/// The least and the greatest integer that a case has: of i64 those whose sums f64 tells apart.
fn range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::I64 => (-(2f64.powi(36)), 2f64.powi(36)),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0.0, u32::MAX.into()),
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        _ => (0.0, 1.0),
    }
}

const CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A (8 + L/4) sum|terms|; products (8 + i) |y| at position i; logarithms (24 + L/4) + 16 ln i + |most|, and through wgpu 32 in place of 24 and of 16; max, min and integers 0",
        why: "Sums of random terms err by the root of the number of additions; the exponentials and logarithms of a backend err less than they may.",
    },
    Contract { outputs: &["indices"], budget: "0", why: "" },
];

/// What the values so far are together, and the allowance of an error.
trait Running {
    fn add(&mut self, value: f64, at: usize);
    fn result(&self) -> (f64, f64);
    fn index(&self) -> f64 {
        0.0
    }
}

/// A sum that carries the rounding errors along; if a term is not finite, what IEEE arithmetic gives.
#[derive(Default)]
struct Sum {
    sum: f64,
    lost: f64,
    magnitudes: f64,
}

impl Running for Sum {
    fn add(&mut self, value: f64, _: usize) {
        let next = self.sum + value;
        let (large, small) = if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
        self.lost += (large - next) + small;
        self.sum = next;
        self.magnitudes += value.abs();
    }

    fn result(&self) -> (f64, f64) {
        let value = if self.sum.is_finite() { self.sum + self.lost } else { self.sum };
        (value, (8.0 + CHAIN / 4.0) * self.magnitudes)
    }
}

struct Product {
    product: f64,
    count: f64,
}

impl Running for Product {
    fn add(&mut self, value: f64, _: usize) {
        self.product *= value;
        self.count += 1.0;
    }

    fn result(&self) -> (f64, f64) {
        (self.product, (8.0 + self.count) * self.product.abs())
    }
}

/// The greatest or the least so far.
struct Extreme {
    value: f64,
    at: usize,
    is_least: bool,
}

impl Running for Extreme {
    fn add(&mut self, value: f64, at: usize) {
        let stays = if self.is_least { value > self.value } else { value < self.value };
        if !stays && (value.is_nan() || !self.value.is_nan()) {
            (self.value, self.at) = (value, at);
        }
    }

    fn result(&self) -> (f64, f64) {
        (self.value, 0.0)
    }

    fn index(&self) -> f64 {
        self.at as f64
    }
}

/// The logarithm of a sum of exponentials, which are scaled by that of the greatest number so far.
struct Exponentials {
    most: f64,
    sum: f64,
    lost: f64,
    count: f64,
    ulps: f64,
}

impl Running for Exponentials {
    fn add(&mut self, value: f64, _: usize) {
        self.count += 1.0;
        if value > self.most {
            let factor = (self.most - value).exp();
            (self.sum, self.lost, self.most) = (self.sum * factor, self.lost * factor, value);
        }
        let term = if value == self.most { 1.0 } else { (value - self.most).exp() };
        let next = self.sum + term;
        self.lost += if self.sum >= term { (self.sum - next) + term } else { (term - next) + self.sum };
        self.sum = next;
    }

    fn result(&self) -> (f64, f64) {
        let value = self.most + (self.sum + self.lost).ln();
        (value, CHAIN / 4.0 + 8.0 + self.ulps * (1.0 + self.count.max(1.0).ln()) + self.most.abs())
    }
}

/// Expected values and budgets: docs/numerics.md, Budgets, "scan".
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, by: By) -> Result<Vec<Expected>> {
    let of = Scanned::of(descriptor)?;
    let slots = descriptor.slots();
    let (x, y) = (&slots[0].desc, &slots[1].desc);
    let values = inputs.values("x").context("an input")?;
    let computing = x.dtype().accumulator();
    let (mut expected, mut budgets, mut indices) =
        (vec![0.0; values.len()], vec![0.0; values.len()], vec![0.0; values.len()]);
    for line in of.lines(x.dims()) {
        let last = line.len().saturating_sub(1);
        let at = |position: usize| if of.is_reverse { last - position } else { position };
        if !x.dtype().is_float() && matches!(of.scan, Scan::Sum | Scan::Prod) {
            let mut state = if of.scan == Scan::Sum { 0i64 } else { 1 };
            for &place in &line {
                let value = values[place] as i64;
                let after = if of.scan == Scan::Sum { state.wrapping_add(value) } else { state.wrapping_mul(value) };
                let result = if of.is_exclusive { state } else { after };
                expected[place] = match y.dtype() {
                    DType::I32 => f64::from(result as i32),
                    DType::U32 => f64::from(result as u32),
                    _ => result as f64,
                };
                state = after;
            }
            continue;
        }
        let is_least = of.scan == Scan::Min;
        let none = match x.dtype() {
            DType::I64 if is_least => i64::MAX as f64,
            DType::I64 => i64::MIN as f64,
            dtype if dtype.is_float() => {
                if is_least {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                }
            }
            dtype => {
                if is_least {
                    range(dtype).1
                } else {
                    range(dtype).0
                }
            }
        };
        let mut state: Box<dyn Running> = match of.scan {
            Scan::Sum => Box::new(Sum::default()),
            Scan::Prod => Box::new(Product { product: 1.0, count: 0.0 }),
            Scan::Max | Scan::Min => Box::new(Extreme { value: none, at: 0, is_least }),
            Scan::LogSumExp => {
                let ulps = if by.backend == Backend::Wgpu { 32.0 } else { 16.0 };
                Box::new(Exponentials { most: none, sum: 0.0, lost: 0.0, count: 0.0, ulps })
            }
            other => anyhow::bail!("tests/src/ops/scan.rs has no formula of {}", other.name()),
        };
        for (position, &place) in line.iter().enumerate() {
            let before = state.result();
            state.add(values[place], at(position));
            let (value, allowance) = if of.is_exclusive { before } else { state.result() };
            expected[place] = value;
            if x.dtype().is_float() && !matches!(of.scan, Scan::Max | Scan::Min) {
                budgets[place] = budget(y.dtype(), computing, value, finite(allowance));
            }
            indices[place] = state.index();
        }
    }
    let mut outputs = vec![Expected { name: "y".into(), values: expected, budgets }];
    if slots.len() > 2 {
        outputs.push(Expected { name: "indices".into(), budgets: vec![0.0; indices.len()], values: indices });
    }
    Ok(outputs)
}

fn run_typed(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = ScanArgs::new(run.input("x"), run.output("y"));
    if run.descriptor.slots().len() > 2 {
        args = args.indices(run.output("indices"));
    }
    run.plan::<ScanDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(String, Form)> {
    let x = dense(dtype, &[32, 128, 768]);
    let mut forms = Vec::new();
    for scan in Scan::ALL {
        let name = scan.name();
        let form = Form::of(scan, x, 2);
        forms.push((format!("{name}, last axis"), form.clone()));
        if matches!(scan, Scan::Max | Scan::Min) {
            forms.push((format!("{name} with indices"), form.indices(DType::I64)));
        } else if !dtype.is_float() {
            forms.push((format!("{name} as i32"), form.output(DType::I32)));
        }
    }
    if !dtype.is_float() {
        return forms;
    }
    let mut add = |what: &str, form: Form| forms.push((what.into(), form));
    add("middle axis", Form::of(Scan::Sum, x, 1));
    add("in reverse", Form::of(Scan::Sum, x, 2).reverse());
    add("exclusive", Form::of(Scan::Sum, x, 2).exclusive());
    add("one long line", Form::of(Scan::Sum, dense(dtype, &[1 << 20]), 0));
    add("rows apart", Form::of(Scan::Sum, strided(dtype, &[32, 768], &[1024, 1]), 1));
    add("transposed", Form::of(Scan::Sum, strided(dtype, &[32, 768], &[1, 32]), 1));
    let to = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
    add("another output type", Form::of(Scan::Sum, x, 2).output(to));
    forms
}
