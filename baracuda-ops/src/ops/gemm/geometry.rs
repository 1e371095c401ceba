//! How kernels see the op: products of matrices with any strides.
//!
//! A transposed factor and a layout `[1, ld]` are strides, nothing else. Batch extents that lie behind one another in every operand are one
//! extent here. Where b is shared they become rows of one larger product, if strides allow it. What is shared by a batch extent has a stride of 0
//! there, and in its gradient that extent is summed over: it becomes part of k, if strides allow it.

use std::ops::Deref;

use super::backward::{self, BackwardFields};
use super::forward::{self, ForwardFields};
use super::{Gradient, Saved, Shape, Valid};
use crate::backend::cpu::rounded;
use crate::dtype::{DType, Real};
use crate::ops::activation::Activation;
use crate::slots::{MAX_SLOTS, Slot, Slots};
use crate::tensor::{DEFAULT_ALIGN_BYTES, MAX_RANK, TensorDesc};

/// Most batch extents of a product.
pub(crate) const MAX_BATCH: usize = MAX_RANK - 2;

/// A few extents, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extents {
    dims: [u64; MAX_BATCH],
    len: usize,
}

impl Extents {
    /// How many index tuples there are: 1 without extents.
    pub(crate) fn count(&self) -> u64 {
        self.iter().product()
    }
}

/// At most [`MAX_BATCH`].
impl FromIterator<u64> for Extents {
    fn from_iter<I: IntoIterator<Item = u64>>(extents: I) -> Self {
        let mut all = Self::default();
        for extent in extents {
            all.dims[all.len] = extent;
            all.len += 1;
        }
        all
    }
}

impl Deref for Extents {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.dims[..self.len]
    }
}

/// Where a matrix lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixPlace {
    /// In the operand at this position.
    Operand(usize),
    /// In the workspace of backward: the gradient of the pre-activation, dense `[batch.., M, N]`.
    Dpre,
}

/// One operand of a product: strides in elements, 0 where the operand has no such extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) place: MatrixPlace,
    pub(crate) dtype: DType,
    /// The promised alignment of its first element.
    pub(crate) align_bytes: u64,
    /// Stride of its row index.
    pub(crate) rows: u64,
    /// Stride of its column index.
    pub(crate) cols: u64,
    /// Strides of [`Product::batch`].
    pub(crate) batch: [u64; MAX_BATCH],
    /// Strides of [`Product::summed`].
    pub(crate) summed: [u64; MAX_BATCH],
}

/// A vector over the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) position: usize,
    pub(crate) dtype: DType,
    /// The promised alignment of its first element.
    pub(crate) align_bytes: u64,
    pub(crate) stride: u64,
    /// Stride of a group of columns, of which a convolution may have several; 0 in a product.
    pub(crate) group: u64,
}

/// `out[z, m, n]` is the [epilogue](Epilogue) of `acc = alpha * sum over s and k of left[z, s, m, k] * right[z, s, k, n]`, for all z of
/// `batch` and s of `summed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Product {
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
    pub(crate) batch: Extents,
    pub(crate) summed: Extents,
    pub(crate) alpha: f64,
    pub(crate) left: Matrix,
    pub(crate) right: Matrix,
    pub(crate) out: Matrix,
    pub(crate) epilogue: Epilogue,
}

/// The formula of an [`Epilogue`], by the fields that have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formula {
    /// `out = act(acc + bias[n])`; `beside`, if there is one, is what the activation is applied to.
    Forward,
    /// `out = dout * act'(acc + bias[n])`; `beside` is dout.
    Derivative,
    /// `out = acc + beta * out`; with beta 0 out is never read.
    Gradient,
}

/// What is done with a sum before it is rounded and stored. Fields that are not in the formula have the values of [`Epilogue::gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Epilogue<M = Matrix> {
    pub(crate) formula: Formula,
    pub(crate) bias: Option<Vector>,
    pub(crate) activation: Activation,
    /// The matrix of out's extents that is written or read besides.
    pub(crate) beside: Option<M>,
    pub(crate) beta: f64,
}

impl<M> Epilogue<M> {
    pub(crate) fn forward(bias: Option<Vector>, activation: Activation, pre: Option<M>) -> Self {
        Self { formula: Formula::Forward, bias, activation, beside: pre, beta: 0.0 }
    }

    pub(crate) fn gradient(beta: f64) -> Self {
        Self { formula: Formula::Gradient, bias: None, activation: Activation::Identity, beside: None, beta }
    }

    pub(crate) fn is_derivative(&self) -> bool {
        self.formula == Formula::Derivative
    }

    /// Whether it reads a matrix of out's extents.
    #[cfg(feature = "cuda")]
    pub(super) fn reads(&self) -> bool {
        self.is_derivative() || self.beta != 0.0
    }

    /// The epilogue with another description of the matrix beside out.
    pub(crate) fn map<N>(self, matrix: impl FnOnce(M) -> N) -> Epilogue<N> {
        let Self { formula, bias, activation, beside, beta } = self;
        Epilogue { formula, bias, activation, beside: beside.map(matrix), beta }
    }
}

impl Matrix {
    fn transposed(&self) -> Self {
        Self { rows: self.cols, cols: self.rows, ..*self }
    }
}

