//! Copies of a tensor, or of a slice of it, to another layout.
//!
//! `y[i0, i1, ..] = x[starts0 + i0 steps0, starts1 + i1 steps1, ..]`, without a slice `y = x`.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | any | in | always |
//! | `y` | `extents`, those of x without a slice | that of x | out | always |
//!
//! Units: elements are bits, of which nothing is computed. A cast is a program of [`pointwise`](crate::ops::pointwise) without instructions.
//!
//! Layout and aliasing: any strides, 0 for x. y is dense unless [`layout`](CopyDescriptor::layout) says otherwise. The operands do not overlap.
//!
//! Accumulation: none. NaN, infinity, empty: each NaN keeps its payload; without elements nothing is written.
//!
//! Gradients: that of x is a copy of that of y, or y's padded with zeros where x was sliced; one step more where it was read backwards. Of an x that
//! repeats elements by strides of 0 it has every repetition by itself.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: slices are those of `jax.lax.slice`; steps below 0 read backwards, as in NumPy.
//!
//! Kernels, in the order in which they are tried. On CUDA `copy_tiles` (`csrc/movement/copy_tiles.cu`) where neighbours of y are far apart in x and the
//! other way round, `copy_strided` (`csrc/movement/copy_strided.cu`) for any strides. Through wgpu `copy_tiles` and `copy_strided`
//! (`csrc/movement/copy_tiles.wgsl`, `csrc/movement/copy.wgsl`). On the CPU one, in `cpu.rs`, which knows the same three ways.

use crate::backend::cpu::Operands as CpuOperands;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::kernel::{Accepted, Candidate};
use crate::operands::{args, operands};
use crate::ops::fields::{beside, relay, require};
use crate::ops::movement::cpu;
use crate::ops::movement::geometry::{Moves, Outside, sliced};
use crate::ops::movement::pad::{PadDescriptor, PadMode};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

operands! { $
    /// The operands.
    mod forward {
        X x: In, always => "What is copied.";
        Y y: Out, always => "The copy.";
    }
}

fields! {
    /// The fields. `starts`, `extents` and `steps` are empty where they are 0, those of x, and 1.
    Fields: Fields<Kind = (), Derived = ()> + normalise {
        x: TensorDesc,
        starts: Vec<u64> = default,
        extents: Vec<u64> = default,
        steps: Vec<i64> = default,
    }
}

pub(super) type Valid = valid::Valid<Fields>;

impl Fields {
    /// What says its default is left out.
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])?;
        let dims = self.x.dims();
        let extents = if self.extents.is_empty() { dims } else { &self.extents };
        // The step of an extent of at most 1 leads nowhere.
        for (step, &extent) in self.steps.iter_mut().zip(extents) {
            if extent <= 1 && *step != 0 {
                *step = 1;
            }
        }
        if self.extents == dims {
            self.extents.clear();
        }
        if self.starts.len() == dims.len() && self.starts.iter().all(|&start| start == 0) {
            self.starts.clear();
        }
        if self.steps.len() == dims.len() && self.steps.iter().all(|&step| step == 1) {
            self.steps.clear();
        }
        Ok(())
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let Self { x, starts, extents, steps, .. } = self;
        let rank = x.rank();
        for (field, count) in [("starts", starts.len()), ("extents", extents.len()), ("steps", steps.len())] {
            require(op, field, count == 0 || count == rank, || {
                format!("must be one for each of the {rank} extents of x, or none; got {count}")
            })?;
        }
        let dims = if extents.is_empty() { x.dims() } else { extents };
        for (axis, (&extent, &of_x)) in dims.iter().zip(x.dims()).enumerate() {
            let (start, step) = self.along(axis);
            require(op, "steps", step != 0, || {
                format!("must not be 0, as that of axis {axis} is; TensorDesc::broadcast_to repeats an element")
            })?;
            if extent == 0 {
                require(op, "starts", start <= of_x, || {
                    format!("must be at most the extent of x, {of_x}; that of axis {axis} is {start}")
                })?;
                continue;
            }
            require(op, "starts", start < of_x, || {
                format!("must be below the extent of x, {of_x}; that of axis {axis} is {start}")
            })?;
            let (steps, room) =
                ((extent - 1).checked_mul(step.unsigned_abs()), if step > 0 { of_x - 1 - start } else { start });
            require(op, "extents", steps.is_some_and(|steps| steps <= room), || {
                format!(
                    "must end inside x: along axis {axis}, {extent} elements {step} apart from {start} on pass the end of {of_x}"
                )
            })?;
        }
        slots.declare(forward::X, *x)?;
        let y = TensorDesc::contiguous(x.dtype(), dims);
        slots.declare(forward::Y, slots.derived(forward::Y, y)?)?;
        Ok(())
    }

    /// Where x is read first along an axis, and how far it is from one element to the next.
    fn along(&self, axis: usize) -> (u64, i64) {
        (self.starts.get(axis).copied().unwrap_or(0), self.steps.get(axis).copied().unwrap_or(1))
    }
}

/// What moves where.
pub(super) fn moves(valid: &Valid) -> Moves {
    let Fields { starts, steps, .. } = &valid.fields;
    sliced(&valid.slots.always(forward::X).desc, &valid.slots.always(forward::Y).desc, starts, steps)
}

/// The alignment that both operands promise.
#[cfg(feature = "cuda")]
pub(super) fn align_bytes(valid: &Valid) -> u64 {
    [forward::X, forward::Y].map(|index| valid.slots.always(index).desc.align_bytes()).into_iter().min().unwrap_or(1)
}

