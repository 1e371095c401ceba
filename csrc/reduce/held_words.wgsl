// Held of 32-bit integers, which wrap: their sum or product, or the greatest or least.
fn none() -> Held {
    return Held(bitcast<Values>(vec4<u32>(IDENTITY)));
}

fn each(values: Values) -> Values {
    return values;
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

// What is stored of a result, in two words.
fn finished(x: Held, lane: u32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x.total[lane]), 0u);
}
