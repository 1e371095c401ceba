//! Shader text: files of `csrc` one after the other, with constants in front, what is generated from a program behind them, and one accessor file for
//! each operand.
//!
//! In accessor files `OPERAND` stands for the operand's name, `BINDING` for the number of its binding, `ACCESS` for the access mode and `STORED`
//! for the element type of the bound array. A file that defines `Params` binds them as a uniform right after; on devices whose immediates have
//! room for them, they become immediates.

use std::fmt::Write;
use std::hash::{Hash, Hasher};

use baracuda_ops_sys::wgsl::FILES;

use super::device::Props;

/// What follows the definition of `Params` in the file that has it.
const PARAMS: &str = "@group(0) @binding(0) var<uniform> params: Params;";
/// Most bytes of immediates that a run assembles for a dispatch, in an array of this size: as many as NVIDIA's driver for Vulkan offers. Params that are
/// longer stay in a uniform. A smaller number would leave more params there; a larger one would make every run clear a longer array.
pub(super) const MAX_IMMEDIATE_BYTES: u32 = 256;

/// The element type of the array that each accessor binds: it stands in the text, and the least size of the binding follows from it.
const STORED: [(&str, &str); 57] = [
    ("byte_pairs_in", "vec2<u32>"),
    ("byte_pairs_out", "vec2<u32>"),
    ("byte_words_in", "u32"),
    ("byte_words_out", "u32"),
    ("bytes_in", "u32"),
    ("bytes_out", "atomic<u32>"),
    ("chunks_f32_in", "vec4<f32>"),
    ("chunks_f32_out", "vec4<f32>"),
    ("chunks_in", "vec4<u32>"),
    ("chunks_out", "vec4<u32>"),
    ("counter_in", "u32"),
    ("counter_out", "u32"),
    ("elements_f32_in", "f32"),
    ("elements_f32_out", "f32"),
    ("elements_half_in", "u32"),
    ("elements_half_out", "atomic<u32>"),
    ("fours_f32_in", "f32"),
    ("fours_f32_out", "f32"),
    ("fours_half_in", "u32"),
    ("fours_half_out", "u32"),
    ("halves_in", "u32"),
    ("halves_out", "atomic<u32>"),
    ("line_f32_in", "u32"),
    ("line_f32_out", "f32"),
    ("line_half_in", "u32"),
    ("line_half_out", "atomic<u32>"),
    ("line_pairs_half_in", "vec2<u32>"),
    ("line_pairs_half_out", "vec2<u32>"),
    ("line_quads_f32_in", "vec4<u32>"),
    ("line_quads_f32_out", "vec4<f32>"),
    ("narrowed_halves_out", "atomic<u32>"),
    ("narrowed_pairs_out", "vec2<u32>"),
    ("pairs_half_in", "vec2<u32>"),
    ("pairs_half_out", "vec2<u32>"),
    ("pairs_in", "vec2<u32>"),
    ("pairs_out", "vec2<u32>"),
    ("partials_in", "vec4<f32>"),
    ("partials_out", "vec4<f32>"),
    ("quads_f32_in", "vec4<u32>"),
    ("quads_half_in", "vec4<u32>"),
    ("quads_of_pairs_in", "vec2<u32>"),
    ("scattered_byte_in", "u32"),
    ("scattered_byte_out", "atomic<u32>"),
    ("scattered_f32_in", "u32"),
    ("scattered_f32_out", "u32"),
    ("scattered_half_in", "u32"),
    ("scattered_half_out", "atomic<u32>"),
    ("tally_out", "atomic<u32>"),
    ("updated_byte_out", "atomic<u32>"),
    ("updated_f32_out", "u32"),
    ("updated_half_out", "atomic<u32>"),
    ("values_f32_in", "u32"),
    ("values_half_in", "u32"),
    ("widened_halves_in", "u32"),
    ("widened_pairs_in", "vec2<u32>"),
    ("words_in", "u32"),
    ("words_out", "u32"),
];

