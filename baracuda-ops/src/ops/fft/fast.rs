//! Transforms on the CPU in f64: stages of radices 4, 2, 3, 5 and 7 from one half of a line's memory to the other (Stockham), whose roots a plan makes once; of other
//! prime factors as a convolution with a chirp (Bluestein). A thread takes a line.

use std::sync::OnceLock;

use super::cpu::{load, store};
use super::roots::{Complex, root, square};
use super::{Geometry, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, held, room, threads};
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::pointwise::map::fast::{Widest, widest};
use crate::ops::walk::Walk;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(Candidate::on_cpu(move || {
        let geometry = valid.derived.clone();
        let walk = geometry.lines();
        let tables = OnceLock::new();
        let has_work = walk.elements() > 0 && geometry.points > 0;
        if has_work && geometry.points <= PREPARED_POINTS {
            tables.get_or_init(|| Tables::new(geometry.points));
        }
        move |operands: &Operands<'_>| {
            if !has_work {
                return Ok(());
            }
            match tables.get_or_init(|| Tables::new(geometry.points)) {
                Ok(tables) => run(&geometry, &walk, tables, operands),
                Err(shortage) => Err(*shortage),
            }
        }
    })
    .batch_invariant())
}

/// Points of the longest line whose roots are made with the plan. Those of longer ones are made in the first run, which has memory of that size, so that nobody
/// waits for the roots of a line that does not exist.
const PREPARED_POINTS: u64 = 1 << 20;

fn run(geometry: &Geometry, walk: &Walk, tables: &Tables, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let lines = walk.elements();
    // Some lines share the memory of a task.
    let of_task = (LEAST_POINTS / geometry.points.max(1)).clamp(1, LEAST_POINTS);
    let y = y.kept();
    threads::try_for_each(lines.div_ceil(of_task), geometry.work(lines), |task| {
        let first = task * of_task;
        widest(Task { geometry, walk, tables, x: &x, y: &y, lines: first..lines.min(first + of_task) })
    })
}

/// Points of a task, if lines are short. With fewer, handing out tasks takes a larger share of the time.
const LEAST_POINTS: u64 = 1024;

/// Some lines.
struct Task<'t> {
    geometry: &'t Geometry,
    walk: &'t Walk,
    tables: &'t Tables,
    x: &'t Tensor<'t>,
    y: &'t Tensor<'t>,
    lines: std::ops::Range<u64>,
}

impl Widest for Task<'_> {
    type Output = Result<(), Shortage>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        let Self { geometry, walk, tables, x, y, lines } = self;
        let mut memory = Memory::new(tables.padded())?;
        for line in lines {
            let [to, from] = [0, 1].map(|operand| walk.offset(operand, line));
            tables.transform(
                &mut memory,
                geometry,
                |position| load(geometry, x, from, position),
                |position, value| {
                    // SAFETY: each line is of one task.
                    unsafe { store(geometry, y, to, position, value) };
                },
            );
        }
        Ok(())
    }
}

/// Real and imaginary parts of a line.
#[derive(Default)]
struct Parts {
    re: Vec<f64>,
    im: Vec<f64>,
}

impl Parts {
    fn new(points: u64) -> Result<Self, Shortage> {
        let zeros = || held(points, std::iter::repeat(0.0));
        Ok(Self { re: zeros()?, im: zeros()? })
    }

    #[inline(always)]
    fn get(&self, at: usize) -> Complex {
        Complex { re: self.re[at], im: self.im[at] }
    }

    #[inline(always)]
    fn set(&mut self, at: usize, value: Complex) {
        (self.re[at], self.im[at]) = (value.re, value.im);
    }
}

/// What a task needs for one line: stages go from `here` to `there`, which then are exchanged.
struct Memory {
    here: Parts,
    there: Parts,
}

impl Memory {
    fn new(points: u64) -> Result<Self, Shortage> {
        Ok(Self { here: Parts::new(points)?, there: Parts::new(points)? })
    }
}

