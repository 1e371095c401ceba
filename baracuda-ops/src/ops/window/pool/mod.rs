//! Pooling in one, two or three spatial extents, and its gradient: the greatest element of each window, their mean, or their norm.
//!
//! With spatial indices o of y and places r of a window, and one stride, dilation and padding per axis, window o has the elements of x at
//! `stride * o + dilation * r - before` for each r below the kernel, as far as they lie in x. [Adaptive](PoolWindow::adaptive) windows divide an extent of I
//! elements among O outputs: window o has those from `floor(o * I / O)` to before `ceil((o + 1) * I / O)`.
//!
//! | [`Pooling`] | y | dx |
//! |---|---|---|
//! | `max` | the greatest element | the sum of dy of the windows whose greatest element it is |
//! | `average` | the sum of the elements, divided by a number of places | the sum of dy of the windows that see the element, each divided by that number |
//! | `norm1` | the sum of the magnitudes | `sign(x)` times the sum of dy of the windows that see the element |
//! | `norm2` | the root of the sum of the squares | x times the sum of `dy / y` of the windows that see the element, 0 where y is 0 |
//!
//! An average divides by the places of the window up to the end of the padding; with [`exclude_padding`](PoolDescriptor::exclude_padding) by those in x; or by a
//! [divisor](PoolDescriptor::divisor).
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, C, spatial..]`, 1 to 3 spatial extents | T: f64, f32, f16 or bf16 | in | always |
//! | `y` | `[N, C, out..]` | T | out | always |
//! | `offsets` | of y | u8 if the longest window has at most 256 places, else i32 | out | `offsets`, of max |
//! | `indices` | of y | i64 | out | `indices`, of max |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy` | `[N, C, out..]` | T: f64, f32, f16 or bf16 | in | always |
//! | `offsets` | of dy | as in forward | in | `pooling` max; what forward wrote |
//! | `x` | `[N, C, spatial..]` | T | in | `pooling` norm1 or norm2 |
//! | `y` | of dy | T | in | `pooling` norm2; what forward wrote |
//! | `dx` | `[N, C, spatial..]` | T | out; accumulated in and out | always |
//!
//! Units: values are plain numbers; kernels, strides, dilations and padding count elements along their axis. Offsets are places within the window, in row-major
//! order of all its places, those of the padding among them; of adaptive windows in that of its own. Indices are positions within the spatial extents of x, in
//! row-major order, as PyTorch's are.
//!
//! Along each axis the extent of y is `floor((in + before + after - dilation * (kernel - 1) - 1) / stride) + 1`. With [`ceil_mode`](PoolWindow::ceil_mode) what
//! the division leaves has a window more, which may end behind the padding but starts in x or before it.
//!
//! Layout and aliasing: extents are in this order in every layout, with any strides. Outputs are channels-last if x is, else contiguous, unless
//! [`layout`](PoolDescriptor::layout) says otherwise; dx lies as x does. Operands may not overlap.
//!
//! Accumulation: f32, for f64 operands f64, in a fixed order. Each element of dx is added up from the outputs whose windows see it, and nothing else writes it,
//! so that a device computes equal bits every time.
//!
//! NaN, infinity, empty: the greatest element is the first NaN if there is one, and among equal ones, 0 and -0 among them, the first in row-major order. Others
//! follow the formulas. Padding is shorter than a window, so that each reaches x; one whose places all miss x, which takes a dilation or both paddings, has a
//! maximum of -infinity, offset 0 and index -1, an average and a norm of 0, and no gradient. If N or C is 0 nothing is written.
//!
//! Out of scope: norms of other orders, of which [`pointwise`](crate::PointwiseDescriptor) computes powers and roots around an average; dilated averages; negative
//! divisors.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and the numbers that do not fit: an axis whose padding is not shorter than the window, or a window that
//! is larger than the padded extent. Paddings, strides and reaches of the dilated kernel are below 2^31. [`Error::Unsupported`] says why each kernel refused.
//!
//! Source: names and rules are those of PyTorch's `max_pool2d`, `avg_pool2d`, `adaptive_avg_pool2d` and `adaptive_max_pool2d`, which allow at most half a window
//! of padding; norms are those of ONNX's `LpPool`, where PyTorch's `lp_pool2d` adds up powers with their signs.
//!
//! Kernels, in the order in which they are tried. On CUDA `pool_wide` (`csrc/window/pool_wide.cu`) for windows of so many elements that threads share one, and
//! `pool_windows` (`csrc/window/pool.cu`); through wgpu the same two, both of them `csrc/window/pool.wgsl`. Backward each element, or some neighbours, gathers
//! from the windows that see it: `csrc/window/pool_backward.cu` and `csrc/window/pool_backward.wgsl`. On the CPU `pool_fast` and `pool_backward_fast`
//! (`fast.rs`) for f32, f16 and bf16, and the reference in `cpu.rs`.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, one_step};
use crate::json;
use crate::operands::{args, operands};
use crate::ops::conv::is_channels_last;
use crate::ops::fields::{beside, float, relay, require};
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
mod geometry;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::Windows;
#[cfg(feature = "wgpu")]
pub(in crate::ops) use wgpu::add_variants;

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always => "Input.";
        Y y: Out, always => "What the windows have.";
        OFFSETS offsets: Out, if offsets => "Where in its window each greatest element is, if declared.", step "Where the offsets go.";
        INDICES indices: Out, if indices => "Where in x each greatest element is, if declared.", step "Where the indices go.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        DY dy: In, always => "Gradient of y.";
        OFFSETS offsets: In, if max => "What forward wrote, if declared.", step "The offsets that forward wrote.";
        X x: In, if norm => "Forward's input, if declared.", step "Forward's input.";
        Y y: In, if norm2 => "What forward wrote, if declared.", step "Forward's output.";
        DX dx: Out, always => "Gradient of x.";
    }
}

