// What forward and backward of LocalResponseNorm share: d = k + alpha / size * sum of x^2, and its powers.

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

// d^-beta of a window, and x / d as `ratio`.
struct Reduced {
    power: Value,
    ratio: Value,
}

// 1 / sqrt(value), one Newton step after the built-in one, for normal numbers, infinity and NaN.
fn reciprocal_root_of_normal(value: Value) -> Value {
    let first = inverseSqrt(value);
    let refined = first + 0.5 * first * (1.0 - (value * first) * first);
    return select(refined, Value(), bits_of(value) == bits_of(Value(bitcast<f32>(INFINITY_BITS))));
}

// ROOTS: beta is 0.5, 0.75 or 1 and k a normal number, so that d is one or infinite. Products with 1 / sqrt(d) twice reach further than
// one with 1 / d.
fn reduce(sum: Value, x: Value) -> Reduced {
    let d = params.scale * sum + params.k;
    if (ROOTS) {
        let root = reciprocal_root_of_normal(d);
        var factor = root;
        if (params.half_powers == 3u) {
            // Infinite d: the root is 0 and so is its own.
            factor = select(root * reciprocal_root_of_normal(root), root, bits_of(root) == bits_of(Value()));
        } else if (params.half_powers == 1u) {
            factor = Value(1.0);
        }
        return Reduced(root * factor, (x * root) * root);
    }
    return Reduced(powers_of(d), x / d);
}
