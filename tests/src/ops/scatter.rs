//! Elements that go where indices name: axes, shapes of indices, their types, from the end and out of range, ways to combine, many that go to one place, layouts.

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, Backend, Combine, DType, Error, IndexAddArgs, IndexAddDescriptor, ScatterArgs, ScatterDescriptor,
    Slot, TensorDesc,
};

use super::lookup::{indices_of, position_of};
use super::movement::{exact, index, is_few, number};
use super::{Contract, FLOATS, Subject, TypedRun, channels_last, dense, json_of, movement, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const INDEX_ADD: Subject = Subject {
    name: "index_add",
    cases: || cases(Op::IndexAdd),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed: |run| {
        let mut args = IndexAddArgs::new(run.input("source"), run.input("indices"), run.output("y"));
        if has(&run, "base") {
            args = args.base(run.input("base"));
        }
        if has(&run, "missing") {
            args = args.missing(run.output("missing"));
        }
        run.plan::<IndexAddDescriptor>(args)
    },
    features: || features(Op::IndexAdd),
};

pub(super) const SCATTER: Subject = Subject {
    name: "scatter",
    cases: || cases(Op::Scatter),
    run_typed: |run| {
        let mut args = ScatterArgs::new(run.input("source"), run.input("indices"), run.output("y"));
        if has(&run, "base") {
            args = args.base(run.input("base"));
        }
        if has(&run, "missing") {
            args = args.missing(run.output("missing"));
        }
        run.plan::<ScatterDescriptor>(args)
    },
    features: || features(Op::Scatter),
    ..INDEX_ADD
};

fn has(run: &TypedRun<'_, '_>, operand: &str) -> bool {
    run.descriptor.slots().iter().any(|slot| slot.name == operand)
}

/// Types, of which those of floating-point numbers and of 32 bits have all forms.
const TYPES: [DType; 8] =
    [DType::F32, DType::BF16, DType::F64, DType::F16, DType::I32, DType::I64, DType::U32, DType::U8];

#[derive(Clone, Copy, PartialEq)]
enum Op {
    IndexAdd,
    Scatter,
}

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    op: Op,
    y: TensorDesc,
    axis: usize,
    indices: TensorDesc,
    combine: Combine,
    has_base: bool,
    from_end: bool,
    counts: bool,
    source: Option<Vec<u64>>,
}

impl Form {
    fn new(op: Op, y: TensorDesc, axis: usize, indices: TensorDesc) -> Self {
        let (has_base, from_end, counts) = (false, false, false);
        Self { op, y, axis, indices, combine: Combine::Add, has_base, from_end, counts, source: None }
    }

    fn by(self, combine: Combine) -> Self {
        Self { combine, ..self }
    }

    fn base(self) -> Self {
        Self { has_base: true, ..self }
    }

    fn counting_from_end(self) -> Self {
        Self { from_end: true, ..self }
    }

    fn counts(self) -> Self {
        Self { counts: true, ..self }
    }

