// What forward and backward of LocalResponseNorm share: d = k + alpha / size * sum of x^2, and its powers.

const AFTER: u32 = SIZE - SIZE / 2u - 1u; // channels of a window behind its own

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

// d^-beta of a window, and its root 1 / sqrt(d). Gradients have products x x' / d of two elements of a window; they multiply each of the two with
// the root: |x| root is at most 1 / sqrt(params.scale), whereas x / d is no normal number for large x.
struct Reduced {
    power: Value,
    root: Value,
}

// 1 / sqrt(value) of a normal number, infinity or NaN, by a Newton step after inverseSqrt.
fn reciprocal_root_of_normal(value: Value) -> Value {
    let first = inverseSqrt(value);
    let refined = first + 0.5 * first * (1.0 - (value * first) * first);
    return select(refined, Value(), bits_of(value) == bits_of(Value(bitcast<f32>(INFINITY_BITS))));
}

// ROOTS: beta is 0.5, 0.75 or 1, and k is a normal number, so that d is normal or infinite.
fn reduce(sum: Value) -> Reduced {
    let d = params.scale * sum + params.k;
    let root = reciprocal_root_of_normal(d);
    if (ROOTS) {
        var factor = root;
        if (params.half_powers == 3u) {
            // If d is infinite, the root is 0, and so is the result.
            factor = select(root * reciprocal_root_of_normal(root), root, bits_of(root) == bits_of(Value()));
        } else if (params.half_powers == 1u) {
            factor = Value(1.0);
        }
        return Reduced(root * factor, root);
    }
    return Reduced(powers_of(d), root);
}
