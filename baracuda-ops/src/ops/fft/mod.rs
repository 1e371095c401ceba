//! Discrete Fourier transforms of lines: `fft` of complex numbers, `rfft` of real numbers, and `irfft` to real numbers.
//!
//! With `w = exp(-2 pi i / n)` for a line of `n` points, `j` and `k` from 0 to `n - 1`, and `m_k = 1` for the bins `k = 0` and `k = n/2`, else `m_k = 2`:
//!
//! - `fft`: `y_k = scale sum_j(x_j w^(j k))`; [`Inverse`](FftDirection::Inverse) has `w^(-j k)`;
//! - `rfft`: `y_k = scale sum_j(x_j w^(j k))` of real x, for `k` from 0 to `n/2`, rounded down; the other bins are the conjugates of these;
//! - `irfft`: `y_j = scale sum_k(m_k Re(x_k w^(-j k)))`, the sum over `k` from 0 to `n/2`: the real line whose half spectrum is x.
//!
//! Nothing is divided by n: the user's `scale`, of f32 0 or a normal number, is 1, `1/n` or `1/sqrt(n)`, which frameworks call the norms backward, forward and ortho.
//!
//! With [`adjoint`](RfftDescriptor::adjoint) `y_k` of rfft is multiplied by `m_k`, and `irfft` leaves `m_k` out, so that all inner frequencies count once.
//! These are the gradients of the two ops without it: the gradient of rfft is irfft with `adjoint`, that of irfft is rfft with `adjoint`, and the other way
//! round; that of fft is fft in the other direction. The scale is that of forward.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | complex `[.., n, .., 2]`, of rfft real `[.., n, ..]`, of irfft complex `[.., n/2 + 1, .., 2]`; complex of rank 2 to 8, real of rank 1 to 7 | f64, f32 | in | always |
//! | `y` | of fft that of x, of rfft `[.., n/2 + 1, .., 2]`, of irfft `[.., n, ..]`, where n is `length` | that of x | out | always |
//!
//! Units: a complex number is a pair, the real and the imaginary part, along the last extent, as `torch.view_as_real` has it; bins are whole turns per line. The axis is an
//! extent of x, any but the one of parts. Several axes are several plans, one after the other, of which rfft is the first and irfft the last:
//! docs/recipes.md has them, and `stft` and `hfft`.
//!
//! Layout and aliasing: any strides, 0 for x, also between parts. y is dense unless [`layout`](FftDescriptor::layout) says otherwise. y of fft may lie in the place of
//! x if the layout is the same.
//!
//! Accumulation: in the type of x, on the CPU always in f64. A line of n points whose prime factors are 2, 3, 5 and 7 is divided into radices, another one is a convolution with a
//! chirp of a power of two points (Bluestein). The order of operations follows from n alone: results repeat bit for bit, and do not depend on other lines or the number of threads.
//!
//! NaN, infinity, empty: a number that is not finite spoils its own line alone, where any result may become NaN. Imaginary parts of bins 0 and n/2 are not
//! read by irfft, as in NumPy, PyTorch and JAX; those that rfft writes there are 0 within the error. Without elements nothing is written. Lines of rfft and irfft have a
//! point at least.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which type or length.
//!
//! Source: J. W. Cooley, J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965; the order that needs no reversal of bits is T. G. Stockham's, 1966,
//! the way of arbitrary lengths L. I. Bluestein's, 1970. Names and rules are those of `torch.fft` and `jax.lax.fft`.
//!
//! Kernels: `csrc/fft/fft.cu`, `csrc/fft/fft.wgsl` with `csrc/fft/fft_stage.wgsl` for each radix; on the CPU the form `fast` (`fast.rs`), and the reference in `cpu.rs`,
//! which is the sum itself.

use crate::dtype::Real;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::json;
use crate::operands::{args, operands};
use crate::ops::fields::{demand, in_range, relay, require};
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
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod passes;
mod roots;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::{Geometry, Transform};
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// The operands.
    mod forward {
        X x: In, always, in place y => "What is transformed.";
        Y y: Out, always => "The transform.";
    }
}

