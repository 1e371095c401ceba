//! What must agree between files: stems, parameter structs, words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use baracuda_ops::{AnyDescriptor, DType, Function, OPS, PlanOptions};
use baracuda_ops_sys::wgsl::FILES;
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::case_file;
use baracuda_ops_tests::floor::root;
use baracuda_ops_tests::ops::{SUBJECTS, subject};

/// The sources, where this binary runs beside them.
fn sources(folder: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, endings: &[&str], found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                walk(&path, endings, found);
            } else if path.extension().is_some_and(|e| endings.iter().any(|w| e == *w)) {
                let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), endings, &mut found);
    found.sort();
    found
}

#[test]
fn every_op_has_cases() {
    let ops: Vec<&str> = OPS.iter().map(|op| op.name).collect();
    let subjects: Vec<&str> = SUBJECTS.iter().map(|s| s.name).collect();
    assert_eq!(ops, subjects);
}

#[test]
fn every_function_of_floating_point_numbers_has_golden_values_of_every_type() {
    let is_judged =
        |function: &Function| function.computes_in(DType::F32) && !function.gives_bool() && !function.takes_bool(0);
    let functions: BTreeSet<String> = Function::ALL.iter().filter(|f| is_judged(f)).map(|f| f.name().into()).collect();
    for dtype in ["f64", "f32", "f16", "bf16"] {
        let path = root().join(format!("tests/golden/functions_{dtype}.safetensors"));
        let mut names = BTreeSet::new();
        for entry in case_file::read(&path).expect("a pack") {
            let (name, case) = (entry.name.expect("a name"), entry.case.expect("a case"));
            let line = case.case.expect("a descriptor").descriptor.line();
            let call = format!(r#"["r","{name}","x""#);
            assert!(line.contains(&call) && line.contains(&format!(r#""{dtype}""#)), "{name} of {dtype}: {line}");
            assert!(case.outputs.get("out0").expect("an output").values.len() >= 100, "{name} of {dtype}");
            names.insert(name);
        }
        assert_eq!(names, functions, "{}", path.display());
    }
}

/// Ops whose files have another stem than their own: one file of descriptors, one of cases, one pair of kernels may serve several ops.
const SHARED_FILES: &[(&str, &str)] = &[
    ("conv_backward_data", "conv"),
    ("conv_backward_weight", "conv"),
    ("conv_backward_bias", "conv"),
    ("index_select", "lookup"),
    ("gather", "lookup"),
    ("index_add", "scatter"),
    ("rfft", "fft"),
    ("irfft", "fft"),
    ("sort", "order"),
    ("top_k", "order"),
];

/// Ops that are sequences of others, and have no kernels on GPUs.
const SEQUENCES: &[&str] = &["conv_transpose", "linear_cross_entropy"];

/// The op whose CUDA kernels another op runs.
fn kernels_of(op: &str) -> String {
    // Both products of a convolution's gradients are products as forward is.
    let of_products = op.replace("conv_backward_data", "conv").replace("conv_backward_weight", "conv");
    // Concatenations launch the kernels of copies.
    let of_products = of_products.replace("concat", "copy");
    // Both ops sort tiles and merge them.
    let of_products = of_products.replace("top_k", "order");
    let of_products = if of_products == "sort" { "order".into() } else { of_products };
    // Real lines are transformed as complex ones are.
    let of_products = if ["rfft", "irfft"].contains(&of_products.as_str()) { "fft".into() } else { of_products };
    // What is looked up lies in lines or alone.
    let of_products = of_products.replace("index_select", "lookup").replace("gather", "lookup");
    let of_products = of_products.replace("index_add", "scatter");
    // Which tensor is made of which is a choice of one kernel.
    let of_products = of_products.replace("resize_backward", "resize");
    let of_channels = ["batch_norm", "group_norm", "instance_norm"];
    let of_channels = of_channels.into_iter().fold(of_products, |op, member| op.replace(member, "channel_norm"));
    // One set of kernels serves both norms of rows.
    of_channels.replace("layer_norm", "row_norm").replace("rms_norm", "row_norm")
}

/// The stem of the files of an op.
fn stem_of<'o>(op: &'o str, shared: &[(&str, &'o str)]) -> &'o str {
    let name = op.trim_end_matches("_backward");
    shared.iter().find(|(shared_by, _)| *shared_by == name).map_or(name, |(_, stem)| stem)
}

/// The type of an op's descriptor.
fn descriptor_of(op: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    op.split('_').map(capital).collect::<String>() + "Descriptor"
}

/// Which of its files an op lacks. A file counts where it belongs to a family, not to what all share, and speaks of the op.
fn lacks(op: &str, shared: &[(&str, &str)], files: &[(PathBuf, String)]) -> Option<String> {
    let stem = stem_of(op, shared);
    let has_stem = |stem: &str, folder: &str, ending: &str, is_of_op: &dyn Fn(&str) -> bool| {
        let is_folder = |p: &Path| p.ends_with("mod.rs") && p.parent().is_some_and(|folder| folder.ends_with(stem));
        let in_family = |p: &Path| {
            let inner: Vec<_> =
                p.strip_prefix(root()).unwrap_or(p).iter().skip_while(|part| *part != folder).skip(1).collect();
            inner.len() >= 2 && inner[0] != "common"
        };
        files.iter().any(|(p, text)| {
            let is_stem = p.file_stem().is_some_and(|s| s == stem) || is_folder(p);
            is_stem && p.extension().is_some_and(|e| e == ending) && in_family(p) && is_of_op(text)
        })
    };
    let has = |folder: &str, ending: &str, is_of_op: &dyn Fn(&str) -> bool| has_stem(stem, folder, ending, is_of_op);
    let descriptor = descriptor_of(op);
    if !has("ops", "rs", &|text| text.contains(&descriptor)) {
        return Some(format!("no {stem}.rs in a family of baracuda-ops/src/ops has {descriptor}"));
    }
    if !has("tests", "rs", &|text| text.contains(&descriptor)) {
        return Some(format!("no tests/src/ops/{stem}.rs speaks of {descriptor}"));
    }
    if SEQUENCES.contains(&stem) {
        return None;
    }
    let shader = if op == "concat" { "copy" } else { stem };
    if !has_stem(shader, "csrc", "wgsl", &|_| true) {
        return Some(format!("no family of csrc has {shader}.wgsl"));
    }
    // A form of its own has its name behind the op's: bops_gemm_simt_launch.
    let defines = |text: &str, entry: &str| {
        let is_of_entry = |form: &str| form.strip_prefix(entry).is_some_and(|form| !form.contains("backward"));
        let functions = text.split("bops_status ").filter_map(|text| text.split('(').next()?.strip_suffix("_launch"));
        functions.map(String::from).chain(forms_by_macro(text)).any(|form| is_of_entry(&form))
    };
    let entry = format!("bops_{}", kernels_of(op));
    // In a file that has the name of a backward the steps of it may have names of their own: bops_gemm_dbias_launch.
    let is_defined = files.iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "cu")).any(|(p, text)| {
        let file = p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        (file.starts_with(stem_of(&kernels_of(op), shared)) && defines(text, &entry))
            || (file == op && defines(text, &format!("bops_{}", stem_of(op, shared))))
    });
    (!is_defined).then(|| format!("no .cu file of that stem defines {entry}_launch"))
}

/// The forms whose functions a text defines by a macro, of all families BOPS_DEFINE_FORM(bops_conv_turn, ..), or of one of them: its forms by their
/// own names and the pass, BOPS_DEFINE_SOFTMAX_FORM(split, backward_), or by their whole ones, BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_split, ..).
fn forms_by_macro(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| line.strip_prefix("BOPS_DEFINE_")?.split_once("FORM(")).map(|(family, arguments)| {
        let family = family.to_lowercase();
        let mut arguments = arguments.split([',', ')']).map(str::trim);
        let (form, pass) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
        match form {
            _ if form.starts_with("bops_") => form.into(),
            _ if family.is_empty() || form.contains("_norm") => format!("bops_{form}"),
            _ => format!("bops_{family}{pass}{form}"),
        }
    })
}

#[test]
fn an_op_has_one_stem_everywhere() {
    let mut files = sources("csrc", &["cu", "wgsl"]);
    if files.is_empty() {
        return; // A bundle of binaries has no sources.
    }
    files.extend(sources("baracuda-ops/src/ops", &["rs"]));
    files.extend(sources("tests/src/ops", &["rs"]));
    for op in OPS.iter().map(|op| op.name) {
        assert_eq!(lacks(op, SHARED_FILES, &files), None, "{op}");
    }

    // What only bears the name of an op does not stand for it.
    let without = |end: &str| files.iter().filter(|(p, _)| !p.ends_with(end)).cloned().collect::<Vec<_>>();
    for (op, file) in [
        ("activation", "csrc/pointwise/activation.wgsl"),
        ("copy", "csrc/movement/copy.wgsl"),
        ("concat", "csrc/movement/copy.wgsl"),
        ("activation", "csrc/pointwise/activation.cu"),
        ("activation", "ops/pointwise/activation/mod.rs"),
        ("softmax", "tests/src/ops/softmax.rs"),
        ("gemm_backward", "csrc/gemm/gemm_backward.cu"),
        ("batch_norm", "csrc/norm/channel/channel_norm.cu"),
        ("group_norm_backward", "csrc/norm/channel/channel_norm_backward.cu"),
    ] {
        assert!(lacks(op, SHARED_FILES, &without(file)).is_some(), "{op} without {file}");
    }
    // Two ops in one pair of files.
    let of = |path: &str, text: &str| (PathBuf::from(path), text.to_string());
    let pair = [
        of("baracuda-ops/src/ops/pool/pool.rs", "pub struct MaxPoolDescriptor; pub struct AvgPoolDescriptor;"),
        of("tests/src/ops/pool.rs", "MaxPoolDescriptor AvgPoolDescriptor"),
        of("csrc/pool/pool.wgsl", ""),
        of("csrc/pool/pool.cu", "bops_status bops_max_pool_launch( bops_status bops_avg_pool_rows_launch("),
    ];
    let shared = [("max_pool", "pool"), ("avg_pool", "pool")];
    assert_eq!([lacks("max_pool", &shared, &pair), lacks("avg_pool", &shared, &pair)], [None, None]);
    assert!(lacks("max_pool", &[], &pair).is_some() && lacks("min_pool", &[("min_pool", "pool")], &pair).is_some());
}

/// The structs of parameters that the two kernels of an op have in common: the WGSL file, the C struct.
const PARAMETERS: &[(&str, &str)] = &[
    ("norm/row/row_norm.wgsl", "bops_row_norm_params"),
    ("norm/row/row_norm_backward.wgsl", "bops_row_norm_backward_params"),
    ("norm/channel/channel_norm.wgsl", "bops_channel_norm_params"),
    ("norm/channel/channel_norm_backward.wgsl", "bops_channel_norm_backward_params"),
];

/// Fields of C structs that WGSL may lack, since its specialisation says them.
const SPECIALISED: [&str; 3] = ["activation", "uses_running", "is_cumulative"];

/// Name and type of each field of the struct whose `{` follows `head` in a text.
fn fields(text: &str, head: &str, is_wgsl: bool) -> Vec<(String, String)> {
    let start = text.find(head).unwrap_or_else(|| panic!("no {head}")) + head.len();
    let body = text[start..].split('}').next().unwrap_or_default().split_once('{').unwrap_or_default().1;
    let body: String = body.lines().map(|l| l.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let body = body.split("/*").map(|part| part.rsplit("*/").next().unwrap_or_default()).collect::<String>();
    let mut found = Vec::new();
    for declaration in body.split(if is_wgsl { ',' } else { ';' }).map(str::trim).filter(|d| !d.is_empty()) {
        if is_wgsl {
            let (name, ty) = declaration.split_once(':').unwrap_or((declaration, ""));
            found.push((name.trim().trim_end_matches("_strides").into(), ty.trim().into()));
        } else {
            let (ty, names) = declaration.split_once(char::is_whitespace).unwrap_or((declaration, ""));
            found.extend(names.split(',').map(|name| (name.trim().into(), ty.into())));
        }
    }
    found
}

/// The fields of a struct of the C ABI.
fn c_fields(header: &str, name: &str) -> Vec<(String, String)> {
    let before = header.split(&format!("}} {name};")).next().unwrap_or_default();
    let start = before.rfind("typedef struct").unwrap_or_else(|| panic!("no struct {name}"));
    fields(&before[start..], "typedef struct", false)
}

/// How WGSL has a type of the C ABI. It has no 64-bit numbers: plans whose extents or strides pass 32 bits are refused on wgpu.
fn wgsl_type(header: &str, c: &str) -> String {
    if let Some(word) = match c {
        "uint64_t" | "uint32_t" => Some("u32"),
        "int64_t" | "int32_t" => Some("i32"),
        "double" | "float" => Some("f32"),
        _ => None,
    } {
        return word.into();
    }
    if let Some(at) = header.find(&format!(" {c};")).filter(|at| !header[..*at].ends_with('}')) {
        let alias = header[..at].rsplit(char::is_whitespace).next().unwrap_or_default();
        return wgsl_type(header, alias);
    }
    // Strides: numbers of one type.
    let parts = c_fields(header, c);
    assert!(parts.iter().all(|part| part.1 == parts[0].1), "{c} has fields of several types: {parts:?}");
    format!("vec{}<{}>", parts.len(), wgsl_type(header, &parts[0].1))
}

/// Where a C struct and the `Params` of a WGSL text disagree: the fields of C come in WGSL in the same order, each as the type that
/// stands for its own. WGSL has more: grids, and what C computes from 64-bit numbers.
fn disagreement(header: &str, name: &str, text: &str) -> Option<String> {
    let wgsl = fields(text, "struct Params ", true);
    let mut last = None;
    for (field, ty) in c_fields(header, name) {
        let Some(at) = wgsl.iter().position(|f| f.0 == field) else {
            if SPECIALISED.contains(&field.as_str()) {
                continue;
            }
            return Some(format!("{name} has {field}, WGSL only {wgsl:?}"));
        };
        if last.is_some_and(|last| at < last) {
            return Some(format!("{name} has {field} later than WGSL: {wgsl:?}"));
        }
        last = Some(at);
        let expected = wgsl_type(header, &ty);
        if wgsl[at].1 != expected {
            return Some(format!("{field} is {ty} in {name}, {} in WGSL, where {expected} stands for it", wgsl[at].1));
        }
    }
    None
}

#[test]
fn parameters_of_both_kernels_agree() {
    let header: String = sources("csrc", &["h"]).into_iter().map(|(_, text)| text).collect();
    if header.is_empty() {
        return; // A bundle of binaries has no sources.
    }
    for (file, name) in PARAMETERS {
        let text = FILES.iter().find(|(path, _)| path == file).map(|f| f.1).unwrap_or_else(|| panic!("no {file}"));
        assert_eq!(disagreement(&header, name, text), None, "{file}");
    }
    // Each kind of disagreement, planted.
    let text = FILES.iter().find(|(path, _)| *path == "norm/row/row_norm.wgsl").map(|f| f.1).expect("the file");
    for (c, wgsl, because) in [
        ("", "    eps: f32,=>    eps: u32,", "eps is double"),
        ("", "    x: vec3<u32>,=>    x: vec2<u32>,", "x is bops_row_strides"),
        ("", "    rows: u32,\n    cols: u32,=>    cols: u32,\n    rows: u32,", "cols later"),
        ("", "    extent2: u32,\n=>", "has extent2"),
        (
            "    uint64_t cols;\n    uint64_t extent1; /*=>    double cols;\n    uint64_t extent1; /*",
            "",
            "cols is double",
        ),
        ("    uint64_t s0, s1, s2;=>    uint64_t s0, s1;", "", "x is bops_row_strides"),
    ] {
        let planted = |text: &str, change: &str| {
            let Some((from, to)) = change.split_once("=>") else { return text.to_string() };
            let spoiled = text.replacen(from, to, 1);
            assert_ne!(spoiled, text, "nothing like {from:?}");
            spoiled
        };
        let found = disagreement(&planted(&header, c), "bops_row_norm_params", &planted(text, wgsl));
        let found = found.unwrap_or_else(|| panic!("{c}{wgsl} was not found"));
        assert!(found.contains(because), "{c}{wgsl} was found, but because: {found}");
    }
}

/// The words in backquotes of a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of the tables below a heading of a page, up to the next heading.
fn rows_below<'t>(page: &'t str, heading: &str) -> impl Iterator<Item = &'t str> {
    let below = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    below.lines().take_while(|line| !line.starts_with('#')).filter_map(|line| line.strip_prefix("| "))
}

/// The names in the first column of the tables below a heading of a page, up to the next heading.
fn first_column<'t>(page: &'t str, heading: &str) -> Vec<&'t str> {
    rows_below(page, heading).flat_map(|row| quoted(row.split(" |").next().unwrap_or_default())).collect()
}

