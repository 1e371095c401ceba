//! Depthwise convolutions, whose groups have one channel of x: what the CUDA kernels and those of wgpu share.

use super::geometry::Contraction;
use crate::error::Reason;

/// The most filters of each of several groups if the form is not asked for by name; a single group may have one. Each filter loads
/// the group's channel again.
const MOST_FILTERS: u64 = 4;

/// Filters of each group.
///
/// # Errors
/// Groups with several channels of x.
pub(super) fn filters(of: &Contraction) -> Result<u64, Reason> {
    let (channels, filters) = (of.shape.channels_in, of.shape.channels_out);
    Reason::unless(channels == 1, || format!("it serves groups of one channel of x, got {channels}"))?;
    Ok(filters)
}

/// # Errors
/// Many filters that share a channel, which other forms serve better.
pub(super) fn check_filters(of: &Contraction, filters: u64) -> Result<(), Reason> {
    let groups = of.groups;
    Reason::unless(filters <= 1 || (groups != 1 && filters <= MOST_FILTERS), || {
        format!("each filter loads x again, and there are {filters} in each of {groups} groups")
    })?;
    Ok(())
}

/// How many neighbouring threads take neighbouring vectors of channels: a power of two up to `most`, with which at least three quarters of all threads
/// have a vector.
pub(super) fn lanes(vectors: u64, most: u64) -> u64 {
    let mut lanes = most;
    while lanes > 1 && vectors.next_multiple_of(lanes) * 3 > vectors * 4 {
        lanes /= 2;
    }
    lanes
}
