//! What kernels are chosen for every case of the matrix on devices that need not be here: the choice depends on plain numbers alone; and
//! what of other libraries the cases cover.

use std::collections::HashSet;

use baracuda_ops::{Backend, DeviceProps, Error};
#[cfg(feature = "cuda")]
use baracuda_ops::{OPS, Rejection};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::choices::{RENEW, committed, difference, parse, path, render, sections};
use baracuda_ops_tests::ops::SUBJECTS;

mod coverage;

/// Whether the device serves the case, if that is as it must be.
fn is_served(case: &Case, device: &DeviceProps) -> Result<bool, String> {
    judged(case, device, case.descriptor.supported_with(device, &case.options))
}

/// As [`is_served`], of what came of planning the case.
fn judged(case: &Case, device: &DeviceProps, outcome: Result<&'static str, Error>) -> Result<bool, String> {
    let must_be_refused = case.must_be_refused_on(device);
    let line = case.line();
    match outcome {
        Ok(kernel) if must_be_refused => Err(format!("{device} serves {line} with {kernel}")),
        Ok(kernel) if !kernel.starts_with(case.descriptor.name()) => Err(format!("{kernel} for {line}")),
        Ok(_) => Ok(true),
        Err(error) if !must_be_refused && !case.may_be_refused_on(device, &error) => {
            Err(format!("{device}: {error}: {line}"))
        }
        Err(Error::Unsupported { tried, .. }) => {
            let has_reasons = tried.iter().all(|r| r.reason.to_string().len() > 5);
            if has_reasons { Ok(false) } else { Err(format!("{line}: {tried:?}")) }
        }
        Err(error) => Err(format!("{device}: {error}: {line}")),
    }
}

#[test]
fn every_case_is_served_or_refused_as_it_must_be() {
    let devices = DeviceProps::examples();
    let (mut served, mut refused) = (0, 0);
    for case in SUBJECTS.iter().flat_map(|subject| (subject.cases)()) {
        for device in &devices {
            match is_served(&case, device) {
                Ok(true) => served += 1,
                Ok(false) => refused += 1,
                Err(why) => panic!("{why}"),
            }
        }
    }
    assert!(served > 10_000, "{served}");
    assert!(refused > 1_000 || !devices.iter().any(|d| d.backend() == Backend::Wgpu), "{refused}");
}

#[test]
fn a_wrong_expectation_is_noticed() {
    let line = |strides: &str| {
        format!(r#"layer_norm {{"x":{{"dtype":"f32","dims":[5,33]{strides}}},"normalized_dims":1,"eps":1e-5}}"#)
    };
    let wrong = |case: Case| Case { is_cpu_only: !case.is_cpu_only, ..case };
    for device in DeviceProps::examples().iter().filter(|d| d.backend() != Backend::Cpu) {
        for strides in ["", r#","strides":[1,5]"#] {
            let case = Case::parse(&line(strides)).unwrap();
            assert_eq!(is_served(&case, device), Ok(strides.is_empty()));
            assert!(is_served(&wrong(case), device).is_err(), "{device}");
        }
    }
}

/// A form that its name asks for may be refused for the shared memory that the device lacks, and for nothing else.
#[cfg(feature = "cuda")]
#[test]
fn a_form_that_refuses_without_cause_is_noticed() {
    let words = [
        "it needs compute capability 9.0, the device has 8.0",
        "a row has 64 vectors of 16 bytes, more than clusters of the device hold",
        "64 rows of 64 channels have no tiles that fit into shared memory",
    ];
    let (mut noticed, mut on_large) = (0, 0);
    for case in SUBJECTS.iter().flat_map(|subject| (subject.cases)()) {
        let Some(kernel) = OPS
            .iter()
            .flat_map(|op| op.kernels())
            .map(|(_, name)| name)
            .find(|name| case.options.kernel.as_deref() == Some(*name))
        else {
            continue;
        };
        for device in DeviceProps::examples() {
            let DeviceProps::Cuda(props) = &device else { continue };
            if case.must_be_refused_on(&device) || is_served(&case, &device) != Ok(true) {
                continue;
            }
            let is_large = props.shared_bytes > 128 << 10;
            for reason in if is_large { &words[..] } else { &words[..2] } {
                let tried = vec![Rejection { kernel, reason: (*reason).into() }];
                let refused = Error::Unsupported { op: "softmax", device: device.to_string(), tried };
                assert!(judged(&case, &device, Err(refused)).is_err(), "{device}: {}: {reason}", case.line());
                noticed += 1;
                on_large += usize::from(is_large);
            }
        }
    }
    assert!(noticed > 10_000 && on_large > 5_000, "{noticed}, {on_large}");
}

/// `tests/choices.txt` holds every choice. Who changes one renews the file, and says why.
#[test]
fn choices_are_as_committed() {
    let found = sections().unwrap();
    let text = committed();
    let committed = parse(&text);
    if std::env::var_os(RENEW).is_some() {
        std::fs::write(path(), render(&committed, &found)).unwrap();
        return;
    }
    if let Some(words) = difference(&committed, &found) {
        panic!("{words}");
    }
    // Sections of devices that this build lacks stay as they are.
    assert_eq!(render(&committed, &found).lines().collect::<HashSet<_>>(), text.lines().collect());
}

#[test]
fn a_changed_choice_is_noticed() {
    let found = sections().unwrap();
    for at in [0, found[0].lines.len() - 1] {
        let mut changed = found.clone();
        let line = changed.last_mut().unwrap().lines.get_mut(at).unwrap();
        line.push('0');
        let line = line.clone();
        let words = difference(&found, &changed).unwrap();
        assert!(words.starts_with("1 choices differ") && words.contains(&line), "{words}");
    }
    let mut fewer = found.clone();
    fewer[0].lines.pop();
    assert!(difference(&found, &fewer).unwrap().contains("(nothing)"));
    assert!(difference(&fewer, &found).unwrap().contains("(nothing)"));
    assert_eq!(difference(&found, &found), None);
}
