//! Cross-entropy along any axis, forward and backward. Expected values are the plain formulas, written here.

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, CrossEntropyArgs, CrossEntropyBackwardArgs, CrossEntropyBackwardDescriptor, CrossEntropyDescriptor,
    DType, Error, LossReduction, Slot, TensorDesc,
};
use serde_json::Value;

use super::{
    CHAIN, Contract, FLOATS, Subject, TypedRun, accumulating, channels_last, dense, features, json_of, strided,
};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "cross_entropy",
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
    name: "cross_entropy_backward",
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
    axis: usize,
    targets: DType,
    ignored: Option<i64>,
    reduction: LossReduction,
    stats: bool,
    weight: Option<DType>,
    smoothing: f64,
    z: f64,
    missing: bool,
    /// Layouts of operands other than x, by their names in forward.
    layouts: Vec<(&'static str, TensorDesc)>,
}

impl Setup {
    fn plain(x: TensorDesc, axis: usize) -> Self {
        let (targets, reduction) = (DType::I64, LossReduction::Mean);
        let (weight, smoothing, z, missing) = (None, 0.0, 0.0, false);
        Self {
            x,
            axis,
            targets,
            ignored: None,
            reduction,
            stats: false,
            weight,
            smoothing,
            z,
            missing,
            layouts: Vec::new(),
        }
    }

    fn each(self) -> Self {
        Self { reduction: LossReduction::None, ..self }
    }

    fn ignoring(self, targets: DType, ignored: i64) -> Self {
        Self { targets, ignored: Some(ignored), ..self }
    }

    fn stats(self) -> Self {
        Self { stats: true, ..self }
    }

    /// With a weight of x's type, label smoothing and a z-loss.
    fn all(self) -> Self {
        Self { weight: Some(self.x.dtype()), smoothing: 0.1, z: 1e-3, ..self }
    }

    fn counted(self) -> Self {
        Self { missing: true, ..self }
    }

    fn forward(&self) -> Result<CrossEntropyDescriptor, Error> {
        let mut descriptor = CrossEntropyDescriptor::new(self.x, self.axis, self.targets)?.reduction(self.reduction)?;
        if let Some(ignored) = self.ignored {
            descriptor = descriptor.ignore_index(ignored)?;
        }
        if self.stats {
            descriptor = descriptor.stats()?;
        }
        if let Some(weight) = self.weight {
            descriptor = descriptor.weight(weight)?;
        }
        if self.missing {
            descriptor = descriptor.count_missing()?;
        }
        descriptor = descriptor.label_smoothing(self.smoothing)?.z_loss(self.z)?;
        self.layouts.iter().try_fold(descriptor, |descriptor, (operand, desc)| descriptor.layout(operand, *desc))
    }
}

fn forward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward().map(AnyDescriptor::new)
}

