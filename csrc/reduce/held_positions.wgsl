// Held of values: the first of the greatest or of the least, as a key, and its position. Keys are in the order of the values; those of NaN are above all.
struct Held {
    key: vec4<u32>,
    position: vec4<u32>,
}

fn none() -> Held {
    return Held(vec4<u32>(), vec4<u32>(0xffffffffu));
}

fn combine(x: Held, y: Held) -> Held {
    let is_later = (y.key > x.key) | ((y.key == x.key) & (y.position < x.position));
    return Held(select(x.key, y.key, is_later), select(x.position, y.position, is_later));
}

// With the values that are there.
fn with_values(held: Held, values: Values, are_there: vec4<bool>, positions: vec4<u32>) -> Held {
    let given = Held(keys(values), positions);
    let later = combine(held, given);
    return Held(select(held.key, later.key, are_there), select(held.position, later.position, are_there));
}

fn pairs_turned(x: Held) -> Held {
    return Held(x.key.yxwz, x.position.yxwz);
}

fn halves_turned(x: Held) -> Held {
    return Held(x.key.zwxy, x.position.zwxy);
}

fn words_of(x: Held, lane: u32) -> vec4<u32> {
    return vec4<u32>(x.key[lane], x.position[lane], 0u, 0u);
}

fn held_of(words: vec4<u32>) -> Held {
    return Held(vec4<u32>(words.x), vec4<u32>(words.y));
}

// What is stored of a result, in two words.
fn finished(x: Held, lane: u32) -> vec2<u32> {
    return vec2<u32>(x.position[lane], 0u);
}
