//! Elements that indices name: axes, shapes of indices, their types, indices from the end and out of range, fills, layouts.

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, DType, Error, GatherArgs, GatherDescriptor, IndexSelectArgs, IndexSelectDescriptor, Slot, TensorDesc,
};

use super::movement::{TYPES, data, exact, index, is_few, number, stands_for_size};
use super::{Contract, FLOATS, Subject, TypedRun, channels_last, dense, json_of, movement, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::{Tensors, rounded};

pub(super) const INDEX_SELECT: Subject = Subject {
    name: "index_select",
    cases: || cases(Op::IndexSelect),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed: |run| {
        let mut args = IndexSelectArgs::new(run.input("x"), run.input("indices"), run.output("y"));
        if counts(&run) {
            args = args.missing(run.output("missing"));
        }
        run.plan::<IndexSelectDescriptor>(args)
    },
    features: || features(Op::IndexSelect),
};

pub(super) const GATHER: Subject = Subject {
    name: "gather",
    cases: || cases(Op::Gather),
    run_typed: |run| {
        let mut args = GatherArgs::new(run.input("x"), run.input("indices"), run.output("y"));
        if counts(&run) {
            args = args.missing(run.output("missing"));
        }
        run.plan::<GatherDescriptor>(args)
    },
    features: || features(Op::Gather),
    ..INDEX_SELECT
};

fn counts(run: &TypedRun<'_, '_>) -> bool {
    run.descriptor.slots().iter().any(|slot| slot.name == "missing")
}

#[derive(Clone, Copy, PartialEq)]
enum Op {
    IndexSelect,
    Gather,
}

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    op: Op,
    x: TensorDesc,
    axis: usize,
    indices: TensorDesc,
    from_end: bool,
    fill: f64,
    counts: bool,
    y: Option<Vec<u64>>,
}

impl Form {
    fn new(op: Op, x: TensorDesc, axis: usize, indices: TensorDesc) -> Self {
        Self { op, x, axis, indices, from_end: false, fill: 0.0, counts: false, y: None }
    }

    fn counting_from_end(self) -> Self {
        Self { from_end: true, ..self }
    }

    fn fill(self, fill: f64) -> Self {
        Self { fill, ..self }
    }

    fn counts(self) -> Self {
        Self { counts: true, ..self }
    }

