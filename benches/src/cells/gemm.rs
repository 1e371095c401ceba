//! Matrix products, with bias and activation and plain.

use baracuda_ops::{Activation, AnyDescriptor, DType, GemmDescriptor, GemmFactor, Math, Result, TensorDesc};

use super::Cell;

/// Labels with bias: of `gemm` b is stored `[K, N]`, of `linear` `[N, K]`, as layers of networks have it.
pub(super) const WITH_BIAS: [(&str, Activation, bool); 10] = [
    ("gemm_bias_none", Activation::Identity, false),
    ("gemm_bias_relu", Activation::Relu, false),
    ("gemm_bias_gelu_tanh", Activation::GeluTanh, false),
    ("gemm_bias_gelu_erf", Activation::GeluErf, false),
    ("gemm_bias_silu", Activation::Silu, false),
    ("gemm_bias_sigmoid", Activation::Sigmoid, false),
    ("gemm_bias_tanh", Activation::Tanh, false),
    ("linear_bias_none", Activation::Identity, true),
    ("linear_bias_gelu_tanh", Activation::GeluTanh, true),
    ("linear_bias_silu", Activation::Silu, true),
];

/// Labels with bias of which there are cells in tf32.
const IN_TF32: [&str; 5] =
    ["gemm_bias_none", "gemm_bias_gelu_tanh", "gemm_bias_silu", "linear_bias_none", "linear_bias_silu"];

/// Labels of products alone: of two matrices; with gradients of f32; of a batch; attention's `Q K^T` and `P V`, whose heads lie beside one
/// another, `[batch, positions, heads, D]`.
pub(super) const PLAIN: [&str; 5] = ["gemm_none", "gemm_wide_gradients", "gemm_batch", "gemm_scores", "gemm_values"];

/// M, K, N, as the scripts of the peers have them.
const SHAPES: [[u64; 3]; 6] = [
    [8192, 4096, 4096],
    [8192, 4096, 14336],
    [4096, 1024, 4096],
    [16384, 768, 3072],
    [256, 4096, 4096],
    [16, 4096, 4096],
];

/// Few sums of many terms, and the logits of a language model.
const UNEVEN: [[u64; 3]; 2] = [[256, 16384, 256], [8192, 768, 50257]];

/// Forward and backward of a product of `[m, k, n]` in a batch, and its bytes by the peers' formula.
fn push(cells: &mut Vec<Cell>, op: &'static str, shape: Vec<u64>, forward: GemmDescriptor, wide: bool) -> Result<()> {
    let slot = |name: &str| {
        let slot = baracuda_ops::Descriptor::slots(&forward).iter().find(|slot| slot.name == name);
        slot.map_or(0, |slot| slot.desc.distinct_bytes())
    };
    let [a, b, bias, out] = ["a", "b", "bias", "out"].map(slot);
    let dtype = baracuda_ops::Descriptor::slots(&forward)[0].desc.dtype();
    let mut backward = forward.backward_all()?;
    if wide {
        backward = backward.da(DType::F32, 0.0)?.db(DType::F32, 0.0)?;
    }
    let in_bytes = (a + b + bias + out) / 2;
    // Backward reads dout and the pre-activation, and reads each factor and writes its gradient.
    for (pass, descriptor, bytes) in [
        ("fw", AnyDescriptor::new(forward), a + b + bias + out),
        ("bw", AnyDescriptor::new(backward), 2 * (a + b + out)),
    ] {
        cells.push(Cell::new((op, pass), shape.clone(), dtype, descriptor, bytes, in_bytes));
    }
    Ok(())
}

/// The cells of a label with bias; `is_quick` keeps the first three shapes.
pub(super) fn with_bias(
    cells: &mut Vec<Cell>,
    (op, activation, is_linear): (&'static str, Activation, bool),
    is_quick: bool,
) -> Result<()> {
    for [m, k, n] in SHAPES.into_iter().take(if is_quick { 3 } else { SHAPES.len() }) {
        for (dtype, math) in [(DType::BF16, Math::Strict), (DType::F32, Math::Strict), (DType::F32, Math::Tf32)] {
            let is_measured = match (dtype, math) {
                (DType::F32, Math::Strict) => op == "gemm_bias_gelu_tanh",
                (DType::F32, _) => IN_TF32.contains(&op),
                _ => true,
            };
            if !is_measured {
                continue;
            }
            let a = TensorDesc::contiguous(dtype, &[m, k])?;
            let b = match is_linear {
                true => GemmFactor::transposed(TensorDesc::contiguous(dtype, &[n, k])?),
                false => TensorDesc::contiguous(dtype, &[k, n])?.into(),
            };
            let forward = GemmDescriptor::new(a, b)?.bias(dtype)?.activation(activation)?;
            let first = cells.len();
            push(cells, op, vec![m, k, n], forward.clone(), false)?;
            // Backward reads what a training step's forward saves beside the output.
            let backward = forward.pre(dtype)?.backward_all()?;
            cells[first + 1].descriptor = AnyDescriptor::new(backward);
            for cell in &mut cells[first..] {
                cell.math = math;
            }
        }
    }
    Ok(())
}

/// The cells of a label without; `is_quick` keeps the first three shapes.
pub(super) fn plain(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    let dense = |dtype, dims: &[u64]| TensorDesc::contiguous(dtype, dims);
    let bf16 = DType::BF16;
    match op {
        "gemm_none" | "gemm_wide_gradients" => {
            let shapes = SHAPES.into_iter().chain(UNEVEN).take(if is_quick { 3 } else { SHAPES.len() + UNEVEN.len() });
            for [m, k, n] in shapes {
                let forward = GemmDescriptor::new(dense(bf16, &[m, k])?, dense(bf16, &[k, n])?)?;
                push(cells, op, vec![m, k, n], forward, op == "gemm_wide_gradients")?;
            }
            if op == "gemm_none" {
                let square = dense(DType::F32, &[4096, 4096])?;
                push(cells, op, vec![4096; 3], GemmDescriptor::new(square, square)?, false)?;
            }
        }
        "gemm_batch" => {
            let cube = dense(bf16, &[4096, 64, 64])?;
            push(cells, op, vec![4096, 64, 64, 64], GemmDescriptor::new(cube, cube)?, false)?;
        }
        _ => {
            // Of a model with 16 heads of 128 numbers, at 2048 positions of 4 texts.
            let [batch, positions, heads, d] = [4, 2048, 16, 128];
            let of_heads = dense(bf16, &[batch, positions, heads, d])?.permute(&[0, 2, 1, 3])?;
            let scores = dense(bf16, &[batch, heads, positions, positions])?;
            let forward = match op {
                "gemm_scores" => {
                    GemmDescriptor::new(of_heads, GemmFactor::transposed(of_heads))?.alpha(1.0 / 128f64.sqrt())?
                }
                _ => GemmDescriptor::new(scores, of_heads)?.layout("out", of_heads)?,
            };
            push(cells, op, vec![batch, positions, heads, d], forward, false)?;
        }
    }
    Ok(())
}
