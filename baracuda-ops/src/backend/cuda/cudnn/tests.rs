//! What is asked of the library, by one that notes it down: it proposes the engines that a test gives it, and fails where a test says so.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem;
use std::thread;

use super::attention::{AttentionProblem, Causal, Gradients};
use super::conv::ConvProblem;
use super::*;
use crate::ops::conv::pass::Pass;

/// An engine that is proposed.
#[derive(Clone, Default)]
struct Offer {
    index: i64,
    notes: Vec<c_int>,
    workspace_bytes: i64,
    /// Of finalizing its plan.
    status: Status,
}

#[derive(Default)]
struct Fake {
    calls: Vec<String>,
    /// By descriptor.
    kinds: HashMap<usize, c_int>,
    next: usize,
    handles: i32,
    /// By mode of the heuristics.
    offers: HashMap<c_int, Vec<Offer>>,
    mode: c_int,
    /// By descriptor: of a configuration, of its engine, of its plan.
    offer_of: HashMap<usize, Offer>,
    fails: Option<(Call, Option<c_int>, Status)>,
    /// What it says of an error.
    says: &'static str,
}

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::default();
}

fn with<T>(use_fake: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with_borrow_mut(use_fake)
}

impl Fake {
    fn status(&self, call: Call, about: Option<c_int>) -> Status {
        match self.fails {
            Some((fails, which, status)) if fails == call && (which.is_none() || which == about) => status,
            _ => 0,
        }
    }

