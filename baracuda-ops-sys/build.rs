//! Finds the device code and, with the feature `cuda`, compiles every `.cu` file of it.
//!
//! The kernels and what nvcc and ptxas said of them land in `OUT_DIR`; one `<stem>.log` per source file holds registers, spills and
//! warnings of each kernel and architecture, which the project's checks read.
//!
//! nvcc takes minutes, so both are kept for other builds (profiles, feature sets, unpacked packages, checkouts), in the folder that
//! `BARACUDA_KERNEL_CACHE` names, else in `baracuda-kernels` of the target folder. An entry holds object and log of one source file and is
//! found by a digest of the file and of what it includes from `csrc`, without comments, of the other headers, of all flags, and of the
//! compilers. The folder holds up to 2 GiB; the entries that were used least recently go first.

use std::env;
use std::path::{Path, PathBuf};
use std::process::exit;

#[cfg(feature = "cuda")]
#[path = "build/cache.rs"]
mod cache;
#[cfg(feature = "cuda")]
#[path = "build/nvcc.rs"]
mod nvcc;

/// Stops the build with lines for the user; a panic would bury them under a backtrace.
fn fail(lines: &[String]) -> ! {
    for line in lines {
        println!("cargo::error={line}");
    }
    exit(1)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let crate_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let csrc = device_code(&crate_dir);
    println!("cargo::rustc-env=BARACUDA_CSRC={}", csrc.display());
    println!("cargo::metadata=include={}", csrc.display());

    #[cfg(feature = "bindgen")]
    bindings::generate(&csrc);
    #[cfg(feature = "cuda")]
    cuda::compile(&crate_dir, &csrc);
}

/// `csrc` beside this file is a link in the repository and a folder in the published crate; where links are checked out as text
/// files (git on Windows), the folder it names is taken.
fn device_code(crate_dir: &Path) -> PathBuf {
    let tried = [crate_dir.join("csrc"), crate_dir.join("..").join("csrc")];
    match tried.iter().find(|dir| dir.join("bops.h").is_file()) {
        Some(dir) => dir.clone(),
        None => fail(&[
            "the device code of baracuda-ops is missing".to_string(),
            format!("no bops.h in {} or {}", tried[0].display(), tried[1].display()),
        ]),
    }
}

