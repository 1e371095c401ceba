//! Padding and cropping.
//!
//! Along each axis, for the position `i` of y: `j = i - before`, and `y[i] = x[j]` where x has it. Elsewhere
//!
//! | mode | y\[i\] |
//! |---|---|
//! | `constant` | `value` |
//! | `reflect` | `x[-j]` before the first element, `x[2 (n - 1) - j]` behind the last |
//! | `replicate` | `x[0]`, `x[n - 1]` |
//! | `circular` | `x[j + n]`, `x[j - n]` |
//!
//! `n` is the extent of x. Amounts below 0 crop: y begins or ends inside x. With `interior`, of `constant` alone, `value` lies as often between two
//! neighbours: `y[i] = x[j / (interior + 1)]` where that is a whole number of x.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8 | any | in | always |
//! | `y` | along each axis `before + n + (n - 1) interior + after` | that of x | out | always |
//!
//! Units: amounts count elements, one for each axis of x in its order. (PyTorch's `F.pad` names the last axes first.)
//!
//! Layout and aliasing: any strides, 0 for x. y is dense unless [`layout`](PadDescriptor::layout) says otherwise. The operands do not overlap.
//!
//! Accumulation: none. The constant is rounded once to the type. NaN, infinity, empty: elements move as bits; a constant that is NaN has the payload
//! of the type's usual one. Of an x without elements `constant` makes a y of constants.
//!
//! Gradients: of `constant`, a slice of y's gradient, or two steps with `interior` and amounts below 0. Those of the other modes are sums over the
//! positions that read an element, which are refused.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: PyTorch's `torch.nn.functional.pad` for the modes and their limits; `jax.lax.pad` for `interior`.
//!
//! Kernel files: `csrc/movement/pad.cu`, `csrc/movement/pad.wgsl`, `cpu.rs`.

use serde::{Deserialize, Serialize};

use crate::backend::cpu::Operands as CpuOperands;
use crate::dtype::{DType, F8E4M3, F8E5M2};
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::json::{self, Whole};
use crate::kernel::{Accepted, Candidate};
use crate::narrow::single;
use crate::operands::{args, operands};
use crate::ops::fields::{beside, demand, relay, require};
use crate::ops::movement::copy::CopyDescriptor;
use crate::ops::movement::cpu;
use crate::ops::movement::geometry::{Axis, Edge, Moves, Outside, axis};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

/// What [`PadDescriptor`] puts where there is no element, with PyTorch's names. See the [formulas](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A number, which the type has to have: of integers a whole one.
    Constant(f64),
    /// The element mirrored at the first or last one.
    Reflect,
    /// The nearest element.
    Replicate,
    /// The element at the other end.
    Circular,
}

/// A mode without its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    #[default]
    Constant,
    Reflect,
    Replicate,
    Circular,
}

json::named!(Mode);

impl Mode {
    const ALL: [Self; 4] = [Self::Constant, Self::Reflect, Self::Replicate, Self::Circular];

    const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Reflect => "reflect",
            Self::Replicate => "replicate",
            Self::Circular => "circular",
        }
    }
}

/// A number; there is one NaN, and -0 is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "Word")]
pub(crate) struct Number {
    bits: u64,
    /// The whole number of the JSON, if f64 does not have it.
    inexact: Option<i128>,
}

/// A number in JSON, which has no digits for some.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a number, \"inf\", \"-inf\" or \"nan\"")]
enum Word {
    Whole(Whole),
    Number(f64),
    Name(String),
}

/// Names of numbers that have no digits.
const NAMES: [(&str, f64); 3] = [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY), ("nan", f64::NAN)];

impl Number {
    pub(in crate::ops) fn new(value: f64) -> Self {
        Self { bits: if value.is_nan() { f64::NAN } else { value }.to_bits(), inexact: None }
    }

