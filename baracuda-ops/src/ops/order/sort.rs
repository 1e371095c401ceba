//! Elements along an axis in order of their values, and where each comes from.
//!
//! `values[k, i] = x[k, indices[k, i]]`, where `i` is a position along the axis and `k` one of the others. `indices[k, ..]` is the order of the line that the
//! [family](super) describes: it rises, or [falls](SortDescriptor::descending).
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | f64, f32, f16, bf16, i64, i32, u32, u8, i8, bool | in | always |
//! | `values` | that of x | that of x | out | `values` |
//! | `indices` | that of x | i64, i32 or u32 | out | `indices` |
//!
//! Units: indices are positions along the axis, from 0 on. A tensor of rank 0 has one element and, as in PyTorch, an axis 0.
//!
//! Layout and aliasing: any strides, 0 for x. Outputs are dense unless [`layout`](SortDescriptor::layout) says otherwise. The outputs overlap nothing.
//!
//! Accumulation: none. Equal elements keep the order in which they are in x, in both directions, so that results are the same bits everywhere.
//!
//! NaN, infinity, empty: NaN is above infinity, whatever its sign and payload, which stay: it is last in a rising order and first in a falling one. 0 and -0 are
//! equal, and keep their signs. Of bool every byte but 0 is true. Without elements nothing is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout. On GPUs an axis has at most 2^32 - 1
//! positions, through wgpu 2^31.
//!
//! Source: names and rules are those of PyTorch's `sort` with `stable=True`.
//!
//! Kernels: those of the [family](super).

