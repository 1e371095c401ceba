//! Channels of small spatial extents, of all samples on chip.

use baracuda_ops_sys as sys;

use super::{Problem, Tuned, running_launches};
use crate::narrow::{grid, to_usize, word};

/// Threads of a block of the stripe variant, and the channels it may have.
const THREADS: u64 = 512;
const CHANNELS: [u64; 4] = [1, 2, 4, 8];
/// Threads of the blocks that share a multiprocessor: forward, backward.
const RESIDENT_THREADS: [u64; 2] = [1024, 512];
/// The most blocks that share a multiprocessor.
const RESIDENTS: u64 = 4;
/// Shared memory of a block that kernels declare themselves and that the device keeps for itself, in bytes.
const SHARED: u64 = 1536;
/// 16-bit elements in registers: threads of a block, and samples of a thread, at most.
const HELD: [u64; 2] = [256, 13];
/// The longest chain of additions: over the samples of a thread, and across threads.
const CHAIN: u64 = 48;
/// Samples of a thread that make up for the sums across threads.
const SAMPLES: u64 = 8;

/// BatchNorm over small spatial extents that are no whole number of vectors: a few channels of all samples on chip. `arrays`: x, or dy and x.
pub(super) fn choose(p: &Problem, arrays: u64) -> Option<Tuned> {
    let shape = &p.shape;
    let size = u64::from(p.element_bytes);
    let serves = shape.groups == 0 && !p.inference && p.sample_vector_bytes == 16 && p.vec_bytes() < 16;
    if !serves || p.has_extra && !p.is_at_most_relu() || size == 8 || shape.batch * shape.channels * shape.spatial == 0
    {
        return None;
    }
    let channels = *CHANNELS.iter().find(|&&channels| (channels * shape.spatial * size).is_multiple_of(16))?;
    let run = channels.checked_mul(shape.spatial)?;
    let bytes = run.checked_mul(shape.batch)?.checked_mul(size * arrays)?;
    if !shape.channels.is_multiple_of(channels) {
        return None;
    }
    let (blocks, vectors) = (shape.channels / channels, run * size / 16);
    // Two sums of every element of a run in every turn.
    let sums = run.checked_mul(8)?;
    let fitting = u64::from(p.shared_bytes) / bytes.checked_add(sums)?.checked_add(SHARED)?;
    let residents = fitting.min(RESIDENTS).min(blocks.div_ceil(u64::from(p.multiprocessors)));
    let room = (u64::from(p.shared_bytes).checked_div(residents)?).checked_sub(bytes + SHARED)?;
    let threads = (RESIDENT_THREADS[to_usize(arrays) - 1] / residents).min(THREADS);
    let turns_of = |threads: u64| (threads / vectors).min(shape.batch.div_ceil(SAMPLES));
    let held = turns_of(HELD[0]);
    let is_held = arrays == 1 && size == 2 && p.is_at_most_relu() && held > 0;
    let is_held = is_held && shape.batch.div_ceil(held) <= HELD[1];
    let turns = if is_held { held } else { turns_of(threads).min(room / sums) };
    let chain = shape.batch.div_ceil(turns.max(1)) + shape.spatial.div_ceil(32) * turns + 7;
    (turns > 0 && chain <= CHAIN).then_some(())?;
    Some(Tuned {
        variant: sys::BOPS_CHANNEL_NORM_STRIPE,
        vec_bytes: 16,
        vectors: word(channels),
        chunks: word(turns),
        threads: word((turns * vectors).next_multiple_of(32)),
        cluster: 1,
        grid: grid(blocks)?,
        stages: u32::from(is_held),
        overlaps: u32::from(p.capability >= 90),
        launches: 1 + if arrays == 1 { running_launches(p) } else { 0 },
        ..Tuned::default()
    })
}
