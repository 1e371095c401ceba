//! What LayerNorm and RMSNorm share: cases, inputs and the accuracy contract.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, Backend, DType, Error, PlanOptions, Slot, TensorDesc};
use serde_json::Value;

use super::{
    CHAIN, Contract, FLOATS, RunTyped, Subject, accumulating, dense, huge_of_norm, json_of, run_in_f64, strided,
};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

/// A forward before it is a descriptor.
#[derive(Clone)]
pub(super) struct Form {
    pub(super) x: TensorDesc,
    pub(super) normalized_dims: usize,
    pub(super) weight: Option<DType>,
    pub(super) bias: Option<DType>,
    pub(super) weight_offset: f64,
    pub(super) eps: f64,
    pub(super) stats: bool,
    pub(super) residual: bool,
    pub(super) layouts: Vec<(&'static str, TensorDesc)>,
}

impl Form {
    fn plain(x: TensorDesc) -> Self {
        Self {
            x,
            normalized_dims: 1,
            weight: None,
            bias: None,
            weight_offset: 0.0,
            eps: 1e-5,
            stats: false,
            residual: false,
            layouts: Vec::new(),
        }
    }

    /// With every parameter that the family has, in one type, and the statistics.
    fn affine<F: Family>(x: TensorDesc, dtype: DType) -> Self {
        Self { weight: Some(dtype), bias: F::HAS_BIAS.then_some(dtype), stats: true, ..Self::plain(x) }
    }
}

/// A backward before it is a descriptor.
#[derive(Clone)]
pub(super) struct GradientForm {
    pub(super) form: Form,
    /// Inputs of which forward may have others.
    pub(super) wanted: Vec<&'static str>,
    pub(super) dh: bool,
    pub(super) layouts: Vec<(&'static str, TensorDesc)>,
}

impl GradientForm {
    fn all(form: Form) -> Self {
        Self { form, wanted: vec!["x", "weight", "bias"], dh: false, layouts: Vec::new() }
    }
}

/// The inputs that are parameters.
const PARAMETERS: [&str; 2] = ["weight", "bias"];

/// One of the two ops.
pub(super) trait Family {
    const HAS_BIAS: bool;
    fn forward(form: &Form) -> Result<AnyDescriptor, Error>;
    fn backward(form: &GradientForm) -> Result<AnyDescriptor, Error>;
}

/// What the harness knows of a forward.
pub(super) const fn forward_subject<F: Family>(name: &'static str, run_typed: RunTyped) -> Subject {
    Subject {
        name,
        cases: forward_cases::<F>,
        is_cpu_only,
        may_be_constant,
        input: forward_input,
        expect: expect_forward,
        contracts: FORWARD_CONTRACTS,
        run_typed,
        features: forward_features::<F>,
    }
}

/// What the harness knows of a backward.
pub(super) const fn backward_subject<F: Family>(name: &'static str, run_typed: RunTyped) -> Subject {
    Subject {
        name,
        cases: || accumulating(backward_cases::<F>()),
        is_cpu_only,
        may_be_constant,
        input: backward_input,
        expect: expect_backward,
        contracts: BACKWARD_CONTRACTS,
        run_typed,
        features: backward_features::<F>,
    }
}

/// Rows and columns: odd, around every vector width and tier, many rows, few rows, none.
fn shapes() -> Vec<(u64, u64)> {
    let mut shapes = vec![(1, 1), (3, 1), (7, 17), (5, 127), (5, 128), (5, 129), (5, 1023), (2, 4097), (1, 16384)];
    shapes.extend([2, 3, 4, 5, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 513].map(|cols| (3, cols)));
    shapes.extend([1024, 1025, 2047, 2048, 2049, 4095, 4096, 8192, 8193, 12288].map(|cols| (3, cols)));
    shapes.extend([(2, 16384), (2, 16392), (1, 32768), (2, 65536), (1, 262144), (2, 100_003)]);
    shapes.extend([(65537, 1), (65537, 3), (65537, 16), (300, 64), (129, 1000), (1000, 33)]);
    shapes.extend([(0, 16), (16, 0), (0, 0)]);
    shapes
}

/// The shapes of a type. f16 differs from bf16 only in how elements are read and written, so that it does without the largest.
fn shapes_of(dtype: DType) -> Vec<(u64, u64)> {
    let is_kept = |shape: &(u64, u64)| match dtype {
        DType::F64 => is_core(dtype, *shape) || [(5, 128), (3, 4), (2, 65536), (65537, 3), (16, 0)].contains(shape),
        DType::F16 => ![(65537, 16), (1, 262144)].contains(shape),
        _ => true,
    };
    shapes().into_iter().filter(is_kept).collect()
}

/// Rows longer than a workgroup holds of which slices of the longest keep a large device busy.
const MANY_LONG_ROWS: [u64; 2] = [264, 16392];

/// Rows of f32 that fill the threads of a large block, more of them than such blocks are resident.
const MANY_WHOLE_ROWS: [u64; 2] = [300, 8704];

/// So many rows of 16 bits as warps of CUDA take with a mean, and the columns of each form.
const WARP_ROWS: (u64, [u64; 6]) = (1200, [768, 1024, 1280, 1536, 1792, 2048]);

/// More rows of 16 bits than CUDA has blocks at once that hold one, and a mean.
const MANY_HELD_ROWS: [u64; 2] = [264, 12296];

/// Rows that teams of many blocks share on CUDA, more of them than the blocks hold at once: of every form there is, one team and more.
const WIDE_ROWS: [(DType, [u64; 2]); 5] = [
    (DType::F32, [19, 270_400]),
    (DType::F32, [90, 49_184]),
    (DType::BF16, [19, 270_400]),
    (DType::BF16, [130, 49_200]),
    (DType::F16, [19, 270_400]),
];

/// Shapes of the cases that run in every mode.
fn is_core(dtype: DType, shape: (u64, u64)) -> bool {
    match dtype {
        DType::F16 => [(7, 17), (5, 1023), (1, 16384)].contains(&shape),
        _ => {
            [(7, 17), (5, 127), (5, 1023), (2, 4097), (1, 16384), (2, 16392), (1, 32768), (129, 1000), (0, 16), (1, 1)]
                .contains(&shape)
        }
    }
}

fn forward_cases<F: Family>() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| {
        let descriptor = F::forward(&form).expect("the case lists hold valid descriptors");
        cases.push(Case::new(descriptor, data).core(core));
    };
    for dtype in FLOATS {
        // Every option.
        let x = dense(dtype, &[6, 256]);
        for form in parameters::<F>(&Form::plain(x)) {
            for (stats, residual) in [(false, false), (true, false), (false, true), (true, true)] {
                let core = stats && residual && form.weight.is_some();
                add(Form { stats, residual, ..form.clone() }, Data::Normal, core);
            }
        }
        for eps in [0.0, 1e-12, 1.0] {
            add(Form { eps, ..Form::affine::<F>(x, dtype) }, Data::Normal, false);
        }
        // Every size.
        for (rows, cols) in shapes_of(dtype) {
            let form = Form::affine::<F>(dense(dtype, &[rows, cols]), dtype);
            add(form.clone(), Data::Normal, is_core(dtype, (rows, cols)));
            if [127, 1023, 4097, 1000, 12288, 262144].contains(&cols) {
                let form = Form { weight: Some(DType::F32), bias: F::HAS_BIAS.then_some(DType::F32), ..form };
                add(Form { residual: true, ..form }, Data::Normal, cols == 1023);
            }
        }
        // Every layout.
        for (form, core) in layouts::<F>(dtype) {
            add(form, Data::Normal, core);
        }
        // The greatest magnitudes, a row or more of each kind.
        add(Form::affine::<F>(dense(dtype, &[6, 256]), dtype), Data::Huge, true);
        // Hard data.
        for data in Data::ALL.into_iter().filter(|d| *d != Data::Normal) {
            for (rows, cols) in [(70, 128), (4, 300), (3, 5000), (2, 12288), (2, 20001)] {
                let form = Form::affine::<F>(dense(dtype, &[rows, cols]), DType::F32);
                add(form.clone(), data, false);
                if cols == 12288 && dtype.size_bytes() == 2 {
                    add(Form::affine::<F>(form.x, dtype), data, false);
                }
                if cols == 300 && !matches!(data, Data::Tiny) {
                    add(Form { stats: false, ..Form::plain(form.x) }, data, false);
                }
            }
        }
        for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
            add(Form::affine::<F>(dense(dtype, &[3, [1024, 4099, 32768][i % 3]]), dtype), data, false);
        }
        if dtype == DType::F32 {
            add(Form::affine::<F>(dense(dtype, &MANY_WHOLE_ROWS), dtype), Data::Normal, false);
        }
        if F::HAS_BIAS && dtype.size_bytes() == 2 {
            let (rows, all_cols) = WARP_ROWS;
            let narrow = Form::affine::<F>(dense(dtype, &[rows, all_cols[0]]), dtype);
            for data in [Data::LargeMean, Data::Step, Data::Inf] {
                add(narrow.clone(), data, false);
            }
            for cols in all_cols {
                add(Form::affine::<F>(dense(dtype, &[rows, cols]), dtype), Data::Normal, false);
            }
        }
        if dtype != DType::F16 {
            add(Form::affine::<F>(dense(dtype, &[1, 262144]), DType::F32), Data::Constant, false);
            add(Form::affine::<F>(dense(dtype, &[1, 262144]), DType::F32), Data::LargeMean, false);
            add(Form::affine::<F>(dense(dtype, &[1, 262144]), dtype), Data::Step, false);
            add(Form::affine::<F>(dense(dtype, &[2, 32768]), dtype), Data::Step, false);
        }
    }
    cases.extend(pinned_forwards::<F>());
    distinct(cases)
}

