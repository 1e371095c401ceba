//! Elements that indices name: `index_select`, which is an embedding, and `gather`.
//!
//! | op | y |
//! |---|---|
//! | `index_select` | `y[b.., i.., a..] = x[b.., indices[i..], a..]`: the axis of x is replaced by the extents of the indices |
//! | `gather` | `y[i0, .., ik, ..] = x[i0, .., indices[i0, .., ik, ..], ..]`, where `k` is the axis: the extents of y are those of the indices |
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | any | in | always |
//! | `indices` | any; of `gather` the rank of x, and beside the axis extents that are at most those of x | i64, i32, u32 | in | always |
//! | `y` | that of x with the extents of the indices in the place of the axis; of `gather` that of the indices | that of x | out | always |
//! | `missing` | one element, of rank 0 | u32 | out | `missing` |
//!
//! Units: an index is a position along the axis, from 0 on. With [`from_end`](IndexSelectDescriptor::from_end) one below 0 counts from the end: -1 is the last.
//! Any other is out of range. It names no element: nothing is read, and y has the [`fill`](IndexSelectDescriptor::fill), 0 unless the descriptor says
//! otherwise. `missing` is the number of elements of the indices that are out of range, modulo 2^32. Each run writes it, whatever was there before, so that a
//! caller who wants the sum over some runs adds it up. A tensor of rank 0 has one element and an axis 0.
//!
//! Layout and aliasing: any strides, 0 for x and the indices. y is dense unless [`layout`](IndexSelectDescriptor::layout) says otherwise. The outputs overlap
//! nothing.
//!
//! Accumulation: none; the count is a sum of integers. NaN, infinity, empty: elements move as bits, so that each NaN keeps its payload; the fill is rounded once to
//! the type, and as NaN has the payload of the type's usual one. Of an x without elements along the axis every index is out of range. Without elements of y
//! only the count is written.
//!
//! Gradients: what arrives at y is added up at the elements of x that it came from, by `index_add` and `scatter`; what indices out of range name arrives nowhere.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: `torch.index_select`, `torch.nn.functional.embedding` and `torch.gather`, whose names and shapes these are; `jax.numpy.take_along_axis` and the fill of
//! `jax.numpy.take(mode="fill")`.
//!
//! Kernels, in the order in which they are tried. On CUDA rows where each index names a long line of 16-byte vectors (`csrc/index/lookup_rows.cu`), and any
//! strides (`csrc/index/lookup.cu`); through wgpu `csrc/index/lookup.wgsl`. On the CPU one, in `cpu.rs`. The count has a kernel of its own,
//! `csrc/index/lookup_missing.cu` and `csrc/index/lookup_missing.wgsl`.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::operands::{args, operands};
use crate::ops::fields::{below_rank, beside, relay, require};
use crate::ops::index::scatter::{Combine, IndexAddDescriptor, ScatterDescriptor};
use crate::ops::movement::pad::Number;
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::{MAX_RANK, TensorDesc};

pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
mod geometry;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;

pub(crate) use geometry::Lookups;
#[cfg(feature = "wgpu")]
pub(in crate::ops) use wgpu::add_variants;

operands! { $
    /// The operands.
    mod forward {
        X x: In, always => "Where elements come from.";
        INDICES indices: In, always => "Which elements these are.";
        Y y: Out, always => "The elements.";
        MISSING missing: Out, if missing => "How many indices are out of range.", step "Where the number of indices out of range goes, one u32.";
    }
}

/// How indices name elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Addressing {
    /// Each names all elements at a position of the axis.
    Select,
    /// Each names one element.
    Gather,
}

fields! {
    /// The fields of both descriptors. `from_end` is that of indices that may be below 0.
    Fields: Fields<Kind = Addressing, Derived = Lookups> + normalise {
        x: TensorDesc,
        axis: usize,
        indices: TensorDesc,
        from_end: bool = default,
        fill: Number = default,
        missing: bool = default,
    }
}

type Valid = valid::Valid<Fields>;

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<Addressing>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x), ("indices", &mut self.indices)])?;
        self.fill.forget_digits(self.x.dtype());
        // None of u32 is below 0.
        self.from_end &= self.indices.dtype() != DType::U32;
        Ok(())
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Addressing>, slots: &mut SlotsBuilder<'_>) -> Result<Lookups> {
        let Self { x, axis, indices, missing, .. } = self;
        let dims = addressed(op, "x", kind, x, *axis, indices)?;
        let fill = self.fill.bits_of(op, "fill", x.dtype())?;
        slots.declare(forward::X, *x)?;
        slots.declare(forward::INDICES, *indices)?;
        let y = slots.declare(forward::Y, slots.derived(forward::Y, TensorDesc::contiguous(x.dtype(), &dims))?)?;
        if *missing {
            slots.declare(forward::MISSING, TensorDesc::contiguous(DType::U32, &[])?)?;
        }
        Lookups::new(kind, x, *axis, indices, &y, fill)
    }
}