impl Product {
    /// The product whose rows are the columns of this one. A bias is one of its rows.
    pub(super) fn transposed(&self) -> Self {
        Self {
            m: self.n,
            n: self.m,
            left: self.right.transposed(),
            right: self.left.transposed(),
            out: self.out.transposed(),
            epilogue: self.epilogue.map(|beside| beside.transposed()),
            ..*self
        }
    }

    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch.count() == 0
    }

    /// Strides of the batch of dense matrices of out's extents.
    #[cfg(feature = "cuda")]
    pub(super) fn dense_batch(&self) -> [u64; MAX_BATCH] {
        let mut strides = [0; MAX_BATCH];
        let mut stride = self.m * self.n;
        for (axis, &extent) in self.batch.iter().enumerate().rev() {
            strides[axis] = stride;
            stride *= extent;
        }
        strides
    }

    /// Terms of each sum.
    pub(crate) fn terms(&self) -> u64 {
        self.k * self.summed.count()
    }

    pub(super) fn forward(valid: &Valid<ForwardFields>) -> Self {
        let (fields, shape, slots) = (&valid.fields, &valid.derived, &valid.slots);
        let [left, right] = factors(shape, &fields.a, &fields.b, [forward::table::A, forward::table::B]);
        let out = View::of(slots.always(forward::table::OUT));
        let (bias, pre) = (vector(slots, forward::table::BIAS), View::operand(slots, forward::table::PRE));
        let epilogue = Epilogue::forward(bias, fields.activation, pre);
        Tensors { left, right, out, epilogue }.product(shape, computed_with(left.dtype, fields.alpha))
    }
}

/// What backward computes: first `dpre`, from it the sums of its columns, then the two products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BackwardGeometry {
    /// How the gradient of the pre-activation is computed; `None` if dout is that gradient and there is no dbias.
    pub(crate) dpre: Option<Dpre>,
    /// Bytes of dpre in the workspace; 0 where it is not stored.
    pub(crate) dpre_bytes: u64,
    pub(crate) da: Option<Product>,
    pub(crate) db: Option<Product>,
    pub(crate) dbias: Option<ColumnSums>,
}

/// How the gradient of the pre-activation is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan has one")]
pub(crate) enum Dpre {
    /// From dout and what forward saved, element by element.
    Elementwise(DprePass),
    /// By the forward product, with [`Formula::Derivative`], into the workspace.
    Recomputed(Product),
}

/// `dpre[z, m, n] = dout[z, m, n] * act'(saved[z, m, n])`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DprePass {
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) batch: Extents,
    pub(crate) activation: Activation,
    pub(crate) dout: Matrix,
    /// The pre-activation, or with `from_out` the output; none for identity.
    pub(crate) saved: Option<Matrix>,
    pub(crate) from_out: bool,
    /// Where it is stored, if a product needs it.
    pub(crate) dpre: Option<Matrix>,
}

/// `sums[n] = sum over z and m of dpre[z, m, n] + beta * sums[n]`, of the unrounded dpre; with beta 0 sums are never read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ColumnSums {
    pub(crate) n: u64,
    pub(crate) sums: Vector,
    pub(crate) beta: f64,
}

/// An alpha or beta of a product with factors of a type: the nearest number of the type in which it is computed.
fn computed_with(factors: DType, value: Real) -> f64 {
    rounded(factors.accumulator(), value.get())
}

/// The tensors of backward, or of a part of it.
#[derive(Clone, Copy)]
pub(super) struct BackwardTensors {
    shape: Shape,
    alpha: f64,
    activation: Activation,
    recomputes: bool,
    from_out: bool,
    a: View,
    b: View,
    bias: Option<Vector>,
    saved: Option<View>,
    dout: View,
    /// Gradients with their beta.
    da: Option<(View, f64)>,
    db: Option<(View, f64)>,
    dbias: Option<(Vector, f64)>,
}

impl BackwardTensors {
    pub(super) fn new(valid: &Valid<BackwardFields>) -> Self {
        let (fields, shape, slots) = (&valid.fields, &valid.derived, &valid.slots);
        let [a, b] = factors(shape, &fields.a, &fields.b, [backward::table::A, backward::table::B]);
        let of_saved = if fields.saved == Saved::Out { backward::table::OUT } else { backward::table::PRE };
        let beta = |gradient: Gradient| computed_with(a.dtype, gradient.beta);
        let gradient = |gradient: Option<Gradient>, position| View::operand(slots, position).zip(gradient.map(beta));
        Self {
            shape: *shape,
            alpha: computed_with(a.dtype, fields.alpha),
            activation: fields.activation,
            recomputes: fields.recomputes(),
            from_out: fields.saved == Saved::Out,
            a,
            b,
            bias: vector(slots, backward::table::BIAS),
            saved: View::operand(slots, of_saved),
            dout: View::of(slots.always(backward::table::DOUT)),
            da: gradient(fields.da, backward::table::DA).map(|(da, beta)| (da.transposed_if(shape.transpose_a), beta)),
            db: gradient(fields.db, backward::table::DB).map(|(db, beta)| (db.transposed_if(shape.transpose_b), beta)),
            dbias: vector(slots, backward::table::DBIAS).zip(fields.dbias.map(beta)),
        }
    }

