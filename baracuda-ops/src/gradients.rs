//! Gradients of any op as steps: descriptors to run, and what each of their operands is to the op whose gradients they compute.
//!
//! An op states in its file which of its outputs and inputs have gradients, and a function that [derives](Derivation) the steps. Which step
//! reads what, and what is computed anew because forward did not write it, is known there and nowhere else. Whoever runs the steps looks at
//! roles alone.

use serde::Serialize;

use crate::any::AnyDescriptor;
use crate::error::{Error, Result};
use crate::plan::Descriptor;
use crate::slots::{Access, Slot};

/// What an operand of a [`Step`] is to forward, the op whose gradients the steps compute.
///
/// There is no other role, so that a tape that matches on these four is complete.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Forward's operand of this name, an input or an output, which forward's tape has kept. It lies as forward's slot says; a step that reads it in other
    /// extents reads elements of it repeatedly, in as many bytes.
    Forward(&'static str),
    /// The gradient that arrives at forward's output of this name. A step that reads it in other extents than the output's reads elements of it repeatedly:
    /// it then lies as the output does, in as many bytes.
    GradientOf(&'static str),
    /// Written: the gradient of each of these inputs of forward. They are several where one tensor is the gradient of several inputs, as that
    /// of a sum is. Its extents are those of the input, or 1 where forward repeats the input along a batch and the gradient is summed over it.
    GradientFor(Vec<&'static str>),
    /// A tensor between the steps of one list, by its number from 0. The first step that has it writes it; later ones read it, if any do, also in other
    /// extents, as one of forward.
    Intermediate(usize),
}

/// One op of those that compute gradients.
///
/// ```
/// use baracuda_ops::{Activation, ConvDescriptor, ConvWindow, DType, Descriptor, Role, TensorDesc};
/// let x = TensorDesc::contiguous(DType::F32, &[2, 3, 8, 8])?;
/// let weight = TensorDesc::contiguous(DType::F32, &[4, 3, 3, 3])?;
/// let conv = ConvDescriptor::new(x, weight, ConvWindow::new())?.activation(Activation::Relu)?;
/// let steps = conv.gradients(&["y"], &["weight"])?;
/// let names: Vec<_> = steps.iter().map(|step| step.descriptor.name()).collect();
/// assert_eq!(names, ["activation_backward", "conv_backward_weight"]);
/// assert_eq!(steps[0].role("dy"), Some(&Role::GradientOf("y")));
/// assert_eq!(steps[0].role("y"), Some(&Role::Forward("y")));
/// assert_eq!(steps[1].role("dy"), Some(&Role::Intermediate(0)));
/// assert_eq!(steps[1].role("dweight"), Some(&Role::GradientFor(vec!["weight"])));
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Step {
    /// What to run. It knows nothing of roles: it equals a descriptor that is written by hand.
    pub descriptor: AnyDescriptor,
    /// One for each of the descriptor's slots, in their order.
    pub roles: Vec<Role>,
}

impl Step {
    /// The slots of the descriptor, each with its role.
    pub fn slots(&self) -> impl Iterator<Item = (&Slot, &Role)> {
        self.descriptor.slots().iter().zip(&self.roles)
    }

    /// The role of an operand of the descriptor, if it is declared.
    pub fn role(&self, operand: &str) -> Option<&Role> {
        self.slots().find(|(slot, _)| slot.name == operand).map(|(_, role)| role)
    }
}

/// Which operands of an op have gradients, declared or not.
#[derive(Clone, Copy, Debug)]
pub struct Differentiable {
    pub(crate) outputs: &'static [&'static str],
    pub(crate) inputs: &'static [&'static str],
}

impl Differentiable {
    /// What an op has that is the gradient of another, or has none.
    pub(crate) const NOTHING: Self = Self { outputs: &[], inputs: &[] };
}

/// The steps of one request, as an op adds them.
#[derive(Debug)]
pub struct Derivation {
    arriving: Vec<&'static str>,
    wanted: Vec<&'static str>,
    steps: Vec<Step>,
    intermediates: usize,
    /// Why one step is not all there is to run.
    incomplete: Option<&'static str>,
}

impl Derivation {
    /// Whether a gradient arrives at an output.
    pub(crate) fn arrives(&self, output: &str) -> bool {
        self.arriving.contains(&output)
    }

    /// Whether the gradient of an input is wanted.
    pub(crate) fn wants(&self, input: &str) -> bool {
        self.wanted.contains(&input)
    }

    /// The inputs whose gradients are wanted.
    pub(crate) fn wanted(&self) -> &[&'static str] {
        &self.wanted
    }

