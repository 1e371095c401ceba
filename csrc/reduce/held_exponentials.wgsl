// Held of values: the greatest, and the sum of exponentials of differences from it; from 0 where it is infinite or NaN, as the result then is.
struct Held {
    most: vec4<f32>,
    sum: vec4<f32>,
}

fn are_finite(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)) < vec4<u32>(0x7f800000u);
}

fn none() -> Held {
    return Held(literal(0xff800000u), vec4<f32>());
}

// Of differences from the greatest, which are 0 or less; of -infinity 0.
fn power(values: vec4<f32>, most: vec4<f32>) -> vec4<f32> {
    let apart = values - select(vec4<f32>(), most, are_finite(most));
    return select(vec4<f32>(), rounded(natural_power(rounded(apart))), are_finite(values));
}

fn greatest(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return unless_nan(unless_nan(max(x, y), y), x);
}

fn combine(x: Held, y: Held) -> Held {
    let most = greatest(x.most, y.most);
    return Held(most, x.sum * power(x.most, most) + y.sum * power(y.most, most));
}

// With the values that are there.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    let there = select(literal(0xff800000u), values, are_there);
    let most = greatest(held.most, there);
    return Held(most, held.sum * power(held.most, most) + power(there, most));
}

fn pairs_turned(x: Held) -> Held {
    return Held(x.most.yxwz, x.sum.yxwz);
}

fn halves_turned(x: Held) -> Held {
    return Held(x.most.zwxy, x.sum.zwxy);
}

fn words_of(x: Held, lane: u32) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(x.most[lane]), bitcast<u32>(x.sum[lane]), 0u, 0u);
}

fn held_of(words: vec4<u32>) -> Held {
    return Held(vec4<f32>(bitcast<f32>(words.x)), vec4<f32>(bitcast<f32>(words.y)));
}

// What is stored of a result.
fn finished(x: Held, lane: u32) -> vec4<f32> {
    let most = vec4<f32>(x.most[lane]);
    return select(most, most + rounded(f_log(vec4<f32>(x.sum[lane]))), are_finite(most));
}
