// Channels last, for the split forms: what dx depends on in a thread's channels, and the chunks of AHEAD rows that it has in flight.
struct Constants {
    mean_g: array<vec4<f32>, QUADS>,
    mean_product: array<vec4<f32>, QUADS>,
    mean: array<vec4<f32>, QUADS>,
    rstd: array<vec4<f32>, QUADS>,
    weight: array<vec4<f32>, QUADS>,
    bias: array<vec4<f32>, QUADS>,
}

fn constants_of(columns: Columns, thread: u32) -> Constants {
    var constants: Constants;
    for (var element = 0u; element < ELEMENTS; element++) {
        let channel = channel_at(columns, element);
        let means = column_means(columns, thread, channel);
        constants.mean_g[element / 4u][element % 4u] = means.x;
        constants.mean_product[element / 4u][element % 4u] = means.y;
        constants.mean[element / 4u][element % 4u] = means.z;
        constants.rstd[element / 4u][element % 4u] = means.w;
        constants.weight[element / 4u][element % 4u] = weight_of(channel);
        constants.bias[element / 4u][element % 4u] = bias_of(channel);
    }
    return constants;
}

var<private> held_dy: array<vec4<u32>, AHEAD>;
var<private> held_x: array<vec4<u32>, AHEAD>;
var<private> held_saved: array<vec4<u32>, AHEAD>;

fn load_rows(columns: Columns, first: u32) {
    for (var k = 0u; k < AHEAD; k++) {
        let row = first + k * LANES;
        if (columns.count > 0u && row < columns.end) {
            held_dy[k] = dy_load(chunk_start(columns, row, params.dy), columns.count);
            held_x[k] = x_load(chunk_start(columns, row, params.x), columns.count);
            held_saved[k] = saved_load(chunk_start(columns, row, saved_strides()), columns.count);
        }
    }
}

fn dpre_of(k: u32, part: u32, xhat: vec4<f32>, constants: Constants) -> vec4<f32> {
    let dy = quad(held_dy[k], part);
    return pre_gradient(dy, xhat, quad(held_saved[k], part), constants.weight[part], constants.bias[part]);
}