/// The fields in the tables below a heading that an op has: a row that names ops is about those alone.
fn fields_of<'t>(page: &'t str, heading: &str, op: &str) -> Vec<&'t str> {
    let is_of_op = |row: &&str| {
        let what = row.split(" | ").nth(2).unwrap_or_default();
        let named: Vec<&str> = quoted(what).filter(|name| OPS.iter().any(|op| op.name == *name)).collect();
        named.is_empty() || named.contains(&op)
    };
    let rows = rows_below(page, heading).filter(is_of_op);
    rows.flat_map(|row| quoted(row.split(" |").next().unwrap_or_default())).collect()
}

/// Where a page's list of an op's fields disagrees with an error, which lists those that the op knows. All ops have `layouts`, and those
/// that compute gradients `accumulate`, which no list repeats.
fn differing_fields(error: &str, listed: &[&str]) -> Option<String> {
    let known = error.split_once("expected ").unwrap_or_default().1;
    let known: BTreeSet<&str> = quoted(known).filter(|field| !["accumulate", "layouts"].contains(field)).collect();
    let named: BTreeSet<&str> = listed.iter().copied().collect();
    let is_equal = known == named && named.len() == listed.len();
    (!is_equal).then(|| format!("the op knows {known:?}, the page lists {listed:?}"))
}

