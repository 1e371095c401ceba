//! The tool of baracuda-ops: shows that the devices of a machine agree, replays cases, times ops, renders tables.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod check;
mod drawing;
mod show;
mod tables;

/// Shows that every device of this machine agrees, and how fast it is.
#[derive(Parser)]
#[command(name = "bops", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the devices, or why there are none.
    Devices,
    /// Replays case files on every device.
    Check {
        /// Case files; by default those of tests/golden.
        files: Vec<PathBuf>,
    },
    /// Prints which device serves what.
    Support,
    /// Runs one case: a repro line or the name of a trial.
    Repro {
        /// `<op> <json> [data]`, or `<op>/<mode>/<backend>/<op> <json> [data]`.
        line: String,
        /// cpu, wgpu, wgpu-plain or cuda; by default all that are present.
        #[arg(long)]
        device: Option<String>,
        /// values, bitwise, pool, in-place, workspace, threads, bind, erase, record, capture, sanitize.
        #[arg(long)]
        mode: Option<String>,
    },
    /// Times ops on the GPUs of this machine.
    Bench {
        /// Appends one JSON line per measurement to this file.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Labels, separated by commas.
        #[arg(long, value_delimiter = ',')]
        ops: Vec<String>,
        /// cuda or wgpu, with --host also cpu; by default all.
        #[arg(long)]
        device: Option<String>,
        /// The first three shapes of each op.
        #[arg(long)]
        quick: bool,
        /// Times the host instead: checks, runs, replays, plans.
        #[arg(long)]
        host: bool,
    },
    /// Renders docs/SUPPORT.md, ACCURACY.md and performance.md from docs/data.
    Tables {
        /// Writes nothing; fails if a file is not current.
        #[arg(long)]
        check: bool,
        /// First takes into docs/data what a whole run of the parity tests left in this folder; by default the target folder.
        #[arg(long)]
        record: Option<Option<PathBuf>>,
    },
    /// Compares the last run of the parity tests with tests/floor.txt.
    Floor {
        /// Renews the floor from that run.
        #[arg(long)]
        update: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        None => show::all(),
        Some(Command::Devices) => show::devices(),
        Some(Command::Check { files }) => check::files(files),
        Some(Command::Support) => tables::print_support(),
        Some(Command::Repro { line, device, mode }) => check::repro(&line, device.as_deref(), mode.as_deref()),
        Some(Command::Bench { json, ops, device, quick, host }) => {
            bench::run(&bench::Request { json, ops, device, is_quick: quick, is_host: host })
        }
        Some(Command::Tables { check, record }) => tables::render(check, record),
        Some(Command::Floor { update }) => check::floor(update),
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
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