/// What becomes of the elements of a window.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The greatest.
    Max,
    /// Their mean.
    Average,
    /// The sum of their magnitudes.
    Norm1,
    /// The root of the sum of their squares.
    Norm2,
}

impl Pooling {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Max, Self::Average, Self::Norm1, Self::Norm2];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Average => "average",
            Self::Norm1 => "norm1",
            Self::Norm2 => "norm2",
        }
    }

    const fn is_norm(self) -> bool {
        matches!(self, Self::Norm1 | Self::Norm2)
    }
}

json::named!(Pooling);

/// Which elements of x each window has.
///
/// ```
/// use baracuda_ops::{DType, Descriptor, PoolDescriptor, Pooling, PoolWindow, TensorDesc};
/// let x = TensorDesc::contiguous(DType::F32, &[8, 64, 112, 112])?;
/// let window = PoolWindow::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]);
/// let pool = PoolDescriptor::new(x, Pooling::Max, window)?;
/// assert_eq!(pool.slots()[1].desc.dims(), [8, 64, 56, 56]);
/// let global = PoolDescriptor::new(x, Pooling::Average, PoolWindow::global())?;
/// assert_eq!(global.slots()[1].desc.dims(), [8, 64, 1, 1]);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolWindow {
    kernel: Vec<u64>,
    stride: Vec<u64>,
    dilation: Vec<u64>,
    padding: Vec<[u64; 2]>,
    ceil_mode: bool,
    /// Extents of y, or none for 1 along every axis.
    adaptive: Option<Vec<u64>>,
}

/// Each descriptor says whether the numbers fit its operands.
impl PoolWindow {
    /// Windows of that many places along each spatial extent, side by side: a stride of the kernel, as in PyTorch, no dilation and no padding.
    pub fn new(kernel: &[u64]) -> Self {
        Self { kernel: kernel.to_vec(), ..Self::default() }
    }

