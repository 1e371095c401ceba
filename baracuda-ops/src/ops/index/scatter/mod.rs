//! Elements that are written where indices name: `index_add`, which is the gradient of an embedding, and `scatter`.
//!
//! | op | where an element of the source goes |
//! |---|---|
//! | `index_add` | `source[b.., i.., a..]` to `y[b.., indices[i..], a..]`: in the source the axis of y is replaced by the extents of the indices |
//! | `scatter` | `source[i0, .., ik, ..]` to `y[i0, .., indices[i0, .., ik, ..], ..]`, where `k` is the axis: the extents of the source are those of the indices |
//!
//! An element of y that some elements of the source go to is these, combined in the order of the source: for `set` the last of them, for `add` their sum, for
//! `multiply` their product, for `min` and `max` the extreme. With [`base`](IndexAddDescriptor::base) its element there is combined before them, `set`
//! takes its place, and where nothing goes y is the base; without one y is 0 there, and the base has no part in any element.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `base` | that of y | that of y | in | `base` |
//! | `source` | that of y with the extents of the indices in the place of the axis; of `scatter` that of the indices | that of y | in | always |
//! | `indices` | any; of `scatter` the rank of y, and beside the axis extents that are at most those of y | i64, i32, u32 | in | always |
//! | `y` | any, rank 0 to 8 | any for `set`, else f64, f32, f16, bf16 and integers | out | always |
//! | `missing` | one element, of rank 0 | u32 | out | `missing` |
//!
//! Units: an index is a position along the axis of y, from 0 on. With [`from_end`](IndexAddDescriptor::from_end) one below 0 counts from the end: -1 is the
//! last. Any other is out of range: what it names goes nowhere. `missing` is the number of elements of the indices that are out of range, modulo 2^32; each run
//! writes it. A tensor of rank 0 has one element and an axis 0.
//!
//! Layout and aliasing: any strides, 0 for inputs. The source is dense unless [`layout`](IndexAddDescriptor::layout) says otherwise; the base lies as y does.
//! `y` may lie at `base`, where the layouts agree. Outputs overlap nothing else.
//!
//! Accumulation: f32 for f16, bf16 and f32, f64 for f64, rounded once; integers wrap. Elements that go to one place are combined in the order of the source, or
//! in parts that their number decides, without atomic additions of floating-point numbers: the same bits on the same device every time.
//!
//! NaN, infinity, empty: an extreme with a NaN is NaN. For `set` elements move as bits, so that each NaN keeps its payload. Without elements of y only the count
//! is written.
//!
//! Gradients, for `add`: that of the base is that of y, and that of the source what the indices name in it.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which type or extent.
//!
//! Source: `torch.index_add`, `index_copy` and `index_reduce`, `torch.scatter`, `scatter_add` and `scatter_reduce`, whose shapes these are; without a base as
//! with `include_self=False`. Segments of sorted keys in parts: N. Bell, M. Garland, "Implementing sparse matrix-vector multiplication on throughput-oriented
//! processors", 2009.
//!
//! Kernels. On CUDA a block holds a line of y that entries go along, if they are many of its elements, and writes it once (`csrc/index/scatter_lines.cu`). Else
//! what goes to one place is made neighbours by a stable sort of the places (`csrc/index/scatter_order.cu`, which is made of the parts of
//! `csrc/common/sort.cuh`; `csrc/index/scatter_keys.wgsl` and `csrc/index/sort_*.wgsl`), then teams of threads combine parts of them (`csrc/index/scatter.cu`,
//! `scatter_set.cu`; the files of these names and `scatter_gather.wgsl`). On GPUs places and what goes to them are numbered in 32 bits. y begins as the base or as
//! zeros by the kernels of copies and padding. The reference is in `cpu.rs`. The count is that of [`lookup`](super::lookup).

