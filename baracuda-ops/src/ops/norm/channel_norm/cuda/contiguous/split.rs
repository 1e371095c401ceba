//! Groups in passes: read once for their moments or sums and again for what is written.

use baracuda_ops_sys as sys;

use super::{Problem, Tuned, running_launches};
use crate::narrow::word;

/// Accesses of a thread in a part of the split variants: those under way at once, and in long segments of large problems, where the sums of a part
/// cost as much as reading 4.
const ACCESSES: u64 = 4;
const LONG: u64 = 16;
/// Blocks of a multiprocessor that make a problem large.
const LARGE: u64 = 4;
/// Threads of their blocks.
const THREADS: u64 = 256;
/// Vectors of a segment up to which a warp takes a part of it, backward: a block has no barrier to wait at then, nor threads without a vector.
const BY_WARPS: u64 = 1024;

/// What the variants that go in passes share.
fn split(p: &Problem) -> Result<Tuned, String> {
    let vec_bytes = p.vec_bytes();
    let vectors = p.shape.spatial / u64::from(vec_bytes / p.element_bytes);
    let team = vectors.div_ceil(ACCESSES).clamp(1, 32).next_power_of_two();
    let threads = if vectors > 32 * ACCESSES { THREADS } else { team };
    let long_chunks = vectors.div_ceil(THREADS * LONG);
    let rows = p.shape.batch.saturating_mul(p.shape.channels);
    let is_large = rows.saturating_mul(long_chunks) >= u64::from(p.multiprocessors) * LARGE;
    let is_long = vectors >= THREADS * LONG && is_large;
    let accesses = if is_long { LONG } else { ACCESSES };
    let chunks = vectors.div_ceil(threads * accesses);
    let count = u32::try_from(chunks);
    Ok(Tuned {
        variant: sys::BOPS_CHANNEL_NORM_SPLIT,
        vec_bytes,
        vectors: word(accesses),
        threads: word(threads),
        chunks: count.map_err(|_| format!("a segment has {chunks} parts, the limit is {}", u32::MAX))?,
        cluster: 1,
        overlaps: u32::from(p.capability >= 90),
        ..Tuned::default()
    })
}

/// Bytes of so many numbers of the accumulator's type for each of some things.
fn numbers(p: &Problem, counts: &[(u64, u64)]) -> Result<u64, String> {
    let mut bytes = Some(0u64);
    for &(things, each) in counts {
        let more = things.checked_mul(each).and_then(|n| n.checked_mul(u64::from(p.accumulator_bytes)));
        bytes = bytes.zip(more).and_then(|(a, b)| a.checked_add(b));
    }
    bytes.ok_or_else(|| "the workspace exceeds 2^64 bytes".into())
}

pub(super) fn forward(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = split(p)?;
    let vectors = p.shape.batch.saturating_mul(p.shape.channels).saturating_mul(p.shape.spatial);
    let is_wide = p.sample_vector_bytes == 16 && p.shape.spatial * u64::from(p.element_bytes) >= 16;
    if tuned.vec_bytes < 16 && p.element_bytes < 8 && is_wide && vectors > 0 && vectors < 1 << 32 {
        tuned.stages = 1;
    }
    if p.inference {
        return Ok(Tuned { launches: 1, ..tuned });
    }
    let segments = p.shape.batch * p.shape.channels;
    let parts = segments.checked_mul(u64::from(tuned.chunks)).ok_or("too many parts")?;
    let workspace_bytes = numbers(p, &[(p.shape.group_count(), 4), (parts, 3)])?;
    Ok(Tuned { workspace_bytes, launches: 3 + running_launches(p), ..tuned })
}

pub(super) fn backward(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = split(p)?;
    let vectors = p.shape.spatial / u64::from(tuned.vec_bytes / p.element_bytes);
    if tuned.threads == word(THREADS) && vectors <= BY_WARPS {
        (tuned.threads, tuned.vectors) = (32, 2 * word(ACCESSES));
        tuned.chunks = word(vectors.div_ceil(32 * 2 * ACCESSES));
    }
    if p.inference && !p.has_parameter_gradients {
        return Ok(Tuned { launches: 1, ..tuned });
    }
    let segments = p.shape.batch * p.shape.channels;
    let parts = segments.checked_mul(u64::from(tuned.chunks)).ok_or("too many parts")?;
    let apart = if p.shape.groups == 0 { 0 } else { segments };
    let workspace_bytes = numbers(p, &[(p.shape.group_count(), 2), (apart, 2), (parts, 2)])?;
    let launches =
        2 + u32::from(!p.inference && p.has_element_gradients) + u32::from(apart > 0 && p.has_parameter_gradients);
    Ok(Tuned { workspace_bytes, launches, ..tuned })
}