    /// As many windows along each spatial extent, among which x is divided evenly.
    pub fn adaptive(output: &[u64]) -> Self {
        Self { adaptive: Some(output.to_vec()), ..Self::default() }
    }

    /// One window of all elements of a channel.
    pub fn global() -> Self {
        Self::adaptive(&[])
    }

    /// How many elements of x lie between two windows, for each spatial extent.
    #[must_use]
    pub fn stride(self, stride: &[u64]) -> Self {
        Self { stride: stride.to_vec(), ..self }
    }

    /// How many elements of x lie between two places of a window, for each spatial extent.
    #[must_use]
    pub fn dilation(self, dilation: &[u64]) -> Self {
        Self { dilation: dilation.to_vec(), ..self }
    }

    /// How far windows reach beyond x on both sides of each spatial extent.
    #[must_use]
    pub fn padding(self, padding: &[u64]) -> Self {
        Self { padding: padding.iter().map(|&padding| [padding; 2]).collect(), ..self }
    }

    /// How far windows reach beyond x before and after each spatial extent.
    #[must_use]
    pub fn padding_per_side(self, padding: &[[u64; 2]]) -> Self {
        Self { padding: padding.to_vec(), ..self }
    }

    /// Elements behind the last whole window have one of their own, if it starts in x or before it.
    #[must_use]
    pub fn ceil_mode(self) -> Self {
        Self { ceil_mode: true, ..self }
    }
}

fields! {
    /// The fields of both descriptors. Lists have one entry for each spatial extent, in row-major order.
    Fields: Fields<Kind = Direction, Derived = Windows> + normalise lacks lacks {
        x: TensorDesc,
        pooling: Pooling,
        /// None of adaptive windows.
        kernel: Vec<u64> = default,
        /// None where each is the kernel's.
        stride: Vec<u64> = default,
        /// None where each is 1.
        dilation: Vec<u64> = default,
        /// Before and after each spatial extent; none where all are 0.
        padding: Vec<[u64; 2]> = default,
        ceil_mode: bool = default,
        /// Extents of y, of adaptive windows.
        adaptive: Vec<u64> = default,
        exclude_padding: bool = default,
        divisor: Option<u64> = default,
        offsets: bool = default,
        indices: bool = default,
    }
}

type Valid = valid::Valid<Fields>;

impl Valid {
    /// What every window's average is divided by, if it is one number.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    fn common_divisor(&self) -> Option<u64> {
        self.fields.divisor.or_else(|| self.derived.common_places(self.fields.exclude_padding))
    }
}

/// What backward always reads is no option, and indices it never reads.
fn lacks(direction: Direction) -> &'static [&'static str] {
    match direction {
        Direction::Forward => &[],
        Direction::Backward => &["offsets", "indices"],
    }
}

/// The most places of a window whose offsets are bytes, and of one that has offsets.
const MOST_OF_U8: u64 = 1 << 8;
const MOST_OF_I32: u64 = 1 << 31;

/// Places of a window, so that their numbers and further ones fit into 64 bits.
const MOST_PLACES: u64 = 1 << 62;

/// Places that an average divides by are at most this, and so is a divisor.
const MOST_DIVISOR: u64 = (1 << 31) - 1;

impl Fields {
    fn of(x: TensorDesc, pooling: Pooling, window: PoolWindow) -> Self {
        let PoolWindow { kernel, stride, dilation, padding, ceil_mode, adaptive } = window;
        let ones = || vec![1; x.rank().saturating_sub(2).max(1)];
        let adaptive = adaptive.map(|output| if output.is_empty() { ones() } else { output }).unwrap_or_default();
        Self { kernel, stride, dilation, padding, ceil_mode, adaptive, ..Self::minimal(x, pooling) }
    }

