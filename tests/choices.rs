//! What kernels are chosen for every case of the matrix on devices that need not be here: the choice depends on plain numbers alone.

use baracuda_ops::{Backend, DeviceProps, Error, PlanOptions};
use baracuda_ops_tests::ops::SUBJECTS;

#[test]
fn every_case_is_served_or_refused_as_it_must_be() {
    let devices = DeviceProps::examples();
    let options = PlanOptions::default();
    let (mut served, mut refused) = (0, 0);
    for case in SUBJECTS.iter().flat_map(|subject| (subject.cases)()) {
        for device in &devices {
            let must_be_refused = case.must_be_refused_by(device.backend());
            match case.descriptor.supported_with(device, &options) {
                Ok(kernel) => {
                    assert!(!must_be_refused, "{device} serves {} with {kernel}", case.line());
                    assert!(kernel.starts_with(case.descriptor.name()), "{kernel} for {}", case.line());
                    served += 1;
                }
                Err(Error::Unsupported { tried, .. }) if must_be_refused => {
                    assert!(tried.iter().all(|r| r.reason.to_string().len() > 5), "{}: {tried:?}", case.line());
                    refused += 1;
                }
                Err(error) => panic!("{device}: {error}: {}", case.line()),
            }
        }
    }
    assert!(served > 10_000, "{served}");
    assert!(refused > 1_000 || !devices.iter().any(|d| d.backend() == Backend::Wgpu), "{refused}");
}
