//! Runs a kernel: warps of 32 lanes that share each decoded instruction, one block or cluster after the other.
//!
//! What is done in a fixed order here may come in any order on a GPU. So that code which relies on an order is found, the order of warps and
//! blocks can be reversed, shared memory starts as NaN, and asynchronous copies land as late as they may.

mod copy_engine;
mod warpgroup;

use std::cell::Cell;
use std::fmt;

use copy_engine::{BulkCopy, BulkStore, Source};
use warpgroup::Product;

use crate::alu;
use crate::program::{Address, NONE, Op, Program, Register, Shape, Shuffle, Space, Special, Vote};

/// Marks generic addresses of shared memory.
pub(crate) const SHARED_MARK: u64 = 1 << 62;
/// Marks generic addresses of parameters.
pub(crate) const PARAMETER_MARK: u64 = 1 << 61;
/// Bits of an offset in a block's shared memory; above are 0 for the own block, else the rank in the cluster plus 1.
const RANK_SHIFT: u32 = 24;
const LANES: usize = 32;
/// Instructions until another warp has its turn.
const QUANTUM: u32 = 4096;
/// Rounds of nothing but waiting after which a kernel counts as hanging.
const PATIENCE: u32 = 1 << 16;
/// Cycles of a sleep, however long it may last.
const SLEEP_CYCLES: u64 = 64;
const NAMED_BARRIERS: usize = 16;

/// What is launched.
pub(crate) struct Launch<'l> {
    pub(crate) program: &'l Program,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) dynamic_bytes: u32,
    pub(crate) is_cooperative: bool,
    /// The bytes of all parameters.
    pub(crate) parameters: &'l [u8],
    /// Allocated ranges of global memory, by start.
    pub(crate) allocations: &'l [(u64, u64)],
    /// Where blocks of a cooperative launch meet.
    pub(crate) meeting_place: u64,
    pub(crate) is_reversed: bool,
}

/// Why a kernel stopped.
#[derive(Debug)]
pub(crate) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Runs all blocks.
pub(crate) fn run(launch: &Launch<'_>) -> Result<(), Fault> {
    let [width, height, depth] = launch.grid;
    let blocks = |extents: [u32; 3]| extents.iter().map(|&n| n as usize).product::<usize>();
    let of_cluster = blocks(launch.cluster);
    let clusters = blocks(launch.grid) / of_cluster;
    // Blocks of one cluster follow each other.
    let mut indices = Vec::with_capacity(blocks(launch.grid));
    let [x, y, z] = launch.cluster;
    for (k, j, i) in product(depth / z, height / y, width / x) {
        for (c, b, a) in product(z, y, x) {
            indices.push([i * x + a, j * y + b, k * z + c]);
        }
    }
    if launch.is_cooperative {
        return Group::new(launch, &indices, of_cluster).run();
    }
    for cluster in 0..clusters {
        let cluster = if launch.is_reversed { clusters - 1 - cluster } else { cluster };
        Group::new(launch, &indices[cluster * of_cluster..][..of_cluster], of_cluster).run()?;
    }
    Ok(())
}

fn product(a: u32, b: u32, c: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}

/// Blocks that are resident together.
struct Group<'l> {
    launch: &'l Launch<'l>,
    blocks: Vec<Block>,
    shared: Vec<Vec<u8>>,
    clusters: Vec<ClusterBarrier>,
    of_cluster: usize,
    /// The allocation that was found last.
    recent: Cell<(u64, u64)>,
    /// Cycles since they started: one for each instruction of a warp.
    clock: u64,
}

#[derive(Default)]
struct ClusterBarrier {
    arrived: usize,
    phase: u64,
    live: usize,
}

struct Block {
    index: [u32; 3],
    warps: Vec<Warp>,
    barriers: Vec<NamedBarrier>,
    live: usize,
    copies: Vec<BulkCopy>,
}

#[derive(Default)]
struct NamedBarrier {
    arrived: usize,
    /// As many threads as the first to arrive asked for; `None` are all.
    threads: Option<usize>,
    any: bool,
    waiting: Vec<(usize, u32, Option<Register>)>,
}

struct Warp {
    registers: Vec<[Cell<u64>; LANES]>,
    predicates: Vec<Cell<u32>>,
    at: [usize; LANES],
    live: u32,
    /// Lanes that can go on.
    ready: u32,
    /// Lanes that wait for others of the warp, at the instruction where they are.
    held: u32,
    /// The phase of the cluster's barrier in which each lane arrived.
    cluster_phase: [u64; LANES],
    cluster_waiting: u32,
    local: Vec<u8>,
    copies: Vec<Copy>,
    groups: [u32; LANES],
    /// Stores of the copy engine, and the groups that each lane has committed.
    stores: Vec<BulkStore>,
    store_groups: [u32; LANES],
    /// Products of the warpgroup, and the groups that the warp has committed.
    products: Vec<Product>,
    product_groups: u32,
    /// Where the last slice stopped to let others go first.
    yielded_at: Option<usize>,
}

struct Copy {
    lane: usize,
    group: u32,
    to: u64,
    from: u64,
    bytes: u8,
    read: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It ran.
    Progress,
    /// It looked whether it may go on, and may not.
    Polled,
}

/// Calls `f` for each lane of a mask.
#[inline(always)]
fn each(mask: u32, mut f: impl FnMut(usize)) {
    if mask == u32::MAX {
        for lane in 0..LANES {
            f(lane);
        }
    } else {
        for lane in lanes(mask) {
            f(lane);
        }
    }
}

fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            lane
        })
    })
}

