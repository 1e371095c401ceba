//! What kernels are chosen for every case of the matrix on devices that need not be here: the choice depends on plain numbers alone.

use std::collections::HashSet;

use baracuda_ops::{Backend, DeviceProps, Error};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::choices::{RENEW, committed, difference, parse, path, render, sections};
use baracuda_ops_tests::ops::SUBJECTS;

/// Whether the device serves the case, if that is as it must be.
fn is_served(case: &Case, device: &DeviceProps) -> Result<bool, String> {
    let must_be_refused = case.must_be_refused_on(device);
    let line = case.line();
    match case.descriptor.supported_with(device, &case.options) {
        Ok(kernel) if must_be_refused => Err(format!("{device} serves {line} with {kernel}")),
        Ok(kernel) if !kernel.starts_with(case.descriptor.name()) => Err(format!("{kernel} for {line}")),
        Ok(_) => Ok(true),
        Err(Error::Unsupported { tried, .. }) if must_be_refused || case.may_be_refused_on(device) => {
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
