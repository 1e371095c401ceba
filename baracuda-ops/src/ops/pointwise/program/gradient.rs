//! The program of a program's gradients: its instructions again, and from the last to the first what reaches their arguments.
//!
//! Functions that are constant between their jumps, such as floor, pass nothing on. A gradient that nothing reaches is 0, whatever arrives at the outputs
//! and whatever other derivatives are: no product with 0 makes NaN of an infinity. An input on which no output depends has no gradient; through
//! Bools, which comparisons give and `where` takes, none depends on a number: nothing arrives at them.

use super::functions::{Call, MAX_ARITY};
use super::{Argument, Function, Instruction, Program, ProgramBuilder, Term};
use crate::error::Result;

/// A program of gradients, and what its inputs are.
pub(crate) struct Gradient {
    pub(crate) program: Program,
    pub(crate) inputs: Vec<Origin>,
}

/// What an input of a program of gradients is to the program whose gradients it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The input at this place.
    Input(usize),
    /// The gradient that arrives at the output at this place.
    GradientOf(usize),
    /// The further input at this place.
    Further(usize),
}

/// Why a wanted input, by its place, has no gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// None of the outputs depends on it.
    Independent(usize),
    /// An output depends on it through a function that has no derivative.
    Underivable(usize, Function),
}

/// A gradient of what is made of a value: of the value, the gradient that arrives, and further inputs.
pub(crate) type Made<'t> = dyn Fn(&mut ProgramBuilder, Term, Term, &[Term]) -> Term + 't;

/// What reaches the only output of a program, of a gradient that arrives at what is made of its values.
pub(crate) struct Through<'t> {
    /// How many inputs it needs besides.
    pub(crate) further: usize,
    /// Of the value, the gradient, and the further inputs.
    pub(crate) of: &'t Made<'t>,
}

impl Program {
    /// The program of the gradients of the inputs `wanted`, in this order, if gradients arrive at the outputs `arriving`; else the first of the wanted
    /// inputs that has none. Without `through` they arrive at the outputs themselves.
    pub(crate) fn gradient(
        &self,
        arriving: &[usize],
        wanted: &[usize],
        through: Option<&Through<'_>>,
    ) -> Result<Result<Gradient>, Refused> {
        let mut b = ProgramBuilder::default();
        let inputs: Vec<Term> = (0..self.inputs()).map(|at| b.input(self.name(Argument::Input(at)))).collect();
        let dys: Vec<Term> = arriving.iter().map(|at| b.input(format!("d_out{at}"))).collect();
        let count = through.map_or(0, |through| through.further);
        let further: Vec<Term> = (0..count).map(|at| b.input(format!("d_of{at}"))).collect();
        let sources: Vec<Term> = self.sources().iter().map(|&source| b.source(source)).collect();
        let mut results: Vec<Term> = Vec::with_capacity(self.instructions().len());
        let term = |results: &[Term], argument: Argument| match argument {
            Argument::Input(at) => inputs[at],
            Argument::Source(at) => sources[at],
            Argument::Result(at) => results[at],
            literal @ Argument::Literal(_) => Term(literal),
        };
        for Instruction { function, arguments } in self.instructions() {
            let arguments: Vec<Term> = arguments.iter().map(|&argument| term(&results, argument)).collect();
            results.push(b.call(*function, arguments));
        }
        // The gradient that has reached each value so far.
        let mut reached = Reached {
            of_inputs: vec![None; inputs.len()],
            of_results: vec![None; results.len()],
            refused_inputs: vec![None; inputs.len()],
            refused_results: vec![None; results.len()],
        };
        for (&at, &dy) in arriving.iter().zip(&dys) {
            let output = self.results()[at];
            let dy = through.map_or(dy, |through| (through.of)(&mut b, term(&results, output), dy, &further));
            reached.add(&mut b, output, dy);
        }
        for (at, Instruction { function, arguments }) in self.instructions().iter().enumerate().rev() {
            let arrives = reached.of_results[at].is_some_and(|dy| dy != Term::NOTHING);
            if let Some(refused) = reached.refused_results[at].filter(|_| !function.gives_bool()) {
                reached.refuse(arguments, refused);
            }
            let lacking = |&(place, _): &(usize, &Argument)| arrives && function.lacks_gradient_of(place);
            for (_, argument) in arguments.iter().enumerate().filter(lacking) {
                reached.refuse(std::slice::from_ref(argument), *function);
            }
            let Some(dy) = reached.of_results[at] else { continue };
            let mut x = [Term::from(0.0); MAX_ARITY];
            x.iter_mut().zip(arguments).for_each(|(x, argument)| *x = term(&results, *argument));
            let call = Call { x, y: results[at], dy };
            let numbers = (0..).zip(arguments).filter(|&(at, _)| !function.takes_bool(at));
            for (derivative, (_, argument)) in function.row().derivatives.iter().zip(numbers) {
                if !matches!(argument, Argument::Literal(_) | Argument::Source(_)) {
                    let dx = if dy == Term::NOTHING { dy } else { derivative(&mut b, call) };
                    reached.add(&mut b, *argument, dx);
                }
            }
        }
        let gradient = |&at: &usize| match reached.refused_inputs[at] {
            Some(function) => Err(Refused::Underivable(at, function)),
            None => reached.of_inputs[at].ok_or(Refused::Independent(at)),
        };
        let mut gradients: Vec<Term> = wanted.iter().map(gradient).collect::<Result<_, _>>()?;
        for dx in gradients.iter_mut().filter(|dx| **dx == Term::NOTHING) {
            *dx = b.zero(dys[0]);
        }
        let origins = (0..self.inputs()).map(Origin::Input);
        let origins = origins.chain(arriving.iter().map(|&at| Origin::GradientOf(at)));
        let origins = origins.chain((0..count).map(Origin::Further));
        Ok(b.finish_with_used_inputs(gradients).map(|(program, used)| {
            let inputs = origins.zip(used).filter(|(_, is_used)| *is_used).map(|(origin, _)| origin).collect();
            Gradient { program, inputs }
        }))
    }
}

