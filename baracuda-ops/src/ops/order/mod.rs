//! Ops that put elements in order, `sort` and `top_k`, and one that finds places among them, `search_sorted`.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | sort, stable sort, with or without the indices | [`SortDescriptor`] |
//! | argsort | [`SortDescriptor::argsort`] |
//! | topk, the least or greatest k | [`TopKDescriptor`] |
//! | searchsorted, bucketize, digitize, lower and upper bounds | [`SearchSortedDescriptor`] |
//!
//! All follow one order: numbers by their values, 0 and -0 as equals, NaN above every number, false below true. Of equal elements the one of the lower position
//! comes first, whether the order rises or falls, so that there is one right result and every backend has it.
//!
//! How it is computed: an element becomes an unsigned integer, its key, which has the element's place in the order; for a falling order all its bits are inverted. Lines of
//! keys with their positions are sorted stably, and what is written are positions, and elements of x at those positions, bit for bit.
//!
//! Kernels of `sort` and `top_k`, in the order in which they are tried. On CUDA `few` (`csrc/order/order_few.cu`), where a warp finds a few elements of a line; `groups` and
//! `tiles` (`csrc/order/order_tiles.cu`), where few are kept of a long line, of which most groups of neighbours are read once, and where a tile holds a line, or
//! the elements that are kept of each tile are few; `radix` (`csrc/order/order_radix.cu`), which sorts long lines byte by byte of their keys; and `merge`
//! (`csrc/order/order_merge.cu`), which merges sorted tiles; through wgpu `tiles` and `merge` (`csrc/order/order_tiles.wgsl`,
//! `csrc/order/order_merge.wgsl`), with keys of 64 bits as two words. On the CPU one, in `cpu.rs`. Merges along diagonals: O. Green, R. McColl, D. A. Bader,
//! "GPU Merge Path: A GPU Merging Algorithm", 2012.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::operands::operands;
use crate::ops::fields::{beside, require};
use crate::ops::index::{Combine, ScatterDescriptor};
use crate::ops::valid::{self, Fields};
use crate::plan::Descriptor;
use crate::slots::{Slots, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod geometry;
pub mod search_sorted;
pub mod sort;
pub mod top_k;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::Order;
pub use search_sorted::{SearchSortedArgs, SearchSortedDescriptor, SearchSortedPlan};
pub use sort::{SortArgs, SortDescriptor, SortPlan};
pub use top_k::{TopKArgs, TopKDescriptor, TopKPlan};

#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut crate::backend::wgpu::Variants) -> Result<()> {
    wgpu::add_variants(variants)?;
    search_sorted::wgpu::add_variants(variants)
}

operands! { $
    /// The operands of sort and top_k.
    mod forward {
        X x: In, always => "What is put in order.";
        VALUES values: Out, if values => "The elements, in order.", step "Where the elements go.";
        INDICES indices: Out, if indices => "Where each element comes from, along the axis.", step "Where the indices go.";
    }
}

/// Validated fields of either of these.
trait Ordered: Fields<Kind = (), Derived = Order> + Send + Sync + 'static {}

impl<F: Fields<Kind = (), Derived = Order> + Send + Sync + 'static> Ordered for F {}

type Valid<F> = valid::Valid<F>;

/// What is written: elements, and indices of a type.
#[derive(Clone, Copy)]
struct Written {
    values: bool,
    indices: Option<DType>,
}

/// The extent of the axis; of a tensor of rank 0 it is 1.
fn length(x: &TensorDesc, axis: usize) -> u64 {
    x.dims().get(axis).copied().unwrap_or(1)
}

/// Declares the operands of an op that keeps the first `kept` elements of each line.
fn declare(
    op: &'static str,
    (x, axis): (&TensorDesc, usize),
    (kept, is_descending): (u64, bool),
    written: Written,
    slots: &mut SlotsBuilder<'_>,
) -> Result<Order> {
    let (dtype, length) = (x.dtype(), length(x, axis));
    require(op, "x", dtype.is_computed() || dtype.is_integer() || dtype == DType::Bool, || {
        format!("{dtype} is stored and cast only; cast it first, with a program of pointwise")
    })?;
    require(op, "values", written.values || written.indices.is_some(), || {
        "or indices must be asked for: there would be nothing to write".into()
    })?;
    if let Some(dtype) = written.indices {
        let most = match dtype {
            DType::I64 => u64::MAX,
            DType::I32 => i32::MAX.unsigned_abs().into(),
            DType::U32 => u32::MAX.into(),
            _ => {
                let rule = format!("must be i64, i32 or u32, got {dtype}");
                return Err(Error::InvalidDescriptor { op, field: "indices", rule });
            }
        };
        require(op, "indices", length == 0 || length - 1 <= most, || {
            format!("of {dtype} are at most {most}, the axis has {length} positions; i64 has room")
        })?;
    }
    slots.declare(forward::X, *x)?;
    let mut dims = x.dims().to_vec();
    if let Some(extent) = dims.get_mut(axis) {
        *extent = kept;
    }
    let mut output = |index: usize, dtype: DType| -> Result<TensorDesc> {
        slots.declare(index, slots.derived(index, TensorDesc::contiguous(dtype, &dims))?)
    };
    let values = if written.values { Some(output(forward::VALUES, dtype)?) } else { None };
    let indices = match written.indices {
        Some(dtype) => Some(output(forward::INDICES, dtype)?),
        None => None,
    };
    Order::new([x, values.as_ref().unwrap_or(x), indices.as_ref().unwrap_or(x)], axis, kept, is_descending)
}

/// What arrives goes where the elements came from, and elsewhere the gradient is 0. `positions`: the forward of these positions alone, which is a step of its own
/// where forward did not write them.
fn derive<P: Descriptor>(
    slots: &Slots,
    axis: usize,
    positions: impl FnOnce() -> Result<P>,
    derivation: &mut Derivation,
) -> Result<()> {
    let x = slots.always(forward::X).desc;
    let Some(values) = slots.at(forward::VALUES) else { return Ok(()) };
    let (indices, role) = match slots.at(forward::INDICES) {
        Some(indices) => (indices.desc, Role::Forward("indices")),
        None => {
            let (positions, found) = (positions()?, derivation.intermediate());
            let desc = positions.slots()[1].desc;
            derivation.push(positions, &[("x", Role::Forward("x")), ("indices", found.clone())]);
            (desc, found)
        }
    };
    let scatter = ScatterDescriptor::new(beside(&x)?, axis, indices, Combine::Set)?.layout("source", values.desc)?;
    let arriving = ("source", Role::GradientOf("values"));
    derivation.push(scatter, &[arriving, ("indices", role), ("y", Role::GradientFor(vec!["x"]))]);
    Ok(())
}
