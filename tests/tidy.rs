//! What must agree between files: stems, parameter structs, words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use baracuda_ops::OPS;
use baracuda_ops_sys::wgsl::FILES;
use baracuda_ops_tests::floor::root;
use baracuda_ops_tests::ops::SUBJECTS;

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
fn an_op_has_one_stem_everywhere() {
    let cuda = sources("csrc", &["cu"]);
    for op in OPS.iter().map(|op| op.name) {
        let stem = op.trim_end_matches("_backward");
        let has = |folder: &str, ending: &str| {
            sources(folder, &[ending]).iter().any(|(p, _)| p.file_stem().is_some_and(|s| s == stem))
        };
        if cuda.is_empty() {
            return; // A bundle of binaries has no sources.
        }
        assert!(has("baracuda-ops/src/ops", "rs"), "baracuda-ops/src/ops has no {stem}.rs");
        assert!(has("tests/src/ops", "rs"), "tests/src/ops has no {stem}.rs");
        assert!(has("csrc", "wgsl"), "csrc has no {stem}.wgsl");
        assert!(cuda.iter().any(|(p, _)| p.file_stem().is_some_and(|s| s == op)), "csrc has no {op}.cu");
        let entry = format!("bops_{op}_launch");
        assert!(cuda.iter().any(|(_, text)| text.contains(&entry)), "no csrc/**/*.cu defines {entry}");
    }
}

/// Names of the fields of the struct that starts after `head` in a text, without those that WGSL cannot have.
fn fields(text: &str, head: &str, is_wgsl: bool) -> Vec<String> {
    let start = text.find(head).unwrap_or_else(|| panic!("no {head}")) + head.len();
    let body = text[start..].split('}').next().unwrap_or_default();
    let body: String = body.lines().map(|l| l.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let body = body.split("/*").map(|part| part.rsplit("*/").next().unwrap_or_default()).collect::<String>();
    let mut names = Vec::new();
    for declaration in body.split(if is_wgsl { ',' } else { ';' }) {
        let declaration = declaration.trim().trim_start_matches('{').trim();
        if declaration.is_empty() {
            continue;
        }
        if is_wgsl {
            names.push(declaration.split(':').next().unwrap_or_default().trim().to_string());
        } else {
            let list = declaration.split_once(char::is_whitespace).map_or("", |d| d.1);
            names.extend(list.split(',').map(|n| n.trim().to_string()));
        }
    }
    names
}

/// The fields that both structs of an op have come in the same order. WGSL has more (grids, and what C takes from 64-bit numbers), and
/// lacks what its specialisation already says.
#[test]
fn parameters_of_both_kernels_have_the_same_order() {
    let Some((_, header)) = sources("csrc", &["h"]).into_iter().find(|(p, _)| p.ends_with("bops.h")) else { return };
    for (file, name) in [
        ("norm/row_norm.wgsl", "bops_row_norm_params"),
        ("norm/row_norm_backward.wgsl", "bops_row_norm_backward_params"),
    ] {
        let text = FILES.iter().find(|(path, _)| *path == file).map(|f| f.1).unwrap_or_else(|| panic!("no {file}"));
        let before = header.split(&format!("}} {name};")).next().unwrap_or_default();
        let start = before.rfind("typedef struct").expect("a struct");
        let c = fields(&before[start..], "{", false);
        let wgsl = fields(text, "struct Params {", true);
        let wgsl: Vec<&str> = wgsl.iter().map(|n| n.trim_end_matches("_strides")).collect();
        let shared: Vec<&String> = c.iter().filter(|n| wgsl.contains(&n.as_str())).collect();
        let same: Vec<&&str> = wgsl.iter().filter(|n| c.iter().any(|m| m == **n)).collect();
        assert!(shared.len() >= 4, "{file} and {name} share only {shared:?}; C has {c:?}, WGSL {wgsl:?}");
        assert!(shared.iter().zip(&same).all(|(a, b)| a.as_str() == **b), "{file}: {same:?}\n{name}: {shared:?}");
    }
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

/// A kernel file whose other half exists says in its first lines what the pair is, by the other's name or by the op's.
#[test]
fn kernels_begin_with_a_comment() {
    for (path, text) in sources("csrc", &["wgsl", "cuh"]) {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//") || first.starts_with("/*") || first.starts_with("#pragma"),
            "{} begins with {first:?}",
            path.display()
        );
    }
}

/// No `extern "C"` in Rust outside the bindings.
#[test]
fn only_the_bindings_declare_foreign_functions() {
    for folder in ["baracuda-ops/src", "baracuda-ops-sys/src", "benches/src", "tests/src"] {
        for (path, text) in sources(folder, &["rs"]) {
            let is_declared = text
                .lines()
                .any(|l| l.trim_start().starts_with("unsafe extern") || l.trim_start().starts_with("extern \"C\""));
            assert!(!is_declared || path.ends_with("bindings.rs"), "{}", path.display());
        }
    }
}
