//! Programs that many use.

use super::{Distribution, Function, Program};
use crate::error::{Error, Result};

impl Program {
    /// Dropout of x: each element is 0 with probability `p`, else `x / (1 - p)`. The inputs are x, the seed and the offset (U32 of extents `[2]` and `[]`);
    /// with equal ones, and the same `stream`, the same elements are 0. The program of its gradients draws them again.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `p` is not from 0 to below 1.
    pub fn dropout(p: f64, stream: u32) -> Result<Self> {
        if !(0.0..1.0).contains(&p) {
            let rule = format!("must be from 0 to below 1, got {p}");
            return Err(Error::InvalidDescriptor { op: "program", field: "p", rule });
        }
        let mut b = Self::builder();
        let [x, seed, offset] = ["x", "seed", "offset"].map(|name| b.input(name));
        let is_kept = b.random(Distribution::Bernoulli { p: 1.0 - p }, seed, offset, stream);
        let scaled = b.call(Function::Mul, [x, (1.0 / (1.0 - p)).into()]);
        let y = b.call(Function::Where, [is_kept, scaled, 0.0.into()]);
        b.finish([y])
    }

    /// A number at every position, and no input.
    ///
    /// # Errors
    /// None: the program is valid.
    pub fn full(value: f64) -> Result<Self> {
        let mut b = Self::builder();
        let same = b.call(Function::Maximum, [value.into(), value.into()]);
        b.finish([same])
    }

    /// `start + step i` at position i along an axis, and no input.
    ///
    /// # Errors
    /// None: the program is valid.
    pub fn arange(axis: usize, start: f64, step: f64) -> Result<Self> {
        let mut b = Self::builder();
        let index = b.index(axis);
        let scaled = b.call(Function::Mul, [index, step.into()]);
        let value = b.call(Function::Add, [scaled, start.into()]);
        b.finish([value])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    #[test]
    fn the_gradient_of_dropout_draws_the_same_numbers() {
        let program = Program::dropout(0.25, 3).unwrap();
        let gradient = program.gradient(&[0], &[0], None).unwrap().unwrap();
        assert_eq!(gradient.inputs, [Origin::Input(1), Origin::Input(2), Origin::GradientOf(0)]);
        let [own, of_gradient] = [&program, &gradient.program].map(|program| *program.sources()[0].draw().unwrap());
        assert_eq!((own.kind, own.numbers, own.stream), (of_gradient.kind, of_gradient.numbers, of_gradient.stream));
        assert_eq!((of_gradient.seed, of_gradient.offset), (0, 1));
        for (is_kept, expected) in [(1.0, 3.0 / 0.75), (0.0, 0.0)] {
            let mut dx = [f64::NAN];
            gradient.program.evaluate(&[5.0, 6.0, 3.0, is_kept], |number| number, &mut dx);
            assert!((dx[0] - expected).abs() < 1e-15, "{dx:?}");
        }
        assert!(Program::dropout(1.0, 0).unwrap_err().to_string().contains("must be from 0 to below 1, got 1"));
    }
}
