// Sums over the chunks that a thread holds of a row or a group, of which some may be cut. Elements past the end of a chunk are 0.

// The chunks as they were read, and with UNPACKED their elements in f32, which take more registers and need no second conversion.
var<private> chunks: array<vec4<u32>, CHUNKS>;
var<private> values: array<vec4<f32>, select(1u, CHUNKS * QUADS, UNPACKED)>;

// The sum of the elements, or of their squares.
fn thread_sum(of_squares: bool) -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            let v = quad(chunks[k], part);
            if (UNPACKED) {
                values[k * QUADS + part] = v;
            }
            sum += select(v, v * v, of_squares);
        }
    }
    return add_up(sum);
}
