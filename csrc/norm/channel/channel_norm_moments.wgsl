// Sums over the chunks that a thread holds of a group, whose elements are counted as they are loaded.
var<private> counts: array<u32, CHUNKS>;

// The sums of the differences from `shift` and of their squares.
fn thread_moments(shift: f32) -> vec2<f32> {
    var sums = mat2x4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        sums = with_moments(sums, k, counts[k], shift);
    }
    return vec2<f32>(add_up(sums[0]), add_up(sums[1]));
}
