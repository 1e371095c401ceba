//! Activations of one long tensor.

use baracuda_ops::{Activation, ActivationDescriptor, AnyDescriptor, DType, Result, TensorDesc};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [(&str, Activation); 6] = [
    ("activation_relu", Activation::Relu),
    ("activation_gelu_erf", Activation::GeluErf),
    ("activation_gelu_tanh", Activation::GeluTanh),
    ("activation_silu", Activation::Silu),
    ("activation_sigmoid", Activation::Sigmoid),
    ("activation_tanh", Activation::Tanh),
];

const SHAPES: [[u64; 2]; 2] = [[16384, 4096], [8192, 3072]];

/// The cells of one label; `is_quick` keeps the first shape.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str, activation: Activation, is_quick: bool) -> Result<()> {
    for shape in SHAPES.into_iter().take(if is_quick { 1 } else { 2 }) {
        for dtype in [DType::BF16, DType::F32] {
            let x = TensorDesc::contiguous(dtype, &shape)?;
            let forward = ActivationDescriptor::new(x, activation)?;
            let backward = AnyDescriptor::new(forward.backward()?);
            let in_bytes = x.span_bytes();
            for (pass, descriptor, bytes) in
                [("fw", AnyDescriptor::new(forward), 2 * in_bytes), ("bw", backward, 3 * in_bytes)]
            {
                cells.push(Cell::new((op, pass), shape.to_vec(), dtype, descriptor, bytes, in_bytes));
            }
        }
    }
    Ok(())
}