    const fn get(self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// Forgets digits that f64 does not have, unless they tell numbers of a type apart: a floating-point type has the nearest number.
    pub(in crate::ops) fn forget_digits(&mut self, dtype: DType) {
        if dtype != DType::I64 {
            self.inexact = None;
        }
    }

    /// Its bits in a type, in the low bytes, as the value of a field.
    ///
    /// # Errors
    /// The type does not have it.
    pub(in crate::ops) fn bits_of(self, op: &'static str, field: &'static str, dtype: DType) -> Result<u64> {
        if let Some(number) = self.inexact {
            let rule =
                format!("must be a number of i64 that f64 has, which beyond 2^53 not every one is; got {number}");
            return Err(Error::InvalidDescriptor { op, field, rule });
        }
        let rule = || {
            let value = self.get();
            // Whole numbers with their digits, if these are few.
            let got = if value.abs() < 1e19 { format!("{value}") } else { format!("{value:e}") };
            let whole = if dtype.is_integer() { "whole " } else { "" };
            format!("must be a {whole}number of {dtype}, got {got}")
        };
        bits(dtype, self.get()).ok_or_else(|| Error::InvalidDescriptor { op, field, rule: rule() })
    }
}

impl TryFrom<Word> for Number {
    type Error = String;

    fn try_from(word: Word) -> Result<Self, String> {
        match word {
            Word::Whole(value) => Ok(Self { inexact: value.inexact(), ..Self::new(value.nearest()) }),
            Word::Number(value) => Ok(Self::new(value)),
            Word::Name(name) => match NAMES.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => Ok(Self::new(*value)),
                None => Err(format!("expected a number, \"inf\", \"-inf\" or \"nan\", got the string {name:?}")),
            },
        }
    }
}

impl From<Number> for Word {
    fn from(number: Number) -> Self {
        match NAMES.iter().find(|(_, value)| Number::new(*value) == number) {
            Some((name, _)) => Self::Name((*name).into()),
            None => Self::Number(number.get()),
        }
    }
}

/// The bits of a number in a type, in the low bytes, if the type has it: rounded for a floating-point type in whose range it is.
fn bits(dtype: DType, value: f64) -> Option<u64> {
    let in_range = |is_finite: bool| is_finite || !value.is_finite();
    let is_whole = value.trunc() == value;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number in the range of the type"
    )]
    match dtype {
        DType::F64 => Some(value.to_bits()),
        DType::F32 => {
            Some(single(value)).filter(|value| in_range(value.is_finite())).map(|value| value.to_bits().into())
        }
        DType::F16 => {
            let value = half::f16::from_f64(crate::backend::cpu::rounded(dtype, value));
            in_range(value.is_finite()).then(|| value.to_bits().into())
        }
        DType::BF16 => {
            let value = half::bf16::from_f64(crate::backend::cpu::rounded(dtype, value));
            in_range(value.is_finite()).then(|| value.to_bits().into())
        }
        DType::I64 => (is_whole && (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&value))
            .then(|| (value as i64).cast_unsigned()),
        DType::I32 => (is_whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value))
            .then(|| (value as i32).cast_unsigned().into()),
        DType::U32 => (is_whole && (0.0..=f64::from(u32::MAX)).contains(&value)).then(|| (value as u32).into()),
        DType::U8 => (is_whole && (0.0..=f64::from(u8::MAX)).contains(&value)).then(|| (value as u8).into()),
        DType::I8 => (is_whole && (f64::from(i8::MIN)..=f64::from(i8::MAX)).contains(&value))
            .then(|| (value as i8).cast_unsigned().into()),
        DType::Bool => (value == 0.0 || value == 1.0).then(|| (value as u8).into()),
        // Numbers from half a step beyond the greatest on would become it.
        DType::F8E4M3 => (value.is_nan() || value.abs() < 464.0).then(|| F8E4M3::from_f64(value).to_bits().into()),
        DType::F8E5M2 => {
            let value = F8E5M2::from_f64(value);
            in_range(value.to_f64().is_finite()).then(|| value.to_bits().into())
        }
    }
}

operands! { $
    /// The operands.
    mod forward {
        X x: In, always => "What is padded.";
        Y y: Out, always => "The padded tensor.";
    }
}

fields! {
    /// The fields. `interior` is empty where it is 0 along every axis; `value` is of the mode `constant`.
    Fields: Fields<Kind = (), Derived = Outside> + normalise {
        x: TensorDesc,
        before: Vec<i64>,
        after: Vec<i64>,
        interior: Vec<u64> = default,
        mode: Mode = default,
        value: Number = default,
    }
}

