//! LocalResponseNorm, forward and backward.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, Backend, DType, Error, LocalResponseNormArgs, LocalResponseNormBackwardArgs,
    LocalResponseNormBackwardDescriptor, LocalResponseNormDescriptor, PlanOptions, Slot, TensorDesc,
};
use serde_json::Value;

use super::{
    Contract, FLOATS, Subject, TypedRun, accumulating, channels_last, dense, features, json_of, run_in_f64, strided,
};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "local_response_norm",
    cases: || cases(forward),
    is_cpu_only,
    may_be_constant: |_| false,
    input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "local_response_norm_backward",
    cases: || accumulating(cases(backward)),
    is_cpu_only,
    may_be_constant: |_| false,
    input,
    expect: expect_backward,
    contracts: BACKWARD_CONTRACTS,
    run_typed: run_backward,
    features: || features(asked_for, backward),
};

/// A forward before it is a descriptor.
#[derive(Clone)]
struct Form {
    x: TensorDesc,
    size: u64,
    alpha: f64,
    beta: f64,
    k: f64,
    longer_after: bool,
    /// The layout of y, and of dy in backward.
    y: Option<TensorDesc>,
}

impl Form {
    fn plain(x: TensorDesc, size: u64) -> Self {
        Self { x, size, alpha: 1e-4, beta: 0.75, k: 1.0, longer_after: false, y: None }
    }

    /// With numbers that make the window count.
    fn strong(x: TensorDesc, size: u64) -> Self {
        Self { alpha: 0.5, k: 2.0, ..Self::plain(x, size) }
    }

    fn forward(&self) -> Result<LocalResponseNormDescriptor, Error> {
        let descriptor = LocalResponseNormDescriptor::new(self.x, self.size)?;
        let descriptor = descriptor.alpha(self.alpha)?.beta(self.beta)?.k(self.k)?.longer_after(self.longer_after)?;
        match self.y {
            Some(y) => descriptor.y(y),
            None => Ok(descriptor),
        }
    }
}

fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
    form.forward().map(AnyDescriptor::new)
}

fn backward(form: &Form) -> Result<AnyDescriptor, Error> {
    form.forward()?.backward().map(AnyDescriptor::new)
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        // Every size over odd and even positions, in both layouts: smaller and larger than the channels, and as large.
        for dims in [[2, 7, 3, 5], [2, 16, 4, 4], [3, 40, 1, 9]] {
            for size in [1, 2, 3, 4, 5, 7, 8, 9, 11, 40] {
                let core = dims[1] == 16 && [4, 5].contains(&size) || dims[1] == 7 && size == 5;
                add(Form::strong(dense(dtype, &dims), size), Data::Normal, core);
                add(Form::strong(channels_last(dtype, &dims), size), Data::Normal, core);
            }
        }
        // Even sizes with the longer side after the channel.
        for x in [dense(dtype, &[2, 7, 3, 5]), channels_last(dtype, &[2, 16, 4, 4]), dense(dtype, &[3, 40, 1, 9])] {
            for size in [2, 4, 8, 40] {
                add(Form { longer_after: true, ..Form::strong(x, size) }, Data::Normal, size == 4);
            }
        }
        // Every number.
        for beta in [0.0, 0.5, 0.75, 1.0, 2.3] {
            for (alpha, k) in [(1e-4, 1.0), (2.0, 0.0), (0.0, 2.0), (30.0, 0.25)] {
                for x in [dense(dtype, &[2, 12, 6]), channels_last(dtype, &[2, 16, 6])] {
                    add(Form { alpha, beta, k, ..Form::plain(x, 5) }, Data::Normal, false);
                }
            }
        }
        add(Form { beta: 2.3, ..Form::strong(dense(dtype, &[2, 12, 6]), 6) }, Data::Normal, false);
        // Every rank; one channel or position, many, and none.
        for dims in [
            vec![5, 33],
            vec![2, 9, 20],
            vec![2, 6, 2, 3, 4],
            vec![1, 1, 8],
            vec![4, 300, 3],
            vec![1, 5, 1030],
            vec![1, 3, 65537],
            vec![65537, 3, 1],
            vec![2, 96, 13, 13],
        ] {
            if dtype == DType::F16 && dims.contains(&65537) {
                continue;
            }
            add(Form::strong(dense(dtype, &dims), 5), Data::Normal, dims.len() == 2);
            if dims.len() > 2 {
                add(Form::strong(channels_last(dtype, &dims), 5), Data::Normal, false);
            }
        }
        if dtype == DType::F32 {
            // Several single elements a thread, in chunks of the channels.
            add(Form::strong(dense(dtype, &[3, 33, 11003]), 5), Data::Normal, false);
        }
        for dims in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
            add(Form::strong(dense(dtype, &dims), 5), Data::Normal, dims[0] == 0);
        }
        // Planes and samples with gaps, outputs in another layout, and layouts that the CPU alone takes.
        let x = dense(dtype, &[2, 8, 4, 6]);
        let apart = strided(dtype, &[2, 8, 4, 6], &[300, 32, 6, 1]);
        add(Form::strong(apart, 5), Data::Normal, true);
        add(Form { y: Some(apart), ..Form::strong(x, 5) }, Data::Normal, false);
        add(Form { y: Some(channels_last(dtype, &[2, 8, 4, 6])), ..Form::strong(x, 5) }, Data::Normal, true);
        add(Form::strong(strided(dtype, &[2, 8, 4, 6], &[400, 50, 10, 1]), 5), Data::Normal, true);
        add(Form::strong(strided(dtype, &[2, 8, 6], &[0, 6, 1]), 3), Data::Normal, false);
        // The greatest magnitudes, a sample of each kind.
        add(Form::strong(dense(dtype, &[6, 16, 2, 2]), 5), Data::Huge, true);
        add(Form::strong(channels_last(dtype, &[6, 16, 2, 2]), 5), Data::Huge, true);
        for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
            let x = [dense(dtype, &[2, 300, 3]), channels_last(dtype, &[2, 300, 3])][i % 2];
            add(Form::strong(x, [255, 4][i / 2]), data, false);
        }
        for data in Data::ALL.into_iter().filter(|data| *data != Data::Normal) {
            for x in [dense(dtype, &[3, 20, 5, 5]), channels_last(dtype, &[3, 24, 2, 3])] {
                for size in [4, 5] {
                    add(Form::strong(x, size), data, false);
                }
            }
        }
    }
    // f16 differs from bf16 only in how elements are converted.
    forms.retain(|(form, data, core)| form.x.dtype() != DType::F16 || *core || *data == Data::Large);
    forms
}

