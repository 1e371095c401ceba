//! The WGSL kernels of the family: which of them serves which rows, and what they bind.

pub(in crate::ops::norm) mod backward;
pub(in crate::ops::norm) mod forward;
mod variants;

use super::RowNorm;
use crate::backend::wgpu::team::{Team, Teams};
use crate::backend::wgpu::{Props, ShaderType, StepBuilder, check_reach};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::stride;
use crate::ops::rows::RowGeometry;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

pub(in super::super) use variants::add_variants;

/// What all kernels of the family ask of their rows.
struct Rows {
    geometry: RowGeometry,
    /// The operands that have rows, in the order of their strides.
    operands: Vec<usize>,
    /// Elements of a chunk of 16 bytes.
    elements: u64,
    /// Chunks of a row, the last perhaps cut.
    chunks: u64,
    /// Whether no chunk is cut and rows start at chunks.
    can_chunk: bool,
    dtype: ShaderType,
}

impl Rows {
    /// The rows of those of `operands` that are declared. The operands `dense`, which have no rows, have to be dense.
    fn new(
        (x, normalized_dims): (&TensorDesc, usize),
        slots: &Slots,
        operands: [usize; 4],
        dense: &[usize],
        props: &Props,
    ) -> Result<Self, Reason> {
        check_reach(slots.iter().filter(|slot| !slot.desc.is_empty()), dense, props)?;
        let dtype = ShaderType::of(x.dtype())?;
        let of_rows = || slots.iter().filter(|slot| operands.contains(&slot.index));
        let tensors: Vec<&TensorDesc> = of_rows().map(|slot| &slot.desc).collect();
        let geometry = RowGeometry::new(&tensors, normalized_dims)?;
        let operands = of_rows().map(|slot| slot.index).collect();
        let elements = 16 / x.dtype().size_bytes();
        let whole = |strides: &[u64; 3]| strides.iter().all(|stride| stride.is_multiple_of(elements));
        let can_chunk = geometry.cols.is_multiple_of(elements) && geometry.strides.iter().all(whole);
        let chunks = geometry.cols.div_ceil(elements);
        Ok(Self { geometry, operands, elements, chunks, can_chunk, dtype })
    }

    /// The team that holds a row; `find` takes it from tables. Few long rows are faster split.
    fn team(
        &self,
        ask: Ask,
        find: impl FnOnce(&dyn Fn(&Teams) -> Option<Team>) -> Option<Team>,
        props: &Props,
    ) -> Result<Team, Reason> {
        let (row_count, cols) = (ask.samples(self.geometry.rows), self.geometry.cols);
        ask.leave_if(Team::is_better_split(row_count, self.chunks), "split is faster for few long rows")?;
        find(&|table| Team::holding(table, row_count, self.chunks, props))
            .ok_or_else(|| format!("rows of {cols} columns exceed the registers of a workgroup").into())
    }

    fn is_half(&self) -> bool {
        self.elements == 8
    }

    /// Strides of an operand as the shader reads them.
    fn strides(&self, operand: usize) -> [u32; 3] {
        let at = self.operands.iter().position(|&index| index == operand);
        at.map_or([0; 3], |at| self.geometry.strides[at].map(stride))
    }