    fn to(self, strides: &[u64]) -> Self {
        Self { y: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        macro_rules! with_steps {
            ($Descriptor:ident) => {{
                let mut lookup = $Descriptor::new(self.x, self.axis, self.indices)?.fill(self.fill)?;
                if self.from_end {
                    lookup = lookup.from_end()?;
                }
                if self.counts {
                    lookup = lookup.count_missing()?;
                }
                if let Some(strides) = &self.y {
                    let dims = AnyDescriptor::new(lookup.clone()).slots()[2].desc.dims().to_vec();
                    lookup = lookup.layout("y", TensorDesc::strided(self.x.dtype(), &dims, strides)?)?;
                }
                Ok(AnyDescriptor::new(lookup))
            }};
        }
        match self.op {
            Op::IndexSelect => with_steps!(IndexSelectDescriptor),
            Op::Gather => with_steps!(GatherDescriptor),
        }
    }
}

/// The forms, and whether each runs in every mode of the matrix.
fn forms(op: Op, dtype: DType) -> Vec<(Form, bool)> {
    use DType::{I32, I64, U32};
    let x = |dims: &[u64]| dense(dtype, dims);
    let of = |x: TensorDesc, axis: usize, indices: TensorDesc| Form::new(op, x, axis, indices);
    let mut forms = Vec::new();
    // A number that bytes have, too; NaN and infinity of floating-point types.
    let fills = if dtype.is_float() { [-2.5, f64::NAN, f64::NEG_INFINITY] } else { [7.0, 1.0, 100.0] };
    if op == Op::IndexSelect {
        forms.push((of(x(&[9, 12]), 0, dense(I64, &[5, 3])).counting_from_end().fill(fills[0]).counts(), true));
        forms.push((of(x(&[9, 12]), 1, dense(I32, &[17])).fill(fills[1]), true));
        if !stands_for_size(dtype) {
            return forms;
        }
        // Lines of one vector, of some, of as many as teams take, and of a part more.
        for cols in [1, 2, 3, 4, 7, 8, 16, 31, 64, 96, 128, 256, 1000, 1024, 4096, 4100, 4104] {
            let is_core = [8, 96, 4096, 4100].contains(&cols);
            forms.push((of(x(&[11, cols]), 0, dense(I64, &[6])), is_core));
            forms.push((of(x(&[11, cols]), 0, dense(I32, &[3, 5])).counting_from_end().counts(), cols == 1024));
        }
        let last = channels_last(dtype, &[2, 8, 5, 4]);
        let higher = x(&[2, 3, 1, 2, 3, 2, 2]);
        for (form, is_core) in [
            (of(x(&[4, 6, 5]), 1, dense(U32, &[3])).counting_from_end().counts(), true),
            (of(x(&[4, 6, 5]), 2, dense(U32, &[7])), false),
            (of(x(&[4, 6, 64]), 1, dense(I64, &[2, 2])).counting_from_end(), true),
            (of(x(&[4, 6, 2048]), 1, dense(I64, &[2, 2])).counting_from_end().counts(), true),
            (of(higher, 4, dense(I64, &[2, 3])).counting_from_end().fill(fills[2]), false),
            (of(last, 1, dense(I64, &[11])), true),
            (of(last, 0, dense(I32, &[3])), false),
            (of(strided(dtype, &[6, 40], &[48, 1]), 0, dense(I64, &[9])), true),
            (of(strided(dtype, &[6, 1024], &[1040, 1]), 0, dense(I64, &[9])), true),
            (of(strided(dtype, &[6, 1024], &[1025, 1]), 0, dense(I64, &[9])), false),
            (of(strided(dtype, &[37, 66], &[1, 37]), 0, dense(I32, &[9])), false),
            (of(strided(dtype, &[37, 66], &[1, 37]), 1, dense(I64, &[9])), false),
            (of(strided(dtype, &[6, 40], &[0, 1]), 0, dense(I64, &[9])).counts(), false),
            (of(strided(dtype, &[6, 40], &[1, 0]), 0, dense(I64, &[9])), false),
            (of(x(&[6, 40]), 0, strided(I64, &[9, 4], &[1, 9])).counts(), true),
            (of(x(&[6, 40]), 0, strided(I64, &[9, 4], &[0, 3])).counts(), false),
            (of(x(&[6, 40]), 0, strided(I32, &[9], &[0])).counting_from_end(), false),
            (of(x(&[6, 40]), 0, dense(I64, &[9])).to(&[64, 1]), true),
            (of(x(&[6, 40]), 0, dense(I64, &[9])).to(&[1, 9]), true),
            (of(x(&[6, 40]), 0, dense(I64, &[9])).to(&[99, 2]), false),
            (of(x(&[6, 40]), 1, dense(I32, &[9])).to(&[13, 1]), false),
            (of(x(&[6, 40]), 1, dense(I32, &[32])).to(&[1, 6]), false),
            // One element, and none.
            (of(x(&[]), 0, dense(I64, &[])), true),
            (of(x(&[]), 0, dense(I64, &[4])).counting_from_end().counts(), false),
            (of(x(&[5]), 0, dense(I64, &[])).counting_from_end().counts(), false),
            (of(x(&[5, 3]), 0, dense(I32, &[])), false),
            (of(x(&[0, 33]), 0, dense(I64, &[3])).fill(fills[0]).counts(), true),
            (of(x(&[0, 1024]), 0, dense(I64, &[3])).fill(fills[0]), false),
            (of(x(&[4, 0]), 1, dense(I32, &[21])).fill(fills[0]), false),
            (of(x(&[5, 0]), 0, dense(I64, &[3])).counts(), true),
            (of(x(&[5, 3]), 0, dense(I64, &[0])).counts(), true),
            (of(x(&[5, 3]), 0, dense(I64, &[0, 4])), false),
        ] {
            forms.push((form, is_core));
        }
        let narrow = x(&[3, 1024]).align(dtype.size_bytes()).expect("a promise");
        forms.push((of(narrow, 0, dense(I64, &[5])), true));
        // Many lines, and many indices.
        forms.push((of(x(&[50, 40]), 0, dense(I32, &[700])).counting_from_end().counts(), false));
        forms.push((of(x(&[3, 300]), 1, dense(I64, &[3000])).counting_from_end().counts(), false));
    } else {
        forms.push((of(x(&[9, 12]), 0, dense(I64, &[5, 12])).counting_from_end().fill(fills[0]).counts(), true));
        forms.push((of(x(&[9, 12]), 1, dense(I32, &[9, 17])).fill(fills[1]), true));
        if !stands_for_size(dtype) {
            return forms;
        }
        let last = channels_last(dtype, &[2, 8, 5, 4]);
        let higher = x(&[2, 3, 1, 2, 3, 2, 2, 2]);
        for cols in [1, 2, 3, 4, 5, 8, 16, 31, 33, 256, 1001] {
            forms.push((of(x(&[7, cols]), 1, dense(I64, &[7, cols])).counting_from_end(), cols == 33));
            forms.push((of(x(&[7, cols]), 0, dense(I32, &[4, cols])).counting_from_end().counts(), cols == 16));
        }
        for (form, is_core) in [
            (of(x(&[4, 6, 5]), 1, dense(U32, &[4, 3, 5])).counting_from_end().counts(), true),
            // Of x a part.
            (of(x(&[4, 6, 5]), 1, dense(U32, &[3, 8, 2])), true),
            (of(x(&[4, 6, 5]), 2, dense(I64, &[2, 6, 16])).counting_from_end(), false),
            (of(x(&[4, 6, 64]), 0, dense(I64, &[9, 1, 64])).counting_from_end(), false),
            (of(higher, 4, dense(I64, &[2, 2, 1, 2, 4, 1, 2, 2])).counting_from_end().fill(fills[2]), false),
            (of(last, 1, dense(I64, &[2, 11, 5, 4])), true),
            (of(last, 3, channels_last(I32, &[2, 8, 5, 9])), false),
            (of(strided(dtype, &[6, 40], &[48, 1]), 0, dense(I64, &[9, 40])), true),
            (of(strided(dtype, &[37, 66], &[1, 37]), 0, dense(I32, &[9, 66])), false),
            (of(strided(dtype, &[37, 66], &[1, 37]), 1, dense(I64, &[37, 9])), true),
            (of(strided(dtype, &[6, 40], &[0, 1]), 0, dense(I64, &[9, 40])).counts(), false),
            (of(strided(dtype, &[6, 40], &[1, 0]), 1, dense(I64, &[6, 3])), false),
            // Each index names a line.
            (of(x(&[6, 40]), 0, strided(I64, &[9, 40], &[1, 0])).counts(), true),
            (of(x(&[6, 1024]), 0, strided(I64, &[9, 1024], &[1, 0])).counts(), true),
            (of(x(&[6, 40]), 0, strided(I64, &[9, 40], &[1, 9])).counts(), false),
            (of(x(&[6, 40]), 1, strided(I32, &[6, 9], &[0, 2])).counting_from_end(), false),
            (of(x(&[6, 40]), 0, dense(I64, &[9, 40])).to(&[64, 1]), true),
            (of(x(&[6, 40]), 0, dense(I64, &[9, 40])).to(&[1, 9]), false),
            (of(x(&[6, 40]), 1, dense(I32, &[6, 9])).to(&[99, 2]), false),
            (of(x(&[]), 0, dense(I64, &[])), true),
            (of(x(&[5]), 0, dense(I64, &[40])).counting_from_end().counts(), false),
            (of(x(&[0, 33]), 0, dense(I64, &[3, 33])).fill(fills[0]).counts(), true),
            (of(x(&[5, 0]), 1, dense(I64, &[5, 16])).fill(fills[0]), false),
            (of(x(&[5, 3]), 0, dense(I64, &[0, 3])).counts(), true),
            (of(x(&[5, 0]), 0, dense(I32, &[4, 0])), false),
        ] {
            forms.push((form, is_core));
        }
        let narrow = x(&[3, 1024]).align(dtype.size_bytes()).expect("a promise");
        forms.push((of(narrow, 1, dense(I64, &[3, 40])), true));
        forms.push((of(x(&[50, 90]), 1, dense(I32, &[50, 70])).counting_from_end().counts(), false));
    }
    forms
}

fn cases(op: Op) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        for (at, (form, is_core)) in forms(op, dtype).into_iter().enumerate() {
            let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
            cases.push(Case::new(descriptor.clone(), Data::Normal).core(is_core));
            if at < 1 {
                cases.extend(data(dtype)[1..].iter().map(|&data| Case::new(descriptor.clone(), data)));
            }
        }
    }
    distinct(cases)
}

