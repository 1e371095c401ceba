//! Attention: the graphs of products, pointwise functions and reductions that the library knows as attention, forward and backward, for its engines that
//! keep no scores.
//!
//! The library tells such a graph by its operations and their order: forward has to scale scores and to state the logarithm of the sum of exponentials,
//! also where nothing reads it. Keys, and backward values, are stated as what a product has on its right, with their last two extents exchanged.
//!
//! Backward adds up the gradient of q over blocks of keys, by one of two graphs. Where that gradient is what a product writes, an engine keeps the gradients
//! of all scores in the workspace, and every run computes the same bits. Where the product writes sums in f32, which are then rounded, blocks of keys add
//! to them in any order. No note of an engine tells the two apart.
//!
//! Source: as [`super`], "Attention" in the documentation of the cuDNN graph API, and NVIDIA/cudnn-frontend 1.23 for which graphs these are.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{
    Child, Descriptor, Failure, Functions, GRAPH_HANDLE, GRAPH_OPERATIONS, Graph, MAX_RANK, Number, OPERATION_GRAPH,
    POINTWISE, POINTWISE_ADD, POINTWISE_MATH_PRECISION, POINTWISE_MODE, POINTWISE_OPERATION, POINTWISE_OPERATION_B,
    POINTWISE_OPERATION_DESC, POINTWISE_OPERATION_X, POINTWISE_OPERATION_Y, Pointer, PointwiseMode, Problem, Tensor,
    Tensors, Traits, data_type, tensor,
};
use crate::dtype::DType;
use crate::narrow::signed;

// Numbers of cudnn_graph.h. Descriptors:
const MATMUL: c_int = 18;
const MATMUL_OPERATION: c_int = 19;
const REDUCTION: c_int = 21;
const REDUCTION_OPERATION: c_int = 22;
const RESHAPE_OPERATION: c_int = 31;
// Attributes:
const POINTWISE_AXIS: c_int = 9;
const POINTWISE_OPERATION_T: c_int = 758;
const MATMUL_COMPUTE_TYPE: c_int = 1500;
const MATMUL_OPERATION_A: c_int = 1520;
const MATMUL_OPERATION_B: c_int = 1521;
const MATMUL_OPERATION_C: c_int = 1522;
const MATMUL_OPERATION_DESC: c_int = 1523;
const REDUCTION_OPERATOR: c_int = 1600;
const REDUCTION_COMPUTE_TYPE: c_int = 1601;
const REDUCTION_OPERATION_X: c_int = 1610;
const REDUCTION_OPERATION_Y: c_int = 1611;
const REDUCTION_OPERATION_DESC: c_int = 1612;
const RESHAPE_OPERATION_X: c_int = 2200;
const RESHAPE_OPERATION_Y: c_int = 2201;
// Values:
const POINTWISE_MUL: PointwiseMode = Number(1);
const POINTWISE_DIV: PointwiseMode = Number(6);
const POINTWISE_SUB: PointwiseMode = Number(9);
const POINTWISE_EXP: PointwiseMode = Number(13);
const POINTWISE_LOG: PointwiseMode = Number(15);
const POINTWISE_IDENTITY: PointwiseMode = Number(21);
const POINTWISE_CMP_GE: PointwiseMode = Number(303);
const POINTWISE_GEN_INDEX: PointwiseMode = Number(501);
const POINTWISE_SELECT: PointwiseMode = Number(601);
const REDUCE_ADD: Number<18> = Number(0);
const REDUCE_MAX: Number<18> = Number(3);

/// The extents that a tensor of attention has.
const RANK: usize = 4;
/// The axes of scores that count queries and keys.
const QUERIES: usize = 2;
const KEYS: usize = 3;

/// Which keys after its own position a query does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Causal {
    /// The first query is at the first key.
    TopLeft,
    /// The last query is at the last key.
    BottomRight,
}

/// The tensors of a backward beside those of its forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gradients {
    /// It lies as y.
    pub(crate) dy: Tensor,
    pub(crate) dq: Tensor,
    pub(crate) dk: Tensor,
    pub(crate) dv: Tensor,
}