impl<'l> Group<'l> {
    fn new(launch: &'l Launch<'l>, indices: &[[u32; 3]], of_cluster: usize) -> Self {
        let threads = launch.block.iter().map(|&n| n as usize).product::<usize>();
        let shared_bytes = launch.program.shared_bytes as usize + launch.dynamic_bytes as usize;
        let blocks: Vec<Block> =
            indices.iter().enumerate().map(|(i, &index)| Block::new(launch, index, i % of_cluster, threads)).collect();
        let clusters = (0..blocks.len() / of_cluster)
            .map(|_| ClusterBarrier { live: threads * of_cluster, ..ClusterBarrier::default() })
            .collect();
        Self {
            launch,
            shared: vec![vec![0xff; shared_bytes]; blocks.len()],
            blocks,
            clusters,
            of_cluster,
            recent: Cell::new((1, 0)),
            clock: 0,
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut polls = 0;
        loop {
            let (mut has_run, mut has_progressed, mut is_done) = (false, false, true);
            for block in 0..self.blocks.len() {
                let block = if self.launch.is_reversed { self.blocks.len() - 1 - block } else { block };
                let warps = self.blocks[block].warps.len();
                for warp in 0..warps {
                    let warp = if self.launch.is_reversed { warps - 1 - warp } else { warp };
                    is_done &= self.blocks[block].warps[warp].live == 0;
                    if self.blocks[block].warps[warp].ready != 0 {
                        has_run = true;
                        has_progressed |= self.slice(block, warp)? == Outcome::Progress;
                    }
                }
            }
            if is_done {
                return Ok(());
            }
            for block in 0..self.blocks.len() {
                for copy in std::mem::take(&mut self.blocks[block].copies) {
                    has_progressed = true;
                    has_run = true;
                    self.bulk_copy(block, &copy)?;
                }
            }
            polls = if has_progressed { 0 } else { polls + 1 };
            if !has_run || polls > PATIENCE {
                return Err(self.hang());
            }
        }
    }

    fn hang(&self) -> Fault {
        let mut places = Vec::new();
        for block in &self.blocks {
            for (w, warp) in block.warps.iter().enumerate() {
                if let Some(lane) = lanes(warp.live).next() {
                    let text = &self.launch.program.instructions[warp.at[lane].saturating_sub(1)].text;
                    let next = &self.launch.program.instructions[warp.at[lane]].text;
                    places.push(format!(
                        "block {:?} warp {w} live {:#x} ready {:#x} held {:#x}: {text} | {next}",
                        block.index, warp.live, warp.ready, warp.held
                    ));
                }
            }
        }
        places.truncate(8);
        Fault(format!("{}: no thread can go on:\n  {}", self.launch.program.name, places.join("\n  ")))
    }

    fn fault(&self, block: usize, warp: usize, lane: usize, at: usize, what: impl fmt::Display) -> Fault {
        Fault(format!(
            "{}: block {:?} thread {}: {}: {what}",
            self.launch.program.name,
            self.blocks[block].index,
            warp * LANES + lane,
            self.launch.program.instructions[at].text,
        ))
    }

    /// The memory behind an address: `bytes` of it, aligned to `align`.
    fn place(&mut self, block: usize, space: Space, address: u64, bytes: u64, align: u64) -> Result<*mut u8, String> {
        if !address.is_multiple_of(align) {
            return Err(format!("address {address:#x} is not a multiple of {align}"));
        }
        if space == Space::Shared || address & SHARED_MARK != 0 {
            let address = address & 0xffff_ffff;
            let (rank, offset) = ((address >> RANK_SHIFT) as usize, address & ((1 << RANK_SHIFT) - 1));
            let owner = match rank {
                0 => block,
                rank if rank <= self.of_cluster => block - block % self.of_cluster + rank - 1,
                rank => return Err(format!("block {} of a cluster of {}", rank - 1, self.of_cluster)),
            };
            let memory = &mut self.shared[owner];
            if offset + bytes > memory.len() as u64 {
                return Err(format!("bytes {offset}..{} of {} in shared memory", offset + bytes, memory.len()));
            }
            return Ok(memory[offset as usize..].as_mut_ptr());
        }
        let (start, end) = self.recent.get();
        if address < start || address + bytes > end {
            let after = self.launch.allocations.partition_point(|&(start, _)| start <= address);
            match after.checked_sub(1).map(|i| self.launch.allocations[i]) {
                Some((start, end)) if address + bytes <= end => self.recent.set((start, end)),
                _ => return Err(format!("{bytes} bytes at {address:#x} are not in an allocation")),
            }
        }
        Ok(address as *mut u8)
    }

    fn read(&mut self, block: usize, space: Space, address: u64, bytes: u8, align: u64) -> Result<u64, String> {
        let place = self.place(block, space, address, u64::from(bytes), align)?;
        // SAFETY: `place` has found the bytes in a live allocation or in shared memory, aligned to their size.
        unsafe {
            Ok(match bytes {
                1 => u64::from(place.read_volatile()),
                2 => u64::from(place.cast::<u16>().read_unaligned()),
                4 => u64::from(place.cast::<u32>().read_unaligned()),
                _ => place.cast::<u64>().read_unaligned(),
            })
        }
    }

    fn write(
        &mut self,
        block: usize,
        space: Space,
        address: u64,
        bytes: u8,
        align: u64,
        value: u64,
    ) -> Result<(), String> {
        let place = self.place(block, space, address, u64::from(bytes), align)?;
        // SAFETY: as in `read`.
        unsafe {
            match bytes {
                1 => place.write_volatile(value as u8),
                2 => place.cast::<u16>().write_unaligned(value as u16),
                4 => place.cast::<u32>().write_unaligned(value as u32),
                _ => place.cast::<u64>().write_unaligned(value),
            }
        }
        Ok(())
    }

    fn copy(&mut self, block: usize, to: u64, from: u64, bytes: u64, align: u64) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        let from = self.place(block, Space::Global, from, bytes, align)?;
        let to = self.place(block, Space::Shared, to, bytes, align)?;
        // SAFETY: both ranges have been found; global and shared memory do not overlap.
        unsafe { from.copy_to_nonoverlapping(to, bytes as usize) };
        Ok(())
    }

    /// Changes an mbarrier in shared memory.
    fn on_barrier(&mut self, block: usize, at: u64, change: impl FnOnce(&mut Barrier)) -> Result<(), String> {
        let mut barrier = Barrier::unpack(self.read(block, Space::Shared, at, 8, 8)?);
        change(&mut barrier);
        self.write(block, Space::Shared, at, 8, 8, barrier.pack())
    }

    /// Lets threads go whose barrier is complete.
    fn release(&mut self, block: usize, id: usize) {
        let Block { barriers, live, warps, .. } = &mut self.blocks[block];
        let barrier = &mut barriers[id];
        let needed = barrier.threads.unwrap_or(*live);
        if barrier.waiting.is_empty() && barrier.arrived == 0 || barrier.arrived < needed {
            return;
        }
        let NamedBarrier { any, waiting, .. } = std::mem::take(barrier);
        for (warp, mask, to) in waiting {
            warps[warp].ready |= mask;
            if let Some(to) = to {
                let predicate = &warps[warp].predicates[to as usize];
                predicate.set(if any { predicate.get() | mask } else { predicate.get() & !mask });
            }
        }
    }

    fn release_cluster(&mut self, cluster: usize) {
        let barrier = &mut self.clusters[cluster];
        if barrier.arrived < barrier.live {
            return;
        }
        barrier.arrived = 0;
        barrier.phase += 1;
        let first = cluster * self.of_cluster;
        for block in &mut self.blocks[first..first + self.of_cluster] {
            for warp in &mut block.warps {
                warp.ready |= std::mem::take(&mut warp.cluster_waiting);
            }
        }
    }

    /// Runs a warp until it waits, ends, or has had its turn.
    fn slice(&mut self, block: usize, warp: usize) -> Result<Outcome, Fault> {
        let mut steps = 0;
        let mut has_moved = false;
        while self.blocks[block].warps[warp].ready != 0 {
            let (at, mask) = self.blocks[block].warps[warp].choose();
            match self.stretch(block, warp, at, mask, &mut steps)? {
                Stretch::Over => has_moved = true,
                Stretch::Polled => return Ok(if has_moved { Outcome::Progress } else { Outcome::Polled }),
                Stretch::Turn => return Ok(Outcome::Progress),
            }
        }
        Ok(Outcome::Progress)
    }

