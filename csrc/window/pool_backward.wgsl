// The gradient of pooling: a thread takes an element of dx, and gathers from the windows that see it, one after another.
struct Params {
    parts: u32, // elements of dx
    groups_x: u32,
    channels: u32,
    factor: u32, // the bits of what averages are multiplied with, if HAS_FACTOR
    axes: array<vec4<u32>, 6>, // of each axis input, output, kernel and stride; dilation, before and after
    strides: array<vec4<u32>, 10>, // of dy, offsets, x, y and dx: sample, channel and two spatial extents; the last
}

@group(0) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn pool_backward(at: Invocation) {
    let number = (at.workgroup.y * params.groups_x + at.workgroup.x) * WORKGROUP + at.index;
    if (number >= params.parts) {
        return;
    }
    // 1. The windows that see the element.
    let of_d = axis_of(0u);
    let of_h = axis_of(1u);
    let of_w = axis_of(2u);
    let place = place_of(number, vec3<u32>(of_d.input, of_h.input, of_w.input));
    let range_d = seen_by(of_d, place.at.x);
    let range_h = seen_by(of_h, place.at.y);
    let range_w = seen_by(of_w, place.at.z);
    // 2. What they give.
    var sum = PoolSum(0.0, 0.0, 0.0, 0u);
    var taken = 0u;
    for (var od = range_d.x; od < range_d.y; od++) {
        let d = span_of(of_d, od);
        let place_d = place_in(d, place.at.x);
        if (place_d == NO_PLACE) {
            continue;
        }
        for (var oh = range_h.x; oh < range_h.y; oh++) {
            let h = span_of(of_h, oh);
            let place_h = place_in(h, place.at.y);
            if (place_h == NO_PLACE) {
                continue;
            }
            for (var ow = range_w.x; ow < range_w.y; ow++) {
                let w = span_of(of_w, ow);
                let place_w = place_in(w, place.at.z);
                if (place_w == NO_PLACE) {
                    continue;
                }
                let output = vec3<u32>(od, oh, ow);
                let gradient = value_of(dy_bits(offset_of(0u, place, output)));
                if (POOLING == MAX) {
                    if (offset_at(offset_of(1u, place, output)) == (place_d * h.places + place_h) * w.places + place_w) {
                        sum.chain += gradient;
                    }
                } else if (POOLING == AVERAGE) {
                    sum.chain += gradient * share_of(d, h, w);
                } else if (POOLING == NORM2) {
                    let y = y_at(offset_of(3u, place, output));
                    if ((bitcast<u32>(y) & 0x7fffffffu) != 0u) {
                        sum.chain += gradient / y;
                    }
                } else {
                    sum.chain += gradient;
                }
                taken += 1u;
                if (taken % CHAIN == 0u) {
                    sum = ended(sum);
                }
            }
        }
    }
    // 3. What becomes of it.
    var result = total(sum);
    if (POOLING == NORM1 || POOLING == NORM2) {
        let own = x_at(offset_of(2u, place, place.at));
        let bits = bitcast<u32>(own);
        let magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) {
            result = own;
        } else if (POOLING == NORM2) {
            result = result * own;
        } else if (magnitude == 0u) {
            // A product with 0, of which compilers may assume that it is 0.
            let of_sum = bitcast<u32>(result);
            let no_number = bitcast<f32>(0x7fc00000u | (of_sum & 0x80000000u));
            result = select(0.0, no_number, (of_sum & 0x7fffffffu) >= 0x7f800000u);
        } else if (bits > magnitude) {
            result = -result;
        }
    }
    put_dx(offset_of(4u, place, place.at), bits_of(result));
}
