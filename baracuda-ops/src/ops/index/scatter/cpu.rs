//! The reference: what goes to one place in the order of the source, in f64 with compensated sums, integers in i64, one rounding to the output. A thread takes
//! some places, or a part of the row of one.

use super::{Combine, Scatters, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Sum, Tensor, held, room, threads};
use crate::kernel::Accepted;
use crate::narrow::to_usize;
use crate::ops::index::lookup::cpu::{count, position};
use crate::ops::movement::cpu::run as copy;
use crate::ops::movement::geometry::{Moves, Outside};

/// Units of a row that a task combines at once.
const SLICE: usize = 256;
/// Units of a task, unless more go to one place.
const TASK: u64 = 4096;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands| {
        compute(valid, operands)?;
        let (extent, from_end) = (valid.derived.extent, valid.fields.from_end);
        count(operands.get(forward::MISSING), operands.get(forward::INDICES), extent, from_end);
        Ok(())
    }))
}

/// An entry, and the key of the row of y that it goes to. They sort by keys, and those of a key by their order in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Goer {
    key: u64,
    entry: u64,
}

fn compute(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let Some(y) = operands.get(forward::Y) else { return Ok(()) };
    let scatters = &valid.derived;
    match operands.get(forward::BASE) {
        Some(base) if base.starts_at(&y) => {}
        Some(base) => copy(&Moves::between(base.desc(), y.desc()), Outside::Nothing, &base, &y),
        None => copy(&Moves::into(y.desc()), Outside::Constant(0), &y, &y),
    }
    let (Some(source), Some(indices)) = (operands.get(forward::SOURCE), operands.get(forward::INDICES)) else {
        return Ok(());
    };
    // 1. Where entries go.
    let goers = goers(scatters, &indices, valid.fields.from_end)?;
    let is_first = |at: &u64| *at == 0 || goers[to_usize(*at)].key != goers[to_usize(at - 1)].key;
    let starts: Vec<u64> =
        held(goers.len() as u64 + 1, (0..goers.len() as u64).filter(is_first).chain([goers.len() as u64]))?;
    // 2. What goes to each.
    let (places, units) = (starts.len() as u64 - 1, scatters.units());
    let slices = units.div_ceil(SLICE as u64);
    let per_task = (TASK / units).max(1);
    let combination = Combination { valid, source, y, has_base: valid.fields.base };
    threads::for_each(places.div_ceil(per_task) * slices, goers.len() as u64 * units, |task| {
        let (first, slice) = (task / slices * per_task, task % slices);
        let row = Slice::new(scatters, slice * SLICE as u64, units.min((slice + 1) * SLICE as u64));
        for place in first..places.min(first + per_task) {
            let [from, to] = [place, place + 1].map(|at| to_usize(starts[to_usize(at)]));
            combination.run(&goers[from..to], &row);
        }
    });
    Ok(())
}

/// The entries that go anywhere, in the order of their keys.
fn goers(
    scatters: &Scatters,
    indices: &Tensor<'_>,
    from_end: bool,
) -> Result<Vec<Goer>, crate::backend::cpu::Shortage> {
    let (extent, key_units) = (scatters.extent, scatters.key_units());
    let mut goers = room(scatters.count())?;
    for entry in 0..scatters.count() {
        let (mut rest, mut index, mut y) = (entry, 0, 0);
        for axis in scatters.entries.iter().rev() {
            let at = rest % axis.extent;
            rest /= axis.extent;
            (index, y) = (index + at * axis.index, y + at * axis.y);
        }
        if let Some(position) = position(indices, index, extent, from_end) {
            goers.push(Goer { key: (y + position * scatters.apart) / key_units, entry });
        }
    }
    goers.sort_unstable();
    Ok(goers)
}

/// Some units of a row: how far they lie from its first one.
struct Slice {
    count: usize,
    source: [u64; SLICE],
    y: [u64; SLICE],
}

impl Slice {
    fn new(scatters: &Scatters, first: u64, end: u64) -> Self {
        let mut slice = Self { count: to_usize(end - first), source: [0; _], y: [0; _] };
        for (unit, (to_source, to_y)) in (first..end).zip(slice.source.iter_mut().zip(&mut slice.y)) {
            let mut rest = unit;
            for axis in scatters.row.iter().rev() {
                let at = rest % axis.extent;
                rest /= axis.extent;
                (*to_source, *to_y) = (*to_source + at * axis.source, *to_y + at * axis.y);
            }
        }
        slice
    }
}

