//! Where the elements lie that are not 0, in row-major order.
//!
//! `indices[i]` is the number in row-major order of the i-th element of x that is not 0; [`per_axis`](NonzeroDescriptor::per_axis) writes its position along each
//! extent in its place, `indices[i, a]`. Behind the last of them the indices are [`fill`](NonzeroDescriptor::fill).
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | any | in | always |
//! | `indices` | \[size\], with `per_axis` \[size, rank of x\] | i64, i32 or u32 | out | always |
//! | `count` | scalar | i64 or u32 | out | `count` |
//!
//! Units: positions are from 0 on. The size is the number of elements of x unless [`size`](NonzeroDescriptor::size) says another: with fewer rows the first
//! positions are written. The count is that of all elements that are not 0, whatever the size.
//!
//! Layout and aliasing: any strides, 0 for x. The indices are dense unless [`layout`](NonzeroDescriptor::layout) says otherwise, and overlap nothing.
//!
//! Accumulation: whole numbers, so that results are the same bits everywhere.
//!
//! Gradients: none, since positions have none.
//!
//! NaN, infinity, empty: 0 and -0 are 0, NaN is not. Of bool every byte but 0 is true. If x is empty the count is 0 and every index the fill.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout. On CUDA x has fewer than 2^39 elements, and
//! through wgpu fewer than 2^31.
//!
//! Source: `torch.nonzero` and `numpy.argwhere`, whose order this is, `torch.nonzero_static` and `jax.numpy.nonzero`, which have a size and a fill. The default of the fill, -1,
//! is that of PyTorch, and no position for [`index_select`](super::lookup), which gives its own fill for it.
//!
//! Kernels: each form reads x twice. First shares of it are counted; then every share knows from the counts before it where its positions begin. On CUDA
//! `csrc/index/nonzero.cu`, through wgpu `csrc/index/nonzero_count.wgsl` and `csrc/index/nonzero.wgsl`, on the CPU in `cpu.rs`.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{relay, require};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::ops::walk::Walk;
use crate::slots::SlotsBuilder;
use crate::tensor::{MAX_RANK, TensorDesc};

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;

operands! { $
    /// The operands.
    mod forward {
        X x: In, always => "Whose elements are looked at.";
        INDICES indices: Out, always => "Where those lie that are not 0.";
        COUNT count: Out, if count => "How many are not 0.", step "Where the number of elements goes that are not 0.";
    }
}

fields! {
    /// The fields. The indices are of i64 if no type is named, and their fill is -1 if there is none.
    Fields: Fields<Kind = (), Derived = Nonzero> + normalise {
        x: TensorDesc,
        per_axis: bool = default,
        indices: Option<DType> = default,
        size: Option<u64> = default,
        fill: Option<i64> = default,
        count: Option<DType> = default,
    }
}

type Valid = valid::Valid<Fields>;

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Nonzero {
    /// x, and bytes that lie as its elements would if it were dense.
    x: TensorDesc,
    row_major: TensorDesc,
    /// The bits of an element that are all 0 where it is.
    mask: u64,
    /// Rows that are written; none if the indices have no elements.
    rows: u64,
    /// The stride of the indices from row to row, and from a position along one extent to that along the next.
    row: u64,
    column: u64,
    /// The bits of the fill in the type of the indices.
    fill: u64,
}

impl Nonzero {
    /// The elements of x in row-major order.
    fn walk(&self) -> Walk {
        Walk::new(&[self.row_major, self.x])
    }
}