    fn new_number(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}

fn at(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

unsafe extern "C" fn version() -> usize {
    92801
}

unsafe extern "C" fn runtime() -> usize {
    13000
}

unsafe extern "C" fn last_error(text: *mut c_char, room: usize) {
    let says = with(|fake| mem::take(&mut fake.says));
    assert!(says.len() < room);
    // SAFETY: there is as much room as was said.
    unsafe {
        ptr::copy_nonoverlapping(says.as_ptr(), text.cast(), says.len());
        *text.add(says.len()) = 0;
    }
}

unsafe extern "C" fn create(handle: *mut *mut c_void) -> Status {
    with(|fake| {
        let number = fake.new_number();
        fake.handles += 1;
        // SAFETY: the pointer is valid, here and below.
        unsafe { *handle = at(number) };
        fake.status(Call::Create, None)
    })
}

unsafe extern "C" fn destroy(_: *mut c_void) -> Status {
    with(|fake| fake.handles -= 1);
    0
}

unsafe extern "C" fn set_stream(_: *mut c_void, stream: *mut c_void) -> Status {
    with(|fake| {
        fake.calls.push(format!("stream {}", stream.addr()));
        fake.status(Call::SetStream, None)
    })
}

unsafe extern "C" fn create_descriptor(kind: c_int, descriptor: *mut *mut c_void) -> Status {
    with(|fake| {
        let status = fake.status(Call::CreateDescriptor, Some(kind));
        if status == 0 {
            let number = fake.new_number();
            fake.kinds.insert(number, kind);
            // SAFETY: the pointer is valid.
            unsafe { *descriptor = at(number) };
        }
        status
    })
}

unsafe extern "C" fn destroy_descriptor(descriptor: *mut c_void) -> Status {
    with(|fake| fake.kinds.remove(&descriptor.addr())).expect("each is destroyed once");
    0
}

/// Values as the type of the attribute says, descriptors by their kind.
unsafe fn words(fake: &Fake, of: c_int, count: i64, values: *const c_void) -> String {
    fn list<T: Copy>(count: i64, values: *const c_void) -> Vec<T> {
        // SAFETY: the caller of the library gave as many values of the type as it said.
        (0..count as usize).map(|i| unsafe { *values.cast::<T>().add(i) }).collect()
    }
    match of {
        2 => format!("{:?}", list::<bool>(count, values)),
        3 => format!("{:?}", list::<i64>(count, values)),
        4 => format!("{:?}f", list::<f32>(count, values)),
        5 => format!("{:?}d", list::<f64>(count, values)),
        6 => format!("{:?}p", list::<usize>(count, values)),
        0 => "handle".into(),
        15 => format!("{:?}k", list::<usize>(count, values).iter().map(|n| fake.kinds[n]).collect::<Vec<_>>()),
        other => format!("{:?}e{other}", list::<c_int>(count, values)),
    }
}

unsafe extern "C" fn set_attribute(
    descriptor: *mut c_void,
    attribute: c_int,
    of: c_int,
    count: i64,
    values: *const c_void,
) -> Status {
    with(|fake| {
        // SAFETY: as the caller says.
        let words = unsafe { words(fake, of, count, values) };
        fake.calls.push(format!("{} {attribute} {words}", fake.kinds[&descriptor.addr()]));
        // SAFETY: the attributes have these types.
        unsafe {
            match attribute {
                HEURISTICS_MODE => fake.mode = *values.cast(),
                EXECUTION_PLAN_CONFIG => {
                    let offer = fake.offer_of[&*values.cast::<usize>()].clone();
                    fake.offer_of.insert(descriptor.addr(), offer);
                }
                _ => {}
            }
        }
        fake.status(Call::SetAttribute, Some(attribute))
    })
}

unsafe extern "C" fn get_attribute(
    descriptor: *mut c_void,
    attribute: c_int,
    of: c_int,
    room: i64,
    count: *mut i64,
    values: *mut c_void,
) -> Status {
    with(|fake| {
        let offer = fake.offer_of.get(&descriptor.addr()).cloned().unwrap_or_default();
        // SAFETY: the attributes have these types, and there is room.
        unsafe {
            *count = 1;
            match (attribute, of) {
                (HEURISTICS_RESULTS, 15) => {
                    let offers = fake.offers.get(&fake.mode).cloned().unwrap_or_default();
                    // One more is counted than turns out to serve.
                    *count = offers.len() as i64 + i64::from(room == 0);
                    for (i, offer) in offers.into_iter().enumerate().take(room as usize) {
                        fake.offer_of.insert(*values.cast::<usize>().add(i), offer);
                    }
                }
                (ENGINE_CONFIG_ENGINE, 15) => {
                    fake.offer_of.insert(*values.cast(), offer);
                }
                (ENGINE_INDEX, 3) => *values.cast() = offer.index,
                (ENGINE_NUMERICAL_NOTES, 11) => {
                    *count = offer.notes.len() as i64;
                    for (i, note) in offer.notes.iter().enumerate().take(room as usize) {
                        *values.cast::<c_int>().add(i) = *note;
                    }
                }
                (EXECUTION_PLAN_WORKSPACE_BYTES, 3) => *values.cast() = offer.workspace_bytes,
                other => panic!("asked for {other:?}"),
            }
        }
        fake.status(Call::GetAttribute, Some(attribute))
    })
}

unsafe extern "C" fn finalize(descriptor: *mut c_void) -> Status {
    with(|fake| {
        let kind = fake.kinds[&descriptor.addr()];
        fake.calls.push(format!("{kind} done"));
        match fake.offer_of.get(&descriptor.addr()) {
            Some(offer) if kind == EXECUTION_PLAN && offer.status != 0 => offer.status,
            _ => fake.status(Call::Finalize, Some(kind)),
        }
    })
}

unsafe extern "C" fn execute(_: *mut c_void, plan: *mut c_void, pack: *mut c_void) -> Status {
    with(|fake| {
        fake.calls.push(format!("execute {} {}", fake.kinds[&plan.addr()], fake.kinds[&pack.addr()]));
        fake.status(Call::Execute, None)
    })
}

/// A library that proposes these engines in mode A, and those as a fallback.
fn library(best: &[Offer], fallback: &[Offer]) -> Cudnn {
    with(|fake| {
        *fake = Fake::default();
        fake.offers = HashMap::from([(MODE_A.0, best.to_vec()), (MODE_FALLBACK.0, fallback.to_vec())]);
    });
    let functions = Functions {
        version,
        runtime,
        last_error,
        create,
        destroy,
        set_stream,
        create_descriptor,
        destroy_descriptor,
        set_attribute,
        get_attribute,
        finalize,
        execute,
    };
    Cudnn::of(Arc::new(functions)).unwrap()
}

fn offer(index: i64, notes: &[c_int]) -> Offer {
    Offer { index, notes: notes.to_vec(), ..Offer::default() }
}

fn dense(dtype: DType, dims: [i64; 4]) -> Tensor {
    let [_, c, h, w] = dims;
    let [n, last] = [[dims[0], c, h, w, 1], [c * h * w, h * w, w, 1, 1]];
    Tensor { dtype, rank: 4, dims: n, strides: last, align_bytes: 16 }
}

/// Of 2 samples with 3 channels and 8 filters of 3 x 3 elements.
fn problem(pass: Pass, dtype: DType) -> ConvProblem {
    ConvProblem {
        pass,
        rank: 4,
        x: dense(dtype, [2, 3, 9, 7]),
        weight: dense(dtype, [8, 3, 3, 3]),
        y: dense(dtype, [2, 8, 9, 3]),
        bias: None,
        relu: false,
        stride: [1, 2, 1],
        dilation: [1, 1, 1],
        padding: [1, 0, 0],
        beta: 0.0,
        tensor_cores: false,
        is_reproducible: true,
        workspace_bytes: 1000,
    }
}

fn fused(dtype: DType) -> ConvProblem {
    ConvProblem { bias: Some(dense(dtype, [1, 8, 1, 1])), relu: true, ..problem(Pass::Forward, dtype) }
}

fn chosen(library: &Cudnn, problem: &impl Problem) -> Result<i64, String> {
    let engine = library.choose(problem, 90, |_| Ok(1)).map_err(|reason| reason.to_string())?;
    Ok(with(|fake| fake.offer_of[&engine.execution.plan.raw.addr()].index))
}

/// The calls since the last time.
fn calls() -> Vec<String> {
    with(|fake| mem::take(&mut fake.calls))
}

#[test]
fn a_convolution_is_described_operand_by_operand() {
    let cudnn = library(&[offer(7, &[])], &[]);
    assert_eq!(chosen(&cudnn, &problem(Pass::Forward, DType::BF16)), Ok(7));
    let tensor = |id: i64, dims: &str, strides: &str| {
        [
            format!("17 906 [{id}]"),
            "17 901 [9]e1".into(),
            "17 900 [16]".into(),
            format!("17 902 {dims}"),
            format!("17 903 {strides}"),
            "17 907 [false]".into(),
            "17 908 [false]".into(),
            "17 done".into(),
        ]
    };
    let mut wanted = Vec::new();
    wanted.extend(tensor(1, "[2, 3, 9, 7]", "[189, 63, 7, 1]"));
    wanted.extend(tensor(2, "[8, 3, 3, 3]", "[27, 9, 3, 1]"));
    wanted.extend(tensor(3, "[2, 8, 9, 3]", "[216, 27, 3, 1]"));
    let rest = [
        "1 100 [0]e1",
        "1 101 [1]e7",
        "1 106 [2]",
        "1 102 [1, 1]",
        "1 103 [1, 2]",
        "1 105 [1, 0]",
        "1 104 [1, 0]",
        "1 done",
        "10 700 [1.0]f",
        "10 701 [0.0]f",
        "10 702 [1]k",
        "10 703 [17]k",
        "10 704 [17]k",
        "10 705 [17]k",
        "10 done",
        "15 800 handle",
        "15 801 [10]k",
        "15 done",
        "4 201 [15]k",
        "4 200 [3]e8",
        "4 done",
        "5 400 handle",
        "5 401 [3]k",
        "5 done",
    ];
    wanted.extend(rest.map(String::from));
    assert_eq!(calls(), wanted);
}

#[test]
fn gradients_have_operations_of_their_own_and_scalars_of_the_type_that_sums() {
    let operation = |pass, dtype| {
        let cudnn = library(&[offer(0, &[])], &[]);
        chosen(&cudnn, &ConvProblem { beta: 0.5, ..problem(pass, dtype) }).unwrap();
        let calls = calls();
        calls.into_iter().filter(|call| ["10 ", "11 ", "12 ", "1 100"].iter().any(|kind| call.starts_with(kind)))
    };
    let wanted = ["1 100 [0]e1", "12 706 [1.0]f", "12 707 [0.5]f", "12 708 [1]k", "12 709 [17]k", "12 710 [17]k"];
    assert!(operation(Pass::Data, DType::F16).eq([&wanted[..], &["12 711 [17]k", "12 done"]].concat()));
    let wanted = ["1 100 [1]e1", "11 712 [1.0]d", "11 713 [0.5]d", "11 714 [1]k", "11 715 [17]k", "11 716 [17]k"];
    assert!(operation(Pass::Weight, DType::F64).eq([&wanted[..], &["11 717 [17]k", "11 done"]].concat()));
}

#[test]
fn bias_and_relu_follow_the_sums_which_have_no_memory() {
    let cudnn = library(&[offer(7, &[0]), offer(2, &[9])], &[]);
    assert_eq!(chosen(&cudnn, &fused(DType::F16)), Ok(2));
    let calls = calls();
    let of = |start: &str| calls.iter().filter(|call| call.starts_with(start)).cloned().collect::<Vec<_>>();
    assert_eq!(of("17 906"), ["17 906 [1]", "17 906 [2]", "17 906 [3]", "17 906 [4]", "17 906 [5]", "17 906 [6]"]);
    let falses = "17 907 [false]";
    assert_eq!(of("17 907"), [falses, falses, falses, falses, "17 907 [true]", "17 907 [true]"]);
    let halves = "17 901 [2]e1";
    assert_eq!(of("17 901"), [halves, halves, halves, halves, "17 901 [0]e1", "17 901 [0]e1"]);
    let modes = ["0 0 [0]e14", "0 1 [0]e1", "0 done", "0 0 [100]e14", "0 1 [0]e1", "0 2 [1]e10", "0 done"];
    assert_eq!(of("0 "), modes);
    let added = ["13 750 [0]k", "13 751 [17]k", "13 752 [17]k", "13 753 [17]k", "13 done"];
    let applied = ["13 750 [0]k", "13 751 [17]k", "13 753 [17]k", "13 done"];
    assert_eq!(of("13 "), [&added[..], &applied[..]].concat());
    assert_eq!(of("15 801"), ["15 801 [10, 13, 13]k"]);
}

#[test]
fn engines_serve_by_their_notes() {
    let strict = problem(Pass::Weight, DType::F32);
    let cores = ConvProblem { tensor_cores: true, ..strict };
    let any = ConvProblem { is_reproducible: false, ..strict };
    let relu = ConvProblem { relu: true, ..problem(Pass::Forward, DType::F32) };
    for (notes, serves) in [
        (&[][..], [true, true, true, false]),
        (&[0], [false, true, false, false]),
        (&[1], [false; 4]),
        (&[2], [false; 4]),
        (&[3], [false; 4]),
        (&[4], [false, false, true, false]),
        (&[5], [false; 4]),
        (&[6], [false; 4]),
        (&[7], [false; 4]),
        (&[8], [false; 4]),
        (&[9], [true; 4]),
        (&[0, 4], [false; 4]),
        (&[0, 9], [false, true, false, false]),
        // Of a newer library.
        (&[10], [false; 4]),
        (&[9; 11], [false; 4]),
    ] {
        for (problem, serves) in [strict, cores, any, relu].iter().zip(serves) {
            let cudnn = library(&[offer(3, notes)], &[]);
            assert_eq!(chosen(&cudnn, problem).is_ok(), serves, "{notes:?} {problem:?}");
        }
    }
    let cudnn = library(&[offer(3, &[0]), offer(4, &[5])], &[offer(5, &[4]), offer(6, &[])]);
    assert_eq!(chosen(&cudnn, &strict), Ok(6));
    assert_eq!(chosen(&cudnn, &cores), Ok(3));
    assert_eq!(chosen(&cudnn, &any), Ok(5));
}

#[test]
fn engines_that_are_known_not_to_be_reproducible_serve_where_nothing_needs_be() {
    let engine = Traits { index: 5, list: [NOTE_TENSOR_CORE; NOTES], count: 1 };
    let problem = ConvProblem { tensor_cores: true, ..problem(Pass::Forward, DType::BF16) };
    assert!(!problem.admits(&engine, 86, 92301));
    assert!(problem.admits(&engine, 86, 92400) && problem.admits(&engine, 90, 92301));
    assert!(ConvProblem { is_reproducible: false, ..problem }.admits(&engine, 86, 92301));
    assert!(ConvProblem { pass: Pass::Data, ..problem }.admits(&engine, 86, 92301));
    assert!(problem.admits(&Traits { index: 6, ..engine }, 86, 92301));
}

#[test]
fn an_engine_that_needs_too_much_or_fails_is_passed_over() {
    let strict = problem(Pass::Data, DType::F32);
    let large = Offer { workspace_bytes: 1001, ..offer(1, &[]) };
    let broken = Offer { status: 4001, ..offer(2, &[]) };
    let odd = Offer { workspace_bytes: -1, ..offer(3, &[]) };
    let fits = Offer { workspace_bytes: 1000, ..offer(4, &[]) };
    let offers = [large, broken, odd, offer(8, &[0])];
    let cudnn = library(&offers, &[fits]);
    assert_eq!(chosen(&cudnn, &strict), Ok(4));
    let cudnn = library(&offers, &[]);
    let reason = chosen(&cudnn, &strict).unwrap_err();
    assert_eq!(
        reason,
        "cuDNN has no engine for it: of 4 that it proposes 1 are less exact, not reproducible or lose NaN, 2 need more \
         than 1000 bytes of workspace; cudnnBackendFinalize 5 failed with cudnnStatus_t 4001"
    );
    let cudnn = library(&[offer(1, &[]), offer(2, &[])], &[offer(3, &[])]);
    let kernels_fail = |_: &Execution| Err("cuda says no".to_string());
    let reason = cudnn.choose(&strict, 90, kernels_fail).err().unwrap().to_string();
    assert!(reason.ends_with("; cuda says no") && reason.contains("of 3"), "{reason}");
}

#[test]
fn every_failing_call_is_a_refusal_that_names_it() {
    let attributes = [
        0, 1, 2, 100, 101, 102, 103, 104, 105, 106, 200, 201, 400, 401, 700, 701, 702, 703, 704, 705, 750, 751, 752,
        753, 800, 801, 900, 901, 902, 903, 906, 907, 908,
    ];
    let kinds = [0, 1, 2, 3, 4, 5, 10, 13, 15, 17];
    let cases = attributes
        .map(|about| (Call::SetAttribute, about))
        .into_iter()
        .chain([202, 300, 402, 1301, 1303].map(|about| (Call::GetAttribute, about)))
        .chain(kinds.map(|about| (Call::CreateDescriptor, about)))
        .chain(kinds.map(|about| (Call::Finalize, about)).into_iter().filter(|(_, about)| ![2, 3].contains(about)));
    for (call, about) in cases {
        let cudnn = library(&[offer(1, &[9])], &[offer(2, &[9])]);
        with(|fake| fake.fails = Some((call, Some(about), 2004)));
        let reason = chosen(&cudnn, &fused(DType::F32)).unwrap_err();
        let words = format!("{} {about} failed with cudnnStatus_t 2004", call.name());
        assert!(reason.ends_with(&words), "{reason}");
        assert!(with(|fake| fake.kinds.is_empty()), "{words}: a descriptor is left");
    }
    let functions = library(&[], &[]).functions.clone();
    with(|fake| fake.fails = Some((Call::Create, None, 1001)));
    let reason = Reason::from(Cudnn::of(functions).err().unwrap());
    assert_eq!(reason.to_string(), "cudnnCreate failed with cudnnStatus_t 1001");
}

#[test]
fn a_run_lends_a_handle_and_binds_its_addresses() {
    let cudnn = library(&[offer(1, &[9])], &[]);
    for (problem, ids, pointers) in [
        (problem(Pass::Weight, DType::F32), "[1, 2, 3]", "[256, 512, 768]p"),
        (fused(DType::F32), "[1, 2, 3, 4]", "[256, 512, 768, 1024]p"),
    ] {
        let engine = cudnn.choose(&problem, 90, |_| Ok(1)).map_err(|reason| reason.to_string()).unwrap();
        let tensors = [at(256), at(512), at(768), at(1024)];
        let operands = At { tensors: &tensors[..engine.execution.tensors.ids.len()], workspace: at(4096) };
        // SAFETY: the fake reads nothing.
        let run = |stream: usize| unsafe { cudnn.execute(&engine.execution, &operands, at(stream)) };
        calls();
        assert_eq!(run(77), Ok(()));
        let bound = [format!("16 1000 {ids}"), format!("16 1001 {pointers}"), "16 1003 [4096]p".into()];
        let rest = ["16 done", "stream 77", "execute 5 16"].map(String::from);
        assert_eq!(calls(), [&bound[..], &rest].concat());
        // The legacy stream is the null one there.
        assert_eq!(run(1), Ok(()));
        assert!(calls().contains(&"stream 0".into()));
        let before = with(|fake| fake.kinds.len());
        for (call, about, words) in [
            (Call::Execute, None, "cudnnBackendExecute"),
            (Call::SetStream, None, "cudnnSetStream"),
            (Call::SetAttribute, Some(1001), "cudnnBackendSetAttribute"),
            (Call::Finalize, Some(16), "cudnnBackendFinalize"),
            (Call::CreateDescriptor, Some(16), "cudnnBackendCreateDescriptor"),
        ] {
            with(|fake| fake.fails = Some((call, about, 3000)));
            let failure = run(77).unwrap_err();
            assert_eq!(failed(failure.code()), Some((words, 3000)));
            assert_eq!((with(|fake| fake.kinds.len()), lock(&cudnn.handles.free).len()), (before, 1));
        }
        with(|fake| fake.fails = None);
    }
    drop(cudnn);
    assert_eq!(with(|fake| (fake.handles, fake.kinds.len())), (0, 0));
}

#[test]
fn statuses_of_other_libraries_are_not_its_own() {
    for status in [0, 1, 700, -1, -15, -STATUSES, i32::MIN, i32::MAX] {
        assert_eq!(failed(status), None, "{status}");
    }
    for &call in Call::ALL {
        let failure = |status| Failure { call, about: None, status, said: None };
        assert_eq!(failed(failure(5000).code()), Some((call.name(), 5000)));
        assert_eq!(failed(failure(i32::MAX).code()), Some((call.name(), STATUSES - 1)));
    }
}

#[test]
fn a_handle_is_used_by_one_run_at_a_time() {
    let cudnn = library(&[], &[]);
    let busy = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let lent = cudnn.handles.lend();
                    assert!(!lent.raw().is_null());
                    *lock(&busy) += 1;
                    assert_eq!(*lock(&busy), 1);
                    thread::yield_now();
                    *lock(&busy) -= 1;
                }
            });
        }
    });
    assert_eq!(lock(&cudnn.handles.free).len(), 1);
}

