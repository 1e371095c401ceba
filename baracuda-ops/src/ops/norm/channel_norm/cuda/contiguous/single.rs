//! Groups that a block or a cluster takes once.

use baracuda_ops_sys as sys;

use super::{Problem, RESERVED_SHARED, Tuned, running_launches};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

/// The least work of a block where a larger cluster would only fill the device, in vectors.
const LEAST: u64 = 512;
/// Forward: the most vectors of a thread; threads of a block that has a multiprocessor to itself, and of one that shares it with one other, so that no
/// third one fits where the next multiprocessor has one.
const VECTORS: u64 = 15;
const ALONE: u64 = 640;
const PAIR: u64 = 512;
/// Forward: threads of a block alone while those have so many vectors, the least and the most.
const SMALL: u64 = 320;
const FEW: [u64; 2] = [2, 4];
/// Forward: vectors of a thread that registers hold in a block alone, and of 16-bit elements without exponentials also in one of a pair.
const HELD: [u64; 2] = [4, 2];
/// Of so many blocks a cluster all are resident, two a multiprocessor, where those of 8 are not.
const SMALLER: u64 = 7;
/// Forward: shared memory of a block beside its group, in bytes; clock cycles, and in how many bytes of a block, by which the first blocks of a
/// multiprocessor start one after another, where blocks follow them.
const SHARED: u64 = 3 << 10;
const STAGGER: [u64; 2] = [2, 25];
/// Forward: the largest cluster, of 16-bit elements and of others, that starts apart, with blocks half as large so that four share a multiprocessor.
const APART: [u64; 2] = [2, 4];
/// Backward, in warps of a block: where it shares a multiprocessor, where it has one to itself, where a cluster takes all samples.
const BACKWARD_WARPS: [u64; 3] = [15, 20, 5];
/// Backward: clock cycles, and in how many bytes of a block, by which the first two blocks of a multiprocessor start one after the other, where
/// others follow: without SiLU, and through it.
const BACKWARD_STAGGER: [(u64, u64); 2] = [(3, 64), (5, 64)];
/// Backward of f32 in clusters whose blocks share a multiprocessor: blocks of each multiprocessor that they make, at least; the clusters; the
/// fewest vectors of a thread and warps of a block; warps of a multiprocessor; bytes of dy and x in a block up to which blocks that wait for the
/// previous kernel are no hindrance.
const SHARING_BLOCKS: u64 = 8;
const SHARING_CLUSTERS: [u64; 3] = [2, 4, 8];
const SHARING_VECTORS: u64 = 4;
const SHARING_WARPS: u64 = 8;
const SHARING_ALL_WARPS: u64 = 32;
const SHARING_EARLY: u64 = 32 << 10;
/// The same of groups that clusters of `SMALLER` fill the device with: blocks of a multiprocessor.
const SHARING_RESIDENTS: u64 = 4;
/// Backward of BatchNorm through a ReLU that a residual or y tells the sign for: blocks that share a multiprocessor, threads of a block, and where
/// there are two a multiprocessor at most; the most vectors of a thread.
const MASKED_RESIDENTS: u64 = 4;
const MASKED_THREADS: [u64; 2] = [224, 448];
const MASKED_VECTORS: u64 = 8;
/// Bytes of dy and x in a block up to which a cluster takes all samples, of f32 without SiLU and of others, and its blocks.
const MERGED_BYTES: [u64; 2] = [40 << 10, 24 << 10];
const MERGED_BLOCKS: u64 = 8;
/// The most blocks of a multiprocessor in all: further ones cost more than the launch that adds up the samples.
const MERGED_MOST: u64 = 4;
/// Multiprocessors' worth of blocks up to which they are launched while the previous kernel ends.
const EARLY: u64 = 4;

impl Problem {
    /// Shared memory of a block that takes a group: two fit on a multiprocessor, or one where neither clusters nor another variant take more.
    fn single_room(&self) -> u64 {
        let blocks = if self.max_cluster > 1 { 2 } else { 1 };
        (u64::from(self.shared_bytes) / blocks).saturating_sub(RESERVED_SHARED)
    }

    /// The smallest cluster whose blocks take at most `most` vectors each and with which the groups fill the device, if a cluster does the first.
    fn single_cluster(&self, all: u64, most: u64) -> Option<u64> {
        let fits = |&cluster: &u64| all.div_ceil(cluster) <= most;
        let fills = |&cluster: &u64| {
            self.shape.group_count() * cluster >= u64::from(self.multiprocessors) * 7 / 8 || all / (cluster * 2) < LEAST
        };
        let clusters = || [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= u64::from(self.max_cluster));
        clusters().filter(fits).find(fills).or_else(|| clusters().rfind(fits))
    }

    fn single_tuned(&self, cluster: u64, threads: u64, vectors: u64, blocks: u64) -> Option<Tuned> {
        let early = self.capability >= 90 && blocks <= u64::from(self.multiprocessors) * EARLY;
        Some(Tuned {
            variant: sys::BOPS_CHANNEL_NORM_SINGLE,
            vec_bytes: 16,
            vectors: word(vectors),
            threads: word(threads),
            cluster: word(cluster),
            grid: grid(blocks)?,
            overlaps: u32::from(early),
            launches: 1,
            ..Tuned::default()
        })
    }
}

