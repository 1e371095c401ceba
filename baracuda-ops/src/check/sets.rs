//! Operands of plans that have many of them, as of several sets: there are more than bits tell apart, so that overlaps are found in the order of addresses.

use std::sync::{Mutex, MutexGuard};

use super::{Alignment, Contract, Expected, place};
use crate::backend::{Backend, Device, Further, Located, Location};
use crate::error::{Error, Result};
use crate::memory::{Operands, Place};
use crate::slots::{Access, MAX_SLOTS, Slot};

/// What a plan demands of further operands, those of sets after the first among them, and which of all operands may share a place. Without further ones it
/// holds nothing.
pub(crate) struct Sets {
    /// In the order of the slots.
    pub(crate) expected: Box<[Expected]>,
    /// How many slots lie before them.
    pub(crate) before: usize,
    /// Of each of those the partner in place among them.
    partners: Box<[Option<usize>]>,
    /// Of each operand, of those that are no further ones first, what says whether it may lie where another does.
    kinds: Box<[Kind]>,
    /// What runs need besides, one at a time.
    memory: Mutex<Memory<'static>>,
}

/// What two operands have in common of which one is written in the place of the other, which is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    set: usize,
    /// The first slot of the set with an identical descriptor; none of an operand that shares its place with no other.
    like: Option<usize>,
}

impl Sets {
    /// The slots that are found by their index.
    pub(super) fn first(slots: &[Slot]) -> Vec<Slot> {
        slots.iter().filter(|slot| !slot.is_further()).cloned().collect()
    }

    pub(super) fn new(slots: &[Slot], device: &Device) -> Self {
        let Some(before) = slots.iter().position(Slot::is_further) else {
            let (expected, partners, kinds, memory) = ([].into(), [].into(), [].into(), Mutex::default());
            return Self { expected, before: slots.len(), partners, kinds, memory };
        };
        let expected_of = |set: &[Slot], slot: &Slot| Expected {
            name: slot.name,
            span_bytes: slot.span_bytes,
            align: Alignment::new(&slot.desc, device.backend()),
            rivals: 0,
            partners: 0,
            otherwise_aligned: 0,
            has_otherwise_aligned: set.iter().any(|other| slot.would_share_place_with(other)),
            index: 0,
            in_place: None,
            is_written: slot.access != Access::In,
            dtype: slot.desc.dtype(),
        };
        let (mut partners, mut expected) = (Vec::new(), Vec::new());
        let (mut kinds, mut further_kinds) = (Vec::new(), Vec::new());
        for set in slots.chunk_by(|a, b| a.set == b.set) {
            for slot in set {
                let like = set.iter().position(|other| other.is_of_positions && other.desc == slot.desc);
                let kind = Kind { set: slot.set, like: like.filter(|_| slot.is_of_positions) };
                if !slot.is_further() {
                    kinds.push(kind);
                    continue;
                }
                further_kinds.push(kind);
                let partner = set.iter().find(|other| slot.in_place == Some(other.position));
                partners.push(partner.and_then(|partner| partner.index.checked_sub(MAX_SLOTS)));
                expected.push(expected_of(set, slot));
            }
        }
        kinds.append(&mut further_kinds);
        let expected: Box<[Expected]> = expected.into();
        let mut memory = Memory::default();
        // If there is too little, a run says so.
        if reserve(&mut memory.locations, expected.len()).is_err() || reserve(&mut memory.placed, kinds.len()).is_err()
        {
            memory = Memory::default();
        }
        Self { expected, before, partners: partners.into(), kinds: kinds.into(), memory: Mutex::new(memory) }
    }
}

/// Memory of the host for the operands of a run.
#[derive(Default)]
struct Memory<'l> {
    /// Of the further operands.
    locations: Vec<Location<'l>>,
    placed: Vec<Placed<'l>>,
}

impl<'l> Memory<'l> {
    /// Where further operands lie, after every check of them; `keep` makes of a location one that may stay here.
    fn fill<'a>(
        &mut self,
        plan: &Contract,
        operands: &Operands<'a>,
        located: &Located<'a>,
        keep: impl Fn(Location<'a>) -> Location<'l>,
    ) -> Result<()> {
        let Self { locations, placed } = self;
        reserve(locations, plan.sets.expected.len())?;
        reserve(placed, plan.sets.kinds.len())?;
        place_all(plan, operands, locations, &keep)?;
        let of_first = plan.expected.iter().map(|expected| keep(located.operands[expected.at()]));
        for (at, location) in of_first.chain(locations.iter().copied()).enumerate() {
            // An operand without elements lies nowhere.
            if location.start < location.end {
                placed.push(Placed { location, at });
            }
        }
        disjoint(plan, placed, &keep(located.workspace))
    }
}

/// Empties a list and gives it room for so many elements.
fn reserve<T>(list: &mut Vec<T>, count: usize) -> Result<()> {
    list.clear();
    let bytes = count.saturating_mul(size_of::<T>()) as u64;
    list.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { device: "cpu".into(), bytes })
}

/// What a plan lends to one run at a time; a run that finds it lent asks for memory of its own.
pub(crate) struct Room<'r>(Option<MutexGuard<'r, Memory<'static>>>);

impl Sets {
    /// Room for a run, if there are further operands and locations are addresses, which borrow nothing.
    pub(crate) fn room(&self, backend: Backend) -> Room<'_> {
        let is_lent = !self.expected.is_empty() && backend != Backend::Wgpu;
        Room(if is_lent { self.memory.try_lock().ok() } else { None })
    }
}

