//! How teams walk over groups, as `csrc/norm/channel/channel_norm_walk.cuh` does.

use baracuda_ops_sys as sys;

use super::ChannelProblem;

/// The most places of a ring: `bulk_slots` of `csrc/norm/channel/bulk_ring.cuh`.
pub(super) const MOST_PLACES: u64 = 32;
/// The most steps of a group in one block of `held`: a thread adds up its vectors in one chain for each element of a vector. Above them lie 3 additions
/// for the elements of a vector, 5 in a warp and 4 of a block's warps: 48 in all, as docs/numerics.md says. A team of several blocks adds up to 11 more.
pub(super) const MOST_STEPS: u64 = 36;
/// The most blocks of a team in a grid: a warp receives `lane_messages` messages a lane (`csrc/norm/channel/channel_norm_walk.cuh`).
pub(super) const MOST_TEAM_BLOCKS: u64 = 160;
/// Bytes of dy and x in all from which on reading them twice is slower: less data is still in the L2 the second time.
pub(super) const READ_TWICE_BYTES: u64 = 24 << 20;
/// Bytes that a block has on the way to shared memory at once.
pub(super) const ARRIVING_BYTES: u64 = 64 << 10;
/// Bytes that a block has on the way to shared memory at once if a group takes more than half of the places. More of them would hold up what is
/// written, unless exponentials or a residual take longer than that; fewer leave memory idle. Whole places of it arrive: 28 KB with 224 threads that
/// write, 24 KB with 256, 30 KB with 320.
pub(super) const ARRIVING_BYTES_IN_LITTLE_ROOM: u64 = 31 << 10;
/// Workspace of a block of a grid: `message_exchange::turns` messages of 16 bytes in `csrc/norm/channel/channel_norm_walk.cuh`.
pub(super) const MESSAGE_BYTES: u64 = 8 * 16;

/// Workspace for the messages of `blocks` blocks, of which each has `of_block` bytes. The blocks of a cluster need none.
pub(super) fn message_bytes(team: sys::bops_norm_team, blocks: u32, of_block: u64) -> u64 {
    if team == sys::BOPS_NORM_GRID { u64::from(blocks) * of_block } else { 0 }
}

/// How the blocks of a team of `held` share a group: the same arithmetic as `walk_geometry` in `csrc/norm/channel/channel_norm_walk.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Threads of a block that hold vectors.
    pub(super) threads: u64,
    /// Steps of a group.
    pub(super) all: u64,
}

impl Steps {
    /// The steps of a group in blocks of up to `most` threads.
    pub(super) fn new(p: &ChannelProblem, most: u64) -> Self {
        let (segments, vectors) = (p.shape.group_segments(), p.segment_vectors());
        // With groups of channels, no warp takes two segments at once.
        let pitch = if p.shape.groups > 0 { vectors.next_multiple_of(32) } else { vectors };
        if pitch < most {
            let threads = (pitch * (most / pitch).min(segments)).next_multiple_of(32);
            return Self { threads, all: segments.div_ceil(threads / pitch) };
        }
        let chunks = vectors.div_ceil(most);
        let threads = vectors.div_ceil(chunks).next_multiple_of(32);
        Self { threads, all: segments * vectors.div_ceil(threads) }
    }
}
