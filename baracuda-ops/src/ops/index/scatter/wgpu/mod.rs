//! The WGSL kernels: in which units rows move, what lies where in the workspace, and the dispatches.

use super::{Combine, Scatters, Valid, forward};
use crate::backend::wgpu::{
    Binding, NO_GROUPS, Place, Props, StepBuilder, Work, check_bindings, check_reach, check_workspace, groups,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{stride, word};
use crate::ops::index::lookup::wgpu::{INDEX_BITS, count_steps, index_constants};
use crate::ops::movement::wgpu::{WORD_BYTES, between, binding, bytes, workgroup, zeros};
use crate::ops::pointwise::map::wgpu::Element;

mod variants;
pub(in crate::ops) use variants::add_variants;

/// Items of a thread in a tile of the sort.
const STEPS: u64 = 8;
/// Values of a digit of four bits.
const DIGITS: u64 = 16;
/// Entries of a part.
const PART: u64 = 32;

/// Every dispatch.
pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let Valid { fields, derived, slots, .. } = valid;
    // Of what is empty nothing is addressed; the count is written all the same.
    check_reach(slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let is_set = fields.combine == Combine::Set;
    let element = if is_set { None } else { Some(Element::of(fields.y.dtype())?) };
    let mut work = Work::none((), props);
    if derived.has_y {
        work.steps.push(match slots.at(forward::BASE) {
            Some(base) => {
                let mut begin = between((&base.desc, forward::BASE), (&fields.y, forward::Y), props)?;
                // In place y is the base already.
                begin.in_place.push((begin.params.clone(), NO_GROUPS));
                begin
            }
            None => zeros((&fields.y, forward::Y), props)?,
        });
    }
    if derived.count() > 0 {
        let scatters = match element {
            None => derived.clone().narrowed(WORD_BYTES).widened(WORD_BYTES, WORD_BYTES),
            Some(_) => derived.clone(),
        };
        let mut task =
            Task { valid, props, scatters, memory: Memory { bytes: 0, align: props.workspace_align().max(4) } };
        let sorted = task.sort(&mut work.steps)?;
        match element {
            None => work.steps.push(task.set(sorted)?),
            Some(element) => task.combine(sorted, element, &mut work.steps)?,
        }
        work.workspace_bytes = task.memory.bytes;
        check_workspace(work.workspace_bytes, props)?;
    }
    if fields.missing {
        let (indices, missing) = ((&fields.indices, forward::INDICES), forward::MISSING);
        work.steps.extend(count_steps(indices, missing, (derived.extent, fields.from_end), props)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// Ranges of the workspace, one behind the other.
struct Memory {
    bytes: u64,
    align: u64,
}

impl Memory {
    fn words(&mut self, words: u64) -> Place {
        let place = Place::Workspace { offset: self.bytes, bytes: 4 * words };
        self.bytes += (4 * words).next_multiple_of(self.align);
        place
    }
}

/// Keys and places.
type Pairs = [Place; 2];

struct Task<'v> {
    valid: &'v Valid,
    props: &'v Props,
    scatters: Scatters,
    memory: Memory,
}

fn part(name: &'static str, place: Place, accessor: &'static str) -> Binding {
    Binding { name, place: Some(place), accessors: [accessor; 2] }
}

/// Accessors of elements of a size: what is read, what is written, and what is read before it is written.
fn accessors(unit_bytes: u64) -> [&'static str; 3] {
    match unit_bytes {
        1 => ["scattered_byte_in", "scattered_byte_out", "updated_byte_out"],
        2 => ["scattered_half_in", "scattered_half_out", "updated_half_out"],
        _ => ["scattered_f32_in", "scattered_f32_out", "updated_f32_out"],
    }
}

impl Task<'_> {
    fn workgroup(&self) -> u64 {
        workgroup(self.props).into()
    }

    /// A dispatch with a thread for each of `count` things.
    fn step(&self, entry: &'static str, files: &[&'static str], count: u64) -> Result<StepBuilder, Reason> {
        let most = u64::from(u32::MAX);
        Reason::unless(count <= most, || format!("it numbers {count} threads in 32 bits, at most {most}"))?;
        Ok(StepBuilder {
            entry,
            files: std::iter::once("movement/movement").chain(files.iter().copied()).collect(),
            constants: vec![("WORKGROUP", word(self.workgroup())), ("ELEMENTS", 1)],
            ignores_layouts: true,
            grid: groups(count.div_ceil(self.workgroup()), self.props)?,
            ..StepBuilder::default()
        })
    }

    /// Pairs in the order of their keys.
    fn sort(&mut self, steps: &mut Vec<StepBuilder>) -> Result<Pairs, Reason> {
        let (entries, keys) = (self.scatters.count(), self.scatters.keys());
        let tile = self.workgroup() * STEPS;
        let tiles = entries.div_ceil(tile);
        // One entry is in order.
        let digits = if entries == 1 { 0 } else { (u64::BITS - keys.leading_zeros()).div_ceil(4) };
        let mut pairs: [Pairs; 2] = [[self.memory.words(entries), self.memory.words(entries)]; 2];
        pairs[1] = [self.memory.words(entries), self.memory.words(entries)];
        let counts = self.memory.words(if tiles > 1 { DIGITS * tiles } else { 1 });
        steps.push(self.keys(pairs[0])?);
        for digit in 0..digits {
            let [from, to] = pairs;
            let words = |grid: [u32; 2]| bytes(&[[word(entries), grid[0], word(tiles), 4 * digit]]);
            let mut push = |entry, file, workgroups: u64, bindings: Vec<Binding>, generated: String| {
                let grid = groups(workgroups, self.props)?;
                let step = self.step(entry, &["index/sum_before", "index/sort", file], 0)?;
                let mut step = StepBuilder { params: words(grid), grid, bindings, generated, ..step };
                step.constants.push(("STEPS", word(STEPS)));
                steps.push(step);
                Ok::<(), Reason>(())
            };
            if tiles > 1 {
                let read = part("keys", from[0], "scattered_f32_in");
                let counted = vec![read, part("counts", counts, "scattered_f32_out")];
                push("sort_count", "index/sort_count", tiles, counted, String::new())?;
                let scanned = vec![part("counts", counts, "updated_f32_out")];
                push("sort_scan", "index/sort_scan", 1, scanned, String::new())?;
            }
            let mut bindings = vec![
                part("keys", from[0], "scattered_f32_in"),
                part("places", from[1], "scattered_f32_in"),
                part("sorted_keys", to[0], "scattered_f32_out"),
                part("sorted_places", to[1], "scattered_f32_out"),
            ];
            // Ranks count from the beginning of the tile.
            let before = match tiles {
                1 => "0u",
                _ => {
                    bindings.push(part("counts", counts, "scattered_f32_in"));
                    "counts_bits(digit * params.tiles + tile) - start"
                }
            };
            let generated =
                format!("fn before_tile(digit: u32, tile: u32, start: u32) -> u32 {{\n    return {before};\n}}\n");
            push("sort_move", "index/sort_move", tiles, bindings, generated)?;
            pairs = [to, from];
        }
        Ok(pairs[0])
    }

    /// Writes the pairs.
    fn keys(&self, [keys, places]: Pairs) -> Result<StepBuilder, Reason> {
        let (scatters, fields) = (&self.scatters, &self.valid.fields);
        let (key_units, place_units) = (scatters.key_units(), scatters.place_units());
        let mut step = self.step("scatter_keys", &["index/index", "index/scatter_keys"], scatters.count())?;
        let (extent, most) = (scatters.extent, u64::from(u32::MAX) - 1);
        for (count, what) in [(extent, "positions along the axis"), (scatters.keys(), "places in y")] {
            Reason::unless(count <= most, || {
                format!("it counts in 32 bits, there are {count} {what}, at most {most}")
            })?;
        }
        let mut words = vec![
            [word(scatters.count()), step.grid[0], word(extent), stride(scatters.apart / key_units)],
            [word(scatters.keys()), 0, 0, 0],
        ];
        words.extend(scatters.entries.iter().rev().map(|axis| {
            [word(axis.extent), stride(axis.index), stride(axis.y / key_units), stride(axis.source / place_units)]
        }));
        if words.len() == 2 {
            words.push([1, 0, 0, 0]);
        }
        step.constants.push(("AXES", word(words.len() as u64 - 2)));
        index_constants(fields.indices.dtype(), fields.from_end, &mut step);
        step.generated = INDEX_BITS.into();
        step.bindings = vec![
            binding("indices", forward::INDICES, ["scattered_f32_in"; 2]),
            part("keys", keys, "scattered_f32_out"),
            part("places", places, "scattered_f32_out"),
        ];
        step.params = bytes(&words);
        Ok(step)
    }

    /// A dispatch over units of rows, of some shares of the entries.
    fn rows(&self, entry: &'static str, files: &[&'static str], shares: u64) -> Result<StepBuilder, Reason> {
        let scatters = &self.scatters;
        let files: Vec<_> = std::iter::once("index/scatter_rows").chain(files.iter().copied()).collect();
        let mut step = self.step(entry, &files, shares.saturating_mul(scatters.units()))?;
        let mut words = vec![
            [word(scatters.count()), step.grid[0], word(scatters.units()), word(scatters.keys())],
            [stride(scatters.place_units()), stride(scatters.key_units()), word(shares), 0],
        ];
        let row = scatters.row.iter().rev();
        words.extend(row.map(|axis| [word(axis.extent), stride(axis.source), stride(axis.y), 0]));
        if words.len() == 2 {
            words.push([1, 0, 0, 0]);
        }
        step.constants.push(("AXES", word(words.len() as u64 - 2)));
        step.params = bytes(&words);
        Ok(step)
    }

    fn set(&self, [keys, places]: Pairs) -> Result<StepBuilder, Reason> {
        let mut step = self.rows("scatter_set", &["index/scatter_set"], self.scatters.count())?;
        let [read, written, _] = accessors(self.scatters.unit_bytes);
        step.bindings = vec![
            part("keys", keys, "scattered_f32_in"),
            part("places", places, "scattered_f32_in"),
            binding("source", forward::SOURCE, [read; 2]),
            binding("y", forward::Y, [written; 2]),
        ];
        Ok(step)
    }

    fn combine(&mut self, [keys, places]: Pairs, element: Element, steps: &mut Vec<StepBuilder>) -> Result<(), Reason> {
        let shares = self.scatters.count().div_ceil(PART);
        let parts = match shares {
            1 => None,
            _ => Some(self.memory.words(shares.saturating_mul(2).saturating_mul(self.scatters.units()))),
        };
        let fields = &self.valid.fields;
        let [read, _, updated] = accessors(self.scatters.unit_bytes);
        let [widened, narrowed] = conversions(element);
        let mut files: Vec<&'static str> = Vec::new();
        match element {
            Element::F16 => files.push("common/f16"),
            Element::BF16 => files.push("common/bf16"),
            _ => {}
        }
        files.push("index/scatter_combine");
        let y = match fields.base {
            true => binding("y", forward::Y, [updated; 2]),
            false => binding("y", forward::Y, [accessors(self.scatters.unit_bytes)[1]; 2]),
        };
        // Without a base nothing reads y.
        let no_bits = if fields.base { "" } else { "fn y_bits(at: u32) -> u32 {\n    return 0u;\n}\n" };
        for is_gather in [false, true] {
            let Some(parts) = parts.or((!is_gather).then_some(keys)) else { break };
            let (entry, file) =
                if is_gather { ("scatter_gather", "index/scatter_gather") } else { ("scatter", "index/scatter") };
            let files: Vec<_> = files.iter().copied().chain([file]).collect();
            let mut step = self.rows(entry, &files, shares)?;
            step.constants.extend([("OF_PART", word(PART)), ("COMBINE", combine_number(fields.combine))]);
            step.flags = vec![
                ("IS_FLOAT", fields.y.dtype().is_float()),
                ("IS_SIGNED", fields.y.dtype() != DType::U32),
                ("HAS_BASE", fields.base),
            ];
            step.generated = format!("{widened}{narrowed}{no_bits}");
            step.bindings = vec![part("keys", keys, "scattered_f32_in")];
            if is_gather {
                step.bindings.extend([y, part("parts", parts, "scattered_f32_in")]);
            } else {
                step.bindings.extend([
                    part("places", places, "scattered_f32_in"),
                    binding("source", forward::SOURCE, [read; 2]),
                    y,
                ]);
                let keep = match shares {
                    1 => "",
                    _ => {
                        step.bindings.push(part("parts", parts, "scattered_f32_out"));
                        "    parts_scatter(at, 1u, 1u, vec4<u32>(value, 0u, 0u, 0u));\n"
                    }
                };
                step.generated.push_str(&format!("fn keep(at: u32, value: u32) {{\n{keep}}}\n"));
            }
            steps.push(step);
        }
        Ok(())
    }
}

