//! What the tests of choices share, and the rule of choice itself.

use super::*;
use crate::ops::norm::BatchNormBackwardDescriptor;
use crate::ops::norm::BatchNormDescriptor;

/// What a form chose, its numbers by their names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) form: Form,
    numbers: Vec<(String, u64)>,
    pub(super) workspace_bytes: u64,
    pub(super) launches: u32,
}

impl Found {
    /// A number of the choice, which has it.
    pub(super) fn at(&self, name: &str) -> u64 {
        self.get(name).unwrap_or_else(|| panic!("{name} is none of {self:?}"))
    }

    /// A number of the choice, 0 if it has none of that name.
    pub(super) fn or_zero(&self, name: &str) -> u64 {
        self.get(name).unwrap_or(0)
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.numbers.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }
}

/// What one form answers, its numbers read from how the choice is printed.
pub(super) fn asked<F: Pass>(form: Form, p: &ChannelProblem) -> Result<Found, Reason> {
    let (of, params) = (Default::default(), Default::default());
    let candidate = F::choose(form, &Task { problem: *p, of, params, has_work: true })?;
    let words = format!("{:?}", candidate.choice);
    let fields = words.split_once('{').map_or("", |(_, fields)| fields.trim_end_matches('}'));
    let number = |field: &str| {
        let (name, number) = field.split_once(':').expect("a field and its number");
        (name.trim().to_string(), number.trim().parse().expect("a number"))
    };
    let numbers = fields.split(',').map(number).collect();
    Ok(Found { form, numbers, workspace_bytes: candidate.workspace.bytes, launches: candidate.launches })
}

/// Every form, in the order in which forms are asked.
pub(super) const FORMS: [Form; 13] = [
    Form::Stripe,
    Form::Segment,
    Form::Relay,
    Form::Single,
    Form::SingleMasked,
    Form::Held,
    Form::Split,
    Form::ChannelsLastRows,
    Form::ChannelsLastCluster,
    Form::ChannelsLastSlabs,
    Form::ChannelsLastResident,
    Form::ChannelsLastCooperative,
    Form::ChannelsLastSplit,
];

/// What the first form chooses that accepts.
pub(super) fn first<F: Pass>(p: &ChannelProblem) -> Option<Found> {
    FORMS.into_iter().find_map(|form| asked::<F>(form, p).ok())
}

pub(super) fn forward(p: &ChannelProblem) -> Option<Found> {
    first::<ForwardFields>(p)
}

pub(super) fn backward(p: &ChannelProblem) -> Option<Found> {
    first::<BackwardFields>(p)
}

/// A problem of dense tensors on an H200, whose shape is `[batch, channels, spatial, groups]`; the gradient of x is not wanted.
pub(super) fn on_h200(order: ChannelOrder, shape: [u64; 4], element_bytes: u64) -> ChannelProblem {
    let [batch, channels, spatial, groups] = shape;
    let width = |run: u64| 1 << (16 | (run * element_bytes)).trailing_zeros();
    let is_contiguous = order == ChannelOrder::Contiguous;
    ChannelProblem {
        shape: ChannelShape { batch, channels, spatial, groups },
        order,
        is_merged: !is_contiguous,
        element_bytes,
        accumulator_bytes: element_bytes.max(4),
        vector_bytes: width(if is_contiguous { spatial } else { channels }),
        sample_vector_bytes: if is_contiguous { width(channels * spatial) } else { 0 },
        has_element_gradients: true,
        has_parameter_gradients: true,
        capability: 90,
        multiprocessors: 132,
        shared_bytes: 227 << 10,
        max_cluster: 16,
        ..ChannelProblem::default()
    }
}

/// Forms that one pass has.
const BACKWARD_ONLY: [Form; 2] = [Form::SingleMasked, Form::Held];
const FORWARD_ONLY: [Form; 1] = [Form::ChannelsLastResident];

#[test]
fn kernels_are_listed_in_the_order_of_the_rule() {
    fn names<D: Described<Fields: Pass>>(without: &[Form]) -> (Vec<&'static str>, Vec<&'static str>) {
        let of_cuda = D::kernels().iter().filter(|kernel| kernel.backend() == Backend::Cuda);
        let forms = FORMS.into_iter().filter(|form| !without.contains(form));
        (of_cuda.map(|kernel| kernel.name()).collect(), forms.map(|form| Kernel::<D>::name(&form)).collect())
    }
    let (found, expected) = names::<BatchNormDescriptor>(&BACKWARD_ONLY);
    assert_eq!(found, expected);
    assert_eq!((found[0], found[10]), ("batch_norm_stripe", "batch_norm_channels_last_split"));
    let (found, expected) = names::<BatchNormBackwardDescriptor>(&FORWARD_ONLY);
    assert_eq!(found, expected);
    assert_eq!(found[4], "batch_norm_backward_single_masked");
}

/// Every device of [`DeviceProps::examples`] that has CUDA.
fn devices() -> impl Iterator<Item = Props> {
    DeviceProps::examples().into_iter().filter_map(|props| match props {
        DeviceProps::Cuda(props) => Some(props),
        _ => None,
    })
}

#[test]
fn every_form_is_reachable_on_an_example_device() {
    let mut seen = std::collections::HashSet::new();
    for props in devices() {
        for [batch, channels, spatial, groups] in [
            [64, 2048, 49, 0],
            [64, 512, 784, 0],
            [64, 256, 3136, 0],
            [64, 64, 12544, 0],
            [256, 64, 12544, 0],
            [32, 128, 784, 0],
            [8, 64, 16384, 64],
            [2, 320, 4096, 32],
            [32, 256, 3136, 32],
            [1, 256, 1 << 20, 32],
            [1, 128, 1 << 18, 32],
            [3, 17, 300, 0],
        ] {
            for (order, element_bytes, bits) in
                [ChannelOrder::Contiguous, ChannelOrder::ChannelsLast].into_iter().flat_map(|order| {
                    [2, 4].into_iter().flat_map(move |bytes| (0..6).map(move |bits| (order, bytes, bits)))
                })
            {
                let p = ChannelProblem {
                    activation: [Activation::Identity, Activation::Relu, Activation::GeluErf][bits / 2],
                    has_extra: bits % 2 == 1,
                    has_dx: true,
                    capability: props.capability,
                    multiprocessors: props.multiprocessors.into(),
                    shared_bytes: props.shared_bytes.into(),
                    max_cluster: props.cluster.into(),
                    ..on_h200(order, [batch, channels, spatial, groups], element_bytes)
                };
                seen.extend(forward(&p).map(|found| (1, found.form as usize, found.get("team"))));
                seen.extend(backward(&p).map(|found| (2, found.form as usize, found.get("team"))));
            }
        }
    }
    let (cluster, grid) = (Some(u64::from(sys::BOPS_NORM_CLUSTER)), Some(u64::from(sys::BOPS_NORM_GRID)));
    for (pass, without) in [(1, &BACKWARD_ONLY[..]), (2, &FORWARD_ONLY)] {
        for form in FORMS.into_iter().filter(|form| !without.contains(form)) {
            let has_teams = [Form::Relay, Form::Held].contains(&form);
            let teams = if has_teams { [cluster, grid] } else { [None, None] };
            for team in teams {
                assert!(seen.contains(&(pass, form as usize, team)), "pass {pass}: {form:?} {team:?}");
            }
        }
    }
}