/// The sign of a transform's angles.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FftDirection {
    /// Of points to frequencies: `exp(-2 pi i j k / n)`.
    #[default]
    Forward,
    /// Of frequencies to points: `exp(2 pi i j k / n)`, without a division by n.
    Inverse,
}

impl FftDirection {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Inverse];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Inverse => "inverse",
        }
    }

    /// The other one.
    pub const fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Inverse,
            Self::Inverse => Self::Forward,
        }
    }
}

json::named!(FftDirection);

fields! {
    /// The fields of the three descriptors. `direction` is that of fft, `length` and `adjoint` are those of the others.
    Fields: Fields<Kind = Transform, Derived = Geometry> + normalise lacks lacks {
        x: TensorDesc,
        axis: usize,
        direction: FftDirection = default,
        /// Points of the real line; of irfft, which needs it.
        length: Option<u64> = default,
        scale: Real = one,
        adjoint: bool = default,
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

fn lacks(transform: Transform) -> &'static [&'static str] {
    match transform {
        Transform::Complex => &["length", "adjoint"],
        Transform::FromReal => &["direction", "length"],
        Transform::ToReal => &["direction"],
    }
}

impl Fields {
    /// Those of irfft.
    fn to_real(x: TensorDesc, axis: usize, length: u64) -> Self {
        Self { length: Some(length), ..Self::minimal(x, axis) }
    }

    fn normalise(&mut self, &Op { name: op, .. }: &Op<Transform>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Transform>, slots: &mut SlotsBuilder<'_>) -> Result<Geometry> {
        let Self { x, axis, direction, length, scale, adjoint, .. } = self;
        let dtype = x.dtype();
        require(op, "x", dtype.is_computed(), || format!("must be f64 or f32, got {dtype}; cast it first"))?;
        require(op, "x", dtype == dtype.accumulator(), || {
            format!(
                "must be f64 or f32, got {dtype}, in which a transform would lose its small frequencies; cast it first"
            )
        })?;
        in_range(op, "scale", *scale, x)?;
        let rank = x.rank();
        let points_of = if kind == Transform::FromReal {
            rank
        } else {
            let parts = x.dims().last().copied();
            require(op, "x", parts == Some(2), || match parts {
                None => "must have a last extent of 2, the real and the imaginary part; got rank 0".into(),
                Some(parts) => format!("must have a last extent of 2, the real and the imaginary part; got {parts}"),
            })?;
            rank - 1
        };
        require(op, "x", points_of > 0, || {
            let parts = if kind == Transform::FromReal { "" } else { " beside that of its parts" };
            format!("must have an extent{parts} along which it is transformed; got {:?}", x.dims())
        })?;
        require(op, "axis", *axis < points_of, || match kind {
            Transform::FromReal => format!("must be below the rank of x, {rank}; got {axis}"),
            _ => format!("must be below that of the parts, {points_of}, the last of x; got {axis}"),
        })?;
        let of_axis = x.dims()[*axis];
        let mut dims = x.dims().to_vec();
        let points = match kind {
            Transform::Complex => of_axis,
            Transform::FromReal => {
                require(op, "x", of_axis > 0, || {
                    format!("must have a point at least along axis {axis}; got {:?}", x.dims())
                })?;
                dims[*axis] = of_axis / 2 + 1;
                dims.push(2);
                of_axis
            }
            Transform::ToReal => {
                let points = length.ok_or_else(|| {
                    let rule =
                        format!("must be the points of y along the axis, of which x has the {of_axis} bins; got none");
                    Error::InvalidDescriptor { op, field: "length", rule }
                })?;
                demand(op, "length", points > 0, "a line must have a point at least, got 0")?;
                require(op, "length", points / 2 + 1 == of_axis, || {
                    format!("{points} has {} bins, x has {of_axis} along axis {axis}", points / 2 + 1)
                })?;
                dims[*axis] = points;
                dims.pop();
                points
            }
        };
        slots.declare(forward::X, *x)?;
        let y = slots.derived(forward::Y, TensorDesc::contiguous(dtype, &dims))?;
        let y = slots.declare(forward::Y, y)?;
        let is_inverse = match kind {
            Transform::Complex => *direction == FftDirection::Inverse,
            Transform::FromReal => false,
            Transform::ToReal => true,
        };
        let inner = match kind {
            Transform::Complex => 1.0,
            Transform::FromReal if !adjoint => 1.0,
            Transform::ToReal if *adjoint => 1.0,
            _ => 2.0,
        };
        Geometry::new(kind, (points, *axis), [&y, x], is_inverse, inner, *scale)
    }
}

/// The one step of a gradient: what arrives at y is its x, and what it writes is the gradient of x.
fn derive(step: impl crate::plan::Descriptor, derivation: &mut Derivation) {
    let gradient = derivation.gradient_for(&["x"]);
    derivation.push(step, &[("x", Role::GradientOf("y")), ("y", gradient)]);
}

/// A step that computes the gradient of x, of fields that are those of the gradient but for the layouts: its x lies as y of forward does. Its y is x of
/// forward, whose layout it has unless that addresses an element twice.
fn gradient_of(forward: &Valid, change: impl FnOnce(&mut Fields)) -> Fields {
    let y = forward.slots.always(forward::Y).desc;
    let mut fields = Fields { x: y, layouts: Default::default(), ..forward.fields.clone() };
    change(&mut fields);
    if forward.fields.x.is_injective() {
        fields.layouts.insert("y".into(), forward.fields.x);
    }
    fields
}

descriptor! {
    /// A transform of complex numbers along an axis. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, FftArgs, FftDescriptor, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[4, 2])?;
    /// let plan = Plan::new(&device, FftDescriptor::new(x, 0)?, &PlanOptions::default())?;
    /// let (x, mut y) = ([1f32, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0], [0f32; 8]);
    /// plan.run(&mut device.queue(), FftArgs::new(Mem::host(&x), MemMut::host(&mut y)), Workspace::none())?;
    /// assert_eq!(y, [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    FftDescriptor(Fields): "fft", Transform::Complex;
    args: FftArgs of forward;
    plan: FftPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept; before: {"fast" => fast::accept});
    gradients: ["y"] => ["x"], |forward, derivation| {
        let fields = gradient_of(&forward.0, |fields| fields.direction = fields.direction.reversed());
        derive(FftDescriptor(valid::Valid::new(Self::OP, fields)?), derivation);
        Ok(())
    };
    /// The forward transform along an axis of x, without a scale.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is neither f64 nor f32, if its last extent is not 2, or if the axis is not below that.
    fn new(x: TensorDesc, axis: usize) = Fields::minimal(x, axis);
}

