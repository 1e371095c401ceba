//! Fourier transforms along any axis: every radix, several passes, other prime factors, both directions, layouts and scales.

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    AnyDescriptor, DType, Error, FftArgs, FftDescriptor, FftDirection, IrfftArgs, IrfftDescriptor, RfftArgs,
    RfftDescriptor, Slot, TensorDesc,
};

use super::{Contract, Subject, TypedRun, dense, features, json_of, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const FFT: Subject = Subject {
    name: "fft",
    cases: || cases(&forms_of(Kind::Complex)),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed: |run| {
        let args = FftArgs::new(run.input("x"), run.output("y"));
        run.plan::<FftDescriptor>(args)
    },
    features: || features(|dtype| asked_for(Kind::Complex, dtype), Form::descriptor),
};

pub(super) const RFFT: Subject = Subject {
    name: "rfft",
    cases: || cases(&forms_of(Kind::FromReal)),
    run_typed: |run: TypedRun<'_, '_>| {
        let args = RfftArgs::new(run.input("x"), run.output("y"));
        run.plan::<RfftDescriptor>(args)
    },
    features: || features(|dtype| asked_for(Kind::FromReal, dtype), Form::descriptor),
    ..FFT
};

pub(super) const IRFFT: Subject = Subject {
    name: "irfft",
    cases: || cases(&forms_of(Kind::ToReal)),
    run_typed: |run: TypedRun<'_, '_>| {
        let args = IrfftArgs::new(run.input("x"), run.output("y"));
        run.plan::<IrfftDescriptor>(args)
    },
    features: || features(|dtype| asked_for(Kind::ToReal, dtype), Form::descriptor),
    ..FFT
};

const CONTRACTS: &[Contract] = &[Contract {
    outputs: &["y"],
    budget: "u_o |y| + u_A (4 + 4 D) most, most the greatest magnitude of the complex transform of the line, D = log2 n, or 3 log2 of the points of the convolution",
    why: "The bound is of roundings that have one sign in each stage; those of random numbers cancel.",
}];

/// Strides of a layout, and whether it runs in every mode.
type Strides = (&'static [u64], bool);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Complex,
    FromReal,
    ToReal,
}

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    kind: Kind,
    x: TensorDesc,
    axis: usize,
    points: u64,
    /// The other direction, or the gradient of the other op.
    is_other: bool,
    scale: f64,
    /// The strides of y, if they are not dense.
    strides: Option<Vec<u64>>,
}

impl Form {
    /// Lines of `dims[axis]` points, of real numbers or pairs.
    fn of(kind: Kind, dtype: DType, dims: &[u64], axis: usize) -> Self {
        let (mut of_x, points) = (dims.to_vec(), dims[axis]);
        if kind == Kind::ToReal {
            of_x[axis] = points / 2 + 1;
        }
        if kind != Kind::FromReal {
            of_x.push(2);
        }
        Self { kind, x: dense(dtype, &of_x), axis, points, is_other: false, scale: 1.0, strides: None }
    }

    fn other(self) -> Self {
        Self { is_other: true, ..self }
    }

