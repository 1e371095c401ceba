// Fourier transforms of lines that the memory of a workgroup holds: a pass reads lines, transforms them stage by stage, and writes them. Longer lines take two
// passes, and those of other prime factors than 2, 3, 5 and 7 are convolved with a chirp. The functions `stage`, `source` and `spectrum_number` are made from the
// radices and the operands.
const TURNS_READ: u32 = 1u;
const TURNS_RESULT: u32 = 2u;
const TURNS_WRITTEN: u32 = 4u;
const CHIRPS_READ: u32 = 8u;
const CHIRPS_RESULT: u32 = 16u;
const CONVOLVES: u32 = 32u;
const READS_COLUMNS: u32 = 64u;
const WRITES_COLUMNS: u32 = 128u;

const REAL: u32 = 1u;
const HALF: u32 = 2u;
const WORK: u32 = 3u;
const CHIRP: u32 = 4u;

struct Params {
    lines: u32,
    groups_x: u32,
    flags: u32,
    factor: f32,
    kind_from: u32,
    kind_to: u32,
    line_points: u32, // of a line of the pass
    inners: u32,
    of_group: u32,
    line_step: u32,
    whole: u32,
    padded: u32,
    from_inner: u32,
    from_step: u32,
    to_inner: u32,
    to_step: u32,
    x_step: u32,
    x_part: u32,
    y_step: u32,
    y_part: u32,
    points: u32, // of a line of the tensor
    inner: f32,
    stages: u32,
    reserved: u32,
    radices: array<vec4<u32>, 2>,
    axes: array<vec4<u32>, AXES>, // of lines of the tensor, innermost first: extent, and the strides of x and y
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

var<workgroup> tile: array<vec2<f32>, MOST_POINTS>;

fn has(flag: u32) -> bool {
    return (params.flags & flag) != 0u;
}

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// -i times a number.
fn turned(a: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.y, -a.x);
}

// exp(-2 pi i part / whole), of a part below the whole, which is below 2^28. The angle is brought into an octant in integers, and its sine and cosine are polynomials: those of
// WGSL err by 2^-11.
fn root(part: u32, whole: u32) -> vec2<f32> {
    var at = 8u * part; // in eighths of a turn over the whole
    let is_sine_turned = at > 4u * whole;
    at = select(at, 8u * whole - at, is_sine_turned);
    let is_cosine_turned = at > 2u * whole;
    at = select(at, 4u * whole - at, is_cosine_turned);
    let is_other = at > whole;
    at = select(at, 2u * whole - at, is_other);
    let x = 0.78539816339744830962 * (f32(at) / f32(whole));
    let square = x * x;
    let sine = x + x * square * (-0.16666654611 + square * (0.0083321608736 + square * -0.00019515295891));
    let cosine = 1.0 - 0.5 * square + square * square * (0.041666645683 + square * (-0.0013887316255 + square * 0.000024433157117));
    let re = select(cosine, sine, is_other);
    let im = select(sine, cosine, is_other);
    return vec2<f32>(select(re, -re, is_cosine_turned), select(-im, im, is_sine_turned));
}

// exp(-pi i j^2 / points), of points below 2^21: j^2 is j times 1024 times the upper bits of j, and j times the lower ones, each of which has 32 bits.
fn chirp(j: u32) -> vec2<f32> {
    let whole = 2u * params.points;
    let upper = (j * (j >> 10u)) % whole;
    let square = (((upper << 10u) % whole) + (j * (j & 1023u)) % whole) % whole;
    return root(square, whole);
}

fn transform_2(v: array<vec2<f32>, 2>) -> array<vec2<f32>, 2> {
    return array<vec2<f32>, 2>(v[0] + v[1], v[0] - v[1]);
}

fn transform_4(v: array<vec2<f32>, 4>) -> array<vec2<f32>, 4> {
    let a = v[0] + v[2];
    let b = v[0] - v[2];
    let c = v[1] + v[3];
    let d = turned(v[1] - v[3]);
    return array<vec2<f32>, 4>(a + c, b + d, a - c, b - d);
}

