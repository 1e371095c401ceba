//! How teams walk over groups, as `csrc/norm/channel/channel_norm_walk.cuh` does.

/// The most places of a ring.
pub(super) const SLOTS: u64 = 32;
/// Steps of the longest slice of a group.
pub(super) const WALK_STEPS: u64 = 36;
/// The most blocks that share a group, of teams that are no clusters.
pub(super) const TEAM: u64 = 160;
/// Bytes of dy and x from which reading them twice is slower: fewer are found in the L2.
pub(super) const READ_TWICE: u64 = 24 << 20;
/// Bytes that a block has on the way at once, and where a group takes most of the places: more of them hold up what is written, unless exponentials
/// or a residual take longer than that.
pub(super) const ARRIVING: [u64; 2] = [64 << 10, 31 << 10];
/// `message_exchange::turns` of `csrc/norm/channel/channel_norm_walk.cuh`: messages of a block that memory has room for.
pub(super) const MESSAGES: u64 = 8;

/// How the blocks of a team share a group: the same arithmetic as `walk_geometry` in `csrc/norm/channel/channel_norm_walk.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Threads of a block that hold vectors.
    pub(super) threads: u64,
    /// Steps of a group.
    pub(super) all: u64,
}

impl Steps {
    /// Of groups of `segments` segments of `vectors` vectors, in blocks of up to `most` threads. whole_warps: no warp takes two segments at once.
    pub(super) fn new(segments: u64, vectors: u64, most: u64, whole_warps: bool) -> Self {
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
