//! Where values belong among sorted ones: the positions at which they could be inserted so that these stay sorted.
//!
//! `indices[k, i]` is the number of elements of `sorted[k, ..]` that are less than `values[k, i]`, or with [`right`](SearchSortedDescriptor::right) the number of those
//! that are at most as great, where `i` is a position along the last extent and `k` one of the others. Where sorted has rank 1 all values are sought in it, whatever
//! their extents, as in bucketize, whose boundaries it has.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `sorted` | rank 1; or the rank of values, with any last extent, and before it the extents of values or 1 | f64, f32, f16, bf16, i64, i32, u32, u8, i8, bool | in | always |
//! | `values` | any, rank 0 to 8 | that of sorted | in | always |
//! | `indices` | that of values | i64, i32 or u32 | out | always |
//!
//! Units: indices are positions along the last extent of sorted, from 0 to its extent.
//!
//! Layout and aliasing: any strides, 0 for sorted and values. The indices are dense unless [`layout`](SearchSortedDescriptor::layout) says otherwise, and overlap
//! nothing.
//!
//! Accumulation: none. The order is that of [`sort`](super::sort), so that what it makes can be searched.
//!
//! Gradients: none, since positions have none.
//!
//! NaN, infinity, empty: NaN is above every number, whatever its sign and payload, and equal to itself. 0 and -0 are equal. Of bool every byte but 0 is true. Without
//! elements of sorted every index is 0. If sorted rises nowhere else than it should, results are as above; of others each index is a position from 0 to the
//! extent, and nothing outside of sorted is read.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: `torch.searchsorted` and `torch.bucketize`, whose shapes these are, and `numpy.searchsorted`, whose order is this one. PyTorch's `sorter` is a step before it:
//! [`gather`](crate::ops::index::lookup) brings the elements in order.
//!
//! Kernels: `csrc/order/search_sorted.cu`, `csrc/order/search_sorted.wgsl`, and on the CPU one in `cpu.rs`. Each bisects all positions, in as many steps for every value, so that
//! several values are sought side by side.

use super::geometry::Keys;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{relay, require};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;

operands! { $
    /// The operands.
    mod forward {
        SORTED sorted: In, always => "What values are sought in.";
        VALUES values: In, always => "What is sought.";
        INDICES indices: Out, always => "Where each value could be inserted.";
    }
}

fields! {
    /// The fields. The indices are of i64 if no type is named.
    Fields: Fields<Kind = (), Derived = Search> + normalise {
        sorted: TensorDesc,
        values: TensorDesc,
        right: bool = default,
        indices: Option<DType> = default,
    }
}

type Valid = valid::Valid<Fields>;

/// The operands of a [`Search`] in the order of [`Search::operands`].
const INDICES: usize = 0;
const VALUES: usize = 1;
const LINES: usize = 2;

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Search {
    /// Elements of a line of sorted, and the stride from one to the next.
    length: u64,
    step: u64,
    is_right: bool,
    /// The indices, the values, and the first element of the line in which each value is sought.
    operands: [TensorDesc; 3],
}

impl Search {
    fn keys(&self) -> Keys {
        Keys::of(self.operands[VALUES].dtype(), false)
    }
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        self.indices = self.indices.filter(|&dtype| dtype != DType::I64);
        relay(op, &mut self.layouts, [("sorted", &mut self.sorted), ("values", &mut self.values)])
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Search> {
        let Self { sorted, values, right, indices, .. } = self;
        let (dtype, of_indices) = (sorted.dtype(), indices.unwrap_or(DType::I64));
        require(op, "sorted", dtype.is_computed() || dtype.is_integer() || dtype == DType::Bool, || {
            format!("{dtype} is stored and cast only; cast it first, with a program of pointwise")
        })?;
        require(op, "values", values.dtype() == dtype, || {
            format!("must be of the type of sorted, {dtype}; got {}", values.dtype())
        })?;
        let Some((&length, before)) = sorted.dims().split_last() else {
            let rule = "must have an extent along which it is sorted; got rank 0".into();
            return Err(Error::InvalidDescriptor { op, field: "sorted", rule });
        };
        let of_values = values.dims().split_last().map_or(&[][..], |(_, before)| before);
        let fits = |(&own, &wanted): (&u64, &u64)| own == wanted || own == 1;
        let is_beside = sorted.rank() == values.rank() && before.iter().zip(of_values).all(fits);
        require(op, "sorted", sorted.rank() == 1 || is_beside, || {
            format!(
                "must have rank 1, or the rank of values and before the last extent the extents of values or 1; got {:?}, values of {:?}",
                sorted.dims(),
                values.dims()
            )
        })?;
        let most = match of_indices {
            DType::I64 => u64::MAX,
            DType::I32 => i32::MAX.unsigned_abs().into(),
            DType::U32 => u32::MAX.into(),
            _ => {
                let rule = format!("must be i64, i32 or u32, got {of_indices}");
                return Err(Error::InvalidDescriptor { op, field: "indices", rule });
            }
        };
        require(op, "indices", length <= most, || {
            format!(
                "of {of_indices} are at most {most}, behind the last of {length} elements is {length}; i64 has room"
            )
        })?;
        slots.declare(forward::SORTED, *sorted)?;
        slots.declare(forward::VALUES, *values)?;
        let indices = slots.derived(forward::INDICES, TensorDesc::contiguous(of_indices, values.dims()))?;
        let indices = slots.declare(forward::INDICES, indices)?;
        let mut strides = vec![0; values.rank()];
        if is_beside {
            for ((to, &extent), &stride) in strides.iter_mut().zip(before).zip(sorted.strides()) {
                *to = if extent == 1 { 0 } else { stride };
            }
        }
        let lines = TensorDesc::strided(dtype, values.dims(), &strides)?;
        let step = sorted.strides().last().copied().unwrap_or(1);
        Ok(Search { length, step, is_right: *right, operands: [indices, *values, lines] })
    }
}

