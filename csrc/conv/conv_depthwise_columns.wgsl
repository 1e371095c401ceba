// Forward and the gradient of the data, with quads along the columns. A thread holds the weight of its channel in registers.
alias Taps = array<f32, MOST_TAPS>;
// Rows of the kernel, the last one first.
alias Weight = array<Taps, MOST_TAPS>;

fn weight_at(first: u32, row: u32, column: u32) -> f32 {
    if (row < KERNEL_ROWS && column < KERNEL_COLUMNS) {
        return weight_of(first + (KERNEL_ROWS - 1u - row) * params.weight_row + column * params.weight_column);
    }
    return 0.0;
}

fn taps_of(first: u32, row: u32) -> Taps {
    return Taps(
        weight_at(first, row, 0u),
        weight_at(first, row, 1u),
        weight_at(first, row, 2u),
        weight_at(first, row, 3u),
        weight_at(first, row, 4u),
        weight_at(first, row, 5u),
        weight_at(first, row, 6u),
    );
}

fn held_weight(workgroup: u32, thread: u32, place: Place) -> Weight {
    let first = params.weight_first + select(0u, place.channel, place.is_there) * params.weight_channel;
    return Weight(
        taps_of(first, 0u),
        taps_of(first, 1u),
        taps_of(first, 2u),
        taps_of(first, 3u),
        taps_of(first, 4u),
        taps_of(first, 5u),
        taps_of(first, 6u),
    );
}

fn bias_from(place: Place) -> vec4<f32> {
    if (params.has_bias == 0u) {
        return vec4<f32>();
    }
    return vec4<f32>(bias_of(place.channel * params.bias_channel));
}

fn plus_tap(sum: vec4<f32>, tap: u32, weight: f32, window: vec4<f32>) -> vec4<f32> {
    if (tap < KERNEL_COLUMNS) {
        return fma(vec4<f32>(weight), window, sum);
    }
    return sum;
}

fn plus_taps(sum: vec4<f32>, taps: Taps, windows: Windows) -> vec4<f32> {
    var next = plus_tap(sum, 0u, taps[0], windows[0]);
    next = plus_tap(next, 1u, taps[1], windows[1]);
    next = plus_tap(next, 2u, taps[2], windows[2]);
    next = plus_tap(next, 3u, taps[3], windows[3]);
    next = plus_tap(next, 4u, taps[4], windows[4]);
    next = plus_tap(next, 5u, taps[5], windows[5]);
    return plus_tap(next, 6u, taps[6], windows[6]);
}

// The sums of an output row plus a row of the gathered factor times row `row` of the kernel, counted from the last row.
fn plus_kernel_row(sums: Strip, row: u32, taps: Taps, windows: array<Windows, 2>) -> Strip {
    if (row >= KERNEL_ROWS) {
        return Strip();
    }
    return Strip(plus_taps(sums[0], taps, windows[0]), plus_taps(sums[1], taps, windows[1]), vec4<f32>(), vec4<f32>());
}

fn plus_row(sums: Sums, place: Place, row: Row, weight: Weight) -> Sums {
    let windows = strip_windows(place, row);
    return Sums(
        plus_kernel_row(sums[1], 0u, weight[0], windows),
        plus_kernel_row(sums[2], 1u, weight[1], windows),
        plus_kernel_row(sums[3], 2u, weight[2], windows),
        plus_kernel_row(sums[4], 3u, weight[3], windows),
        plus_kernel_row(sums[5], 4u, weight[4], windows),
        plus_kernel_row(sums[6], 5u, weight[5], windows),
        plus_kernel_row(Strip(), 6u, weight[6], windows),
    );
}