    /// Runs the lanes of a mask, which are all at one instruction, until they part, meet others, or wait.
    fn stretch(
        &mut self,
        block: usize,
        warp: usize,
        start: usize,
        mask: u32,
        steps: &mut u32,
    ) -> Result<Stretch, Fault> {
        let program = self.launch.program;
        let mut at = start;
        loop {
            let instruction = &program.instructions[at];
            let this = &mut self.blocks[block].warps[warp];
            let active = match instruction.guard {
                Some((predicate, is_negated)) => {
                    let truth = this.predicates[predicate as usize].get();
                    mask & if is_negated { !truth } else { truth }
                }
                None => mask,
            };
            *steps += 1;
            self.clock += 1;
            let mut after = After::Next;
            if active != 0 {
                after = self
                    .execute(block, warp, at, active)
                    .map_err(|(lane, what)| self.fault(block, warp, lane, at, what))?;
            }
            let this = &mut self.blocks[block].warps[warp];
            match after {
                After::Next => {}
                After::Jump(target) if active == mask => {
                    at = target;
                    if *steps > QUANTUM {
                        this.put(mask, at);
                        this.yielded_at = Some(at);
                        return Ok(Stretch::Turn);
                    }
                    if this.ready != mask {
                        this.put(mask, at);
                        return Ok(Stretch::Over);
                    }
                    continue;
                }
                After::Jump(target) => {
                    this.put(active, target);
                    this.put(mask & !active, at + 1);
                    return Ok(Stretch::Over);
                }
                After::Stay => {
                    // The active lanes wait at this instruction.
                    this.put(active, at);
                    this.put(mask & !active, at + 1);
                    return Ok(Stretch::Over);
                }
                After::Met(all) => {
                    this.put(all | mask, at + 1);
                    return Ok(Stretch::Over);
                }
                After::Part => {
                    this.put(mask, at + 1);
                    return Ok(Stretch::Over);
                }
                After::Poll => {
                    this.put(mask, at + 1);
                    this.yielded_at = Some(at + 1);
                    return Ok(Stretch::Polled);
                }
            }
            at += 1;
            if program.instructions[at].is_target && this.ready != mask {
                this.put(mask, at);
                return Ok(Stretch::Over);
            }
        }
    }

