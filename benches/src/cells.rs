//! The cells that are compared with other libraries: same labels, shapes and bytes as their scripts use.

mod activation;
mod attention;
mod channel_norm;
mod conv;
mod fft;
mod gemm;
mod index;
mod linalg;
mod local_response_norm;
mod loss;
mod movement;
mod order;
mod pointwise;
mod reduce;
mod scan;
mod softmax;
mod window;

use baracuda_ops::{
    AnyDescriptor, AnyPlan, DType, Determinism, Device, Error, LayerNormDescriptor, Math, PlanOptions, Result,
    RmsNormDescriptor, TensorDesc,
};

/// One measurement to make.
pub struct Cell {
    /// The op's label.
    pub op: &'static str,
    /// `fw` or `bw`.
    pub pass: &'static str,
    /// The label's shape.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// What is run.
    pub descriptor: AnyDescriptor,
    /// What runs after it, where a pass is two ops.
    pub also: Option<AnyDescriptor>,
    /// How exactly f32 is multiplied.
    pub math: Math,
    /// The fewest bytes, by the formula that every library is measured with.
    pub bytes: u64,
    /// Bytes of the main input, which decides how many sets rotate.
    pub in_bytes: u64,
}

impl Cell {
    /// One of one op in exact products, by op and pass; `bytes` and `in_bytes` as the fields.
    fn new(
        (op, pass): (&'static str, &'static str),
        shape: Vec<u64>,
        dtype: DType,
        descriptor: AnyDescriptor,
        bytes: u64,
        in_bytes: u64,
    ) -> Self {
        Self { op, pass, shape, dtype, descriptor, also: None, math: Math::Strict, bytes, in_bytes }
    }

    /// The element type in the lines: where products of f32 are of tf32, this.
    pub fn dtype_name(&self) -> &'static str {
        if self.math == Math::Tf32 { "tf32" } else { dtype_name(self.dtype) }
    }

    /// Each descriptor with its options: a pinned kernel is that of the op that has it, if the cell runs that op.
    pub fn planned(&self, options: &PlanOptions) -> impl Iterator<Item = (&AnyDescriptor, PlanOptions)> {
        let has_kernel = |name: &str| options.kernel.as_deref() == Some(name);
        let op_of_kernel = baracuda_ops::OPS.iter().find(|op| op.kernels().iter().any(|(_, name)| has_kernel(name)));
        let is_of = move |descriptor: &&AnyDescriptor| op_of_kernel.is_some_and(|op| op.name == descriptor.name());
        let all = || [Some(&self.descriptor), self.also.as_ref()].into_iter().flatten();
        let has_pinned = all().any(|descriptor| is_of(&descriptor));
        all().map(move |descriptor| {
            let mut options = options.clone().math(self.math);
            if descriptor.name().starts_with("conv") || descriptor.name() == "attention_backward" {
                // As PyTorch asks for.
                options = options.determinism(Determinism::Any);
            }
            if has_pinned && !is_of(&descriptor) {
                options.kernel = None;
            }
            (descriptor, options)
        })
    }

    /// A plan of each descriptor.
    ///
    /// # Errors
    /// A refusal.
    pub fn plans(&self, device: &Device, options: &PlanOptions) -> Result<Vec<AnyPlan>, Error> {
        self.planned(options).map(|(descriptor, options)| descriptor.plan(device, &options)).collect()
    }
}

