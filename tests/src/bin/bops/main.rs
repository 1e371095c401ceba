//! The tool of baracuda-ops: shows that the devices of a machine agree, replays cases, times ops, renders tables.

use std::fmt::Display;
use std::io::{Error, ErrorKind, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use baracuda_ops_tests::modes::Mode;
use baracuda_ops_tests::said;
use baracuda_ops_tests::target::quiet_drivers;
use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

use trials::NotApplicable;

mod bench;
mod check;
mod drawing;
mod show;
mod tables;
mod trials;

/// Compares the devices of this machine, and times them.
///
/// Without a command: runs every op on every device, and shows how far each is from the reference and
/// how fast. That takes less than a minute.
#[derive(Parser)]
#[command(name = "bops", version, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the devices, or why there are none.
    Devices,
    /// Replays case files on every device and compares the outputs with those in the file.
    ///
    /// A case file holds an op's descriptor, its inputs and the expected outputs; docs/case-files.md says
    /// how to make one. A file may also name devices that must refuse it.
    ///
    /// A file that fails or cannot be read costs no other: it is printed with its path, and the exit code
    /// is 1. Absent devices are named; absence fails only where --device or the environment variable
    /// BOPS_REQUIRE, a list such as cpu,wgpu, asks for the device.
    #[command(verbatim_doc_comment)]
    Check {
        /// Files, or folders: every *.safetensors in them and below. By default tests/golden.
        paths: Vec<PathBuf>,
        /// Only this device; may be given several times.
        #[arg(long, value_name = "NAME", value_parser = ["cpu", "cuda", "wgpu"])]
        device: Vec<String>,
        /// Writes one JSON line per file and device here: how it ended, and why.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Prints which kernel serves what on the CPU, on CUDA and through wgpu, or why none does.
    ///
    /// For the devices of this machine; for one like an H200 where there is no CUDA device.
    Support {
        /// Only this op.
        op: Option<String>,
    },
    /// For maintainers: prints what is chosen for each case of an op, or each cell of a benchmark, on example devices
    /// (tests/choices.txt).
    Choices {
        /// The name of the op, such as layer_norm_backward, or of the cells, such as gemm_none.
        op: String,
    },
    /// Runs one case: a repro line or the name of a trial.
    ///
    /// The exit code is 1 if it fails, and 3 if its mode applies on none of the devices.
    #[command(verbatim_doc_comment)]
    Repro {
        /// `<op> <json> [data] [options=<json>]`, or the same behind `<op>/<mode>/<backend>/`, in quotes. The
        /// options are those of a plan, such as `options={"kernel":"softmax_split"}`.
        line: String,
        /// By default the one that the line names, or all that are present.
        #[arg(long, value_name = "NAME", value_parser = ["cpu", "cuda", "wgpu", "wgpu-plain"])]
        device: Option<String>,
        /// By default the one that the line names, or values.
        #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Mode::ALL.map(Mode::name)))]
        mode: Option<String>,
    },
    /// Times ops on the GPUs of this machine, on the CPU where there is none.
    Bench {
        /// Appends one JSON line per measurement to this file.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Only these ops, separated by commas; an unknown one makes the known ones be listed.
        #[arg(long, value_delimiter = ',')]
        ops: Vec<String>,
        /// Only this device.
        #[arg(long, value_name = "NAME", value_parser = ["cpu", "cuda", "wgpu"])]
        device: Option<String>,
        /// Only this kernel, pinned by its name, such as softmax_split: cells that it does not serve are left out, and it says why.
        #[arg(long, value_name = "NAME", conflicts_with = "host")]
        kernel: Option<String>,
        /// The first three shapes of each op.
        #[arg(long)]
        quick: bool,
        /// Times the host instead: checks, runs, replays, plans.
        #[arg(long)]
        host: bool,
    },
    /// For maintainers: renders docs/SUPPORT.md, ACCURACY.md, coverage.md and performance.md from the kernels' answers and docs/data.
    Tables {
        /// Writes nothing; fails if a file is not current.
        #[arg(long)]
        check: bool,
        /// First takes into docs/data what a whole run of the parity tests left in this folder; by default the target folder.
        #[arg(long, value_name = "FOLDER")]
        record: Option<Option<PathBuf>>,
    },
    /// For maintainers: compares the last run of the parity tests with tests/floor.txt.
    Floor {
        /// Renews the floor from that run.
        #[arg(long)]
        update: bool,
    },
}

fn main() -> ExitCode {
    // SAFETY: the first call of `main`.
    unsafe { quiet_drivers() };
    let outcome = match Cli::parse().command {
        None => show::all(),
        Some(Command::Devices) => show::devices(),
        Some(Command::Check { paths, device, json }) => check::run(&check::Request { paths, devices: device, json }),
        Some(Command::Support { op }) => tables::print_support(op.as_deref()),
        Some(Command::Choices { op }) => show::choices(&op),
        Some(Command::Repro { line, device, mode }) => trials::repro(&line, device.as_deref(), mode.as_deref()),
        Some(Command::Bench { json, ops, device, kernel, quick, host }) => {
            bench::run(&bench::Request { json, ops, device, kernel, is_quick: quick, is_host: host })
        }
        Some(Command::Tables { check, record }) => tables::render(check, record),
        Some(Command::Floor { update }) => trials::floor(update),
    };
    finish(outcome)
}

fn finish(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads on, as behind `head`.
        Err(error) if error.downcast_ref().is_some_and(|e: &Error| e.kind() == ErrorKind::BrokenPipe) => {
            ExitCode::FAILURE
        }
        Err(error) => {
            warn(format_args!("error: {}", said(&error)));
            if error.is::<NotApplicable>() { ExitCode::from(NotApplicable::EXIT) } else { ExitCode::FAILURE }
        }
    }
}

/// A line for stderr, which may be closed.
fn warn(words: impl Display) {
    let _ = writeln!(stderr(), "{words}");
}