/// One stage: `radix` transforms of `before` points become one.
struct Stage {
    radix: usize,
    before: usize,
    /// For each input but the first of a butterfly the roots at the `before` positions.
    roots: Parts,
}

/// The stages of a number of points whose prime factors are those of radices.
struct Stages {
    points: usize,
    stages: Vec<Stage>,
}

/// The radices, if their product is the number of points.
fn radices(mut points: u64) -> Option<Vec<u64>> {
    let mut radices = Vec::new();
    for radix in [4, 2, 3, 5, 7] {
        while points > 1 && points.is_multiple_of(radix) {
            radices.push(radix);
            points /= radix;
        }
    }
    (points == 1).then_some(radices)
}

impl Stages {
    fn new(points: u64, radices: &[u64]) -> Result<Self, Shortage> {
        let mut stages = room(radices.len() as u64)?;
        let mut before = 1;
        for &radix in radices {
            let whole = before * radix;
            let mut roots = Parts { re: room(whole - before)?, im: room(whole - before)? };
            for input in 1..radix {
                for position in 0..before {
                    let Complex { re, im } = root(input * position, whole);
                    roots.re.push(re);
                    roots.im.push(im);
                }
            }
            stages.push(Stage { radix: to_usize(radix), before: to_usize(before), roots });
            before = whole;
        }
        Ok(Self { points: to_usize(points), stages })
    }

    /// The forward transform of what is `here`, which is there again at the end.
    #[inline(always)]
    fn transform(&self, memory: &mut Memory) {
        for stage in &self.stages {
            let Memory { here, there } = memory;
            match stage.radix {
                2 => butterflies::<2>(self.points, stage, here, there, two),
                3 => butterflies::<3>(self.points, stage, here, there, odd),
                4 => butterflies::<4>(self.points, stage, here, there, four),
                5 => butterflies::<5>(self.points, stage, here, there, odd),
                _ => butterflies::<7>(self.points, stage, here, there, odd),
            }
            std::mem::swap(&mut memory.here, &mut memory.there);
        }
    }
}

/// All butterflies of a stage. Input `r` of butterfly `b` is point `b + r points / R`, its results are `before` points apart.
#[inline(always)]
fn butterflies<const R: usize>(
    points: usize,
    stage: &Stage,
    from: &Parts,
    to: &mut Parts,
    transform: impl Fn([Complex; R]) -> [Complex; R],
) {
    let (step, before) = (points / R, stage.before);
    if before == 1 {
        // The roots are 1.
        let inputs: [(&[f64], &[f64]); R] =
            std::array::from_fn(|r| (&from.re[r * step..][..step], &from.im[r * step..][..step]));
        let outputs = to.re[..points].as_chunks_mut::<R>().0.iter_mut().zip(to.im[..points].as_chunks_mut::<R>().0);
        for (at, (re, im)) in outputs.enumerate() {
            let values = transform(std::array::from_fn(|r| Complex { re: inputs[r].0[at], im: inputs[r].1[at] }));
            for (r, value) in values.into_iter().enumerate() {
                (re[r], im[r]) = (value.re, value.im);
            }
        }
        return;
    }
    let roots: [(&[f64], &[f64]); R] = std::array::from_fn(|r| match r {
        0 => (&[][..], &[][..]),
        _ => (&stage.roots.re[(r - 1) * before..][..before], &stage.roots.im[(r - 1) * before..][..before]),
    });
    let outputs = to.re[..points].chunks_exact_mut(before * R).zip(to.im[..points].chunks_exact_mut(before * R));
    for (group, (re, im)) in outputs.enumerate() {
        let first = group * before;
        let inputs: [(&[f64], &[f64]); R] = std::array::from_fn(|r| {
            let at = r * step + first;
            (&from.re[at..][..before], &from.im[at..][..before])
        });
        let (mut re, mut im) = (re.chunks_exact_mut(before), im.chunks_exact_mut(before));
        let mut outputs: [(&mut [f64], &mut [f64]); R] =
            std::array::from_fn(|_| (re.next().unwrap_or_default(), im.next().unwrap_or_default()));
        for at in 0..before {
            let values = transform(std::array::from_fn(|r| {
                let value = Complex { re: inputs[r].0[at], im: inputs[r].1[at] };
                match r {
                    0 => value,
                    _ => value.times(Complex { re: roots[r].0[at], im: roots[r].1[at] }),
                }
            }));
            for (value, (re, im)) in values.into_iter().zip(&mut outputs) {
                (re[at], im[at]) = (value.re, value.im);
            }
        }
    }
}

