//! How kernels see the op: products of matrices with any strides.
//!
//! A transposed factor and a layout `[1, ld]` are strides, nothing else. Batch extents that lie behind one another in every operand are one
//! extent here; where b is shared they become rows of one larger product, and in the gradient of a shared b the batch extends the sum.

use std::ops::Deref;

use super::backward::{self, BackwardFields};
use super::forward::{self, ForwardFields};
use super::{Saved, Shape, Valid};
use crate::dtype::DType;
use crate::ops::activation::Activation;
use crate::slots::{Slot, Slots};
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
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    fn transposed(&self) -> Self {
        Self { rows: self.cols, cols: self.rows, ..*self }
    }
}

impl Product {
    /// The product whose rows are the columns of this one. A bias is one of its rows.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
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
        Tensors { left, right, out, epilogue, is_summed: false }.product(shape, fields.alpha.get())
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

impl BackwardGeometry {
    pub(super) fn new(valid: &Valid<BackwardFields>) -> Self {
        let (fields, shape, slots) = (&valid.fields, &valid.derived, &valid.slots);
        let (dtype, alpha) = (fields.a.dtype(), fields.alpha.get());
        let [a, b] = factors(shape, &fields.a, &fields.b, [backward::table::A, backward::table::B]);
        let in_workspace = View { place: MatrixPlace::Dpre, desc: shape.output, is_transposed: false };
        let dout = View::of(slots.always(backward::table::DOUT));
        let is_dout = fields.activation.is_identity() && dout.desc.dtype() == dtype;
        let is_stored = !is_dout && (fields.da.is_some() || fields.db.is_some());

        let dpre = if fields.recomputes() {
            let bias = vector(slots, backward::table::BIAS);
            let forward = Epilogue::forward(bias, fields.activation, Some(dout));
            let epilogue = Epilogue { formula: Formula::Derivative, ..forward };
            let tensors = Tensors { left: a, right: b, out: in_workspace, epilogue, is_summed: false };
            Some(Dpre::Recomputed(tensors.product(shape, alpha)))
        } else if is_stored || fields.dbias.is_some() {
            let saved = View::operand(
                slots,
                if fields.saved == Saved::Out { backward::table::OUT } else { backward::table::PRE },
            );
            Some(Dpre::Elementwise(pass(shape, fields, dout, saved, is_stored.then_some(in_workspace))))
        } else {
            None
        };
        let dpre_bytes = if fields.recomputes() || is_stored { in_workspace.desc.span_bytes() } else { 0 };

        // op(A) is [M, K], op(B) is [K, N] and dpre is [M, N]: the gradients are dpre op(B)^T and op(A)^T dpre.
        let dpre_view = if is_dout { dout } else { in_workspace };
        let da = fields.da.zip(View::operand(slots, backward::table::DA)).map(|(gradient, da)| {
            let of = Shape { n: shape.k, k: shape.n, ..*shape };
            let out = da.transposed_if(shape.transpose_a);
            let epilogue = Epilogue::gradient(gradient.beta.get());
            Tensors { left: dpre_view, right: b.transposed_if(true), out, epilogue, is_summed: false }
                .product(&of, alpha)
        });
        let db = fields.db.zip(View::operand(slots, backward::table::DB)).map(|(gradient, db)| {
            let of = Shape { m: shape.k, k: shape.m, ..*shape };
            let out = db.transposed_if(shape.transpose_b);
            let epilogue = Epilogue::gradient(gradient.beta.get());
            let is_summed = shape.is_shared;
            Tensors { left: a.transposed_if(true), right: dpre_view, out, epilogue, is_summed }.product(&of, alpha)
        });
        let dbias = fields.dbias.zip(vector(slots, backward::table::DBIAS));
        let dbias = dbias.map(|(gradient, sums)| ColumnSums { n: shape.n, sums, beta: gradient.beta.get() });
        Self { dpre, dpre_bytes, da, db, dbias }
    }
}

/// A tensor `[batch.., rows, cols]`, as a descriptor has it.
#[derive(Clone, Copy)]
struct View {
    place: MatrixPlace,
    desc: TensorDesc,
    is_transposed: bool,
}

impl View {
    fn of(slot: &Slot) -> Self {
        Self { place: MatrixPlace::Operand(slot.index), desc: slot.desc, is_transposed: false }
    }

    fn operand(slots: &Slots, position: usize) -> Option<Self> {
        slots.at(position).map(Self::of)
    }

    fn transposed_if(self, transposed: bool) -> Self {
        Self { is_transposed: self.is_transposed != transposed, ..self }
    }

    /// Strides of the row and the column index.
    fn strides(&self) -> [u64; 2] {
        let strides = self.desc.strides();
        let [rows, cols] = [strides[strides.len() - 2], strides[strides.len() - 1]];
        if self.is_transposed { [cols, rows] } else { [rows, cols] }
    }

