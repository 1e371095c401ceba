//! The harness: one list of cases per op, run in every mode on every backend and judged by the accuracy contract.
//!
//! The same lists serve the trials (`parity.rs`), the benchmarks and the tables of `bops`.

pub mod arena;
#[cfg(feature = "cuda")]
pub mod capture;
pub mod case;
pub mod case_file;
pub mod choices;
pub mod coverage;
pub mod exec;
pub mod faulty;
pub mod floor;
pub mod formula;
mod incomplete;
pub mod judge;
pub mod matrix;
pub mod modes;
pub mod ops;
pub mod program;
pub mod published;
pub mod random;
#[cfg(feature = "wgpu")]
pub mod record;
pub mod showcase;
pub mod tape;
pub mod target;
pub mod values;

/// An error with its causes, each once: an error of the library says its own, and so do others whose words end with those of their cause.
pub fn said(error: &anyhow::Error) -> String {
    let last = error.chain().position(|cause| cause.is::<baracuda_ops::Error>());
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain().take(last.map_or(usize::MAX, |at| at + 1)) {
        let words = cause.to_string();
        if !said.last().is_some_and(|before| before.ends_with(&words)) {
            said.push(words);
        }
    }
    said.join(": ")
}