pub(super) type Valid = valid::Valid<Fields>;

impl Fields {
    fn of(x: TensorDesc, before: Vec<i64>, after: Vec<i64>, mode: PadMode) -> Self {
        let (mode, value) = match mode {
            PadMode::Constant(value) => (Mode::Constant, Number::new(value)),
            PadMode::Reflect => (Mode::Reflect, Number::default()),
            PadMode::Replicate => (Mode::Replicate, Number::default()),
            PadMode::Circular => (Mode::Circular, Number::default()),
        };
        Self { mode, value, ..Self::minimal(x, before, after) }
    }

    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])?;
        self.value.forget_digits(self.x.dtype());
        // Between no two elements there is nothing.
        for (interior, &extent) in self.interior.iter_mut().zip(self.x.dims()) {
            if extent <= 1 {
                *interior = 0;
            }
        }
        if self.interior.len() == self.x.rank() && self.interior.iter().all(|&interior| interior == 0) {
            self.interior.clear();
        }
        Ok(())
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Outside> {
        let Self { x, before, after, interior, mode, value, .. } = self;
        let rank = x.rank();
        for (field, count) in [("before", before.len()), ("after", after.len())] {
            require(op, field, count == rank, || {
                format!("must be one for each of the {rank} extents of x, got {count}")
            })?;
        }
        require(op, "interior", interior.is_empty() || interior.len() == rank, || {
            format!("must be one for each of the {rank} extents of x, or none; got {}", interior.len())
        })?;
        let is_constant = *mode == Mode::Constant;
        demand(
            op,
            "interior",
            is_constant || interior.is_empty(),
            "must be of the mode constant: no other puts anything between elements",
        )?;
        demand(
            op,
            "value",
            is_constant || *value == Number::default(),
            "must be of the mode constant: others take elements of x",
        )?;
        let dims = (0..rank).map(|axis| self.extent(op, axis)).collect::<Result<Vec<_>>>()?;
        let outside = match mode {
            Mode::Constant => Outside::Constant(value.bits_of(op, "value", x.dtype())?),
            Mode::Reflect => Outside::Reflect,
            Mode::Replicate => Outside::Replicate,
            Mode::Circular => Outside::Circular,
        };
        slots.declare(forward::X, *x)?;
        slots.declare(forward::Y, slots.derived(forward::Y, TensorDesc::contiguous(x.dtype(), &dims))?)?;
        Ok(outside)
    }

    /// Positions from one element to the next.
    fn dilation(&self, axis: usize) -> u64 {
        self.interior.get(axis).map_or(1, |interior| interior.saturating_add(1))
    }

    /// The extent of y along an axis.
    fn extent(&self, op: &'static str, axis: usize) -> Result<u64> {
        let (n, before, after) = (self.x.dims()[axis], self.before[axis], self.after[axis]);
        let spread = self.dilation(axis).checked_mul(n.saturating_sub(1)).and_then(|reach| reach.checked_add(n.min(1)));
        let total = |spread: u64| i64::try_from(spread).ok()?.checked_add(before)?.checked_add(after);
        // Extents of y, and positions between them, are numbers of 62 bits.
        const MOST: u64 = 1 << 62;
        let is_small = |amount: i64| amount.unsigned_abs() <= MOST;
        let Some((spread, total)) = spread
            .filter(|&spread| spread <= MOST && is_small(before) && is_small(after))
            .and_then(|s| Some((s, total(s)?)))
        else {
            let rule = format!(
                "must make extents of at most 2^62; along axis {axis}, {n} elements have {before} and {after} around and {} between them",
                self.dilation(axis) - 1
            );
            return Err(Error::InvalidDescriptor { op, field: "before", rule });
        };
        for (field, amount) in [("before", before), ("after", after)] {
            let outside = u64::try_from(amount).unwrap_or(0);
            require(op, field, amount >= 0 || amount.unsigned_abs() <= spread, || {
                format!("must crop at most what there is: along axis {axis}, {spread}; got {amount}")
            })?;
            let most = match self.mode {
                Mode::Reflect => n.saturating_sub(1),
                Mode::Circular => n,
                Mode::Replicate if n == 0 => 0,
                Mode::Constant | Mode::Replicate => continue,
            };
            require(op, field, outside <= most, || {
                let (mode, why) = (
                    self.mode.name(),
                    match self.mode {
                        Mode::Reflect => "padding size must be less than the corresponding extent of x",
                        Mode::Circular => "padding must not wrap around more than once",
                        _ => "there is no element to repeat",
                    },
                );
                format!(
                    "must be at most {most} along axis {axis} of {n} elements in the mode {mode}: {why}; got {amount}"
                )
            })?;
        }
        let extent = u64::try_from(total).ok();
        extent.ok_or_else(|| Error::InvalidDescriptor {
            op,
            field: "after",
            rule: format!(
                "must leave an extent of 0 or more along axis {axis}: {before} + {spread} + {after} is {total}"
            ),
        })
    }
}

