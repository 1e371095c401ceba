//! Channels with small spatial extents: all samples of a few channels on chip.

use baracuda_ops_sys as sys;

use super::{Answer, ChannelProblem, Chosen, needs};
use crate::narrow::{grid, word};

pub(in super::super) type Choice = sys::bops_channel_norm_stripe_choice;

/// The most threads of a block.
const THREADS: u64 = 512;
/// Channels that a block may have.
const CHANNELS: [u64; 4] = [1, 2, 4, 8];
/// Threads of all blocks that share an SM, at most, forward.
const FORWARD_RESIDENT_THREADS: u64 = 1024;
/// Threads of all blocks that share an SM, at most, backward.
const BACKWARD_RESIDENT_THREADS: u64 = 512;
/// The most blocks that share an SM.
const RESIDENTS: u64 = 4;
/// Shared memory of a block that kernels declare themselves and that the device keeps for itself, in bytes.
const OWN_SHARED_BYTES: u64 = 1536;
/// If registers hold 16-bit elements: the most threads of a block.
const REGISTER_THREADS: u64 = 256;
/// If registers hold 16-bit elements: the most samples of a thread.
const REGISTER_SAMPLES: u64 = 13;
/// The longest chain of additions, over the samples of a thread and across threads: what the budget of the sums allows.
const CHAIN: u64 = 48;
/// Additions that end a chain, as `stripe_share::channel_sum` of `channel_norm_stripe.cuh` has them: two that join four sums of a thread, and five across
/// a warp.
const CHAIN_END: u64 = 2 + 5;
/// Samples of a thread, at least, unless there are fewer: they outweigh the additions across threads.
const SAMPLES: u64 = 8;

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let chosen = choose(p, 1, FORWARD_RESIDENT_THREADS)?;
    Ok(Chosen { launches: 1 + p.running_launches(), ..chosen })
}

pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    choose(p, 2, BACKWARD_RESIDENT_THREADS)
}

/// `arrays`: tensors on chip, which are x, or dy and x.
fn choose(p: &ChannelProblem, arrays: u64, resident_threads: u64) -> Answer<Choice> {
    let shape = &p.shape;
    let size = p.element_bytes;
    p.check_contiguous()?;
    needs(shape.groups == 0, "every sample has statistics of its own")?;
    needs(size < 8, "it has no f64")?;
    needs(!p.inference, "it takes its statistics from the batch, not the running ones")?;
    needs(p.sample_vector_bytes == 16, "a sample has to be gapless and a whole number of vectors of 16 bytes")?;
    needs(
        p.is_pinned || p.access_bytes() < 16,
        "segments are whole vectors of 16 bytes, for which other forms are faster",
    )?;
    needs(!p.has_extra || p.is_at_most_relu(), "it takes a residual or y with no activation but relu")?;
    needs(p.has_elements(), "there are no elements")?;
    layout(p, arrays, resident_threads).ok_or_else(|| {
        "a block has no room for a channel of all samples in at most 48 additions one after another".into()
    })
}

fn layout(p: &ChannelProblem, arrays: u64, resident_threads: u64) -> Option<Chosen<Choice>> {
    let shape = &p.shape;
    let size = p.element_bytes;
    let channels = *CHANNELS.iter().find(|&&channels| (channels * shape.spatial * size).is_multiple_of(16))?;
    let run = channels.checked_mul(shape.spatial)?;
    let bytes = run.checked_mul(shape.batch)?.checked_mul(size * arrays)?;
    if !shape.channels.is_multiple_of(channels) {
        return None;
    }
    let (blocks, vectors) = (shape.channels / channels, run * size / 16);
    // For one of the samples that a block takes at once: two sums of every element of the run.
    let sums = run.checked_mul(8)?;
    let fitting = p.shared_bytes / bytes.checked_add(sums)?.checked_add(OWN_SHARED_BYTES)?;
    let residents = fitting.min(RESIDENTS).min(blocks.div_ceil(p.multiprocessors));
    let room = (p.shared_bytes.checked_div(residents)?).checked_sub(bytes + OWN_SHARED_BYTES)?;
    let threads = (resident_threads / residents).min(THREADS);
    let samples_of = |threads: u64| (threads / vectors).min(shape.batch.div_ceil(SAMPLES));
    let in_registers = samples_of(REGISTER_THREADS);
    let is_held = arrays == 1 && size == 2 && p.is_at_most_relu() && in_registers > 0;
    let is_held = is_held && shape.batch.div_ceil(in_registers) <= REGISTER_SAMPLES;
    let samples_at_once = if is_held { in_registers } else { samples_of(threads).min(room / sums) };
    let chain = shape.batch.div_ceil(samples_at_once.max(1)) + shape.spatial.div_ceil(32) * samples_at_once + CHAIN_END;
    (samples_at_once > 0 && chain <= CHAIN).then_some(())?;
    let choice = Choice {
        channels: word(channels),
        samples_at_once: word(samples_at_once),
        threads: word((samples_at_once * vectors).next_multiple_of(32)),
        blocks: grid(blocks)?,
        in_registers: u32::from(is_held),
        overlaps: u32::from(p.capability >= 90),
    };
    Some(Chosen::alone(choice))
}