/// Labels of all ops with cells; `copy` is the yardstick.
pub const OPS: &[&str] = &[
    "copy",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "group_norm_silu",
    "group_norm_nhwc",
    "batch_norm_train",
    "batch_norm_train_nhwc",
    "batch_norm_eval",
    "softmax",
    "log_softmax",
    "softmax_channel",
    "softmax_causal",
    "softmax_bias",
    "sdpa",
    "sdpa_causal",
    "sdpa_decode",
    "local_response_norm",
    "batch_norm_train_add_relu",
    "instance_norm",
    "activation_relu",
    "activation_gelu_erf",
    "activation_gelu_tanh",
    "activation_silu",
    "activation_sigmoid",
    "activation_tanh",
    "unary_exp",
    "unary_log",
    "unary_log1p",
    "unary_erf",
    "unary_sin",
    "unary_sqrt",
    "unary_neg",
    "unary_sigmoid",
    "unary_tanh",
    "binary_add",
    "binary_div",
    "binary_pow",
    "compare_lt",
    "where",
    "clamp_scale",
    "add_row",
    "add_column",
    "add_channel",
    "add_transposed",
    "cast",
    "swiglu",
    "copy_transpose",
    "copy_heads",
    "copy_nchw_to_nhwc",
    "copy_nhwc_to_nchw",
    "copy_reverse4",
    "concat_last",
    "pad_2d",
    "flip",
    "repeat",
    "embedding",
    "gather_1",
    "embedding_backward",
    "index_add",
    "scatter_add_1",
    "nonzero",
    "sort_last",
    "topk_50",
    "topk_8",
    "topk_100",
    "searchsorted",
    "solve_triangular",
    "cholesky",
    "max_pool",
    "max_pool_nhwc",
    "avg_pool",
    "avg_pool_nhwc",
    "global_avg_pool",
    "global_avg_pool_nhwc",
    "upsample_nearest",
    "upsample_nearest_nhwc",
    "upsample_bilinear",
    "upsample_bilinear_nhwc",
    "cross_entropy",
    "linear_cross_entropy",
    "reduce_sum_0",
    "reduce_sum_1",
    "reduce_sum_0x2x3",
    "reduce_sum_0x1x2",
    "reduce_amax_0",
    "reduce_amax_1",
    "reduce_amax_0x2x3",
    "reduce_amax_0x1x2",
    "reduce_var_0",
    "reduce_var_1",
    "reduce_var_0x2x3",
    "reduce_var_0x1x2",
    "reduce_mean_1",
    "argmax_1",
    "logsumexp_1",
    "reduce_norm_0",
    "sum_squares_0",
    "mse_0",
    "cumsum_0",
    "cumsum_1",
    "logcumsumexp_1",
    "fft_complex",
    "fft_from_real",
    "fft_to_real",
    "gemm_bias_none",
    "gemm_bias_relu",
    "gemm_bias_gelu_tanh",
    "gemm_bias_gelu_erf",
    "gemm_bias_silu",
    "gemm_bias_sigmoid",
    "gemm_bias_tanh",
    "linear_bias_none",
    "linear_bias_gelu_tanh",
    "linear_bias_silu",
    "gemm_none",
    "gemm_wide_gradients",
    "gemm_batch",
    "gemm_scores",
    "gemm_values",
    "conv2d_nchw",
    "conv2d_nhwc",
    "depthwise_nchw",
    "depthwise_nhwc",
    "conv_backward_bias",
];

/// Elements of the yardstick's copies, f32.
pub const COPIES: [u64; 3] = [1 << 24, 1 << 26, 1 << 28];

const ROWS: [(u64, u64); 7] =
    [(16384, 4096), (32768, 1024), (8192, 8192), (4096, 16384), (1024, 65536), (256, 262144), (64, 4096)];