#[cfg(feature = "bindgen")]
mod bindings {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    /// The C ABI: `bops.h` declares what all families share, `bops_<family>.h` what one family adds.
    fn headers(csrc: &Path) -> Vec<PathBuf> {
        let is_abi = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("bops") && name.ends_with(".h")
        };
        let entries = fs::read_dir(csrc).expect("csrc is readable");
        let mut headers: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_abi).collect();
        headers.sort();
        headers
    }

    /// A module for each form that the headers declare, with its two functions: no macro of Rust makes their names from the form's.
    fn forms(functions: &str) -> String {
        let prepares = functions.split("pub fn ").filter_map(|declaration| declaration.split_once("_prepare("));
        // Other functions that prepare kernels take no specialisation, `of`.
        let forms = prepares.filter(|(_, params)| params.trim_start().starts_with("of: "));
        let module = |(form, _)| {
            let [prepare, launch] =
                ["prepare", "launch"].map(|name| format!("pub use super::super::{form}_{name} as {name};"));
            format!("    pub mod {form} {{\n        {launch}\n        {prepare}\n    }}\n")
        };
        let modules: String = forms.map(module).collect();
        format!("\n#[cfg(feature = \"cuda\")]\npub mod forms {{\n{modules}}}\n")
    }

    /// Writes what `src/bindings.rs` must be to `OUT_DIR/bindings.rs`: the types and constants, and the functions with the forms,
    /// which exist only where the kernels are linked.
    pub(super) fn generate(csrc: &Path) {
        let headers = headers(csrc);
        println!("cargo::rerun-if-changed={}", csrc.display());
        for header in &headers {
            println!("cargo::rerun-if-changed={}", header.display());
        }
        let builder = || {
            bindgen::Builder::default()
                .headers(headers.iter().map(|header| header.to_str().expect("a UTF-8 path")))
                .disable_header_comment()
                .generate_comments(false)
                .layout_tests(false) // they hold on the machine that generates, not on 32-bit ones
                .use_core()
                .rust_edition(bindgen::RustEdition::Edition2024)
                .derive_default(true)
                .derive_eq(true)
                .derive_hash(true)
        };
        let types = builder().allowlist_type("bops_.*").allowlist_var("BOPS_.*").generate();
        let functions =
            builder().allowlist_function("bops_.*").allowlist_recursively(false).merge_extern_blocks(true).generate();
        let (types, functions) = match (types, functions) {
            (Ok(types), Ok(functions)) => (types.to_string(), functions.to_string()),
            (Err(e), _) | (_, Err(e)) => super::fail(&[format!("bindgen on {}: {e}", csrc.display())]),
        };
        let mut text =
            format!("// Generated from the headers of csrc by `scripts/bindings`; not edited by hand.\n\n{types}");
        if !functions.trim().is_empty() {
            text.push_str("\n#[cfg(feature = \"cuda\")]\n");
            text.push_str(&functions);
            text.push_str(&forms(&functions));
        }
        let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("bindings.rs");
        fs::write(out, text).expect("OUT_DIR is writable");
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use super::cache::Cache;
    use super::fail;
    use super::nvcc::{Job, Nvcc};
    use std::path::{Path, PathBuf};
    use std::process::{Command, exit};
    use std::{env, fs};

    /// The architectures built by default: Ampere and Hopper; later ones start from PTX of the highest.
    const DEFAULT_ARCHS: &str = "80;90";

    pub(super) fn compile(crate_dir: &Path, csrc: &Path) {
        // Not PATH, which editors and shells each set their own way, and not BARACUDA_KERNEL_CACHE, from where the same kernels come: they
        // would make and link everything again at each change of hands.
        for name in [
            "NVCC",
            "CUDA_HOME",
            "CUDA_PATH",
            "BARACUDA_CUDA_ARCHS",
            "DOCS_RS",
            "NVCC_CCBIN",
            "NVCC_PREPEND_FLAGS",
            "NVCC_APPEND_FLAGS",
        ] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let archs = requested_archs();
        let list: Vec<String> = archs.iter().map(u32::to_string).collect();
        fs::write(out_dir.join("archs.rs"), format!("&[{}]", list.join(", "))).expect("OUT_DIR is writable");
        // Documentation needs the declarations, not the code, and docs.rs has no nvcc.
        if env::var_os("DOCS_RS").is_some() {
            return;
        }

        let nvcc = find_nvcc(crate_dir);
        check_supported(&nvcc, &archs);
        // SAFETY: this program has one thread so far. `cc` takes a CUDA compiler from this variable alone.
        unsafe { env::set_var("NVCC", &nvcc) };
        let mut build = cc::Build::new();
        build
            .cuda(true)
            .cudart("static")
            .include(csrc)
            // Asserts in the toolkit's headers name its folder, by which the kernel cache would tell checkouts apart.
            .define("NDEBUG", None)
            .extra_warnings(false)
            .opt_level(3)
            .debug(false)
            // Flags after -Xptxas and -Xfatbin go to those tools.
            .flag("-std=c++17")
            .flag("-Xptxas")
            .flag("-v")
            .flag("-Xfatbin")
            .flag("-compress-all");
        let tool = build.get_compiler();

        let mut sources = Vec::new();
        scan(csrc, &mut sources);
        sources.sort();
        let files = sources.iter().filter(|path| path.extension().is_some_and(|e| e == "cu"));
        let all: Vec<Job> = files.clone().map(|path| Job::new(path, csrc, &out_dir, &archs)).collect();
        let is_asked_for = files.map(|path| is_asked_for(path, csrc));
        let jobs: Vec<&Job> =
            all.iter().zip(is_asked_for).filter(|(_, is_asked)| *is_asked).map(|(job, _)| job).collect();
        if jobs.is_empty() {
            fail(&[format!("no .cu file under {}", csrc.display())]);
        }
        // Objects and logs of a source file that is gone would be taken for parts of this build.
        for entry in fs::read_dir(&out_dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|e| e == "log" || e == "o") {
                let _ = fs::remove_file(entry.path());
            }
        }
        let compiler = Nvcc::new(tool.to_command(), csrc, &out_dir)
            .unwrap_or_else(|e| fail(&[format!("{}: {e}", tool.path().display())]));
        let cores = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        if !compiler.make(&jobs, &all, &sources, &Cache::new(cache_folder(&out_dir)), cores) {
            exit(1);
        }
        for job in &jobs {
            job.report();
        }

        stand_ins(crate_dir, &out_dir);
        let mut archive = cc::Build::new();
        archive.cuda(true).cudart("static").cpp_link_stdlib(None);
        archive.objects(jobs.iter().map(|job| &job.object));
        archive.compile("baracuda_ops_kernels");
        for dir in library_dirs(&nvcc) {
            println!("cargo::rustc-link-search=native={}", dir.display());
        }
        if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
            for lib in ["stdc++", "dl", "rt", "pthread"] {
                println!("cargo::rustc-link-lib={lib}");
            }
        }
        // A new .cu file comes with its declarations, in a header of which the bindings tell, so the files themselves are enough; the WGSL
        // beside them, which has no part in this step, must not start it.
        println!("cargo::rerun-if-changed={}", crate_dir.join("src/bindings.rs").display());
        for path in &sources {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }

    /// The families, each a feature and a folder of `csrc`, with how the names of their functions start behind `bops_`.
    const FAMILIES: &[(&str, &[&str])] = &[
        ("attention", &["attention_"]),
        ("conv", &["conv_"]),
        ("fft", &["fft_"]),
        ("gemm", &["gemm_"]),
        ("index", &["lookup_", "nonzero_", "scatter_"]),
        ("linalg", &["cholesky_", "triangular_solve_"]),
        ("movement", &["copy_strided_", "copy_tiles_", "pad_"]),
        ("norm", &["row_norm_", "channel_norm_", "channels_last_norm_", "local_response_norm_"]),
        ("order", &["order_", "search_sorted_"]),
        ("pointwise", &["activation_", "pointwise_"]),
        ("reduce", &["reduce_"]),
        ("scan", &["scan_"]),
        ("softmax", &["softmax_", "cross_entropy_"]),
        ("window", &["pool_", "resize"]),
    ];

    fn is_on(family: &str) -> bool {
        env::var_os(format!("CARGO_FEATURE_{}", family.to_uppercase())).is_some()
    }

    /// Whether a file belongs to no family, or to one whose feature is on.
    fn is_asked_for(path: &Path, csrc: &Path) -> bool {
        let folder = path.strip_prefix(csrc).ok().and_then(|path| path.iter().next()).and_then(|name| name.to_str());
        FAMILIES.iter().all(|&(family, _)| Some(family) != folder || is_on(family))
    }

    /// Links functions of the families that are off: nothing calls them, since their ops are refused before, but the bindings name them. Their
    /// status is `cudaErrorNotSupported`.
    fn stand_ins(crate_dir: &Path, out_dir: &Path) {
        let off: Vec<&str> =
            FAMILIES.iter().filter(|(family, _)| !is_on(family)).flat_map(|(_, names)| *names).copied().collect();
        if off.is_empty() {
            return;
        }
        let bindings = crate_dir.join("src/bindings.rs");
        let bindings =
            fs::read_to_string(&bindings).unwrap_or_else(|e| fail(&[format!("{}: {e}", bindings.display())]));
        let names = bindings.split("pub fn bops_").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0));
        let text: String = names
            .filter(|name| off.iter().any(|start| name.starts_with(start)))
            .map(|name| format!("int bops_{name}(void) {{ return 801; }}\n"))
            .collect();
        let source = out_dir.join("stand_ins.c");
        fs::write(&source, text).expect("OUT_DIR is writable");
        cc::Build::new().file(source).warnings(false).compile("baracuda_ops_stand_ins");
    }

    /// All C and CUDA files under `dir`.
    fn scan(dir: &Path, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(dir).unwrap_or_else(|e| fail(&[format!("{}: {e}", dir.display())]));
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                scan(&path, found);
            } else if path.extension().is_some_and(|e| e == "cu" || e == "cuh" || e == "h") {
                found.push(path);
            }
        }
    }

    /// Where kernels are kept for other builds.
    fn cache_folder(out_dir: &Path) -> PathBuf {
        match env::var_os("BARACUDA_KERNEL_CACHE").filter(|value| !value.is_empty()).map(PathBuf::from) {
            Some(folder) if folder.is_absolute() => folder,
            // The folder of each package that is built would be another one.
            Some(folder) => fail(&[format!("BARACUDA_KERNEL_CACHE={}: must be an absolute path", folder.display())]),
            None => Cache::folder_above(out_dir, &env::var("TARGET").expect("cargo sets it")),
        }
    }

    /// The architectures asked for, ascending, without duplicates.
    fn requested_archs() -> Vec<u32> {
        let text = env::var("BARACUDA_CUDA_ARCHS").unwrap_or_default();
        let text = if text.trim().is_empty() { DEFAULT_ARCHS } else { &text };
        let parsed: Result<Vec<u32>, _> = text
            .split([';', ',', ' '])
            .filter(|part| !part.is_empty())
            .map(|part| part.parse::<u32>().map_err(|_| part))
            .collect();
        let mut archs = match parsed {
            Ok(archs) if !archs.is_empty() => archs,
            Ok(_) => fail(&[format!("BARACUDA_CUDA_ARCHS={text:?} names no architecture; example: 80;90")]),
            Err(part) => {
                fail(&[format!("BARACUDA_CUDA_ARCHS={text:?}: {part:?} is not a compute capability; example: 80;90")])
            }
        };
        archs.sort_unstable();
        archs.dedup();
        archs
    }

    fn check_supported(nvcc: &Path, archs: &[u32]) {
        let output = match Command::new(nvcc).arg("--list-gpu-arch").output() {
            Ok(output) if output.status.success() => output,
            Ok(output) => fail(&[format!(
                "{} --list-gpu-arch: {}: {}",
                nvcc.display(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )]),
            Err(e) => fail(&[format!("{} does not start: {e}", nvcc.display())]),
        };
        let known: Vec<u32> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.trim().strip_prefix("compute_")?.parse().ok())
            .collect();
        for arch in archs {
            if !known.contains(arch) {
                fail(&[format!("BARACUDA_CUDA_ARCHS asks for {arch}; {} knows {known:?}", nvcc.display())]);
            }
        }
    }

    /// nvcc from the environment, the PATH, or what `scripts/setup` put into `.cuda` of the workspace.
    fn find_nvcc(crate_dir: &Path) -> PathBuf {
        let exe = format!("nvcc{}", env::consts::EXE_SUFFIX);
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let on_path = |command: &Path| {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path).map(|dir| dir.join(command)).find(|file| file.is_file())
        };
        let mut tried = Vec::new();
        if let Some(value) = set("NVCC") {
            // A path, or the bare name of a command.
            let file = PathBuf::from(value);
            if file.is_file() {
                return file;
            }
            match on_path(&file).filter(|_| file.components().count() == 1) {
                Some(file) => return file,
                None => fail(&[format!("NVCC names {}, which is no file", file.display())]),
            }
        }
        tried.push("NVCC is not set".to_string());
        for name in ["CUDA_HOME", "CUDA_PATH"] {
            let Some(root) = set(name) else {
                tried.push(format!("{name} is not set"));
                continue;
            };
            let file = PathBuf::from(root).join("bin").join(&exe);
            if file.is_file() {
                return file;
            }
            tried.push(format!("{name}: no file {}", file.display()));
        }
        if let Some(file) = on_path(Path::new(&exe)) {
            return file;
        }
        tried.push(format!("no {exe} in PATH"));
        let installed = Path::new(".cuda/nvidia/cu13/bin").join(&exe);
        if let Some(file) = crate_dir.ancestors().map(|dir| dir.join(&installed)).find(|file| file.is_file()) {
            return file;
        }
        tried.push(format!("no {} in {} or above", installed.display(), crate_dir.display()));

        let mut lines = vec!["the feature `cuda` needs nvcc, the CUDA compiler, and found none:".to_string()];
        lines.extend(tried.into_iter().map(|place| format!("  {place}")));
        lines.push(
            "install the CUDA toolkit and set CUDA_PATH to it, or run scripts/setup in a checkout \
             of baracuda-ops, or build without `cuda`"
                .to_string(),
        );
        fail(&lines)
    }

    /// Where the CUDA runtime's static library lies beside `nvcc`, in the layouts of the toolkit and of the wheels.
    fn library_dirs(nvcc: &Path) -> Vec<PathBuf> {
        let real = fs::canonicalize(nvcc).unwrap_or_else(|_| nvcc.to_path_buf());
        let root = real.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        ["lib64", "lib", "lib/x64"].iter().map(|dir| root.join(dir)).filter(|dir| dir.is_dir()).collect()
    }
}
