//! The sequence of other ops for large matrices, block by block of rows: the product of the rows of the triangle with what is solved, what it leaves of the right-hand
//! sides, and the solution with the block on the diagonal.

use std::ops::Range;

use super::{Fields, TriangularSolveDescriptor, Valid, forward};
use crate::error::Result;
use crate::ops::fields::{is_one, one};
use crate::ops::gemm::{GemmDescriptor, GemmFactor};
use crate::ops::linalg::blocked::{block, rest_of};
use crate::ops::valid::Described;
use crate::sequence::{Sequence, Tensor};

pub(super) fn sequence(valid: &Valid) -> Result<Sequence> {
    let of = |row| Tensor::operand(valid.slots.always(row));
    let [a, b, x] = [forward::A, forward::B, forward::X].map(of);
    let (fields, solve) = (&valid.fields, &valid.derived);
    let (n, rank) = (solve.n, a.desc.rank());
    // Along which axis of b and x rows of the triangle lie.
    let axis = if fields.right { rank - 1 } else { rank - 2 };
    let is_turned = fields.transpose != fields.right;
    let part = |tensor: Tensor, axis: usize, rows: &Range<u64>| tensor.narrow(axis, rows.start, rows.end - rows.start);
    let mut sequence = Sequence::default();
    let s = &mut sequence;
    let step = block(n);
    for first in (0..n).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let end = n.min(first + step);
        // The rows of the block, and those that are solved.
        let (rows, solved) =
            if solve.is_reversed { (n - end..n - first, n - first..n) } else { (first..end, 0..first) };
        let (mut from, to) = (part(b, axis, &rows)?, part(x, axis, &rows)?);
        let diagonal = part(part(a, rank - 2, &rows)?, rank - 1, &rows)?;
        let mut alpha = fields.alpha;
        let mark = s.mark();
        if first > 0 {
            let [of_rows, of_columns] = if is_turned { [&solved, &rows] } else { [&rows, &solved] };
            let triangle = part(part(a, rank - 2, of_rows)?, rank - 1, of_columns)?;
            let values = part(x, axis, &solved)?;
            let rest = s.tensor(x.desc.dtype(), from.desc.dims())?;
            if fields.right {
                let product = GemmDescriptor::new(values.desc, GemmFactor::of(triangle.desc, !is_turned))?;
                s.push(product, &[("a", values), ("b", triangle), ("out", rest)]);
            } else {
                let product = GemmDescriptor::new(GemmFactor::of(triangle.desc, is_turned), values.desc)?;
                s.push(product, &[("a", triangle), ("b", values), ("out", rest)]);
            }
            rest_of(s, from, rest, (!is_one(&alpha)).then(|| alpha.get()))?;
            (from, alpha) = (rest, one());
        }
        let mut of_block = Fields { a: diagonal.desc, b: from.desc, alpha, ..fields.clone() };
        of_block.layouts = Default::default();
        of_block.layouts.insert("x".into(), to.desc);
        let solution = TriangularSolveDescriptor(Valid::new(TriangularSolveDescriptor::OP, of_block)?);
        s.push(solution, &[("a", diagonal), ("b", from), ("x", to)]);
        s.release(mark);
    }
    Ok(sequence)
}
