//! The one check of a run's operands, shared by every op and backend, before anything is launched.
//!
//! After it, every declared operand is present, has the declared element type, spans its descriptor inside the memory passed for it,
//! is aligned as [`Alignment`] says, is on the plan's device, and shares no element with another operand unless both are only read or they are in-place
//! partners at the identical range. Kernels check nothing again.

use crate::backend::{Backend, Buffer, Device, Located, Location, Memory};
use crate::dtype::DType;
use crate::error::{Error, HOST, Result, Start};
use crate::memory::{Operands, Place, View, Workspace};
use crate::options::WorkspaceReq;
use crate::overlap;
use crate::slots::{Access, MAX_SLOTS, Names, Slot, WORKSPACE};
use crate::tensor::TensorDesc;

mod sets;

pub(crate) use sets::{Room, Sets};

/// What a plan demands of its operands.
pub(crate) struct Contract {
    pub(crate) names: Names,
    pub(crate) device: Device,
    pub(crate) workspace: WorkspaceReq,
    /// Of the operands that are found by their index, in the order of the slots.
    pub(crate) expected: Box<[Expected]>,
    /// How these lie.
    descs: Box<[TensorDesc]>,
    /// A bit for the index of each slot.
    declared: u32,
    /// The further operands.
    pub(crate) sets: Sets,
}

impl Contract {
    pub(crate) fn new(names: Names, slots: &[Slot], device: &Device, workspace: WorkspaceReq) -> Self {
        let (sets, slots) = (Sets::new(slots, device), Sets::first(slots));
        Self {
            names,
            device: device.clone(),
            workspace,
            expected: (0..slots.len()).map(|i| Expected::new(&slots, i, device)).collect(),
            descs: slots.iter().map(|slot| slot.desc).collect(),
            declared: indices(slots.iter()),
            sets,
        }
    }

    /// The memory passed as workspace, if the plan needs any.
    pub(crate) fn scratch<'w, 'a>(&self, workspace: &'w Workspace<'a>) -> Option<&'w View<'a>> {
        workspace.0.as_ref().filter(|_| self.workspace.bytes != 0)
    }
}

/// A bit for the index of each slot.
fn indices<'s>(slots: impl Iterator<Item = &'s Slot>) -> u32 {
    slots.fold(0, |bits, slot| bits | 1 << slot.index)
}

/// What the start of an operand must be a multiple of: powers of two, in bytes.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    /// Of the offset in an owned buffer: what the descriptor promises, on every backend alike, or what the backend needs if that is more. Owned
    /// memory begins at multiples of all that a kernel relies on, so that its address says nothing further.
    owned: u64,
    /// Of the address, or of the offset in a wgpu buffer of the caller's: what the backend needs. On CUDA that is the promise, from which kernels
    /// take the width of their accesses.
    borrowed: u64,
}

impl Alignment {
    fn new(desc: &TensorDesc, backend: Backend) -> Self {
        let borrowed = match backend {
            Backend::Cpu => desc.dtype().size_bytes(),
            Backend::Cuda => desc.align_bytes(),
            Backend::Wgpu => WORD_BYTES,
        };
        Self { owned: desc.align_bytes().max(borrowed), borrowed }
    }
}

/// What shaders address.
const WORD_BYTES: u64 = 4;

/// What a run expects of one operand: a slot's facts, packed closely since every run reads them all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    name: &'static str,
    span_bytes: u64,
    align: Alignment,
    /// A bit for the index of each earlier slot whose operand it must not overlap. Two operands that are only read may overlap.
    rivals: u32,
    /// A bit for the index of each earlier slot at whose range the operand may lie.
    partners: u32,
    /// A bit for the index of each earlier slot that would be one if both promised the same alignment.
    otherwise_aligned: u32,
    /// Whether a partner in place promises another alignment.
    has_otherwise_aligned: bool,
    index: u8,
    /// The index of its partner in place.
    in_place: Option<u8>,
    is_written: bool,
    dtype: DType,
}

