// Products of matrices with any strides: out[z, m, n] = epilogue(alpha * sum over s and k of left[z, s, m, k] * right[z, s, k, n]).
//
// A workgroup computes a tile of LEFT_QUADS * 4 rows and RIGHT_QUADS * 4 columns, a thread ROW_QUADS * COL_QUADS blocks of 4 x 4 of it. The
// factors pass through workgroup memory in steps of STEP terms, in two buffers: while one step is multiplied, the next is on its way from
// memory into registers, and then into the other buffer, so that a step has one barrier. A thread brings one block of 4 x 4 elements of one
// factor, in four lines that run along k or across it, whichever lie densely in memory; in workgroup memory the quads of a block always lie
// across, four rows or four columns of one term, as the multiplication reads them.
//
// Sums of a tile pass through the same memory on their way out, so that the epilogue, in a file of its own, works on dense rows.
struct Params {
    m: u32,
    n: u32,
    k: u32,
    sums: u32, // index tuples of the extents summed over
    groups: u32,
    groups_x: u32,
    tiles_m: u32,
    tiles_n: u32,
    left_across: u32, // stride of m
    left_along: u32, // stride of k
    left_is_along: u32, // whether lines run along k
    right_across: u32, // stride of n
    right_along: u32,
    right_is_along: u32,
    out_m: u32,
    out_n: u32,
    beside_m: u32, // of what the epilogue writes or reads besides
    beside_n: u32,
    has_bias: u32,
    has_beside: u32,
    bias_m: u32,
    bias_n: u32,
    activation: u32,
    batch_axes: u32,
    summed_axes: u32,
    alpha: f32,
    beta: f32,
    has_sums: u32,
    batch: array<vec4<u32>, 6>, // extent, strides of left, right, out
    batch_beside: array<vec4<u32>, 6>, // stride of what lies beside
    summed: array<vec4<u32>, 6>, // extent, strides of left, right
}

@group(0) @binding(0) var<uniform> params: Params;

const STEP: u32 = 16u;
const STEP_QUADS: u32 = STEP / 4u;
const TILE_M: u32 = LEFT_QUADS * 4u;
const TILE_N: u32 = RIGHT_QUADS * 4u;
// Quads of a step: of the left factor, and of both.
const LEFT_SIZE: u32 = STEP * LEFT_QUADS;
const STEP_SIZE: u32 = STEP * (LEFT_QUADS + RIGHT_QUADS);
// Threads beside each other, and subgroups of 4 x 8 threads, or what would be subgroups of 32.
const THREADS_N: u32 = RIGHT_QUADS / COL_QUADS;
const WARPS_N: u32 = THREADS_N / 8u;
// Rows of sums that are in workgroup memory at a time.
const SLAB_ROWS: u32 = TILE_M / ROW_QUADS;
// Rows of tiles whose workgroups are neighbours, so that those that run at a time share what they read.
const BAND: u32 = 8u;

// Two steps of both factors, each [STEP][quads], or a slab of sums, [SLAB_ROWS][RIGHT_QUADS].
var<workgroup> tiles: array<vec4<f32>, 2u * STEP_SIZE>;

// Four rows of four columns of sums.
struct Block {
    x: vec4<f32>,
    y: vec4<f32>,
    z: vec4<f32>,
    w: vec4<f32>,
}

// Four lines of a factor as they come from memory: to unpack them at once would be to wait for them.
struct Lines {
    x: vec4<u32>,
    y: vec4<u32>,
    z: vec4<u32>,
    w: vec4<u32>,
}

// What a thread brings of each step: a block of one factor.
struct Loader {
    is_left: bool,
    is_along: bool,
    first_k: u32, // of the block in its step
    across_count: u32, // rows or columns of the block inside the matrix
    line_step: u32, // from line to line
    element_step: u32, // from element to element of a line
    place: u32, // in a buffer
}

// Elements or lines from `first` on, of `count`, at most 4.
fn rest_of(count: u32, first: u32) -> u32 {
    return min(count - min(first, count), 4u);
}

// Where a quad of a term is. Eight threads beside each other store two quads of every fourth term, or eight quads of one term; turned
// around by the term, those of one store are in different banks either way, and so are those that threads read.
fn turned(quad: u32, k_quad: u32) -> u32 {
    return quad ^ (2u * k_quad);
}

