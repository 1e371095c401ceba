//! Pooling and its gradient. Expected values are the plain formulas, element by element of each window, written here.

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    AnyDescriptor, DType, Error, PoolArgs, PoolBackwardArgs, PoolBackwardDescriptor, PoolDescriptor, PoolWindow,
    Pooling, Slot, TensorDesc,
};
use serde_json::Value;

use super::movement::{exact, index, number};
use super::{
    CHAIN, Contract, FLOATS, Subject, TypedRun, accumulating, channels_last, dense, features, json_of, strided,
};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "pool",
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
    name: "pool_backward",
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
    pooling: Pooling,
    window: PoolWindow,
    excludes_padding: bool,
    divisor: Option<u64>,
    offsets: bool,
    indices: bool,
    /// Layouts of operands of forward other than x.
    layouts: Vec<(&'static str, TensorDesc)>,
}

impl Setup {
    fn new(x: TensorDesc, pooling: Pooling, window: PoolWindow) -> Self {
        let [offsets, indices] = [pooling == Pooling::Max; 2];
        Self { x, pooling, window, excludes_padding: false, divisor: None, offsets, indices, layouts: Vec::new() }
    }

    fn excluding(self) -> Self {
        Self { excludes_padding: true, ..self }
    }

    fn forward(&self) -> Result<PoolDescriptor, Error> {
        let mut pool = PoolDescriptor::new(self.x, self.pooling, self.window.clone())?;
        if self.excludes_padding && self.pooling == Pooling::Average {
            pool = pool.exclude_padding()?;
        }
        if let Some(divisor) = self.divisor {
            pool = pool.divisor(divisor)?;
        }
        if self.offsets {
            pool = pool.offsets()?;
        }
        if self.indices {
            pool = pool.indices()?;
        }
        self.layouts.iter().try_fold(pool, |pool, (operand, desc)| pool.layout(operand, *desc))
    }
}

fn forward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward().map(AnyDescriptor::new)
}

fn backward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    let offsets = setup.pooling == Pooling::Max;
    Setup { offsets, ..setup.clone() }.forward()?.backward().map(AnyDescriptor::new)
}

/// Windows, the spatial extents that they are of, and whether they run in every mode.
fn windows() -> Vec<(PoolWindow, &'static [u64], bool)> {
    let of = PoolWindow::new;
    vec![
        // As in networks: stems, halves, and the same extents.
        (of(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]), &[10, 16], true),
        (of(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]), &[9, 7], false),
        (of(&[2, 2]), &[8, 16], true),
        (of(&[2, 2]), &[7, 9], false),
        (of(&[2, 2]).ceil_mode(), &[7, 9], true),
        (of(&[3, 3]).stride(&[1, 1]).padding(&[1, 1]), &[6, 8], false),
        (of(&[5, 5]).stride(&[1, 1]).padding(&[2, 2]), &[6, 8], false),
        (of(&[3, 3]).stride(&[2, 2]), &[11, 17], false),
        // One extent and three.
        (of(&[3]).stride(&[2]).padding(&[1]), &[33], true),
        (of(&[2]), &[64], false),
        (of(&[1]).stride(&[3]), &[20], false),
        (of(&[7]).stride(&[3]).padding(&[3]).ceil_mode(), &[41], false),
        (of(&[2, 2, 2]), &[4, 6, 8], false),
        (of(&[3, 2, 3]).stride(&[1, 2, 2]).padding(&[1, 0, 1]), &[4, 5, 7], true),
        // Longer than threads take by themselves, and along one axis alone.
        (of(&[12, 12]).stride(&[5, 4]), &[20, 24], true),
        (of(&[40]).stride(&[1]).padding(&[20]), &[90], false),
        (of(&[1, 300]).stride(&[1, 50]), &[3, 700], false),
        (of(&[150, 1]).stride(&[20, 1]).padding(&[70, 0]), &[210, 4], false),
        // Padding per side: even windows whose extents stay, and nearly whole windows of padding, as in ONNX.
        (of(&[2, 2]).stride(&[1, 1]).padding_per_side(&[[0, 1], [1, 0]]), &[5, 6], true),
        (of(&[3, 3]).stride(&[1, 1]).padding(&[2, 2]), &[5, 4], false),
        (of(&[4]).stride(&[3]).padding_per_side(&[[3, 0]]), &[13], false),
        // Gaps between windows, and windows that start at the last elements.
        (of(&[2, 1]).stride(&[3, 4]), &[11, 14], false),
        (of(&[3]).stride(&[5]).padding(&[1]).ceil_mode(), &[12], false),
        (of(&[2]).stride(&[3]).padding(&[1]).ceil_mode(), &[5], false),
        // Adaptive: even, uneven, more windows than elements, one.
        (PoolWindow::adaptive(&[4, 8]), &[8, 16], false),
        (PoolWindow::adaptive(&[3, 5]), &[10, 16], true),
        (PoolWindow::adaptive(&[7, 9]), &[4, 5], false),
        (PoolWindow::adaptive(&[2, 1]), &[30, 40], false),
        (PoolWindow::adaptive(&[5]), &[301], false),
        (PoolWindow::adaptive(&[2, 3, 4]), &[5, 6, 7], false),
        (PoolWindow::global(), &[8, 8], true),
        (PoolWindow::global(), &[7, 7], false),
        (PoolWindow::global(), &[30, 40], false),
        (PoolWindow::global(), &[3, 20, 16], false),
    ]
}

