//! The parity matrix: op x case x mode x backend, one trial each.
//!
//! A trial's name is `<op>/<mode>/<backend>/<repro line>`; `bops repro '<name>'` runs it alone. Trials of absent devices are shown as
//! ignored; `BOPS_REQUIRE=cpu,wgpu` makes their absence a failure. Where wgpu's adapter is software, a fixed part
//! of its trials, in which every form of a shader has one, runs and the rest is ignored, too; where there is no CUDA device, so are large
//! trials on the CPU that are for its kernels (`matrix.rs` says which). `BOPS_EVERY=1` runs them. A run of everything is compared with `tests/floor.txt`.
//!
//! Beside the lists run random cases, others for each commit, in the mode `random`: they are no part of the floor. `BOPS_SEED` repeats
//! those of another run.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use baracuda_ops::Backend;
use baracuda_ops_tests::floor::{self, Ended, Record};
use baracuda_ops_tests::modes::Mode;
use baracuda_ops_tests::target::{self, Target};
use baracuda_ops_tests::{matrix, published, random};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    // SAFETY: the first call of `main`.
    unsafe { target::quiet_drivers() };
    #[cfg(feature = "cuda")]
    if let Some(code) = baracuda_ops_tests::capture::child_main() {
        return code;
    }
    let mut args = Arguments::from_args();
    if let Err(missing) = target::require() {
        eprintln!("{missing}");
        return ExitCode::FAILURE;
    }
    let is_whole = args.filter.is_none() && args.skip.is_empty() && !args.list && !args.ignored && !args.exact;
    let records = Arc::new(Mutex::new(Vec::new()));
    let (mut left_out, mut large) = (0, 0);
    let seed = random::seed();
    println!("random cases of BOPS_SEED={seed}");
    let mut entries = matrix::entries();
    entries.extend(random::entries(&seed, &entries));
    let trials = matrix::spread(entries).into_iter().map(|entry| {
        let records = records.clone();
        let is_left_out = entry.is_left_out();
        match entry.target.backend {
            Backend::Cpu => large += usize::from(is_left_out),
            _ => left_out += usize::from(is_left_out),
        }
        let is_ignored = is_left_out || entry.target.device.is_err();
        if is_ignored && is_whole {
            let must_be_refused = entry.case.must_be_refused_by(entry.target.backend);
            let words = if must_be_refused { floor::MUST_BE_REFUSED } else { "" };
            records.lock().unwrap().push(entry.record(Ended::Ignored, words.into(), 0.0));
        }
        Trial::test(entry.name(), move || {
            let record = entry.run();
            let failure = (record.ended == Ended::Failed).then(|| Failed::from(record.words.clone()));
            if entry.mode != Mode::Random {
                records.lock().unwrap().push(record);
            }
            failure.map_or(Ok(()), Err)
        })
        .with_ignored_flag(is_ignored)
    });
    let trials = trials.collect();
    if left_out > 0 {
        println!(
            "{left_out} trials on wgpu are left out, since its adapter is software and the others have every form of a shader; BOPS_EVERY=1 runs them"
        );
    }
    if large > 0 {
        println!(
            "{large} large trials on cpu are left out, since no CUDA device is there that they are for; BOPS_EVERY=1 runs them"
        );
    }
    if target::TARGETS.iter().any(Target::is_software) {
        // While some trials wait for such an adapter's devices, others find one that is free.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        args.test_threads.get_or_insert(4 * cores);
    }
    let conclusion = libtest_mimic::run(&args, trials);
    if args.list {
        return ExitCode::SUCCESS;
    }
    let mut failed = conclusion.has_failed();
    let records: Vec<Record> = std::mem::take(&mut *records.lock().unwrap());
    let is_whole = is_whole && conclusion.num_filtered_out == 0;
    // A run of some trials leaves the record of the last run of all alone.
    let path =
        if is_whole { floor::record_path() } else { floor::record_path().with_file_name("parity-partial.jsonl") };
    if let Err(error) = matrix::write(&records, &path) {
        eprintln!("{}: {error:#}", path.display());
    }
    if is_whole {
        let path = floor::target_folder().join("accuracy.jsonl");
        if let Err(error) = matrix::write(&published::accuracy(&records), &path) {
            eprintln!("{}: {error:#}", path.display());
        }
        let present = |name: &str| target::target(name).is_some_and(|t| t.device.is_ok());
        let complaints = floor::below(&floor::committed(), &floor::of(&records), present);
        for complaint in &complaints {
            eprintln!("floor: {complaint}");
        }
        if !complaints.is_empty() {
            eprintln!("if that is intended, `cargo bops floor --update` renews tests/floor.txt from this run");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
