//! Which CUDA variant serves which contiguous problem: a pure function of shapes, types and device properties.
//!
//! The tables were measured on an H200 (132 multiprocessors, CUDA 13.0).

use baracuda_ops_sys as sys;

use super::{Problem, Tuned};
use crate::ops::activation::Activation;

/// Accesses of a thread in a part of the split variants: those under way at once, and in long segments of large problems, where the sums of a part
/// cost as much as reading 4.
const SPLIT_ACCESSES: u64 = 4;
const SPLIT_LONG: u64 = 16;
/// Blocks of a multiprocessor that make a problem large.
const SPLIT_LARGE: u64 = 4;
/// Threads of their blocks.
const SPLIT_THREADS: u64 = 256;
/// Vectors of a segment up to which a warp takes a part of it, backward: a block has no barrier to wait at then, nor threads without a vector.
const SPLIT_BY_WARPS: u64 = 1024;

/// The variant that serves a forward.
pub(super) fn forward(p: &Problem) -> Result<Tuned, String> {
    p.check_extents()?;
    let chosen = clustered(p);
    // Clusters of 16 leave an eighth of the multiprocessors out, those of 4 and 8 some.
    let most = if p.adds_residual() { 2 } else { 8 };
    let shared = match &chosen {
        Some(tuned) if tuned.cluster <= most || tuned.variant == sys::BOPS_CHANNEL_NORM_SINGLE => None,
        Some(tuned) => {
            cooperative_forward(p, Some(p.shape.group_count().div_ceil(u64::from(tuned.grid / tuned.cluster))))
        }
        None => cooperative_forward(p, None),
    };
    match shared.or(chosen) {
        Some(tuned) => Ok(tuned),
        None => split_forward(p),
    }
}

/// The variant for groups that a block or a cluster holds.
fn clustered(p: &Problem) -> Option<Tuned> {
    let on_chip = || {
        let (single, relay) = (single(p), relay(p, 1));
        match (&single, &relay) {
            (Some(one), Some(many)) if many.is_faster_than(one, p) => Some(many.tuned),
            (None, Some(many)) => Some(many.tuned),
            _ => single.or_else(|| held(p, 1)),
        }
    };
    stripe(p, 1).or_else(|| segment(p, 1)).or_else(on_chip)
}

/// The variant that serves a backward.
pub(super) fn backward(p: &Problem) -> Result<Tuned, String> {
    p.check_extents()?;
    let walking = || match (held(p, 2)?, relay(p, 2)) {
        (held, Some(relay)) if held.cluster >= RELAY_BACKWARD_CLUSTER => Some(relay.tuned),
        (held, _) => Some(held),
    };
    let large = || match (walking(), cooperative_backward(p)) {
        (Some(walking), Some(cooperative)) if !cooperative.is_faster_than(&walking, p) => Some(walking),
        (walking, cooperative) => cooperative.map(|cooperative| cooperative.tuned).or(walking),
    };
    let single = || single_backward(p).or_else(|| single_masked_backward(p));
    let on_chip = || single().or_else(|| relay_of_grid_backward(p)).or_else(large);
    match stripe(p, 2).or_else(|| segment(p, 2)).or_else(on_chip) {
        Some(tuned) => Ok(tuned),
        None => split_backward(p),
    }
}

impl Problem {
    /// Forward: whether a residual is all that is added, with no activation or a ReLU behind it.
    fn adds_residual(&self) -> bool {
        self.has_extra && self.is_at_most_relu() && self.shape.groups == 0
    }

    /// Backward: whether a residual or y tells what passes a ReLU.
    fn is_masked(&self) -> bool {
        self.has_extra && self.activation == Activation::Relu && self.shape.groups == 0
    }

    /// The kernels number samples, channels and segments in 32 bits.
    fn check_extents(&self) -> Result<(), String> {
        let limit = u64::from(u32::MAX);
        match self.shape.batch.checked_mul(self.shape.channels) {
            Some(segments) if segments < limit && self.shape.batch < limit => Ok(()),
            _ => Err(format!("{} samples of {} channels, the limit is {limit}", self.shape.batch, self.shape.channels)),
        }
    }

    /// The widest access that the layouts allow.
    fn vec_bytes(&self) -> u32 {
        let widths: &[u32] = if self.element_bytes == 8 { &[8] } else { &[16, 4, 2] };
        let fits = |&&bytes: &&u32| bytes >= self.element_bytes && self.vector_bytes.is_multiple_of(bytes);
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }
}

/// Threads of a block of the stripe variant, and the channels it may have.
const STRIPE_THREADS: u64 = 512;
const STRIPE_CHANNELS: [u64; 4] = [1, 2, 4, 8];
/// Threads of the blocks that share a multiprocessor: forward, backward.
const STRIPE_RESIDENT_THREADS: [u64; 2] = [1024, 512];
/// The most blocks that share a multiprocessor.
const STRIPE_RESIDENTS: u64 = 4;
/// Shared memory of a block that kernels declare themselves and that the device keeps for itself, in bytes.
const STRIPE_SHARED: u64 = 1536;
/// 16-bit elements in registers: threads of a block, and samples of a thread, at most.
const STRIPE_HELD: [u64; 2] = [256, 13];
/// The longest chain of additions: over the samples of a thread, and across threads.
const STRIPE_CHAIN: u64 = 48;
/// Samples of a thread that make up for the sums across threads.
const STRIPE_SAMPLES: u64 = 8;
/// Shared memory that kernels declare themselves and what the device keeps for itself, in bytes.
const RESERVED_SHARED: u64 = 4096;

/// BatchNorm over small spatial extents that are no whole number of vectors: a few channels of all samples on chip. `arrays`: x, or dy and x.
fn stripe(p: &Problem, arrays: u64) -> Option<Tuned> {
    let shape = &p.shape;
    let size = u64::from(p.element_bytes);
    let serves = shape.groups == 0 && !p.inference && p.sample_vector_bytes == 16 && p.vec_bytes() < 16;
    if !serves || p.has_extra && !p.is_at_most_relu() || size == 8 || shape.batch * shape.channels * shape.spatial == 0
    {
        return None;
    }
    let channels = *STRIPE_CHANNELS.iter().find(|&&channels| (channels * shape.spatial * size).is_multiple_of(16))?;
    let run = channels.checked_mul(shape.spatial)?;
    let bytes = run.checked_mul(shape.batch)?.checked_mul(size * arrays)?;
    if !shape.channels.is_multiple_of(channels) {
        return None;
    }
    let (blocks, vectors) = (shape.channels / channels, run * size / 16);
    // Two sums of every element of a run in every turn.
    let sums = run.checked_mul(8)?;
    let fitting = u64::from(p.shared_bytes) / bytes.checked_add(sums)?.checked_add(STRIPE_SHARED)?;
    let residents = fitting.min(STRIPE_RESIDENTS).min(blocks.div_ceil(u64::from(p.multiprocessors)));
    let room = (u64::from(p.shared_bytes).checked_div(residents)?).checked_sub(bytes + STRIPE_SHARED)?;
    let threads = (STRIPE_RESIDENT_THREADS[arrays as usize - 1] / residents).min(STRIPE_THREADS);
    let turns_of = |threads: u64| (threads / vectors).min(shape.batch.div_ceil(STRIPE_SAMPLES));
    let held = turns_of(STRIPE_HELD[0]);
    let is_held = arrays == 1 && size == 2 && p.is_at_most_relu() && held > 0;
    let is_held = is_held && shape.batch.div_ceil(held) <= STRIPE_HELD[1];
    let turns = if is_held { held } else { turns_of(threads).min(room / sums) };
    let chain = shape.batch.div_ceil(turns.max(1)) + shape.spatial.div_ceil(32) * turns + 7;
    (turns > 0 && chain <= STRIPE_CHAIN).then_some(())?;
    Some(Tuned {
        variant: sys::BOPS_CHANNEL_NORM_STRIPE,
        vec_bytes: 16,
        vectors: channels as u32,
        chunks: turns as u32,
        threads: (turns * vectors).next_multiple_of(32) as u32,
        cluster: 1,
        grid: u32::try_from(blocks).ok()?,
        stages: u32::from(is_held),
        overlaps: u32::from(p.capability >= 90),
        launches: 1 + if arrays == 1 { running_launches(p) } else { 0 },
        ..Tuned::default()
    })
}

