// The gradient of the weight, sums over samples and positions for each channel and tap: unrounded sums of a part of them, to partials
// [parts][channels][rows of the kernel][columns of the kernel]. What the threads of a workgroup have for a channel meets in a tree.

// Quads of dy in the last output rows: entry i is that of i rows ago.
alias Rows = array<Strip, MOST_TAPS>;

var<workgroup> lane_sums: array<vec4<f32>, WORKGROUP>;

// The sum over the threads that have the same lane, in those of the first worker. Every thread of the workgroup takes part.
fn workers_sum(thread: u32, value: vec4<f32>) -> vec4<f32> {
    lane_sums[thread] = value;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= LANES; half = half >> 1u) {
        if (thread < half) {
            lane_sums[thread] += lane_sums[thread + half];
        }
        workgroupBarrier();
    }
    let sum = lane_sums[thread % LANES];
    workgroupBarrier();
    return sum;
}

// A quad of dy in an output row of a strip, or zeros.
fn dy_quad(place: Place, quad: u32, at: u32, is_there: bool) -> vec4<f32> {
    let column = quad * QUAD_COLUMNS;
    if (is_there && quad < STRIP && place.column + column < params.columns) {
        return dy_line(at + column * params.out_column, params.out_n, quad_count(place, place.column + column));
    }
    return vec4<f32>();
}

fn dy_row(place: Place, at: u32, index: u32) -> Strip {
    let is_there = index < place.rows;
    let row = at + index * params.out_row;
    return Strip(
        dy_quad(place, 0u, row, is_there),
        dy_quad(place, 1u, row, is_there),
        dy_quad(place, 2u, row, is_there),
        dy_quad(place, 3u, row, is_there),
    );
}

@compute @workgroup_size(WORKGROUP)
fn conv_depthwise_weight(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = workgroup.y * params.groups_x + workgroup.x;
    if (group >= params.groups) {
        return;
    }
    // 1. The strips of this thread, one after the other.
    var sums = Sums();
    for (var round = 0u; round < params.rounds; round++) {
        let place = place_of(group, thread, round);
        if (place.is_there) {
            let at = place.sample * params.out_sample + place.channel * params.out_channel + place.row * params.out_row
                + place.column * params.out_column;
            // A row of both factors at a time, while the next ones are on their way.
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
    // 2. Those of the workgroup.
    let tile = group % params.tiles * LANES + thread % LANES;
    leave_sums(thread, group / params.tiles * params.part_length, tile * CHANNELS, sums);
}
