//! Systems of linear equations, and the factors of matrices that they are solved with.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | solve_triangular, triangular_solve, trsm, trsv | [`TriangularSolveDescriptor`] |
//! | cholesky, cholesky_ex, potrf | [`CholeskyDescriptor`] |
//! | cholesky_solve, potrs | two [`TriangularSolveDescriptor`], the second with the transposed factor |
//!
//! Matrices are the last two extents of an operand; those before them number independent matrices. Everything is computed in the type of the operands, f32 or
//! f64: elimination adds up the roundings of as many steps as a matrix has rows, of which 16-bit types leave too few digits, so that these are cast first.
//!
//! Errors of results are those of backward stable methods: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, chapters 8 to 10.

use std::ops::{Add, Div, Mul, Sub};

use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::ops::fields::require;
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program};
use crate::tensor::TensorDesc;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod blocked;
pub mod cholesky;
#[cfg(feature = "cuda")]
mod cuda;
pub mod triangular_solve;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use cholesky::{CholeskyArgs, CholeskyDescriptor, CholeskyPlan};
pub use triangular_solve::{TriangularSolveArgs, TriangularSolveDescriptor, TriangularSolvePlan};

#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut crate::backend::wgpu::Variants) -> Result<()> {
    triangular_solve::add_variants(variants)?;
    cholesky::add_variants(variants)
}

/// A type in which systems are solved, as fast forms on the CPU compute in it.
trait Number:
    Element
    + Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Send
    + Sync
{
    const NAN: Self;

    /// The square root.
    fn root(self) -> Self;
}

impl Number for f32 {
    const NAN: Self = Self::NAN;

    fn root(self) -> Self {
        self.sqrt()
    }
}

impl Number for f64 {
    const NAN: Self = Self::NAN;

    fn root(self) -> Self {
        self.sqrt()
    }
}

/// Requires a batch of matrices of a type in which systems are solved.
fn matrices(op: &'static str, field: &'static str, desc: &TensorDesc) -> Result<()> {
    let dtype = desc.dtype();
    require(op, field, matches!(dtype, DType::F32 | DType::F64), || {
        let rule = format!("must be f32 or f64, got {dtype}");
        if dtype.is_computed() {
            return format!("{rule}: elimination would lose most of its digits; cast it to f32 first");
        }
        rule
    })?;
    require(op, field, desc.rank() >= 2, || format!("must be matrices, of rank 2 or more; got rank {}", desc.rank()))
}

/// The elements of matrices within a triangle, without the diagonal where that is left out, and 0 elsewhere.
fn within_triangle(
    from: TensorDesc,
    to: TensorDesc,
    is_upper: bool,
    without_diagonal: bool,
) -> Result<PointwiseDescriptor> {
    let mut b = Program::builder();
    let value = b.input("value");
    let [row, column] = [from.rank() - 2, from.rank() - 1].map(|axis| b.index(axis));
    let [less, more] = if is_upper { [row, column] } else { [column, row] };
    let is_within = b.call(if without_diagonal { Function::Lt } else { Function::Le }, [less, more]);
    let kept = b.call(Function::Where, [is_within, value, 0.0.into()]);
    PointwiseDescriptor::new(b.finish([kept])?, vec![from])?.layout("out0", to)
}