use super::lookup::{Addressing, GatherDescriptor, IndexSelectDescriptor, addressed};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::json;
use crate::operands::{args, operands};
use crate::ops::fields::{beside, relay, require};
use crate::ops::movement::CopyDescriptor;
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod geometry;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::Scatters;
#[cfg(feature = "wgpu")]
pub(in crate::ops) use wgpu::add_variants;

operands! { $
    /// The operands.
    mod forward {
        BASE base: In, if base, in place y => "What y is before anything goes there, if declared.", step "What y is before anything goes there.";
        SOURCE source: In, always => "What goes to the elements that indices name.";
        INDICES indices: In, always => "Where it goes.";
        Y y: Out, always => "The result.";
        MISSING missing: Out, if missing => "How many indices are out of range.", step "Where the number of indices out of range goes, one u32.";
    }
}

/// What becomes of elements that go to one place.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// The last, in the order of the source.
    Set,
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The least; NaN if one of them is.
    Min,
    /// The greatest; NaN if one of them is.
    Max,
}

impl Combine {
    /// Every way.
    pub const ALL: [Self; 5] = [Self::Set, Self::Add, Self::Multiply, Self::Min, Self::Max];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Multiply => "multiply",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

json::named!(Combine);

fields! {
    /// The fields of both descriptors. `from_end` is that of indices that may be below 0.
    Fields: Fields<Kind = Addressing, Derived = Scatters> + normalise {
        y: TensorDesc,
        axis: usize,
        indices: TensorDesc,
        combine: Combine,
        base: bool = default,
        from_end: bool = default,
        missing: bool = default,
    }
}

type Valid = valid::Valid<Fields>;

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<Addressing>) -> Result<()> {
        relay(op, &mut self.layouts, [("y", &mut self.y), ("indices", &mut self.indices)])?;
        // None of u32 is below 0.
        self.from_end &= self.indices.dtype() != DType::U32;
        Ok(())
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Addressing>, slots: &mut SlotsBuilder<'_>) -> Result<Scatters> {
        let Self { y, axis, indices, combine, base, missing, .. } = self;
        let dtype = y.dtype();
        let combines = dtype.is_computed() || dtype.is_integer();
        require(op, "combine", *combine == Combine::Set || combines, || {
            format!(
                "{} takes f64, f32, f16, bf16 and integers, y is {dtype}; set moves every type, and a program of pointwise casts",
                combine.name()
            )
        })?;
        let dims = addressed(op, "y", kind, y, *axis, indices)?;
        slots.declare_if(*base, forward::BASE, *y)?;
        let source = TensorDesc::contiguous(dtype, &dims);
        let source = slots.declare(forward::SOURCE, slots.derived(forward::SOURCE, source)?)?;
        slots.declare(forward::INDICES, *indices)?;
        slots.declare(forward::Y, *y)?;
        if *missing {
            slots.declare(forward::MISSING, TensorDesc::contiguous(DType::U32, &[])?)?;
        }
        Scatters::new(kind, y, *axis, indices, &source)
    }
}

/// Of sums.
fn derive<D: Described<Fields = Fields>>(forward: &D, derivation: &mut Derivation) -> Result<()> {
    let Valid { op, fields, slots, .. } = forward.valid();
    let Fields { axis, indices, combine, from_end, .. } = fields;
    if *combine != Combine::Add {
        let operand = derivation.wanted().first().copied().unwrap_or("source").into();
        let why = "has no gradient, except for this way of combining:";
        return Err(Error::NoGradient { op: op.name, operand, why, known: vec![Combine::Add.name()] });
    }
    let dy = slots.always(forward::Y).desc;
    let arriving = ("x", Role::GradientOf("y"));
    if derivation.wants("base") {
        let base = slots.always(forward::BASE).desc;
        let copy = CopyDescriptor::new(dy)?.layout("y", beside(&base)?)?;
        derivation.push(copy, &[arriving.clone(), ("y", Role::GradientFor(vec!["base"]))]);
    }
    if derivation.wants("source") {
        let source = beside(&slots.always(forward::SOURCE).desc)?;
        let of_source = ("y", Role::GradientFor(vec!["source"]));
        macro_rules! push {
            ($Descriptor:ident) => {{
                let mut lookup = $Descriptor::new(dy, *axis, *indices)?.layout("y", source)?;
                if *from_end {
                    lookup = lookup.from_end()?;
                }
                derivation.push(lookup, &[arriving, of_source]);
            }};
        }
        match op.kind {
            Addressing::Select => push!(IndexSelectDescriptor),
            Addressing::Gather => push!(GatherDescriptor),
        }
    }
    Ok(())
}