#[test]
fn reasons_tell_what_the_library_says() {
    let strict = problem(Pass::Forward, DType::F32);
    let cudnn = library(&[], &[]);
    with(|fake| fake.says = "stale");
    assert!(!chosen(&cudnn, &strict).unwrap_err().contains("stale"));
    let cudnn = library(&[offer(1, &[])], &[]);
    with(|fake| {
        fake.fails = Some((Call::Finalize, Some(OPERATION_GRAPH), 3000));
        fake.says = "{\"engineId\":2}\nWarning: X; Reason: no such pattern \nWarning: Y; Reason: finalize()";
    });
    let reason = chosen(&cudnn, &strict).unwrap_err();
    assert_eq!(reason, "cudnnBackendFinalize 15 failed with cudnnStatus_t 3000: no such pattern");
}

/// Two samples of four heads, of which two share one of keys.
fn attention(has_lse: bool, causal: Option<Causal>) -> AttentionProblem {
    let of = |dims| dense(DType::BF16, dims);
    AttentionProblem {
        q: of([2, 4, 5, 16]),
        k: of([2, 2, 7, 16]),
        v: of([2, 2, 7, 8]),
        y: of([2, 4, 5, 8]),
        has_lse,
        causal,
        scale: 0.25,
        gradients: None,
        is_reproducible: true,
        workspace_bytes: 100_000,
    }
}

