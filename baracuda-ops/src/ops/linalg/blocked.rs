//! Large matrices: a sequence of other ops, block by block.

use crate::backend::{Backend, DeviceProps};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::kernel::{Accepted, Ask, Kernel};
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program};
use crate::options::PlanOptions;
use crate::plan::form_name;
use crate::sequence::{Sequence, Sequenced, Tensor};

/// Matrices of fewer rows are one launch.
const LEAST_BLOCKED: u64 = 257;
/// Rows of a block are multiples of it, so that blocks in the workspace begin where a binding may.
const BLOCK: u64 = 64;
/// The most blocks of a matrix: more would only make more launches.
const MOST_BLOCKS: u64 = 64;

/// Rows of a block. They depend on nothing else, so that no device changes the order of sums.
pub(super) fn block(n: u64) -> u64 {
    n.div_ceil(MOST_BLOCKS).next_multiple_of(BLOCK).max(BLOCK)
}

/// Makes of products `rest` what they leave of `from`, which is multiplied by alpha where there is one.
pub(super) fn rest_of(s: &mut Sequence, from: Tensor, rest: Tensor, alpha: Option<f64>) -> Result<()> {
    let mut b = Program::builder();
    let [from_term, product] = ["from", "product"].map(|name| b.input(name));
    let whole = alpha.map_or(from_term, |alpha| b.call(Function::Mul, [from_term, alpha.into()]));
    let left = b.call(Function::Sub, [whole, product]);
    let map = PointwiseDescriptor::new(b.finish([left])?, vec![from.desc, rest.desc])?;
    s.push(map.layout("out0", rest.desc)?, &[("in0", from), ("in1", rest), ("out0", rest)]);
    Ok(())
}

/// The kernel of large matrices on a backend: a sequence of other ops by blocks, of which products are most of the work.
pub(super) struct Blocked(pub(super) Backend);

/// An op of matrices that has such a sequence.
pub(super) trait Factored: Sequenced {
    /// Rows of a matrix, 0 where there is nothing to do.
    fn rows(&self) -> u64;
}

impl<D: Factored> Kernel<D> for Blocked {
    fn name(&self) -> &'static str {
        form_name!(D, "blocked")
    }

    fn backend(&self) -> Backend {
        self.0
    }

    fn accept<'d>(&self, descriptor: &'d D, options: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
        let n = descriptor.rows();
        ask.leave_if(n < LEAST_BLOCKED, "one launch does for small matrices")?;
        Reason::unless(n > block(n), || format!("matrices of {n} rows are one block"))?;
        let has_f64 = descriptor.slots().iter().any(|slot| slot.desc.dtype() == DType::F64);
        Reason::unless(self.0 != Backend::Wgpu || !has_f64, || "WGSL has no arithmetic of f64 to rely on")?;
        descriptor.sequence()?.candidate(Kernel::<D>::name(self), options, props)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_few_and_begin_where_bindings_may() {
        for (n, expected) in [(1, 64), (4096, 64), (4097, 128), (100_000, 1600), (1 << 31, 1 << 25)] {
            assert_eq!(block(n), expected, "{n}");
            assert!(n.div_ceil(block(n)) <= MOST_BLOCKS);
        }
    }
}
