//! Products of matrices of f32, f16 and bf16.

use half::bf16;

use super::super::cpu::{At, Values, offset};
use super::super::geometry::Product;
use super::finish::Line;
use super::{COLS, Finish, Places, Right, Sums, Word, tile_of};
use crate::backend::cpu::threads;
use crate::narrow::to_usize;
use crate::ops::pointwise::map::fast::{Widest, widest};

/// Computes one product.
pub(in crate::ops::gemm) fn multiply_values(product: &Product, values: Values<'_>) {
    if product.is_empty() {
        return;
    }
    let is_transposed = is_better_transposed(product);
    let product = &if is_transposed { product.transposed() } else { *product };
    let Product { m, n, batch, epilogue, .. } = product;
    let Some(out) = values.tensor(&product.out) else { return };
    let finish = Finish {
        alpha: product.alpha,
        out,
        bias: epilogue.bias.and_then(|bias| values.operand(bias.position)),
        beside: epilogue.beside.and_then(|matrix| values.tensor(&matrix)),
        activation: epilogue.activation,
        is_derivative: epilogue.is_derivative(),
        beta: epilogue.beta,
    };
    let terms = product.terms();
    let tile = tile_of(batch.count(), [*m, *n], terms);
    let [row_tiles, col_tiles] = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
    let elements = batch.count() * m * n;
    // The gradient of the pre-activation lies in f32 where it is of 16 bits.
    let factors = [&product.left, &product.right]
        .map(|matrix| values.tensor(matrix).map_or(matrix.dtype, |tensor| tensor.desc().dtype()));
    threads::for_each(batch.count() * row_tiles * col_tiles, elements.saturating_mul(terms.max(1)), |task| {
        let (first_m, first_n) = (task / col_tiles % row_tiles * tile[0], task % col_tiles * tile[1]);
        let first = At { z: task / (row_tiles * col_tiles), m: first_m, n: first_n };
        let extents = [(m - first_m).min(tile[0]), (n - first_n).min(tile[1])].map(to_usize);
        let mut sums = Sums::new(extents, factors);
        match sums.are_tiled() {
            true => add_terms::<bf16>(product, values, first, extents, &mut sums),
            false => add_terms::<f32>(product, values, first, extents, &mut sums),
        }
        sums.end();
        // SAFETY: tiles share no element of the outputs, and each is one task, so that no other thread uses these elements meanwhile.
        widest(Finished { product, is_transposed, finish: &finish, first, extents, sums: &sums });
    });
}

/// Whether the product of the transposes is faster: the columns of a tile are vectors.
fn is_better_transposed(product: &Product) -> bool {
    let Product { m, n, out, .. } = product;
    if *m.min(n) < COLS as u64 { m > n } else { out.rows == 1 && out.cols != 1 }
}

/// Adds all terms to the sums of a tile.
fn add_terms<W: Word>(product: &Product, values: Values<'_>, first: At, [rows, cols]: [usize; 2], sums: &mut Sums) {
    let Product { left, right, batch, summed, k, .. } = product;
    if product.terms() == 0 {
        return;
    }
    let Some((left_tensor, right_tensor)) = values.tensor(left).zip(values.tensor(right)) else { return };
    let left_start = offset(batch, &left.batch, first.z) + first.m * left.rows;
    let right_start = offset(batch, &right.batch, first.z) + first.n * right.cols;
    let pack = sums.pack();
    for s in 0..summed.count() {
        let left_start = left_start + offset(summed, &left.summed, s);
        let right_start = right_start + offset(summed, &right.summed, s);
        for first_k in (0..*k).step_by(W::BLOCK) {
            let terms = to_usize((k - first_k).min(W::BLOCK as u64));
            let [packed_left, packed_right] = sums.packed::<W>(Right::Panels);
            let start = left_start + first_k * left.cols;
            pack.copy(&left_tensor, start, [rows, terms], [left.rows, left.cols], packed_left, W::PITCH);
            let start = right_start + first_k * right.rows;
            pack.panels(&right_tensor, start, [terms, cols], [right.rows, right.cols], 0, packed_right);
            sums.add(terms, Right::Panels);
        }
    }
}

/// The sums of a tile, and what the epilogue does with them. The bias of a transposed product belongs to its rows.
struct Finished<'t> {
    product: &'t Product,
    is_transposed: bool,
    finish: &'t Finish<'t>,
    first: At,
    extents: [usize; 2],
    sums: &'t Sums,
}

impl Widest for Finished<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { product: Product { batch, out, epilogue, .. }, is_transposed, finish, first, extents, sums } = self;
        let [rows, cols] = extents;
        for row in 0..rows {
            for panel in 0..cols.div_ceil(COLS) {
                let at = At { m: first.m + row as u64, n: first.n + (panel * COLS) as u64, ..first };
                let bias = epilogue.bias.map_or_else(Line::default, |bias| match is_transposed {
                    true => Line { offset: at.m * bias.stride, stride: 0 },
                    false => Line { offset: at.n * bias.stride, stride: bias.stride },
                });
                let beside = epilogue
                    .beside
                    .map_or_else(Line::default, |matrix| Line { offset: matrix.at(batch, at), stride: matrix.cols });
                let places = Places { out: Line { offset: out.at(batch, at), stride: out.cols }, bias, beside };
                // SAFETY: who made this is alone at these elements.
                unsafe { finish.line(sums.line(row, panel), &places) };
            }
        }
    }
}
