//! Sources: values of a position that no input has, which are where it is and random numbers.
//!
//! Random numbers are those of Philox 4x32-10. The element at row-major position p of the outputs' extents, however they lie, has word `p mod 4` of block
//! `p / 4`; of f64 two words, of block `p / 2`, the first the upper one. The counter has the block in words 0 and 1, the offset in word 2 and the stream in
//! word 3; the key is the seed.
//!
//! Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011; normal numbers by G. E. P. Box,
//! M. E. Muller, "A Note on the Generation of Random Normal Deviates", 1958.

use super::{Argument, Function, Instruction, Literal, Names, Program};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// How random numbers of a [`Program`] are distributed. `w` is a random word of 32 bits, or of 64 bits where uniform, normal and exponential numbers
/// compute in f64.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// From 0 to below 1, the first digits of `w`: 24, of f64 53. If it is an output, at most as many as that type has (f32 24, f16 11, bf16 8, f8e4m3 4,
    /// f8e5m2 3), so that rounding never gives 1. The same bits on every backend.
    Uniform,
    /// Bool, true with this probability: where `w < p 2^32`, which is rounded. The same on every backend.
    Bernoulli {
        /// From 0 to 1.
        p: f64,
    },
    /// A whole number from `low` to below `high`: `low + floor(w (high - low) / 2^32)`, which prefers some numbers by at most `(high - low) / 2^32`.
    /// The same on every backend.
    RandInt {
        /// The least number.
        low: i64,
        /// Above the greatest number by 1, and above `low` by at most 2^32.
        high: i64,
    },
    /// With mean 0 and variance 1, by Box and Muller: an even position and the next share `r = sqrt(-2 log((2 w + 1) 2^-33))` and `a = 2 pi w' 2^-32` of
    /// their words w and w'; the even one is `r cos(a)`, the odd one `r sin(a)`.
    Normal,
    /// With mean 1: `-log((2 w + 1) 2^-33)`.
    Exponential,
}

/// What a program has in place of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// The position along an axis of the outputs.
    Index { axis: usize },
    /// A random number.
    Random(Draw),
    /// The number of elements that a reduction made one of.
    Count,
}

/// A random number at every position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Draw {
    pub(crate) kind: Kind,
    /// The numbers of the distribution, in the order of its fields.
    pub(crate) numbers: [Literal; 2],
    /// The inputs that are the seed and the offset.
    pub(crate) seed: usize,
    pub(crate) offset: usize,
    pub(crate) stream: u32,
    /// Of uniform numbers how many digits they have, or 0 if their outputs say it.
    pub(crate) digits: u32,
}

/// A distribution without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Uniform,
    Bernoulli,
    RandInt,
    Normal,
    Exponential,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Uniform, Self::Bernoulli, Self::RandInt, Self::Normal, Self::Exponential];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Bernoulli => "bernoulli",
            Self::RandInt => "randint",
            Self::Normal => "normal",
            Self::Exponential => "exponential",
        }
    }

    /// What its numbers are called.
    pub(crate) const fn numbers(self) -> &'static [&'static str] {
        match self {
            Self::Bernoulli => &["p"],
            Self::RandInt => &["low", "high"],
            Self::Uniform | Self::Normal | Self::Exponential => &[],
        }
    }

    /// Whether it takes two words in f64.
    const fn is_of_real_numbers(self) -> bool {
        matches!(self, Self::Uniform | Self::Normal | Self::Exponential)
    }
}

/// The name of [`Source::Index`].
pub(super) const INDEX: &str = "index";
/// The name of [`Source::Count`].
pub(super) const COUNT: &str = "count";

/// The greatest whole number up to which f64 holds every one.
const MOST_WHOLE: f64 = 9_007_199_254_740_992.0; // 2^53