/// The extents of what the indices name in a tensor, the field `of`.
pub(super) fn addressed(
    op: &'static str,
    of: &'static str,
    kind: Addressing,
    x: &TensorDesc,
    axis: usize,
    indices: &TensorDesc,
) -> Result<Vec<u64>> {
    let (rank, dtype) = (x.rank(), indices.dtype());
    below_rank(op, of, x, axis)?;
    require(op, "indices", matches!(dtype, DType::I64 | DType::I32 | DType::U32), || {
        format!("must be i64, i32 or u32, got {dtype}; a program of pointwise casts")
    })?;
    match kind {
        Addressing::Select => {
            let beside = rank.saturating_sub(1);
            require(op, "indices", beside + indices.rank() <= MAX_RANK, || {
                format!(
                    "of rank {} in the place of an axis of rank {rank} make a tensor of rank {}, the limit is {MAX_RANK}",
                    indices.rank(),
                    beside + indices.rank()
                )
            })?;
            let after = x.dims().get(axis + 1..).unwrap_or_default();
            Ok([&x.dims()[..axis], indices.dims(), after].concat())
        }
        Addressing::Gather => {
            let fits = |at: usize| at == axis || indices.dims()[at] <= x.dims()[at];
            require(op, "indices", indices.rank() == rank && (0..rank).all(fits), || {
                format!(
                    "must have the rank of {of}, and beside axis {axis} extents of at most its {:?}; got {:?}",
                    x.dims(),
                    indices.dims()
                )
            })?;
            Ok(indices.dims().to_vec())
        }
    }
}

/// What arrives at the elements that indices name is added up at each of them. What is out of range arrives nowhere.
fn derive<D: Described<Fields = Fields>>(forward: &D, derivation: &mut Derivation) -> Result<()> {
    let Valid { op, fields: Fields { x, axis, indices, from_end, .. }, slots, .. } = forward.valid();
    if !x.dtype().is_computed() {
        let why = "has no gradient: what arrives is added up in f64, f32, f16 and bf16; cast it before this op";
        return Err(Error::NoGradient { op: op.name, operand: "x".into(), why, known: Vec::new() });
    }
    let dy = slots.always(forward::Y).desc;
    let roles = [("source", Role::GradientOf("y")), ("y", Role::GradientFor(vec!["x"]))];
    macro_rules! push {
        ($Descriptor:ident) => {{
            let mut add = $Descriptor::new(beside(x)?, *axis, *indices, Combine::Add)?.layout("source", dy)?;
            if *from_end {
                add = add.from_end()?;
            }
            derivation.push(add, &roles);
        }};
    }
    match op.kind {
        Addressing::Select => push!(IndexAddDescriptor),
        Addressing::Gather => push!(ScatterDescriptor),
    }
    Ok(())
}

descriptor! {
    /// All elements at the positions of an axis that indices name; an embedding. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, IndexSelectArgs, IndexSelectDescriptor, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let table = TensorDesc::contiguous(DType::F32, &[3, 2])?;
    /// let tokens = TensorDesc::contiguous(DType::I32, &[4])?;
    /// let plan = Plan::new(&device, IndexSelectDescriptor::new(table, 0, tokens)?, &PlanOptions::default())?;
    /// let (table, tokens, mut rows) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 0, 7, 2], [0f32; 8]);
    /// let args = IndexSelectArgs::new(Mem::host(&table), Mem::host(&tokens), MemMut::host(&mut rows));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// // There is no row 7.
    /// assert_eq!(rows, [5.0, 6.0, 1.0, 2.0, 0.0, 0.0, 5.0, 6.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    IndexSelectDescriptor(Fields): "index_select", Addressing::Select;
    args: IndexSelectArgs of forward;
    plan: IndexSelectPlan;
    kernels: kernels!(
        cuda: {"rows" => cuda::rows, "strided" => cuda::strided};
        wgpu: {"strided" => wgpu::strided};
        cpu: cpu::accept
    );
    gradients: ["y"] => ["x"], derive;
    /// The elements of x at positions of an axis.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, if the indices are not i64, i32 or u32, or if the result would have a rank above 8 or more than
    /// `i64::MAX` bytes.
    fn new(x: TensorDesc, axis: usize, indices: TensorDesc) = Fields::minimal(x, axis, indices);
}

descriptor! {
    /// Along an axis the element that each index names. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, GatherArgs, GatherDescriptor, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let indices = TensorDesc::contiguous(DType::I64, &[2, 1])?;
    /// let gather = GatherDescriptor::new(x, 1, indices)?.from_end()?;
    /// let plan = Plan::new(&device, gather, &PlanOptions::default())?;
    /// let (x, indices, mut y) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1i64, -1], [0f32; 2]);
    /// let args = GatherArgs::new(Mem::host(&x), Mem::host(&indices), MemMut::host(&mut y));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(y, [2.0, 6.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    GatherDescriptor(Fields): "gather", Addressing::Gather;
    args: GatherArgs of forward;
    plan: GatherPlan;
    kernels: kernels!(
        cuda: {"rows" => cuda::rows, "strided" => cuda::strided};
        wgpu: {"strided" => wgpu::strided};
        cpu: cpu::accept
    );
    gradients: ["y"] => ["x"], derive;
    /// The elements of x that indices name along an axis. Indices that repeat along an extent, as those of `numpy.take_along_axis` may, have a stride of 0 there
    /// ([`TensorDesc::broadcast_to`]).
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, if the indices are not i64, i32 or u32 or have another rank or larger extents than x beside the axis,
    /// or if the result would have more than `i64::MAX` bytes.
    fn new(x: TensorDesc, axis: usize, indices: TensorDesc) = Fields::minimal(x, axis, indices);
}

