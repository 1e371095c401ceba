//! The WGSL kernels: a tile of queries, of keys or of the bias to a workgroup.

use super::geometry::{Geometry, Mask};
use super::{BackwardFields, ForwardFields, Gradient, Valid, backward as rows_of_backward, forward as rows_of_forward};
use crate::backend::wgpu::{
    Binding, Place, Props, ShaderType, StepBuilder, Variants, Work, check_bindings, check_reach, check_workspace,
    groups,
};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::movement::wgpu::{binding, bytes};
use crate::slots::Slots;
use crate::tensor::TensorDesc;

type Made<T> = std::result::Result<T, Reason>;

/// Rows and columns of a tile, and threads of a workgroup, as in the shaders.
const TILE: u64 = 32;
const THREADS: u64 = 128;
/// Queries and keys that are counted in 32 bits with a sign, with room for windows and tiles.
const MOST_ROWS: u64 = 1 << 29;
/// A window without a bound.
const UNBOUNDED: u64 = 1 << 30;
/// Elements of a chunk, as accessors of single elements count.
const ELEMENTS: u32 = 4;

/// Matrices that shaders tell apart by their numbers among the strides.
const MATRICES: usize = 11;

/// What the shaders of a plan have in common.
struct Told<'v> {
    geometry: &'v Geometry,
    slots: &'v Slots,
    dtype: DType,
    half: ShaderType,
    /// The rows of the operands whose strides shaders take, by their numbers.
    rows: [Option<usize>; MATRICES],
    lengths: usize,
    bias: usize,
    /// Of dq, dk, dv and dbias.
    betas: [f64; 4],
}

/// The accessors of single elements.
fn scattered(dtype: DType) -> [&'static str; 3] {
    match dtype.size_bytes() {
        1 => ["scattered_byte_in", "scattered_byte_out", "updated_byte_out"],
        2 => ["scattered_half_in", "scattered_half_out", "updated_half_out"],
        _ => ["scattered_f32_in", "scattered_f32_out", "updated_f32_out"],
    }
}

/// A function that reads the bits of an element.
fn read(name: &str, bits: Option<&str>) -> String {
    let value = bits.unwrap_or("0u");
    format!("fn {name}(at: u32) -> u32 {{\n    return {value};\n}}\n")
}

/// A function that writes the bits of an element, if the operand is there.
fn written(name: &str, operand: &str, is_there: bool) -> String {
    let store = format!("    {operand}_scatter(at, 1u, 1u, vec4<u32>(bits, 0u, 0u, 0u));\n");
    format!("fn {name}(at: u32, bits: u32) {{\n{}}}\n", if is_there { &store } else { "" })
}