/// What the variants that go in passes share.
fn split(p: &Problem) -> Tuned {
    let vec_bytes = p.vec_bytes();
    let vectors = p.shape.spatial / u64::from(vec_bytes / p.element_bytes);
    let team = vectors.div_ceil(SPLIT_ACCESSES).clamp(1, 32).next_power_of_two();
    let threads = if vectors > 32 * SPLIT_ACCESSES { SPLIT_THREADS } else { team };
    let long_chunks = vectors.div_ceil(SPLIT_THREADS * SPLIT_LONG);
    let rows = p.shape.batch.saturating_mul(p.shape.channels);
    let is_large = rows.saturating_mul(long_chunks) >= u64::from(p.multiprocessors) * SPLIT_LARGE;
    let is_long = vectors >= SPLIT_THREADS * SPLIT_LONG && is_large;
    let accesses = if is_long { SPLIT_LONG } else { SPLIT_ACCESSES };
    Tuned {
        variant: sys::BOPS_CHANNEL_NORM_SPLIT,
        vec_bytes,
        vectors: accesses as u32,
        threads: threads as u32,
        chunks: u32::try_from(vectors.div_ceil(threads * accesses)).unwrap_or(u32::MAX),
        cluster: 1,
        overlaps: u32::from(p.capability >= 90),
        ..Tuned::default()
    }
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

fn split_forward(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = split(p);
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

/// Launches after a forward: the counter of batches, or the running statistics of samples that have their own.
fn running_launches(p: &Problem) -> u32 {
    u32::from(if p.shape.groups == 0 { p.cumulative } else { p.has_running })
}

fn split_backward(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = split(p);
    let vectors = p.shape.spatial / u64::from(tuned.vec_bytes / p.element_bytes);
    if tuned.threads == SPLIT_THREADS as u32 && vectors <= SPLIT_BY_WARPS {
        (tuned.threads, tuned.vectors) = (32, 2 * SPLIT_ACCESSES as u32);
        tuned.chunks = vectors.div_ceil(32 * 2 * SPLIT_ACCESSES) as u32;
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

// ---- groups that a block or a cluster takes once ----

/// The least work of a block where a larger cluster would only fill the device, in vectors.
const SINGLE_LEAST: u64 = 512;
/// Forward: the most vectors of a thread; threads of a block that has a multiprocessor to itself, and of one that shares it with one other, so that no
/// third one fits where the next multiprocessor has one.
const SINGLE_VECTORS: u64 = 15;
const SINGLE_ALONE: u64 = 640;
const SINGLE_PAIR: u64 = 512;
/// Forward: threads of a block alone while those have so many vectors, the least and the most.
const SINGLE_SMALL: u64 = 320;
const SINGLE_FEW: [u64; 2] = [2, 4];
/// Forward: vectors of a thread that registers hold in a block alone, and of 16-bit elements without exponentials also in one of a pair.
const SINGLE_HELD: [u64; 2] = [4, 2];
/// Of so many blocks a cluster all are resident, two a multiprocessor, where those of 8 are not.
const SINGLE_SMALLER: u64 = 7;
/// Forward: shared memory of a block beside its group, in bytes; clock cycles, and in how many bytes of a block, by which the first blocks of a
/// multiprocessor start one after another, where blocks follow them.
const SINGLE_SHARED: u64 = 3 << 10;
const SINGLE_STAGGER: [u64; 2] = [2, 25];
/// Forward: the largest cluster, of 16-bit elements and of others, that starts apart, with blocks half as large so that four share a multiprocessor.
const SINGLE_APART: [u64; 2] = [2, 4];
/// Backward, in warps of a block: where it shares a multiprocessor, where it has one to itself, where a cluster takes all samples.
const SINGLE_BACKWARD_WARPS: [u64; 3] = [15, 20, 5];
/// Backward: clock cycles, and in how many bytes of a block, by which the first two blocks of a multiprocessor start one after the other, where
/// others follow: without SiLU, and through it.
const SINGLE_BACKWARD_STAGGER: [(u64, u64); 2] = [(3, 64), (5, 64)];
/// Backward of f32 in clusters whose blocks share a multiprocessor: blocks of each multiprocessor that they make, at least; the clusters; the
/// fewest vectors of a thread and warps of a block; warps of a multiprocessor; bytes of dy and x in a block up to which blocks that wait for the
/// previous kernel are no hindrance.
const SHARING_BLOCKS: u64 = 8;
const SHARING_CLUSTERS: [u64; 3] = [2, 4, 8];
const SHARING_VECTORS: u64 = 4;
const SHARING_WARPS: u64 = 8;
const SHARING_ALL_WARPS: u64 = 32;
const SHARING_EARLY: u64 = 32 << 10;
/// The same of groups that clusters of `SINGLE_SMALLER` fill the device with: blocks of a multiprocessor.
const SHARING_RESIDENTS: u64 = 4;
/// Backward of BatchNorm through a ReLU that a residual or y tells the sign for: blocks that share a multiprocessor, threads of a block, and where
/// there are two a multiprocessor at most; the most vectors of a thread.
const SINGLE_MASKED_RESIDENTS: u64 = 4;
const SINGLE_MASKED_THREADS: [u64; 2] = [224, 448];
const SINGLE_MASKED_VECTORS: u64 = 8;
/// Bytes of dy and x in a block up to which a cluster takes all samples, of f32 without SiLU and of others, and its blocks.
const MERGED_BYTES: [u64; 2] = [40 << 10, 24 << 10];
const MERGED_BLOCKS: u64 = 8;
/// The most blocks of a multiprocessor in all: further ones cost more than the launch that adds up the samples.
const MERGED_MOST: u64 = 4;
/// Multiprocessors' worth of blocks up to which they are launched while the previous kernel ends.
const SINGLE_EARLY: u64 = 4;

impl Problem {
    /// Vectors of 16 bytes of a group, where the kernels that keep groups on chip serve.
    fn group_vectors(&self) -> Option<u64> {
        let serves = self.vec_bytes() == 16 && self.element_bytes < 8 && !self.inference;
        let all = self.shape.group_segments().checked_mul(self.segment_vectors())?;
        let groups = self.shape.group_count();
        (serves && all > 0 && all < 1 << 31 && groups > 0 && groups < 1 << 31).then_some(all)
    }

    /// Vectors of 16 bytes of a segment.
    fn segment_vectors(&self) -> u64 {
        self.shape.spatial / u64::from(16 / self.element_bytes)
    }

    /// Shared memory of a block that takes a group: two fit on a multiprocessor, or one where neither clusters nor another variant take more.
    fn single_room(&self) -> u64 {
        let blocks = if self.max_cluster > 1 { 2 } else { 1 };
        (u64::from(self.shared_bytes) / blocks).saturating_sub(RESERVED_SHARED)
    }

    /// The smallest cluster whose blocks take at most `most` vectors each and with which the groups fill the device, if a cluster does the first.
    fn single_cluster(&self, all: u64, most: u64) -> Option<u64> {
        let fits = |&cluster: &u64| all.div_ceil(cluster) <= most;
        let fills = |&cluster: &u64| {
            self.shape.group_count() * cluster >= u64::from(self.multiprocessors) * 7 / 8
                || all / (cluster * 2) < SINGLE_LEAST
        };
        let clusters = || [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= u64::from(self.max_cluster));
        clusters().filter(fits).find(fills).or_else(|| clusters().rfind(fits))
    }

    fn single_tuned(&self, cluster: u64, threads: u64, vectors: u64, blocks: u64) -> Option<Tuned> {
        let early = self.capability >= 90 && blocks <= u64::from(self.multiprocessors) * SINGLE_EARLY;
        Some(Tuned {
            variant: sys::BOPS_CHANNEL_NORM_SINGLE,
            vec_bytes: 16,
            vectors: vectors as u32,
            threads: threads as u32,
            cluster: cluster as u32,
            grid: u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31)?,
            overlaps: u32::from(early),
            launches: 1,
            ..Tuned::default()
        })
    }
}

/// Vectors of a thread that has part of a segment in registers, forward and backward, and threads of its block, at most.
const SEGMENT_VECTORS: [u64; 2] = [8, 4];
const SEGMENT_THREADS: u64 = 512;
/// Forward, bytes of x beyond which the shared memory of blocks that start one after another is faster, but not through SiLU of 16-bit elements, whose
/// instructions it does not make fewer.
const SEGMENT_BYTES: u64 = 96 << 20;

/// Groups of one segment, which a block has in registers. `arrays`: x, or dy and x.
fn segment(p: &Problem, arrays: usize) -> Option<Tuned> {
    let all = p.group_vectors()?;
    let groups = p.shape.group_count();
    let is_costly = p.activation == Activation::Silu && p.element_bytes == 2;
    let wins = if arrays == 1 { is_costly || groups.saturating_mul(all * 16) <= SEGMENT_BYTES } else { p.has_dx };
    if p.shape.groups == 0 || p.shape.group_segments() != 1 || p.is_general() || !wins {
        return None;
    }
    let threads = all.div_ceil(SEGMENT_VECTORS[arrays - 1]).next_multiple_of(32);
    let (workspace_bytes, after) = match arrays {
        1 => (if p.has_running { groups * 16 } else { 0 }, running_launches(p)),
        _ => (if p.has_parameter_gradients { groups * 8 } else { 0 }, u32::from(p.has_parameter_gradients)),
    };
    let tuned = Tuned {
        variant: sys::BOPS_CHANNEL_NORM_SEGMENT,
        vec_bytes: 16,
        vectors: all.div_ceil(threads) as u32,
        threads: threads as u32,
        cluster: 1,
        grid: groups as u32,
        overlaps: u32::from(p.capability >= 90),
        workspace_bytes,
        launches: 1 + after,
        ..Tuned::default()
    };
    (threads <= SEGMENT_THREADS).then_some(tuned)
}

/// Groups of which a block or a cluster takes one, whole, into shared memory.
fn single(p: &Problem) -> Option<Tuned> {
    let all = p.group_vectors()?;
    let (groups, segments) = (p.shape.group_count(), p.shape.group_segments());
    let parameters = if p.shape.groups == 0 { 1 } else { segments };
    let most = p.single_room().saturating_sub(parameters * 8) / 16;
    let cluster = match p.single_cluster(all, most)? {
        8 if groups > p.teams(8, 2) && groups <= p.teams(SINGLE_SMALLER, 2) && all.div_ceil(SINGLE_SMALLER) <= most => {
            SINGLE_SMALLER
        }
        cluster => cluster,
    };
    // Where two blocks share a multiprocessor and others follow, four of half the size hide each other's phases better.
    let room = |blocks: u64| (u64::from(p.shared_bytes) / blocks).saturating_sub(SINGLE_SHARED + parameters * 8) / 16;
    let is_pair = all.div_ceil(cluster) > room(3) && groups.checked_mul(cluster)? > 2 * u64::from(p.multiprocessors);
    let halves = cluster * 2;
    let is_allowed = halves <= SINGLE_APART[usize::from(p.element_bytes == 4)].min(u64::from(p.max_cluster));
    let is_measured = !p.is_general() && (p.element_bytes == 4 || p.activation != Activation::Silu);
    let is_halved = is_pair && is_allowed && is_measured && all.div_ceil(halves) <= room(4);
    let cluster = if is_halved { halves } else { cluster };
    let (blocks, own) = (groups.checked_mul(cluster)?, all.div_ceil(cluster));
    let together = blocks.div_ceil(u64::from(p.multiprocessors));
    let vectors = match together {
        1 => own.div_ceil(SINGLE_ALONE).max(own.div_ceil(SINGLE_SMALL).clamp(SINGLE_FEW[0], SINGLE_FEW[1])),
        2 => own.div_ceil(SINGLE_PAIR),
        _ => SINGLE_VECTORS,
    };
    let threads = own.div_ceil(vectors).next_multiple_of(32);
    let vectors = own.div_ceil(threads);
    let fits = threads <= 1024 && threads * vectors <= most;
    let tuned = p.single_tuned(cluster, threads, vectors, blocks)?;
    let workspace_bytes = if p.shape.groups > 0 && p.has_running { groups * 16 } else { 0 };
    let bytes = threads * vectors * 16;
    let residents = (u64::from(p.shared_bytes) / (bytes + parameters * 8 + SINGLE_SHARED)).min(1024 / threads.max(1));
    let keep_step = (cluster == 1 || is_halved) && residents > 1 && blocks > u64::from(p.multiprocessors) * residents;
    let tuned = if keep_step {
        let stagger_cycles = (bytes * SINGLE_STAGGER[0] / SINGLE_STAGGER[1]) as u32;
        // Channels of 16 bits share lines with their neighbours, and launched early, blocks lose step with those.
        let starts_early = p.capability >= 90 && (p.shape.groups > 0 || p.element_bytes == 4);
        let overlaps = tuned.overlaps | u32::from(starts_early);
        Tuned { overlaps, stagger_cycles, multiprocessors: p.multiprocessors, residents: residents as u32, ..tuned }
    } else {
        tuned
    };
    let most_together = if p.element_bytes == 2 && p.activation != Activation::Silu { 2 } else { 1 };
    let holds = tuned.overlaps == 1 && together <= most_together && !p.is_general();
    let held = SINGLE_HELD.into_iter().find(|&held| holds && held <= vectors).unwrap_or(0) as u32;
    fits.then_some(Tuned { cached: held, workspace_bytes, launches: 1 + running_launches(p), ..tuned })
}

/// The gradients of GroupNorm and InstanceNorm in the same way.
fn single_backward(p: &Problem) -> Option<Tuned> {
    p.group_vectors()?;
    if p.shape.groups == 0 {
        return None;
    }
    let (groups, segments) = (p.shape.group_count(), p.shape.group_segments());
    let rows = segments.checked_mul(p.segment_vectors().div_ceil(32))?;
    // A block's rows hold 32 vectors of dy and of x each, and the sums of the two kinds; where dpre is kept, its second half.
    let row_bytes = 32 * 32 + 8;
    let kept_bytes = 32 * 16;
    let is_kept = p.activation == Activation::Silu && p.element_bytes == 2;
    let is_plain = p.element_bytes == 4 && p.is_at_most_relu();
    let form = |cluster: u64, samples: u64, warps: u64, room: u64| {
        let own = rows.div_ceil(cluster);
        let vectors = own.div_ceil(warps);
        let threads = own.div_ceil(vectors) * 32;
        let sums = cluster * samples * segments * 8;
        let fits = vectors <= 27 && threads / 32 * vectors * row_bytes + sums <= room;
        let blocks = groups.checked_mul(cluster)?;
        let is_alone = samples > 0 || blocks <= u64::from(p.multiprocessors);
        let kept = threads / 32 * vectors * (row_bytes + kept_bytes) + sums;
        let keeps = is_kept && is_alone && kept + RESERVED_SHARED <= u64::from(p.shared_bytes);
        let tuned = p.single_tuned(cluster, threads, vectors, blocks).filter(|_| fits)?;
        Some(Tuned { stages: u32::from(keeps), ..tuned })
    };
    let batch = p.shape.batch;
    if p.has_parameter_gradients && batch <= MERGED_BLOCKS.min(u64::from(p.max_cluster)) {
        let cluster = (MERGED_BLOCKS.min(u64::from(p.max_cluster)) / batch).max(1);
        let cluster = 1 << cluster.ilog2();
        let blocks = groups.checked_mul(cluster)?;
        let is_small = rows.div_ceil(cluster) * 1024 <= MERGED_BYTES[usize::from(!is_plain)]
            && blocks <= u64::from(p.multiprocessors) * MERGED_MOST;
        let serves = is_small && cluster <= rows;
        let merged = || form(cluster, batch, SINGLE_BACKWARD_WARPS[2], p.single_room());
        if let Some(tuned) = serves.then(merged).flatten() {
            return Some(Tuned { is_merged: 1, ..tuned });
        }
    }
    let cluster_in = |room: u64| p.single_cluster(rows * 32, room / row_bytes * 32);
    let is_alone = |cluster: u64| groups.saturating_mul(cluster) <= u64::from(p.multiprocessors);
    let cluster = cluster_in(p.single_room())?;
    let blocks = groups.checked_mul(cluster)?;
    let whole = u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED);
    let tuned = if is_alone(cluster) {
        form(cluster, 0, SINGLE_BACKWARD_WARPS[1], p.single_room())?
    } else if cluster == 1 {
        let tuned = form(1, 0, SINGLE_BACKWARD_WARPS[0], p.single_room())?;
        let bytes = u64::from(tuned.threads * tuned.vectors) * 32;
        let is_pair = bytes * 3 > u64::from(p.shared_bytes) && p.max_cluster > 1;
        if is_pair && blocks > 2 * u64::from(p.multiprocessors) && !p.is_general() {
            let (cycles, of) = SINGLE_BACKWARD_STAGGER[usize::from(p.activation == Activation::Silu)];
            let stagger_cycles = (bytes * cycles / of) as u32;
            Tuned { stagger_cycles, multiprocessors: p.multiprocessors, residents: 2, ..tuned }
        } else {
            tuned
        }
    } else if is_plain && cluster_in(whole).is_some_and(is_alone) {
        let own = rows.div_ceil(SINGLE_SMALLER);
        let residents = u64::from(p.shared_bytes) / (own * row_bytes + RESERVED_SHARED);
        let all_resident = p.teams(SINGLE_SMALLER, SHARING_RESIDENTS);
        let fills = (all_resident * 7 / 8..=all_resident).contains(&groups);
        if u64::from(p.max_cluster) >= SINGLE_SMALLER && residents == SHARING_RESIDENTS && fills {
            form(SINGLE_SMALLER, 0, SHARING_ALL_WARPS / residents, p.single_room())?
        } else {
            form(cluster_in(whole)?, 0, SINGLE_BACKWARD_WARPS[1], whole)?
        }
    } else if is_plain {
        let enough = u64::from(p.multiprocessors) * SHARING_BLOCKS;
        let clusters = SHARING_CLUSTERS.into_iter().filter(|&cluster| cluster <= u64::from(p.max_cluster));
        let cluster = clusters.skip_while(|&larger| larger < cluster).find(|&cluster| groups * cluster >= enough)?;
        let own = rows.div_ceil(cluster);
        let residents = u64::from(p.shared_bytes) / (own * row_bytes + RESERVED_SHARED);
        let warps = (SHARING_ALL_WARPS / residents.max(1)).max(SHARING_WARPS).min(own.div_ceil(SHARING_VECTORS));
        let overlaps = u32::from(p.capability >= 90 && own * 1024 <= SHARING_EARLY);
        Tuned { overlaps, ..form(cluster, 0, warps, p.single_room())? }
    } else {
        return None;
    };
    let sums = if p.has_parameter_gradients { batch * p.shape.channels } else { 0 };
    let workspace_bytes = sums.checked_mul(u64::from(tuned.cluster) * 8)?;
    Some(Tuned { workspace_bytes, launches: 1 + u32::from(workspace_bytes > 0), ..tuned })
}

/// The gradients of BatchNorm through a ReLU in the same way, where a residual or y passes by.
fn single_masked_backward(p: &Problem) -> Option<Tuned> {
    let all = p.group_vectors().filter(|_| p.is_masked())?;
    let room = (u64::from(p.shared_bytes) / SINGLE_MASKED_RESIDENTS).saturating_sub(SINGLE_SHARED) / 32;
    let form = |cluster: u64| {
        let (own, blocks) = (all.div_ceil(cluster), p.shape.group_count().checked_mul(cluster)?);
        let is_pair = blocks <= 2 * u64::from(p.multiprocessors);
        let vectors = own.div_ceil(SINGLE_MASKED_THREADS[usize::from(is_pair)]);
        let threads = own.div_ceil(vectors).next_multiple_of(32);
        let fits = vectors <= SINGLE_MASKED_VECTORS && threads * vectors <= room;
        let tuned = p.single_tuned(cluster, threads, vectors, blocks).filter(|_| fits)?;
        Some(Tuned { overlaps: u32::from(p.capability >= 90), ..tuned })
    };
    [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= u64::from(p.max_cluster)).find_map(form)
}

// ---- groups that stay on chip while the following ones are fetched ----

/// Threads of the blocks that hold groups in registers, beside the warp that fetches, and how many such blocks share a multiprocessor: 16 warps
/// of their registers fit.
const HELD_FORMS: [(u64, u64); 3] = [(480, 1), (224, 2), (128, 3)];
/// Rounds up to which blocks of 128 threads serve: they are for few groups.
const FEW_ROUNDS: u64 = 2;
/// Steps of a group that stay in registers: forward, backward; none with an activation that takes many instructions.
const HELD_STEPS: [u64; 2] = [12, 4];
/// The most places of a ring. More than these and those that wait for a group's statistics are slower.
const SLOTS: u64 = 32;
const SLOTS_AHEAD: u64 = 12;
const SLOTS_ENOUGH: u64 = 16;
/// Steps of the longest slice of a group.
const WALK_STEPS: u64 = 36;
/// What a group costs beyond its bytes, in bytes of a multiprocessor's share of the memory's speed: of one block, of a cluster, of a cluster of 16.
/// Blocks that share a multiprocessor hide it from each other.
const GROUP_COST: [u64; 3] = [88 << 10, 96 << 10, 120 << 10];

/// How the blocks of a team share a group: the same arithmetic as `walk_geometry` in `csrc/norm/channel_norm_walk.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// Threads of a block that hold vectors.
    threads: u64,
    /// Steps of a group.
    all: u64,
}

impl Steps {
    /// Of groups of `segments` segments of `vectors` vectors, in blocks of up to `most` threads. whole_warps: no warp takes two segments at once.
    fn new(segments: u64, vectors: u64, most: u64, whole_warps: bool) -> Self {
        let pitch = if whole_warps { vectors.next_multiple_of(32) } else { vectors };
        if pitch < most {
            let threads = (pitch * (most / pitch).min(segments)).next_multiple_of(32);
            return Self { threads, all: segments.div_ceil(threads / pitch) };
        }
        let chunks = vectors.div_ceil(most);
        let threads = vectors.div_ceil(chunks).next_multiple_of(32);
        Self { threads, all: segments * vectors.div_ceil(threads) }
    }
}

impl Problem {
    /// Clusters of which so many are resident: those of 4 and more leave some multiprocessors of a GPC out.
    fn teams(&self, cluster: u64, blocks: u64) -> u64 {
        let all = u64::from(self.multiprocessors);
        let usable = match cluster {
            1 | 2 => all,
            4 | 8 => all * 10 / 11,
            _ => all * 7 / 8,
        };
        (usable / cluster * blocks).max(1)
    }
}

/// Groups on chip while the following ones are fetched: the form and cluster that take the least time by what blocks move. `arrays`: x, or dy and x.
fn held(p: &Problem, arrays: u64) -> Option<Tuned> {
    let serves = p.capability >= 90 && !p.has_extra;
    p.group_vectors().filter(|_| serves)?;
    let shape = &p.shape;
    let (segments, groups) = (shape.group_segments(), shape.group_count());
    let vectors = p.segment_vectors();
    let by_segment = arrays == 2 && shape.groups > 0;
    let held = if p.is_general() { 0 } else { HELD_STEPS[arrays as usize - 1] };
    let mut best: Option<(u64, Tuned)> = None;
    for (most, blocks) in HELD_FORMS {
        let steps = Steps::new(segments, vectors, most, by_segment);
        for cluster in [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= u64::from(p.max_cluster)) {
            let own = steps.all.div_ceil(cluster);
            let sums = if by_segment { (own + 1) * steps.threads / 2 } else { 0 };
            let room = (u64::from(p.shared_bytes) / blocks).saturating_sub(RESERVED_SHARED + sums);
            let slot = steps.threads * 16 * arrays;
            let slots = (room / slot).min(SLOTS);
            // Steps that keep their places until the group's statistics are there.
            let waiting = own.saturating_sub(held);
            if waiting + 1 >= slots || own > WALK_STEPS || cluster > steps.all {
                continue;
            }
            let slots = slots.min(SLOTS_ENOUGH.max(waiting + SLOTS_AHEAD));
            let teams = p.teams(cluster, blocks).min(groups);
            let rounds = groups.div_ceil(teams);
            if blocks > 2 && rounds > FEW_ROUNDS {
                continue;
            }
            let together = (teams * cluster).div_ceil(u64::from(p.multiprocessors)).min(blocks);
            let bytes = own * steps.threads * 16 * (arrays + 1) * together;
            let extra = GROUP_COST[usize::from(cluster > 1) + usize::from(cluster > 8)];
            // Fewer places than that ahead, and memory waits for the group to be finished.
            let missing = (SLOTS_AHEAD + waiting).saturating_sub(slots) * steps.threads * 8 * (arrays + 1) * together;
            let cost = rounds * (bytes + missing + extra / together);
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let workspace_bytes = match arrays {
                1 if shape.groups > 0 && p.has_running => groups * 16,
                2 if by_segment && p.has_parameter_gradients => shape.batch * shape.channels * cluster * 8,
                _ => 0,
            };
            let after = if arrays == 1 { running_launches(p) } else { u32::from(workspace_bytes > 0) };
            let tuned = Tuned {
                variant: sys::BOPS_CHANNEL_NORM_HELD,
                vec_bytes: 16,
                vectors: own as u32,
                threads: steps.threads as u32,
                cluster: cluster as u32,
                grid: u32::try_from(teams * cluster).ok()?,
                stages: slots as u32,
                overlaps: u32::from(p.capability >= 90 && rounds == 1),
                workspace_bytes,
                launches: 1 + after,
                ..Tuned::default()
            };
            best = Some((cost, tuned));
        }
    }
    best.map(|(_, tuned)| tuned)
}

// ---- groups on chip that teams of any number of blocks share ----

/// Of a block of the cooperative variant: the most threads that hold vectors, and their steps of a group that stay in registers; without an
/// activation, and with one, where every quarter of a multiprocessor has as many warps.
const COOPERATIVE_FORMS: [(u64, u64); 2] = [(352, 10), (384, 6)];
/// Shared memory that the kernel declares itself, in bytes.
const COOPERATIVE_SHARED: u64 = 2 << 10;
/// What a group costs beyond its bytes, and what three launches cost beyond theirs, in bytes of a multiprocessor's share of the memory's speed.
const COOPERATIVE_GROUP: u64 = 112 << 10;
const SPLIT_LAUNCHES: u64 = 192 << 10;
/// Bytes of dy and x from which reading them twice is slower: fewer are found in the L2.
const COOPERATIVE_LEAST: u64 = 24 << 20;
/// The same where a residual or y tells what passes a ReLU, with threads that are tried. The places for the following group that hide an exchange, in
/// bytes of a block.
const MASKED_THREADS: [u64; 4] = [352, 320, 288, 256];
const MASKED_GROUP: u64 = 48 << 10;
const MASKED_LEAST: u64 = 12 << 20;
const MASKED_AHEAD: u64 = 200 << 10;
/// Where clusters of so many blocks take more than one group each, teams that take at most so many are faster.
const COOPERATIVE_CLUSTER: u32 = 8;
const COOPERATIVE_ROUNDS: u64 = 3;

/// A choice, and the groups that a team takes one after another.
struct Cooperative {
    tuned: Tuned,
    rounds: u64,
}

impl Cooperative {
    /// Whether it is faster than a variant whose teams are clusters.
    fn is_faster_than(&self, walking: &Tuned, p: &Problem) -> bool {
        let teams = u64::from(walking.grid / walking.cluster);
        p.shape.groups > 0
            && walking.cluster >= COOPERATIVE_CLUSTER
            && teams < p.shape.group_count()
            && self.rounds <= COOPERATIVE_ROUNDS
    }
}

/// The gradients of groups that the multiprocessors hold together: the number of blocks that share one with the least time by what they move,
/// where that is less than for reading the groups twice.
fn cooperative_backward(p: &Problem) -> Option<Cooperative> {
    let is_masked = p.is_masked();
    let all_vectors = p.group_vectors().filter(|_| p.capability >= 90 && (is_masked || !p.is_general()))?;
    let shape = &p.shape;
    let (segments, groups, vectors) = (shape.group_segments(), shape.group_count(), p.segment_vectors());
    // What is read, and with it what is written.
    let (arrays, passes) = if is_masked { (3, 5) } else { (2, 3) };
    let (group, least_bytes) =
        if is_masked { (MASKED_GROUP, MASKED_LEAST) } else { (COOPERATIVE_GROUP, COOPERATIVE_LEAST) };
    let bytes = groups.checked_mul(all_vectors * 32).filter(|&bytes| bytes >= least_bytes)?;
    let (multiprocessors, by_segment) = (u64::from(p.multiprocessors), shape.groups > 0);
    let (most, held) = COOPERATIVE_FORMS[usize::from(p.activation != Activation::Identity && !is_masked)];
    let plain_threads = [most, most - 32];
    let split = (bytes / multiprocessors).saturating_mul(passes + 2) / 2 + SPLIT_LAUNCHES;
    // What tells teams apart weighs more there than what they take in all.
    let mut least = if is_masked { split.saturating_mul(4) / 3 } else { split };
    let mut best = None;
    for &threads in if is_masked { &MASKED_THREADS[..] } else { &plain_threads } {
        let steps = Steps::new(segments, vectors, threads, by_segment);
        for teams in 1..=multiprocessors.min(groups) {
            let (team, rounds) = (multiprocessors / teams, groups.div_ceil(teams));
            let own = steps.all.div_ceil(team);
            let sums = if by_segment { (own + 1) * steps.threads / 2 } else { 0 };
            let room = u64::from(p.shared_bytes).saturating_sub(COOPERATIVE_SHARED + sums);
            let slot = steps.threads * 16 * arrays;
            let slots = (room / slot).min(SLOTS);
            let waiting = own.saturating_sub(held);
            if waiting + 1 >= slots || own > WALK_STEPS {
                break; // Nor do smaller teams hold their groups.
            }
            let missing = if is_masked { MASKED_AHEAD.saturating_sub((slots - waiting) * slot) / 2 } else { 0 };
            let cost = rounds * (own * steps.threads * 16 * passes + group + missing);
            if team > steps.all || cost >= least {
                continue;
            }
            least = cost;
            // Blocks without a step have nothing to add.
            let team = if is_masked { steps.all.div_ceil(own) } else { team };
            let parts =
                if by_segment && p.has_parameter_gradients { shape.batch * shape.channels * team * 8 } else { 0 };
            let tuned = Tuned {
                variant: sys::BOPS_CHANNEL_NORM_COOPERATIVE,
                vec_bytes: 16,
                vectors: own as u32,
                threads: steps.threads as u32,
                cluster: team as u32,
                grid: (teams * team) as u32,
                stages: slots as u32,
                tensors: if is_masked { 3 } else { 0 },
                workspace_bytes: teams * team * 32 + parts,
                launches: 1 + u32::from(parts > 0),
                ..Tuned::default()
            };
            best = Some(Cooperative { tuned, rounds });
        }
    }
    best
}

// ---- groups that some warps add up while others write the one before ----

/// Threads that write, beside which a block has as many that add up: the fewest that keep up and the most.
const RELAY_THREADS: [u64; 2] = [224, 416];
/// Where they compute exponentials, forward, half as many add up. In long segments they are a multiple of the third number, so that all parts of a
/// multiprocessor have as many.
const RELAY_EXPONENTIAL_THREADS: [u64; 3] = [256, 512, 4 * 32];
/// Vectors of a thread in a step.
const RELAY_VECTORS: u64 = 2;
/// The least bytes of a block in a group with which it is faster than teams that take one group each, there clusters; with a residual, any.
const RELAY_LEAST: [u64; 2] = [64 << 10, 48 << 10];
/// Bytes of places for a residual, and the most threads that write beside its warp.
const RELAY_RESIDUAL: u64 = 32 << 10;
const RELAY_RESIDUAL_THREADS: u64 = 384;
/// The blocks that share a group backward in the variant that holds groups in registers, from which it is faster than that.
const RELAY_BACKWARD_CLUSTER: u32 = 4;
/// Bytes under way beyond the group that hide the exchange; what a group costs beyond its bytes; what a step costs in instructions, by tensor and
/// element of a vector. All as bytes of a multiprocessor's share of the memory's speed.
const RELAY_AHEAD: u64 = 96 << 10;
const RELAY_GROUP: u64 = 12 << 10;
const RELAY_STEP: u64 = 1 << 10;

/// Backward, of teams that are no clusters: threads that are tried, and bytes of dy and x in a group from which a cluster's blocks have no room for the
/// following one. Bytes under way beyond the group that hide the exchange, and how many may be missing; what a group costs beyond its bytes. The last
/// as bytes of a multiprocessor's share of the memory's speed.
const RELAY_GRID_THREADS: [u64; 4] = [160, 224, 256, 320];
const RELAY_GRID_GROUP: u64 = 2 << 20;
const RELAY_GRID_AHEAD: [u64; 2] = [136 << 10, 48 << 10];
const RELAY_GRID_TURN: u64 = 8 << 10;

/// Forward, of the cooperative variant: threads of a team, without a residual and with one, and the most blocks that share a group.
const COOPERATIVE_FORWARD_THREADS: [u64; 5] = [224, 256, 320, 352, 384];
const COOPERATIVE_RESIDUAL_THREADS: [u64; 6] = [224, 256, 288, 320, 352, 384];
const COOPERATIVE_FORWARD_TEAM: u64 = 160;
/// Bytes of x, and of a group, from which it is faster than reading x twice and than clusters that leave multiprocessors out. Where those take at most
/// so many groups one after another, smaller groups serve, too, if teams take no more.
const COOPERATIVE_FORWARD_LEAST: u64 = 32 << 20;
const COOPERATIVE_FORWARD_GROUP: u64 = 7 << 18;
const COOPERATIVE_FORWARD_ROUNDS: u64 = 5;
/// What a group costs it beyond its bytes, where elements have 4 bytes, 2, or where exponentials take the time; and what a step does. As bytes of a
/// multiprocessor's share of the memory's speed. With a residual, what a group costs where elements have 2 bytes.
const COOPERATIVE_FORWARD_TURN: [u64; 3] = [4 << 10, 12 << 10, 32 << 10];
const COOPERATIVE_RESIDUAL_TURN: u64 = 32 << 10;
const COOPERATIVE_FORWARD_STEP: u64 = 1 << 10;
/// Bytes that a block has on the way at once, and where a group takes most of the places: more of them hold up what is written, unless exponentials
/// or a residual take longer than that.
const COOPERATIVE_ARRIVING: [u64; 2] = [64 << 10, 31 << 10];
/// `message_exchange::turns` of `csrc/norm/channel_norm_walk.cuh`: messages of a block that memory has room for.
const COOPERATIVE_MESSAGES: u64 = 8;
/// Where a group does not fit: threads that write, most first, places for each reading of the steps that are read twice, and their bytes on all
/// multiprocessors up to which that was measured: the L2 has to keep those of two groups.
const OVERFLOWING_THREADS: [u64; 3] = [320, 256, 224];
const OVERFLOWING_WINDOWS: u64 = 2;
const OVERFLOWING_PASSING: u64 = 28 << 20;

/// A choice, the bytes of a block in a group, and the groups that a cluster takes one after another.
struct Relay {
    tuned: Tuned,
    bytes: u64,
    rounds: u64,
}

impl Relay {
    /// Whether it is faster than teams that take one group each.
    fn is_faster_than(&self, one: &Tuned, p: &Problem) -> bool {
        match p.adds_residual() {
            true => self.bytes >= RELAY_LEAST[1] && self.tuned.grid >= p.multiprocessors / 4 * 3,
            false => one.cluster > 1 && one.stagger_cycles == 0 && self.bytes >= RELAY_LEAST[0] && self.rounds > 1,
        }
    }
}

/// How blocks with two teams of threads, one that adds up and one that writes, take a group.
struct RelaySteps {
    threads: u64,
    /// Segments in a step, or steps of a segment.
    multi: u64,
    chunks: u64,
    /// Steps of a group.
    all: u64,
    /// Places for a residual.
    windows: u64,
}

/// What one of the blocks that share a group takes of it. All but the first two as bytes of a multiprocessor's share of the memory's speed.
struct RelayShare {
    steps: u64,
    /// Places for them.
    slots: u64,
    /// What it reads and writes, averaged over the multiprocessors, or its instructions where those take longer.
    time: u64,
    /// What is missing to places that hide the exchange.
    missing: u64,
    bytes: u64,
}

impl RelaySteps {
    fn new(p: &Problem, threads: u64, arrays: u64) -> Self {
        let (vectors, places) = (p.segment_vectors(), threads * RELAY_VECTORS);
        let (multi, chunks) = ((places / vectors).max(1), vectors.div_ceil(places));
        let windows = if arrays == 1 && p.has_extra { RELAY_RESIDUAL.div_ceil(places * 16) } else { 0 };
        Self { threads, multi, chunks, all: p.shape.group_segments().div_ceil(multi) * chunks, windows }
    }

    /// Of `blocks` blocks in all, `cluster` a group. step: what one costs in instructions.
    fn share(&self, p: &Problem, arrays: u64, cluster: u64, blocks: u64, step: u64) -> Option<RelayShare> {
        let steps = self.all.div_ceil(cluster);
        let parameters = if p.shape.groups == 0 { 1 } else { ((steps - 1) / self.chunks + 2) * self.multi };
        let room = u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED + parameters * 16);
        let slot = self.threads * RELAY_VECTORS * 16 * arrays;
        let slots = (room / slot).min(SLOTS).saturating_sub(self.windows);
        if steps >= slots {
            return None;
        }
        let bytes = p.group_vectors()? * 16 * arrays * steps / self.all;
        let passes = arrays + 1 + u64::from(self.windows > 0);
        let moved = bytes * passes / arrays * blocks / u64::from(p.multiprocessors);
        let instructions = steps * (arrays + 1) * step * u64::from(16 / p.element_bytes);
        let missing = RELAY_AHEAD.saturating_sub((slots - steps + self.windows) * slot);
        Some(RelayShare { steps, slots, time: moved.max(instructions), missing, bytes })
    }

    fn tuned(&self, p: &Problem, arrays: u64, share: &RelayShare, cluster: u64, teams: u64) -> Option<Tuned> {
        Some(Tuned {
            variant: sys::BOPS_CHANNEL_NORM_RELAY,
            vec_bytes: 16,
            vectors: share.steps as u32,
            threads: self.threads as u32,
            cluster: cluster as u32,
            grid: u32::try_from(teams * cluster).ok()?,
            stages: (share.slots + self.windows) as u32,
            chunks: self.windows as u32,
            workspace_bytes: if arrays == 1 && p.shape.groups > 0 && p.has_running {
                p.shape.group_count() * 16
            } else {
                0
            },
            launches: 1 + if arrays == 1 { running_launches(p) } else { 0 },
            ..Tuned::default()
        })
    }
}

