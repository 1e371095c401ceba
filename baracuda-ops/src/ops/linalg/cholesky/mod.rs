//! The Cholesky factor of symmetric positive definite matrices.
//!
//! - `A = L L^T` with a lower triangular L whose diagonal is positive, or with [`upper`](CholeskyDescriptor::upper) `A = U^T U`, for each matrix of a batch;
//! - the other triangle of the factor is 0.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `a` | `[batch.., N, N]`, rank 2 to 8 | T: f64 or f32 | in | always |
//! | `factor` | that of a | T | out | always |
//! | `info` | `[batch..]` | i32 | out | `info` |
//!
//! Units: info is 0 of a matrix that is positive definite, else the order of the first leading minor that is not positive, counted from 1, as LAPACK's `potrf` has it.
//!
//! Layout and aliasing: any strides, 0 for a. The factor lies as a does, or densely where that addresses an element twice, and info is dense, unless
//! [`layout`](CholeskyDescriptor::layout) says otherwise. No operand may lie at another. What the other triangle of a holds does not matter: A counts as symmetric.
//!
//! Accumulation: in T, column by column in a fixed order, so that the same device makes the same bits every time; the CPU's reference computes in f64. The factor is
//! that of a matrix near A: `|L L^T - A| <= c N u |L| |L^T|` for each element.
//!
//! Gradients: of what is read, which is the named triangle: with `P = L^-T F(L^T dL) L^-1`, where F takes the lower triangle and half of its diagonal, `da` is
//! `P + P^T` below the diagonal, P on it, and 0 above; with `upper` it is the transpose. PyTorch spreads the same gradient over both triangles, half of it each.
//!
//! NaN, infinity, empty: of a matrix that is not positive definite the triangle of the factor is NaN from the column on that info counts (of U from the row on): the
//! columns before are those of the leading minor's factor, and the other triangle is 0. A NaN on the diagonal, also one that is computed, is not positive; infinity
//! is. With N of 0 info is 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and the numbers; [`Error::Unsupported`] says why each kernel refused.
//!
//! Source: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, section 10.1; I. Murray, "Differentiation of the Cholesky decomposition", 2016.
//!
//! Workspace: on GPUs, of matrices of more than 256 rows, a block of columns, which are at least 64 and at most 64 blocks.
//!
//! Kernels: `csrc/linalg/cholesky.cu`, `csrc/linalg/cholesky.wgsl`, where a block factors a matrix by tiles of 32 rows and columns; for large matrices a sequence of
//! other ops (`parts.rs`), which is named `blocked`: `gemm`, `pointwise`, `triangular_solve` and this one with a block of the diagonal; on the CPU `fast.rs`, then the
//! reference in `cpu.rs`.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use super::blocked::{Blocked, Factored};
use super::matrices;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::backend::Backend;
use crate::dtype::DType;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{beside, relay, require};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::plan::{Function, form_name};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::sequence::{Lazy, Sequence, Sequenced};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
mod gradients;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod parts;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// The operands.
    mod forward {
        A a: In, always => "The matrices.";
        FACTOR factor: Out, always => "Their factors.";
        INFO info: Out, if info => "Which leading minor is not positive, if declared.", step "Where it goes which leading minor is not positive.";
    }
}

fields! {
    /// The fields.
    Fields: Fields<Kind = (), Derived = Factorisation> + normalise {
        a: TensorDesc,
        upper: bool = default,
        info: bool = default,
    }
}

type Valid = valid::Valid<Fields>;

/// The operands of a [`Factorisation`] in the order of its arrays.
const FACTOR: usize = 0;
const A: usize = 1;
const INFO: usize = 2;

/// What is computed: a lower triangular factor. An upper one is its transpose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Factorisation {
    n: u64,
    /// The extents before the matrices, and how the factor, the matrices and info lie along them; info as the factor does where there is none.
    batches: [TensorDesc; 3],
    /// From row to row, and from column to column, of the factor and of A.
    steps: [[u64; 2]; 2],
    /// The sequence for large matrices.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    parts: Lazy,
}

impl Factorisation {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    fn has_work(&self, has_info: bool) -> bool {
        !self.batches[FACTOR].is_empty() && (self.n > 0 || has_info)
    }

