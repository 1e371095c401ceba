// Products of matrices with any strides: out[z, m, n] = epilogue(alpha * sum over s and k of left[z, s, m, k] * right[z, s, k, n]).
//
// The tiles are those of gemm_tile.wgsl. The epilogue, put_quad in a file of its own, gets four neighbouring sums of a row at a time.
struct Params {
    m: u32,
    n: u32,
    k: u32,
    tuples: u32, // index tuples of the summed extents
    groups: u32, // workgroups
    groups_x: u32,
    tiles_m: u32,
    tiles_n: u32,
    left_across: u32, // stride of m
    left_along: u32, // stride of k
    left_is_along: u32, // whether lines run along k
    right_across: u32, // stride of n
    right_along: u32, // stride of k
    right_is_along: u32,
    out_m: u32, // strides of out along m and n
    out_n: u32,
    beside_m: u32, // strides of pre, which the epilogue writes, or of dout, which it reads
    beside_n: u32,
    has_bias: u32,
    has_beside: u32,
    bias_m: u32, // strides of bias along m and n, of which at least one is 0
    bias_n: u32,
    activation: u32,
    batch_axes: u32,
    summed_axes: u32,
    alpha: f32,
    beta: f32,
    wants_column_sums: u32, // whether the columns of each tile are added up to partials, for dbias
    chain_steps: u32, // steps whose products are added up in one chain
    // Each array has an element for every axis that a tensor of rank 8 may have besides rows and columns.
    batch: array<vec4<u32>, 6>, // extent, strides of left, right, out
    batch_beside: array<vec4<u32>, 6>, // stride of pre or dout
    summed: array<vec4<u32>, 6>, // extent, strides of left, right
}

@group(0) @binding(0) var<uniform> params: Params;

// What a thread loads of each step: a block of one factor.
struct Loader {
    is_left: bool,
    is_along: bool,
    first_k: u32, // of the block in its step
    across_count: u32, // rows or columns of the block inside the matrix
    line_step: u32, // from line to line
    element_step: u32, // from element to element of a line
}

// How many of the four elements or lines from `first` on there are, if there are `count` in all.
fn rest_of(count: u32, first: u32) -> u32 {
    return min(count - min(first, count), 4u);
}

// The block at `at`, whose first term is `k`. Terms past the last are 0 in both factors, so that they add nothing. Rows and columns past the last hold
// elements of others, whose sums are not stored.
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

// Where a matrix of the batch starts in left, right and out, and in pre or dout (beside).
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

// Where an index tuple of the summed extents starts in left and right.
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

fn tile_of(workgroup: u32) -> Tile {
    let of_batch = params.tiles_m * params.tiles_n;
    let batch = workgroup / of_batch;
    let start = tile_start(workgroup % of_batch, params.tiles_m, params.tiles_n);
    return Tile(batch, start.x, start.y, starts_of(batch));
}

// The bias of row m and four columns from n on; 0 if there are none.
fn bias_at(m: u32, n: u32) -> vec4<f32> {
    var bias = vec4<f32>();
    let count = rest_of(params.n, n);
    if (params.has_bias != 0u && count > 0u && m < params.m) {
        let at = vec4<u32>(m * params.bias_m) + (n + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u))) * params.bias_n;
        bias = vec4<f32>(bias_of(at.x), bias_of(at.y), bias_of(at.z), bias_of(at.w));
    }
    return bias;
}

// Stores SLAB_ROWS rows of the tile from `first_row` on, whose sums are in workgroup memory. A thread has one quad of columns in equally spaced rows.
// Returns the sums over these rows of what put_quad returns.
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

@compute @workgroup_size(WORKGROUP)
fn gemm_tiled(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    let tile = tile_of(workgroup);

    // 1. What this thread loads.
    var loader: Loader;
    let share = share_of(thread, params.left_is_along, params.right_is_along);
    loader.is_left = share.is_left;
    loader.is_along = share.is_along;
    let across = select(params.right_across, params.left_across, loader.is_left);
    let along = select(params.right_along, params.left_along, loader.is_left);
    let first = select(tile.n, tile.m, loader.is_left) + share.quad * 4u;
    loader.first_k = share.k_quad * 4u;
    loader.across_count = rest_of(select(params.n, params.m, loader.is_left), first);
    loader.line_step = select(along, across, loader.is_along);
    loader.element_step = select(across, along, loader.is_along);
    let start = select(tile.starts.tensors.y, tile.starts.tensors.x, loader.is_left) + first * across + loader.first_k * along;

    // 2. The first step.
    let steps = params.tuples * ((params.k + STEP - 1u) / STEP);
    var tuple = 0u;
    var k = 0u;
    var at = start;
    store_block(unpacked(read_block(loader, at, loader.first_k)), share.place, share.quads, share.is_along);
    workgroupBarrier();

    // 3. The sums, in chains over s and k, and the chains in one more.
    let corner = corner_of(thread);
    var sums = Sums();
    var chains = Sums();
    var chain_end = params.chain_steps;
    var buffer = 0u;
    for (var step = 0u; step < steps; step++) {
        // 3a. Loads of the next step; after the last one it is empty.
        k += STEP;
        at += STEP * along;
        if (k >= params.k) {
            tuple += 1u;
            if (tuple < params.tuples) {
                k = 0u;
                let of_tuple = summed_start(tuple);
                at = start + select(of_tuple.y, of_tuple.x, loader.is_left);
            }
        }
        let lines = read_block(loader, at, k + loader.first_k);
        // 3b. This step.
        sums = plus_step(sums, buffer, corner);
        if (step + 1u == chain_end) {
            chains = plus_sums(chains, sums);
            sums = Sums();
            chain_end += params.chain_steps;
        }
        // 3c. No thread reads the other buffer: all have passed the barrier after the step before.
        buffer = STEP_SIZE - buffer;
        store_block(unpacked(lines), buffer + share.place, share.quads, share.is_along);
        workgroupBarrier();
    }

    // 4. The output.
    finish_tile(tile, thread, put_tile(tile, thread, corner, plus_sums(chains, sums)));
}