fn backward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward()?.backward().map(AnyDescriptor::new)
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn setups() -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    for dtype in FLOATS {
        let mut add = |setup: Setup, data: Data, core: bool| setups.push((setup, data, core));
        // Types of targets, numbers that are ignored, reductions, statistics; rows and channels.
        for (dims, axis) in [(&[6, 40][..], 1), (&[3, 5, 7], 1)] {
            let x = dense(dtype, dims);
            for reduction in LossReduction::ALL {
                for (targets, ignored) in [
                    (DType::I64, None),
                    (DType::I64, Some(-100)),
                    (DType::I64, Some((1 << 32) + 1)),
                    (DType::I32, Some(-1)),
                    (DType::I32, Some(2)),
                    (DType::U32, None),
                    (DType::U32, Some(u32::MAX.into())),
                ] {
                    let setup = Setup { targets, ignored, reduction, ..Setup::plain(x, axis) };
                    add(setup.clone(), Data::Normal, ignored == Some(-100) && dims.len() == 2);
                    add(setup.stats(), Data::Normal, targets == DType::I32);
                }
            }
        }
        // Around the widths of accesses, batches and teams; lines that several blocks add up; none.
        let rows: [(u64, u64, bool); 20] = [
            (1, 1, true),
            (3, 1, false),
            (3, 2, false),
            (7, 17, true),
            (5, 31, false),
            (5, 33, false),
            (5, 127, false),
            (5, 128, true),
            (5, 129, false),
            (3, 1023, true),
            (3, 1024, false),
            (3, 2056, false),
            (2, 4097, false),
            (3, 16_384, false),
            (2, 100_003, false),
            (129, 1000, true),
            (4097, 3, true),
            (9001, 8, false),
            (0, 16, true),
            (65_537, 2, false),
        ];
        for (lines, classes, core) in rows {
            if dtype == DType::F64 && lines * classes > 20_000 {
                continue;
            }
            let setup = Setup::plain(dense(dtype, &[lines, classes]), 1).ignoring(DType::I32, -100);
            add(setup.clone(), Data::Normal, core);
            add(setup.stats().each(), Data::Normal, core && lines < 4097);
        }
        let channels: [(&[u64], usize, bool); 9] = [
            (&[2, 21, 16, 16], 1, true),
            (&[33, 9], 0, true),
            (&[2, 300, 130], 1, false),
            (&[1, 9000, 20], 1, false),
            (&[20_000, 3], 0, false),
            (&[2, 3, 5, 4, 6], 0, false),
            (&[2, 3, 5, 4, 6], 2, true),
            (&[2, 1, 5], 1, false),
            (&[2, 3, 0], 1, true),
        ];
        for (dims, axis, core) in channels {
            if dtype == DType::F64 && dims.iter().product::<u64>() > 20_000 {
                continue;
            }
            let setup = Setup::plain(dense(dtype, dims), axis).ignoring(DType::I64, -100);
            add(setup.clone(), Data::Normal, core);
            add(setup.stats().each(), Data::Normal, core);
        }
        add(Setup::plain(dense(dtype, &[]), 0), Data::Normal, true);
        add(Setup::plain(dense(dtype, &[]), 0).each().stats(), Data::Normal, false);
        add(Setup::plain(dense(dtype, &[9]), 0).each(), Data::Normal, true);
        // Layouts of x and of the others, promises.
        let of_none = |x: TensorDesc, axis: usize| Setup::plain(x, axis).each().stats();
        add(of_none(strided(dtype, &[6, 64], &[72, 1]), 1), Data::Normal, true);
        add(of_none(strided(dtype, &[6, 64], &[65, 1]), 1), Data::Normal, false);
        add(of_none(strided(dtype, &[6, 64], &[1, 6]), 1), Data::Normal, true);
        add(of_none(strided(dtype, &[6, 33], &[70, 2]), 1), Data::Normal, false);
        add(of_none(strided(dtype, &[6, 40], &[0, 1]), 1), Data::Normal, true);
        add(of_none(strided(dtype, &[6, 40], &[1, 0]), 1), Data::Normal, false);
        add(of_none(dense(dtype, &[6, 64]).align(dtype.size_bytes()).expect("a promise"), 1), Data::Normal, true);
        add(Setup::plain(channels_last(dtype, &[2, 24, 5, 3]), 1), Data::Normal, true);
        add(of_none(channels_last(dtype, &[2, 21, 5, 3]), 1), Data::Normal, false);
        add(of_none(strided(dtype, &[2, 3, 5, 32], &[480, 32, 96, 1]), 3), Data::Normal, true);
        let accumulator = dtype.accumulator();
        let layouts = vec![
            ("targets", strided(DType::I64, &[4, 5], &[1, 4])),
            ("loss", strided(accumulator, &[4, 5], &[12, 2])),
            ("logsumexp", strided(accumulator, &[4, 5], &[1, 5])),
        ];
        add(Setup { layouts, ..of_none(dense(dtype, &[4, 12, 5]), 1) }, Data::Normal, true);
        let layouts = vec![("targets", strided(DType::I64, &[6], &[0]))];
        add(Setup { layouts, ..Setup::plain(dense(dtype, &[6, 12]), 1) }, Data::Normal, false);
        options(dtype, &mut add);
        // NaN and infinities, equal, far and large numbers.
        for data in Data::ALL.into_iter().chain(Data::STRUCTURED) {
            for (dims, axis) in [(&[4, 300][..], 1), (&[3, 21, 20], 1), (&[3, 2504], 1), (&[1500, 3], 0)] {
                let setup = Setup::plain(dense(dtype, dims), axis).ignoring(DType::I32, -100);
                add(setup.clone(), data, false);
                // Outliers are what logsumexp is, of every line.
                let setup = if data == Data::Outlier { setup } else { setup.stats() };
                add(setup.each(), data, false);
            }
            let options = Setup::plain(dense(dtype, &[4, 300]), 1).ignoring(DType::I32, -100).each().all();
            add(options.clone(), data, false);
            add(Setup { z: 0.0, stats: data != Data::Outlier, ..options.clone() }, data, false);
            add(Setup { weight: None, ..options }, data, false);
        }
    }
    setups
}

