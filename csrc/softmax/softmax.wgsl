// Softmax and log-softmax forward: parameters, and what becomes of the four elements of a quad. Rows and channels differ in how lines lie in memory.
//
// t = scale * (x - extreme), y = exp(t) / sum(exp(t)), or t - log(sum(exp(t))).
// NEGATIVE: the scale is negative. Elements change their sign first and |scale| takes its place, so that the extreme is the largest element.
// LESSENED: |scale| is below 1. Elements are first multiplied by a power of two, `lessening`, so that they differ by a finite number if the scaled
// ones do; the scale is what is left of |scale|.
// SCALED: the scale is not 1. LONG_SCALE: it comes in two parts, the first of which has few enough bits for exact products.
// FLAT: the scale is 0 or almost 0, so that padding elements of -infinity would count and have to be left out.
struct Params {
    rows: u32, // rows; blocks of lines, where lines lie side by side
    dim: u32, // elements of a line
    inner: u32, // lines side by side in a block
    extent1: u32,
    extent2: u32,
    x: vec3<u32>,
    y: vec3<u32>,
    x_step: u32, // between the elements of a line; rows: 1
    y_step: u32,
    scale: f32,
    scale_rest: f32,
    slices: u32, // parts of a line: split, a workgroup takes one; rows_twice, it takes all, one after the other; 1 where a line is held whole
    groups_x: u32,
    columns: u32, // where lines lie side by side: chunks of a block
    rounds: u32, // rows that a team takes one after the other
    largest_trace: u32, // bits of the greatest trace of a line that has a result
    all_bits: u32, // all ones, which no compiler knows
    scale_log2: f32, // the scale over log(2)
    lessening: f32,
}

@group(0) @binding(0) var<uniform> params: Params;

// -infinity, which pads lines. It is computed, since WGSL has no constant for it.
fn least() -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(params.all_bits << 23u));
}

// Elements with their sign changed and lessened, as NEGATIVE and LESSENED say.
fn prepared(values: vec4<f32>) -> vec4<f32> {
    let upward = select(values, -values, NEGATIVE);
    if (LESSENED) {
        return upward * params.lessening;
    }
    return upward;
}

// Adds elements to a trace, which becomes NaN if an element is NaN and infinite if one is infinite, and stays finite for finite elements. It compares
// bits as integers: a sum would do as well, but compilers rearrange sums so that finite numbers overflow.
fn traced(trace: vec4<f32>, values: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(max(bitcast<vec4<u32>>(trace), bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)));
}

// The sums of a thread; NaN if its elements say that the line has no result.
fn with_trace(sums: vec4<f32>, trace: vec4<f32>) -> vec4<f32> {
    let has_none = (bitcast<vec4<u32>>(trace) & vec4<u32>(0x7fffffffu)) > vec4<u32>(params.largest_trace);
    return select(sums, not_numbers(sums), has_none);
}

// Infinite: the line has +infinity, or nothing but -infinity.
fn is_improper(most: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(most) & vec4<u32>(0x7fffffffu)) >= vec4<u32>(0x7f800000u);
}

// What is subtracted: the largest element, or 0 if that is infinite, so that exponentials stay numbers.
fn shift_of(most: vec4<f32>) -> vec4<f32> {
    return select(most, vec4<f32>(), is_improper(most));
}

// A thread's chunks of lines: the words that were read and, with UNPACKED, f32 values: first the elements, later what the outputs are computed from.
var<private> chunks: array<vec4<u32>, CHUNKS>;
var<private> values: array<vec4<f32>, select(1u, CHUNKS * QUADS, UNPACKED)>;

// t of the difference d, in two parts.
struct Scaled {
    high: vec4<f32>,
    low: vec4<f32>,
}

fn scaled(d: vec4<f32>) -> Scaled {
    if (!SCALED) {
        return Scaled(d, vec4<f32>());
    }
    if (!LONG_SCALE) {
        return Scaled(d * params.scale, vec4<f32>());
    }
    let short = bitcast<vec4<f32>>(bitcast<vec4<u32>>(d) & vec4<u32>(0xfffff000u));
    let low = (d - short) * params.scale + d * params.scale_rest;
    // An infinite d has no second part.
    let is_infinite = (bitcast<vec4<u32>>(d) & vec4<u32>(0x7fffffffu)) == vec4<u32>(0x7f800000u);
    return Scaled(short * params.scale, select(low, vec4<f32>(), is_infinite));
}

// exp(t) of the difference d.
fn weight_of(d: vec4<f32>) -> vec4<f32> {
    if (ELEMENTS == 8u) {
        return power_of_two(d * params.scale_log2);
    }
    let t = scaled(d);
    return exponential_of_sum(t.high, t.low);
}

// The factor that turns a sum about the shift of `most` into one about that of `larger`, which is no smaller; exactly 1 if they are equal.
fn kept_of(most: vec4<f32>, larger: vec4<f32>) -> vec4<f32> {
    let weight = select(weight_of(most - shift_of(larger)), vec4<f32>(), is_improper(most));
    return select(weight, vec4<f32>(1.0), most == larger);
}

// A line: what is subtracted, and 1 / sum or log(sum).
struct Line {
    shift: vec4<f32>,
    factor: vec4<f32>,
}

fn line_of(most: vec4<f32>, sums: vec4<f32>) -> Line {
    let proper = select(sums, not_numbers(sums), is_improper(most));
    var factor: vec4<f32>;
    if (LOG) {
        factor = logarithm(proper);
    } else {
        factor = 1.0 / proper;
    }
    return Line(shift_of(most), factor);
}

// y of the difference d.
fn result_of(d: vec4<f32>, line: Line) -> vec4<f32> {
    if (!LOG) {
        return weight_of(d) * line.factor;
    }
    let t = scaled(d);
    return t.high + (t.low - line.factor);
}
