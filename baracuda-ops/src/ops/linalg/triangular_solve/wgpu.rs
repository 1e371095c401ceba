//! The WGSL kernel: its text and its one dispatch, a workgroup for each panel of systems.

use super::{A, B, TriangularSolveDescriptor, Valid, X, forward};
use crate::backend::wgpu::{Props, ShaderType, StepBuilder, Variants, Work, check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::{single, stride, word};
use crate::ops::linalg::wgpu::{WORKGROUP, axes, check_workgroup, elements};
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Systems of a workgroup, as in the kernel.
const TILE: u64 = 32;

pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let solve = &valid.derived;
    ShaderType::of(valid.fields.a.dtype())?;
    check_workgroup(props)?;
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let mut work = Work::none((), props);
    if !solve.has_work() {
        return Ok(work);
    }
    let walk = Walk::new(&solve.batches);
    let panels = solve.columns.div_ceil(TILE);
    let count = walk.elements().saturating_mul(panels);
    let grid = groups(count, props)?;
    let steps = solve.steps.map(|steps| steps.map(stride));
    let alpha = single(valid.fields.alpha.get()).to_bits();
    let mut words = vec![
        [word(solve.n), word(solve.columns), word(panels), word(count)],
        [grid[0], alpha, steps[A][0], steps[A][1]],
        [steps[B][0], steps[B][1], steps[X][0], steps[X][1]],
    ];
    let axes = axes(&walk);
    let of_axes = word(axes.len() as u64);
    words.extend(axes);
    work.steps.push(StepBuilder {
        entry: "triangular_solve",
        files: vec!["linalg/triangular_solve"],
        constants: vec![("WORKGROUP", WORKGROUP), ("AXES", of_axes)],
        flags: vec![("IS_REVERSED", solve.is_reversed), ("IS_UNIT", valid.fields.unit_diagonal)],
        bindings: vec![
            elements("a", forward::A, false),
            elements("b", forward::B, false),
            elements("x", forward::X, true),
        ],
        ignores_layouts: true,
        params: bytemuck::cast_slice(&words).to_vec(),
        grid,
        ..StepBuilder::default()
    });
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// The texts of the kernel, for the tests that validate them.
///
/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dims in [&[5, 5][..], &[2, 3, 2, 5, 5]] {
            let a = TensorDesc::contiguous(DType::F32, dims)?;
            let lower = TriangularSolveDescriptor::new(a, a)?;
            for solve in [lower.clone(), lower.upper()?.unit_diagonal()?] {
                variants.add_work("triangular_solve of f32", work(&solve.0, props), props);
            }
        }
    }
    Ok(())
}
