//! What the WGSL kernels of matrices share: their workgroups, and where matrices begin.

use crate::backend::wgpu::{Binding, Place, Props};
use crate::error::Reason;
use crate::narrow::{stride, word};
use crate::ops::walk::Walk;

/// Threads of a workgroup: the most that WebGPU promises.
pub(super) const WORKGROUP: u32 = 256;

/// # Errors
/// The device has smaller workgroups.
pub(super) fn check_workgroup(props: &Props) -> Result<(), Reason> {
    let most = props.max_threads;
    Reason::unless(most >= WORKGROUP, || {
        format!("its workgroups have {WORKGROUP} threads, those of this device at most {most}")
    })
}

/// The extents of a batch, innermost first, and the strides of up to three operands.
pub(super) fn axes(walk: &Walk) -> Vec<[u32; 4]> {
    let own = |operand: usize, axis: usize| walk.strides.get(operand).map_or(0, |strides| stride(strides[axis]));
    let axis = |(axis, &extent): (usize, &u64)| [word(extent), own(0, axis), own(1, axis), own(2, axis)];
    let axes: Vec<[u32; 4]> = walk.dims.iter().enumerate().rev().map(axis).collect();
    if axes.is_empty() { vec![[1, 0, 0, 0]] } else { axes }
}

/// An operand whose elements are taken one by one.
pub(super) fn elements(name: &'static str, row: usize, is_output: bool) -> Binding {
    let accessor = if is_output { "elements_f32_out" } else { "elements_f32_in" };
    Binding { name, place: Some(Place::Operand(row)), accessors: [accessor; 2] }
}
