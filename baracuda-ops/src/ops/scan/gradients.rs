//! The gradients of scans, as steps.

use super::{Fields, Scan, ScanDescriptor, forward};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::ops::fields::beside;
use crate::ops::pointwise::PointwiseDescriptor;
use crate::ops::pointwise::program::{Function, Program};
use crate::ops::valid::Described;
use crate::tensor::TensorDesc;

/// The steps of the gradient of x.
pub(super) fn derive(forward: &ScanDescriptor, derivation: &mut Derivation) -> Result<()> {
    let of = Scanned { fields: &forward.0.fields, y: forward.0.slots.always(forward::Y).desc };
    match of.fields.scan {
        Scan::Sum => {
            let step = of.back(of.y, Scan::Sum)?.output(of.fields.x.dtype())?.layout("y", beside(&of.fields.x)?)?;
            derivation.push(step, &[("x", Role::GradientOf("y")), ("y", Role::GradientFor(vec!["x"]))]);
            Ok(())
        }
        Scan::Prod => of.product(derivation),
        Scan::LogSumExp => of.logarithm(derivation),
        Scan::Max | Scan::Min => {
            let why = "has no gradient through max and min, which would be a scatter to the indices; write the indices and add the gradients up there";
            let operand = derivation.wanted().first().copied().unwrap_or("x").into();
            Err(Error::NoGradient { op: ScanDescriptor::OP.name, operand, why, known: Vec::new() })
        }
    }
}

/// A scan whose gradients are derived.
struct Scanned<'f> {
    fields: &'f Fields,
    y: TensorDesc,
}

