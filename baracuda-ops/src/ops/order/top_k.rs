//! The k greatest or least elements along an axis, in order, and where each comes from.
//!
//! `values[k, i] = x[k, indices[k, i]]`, where `i` is a position below k along the axis and `k` one of the others. `indices[k, ..]` are the first k positions of the
//! falling order that the [family](super) describes, or with [`least`](TopKDescriptor::least) of the rising one.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | f64, f32, f16, bf16, i64, i32, u32, u8, i8, bool | in | always |
//! | `values` | that of x with k as the extent of the axis | that of x | out | `values` |
//! | `indices` | that of values | i64, i32 or u32 | out | `indices` |
//!
//! Units: indices are positions along the axis, from 0 on. A tensor of rank 0 has one element and, as in PyTorch, an axis 0; its k is 1.
//!
//! Layout and aliasing: any strides, 0 for x. Outputs are dense unless [`layout`](TopKDescriptor::layout) says otherwise. The outputs overlap nothing.
//!
//! Accumulation: none. Of equal elements those of the least positions are taken and come first, so that results are the same bits everywhere.
//!
//! NaN, infinity, empty: NaN is above infinity, whatever its sign and payload, which stay: it is among the greatest. 0 and -0 are equal, and keep their signs. Of bool every
//! byte but 0 is true. If k is 0, or without other elements, nothing is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout. On GPUs an axis has at most 2^32 - 1
//! positions, through wgpu 2^31.
//!
//! Source: names and shapes are those of PyTorch's `topk`, which leaves open which of equal elements it takes. That the k-th key is found bit by bit: M. Blum and others,
//! "Time Bounds for Selection", 1973, for the problem; T. Alabi and others, "Fast k-selection algorithms for graphics processing units", 2012, for the method.
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
use crate::ops::fields::{below_rank, relay, require};
use crate::ops::valid::{Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

fields! {
    /// The fields.
    Fields: Fields<Kind = (), Derived = Order> + normalise {
        x: TensorDesc,
        axis: usize,
        k: u64,
        least: bool = default,
        values: bool = default,
        /// The type of the indices, if they are written.
        indices: Option<DType> = default,
    }
}

impl Fields {
    fn of(x: TensorDesc, axis: usize, k: u64, indices: Option<DType>) -> Self {
        Self { values: indices.is_none(), indices, ..Self::minimal(x, axis, k) }
    }

    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Order> {
        let Self { x, axis, k, least, values, indices, .. } = self;
        below_rank(op, "x", x, *axis)?;
        let length = super::length(x, *axis);
        require(op, "k", *k <= length, || format!("must be at most the extent of axis {axis}, {length}; got {k}"))?;
        require(op, "k", *k == 1 || x.rank() > 0, || {
            format!("must be 1 of a tensor of rank 0, which has one element and no extents; got {k}")
        })?;
        let written = Written { values: *values, indices: *indices };
        super::declare(op, (x, *axis), (*k, !*least), written, slots)
    }
}

descriptor! {
    /// The k greatest or least elements along an axis, in order. See the [operands and rules](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, TensorDesc, TopKArgs, TopKDescriptor, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let plan = Plan::new(&device, TopKDescriptor::new(x, 1, 2)?.with_indices()?, &PlanOptions::default())?;
    /// let (x, mut values, mut indices) = ([3f32, 1.0, 2.0, 5.0, 5.0, 4.0], [0f32; 4], [0i64; 4]);
    /// let args = TopKArgs::new(Mem::host(&x)).values(MemMut::host(&mut values)).indices(MemMut::host(&mut indices));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(values, [3.0, 2.0, 5.0, 5.0]);
    /// assert_eq!(indices, [0, 2, 0, 1]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    TopKDescriptor(Fields): "top_k", ();
    args: TopKArgs of forward;
    plan: TopKPlan;
    kernels: kernels!(
        cuda: {
            "few" => cuda::few, "groups" => cuda::groups, "tiles" => cuda::tiles, "radix" => cuda::radix, "merge" => cuda::merge
        };
        wgpu: {"tiles" => wgpu::tiles, "merge" => wgpu::merge};
        cpu: cpu::accept
    );
    gradients: ["values"] => ["x"], |forward, derivation| {
        let Fields { x, axis, k, least, .. } = forward.0.fields;
        let positions = || {
            let top = TopKDescriptor::positions(x, axis, k)?;
            if least { top.least() } else { Ok(top) }
        };
        derive(&forward.0.slots, axis, positions, derivation)
    };
    /// The k greatest elements along an axis, from the greatest on.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, if it has fewer than k positions, or if x is of a type that is stored and cast only.
    fn new(x: TensorDesc, axis: usize, k: u64) = Fields::of(x, axis, k, None);
    /// The positions of the k greatest elements along an axis alone, as i64.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn positions(x: TensorDesc, axis: usize, k: u64) = Fields::of(x, axis, k, Some(DType::I64));
}

shared_steps! { TopKDescriptor: layout }

steps! { TopKDescriptor
    /// The k least elements, from the least on.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    least() = |it| it.with(|fields| fields.least = true);
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
    /// Operands of [`TopKDescriptor`]; their shapes and types are in the [table](self).
    TopKArgs of forward {
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
        let greatest = TopKDescriptor::new(dense(DType::F32, &[2, 30]), 1, 4).unwrap();
        let json = r#"{"x":{"dtype":"f32","dims":[2,30]},"axis":1,"k":4,"values":true}"#;
        assert_eq!(serde_json::to_string(&greatest).unwrap(), json);
        assert_eq!(greatest.slots()[1].desc, dense(DType::F32, &[2, 4]));
        let json = r#"{"x":{"dtype":"u8","dims":[5,4]},"axis":0,"k":5,"least":true,"indices":"i32"}"#;
        let least: TopKDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&least).unwrap(), json);
        assert_eq!(least.slots()[1].desc, dense(DType::I32, &[5, 4]));
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |dims: &[u64], axis, k| TopKDescriptor::new(dense(DType::F32, dims), axis, k);
        let rule = |made: Result<TopKDescriptor>| made.expect_err("a refusal").to_string();
        for (refusal, expected) in [
            (rule(of(&[2, 3], 2, 1)), "axis: must be below the rank of x, 2; got 2"),
            (rule(of(&[2, 3], 1, 4)), "k: must be at most the extent of axis 1, 3; got 4"),
            (rule(of(&[], 0, 0)), "k: must be 1 of a tensor of rank 0"),
            (rule(of(&[], 0, 2)), "k: must be at most the extent of axis 0, 1; got 2"),
            (rule(of(&[2, 3], 1, 1).unwrap().indices(DType::F32)), "indices: must be i64, i32 or u32, got f32"),
        ] {
            assert!(refusal.contains(expected), "{refusal}");
        }
        assert!(of(&[2, 3], 1, 0).is_ok() && of(&[2, 3], 0, 2).is_ok() && of(&[], 0, 1).is_ok());
    }
}
