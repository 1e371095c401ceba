//! The gradients of triangular systems, as steps.
//!
//! With `W` the solution with the transposed matrix for the gradient of x: `db = alpha W`, and the matrix has `-W x^T`, of its triangle.

use super::{Fields, TriangularSolveDescriptor, Valid, forward};
use crate::error::Result;
use crate::gradients::{Derivation, Role};
use crate::ops::fields::{beside, one};
use crate::ops::gemm::{GemmBackwardDescriptor, GemmFactor};
use crate::ops::linalg::within_triangle;
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program};
use crate::ops::valid::Described;
use crate::plan::Descriptor;
use crate::tensor::TensorDesc;

pub(super) fn derive(forward: &TriangularSolveDescriptor, derivation: &mut Derivation) -> Result<()> {
    let Valid { fields, slots, .. } = &forward.0;
    let x = slots.always(forward::X).desc;
    let of_b = || Role::GradientFor(vec!["b"]);
    let back = |alpha, desc: TensorDesc| {
        let mut back = Fields { b: x, transpose: !fields.transpose, alpha, ..fields.clone() };
        back.layouts = Default::default();
        back.layouts.insert("x".into(), desc);
        Valid::new(TriangularSolveDescriptor::OP, back).map(TriangularSolveDescriptor)
    };
    let arriving = Role::GradientOf("x");
    if !derivation.wants("a") {
        let step = back(fields.alpha, beside(&fields.b)?)?;
        derivation.push(step, &[("b", arriving), ("x", of_b())]);
        return Ok(());
    }
    // 1. The solution with the transposed matrix, which a later step reads, so that it is not itself the gradient of b.
    let desc = TensorDesc::contiguous(x.dtype(), x.dims())?;
    let solution = derivation.intermediate();
    derivation.push(back(one(), desc)?, &[("b", arriving), ("x", solution.clone())]);
    if derivation.wants("b") {
        let mut b = Program::builder();
        let value = b.input("solution");
        let db = b.call(Function::Mul, [value, fields.alpha.get().into()]);
        let step = PointwiseDescriptor::new(b.finish([db])?, vec![desc])?.layout("out0", beside(&fields.b)?)?;
        derivation.push(step, &[("in0", solution.clone()), ("out0", of_b())]);
    }
    // 2. The gradient that op(A) has as a factor of `op(A) x`, or of `x op(A)`.
    let a = GemmFactor::of(fields.a, fields.transpose);
    let (step, gradient) = if fields.right {
        (GemmBackwardDescriptor::new(x, a, &["b"])?, "db")
    } else {
        (GemmBackwardDescriptor::new(a, x, &["a"])?, "da")
    };
    let step = step.alpha(-1.0)?.layout("dout", desc)?;
    let whole = step.slots().iter().find(|slot| slot.name == gradient).map_or(fields.a, |slot| slot.desc);
    let product = derivation.intermediate();
    let other = if fields.right { "a" } else { "b" };
    derivation.push(step, &[(other, Role::Forward("x")), ("dout", solution), (gradient, product.clone())]);
    // 3. Within the triangle.
    let to = if whole.dims() == fields.a.dims() { beside(&fields.a)? } else { whole };
    let step = within_triangle(whole, to, fields.upper, fields.unit_diagonal)?;
    derivation.push(step, &[("in0", product), ("out0", Role::GradientFor(vec!["a"]))]);
    Ok(())
}
