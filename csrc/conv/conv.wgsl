// Convolutions and their gradients as products of matrices of which one is gathered from an image, tile by tile and without being stored:
// the contraction of conv_output.wgsl, of a part of its terms.
//
// A workgroup computes a tile of LEFT_QUADS * 4 rows and RIGHT_QUADS * 4 columns, a thread ROW_QUADS * COL_QUADS blocks of 4 x 4 of it. The
// factors pass through workgroup memory in steps of STEP terms, in two buffers: while one step is multiplied, the next is on its way from
// memory into registers, and then into the other buffer, so that a step has one barrier. A thread brings one block of 4 x 4 elements of one
// factor, in four lines that run along the terms or across them; in workgroup memory the quads of a block always lie across, four rows or
// four columns of one term, as the multiplication reads them.
//
// Elements outside of the image are 0.
//
// Sums of a tile pass through the same memory on their way out, so that the epilogue works on dense quads of rows or of columns.
const STEP: u32 = 16u;
const STEP_QUADS: u32 = STEP / 4u;
const TILE_M: u32 = LEFT_QUADS * 4u;
const TILE_N: u32 = RIGHT_QUADS * 4u;
// Quads of a step: of the gathered factor, and of both.
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

// Four rows of four columns of sums, or four lines of a factor.
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
    is_gathered: bool,
    is_along: bool,
    first_k: u32, // of the block in its step
    across_count: u32, // rows or columns of the block inside the matrix
    place: u32, // in a buffer
    digits: vec4<u32>, // extents of the digits of terms
    step: vec4<u32>, // the digits of a step
}

// Of four columns from n on; past the last column, the last one again.
fn column_places(group: u32, n: u32) -> Places {
    let columns = min(vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u));
    var places = Places();
    places.at = vec4<u32>(group * params.plain_group) + columns * params.plain_column;
    return places;
}

// Of four terms, of which `digits` is the first. Those past the last are any.
fn term_places(loader: Loader, digits: vec4<u32>) -> Places {
    let one = vec4<u32>(0u, 0u, 0u, 1u);
    let b = plus_digits(digits, one, loader.digits);
    let c = plus_digits(b, one, loader.digits);
    let d = plus_digits(c, one, loader.digits);
    if (loader.is_gathered) {
        let last = params.terms_lead_last;
        return places_of(
            tuple_of(digits, last),
            tuple_of(b, last),
            tuple_of(c, last),
            tuple_of(d, last),
            params.term_lead,
            params.of_term,
            vec4<i32>(),
        );
    }
    var places = Places();
    places.at = vec4<u32>(
        with_strides(digits, params.plain_strides),
        with_strides(b, params.plain_strides),
        with_strides(c, params.plain_strides),
        with_strides(d, params.plain_strides),
    );
    return places;
}

// Four elements, each at a place of its own.
fn gathered_elements(found: Found) -> vec4<u32> {
    let bits = vec4<u32>(
        gathered_bits(found.at.x, 0u, 1u).x,
        gathered_bits(found.at.y, 0u, 1u).x,
        gathered_bits(found.at.z, 0u, 1u).x,
        gathered_bits(found.at.w, 0u, 1u).x,
    );
    return select(vec4<u32>(), bits, found.is_there);
}

fn plain_elements(at: vec4<u32>, are_terms: vec4<bool>) -> vec4<u32> {
    let place = select(vec4<u32>(), at, are_terms);
    let bits = vec4<u32>(
        plain_bits(place.x, 0u, 1u).x,
        plain_bits(place.y, 0u, 1u).x,
        plain_bits(place.z, 0u, 1u).x,
        plain_bits(place.w, 0u, 1u).x,
    );
    return select(vec4<u32>(), bits, are_terms);
}

// A block of the gathered factor: `lines` are rows and `elements` terms, or the other way around.
fn read_gathered(lines: Places, elements: Places, step: u32, line_terms: vec4<bool>, element_terms: vec4<bool>) -> Lines {
    if (params.gathered_has_lines != 0u) {
        let found = found_at(lines, elements.at.x, elements.x.x, elements.y.x, elements.z.x, line_terms);
        return Lines(
            select(vec4<u32>(), gathered_bits(found.at.x, step, 4u), vec4<bool>(found.is_there.x)),
            select(vec4<u32>(), gathered_bits(found.at.y, step, 4u), vec4<bool>(found.is_there.y)),
            select(vec4<u32>(), gathered_bits(found.at.z, step, 4u), vec4<bool>(found.is_there.z)),
            select(vec4<u32>(), gathered_bits(found.at.w, step, 4u), vec4<bool>(found.is_there.w)),
        );
    }
    let all = element_terms;
    return Lines(
        gathered_elements(found_at(elements, lines.at.x, lines.x.x, lines.y.x, lines.z.x, all & vec4<bool>(line_terms.x))),
        gathered_elements(found_at(elements, lines.at.y, lines.x.y, lines.y.y, lines.z.y, all & vec4<bool>(line_terms.y))),
        gathered_elements(found_at(elements, lines.at.z, lines.x.z, lines.y.z, lines.z.z, all & vec4<bool>(line_terms.z))),
        gathered_elements(found_at(elements, lines.at.w, lines.x.w, lines.y.w, lines.z.w, all & vec4<bool>(line_terms.w))),
    );
}