/// Dilated windows, which averages have not. Of the last two some see no element.
fn dilated() -> Vec<(PoolWindow, &'static [u64], bool)> {
    let of = PoolWindow::new;
    vec![
        (of(&[3, 3]).stride(&[2, 1]).padding(&[2, 1]).dilation(&[2, 3]), &[11, 16], true),
        (of(&[2]).stride(&[1]).padding(&[2]).dilation(&[4]), &[37], false),
        (of(&[3, 2, 2]).stride(&[1, 1, 2]).padding(&[2, 0, 1]).dilation(&[2, 1, 2]), &[5, 4, 7], false),
        (of(&[2, 2]).stride(&[1, 1]).padding(&[4, 1]).dilation(&[5, 1]), &[3, 8], true),
        (of(&[2]).stride(&[1]).padding(&[6]).dilation(&[7]), &[2], false),
    ]
}

/// Windows that lie two elements apart, which maximum and average have in tiles, and the spatial extents that they are of: tiles that are whole, and such as reach
/// beyond either end.
fn halved() -> Vec<(PoolWindow, &'static [u64])> {
    let two = || PoolWindow::new(&[2, 2]);
    let three = || PoolWindow::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]);
    vec![
        (three(), &[16, 32]),
        (three(), &[9, 16]),
        (three().ceil_mode(), &[10, 16]),
        (three().padding_per_side(&[[1, 2], [1, 0]]), &[7, 24]),
        (two(), &[16, 32]),
        (two(), &[7, 16]),
        (two().ceil_mode(), &[7, 15]),
        (PoolWindow::adaptive(&[4, 8]), &[8, 16]),
        (PoolWindow::new(&[1, 3, 3]).stride(&[1, 2, 2]).padding(&[0, 1, 1]), &[3, 5, 16]),
        (PoolWindow::new(&[1, 2, 2]), &[2, 5, 16]),
    ]
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn setups() -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    for (d, dtype) in FLOATS.into_iter().enumerate() {
        let mut add = |setup: Setup, data: Data, core: bool| setups.push((setup, data, core));
        for (p, pooling) in Pooling::ALL.into_iter().enumerate() {
            let dilated = if pooling == Pooling::Average { Vec::new() } else { dilated() };
            for (i, (window, spatial, core)) in windows().into_iter().chain(dilated).enumerate() {
                // Of f32 both layouts, of the others each window in one of them; as many channels as have whole vectors, and others.
                let is_norm = pooling == Pooling::Norm1 || pooling == Pooling::Norm2;
                for is_last in [false, true] {
                    let is_left_out = (dtype != DType::F32 || is_norm) && is_last != ((i + d + p) % 2 == 1);
                    if is_left_out || (is_norm && (i + d) % 3 > 0 && !core) {
                        continue;
                    }
                    let channels = if is_last && i % 3 != 2 { 16 } else { 3 };
                    let dims = [&[2, channels], spatial].concat();
                    let x = if is_last { channels_last(dtype, &dims) } else { dense(dtype, &dims) };
                    let setup = Setup::new(x, pooling, window.clone());
                    if pooling == Pooling::Average {
                        add(setup.clone().excluding(), Data::Normal, core && is_last);
                    }
                    if pooling == Pooling::Max && i % 4 == 1 {
                        add(Setup { offsets: false, ..setup.clone() }, Data::Normal, false);
                        add(Setup { indices: false, ..setup.clone() }, Data::Normal, false);
                    }
                    add(setup, Data::Normal, core);
                }
            }
            let stem = || PoolWindow::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]);
            let has_tiles = matches!(pooling, Pooling::Max | Pooling::Average);
            for (i, (window, spatial)) in halved().into_iter().enumerate().filter(|_| has_tiles) {
                for is_last in [false, true] {
                    let dims = [&[2, 16], spatial].concat();
                    let x = if is_last { channels_last(dtype, &dims) } else { dense(dtype, &dims) };
                    let setup = Setup { indices: false, ..Setup::new(x, pooling, window.clone()) };
                    if pooling == Pooling::Average {
                        add(setup.clone().excluding(), Data::Normal, false);
                    } else if i < 2 {
                        add(Setup { offsets: false, ..setup.clone() }, Data::Normal, false);
                    }
                    add(setup, Data::Normal, i % 4 == 0);
                }
            }
            for data in Data::ALL.into_iter().chain(Data::STRUCTURED).filter(|_| has_tiles) {
                for x in [dense(dtype, &[2, 3, 9, 16]), channels_last(dtype, &[2, 8, 9, 5])] {
                    add(Setup { indices: false, ..Setup::new(x, pooling, stem()) }, data, false);
                }
            }
            let image = [2, 8, 10, 12];
            let of = |x: TensorDesc, window: PoolWindow| Setup::new(x, pooling, window);
            // Layouts of x and of the others, promises, and nothing.
            for (x, core) in [
                (strided(dtype, &image, &[1600, 200, 16, 1]), true),
                (strided(dtype, &image, &[1600, 200, 13, 1]), false),
                (strided(dtype, &image, &[960, 1, 8, 80]), true),
                (strided(dtype, &image, &[0, 120, 12, 1]), false),
                (strided(dtype, &image, &[120, 0, 12, 1]), false),
                (strided(dtype, &image, &[3000, 3, 300, 25]), false),
                (dense(dtype, &image).align(dtype.size_bytes()).expect("a promise"), true),
                (channels_last(dtype, &image).align(dtype.size_bytes()).expect("a promise"), false),
            ] {
                add(of(x, stem()), Data::Normal, core);
            }
            add(of(dense(dtype, &[0, 4, 6, 6]), stem()), Data::Normal, true);
            add(of(channels_last(dtype, &[3, 0, 6, 6]), stem()), Data::Normal, false);
            add(of(dense(dtype, &[1, 1, 1]), PoolWindow::new(&[1])), Data::Normal, false);
            let y = [2, 8, 5, 6];
            let mut layouts = vec![("y", strided(dtype, &y, &[240, 1, 48, 8]))];
            if pooling == Pooling::Max {
                layouts.push(("offsets", strided(DType::U8, &y, &[500, 50, 8, 1])));
                layouts.push(("indices", strided(DType::I64, &y, &[1, 2, 96, 16])));
            }
            add(Setup { layouts, ..of(dense(dtype, &image), stem()) }, Data::Normal, true);
            // Longer sums than one thread takes.
            if pooling != Pooling::Max {
                add(of(dense(dtype, &[1, 2, 5000]), PoolWindow::global()), Data::Normal, false);
                add(
                    of(dense(dtype, &[1, 2, 200, 30]), PoolWindow::new(&[190, 25]).stride(&[5, 2])),
                    Data::Normal,
                    false,
                );
            }
            for data in Data::ALL.into_iter().chain(Data::STRUCTURED).chain([Data::Sparse]) {
                add(of(dense(dtype, &[2, 3, 9, 16]), stem()), data, false);
                add(of(dense(dtype, &[2, 3, 16, 16]), PoolWindow::global()), data, false);
                if data != Data::Normal {
                    add(of(channels_last(dtype, &[2, 8, 5, 6]), PoolWindow::new(&[2, 2])), data, false);
                }
            }
            if pooling == Pooling::Max {
                add(of(dense(dtype, &[2, 3, 9, 16]), stem()), Data::Wide, false);
            }
        }
        for divisor in [1, 7, 1 << 30] {
            let x = dense(dtype, &[2, 3, 8, 12]);
            let setup = Setup::new(x, Pooling::Average, PoolWindow::new(&[3, 2]).padding(&[1, 1]));
            add(Setup { divisor: Some(divisor), ..setup }, Data::Normal, divisor == 7);
        }
    }
    setups
}