shared_steps! { FftDescriptor: layout }

steps! { FftDescriptor
    /// The direction; it is forward unless this is said.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    direction(direction: FftDirection) = |it| it.with(|fields| fields.direction = direction);
    /// The factor of every result, as `1/n` of the inverse of a forward transform without one.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is not finite or, of f32, neither 0 nor a normal number of f32.
    scale(scale: f64) = |it| it.real("scale", scale, |fields, scale| fields.scale = scale);
}

args! {
    /// Operands of [`FftDescriptor`]; their shapes and types are in the [table](self).
    FftArgs of forward {
        /// The operands, which are always there.
        new(x, y);
    }
}

descriptor! {
    /// The half spectrum of real lines along an axis. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, RfftArgs, RfftDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[4])?;
    /// let plan = Plan::new(&device, RfftDescriptor::new(x, 0)?, &PlanOptions::default())?;
    /// let (x, mut y) = ([1f32, 2.0, 3.0, 4.0], [0f32; 6]);
    /// plan.run(&mut device.queue(), RfftArgs::new(Mem::host(&x), MemMut::host(&mut y)), Workspace::none())?;
    /// assert_eq!(y, [10.0, 0.0, -2.0, 2.0, -2.0, 0.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    RfftDescriptor(Fields): "rfft", Transform::FromReal;
    args: RfftArgs of forward;
    plan: RfftPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept; before: {"fast" => fast::accept});
    gradients: ["y"] => ["x"], |forward, derivation| {
        let points = forward.0.derived.points;
        let fields = gradient_of(&forward.0, |fields| {
            (fields.length, fields.adjoint) = (Some(points), !fields.adjoint);
        });
        derive(IrfftDescriptor(valid::Valid::new(IrfftDescriptor::OP, fields)?), derivation);
        Ok(())
    };
    /// The bins 0 to n/2 of the transform of n real points along an axis of x, without a scale.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is neither f64 nor f32, has rank 8, or has no such axis with a point.
    fn new(x: TensorDesc, axis: usize) = Fields::minimal(x, axis);
}