impl Expected {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "positions are below MAX_SLOTS, and bits of them below 2^MAX_SLOTS"
    )]
    fn new(slots: &[Slot], at: usize, device: &Device) -> Self {
        const { assert!(MAX_SLOTS <= u32::BITS as usize) };
        let (slot, earlier) = (&slots[at], &slots[..at]);
        let partner = slots.iter().find(|other| slot.in_place == Some(other.position));
        let is_written = |slot: &Slot| slot.access != Access::In;
        Self {
            name: slot.name,
            span_bytes: slot.span_bytes,
            align: Alignment::new(&slot.desc, device.backend()),
            rivals: indices(earlier.iter().filter(|other| is_written(slot) || is_written(other))),
            partners: indices(earlier.iter().filter(|other| slot.shares_place_with(other))),
            otherwise_aligned: indices(earlier.iter().filter(|other| slot.would_share_place_with(other))),
            has_otherwise_aligned: slots.iter().any(|other| slot.would_share_place_with(other)),
            index: slot.index as u8,
            in_place: partner.map(|partner| partner.index as u8),
            is_written: is_written(slot),
            dtype: slot.desc.dtype(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The operand's index.
    pub(crate) fn at(&self) -> usize {
        usize::from(self.index)
    }
}

impl Location<'_> {
    /// Whether the addresses meet; absent and empty operands have none. Both comparisons are evaluated without a branch: operands come in no
    /// particular order of address, so a branch here would be unpredictable.
    fn meets(&self, other: &Self) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// Whether equal addresses are those of the same byte.
    #[cfg_attr(not(feature = "wgpu"), expect(unused_variables, reason = "there is one space of addresses"))]
    fn shares_space(&self, other: &Self) -> bool {
        #[cfg(feature = "wgpu")]
        return self.buffer == other.buffer;
        #[cfg(not(feature = "wgpu"))]
        true
    }
}

/// Checks operands and workspace against a plan's contract and writes where they lie to `located`, which holds nothing yet, and, of further ones, to
/// `room`.
pub(crate) fn check<'a>(
    plan: &Contract,
    operands: &Operands<'a>,
    workspace: &Workspace<'a>,
    (located, room): (&mut Located<'a>, &'a mut Room<'_>),
) -> Result<()> {
    let op = plan.names.op;
    let mut in_place = 0u32;
    for expected in &plan.expected {
        let at = expected.at();
        let Some(view) = &operands.views[at] else {
            return Err(Error::MissingOperand { op, operand: expected.name });
        };
        if let Place::Partner = view.place {
            in_place |= 1 << at;
            continue;
        }
        place(plan, expected, view, &mut located.operands[at])?;
    }
    let unexpected = operands.present & !plan.declared;
    if unexpected != 0 {
        let row = Some(unexpected.trailing_zeros() as usize).filter(|&at| at < MAX_SLOTS);
        let operand = row.and_then(|at| plan.names.table.get(at)).map_or("beyond the last", |row| row.name);
        return Err(Error::UnexpectedOperand { op, operand });
    }
    if in_place != 0 {
        for expected in plan.expected.iter().filter(|expected| in_place & (1 << expected.index) != 0) {
            located.operands[expected.at()] = located.operands[in_place_partner(plan, expected, in_place)?];
        }
    }
    if plan.workspace.bytes != 0 {
        place_workspace(plan, workspace, &mut located.workspace)?;
    }
    if !plan.sets.expected.is_empty() || !operands.further.is_empty() {
        return room.fill(plan, operands, located);
    }
    disjoint(plan, located)
}

/// Writes where one operand lies, after every check that concerns it alone. It takes a reference: returned by value, the location would be stored in
/// 4-byte and loaded in 8-byte pieces, which is a store-forwarding stall.
#[inline(always)]
fn place<'a>(plan: &Contract, expected: &Expected, view: &View<'a>, location: &mut Location<'a>) -> Result<()> {
    let (op, operand) = (plan.names.op, expected.name);
    if expected.is_written && !view.is_writable {
        return Err(Error::ReadOnly { op, operand });
    }
    match view.dtype {
        Some(got) if got != expected.dtype => Err(Error::WrongDType { op, operand, expected: expected.dtype, got }),
        _ => resolve(plan, operand, view, expected.span_bytes, expected.align, location),
    }
}

fn place_workspace<'a>(plan: &Contract, workspace: &Workspace<'a>, location: &mut Location<'a>) -> Result<()> {
    let (op, need_bytes) = (plan.names.op, plan.workspace.bytes);
    let Some(view) = &workspace.0 else {
        let (got_bytes, offset, buffer_bytes) = (0, 0, None);
        return Err(Error::TooSmall { op, operand: WORKSPACE, need_bytes, got_bytes, offset, buffer_bytes });
    };
    if let Place::Partner = view.place {
        return Err(Error::NotInPlace { op, operand: WORKSPACE, detail: "it has no partner" });
    }
    let align = Alignment { owned: plan.workspace.align, borrowed: plan.workspace.align };
    resolve(plan, WORKSPACE, view, need_bytes, align, location)
}