/// Attention or, with gradients, its backward. Every tensor has its last extent dense.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionProblem {
    /// `[B, Hq, Sq, D]`.
    pub(crate) q: Tensor,
    /// `[B, Hk, Sk, D]`, where Hk divides Hq.
    pub(crate) k: Tensor,
    /// `[B, Hk, Sk, Dv]`.
    pub(crate) v: Tensor,
    /// `[B, Hq, Sq, Dv]`.
    pub(crate) y: Tensor,
    /// Whether forward writes the logarithms of sums of exponentials, f32 `[B, Hq, Sq]`, densely. Backward reads them.
    pub(crate) has_lse: bool,
    pub(crate) causal: Option<Causal>,
    /// Greater than 0.
    pub(crate) scale: f32,
    pub(crate) gradients: Option<Gradients>,
    /// Whether every run must compute the same bits.
    pub(crate) is_reproducible: bool,
    pub(crate) workspace_bytes: u64,
}

impl Problem for AttentionProblem {
    fn name(&self) -> &'static str {
        if self.gradients.is_some() { "gradients of attention" } else { "attention" }
    }

    /// The operands are q, k, v, y, where it is written or read the lse, and of backward dy, dq, dk and dv.
    fn graph(&self, functions: &Arc<Functions>, handle: *mut c_void) -> Result<Graph, Failure> {
        let mut builder = Builder::new(functions);
        match &self.gradients {
            None => self.forward(&mut builder)?,
            Some(gradients) => self.backward(gradients, &mut builder)?,
        }
        builder.finish(handle)
    }

    fn admits(&self, engine: &Traits, _: u32, _: usize) -> bool {
        engine.is_exact(true, self.is_reproducible)
    }

    fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }
}

impl AttentionProblem {
    /// A number of each query and key, without memory.
    fn scores(&self, dtype: DType) -> Tensor {
        let [samples, heads, queries, ..] = self.q.dims;
        dense(dtype, [samples, heads, queries, self.k.dims[QUERIES]])
    }

    /// A number of each query.
    fn rows(&self) -> Tensor {
        let [samples, heads, queries, ..] = self.q.dims;
        dense(DType::F32, [samples, heads, queries, 1])
    }

    fn forward(&self, it: &mut Builder<'_>) -> Result<(), Failure> {
        let q = it.operand(&self.q)?;
        let k = it.operand(&turned(&self.k))?;
        let v = it.operand(&self.v)?;
        let y = it.operand(&self.y)?;
        let lse = if self.has_lse { it.operand(&self.rows())? } else { it.between(&self.rows())? };
        let of_scores = self.scores(DType::F32);
        let [product, scores, less, exp] = it.several(&of_scores)?;
        let [max, sum, log] = it.several(&self.rows())?;
        let weights = it.between(&self.scores(self.q.dtype))?;
        let scale = it.single(self.scale)?;
        it.product(q, k, product)?;
        it.pointwise(POINTWISE_MUL, [product, scale], scores)?;
        let seen = self.hide(it, scores)?;
        it.reduce(REDUCE_MAX, seen, max)?;
        it.pointwise(POINTWISE_SUB, [seen, max], less)?;
        it.pointwise(POINTWISE_EXP, [less], exp)?;
        it.reduce(REDUCE_ADD, exp, sum)?;
        it.pointwise(POINTWISE_LOG, [sum], log)?;
        it.pointwise(POINTWISE_ADD, [max, log], lse)?;
        it.pointwise(POINTWISE_DIV, [exp, sum], weights)?;
        it.product(weights, v, y)
    }

