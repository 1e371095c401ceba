// The gradient of the logits of cross-entropy, lines of any strides: dx[i] = (exp(x[i] - logsumexp) - (1 if i is the target, else 0)) * g, where g is the gradient of
// the line's loss; 0 where the target is ignored or out of range. dx may be x. With options the gradient is that of cross_entropy_backward.cu.
@compute @workgroup_size(WORKGROUP)
fn cross_entropy_backward(at: Invocation) {
    var place = place_of(at);
    let dim = place.dim;
    let goal = goal_of(place);
    // 1. The sum of exponentials, unless forward has saved it. Lines without a class are not read.
    var about = 0.0;
    var factor = 1.0;
    var is_improper = false;
    var log_sum = 0.0;
    if (!goal.is_class) {
        place.dim = 0u;
    }
    if (HAS_LOGSUMEXP) {
        if (goal.is_class) {
            about = saved(place.logsumexp);
        }
    } else {
        let of_line = sum_of_line(at, place);
        about = of_line.about;
        factor = 1.0 / of_line.sum;
        if (HAS_Z) {
            log_sum = logarithm(vec4<f32>(of_line.sum)).x;
        }
        is_improper = of_line.is_improper || of_line.sum == 0.0;
    }
    var gradient = 0.0;
    if (goal.is_class) {
        gradient = bitcast<f32>(dloss_bits(place.loss));
        if (IS_MEAN) {
            gradient = gradient / divisor();
        }
    }
    var of_target = 1.0;
    if (HAS_PROBABILITIES) {
        of_target = 0.0;
    } else if (HAS_OPTIONS && goal.is_class) {
        of_target = params.options.x * class_weights(goal.class_at, 1u).x;
    }
    var total = 0.0;
    if (HAS_SHARES) {
        total = sum_of_shares(at, place);
    }
    let of_shares = 2.0 * params.options.z * (about + log_sum);
    // 2. The gradients.
    for (var k = 0u; column_of(at, k) < dim; k++) {
        let first = column_of(at, k);
        let count = min(dim - first, 4u);
        var dx = vec4<f32>();
        if (goal.is_class) {
            let x = chunk_of_line(place, first);
            let of_class = select(vec4<f32>(), vec4<f32>(1.0), columns(first) == vec4<u32>(goal.class_at));
            var share = exponential(min(x - about, vec4<f32>(89.0))) * factor;
            share = select(share, vec4<f32>(), are_masked(x));
            share = select(share, vec4<f32>(no_number()), are_not_numbers(x, about) | vec4<bool>(is_improper));
            var slope = share - of_class;
            if (HAS_OPTIONS) {
                slope = slope * of_target;
            }
            if (HAS_SHARES) {
                slope = slope + (total * share - class_shares(place, first, count));
            }
            if (HAS_Z) {
                slope = slope + of_shares * share;
            }
            dx = slope * gradient;
        }
        dx_scatter(place.dx + first * params.steps.y, params.steps.y, count, chunk_of_values(dx, X_IS_HALF));
    }
}

// The sum of the shares of all classes, with the threads of a team.
fn sum_of_shares(at: Invocation, place: Place) -> f32 {
    if (!HAS_WEIGHT && !HAS_PROBABILITIES) {
        return params.options.y * f32(params.dim);
    }
    // Chains of 16 on each level.
    var sums = vec4<f32>();
    var above = vec4<f32>();
    var top = vec4<f32>();
    var added = 0u;
    for (var k = 0u; column_of(at, k) < place.dim; k++) {
        let first = column_of(at, k);
        let shares = class_shares(place, first, min(place.dim - first, 4u));
        sums = sums + select(vec4<f32>(), shares, columns(first) < vec4<u32>(place.dim));
        added += 1u;
        if (added % 16u == 0u) {
            above = above + sums;
            sums = vec4<f32>();
            if (added % 256u == 0u) {
                top = top + above;
                above = vec4<f32>();
            }
        }
    }
    let mine = (sums + above) + top;
    return team_sum(at, (mine.x + mine.y) + (mine.z + mine.w));
}

// Whether x - about is NaN: either is, or both are the same infinity.
fn are_not_numbers(x: vec4<f32>, about: f32) -> vec4<bool> {
    let infinity = vec4<u32>(0x7f800000u);
    let bits = bitcast<vec4<u32>>(x);
    let of_about = vec4<u32>(bitcast<u32>(about));
    let has_nan = ((bits & vec4<u32>(0x7fffffffu)) > infinity) | ((of_about & vec4<u32>(0x7fffffffu)) > infinity);
    return has_nan | ((bits == of_about) & ((of_about & vec4<u32>(0x7fffffffu)) == infinity));
}