const CONTRACTS: &[Contract] =
    &[Contract { outputs: &["y", "missing"], budget: "0", why: "Elements move as bits, and indices are counted." }];

/// Few indices may name one element, and there is one count.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let slots = descriptor.slots();
    let [x, indices, y] = [0, 1, 2].map(|at: usize| &slots[at].desc);
    is_few(y) || is_few(x) || slots.len() > 3 || x.strides().contains(&0) || indices.strides().contains(&0)
}

/// Where elements are looked up, as the JSON of a descriptor has it: the axis, its extent, and whether indices count from the end.
fn axis(descriptor: &AnyDescriptor) -> Result<(usize, i64, bool)> {
    let json = json_of(descriptor)?;
    let axis = json["axis"].as_u64().context("an axis")? as usize;
    let extent = descriptor.slots()[0].desc.dims().get(axis).copied().unwrap_or(1);
    Ok((axis, extent as i64, json["from_end"] == true))
}

/// Indices of the whole range of the axis, from both ends, and some out of range: next to it, of the type's range, and such as half of their bits would name
/// an element.
fn input(case: &Case, slot: &Slot, random: &mut Random, before: &Tensors) -> Result<Vec<f64>> {
    if slot.name == "x" {
        return movement::input(case, slot, random, before);
    }
    let (_, extent, _) = axis(&case.descriptor)?;
    Ok(indices_of(slot.desc.dtype(), extent, slot.desc.elements(), random))
}