/// What moves where, and what lies outside.
pub(super) fn moves(valid: &Valid) -> (Moves, Outside) {
    let [x, y] = [forward::X, forward::Y].map(|index| valid.slots.always(index).desc);
    let size = x.dtype().size_bytes();
    if y.is_empty() {
        return (Moves::new([axis(0, 0, 0)], [0; 2], size), valid.derived);
    }
    let along = |at: usize| {
        let (n, before, dilation) = (x.dims()[at], valid.fields.before[at], valid.fields.dilation(at));
        // Where there is one element, its number is 0; without elements none is read, and strides may be of any size.
        let from = if n > 1 && !x.is_empty() { crate::narrow::signed(x.strides()[at]) } else { 0 };
        let to = if y.dims()[at] > 1 { y.strides()[at] } else { 0 };
        Axis { extent: y.dims()[at], to, from, edge: Some(Edge { extent: n, before, dilation }) }
    };
    (Moves::new((0..x.rank()).map(along), [0; 2], size), valid.derived)
}

/// The alignment that both operands promise.
#[cfg(feature = "cuda")]
pub(super) fn align_bytes(valid: &Valid) -> u64 {
    [forward::X, forward::Y].map(|index| valid.slots.always(index).desc.align_bytes()).into_iter().min().unwrap_or(1)
}

/// The rows of the operands.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(super) const OPERANDS: [usize; 2] = [forward::X, forward::Y];

/// The elements of y's gradient that lie where those of x went.
fn derive(forward: &PadDescriptor, derivation: &mut Derivation) -> Result<()> {
    let Fields { x, before, after, interior, mode, .. } = &forward.0.fields;
    if *mode != Mode::Constant {
        let why = "is read several times in this mode: its gradient is a sum over positions, which no op computes; this mode has gradients:";
        return Err(Error::NoGradient {
            op: PadDescriptor::OP.name,
            operand: "x".into(),
            why,
            known: vec!["constant"],
        });
    }
    let mut dy = (forward.0.slots.always(forward::Y).desc, Role::GradientOf("y"));
    let of_x = ("y", Role::GradientFor(vec!["x"]));
    let crops = before.iter().chain(after).any(|&amount| amount < 0);
    let mut starts: Vec<u64> = before.iter().map(|amount| amount.unsigned_abs()).collect();
    if crops || x.is_empty() {
        // What was cropped has a gradient of 0; what was around x goes.
        let opposite = |amounts: &[i64]| amounts.iter().map(|amount| -amount).collect();
        let pad = PadDescriptor::new(dy.0, opposite(before), opposite(after), PadMode::Constant(0.0))?;
        if interior.is_empty() {
            derivation.push(pad.layout("y", beside(x)?)?, &[("x", dy.1), of_x]);
            return Ok(());
        }
        let whole = derivation.intermediate();
        dy.0 = pad.0.slots.always(forward::Y).desc;
        derivation.push(pad, &[("x", dy.1), ("y", whole.clone())]);
        dy.1 = whole;
        starts.fill(0);
    }
    let dilations = (0..x.rank()).map(|axis| i64::try_from(forward.0.fields.dilation(axis)).unwrap_or(i64::MAX));
    let slice = CopyDescriptor::slice(dy.0, starts, x.dims().to_vec(), dilations.collect())?;
    derivation.push(slice.layout("y", beside(x)?)?, &[("x", dy.1), of_x]);
    Ok(())
}

