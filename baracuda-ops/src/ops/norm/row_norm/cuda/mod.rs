//! The CUDA kernels of the family. [`forward`] and [`backward`] have the forms with their choices, in the order in which they are asked. This module
//! has what they ask of rows, and how they are prepared and launched.
//!
//! A form that is asked with the others refuses what a later form does better, and says so. A form that is asked by its name serves whatever it can.

pub(in crate::ops::norm) mod backward;
pub(in crate::ops::norm) mod forward;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use baracuda_ops_sys as sys;

use super::{RowNorm, Valid};
use crate::backend::cuda::{self, Launch, MOST_STRIDING_BLOCKS, Numbers, Props, c_dtype, resident_clusters};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::kernel::{Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls;
use crate::ops::rows::{RowGeometry, c_rows};
use crate::ops::valid::Fields;
use crate::options::WorkspaceReq;
use crate::slots::Slot;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// Threads of the largest block of most forms.
const MAX_THREADS: u64 = 512;
/// Vectors of a chunk of a row, which a block of a split form takes: `split_threads * split_vectors` of `row_norm_split.cuh`.
const CHUNK_VECTORS: u64 = 256 * 4;
/// Bytes of shared memory that kernels declare themselves and the device keeps for itself, at most.
const RESERVED_SHARED: u64 = 4096;
/// Alignment of the workspace: a line of the L2.
const WORKSPACE_ALIGN: u64 = 128;

/// What a choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowProblem {
    rows: u64,
    /// The number of rows by which a form and its numbers are chosen.
    samples: u64,
    cols: u64,
    /// Bytes of an element of x.
    element_bytes: u32,
    /// Bytes of a statistic.
    accumulator_bytes: u32,
    /// Bytes of an element of weight or bias; 0 without.
    parameter_bytes: u32,
    /// The widest vector that every row starts at a multiple of and is a whole number of.
    vector_bytes: u32,
    /// What the addresses of the parameters are multiples of, in bytes.
    parameter_align_bytes: u32,
    /// Whether every tensor's rows lie at one stride, below 2^32 elements.
    has_one_stride: bool,
    /// Whether the mean is subtracted.
    is_centered: bool,
    /// Whether there is a residual, or dh.
    has_residual: bool,
    has_parameter_gradients: bool,
    /// Compute capability: major times 10 plus minor.
    capability: u32,
    multiprocessors: u32,
    /// Bytes of shared memory that one block may have.
    shared_bytes: u32,
    /// Blocks of the largest cluster; 1 without clusters.
    max_cluster: u32,
}

/// An entry of a table for each norm with elements of 16 and of 32 bits.
#[derive(Clone, Copy, Debug)]
struct ByKind<T> {
    layer_norm_16: T,
    rms_norm_16: T,
    layer_norm_32: T,
    rms_norm_32: T,
}

impl<T: Copy> ByKind<T> {
    const fn of(&self, p: &RowProblem) -> T {
        match (p.element_bytes, p.is_centered) {
            (2, true) => self.layer_norm_16,
            (2, false) => self.rms_norm_16,
            (_, true) => self.layer_norm_32,
            (_, false) => self.rms_norm_32,
        }
    }
}

impl RowProblem {
    fn new<F: Fields<Kind = RowNorm>>(norm: &Valid<F>, rows: &Rows, parameters: &[usize], props: &Props) -> Self {
        let align =
            norm.slots.all_at(parameters).map(|slot: &Slot| slot.desc.align_bytes().min(16)).min().unwrap_or(16);
        let bytes = |dtype: DType| word(dtype.size_bytes());
        Self {
            rows: rows.geometry.rows,
            samples: rows.geometry.rows,
            cols: rows.geometry.cols,
            element_bytes: bytes(rows.dtype),
            accumulator_bytes: bytes(rows.dtype.accumulator()),
            parameter_bytes: rows.parameter.map_or(0, bytes),
            vector_bytes: word(rows.geometry.vector_bytes),
            parameter_align_bytes: word(align),
            has_one_stride: rows.has_one_stride(),
            is_centered: norm.op.kind == RowNorm::Layer,
            has_residual: false,
            has_parameter_gradients: false,
            capability: props.capability,
            multiprocessors: props.multiprocessors,
            shared_bytes: props.shared_bytes,
            max_cluster: props.cluster,
        }
    }

    /// Elements of an access of so many bytes.
    fn elements(&self, vec_bytes: u32) -> u64 {
        u64::from(vec_bytes / self.element_bytes)
    }