impl Scanned<'_> {
    /// A dense tensor between steps, in the type in which is computed.
    fn between(&self) -> Result<TensorDesc> {
        TensorDesc::contiguous(self.computing(), self.fields.x.dims())
    }

    fn computing(&self) -> DType {
        self.fields.x.dtype().accumulator()
    }

    /// A scan in the direction of forward.
    fn along(&self, x: TensorDesc, scan: Scan) -> Result<ScanDescriptor> {
        let step = ScanDescriptor::of(x, self.fields.axis, scan)?;
        if self.fields.reverse { step.reverse() } else { Ok(step) }
    }

    /// A scan in the other direction, exclusive if forward is.
    fn back(&self, x: TensorDesc, scan: Scan) -> Result<ScanDescriptor> {
        let step = ScanDescriptor::of(x, self.fields.axis, scan)?;
        let step = if self.fields.reverse { step } else { step.reverse()? };
        if self.fields.exclusive { step.exclusive() } else { Ok(step) }
    }

    /// A step of pointwise between tensors of the computing type.
    fn push(
        &self,
        derivation: &mut Derivation,
        program: Program,
        inputs: Vec<(TensorDesc, Role)>,
        outputs: Vec<Role>,
        is_last: bool,
    ) -> Result<()> {
        const NAMES: [&str; 4] = ["in0", "in1", "in2", "in3"];
        const OUTPUTS: [&str; 2] = ["out0", "out1"];
        let descs = inputs.iter().map(|(desc, _)| *desc).collect();
        let mut step = PointwiseDescriptor::new(program, descs)?;
        if is_last {
            step = step.outputs(vec![self.fields.x.dtype()])?.layout("out0", beside(&self.fields.x)?)?;
        } else {
            step = step.outputs(vec![self.computing(); outputs.len()])?;
            for name in OUTPUTS.into_iter().take(outputs.len()) {
                step = step.layout(name, self.between()?)?;
            }
        }
        let mut roles: Vec<(&str, Role)> = Vec::new();
        roles.extend(NAMES.into_iter().zip(inputs.into_iter().map(|(_, role)| role)));
        roles.extend(OUTPUTS.into_iter().zip(outputs));
        derivation.push(step, &roles);
        Ok(())
    }

    fn scan(&self, derivation: &mut Derivation, step: ScanDescriptor, from: &Role) -> Role {
        let to = derivation.intermediate();
        derivation.push(step, &[("x", from.clone()), ("y", to.clone())]);
        to
    }

    /// The gradient that arrives, in the type in which is computed where its own does not mix with that.
    fn arriving(&self, derivation: &mut Derivation) -> Result<(TensorDesc, Role)> {
        let role = Role::GradientOf("y");
        if self.y.dtype().accumulator() == self.computing() {
            return Ok((self.y, role));
        }
        let cast = derivation.intermediate();
        self.push(derivation, Program::identity(), vec![(self.y, role)], vec![cast.clone()], false)?;
        Ok((self.between()?, cast))
    }

    /// Forward's result: its output if that has all digits of the computing type, else what the same scan gives in it.
    fn result(&self, derivation: &mut Derivation) -> Result<(TensorDesc, Role)> {
        if self.y.dtype() == self.computing() {
            return Ok((self.y, Role::Forward("y")));
        }
        let step = self.along(self.fields.x, self.fields.scan)?.output(self.computing())?;
        let step = if self.fields.exclusive { step.exclusive()? } else { step };
        let result = self.scan(derivation, step.layout("y", self.between()?)?, &Role::Forward("x"));
        Ok((self.between()?, result))
    }

    /// `dx[j] = exp(x[j]) sum over i from j on of dy[i] exp(-y[i])`, in logarithms, of gradients above 0 and of those below 0 each. Where `y[i]` is
    /// -infinity all before are, and pass nothing on.
    fn logarithm(&self, derivation: &mut Derivation) -> Result<()> {
        let (x, between) = (self.fields.x, self.between()?);
        // 1. log(dy) - y, and log(-dy) - y.
        let mut b = Program::builder();
        let [dy, y] = ["dy", "y"].map(|name| b.input(name));
        let is_none = b.call(Function::Eq, [y, f64::NEG_INFINITY.into()]);
        let logarithms = [false, true].map(|is_below| {
            let side = if is_below { b.call(Function::Neg, [dy]) } else { dy };
            // NaN stays NaN.
            let side = b.call(Function::Maximum, [side, 0.0.into()]);
            let logarithm = b.call(Function::Log, [side]);
            let difference = b.call(Function::Sub, [logarithm, y]);
            b.call(Function::Where, [is_none, f64::NEG_INFINITY.into(), difference])
        });
        let inputs = vec![self.arriving(derivation)?, self.result(derivation)?];
        let sides = [derivation.intermediate(), derivation.intermediate()];
        self.push(derivation, b.finish(logarithms)?, inputs, sides.to_vec(), false)?;
        // 2. The sums.
        let mut sums = Vec::new();
        for side in &sides {
            let step = self.back(between, Scan::LogSumExp)?;
            sums.push((between, self.scan(derivation, step, side)));
        }
        // 3. Their difference.
        let mut b = Program::builder();
        let [x_term, above, below] = ["x", "above", "below"].map(|name| b.input(name));
        let [above, below] = [above, below].map(|side| {
            let exponent = b.call(Function::Add, [side, x_term]);
            b.call(Function::Exp, [exponent])
        });
        let dx = b.call(Function::Sub, [above, below]);
        let inputs = std::iter::once((x, Role::Forward("x"))).chain(sums).collect();
        self.push(derivation, b.finish([dx])?, inputs, vec![Role::GradientFor(vec!["x"])], true)
    }

    /// With the first 0 of each line taken for 1, of which `p` are the products: before it `dx[j] = sum of dy[i] p[i] / x[j]`, over i from j on that lie before it;
    /// at it the sum of `dy[i] p[i]` over i from there on; and 0 behind it.
    fn product(&self, derivation: &mut Derivation) -> Result<()> {
        let (x, between) = (self.fields.x, self.between()?);
        let of_x = || (x, Role::Forward("x"));
        let is_zero = |b: &mut crate::ops::pointwise::program::ProgramBuilder, x| {
            let is_zero = b.call(Function::Eq, [x, 0.0.into()]);
            b.call(Function::Where, [is_zero, 1.0.into(), 0.0.into()])
        };
        // 1. How many are 0, up to each and with it. Beyond what the type counts it stays above 1.
        let mut b = Program::builder();
        let x_term = b.input("x");
        let zero = is_zero(&mut b, x_term);
        let zeros = derivation.intermediate();
        self.push(derivation, b.finish([zero])?, vec![of_x()], vec![zeros.clone()], false)?;
        let step = self.along(between, Scan::Sum)?;
        let count = self.scan(derivation, step, &zeros);
        // 2. The products, with the first 0 taken for 1.
        let mut b = Program::builder();
        let [x_term, seen] = ["x", "seen"].map(|name| b.input(name));
        let zero = b.call(Function::Eq, [x_term, 0.0.into()]);
        let one = b.call(Function::Eq, [seen, 1.0.into()]);
        let is_first = b.call(Function::LogicalAnd, [zero, one]);
        let factor = b.call(Function::Where, [is_first, 1.0.into(), x_term]);
        let factors = derivation.intermediate();
        let inputs = vec![of_x(), (between, count.clone())];
        self.push(derivation, b.finish([factor])?, inputs, vec![factors.clone()], false)?;
        let mut step = self.along(between, Scan::Prod)?;
        if self.fields.exclusive {
            step = step.exclusive()?;
        }
        let products = self.scan(derivation, step, &factors);
        // 3. dy p of products without a 0, and of those with one. A product is of the elements before it alone if forward is exclusive.
        let mut b = Program::builder();
        let [dy, product, seen, x_term] = ["dy", "product", "seen", "x"].map(|name| b.input(name));
        let term = b.call(Function::Mul, [dy, product]);
        let seen = if self.fields.exclusive {
            let own = is_zero(&mut b, x_term);
            b.call(Function::Sub, [seen, own])
        } else {
            seen
        };
        let has_none = b.call(Function::Eq, [seen, 0.0.into()]);
        let without = b.call(Function::Where, [has_none, term, 0.0.into()]);
        let with = b.call(Function::Where, [has_none, 0.0.into(), term]);
        let inputs = vec![self.arriving(derivation)?, (between, products), (between, count.clone()), of_x()];
        let sides = [derivation.intermediate(), derivation.intermediate()];
        self.push(derivation, b.finish([without, with])?, inputs, sides.to_vec(), false)?;
        let mut sums = Vec::new();
        for side in &sides {
            let step = self.back(between, Scan::Sum)?;
            sums.push((between, self.scan(derivation, step, side)));
        }
        // 4. The gradient.
        let mut b = Program::builder();
        let [x_term, seen, without, with] = ["x", "seen", "without", "with"].map(|name| b.input(name));
        let quotient = b.call(Function::Div, [without, x_term]);
        let zero = b.call(Function::Eq, [x_term, 0.0.into()]);
        let one = b.call(Function::Eq, [seen, 1.0.into()]);
        let is_first = b.call(Function::LogicalAnd, [zero, one]);
        let has_none = b.call(Function::Eq, [seen, 0.0.into()]);
        let otherwise = b.call(Function::Where, [is_first, with, 0.0.into()]);
        let dx = b.call(Function::Where, [has_none, quotient, otherwise]);
        let inputs = [of_x(), (between, count)].into_iter().chain(sums).collect();
        self.push(derivation, b.finish([dx])?, inputs, vec![Role::GradientFor(vec!["x"])], true)
    }
}
