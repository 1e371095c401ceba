//! Sums, products, extremes and logarithms of sums of exponentials of all elements up to each one along an axis.
//!
//! `y[k, i] = x[k, 0] * x[k, 1] * .. * x[k, i]`, where `i` is a position along the axis, `k` one of the others, and `*` is how [`Scan`] combines values.
//! [Exclusive](ScanDescriptor::exclusive) scans leave out `x[k, i]` itself; [reverse](ScanDescriptor::reverse) ones begin at the axis' end.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | f64, f32, f16, bf16; but of logsumexp also i64, i32, u32, u8, i8, bool | in | always |
//! | `y` | that of x | `output`; by default that of x, of sums and products of integers i64 | out | always |
//! | `indices` | that of x | i64, i32 or u32 | out | `indices`, of max and min |
//!
//! Units: values are plain numbers; indices are positions along the axis, from 0 on.
//!
//! Types: f64 is combined in f64, other floating-point types in f32, and the result is rounded once to y's type. Integers are combined in i64; sums and products
//! wrap, in i64 or in a narrower type of y, whose value is the low bits. Of bool true is 1. Extremes have x's type. A tensor of rank 0 has one element and, as in
//! PyTorch, an axis 0.
//!
//! Layout and aliasing: any strides, 0 for x. Outputs are dense unless [`layout`](ScanDescriptor::layout) says otherwise. y may lie in the place of x if type
//! and layout are the same.
//!
//! Accumulation: values are combined in short chains, whose results are combined in trees and further chains, in an order that follows from the extent of the axis,
//! the type and the layout alone: results repeat bit for bit, and do not depend on timing or on the number of threads. What comes later in a scan has no
//! effect on an element.
//!
//! NaN, infinity, empty: sums, products and logarithms are NaN from the first NaN on, and extremes as well, whose index is that of the last NaN so far. Among
//! equal values, 0 and -0 among them, it is the last one, whose sign the result has. Infinities of both signs add up to NaN; the logarithm of a sum of exponentials is
//! infinite once an element is, and minus infinity as long as all are. Without elements nothing is written.
//!
//! Gradients: of sums the same scan in the other direction. Of products several steps, which are right where elements are 0. Of logsumexp steps with
//! logarithms of the gradients that are above and below 0, which read forward's result, or scan again for it if y is not of the type in which values are
//! combined; what arrives where a result is minus infinity, of which every term is 0, does not count. Max and min have none: it would be a
//! scatter of the gradients to the indices.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which type or layout.
//!
//! Source: names and rules are those of PyTorch's `cumsum`, `cumprod`, `cummax`, `cummin` and `logcumsumexp`; scans by trees: G. E. Blelloch, "Prefix Sums and
//! Their Applications", 1990.
//!
//! Kernels, in the order in which they are tried. On CUDA `scan_columns` (`csrc/scan/scan_columns.cu`) where elements of y are nearer to each other along another
//! axis, and `scan_rows` (`csrc/scan/scan_rows.cu`). Through wgpu the same two, both of them `csrc/scan/scan.wgsl`, with `csrc/scan/scan_pieces.wgsl` for long lines.
//! On the CPU `scan_fast`, in blocks (`fast.rs`), and the reference in `cpu.rs`.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{below_rank, relay, require};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::ops::samples::are_packed;
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
mod geometry;
mod gradients;
mod scans;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::Geometry;
pub use scans::Scan;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// The operands.
    mod forward {
        X x: In, always, in place y => "What is scanned.";
        Y y: Out, always => "The results.";
        INDICES indices: Out, if indices => "Where each result comes from, along the axis.", step "Where the indices go.";
    }
}

fields! {
    /// The fields. Without `output` the type of y is the default.
    Fields: Fields<Kind = (), Derived = Geometry> + normalise {
        x: TensorDesc,
        axis: usize,
        scan: Scan,
        reverse: bool = default,
        exclusive: bool = default,
        /// The type of the indices, if they are written.
        indices: Option<DType> = default,
        output: Option<DType> = default,
    }
}

type Valid = valid::Valid<Fields>;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Valid {
    /// Whether the samples, which the extents before the axis number, follow one another, so that how lines lie in a sample depends on no other.
    fn has_packed_samples(&self) -> bool {
        self.slots.iter().all(|slot| are_packed(&slot.desc, self.fields.axis))
    }
}

impl Fields {
    /// The type of y unless the fields say otherwise.
    fn default_output(&self) -> DType {
        let dtype = self.x.dtype();
        let is_computed = dtype.is_computed() || self.scan.combine().is_choice();
        if is_computed { dtype } else { DType::I64 }
    }

