//! Ranges of owned memory that runs, writes and reads borrow: where one is written, nobody else uses any of its bytes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Memory;
use crate::backend::{Buffer, Location, Memory as AnyMemory};
use crate::error::{Error, Result};

/// A range of addresses, and whether its user writes the bytes there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    start: u64,
    end: u64,
    is_written: bool,
}

impl Range {
    fn excludes(&self, other: &Self) -> bool {
        (self.is_written || other.is_written) && self.start.max(other.start) < self.end.min(other.end)
    }
}

/// The ranges of one allocation that are lent. The lock is held while they are compared, never while they are used.
#[derive(Default)]
pub(super) struct Lent(Mutex<Vec<Range>>);

impl Lent {
    /// A panic cannot leave a range half changed.
    fn ranges(&self) -> MutexGuard<'_, Vec<Range>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range that an operand needs.
struct Wish {
    memory: Memory,
    operand: &'static str,
    range: Range,
}

/// What one use needs of owned memory.
pub(crate) struct Wishes(Vec<Wish>);

impl Wishes {
    /// What a run needs: the buffers of its operands and workspace, their names, where each of them lies, and whether it is written.
    pub(crate) fn of_run<'a>(uses: impl Iterator<Item = (&'a Buffer, &'static str, Location<'a>, bool)>) -> Self {
        let wish = |(buffer, operand, location, is_written): (&Buffer, _, Location<'_>, _)| {
            #[allow(irrefutable_let_patterns, reason = "refutable with a GPU feature")]
            let AnyMemory::Cpu(memory) = &buffer.memory else { return None };
            // An operand without elements lies nowhere.
            let range = Range { start: location.start, end: location.end, is_written };
            (range.start < range.end).then(|| Wish { memory: memory.clone(), operand, range })
        };
        Self::in_order(uses.filter_map(wish).collect())
    }

    /// What a use needs of `bytes` bytes of a buffer from `offset` on.
    pub(super) fn of_buffer(memory: &Memory, offset: u64, bytes: u64, is_written: bool) -> Self {
        let start = memory.address() + offset;
        let range = Range { start, end: start + bytes, is_written };
        Self(vec![Wish { memory: memory.clone(), operand: "buffer", range }])
    }

    /// Every use asks for allocations in the order of their addresses. So of several uses that exclude each other, one gets all that it wants.
    fn in_order(mut wishes: Vec<Wish>) -> Self {
        wishes.sort_unstable_by_key(|wish| wish.memory.address());
        Self(wishes)
    }

    /// Borrows all of them, or none.
    pub(crate) fn grant(&self, op: &'static str) -> Result<Loan<'_>> {
        // If this is dropped before all ranges are borrowed, it gives back those that it has.
        let mut loan = Loan(&[]);
        for wishes in self.0.chunk_by(|a, b| a.memory.address() == b.memory.address()) {
            let mut lent = wishes[0].memory.lent().ranges();
            // One use may name bytes twice: an operand in place, or several operands that read them. A use does not exclude itself.
            let is_refused = |wish: &&Wish| lent.iter().any(|other| other.excludes(&wish.range));
            if let Some(Wish { operand, .. }) = wishes.iter().find(is_refused) {
                return Err(Error::BufferInUse { op, operand });
            }
            lent.extend(wishes.iter().map(|wish| wish.range));
            loan.0 = &self.0[..loan.0.len() + wishes.len()];
        }
        Ok(loan)
    }
}