/// The gradients that have reached inputs and results.
struct Reached {
    of_inputs: Vec<Option<Term>>,
    of_results: Vec<Option<Term>>,
    /// The function without a derivative through which outputs depend on them.
    refused_inputs: Vec<Option<Function>>,
    refused_results: Vec<Option<Function>>,
}

impl Reached {
    fn refuse(&mut self, arguments: &[Argument], function: Function) {
        for argument in arguments {
            match *argument {
                Argument::Input(at) => self.refused_inputs[at] = Some(function),
                Argument::Result(at) => self.refused_results[at] = Some(function),
                Argument::Source(_) | Argument::Literal(_) => {}
            }
        }
    }

    fn add(&mut self, b: &mut ProgramBuilder, to: Argument, dx: Term) {
        let held = match to {
            Argument::Input(at) => &mut self.of_inputs[at],
            Argument::Result(at) => &mut self.of_results[at],
            // Sources depend on no input.
            Argument::Source(_) | Argument::Literal(_) => return,
        };
        *held = Some(match *held {
            Some(before) if dx == Term::NOTHING => before,
            Some(before) if before != Term::NOTHING => b.add(before, dx),
            _ => dx,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_those_of_the_functions() {
        for function in Function::ALL.into_iter().filter(|function| function.has_gradient()) {
            let program = Program::of(function);
            let has_one = |&at: &usize| !function.takes_bool(at) && !function.lacks_gradient_of(at);
            let wanted: Vec<usize> = (0..function.arity()).filter(has_one).collect();
            let gradient = program.gradient(&[0], &wanted, None).unwrap().unwrap();
            for at in [[0.3, 1.7, 0.9], [2.6, 0.4, 0.1], [0.01, 3.0, 2.0], [-0.7, 2.0, 0.4], [-2.3, 0.6, 1.1]] {
                let (dy, h) = (1.5, 1e-6);
                let inputs: Vec<f64> = gradient
                    .inputs
                    .iter()
                    .map(|origin| match *origin {
                        Origin::Input(input) => at[input],
                        _ => dy,
                    })
                    .collect();
                let mut gradients = vec![0.0; wanted.len()];
                gradient.program.evaluate(&inputs, |number| number, &mut gradients);
                for (&input, got) in wanted.iter().zip(gradients) {
                    let mut moved = [at; 2];
                    moved[0][input] += h;
                    moved[1][input] -= h;
                    let [above, below] = moved.map(|x| function.value(x));
                    let expected = dy * (above - below) / (2.0 * h);
                    // Beyond the domain there is none.
                    let is_undefined = expected.is_nan();
                    assert!(
                        is_undefined || (got - expected).abs() < 1e-7 * (1.0 + expected.abs()),
                        "{function:?} at {at:?}: {got} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_gradient_passes_through_comparisons() {
        let program: Program = serde_json::from_str(
            r#"{"inputs":["x","y"],"let":[["c","gt","x","y"],["t","exp","x"],["u","where","c","t","y"],["v","where","c",1,0]],"outputs":["u","v"]}"#,
        )
        .unwrap();
        let gradient = program.gradient(&[0], &[0, 1], None).unwrap().unwrap();
        for (x, y, expected) in [(2.0, 1.0, [1.5 * 2f64.exp(), 0.0]), (1.0, 2.0, [0.0, 1.5])] {
            let mut got = [f64::NAN; 2];
            gradient.program.evaluate(&[x, y, 1.5], |number| number, &mut got);
            assert_eq!(got, expected);
        }
        assert_eq!(program.gradient(&[1], &[0], None).err(), Some(Refused::Independent(0)));
    }

    #[test]
    fn a_gradient_takes_what_it_needs() {
        let program: Program = serde_json::from_str(
            r#"{"inputs":["x","y","z"],"let":[["t","mul","x","y"],["u","add","t","z"],["v","exp","x"]],"outputs":["u","v"]}"#,
        )
        .unwrap();
        let gradient = program.gradient(&[0], &[0, 2], None).unwrap().unwrap();
        assert_eq!(gradient.inputs, [Origin::Input(1), Origin::GradientOf(0)]);
        assert_eq!(gradient.program.instructions().len(), 1);
        assert_eq!(program.gradient(&[1], &[0, 2], None).err(), Some(Refused::Independent(2)));
    }

    #[test]
    fn functions_without_derivatives_are_refused_where_something_depends_on_them() {
        let of = |instructions: &str, output: &str| -> Program {
            let json = format!(r#"{{"inputs":["x","y"],"let":[{instructions}],"outputs":["{output}"]}}"#);
            serde_json::from_str(&json).unwrap()
        };
        // The sum has a gradient of its own, which would be a part of it.
        let partly = of(r#"["t","mul","x",2],["u","zeta","t",3],["v","add","u","x"],["w","mul","v","y"]"#, "w");
        let refused = Some(Refused::Underivable(0, Function::Zeta));
        assert_eq!(partly.gradient(&[0], &[0], None).err(), refused);
        assert_eq!(partly.gradient(&[0], &[1, 0], None).err(), refused);
        assert!(partly.gradient(&[0], &[1], None).unwrap().is_ok());
        let unused = of(r#"["u","nextafter","x",0],["c","gt","u",0],["v","where","c","x","y"]"#, "v");
        assert!(unused.gradient(&[0], &[0, 1], None).unwrap().is_ok());
        // Its other argument has one.
        let of_second = of(r#"["v","zeta","x","y"]"#, "v");
        assert!(of_second.gradient(&[0], &[1], None).unwrap().is_ok());
        assert_eq!(of_second.gradient(&[0], &[1, 0], None).err(), refused);
    }

    const SLOPES_OF_SINC: [(f64, f64); 12] = [
        (0.0, 0.0),
        (1e-8, -3.289_868_133_696_452_6e-8),
        (-0.0001, 0.000_328_986_810_122_675_6),
        (0.01, -0.032_895_434_481_712_4),
        (-0.1, 0.325_751_267_883_124),
        (0.249, -0.770_132_821_049_922_2),
        (0.2501, -0.773_108_423_349_039),
        (-0.75, 1.342_949_626_540_777_2),
        (1.0, -1.0),
        (2.4, 0.076_199_669_278_404_81),
        (-7.25, 0.093_249_847_030_928_76),
        (1001.5, 3.173_571_008_278_303_3e-7),
    ];

    #[test]
    fn the_slope_of_sinc_keeps_its_digits() {
        let gradient = Program::of(Function::Sinc).gradient(&[0], &[0], None).unwrap().unwrap();
        // Of 50 digits, with mpmath.
        for (x, expected) in SLOPES_OF_SINC {
            let mut got = [f64::NAN];
            gradient.program.evaluate(&[x, 1.0], |number| number, &mut got);
            // Beside a zero of the cosine the rounding of pi counts.
            let allowed = 1e-14 * expected.abs() + 2e-16 / x.abs().max(1.0) * f64::from(u8::from(x.abs() > 0.25));
            assert!((got[0] - expected).abs() <= allowed, "{x}: {} {expected}", got[0]);
        }
    }
}
