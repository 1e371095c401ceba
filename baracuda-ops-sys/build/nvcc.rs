//! Compiles source files with nvcc, each at most once: what was compiled from the same text, by the same compilers, with the same flags, is
//! taken from the [`Cache`].

use super::cache::{Cache, Made};
use blake3::{Hash, Hasher};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;
use std::{env, fs, io, thread};

/// How large the cache may grow. The kernels of two architectures take 41 MB.
const CACHE_LIMIT_BYTES: u64 = 2 << 30;

/// A line of a source file whose kernels have instructions of one architecture alone: its code for 9.0 is code for `sm_90a`.
const ASKS_FOR_SM_90A: &str = "// Compiled for sm_90a in place of sm_90.";

/// A line of a source file whose code is the same for all architectures: the machine code of each is made of one PTX, that of the lowest, so that the
/// compiler in front of ptxas runs once. tests/tidy.rs holds that such a file names nothing that depends on the architecture.
const ASKS_FOR_ONE_CODE: &str = "// Compiled once for all architectures.";

/// What ptxas says, without calling it a warning, of wgmma instructions that wait for each other and of registers that no thread gets.
const LOST_SPEED: &str = "Potential Performance Loss";

/// Variables from which nvcc takes flags.
const FLAG_VARIABLES: [&str; 2] = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];

/// nvcc with what all files have in common.
pub(crate) struct Nvcc {
    template: Command,
    csrc: PathBuf,
    /// A folder to write to.
    scratch: PathBuf,
    /// Whether it takes flags from its environment. They may ask for debug information, which names files and lines: comments then count, and
    /// where `csrc` lies.
    is_steered: bool,
    /// The digest of the compilers and the flags.
    identity: Hash,
}

impl Nvcc {
    /// `template` has the flags that lead to the headers in `csrc`; `scratch` is a folder to write to.
    pub(crate) fn new(template: Command, csrc: &Path, scratch: &Path) -> io::Result<Self> {
        let flags = FLAG_VARIABLES.map(|name| {
            let own = template.get_envs().find(|(set, _)| *set == name);
            own.map_or_else(|| env::var_os(name), |(_, value)| value.map(OsStr::to_os_string))
        });
        let nvcc = Nvcc {
            template,
            csrc: csrc.to_path_buf(),
            scratch: scratch.to_path_buf(),
            is_steered: flags.iter().any(Option::is_some),
            identity: Hash::from_bytes(Default::default()),
        };
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
        for arg in nvcc.template.get_args().map(OsStr::to_string_lossy) {
            let arg = if nvcc.is_steered { arg.into_owned() } else { arg.replace(&*csrc.to_string_lossy(), "csrc") };
            field(&mut hasher, arg.as_bytes());
        }
        for value in flags {
            field(&mut hasher, value.unwrap_or_default().as_encoded_bytes());
        }
        Ok(Nvcc { identity: hasher.finalize(), ..nvcc })
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

    /// A file as the preprocessor leaves it: for one architecture, or for the host, where `__CUDA_ARCH__` is not defined.
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
        // Without the places that lines came from, which differ between folders.
        let mut text = Vec::with_capacity(stdout.len());
        for line in stdout.split_inclusive(|&byte| byte == b'\n').filter(|line| !is_blank_or_place(line)) {
            text.extend_from_slice(line);
        }
        Some(text)
    }

    /// The digest of the headers outside `csrc` that its files include, for these architectures; none where the preprocessor fails.
    fn outside(&self, code: &Code, archs: &BTreeSet<&str>) -> Option<Hash> {
        let all = self.scratch.join("headers.cu");
        fs::write(&all, code.outside.iter().map(|name| format!("#include {name}\n")).collect::<String>()).ok()?;
        let host = archs.first().map(|&arch| (arch, true));
        let mut hasher = Hasher::new();
        for (arch, is_host) in archs.iter().map(|&arch| (arch, false)).chain(host) {
            field(&mut hasher, &self.preprocessed(&all, arch, is_host)?);
        }
        Some(hasher.finalize())
    }

    /// The digest of everything that the object of `job` is made from, and the length of its text.
    fn key(&self, job: &Job, code: &Code, outside: &Hash) -> (Hash, usize) {
        let mut hasher = Hasher::new();
        field(&mut hasher, self.identity.as_bytes());
        field(&mut hasher, outside.as_bytes());
        field(&mut hasher, job.stem.as_bytes());
        for target in job.gencode() {
            field(&mut hasher, target.as_bytes());
        }
        let mut length = 0;
        for (path, text) in code.of(&job.inside) {
            field(&mut hasher, path.to_string_lossy().as_bytes());
            field(&mut hasher, text.as_bytes());
            length += text.len();
        }
        (hasher.finalize(), length)
    }