descriptor! {
    /// The positions at which values could be inserted among sorted ones. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, SearchSortedArgs, SearchSortedDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let boundaries = TensorDesc::contiguous(DType::F32, &[3])?;
    /// let values = TensorDesc::contiguous(DType::F32, &[5])?;
    /// let search = SearchSortedDescriptor::new(boundaries, values)?.right()?;
    /// let plan = Plan::new(&device, search, &PlanOptions::default())?;
    /// let (boundaries, values, mut bins) = ([0f32, 1.0, 2.0], [-0.5f32, 0.0, 1.5, 2.0, f32::NAN], [9i64; 5]);
    /// let args = SearchSortedArgs::new(Mem::host(&boundaries), Mem::host(&values), MemMut::host(&mut bins));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(bins, [0, 1, 2, 3, 3]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    SearchSortedDescriptor(Fields): "search_sorted", ();
    args: SearchSortedArgs of forward;
    plan: SearchSortedPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept);
    /// The position of the first element that is at least as great as each value, as i64.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if sorted has rank 0, if it has a rank above 1 and other extents than values before the last, if the types differ, or are
    /// stored and cast only.
    fn new(sorted: TensorDesc, values: TensorDesc) = Fields::minimal(sorted, values);
}

shared_steps! { SearchSortedDescriptor: layout }

steps! { SearchSortedDescriptor
    /// The position of the first element that is greater than each value: behind those that equal it.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    right() = |it| it.with(|fields| fields.right = true);
    /// The type of the indices: i64, which it is unless it is said, i32 or u32.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is none of these, or if it has no room for the position behind the last element.
    indices(dtype: DType) = |it| it.with(|fields| fields.indices = Some(dtype));
}

args! {
    /// Operands of [`SearchSortedDescriptor`]; their shapes and types are in the [table](self).
    SearchSortedArgs of forward {
        /// The operands, which are always there.
        new(sorted, values, indices);
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
        let (sorted, values) = (dense(DType::F32, &[7]), dense(DType::F32, &[2, 3]));
        let search = SearchSortedDescriptor::new(sorted, values).unwrap();
        assert_eq!(search, search.clone().indices(DType::I64).unwrap());
        let json = r#"{"sorted":{"dtype":"f32","dims":[7]},"values":{"dtype":"f32","dims":[2,3]}}"#;
        assert_eq!(serde_json::to_string(&search).unwrap(), json);
        assert_eq!(search.slots()[2].desc, dense(DType::I64, &[2, 3]));
        let json = r#"{"sorted":{"dtype":"u8","dims":[1,7]},"values":{"dtype":"u8","dims":[2,3]},"right":true,"indices":"i32"}"#;
        let search: SearchSortedDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&search).unwrap(), json);
        assert_eq!(search.slots()[2].desc, dense(DType::I32, &[2, 3]));
        assert_eq!(search.gradients_all(), Err(Error::NoBackward { op: "search_sorted" }));
    }

    #[test]
    fn lines_are_those_of_the_values_or_one() {
        let strides = |sorted: &[u64], values: &[u64]| {
            let search = SearchSortedDescriptor::new(dense(DType::F32, sorted), dense(DType::F32, values)).unwrap();
            search.0.derived.operands[LINES].strides().to_vec()
        };
        assert_eq!(strides(&[7], &[2, 3]), [0, 0]);
        assert_eq!(strides(&[2, 7], &[2, 3]), [7, 0]);
        assert_eq!(strides(&[1, 2, 7], &[5, 2, 3]), [0, 7, 0]);
        assert_eq!(strides(&[7], &[3]), [0]);
        assert!(strides(&[7], &[]).is_empty());
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |sorted: &[u64], values: &[u64]| {
            SearchSortedDescriptor::new(dense(DType::F32, sorted), dense(DType::F32, values))
        };
        let rule = |made: Result<SearchSortedDescriptor>| made.expect_err("a refusal").to_string();
        let bytes = dense(DType::U8, &[1 << 31]);
        for (refusal, expected) in [
            (rule(of(&[], &[3])), "sorted: must have an extent along which it is sorted; got rank 0"),
            (rule(of(&[2, 7], &[3, 4])), "got [2, 7], values of [3, 4]"),
            (rule(of(&[2, 7], &[2, 3, 4])), "got [2, 7], values of [2, 3, 4]"),
            (rule(of(&[7], &[3]).unwrap().indices(DType::F32)), "indices: must be i64, i32 or u32, got f32"),
            (
                rule(SearchSortedDescriptor::new(bytes, bytes).unwrap().indices(DType::I32)),
                "indices: of i32 are at most 2147483647, behind the last of 2147483648 elements is 2147483648",
            ),
            (
                rule(SearchSortedDescriptor::new(dense(DType::F32, &[3]), dense(DType::F64, &[3]))),
                "values: must be of the type of sorted, f32; got f64",
            ),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
    }
}
