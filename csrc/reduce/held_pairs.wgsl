// Held of values: the sum of 32-bit integers, in two words.
struct Held {
    low: vec4<u32>,
    high: vec4<u32>,
}

fn none() -> Held {
    return Held(vec4<u32>(), vec4<u32>());
}

fn combine(x: Held, y: Held) -> Held {
    let low = x.low + y.low;
    return Held(low, x.high + y.high + select(vec4<u32>(), vec4<u32>(1u), low < x.low));
}

// With the values that are there.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    let there = select(Values(), values, are_there);
    return combine(held, Held(bitcast<vec4<u32>>(there), select(vec4<u32>(), vec4<u32>(0xffffffffu), there < Values())));
}

fn pairs_turned(x: Held) -> Held {
    return Held(x.low.yxwz, x.high.yxwz);
}

fn halves_turned(x: Held) -> Held {
    return Held(x.low.zwxy, x.high.zwxy);
}

fn words_of(x: Held, lane: u32) -> vec4<u32> {
    return vec4<u32>(x.low[lane], x.high[lane], 0u, 0u);
}

fn held_of(words: vec4<u32>) -> Held {
    return Held(vec4<u32>(words.x), vec4<u32>(words.y));
}

// What is stored of a result, in two words.
fn finished(x: Held, lane: u32) -> vec2<u32> {
    return vec2<u32>(x.low[lane], x.high[lane]);
}