/// Of four heads of keys.
fn gradients(is_reproducible: bool) -> AttentionProblem {
    let [k, v] = [16, 8].map(|columns| dense(DType::BF16, [2, 4, 7, columns]));
    let forward = AttentionProblem { k, v, ..attention(true, Some(Causal::BottomRight)) };
    let AttentionProblem { q, y, .. } = forward;
    AttentionProblem { gradients: Some(Gradients { dy: y, dq: q, dk: k, dv: v }), is_reproducible, ..forward }
}

/// The operations in their order: products, reductions with their operators, functions with their modes, and reshapes.
fn operations(calls: &[String]) -> Vec<String> {
    let starts = ["0 0 ", "18 1500 ", "21 1600 ", "31 2200 "];
    let wanted = calls.iter().filter_map(|call| {
        let at = starts.iter().position(|start| call.starts_with(start))?;
        let (_, rest) = call.split_at(starts[at].len());
        let number = rest.trim_start_matches('[').split(']').next().unwrap_or_default();
        Some(["p", "x", "r", "s"][at].to_string() + if matches!(at, 0 | 2) { number } else { "" })
    });
    wanted.collect()
}

#[test]
fn attention_is_the_graph_that_the_library_knows() {
    let cudnn = library(&[offer(2, &[0])], &[]);
    assert_eq!(chosen(&cudnn, &attention(false, None)), Ok(2));
    let plain = calls();
    // A product times the scale; maximum, difference, exponential, sum, logarithm, lse; weights, and their product.
    assert_eq!(operations(&plain), ["x", "p1", "r3", "p9", "p13", "r0", "p15", "p0", "p6", "x"]);
    assert!(plain.contains(&"15 801 [19, 13, 22, 13, 13, 22, 13, 13, 13, 19]k".into()), "{plain:?}");
    let of = |calls: &[String], start: &str| {
        calls.iter().filter(|call| call.starts_with(start)).cloned().collect::<Vec<_>>()
    };
    // Keys are told as [B, Hk, D, Sk].
    assert_eq!(of(&plain, "17 902")[1], "17 902 [2, 2, 16, 7]");
    assert_eq!(of(&plain, "17 903")[1], "17 903 [224, 112, 1, 16]");
    let memory = |calls: &[String]| of(calls, "17 907").iter().filter(|call| call.ends_with("[false]")).count();
    // Four operands and the scale.
    assert_eq!((memory(&plain), of(&plain, "17 908 [true]").len()), (5, 1));
    assert_eq!(chosen(&cudnn, &attention(true, Some(Causal::TopLeft))), Ok(2));
    let masked = calls();
    let hidden = ["x", "p1", "p501", "p501", "p303", "p601", "r3", "p9", "p13", "r0", "p15", "p0", "p6", "x"];
    assert_eq!(operations(&masked), hidden);
    assert_eq!(of(&masked, "0 9 "), ["0 9 [2]", "0 9 [3]"]);
    assert_eq!((memory(&masked), of(&masked, "17 908 [true]").len()), (7, 2));
    assert_eq!(chosen(&cudnn, &attention(true, Some(Causal::BottomRight))), Ok(2));
    let moved = calls();
    assert_eq!(operations(&moved)[2..8], ["p501", "p501", "p0", "p9", "p303", "p601"]);
    assert_eq!(of(&moved, "17 908 [true]").len(), 4);
}