    fn scale(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// x with those strides, of its parts as well.
    fn strided(self, strides: &[u64]) -> Self {
        Self { x: strided(self.x.dtype(), self.x.dims(), strides), ..self }
    }

    fn strides(self, strides: &[u64]) -> Self {
        Self { strides: Some(strides.into()), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let Self { x, axis, points, is_other, scale, .. } = *self;
        let laid = |y: &Slot| match &self.strides {
            Some(strides) => TensorDesc::strided(y.desc.dtype(), y.desc.dims(), strides),
            None => Ok(y.desc),
        };
        Ok(match self.kind {
            Kind::Complex => {
                let direction = if is_other { FftDirection::Inverse } else { FftDirection::Forward };
                let fft = FftDescriptor::new(x, axis)?.direction(direction)?.scale(scale)?;
                let y = laid(&AnyDescriptor::new(fft.clone()).slots()[1])?;
                AnyDescriptor::new(fft.layout("y", y)?)
            }
            Kind::FromReal => {
                let rfft = RfftDescriptor::new(x, axis)?.scale(scale)?;
                let rfft = if is_other { rfft.adjoint()? } else { rfft };
                let y = laid(&AnyDescriptor::new(rfft.clone()).slots()[1])?;
                AnyDescriptor::new(rfft.layout("y", y)?)
            }
            Kind::ToReal => {
                let irfft = IrfftDescriptor::new(x, axis, points)?.scale(scale)?;
                let irfft = if is_other { irfft.adjoint()? } else { irfft };
                let y = laid(&AnyDescriptor::new(irfft.clone()).slots()[1])?;
                AnyDescriptor::new(irfft.layout("y", y)?)
            }
        })
    }
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms_of(kind: Kind) -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        let of = |dims: &[u64], axis: usize| Form::of(kind, dtype, dims, axis);
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        // Every radix and its neighbours, a chirp, and several of them; lines in a row and side by side.
        for n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 22, 32, 64, 105] {
            add(of(&[3, n], 1), Data::Normal, [8, 11, 105].contains(&n));
            add(of(&[n, 5], 0).other().scale(1.0 / n as f64), Data::Normal, n == 6);
        }
        add(of(&[2, 840], 1).scale(0.5), Data::Normal, false);
        add(of(&[1009], 0).other(), Data::Normal, false);
        // Two passes through wgpu, on CUDA, and of a convolution.
        for n in [2160, 4096, 8192, 2003, 4099] {
            add(of(&[n], 0), Data::Normal, n == 8192);
        }
        add(of(&[6000, 2], 0).other(), Data::Normal, false);
        for data in [
            Data::LargeMean,
            Data::Constant,
            Data::Outlier,
            Data::Nan,
            Data::Inf,
            Data::Tiny,
            Data::Large,
            Data::Huge,
            Data::Sparse,
            Data::Halves,
            Data::Stripes,
        ] {
            add(of(&[6, 40], 1), data, false);
            add(of(&[6, 13], 1).other(), data, false);
        }
        add(of(&[2, 1024], 1), Data::Constant, false);
        // Many lines, none, and as many extents as there may be.
        add(of(&[300, 9], 1), Data::Normal, true);
        add(of(&[0, 5], 1), Data::Normal, true);
        if kind == Kind::Complex {
            add(of(&[5, 0], 1), Data::Normal, false);
        }
        add(of(&[2, 1, 2, 3, 1, 4, 3], 5), Data::Normal, true);
        add(of(&[2, 1, 2, 3, 1, 4, 3], 0).other(), Data::Normal, false);
        // Other layouts: gaps, repeated lines, repeated points, parts that lie apart, of x and of y.
        let (x, y): (&[Strides], &[&[u64]]) = match kind {
            Kind::Complex => (
                &[
                    (&[100, 2, 1], true),
                    (&[0, 2, 1], true),
                    (&[2, 0, 1], false),
                    (&[12, 1, 300], true),
                    (&[1, 6, 1000], false),
                    (&[25, 3, 0], false),
                ],
                &[&[100, 2, 1], &[12, 1, 300], &[1, 13, 6]],
            ),
            Kind::FromReal => (
                &[(&[100, 1], true), (&[0, 1], true), (&[1, 0], false), (&[1, 6], true), (&[99, 3], false)],
                &[&[100, 2, 1], &[1, 6, 100]],
            ),
            Kind::ToReal => (
                &[(&[100, 2, 1], true), (&[0, 2, 1], true), (&[7, 1, 300], true), (&[1, 6, 1000], false)],
                &[&[100, 1], &[1, 6], &[99, 3]],
            ),
        };
        for (strides, core) in x {
            add(of(&[6, 12], 1).strided(strides), Data::Normal, *core);
        }
        for strides in y {
            add(of(&[6, 12], 1).strides(strides), Data::Normal, false);
        }
        let narrow = of(&[3, 16], 1);
        let x = narrow.x.align(dtype.size_bytes()).expect("a promise");
        add(Form { x, ..narrow }, Data::Normal, true);
    }
    forms
}

fn cases(forms: &[(Form, Data, bool)]) -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    distinct(forms.iter().map(of).collect())
}

/// What is transformed, as the JSON of a descriptor has it.
struct Transformed {
    kind: Kind,
    axis: usize,
    points: usize,
    is_inverse: bool,
    is_adjoint: bool,
    scale: f64,
}

