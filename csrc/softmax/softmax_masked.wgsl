// Softmax and log-softmax of scale * x + bias under a causal mask: lines of any strides.
//
// t = scale * x + bias, -infinity at masked places; y = exp(t - max) / sum(exp(t - max)), or t - max - log(sum). A line of masked places alone has
// neither a maximum nor a sum, and is 0, or -infinity.
var<workgroup> flags_of_team: array<u32, WORKGROUP>;

// t of a thread's chunks, where HOLDS says that it keeps them.
var<private> held: array<vec4<f32>, HELD>;

// A line has no result if a place is NaN or +infinity.
const IMPROPER: u32 = 1u;

fn are_improper(values: vec4<f32>) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(values);
    return (bits & vec4<u32>(0x7fffffffu)) >= vec4<u32>(0x7f800000u) & (bits != vec4<u32>(0xff800000u));
}

fn are_nan(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

fn not_numbers_of_params() -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(params.all_bits & 0x7fc00000u));
}

// t of the elements from a column on.
fn computed(place: Place, first: u32) -> vec4<f32> {
    if (first >= place.visible) {
        return infinite();
    }
    let count = min(place.visible - first, 4u);
    let x = values_of(x_gather(place.first + first * params.steps.y, params.steps.y, count), X_IS_HALF);
    var t = x * params.scale;
    var has_nan = are_nan(x);
    if (HAS_BIAS) {
        let bias = values_of(bias_gather(place.second + first * params.steps.z, params.steps.z, count), BIAS_IS_HALF);
        t = t + bias;
        has_nan = has_nan | are_nan(bias);
    }
    t = select(t, not_numbers_of_params(), has_nan);
    return select(infinite(), t, columns(first) < vec4<u32>(place.visible));
}

fn t_of(at: Invocation, place: Place, k: u32) -> vec4<f32> {
    if (HOLDS) {
        return held[k];
    }
    return computed(place, column_of(at, k));
}

// exp(t - most), 0 at masked places.
fn weights_of(t: vec4<f32>, most: f32) -> vec4<f32> {
    return select(exponential(t - most), vec4<f32>(), are_masked(t));
}

@compute @workgroup_size(WORKGROUP)
fn softmax_masked(at: Invocation) {
    let place = place_of(at);
    // 1. The largest t of the line, and whether it has a result.
    var largest = vec4<f32>(LEAST);
    var improper = false;
    for (var k = 0u; k < ROUNDS; k++) {
        let t = computed(place, column_of(at, k));
        if (HOLDS) {
            held[k] = t;
        }
        let without = are_improper(t);
        improper = improper || any(without);
        largest = max(largest, select(t, vec4<f32>(LEAST), without | are_masked(t)));
    }
    tree[at.index] = max(max(largest.x, largest.y), max(largest.z, largest.w));
    flags_of_team[at.index] = select(0u, IMPROPER, improper);
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (at.index % THREADS < half) {
            tree[at.index] = max(tree[at.index], tree[at.index + half]);
            flags_of_team[at.index] = flags_of_team[at.index] | flags_of_team[at.index + half];
        }
        workgroupBarrier();
    }
    let leader = at.index - at.index % THREADS;
    let most = tree[leader];
    let is_improper = flags_of_team[leader] != 0u;
    // 2. The sum, in chains of 16 and what they add up to.
    var sums = vec4<f32>();
    var chain = vec4<f32>();
    for (var k = 0u; k < ROUNDS; k++) {
        chain = chain + weights_of(t_of(at, place, k), most);
        if (k % 16u == 15u) {
            sums = sums + chain;
            chain = vec4<f32>();
        }
    }
    sums = sums + chain;
    let sum = vec4<f32>(team_sum(at, (sums.x + sums.y) + (sums.z + sums.w)));
    // 3. The outputs.
    var factor = vec4<f32>();
    if (LOG) {
        factor = logarithm(sum);
    } else {
        factor = 1.0 / sum;
    }
    for (var k = 0u; k < ROUNDS; k++) {
        let first = column_of(at, k);
        if (first < place.dim) {
            let t = t_of(at, place, k);
            var y: vec4<f32>;
            if (LOG) {
                y = select((t - most) - factor, infinite(), are_masked(t));
            } else {
                y = select(weights_of(t, most) * factor, vec4<f32>(), are_masked(t));
            }
            let is_visible = columns(first) < vec4<u32>(place.visible);
            y = select(y, not_numbers_of_params(), is_visible & vec4<bool>(is_improper));
            let count = min(place.dim - first, 4u);
            y_scatter(place.output + first * params.steps.x, params.steps.x, count, chunk_of_values(y, Y_IS_HALF));
        }
    }
}
