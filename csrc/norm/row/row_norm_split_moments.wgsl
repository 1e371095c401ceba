// The first dispatch of split: the moments of each slice of a row, [rows][slices]. Of LayerNorm the mean before correction, its correction and the
// mean of the squared differences; of RMSNorm the mean of the squares, in the same place.
@compute @workgroup_size(WORKGROUP)
fn row_norm_split_moments(at: Invocation) {
    let own = slice_part(at, params.slices, params.cols, false);
    let reciprocal = 1.0 / slice_cols(own.item % params.slices);
    load_row(own);
    let first = row_sum(at, thread_sum(!CENTERED) * reciprocal, 0u);
    var moments = vec4<f32>(0.0, 0.0, first, 0.0);
    if (CENTERED) {
        let corrected = row_sums(at, thread_moments(first, own) * reciprocal, 1u);
        moments = vec4<f32>(first, corrected, 0.0);
    }
    if (own.exists && thread_index(at) == 0u) {
        moments_write(own.item, moments);
    }
}