/// A case by the form of that name, which others may come before.
fn pinned(descriptor: AnyDescriptor, data: Data, form: &str, core: bool) -> Case {
    let kernel = format!("{}_{form}", descriptor.name());
    Case::new(descriptor, data).core(core).with(PlanOptions::default().kernel(kernel))
}

/// Every form of forward at small shapes, also where others are chosen.
fn pinned_forwards<F: Family>() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut add = |form: &str, norm: Form, data: Data, core: bool| {
            let descriptor = F::forward(&norm).expect("the case lists hold valid descriptors");
            cases.push(pinned(descriptor, data, form, core));
        };
        let affine = |rows: u64, cols: u64| Form::affine::<F>(dense(dtype, &[rows, cols]), dtype);
        let is_half = dtype.size_bytes() == 2;
        // The columns of a small row of the forms that take any whole number of vectors.
        let mut any_row = vec![("resident", 264), ("split", 264), ("ring", 264)];
        any_row.extend(is_half.then_some(("shared", 264)));
        for &(form, cols) in &any_row {
            add(form, Form { residual: true, ..affine(5, cols) }, Data::Normal, true);
            add(form, Form::plain(dense(dtype, &[5, cols])), Data::Normal, false);
            if form != "ring" {
                add(form, Form::affine::<F>(dense(dtype, &[5, cols]), DType::F32), Data::Normal, false);
            }
            for data in [Data::LargeMean, Data::Step, Data::Nan, Data::Inf] {
                add(form, affine(3, cols), data, false);
            }
            // One vector of 16 bytes, rows apart, and several strides.
            add(form, affine(3, 16 / dtype.size_bytes()), Data::Normal, false);
            let apart = strided(dtype, &[6, 64], &[72, 1]);
            add(form, Form { x: apart, ..affine(6, 64) }, Data::Normal, false);
            let heads = strided(dtype, &[2, 3, 5, 64], &[5 * 3 * 64, 64, 3 * 64, 1]);
            add(form, Form { x: heads, ..Form::affine::<F>(heads, dtype) }, Data::Normal, false);
        }
        for form in ["resident", "split"] {
            add(form, affine(7, 17), Data::Normal, true);
        }
        // Several turns of each team.
        add("ring", affine(600, 64), Data::Normal, true);
        if F::HAS_BIAS && is_half {
            add("packed", Form { residual: true, ..affine(3, 2048) }, Data::Normal, true);
            add("packed", Form::plain(dense(dtype, &[3, 3072])), Data::Normal, false);
            for cols in WARP_ROWS.1 {
                add("packed_warp", affine(5, cols), Data::Normal, cols == WARP_ROWS.1[0]);
            }
            for data in [Data::LargeMean, Data::Step, Data::Nan, Data::Inf] {
                add("packed", affine(3, 2048), data, false);
                add("packed_warp", affine(3, 1024), data, false);
            }
        }
    }
    cases
}

