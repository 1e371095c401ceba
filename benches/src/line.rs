//! Measurements as JSON lines, in the schema that the scripts of other libraries share.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use baracuda_ops::DeviceProps;
use baracuda_ops::{AnyPlan, Device, PlanInfo};
use serde::{Deserialize, Serialize};

use crate::cells::Cell;

/// What was measured where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The commit that was built.
    pub commit: String,
    /// Whether the tree differed from it.
    pub dirty: bool,
    /// The device.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// The day, UTC.
    pub date: String,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The op's label.
    pub op: String,
    /// `fw` or `bw`.
    pub pass: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: String,
    /// `baracuda-` and the backend.
    pub peer: String,
    /// Median time of one call in microseconds.
    pub us: f64,
    /// `bytes` over `us`.
    pub gbps: f64,
    /// `flops` over `us`.
    pub tflops: f64,
    /// The fewest bytes of the op.
    pub bytes: u64,
    /// Its floating-point operations, 0 where bytes count.
    pub flops: u64,
    /// `graph`, `timestamp` or `host`.
    pub timing: String,
    /// Host time of one call in microseconds, of small shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_us: Option<f64>,
    /// The kernel that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What it chose: [`PlanInfo::choice`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// The vendor's library that it ran through, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Where.
    #[serde(flatten)]
    pub origin: Origin,
}

/// Host time of something that is done per call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostLine {
    /// `host`.
    pub op: String,
    /// What was timed.
    pub what: String,
    /// `baracuda-` and the backend.
    pub peer: String,
    /// Nanoseconds of one.
    pub ns: f64,
    /// Where.
    #[serde(flatten)]
    pub origin: Origin,
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Times of one cell.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Median time of one call in microseconds.
    pub us: f64,
    /// Host time of one call in microseconds.
    pub host_us: f64,
    /// The method.
    pub timing: &'static str,
}

impl Line {
    /// The line of a cell, which its plans ran one after the other.
    pub fn of_cell(cell: &Cell, peer: &str, plans: &[AnyPlan], timed: Timed, origin: &Origin) -> Self {
        let flops = plans.iter().map(|plan| plan.info().flops).sum();
        let joined = |of: fn(&PlanInfo) -> String| plans.iter().map(|p| of(p.info())).collect::<Vec<_>>().join(" + ");
        Self {
            op: cell.op.into(),
            pass: cell.pass.into(),
            shape: cell.shape.clone(),
            dtype: cell.dtype_name().into(),
            flops,
            tflops: round(flops as f64 / timed.us / 1e6, 2),
            kernel: Some(joined(|info| info.kernel.into())),
            choice: Some(joined(PlanInfo::choice)),
            library: plans.iter().find_map(|plan| plan.info().library.clone()),
            ..Self::of(peer, cell.bytes, timed, origin)
        }
    }

    /// The line of a copy of f32 elements.
    pub fn of_copy(elements: u64, peer: &str, timed: Timed, origin: &Origin) -> Self {
        Self { op: "copy".into(), shape: vec![elements], ..Self::of(peer, 8 * elements, timed, origin) }
    }

    /// Of what counts bytes.
    fn of(peer: &str, bytes: u64, timed: Timed, origin: &Origin) -> Self {
        let us = timed.us;
        Self {
            op: String::new(),
            pass: "fw".into(),
            shape: Vec::new(),
            dtype: "float32".into(),
            peer: peer.into(),
            us: round(us, 3),
            gbps: round(bytes as f64 / us / 1e3, 1),
            tflops: 0.0,
            bytes,
            flops: 0,
            timing: timed.timing.into(),
            host_us: (bytes < 8 << 20).then(|| round(timed.host_us, 2)),
            kernel: None,
            choice: None,
            library: None,
            origin: origin.clone(),
        }
    }
}

impl HostLine {
    /// A line.
    pub fn new(what: &str, peer: &str, ns: f64, origin: &Origin) -> Self {
        Self { op: "host".into(), what: what.into(), peer: peer.into(), ns: round(ns, 1), origin: origin.clone() }
    }
}

impl Origin {
    /// Of a device, here and today. `BOPS_COMMIT` and `BOPS_DIRTY` stand in for git where there is none.
    pub fn of(device: &Device) -> Self {
        let git = |args: &[&str]| {
            let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
        };
        let commit = std::env::var("BOPS_COMMIT").ok().or_else(|| git(&["rev-parse", "HEAD"]));
        let dirty = match std::env::var("BOPS_DIRTY") {
            Ok(word) => !matches!(word.as_str(), "" | "0" | "false"),
            Err(_) => git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changes| !changes.is_empty()),
        };
        let (name, driver) = name_and_driver(device);
        Self { commit: commit.unwrap_or_else(|| "unknown".into()), dirty, device: name, driver, date: today() }
    }
}

fn name_and_driver(device: &Device) -> (String, String) {
    match device.props() {
        #[cfg(feature = "cuda")]
        DeviceProps::Cuda(props) => {
            let api = format!("CUDA {}.{}", props.driver / 1000, props.driver % 1000 / 10);
            // The kernel module knows the driver's own version.
            let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
            let is_version =
                |word: &&str| word.split('.').count() >= 2 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let version = module.split_whitespace().find(is_version).unwrap_or_default();
            (props.name, format!("{version} {api}").trim().to_string())
        }
        #[cfg(feature = "wgpu")]
        DeviceProps::Wgpu(props) => (props.adapter, format!("{} {}", props.api, props.driver)),
        _ => ("cpu".into(), format!("{} threads", std::thread::available_parallelism().map_or(1, |n| n.get()))),
    }
}

/// The day as year-month-day, UTC (days to civil date: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    civil(seconds / 86400)
}

fn civil(days: u64) -> String {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) =
        (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn days_become_dates() {
        assert_eq!(super::civil(0), "1970-01-01");
        assert_eq!(super::civil(11_016), "2000-02-29");
        assert_eq!(super::civil(20_778), "2026-11-21");
    }
}
