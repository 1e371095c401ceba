//! Forms of the CPU beside their references, for tests of how they divide the work.

use crate::any::AnyDescriptor;
use crate::backend::Device;
use crate::memory::{Mem, MemMut, Operand, Workspace};
use crate::narrow::{single, to_usize};
use crate::options::PlanOptions;
use crate::slots::Access;

/// What a kernel makes of operands that depend on their names and `shift` alone, in f32; of x the mean is `shift`.
fn outputs(descriptor: &AnyDescriptor, form: &str, shift: f32) -> Vec<(&'static str, Vec<f32>)> {
    let device = Device::cpu();
    let options = PlanOptions::default().kernel(format!("{}_{form}", descriptor.name()));
    let plan = descriptor.clone().plan(&device, &options).unwrap();
    let value = |name: &str, at: usize| {
        let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte));
        let bits = (at as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let uniform = single(bits as f64 / f64::from(1 << 24)) - 0.5;
        match name {
            "x" | "mean" | "running_mean" => shift + uniform,
            "rstd" | "running_var" => 3.0 + uniform,
            _ => uniform,
        }
    };
    let slots = plan.slots();
    let mut memory: Vec<Vec<f32>> =
        slots.iter().map(|slot| (0..to_usize(slot.span_bytes / 4)).map(|at| value(slot.name, at)).collect()).collect();
    let mut operands: Vec<Operand<'_>> = Vec::new();
    for (slot, memory) in slots.iter().zip(&mut memory) {
        operands.push(match slot.access {
            Access::In => Mem::host(memory.as_slice()).into(),
            _ => MemMut::host(memory.as_mut_slice()).into(),
        });
    }
    plan.run(&mut device.queue(), &mut operands, Workspace::none()).unwrap();
    drop(operands);
    let written = slots.iter().zip(memory).filter(|(slot, _)| slot.access != Access::In);
    written.map(|(slot, memory)| (slot.name, memory)).collect()
}

/// Elements differ from those of the reference by no more than a few roundings to f32; sums over positions, whose terms are at most about 1, by as many
/// of each term, which add up like steps of a walk.
pub(super) fn agrees(descriptor: &AnyDescriptor, form: &str, shift: f32) {
    let (expected, got) = (outputs(descriptor, "reference", shift), outputs(descriptor, form, shift));
    let elements = descriptor.slots()[0].desc.elements() as f64;
    for ((name, expected), (_, got)) in expected.iter().zip(&got) {
        let terms = if ["dweight", "dbias"].contains(name) { elements / expected.len() as f64 } else { 0.0 };
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
            let error = (f64::from(*expected) - f64::from(*got)).abs();
            let allowed = 1e-6 * f64::from(largest) + f64::from(f32::EPSILON) * terms.sqrt();
            assert!(error <= allowed, "{name}[{at}] is {got}, not {expected}: {}", descriptor.line());
        }
    }
}