/// Writes the range of `need_bytes` bytes at the start of a view, if it lies on the plan's device, inside its memory, and is aligned. An empty
/// range lies nowhere.
#[inline(always)]
fn resolve<'a>(
    plan: &Contract,
    operand: &'static str,
    view: &View<'a>,
    need_bytes: u64,
    align: Alignment,
    location: &mut Location<'a>,
) -> Result<()> {
    let at = |start| Location { start, ..Location::default() };
    #[cfg(feature = "wgpu")]
    let within = |buffer: &'a ::wgpu::Buffer, start| Location { buffer: Some(buffer), start, ..Location::default() };
    let (here, got_bytes, unaligned) = match view.place {
        Place::Host(host) if plan.device.backend() == Backend::Cpu => {
            let address = host.address();
            (at(address), view.bytes, address & (align.borrowed - 1))
        }
        Place::Buffer { buffer, offset } if buffer.device == plan.device => {
            let here = match &buffer.memory {
                Memory::Cpu(memory) => at(memory.address().saturating_add(offset)),
                #[cfg(feature = "cuda")]
                Memory::Cuda(memory) => at(memory.address().saturating_add(offset)),
                #[cfg(feature = "wgpu")]
                Memory::Wgpu(memory) => within(memory.buffer(), offset),
            };
            (here, view.bytes.min(buffer.bytes.saturating_sub(offset)), offset & (align.owned - 1))
        }
        #[cfg(feature = "cuda")]
        Place::Cuda(address) if plan.device.backend() == Backend::Cuda => {
            (at(address), view.bytes, address & (align.borrowed - 1))
        }
        #[cfg(feature = "wgpu")]
        Place::Wgpu { buffer, offset } if plan.device.backend() == Backend::Wgpu => {
            let got_bytes = view.bytes.min(buffer.size().saturating_sub(offset));
            (within(buffer, offset), got_bytes, offset & (align.borrowed - 1))
        }
        _ => return Err(elsewhere(plan, operand, view)),
    };
    if got_bytes < need_bytes {
        return Err(too_small(plan, operand, view, [need_bytes, got_bytes]));
    }
    if need_bytes == 0 {
        return Ok(());
    }
    if unaligned != 0 {
        return Err(misaligned(plan, operand, view, align));
    }
    let Some(end) = here.start.checked_add(need_bytes) else {
        return Err(too_small(plan, operand, view, [need_bytes, u64::MAX - here.start]));
    };
    #[cfg(feature = "wgpu")]
    if let Some(buffer) = here.buffer {
        // Shaders address words of 4 bytes: the buffer must hold the last one whole.
        let (need_bytes, got_bytes) = (need_bytes.next_multiple_of(4), buffer.size() - here.start);
        if got_bytes < need_bytes {
            return Err(too_small(plan, operand, view, [need_bytes, got_bytes]));
        }
    }
    *location = Location { end, ..here };
    Ok(())
}

/// Why an operand is not in place whose partner would be the same but for its alignment.
const OTHERWISE_ALIGNED: &str = "its partner promises another alignment; give both layouts the same `align`";

/// The index of the partner whose memory an in-place operand shares; `in_place` marks the operands that are.
#[cold]
fn in_place_partner(plan: &Contract, expected: &Expected, in_place: u32) -> Result<usize> {
    let refuse = |detail| Err(Error::NotInPlace { op: plan.names.op, operand: expected.name, detail });
    let Some(partner) = expected.in_place else {
        if expected.has_otherwise_aligned {
            return refuse(OTHERWISE_ALIGNED);
        }
        return refuse("the descriptor names no partner with the same layout for it");
    };
    if expected.is_written {
        return refuse("an output is never the one left out; pass its memory and let the input be in place");
    }
    if in_place & (1 << partner) != 0 {
        return refuse("its partner is in place too");
    }
    Ok(usize::from(partner))
}

/// Refuses overlaps in which something is written, but for in-place partners at the identical range, and for operands between whose elements others lie.
fn disjoint(plan: &Contract, located: &Located<'_>) -> Result<()> {
    for b in plan.expected.iter().filter(|b| b.rivals != 0) {
        let range = located.operands[b.at()];
        for (at, other) in located.operands[..b.at()].iter().enumerate() {
            if range.meets(other) && b.rivals & (1 << at) != 0 && range.shares_space(other) {
                meeting(plan, b, at, [&range, other])?;
            }
        }
    }
    if plan.workspace.bytes != 0 {
        let range = located.workspace;
        for a in &plan.expected {
            let other = &located.operands[a.at()];
            if range.meets(other) && range.shares_space(other) {
                return Err(Error::Overlap { op: plan.names.op, a: a.name, b: WORKSPACE, detail: "" });
            }
        }
    }
    Ok(())
}

