//! Cross-entropy of the logits of a product, forward and backward. Expected values are the plain formulas, written here.

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, DType, Error, LinearCrossEntropyArgs, LinearCrossEntropyBackwardArgs,
    LinearCrossEntropyBackwardDescriptor, LinearCrossEntropyDescriptor, LossReduction, Slot, TensorDesc,
};

use super::cross_entropy::{largest_and_log_sum, sum, target};
use super::{CHAIN, Contract, FLOATS, Subject, TypedRun, accumulating, dense, features, json_of, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "linear_cross_entropy",
    cases: || cases(forward),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "linear_cross_entropy_backward",
    cases: || accumulating(cases(backward)),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_backward,
    contracts: BACKWARD_CONTRACTS,
    run_typed: run_backward,
    features: || features(asked_for, backward),
};

/// A forward before it is a descriptor.
#[derive(Clone)]
struct Setup {
    x: TensorDesc,
    weight: TensorDesc,
    targets: DType,
    ignored: Option<i64>,
    reduction: LossReduction,
    /// The inputs whose gradients backward computes.
    wanted: &'static [&'static str],
    /// Layouts of other operands, by their names in forward.
    layouts: Vec<(&'static str, TensorDesc)>,
}

impl Setup {
    /// Rows, classes and columns.
    fn plain(dtype: DType, [rows, classes, width]: [u64; 3]) -> Self {
        Self {
            x: dense(dtype, &[rows, width]),
            weight: dense(dtype, &[classes, width]),
            targets: DType::I64,
            ignored: Some(-100),
            reduction: LossReduction::Mean,
            wanted: &["x", "weight"],
            layouts: Vec::new(),
        }
    }

    fn each(self) -> Self {
        Self { reduction: LossReduction::None, ..self }
    }

    fn forward(&self) -> Result<LinearCrossEntropyDescriptor, Error> {
        let descriptor = LinearCrossEntropyDescriptor::new(self.x, self.weight, self.targets)?;
        let mut descriptor = descriptor.reduction(self.reduction)?;
        if let Some(ignored) = self.ignored {
            descriptor = descriptor.ignore_index(ignored)?;
        }
        self.layouts.iter().try_fold(descriptor, |descriptor, (operand, desc)| descriptor.layout(operand, *desc))
    }
}

fn forward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward().map(AnyDescriptor::new)
}