shared_steps! { RfftDescriptor: layout }

steps! { RfftDescriptor
    /// The factor of every result.
    ///
    /// # Errors
    /// As [`FftDescriptor::scale`].
    scale(scale: f64) = |it| it.real("scale", scale, |fields, scale| fields.scale = scale);
    /// Bins other than 0 and n/2 count twice, which makes of it the gradient of [`irfft`](IrfftDescriptor).
    ///
    /// # Errors
    /// None; the type is that of every other step.
    adjoint() = |it| it.with(|fields| fields.adjoint = true);
}

args! {
    /// Operands of [`RfftDescriptor`]; their shapes and types are in the [table](self).
    RfftArgs of forward {
        /// The operands, which are always there.
        new(x, y);
    }
}

descriptor! {
    /// The real lines of half spectra along an axis. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, IrfftArgs, IrfftDescriptor, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[3, 2])?;
    /// let plan = Plan::new(&device, IrfftDescriptor::new(x, 0, 4)?.scale(0.25)?, &PlanOptions::default())?;
    /// let (x, mut y) = ([10f32, 0.0, -2.0, 2.0, -2.0, 0.0], [0f32; 4]);
    /// plan.run(&mut device.queue(), IrfftArgs::new(Mem::host(&x), MemMut::host(&mut y)), Workspace::none())?;
    /// assert_eq!(y, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    IrfftDescriptor(Fields): "irfft", Transform::ToReal;
    args: IrfftArgs of forward;
    plan: IrfftPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept; before: {"fast" => fast::accept});
    gradients: ["y"] => ["x"], |forward, derivation| {
        let fields = gradient_of(&forward.0, |fields| {
            (fields.length, fields.adjoint) = (None, !fields.adjoint);
        });
        derive(RfftDescriptor(valid::Valid::new(RfftDescriptor::OP, fields)?), derivation);
        Ok(())
    };
    /// The `length` real points along an axis of x whose bins 0 to `length / 2` x has, without a scale: for the inverse of rfft it is `1 / length`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is neither f64 nor f32, if its last extent is not 2, if the axis is not below that, or if the axis has another extent than
    /// `length / 2 + 1`.
    fn new(x: TensorDesc, axis: usize, length: u64) = Fields::to_real(x, axis, length);
}

shared_steps! { IrfftDescriptor: layout }

steps! { IrfftDescriptor
    /// The factor of every result.
    ///
    /// # Errors
    /// As [`FftDescriptor::scale`].
    scale(scale: f64) = |it| it.real("scale", scale, |fields, scale| fields.scale = scale);
    /// All bins count once, which makes of it the gradient of [`rfft`](RfftDescriptor).
    ///
    /// # Errors
    /// None; the type is that of every other step.
    adjoint() = |it| it.with(|fields| fields.adjoint = true);
}

