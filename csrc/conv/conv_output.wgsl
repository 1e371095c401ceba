// What the shaders of convolutions share: their parameters, and how sums reach the output. A convolution and its gradients are one contraction,
// out[g, m, n] = epilogue(sum over t of gathered[g, m, t] * plain[g, t, n]) for each group g of channels. Rows m and terms t are index tuples of four
// digits: one for the lead, which is a sample or a channel, and one for each spatial axis, the slowest first.
struct Params {
    m: u32,
    n: u32,
    terms: u32,
    part_terms: u32, // terms of a part, which one workgroup adds up
    parts: u32,
    channel_groups: u32,
    groups: u32, // workgroups
    groups_x: u32,
    tiles_m: u32,
    tiles_n: u32,
    gathered_is_along: u32, // whether neighbouring threads read along the terms
    gathered_has_lines: u32, // whether the four elements of a line have equal coordinates
    plain_is_along: u32,
    plain_has_lines: u32, // whether the four elements of a line are equally spaced
    rows_lead_last: u32, // whether the lead is the fastest digit; else it is the slowest
    terms_lead_last: u32,
    has_divisors: u32,
    row_lead: u32, // stride of the rows' lead in gathered
    term_lead: u32, // stride of the terms' lead in gathered
    gathered_group: u32, // strides from group to group of channels: in gathered
    plain_group: u32, // in plain
    plain_column: u32, // stride of n in plain
    out_part: u32, // stride in out from part to part of the terms; 0 if all terms are one part
    out_group: u32, // stride in out from group to group of channels
    out_column: u32, // stride of n in out
    out_n: u32, // stride in out from element to element of a quad
    beside_group: u32, // strides in pre: from group to group of channels
    beside_column: u32, // of n
    beside_n: u32, // from element to element of a quad
    quads_are_rows: u32, // whether quads of the output are four rows; else they are four columns
    has_bias: u32,
    has_beside: u32,
    bias_group: u32, // strides in bias: from group to group of channels
    bias_column: u32, // of n
    activation: u32,
    beta: f32,
    chain: u32, // terms, or steps of them, whose products are added up in one chain
    rows: vec4<u32>, // extents of the digits of rows
    term_digits: vec4<u32>, // extents of the digits of terms
    term_step: vec4<u32>, // the number of terms in a step, in term_digits
    plain_digits: vec4<u32>, // extents of the terms, joined as far as the strides of plain allow
    plain_step: vec4<u32>, // the number of terms in a step, in plain_digits
    plain_strides: vec4<u32>, // of plain_digits in plain
    out_digits: vec4<u32>, // extents of the rows, joined as far as the strides of out and pre allow
    out_strides: vec4<u32>, // of out_digits in out
    beside_strides: vec4<u32>, // of out_digits in pre
    of_row: vec4<i32>, // factors of the row's digits in the coordinates of the image
    of_term: vec4<i32>, // factors of the term's digits in the coordinates of the image
    offset: vec4<i32>, // the coordinates of row 0 and term 0, before they are divided
    image: vec4<u32>, // extents of the axes of the image
    image_strides: vec4<u32>, // strides of these axes in gathered
    divisors: vec4<u32>, // of coordinates: only one that its divisor divides has an element
    steps: vec4<u32>, // distances of the terms that have an element (walk.rs); conv_walk alone uses this and what follows
    inverses: vec4<u32>, // what the divided number of a row is multiplied with to give one of these terms
    tops: vec4<u32>, // the last coordinates, times the divisors
}

@group(0) @binding(0) var<uniform> params: Params;

// How many of the four elements or lines from `first` on there are, if there are `count` in all.
fn rest_of(count: u32, first: u32) -> u32 {
    return min(count - min(first, count), 4u);
}

fn digits_of(index: u32, extents: vec4<u32>) -> vec4<u32> {
    let z = index / extents.w;
    let y = z / extents.z;
    let x = y / extents.y;
    return vec4<u32>(x, y % extents.y, z % extents.z, index % extents.w);
}

fn with_strides(digits: vec4<u32>, strides: vec4<u32>) -> u32 {
    let steps = digits * strides;
    return (steps.x + steps.y) + (steps.z + steps.w);
}

// The bias of columns from n on, or of column n alone.
fn bias_from(group: u32, n: u32, count: u32) -> vec4<f32> {
    if (params.has_bias == 0u) {
        return vec4<f32>();
    }
    let first = group * params.bias_group + n * params.bias_column;
    if (params.quads_are_rows != 0u) {
        return vec4<f32>(bias_of(first));
    }
    let at = vec4<u32>(first) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * params.bias_column;
    return vec4<f32>(bias_of(at.x), bias_of(at.y), bias_of(at.z), bias_of(at.w));
}

// A quad of the output, which is four rows of a column or four columns of a row. The quads of a line follow one another, and the lines of a matrix.
struct Quad {
    matrix: u32, // the matrix that it belongs to
    matrix_quads: u32, // quads of a matrix
    m: u32, // its first row
    n: u32, // its first column
}

fn quad_of(index: u32) -> Quad {
    let are_rows = params.quads_are_rows != 0u;
    let line_quads = (select(params.n, params.m, are_rows) + 3u) / 4u;
    let lines = select(params.m, params.n, are_rows);
    let line = index / line_quads % lines;
    let first = index % line_quads * 4u;
    return Quad(index / line_quads / lines, line_quads * lines, select(line, first, are_rows), select(first, line, are_rows));
}

// Gives the epilogue a quad of sums: of row m the columns from n on, or of column n the rows from m on.
fn finish_quad(part: u32, group: u32, m: u32, n: u32, sums: vec4<f32>) {
    if (m >= params.m || n >= params.n) {
        return;
    }
    let count = select(rest_of(params.n, n), rest_of(params.m, m), params.quads_are_rows != 0u);
    let biased = sums + bias_from(group, n, count);
    let out_start = part * params.out_part + group * params.out_group + n * params.out_column;
    let beside_start = group * params.beside_group + n * params.beside_column;
    let digits = digits_of(m, params.out_digits);
    if (params.quads_are_rows == 0u || digits.w + count <= params.out_digits.w) {
        let out_at = out_start + with_strides(digits, params.out_strides);
        let beside_at = beside_start + with_strides(digits, params.beside_strides);
        put_quad(out_at, beside_at, count, biased);
        return;
    }
    // Rows that are not equally spaced.
    for (var i = 0u; i < count; i++) {
        let of_row = digits_of(m + i, params.out_digits);
        let out_at = out_start + with_strides(of_row, params.out_strides);
        let beside_at = beside_start + with_strides(of_row, params.beside_strides);
        put_quad(out_at, beside_at, 1u, vec4<f32>(biased[i]));
    }
}