#[test]
fn the_page_on_case_files_lists_every_field() {
    let Ok(page) = std::fs::read_to_string(root().join("docs/case-files.md")) else {
        return; // A bundle of binaries has no pages.
    };
    let unknown = r#"{"?":1}"#;
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("### `")).collect();
    let ops: Vec<&str> = headings.iter().flat_map(|heading| quoted(heading)).collect();
    let known: BTreeSet<&str> = OPS.iter().map(|op| op.name).collect();
    assert_eq!((ops.iter().copied().collect::<BTreeSet<_>>(), ops.len()), (known, OPS.len()));
    for heading in headings {
        for op in quoted(heading) {
            let error = AnyDescriptor::parse(op, unknown).expect_err(op).to_string();
            assert_eq!(differing_fields(&error, &fields_of(&page, heading, op)), None, "{op}");
        }
    }
    let error = serde_json::from_str::<PlanOptions>(unknown).expect_err("an unknown option").to_string();
    assert_eq!(differing_fields(&error, &first_column(&page, "### Options")), None);

    // A field that is missing, one too many, and one that comes twice.
    let error = "unknown field `?`, expected one of `x`, `axis`, `layouts`";
    assert_eq!(differing_fields(error, &["x", "axis"]), None);
    for listed in [&["x"][..], &["x", "axis", "log"], &["x", "x", "axis"]] {
        assert!(differing_fields(error, listed).is_some(), "{listed:?}");
    }
}