    pub(super) fn geometry(&self) -> BackwardGeometry {
        let Self { shape, alpha, a, b, dout, da, db, dbias, .. } = *self;
        let dtype = a.dtype;
        let in_workspace = View::dense(MatrixPlace::Dpre, dtype, &shape);
        let is_dout = self.activation.is_identity() && dout.dtype == dtype;

        // op(A) is [M, K], op(B) is [K, N] and dpre is [M, N]: the gradients are dpre op(B)^T and op(A)^T dpre.
        let dpre = if is_dout { dout } else { in_workspace };
        let da = da.map(|(out, beta)| {
            let of = Shape { n: shape.k, k: shape.n, ..shape };
            let right = b.transposed_if(true);
            Tensors { left: dpre, right, out, epilogue: Epilogue::gradient(beta) }.product(&of, alpha)
        });
        let db = db.map(|(out, beta)| {
            let of = Shape { m: shape.k, k: shape.m, ..shape };
            let left = a.transposed_if(true);
            Tensors { left, right: dpre, out, epilogue: Epilogue::gradient(beta) }.product(&of, alpha)
        });
        let reads = |product: &Product| product.terms() > 0 && !product.is_empty();
        let is_read = da.iter().chain(&db).any(reads);

        let is_stored = !is_dout && is_read;
        let dpre = if self.recomputes && (is_read || dbias.is_some()) {
            let forward = Epilogue::forward(self.bias, self.activation, Some(dout));
            let epilogue = Epilogue { formula: Formula::Derivative, ..forward };
            Some(Dpre::Recomputed(Tensors { left: a, right: b, out: in_workspace, epilogue }.product(&shape, alpha)))
        } else if is_stored || dbias.is_some() {
            Some(Dpre::Elementwise(self.pass(is_stored.then_some(in_workspace))))
        } else {
            None
        };
        let is_in_workspace = is_stored || matches!(dpre, Some(Dpre::Recomputed(_)));
        let dpre_bytes = if is_in_workspace { shape.elements() * dtype.size_bytes() } else { 0 };
        let dbias = dbias.map(|(sums, beta)| ColumnSums { n: shape.n, sums, beta });
        BackwardGeometry { dpre, dpre_bytes, da, db, dbias }
    }

    /// The pass that makes dpre of dout and what was saved.
    fn pass(&self, dpre: Option<View>) -> DprePass {
        let Self { shape, dout, saved, .. } = *self;
        let views = [Some(dout), saved, dpre, None];
        let mut batch = join(batch_axes(&shape, &views));
        let strides = |axis: usize| views.map(|view| view.map_or(0, |view| view.matrix_strides()[axis]));
        // Its rows stay in the order in which dpre lies.
        let mut m = Extent { extent: shape.m, strides: strides(0) };
        while let Some(both) = batch.last().and_then(|&axis| Extent::merged(axis, m)) {
            m = both;
            batch.pop();
        }
        let n = Extent { extent: shape.n, strides: strides(1) };
        let matrix = |view: View, tensor: usize| {
            view.matrix([m.strides[tensor], n.strides[tensor]], batch_strides(&batch, tensor), [0; MAX_BATCH])
        };
        DprePass {
            m: m.extent,
            n: n.extent,
            batch: extents(&batch),
            activation: self.activation,
            dout: matrix(dout, 0),
            saved: saved.map(|view| matrix(view, 1)),
            from_out: self.from_out,
            dpre: dpre.map(|view| matrix(view, 2)),
        }
    }
}

/// Ranges of the batch extents, the rows and the columns of dpre, outermost first.
#[derive(Clone, Copy)]
struct Part {
    first: [u64; MAX_RANK],
    extents: [u64; MAX_RANK],
}

/// Where the operands of a part begin, in elements, by their position.
pub(super) type Starts = [u64; MAX_SLOTS];

/// Backward in parts, so that no more of dpre than some number of elements has to be in memory at a time.
impl BackwardTensors {
    /// Elements of dpre that are in memory at once, if at most `most` may be.
    pub(super) fn stored_elements(&self, most: u64) -> u64 {
        if self.geometry().dpre_bytes == 0 { 0 } else { self.shape.elements().min(most) }
    }

    /// Computes every gradient, by parts whose dpre has at most `most` elements. Gradients have sweeps of their own over dpre, in which sums are whole
    /// while `most` elements hold all terms of one; the rest of a longer sum is added to what is there.
    pub(super) fn for_each_part(&self, most: u64, mut compute: impl FnMut(&BackwardGeometry, &Starts)) {
        let geometry = self.geometry();
        if geometry.dpre_bytes == 0 || self.shape.elements() <= most {
            return compute(&geometry, &Starts::default());
        }
        let none = Self { da: None, db: None, dbias: None, ..*self };
        let (of_a, of_b, of_bias) =
            (Self { da: self.da, ..none }, Self { db: self.db, ..none }, Self { dbias: self.dbias, ..none });
        let [m, n] = [self.shape.batch.len(), self.shape.batch.len() + 1];
        if let Some((da, _)) = &self.da {
            let order = self.own_axes(da).into_iter().chain([m]).chain(self.shared_axes(da)).chain([n]);
            of_a.sweep(most, order, &mut compute);
        }
        if let Some((db, _)) = &self.db {
            let order = [n].into_iter().chain(self.own_axes(db)).chain(self.shared_axes(db)).chain([m]);
            of_b.sweep(most, order, &mut compute);
        }
        if self.dbias.is_some() {
            of_bias.sweep(most, [n].into_iter().chain(0..=m), &mut compute);
        }
    }

    fn own_axes(&self, gradient: &View) -> Vec<usize> {
        (0..self.shape.batch.len()).filter(|&axis| gradient.is_own(&self.shape, axis)).collect()
    }

    fn shared_axes(&self, gradient: &View) -> Vec<usize> {
        (0..self.shape.batch.len()).filter(|&axis| !gradient.is_own(&self.shape, axis)).collect()
    }