descriptor! {
    /// Slices of a tensor that go to the positions of an axis that indices name; the gradient of an embedding. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{Combine, DType, Device, IndexAddArgs, IndexAddDescriptor, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let table = TensorDesc::contiguous(DType::F32, &[3, 2])?;
    /// let tokens = TensorDesc::contiguous(DType::I32, &[4])?;
    /// let plan = Plan::new(&device, IndexAddDescriptor::new(table, 0, tokens, Combine::Add)?, &PlanOptions::default())?;
    /// let (rows, tokens, mut dtable) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [2, 0, 7, 2], [0f32; 6]);
    /// let args = IndexAddArgs::new(Mem::host(&rows), Mem::host(&tokens), MemMut::host(&mut dtable));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// // There is no row 7.
    /// assert_eq!(dtable, [3.0, 4.0, 0.0, 0.0, 8.0, 10.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    IndexAddDescriptor(Fields): "index_add", Addressing::Select;
    args: IndexAddArgs of forward;
    plan: IndexAddPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept);
    gradients: ["y"] => ["base", "source"], derive;
    /// Slices that go to positions of an axis of `y`, where those that go to one position are combined.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, if the indices are not i64, i32 or u32, if y has strides that write an element twice or a type that
    /// is not combined, or if the source would have a rank above 8 or more than `i64::MAX` bytes.
    fn new(y: TensorDesc, axis: usize, indices: TensorDesc, combine: Combine) =
        Fields::minimal(y, axis, indices, combine);
}

descriptor! {
    /// Elements that go along an axis to where each index names. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{Combine, DType, Device, Mem, MemMut, Plan, PlanOptions, ScatterArgs, ScatterDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let y = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let indices = TensorDesc::contiguous(DType::I64, &[2, 2])?;
    /// let scatter = ScatterDescriptor::new(y, 1, indices, Combine::Set)?.base()?.from_end()?;
    /// let plan = Plan::new(&device, scatter, &PlanOptions::default())?;
    /// let (base, source, indices, mut y) = ([9f32; 6], [1f32, 2.0, 3.0, 4.0], [0i64, -1, 1, 1], [0f32; 6]);
    /// let args = ScatterArgs::new(Mem::host(&source), Mem::host(&indices), MemMut::host(&mut y)).base(Mem::host(&base));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(y, [1.0, 9.0, 2.0, 9.0, 4.0, 9.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ScatterDescriptor(Fields): "scatter", Addressing::Gather;
    args: ScatterArgs of forward;
    plan: ScatterPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept);
    gradients: ["y"] => ["base", "source"], derive;
    /// Elements that go to those of `y` that indices name along an axis, where those that go to one place are combined. Indices that repeat along an extent
    /// have a stride of 0 there ([`TensorDesc::broadcast_to`]).
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, if the indices are not i64, i32 or u32 or have another rank or larger extents than y beside the axis,
    /// or if y has strides that write an element twice or a type that is not combined.
    fn new(y: TensorDesc, axis: usize, indices: TensorDesc, combine: Combine) =
        Fields::minimal(y, axis, indices, combine);
}

shared_steps! { IndexAddDescriptor: layout }
shared_steps! { ScatterDescriptor: layout }

