//! Memory of a run on the CPU. What the extents of an operand decide the size of may be more than there is: a run that lacks it ends with an error.

use crate::error::Error;
use crate::narrow::to_usize;

/// How a run ends.
pub(crate) type Outcome = Result<(), Shortage>;

/// Memory that a run asked for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    bytes: u64,
}

impl From<Shortage> for Error {
    fn from(Shortage { bytes }: Shortage) -> Self {
        Self::OutOfMemory { device: "cpu".into(), bytes }
    }
}

/// What a kernel returns: nothing, if the memory that it takes does not depend on extents.
pub(crate) trait Ended {
    fn outcome(self) -> Outcome;
}

impl Ended for () {
    fn outcome(self) -> Outcome {
        Ok(())
    }
}

impl Ended for Outcome {
    fn outcome(self) -> Outcome {
        self
    }
}

/// Room for `count` values.
pub(crate) fn room<T>(count: u64) -> Result<Vec<T>, Shortage> {
    let shortage = Shortage { bytes: count.saturating_mul(size_of::<T>() as u64) };
    let mut values = Vec::new();
    let count = usize::try_from(count).map_err(|_| shortage)?;
    values.try_reserve_exact(count).map_err(|_| shortage)?;
    Ok(values)
}

/// The first `count` values in memory, or all if there are fewer.
pub(crate) fn held<T>(count: u64, values: impl Iterator<Item = T>) -> Result<Vec<T>, Shortage> {
    let mut held = room(count)?;
    held.extend(values.take(to_usize(count)));
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memory_does_not_hold_is_an_error_with_its_bytes() {
        assert_eq!(held(3, 5u64..), Ok(vec![5, 6, 7]));
        assert_eq!(held(3, 0..2), Ok(vec![0, 1]));
        for (count, bytes) in [(1 << 58, 1 << 61), (u64::MAX, u64::MAX)] {
            let shortage = held(count, std::iter::repeat(0.0f64)).unwrap_err();
            assert_eq!(Error::from(shortage), Error::OutOfMemory { device: "cpu".into(), bytes });
        }
    }
}
