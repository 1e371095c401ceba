//! Compiles source files with nvcc, each at most once: what was compiled from the same text, by the same compilers, with the same flags, is
//! taken from the [`Cache`].

use super::cache::{Cache, Made};
use blake3::{Hash, Hasher};
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;
use std::{env, fs, io, thread};

/// How large the cache may grow. The kernels of two architectures take 36 MB.
const CACHE_LIMIT_BYTES: u64 = 2 << 30;

/// A line of a source file whose kernels have instructions of one architecture alone: its code for 9.0 is code for `sm_90a`.
const ASKS_FOR_SM_90A: &str = "// Compiled for sm_90a in place of sm_90.";

/// What ptxas says, without calling it a warning, of wgmma instructions that wait for each other and of registers that no thread gets.
const LOST_SPEED: &str = "Potential Performance Loss";

/// Variables from which nvcc takes flags.
const FLAG_VARIABLES: [&str; 2] = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];

/// nvcc with what all files have in common.
pub(crate) struct Nvcc {
    template: Command,
    /// Whether it takes flags from its environment.
    is_steered: bool,
    /// The digest of the compilers and the flags.
    identity: Hash,
}

impl Nvcc {
    /// `template` has the flags that lead to the headers in `csrc`; `scratch` is a folder to write to.
    pub(crate) fn new(template: Command, csrc: &Path, scratch: &Path) -> io::Result<Self> {
        let mut nvcc = Nvcc { template, is_steered: false, identity: Hash::from_bytes(Default::default()) };
        let mut hasher = Hasher::new();
        field(&mut hasher, &nvcc.command().arg("--version").output()?.stdout);
        // nvcc may be a script that adds flags; the tools beside it come in packages of their own.
        let program = fs::canonicalize(nvcc.template.get_program())?;
        for tool in ["ptxas", "cudafe++", "../nvvm/bin/cicc"] {
            let tool = program.with_file_name(format!("{tool}{}", env::consts::EXE_SUFFIX));
            field(&mut hasher, &fs::read(tool).unwrap_or_default());
        }
        field(&mut hasher, &fs::read(program)?);
        // The host compiler is whichever nvcc calls here, with these flags and this environment.
        let empty = scratch.join("empty.cu");
        fs::write(&empty, "")?;
        let host = nvcc.command().args(["-E", "-Xcompiler", "--version"]).arg(&empty).output()?;
        field(&mut hasher, &host.stdout);
        field(&mut hasher, &host.stderr);
        for arg in nvcc.template.get_args() {
            // Where the sources lie has no influence on what becomes of them.
            field(&mut hasher, arg.to_string_lossy().replace(&*csrc.to_string_lossy(), "csrc").as_bytes());
        }
        for name in FLAG_VARIABLES {
            let own = nvcc.template.get_envs().find(|(set, _)| *set == name);
            let flags = own.map_or_else(|| env::var_os(name), |(_, value)| value.map(OsStr::to_os_string));
            nvcc.is_steered |= flags.is_some();
            field(&mut hasher, flags.unwrap_or_default().as_encoded_bytes());
        }
        nvcc.identity = hasher.finalize();
        Ok(nvcc)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.template.get_program());
        command.args(self.template.get_args());
        for (name, value) in self.template.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// `source` as the preprocessor leaves it: for one architecture, or for the host, where `__CUDA_ARCH__` is not defined.
    fn preprocessed(&self, source: &Path, arch: &str, host: bool) -> Option<Vec<u8>> {
        let mut command = self.command();
        command.arg("-gencode").arg(format!("arch=compute_{arch},code=sm_{arch}"));
        if host {
            command.arg("-U__CUDA_ARCH__");
        }
        let Output { status, stdout, .. } = command.arg("-E").arg(source).output().ok()?;
        if !status.success() {
            return None;
        }
        // Without the places that lines came from, nothing changes with a comment or with the folder; warnings that are restored may name
        // the line of an earlier comment. Debug information, which flags from the environment may ask for, is made of such places.
        if self.is_steered {
            return Some(stdout);
        }
        let mut text = Vec::with_capacity(stdout.len());
        for line in stdout.split_inclusive(|&byte| byte == b'\n').filter(|line| !is_blank_or_place(line)) {
            text.extend_from_slice(line);
        }
        Some(text)
    }

