//! candle-nn's `rotary_emb`, whose fused ops have no gradient: here they are programs of baracuda-ops, and so are their gradients.
//!
//! Each pair `(a, b)` of the last extent is turned by an angle: `(a cos - b sin, a sin + b cos)`. Pairs are the two halves of the extent, or in `rope_i`
//! neighbours. `cos` and `sin` are `[positions, pairs]`, or `[batch, positions, pairs]`, of x's type or f32 beside 16 bits; they have no gradients, and one
//! that needs one is refused. Layouts may be any.

use baracuda_ops::{AnyDescriptor, Function, PointwiseDescriptor, Program, TensorDesc};
#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::backend::BackendStorage;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor};

pub use candle_nn::rotary_emb::*;

use crate::error::refused;
#[cfg(feature = "cuda")]
use crate::storage::on_cuda;
use crate::storage::{self, Input, Source, on_cpu};

/// Of `[batch, heads, positions, extent]`, pairs in halves.
///
/// # Errors
/// Shapes that do not fit; a `cos` or `sin` that needs a gradient; what baracuda-ops refuses.
pub fn rope(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    turned("rope", xs, [cos, sin], 2, false)
}

/// Of `[batch, heads, positions, extent]`, pairs of neighbours.
///
/// # Errors
/// As [`rope`].
pub fn rope_i(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    turned("rope_i", xs, [cos, sin], 2, true)
}

/// Of `[batch, positions, heads, extent]`, pairs in halves.
///
/// # Errors
/// As [`rope`].
pub fn rope_thd(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    turned("rope_thd", xs, [cos, sin], 1, false)
}

/// `positions`: the axis of x that they are.
fn turned(
    op: &'static str,
    xs: &Tensor,
    [cos, sin]: [&Tensor; 2],
    positions: usize,
    is_interleaved: bool,
) -> Result<Tensor> {
    let dims = xs.dims4().map(|(a, b, c, d)| [a, b, c, d])?;
    let (batch, length, extent) = (dims[0], dims[positions], dims[3]);
    let mut angles = Vec::new();
    for (name, angle) in [("cos", cos), ("sin", sin)] {
        let fits = match *angle.dims() {
            [known, pairs] => known >= length && pairs * 2 == extent,
            [own, known, pairs] => own == batch && known >= length && pairs * 2 == extent,
            _ => false,
        };
        if !fits {
            let (of_x, of_angle) = (xs.shape(), angle.shape());
            candle_core::bail!(
                "baracuda-candle {op}: {name} must be [{length} or more, {extent} / 2], or with the batch in front, for x {of_x:?}; got {of_angle:?}"
            );
        }
        if angle.track_op() {
            candle_core::bail!("baracuda-candle {op}: has no gradient of {name}, which needs one: detach it");
        }
        if !angle.device().same_device(xs.device()) {
            let [lhs, rhs] = [xs, angle].map(|tensor| tensor.device().location());
            return Err(candle_core::Error::DeviceMismatchBinaryOp { lhs, rhs, op }.bt());
        }
        // [batch or 1, positions, pairs], with an extent of 1 for the heads.
        let angle = angle.narrow(angle.rank() - 2, 0, length)?;
        let angle = if angle.rank() == 2 { angle.unsqueeze(0)? } else { angle };
        angles.push(angle.unsqueeze(3 - positions)?);
    }
    let [cos, sin] = <[Tensor; 2]>::try_from(angles).map_err(|_| candle_core::Error::msg("there are two"))?;
    xs.apply_op1(Turn { op, cos, sin, is_interleaved, is_back: false })
}

/// The rotation of pairs, by the angles or back.
#[derive(Clone)]
struct Turn {
    op: &'static str,
    /// With the rank of x.
    cos: Tensor,
    sin: Tensor,
    is_interleaved: bool,
    is_back: bool,
}

