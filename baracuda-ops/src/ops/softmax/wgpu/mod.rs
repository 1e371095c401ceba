//! The WGSL kernels: what they bind, and the dispatches of forward and backward.

mod masked;
mod spread;
mod variants;

use super::geometry::{Tensors, check_channels, check_rows};
use super::{BackwardFields, ForwardFields, Valid, check_unmasked};
use crate::backend::wgpu::{
    Binder, Binding, Props, ShaderType, StepBuilder, Work, check_bindings, check_reach, check_workspace, groups,
    padded, params,
};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::samples::are_packed;
use crate::ops::valid::Fields;
use crate::slots::Slots;

pub(super) use masked::masked;
use spread::{ShaderLines, Spread, Tables};
pub(in crate::ops) use variants::add_variants;

/// A form of both passes, in the order of preference: rows that teams hold; rows that workgroups read twice, where they are many; lines side by side
/// that workgroups hold; slices of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    RowsResident,
    /// Forward alone.
    RowsTwice,
    ChannelsResident,
    Split,
}

/// The entry points of one file: whole lines on chip, and the two of split lines.
struct Entries {
    file: &'static str,
    resident: &'static str,
    split_parts: &'static str,
    split_apply: &'static str,
}

/// The entry points of a file of this folder, which all begin with its name.
macro_rules! entries {
    ($stem:literal) => {
        Entries {
            file: concat!("softmax/", $stem),
            resident: concat!($stem, "_resident"),
            split_parts: concat!($stem, "_split_parts"),
            split_apply: concat!($stem, "_split_apply"),
        }
    };
}

/// What forward and backward differ in.
struct PassShaders {
    file: &'static str,
    rows: Entries,
    channels: Entries,
    inputs: &'static [usize],
    output: usize,
    tables: Tables,
}

const FORWARD: PassShaders = PassShaders {
    file: "softmax/softmax",
    rows: entries!("softmax_rows"),
    channels: entries!("softmax_channels"),
    inputs: &[super::forward::X],
    output: super::forward::Y,
    tables: spread::FORWARD,
};

const BACKWARD: PassShaders = PassShaders {
    file: "softmax/softmax_backward",
    rows: entries!("softmax_backward_rows"),
    channels: entries!("softmax_backward_channels"),
    inputs: &[super::backward::Y, super::backward::DY],
    output: super::backward::DX,
    tables: spread::BACKWARD,
};

/// |scale| as the shaders take it: a power of two, and the scale that is left.
struct Scale {
    /// What elements are multiplied by first: 1, or a smaller power of two if |scale| is below 1, so that elements differ by a finite number wherever
    /// the scaled ones do.
    lessening: f32,
    /// The scale that is left; if it is `long`, its first bits, few enough for exact products.
    high: f32,
    /// The part of the scale that `high` leaves out.
    rest: f32,
    /// The whole scale over log(2).
    log2: f32,
    is_long: bool,
    /// 0, or next to it: below `FLAT_BELOW`.
    is_flat: bool,
}

/// 2^-64. If |scale| is below it, elements are multiplied by it first, and |scale| is divided by it. The greatest elements then differ by 2^65, which is
/// finite, and what is left of |scale| is a normal number down to 2^-190. With a larger power it would be subnormal sooner; with a smaller one more of the
/// elements would be.
const TINY: f64 = 5.421010862427522e-20;
/// |scale| below which the shader leaves padding, which is -infinity, out of sums: times a scale that the driver flushes to 0 it would be NaN. That
/// happens below 2^-190, where the scale over `TINY` is subnormal; this limit is far above it.
const FLAT_BELOW: f64 = 1e-30;

impl Scale {
    fn new(scale: f64) -> Self {
        // Next to 0 the scale would have a rest that is subnormal, which drivers may flush to 0.
        let lessening = match scale.abs() {
            magnitude if magnitude < TINY => single(TINY),
            magnitude if magnitude < 1.0 => 0.5,
            _ => 1.0,
        };
        let magnitude = (scale.abs() / f64::from(lessening)).min(f64::from(f32::MAX));
        let whole = single(magnitude);
        let is_power_of_two = f64::from(whole) == magnitude && whole.to_bits().trailing_zeros() >= 23;
        let high = if is_power_of_two { whole } else { f32::from_bits(whole.to_bits() & 0xffff_f000) };
        let rest = single(magnitude - f64::from(high));
        let log2 = single((magnitude * std::f64::consts::LOG2_E).min(f64::from(f32::MAX)));
        Self { lessening, high, rest, log2, is_long: !is_power_of_two, is_flat: scale.abs() < FLAT_BELOW }
    }
}

/// Keeps compilers from seeing that a mask keeps every bit.
const ALL_BITS: u32 = u32::MAX;