    /// Executes one instruction for some lanes of a warp.
    fn execute(&mut self, block: usize, warp: usize, at: usize, active: u32) -> Result<After, (usize, String)> {
        let program = self.launch.program;
        let this = &self.blocks[block].warps[warp];
        let registers = &this.registers;
        let r = |register: Register| &registers[register as usize];
        let value = |register: Register, lane: usize| registers[register as usize][lane].get();
        let first = active.trailing_zeros() as usize;
        match program.instructions[at].op {
            Op::Nothing => {}
            Op::Compute { f, to, a, b, c } => {
                let (to, a, b, c) = (r(to), r(a), r(b), r(c));
                each(active, |i| to[i].set(f(a[i].get(), b[i].get(), c[i].get())));
            }
            Op::Lop3 { to, a, b, c, table } => {
                let (to, a, b, c, table) = (r(to), r(a), r(b), r(c), value(table, first));
                each(active, |i| to[i].set(alu::lop3(a[i].get(), b[i].get(), c[i].get(), table)));
            }
            Op::Insert { to, a, b, start, bits, width } => {
                let (to, a, b, start, bits) = (r(to), r(a), r(b), r(start), r(bits));
                each(active, |i| to[i].set(alu::insert(a[i].get(), b[i].get(), start[i].get(), bits[i].get(), width)));
            }
            Op::Extract { to, a, start, bits, ty } => {
                let (to, a, start, bits) = (r(to), r(a), r(start), r(bits));
                each(active, |i| to[i].set(alu::extract(a[i].get(), start[i].get(), bits[i].get(), ty)));
            }
            Op::PackHalves { to, upper, lower, is_brain } => {
                let round = if is_brain { alu::brain16 } else { alu::half16 };
                let half = |bits: u64| u64::from(round(f32::from_bits(bits as u32)));
                let (to, upper, lower) = (r(to), r(upper), r(lower));
                each(active, |i| to[i].set(half(upper[i].get()) << 16 | half(lower[i].get())));
            }
            Op::CompareHalves { f, to, a, b } => {
                let (to, a, b) = (r(to), r(a), r(b));
                let half = |a: u64, b: u64, shift: u32| {
                    if f(a >> shift & 0xffff, b >> shift & 0xffff) { 0xffff << shift } else { 0 }
                };
                each(active, |i| {
                    let (a, b) = (a[i].get(), b[i].get());
                    to[i].set(half(a, b, 0) | half(a, b, 16));
                });
            }
            Op::Tf32 { to, a } => {
                let (to, a) = (r(to), r(a));
                each(active, |i| to[i].set(u64::from(alu::tf32(a[i].get() as u32))));
            }
            Op::Set { f, to, a, b, one } => {
                let (to, a, b) = (r(to), r(a), r(b));
                each(active, |i| to[i].set(if f(a[i].get(), b[i].get()) { one } else { 0 }));
            }
            Op::Compare { f, to, a, b } => {
                let (a, b, mut truth) = (r(a), r(b), 0);
                each(active, |i| truth |= u32::from(f(a[i].get(), b[i].get())) << i);
                this.set_predicate(to, active, truth);
            }
            Op::Logic { f, to, a, b } => {
                let truth = |predicate: Register| this.predicates[predicate as usize].get();
                this.set_predicate(to, active, f(truth(a), truth(b)));
            }
            Op::Select { to, a, b, predicate } => {
                let (to, a, b, truth) = (r(to), r(a), r(b), this.predicates[predicate as usize].get());
                each(active, |i| to[i].set(if truth >> i & 1 == 1 { a[i].get() } else { b[i].get() }));
            }
            Op::Pack { to, parts, count, bits } => {
                let mask = u64::MAX >> (64 - u32::from(bits));
                each(active, |i| {
                    let packed = (0..usize::from(count))
                        .fold(0, |packed, p| packed | (value(parts[p], i) & mask) << (p * usize::from(bits)));
                    r(to)[i].set(packed);
                });
            }
            Op::Unpack { to, a, count, bits } => {
                let mask = u64::MAX >> (64 - u32::from(bits));
                each(active, |i| {
                    let whole = value(a, i);
                    for (p, &to) in to[..usize::from(count)].iter().enumerate().filter(|(_, to)| **to != NONE) {
                        r(to)[i].set(whole >> (p * usize::from(bits)) & mask);
                    }
                });
            }
            Op::MovePair { to, from } => each(active, |i| {
                let pair = from.map(|from| value(from, i));
                r(to[0])[i].set(pair[0]);
                r(to[1])[i].set(pair[1]);
            }),
            Op::Branch { target } => return Ok(After::Jump(target)),
            Op::Exit => {
                if let Some(store) = this.stores.iter().find(|store| active >> store.lane & 1 == 1) {
                    return Err((store.lane, "ends before the copy engine has read what it stores".into()));
                }
                self.exit(block, warp, active);
                return Ok(After::Part);
            }
            Op::Trap => return Err((first, "trap".into())),
            Op::Load { is_polled, .. } => {
                self.load(block, warp, at, active)?;
                if is_polled {
                    return Ok(After::Poll);
                }
            }
            Op::Store { .. } => self.store(block, warp, at, active)?,
            Op::Atomic { f, space, bytes, old, at, value } => {
                let (address, value) = (at, r(value).clone());
                for i in lanes(active) {
                    let at = self.address(block, warp, address, i);
                    let fail = |e| (i, e);
                    let before = self.read(block, space, at, bytes, u64::from(bytes)).map_err(fail)?;
                    self.write(block, space, at, bytes, u64::from(bytes), f(before, value[i].get(), 0))
                        .map_err(fail)?;
                    if old != NONE {
                        self.blocks[block].warps[warp].registers[old as usize][i].set(before);
                    }
                }
            }
            Op::CompareSwap { space, bytes, old, at, expected, value } => {
                let (address, expected, value) = (at, r(expected).clone(), r(value).clone());
                for i in lanes(active) {
                    let at = self.address(block, warp, address, i);
                    let fail = |e| (i, e);
                    let before = self.read(block, space, at, bytes, u64::from(bytes)).map_err(fail)?;
                    let mask = u64::MAX >> (64 - u32::from(bytes) * 8);
                    if before == expected[i].get() & mask {
                        self.write(block, space, at, bytes, u64::from(bytes), value[i].get()).map_err(fail)?;
                    }
                    if old != NONE {
                        self.blocks[block].warps[warp].registers[old as usize][i].set(before);
                    }
                }
            }
            Op::Barrier { id, threads, any } => {
                let id = self.named(block, warp, id, threads, first)?;
                let this = &mut self.blocks[block].warps[warp];
                this.ready &= !active;
                let any_here = any.is_some_and(|(a, ..)| this.predicates[a as usize].get() & active != 0);
                let barrier = &mut self.blocks[block].barriers[id];
                barrier.any |= any_here;
                barrier.arrived += active.count_ones() as usize;
                barrier.waiting.push((warp, active, any.map(|(_, to, _)| to)));
                self.release(block, id);
                return Ok(After::Part);
            }
            Op::BarrierArrive { id, threads } => {
                let id = self.named(block, warp, id, threads, first)?;
                self.blocks[block].barriers[id].arrived += active.count_ones() as usize;
                self.release(block, id);
                return Ok(After::Part);
            }
            Op::ClusterArrive => {
                let cluster = block / self.of_cluster;
                let barrier = &mut self.clusters[cluster];
                let this = &mut self.blocks[block].warps[warp];
                each(active, |i| this.cluster_phase[i] = barrier.phase);
                barrier.arrived += active.count_ones() as usize;
                self.release_cluster(cluster);
            }
            Op::ClusterWait => {
                let phase = self.clusters[block / self.of_cluster].phase;
                let this = &mut self.blocks[block].warps[warp];
                let waiting =
                    lanes(active).filter(|&i| this.cluster_phase[i] == phase).fold(0, |mask, i| mask | 1 << i);
                this.ready &= !waiting;
                this.cluster_waiting |= waiting;
                return Ok(After::Part);
            }
            Op::WarpBarrier { mask } => return Ok(self.meet(block, warp, at, active, mask, |_, _| {})),
            Op::Shuffle { mode, to, in_range, a, by, clamp, mask } => {
                return Ok(self.meet(block, warp, at, active, mask, |this, all| {
                    this.shuffle(mode, [to, in_range, a, by, clamp], all);
                }));
            }
            Op::Vote { mode, to, a, is_negated, mask } => {
                return Ok(self.meet(block, warp, at, active, mask, |this, all| {
                    let truth = this.predicates[a as usize].get();
                    let truth = all & if is_negated { !truth } else { truth };
                    match mode {
                        Vote::Any => this.set_predicate(to, all, if truth != 0 { u32::MAX } else { 0 }),
                        Vote::All => this.set_predicate(to, all, if truth == all { u32::MAX } else { 0 }),
                        Vote::Ballot => each(all, |i| this.registers[to as usize][i].set(u64::from(truth))),
                    }
                }));
            }
            Op::Reduce { f, to, a, mask } => {
                return Ok(self.meet(block, warp, at, active, mask, |this, all| {
                    let a = &this.registers[a as usize];
                    let result = lanes(all).map(|i| a[i].get()).reduce(|x, y| f(x, y, 0)).unwrap_or(0);
                    each(all, |i| this.registers[to as usize][i].set(result));
                }));
            }
            Op::CopyAsync { to, from, bytes, read } => {
                for i in lanes(active) {
                    let this = &self.blocks[block].warps[warp];
                    let read = this.registers[read as usize][i].get() as u32;
                    if read > u32::from(bytes) {
                        return Err((i, format!("{read} of {bytes} bytes")));
                    }
                    let to = self.address(block, warp, to, i);
                    let from = self.address(block, warp, from, i);
                    let this = &mut self.blocks[block].warps[warp];
                    let group = this.groups[i];
                    this.copies.push(Copy { lane: i, group, to, from, bytes, read: read as u8 });
                }
            }
            Op::CopyCommit => {
                let this = &mut self.blocks[block].warps[warp];
                each(active, |i| this.groups[i] += 1);
            }
            Op::CopyWait { groups, all } => {
                let this = &mut self.blocks[block].warps[warp];
                let is_due = |this: &Warp, copy: &Copy| {
                    active >> copy.lane & 1 == 1 && (all || copy.group + groups < this.groups[copy.lane])
                };
                let (due, rest) = std::mem::take(&mut this.copies).into_iter().partition(|copy| is_due(this, copy));
                this.copies = rest;
                let due: Vec<Copy> = due;
                for Copy { lane, to, from, bytes, read, .. } in due {
                    let fail = |e| (lane, format!("asynchronous copy: {e}"));
                    for byte in (read..bytes).map(u64::from) {
                        self.write(block, Space::Shared, to + byte, 1, 1, 0).map_err(fail)?;
                    }
                    let align = u64::from(bytes);
                    if !to.is_multiple_of(align) || !from.is_multiple_of(align) {
                        return Err(fail(format!("addresses {to:#x} and {from:#x} are not multiples of {align}")));
                    }
                    self.copy(block, to, from, u64::from(read), 1).map_err(fail)?;
                }
            }
            Op::CopyBulk { to, from, bytes, barrier } => {
                for i in lanes(active) {
                    let bytes = self.blocks[block].warps[warp].registers[bytes as usize][i].get() & 0xffff_ffff;
                    if !bytes.is_multiple_of(16) {
                        return Err((i, format!("{bytes} bytes")));
                    }
                    let copy = BulkCopy {
                        to: self.address(block, warp, to, i) & 0xffff_ffff,
                        source: Source::Bytes { from: self.address(block, warp, from, i), bytes },
                        barrier: self.address(block, warp, barrier, i) & 0xffff_ffff,
                    };
                    self.blocks[block].copies.push(copy);
                }
            }
            Op::CopyTensor { number } => {
                self.copy_tensor(block, warp, &program.tensor_copies[number as usize], active)?;
            }
            Op::StoreCommit => {
                let this = &mut self.blocks[block].warps[warp];
                each(active, |i| this.store_groups[i] += 1);
            }
            Op::StoreWait { groups } => self.store_due(block, warp, groups, active)?,
            Op::StoreAsync { bytes, count, values, to, barrier } => {
                for i in lanes(active) {
                    let fail = |e| (i, e);
                    let address = self.address(block, warp, to, i) & 0xffff_ffff;
                    let align = u64::from(bytes) * u64::from(count);
                    for (part, &from) in values[..usize::from(count)].iter().enumerate() {
                        let value = self.blocks[block].warps[warp].registers[from as usize][i].get();
                        let align = if part == 0 { align } else { u64::from(bytes) };
                        let at = address + part as u64 * u64::from(bytes);
                        self.write(block, Space::Shared, at, bytes, align, value).map_err(fail)?;
                    }
                    let barrier = self.address(block, warp, barrier, i) & 0xffff_ffff;
                    self.on_barrier(block, barrier, |b| b.complete(align)).map_err(fail)?;
                }
            }
            Op::BarrierInit { at, count } => {
                let count = r(count).clone();
                for i in lanes(active) {
                    let at = self.address(block, warp, at, i);
                    self.on_barrier(block, at, |b| *b = Barrier::new(count[i].get())).map_err(|e| (i, e))?;
                }
            }
            Op::BarrierObjectArrive { at, expected, count } => {
                let (count, expected) = (r(count).clone(), (expected != NONE).then(|| r(expected).clone()));
                for i in lanes(active) {
                    let at = self.address(block, warp, at, i);
                    let expected = expected.as_ref().map_or(0, |expected| expected[i].get() & 0xffff_ffff);
                    self.on_barrier(block, at, |b| {
                        b.missing_bytes += expected as i64;
                        b.arrive(count[i].get());
                    })
                    .map_err(|e| (i, e))?;
                }
            }
            Op::BarrierExpect { at, expected } => {
                let expected = r(expected).clone();
                for i in lanes(active) {
                    let at = self.address(block, warp, at, i);
                    let bytes = (expected[i].get() & 0xffff_ffff) as i64;
                    self.on_barrier(block, at, |b| b.missing_bytes += bytes).map_err(|e| (i, e))?;
                }
            }
            Op::BarrierTry { to, at, parity } => {
                let parity = r(parity).clone();
                let mut done = 0;
                for i in lanes(active) {
                    let at = self.address(block, warp, at, i);
                    let barrier = Barrier::unpack(self.read(block, Space::Shared, at, 8, 8).map_err(|e| (i, e))?);
                    done |= u32::from(barrier.phase != parity[i].get() & 1) << i;
                }
                self.blocks[block].warps[warp].set_predicate(to, active, done);
                if done != active {
                    return Ok(After::Poll);
                }
            }
            Op::MapRank { to, a, rank } => {
                let offset = (1 << RANK_SHIFT) - 1;
                each(active, |i| r(to)[i].set(value(a, i) & offset | ((value(rank, i) & 0xff) + 1) << RANK_SHIFT));
            }
            Op::Clock { to, bytes } => {
                let clock = if bytes == 4 { self.clock & u64::from(u32::MAX) } else { self.clock };
                each(active, |i| r(to)[i].set(clock));
            }
            Op::Sleep => {
                self.clock += SLEEP_CYCLES;
                return Ok(After::Poll);
            }
            Op::LoadMatrix { to, count, is_transposed, from } => {
                self.load_matrix(block, warp, to, count, is_transposed, from, active)?;
            }
            Op::StoreMatrix { to, values, count, is_transposed } => {
                self.store_matrix(block, warp, to, &values[..usize::from(count)], is_transposed, active)?;
            }
            Op::GroupMultiply { number } => self.begin_product(block, warp, number, active)?,
            Op::GroupCommit => self.blocks[block].warps[warp].product_groups += 1,
            Op::GroupWait { groups } => self.multiply_due(block, warp, groups)?,
            Op::Multiply { shape, to, a, b, c } => {
                if active != u32::MAX {
                    return Err((first, "not all lanes take part".into()));
                }
                this.multiply(shape, to, a, b, c);
            }
        }
        Ok(After::Next)
    }