impl Turn {
    /// Of `a`, `b`, `cos` and `sin`, of which the first two are repeated along the axis of the pair: `a cos - b sin` at 0, `a sin + b cos` at 1.
    fn program(&self, axis: usize) -> baracuda_ops::Result<Program> {
        let mut builder = Program::builder();
        let [a, b, cos, sin] = ["a", "b", "cos", "sin"].map(|name| builder.input(name));
        let place = builder.index(axis);
        let is_second = builder.call(Function::Gt, [place, 0.5.into()]);
        let sin = if self.is_back { builder.call(Function::Neg, [sin]) } else { sin };
        let own = builder.call(Function::Where, [is_second, b, a]);
        let other = builder.call(Function::Where, [is_second, a, b]);
        let sign = builder.call(Function::Neg, [sin]);
        let sin = builder.call(Function::Where, [is_second, sin, sign]);
        let [own, other] = [[own, cos], [other, sin]].map(|factors| builder.call(Function::Mul, factors));
        let y = builder.call(Function::Add, [own, other]);
        builder.finish([y])
    }

    fn run(&self, x: Source<'_>, of: candle_core::DType, layout: &Layout) -> Result<Storage> {
        let Self { op, is_interleaved, .. } = *self;
        let (dims, strides) = (layout.dims(), layout.stride());
        let (pairs, step) = (dims[3] / 2, strides[3]);
        // The last extent as that of the pair and that of pairs, in the order in which they lie.
        let (pair, second) = if is_interleaved { (4, step) } else { (3, pairs * step) };
        let views = [0, second].map(|offset| {
            let [outer_dims, outer_strides] = [&dims[..3], &strides[..3]].map(|list| list.to_vec());
            let (mut dims, mut strides) = (outer_dims, outer_strides);
            let along = if is_interleaved { [(pairs, 2 * step), (2, 0)] } else { [(2, 0), (pairs, step)] };
            for (dim, stride) in along {
                dims.push(dim);
                strides.push(stride);
            }
            Layout::new(Shape::from(dims), strides, layout.start_offset() + offset)
        });
        let mut descs: Vec<TensorDesc> = Vec::new();
        for view in &views {
            descs.push(storage::describe(op, of, view)?);
        }
        let angles = [&self.cos, &self.sin].map(Tensor::storage_and_layout);
        for ((_, layout), tensor) in angles.iter().zip([&self.cos, &self.sin]) {
            let at = |list: &[usize], of_pair: usize| {
                let mut list = list.to_vec();
                list.insert(pair, of_pair);
                list
            };
            let view = Layout::new(Shape::from(at(layout.dims(), 1)), at(layout.stride(), 0), layout.start_offset());
            descs.push(storage::describe(op, tensor.dtype(), &view)?);
        }
        let dense = TensorDesc::contiguous(descs[0].dtype(), descs[0].dims());
        let turn = self.program(pair).and_then(|program| PointwiseDescriptor::new(program, descs)).and_then(|turn| {
            let y = dense?;
            turn.outputs(vec![y.dtype()])?.layout("out0", y)
        });
        let turn = AnyDescriptor::new(turn.map_err(refused(op))?);
        let mut inputs: Vec<_> =
            views.iter().map(|view| Some(Input { storage: x, offset: view.start_offset() })).collect();
        for (storage, layout) in &angles {
            inputs.push(Some(Input { storage: Source::of(op, storage)?, offset: layout.start_offset() }));
        }
        inputs.push(None);
        let y = storage::run(op, &turn, &inputs)?.into_iter().next();
        y.ok_or_else(|| candle_core::Error::msg(format!("baracuda-candle {op}: has no output")).bt())
    }
}

impl CustomOp1 for Turn {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        on_cpu((self.run(Source::Cpu(x), x.dtype(), layout)?, layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        on_cuda((self.run(Source::Cuda(x), x.dtype(), layout)?, layout.shape().clone()))
    }

    /// The gradient is what arrives, turned back.
    fn bwd(&self, x: &Tensor, _: &Tensor, grad_res: &Tensor) -> Result<Option<Tensor>> {
        if !x.track_op() {
            return Ok(None);
        }
        let (storage, layout) = grad_res.storage_and_layout();
        let back = Self { is_back: true, ..self.clone() };
        let gradient = back.run(Source::of(self.op, &storage)?, grad_res.dtype(), layout)?;
        Ok(Some(Tensor::from_storage(gradient, x.shape(), BackpropOp::none(), false)))
    }
}
