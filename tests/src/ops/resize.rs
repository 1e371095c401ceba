//! Resized tensors and their gradient. Expected values are the formulas of PyTorch's `interpolate`, element by element, with coordinates as quotients of whole
//! numbers, written here.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, Coordinates, DType, Error, ResizeArgs, ResizeBackwardArgs, ResizeBackwardDescriptor,
    ResizeDescriptor, ResizeMode, Slot, TensorDesc,
};
use serde_json::Value;

use super::movement::{index, number};
use super::{Contract, FLOATS, Subject, TypedRun, accumulating, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "resize",
    cases: || cases(forward),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: FORWARD_CONTRACTS,
    run_typed: |run| {
        let args = ResizeArgs::new(run.input("x"), run.output("y"));
        run.plan::<ResizeDescriptor>(args)
    },
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "resize_backward",
    cases: || accumulating(cases(backward)),
    contracts: BACKWARD_CONTRACTS,
    run_typed: |run: TypedRun<'_, '_>| {
        let args = ResizeBackwardArgs::new(run.input("dy"), run.output("dx"));
        run.plan::<ResizeBackwardDescriptor>(args)
    },
    features: || features(asked_for, backward),
    ..FORWARD
};

/// A forward before it is a descriptor.
#[derive(Clone)]
struct Setup {
    x: TensorDesc,
    sizes: Vec<u64>,
    mode: ResizeMode,
    coordinates: Coordinates,
    y: Option<TensorDesc>,
}

impl Setup {
    fn new(x: TensorDesc, sizes: &[u64], mode: ResizeMode, coordinates: Coordinates) -> Self {
        Self { x, sizes: sizes.to_vec(), mode, coordinates, y: None }
    }

    fn forward(&self) -> Result<ResizeDescriptor, Error> {
        let resize = ResizeDescriptor::new(self.x, self.sizes.clone(), self.mode)?.coordinates(self.coordinates)?;
        self.y.into_iter().try_fold(resize, |resize, y| resize.layout("y", y))
    }
}

fn forward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward().map(AnyDescriptor::new)
}

fn backward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward()?.backward().map(AnyDescriptor::new)
}

/// Every mode with every kind of coordinates that it has.
fn modes() -> Vec<(ResizeMode, Coordinates)> {
    let of = |mode| Coordinates::ALL.map(|coordinates| (mode, coordinates));
    let is_there = |&of: &(ResizeMode, Coordinates)| of != (ResizeMode::Nearest, Coordinates::AlignCorners);
    ResizeMode::ALL.into_iter().flat_map(of).filter(is_there).collect()
}

/// Extents and what becomes of the last of them, and whether they run in every mode of the matrix.
const EXTENTS: &[(&[u64], &[u64], bool)] = &[
    // As in networks: twice as large, and half.
    (&[2, 3, 8, 16], &[16, 32], true),
    (&[2, 3, 8, 16], &[4, 8], true),
    (&[2, 3, 5, 7], &[10, 14], false),
    (&[2, 16, 3, 8], &[6, 16], true),
    (&[2, 16, 4, 24], &[8, 48], true),
    (&[1, 8, 1, 8], &[2, 16], false),
    (&[1, 16, 5, 1], &[10, 2], false),
    // Larger, smaller, both, and one extent as it is.
    (&[1, 4, 5, 7], &[9, 10], true),
    (&[1, 4, 9, 10], &[5, 7], false),
    (&[2, 2, 6, 9], &[13, 4], false),
    (&[2, 2, 6, 9], &[6, 21], false),
    (&[2, 2, 6, 9], &[3, 9], false),
    (&[2, 3, 6, 9], &[6, 9], false),
    // From one element, to one, and far.
    (&[3, 2, 1, 1], &[4, 5], true),
    (&[3, 2, 4, 5], &[1, 1], true),
    (&[2, 3, 40], &[3], false),
    (&[2, 3, 3], &[100], false),
    (&[1, 1, 300], &[7], false),
    // One extent and three.
    (&[3, 33], &[50], true),
    (&[7], &[12], false),
    (&[2, 3, 4, 5, 6], &[6, 5, 11], true),
    (&[1, 2, 6, 7, 5], &[3, 9, 5], false),
    (&[4, 5, 6], &[8, 5, 3], false),
];

