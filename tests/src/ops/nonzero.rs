//! Where elements are not 0: every type, layouts, sizes and fills, positions along extents, none, one and many elements.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, DType, Error, NonzeroArgs, NonzeroDescriptor, Slot, TensorDesc};

use super::movement::{exact, index};
use super::{Contract, FLOATS, Subject, channels_last, dense, json_of, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const NONZERO: Subject = Subject {
    name: "nonzero",
    cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: &[Contract {
        outputs: &["indices", "count"],
        budget: "0",
        why: "Elements are counted in whole numbers.",
    }],
    run_typed: |run| {
        let mut args = NonzeroArgs::new(run.input("x"), run.output("indices"));
        if let Some(count) = run.named.mem_mut("count") {
            args = args.count(count);
        }
        run.plan::<NonzeroDescriptor>(args)
    },
    features,
};

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    x: TensorDesc,
    per_axis: bool,
    indices: DType,
    size: Option<u64>,
    fill: i64,
    count: Option<DType>,
    strides: Option<Vec<u64>>,
}

impl Form {
    /// With a count of i64.
    fn new(x: TensorDesc) -> Self {
        let count = Some(DType::I64);
        Self { x, per_axis: false, indices: DType::I64, size: None, fill: -1, count, strides: None }
    }

    fn per_axis(self) -> Self {
        Self { per_axis: true, ..self }
    }

    fn indices(self, indices: DType) -> Self {
        Self { indices, ..self }
    }

    fn size(self, size: u64) -> Self {
        Self { size: Some(size), ..self }
    }

    fn fill(self, fill: i64) -> Self {
        Self { fill, ..self }
    }

    fn count(self, count: Option<DType>) -> Self {
        Self { count, ..self }
    }

    fn to(self, strides: &[u64]) -> Self {
        Self { strides: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let size = self.size.unwrap_or(self.x.elements());
        let mut nonzero = NonzeroDescriptor::of_size(self.x, size)?.indices(self.indices)?.fill(self.fill)?;
        if self.per_axis {
            nonzero = nonzero.per_axis()?;
        }
        if let Some(dtype) = self.count {
            nonzero = nonzero.count(dtype)?;
        }
        if let Some(strides) = &self.strides {
            let rank = self.x.rank() as u64;
            let dims = if self.per_axis { vec![size, rank] } else { vec![size] };
            nonzero = nonzero.layout("indices", TensorDesc::strided(self.indices, &dims, strides)?)?;
        }
        Ok(AnyDescriptor::new(nonzero))
    }
}

/// The forms of a type with the data they run on, and whether each runs in every mode.
fn forms(dtype: DType) -> Vec<(Form, Data, bool)> {
    use DType::{I32, I64, U32};
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    let of = |dims: &[u64]| Form::new(dense(dtype, dims));
    add(of(&[9, 40]), Data::Sparse, true);
    add(of(&[9, 40]).per_axis().size(20).indices(I32), Data::Sparse, true);
    if !matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::Bool) {
        return forms;
    }
    for data in [Data::Normal, Data::Constant, Data::Nan] {
        add(of(&[9, 40]).size(360).count(None), data, data == Data::Normal);
        add(of(&[9, 40]).per_axis().count(Some(U32)), data, false);
    }
    // None, as many as there are, more rows than elements; fills of each type.
    add(of(&[9, 40]).size(0), Data::Sparse, true);
    add(of(&[9, 40]).size(17).indices(U32).count(Some(U32)), Data::Sparse, true);
    add(of(&[9, 40]).size(500).fill(360), Data::Sparse, true);
    add(of(&[9, 40]).size(500).fill(-(1 << 40)), Data::Sparse, false);
    add(of(&[9, 40]).size(70).indices(I32).fill(-7).per_axis(), Data::Sparse, false);
    add(of(&[9, 40]).size(70).indices(U32).fill(u32::MAX.into()), Data::Sparse, false);
    // One element, and none.
    add(of(&[]), Data::Normal, true);
    add(of(&[]).per_axis(), Data::Normal, false);
    add(of(&[]).size(3).fill(4).count(None), Data::Normal, false);
    add(of(&[0, 3]).size(5).per_axis(), Data::Normal, true);
    add(of(&[0, 3]).size(5).fill(9).count(None), Data::Normal, false);
    add(of(&[0]), Data::Normal, false);
    // Around what a vector, a warp, a block and several blocks have, on CUDA and through wgpu.
    for n in [1, 2, 3, 15, 16, 17, 31, 33, 511, 513, 2047, 2048, 2049, 4097, 8192, 8200, 20_011] {
        add(of(&[n]), Data::Sparse, [17, 2049, 8200].contains(&n));
    }
    add(of(&[3, 41, 67]).per_axis().count(None), Data::Sparse, true);
    add(of(&[3, 41, 167]).per_axis().size(2000).indices(I32), Data::Normal, true);
    add(of(&[70_000]), Data::Sparse, dtype == DType::F32);
    // Other layouts, of x and of the indices.
    let higher = dense(dtype, &[2, 3, 1, 2, 2, 3, 1, 5]);
    for (x, is_core) in [
        (strided(dtype, &[6, 40], &[48, 1]), true),
        (strided(dtype, &[37, 66], &[1, 37]), true),
        (strided(dtype, &[6, 40], &[0, 1]), true),
        (strided(dtype, &[6, 40], &[1, 0]), false),
        (strided(dtype, &[7, 9], &[31, 3]), false),
        (strided(dtype, &[700], &[2]), true),
        (higher, true),
        (higher.permute(&[7, 3, 5, 0, 2, 1, 4, 6]).expect("a view"), true),
        (channels_last(dtype, &[2, 6, 4, 8]), true),
    ] {
        add(Form::new(x), Data::Sparse, is_core);
        add(Form::new(x).per_axis().indices(U32), Data::Sparse, is_core);
    }
    add(of(&[9, 40]).to(&[3]), Data::Sparse, true);
    add(of(&[9, 40]).per_axis().to(&[5, 2]), Data::Sparse, true);
    add(of(&[9, 40]).per_axis().to(&[1, 360]).indices(I64), Data::Sparse, false);
    add(of(&[9, 40]).per_axis().size(30).to(&[1, 33]).indices(I32), Data::Normal, true);
    let narrow = dense(dtype, &[5000]).align(dtype.size_bytes()).expect("a promise");
    add(Form::new(narrow), Data::Sparse, true);
    forms
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): (Form, Data, bool)| {
        Case::new(form.descriptor().expect("the case lists hold valid descriptors"), data).core(core)
    };
    distinct(DType::ALL.into_iter().flat_map(forms).map(of).collect())
}