/// The constants that Rust puts in front of the files of a shader's text.
#[cfg(feature = "wgpu")]
fn constants_in_front(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("const ")?.split(':').next())
}

/// A reader of a shader's file sees no definition of what Rust puts in front of it.
#[cfg(feature = "wgpu")]
#[test]
fn the_page_on_kernels_explains_every_constant_of_wgsl() {
    let Ok(page) = std::fs::read_to_string(root().join("docs/kernels.md")) else {
        return; // A bundle of binaries has no pages.
    };
    let mut given = BTreeSet::new();
    for (_, text) in baracuda_ops::wgsl_variants().unwrap() {
        given.extend(constants_in_front(&text).map(str::to_string));
    }
    let explained = first_column(&page, "## Constants of WGSL text").into_iter().map(str::to_string).collect();
    let missing: Vec<_> = given.difference(&explained).collect();
    let stale: Vec<_> = explained.difference(&given).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "without explanation: {missing:?}; explained and not used: {stale:?}"
    );

    let text = "const LANES: u32 = 8u;\nconst SPLIT: bool = true;\nstruct Offsets {\n}\nconst WIDTH: u32 = 4u;\n";
    assert!(constants_in_front(text).eq(["LANES", "SPLIT"]));
}

/// Words of history, of plans and of trackers have no place in comments.
#[test]
fn comments_describe_the_present() {
    const BANNED: [&str; 15] = [
        "todo",
        "fixme",
        "xxx",
        "hack",
        "for now",
        "previously",
        "no longer",
        "used to be",
        "in the future",
        "phase 1",
        "phase 2",
        "workaround for now",
        "legacy code",
        "temporary",
        "will be added",
    ];
    let mut files = sources("csrc", &["cu", "cuh", "h", "wgsl"]);
    for folder in [
        "baracuda-ops/src",
        "baracuda-ops/examples",
        "baracuda-ops-sys/src",
        "benches/src",
        "tests/src",
        "tests/faults",
    ] {
        files.extend(sources(folder, &["rs", "cu"]));
    }
    let mut found = BTreeSet::new();
    for (path, text) in &files {
        if path.ends_with("bindings.rs") {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            let Some(at) = line.find("//").or_else(|| line.find("/*")) else { continue };
            let comment = line[at..].to_lowercase();
            let is_word = |word: &&&str| {
                comment.match_indices(**word).any(|(at, _)| {
                    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
                    edge(comment[..at].chars().next_back()) && edge(comment[at + word.len()..].chars().next())
                })
            };
            if let Some(word) = BANNED.iter().find(is_word) {
                found.insert(format!("{}:{}: {word}", path.display(), i + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Cargo looks for no tests in the sources of the harness.
#[test]
fn the_harness_has_its_tests_beside_it() {
    for (path, text) in sources("tests/src", &["rs"]) {
        assert!(!text.contains("#[test]"), "{}: no one would run this test", path.display());
    }
}

/// Whether csrc may have a file of this name. Editors and patches leave others behind.
fn is_source(name: &str) -> bool {
    [".cu", ".cuh", ".h", ".wgsl"].iter().any(|ending| name.ends_with(ending))
}

#[test]
fn csrc_has_sources_alone() {
    fn check(folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                check(&path);
            } else {
                assert!(is_source(&path.to_string_lossy()), "{} is no source", path.display());
            }
        }
    }
    check(&root().join("csrc"));
    assert!(!is_source("walk.cuh.orig") && !is_source(".DS_Store"));
}

/// A kernel file says in its first lines what it is.
#[test]
fn kernels_begin_with_a_comment() {
    for (path, text) in sources("csrc", &["cu", "wgsl", "cuh"]) {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//") || first.starts_with("/*") || first.starts_with("#pragma"),
            "{} begins with {first:?}",
            path.display()
        );
    }
}

/// In words of which some devices' text is made anew: there params are immediates, or offsets follow them.
/// What kernels do otherwise, or leave out, on other architectures: names of `csrc/common` and how they begin elsewhere.
const OF_AN_ARCHITECTURE: &[&str] = &[
    "__CUDA_ARCH__",
    "has_sm_90",
    "follow_previous",
    "allow_dependents",
    "wait_for_dependency",
    "cluster",
    "mbarrier",
    "store_remote",
    "wgmma",
];

/// The first of these names that a file of `csrc` or one of those that it includes outside `csrc/common` has in its code.
fn of_an_architecture(files: &[(PathBuf, String)], file: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<String> {
    if file.parent().is_some_and(|folder| folder.ends_with("common")) || !seen.insert(file.to_path_buf()) {
        return None;
    }
    let (_, text) = files.iter().find(|(path, _)| path == file)?;
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    let bare: Vec<String> = text.lines().map(code).collect();
    let includes = bare.iter().filter_map(|line| line.strip_prefix("#include \"")?.split('"').next());
    let found = bare.iter().filter(|line| !line.starts_with("#include"));
    let name = found.flat_map(|line| OF_AN_ARCHITECTURE.iter().filter(move |name| line.contains(**name))).next();
    name.map(|name| format!("{}: {name}", file.display())).or_else(|| {
        includes.map(|name| file.with_file_name(name)).find_map(|path| {
            let mut plain = PathBuf::new();
            for part in path.components() {
                if part.as_os_str() == ".." { _ = plain.pop() } else { plain.push(part) }
            }
            of_an_architecture(files, &plain, seen)
        })
    })
}

#[test]
fn what_is_compiled_once_is_the_same_for_all_architectures() {
    let files = sources("csrc", &["cu", "cuh"]);
    let first = |path: &Path| of_an_architecture(&files, path, &mut BTreeSet::new());
    let (once, others): (Vec<_>, Vec<_>) = files
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "cu"))
        .partition(|(_, text)| text.lines().any(|line| line == "// Compiled once for all architectures."));
    assert!(once.len() > 40, "{}", once.len());
    for (path, _) in once {
        assert_eq!(first(path), None);
    }
    // It finds what others have.
    assert!(others.iter().filter(|(path, _)| first(path).is_some()).count() > 10);
}

#[test]
fn kernels_for_wgpu_declare_their_params_in_the_same_words() {
    for (path, text) in sources("csrc", &["wgsl"]).iter().filter(|(_, text)| text.contains("struct Params")) {
        let words = "}\n\n@group(0) @binding(0) var<uniform> params: Params;\n";
        assert!(text.contains(words), "{} does not have: {words}", path.display());
    }
}

/// No block of `extern "C"` in Rust outside the bindings; a function that C calls is one's own.
#[test]
fn only_the_bindings_declare_foreign_functions() {
    for folder in ["baracuda-ops/src", "baracuda-ops-sys/src", "benches/src", "tests/src"] {
        for (path, text) in sources(folder, &["rs"]) {
            let is_block = |line: &str| !line.contains("fn ") && !line.contains("fn(");
            let is_foreign = |line: &str| line.starts_with("unsafe extern") || line.starts_with("extern \"C\"");
            let is_declared = text.lines().map(str::trim_start).any(|line| is_foreign(line) && is_block(line));
            assert!(!is_declared || path.ends_with("bindings.rs"), "{}", path.display());
        }
    }
}

/// The checks build the tests with `cuda`; that they speak for the library without it, too, rests on this.
#[test]
fn the_tape_of_the_page_is_that_of_the_example() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a text");
    let (page, example) = (read("docs/frameworks.md"), read("baracuda-ops/examples/tape.rs"));
    let (_, block) = page.split_once("```rust,ignore\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let indented = block.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") });
    assert!(block.lines().count() > 30 && example.contains(&indented.collect::<String>()));
}