    /// The strides of the source.
    fn of(self, strides: &[u64]) -> Self {
        Self { source: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        macro_rules! with_steps {
            ($Descriptor:ident) => {{
                let mut scatter = $Descriptor::new(self.y, self.axis, self.indices, self.combine)?;
                if self.has_base {
                    scatter = scatter.base()?;
                }
                if self.from_end {
                    scatter = scatter.from_end()?;
                }
                if self.counts {
                    scatter = scatter.count_missing()?;
                }
                if let Some(strides) = &self.source {
                    let any = AnyDescriptor::new(scatter.clone());
                    let source = any.slots().iter().find(|slot| slot.name == "source").expect("a source");
                    let laid = TensorDesc::strided(self.y.dtype(), source.desc.dims(), strides)?;
                    scatter = scatter.layout("source", laid)?;
                }
                Ok(AnyDescriptor::new(scatter))
            }};
        }
        match self.op {
            Op::IndexAdd => with_steps!(IndexAddDescriptor),
            Op::Scatter => with_steps!(ScatterDescriptor),
        }
    }
}

/// The forms, and whether each runs in every mode of the matrix.
fn forms(op: Op, dtype: DType) -> Vec<(Form, bool)> {
    use DType::{I32, I64, U32};
    let y = |dims: &[u64]| dense(dtype, dims);
    let of = |y: TensorDesc, axis: usize, indices: TensorDesc| Form::new(op, y, axis, indices);
    let mut forms = Vec::new();
    let has_all = [DType::F32, DType::BF16].contains(&dtype);
    for combine in Combine::ALL {
        if op == Op::IndexAdd {
            let few = of(y(&[7, 12]), 0, dense(I64, &[5, 5])).counting_from_end().counts().by(combine);
            forms.push((few.clone().base(), true));
            forms.push((few, has_all));
            forms.push((of(y(&[9, 12]), 1, dense(I32, &[70])).base().by(combine), has_all));
        } else {
            let few = of(y(&[7, 12]), 0, dense(I64, &[9, 12])).counting_from_end().counts().by(combine);
            forms.push((few.clone().base(), true));
            forms.push((few, has_all));
            forms.push((of(y(&[9, 12]), 1, dense(I32, &[9, 70])).base().by(combine), has_all));
        }
    }
    if op == Op::IndexAdd {
        // Many that go to one place: runs of several parts, and of several chains of parts.
        forms.push((of(y(&[2, 5]), 0, dense(I32, &[333])).base().counting_from_end(), has_all));
        forms.push((of(y(&[1, 8]), 0, dense(U32, &[1300])), false));
        if !has_all {
            return forms;
        }
        // Rows of one vector, of some, of as many as a block takes at once, and of more.
        for cols in [1, 2, 3, 4, 7, 8, 16, 31, 64, 128, 1000, 4096, 4100] {
            let is_core = [8, 128].contains(&cols);
            forms.push((of(y(&[5, cols]), 0, dense(I64, &[6])).base(), is_core));
            forms.push((of(y(&[3, cols]), 0, dense(I32, &[4, 10])).counting_from_end().counts(), cols == 1000));
        }
        let last = channels_last(dtype, &[2, 8, 5, 4]);
        let higher = y(&[2, 3, 1, 2, 3, 2, 2]);
        for (form, is_core) in [
            (of(y(&[4, 6, 5]), 1, dense(U32, &[30])).counts(), true),
            (of(y(&[4, 6, 5]), 2, dense(U32, &[7])).base(), false),
            (of(y(&[4, 6, 64]), 1, dense(I64, &[2, 20])).counting_from_end(), true),
            (of(higher, 4, dense(I64, &[2, 3])).counting_from_end().base(), false),
            (of(last, 1, dense(I64, &[11])).base(), true),
            (of(last, 0, dense(I32, &[3])), false),
            (of(strided(dtype, &[6, 40], &[48, 1]), 0, dense(I64, &[9])).base(), true),
            (of(strided(dtype, &[6, 40], &[41, 1]), 0, dense(I64, &[9])), false),
            (of(strided(dtype, &[37, 66], &[1, 37]), 0, dense(I32, &[90])).base(), false),
            (of(strided(dtype, &[37, 66], &[1, 37]), 1, dense(I64, &[9])), true),
            (of(y(&[6, 40]), 0, strided(I64, &[9, 4], &[1, 9])).counts(), true),
            (of(y(&[6, 40]), 0, strided(I64, &[9, 4], &[0, 3])).base(), false),
            (of(y(&[6, 40]), 0, strided(I32, &[9], &[0])).counting_from_end(), false),
            (of(y(&[6, 40]), 0, dense(I64, &[9])).of(&[64, 1]), true),
            (of(y(&[6, 40]), 0, dense(I64, &[9, 4])).of(&[1, 9, 36]).by(Combine::Set), true),
            (of(y(&[6, 40]), 0, dense(I64, &[9])).of(&[1, 9]), true),
            (of(y(&[6, 40]), 0, dense(I64, &[9])).of(&[0, 1]).base(), false),
            (of(y(&[6, 40]), 0, dense(I64, &[9])).of(&[1, 0]), false),
            (of(y(&[6, 40]), 1, dense(I32, &[9])).of(&[99, 2]), false),
            // One element, and none.
            (of(y(&[]), 0, dense(I64, &[])).base(), true),
            (of(y(&[]), 0, dense(I64, &[4])).counting_from_end().counts(), false),
            (of(y(&[5]), 0, dense(I64, &[])).counting_from_end().counts(), false),
            (of(y(&[5, 3]), 0, dense(I32, &[])).base(), false),
            (of(y(&[0, 33]), 0, dense(I64, &[3])).counts(), true),
            (of(y(&[5, 0]), 0, dense(I64, &[3])).counts(), true),
            (of(y(&[5, 3]), 0, dense(I64, &[0])).counts(), true),
            (of(y(&[5, 3]), 0, dense(I64, &[0, 4])).base(), false),
        ] {
            forms.push((form, is_core));
        }
        let narrow = y(&[3, 64]).align(dtype.size_bytes()).expect("a promise");
        forms.push((of(narrow, 0, dense(I64, &[50])).base(), true));
        // A row of a cache [B, H, S, D], which all samples have at one position.
        forms.push((of(y(&[2, 3, 9, 8]), 2, dense(U32, &[1])).by(Combine::Set).base().counts(), true));
        // Keys of two digits, and entries of several tiles.
        forms.push((of(y(&[5000, 8]), 0, dense(I32, &[700])).counting_from_end().counts(), false));
        forms.push((of(y(&[3, 2]), 0, dense(I64, &[5000])).counting_from_end().base(), false));
        forms.push((of(y(&[700, 3]), 0, dense(I64, &[9000])).by(Combine::Set).counts(), false));
        forms.push((of(y(&[70_000, 2]), 0, dense(U32, &[9000])).by(Combine::Max), false));
    } else {
        forms.push((of(y(&[2, 3]), 0, dense(I32, &[333, 3])).base().counting_from_end(), has_all));
        forms.push((of(y(&[5, 1]), 1, dense(U32, &[5, 300])), false));
        if !has_all {
            return forms;
        }
        for cols in [1, 2, 3, 8, 16, 33, 256] {
            forms.push((of(y(&[7, cols]), 1, dense(I64, &[7, cols])).counting_from_end().base(), cols == 33));
            forms.push((of(y(&[7, cols]), 0, dense(I32, &[14, cols])).counting_from_end().counts(), cols == 16));
        }
        let last = channels_last(dtype, &[2, 8, 5, 4]);
        let higher = y(&[2, 3, 1, 2, 3, 2, 2, 2]);
        for (form, is_core) in [
            (of(y(&[4, 6, 5]), 1, dense(U32, &[4, 30, 5])).counts(), true),
            // Of y a part.
            (of(y(&[4, 6, 5]), 1, dense(U32, &[3, 8, 2])).base(), true),
            (of(y(&[4, 6, 5]), 2, dense(I64, &[2, 6, 16])).counting_from_end(), false),
            (of(y(&[4, 6, 64]), 0, dense(I64, &[9, 1, 64])).counting_from_end().base(), false),
            (of(higher, 4, dense(I64, &[2, 2, 1, 2, 4, 1, 2, 2])).counting_from_end(), false),
            (of(last, 1, dense(I64, &[2, 11, 5, 4])).base(), true),
            (of(last, 3, channels_last(I32, &[2, 8, 5, 9])), false),
            (of(strided(dtype, &[6, 40], &[48, 1]), 0, dense(I64, &[9, 40])).base(), true),
            (of(strided(dtype, &[37, 66], &[1, 37]), 0, dense(I32, &[9, 66])), false),
            (of(strided(dtype, &[37, 66], &[1, 37]), 1, dense(I64, &[37, 9])).base(), true),
            // Each index sends a row.
            (of(y(&[6, 40]), 0, strided(I64, &[9, 40], &[1, 0])).counts(), true),
            (of(y(&[6, 1024]), 0, strided(I64, &[90, 1024], &[1, 0])).base(), true),
            (of(y(&[6, 40]), 0, strided(I64, &[9, 40], &[1, 9])).counts(), false),
            (of(y(&[6, 40]), 1, strided(I32, &[6, 9], &[0, 2])).counting_from_end().base(), false),
            (of(y(&[6, 40]), 0, dense(I64, &[9, 40])).of(&[64, 1]), true),
            (of(y(&[6, 40]), 0, dense(I64, &[9, 40])).of(&[1, 9]).by(Combine::Set), true),
            (of(y(&[6, 40]), 1, dense(I32, &[6, 9])).of(&[0, 2]), false),
            (of(y(&[]), 0, dense(I64, &[])), true),
            (of(y(&[5]), 0, dense(I64, &[40])).counting_from_end().counts(), false),
            (of(y(&[0, 33]), 0, dense(I64, &[3, 33])).counts(), true),
            (of(y(&[5, 3]), 0, dense(I64, &[0, 3])).counts(), true),
            (of(y(&[5, 0]), 0, dense(I32, &[4, 0])), false),
        ] {
            forms.push((form, is_core));
        }
        // Two rows of a cache [B, H, S, D], at positions of each sample's own.
        let positions = strided(I32, &[3, 2, 2, 8], &[2, 0, 1, 0]);
        forms.push((of(y(&[3, 2, 9, 8]), 2, positions).by(Combine::Set).base().counts(), true));
        forms.push((of(y(&[50, 90]), 1, dense(I32, &[50, 100])).counting_from_end().counts(), false));
        forms.push((of(y(&[40, 300]), 1, dense(I64, &[40, 150])).by(Combine::Set).base(), false));
    }
    forms
}

fn cases(op: Op) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        for (form, is_core) in forms(op, dtype) {
            let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
            cases.push(Case::new(descriptor, Data::Normal).core(is_core));
        }
        for combine in Combine::ALL {
            let indices = if op == Op::IndexAdd { dense(DType::I64, &[64]) } else { dense(DType::I64, &[64, 24]) };
            let form = Form::new(op, dense(dtype, &[3, 24]), 0, indices).by(combine).base();
            let descriptor = form.descriptor().expect("a valid descriptor");
            let data: &[Data] = match combine {
                _ if !dtype.is_float() => &[],
                Combine::Set => &[Data::Nan, Data::Wide],
                Combine::Multiply => &[Data::Nan],
                Combine::Add => &[Data::Nan, Data::Inf, Data::Huge, Data::Sparse, Data::Halves, Data::Stripes],
                _ => &[Data::Nan, Data::NegInf, Data::Sparse, Data::Huge],
            };
            cases.extend(data.iter().map(|&data| Case::new(descriptor.clone(), data)));
        }
    }
    // Types that move alone.
    for dtype in [DType::I8, DType::Bool, DType::F8E4M3] {
        let indices = if op == Op::IndexAdd { dense(DType::I32, &[9]) } else { dense(DType::I32, &[9, 12]) };
        let form = Form::new(op, dense(dtype, &[7, 12]), 0, indices).base();
        let form = if dtype == DType::I8 { form } else { form.by(Combine::Set) };
        cases.push(Case::new(form.descriptor().expect("a valid descriptor"), Data::Normal));
    }
    distinct(cases)
}

const CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A (8 + C) sum|terms|, C = L/4 of L = min(n, 32) + min(n/32, 32) + n/1024, of scatter on CUDA at least min(n, 272); products (8 + n) |y|; others and integers 0",
        why: "Sums of random terms err by the root of the number of additions.",
    },
    Contract { outputs: &["missing"], budget: "0", why: "Indices are counted." },
];

/// Few places may all have what is 0, few indices may name one, and there is one count.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let slots = descriptor.slots();
    let has_few = slots.iter().any(|slot| is_few(&slot.desc));
    // What is 0 wherever nothing goes, and the last or greatest of integers of few values.
    has_few || slots.iter().any(|slot| slot.name == "missing" || slot.desc.strides().contains(&0)) || slots.len() < 4
}

struct Fields {
    axis: usize,
    extent: i64,
    from_end: bool,
    combine: String,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let axis = json["axis"].as_u64().context("an axis")? as usize;
        let y = descriptor.slots().iter().find(|slot| slot.name == "y").context("y")?;
        let extent = y.desc.dims().get(axis).copied().unwrap_or(1) as i64;
        let combine = json["combine"].as_str().context("a way to combine")?.into();
        Ok(Self { axis, extent, from_end: json["from_end"] == true, combine })
    }
}

/// Factors of products of floating-point numbers are near 1.
fn input(case: &Case, slot: &Slot, random: &mut Random, before: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    if slot.name == "indices" {
        return Ok(indices_of(dtype, fields.extent, elements, random));
    }
    match &fields.combine[..] {
        _ if dtype == DType::Bool => Ok((0..elements).map(|_| f64::from(random.uniform() < 0.5)).collect()),
        "set" => movement::input(case, slot, random, before),
        // Of i64 those whose sums and products f64 tells apart.
        "multiply" if dtype == DType::I64 => Ok((0..elements).map(|_| (1.0 + 0.6 * random.normal()).round()).collect()),
        _ if dtype == DType::I64 => {
            Ok((0..elements).map(|_| (2f64.powi(37) * (random.uniform() - 0.5)).round()).collect())
        }
        _ if dtype == DType::I8 => Ok((0..elements).map(|_| (256.0 * random.uniform() - 128.0).floor()).collect()),
        _ if !dtype.is_float() => movement::input(case, slot, random, before),
        of => {
            let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
            let powers = if dtype == DType::F64 { 1000 } else { 100 };
            let largest = if of == "add" { 2f64.powi(powers) } else { f64::INFINITY };
            let huge = Huge::of(dtype).at_most(largest, largest);
            let mut values = case.data.rows_within(huge, dtype, elements / cols, cols, random);
            if of == "multiply" {
                values.iter_mut().filter(|value| value.is_finite() && **value != 0.0).for_each(|value| {
                    *value = (1.0 + 0.05 * (value.abs() % 1.0 - 0.4)).copysign(*value);
                });
            }
            Ok(values)
        }
    }
}