/// The steps of both descriptors.
macro_rules! scatter_steps {
    ($($Descriptor:ident),*) => {$(
        steps! { $Descriptor
            /// Reads what y is before anything goes there from the operand `base`.
            ///
            /// # Errors
            /// None; the type is that of every other step.
            base() = |it| it.with(|fields| fields.base = true);
            /// Indices below 0 count from the end of the axis, down to minus its extent. Without it they are out of range. Of u32 there are none.
            ///
            /// # Errors
            /// None; the type is that of every other step.
            from_end() = |it| it.with(|fields| fields.from_end = true);
            /// Writes how many indices are out of range to the operand `missing`.
            ///
            /// # Errors
            /// None; the type is that of every other step.
            count_missing() = |it| it.with(|fields| fields.missing = true);
        }
    )*};
}
scatter_steps! { IndexAddDescriptor, ScatterDescriptor }

args! {
    /// Operands of [`IndexAddDescriptor`]; their shapes and types are in the [table](self).
    IndexAddArgs of forward {
        /// The operands that are always there.
        new(source, indices, y);
        base(base); missing(missing);
    }
}

args! {
    /// Operands of [`ScatterDescriptor`]; their shapes and types are in the [table](self).
    ScatterArgs of forward {
        /// The operands that are always there.
        new(source, indices, y);
        base(base); missing(missing);
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
        let (y, indices) = (dense(DType::BF16, &[100, 8]), dense(DType::U32, &[2, 3]));
        let add = IndexAddDescriptor::new(y, 0, indices, Combine::Add).unwrap();
        assert_eq!(add, add.clone().from_end().unwrap());
        let json =
            r#"{"y":{"dtype":"bf16","dims":[100,8]},"axis":0,"indices":{"dtype":"u32","dims":[2,3]},"combine":"add"}"#;
        assert_eq!(serde_json::to_string(&add).unwrap(), json);
        assert_eq!(add.slots()[0].desc, dense(DType::BF16, &[2, 3, 8]));
        let json = r#"{"y":{"dtype":"i8","dims":[4,5]},"axis":1,"indices":{"dtype":"i64","dims":[3,9]},"combine":"max","base":true,"from_end":true,"missing":true}"#;
        let scatter: ScatterDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&scatter).unwrap(), json);
        let names: Vec<_> = scatter.slots().iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["base", "source", "indices", "y", "missing"]);
        assert_eq!(scatter.slots()[1].desc, dense(DType::I8, &[3, 9]));
        assert_eq!(scatter.slots()[0].in_place, Some(scatter.slots()[3].position));
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |y: TensorDesc, axis, dtype, dims: &[u64], combine| {
            ScatterDescriptor::new(y, axis, dense(dtype, dims), combine).expect_err("a refusal").to_string()
        };
        let y = dense(DType::F32, &[4, 5]);
        let twice = TensorDesc::strided(DType::F32, &[4, 5], &[0, 1]).unwrap();
        for (refusal, expected) in [
            (of(y, 2, DType::I32, &[4, 5], Combine::Set), "axis: must be below the rank of y, 2; got 2"),
            (of(y, 0, DType::F32, &[4, 5], Combine::Set), "indices: must be i64, i32 or u32, got f32"),
            (of(y, 0, DType::I32, &[9, 6], Combine::Set), "extents of at most its [4, 5]; got [9, 6]"),
            (of(twice, 0, DType::I32, &[9, 5], Combine::Add), "strides [0, 1] of [4, 5] write an element twice"),
            (
                of(dense(DType::Bool, &[4, 5]), 0, DType::I32, &[9, 5], Combine::Add),
                "combine: add takes f64, f32, f16, bf16 and integers, y is bool",
            ),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
        let set = ScatterDescriptor::new(y, 0, dense(DType::I32, &[9, 5]), Combine::Set).unwrap();
        let refusal = set.gradients(&["y"], &["source"]).unwrap_err().to_string();
        assert!(refusal.contains("except for this way of combining: add"), "{refusal}");
    }
}