/// Threads that write, most first.
fn relay_threads(p: &Problem, arrays: u64) -> impl Iterator<Item = u64> {
    let [fewest, most, step] = match arrays == 1 && p.activation == Activation::Silu {
        false if arrays == 1 && p.has_extra => [RELAY_THREADS[0], RELAY_RESIDUAL_THREADS, 32],
        false => [RELAY_THREADS[0], RELAY_THREADS[1], 32],
        true if is_long(p) => RELAY_EXPONENTIAL_THREADS,
        true => [RELAY_EXPONENTIAL_THREADS[0], RELAY_EXPONENTIAL_THREADS[1], 64],
    };
    (fewest..=most).rev().step_by(step as usize)
}

/// Whether a segment has work for a step of all threads.
fn is_long(p: &Problem) -> bool {
    p.segment_vectors() >= RELAY_THREADS[1] * RELAY_VECTORS
}

/// Whether all parts of a multiprocessor have as many threads, which matters where they compute exponentials.
fn evenly_spread(p: &Problem, threads: u64) -> bool {
    p.activation != Activation::Silu || !is_long(p) || threads.is_multiple_of(RELAY_EXPONENTIAL_THREADS[2])
}

/// Groups in shared memory while the following ones are fetched: the team and cluster that take the least time by what blocks move. `arrays`: x, or
/// dy and x, of a channel then.
fn relay(p: &Problem, arrays: u64) -> Option<Relay> {
    let serves = !p.is_general() || arrays == 1 && p.adds_residual();
    p.group_vectors().filter(|_| p.capability >= 90 && serves)?;
    if arrays == 2 && p.shape.groups > 0 {
        return None;
    }
    let groups = p.shape.group_count();
    let mut best: Option<(u64, Relay)> = None;
    for threads in relay_threads(p, arrays) {
        let steps = RelaySteps::new(p, threads, arrays);
        let most = u64::from(p.max_cluster).min(steps.all);
        for cluster in [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= most) {
            let teams = p.teams(cluster, 1).min(groups);
            let Some(share) = steps.share(p, arrays, cluster, teams * cluster, RELAY_STEP) else { continue };
            let rounds = groups.div_ceil(teams);
            let cost = rounds * (share.time + share.missing + RELAY_GROUP);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                let tuned = steps.tuned(p, arrays, &share, cluster, teams)?;
                let tuned = Tuned { overlaps: u32::from(rounds == 1), ..tuned };
                best = Some((cost, Relay { tuned, bytes: share.bytes, rounds }));
            }
        }
    }
    best.map(|(_, relay)| relay)
}