/// Groups of which a block or a cluster takes one, whole, into shared memory.
pub(super) fn forward(p: &Problem) -> Option<Tuned> {
    let all = p.group_vectors()?;
    let (groups, segments) = (p.shape.group_count(), p.shape.group_segments());
    let parameters = if p.shape.groups == 0 { 1 } else { segments };
    let most = p.single_room().saturating_sub(parameters * 8) / 16;
    let cluster = match p.single_cluster(all, most)? {
        8 if groups > p.teams(8, 2) && groups <= p.teams(SMALLER, 2) && all.div_ceil(SMALLER) <= most => SMALLER,
        cluster => cluster,
    };
    // Where two blocks share a multiprocessor and others follow, four of half the size hide each other's phases better.
    let room = |blocks: u64| (u64::from(p.shared_bytes) / blocks).saturating_sub(SHARED + parameters * 8) / 16;
    let is_pair = all.div_ceil(cluster) > room(3) && groups.checked_mul(cluster)? > 2 * u64::from(p.multiprocessors);
    let halves = cluster * 2;
    let is_allowed = halves <= APART[usize::from(p.element_bytes == 4)].min(u64::from(p.max_cluster));
    let is_measured = !p.is_general() && (p.element_bytes == 4 || p.activation != Activation::Silu);
    let is_halved = is_pair && is_allowed && is_measured && all.div_ceil(halves) <= room(4);
    let cluster = if is_halved { halves } else { cluster };
    let (blocks, own) = (groups.checked_mul(cluster)?, all.div_ceil(cluster));
    let together = blocks.div_ceil(u64::from(p.multiprocessors));
    let vectors = match together {
        1 => own.div_ceil(ALONE).max(own.div_ceil(SMALL).clamp(FEW[0], FEW[1])),
        2 => own.div_ceil(PAIR),
        _ => VECTORS,
    };
    let threads = own.div_ceil(vectors).next_multiple_of(32);
    let vectors = own.div_ceil(threads);
    let fits = threads <= 1024 && threads * vectors <= most;
    let tuned = p.single_tuned(cluster, threads, vectors, blocks)?;
    let workspace_bytes = if p.shape.groups > 0 && p.has_running { groups * 16 } else { 0 };
    let bytes = threads * vectors * 16;
    let residents = (u64::from(p.shared_bytes) / (bytes + parameters * 8 + SHARED)).min(1024 / threads.max(1));
    let keep_step = (cluster == 1 || is_halved) && residents > 1 && blocks > u64::from(p.multiprocessors) * residents;
    let tuned = if keep_step {
        let stagger_cycles = word(bytes * STAGGER[0] / STAGGER[1]);
        // Channels of 16 bits share lines with their neighbours, and launched early, blocks lose step with those.
        let starts_early = p.capability >= 90 && (p.shape.groups > 0 || p.element_bytes == 4);
        let overlaps = tuned.overlaps | u32::from(starts_early);
        Tuned { overlaps, stagger_cycles, multiprocessors: p.multiprocessors, residents: word(residents), ..tuned }
    } else {
        tuned
    };
    let most_together = if p.element_bytes == 2 && p.activation != Activation::Silu { 2 } else { 1 };
    let holds = tuned.overlaps == 1 && together <= most_together && !p.is_general();
    let held = word(HELD.into_iter().find(|&held| holds && held <= vectors).unwrap_or(0));
    fits.then_some(Tuned { cached: held, workspace_bytes, launches: 1 + running_launches(p), ..tuned })
}

/// The gradients of GroupNorm and InstanceNorm in the same way.
pub(super) fn backward(p: &Problem) -> Option<Tuned> {
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
        let merged = || form(cluster, batch, BACKWARD_WARPS[2], p.single_room());
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
        form(cluster, 0, BACKWARD_WARPS[1], p.single_room())?
    } else if cluster == 1 {
        let tuned = form(1, 0, BACKWARD_WARPS[0], p.single_room())?;
        let bytes = u64::from(tuned.threads * tuned.vectors) * 32;
        let is_pair = bytes * 3 > u64::from(p.shared_bytes) && p.max_cluster > 1;
        if is_pair && blocks > 2 * u64::from(p.multiprocessors) && !p.is_general() {
            let (cycles, of) = BACKWARD_STAGGER[usize::from(p.activation == Activation::Silu)];
            let stagger_cycles = word(bytes * cycles / of);
            Tuned { stagger_cycles, multiprocessors: p.multiprocessors, residents: 2, ..tuned }
        } else {
            tuned
        }
    } else if is_plain && cluster_in(whole).is_some_and(is_alone) {
        let own = rows.div_ceil(SMALLER);
        let residents = u64::from(p.shared_bytes) / (own * row_bytes + RESERVED_SHARED);
        let all_resident = p.teams(SMALLER, SHARING_RESIDENTS);
        let fills = (all_resident * 7 / 8..=all_resident).contains(&groups);
        if u64::from(p.max_cluster) >= SMALLER && residents == SHARING_RESIDENTS && fills {
            form(SMALLER, 0, SHARING_ALL_WARPS / residents, p.single_room())?
        } else {
            form(cluster_in(whole)?, 0, BACKWARD_WARPS[1], whole)?
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
pub(super) fn masked_backward(p: &Problem) -> Option<Tuned> {
    let all = p.group_vectors().filter(|_| p.is_masked())?;
    let room = (u64::from(p.shared_bytes) / MASKED_RESIDENTS).saturating_sub(SHARED) / 32;
    let form = |cluster: u64| {
        let (own, blocks) = (all.div_ceil(cluster), p.shape.group_count().checked_mul(cluster)?);
        let is_pair = blocks <= 2 * u64::from(p.multiprocessors);
        let vectors = own.div_ceil(MASKED_THREADS[usize::from(is_pair)]);
        let threads = own.div_ceil(vectors).next_multiple_of(32);
        let fits = vectors <= MASKED_VECTORS && threads * vectors <= room;
        let tuned = p.single_tuned(cluster, threads, vectors, blocks).filter(|_| fits)?;
        Some(Tuned { overlaps: u32::from(p.capability >= 90), ..tuned })
    };
    [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= u64::from(p.max_cluster)).find_map(form)
}
