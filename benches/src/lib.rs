//! How ops are timed: the cells that are compared with other libraries, the method of each backend, and the lines written.
//!
//! Method: inputs and outputs rotate past three times the L2 cache, bursts of at least 1.5 ms, median of 15. CUDA: replays of a captured
//! graph between events. wgpu: bound plans in one pass between timestamps. The CPU: bound plans by the host's clock, bursts of 20 ms, median of 7.
//! The host's share is timed apart ([`host`]).

pub mod cells;
pub mod cpu;
#[cfg(feature = "cuda")]
mod cublaslt;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod host;
pub mod line;
pub mod sets;
#[cfg(feature = "wgpu")]
pub mod wgpu;

/// Microseconds of work that one measurement holds at least.
pub const BURST_US: f64 = 1500.0;
/// Measurements, of which the median counts.
pub const REPEATS: usize = 15;
/// L2 cache assumed where the device does not tell, in bytes.
pub const L2_BYTES: u64 = 60 << 20;

/// How many sets of operands rotate, so that none is found in the cache, for inputs of `in_bytes` bytes.
pub fn sets_for(in_bytes: u64, l2_bytes: u64) -> usize {
    ((3 * l2_bytes).div_ceil(in_bytes.max(1)) + 1).clamp(2, 64) as usize
}

/// The median.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_rotate_past_the_cache() {
        assert_eq!(sets_for(1 << 30, 60 << 20), 2);
        assert_eq!(sets_for(32 << 20, 60 << 20), 7);
        assert_eq!(sets_for(1 << 10, 60 << 20), 64);
    }
}
