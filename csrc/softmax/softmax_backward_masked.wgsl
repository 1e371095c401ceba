// Softmax backward of lines of any strides: dx = scale * y * (dy - sum(dy * y)). Of log-softmax where places are masked:
// dx = scale * (dy - exp(y) * sum(dy)). A place is masked if y is -infinity: its dx is 0, and its dy is not added up.
fn y_of(place: Place, first: u32, count: u32) -> vec4<f32> {
    return values_of(y_gather(place.first + first * params.steps.y, params.steps.y, count), Y_IS_HALF);
}

fn dy_of(place: Place, first: u32, count: u32) -> vec4<f32> {
    return values_of(dy_gather(place.second + first * params.steps.z, params.steps.z, count), Y_IS_HALF);
}

@compute @workgroup_size(WORKGROUP)
fn softmax_backward_masked(at: Invocation) {
    let place = place_of(at);
    // 1. The sum, in chains of 16 and what they add up to.
    var sums = vec4<f32>();
    var chain = vec4<f32>();
    for (var k = 0u; k < ROUNDS; k++) {
        let first = column_of(at, k);
        if (first < place.dim) {
            let count = min(place.dim - first, 4u);
            let y = y_of(place, first, count);
            var terms = dy_of(place, first, count);
            var is_left_out = columns(first) >= vec4<u32>(place.dim);
            if (LOG) {
                is_left_out = is_left_out | are_masked(y);
            } else {
                terms = terms * y;
            }
            chain = chain + select(terms, vec4<f32>(), is_left_out);
        }
        if (k % 16u == 15u) {
            sums = sums + chain;
            chain = vec4<f32>();
        }
    }
    sums = sums + chain;
    let sum = team_sum(at, (sums.x + sums.y) + (sums.z + sums.w));
    // 2. The outputs.
    for (var k = 0u; k < ROUNDS; k++) {
        let first = column_of(at, k);
        if (first < place.dim) {
            let count = min(place.dim - first, 4u);
            let y = y_of(place, first, count);
            let dy = dy_of(place, first, count);
            var dx: vec4<f32>;
            if (LOG) {
                let weight = exponential(min(y, vec4<f32>(89.0)));
                let is_nan = (bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
                dx = select(params.scale * (dy - select(weight, y, is_nan) * sum), vec4<f32>(), are_masked(y));
            } else {
                dx = (params.scale * y) * (dy - sum);
            }
            dx_scatter(place.output + first * params.steps.x, params.steps.x, count, chunk_of_values(dx, X_IS_HALF));
        }
    }
}
