// Held of values: one of their own type. `held_numbers.wgsl` and `held_words.wgsl` say what is held of none, what becomes of each value, and how two become one.
struct Held {
    total: Values,
}

fn combine(x: Held, y: Held) -> Held {
    return Held(both(x.total, y.total));
}

// With the values that are there.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    return Held(both(held.total, select(none().total, each(values), are_there)));
}

fn pairs_turned(x: Held) -> Held {
    return Held(x.total.yxwz);
}

fn halves_turned(x: Held) -> Held {
    return Held(x.total.zwxy);
}

fn words_of(x: Held, lane: u32) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(x.total[lane]), 0u, 0u, 0u);
}

fn held_of(words: vec4<u32>) -> Held {
    return Held(bitcast<Values>(vec4<u32>(words.x)));
}
