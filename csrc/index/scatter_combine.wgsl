// How what goes to one row of y is combined. Values are words: bits of f32, or integers of 32 bits. The functions `widened` and `narrowed` are made from the type of
// elements.
const ADD: u32 = 0u;
const MULTIPLY: u32 = 1u;
const LEAST: u32 = 2u;

// Values in the order in which the last counts: NaN is beyond every number. 0 and -0 are one.
fn order(bits: u32) -> u32 {
    var at = bits;
    if (IS_FLOAT) {
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            return 0xffffffffu;
        }
        at = select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
    } else if (IS_SIGNED) {
        at = bits ^ 0x80000000u;
    }
    return select(at, ~at, COMBINE == LEAST);
}

fn combined(x: u32, y: u32) -> u32 {
    if (COMBINE == ADD) {
        if (IS_FLOAT) {
            return bitcast<u32>(bitcast<f32>(x) + bitcast<f32>(y));
        }
        return x + y;
    }
    if (COMBINE == MULTIPLY) {
        if (IS_FLOAT) {
            return bitcast<u32>(bitcast<f32>(x) * bitcast<f32>(y));
        }
        return x * y;
    }
    return select(x, y, order(y) > order(x));
}

// Completes a unit of a row.
fn put_row(key: u32, place: Place, value: u32) {
    let at = key * params.key + place.y;
    var result = value;
    if (HAS_BASE) {
        result = combined(widened(y_bits(at)), value);
    }
    y_scatter(at, 1u, 1u, vec4<u32>(narrowed(result), 0u, 0u, 0u));
}

// Where a part keeps what it has of a run: `side` 0 where the run began before it, 1 where it begins in it.
fn kept(part: u32, side: u32, unit: u32) -> u32 {
    return (2u * part + side) * params.units + unit;
}
