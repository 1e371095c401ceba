//! Systems of equations whose matrix is triangular, for many right-hand sides at once.
//!
//! - `op(A) X = alpha B`, or from [`right`](TriangularSolveDescriptor::right) `X op(A) = alpha B`, for each matrix of a batch, where op(A) is A, or with
//!   [`transpose`](TriangularSolveDescriptor::transpose) its transpose;
//! - A is lower triangular, or with [`upper`](TriangularSolveDescriptor::upper) upper triangular, as it is stored; with
//!   [`unit_diagonal`](TriangularSolveDescriptor::unit_diagonal) its diagonal is 1.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `a` | `[batch.., N, N]`, rank 2 to 8 | T: f64 or f32 | in | always |
//! | `b` | `[batch.., N, K]`, for `right` `[batch.., K, N]` | T | in | always |
//! | `x` | that of b | T | out | always |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides, 0 for a and b, so that a batch can share one matrix. x lies as b does, or densely where that addresses an element twice, unless
//! [`layout`](TriangularSolveDescriptor::layout) says otherwise. x may lie in the place of b, which has the same layout then. The other triangle of a is never read,
//! nor is the diagonal where it is 1; they may hold anything.
//!
//! Accumulation: substitution in T, row by row of the triangle in a fixed order, so that the same device makes the same bits every time; the CPU's reference
//! computes in f64. Each column of x is the solution of a system near the given one: `(op(A) + E) x = alpha b` with `|E| <= c N u |op(A)|` for each element.
//!
//! Gradients: `db` is the solution with the transposed matrix, and `da = -db' x^T` within the triangle, where `db'` is that of an alpha of 1, and 0
//! elsewhere and on a diagonal of 1; summed over the batch extents along which a has a stride of 0.
//!
//! NaN, infinity, empty: nothing is looked for. A 0 on the diagonal divides as in IEEE 754: infinity of a number, NaN of 0; what is computed from these goes where
//! the formula sends it. Shaders may give NaN in the place of an infinity. With N, K or a batch extent of 0 nothing is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and the numbers; [`Error::Unsupported`] says why each kernel refused.
//!
//! Source: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, section 8.1; names as in `torch.linalg.solve_triangular`, alpha as in
//! the `trsm` of BLAS.
//!
//! Workspace: on GPUs, of matrices of more than 256 rows, right-hand sides of a block of rows, which are at least 64 and at most 64 blocks.
//!
//! Kernels: `csrc/linalg/triangular_solve.cu`, `csrc/linalg/triangular_solve.wgsl`, where a block solves 32 systems, and takes what is solved from later rows tile by
//! tile; for large matrices a sequence of other ops (`parts.rs`), which is named `blocked`: `gemm`, `pointwise` and this one with a block of the diagonal; on the CPU `fast.rs`, then the reference in `cpu.rs`.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use super::blocked::{Blocked, Factored};
use super::matrices;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::backend::Backend;
use crate::dtype::Real;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{beside, in_range, relay, require};
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
        A a: In, always => "The triangular matrices.";
        B b: In, always, in place x => "The right-hand sides.";
        X x: Out, always => "The solutions.";
    }
}

fields! {
    /// The fields.
    Fields: Fields<Kind = (), Derived = Solve> + normalise {
        a: TensorDesc,
        b: TensorDesc,
        upper: bool = default,
        transpose: bool = default,
        unit_diagonal: bool = default,
        right: bool = default,
        alpha: Real = one,
    }
}

type Valid = valid::Valid<Fields>;

/// The operands of a [`Solve`] in the order of its arrays.
const X: usize = 0;
const B: usize = 1;
const A: usize = 2;

/// What is solved: `T Y = alpha C` with a lower triangular T, row by row. What is asked becomes this by transposing T, Y and C, and by counting rows from the last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Solve {
    /// Extent of the triangle.
    n: u64,
    /// Systems that share it.
    columns: u64,
    /// The extents before the matrices, and how each operand lies along them.
    batches: [TensorDesc; 3],
    /// From row to row, and from column to column, of Y, C and T.
    steps: [[u64; 2]; 3],
    /// Whether row `i` is the `i`th from the last, and likewise the columns of T.
    is_reversed: bool,
    /// The sequence for large matrices.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    parts: Lazy,
}

impl Solve {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    fn has_work(&self) -> bool {
        self.n > 0 && self.columns > 0 && !self.batches[X].is_empty()
    }

    /// Where row `i` lies among those of the operands.
    fn place(&self, i: u64) -> u64 {
        if self.is_reversed { self.n - 1 - i } else { i }
    }