/// Of few rows, and where there are more rows than elements that are not 0, most may be equal; there is one count.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let [x, indices] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    descriptor.slots().len() > 2 || indices.elements() < 64 || indices.dims()[0] > x.elements() / 16
}

/// Of floating-point numbers the data of the case; of others 0 as often as those have it, and nowhere else than in `Constant` everywhere.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    if FLOATS.contains(&dtype) {
        let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
        return Ok(case.data.rows(dtype, elements / cols, cols, random));
    }
    let share = match case.data {
        Data::Sparse => 0.125,
        Data::Constant => 0.0,
        _ => 0.5,
    };
    let others: &[f64] = match dtype {
        DType::I64 => &[1.0, -1.0, 4294967296.0, -9223372036854775808.0],
        DType::I32 => &[1.0, -1.0, 65536.0, -2147483648.0],
        DType::U32 => &[1.0, 65536.0, 2147483648.0, 4294967295.0],
        DType::U8 => &[1.0, 128.0, 16.0, 255.0],
        DType::I8 => &[1.0, -128.0, 16.0, -1.0],
        DType::Bool => &[1.0],
        _ => &[1.0, -2.0, f64::NAN, 0.0078125],
    };
    let mut number = || match random.uniform() {
        drawn if drawn < share => others[(random.uniform() * others.len() as f64) as usize % others.len()],
        drawn if dtype.is_float() && drawn > 0.9 => -0.0,
        _ => 0.0,
    };
    Ok((0..elements).map(|_| number()).collect())
}

/// Elements one by one.
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let json = json_of(descriptor)?;
    let [of_x, of_indices] = [0, 1].map(|at: usize| &descriptor.slots()[at].desc);
    let x = inputs.values("x").context("x")?;
    let per_axis = json["per_axis"] == true;
    let columns = if per_axis { of_x.rank() } else { 1 };
    let mut found: Vec<f64> = Vec::new();
    let mut count = 0u64;
    for (at, _) in x.iter().enumerate().filter(|(_, value)| **value != 0.0) {
        count += 1;
        match per_axis {
            true => found.extend(index(of_x.dims(), at as u64).iter().map(|&position| position as f64)),
            false => found.push(at as f64),
        }
    }
    let fill = match json["fill"].as_i64() {
        Some(fill) => fill as f64,
        None if of_indices.dtype() == DType::U32 => u32::MAX.into(),
        None => -1.0,
    };
    found.resize(of_indices.dims()[0] as usize * columns, fill);
    let mut outputs = vec![exact("indices", found)];
    if descriptor.slots().len() > 2 {
        outputs.push(exact("count", vec![count as f64]));
    }
    Ok(outputs)
}

fn features() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in DType::ALL {
        let of = |dims: &[u64]| Form::new(dense(dtype, dims)).count(None);
        for (what, form) in [
            ("numbers", of(&[1024, 768])),
            ("positions along axes", of(&[1024, 768]).per_axis()),
            ("the first of them, with a count", of(&[1024, 768]).size(1000).count(Some(DType::U32))),
            ("indices of i32", of(&[1024, 768]).indices(DType::I32)),
            ("rows apart", Form::new(strided(dtype, &[1024, 768], &[1024, 1]))),
            ("channels last", Form::new(channels_last(dtype, &[8, 64, 32, 32]))),
        ] {
            if let Ok(descriptor) = form.descriptor() {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}
