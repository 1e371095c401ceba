//! Groups that a block or a cluster takes as a whole into its shared memory, one group each.

use baracuda_ops_sys as sys;

use super::{Answer, ChannelProblem, Chosen, NO_ROOM, RESERVED_SHARED, needs};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

pub(in super::super) type Choice = sys::bops_channel_norm_single_choice;
pub(in super::super) type BackwardChoice = sys::bops_channel_norm_backward_single_choice;
pub(in super::super) type MaskedChoice = sys::bops_channel_norm_backward_single_masked_choice;

/// Clusters grow until the groups fill the device, unless blocks of the next larger cluster would have fewer vectors than this.
const LEAST_BLOCK_VECTORS: u64 = 512;
/// Threads of a block, and of an SM if several blocks share it, at most.
const MOST_THREADS: u64 = 1024;
/// The most blocks for each SM with which a launch may begin while the previous kernel of the stream ends.
const EARLY_BLOCKS: u64 = 4;

/// Forward: the most threads of a block that has an SM to itself.
const ALONE_THREADS: u64 = 640;
/// Threads of a block that has an SM to itself, if each of them then has from `LEAST_FEW_VECTORS` to `MOST_FEW_VECTORS` vectors.
const SMALL_THREADS: u64 = 320;
/// The least of few vectors of a thread.
const LEAST_FEW_VECTORS: u64 = 2;
/// The most of few vectors of a thread.
const MOST_FEW_VECTORS: u64 = 4;
/// The most threads of a block that shares an SM with one other. Smaller blocks might lie three on one SM while another has one.
const PAIR_THREADS: u64 = 512;
/// Vectors of a thread if there are more than two blocks for each SM, measured. With more, fewer threads of an SM compute at once; with fewer, blocks
/// have more threads, so that fewer blocks share an SM.
const SHARED_VECTORS: u64 = 15;
/// Vectors of a thread that registers may hold, the preferred number first.
const REGISTER_VECTORS: [u64; 2] = [4, 2];
/// Clusters of 7 blocks are all resident at two blocks an SM; clusters of 8 are not.
const CLUSTER_OF_SEVEN: u64 = 7;
/// Shared memory of a block beside its group, in bytes.
const OWN_SHARED_BYTES: u64 = 3 << 10;
/// If more blocks follow, the first blocks of an SM start `STAGGER_CYCLES` clock cycles apart for every `STAGGER_BYTES` bytes of a block: about the time
/// that a block takes to fetch its group. Measured: blocks of 50 KB are fastest 4000 cycles apart (docs/rejected.md).
const STAGGER_CYCLES: u64 = 2;
/// Bytes of a block for which the next block of its SM starts `STAGGER_CYCLES` later.
const STAGGER_BYTES: u64 = 25;
/// The largest cluster that is made of blocks half as large, four of which share an SM in place of two, for elements of 16 bits.
const HALVED_CLUSTER_OF_16_BITS: u64 = 2;
/// As `HALVED_CLUSTER_OF_16_BITS`, for elements of 32 bits.
const HALVED_CLUSTER_OF_32_BITS: u64 = 4;

/// Backward: the most warps of a block that shares an SM.
const SHARING_BLOCK_WARPS: u64 = 15;
/// The most warps of a block that has an SM to itself.
const ALONE_WARPS: u64 = 20;
/// The most warps of a block whose cluster takes all samples.
const MERGED_WARPS: u64 = 5;
/// The most rows of 32 vectors that a warp takes: each of its lanes adds up so many vectors one after another, which bounds the roundings of a chain.
const WARP_ROWS: u64 = 27;
/// Bytes of shared memory of a row: 32 vectors of dy and of x, and its two sums.
const ROW_BYTES: u64 = ROW_TENSOR_BYTES + 8;
/// Bytes of a row of dy and of x, each of 32 vectors of 16 bytes.
const ROW_TENSOR_BYTES: u64 = 2 * 32 * 16;
/// Vectors of a segment from which on `held` may be faster, measured. In a step of `held` no warp has vectors of two segments: with so many vectors at
/// most a fifth of the lanes have none, with fewer it may be all lanes but one.
const HELD_SEGMENT_VECTORS: u64 = 128;
/// Bytes of dpre in a row, if it is kept.
const DPRE_ROW_BYTES: u64 = 32 * 16;
/// The first two blocks of an SM start so many clock cycles apart for every `BACKWARD_STAGGER_BYTES` bytes of dy and x in a block. Measured: blocks of
/// 100 KB are fastest about 5000 cycles apart (docs/rejected.md). For each byte of a block that is less time than forward, whose blocks write as many
/// bytes as they read; backward they write half as many.
const BACKWARD_STAGGER_CYCLES: u64 = 3;
/// As `BACKWARD_STAGGER_CYCLES`, through SiLU, whose blocks compute longer: those of 100 KB are fastest about 8000 cycles apart.
const BACKWARD_STAGGER_CYCLES_OF_SILU: u64 = 5;
/// Bytes of dy and x in a block for which the next block of its SM starts `BACKWARD_STAGGER_CYCLES` later.
const BACKWARD_STAGGER_BYTES: u64 = 64;