/// Backward, the same of channels that any number of blocks share, wherever they lie.
fn relay_of_grid_backward(p: &Problem) -> Option<Tuned> {
    let serves = p.capability >= 90 && p.shape.groups == 0 && p.is_at_most_relu() && !p.has_extra;
    let group_bytes = p.group_vectors().filter(|_| serves)? * 32;
    let (groups, multiprocessors) = (p.shape.group_count(), u64::from(p.multiprocessors));
    if group_bytes < RELAY_GRID_GROUP || groups * group_bytes < COOPERATIVE_LEAST {
        return None;
    }
    let mut best: Option<(u64, Tuned)> = None;
    for threads in RELAY_GRID_THREADS {
        let steps = RelaySteps::new(p, threads, 2);
        for teams in 1..=multiprocessors.min(groups) {
            let most = (multiprocessors / teams).min(COOPERATIVE_FORWARD_TEAM).min(steps.all);
            let team = steps.all.div_ceil(steps.all.div_ceil(most));
            let Some(share) = steps.share(p, 2, team, teams * team, 0) else {
                break; // Nor do smaller teams hold their groups.
            };
            let ahead = (share.slots - share.steps) * (share.bytes / share.steps);
            let missing = RELAY_GRID_AHEAD[0].saturating_sub(ahead);
            // The first group is not written while it is read, nor is one read while the last is written.
            let cost = groups.div_ceil(teams) * (share.time + missing / 2 + RELAY_GRID_TURN) + 2 * share.bytes;
            if missing > RELAY_GRID_AHEAD[1] || best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let tuned = steps.tuned(p, 2, &share, team, teams)?;
            let tuned = Tuned {
                tensors: (COOPERATIVE_ARRIVING[0] / (threads * RELAY_VECTORS * 32)) as u32,
                overlaps: 1,
                workspace_bytes: teams * team * COOPERATIVE_MESSAGES * 16,
                ..tuned
            };
            best = Some((cost, tuned));
        }
    }
    best.map(|(_, tuned)| tuned)
}