shared_steps! { IndexSelectDescriptor: layout }
shared_steps! { GatherDescriptor: layout }

/// The steps of both descriptors.
macro_rules! lookup_steps {
    ($($Descriptor:ident),*) => {$(
        steps! { $Descriptor
            /// Indices below 0 count from the end of the axis, down to minus its extent. Without it they are out of range. Of u32 there are none.
            ///
            /// # Errors
            /// None; the type is that of every other step.
            from_end() = |it| it.with(|fields| fields.from_end = true);
            /// What y has where an index is out of range, 0 unless it is said: a number that the type of x has, of integers a whole one; it is rounded to a
            /// floating-point type.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] if the type has no such number.
            fill(value: f64) = |it| it.with(|fields| fields.fill = Number::new(value));
            /// Writes how many indices are out of range to the operand `missing`.
            ///
            /// # Errors
            /// None; the type is that of every other step.
            count_missing() = |it| it.with(|fields| fields.missing = true);
        }
    )*};
}
lookup_steps! { IndexSelectDescriptor, GatherDescriptor }

args! {
    /// Operands of [`IndexSelectDescriptor`]; their shapes and types are in the [table](self).
    IndexSelectArgs of forward {
        /// The operands that are always there.
        new(x, indices, y);
        missing(missing);
    }
}

args! {
    /// Operands of [`GatherDescriptor`]; their shapes and types are in the [table](self).
    GatherArgs of forward {
        /// The operands that are always there.
        new(x, indices, y);
        missing(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Descriptor;

    fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let (x, indices) = (dense(DType::BF16, &[100, 8]), dense(DType::U32, &[2, 3]));
        let select = IndexSelectDescriptor::new(x, 0, indices).unwrap();
        assert_eq!(select, select.clone().from_end().unwrap().fill(0.0).unwrap());
        let json = r#"{"x":{"dtype":"bf16","dims":[100,8]},"axis":0,"indices":{"dtype":"u32","dims":[2,3]}}"#;
        assert_eq!(serde_json::to_string(&select).unwrap(), json);
        assert_eq!(select.slots()[2].desc, dense(DType::BF16, &[2, 3, 8]));
        let json = r#"{"x":{"dtype":"i8","dims":[4,5]},"axis":1,"indices":{"dtype":"i64","dims":[3,9]},"from_end":true,"fill":-3.0,"missing":true}"#;
        let gather: GatherDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&gather).unwrap(), json);
        assert_eq!(gather.slots()[2].desc, dense(DType::I8, &[3, 9]));
        assert_eq!(gather.slots()[3].desc, dense(DType::U32, &[]));
    }

    #[test]
    fn an_axis_is_replaced_by_the_extents_of_the_indices() {
        let y = |x: &[u64], axis, indices: &[u64]| {
            let select = IndexSelectDescriptor::new(dense(DType::F32, x), axis, dense(DType::I64, indices));
            select.map(|select| select.slots()[2].desc.dims().to_vec())
        };
        assert_eq!(y(&[4, 5, 6], 1, &[2, 7]).unwrap(), [4, 2, 7, 6]);
        assert_eq!(y(&[4, 5], 1, &[]).unwrap(), [4]);
        assert_eq!(y(&[], 0, &[3]).unwrap(), [3]);
        let refusal = y(&[1; 8], 0, &[1, 1]).unwrap_err().to_string();
        assert!(refusal.contains("make a tensor of rank 9, the limit is 8"), "{refusal}");
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let x = dense(DType::U8, &[4, 5]);
        let gather = |axis, dtype, dims: &[u64]| GatherDescriptor::new(x, axis, dense(dtype, dims));
        let rule = |made: Result<GatherDescriptor>| made.expect_err("a refusal").to_string();
        for (refusal, expected) in [
            (rule(gather(2, DType::I32, &[4, 5])), "axis: must be below the rank of x, 2; got 2"),
            (rule(gather(0, DType::F32, &[4, 5])), "indices: must be i64, i32 or u32, got f32"),
            (rule(gather(0, DType::I32, &[4])), "beside axis 0 extents of at most its [4, 5]; got [4]"),
            (rule(gather(0, DType::I32, &[9, 6])), "got [9, 6]"),
            (rule(gather(0, DType::I32, &[9, 5]).unwrap().fill(256.0)), "fill: must be a whole number of u8, got 256"),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
        let none = gather(0, DType::I32, &[9, 5]).unwrap().gradients(&["y"], &["x"]);
        assert!(none.is_err(), "integers have no gradients");
    }
}
