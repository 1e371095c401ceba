// Held of values: one of their own type, 32-bit integers, which wrap: their sum or product, or the greatest or least.
struct Held {
    total: Values,
}

fn none() -> Held {
    return Held(bitcast<Values>(vec4<u32>(IDENTITY)));
}

fn both(x: Values, y: Values) -> Values {
    if (COMBINE == ADD) {
        return x + y;
    }
    if (COMBINE == MULTIPLY) {
        return x * y;
    }
    if (COMBINE == GREATEST) {
        return max(x, y);
    }
    return min(x, y);
}

fn combine(x: Held, y: Held) -> Held {
    return Held(both(x.total, y.total));
}

// With the values that are there.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    return Held(both(held.total, select(none().total, values, are_there)));
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

// What is stored of a result, in two words.
fn finished(x: Held, lane: u32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x.total[lane]), 0u);
}
