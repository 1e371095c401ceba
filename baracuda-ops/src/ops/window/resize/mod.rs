//! Tensors with other extents, whose elements are made from the nearest ones: image resizing, forward and backward.
//!
//! The last extents of x become `sizes`. Along each of them, of `n` elements in and `m` out, position `o` of y lies at coordinate `c` of x:
//!
//! | [`Coordinates`] | c, of linear and cubic | of nearest: the element |
//! |---|---|---|
//! | `half_pixel` | `(o + 1/2) n / m - 1/2` | `floor((o + 1/2) n / m)` |
//! | `align_corners` | `o (n - 1) / (m - 1)`, 0 where m is 1 | refused |
//! | `asymmetric` | `o n / m` | `floor(o n / m)` |
//!
//! With `i = floor(c)` and `t = c - i`, and weights of elements along several extents multiplied:
//!
//! - `nearest`: the element itself;
//! - `linear`: elements `i`, `i + 1` by `1 - t`, `t`;
//! - `cubic`: elements `i - 1` to `i + 2` by `w(t + 1), w(t), w(1 - t), w(2 - t)`, where with `a = -3/4`
//!   `w(d) = (a + 2) d^3 - (a + 3) d^2 + 1` up to `d = 1` and `a d^3 - 5 a d^2 + 8 a d - 4 a` beyond.
//!
//! An element before the first is the first, one behind the last the last. Backward, `dx` of an element is the sum of what its weights are in y, times dy.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 1 to 8 | f64, f32, f16, bf16 | in | always |
//! | `y` | that of x with `sizes` as its last extents | that of x | out | always |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy` | that of y | that of x | in | always |
//! | `dx` | that of x | that of x | out; accumulated in and out | always |
//!
//! Units: coordinates are rational numbers, compared and rounded down exactly, so that every backend takes the same elements; weights are of the type in which
//! sums are.
//!
//! Layout and aliasing: any strides, 0 for inputs. Outputs are dense unless `layout` says otherwise, `dx` lies as x does. Outputs overlap nothing.
//!
//! Accumulation: f32, for f64 operands f64; along the last extent, then along the one before, in the order of positions; the same bits on the same device every
//! time.
//!
//! NaN, infinity, empty: an element of weight 0 is not read. Extents that are resized have an element or more on both sides, others may have none.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which type or extent.
//!
//! Source: `torch.nn.functional.interpolate` with sizes: `nearest` with `asymmetric` is its mode nearest, `nearest` with `half_pixel` its nearest-exact, `linear` its linear, bilinear
//! and trilinear, `cubic` its bicubic, `align_corners` its flag of that name; ONNX's `Resize` has these coordinates under these names. R. G. Keys, "Cubic convolution
//! interpolation for digital image processing", 1981.
//!
//! Kernels: on CUDA `csrc/window/resize.cu`, through wgpu `csrc/window/resize.wgsl`, for both passes; an element of y, or of dx, is made by one thread. On the CPU one, in
//! `cpu.rs`.

use crate::error::{Error, Result};
use crate::gradients::Derivation;
use crate::json;
use crate::operands::{args, operands};
use crate::ops::fields::{beside, demand, float, relay, require};
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod geometry;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::Resizing;
#[cfg(feature = "wgpu")]
pub(in crate::ops) use wgpu::add_variants;

/// Most extents that are resized.
const MOST_EXTENTS: usize = 3;
/// The largest extent that is resized: products of two are numbers of 62 bits with room for a sum.
const MOST_ELEMENTS: u64 = 1 << 30;

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always => "What is resized.";
        Y y: Out, always => "The resized tensor.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        DY dy: In, always => "Gradient of y.";
        DX dx: Out, always => "Gradient of x.";
    }
}

/// Which elements make one, and how.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeMode {
    /// The nearest one.
    Nearest,
    /// The two around it along each extent, on straight lines between them.
    Linear,
    /// The four around it along each extent, by cubic convolution.
    Cubic,
}

impl ResizeMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Nearest, Self::Linear, Self::Cubic];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Linear => "linear",
            Self::Cubic => "cubic",
        }
    }

    /// Elements along an extent, and how many of them lie before the one below the coordinate.
    pub(crate) const fn taps(self) -> (u32, u32) {
        match self {
            Self::Nearest => (1, 0),
            Self::Linear => (2, 0),
            Self::Cubic => (4, 1),
        }
    }
}