#[inline(always)]
fn plus(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re + b.re, im: a.im + b.im }
}

#[inline(always)]
fn minus(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re - b.re, im: a.im - b.im }
}

/// `-i` times a number.
#[inline(always)]
fn turned(a: Complex) -> Complex {
    Complex { re: a.im, im: -a.re }
}

#[inline(always)]
fn two([a, b]: [Complex; 2]) -> [Complex; 2] {
    [plus(a, b), minus(a, b)]
}

#[inline(always)]
fn four([a, b, c, d]: [Complex; 4]) -> [Complex; 4] {
    let (even, odd) = (two([a, c]), two([b, d]));
    let turned = turned(odd[1]);
    [plus(even[0], odd[0]), plus(even[1], turned), minus(even[0], odd[0]), minus(even[1], turned)]
}

/// Of an odd number of inputs, from the sums and the differences of those whose roots are conjugates.
#[inline(always)]
fn odd<const R: usize>(inputs: [Complex; R]) -> [Complex; R] {
    let mut results = [inputs[0]; R];
    for pair in 1..=R / 2 {
        results[0] = plus(results[0], inputs[pair]);
        results[0] = plus(results[0], inputs[R - pair]);
    }
    for result in 1..=R / 2 {
        let (mut even, mut odd) = (inputs[0], Complex::default());
        for pair in 1..=R / 2 {
            let (cosine, sine) = constants::<R>(result * pair % R);
            let (sum, difference) = (plus(inputs[pair], inputs[R - pair]), minus(inputs[pair], inputs[R - pair]));
            even = plus(even, Complex { re: cosine * sum.re, im: cosine * sum.im });
            odd = plus(odd, Complex { re: sine * difference.re, im: sine * difference.im });
        }
        let turned = turned(odd);
        (results[result], results[R - result]) = (plus(even, turned), minus(even, turned));
    }
    results
}

/// Cosine and sine of so many `R`-ths of a turn.
#[inline(always)]
fn constants<const R: usize>(at: usize) -> (f64, f64) {
    let (cosine, sine) = match (R, at.min(R - at)) {
        (3, _) => (-0.5, 0.866_025_403_784_438_6),
        (5, 1) => (0.309_016_994_374_947_45, 0.951_056_516_295_153_5),
        (5, _) => (-0.809_016_994_374_947_5, 0.587_785_252_292_473_1),
        (_, 1) => (0.623_489_801_858_733_6, 0.781_831_482_468_029_8),
        (_, 2) => (-0.222_520_933_956_314_4, 0.974_927_912_181_823_6),
        (_, _) => (-0.900_968_867_902_419_1, 0.433_883_739_117_558_1),
    };
    (cosine, if 2 * at > R { -sine } else { sine })
}

/// What a plan makes once for its lines.
enum Tables {
    Stages(Stages),
    Chirp(Chirp),
}

/// A transform of any number of points as a convolution: `j k = (j^2 + k^2 - (k - j)^2) / 2`.
struct Chirp {
    points: usize,
    /// A power of two that holds the convolution.
    stages: Stages,
    /// `exp(-pi i j^2 / n)`.
    chirp: Vec<Complex>,
    /// The transform of the conjugates around 0, divided by its points.
    spectrum: Vec<Complex>,
}