    /// A dispatch of teams over the rows; `files` lie before and after those that every dispatch has.
    fn step(
        &self,
        entry: &'static str,
        [before, after]: [&[&'static str]; 2],
        (kind, team): (RowNorm, Team),
        params: Vec<u8>,
        grid: [u32; 2],
    ) -> StepBuilder {
        let kind = if kind == RowNorm::Layer { "norm/row/layer_norm" } else { "norm/row/rms_norm" };
        let shared = ["common/team", "common/chunk", "common/row", "common/row_part", team.reduce.file(), kind];
        let files = [&self.dtype.prelude(), before, &shared[..], after].concat();
        let step = StepBuilder::new(entry, files, params, grid);
        StepBuilder { constants: team.constants(), can_chunk: self.can_chunk, ..step }
    }
}

/// The accessors of a parameter, aligned and not.
fn parameter(dtype: DType) -> Result<[&'static str; 2], Reason> {
    Ok(match ShaderType::of(dtype)? {
        ShaderType::F32 => ["quads_f32_in", "values_f32_in"],
        ShaderType::F16 | ShaderType::BF16 => ["quads_half_in", "values_half_in"],
    })
}

#[cfg(test)]
mod tests {
    use super::super::{BackwardFields, ForwardFields, RowNorm, Valid};
    use super::backward::{Backward, LONGEST_CHAIN, Shared};
    use super::forward::{Forward, Held};
    use super::*;
    use crate::backend::wgpu::team::{ROW_TEAMS, Reduce, chain_of_partials};
    use crate::backend::wgpu::{Variants, Work};
    use crate::options::WorkspaceReq;

    fn variant_props(width: Option<u32>) -> Props {
        Variants::device(width.map(|width| (width, width)))
    }

    fn desc(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::BF16, dims).unwrap()
    }

    fn forward(dims: &[u64]) -> Valid<ForwardFields> {
        Valid::new(RowNorm::Layer.forward(), ForwardFields::plain(desc(dims), 1)).unwrap()
    }

    fn backward(dims: &[u64]) -> Valid<BackwardFields> {
        let change = |fields: &mut BackwardFields| {
            (fields.weight, fields.dweight, fields.dbias) = (Some(DType::BF16), true, Some(DType::BF16));
        };
        let plain = Valid::new(RowNorm::Layer.backward(), BackwardFields::plain(desc(dims), 1)).unwrap();
        plain.with(change).unwrap()
    }

    /// The form that is chosen, and its work.
    fn chosen_forward(norm: &Valid<ForwardFields>, props: &Props) -> (Forward, Work<Held>) {
        let of = |form: Forward| Some((form, form.work(norm, props, Ask::Chosen).ok()?));
        Forward::ALL.into_iter().find_map(of).unwrap()
    }

    /// The form that is chosen, and its work.
    fn chosen_backward(norm: &Valid<BackwardFields>, props: &Props) -> (Backward, Work<Shared>) {
        let of = |form: Backward| Some((form, form.work(norm, props, Ask::Chosen).ok()?));
        Backward::ALL.into_iter().find_map(of).unwrap()
    }

    #[test]
    fn a_row_stays_on_chip_while_it_fits() {
        let launches = |dims: &[u64], width| {
            let (form, work) = chosen_forward(&forward(dims), &variant_props(width));
            (form, work.steps.len())
        };
        assert_eq!(launches(&[1000, 32768], Some(32)), (Forward::Resident, 1));
        assert_eq!(launches(&[1000, 32769], Some(32)), (Forward::Split, 2));
        assert_eq!(launches(&[10, 32768], Some(32)), (Forward::Split, 2));
        assert_eq!(launches(&[1000, 32768], None), (Forward::Resident, 1));
        assert_eq!(launches(&[0, 32768], Some(32)), (Forward::Split, 0));
    }

    #[test]
    fn forms_that_are_asked_for_serve_what_others_serve_better() {
        let props = variant_props(Some(32));
        let of_forward = |form: Forward, dims: &[u64]| {
            let work = form.work(&forward(dims), &props, Ask::Pinned);
            work.map(|work| (work.steps.len(), work.workspace_bytes)).map_err(|reason| reason.to_string())
        };
        assert_eq!(of_forward(Forward::Resident, &[10, 32768]), Ok((1, 0)));
        assert_eq!(of_forward(Forward::Split, &[7, 17]), Ok((2, 7 * 16)));
        assert!(of_forward(Forward::Resident, &[1000, 32769]).is_err_and(|reason| reason.contains("32769")));
        assert!(of_forward(Forward::Split, &[7, 0]).is_err_and(|reason| reason.contains("no slices")));
        let of_backward = |form: Backward, dims: &[u64]| {
            let work = form.work(&backward(dims), &props, Ask::Pinned);
            work.map(|work| work.steps.len()).map_err(|reason| reason.to_string())
        };
        assert_eq!(of_backward(Backward::FewRows, &[500, 4096]), Ok(1));
        assert_eq!(of_backward(Backward::Resident, &[10, 512]), Ok(2));
        assert_eq!(of_backward(Backward::Split, &[10, 512]), Ok(3));
        assert!(
            of_backward(Backward::FewRows, &[100_000, 512]).is_err_and(|reason| reason.contains("are 41 and 16384"))
        );
    }

    #[test]
    fn threads_of_a_row_exchange_lanes_only_within_the_narrowest_subgroup() {
        let reduce =
            |row_chunks, width| Team::resident(ROW_TEAMS[1], 1000, row_chunks, &variant_props(width)).unwrap().reduce;
        assert_eq!(reduce(30, Some(32)), Reduce::Lanes);
        assert_eq!(reduce(30, Some(8)), Reduce::Subgroups(8));
        assert_eq!(reduce(8, Some(8)), Reduce::Lanes);
        assert_eq!(reduce(512, Some(8)), Reduce::Subgroups(8));
        assert_eq!(reduce(512, None), Reduce::Tree);
    }

    #[test]
    fn the_workspace_holds_the_moments_and_the_sums_exactly() {
        let props = variant_props(Some(32));
        let (form, split) = chosen_forward(&forward(&[256, 262_144]), &props);
        assert_eq!((form, split.steps.len(), split.workspace_bytes), (Forward::Split, 2, 256 * 43 * 16));
        let (_, work) = chosen_backward(&backward(&[16384, 4096]), &props);
        let partials = u64::from(work.choice.partials);
        assert_eq!(work.workspace_bytes, partials * 2 * 4096 * 4);
        let plain = Valid::new(RowNorm::Rms.backward(), BackwardFields::plain(desc(&[64, 64]), 1)).unwrap();
        assert_eq!(chosen_backward(&plain, &props).1.workspace(), WorkspaceReq::NONE);
    }

    #[test]
    fn split_gradients_take_all_workgroups_at_once_and_few_sums() {
        for (dims, sum_slices) in [([1024, 65_536], 4), ([256, 262_144], 16), ([100, 65_536], 16)] {
            let (form, work) = chosen_backward(&backward(&dims), &variant_props(Some(32)));
            let Shared { slices, partials, .. } = work.choice;
            assert!(form == Backward::Split && slices * partials <= 132 * 8, "{dims:?}");
            let parameters = u64::from(partials) * 2 * dims[1] * 4;
            assert_eq!(work.workspace_bytes - parameters, 16 * dims[0] * sum_slices, "{dims:?}");
        }
    }

    #[test]
    fn few_rows_take_the_parameters_in_the_dispatch_of_dx() {
        let launches = |dims: &[u64]| {
            let (form, work) = chosen_backward(&backward(dims), &variant_props(Some(32)));
            (form, work.steps.len())
        };
        assert_eq!(launches(&[64, 4096]), (Backward::FewRows, 1));
        assert_eq!(launches(&[64, 512]), (Backward::FewRows, 1));
        assert_eq!(launches(&[500, 4096]), (Backward::Resident, 2));
        assert_eq!(launches(&[4000, 64]), (Backward::Resident, 2));
    }

    #[test]
    fn gradients_of_parameters_add_up_in_short_chains() {
        for (rows, cols) in [
            (64, 4096),
            (500, 4096),
            (2048, 4096),
            (16384, 4096),
            (131_072, 128),
            (32_768, 1024),
            (262_144, 4096),
            (4096, 16384),
            (1024, 65_536),
            (256, 262_144),
        ] {
            let (_, work) = chosen_backward(&backward(&[rows, cols]), &variant_props(Some(32)));
            let Shared { workgroup, threads, rounds, blocks, partials, .. } = work.choice;
            let teams = if workgroup == threads { 0 } else { workgroup / threads / 2 + 1 };
            let chain = u64::from(rounds + teams + (blocks - 1)) + chain_of_partials(partials.into());
            assert!(chain <= LONGEST_CHAIN, "{rows}x{cols}: {chain}");
            assert!(u64::from(partials * rounds * blocks) * u64::from(workgroup / threads) >= rows, "{rows}x{cols}");
        }
    }

    #[test]
    fn gradients_over_millions_of_rows_hold_their_budget() {
        // A chain of n additions errs by up to 0.35 n; 8 + 48 / 4 is allowed (docs/numerics.md).
        const MOST: u64 = 57;
        for (rows, cols) in [(2 << 20, 64), (4 << 20, 128), (1 << 20, 1024)] {
            let (_, work) = chosen_backward(&backward(&[rows, cols]), &variant_props(Some(32)));
            let Shared { workgroup, threads, rounds, blocks, partials, .. } = work.choice;
            let teams = if workgroup == threads { 0 } else { workgroup / threads / 2 + 1 };
            let chain = u64::from(rounds + teams + (blocks - 1)) + chain_of_partials(partials.into());
            assert!(chain <= MOST, "{rows}x{cols}: {chain}");
        }
    }

    #[test]
    fn refuses_with_both_numbers() {
        let props = Props { max_binding_bytes: 128 << 20, ..variant_props(None) };
        let resident = |norm| Forward::Resident.work(norm, &props, Ask::Chosen);
        let reason = resident(&forward(&[1 << 16, 1 << 12])).err().unwrap().to_string();
        assert!(reason.contains("536870912") && reason.contains("134217728"), "{reason}");
        let f64s = TensorDesc::contiguous(DType::F64, &[4, 4]).unwrap();
        let plain = Valid::new(RowNorm::Layer.forward(), ForwardFields::plain(f64s, 1)).unwrap();
        assert!(Forward::ALL.into_iter().all(|form| form.work(&plain, &props, Ask::Pinned).is_err()));
    }
}