    fn backward(&self, gradients: &Gradients, it: &mut Builder<'_>) -> Result<(), Failure> {
        let dtype = self.q.dtype;
        let q = it.operand(&self.q)?;
        let k = it.operand(&turned(&self.k))?;
        let v = it.operand(&turned(&self.v))?;
        let y = it.operand(&self.y)?;
        let lse = it.operand(&self.rows())?;
        let [dy, dq, dk, dv] = [gradients.dy, gradients.dq, gradients.dk, gradients.dv].map(|is| it.operand(&is));
        let (dy, dq, dk, dv) = (dy?, dq?, dk?, dv?);
        let delta = it.scratch(&self.rows())?;
        let of_scores = self.scores(DType::F32);
        let (scale, one) = (it.single(self.scale)?, it.single(1.0)?);

        // 1. The sum of dy and y of each query.
        let products = it.between(&dense(DType::F32, first_four(&self.y.dims)))?;
        let sums = it.between(&self.rows())?;
        it.pointwise(POINTWISE_MUL, [dy, y], products)?;
        it.reduce(REDUCE_ADD, products, sums)?;
        it.pointwise(POINTWISE_MUL, [sums, one], delta)?;

        // 2. The weights, and the gradient of v.
        let [product, scores, less, weights] = it.several(&of_scores)?;
        it.product(q, k, product)?;
        it.pointwise(POINTWISE_MUL, [product, scale], scores)?;
        it.pointwise(POINTWISE_SUB, [scores, lse], less)?;
        let seen = self.hide(it, less)?;
        it.pointwise(POINTWISE_EXP, [seen], weights)?;
        let rounded = it.between(&turned(&self.scores(dtype)))?;
        it.reshape(weights, rounded)?;
        it.product(rounded, dy, dv)?;

        // 3. The gradients of scores, and that of k.
        let [of_weights, above, of_seen, of_product] = it.several(&of_scores)?;
        it.product(dy, v, of_weights)?;
        it.pointwise(POINTWISE_SUB, [of_weights, delta], above)?;
        it.pointwise(POINTWISE_MUL, [above, weights], of_seen)?;
        it.pointwise(POINTWISE_MUL, [of_seen, scale], of_product)?;
        let rounded = it.between(&turned(&self.scores(dtype)))?;
        it.reshape(of_product, rounded)?;
        it.product(rounded, q, dk)?;

        // 4. That of q.
        let keys = it.between(&self.k)?;
        it.reshape(k, keys)?;
        if self.is_reproducible {
            return it.product(of_product, keys, dq);
        }
        let sums = it.scratch(&dense(DType::F32, first_four(&self.q.dims)))?;
        it.product(of_product, keys, sums)?;
        it.pointwise(POINTWISE_IDENTITY, [sums], dq)
    }

    /// Numbers of queries and keys with -infinity where the query does not see the key.
    fn hide(&self, it: &mut Builder<'_>, scores: Node) -> Result<Node, Failure> {
        let Some(causal) = self.causal else { return Ok(scores) };
        let counts = Tensor { dtype: DType::I32, ..scores.tensor };
        let [mut row, column] = it.several(&counts)?;
        it.index(QUERIES, scores, row)?;
        it.index(KEYS, scores, column)?;
        if causal == Causal::BottomRight {
            for (mode, count) in [(POINTWISE_ADD, self.k.dims[QUERIES]), (POINTWISE_SUB, self.q.dims[QUERIES])] {
                let moved = it.between(&counts)?;
                let count = it.count(count)?;
                it.pointwise_in(DType::I32, mode, [row, count], moved)?;
                row = moved;
            }
        }
        let sees = it.between(&Tensor { dtype: DType::Bool, ..scores.tensor })?;
        let hidden = it.single(f32::NEG_INFINITY)?;
        let seen = it.between(&scores.tensor)?;
        it.pointwise_in(DType::Bool, POINTWISE_CMP_GE, [row, column], sees)?;
        it.pointwise(POINTWISE_SELECT, [scores, hidden, sees], seen)?;
        Ok(seen)
    }
}

/// A tensor without gaps. Numbers that no tensor with memory has count as the greatest.
fn dense(dtype: DType, [samples, heads, rows, columns]: [i64; RANK]) -> Tensor {
    let matrix = rows.saturating_mul(columns);
    Tensor {
        dtype,
        rank: RANK,
        dims: [samples, heads, rows, columns, 1],
        strides: [heads.saturating_mul(matrix), matrix, columns, 1, 1],
        align_bytes: 16,
    }
}

fn first_four(&[samples, heads, rows, columns, _]: &[i64; MAX_RANK]) -> [i64; RANK] {
    [samples, heads, rows, columns]
}

