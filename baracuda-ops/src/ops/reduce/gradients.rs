//! The gradients of reductions: what reaches each value, of a gradient that arrives at the result, then the steps that
//! [`pointwise`](crate::ops::pointwise::map) has of it.
//!
//! What reaches a value may depend on the result, or on others of the same values, such as their mean. These are forward's output if it has all digits, or
//! they are reduced again, in the computing type.

use super::reduction::{Combine, Each, Finish};
use super::{Fields, Geometry, INPUTS, OUTPUT, OUTPUTS, ReduceDescriptor, Reduction};
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::ops::pointwise::map::{Forward, PointwiseDescriptor, cast};
use crate::ops::pointwise::program::{Function, Made, Origin, Program, ProgramBuilder, Refused, Term, Through};
use crate::ops::valid::Described;
use crate::plan::Descriptor;
use crate::tensor::TensorDesc;

/// An operand of a step.
type Operand = (TensorDesc, Role);

/// A reduction whose gradients are derived.
struct Reduced<'r> {
    fields: &'r Fields,
    geometry: &'r Geometry,
    derivation: &'r mut Derivation,
    /// Of a forward with a finish the gradient of the results before it.
    arriving: Option<Operand>,
    /// Those results, once a step has them.
    unfinished: Option<Operand>,
}

pub(super) fn derive(forward: &ReduceDescriptor, derivation: &mut Derivation) -> Result<()> {
    let (fields, geometry) = (&forward.0.fields, &forward.0.derived);
    if !geometry.sets.is_empty() {
        let operand = derivation.wanted().first().copied().unwrap_or(INPUTS[0]).into();
        let why = "has no gradient in a descriptor of several sets; reduce each set by one of its own, made by `new` of its inputs, and combine their \
                   results by `pointwise`: both have gradients";
        return Err(Error::NoGradient { op: ReduceDescriptor::OP.name, operand, why, known: Vec::new() });
    }
    let dy = geometry.repeated_output()?;
    let row = geometry.row;
    let mut reduced = Reduced { fields, geometry, derivation, arriving: None, unfinished: None };
    if let Some(finish) = &geometry.finish {
        let arriving = reduced.through_finish(forward.0.slots.always(OUTPUT).desc, finish)?;
        reduced.arriving = Some(arriving);
    }
    match (row.combine, row.each, row.finish) {
        (Combine::Add, Each::Value, Finish::Total) => reduced.steps(dy, &geometry.program.clone(), None),
        (Combine::Add, Each::Value, _) => reduced.steps(dy, &geometry.program.divided(geometry.divisor)?, None),
        (Combine::Add, Each::Magnitude, _) => reduced.through(dy, Vec::new(), &|b, value, dy, _| {
            let sign = b.call(Function::Sign, [value]);
            b.call(Function::Mul, [dy, sign])
        }),
        (Combine::Add, Each::Square, _) => {
            let norm = reduced.result()?;
            reduced.through(dy, vec![norm], &|b, value, dy, of| {
                let share = b.call(Function::Div, [value, of[0]]);
                let share = b.call(Function::Mul, [dy, share]);
                where_equal(b, of[0], 0.0.into(), 0.0.into(), share)
            })
        }
        (Combine::Multiply, ..) => reduced.product(dy),
        (Combine::Greatest | Combine::Least, ..) => reduced.extreme(dy),
        (Combine::Exponentials, ..) => {
            let result = reduced.result()?;
            reduced.through(dy, vec![result], &|b, value, dy, of| {
                let apart = b.call(Function::Sub, [value, of[0]]);
                let share = b.call(Function::Exp, [apart]);
                let share = b.call(Function::Mul, [dy, share]);
                // All values are -infinity, which is no distance from itself.
                where_equal(b, of[0], f64::NEG_INFINITY.into(), 0.0.into(), share)
            })
        }
        (Combine::Moments, _, finish) => reduced.moments(dy, finish == Finish::RootOfMean),
        (Combine::Count | Combine::FirstGreatest | Combine::FirstLeast, ..)
        | (Combine::Add, Each::IsNonzero | Each::IsZero, _) => {
            let why = "has no gradient of a count or a position, which are constant between their jumps";
            let operand = reduced.derivation.wanted().first().copied().unwrap_or(INPUTS[0]).into();
            Err(Error::NoGradient { op: ReduceDescriptor::OP.name, operand, why, known: Vec::new() })
        }
    }
}

/// The one where `x = y`, else the other one.
fn where_equal(b: &mut ProgramBuilder, x: Term, y: Term, one: Term, other: Term) -> Term {
    let is_equal = b.call(Function::Eq, [x, y]);
    b.call(Function::Where, [is_equal, one, other])
}

