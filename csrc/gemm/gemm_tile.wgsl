// Tiles in workgroup memory, for products of matrices and for convolutions.
//
// A workgroup computes a tile of LEFT_QUADS * 4 rows and RIGHT_QUADS * 4 columns, a thread ROW_QUADS * COL_QUADS blocks of 4 x 4 of it. The
// factors pass through workgroup memory in steps of STEP terms, in two buffers: while one step is multiplied, the next one is loaded into
// registers and then stored in the other buffer, so that a step has one barrier. A thread loads one block of 4 x 4 elements of one factor, in
// four lines that run along the terms or across them. In workgroup memory the quads of a block always lie across the terms, four rows or
// four columns of one term, as the multiplication reads them.
//
// The sums of a tile pass through the workgroup memory of the factors on their way to the output.

// Terms of a step: with 16 a step has a block of 4 x 4 elements for each of the TILE_M + TILE_N threads of a workgroup.
const STEP: u32 = 16u;
const STEP_QUADS: u32 = STEP / 4u;
const TILE_M: u32 = LEFT_QUADS * 4u;
const TILE_N: u32 = RIGHT_QUADS * 4u;
// Quads of a step: of the left factor, and of both.
const LEFT_SIZE: u32 = STEP * LEFT_QUADS;
const STEP_SIZE: u32 = STEP * (LEFT_QUADS + RIGHT_QUADS);
// Threads along a row of the tile, and groups of 4 x 8 threads along it, which are subgroups if those have 32 threads.
const THREADS_N: u32 = RIGHT_QUADS / COL_QUADS;
const WARPS_N: u32 = THREADS_N / 8u;
// Rows of sums that pass through workgroup memory at once: those of one of a thread's ROW_QUADS quads of rows. Of a tile of 128 x 128 they fill it.
const SLAB_ROWS: u32 = TILE_M / ROW_QUADS;
// Rows of tiles of a band. Neighbouring workgroups take the tiles of a band column after column, so that those that run at the same time share what
// they load. A band has 8 rows of tiles, as in gemm.cuh: 132 tiles of 128 x 128, one on each SM of an H200, are then 8 by 17, which read nearly as few
// rows and columns as a square would. Of the smaller tiles, which small products take, more run at a time: 264 or 528, for which 16 or 23 rows would be
// closer to a square.
const BAND_ROWS: u32 = 8u;

// Two steps of both factors, each [STEP][quads], or a slab of sums, [SLAB_ROWS][RIGHT_QUADS].
var<workgroup> tiles: array<vec4<f32>, 2u * STEP_SIZE>;

// Four rows of four columns of sums, or four lines of a factor.
struct Block {
    x: vec4<f32>,
    y: vec4<f32>,
    z: vec4<f32>,
    w: vec4<f32>,
}

// Four lines of a factor, still packed: unpacking them at once would wait for the loads.
struct Lines {
    x: vec4<u32>,
    y: vec4<u32>,
    z: vec4<u32>,
    w: vec4<u32>,
}

// The place of a quad among those of its term. Eight neighbouring threads store two quads of every fourth term, or eight quads of one term. With the
// places permuted by the term, one store, and one load, touches different banks in both cases.
fn turned(quad: u32, k_quad: u32) -> u32 {
    return quad ^ (2u * k_quad);
}

// The block of a step that a thread loads.
struct Share {
    is_left: bool, // of the left factor; else of the right one
    is_along: bool, // whether its lines run along the terms
    quads: u32, // quads of a term
    quad: u32, // its quad of rows or columns
    k_quad: u32, // its quad of terms
    place: u32, // of its first quad in a buffer
}

// Neighbouring threads load along the lines.
fn share_of(thread: u32, left_is_along: u32, right_is_along: u32) -> Share {
    var share: Share;
    share.is_left = thread < TILE_M;
    share.is_along = select(right_is_along, left_is_along, share.is_left) != 0u;
    share.quads = select(RIGHT_QUADS, LEFT_QUADS, share.is_left);
    let slot = select(thread - TILE_M, thread, share.is_left);
    share.k_quad = select(slot / share.quads, slot % STEP_QUADS, share.is_along);
    share.quad = select(slot % share.quads, slot / STEP_QUADS, share.is_along);
    share.place = select(LEFT_SIZE, 0u, share.is_left) + share.k_quad * 4u * share.quads + turned(share.quad, share.k_quad);
    return share;
}