/// Of two operands whose ranges meet and of which one is written, refuses those that are no partners in place and share elements.
#[cold]
fn meeting(plan: &Contract, b: &Expected, at: usize, [range, other]: [&Location<'_>; 2]) -> Result<()> {
    let is_partner = b.partners & (1 << at) != 0;
    if is_partner && (range.start, range.end) == (other.start, other.end) {
        return Ok(());
    }
    let of = |index: usize| plan.expected.iter().position(|expected| expected.at() == index);
    let are_apart = match (of(b.at()), of(at)) {
        (Some(b), Some(a)) => overlap::are_apart((&plan.descs[b], range.start), (&plan.descs[a], other.start)),
        _ => false,
    };
    if are_apart && plan.device.backend() != Backend::Wgpu {
        return Ok(());
    }
    let detail = match is_partner {
        _ if are_apart => {
            ", though they share no element: through wgpu, operands lie one after the other; give each memory of its own, or write one in a run"
        }
        true => "; in place, both must be the identical range",
        false if b.otherwise_aligned & (1 << at) != 0 => {
            "; they promise different alignments: with the same `align` one may lie in the place of the other"
        }
        false => "",
    };
    Err(Error::Overlap { op: plan.names.op, a: plan.names.table[at].name, b: b.name, detail })
}

/// The error of memory that is too small, with its place in a buffer that does not hold all of it.
#[cold]
fn too_small(plan: &Contract, operand: &'static str, view: &View<'_>, [need_bytes, got_bytes]: [u64; 2]) -> Error {
    let (offset, held) = match view.place {
        Place::Buffer { buffer, offset } => (offset, Some(buffer.bytes)),
        #[cfg(feature = "wgpu")]
        Place::Wgpu { buffer, offset } => (offset, Some(buffer.size())),
        _ => (0, None),
    };
    let buffer_bytes = held.filter(|&held| offset.checked_add(view.bytes).is_none_or(|end| end > held));
    Error::TooSmall { op: plan.names.op, operand, need_bytes, got_bytes, offset, buffer_bytes }
}

/// The error of memory that starts elsewhere than the operand may, with what would be allowed.
#[cold]
fn misaligned(plan: &Contract, operand: &'static str, view: &View<'_>, align: Alignment) -> Error {
    let (need_bytes, start) = match view.place {
        Place::Buffer { offset, .. } => (align.owned, Start::Offset(offset)),
        #[cfg(feature = "cuda")]
        Place::Cuda(address) => (align.borrowed, Start::Address(address)),
        #[cfg(feature = "wgpu")]
        Place::Wgpu { offset, .. } => (align.borrowed, Start::Offset(offset)),
        Place::Host(host) => (align.borrowed, Start::Address(host.address())),
        Place::Partner => (align.borrowed, Start::Address(0)),
    };
    let all = || plan.expected.iter().chain(&plan.sets.expected);
    let dtype = all().find(|expected| expected.name == operand).map(|expected| expected.dtype);
    let size = dtype.map_or(need_bytes, DType::size_bytes);
    let is_wgpu = plan.device.backend() == Backend::Wgpu;
    let detail = if need_bytes > if is_wgpu { size.max(WORD_BYTES) } else { size } {
        "; its descriptor promises that: TensorDesc::for_offset lowers the promise to what the offset keeps"
    } else if need_bytes > size {
        "; shaders address words of 4 bytes"
    } else if matches!(start, Start::Offset(_)) && dtype.is_some() {
        "; that is an element, and offsets are bytes"
    } else {
        ""
    };
    Error::Misaligned { op: plan.names.op, operand, need_bytes, start, detail }
}

#[cold]
fn elsewhere(plan: &Contract, operand: &'static str, view: &View<'_>) -> Error {
    let got = match view.place {
        Place::Partner => "in place".to_string(),
        Place::Host(_) => HOST.to_string(),
        Place::Buffer { buffer: Buffer { device, .. }, .. } => device.to_string(),
        #[cfg(feature = "cuda")]
        Place::Cuda(_) => "a CUDA address".to_string(),
        #[cfg(feature = "wgpu")]
        Place::Wgpu { .. } => "a wgpu buffer".to_string(),
    };
    Error::WrongDevice { op: plan.names.op, operand, expected: plan.device.to_string(), got }
}