/// Backward of f32 in clusters whose blocks share SMs: cluster sizes that are tried, in blocks.
const SHARING_CLUSTERS: [u64; 3] = [2, 4, 8];
/// Backward of f32 in clusters whose blocks share SMs: the fewest blocks of the launch for each SM.
const SHARING_BLOCKS: u64 = 8;
/// Backward of f32 in clusters whose blocks share SMs: the fewest vectors of a thread.
const SHARING_VECTORS: u64 = 4;
/// Backward of f32 in clusters whose blocks share SMs: the fewest warps of a block, unless its threads would have fewer vectors than `SHARING_VECTORS`.
const SHARING_WARPS: u64 = 8;
/// Backward of f32 in clusters whose blocks share SMs: warps of all blocks of an SM.
const SHARING_ALL_WARPS: u64 = 32;
/// Backward of f32 in clusters whose blocks share SMs: bytes of dy and x in a block up to which the launch may begin while the previous kernel ends.
/// Larger waiting blocks take more of the shared memory that running blocks could have.
const SHARING_EARLY_BYTES: u64 = 32 << 10;
/// Backward of f32: clusters of 7 blocks are taken if this many of their blocks share an SM and the groups fill the device.
const RESIDENTS_OF_SEVENS: u64 = 4;

/// Backward in clusters that have the teams of all samples and therefore need no further launch: the most bytes of dy and x in a block, of f32 without
/// SiLU.
const MERGED_PLAIN_BYTES: u64 = 40 << 10;
/// As `MERGED_PLAIN_BYTES`, of 16-bit elements or through SiLU.
const MERGED_OTHER_BYTES: u64 = 24 << 10;
/// The most blocks of a cluster that has the teams of all samples.
const MERGED_BLOCKS: u64 = 8;
/// The most blocks for each SM in a launch whose clusters have the teams of all samples: further ones cost more than the launch that adds up the
/// samples.
const MERGED_SM_BLOCKS: u64 = 4;

/// Backward through a ReLU that a residual or y decides: blocks that share an SM.
const MASKED_RESIDENTS: u64 = 4;
/// Backward through a ReLU that a residual or y decides: threads of a block. Four such blocks have 896 threads, for which an SM has 72 registers each.
const MASKED_THREADS: u64 = 224;
/// Backward through a ReLU that a residual or y decides: threads of a block if there are at most two for each SM. Two such blocks have 896 threads, too.
const MASKED_PAIR_THREADS: u64 = 448;
/// Backward through a ReLU that a residual or y decides: vectors of a thread, at most.
const MASKED_VECTORS: u64 = 8;

impl ChannelProblem {
    /// Shared memory of a block: two blocks fit on an SM, or one if neither clusters nor another form could take larger groups.
    fn single_room(&self) -> u64 {
        let blocks = if self.max_cluster > 1 { 2 } else { 1 };
        (self.shared_bytes / blocks).saturating_sub(RESERVED_SHARED)
    }