fn backward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward()?.backward(setup.wanted).map(AnyDescriptor::new)
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn setups() -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    for dtype in FLOATS {
        let mut add = |setup: Setup, data: Data, core: bool| setups.push((setup, data, core));
        // Types of targets, numbers that are ignored, reductions, gradients; one chunk of classes and two. Targets are looked at before x and its type are.
        for extents in [[6, 40, 8], [3, 1030, 5]] {
            let plain = Setup::plain(dtype, extents);
            for reduction in LossReduction::ALL {
                for (targets, ignored) in [
                    (DType::I64, Some(-100)),
                    (DType::I64, None),
                    (DType::I64, Some((1 << 32) + 1)),
                    (DType::I32, Some(-1)),
                    (DType::I32, Some(2)),
                    (DType::U32, None),
                    (DType::U32, Some(u32::MAX.into())),
                ] {
                    let is_first = ignored == Some(-100);
                    if is_first || dtype == DType::F32 && (extents[1] == 40 || reduction == LossReduction::None) {
                        let core = is_first && extents[1] == 40;
                        add(Setup { targets, ignored, reduction, ..plain.clone() }, Data::Normal, core);
                    }
                }
            }
            for wanted in [&["x"][..], &["weight"]] {
                add(Setup { wanted, ..plain.clone() }, Data::Normal, extents[1] == 40);
            }
        }
        // Around tiles and chunks; one of each; no rows.
        let extents = [
            ([1, 1, 1], true),
            ([2, 3, 1], false),
            ([7, 17, 3], true),
            ([5, 129, 33], false),
            ([65, 20, 16], false),
            ([4, 1023, 4], false),
            ([4, 1024, 4], false),
            ([4, 1025, 4], true),
            ([2, 3100, 3], false),
            ([0, 16, 4], true),
        ];
        for (extents, core) in extents {
            let setup = Setup { targets: DType::I32, ..Setup::plain(dtype, extents) };
            add(setup.clone(), Data::Normal, core);
            add(setup.each(), Data::Normal, false);
        }
        // Layouts and promises.
        let plain = Setup::plain(dtype, [6, 24, 16]).each();
        for (x, weight) in [
            (strided(dtype, &[6, 16], &[24, 1]), strided(dtype, &[24, 16], &[16, 1])),
            (strided(dtype, &[6, 16], &[1, 6]), strided(dtype, &[24, 16], &[1, 24])),
            (strided(dtype, &[6, 16], &[33, 2]), strided(dtype, &[24, 16], &[17, 1])),
            (strided(dtype, &[6, 16], &[0, 1]), strided(dtype, &[24, 16], &[18, 1])),
        ] {
            add(Setup { x, weight, ..plain.clone() }, Data::Normal, weight.strides() == [1, 24]);
        }
        let align = |desc: TensorDesc| desc.align(dtype.size_bytes()).expect("a promise");
        add(Setup { x: align(plain.x), weight: align(plain.weight), ..plain.clone() }, Data::Normal, true);
        let accumulator = dtype.accumulator();
        let layouts = vec![
            ("targets", strided(DType::I64, &[6], &[3])),
            ("loss", strided(accumulator, &[6], &[2])),
            ("logsumexp", strided(accumulator, &[6], &[5])),
        ];
        add(Setup { layouts, ..plain.clone() }, Data::Normal, true);
        add(Setup { layouts: vec![("targets", strided(DType::I64, &[6], &[0]))], ..plain }, Data::Normal, false);
        let far = Setup::plain(dtype, [3, 1100, 4]);
        add(Setup { weight: strided(dtype, &[1100, 4], &[1, 1100]), ..far }, Data::Normal, false);
        // NaN and infinities, equal, far and large numbers.
        for data in Data::ALL {
            add(Setup::plain(dtype, [6, 40, 8]).each(), data, false);
            if dtype == DType::F32 {
                add(Setup::plain(dtype, [4, 1030, 3]).each(), data, false);
            }
        }
    }
    setups
}

fn cases(pass: fn(&Setup) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(setup, data, core): &(Setup, Data, bool)| {
        let descriptor = pass(setup).expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    let cases = setups().iter().map(of).collect();
    // Beside an outlier every share is 0 or 1, and so dweight nearly constant.
    let tells = |case: &Case| case.data != Data::Outlier || case.descriptor.name() == "linear_cross_entropy";
    distinct(cases).into_iter().filter(tells).collect()
}

/// A descriptor as its slots and its JSON have it.
struct Fields {
    rows: usize,
    classes: usize,
    width: usize,
    ignored: Option<i64>,
    reduction: LossReduction,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let [x, weight] = [0, 1].map(|at| descriptor.slots()[at].desc);
        let extent = |desc: &TensorDesc, axis: usize| desc.dims()[axis] as usize;
        let reduction = match json["reduction"].as_str() {
            Some("none") => LossReduction::None,
            Some("sum") => LossReduction::Sum,
            _ => LossReduction::Mean,
        };
        let (rows, classes, width) = (extent(&x, 0), extent(&weight, 0), extent(&x, 1));
        Ok(Self { rows, classes, width, ignored: json["ignore_index"].as_i64(), reduction })
    }

    /// The class of a row that counts.
    fn class(&self, target: f64) -> Option<usize> {
        let is_class = target >= 0.0 && target < self.classes as f64 && !self.is_ignored(target);
        is_class.then_some(target as usize)
    }

    fn is_ignored(&self, target: f64) -> bool {
        self.ignored.is_some_and(|ignored| ignored as f64 == target)
    }

    /// Logits of a row, and of each what rounding its sum may take from it, in units of the accumulator's.
    fn logits(&self, row: usize, x: &[f64], weight: &[f64]) -> Vec<(f64, f64)> {
        let values = &x[row * self.width..][..self.width];
        let of = |weights: &[f64]| {
            let products = || values.iter().zip(weights).map(|(value, weight)| value * weight);
            (sum(products()), (8.0 + self.width as f64 / 4.0) * products().map(f64::abs).sum::<f64>())
        };
        weight.chunks(self.width).map(of).collect()
    }
}

