//! The gradients: dpre with partial sums of its columns, the totals of these sums, and the two products.

use super::super::geometry::{BackwardGeometry, ColumnSums, Dpre, DprePass, MAX_BATCH, Matrix};
use super::product::{self, Tile};
use super::{Regions, axes, finished};
use crate::backend::wgpu::team::{MOST_COLUMN_CHAINS, lanes_of_partials};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, Work, check_workspace, groups, has_whole_lines, lines_out, params, prelude,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};

/// Neighbouring quads of columns in a workgroup of the pass for dpre: one for each thread of a subgroup of 32, so that it reads 512 bytes of a row of f32.
const PASS_QUADS: u32 = 32;

/// How the pass for dpre is divided.
struct Partition {
    /// Rows of all batches.
    rows: u64,
    /// Rows of a thread.
    rounds: u64,
    /// Workgroups along the rows, each of which leaves a sum of every column.
    parts: u64,
}

impl Partition {
    /// Rows of a thread, unless the chains of the second dispatch would then be longer than those of a thread. With 16 a workgroup of 256 threads leaves
    /// one partial sum for 128 rows: with fewer the second dispatch would have more to add up, with more there would be fewer workgroups.
    const ROUNDS: u64 = 16;

    fn new(pass: &DprePass, props: &Props) -> Self {
        let rows = if pass.n == 0 { 0 } else { pass.batch.count() * pass.m };
        let lanes = u64::from(tree_workgroup(props) / PASS_QUADS);
        // Chains of additions are as long in a thread as in the second dispatch, where `MOST_COLUMN_CHAINS` chains share the parts.
        let rounds = Self::ROUNDS.max((rows / (lanes * MOST_COLUMN_CHAINS)).isqrt());
        Self { rows, rounds, parts: rows.div_ceil(lanes * rounds) }
    }
}

/// Threads of a workgroup whose sums meet in a tree, a power of two: the most that WebGPU promises, or the most that every device offers.
pub(in crate::ops) fn tree_workgroup(props: &Props) -> u32 {
    if props.max_threads >= 256 { 256 } else { 128 }
}

pub(super) fn work(geometry: &BackwardGeometry, props: &Props) -> Result<Work<()>, Reason> {
    let BackwardGeometry { dpre, dpre_bytes, da, db, dbias } = geometry;
    let has_sums = dbias.is_some();
    let partials = match dpre {
        Some(Dpre::Recomputed(product)) if !product.is_empty() => Tile::of(product, props).partials(product),
        Some(Dpre::Elementwise(pass)) => Partition::new(pass, props).parts,
        _ => 0,
    };
    let regions = Regions {
        dpre_bytes: dpre_bytes.next_multiple_of(16),
        partial_bytes: dbias.map_or(0, |sums| partials * sums.n.div_ceil(4) * 16),
        align: props.workspace_align(),
    };
    check_workspace(regions.bytes(), props)?;

    let mut steps = Vec::new();
    match dpre {
        Some(Dpre::Recomputed(product)) => {
            steps.extend(product::step(product, &regions, has_sums, (props, Ask::Chosen))?)
        }
        Some(Dpre::Elementwise(pass)) => steps.extend(pass_step(pass, &regions, has_sums, props)?),
        None => {}
    }
    if let Some(ColumnSums { n, sums, beta }) = dbias.filter(|sums| sums.n > 0) {
        let of_sums = (sums.position, sums.dtype, sums.stride);
        steps.push(sums_step(of_sums, beta, n, (partials, regions.partials()), props)?);
    }
    for product in [da, db].into_iter().flatten() {
        steps.extend(product::step(product, &regions, false, (props, Ask::Chosen))?);
    }
    finished(steps, &regions, props)
}