/// The cells of the named ops; `quick` keeps the first three shapes of each.
///
/// # Errors
/// A descriptor that is not valid.
pub fn cells(ops: &[String], is_quick: bool) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for op in ["layer_norm", "rms_norm"].into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        for (rows, cols) in ROWS.into_iter().take(if is_quick { 3 } else { ROWS.len() }) {
            for dtype in [DType::BF16, DType::F32] {
                row_norm(&mut cells, op, rows, cols, dtype)?;
            }
        }
    }
    for op in channel_norm::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        channel_norm::cells(&mut cells, op, is_quick)?;
    }
    for op in softmax::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        softmax::cells(&mut cells, op, is_quick)?;
    }
    for op in attention::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        attention::cells(&mut cells, op, is_quick)?;
    }
    for (op, activation) in activation::OPS.into_iter().filter(|(op, _)| ops.iter().any(|o| o == op)) {
        activation::cells(&mut cells, op, activation, is_quick)?;
    }
    for op in pointwise::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        pointwise::cells(&mut cells, op)?;
    }
    for op in reduce::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        reduce::cells(&mut cells, op)?;
    }
    for op in scan::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        scan::cells(&mut cells, op)?;
    }
    for op in fft::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        fft::cells(&mut cells, op)?;
    }
    for op in movement::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        movement::cells(&mut cells, op)?;
    }
    for op in index::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        index::cells(&mut cells, op)?;
    }
    for op in order::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        order::cells(&mut cells, op)?;
    }
    for op in linalg::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        linalg::cells(&mut cells, op)?;
    }
    for op in window::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        window::cells(&mut cells, op)?;
    }
    for op in loss::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        loss::cells(&mut cells, op)?;
    }
    for label in gemm::WITH_BIAS.into_iter().filter(|label| ops.iter().any(|o| o == label.0)) {
        gemm::with_bias(&mut cells, label, is_quick)?;
    }
    for op in gemm::PLAIN.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        gemm::plain(&mut cells, op, is_quick)?;
    }
    for op in conv::OPS.into_iter().filter(|op| ops.iter().any(|o| o == op)) {
        conv::products(&mut cells, op, is_quick)?;
    }
    if ops.iter().any(|o| o == conv::BIAS) {
        conv::bias(&mut cells, is_quick)?;
    }
    if ops.iter().any(|o| o == local_response_norm::OP) {
        local_response_norm::cells(&mut cells)?;
    }
    Ok(cells)
}

fn row_norm(cells: &mut Vec<Cell>, op: &'static str, rows: u64, cols: u64, dtype: DType) -> Result<()> {
    let x = TensorDesc::contiguous(dtype, &[rows, cols])?;
    let (forward, backward) = if op == "layer_norm" {
        let forward = LayerNormDescriptor::new(x, 1)?.weight(dtype)?.bias(dtype)?.eps(1e-5)?;
        let backward = forward.clone().stats()?.backward_all()?;
        (AnyDescriptor::new(forward), AnyDescriptor::new(backward))
    } else {
        let forward = RmsNormDescriptor::new(x, 1)?.weight(dtype)?.eps(1e-6)?;
        let backward = forward.clone().stats()?.backward_all()?;
        (AnyDescriptor::new(forward), AnyDescriptor::new(backward))
    };
    let in_bytes = x.span_bytes();
    for (pass, descriptor, bytes) in [("fw", forward, 2 * in_bytes), ("bw", backward, 3 * in_bytes)] {
        cells.push(Cell::new((op, pass), vec![rows, cols], dtype, descriptor, bytes, in_bytes));
    }
    Ok(())
}

/// The name of a type in the lines.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "float64",
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_a_kernel_to_the_op_of_a_cell_that_has_it() {
        let cells = cells(&["conv2d_nchw".into(), "conv_backward_bias".into()], true).unwrap();
        let backward = cells.iter().find(|cell| cell.also.is_some()).unwrap();
        let pinned = |kernel: &str| -> Vec<(&str, bool)> {
            let options = PlanOptions::default().kernel(kernel.to_string());
            backward.planned(&options).map(|(d, options)| (d.name(), options.kernel.is_some())).collect()
        };
        let [data, weight] = ["conv_backward_data", "conv_backward_weight"];
        for (op, expected) in [(weight, [(weight, true), (data, false)]), (data, [(weight, false), (data, true)])] {
            let op = baracuda_ops::OPS.iter().find(|entry| entry.name == op).unwrap();
            // Forms of one word and of several.
            for (_, kernel) in op.kernels() {
                assert_eq!(pinned(kernel), expected, "{kernel}");
            }
        }
        // A kernel of another op refuses both.
        assert_eq!(pinned("conv_reference"), [(weight, true), (data, true)]);
    }
}