fn transform_8(v: array<vec2<f32>, 8>) -> array<vec2<f32>, 8> {
    let even = transform_4(array<vec2<f32>, 4>(v[0], v[2], v[4], v[6]));
    let odd = transform_4(array<vec2<f32>, 4>(v[1], v[3], v[5], v[7]));
    const half = 0.70710678118654752440;
    let a = half * vec2<f32>(odd[1].x + odd[1].y, odd[1].y - odd[1].x);
    let b = turned(odd[2]);
    let c = half * vec2<f32>(odd[3].y - odd[3].x, -(odd[3].x + odd[3].y));
    return array<vec2<f32>, 8>(
        even[0] + odd[0], even[1] + a, even[2] + b, even[3] + c, even[0] - odd[0], even[1] - a, even[2] - b, even[3] - c
    );
}

// Of an odd number of inputs, from the sums and the differences of those whose roots are conjugates.
fn transform_3(v: array<vec2<f32>, 3>) -> array<vec2<f32>, 3> {
    let sum = v[1] + v[2];
    let even = v[0] - 0.5 * sum;
    let odd = turned(0.86602540378443864676 * (v[1] - v[2]));
    return array<vec2<f32>, 3>(v[0] + sum, even + odd, even - odd);
}

fn transform_5(v: array<vec2<f32>, 5>) -> array<vec2<f32>, 5> {
    const c1 = 0.30901699437494742410;
    const c2 = -0.80901699437494742410;
    const s1 = 0.95105651629515357212;
    const s2 = 0.58778525229247312917;
    let a = v[1] + v[4];
    let b = v[2] + v[3];
    let c = v[1] - v[4];
    let d = v[2] - v[3];
    let even1 = v[0] + c1 * a + c2 * b;
    let even2 = v[0] + c2 * a + c1 * b;
    let odd1 = turned(s1 * c + s2 * d);
    let odd2 = turned(s2 * c - s1 * d);
    return array<vec2<f32>, 5>(v[0] + a + b, even1 + odd1, even2 + odd2, even2 - odd2, even1 - odd1);
}

fn transform_7(v: array<vec2<f32>, 7>) -> array<vec2<f32>, 7> {
    const c1 = 0.62348980185873353053;
    const c2 = -0.22252093395631440429;
    const c3 = -0.90096886790241912624;
    const s1 = 0.78183148246802980871;
    const s2 = 0.97492791218182360702;
    const s3 = 0.43388373911755812048;
    let a = v[1] + v[6];
    let b = v[2] + v[5];
    let c = v[3] + v[4];
    let d = v[1] - v[6];
    let e = v[2] - v[5];
    let f = v[3] - v[4];
    let even1 = v[0] + c1 * a + c2 * b + c3 * c;
    let even2 = v[0] + c2 * a + c3 * b + c1 * c;
    let even3 = v[0] + c3 * a + c1 * b + c2 * c;
    let odd1 = turned(s1 * d + s2 * e + s3 * f);
    let odd2 = turned(s2 * d - s3 * e - s1 * f);
    let odd3 = turned(s3 * d - s1 * e + s2 * f);
    return array<vec2<f32>, 7>(v[0] + a + b + c, even1 + odd1, even2 + odd2, even3 + odd3, even3 - odd3, even2 - odd2, even1 - odd1);
}

// The place of a number in the memory of the workgroup: neighbours stay in other banks than those 16 apart.
fn held_at(at: u32) -> u32 {
    return at ^ ((at >> 4u) & 15u);
}

fn is_real_bin(bin: u32) -> bool {
    return bin == 0u || 2u * bin == params.points;
}

// The points of a line of x or of y.
fn points_of(kind: u32) -> u32 {
    return select(params.points, params.points / 2u + 1u, kind == HALF);
}

