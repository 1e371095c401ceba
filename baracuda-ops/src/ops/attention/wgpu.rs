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
    split: Split,
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
        Ok(Self { geometry, slots, dtype, half, split: Split::default(), rows, lengths, bias, betas })
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

    /// Keys of a page, pages of the pool, and the strides of the numbers of pages.
    fn pages(&self) -> [u32; 4] {
        // Without keys nothing is looked up.
        let Some(pages) = self.geometry.pages.filter(|_| self.geometry.keys > 0) else { return [1, 0, 0, 0] };
        let strides = self.slots.at(rows_of_forward::PAGES).map_or([0; 2], |slot| {
            let strides = slot.desc.strides();
            [strides[0], strides[1]]
        });
        [word(pages.page), word(pages.count), stride(strides[0]), stride(strides[1])]
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
            self.pages(),
            [word(self.split.parts), word(self.split.keys_per_part), word(self.split.rows), 0],
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
            ("IS_PAGED", self.geometry.pages.is_some()),
            ("PAGES_ARE_WIDE", self.geometry.pages.is_some_and(|pages| pages.dtype == DType::I64)),
        ];
        if self.geometry.pages.is_none() {
            step.generated += &read("pages_bits", None);
        }
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

    /// Of a forward whose keys lie in pages.
    fn bind_pages(&self, step: &mut StepBuilder) {
        if self.geometry.pages.is_some() {
            self.bind_inputs(step, &[("pages", rows_of_forward::PAGES, DType::U32)]);
        }
    }

    /// Binds what forward writes.
    fn bind_outputs(&self, step: &mut StepBuilder) {
        use rows_of_forward::{LSE, Y};
        step.bindings.push(binding("y", Y, [scattered(self.dtype)[1]; 2]));
        let has_lse = self.slots.at(LSE).is_some();
        if has_lse {
            step.bindings.push(binding("lse", LSE, ["scattered_f32_out"; 2]));
        }
        step.flags.push(("HAS_LSE", has_lse));
        step.generated += &written("put_lse", "lse", has_lse);
    }
}

/// The form of forward.
pub(super) fn forward(valid: &Valid<ForwardFields>, props: &Props, _: Ask) -> Made<Work<()>> {
    use rows_of_forward::{BIAS, K, LENGTHS, LSE, Q, V, Y};
    let (geometry, slots) = (&valid.derived, &valid.slots);
    let dtype = valid.fields.q.dtype();
    let rows = [Some(Q), Some(K), Some(V), Some(BIAS), Some(Y), Some(LSE), None, None, None, None, None];
    let told = Told::new(geometry, slots, dtype, [LENGTHS, BIAS], rows, [0.0; 4], props)?;
    let mut work = Work::none((), props).batch_invariant_if(true);
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
    told.bind_pages(&mut step);
    told.bind_outputs(&mut step);
    work.steps.push(step);
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// How the keys are split in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Split {
    parts: u64,
    /// A multiple of the keys of a tile.
    keys_per_part: u64,
    /// Queries of heads that share a head of keys.
    rows: u64,
}

/// What decides how keys are split. Not measured.
struct Tuning {
    /// Workgroups that the device is to get, if parts are not too short for it.
    workgroups: u64,
    /// The fewest and the most keys of a part.
    keys_of_part: [u64; 2],
    /// The most queries of heads that share keys for which the form is chosen, and the fewest keys.
    most_rows: u64,
    least_keys: u64,
}

const TUNING: Tuning =
    Tuning { workgroups: 256, keys_of_part: [4 * TILE, 32 * TILE], most_rows: TILE, least_keys: 256 };

impl Split {
    fn new(geometry: &Geometry) -> Self {
        let rows = geometry.group().saturating_mul(geometry.queries);
        let groups =
            [geometry.samples, geometry.kv_heads, rows.div_ceil(TILE)].into_iter().fold(1, u64::saturating_mul);
        let wanted = (TUNING.workgroups / groups.max(1)).max(1);
        let [least, most] = TUNING.keys_of_part;
        let keys_per_part = geometry.keys.div_ceil(wanted).next_multiple_of(TILE).clamp(least, most);
        Self { parts: geometry.keys.div_ceil(keys_per_part).max(1), keys_per_part, rows }
    }
}

