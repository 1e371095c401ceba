// Held of values: one of their own type, f32: their sum or product, or the greatest or least, decided on the bits where NaN matters.
struct Held {
    total: vec4<f32>,
}

fn none() -> Held {
    return Held(literal(IDENTITY));
}

fn each(values: vec4<f32>) -> vec4<f32> {
    if (EACH == OF_MAGNITUDES) {
        return bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu));
    }
    if (EACH == OF_SQUARES) {
        return rounded(values * values);
    }
    return values;
}

fn both(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    if (COMBINE == ADD) {
        return x + y;
    }
    if (COMBINE == MULTIPLY) {
        return x * y;
    }
    if (COMBINE == GREATEST) {
        return unless_nan(unless_nan(max(x, y), y), x);
    }
    return unless_nan(unless_nan(min(x, y), y), x);
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
    return Held(vec4<f32>(bitcast<f32>(words.x)));
}

// What is stored of a result.
fn finished(x: Held, lane: u32) -> vec4<f32> {
    var total = vec4<f32>(x.total[lane]);
    if (IS_MEAN) {
        total = f_div(total, literal(params.count));
    }
    if (IS_ROOT) {
        total = f_sqrt(total);
    }
    return total;
}