// The block at `at`, of which `k` is the first term. Terms past the last are 0 in both factors, so that they add nothing; a line of which
// only a part is in the matrix has its elements apart. Rows and columns past the last are any others: their sums are not stored.
fn read_block(loader: Loader, at: u32, k: u32) -> Lines {
    let k_count = rest_of(params.k, k);
    let line_count = select(k_count, loader.across_count, loader.is_along);
    let count = select(loader.across_count, k_count, loader.is_along);
    var lines = Lines();
    if (line_count > 0u && count > 0u) {
        let i = vec4<u32>(at) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(line_count - 1u)) * loader.line_step;
        if (loader.is_left) {
            lines.x = left_bits(i.x, loader.element_step, count);
            lines.y = left_bits(i.y, loader.element_step, count);
            lines.z = left_bits(i.z, loader.element_step, count);
            lines.w = left_bits(i.w, loader.element_step, count);
        } else {
            lines.x = right_bits(i.x, loader.element_step, count);
            lines.y = right_bits(i.y, loader.element_step, count);
            lines.z = right_bits(i.z, loader.element_step, count);
            lines.w = right_bits(i.w, loader.element_step, count);
        }
        if (k_count < 4u) {
            let is_term = vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(k_count);
            lines.x = select(vec4<u32>(), lines.x, select(vec4<bool>(is_term.x), is_term, loader.is_along));
            lines.y = select(vec4<u32>(), lines.y, select(vec4<bool>(is_term.y), is_term, loader.is_along));
            lines.z = select(vec4<u32>(), lines.z, select(vec4<bool>(is_term.z), is_term, loader.is_along));
            lines.w = select(vec4<u32>(), lines.w, select(vec4<bool>(is_term.w), is_term, loader.is_along));
        }
    }
    return lines;
}

// Both factors have one type.
fn unpacked(lines: Lines) -> Block {
    return Block(left_unpacked(lines.x), left_unpacked(lines.y), left_unpacked(lines.z), left_unpacked(lines.w));
}

fn store_block(loader: Loader, buffer: u32, lines: Lines) {
    let block = unpacked(lines);
    let at = buffer + loader.place;
    let stride = select(RIGHT_QUADS, LEFT_QUADS, loader.is_left);
    if (loader.is_along) {
        tiles[at] = vec4<f32>(block.x.x, block.y.x, block.z.x, block.w.x);
        tiles[at + stride] = vec4<f32>(block.x.y, block.y.y, block.z.y, block.w.y);
        tiles[at + 2u * stride] = vec4<f32>(block.x.z, block.y.z, block.z.z, block.w.z);
        tiles[at + 3u * stride] = vec4<f32>(block.x.w, block.y.w, block.z.w, block.w.w);
    } else {
        tiles[at] = block.x;
        tiles[at + stride] = block.y;
        tiles[at + 2u * stride] = block.z;
        tiles[at + 3u * stride] = block.w;
    }
}

// The sums of a thread: blocks of its first rows and its second ones, each of its first columns and its second ones, as far as it has them.
struct Sums {
    block_00: Block,
    block_01: Block,
    block_10: Block,
    block_11: Block,
}

// A block of sums plus the products of four rows of one term with its four columns.
fn plus_products(sums: Block, left: vec4<f32>, right: vec4<f32>) -> Block {
    return Block(
        fma(vec4<f32>(left.x), right, sums.x),
        fma(vec4<f32>(left.y), right, sums.y),
        fma(vec4<f32>(left.z), right, sums.z),
        fma(vec4<f32>(left.w), right, sums.w),
    );
}

// Sums plus the products of one term.
fn plus_term(sums: Sums, left_at: u32, right_at: u32) -> Sums {
    var next = sums;
    let left_0 = tiles[left_at];
    let right_0 = tiles[right_at];
    next.block_00 = plus_products(sums.block_00, left_0, right_0);
    if (ROW_QUADS == 2u) {
        let left_1 = tiles[left_at + LEFT_QUADS / 2u];
        next.block_10 = plus_products(sums.block_10, left_1, right_0);
        if (COL_QUADS == 2u) {
            let right_1 = tiles[right_at + RIGHT_QUADS / 2u];
            next.block_01 = plus_products(sums.block_01, left_0, right_1);
            next.block_11 = plus_products(sums.block_11, left_1, right_1);
        }
    }
    return next;
}