    fn normalise(&mut self, &Op { name: op, .. }: &Op<Direction>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])?;
        if self.stride == self.kernel {
            self.stride.clear();
        }
        let count = self.kernel.len();
        if self.dilation.len() == count && self.dilation.iter().all(|&dilation| dilation == 1) {
            self.dilation.clear();
        }
        if self.padding.len() == count && self.padding.iter().all(|&padding| padding == [0; 2]) {
            self.padding.clear();
        }
        // Without padding there is nothing to exclude, and a divisor says it all.
        if self.pooling == Pooling::Average && (self.padding.is_empty() || self.divisor.is_some()) {
            self.exclude_padding = false;
        }
        Ok(())
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let Self { x, pooling, .. } = self;
        float(op, "x", x)?;
        let is_average = *pooling == Pooling::Average;
        let name = pooling.name();
        let of_average = || format!("is of averages; {name} divides by nothing");
        require(op, "exclude_padding", is_average || !self.exclude_padding, of_average)?;
        require(op, "divisor", is_average || self.divisor.is_none(), of_average)?;
        if let Some(divisor) = self.divisor {
            require(op, "divisor", (1..=MOST_DIVISOR).contains(&divisor), || {
                format!("must be from 1 to {MOST_DIVISOR}, got {divisor}")
            })?;
        }
        for (field, is_asked) in [("offsets", self.offsets), ("indices", self.indices)] {
            require(op, field, *pooling == Pooling::Max || !is_asked, || {
                format!("are those of greatest elements; {name} has none")
            })?;
        }
        Ok(())
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<Windows> {
        self.check(op)?;
        let (x, pooling) = (self.x, self.pooling);
        let windows = Windows::new(op, self)?;
        if pooling == Pooling::Average {
            let dilated = windows.axes.iter().find(|axis| axis.dilation > 1);
            require(op, "dilation", dilated.is_none(), || {
                format!("of averages must be 1, got {}", dilated.map_or(1, |axis| axis.dilation))
            })?;
            require(op, "kernel", windows.places() <= MOST_DIVISOR, || {
                format!("of averages must have at most {MOST_DIVISOR} places, got {}", windows.places())
            })?;
        }
        let has_offsets = match kind {
            Direction::Forward => self.offsets,
            Direction::Backward => pooling == Pooling::Max,
        };
        let places = windows.places();
        require(op, "kernel", places <= MOST_PLACES, || {
            format!("must have at most {MOST_PLACES} places, got {places} or more")
        })?;
        require(op, "offsets", !has_offsets || places <= MOST_OF_I32, || {
            format!("count at most {MOST_OF_I32} places of a window, the longest has {places}")
        })?;
        let of_offsets = if places <= MOST_OF_U8 { DType::U8 } else { DType::I32 };
        let lying_as_x = |dtype| match is_channels_last(&x) {
            true => TensorDesc::channels_last(dtype, &windows.output()),
            false => TensorDesc::contiguous(dtype, &windows.output()),
        };
        match kind {
            Direction::Forward => {
                slots.declare(forward::X, x)?;
                slots.declare(forward::Y, slots.derived(forward::Y, lying_as_x(x.dtype()))?)?;
                for (is_asked, row, dtype) in
                    [(self.offsets, forward::OFFSETS, of_offsets), (self.indices, forward::INDICES, DType::I64)]
                {
                    if is_asked {
                        slots.declare(row, slots.derived(row, lying_as_x(dtype))?)?;
                    }
                }
            }
            Direction::Backward => {
                slots.declare(backward::DY, slots.derived(backward::DY, lying_as_x(x.dtype()))?)?;
                if pooling == Pooling::Max {
                    let offsets = slots.derived(backward::OFFSETS, lying_as_x(of_offsets))?;
                    slots.declare(backward::OFFSETS, offsets)?;
                }
                slots.declare_if(pooling.is_norm(), backward::X, x)?;
                if pooling == Pooling::Norm2 {
                    slots.declare(backward::Y, slots.derived(backward::Y, lying_as_x(x.dtype()))?)?;
                }
                slots.declare(backward::DX, slots.derived(backward::DX, beside(&x))?)?;
            }
        }
        Ok(windows)
    }
}

