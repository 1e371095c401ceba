//! Programs made by code, without names.

use super::{Argument, Distribution, Draw, Function, Instruction, Literal, Names, Program, Source};
use crate::error::Result;

/// What an instruction takes: a value of the program, or a number.
///
/// ```
/// use baracuda_ops::{Function, Program};
/// let mut b = Program::builder();
/// let x = b.input("x");
/// let half = b.call(Function::Mul, [x, 0.5.into()]);
/// let program = b.finish([half])?;
/// assert_eq!(
///     serde_json::to_string(&program).unwrap(),
///     r#"{"inputs":["x"],"let":[["t0","mul","x",0.5]],"outputs":["t0"]}"#
/// );
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term(pub(super) Argument);

impl Term {
    /// The number 0, which as a gradient says that nothing reaches an argument.
    pub(super) const NOTHING: Self = Self(Argument::Literal(Literal::ZERO));
}

impl From<f64> for Term {
    fn from(number: f64) -> Self {
        Self(Argument::Literal(Literal::new(number)))
    }
}

/// A [`Program`] in the making.
#[derive(Debug, Default)]
pub struct ProgramBuilder {
    inputs: Vec<String>,
    sources: Vec<Source>,
    calls: Vec<(Function, Vec<Term>)>,
}

impl ProgramBuilder {
    /// A new input; its name is for readers alone.
    pub fn input(&mut self, name: impl Into<String>) -> Term {
        self.inputs.push(name.into());
        Term(Argument::Input(self.inputs.len() - 1))
    }

    /// The result of a function of these arguments. Equal calls are one.
    pub fn call(&mut self, function: Function, arguments: impl IntoIterator<Item = Term>) -> Term {
        let call = (function, arguments.into_iter().collect());
        let at = self.calls.iter().position(|known| *known == call).unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        Term(Argument::Result(at))
    }

    /// The position along an axis of the outputs, as a number of the computing type.
    pub fn index(&mut self, axis: usize) -> Term {
        self.source(Source::Index { axis })
    }

    /// The number of elements that a reduction made one of, in its [finish](crate::ReduceDescriptor::finish) alone.
    pub fn count(&mut self) -> Term {
        self.source(Source::Count)
    }

    /// A random number at each position, drawn by Philox 4x32-10. `seed` and `offset` are inputs, U32 of extents `[2]` and `[]`, and nothing else: a
    /// change of theirs makes other numbers. Equal numbers with another `stream` are others.
    ///
    /// ```
    /// use baracuda_ops::{Distribution, Function, Program};
    /// let mut b = Program::builder();
    /// let [x, seed, step] = ["x", "seed", "step"].map(|name| b.input(name));
    /// let noise = b.random(Distribution::Normal, seed, step, 0);
    /// let noisy = b.call(Function::Add, [x, noise]);
    /// let program = b.finish([noisy])?;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    pub fn random(&mut self, distribution: Distribution, seed: Term, offset: Term, stream: u32) -> Term {
        // What is no input is refused when the program is finished.
        let input = |Term(argument): Term| match argument {
            Argument::Input(at) => at,
            Argument::Source(_) | Argument::Result(_) | Argument::Literal(_) => usize::MAX,
        };
        self.source(Source::random(distribution, input(seed), input(offset), stream))
    }

    /// A source. Equal ones are one.
    pub(super) fn source(&mut self, source: Source) -> Term {
        let at = self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        Term(Argument::Source(at))
    }

    /// The program of these results. What none of them needs is left out, inputs stay.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`](crate::Error::InvalidDescriptor) if there are too many inputs, results or instructions, if a function has another
    /// number of arguments, if two inputs have one name, if an output is a number, or if a source's seed or offset is no input or has another use.
    pub fn finish(self, outputs: impl IntoIterator<Item = Term>) -> Result<Program> {
        let is_kept = vec![true; self.inputs.len()];
        self.finished(outputs.into_iter().collect(), is_kept).map(|(program, _)| program)
    }

    /// As [`finish`](Self::finish), without the inputs that none of the results needs; and whether each is needed.
    pub(super) fn finish_with_used_inputs(self, outputs: Vec<Term>) -> Result<(Program, Vec<bool>)> {
        let is_kept = vec![false; self.inputs.len()];
        self.finished(outputs, is_kept)
    }

    /// The program of these results and of the inputs that they need or that are kept, which it returns as well.
    fn finished(self, outputs: Vec<Term>, mut inputs: Vec<bool>) -> Result<(Program, Vec<bool>)> {
        let (mut calls, mut sources) = (vec![false; self.calls.len()], vec![false; self.sources.len()]);
        let mut need = |calls: &mut [bool], terms: &[Term]| {
            for Term(argument) in terms {
                let is_needed = match *argument {
                    Argument::Input(at) => inputs.get_mut(at),
                    Argument::Source(at) => sources.get_mut(at),
                    Argument::Result(at) => calls.get_mut(at),
                    Argument::Literal(_) => None,
                };
                is_needed.into_iter().for_each(|is_needed| *is_needed = true);
            }
        };
        need(&mut calls, &outputs);
        for at in (0..self.calls.len()).rev() {
            if calls[at] {
                need(&mut calls, &self.calls[at].1);
            }
        }
        for (source, _) in self.sources.iter().zip(&sources).filter(|(_, is_needed)| **is_needed) {
            source.keys().for_each(|key| inputs.get_mut(key).into_iter().for_each(|is_needed| *is_needed = true));
        }
        let [input_places, source_places, call_places] = [&inputs, &sources, &calls].map(|kept| places(kept));
        // Terms of another builder keep places that this one may not have, which the check of the program refuses.
        let place = |places: &[usize], at: usize| places.get(at).copied().unwrap_or(usize::MAX);
        let moved = |Term(argument): Term| match argument {
            Argument::Input(at) => Argument::Input(place(&input_places, at)),
            Argument::Source(at) => Argument::Source(place(&source_places, at)),
            Argument::Result(at) => Argument::Result(place(&call_places, at)),
            literal @ Argument::Literal(_) => literal,
        };
        let named = self.inputs.into_iter().zip(&inputs).filter(|(_, is_kept)| **is_kept).map(|(name, _)| name);
        let kept = self.calls.into_iter().zip(calls).filter(|(_, is_kept)| *is_kept).map(|(call, _)| call);
        let instructions = kept.map(|(function, arguments)| Instruction {
            function,
            arguments: arguments.into_iter().map(moved).collect(),
        });
        let names = Names { inputs: named.collect(), ..Names::default() };
        let kept = self.sources.into_iter().zip(sources).filter(|(_, is_kept)| *is_kept).map(|(source, _)| source);
        let sources = kept.map(|source| match source {
            Source::Random(draw) => {
                let [seed, offset] = [draw.seed, draw.offset].map(|key| place(&input_places, key));
                Source::Random(Draw { seed, offset, ..draw })
            }
            other @ (Source::Index { .. } | Source::Count) => other,
        });
        let outputs = outputs.into_iter().map(moved).collect();
        let program = Program::checked(names, sources.collect(), instructions.collect(), outputs)?;
        Ok((program, inputs))
    }
}

/// The place of each element among those that are kept.
fn places(kept: &[bool]) -> Vec<usize> {
    let place = |next: &mut usize, is_kept: &bool| {
        let at = *next;
        *next += usize::from(*is_kept);
        Some(at)
    };
    kept.iter().scan(0, place).collect()
}