// Where a batch starts in left, right, out, and in what lies beside.
struct Starts {
    tensors: vec3<u32>,
    beside: u32,
}

fn starts_of(batch: u32) -> Starts {
    var rest = batch;
    var starts = Starts();
    for (var axis = params.batch_axes; axis > 0u; axis--) {
        let of_axis = params.batch[axis - 1u];
        let index = rest % of_axis.x;
        rest = rest / of_axis.x;
        starts.tensors += index * of_axis.yzw;
        starts.beside += index * params.batch_beside[axis - 1u].x;
    }
    return starts;
}

// Where an index tuple of the extents summed over starts in left and right.
fn summed_start(tuple: u32) -> vec2<u32> {
    var rest = tuple;
    var start = vec2<u32>();
    for (var axis = params.summed_axes; axis > 0u; axis--) {
        let of_axis = params.summed[axis - 1u];
        start += rest % of_axis.x * of_axis.yz;
        rest = rest / of_axis.x;
    }
    return start;
}

// A tile of the output.
struct Tile {
    batch: u32,
    m: u32, // its first row
    n: u32, // its first column
    starts: Starts,
}

fn tile_of(group: u32) -> Tile {
    let of_batch = params.tiles_m * params.tiles_n;
    let batch = group / of_batch;
    let in_batch = group % of_batch;
    let of_band = BAND * params.tiles_n;
    let first_row = in_batch / of_band * BAND;
    let in_band = in_batch % of_band;
    let rows = min(params.tiles_m - first_row, BAND);
    return Tile(batch, (first_row + in_band % rows) * TILE_M, in_band / rows * TILE_N, starts_of(batch));
}

// Bias at a row and from a column on; past the last column it is 0.
fn bias_at(m: u32, n: u32) -> vec4<f32> {
    var bias = vec4<f32>();
    let count = rest_of(params.n, n);
    if (params.has_bias != 0u && count > 0u && m < params.m) {
        let at = vec4<u32>(m * params.bias_m) + (n + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u))) * params.bias_n;
        bias = vec4<f32>(bias_of(at.x), bias_of(at.y), bias_of(at.z), bias_of(at.w));
    }
    return bias;
}

// Stores SLAB_ROWS rows of the tile from `first_row` on, whose sums are in workgroup memory. A thread has one quad of columns, and takes it
// of every so many rows. Returns the sums of what the epilogue gives for these columns.
fn put_slab(tile: Tile, thread: u32, first_row: u32) -> vec4<f32> {
    let n = tile.n + thread % RIGHT_QUADS * 4u;
    let count = rest_of(params.n, n);
    var bias = bias_at(0u, n);
    var column_sums = vec4<f32>();
    for (var row = thread / RIGHT_QUADS; row < SLAB_ROWS; row += WORKGROUP / RIGHT_QUADS) {
        let m = tile.m + first_row + row;
        if (m < params.m && count > 0u) {
            if (params.bias_m != 0u) {
                bias = bias_at(m, n);
            }
            let sums = params.alpha * tiles[row * RIGHT_QUADS + thread % RIGHT_QUADS] + bias;
            let out_at = tile.starts.tensors.z + m * params.out_m + n * params.out_n;
            let beside_at = tile.starts.beside + m * params.beside_m + n * params.beside_n;
            column_sums += put_quad(out_at, beside_at, count, sums);
        }
    }
    return column_sums;
}

fn keep_rows(thread_m: u32, quad_n: u32, sums: Block) {
    let at = thread_m * 4u * RIGHT_QUADS + quad_n;
    tiles[at] = sums.x;
    tiles[at + RIGHT_QUADS] = sums.y;
    tiles[at + 2u * RIGHT_QUADS] = sums.z;
    tiles[at + 3u * RIGHT_QUADS] = sums.w;
}