/// An operand and its accessor: the file under `common/operand` with the functions that read or write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperandText {
    pub(crate) name: &'static str,
    pub(crate) accessor: &'static str,
}

impl OperandText {
    /// Whether the operand takes a binding.
    pub(crate) fn is_bound(self) -> bool {
        self.stored().is_some()
    }

    /// Bytes of an element of the bound array; 0 if the operand takes no binding.
    pub(crate) fn element_bytes(self) -> u64 {
        match self.stored() {
            None => 0,
            Some(vector) if vector.starts_with("vec4<") => 16,
            Some(vector) if vector.starts_with("vec2<") => 8,
            Some(_) => 4,
        }
    }

    /// The element type of the bound array; none if the operand takes no binding.
    fn stored(self) -> Option<&'static str> {
        STORED.iter().find(|(accessor, _)| *accessor == self.accessor).map(|(_, stored)| *stored)
    }
}

/// Where a shader finds its `params` and its `offsets`, which say how far operands lie from the start of their bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Numbers {
    /// Both are immediates, offsets last.
    Immediate,
    /// Offsets are immediates, params a uniform.
    OffsetsImmediate,
    /// Each is a uniform.
    Uniform,
}

/// Everything that a shader's text follows from: equal sources give equal pipelines. Extents of tensors are parameters and no part of it; small numbers that
/// follow from them, such as the chunks of a thread, are constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The entry point.
    pub(crate) entry: &'static str,
    /// Files under `csrc`, without their ending.
    pub(crate) files: Vec<&'static str>,
    /// What follows the files and is in none of them, since it is made from a program; mostly empty.
    pub(crate) generated: String,
    /// Constants that the files do not define: every one that they use, perhaps others as well.
    pub(crate) constants: Vec<(&'static str, u32)>,
    /// Constants of type bool that the files do not define: every one that they use, perhaps others as well.
    pub(crate) flags: Vec<(&'static str, bool)>,
    /// Operands in the order of their bindings.
    pub(crate) operands: Vec<OperandText>,
    /// Bytes of its `Params`, a multiple of 16.
    pub(crate) params_bytes: u64,
    /// Whether `Params` stay in a uniform although immediates have room for them.
    pub(crate) keeps_uniform: bool,
}

/// The hash is that of the entry point, of what is generated, and of the values of constants and flags, which tell nearly all sources apart. Hashing their
/// names too would make every plan slower.
impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entry.hash(state);
        self.generated.hash(state);
        self.params_bytes.hash(state);
        self.constants.iter().for_each(|(_, value)| value.hash(state));
        self.flags.iter().for_each(|(_, value)| value.hash(state));
    }
}

impl Source {
    /// Where the shader finds params and offsets on a device. A uniform is one more buffer to bind, a tenth of the host time of a run.
    pub(crate) fn numbers(&self, props: &Props) -> Numbers {
        let operands = self.operands.iter().filter(|operand| operand.is_bound()).count() as u64;
        let has_room = self.params_bytes + 4 * operands <= u64::from(props.immediate_bytes.min(MAX_IMMEDIATE_BYTES));
        if !props.has_immediates() {
            Numbers::Uniform
        } else if has_room && !self.keeps_uniform {
            Numbers::Immediate
        } else {
            Numbers::OffsetsImmediate
        }
    }