descriptor! {
    /// Pooling. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{
    ///     DType, Device, Mem, MemMut, Plan, PlanOptions, PoolArgs, PoolDescriptor, PoolWindow, Pooling, TensorDesc, Workspace,
    /// };
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[1, 1, 2, 4])?;
    /// let pool = PoolDescriptor::new(x, Pooling::Max, PoolWindow::new(&[2, 2]))?.indices()?;
    /// let plan = Plan::new(&device, pool, &PlanOptions::default())?;
    /// let (x, mut y, mut indices) = ([1f32, 4.0, 3.0, 2.0, 0.0, 4.0, 5.0, 6.0], [0f32; 2], [0i64; 2]);
    /// let args = PoolArgs::new(Mem::host(&x), MemMut::host(&mut y)).indices(MemMut::host(&mut indices));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!((y, indices), ([4.0, 6.0], [1, 7]));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    PoolDescriptor(Fields): "pool", Direction::Forward;
    args: PoolArgs of forward;
    plan: PoolPlan;
    kernels: kernels!(
        cuda: {"wide" => cuda::wide, "windows" => cuda::windows};
        wgpu: {"wide" => wgpu::wide, "windows" => wgpu::windows};
        cpu: cpu::forward;
        before: {"fast" => fast::forward}
    );
    gradients: ["y"] => ["x"], Self::derive_gradients;
    /// What the windows of `x` have, in its type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, not of rank 3 to 5, or has no elements along a spatial extent; if kernels, strides,
    /// dilations, paddings or the extents of adaptive windows are not one for each spatial extent, 0 (paddings may be), or 2^31 or more; if a window is larger
    /// than the padded extent, or padding not shorter than the window; of averages, if windows are dilated.
    fn new(x: TensorDesc, pooling: Pooling, window: PoolWindow) = Fields::of(x, pooling, window);
}

impl PoolDescriptor {
    /// The gradient with this op's types, layouts and options: `dy` has the layout of `y`, `dx` that of `x`.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] of max without `offsets`, which another op writes first: [`gradients`](crate::Descriptor::gradients) has both.
    pub fn backward(&self) -> Result<PoolBackwardDescriptor> {
        one_step(self, None)
    }

    fn derive_gradients(&self, derivation: &mut Derivation) -> Result<()> {
        let mut roles = Vec::new();
        if self.0.fields.pooling == Pooling::Max && !self.0.fields.offsets {
            derivation.explain("forward writes where its greatest elements are only with `offsets`");
            let again = self.0.clone().with(|fields| {
                (fields.offsets, fields.indices) = (true, false);
                fields.layouts.remove("indices");
            });
            let again = derivation.push(Self(again?), &[]);
            roles.extend(again.role("offsets").map(|role| ("offsets", role.clone())));
        }
        let mut fields = self.0.fields.clone();
        (fields.offsets, fields.indices) = (false, false);
        let row = self.0.slots.always(forward::Y);
        fields.layouts = Layouts::from([("dy".into(), row.desc)]);
        if fields.pooling == Pooling::Norm2 {
            fields.layouts.insert("y".into(), row.desc);
        }
        let offsets = self.0.slots.at(forward::OFFSETS);
        fields.layouts.extend(offsets.map(|slot| (slot.name.to_string(), slot.desc)));
        derivation.push(PoolBackwardDescriptor(Valid::new(PoolBackwardDescriptor::OP, fields)?), &roles);
        Ok(())
    }
}

shared_steps! { PoolDescriptor: layout }

