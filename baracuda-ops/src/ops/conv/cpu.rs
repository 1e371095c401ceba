//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::geometry::{Axis, ChannelSums, Contracting, Contraction, Gathered, Indices, Strided};
use super::walk::Walk;
use super::{ConvBackwardBiasDescriptor, MAX_AXES};
use crate::backend::cpu::{Operands, Sum, Sums, Tensor, threads};
use crate::dtype::DType;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::gemm::cpu::accumulated;
use crate::ops::gemm::geometry::{Epilogue, Vector};

/// The reference kernel of the three products.
pub(super) fn contracting<D: Contracting>(descriptor: &D) -> Accepted<'_> {
    let contraction = descriptor.contraction();
    Ok(Candidate::on_cpu(move || move |operands| contract(&contraction, operands)))
}

/// The reference kernel of the gradient of the bias.
pub(super) fn backward_bias(descriptor: &ConvBackwardBiasDescriptor) -> Accepted<'_> {
    Ok(Candidate::on_cpu(|| {
        let sums = descriptor.channel_sums();
        move |operands| channel_sums(&sums, operands)
    }))
}

/// Whether rows walk the terms inside the tensor, instead of trying all: they convert the plain factor each for itself, which costs about as much as so
/// many trials.
fn walks_terms(contraction: &Contraction) -> bool {
    contraction.products() / 4 >= contraction.products_inside()
}

/// The products that a run visits.
fn work(contraction: &Contraction) -> u64 {
    if walks_terms(contraction) { contraction.products_inside() } else { contraction.products() }
}

/// An index tuple: its lead and its spatial position.
#[derive(Clone, Copy, Default)]
pub(super) struct At {
    pub(super) lead: u64,
    pub(super) axes: [u64; MAX_AXES],
}

impl Indices {
    /// The tuple with the number `index`, which is below the count.
    pub(super) fn at(&self, mut index: u64) -> At {
        let mut at = At::default();
        if self.lead_last {
            at.lead = index % self.lead;
            index /= self.lead;
        }
        for axis in (0..MAX_AXES).rev() {
            at.axes[axis] = index % self.axes[axis];
            index /= self.axes[axis];
        }
        if !self.lead_last {
            at.lead = index;
        }
        at
    }
}

impl Strided {
    /// The offset of an element.
    pub(super) fn offset(&self, group: u64, at: At, column: u64) -> u64 {
        let axes: u64 = at.axes.iter().zip(self.axes).map(|(&index, stride)| index * stride).sum();
        group * self.group + at.lead * self.lead + axes + column * self.column
    }
}

impl Axis {
    /// The coordinate, given the number that is to be divided; `None` if it is outside the tensor.
    pub(super) fn inside(&self, number: i64) -> Option<u64> {
        let inside = u64::try_from(number).ok()?;
        let coordinate = inside / self.divisor;
        (coordinate * self.divisor == inside && coordinate < self.extent).then_some(coordinate)
    }
}

impl Gathered {
    /// The offset of an element; `None` if it is outside the tensor.
    fn offset(&self, group: u64, row: At, term: At) -> Option<u64> {
        let mut offset = group * self.group + row.lead * self.row_lead + term.lead * self.term_lead;
        for ((axis, row), term) in self.axes.iter().zip(row.axes).zip(term.axes) {
            // Both indices are below extents of tensors, and the padded extent bounds their products with the factors.
            let [row, term] = [row, term].map(|index| i64::try_from(index).unwrap_or(i64::MAX));
            offset += axis.inside(axis.of_row * row + axis.of_term * term + axis.offset)? * axis.stride;
        }
        Some(offset)
    }
}

/// Rows of a tile of sums, which is one task.
const ROWS: usize = 16;
/// Columns of a tile.
const COLS: usize = 64;
/// Terms of each sum whose plain factor is converted to f64 at once.
const TERMS: usize = 256;

/// Computes one contraction.
fn contract(contraction: &Contraction, operands: &Operands<'_>) {
    let Some(output) = operands.get(contraction.out.position) else { return };
    if contraction.is_empty() {
        return;
    }
    let (rows, cols) = (contraction.rows.count(), contraction.n);
    let (row_tiles, col_tiles) = (rows.div_ceil(ROWS as u64), cols.div_ceil(COLS as u64));
    let finish = Finish::new(contraction, operands, output);
    let walks = walks_terms(contraction).then(|| contraction.walks());
    threads::for_each(contraction.groups * row_tiles * col_tiles, work(contraction), |task| {
        let group = task / (row_tiles * col_tiles);
        let (first_row, first_col) = (task / col_tiles % row_tiles * ROWS as u64, task % col_tiles * COLS as u64);
        let row_count = to_usize((rows - first_row).min(ROWS as u64));
        let col_count = to_usize((cols - first_col).min(COLS as u64));
        let at: Vec<At> = (0..row_count).map(|row| contraction.rows.at(first_row + row as u64)).collect();
        let tile = Tile { group, rows: &at, first_col, cols: col_count };
        let sums = match &walks {
            Some(walks) => walked(contraction, operands, &tile, walks),
            None => tried(contraction, operands, &tile),
        };
        for (row, sums) in at.iter().zip(&sums) {
            for col in 0..col_count {
                // SAFETY: each element is of one tile, and each tile is one task.
                unsafe { finish.element(group, *row, first_col + col as u64, sums.total(col)) };
            }
        }
    });
}

/// Some rows and columns of a group.
struct Tile<'t> {
    group: u64,
    rows: &'t [At],
    first_col: u64,
    cols: usize,
}

