//! The gradient of the bias: a launch that computes partial sums for each channel, and one that adds them up. If the elements of a channel are contiguous,
//! the first launch sums along runs of them, and if the runs are short, it is the only one. Else it sums down the columns of matrices, in vectors if
//! channels are contiguous.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::product::merged;
use crate::backend::cuda::{self, Launch, Props, c_dtype};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{BuildError, Built, Exec};
use crate::narrow::word;
use crate::ops::conv::depthwise::lanes;
use crate::ops::conv::geometry::{ChannelSums, DIGITS};
use crate::ops::gemm::cuda::launch::{DBIAS_COLUMNS, prepare_dbias};
use crate::ops::gemm::cuda::product::{accumulator_bytes, bounded_blocks, in_quads, matrix, padded};
use crate::ops::gemm::geometry::{Extents, MAX_BATCH, Matrix, MatrixPlace};

/// The launch that computes the partial sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum First {
    Runs(sys::bops_conv_backward_bias_params),
    /// Down columns, 16 bytes of channels at a time.
    Vectors(sys::bops_conv_column_sums_params),
    Columns(sys::bops_gemm_dpre_params),
}

/// Blocks of an SM among which the rows are shared out. More blocks would hide more of the latency of memory and leave more parts to add up.
const BLOCKS: u64 = 2;
/// The most rows that a thread adds up: eight rows in a tree, and up to 32 such sums in one chain (docs/numerics.md).
const MOST_ROWS: u64 = 8 * 32;

/// The launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedSums {
    /// `None` if there is nothing to add up.
    pub(super) first: Option<First>,
    /// `None` if there are no channels, or one part is the whole channel.
    last: Option<sys::bops_gemm_dbias_params>,
    /// Bytes of the partial sums.
    pub(super) part_bytes: u64,
    positions: [usize; 2],
    dtypes: [DType; 2],
}

impl PlannedSums {
    pub(super) fn new(of: &ChannelSums, props: &Props) -> Result<Self, Reason> {
        let ChannelSums { channels, terms, dy, dbias, beta } = of;
        let positions = [dy.position, dbias.position];
        let mut planned = Self { first: None, last: None, part_bytes: 0, positions, dtypes: [dy.dtype, dbias.dtype] };
        if *channels == 0 {
            return Ok(planned);
        }
        bounded_blocks([channels.div_ceil(DBIAS_COLUMNS)])?;
        let mut rows = 0;
        let extents = terms.digits();
        if !extents.contains(&0) {
            let (first, parts) = match runs(of, &extents) {
                Some(params) => in_runs(params)?,
                None => match in_vectors(of, &extents, props) {
                    Some((params, parts)) => (First::Vectors(params), parts),
                    None => in_columns(of, &extents)?,
                },
            };
            rows = parts;
            planned.first = Some(first);
            if matches!(first, First::Runs(_)) && parts == 1 {
                return Ok(planned);
            }
            planned.part_bytes = rows.saturating_mul(*channels).saturating_mul(accumulator_bytes(dy.dtype));
        }
        planned.last = Some(sys::bops_gemm_dbias_params { rows, n: *channels, stride: dbias.stride, beta: *beta });
        Ok(planned)
    }

    pub(super) fn launches(&self) -> u32 {
        u32::from(self.first.is_some()) + u32::from(self.last.is_some())
    }

    pub(super) fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let Self { first, last, positions: [dy, dbias], dtypes, .. } = self;
        let of_dy = c_dtype(dtypes[0])?;
        match &first {
            Some(First::Runs(params)) => device.prepare("bops_conv_backward_bias", [of_dy, params.vector], || {
                // SAFETY: the params live across the call.
                unsafe { sys::bops_conv_backward_bias_prepare(params, of_dy) }
            })?,
            Some(First::Vectors(params)) => device.prepare("bops_conv_column_sums", [of_dy], || {
                // SAFETY: the params live across the call.
                unsafe { sys::bops_conv_column_sums_prepare(params, of_dy) }
            })?,
            Some(First::Columns(params)) => device.prepare("bops_gemm_dpre", [of_dy], || {
                // SAFETY: the params live across the call.
                unsafe { sys::bops_gemm_dpre_prepare(params, of_dy) }
            })?,
            None => {}
        }
        let add_up = last.map(|params| prepare_dbias(device, params, dtypes[1])).transpose()?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let parts = located.workspace_pointer();
            let none = std::ptr::null_mut();
            let status = match &first {
                // SAFETY: the generic check proved every operand's span and alignment, and that the workspace holds the parts.
                Some(First::Runs(params)) => unsafe {
                    let out = if add_up.is_some() { parts } else { located.pointer(dbias) };
                    sys::bops_conv_backward_bias_launch(params, of_dy, located.pointer(dy), out, stream)
                },
                // SAFETY: the generic check proved the operand and the workspace, as for the first form.
                Some(First::Vectors(params)) => unsafe {
                    sys::bops_conv_column_sums_launch(params, of_dy, located.pointer(dy), parts, stream)
                },
                // SAFETY: the generic check proved the operand and the workspace, as for the first form.
                Some(First::Columns(params)) => unsafe {
                    sys::bops_gemm_dpre_launch(params, of_dy, located.pointer(dy), none, none, parts, stream)
                },
                None => 0,
            };
            match &add_up {
                Some(add_up) if status == 0 => add_up(parts, located.pointer(dbias), stream),
                _ => status,
            }
        };
        Ok(Built(Exec::Cuda(Launch::new("bops_conv_backward_bias", start))))
    }
}