fn combine_number(combine: Combine) -> u32 {
    match combine {
        Combine::Set | Combine::Add => 0,
        Combine::Multiply => 1,
        Combine::Min => 2,
        Combine::Max => 3,
    }
}

/// The functions between bits of an element and the word that it is computed as.
fn conversions(element: Element) -> [String; 2] {
    let (widened, narrowed) = match element {
        Element::F32 | Element::I32 | Element::U32 => ("bits", "value"),
        Element::F16 | Element::BF16 => ("bitcast<u32>(unpack(bits).x)", "round_to_half(bitcast<f32>(value))"),
        Element::I8 => ("bitcast<u32>(bitcast<i32>(bits << 24u) >> 24u)", "value & 0xffu"),
        Element::Bool | Element::U8 => ("bits", "value & 0xffu"),
    };
    [
        format!("fn widened(bits: u32) -> u32 {{\n    return {widened};\n}}\n"),
        format!("fn narrowed(value: u32) -> u32 {{\n    return {narrowed};\n}}\n"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::wgpu::Variants;
    use crate::ops::index::scatter::IndexAddDescriptor;
    use crate::tensor::TensorDesc;

    #[test]
    fn a_base_in_place_costs_no_pass() {
        let cache = TensorDesc::contiguous(DType::F32, &[2, 8, 4096, 64]).unwrap();
        let rows = TensorDesc::contiguous(DType::U32, &[3]).unwrap();
        let append = IndexAddDescriptor::new(cache, 2, rows, Combine::Set).unwrap().base().unwrap();
        for props in &Variants::devices() {
            let work = work(&append.0, props).unwrap();
            let (begin, others) = work.steps.split_first().unwrap();
            assert_eq!(begin.in_place.iter().map(|(_, grid)| *grid).collect::<Vec<_>>(), [NO_GROUPS]);
            let groups: u64 = others.iter().map(|step| u64::from(step.grid[0]) * u64::from(step.grid[1])).sum();
            let elements = 2 * 8 * 3 * 64;
            assert!(groups <= elements / u64::from(workgroup(props)) + 16, "{groups} workgroups");
        }
    }
}