/// Indices of a type along an axis of an extent.
pub(super) fn indices_of(dtype: DType, extent: i64, elements: u64, random: &mut Random) -> Vec<f64> {
    let (least, greatest) = match dtype {
        DType::I64 => (-(2f64.powi(63)), 2f64.powi(52)),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (0.0, u32::MAX.into()),
    };
    let extent = extent as f64;
    let far =
        [extent, -extent - 1.0, least, greatest, 2f64.powi(32), 2f64.powi(32) + 1.0, -(2f64.powi(32)), 2f64.powi(31)];
    (0..elements)
        .map(|_| {
            let share = random.uniform();
            let inside = (extent * random.uniform()).floor().min(extent - 1.0);
            let index = match share {
                share if share < 0.1 => far[(8.0 * random.uniform()) as usize % 8],
                share if share < 0.3 => inside - extent,
                _ => inside,
            };
            if (least..=greatest).contains(&index) { index } else { greatest }
        })
        .collect()
}

/// The position that an index names, if there is one.
pub(super) fn position_of(index: f64, extent: i64, from_end: bool) -> Option<u64> {
    let index = index as i64;
    let index = if from_end && index < 0 { index.saturating_add(extent) } else { index };
    (0..extent).contains(&index).then_some(index as u64)
}

fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let (axis, extent, from_end) = axis(descriptor)?;
    let json = json_of(descriptor)?;
    let [x, of_index, y] = [0, 1, 2].map(|at: usize| &descriptor.slots()[at].desc);
    let values = inputs.values("x").context("x")?;
    let indices = inputs.values("indices").context("indices")?;
    let position = |index: f64| position_of(index, extent, from_end);
    let fill = match json["fill"].as_str() {
        Some("-inf") => f64::NEG_INFINITY,
        Some("inf") => f64::INFINITY,
        Some(_) => f64::NAN,
        None => rounded(x.dtype(), json["fill"].as_f64().unwrap_or(0.0)),
    };
    let element = |at: u64| {
        let place = index(y.dims(), at);
        let is_gather = descriptor.name() == "gather";
        // The index of this element, and what replaces its place among the indices.
        let (named, after) = match is_gather {
            true => (&place[..], axis + 1),
            false => (&place[axis..axis + of_index.rank()], axis + of_index.rank()),
        };
        let Some(position) = position(indices[number(of_index.dims(), named)]) else { return fill };
        let mut of_x: Vec<u64> = place[..axis].to_vec();
        if x.rank() > 0 {
            of_x.push(position);
        }
        of_x.extend(place.get(after..).unwrap_or_default());
        values[number(x.dims(), &of_x)]
    };
    let mut outputs = vec![exact("y", (0..y.elements()).map(element).collect())];
    if descriptor.slots().len() > 3 {
        outputs.push(exact("missing", vec![indices.iter().filter(|&&index| position(index).is_none()).count() as f64]));
    }
    Ok(outputs)
}

/// What the support table asks for.
fn asked_for(op: Op, dtype: DType) -> Vec<(&'static str, Form)> {
    let (table, wide) = (dense(dtype, &[4000, 768]), dense(dtype, &[1024, 4096]));
    let index = |of: DType, dims: &[u64]| dense(of, dims);
    if op == Op::IndexSelect {
        return vec![
            ("rows of a table", Form::new(op, table, 0, index(DType::I64, &[8, 128]))),
            ("rows of a table by u32", Form::new(op, table, 0, index(DType::U32, &[8, 128]))),
            ("columns", Form::new(op, wide, 1, index(DType::I32, &[64]))),
            (
                "from the end, with a count",
                Form::new(op, table, 0, index(DType::I64, &[1024])).counting_from_end().counts(),
            ),
            ("rows apart", Form::new(op, strided(dtype, &[100, 768], &[1000, 1]), 0, index(DType::I64, &[64]))),
        ];
    }
    vec![
        ("along the last axis", Form::new(op, wide, 1, index(DType::I64, &[1024, 256]))),
        ("along the first axis", Form::new(op, wide, 0, index(DType::I32, &[64, 4096]))),
        (
            "from the end, with a count",
            Form::new(op, wide, 1, index(DType::I64, &[1024, 8])).counting_from_end().counts(),
        ),
        ("one index for each row", Form::new(op, wide, 0, strided(DType::I64, &[64, 4096], &[1, 0]))),
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
