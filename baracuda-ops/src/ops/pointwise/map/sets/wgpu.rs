//! Through wgpu each set is a dispatch: a kernel of one set binds as much as it needs, and devices bind few operands.

use super::{Set, Valid};
use crate::backend::wgpu::{Place, Props, Work};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::ops::pointwise::map::wgpu;

pub(in crate::ops::pointwise::map) fn through_wgpu(valid: &Valid, props: &Props, ask: Ask) -> Result<Work<()>, Reason> {
    let sets = &valid.derived.sets;
    Reason::unless(!sets.is_empty(), || "it runs several sets of operands, the descriptor has one")?;
    let mut work = Work::none((), props);
    for (number, Set { valid, places }) in sets.iter().enumerate().filter(|(_, set)| set.has_elements()) {
        let of_set = wgpu::dense(valid, props, ask).or_else(|_| wgpu::strided(valid, props, ask));
        let mut of_set = of_set.map_err(|reason| Reason::from(format!("set {number}: {reason}")))?;
        let placed = |index: usize| valid.slots.iter().zip(places).find(|(slot, _)| slot.index == index);
        for binding in of_set.steps.iter_mut().flat_map(|step| &mut step.bindings) {
            if let Some(Place::Operand(index)) = binding.place
                && let Some((_, &(index, name))) = placed(index)
            {
                binding.place = Some(Place::OfSet(index, name));
            }
        }
        work.steps.append(&mut of_set.steps);
    }
    Ok(work)
}