/// Ranges that are borrowed until it is dropped.
pub(crate) struct Loan<'w>(&'w [Wish]);

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        for wishes in self.0.chunk_by(|a, b| a.memory.address() == b.memory.address()) {
            let mut lent = wishes[0].memory.lent().ranges();
            for wish in wishes {
                if let Some(at) = lent.iter().position(|range| *range == wish.range) {
                    lent.swap_remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, DType, Device, LayerNormArgs, LayerNormDescriptor, Mem, MemMut, Plan, PlanOptions};
    use crate::{TensorDesc, Workspace};

    fn memory(buffer: &Buffer) -> &Memory {
        match &buffer.memory {
            AnyMemory::Cpu(memory) => memory,
            #[allow(unreachable_patterns, reason = "reachable with a GPU feature")]
            _ => panic!("{buffer:?} is not on the CPU"),
        }
    }

    fn of(buffer: &Buffer, start: u64, end: u64, is_written: bool) -> Wishes {
        Wishes::of_buffer(memory(buffer), start, end - start, is_written)
    }

    fn nothing_is_lent(buffer: &Buffer) -> bool {
        memory(buffer).lent().ranges().is_empty()
    }

    #[test]
    fn ranges_are_lent_to_many_readers_or_one_writer() {
        let buffer = Device::cpu().alloc(64).unwrap();
        let [read, write, next] = [of(&buffer, 8, 16, false), of(&buffer, 15, 20, true), of(&buffer, 16, 64, true)];
        let first = read.grant("a").unwrap();
        let second = read.grant("b").unwrap();
        let beside = next.grant("c").unwrap();
        assert_eq!(write.grant("d").err(), Some(Error::BufferInUse { op: "d", operand: "buffer" }));
        drop((first, beside));
        assert!(write.grant("d").is_err());
        drop(second);
        let writer = write.grant("d").unwrap();
        assert!(read.grant("a").is_err() && next.grant("c").is_err());
        drop(writer);
        assert!(nothing_is_lent(&buffer));
    }

    #[test]
    fn what_is_refused_keeps_nothing() {
        let [a, b] = [0; 2].map(|_| Device::cpu().alloc(64).unwrap());
        let both = || Wishes::in_order(of(&a, 0, 8, true).0.into_iter().chain(of(&b, 0, 8, true).0).collect());
        let (first, second) = (both(), both());
        for held in [&a, &b] {
            let other = of(held, 4, 5, false);
            let loan = other.grant("run").unwrap();
            assert!(first.grant("run").is_err());
            drop(loan);
            assert!(nothing_is_lent(&a) && nothing_is_lent(&b));
        }
        let loan = first.grant("run").unwrap();
        assert!(second.grant("run").is_err());
        drop(loan);
        drop(second.grant("run").unwrap());
    }

    /// x, weight, y, mean and, after 8 bytes that nothing uses, rstd of a LayerNorm in one buffer.
    #[test]
    fn a_run_borrows_the_range_of_each_operand_and_names_it() {
        let device = Device::cpu();
        let x = TensorDesc::contiguous(DType::F32, &[2, 4]).unwrap();
        let descriptor = LayerNormDescriptor::new(x, 1).and_then(|d| d.weight(DType::F32)?.stats()).unwrap();
        let plan = Plan::new(&device, descriptor, &PlanOptions::default()).unwrap();
        let pool = device.alloc(128).unwrap();
        let mut queue = device.queue();
        let of_pool = |x| {
            LayerNormArgs::new(x, MemMut::buffer(&pool, 48, 32))
                .weight(Mem::buffer(&pool, 32, 16))
                .stats(MemMut::buffer(&pool, 80, 8), MemMut::buffer(&pool, 96, 8))
        };
        let args = || of_pool(Mem::buffer(&pool, 0, 32));
        let bound = plan.bind(args(), Workspace::none()).unwrap();
        for (start, is_written, expected) in [
            (31, true, Some("x")),
            (32, true, Some("weight")),
            (48, true, Some("y")),
            (79, true, Some("y")),
            (80, true, Some("mean")),
            (88, true, None),
            (96, true, Some("rstd")),
            (104, true, None),
            (0, false, None),
            (47, false, None),
            (48, false, Some("y")),
            (103, false, Some("rstd")),
        ] {
            let other = of(&pool, start, start + 1, is_written);
            let _loan = other.grant("another run").unwrap();
            let expected = expected.map(|operand| Error::BufferInUse { op: "layer_norm", operand });
            assert_eq!(plan.run(&mut queue, args(), Workspace::none()).err(), expected);
            assert_eq!(bound.run(&mut queue).err(), expected);
        }
        // In place, x lies where y does. Both ways of saying so are tried.
        for x in [Mem::in_place(), Mem::buffer(&pool, 48, 32)] {
            let other = of(&pool, 79, 80, false);
            let loan = other.grant("another run").unwrap();
            let refused = plan.run(&mut queue, of_pool(x), Workspace::none()).unwrap_err();
            assert!(matches!(refused, Error::BufferInUse { operand: "x" | "y", .. }), "{refused}");
            drop(loan);
            plan.run(&mut queue, of_pool(x), Workspace::none()).unwrap();
        }
        assert!(nothing_is_lent(&pool));
    }

    #[test]
    fn writes_and_downloads_borrow_what_they_touch() {
        let device = Device::cpu();
        let buffer = device.alloc(64).unwrap();
        let in_use = |op| Some(Error::BufferInUse { op, operand: "buffer" });
        let writer = of(&buffer, 16, 32, true);
        let loan = writer.grant("a run").unwrap();
        device.write(&buffer, 0, &[1; 16]).unwrap();
        device.write(&buffer, 32, &[1; 32]).unwrap();
        assert_eq!(device.write(&buffer, 31, &[1; 2]).err(), in_use("write"));
        assert_eq!(device.queue().download::<u32>(&buffer).err(), in_use("download"));
        drop(loan);
        let reader = of(&buffer, 16, 32, false);
        let _loan = reader.grant("a run").unwrap();
        assert_eq!(device.write(&buffer, 31, &[1]).err(), in_use("write"));
        device.queue().download::<u32>(&buffer).unwrap();
    }
}
