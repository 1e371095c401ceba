//! The dispatch of one product: its tile, and how its operands are read and written.

use super::super::geometry::{Epilogue, MAX_BATCH, Matrix, Product};
use super::{Axis, Regions, axes};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, elements_in, groups, has_whole_lines, lines_in, lines_out, params, prelude,
};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};

/// Terms of a step: `STEP` in gemm_tile.wgsl.
pub(in crate::ops) const DEPTH: u64 = 16;

/// Terms that are added up in one chain, unless more would make their chains, which are added up in one more, as many: with at most 64, an error of half an
/// ulp of the sum in each addition stays below the budget of a product of structured data (docs/numerics.md). Shorter chains would cost more additions of
/// chains, longer ones could miss the budget: an error in each addition of those of 256 is up to 2.3 times the budget of 256 terms.
pub(in crate::ops) const CHAIN: u64 = 64;

/// Terms of a chain, of sums of `terms` terms, whose least number is [`CHAIN`] or another. Beyond the square of it there are as many chains as a chain has
/// terms.
pub(in crate::ops) fn chain(terms: u64, least: u64) -> u64 {
    let root = terms.isqrt();
    least.max(root + u64::from(root * root < terms))
}

/// The tile of a workgroup: one thread for each of its rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Tile {
    pub(super) rows: u32,
    cols: u32,
    /// Rows and columns of a thread, in quads.
    row_quads: u32,
    col_quads: u32,
    /// The cost of a tile if at least `busy` of them are computed at once.
    cost: u64,
    /// Tiles that keep a device busy.
    pub(in crate::ops) busy: u64,
    /// Terms of a chain, if it is not longer for the sake of fewer chains.
    chain: u64,
}

/// Tiles from the largest to the one that every device has room for. A cost is the tile's elements over its speed relative to the largest tile. `busy` is
/// for a GPU of 132 SMs with 8 subgroups each. The speeds, 1, 3/4 and 9/20, and `busy` are estimates, not measured. If reads from workgroup memory were the
/// only limit, the speeds would be 1, 2/3 and 1/2: for a term a thread of 8 x 8 elements reads 4 quads for 64 products, one of 8 x 4 reads 3 for 32, and one
/// of 4 x 4 reads 2 for 16.
const TILES: [Tile; 3] = [
    Tile { rows: 128, cols: 128, row_quads: 2, col_quads: 2, cost: 16384, busy: 132, chain: CHAIN },
    Tile { rows: 64, cols: 64, row_quads: 2, col_quads: 1, cost: 5461, busy: 264, chain: CHAIN },
    Tile { rows: 32, cols: 32, row_quads: 1, col_quads: 1, cost: 2275, busy: 528, chain: CHAIN },
];

/// Rows of a product by which a tile is chosen that is not to depend on their number.
const MANY_ROWS: u64 = 1 << 30;

impl Tile {
    /// The tile that takes the least time for a product.
    pub(super) fn of(product: &Product, props: &Props) -> Self {
        Self::least(props, |tile| tile.time(tile.count(product)))
    }

    /// The tile that takes the least time for a product of many rows.
    fn of_many_rows(product: &Product, props: &Props) -> Self {
        Self::of(&Product { m: MANY_ROWS, ..*product }, props)
    }

    /// The time that a product takes with the tile that [`Tile::of`] chooses, in the unit of `cost`.
    pub(in crate::ops) fn time_of(product: &Product, props: &Props) -> u64 {
        let tile = Self::of(product, props);
        let steps = product.summed.count().saturating_mul(product.k.div_ceil(DEPTH)).max(1);
        tile.time(tile.count(product)).saturating_mul(steps)
    }

    /// The tile that takes the least time, by what a function says that one takes.
    pub(in crate::ops) fn least(props: &Props, mut time: impl FnMut(&Self) -> u64) -> Self {
        let fits = |tile: &&Self| {
            // Two steps of both factors, in f32.
            let bytes = 2 * 4 * DEPTH * u64::from(tile.rows + tile.cols);
            tile.workgroup() <= props.max_threads && bytes <= props.max_workgroup_bytes.into()
        };
        // The last tile is within the least limits that Vulkan allows.
        *TILES.iter().filter(fits).min_by_key(|tile| time(tile)).unwrap_or(&TILES[2])
    }

    /// The time of so many tiles.
    pub(in crate::ops) fn time(&self, count: u64) -> u64 {
        count.max(self.busy).saturating_mul(self.cost)
    }

    fn workgroup(&self) -> u32 {
        self.rows + self.cols
    }

    /// Tiles of an output: rows of them, and columns.
    pub(in crate::ops) fn tiles(&self, [m, n]: [u64; 2]) -> [u64; 2] {
        [m.div_ceil(self.rows.into()), n.div_ceil(self.cols.into())]
    }

    fn count(&self, product: &Product) -> u64 {
        self.tiles([product.m, product.n]).into_iter().fold(product.batch.count(), u64::saturating_mul)
    }