#[test]
fn backward_writes_the_gradient_of_q_or_sums_of_it() {
    let cudnn = library(&[offer(6, &[0])], &[]);
    let graph = |problem: &AttentionProblem| {
        let engine = cudnn.choose(problem, 90, |_| Ok(1)).map_err(|reason| reason.to_string()).unwrap();
        let tensors = engine.execution.tensors.clone();
        (operations(&calls()), tensors, engine.execution.workspace_bytes())
    };
    let (exact, tensors, bytes) = graph(&gradients(true));
    let delta = ["p1", "r0", "p1"];
    let weights = ["x", "p1", "p9", "p501", "p501", "p0", "p9", "p303", "p601", "p13", "s"];
    let of_v = ["x"];
    let of_scores = ["x", "p9", "p1", "p1", "s"];
    let shared = [&delta[..], &weights, &of_v, &of_scores, &["x", "s", "x"]].concat();
    assert_eq!(exact, shared);
    // Operands, a number of each query, and the scale, one, two counts and -infinity.
    assert_eq!((tensors.spans.len(), &tensors.scratch[..], bytes), (9, &[160][..], 256));
    let values = [0.25f32.to_bits(), 1.0f32.to_bits(), 7, 5, f32::NEG_INFINITY.to_bits()];
    assert_eq!((&tensors.values[..], tensors.ids.len()), (&values[..], 15));
    let (any, tensors, bytes) = graph(&gradients(false));
    assert_eq!(any, [&shared[..], &["p21"]].concat());
    assert_eq!((&tensors.scratch[..], bytes), (&[160, 2560][..], 256 + 2560));
}