impl Room<'_> {
    /// Finds where further operands lie, and refuses operands that overlap.
    pub(super) fn fill<'a>(
        &'a mut self,
        plan: &Contract,
        operands: &Operands<'a>,
        located: &mut Located<'a>,
    ) -> Result<()> {
        if let Some(memory) = &mut self.0 {
            memory.fill(plan, operands, located, Location::of_addresses)?;
            located.further = Further::Lent(&memory.locations);
        } else {
            let mut memory = Memory::default();
            memory.fill(plan, operands, located, |location| location)?;
            located.further = Further::Own(memory.locations);
        }
        Ok(())
    }
}

/// Writes where further operands lie, after every check that concerns them alone.
fn place_all<'a, 'l>(
    plan: &Contract,
    operands: &Operands<'a>,
    locations: &mut Vec<Location<'l>>,
    keep: &impl Fn(Location<'a>) -> Location<'l>,
) -> Result<()> {
    let (op, Sets { expected, partners, .. }) = (plan.names.op, &plan.sets);
    let given = operands.further;
    if let Some(missing) = expected.get(given.len()) {
        return Err(Error::MissingOperand { op, operand: missing.name });
    }
    if given.len() > expected.len() {
        let row = plan.names.table.get(MAX_SLOTS + expected.len());
        return Err(Error::UnexpectedOperand { op, operand: row.map_or("beyond the last", |row| row.name) });
    }
    for (expected, operand) in expected.iter().zip(given) {
        let mut location = Location::default();
        if !matches!(operand.0.place, Place::Partner) {
            place(plan, expected, &operand.0, &mut location)?;
        }
        locations.push(keep(location));
    }
    for (at, expected) in expected.iter().enumerate() {
        if !matches!(given[at].0.place, Place::Partner) {
            continue;
        }
        let refuse = |detail| Err(Error::NotInPlace { op, operand: expected.name, detail });
        match partners[at] {
            None if expected.has_otherwise_aligned => return refuse(super::OTHERWISE_ALIGNED),
            None => return refuse("the descriptor names no partner with the same layout for it"),
            Some(_) if expected.is_written => {
                return refuse("an output is never the one left out; pass its memory and let the input be in place");
            }
            Some(partner) if matches!(given[partner].0.place, Place::Partner) => {
                return refuse("its partner is in place too");
            }
            Some(partner) => locations[at] = locations[partner],
        }
    }
    Ok(())
}

/// An operand that has memory.
#[derive(Clone, Copy)]
struct Placed<'l> {
    location: Location<'l>,
    /// Its number among those of all sets.
    at: usize,
}

impl Placed<'_> {
    /// Orders operands so that those of one range follow each other.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let range = |placed: &Self| (placed.location.start, placed.location.end);
        #[cfg(feature = "wgpu")]
        let spaces = self.location.buffer.cmp(&other.location.buffer);
        #[cfg(not(feature = "wgpu"))]
        let spaces = std::cmp::Ordering::Equal;
        spaces.then(range(self).cmp(&range(other)))
    }

    fn expected<'p>(&self, plan: &'p Contract) -> &'p Expected {
        let of_first = plan.expected.get(self.at);
        of_first.unwrap_or_else(|| &plan.sets.expected[self.at - plan.expected.len()])
    }

    fn may_share(&self, other: &Self, plan: &Contract) -> bool {
        let is_written = |placed: &Self| placed.expected(plan).is_written;
        let [kind, of_other] = [self.at, other.at].map(|at| plan.sets.kinds[at]);
        !(is_written(self) && is_written(other)) && kind == of_other && kind.like.is_some()
    }
}

/// Refuses overlaps in which something is written, but for partners of one set at the identical range.
fn disjoint(plan: &Contract, placed: &mut [Placed<'_>], workspace: &Location<'_>) -> Result<()> {
    placed.sort_unstable_by(Placed::order);
    let name = |placed: &Placed<'_>| placed.expected(plan).name;
    let overlap =
        |a: &Placed<'_>, b: &Placed<'_>| Err(Error::Overlap { op: plan.names.op, a: name(a), b: name(b), detail: "" });
    // Of the operands before, the one that reaches furthest, and that of those that are written.
    let mut furthest: [Option<Placed<'_>>; 2] = [None; 2];
    for group in placed.chunk_by(|a, b| a.order(b).is_eq()) {
        let written = group.iter().find(|placed| placed.expected(plan).is_written);
        if let Some(written) = written
            && let Some(other) = group.iter().find(|other| other.at != written.at && !written.may_share(other, plan))
        {
            return overlap(other, written);
        }
        let last = written.unwrap_or(&group[0]);
        let [any, of_written] = &mut furthest;
        let before = if written.is_some() { &*any } else { &*of_written };
        if let Some(before) = before
            && before.location.end > last.location.start
            && before.location.shares_space(&last.location)
        {
            return overlap(before, last);
        }
        for (furthest, counts) in [(any, true), (of_written, written.is_some())] {
            let is_further = furthest.is_none_or(|before| {
                !before.location.shares_space(&last.location) || before.location.end < last.location.end
            });
            if counts && is_further {
                *furthest = Some(*last);
            }
        }
    }
    if plan.workspace.bytes != 0 {
        let meets = |a: &&Placed<'_>| workspace.meets(&a.location) && workspace.shares_space(&a.location);
        if let Some(a) = placed.iter().find(meets) {
            let b = crate::slots::WORKSPACE;
            return Err(Error::Overlap { op: plan.names.op, a: name(a), b, detail: "" });
        }
    }
    Ok(())
}