/// The fields of a pass.
pub(super) trait Pass: Fields {
    /// The dispatches of a form.
    fn work(softmax: &Valid<Self>, form: Form, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason>;
}

impl Pass for ForwardFields {
    fn work(softmax: &Valid<Self>, form: Form, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason> {
        let fields = &softmax.fields;
        check_unmasked(softmax.fields.is_masked())?;
        form.check_axis(&softmax.slots, fields.axis)?;
        let scale = Scale::new(fields.scale.get());
        let flags = vec![
            ("LOG", fields.log),
            ("NEGATIVE", fields.scale.get() < 0.0),
            ("LESSENED", scale.lessening != 1.0),
            ("SCALED", scale.high != 1.0 || scale.rest != 0.0),
            ("LONG_SCALE", scale.is_long),
            ("FLAT", scale.is_flat),
        ];
        // With a scale of 0, infinite elements leave no result either.
        let is_zero = scale.high == 0.0 && scale.rest == 0.0;
        let largest_trace = if is_zero { f32::MAX.to_bits() } else { f32::INFINITY.to_bits() };
        work(&FORWARD, form, &softmax.slots, fields.axis, &flags, (props, ask), |view, spread, groups_x| {
            let [x, y] = [0, 1].map(|tensor| view.strides(tensor));
            params! {
                lines: [u32; 8] = view.words(),
                x: [u32; 4] = padded(x),
                y: [u32; 3] = y,
                x_step: u32 = stride(view.lines.steps[0]),
                y_step: u32 = stride(view.lines.steps[1]),
                scale: f32 = scale.high,
                scale_rest: f32 = scale.rest,
                slices: u32 = word(spread.slices),
                groups_x: u32 = groups_x,
                columns: u32 = word(spread.columns),
                rounds: u32 = word(spread.rounds),
                largest_trace: u32 = largest_trace,
                all_bits: u32 = ALL_BITS,
                scale_log2: f32 = scale.log2,
                lessening: f32 = scale.lessening,
                padding_after: u32 = 0,
            }
        })
    }
}

impl Pass for BackwardFields {
    fn work(softmax: &Valid<Self>, form: Form, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason> {
        let fields = &softmax.fields;
        check_unmasked(softmax.fields.is_masked())?;
        form.check_axis(&softmax.slots, fields.axis)?;
        let flags = vec![("LOG", fields.log)];
        work(&BACKWARD, form, &softmax.slots, fields.axis, &flags, (props, ask), |view, spread, groups_x| {
            let [y, dy, dx] = [0, 1, 2].map(|tensor| view.strides(tensor));
            params! {
                lines: [u32; 8] = view.words(),
                y: [u32; 4] = padded(y),
                dy: [u32; 4] = padded(dy),
                dx: [u32; 3] = dx,
                y_step: u32 = stride(view.lines.steps[0]),
                dy_step: u32 = stride(view.lines.steps[1]),
                dx_step: u32 = stride(view.lines.steps[2]),
                scale: f32 = single(fields.scale.get()),
                slices: u32 = word(spread.slices),
                groups_x: u32 = groups_x,
                columns: u32 = word(spread.columns),
                rounds: u32 = word(spread.rounds),
                all_bits: u32 = ALL_BITS,
            }
        })
    }
}

/// What was chosen. `workgroup` counts threads; `chunks` counts chunks of 16 bytes: of a row and thread, or of the lines of a column and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Empty,
    RowsResident { workgroup: u32, threads_per_row: u32, chunks: u32 },
    RowsTwice { workgroup: u32, chunks: u32, slices: u32 },
    ChannelsResident { workgroup: u32, threads_per_line: u32, chunks: u32 },
    Split { workgroup: u32, threads_per_line: u32, chunks: u32, slices: u32 },
}

impl Chosen {
    fn new(form: Form, spread: &Spread) -> Self {
        let (workgroup, depth, chunks, slices) =
            (spread.workgroup(), spread.depth(), spread.chunks(), word(spread.slices));
        match form {
            Form::RowsResident => Self::RowsResident { workgroup, threads_per_row: depth, chunks },
            Form::RowsTwice => Self::RowsTwice { workgroup, chunks, slices },
            Form::ChannelsResident => Self::ChannelsResident { workgroup, threads_per_line: depth, chunks },
            Form::Split => Self::Split { workgroup, threads_per_line: depth, chunks, slices },
        }
    }
}

impl Form {
    fn check_axis(self, slots: &Slots, axis: usize) -> Result<(), Reason> {
        match self {
            Self::RowsResident | Self::RowsTwice => check_rows(slots, axis),
            Self::ChannelsResident => check_channels(slots, axis),
            Self::Split => Ok(()),
        }
    }
}

pub(super) fn rows_resident<F: Pass>(softmax: &Valid<F>, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason> {
    F::work(softmax, Form::RowsResident, props, ask)
}

/// Only forward has it.
pub(super) fn rows_twice(softmax: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason> {
    Pass::work(softmax, Form::RowsTwice, props, ask)
}

pub(super) fn channels_resident<F: Pass>(softmax: &Valid<F>, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason> {
    F::work(softmax, Form::ChannelsResident, props, ask)
}

pub(super) fn split<F: Pass>(softmax: &Valid<F>, props: &Props, ask: Ask) -> Result<Work<Chosen>, Reason> {
    F::work(softmax, Form::Split, props, ask)
}

/// The dispatches of a form over the lines of `slots`, of which the last is the output.
fn work(
    pass: &PassShaders,
    form: Form,
    slots: &Slots,
    axis: usize,
    flags: &[(&'static str, bool)],
    (props, ask): (&Props, Ask),
    params: impl Fn(&ShaderLines, &Spread, u32) -> Vec<u8>,
) -> Result<Work<Chosen>, Reason> {
    let tensors = Tensors::of(slots)?;
    let (dtype, other) = (tensors.dtype, tensors.other);
    let (shader_type, other_type) = (ShaderType::of(dtype)?, ShaderType::of(other)?);
    check_reach(slots.iter(), &[], props)?;
    let geometry = tensors.geometry(axis)?;
    if geometry.outer == 0 {
        return Ok(Work::none(Chosen::Empty, props).batch_invariant_if(true));
    }
    // Lines side by side are those of one sample, if they are long and samples follow one another.
    let are_of_samples =
        slots.iter().all(|slot| are_packed(&slot.desc, axis)) && (geometry.dim > 1 || geometry.is_rows());
    let view = ShaderLines::new(geometry, dtype);
    let spread = match form {
        Form::RowsResident => Spread::rows_resident(&view, &pass.tables, props, ask)?,
        Form::RowsTwice => Spread::rows_twice(&view, &pass.tables, props, ask)?,
        Form::ChannelsResident => Spread::channels_resident(&view, &pass.tables, props, ask)?,
        Form::Split => Spread::split(&view, &pass.tables, props),
    };
    let grid = groups(spread.groups, props)?;
    let workspace_bytes = 16 * spread.workspace_quads;
    check_workspace(workspace_bytes, props)?;
    let params = params(&view, &spread, grid[0]);

    let operands = Binder { slots };
    let is_other = |operand: usize| slots.at(operand).is_some_and(|slot| slot.desc.dtype() != dtype);
    let input = |operand| {
        let widened = ["widened_pairs_in", "widened_halves_in"];
        operands.operand(operand, if is_other(operand) { widened } else { shader_type.chunks_in() }, "absent_in")
    };
    let narrowed = ["narrowed_pairs_out", "narrowed_halves_out"];
    let output = if is_other(pass.output) { narrowed } else { shader_type.chunks_out() };
    let entries = if view.lines.is_rows() { &pass.rows } else { &pass.channels };
    let step = |entry, keeps: bool, has_output: bool| {
        let mut files = shader_type.prelude();
        if other != dtype {
            // How its elements are packed, the first file of their prelude.
            files.extend(other_type.prelude().first());
        }
        files.extend(["common/exponential", "common/team", "common/chunk", "common/row"]);
        files.extend(spread.files());
        files.extend([pass.file, entries.file]);
        let mut bindings: Vec<Binding> = pass.inputs.iter().map(|&operand| input(operand)).collect();
        bindings.push(match has_output {
            true => operands.operand(pass.output, output, "absent_out"),
            false => operands.absent(pass.output, "absent_out"),
        });
        bindings.push(Binding::partials("parts", 0, workspace_bytes, "partials_out"));
        StepBuilder {
            constants: spread.constants(),
            flags: flags.iter().copied().chain(spread.flags(keeps)).collect(),
            bindings,
            can_chunk: view.can_chunk,
            // NVIDIA's driver makes slower code of lines in registers whose params are immediates.
            keeps_uniform: !view.lines.is_rows(),
            ..StepBuilder::new(entry, files, params.clone(), grid)
        }
    };
    let steps = match form {
        Form::RowsResident | Form::ChannelsResident => vec![step(entries.resident, true, true)],
        Form::RowsTwice => vec![step("softmax_rows_twice", false, true)],
        Form::Split => vec![step(entries.split_parts, true, false), step(entries.split_apply, false, true)],
    };
    check_bindings(&steps, props)?;
    let choice = Chosen::new(form, &spread);
    let work = Work { steps, workspace_bytes, ..Work::none(choice, props) };
    Ok(work.batch_invariant_if(ask.is_invariant() && are_of_samples))
}

#[cfg(test)]
mod tests {
    use super::super::SoftmaxDescriptor;
    use super::*;
    use crate::backend::wgpu::Variants;
    use crate::dtype::DType;
    use crate::tensor::TensorDesc;

    fn variant_props(width: Option<u32>) -> Props {
        Variants::device(width.map(|width| (width, width)))
    }

    const FORMS: [Form; 4] = [Form::RowsResident, Form::RowsTwice, Form::ChannelsResident, Form::Split];

    fn chosen(softmax: &SoftmaxDescriptor, props: &Props) -> Option<Work<Chosen>> {
        FORMS.into_iter().find_map(|form| Pass::work(&softmax.0, form, props, Ask::Chosen).ok())
    }

    /// Dispatches of forward and of backward.
    fn launches(dims: &[u64], axis: usize, width: Option<u32>) -> (usize, usize) {
        let x = TensorDesc::contiguous(DType::BF16, dims).unwrap();
        let props = variant_props(width);
        let forward = SoftmaxDescriptor::new(x, axis).unwrap();
        let backward = forward.backward().unwrap();
        let backward = FORMS.into_iter().find_map(|form| Pass::work(&backward.0, form, &props, Ask::Chosen).ok());
        (chosen(&forward, &props).unwrap().steps.len(), backward.unwrap().steps.len())
    }

    #[test]
    fn a_form_that_is_pinned_takes_what_another_does_better() {
        let (props, plain) = (variant_props(Some(32)), variant_props(None));
        let softmax =
            |dims: &[u64]| SoftmaxDescriptor::new(TensorDesc::contiguous(DType::F32, dims).unwrap(), 1).unwrap();
        for (dims, form) in [
            (&[3, 16384][..], Form::RowsResident),
            (&[3, 40], Form::RowsTwice),
            (&[1, 1000, 4], Form::ChannelsResident),
            (&[3, 40], Form::Split),
            (&[3, 4, 40], Form::Split),
        ] {
            let work = Pass::work(&softmax(dims).0, form, &props, Ask::Pinned).unwrap();
            assert_eq!(work.steps.len(), if form == Form::Split { 2 } else { 1 }, "{dims:?}");
            assert_ne!(chosen(&softmax(dims), &props).unwrap().choice, work.choice, "{dims:?}");
        }
        let reason =
            |dims, form, props| Pass::work(&softmax(dims).0, form, props, Ask::Pinned).err().unwrap().to_string();
        assert!(reason(&[3, 1 << 20], Form::RowsTwice, &props).contains("at most 32768"));
        assert!(reason(&[3, 40], Form::RowsTwice, &plain).contains("1024 threads"));
        assert!(reason(&[3, 4, 40], Form::RowsResident, &props).contains("not dense"));
        assert!(reason(&[3, 40], Form::ChannelsResident, &props).contains("the axis is dense"));
        assert!(reason(&[1, 20_000, 64], Form::ChannelsResident, &props).contains("20000 elements"));
    }

    #[test]
    fn a_line_stays_on_chip_while_it_fits() {
        for (dims, expected) in [
            (&[1000, 16384][..], (1, 1)),
            (&[1000, 65536], (1, 2)),
            (&[50, 65536], (2, 2)),
            (&[100, 1 << 20], (2, 2)),
            (&[2, 1000, 64, 64], (1, 2)),
            (&[2, 20_000, 64], (2, 2)),
            (&[0, 16384], (0, 0)),
        ] {
            assert_eq!(launches(dims, 1, Some(32)), expected, "{dims:?}");
        }
    }

    #[test]
    fn a_scale_is_exact_or_in_two_parts() {
        let of = |scale| {
            let Scale { lessening, high, rest, is_long, is_flat, .. } = Scale::new(scale);
            ((f64::from(high) + f64::from(rest)) * f64::from(lessening), is_long, is_flat)
        };
        assert_eq!(of(-0.125), (0.125, false, false));
        assert_eq!(of(0.0), (0.0, false, true));
        let (value, is_long, _) = of(0.1);
        assert!(is_long && (value - 0.1).abs() < 1e-12);
        assert!((of(2e-38).0 / 2e-38 - 1.0).abs() < 1e-10);
        assert_eq!(of(1e300).0, f64::from(f32::MAX));
    }

    #[test]
    fn refuses_what_only_the_reference_serves() {
        let columns = TensorDesc::strided(DType::F32, &[5, 33], &[66, 2]).unwrap();
        assert!(chosen(&SoftmaxDescriptor::new(columns, 1).unwrap(), &variant_props(None)).is_none());
        let f64s = TensorDesc::contiguous(DType::F64, &[4, 4]).unwrap();
        assert!(chosen(&SoftmaxDescriptor::new(f64s, 1).unwrap(), &variant_props(None)).is_none());
    }
}