    /// Divides axes of dpre in an order, until parts have at most `most` elements.
    fn sweep(
        &self,
        most: u64,
        order: impl Iterator<Item = usize>,
        compute: &mut impl FnMut(&BackwardGeometry, &Starts),
    ) {
        let rank = self.shape.batch.len() + 2;
        let mut all = Part { first: [0; MAX_RANK], extents: [1; MAX_RANK] };
        all.extents[..rank - 2].copy_from_slice(&self.shape.batch);
        all.extents[rank - 2..rank].copy_from_slice(&[self.shape.m, self.shape.n]);
        let mut largest = all.extents;
        // Without dpre in memory there is nothing to divide.
        let is_stored = self.geometry().dpre_bytes > 0;
        for axis in order.filter(|_| is_stored) {
            let others = largest.iter().product::<u64>() / largest[axis];
            largest[axis] = largest[axis].min(most / others).max(1);
        }
        let mut part = Part { extents: largest, ..all };
        loop {
            let (tensors, starts) = self.part(&part);
            compute(&tensors.geometry(), &starts);
            // The next part: the last axis varies fastest.
            let Some(axis) = (0..rank).rev().find(|&axis| part.first[axis] + largest[axis] < all.extents[axis]) else {
                return;
            };
            part.first[axis] += largest[axis];
            part.first[axis + 1..].fill(0);
            for ((extent, first), (most, all)) in
                part.extents.iter_mut().zip(part.first).zip(largest.into_iter().zip(all.extents))
            {
                *extent = most.min(all - first);
            }
        }
    }

    /// A part, and where its operands begin.
    fn part(&self, part: &Part) -> (Self, Starts) {
        let (shape, mut starts) = (&self.shape, Starts::default());
        let rank = shape.batch.len() + 2;
        let [of_m, of_n] = [rank - 2, rank - 1];
        let mut narrow = |view: View, has_m: bool, has_n: bool| {
            let (narrowed, start) = view.part(shape, part, [has_m.then_some(of_m), has_n.then_some(of_n)]);
            if let MatrixPlace::Operand(position) = view.place {
                starts[position] = start;
            }
            narrowed
        };
        // What an earlier part has written is there to be added to.
        let begins = |axes: Vec<usize>| axes.into_iter().all(|axis| part.first[axis] == 0);
        let beta = |beta: f64, begins: bool| if begins { beta } else { 1.0 };
        let da = self.da.map(|(da, of_da)| {
            let begins = begins(self.shared_axes(&da)) && part.first[of_n] == 0;
            (narrow(da, true, false), beta(of_da, begins))
        });
        let db = self.db.map(|(db, of_db)| {
            let begins = begins(self.shared_axes(&db)) && part.first[of_m] == 0;
            (narrow(db, false, true), beta(of_db, begins))
        });
        let (a, b) = (narrow(self.a, true, false), narrow(self.b, false, true));
        let (dout, saved) = (narrow(self.dout, true, true), self.saved.map(|saved| narrow(saved, true, true)));
        for vector in self.bias.iter().chain(self.dbias.as_ref().map(|(dbias, _)| dbias)) {
            starts[vector.position] = part.first[of_n] * vector.stride;
        }
        let dbias = self.dbias.map(|(dbias, of_dbias)| (dbias, beta(of_dbias, begins((0..=of_m).collect()))));
        let shape = Shape {
            batch: part.extents[..of_m].iter().copied().collect(),
            m: part.extents[of_m],
            n: part.extents[of_n],
            ..*shape
        };
        (Self { shape, a, b, dout, saved, da, db, dbias, ..*self }, starts)
    }
}

/// A tensor `[batch.., rows, cols]`, as a descriptor has it.
#[derive(Clone, Copy)]
struct View {
    place: MatrixPlace,
    dtype: DType,
    align_bytes: u64,
    rank: usize,
    dims: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
    is_transposed: bool,
}