    fn exit(&mut self, block: usize, warp: usize, active: u32) {
        let count = active.count_ones() as usize;
        let this = &mut self.blocks[block].warps[warp];
        this.live &= !active;
        this.ready &= !active;
        // Lanes that wait for these at a collective instruction may go and look again.
        this.ready |= std::mem::take(&mut this.held);
        self.blocks[block].live -= count;
        for id in 0..NAMED_BARRIERS {
            if self.blocks[block].barriers[id].threads.is_none() {
                self.release(block, id);
            }
        }
        let cluster = block / self.of_cluster;
        self.clusters[cluster].live -= count;
        if self.clusters[cluster].arrived > 0 {
            self.release_cluster(cluster);
        }
    }

    /// The number of a named barrier, which from now on waits for as many threads as asked for.
    fn named(
        &mut self,
        block: usize,
        warp: usize,
        id: Register,
        threads: Register,
        lane: usize,
    ) -> Result<usize, (usize, String)> {
        let Block { warps, barriers, .. } = &mut self.blocks[block];
        let value = |register: Register| warps[warp].registers[register as usize][lane].get() as u32 as usize;
        let id = value(id);
        let threads = (threads != NONE).then(|| value(threads));
        let barrier = barriers.get_mut(id).ok_or_else(|| (lane, format!("barrier {id}")))?;
        if barrier.arrived > 0 && barrier.threads != threads {
            return Err((lane, format!("{threads:?} threads at a barrier of {:?}", barrier.threads)));
        }
        barrier.threads = threads;
        Ok(id)
    }

    /// Runs a collective instruction once all lanes of its mask are there.
    fn meet(
        &mut self,
        block: usize,
        warp: usize,
        at: usize,
        active: u32,
        mask: Register,
        act: impl FnOnce(&Warp, u32),
    ) -> After {
        let this = &mut self.blocks[block].warps[warp];
        let lane = active.trailing_zeros() as usize;
        let members = this.registers[mask as usize][lane].get() as u32 & this.live;
        let here = lanes(this.held).filter(|&i| this.at[i] == at).fold(0, |mask, i| mask | 1 << i);
        let all = active | here;
        if members & !all != 0 {
            this.held |= active;
            this.ready &= !active;
            return After::Stay;
        }
        this.held &= !all;
        this.ready |= all;
        act(this, all & members);
        if here == 0 { After::Next } else { After::Met(all) }
    }

    fn address(&self, block: usize, warp: usize, address: Address, lane: usize) -> u64 {
        let base = self.blocks[block].warps[warp].registers[address.base as usize][lane].get();
        base.wrapping_add_signed(address.offset)
    }

    fn load(&mut self, block: usize, warp: usize, at: usize, active: u32) -> Result<(), (usize, String)> {
        let Op::Load { space, bytes, is_signed, count, to, from, .. } = self.launch.program.instructions[at].op else {
            return Ok(());
        };
        let step = u64::from(bytes);
        for i in lanes(active) {
            let fail = |e| (i, e);
            let mut address = self.address(block, warp, from, i);
            if space == Space::Shared {
                address &= 0xffff_ffff;
            }
            let mut values = [0; 4];
            for (part, value) in values[..usize::from(count)].iter_mut().enumerate() {
                let align = if part == 0 { step * u64::from(count) } else { step };
                let at = address.wrapping_add(part as u64 * step);
                *value = match space {
                    Space::Parameter => bytes_at(self.launch.parameters, at as u32 as u64, bytes).map_err(fail)?,
                    Space::Local => {
                        let this = &self.blocks[block].warps[warp];
                        let size = self.launch.program.local_bytes as usize;
                        bytes_at(&this.local[i * size..][..size], at & 0xffff_ffff, bytes).map_err(fail)?
                    }
                    _ => self.read(block, space, at, bytes, align).map_err(fail)?,
                };
                if is_signed {
                    let shift = 64 - 8 * u32::from(bytes);
                    *value = ((*value << shift) as i64 >> shift) as u64;
                }
            }
            let this = &self.blocks[block].warps[warp];
            for (&to, value) in to[..usize::from(count)].iter().zip(values).filter(|(to, _)| **to != NONE) {
                this.registers[to as usize][i].set(value);
            }
        }
        Ok(())
    }