impl Source {
    /// A random number.
    #[expect(clippy::cast_precision_loss, reason = "numbers beyond 2^53 are refused when the program is made")]
    pub(super) fn random(distribution: Distribution, seed: usize, offset: usize, stream: u32) -> Self {
        let (kind, numbers) = match distribution {
            Distribution::Uniform => (Kind::Uniform, [0.0; 2]),
            Distribution::Bernoulli { p } => (Kind::Bernoulli, [p, 0.0]),
            Distribution::RandInt { low, high } => (Kind::RandInt, [low as f64, high as f64]),
            Distribution::Normal => (Kind::Normal, [0.0; 2]),
            Distribution::Exponential => (Kind::Exponential, [0.0; 2]),
        };
        Self::Random(Draw { kind, numbers: numbers.map(Literal::new), seed, offset, stream, digits: 0 })
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Index { .. } => INDEX,
            Self::Random(draw) => draw.kind.name(),
            Self::Count => COUNT,
        }
    }

    pub(crate) const fn draw(&self) -> Option<&Draw> {
        match self {
            Self::Index { .. } | Self::Count => None,
            Self::Random(draw) => Some(draw),
        }
    }

    pub(crate) const fn gives_bool(&self) -> bool {
        matches!(self, Self::Random(Draw { kind: Kind::Bernoulli, .. }))
    }

    /// The seed and the offset.
    pub(crate) fn keys(&self) -> impl Iterator<Item = usize> + use<> {
        self.draw().map(|draw| [draw.seed, draw.offset]).into_iter().flatten()
    }

    /// Refuses numbers that a distribution does not have.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(Draw { kind, numbers, digits, .. }) = self.draw() else { return Ok(()) };
        let [first, second] = numbers.map(Literal::get);
        match kind {
            Kind::Bernoulli if !(0.0..=1.0).contains(&first) => Err(format!("p must be from 0 to 1, got {first}")),
            Kind::RandInt => {
                let is_whole = |number: f64| number.fract() == 0.0 && number.abs() <= MOST_WHOLE;
                if !is_whole(first) || !is_whole(second) {
                    return Err(format!("low and high must be whole and at most 2^53, got {first} and {second}"));
                }
                if !(1.0..=4_294_967_296.0).contains(&(second - first)) {
                    return Err(format!("high must be above low by 1 to 2^32, got {first} and {second}"));
                }
                Ok(())
            }
            Kind::Uniform if *digits > 53 => Err(format!("digits must be at most 53, got {digits}")),
            _ => Ok(()),
        }
    }

    /// Refuses a source that a computing type does not hold, or of an axis that the outputs do not have.
    pub(super) fn check_type(&self, computing: DType, dims: &[u64]) -> Result<(), String> {
        let most = exact(computing);
        match *self {
            Self::Index { axis } => {
                let rank = dims.len();
                let Some(&extent) = dims.get(axis) else {
                    return Err(format!("axis must be below the rank of the outputs, {rank}; got {axis}"));
                };
                if extent.saturating_sub(1) > most {
                    let rule = format!("the extent along axis {axis}, {extent}, must be at most {}", most + 1);
                    return Err(format!("{rule}: {computing}, in which the program computes, holds no more positions"));
                }
                Ok(())
            }
            Self::Random(Draw { kind, .. }) if kind.is_of_real_numbers() && !computing.is_float() => Err(format!(
                "gives floating-point numbers; the program computes in {computing}: cast what it gives in a program of its own"
            )),
            Self::Random(Draw { kind: Kind::RandInt, numbers, .. }) => {
                let [low, high] = numbers.map(Literal::get);
                #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
                let most = most as f64;
                let least = match computing {
                    DType::U32 => 0.0,
                    DType::I32 => -most - 1.0,
                    _ => -most,
                };
                if low < least || high - 1.0 > most {
                    return Err(format!(
                        "low and high - 1 must be from {least} to {most}, which {computing} holds, got {low} and {high}"
                    ));
                }
                Ok(())
            }
            Self::Random(_) => Ok(()),
            Self::Count => Err("is known where a reduction ends, in its finish alone".into()),
        }
    }
}

/// The number up to which a type in which programs compute, and f64, hold all whole numbers.
fn exact(computing: DType) -> u64 {
    match computing {
        DType::F32 => 1 << 24,
        DType::I32 => (1 << 31) - 1,
        DType::U32 => (1 << 32) - 1,
        _ => 1 << 53,
    }
}

/// The digits of numbers of a floating-point type.
fn digits(dtype: DType) -> u32 {
    match dtype {
        DType::F64 => 53,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F8E4M3 => 4,
        DType::F8E5M2 => 3,
        _ => 24,
    }
}

impl Program {
    /// The program in which the count is this number.
    ///
    /// # Errors
    /// It has too many instructions then.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a literal is rounded to the computing type, which holds fewer digits"
    )]
    pub(crate) fn with_count(&self, count: u64) -> Result<Self> {
        let count = Argument::Literal(Literal::new(count as f64));
        let term = |argument: Argument| match argument {
            Argument::Source(at) if self.sources()[at] == Source::Count => count,
            other => other,
        };
        let mut instructions = self.instructions().to_vec();
        instructions.iter_mut().flat_map(|it| &mut it.arguments).for_each(|argument| *argument = term(*argument));
        let mut outputs: Vec<Argument> = self.results().iter().copied().map(term).collect();
        // An output is no number, but may be computed of one.
        for output in outputs.iter_mut().filter(|output| matches!(output, Argument::Literal(_))) {
            instructions.push(Instruction { function: Function::Maximum, arguments: vec![*output; 2] });
            *output = Argument::Result(instructions.len() - 1);
        }
        let names = Names { results: Vec::new(), sources: Vec::new(), ..self.0.names.clone() };
        let sources = self.sources().iter().copied().filter(|source| *source != Source::Count).collect();
        Self::checked(names, sources, instructions, outputs)
    }

    /// The program with as many digits of uniform numbers as it asks for, and at most those that its outputs, of these types, and the computing type have.
    pub(crate) fn with_digits(&self, outputs: &[DType], computing: DType) -> Self {
        let mut sources = self.sources().to_vec();
        for (at, source) in sources.iter_mut().enumerate() {
            if let Source::Random(draw) = source
                && draw.kind == Kind::Uniform
            {
                let own = self
                    .results()
                    .iter()
                    .zip(outputs)
                    .filter(|(result, dtype)| **result == Argument::Source(at) && dtype.is_float());
                let most = own.map(|(_, &dtype)| digits(dtype)).fold(digits(computing), u32::min);
                draw.digits = if draw.digits == 0 { most } else { most.min(draw.digits) };
            }
        }
        self.with_sources(sources)
    }
}