impl View {
    fn new(position: usize, desc: &TensorDesc) -> Self {
        let (mut dims, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        dims[..desc.rank()].copy_from_slice(desc.dims());
        strides[..desc.rank()].copy_from_slice(desc.strides());
        let place = MatrixPlace::Operand(position);
        let (dtype, align_bytes, rank) = (desc.dtype(), desc.align_bytes(), desc.rank());
        Self { place, dtype, align_bytes, rank, dims, strides, is_transposed: false }
    }

    fn of(slot: &Slot) -> Self {
        Self::new(slot.index, &slot.desc)
    }

    fn operand(slots: &Slots, position: usize) -> Option<Self> {
        slots.at(position).map(Self::of)
    }

    /// A dense tensor of the output's extents.
    fn dense(place: MatrixPlace, dtype: DType, shape: &Shape) -> Self {
        let (mut dims, mut strides, rank) = ([0; MAX_RANK], [0; MAX_RANK], shape.batch.len() + 2);
        dims[..rank - 2].copy_from_slice(&shape.batch);
        [dims[rank - 2], dims[rank - 1]] = [shape.m, shape.n];
        let mut step = 1;
        for (stride, dim) in strides.iter_mut().zip(dims).take(rank).rev() {
            (*stride, step) = (step, step * dim.max(1));
        }
        Self { place, dtype, align_bytes: DEFAULT_ALIGN_BYTES, rank, dims, strides, is_transposed: false }
    }

    fn transposed_if(self, transposed: bool) -> Self {
        Self { is_transposed: self.is_transposed != transposed, ..self }
    }

    /// Strides of the row and the column index.
    fn matrix_strides(&self) -> [u64; 2] {
        let [rows, cols] = [self.strides[self.rank - 2], self.strides[self.rank - 1]];
        if self.is_transposed { [cols, rows] } else { [rows, cols] }
    }

    /// The axis of the tensor that is a batch axis of the op; they are counted from the last.
    fn own_axis(&self, shape: &Shape, axis: usize) -> Option<usize> {
        (axis + self.rank).checked_sub(shape.batch.len() + 2)
    }

    /// Whether the tensor has a batch extent of the op, rather than none or 1 in its place.
    fn is_own(&self, shape: &Shape, axis: usize) -> bool {
        self.own_axis(shape, axis).is_some_and(|own| self.dims[own] == shape.batch[axis])
    }

    /// Stride of a batch extent of the op; 0 where the tensor does not have it.
    fn batch_stride(&self, shape: &Shape, axis: usize) -> u64 {
        let own = self.own_axis(shape, axis).filter(|_| self.is_own(shape, axis));
        own.map_or(0, |own| self.strides[own])
    }

    /// The part of the tensor that belongs to a part of dpre, and where it begins, given which axes of dpre its rows and its columns are.
    fn part(mut self, shape: &Shape, part: &Part, [rows, cols]: [Option<usize>; 2]) -> (Self, u64) {
        let own = (0..shape.batch.len()).filter(|&axis| self.is_own(shape, axis));
        let own = own.filter_map(|axis| Some((axis, self.own_axis(shape, axis)?)));
        let [row_axis, col_axis] = if self.is_transposed { [1, 2] } else { [2, 1] }.map(|back| self.rank - back);
        let of_matrix = [rows.zip(Some(row_axis)), cols.zip(Some(col_axis))];
        let axes: Vec<(usize, usize)> = own.chain(of_matrix.into_iter().flatten()).collect();
        let mut start = 0;
        for (of_dpre, own) in axes {
            start += part.first[of_dpre] * self.strides[own];
            self.dims[own] = part.extents[of_dpre];
        }
        (self, start)
    }

    fn matrix(&self, [rows, cols]: [u64; 2], batch: [u64; MAX_BATCH], summed: [u64; MAX_BATCH]) -> Matrix {
        let Self { place, dtype, align_bytes, .. } = *self;
        Matrix { place, dtype, align_bytes, rows, cols, batch, summed }
    }
}

fn vector(slots: &Slots, position: usize) -> Option<Vector> {
    let desc = slots.at(position)?.desc;
    let stride = desc.strides().first().copied().unwrap_or(1);
    Some(Vector { position, dtype: desc.dtype(), align_bytes: desc.align_bytes(), stride, group: 0 })
}

/// op(A) and op(B).
fn factors(shape: &Shape, a: &TensorDesc, b: &TensorDesc, positions: [usize; 2]) -> [View; 2] {
    let [of_a, of_b] = positions;
    [View::new(of_a, a).transposed_if(shape.transpose_a), View::new(of_b, b).transposed_if(shape.transpose_b)]
}

/// One extent, with its stride in each tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Extent<const N: usize = TENSORS> {
    pub(in crate::ops) extent: u64,
    /// In a product: its stride in the left factor, in the right factor, in what is written, and in what lies beside that.
    pub(in crate::ops) strides: [u64; N],
}

/// Strides of an extent of a product.
const TENSORS: usize = 4;
// Which of them is which.
const LEFT: usize = 0;
const RIGHT: usize = 1;
const OUT: usize = 2;
const BESIDE: usize = 3;

/// The extents of a product, each list outermost first.
pub(in crate::ops) struct Axes {
    /// Extents of the batch of matrices, outside of their rows.
    pub(in crate::ops) batch: Vec<Extent>,
    pub(in crate::ops) m: Extent,
    pub(in crate::ops) n: Extent,
    /// Extents that are summed over, outside of k.
    pub(in crate::ops) summed: Vec<Extent>,
    pub(in crate::ops) k: Extent,
}

impl Axes {
    /// The product of tensors with these strides, joining what lies one behind the other in every tensor. Strides of the matrices that are
    /// given do not count.
    pub(in crate::ops) fn product(self, alpha: f64, [left, right, out]: [Matrix; 3], epilogue: Epilogue) -> Product {
        let Self { batch, m, n, summed, k } = self;
        let (mut batch, mut summed) = (join(batch.into_iter()), join(summed.into_iter()));
        // Rows have no stride in the right factor, so an extent that becomes one of the rows must have none there either.
        let m = absorb(&mut batch, m, |axis| axis.strides[RIGHT] == 0);
        let k = absorb(&mut summed, k, |_| true);
        let laid = |matrix: Matrix, tensor: usize, rows: &Extent, cols: &Extent| Matrix {
            rows: rows.strides[tensor],
            cols: cols.strides[tensor],
            batch: batch_strides(&batch, tensor),
            summed: batch_strides(&summed, tensor),
            ..matrix
        };
        Product {
            m: m.extent,
            n: n.extent,
            k: k.extent,
            batch: extents(&batch),
            summed: extents(&summed),
            alpha,
            left: laid(left, LEFT, &m, &k),
            right: laid(right, RIGHT, &k, &n),
            out: laid(out, OUT, &m, &n),
            epilogue: epilogue.map(|matrix| laid(matrix, BESIDE, &m, &n)),
        }
    }
}

impl<const N: usize> Extent<N> {
    /// Both extents as one, if every tensor lies so that one stride serves them.
    fn merged(outer: Self, inner: Self) -> Option<Self> {
        if inner.extent == 1 {
            return Some(outer);
        }
        if outer.extent == 1 {
            return Some(inner);
        }
        let follows = |(&outer, &stride): (&u64, &u64)| inner.extent.checked_mul(stride) == Some(outer);
        let extent = outer.extent.checked_mul(inner.extent)?;
        let fits = outer.strides.iter().zip(&inner.strides).all(follows);
        fits.then_some(Self { extent, strides: inner.strides })
    }
}

/// Joins neighbours where that is possible, and leaves out extents of 1.
pub(in crate::ops) fn join<const N: usize>(axes: impl Iterator<Item = Extent<N>>) -> Vec<Extent<N>> {
    let mut joined: Vec<Extent<N>> = Vec::new();
    for axis in axes.filter(|axis| axis.extent != 1) {
        match joined.last().and_then(|&outer| Extent::merged(outer, axis)) {
            Some(both) => {
                joined.pop();
                joined.push(both);
            }
            None => joined.push(axis),
        }
    }
    joined
}

