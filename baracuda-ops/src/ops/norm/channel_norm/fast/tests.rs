//! The form beside the reference, in shapes that are divided in every way.

use super::tiles::Parts;
use crate::any::AnyDescriptor;
use crate::backend::Device;
use crate::dtype::DType;
use crate::memory::{Mem, MemMut, Operand, Workspace};
use crate::ops::activation::Activation;
use crate::ops::agreement::agrees;
use crate::ops::norm::{BatchNormDescriptor, GroupNormDescriptor, InstanceNormDescriptor};
use crate::ops::valid::Described as _;
use crate::options::PlanOptions;
use crate::tensor::TensorDesc;

fn both_layouts(dims: &[u64]) -> [TensorDesc; 2] {
    [TensorDesc::contiguous(DType::F32, dims).unwrap(), TensorDesc::channels_last(DType::F32, dims).unwrap()]
}

/// The forward in training and in inference, and its gradients, with everything that the op has.
fn all_of(x: TensorDesc, groups: u64) -> Vec<AnyDescriptor> {
    let mut all: Vec<AnyDescriptor> = Vec::new();
    let group = GroupNormDescriptor::new(x, groups).unwrap().weight(DType::F32).unwrap().bias(DType::F32).unwrap();
    let group = group.stats().unwrap().activation(Activation::Silu).unwrap();
    all.push(AnyDescriptor::new(group.clone()));
    all.push(AnyDescriptor::new(group.backward_all().unwrap()));
    let batch = BatchNormDescriptor::new(x).unwrap().weight(DType::F32).unwrap().bias(DType::F32).unwrap();
    let batch = batch.residual().unwrap().momentum(0.1).unwrap().stats().unwrap();
    all.push(AnyDescriptor::new(batch.clone()));
    let batch = batch.activation(Activation::Tanh).unwrap();
    all.push(AnyDescriptor::new(batch.backward_all().unwrap()));
    let inference = BatchNormDescriptor::inference(x).unwrap().weight(DType::F32).unwrap().bias(DType::F32).unwrap();
    all.push(AnyDescriptor::new(inference.clone()));
    all.push(AnyDescriptor::new(inference.backward_all().unwrap()));
    let instance = InstanceNormDescriptor::new(x).unwrap().weight(DType::F32).unwrap().momentum(0.1).unwrap();
    let instance = instance.stats().unwrap();
    all.push(AnyDescriptor::new(instance.clone()));
    all.push(AnyDescriptor::new(instance.backward_all().unwrap()));
    all
}

#[test]
fn every_division_gives_what_the_reference_does() {
    let shapes: [(&[u64], u64); 9] = [
        (&[3, 6, 5, 7], 3),
        // Parts of several channels or groups, the last of them smaller.
        (&[5, 70, 7, 7], 35),
        (&[20, 48, 13, 11], 6),
        // One part; tiles of pieces of segments.
        (&[1, 2, 70_001], 1),
        (&[2, 3, 33_000], 3),
        // Groups that are parts and have several tiles.
        (&[8, 4, 40_000], 2),
        // Rows of one channel, of more than a tile has, and of a number that does not divide it.
        (&[40, 1, 33], 1),
        (&[2, 1100, 9], 11),
        (&[17, 300, 3, 3], 10),
    ];
    for (dims, groups) in shapes {
        for x in both_layouts(dims) {
            for descriptor in all_of(x, groups) {
                agrees(&descriptor, "fast", 0.25);
            }
        }
    }
}

#[test]
fn a_large_mean_costs_nothing() {
    for x in both_layouts(&[4, 16, 60, 60]) {
        for descriptor in all_of(x, 4) {
            agrees(&descriptor, "fast", 10_000.0);
        }
    }
}

#[test]
fn samples_of_one_position_are_rows() {
    let x = TensorDesc::contiguous(DType::F32, &[300, 24]).unwrap();
    let batch = BatchNormDescriptor::new(x).unwrap().weight(DType::F32).unwrap().bias(DType::F32).unwrap();
    let batch = batch.stats().unwrap();
    agrees(&AnyDescriptor::new(batch.clone()), "fast", 1.0);
    agrees(&AnyDescriptor::new(batch.backward_all().unwrap()), "fast", 1.0);
    let padded = TensorDesc::strided(DType::F32, &[300, 24], &[32, 1]).unwrap();
    agrees(&AnyDescriptor::new(BatchNormDescriptor::new(padded).unwrap()), "fast", 1.0);
}

#[test]
fn a_constant_channel_is_exactly_its_bias() {
    let device = Device::cpu();
    for x in both_layouts(&[3, 5, 77]) {
        let plan = AnyDescriptor::new(GroupNormDescriptor::new(x, 5).unwrap()).plan(&device, &PlanOptions::default());
        let plan = plan.unwrap();
        assert_eq!(plan.info().kernel, "group_norm_fast");
        let (input, mut output) = (vec![0.1f32; 3 * 5 * 77], vec![f32::NAN; 3 * 5 * 77]);
        let mut operands: [Operand<'_>; 2] = [Mem::host(&input).into(), MemMut::host(&mut output).into()];
        plan.run(&mut device.queue(), &mut operands, Workspace::none()).unwrap();
        assert!(output.iter().all(|y| *y == 0.0));
    }
}

#[test]
fn groups_that_the_cache_holds_are_parts() {
    let is_whole = |dims: &[u64], groups: Option<u64>| {
        let x = TensorDesc::contiguous(DType::F32, dims).unwrap();
        let geometry = match groups {
            Some(groups) => GroupNormDescriptor::new(x, groups).unwrap().valid().geometry().unwrap(),
            None => BatchNormDescriptor::new(x).unwrap().valid().geometry().unwrap(),
        };
        Parts::new(&geometry).is_one()
    };
    assert!(!is_whole(&[32, 64, 56, 56], Some(32)));
    assert!(!is_whole(&[32, 64, 56, 56], None));
    assert!(is_whole(&[64, 64, 112, 112], None));
    assert!(is_whole(&[1, 4, 56, 56], Some(2)));
}