/// The bits of an element that tell it from 0.
fn mask(dtype: DType) -> u64 {
    let bits = 8 * dtype.size_bytes();
    u64::MAX >> (64 - bits) >> u32::from(dtype.is_float())
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        self.indices = self.indices.filter(|&dtype| dtype != DType::I64);
        self.size = self.size.filter(|&size| size != self.x.elements());
        self.fill = self.fill.filter(|&fill| fill != -1);
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Nonzero> {
        let Self { x, per_axis, indices, size, fill, count, .. } = self;
        let dtype = indices.unwrap_or(DType::I64);
        let (least, most) = match dtype {
            DType::I64 => (i64::MIN, i64::MAX),
            DType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DType::U32 => (0, u32::MAX.into()),
            _ => {
                let rule = format!("must be i64, i32 or u32, got {dtype}");
                return Err(Error::InvalidDescriptor { op, field: "indices", rule });
            }
        };
        let positions = if *per_axis { x.dims().iter().copied().max().unwrap_or(1) } else { x.elements() };
        require(op, "indices", positions <= most.unsigned_abs().saturating_add(1), || {
            format!(
                "of {dtype} are at most {most}, of {positions} positions the last is {}; i64 has room",
                positions - 1
            )
        })?;
        let fill = fill.unwrap_or(-1);
        require(op, "fill", fill == -1 || (least..=most).contains(&fill), || {
            format!("must be a number of {dtype}, from {least} to {most}, or -1, all of whose bits are 1; got {fill}")
        })?;
        if let Some(dtype) = *count {
            require(op, "count", matches!(dtype, DType::I64 | DType::U32), || {
                format!("must be i64 or u32, got {dtype}")
            })?;
            require(op, "count", dtype == DType::I64 || x.elements() <= u32::MAX.into(), || {
                format!("of u32 is at most {}, there are {} elements; i64 has room", u32::MAX, x.elements())
            })?;
        }
        let rank = x.rank() as u64;
        let rows = size.unwrap_or(x.elements());
        let dims = if *per_axis { vec![rows, rank] } else { vec![rows] };
        slots.declare(forward::X, *x)?;
        let default = slots.derived(forward::INDICES, TensorDesc::contiguous(dtype, &dims))?;
        let indices = slots.declare(forward::INDICES, default)?;
        if let Some(dtype) = *count {
            slots.declare(forward::COUNT, TensorDesc::contiguous(dtype, &[])?)?;
        }
        let strides = indices.strides();
        Ok(Nonzero {
            x: *x,
            row_major: TensorDesc::contiguous(DType::U8, x.dims())?,
            mask: mask(x.dtype()),
            rows: if indices.is_empty() { 0 } else { rows },
            row: strides[0],
            column: strides.get(1).copied().unwrap_or(0),
            fill: fill.cast_unsigned() & (u64::MAX >> (64 - 8 * dtype.size_bytes())),
        })
    }
}

descriptor! {
    /// Where the elements of a tensor lie that are not 0. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, NonzeroArgs, NonzeroDescriptor, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let nonzero = NonzeroDescriptor::new(x)?.per_axis()?.size(4)?.count(DType::I64)?;
    /// let plan = Plan::new(&device, nonzero, &PlanOptions::default())?;
    /// let (x, mut indices, mut count) = ([0f32, 1.0, 0.0, f32::NAN, -0.0, 2.0], [0i64; 8], [0i64]);
    /// let args = NonzeroArgs::new(Mem::host(&x), MemMut::host(&mut indices)).count(MemMut::host(&mut count));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!((indices, count), ([0, 1, 1, 0, 1, 2, -1, -1], [3]));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    NonzeroDescriptor(Fields): "nonzero", ();
    args: NonzeroArgs of forward;
    plan: NonzeroPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept);
    /// The numbers in row-major order of the elements that are not 0, as i64, with room for all elements.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the indices would have more than `i64::MAX` bytes.
    fn new(x: TensorDesc) = Fields::minimal(x);
    /// As [`new`](Self::new), with room for the first `size` of them, which may have no bound by the elements.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn of_size(x: TensorDesc, size: u64) = Fields { size: Some(size), ..Fields::minimal(x) };
}

shared_steps! { NonzeroDescriptor: layout }

steps! { NonzeroDescriptor
    /// Writes the position along each extent in the place of the number.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the indices would have more than `i64::MAX` bytes.
    per_axis() = |it| it.with(|fields| fields.per_axis = true);
    /// The type of the indices: i64, which it is unless it is said, i32 or u32.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is none of these, or if it has no room for the positions or the fill.
    indices(dtype: DType) = |it| it.with(|fields| fields.indices = Some(dtype));
    /// How many rows of the indices are written: those of the first elements that are not 0, and behind the last of them the fill.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the indices would have more than `i64::MAX` bytes.
    size(rows: u64) = |it| it.with(|fields| fields.size = Some(rows));
    /// What the indices are where no element is left, -1 unless it is said. Of u32 -1 is the greatest number.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type of the indices has no such number.
    fill(value: i64) = |it| it.with(|fields| fields.fill = Some(value));
    /// Writes how many elements are not 0, whatever the size, as i64 or u32.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is none of these, or if x has more elements than it counts.
    count(dtype: DType) = |it| it.with(|fields| fields.count = Some(dtype));
}