// A block of the plain factor, whose lines have `count` elements where they have one step.
fn read_plain(lines: Places, elements: Places, step: u32, count: u32, line_terms: vec4<bool>, element_terms: vec4<bool>) -> Lines {
    if (params.plain_has_lines != 0u) {
        let at = select(vec4<u32>(), lines.at, line_terms) + vec4<u32>(elements.at.x);
        return Lines(
            select(vec4<u32>(), plain_bits(at.x, step, count), vec4<bool>(line_terms.x)),
            select(vec4<u32>(), plain_bits(at.y, step, count), vec4<bool>(line_terms.y)),
            select(vec4<u32>(), plain_bits(at.z, step, count), vec4<bool>(line_terms.z)),
            select(vec4<u32>(), plain_bits(at.w, step, count), vec4<bool>(line_terms.w)),
        );
    }
    return Lines(
        plain_elements(vec4<u32>(lines.at.x) + elements.at, element_terms & vec4<bool>(line_terms.x)),
        plain_elements(vec4<u32>(lines.at.y) + elements.at, element_terms & vec4<bool>(line_terms.y)),
        plain_elements(vec4<u32>(lines.at.z) + elements.at, element_terms & vec4<bool>(line_terms.z)),
        plain_elements(vec4<u32>(lines.at.w) + elements.at, element_terms & vec4<bool>(line_terms.w)),
    );
}

// The block whose first term has these digits, of which `k_count` terms are there. Terms past the last are 0 in both factors, so that they
// add nothing. Rows and columns past the last are any others: their sums are not stored.
fn read_block(loader: Loader, across: Places, digits: vec4<u32>, k_count: u32) -> Lines {
    var read = Lines();
    if (k_count > 0u && loader.across_count > 0u) {
        let terms = term_places(loader, digits);
        let are_terms = vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(k_count);
        var lines = terms;
        var elements = across;
        if (loader.is_along) {
            lines = across;
            elements = terms;
        }
        let line_terms = are_terms | vec4<bool>(loader.is_along);
        let element_terms = are_terms | vec4<bool>(!loader.is_along);
        if (loader.is_gathered) {
            let step = select(params.row_lead, params.term_lead, loader.is_along);
            read = read_gathered(lines, elements, step, line_terms, element_terms);
        } else {
            let step = select(params.plain_column, params.plain_strides.w, loader.is_along);
            let count = select(loader.across_count, k_count, loader.is_along);
            read = read_plain(lines, elements, step, count, line_terms, element_terms);
        }
    }
    return read;
}

fn unpacked(loader: Loader, lines: Lines) -> Block {
    if (loader.is_gathered) {
        return Block(gathered_unpacked(lines.x), gathered_unpacked(lines.y), gathered_unpacked(lines.z), gathered_unpacked(lines.w));
    }
    return Block(plain_unpacked(lines.x), plain_unpacked(lines.y), plain_unpacked(lines.z), plain_unpacked(lines.w));
}

// Where a quad of a term is. Eight threads beside each other store two quads of every fourth term, or eight quads of one term; turned
// around by the term, those of one store are in different banks either way, and so are those that threads read.
fn turned(quad: u32, k_quad: u32) -> u32 {
    return quad ^ (2u * k_quad);
}