struct Combination<'v> {
    valid: &'v Valid,
    source: Tensor<'v>,
    y: Tensor<'v>,
    has_base: bool,
}

impl Combination<'_> {
    /// What goes to one place.
    fn run(&self, goers: &[Goer], row: &Slice) {
        let Some(Goer { key, .. }) = goers.first() else { return };
        let to = key * self.valid.derived.key_units();
        let dtype = self.y.desc().dtype();
        match self.valid.fields.combine {
            Combine::Set => {
                let last = &goers[goers.len() - 1..];
                match dtype.size_bytes() {
                    1 => self.set::<u8>(last, to, row),
                    2 => self.set::<u16>(last, to, row),
                    4 => self.set::<u32>(last, to, row),
                    _ => self.set::<u64>(last, to, row),
                }
            }
            combine if dtype.is_integer() => self.integers(combine, goers, to, row),
            Combine::Add => self.sums(goers, to, row),
            combine => self.numbers(combine, goers, to, row),
        }
    }

    /// Where an entry begins in the source.
    fn from(&self, entry: u64) -> u64 {
        let (mut rest, mut from) = (entry, 0);
        for axis in self.valid.derived.entries.iter().rev() {
            from += rest % axis.extent * axis.source;
            rest /= axis.extent;
        }
        from
    }

    fn set<T: Copy>(&self, goers: &[Goer], to: u64, row: &Slice) {
        for goer in goers {
            let from = self.from(goer.entry);
            for (source, y) in row.source.iter().zip(&row.y).take(row.count) {
                let (source, y): (*mut T, *mut T) = (self.source.bits(from + source), self.y.bits(to + y));
                // SAFETY: both lie in their tensors, which share no memory, and each place of y is part of one task.
                unsafe { *y = *source };
            }
        }
    }

    /// What is combined of each unit of a slice, from the base on, if there is one.
    fn combined<S: Copy>(
        &self,
        goers: &[Goer],
        to: u64,
        row: &Slice,
        load: impl Fn(&Tensor<'_>, u64) -> S,
        mut combine: impl FnMut(&mut S, S),
        mut store: impl FnMut(u64, S),
    ) {
        let (first, others) = match goers.split_first() {
            Some(all) if !self.has_base => all,
            Some((first, _)) => (first, goers),
            None => return,
        };
        let from = self.from(first.entry);
        let mut held: [Option<S>; SLICE] = [None; _];
        for (at, held) in held.iter_mut().enumerate().take(row.count) {
            *held = Some(if self.has_base {
                load(&self.y, to + row.y[at])
            } else {
                load(&self.source, from + row.source[at])
            });
        }
        for goer in others {
            let from = self.from(goer.entry);
            for (held, source) in held.iter_mut().flatten().zip(&row.source) {
                combine(held, load(&self.source, from + source));
            }
        }
        for (held, y) in held.iter().flatten().zip(&row.y) {
            store(to + y, *held);
        }
    }

    fn sums(&self, goers: &[Goer], to: u64, row: &Slice) {
        let load = |tensor: &Tensor<'_>, at: u64| [tensor.load(at)].into_iter().collect::<Sum>();
        // SAFETY: each place of y is part of one task.
        let store = |at: u64, sum: Sum| unsafe { self.y.store(at, sum.total()) };
        self.combined(goers, to, row, load, |sum, other| *sum = sum.plus(other), store);
    }

    fn numbers(&self, combine: Combine, goers: &[Goer], to: u64, row: &Slice) {
        let both = |held: &mut f64, other: f64| match combine {
            Combine::Multiply => *held *= other,
            _ if held.is_nan() => {}
            Combine::Min if other < *held || other.is_nan() => *held = other,
            Combine::Max if other > *held || other.is_nan() => *held = other,
            _ => {}
        };
        // SAFETY: each place of y is part of one task.
        let store = |at: u64, value: f64| unsafe { self.y.store(at, value) };
        self.combined(goers, to, row, |tensor, at| tensor.load(at), both, store);
    }

    fn integers(&self, combine: Combine, goers: &[Goer], to: u64, row: &Slice) {
        let both = |held: &mut i64, other: i64| {
            *held = match combine {
                Combine::Multiply => held.wrapping_mul(other),
                Combine::Min => other.min(*held),
                Combine::Max => other.max(*held),
                Combine::Set | Combine::Add => held.wrapping_add(other),
            }
        };
        // SAFETY: each place of y is part of one task.
        let store = |at: u64, value: i64| unsafe { self.y.store_integer(at, value) };
        self.combined(goers, to, row, |tensor, at| tensor.load_integer(at), both, store);
    }
}