// The number at a point of line `line` of the tensor.
fn read_point(line: u32, first: u32, point: u32) -> vec2<f32> {
    if (params.kind_from == WORK) {
        let at = 2u * (line * params.padded + point);
        return vec2<f32>(source(at), source(at + 1u));
    }
    if (params.kind_from == CHIRP) {
        let j = select(params.padded - point, point, point < params.points);
        if (j >= params.points) {
            return vec2<f32>();
        }
        let w = chirp(j);
        return vec2<f32>(w.x, -w.y);
    }
    if (point >= points_of(params.kind_from)) {
        return vec2<f32>();
    }
    let at = first + point * params.x_step;
    let re = source(at);
    if (params.kind_from == REAL) {
        return vec2<f32>(re, 0.0);
    }
    let im = source(at + params.x_part);
    if (params.kind_from == HALF) {
        if (is_real_bin(point)) {
            return vec2<f32>(re, 0.0);
        }
        return params.inner * vec2<f32>(re, im);
    }
    return vec2<f32>(re, im);
}

fn write_point(line: u32, first: u32, point: u32, value: vec2<f32>) {
    if (params.kind_to == WORK) {
        y_scatter(2u * (line * params.padded + point), 1u, 2u, vec4<u32>(bitcast<vec2<u32>>(value), 0u, 0u));
        return;
    }
    if (point >= points_of(params.kind_to)) {
        return;
    }
    let at = first + point * params.y_step;
    let weight = select(1.0, params.inner, params.kind_to == HALF && !is_real_bin(point));
    let numbers = select(2u, 1u, params.kind_to == REAL);
    y_scatter(at, params.y_part, numbers, vec4<u32>(bitcast<vec2<u32>>(weight * value), 0u, 0u));
}

struct Places {
    x: u32,
    y: u32,
}

// Where a line of the tensor begins.
fn places_of(line: u32) -> Places {
    var at: Places;
    var rest = line;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        at.x += i * axis.y;
        at.y += i * axis.z;
        rest = outer;
    }
    return at;
}

// A number of a workgroup: its place in memory, its line of the tensor, the line of the pass in that, and its point in this.
struct Number {
    held: u32,
    line: u32,
    inner: u32,
    point: u32,
}

fn number_at(element: u32, group: u32, lines: u32, is_columns: bool) -> Number {
    let neighbours = select(params.line_points, lines, is_columns);
    let outer = element / neighbours;
    let near = element - outer * neighbours;
    let own = select(outer, near, is_columns);
    let point = select(near, outer, is_columns);
    let line = (group + own) / params.inners;
    return Number(held_at(own * params.line_step + point), line, group + own - line * params.inners, point);
}

@compute @workgroup_size(WORKGROUP)
fn fft(at: Invocation) {
    let group = (at.workgroup.y * params.groups_x + at.workgroup.x) * params.of_group;
    let lines = min(params.lines - min(group, params.lines), params.of_group);
    let count = lines * params.line_points;
    // 1. The lines.
    for (var element = at.index; element < count; element += WORKGROUP) {
        let number = number_at(element, group, lines, has(READS_COLUMNS));
        let point = number.inner * params.from_inner + number.point * params.from_step;
        var value = read_point(number.line, places_of(number.line).x, point);
        value = select(value, value.yx, has(TURNS_READ));
        if (has(CHIRPS_READ) && point < params.points) {
            value = times(value, chirp(point));
        }
        tile[number.held] = value;
    }
    workgroupBarrier();
    // 2. Stage by stage.
    var before = 1u;
    for (var stage_number = 0u; stage_number < params.stages; stage_number++) {
        let radix = params.radices[stage_number / 4u][stage_number % 4u];
        stage(at.index, radix, lines, before);
        before *= radix;
    }
    // 3. The results.
    for (var element = at.index; element < count; element += WORKGROUP) {
        let number = number_at(element, group, lines, has(WRITES_COLUMNS));
        let point = number.inner * params.to_inner + number.point * params.to_step;
        var value = tile[number.held];
        if (params.whole > 0u) {
            // Both are below their extents, whose product is the whole.
            value = times(value, root(number.inner * number.point, params.whole));
        }
        if (has(CONVOLVES)) {
            value = times(value, vec2<f32>(spectrum_number(2u * point), spectrum_number(2u * point + 1u)));
        }
        value = select(value, value.yx, has(TURNS_RESULT));
        if (has(CHIRPS_RESULT) && point < params.points) {
            value = times(value, chirp(point));
        }
        value *= params.factor;
        value = select(value, value.yx, has(TURNS_WRITTEN));
        write_point(number.line, places_of(number.line).y, point, value);
    }
}