impl Tile<'_> {
    /// The plain factor of a term, for each column.
    fn load_plain(&self, plain: &Strided, tensor: &Tensor<'_>, term: At, values: &mut [f64]) {
        let start = plain.offset(self.group, term, self.first_col);
        for (col, value) in values.iter_mut().enumerate() {
            *value = tensor.load(start + col as u64 * plain.column);
        }
    }
}

/// Adds the products of an element of the gathered factor, the type of which decides whether they are exact.
fn add(sums: &mut Sums<COLS>, gathered: &Gathered, factor: f64, values: &[f64]) {
    if gathered.dtype == DType::F64 {
        sums.add::<true>(factor, values);
    } else {
        sums.add::<false>(factor, values);
    }
}

/// The sums of a tile, for each row: every term is tried, and each plain factor converted once for all rows.
fn tried(contraction: &Contraction, operands: &Operands<'_>, tile: &Tile<'_>) -> Vec<Sums<COLS>> {
    let Contraction { terms, gathered, plain, .. } = contraction;
    let mut sums = vec![Sums::default(); tile.rows.len()];
    // If a factor has no elements, there are no terms.
    let factors = operands.get(gathered.position).zip(operands.get(plain.position));
    let Some((gathered_tensor, plain_tensor)) = factors else { return sums };
    let count = terms.count();
    let mut plain_terms = vec![0.0; TERMS * tile.cols];
    for first in (0..count).step_by(TERMS) {
        let block: Vec<At> = (first..count.min(first + TERMS as u64)).map(|term| terms.at(term)).collect();
        for (values, &term) in plain_terms.chunks_exact_mut(tile.cols).zip(&block) {
            tile.load_plain(plain, &plain_tensor, term, values);
        }
        for (sums, &row) in sums.iter_mut().zip(tile.rows) {
            for (values, &term) in plain_terms.chunks_exact(tile.cols).zip(&block) {
                let Some(offset) = gathered.offset(tile.group, row, term) else { continue };
                add(sums, gathered, gathered_tensor.load(offset), values);
            }
        }
    }
    sums
}

/// The sums of a tile, for each row: only terms inside the tensor are visited.
fn walked(
    contraction: &Contraction,
    operands: &Operands<'_>,
    tile: &Tile<'_>,
    walks: &[Walk; MAX_AXES],
) -> Vec<Sums<COLS>> {
    let Contraction { terms, gathered, plain, .. } = contraction;
    let mut sums = vec![Sums::default(); tile.rows.len()];
    let factors = operands.get(gathered.position).zip(operands.get(plain.position));
    let Some((gathered_tensor, plain_tensor)) = factors else { return sums };
    let mut values = [0.0; COLS];
    let values = &mut values[..tile.cols];
    for (sums, &row) in sums.iter_mut().zip(tile.rows) {
        let steps: [_; MAX_AXES] = std::array::from_fn(|axis| walks[axis].inside(row.axes[axis]));
        let inside = Indices { axes: steps.map(|steps| steps.count), ..*terms };
        for index in 0..inside.count() {
            let At { lead, axes } = inside.at(index);
            let axes = std::array::from_fn(|axis| steps[axis].first + steps[axis].step * axes[axis]);
            let term = At { lead, axes };
            let Some(offset) = gathered.offset(tile.group, row, term) else { continue };
            tile.load_plain(plain, &plain_tensor, term, values);
            add(sums, gathered, gathered_tensor.load(offset), values);
        }
    }
    sums
}

/// The epilogue with its operands.
struct Finish<'v> {
    contraction: &'v Contraction,
    out: Tensor<'v>,
    bias: Option<(Tensor<'v>, Vector)>,
    pre: Option<(Tensor<'v>, Strided)>,
}

impl<'v> Finish<'v> {
    fn new(contraction: &'v Contraction, operands: &Operands<'v>, out: Tensor<'v>) -> Self {
        let Epilogue { bias, beside: pre, .. } = contraction.epilogue;
        Self {
            contraction,
            out,
            bias: bias.and_then(|bias| Some((operands.get(bias.position)?, bias))),
            pre: pre.and_then(|pre| Some((operands.get(pre.position)?, pre))),
        }
    }

    /// Applies the epilogue to one sum.
    ///
    /// # Safety
    /// No other thread finishes that element of the output.
    unsafe fn element(&self, group: u64, row: At, column: u64, acc: f64) {
        let Contraction { out, epilogue: Epilogue { activation, beta, .. }, .. } = self.contraction;
        let offset = out.offset(group, row, column);
        let bias = self.bias.as_ref();
        let pre_activation =
            bias.map_or(acc, |(bias, vector)| acc + bias.load(group * vector.group + column * vector.stride));
        if let Some((tensor, pre)) = &self.pre {
            // SAFETY: the caller is alone at this element, and outputs address every element once.
            unsafe { tensor.store(pre.offset(group, row, column), pre_activation) };
        }
        let value = accumulated(activation.apply(pre_activation), *beta, || self.out.load(offset));
        // SAFETY: as for pre.
        unsafe { self.out.store(offset, value) };
    }
}

/// The gradient of the bias.
fn channel_sums(sums: &ChannelSums, operands: &Operands<'_>) {
    let Some(grad) = operands.get(sums.dbias.position) else { return };
    let dy = operands.get(sums.dy.position);
    // Without elements there may be any number of the other extents.
    let terms = if dy.is_some() { sums.terms.count() } else { 0 };
    threads::for_each(sums.channels, sums.channels.saturating_mul(terms), |channel| {
        let term = |index| dy.as_ref().map_or(0.0, |dy| dy.load(sums.dy.offset(0, sums.terms.at(index), channel)));
        let total: Sum = (0..terms).map(term).collect();
        let offset = channel * sums.dbias.stride;
        // SAFETY: each channel is one task.
        unsafe { grad.store(offset, accumulated(total.total(), sums.beta, || grad.load(offset))) };
    });
}