/// Weights of classes, label smoothing, z-losses, and counts of targets that are out of range.
fn options(dtype: DType, add: &mut impl FnMut(Setup, Data, bool)) {
    for (dims, axis) in [(&[6, 40][..], 1), (&[3, 5, 7], 1)] {
        let plain = Setup::plain(dense(dtype, dims), axis).ignoring(DType::I64, -100);
        for reduction in LossReduction::ALL {
            for weight in [None, Some(dtype), Some(DType::F32)] {
                for (smoothing, z) in [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-2), (0.75, 1e-4)] {
                    let setup = Setup { reduction, weight, smoothing, z, ..plain.clone() };
                    let core = reduction != LossReduction::Sum && weight != Some(DType::F32) && dims.len() == 2;
                    add(setup.clone(), Data::Normal, core && smoothing != 0.1);
                    add(setup.stats(), Data::Normal, core && smoothing == 0.1);
                }
            }
        }
    }
    // Around the widths of accesses, batches and teams; lines that several blocks add up; none; channels.
    let shapes: [(&[u64], usize, bool); 15] = [
        (&[1, 1], 1, true),
        (&[3, 2], 1, false),
        (&[7, 17], 1, true),
        (&[5, 129], 1, true),
        (&[5, 128], 1, false),
        (&[3, 2056], 1, true),
        (&[2, 4097], 1, false),
        (&[3, 16_384], 1, false),
        (&[2, 100_003], 1, false),
        (&[4097, 3], 1, true),
        (&[0, 16], 1, true),
        (&[2, 21, 16, 16], 1, true),
        (&[1, 9000, 20], 1, false),
        (&[2, 3, 5, 4, 6], 2, false),
        (&[], 0, true),
    ];
    for (dims, axis, core) in shapes {
        if dtype == DType::F64 && dims.iter().product::<u64>() > 20_000 {
            continue;
        }
        let setup = Setup::plain(dense(dtype, dims), axis).ignoring(DType::I32, -100);
        add(setup.clone().all(), Data::Normal, core);
        add(setup.clone().all().stats().each(), Data::Normal, core && dims != [4097, 3]);
        add(setup.clone().each().counted(), Data::Normal, core);
        // No target is out of range.
        add(setup.counted(), Data::Normal, false);
    }
    for (step, core) in [(3, true), (0, false)] {
        for weight in [dtype, DType::F32] {
            let layouts = vec![("weight", strided(weight, &[40], &[step]))];
            let setup = Setup::plain(dense(dtype, &[6, 40]), 1).each().all();
            add(Setup { weight: Some(weight), layouts, ..setup }, Data::Normal, core);
        }
    }
    add(Setup::plain(strided(dtype, &[6, 64], &[1, 6]), 1).each().all(), Data::Normal, true);
    add(Setup::plain(channels_last(dtype, &[2, 24, 5, 3]), 1).all().stats(), Data::Normal, false);
    probabilities(dtype, add);
    for targets in [DType::I64, DType::I32, DType::U32] {
        let setup = Setup { targets, ..Setup::plain(dense(dtype, &[700, 5]), 1).each().counted() };
        add(setup.clone(), Data::Normal, true);
        add(setup.ignoring(targets, 7).all(), Data::Normal, targets == DType::I64);
    }
    let layouts = vec![("targets", strided(DType::I64, &[4, 5], &[1, 4]))];
    add(Setup { layouts, ..Setup::plain(dense(dtype, &[4, 12, 5]), 1).each().counted() }, Data::Normal, true);
    let layouts = vec![("targets", strided(DType::I64, &[6], &[0]))];
    add(Setup { layouts, ..Setup::plain(dense(dtype, &[6, 12]), 1).each().counted() }, Data::Normal, false);
}