@compute @workgroup_size(WORKGROUP)
fn gemm_tiled(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = workgroup.y * params.groups_x + workgroup.x;
    if (group >= params.groups) {
        return;
    }
    let tile = tile_of(group);

    // 1. What this thread brings.
    var loader: Loader;
    loader.is_left = thread < TILE_M;
    let slot = select(thread - TILE_M, thread, loader.is_left);
    loader.is_along = select(params.right_is_along, params.left_is_along, loader.is_left) != 0u;
    let quads = select(RIGHT_QUADS, LEFT_QUADS, loader.is_left);
    // Neighbours lie along the lines.
    let k_quad = select(slot / quads, slot % STEP_QUADS, loader.is_along);
    let quad = select(slot % quads, slot / STEP_QUADS, loader.is_along);
    let across = select(params.right_across, params.left_across, loader.is_left);
    let along = select(params.right_along, params.left_along, loader.is_left);
    let first = select(tile.n, tile.m, loader.is_left) + quad * 4u;
    loader.first_k = k_quad * 4u;
    loader.across_count = rest_of(select(params.n, params.m, loader.is_left), first);
    loader.line_step = select(along, across, loader.is_along);
    loader.element_step = select(across, along, loader.is_along);
    loader.place = select(LEFT_SIZE, 0u, loader.is_left) + loader.first_k * quads + turned(quad, k_quad);
    let start = select(tile.starts.tensors.y, tile.starts.tensors.x, loader.is_left) + first * across + loader.first_k * along;

    // 2. The first step.
    let steps = params.sums * ((params.k + STEP - 1u) / STEP);
    var tuple = 0u;
    var k = 0u;
    var at = start;
    store_block(loader, 0u, read_block(loader, at, loader.first_k));
    workgroupBarrier();

    // 3. Sums, each in one chain over s and k: of rows 4 tm and columns 4 tn on, and if there are two quads of them, half a tile further.
    let warp = thread / 32u;
    let thread_m = thread / 8u % 4u + warp / WARPS_N * 4u;
    let thread_n = thread % 8u + warp % WARPS_N * 8u;
    var sums = Sums();
    var buffer = 0u;
    for (var step = 0u; step < steps; step++) {
        // 3a. The next step is asked for: after the last one, nothing.
        k += STEP;
        at += STEP * along;
        if (k >= params.k) {
            tuple += 1u;
            if (tuple < params.sums) {
                k = 0u;
                let of_tuple = summed_start(tuple);
                at = start + select(of_tuple.y, of_tuple.x, loader.is_left);
            }
        }
        let lines = read_block(loader, at, k + loader.first_k);
        // 3b. This step.
        for (var k_quad = 0u; k_quad < STEP_QUADS; k_quad++) {
            let left_at = buffer + k_quad * 4u * LEFT_QUADS + turned(thread_m, k_quad);
            let right_at = buffer + LEFT_SIZE + k_quad * 4u * RIGHT_QUADS + turned(thread_n, k_quad);
            // One by one: places in workgroup memory are constants apart, whatever a compiler does with loops.
            sums = plus_term(sums, left_at, right_at);
            sums = plus_term(sums, left_at + LEFT_QUADS, right_at + RIGHT_QUADS);
            sums = plus_term(sums, left_at + 2u * LEFT_QUADS, right_at + 2u * RIGHT_QUADS);
            sums = plus_term(sums, left_at + 3u * LEFT_QUADS, right_at + 3u * RIGHT_QUADS);
        }
        // 3c. Nobody reads the other buffer: all have passed the barrier after the step before.
        buffer = STEP_SIZE - buffer;
        store_block(loader, buffer, lines);
        workgroupBarrier();
    }

    // 4. Upper and lower half of the tile, or all of it.
    keep_rows(thread_m, thread_n, sums.block_00);
    if (COL_QUADS == 2u) {
        keep_rows(thread_m, thread_n + RIGHT_QUADS / 2u, sums.block_01);
    }
    workgroupBarrier();
    var column_sums = put_slab(tile, thread, 0u);
    workgroupBarrier();
    if (ROW_QUADS == 2u) {
        keep_rows(thread_m, thread_n, sums.block_10);
        if (COL_QUADS == 2u) {
            keep_rows(thread_m, thread_n + RIGHT_QUADS / 2u, sums.block_11);
        }
        workgroupBarrier();
        column_sums += put_slab(tile, thread, SLAB_ROWS);
        workgroupBarrier();
    }
    finish_tile(tile, thread, column_sums);
}
