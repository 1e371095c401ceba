//! Copies between global and shared memory that the copy engine makes while threads go on.
//!
//! What is read from global memory is there after all warps have had their turn; what is written is read from shared memory when the thread waits for it.

use super::{Fault, Group, lanes};
use crate::alu;
use crate::machine::PARAMETER_MARK;
use crate::program::{Space, TensorCopy};
use crate::tensor_map::{CHUNK_BYTES, MAP_BYTES, MOST_AXES, MOST_RANK, Place, TensorMap};

/// A copy to shared memory whose bytes a barrier counts.
pub(super) struct BulkCopy {
    pub(super) to: u64,
    pub(super) source: Source,
    pub(super) barrier: u64,
}

pub(super) enum Source {
    Bytes { from: u64, bytes: u64 },
    Part { map: TensorMap, place: Place },
}

/// A part of a tensor that a thread has asked to store, in one of its groups.
pub(super) struct BulkStore {
    pub(super) lane: usize,
    group: u32,
    from: u64,
    map: TensorMap,
    place: Place,
}

enum Direction {
    ToShared,
    ToGlobal,
}

impl Group<'_> {
    pub(super) fn bulk_copy(&mut self, block: usize, copy: &BulkCopy) -> Result<(), Fault> {
        let copied = match &copy.source {
            &Source::Bytes { from, bytes } => self.copy(block, copy.to, from, bytes, 16).map(|()| bytes),
            Source::Part { map, place } => {
                self.copy_part(block, map, place, copy.to, &Direction::ToShared).map(|()| map.bytes())
            }
        };
        copied.and_then(|bytes| self.on_barrier(block, copy.barrier, |b| b.complete(bytes))).map_err(|e| {
            Fault(format!("{}: block {:?}: bulk copy: {e}", self.launch.program.name, self.blocks[block].index))
        })
    }

    /// Notes a copy of a part of a tensor for each lane.
    pub(super) fn copy_tensor(
        &mut self,
        block: usize,
        warp: usize,
        copy: &TensorCopy,
        active: u32,
    ) -> Result<(), (usize, String)> {
        for lane in lanes(active) {
            let fail = |e| (lane, e);
            let map = self.tensor_map(self.address(block, warp, copy.map, lane)).map_err(fail)?;
            if map.rank() != usize::from(copy.rank) || map.has_windows() != copy.has_windows {
                return Err(fail(format!("a map of rank {}, windows: {}", map.rank(), map.has_windows())));
            }
            let shared = self.address(block, warp, copy.shared, lane) & 0xffff_ffff;
            if !shared.is_multiple_of(128) {
                return Err(fail(format!("address {shared:#x} is not a multiple of 128")));
            }
            let this = &self.blocks[block].warps[warp];
            let value = |register: u32| this.registers[register as usize][lane].get();
            let mut place = Place { at: [0; MOST_RANK], offsets: [0; MOST_AXES] };
            for (to, &register) in place.at.iter_mut().zip(&copy.at[..map.rank()]) {
                *to = value(register) as i32;
            }
            if copy.has_windows {
                for (to, &register) in place.offsets.iter_mut().zip(&copy.offsets[..map.rank() - 2]) {
                    *to = value(register) as u16;
                }
            }
            match copy.barrier {
                Some(barrier) => {
                    let barrier = self.address(block, warp, barrier, lane) & 0xffff_ffff;
                    let source = Source::Part { map, place };
                    self.blocks[block].copies.push(BulkCopy { to: shared, source, barrier });
                }
                None => {
                    let this = &mut self.blocks[block].warps[warp];
                    let group = this.store_groups[lane];
                    this.stores.push(BulkStore { lane, group, from: shared, map, place });
                }
            }
        }
        Ok(())
    }

    /// Stores what is in all but the last `groups` groups of each lane.
    pub(super) fn store_due(
        &mut self,
        block: usize,
        warp: usize,
        groups: u32,
        active: u32,
    ) -> Result<(), (usize, String)> {
        let this = &mut self.blocks[block].warps[warp];
        let last = this.store_groups;
        let is_due = |store: &mut BulkStore| active >> store.lane & 1 == 1 && store.group + groups < last[store.lane];
        let due: Vec<BulkStore> = this.stores.extract_if(.., is_due).collect();
        for store in due {
            self.copy_part(block, &store.map, &store.place, store.from, &Direction::ToGlobal)
                .map_err(|e| (store.lane, format!("bulk store: {e}")))?;
        }
        Ok(())
    }

    fn tensor_map(&self, address: u64) -> Result<TensorMap, String> {
        if address & PARAMETER_MARK == 0 {
            return Err("a tensor map that is no parameter".into());
        }
        let at = (address & !PARAMETER_MARK) as usize;
        let bytes = self.launch.parameters.get(at..).and_then(|rest| rest.first_chunk::<MAP_BYTES>());
        TensorMap::read(bytes.ok_or("a tensor map beyond the parameters")?)
    }

    /// Copies lines in chunks. What lies beyond the tensor is 0 in shared memory, and not stored.
    fn copy_part(
        &mut self,
        block: usize,
        map: &TensorMap,
        place: &Place,
        shared: u64,
        direction: &Direction,
    ) -> Result<(), String> {
        let element = map.element_bytes();
        let mut at = shared;
        for line in map.lines(place) {
            for chunk in (0..map.line_bytes()).step_by(CHUNK_BYTES as usize) {
                let first = i64::from(place.at[0]) + (chunk / element) as i64;
                let inside = map.inside(first, CHUNK_BYTES / element);
                let chunk = self.place(block, Space::Shared, map.swizzled(at), CHUNK_BYTES, CHUNK_BYTES)?;
                at += CHUNK_BYTES;
                let (start, bytes) = (inside.start * element, (inside.end - inside.start) * element);
                let global = match line.filter(|_| bytes > 0) {
                    Some(line) => {
                        let address = line + (first + inside.start as i64) as u64 * element;
                        Some(self.place(block, Space::Global, address, bytes, element)?)
                    }
                    None => None,
                };
                // SAFETY: `place` has found the chunk in shared memory and the elements in a live allocation; the chunk has room for them, since
                // `inside` is in it. The two do not overlap.
                unsafe {
                    match (direction, global) {
                        (Direction::ToGlobal, Some(global)) => {
                            chunk.add(start as usize).copy_to_nonoverlapping(global, bytes as usize);
                        }
                        (Direction::ToGlobal, None) => {}
                        (Direction::ToShared, global) => {
                            chunk.write_bytes(0, CHUNK_BYTES as usize);
                            if let Some(global) = global {
                                global.copy_to_nonoverlapping(chunk.add(start as usize), bytes as usize);
                            }
                            if map.is_tf32() {
                                let words = chunk.cast::<[u32; 4]>();
                                words.write_unaligned(words.read_unaligned().map(alu::tf32));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