    fn store(&mut self, block: usize, warp: usize, at: usize, active: u32) -> Result<(), (usize, String)> {
        let Op::Store { space, bytes, count, values, to } = self.launch.program.instructions[at].op else {
            return Ok(());
        };
        let step = u64::from(bytes);
        for i in lanes(active) {
            let fail = |e| (i, e);
            let mut address = self.address(block, warp, to, i);
            if space == Space::Shared {
                address &= 0xffff_ffff;
            }
            for (part, &from) in values[..usize::from(count)].iter().enumerate() {
                let value = self.blocks[block].warps[warp].registers[from as usize][i].get();
                let align = if part == 0 { step * u64::from(count) } else { step };
                let at = address.wrapping_add(part as u64 * step);
                if space == Space::Local {
                    let size = self.launch.program.local_bytes as usize;
                    let local = &mut self.blocks[block].warps[warp].local[i * size..][..size];
                    let at = (at & 0xffff_ffff) as usize;
                    let place = local.get_mut(at..at + usize::from(bytes));
                    let place = place.ok_or_else(|| fail(format!("byte {at} of {size} in local memory")))?;
                    place.copy_from_slice(&value.to_le_bytes()[..usize::from(bytes)]);
                } else {
                    self.write(block, space, at, bytes, align, value).map_err(fail)?;
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "they are the instruction's operands")]
    fn load_matrix(
        &mut self,
        block: usize,
        warp: usize,
        to: [Register; 4],
        count: u8,
        is_transposed: bool,
        from: Address,
        active: u32,
    ) -> Result<(), (usize, String)> {
        if active != u32::MAX {
            return Err((active.trailing_zeros() as usize, "not all lanes take part".into()));
        }
        for (matrix, &to) in to[..usize::from(count)].iter().enumerate() {
            let mut rows = [[0u16; 8]; 8];
            for (row, elements) in rows.iter_mut().enumerate() {
                let lane = matrix * 8 + row;
                let address = self.address(block, warp, from, lane) & 0xffff_ffff;
                for (column, element) in elements.iter_mut().enumerate() {
                    let align = if column == 0 { 16 } else { 2 };
                    let at = address + 2 * column as u64;
                    *element = self.read(block, Space::Shared, at, 2, align).map_err(|e| (lane, e))? as u16;
                }
            }
            let this = &self.blocks[block].warps[warp];
            for lane in 0..LANES {
                let (row, column) = (lane / 4, 2 * (lane % 4));
                let pair = |part: usize| {
                    if is_transposed { rows[column + part][row] } else { rows[row][column + part] }
                };
                this.registers[to as usize][lane].set(u64::from(pair(0)) | u64::from(pair(1)) << 16);
            }
        }
        Ok(())
    }

    fn store_matrix(
        &mut self,
        block: usize,
        warp: usize,
        to: Address,
        values: &[Register],
        is_transposed: bool,
        active: u32,
    ) -> Result<(), (usize, String)> {
        if active != u32::MAX {
            return Err((active.trailing_zeros() as usize, "not all lanes take part".into()));
        }
        for (matrix, &from) in values.iter().enumerate() {
            let words = self.blocks[block].warps[warp].registers[from as usize].clone();
            for row in 0..8 {
                let lane = matrix * 8 + row;
                let address = self.address(block, warp, to, lane) & 0xffff_ffff;
                for column in 0..8 {
                    let (line, place) = if is_transposed { (column, row) } else { (row, column) };
                    let element = words[line * 4 + place / 2].get() >> (16 * (place % 2)) & 0xffff;
                    let align = if column == 0 { 16 } else { 2 };
                    self.write(block, Space::Shared, address + 2 * column as u64, 2, align, element)
                        .map_err(|e| (lane, e))?;
                }
            }
        }
        Ok(())
    }
}

fn bytes_at(memory: &[u8], at: u64, bytes: u8) -> Result<u64, String> {
    let range = at as usize..at as usize + usize::from(bytes);
    let found = memory.get(range).ok_or_else(|| format!("byte {at} of {}", memory.len()))?;
    let mut whole = [0; 8];
    whole[..found.len()].copy_from_slice(found);
    Ok(u64::from_le_bytes(whole))
}

enum Stretch {
    Over,
    Polled,
    Turn,
}

/// Where lanes are after an instruction.
enum After {
    Next,
    Jump(usize),
    /// The active lanes stay where they are.
    Stay,
    /// These lanes, which waited here, go on with the others.
    Met(u32),
    /// All go on, but not all may be ready.
    Part,
    /// All go on, after others had their turn.
    Poll,
}

impl Block {
    fn new(launch: &Launch<'_>, index: [u32; 3], rank: usize, threads: usize) -> Self {
        let warps = (0..threads.div_ceil(LANES)).map(|warp| Warp::new(launch, index, rank, warp, threads)).collect();
        let barriers = (0..NAMED_BARRIERS).map(|_| NamedBarrier::default()).collect();
        Self { index, warps, barriers, live: threads, copies: Vec::new() }
    }
}

impl Warp {
    fn new(launch: &Launch<'_>, index: [u32; 3], rank: usize, warp: usize, threads: usize) -> Self {
        let program = launch.program;
        // What was never written is no number that a sum would forgive.
        let unset = || std::array::from_fn(|_| Cell::new(u64::MAX));
        let registers: Vec<[Cell<u64>; LANES]> = (0..program.registers).map(|_| unset()).collect();
        for &(register, value) in &program.constants {
            registers[register as usize].iter().for_each(|lane| lane.set(value));
        }
        let [width, height, _] = launch.block;
        for &(register, special) in &program.specials {
            for (lane, cell) in registers[register as usize].iter().enumerate() {
                let thread = (warp * LANES + lane) as u32;
                let place = [thread % width, thread / width % height, thread / (width * height)];
                cell.set(u64::from(match special {
                    Special::Thread(d) => place[d],
                    Special::Threads(d) => launch.block[d],
                    Special::Block(d) => index[d],
                    Special::Blocks(d) => launch.grid[d],
                    Special::Lane => lane as u32,
                    Special::Warp => warp as u32,
                    Special::ClusterRank => rank as u32,
                    Special::ClusterBlocks => launch.cluster.iter().product(),
                    Special::LanesBelow => (1 << lane) - 1,
                    Special::DynamicBytes => launch.dynamic_bytes,
                    Special::Environment(half) => (launch.meeting_place >> (32 * half)) as u32,
                }));
            }
        }
        let live = match threads - warp * LANES {
            ..LANES => (1 << (threads - warp * LANES)) - 1,
            _ => u32::MAX,
        };
        Self {
            registers,
            predicates: vec![Cell::new(0); program.predicates as usize],
            at: [0; LANES],
            live,
            ready: live,
            held: 0,
            cluster_phase: [u64::MAX; LANES],
            cluster_waiting: 0,
            local: vec![0xff; program.local_bytes as usize * LANES],
            copies: Vec::new(),
            groups: [0; LANES],
            stores: Vec::new(),
            store_groups: [0; LANES],
            products: Vec::new(),
            product_groups: 0,
            yielded_at: None,
        }
    }

    /// The lanes to run next: those furthest behind, so that lanes that parted meet again; after a pause, others first.
    fn choose(&mut self) -> (usize, u32) {
        let least = |from: usize| lanes(self.ready).map(|i| self.at[i]).filter(|&at| at >= from).min();
        let at = match self.yielded_at.take() {
            Some(last) => least(last + 1).or_else(|| least(0)),
            None => least(0),
        };
        let at = at.unwrap_or(0);
        (at, lanes(self.ready).filter(|&i| self.at[i] == at).fold(0, |mask, i| mask | 1 << i))
    }

    fn put(&mut self, mask: u32, at: usize) {
        each(mask, |i| self.at[i] = at);
    }

    fn set_predicate(&self, to: Register, active: u32, truth: u32) {
        if to != NONE {
            let predicate = &self.predicates[to as usize];
            predicate.set(predicate.get() & !active | truth & active);
        }
    }

    fn shuffle(&self, mode: Shuffle, [to, in_range, a, by, clamp]: [Register; 5], all: u32) {
        let value = |register: Register, lane: usize| self.registers[register as usize][lane].get();
        let before: [u64; LANES] = std::array::from_fn(|i| value(a, i));
        let mut truth = 0;
        for i in lanes(all) {
            let (by, clamp) = (value(by, i) as usize & 31, value(clamp, i) as usize);
            let (segment, clamp) = (clamp >> 8 & 31, clamp & 31);
            let last = i & segment | clamp & !segment;
            let first = i & segment;
            let (from, is_in) = match mode {
                Shuffle::Up => (i.wrapping_sub(by), i >= by && i - by >= last),
                Shuffle::Down => (i + by, i + by <= last),
                Shuffle::Xor => (i ^ by, i ^ by <= last),
                Shuffle::Index => (first | by & !segment, first | by & !segment <= last),
            };
            let from = if is_in { from } else { i };
            if to != NONE {
                self.registers[to as usize][i].set(before[from]);
            }
            truth |= u32::from(is_in) << i;
        }
        self.set_predicate(in_range, all, truth);
    }

    /// A tensor core's product: exact products, summed in f64 and rounded once, where the hardware rounds more often.
    fn multiply(&self, shape: Shape, to: [Register; 4], a: [Register; 4], b: [Register; 2], c: [Register; 4]) {
        let bits = |register: Register, lane: usize| self.registers[register as usize][lane].get() as u32;
        let half = |register: Register, lane: usize, part: usize| {
            let bits = (bits(register, lane) >> (16 * part)) as u16;
            match shape {
                Shape::F16 => half::f16::from_bits(bits).to_f64(),
                _ => half::bf16::from_bits(bits).to_f64(),
            }
        };
        // A tensor core reads 10 bits of fraction of a tf32 number.
        let tf32 = |register: Register, lane: usize| f64::from(f32::from_bits(bits(register, lane) & !0x1fff));
        let (mut left, mut right) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
        let depth = match shape {
            Shape::F16 | Shape::Bf16 => 16,
            Shape::Tf32 => 8,
            Shape::Tf32Short => 4,
        };
        for lane in 0..LANES {
            let (g, t) = (lane / 4, lane % 4);
            match shape {
                Shape::F16 | Shape::Bf16 => {
                    for part in 0..2 {
                        for (register, (row, column)) in [(0, 0), (8, 0), (0, 8), (8, 8)].into_iter().enumerate() {
                            left[g + row][2 * t + part + column] = half(a[register], lane, part);
                        }
                        right[2 * t + part][g] = half(b[0], lane, part);
                        right[2 * t + part + 8][g] = half(b[1], lane, part);
                    }
                }
                Shape::Tf32 | Shape::Tf32Short => {
                    left[g][t] = tf32(a[0], lane);
                    left[g + 8][t] = tf32(a[1], lane);
                    right[t][g] = tf32(b[0], lane);
                    if shape == Shape::Tf32 {
                        left[g][t + 4] = tf32(a[2], lane);
                        left[g + 8][t + 4] = tf32(a[3], lane);
                        right[t + 4][g] = tf32(b[1], lane);
                    }
                }
            }
        }
        for lane in 0..LANES {
            let (g, t) = (lane / 4, lane % 4);
            for (part, (row, column)) in
                [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)].into_iter().enumerate()
            {
                let before = f64::from(f32::from_bits(bits(c[part], lane)));
                let sum = (0..depth).fold(before, |sum, k| sum + left[row][k] * right[k][column]);
                self.registers[to[part] as usize][lane].set(u64::from((sum as f32).to_bits()));
            }
        }
    }
}

/// An mbarrier: what its 8 bytes in shared memory hold here.
#[derive(Debug, PartialEq, Eq)]
struct Barrier {
    pending: u64,
    count: u64,
    missing_bytes: i64,
    phase: u64,
}

impl Barrier {
    const COUNT_BITS: u32 = 20;
    const BYTES_BITS: u32 = 23;

