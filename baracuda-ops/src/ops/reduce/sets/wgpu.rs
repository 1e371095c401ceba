//! Through wgpu each set is a dispatch, which leaves what its pieces gave in the workspace; the last one combines all of them.

use super::{Set, Valid};
use crate::backend::wgpu::{Place, Props, Work, check_bindings, check_workspace};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::ops::reduce::wgpu::{Parts, Task, row_axes};

pub(in crate::ops::reduce) fn through_wgpu(valid: &Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let sets = &valid.derived.sets;
    Reason::unless(!sets.is_empty(), || "it reduces several sets of operands, the descriptor has one")?;
    let mut work = Work::none((), props);
    let mut pieces = 0;
    for (number, set) in sets.iter().enumerate().filter(|(_, set)| set.has_elements()) {
        let named = |reason| Reason::from(format!("set {number}: {reason}"));
        let Set { valid, places } = set;
        let task = Task::new(valid, props, row_axes(&valid.derived)).map_err(named)?;
        let (mut step, own) = task.step("reduce_rows", 1, Parts::From(pieces)).map_err(named)?;
        for binding in &mut step.bindings {
            if let Some(Place::Operand(index)) = binding.place {
                binding.place = places.get(index).map(|&(index, name)| Place::OfSet(index, name));
            }
        }
        pieces += own;
        work.steps.push(step);
    }
    let task = Task::new(valid, props, row_axes(&valid.derived))?;
    let bytes = task.bytes_of_parts(1, pieces);
    check_workspace(bytes, props)?;
    work.workspace_bytes = bytes;
    for step in &mut work.steps {
        step.bindings.push(Task::parts_out(bytes));
    }
    work.steps.push(task.partials(1, pieces, bytes)?);
    check_bindings(&work.steps, props)?;
    Ok(work)
}