fn pass_step(pass: &DprePass, regions: &Regions, has_sums: bool, props: &Props) -> Result<Option<StepBuilder>, Reason> {
    let DprePass { m, n, batch, activation, dout, saved, from_out, dpre } = pass;
    let Partition { rows, rounds, parts } = Partition::new(pass, props);
    if rows == 0 {
        return Ok(None);
    }
    let column_groups = n.div_ceil(u64::from(4 * PASS_QUADS));
    let count = parts * column_groups;
    let grid = groups(count, props)?;
    let is_whole =
        |matrix: &Matrix| has_whole_lines((*n, matrix.cols), axes(batch, &matrix.batch).chain([(*m, matrix.rows)]));
    let can_chunk = [Some(dout), saved.as_ref(), dpre.as_ref()].into_iter().flatten().all(is_whole);
    // An operand that is not there is bound to another in its place.
    let saved_or_dout = saved.unwrap_or(*dout);
    let dpre_or_dout = dpre.unwrap_or(*dout);
    let mut batch_strides = [[0; 4]; MAX_BATCH];
    for (axis, &extent) in batch.iter().enumerate() {
        let strides = [dout, &saved_or_dout, &dpre_or_dout].map(|matrix| matrix.batch[axis]);
        batch_strides[axis] = [extent, strides[0], strides[1], strides[2]].map(stride);
    }
    let params = params! {
        m: u32 = word(*m),
        n: u32 = word(*n),
        // Elements of dout, and with them rows, are within u32.
        rows: u32 = word(rows),
        rounds: u32 = word(rounds),
        groups: u32 = word(count),
        groups_x: u32 = grid[0],
        column_groups: u32 = word(column_groups),
        activation: u32 = *activation as u32,
        from_out: u32 = (*from_out).into(),
        has_dpre: u32 = dpre.is_some().into(),
        wants_column_sums: u32 = has_sums.into(),
        batch_axes: u32 = word(batch.len() as u64),
        dout_m: u32 = stride(dout.rows),
        dout_n: u32 = stride(dout.cols),
        saved_m: u32 = stride(saved_or_dout.rows),
        saved_n: u32 = stride(saved_or_dout.cols),
        dpre_m: u32 = stride(dpre_or_dout.rows),
        dpre_n: u32 = stride(dpre_or_dout.cols),
        padding: [u32; 2] = [0; 2],
        batch: [[u32; 4]; MAX_BATCH] = batch_strides,
    };
    let dpre_place = if dpre.is_some() { regions.dpre() } else { regions.partials() };
    let partials_place = if has_sums { regions.partials() } else { regions.dpre() };
    let bindings = vec![
        regions.input("dout", dout),
        regions.input("saved", &saved_or_dout),
        Binding { name: "dpre", place: Some(dpre_place), accessors: lines_out(dpre_or_dout.dtype) },
        Binding { name: "partials", place: Some(partials_place), accessors: ["partials_out"; 2] },
    ];
    let mut files = prelude([dout.dtype, saved_or_dout.dtype, dpre_or_dout.dtype])?;
    files.extend(["common/activation", "common/column_sums", "gemm/gemm_backward_dpre"]);
    Ok(Some(StepBuilder {
        constants: vec![("WORKGROUP", tree_workgroup(props)), ("COLUMN_QUADS", PASS_QUADS)],
        bindings,
        can_chunk,
        ignores_layouts: true,
        ..StepBuilder::new("gemm_backward_dpre", files, params, grid)
    }))
}

/// The dispatch that adds up `partials` sums of each of `n` columns and `beta` times what an operand holds. In a partial sum the columns are padded to a
/// multiple of four.
pub(in crate::ops) fn sums_step(
    (position, dtype, dbias_n): (usize, DType, u64),
    beta: f64,
    n: u64,
    (partials, place): (u64, Place),
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let workgroup = tree_workgroup(props);
    let column_quads = workgroup / lanes_of_partials(partials);
    let quads = n.div_ceil(4);
    let grid = groups(quads.div_ceil(column_quads.into()), props)?;
    let params = params! {
        n: u32 = word(n),
        partials: u32 = word(partials),
        dbias_n: u32 = stride(dbias_n),
        groups_x: u32 = grid[0],
        beta: f32 = single(beta),
        padding: [u32; 3] = [0; 3],
    };
    let dbias = Place::Operand(position);
    let bound_partials = match partials {
        0 => Binding::absent("partials", "absent_partials"),
        _ => Binding { name: "partials", place: Some(place), accessors: ["partials_in"; 2] },
    };
    let [_, any_word] = lines_out(dtype);
    let mut files = prelude([dtype])?;
    files.extend(["common/column_sums", "common/subnormal", "gemm/gemm_backward_sums"]);
    Ok(StepBuilder {
        constants: vec![("WORKGROUP", workgroup), ("COLUMN_QUADS", column_quads)],
        bindings: vec![bound_partials, Binding { name: "dbias", place: Some(dbias), accessors: [any_word; 2] }],
        ..StepBuilder::new("gemm_backward_sums", files, params, grid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::wgpu::Variants;
    use crate::backend::wgpu::team::chain_of_partials;
    use crate::ops::gemm::GemmDescriptor;
    use crate::tensor::TensorDesc;

    #[test]
    fn gradients_of_a_bias_add_up_in_short_chains() {
        // Those of a thread in gemm_backward_dpre.wgsl.
        const CHAIN: u64 = 16;
        let props = Variants::device(None);
        for rows in [1, 100, 100_000, 1 << 20, 4 << 20] {
            let [a, b] = [[rows, 1], [1, 8]].map(|dims| TensorDesc::contiguous(DType::BF16, &dims).unwrap());
            let linear = GemmDescriptor::new(a, b).unwrap().bias(DType::BF16).unwrap();
            let geometry = linear.backward(&["bias"]).unwrap().geometry();
            let Some(Dpre::Elementwise(pass)) = geometry.dpre else { panic!("a pass over dout") };
            let Partition { rounds, parts, .. } = Partition::new(&pass, &props);
            let lanes = tree_workgroup(&props) / PASS_QUADS;
            let of_thread = rounds.min(CHAIN) + rounds.div_ceil(CHAIN) - 1 + u64::from(lanes.ilog2());
            let chain = of_thread + chain_of_partials(parts);
            assert!(chain <= 48, "{rows}: {chain}");
        }
    }
}