/// Targets that are probabilities of all classes.
fn probabilities(dtype: DType, add: &mut impl FnMut(Setup, Data, bool)) {
    let of = |targets, dims: &[u64], axis| Setup { targets, ..Setup::plain(dense(dtype, dims), axis) };
    for (dims, axis) in [(&[6, 40][..], 1), (&[3, 5, 7], 1)] {
        for reduction in LossReduction::ALL {
            for weight in [None, Some(dtype), Some(DType::F32)] {
                for (smoothing, z) in [(0.0, 0.0), (0.1, 0.0), (0.1, 1e-2)] {
                    let core = reduction != LossReduction::Sum && weight != Some(DType::F32) && dims.len() == 2;
                    let setup = Setup { reduction, weight, smoothing, z, ..of(dtype, dims, axis) };
                    add(setup.clone(), Data::Normal, core && z == 0.0);
                    add(Setup { targets: DType::F32, ..setup }.stats(), Data::Normal, core && z > 0.0);
                }
            }
        }
    }
    let shapes: [(&[u64], usize, bool); 11] = [
        (&[1, 1], 1, true),
        (&[7, 17], 1, true),
        (&[5, 129], 1, false),
        (&[5, 128], 1, true),
        (&[3, 2056], 1, false),
        (&[2, 4097], 1, false),
        (&[4097, 3], 1, false),
        (&[0, 16], 1, true),
        (&[2, 21, 16, 16], 1, true),
        (&[2, 3, 5, 4, 6], 2, false),
        (&[], 0, true),
    ];
    for (dims, axis, core) in shapes {
        if dtype == DType::F64 && dims.iter().product::<u64>() > 20_000 {
            continue;
        }
        add(of(dtype, dims, axis), Data::Normal, core);
        add(of(DType::F32, dims, axis).all().stats().each(), Data::Normal, core);
    }
    for data in Data::ALL {
        add(of(dtype, &[4, 300], 1).each(), data, false);
        add(of(DType::F32, &[3, 21, 20], 1).each(), data, false);
    }
    // Layouts of the probabilities.
    for strides in [[1, 6], [0, 1], [70, 1], [80, 2]] {
        let layouts = vec![("targets", strided(dtype, &[6, 40], &strides))];
        add(Setup { layouts, ..of(dtype, &[6, 40], 1).each() }, Data::Normal, strides == [1, 6]);
    }
    let x = strided(dtype, &[6, 64], &[1, 6]);
    add(Setup { targets: dtype, ..Setup::plain(x, 1).each().all() }, Data::Normal, false);
}

fn cases(pass: fn(&Setup) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(setup, data, core): &(Setup, Data, bool)| {
        let descriptor = pass(setup).expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    let cases = setups().iter().map(of).collect();
    // Beside an outlier every share is 0 or 1, and so dx nearly constant.
    let tells = |case: &Case| case.data != Data::Outlier || case.descriptor.name() == "cross_entropy";
    distinct(cases).into_iter().filter(tells).collect()
}

/// A descriptor as its JSON has it.
struct Fields {
    dims: Vec<usize>,
    axis: usize,
    has_probabilities: bool,
    ignored: Option<i64>,
    reduction: LossReduction,
    stats: bool,
    has_weight: bool,
    smoothing: f64,
    z: f64,
    missing: bool,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json: Value = json_of(descriptor)?;
        let dims = descriptor.slots()[0].desc.dims().iter().map(|&dim| dim as usize).collect();
        let reduction = match json["reduction"].as_str() {
            Some("none") => LossReduction::None,
            Some("sum") => LossReduction::Sum,
            _ => LossReduction::Mean,
        };
        Ok(Self {
            dims,
            axis: json["axis"].as_u64().context("an axis")? as usize,
            has_probabilities: json["targets"].as_str().is_some_and(|name| name.starts_with(['f', 'b'])),
            ignored: json["ignore_index"].as_i64(),
            reduction,
            stats: json["stats"].as_bool().unwrap_or(false),
            has_weight: json["weight"].is_string(),
            smoothing: json["label_smoothing"].as_f64().unwrap_or(0.0),
            z: json["z_loss"].as_f64().unwrap_or(0.0),
            missing: json["missing"].as_bool().unwrap_or(false),
        })
    }

    /// What the target's loss counts, and that of each class beside it.
    fn shares(&self) -> [f64; 2] {
        [1.0 - self.smoothing, self.smoothing / self.classes() as f64]
    }

    /// What the class of an element of x counts beside its weight, with probabilities: the number, and the sum of the magnitudes that it is made of.
    fn probability(&self, probability: f64) -> [f64; 2] {
        let [keep, smooth] = self.shares();
        [keep * probability + smooth, keep * probability.abs() + smooth]
    }

    /// The weights of all classes.
    fn weights(&self, inputs: &Tensors) -> Result<Vec<f64>> {
        match self.has_weight {
            true => Ok(inputs.values("weight").context("no weight")?.to_vec()),
            // Without lines there may be any number of classes.
            false if self.dims.contains(&0) => Ok(Vec::new()),
            false => Ok(vec![1.0; self.classes()]),
        }
    }

    fn classes(&self) -> usize {
        self.dims.get(self.axis).copied().unwrap_or(1)
    }

    /// Places of the elements of each line, in row-major order of x. Lines are in the order of the targets.
    fn lines(&self) -> Vec<Vec<usize>> {
        let inner: usize = self.dims.iter().skip(self.axis + 1).product();
        let outer: usize = self.dims.iter().take(self.axis).product();
        let classes = self.classes();
        let line = |number: usize| -> Vec<usize> {
            let first = number / inner * classes * inner + number % inner;
            (0..classes).map(|class| first + class * inner).collect()
        };
        (0..outer * inner).map(line).collect()
    }

    /// The class of a line that counts.
    fn class(&self, target: f64) -> Option<usize> {
        let is_class = target >= 0.0 && target < self.classes() as f64 && !self.is_ignored(target);
        is_class.then_some(target as usize)
    }

    fn is_ignored(&self, target: f64) -> bool {
        self.ignored.is_some_and(|ignored| ignored as f64 == target)
    }
}

