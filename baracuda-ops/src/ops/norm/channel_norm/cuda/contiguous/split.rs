//! Groups in passes: they are read once for their moments or sums and again for what is written. Serves every contiguous problem.

use baracuda_ops_sys as sys;

use super::{Answer, ChannelProblem, Chosen};
use crate::error::Reason;
use crate::narrow::word;

pub(in super::super) type Choice = sys::bops_channel_norm_split_choice;

/// Accesses of a thread in a part: those that are under way at once.
const ACCESSES: u64 = 4;
/// Accesses of a thread in a part of long segments in large problems, where the sums of a part cost as much as reading 4 accesses.
const LONG_ACCESSES: u64 = 16;
/// Blocks of an SM from which on a problem counts as large.
const LARGE_BLOCKS: u64 = 4;
/// Threads of a block.
const THREADS: u64 = 256;
/// Backward: vectors of a segment up to which a part is that of one warp. Such a part has no barrier to wait at, and no threads without a vector.
const WARP_VECTORS: u64 = 1024;

fn split(p: &ChannelProblem) -> Result<Choice, Reason> {
    p.check_contiguous()?;
    let access_bytes = p.access_bytes();
    let vectors = p.shape.spatial / (access_bytes / p.element_bytes);
    let team = vectors.div_ceil(ACCESSES).clamp(1, 32).next_power_of_two();
    let threads = if vectors > 32 * ACCESSES { THREADS } else { team };
    let rows = p.shape.batch.saturating_mul(p.shape.channels);
    let long_parts = rows.saturating_mul(vectors.div_ceil(THREADS * LONG_ACCESSES));
    let is_large = long_parts >= p.multiprocessors * LARGE_BLOCKS;
    let accesses = if vectors >= THREADS * LONG_ACCESSES && is_large { LONG_ACCESSES } else { ACCESSES };
    let parts = vectors.div_ceil(threads * accesses);
    let limited = u32::try_from(parts);
    Ok(Choice {
        access_bytes: word(access_bytes),
        threads: word(threads),
        accesses: word(accesses),
        parts: limited.map_err(|_| format!("a segment has {parts} parts, the limit is {}", u32::MAX))?,
        writes_gapless: 0,
        later_overlaps: u32::from(p.capability >= 90),
    })
}

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let mut choice = split(p)?;
    let elements = p.shape.batch.saturating_mul(p.shape.channels).saturating_mul(p.shape.spatial);
    let is_wide = p.sample_vector_bytes == 16 && p.shape.spatial * p.element_bytes >= 16;
    if choice.access_bytes < 16 && p.element_bytes < 8 && is_wide && elements > 0 && elements < 1 << 32 {
        choice.writes_gapless = 1;
    }
    if p.inference {
        return Ok(Chosen::alone(choice));
    }
    let segments = p.shape.batch * p.shape.channels;
    // A group has a shift, a correction, rstd and the unbiased variance; a part has a shift, a sum and a sum of squares.
    let workspace_bytes = p.number_bytes(&[&[p.shape.group_count(), 4], &[segments, choice.parts.into(), 3]])?;
    Ok(Chosen { choice, workspace_bytes, launches: 3 + p.running_launches() })
}

pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let mut choice = split(p)?;
    let vectors = p.shape.spatial / (p.access_bytes() / p.element_bytes);
    if choice.threads == word(THREADS) && vectors <= WARP_VECTORS {
        (choice.threads, choice.accesses) = (32, 2 * word(ACCESSES));
        choice.parts = word(vectors.div_ceil(32 * 2 * ACCESSES));
    }
    if p.inference && !p.has_parameter_gradients {
        return Ok(Chosen::alone(choice));
    }
    let segments = p.shape.batch * p.shape.channels;
    let apart = if p.shape.groups == 0 { 0 } else { segments };
    // A group has two means; a segment and a part have two sums.
    let workspace_bytes =
        p.number_bytes(&[&[p.shape.group_count(), 2], &[apart, 2], &[segments, choice.parts.into(), 2]])?;
    let launches =
        2 + u32::from(!p.inference && p.has_element_gradients) + u32::from(apart > 0 && p.has_parameter_gradients);
    Ok(Chosen { choice, workspace_bytes, launches })
}
