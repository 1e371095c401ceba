//! Groups of one channel of x: what the kernels of CUDA and those of wgpu share.

use super::Pass;
use super::geometry::Contraction;
use crate::error::Reason;

/// Filters of a group that read its channel each for itself, unless the form is asked for.
const MOST_FILTERS: u64 = 4;

/// Filters of each group.
///
/// # Errors
/// Groups have several channels of x.
pub(super) fn filters(of: &Contraction) -> Result<u64, Reason> {
    let (channels, filters) = match of.pass {
        Pass::Forward => (of.terms.lead, of.n),
        Pass::Data => (of.n, of.terms.lead),
        Pass::Weight => (of.rows.lead, of.n),
    };
    if channels != 1 {
        return Err(format!("it has groups of one channel of x, here there are {channels}").into());
    }
    Ok(filters)
}

/// Leaves many filters that read the same channel to other forms.
pub(super) fn check_filters(of: &Contraction, filters: u64) -> Result<(), Reason> {
    let groups = of.groups;
    if filters > MOST_FILTERS || (groups == 1 && filters > 1) {
        let words = format!("each filter reads x for itself, here they are {filters} in each of {groups} groups");
        return Err(words.into());
    }
    Ok(())
}

/// Threads side by side for so many vectors of channels, so that few of the last ones have nothing to do.
pub(super) fn lanes(vectors: u64, most: u64) -> u64 {
    let mut lanes = most;
    while lanes > 1 && vectors.next_multiple_of(lanes) * 3 > vectors * 4 {
        lanes /= 2;
    }
    lanes
}
