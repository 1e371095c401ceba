// BatchNorm, GroupNorm and InstanceNorm backward: the kernels of channel_norm_backward.cuh. A segment is one channel of one sample; a
// group is the segments that share statistics. Threads move chunks of 16 bytes. `saved` is the residual, or forward's y.
struct Params {
    batch: u32,
    channels: u32,
    spatial: u32,
    groups: u32, // of a sample, or all channels
    dy: vec3<u32>, // strides of batch, channel and spatial
    x: vec3<u32>,
    residual: vec3<u32>,
    y: vec3<u32>,
    dx: vec3<u32>,
    dresidual: vec3<u32>,
    eps: f32,
    slices: u32, // parts of a segment, each one team's or workgroup's
    sum_slices: u32, // the same in the dispatch that sums
    group_channels: u32, // channels of a group
    group_segments: u32, // segments of a group
    group_parts: u32, // sums of a group in the workspace
    group_count: u32, // groups in all
    reciprocal_count: f32, // of the elements of a group
    groups_x: u32,
    column_blocks: u32, // channels last: workgroups beside each other
    slice_rows: u32, // channels last: elements of a segment in a slice, but for the last
    columns: u32, // whole channels that chunks divide only together: their chunks in a sample
    first_group: u32, // resident: the number of the first workgroup
}

@group(0) @binding(0) var<uniform> params: Params;

// Strides of `saved`.
fn saved_strides() -> vec3<u32> {
    if (SAVED_IS_Y) {
        return params.y;
    }
    return params.residual;
}

// Where a segment's statistics are among those of all groups.
fn group_of(batch: u32, channel: u32) -> u32 {
    return select(batch * params.groups + channel / params.group_channels, channel, GROUPS_ARE_CHANNELS);
}

// Where a slice's sums lie in the workspace: those of a group follow each other.
fn part_of(batch: u32, channel: u32, slice: u32) -> u32 {
    let segment = select(batch * params.channels + channel, channel * params.batch + batch, GROUPS_ARE_CHANNELS);
    return segment * params.sum_slices + slice;
}

fn statistics_of_group(group: u32) -> vec2<f32> {
    return vec2<f32>(mean_of(group), rstd_of(group));
}

// Mean and rstd of a segment: those of its group, or from the running ones of its channel.
fn statistics_of(batch: u32, channel: u32) -> vec2<f32> {
    if (USES_RUNNING) {
        return vec2<f32>(running_mean_of(channel), reciprocal_sqrt(running_var_of(channel) + params.eps));
    }
    return statistics_of_group(group_of(batch, channel));
}

// The means of g and of g * xhat over a segment's group, where dx takes them, its mean and its rstd.
fn means_of(batch: u32, channel: u32) -> vec4<f32> {
    if (!HAS_MEANS) {
        return vec4<f32>(0.0, 0.0, statistics_of(batch, channel));
    }
    return means_read(group_of(batch, channel));
}

// The gradient of the pre-activation. With y at hand its sign decides, which is that of the pre-activation.
fn pre_gradient(dy: vec4<f32>, xhat: vec4<f32>, saved: vec4<f32>, weight: vec4<f32>, bias: vec4<f32>) -> vec4<f32> {
    if (ACTIVATION == IDENTITY) {
        return dy;
    }
    if (SAVED_IS_Y) {
        return differentiate(ACTIVATION, dy, saved);
    }
    var pre = xhat;
    if (HAS_weight) {
        pre = pre * weight;
    }
    if (HAS_bias) {
        pre = pre + bias;
    }
    if (HAS_saved) {
        pre = pre + saved;
    }
    return differentiate(ACTIVATION, dy, pre);
}

// dx of a quad; `means` are those of g and of g * xhat over the group.
fn input_gradient(dpre: vec4<f32>, xhat: vec4<f32>, weight: vec4<f32>, rstd: vec4<f32>, mean_g: vec4<f32>, mean_product: vec4<f32>) -> vec4<f32> {
    var g = dpre;
    if (HAS_weight) {
        g = g * weight;
    }
    if (!USES_RUNNING) {
        g = g - (mean_g + xhat * mean_product);
    }
    return rstd * g;
}

// The means over a group, from its sums: of g where they are of dpre.
fn means_from(sums: vec2<f32>, group: u32) -> vec2<f32> {
    let means = sums * params.reciprocal_count;
    if (GROUPS_ARE_CHANNELS && HAS_weight) {
        return means * weight_of(group);
    }
    return means;
}

fn put_parameters(channel: u32, sums: vec2<f32>) {
    dweight_put(channel, sums.y);
    dbias_put(channel, sums.x);
}
