//! Operands laid out in memory, with everything around them watched.
//!
//! Outputs and workspace start as NaN (bytes of 0xFF), so do the gaps and surroundings of inputs, which a wrong read then shows. Around
//! outputs and the workspace lie canaries. After a run, every byte that is no element of an output and not workspace must be as before.

use anyhow::{Result, bail};
use baracuda_ops::{Access, Slot, WorkspaceReq};

use crate::values::{Tensors, fill, visit};

/// Bytes of NaN in every floating-point type.
pub const POISON: u8 = 0xFF;
/// Bytes that nobody may touch.
pub const CANARY: u8 = 0xA5;
/// Bytes watched on each side of an operand; a multiple of every alignment promise but the largest.
const GUARD: u64 = 512;

/// How operands are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each in a buffer of its own, `shift` multiples of its alignment, or of 4 bytes, behind where it would lie.
    Apart {
        /// The multiple.
        shift: u64,
    },
    /// Each in a buffer of its own, operand `i` by `by[i % 4]` of these steps behind where it would lie.
    Shifted {
        /// What the address of an operand may be a multiple of.
        step: Step,
        /// Numbers of steps.
        by: [u64; 4],
    },
    /// All in one buffer, each at an odd multiple of `align` or, if 0, of its own alignment promise.
    Pool {
        /// The alignment in bytes.
        align: u64,
    },
}

/// The distance of the addresses that an operand may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its alignment promise: on CUDA and the CPU.
    Promise,
    /// Four bytes: through wgpu.
    Word,
}

impl Step {
    fn bytes(self, slot: &Slot) -> u64 {
        match self {
            Self::Promise => slot.desc.align_bytes(),
            Self::Word => 4,
        }
    }
}

/// Which operands lie where their partners do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// None.
    No,
    /// All inputs that may, passed as the identical range.
    SameRange,
    /// All inputs that may, passed as [`Mem::in_place`](baracuda_ops::Mem::in_place).
    Said,
}

/// A range of one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Index of the buffer.
    pub buffer: usize,
    /// Offset in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Operands and workspace of one run, as bytes.
#[derive(Clone, Debug)]
pub struct Arena {
    /// The memory.
    pub buffers: Vec<Vec<u8>>,
    /// Where each slot lies, in slot order; `None` where it is said to be in place.
    pub operands: Vec<Option<Place>>,
    /// Where the workspace lies, if there is one.
    pub workspace: Option<Place>,
    slots: Vec<Slot>,
    before: Vec<Vec<u8>>,
}

impl Arena {
    /// Lays out the operands of `slots` and the workspace, with inputs filled in.
    pub fn new(
        slots: &[Slot],
        workspace: WorkspaceReq,
        inputs: &Tensors,
        layout: Layout,
        in_place: InPlace,
        workspace_byte: u8,
    ) -> Self {
        let mut arena = Self {
            buffers: Vec::new(),
            operands: vec![None; slots.len()],
            workspace: None,
            slots: slots.to_vec(),
            before: Vec::new(),
        };
        // Partners: the input that gives up its own place for that of the output.
        let shares = |slot: &Slot| match (in_place, slot.access, slot.in_place) {
            (InPlace::No, ..) | (_, Access::Out | Access::InOut, _) => None,
            (_, Access::In, partner) => partner,
        };
        let pool_align = |align: u64| match layout {
            Layout::Pool { align: wanted } if wanted > 0 => wanted,
            _ => align,
        };
        for (i, slot) in slots.iter().enumerate().filter(|(_, s)| shares(s).is_none()) {
            let around = if slot.access == Access::In { POISON } else { CANARY };
            let align = pool_align(slot.desc.align_bytes());
            let shift = match layout {
                Layout::Apart { shift } => shift * align.max(4),
                Layout::Shifted { step, by } => by[i % by.len()] * step.bytes(slot),
                Layout::Pool { .. } => 0,
            };
            arena.operands[i] = Some(arena.place(slot.span_bytes, align, layout, shift, around));
        }
        if workspace.bytes > 0 {
            let shift = match layout {
                Layout::Apart { shift } => shift,
                Layout::Shifted { by, .. } => by[0],
                Layout::Pool { .. } => 0,
            };
            let shift = shift * workspace.align.max(4);
            arena.workspace = Some(arena.place(workspace.bytes, workspace.align, layout, shift, CANARY));
        }
        for buffer in &mut arena.buffers {
            buffer.resize(buffer.len().next_multiple_of(16), CANARY);
        }
        for (i, slot) in slots.iter().enumerate() {
            if let Some(partner) = shares(slot) {
                let at = slots.iter().position(|s| s.position == partner).expect("a partner is a slot");
                if in_place == InPlace::SameRange {
                    arena.operands[i] = arena.operands[at];
                }
            } else if slot.access != Access::In {
                // Gaps between rows keep the canary.
                let place = arena.operands[i].expect("outputs have a place");
                fill(&slot.desc, POISON, arena.bytes_mut(place));
            }
        }
        for (i, slot) in slots.iter().enumerate() {
            let Some(input) = inputs.get(slot.name) else { continue };
            let place = arena.operands[i].or_else(|| {
                let at = slots.iter().position(|s| Some(s.position) == shares(slot))?;
                arena.operands[at]
            });
            input.scatter(&slot.desc, arena.bytes_mut(place.expect("inputs have a place")));
        }
        if let Some(place) = arena.workspace {
            arena.bytes_mut(place).fill(workspace_byte);
        }
        arena.before = arena.buffers.clone();
        arena
    }