/// The cases of a pass over every form.
fn cases(pass: fn(&Form) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = pass(form).expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    let mut cases: Vec<Case> = forms().iter().map(of).collect();
    cases.extend(pinned().iter().map(|(kernel, form)| {
        let case = of(&(form.clone(), Data::Normal, true));
        let kernel = format!("{}_{kernel}", case.descriptor.name());
        case.with(PlanOptions::default().kernel(kernel))
    }));
    distinct(cases)
}

/// Small tensors for each kernel by its name, among them such as it is not chosen for. All devices of a backend that has the kernel serve them.
fn pinned() -> Vec<(&'static str, Form)> {
    let mut forms = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        // Positions and channels are both neighbours: walk leaves the first to others, direct is left both.
        let rows = dense(dtype, &[3, 24]);
        let (image, last) = (dense(dtype, &[2, 16, 3, 5]), channels_last(dtype, &[2, 16, 3, 5]));
        forms.extend([("walk", Form::strong(rows, 5)), ("walk", Form::strong(image, 7))]);
        forms.extend([("rows", Form::strong(rows, 3)), ("rows", Form::strong(last, 9))]);
        forms.extend([("tile", Form::strong(rows, 5)), ("tile", Form::strong(last, 4))]);
        forms.extend([("direct", Form::strong(image, 5)), ("direct", Form::strong(last, 5))]);
    }
    forms
}

/// GPUs take tensors whose spatial extents collapse to one stride.
fn is_cpu_only(descriptor: &AnyDescriptor) -> bool {
    let collapses = |slot: &Slot| {
        let (dims, strides) = (slot.desc.dims(), slot.desc.strides());
        let axes: Vec<usize> = (2..dims.len()).filter(|&axis| dims[axis] > 1).collect();
        axes.windows(2).all(|pair| strides[pair[0]] == dims[pair[1]] * strides[pair[1]])
    };
    let slots = descriptor.slots();
    !slots[0].desc.dims().contains(&0) && !slots.iter().all(collapses)
}

fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let dims = slot.desc.dims();
    let data = if slot.name == "dy" { Data::Normal } else { case.data };
    let dtype = slot.desc.dtype();
    let fields = Fields::of(&case.descriptor)?;
    let largest = fields.largest(dtype, case.descriptor.name().ends_with("_backward"));
    let huge = Huge::of(dtype).at_most(largest, largest);
    Ok(data.rows_within(huge, dtype, dims[0], dims[1..].iter().product(), random))
}

/// The fields that the harness reads back from a descriptor.
struct Fields {
    batch: usize,
    channels: usize,
    spatial: usize,
    size: usize,
    /// Channels of a window of forward before its own.
    before: usize,
    scale: f64,
    beta: f64,
    k: f64,
    /// The JSON over dense f64 operands of these extents.
    json: Value,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let number = |name: &str| json[name].as_f64().with_context(|| format!("no {name}"));
        let (alpha, beta, k) = (number("alpha")?, number("beta")?, number("k")?);
        let size = json["size"].as_u64().context("no size")?;
        let longer_after = json["longer_after"].as_bool().unwrap_or(false);
        let dims: Vec<usize> = descriptor.slots()[0].desc.dims().iter().map(|&dim| dim as usize).collect();
        let plain = serde_json::json!({
            "x": {"dtype": "f64", "dims": json["x"]["dims"]},
            "size": size, "alpha": alpha, "beta": beta, "k": k, "longer_after": longer_after,
        });
        Ok(Self {
            batch: dims[0],
            channels: dims[1],
            spatial: dims[2..].iter().product(),
            size: size as usize,
            before: if longer_after { (size as usize - 1) / 2 } else { size as usize / 2 },
            scale: alpha / size as f64,
            beta,
            k,
            json: plain,
        })
    }

    /// Positions of the channels of each sample and position, in row-major order of the tensor.
    fn columns(&self) -> impl Iterator<Item = Vec<usize>> {
        let (channels, spatial) = (self.channels, self.spatial);
        (0..self.batch * spatial).map(move |column| {
            let first = column / spatial * channels * spatial + column % spatial;
            (0..channels).map(|c| first + c * spatial).collect()
        })
    }

    /// The window of forward around channel c, or that of backward.
    fn window(&self, c: usize, is_backward: bool) -> std::ops::Range<usize> {
        let before = if is_backward { self.size - self.before - 1 } else { self.before };
        c.saturating_sub(before)..(c + self.size - before).min(self.channels)
    }

    fn denominators(&self, x: &[f64]) -> Vec<f64> {
        let sum = |c| x[self.window(c, false)].iter().map(|x| x * x).sum::<f64>();
        // An infinite one counts as NaN.
        let counted = |d: f64| if d == f64::INFINITY { f64::NAN } else { d };
        (0..x.len()).map(|c| counted(self.k + self.scale * sum(c))).collect()
    }

    /// The largest magnitude that the op takes: docs/numerics.md, Valid inputs. Where all of a window has it, `d` is `alpha x^2`.
    fn largest(&self, dtype: DType, is_backward: bool) -> f64 {
        let alpha = (self.scale * self.size as f64).log2();
        let (most, power) = if dtype == DType::F64 { (500.0, 1000.0) } else { (60.0, 120.0) };
        let of_power = (power / self.beta - alpha) / 2.0;
        // The term is an intermediate in f64; what CUDA makes of it in f32 is in its budget.
        let of_term = (900.0 - (self.beta + 1.0) * alpha) / (2.0 * self.beta + 1.0);
        // Without alpha or beta one of them is no bound.
        let bounds = [most, of_power, if is_backward && dtype == DType::F64 { of_term } else { most }];
        bounds.into_iter().fold(most, f64::min).exp2()
    }

    /// `16 + 4 beta |log2 d|`.
    fn factor(&self, d: f64) -> f64 {
        16.0 + 4.0 * self.beta * d.log2().abs()
    }
}

const FORWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["y"],
    budget: "u_o |y| + u_A (16 + 4 beta |log2 d|) |y|",
    why: "The bound allows for a power computed as exp2(beta log2 d) with a rounding of the logarithm.",
}];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + u_A (16 + 4 beta max|log2 d|) (|dy| d^-beta + 2 alpha beta / size |x| sum|dy x d^(-beta - 1)|); CUDA's of f32, f16 and bf16: 2^-150 2 alpha beta / size |x| for each term of the sum more",
    why: "It adds the absolute values of terms that cancel, and takes the largest |log2 d| of the window for all.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "LRN".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let x = inputs.values("x").context("no x")?;
    let dtype = outputs.get("y").context("no y")?.dtype;
    let mut reference = run_in_f64("local_response_norm", &fields.json, &BTreeMap::from([("x", x)]))?;
    let values = reference.remove("y").context("no y")?;
    let mut budgets = vec![0.0; values.len()];
    for column in fields.columns() {
        let of_column: Vec<f64> = column.iter().map(|&i| x[i]).collect();
        for (&i, d) in column.iter().zip(fields.denominators(&of_column)) {
            let own = fields.factor(d) * values[i].abs();
            budgets[i] = budget(dtype, dtype.accumulator(), values[i], finite(own));
        }
    }
    Ok(vec![Expected { name: "y".into(), values, budgets }])
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "LRN, dx".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (dy, x) = (inputs.values("dy").context("no dy")?, inputs.values("x").context("no x")?);
    let dtype = outputs.get("dx").context("no dx")?.dtype;
    let operands = BTreeMap::from([("dy", dy), ("x", x)]);
    let mut reference = run_in_f64("local_response_norm_backward", &fields.json, &operands)?;
    let values = reference.remove("dx").context("no dx")?;
    let mut budgets = vec![0.0; values.len()];
    let slope = 2.0 * fields.scale * fields.beta;
    for column in fields.columns() {
        let of_column: Vec<f64> = column.iter().map(|&i| x[i]).collect();
        let d = fields.denominators(&of_column);
        let term = |c: usize| (dy[column[c]] * of_column[c] * d[c].powf(-fields.beta - 1.0)).abs();
        for (c, &i) in column.iter().enumerate() {
            let window = fields.window(c, true);
            // Where d is NaN, so is what comes of it.
            let is_finite = |value: &f64| value.is_finite();
            let factors = window.clone().chain([c]).map(|c| fields.factor(d[c]));
            let factor = factors.filter(is_finite).fold(0.0, f64::max);
            // On CUDA a term is a product in f32, dy d^-beta times x / d. Below 2^-126 it is rounded to the nearest multiple of 2^-149: by up to
            // 2^-150 = u_A 2^-126, however small it is, where `factor` allows for errors relative to it. Sums of such terms are exact. That of x, up
            // to 2^60, makes it matter: x = 2^40, dy = 2^-50, alpha = 1, beta = 0.75 and 5 channels give terms of 2^-150 and a dx of -2^-111, but
            // budgets of 2^-124 without this summand. What underflows before, dy d^-beta, is off by 2^-150, and x / d, with which it is multiplied,
            // times the slope and the x of any channel in its window is at most 2 beta: that is below 2^-126.
            let is_rounded = by.backend == Backend::Cuda && dtype != DType::F64;
            let rounding = if is_rounded { window.len() as f64 * 2f64.powi(-126) } else { 0.0 };
            let terms: f64 = window.map(term).filter(is_finite).sum();
            let own = dy[i].abs() * d[c].powf(-fields.beta) + slope * x[i].abs() * terms;
            budgets[i] =
                budget(dtype, dtype.accumulator(), values[i], finite(factor * own + slope * x[i].abs() * rounding));
        }
    }
    Ok(vec![Expected { name: "dx".into(), values, budgets }])
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = LocalResponseNormArgs::new(run.input("x"), run.output("y"));
    run.plan::<LocalResponseNormDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let (dy, x) = (run.input("dy"), run.input("x"));
    let args = LocalResponseNormBackwardArgs::new(dy, x, run.output("dx"));
    run.plan::<LocalResponseNormBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let image = dense(dtype, &[8, 96, 27, 27]);
    vec![
        ("size 5", Form::plain(image, 5)),
        ("even size", Form::plain(image, 4)),
        ("even size, longer after", Form { longer_after: true, ..Form::plain(image, 4) }),
        ("size beyond the channels", Form::plain(image, 200)),
        ("any beta", Form { beta: 1.3, ..Form::plain(image, 5) }),
        ("channels-last", Form::plain(channels_last(dtype, &[8, 96, 27, 27]), 5)),
        ("planes apart", Form::plain(strided(dtype, &[8, 96, 27, 27], &[96000, 1000, 27, 1]), 5)),
        ("rows of planes apart", Form::plain(strided(dtype, &[8, 96, 27, 27], &[96000, 1000, 30, 1]), 5)),
    ]
}
