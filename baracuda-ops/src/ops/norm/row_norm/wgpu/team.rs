//! How rows are spread over threads.

use crate::backend::wgpu::Props;

/// How the threads of a row meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduce {
    /// Within one subgroup.
    Lanes,
    /// Over the subgroups of a workgroup, of which there are at most this many.
    Subgroups(u32),
    /// In workgroup memory.
    Tree,
}

impl Reduce {
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Lanes => "common/reduce_lanes",
            Self::Subgroups(_) => "common/reduce_subgroups",
            Self::Tree => "common/reduce_tree",
        }
    }
}

/// How a row is spread over threads: each holds `chunks` chunks of 16 bytes in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Team {
    pub(super) threads: u32,
    pub(super) chunks: u32,
    pub(super) workgroup: u32,
    pub(super) reduce: Reduce,
}

/// Threads of a workgroup that holds several rows.
pub(super) const SHARED_WORKGROUP: u32 = 128;
/// Rows below which a long row is split although a workgroup could hold it: too few workgroups would be at work.
pub(super) const FEW_ROWS: u64 = 96;
/// Chunks from which on a row counts as long.
pub(super) const LONG_ROW: u64 = 2048;

impl Team {
    pub(super) fn new((threads, chunks): (u32, u32), workgroup: u32, props: &Props) -> Self {
        let (threads, workgroup) = (threads.min(props.max_threads), workgroup.max(threads).min(props.max_threads));
        let reduce = match props.subgroup_sizes {
            Some((narrowest, _)) if threads <= narrowest => Reduce::Lanes,
            Some((narrowest, _)) if threads == workgroup => Reduce::Subgroups(workgroup.div_ceil(narrowest.max(1))),
            _ => Reduce::Tree,
        };
        Self { threads, chunks, workgroup, reduce }
    }

    /// The first of `table` that holds a row of `row_chunks` chunks on the device.
    pub(super) fn resident(table: &[(u32, u32)], row_chunks: u64, props: &Props) -> Option<Self> {
        let fits = |&&(threads, chunks): &&(u32, u32)| {
            threads <= props.max_threads && u64::from(threads) * u64::from(chunks) >= row_chunks
        };
        let &(threads, chunks) = table.iter().find(fits)?;
        let workgroup = if threads <= 32 { SHARED_WORKGROUP } else { threads };
        Some(Self::new((threads, chunks), workgroup, props))
    }

    pub(super) fn rows(self) -> u64 {
        u64::from(self.workgroup / self.threads)
    }

    pub(super) fn slice_chunks(self) -> u64 {
        u64::from(self.threads) * u64::from(self.chunks)
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        let mut constants = vec![("WORKGROUP", self.workgroup), ("THREADS", self.threads), ("CHUNKS", self.chunks)];
        if let Reduce::Subgroups(most) = self.reduce {
            constants.push(("MOST_SUBGROUPS", most));
        }
        constants
    }
}