/// The greatest element and the logarithm of the sum of the exponentials of the differences from it.
pub(super) fn largest_and_log_sum(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let largest = values.clone().fold(f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a });
    (largest, sum(values.map(|value| (value - largest).exp())).ln())
}

/// A sum that carries the rounding errors along; if a term is not finite, what IEEE arithmetic gives.
pub(super) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, lost) = values.fold((0f64, 0.0), |(sum, lost), value| {
        let next = sum + value;
        let (large, small) = if sum.abs() >= value.abs() { (sum, value) } else { (value, sum) };
        (next, lost + ((large - next) + small))
    });
    if sum.is_finite() { sum + lost } else { sum }
}

fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_forward = descriptor.name() == "cross_entropy";
    let x = &descriptor.slots()[0].desc;
    Fields::of(descriptor).is_ok_and(|fields| {
        let is_reduced = is_forward && fields.reduction != LossReduction::None;
        // Of many classes gradients vanish in f16.
        is_reduced || !(3..50_000).contains(&fields.classes()) || x.elements() < 200 || x.strides().contains(&0)
    })
}

fn input(case: &Case, slot: &Slot, random: &mut Random, inputs: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements() as usize);
    let is_forward = case.descriptor.name() == "cross_entropy";
    match slot.name {
        "x" => {
            let lines = fields.lines();
            // Differences and the sum over lines stay within the range of the accumulator.
            let largest = if dtype == DType::F64 { 2f64.powi(1000) } else { 2f64.powi(110) };
            // Squares of logsumexp do, too.
            let largest = if fields.z > 0.0 { largest.sqrt() } else { largest };
            let huge = Huge::of(dtype).at_most(largest, largest);
            let classes = fields.classes() as u64;
            let rows = case.data.rows_within(huge, dtype, lines.len() as u64, classes, random);
            let mut values = vec![0.0; rows.len()];
            for (number, (row, line)) in rows.chunks(fields.classes().max(1)).zip(&lines).enumerate() {
                for (value, &at) in row.iter().zip(line) {
                    // With -infinity also a line of nothing else.
                    values[at] = if case.data == Data::NegInf && number == 2 { f64::NEG_INFINITY } else { *value };
                }
            }
            Ok(values)
        }
        "targets" if fields.has_probabilities => {
            let mut values = vec![0.0; elements];
            for line in fields.lines() {
                line.iter().for_each(|&at| values[at] = random.uniform().powi(4));
                let total: f64 = line.iter().map(|&at| values[at]).sum();
                line.iter().for_each(|&at| values[at] /= total.max(1e-3));
            }
            Ok(values)
        }
        "targets" => {
            // Where losses are added up, one target out of range leaves nothing to compare.
            let has_wrong = !is_forward || fields.reduction == LossReduction::None || case.data == Data::Outlier;
            let of = |_| target(fields.classes() as f64, fields.ignored, dtype, has_wrong, random);
            Ok((0..elements).map(of).collect())
        }
        "divisor" => {
            if fields.has_probabilities {
                return Ok(vec![fields.lines().len() as f64]);
            }
            let targets = inputs.values("targets").context("no targets")?;
            let weights = fields.weights(inputs)?;
            Ok(vec![targets.iter().filter_map(|&target| fields.class(target)).map(|class| weights[class]).sum()])
        }
        // The mean's divisor is not 0, and its terms do not cancel.
        "weight" if fields.reduction == LossReduction::Mean => {
            Ok((0..elements).map(|_| 0.25 + random.uniform()).collect())
        }
        "weight" => {
            let of = |random: &mut Random| if random.uniform() < 0.1 { 0.0 } else { random.normal() };
            Ok((0..elements).map(|_| of(random)).collect())
        }
        "logsumexp" => {
            let x = inputs.values("x").context("no x")?;
            let of = |line: &Vec<usize>| {
                let (largest, log_sum) = largest_and_log_sum(line.iter().map(|&at| x[at]));
                if largest == f64::NEG_INFINITY { largest } else { largest + log_sum }
            };
            Ok(fields.lines().iter().map(of).collect())
        }
        _ => Ok((0..elements).map(|_| random.normal()).collect()),
    }
}

