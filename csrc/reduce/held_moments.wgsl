// Held of values: their number, their mean, and the sum of the squares of differences from it. Parts are merged as in T. F. Chan, G. H. Golub, R. J. LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
struct Held {
    count: vec4<f32>,
    mean: vec4<f32>,
    squares: vec4<f32>,
}

fn none() -> Held {
    return Held(vec4<f32>(), vec4<f32>(), vec4<f32>());
}

// The share of y is 1 where x holds nothing: a quotient near it would move the mean. Where both hold nothing it does not count.
fn combine(x: Held, y: Held) -> Held {
    let count = x.count + y.count;
    let share = select(y.count / max(count, vec4<f32>(1.0)), vec4<f32>(1.0), x.count == vec4<f32>());
    let apart = rounded(y.mean - x.mean);
    let moved = rounded(apart * share);
    let squares = rounded(apart * rounded(apart * (x.count * share)));
    return Held(count, x.mean + moved, (x.squares + y.squares) + squares);
}

// With the values that are there.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    let more = combine(held, Held(vec4<f32>(1.0), values, vec4<f32>()));
    return Held(
        select(held.count, more.count, are_there),
        select(held.mean, more.mean, are_there),
        select(held.squares, more.squares, are_there),
    );
}

fn pairs_turned(x: Held) -> Held {
    return Held(x.count.yxwz, x.mean.yxwz, x.squares.yxwz);
}

fn halves_turned(x: Held) -> Held {
    return Held(x.count.zwxy, x.mean.zwxy, x.squares.zwxy);
}

fn words_of(x: Held, lane: u32) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(x.count[lane]), bitcast<u32>(x.mean[lane]), bitcast<u32>(x.squares[lane]), 0u);
}

fn held_of(words: vec4<u32>) -> Held {
    let parts = bitcast<vec4<f32>>(words);
    return Held(vec4<f32>(parts.x), vec4<f32>(parts.y), vec4<f32>(parts.z));
}

// What is stored of a result: NaN if a value was infinite or NaN, as the mean then is.
fn finished(x: Held, lane: u32) -> vec4<f32> {
    var total = f_div(vec4<f32>(x.squares[lane]), literal(params.count));
    if (IS_ROOT) {
        total = f_sqrt(total);
    }
    let mean = bitcast<u32>(x.mean[lane]) & 0x7fffffffu;
    return select(total, literal(0x7fc00000u), vec4<bool>(mean >= 0x7f800000u));
}