    /// Partial sums of each column of the output.
    pub(super) fn partials(&self, product: &Product) -> u64 {
        self.tiles([product.m, product.n])[0] * product.batch.count()
    }

    /// Steps of a chain, of sums of so many steps.
    pub(in crate::ops) fn chain_steps(&self, steps: u64) -> u64 {
        chain(steps.saturating_mul(DEPTH), self.chain).div_ceil(DEPTH)
    }

    pub(in crate::ops) fn constants(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("WORKGROUP", self.workgroup()),
            ("LEFT_QUADS", self.rows / 4),
            ("RIGHT_QUADS", self.cols / 4),
            ("ROW_QUADS", self.row_quads),
            ("COL_QUADS", self.col_quads),
        ]
    }
}

/// A factor: the axis across the terms, and the one along them.
struct Factor<'p> {
    product: &'p Product,
    matrix: &'p Matrix,
    across: Axis,
    along: Axis,
}

impl Factor<'_> {
    fn has_whole(&self, line: Axis, other: Axis) -> bool {
        let batch = axes(&self.product.batch, &self.matrix.batch);
        let summed = axes(&self.product.summed, &self.matrix.summed);
        has_whole_lines(line, batch.chain(summed).chain([other]))
    }

    fn has_whole_lines(&self) -> bool {
        self.has_whole(self.across, self.along) || self.has_whole(self.along, self.across)
    }

    /// Whether its lines run along the terms: where they are whole, else where elements are closer to each other.
    fn is_along(&self) -> bool {
        let is_whole_across = self.has_whole(self.across, self.along);
        self.has_whole(self.along, self.across) || (!is_whole_across && self.along.1 < self.across.1)
    }
}

/// The transposed product, if the output's columns are contiguous and its rows are not. A product that adds up columns is left as it is: it writes to the
/// workspace, whose rows are contiguous.
fn rows_first(product: &Product) -> (Product, bool) {
    let Product { m, n, out, epilogue, .. } = product;
    let has_columns = out.rows == 1 && *m > 1 && (out.cols != 1 || *n == 1);
    let is_turned = has_columns && !epilogue.is_derivative();
    (if is_turned { product.transposed() } else { *product }, is_turned)
}

/// Most steps of one sum on Mesa's driver that runs shaders on the CPU, which silently ends the loops of a shader after 65535 iterations in all.
/// 32000 steps leave room for two iterations each: one of the loop over steps, and one more. The loop over `STEP_QUADS` has a constant length; it
/// adds none where the driver unrolls it.
pub(in crate::ops) const MOST_STEPS_IN_SOFTWARE: u64 = 32_000;

