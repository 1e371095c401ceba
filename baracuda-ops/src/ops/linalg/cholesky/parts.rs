//! The sequence of other ops for large matrices, block by block of columns: the products of the columns before, what they leave of the matrix, the factor of the block on
//! the diagonal, and the solution with it of the rows below.

use std::ops::Range;

use super::{CholeskyDescriptor, Fields, Valid, forward};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::gemm::{GemmDescriptor, GemmFactor};
use crate::ops::linalg::TriangularSolveDescriptor;
use crate::ops::linalg::blocked::{block, rest_of};
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program};
use crate::ops::reduce::{ReduceDescriptor, Reduction};
use crate::ops::valid::Described;
use crate::sequence::{Sequence, Tensor};
use crate::tensor::TensorDesc;

pub(super) fn sequence(valid: &Valid) -> Result<Sequence> {
    let (a, factor) =
        (Tensor::operand(valid.slots.always(forward::A)), Tensor::operand(valid.slots.always(forward::FACTOR)));
    let info = valid.slots.at(forward::INFO).map(Tensor::operand);
    let (n, rank, is_upper) = (valid.derived.n, a.desc.rank(), valid.fields.upper);
    let batch = &a.desc.dims()[..rank - 2];
    // Of the lower factor the axes of rows and columns; the upper one is its transpose.
    let [of_rows, of_columns] = if is_upper { [rank - 1, rank - 2] } else { [rank - 2, rank - 1] };
    let part = |tensor: Tensor, rows: &Range<u64>, columns: &Range<u64>| {
        let part = tensor.narrow(of_rows, rows.start, rows.end - rows.start)?;
        part.narrow(of_columns, columns.start, columns.end - columns.start)
    };
    let mut sequence = Sequence::default();
    let s = &mut sequence;
    let step = block(n);
    let blocks = n.div_ceil(step);
    // For each block which of its leading minors is not positive.
    let failed = info.map(|_| s.place(beside_each_other(batch, blocks)?)).transpose()?;
    for number in 0..blocks {
        let (first, end) = (number * step, n.min((number + 1) * step));
        let (columns, rows, below, before) = (first..end, first..n, end..n, 0..first);
        let mark = s.mark();
        let mut from = part(a, &rows, &columns)?;
        if first > 0 {
            // As the operands lie: of a lower factor rows by columns.
            let rest = s.tensor(a.desc.dtype(), from.desc.dims())?;
            let [long, short] = [part(factor, &rows, &before)?, part(factor, &columns, &before)?];
            let (product, operands) = match is_upper {
                false => {
                    (GemmDescriptor::new(long.desc, GemmFactor::transposed(short.desc))?, [("a", long), ("b", short)])
                }
                true => {
                    (GemmDescriptor::new(GemmFactor::transposed(short.desc), long.desc)?, [("a", short), ("b", long)])
                }
            };
            s.push(product, &[operands[0], operands[1], ("out", rest)]);
            rest_of(s, from, rest, None)?;
            from = rest;
        }
        let here = 0..end - first;
        let (own, to) = (part(from, &here, &here)?, part(factor, &columns, &columns)?);
        let mut fields = Fields { upper: is_upper, info: info.is_some(), ..Fields::minimal(own.desc) };
        fields.layouts.insert("factor".into(), to.desc);
        let mut operands = vec![("a", own), ("factor", to)];
        if let Some(failed) = failed {
            let of_block = failed.narrow(rank - 2, number, 1)?;
            let of_block = of_block.view(DType::I32, batch, &failed.desc.strides()[..rank - 2])?;
            fields.layouts.insert("info".into(), of_block.desc);
            operands.push(("info", of_block));
        }
        s.push(CholeskyDescriptor(Valid::new(CholeskyDescriptor::OP, fields)?), &operands);
        if end < n {
            let (own, to_below) = (part(from, &(end - first..n - first), &here)?, part(factor, &below, &columns)?);
            let solve = match is_upper {
                false => TriangularSolveDescriptor::right(to.desc, own.desc)?.transpose()?,
                true => TriangularSolveDescriptor::new(to.desc, own.desc)?.upper()?.transpose()?,
            };
            s.push(solve.layout("x", to_below.desc)?, &[("a", to), ("b", own), ("x", to_below)]);
            // The other triangle.
            let other = part(factor, &columns, &below)?;
            let (dims, dtype) = (other.desc.dims().to_vec(), other.desc.dtype());
            let zeros =
                PointwiseDescriptor::generated(Program::builder().finish([0.0.into()])?, vec![], dims, vec![dtype])?;
            s.push(zeros.layout("out0", other.desc)?, &[("out0", other)]);
        }
        s.release(mark);
    }
    if let (Some(info), Some(failed)) = (info, failed) {
        first_failed(s, failed, info, step)?;
    }
    Ok(sequence)
}

/// A number of i32 for each matrix and block. Those of a block begin where an operand in the workspace may.
fn beside_each_other(batch: &[u64], blocks: u64) -> Result<TensorDesc> {
    const STEP: u64 = 64;
    let dense = TensorDesc::contiguous(DType::I32, batch)?;
    let apart = dense.elements().max(1).next_multiple_of(STEP);
    TensorDesc::strided(DType::I32, &[batch, &[blocks]].concat(), &[dense.strides(), &[apart]].concat())
}

/// Of what failed in each block of `step` columns what failed first, counted over the whole matrix.
fn first_failed(s: &mut Sequence, failed: Tensor, info: Tensor, step: u64) -> Result<()> {
    const NONE: f64 = 2_147_483_647.0;
    let axis = failed.desc.rank() - 1;
    // 1. As numbers of columns of the matrix.
    let mut b = Program::builder();
    let own = b.input("own");
    let number = b.index(axis);
    let before = b.call(Function::Mul, [number, as_number(step).into()]);
    let counted = b.call(Function::Add, [own, before]);
    let is_none = b.call(Function::Eq, [own, 0.0.into()]);
    let counted = b.call(Function::Where, [is_none, NONE.into(), counted]);
    let map = PointwiseDescriptor::new(b.finish([counted])?, vec![failed.desc])?.outputs(vec![DType::I32])?;
    s.push(map.layout("out0", failed.desc)?, &[("in0", failed), ("out0", failed)]);
    // 2. The first one.
    let least = ReduceDescriptor::of(failed.desc, &[axis], Reduction::Min)?;
    s.push(least.layout("out0", info.desc)?, &[("in0", failed), ("out0", info)]);
    // 3. None is 0.
    let mut b = Program::builder();
    let own = b.input("own");
    let is_none = b.call(Function::Eq, [own, NONE.into()]);
    let result = b.call(Function::Where, [is_none, 0.0.into(), own]);
    let map = PointwiseDescriptor::new(b.finish([result])?, vec![info.desc])?.outputs(vec![DType::I32])?;
    s.push(map.layout("out0", info.desc)?, &[("in0", info), ("out0", info)]);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of 32 bits")]
fn as_number(word: u64) -> f64 {
    word as f64
}
