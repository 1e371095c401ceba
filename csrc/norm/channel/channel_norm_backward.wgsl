// BatchNorm, GroupNorm and InstanceNorm backward: what all dispatches share; the CUDA kernels are those of channel_norm_backward.cu. A segment
// is one channel of one sample; a group is the segments that share statistics. Threads load and store chunks: 16 bytes of one tensor, or 8
// bytes of 16-bit elements (common/half_fours). `saved` is what the activation's gradient needs besides x: the residual, or forward's y.
//
// With dpre the gradient of the pre-activation and g = dpre * weight: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the means over the
// group; dweight = sum(dpre * xhat) and dbias = sum(dpre) over a channel.
struct Params {
    batch: u32,
    channels: u32,
    spatial: u32,
    groups: u32, // of a sample; the channels where they are groups
    dy: vec3<u32>, // strides of batch, channel and spatial
    x: vec3<u32>,
    residual: vec3<u32>,
    y: vec3<u32>,
    dx: vec3<u32>,
    dresidual: vec3<u32>,
    eps: f32,
    slices: u32, // parts of a segment, one for each team or workgroup
    sum_slices: u32, // parts of a segment in the dispatch that adds them up
    group_channels: u32, // channels of a group
    group_segments: u32, // segments of a group
    group_parts: u32, // parts of a group whose sums lie in the workspace
    group_count: u32, // groups in all
    reciprocal_count: f32, // of the elements of a group
    groups_x: u32, // workgroups in the first dimension of the grid
    column_blocks: u32, // channels last: workgroups beside each other
    slice_rows: u32, // channels last: rows of a slice, but for the last
    columns: u32, // gapless: chunks of a sample in a workgroup
    first_workgroup: u32, // the number of the first workgroup: in place, one dispatch takes the parameters and the next one dx
}

@group(0) @binding(0) var<uniform> params: Params;

// Strides of `saved`.
fn saved_strides() -> vec3<u32> {
    if (SAVED_IS_Y) {
        return params.y;
    }
    return params.residual;
}

// The group of a segment: the index of its statistics.
fn group_of(batch: u32, channel: u32) -> u32 {
    return select(batch * params.groups + channel / params.group_channels, channel, GROUPS_ARE_CHANNELS);
}

// The index of a slice's sums in the workspace, where those of a group lie side by side.
fn part_of(batch: u32, channel: u32, slice: u32) -> u32 {
    let segment = select(batch * params.channels + channel, channel * params.batch + batch, GROUPS_ARE_CHANNELS);
    return segment * params.sum_slices + slice;
}

fn statistics_of_group(group: u32) -> vec2<f32> {
    return vec2<f32>(mean_of(group), rstd_of(group));
}

// Mean and rstd of a segment: those of its group, in inference the running ones of its channel.
fn statistics_of(batch: u32, channel: u32) -> vec2<f32> {
    if (USES_RUNNING) {
        return vec2<f32>(running_mean_of(channel), reciprocal_sqrt(running_var_of(channel) + params.eps));
    }
    return statistics_of_group(group_of(batch, channel));
}

// Of a segment's group: the means of g and of g * xhat, 0 if dx does not depend on them, its mean and its rstd.
fn means_of(batch: u32, channel: u32) -> vec4<f32> {
    if (!HAS_MEANS) {
        return vec4<f32>(0.0, 0.0, statistics_of(batch, channel));
    }
    return means_read(group_of(batch, channel));
}

// The gradient of the pre-activation, which is computed again. For ReLU y can take its place: y is positive where the pre-activation is.
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

// dx of four elements, from the means of g and of g * xhat over the group.
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

// The means of g and of g * xhat over a group, from its sums. Where the group is a channel, the sums are those of dpre and dpre * xhat.
fn means_from(sums: vec2<f32>, group: u32) -> vec2<f32> {
    let means = sums * params.reciprocal_count;
    if (GROUPS_ARE_CHANNELS && HAS_weight) {
        return means * weight_of(group);
    }
    return means;
}

// dweight and dbias of a channel, from sum(dpre) and sum(dpre * xhat).
fn put_parameters(channel: u32, sums: vec2<f32>) {
    dweight_put(channel, sums.y);
    dbias_put(channel, sums.x);
}