impl Transformed {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let kind = match descriptor.name() {
            "fft" => Kind::Complex,
            "rfft" => Kind::FromReal,
            _ => Kind::ToReal,
        };
        let axis = json["axis"].as_u64().context("an axis")? as usize;
        let real = if kind == Kind::ToReal { 1 } else { 0 };
        Ok(Self {
            kind,
            axis,
            points: descriptor.slots()[real].desc.dims()[axis] as usize,
            is_inverse: kind == Kind::ToReal || json.get("direction").is_some_and(|direction| direction == "inverse"),
            is_adjoint: json.get("adjoint").is_some_and(|adjoint| adjoint == true),
            scale: json.get("scale").map_or(Some(1.0), serde_json::Value::as_f64).context("a scale")?,
        })
    }

    /// What a bin counts.
    fn weight(&self, bin: usize) -> f64 {
        let is_twice = (self.kind == Kind::FromReal) == self.is_adjoint && self.kind != Kind::Complex;
        if is_twice && bin > 0 && 2 * bin != self.points { 2.0 } else { 1.0 }
    }
}

/// Few elements may agree by chance, and so do those of lines that are repeated or that are one number.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let [x, y] = [0, 1].map(|at| &descriptor.slots()[at].desc);
    y.elements() < 64 || x.strides().contains(&0)
}

/// Values whose sums along a line stay in the range of the type.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let of = Transformed::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let parts = if of.kind == Kind::FromReal { 1 } else { 2 };
    let cols = slot.desc.dims()[of.axis..].iter().product::<u64>().max(parts);
    let powers = if dtype == DType::F64 { 1000 } else { 110 };
    let largest = 2f64.powi(powers) / of.points.max(1) as f64;
    let huge = Huge::of(dtype).at_most(largest, largest);
    Ok(case.data.rows_within(huge, dtype, elements / cols, cols, random))
}

type Complex = (f64, f64);

/// `exp(-2 pi i part / whole)`.
fn root(part: usize, whole: usize) -> Complex {
    let eighths = 8 * (part % whole);
    // Of angles up to an eighth of a turn sine and cosine are good to the last bit.
    let (octant, rest) = (eighths / whole, (eighths % whole) as f64 / whole as f64 * std::f64::consts::FRAC_PI_4);
    let quarter = std::f64::consts::FRAC_PI_4;
    let (cosine, sine) = match octant % 2 {
        0 => (rest.cos(), rest.sin()),
        _ => ((quarter - rest).sin(), (quarter - rest).cos()),
    };
    let (re, im) = match octant / 2 {
        0 => (cosine, sine),
        1 => (-sine, cosine),
        2 => (-cosine, -sine),
        _ => (sine, -cosine),
    };
    (re, -im)
}

/// The forward transform, by the prime factors of the number of points.
fn transform(x: &[Complex]) -> Vec<Complex> {
    let n = x.len();
    let Some(prime) = (2..=n).find(|p| n.is_multiple_of(*p)) else { return x.to_vec() };
    let rows = n / prime;
    let parts: Vec<Vec<Complex>> = (0..prime)
        .map(|first| {
            let part: Vec<Complex> = x.iter().skip(first).step_by(prime).copied().collect();
            if rows == 1 { part } else { transform(&part) }
        })
        .collect();
    let result = |k: usize| {
        let terms = parts.iter().enumerate().map(|(first, part)| {
            let ((a, b), (c, d)) = (part[k % rows], root(first * k % n, n));
            (a * c - b * d, a * d + b * c)
        });
        terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
    };
    (0..n).map(result).collect()
}