/// What is wrong with where the faults of a list are to be planted, and how many there are.
fn misplaced_faults(list: &str) -> (usize, Vec<String>) {
    // Its strings are written as those of JSON are.
    let value = |line: &str, key: &str| -> Option<String> {
        serde_json::from_str(line.strip_prefix(key)?.trim_start().strip_prefix('=')?).ok()
    };
    let of = |fault: &str| {
        let find = |key: &str| fault.lines().find_map(|line| value(line, key)).unwrap_or_default();
        let [name, file, sound] = ["name", "file", "sound"].map(find);
        let count = std::fs::read_to_string(root().join(&file)).unwrap_or_default().matches(&sound).count();
        (count != 1).then(|| format!("{name}: {sound:?} stands {count} times in {file}, not once"))
    };
    let faults: Vec<&str> = list.split("[[fault]]").skip(1).collect();
    (faults.len(), faults.into_iter().filter_map(of).collect())
}

#[test]
fn planted_faults_have_a_place() {
    let list = std::fs::read_to_string(root().join("tests/faults/planted.toml")).unwrap();
    let (count, misplaced) = misplaced_faults(&list);
    assert!(count > 20 && misplaced.is_empty(), "of {count} faults {misplaced:#?}");
    let (_, misplaced) = misplaced_faults(&list.replacen("sound = \"", "sound = \"planted ", 1));
    assert_eq!(misplaced.len(), 1, "{misplaced:?}");
}

