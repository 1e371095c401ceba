//! The text of every WGSL file, by the folders and stems of `csrc`.

macro_rules! files {
    ($($(#[$doc:meta])* $folder:ident { $($name:ident = $path:literal,)* })*) => {
        $(
            $(#[$doc])*
            pub mod $folder {
                $(
                    #[doc = concat!("`csrc/", $path, "`")]
                    pub const $name: &str = include_str!(concat!(env!("BARACUDA_CSRC"), "/", $path));
                )*
            }
        )*

        /// Every file as (path under `csrc`, text).
        pub const FILES: &[(&str, &str)] = &[$($(($path, $folder::$name),)*)*];
    };
}

files! {
    /// What the kernels of several ops share.
    common {
        ACTIVATION = "common/activation.wgsl",
        BF16 = "common/bf16.wgsl",
        CHUNK = "common/chunk.wgsl",
        COLUMN = "common/column.wgsl",
        COLUMN_SUMS = "common/column_sums.wgsl",
        EXPONENTIAL = "common/exponential.wgsl",
        F16 = "common/f16.wgsl",
        F32 = "common/f32.wgsl",
        HALF = "common/half.wgsl",
        HALF_FOURS = "common/half_fours.wgsl",
        NUMBER = "common/number.wgsl",
        OPERAND_ABSENT_COUNTER = "common/operand/absent_counter.wgsl",
        OPERAND_ABSENT_ELEMENTS = "common/operand/absent_elements.wgsl",
        OPERAND_ABSENT_IN = "common/operand/absent_in.wgsl",
        OPERAND_ABSENT_OUT = "common/operand/absent_out.wgsl",
        OPERAND_ABSENT_PARTIALS = "common/operand/absent_partials.wgsl",
        OPERAND_ABSENT_QUADS = "common/operand/absent_quads.wgsl",
        OPERAND_BYTE_PAIRS_IN = "common/operand/byte_pairs_in.wgsl",
        OPERAND_BYTE_PAIRS_OUT = "common/operand/byte_pairs_out.wgsl",
        OPERAND_BYTE_WORDS_IN = "common/operand/byte_words_in.wgsl",
        OPERAND_BYTE_WORDS_OUT = "common/operand/byte_words_out.wgsl",
        OPERAND_BYTES_IN = "common/operand/bytes_in.wgsl",
        OPERAND_BYTES_OUT = "common/operand/bytes_out.wgsl",
        OPERAND_CHUNKS_F32_IN = "common/operand/chunks_f32_in.wgsl",
        OPERAND_CHUNKS_F32_OUT = "common/operand/chunks_f32_out.wgsl",
        OPERAND_CHUNKS_IN = "common/operand/chunks_in.wgsl",
        OPERAND_CHUNKS_OUT = "common/operand/chunks_out.wgsl",
        OPERAND_COUNTER_IN = "common/operand/counter_in.wgsl",
        OPERAND_COUNTER_OUT = "common/operand/counter_out.wgsl",
        OPERAND_ELEMENTS_F32_IN = "common/operand/elements_f32_in.wgsl",
        OPERAND_ELEMENTS_F32_OUT = "common/operand/elements_f32_out.wgsl",
        OPERAND_ELEMENTS_HALF_IN = "common/operand/elements_half_in.wgsl",
        OPERAND_ELEMENTS_HALF_OUT = "common/operand/elements_half_out.wgsl",
        OPERAND_FOURS_F32_IN = "common/operand/fours_f32_in.wgsl",
        OPERAND_FOURS_F32_OUT = "common/operand/fours_f32_out.wgsl",
        OPERAND_FOURS_HALF_IN = "common/operand/fours_half_in.wgsl",
        OPERAND_FOURS_HALF_OUT = "common/operand/fours_half_out.wgsl",
        OPERAND_HALVES_IN = "common/operand/halves_in.wgsl",
        OPERAND_HALVES_OUT = "common/operand/halves_out.wgsl",
        OPERAND_LINE_F32_IN = "common/operand/line_f32_in.wgsl",
        OPERAND_LINE_F32_OUT = "common/operand/line_f32_out.wgsl",
        OPERAND_LINE_HALF_IN = "common/operand/line_half_in.wgsl",
        OPERAND_LINE_HALF_OUT = "common/operand/line_half_out.wgsl",
        OPERAND_LINE_PAIRS_HALF_IN = "common/operand/line_pairs_half_in.wgsl",
        OPERAND_LINE_PAIRS_HALF_OUT = "common/operand/line_pairs_half_out.wgsl",
        OPERAND_LINE_QUADS_F32_IN = "common/operand/line_quads_f32_in.wgsl",
        OPERAND_LINE_QUADS_F32_OUT = "common/operand/line_quads_f32_out.wgsl",
        OPERAND_NARROWED_HALVES_OUT = "common/operand/narrowed_halves_out.wgsl",
        OPERAND_NARROWED_PAIRS_OUT = "common/operand/narrowed_pairs_out.wgsl",
        OPERAND_PAIRS_HALF_IN = "common/operand/pairs_half_in.wgsl",
        OPERAND_PAIRS_IN = "common/operand/pairs_in.wgsl",
        OPERAND_PAIRS_OUT = "common/operand/pairs_out.wgsl",
        OPERAND_PAIRS_HALF_OUT = "common/operand/pairs_half_out.wgsl",
        OPERAND_PARTIALS_IN = "common/operand/partials_in.wgsl",
        OPERAND_PARTIALS_OUT = "common/operand/partials_out.wgsl",
        OPERAND_QUADS_F32_IN = "common/operand/quads_f32_in.wgsl",
        OPERAND_QUADS_HALF_IN = "common/operand/quads_half_in.wgsl",
        OPERAND_QUADS_OF_PAIRS_IN = "common/operand/quads_of_pairs_in.wgsl",
        OPERAND_SCATTERED_BYTE_IN = "common/operand/scattered_byte_in.wgsl",
        OPERAND_SCATTERED_BYTE_OUT = "common/operand/scattered_byte_out.wgsl",
        OPERAND_SCATTERED_F32_IN = "common/operand/scattered_f32_in.wgsl",
        OPERAND_SCATTERED_F32_OUT = "common/operand/scattered_f32_out.wgsl",
        OPERAND_SCATTERED_HALF_IN = "common/operand/scattered_half_in.wgsl",
        OPERAND_SCATTERED_HALF_OUT = "common/operand/scattered_half_out.wgsl",
        OPERAND_TALLY_OUT = "common/operand/tally_out.wgsl",
        OPERAND_UPDATED_BYTE_OUT = "common/operand/updated_byte_out.wgsl",
        OPERAND_UPDATED_F32_OUT = "common/operand/updated_f32_out.wgsl",
        OPERAND_UPDATED_HALF_OUT = "common/operand/updated_half_out.wgsl",
        OPERAND_VALUES_F32_IN = "common/operand/values_f32_in.wgsl",
        OPERAND_VALUES_HALF_IN = "common/operand/values_half_in.wgsl",
        OPERAND_WIDENED_HALVES_IN = "common/operand/widened_halves_in.wgsl",
        OPERAND_WIDENED_PAIRS_IN = "common/operand/widened_pairs_in.wgsl",
        OPERAND_WORDS_IN = "common/operand/words_in.wgsl",
        OPERAND_WORDS_OUT = "common/operand/words_out.wgsl",
        POWER = "common/power.wgsl",
        REDUCE_LANES = "common/reduce_lanes.wgsl",
        REDUCE_SUBGROUPS = "common/reduce_subgroups.wgsl",
        REDUCE_TREE = "common/reduce_tree.wgsl",
        ROW = "common/row.wgsl",
        ROW_PART = "common/row_part.wgsl",
        SUBNORMAL = "common/subnormal.wgsl",
        TEAM = "common/team.wgsl",
    }
    /// Attention.
    attention {
        ATTENTION = "attention/attention.wgsl",
        ATTENTION_BACKWARD_BIAS = "attention/attention_backward_bias.wgsl",
        ATTENTION_BACKWARD_DELTA = "attention/attention_backward_delta.wgsl",
        ATTENTION_BACKWARD_KEYS = "attention/attention_backward_keys.wgsl",
        ATTENTION_BACKWARD_QUERIES = "attention/attention_backward_queries.wgsl",
        ATTENTION_BACKWARD_TILES = "attention/attention_backward_tiles.wgsl",
        ATTENTION_LENGTHS = "attention/attention_lengths.wgsl",
        ATTENTION_SPLIT = "attention/attention_split.wgsl",
        ATTENTION_SPLIT_MERGE = "attention/attention_split_merge.wgsl",
        ATTENTION_TILES = "attention/attention_tiles.wgsl",
    }
    /// Convolutions.
    conv {
        CONV = "conv/conv.wgsl",
        CONV_BACKWARD_BIAS = "conv/conv_backward_bias.wgsl",
        CONV_DEPTHWISE = "conv/conv_depthwise.wgsl",
        CONV_DEPTHWISE_CHANNELS = "conv/conv_depthwise_channels.wgsl",
        CONV_DEPTHWISE_COLUMNS = "conv/conv_depthwise_columns.wgsl",
        CONV_DEPTHWISE_WEIGHT = "conv/conv_depthwise_weight.wgsl",
        CONV_DEPTHWISE_WEIGHT_CHANNELS = "conv/conv_depthwise_weight_channels.wgsl",
        CONV_DEPTHWISE_WEIGHT_COLUMNS = "conv/conv_depthwise_weight_columns.wgsl",
        CONV_DIRECT = "conv/conv_direct.wgsl",
        CONV_GATHER = "conv/conv_gather.wgsl",
        CONV_OUTPUT = "conv/conv_output.wgsl",
        CONV_SUMS = "conv/conv_sums.wgsl",
        CONV_WALK = "conv/conv_walk.wgsl",
        DEPTHWISE = "conv/depthwise.wgsl",
        DEPTHWISE_CHANNELS = "conv/depthwise_channels.wgsl",
        DEPTHWISE_COLUMNS = "conv/depthwise_columns.wgsl",
    }
    /// The yardstick of the benchmarks.
    copy {
        COPY = "copy.wgsl",
    }
    /// Products of matrices.
    gemm {
        GEMM = "gemm/gemm.wgsl",
        GEMM_BACKWARD_DPRE = "gemm/gemm_backward_dpre.wgsl",
        GEMM_BACKWARD_RECOMPUTED = "gemm/gemm_backward_recomputed.wgsl",
        GEMM_BACKWARD_SUMS = "gemm/gemm_backward_sums.wgsl",
        GEMM_NO_SUMS = "gemm/gemm_no_sums.wgsl",
        GEMM_OUTPUT = "gemm/gemm_output.wgsl",
        GEMM_TILE = "gemm/gemm_tile.wgsl",
    }
    /// Normalization.
    norm {
        BATCH_NORM = "norm/channel/batch_norm.wgsl",
        CHANNEL_NORM = "norm/channel/channel_norm.wgsl",
        CHANNEL_NORM_APPLY = "norm/channel/channel_norm_apply.wgsl",
        CHANNEL_NORM_APPLY_GAPLESS = "norm/channel/channel_norm_apply_gapless.wgsl",
        CHANNEL_NORM_APPLY_KNOWN = "norm/channel/channel_norm_apply_known.wgsl",
        CHANNEL_NORM_APPLY_MERGING = "norm/channel/channel_norm_apply_merging.wgsl",
        CHANNEL_NORM_BACKWARD = "norm/channel/channel_norm_backward.wgsl",
        CHANNEL_NORM_BACKWARD_APPLY = "norm/channel/channel_norm_backward_apply.wgsl",
        CHANNEL_NORM_BACKWARD_APPLY_KNOWN = "norm/channel/channel_norm_backward_apply_known.wgsl",
        CHANNEL_NORM_BACKWARD_APPLY_MERGING = "norm/channel/channel_norm_backward_apply_merging.wgsl",
        CHANNEL_NORM_BACKWARD_CHANNEL_SUMS = "norm/channel/channel_norm_backward_channel_sums.wgsl",
        CHANNEL_NORM_BACKWARD_GAPLESS_RESIDENT = "norm/channel/channel_norm_backward_gapless_resident.wgsl",
        CHANNEL_NORM_BACKWARD_HELD = "norm/channel/channel_norm_backward_held.wgsl",
        CHANNEL_NORM_BACKWARD_MERGE_HELD = "norm/channel/channel_norm_backward_merge_held.wgsl",
        CHANNEL_NORM_BACKWARD_RESIDENT = "norm/channel/channel_norm_backward_resident.wgsl",
        CHANNEL_NORM_BACKWARD_SLICE = "norm/channel/channel_norm_backward_slice.wgsl",
        CHANNEL_NORM_BACKWARD_SPLIT_MERGE = "norm/channel/channel_norm_backward_split_merge.wgsl",
        CHANNEL_NORM_BACKWARD_SPLIT_SUMS = "norm/channel/channel_norm_backward_split_sums.wgsl",
        CHANNEL_NORM_COUNT_BATCH = "norm/channel/channel_norm_count_batch.wgsl",
        CHANNEL_NORM_GAPLESS = "norm/channel/channel_norm_gapless.wgsl",
        CHANNEL_NORM_GAPLESS_OUTPUT = "norm/channel/channel_norm_gapless_output.wgsl",
        CHANNEL_NORM_GAPLESS_RESIDENT = "norm/channel/channel_norm_gapless_resident.wgsl",
        CHANNEL_NORM_MERGE_HELD = "norm/channel/channel_norm_merge_held.wgsl",
        CHANNEL_NORM_MOMENTS = "norm/channel/channel_norm_moments.wgsl",
        CHANNEL_NORM_PERSISTENT = "norm/channel/channel_norm_persistent.wgsl",
        CHANNEL_NORM_PLACE = "norm/channel/channel_norm_place.wgsl",
        CHANNEL_NORM_RESIDENT = "norm/channel/channel_norm_resident.wgsl",
        CHANNEL_NORM_RUNNING_OVER_SAMPLES = "norm/channel/channel_norm_running_over_samples.wgsl",
        CHANNEL_NORM_SLICE = "norm/channel/channel_norm_slice.wgsl",
        CHANNEL_NORM_SPLIT_MERGE = "norm/channel/channel_norm_split_merge.wgsl",
        CHANNEL_NORM_SPLIT_MOMENTS = "norm/channel/channel_norm_split_moments.wgsl",
        CHANNEL_NORM_UPDATE = "norm/channel/channel_norm_update.wgsl",
        GROUP_NORM = "norm/channel/group_norm.wgsl",
        INSTANCE_NORM = "norm/channel/instance_norm.wgsl",
        CHANNELS_LAST_NORM = "norm/channels_last/channels_last_norm.wgsl",
        CHANNELS_LAST_NORM_APPLY = "norm/channels_last/channels_last_norm_apply.wgsl",
        CHANNELS_LAST_NORM_BACKWARD = "norm/channels_last/channels_last_norm_backward.wgsl",
        CHANNELS_LAST_NORM_BACKWARD_APPLY = "norm/channels_last/channels_last_norm_backward_apply.wgsl",
        CHANNELS_LAST_NORM_BACKWARD_KNOWN = "norm/channels_last/channels_last_norm_backward_known.wgsl",
        CHANNELS_LAST_NORM_BACKWARD_MERGING = "norm/channels_last/channels_last_norm_backward_merging.wgsl",
        CHANNELS_LAST_NORM_BACKWARD_ROWS = "norm/channels_last/channels_last_norm_backward_rows.wgsl",
        CHANNELS_LAST_NORM_BACKWARD_SUMS = "norm/channels_last/channels_last_norm_backward_sums.wgsl",
        CHANNELS_LAST_NORM_BACKWARD_TILE = "norm/channels_last/channels_last_norm_backward_tile.wgsl",
        CHANNELS_LAST_NORM_KNOWN = "norm/channels_last/channels_last_norm_known.wgsl",
        CHANNELS_LAST_NORM_MERGING = "norm/channels_last/channels_last_norm_merging.wgsl",
        CHANNELS_LAST_NORM_MOMENTS = "norm/channels_last/channels_last_norm_moments.wgsl",
        CHANNELS_LAST_NORM_SLICES = "norm/channels_last/channels_last_norm_slices.wgsl",
        CHANNELS_LAST_NORM_STREAM = "norm/channels_last/channels_last_norm_stream.wgsl",
        CHANNELS_LAST_NORM_TILE = "norm/channels_last/channels_last_norm_tile.wgsl",
        LOCAL_RESPONSE = "norm/local_response/local_response.wgsl",
        LOCAL_RESPONSE_DIRECT = "norm/local_response/local_response_direct.wgsl",
        LOCAL_RESPONSE_NORM = "norm/local_response/local_response_norm.wgsl",
        LOCAL_RESPONSE_NORM_BACKWARD = "norm/local_response/local_response_norm_backward.wgsl",
        LOCAL_RESPONSE_NORM_BACKWARD_DIRECT = "norm/local_response/local_response_norm_backward_direct.wgsl",
        LOCAL_RESPONSE_NORM_BACKWARD_DIRECT_TERMS = "norm/local_response/local_response_norm_backward_direct_terms.wgsl",
        LOCAL_RESPONSE_NORM_BACKWARD_ROWS = "norm/local_response/local_response_norm_backward_rows.wgsl",
        LOCAL_RESPONSE_NORM_DIRECT = "norm/local_response/local_response_norm_direct.wgsl",
        LOCAL_RESPONSE_NORM_ROWS = "norm/local_response/local_response_norm_rows.wgsl",
        LOCAL_RESPONSE_QUAD = "norm/local_response/local_response_quad.wgsl",
        LOCAL_RESPONSE_ROWS = "norm/local_response/local_response_rows.wgsl",
        LOCAL_RESPONSE_SINGLE = "norm/local_response/local_response_single.wgsl",
        MOMENTS = "norm/moments.wgsl",
        LAYER_NORM = "norm/row/layer_norm.wgsl",
        RMS_NORM = "norm/row/rms_norm.wgsl",
        ROW_NORM = "norm/row/row_norm.wgsl",
        ROW_NORM_BACKWARD = "norm/row/row_norm_backward.wgsl",
        ROW_NORM_BACKWARD_FEW_ROWS = "norm/row/row_norm_backward_few_rows.wgsl",
        ROW_NORM_BACKWARD_PARAMETERS = "norm/row/row_norm_backward_parameters.wgsl",
        ROW_NORM_BACKWARD_SPLIT_SUMS = "norm/row/row_norm_backward_split_sums.wgsl",
        ROW_NORM_PARAMETERS = "norm/row/row_norm_parameters.wgsl",
        ROW_NORM_SPLIT_APPLY = "norm/row/row_norm_split_apply.wgsl",
        ROW_NORM_SPLIT_MOMENTS = "norm/row/row_norm_split_moments.wgsl",
    }
    /// Ops with indices.
    index {
        INDEX = "index/index.wgsl",
        LOOKUP = "index/lookup.wgsl",
        LOOKUP_MISSING = "index/lookup_missing.wgsl",
        NONZERO = "index/nonzero.wgsl",
        NONZERO_COUNT = "index/nonzero_count.wgsl",
        NONZERO_SHARES = "index/nonzero_shares.wgsl",
        SCATTER = "index/scatter.wgsl",
        SCATTER_COMBINE = "index/scatter_combine.wgsl",
        SCATTER_GATHER = "index/scatter_gather.wgsl",
        SCATTER_KEYS = "index/scatter_keys.wgsl",
        SCATTER_ROWS = "index/scatter_rows.wgsl",
        SCATTER_SET = "index/scatter_set.wgsl",
        SORT = "index/sort.wgsl",
        SORT_COUNT = "index/sort_count.wgsl",
        SORT_MOVE = "index/sort_move.wgsl",
        SORT_SCAN = "index/sort_scan.wgsl",
        SUM_BEFORE = "index/sum_before.wgsl",
    }
    /// Systems of equations.
    linalg {
        CHOLESKY = "linalg/cholesky.wgsl",
        TRIANGULAR_SOLVE = "linalg/triangular_solve.wgsl",
    }
    /// Ops that move elements.
    movement {
        COPY = "movement/copy.wgsl",
        COPY_TILES = "movement/copy_tiles.wgsl",
        MOVEMENT = "movement/movement.wgsl",
        PAD = "movement/pad.wgsl",
    }
    /// Ops that put elements in order.
    order {
        KEYS_OF_PAIRS = "order/keys_of_pairs.wgsl",
        KEYS_OF_WORDS = "order/keys_of_words.wgsl",
        ORDER = "order/order.wgsl",
        ORDER_MERGE = "order/order_merge.wgsl",
        ORDER_TILES = "order/order_tiles.wgsl",
        SEARCH_SORTED = "order/search_sorted.wgsl",
    }
    /// Ops on each element alone.
    pointwise {
        ACTIVATION = "pointwise/activation.wgsl",
        ACTIVATION_BACKWARD = "pointwise/activation_backward.wgsl",
        BYTES = "pointwise/bytes.wgsl",
        CASTS = "pointwise/casts.wgsl",
        FUNCTIONS_ACOS = "pointwise/functions/acos.wgsl",
        FUNCTIONS_ACOSH = "pointwise/functions/acosh.wgsl",
        FUNCTIONS_ADD = "pointwise/functions/add.wgsl",
        FUNCTIONS_ANGLE = "pointwise/functions/angle.wgsl",
        FUNCTIONS_ARCSINE = "pointwise/functions/arcsine.wgsl",
        FUNCTIONS_ARCTANGENT = "pointwise/functions/arctangent.wgsl",
        FUNCTIONS_ASIN = "pointwise/functions/asin.wgsl",
        FUNCTIONS_ASINH = "pointwise/functions/asinh.wgsl",
        FUNCTIONS_ATAN = "pointwise/functions/atan.wgsl",
        FUNCTIONS_ATAN2 = "pointwise/functions/atan2.wgsl",
        FUNCTIONS_ATANH = "pointwise/functions/atanh.wgsl",
        FUNCTIONS_BESSEL = "pointwise/functions/bessel.wgsl",
        FUNCTIONS_BESSEL_K = "pointwise/functions/bessel_k.wgsl",
        FUNCTIONS_CELU = "pointwise/functions/celu.wgsl",
        FUNCTIONS_CLASSES = "pointwise/functions/classes.wgsl",
        FUNCTIONS_COMPARISONS = "pointwise/functions/comparisons.wgsl",
        FUNCTIONS_COS = "pointwise/functions/cos.wgsl",
        FUNCTIONS_COSH = "pointwise/functions/cosh.wgsl",
        FUNCTIONS_DIGAMMA = "pointwise/functions/digamma.wgsl",
        FUNCTIONS_DIGITS = "pointwise/functions/digits.wgsl",
        FUNCTIONS_DIV = "pointwise/functions/div.wgsl",
        FUNCTIONS_ELU = "pointwise/functions/elu.wgsl",
        FUNCTIONS_ERF = "pointwise/functions/erf.wgsl",
        FUNCTIONS_ERFC = "pointwise/functions/erfc.wgsl",
        FUNCTIONS_ERFCX = "pointwise/functions/erfcx.wgsl",
        FUNCTIONS_ERFINV = "pointwise/functions/erfinv.wgsl",
        FUNCTIONS_EXACT_PRODUCT = "pointwise/functions/exact_product.wgsl",
        FUNCTIONS_EXP = "pointwise/functions/exp.wgsl",
        FUNCTIONS_EXP2 = "pointwise/functions/exp2.wgsl",
        FUNCTIONS_EXPM1 = "pointwise/functions/expm1.wgsl",
        FUNCTIONS_GELU_ERF = "pointwise/functions/gelu_erf.wgsl",
        FUNCTIONS_GELU_TANH = "pointwise/functions/gelu_tanh.wgsl",
        FUNCTIONS_I0 = "pointwise/functions/i0.wgsl",
        FUNCTIONS_I0E = "pointwise/functions/i0e.wgsl",
        FUNCTIONS_I1 = "pointwise/functions/i1.wgsl",
        FUNCTIONS_I1E = "pointwise/functions/i1e.wgsl",
        FUNCTIONS_INCOMPLETE = "pointwise/functions/incomplete.wgsl",
        FUNCTIONS_INTEGERS = "pointwise/functions/integers.wgsl",
        FUNCTIONS_LGAMMA = "pointwise/functions/lgamma.wgsl",
        FUNCTIONS_LIGHT = "pointwise/functions/light.wgsl",
        FUNCTIONS_LOG = "pointwise/functions/log.wgsl",
        FUNCTIONS_LOG10 = "pointwise/functions/log10.wgsl",
        FUNCTIONS_LOG1P = "pointwise/functions/log1p.wgsl",
        FUNCTIONS_LOG2 = "pointwise/functions/log2.wgsl",
        FUNCTIONS_LOG_NDTR = "pointwise/functions/log_ndtr.wgsl",
        FUNCTIONS_LOG_SIGMOID = "pointwise/functions/log_sigmoid.wgsl",
        FUNCTIONS_LOGADDEXP = "pointwise/functions/logaddexp.wgsl",
        FUNCTIONS_LOGADDEXP2 = "pointwise/functions/logaddexp2.wgsl",
        FUNCTIONS_LOGARITHM_PARTS = "pointwise/functions/logarithm_parts.wgsl",
        FUNCTIONS_LOGICAL = "pointwise/functions/logical.wgsl",
        FUNCTIONS_LOGIT = "pointwise/functions/logit.wgsl",
        FUNCTIONS_MISH = "pointwise/functions/mish.wgsl",
        FUNCTIONS_MODIFIED_BESSEL_K0 = "pointwise/functions/modified_bessel_k0.wgsl",
        FUNCTIONS_MODIFIED_BESSEL_K1 = "pointwise/functions/modified_bessel_k1.wgsl",
        FUNCTIONS_MUL = "pointwise/functions/mul.wgsl",
        FUNCTIONS_NATURAL_POWER = "pointwise/functions/natural_power.wgsl",
        FUNCTIONS_NDTRI = "pointwise/functions/ndtri.wgsl",
        FUNCTIONS_NEG = "pointwise/functions/neg.wgsl",
        FUNCTIONS_NUMBERS = "pointwise/functions/numbers.wgsl",
        FUNCTIONS_POW = "pointwise/functions/pow.wgsl",
        FUNCTIONS_POWER = "pointwise/functions/power.wgsl",
        FUNCTIONS_RANDOM = "pointwise/functions/random.wgsl",
        FUNCTIONS_SCALED_MODIFIED_BESSEL_K0 = "pointwise/functions/scaled_modified_bessel_k0.wgsl",
        FUNCTIONS_SCALED_MODIFIED_BESSEL_K1 = "pointwise/functions/scaled_modified_bessel_k1.wgsl",
        FUNCTIONS_SELU = "pointwise/functions/selu.wgsl",
        FUNCTIONS_SIGMOID = "pointwise/functions/sigmoid.wgsl",
        FUNCTIONS_SILU = "pointwise/functions/silu.wgsl",
        FUNCTIONS_SIN = "pointwise/functions/sin.wgsl",
        FUNCTIONS_SINC = "pointwise/functions/sinc.wgsl",
        FUNCTIONS_SINH = "pointwise/functions/sinh.wgsl",
        FUNCTIONS_SOFTPLUS = "pointwise/functions/softplus.wgsl",
        FUNCTIONS_SQRT = "pointwise/functions/sqrt.wgsl",
        FUNCTIONS_SUB = "pointwise/functions/sub.wgsl",
        FUNCTIONS_TAN = "pointwise/functions/tan.wgsl",
        FUNCTIONS_TANH = "pointwise/functions/tanh.wgsl",
        FUNCTIONS_TANHSHRINK = "pointwise/functions/tanhshrink.wgsl",
        FUNCTIONS_WHERE = "pointwise/functions/where.wgsl",
        FUNCTIONS_XLOGY = "pointwise/functions/xlogy.wgsl",
        FUNCTIONS_ZETA = "pointwise/functions/zeta.wgsl",
        POINTWISE = "pointwise/pointwise.wgsl",
        POINTWISE_DENSE = "pointwise/pointwise_dense.wgsl",
        POINTWISE_STRIDED = "pointwise/pointwise_strided.wgsl",
    }
    /// Reductions.
    reduce {
        HELD_COUNTS = "reduce/held_counts.wgsl",
        HELD_EXPONENTIALS = "reduce/held_exponentials.wgsl",
        KEYS_OF_FLOATS = "reduce/keys_of_floats.wgsl",
        KEYS_OF_INTEGERS = "reduce/keys_of_integers.wgsl",
        HELD_MOMENTS = "reduce/held_moments.wgsl",
        HELD_NUMBERS = "reduce/held_numbers.wgsl",
        HELD_PAIRS = "reduce/held_pairs.wgsl",
        HELD_POSITIONS = "reduce/held_positions.wgsl",
        HELD_TOTALS = "reduce/held_totals.wgsl",
        HELD_WORDS = "reduce/held_words.wgsl",
        REDUCE = "reduce/reduce.wgsl",
        REDUCE_COLUMNS = "reduce/reduce_columns.wgsl",
        REDUCE_PARTIALS = "reduce/reduce_partials.wgsl",
        REDUCE_ROWS = "reduce/reduce_rows.wgsl",
    }
    /// Fourier transforms.
    fft {
        FFT = "fft/fft.wgsl",
        FFT_STAGE = "fft/fft_stage.wgsl",
    }
    /// Scans.
    scan {
        SCAN = "scan/scan.wgsl",
        SCAN_PIECES = "scan/scan_pieces.wgsl",
    }
    /// Softmax.
    softmax {
        CROSS_ENTROPY = "softmax/cross_entropy.wgsl",
        CROSS_ENTROPY_BACKWARD = "softmax/cross_entropy_backward.wgsl",
        CROSS_ENTROPY_LINES = "softmax/cross_entropy_lines.wgsl",
        CROSS_ENTROPY_MISSING = "softmax/cross_entropy_missing.wgsl",
        CROSS_ENTROPY_TOTAL = "softmax/cross_entropy_total.wgsl",
        LINE_CHUNKS = "softmax/line_chunks.wgsl",
        SOFTMAX = "softmax/softmax.wgsl",
        SOFTMAX_BACKWARD = "softmax/softmax_backward.wgsl",
        SOFTMAX_BACKWARD_CHANNELS = "softmax/softmax_backward_channels.wgsl",
        SOFTMAX_BACKWARD_MASKED = "softmax/softmax_backward_masked.wgsl",
        SOFTMAX_BACKWARD_ROWS = "softmax/softmax_backward_rows.wgsl",
        SOFTMAX_CHANNELS = "softmax/softmax_channels.wgsl",
        SOFTMAX_LINES = "softmax/softmax_lines.wgsl",
        SOFTMAX_MASKED = "softmax/softmax_masked.wgsl",
        SOFTMAX_ROWS = "softmax/softmax_rows.wgsl",
    }
    /// Ops over windows.
    window {
        POOL = "window/pool.wgsl",
        POOL_BACKWARD = "window/pool_backward.wgsl",
        RESIZE = "window/resize.wgsl",
        WINDOWS = "window/windows.wgsl",
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::fs;
    use std::path::Path;
    use std::string::String;
    use std::vec::Vec;

    fn scan(dir: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                scan(&path, root, found);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                let inside = path.strip_prefix(root).unwrap();
                let parts: Vec<_> = inside.iter().map(|part| part.to_str().unwrap()).collect();
                found.push(parts.join("/"));
            }
        }
    }

    #[test]
    fn lists_every_wgsl_file() {
        let root = Path::new(env!("BARACUDA_CSRC"));
        let mut found = Vec::new();
        scan(root, root, &mut found);
        found.sort();
        let mut listed: Vec<_> = super::FILES.iter().map(|(path, _)| *path).collect();
        listed.sort();
        assert_eq!(listed, found);
    }
}
