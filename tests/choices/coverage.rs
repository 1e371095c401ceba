//! That `docs/data/coverage.txt` is complete, and that what it claims has trials.

use std::collections::{HashMap, HashSet};

use baracuda_ops_tests::coverage::{Answer, LIBRARIES, Name, Term, committed, parse};
use baracuda_ops_tests::ops::SUBJECTS;

/// The lines of the cases of each op.
fn lines() -> HashMap<&'static str, String> {
    let of = |case: &baracuda_ops_tests::case::Case| case.line();
    SUBJECTS.iter().map(|s| (s.name, (s.cases)().iter().map(of).collect::<Vec<_>>().join("\n"))).collect()
}

/// The terms of these names that no case shows.
fn without_case(names: &[Name]) -> Vec<&Term> {
    let lines = lines();
    let terms = names.iter().filter_map(|name| match &name.answer {
        Answer::Ops(terms) => Some(terms),
        _ => None,
    });
    let has_case = |term: &Term| {
        let words = |lines: &String| term.word.as_ref().is_none_or(|word| lines.contains(&format!("\"{word}\"")));
        lines.get(&*term.op).is_some_and(words)
    };
    let mut seen = HashSet::new();
    terms.flatten().filter(|term| seen.insert(*term) && !has_case(term)).collect()
}

#[test]
fn every_name_has_an_answer() {
    let names = committed().unwrap();
    for (library, count) in LIBRARIES {
        let of: HashSet<&str> = names.iter().filter(|n| n.library == library).map(|n| &*n.name).collect();
        assert_eq!(of.len(), count, "names of {library}");
    }
    let total: usize = LIBRARIES.iter().map(|(_, count)| count).sum();
    assert_eq!(names.len(), total, "a name stands twice, or a library is unknown");
}

#[test]
fn what_is_claimed_has_trials() {
    let names = committed().unwrap();
    assert_eq!(without_case(&names), Vec::<&Term>::new());
}

#[test]
fn a_claim_without_trial_is_noticed() {
    let claims = parse("torch\tsvd\tsvd\ntorch\tgamma\tpointwise/gamma + reduce/sum\ntorch\tqr\tno: none").unwrap();
    let found: Vec<&str> = without_case(&claims).iter().map(|term| &*term.op).collect();
    assert_eq!(found, ["svd", "pointwise"]);
    for line in ["torch\tsvd", "torch\tsvd\tno: ", "torch svd no"] {
        assert!(parse(line).is_err(), "{line:?}");
    }
}