    fn place(&mut self, bytes: u64, align: u64, layout: Layout, shift: u64, around: u8) -> Place {
        match layout {
            Layout::Apart { .. } | Layout::Shifted { .. } => {
                let offset = GUARD.next_multiple_of(align) + shift;
                self.buffers.push(vec![around; (offset + bytes + GUARD) as usize]);
                Place { buffer: self.buffers.len() - 1, offset, bytes }
            }
            Layout::Pool { .. } => {
                if self.buffers.is_empty() {
                    self.buffers.push(Vec::new());
                }
                let pool = &mut self.buffers[0];
                let odd = (pool.len() as u64 + 32).next_multiple_of(2 * align) + align;
                let end = odd + bytes;
                pool.resize(end as usize, around);
                // What follows must not be the next operand's own.
                pool.resize((end + 32) as usize, around);
                Place { buffer: 0, offset: odd, bytes }
            }
        }
    }

    /// The bytes of a range.
    pub fn bytes(&self, place: Place) -> &[u8] {
        &self.buffers[place.buffer][place.offset as usize..][..place.bytes as usize]
    }

    /// The bytes of a range.
    pub fn bytes_mut(&mut self, place: Place) -> &mut [u8] {
        &mut self.buffers[place.buffer][place.offset as usize..][..place.bytes as usize]
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// What lies in the outputs.
    pub fn outputs(&self) -> Tensors {
        let mut outputs = Tensors::default();
        for (slot, place) in self.slots.iter().zip(&self.operands).filter(|(s, _)| s.access != Access::In) {
            let place = place.expect("outputs have a place");
            outputs.push_bytes(slot.name, &slot.desc, self.bytes(place));
        }
        outputs
    }

    /// The bytes of all outputs' elements, for comparisons of bits.
    pub fn output_bits(&self) -> Vec<(&'static str, Vec<u64>)> {
        let outputs = self.outputs();
        let bits = |slot: &Slot| outputs.values(slot.name).unwrap_or_default().iter().map(|v| v.to_bits()).collect();
        self.slots.iter().filter(|s| s.access != Access::In).map(|s| (s.name, bits(s))).collect()
    }

    /// Checks that nothing changed but elements of outputs and the workspace.
    ///
    /// # Errors
    /// The first byte that did, and beside which operand it is.
    pub fn check_surroundings(&self) -> Result<()> {
        let mut allowed = self.before.clone();
        for (slot, place) in self.slots.iter().zip(&self.operands).filter(|(s, _)| s.access != Access::In) {
            let place = place.expect("outputs have a place");
            let (from, to) = (self.bytes(place), &mut allowed[place.buffer][place.offset as usize..]);
            visit(&slot.desc, |range| to[range.clone()].copy_from_slice(&from[range]));
        }
        if let Some(place) = self.workspace {
            allowed[place.buffer][place.offset as usize..][..place.bytes as usize].copy_from_slice(self.bytes(place));
        }
        for (i, (now, allowed)) in self.buffers.iter().zip(&allowed).enumerate() {
            if now == allowed {
                continue;
            }
            let Some(at) = now.iter().zip(allowed).position(|(a, b)| a != b) else { continue };
            bail!("a write outside the outputs: {}", self.describe(i, at as u64));
        }
        Ok(())
    }

    /// Where a byte lies, in terms of the nearest operand.
    fn describe(&self, buffer: usize, at: u64) -> String {
        let slots = self.slots.iter().map(|s| s.name).zip(self.operands.iter().flatten());
        let places = slots.chain(self.workspace.iter().map(|p| ("workspace", p))).filter(|(_, p)| p.buffer == buffer);
        let distance = |p: &Place| {
            if at < p.offset { p.offset - at } else { (at + 1).saturating_sub(p.offset + p.bytes) }
        };
        let Some((name, place)) = places.min_by_key(|(_, p)| distance(p)) else { return format!("byte {at}") };
        match at {
            at if at < place.offset => format!("{} bytes before {name}", place.offset - at),
            at if at >= place.offset + place.bytes => {
                format!("{} bytes past {name}", at - place.offset - place.bytes + 1)
            }
            at => format!("byte {} of {name}, which is no element of an output", at - place.offset),
        }
    }
}