    /// The smallest cluster whose blocks take at most `most` vectors each and with which the groups fill the device, 7 of 8 SMs of it; or the largest
    /// that takes them, if none fills it.
    fn single_cluster(&self, all: u64, most: u64) -> Option<u64> {
        let fits = |&cluster: &u64| all.div_ceil(cluster) <= most;
        let fills = |&cluster: &u64| {
            self.shape.group_count() * cluster >= self.multiprocessors * 7 / 8
                || all / (cluster * 2) < LEAST_BLOCK_VECTORS
        };
        self.clusters().filter(fits).find(fills).or_else(|| self.clusters().rfind(fits))
    }

    /// Whether so many blocks are launched while the previous kernel ends.
    fn starts_early(&self, blocks: u64) -> u32 {
        u32::from(self.capability >= 90 && blocks <= self.multiprocessors * EARLY_BLOCKS)
    }
}

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let all = p.group_vectors()?;
    choose_forward(p, all).ok_or_else(|| p.no_room(NO_ROOM))
}

fn choose_forward(p: &ChannelProblem, all: u64) -> Option<Chosen<Choice>> {
    let (groups, segments) = (p.shape.group_count(), p.shape.group_segments());
    let (multiprocessors, shared_bytes) = (p.multiprocessors, p.shared_bytes);
    let parameters = if p.shape.groups == 0 { 1 } else { segments };
    // 1. The cluster.
    let most = p.single_room().saturating_sub(parameters * 8) / 16;
    let two = |cluster| p.resident_clusters(cluster, 2);
    let cluster = match p.single_cluster(all, most)? {
        8 if groups > two(8) && groups <= two(CLUSTER_OF_SEVEN) && all.div_ceil(CLUSTER_OF_SEVEN) <= most => {
            CLUSTER_OF_SEVEN
        }
        cluster => cluster,
    };
    // If two blocks share an SM and others follow, four blocks of half the size hide each other's phases better.
    let room = |blocks: u64| (shared_bytes / blocks).saturating_sub(OWN_SHARED_BYTES + parameters * 8) / 16;
    let is_pair = all.div_ceil(cluster) > room(3) && groups.checked_mul(cluster)? > 2 * multiprocessors;
    let halves = cluster * 2;
    let largest = if p.element_bytes == 4 { HALVED_CLUSTER_OF_32_BITS } else { HALVED_CLUSTER_OF_16_BITS };
    let is_allowed = halves <= largest.min(p.max_cluster);
    let is_measured = !p.is_general() && (p.element_bytes == 4 || p.activation != Activation::Silu);
    let is_halved = is_pair && is_allowed && is_measured && all.div_ceil(halves) <= room(4);
    let cluster = if is_halved { halves } else { cluster };
    // 2. Threads and their vectors.
    let (blocks, own) = (groups.checked_mul(cluster)?, all.div_ceil(cluster));
    let together = blocks.div_ceil(multiprocessors);
    let vectors = match together {
        1 => own.div_ceil(ALONE_THREADS).max(own.div_ceil(SMALL_THREADS).clamp(LEAST_FEW_VECTORS, MOST_FEW_VECTORS)),
        2 => own.div_ceil(PAIR_THREADS),
        _ => SHARED_VECTORS,
    };
    let threads = own.div_ceil(vectors).next_multiple_of(32);
    let vectors = own.div_ceil(threads);
    let fits = threads <= MOST_THREADS && threads * vectors <= most;
    // 3. When blocks start.
    let bytes = threads * vectors * 16;
    let residents = (shared_bytes / (bytes + parameters * 8 + OWN_SHARED_BYTES)).min(MOST_THREADS / threads.max(1));
    let is_staggered = (cluster == 1 || is_halved) && residents > 1 && blocks > multiprocessors * residents;
    // Channels of 16 bits share cache lines with their neighbours. Blocks that are launched early lose step with the blocks of those neighbours.
    let starts_early = is_staggered && p.capability >= 90 && (p.shape.groups > 0 || p.element_bytes == 4);
    let overlaps = p.starts_early(blocks) | u32::from(starts_early);
    let most_together = if p.element_bytes == 2 && p.activation != Activation::Silu { 2 } else { 1 };
    let may_hold = overlaps == 1 && together <= most_together && !p.is_general();
    let held = REGISTER_VECTORS.into_iter().find(|&held| may_hold && held <= vectors).unwrap_or(0);
    let staggered = |n: u64| if is_staggered { word(n) } else { 0 };
    let choice = Choice {
        cluster_blocks: word(cluster),
        vectors: word(vectors),
        register_vectors: word(held),
        threads: word(threads),
        blocks: grid(blocks)?,
        overlaps,
        stagger_cycles: staggered(bytes * STAGGER_CYCLES / STAGGER_BYTES),
        multiprocessors: staggered(multiprocessors),
        residents: staggered(residents),
    };
    let launches = 1 + p.running_launches();
    fits.then_some(Chosen { choice, workspace_bytes: p.running_bytes(), launches })
}

