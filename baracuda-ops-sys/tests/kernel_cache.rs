//! The build script's cache of what nvcc makes, with a script in place of nvcc.
#![cfg(unix)]

#[path = "../build/cache.rs"]
mod cache;
#[path = "../build/nvcc.rs"]
mod nvcc;

use cache::{Cache, Made};
use nvcc::{Job, Nvcc};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{env, fs, process};

/// A checkout, a build of it and a cache, in a folder of their own that goes with them.
struct World {
    root: PathBuf,
    csrc: PathBuf,
    archs: Vec<u32>,
    args: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    /// A file that the build does not ask for.
    left_out: Option<&'static str>,
    _turn: MutexGuard<'static, ()>,
}

/// One test at a time: a process that another test starts while this one writes its nvcc inherits the open file, which then cannot be
/// executed.
static TURN: Mutex<()> = Mutex::new(());

const KERNEL: &str = "#include \"deep/header.h\"\n#include <toolkit.h>\nkernel 1 // a comment\n";

impl World {
    fn new(test: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let root = env::temp_dir().join(format!("baracuda-kernel-cache-{}-{test}", process::id()));
        let csrc = root.join("csrc");
        fs::create_dir_all(&csrc).unwrap();
        let nvcc = root.join("nvcc");
        fs::write(&nvcc, include_str!("nvcc.sh")).unwrap();
        fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755)).unwrap();
        let (archs, args, variables) = (vec![80, 90], vec!["-O3"], Vec::new());
        let world = World { root, csrc, archs, args, variables, left_out: None, _turn: turn };
        fs::create_dir(world.csrc.join("deep")).unwrap();
        world.write("deep/header.h", "#include \"../other.h\"\nheader /* of the kernel */ 1\n");
        world.write("other.h", "other\n");
        world.write("kernel.cu", KERNEL);
        fs::write(world.root.join("toolkit.h"), "80: 1\n90: 1\nhost: 1\n").unwrap();
        world
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.csrc.join(file), text).unwrap();
    }

    fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Builds into a new folder; the files that were compiled for it, in this order, and what it left of `kernel.cu`.
    fn build(&self) -> (Vec<String>, Option<Made>) {
        let compiled = self.root.join("compiled");
        let _ = fs::remove_file(&compiled);
        let out_dir = self.root.join("out");
        let _ = fs::remove_dir_all(&out_dir);
        fs::create_dir(&out_dir).unwrap();
        let files = |folder: &Path| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
        let mut sources = files(&self.csrc);
        sources.extend(files(&self.csrc.join("deep")));
        sources.retain(|path| path.is_file());
        sources.sort();
        let job = |path: &PathBuf| Job::new(path, &self.csrc, &out_dir, &self.archs);
        let files = sources.iter().filter(|path| path.extension().is_some_and(|e| e == "cu"));
        let all: Vec<Job> = files.clone().map(job).collect();
        let is_left_out = files.map(|path| self.left_out.is_some_and(|file| path.ends_with(file)));
        let jobs: Vec<&Job> = all.iter().zip(is_left_out).filter(|(_, is_out)| !is_out).map(|(job, _)| job).collect();
        let mut command = Command::new(self.root.join("nvcc"));
        command.env_remove("NVCC_PREPEND_FLAGS").env_remove("NVCC_APPEND_FLAGS").env_remove("NVCC_CCBIN");
        command.arg("-I").arg(&self.csrc).args(&self.args).envs(self.variables.iter().copied());
        let made =
            Nvcc::new(command, &self.csrc, &out_dir).unwrap().make(&jobs, &all, &sources, &Cache::new(self.cache()), 1);
        for job in &jobs {
            job.report();
        }
        let compiled = fs::read_to_string(compiled).unwrap_or_default().lines().map(str::to_string).collect();
        let read = |extension| fs::read(out_dir.join("kernel").with_extension(extension)).unwrap();
        (compiled, made.then(|| Made { object: read("o"), log: read("log") }))
    }

    /// Builds; whether that compiled anything.
    fn compiles(&self) -> bool {
        !self.build().0.is_empty()
    }

    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(self.cache()).into_iter().flatten().map(|file| file.unwrap().path()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn a_second_build_compiles_nothing_and_has_the_same_object_and_log() {
    let world = World::new("second");
    let (compiled, first) = world.build();
    assert_eq!(compiled, ["kernel.cu"]);
    let log = String::from_utf8(first.as_ref().unwrap().log.clone()).unwrap();
    assert!(log.starts_with("ptxas info    : Compiling kernel.cu for arch=compute_80,code=sm_80"), "{log}");
    let (compiled, second) = world.build();
    assert_eq!(compiled, [""; 0]);
    assert_eq!(second, first);
}

#[test]
fn an_unpacked_package_elsewhere_compiles_nothing() {
    let mut world = World::new("elsewhere");
    assert!(world.compiles());
    let elsewhere = world.root.join("package").join("csrc");
    fs::create_dir_all(elsewhere.parent().unwrap()).unwrap();
    fs::rename(&world.csrc, &elsewhere).unwrap();
    world.csrc = elsewhere;
    assert!(!world.compiles());
}

#[test]
fn comments_and_lines_do_not_count_unless_flags_of_the_environment_may_ask_for_them() {
    let mut world = World::new("comments");
    assert!(world.compiles());
    world.write("kernel.cu", &format!("\n{}", KERNEL.replace("a comment", "another one")));
    world.write("deep/header.h", "// A line more.\n#include \"../other.h\"\nheader /* of\nall kernels */ 1\n");
    assert!(!world.compiles());
    world.variables.push(("NVCC_APPEND_FLAGS", "-lineinfo"));
    assert!(world.compiles());
    assert!(!world.compiles());
    world.write("kernel.cu", &format!("\n\n{KERNEL}"));
    assert!(world.compiles());
}

#[test]
fn everything_else_that_the_object_is_made_from_counts() {
    let mut world = World::new("everything");
    assert!(world.compiles());
    // What looks like a comment is none in a string, nor behind a quote in a number or an escaped one.
    let texts = [
        "kernel 2",
        "#pragma unroll",
        "\"//1\"",
        "\"//2\"",
        "1'000 '\"' \"/*1\"",
        "1'000 '\"' \"/*2\"",
        "\"\\\"//1\"",
        "\"\\\"//2\"",
        "R\"(//1)\"",
        "R\"(//2)\"",
    ];
    for changed in texts {
        world.write("kernel.cu", &format!("{KERNEL}{changed}\n"));
        assert!(world.compiles(), "{changed}");
    }
    for header in ["other.h", "deep/header.h"] {
        world.write(header, "another\n");
        assert!(world.compiles(), "{header}");
    }
    world.write("of_others.h", "no part of the kernel\n");
    assert!(!world.compiles(), "a header that is not included");
    for text in ["80: 2\n90: 1\nhost: 1\n", "80: 2\n90: 2\nhost: 1\n", "80: 2\n90: 2\nhost: 2\n"] {
        fs::write(world.root.join("toolkit.h"), text).unwrap();
        assert!(world.compiles(), "{text}");
    }
    world.args.push("-lineinfo");
    assert!(world.compiles(), "a flag");
    world.archs = vec![90];
    assert!(world.compiles(), "other architectures");
    for variable in [("NVCC_PREPEND_FLAGS", "-G"), ("NVCC_APPEND_FLAGS", "-G"), ("NVCC_CCBIN", "another")] {
        world.variables.push(variable);
        assert!(world.compiles(), "{variable:?}");
    }
    let nvcc = world.root.join("nvcc");
    fs::write(&nvcc, fs::read_to_string(&nvcc).unwrap() + "# another one\n").unwrap();
    assert!(world.compiles(), "another nvcc");
    fs::write(world.root.join("ptxas"), "ptxas").unwrap();
    assert!(world.compiles(), "another ptxas");
    assert!(!world.compiles(), "nothing changed");
}

#[test]
fn code_for_sm_90a_is_there_as_machine_code_and_as_ptx() {
    let world = World::new("sm_90a");
    world.write("kernel.cu", &format!("// Compiled for sm_90a in place of sm_90.\n{KERNEL}"));
    let log = String::from_utf8(world.build().1.unwrap().log).unwrap();
    for target in ["80,code=sm_80", "90a,code=sm_90a", "80,code=compute_80", "90a,code=compute_90a"] {
        assert!(log.contains(&format!("arch=compute_{target}")), "{target}: {log}");
    }
    assert!(!log.contains("compute_90,"), "{log}");
}

#[test]
fn one_code_is_compiled_once_for_all_architectures() {
    let world = World::new("one_code");
    world.write("kernel.cu", &format!("// Compiled once for all architectures.\n{KERNEL}"));
    let log = String::from_utf8(world.build().1.unwrap().log).unwrap();
    assert!(log.contains("for arch=compute_80,code=[sm_80,sm_90,compute_80],"), "{log}");
    world.write("kernel.cu", KERNEL);
    assert!(world.compiles(), "another architecture for the compiler in front");
}

#[test]
fn a_build_of_some_files_finds_what_one_of_all_has_kept() {
    let mut world = World::new("some");
    // The one file with code for another architecture.
    fs::write(world.root.join("toolkit.h"), "80: 1\n90: 1\n90a: 1\nhost: 1\n").unwrap();
    world.write("other.cu", &format!("// Compiled for sm_90a in place of sm_90.\n{KERNEL}"));
    assert_eq!(world.build().0, ["kernel.cu", "other.cu"]);
    world.left_out = Some("other.cu");
    assert!(!world.compiles());
    world.write("kernel.cu", "changed\n");
    assert_eq!(world.build().0, ["kernel.cu"]);
}

#[test]
fn the_same_text_under_another_name_is_another_object() {
    let world = World::new("names");
    world.write("twin.cu", KERNEL);
    assert_eq!(world.build().0, ["kernel.cu", "twin.cu"]);
    assert_eq!(world.entries().len(), 2);
}

#[test]
fn a_spoiled_entry_is_compiled_anew() {
    let world = World::new("spoiled");
    let (_, sound) = world.build();
    let entry = world.entries().remove(0);
    let bytes = fs::read(&entry).unwrap();
    let flipped = |at: usize| {
        let mut spoiled = bytes.clone();
        spoiled[at] ^= 1;
        spoiled
    };
    // In the digest, the length, the log, the object; cut short, emptied, grown.
    let last = bytes.len() - 1;
    let faults = [
        flipped(0),
        flipped(32),
        flipped(39),
        flipped(40),
        flipped(last),
        bytes[..last].to_vec(),
        bytes[..20].to_vec(),
        Vec::new(),
        [&bytes[..], b"!"].concat(),
    ];
    for (number, spoiled) in faults.iter().enumerate() {
        fs::write(&entry, spoiled).unwrap();
        let (compiled, made) = world.build();
        assert_eq!(compiled, ["kernel.cu"], "fault {number}");
        assert_eq!(made, sound, "fault {number}");
        assert_eq!(fs::read(&entry).unwrap(), bytes, "fault {number}");
    }
}

#[test]
fn an_entry_under_the_name_of_another_is_compiled_anew() {
    let world = World::new("swapped");
    assert!(world.compiles());
    let first = world.entries().remove(0);
    world.write("kernel.cu", "kernel 2\n");
    let (_, sound) = world.build();
    let second = world.entries().into_iter().find(|entry| *entry != first).unwrap();
    fs::copy(&first, &second).unwrap();
    let (compiled, made) = world.build();
    assert_eq!(compiled, ["kernel.cu"]);
    assert_eq!(made, sound);
}

#[test]
fn what_is_made_from_a_text_that_cannot_be_read_is_not_kept() {
    let world = World::new("unread");
    fs::write(world.csrc.join("other.h"), [0xff]).unwrap();
    assert!(world.compiles());
    assert!(world.compiles());
    assert_eq!(world.entries(), [""; 0].map(PathBuf::from));
}

#[test]
fn a_failed_compilation_is_not_kept() {
    let world = World::new("failed");
    world.write("kernel.cu", "wrong\n");
    for _ in 0..2 {
        let (compiled, made) = world.build();
        assert_eq!(compiled, ["kernel.cu"]);
        assert_eq!(made, None);
    }
    assert_eq!(world.entries(), [""; 0].map(PathBuf::from));
}

#[test]
fn a_file_that_is_edited_while_it_is_compiled_is_not_kept() {
    let world = World::new("edited");
    world.write("kernel.cu", "edited\n");
    assert!(world.compiles());
    assert_eq!(world.entries(), [""; 0].map(PathBuf::from));
}

#[test]
fn a_folder_that_cannot_be_written_stops_no_build() {
    let world = World::new("unwritable");
    fs::write(world.cache(), "a file").unwrap();
    for _ in 0..2 {
        let (compiled, made) = world.build();
        assert_eq!(compiled, ["kernel.cu"]);
        assert!(made.is_some());
    }
}

#[test]
fn the_longest_file_is_compiled_first() {
    let world = World::new("longest");
    world.write("a.cu", "short\n");
    world.write("z.cu", &KERNEL.repeat(9));
    assert_eq!(world.build().0, ["z.cu", "kernel.cu", "a.cu"]);
}

#[test]
fn the_entries_used_least_recently_go_first_and_other_files_stay() {
    let world = World::new("trimmed");
    let cache = Cache::new(world.cache());
    let made = Made { object: vec![0; 100], log: Vec::new() };
    let keys = ["a", "b", "c"].map(|name| blake3::hash(name.as_bytes()));
    for key in &keys {
        cache.keep(key, &made).unwrap();
    }
    let hour = Duration::from_secs(60 * 60);
    for (file, age) in [("a", 3), ("b", 2), ("c", 1)] {
        let name = format!("{}.kernels", blake3::hash(file.as_bytes()).to_hex());
        set_age(&world.cache().join(name), age * hour);
    }
    for (file, age) in [("notes.txt", 99), ("killed.kernels-unfinished", 99), ("running.kernels-unfinished", 1)] {
        fs::write(world.cache().join(file), [0; 1000]).unwrap();
        set_age(&world.cache().join(file), age * hour);
    }
    assert_eq!(cache.find(&keys[0]), Some(made));
    cache.trim(300);
    assert_eq!(keys.map(|key| cache.find(&key).is_some()), [true, false, true]);
    assert!(world.cache().join("notes.txt").exists());
    assert!(!world.cache().join("killed.kernels-unfinished").exists());
    assert!(world.cache().join("running.kernels-unfinished").exists());
}

fn set_age(path: &Path, age: Duration) {
    fs::File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn every_profile_and_target_of_a_target_folder_shares_a_cache() {
    let triple = "x86_64-unknown-linux-gnu";
    for out_dir in [
        "/t/target/release/build/baracuda-ops-sys-0123/out",
        "/t/target/debug/build/baracuda-ops-sys-0123/out",
        "/t/target/x86_64-unknown-linux-gnu/release/build/baracuda-ops-sys-0123/out",
        "/t/target/release/build/baracuda-ops-sys/0123/out",
    ] {
        assert_eq!(
            Cache::folder_above(Path::new(out_dir), triple),
            Path::new("/t/target/baracuda-kernels"),
            "{out_dir}"
        );
    }
    let nested = "/build/t/target/release/build/baracuda-ops-sys-0123/out";
    assert_eq!(Cache::folder_above(Path::new(nested), triple), Path::new("/build/t/target/baracuda-kernels"));
    assert_eq!(Cache::folder_above(Path::new("/elsewhere"), triple), Path::new("/elsewhere/baracuda-kernels"));
}