    /// A type that is the default is left out.
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])?;
        self.output = self.output.filter(|&output| output != self.default_output());
        Ok(())
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Geometry> {
        let Self { x, axis, scan, .. } = self;
        let (dtype, name) = (x.dtype(), scan.name());
        let is_integer = dtype.is_integer() || dtype == DType::Bool;
        require(op, "x", dtype.is_computed() || is_integer, || {
            format!("{dtype} is stored and cast only; cast it first, with a program of pointwise")
        })?;
        require(op, "x", *scan != Scan::LogSumExp || !is_integer, || {
            format!("must be f64, f32, f16 or bf16, of which {name} is; got {dtype}, cast it first")
        })?;
        below_rank(op, "x", x, *axis)?;
        let output = self.output(op)?;
        let length = x.dims().get(*axis).copied().unwrap_or(1);
        self.check_indices(op, length)?;
        slots.declare(forward::X, *x)?;
        let dense = |dtype| TensorDesc::contiguous(dtype, x.dims());
        let y = slots.declare(forward::Y, slots.derived(forward::Y, dense(output))?)?;
        let mut operands = vec![y, *x];
        if let Some(dtype) = self.indices {
            operands.push(slots.declare(forward::INDICES, slots.derived(forward::INDICES, dense(dtype))?)?);
        }
        let computing = if is_integer { DType::I64 } else { dtype.accumulator() };
        Geometry::new(&operands, *axis, computing)
    }

    /// The type of y.
    fn output(&self, op: &'static str) -> Result<DType> {
        let (default, dtype) = (self.default_output(), self.x.dtype());
        let output = self.output.unwrap_or(default);
        let (fits, rule) = if self.scan.combine().is_choice() {
            (output == dtype, "that of x, whose elements the results are")
        } else if dtype.is_computed() {
            (output.is_computed(), "f64, f32, f16 or bf16")
        } else {
            (matches!(output, DType::I64 | DType::I32 | DType::U32), "i64, i32 or u32")
        };
        require(op, "output", fits, || format!("of {} of {dtype} must be {rule}; got {output}", self.scan.name()))?;
        Ok(output)
    }

    fn check_indices(&self, op: &'static str, length: u64) -> Result<()> {
        let Some(dtype) = self.indices else { return Ok(()) };
        require(op, "indices", self.scan.combine().is_choice(), || {
            format!("are those of max and min; {} has none", self.scan.name())
        })?;
        require(op, "indices", !self.exclusive, || {
            "are not there of exclusive scans, of which the first has no element".into()
        })?;
        let most = match dtype {
            DType::I64 => u64::MAX,
            DType::I32 => i32::MAX.unsigned_abs().into(),
            DType::U32 => u32::MAX.into(),
            _ => return Err(invalid(op, "indices", format!("must be i64, i32 or u32, got {dtype}"))),
        };
        require(op, "indices", length == 0 || length - 1 <= most, || {
            format!("of {dtype} are at most {most}, the axis has {length} positions; i64 has room")
        })
    }
}

fn invalid(op: &'static str, field: &'static str, rule: String) -> Error {
    Error::InvalidDescriptor { op, field, rule }
}

descriptor! {
    /// A scan along an axis. See the [operands and rules](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, Scan, ScanArgs, ScanDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let plan = Plan::new(&device, ScanDescriptor::of(x, 1, Scan::Sum)?, &PlanOptions::default())?;
    /// let (x, mut sums) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0f32; 6]);
    /// let scratch = device.alloc(plan.workspace().bytes)?;
    /// plan.run(&mut device.queue(), ScanArgs::new(Mem::host(&x), MemMut::host(&mut sums)), Workspace::new(&scratch))?;
    /// assert_eq!(sums, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ScanDescriptor(Fields): "scan", ();
    args: ScanArgs of forward;
    plan: ScanPlan;
    kernels: kernels!(
        cuda: {"columns" => cuda::columns, "rows" => cuda::rows};
        wgpu: {"columns" => wgpu::columns, "rows" => wgpu::rows};
        cpu: cpu::accept;
        before: {"fast" => fast::accept}
    );
    gradients: ["y"] => ["x"], gradients::derive;
    /// A scan of a tensor along an axis, from its beginning, with the element itself.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, or if the scan does not take x's type.
    fn of(x: TensorDesc, axis: usize, scan: Scan) = Fields::minimal(x, axis, scan);
}

shared_steps! { ScanDescriptor: layout }

