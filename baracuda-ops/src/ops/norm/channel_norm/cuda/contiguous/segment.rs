//! Groups of one segment in the registers of a block.

use baracuda_ops_sys as sys;

use super::{Answer, ChannelProblem, Chosen, needs};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

/// The most vectors of x of a thread, forward, which its registers hold.
const FORWARD_VECTORS: u64 = 8;
/// The most vectors of dy, and of x, of a thread, backward.
const BACKWARD_VECTORS: u64 = 4;
/// The most threads of a block.
const THREADS: u64 = 512;
/// Bytes of x beyond which forward is slower than `single`, whose blocks start one after another. There is no such limit for SiLU of 16-bit
/// elements, for which `single` takes as many instructions.
const FORWARD_BYTES: u64 = 96 << 20;

pub(in super::super) type Choice = sys::bops_channel_norm_segment_choice;

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let chosen = choose(p, FORWARD_VECTORS)?;
    let bytes = p.shape.group_count().saturating_mul(p.group_vectors()? * 16);
    let is_costly = p.activation == Activation::Silu && p.element_bytes == 2;
    needs(p.is_pinned || is_costly || bytes <= FORWARD_BYTES, "the form single is faster over so many bytes")?;
    Ok(Chosen { workspace_bytes: p.running_bytes(), launches: 1 + p.running_launches(), ..chosen })
}

pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    needs(p.has_dx, "it writes dx, which is not wanted")?;
    let chosen = choose(p, BACKWARD_VECTORS)?;
    let workspace_bytes = p.segment_sum_bytes(1);
    Ok(Chosen { workspace_bytes, launches: 1 + u32::from(workspace_bytes > 0), ..chosen })
}

fn choose(p: &ChannelProblem, most_vectors: u64) -> Answer<Choice> {
    let all = p.group_vectors()?;
    needs(p.shape.groups > 0 && p.shape.group_segments() == 1, "a group is more than one segment")?;
    needs(!p.is_general(), "it takes no residual, and no activation but relu and silu")?;
    let threads = all.div_ceil(most_vectors).next_multiple_of(32);
    needs(threads <= THREADS, "512 threads have no registers for a segment")?;
    let choice = Choice {
        vectors: word(all.div_ceil(threads)),
        threads: word(threads),
        // below 2^31 by `group_vectors`
        blocks: grid(p.shape.group_count()).ok_or("too many groups")?,
        overlaps: u32::from(p.capability >= 90),
    };
    Ok(Chosen::alone(choice))
}