    /// Products of elements in all.
    fn products(&self) -> u64 {
        [self.n, self.n, self.columns].into_iter().fold(self.batches[X].elements(), u64::saturating_mul) / 2
    }
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("a", &mut self.a), ("b", &mut self.b)])
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Solve> {
        let Self { a, b, right, alpha, .. } = self;
        for (field, desc) in [("a", a), ("b", b)] {
            matrices(op, field, desc)?;
        }
        require(op, "b", b.dtype() == a.dtype(), || {
            format!("must be of the type of a, {}; got {}", a.dtype(), b.dtype())
        })?;
        require(op, "b", b.rank() == a.rank(), || format!("must have the rank of a, {}; got {}", a.rank(), b.rank()))?;
        let first = a.rank() - 2;
        let n = a.dims()[first];
        require(op, "a", a.dims()[first + 1] == n, || format!("must be square, got {:?}", a.dims()))?;
        require(op, "b", a.dims()[..first] == b.dims()[..first], || {
            format!(
                "must have a's extents before the last two; got {:?}, a of {:?}: where a batch shares a matrix, a has a stride of 0",
                b.dims(),
                a.dims()
            )
        })?;
        let [rows, columns] = if *right { [first + 1, first] } else { [first, first + 1] };
        require(op, "b", b.dims()[rows] == n, || {
            let which = if *right { "columns" } else { "rows" };
            format!("must have as many {which} as a, {n}; got {:?}", b.dims())
        })?;
        in_range(op, "alpha", *alpha, a)?;
        slots.declare(forward::A, *a)?;
        slots.declare(forward::B, *b)?;
        let x = slots.declare(forward::X, slots.derived(forward::X, beside(b))?)?;
        let batch =
            |desc: &TensorDesc| TensorDesc::strided(desc.dtype(), &desc.dims()[..first], &desc.strides()[..first]);
        let is_turned = self.transpose != *right;
        let of_triangle = if is_turned { [first + 1, first] } else { [first, first + 1] };
        let steps = |desc: &TensorDesc, axes: [usize; 2]| axes.map(|axis| desc.strides()[axis]);
        Ok(Solve {
            n,
            columns: b.dims()[columns],
            batches: [batch(&x)?, batch(b)?, batch(a)?],
            steps: [steps(&x, [rows, columns]), steps(b, [rows, columns]), steps(a, of_triangle)],
            is_reversed: self.upper != is_turned,
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            parts: Lazy::default(),
        })
    }
}