/// The form of forward for few queries.
pub(super) fn forward_split(valid: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Made<Work<Split>> {
    use rows_of_forward::{BIAS, K, LENGTHS, LSE, Q, V, Y};
    let (geometry, slots) = (&valid.derived, &valid.slots);
    let dtype = valid.fields.q.dtype();
    let rows = [Some(Q), Some(K), Some(V), Some(BIAS), Some(Y), Some(LSE), None, None, None, None, None];
    let mut told = Told::new(geometry, slots, dtype, [LENGTHS, BIAS], rows, [0.0; 4], props)?;
    let split = Split::new(geometry);
    ask.leave_if(split.rows > TUNING.most_rows, "tiles of many queries read keys less often")?;
    ask.leave_if(geometry.keys < TUNING.least_keys, "few keys need no parts")?;
    told.split = split;
    let mut work = Work::none(split, props);
    if slots.always(Y).desc.is_empty() {
        return Ok(work);
    }
    let queries = geometry.samples * geometry.heads * geometry.queries;
    work.workspace_bytes = queries.saturating_mul(split.parts).saturating_mul((geometry.value_depth + 3) * 4);
    check_workspace(work.workspace_bytes, props)?;
    let of_parts = |accessor| Binding {
        name: "of_parts",
        place: Some(Place::Workspace { offset: 0, bytes: work.workspace_bytes }),
        accessors: [accessor; 2],
    };
    // 1. A part of the keys to a workgroup.
    let tiles = split.rows.div_ceil(TILE);
    let groups = (geometry.samples * geometry.kv_heads * tiles).saturating_mul(split.parts);
    let files = ["attention/attention_lengths", "attention/attention_split"];
    let mut step = told.step("attention_split", &files, groups, [tiles, geometry.kv_heads], props)?;
    told.bind_inputs(&mut step, &[("q", Q, dtype), ("k", K, dtype), ("v", V, dtype)]);
    told.bind_bias(&mut step);
    told.bind_lengths(&mut step);
    told.bind_pages(&mut step);
    step.bindings.push(of_parts("scattered_f32_out"));
    let mut steps = vec![step];
    // 2. The sums of the parts.
    let files = ["attention/attention_split_merge"];
    let mut step = told.step("attention_split_merge", &files, queries, [1, geometry.heads], props)?;
    told.bind_absent_bias(&mut step);
    if geometry.pages.is_some() {
        step.generated += &read("pages_bits", None);
    }
    step.bindings.push(of_parts("scattered_f32_in"));
    told.bind_outputs(&mut step);
    steps.push(step);
    work.steps = steps;
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
    let mut work = Work::none((), props).batch_invariant_if(fields.dbias.is_none());
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
        step.generated += "fn is_silent(matrix: Matrix, row: u32) -> bool {\n    return false;\n}\n";
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
                for numbers in [DType::I64, DType::I32, DType::U32] {
                    let pages = TensorDesc::contiguous(numbers, &[2, 5])?;
                    let paged = AttentionDescriptor::paged(q, kv, kv, pages)?.lengths(numbers)?;
                    let name = format!("attention of {dtype}, D {depth}, in pages");
                    variants.add_work(&name, forward(&paged.0, props, Ask::Pinned), props);
                    variants.add_work(&name, forward_split(&paged.0, props, Ask::Pinned), props);
                }
                for (name, descriptor) in all {
                    let name = format!("attention of {dtype}, D {depth}, {name}");
                    variants.add_work(&name, forward(&descriptor.0, props, Ask::Pinned), props);
                    variants.add_work(&name, forward_split(&descriptor.0, props, Ask::Pinned), props);
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