#[test]
fn a_run_of_attention_binds_what_lies_in_the_workspace_and_values() {
    let cudnn = library(&[Offer { workspace_bytes: 100, ..offer(6, &[]) }], &[]);
    let engine = cudnn.choose(&gradients(false), 90, |_| Ok(1)).map_err(|reason| reason.to_string()).unwrap();
    assert_eq!(engine.execution.workspace_bytes(), 256 + 2560 + 100);
    let tensors: Vec<_> = (1..=9).map(|number| at(number << 20)).collect();
    calls();
    // SAFETY: the fake reads nothing.
    unsafe { cudnn.execute(&engine.execution, &At { tensors: &tensors, workspace: at(4096) }, at(77)) }.unwrap();
    let calls = calls();
    let values = &engine.execution.tensors.values;
    let addresses = tensors.iter().map(|tensor| tensor.addr()).chain([4096, 4096 + 256]);
    let addresses: Vec<_> = addresses.chain(values.iter().map(|value| ptr::from_ref(value).addr())).collect();
    assert_eq!(calls[1], format!("16 1001 {addresses:?}p"));
    assert_eq!(calls[2], format!("16 1003 [{}]p", 4096 + 256 + 2560));
}

#[test]
fn every_failing_call_of_attention_is_a_refusal_that_names_it() {
    let attributes = [9, 758, 1500, 1520, 1521, 1522, 1523, 1600, 1601, 1610, 1611, 1612, 2200, 2201];
    let kinds = [18, 19, 21, 22, 31];
    let cases = attributes
        .map(|about| (Call::SetAttribute, about))
        .into_iter()
        .chain(kinds.map(|about| (Call::CreateDescriptor, about)))
        .chain(kinds.map(|about| (Call::Finalize, about)));
    for (call, about) in cases {
        let cudnn = library(&[offer(1, &[])], &[]);
        with(|fake| fake.fails = Some((call, Some(about), 2000)));
        let reason = chosen(&cudnn, &gradients(true)).unwrap_err();
        assert_eq!(reason, format!("{} {about} failed with cudnnStatus_t 2000", call.name()));
        assert!(with(|fake| fake.kinds.is_empty()), "{reason}: a descriptor is left");
    }
}