/// Moves extents of `outer` into `inner`, innermost first, while they fit and `is_whole` holds of the result.
fn absorb(outer: &mut Vec<Extent>, mut inner: Extent, is_whole: impl Fn(&Extent) -> bool) -> Extent {
    let joined = |outer: &[Extent], inner: Extent| {
        let both = |axis: usize| Some((axis, Extent::merged(outer[axis], inner).filter(&is_whole)?));
        (0..outer.len()).rev().find_map(both)
    };
    while let Some((axis, both)) = joined(outer, inner) {
        inner = both;
        outer.remove(axis);
    }
    inner
}

/// The tensors of a product.
#[derive(Clone, Copy)]
struct Tensors {
    left: View,
    right: View,
    out: View,
    epilogue: Epilogue<View>,
}

impl Tensors {
    /// Their product; `shape` has the batch of the op, and m, n and k of this product.
    fn product(self, shape: &Shape, alpha: f64) -> Product {
        let Self { left, right, out, epilogue } = self;
        let views = [Some(left), Some(right), Some(out), epilogue.beside];
        // What the output does not have is summed over.
        let (batch, summed): (Vec<_>, Vec<_>) =
            batch_axes(shape, &views).enumerate().partition(|&(axis, _)| out.is_own(shape, axis));
        let [batch, summed] = [batch, summed].map(|axes| axes.into_iter().map(|(_, axis)| axis).collect::<Vec<_>>());
        // Alpha times any sum is 0 if alpha is, and so is a sum over nothing.
        let has_terms = alpha != 0.0 && shape.k > 0 && summed.iter().all(|axis| axis.extent > 0);
        let (summed, terms) = if has_terms { (summed, shape.k) } else { (Vec::new(), 0) };
        let [left_rows, left_cols] = left.matrix_strides();
        let [right_rows, right_cols] = right.matrix_strides();
        let [out_rows, out_cols] = out.matrix_strides();
        let [beside_rows, beside_cols] = epilogue.beside.map_or([0; 2], |view| view.matrix_strides());
        let axes = Axes {
            batch,
            m: Extent { extent: shape.m, strides: [left_rows, 0, out_rows, beside_rows] },
            n: Extent { extent: shape.n, strides: [0, right_cols, out_cols, beside_cols] },
            summed,
            k: Extent { extent: terms, strides: [left_cols, right_rows, 0, 0] },
        };
        let matrix = |view: View| view.matrix([0; 2], [0; MAX_BATCH], [0; MAX_BATCH]);
        axes.product(alpha, [left, right, out].map(matrix), epilogue.map(matrix))
    }
}

fn batch_axes(shape: &Shape, views: &[Option<View>; TENSORS]) -> impl Iterator<Item = Extent> {
    shape.batch.iter().enumerate().map(move |(index, &extent)| {
        let stride = |view: Option<View>| view.map_or(0, |view| view.batch_stride(shape, index));
        Extent { extent, strides: views.map(stride) }
    })
}

fn extents(axes: &[Extent]) -> Extents {
    axes.iter().map(|axis| axis.extent).collect()
}

