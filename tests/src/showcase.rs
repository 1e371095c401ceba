//! What `bops` shows of each op: a row of its support table.

use anyhow::{Context, Result, ensure};
use baracuda_ops::{AnyDescriptor, DType, OPS};

use crate::ops::subject;

/// One line of what is shown.
pub struct Showcase {
    /// What it is called: the op, or what the descriptor makes of it.
    pub label: &'static str,
    /// What is run.
    pub descriptor: AnyDescriptor,
}

/// The label, the op, and the row of its support table.
const CHOSEN: &[(&str, &str, &str)] = &[
    ("layer_norm", "layer_norm", "parameters of x's type, statistics"),
    ("layer_norm_backward", "layer_norm_backward", "all gradients, parameters of x's type"),
    ("rms_norm", "rms_norm", "parameters of x's type, statistics"),
    ("rms_norm_backward", "rms_norm_backward", "all gradients, parameters of x's type"),
    ("batch_norm", "batch_norm", "parameters of x's type"),
    ("batch_norm_backward", "batch_norm_backward", "parameters of x's type"),
    ("group_norm", "group_norm", "parameters of x's type"),
    ("group_norm_backward", "group_norm_backward", "parameters of x's type"),
    ("instance_norm", "instance_norm", "parameters of x's type"),
    ("instance_norm_backward", "instance_norm_backward", "parameters of x's type"),
    ("local_response_norm", "local_response_norm", "size 5"),
    ("local_response_norm_backward", "local_response_norm_backward", "size 5"),
    ("softmax", "softmax", "last axis"),
    ("softmax_backward", "softmax_backward", "last axis"),
    ("log_softmax", "softmax", "log, last axis"),
    ("log_softmax_backward", "softmax_backward", "log, last axis"),
    ("cross_entropy", "cross_entropy", "mean, last axis"),
    ("cross_entropy_backward", "cross_entropy_backward", "mean, last axis"),
    ("linear_cross_entropy", "linear_cross_entropy", "mean"),
    ("linear_cross_entropy_backward", "linear_cross_entropy_backward", "mean"),
    ("attention", "attention", "causal"),
    ("attention_backward", "attention_backward", "causal"),
    ("activation", "activation", "silu"),
    ("activation_backward", "activation_backward", "silu"),
    ("pointwise", "pointwise", "a program"),
    ("reduce", "reduce", "sum, last axis"),
    ("scan", "scan", "sum, last axis"),
    ("fft", "fft", "last axis"),
    ("rfft", "rfft", "last axis"),
    ("irfft", "irfft", "last axis"),
    ("copy", "copy", "transposed"),
    ("pad", "pad", "a constant around images"),
    ("concat", "concat", "along the last axis"),
    ("index_select", "index_select", "rows of a table"),
    ("gather", "gather", "along the last axis"),
    ("index_add", "index_add", "the gradient of an embedding"),
    ("scatter", "scatter", "added along the last axis"),
    ("nonzero", "nonzero", "numbers"),
    ("sort", "sort", "with indices"),
    ("top_k", "top_k", "few of a long line"),
    ("search_sorted", "search_sorted", "boundaries for all"),
    ("max_pool", "pool", "max 3x3"),
    ("max_pool_backward", "pool_backward", "max 3x3"),
    ("resize", "resize", "bilinear"),
    ("resize_backward", "resize_backward", "bilinear"),
    ("gemm", "gemm", "gelu_tanh"),
    ("gemm_backward", "gemm_backward", "silu, pre-activation saved"),
    ("conv", "conv", "3x3 with bias and relu"),
    ("conv_backward_data", "conv_backward_data", "3x3 with bias and relu"),
    ("conv_backward_weight", "conv_backward_weight", "3x3 with bias and relu"),
    ("conv_backward_bias", "conv_backward_bias", "3x3 with bias and relu"),
    ("conv_transpose", "conv_transpose", "3x3, stride 2, with bias and relu"),
    ("triangular_solve", "triangular_solve", "lower"),
    ("cholesky", "cholesky", "lower"),
];

/// What is shown in an element type: of every op that has it at least one line, in the same order for every type.
///
/// # Errors
/// An op that nothing is chosen of, or a row that its support table lacks.
pub fn showcases(dtype: DType) -> Result<Vec<Showcase>> {
    for op in OPS {
        ensure!(CHOSEN.iter().any(|c| c.1 == op.name), "{} is not shown: tests/src/showcase.rs needs a line", op.name);
    }
    let of = |&(label, op, row): &(&'static str, &str, &str)| {
        let wanted = format!("{dtype}: {row}");
        let rows = (subject(op)?.features)();
        if !rows.iter().any(|(name, _)| name.starts_with(&format!("{dtype}: "))) {
            return Ok(None);
        }
        let (_, descriptor) = rows
            .into_iter()
            .find(|(name, _)| *name == wanted)
            .with_context(|| format!("the support table of {op} has no row {wanted:?}"))?;
        Ok(Some(Showcase { label, descriptor }))
    };
    CHOSEN.iter().filter_map(|chosen| of(chosen).transpose()).collect()
}