/// Chains of additions of a sum of so many terms, a quarter of their length. `on_chip`: whether a block of CUDA may hold the line of y, which combines
/// 17 terms of each 1024 of up to 16384 entries in a chain.
fn chains(terms: f64, on_chip: bool) -> f64 {
    let of_parts = terms.min(32.0) + (terms / 32.0).min(32.0) + terms / 1024.0;
    if on_chip { of_parts.max(terms.min(272.0)) / 4.0 } else { of_parts / 4.0 }
}

fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, by: By) -> Result<Vec<Expected>> {
    let Fields { axis, extent, from_end, combine } = Fields::of(descriptor)?;
    let slots = descriptor.slots();
    let desc = |name: &str| slots.iter().find(|slot| slot.name == name).map(|slot| slot.desc).context("an operand");
    let (y, source, of_index) = (desc("y")?, desc("source")?, desc("indices")?);
    let (values, indices) = (inputs.values("source").context("source")?, inputs.values("indices").context("indices")?);
    let (dtype, is_scatter) = (y.dtype(), descriptor.name() == "scatter");
    // What goes to each element, in the order of the source, behind the base.
    let mut goers: Vec<Vec<f64>> = match inputs.values("base") {
        Some(base) => base.iter().map(|&value| vec![value]).collect(),
        None => vec![Vec::new(); y.elements() as usize],
    };
    for at in 0..source.elements() {
        let place = index(source.dims(), at);
        let (named, after) = match is_scatter {
            true => (&place[..], axis + 1),
            false => (&place[axis..axis + of_index.rank()], axis + of_index.rank()),
        };
        let index = indices[number(of_index.dims(), named)];
        let Some(position) = position_of(index, extent, from_end) else { continue };
        let mut of_y: Vec<u64> = place[..axis].to_vec();
        if y.rank() > 0 {
            of_y.push(position);
        }
        of_y.extend(place.get(after..).unwrap_or_default());
        goers[number(y.dims(), &of_y)].push(values[at as usize]);
    }
    let combined = |goers: &Vec<f64>| -> (f64, f64) {
        let Some(&last) = goers.last() else { return (0.0, 0.0) };
        if combine == "set" {
            return (last, 0.0);
        }
        let is_number = dtype.is_float();
        let extreme = |is_better: fn(f64, f64) -> bool| {
            let both = |held: f64, value: f64| match held.is_nan() || !(value.is_nan() || is_better(value, held)) {
                true => held,
                false => value,
            };
            (goers.iter().copied().reduce(both).unwrap_or(0.0), 0.0)
        };
        let n = goers.len() as f64;
        match &combine[..] {
            "min" => extreme(|value, held| value < held),
            "max" => extreme(|value, held| value > held),
            "add" if is_number => {
                let (sum, magnitudes) = (goers.iter().sum::<f64>(), goers.iter().map(|term| term.abs()).sum::<f64>());
                (sum, (8.0 + chains(n, is_scatter && by.backend == Backend::Cuda)) * magnitudes)
            }
            "multiply" if is_number => {
                let product: f64 = goers.iter().product();
                (product, (8.0 + n) * product.abs())
            }
            of => {
                let (start, is_sum) = if of == "add" { (0, true) } else { (1i64, false) };
                let both = |held: i64, &value: &f64| {
                    let value = value as i64;
                    if is_sum { held.wrapping_add(value) } else { held.wrapping_mul(value) }
                };
                (wrapped(dtype, goers.iter().fold(start, both)), 0.0)
            }
        }
    };
    let found: Vec<(f64, f64)> = goers.iter().map(combined).collect();
    let is_exact = !dtype.is_float() || !["add", "multiply"].contains(&&combine[..]);
    let values: Vec<f64> = found.iter().map(|(value, _)| *value).collect();
    let own = |&(value, allowance): &(f64, f64)| budget(dtype, dtype.accumulator(), value, finite(allowance));
    let mut outputs = vec![match is_exact {
        true => exact("y", values),
        false => Expected { name: "y".into(), budgets: found.iter().map(own).collect(), values },
    }];
    if slots.iter().any(|slot| slot.name == "missing") {
        let is_missing = |index: &&f64| position_of(**index, extent, from_end).is_none();
        outputs.push(exact("missing", vec![indices.iter().filter(is_missing).count() as f64]));
    }
    Ok(outputs)
}

