// Held of numbers of f32: their sum or product, or the greatest or least, decided on the bits where NaN matters.
fn none() -> Held {
    return Held(literal(IDENTITY));
}

fn each(values: Values) -> Values {
    if (EACH == OF_MAGNITUDES) {
        return bitcast<Values>(bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu));
    }
    if (EACH == OF_SQUARES) {
        return rounded(values * values);
    }
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
        return unless_nan(unless_nan(max(x, y), y), x);
    }
    return unless_nan(unless_nan(min(x, y), y), x);
}

// What is stored of a result.
fn finished(x: Held, lane: u32) -> Values {
    var total = Values(x.total[lane]);
    if (IS_MEAN) {
        total = f_div(total, literal(params.count));
    }
    if (IS_ROOT) {
        total = f_sqrt(total);
    }
    return total;
}