/// The same, of groups that any number of blocks share. cluster_rounds: the groups that clusters take one after another, if they hold one.
fn cooperative_forward(p: &Problem, cluster_rounds: Option<u64>) -> Option<Tuned> {
    let serves = p.capability >= 90 && (!p.is_general() || p.adds_residual());
    let group_bytes = p.group_vectors().filter(|_| serves)? * 16;
    let (groups, multiprocessors) = (p.shape.group_count(), u64::from(p.multiprocessors));
    let few_rounds = cluster_rounds.filter(|&rounds| rounds <= COOPERATIVE_FORWARD_ROUNDS);
    let is_small = group_bytes < COOPERATIVE_FORWARD_GROUP && !p.has_extra;
    if is_small && few_rounds.is_none() || groups * group_bytes < COOPERATIVE_FORWARD_LEAST {
        return None;
    }
    let is_exponential = p.activation == Activation::Silu;
    let turn = match p.has_extra && p.element_bytes == 2 {
        true => COOPERATIVE_RESIDUAL_TURN,
        false => COOPERATIVE_FORWARD_TURN[if is_exponential { 2 } else { usize::from(p.element_bytes == 2) }],
    };
    let instructions = if is_exponential { 2 * RELAY_STEP } else { RELAY_STEP };
    let mut best: Option<(u64, Tuned)> = None;
    let threads = if p.has_extra { &COOPERATIVE_RESIDUAL_THREADS[..] } else { &COOPERATIVE_FORWARD_THREADS };
    for &threads in threads.iter().filter(|&&threads| evenly_spread(p, threads)) {
        let steps = RelaySteps::new(p, threads, 1);
        for teams in 1..=multiprocessors.min(groups) {
            let most = (multiprocessors / teams).min(COOPERATIVE_FORWARD_TEAM).min(steps.all);
            let team = steps.all.div_ceil(steps.all.div_ceil(most));
            let Some(share) = steps.share(p, 1, team, teams * team, instructions) else {
                break; // Nor do smaller teams hold their groups.
            };
            let ahead = share.slots - share.steps + steps.windows;
            let missing = RELAY_AHEAD.saturating_sub(ahead * (share.bytes / share.steps));
            let own = share.time + missing + turn + share.steps * COOPERATIVE_FORWARD_STEP;
            if is_small && few_rounds.is_some_and(|rounds| groups.div_ceil(teams) > rounds) {
                continue;
            }
            // The first group is not written while it is read, nor is one read while the last is written.
            let cost = groups.div_ceil(teams) * own + 2 * share.bytes;
            if missing > RELAY_AHEAD / 2 || best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let is_full = 2 * share.steps > share.slots && !is_exponential && !p.has_extra;
            let tuned = steps.tuned(p, 1, &share, team, teams)?;
            let tuned = Tuned {
                variant: sys::BOPS_CHANNEL_NORM_COOPERATIVE,
                tensors: (COOPERATIVE_ARRIVING[usize::from(is_full)] / (threads * RELAY_VECTORS * 16)) as u32,
                overlaps: 1,
                workspace_bytes: tuned.workspace_bytes + teams * team * COOPERATIVE_MESSAGES * 16,
                ..tuned
            };
            best = Some((cost, tuned));
        }
    }
    best.map(|(_, tuned)| tuned).or_else(|| overflowing_forward(p))
}