fn cases(pass: fn(&Setup) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(setup, data, core): &(Setup, Data, bool)| {
        let descriptor = pass(setup).unwrap_or_else(|error| panic!("the case lists hold valid descriptors: {error}"));
        Case::new(descriptor, *data).core(*core)
    };
    distinct(setups().iter().map(of).collect())
}

/// What a window sees along an axis: how many places it has, those in x with the element of each, and places that an average divides by.
struct Span {
    places: u64,
    inside: Vec<(u64, u64)>,
    padded: u64,
}

/// A descriptor as its JSON has it.
struct Pool {
    pooling: String,
    /// The extents of x and of y.
    x: Vec<u64>,
    y: Vec<u64>,
    /// Of each axis the windows.
    spans: Vec<Vec<Span>>,
    excludes_padding: bool,
    divisor: Option<f64>,
}

/// Places of the windows along an axis that the formulas go through at most.
const MOST_PLACES: u64 = 1 << 24;

impl Pool {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json: Value = json_of(descriptor)?;
        let list = |field: &str| -> Vec<u64> {
            json[field].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
        };
        let x: Vec<u64> = json["x"]["dims"].as_array().context("extents")?.iter().filter_map(Value::as_u64).collect();
        let has = |name: &str| descriptor.slots().iter().find(|slot| slot.name == name);
        let y = if descriptor.name() == "pool" { has("y") } else { has("dy") };
        let y = y.context("an output")?.desc.dims().to_vec();
        let (kernel, stride, dilation, adaptive) = (list("kernel"), list("stride"), list("dilation"), list("adaptive"));
        let padding = json["padding"].as_array();
        // Beside an extent of 0 others may be of any size, and there are no windows.
        let is_empty = x.contains(&0) || y.contains(&0);
        for (at, (&input, &output)) in x[2..].iter().zip(&y[2..]).enumerate() {
            // Adaptive windows share at most one element with the next.
            let places = kernel.get(at).map_or(input.saturating_add(output), |kernel| kernel.saturating_mul(output));
            ensure!(is_empty || places <= MOST_PLACES, "windows of {places} places; at most {MOST_PLACES} are judged");
        }
        let spans = x[2..].iter().zip(&y[2..]).enumerate().map(|(at, (&input, &output))| {
            let of_adaptive = |o: u64| {
                let (first, last) = (o * input / output, ((o + 1) * input - 1) / output);
                let inside: Vec<(u64, u64)> = (first..=last).enumerate().map(|(place, i)| (place as u64, i)).collect();
                Span { places: inside.len() as u64, padded: inside.len() as u64, inside }
            };
            let of_kernel = |o: u64| {
                let kernel = kernel[at];
                let stride = stride.get(at).copied().unwrap_or(kernel);
                let dilation = dilation.get(at).copied().unwrap_or(1);
                let [before, after] =
                    [0, 1].map(|side: usize| padding.map_or(0, |all| all[at][side].as_u64().unwrap_or(0)));
                let element = |place: u64| (o * stride + place * dilation) as i64 - before as i64;
                let is_inside = |&place: &u64| (0..input as i64).contains(&element(place));
                let inside = (0..kernel).filter(is_inside).map(|place| (place, element(place) as u64)).collect();
                let padded = (0..kernel).filter(|&place| element(place) < (input + after) as i64).count() as u64;
                Span { places: kernel, inside, padded }
            };
            (0..if is_empty { 0 } else { output })
                .map(|o| if adaptive.is_empty() { of_kernel(o) } else { of_adaptive(o) })
                .collect()
        });
        Ok(Self {
            pooling: json["pooling"].as_str().context("a pooling")?.into(),
            spans: spans.collect(),
            excludes_padding: json["exclude_padding"].as_bool().unwrap_or(false),
            divisor: json["divisor"].as_f64(),
            x,
            y,
        })
    }

    /// Of the window of an output the elements, in row-major order: each its number in x, its place in the window, and its index in the plane.
    fn elements(&self, output: u64) -> Vec<(usize, u64, u64)> {
        let at = index(&self.y, output);
        let mut elements = vec![(vec![at[0], at[1]], 0, 0)];
        for (axis, &o) in at[2..].iter().enumerate() {
            let span = &self.spans[axis][o as usize];
            let further = |(to, offset, index): (Vec<u64>, u64, u64)| {
                span.inside.iter().map(move |&(place, element)| {
                    let to = [&to[..], &[element]].concat();
                    (to, offset * span.places + place, index * self.x[2 + axis] + element)
                })
            };
            elements = elements.into_iter().flat_map(further).collect();
        }
        elements.into_iter().map(|(to, offset, index)| (number(&self.x, &to), offset, index)).collect()
    }

    /// What the average of an output is divided by.
    fn count(&self, output: u64) -> f64 {
        let at = index(&self.y, output);
        let of_axis = |(axis, &o): (usize, &u64)| {
            let span = &self.spans[axis][o as usize];
            if self.excludes_padding { span.inside.len() as u64 } else { span.padded }
        };
        let places: u64 = at[2..].iter().enumerate().map(of_axis).product();
        self.divisor.unwrap_or(places.max(1) as f64)
    }

    fn outputs(&self) -> u64 {
        self.y.iter().product()
    }

    /// Places of the longest window.
    fn places(&self) -> u64 {
        let of_axis = |spans: &Vec<Span>| spans.iter().map(|span| span.places).max().unwrap_or(1);
        self.spans.iter().map(of_axis).product()
    }
}

