// Form direct: a thread owns an element and reads its whole window, in tensors of any strides.

// The sample, the channel and the position of element i, in the order in which threads are numbered.
fn element_place(i: u32) -> vec3<u32> {
    if (params.is_last == 1u) {
        let row = i / params.channels;
        return vec3<u32>(row / params.spatial, i % params.channels, row % params.spatial);
    }
    let row = i / params.spatial;
    return vec3<u32>(row / params.channels, row % params.channels, i % params.spatial);
}

fn offset_of(place: vec3<u32>, strides: vec3<u32>) -> u32 {
    return place.x * strides.x + place.y * strides.y + place.z * strides.z;
}

// The first channel of the window that begins `before` channels before c, and the channel past its last one.
fn window_of(c: u32, before: u32) -> vec2<u32> {
    return vec2<u32>(c - min(c, before), min(c + (params.size - before), params.channels));
}

// A long sum in short chains of additions: 16 terms are a part, and 16 parts are added to the total. So up to 4096 terms make at most 16 additions in a row
// on each of three levels.
struct LongSum {
    part: f32,
    parts: f32,
    total: f32,
}

// The sum with one more term, before which `added` were added.
fn add_up(sum: LongSum, term: f32, added: u32) -> LongSum {
    var after = sum;
    after.part += term;
    if (added % 16u == 15u) {
        after.parts += after.part;
        after.part = 0.0;
    }
    if (added % 256u == 255u) {
        after.total += after.parts;
        after.parts = 0.0;
    }
    return after;
}

// The sum of squares over the window of an element.
fn sum_of_squares(place: vec3<u32>) -> f32 {
    let all = window_of(place.y, params.before);
    let start = offset_of(vec3<u32>(place.x, 0u, place.z), params.x);
    var sum = LongSum(0.0, 0.0, 0.0);
    for (var c = all.x; c < all.y; c++) {
        let v = x_of(start + c * params.x.y);
        sum = add_up(sum, v * v, c - all.x);
    }
    return (sum.part + sum.parts) + sum.total;
}