/// The tensor with its last two extents exchanged.
fn turned(tensor: &Tensor) -> Tensor {
    let mut turned = *tensor;
    turned.dims.swap(RANK - 2, RANK - 1);
    turned.strides.swap(RANK - 2, RANK - 1);
    turned
}

/// A tensor of the graph that is made.
#[derive(Clone, Copy)]
struct Node {
    child: Child,
    tensor: Tensor,
}

/// A graph that is made. What it has made lives as long.
struct Builder<'f> {
    functions: &'f Arc<Functions>,
    operations: Vec<Descriptor>,
    parts: Vec<Descriptor>,
    operands: Vec<(i64, u64)>,
    scratch: Vec<(i64, u64)>,
    values: Vec<(i64, u32)>,
    last_id: i64,
}

impl<'f> Builder<'f> {
    fn new(functions: &'f Arc<Functions>) -> Self {
        let (operations, parts) = (Vec::new(), Vec::new());
        Self { functions, operations, parts, operands: vec![], scratch: vec![], values: vec![], last_id: 0 }
    }

    fn tensor(&mut self, is: &Tensor, is_virtual: bool, is_by_value: bool) -> Result<Node, Failure> {
        self.last_id += 1;
        let desc = tensor(self.functions, self.last_id, is, is_virtual, is_by_value)?;
        let node = Node { child: desc.child(), tensor: *is };
        self.parts.push(desc);
        Ok(node)
    }

    /// The next operand of a run.
    fn operand(&mut self, is: &Tensor) -> Result<Node, Failure> {
        let node = self.tensor(is, false, false)?;
        self.operands.push((self.last_id, is.span_bytes()));
        Ok(node)
    }

    /// A tensor in the workspace.
    fn scratch(&mut self, is: &Tensor) -> Result<Node, Failure> {
        let node = self.tensor(is, false, false)?;
        self.scratch.push((self.last_id, is.span_bytes()));
        Ok(node)
    }

    /// What lies between operations and has no memory.
    fn between(&mut self, is: &Tensor) -> Result<Node, Failure> {
        self.tensor(is, true, false)
    }

    fn several<const N: usize>(&mut self, is: &Tensor) -> Result<[Node; N], Failure> {
        let mut nodes = [self.between(is)?; N];
        for node in nodes.iter_mut().skip(1) {
            *node = self.between(is)?;
        }
        Ok(nodes)
    }

    fn value(&mut self, dtype: DType, bits: u32) -> Result<Node, Failure> {
        let node = self.tensor(&dense(dtype, [1; RANK]), false, true)?;
        self.values.push((self.last_id, bits));
        Ok(node)
    }

    fn single(&mut self, value: f32) -> Result<Node, Failure> {
        self.value(DType::F32, value.to_bits())
    }

    /// A number of queries or keys, which 31 bits hold.
    fn count(&mut self, count: i64) -> Result<Node, Failure> {
        self.value(DType::I32, i32::try_from(count).unwrap_or(i32::MAX).cast_unsigned())
    }

    fn operation<const N: usize>(
        &mut self,
        kind: c_int,
        desc: (c_int, Descriptor),
        tensors: [(c_int, Node); N],
    ) -> Result<(), Failure> {
        let operation = Descriptor::new(self.functions, kind)?;
        let (attribute, desc) = desc;
        operation.set(attribute, &[desc.child()])?;
        self.parts.push(desc);
        self.connect(operation, tensors)
    }

    fn connect<const N: usize>(&mut self, operation: Descriptor, tensors: [(c_int, Node); N]) -> Result<(), Failure> {
        for (attribute, node) in tensors {
            operation.set(attribute, &[node.child])?;
        }
        self.operations.push(operation.finalized()?);
        Ok(())
    }

    /// A function of up to three tensors, element by element, in f32.
    fn pointwise<const N: usize>(&mut self, mode: PointwiseMode, of: [Node; N], to: Node) -> Result<(), Failure> {
        self.pointwise_in(DType::F32, mode, of, to)
    }