args! {
    /// Operands of [`NonzeroDescriptor`]; their shapes and types are in the [table](self).
    NonzeroArgs of forward {
        /// The operands that are always there.
        new(x, indices);
        count(count);
    }
}

/// Positions of an element along the extents of x, of elements whose numbers rise.
#[derive(Clone, Copy)]
struct Positions {
    along: [u64; MAX_RANK],
    /// The number of the first element of the same line along the last extent.
    line: u64,
}

impl Positions {
    /// Before the first element.
    const NONE: Self = Self { along: [0; MAX_RANK], line: u64::MAX };

    /// Goes to an element of extents `dims`, none of which is 0.
    fn go_to(&mut self, dims: &[u64], number: u64) {
        let Some((&last, outer)) = dims.split_last() else { return };
        let at = dims.len() - 1;
        if let Some(position) = number.checked_sub(self.line).filter(|&position| position < last) {
            self.along[at] = position;
            return;
        }
        let mut rest = number / last;
        self.along[at] = number % last;
        self.line = number - self.along[at];
        for (position, &dim) in self.along.iter_mut().zip(outer).rev() {
            (*position, rest) = (rest % dim, rest / dim);
        }
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
        let nonzero = NonzeroDescriptor::new(dense(DType::F32, &[2, 3])).unwrap();
        let same = nonzero.clone().indices(DType::I64).unwrap().size(6).unwrap().fill(-1).unwrap();
        assert_eq!(nonzero, same);
        let json = r#"{"x":{"dtype":"f32","dims":[2,3]}}"#;
        assert_eq!(serde_json::to_string(&nonzero).unwrap(), json);
        assert_eq!(nonzero.slots()[1].desc, dense(DType::I64, &[6]));
        let json =
            r#"{"x":{"dtype":"bool","dims":[4,5,2]},"per_axis":true,"indices":"u32","size":7,"fill":4,"count":"i64"}"#;
        let nonzero: NonzeroDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&nonzero).unwrap(), json);
        assert_eq!(nonzero.slots()[1].desc, dense(DType::U32, &[7, 3]));
        assert_eq!(nonzero.slots()[2].desc, dense(DType::I64, &[]));
        assert_eq!(nonzero.gradients_all(), Err(Error::NoBackward { op: "nonzero" }));
    }

    #[test]
    fn masks_leave_the_sign_of_numbers_out() {
        assert_eq!(mask(DType::F64), u64::MAX >> 1);
        assert_eq!(mask(DType::BF16), 0x7fff);
        assert_eq!([mask(DType::I8), mask(DType::Bool), mask(DType::F8E5M2)], [0xff, 0xff, 0x7f]);
        assert_eq!([mask(DType::I64), mask(DType::U32)], [u64::MAX, 0xffff_ffff]);
    }

    #[test]
    fn positions_are_those_of_the_numbers() {
        let (dims, mut positions) = ([3, 1, 4, 5], Positions::NONE);
        for number in (0..60).step_by(3).chain([58, 59]) {
            positions.go_to(&dims, number);
            assert_eq!(positions.along[..4], [number / 20, 0, number / 5 % 4, number % 5], "{number}");
        }
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |dims: &[u64]| NonzeroDescriptor::of_size(dense(DType::U8, dims), 1).unwrap();
        let rule = |made: Result<NonzeroDescriptor>| made.expect_err("a refusal").to_string();
        for (refusal, expected) in [
            (rule(of(&[3]).indices(DType::U8)), "indices: must be i64, i32 or u32, got u8"),
            (
                rule(of(&[2, 1 << 31]).indices(DType::I32)),
                "indices: of i32 are at most 2147483647, of 4294967296 positions the last is 4294967295",
            ),
            (
                rule(of(&[3]).indices(DType::U32).unwrap().fill(-2)),
                "fill: must be a number of u32, from 0 to 4294967295, or -1",
            ),
            (rule(of(&[3]).fill(1 << 31).unwrap().indices(DType::I32)), "got 2147483648"),
            (rule(of(&[3]).count(DType::I32)), "count: must be i64 or u32, got i32"),
            (
                rule(of(&[1 << 33]).count(DType::U32)),
                "count: of u32 is at most 4294967295, there are 8589934592 elements",
            ),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
        assert!(of(&[2, 1 << 31]).per_axis().unwrap().indices(DType::I32).is_ok());
        assert!(of(&[2, 1 << 31]).indices(DType::U32).is_ok());
    }
}