/// Every choice of parameters, their types, and the offset.
fn parameters<F: Family>(plain: &Form) -> Vec<Form> {
    let dtype = plain.x.dtype();
    let mut forms = vec![plain.clone()];
    let types = if dtype == DType::F32 { vec![dtype] } else { vec![dtype, DType::F32] };
    for parameter in types {
        let weight = Form { weight: Some(parameter), ..plain.clone() };
        forms.push(weight.clone());
        if F::HAS_BIAS {
            forms.push(Form { bias: Some(parameter), ..plain.clone() });
            forms.push(Form { bias: Some(parameter), ..weight });
        } else {
            forms.push(Form { weight_offset: 1.0, ..weight });
        }
    }
    forms
}

/// Strides, ranks and alignment promises.
fn layouts<F: Family>(dtype: DType) -> Vec<(Form, bool)> {
    let element = dtype.size_bytes();
    let mut forms = Vec::new();
    let mut add = |form: Form, core: bool| forms.push((form, core));
    // Rows further apart than they are long, in x, y and both, in steps that keep and that break the vector width.
    for (cols, step) in [(64, 72), (64, 65), (17, 19), (256, 512), (2050, 2056)] {
        let (x, rows) = (dense(dtype, &[6, cols]), strided(dtype, &[6, cols], &[step, 1]));
        let affine = Form::affine::<F>(x, dtype);
        add(Form { x: rows, ..affine.clone() }, cols == 64);
        add(Form { layouts: vec![("y", rows)], ..affine.clone() }, false);
        add(Form { x: rows, layouts: vec![("y", x)], ..affine.clone() }, false);
        let all = vec![("residual", rows), ("h", rows), ("y", x)];
        add(Form { residual: true, layouts: all, ..affine }, cols == 17);
    }
    // Heads: [batch, heads, sequence, head] in the memory order [batch, sequence, heads, head].
    for head in [8, 33, 64] {
        let (b, h, s) = (2, 3, 5);
        let dims = [b, h, s, head];
        let heads = strided(dtype, &dims, &[s * h * head, head, h * head, 1]);
        add(Form { x: heads, ..Form::affine::<F>(heads, dtype) }, head == 64);
        add(Form { layouts: vec![("y", dense(dtype, &dims))], ..Form::affine::<F>(heads, DType::F32) }, false);
        let padded = strided(dtype, &dims, &[1000 * 3, 1000, 200, 1]);
        add(Form { layouts: vec![("y", padded)], ..Form::affine::<F>(heads, DType::F32) }, false);
    }
    // One row read by all.
    let repeated = strided(dtype, &[6, 40], &[0, 1]);
    add(Form { ..Form::affine::<F>(repeated, dtype) }, true);
    add(
        Form {
            residual: true,
            layouts: vec![("residual", repeated)],
            ..Form::affine::<F>(dense(dtype, &[6, 40]), dtype)
        },
        false,
    );
    // Two and three normalized extents, all extents, and a rank of 8.
    for normalized_dims in [2, 3] {
        add(Form { normalized_dims, ..Form::affine::<F>(dense(dtype, &[4, 3, 5, 7]), dtype) }, false);
    }
    add(Form { normalized_dims: 3, ..Form::affine::<F>(dense(dtype, &[4, 8, 16]), dtype) }, false);
    add(Form { normalized_dims: 2, ..Form::affine::<F>(dense(dtype, &[1, 2, 1, 3, 1, 2, 5, 3]), dtype) }, false);
    add(Form::affine::<F>(dense(dtype, &[33]), dtype), false);
    // Lower promises.
    for align in [element, 4.max(element)] {
        let low = |desc: TensorDesc| desc.align(align).expect("an alignment the type has");
        let x = low(dense(dtype, &[5, 256]));
        add(Form { ..Form::affine::<F>(x, dtype) }, align == element);
        let lower = vec![("weight", low(dense(dtype, &[2048])))];
        add(Form { layouts: lower, ..Form::affine::<F>(dense(dtype, &[5, 2048]), dtype) }, false);
    }
    // Normalized extents that are not dense: for the CPU.
    add(Form::affine::<F>(strided(dtype, &[5, 33], &[1, 5]), dtype), true);
    add(Form { normalized_dims: 2, ..Form::affine::<F>(strided(dtype, &[2, 3, 8], &[24, 1, 3]), dtype) }, false);
    forms
}