#[test]
fn the_feature_cuda_only_adds() {
    let takes_away = |text: &str| text.contains("not(feature = \"cuda\")") || text.contains("cfg!(feature = \"cuda\")");
    for folder in ["baracuda-ops/src", "baracuda-ops-sys/src"] {
        for (path, text) in sources(folder, &["rs"]) {
            assert!(!takes_away(&text), "{}", path.display());
        }
    }
    assert!(takes_away("#[cfg(not(feature = \"cuda\"))]"));
}

/// A stock program of kernels: its functions in order, and how many inputs with a value at each position and outputs it has.
#[derive(Debug, PartialEq)]
struct StockProgram {
    functions: Vec<String>,
    inputs: usize,
    outputs: usize,
}

/// The stock programs of a list in `csrc/pointwise/stock.cuh`, with their names.
fn stock_programs(text: &str, list: &str) -> Vec<(String, StockProgram)> {
    let (_, names) = text.split_once(&format!("using {list} = list<")).expect("a list");
    let names = names.split_once('>').expect("its end").0.split(", ");
    let program = |name: &str| {
        let (_, own) = text.split_once(&format!("struct {name} {{")).expect("a struct");
        let own = own.split_once("\n};").expect("its end").0;
        let number = |field: &str| {
            let (_, rest) = own.split_once(&format!("{field} = ")).expect("a field");
            rest.split([',', ';']).next().expect("a number").parse().expect("a number")
        };
        let functions = own.lines().filter_map(|line| line.trim().strip_prefix("instruction(BOPS_FUNCTION_"));
        let functions = functions.map(|rest| rest.split(',').next().unwrap_or_default().to_lowercase()).collect();
        (name.to_string(), StockProgram { functions, inputs: number("inputs"), outputs: number("outputs") })
    };
    names.map(program).collect()
}