json::named!(ResizeMode);

/// Where the positions of y lie in x; [the table](self) has the formulas.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Coordinates {
    /// Elements are the middles of pixels, and the borders of both images agree.
    #[default]
    HalfPixel,
    /// The first elements agree, and the last.
    AlignCorners,
    /// The first elements agree, and the borders behind the last.
    Asymmetric,
}

impl Coordinates {
    /// Every kind of coordinates.
    pub const ALL: [Self; 3] = [Self::HalfPixel, Self::AlignCorners, Self::Asymmetric];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HalfPixel => "half_pixel",
            Self::AlignCorners => "align_corners",
            Self::Asymmetric => "asymmetric",
        }
    }
}

json::named!(Coordinates);

fields! {
    /// The fields of both descriptors.
    Fields: Fields<Kind = Direction, Derived = Resizing> + normalise {
        x: TensorDesc,
        sizes: Vec<u64>,
        mode: ResizeMode,
        coordinates: Coordinates = default,
    }
}

type Valid = valid::Valid<Fields>;

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<Direction>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let Self { x, sizes, mode, coordinates, .. } = self;
        float(op, "x", x)?;
        let count = sizes.len();
        require(op, "sizes", (1..=MOST_EXTENTS.min(x.rank())).contains(&count), || {
            format!("must be 1 to {MOST_EXTENTS} of the last extents of x, which has rank {}; got {count}", x.rank())
        })?;
        let first = x.rank() - count;
        for (axis, (&from, &to)) in x.dims()[first..].iter().zip(sizes).enumerate() {
            let elements = 1..=MOST_ELEMENTS;
            require(op, "sizes", elements.contains(&from) && elements.contains(&to), || {
                format!(
                    "must make extents of 1 to 2^30 of such; extent {} has {from}, and is to have {to}",
                    first + axis
                )
            })?;
        }
        demand(
            op,
            "coordinates",
            *mode != ResizeMode::Nearest || *coordinates != Coordinates::AlignCorners,
            "must be half_pixel or asymmetric of the mode nearest",
        )
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<Resizing> {
        self.check(op)?;
        let Self { x, sizes, mode, coordinates, .. } = self;
        let kept = &x.dims()[..x.rank() - sizes.len()];
        let resized = TensorDesc::contiguous(x.dtype(), &[kept, sizes].concat());
        let [target, source] = match kind {
            Direction::Forward => {
                slots.declare(forward::X, *x)?;
                [slots.declare(forward::Y, slots.derived(forward::Y, resized)?)?, *x]
            }
            Direction::Backward => {
                let dy = slots.declare(backward::DY, slots.derived(backward::DY, resized)?)?;
                [slots.declare(backward::DX, slots.derived(backward::DX, beside(x))?)?, dy]
            }
        };
        Ok(Resizing::new(kind, &target, &source, sizes.len(), *mode, *coordinates))
    }
}

descriptor! {
    /// A tensor with other extents. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, ResizeArgs, ResizeDescriptor, ResizeMode, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let image = TensorDesc::contiguous(DType::F32, &[1, 1, 1, 2])?;
    /// let plan = Plan::new(&device, ResizeDescriptor::new(image, vec![1, 4], ResizeMode::Linear)?, &PlanOptions::default())?;
    /// let (x, mut y) = ([0f32, 4.0], [0f32; 4]);
    /// plan.run(&mut device.queue(), ResizeArgs::new(Mem::host(&x), MemMut::host(&mut y)), Workspace::none())?;
    /// assert_eq!(y, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ResizeDescriptor(Fields): "resize", Direction::Forward;
    args: ResizeArgs of forward;
    plan: ResizePlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept);
    gradients: ["y"] => ["x"], |forward, derivation: &mut Derivation| {
        derivation.push(forward.backward()?, &[]);
        Ok(())
    };
    /// A tensor x whose last extents become `sizes`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, if sizes are not one to three of its last extents, or if one of them has no element or more
    /// than 2^30 on either side.
    fn new(x: TensorDesc, sizes: Vec<u64>, mode: ResizeMode) = Fields::minimal(x, sizes, mode);
}

