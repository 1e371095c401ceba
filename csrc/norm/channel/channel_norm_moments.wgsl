// Sums over the chunks that a thread holds, of which some may be cut.

// The chunks as they were loaded, and with UNPACKED their elements in f32, which take more registers and need no second conversion.
var<private> chunks: array<vec4<u32>, CHUNKS>;
var<private> values: array<vec4<f32>, select(1u, CHUNKS * QUADS, UNPACKED)>;
var<private> counts: array<u32, CHUNKS>; // elements of each chunk

// Elements past the end of a chunk were loaded as 0.
fn thread_sum() -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            let v = quad(chunks[k], part);
            if (UNPACKED) {
                values[k * QUADS + part] = v;
            }
            sum += v;
        }
    }
    return add_up(sum);
}

// The sums of the differences from `shift` and of their squares.
fn thread_moments(shift: f32) -> vec2<f32> {
    var sum = vec4<f32>();
    var square = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            let shifts = within(shift, part, counts[k]);
            var d: vec4<f32>;
            if (UNPACKED) {
                d = values[k * QUADS + part] - shifts;
                values[k * QUADS + part] = d;
            } else {
                d = quad(chunks[k], part) - shifts;
            }
            sum += d;
            square += d * d;
        }
    }
    return vec2<f32>(add_up(sum), add_up(square));
}