/// The parameters of sums along runs, if the elements of a channel are contiguous, or those of each of its samples.
fn runs(of: &ChannelSums, extents: &[u64; DIGITS]) -> Option<sys::bops_conv_backward_bias_params> {
    let strides = of.dy.digits(&of.terms);
    let is_run = |&first: &usize| {
        let run: u64 = extents[first..].iter().product();
        (run > 1 || of.dy.column != 1 || of.channels == 1) && merged(&extents[first..], &strides[first..]) == Some(1)
    };
    // One run, or one for each sample.
    let first = [0, 1].into_iter().find(is_run)?;
    let (runs, run) = (extents[..first].iter().product::<u64>(), extents[first..].iter().product::<u64>());
    let starts = [(runs, of.dy.lead), (of.channels, of.dy.column)];
    let is_aligned = |vector: u64| {
        of.dy.align_bytes >= vector * of.dy.dtype.size_bytes()
            && run.is_multiple_of(vector)
            && starts.into_iter().all(|(count, stride)| count == 1 || stride.is_multiple_of(vector))
    };
    let most = 16 / of.dy.dtype.size_bytes();
    let vector = [most, most / 2, most / 4].into_iter().find(|&vector| vector > 1 && is_aligned(vector)).unwrap_or(1);
    Some(sys::bops_conv_backward_bias_params {
        channels: of.channels,
        runs,
        run,
        run_stride: of.dy.lead,
        channel_stride: of.dy.column,
        vector: word(vector),
        dbias_dtype: c_dtype(of.dbias.dtype).ok()?,
        dbias_stride: of.dbias.stride,
        beta: of.beta,
    })
}

fn in_runs(params: sys::bops_conv_backward_bias_params) -> Result<(First, u64), Reason> {
    let of_part = u64::from(sys::BOPS_CONV_SUMS_THREADS * sys::BOPS_CONV_SUMS_LOADS * params.vector);
    let parts = (params.runs * params.run).div_ceil(of_part);
    bounded_blocks([parts, params.channels])?;
    Ok((First::Runs(params), parts))
}

/// The parameters and number of parts of sums down columns in vectors, if dy is one matrix with contiguous channels.
fn in_vectors(
    of: &ChannelSums,
    extents: &[u64; DIGITS],
    props: &Props,
) -> Option<(sys::bops_conv_column_sums_params, u64)> {
    let row_stride = merged(extents, &of.dy.digits(&of.terms))?;
    let each = 16 / of.dy.dtype.size_bytes();
    let is_whole = |number: u64| number.is_multiple_of(each);
    let fits = of.dy.column == 1 && of.dy.align_bytes >= 16 && is_whole(of.channels) && is_whole(row_stride);
    if !fits {
        return None;
    }
    let rows: u64 = extents.iter().product();
    let vectors = of.channels / each;
    let lanes = lanes(vectors, 32);
    let tiles = vectors.div_ceil(lanes);
    let workers = u64::from(sys::BOPS_CONV_SUMS_THREADS) / lanes;
    let wanted = (BLOCKS * u64::from(props.multiprocessors)).div_ceil(tiles).min(rows.div_ceil(workers));
    let wanted = wanted.max(rows.div_ceil(workers * MOST_ROWS));
    let parts = u32::try_from(wanted).ok().filter(|_| bounded_blocks([wanted, tiles]).is_ok())?;
    let params =
        sys::bops_conv_column_sums_params { channels: of.channels, rows, row_stride, lanes: word(lanes), parts };
    Some((params, wanted))
}

/// Rows of a part, in sums down columns element by element. A thread of the kernel `dpre` adds up 16 of them for each of its four columns. With
/// fewer, there are more parts to write and to add up; with more, there are fewer blocks.
const ROWS: u64 = 128;

/// Sums down the columns of matrices whose columns are channels, and whose rows are as many of the last digits as can be joined into one index.
fn in_columns(of: &ChannelSums, extents: &[u64; DIGITS]) -> Result<(First, u64), Reason> {
    let strides = of.dy.digits(&of.terms);
    let row_stride = |first: usize| merged(&extents[first..], &strides[first..]);
    let first = (0..DIGITS).find(|&first| row_stride(first).is_some()).unwrap_or(DIGITS - 1);
    let batch: Extents = extents[..first].iter().copied().collect();
    let mut outer = [0; MAX_BATCH];
    outer[..first].copy_from_slice(&strides[..first]);
    let dy = Matrix {
        place: MatrixPlace::Operand(of.dy.position),
        dtype: of.dy.dtype,
        align_bytes: of.dy.align_bytes,
        rows: row_stride(first).unwrap_or(0),
        cols: of.dy.column,
        batch: outer,
        summed: [0; MAX_BATCH],
    };
    let (m, n) = (extents[first..].iter().product::<u64>(), of.channels);
    let tiles = m.div_ceil(ROWS);
    bounded_blocks([tiles, n.div_ceil(u64::from(sys::BOPS_GEMM_DPRE_COLUMNS)), batch.count()])?;
    let params = sys::bops_gemm_dpre_params {
        m,
        n,
        batch_rank: word(batch.len() as u64),
        batch: padded(&batch),
        dout: matrix(&dy),
        saved: matrix(&dy),
        dout_dtype: c_dtype(dy.dtype)?,
        saved_dtype: c_dtype(dy.dtype)?,
        activation: sys::BOPS_IDENTITY,
        from_out: 0,
        quads: u32::from(n.is_multiple_of(4) && in_quads(&dy, dy.cols, dy.rows, &batch)),
        vectors: 0,
        rows: word(ROWS),
    };
    Ok((First::Columns(params), batch.count() * tiles))
}