impl ResizeDescriptor {
    /// The backward with the same fields: `dy` lies as forward's `y`, `dx` as `x`.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn backward(&self) -> Result<ResizeBackwardDescriptor> {
        self.0.backward_of(ResizeBackwardDescriptor::OP, forward::Y, |_| ()).map(ResizeBackwardDescriptor)
    }
}

descriptor! {
    /// The gradient of what [`ResizeDescriptor`] resizes. See the [formulas and operands](self).
    ResizeBackwardDescriptor(Fields): "resize_backward", Direction::Backward;
    args: ResizeBackwardArgs of backward;
    plan: ResizeBackwardPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::accept);
    /// The gradient of an x that was resized to `sizes`.
    ///
    /// # Errors
    /// As [`ResizeDescriptor::new`].
    fn new(x: TensorDesc, sizes: Vec<u64>, mode: ResizeMode) = Fields::minimal(x, sizes, mode);
}

shared_steps! { ResizeDescriptor: layout }
shared_steps! { ResizeBackwardDescriptor: accumulate, layout }

/// The step of both descriptors.
macro_rules! resize_steps {
    ($($Descriptor:ident),*) => {$(
        steps! { $Descriptor
            /// Where the positions of y lie in x, [`Coordinates::HalfPixel`] unless it is said.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] of the mode nearest with [`Coordinates::AlignCorners`].
            coordinates(coordinates: Coordinates) = |it| it.with(|fields| fields.coordinates = coordinates);
        }
    )*};
}
resize_steps! { ResizeDescriptor, ResizeBackwardDescriptor }

args! {
    /// Operands of [`ResizeDescriptor`]; their shapes and types are in the [table](self).
    ResizeArgs of forward {
        /// The operands that are always there.
        new(x, y);
    }
}

args! {
    /// Operands of [`ResizeBackwardDescriptor`]; their shapes and types are in the [table](self).
    ResizeBackwardArgs of backward {
        /// The operands that are always there.
        new(dy, dx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::plan::Descriptor;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let resize = ResizeDescriptor::new(dense(&[2, 3, 4, 5]), vec![8, 10], ResizeMode::Linear).unwrap();
        assert_eq!(resize, resize.clone().coordinates(Coordinates::HalfPixel).unwrap());
        let json = r#"{"x":{"dtype":"f32","dims":[2,3,4,5]},"sizes":[8,10],"mode":"linear"}"#;
        assert_eq!(serde_json::to_string(&resize).unwrap(), json);
        assert_eq!(resize.slots()[1].desc, dense(&[2, 3, 8, 10]));
        let backward = resize.backward().unwrap();
        assert_eq!(backward.slots()[0].desc, dense(&[2, 3, 8, 10]));
        assert_eq!(backward.slots()[1].desc, dense(&[2, 3, 4, 5]));
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let refusal = |x: &[u64], sizes: &[u64]| {
            let made = ResizeDescriptor::new(dense(x), sizes.to_vec(), ResizeMode::Nearest);
            made.expect_err("a refusal").to_string()
        };
        for (refusal, expected) in [
            (refusal(&[4], &[]), "sizes: must be 1 to 3 of the last extents of x, which has rank 1; got 0"),
            (refusal(&[4], &[1, 1]), "which has rank 1; got 2"),
            (refusal(&[2, 3, 4], &[5, 0]), "extent 2 has 4, and is to have 0"),
            (refusal(&[2, 0, 4], &[5, 6]), "extent 1 has 0, and is to have 5"),
            (refusal(&[2, 3], &[1 << 31]), "extent 1 has 3, and is to have 2147483648"),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
        let nearest = ResizeDescriptor::new(dense(&[4]), vec![8], ResizeMode::Nearest).unwrap();
        assert!(nearest.coordinates(Coordinates::AlignCorners).unwrap_err().to_string().contains("nearest"));
        let integers = TensorDesc::contiguous(DType::I32, &[4]).unwrap();
        assert!(ResizeDescriptor::new(integers, vec![8], ResizeMode::Nearest).is_err());
    }
}
