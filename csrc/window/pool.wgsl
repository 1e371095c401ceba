// Pooling: a thread takes a window, or LANES threads share one, whose elements they read one after another.
struct Params {
    parts: u32, // windows
    groups_x: u32,
    channels: u32,
    factor: u32, // the bits of what averages are multiplied with, if HAS_FACTOR
    axes: array<vec4<u32>, 6>, // of each axis input, output, kernel and stride; dilation, before and after
    strides: array<vec4<u32>, 8>, // of x, y, offsets and indices: sample, channel and two spatial extents; the last
}

@group(0) @binding(0) var<uniform> params: Params;

// What is known of some elements: of MAX the greatest key, the bits of its element and its number among those of the window; else their sum.
struct Held {
    key: u32,
    bits: u32,
    number: u32,
    sum: f32,
}

var<workgroup> held: array<Held, WORKGROUP>;

// A key in the order of the numbers, 0 and -0 alike; that of NaN is above all. Halves are the upper ones of a word.
fn key_of(bits: u32) -> u32 {
    let word = select(bits, bits << 16u, X_IS_HALF);
    let magnitude = word & 0x7fffffffu;
    let rising = select(word | 0x80000000u, ~word, word > magnitude && magnitude != 0u);
    return select(rising, 0xffffffffu, magnitude > INFINITY_BITS);
}

// The term of an element in the sum of its window.
fn term_of(value: f32) -> f32 {
    if (POOLING == NORM1) {
        return abs(value);
    }
    if (POOLING == NORM2) {
        return value * value;
    }
    return value;
}

// The root of a sum of squares. WGSL's own has no bound for 0 and infinity.
fn root_of(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    return select(sqrt(value), value, (bits & 0x7fffffffu) == 0u || bits >= 0x7f800000u);
}

// Of two the one with the greater key, of equals the first in the window.
fn greater(a: Held, b: Held) -> Held {
    if (b.number == NO_PLACE) {
        return a;
    }
    if (a.number == NO_PLACE || b.key > a.key || (b.key == a.key && b.number < a.number)) {
        return b;
    }
    return a;
}

@compute @workgroup_size(WORKGROUP)
fn pool(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let part = group * (WORKGROUP / LANES) + at.index / LANES;
    let lane = at.index % LANES;
    let is_there = part < params.parts;
    // 1. The window. Threads without one take the first, and store nothing.
    let of_d = axis_of(0u);
    let of_h = axis_of(1u);
    let of_w = axis_of(2u);
    let place = place_of(select(0u, part, is_there), vec3<u32>(of_d.output, of_h.output, of_w.output));
    let d = span_of(of_d, place.at.x);
    let h = span_of(of_h, place.at.y);
    let w = span_of(of_w, place.at.z);
    let rows = elements_of(h);
    let columns = elements_of(w);
    let elements = elements_of(d) * rows * columns;
    // 2. The elements of this thread, in the order of the window.
    var best = Held(0u, LOWEST_BITS, NO_PLACE, 0.0);
    var sum = PoolSum(0.0, 0.0, 0.0, 0u);
    var taken = 0u;
    for (var i = lane; i < elements; i += LANES) {
        let row = i / columns;
        let r2 = i - row * columns;
        let r0 = row / rows;
        let r1 = row - r0 * rows;
        let element = vec3<u32>(element_of(d, d.first + r0), element_of(h, h.first + r1), element_of(w, w.first + r2));
        let bits = x_bits(offset_of(0u, place, element));
        if (POOLING == MAX) {
            let key = key_of(bits);
            if (best.number == NO_PLACE || key > best.key) {
                best = Held(key, bits, i, 0.0);
            }
        } else {
            sum.chain += term_of(value_of(bits));
            taken += 1u;
            if (taken % CHAIN == 0u) {
                sum = ended(sum);
            }
        }
    }
    best.sum = total(sum);
    // 3. What all threads of the window have.
    if (LANES > 1u) {
        held[at.index] = best;
        workgroupBarrier();
        for (var half = LANES / 2u; half > 0u; half = half >> 1u) {
            if (lane < half) {
                let other = held[at.index + half];
                if (POOLING == MAX) {
                    held[at.index] = greater(held[at.index], other);
                } else {
                    held[at.index].sum = held[at.index].sum + other.sum;
                }
            }
            workgroupBarrier();
        }
        best = held[at.index];
    }
    if (lane > 0u || !is_there) {
        return;
    }
    // 4. What becomes of it.
    let y_at = offset_of(1u, place, place.at);
    if (POOLING == MAX) {
        put_y(y_at, best.bits);
        var offset = 0u;
        var index = vec2<u32>(0xffffffffu);
        if (elements > 0u) {
            let row = best.number / columns;
            let plane = row / rows;
            let r0 = d.first + plane;
            let r1 = h.first + (row - plane * rows);
            let r2 = w.first + (best.number - row * columns);
            offset = (r0 * h.places + r1) * w.places + r2;
            index = vec2<u32>((element_of(d, r0) * of_h.input + element_of(h, r1)) * of_w.input + element_of(w, r2), 0u);
        }
        put_offset(offset_of(2u, place, place.at), offset);
        put_index(2u * offset_of(3u, place, place.at), index);
    } else if (POOLING == AVERAGE) {
        put_y(y_at, bits_of(best.sum * share_of(d, h, w)));
    } else if (POOLING == NORM2) {
        put_y(y_at, bits_of(root_of(best.sum)));
    } else {
        put_y(y_at, bits_of(best.sum));
    }
}