/// A source at work, on the CPU.
pub(crate) struct Stream {
    source: Source,
    is_double: bool,
    seed: [u32; 2],
    offset: u32,
    /// The block whose words are here.
    block: Option<u64>,
    words: [u32; 4],
}

impl Stream {
    /// `key`: the seed and the offset, if it is random.
    pub(crate) fn new(source: Source, computing: DType, seed: [u32; 2], offset: u32) -> Self {
        Self { source, is_double: computing == DType::F64, seed, offset, block: None, words: [0; 4] }
    }

    /// The value at a position: of an index that along its axis, else the row-major one.
    #[expect(clippy::cast_precision_loss, reason = "positions beyond 2^53 are refused, words have fewer digits")]
    pub(crate) fn value(&mut self, position: u64) -> f64 {
        let Source::Random(draw) = self.source else { return position as f64 };
        let is_double = self.is_double && draw.kind.is_of_real_numbers();
        let per_block = if is_double { 2 } else { 4 };
        let block = position / per_block;
        if self.block != Some(block) {
            let (low, high) = halves(block);
            self.words = philox([low, high, self.offset, draw.stream], self.seed);
            self.block = Some(block);
        }
        let words = self.words;
        let at = crate::narrow::to_usize(position % per_block);
        let [first, second] = draw.numbers.map(Literal::get);
        // As fractions of 2^64, whose lower half is 0 where a word is all.
        let wide = |at: usize| match is_double {
            true => u64::from(words[2 * at]) << 32 | u64::from(words[2 * at + 1]),
            false => u64::from(words[at]) << 32,
        };
        match draw.kind {
            Kind::Uniform => (wide(at) >> (64 - draw.digits)) as f64 * 0.5f64.powi(draw.digits.cast_signed()),
            Kind::Bernoulli => f64::from(u8::from(u64::from(words[at]) < threshold(first))),
            Kind::RandInt => first + ((u64::from(words[at]) * range([first, second])) >> 32) as f64,
            Kind::Exponential => opposite_logarithm(wide(at), is_double),
            Kind::Normal => {
                let even = at & !1;
                let radius = (2.0 * opposite_logarithm(wide(even), is_double)).sqrt();
                let [cosine, sine] = turn(wide(even | 1));
                radius * if at == even { cosine } else { sine }
            }
        }
    }
}

/// The numbers of words below which a bool is true.
pub(crate) fn threshold(p: f64) -> u64 {
    crate::narrow::whole((p * 4_294_967_296.0).round_ties_even()).cast_unsigned()
}

/// How many whole numbers there are.
pub(crate) fn range([low, high]: [f64; 2]) -> u64 {
    crate::narrow::whole(high - low).cast_unsigned()
}

/// `-log((2 w + 1) 2^-33)` of the upper half, or `-log((2 w + 1) 2^-54)` of the upper 53 bits.
#[expect(clippy::cast_precision_loss, reason = "at most 53 digits")]
fn opposite_logarithm(wide: u64, is_double: bool) -> f64 {
    let (word, bits) = if is_double { (wide >> 11, 53) } else { (wide >> 32, 32) };
    let unit = 0.5f64.powi(bits + 1);
    if word >> (bits - 1) == 0 {
        -((2 * word + 1) as f64 * unit).ln()
    } else {
        // Near 1, whose difference is exact.
        let rest = (1 << bits) - 1 - word;
        -(-((2 * rest + 1) as f64 * unit)).ln_1p()
    }
}

/// Cosine and sine of so many parts of a whole turn: of a rest within an eighth of it, and quarters.
#[expect(clippy::cast_precision_loss, reason = "an angle of 53 digits")]
fn turn(wide: u64) -> [f64; 2] {
    let quarters = wide.wrapping_add(1 << 61) >> 62;
    let rest = wide.wrapping_sub(quarters << 62).cast_signed();
    let (sine, cosine) = (rest as f64 * (std::f64::consts::TAU / 18_446_744_073_709_551_616.0)).sin_cos();
    match quarters {
        0 => [cosine, sine],
        1 => [-sine, cosine],
        2 => [-cosine, -sine],
        _ => [sine, -cosine],
    }
}