/// A target: mostly a class, of seven one that is ignored, and of twelve one out of range.
pub(super) fn target(classes: f64, ignored: Option<i64>, dtype: DType, has_wrong: bool, random: &mut Random) -> f64 {
    let class = (classes * random.uniform()).floor();
    let (kind, which) = (random.uniform(), random.uniform());
    match ignored {
        Some(ignored) if kind < 1.0 / 7.0 => return ignored as f64,
        _ if !has_wrong || kind < 11.0 / 12.0 => return class,
        _ => {}
    }
    let wrong: &[f64] = match dtype {
        // The lower half of the first two is a class.
        DType::I64 => &[class + 2f64.powi(32), class - 2f64.powi(32), -1.0, classes, -(2f64.powi(63)), 2f64.powi(62)],
        DType::I32 => &[-1.0, classes, -(2f64.powi(31)), 2f64.powi(31) - 1.0, classes + 7.0],
        _ => &[classes, classes + 1.0, 2f64.powi(31), 2f64.powi(32) - 1.0],
    };
    wrong[(which * wrong.len() as f64) as usize % wrong.len()]
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["loss"],
        budget: "of a line u_o |loss| + u_A (|max - x[t]| + ln(classes) + 48/4 + 32), with options as docs/numerics.md says; sums: the sum of these in u_A + u_A (8 + 48/4) sum|losses|; means: by the \
                 divisor, + 2 u_A |mean|",
        why: "The bound lets the roundings of all exponentials have one sign, and allows for 48 additions one after the other and for exponentials about a \
              number by 8 below the largest.",
    },
    Contract {
        outputs: &["logsumexp"],
        budget: "u_o |logsumexp| + u_A (|logsumexp| + ln(classes) + 48/4 + 32)",
        why: "As for loss; random roundings cancel.",
    },
    Contract {
        outputs: &["divisor"],
        budget: "u_A |divisor|, with weights u_A (8 + 48/4) |divisor|",
        why: "Counts up to 2^24 are exact; weights are added up as losses are.",
    },
    Contract { outputs: &["missing"], budget: "0", why: "Targets are counted." },
];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + u_A |g| ((|x - max| + 48/4 + 32) p + 4 |p - [i = t]|) + 2^-126 |g|, with stats (|x - logsumexp| + 12) p in place of the first; p = exp(x - \
             logsumexp); with options as docs/numerics.md says",
    why: "As for loss; random roundings cancel.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "cross-entropy".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (x, targets) = (inputs.values("x").context("no x")?, inputs.values("targets").context("no targets")?);
    let accumulator = descriptor.slots()[0].desc.dtype().accumulator();
    let lines = fields.lines();
    let roundings = (fields.classes() as f64).ln() + CHAIN / 4.0 + 32.0;
    let (mut losses, mut allowances, mut logsumexps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut of_targets, mut missing) = (Vec::new(), 0.0);
    let (weights, [keep, smooth]) = (fields.weights(inputs)?, fields.shares());
    let is_plain = !fields.has_weight && smooth == 0.0 && fields.z == 0.0;
    for (number, line) in lines.iter().enumerate() {
        let (largest, log_sum) = largest_and_log_sum(line.iter().map(|&at| x[at]));
        // Of -infinity alone the differences are no numbers.
        logsumexps.push(if largest == f64::NEG_INFINITY { largest } else { largest + log_sum });
        if fields.has_probabilities {
            let logsumexp = largest + log_sum;
            let (mut loss, mut allowance) = (Vec::new(), 0.0);
            for (&at, weight) in line.iter().zip(&weights) {
                let ([share, magnitude], of) = (fields.probability(targets[at]), (largest - x[at]) + log_sum);
                loss.push(weight * share * of);
                let roundings = (largest - x[at]).abs() + roundings + (12.0 + CHAIN / 4.0) * of.abs();
                allowance += weight.abs() * magnitude * roundings;
            }
            let mut loss = sum(loss.iter().copied());
            if fields.z > 0.0 {
                loss += fields.z * logsumexp.powi(2);
                allowance += 2.0 * fields.z * logsumexp.abs() * (logsumexp.abs() + roundings);
                allowance += 4.0 * fields.z * logsumexp.powi(2);
            }
            of_targets.push(1.0);
            losses.push(loss);
            allowances.push(finite(allowance));
            continue;
        }
        let target = targets[number];
        let (loss, allowance) = match fields.class(target) {
            Some(class) => {
                let weight = weights[class];
                of_targets.push(weight);
                let difference = largest - x[line[class]];
                let of_target = keep * weight * (difference + log_sum);
                let mut allowance = (keep * weight).abs() * (difference.abs() + roundings);
                let (mut loss, mut magnitude) = (of_target, of_target.abs());
                if smooth > 0.0 {
                    let of = |(&at, weight): (&usize, &f64)| weight * ((largest - x[at]) + log_sum);
                    let terms = || line.iter().zip(&weights).map(of);
                    let sizes =
                        line.iter().zip(&weights).map(|(&at, w)| w.abs() * ((largest - x[at]).abs() + roundings));
                    let all: f64 = terms().map(f64::abs).sum();
                    loss += smooth * sum(terms());
                    magnitude += smooth * all;
                    allowance += smooth * (sizes.sum::<f64>() + (8.0 + CHAIN / 4.0) * all);
                }
                if fields.z > 0.0 {
                    let logsumexp = largest + log_sum;
                    loss += fields.z * logsumexp.powi(2);
                    magnitude += fields.z * logsumexp.powi(2);
                    allowance += 2.0 * fields.z * logsumexp.abs() * (logsumexp.abs() + roundings);
                }
                (loss, allowance + if is_plain { 0.0 } else { 4.0 * magnitude })
            }
            None if fields.is_ignored(target) => (0.0, 0.0),
            None => {
                missing += 1.0;
                (f64::NAN, 0.0)
            }
        };
        losses.push(loss);
        allowances.push(finite(allowance));
    }
    let divisor = sum(of_targets.iter().copied());
    let of_divisor = (8.0 + CHAIN / 4.0) * of_targets.iter().map(|weight| weight.abs()).sum::<f64>();
    let mut expected = Vec::new();
    if fields.reduction == LossReduction::None {
        let of = |(&loss, &allowance): (&f64, &f64)| budget(accumulator, accumulator, loss, allowance);
        let budgets = losses.iter().zip(&allowances).map(of).collect();
        expected.push(Expected { name: "loss".into(), values: losses, budgets });
    } else {
        let total = sum(losses.iter().copied());
        let magnitudes: f64 = losses.iter().map(|loss| loss.abs()).sum();
        let allowance = allowances.iter().sum::<f64>() + (8.0 + CHAIN / 4.0) * magnitudes;
        let is_mean = fields.reduction == LossReduction::Mean;
        let (value, allowance) = match is_mean {
            true => {
                let (mean, lost) = (
                    total / divisor,
                    if fields.has_weight && !fields.has_probabilities { of_divisor / divisor.abs() } else { 0.0 },
                );
                (mean, allowance / divisor.abs() + (2.0 + lost) * mean.abs())
            }
            false => (total, allowance),
        };
        let budgets = vec![budget(accumulator, accumulator, value, finite(allowance))];
        expected.push(Expected { name: "loss".into(), values: vec![value], budgets });
    }
    if fields.stats {
        let of = |&value: &f64| budget(accumulator, accumulator, value, finite(value.abs() + roundings));
        let budgets = logsumexps.iter().map(of).collect();
        expected.push(Expected { name: "logsumexp".into(), values: logsumexps, budgets });
    }
    if fields.reduction == LossReduction::Mean {
        // A number of f32 as large as 2^24 and more may be next to it.
        let budget = match fields.has_weight && !fields.has_probabilities {
            true => of_divisor * accumulator.unit_roundoff(),
            false if divisor.abs() < 2f64.powi(24) => 0.0,
            false => divisor.abs() * accumulator.unit_roundoff(),
        };
        expected.push(Expected { name: "divisor".into(), values: vec![divisor], budgets: vec![budget] });
    }
    if fields.missing {
        expected.push(Expected { name: "missing".into(), values: vec![missing], budgets: vec![0.0] });
    }
    Ok(expected)
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "cross-entropy, dx".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (x, targets) = (inputs.values("x").context("no x")?, inputs.values("targets").context("no targets")?);
    let dloss = inputs.values("dloss").context("no dloss")?;
    let divisor = inputs.values("divisor").map_or(1.0, |divisor| divisor[0]);
    let saved = inputs.values("logsumexp");
    let dtype = outputs.get("dx").context("no dx")?.dtype;
    let accumulator = dtype.accumulator();
    let (mut values, mut budgets) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let (weights, [keep, smooth]) = (fields.weights(inputs)?, fields.shares());
    let total = sum(weights.iter().copied());
    let of_total = (8.0 + CHAIN / 4.0) * weights.iter().map(|weight| weight.abs()).sum::<f64>();
    for (number, line) in fields.lines().iter().enumerate() {
        let class = if fields.has_probabilities { None } else { fields.class(targets[number]) };
        if class.is_none() && !fields.has_probabilities {
            continue;
        }
        let of_probabilities = |at: usize, i: usize| fields.probability(targets[at]).map(|share| weights[i] * share);
        let (mut total, mut of_total) = (smooth * total, smooth * of_total);
        if fields.has_probabilities {
            let shares = || line.iter().enumerate().map(|(i, &at)| of_probabilities(at, i));
            total = sum(shares().map(|[share, _]| share));
            of_total = (8.0 + CHAIN / 4.0) * shares().map(|[_, magnitude]| magnitude.abs()).sum::<f64>();
        }
        let gradient = dloss[if dloss.len() == 1 { 0 } else { number }] / divisor;
        let (shift, log_sum, roundings) = match saved {
            Some(saved) => (saved[number], 0.0, 12.0),
            None => {
                let (largest, log_sum) = largest_and_log_sum(line.iter().map(|&at| x[at]));
                (largest, log_sum, CHAIN / 4.0 + 32.0)
            }
        };
        for (i, &at) in line.iter().enumerate() {
            let t = x[at] - shift;
            let share = (t - log_sum).exp();
            let difference = share - if class == Some(i) { 1.0 } else { 0.0 };
            let of_share = if share == 0.0 { 0.0 } else { (t.abs() + roundings) * share };
            let lost = 2f64.powi(-126) / accumulator.unit_roundoff();
            let of_target = class.map_or(0.0, |class| keep * weights[class]);
            let mut slope = of_target * difference;
            let mut allowance = of_target.abs() * (of_share + 4.0 * difference.abs() + lost);
            if fields.has_weight {
                allowance += 4.0 * slope.abs();
            }
            if smooth > 0.0 || fields.has_probabilities {
                let [own, size] =
                    if fields.has_probabilities { of_probabilities(at, i) } else { [smooth * weights[i]; 2] };
                let part = total * share - own;
                let magnitude = (total * share).abs() + size.abs();
                slope += part;
                allowance += total.abs() * (of_share + lost) + of_total * share + 4.0 * magnitude;
                allowance += 4.0 * (slope.abs() + part.abs());
            }
            if fields.z > 0.0 {
                let logsumexp = shift + log_sum;
                let part = 2.0 * fields.z * logsumexp * share;
                slope += part;
                let of_logsumexp = (logsumexp.abs() + roundings) * share;
                allowance += 2.0 * fields.z * (logsumexp.abs() * (of_share + lost) + of_logsumexp);
                allowance += 4.0 * (slope.abs() + part.abs());
            }
            let allowance = gradient.abs() * allowance;
            values[at] = slope * gradient;
            budgets[at] = budget(dtype, accumulator, values[at], finite(allowance));
        }
    }
    Ok(vec![Expected { name: "dx".into(), values, budgets }])
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = CrossEntropyArgs::new(run.input("x"), run.input("targets"), run.output("loss"));
    args.logsumexp = run.named.mem_mut("logsumexp");
    args.divisor = run.named.mem_mut("divisor");
    args.weight = run.named.mem("weight");
    args.missing = run.named.mem_mut("missing");
    run.plan::<CrossEntropyDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let (x, targets, dloss) = (run.input("x"), run.input("targets"), run.input("dloss"));
    let mut args = CrossEntropyBackwardArgs::new(x, targets, dloss, run.output("dx"));
    args.divisor = run.named.mem("divisor");
    args.weight = run.named.mem("weight");
    args.logsumexp = run.named.mem("logsumexp");
    run.plan::<CrossEntropyBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Setup)> {
    let rows = Setup::plain(dense(dtype, &[512, 1024]), 1).stats();
    let image = Setup::plain(dense(dtype, &[8, 21, 64, 64]), 1).stats();
    vec![
        ("mean, last axis", rows.clone()),
        ("each line", rows.clone().each()),
        ("an ignored index", rows.clone().ignoring(DType::I64, -100)),
        ("targets of i32", Setup { targets: DType::I32, ..rows.clone() }),
        ("without statistics", Setup { stats: false, ..rows.clone() }),
        ("rows apart", Setup { x: strided(dtype, &[512, 1024], &[2048, 1]), ..rows.clone() }),
        ("weights of classes", Setup { weight: Some(dtype), ..rows.clone() }),
        ("label smoothing", Setup { smoothing: 0.1, ..rows.clone() }),
        ("probabilities", Setup { targets: dtype, ..rows.clone() }),
        ("z-loss", Setup { z: 1e-4, ..rows }),
        ("16 rows of 128256", Setup::plain(dense(dtype, &[16, 128_256]), 1).stats()),
        ("channels", image.clone()),
        ("channels-last", Setup { x: channels_last(dtype, &[8, 21, 64, 64]), ..image }),
    ]
}
