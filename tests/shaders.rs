//! Every WGSL file, validated by naga in every text that a plan can be compiled from, without a device.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use baracuda_ops_sys::wgsl::{FILES, copy};
use naga::front::wgsl;
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use rayon::prelude::*;

/// What is wrong with a text, in naga's words.
fn flaws(text: &str, has_subgroups: bool) -> Result<(), String> {
    let module = wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    // What every device has: `unpack2x16float` is one of the latter.
    let basic = Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let able = if has_subgroups { basic | Capabilities::SUBGROUP } else { basic };
    let mut validator = Validator::new(ValidationFlags::all(), able);
    if has_subgroups {
        validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    }
    validator.validate(&module).map_err(|error| error.emit_to_string(text))?;
    if module.entry_points.is_empty() {
        return Err("no entry point".into());
    }
    Ok(())
}

fn has_subgroups(name: &str) -> bool {
    !name.ends_with("no subgroups")
}

/// Files beside the functions' own whose parts are taken by what a text calls.
const DEFINITIONS: [&str; 4] =
    ["pointwise/bytes.wgsl", "pointwise/casts.wgsl", "common/subnormal.wgsl", "common/exponential.wgsl"];

static VARIANTS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| baracuda_ops::wgsl_variants().unwrap());

/// Which texts have a line, by their numbers.
static HOLDERS: LazyLock<HashMap<&str, Vec<usize>>> = LazyLock::new(|| {
    let mut holders: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, (_, text)) in VARIANTS.iter().enumerate() {
        for line in text.lines() {
            let holders = holders.entry(line).or_default();
            if holders.last() != Some(&number) {
                holders.push(number);
            }
        }
    }
    holders
});

/// What names and types stand in place of.
const PLACES: [&str; 5] = ["OPERAND", "BINDING", "ACCESS", "STORED", "RADIX"];

/// A file between its places.
fn pieces(file: &str) -> Vec<&str> {
    PLACES.iter().fold(vec![file], |pieces, place| pieces.iter().flat_map(|p| p.split(place)).collect())
}

/// The name of a text that holds a part of a file, among those that have its rarest line without places.
fn holder(part: &str) -> Option<&'static str> {
    let lines = part.lines().filter(|line| PLACES.iter().all(|place| !line.contains(place)));
    let holders = lines.map(|line| HOLDERS.get(line).map_or(&[][..], Vec::as_slice));
    let pieces = pieces(part);
    let texts = holders.min_by_key(|numbers| numbers.len())?.iter().map(|&number| &VARIANTS[number]);
    texts.filter(|(_, text)| holds(text, &pieces)).map(|(name, _)| name.as_str()).next()
}

/// Whether a text has the pieces of a file, one after the other, with names or types in between.
fn holds(text: &str, pieces: &[&str]) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || "_<>".contains(c);
    text.match_indices(pieces[0]).any(|(start, first)| {
        let mut rest = &text[start + first.len()..];
        pieces[1..].iter().all(|piece| {
            let gap = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            // A piece may itself begin with letters: after a name such as `dx`, `_load(` follows.
            let found = (0..=gap).rev().find(|at| rest[*at..].starts_with(piece));
            found.map(|at| rest = &rest[at + piece.len()..]).is_some()
        })
    })
}

#[test]
fn every_text_of_a_plan_is_valid() {
    let wrong: Vec<String> = VARIANTS
        .par_iter()
        .filter_map(|(name, text)| flaws(text, has_subgroups(name)).err().map(|why| format!("{name}\n{why}")))
        .collect();
    let first = wrong.first().map_or("", String::as_str);
    assert!(wrong.is_empty(), "{} of {} texts are invalid, the first: {first}", wrong.len(), VARIANTS.len());
    println!("{} texts", VARIANTS.len());
    flaws(copy::COPY, false).unwrap();
}

#[test]
fn every_file_is_part_of_one() {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, file) in FILES {
        // Of the files of programs a text has the parts between empty lines that it calls.
        let is_in_parts = path.starts_with("pointwise/functions/") || DEFINITIONS.contains(path);
        let parts: Vec<&str> = if is_in_parts { file.trim_end().split("\n\n").collect() } else { vec![file] };
        if let Some(names) = parts.into_iter().map(holder).collect::<Option<Vec<_>>>() {
            seen.insert(path, names[0]);
        }
    }
    // The yardstick is complete in itself.
    let missing: Vec<&str> =
        FILES.iter().map(|f| f.0).filter(|path| !seen.contains_key(path) && *path != "copy.wgsl").collect();
    assert!(
        missing.is_empty(),
        "no text of `wgsl_variants` holds {missing:?}: a family is not listed in ops/mod.rs, or a variant of it is left out"
    );
    assert!(!holds(&VARIANTS[0].1, &pieces("// A file that no plan uses.\nfn OPERAND_nothing() {}\n")));
}

/// What the validation must not let pass, each planted in a text that is valid without it.
#[test]
fn faults_are_found() {
    let pick = |words: &[&str]| {
        let found = VARIANTS.iter().find(|(name, text)| words.iter().all(|w| name.contains(w) || text.contains(w)));
        found.unwrap_or_else(|| panic!("no text with {words:?}")).clone()
    };
    let is_found = |words: &[&str], from: &str, to: &str, because: &str| {
        let (name, text) = pick(words);
        flaws(&text, has_subgroups(&name)).unwrap_or_else(|why| panic!("{name}: {why}"));
        let spoiled = text.replacen(from, to, 1);
        assert_ne!(text, spoiled, "{name} has no {from:?}");
        let why = flaws(&spoiled, has_subgroups(&name)).expect_err(from);
        assert!(why.contains(because), "{from:?} was found, but because: {why}");
    };
    // A name that only one accessor lacks.
    is_found(&["chunks,", "fn x_load"], "fn x_load(", "fn x_read(", "no definition in scope for identifier: `x_load`");
    // A type.
    is_found(&["no subgroups", "fn row_start"], "row * strides.z", "row * strides", "return type");
    // Two operands at one binding.
    is_found(&["@binding(2)"], "@binding(2)", "@binding(1)", "onflict");
    // An operation that the device does not have.
    is_found(
        &["no subgroups", "var<workgroup> tree"],
        "tree[own] = values;",
        "tree[own] = subgroupAdd(values);",
        "apabilit",
    );
    // A write to an input, which is only read where it is not bound for both.
    is_found(
        &["words, subgroups", "fn x_load"],
        "fn x_load(first: u32, count: u32) -> vec4<u32> {",
        "fn x_load(first: u32, count: u32) -> vec4<u32> { x_words[0] = 1u;",
        "",
    );
}