/// The dispatch of a product, if it writes anything. Operands that a product lacks are bound to others in their place, so that one shader serves
/// every set of operands.
pub(super) fn step(
    product: &Product,
    regions: &Regions,
    has_sums: bool,
    (props, ask): (&Props, Ask),
) -> Result<Option<StepBuilder>, Reason> {
    if product.is_empty() {
        return Ok(None);
    }
    let tile = if ask.is_invariant() { Tile::of_many_rows(product, props) } else { Tile::of(product, props) };
    // Whether a product of one row is turned would depend on its number of rows.
    let (product, is_turned) = &if ask.is_invariant() { (*product, false) } else { rows_first(product) };
    let Product { m, n, left, right, out, .. } = product;
    let Epilogue { bias, activation, beside, beta, .. } = product.epilogue;
    // A sum over no terms leaves factors without elements, which cannot be bound.
    let has_terms = product.terms() > 0;
    let (k, tuples) = if has_terms { (product.k, product.summed.count()) } else { (0, 0) };
    let steps = tuples.saturating_mul(k.div_ceil(DEPTH));
    Reason::unless(!props.is_cpu || steps <= MOST_STEPS_IN_SOFTWARE, || {
        let most = MOST_STEPS_IN_SOFTWARE * DEPTH;
        let terms = product.terms();
        format!("drivers that run shaders on the CPU end long loops: sums have at most {most} terms there, got {terms}")
    })?;
    let [tiles_m, tiles_n] = tile.tiles([*m, *n]);
    let count = tile.count(product);
    let grid = groups(count, props)?;

    let (of_m, of_n) = ((*m, left.rows), (*n, right.cols));
    let left_factor = Factor { product, matrix: left, across: of_m, along: (k, left.cols) };
    let right_factor = Factor { product, matrix: right, across: of_n, along: (k, right.rows) };
    let is_written_whole = |matrix: &Matrix| {
        has_whole_lines((*n, matrix.cols), axes(&product.batch, &matrix.batch).chain([(*m, matrix.rows)]))
    };
    let can_chunk = has_terms
        && left_factor.has_whole_lines()
        && right_factor.has_whole_lines()
        && is_written_whole(out)
        && beside.as_ref().is_none_or(is_written_whole);

    let beside_or_out = beside.unwrap_or(*out);
    let bias_stride = bias.map_or(0, |bias| stride(bias.stride));
    let [bias_m, bias_n] = if *is_turned { [bias_stride, 0] } else { [0, bias_stride] };
    let (mut batch, mut batch_beside, mut summed) = ([[0; 4]; MAX_BATCH], [[0; 4]; MAX_BATCH], [[0; 4]; MAX_BATCH]);
    for (axis, &extent) in product.batch.iter().enumerate() {
        batch[axis] = [extent, left.batch[axis], right.batch[axis], out.batch[axis]].map(stride);
        batch_beside[axis][0] = stride(beside_or_out.batch[axis]);
    }
    for (axis, &extent) in product.summed.iter().enumerate() {
        summed[axis] = [extent, left.summed[axis], right.summed[axis], 0].map(stride);
    }
    let params = params! {
        m: u32 = word(*m),
        n: u32 = word(*n),
        k: u32 = word(k),
        tuples: u32 = word(tuples),
        // As many as `groups` lets pass.
        groups: u32 = word(count),
        groups_x: u32 = grid[0],
        tiles_m: u32 = word(tiles_m),
        tiles_n: u32 = word(tiles_n),
        left_across: u32 = stride(left.rows),
        left_along: u32 = stride(left.cols),
        left_is_along: u32 = left_factor.is_along().into(),
        right_across: u32 = stride(right.cols),
        right_along: u32 = stride(right.rows),
        right_is_along: u32 = right_factor.is_along().into(),
        out_m: u32 = stride(out.rows),
        out_n: u32 = stride(out.cols),
        beside_m: u32 = stride(beside_or_out.rows),
        beside_n: u32 = stride(beside_or_out.cols),
        has_bias: u32 = bias.is_some().into(),
        has_beside: u32 = beside.is_some().into(),
        bias_m: u32 = bias_m,
        bias_n: u32 = bias_n,
        activation: u32 = activation as u32,
        batch_axes: u32 = word(product.batch.len() as u64),
        summed_axes: u32 = word(product.summed.len() as u64),
        alpha: f32 = single(product.alpha),
        beta: f32 = single(beta),
        wants_column_sums: u32 = has_sums.into(),
        chain_steps: u32 = word(tile.chain_steps(steps)),
        padding: [u32; 3] = [0; 3],
        batch: [[u32; 4]; MAX_BATCH] = batch,
        batch_beside: [[u32; 4]; MAX_BATCH] = batch_beside,
        summed: [[u32; 4]; MAX_BATCH] = summed,
    };

    let factor = |name, matrix: &Matrix| Binding {
        name,
        place: Some(regions.place(if has_terms { matrix.place } else { out.place })),
        accessors: lines_in(matrix.dtype),
    };
    let bound_bias = match &bias {
        Some(bias) => elements_in("bias", Place::Operand(bias.position), bias.dtype),
        None => {
            let place = regions.place(if has_terms { right.place } else { out.place });
            elements_in("bias", place, right.dtype)
        }
    };
    let mut bindings = vec![factor("left", left), factor("right", right), bound_bias];
    let of_epilogue: &[_] = if product.epilogue.is_derivative() {
        let dout = regions.input("dout", &beside_or_out);
        let partials = if has_sums { regions.partials() } else { regions.dpre() };
        let partials = Binding { name: "partials", place: Some(partials), accessors: ["partials_out"; 2] };
        bindings.extend([dout, regions.output("out", out), partials]);
        &["gemm/gemm_backward_recomputed"]
    } else {
        let pre = Binding { accessors: lines_out(beside_or_out.dtype), ..regions.output("pre", &beside_or_out) };
        bindings.extend([regions.output("out", out), pre]);
        &["gemm/gemm_output", "gemm/gemm_no_sums"]
    };
    let dtypes = [left.dtype, out.dtype, beside_or_out.dtype].into_iter().chain(bias.map(|bias| bias.dtype));
    let mut files = prelude(dtypes)?;
    files.extend(["common/activation", "common/subnormal", "gemm/gemm_tile", "gemm/gemm"]);
    files.extend(of_epilogue);
    Ok(Some(StepBuilder {
        constants: tile.constants(),
        bindings,
        can_chunk,
        ignores_layouts: true,
        ..StepBuilder::new("gemm_tiled", files, params, grid)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_short_and_few_enough_for_structured_data() {
        for terms in [1, 64, 65, 320, 1024, 4096, 4097, 16_384, 1 << 20, u64::from(u32::MAX)] {
            for tile in TILES {
                let steps = terms.div_ceil(DEPTH);
                let chain = tile.chain_steps(steps) * DEPTH;
                let chains = terms.div_ceil(chain);
                // What equal terms are off by, and what balanced factors are allowed (docs/numerics.md).
                let off = 0.35 * (chain.min(terms) + chains) as f64;
                assert!(off <= 8.0 + 2.0 * (terms as f64).sqrt(), "{terms} terms, {chains} chains of {chain}");
            }
        }
    }
}
