// The gradient of the weight, with quads along the channels. A thread has a sum for each tap of four channels.
alias Sum = vec4<f32>;

fn plus_products(sum: Sum, dy: vec4<f32>, window: vec4<f32>) -> Sum {
    return fma(dy, window, sum);
}

// Adds nothing for columns beyond the output: dy is 0 there, and times a NaN of the image it would be NaN.
fn plus_quad(sums: Taps, place: Place, quad: u32, dy: vec4<f32>, windows: Windows) -> Taps {
    if (quad < STRIP && place.column + quad < params.columns) {
        return plus_taps(sums, dy, windows);
    }
    return sums;
}

// What the quads of a strip of dy are multiplied with.
alias DyWindows = array<Windows, MOST_QUADS>;

fn dy_windows(place: Place, row: Row) -> DyWindows {
    return strip_windows(place, row);
}

fn plus_strip(sums: Taps, place: Place, dy: Strip, windows: DyWindows) -> Taps {
    var next = plus_quad(sums, place, 0u, dy[0], windows[0]);
    next = plus_quad(next, place, 1u, dy[1], windows[1]);
    next = plus_quad(next, place, 2u, dy[2], windows[2]);
    return plus_quad(next, place, 3u, dy[3], windows[3]);
}

// Adds up one tap over the workgroup and stores it for the channels that exist.
fn leave_tap(thread: u32, at: u32, channel: u32, column: u32, tap: vec4<f32>) {
    if (column >= KERNEL_COLUMNS) {
        return;
    }
    let sums = workers_sum(thread, tap);
    if (thread < LANES) {
        for (var i = 0u; i < QUAD_CHANNELS && channel + i < params.channels; i++) {
            partials_put(at + i * (KERNEL_ROWS * KERNEL_COLUMNS) + column, sums[i]);
        }
    }
}

fn leave_row(thread: u32, at: u32, channel: u32, row: u32, taps: Taps) {
    if (row < KERNEL_ROWS) {
        let of_row = at + row * KERNEL_COLUMNS;
        leave_tap(thread, of_row, channel, 0u, taps[0]);
        leave_tap(thread, of_row, channel, 1u, taps[1]);
        leave_tap(thread, of_row, channel, 2u, taps[2]);
        leave_tap(thread, of_row, channel, 3u, taps[3]);
        leave_tap(thread, of_row, channel, 4u, taps[4]);
        leave_tap(thread, of_row, channel, 5u, taps[5]);
        leave_tap(thread, of_row, channel, 6u, taps[6]);
    }
}