    /// Products of elements in all.
    fn products(&self) -> u64 {
        [self.n; 3].into_iter().fold(self.batches[FACTOR].elements(), u64::saturating_mul) / 6
    }
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("a", &mut self.a)])
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Factorisation> {
        let a = &self.a;
        matrices(op, "a", a)?;
        let first = a.rank() - 2;
        let n = a.dims()[first];
        require(op, "a", a.dims()[first + 1] == n, || format!("must be square, got {:?}", a.dims()))?;
        let most = u64::from(i32::MAX.unsigned_abs());
        require(op, "a", n <= most, || format!("must have at most {most} rows, which info counts; got {n}"))?;
        slots.declare(forward::A, *a)?;
        let factor = slots.declare(forward::FACTOR, slots.derived(forward::FACTOR, beside(a))?)?;
        let batch =
            |desc: &TensorDesc| TensorDesc::strided(desc.dtype(), &desc.dims()[..first], &desc.strides()[..first]);
        let info = match self.info {
            true => {
                let dense = TensorDesc::contiguous(DType::I32, &a.dims()[..first]);
                slots.declare(forward::INFO, slots.derived(forward::INFO, dense)?)?
            }
            false => batch(&factor)?,
        };
        let axes = if self.upper { [first + 1, first] } else { [first, first + 1] };
        let steps = |desc: &TensorDesc| axes.map(|axis| desc.strides()[axis]);
        Ok(Factorisation {
            n,
            batches: [batch(&factor)?, batch(a)?, info],
            steps: [steps(&factor), steps(a)],
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            parts: Lazy::default(),
        })
    }
}

descriptor! {
    /// The Cholesky factors of symmetric matrices. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{CholeskyArgs, CholeskyDescriptor, DType, Device, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let cholesky = CholeskyDescriptor::new(TensorDesc::contiguous(DType::F32, &[2, 2])?)?.with_info()?;
    /// let plan = Plan::new(&device, cholesky, &PlanOptions::default())?;
    /// // The 7 does not matter.
    /// let (a, mut factor, mut info) = ([4f32, 7.0, 2.0, 10.0], [9f32; 4], [9i32]);
    /// let args = CholeskyArgs::new(Mem::host(&a), MemMut::host(&mut factor)).info(MemMut::host(&mut info));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!((factor, info), ([2.0, 0.0, 1.0, 3.0], [0]));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    CholeskyDescriptor(Fields): "cholesky", ();
    args: CholeskyArgs of forward;
    plan: CholeskyPlan;
    kernels: const {
        kernels!(
            cuda: [Blocked(Backend::Cuda), Function::<Self>::Cuda(|it, props| cuda::accept(&it.0, props))];
            wgpu: [Blocked(Backend::Wgpu), Function::<Self>::Wgpu(|it, props| Ok(wgpu::work(&it.0, props)?.candidate()))];
            cpu: [Function::<Self>::CpuForm(form_name!(Self, "fast"), |it| fast::accept(&it.0)), Function::<Self>::Cpu(|it| cpu::accept(&it.0))]
        )
    };
    gradients: ["factor"] => ["a"], gradients::derive;
    flops: |valid: &Valid| valid.derived.products().saturating_mul(2);
    /// The lower factors.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if a is not a batch of square matrices of f32 or f64.
    fn new(a: TensorDesc) = Fields::minimal(a);
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Sequenced for CholeskyDescriptor {
    fn sequence(&self) -> Result<&Sequence, Reason> {
        self.0.derived.parts.get(|| parts::sequence(&self.0))
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Factored for CholeskyDescriptor {
    fn rows(&self) -> u64 {
        let derived = &self.0.derived;
        if !derived.batches[FACTOR].is_empty() { derived.n } else { 0 }
    }
}

shared_steps! { CholeskyDescriptor: layout }

steps! { CholeskyDescriptor
    /// Reads the upper triangle, and writes the upper factor.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    upper() = |it| it.with(|fields| fields.upper = true);
    /// Writes for each matrix whether it is positive definite.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    with_info() = |it| it.with(|fields| fields.info = true);
}

args! {
    /// Operands of [`CholeskyDescriptor`]; their shapes and types are in the [table](self).
    CholeskyArgs of forward {
        /// The operands that are always there.
        new(a, factor);
        info(info);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Descriptor;

    #[test]
    fn equal_requests_are_equal_and_short() {
        let json = r#"{"a":{"dtype":"f64","dims":[2,3,3]},"upper":true,"info":true}"#;
        let cholesky: CholeskyDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&cholesky).unwrap(), json);
        let a = TensorDesc::contiguous(DType::F64, &[2, 3, 3]).unwrap();
        assert_eq!(cholesky, CholeskyDescriptor::new(a).unwrap().with_info().unwrap().upper().unwrap());
        assert_eq!(cholesky.slots()[2].desc, TensorDesc::contiguous(DType::I32, &[2]).unwrap());
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let refused = |a: TensorDesc| CholeskyDescriptor::new(a).expect_err("a refusal").to_string();
        let rule = |dtype: DType, dims: &[u64]| refused(TensorDesc::contiguous(dtype, dims).unwrap());
        assert!(rule(DType::F32, &[2, 3]).contains("a: must be square, got [2, 3]"));
        assert!(rule(DType::BF16, &[3, 3]).contains("a: must be f32 or f64, got bf16"));
        assert!(rule(DType::I32, &[3, 3]).ends_with("must be f32 or f64, got i32"));
        let repeated = TensorDesc::strided(DType::F32, &[1 << 31, 1 << 31], &[0, 0]).unwrap();
        assert!(refused(repeated).contains("at most 2147483647 rows"));
    }
}
