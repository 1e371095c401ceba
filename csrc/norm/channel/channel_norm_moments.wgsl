// Sums over the chunks that a thread holds of a group, whose elements are counted as they are loaded.
var<private> counts: array<u32, CHUNKS>;

// The sums of the differences from `shift` and of their squares.
fn thread_moments(shift: f32) -> vec2<f32> {
    var sum = vec4<f32>();
    var square = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            // What lies past the end of a chunk is 0 and stays so.
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