    /// The digest of everything that the object of `job` is made from, and the length of its text; none where the preprocessor fails.
    fn key(&self, job: &Job) -> Option<(Hash, usize)> {
        let mut hasher = Hasher::new();
        field(&mut hasher, self.identity.as_bytes());
        field(&mut hasher, job.stem.as_bytes());
        for target in job.gencode() {
            field(&mut hasher, target.as_bytes());
        }
        let mut length = 0;
        let passes = job.archs.iter().map(|arch| (arch, false)).chain([(&job.archs[0], true)]);
        for (arch, host) in passes {
            let text = self.preprocessed(&job.source, arch, host)?;
            field(&mut hasher, &text);
            length += text.len();
        }
        Some((hasher.finalize(), length))
    }

    /// Leaves object and log of every job in place, those that the cache lacks by compiling them on `cores` threads; false if nvcc failed,
    /// after passing on what it said. `sources` are all files that jobs read from `csrc`.
    pub(crate) fn make(&self, jobs: &[Job], sources: &[PathBuf], cache: &Cache, cores: usize) -> bool {
        let times = || -> Vec<Option<SystemTime>> {
            sources.iter().map(|path| fs::metadata(path).and_then(|file| file.modified()).ok()).collect()
        };
        let before = times();
        let mut missing: Vec<(&Job, Option<Hash>, usize)> = in_parallel(jobs, cores, |job| match self.key(job) {
            Some((key, length)) => match cache.find(&key) {
                Some(made) if job.write(&made) => None,
                _ => Some((job, Some(key), length)),
            },
            None => Some((job, None, 0)),
        })
        .into_iter()
        .flatten()
        .collect();
        if missing.is_empty() {
            return true;
        }
        // A long file that comes last keeps one core busy while the others have nothing left.
        missing.sort_by_key(|&(_, _, length)| Reverse(length));
        let compiled = in_parallel(&missing, cores, |&(job, key, _)| {
            let Some(made) = self.compile(job) else { return false };
            // A file that was edited meanwhile may have been compiled as it is now, which its key does not say.
            if let Some(key) = key.filter(|_| times() == before)
                && let Err(e) = cache.keep(&key, &made)
            {
                println!("cargo::warning=the kernels of {} are not kept for other builds: {e}", job.stem);
            }
            true
        });
        cache.trim(CACHE_LIMIT_BYTES);
        compiled.into_iter().all(|done| done)
    }

    /// Compiles; none when nvcc failed, after passing on what it said.
    fn compile(&self, job: &Job) -> Option<Made> {
        let mut nvcc = self.command();
        for target in job.gencode() {
            nvcc.arg("-gencode").arg(target);
        }
        nvcc.arg("-c").arg(&job.source).arg("-o").arg(&job.object);
        let Output { status, stdout, stderr } = match nvcc.output() {
            Ok(output) => output,
            Err(e) => {
                println!("cargo::error={nvcc:?}: {e}");
                return None;
            }
        };
        let log = [stdout, stderr].concat();
        if let Err(e) = fs::write(&job.log, &log) {
            println!("cargo::error={}: {e}", job.log.display());
            return None;
        }
        if !status.success() {
            println!("cargo::error={}: nvcc: {status}", job.source.display());
            for line in lines_of_note(&String::from_utf8_lossy(&log)).take(40) {
                println!("cargo::error={line}");
            }
            return None;
        }
        let said = String::from_utf8_lossy(&log);
        if let Some(line) = said.lines().find(|line| line.contains(LOST_SPEED)) {
            println!("cargo::error={}: {line}", job.source.display());
            return None;
        }
        match fs::read(&job.object) {
            Ok(object) => Some(Made { object, log }),
            Err(e) => {
                println!("cargo::error={}: {e}", job.object.display());
                None
            }
        }
    }
}