fn setups() -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    for (d, dtype) in FLOATS.into_iter().enumerate() {
        let mut add = |setup: Setup, data: Data, core: bool| setups.push((setup, data, core));
        for (m, (mode, coordinates)) in modes().into_iter().enumerate() {
            for (i, &(dims, sizes, core)) in EXTENTS.iter().enumerate() {
                // Of f32 every case, of the others some of each mode; both layouts.
                if dtype != DType::F32 && !core && (i + d + m) % 3 > 0 {
                    continue;
                }
                let is_last = dims.len() > 2 && (i + d + m) % 2 == 1;
                let x = if is_last { channels_last(dtype, dims) } else { dense(dtype, dims) };
                add(
                    Setup::new(x, sizes, mode, coordinates),
                    Data::Normal,
                    core && coordinates == Coordinates::HalfPixel,
                );
            }
            let image = [2, 8, 5, 6];
            let of = |x: TensorDesc| Setup::new(x, &[9, 7], mode, coordinates);
            let core = coordinates == Coordinates::HalfPixel;
            for (x, core) in [
                (strided(dtype, &image, &[400, 50, 8, 1]), core),
                (strided(dtype, &image, &[300, 1, 60, 9]), core),
                (strided(dtype, &image, &[0, 30, 6, 1]), false),
                (strided(dtype, &image, &[240, 30, 0, 1]), false),
                (dense(dtype, &image).align(dtype.size_bytes()).expect("a promise"), core),
            ] {
                add(of(x), Data::Normal, core);
            }
            let y = Some(strided(dtype, &[2, 8, 9, 7], &[700, 1, 70, 9]));
            add(Setup { y, ..of(dense(dtype, &image)) }, Data::Normal, core);
            let y = Some(channels_last(dtype, &[2, 8, 9, 7]));
            add(Setup { y, ..of(dense(dtype, &image)) }, Data::Normal, false);
            add(of(dense(dtype, &[0, 4, 5, 6])), Data::Normal, core);
            add(of(channels_last(dtype, &[3, 0, 5, 6])), Data::Normal, false);
            for data in Data::ALL.into_iter().chain(Data::STRUCTURED).chain([Data::Sparse]) {
                if dtype == DType::F32 || core {
                    add(Setup::new(dense(dtype, &[2, 3, 6, 8]), &[12, 5], mode, coordinates), data, false);
                    for x in [dense(dtype, &[2, 3, 3, 8]), channels_last(dtype, &[2, 8, 3, 8])] {
                        add(Setup::new(x, &[6, 16], mode, coordinates), data, false);
                    }
                }
            }
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

/// The elements of x, with their weights, of which a position of y is made along an extent.
type Taps = Vec<(u64, f64)>;

/// A descriptor as its JSON has it.
struct Resize {
    x: Vec<u64>,
    y: Vec<u64>,
    /// Of each of the last extents the taps of each position of y.
    taps: Vec<Vec<Taps>>,
}

impl Resize {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json: Value = json_of(descriptor)?;
        let list =
            |value: &Value| -> Vec<u64> { value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect() };
        let (x, sizes) = (list(&json["x"]["dims"]), list(&json["sizes"]));
        let (mode, coordinates) =
            (json["mode"].as_str().context("a mode")?, json["coordinates"].as_str().unwrap_or("half_pixel"));
        let kept = x.len() - sizes.len();
        let y = [&x[..kept], &sizes[..]].concat();
        // Beside an extent of 0 others may be of any size, and nothing is made.
        let is_empty = x.contains(&0);
        let taps = x[kept..].iter().zip(&sizes).map(|(&n, &m)| {
            (0..if is_empty { 0 } else { m })
                .map(|o| if n == m { vec![(o, 1.0)] } else { taps(mode, coordinates, n, m, o) })
                .collect()
        });
        Ok(Self { taps: taps.collect(), x, y })
    }

    /// The elements of x, by their numbers, that an element of y is made of.
    fn elements(&self, output: u64) -> Vec<(usize, f64)> {
        let at = index(&self.y, output);
        let kept = at.len() - self.taps.len();
        let mut elements = vec![(at[..kept].to_vec(), 1.0)];
        for (taps, &o) in self.taps.iter().zip(&at[kept..]) {
            let further = |(to, weight): (Vec<u64>, f64)| {
                taps[o as usize].iter().map(move |&(element, of_axis)| {
                    let to = [&to[..], &[element]].concat();
                    (to, weight * of_axis)
                })
            };
            elements = elements.into_iter().flat_map(further).collect();
        }
        elements.into_iter().map(|(to, weight)| (number(&self.x, &to), weight)).collect()
    }

    fn outputs(&self) -> u64 {
        self.y.iter().product()
    }
}

fn taps(mode: &str, coordinates: &str, n: u64, m: u64, o: u64) -> Taps {
    if mode == "nearest" {
        let element = if coordinates == "half_pixel" { (2 * o + 1) * n / (2 * m) } else { o * n / m };
        return vec![(element, 1.0)];
    }
    let (numerator, denominator) = match coordinates {
        "half_pixel" => ((2 * o as i64 + 1) * n as i64 - m as i64, 2 * m as i64),
        "align_corners" => (o as i64 * (n as i64 - 1), (m as i64 - 1).max(1)),
        _ => ((o * n) as i64, m as i64),
    };
    let below = numerator.div_euclid(denominator);
    let t = numerator.rem_euclid(denominator) as f64 / denominator as f64;
    let weights: Vec<(i64, f64)> = if mode == "linear" {
        vec![(0, 1.0 - t), (1, t)]
    } else {
        const A: f64 = -0.75;
        let w = |d: f64| match d {
            ..=1.0 => (A + 2.0) * d.powi(3) - (A + 3.0) * d.powi(2) + 1.0,
            _ => A * d.powi(3) - 5.0 * A * d.powi(2) + 8.0 * A * d - 4.0 * A,
        };
        vec![(-1, w(1.0 + t)), (0, w(t)), (1, w(1.0 - t)), (2, w(2.0 - t))]
    };
    let clamped = |(step, weight): (i64, f64)| ((below + step).clamp(0, n as i64 - 1) as u64, weight);
    let counts = |&(step, _): &(i64, f64)| t != 0.0 || step == 0;
    weights.into_iter().filter(counts).map(clamped).collect()
}

/// Few elements agree by chance, and copies of one are equal.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let has_repeats = descriptor.slots().iter().any(|slot| slot.desc.strides().contains(&0));
    has_repeats || Resize::of(descriptor).is_ok_and(|resize| resize.outputs() < 200)
}