args! {
    /// Operands of [`IrfftDescriptor`]; their shapes and types are in the [table](self).
    IrfftArgs of forward {
        /// The operands, which are always there.
        new(x, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::plan::Descriptor;

    fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let x = dense(DType::F32, &[3, 8, 2]);
        let fft = FftDescriptor::new(x, 1).unwrap();
        assert_eq!(fft, fft.clone().direction(FftDirection::Forward).unwrap().scale(1.0).unwrap());
        assert_eq!(serde_json::to_string(&fft).unwrap(), r#"{"x":{"dtype":"f32","dims":[3,8,2]},"axis":1}"#);
        let json = r#"{"x":{"dtype":"f64","dims":[5,3,2]},"axis":0,"length":9,"scale":0.25,"adjoint":true}"#;
        let irfft: IrfftDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&irfft).unwrap(), json);
        assert_eq!(irfft.slots()[1].desc, dense(DType::F64, &[9, 3]));
        let rfft = RfftDescriptor::new(dense(DType::F64, &[9, 3]), 0).unwrap();
        assert_eq!(rfft.slots()[1].desc, dense(DType::F64, &[5, 3, 2]));
    }

    #[test]
    fn the_gradient_of_the_gradient_is_the_op() {
        fn step(of: &impl Descriptor) -> crate::any::AnyDescriptor {
            let steps = of.gradients(&["y"], &["x"]).unwrap();
            assert_eq!((steps.len(), steps[0].role("x")), (1, Some(&Role::GradientOf("y"))));
            assert_eq!(steps[0].role("y"), Some(&Role::GradientFor(vec!["x"])));
            steps[0].descriptor.clone()
        }
        let fft = FftDescriptor::new(dense(DType::F32, &[3, 8, 2]), 1).unwrap().scale(0.5).unwrap();
        let inverse = fft.clone().direction(FftDirection::Inverse).unwrap();
        assert_eq!(step(&fft).downcast::<FftDescriptor>(), Some(&inverse));
        let rfft = RfftDescriptor::new(dense(DType::F32, &[3, 9]), 1).unwrap();
        let back = step(&rfft).downcast::<IrfftDescriptor>().unwrap().clone();
        assert_eq!(back, IrfftDescriptor::new(dense(DType::F32, &[3, 5, 2]), 1, 9).unwrap().adjoint().unwrap());
        assert_eq!(step(&back).downcast::<RfftDescriptor>(), Some(&rfft));
    }

    #[test]
    fn only_fft_runs_in_place() {
        let partner = |slots: &[crate::slots::Slot]| slots[0].in_place;
        assert_eq!(partner(FftDescriptor::new(dense(DType::F32, &[8, 2]), 0).unwrap().slots()), Some(1));
        assert_eq!(partner(RfftDescriptor::new(dense(DType::F32, &[2, 2]), 0).unwrap().slots()), None);
        assert_eq!(partner(IrfftDescriptor::new(dense(DType::F32, &[2, 2]), 0, 2).unwrap().slots()), None);
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |dtype, dims: &[u64], axis| {
            FftDescriptor::new(dense(dtype, dims), axis).expect_err("a refusal").to_string()
        };
        let from_real =
            |dims: &[u64], axis| RfftDescriptor::new(dense(DType::F32, dims), axis).expect_err("a refusal").to_string();
        let to_real = |dims: &[u64], length| {
            IrfftDescriptor::new(dense(DType::F32, dims), 0, length).expect_err("a refusal").to_string()
        };
        for (refusal, expected) in [
            (of(DType::F16, &[8, 2], 0), "x: must be f64 or f32, got f16, in which"),
            (of(DType::I32, &[8, 2], 0), "x: must be f64 or f32, got i32; cast it first"),
            (of(DType::F32, &[8, 3], 0), "x: must have a last extent of 2, the real and the imaginary part; got 3"),
            (of(DType::F32, &[], 0), "got rank 0"),
            (
                of(DType::F32, &[2], 0),
                "x: must have an extent beside that of its parts along which it is transformed; got [2]",
            ),
            (of(DType::F32, &[8, 2], 1), "axis: must be below that of the parts, 1, the last of x; got 1"),
            (from_real(&[8], 1), "axis: must be below the rank of x, 1; got 1"),
            (from_real(&[3, 0], 1), "x: must have a point at least along axis 1; got [3, 0]"),
            (from_real(&[1; 8], 1), "y"),
            (to_real(&[5, 2], 10), "length: 10 has 6 bins, x has 5 along axis 0"),
            (to_real(&[1, 2], 0), "length: a line must have a point at least, got 0"),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
        let scale = FftDescriptor::new(dense(DType::F32, &[8, 2]), 0).unwrap().scale(1e-40).expect_err("a refusal");
        assert!(scale.to_string().contains("scale: must be 0 or a normal number of f32"), "{scale}");
    }
}