    fn new(count: u64) -> Self {
        Self { pending: count, count, missing_bytes: 0, phase: 0 }
    }

    fn unpack(bits: u64) -> Self {
        let count = |shift: u32| bits >> shift & ((1 << Self::COUNT_BITS) - 1);
        let bytes = bits << (64 - 2 * Self::COUNT_BITS - Self::BYTES_BITS);
        Self {
            pending: count(0),
            count: count(Self::COUNT_BITS),
            missing_bytes: bytes as i64 >> (64 - Self::BYTES_BITS),
            phase: bits >> 63,
        }
    }

    fn pack(&self) -> u64 {
        let bytes = self.missing_bytes as u64 & ((1 << Self::BYTES_BITS) - 1);
        self.pending | self.count << Self::COUNT_BITS | bytes << (2 * Self::COUNT_BITS) | self.phase << 63
    }

    fn arrive(&mut self, count: u64) {
        self.pending = self.pending.wrapping_sub(count) & ((1 << Self::COUNT_BITS) - 1);
        self.turn();
    }

    fn complete(&mut self, bytes: u64) {
        self.missing_bytes -= bytes as i64;
        self.turn();
    }

    fn turn(&mut self) {
        if self.pending == 0 && self.missing_bytes == 0 {
            self.pending = self.count;
            self.phase ^= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{program, ptx};

    /// Runs a kernel `k(.param .u64 out)` of one block on memory of 64 words, which are 0 before.
    fn run_block(body: &str, threads: u32, is_reversed: bool) -> Result<Vec<u32>, Fault> {
        let text = format!(".visible .entry k(\n.param .u64 out\n)\n{{\n{body}\nret;\n}}\n");
        let program = program::decode("k", &ptx::entries(&text)["k"]).unwrap();
        let mut memory = vec![0u32; 64];
        let start = memory.as_mut_ptr() as u64;
        run(&Launch {
            program: &program,
            grid: [1; 3],
            block: [threads, 1, 1],
            cluster: [1; 3],
            dynamic_bytes: 0,
            is_cooperative: false,
            parameters: &start.to_le_bytes(),
            allocations: &[(start, start + 256)],
            meeting_place: 0,
            is_reversed,
        })?;
        Ok(memory)
    }

    const SETUP: &str = ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<3>;\n.shared .align 16 .b8 s[256];\n\
        mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [out];\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n\
        mov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\n";

    #[test]
    fn lanes_part_and_meet_again() {
        // 1 for odd threads, their number for even ones, then the sum with the neighbour's.
        let body = format!(
            "{SETUP}and.b32 %r5, %r1, 1;\nsetp.eq.s32 %p1, %r5, 1;\nmov.u32 %r6, 1;\n@%p1 bra $L1;\nmov.u32 %r6, %r1;\n$L1:\n\
             shfl.sync.bfly.b32 %r7|%p2, %r6, 1, 31, -1;\nadd.s32 %r8, %r6, %r7;\nst.global.u32 [%rd3], %r8;"
        );
        let found = run_block(&body, 32, false).unwrap();
        assert!((0..32).all(|i| found[i] == 1 + (i as u32 & !1)), "{found:?}");
    }

    #[test]
    fn a_write_past_the_end_names_the_thread_and_the_instruction() {
        let fault = run_block(&format!("{SETUP}st.global.u32 [%rd3+192], %r1;"), 32, false).unwrap_err().to_string();
        assert!(fault.contains("thread 16") && fault.contains("st.global.u32 [%rd3+192]"), "{fault}");
        let fault =
            run_block(&format!("{SETUP}st.shared.v2.u32 [%r4], {{%r1, %r1}};"), 32, false).unwrap_err().to_string();
        assert!(fault.contains("thread 1:") && fault.contains("multiple of 8"), "{fault}");
    }

    #[test]
    fn the_clock_grows_while_threads_compute_and_sleep() {
        // The clock before, after one more instruction, and after a loop that waits for 5000 cycles and sleeps meanwhile.
        let body = format!(
            "{SETUP}mov.u32 %r5, %clock;\nmov.u64 %rd4, %clock64;\nadd.s64 %rd5, %rd4, 5000;\n$L1:\nnanosleep.u32 64;\n\
             mov.u64 %rd6, %clock64;\nsetp.lt.s64 %p1, %rd6, %rd5;\n@%p1 bra $L1;\nst.global.u32 [%rd1], %r5;\n\
             st.global.u32 [%rd1+4], %rd4;\nst.global.u32 [%rd1+8], %rd6;"
        );
        let found = run_block(&body, 32, false).unwrap();
        assert_eq!(found[1], found[0] + 1, "{found:?}");
        assert!((5000..5000 + 80).contains(&(found[2] - found[1])), "{found:?}");
    }

    #[test]
    fn a_missing_barrier_gives_other_results_in_reverse_order() {
        let exchange = |barrier: &str| {
            format!(
                "{SETUP}st.shared.u32 [%r4], %r1;\n{barrier}\nsub.s32 %r5, 252, %r3;\nadd.s32 %r6, %r2, %r5;\n\
                 ld.shared.u32 %r7, [%r6];\nst.global.u32 [%rd3], %r7;"
            )
        };
        let [with, without] = ["bar.sync 0;", ""]
            .map(|barrier| [false, true].map(|is_reversed| run_block(&exchange(barrier), 64, is_reversed).unwrap()));
        assert_eq!(with[0], (0..64).rev().collect::<Vec<u32>>());
        assert_eq!(with[0], with[1]);
        assert_ne!(without[0], without[1]);
        assert!(without[0].contains(&u32::MAX), "what nobody has written is no number");
    }

    #[test]
    fn a_copy_that_nobody_waits_for_has_not_landed() {
        let copy = |wait: &str| {
            format!(
                "{SETUP}st.global.u32 [%rd3], %r1;\ncp.async.ca.shared.global [%r4], [%rd3], 4;\ncp.async.commit_group;\n{wait}\n\
                 ld.shared.u32 %r5, [%r4];\nst.global.u32 [%rd3], %r5;"
            )
        };
        let waited = run_block(&copy("cp.async.wait_group 0;"), 32, false).unwrap();
        assert!((0..32).all(|i| waited[i] == i as u32));
        assert!(
            run_block(&copy("cp.async.wait_group 1;"), 32, false).unwrap()[..32].iter().all(|&word| word == u32::MAX)
        );
    }

    #[test]
    fn a_product_that_nobody_waits_for_has_no_sums() {
        // 64 lines of ones, and eight whose numbers are 0, 1, ...: the sums of 16 of k are 16 times the column.
        let lines: String = (0..8)
            .map(|chunk| format!("@%p1 st.shared.v4.u32 [%r6+{}], {{%r8, %r8, %r8, %r8}};\n", 16 * chunk))
            .collect();
        let descriptor = |line: u64| (1 << 62) | (64 << 32) | ((1024 + 128 * line) / 16);
        let product = |wait: &str| {
            format!(
                "{SETUP}.shared .align 1024 .b8 f[9216];\n.reg .f32 %f<6>;\nmov.u32 %r5, f;\nmad.lo.s32 %r6, %r1, 128, %r5;\n\
                 sub.s32 %r7, %r1, 64;\ncvt.rn.f32.s32 %f5, %r7;\ncvt.rn.f16x2.f32 %r8, %f5, %f5;\nsetp.lt.u32 %p2, %r1, 64;\n\
                 selp.b32 %r8, 0x3c003c00, %r8, %p2;\nsetp.lt.u32 %p1, %r1, 72;\n{lines}bar.sync 0;\nmov.u64 %rd4, {};\n\
                 mov.u64 %rd5, {};\nsetp.lt.u32 %p1, 1, 0;\nwgmma.fence.sync.aligned;\n\
                 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %rd4, %rd5, %p1, 1, 1, 0, 0;\n\
                 wgmma.commit_group.sync.aligned;\n{wait}\n@%p2 st.global.f32 [%rd3], %f2;",
                descriptor(0),
                descriptor(64)
            )
        };
        let waited = run_block(&product("wgmma.wait_group.sync.aligned 0;"), 128, true).unwrap();
        assert!((0..64).all(|i| f32::from_bits(waited[i]) == 16.0 * (i % 4 * 2 + 1) as f32), "{waited:?}");
        let not_waited = run_block(&product("wgmma.wait_group.sync.aligned 1;"), 128, true).unwrap();
        assert!(not_waited.iter().all(|&word| word == u32::MAX));
    }

    #[test]
    fn threads_that_wait_for_nobody_are_reported() {
        let fault = run_block(&format!("{SETUP}bar.sync 1, 64;"), 32, false).unwrap_err().to_string();
        assert!(fault.contains("no thread can go on") && fault.contains("bar.sync 1, 64"), "{fault}");
    }

    #[test]
    fn a_barrier_object_turns_when_all_have_arrived_and_all_bytes_are_there() {
        let mut barrier = Barrier::new(2);
        barrier.missing_bytes = 64;
        barrier.arrive(1);
        barrier.arrive(1);
        assert_eq!(barrier.phase, 0);
        barrier = Barrier::unpack(barrier.pack());
        barrier.complete(64);
        assert_eq!(barrier, Barrier { pending: 2, count: 2, missing_bytes: 0, phase: 1 });
        barrier.complete(16);
        assert_eq!(Barrier::unpack(barrier.pack()), barrier);
        assert_eq!(barrier.missing_bytes, -16);
    }
}
