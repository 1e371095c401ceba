//! The pages under docs that are rendered: from what the kernels answer, and from the measurements in docs/data.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use baracuda_ops_benches::line::Origin;
use baracuda_ops_tests::floor;
use serde::{Serialize, de::DeserializeOwned};

mod accuracy;
mod coverage;
mod performance;
mod support;

pub(crate) use support::print as print_support;

fn data() -> PathBuf {
    floor::root().join("docs/data")
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
    let line =
        |(i, line): (usize, &str)| serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), i + 1));
    text.lines().enumerate().filter(|(_, l)| l.starts_with('{')).map(line).collect()
}

fn write<T: Serialize>(path: &Path, lines: &[T]) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{}", serde_json::to_string(line)?);
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn commit(origin: &Origin) -> String {
    let short: String = origin.commit.chars().take(10).collect();
    if origin.dirty { format!("{short} and changes") } else { short }
}

pub(crate) fn render(is_check: bool, from: Option<Option<PathBuf>>) -> Result<()> {
    if let Some(path) = from {
        accuracy::record(&path.unwrap_or_else(floor::target_folder))?;
    }
    let (performance, drawings) = performance::render(is_check)?;
    let mut files = vec![
        ("docs/SUPPORT.md".into(), support::render()?),
        ("docs/ACCURACY.md".into(), accuracy::render()?),
        ("docs/coverage.md".into(), coverage::render()?),
        ("docs/performance.md".into(), performance),
    ];
    files.extend(drawings);
    for (path, text) in files {
        let at = floor::root().join(&path);
        if is_check {
            ensure!(
                std::fs::read_to_string(&at).is_ok_and(|now| now == text),
                "{path} is not what docs/data and the kernels render to; run `cargo bops tables`, built with the feature cuda"
            );
        } else {
            std::fs::write(&at, text).with_context(|| at.display().to_string())?;
        }
    }
    writeln!(stdout(), "{}", if is_check { "the tables are current" } else { "the tables are written" })?;
    Ok(())
}