descriptor! {
    /// The solutions of systems with a triangular matrix. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, TensorDesc, TriangularSolveArgs, TriangularSolveDescriptor, Workspace};
    /// let device = Device::cpu();
    /// let of = |dims| TensorDesc::contiguous(DType::F32, dims);
    /// let plan = Plan::new(&device, TriangularSolveDescriptor::new(of(&[2, 2])?, of(&[2, 1])?)?, &PlanOptions::default())?;
    /// // The 9 is never read.
    /// let (a, b, mut x) = ([2f32, 9.0, 1.0, 4.0], [6f32, 11.0], [0f32; 2]);
    /// let args = TriangularSolveArgs::new(Mem::host(&a), Mem::host(&b), MemMut::host(&mut x));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(x, [3.0, 2.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    TriangularSolveDescriptor(Fields): "triangular_solve", ();
    args: TriangularSolveArgs of forward;
    plan: TriangularSolvePlan;
    kernels: const {
        kernels!(
            cuda: [Blocked(Backend::Cuda), Function::<Self>::Cuda(|it, props| cuda::accept(&it.0, props))];
            wgpu: [Blocked(Backend::Wgpu), Function::<Self>::Wgpu(|it, props| Ok(wgpu::work(&it.0, props)?.candidate()))];
            cpu: [Function::<Self>::CpuForm(form_name!(Self, "fast"), |it| fast::accept(&it.0)), Function::<Self>::Cpu(|it| cpu::accept(&it.0))]
        )
    };
    gradients: ["x"] => ["a", "b"], gradients::derive;
    flops: |valid: &Valid| valid.derived.products().saturating_mul(2);
    /// Solves `A X = B` with lower triangular matrices.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if a is not a batch of square matrices of f32 or f64, or b not one of a's type with as many rows and a's extents before the last two.
    fn new(a: TensorDesc, b: TensorDesc) = Fields::minimal(a, b);
    /// Solves `X A = B` with lower triangular matrices.
    ///
    /// # Errors
    /// As [`new`](Self::new), of the columns of b in place of its rows.
    fn right(a: TensorDesc, b: TensorDesc) = Fields { right: true, ..Fields::minimal(a, b) };
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Sequenced for TriangularSolveDescriptor {
    fn sequence(&self) -> Result<&Sequence, Reason> {
        self.0.derived.parts.get(|| parts::sequence(&self.0))
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Factored for TriangularSolveDescriptor {
    fn rows(&self) -> u64 {
        let derived = &self.0.derived;
        if derived.has_work() { derived.n } else { 0 }
    }
}

shared_steps! { TriangularSolveDescriptor: layout }

steps! { TriangularSolveDescriptor
    /// The matrices are upper triangular.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    upper() = |it| it.with(|fields| fields.upper = true);
    /// Solves with the transposes of the matrices.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    transpose() = |it| it.with(|fields| fields.transpose = true);
    /// Takes the diagonal for 1, and does not read it.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    unit_diagonal() = |it| it.with(|fields| fields.unit_diagonal = true);
    /// Multiplies the right-hand sides, 1 unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is not in the range of f32 (of f64 for f64 operands), subnormal numbers included.
    alpha(alpha: f64) = |it| it.real("alpha", alpha, |fields, alpha| fields.alpha = alpha);
}

args! {
    /// Operands of [`TriangularSolveDescriptor`]; their shapes and types are in the [table](self).
    TriangularSolveArgs of forward {
        /// The operands, which are always there.
        new(a, b, x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::plan::Descriptor;

    fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let (a, b) = (dense(DType::F32, &[2, 3, 3]), dense(DType::F32, &[2, 3, 5]));
        let solve = TriangularSolveDescriptor::new(a, b).unwrap();
        assert_eq!(solve, solve.clone().alpha(1.0).unwrap());
        let json = r#"{"a":{"dtype":"f32","dims":[2,3,3]},"b":{"dtype":"f32","dims":[2,3,5]}}"#;
        assert_eq!(serde_json::to_string(&solve).unwrap(), json);
        assert_eq!((solve.slots()[1].in_place, solve.slots()[2].desc), (Some(forward::X), b));
        let json = r#"{"a":{"dtype":"f64","dims":[3,3]},"b":{"dtype":"f64","dims":[5,3]},"upper":true,"right":true,"alpha":-0.5}"#;
        let solve: TriangularSolveDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&solve).unwrap(), json);
    }

    #[test]
    fn every_request_is_a_lower_triangle() {
        let (a, b) = (dense(DType::F32, &[3, 3]), dense(DType::F32, &[3, 5]));
        let solve = |is_upper: bool, is_transposed: bool| {
            let mut solve = TriangularSolveDescriptor::new(a, b).unwrap();
            solve = if is_upper { solve.upper().unwrap() } else { solve };
            solve = if is_transposed { solve.transpose().unwrap() } else { solve };
            let derived = &solve.0.derived;
            (derived.steps[A], derived.is_reversed)
        };
        assert_eq!(solve(false, false), ([3, 1], false));
        assert_eq!(solve(true, false), ([3, 1], true));
        assert_eq!(solve(false, true), ([1, 3], true));
        assert_eq!(solve(true, true), ([1, 3], false));
        let right = TriangularSolveDescriptor::right(a, dense(DType::F32, &[5, 3])).unwrap();
        let derived = &right.0.derived;
        assert_eq!((derived.steps, derived.columns, derived.is_reversed), ([[1, 3], [1, 3], [1, 3]], 5, true));
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |a: &[u64], b: &[u64]| TriangularSolveDescriptor::new(dense(DType::F32, a), dense(DType::F32, b));
        let rule = |made: Result<TriangularSolveDescriptor>| made.expect_err("a refusal").to_string();
        let half = dense(DType::F16, &[3, 3]);
        for (refusal, expected) in [
            (rule(of(&[3], &[3])), "a: must be matrices, of rank 2 or more; got rank 1"),
            (rule(of(&[3, 4], &[3, 4])), "a: must be square, got [3, 4]"),
            (rule(of(&[3, 3], &[4, 3])), "b: must have as many rows as a, 3; got [4, 3]"),
            (rule(of(&[2, 3, 3], &[3, 3])), "b: must have the rank of a, 3; got 2"),
            (rule(of(&[2, 3, 3], &[1, 3, 3])), "got [1, 3, 3], a of [2, 3, 3]: where a batch shares a matrix"),
            (rule(TriangularSolveDescriptor::new(half, half)), "must be f32 or f64, got f16: elimination would lose"),
            (
                rule(TriangularSolveDescriptor::right(dense(DType::F32, &[3, 3]), dense(DType::F32, &[3, 4]))),
                "b: must have as many columns as a, 3; got [3, 4]",
            ),
            (
                rule(TriangularSolveDescriptor::new(dense(DType::F32, &[3, 3]), dense(DType::F64, &[3, 3]))),
                "b: must be of the type of a, f32; got f64",
            ),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
    }
}
