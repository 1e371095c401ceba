//! What the names of other libraries are here, as `docs/data/coverage.txt` says.

use anyhow::{Context, Result, bail, ensure};

use crate::floor::root;

/// The libraries, and how many names each has: PyTorch's `op_db`, `jax.lax`, candle's storage operations, the required methods of burn's backend.
pub const LIBRARIES: [(&str, usize); 4] = [("torch", 637), ("jax.lax", 150), ("candle", 62), ("burn", 206)];

/// A name of another library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The library.
    pub library: String,
    /// The name there.
    pub name: String,
    /// What it is here.
    pub answer: Answer,
}

/// What a name is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Plans of these ops make it.
    Ops(Vec<Term>),
    /// A description of an operand, an allocation or a download: no kernel runs.
    Layout,
    /// It is not there, and why.
    No(String),
}

/// An op, and a word of its descriptor: a function, a reduction or a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// The op.
    pub op: String,
    /// The word, if the op alone does not say it.
    pub word: Option<String>,
}

/// The names of the committed file.
///
/// # Errors
/// A file that cannot be read, or a line that is none.
pub fn committed() -> Result<Vec<Name>> {
    let path = root().join("docs/data/coverage.txt");
    parse(&std::fs::read_to_string(&path).with_context(|| path.display().to_string())?)
}

/// The names of a file.
///
/// # Errors
/// A line that is none.
pub fn parse(text: &str) -> Result<Vec<Name>> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(name).collect()
}

fn name(line: &str) -> Result<Name> {
    let mut fields = line.split('\t');
    let (Some(library), Some(name), Some(answer), None) = (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        bail!("not three fields with tabs between: {line:?}");
    };
    let answer = match answer.strip_prefix("no: ") {
        Some(why) => {
            ensure!(!why.is_empty(), "no reason: {line:?}");
            Answer::No(why.into())
        }
        None if answer == "layout" => Answer::Layout,
        None => Answer::Ops(answer.split(" + ").map(term).collect()),
    };
    Ok(Name { library: library.into(), name: name.into(), answer })
}

fn term(words: &str) -> Term {
    let (op, word) = words.split_once('/').map_or((words, None), |(op, word)| (op, Some(word.into())));
    Term { op: op.into(), word }
}
