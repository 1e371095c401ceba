//! The gradient of the matrices, as steps.

use super::{CholeskyDescriptor, Valid, forward};
use crate::error::Result;
use crate::gradients::{Derivation, Role};
use crate::ops::fields::beside;
use crate::ops::gemm::{GemmDescriptor, GemmFactor};
use crate::ops::linalg::TriangularSolveDescriptor;
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program};
use crate::tensor::TensorDesc;

pub(super) fn derive(forward: &CholeskyDescriptor, derivation: &mut Derivation) -> Result<()> {
    let Valid { fields, slots, .. } = &forward.0;
    let (factor, is_upper) = (slots.always(forward::FACTOR).desc, fields.upper);
    let dense = TensorDesc::contiguous(factor.dtype(), factor.dims())?;
    let [row, column] = [factor.rank() - 2, factor.rank() - 1];
    // 1. L^T dL, or dU U^T.
    let product = match is_upper {
        false => GemmDescriptor::new(GemmFactor::transposed(factor), factor)?,
        true => GemmDescriptor::new(factor, GemmFactor::transposed(factor))?,
    };
    let [of_factor, of_gradient] = if is_upper { ["b", "a"] } else { ["a", "b"] };
    let whole = derivation.intermediate();
    let roles =
        [(of_factor, Role::Forward("factor")), (of_gradient, Role::GradientOf("factor")), ("out", whole.clone())];
    derivation.push(product, &roles);
    // 2. Its triangle, and half of the diagonal.
    let mut b = Program::builder();
    let value = b.input("value");
    let [i, j] = [row, column].map(|axis| b.index(axis));
    let [less, more] = if is_upper { [i, j] } else { [j, i] };
    let half = b.call(Function::Mul, [value, 0.5.into()]);
    let is_beside = b.call(Function::Lt, [less, more]);
    let is_diagonal = b.call(Function::Eq, [i, j]);
    let other = b.call(Function::Where, [is_diagonal, half, 0.0.into()]);
    let kept = b.call(Function::Where, [is_beside, value, other]);
    let triangle = derivation.intermediate();
    let step = PointwiseDescriptor::new(b.finish([kept])?, vec![dense])?.layout("out0", dense)?;
    derivation.push(step, &[("in0", whole), ("out0", triangle.clone())]);
    // 3. P: between the inverses of the factor and of its transpose.
    let (mut left, mut right) =
        (TriangularSolveDescriptor::new(factor, dense)?, TriangularSolveDescriptor::right(factor, dense)?);
    (left, right) = if is_upper { (left.upper()?, right.upper()?.transpose()?) } else { (left.transpose()?, right) };
    let mut solved = triangle;
    for step in [left, right] {
        let to = derivation.intermediate();
        derivation.push(step, &[("a", Role::Forward("factor")), ("b", solved), ("x", to.clone())]);
        solved = to;
    }
    // 4. What each element of the triangle that is read has of both triangles of P.
    let mut axes: Vec<usize> = (0..factor.rank()).collect();
    axes.swap(row, column);
    let mut b = Program::builder();
    let [own, mirrored] = ["own", "mirrored"].map(|name| b.input(name));
    let [i, j] = [row, column].map(|axis| b.index(axis));
    let [less, more] = if is_upper { [i, j] } else { [j, i] };
    let both = b.call(Function::Add, [own, mirrored]);
    let is_beside = b.call(Function::Lt, [less, more]);
    let is_diagonal = b.call(Function::Eq, [i, j]);
    let other = b.call(Function::Where, [is_diagonal, own, 0.0.into()]);
    let gradient = b.call(Function::Where, [is_beside, both, other]);
    let step = PointwiseDescriptor::new(b.finish([gradient])?, vec![dense, dense.permute(&axes)?])?;
    let step = step.layout("out0", beside(&fields.a)?)?;
    let roles = [("in0", solved.clone()), ("in1", solved), ("out0", Role::GradientFor(vec!["a"]))];
    derivation.push(step, &roles);
    Ok(())
}