fn backward_cases<F: Family>() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |form: GradientForm, data: Data, core: bool| {
        // The only refusal is that of a backward without any gradient, which some of the subsets below are.
        let Ok(descriptor) = F::backward(&form) else { return };
        cases.push(Case::new(descriptor, data).core(core));
    };
    for dtype in FLOATS {
        let x = dense(dtype, &[6, 256]);
        for form in parameters::<F>(&Form::plain(x)) {
            for subset in 0..16 {
                let [dx, dweight, dbias, dh] = std::array::from_fn(|bit| subset >> bit & 1 == 1);
                if (dweight && form.weight.is_none()) || (dbias && form.bias.is_none()) || (dh && !dx) {
                    continue;
                }
                let wanted = [("x", dx), ("weight", dweight), ("bias", dbias)].into_iter();
                let wanted = wanted.filter_map(|(input, is_wanted)| is_wanted.then_some(input)).collect();
                let core = subset == 15 || (subset == 3 && !F::HAS_BIAS);
                add(GradientForm { wanted, dh, ..GradientForm::all(form.clone()) }, Data::Normal, core);
            }
        }
        for (rows, cols) in shapes_of(dtype) {
            let form = Form::affine::<F>(dense(dtype, &[rows, cols]), dtype);
            add(GradientForm::all(form.clone()), Data::Normal, is_core(dtype, (rows, cols)));
            if [127, 1023, 4097, 1000, 12288, 262144].contains(&cols) {
                let form = Form { weight: Some(DType::F32), bias: F::HAS_BIAS.then_some(DType::F32), ..form };
                add(GradientForm { dh: true, ..GradientForm::all(form.clone()) }, Data::Normal, cols == 1023);
                add(GradientForm { wanted: vec!["x"], ..GradientForm::all(form.clone()) }, Data::Normal, false);
                add(GradientForm { wanted: PARAMETERS.into(), ..GradientForm::all(form) }, Data::Normal, false);
            }
        }
        if matches!(dtype, DType::F32 | DType::BF16) {
            let form = Form::affine::<F>(dense(dtype, &MANY_LONG_ROWS), dtype);
            add(GradientForm::all(form), Data::Normal, false);
        }
        if F::HAS_BIAS && dtype.size_bytes() == 2 {
            add(GradientForm::all(Form::affine::<F>(dense(dtype, &MANY_HELD_ROWS), dtype)), Data::Normal, false);
        }
        for (_, dims) in WIDE_ROWS.into_iter().filter(|(of, _)| *of == dtype) {
            let parameters = if dtype == DType::F16 { DType::F32 } else { dtype };
            add(GradientForm::all(Form::affine::<F>(dense(dtype, &dims), parameters)), Data::Normal, false);
        }
        for (form, core) in layouts::<F>(dtype) {
            let form = Form { residual: false, ..form };
            let of = |name: &str| form.layouts.iter().find(|l| l.0 == name).map(|l| l.1);
            let mut layouts = Vec::new();
            if let Some(rows) = of("residual") {
                layouts = vec![("dy", rows), ("dh", rows), ("dx", of("h").unwrap_or(form.x))];
                layouts.retain(|l| l.0 == "dh" || l.1.is_injective());
            }
            let kept = form.layouts.iter().filter(|l| !["residual", "h"].contains(&l.0)).copied().collect();
            let form = Form { layouts: kept, ..form };
            let dh = !layouts.is_empty();
            add(GradientForm { dh, layouts, ..GradientForm::all(form) }, Data::Normal, core);
        }
        add(GradientForm::all(Form::affine::<F>(x, dtype)), Data::Huge, true);
        for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
            let dims = [[6, 4099], [8192, 12], [4000, 65], [16384, 8]][i];
            add(GradientForm::all(Form::affine::<F>(dense(dtype, &dims), DType::F32)), data, false);
        }
        for data in Data::ALL.into_iter().filter(|d| *d != Data::Normal) {
            for (rows, cols) in [(4, 300), (3, 5000), (2, 20001)] {
                let form = Form::affine::<F>(dense(dtype, &[rows, cols]), DType::F32);
                add(GradientForm::all(form.clone()), data, false);
                if cols == 300 {
                    add(GradientForm { wanted: vec!["x"], ..GradientForm::all(Form::plain(form.x)) }, data, false);
                }
            }
        }
    }
    cases.extend(pinned_backwards::<F>());
    distinct(cases)
}

