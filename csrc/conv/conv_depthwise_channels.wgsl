// Forward and the gradient of the data, with quads along the channels. The weight of a workgroup's tile of channels is in workgroup memory: for four
// channels and a large kernel a thread has too few registers.

// [rows of the kernel, the last one first][columns][lanes]
var<workgroup> weights: array<vec4<f32>, KERNEL_ROWS * KERNEL_COLUMNS * LANES>;

// Where the weight of a thread's channels begins.
alias Weight = u32;

fn held_weight(workgroup: u32, thread: u32, place: Place) -> Weight {
    let tile = workgroup % params.tiles * LANES;
    for (var i = thread; i < KERNEL_ROWS * KERNEL_COLUMNS * LANES; i += WORKGROUP) {
        let tap = i / LANES;
        // Channels past the last are replaced by the last.
        let channels = vec4<u32>((tile + i % LANES) * QUAD_CHANNELS) + vec4<u32>(0u, 1u, 2u, 3u);
        let of_tap = params.weight_first
            + (KERNEL_ROWS - 1u - tap / KERNEL_COLUMNS) * params.weight_row
            + tap % KERNEL_COLUMNS * params.weight_column;
        let at = min(channels, vec4<u32>(params.channels - 1u)) * params.weight_channel + of_tap;
        weights[i] = vec4<f32>(weight_of(at.x), weight_of(at.y), weight_of(at.z), weight_of(at.w));
    }
    workgroupBarrier();
    return place.lane;
}

fn bias_from(place: Place) -> vec4<f32> {
    if (params.has_bias == 0u) {
        return vec4<f32>();
    }
    let channels = vec4<u32>(place.channel) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = min(channels, vec4<u32>(params.channels - 1u)) * params.bias_channel;
    return vec4<f32>(bias_of(at.x), bias_of(at.y), bias_of(at.z), bias_of(at.w));
}

fn plus_tap(sum: vec4<f32>, tap: u32, weight: u32, window: vec4<f32>) -> vec4<f32> {
    if (tap < KERNEL_COLUMNS) {
        return fma(weights[weight + tap * LANES], window, sum);
    }
    return sum;
}

fn plus_taps(sum: vec4<f32>, quad: u32, weight: u32, windows: Windows) -> vec4<f32> {
    if (quad >= STRIP) {
        return vec4<f32>();
    }
    var next = plus_tap(sum, 0u, weight, windows[0]);
    next = plus_tap(next, 1u, weight, windows[1]);
    next = plus_tap(next, 2u, weight, windows[2]);
    next = plus_tap(next, 3u, weight, windows[3]);
    next = plus_tap(next, 4u, weight, windows[4]);
    next = plus_tap(next, 5u, weight, windows[5]);
    return plus_tap(next, 6u, weight, windows[6]);
}

// The sums of an output row plus a row of the gathered factor times row `row` of the kernel, counted from the last row.
fn plus_kernel_row(sums: Strip, row: u32, weight: Weight, windows: array<Windows, MOST_QUADS>) -> Strip {
    if (row >= KERNEL_ROWS) {
        return Strip();
    }
    let of_row = weight + row * (KERNEL_COLUMNS * LANES);
    return Strip(
        plus_taps(sums[0], 0u, of_row, windows[0]),
        plus_taps(sums[1], 1u, of_row, windows[1]),
        plus_taps(sums[2], 2u, of_row, windows[2]),
        plus_taps(sums[3], 3u, of_row, windows[3]),
    );
}

fn plus_row(sums: Sums, place: Place, row: Row, weight: Weight) -> Sums {
    let windows = strip_windows(place, row);
    return Sums(
        plus_kernel_row(sums[1], 0u, weight, windows),
        plus_kernel_row(sums[2], 1u, weight, windows),
        plus_kernel_row(sums[3], 2u, weight, windows),
        plus_kernel_row(sums[4], 3u, weight, windows),
        plus_kernel_row(sums[5], 4u, weight, windows),
        plus_kernel_row(sums[6], 5u, weight, windows),
        plus_kernel_row(Strip(), 6u, weight, windows),
    );
}
