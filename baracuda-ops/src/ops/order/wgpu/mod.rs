//! The WGSL kernels: how many threads share a tile, whether tiles find what they keep before they sort it, and the dispatches.

mod variants;

use std::fmt::Write;

use super::geometry::{INDICES, Keys, Stage, VALUES, X};
use super::{Order, Ordered, Valid, forward};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, Work, check_bindings, check_reach, check_workspace, groups,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{stride, word};
use crate::ops::movement::wgpu::halves;
use crate::ops::walk::Walk;
use crate::slots::{Slot, Slots};

pub(in crate::ops) use variants::add_variants;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Records of a thread: keys of 64 bits with their positions, and what counts them, fill the 16 KiB of a workgroup that WebGPU promises.
const ITEMS: u64 = 4;
/// Tiles keep at most this part of their records: each dispatch over what they kept has that much less to do.
const LEAST_PART: u64 = 4;
/// The most positions of a line: shaders number them in u32, with room for a tile past the last one.
const MOST_POSITIONS: u64 = 1 << 31;

/// Where a tile holds a line, or keeps few of its records.
pub(super) fn tiles<F: Ordered>(valid: &Valid<F>, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let task = Task::new(&valid.derived, &valid.slots, props)?;
    let (length, kept, tile) = (task.order.length, task.order.kept, task.most_threads() * ITEMS);
    Reason::unless(length <= tile || kept <= tile / LEAST_PART, || {
        format!(
            "of {length} positions {kept} are kept; it takes {tile} positions, or any number of which at most {} are kept",
            tile / LEAST_PART
        )
    })?;
    let mut work = Work::none((), props);
    if !task.has_work() {
        return Ok(work);
    }
    let threads = task.threads();
    let is_selected = threads == task.most_threads() && kept <= tile / LEAST_PART;
    let stages = Stage::all(length, kept, threads * ITEMS);
    let buffer = |at: usize| if at + 1 < stages.len() { stages[at].records } else { 0 };
    let buffers = task.buffers([buffer(0), buffer(1)], &mut work)?;
    for (number, stage) in stages.iter().enumerate() {
        let from = number.checked_sub(1).map(|before| buffers[before % 2]);
        let to = (number + 1 < stages.len()).then(|| buffers[number % 2]);
        work.steps.push(task.tiles(stage, (threads, is_selected), from, to)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// Sorted tiles, merged.
pub(super) fn merge<F: Ordered>(valid: &Valid<F>, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let task = Task::new(&valid.derived, &valid.slots, props)?;
    let (length, kept, tile) = (task.order.length, task.order.kept, task.most_threads() * ITEMS);
    let mut work = Work::none((), props);
    if !task.has_work() {
        return Ok(work);
    }
    let merges = length.div_ceil(tile).next_power_of_two().trailing_zeros() as usize;
    let buffer = |at: usize| if at < merges { length } else { 0 };
    let buffers = task.buffers([buffer(0), buffer(1)], &mut work)?;
    let of_tiles = if merges == 0 { kept } else { length };
    let sorted = Stage::new(length, of_tiles, task.threads() * ITEMS);
    work.steps.push(task.tiles(&sorted, (task.threads(), false), None, (merges > 0).then(|| buffers[0]))?);
    for number in 0..merges {
        let to = (number + 1 < merges).then(|| buffers[(number + 1) % 2]);
        work.steps.push(task.merge(tile << number, buffers[number % 2], to)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// Records in the workspace: where keys and positions lie.
#[derive(Clone, Copy)]
struct Buffer {
    keys: Place,
    positions: Place,
}

/// Lines as shaders see them.
struct Task<'v> {
    order: &'v Order,
    keys: Keys,
    slots: &'v Slots,
    props: &'v Props,
    walk: Walk,
}

impl<'v> Task<'v> {
    fn new(order: &'v Order, slots: &'v Slots, props: &'v Props) -> Result<Self, Reason> {
        check_reach(slots.iter(), &[], props)?;
        Reason::unless(order.length <= MOST_POSITIONS, || {
            format!("the axis has {} positions, the limit of 32-bit numbers is {MOST_POSITIONS}", order.length)
        })?;
        Ok(Self { order, keys: order.keys(), slots, props, walk: order.lines() })
    }

    fn has_work(&self) -> bool {
        self.walk.elements() > 0 && self.order.kept > 0
    }

    /// The most threads of a tile: all of a workgroup.
    fn most_threads(&self) -> u64 {
        WORKGROUP.min(self.props.max_threads).into()
    }

    /// Threads of a tile: as few as hold a line.
    fn threads(&self) -> u64 {
        self.order.length.div_ceil(ITEMS).next_power_of_two().min(self.most_threads())
    }

    fn key_words(&self) -> u64 {
        if self.keys.is_wide { 2 } else { 1 }
    }

    /// Two buffers of the workspace, for so many records of each line; each part from where a binding can start.
    fn buffers(&self, records: [u64; 2], work: &mut Work<()>) -> Result<[Buffer; 2], Reason> {
        let mut end = 0;
        let mut part = |records: u64, words: u64| {
            let bytes = records.saturating_mul(self.walk.elements()).saturating_mul(4 * words);
            let place = Place::Workspace { offset: end, bytes };
            end += bytes.next_multiple_of(self.props.workspace_align().max(4));
            place
        };
        let buffers = records.map(|records| {
            let keys = part(records, self.key_words());
            Buffer { keys, positions: part(records, 1) }
        });
        check_workspace(end, self.props)?;
        work.workspace_bytes = end;
        Ok(buffers)
    }

    /// A dispatch over tiles of x, or of records.
    fn tiles(
        &self,
        stage: &Stage,
        (threads, is_selected): (u64, bool),
        from: Option<Buffer>,
        to: Option<Buffer>,
    ) -> Result<StepBuilder, Reason> {
        let tiles = self.walk.elements().saturating_mul(stage.tiles);
        let grid = groups(tiles.div_ceil(self.most_threads() / threads), self.props)?;
        let fewest = stage.kept.div_ceil(ITEMS).next_power_of_two();
        let sharing = if is_selected { fewest.min(threads) } else { threads };
        let mut step = self.step("order_tiles", "order/order_tiles", from, to);
        step.constants.extend([("THREADS", word(threads)), ("SHARING", word(sharing))]);
        step.flags.push(("IS_SELECTED", is_selected));
        step.params = self.params(grid, stage, 0);
        step.grid = grid;
        Ok(step)
    }

    /// A dispatch that merges pairs of runs.
    fn merge(&self, run: u64, from: Buffer, to: Option<Buffer>) -> Result<StepBuilder, Reason> {
        let length = self.order.length;
        let kept = if to.is_some() { length } else { self.order.kept };
        let tiles = kept.div_ceil(self.most_threads() * ITEMS);
        let grid = groups(self.walk.elements().saturating_mul(tiles), self.props)?;
        let mut step = self.step("order_merge", "order/order_merge", Some(from), to);
        step.params = self.params(grid, &Stage { length, tiles, kept, records: length }, run);
        step.grid = grid;
        Ok(step)
    }

    /// What dispatches have in common.
    fn step(&self, entry: &'static str, file: &'static str, from: Option<Buffer>, to: Option<Buffer>) -> StepBuilder {
        let keys = if self.keys.is_wide { "order/keys_of_pairs" } else { "order/keys_of_words" };
        StepBuilder {
            entry,
            files: vec!["order/order", keys, file],
            generated: self.text(from.is_some(), to.is_some()),
            constants: vec![
                ("WORKGROUP", word(self.most_threads())),
                ("ITEMS", word(ITEMS)),
                ("ELEMENTS", 4),
                ("AXES", word(self.walk.dims.len().max(1) as u64)),
            ],
            flags: vec![
                ("IS_FLOAT", self.keys.infinity > 0),
                ("IS_BOOL", self.keys.is_bool),
                ("IS_DESCENDING", self.keys.is_descending),
                ("READS_RECORDS", from.is_some()),
                ("WRITES_RECORDS", to.is_some()),
            ],
            bindings: self.bindings(from, to),
            ignores_layouts: true,
            ..StepBuilder::default()
        }
    }

    /// The operand of a row of the table, if this dispatch uses it.
    fn output(&self, index: usize) -> Option<&Slot> {
        self.slots.at(index)
    }

    fn bindings(&self, from: Option<Buffer>, to: Option<Buffer>) -> Vec<Binding> {
        let operand = |slot: &Slot| Binding {
            name: slot.name,
            place: Some(Place::Operand(slot.index)),
            accessors: [accessor(slot.desc.dtype(), slot.index != forward::X); 2],
        };
        let part = |name, place, accessor| Binding { name, place: Some(place), accessors: [accessor; 2] };
        let mut bindings = Vec::new();
        let values = self.output(forward::VALUES).filter(|_| to.is_none());
        if from.is_none() || values.is_some() {
            bindings.push(operand(self.slots.always(forward::X)));
        }
        if let Some(from) = from {
            bindings.push(part("from_keys", from.keys, "scattered_f32_in"));
            bindings.push(part("from_positions", from.positions, "scattered_f32_in"));
        }
        if let Some(to) = to {
            bindings.push(part("to_keys", to.keys, "scattered_f32_out"));
            bindings.push(part("to_positions", to.positions, "scattered_f32_out"));
            return bindings;
        }
        bindings.extend(values.into_iter().chain(self.output(forward::INDICES)).map(operand));
        bindings
    }

    /// The functions that read and write.
    fn text(&self, reads_records: bool, writes_records: bool) -> String {
        let words = self.key_words();
        let key = |operand: &str| match words {
            1 => format!("{operand}_bits(at)"),
            _ => format!("vec2<u32>({operand}_bits(2u * at), {operand}_bits(2u * at + 1u))"),
        };
        let (none, of_position) =
            ("LAST_KEY".to_string(), if reads_records { "from_positions_bits(at)" } else { "0u" });
        let (of_x, of_record) = if reads_records { (none, key("from_keys")) } else { (key("x"), none) };
        let mut text = format!(
            "fn element(at: u32) -> Key {{\n    return {of_x};\n}}\n\nfn record_key(at: u32) -> Key {{\n    return {of_record};\n}}\n\nfn record_position(at: u32) -> u32 {{\n    return {of_position};\n}}\n"
        );
        let mut function = |head: &str, body: Option<String>| {
            // Writing to a string cannot fail.
            let _ = write!(text, "\nfn {head} {{\n");
            if let Some(body) = body {
                let _ = writeln!(text, "{body}");
            }
            text.push_str("}\n");
        };
        let key = if words == 1 { "key, 0u, 0u, 0u" } else { "key, 0u, 0u" };
        function(
            "put_record(at: u32, key: Key, position: u32)",
            writes_records.then(|| {
                format!(
                    "    to_keys_scatter({words}u * at, 1u, {words}u, vec4<u32>({key}));\n    to_positions_scatter(at, 1u, 1u, vec4<u32>(position, 0u, 0u, 0u));"
                )
            }),
        );
        let moved = match words {
            1 => "x_bits(from_at), 0u, 0u, 0u",
            _ => "x_bits(2u * from_at), x_bits(2u * from_at + 1u), 0u, 0u",
        };
        let values = self.output(forward::VALUES).filter(|_| !writes_records);
        function(
            "put_value(at: u32, from_at: u32)",
            values.map(|_| format!("    values_scatter({words}u * at, 1u, {words}u, vec4<u32>({moved}));")),
        );
        let indices = self.output(forward::INDICES).filter(|_| !writes_records);
        function(
            "put_index(at: u32, index: u32)",
            indices.map(|slot| {
                // Of 64 bits two words, of which the upper one is 0.
                let words = slot.desc.dtype().size_bytes() / 4;
                format!("    indices_scatter({words}u * at, 1u, {words}u, vec4<u32>(index, 0u, 0u, 0u));")
            }),
        );
        text
    }

    fn params(&self, grid: [u32; 2], stage: &Stage, run: u64) -> Vec<u8> {
        let [of_x, of_values, of_indices] = self.order.steps.map(stride);
        let [sign, infinity] = [self.keys.sign, self.keys.infinity].map(halves);
        let mut words = vec![
            [word(self.walk.elements()), grid[0], word(stage.length), word(stage.tiles)],
            [word(stage.kept), word(stage.records), word(run), of_x],
            [of_values, of_indices, sign[0], sign[1]],
            [infinity[0], infinity[1], 0, 0],
        ];
        let own = |operand: usize, axis: usize| stride(self.walk.strides[operand][axis]);
        for (axis, &extent) in self.walk.dims.iter().enumerate().rev() {
            words.push([word(extent), own(X, axis), own(VALUES, axis), own(INDICES, axis)]);
        }
        if self.walk.dims.is_empty() {
            words.push([1, 0, 0, 0]);
        }
        bytemuck::cast_slice(&words).to_vec()
    }
}

/// How elements are read or written one by one.
pub(super) fn accessor(dtype: DType, is_output: bool) -> &'static str {
    match (dtype.size_bytes(), is_output) {
        (1, false) => "scattered_byte_in",
        (1, true) => "scattered_byte_out",
        (2, false) => "scattered_half_in",
        (2, true) => "scattered_half_out",
        (_, false) => "scattered_f32_in",
        (_, true) => "scattered_f32_out",
    }
}
