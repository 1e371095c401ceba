//! Norms of any order, of which a reduction of known parts is one: powers of magnitudes, their sum, and a power of that.

use super::{ReduceDescriptor, Reduction};
use crate::error::{Error, Result};
use crate::ops::pointwise::program::{Function, Program, ProgramBuilder, Term};
use crate::ops::valid::Described;
use crate::tensor::TensorDesc;

impl ReduceDescriptor {
    /// The norm of order p along some axes, `(|x_1|^p + .. + |x_n|^p)^(1/p)`, in the type of x. Of order 1 and 2 it is
    /// [`Norm1`](Reduction::Norm1) and [`Norm2`](Reduction::Norm2), of infinity the greatest magnitude, of -infinity the least, and of 0 the number of elements
    /// that are not 0, as in PyTorch. Where the norm is 0 its gradient is 0, and so is below order 1 that of elements that are 0.
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, ReduceArgs, ReduceDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let plan = Plan::new(&device, ReduceDescriptor::norm(x, &[1], 3.0)?, &PlanOptions::default())?;
    /// let (x, mut norms) = ([3f32, -4.0, 5.0, 0.0, 2.0, 0.0], [0f32; 2]);
    /// let scratch = device.alloc(plan.workspace().bytes)?;
    /// plan.run(&mut device.queue(), ReduceArgs::new([Mem::host(&x)], MemMut::host(&mut norms)), Workspace::new(&scratch))?;
    /// assert!((norms[0] - 6.0).abs() < 1e-5 && (norms[1] - 2.0).abs() < 1e-6);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::InvalidDescriptor`] if p is NaN, or if `1 / p` is beyond the range of f32, in which norms but those of f64 are computed.
    pub fn norm(x: TensorDesc, axes: &[usize], p: f64) -> Result<Self> {
        if p.is_nan() {
            let rule = "must be a number or an infinity, got NaN".into();
            return Err(Error::InvalidDescriptor { op: Self::OP.name, field: "p", rule });
        }
        let known = |reduce| Self::of(x, axes, reduce);
        if p == 0.0 {
            return known(Reduction::CountNonzero)?.output(x.dtype());
        }
        if p == 1.0 {
            return known(Reduction::Norm1);
        }
        if p == 2.0 {
            return known(Reduction::Norm2);
        }
        if p == f64::INFINITY {
            return known(Reduction::NormInf);
        }
        if p == f64::NEG_INFINITY {
            return Self::new(Program::of(Function::Abs), vec![x], axes.to_vec(), Reduction::Min);
        }
        Self::new(powers(p)?, vec![x], axes.to_vec(), Reduction::Sum)?.finish(root(p)?)
    }
}

/// `|x|^p`.
fn powers(p: f64) -> Result<Program> {
    let mut b = Program::builder();
    let x = b.input("x");
    let magnitude = b.call(Function::Abs, [x]);
    let power = if p < 1.0 {
        unless_zero(&mut b, magnitude, p, if p < 0.0 { f64::INFINITY } else { 0.0 })
    } else {
        b.call(Function::Pow, [magnitude, p.into()])
    };
    b.finish([power])
}

/// `v^(1/p)`.
fn root(p: f64) -> Result<Program> {
    let mut b = Program::builder();
    let v = b.input("v");
    let root = unless_zero(&mut b, v, 1.0 / p, if p < 0.0 { f64::INFINITY } else { 0.0 });
    b.finish([root])
}

/// A power of x, or of 0 a number of its own; the gradient of that is 0, since no power of 0 is computed.
fn unless_zero(b: &mut ProgramBuilder, x: Term, power: f64, of_zero: f64) -> Term {
    let is_zero = b.call(Function::Eq, [x, 0.0.into()]);
    let other = b.call(Function::Where, [is_zero, 1.0.into(), x]);
    let power = b.call(Function::Pow, [other, power.into()]);
    b.call(Function::Where, [is_zero, of_zero.into(), power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Device;
    use crate::dtype::DType;
    use crate::memory::{Mem, MemMut, Workspace};
    use crate::ops::reduce::{ReduceArgs, ReducePlan};
    use crate::options::PlanOptions;

    #[test]
    fn norms_of_any_order_are_those_of_the_formula() {
        let device = Device::cpu();
        let x = [3.0f64, -0.5, 0.0, 2.0];
        for (p, expected) in [
            (0.0, 3.0),
            (0.5, (3f64.sqrt() + 0.5f64.sqrt() + 2f64.sqrt()).powi(2)),
            (1.0, 5.5),
            (2.0, 13.25f64.sqrt()),
            (3.0, 35.125f64.cbrt()),
            (-2.0, 0.0),
            (f64::INFINITY, 3.0),
            (f64::NEG_INFINITY, 0.0),
        ] {
            let descriptor =
                ReduceDescriptor::norm(TensorDesc::contiguous(DType::F64, &[4]).unwrap(), &[0], p).unwrap();
            for kernel in [None, Some("reduce_reference")] {
                let options = kernel.map_or_else(PlanOptions::default, |kernel| PlanOptions::default().kernel(kernel));
                let plan = ReducePlan::new(&device, descriptor.clone(), &options).unwrap();
                let mut y = [f64::NAN];
                let args = ReduceArgs::new([Mem::host(&x)], MemMut::host(&mut y));
                plan.run(&mut device.queue(), args, Workspace::none()).unwrap();
                assert!((y[0] - expected).abs() <= 1e-14 * expected, "order {p}: {} in place of {expected}", y[0]);
            }
        }
        let refused = ReduceDescriptor::norm(TensorDesc::contiguous(DType::F32, &[4]).unwrap(), &[0], f64::NAN);
        assert!(refused.unwrap_err().to_string().contains("p: must be a number or an infinity, got NaN"));
    }
}