    /// The text. `is_shared`: every operand is bound for reading and writing, as wgpu asks for where ranges of one buffer are read and written.
    pub(crate) fn assemble(&self, is_shared: bool, numbers: Numbers) -> String {
        let mut text = String::with_capacity(16 << 10);
        for (name, value) in &self.constants {
            let _ = writeln!(text, "const {name}: u32 = {value}u;");
        }
        for (name, value) in &self.flags {
            let _ = writeln!(text, "const {name}: bool = {value};");
        }
        let bound = || self.operands.iter().filter(|operand| operand.is_bound());
        text.push_str("struct Offsets {\n");
        for operand in bound() {
            let _ = writeln!(text, "    {}: u32, // words from the start of its binding", operand.name);
        }
        text.push_str("}\n");
        match numbers {
            Numbers::Immediate => {}
            Numbers::OffsetsImmediate => text.push_str("var<immediate> offsets: Offsets;\n"),
            Numbers::Uniform => {
                let _ = writeln!(text, "@group(0) @binding({}) var<uniform> offsets: Offsets;", bound().count() + 1);
            }
        }
        for path in &self.files {
            match file(path).split_once(PARAMS) {
                Some((head, tail)) if numbers == Numbers::Immediate => {
                    // A shader has one variable of immediates, so that offsets become a part of `Params`.
                    let [head, tail] = [head.trim_end().trim_end_matches('}'), tail];
                    let _ = write!(
                        text,
                        "{head}    @align(16) offsets: Offsets,\n}}\nvar<immediate> params: Params;{tail}"
                    );
                }
                _ => text.push_str(file(path)),
            }
        }
        text.push_str(&self.generated);
        let mut place = 0;
        for operand in &self.operands {
            place += usize::from(operand.is_bound());
            let accessor = file_in("common/operand/", operand.accessor)
                .replace("OPERAND", operand.name)
                .replace("BINDING", &place.to_string())
                .replace("STORED", operand.stored().unwrap_or_default())
                .replace("ACCESS", if is_shared { "read_write" } else { "read" });
            match numbers {
                Numbers::Immediate => text.push_str(&accessor.replace("offsets.", "params.offsets.")),
                Numbers::OffsetsImmediate | Numbers::Uniform => text.push_str(&accessor),
            }
        }
        text
    }
}

/// The text of a file under `csrc`.
pub(crate) fn file(path: &str) -> &'static str {
    file_in("", path)
}

fn file_in(folder: &str, path: &str) -> &'static str {
    let named = |known: &str| {
        known.strip_prefix(folder).and_then(|rest| rest.strip_suffix(".wgsl")).is_some_and(|stem| stem == path)
    };
    let found = FILES.iter().find(|(known, _)| named(known));
    debug_assert!(found.is_some(), "{folder}{path}.wgsl is no file of csrc");
    found.map_or("", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every accessor of `csrc`, as the operand "x".
    fn accessors() -> impl Iterator<Item = OperandText> {
        let stem = |path: &'static str| path.strip_prefix("common/operand/")?.strip_suffix(".wgsl");
        FILES.iter().filter_map(move |(path, _)| stem(path)).map(|accessor| OperandText { name: "x", accessor })
    }

    fn text_of(operand: OperandText) -> String {
        let source = Source {
            entry: "",
            files: Vec::new(),
            generated: String::new(),
            constants: Vec::new(),
            flags: Vec::new(),
            operands: vec![operand],
            params_bytes: 0,
            keeps_uniform: false,
        };
        source.assemble(false, Numbers::Immediate)
    }

    #[test]
    fn a_binding_is_as_large_as_one_element_of_its_accessor() {
        for operand in accessors() {
            let text = text_of(operand);
            let array = text.split_once("array<").map(|(_, rest)| rest.split_once(">;").unwrap().0);
            let bytes = array.map_or(0, |element| match element {
                "vec4<f32>" | "vec4<u32>" => 16,
                "vec2<u32>" => 8,
                "f32" | "u32" | "atomic<u32>" => 4,
                other => panic!("{operand:?} is bound as an array of {other}"),
            });
            assert_eq!((operand.element_bytes(), operand.is_bound()), (bytes, bytes > 0), "{operand:?}");
        }
    }

    #[test]
    fn every_accessor_that_binds_is_listed_once() {
        let mut bound: Vec<_> = accessors().filter(|o| text_of(*o).contains("@binding")).map(|o| o.accessor).collect();
        let mut listed = STORED.map(|(accessor, _)| accessor);
        bound.sort_unstable();
        listed.sort_unstable();
        assert_eq!(bound, listed);
    }
}