    fn pointwise_in<const N: usize>(
        &mut self,
        compute: DType,
        mode: PointwiseMode,
        of: [Node; N],
        to: Node,
    ) -> Result<(), Failure> {
        const INPUTS: [c_int; 3] = [POINTWISE_OPERATION_X, POINTWISE_OPERATION_B, POINTWISE_OPERATION_T];
        let function = Descriptor::new(self.functions, POINTWISE)?;
        function.set(POINTWISE_MODE, &[mode])?;
        function.set(POINTWISE_MATH_PRECISION, &[data_type(compute)])?;
        let operation = Descriptor::new(self.functions, POINTWISE_OPERATION)?;
        let function = function.finalized()?;
        operation.set(POINTWISE_OPERATION_DESC, &[function.child()])?;
        self.parts.push(function);
        for (attribute, node) in INPUTS.into_iter().zip(of) {
            operation.set(attribute, &[node.child])?;
        }
        self.connect(operation, [(POINTWISE_OPERATION_Y, to)])
    }

    /// The positions of elements along an axis.
    fn index(&mut self, axis: usize, of: Node, to: Node) -> Result<(), Failure> {
        let function = Descriptor::new(self.functions, POINTWISE)?;
        function.set(POINTWISE_MODE, &[POINTWISE_GEN_INDEX])?;
        function.set(POINTWISE_MATH_PRECISION, &[data_type(DType::F32)])?;
        function.set(POINTWISE_AXIS, &[signed(axis as u64)])?;
        let tensors = [(POINTWISE_OPERATION_X, of), (POINTWISE_OPERATION_Y, to)];
        self.operation(POINTWISE_OPERATION, (POINTWISE_OPERATION_DESC, function.finalized()?), tensors)
    }

    /// The reduction of each row, or of the axes of which `to` has fewer.
    fn reduce(&mut self, operator: Number<18>, of: Node, to: Node) -> Result<(), Failure> {
        let reduction = Descriptor::new(self.functions, REDUCTION)?;
        reduction.set(REDUCTION_COMPUTE_TYPE, &[data_type(DType::F32)])?;
        reduction.set(REDUCTION_OPERATOR, &[operator])?;
        let tensors = [(REDUCTION_OPERATION_X, of), (REDUCTION_OPERATION_Y, to)];
        self.operation(REDUCTION_OPERATION, (REDUCTION_OPERATION_DESC, reduction.finalized()?), tensors)
    }

    /// The product of two matrices for each head, added up in f32.
    fn product(&mut self, a: Node, b: Node, to: Node) -> Result<(), Failure> {
        let product = Descriptor::new(self.functions, MATMUL)?;
        product.set(MATMUL_COMPUTE_TYPE, &[data_type(DType::F32)])?;
        let tensors = [(MATMUL_OPERATION_A, a), (MATMUL_OPERATION_B, b), (MATMUL_OPERATION_C, to)];
        self.operation(MATMUL_OPERATION, (MATMUL_OPERATION_DESC, product.finalized()?), tensors)
    }

    /// The same elements with other extents or strides, rounded to the type of `to`.
    fn reshape(&mut self, of: Node, to: Node) -> Result<(), Failure> {
        let operation = Descriptor::new(self.functions, RESHAPE_OPERATION)?;
        self.connect(operation, [(RESHAPE_OPERATION_X, of), (RESHAPE_OPERATION_Y, to)])
    }

    fn finish(self, handle: *mut c_void) -> Result<Graph, Failure> {
        let Self { functions, operations, mut parts, operands, scratch, values, .. } = self;
        let graph = Descriptor::new(functions, OPERATION_GRAPH)?;
        let children: Vec<Child> = operations.iter().map(Descriptor::child).collect();
        graph.set(GRAPH_HANDLE, &[Pointer::<0>(handle)])?;
        graph.set(GRAPH_OPERATIONS, &children)?;
        let whole = graph.finalized()?;
        parts.extend(operations);
        let mut tensors = Tensors::default();
        for (id, bytes) in operands {
            tensors.ids.push(id);
            tensors.spans.push(bytes);
        }
        for (id, bytes) in scratch {
            tensors.ids.push(id);
            tensors.scratch.push(bytes);
        }
        for (id, bits) in values {
            tensors.ids.push(id);
            tensors.values.push(bits);
        }
        Ok(Graph { whole, tensors, _parts: parts })
    }
}