    /// The widest access that rows and parameters allow, in bytes.
    fn vec_bytes(&self) -> u32 {
        let widths: &[u32] = if self.element_bytes == 8 { &[8] } else { &[16, 4, 2] };
        let fits = |&&bytes: &&u32| {
            let parameter = (bytes / self.element_bytes * self.parameter_bytes).clamp(1, 16);
            bytes >= self.element_bytes
                && self.vector_bytes.is_multiple_of(bytes)
                && self.parameter_align_bytes.is_multiple_of(parameter)
        };
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// Whether a launch may begin while the previous one of the stream ends.
    fn overlaps(&self) -> u32 {
        u32::from(self.capability >= 90)
    }

    /// Whether rows of `vectors` vectors are so few that latency bounds them, and a block of two vectors a thread holds one of them. A row of
    /// fewer than 64 vectors fits into a warp.
    fn is_thin(&self, vectors: u64) -> bool {
        self.samples <= 2 * u64::from(self.multiprocessors) && (64..=2 * MAX_THREADS).contains(&vectors)
    }

    /// The clusters of several blocks that the device has, by their blocks.
    fn clusters(&self) -> impl Iterator<Item = u64> + use<> {
        let max = u64::from(self.max_cluster);
        [2, 4, 8, 16].into_iter().filter(move |&cluster| cluster <= max)
    }

    /// Clusters that are resident at once, with so many blocks on a multiprocessor.
    fn resident_teams(&self, cluster: u64, blocks_per_sm: u64) -> u64 {
        resident_clusters(self.multiprocessors, cluster, blocks_per_sm)
    }

    /// Whether so many bytes of shared memory are there for each of so many blocks of a multiprocessor.
    fn has_shared(&self, bytes: u64, blocks_per_sm: u64) -> bool {
        bytes + RESERVED_SHARED <= u64::from(self.shared_bytes) / blocks_per_sm
    }

    fn check_row_count(&self) -> Result<(), Reason> {
        let (rows, limit) = (self.rows, u32::MAX);
        Reason::unless(rows <= u64::from(limit), || format!("{rows} rows, the limit is {limit}"))
    }

    /// Refuses rows that accesses of 16 bytes do not move, and an absence of rows. Returns the vectors of a row.
    fn check_vectors(&self) -> Result<u64, Reason> {
        Reason::unless(self.rows > 0 && self.cols > 0, || "there are no rows, or they have no columns")?;
        Reason::unless(self.element_bytes < 8, || "it has no kernels of f64")?;
        self.check_row_count()?;
        match self.vec_bytes() {
            16 => Ok(self.cols / self.elements(16)),
            bytes => Err(format!("it moves 16 bytes at once, rows and parameters allow {bytes}").into()),
        }
    }

    /// Refuses rows that teams cannot walk over, since they count in 32 bits past the last row. Returns the vectors of a row.
    fn check_walk(&self) -> Result<u64, Reason> {
        let (rows, limit) = (self.rows, 1 << 31);
        Reason::unless(rows < limit, || format!("{rows} rows, walks over them have fewer than {limit}"))?;
        self.check_vectors()
    }

    fn check_one_stride(&self) -> Result<(), Reason> {
        Reason::unless(self.has_one_stride, || "the rows of each tensor have to lie at one stride below 2^32 elements")
    }

    fn check_capability(&self, need: u32) -> Result<(), Reason> {
        Reason::unless(self.capability >= need, || {
            let [need, has] = [need, self.capability].map(|number| format!("{}.{}", number / 10, number % 10));
            format!("it needs compute capability {need}, the device has {has}")
        })
    }

    /// What the ring forms ask of rows, whose parameters stay in registers as they came. Returns the vectors of a row.
    fn check_ring(&self, ask: Ask) -> Result<u64, Reason> {
        self.check_capability(90)?;
        let vectors = self.check_walk()?;
        if ask == Ask::Chosen {
            // If there are several strides, the ring forms find each vector's row by divisions.
            self.check_one_stride()?;
        }
        let are_of_x = [0, self.element_bytes].contains(&self.parameter_bytes);
        Reason::unless(are_of_x, || "the parameters have to be of x's type")?;
        Ok(vectors)
    }

    /// Chunks of a row and blocks of a split form, whose accesses have so many bytes.
    fn split_grid(&self, vec_bytes: u32) -> Result<(u32, u32), Reason> {
        self.check_row_count()?;
        let chunks = self.cols.div_ceil(self.elements(vec_bytes)).div_ceil(CHUNK_VECTORS).max(1);
        let grid = word(self.rows.saturating_mul(chunks).clamp(1, MOST_STRIDING_BLOCKS));
        let (cols, limit) = (self.cols, u32::MAX);
        let too_many = |_| format!("rows of {cols} columns make {chunks} chunks, the limit is {limit}");
        Ok((u32::try_from(chunks).map_err(too_many)?, grid))
    }

    /// Bytes of so many numbers for each chunk of a row, and once more for the row.
    fn split_bytes(&self, chunks: u32, numbers: u64) -> Option<u64> {
        self.rows.checked_mul(u64::from(chunks) + 1)?.checked_mul(numbers * u64::from(self.accumulator_bytes))
    }
}

/// The blocks of a launch, if one dimension of a grid has room for them.
fn grid(blocks: u64) -> Result<u32, Reason> {
    crate::narrow::grid(blocks).ok_or_else(|| format!("{blocks} blocks, a grid has at most {}", i32::MAX).into())
}

/// The rows of a norm, as kernels are told of them.
#[derive(Debug)]
struct Rows {
    geometry: RowGeometry,
    dtype: DType,
    /// The type of the parameters, if there are any.
    parameter: Option<DType>,
}

impl Rows {
    /// The rows of `operands`. An absent operand takes the layout of x, and nothing is read there. The operands `dense` have no rows.
    fn new(
        (x, normalized_dims): (&TensorDesc, usize),
        slots: &Slots,
        operands: [usize; 4],
        dense: &[usize],
        parameter: Option<DType>,
    ) -> Result<Self, Reason> {
        slots.check_dense(dense)?;
        let tensors = operands.map(|operand| slots.at(operand).map_or(x, |slot| &slot.desc));
        let geometry = RowGeometry::new(&tensors, normalized_dims)?;
        Ok(Self { geometry, dtype: x.dtype(), parameter })
    }