impl<'v> Told<'v> {
    fn new(
        geometry: &'v Geometry,
        slots: &'v Slots,
        dtype: DType,
        [lengths, bias]: [usize; 2],
        rows: [Option<usize>; MATRICES],
        betas: [f64; 4],
        props: &Props,
    ) -> Made<Self> {
        let of_q = ShaderType::of(dtype)?;
        check_reach(slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
        for (what, count) in [("queries", geometry.queries), ("keys", geometry.keys)] {
            Reason::unless(count <= MOST_ROWS, || {
                format!("it counts {what} in 32 bits, of which there are {count}, the limit is {MOST_ROWS}")
            })?;
        }
        let half = if of_q.is_half() { of_q } else { ShaderType::F16 };
        Ok(Self { geometry, slots, dtype, half, rows, lengths, bias, betas })
    }

    fn is_half(&self) -> bool {
        self.dtype.size_bytes() == 2
    }

    fn bias_dtype(&self) -> Option<DType> {
        match self.geometry.mask {
            Mask::None => None,
            Mask::Bool => Some(DType::Bool),
            Mask::Bias(dtype) => Some(dtype),
        }
    }

    /// The strides of a matrix, of the bias with 0 where it is repeated. In the place of the columns of lse are those of the lengths.
    fn strides(&self, number: usize) -> [u32; 4] {
        let Some(row) = self.rows.get(number).copied().flatten() else { return [0; 4] };
        let of = |desc: &TensorDesc| {
            let mut own = [0; 4];
            own[4 - desc.rank()..].copy_from_slice(desc.strides());
            own
        };
        let slot = self.slots.at(row).map(|slot| slot.desc);
        let own = match (number, &self.geometry.bias) {
            (3, Some(bias)) => of(bias),
            (5, _) => {
                let lse = slot.map_or([0; 3], |desc| std::array::from_fn(|axis| desc.strides()[axis]));
                let lengths = self.slots.at(self.lengths).map_or(0, |slot| slot.desc.strides()[0]);
                [lse[0], lse[1], lse[2], lengths]
            }
            _ => slot.as_ref().map_or([0; 4], of),
        };
        own.map(stride)
    }

    /// `tiles`: of rows, each with `heads`.
    fn params(&self, tiles: u64, heads: u64, groups_x: u32) -> Vec<u8> {
        let it = self.geometry;
        let bound = |keys: Option<u64>| word(keys.unwrap_or(UNBOUNDED).min(UNBOUNDED));
        let real = |value: f64| single(value).to_bits();
        let soft_cap = it.soft_cap.map_or(0.0, |cap| cap.get());
        let mut words = vec![
            [word(it.samples), word(it.heads), word(it.group()), groups_x],
            [word(it.queries), word(it.keys), word(it.depth), word(it.value_depth)],
            [word(tiles), it.from_end.into(), bound(it.left), bound(it.right)],
            [real(it.scale.get()), real(soft_cap), u32::MAX, word(heads)],
            it.bias_dims.map(word),
            self.betas.map(real),
        ];
        words.extend((0..MATRICES).map(|number| self.strides(number)));
        bytes(&words)
    }

    /// A dispatch. `workgroups`: how many it needs; `files`: besides those of all.
    fn step(
        &self,
        entry: &'static str,
        files: &[&'static str],
        workgroups: u64,
        [tiles, heads]: [u64; 2],
        props: &Props,
    ) -> Made<StepBuilder> {
        let grid = groups(workgroups, props)?;
        let mut all = vec![self.half.file(), "common/exponential", "common/activation", "common/subnormal"];
        all.push("attention/attention_tiles");
        all.extend(files);
        let mut step = StepBuilder::new(entry, all, self.params(tiles, heads, grid[0]), grid);
        let chunks = self.geometry.depth.max(self.geometry.value_depth).div_ceil(TILE).next_power_of_two();
        step.constants = vec![("ELEMENTS", ELEMENTS), ("CHUNKS", word(chunks))];
        let of_bias = self.bias_dtype();
        let lengths = self.geometry.lengths;
        step.flags = vec![
            ("IS_HALF", self.is_half()),
            ("HAS_CAP", self.geometry.soft_cap.is_some()),
            ("HAS_BIAS", of_bias.is_some()),
            ("BIAS_IS_BOOL", of_bias == Some(DType::Bool)),
            ("BIAS_IS_HALF", of_bias.is_some_and(|dtype| dtype.size_bytes() == 2)),
            ("HAS_LENGTHS", lengths.is_some()),
            ("LENGTHS_ARE_WIDE", lengths == Some(DType::I64)),
            ("LENGTHS_ARE_SIGNED", lengths == Some(DType::I32)),
        ];
        step.ignores_layouts = true;
        Ok(step)
    }

    /// Binds what a dispatch reads of these operands, or has functions that read nothing where an operand has no elements.
    fn bind_inputs(&self, step: &mut StepBuilder, inputs: &[(&'static str, usize, DType)]) {
        for &(name, row, dtype) in inputs {
            if self.slots.at(row).is_some_and(|slot| !slot.desc.is_empty()) {
                step.bindings.push(binding(name, row, [scattered(dtype)[0]; 2]));
            } else {
                step.generated += &read(&format!("{name}_bits"), None);
            }
        }
    }

    fn bind_bias(&self, step: &mut StepBuilder) {
        self.bind_inputs(step, &[("bias", self.bias, self.bias_dtype().unwrap_or(DType::F32))]);
    }

    fn bind_lengths(&self, step: &mut StepBuilder) {
        self.bind_inputs(step, &[("lengths", self.lengths, DType::U32)]);
    }
}

/// The form of forward.
pub(super) fn forward(valid: &Valid<ForwardFields>, props: &Props, _: Ask) -> Made<Work<()>> {
    use rows_of_forward::{BIAS, K, LENGTHS, LSE, Q, V, Y};
    let (geometry, slots) = (&valid.derived, &valid.slots);
    let dtype = valid.fields.q.dtype();
    let rows = [Some(Q), Some(K), Some(V), Some(BIAS), Some(Y), Some(LSE), None, None, None, None, None];
    let told = Told::new(geometry, slots, dtype, [LENGTHS, BIAS], rows, [0.0; 4], props)?;
    let mut work = Work::none((), props);
    if slots.always(Y).desc.is_empty() {
        return Ok(work);
    }
    let tiles = geometry.queries.div_ceil(TILE);
    let count = geometry.samples * geometry.heads * tiles;
    let files = ["attention/attention_lengths", "attention/attention"];
    let mut step = told.step("attention", &files, count, [tiles, geometry.heads], props)?;
    told.bind_inputs(&mut step, &[("q", Q, dtype), ("k", K, dtype), ("v", V, dtype)]);
    told.bind_bias(&mut step);
    told.bind_lengths(&mut step);
    step.bindings.push(binding("y", Y, [scattered(dtype)[1]; 2]));
    let has_lse = slots.at(LSE).is_some();
    if has_lse {
        step.bindings.push(binding("lse", LSE, ["scattered_f32_out"; 2]));
    }
    step.flags.push(("HAS_LSE", has_lse));
    step.generated += &written("put_lse", "lse", has_lse);
    work.steps.push(step);
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// A dispatch that writes gradients.
struct Pass {
    entry: &'static str,
    file: &'static str,
    workgroups: u64,
    /// Of rows, and the heads that have them.
    tiles_and_heads: [u64; 2],
    rows_are_keys: bool,
    /// Their names, rows and numbers among the betas.
    gradients: &'static [(&'static str, usize, usize)],
}

/// The form of backward.
pub(super) fn backward(valid: &Valid<BackwardFields>, props: &Props, _: Ask) -> Made<Work<()>> {
    use rows_of_backward::{BIAS, DBIAS, DK, DQ, DV, DY, K, LENGTHS, LSE, Q, V, Y};
    let (fields, geometry, slots) = (&valid.fields, &valid.derived, &valid.slots);
    let dtype = fields.q.dtype();
    let rows = [Q, K, V, BIAS, Y, LSE, DY, DQ, DK, DV, DBIAS].map(Some);
    let gradients = [fields.dq, fields.dk, fields.dv, fields.dbias];
    let betas = gradients.map(|gradient| gradient.map_or(0.0, Gradient::beta));
    let told = Told::new(geometry, slots, dtype, [LENGTHS, BIAS], rows, betas, props)?;
    let mut work = Work::none((), props);
    let has = |row: usize| slots.at(row).is_some_and(|slot| !slot.desc.is_empty());
    if ![DQ, DK, DV, DBIAS].into_iter().any(has) {
        return Ok(work);
    }
    // 1. What all read of each query and sample.
    let queries = geometry.samples * geometry.heads * geometry.queries;
    work.workspace_bytes = (2 * queries + geometry.samples).max(1) * 4;
    check_workspace(work.workspace_bytes, props)?;
    let stats = |accessor| Binding {
        name: "stats",
        place: Some(Place::Workspace { offset: 0, bytes: work.workspace_bytes }),
        accessors: [accessor; 2],
    };
    let files = ["attention/attention_lengths", "attention/attention_backward_delta"];
    let count = (queries + geometry.samples).div_ceil(THREADS);
    let mut step = told.step("attention_backward_delta", &files, count, [1, 1], props)?;
    told.bind_inputs(&mut step, &[("y", Y, dtype), ("dy", DY, dtype), ("lse", LSE, DType::F32)]);
    told.bind_lengths(&mut step);
    told.bind_absent_bias(&mut step);
    step.bindings.push(stats("scattered_f32_out"));
    let mut steps = vec![step];
    // 2. The gradients.
    let tiles_of_bias = geometry.bias_dims.iter().zip([1, 1, TILE, TILE]).map(|(extent, of)| extent.div_ceil(of));
    let [of_queries, of_keys] = [geometry.queries, geometry.keys].map(|count| count.div_ceil(TILE));
    let passes = [
        Pass {
            entry: "attention_backward_queries",
            file: "attention/attention_backward_queries",
            workgroups: geometry.samples * geometry.heads * of_queries,
            tiles_and_heads: [of_queries, geometry.heads],
            rows_are_keys: false,
            gradients: &[("dq", DQ, 0)],
        },
        Pass {
            entry: "attention_backward_keys",
            file: "attention/attention_backward_keys",
            workgroups: geometry.samples * geometry.kv_heads * of_keys,
            tiles_and_heads: [of_keys, geometry.kv_heads],
            rows_are_keys: true,
            gradients: &[("dk", DK, 1), ("dv", DV, 2)],
        },
        Pass {
            entry: "attention_backward_bias",
            file: "attention/attention_backward_bias",
            workgroups: tiles_of_bias.product(),
            tiles_and_heads: [1, 1],
            rows_are_keys: false,
            gradients: &[("dbias", DBIAS, 3)],
        },
    ];
    for pass in passes {
        if !pass.gradients.iter().any(|&(_, row, _)| has(row)) {
            continue;
        }
        let files = ["attention/attention_backward_tiles", pass.file];
        let mut step = told.step(pass.entry, &files, pass.workgroups, pass.tiles_and_heads, props)?;
        told.bind_inputs(&mut step, &[("q", Q, dtype), ("k", K, dtype), ("v", V, dtype), ("dy", DY, dtype)]);
        told.bind_bias(&mut step);
        step.bindings.push(stats("scattered_f32_in"));
        for &(name, row, number) in pass.gradients {
            let desc = slots.at(row).map(|slot| slot.desc).filter(|desc| !desc.is_empty());
            let is_updated = betas[number] != 0.0;
            if let Some(desc) = desc {
                let accessor = scattered(desc.dtype())[1 + usize::from(is_updated)];
                step.bindings.push(binding(name, row, [accessor; 2]));
            }
            let before = format!("{name}_bits(at)");
            step.generated += &read(&format!("{name}_before"), (desc.is_some() && is_updated).then_some(&*before));
            step.generated += &written(&format!("put_{name}"), name, desc.is_some());
        }
        step.flags.extend([("ROWS_ARE_KEYS", pass.rows_are_keys), ("HAS_DK", has(DK)), ("HAS_DV", has(DV))]);
        steps.push(step);
    }
    work.steps = steps;
    check_bindings(&work.steps, props)?;
    Ok(work)
}

impl Told<'_> {
    /// A function that reads nothing, for a dispatch without scores.
    fn bind_absent_bias(&self, step: &mut StepBuilder) {
        step.generated += &read("bias_bits", None);
        step.generated += "fn element_bits(which: u32, i: u32) -> u32 {\n    return 0u;\n}\n";
    }
}

/// Every kind of shader of the family, without a device.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    use super::{AttentionDescriptor, CausalMask};
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for depth in [24, 64, 80, 256] {
                let q = TensorDesc::contiguous(dtype, &[2, 4, 40, depth])?;
                let kv = TensorDesc::contiguous(dtype, &[2, 2, 50, depth])?;
                let plain = AttentionDescriptor::new(q, kv, kv)?.stats()?;
                let mut all = vec![("plain", plain.clone())];
                for (name, of_bias, lengths) in [
                    ("bool", DType::Bool, DType::I64),
                    ("bias", dtype, DType::I32),
                    ("f32 bias", DType::F32, DType::U32),
                ] {
                    let bias = TensorDesc::contiguous(of_bias, &[4, 40, 50])?;
                    let causal = plain.clone().causal(CausalMask::BottomRight)?;
                    all.push((name, causal.soft_cap(20.0)?.bias(bias)?.lengths(lengths)?));
                }
                for (name, descriptor) in all {
                    let name = format!("attention of {dtype}, D {depth}, {name}");
                    variants.add_work(&name, forward(&descriptor.0, props, Ask::Pinned), props);
                    let wanted: &[&str] =
                        if name.ends_with("bias") { &["q", "k", "v", "bias"] } else { &["q", "k", "v"] };
                    let mut backward_of = descriptor.backward(wanted)?;
                    variants.add_work(&name, backward(&backward_of.0, props, Ask::Pinned), props);
                    backward_of = backward_of.dq(0.5)?.dv(1.0)?;
                    variants.add_work(&name, backward(&backward_of.0, props, Ask::Pinned), props);
                }
            }
        }
    }
    Ok(())
}