fn store_block(loader: Loader, buffer: u32, lines: Lines) {
    let block = unpacked(loader, lines);
    let at = buffer + loader.place;
    let stride = select(RIGHT_QUADS, LEFT_QUADS, loader.is_gathered);
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

fn tile_of(workgroup: u32) -> Tile {
    let of_group = params.tiles_m * params.tiles_n;
    let batch = workgroup / of_group;
    let in_group = workgroup % of_group;
    let of_band = BAND * params.tiles_n;
    let first_row = in_group / of_band * BAND;
    let in_band = in_group % of_band;
    let rows = min(params.tiles_m - first_row, BAND);
    let m = (first_row + in_band % rows) * TILE_M;
    return Tile(batch / params.channel_groups, batch % params.channel_groups, m, in_band / rows * TILE_N);
}

// Stores SLAB_ROWS rows of the tile from `first_row` on, whose sums are in workgroup memory. Threads beside each other take quads beside
// each other.
fn put_slab(tile: Tile, thread: u32, first_row: u32) {
    let m = tile.m + first_row;
    for (var quad = thread; quad < SLAB_ROWS * RIGHT_QUADS; quad += WORKGROUP) {
        if (params.quads_are_rows != 0u) {
            let row = quad % (SLAB_ROWS / 4u) * 4u;
            let column = quad / (SLAB_ROWS / 4u);
            let at = row * RIGHT_QUADS + column / 4u;
            let sums = vec4<f32>(
                tiles[at][column % 4u],
                tiles[at + RIGHT_QUADS][column % 4u],
                tiles[at + 2u * RIGHT_QUADS][column % 4u],
                tiles[at + 3u * RIGHT_QUADS][column % 4u],
            );
            finish_quad(tile.part, tile.group, m + row, tile.n + column, sums);
        } else {
            finish_quad(tile.part, tile.group, m + quad / RIGHT_QUADS, tile.n + quad % RIGHT_QUADS * 4u, tiles[quad]);
        }
    }
}

fn keep_rows(thread_m: u32, quad_n: u32, sums: Block) {
    let at = thread_m * 4u * RIGHT_QUADS + quad_n;
    tiles[at] = sums.x;
    tiles[at + RIGHT_QUADS] = sums.y;
    tiles[at + 2u * RIGHT_QUADS] = sums.z;
    tiles[at + 3u * RIGHT_QUADS] = sums.w;
}

@compute @workgroup_size(WORKGROUP)
fn conv_tiled(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = workgroup.y * params.groups_x + workgroup.x;
    if (group >= params.groups) {
        return;
    }
    let tile = tile_of(group);

    // 1. What this thread brings.
    var loader: Loader;
    loader.is_gathered = thread < TILE_M;
    let slot = select(thread - TILE_M, thread, loader.is_gathered);
    loader.is_along = select(params.plain_is_along, params.gathered_is_along, loader.is_gathered) != 0u;
    let quads = select(RIGHT_QUADS, LEFT_QUADS, loader.is_gathered);
    // Neighbours lie along the lines.
    let k_quad = select(slot / quads, slot % STEP_QUADS, loader.is_along);
    let quad = select(slot % quads, slot / STEP_QUADS, loader.is_along);
    let first = select(tile.n, tile.m, loader.is_gathered) + quad * 4u;
    loader.first_k = k_quad * 4u;
    loader.across_count = rest_of(select(params.n, params.m, loader.is_gathered), first);
    loader.place = select(LEFT_SIZE, 0u, loader.is_gathered) + loader.first_k * quads + turned(quad, k_quad);
    loader.digits = select(params.plain_digits, params.term_digits, loader.is_gathered);
    loader.step = select(params.plain_step, params.term_step, loader.is_gathered);
    var across: Places;
    if (loader.is_gathered) {
        // In the place of rows past the last, the last one again.
        across = row_places(min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.m - 1u)));
        across.at += vec4<u32>(tile.group * params.gathered_group);
    } else {
        across = column_places(tile.group, first);
    }

    // 2. The first step.
    let start = tile.part * params.part_terms;
    let end = min(start + params.part_terms, params.terms);
    let steps = (end - min(start, end) + STEP - 1u) / STEP;
    var k = start + loader.first_k;
    var digits = digits_of(k, loader.digits);
    store_block(loader, 0u, read_block(loader, across, digits, rest_of(end, k)));
    workgroupBarrier();

    // 3. Sums, each in one chain over the terms: of rows 4 tm and columns 4 tn on, and if there are two quads of them, half a tile further.
    let warp = thread / 32u;
    let thread_m = thread / 8u % 4u + warp / WARPS_N * 4u;
    let thread_n = thread % 8u + warp % WARPS_N * 8u;
    var sums = Sums();
    var buffer = 0u;
    for (var step = 0u; step < steps; step++) {
        // 3a. The next step is asked for: after the last one, nothing.
        k += STEP;
        digits = plus_digits(digits, loader.step, loader.digits);
        let lines = read_block(loader, across, digits, rest_of(end, k));
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
    put_slab(tile, thread, 0u);
    if (ROW_QUADS == 2u) {
        workgroupBarrier();
        keep_rows(thread_m, thread_n, sums.block_10);
        if (COL_QUADS == 2u) {
            keep_rows(thread_m, thread_n + RIGHT_QUADS / 2u, sums.block_11);
        }
        workgroupBarrier();
        put_slab(tile, thread, SLAB_ROWS);
    }
}