/// Every form of backward at small shapes, also where others are chosen.
fn pinned_backwards<F: Family>() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut add = |form: &str, norm: GradientForm, data: Data, core: bool| {
            let descriptor = F::backward(&norm).expect("the case lists hold valid descriptors");
            cases.push(pinned(descriptor, data, form, core));
        };
        let affine = |rows: u64, cols: u64| GradientForm::all(Form::affine::<F>(dense(dtype, &[rows, cols]), dtype));
        for form in ["few_rows", "cooperative", "ring", "persistent", "split", "resident"] {
            // With dh, `few_rows` binds more buffers than every device of wgpu has.
            let dh = !matches!(form, "cooperative" | "few_rows");
            add(form, GradientForm { dh, ..affine(6, 256) }, Data::Normal, true);
            add(form, affine(300, 64), Data::Normal, true);
            if form != "ring" {
                let wider = GradientForm::all(Form::affine::<F>(dense(dtype, &[5, 264]), DType::F32));
                add(form, wider, Data::Normal, false);
            }
            for data in [Data::LargeMean, Data::Nan, Data::Inf] {
                add(form, affine(3, 264), data, false);
            }
            add(form, affine(3, 16 / dtype.size_bytes()), Data::Normal, false);
            if form != "few_rows" {
                for wanted in [vec!["x"], PARAMETERS.into()] {
                    add(form, GradientForm { wanted, ..affine(5, 264) }, Data::Normal, false);
                }
            }
            let apart = strided(dtype, &[6, 64], &[72, 1]);
            add(form, GradientForm { layouts: vec![("dy", apart)], ..affine(6, 64) }, Data::Normal, false);
        }
        for form in ["ring", "split"] {
            let heads = strided(dtype, &[2, 3, 5, 64], &[5 * 3 * 64, 64, 3 * 64, 1]);
            let norm = Form { x: heads, ..Form::affine::<F>(heads, dtype) };
            add(form, GradientForm::all(norm), Data::Normal, false);
        }
    }
    cases
}

