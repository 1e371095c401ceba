//! Operands as the GPU kernels walk them: one run of elements, which lie in the same order in every operand.

use crate::error::Reason;
use crate::slots::Slots;

/// The run of elements that each operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DenseRun {
    pub(super) elements: u64,
    /// The alignment in bytes that every operand promises.
    pub(super) align_bytes: u64,
}

impl DenseRun {
    /// # Errors
    /// The operand that has gaps, repeats elements, or lies otherwise than the first one.
    pub(super) fn of(slots: &Slots) -> Result<Self, Reason> {
        let mut align_bytes = u64::MAX;
        let first = &slots[0];
        for slot in slots.iter().filter(|_| !first.desc.is_empty()) {
            let desc = &slot.desc;
            let dense_bytes = desc.elements() * desc.dtype().size_bytes();
            Reason::unless(slot.span_bytes == dense_bytes && desc.is_injective(), || {
                let (name, span) = (slot.name, slot.span_bytes);
                format!(
                    "{name} is not dense: {dense_bytes} bytes of elements span {span} bytes; copy it to a dense tensor"
                )
            })?;
            Reason::unless(desc.strides() == first.desc.strides(), || {
                let [a, b] = [first, slot].map(|slot| format!("{} has strides {:?}", slot.name, slot.desc.strides()));
                format!("{a}, {b}: they must be equal; copy one to the layout of the other")
            })?;
            align_bytes = align_bytes.min(desc.align_bytes());
        }
        Ok(Self { elements: first.desc.elements(), align_bytes })
    }
}
