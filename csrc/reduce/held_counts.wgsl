// Held of values: how many are not 0, or how many are.
struct Held {
    count: vec4<u32>,
}

fn none() -> Held {
    return Held(vec4<u32>());
}

fn combine(x: Held, y: Held) -> Held {
    return Held(x.count + y.count);
}

// With the values that are there. NONZERO_BITS are those of a value that tell it from 0, whose sign does not.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    let are_zero = (bitcast<vec4<u32>>(values) & vec4<u32>(NONZERO_BITS)) == vec4<u32>();
    let are_counted = are_there & (are_zero == vec4<bool>(EACH == OF_ZEROS));
    return Held(held.count + select(vec4<u32>(), vec4<u32>(1u), are_counted));
}

fn pairs_turned(x: Held) -> Held {
    return Held(x.count.yxwz);
}

fn halves_turned(x: Held) -> Held {
    return Held(x.count.zwxy);
}

fn words_of(x: Held, lane: u32) -> vec4<u32> {
    return vec4<u32>(x.count[lane], 0u, 0u, 0u);
}

fn held_of(words: vec4<u32>) -> Held {
    return Held(vec4<u32>(words.x));
}

// What is stored of a result, in two words.
fn finished(x: Held, lane: u32) -> vec2<u32> {
    let count = x.count[lane];
    return vec2<u32>(select(count, select(0u, 1u, count == 0u), IS_NONE), 0u);
}