steps! { ScanDescriptor
    /// Begins at the end of the axis.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    reverse() = |it| it.with(|fields| fields.reverse = true);
    /// Leaves out each element's own value: the first result is that of no values.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] with indices.
    exclusive() = |it| it.with(|fields| fields.exclusive = true);
    /// Writes from which element each greatest or least value comes, as i64: the last one of equal values.
    ///
    /// ```
    /// use baracuda_ops::{DType, Descriptor, Scan, ScanDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 64])?;
    /// let greatest = ScanDescriptor::of(x, 1, Scan::Max)?.with_indices()?;
    /// assert_eq!(greatest.slots()[2].desc.dtype(), DType::I64);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the scan is neither max nor min, or is exclusive.
    with_indices() = |it| it.with(|fields| fields.indices = Some(DType::I64));
    /// As [`with_indices`](Self::with_indices), of another type: i32 or u32.
    ///
    /// # Errors
    /// As `with_indices`, and if the type has no room for the positions of the axis.
    indices(dtype: DType) = |it| it.with(|fields| fields.indices = Some(dtype));
    /// The type of y: another floating-point type than x's, or of sums and products of integers i32 or u32, which wrap.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is none of these.
    output(dtype: DType) = |it| it.with(|fields| fields.output = Some(dtype));
}

args! {
    /// Operands of [`ScanDescriptor`]; their shapes and types are in the [table](self).
    ScanArgs of forward {
        /// The operands that are always there.
        new(x, y);
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
        let sum = ScanDescriptor::of(dense(DType::F32, &[2, 3]), 1, Scan::Sum).unwrap();
        assert_eq!(sum, sum.clone().output(DType::F32).unwrap());
        let json = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":1,"scan":"sum"}"#;
        assert_eq!(serde_json::to_string(&sum).unwrap(), json);
        let of_bool = ScanDescriptor::of(dense(DType::Bool, &[2, 3]), 0, Scan::Sum).unwrap();
        assert_eq!(of_bool.slots()[1].desc.dtype(), DType::I64);
        assert_eq!(of_bool.output(DType::U32).unwrap().slots()[1].desc.dtype(), DType::U32);
        let json = r#"{"x":{"dtype":"i8","dims":[4]},"axis":0,"scan":"min","reverse":true,"indices":"i32"}"#;
        let least: ScanDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&least).unwrap(), json);
        assert_eq!(least.slots()[1].desc.dtype(), DType::I8);
    }

    #[test]
    fn an_output_may_lie_in_the_place_of_an_input_of_its_type_and_layout() {
        let x = dense(DType::F16, &[2, 3]);
        let partner = |scan: ScanDescriptor| scan.slots()[0].in_place;
        assert_eq!(partner(ScanDescriptor::of(x, 1, Scan::Sum).unwrap()), Some(1));
        assert_eq!(partner(ScanDescriptor::of(x, 1, Scan::Sum).unwrap().output(DType::F32).unwrap()), None);
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |dtype, scan| ScanDescriptor::of(dense(dtype, &[2, 3]), 1, scan);
        let rule = |made: Result<ScanDescriptor>| made.expect_err("a refusal").to_string();
        for (refusal, expected) in [
            (
                rule(ScanDescriptor::of(dense(DType::F32, &[2, 3]), 2, Scan::Sum)),
                "axis: must be below the rank of x, 2; got 2",
            ),
            (
                rule(ScanDescriptor::of(dense(DType::F32, &[]), 1, Scan::Sum)),
                "axis: must be 0 where x has rank 0; got 1",
            ),
            (rule(of(DType::F8E4M3, Scan::Sum)), "x: f8e4m3 is stored and cast only"),
            (rule(of(DType::I32, Scan::LogSumExp)), "of which logsumexp is; got i32"),
            (
                rule(of(DType::F32, Scan::Sum).unwrap().with_indices()),
                "indices: are those of max and min; sum has none",
            ),
            (rule(of(DType::F32, Scan::Max).unwrap().exclusive().unwrap().with_indices()), "indices: are not there"),
            (rule(of(DType::F32, Scan::Max).unwrap().indices(DType::U8)), "indices: must be i64, i32 or u32, got u8"),
            (rule(of(DType::F32, Scan::Max).unwrap().output(DType::F16)), "output: of max of f32 must be that of x"),
            (rule(of(DType::F32, Scan::Sum).unwrap().output(DType::I32)), "must be f64, f32, f16 or bf16; got i32"),
            (rule(of(DType::U8, Scan::Sum).unwrap().output(DType::U8)), "must be i64, i32 or u32; got u8"),
        ] {
            assert!(refusal.contains(expected), "{refusal}");
        }
        let long = TensorDesc::strided(DType::F32, &[(1 << 31) + 1], &[0]).unwrap();
        let refused = rule(ScanDescriptor::of(long, 0, Scan::Max).unwrap().indices(DType::I32));
        assert!(refused.contains("at most 2147483647, the axis has 2147483649 positions"), "{refused}");
        // A tensor of rank 0 has an axis of one element.
        assert!(ScanDescriptor::of(dense(DType::F32, &[]), 0, Scan::Sum).is_ok());
    }
}