/// The gradients of GroupNorm and InstanceNorm.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<BackwardChoice> {
    p.group_vectors()?;
    needs(p.shape.groups > 0, "samples share statistics")?;
    choose_backward(p).ok_or_else(|| p.no_room("a group has no room on chip, or the form held is faster"))
}

fn choose_backward(p: &ChannelProblem) -> Option<Chosen<BackwardChoice>> {
    let (groups, segments) = (p.shape.group_count(), p.shape.group_segments());
    let (multiprocessors, batch) = (p.multiprocessors, p.shape.batch);
    let rows = segments.checked_mul(p.segment_vectors().div_ceil(32))?;
    let may_keep = p.activation == Activation::Silu && p.element_bytes == 2;
    let is_plain = p.element_bytes == 4 && p.is_at_most_relu();
    let serves_all = p.is_pinned || p.segment_vectors() < HELD_SEGMENT_VECTORS && !p.is_general();
    // A choice with so many warps, if it fits. samples: the number of samples whose teams form one cluster, or 0.
    let with_warps = |cluster: u64, samples: u64, warps: u64, room: u64| {
        let own = rows.div_ceil(cluster);
        let vectors = own.div_ceil(warps);
        let warps = own.div_ceil(vectors);
        let sums = cluster * samples * segments * 8;
        let fits = vectors <= WARP_ROWS && warps * vectors * ROW_BYTES + sums <= room;
        let blocks = groups.checked_mul(cluster)?;
        let is_alone = samples > 0 || blocks <= multiprocessors;
        let kept_bytes = warps * vectors * (ROW_BYTES + DPRE_ROW_BYTES) + sums;
        let keeps = may_keep && is_alone && kept_bytes + RESERVED_SHARED <= p.shared_bytes;
        let choice = BackwardChoice {
            cluster_blocks: word(cluster),
            vectors: word(vectors),
            threads: word(warps * 32),
            blocks: grid(blocks)?,
            merges_samples: u32::from(samples > 0),
            keeps_dpre: u32::from(keeps),
            overlaps: p.starts_early(blocks),
            ..BackwardChoice::default()
        };
        fits.then_some(choice)
    };
    // 1. The teams of all samples as one cluster.
    let largest = MERGED_BLOCKS.min(p.max_cluster);
    if p.has_parameter_gradients && batch <= largest {
        let cluster = 1 << (largest / batch).max(1).ilog2();
        let blocks = groups.checked_mul(cluster)?;
        let bytes = if is_plain { MERGED_PLAIN_BYTES } else { MERGED_OTHER_BYTES };
        let is_small =
            rows.div_ceil(cluster) * ROW_TENSOR_BYTES <= bytes && blocks <= multiprocessors * MERGED_SM_BLOCKS;
        let merged = || with_warps(cluster, batch, MERGED_WARPS, p.single_room());
        if let Some(choice) = (is_small && cluster <= rows).then(merged).flatten() {
            return Some(Chosen::alone(choice));
        }
    }
    // 2. A cluster for each group.
    let cluster_in = |room: u64| p.single_cluster(rows * 32, room / ROW_BYTES * 32);
    let is_alone = |cluster: u64| groups.saturating_mul(cluster) <= multiprocessors;
    let room = p.single_room();
    let cluster = cluster_in(room)?;
    let blocks = groups.checked_mul(cluster)?;
    let whole = p.shared_bytes.saturating_sub(RESERVED_SHARED);
    let residents_of = |cluster: u64| p.shared_bytes / (rows.div_ceil(cluster) * ROW_BYTES + RESERVED_SHARED);
    let choice = if is_alone(cluster) {
        with_warps(cluster, 0, ALONE_WARPS, room)?
    } else if cluster == 1 {
        let choice = with_warps(1, 0, SHARING_BLOCK_WARPS, room)?;
        let bytes = u64::from(choice.threads * choice.vectors) * 32;
        let is_pair = bytes * 3 > p.shared_bytes && p.max_cluster > 1;
        if is_pair && blocks > 2 * multiprocessors && !p.is_general() {
            let is_silu = p.activation == Activation::Silu;
            let cycles = if is_silu { BACKWARD_STAGGER_CYCLES_OF_SILU } else { BACKWARD_STAGGER_CYCLES };
            let stagger_cycles = word(bytes * cycles / BACKWARD_STAGGER_BYTES);
            BackwardChoice { stagger_cycles, multiprocessors: word(p.multiprocessors), residents: 2, ..choice }
        } else {
            choice
        }
    } else if is_plain && cluster_in(whole).is_some_and(is_alone) {
        let all_resident = p.resident_clusters(CLUSTER_OF_SEVEN, RESIDENTS_OF_SEVENS);
        let fills = (all_resident * 7 / 8..=all_resident).contains(&groups);
        let residents = residents_of(CLUSTER_OF_SEVEN);
        if p.max_cluster >= CLUSTER_OF_SEVEN && residents == RESIDENTS_OF_SEVENS && fills {
            with_warps(CLUSTER_OF_SEVEN, 0, SHARING_ALL_WARPS / residents, room)?
        } else {
            with_warps(cluster_in(whole)?, 0, ALONE_WARPS, whole)?
        }
    } else if is_plain {
        let enough = multiprocessors * SHARING_BLOCKS;
        let clusters = SHARING_CLUSTERS.into_iter().filter(|&cluster| cluster <= p.max_cluster);
        let mut larger = clusters.skip_while(|&larger| larger < cluster);
        let found = larger.find(|&cluster| groups * cluster >= enough);
        let cluster = if serves_all { found.unwrap_or(cluster) } else { found? };
        let own = rows.div_ceil(cluster);
        let warps = SHARING_ALL_WARPS / residents_of(cluster).max(1);
        let warps = warps.max(SHARING_WARPS).min(own.div_ceil(SHARING_VECTORS));
        let overlaps = u32::from(p.capability >= 90 && own * ROW_TENSOR_BYTES <= SHARING_EARLY_BYTES);
        BackwardChoice { overlaps, ..with_warps(cluster, 0, warps, room)? }
    } else if serves_all {
        with_warps(cluster, 0, SHARING_BLOCK_WARPS, room)?
    } else {
        return None; // the form `held` is faster
    };
    let workspace_bytes = p.segment_sum_bytes(u64::from(choice.cluster_blocks));
    Some(Chosen { choice, workspace_bytes, launches: 1 + u32::from(workspace_bytes > 0) })
}