/// Fields are told apart by their lengths.
fn field(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

/// Empty lines, and `# 12 "file"` or `#line 12 "file"`.
fn is_blank_or_place(line: &[u8]) -> bool {
    match line.trim_ascii().strip_prefix(b"#") {
        Some(rest) => rest.starts_with(b"line") || rest.trim_ascii_start().first().is_some_and(u8::is_ascii_digit),
        None => line.trim_ascii().is_empty(),
    }
}

/// Calls `work` on each item, on up to `threads` threads; the results are in no particular order.
fn in_parallel<'a, T: Sync, R: Send>(items: &'a [T], threads: usize, work: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let worker = || {
            let mut results = Vec::new();
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                results.push(work(item));
            }
            results
        };
        let workers: Vec<_> = (0..threads.clamp(1, items.len().max(1))).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("work does not panic")).collect()
    })
}

/// One source file on its way to an object.
pub(crate) struct Job {
    source: PathBuf,
    /// Its path inside `csrc`, as a file name.
    stem: String,
    pub(crate) object: PathBuf,
    pub(crate) log: PathBuf,
    /// As nvcc names them.
    archs: Vec<String>,
    /// For a driver that reads PTX alone: there is no machine code, and no other architecture.
    is_interpreted: bool,
}

impl Job {
    /// `archs` ascend and are at least one. `is_emulated`: the kernels run on an interpreter of PTX, for which there has to be that of `sm_90a` too.
    pub(crate) fn new(source: &Path, csrc: &Path, out_dir: &Path, archs: &[u32], is_emulated: bool) -> Self {
        let inside = source.strip_prefix(csrc).unwrap_or(source).with_extension("");
        let stem: Vec<_> = inside.iter().map(OsStr::to_string_lossy).collect();
        let stem = stem.join("-");
        let is_specific = fs::read_to_string(source).is_ok_and(|text| text.lines().any(|line| line == ASKS_FOR_SM_90A));
        let is_interpreted = is_emulated && is_specific && archs.contains(&90);
        let archs = if is_interpreted { &[90] } else { archs };
        let name = |&arch: &u32| if is_specific && arch == 90 { "90a".to_string() } else { arch.to_string() };
        Job {
            source: source.to_path_buf(),
            object: out_dir.join(format!("{stem}.o")),
            log: out_dir.join(format!("{stem}.log")),
            archs: archs.iter().map(name).collect(),
            is_interpreted,
            stem,
        }
    }

    /// Machine code of every architecture; PTX of the lowest and the highest, from which others start, but from that of `sm_90a` none does: it is for
    /// interpreters.
    fn gencode(&self) -> Vec<String> {
        if self.is_interpreted {
            return self.archs.iter().map(|a| format!("arch=compute_{a},code=compute_{a}")).collect();
        }
        let sass = self.archs.iter().map(|a| format!("arch=compute_{a},code=sm_{a}"));
        let mut ends = vec![&self.archs[0], &self.archs[self.archs.len() - 1]];
        ends.dedup();
        ends.retain(|arch| !arch.ends_with('a'));
        sass.chain(ends.into_iter().map(|a| format!("arch=compute_{a},code=compute_{a}"))).collect()
    }

    /// False where that fails: nvcc, which writes to the same places, then says why.
    fn write(&self, made: &Made) -> bool {
        fs::write(&self.object, &made.object).and_then(|()| fs::write(&self.log, &made.log)).is_ok()
    }

    /// Shows warnings; what ptxas says of each kernel stays in the log.
    pub(crate) fn report(&self) {
        let said = fs::read(&self.log).unwrap_or_default();
        for line in lines_of_note(&String::from_utf8_lossy(&said)) {
            println!("cargo::warning={line}");
        }
    }
}

/// nvcc's output without the figures that `-Xptxas -v` adds.
fn lines_of_note(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter(|line| {
        let ptxas = line.starts_with("ptxas info") || line.trim_start().starts_with("Function properties");
        !(ptxas || line.contains("bytes stack frame") || line.trim().is_empty())
    })
}
