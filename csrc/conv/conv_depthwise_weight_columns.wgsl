// The gradient of the weight along the columns: a thread has a sum for each tap of one channel, and a workgroup has one channel.
alias Taps = array<f32, MOST_TAPS>;
alias Sums = array<Taps, MOST_TAPS>;

fn plus_tap(sum: f32, tap: u32, dy: vec4<f32>, window: vec4<f32>) -> f32 {
    if (tap < KERNEL_COLUMNS) {
        return fma(dy.w, window.w, fma(dy.z, window.z, fma(dy.y, window.y, fma(dy.x, window.x, sum))));
    }
    return sum;
}

fn plus_taps(sums: Taps, dy: vec4<f32>, windows: Windows) -> Taps {
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

// Zeros for columns beside the output, where dy has zeros as well: they do not meet a NaN.
fn within_output(place: Place, windows: Windows) -> Windows {
    if (WHOLE_CHUNKS) {
        return windows;
    }
    let columns = vec4<u32>(place.column) + vec4<u32>(0u, 1u, 2u, 3u);
    let are_there = columns < vec4<u32>(params.columns);
    let zeros = vec4<f32>();
    return Windows(
        select(zeros, windows[0], are_there),
        select(zeros, windows[1], are_there),
        select(zeros, windows[2], are_there),
        select(zeros, windows[3], are_there),
        select(zeros, windows[4], are_there),
        select(zeros, windows[5], are_there),
        select(zeros, windows[6], are_there),
    );
}

// The sums of kernel row `row` plus the products of row `index` of the gathered factor with the output row that meets it there, if that is one
// of the strip.
fn plus_kernel_row(sums: Taps, place: Place, row: u32, index: u32, dy: Strip, windows: Windows) -> Taps {
    if (row < KERNEL_ROWS && index - row < place.rows) {
        return plus_taps(sums, dy[0], windows);
    }
    return sums;
}

fn plus_row(sums: Sums, place: Place, row: Row, dy: Rows, index: u32) -> Sums {
    let windows = within_output(place, strip_windows(place, row)[0]);
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

// Adds up four taps of a kernel row from column `first` on and stores those that the kernel has.
fn leave_taps(thread: u32, at: u32, first: u32, taps: vec4<f32>) {
    if (first >= KERNEL_COLUMNS) {
        return;
    }
    let sums = workers_sum(thread, taps);
    if (thread == 0u) {
        partials_put(at + first, sums.x);
        if (first + 1u < KERNEL_COLUMNS) {
            partials_put(at + first + 1u, sums.y);
        }
        if (first + 2u < KERNEL_COLUMNS) {
            partials_put(at + first + 2u, sums.z);
        }
        if (first + 3u < KERNEL_COLUMNS) {
            partials_put(at + first + 3u, sums.w);
        }
    }
}

fn leave_row(thread: u32, at: u32, row: u32, taps: Taps) {
    if (row < KERNEL_ROWS) {
        leave_taps(thread, at + row * KERNEL_COLUMNS, 0u, vec4<f32>(taps[0], taps[1], taps[2], taps[3]));
        leave_taps(thread, at + row * KERNEL_COLUMNS, 4u, vec4<f32>(taps[4], taps[5], taps[6], 0.0));
    }
}

fn leave_sums(thread: u32, part: u32, channel: u32, sums: Sums) {
    let at = part + channel * (KERNEL_ROWS * KERNEL_COLUMNS);
    leave_row(thread, at, 0u, sums[0]);
    leave_row(thread, at, 1u, sums[1]);
    leave_row(thread, at, 2u, sums[2]);
    leave_row(thread, at, 3u, sums[3]);
    leave_row(thread, at, 4u, sums[4]);
    leave_row(thread, at, 5u, sums[5]);
    leave_row(thread, at, 6u, sums[6]);
}
