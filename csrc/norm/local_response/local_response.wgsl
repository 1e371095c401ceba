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

// 1 / sqrt(value) of a normal number or NaN, by a Newton step after inverseSqrt.
fn reciprocal_root_of_normal(value: Value) -> Value {
    let first = inverseSqrt(value);
    return first + 0.5 * first * (1.0 - (value * first) * first);
}

// NaN for infinity. Finite elements may have squares whose sum overflows, and a power of 0 would make zeros of them.
fn without_infinity(d: Value) -> Value {
    // The NaN is made from the bits, so that no compiler takes it for impossible.
    return select(d, bitcast<Value>(bits_of(d) | Bits(0x00400000u)), bits_of(d) == Bits(INFINITY_BITS));
}

// ROOTS: beta is 0.5, 0.75 or 1, and k is a normal number, so that d is normal or NaN.
fn reduce(sum: Value) -> Reduced {
    let d = without_infinity(params.scale * sum + params.k);
    let root = reciprocal_root_of_normal(d);
    if (ROOTS) {
        var factor = root;
        if (params.half_powers == 3u) {
            factor = root * reciprocal_root_of_normal(root);
        } else if (params.half_powers == 1u) {
            factor = Value(1.0);
        }
        return Reduced(root * factor, root);
    }
    return Reduced(powers_of(d), root);
}