impl Reduced<'_> {
    /// The gradient of the results before the finish, which a step computes.
    fn through_finish(&mut self, dy: TensorDesc, finish: &Program) -> Result<Operand> {
        let gradient = finish.gradient(&[0], &[0], None).map_err(|refused| {
            let constant = "has no gradient through a finish that is constant between its jumps, such as a comparison";
            let why = match refused {
                Refused::Independent(_) => constant,
                Refused::Underivable(_, function) => function.why_no_gradient().unwrap_or(constant),
            };
            let operand = self.derivation.wanted().first().copied().unwrap_or(INPUTS[0]).into();
            Error::NoGradient { op: ReduceDescriptor::OP.name, operand, why, known: Vec::new() }
        })??;
        let unfinished = self.fields.unfinished(self.geometry.computing)?;
        let result = unfinished.slots.always(OUTPUT).desc;
        let needs_result = gradient.inputs.iter().any(|origin| matches!(origin, Origin::Input(_)));
        let mut arriving = (dy, Role::GradientOf(OUTPUTS[0]));
        let mut of_result = arriving.1.clone();
        if needs_result {
            of_result = self.result()?.1;
            arriving = cast(self.derivation, arriving, self.geometry.computing)?;
        }
        let operand = |origin: &Origin| match origin {
            Origin::Input(_) => (result, of_result.clone()),
            Origin::GradientOf(_) | Origin::Further(_) => arriving.clone(),
        };
        let (descs, roles): (Vec<_>, Vec<_>) = gradient.inputs.iter().map(operand).unzip();
        let roles: Vec<_> = INPUTS.into_iter().zip(roles).collect();
        let step = PointwiseDescriptor::new(gradient.program, descs)?.outputs(vec![result.dtype()])?;
        let step = step.layout(OUTPUTS[0], result)?;
        Ok((unfinished.derived.repeated_output()?, written(self.derivation, step, &roles)))
    }

    /// The steps, given what reaches each value of the program.
    fn steps(&mut self, dy: TensorDesc, program: &Program, through: Option<(Through<'_>, Vec<Operand>)>) -> Result<()> {
        let (inputs, dims) = (&self.fields.inputs[..], self.geometry.dims());
        let op = ReduceDescriptor::OP.name;
        let dy = self.arriving.clone().unwrap_or((dy, Role::GradientOf(OUTPUTS[0])));
        Forward { op, program, inputs, dims, dys: vec![dy], arriving: vec![0], through }.derive(self.derivation)
    }

    /// As [`steps`](Self::steps), of the value, the gradient, and further operands.
    fn through(&mut self, dy: TensorDesc, further: Vec<Operand>, of: &Made<'_>) -> Result<()> {
        let through = Through { further: further.len(), of };
        self.steps(dy, &self.geometry.program.clone(), Some((through, further)))
    }

    /// A reduction along the same axes of what a program makes of the inputs, in the computing type, as it is read along the inputs' extents.
    fn reduction(&mut self, program: Program, reduce: Reduction) -> Result<Operand> {
        let inputs: Vec<Operand> =
            self.fields.inputs.iter().zip(INPUTS).map(|(&desc, name)| (desc, Role::Forward(name))).collect();
        self.reduction_of(&inputs, program, reduce)
    }

    /// The result before the finish: forward's output if it is that and of the computing type.
    fn result(&mut self) -> Result<Operand> {
        if let Some(unfinished) = &self.unfinished {
            return Ok(unfinished.clone());
        }
        if self.geometry.finish.is_some() {
            let step = self.fields.unfinished(self.geometry.computing)?;
            let desc = step.derived.repeated_output()?;
            let unfinished = (desc, written(self.derivation, ReduceDescriptor(step), &[]));
            self.unfinished = Some(unfinished.clone());
            return Ok(unfinished);
        }
        let output = self.geometry.repeated_output()?;
        if output.dtype() == self.geometry.computing {
            return Ok((output, Role::Forward(OUTPUTS[0])));
        }
        self.reduction(self.geometry.program.clone(), self.fields.reduce)
    }

    /// What reaches a factor is the product of the others: the quotient of the product and the factor or, of the only factor that is 0, the product of the
    /// factors that are not 0.
    fn product(&mut self, dy: TensorDesc) -> Result<()> {
        let zero = || Term::from(0.0);
        let others = self.geometry.program.with(0, |b, value, _| where_equal(b, value, zero(), 1.0.into(), value))?;
        let product = self.reduction(others, Reduction::Prod)?;
        let are_zero =
            self.geometry.program.with(0, |b, value, _| where_equal(b, value, zero(), 1.0.into(), zero()))?;
        let zeros = self.reduction(are_zero, Reduction::Sum)?;
        self.through(dy, vec![product, zeros], &|b, value, dy, of| {
            let quotient = b.call(Function::Div, [of[0], value]);
            let of_zero = where_equal(b, of[1], 1.0.into(), of[0], zero());
            let of_other = where_equal(b, of[1], zero(), quotient, zero());
            let others = where_equal(b, value, zero(), of_zero, of_other);
            b.call(Function::Mul, [dy, others])
        })
    }

    /// Values that equal the extreme share what arrives at it. What a program makes is kept, lest a value that is computed anew differ from its extreme.
    fn extreme(&mut self, dy: TensorDesc) -> Result<()> {
        let Geometry { program, computing, row, .. } = self.geometry;
        let of_each = |b: &mut ProgramBuilder, value: Term| match row.each {
            Each::Magnitude => b.call(Function::Abs, [value]),
            _ => value,
        };
        let output = self.geometry.repeated_output()?;
        let is_finished = self.geometry.finish.is_some();
        let is_exact = program.is_identity() && output.dtype() == self.fields.inputs[0].dtype() && !is_finished;
        let (value, extreme) = if program.is_identity() {
            let value = (self.fields.inputs[0], Role::Forward(INPUTS[0]));
            let own = (output, Role::Forward(OUTPUTS[0]));
            (value, if is_exact { own } else { self.result()? })
        } else {
            let kept =
                PointwiseDescriptor::new(program.clone(), self.fields.inputs.clone())?.outputs(vec![*computing])?;
            let desc = kept.slots()[self.fields.inputs.len()].desc;
            let value = (desc, written(self.derivation, kept, &[]));
            let extreme = self.reduction_of(std::slice::from_ref(&value), Program::identity(), self.fields.reduce)?;
            (value, extreme)
        };
        let mut b = Program::builder();
        let [x, y] = ["x", "y"].map(|name| b.input(name));
        let each = of_each(&mut b, x);
        let is_extreme = where_equal(&mut b, each, y, 1.0.into(), 0.0.into());
        let count = self.reduction_of(&[value.clone(), extreme.clone()], b.finish([is_extreme])?, Reduction::Sum)?;
        self.through(dy, vec![value, extreme, count], &|b, _, dy, of| {
            let each = of_each(b, of[0]);
            let mut share = b.call(Function::Div, [dy, of[2]]);
            if row.each == Each::Magnitude {
                let sign = b.call(Function::Sign, [of[0]]);
                share = b.call(Function::Mul, [share, sign]);
            }
            where_equal(b, each, of[1], share, 0.0.into())
        })
    }

    /// A reduction along the same axes of what a program makes of operands of the inputs' extents, in the computing type.
    fn reduction_of(&mut self, operands: &[Operand], program: Program, reduce: Reduction) -> Result<Operand> {
        let (descs, roles): (Vec<_>, Vec<_>) = operands.iter().cloned().unzip();
        let roles: Vec<_> = INPUTS.into_iter().zip(roles).collect();
        let mut step =
            ReduceDescriptor::new(program, descs, self.fields.axes.clone(), reduce)?.output(self.geometry.computing)?;
        if let Some(correction) = self.fields.correction.filter(|_| reduce == self.fields.reduce) {
            step = step.correction(correction)?;
        }
        let desc = step.0.derived.repeated_output()?;
        Ok((desc, written(self.derivation, step, &roles)))
    }

    /// Of a variance `2 (x - mean) / (n - correction)`; of its root, which is 0 where that is, the quotient with twice the root.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a literal is rounded to the computing type, which holds fewer digits"
    )]
    fn moments(&mut self, dy: TensorDesc, is_root: bool) -> Result<()> {
        let mean = self.reduction(self.geometry.program.clone(), Reduction::Mean)?;
        let divisor = self.geometry.divisor as f64;
        let mut further = vec![mean];
        if is_root {
            further.push(self.result()?);
        }
        self.through(dy, further, &|b, value, dy, of| {
            let apart = b.call(Function::Sub, [value, of[0]]);
            if !is_root {
                let twice = b.call(Function::Mul, [apart, 2.0.into()]);
                let share = b.call(Function::Div, [twice, divisor.into()]);
                return b.call(Function::Mul, [dy, share]);
            }
            let share = b.call(Function::Div, [apart, of[1]]);
            let share = b.call(Function::Div, [share, divisor.into()]);
            let share = b.call(Function::Mul, [dy, share]);
            where_equal(b, of[1], 0.0.into(), 0.0.into(), share)
        })
    }
}

/// Adds a step with one output, which later ones read.
fn written(derivation: &mut Derivation, step: impl Descriptor, roles: &[(&'static str, Role)]) -> Role {
    let step = derivation.push(step, roles);
    step.role(OUTPUTS[0]).cloned().unwrap_or(Role::Forward(OUTPUTS[0]))
}