/// Pads on the CPU.
fn on_cpu(valid: &Valid) -> Accepted<'_> {
    let (moves, outside) = moves(valid);
    Ok(Candidate::on_cpu(move || {
        move |operands: &CpuOperands<'_>| {
            let Some(y) = operands.get(forward::Y) else { return };
            // Of an x without elements nothing is read.
            cpu::run(&moves, outside, operands.get(forward::X).as_ref().unwrap_or(&y), &y);
        }
    })
    .batch_invariant())
}

descriptor! {
    /// A tensor with further elements around it, or fewer. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, PadArgs, PadDescriptor, PadMode, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[4])?;
    /// let plan = Plan::new(&device, PadDescriptor::new(x, vec![2], vec![-1], PadMode::Reflect)?, &PlanOptions::default())?;
    /// let (x, mut y) = ([1f32, 2.0, 3.0, 4.0], [0f32; 5]);
    /// plan.run(&mut device.queue(), PadArgs::new(Mem::host(&x), MemMut::host(&mut y)), Workspace::none())?;
    /// assert_eq!(y, [3.0, 2.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    PadDescriptor(Fields): "pad", ();
    args: PadArgs of forward;
    plan: PadPlan;
    kernels: kernels!(cuda: super::cuda::pad; wgpu: super::wgpu::pad; cpu: on_cpu);
    gradients: ["y"] => ["x"], derive;
    /// A tensor with as many elements before the first and after the last of each axis; below 0 it is cropped.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is not one number for each extent of x, if more is cropped than there is, if an amount is as large as the
    /// extent for `Reflect` or larger for `Circular`, if `Replicate` has no element to repeat, or if the type does not have the constant.
    fn new(x: TensorDesc, before: Vec<i64>, after: Vec<i64>, mode: PadMode) = Fields::of(x, before, after, mode);
}

shared_steps! { PadDescriptor: layout }

steps! { PadDescriptor
    /// Puts the constant as often between two neighbours along each axis.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is not one number for each extent of x, in a mode other than `Constant`, or if an extent passes 2^62.
    interior(interior: Vec<u64>) = |it| it.with(|fields| fields.interior = interior);
}

args! {
    /// Operands of [`PadDescriptor`]; their shapes and types are in the [table](self).
    PadArgs of forward {
        /// The operands.
        new(x, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_has_the_bits_of_its_type() {
        assert_eq!(bits(DType::F16, -0.0), Some(0x8000));
        assert_eq!(bits(DType::BF16, 1.0), Some(0x3f80));
        assert_eq!(bits(DType::F32, f64::NEG_INFINITY), Some(0xff80_0000));
        assert_eq!((bits(DType::F16, 1e5), bits(DType::F32, 1e39)), (None, None));
        assert_eq!(bits(DType::I32, -1.0), Some(0xffff_ffff));
        assert_eq!(bits(DType::I64, -1.0), Some(u64::MAX));
        assert_eq!((bits(DType::I64, 9.3e18), bits(DType::I32, 0.5), bits(DType::U32, -1.0)), (None, None, None));
        assert_eq!((bits(DType::I64, f64::NAN), bits(DType::U32, f64::INFINITY)), (None, None));
    }

    #[test]
    fn a_whole_constant_that_f64_does_not_have_is_refused_for_integers() {
        use crate::plan::Descriptor;
        let read = |dtype: &str, value: &str| {
            let json = format!(r#"{{"x":{{"dtype":"{dtype}","dims":[2]}},"before":[1],"after":[0],"value":{value}}}"#);
            PadDescriptor::from_json(&json)
        };
        for value in ["9007199254740993", "-9223372036854775807", "9223372036854775807"] {
            let error = read("i64", value).unwrap_err().to_string();
            assert!(error.contains("value: must be a number of i64 that f64 has"), "{error}");
            assert!(error.contains(&format!("got {value}")), "{error}");
            // A floating-point type has the nearest number, and is told apart by that alone.
            let rounded = value.parse::<f64>().unwrap();
            assert_eq!(read("f32", value).unwrap(), read("f32", &format!("{rounded:e}")).unwrap());
        }
        read("i64", "-9223372036854775808").unwrap();
    }
}