steps! { PoolDescriptor
    /// Averages divide by the places in x alone, those of the padding do not count.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other kinds.
    exclude_padding() = |it| it.with(|fields| fields.exclude_padding = true);
    /// Averages divide by this number, whatever the places are.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other kinds, and if it is not from 1 to `i32::MAX`.
    divisor(divisor: u64) = |it| it.with(|fields| fields.divisor = Some(divisor));
    /// Writes where in its window each greatest element is, for backward.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other kinds, and if a window has more than 2^31 places.
    offsets() = |it| it.with(|fields| fields.offsets = true);
    /// Writes where in x each greatest element is, as PyTorch counts: backward reads offsets.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other kinds.
    indices() = |it| it.with(|fields| fields.indices = true);
}

descriptor! {
    /// The gradient of [`PoolDescriptor`]. See the [formulas and operands](self).
    PoolBackwardDescriptor(Fields): "pool_backward", Direction::Backward;
    args: PoolBackwardArgs of backward;
    plan: PoolBackwardPlan;
    kernels: kernels!(
        cuda: {"windows" => cuda::backward};
        wgpu: {"windows" => wgpu::backward};
        cpu: cpu::backward;
        before: {"fast" => fast::backward}
    );
    /// The gradient of the `x` whose windows had this pooling.
    ///
    /// # Errors
    /// As [`PoolDescriptor::new`].
    fn new(x: TensorDesc, pooling: Pooling, window: PoolWindow) = Fields::of(x, pooling, window);
}

shared_steps! { PoolBackwardDescriptor: accumulate, layout }

steps! { PoolBackwardDescriptor
    /// As [`PoolDescriptor::exclude_padding`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other kinds.
    exclude_padding() = |it| it.with(|fields| fields.exclude_padding = true);
    /// As [`PoolDescriptor::divisor`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other kinds, and if it is not from 1 to `i32::MAX`.
    divisor(divisor: u64) = |it| it.with(|fields| fields.divisor = Some(divisor));
}

args! {
    /// Operands of [`PoolDescriptor`]; their shapes and types are in the [tables](self).
    PoolArgs of forward {
        /// The operands that are always there.
        new(x, y);
        offsets(offsets); indices(indices);
    }
}