/// The same of groups that are more than all multiprocessors hold.
fn overflowing_forward(p: &Problem) -> Option<Tuned> {
    if p.has_extra {
        return None;
    }
    let multiprocessors = u64::from(p.multiprocessors);
    let mut best: Option<(u64, Tuned)> = None;
    for threads in OVERFLOWING_THREADS.into_iter().filter(|&threads| evenly_spread(p, threads)) {
        let steps = RelaySteps::new(p, threads, 1);
        let own = steps.all.div_ceil(multiprocessors.min(COOPERATIVE_FORWARD_TEAM));
        let team = steps.all.div_ceil(own);
        let parameters = if p.shape.groups == 0 { 1 } else { p.shape.group_segments() };
        let place = threads * RELAY_VECTORS * 16;
        let slots = (u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED + parameters * 16) / place).min(SLOTS);
        // One place more than the steps that stay.
        let Some(staying) = slots.checked_sub(2 * OVERFLOWING_WINDOWS + 1).filter(|&staying| staying > 0) else {
            continue;
        };
        let Some(passing) = own.checked_sub(staying).filter(|&passing| passing > 0) else { continue };
        let cost = own * place;
        if passing * place * multiprocessors > OVERFLOWING_PASSING || best.is_some_and(|(least, _)| least <= cost) {
            continue;
        }
        let share = RelayShare { steps: own, slots, time: 0, missing: 0, bytes: 0 };
        let tuned = steps.tuned(p, 1, &share, team, 1)?;
        let tuned = Tuned {
            variant: sys::BOPS_CHANNEL_NORM_COOPERATIVE,
            chunks: OVERFLOWING_WINDOWS as u32,
            cached: passing as u32,
            tensors: (COOPERATIVE_ARRIVING[0] / place).min(staying + 1) as u32,
            overlaps: 1,
            workspace_bytes: tuned.workspace_bytes + team * COOPERATIVE_MESSAGES * 16,
            ..tuned
        };
        best = Some((cost, tuned));
    }
    best.map(|(_, tuned)| tuned)
}

#[cfg(test)]
mod tests {
    use super::super::ChannelShape;
    use super::*;

    fn h200(shape: [u64; 4], element_bytes: u32) -> Problem {
        let [batch, channels, spatial, groups] = shape;
        let width = |bytes: u64| 1 << (16 | bytes).trailing_zeros();
        Problem {
            shape: ChannelShape { batch, channels, spatial, groups },
            element_bytes,
            accumulator_bytes: element_bytes.max(4),
            vector_bytes: width(spatial * u64::from(element_bytes)),
            sample_vector_bytes: width(channels * spatial * u64::from(element_bytes)),
            inference: false,
            has_running: false,
            cumulative: false,
            activation: Activation::Identity,
            has_extra: false,
            has_dx: true,
            has_element_gradients: true,
            has_parameter_gradients: true,
            capability: 90,
            multiprocessors: 132,
            shared_bytes: 232_448,
            max_cluster: 16,
        }
    }