#[cfg(feature = "cuda")]
use super::cuda;
#[cfg(feature = "wgpu")]
use super::wgpu;
use super::{Order, Written, cpu, derive, forward};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operands::args;
use crate::ops::fields::{below_rank, relay};
use crate::ops::valid::{Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

fields! {
    /// The fields.
    Fields: Fields<Kind = (), Derived = Order> + normalise {
        x: TensorDesc,
        axis: usize,
        descending: bool = default,
        values: bool = default,
        /// The type of the indices, if they are written.
        indices: Option<DType> = default,
    }
}

impl Fields {
    fn of(x: TensorDesc, axis: usize, values: bool, indices: Option<DType>) -> Self {
        Self { values, indices, ..Self::minimal(x, axis) }
    }

    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Order> {
        let Self { x, axis, descending, values, indices, .. } = self;
        below_rank(op, "x", x, *axis)?;
        let written = Written { values: *values, indices: *indices };
        super::declare(op, (x, *axis), (super::length(x, *axis), *descending), written, slots)
    }
}

descriptor! {
    /// Elements along an axis in order. See the [operands and rules](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, SortArgs, SortDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let plan = Plan::new(&device, SortDescriptor::new(x, 1)?.with_indices()?, &PlanOptions::default())?;
    /// let (x, mut values, mut indices) = ([3f32, 1.0, 2.0, 5.0, 5.0, 4.0], [0f32; 6], [0i64; 6]);
    /// let args = SortArgs::new(Mem::host(&x)).values(MemMut::host(&mut values)).indices(MemMut::host(&mut indices));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]);
    /// assert_eq!(indices, [1, 2, 0, 2, 0, 1]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    SortDescriptor(Fields): "sort", ();
    args: SortArgs of forward;
    plan: SortPlan;
    kernels: kernels!(
        cuda: {
            "few" => cuda::few, "groups" => cuda::groups, "tiles" => cuda::tiles, "radix" => cuda::radix, "merge" => cuda::merge
        };
        wgpu: {"tiles" => wgpu::tiles, "merge" => wgpu::merge};
        cpu: cpu::accept
    );
    gradients: ["values"] => ["x"], |forward, derivation| {
        let Fields { x, axis, descending, .. } = forward.0.fields;
        let positions = || {
            let sort = SortDescriptor::argsort(x, axis)?;
            if descending { sort.descending() } else { Ok(sort) }
        };
        derive(&forward.0.slots, axis, positions, derivation)
    };
    /// The elements along an axis, from the least to the greatest.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, or if x is of a type that is stored and cast only.
    fn new(x: TensorDesc, axis: usize) = Fields::of(x, axis, true, None);
    /// The positions of the elements along an axis alone, as i64, from that of the least to that of the greatest.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn argsort(x: TensorDesc, axis: usize) = Fields::of(x, axis, false, Some(DType::I64));
}

shared_steps! { SortDescriptor: layout }

steps! { SortDescriptor
    /// From the greatest to the least. Equal elements keep the order in which they are in x.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    descending() = |it| it.with(|fields| fields.descending = true);
    /// Writes the elements.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    with_values() = |it| it.with(|fields| fields.values = true);
    /// Writes from which position each element comes, as i64.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    with_indices() = |it| it.with(|fields| fields.indices = Some(DType::I64));
    /// As [`with_indices`](Self::with_indices), of another type: i32 or u32.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is none of these, or if it has no room for the positions of the axis.
    indices(dtype: DType) = |it| it.with(|fields| fields.indices = Some(dtype));
}

args! {
    /// Operands of [`SortDescriptor`]; their shapes and types are in the [table](self).
    SortArgs of forward {
        /// The operand that is always there.
        new(x);
        values(values);
        indices(indices);
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
        let sort = SortDescriptor::new(dense(DType::F32, &[2, 3]), 1).unwrap();
        let json = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":1,"values":true}"#;
        assert_eq!(serde_json::to_string(&sort).unwrap(), json);
        assert_eq!(sort, sort.clone().with_values().unwrap());
        let json = r#"{"x":{"dtype":"i8","dims":[4]},"axis":0,"descending":true,"indices":"u32"}"#;
        let argsort: SortDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&argsort).unwrap(), json);
        assert_eq!(argsort.slots().len(), 2);
        assert_eq!(argsort.slots()[1].desc, dense(DType::U32, &[4]));
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |dtype, axis| SortDescriptor::new(dense(dtype, &[2, 3]), axis);
        let rule = |made: Result<SortDescriptor>| made.expect_err("a refusal").to_string();
        let nothing = serde_json::from_str::<SortDescriptor>(r#"{"x":{"dtype":"f32","dims":[4]},"axis":0}"#);
        for (refusal, expected) in [
            (rule(of(DType::F32, 2)), "axis: must be below the rank of x, 2; got 2"),
            (rule(of(DType::F8E5M2, 1)), "x: f8e5m2 is stored and cast only"),
            (rule(of(DType::I8, 1).unwrap().indices(DType::U8)), "indices: must be i64, i32 or u32, got u8"),
            (nothing.expect_err("a refusal").to_string(), "values: or indices must be asked for"),
        ] {
            assert!(refusal.contains(expected), "{refusal}");
        }
        let long = TensorDesc::strided(DType::F32, &[(1 << 31) + 1], &[0]).unwrap();
        let refused = rule(SortDescriptor::new(long, 0).unwrap().indices(DType::I32));
        assert!(refused.contains("at most 2147483647, the axis has 2147483649 positions"), "{refused}");
        assert!(SortDescriptor::argsort(dense(DType::F32, &[]), 0).is_ok());
    }

    #[test]
    fn gradients_go_where_the_elements_came_from() {
        let names = |sort: SortDescriptor| -> Vec<&'static str> {
            let steps = sort.gradients(&["values"], &["x"]).unwrap();
            steps.iter().map(|step| step.descriptor.name()).collect()
        };
        let sort = SortDescriptor::new(dense(DType::F32, &[2, 3]), 1).unwrap();
        assert_eq!(names(sort.clone()), ["sort", "scatter"]);
        assert_eq!(names(sort.with_indices().unwrap()), ["scatter"]);
    }
}
