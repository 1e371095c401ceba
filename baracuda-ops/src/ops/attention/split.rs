//! The CUDA forms for few queries: how the keys are split in parts.

use baracuda_ops_sys as sys;

use super::cuda::{VEC_BYTES, check_blocks, has_chunks, operands_of_forward, params_of_forward};
use super::geometry::Geometry;
use super::mma;
use super::{ForwardFields, Valid, forward as rows_of_forward};
use crate::backend::cuda::Props;
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls::{Calls, calls};
use crate::options::WorkspaceReq;

/// Bytes of a tile of keys, and of one of values, in shared memory.
const TILE_BYTES: u64 = 16 << 10;
/// Keys of a tile whose values one thread adds up.
const KEYS_OF_THREAD: u64 = 8;
/// The most terms that a thread adds up one after another, as many as in a chain of `attention_simt`.
const CHAIN: u64 = 256;

/// What decides how keys are split.
struct Tuning {
    /// The fewest tiles of a part: with fewer a block ends before memory is busy.
    least_tiles: u64,
    /// The most queries of heads that share keys for which the form is chosen: each takes as many instructions as reading the keys takes time.
    most_rows: u64,
    /// The fewest keys for which it is chosen: with fewer the second launch costs more than a block for each tile of queries.
    least_keys: u64,
}

const TUNING: Tuning = Tuning { least_tiles: 2, most_rows: 32, least_keys: 256 };

/// Queries of heads that share a head of keys.
fn shared_rows(geometry: &Geometry) -> u64 {
    geometry.group().saturating_mul(geometry.queries)
}

/// What a kernel says of its choice.
struct Kernel {
    /// The most queries of a block.
    rows: u64,
    /// Keys of a tile of rows of `padded` elements.
    tile: fn(padded: u64, dtype: DType) -> u64,
    /// The most tiles of a part.
    most_tiles: u64,
    /// Blocks that an SM is to get, if parts are not too short for it. Measured on an H200.
    blocks_per_multiprocessor: u64,
    /// Whether it needs no second launch, and no workspace, if all keys are one part.
    writes_single_part: bool,
}

impl Kernel {
    /// Elements of 16 bits, which tensor cores take where they are laid out for them, have kernels for the larger number of rows alone.
    fn simt(geometry: &Geometry, dtype: DType) -> Self {
        let is_small = dtype.size_bytes() > 2 && shared_rows(geometry) <= 4;
        let tile = |padded, dtype: DType| TILE_BYTES / (padded * dtype.size_bytes());
        Self {
            rows: if is_small { 4 } else { 8 },
            tile,
            most_tiles: CHAIN / KEYS_OF_THREAD,
            // Three are resident, and the others let SMs end together.
            blocks_per_multiprocessor: 8,
            writes_single_part: false,
        }
    }

    /// A tile is one of each of four warps. What a product adds up has no chains. An SM has room for two blocks, which keep memory busy from their first tile to
    /// their last: more of them would begin and end more often.
    fn mma() -> Self {
        Self {
            rows: 16,
            tile: |padded, _| if padded == 64 { 128 } else { 64 },
            most_tiles: 1 << 20,
            blocks_per_multiprocessor: 2,
            writes_single_part: true,
        }
    }

    fn choose(
        &self,
        geometry: &Geometry,
        dtype: DType,
        vectors: u32,
        props: &Props,
    ) -> sys::bops_attention_split_choice {
        let depth = geometry.depth.max(geometry.value_depth);
        let padded = [64, 128, 256].into_iter().find(|&padded| depth <= padded).unwrap_or(256);
        let tile = (self.tile)(padded, dtype);
        let tiles_of_rows = shared_rows(geometry).div_ceil(self.rows);
        let groups = [geometry.samples, geometry.kv_heads, tiles_of_rows].into_iter().fold(1, u64::saturating_mul);
        let wanted = u64::from(props.multiprocessors) * self.blocks_per_multiprocessor / groups.max(1);
        let [least, most] = [TUNING.least_tiles, self.most_tiles].map(|tiles| tiles * tile);
        let keys_per_part = geometry.keys.div_ceil(wanted.max(1)).next_multiple_of(tile).clamp(least, most);
        sys::bops_attention_split_choice {
            padded: word(padded),
            rows: word(self.rows),
            vectors,
            parts: word(geometry.keys.div_ceil(keys_per_part).max(1)),
            keys_per_part: word(keys_per_part),
        }
    }