/// Sums of products with weights up to 1.3 stay in the range of the type.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    let resize = Resize::of(&case.descriptor)?;
    let terms = resize.outputs().max(64) as f64;
    let largest = 2f64.powi(if dtype == DType::F64 { 1000 } else { 120 }) / terms;
    let huge = Huge::of(dtype).at_most(largest, largest);
    Ok(case.data.rows_within(huge, dtype, elements / cols, cols, random))
}

const FORWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["y"],
    budget: "u_o |y| + u_A 24 sum|x| over the elements of x that are part of it",
    why: "Weights err by some ulp of 1, and most of them are below it.",
}];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + u_A (24 + L/4) sum|dy| over the elements of y that it is part of, L their number along the extent where it is part of most",
    why: "As y.",
}];

/// Expected values and budgets: docs/numerics.md, Budgets, "resize".
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let resize = Resize::of(descriptor)?;
    let dtype = descriptor.slots()[0].desc.dtype();
    let accumulator = dtype.accumulator();
    let is_forward = descriptor.name() == "resize";
    let source = inputs.values(if is_forward { "x" } else { "dy" }).context("an input")?;
    if is_forward {
        let of = |output: u64| resize.elements(output).into_iter().map(|(at, weight)| (source[at], weight));
        let values = (0..resize.outputs()).map(|output| of(output).map(|(x, weight)| x * weight).sum()).collect();
        let allowances: Vec<f64> =
            (0..resize.outputs()).map(|output| 24.0 * of(output).map(|(x, _)| x.abs()).sum::<f64>()).collect();
        // A copy is exact.
        let is_copy = resize.taps.iter().flatten().all(|taps| taps.len() == 1);
        let factor = if is_copy { 0.0 } else { 1.0 };
        return Ok(vec![Expected::within("y", dtype, accumulator, values, |at| factor * allowances[at])]);
    }
    let elements = resize.x.iter().product::<u64>() as usize;
    let (mut values, mut magnitudes) = (vec![0.0; elements], vec![0.0; elements]);
    for (output, dy) in (0..resize.outputs()).zip(source) {
        // An element that is there several times, beyond an end, has the sum of its weights.
        let mut weights = BTreeMap::new();
        for (at, weight) in resize.elements(output) {
            *weights.entry(at).or_insert(0.0) += weight;
        }
        for (at, weight) in weights {
            values[at] += weight * dy;
            magnitudes[at] += dy.abs();
        }
    }
    let of_axis = |(taps, n): (&Vec<Taps>, &u64)| {
        let seen = |element: u64| taps.iter().filter(|taps| taps.iter().any(|&(at, _)| at == element)).count();
        (0..*n).map(seen).max().unwrap_or(1) as f64
    };
    let kept = resize.x.len() - resize.taps.len();
    let most = resize.taps.iter().zip(&resize.x[kept..]).map(of_axis).fold(1.0, f64::max);
    let allowance = |at: usize| (24.0 + most / 4.0) * magnitudes[at];
    Ok(vec![Expected::within("dx", dtype, accumulator, values, allowance)])
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Setup)> {
    use Coordinates::{AlignCorners, Asymmetric, HalfPixel};
    use ResizeMode::{Cubic, Linear, Nearest};
    let image = [2, 16, 14, 14];
    let of = |mode, coordinates| Setup::new(dense(dtype, &image), &[28, 28], mode, coordinates);
    vec![
        ("nearest", of(Nearest, Asymmetric)),
        ("nearest-exact", of(Nearest, HalfPixel)),
        ("bilinear", of(Linear, HalfPixel)),
        ("bilinear, channels-last", Setup::new(channels_last(dtype, &image), &[28, 28], Linear, HalfPixel)),
        ("bilinear, corners aligned", of(Linear, AlignCorners)),
        ("bilinear, half as large", Setup::new(dense(dtype, &image), &[7, 7], Linear, HalfPixel)),
        ("bicubic", of(Cubic, HalfPixel)),
        ("trilinear", Setup::new(dense(dtype, &[1, 8, 8, 14, 14]), &[16, 28, 28], Linear, HalfPixel)),
    ]
}