/// The gradients of BatchNorm through a ReLU, if a residual or y tells where it passes them.
pub(in super::super) fn masked_backward(p: &ChannelProblem) -> Answer<MaskedChoice> {
    let all = p.group_vectors()?;
    needs(p.is_masked(), "it serves BatchNorm through relu with a residual or y")?;
    let room = (p.shared_bytes / MASKED_RESIDENTS).saturating_sub(OWN_SHARED_BYTES) / 32;
    let of_cluster = |cluster: u64| {
        let (own, blocks) = (all.div_ceil(cluster), p.shape.group_count().checked_mul(cluster)?);
        let is_pair = blocks <= 2 * p.multiprocessors;
        let vectors = own.div_ceil(if is_pair { MASKED_PAIR_THREADS } else { MASKED_THREADS });
        let threads = own.div_ceil(vectors).next_multiple_of(32);
        let choice = MaskedChoice {
            cluster_blocks: word(cluster),
            vectors: word(vectors),
            threads: word(threads),
            blocks: grid(blocks)?,
            overlaps: u32::from(p.capability >= 90),
        };
        let fits = vectors <= MASKED_VECTORS && threads * vectors <= room;
        fits.then_some(Chosen::alone(choice))
    };
    p.clusters().find_map(of_cluster).ok_or_else(|| p.no_room(NO_ROOM))
}