    /// Leaves object and log of every job in place, those that the cache lacks by compiling them on `cores` threads; false if nvcc failed,
    /// after passing on what it said. `all` has the jobs of a build with every file, these among them, so that a build of some files
    /// finds what that one has kept. `sources` are all files that jobs read from `csrc`.
    pub(crate) fn make(&self, jobs: &[&Job], all: &[Job], sources: &[PathBuf], cache: &Cache, cores: usize) -> bool {
        let times = || -> Vec<Option<SystemTime>> {
            sources.iter().map(|path| fs::metadata(path).and_then(|file| file.modified()).ok()).collect()
        };
        let before = times();
        // Of what cannot be read nothing is found or kept: nvcc says why, if it cannot read it either.
        let code = Code::read(&self.csrc, sources, self.is_steered).ok();
        let archs = all.iter().flat_map(|job| &job.archs).map(String::as_str).collect();
        let texts = code.as_ref().and_then(|code| Some((code, self.outside(code, &archs)?)));
        let mut missing: Vec<(&Job, Option<Hash>, usize)> = in_parallel(jobs, cores, |&job| {
            let Some((code, outside)) = &texts else { return Some((job, None, 0)) };
            let (key, length) = self.key(job, code, outside);
            match cache.find(&key) {
                Some(made) if job.write(&made) => None,
                _ => Some((job, Some(key), length)),
            }
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

/// The files of `csrc`, by their paths inside it.
#[derive(Default)]
struct Code {
    /// Of each file: its text, without comments if they do not count, and the files that it includes.
    files: BTreeMap<PathBuf, (String, Vec<PathBuf>)>,
    /// What they include besides, in quotes or angle brackets.
    outside: BTreeSet<String>,
}

impl Code {
    fn read(csrc: &Path, sources: &[PathBuf], comments_count: bool) -> io::Result<Self> {
        let inside = |path: &PathBuf| path.strip_prefix(csrc).unwrap_or(path).to_path_buf();
        let known: BTreeSet<PathBuf> = sources.iter().map(inside).collect();
        let mut code = Code::default();
        for source in sources {
            let (path, text) = (inside(source), fs::read_to_string(source)?);
            let bare = without_comments(&text);
            let mut own = Vec::new();
            for name in bare.lines().filter_map(included) {
                let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
                let folders = [path.parent().unwrap_or(Path::new("")), Path::new("")];
                let found = quoted.and_then(|name| folders.iter().find_map(|folder| known.get(&joined(folder, name)?)));
                match found {
                    Some(file) => own.push(file.clone()),
                    None => _ = code.outside.insert(name.to_string()),
                }
            }
            code.files.insert(path, (if comments_count { text } else { bare }, own));
        }
        Ok(code)
    }

    /// A file and all that it includes, whatever conditions are around that.
    fn of(&self, file: &Path) -> BTreeMap<&Path, &str> {
        let (mut found, mut open) = (BTreeMap::new(), vec![file]);
        while let Some((path, (text, included))) = open.pop().and_then(|path| self.files.get_key_value(path)) {
            if found.insert(path.as_path(), text.as_str()).is_none() {
                open.extend(included.iter().map(PathBuf::as_path));
            }
        }
        found
    }
}

/// What a line includes: `"name"` or `<name>`.
fn included(line: &str) -> Option<&str> {
    let directive = line.trim_start().strip_prefix('#')?.trim_start();
    Some(directive.strip_prefix("include")?.trim())
}

/// The path of what a file in `folder` calls `name`, unless it leaves the folder that paths begin in.
fn joined(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in folder.join(name).components() {
        match part {
            Component::ParentDir if !path.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some(path)
}

/// A C++ text without comments, ends of lines that they leave blank, and blank lines. A text with raw strings stays as it is.
fn without_comments(text: &str) -> String {
    if text.contains("R\"") {
        return text.to_string();
    }
    let mut bare = String::with_capacity(text.len());
    let (mut rest, mut last) = (text, ' ');
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            // A comment separates what is around it.
            bare.push(' ');
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else {
            // Between digits, ' separates thousands.
            let is_literal = first == '"' || first == '\'' && !last.is_alphanumeric();
            let length = if is_literal { literal(rest, first) } else { first.len_utf8() };
            bare.push_str(&rest[..length]);
            length
        };
        last = first;
        rest = &rest[length..];
    }
    let lines = bare.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The bytes of the string or character that `text` begins with, up to the end of its line if it has none.
fn literal(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\n' => return at,
            '\\' => is_escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
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
    /// Its path inside `csrc`.
    inside: PathBuf,
    /// That path as a file name, without its ending.
    stem: String,
    pub(crate) object: PathBuf,
    pub(crate) log: PathBuf,
    /// As nvcc names them.
    archs: Vec<String>,
    /// Whether the machine code of all of them is made of one PTX.
    is_one_code: bool,
}

impl Job {
    /// `archs` ascend and are at least one.
    pub(crate) fn new(source: &Path, csrc: &Path, out_dir: &Path, archs: &[u32]) -> Self {
        let inside = source.strip_prefix(csrc).unwrap_or(source).to_path_buf();
        let stem = inside.with_extension("").iter().map(OsStr::to_string_lossy).collect::<Vec<_>>().join("-");
        let text = fs::read_to_string(source).unwrap_or_default();
        let asks_for = |what| text.lines().any(|line| line == what);
        let is_specific = asks_for(ASKS_FOR_SM_90A);
        let name = |&arch: &u32| if is_specific && arch == 90 { "90a".to_string() } else { arch.to_string() };
        Job {
            source: source.to_path_buf(),
            inside,
            object: out_dir.join(format!("{stem}.o")),
            log: out_dir.join(format!("{stem}.log")),
            archs: archs.iter().map(name).collect(),
            is_one_code: asks_for(ASKS_FOR_ONE_CODE),
            stem,
        }
    }

    /// Machine code of every architecture; PTX of the lowest and the highest. Later GPUs start from it, but for that of `sm_90a`, which no other GPU
    /// runs: it is there for tests/emulator, which interprets PTX. Where one PTX is all code, it serves later GPUs too.
    fn gencode(&self) -> Vec<String> {
        let (lowest, highest) = (&self.archs[0], &self.archs[self.archs.len() - 1]);
        if self.is_one_code {
            let machine_code: String = self.archs.iter().map(|a| format!("sm_{a},")).collect();
            return vec![format!("arch=compute_{lowest},code=[{machine_code}compute_{lowest}]")];
        }
        let sass = self.archs.iter().map(|a| format!("arch=compute_{a},code=sm_{a}"));
        let mut ends = vec![lowest, highest];
        ends.dedup();
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