/// The rows of the operands.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(super) const OPERANDS: [usize; 2] = [forward::X, forward::Y];

/// Gradients of y at the places of x that y was read from.
fn derive(forward: &CopyDescriptor, derivation: &mut Derivation) -> Result<()> {
    let Fields { x, starts, steps, .. } = &forward.0.fields;
    let dy = forward.0.slots.always(forward::Y).desc;
    let of_x = ("y", Role::GradientFor(vec!["x"]));
    if starts.is_empty() && steps.is_empty() && dy.dims() == x.dims() {
        let copy = CopyDescriptor::new(dy)?.layout("y", beside(x)?)?;
        derivation.push(copy, &[("x", Role::GradientOf("y")), of_x]);
        return Ok(());
    }
    let along = |axis: usize| forward.0.fields.along(axis);
    let mut arriving = (dy, Role::GradientOf("y"));
    if steps.iter().any(|&step| step < 0) {
        // In the order of x.
        let ends = (0..x.rank()).map(|axis| if along(axis).1 < 0 { dy.dims()[axis].saturating_sub(1) } else { 0 });
        let flips = (0..x.rank()).map(|axis| along(axis).1.signum());
        let flip = CopyDescriptor::slice(dy, ends.collect(), dy.dims().to_vec(), flips.collect())?;
        let flipped = derivation.intermediate();
        arriving.0 = flip.0.slots.always(forward::Y).desc;
        derivation.push(flip, &[("x", Role::GradientOf("y")), ("y", flipped.clone())]);
        arriving.1 = flipped;
    }
    let (mut before, mut after, mut interior) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, (&extent, &of_x)) in dy.dims().iter().zip(x.dims()).enumerate() {
        let (start, step) = along(axis);
        let apart = step.unsigned_abs();
        let reach = extent.saturating_sub(1) * apart;
        let first = if step < 0 { start - reach } else { start };
        let read = if extent == 0 { 0 } else { reach + 1 };
        before.push(signed(op(), "starts", first)?);
        after.push(signed(op(), "extents", of_x - first - read)?);
        interior.push(if extent > 1 { apart - 1 } else { 0 });
    }
    let pad = PadDescriptor::new(arriving.0, before, after, PadMode::Constant(0.0))?.interior(interior)?;
    let pad = pad.layout("y", beside(x)?)?;
    derivation.push(pad, &[("x", arriving.1), of_x]);
    Ok(())
}

const fn op() -> &'static str {
    CopyDescriptor::OP.name
}

/// A number of positions for a field that may be below 0.
fn signed(op: &'static str, field: &'static str, positions: u64) -> Result<i64> {
    let rule = || format!("must be at most {}, got {positions}", i64::MAX);
    i64::try_from(positions).map_err(|_| Error::InvalidDescriptor { op, field, rule: rule() })
}

/// Copies on the CPU.
fn on_cpu(valid: &Valid) -> Accepted<'_> {
    let moves = moves(valid);
    Ok(Candidate::on_cpu(move || {
        move |operands: &CpuOperands<'_>| {
            if let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) {
                cpu::run(&moves, Outside::Nothing, &x, &y);
            }
        }
    })
    .batch_invariant())
}

descriptor! {
    /// A copy of a tensor, or of a slice of it. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{CopyArgs, CopyDescriptor, DType, Device, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// // The memory of x as its transpose, made dense.
    /// let plan = Plan::new(&device, CopyDescriptor::new(x.permute(&[1, 0])?)?, &PlanOptions::default())?;
    /// let (x, mut y) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0f32; 6]);
    /// plan.run(&mut device.queue(), CopyArgs::new(Mem::host(&x), MemMut::host(&mut y)), Workspace::none())?;
    /// assert_eq!(y, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    CopyDescriptor(Fields): "copy", ();
    args: CopyArgs of forward;
    plan: CopyPlan;
    kernels: kernels!(
        cuda: {"tiles" => super::cuda::copy_tiles, "strided" => super::cuda::copy_strided};
        wgpu: {"tiles" => super::wgpu::copy_tiles, "strided" => super::wgpu::copy_strided};
        cpu: on_cpu
    );
    gradients: ["y"] => ["x"], derive;
    /// A copy of a tensor, dense unless [`layout`](Self::layout) says otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the dense copy of x, which may repeat elements, would exceed `i64::MAX` bytes.
    fn new(x: TensorDesc) = Fields::minimal(x);
    /// A copy of those elements that begin at `starts` and are `steps` apart; below 0 the tensor is read backwards.
    ///
    /// ```
    /// # use baracuda_ops::{CopyDescriptor, DType, Descriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 4])?;
    /// let flipped = CopyDescriptor::slice(x, vec![0, 3], vec![8, 4], vec![1, -1])?;
    /// let every_other_row = CopyDescriptor::slice(x, vec![1, 0], vec![4, 4], vec![2, 1])?;
    /// assert_eq!(every_other_row.slots()[1].desc.dims(), [4, 4]);
    /// # let _ = flipped;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is not one number for each extent of x, if a step is 0, or if the slice passes the end of x.
    fn slice(x: TensorDesc, starts: Vec<u64>, extents: Vec<u64>, steps: Vec<i64>) =
        Fields { starts, extents, steps, ..Fields::minimal(x) };
}

shared_steps! { CopyDescriptor: layout }

args! {
    /// Operands of [`CopyDescriptor`]; their shapes and types are in the [table](self).
    CopyArgs of forward {
        /// The operands.
        new(x, y);
    }
}