    /// Every device, option and shape that a test walks over.
    fn problems() -> impl Iterator<Item = Problem> {
        let spatial = (1..130).chain([196, 256, 392, 512, 784, 1024, 3136, 4096, 12544, 65536, 262_144, 1 << 20]);
        let devices = [(16, 232_448, 90), (8, 232_448, 90), (1, 166_912, 80), (1, 101_376, 89)];
        spatial.flat_map(move |spatial| {
            devices.into_iter().flat_map(move |(max_cluster, shared_bytes, capability)| {
                [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                    [(1, 6, 0), (64, 256, 0), (2, 320, 32), (3, 40, 40), (1, 2048, 1), (1, 8, 1)].into_iter().flat_map(
                        move |(batch, channels, groups)| {
                            [0, 1, 2, 3, 4, 6, 7].map(|bits| Problem {
                                max_cluster,
                                shared_bytes,
                                capability,
                                activation: match bits & 3 {
                                    0 => Activation::GeluErf,
                                    1 => Activation::Silu,
                                    2 => Activation::Relu,
                                    _ => Activation::Identity,
                                },
                                inference: bits & 2 == 0 && groups == 0,
                                has_extra: bits & 4 != 0,
                                ..h200([batch, channels, spatial, groups], element_bytes)
                            })
                        },
                    )
                })
            })
        })
    }

    #[test]
    fn every_element_of_every_group_has_a_thread() {
        for p in problems() {
            for (arrays, tuned) in [(1, forward(&p).unwrap()), (2, backward(&p).unwrap())] {
                let vectors = p.shape.spatial / u64::from(tuned.vec_bytes / p.element_bytes);
                let threads = u64::from(tuned.threads);
                match tuned.variant {
                    sys::BOPS_CHANNEL_NORM_SPLIT => {
                        assert!(
                            u64::from(tuned.chunks) * threads * u64::from(tuned.vectors) >= vectors,
                            "{p:?} {tuned:?}"
                        );
                        assert!(threads == 256 || threads <= 32 && threads.is_power_of_two(), "{tuned:?}");
                    }
                    sys::BOPS_CHANNEL_NORM_STRIPE => {
                        assert!(p.shape.channels.is_multiple_of(u64::from(tuned.vectors)), "{p:?} {tuned:?}");
                        assert_eq!(u64::from(tuned.grid * tuned.vectors), p.shape.channels);
                        let run = u64::from(tuned.vectors) * p.shape.spatial;
                        let (run_vectors, turns) = (run * u64::from(p.element_bytes) / 16, u64::from(tuned.chunks));
                        assert!(turns > 0 && turns * run_vectors <= threads, "{p:?} {tuned:?}");
                        assert!(threads <= 512 && threads.is_multiple_of(32), "{p:?} {tuned:?}");
                        if tuned.stages == 1 {
                            assert!(arrays == 1 && p.element_bytes == 2 && p.is_at_most_relu(), "{p:?} {tuned:?}");
                            assert!(threads <= 256 && p.shape.batch.div_ceil(turns) <= 13, "{p:?} {tuned:?}");
                        } else {
                            let shared_bytes = u64::from(arrays) * p.shape.batch * run_vectors * 16 + turns * run * 8;
                            assert!(shared_bytes + 512 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                        }
                    }
                    sys::BOPS_CHANNEL_NORM_SINGLE => {
                        let segments = p.shape.group_segments();
                        let own = u64::from(tuned.vectors) * threads;
                        assert!([0, 2, 4].contains(&tuned.cached) && tuned.cached <= tuned.vectors, "{p:?} {tuned:?}");
                        assert!(
                            tuned.cached == 0 || tuned.overlaps == 1 && arrays == 1 && !p.is_general(),
                            "{p:?} {tuned:?}"
                        );
                        let is_masked = arrays == 2 && p.is_masked();
                        let (all, bytes) = match arrays {
                            1 => (segments * vectors, 16),
                            _ if is_masked => (segments * vectors, 32),
                            _ => (segments * vectors.next_multiple_of(32), 32),
                        };
                        assert!(own * u64::from(tuned.cluster) >= all, "{p:?} {tuned:?}");
                        assert!(threads.is_multiple_of(32) && threads <= 1024, "{p:?} {tuned:?}");
                        let keeps = arrays == 2 && tuned.stages == 1;
                        let bytes = if keeps { bytes + 16 } else { bytes };
                        assert!(own * bytes + 4096 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                        assert!(!keeps || p.activation == Activation::Silu && p.element_bytes == 2, "{p:?} {tuned:?}");
                        let samples = if tuned.is_merged == 1 { p.shape.batch } else { 1 };
                        assert!(u64::from(tuned.cluster) * samples <= u64::from(p.max_cluster), "{p:?} {tuned:?}");
                        assert_eq!(
                            u64::from(tuned.grid),
                            p.shape.group_count() * u64::from(tuned.cluster),
                            "{tuned:?}"
                        );
                        let (most_vectors, most_threads) = if is_masked { (8, 448) } else { (27, 640) };
                        assert!(
                            arrays == 1 || tuned.vectors <= most_vectors && threads <= most_threads,
                            "{p:?} {tuned:?}"
                        );
                        assert!(arrays == 1 || is_masked || p.shape.groups > 0, "{p:?} {tuned:?}");
                    }
                    sys::BOPS_CHANNEL_NORM_SEGMENT => {
                        assert_eq!((p.shape.group_segments(), tuned.cluster), (1, 1), "{p:?}");
                        assert_eq!(u64::from(tuned.grid), p.shape.group_count(), "{tuned:?}");
                        let most = if arrays == 1 { 8 } else { 4 };
                        assert!(
                            u64::from(tuned.vectors) * threads >= vectors && tuned.vectors <= most,
                            "{p:?} {tuned:?}"
                        );
                        assert!(threads.is_multiple_of(32) && threads <= 512, "{p:?} {tuned:?}");
                        assert!(p.shape.groups > 0 && !p.is_general() && !p.inference, "{p:?} {tuned:?}");
                        let sums = if arrays == 2 { p.shape.batch * p.shape.channels * 8 } else { 0 };
                        assert!(tuned.workspace_bytes >= sums, "{p:?} {tuned:?}");
                    }
                    sys::BOPS_CHANNEL_NORM_RELAY => {
                        let segments = p.shape.group_segments();
                        let places = threads * 2;
                        let chunks = vectors.div_ceil(places);
                        let steps = segments.div_ceil((places / vectors).max(1)) * chunks;
                        assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                        let exponential = arrays == 1 && p.activation == Activation::Silu;
                        let (most, multiple) = match exponential {
                            true => (512, 64),
                            false => (if p.has_extra { 384 } else { 416 }, 32),
                        };
                        assert!(threads.is_multiple_of(multiple) && threads <= most, "{p:?} {tuned:?}");
                        if tuned.tensors > 0 {
                            assert!(arrays == 2 && p.is_at_most_relu() && !p.has_extra, "{p:?} {tuned:?}");
                            assert!(threads <= 384 && tuned.cluster <= 160, "{p:?} {tuned:?}");
                            assert!(
                                tuned.grid <= p.multiprocessors && tuned.tensors <= tuned.stages,
                                "{p:?} {tuned:?}"
                            );
                            assert!(tuned.workspace_bytes >= u64::from(tuned.grid) * 128, "{p:?} {tuned:?}");
                        } else {
                            assert!(tuned.cluster <= p.max_cluster, "{p:?} {tuned:?}");
                        }
                        assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                        let touched = (u64::from(tuned.vectors - 1) / chunks + 2) * (places / vectors).max(1);
                        let parameters = if p.shape.groups == 0 { 1 } else { touched };
                        let shared_bytes = u64::from(tuned.stages * arrays) * places * 16 + parameters * 16;
                        assert!(shared_bytes + 4096 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                        assert!(tuned.stages - tuned.chunks > tuned.vectors && tuned.stages <= 32, "{p:?} {tuned:?}");
                        assert_eq!(tuned.chunks > 0, p.has_extra, "{p:?} {tuned:?}");
                        assert!(p.capability >= 90 && !p.inference, "{p:?} {tuned:?}");
                        assert!(!p.is_general() || arrays == 1 && p.adds_residual(), "{p:?} {tuned:?}");
                        assert!(arrays == 1 || p.shape.groups == 0, "{p:?} {tuned:?}");
                    }
                    sys::BOPS_CHANNEL_NORM_COOPERATIVE if arrays == 1 => {
                        let places = threads * 2;
                        let (multi, chunks) = ((places / vectors).max(1), vectors.div_ceil(places));
                        let steps = p.shape.group_segments().div_ceil(multi) * chunks;
                        assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                        assert!(threads.is_multiple_of(32) && threads <= 384 && tuned.cluster <= 160, "{tuned:?}");
                        assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                        assert!(tuned.grid <= p.multiprocessors, "{p:?} {tuned:?}");
                        let touched = match tuned.cached {
                            0 => (u64::from(tuned.vectors - 1) / chunks + 2) * multi,
                            _ => p.shape.group_segments(),
                        };
                        let parameters = if p.shape.groups == 0 { 1 } else { touched };
                        let shared_bytes = u64::from(tuned.stages) * places * 16 + parameters * 16;
                        assert!(shared_bytes + 4096 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                        let windows = if p.has_extra { tuned.chunks } else { 2 * tuned.chunks };
                        let (staying, room) = (tuned.vectors - tuned.cached, tuned.stages - windows);
                        assert!(staying > 0 && staying < room && tuned.stages <= 32, "{p:?} {tuned:?}");
                        assert_eq!(tuned.cached > 0 || p.has_extra, tuned.chunks > 0, "{p:?} {tuned:?}");
                        assert!(tuned.cached == 0 || !p.has_extra, "{p:?} {tuned:?}");
                        assert!((1..=room).contains(&tuned.tensors), "{p:?} {tuned:?}");
                        assert!(p.capability >= 90 && !p.inference, "{p:?} {tuned:?}");
                        assert!(!p.is_general() || p.adds_residual(), "{p:?} {tuned:?}");
                        assert!(tuned.workspace_bytes >= u64::from(tuned.grid) * 128, "{tuned:?}");
                    }
                    sys::BOPS_CHANNEL_NORM_COOPERATIVE => {
                        let by_segment = p.shape.groups > 0;
                        let pitch = if by_segment { vectors.next_multiple_of(32) } else { vectors };
                        let segments = p.shape.group_segments();
                        let multi = (threads / pitch).max(1);
                        let chunks = if multi > 1 { 1 } else { vectors.div_ceil(threads) };
                        let steps = segments.div_ceil(multi) * chunks;
                        assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                        assert!(threads.is_multiple_of(32) && tuned.vectors <= 36, "{tuned:?}");
                        let is_masked = p.is_masked();
                        let is_active = p.activation != Activation::Identity && !is_masked;
                        let (most, held) = if is_active { (384, 6) } else { (352, 10) };
                        assert_eq!(tuned.tensors, if is_masked { 3 } else { 0 }, "{p:?} {tuned:?}");
                        assert!(threads <= most && tuned.stages + held > tuned.vectors, "{p:?} {tuned:?}");
                        assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                        assert!(tuned.grid <= p.multiprocessors, "{p:?} {tuned:?}");
                        let sums = if by_segment { (tuned.vectors + 1) * tuned.threads / 2 } else { 0 };
                        let place_bytes = tuned.threads * if is_masked { 48 } else { 32 };
                        assert!(tuned.stages * place_bytes + sums + 2048 <= p.shared_bytes, "{p:?} {tuned:?}");
                        assert!(p.capability >= 90 && !p.inference && arrays == 2, "{p:?} {tuned:?}");
                        assert!(is_masked || !p.is_general(), "{p:?} {tuned:?}");
                        assert!(tuned.workspace_bytes >= u64::from(tuned.grid) * 32, "{tuned:?}");
                    }
                    _ => {
                        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_HELD);
                        let pitch =
                            if arrays == 2 && p.shape.groups > 0 { vectors.next_multiple_of(32) } else { vectors };
                        let segments = p.shape.group_segments();
                        let steps = if pitch < threads && threads / pitch > 1 {
                            segments.div_ceil(threads / pitch)
                        } else {
                            segments * vectors.div_ceil(threads)
                        };
                        assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                        assert!(threads.is_multiple_of(32) && threads <= 512 && tuned.cluster <= p.max_cluster);
                        assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                        assert!(tuned.stages * tuned.threads * 16 * arrays + 4096 <= p.shared_bytes, "{p:?} {tuned:?}");
                        assert!(p.capability >= 90, "{p:?} {tuned:?}");
                        assert!(!p.has_extra, "{p:?} {tuned:?}");
                        assert!(tuned.vectors <= 36 && tuned.stages >= 2, "{p:?} {tuned:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn groups_that_fit_stay_on_chip() {
        for (shape, bytes) in [([256, 64, 3136, 0], 2), ([64, 64, 12544, 0], 2), ([64, 256, 3136, 0], 4)] {
            assert_eq!(forward(&h200(shape, bytes)).unwrap().variant, sys::BOPS_CHANNEL_NORM_RELAY, "{shape:?}");
        }
        for (shape, variant) in [
            ([64, 256, 3136, 0], sys::BOPS_CHANNEL_NORM_RELAY),
            ([64, 512, 784, 0], sys::BOPS_CHANNEL_NORM_HELD),
            ([16, 64, 12544, 0], sys::BOPS_CHANNEL_NORM_RELAY),
        ] {
            assert_eq!(backward(&h200(shape, 2)).unwrap().variant, variant, "{shape:?}");
        }
        for (shape, bytes) in [([2, 320, 4096, 32], 2), ([1, 512, 16384, 32], 2), ([32, 256, 3136, 32], 2)] {
            assert_eq!(forward(&h200(shape, bytes)).unwrap().variant, sys::BOPS_CHANNEL_NORM_SINGLE, "{shape:?}");
        }
        for (shape, bytes) in [([256, 64, 12544, 0], 4), ([1, 128, 1 << 18, 32], 2), ([1, 256, 1 << 20, 32], 2)] {
            assert_eq!(backward(&h200(shape, bytes)).unwrap().variant, sys::BOPS_CHANNEL_NORM_COOPERATIVE, "{shape:?}");
        }
        // The whole device does not hold such a group.
        assert_eq!(backward(&h200([1, 256, 1 << 20, 32], 4)).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
        let extra = |shape, bytes| Problem { has_extra: true, activation: Activation::Silu, ..h200(shape, bytes) };
        for (shape, threads, vectors, chunks) in
            [([64, 512, 784, 0], 32, 8, 1), ([64, 256, 3136, 0], 32, 8, 4), ([64, 64, 12544, 0], 256, 4, 4)]
        {
            let tuned = backward(&extra(shape, 4)).unwrap();
            assert_eq!((tuned.threads, tuned.vectors, tuned.chunks), (threads, vectors, chunks), "{shape:?}");
        }
        let merged = backward(&h200([2, 1280, 256, 32], 2)).unwrap();
        assert_eq!((merged.variant, merged.is_merged, merged.cluster), (sys::BOPS_CHANNEL_NORM_SINGLE, 1, 4));
        assert_eq!((merged.launches, merged.workspace_bytes, merged.threads, merged.stages), (1, 0, 160, 0));
        let silu = |shape, bytes| Problem { activation: Activation::Silu, ..h200(shape, bytes) };
        for (shape, bytes, threads, stages) in [
            ([2, 1280, 256, 32], 2, 160, 1),
            ([2, 320, 4096, 32], 2, 640, 1),
            ([32, 256, 3136, 32], 2, 480, 0), // two blocks share a multiprocessor
            ([2, 1280, 256, 32], 4, 160, 0),
        ] {
            let tuned = backward(&silu(shape, bytes)).unwrap();
            let seen = (tuned.variant, tuned.threads, tuned.stages);
            assert_eq!(seen, (sys::BOPS_CHANNEL_NORM_SINGLE, threads, stages), "{shape:?}");
        }
        for (p, stagger_cycles) in [
            (h200([32, 256, 3136, 32], 2), 5040),
            (silu([32, 256, 3136, 32], 2), 8400),
            (h200([2, 320, 4096, 32], 2), 0),
        ] {
            let tuned = backward(&p).unwrap();
            assert_eq!((tuned.variant, tuned.stagger_cycles), (sys::BOPS_CHANNEL_NORM_SINGLE, stagger_cycles), "{p:?}");
        }
        for (shape, expected) in [
            ([32, 256, 3136, 32], (2, 480, 7, 0)),
            ([8, 32, 1 << 16, 32], (8, 320, 7, 0)),
            ([8, 64, 1 << 14, 64], (4, 256, 4, 1)),
            ([1, 256, 1 << 14, 256], (8, 128, 4, 1)),
            ([2, 320, 4096, 32], (7, 256, 6, 1)), // four blocks a multiprocessor
            ([2, 256, 4096, 16], (4, 608, 7, 1)), // one
            ([2, 640, 1024, 32], (4, 160, 8, 1)), // a cluster for both samples
        ] {
            let tuned = backward(&h200(shape, 4)).unwrap();
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_SINGLE, "{shape:?}");
            assert_eq!((tuned.cluster, tuned.threads, tuned.vectors, tuned.overlaps), expected, "{shape:?}");
        }
        let active = backward(&silu([1, 128, 1 << 18, 32], 2)).unwrap();
        assert_eq!((active.variant, active.threads), (sys::BOPS_CHANNEL_NORM_COOPERATIVE, 384));
        for (bytes, ahead, back) in [(2, (256, 5, 1), (224, 4, 0)), (4, (224, 4, 0), (256, 5, 0))] {
            let small = h200([64, 2048, 49, 0], bytes);
            for (tuned, expected) in [(forward(&small).unwrap(), ahead), (backward(&small).unwrap(), back)] {
                assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_STRIPE);
                assert_eq!((tuned.threads, tuned.chunks, tuned.stages), expected, "{bytes}");
            }
        }
        let with_residual = extra([64, 2048, 49, 0], 2);
        let relu = Problem { activation: Activation::Relu, ..with_residual };
        for (p, variant) in [(with_residual, sys::BOPS_CHANNEL_NORM_SPLIT), (relu, sys::BOPS_CHANNEL_NORM_STRIPE)] {
            assert_eq!((forward(&p).unwrap().variant, backward(&p).unwrap().variant), (variant, variant));
        }
        for (shape, bytes, expected) in [
            ([2, 320, 4096, 32], 2, (2, 640, 4)),
            ([2, 320, 4096, 32], 4, (2, 640, 4)),
            ([2, 640, 1024, 32], 2, (2, 320, 4)),
            ([2, 1280, 256, 32], 2, (2, 320, 2)),
            ([2, 1280, 256, 32], 4, (2, 320, 4)),
            ([1, 512, 16384, 32], 2, (7, 480, 4)),
            ([32, 256, 3136, 32], 2, (1, 224, 0)),
        ] {
            let tuned = forward(&h200(shape, bytes)).unwrap();
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_SINGLE, "{shape:?} {bytes}");
            assert_eq!((tuned.cluster, tuned.threads, tuned.cached), expected, "{shape:?} {bytes}");
        }
        // Registers have no room for a residual or a long activation.
        let with_residual = extra([2, 320, 4096, 32], 2);
        let gelu = Problem { activation: Activation::GeluErf, ..h200([2, 320, 4096, 32], 2) };
        for p in [with_residual, gelu] {
            assert_eq!(forward(&p).unwrap().cached, 0, "{p:?}");
        }
        let apart = forward(&h200([32, 256, 3136, 32], 2)).unwrap();
        assert_eq!((apart.stagger_cycles, apart.multiprocessors, apart.residents), (4014, 132, 4));
        for (shape, bytes, cluster, overlaps) in
            [([64, 512, 784, 0], 2, 2, 0), ([64, 512, 784, 0], 4, 4, 1), ([32, 256, 3136, 32], 4, 2, 1)]
        {
            let halved = forward(&h200(shape, bytes)).unwrap();
            assert_eq!((halved.variant, halved.cluster), (sys::BOPS_CHANNEL_NORM_SINGLE, cluster), "{shape:?}");
            assert_eq!((halved.threads, halved.vectors, halved.overlaps), (224, 14, overlaps), "{shape:?}");
            assert_eq!((halved.stagger_cycles, halved.residents), (4014, 4), "{shape:?}");
        }
    }

    #[test]
    fn a_block_has_a_short_segment_in_registers() {
        let (identity, silu) = (Activation::Identity, Activation::Silu);
        let variants = |shape, bytes, activation| {
            let p = Problem { activation, ..h200(shape, bytes) };
            (forward(&p).unwrap().variant, backward(&p).unwrap().variant)
        };
        let (segment, single) = (sys::BOPS_CHANNEL_NORM_SEGMENT, sys::BOPS_CHANNEL_NORM_SINGLE);
        for (shape, bytes, activation, expected) in [
            ([8, 64, 16384, 64], 2, identity, (segment, segment)),
            ([8, 128, 4096, 128], 2, silu, (segment, segment)),
            ([8, 128, 4096, 128], 4, identity, (segment, segment)),
            ([64, 64, 12544, 64], 2, identity, (single, segment)), // more than blocks without shared memory serve well
            ([64, 64, 12544, 64], 2, silu, (segment, segment)),
            ([1, 256, 16384, 256], 2, Activation::GeluErf, (single, single)),
            ([8, 128, 4096, 64], 2, identity, (single, single)), // two segments a group
        ] {
            assert_eq!(variants(shape, bytes, activation), expected, "{shape:?} {bytes} {activation:?}");
        }
        let ahead = forward(&h200([8, 64, 16384, 64], 2)).unwrap();
        assert_eq!((ahead.threads, ahead.vectors, ahead.grid, ahead.overlaps), (256, 8, 512, 1));
        let back = backward(&h200([8, 64, 16384, 64], 2)).unwrap();
        assert_eq!((back.threads, back.vectors, back.launches, back.workspace_bytes), (512, 4, 2, 512 * 8));
    }

    #[test]
    fn groups_that_clusters_hold_badly_are_shared_by_all_multiprocessors() {
        let (identity, silu) = (Activation::Identity, Activation::Silu);
        for (shape, bytes, activation, expected) in [
            ([1, 256, 1 << 20, 32], 2, identity, (320, 13, 127, 127, 3)),
            ([1, 256, 1 << 20, 32], 2, silu, (384, 11, 125, 125, 5)),
            ([1, 128, 1 << 18, 32], 4, identity, (352, 3, 126, 126, 5)),
            ([1, 128, 1 << 18, 32], 2, identity, (352, 6, 32, 128, 5)),
            ([1, 128, 1 << 18, 32], 2, silu, (384, 11, 16, 128, 5)),
            ([64, 64, 12544, 0], 4, identity, (320, 5, 64, 128, 6)),
            ([1, 512, 16384, 32], 4, identity, (352, 6, 16, 128, 5)),
            ([256, 64, 3136, 0], 4, identity, (224, 8, 64, 128, 9)),
            ([2, 64, 1 << 18, 0], 4, identity, (352, 3, 63, 126, 5)),
        ] {
            let tuned = forward(&Problem { activation, ..h200(shape, bytes) }).unwrap();
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_COOPERATIVE, "{shape:?}");
            let found = (tuned.threads, tuned.vectors, tuned.cluster, tuned.grid, tuned.tensors);
            assert_eq!(found, expected, "{shape:?} {activation:?}");
        }
        // Through SiLU a residual is not fetched.
        let with_residual = Problem { has_extra: true, activation: silu, ..h200([2, 64, 1 << 18, 0], 4) };
        assert_eq!(forward(&with_residual).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
    }

    #[test]
    fn gradients_of_channels_that_a_cluster_has_no_room_for_two_of_relay_through_all_multiprocessors() {
        for (shape, bytes, expected) in [
            ([64, 64, 12544, 0], 2, (160, 5, 64, 128, 6)),
            ([64, 64, 12544, 0], 4, (160, 5, 128, 128, 6)),
            ([256, 64, 3136, 0], 2, (224, 4, 64, 128, 4)),
            ([256, 64, 3136, 0], 4, (224, 4, 128, 128, 4)),
            ([2, 64, 1 << 18, 0], 2, (256, 4, 32, 128, 4)),
            ([2, 64, 1 << 18, 0], 4, (256, 4, 64, 128, 4)),
            ([32, 64, 12544, 0], 4, (160, 5, 64, 128, 6)),
        ] {
            for activation in [Activation::Identity, Activation::Relu] {
                let tuned = backward(&Problem { activation, ..h200(shape, bytes) }).unwrap();
                assert_eq!((tuned.variant, tuned.overlaps), (sys::BOPS_CHANNEL_NORM_RELAY, 1), "{shape:?} {bytes}");
                let found = (tuned.threads, tuned.vectors, tuned.cluster, tuned.grid, tuned.tensors);
                assert_eq!(found, expected, "{shape:?} {bytes}");
            }
        }
        let silu = Problem { activation: Activation::Silu, ..h200([64, 64, 12544, 0], 2) };
        for (p, why) in [
            (silu, "its gradient takes registers"),
            (h200([64, 256, 3136, 0], 4), "a cluster's blocks have room for two groups"),
            (h200([64, 2, 12544, 0], 2), "little data"),
            (h200([256, 64, 12544, 0], 4), "nothing else has room on chip"),
        ] {
            let tuned = backward(&p).unwrap();
            assert!(tuned.variant != sys::BOPS_CHANNEL_NORM_RELAY || tuned.tensors == 0, "{why}: {tuned:?}");
        }
    }

    #[test]
    fn residuals_through_a_relu_stay_on_chip() {
        let relu = |shape, bytes| Problem { has_extra: true, activation: Activation::Relu, ..h200(shape, bytes) };
        let (relay, cooperative) = (sys::BOPS_CHANNEL_NORM_RELAY, sys::BOPS_CHANNEL_NORM_COOPERATIVE);
        let single = sys::BOPS_CHANNEL_NORM_SINGLE;
        for (shape, bytes, ahead, back) in [
            ([64, 512, 784, 0], 2, (relay, 384, 10, 1, 3), (single, 224, 7, 4)),
            ([64, 512, 784, 0], 4, (relay, 352, 11, 2, 3), (single, 224, 7, 8)),
            ([64, 256, 3136, 0], 2, (cooperative, 224, 16, 4, 5), (single, 224, 7, 16)),
            ([64, 256, 3136, 0], 4, (cooperative, 224, 8, 16, 5), (cooperative, 288, 12, 16)),
            ([2, 64, 1 << 18, 0], 2, (cooperative, 256, 8, 16, 4), (cooperative, 320, 13, 16)),
            ([64, 64, 12544, 0], 2, (cooperative, 288, 12, 16, 4), (cooperative, 320, 10, 32)),
            ([64, 64, 12544, 0], 4, (cooperative, 320, 5, 64, 4), (cooperative, 352, 9, 64)),
            ([2, 64, 1 << 18, 0], 4, (cooperative, 352, 3, 63, 3), (cooperative, 288, 14, 33)),
            ([32, 128, 784, 0], 4, (relay, 352, 11, 1, 3), (single, 224, 7, 4)),
            ([32, 128, 784, 0], 2, (relay, 384, 5, 1, 3), (single, 416, 4, 2)), // two blocks a multiprocessor
        ] {
            let tuned = forward(&relu(shape, bytes)).unwrap();
            let found = (tuned.variant, tuned.threads, tuned.vectors, tuned.cluster, tuned.chunks);
            assert_eq!(found, ahead, "{shape:?} {bytes}");
            let tuned = backward(&relu(shape, bytes)).unwrap();
            assert_eq!(tuned.tensors, if back.0 == cooperative { 3 } else { 0 }, "{shape:?} {bytes}");
            let found = (tuned.variant, tuned.threads, tuned.vectors, tuned.cluster);
            assert_eq!(found, back, "{shape:?} {bytes}");
        }
        // Few channels leave multiprocessors out; of little data a block holds a channel.
        assert_eq!(forward(&relu([80, 12, 1024, 0], 4)).unwrap().variant, single);
        let small = backward(&relu([32, 256, 256, 0], 2)).unwrap();
        assert_eq!((small.variant, small.cluster, small.overlaps), (single, 1, 1));
        let identity = Problem { activation: Activation::Identity, ..relu([64, 512, 784, 0], 4) };
        assert_eq!(forward(&identity).unwrap().variant, relay);
        assert_eq!(backward(&identity).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
    }

    #[test]
    fn what_the_whole_device_does_not_hold_passes_twice() {
        for (shape, bytes, activation, expected) in [
            ([1, 256, 1 << 20, 32], 4, Activation::Identity, (320, 25, 132, 8)),
            ([1, 256, 1 << 20, 32], 4, Activation::Silu, (256, 32, 128, 10)),
            ([1, 96, 1 << 20, 8], 4, Activation::Identity, (256, 47, 131, 25)),
            ([1, 80, 1 << 21, 8], 2, Activation::Identity, (256, 39, 132, 17)),
        ] {
            let tuned = forward(&Problem { activation, ..h200(shape, bytes) }).unwrap();
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_COOPERATIVE, "{shape:?}");
            let found = (tuned.threads, tuned.vectors, tuned.grid, tuned.cached);
            assert_eq!(found, expected, "{shape:?} {activation:?}");
        }
        // The L2 does not keep so much of two groups.
        let larger = h200([1, 64, 3 << 20, 8], 4);
        assert_eq!(forward(&larger).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
    }

    #[test]
    fn absurd_sizes_are_refused_not_wrapped() {
        assert!(forward(&h200([1 << 20, 1 << 20, 8, 0], 2)).is_err());
        assert!(backward(&h200([1 << 20, 1 << 20, 8, 0], 2)).is_err());
    }
}
