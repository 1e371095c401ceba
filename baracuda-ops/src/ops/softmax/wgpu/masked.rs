//! The form of biases and masks, and of the gradients of such: lines of any layout, element by element.

use super::super::masked::Lines;
use super::super::{BackwardFields, ForwardFields, Valid, check_masked};
use crate::backend::wgpu::{Binder, Props, ShaderType, StepBuilder, Work, check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::valid::Fields;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Elements of a chunk.
const ELEMENTS: u64 = 4;
/// Chunks of a line that a thread holds.
const MOST_HELD: u64 = 8;
/// Chunks of a line that a thread may take: with 256 of them 42 additions follow one another.
const MOST_ROUNDS: u64 = 256;
/// Extents of a line's number, and operands.
const EXTENTS: usize = 8;
const OPERANDS: usize = 3;

/// What the passes differ in.
pub(in super::super) trait Masked: Fields<Derived = Option<Lines>> {
    const ENTRY: &'static str;
    const FILE: &'static str;
    fn numbers(&self) -> (bool, f64);
}

impl Masked for ForwardFields {
    const ENTRY: &'static str = "softmax_masked";
    const FILE: &'static str = "softmax/softmax_masked";

    fn numbers(&self) -> (bool, f64) {
        (self.log, self.scale.get())
    }
}

impl Masked for BackwardFields {
    const ENTRY: &'static str = "softmax_backward_masked";
    const FILE: &'static str = "softmax/softmax_backward_masked";

    fn numbers(&self) -> (bool, f64) {
        (self.log, self.scale.get())
    }
}

/// The accessors of operands of any strides.
fn accessors(dtype: DType, is_output: bool) -> Result<[&'static str; 2], Reason> {
    Ok(match (ShaderType::of(dtype)?.is_half(), is_output) {
        (true, false) => ["scattered_half_in"; 2],
        (true, true) => ["scattered_half_out"; 2],
        (false, false) => ["scattered_f32_in"; 2],
        (false, true) => ["scattered_f32_out"; 2],
    })
}

/// Lines with a bias or a mask, and the gradient of softmax, of any layout.
pub(in super::super) fn masked<F: Masked>(softmax: &Valid<F>, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let lines = check_masked(softmax.derived.as_ref())?;
    check_reach(softmax.slots.iter(), &[], props)?;
    let types = softmax.slots.iter().map(|slot| ShaderType::of(slot.desc.dtype()));
    let types = types.collect::<Result<Vec<_>, Reason>>()?;
    if lines.count == 0 {
        return Ok(Work::none((), props).batch_invariant_if(true));
    }
    let workgroup = u64::from(WORKGROUP.min(props.max_threads));
    let chunks = lines.dim.div_ceil(ELEMENTS);
    let threads = chunks.next_power_of_two().min(workgroup);
    let rounds = chunks.div_ceil(threads);
    Reason::unless(rounds <= MOST_ROUNDS, || {
        let most = MOST_ROUNDS * ELEMENTS * workgroup;
        format!(
            "lines of {} elements are longer than {most}, beyond which too many additions follow one another",
            lines.dim
        )
    })?;
    let grid = groups(lines.count.div_ceil(workgroup / threads), props)?;
    let (is_log, scale) = softmax.fields.numbers();
    let half = types.iter().find(|of| of.is_half()).copied().unwrap_or(ShaderType::F16);
    let binder = Binder { slots: &softmax.slots };
    let mut step = StepBuilder::new(
        F::ENTRY,
        vec![half.file(), "common/exponential", "softmax/line_chunks", "softmax/softmax_lines", F::FILE],
        params(lines, grid[0], scale),
        grid,
    );
    let (last, has_bias) = (softmax.slots.len() - 1, softmax.slots.len() == OPERANDS);
    for (at, (slot, of)) in softmax.slots.iter().zip(&types).enumerate() {
        step.bindings.push(binder.operand(slot.index, accessors(slot.desc.dtype(), at == last)?, "absent_in"));
        let flag = match slot.name {
            "x" | "dx" => "X_IS_HALF",
            "bias" => "BIAS_IS_HALF",
            "y" => "Y_IS_HALF",
            _ => continue,
        };
        step.flags.push((flag, of.is_half()));
    }
    step.flags.push(("LOG", is_log));
    if F::ENTRY == ForwardFields::ENTRY {
        step.flags.extend([("HAS_BIAS", has_bias), ("HOLDS", rounds <= MOST_HELD)]);
        if !has_bias {
            step.flags.push(("BIAS_IS_HALF", false));
            step.generated =
                "fn bias_gather(first: u32, step: u32, count: u32) -> vec4<u32> {\n    return vec4<u32>();\n}\n".into();
        }
    }
    step.constants = vec![
        ("WORKGROUP", word(workgroup)),
        ("THREADS", word(threads)),
        ("ROUNDS", word(rounds)),
        ("HELD", word(if rounds <= MOST_HELD { rounds } else { 1 })),
        ("ELEMENTS", word(ELEMENTS)),
        ("QUADS", 1),
    ];
    let steps = vec![step];
    check_bindings(&steps, props)?;
    Ok(Work { steps, ..Work::none((), props) }.batch_invariant_if(true))
}

/// The params of the shaders.
fn params(lines: &Lines, groups_x: u32, scale: f64) -> Vec<u8> {
    let rank = lines.extents.len();
    let mut params = vec![
        word(lines.count),
        word(lines.dim),
        lines.queries().map_or(0, word),
        word(rank as u64),
        groups_x,
        u32::MAX,
        single(scale).to_bits(),
        0,
    ];
    let mut put = |numbers: &mut dyn Iterator<Item = u32>| {
        let first = params.len();
        params.extend(numbers);
        params.resize(first + EXTENTS, 0);
    };
    put(&mut lines.extents.iter().rev().map(|&extent| word(extent)));
    for operand in 0..OPERANDS {
        let strides = lines.strides.get(operand).map_or(&[][..], |strides| &strides[..]);
        put(&mut strides.iter().rev().map(|&step| stride(step)));
    }
    let steps = (0..4).map(|operand| lines.steps.get(operand).copied().map_or(0, stride));
    params.extend(steps);
    bytemuck::cast_slice(&params).to_vec()
}