/// The logarithm of the sum of exponentials: infinite if one is infinity.
fn log_sum_exp(logits: &[(f64, f64)]) -> f64 {
    let (largest, log_sum) = largest_and_log_sum(logits.iter().map(|logit| logit.0));
    if largest.is_finite() { largest + log_sum } else { largest }
}

fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_forward = descriptor.name() == "linear_cross_entropy";
    // Of one target for all rows none may count.
    let has_one_target = descriptor.slots()[2].desc.strides() == [0];
    Fields::of(descriptor).is_ok_and(|fields| {
        let is_reduced = is_forward && fields.reduction != LossReduction::None;
        is_reduced || has_one_target || fields.rows < 3 || fields.classes < 3
    })
}

fn input(case: &Case, slot: &Slot, random: &mut Random, inputs: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements() as usize);
    match slot.name {
        "x" => {
            // Logits and their differences are finite. Those of backward are known to a small part of 1, since shares are exponentials of their differences.
            let is_forward = case.descriptor.name() == "linear_cross_entropy";
            let largest: f64 = match (dtype, is_forward) {
                (DType::F64, true) => 500f64.exp2(),
                (DType::F64, false) => 40f64.exp2(),
                (_, true) => 50f64.exp2(),
                (_, false) => 12f64.exp2(),
            };
            let huge = Huge::of(dtype).at_most(largest, largest);
            Ok(case.data.rows_within(huge, dtype, fields.rows as u64, fields.width as u64, random))
        }
        // Logits are about as large as the elements of x.
        "weight" => {
            let scale = 1.5 / (fields.width as f64).sqrt();
            Ok((0..elements).map(|_| scale * random.normal()).collect())
        }
        "targets" => {
            // Where losses are added up, one target out of range leaves nothing to compare.
            let is_forward = case.descriptor.name() == "linear_cross_entropy";
            let has_wrong = !is_forward || fields.reduction == LossReduction::None;
            let of = |_| target(fields.classes as f64, fields.ignored, dtype, has_wrong, random);
            Ok((0..elements).map(of).collect())
        }
        "divisor" => {
            let targets = inputs.values("targets").context("no targets")?;
            Ok(vec![targets.iter().filter(|&&target| fields.class(target).is_some()).count().max(1) as f64])
        }
        "logsumexp" => {
            let (x, weight) = (inputs.values("x").context("no x")?, inputs.values("weight").context("no weight")?);
            Ok((0..fields.rows).map(|row| log_sum_exp(&fields.logits(row, x, weight))).collect())
        }
        _ => Ok((0..elements).map(|_| random.normal()).collect()),
    }
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["loss"],
        budget: "of a row u_o |loss| + u_A (e + (8 + D/4) sum|x w_t| + |logit_t|), with e as for logsumexp; sums and means as of cross_entropy",
        why: "As for the logits of gemm and the sums of reduce: the bound lets all roundings have one sign.",
    },
    Contract {
        outputs: &["logsumexp"],
        budget: "u_o |logsumexp| + u_A e, e = sum(p (8 + D/4) sum|x w|) + 2 |logsumexp| + 2 (ln(V) + 48/4 + 32); p = exp(logit - logsumexp)",
        why: "As for loss; of two sums of exponentials, one of those of chunks.",
    },
    Contract { outputs: &["divisor"], budget: "0", why: "Counts up to 2^24 are exact." },
];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx", "dweight"],
    budget: "u_o |grad| + sum(r |factor|) + u_A (8 + L/4) sum|dlogits factor|, L terms a sum; r = u_A |g| (p ((8 + D/4) sum|x w| + |logit - logsumexp| + 12) + 4 \
             |p - [v = t]|) + 2^-126 |g|, and for f16 and bf16 the rounding of dlogits",
    why: "As for loss; random roundings cancel.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "linear cross-entropy".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (x, weight) = (inputs.values("x").context("no x")?, inputs.values("weight").context("no weight")?);
    let targets = inputs.values("targets").context("no targets")?;
    let accumulator = descriptor.slots()[0].desc.dtype().accumulator();
    let roundings = 2.0 * ((fields.classes as f64).ln() + CHAIN / 4.0 + 32.0);
    let (mut losses, mut allowances, mut logsumexps, mut of_logsumexps) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (row, &target) in targets.iter().enumerate().take(fields.rows) {
        let logits = fields.logits(row, x, weight);
        let logsumexp = log_sum_exp(&logits);
        // A class of logit -infinity has no share, though its products have no bound.
        let shares = logits.iter().map(|(logit, lost)| ((logit - logsumexp).exp(), lost));
        let of_logits: f64 = shares.filter(|(share, _)| *share != 0.0).map(|(share, lost)| share * lost).sum();
        let of_logsumexp = of_logits + 2.0 * logsumexp.abs() + roundings;
        let (loss, allowance) = match fields.class(target) {
            Some(class) => (logsumexp - logits[class].0, of_logsumexp + logits[class].1 + logits[class].0.abs()),
            None if fields.is_ignored(target) => (0.0, 0.0),
            None => (f64::NAN, 0.0),
        };
        losses.push(loss);
        allowances.push(finite(allowance));
        logsumexps.push(logsumexp);
        of_logsumexps.push(finite(of_logsumexp));
    }
    let divisor = targets.iter().filter(|&&target| fields.class(target).is_some()).count() as f64;
    let each = |values: &[f64], allowances: &[f64]| {
        let of = |(&value, &allowance): (&f64, &f64)| budget(accumulator, accumulator, value, allowance);
        values.iter().zip(allowances).map(of).collect::<Vec<f64>>()
    };
    let mut expected = Vec::new();
    if fields.reduction == LossReduction::None {
        let budgets = each(&losses, &allowances);
        expected.push(Expected { name: "loss".into(), values: losses, budgets });
    } else {
        let total = sum(losses.iter().copied());
        let magnitudes: f64 = losses.iter().map(|loss| loss.abs()).sum();
        let allowance = allowances.iter().sum::<f64>() + (8.0 + CHAIN / 4.0) * magnitudes;
        let (value, allowance) = match fields.reduction {
            LossReduction::Mean => (total / divisor, allowance / divisor + 2.0 * (total / divisor).abs()),
            _ => (total, allowance),
        };
        let budgets = each(&[value], &[finite(allowance)]);
        expected.push(Expected { name: "loss".into(), values: vec![value], budgets });
    }
    let budgets = each(&logsumexps, &of_logsumexps);
    expected.push(Expected { name: "logsumexp".into(), values: logsumexps, budgets });
    if fields.reduction == LossReduction::Mean {
        expected.push(Expected { name: "divisor".into(), values: vec![divisor], budgets: vec![0.0] });
    }
    Ok(expected)
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "linear cross-entropy, dx, dweight".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (x, weight) = (inputs.values("x").context("no x")?, inputs.values("weight").context("no weight")?);
    let of_input = |name: &str| inputs.values(name).with_context(|| format!("no {name}"));
    let (targets, dloss, logsumexp) = (of_input("targets")?, of_input("dloss")?, of_input("logsumexp")?);
    let divisor = inputs.values("divisor").map_or(1.0, |divisor| divisor[0]);
    let dtype = descriptor.slots()[0].desc.dtype();
    let accumulator = dtype.accumulator();
    // Of each logit the gradient, and what it may differ by, in units of the accumulator's.
    let mut gradients = vec![(0.0, 0.0); fields.rows * fields.classes];
    for (row, gradients) in gradients.chunks_mut(fields.classes).enumerate() {
        let Some(target) = fields.class(targets[row]) else { continue };
        let g = dloss[if dloss.len() == 1 { 0 } else { row }] / divisor;
        if g == 0.0 {
            continue;
        }
        for (class, (logit, lost)) in fields.logits(row, x, weight).into_iter().enumerate() {
            let apart = logit - logsumexp[row];
            let (share, one) = (apart.exp(), if class == target { 1.0 } else { 0.0 });
            let of_share = if share == 0.0 { 0.0 } else { share * (lost + apart.abs() + 12.0) };
            let value = (share - one) * g;
            let of_vanishing = f64::from(f32::MIN_POSITIVE) * g.abs();
            let of_narrow = match dtype == accumulator {
                true => 0.0,
                false => dtype.unit_roundoff() * value.abs() + dtype.smallest_subnormal() / 2.0,
            };
            let allowance = g.abs() * (of_share + 4.0 * (share - one).abs());
            gradients[class] = (value, allowance + (of_vanishing + of_narrow) / accumulator.unit_roundoff());
        }
    }
    let mut expected = Vec::new();
    for name in ["dx", "dweight"] {
        if outputs.get(name).is_none() {
            continue;
        }
        // Where the gradient of a term lies, and its factor.
        let (count, terms, factors) = match name {
            "dx" => (fields.rows, fields.classes, weight),
            _ => (fields.classes, fields.rows, x),
        };
        let (mut values, mut budgets) = (Vec::new(), Vec::new());
        for at in 0..count {
            let gradient = |term: usize| match name {
                "dx" => gradients[at * fields.classes + term],
                _ => gradients[term * fields.classes + at],
            };
            for column in 0..fields.width {
                let factor = |term: usize| factors[term * fields.width + column];
                let value = sum((0..terms).map(|term| gradient(term).0 * factor(term)));
                let roundings = 8.0 + terms as f64 / 4.0;
                let allowance = (0..terms).map(|term| {
                    let (gradient, lost) = gradient(term);
                    (lost + roundings * gradient.abs()) * factor(term).abs()
                });
                values.push(value);
                budgets.push(budget(dtype, accumulator, value, finite(allowance.sum())));
            }
        }
        expected.push(Expected { name: name.into(), values, budgets });
    }
    Ok(expected)
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let (x, weight, targets) = (run.input("x"), run.input("weight"), run.input("targets"));
    let mut args = LinearCrossEntropyArgs::new(x, weight, targets, run.output("loss"), run.output("logsumexp"));
    args.divisor = run.named.mem_mut("divisor");
    run.plan::<LinearCrossEntropyDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let (x, weight, targets) = (run.input("x"), run.input("weight"), run.input("targets"));
    let mut args = LinearCrossEntropyBackwardArgs::new(x, weight, targets, run.input("dloss"), run.input("logsumexp"));
    args.divisor = run.named.mem("divisor");
    args.dx = run.named.mem_mut("dx");
    args.dweight = run.named.mem_mut("dweight");
    run.plan::<LinearCrossEntropyBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Setup)> {
    let plain = Setup::plain(dtype, [128, 1024, 128]);
    vec![
        ("mean", plain.clone()),
        ("each row", plain.clone().each()),
        ("targets of i32", Setup { targets: DType::I32, ..plain.clone() }),
        ("rows apart", Setup { x: strided(dtype, &[128, 128], &[256, 1]), ..plain.clone() }),
        ("weight transposed", Setup { weight: strided(dtype, &[1024, 128], &[1, 1024]), ..plain.clone() }),
        ("frozen weight", Setup { wanted: &["x"], ..plain }),
        ("8192 rows, 128256 classes, width 4096", Setup::plain(dtype, [8192, 128_256, 4096])),
    ]
}
