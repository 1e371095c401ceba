// The gradient of the weight along the channels: a thread has a sum for each tap of four channels.
alias Taps = array<vec4<f32>, MOST_TAPS>;
alias Sums = array<Taps, MOST_TAPS>;

fn plus_tap(sum: vec4<f32>, tap: u32, dy: vec4<f32>, window: vec4<f32>) -> vec4<f32> {
    if (tap < KERNEL_COLUMNS) {
        return fma(dy, window, sum);
    }
    return sum;
}

// Nothing for columns beside the output: zeros of dy do not meet a NaN there.
fn plus_taps(sums: Taps, place: Place, quad: u32, dy: vec4<f32>, windows: Windows) -> Taps {
    if (quad < STRIP && place.column + quad < params.columns) {
        return Taps(
            plus_tap(sums[0], 0u, dy, windows[0]),
            plus_tap(sums[1], 1u, dy, windows[1]),
            plus_tap(sums[2], 2u, dy, windows[2]),
            plus_tap(sums[3], 3u, dy, windows[3]),
            plus_tap(sums[4], 4u, dy, windows[4]),
            plus_tap(sums[5], 5u, dy, windows[5]),
            plus_tap(sums[6], 6u, dy, windows[6]),
        );
    }
    return sums;
}

// The sums of kernel row `row` plus the products of row `index` of the gathered factor with the output row that meets it there, if that is one
// of the strip.
fn plus_kernel_row(
    sums: Taps,
    place: Place,
    row: u32,
    index: u32,
    dy: Strip,
    windows: array<Windows, MOST_QUADS>,
) -> Taps {
    if (row < KERNEL_ROWS && index - row < place.rows) {
        var next = plus_taps(sums, place, 0u, dy[0], windows[0]);
        next = plus_taps(next, place, 1u, dy[1], windows[1]);
        next = plus_taps(next, place, 2u, dy[2], windows[2]);
        return plus_taps(next, place, 3u, dy[3], windows[3]);
    }
    return sums;
}

fn plus_row(sums: Sums, place: Place, row: Row, dy: Rows, index: u32) -> Sums {
    let windows = strip_windows(place, row);
    return Sums(
        plus_kernel_row(sums[0], place, 0u, index, dy[0], windows),
        plus_kernel_row(sums[1], place, 1u, index, dy[1], windows),
        plus_kernel_row(sums[2], place, 2u, index, dy[2], windows),
        plus_kernel_row(sums[3], place, 3u, index, dy[3], windows),
        plus_kernel_row(sums[4], place, 4u, index, dy[4], windows),
        plus_kernel_row(sums[5], place, 5u, index, dy[5], windows),
        plus_kernel_row(sums[6], place, 6u, index, dy[6], windows),
    );
}

// Adds up one tap and stores it for the channels that there are.
fn leave_tap(thread: u32, at: u32, channel: u32, column: u32, tap: vec4<f32>) {
    if (column >= KERNEL_COLUMNS) {
        return;
    }
    let sums = workers_sum(thread, tap);
    if (thread < LANES) {
        for (var i = 0u; i < CHANNELS && channel + i < params.channels; i++) {
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

fn leave_sums(thread: u32, part: u32, channel: u32, sums: Sums) {
    let at = part + channel * (KERNEL_ROWS * KERNEL_COLUMNS);
    leave_row(thread, at, channel, 0u, sums[0]);
    leave_row(thread, at, channel, 1u, sums[1]);
    leave_row(thread, at, channel, 2u, sums[2]);
    leave_row(thread, at, channel, 3u, sums[3]);
    leave_row(thread, at, channel, 4u, sums[4]);
    leave_row(thread, at, channel, 5u, sums[5]);
    leave_row(thread, at, channel, 6u, sums[6]);
}