/// A sum that carries the rounding errors along; if a term is not finite, what IEEE arithmetic gives.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, lost) = values.fold((0f64, 0.0), |(sum, lost), value| {
        let next = sum + value;
        let (large, small) = if sum.abs() >= value.abs() { (sum, value) } else { (value, sum) };
        (next, lost + ((large - next) + small))
    });
    if sum.is_finite() { sum + lost } else { sum }
}

/// Few elements agree by chance, and of wide windows most elements are no greatest ones.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_forward = descriptor.name() == "pool";
    let line = descriptor.line();
    let is_choice = line.contains(r#""pooling":"max""#);
    let has_repeats = descriptor.slots().iter().any(|slot| slot.desc.strides().contains(&0));
    Pool::of(descriptor).is_ok_and(|pool| {
        let is_few = pool.outputs() < 256 || (is_choice && (pool.places() < 4 || !is_forward));
        has_repeats || is_few || line.contains("1073741824")
    })
}

/// Squares that vanish, or in backward the quotients of their roots, stay in the range of the type.
fn input(case: &Case, slot: &Slot, random: &mut Random, before: &Tensors) -> Result<Vec<f64>> {
    let elements = slot.desc.elements();
    match slot.name {
        "x" => {
            let pool = Pool::of(&case.descriptor)?;
            let dtype = slot.desc.dtype();
            let powers = if dtype == DType::F64 { 1000 } else { 120 };
            let n = pool.places() as f64;
            let largest = match pool.pooling.as_str() {
                "max" => f64::INFINITY,
                "norm2" => 2f64.powi(powers / 2 - 1) / n.sqrt(),
                _ => 2f64.powi(powers) / n,
            };
            let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
            let huge = Huge::of(dtype).at_most(largest, largest);
            Ok(case.data.rows_within(huge, dtype, elements / cols, cols, random))
        }
        "offsets" => {
            let pool = Pool::of(&case.descriptor)?;
            let one = |output: u64| {
                let elements = pool.elements(output);
                let chosen = (random.uniform() * elements.len() as f64) as usize;
                elements.get(chosen).map_or(0.0, |&(_, offset, _)| offset as f64)
            };
            Ok((0..elements).map(one).collect())
        }
        "y" => {
            let pool = Pool::of(&case.descriptor)?;
            let x = before.values("x").context("no x")?;
            let norm = |output: u64| sum(pool.elements(output).iter().map(|&(at, ..)| x[at] * x[at])).sqrt();
            Ok((0..elements).map(norm).collect())
        }
        _ => Ok((0..elements).map(|_| random.normal()).collect()),
    }
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["y"],
        budget: "max 0; averages u_o |y| + u_A ((8 + 48/4) sum|x| / n + 2 |y|); norm1 u_o |y| + u_A (8 + 48/4) |y|; norm2 also sqrt(n) 2^-63, for squares that vanish",
        why: "Sums of random terms err by the root of the number of additions.",
    },
    Contract { outputs: &["offsets", "indices"], budget: "0", why: "" },
];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + u_A (12 + 48/4) sum|terms|, the terms those of dx; of norm2 times |x|",
    why: "Most elements are seen by few windows.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "pool".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let pool = Pool::of(descriptor)?;
    let x = inputs.values("x").context("no x")?;
    let dtype = descriptor.slots()[0].desc.dtype();
    let accumulator = dtype.accumulator();
    let flushed = if dtype == DType::F64 { 2f64.powi(-511) } else { 2f64.powi(-63) };
    let length = 8.0 + CHAIN / 4.0;
    let (mut values, mut allowances, mut offsets, mut indices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for output in 0..pool.outputs() {
        let elements = pool.elements(output);
        let numbers = || elements.iter().map(|&(at, ..)| x[at]);
        let magnitudes = sum(numbers().map(f64::abs));
        let (value, allowance) = match pool.pooling.as_str() {
            "max" => {
                let first_nan = elements.iter().position(|&(at, ..)| x[at].is_nan());
                let greatest = numbers().fold(f64::NEG_INFINITY, f64::max);
                let chosen = first_nan.or_else(|| elements.iter().position(|&(at, ..)| x[at] == greatest));
                offsets.push(chosen.map_or(0.0, |chosen| elements[chosen].1 as f64));
                indices.push(chosen.map_or(-1.0, |chosen| elements[chosen].2 as f64));
                (chosen.map_or(f64::NEG_INFINITY, |chosen| x[elements[chosen].0]), 0.0)
            }
            "average" => {
                let mean = sum(numbers()) / pool.count(output);
                (mean, length * magnitudes / pool.count(output) + 2.0 * mean.abs())
            }
            "norm1" => (magnitudes, length * magnitudes),
            _ => {
                let norm = sum(numbers().map(|x| x * x)).sqrt();
                (norm, length * norm + (elements.len() as f64).sqrt() * flushed / accumulator.unit_roundoff())
            }
        };
        values.push(value);
        allowances.push(allowance);
    }
    if pool.pooling != "max" {
        return Ok(vec![Expected::within("y", dtype, accumulator, values, |at| allowances[at])]);
    }
    let declared = |name: &str| descriptor.slots().iter().any(|slot| slot.name == name);
    let all = [exact("y", values), exact("offsets", offsets), exact("indices", indices)];
    Ok(all.into_iter().filter(|expected| declared(&expected.name)).collect())
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "pool, dx".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let pool = Pool::of(descriptor)?;
    let dy = inputs.values("dy").context("no dy")?;
    let dtype = descriptor.slots()[0].desc.dtype();
    let mut terms: Vec<Vec<f64>> = vec![Vec::new(); pool.x.iter().product::<u64>() as usize];
    for (output, &dy) in (0..pool.outputs()).zip(dy) {
        for (at, offset, _) in pool.elements(output) {
            let term = match pool.pooling.as_str() {
                "max" => {
                    let offsets = inputs.values("offsets").context("no offsets")?;
                    if offsets[output as usize] != offset as f64 {
                        continue;
                    }
                    dy
                }
                "average" => dy / pool.count(output),
                "norm1" => dy,
                _ => {
                    let y = inputs.values("y").context("no y")?[output as usize];
                    if y == 0.0 { 0.0 } else { dy / y }
                }
            };
            terms[at].push(term);
        }
    }
    let factor = |at: usize| -> f64 {
        match (pool.pooling.as_str(), inputs.values("x")) {
            ("norm1", Some(x)) if x[at] == 0.0 || x[at].is_nan() => x[at] * 0.0,
            ("norm1", Some(x)) => x[at].signum(),
            ("norm2", Some(x)) => x[at],
            _ => 1.0,
        }
    };
    let of = |(at, terms): (usize, &Vec<f64>)| factor(at) * sum(terms.iter().copied());
    let values = terms.iter().enumerate().map(of).collect();
    let allowance =
        |at: usize| (12.0 + CHAIN / 4.0) * factor(at).abs() * terms[at].iter().map(|term| term.abs()).sum::<f64>();
    Ok(vec![Expected::within("dx", dtype, dtype.accumulator(), values, allowance)])
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = PoolArgs::new(run.input("x"), run.output("y"));
    args.offsets = run.named.mem_mut("offsets");
    args.indices = run.named.mem_mut("indices");
    run.plan::<PoolDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = PoolBackwardArgs::new(run.input("dy"), run.output("dx"));
    args.offsets = run.named.mem("offsets");
    args.x = run.named.mem("x");
    args.y = run.named.mem("y");
    run.plan::<PoolBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Setup)> {
    let image = [2, 16, 28, 28];
    let stem = || PoolWindow::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]);
    let of = |pooling, window| Setup::new(dense(dtype, &image), pooling, window);
    vec![
        ("max 3x3", of(Pooling::Max, stem())),
        ("max 3x3, channels-last", Setup::new(channels_last(dtype, &image), Pooling::Max, stem())),
        ("max, dilated", of(Pooling::Max, stem().dilation(&[2, 2]))),
        ("average 2x2", of(Pooling::Average, PoolWindow::new(&[2, 2]))),
        ("average without the padding", of(Pooling::Average, stem()).excluding()),
        ("global average", of(Pooling::Average, PoolWindow::global())),
        ("adaptive average 7x7", of(Pooling::Average, PoolWindow::adaptive(&[7, 7]))),
        ("adaptive max 5x5", of(Pooling::Max, PoolWindow::adaptive(&[5, 5]))),
        ("norm of order 2", of(Pooling::Norm2, PoolWindow::new(&[2, 2]))),
        ("three extents", Setup::new(dense(dtype, &[1, 8, 8, 14, 14]), Pooling::Max, PoolWindow::new(&[2, 2, 2]))),
    ]
}