/// The low bits of an integer.
fn wrapped(dtype: DType, value: i64) -> f64 {
    match dtype {
        DType::I32 => f64::from(value as i32),
        DType::U32 => f64::from(value as u32),
        DType::U8 => f64::from(value as u8),
        DType::I8 => f64::from(value as i8),
        _ => value as f64,
    }
}

/// What the support table asks for.
fn asked_for(op: Op, dtype: DType) -> Vec<(&'static str, Form)> {
    let (table, wide) = (dense(dtype, &[1000, 256]), dense(dtype, &[64, 1024]));
    let index = |of: DType, dims: &[u64]| dense(of, dims);
    let tokens = index(DType::I64, &[8, 128]);
    if op == Op::IndexAdd {
        return vec![
            ("the gradient of an embedding", Form::new(op, table, 0, tokens)),
            ("rows added to a table", Form::new(op, table, 0, tokens).base()),
            ("rows put into a table", Form::new(op, table, 0, tokens).base().by(Combine::Set)),
            ("columns, the greatest", Form::new(op, wide, 1, index(DType::I32, &[64])).by(Combine::Max)),
            ("products, with a count", Form::new(op, table, 0, tokens).base().by(Combine::Multiply).counts()),
        ];
    }
    let along = index(DType::I64, &[64, 256]);
    vec![
        ("put along the last axis", Form::new(op, wide, 1, along).base().by(Combine::Set)),
        ("added along the last axis", Form::new(op, wide, 1, along).base()),
        ("the least along the first axis", Form::new(op, wide, 0, index(DType::I32, &[32, 1024])).by(Combine::Min)),
        ("one index for each row", Form::new(op, wide, 0, strided(DType::I64, &[32, 1024], &[1, 0]))),
    ]
}

fn features(op: Op) -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS.into_iter().chain([DType::I64, DType::U8]) {
        for (what, form) in asked_for(op, dtype) {
            if let Ok(descriptor) = form.descriptor() {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}