args! {
    /// Operands of [`PoolBackwardDescriptor`]; their shapes and types are in the [tables](self).
    PoolBackwardArgs of backward {
        /// The operands that are always there.
        new(dy, dx);
        offsets(offsets); x(x); y(y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradients::Role;
    use crate::plan::Descriptor;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    fn max(dims: &[u64], window: PoolWindow) -> Result<PoolDescriptor> {
        PoolDescriptor::new(dense(dims), Pooling::Max, window)
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let rule = |made: Result<PoolDescriptor>| made.expect_err("a refusal").to_string();
        let image = [2, 3, 8, 9];
        let three = || PoolWindow::new(&[3, 3]);
        let average = || PoolDescriptor::new(dense(&image), Pooling::Average, three()).unwrap();
        for (refusal, expected) in [
            (rule(max(&[2, 3], three())), "x: must be [N, C, spatial..] of rank 3 to 5, got rank 2"),
            (rule(max(&[2, 3, 0, 9], three())), "x: must have an element or more along each spatial extent"),
            (rule(max(&image, PoolWindow::new(&[3]))), "kernel: must have one entry for each of the 2 spatial extents"),
            (rule(max(&image, three().padding(&[3, 0]))), "padding: must be shorter than the window along axis 0"),
            (rule(max(&image, three().stride(&[0, 1]))), "stride: must be from 1 to 2147483647 along axis 0, got 0"),
            (rule(max(&image, PoolWindow::new(&[9, 3]))), "kernel: must not reach over the padded extent along axis 0"),
            (rule(max(&image, PoolWindow::adaptive(&[4]))), "adaptive: must have one entry for each of the 2"),
            (rule(max(&image, PoolWindow::adaptive(&[4, 4]).ceil_mode())), "ceil_mode: is not there of adaptive"),
            (rule(max(&image, three()).unwrap().divisor(3)), "divisor: is of averages; max divides by nothing"),
            (rule(average().offsets()), "offsets: are those of greatest elements; average has none"),
            (rule(average().divisor(0)), "divisor: must be from 1 to 2147483647, got 0"),
            (
                rule(PoolDescriptor::new(dense(&image), Pooling::Average, three().dilation(&[2, 1]))),
                "dilation: of averages must be 1, got 2",
            ),
        ] {
            assert!(refusal.contains(expected), "{refusal} should contain {expected}");
        }
    }

    #[test]
    fn extents_are_those_of_pytorch() {
        let y = |dims: &[u64], window| max(dims, window).unwrap().slots()[1].desc.dims()[2..].to_vec();
        let of = |kernel: &[u64]| PoolWindow::new(kernel);
        assert_eq!(y(&[1, 1, 112, 112], of(&[3, 3]).stride(&[2, 2]).padding(&[1, 1])), [56, 56]);
        assert_eq!(y(&[1, 1, 7], of(&[2])), [3]);
        assert_eq!(y(&[1, 1, 7], of(&[2]).ceil_mode()), [4]);
        // The last window would start in the padding behind x.
        assert_eq!(y(&[1, 1, 5], of(&[2]).stride(&[3]).padding(&[1]).ceil_mode()), [2]);
        assert_eq!(y(&[1, 1, 4, 5, 6], PoolWindow::global()), [1, 1, 1]);
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let plain = max(&[2, 3, 8], PoolWindow::new(&[2])).unwrap();
        let said = PoolWindow::new(&[2]).stride(&[2]).dilation(&[1]).padding(&[0]);
        assert_eq!(plain, max(&[2, 3, 8], said).unwrap());
        let json = r#"{"x":{"dtype":"f32","dims":[2,3,8]},"pooling":"max","kernel":[2]}"#;
        assert_eq!(serde_json::to_string(&plain).unwrap(), json);
        let json = r#"{"x":{"dtype":"f32","dims":[2,3,8]},"pooling":"average","kernel":[3],"stride":[2],"padding":[[1,0]],"ceil_mode":true,"exclude_padding":true}"#;
        let average: PoolDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&average).unwrap(), json);
        assert_eq!(serde_json::to_string(&average.backward().unwrap()).unwrap(), json);
        let json = r#"{"x":{"dtype":"f32","dims":[2,3,8]},"pooling":"norm2","adaptive":[3]}"#;
        let norm: PoolDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&norm).unwrap(), json);
    }

    #[test]
    fn offsets_are_bytes_where_these_have_room() {
        let of = |window| max(&[1, 2, 40, 40], window).unwrap().offsets().unwrap().slots()[2].desc.dtype();
        assert_eq!(of(PoolWindow::new(&[16, 16])), DType::U8);
        assert_eq!(of(PoolWindow::new(&[16, 17])), DType::I32);
        assert_eq!(of(PoolWindow::adaptive(&[3, 3])), DType::U8);
        assert_eq!(of(PoolWindow::global()), DType::I32);
    }

    #[test]
    fn a_step_derives_offsets_that_forward_did_not_write() {
        let plain = max(&[2, 3, 8], PoolWindow::new(&[2])).unwrap();
        assert!(matches!(plain.backward(), Err(Error::SeveralSteps { .. })));
        let steps = plain.gradients(&["y"], &["x"]).unwrap();
        assert_eq!(steps.iter().map(|step| step.descriptor.name()).collect::<Vec<_>>(), ["pool", "pool_backward"]);
        assert_eq!(steps[0].role("offsets"), steps[1].role("offsets"));
        let steps = plain.offsets().unwrap().gradients(&["y"], &["x"]).unwrap();
        assert_eq!((steps.len(), steps[0].role("offsets")), (1, Some(&Role::Forward("offsets"))));
    }
}
