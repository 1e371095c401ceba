// The gradient of the weight, with quads along the columns. A workgroup has one channel, and a thread has a sum for each of its taps.
alias Sum = f32;

fn plus_products(sum: Sum, dy: vec4<f32>, window: vec4<f32>) -> Sum {
    return fma(dy.w, window.w, fma(dy.z, window.z, fma(dy.y, window.y, fma(dy.x, window.x, sum))));
}

// What the one quad of a strip of dy is multiplied with.
alias DyWindows = Windows;

// Zeros for columns beyond the output: dy is 0 there, and times a NaN of the image it would be NaN.
fn dy_windows(place: Place, row: Row) -> DyWindows {
    let windows = strip_windows(place, row)[0];
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

fn plus_strip(sums: Taps, place: Place, dy: Strip, windows: DyWindows) -> Taps {
    return plus_taps(sums, dy[0], windows);
}

// Adds up four taps of a kernel row over the workgroup, from column `first` on, and stores those that the kernel has.
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

fn leave_row(thread: u32, at: u32, channel: u32, row: u32, taps: Taps) {
    if (row < KERNEL_ROWS) {
        leave_taps(thread, at + row * KERNEL_COLUMNS, 0u, vec4<f32>(taps[0], taps[1], taps[2], taps[3]));
        leave_taps(thread, at + row * KERNEL_COLUMNS, 4u, vec4<f32>(taps[4], taps[5], taps[6], 0.0));
    }
}