    /// Stride of a batch extent of the op; 0 where the tensor has none, or an extent of 1 in its place.
    fn batch_stride(&self, axis: usize, extent: u64) -> u64 {
        let is_own = axis + 2 < self.desc.rank() && self.desc.dims()[axis] == extent;
        if is_own { self.desc.strides()[axis] } else { 0 }
    }

    fn matrix(&self, [rows, cols]: [u64; 2], batch: [u64; MAX_BATCH], summed: [u64; MAX_BATCH]) -> Matrix {
        let align_bytes = match self.place {
            MatrixPlace::Operand(_) => self.desc.align_bytes(),
            MatrixPlace::Dpre => DEFAULT_ALIGN_BYTES,
        };
        Matrix { place: self.place, dtype: self.desc.dtype(), align_bytes, rows, cols, batch, summed }
    }
}

fn vector(slots: &Slots, position: usize) -> Option<Vector> {
    let desc = slots.at(position)?.desc;
    let stride = desc.strides().first().copied().unwrap_or(1);
    Some(Vector { position, dtype: desc.dtype(), align_bytes: desc.align_bytes(), stride, group: 0 })
}

/// op(A) and op(B).
fn factors(shape: &Shape, a: &TensorDesc, b: &TensorDesc, positions: [usize; 2]) -> [View; 2] {
    let view = |desc: &TensorDesc, position, is_transposed| View {
        place: MatrixPlace::Operand(position),
        desc: *desc,
        is_transposed,
    };
    [view(a, positions[0], shape.transpose_a), view(b, positions[1], shape.transpose_b)]
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

/// Moves the innermost extents of `outer` into `inner` while they fit and `is_whole` holds of the result.
fn absorb(outer: &mut Vec<Extent>, mut inner: Extent, is_whole: impl Fn(&Extent) -> bool) -> Extent {
    while let Some(both) = outer.last().and_then(|&axis| Extent::merged(axis, inner)).filter(&is_whole) {
        inner = both;
        outer.pop();
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
    /// Whether the batch is summed over, rather than a batch of the output.
    is_summed: bool,
}

impl Tensors {
    /// Their product; `shape` has the batch of the op, and m, n and k of this product.
    fn product(self, shape: &Shape, alpha: f64) -> Product {
        let Self { left, right, out, epilogue, is_summed } = self;
        let batch: Vec<Extent> = batch_axes(shape, &[Some(left), Some(right), Some(out), epilogue.beside]).collect();
        let (batch, summed) = if is_summed { (Vec::new(), batch) } else { (batch, Vec::new()) };
        let [left_rows, left_cols] = left.strides();
        let [right_rows, right_cols] = right.strides();
        let [out_rows, out_cols] = out.strides();
        let [beside_rows, beside_cols] = epilogue.beside.map_or([0; 2], |view| view.strides());
        let axes = Axes {
            batch,
            m: Extent { extent: shape.m, strides: [left_rows, 0, out_rows, beside_rows] },
            n: Extent { extent: shape.n, strides: [0, right_cols, out_cols, beside_cols] },
            summed,
            k: Extent { extent: shape.k, strides: [left_cols, right_rows, 0, 0] },
        };
        let matrix = |view: View| view.matrix([0; 2], [0; MAX_BATCH], [0; MAX_BATCH]);
        axes.product(alpha, [left, right, out].map(matrix), epilogue.map(matrix))
    }
}

/// The pass that makes dpre of dout and what was saved.
fn pass(shape: &Shape, fields: &BackwardFields, dout: View, saved: Option<View>, dpre: Option<View>) -> DprePass {
    let views = [Some(dout), saved, dpre, None];
    let mut batch = join(batch_axes(shape, &views));
    let strides = |axis: usize| views.map(|view| view.map_or(0, |view| view.strides()[axis]));
    let m = absorb(&mut batch, Extent { extent: shape.m, strides: strides(0) }, |_| true);
    let n = Extent { extent: shape.n, strides: strides(1) };
    let matrix = |view: View, tensor: usize| {
        view.matrix([m.strides[tensor], n.strides[tensor]], batch_strides(&batch, tensor), [0; MAX_BATCH])
    };
    DprePass {
        m: m.extent,
        n: n.extent,
        batch: extents(&batch),
        activation: fields.activation,
        dout: matrix(dout, 0),
        saved: saved.map(|view| matrix(view, 1)),
        from_out: fields.saved == Saved::Out,
        dpre: dpre.map(|view| matrix(view, 2)),
    }
}

fn batch_axes(shape: &Shape, views: &[Option<View>; TENSORS]) -> impl Iterator<Item = Extent> {
    shape.batch.iter().enumerate().map(move |(index, &extent)| {
        let stride = |view: Option<View>| view.map_or(0, |view| view.batch_stride(index, extent));
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
