// The gradient of the weight: sums over samples and positions for each channel and tap. Each workgroup leaves the unrounded sums of some strips in
// partials [parts][channels][rows of the kernel][columns of the kernel]. conv_depthwise_weight_columns.wgsl and conv_depthwise_weight_channels.wgsl say
// what the sum of one tap is (Sum), and how a thread adds to the sums of one kernel row (Taps) and leaves them.
alias Taps = array<Sum, MOST_TAPS>;
alias Sums = array<Taps, MOST_TAPS>;

// Quads of dy in the last output rows: entry i is that of i rows before the last.
alias Rows = array<Strip, MOST_TAPS>;

// For column_sums.wgsl: threads side by side have different channels.
const COLUMN_QUADS: u32 = LANES;

// The sum over the threads that have the same lane. Every thread of the workgroup takes part.
fn workers_sum(thread: u32, value: vec4<f32>) -> vec4<f32> {
    let sum = sum_over_lanes(thread, value);
    workgroupBarrier();
    return sum;
}

fn plus_tap(sum: Sum, tap: u32, dy: vec4<f32>, window: vec4<f32>) -> Sum {
    if (tap < KERNEL_COLUMNS) {
        return plus_products(sum, dy, window);
    }
    return sum;
}

// The sums of a kernel row plus the products of one quad of dy with its windows.
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

// The sums of kernel row `row` plus the products of row `index` of the gathered factor with the output row that meets it there, if that row belongs to
// the strip.
fn plus_kernel_row(sums: Taps, place: Place, row: u32, index: u32, dy: Strip, windows: DyWindows) -> Taps {
    if (row < KERNEL_ROWS && index - row < place.rows) {
        return plus_strip(sums, place, dy, windows);
    }
    return sums;
}

fn plus_row(sums: Sums, place: Place, row: Row, dy: Rows, index: u32) -> Sums {
    let windows = dy_windows(place, row);
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

// A quad of dy in an output row of a strip, or zeros.
fn dy_quad(place: Place, quad: u32, at: u32, is_there: bool) -> vec4<f32> {
    let column = quad * QUAD_COLUMNS;
    if (is_there && quad < STRIP && place.column + column < params.columns) {
        return dy_line(at + column * params.out.column, params.out_n, quad_count(place, place.column + column));
    }
    return vec4<f32>();
}

fn dy_row(place: Place, at: u32, index: u32) -> Strip {
    let is_there = index < place.rows;
    let row = at + index * params.out.row;
    return Strip(
        dy_quad(place, 0u, row, is_there),
        dy_quad(place, 1u, row, is_there),
        dy_quad(place, 2u, row, is_there),
        dy_quad(place, 3u, row, is_there),
    );
}

@compute @workgroup_size(WORKGROUP)
fn conv_depthwise_weight(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    // 1. The strips of this thread, one after the other.
    var sums = Sums();
    for (var round = 0u; round < params.rounds; round++) {
        let place = place_of(workgroup, thread, round);
        if (place.is_there) {
            let at = start_of(place, params.out);
            // One row of both factors at a time, while the next rows are being loaded.
            let seen = rows_seen(place);
            var next = seen_row(place, 0u);
            var next_dy = dy_row(place, at, 0u);
            var rows = Rows();
            for (var index = 0u; index < seen; index++) {
                let row = next;
                rows = Rows(next_dy, rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]);
                next = seen_row(place, index + 1u);
                next_dy = dy_row(place, at, index + 1u);
                sums = plus_row(sums, place, row, rows, index);
            }
        }
    }
    // 2. The sums of the workgroup.
    let tile = workgroup % params.tiles * LANES + thread % LANES;
    leave_sums(thread, workgroup / params.tiles * params.part_length, tile * QUAD_CHANNELS, sums);
}
