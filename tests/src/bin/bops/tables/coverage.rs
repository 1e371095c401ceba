//! docs/coverage.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use baracuda_ops_tests::coverage::{Answer, LIBRARIES, Term, committed};

/// The page: for each library, the names that are one op here, those that are several, and those that are not there.
pub(super) fn render() -> Result<String> {
    let names = committed()?;
    let mut text = String::from(
        "# What other libraries' names are here\n\nRendered by `bops tables` from docs/data/coverage.txt, for real numbers. *layout*: a \
         description of an operand (`TensorDesc`), an allocation or a download; no kernel runs. `op/word`: a plan of that op whose \
         descriptor names the function, reduction or source; several joined by + are a composition, in one program where only \
         `pointwise` and `reduce` take part. Every op and word has a trial (tests/choices/coverage.rs).\n\n\
         | library | names | there | as one op | as several | layout | not there |\n|---|---|---|---|---|---|---|\n",
    );
    let mut lists = String::new();
    for (library, count) in LIBRARIES {
        let (mut one, mut several, mut layout, mut no) =
            (BTreeMap::<_, Vec<_>>::new(), Vec::new(), Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for name in names.iter().filter(|name| name.library == library) {
            let word = format!("`{}`", name.name);
            match &name.answer {
                Answer::Ops(terms) if terms.len() == 1 => one.entry(&terms[0].op).or_default().push(word),
                Answer::Ops(terms) => several.push(format!("{word} ({})", words(terms))),
                Answer::Layout => layout.push(word),
                Answer::No(why) => no.entry(why).or_default().push(word),
            }
        }
        let missing: usize = no.values().map(Vec::len).sum();
        let of_one: usize = one.values().map(Vec::len).sum();
        let _ = writeln!(
            text,
            "| {library} | {count} | {} | {of_one} | {} | {} | {missing} |",
            count - missing,
            several.len(),
            layout.len()
        );
        let _ = write!(lists, "\n## {library}\n\n| | |\n|---|---|\n");
        for (op, names) in one {
            let _ = writeln!(lists, "| {op} | {} |", names.join(", "));
        }
        let _ = writeln!(lists, "| several | {} |\n| layout | {} |", several.join(", "), layout.join(", "));
        for (why, names) in no {
            let _ = writeln!(lists, "| not there: {why} | {} |", names.join(", "));
        }
    }
    Ok(text + &lists)
}

fn words(terms: &[Term]) -> String {
    let word = |term: &Term| match &term.word {
        Some(word) => format!("{}/{word}", term.op),
        None => term.op.clone(),
    };
    terms.iter().map(word).collect::<Vec<_>>().join(" + ")
}