    /// A part of the keys to a block, with the queries of all heads that share them.
    fn candidate<'d>(
        &self,
        form: Calls<
            sys::bops_dtype,
            sys::bops_attention_params,
            sys::bops_attention_split_choice,
            sys::bops_attention_operands,
        >,
        valid: &'d Valid<ForwardFields>,
        props: &Props,
        ask: Ask,
    ) -> Accepted<'d> {
        use rows_of_forward::{K, V, Y};
        let (geometry, slots) = (&valid.derived, &valid.slots);
        let dtype = valid.fields.q.dtype();
        let rows = shared_rows(geometry);
        ask.leave_if(rows > TUNING.most_rows, "blocks of many queries read keys less often")?;
        ask.leave_if(geometry.keys < TUNING.least_keys, "few keys need no parts")?;
        let (params, of_y) = params_of_forward(valid)?;
        let vectors = [(K, sys::BOPS_ATTENTION_K), (V, sys::BOPS_ATTENTION_V)]
            .into_iter()
            .filter(|&(row, _)| has_chunks(&slots.always(row).desc))
            .fold(of_y, |vectors, (_, number)| vectors | number);
        let choice = self.choose(geometry, dtype, vectors, props);
        let queries = [geometry.samples, geometry.heads, geometry.queries].into_iter().fold(1, u64::saturating_mul);
        let groups =
            [geometry.samples, geometry.kv_heads, u64::from(choice.parts)].into_iter().fold(1, u64::saturating_mul);
        Reason::unless(rows <= u64::from(u32::MAX), || {
            format!("it counts the queries that share keys in 32 bits, of which there are {rows}")
        })?;
        check_blocks(queries.max(groups.saturating_mul(rows.div_ceil(self.rows))))?;
        let has_work = !slots.always(Y).desc.is_empty();
        let width = geometry.value_depth.next_multiple_of(4) + 2;
        let bytes = [queries, choice.parts.into(), width]
            .into_iter()
            .fold(dtype.accumulator().size_bytes(), u64::saturating_mul);
        let is_single = self.writes_single_part && choice.parts == 1;
        let candidate = form.candidate(has_work, (params.dtype, params, choice, is_single), operands_of_forward);
        let workspace = if has_work && !is_single { WorkspaceReq::new(bytes, VEC_BYTES) } else { WorkspaceReq::NONE };
        let launches = if is_single { 1 } else { 2 };
        Ok(Candidate { workspace, launches: if has_work { launches } else { 0 }, ..candidate })
    }
}

pub(super) fn forward<'d>(valid: &'d Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    Kernel::simt(&valid.derived, valid.fields.q.dtype()).candidate(calls!(bops_attention_split), valid, props, ask)
}

/// On tensor cores.
pub(super) fn forward_mma<'d>(valid: &'d Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    use rows_of_forward::{K, V};
    mma::check(valid.fields.q.dtype(), &valid.slots, &[(K, "k"), (V, "v")])?;
    Kernel::mma().candidate(calls!(bops_attention_split_mma), valid, props, ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::AttentionDescriptor;
    use crate::tensor::TensorDesc;

    fn geometry(dtype: DType, [b, hq, hk, sq, sk, d]: [u64; 6]) -> Geometry {
        let q = TensorDesc::contiguous(dtype, &[b, hq, sq, d]).unwrap();
        let kv = TensorDesc::contiguous(dtype, &[b, hk, sk, d]).unwrap();
        AttentionDescriptor::new(q, kv, kv).unwrap().0.derived
    }

    #[test]
    fn parts_are_whole_tiles_that_hold_every_key() {
        for props in Props::examples() {
            for dtype in [DType::F16, DType::F32, DType::F64] {
                for d in [1, 64, 100, 128, 256] {
                    for (b, hq, hk, sq, sk) in [
                        (1, 1, 1, 1, 0),
                        (1, 8, 8, 1, 1),
                        (1, 32, 8, 1, 4096),
                        (64, 32, 8, 1, 8192),
                        (1, 8, 1, 9, 1 << 20),
                    ] {
                        let geometry = geometry(dtype, [b, hq, hk, sq, sk, d]);
                        for kernel in [Kernel::simt(&geometry, dtype), Kernel::mma()] {
                            let it = kernel.choose(&geometry, dtype, 0, &props);
                            let (tile, keys) = ((kernel.tile)(it.padded.into(), dtype), u64::from(it.keys_per_part));
                            assert!(keys.is_multiple_of(tile) && keys >= TUNING.least_tiles * tile, "{it:?}");
                            assert!(keys <= kernel.most_tiles * tile && u64::from(it.parts) * keys >= sk, "{it:?}");
                            assert!((u64::from(it.parts) - 1) * keys < sk.max(1), "{it:?}");
                            assert!(u64::from(it.padded) >= d, "{it:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_multiprocessor_gets_blocks() {
        let h200 = Props::examples().find(|props| props.name == "H200").unwrap();
        for (kernel, dtype, rows, least) in
            [("simt", DType::F32, 4, 6), ("simt", DType::BF16, 8, 6), ("mma", DType::BF16, 16, 1)]
        {
            let geometry = geometry(dtype, [1, 32, 8, 1, 32768, 128]);
            let kernel = if kernel == "mma" { Kernel::mma() } else { Kernel::simt(&geometry, dtype) };
            let it = kernel.choose(&geometry, dtype, 0, &h200);
            assert!(u64::from(it.parts) * 8 >= least * u64::from(h200.multiprocessors) && it.rows == rows, "{it:?}");
        }
    }
}