/// The stock program that a case of f32 operands without strides runs, of one set or of several.
fn program_of_case(case: &Case, has_sets: bool) -> Option<StockProgram> {
    let line = case.descriptor.line();
    let json: serde_json::Value = serde_json::from_str(line.split_once(' ')?.1).ok()?;
    let inputs = json["inputs"].as_array()?;
    let own = json["sets"].as_array().map(|sets| sets[0].as_array().map_or(0, Vec::len));
    if own.is_some() != has_sets || inputs.iter().any(|input| input["dtype"] != "f32" || input["strides"].is_array()) {
        return None;
    }
    let functions = json["program"]["let"].as_array()?.iter().filter_map(|words| words[1].as_str().map(String::from));
    let (functions, outputs) = (functions.collect(), json["program"]["outputs"].as_array()?.len());
    Some(StockProgram { functions, inputs: own.unwrap_or(inputs.len()), outputs })
}

#[test]
fn every_stock_program_of_kernels_is_run_by_a_case() {
    let text = std::fs::read_to_string(root().join("csrc/pointwise/stock.cuh")).unwrap();
    for (list, op, has_sets) in
        [("programs", "pointwise", false), ("updates", "pointwise", true), ("reduced", "reduce", false)]
    {
        let cases = (subject(op).unwrap().cases)();
        let run: Vec<StockProgram> = cases.iter().filter_map(|case| program_of_case(case, has_sets)).collect();
        let programs = stock_programs(&text, list);
        assert!(!programs.is_empty(), "{list}");
        for (name, program) in programs {
            assert!(run.contains(&program), "no case of {op} runs {name} of csrc/pointwise/stock.cuh: {program:?}");
        }
    }
}