fn batch_strides(axes: &[Extent], tensor: usize) -> [u64; MAX_BATCH] {
    let mut strides = [0; MAX_BATCH];
    for (stride, axis) in strides.iter_mut().zip(axes) {
        *stride = axis.strides[tensor];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::{GemmBackwardDescriptor, GemmDescriptor, GemmFactor};

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    fn strided(dims: &[u64], strides: &[u64]) -> TensorDesc {
        TensorDesc::strided(DType::F32, dims, strides).unwrap()
    }

    fn product(a: impl Into<GemmFactor>, b: impl Into<GemmFactor>) -> Product {
        GemmDescriptor::new(a, b).unwrap().product()
    }

    fn gradients(a: impl Into<GemmFactor>, b: impl Into<GemmFactor>) -> [Product; 2] {
        let backward = GemmBackwardDescriptor::new(a, b, &["a", "b", "bias"]).unwrap().geometry();
        [backward.da.unwrap(), backward.db.unwrap()]
    }

    /// Extents of the product, of its batch and of what is summed besides k.
    fn extents(product: &Product) -> ([u64; 3], Vec<u64>, Vec<u64>) {
        ([product.m, product.n, product.k], product.batch.to_vec(), product.summed.to_vec())
    }

    fn strides(matrix: &Matrix) -> [u64; 2] {
        [matrix.rows, matrix.cols]
    }

    #[test]
    fn transposes_and_column_major_layouts_are_strides() {
        let plain = product(dense(&[5, 7]), dense(&[7, 3]));
        assert_eq!((strides(&plain.left), strides(&plain.right), strides(&plain.out)), ([7, 1], [3, 1], [3, 1]));
        let transposed = product(GemmFactor::transposed(dense(&[7, 5])), GemmFactor::transposed(dense(&[3, 7])));
        assert_eq!((strides(&transposed.left), strides(&transposed.right)), ([1, 5], [1, 7]));
        let laid = product(strided(&[5, 7], &[1, 5]), strided(&[7, 3], &[1, 7]));
        assert_eq!(laid, transposed);
        assert_eq!(extents(&laid), ([5, 3, 7], vec![], vec![]));
    }

    #[test]
    fn a_batch_that_shares_b_becomes_rows() {
        let shared = product(dense(&[2, 3, 5, 7]), dense(&[7, 4]));
        assert_eq!((extents(&shared), strides(&shared.left)), (([30, 4, 7], vec![], vec![]), [7, 1]));
        let repeated = product(dense(&[2, 3, 5, 7]), strided(&[2, 3, 7, 4], &[0, 0, 4, 1]));
        assert_eq!(repeated, shared);
        let ones = product(dense(&[2, 3, 5, 7]), dense(&[1, 1, 7, 4]));
        assert_eq!(ones, shared);
        // Rows that are columns in memory stay apart, a padded batch too.
        let transposed = product(GemmFactor::transposed(dense(&[6, 7, 5])), dense(&[7, 4]));
        assert_eq!((extents(&transposed), transposed.left.batch[0]), (([5, 4, 7], vec![6], vec![]), 35));
        let padded = product(strided(&[6, 5, 7], &[40, 7, 1]), dense(&[7, 4]));
        assert_eq!(extents(&padded), ([5, 4, 7], vec![6], vec![]));
        // One row for each of the batch.
        let decode = product(strided(&[6, 1, 7], &[40, 7, 1]), dense(&[7, 4]));
        assert_eq!((extents(&decode), strides(&decode.left)), (([6, 4, 7], vec![], vec![]), [40, 1]));
    }

    #[test]
    fn batch_extents_join_where_every_operand_lets_them() {
        let batched = product(dense(&[2, 3, 5, 7]), dense(&[2, 3, 7, 4]));
        assert_eq!(extents(&batched), ([5, 4, 7], vec![6], vec![]));
        assert_eq!((batched.left.batch[0], batched.right.batch[0], batched.out.batch[0]), (35, 28, 20));
        // Heads beside positions: [B, S, H, D] seen as [B, H, S, D].
        let heads = dense(&[2, 5, 3, 8]).permute(&[0, 2, 1, 3]).unwrap();
        let scores = product(heads, GemmFactor::transposed(heads));
        assert_eq!((extents(&scores), scores.left.batch), (([5, 5, 8], vec![2, 3], vec![]), [120, 8, 0, 0, 0, 0]));
        assert_eq!((strides(&scores.left), strides(&scores.right)), ([24, 1], [1, 24]));
        // One row of a batched b belongs to its matrix alone.
        assert_eq!(extents(&product(dense(&[6, 1, 7]), dense(&[6, 7, 4]))), ([1, 4, 7], vec![6], vec![]));
    }

    #[test]
    fn gradients_are_products_with_transposed_factors() {
        let [da, db] = gradients(dense(&[5, 7]), dense(&[7, 3]));
        assert_eq!((extents(&da), extents(&db)), (([5, 7, 3], vec![], vec![]), ([7, 3, 5], vec![], vec![])));
        assert_eq!((strides(&da.left), strides(&da.right), strides(&da.out)), ([3, 1], [1, 3], [7, 1]));
        assert_eq!((strides(&db.left), strides(&db.right), strides(&db.out)), ([1, 7], [3, 1], [3, 1]));
        let [da, db] = gradients(GemmFactor::transposed(dense(&[7, 5])), GemmFactor::transposed(dense(&[3, 7])));
        assert_eq!((extents(&da), extents(&db)), (([5, 7, 3], vec![], vec![]), ([7, 3, 5], vec![], vec![])));
        assert_eq!((strides(&da.right), strides(&da.out)), ([7, 1], [1, 5]));
        assert_eq!((strides(&db.left), strides(&db.out)), ([5, 1], [1, 7]));
    }

    #[test]
    fn the_gradient_of_a_shared_factor_sums_over_the_batch() {
        for b in [dense(&[7, 4]), dense(&[1, 1, 7, 4]), strided(&[2, 3, 7, 4], &[0, 0, 4, 1])] {
            let [da, db] = gradients(dense(&[2, 3, 5, 7]), b);
            assert_eq!(extents(&da), ([30, 7, 4], vec![], vec![]));
            assert_eq!((extents(&db), strides(&db.left)), (([7, 4, 30], vec![], vec![]), [1, 7]));
        }
        let [_, db] = gradients(GemmFactor::transposed(dense(&[6, 7, 5])), dense(&[7, 4]));
        assert_eq!((extents(&db), db.left.summed[0], db.right.summed[0]), (([7, 4, 5], vec![], vec![6]), 35, 20));
        let [_, db] = gradients(dense(&[6, 5, 7]), dense(&[6, 7, 4]));
        assert_eq!((extents(&db), db.out.batch[0]), (([7, 4, 5], vec![6], vec![]), 28));
    }

    #[test]
    fn extents_that_one_factor_lacks_are_summed_over_in_its_gradient() {
        // Heads that share keys in groups become rows.
        let grouped = (dense(&[2, 3, 4, 5, 7]), dense(&[2, 3, 1, 7, 6]));
        assert_eq!(extents(&product(grouped.0, grouped.1)), ([20, 6, 7], vec![6], vec![]));
        let [da, db] = gradients(grouped.0, grouped.1);
        assert_eq!((extents(&da), extents(&db)), (([20, 7, 6], vec![6], vec![]), ([7, 6, 20], vec![6], vec![])));
        // One a for each b.
        let forward = product(dense(&[5, 7]), dense(&[3, 7, 6]));
        assert_eq!((extents(&forward), forward.left.batch[0]), (([5, 6, 7], vec![3], vec![]), 0));
        let [da, db] = gradients(dense(&[5, 7]), dense(&[3, 7, 6]));
        assert_eq!((extents(&da), extents(&db)), (([5, 7, 6], vec![], vec![3]), ([7, 6, 5], vec![3], vec![])));
        // Each has an extent that the other lacks.
        let [da, db] = gradients(dense(&[3, 1, 5, 7]), strided(&[3, 2, 7, 6], &[0, 42, 6, 1]));
        assert_eq!((extents(&da), extents(&db)), (([5, 7, 6], vec![3], vec![2]), ([7, 6, 5], vec![2], vec![3])));
        assert_eq!((da.left.summed[0], da.right.summed[0], db.left.summed[0], db.right.summed[0]), (30, 42, 35, 60));
        // One row for each of an extent outside of that which b has.
        let decode = product(dense(&[6, 3, 1, 7]), dense(&[3, 7, 4]));
        assert_eq!((extents(&decode), strides(&decode.left)), (([6, 4, 7], vec![3], vec![]), [21, 1]));
    }

    #[test]
    fn sums_without_terms_read_nothing() {
        let none = GemmDescriptor::new(dense(&[2, 5, 7]), dense(&[7, 4])).unwrap().alpha(0.0).unwrap();
        assert_eq!(none.product().terms(), 0);
        let backward = none.activation(Activation::Silu).unwrap().backward_all().unwrap().geometry();
        let [da, db] = [backward.da, backward.db].map(Option::unwrap);
        assert_eq!((da.terms(), db.terms(), backward.dpre, backward.dpre_bytes), (0, 0, None, 0));
        let [_, db] = gradients(dense(&[1 << 40, 0, 7]), dense(&[7, 4]));
        assert_eq!((db.terms(), db.summed.count()), (0, 1));
    }

    #[test]
    fn parts_of_backward_cover_dpre_and_add_to_what_earlier_parts_wrote() {
        let forward = GemmDescriptor::new(dense(&[2, 1, 5, 7]), dense(&[3, 7, 4])).unwrap();
        let forward = forward.bias(DType::F32).and_then(|d| d.activation(Activation::Silu)).unwrap();
        let backward = forward.backward_all().and_then(|d| d.da(DType::F32, 0.5)).unwrap().tensors();
        let (mut of_da, mut of_db, mut of_dbias) = (Vec::new(), Vec::new(), Vec::new());
        let mut largest = 0;
        backward.for_each_part(8, |part, starts| {
            largest = largest.max(part.dpre_bytes / 4);
            // Where dout, da, db and dbias begin, at their positions.
            if let Some(da) = &part.da {
                of_da.push((starts[5], starts[6], da.epilogue.beta));
            }
            if let Some(db) = &part.db {
                of_db.push((starts[5], starts[7], db.epilogue.beta));
            }
            if let Some(dbias) = &part.dbias {
                of_dbias.push((starts[5], starts[8], dbias.beta));
            }
        });
        assert_eq!(largest, 8);
        // A row of a meets 12 elements of dpre: a part has those of two matrices of b.
        assert_eq!(of_da.len(), 2 * 2 * 5);
        assert_eq!(of_da[..3], [(0, 0, 0.5), (4, 7, 0.5), (8, 14, 0.5)]);
        assert!(of_da.contains(&(40, 0, 1.0)) && !of_da.contains(&(40, 0, 0.5)));
        // A column of b meets 10 elements: a part has 5, those of one matrix of a.
        assert_eq!(of_db[..3], [(0, 0, 0.0), (1, 1, 0.0), (2, 2, 0.0)]);
        assert!(of_db.contains(&(60, 0, 1.0)) && !of_db.contains(&(60, 0, 0.0)));
        assert_eq!((of_dbias.first(), of_dbias.last()), (Some(&(0, 0, 0.0)), Some(&(103, 3, 1.0))));
    }

    #[test]
    fn dpre_is_made_where_dout_does_not_do() {
        let forward = |dtype, activation| {
            let desc = |dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
            let forward = GemmDescriptor::new(desc(&[5, 7]), desc(&[7, 3])).unwrap().activation(activation).unwrap();
            forward.bias(dtype).unwrap()
        };
        let geometry = |forward: GemmDescriptor, wanted: &[&str]| forward.backward(wanted).unwrap().geometry();
        let (factors, every) = (&["a", "b"], &["a", "b", "bias"]);
        let plain = geometry(forward(DType::BF16, Activation::Identity), factors);
        assert_eq!((plain.dpre, plain.dpre_bytes, plain.da.unwrap().left.place), (None, 0, MatrixPlace::Operand(5)));
        let summed = geometry(forward(DType::BF16, Activation::Identity), every);
        assert!(matches!(summed.dpre, Some(Dpre::Elementwise(DprePass { dpre: None, saved: None, .. }))));
        // The factors of a product have one type.
        let wide = geometry(forward(DType::BF16, Activation::Identity).out(DType::F32).unwrap(), factors);
        assert_eq!((wide.dpre_bytes, wide.db.unwrap().right.place), (30, MatrixPlace::Dpre));
        let saved = geometry(forward(DType::F32, Activation::Silu).pre(DType::F32).unwrap(), every);
        assert!(matches!(
            saved.dpre,
            Some(Dpre::Elementwise(DprePass { dpre: Some(_), saved: Some(_), from_out: false, .. }))
        ));
        let relu = geometry(forward(DType::F32, Activation::Relu), &["bias"]);
        assert!(matches!(relu.dpre, Some(Dpre::Elementwise(DprePass { dpre: None, from_out: true, .. }))));
        let again = geometry(forward(DType::F32, Activation::Silu), &["a"]);
        let Some(Dpre::Recomputed(product)) = again.dpre else { panic!("{again:?}") };
        assert!(product.epilogue.is_derivative() && product.epilogue.bias.is_some());
        assert_eq!((product.out.place, again.dpre_bytes), (MatrixPlace::Dpre, 60));
    }
}
