//! The functions of a program in WGSL: those that its text calls and what they need, from the files of `csrc/pointwise/functions` and a few others.
//!
//! A file is made of parts between empty lines. A part defines one function; those in front that define none are the file's head.

use std::sync::LazyLock;

use baracuda_ops_sys::wgsl::FILES;

use super::text::Computing;
use crate::ops::pointwise::program::Function;

/// Files of functions beside those.
const SHARED: [&str; 4] =
    ["common/subnormal.wgsl", "common/exponential.wgsl", "pointwise/bytes.wgsl", "pointwise/casts.wgsl"];

/// What a program that computes in a type calls a function. Those of bools, which lie among the numbers, are the same for all types.
pub(super) fn name_of(function: Function, computing: Computing) -> String {
    let is_of_integers = computing != Computing::F32 && !function.takes_bool(0);
    format!("{}_{}", if is_of_integers { 'i' } else { 'f' }, function.name())
}

/// A part of a file.
struct Part {
    file: usize,
    /// The function that it defines, unless it is the file's head.
    name: Option<&'static str>,
    text: &'static str,
    /// Parts that it needs, by their numbers.
    needs: Vec<usize>,
}

static PARTS: LazyLock<Vec<Part>> = LazyLock::new(|| {
    let is_of_programs = |path: &str| path.starts_with("pointwise/functions/") || SHARED.contains(&path);
    let mut parts: Vec<Part> = Vec::new();
    for (file, (_, text)) in FILES.iter().filter(|(path, _)| is_of_programs(path)).enumerate() {
        parts.extend(text.trim_end().split("\n\n").map(|text| Part {
            file,
            name: name(text),
            text,
            needs: Vec::new(),
        }));
    }
    let numbered =
        |at: usize| called(parts[at].text).filter_map(|name| number(&parts, name)).filter(move |&need| need != at);
    let needs: Vec<Vec<usize>> = (0..parts.len()).map(|at| numbered(at).collect()).collect();
    parts.iter_mut().zip(needs).for_each(|(part, needs)| part.needs = needs);
    parts
});

/// The name of the function that a part defines.
fn name(text: &'static str) -> Option<&'static str> {
    text.lines().find_map(|line| line.strip_prefix("fn ")?.split_once('(').map(|(name, _)| name))
}

/// The words in front of brackets, without comments.
fn called(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|line| line.match_indices('(').map(move |(at, _)| &line[..at])).map(|before| {
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        before.rsplit_once(|c| !is_of_word(c)).map_or(before, |(_, word)| word)
    })
}

fn number(parts: &[Part], name: &str) -> Option<usize> {
    parts.iter().position(|part| part.name == Some(name))
}

/// The definitions of what a text calls, and of further functions.
pub(in crate::ops) fn definitions(text: &str, further: &[&'static str]) -> String {
    let parts = &*PARTS;
    let mut open: Vec<usize> =
        called(text).chain(further.iter().copied()).filter_map(|name| number(parts, name)).collect();
    let mut is_taken = vec![false; parts.len()];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut is_taken[at], true) {
            open.extend(&parts[at].needs);
        }
    }
    let is_of_taken = |file: usize| parts.iter().zip(&is_taken).any(|(part, is_taken)| *is_taken && part.file == file);
    let mut text = String::with_capacity(4 << 10);
    for (part, is_taken) in parts.iter().zip(&is_taken) {
        if *is_taken || (part.name.is_none() && is_of_taken(part.file)) {
            text.push_str(part.text);
            text.push_str("\n\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn each_function_has_a_definition_and_each_part_one_name() {
        for (computing, dtype) in
            [(Computing::F32, DType::F32), (Computing::I32, DType::I32), (Computing::U32, DType::U32)]
        {
            for function in Function::ALL.into_iter().filter(|function| function.computes_in(dtype)) {
                assert!(number(&PARTS, &name_of(function, computing)).is_some(), "{function:?} of {dtype}");
            }
        }
        for (at, part) in PARTS.iter().enumerate() {
            assert!(
                part.text.matches("\nfn ").count() + usize::from(part.text.starts_with("fn ")) <= 1,
                "{}",
                part.text
            );
            assert!(part.name.is_none_or(|name| number(&PARTS, name) == Some(at)), "{:?} is defined twice", part.name);
        }
    }

    #[test]
    fn a_text_has_what_it_calls_and_no_more() {
        let text = definitions("let t0 = rounded(f_frac(literal(0u))); // f_exp(x)", &[]);
        let mut names: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("fn ")?.split('(').next()).collect();
        names.sort_unstable();
        let needed =
            ["f_frac", "f_sub", "f_trunc", "literal", "made_whole", "magnitudes", "negated", "rounded", "with_signs"];
        assert_eq!(names, needed);
    }
}
