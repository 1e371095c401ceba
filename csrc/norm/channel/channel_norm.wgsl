// BatchNorm, GroupNorm and InstanceNorm forward: what all dispatches share; the CUDA kernels are those of channel_norm.cuh. A segment is one
// channel of one sample; a group is the segments that share statistics. Threads load and store chunks: 16 bytes of one tensor, or 8 bytes of
// 16-bit elements (common/half_fours).
struct Params {
    batch: u32,
    channels: u32,
    spatial: u32,
    groups: u32, // of a sample; the channels where they are groups
    x: vec3<u32>, // strides of batch, channel and spatial
    residual: vec3<u32>,
    y: vec3<u32>,
    eps: f32,
    momentum: f32, // the `weight` of running_after
    slices: u32, // parts of a segment, one for each team or workgroup
    group_channels: u32, // channels of a group
    group_segments: u32, // segments of a group
    group_parts: u32, // parts of a group whose moments lie in the workspace
    group_count: u32, // groups in all
    reciprocal_count: f32, // of the elements of a group
    unbiased: f32, // n / (n - 1)
    groups_x: u32, // workgroups in the first dimension of the grid
    column_blocks: u32, // channels last: workgroups beside each other
    slice_rows: u32, // channels last: rows of a slice, but for the last
    columns: u32, // gapless: chunks of a sample in a workgroup
}

@group(0) @binding(0) var<uniform> params: Params;

// (1 - m) running + m batch. `weight` is the smaller of m and 1 - m, whose rounding error is half a unit in its last place; its sign bit is
// set if it is 1 - m, -0 for m = 1.
fn running_after(weight: f32, running: f32, batch: f32) -> f32 {
    let small = abs(weight);
    let large = 1.0 - small;
    let is_kept = bitcast<u32>(weight) >= 0x80000000u;
    return select(large, small, is_kept) * running + select(small, large, is_kept) * batch;
}

fn parameter_elements() -> u32 {
    return params.channels;
}

struct Statistics {
    shift: f32, // the mean before correction
    correction: f32,
    rstd: f32,
    variance: f32,
}

fn statistics_in(words: vec4<f32>) -> Statistics {
    return Statistics(words.x, words.y, words.z, words.w);
}

fn finish_statistics(shift: f32, correction: f32, square: f32) -> Statistics {
    let variance = without_sign(square - correction * correction);
    return Statistics(shift, correction, reciprocal_sqrt_of_squares(variance + params.eps), variance);
}

// The group of a segment: the index of its statistics.
fn group_of(batch: u32, channel: u32) -> u32 {
    return select(batch * params.groups + channel / params.group_channels, channel, GROUPS_ARE_CHANNELS);
}

// The index of a slice's moments in the workspace, where those of a group lie side by side.
fn part_of(batch: u32, channel: u32, slice: u32) -> u32 {
    let segment = select(batch * params.channels + channel, channel * params.batch + batch, GROUPS_ARE_CHANNELS);
    return segment * params.slices + slice;
}

// The statistics of a segment: those of its group, or the running ones of its channel.
fn statistics_of(batch: u32, channel: u32) -> Statistics {
    return statistics_at(group_of(batch, channel), channel);
}

fn statistics_at(group: u32, channel: u32) -> Statistics {
    if (USES_RUNNING) {
        let variance = running_var_of(channel);
        return Statistics(running_mean_of(channel), 0.0, reciprocal_sqrt(variance + params.eps), variance);
    }
    return statistics_in(statistics_read(group));
}

// y of four normalised elements.
fn finish_quad(xhat: vec4<f32>, weight: vec4<f32>, bias: vec4<f32>, residual: vec4<f32>) -> vec4<f32> {
    var v = xhat;
    if (HAS_weight) {
        v = v * weight;
    }
    if (HAS_bias) {
        v = v + bias;
    }
    if (HAS_residual) {
        v = v + residual;
    }
    return activate(ACTIVATION, v);
}