/// The stages that a number goes through, in powers of two: docs/numerics.md, Budgets, "fft".
fn depth(points: usize) -> f64 {
    let mut rest = points;
    for prime in [2, 3, 5, 7] {
        while rest > 1 && rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    match rest {
        1 => (points as f64).log2(),
        _ => 3.0 * ((2 * points - 1).next_power_of_two() as f64).log2(),
    }
}

/// Expected values and budgets: docs/numerics.md, Budgets, "fft".
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let of = Transformed::of(descriptor)?;
    let [x, y] = [0, 1].map(|at| &descriptor.slots()[at].desc);
    let values = inputs.values("x").context("an input")?;
    let found = outputs.values("y").context("an output")?;
    let dtype = y.dtype();
    let (parts, to_parts) = match of.kind {
        Kind::Complex => (2, 2),
        Kind::FromReal => (1, 2),
        Kind::ToReal => (2, 1),
    };
    let points_of = |desc: &TensorDesc| desc.dims()[of.axis] as usize;
    let (terms, results) = (points_of(x), points_of(y));
    // Lines that are neighbours, and groups of them.
    let end = x.rank() - if parts == 2 { 1 } else { 0 };
    let inner = x.dims()[of.axis + 1..end].iter().product::<u64>() as usize;
    let outer = x.dims()[..of.axis].iter().product::<u64>() as usize;
    let (mut expected, mut budgets) = (vec![0.0; found.len()], vec![0.0; found.len()]);
    for line in 0..outer * inner {
        let first = |length: usize| line / inner * length * inner + line % inner;
        let number = |j: usize| {
            let at = (first(terms) + j * inner) * parts;
            match of.kind {
                Kind::Complex => (values[at], values[at + 1]),
                Kind::FromReal => (values[at], 0.0),
                // What the other half of the spectrum adds is that the imaginary part vanishes.
                Kind::ToReal if j >= terms => (0.0, 0.0),
                Kind::ToReal if j == 0 || 2 * j == of.points => (values[at], 0.0),
                Kind::ToReal => (of.weight(j) * values[at], of.weight(j) * values[at + 1]),
            }
        };
        let numbers: Vec<Complex> = (0..of.points).map(number).collect();
        let swapped = |(re, im): Complex| if of.is_inverse { (im, re) } else { (re, im) };
        let transformed: Vec<Complex> =
            transform(&numbers.iter().copied().map(swapped).collect::<Vec<_>>()).into_iter().map(swapped).collect();
        let is_spoiled = numbers.iter().any(|(re, im)| !(re.is_finite() && im.is_finite()));
        let most = transformed.iter().map(|(re, im)| re.hypot(*im)).fold(0.0, f64::max);
        let mut is_finite = true;
        for (k, (re, im)) in transformed.into_iter().enumerate().take(results) {
            let factor = if of.kind == Kind::FromReal { of.scale * of.weight(k) } else { of.scale };
            let at = (first(results) + k * inner) * to_parts;
            for (part, value) in [re, im].into_iter().enumerate().take(to_parts) {
                let (place, value) = (at + part, factor * value);
                if is_spoiled {
                    // Any number may be spoiled, but none of another line.
                    (expected[place], is_finite) = (found[place], is_finite && found[place].is_finite());
                    continue;
                }
                expected[place] = value;
                let allowance = (4.0 + 4.0 * depth(of.points)) * most * factor.abs();
                budgets[place] = budget(dtype, dtype, value, finite(allowance));
            }
        }
        ensure!(!is_spoiled || !is_finite, "line {line} has a number that is not finite, and its transform has none");
    }
    Ok(vec![Expected { name: "y".into(), values: expected, budgets }])
}

/// What the support table asks for.
fn asked_for(kind: Kind, dtype: DType) -> Vec<(String, Form)> {
    let of = |dims: &[u64], axis: usize| Form::of(kind, dtype, dims, axis);
    let other = if kind == Kind::Complex { "inverse" } else { "adjoint" };
    let gaps: &[u64] = if kind == Kind::FromReal { &[1024, 1] } else { &[2048, 2, 1] };
    [
        ("last axis", of(&[64, 1024], 1)),
        (other, of(&[64, 1024], 1).other()),
        ("scaled", of(&[64, 1024], 1).scale(0.03125)),
        ("middle axis", of(&[8, 96, 32], 1)),
        ("65536 points", of(&[65_536], 0)),
        ("2^22 points", of(&[1 << 22], 0)),
        ("2^25 points", of(&[1 << 25], 0)),
        ("a prime number of points", of(&[10_007], 0)),
        ("rows apart", of(&[32, 768], 1).strided(gaps)),
    ]
    .map(|(what, form)| (what.to_string(), form))
    .into()
}
