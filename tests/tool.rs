//! The tool `bops`: what it shows of each op, and how it replays case files.

use std::collections::HashMap;
use std::fs;
#[cfg(unix)]
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use baracuda_ops::{Backend, DType, OPS};
use baracuda_ops_tests::case_file::{self, DTYPES, FiledCase, KEYS, PACK_KEY, unless_it_panics};
use baracuda_ops_tests::floor::root;
use baracuda_ops_tests::ops::subject;
use baracuda_ops_tests::showcase::showcases;
use baracuda_ops_tests::target::TARGETS;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};

#[test]
fn every_op_is_shown() {
    for dtype in [DType::F32, DType::BF16] {
        let shown = showcases(dtype).unwrap();
        // Some ops have no 16-bit types.
        let has_type =
            |op: &str| (subject(op).unwrap().features)().iter().any(|(name, _)| name.starts_with(dtype.name()));
        for op in OPS.iter().filter(|op| has_type(op.name)) {
            // By its name, which what is chosen of it may precede, as in `max_pool`.
            assert!(shown.iter().any(|s| s.label.ends_with(op.name) && s.descriptor.name() == op.name), "{}", op.name);
        }
        for (label, op) in [("log_softmax", "softmax"), ("log_softmax_backward", "softmax_backward")] {
            let of_label = shown.iter().find(|s| s.label == label).unwrap();
            assert_eq!(of_label.descriptor.name(), op);
            assert!(of_label.descriptor.line().contains(r#""log":true"#), "{:?}", of_label.descriptor);
        }
    }
}

/// A folder that is gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bops-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The tool, where it was built or, in a bundle, beside this program.
fn bops() -> Command {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_bops"));
    let path = if built.exists() { built } else { std::env::current_exe().unwrap().with_file_name("bops") };
    let mut command = Command::new(path);
    command.env_remove("BOPS_REQUIRE");
    command
}

fn check(arguments: &[&Path]) -> Output {
    bops().arg("check").args(arguments).output().unwrap()
}

/// With one thread, which judges one file after another.
fn check_in_order(arguments: &[&Path]) -> Output {
    bops().env("RAYON_NUM_THREADS", "1").arg("check").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Drivers complain of variables that a machine without a desktop session does not set.
#[test]
fn nothing_but_errors_is_printed_to_stderr() {
    let mut command = bops();
    for variable in ["XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY", "HOME"] {
        command.env_remove(variable);
    }
    let output = command.arg("devices").output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("cpu"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "");
}

const X: [f32; 6] = [1.0, 2.0, 4.0, 0.5, -3.0, 0.25];

/// Softmax of the rows of X, in f64.
fn softmax() -> Vec<f64> {
    let rows = X.chunks(3).map(|row| row.iter().map(|&v| f64::from(v).exp()).collect::<Vec<_>>());
    rows.flat_map(|row| row.iter().map(|v| v / row.iter().sum::<f64>()).collect::<Vec<_>>()).collect()
}

/// The descriptor of that softmax.
const SOFTMAX: &str = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":1}"#;

/// A case file of that softmax, to be changed before it is written.
struct Draft {
    metadata: HashMap<String, String>,
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl Draft {
    fn new() -> Self {
        let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let x = X.iter().flat_map(|v| v.to_le_bytes()).collect();
        let draft = Self {
            metadata: HashMap::new(),
            tensors: vec![
                ("in.x".into(), Dtype::F32, vec![2, 3], x),
                ("out.y".into(), Dtype::F64, vec![2, 3], bytes(&softmax())),
            ],
        };
        draft.with("op", "softmax").with("descriptor", SOFTMAX).with("source", "tests/tool.rs")
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.metadata.remove(key);
        self
    }

    fn tensor(mut self, name: &str, dtype: Dtype, dims: &[usize], bytes: Vec<u8>) -> Self {
        self.tensors.retain(|t| t.0 != name);
        self.tensors.push((name.into(), dtype, dims.into(), bytes));
        self
    }

    fn write(self, path: &Path) {
        let views = self
            .tensors
            .iter()
            .map(|(name, dtype, dims, bytes)| (name.clone(), TensorView::new(*dtype, dims.clone(), bytes).unwrap()));
        serialize_to_file(views, Some(self.metadata), path).unwrap();
    }
}

/// A descriptor that no device takes: x has two dimensions.
const REFUSED: &str = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":5}"#;

#[test]
fn a_file_says_what_is_asked_of_the_plan() {
    let folder = Folder::new("options");
    let kernels = OPS.iter().find(|op| op.name == "softmax").unwrap().kernels();
    // A build for the CPU alone takes any name that a kernel may have elsewhere.
    let elsewhere = kernels.iter().find(|(backend, _)| *backend != Backend::Cpu).map_or("softmax_elsewhere", |k| k.1);
    for (name, options) in [
        ("pinned", r#"{"kernel":"softmax_reference"}"#),
        ("elsewhere", &format!(r#"{{"kernel":"{elsewhere}"}}"#)),
        ("nowhere", r#"{"kernel":"nonesuch"}"#),
        ("empty", r#"{"kernel":""}"#),
        ("wrong", r#"{"kernel":1}"#),
    ] {
        Draft::new().with("options", options).write(&folder.at(&format!("{name}.safetensors")));
    }
    let output = check(&[&folder.0, "--device".as_ref(), "cpu".as_ref()]);
    assert_eq!(output.status.code(), Some(1));
    let words = stdout(&output);
    let unreadable = |name: &str| format!("UNREADABLE {}: is no case file: ", folder.at(name).display());
    let kernels = kernels.iter().map(|(_, kernel)| *kernel).collect::<Vec<_>>().join(", ");
    let nowhere =
        |name: &str| format!("the options ask for kernel {name:?}; the kernels of softmax in this build are {kernels}");
    for line in [
        "cpu   1 of 5 cases agree, largest error 0.".into(),
        "cpu   1 of 5 cases served by softmax_reference".into(),
        format!("cpu   1 of 5 cases refused as they must be: the options ask for kernel {elsewhere:?}"),
        unreadable("wrong.safetensors") + "the options are \"{\\\"kernel\\\":1}\": kernel: invalid type",
        unreadable("nowhere.safetensors") + &nowhere("nonesuch"),
        unreadable("empty.safetensors") + &nowhere(""),
    ] {
        assert!(words.lines().any(|l| l.starts_with(&line)), "no line {line:?} in\n{words}");
    }
    let read = read_one(&folder.at("pinned.safetensors")).unwrap();
    assert!(read.case.unwrap().line().ends_with(r#" options={"kernel":"softmax_reference"}"#));
}

#[test]
fn a_bad_file_costs_no_other() {
    let folder = Folder::new("bad");
    Draft::new().write(&folder.at("good.safetensors"));
    fs::write(folder.at("short.safetensors"), b"short").unwrap();
    Draft::new().with("descriptor", REFUSED).with("refused", "cpu, cuda,wgpu").write(&folder.at("refused.safetensors"));
    Draft::new().with("descriptor", REFUSED).write(&folder.at("unasked.safetensors"));
    let mut spoiled = softmax();
    (spoiled[1], spoiled[5]) = (spoiled[1] + 0.25, spoiled[5] + 1e30);
    let bytes = spoiled.iter().flat_map(|v| v.to_le_bytes()).collect();
    Draft::new().tensor("out.y", Dtype::F64, &[2, 3], bytes).write(&folder.at("failing.safetensors"));

    let json = folder.at("out.jsonl");
    let output = check_in_order(&[&folder.0, "--device".as_ref(), "cpu".as_ref(), "--json".as_ref(), &json]);
    let (words, path) = (stdout(&output), |name: &str| folder.at(name).display().to_string());
    assert_eq!(output.status.code(), Some(1), "{words}");
    for line in [
        format!(
            "FAILED {} on cpu by softmax_fast: 2 of 6 elements of y are over budget; the worst, y[1, 2] is ",
            path("failing.safetensors")
        ),
        format!("UNREADABLE {}: is no case file: ", path("short.safetensors")),
        format!(
            "FAILED {} on cpu: refuses this, which the file does not ask for: softmax: ",
            path("unasked.safetensors")
        ),
        "cpu   1 of 5 cases agree, largest error 0.".into(),
        "cpu   1 of 5 cases refused as they must be: softmax: ".into(),
    ] {
        assert!(words.lines().any(|l| l.starts_with(&line)), "no line {line:?} in\n{words}");
    }
    let last = "error: 2 of 5 replays failed, 1 of 5 cases could not be read";
    assert!(stderr(&output).contains(last), "{}", stderr(&output));

    let lines = fs::read_to_string(&json).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended: Vec<_> = lines.iter().map(|l| (l["path"].as_str().unwrap(), l["outcome"].as_str().unwrap())).collect();
    let expected = [
        (path("failing.safetensors"), "failed"),
        (path("good.safetensors"), "ok"),
        (path("refused.safetensors"), "refused"),
        (path("short.safetensors"), "unreadable"),
        (path("unasked.safetensors"), "failed"),
    ];
    assert_eq!(ended, expected.each_ref().map(|(path, outcome)| (path.as_str(), *outcome)));
    assert!(lines.iter().all(|l| l["device"] == "cpu"));
    let kernels: Vec<_> = lines.iter().map(|l| l["kernel"].as_str()).collect();
    assert_eq!(kernels, [Some("softmax_fast"), Some("softmax_fast"), None, None, None]);
    // Numbers beyond a million have an exponent.
    let digits = lines[0]["words"].as_str().unwrap().split(": ").nth(1).unwrap();
    assert!(digits.len() < 20 && digits.contains('e') && digits.ends_with(" units"), "{digits}");
    assert!(lines[0]["units"].as_f64().unwrap() > 1e3 && lines[0]["words"].as_str().unwrap().starts_with("2 of 6"));
    assert_eq!((&lines[1]["op"], &lines[3]["op"]), (&json!("softmax"), &Value::Null));
    assert!(lines[1]["units"].as_f64().unwrap() <= 1.0 && lines[2]["units"].is_null());
}

/// What a run found before it was killed is not lost.
#[cfg(unix)]
#[test]
fn each_file_is_told_of_as_it_is_judged() {
    let folder = Folder::new("killed");
    Draft::new().write(&folder.at("a.safetensors"));
    Draft::new().with("descriptor", REFUSED).write(&folder.at("b.safetensors"));
    // Whoever opens a pipe that nobody writes to waits.
    assert!(Command::new("mkfifo").arg(folder.at("c.safetensors")).status().unwrap().success());
    let json = folder.at("out.jsonl");
    let mut command = bops();
    command.env("RAYON_NUM_THREADS", "1").arg("check").arg(&folder.0).args(["--device=cpu", "--json"]).arg(&json);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with(&format!("FAILED {} on cpu: ", folder.at("b.safetensors").display())), "{line}");
    let lines = fs::read_to_string(&json).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|l| l["outcome"].as_str()).collect::<Vec<_>>(), [Some("ok"), Some("failed")]);
}

#[test]
fn a_refusal_that_a_file_asks_for_is_checked_both_ways() {
    let folder = Folder::new("refusal");
    let kept = folder.at("kept.safetensors");
    let x = X.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
    let draft = Draft::new().with("descriptor", r#"{"x":{"dtype":"f64","dims":[2,3]},"axis":1}"#);
    draft.tensor("in.x", Dtype::F64, &[2, 3], x).with("refused", "wgpu").write(&kept);
    let output = check(&[&kept]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));

    let broken = folder.at("broken.safetensors");
    Draft::new().with("refused", "cpu").write(&broken);
    let output = check(&[&broken, "--device=cpu".as_ref()]);
    let line = format!("FAILED {} on cpu: accepts this, though the file says that it must refuse it", broken.display());
    assert!(!output.status.success() && stdout(&output).contains(&line), "{}", stdout(&output));
}

#[test]
fn folders_are_walked_in_order() {
    let folder = Folder::new("walk");
    fs::create_dir_all(folder.at("b/c")).unwrap();
    fs::create_dir_all(folder.at("empty")).unwrap();
    for name in ["z.safetensors", "b/c/y.safetensors", "a.safetensors", "b/x.safetensors"] {
        Draft::new().write(&folder.at(name));
    }
    fs::write(folder.at("notes.txt"), "no case").unwrap();
    let json = folder.at("out.jsonl");
    let output = check_in_order(&[&folder.0, "--device=cpu".as_ref(), "--json".as_ref(), &json]);
    assert!(output.status.success(), "{}", stdout(&output));
    let lines = fs::read_to_string(&json).unwrap();
    let paths: Vec<String> =
        lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["path"].as_str().unwrap().into()).collect();
    let expected = ["a.safetensors", "b/c/y.safetensors", "b/x.safetensors", "z.safetensors"];
    assert_eq!(paths, expected.map(|name| folder.at(name).display().to_string()));

    // What holds no case is no success.
    let (empty, missing) = (folder.at("empty"), folder.at("missing.safetensors"));
    let output = check(&[&empty, &missing, &folder.at("a.safetensors"), "--device=cpu".as_ref()]);
    let words = stdout(&output);
    assert!(!output.status.success(), "{words}");
    assert!(words.contains(&format!("UNREADABLE {}: is a folder without", empty.display())), "{words}");
    assert!(words.contains(&format!("UNREADABLE {}: cannot be read", missing.display())), "{words}");
    assert!(words.contains("cpu   1 of 3 cases agree"), "{words}");
}

#[test]
fn absent_devices_are_named_and_fail_where_they_are_asked_for() {
    let folder = Folder::new("absent");
    let good = folder.at("good.safetensors");
    Draft::new().write(&good);
    let output = check(&[&good]);
    let words = stdout(&output);
    assert!(output.status.success(), "{words}");
    for target in TARGETS.iter().filter(|t| t.name != "wgpu-plain") {
        let is_absent = target.device.is_err();
        let line = format!("{:5} {}", target.name, if is_absent { "absent: " } else { "1 of 1 cases agree" });
        assert!(words.lines().any(|l| l.starts_with(&line)), "no line {line:?} in\n{words}");
        let asked = bops().arg("check").arg(&good).args(["--device", target.name]).output().unwrap();
        let required = bops().arg("check").arg(&good).env("BOPS_REQUIRE", target.name).output().unwrap();
        for output in [asked, required] {
            assert_eq!(output.status.success(), !is_absent, "{}{}", stdout(&output), stderr(&output));
            assert!(!is_absent || stderr(&output).contains(target.name), "{}", stderr(&output));
        }
    }
    let output = bops().arg("check").arg(&good).env("BOPS_REQUIRE", "npu").output().unwrap();
    assert!(!output.status.success() && stderr(&output).contains("npu (no such backend)"), "{}", stderr(&output));
}

#[test]
fn operands_beyond_memory_are_not_run_again() {
    let weight = r#""weight":{"dtype":"f32","dims":[1,1,1]}"#;
    for (line, bytes) in [
        (format!(r#"conv {{"x":{{"dtype":"f32","dims":[1,1,4294967296]}},{weight}}}"#), "240518168588 bytes"),
        // Small in memory, with a stride of 0.
        (
            r#"conv_backward_bias {"dy":{"dtype":"f32","dims":[4294967296,4,9],"strides":[0,9,1]}}"#.into(),
            "1236950581504 bytes",
        ),
    ] {
        let output = bops().args(["repro", &line, "--device", "cpu"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let words = format!("take {bytes}; at most 8589934592 are run");
        assert!(stderr(&output).contains(&words), "{}", stderr(&output));
    }
}

/// Many rows of no columns have no elements, and yet statistics, which the reference writes.
#[test]
fn statistics_beyond_memory_are_not_computed() {
    let without_values = [
        r#"layer_norm {"x":{"dtype":"f32","dims":[2147483648,0]},"normalized_dims":1,"eps":1e-5}"#,
        r#"rms_norm {"x":{"dtype":"f32","dims":[2147483648,0]},"normalized_dims":1,"eps":1e-5}"#,
        r#"group_norm {"x":{"dtype":"f32","dims":[2147483648,2,0]},"groups":2,"eps":1e-5}"#,
        r#"instance_norm {"x":{"dtype":"f32","dims":[2147483648,2,0]},"eps":1e-5}"#,
    ];
    for line in without_values {
        let output = bops().args(["repro", line, "--device", "cpu"]).output().unwrap();
        assert!(output.status.success() && stdout(&output).contains("ok, "), "{line}: {}", stderr(&output));
    }
    // mean and rstd of 2^32 channels of samples; running statistics of 2 channels; 2^30 pre-activations beside 2^30 outputs.
    let running = r#"{"x":{"dtype":"f32","dims":[2147483648,2,0]},"eps":1e-5,"momentum":0.1}"#;
    let product = r#"gemm {"a":{"dtype":"bf16","dims":[32768,0]},"b":{"dtype":"bf16","dims":[0,32768]}}"#;
    for (line, bytes) in [(format!("instance_norm {running}"), 137_438_953_584_u64), (product.into(), 45_097_156_608)] {
        let output = bops().args(["repro", &line, "--device", "cpu"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {}", stderr(&output));
        let words = format!("take {bytes} bytes; at most 8589934592 are run");
        assert!(stderr(&output).contains(&words), "{line}: {}", stderr(&output));
    }

    // Of a pack, such a case costs no other.
    let folder = Folder::new("statistics");
    let path = folder.at("pack.safetensors");
    let mut pack = Draft::new().without("op").without("descriptor").without("source");
    let tensors = std::mem::take(&mut pack.tensors);
    let of_softmax = |(name, dtype, dims, bytes)| (format!("1.{name}"), dtype, dims, bytes);
    pack.tensors.extend(tensors.into_iter().map(of_softmax));
    let case = |op: &str, descriptor: &str| {
        let descriptor: Value = serde_json::from_str(descriptor).unwrap();
        json!({"op": op, "descriptor": descriptor, "source": "tests/tool.rs"})
    };
    let cases = Value::from(vec![case("instance_norm", running), case("softmax", SOFTMAX)]);
    pack.with(PACK_KEY, &cases.to_string()).write(&path);
    let output = check(&[&path, "--device=cpu".as_ref()]);
    let words = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{words}{}", stderr(&output));
    assert!(
        words.contains("#0: the operands, their values and what is expected of them take 137438953584 bytes"),
        "{words}"
    );
    assert!(words.contains("cpu   1 of 2 cases agree"), "{words}");
}

/// What `repro` prints and how it ends, if it ends within a minute.
fn repro_in_time(arguments: &[&str]) -> Option<Output> {
    let mut command = bops();
    command.arg("repro").args(arguments).args(["--device", "cpu"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(child.wait_with_output().unwrap())
}

/// 2^40 rows, matrices or samples of nothing.
#[test]
fn an_extent_beside_one_of_0_costs_no_time() {
    const MANY: u64 = 1 << 40;
    let x = |dims: &[u64]| format!(r#"{{"dtype":"f32","dims":{dims:?}}}"#);
    for line in [
        format!(r#"softmax {{"x":{},"axis":1}}"#, x(&[MANY, 0])),
        format!(r#"softmax {{"x":{},"axis":0}}"#, x(&[0, MANY])),
        format!(r#"softmax_backward {{"y":{},"axis":1}}"#, x(&[MANY, 0])),
        format!(r#"softmax_backward {{"y":{},"axis":0}}"#, x(&[0, MANY])),
        format!(r#"local_response_norm {{"x":{},"size":3}}"#, x(&[MANY, 0])),
        format!(r#"local_response_norm_backward {{"x":{},"size":3}}"#, x(&[MANY, 0, 7])),
        format!(r#"layer_norm {{"x":{},"normalized_dims":1,"eps":1e-5}}"#, x(&[MANY, 0])),
        format!(r#"layer_norm_backward {{"x":{},"normalized_dims":1,"dx":true}}"#, x(&[0, MANY])),
        format!(r#"rms_norm {{"x":{},"normalized_dims":1,"eps":1e-5}}"#, x(&[MANY, 0])),
        format!(r#"group_norm {{"x":{},"groups":2,"eps":1e-5}}"#, x(&[MANY, 2, 0])),
        format!(r#"instance_norm {{"x":{},"eps":1e-5}}"#, x(&[MANY, 2, 0])),
        format!(r#"batch_norm {{"x":{},"eps":1e-5,"momentum":0.1}}"#, x(&[MANY, 2, 0])),
        format!(r#"batch_norm_backward {{"x":{},"weight":"f32","dweight":true}}"#, x(&[MANY, 2, 0])),
        format!(r#"activation {{"x":{},"activation":"silu"}}"#, x(&[MANY, 0])),
        format!(r#"gemm {{"a":{},"b":{}}}"#, x(&[MANY, 0, 3]), x(&[3, 4])),
        format!(r#"gemm_backward {{"a":{},"b":{},"db":{{"dtype":"f32"}}}}"#, x(&[MANY, 0, 3]), x(&[3, 4])),
        format!(r#"conv_backward_bias {{"dy":{}}}"#, x(&[MANY, 4, 0])),
        format!(
            r#"conv_backward_weight {{"x":{},"dy":{},"dweight":{}}}"#,
            x(&[0, 3, MANY]),
            x(&[0, 4, MANY]),
            x(&[4, 3, 1])
        ),
    ] {
        // Compares with the plain formulas, too.
        let output = repro_in_time(&[&line, "--mode", "random"]);
        let output = output.unwrap_or_else(|| panic!("{line} does not end"));
        let is_ok = output.status.success() && stdout(&output).contains("ok, largest error 0.000");
        assert!(is_ok, "{line}: {}{}", stdout(&output), stderr(&output));
    }
}

#[test]
fn a_mode_that_does_not_apply_is_no_failure() {
    let bias = r#"conv_backward_bias {"dy":{"dtype":"f32","dims":[2,3,4]}}"#;
    let stdout = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    for (mode, why) in [
        ("in-place", "since no operand of the case can be in place"),
        ("record", "since encoders and passes of a caller are those of wgpu"),
        ("capture", "since graphs are those of cuda"),
    ] {
        let output = bops().args(["repro", bias, "--device", "cpu", "--mode", mode]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let words = format!("not run: mode {mode} does not apply, {why}");
        assert!(stdout(&output).contains(&words) && !stdout(&output).contains("FAILED"), "{}", stdout(&output));
        assert!(stderr(&output).contains("nothing was run"), "{}", stderr(&output));
    }
    let output = bops().args(["repro", bias, "--device", "cpu", "--mode", "bind"]).output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("ok"), "{}", stderr(&output));
}

#[test]
fn an_error_is_said_once() {
    let line = r#"softmax {"x":{"dtype":"f32","dims":[2,3]},"axis":2}"#;
    let output = bops().args(["repro", line, "--device", "cpu"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).matches("must be below the rank of x, 2; got 2").count(), 1, "{}", stderr(&output));
}

#[test]
fn a_broken_header_is_said_once() {
    let folder = Folder::new("header");
    let path = folder.at("case.safetensors");
    for (header, because) in [
        (&b"[]"[..], "invalid JSON in header: invalid type: sequence"),
        (b"{nonsense}", "invalid JSON in header: "),
        (b"", "invalid JSON in header: EOF while parsing a value"),
        (b"\xff\xfe", "invalid UTF-8 in header: invalid utf-8 sequence"),
        (br#"{"__metadata__":{"op":3}}"#, "invalid JSON in header: invalid type: integer `3`"),
        (
            br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[-1,4]}}"#,
            "invalid JSON in header: invalid value: integer `-1`",
        ),
    ] {
        fs::write(&path, [&(header.len() as u64).to_le_bytes(), header].concat()).unwrap();
        let words = stdout(&check(&[&path, "--device=cpu".as_ref()]));
        let line = words.lines().find(|l| l.starts_with("UNREADABLE ")).unwrap_or_else(|| panic!("{words}"));
        let (_, reason) = line.split_once(because).unwrap_or_else(|| panic!("no {because:?} in {line}"));
        let cause = because.rsplit(": ").next().filter(|cause| !cause.is_empty()).unwrap_or(reason);
        assert_eq!(line.matches(cause).count(), 1, "{line}");
        assert_eq!(line.matches(" at line ").count(), usize::from(reason.contains(" at line ")), "{line}");
    }
}

#[test]
fn repro_takes_no_kernel_that_is_nowhere() {
    let output = |kernel: &str| {
        let line = format!(r#"softmax {SOFTMAX} options={{"kernel":"{kernel}"}}"#);
        bops().args(["repro", &line, "--device", "cpu"]).output().unwrap()
    };
    let kernels = OPS.iter().find(|op| op.name == "softmax").unwrap().kernels();
    let nowhere = output("zzz");
    assert_eq!(nowhere.status.code(), Some(1), "{}", stdout(&nowhere));
    let names = kernels.iter().map(|(_, kernel)| *kernel).collect::<Vec<_>>().join(", ");
    let words =
        format!("error: the options ask for kernel \"zzz\"; the kernels of softmax in this build are {names}\n");
    assert_eq!(stderr(&nowhere), words);
    // A build for the CPU alone takes any name that a kernel may have elsewhere.
    let elsewhere = kernels.iter().find(|(backend, _)| *backend != Backend::Cpu).map_or("softmax_elsewhere", |k| k.1);
    let elsewhere = output(elsewhere);
    assert!(elsewhere.status.success() && stdout(&elsewhere).contains("refused: "), "{}", stderr(&elsewhere));
    let here = output("softmax_reference");
    assert!(here.status.success() && stdout(&here).contains("ok, "), "{}", stderr(&here));
}

#[test]
fn repro_takes_no_name_that_contradicts_its_case() {
    let name = |name: &str| format!("{name} {SOFTMAX}");
    for (head, because) in [
        ("gemm/values/cpu/softmax", "the name is that of a trial of \"gemm\", the case behind it one of softmax"),
        (
            "nonesuch/values/cpu/softmax",
            "the name is that of a trial of \"nonesuch\", the case behind it one of softmax",
        ),
        ("softmax/valuez/cpu/softmax", "unknown mode \"valuez\""),
        ("softmax/values/npu/softmax", "unknown device \"npu\""),
        ("gemm/softmax", "\"gemm/softmax\" is neither the name of an op nor"),
        ("softmax/values/softmax", "\"softmax/values/softmax\" is neither the name of an op nor"),
        ("softmax/values/cpu/x/softmax", "\"softmax/values/cpu/x/softmax\" is neither the name of an op nor"),
        ("/softmax", "\"/softmax\" is neither the name of an op nor"),
    ] {
        // Also where the arguments say how and where.
        for arguments in [&["--device", "cpu"][..], &["--device", "cpu", "--mode", "values"]] {
            let output = bops().args(["repro", &name(head)]).args(arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{head}: {}", stdout(&output));
            assert!(stderr(&output).contains(because), "{head}: {}", stderr(&output));
        }
    }
    for head in ["softmax", "softmax/values/cpu/softmax"] {
        let output = bops().args(["repro", &name(head), "--device", "cpu"]).output().unwrap();
        assert!(output.status.success(), "{head}: {}", stderr(&output));
    }
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let folder = Folder::new("pipe");
    Draft::new().with("refused", "cpu").write(&folder.at("broken.safetensors"));
    let arguments = [vec!["check".into(), folder.0.clone(), "--device=cpu".into()], vec!["devices".into()]];
    for arguments in arguments {
        let mut child = bops().args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Long before anything is written: devices are looked for first.
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(1), "{arguments:?}");
    }
    // Where stderr alone is closed, the error cannot be told, and the exit code still is.
    let mut child = bops().arg("check").arg(&folder.0).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_panic_is_an_error_of_its_file_alone() {
    let why = unless_it_panics::<()>(|| panic!("of {}", "this")).unwrap_err();
    assert_eq!(why.to_string(), "panicked: of this");
    assert_eq!(unless_it_panics(|| Ok(7)).unwrap(), 7);
}

#[test]
fn says_what_is_wrong_with_a_file() {
    let folder = Folder::new("wrong");
    let path = folder.at("case.safetensors");
    let x = || X.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let repeated = r#"{"x":{"dtype":"f32","dims":[2,3],"strides":[0,1]},"axis":1}"#;
    let overlapping = r#"{"x":{"dtype":"f32","dims":[2,3],"strides":[1,1]},"axis":1}"#;
    let vast = r#"{"x":{"dtype":"f32","dims":[2,3],"strides":[1099511627776,1]},"axis":1}"#;
    for (draft, because) in [
        (Draft::new().without("op"), "no op in the metadata"),
        (Draft::new().without("source"), "no source in the metadata"),
        (Draft::new().with("op", "convolve"), "no op is named \"convolve\""),
        (Draft::new().with("descriptor", "{"), "the descriptor is no JSON"),
        (Draft::new().with("refused", "gpu"), "\"gpu\" is none of cpu, cuda and wgpu"),
        (Draft::new().with("refused", ""), "\"\" is none of cpu, cuda and wgpu"),
        (Draft::new().tensor("in.x", Dtype::F32, &[3, 2], x()), "in.x is [3, 2], the descriptor says [2, 3]"),
        (Draft::new().tensor("in.x", Dtype::I32, &[2, 3], x()), "in.x is i32, the descriptor says f32"),
        (Draft::new().tensor("out.y", Dtype::U16, &[2, 3], vec![0; 12]), "out.y has elements of type U16"),
        (Draft::new().tensor("in.z", Dtype::F32, &[2, 3], x()), "tensor in.z belongs to no operand"),
        (Draft::new().with("descriptor", repeated), "in.x: by strides [0, 1] of [2, 3] some elements share memory"),
        (Draft::new().with("descriptor", overlapping), "in.x: by strides [1, 1] of [2, 3] some elements share memory"),
        (Draft::new().with("descriptor", vast), "bytes; at most 8589934592 are run"),
    ] {
        draft.write(&path);
        let why = format!("{:#}", read_one(&path).err().expect(because));
        assert!(why.starts_with("is no case file: ") && why.contains(because), "{why}");
    }
    let mut missing = Draft::new();
    missing.tensors.pop();
    missing.write(&path);
    let why = format!("{:#}", read_one(&path).err().expect("no output"));
    assert_eq!(why, "is no case file: no tensor out.y");
    // Other activations have an x.
    let identity = r#"{"x":{"dtype":"f32","dims":[2,3]},"activation":"identity"}"#;
    let mut gradient = Draft::new().with("op", "activation_backward").with("descriptor", identity);
    gradient.tensors.clear();
    let gradient = gradient.tensor("in.dy", Dtype::F32, &[2, 3], x()).tensor("out.dx", Dtype::F32, &[2, 3], x());
    gradient.tensor("in.x", Dtype::F32, &[2, 3], x()).write(&path);
    let why = format!("{:#}", read_one(&path).err().expect("an operand too many"));
    assert_eq!(why, "is no case file: tensor in.x belongs to no operand; the descriptor declares dy, dx");
    // What no device may run needs no tensors.
    let mut refused = Draft::new().with("refused", "cpu,cuda,wgpu");
    refused.tensors.clear();
    refused.write(&path);
    read_one(&path).unwrap();
    // Keys of the author's own are kept out of it.
    Draft::new().with("note", "made by hand").write(&path);
    read_one(&path).unwrap();
}

/// The case of a file that holds one.
fn read_one(path: &Path) -> anyhow::Result<FiledCase> {
    let mut entries = case_file::read(path)?;
    assert_eq!((entries.len(), &entries[0].name), (1, &None));
    entries.remove(0).case
}

/// A pack of softmax cases: the entries of its list, and the tensors of those that have any.
fn write_pack(path: &Path, entries: &[Value], cases_with_tensors: &[usize]) {
    let mut pack = Draft::new().without("op").without("descriptor").without("source");
    let tensors = std::mem::take(&mut pack.tensors);
    for case in cases_with_tensors {
        for (name, dtype, dims, bytes) in &tensors {
            pack.tensors.push((format!("{case}.{name}"), *dtype, dims.clone(), bytes.clone()));
        }
    }
    pack.with(PACK_KEY, &Value::from(entries).to_string()).write(path);
}

#[test]
fn a_bad_case_of_a_pack_costs_no_other() {
    let folder = Folder::new("pack");
    let path = folder.at("softmax.safetensors");
    let descriptor = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    let good = json!({"op": "softmax", "descriptor": descriptor(SOFTMAX), "source": "tests/tool.rs"});
    let refused = json!({
        "name": "refused", "op": "softmax", "descriptor": descriptor(REFUSED), "source": "tests/tool.rs", "refused": "cpu, cuda,wgpu"
    });
    let named = json!({
        "name": "pinned", "op": "softmax", "descriptor": descriptor(SOFTMAX), "source": "tests/tool.rs",
        "options": {"kernel": "softmax_reference"}
    });
    write_pack(&path, &[good.clone(), refused, good.clone(), named], &[0, 3]);
    let output = check(&[&path, "--device=cpu".as_ref()]);
    let words = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    for line in [
        format!("UNREADABLE {}#2: no tensor 2.in.x", path.display()),
        "cpu   2 of 4 cases agree, largest error 0.".into(),
        "cpu   1 of 4 cases refused as they must be: softmax: ".into(),
    ] {
        assert!(words.lines().any(|l| l.starts_with(&line)), "no line {line:?} in\n{words}");
    }
    let names: Vec<_> = case_file::read(&path).unwrap().into_iter().map(|entry| entry.name.unwrap()).collect();
    assert_eq!(names, ["0", "refused", "2", "pinned"]);

    let mut unknown = good.clone();
    unknown["dtype"] = json!("f32");
    for (entries, because) in [
        (vec![], "cases is an empty list"),
        (vec![unknown], "unknown field `dtype`"),
        (vec![good], " belongs to none of the 1 cases"),
    ] {
        write_pack(&path, &entries, &[0, 1]);
        let why = format!("{:#}", case_file::read(&path).err().expect(because));
        assert!(why.starts_with("is no case file: ") && why.contains(because), "{why}");
    }
}

/// A bundle of binaries has no documentation.
#[test]
fn the_page_of_case_files_names_all_that_a_file_may_hold() {
    let Ok(page) = fs::read_to_string(root().join("docs/case-files.md")) else {
        assert!(!root().join("docs").is_dir(), "docs/case-files.md is missing");
        return;
    };
    let types = DTYPES.iter().map(|(of_file, dtype)| format!("| `{of_file:?}` | `{dtype}` |"));
    let keys = KEYS.iter().chain([&PACK_KEY, &"name"]).map(|key| format!("| `{key}` |"));
    let outcomes = ["ok", "failed", "refused", "unreadable"].iter().map(|o| format!("| `{o}` |"));
    for row in types.chain(keys).chain(outcomes) {
        assert!(page.contains(&row), "docs/case-files.md has no row {row}");
    }
    for file in ["README.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains("docs/case-files.md"), "{file} does not link the page");
    }
}