impl Tables {
    fn new(points: u64) -> Result<Self, Shortage> {
        if let Some(radices) = radices(points) {
            return Stages::new(points, &radices).map(Self::Stages);
        }
        let padded = (2 * points - 1).next_power_of_two();
        let stages = Stages::new(padded, &radices(padded).unwrap_or_default())?;
        let chirp = held(points, (0..points).map(|j| root(square(j, 2 * points), 2 * points)))?;
        let mut memory = Memory::new(padded)?;
        for (at, value) in chirp.iter().enumerate() {
            memory.here.set(at, value.conjugate());
            if at > 0 {
                memory.here.set(to_usize(padded) - at, value.conjugate());
            }
        }
        stages.transform(&mut memory);
        let share = 1.0 / padded as f64;
        let scaled = |at| {
            let value = memory.here.get(at);
            Complex { re: share * value.re, im: share * value.im }
        };
        let spectrum = held(padded, (0..to_usize(padded)).map(scaled))?;
        Ok(Self::Chirp(Chirp { points: to_usize(points), stages, chirp, spectrum }))
    }

    /// Points in memory.
    fn padded(&self) -> u64 {
        match self {
            Self::Stages(stages) => stages.points as u64,
            Self::Chirp(chirp) => chirp.stages.points as u64,
        }
    }

    /// A line: `get` reads a point, `put` takes a result.
    #[inline(always)]
    fn transform(
        &self,
        memory: &mut Memory,
        geometry: &Geometry,
        get: impl Fn(u64) -> Complex,
        put: impl Fn(u64, Complex),
    ) {
        let is_inverse = geometry.is_inverse;
        match self {
            Self::Stages(stages) => {
                for at in 0..stages.points {
                    memory.here.set(at, get(at as u64).swapped_if(is_inverse));
                }
                stages.transform(memory);
                for at in 0..geometry.results() {
                    put(at, memory.here.get(to_usize(at)).swapped_if(is_inverse));
                }
            }
            Self::Chirp(Chirp { points, stages, chirp, spectrum }) => {
                for (at, factor) in chirp.iter().enumerate() {
                    memory.here.set(at, get(at as u64).swapped_if(is_inverse).times(*factor));
                }
                for at in *points..stages.points {
                    memory.here.set(at, Complex::default());
                }
                stages.transform(memory);
                for (at, factor) in spectrum.iter().enumerate() {
                    let product = memory.here.get(at).times(*factor);
                    memory.here.set(at, product.swapped_if(true));
                }
                stages.transform(memory);
                for (at, factor) in (0..geometry.results()).zip(chirp) {
                    let value = memory.here.get(to_usize(at)).swapped_if(true).times(*factor);
                    put(at, value.swapped_if(is_inverse));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_radix_and_a_chirp_are_the_sum() {
        for points in [1u64, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 30, 49, 60, 101, 105, 128, 210] {
            let tables = Tables::new(points).unwrap();
            let x: Vec<Complex> =
                (0..points).map(|j| Complex { re: (j as f64 * 0.7).sin(), im: (j as f64 * 1.3 + 0.2).cos() }).collect();
            let mut memory = Memory::new(tables.padded()).unwrap();
            for is_inverse in [false, true] {
                let geometry = super::super::FftDescriptor::new(
                    crate::TensorDesc::contiguous(crate::DType::F64, &[points, 2]).unwrap(),
                    0,
                );
                let geometry = Geometry { is_inverse, ..geometry.unwrap().0.derived };
                let found = std::cell::RefCell::new(Vec::new());
                tables.transform(
                    &mut memory,
                    &geometry,
                    |at| x[at as usize],
                    |_, value| found.borrow_mut().push(value),
                );
                for (k, found) in (0..points).zip(found.into_inner()) {
                    let mut sum = Complex::default();
                    for (j, value) in (0..points).zip(&x) {
                        let w = root(j * k % points, points);
                        sum = plus(sum, value.times(if is_inverse { w.conjugate() } else { w }));
                    }
                    let error = (sum.re - found.re).abs() + (sum.im - found.im).abs();
                    assert!(error < 1e-13 * points as f64, "{points} points, bin {k}: {sum:?} {found:?}");
                }
            }
        }
    }
}