    /// Those of some inputs whose gradients are wanted, as the role of the one tensor that is the gradient of each.
    pub(crate) fn gradient_for(&self, inputs: &[&'static str]) -> Role {
        Role::GradientFor(inputs.iter().copied().filter(|input| self.wants(input)).collect())
    }

    /// A new tensor between steps.
    pub(crate) fn intermediate(&mut self) -> Role {
        self.intermediates += 1;
        Role::Intermediate(self.intermediates - 1)
    }

    /// Says why, if one step turns out not to suffice. The first reason counts.
    pub(crate) fn explain(&mut self, why: &'static str) {
        self.incomplete.get_or_insert(why);
    }

    /// Adds a step. Operands that `roles` does not name have the roles that their names say: `d` and an output is the gradient that arrives
    /// there, `d` and an input is the gradient of that; of the others forward has what is read, and nobody needs what is written.
    pub(crate) fn push(&mut self, descriptor: impl Descriptor, roles: &[(&str, Role)]) -> &Step {
        let descriptor = AnyDescriptor::new(descriptor);
        let roles = descriptor.slots().iter().map(|slot| {
            let given = roles.iter().find(|(name, _)| *name == slot.name);
            given.map_or_else(|| self.role_by_name(slot), |(_, role)| role.clone())
        });
        let roles = roles.collect();
        self.steps.push(Step { descriptor, roles });
        &self.steps[self.steps.len() - 1]
    }

    fn role_by_name(&mut self, slot: &Slot) -> Role {
        let of = slot.name.strip_prefix('d');
        let among = |names: &[&'static str]| names.iter().copied().find(|name| Some(*name) == of);
        if slot.access == Access::In {
            return among(&self.arriving).map_or(Role::Forward(slot.name), Role::GradientOf);
        }
        match among(&self.wanted) {
            Some(input) => Role::GradientFor(vec![input]),
            None => self.intermediate(),
        }
    }
}

/// The operands of a forward that have gradients: outputs, then inputs.
fn differentiable<D: Descriptor>(forward: &D) -> Result<[Vec<&'static str>; 2]> {
    let Differentiable { outputs, inputs } = D::DIFFERENTIABLE;
    if outputs.is_empty() {
        return Err(Error::NoBackward { op: D::NAME });
    }
    let declared = |name: &str| forward.slots().iter().any(|slot| slot.name == name && slot.desc.dtype().is_float());
    Ok([outputs, inputs].map(|names| names.iter().copied().filter(|name| declared(name)).collect()))
}

/// Those of `known` that are `asked` for, in their order. The last: why another one is refused, before the names of those, and where there are none.
fn resolve(
    op: &'static str,
    asked: &[&str],
    known: &[&'static str],
    [before_names, without]: [&'static str; 2],
) -> Result<Vec<&'static str>> {
    if let Some(unknown) = asked.iter().find(|name| !known.contains(name)) {
        let why = if known.is_empty() { without } else { before_names };
        return Err(Error::NoGradient { op, operand: (*unknown).into(), why, known: known.to_vec() });
    }
    Ok(known.iter().copied().filter(|name| asked.contains(name)).collect())
}

/// The inputs `wanted`, among those that have gradients, in the order of these.
pub(crate) fn wanted_among(op: &'static str, wanted: &[&str], known: &[&'static str]) -> Result<Vec<&'static str>> {
    let without =
        "has no gradient: none of the inputs that could have one is of a floating-point type; cast it before this op";
    resolve(op, wanted, known, ["is no input that has a gradient; these are", without])
}

fn derive<D: Descriptor>(forward: &D, arriving: Vec<&'static str>, wanted: Vec<&'static str>) -> Result<Derivation> {
    let mut derivation = Derivation { arriving, wanted, steps: Vec::new(), intermediates: 0, incomplete: None };
    if !derivation.wanted.is_empty() {
        forward.derive(&mut derivation)?;
    }
    Ok(derivation)
}

/// As [`Descriptor::gradients`].
pub(crate) fn gradients<D: Descriptor>(forward: &D, arriving: &[&str], wanted: &[&str]) -> Result<Vec<Step>> {
    let [outputs, inputs] = differentiable(forward)?;
    let without = "is no output at which a gradient arrives: none is of a floating-point type; leave it out, its gradient counts as 0";
    let whys = ["is no output at which a gradient arrives; these are", without];
    let arriving = resolve(D::NAME, arriving, &outputs, whys)?;
    let wanted = wanted_among(D::NAME, wanted, &inputs)?;
    if let (true, Some(&input)) = (arriving.is_empty(), wanted.first()) {
        return Err(Error::independent(D::NAME, input, outputs));
    }
    derive(forward, arriving, wanted).map(|derivation| derivation.steps)
}

/// As [`Descriptor::gradients_all`].
pub(crate) fn gradients_all<D: Descriptor>(forward: &D) -> Result<Vec<Step>> {
    let [outputs, inputs] = differentiable(forward)?;
    derive(forward, outputs, inputs).map(|derivation| derivation.steps)
}

/// The one step that computes the gradients of inputs, of all that have one unless some are named, where a gradient arrives at every output.
///
/// # Errors
/// [`Error::SeveralSteps`] if others have to run before it, or if it writes what is not asked for.
pub(crate) fn one_step<F: Descriptor, B: Descriptor>(forward: &F, wanted: Option<&[&str]>) -> Result<B> {
    let [outputs, inputs] = differentiable(forward)?;
    let wanted = wanted_among(F::NAME, wanted.unwrap_or(&inputs), &inputs)?;
    if wanted.is_empty() {
        let rule = format!("must be one or more of {}, got none", inputs.join(", "));
        return Err(Error::InvalidDescriptor { op: F::NAME, field: "wanted", rule });
    }
    let derivation = derive(forward, outputs, wanted)?;
    let found = match &derivation.steps[..] {
        [step] if !step.roles.iter().any(|role| matches!(role, Role::Intermediate(_))) => step.descriptor.downcast(),
        _ => None,
    };
    let names = || derivation.steps.iter().map(|step| step.descriptor.name()).collect();
    let why = derivation.incomplete.unwrap_or("one op does not compute them");
    found.cloned().ok_or_else(|| Error::SeveralSteps { op: F::NAME, why, steps: names() })
}