/// The lower and the upper word.
fn halves(wide: u64) -> (u32, u32) {
    let low = u32::try_from(wide & u64::from(u32::MAX)).unwrap_or_default();
    (low, u32::try_from(wide >> 32).unwrap_or_default())
}

/// Philox 4x32-10.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [(low0, high0), (low1, high1)] =
            [(0xd251_1f53, counter[0]), (0xcd9e_8d57, counter[2])].map(|(a, b): (u64, u32)| halves(a * u64::from(b)));
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// An error of a source.
pub(super) fn refused(op: &'static str, field: &'static str, at: usize, source: &Source, rule: &str) -> Error {
    Error::InvalidDescriptor { op, field, rule: format!("source {at}, {}: {rule}", source.name()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Random123's `kat_vectors`.
    #[test]
    fn blocks_are_those_of_random123() {
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), expected);
        }
    }

    fn numbers(distribution: Distribution, computing: DType, digits: u32, count: u64) -> Vec<f64> {
        let Source::Random(draw) = Source::random(distribution, 0, 1, 7) else { unreachable!() };
        let mut stream = Stream::new(Source::Random(Draw { digits, ..draw }), computing, [1234, 5678], 9);
        (0..count).map(|position| stream.value(position)).collect()
    }

    /// Mean and variance within five deviations of what they are expected to be; the fourth moment says how much a variance varies.
    #[test]
    fn numbers_are_distributed_as_they_say() {
        let count = 1 << 18;
        for (distribution, mean, variance, fourth) in [
            (Distribution::Uniform, 0.5, 1.0 / 12.0, 1.0 / 80.0),
            (Distribution::Bernoulli { p: 0.3 }, 0.3, 0.21, 0.21 * (1.0 - 3.0 * 0.21)),
            (Distribution::RandInt { low: -5, high: 6 }, 0.0, 10.0, 178.0),
            (Distribution::Normal, 0.0, 1.0, 3.0),
            (Distribution::Exponential, 1.0, 1.0, 9.0),
        ] {
            for (computing, digits) in [(DType::F32, 24), (DType::F64, 53)] {
                let values = numbers(distribution, computing, digits, count);
                let n = f64::from(1 << 18);
                let found = values.iter().sum::<f64>() / n;
                let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
                let of_spread: f64 = (fourth - variance * variance) / n;
                assert!((found - mean).abs() < 5.0 * (variance / n).sqrt(), "{distribution:?}: mean {found}");
                assert!((spread - variance).abs() < 5.0 * of_spread.sqrt(), "{distribution:?}: variance {spread}");
                // Neighbours do not go together.
                let products: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / n;
                assert!(products.abs() < 5.0 * variance / n.sqrt(), "{distribution:?}: covariance {products}");
            }
        }
    }

    /// The sum of squared differences from what is expected of 256 equal parts has mean 255 and variance 510.
    #[test]
    fn parts_of_equal_probability_have_as_many_numbers() {
        let normal = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        let kinds: [(Distribution, &dyn Fn(f64) -> f64); 3] = [
            (Distribution::Uniform, &|x| x),
            (Distribution::Normal, &normal),
            (Distribution::Exponential, &|x| -(-x).exp_m1()),
        ];
        for (distribution, integral) in kinds {
            let mut found = [0u32; 256];
            for value in numbers(distribution, DType::F32, 24, 1 << 18) {
                let part = crate::narrow::whole(integral(value) * 256.0).clamp(0, 255);
                found[usize::try_from(part).unwrap()] += 1;
            }
            let square: f64 = found.iter().map(|&count| (f64::from(count) - 1024.0).powi(2) / 1024.0).sum();
            assert!((square - 255.0).abs() < 5.0 * 510f64.sqrt(), "{distribution:?}: {square}");
        }
    }

    #[test]
    fn uniform_numbers_stay_below_one_and_integers_within_their_range() {
        for digits in [3, 4, 8, 11, 24] {
            let most = numbers(Distribution::Uniform, DType::F32, digits, 1 << 12).into_iter().fold(0.0, f64::max);
            assert!(most <= 1.0 - 0.5f64.powi(digits.cast_signed()), "{digits} digits: {most}");
        }
        let dice = numbers(Distribution::RandInt { low: 1, high: 7 }, DType::I32, 0, 1000);
        assert!(dice.iter().all(|value| (1.0..=6.0).contains(value) && value.fract() == 0.0));
        for (p, expected) in [(0.0, 0.0), (1.0, 1.0)] {
            assert!(numbers(Distribution::Bernoulli { p }, DType::F32, 0, 64).iter().all(|value| *value == expected));
        }
    }
}