/// The fields that the harness reads back from a descriptor.
struct Fields {
    json: Value,
    rows: u64,
    cols: u64,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let dims = descriptor.slots()[0].desc.dims().to_vec();
        let normalized = json["normalized_dims"].as_u64().context("normalized_dims")? as usize;
        let (outer, inner) = dims.split_at(dims.len() - normalized);
        Ok(Self { rows: outer.iter().product(), cols: inner.iter().product(), json })
    }

    fn offset(&self) -> f64 {
        self.json["weight_offset"].as_f64().unwrap_or(0.0)
    }
}

fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    // Rows of one or two columns have only a few values; the gradients of no rows are zeros.
    Fields::of(descriptor).is_ok_and(|f| f.cols <= 2 || f.rows == 0)
}

/// GPUs take rows of contiguous elements whose starts at most three strides tell.
fn is_cpu_only(descriptor: &AnyDescriptor) -> bool {
    let Ok(fields) = Fields::of(descriptor) else { return false };
    let normalized = fields.json["normalized_dims"].as_u64().unwrap_or(1) as usize;
    let rank = descriptor.slots()[0].desc.rank();
    descriptor.slots().iter().filter(|s| s.desc.rank() == rank).any(|slot| {
        let (dims, strides) = (slot.desc.dims(), slot.desc.strides());
        let mut step = 1;
        (rank - normalized..rank).rev().any(|axis| {
            let is_sparse = dims[axis] > 1 && strides[axis] != step;
            step *= dims[axis].max(1);
            is_sparse
        })
    })
}

fn forward_input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let has_mean = case.descriptor.name() == "layer_norm";
    let huge = huge_of_norm(slot.desc.dtype(), fields.cols, false, has_mean);
    Ok(input(case.data, huge, slot, &fields, random))
}

fn backward_input(case: &Case, slot: &Slot, random: &mut Random, before: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    // A NaN comes in through dy, which leaves most of the parameter gradients numbers; infinities through x.
    let data = match (case.data, slot.name) {
        (Data::Nan, "dy") => Data::Nan,
        (data, "dy") if data.is_structured() => data,
        (Data::Nan, "x") | (_, "dy") => Data::Normal,
        (data, _) => data,
    };
    if !matches!(slot.name, "mean" | "rstd") {
        let has_mean = case.descriptor.name() == "layer_norm_backward";
        let huge = huge_of_norm(slot.desc.dtype(), fields.cols, true, has_mean);
        return Ok(input(data, huge, slot, &fields, random));
    }
    let x = before.values("x").context("x comes before the statistics")?;
    let mut json = forward_json(&fields);
    json["eps"] = 1e-5.into();
    let op = case.descriptor.name().trim_end_matches("_backward");
    let statistics = run_in_f64(op, &json, &BTreeMap::from([("x", x)]))?;
    Ok(statistics[slot.name].clone())
}

fn input(data: Data, huge: Huge, slot: &Slot, fields: &Fields, random: &mut Random) -> Vec<f64> {
    let elements = slot.desc.elements();
    match slot.name {
        "x" | "dy" => data.rows_within(huge, slot.desc.dtype(), fields.rows, fields.cols, random),
        "weight" => (0..elements).map(|_| 1.0 - fields.offset() + 0.5 * random.normal()).collect(),
        _ => (0..elements).map(|_| random.normal()).collect(),
    }
}

/// The JSON of the plain forward over the same extents, in f64, with statistics.
fn forward_json(fields: &Fields) -> Value {
    serde_json::json!({
        "x": {"dtype": "f64", "dims": fields.json["x"]["dims"]},
        "normalized_dims": fields.json["normalized_dims"],
        "stats": true,
    })
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A (|weight| (16 |xhat| + 4) + 2 |bias|), on wgpu 24 for 16",
        why: "The 16 (24 where WGSL's square root and division are looser) bound a mean and a variance whose roundings all have one \
              sign; in practice they cancel.",
    },
    Contract { outputs: &["h"], budget: "u_o |h| + u_A |h|", why: "A sum, rounded once." },
    Contract {
        outputs: &["mean", "rstd"],
        budget: "u_o |mean| + 4 u_A / rstd; u_o rstd + 16 u_A rstd, on wgpu 24 for 16",
        why: "What the budget of y leaves its parts; their roundings cancel as those of y do.",
    },
];

const BACKWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["dx"],
        budget: "u_o |dx| + u_A (8 rstd (|g| + mean|g| + |xhat| mean|g xhat|) + |dh|)",
        why: "The bound adds the absolute values of terms that cancel, and lets all roundings have one sign.",
    },
    Contract {
        outputs: &["dweight", "dbias"],
        budget: "u_o |sum| + u_A (8 + 48/4) sum|terms|",
        why: "It allows for 48 additions one after the other, which only the longest sums have, with roundings of one sign.",
    },
];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "norm, forward": `|weight| (16 |xhat| + 4) + 2 |bias|`, 24 in place
/// of 16 for WGSL. The statistics are given what this leaves them: rstd the relative error of xhat, mean the 4 in units of 1 / rstd.
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (cols, offset) = (fields.cols as usize, fields.offset());
    let x = inputs.values("x").context("no x")?;
    let dtype = inputs.get("x").context("no x")?.dtype;
    let accumulator = dtype.accumulator();
    let (weight, bias) = (inputs.values("weight"), inputs.values("bias"));
    let relative = if by.backend == Backend::Wgpu { 24.0 } else { 16.0 };

    let mut expected = Vec::new();
    // The norm is of h as it was written, once that is within one rounding of the sum.
    let mut rows = x;
    if let (Some(residual), Some(h)) = (inputs.values("residual"), outputs.values("h")) {
        let values: Vec<f64> = x.iter().zip(residual).map(|(x, r)| x + r).collect();
        let budgets = values.iter().map(|h| budget(dtype, accumulator, *h, h.abs())).collect();
        expected.push(Expected { name: "h".into(), values, budgets });
        rows = h;
    }

    let mut json = forward_json(&fields);
    json["eps"] = fields.json["eps"].clone();
    let mut operands = BTreeMap::from([("x", rows)]);
    for (name, values) in [("weight", weight), ("bias", bias)] {
        if let Some(values) = values {
            json[name] = "f64".into();
            operands.insert(name, values);
        }
    }
    if offset != 0.0 {
        json["weight_offset"] = offset.into();
    }
    let mut reference = run_in_f64(descriptor.name(), &json, &operands)?;
    let rstd = reference["rstd"].clone();
    let mean = reference.get("mean").cloned();
    let y = reference.remove("y").context("no y")?;
    let budgets = y.iter().enumerate().map(|(i, &y)| {
        let (row, col) = (i / cols, i % cols);
        let xhat = (rows[i] - mean.as_ref().map_or(0.0, |m| m[row])) * rstd[row];
        let weight = weight.map_or(1.0, |w| w[col] + offset);
        let bias = bias.map_or(0.0, |b| b[col]);
        budget(dtype, accumulator, y, weight.abs() * (relative * xhat.abs() + 4.0) + 2.0 * bias.abs())
    });
    expected.push(Expected { name: "y".into(), budgets: budgets.collect(), values: y });
    if outputs.get("mean").is_some() {
        let mean = mean.context("no mean")?;
        // Rows of no columns have a mean of 0 and no rstd.
        let left = |rstd: f64| finite(4.0 / rstd);
        let budgets = mean.iter().zip(&rstd).map(|(&m, &r)| budget(accumulator, accumulator, m, left(r))).collect();
        expected.push(Expected { name: "mean".into(), values: mean, budgets });
    }
    if outputs.get("rstd").is_some() {
        let budgets = rstd.iter().map(|&r| budget(accumulator, accumulator, r, relative * r)).collect();
        expected.push(Expected { name: "rstd".into(), values: rstd, budgets });
    }
    Ok(expected)
}

