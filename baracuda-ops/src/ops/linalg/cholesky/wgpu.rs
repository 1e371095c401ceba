//! The WGSL kernel: its text and its one dispatch, a workgroup for each matrix.

use super::{A, CholeskyDescriptor, FACTOR, Valid, forward};
use crate::backend::wgpu::{Binder, Binding, Place, Props, ShaderType, StepBuilder, Variants, Work};
use crate::backend::wgpu::{check_bindings, check_reach, groups};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::{stride, word};
use crate::ops::linalg::wgpu::{WORKGROUP, axes, check_workgroup};
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let task = &valid.derived;
    ShaderType::of(valid.fields.a.dtype())?;
    check_workgroup(props)?;
    check_reach(valid.slots.iter().filter(|slot| !slot.desc.is_empty()), &[], props)?;
    let mut work = Work::none((), props);
    if !task.has_work(valid.fields.info) {
        return Ok(work);
    }
    let walk = Walk::new(&task.batches);
    let count = walk.elements();
    let grid = groups(count, props)?;
    let [of_factor, of_a] = [FACTOR, A].map(|operand| task.steps[operand].map(stride));
    // The bits of a NaN, which no compiler knows.
    let mut words =
        vec![[word(task.n), word(count), grid[0], f32::NAN.to_bits()], [of_a[0], of_a[1], of_factor[0], of_factor[1]]];
    let axes = axes(&walk);
    let of_axes = word(axes.len() as u64);
    words.extend(axes);
    let binder = Binder { slots: &valid.slots };
    let put = if valid.fields.info { "info_scatter(at, 1u, 1u, vec4<u32>(value, 0u, 0u, 0u));" } else { "return;" };
    let mut bindings = vec![
        binder.operand(forward::A, ["elements_f32_in"; 2], "absent_elements"),
        binder.operand(forward::FACTOR, ["elements_f32_out"; 2], "absent_elements"),
    ];
    if valid.fields.info {
        let place = Some(Place::Operand(forward::INFO));
        bindings.push(Binding { name: "info", place, accessors: ["scattered_f32_out"; 2] });
    }
    work.steps.push(StepBuilder {
        entry: "cholesky",
        files: vec!["linalg/cholesky"],
        generated: format!("fn put_info(at: u32, value: u32) {{\n    {put}\n}}\n"),
        constants: vec![("WORKGROUP", WORKGROUP), ("ELEMENTS", 4), ("AXES", of_axes)],
        bindings,
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
        for dims in [&[5, 5][..], &[2, 3, 2, 5, 5], &[2, 0, 0]] {
            let cholesky = CholeskyDescriptor::new(TensorDesc::contiguous(DType::F32, dims)?)?;
            for cholesky in [cholesky.clone(), cholesky.with_info()?] {
                variants.add_work("cholesky of f32", work(&cholesky.0, props), props);
            }
        }
    }
    Ok(())
}