    /// Whether the rows of every tensor lie at one stride, below 2^32 elements.
    fn has_one_stride(&self) -> bool {
        let (extents, strides) = self.c();
        extents == [1, 1] && strides.iter().all(|stride| u32::try_from(stride.s0).is_ok())
    }

    /// Extents and strides for the kernels.
    fn c(&self) -> ([u64; 2], [sys::bops_row_strides; 4]) {
        c_rows(self.geometry.rows, self.geometry.extents, &self.geometry.strides)
    }

    fn specialisation(&self, kind: RowNorm, has_dh: bool) -> Result<sys::bops_row_norm_specialisation, Reason> {
        Ok(sys::bops_row_norm_specialisation {
            dtype: c_dtype(self.dtype)?,
            weight_dtype: c_dtype(self.parameter.unwrap_or(self.dtype))?,
            is_centered: u32::from(kind == RowNorm::Layer),
            has_dh: u32::from(has_dh),
        })
    }
}

/// The C functions of a form with parameters `P`, operands `O` and the choice `C`.
type Calls<P, C, O> = calls::Calls<sys::bops_row_norm_specialisation, P, C, O>;

/// The choice of the launch that adds up partial rows.
type Sums = sys::bops_row_norm_backward_parameters_choice;

/// The launch that follows those of a form.
type Then<P, O> = (Calls<P, Sums, O>, Sums);

/// A norm, in the terms in which its forms are asked.
struct Task<P, O> {
    problem: RowProblem,
    of: sys::bops_row_norm_specialisation,
    params: P,
    /// The operands of a run.
    operands: fn(&Located<'_>) -> O,
}

impl<P: Copy + Send + Sync + 'static, O: 'static> Task<P, O> {
    /// The candidate of a form of one launch without workspace, which has made its choice.
    fn candidate<'d, C: Numbers + Debug>(&self, calls: Calls<P, C, O>, choice: C) -> Candidate<'d> {
        self.candidate_of(calls, choice, 1, 0, None)
    }

    /// The candidate of a form that has made its choice, with so many launches (none if there is no work) and so many bytes of workspace. A launch
    /// `then` follows.
    fn candidate_of<'d, C: Numbers + Debug>(
        &self,
        calls: Calls<P, C, O>,
        choice: C,
        launches: u32,
        workspace_bytes: u64,
        then: Option<Then<P, O>>,
    ) -> Candidate<'d> {
        let Self { of, params, operands, .. } = *self;
        let all_launches = launches + u32::from(then.is_some());
        let build = move |device: &Device| {
            let device = cuda::Device::of(device)?;
            let first = (launches > 0).then(|| calls.prepare(device, of, params, choice, ())).transpose()?;
            let then = then.map(|(calls, choice)| calls.prepare(device, of, params, choice, ())).transpose()?;
            let start = move |located: &Located<'_>, stream| {
                let (operands, workspace) = (operands(located), located.workspace_pointer());
                match (first.as_ref().map_or(0, |run| run(&operands, workspace, stream)), &then) {
                    (0, Some(then)) => then(&operands, workspace, stream),
                    (status, _) => status,
                }
            };
            Ok(Launch::new(calls.name, start).into())
        };
        let workspace = WorkspaceReq::new(workspace_bytes, WORKSPACE_ALIGN);
        Candidate { workspace, launches: all_launches, ..Candidate::new(choice, build) }
    }
}