/// Expected values and budgets of backward, given the saved statistics: docs/numerics.md, Budgets, "norm, dx":
/// `8 rstd (|g| + mean|g| + |xhat| mean|g xhat|)`, and "dweight, dbias": `(8 + L/4) sum|terms|`. An added dh counts as one more term.
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (rows, cols, offset) = (fields.rows as usize, fields.cols as usize, fields.offset());
    let of = |name: &'static str| inputs.values(name).with_context(|| format!("no {name}"));
    let (dy, x, rstd) = (of("dy")?, of("x")?, of("rstd")?);
    let (mean, weight, dh) = (inputs.values("mean"), inputs.values("weight"), inputs.values("dh"));
    let dtype = inputs.get("x").context("no x")?.dtype;
    let accumulator = dtype.accumulator();

    let mut json = fields.json.clone();
    json["x"] = serde_json::json!({"dtype": "f64", "dims": fields.json["x"]["dims"]});
    let object = json.as_object_mut().context("the JSON of a descriptor is an object")?;
    object.remove("layouts");
    for name in ["weight", "dbias"] {
        if object.contains_key(name) {
            object.insert(name.into(), "f64".into());
        }
    }
    let operands =
        [("dy", Some(dy)), ("x", Some(x)), ("rstd", Some(rstd)), ("mean", mean), ("weight", weight), ("dh", dh)];
    let operands = operands.into_iter().filter_map(|(name, values)| Some((name, values?))).collect();
    let reference = run_in_f64(descriptor.name(), &json, &operands)?;

    let xhat = |i: usize| (x[i] - mean.map_or(0.0, |m| m[i / cols])) * rstd[i / cols];
    let g = |i: usize| dy[i] * weight.map_or(1.0, |w| w[i % cols] + offset);
    let mut expected = Vec::new();
    for (name, values) in reference {
        let output = outputs.get(&name).map_or(dtype, |t| t.dtype);
        let budgets = if name == "dx" {
            let mut budgets = Vec::with_capacity(rows * cols);
            for (row, rstd) in rstd.iter().enumerate() {
                let all = row * cols..(row + 1) * cols;
                let n = cols as f64;
                let mean_g = all.clone().map(|i| g(i).abs()).sum::<f64>() / n;
                let mean_gx = all.clone().map(|i| (g(i) * xhat(i)).abs()).sum::<f64>() / n;
                budgets.extend(all.map(|i| {
                    let own = 8.0 * rstd * (g(i).abs() + mean_g + xhat(i).abs() * mean_gx);
                    budget(output, accumulator, values[i], own + dh.map_or(0.0, |dh| dh[i].abs()))
                }));
            }
            budgets
        } else {
            let mut terms = vec![0.0; cols];
            for i in 0..rows * cols {
                terms[i % cols] += if name == "dweight" { (dy[i] * xhat(i)).abs() } else { dy[i].abs() };
            }
            let of = |(value, terms): (&f64, &f64)| budget(output, accumulator, *value, (8.0 + CHAIN / 4.0) * terms);
            values.iter().zip(&terms).map(of).collect()
        };
        expected.push(Expected { name, values, budgets });
    }
    Ok(expected)
}

/// Rows of the support table of forward.
fn forward_features<F: Family>() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS {
        let x = dense(dtype, &[64, 1024]);
        let rows = strided(dtype, &[64, 1024], &[2048, 1]);
        let heads = strided(dtype, &[2, 8, 16, 64], &[8192, 64, 512, 1]);
        let columns = strided(dtype, &[64, 1024], &[1, 64]);
        let affine = Form::affine::<F>(x, dtype);
        let mut add = |what: &str, form: Form| {
            if let Ok(descriptor) = F::forward(&form) {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        };
        add("no parameters", Form::plain(x));
        add("parameters of x's type, statistics", affine.clone());
        add("parameters in f32", Form::affine::<F>(x, DType::F32));
        if !F::HAS_BIAS {
            add("weight offset", Form { weight_offset: 1.0, ..affine.clone() });
        }
        add("residual", Form { residual: true, ..affine.clone() });
        add("rows apart", Form { x: rows, ..affine.clone() });
        add("transposed heads", Form::affine::<F>(heads, dtype));
        add(
            "three normalized extents",
            Form { normalized_dims: 3, ..Form::affine::<F>(dense(dtype, &[9, 4, 8, 16]), dtype) },
        );
        add("one row of 262144", Form::affine::<F>(dense(dtype, &[1, 262144]), dtype));
        add("100000 rows of 8", Form::affine::<F>(dense(dtype, &[100_000, 8]), dtype));
        add("normalized extents not dense", Form::affine::<F>(columns, dtype));
    }
    features
}

/// Rows of the support table of backward.
fn backward_features<F: Family>() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS {
        let x = dense(dtype, &[64, 1024]);
        let rows = strided(dtype, &[64, 1024], &[2048, 1]);
        let columns = strided(dtype, &[64, 1024], &[1, 64]);
        let affine = GradientForm::all(Form::affine::<F>(x, dtype));
        let mut add = |what: &str, form: GradientForm| {
            if let Ok(descriptor) = F::backward(&form) {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        };
        add("dx, no parameters", GradientForm::all(Form::plain(x)));
        add("all gradients, parameters of x's type", affine.clone());
        add("all gradients, parameters in f32", GradientForm::all(Form::affine::<F>(x, DType::F32)));
        add("parameter gradients alone", GradientForm { wanted: PARAMETERS.into(), ..affine.clone() });
        add("dh added", GradientForm { dh: true, ..affine });
        add("rows apart", GradientForm::all(Form::affine::<F>(rows, dtype)));
        add("one row of 262144", GradientForm::all(Form::affine::<F>(dense(dtype, &[1, 262144]), dtype)));
        add("100000 rows of 8", GradientForm::all(Form::affine::<F>(dense(dtype, &[100_000, 8]), dtype)));
        add("normalized extents not dense", GradientForm::all(Form::affine::<F>(columns, dtype)));
    }
    features
}
