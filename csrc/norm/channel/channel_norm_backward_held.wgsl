// Chunks of dy, x and `saved` that a thread holds, HELD of them, and the gradients of their elements.
var<private> held_dy: array<vec4<u32>, HELD>;
var<private> held_x: array<vec4<u32>, HELD>;
var<private> held_saved: array<vec4<u32>, HELD>;

// Loads chunk `k` from where it lies in dy, x and `saved`.
fn hold(k: u32, dy_first: u32, x_first: u32, saved_first: u32, count: u32) {
    held_dy[k] = dy_load(dy_first, count);
    held_x[k] = x_load(x_first, count);
    held_saved[k] = saved_load(saved_first, count);
}

// What the gradients of four neighbouring elements depend on.
struct Terms {
    mean: vec4<f32>,
    rstd: vec4<f32>,
    weight: vec4<f32>,
    bias: vec4<f32>,
    mean_g: vec4<f32>, // of their groups; 0 as long as only sums are taken
    mean_product: vec4<f32>,
}

// The terms of elements of one channel. means: as means_of returns them.
fn terms_of(channel: u32, means: vec4<f32>) -> Terms {
    let weight = vec4<f32>(weight_of(channel));
    let bias = vec4<f32>(bias_of(channel));
    return Terms(vec4<f32>(means.z), vec4<f32>(means.w), weight, bias, vec4<f32>(means.x), vec4<f32>(means.y));
}

struct Gradient {
    dpre: vec4<f32>,
    xhat: vec4<f32>,
}

// dpre and xhat of quad `part` of chunk `k`.
fn gradient_of(k: u32, part: u32, terms: Terms) -> Gradient {
    let xhat = (quad(held_x[k], part) - terms.mean) * terms.rstd;
    return Gradient(pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), terms.weight, terms.bias), xhat);
}

fn dx_of(gradient: Gradient, terms: Terms) -> vec4<f32> {
    return input_gradient(gradient.dpre, gradient.xhat, terms.weight, terms.rstd, terms.mean_g, terms.mean_product);
}

// sum(dpre) and sum(dpre * xhat) of chunk `k`, whose elements are of one channel.
fn segment_chunk_sums(k: u32, count: u32, terms: Terms) -> vec2<f32> {
    var sum = vec4<f32>();
    var product = vec4<f32>();
    for (var part = 0u; part < QUADS; part++) {
        let gradient = gradient_of(k, part, terms);
        let dpre = keep(gradient.dpre, part, count);
        sum += dpre;
        product += dpre * keep(gradient.xhat, part, count);
    }
    return vec2<f32>(add_up(sum), add_up(product));
}

// Writes dx and dresidual of chunk `k`, whose elements are of one channel.
fn put_segment_chunk(k: u32, count: u32, terms: Terms, dx_first: u32, dresidual_first: u32) {
    var dx: array<vec4<f32>, QUADS>;
    var dresidual: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        let gradient = gradient_of(k, part, terms);
        dresidual[part] = gradient.dpre;
        dx[part] = dx_of(gradient, terms);
    }
    put_gradients(count, dx_first, dx, dresidual_first, dresidual);
}

fn put_gradients(count: u32, dx_first: u32, dx: array<vec4<f32>, QUADS>, dresidual_first: u32, dresidual: array<vec4<f32>, QUADS>) {
    if (HAS_dx) {
        dx_store(dx_first, count, chunk_of(dx));
    }
    if (HAS_dresidual) {
        dresidual_store(dresidual_first, count, chunk_of(dresidual));
    }
}