// Stores a block whose first quad belongs at `at`, with `stride` quads from term to term; its lines run along the terms or across them.
fn store_block(block: Block, at: u32, stride: u32, is_along: bool) {
    if (is_along) {
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

// The first quads of rows and of columns of a thread in the tile; if it has two, the others are half a tile further.
struct Corner {
    m: u32,
    n: u32,
}

fn corner_of(thread: u32) -> Corner {
    let warp = thread / 32u;
    return Corner(thread / 8u % 4u + warp / WARPS_N * 4u, thread % 8u + warp % WARPS_N * 8u);
}

// The sums of a thread: block_RC is of its first (0) or second (1) quad of rows and of columns, as far as it has them.
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

// Sums plus the products of a step of both factors.
fn plus_step(sums: Sums, buffer: u32, corner: Corner) -> Sums {
    var next = sums;
    for (var k_quad = 0u; k_quad < STEP_QUADS; k_quad++) {
        let left_at = buffer + k_quad * 4u * LEFT_QUADS + turned(corner.m, k_quad);
        let right_at = buffer + LEFT_SIZE + k_quad * 4u * RIGHT_QUADS + turned(corner.n, k_quad);
        // Unrolled by hand, so that the places in workgroup memory differ by constants whatever the compiler does.
        next = plus_term(next, left_at, right_at);
        next = plus_term(next, left_at + LEFT_QUADS, right_at + RIGHT_QUADS);
        next = plus_term(next, left_at + 2u * LEFT_QUADS, right_at + 2u * RIGHT_QUADS);
        next = plus_term(next, left_at + 3u * LEFT_QUADS, right_at + 3u * RIGHT_QUADS);
    }
    return next;
}

fn plus_block(a: Block, b: Block) -> Block {
    return Block(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// The sums of two chains.
fn plus_sums(a: Sums, b: Sums) -> Sums {
    var sum = Sums();
    sum.block_00 = plus_block(a.block_00, b.block_00);
    if (ROW_QUADS == 2u) {
        sum.block_10 = plus_block(a.block_10, b.block_10);
        if (COL_QUADS == 2u) {
            sum.block_01 = plus_block(a.block_01, b.block_01);
            sum.block_11 = plus_block(a.block_11, b.block_11);
        }
    }
    return sum;
}

// The first row and column of a tile of a matrix of `tiles_m` by `tiles_n` tiles.
fn tile_start(index: u32, tiles_m: u32, tiles_n: u32) -> vec2<u32> {
    let of_band = BAND_ROWS * tiles_n;
    let first_row = index / of_band * BAND_ROWS;
    let in_band = index % of_band;
    let rows = min(tiles_m - first_row, BAND_ROWS);
    return vec2<u32>((first_row + in_band % rows) * TILE_M, in_band / rows * TILE_N);
}

// Stores a block of sums in the slab.
fn keep_block(quad_m: u32, quad_n: u32, sums: Block) {
    let at = quad_m * 4u * RIGHT_QUADS + quad_n;
    tiles[at] = sums.x;
    tiles[at + RIGHT_QUADS] = sums.y;
    tiles[at + 2u * RIGHT_QUADS] = sums.z;
    tiles[at + 3u * RIGHT_QUADS] = sums.w;
}

// Stores in the slab the sums of one of a thread's quads of rows: a block, or two.
fn keep_rows(corner: Corner, first: Block, second: Block) {
    keep_block(corner.m, corner.n, first);
    if (COL_QUADS == 2u) {
        keep_block(corner.m, corner.n + RIGHT_QUADS / 2u, second);
    }
}

// Hands the sums to put_slab of the product: those of the upper and of the lower half of the tile, or all of them. Returns the
// sum of the results of put_slab.
fn put_tile(tile: Tile, thread: u32, corner: Corner, sums: Sums) -> vec4<f32> {
    keep_rows(corner, sums.block_00, sums.block_01);
    workgroupBarrier();
    var column_sums = put_slab(tile, thread, 0u);
    if (ROW_QUADS == 2u) {
        workgroupBarrier();
        keep_rows(corner, sums.block_10, sums.block_11);
        workgroupBarrier();
        column_sums += put_slab(tile, thread, SLAB_ROWS);
    }
    return column_sums;
}
