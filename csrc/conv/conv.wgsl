// Convolutions and their gradients as products of matrices, of which the left one is gathered from an image, tile by tile, and stored nowhere: the
// contraction of conv_output.wgsl, over a part of its terms.
//
// The tiles are those of gemm_tile.wgsl. The epilogue works on quads of rows or of columns. Elements outside the image are 0.

// A tile of the output.
struct Tile {
    part: u32,
    group: u32,
    m: u32, // its first row
    n: u32, // its first column
}

// What a thread loads of each step: a block of one factor.
struct Loader {
    is_gathered: bool,
    is_along: bool,
    first_k: u32, // of the block in its step
    across_count: u32, // rows or columns of the block inside the matrix
    digits: vec4<u32>, // extents of the digits of terms
    step: vec4<u32>, // the digits of a step
}

// Places of four columns from n on. Columns past the last are replaced by the last.
fn column_places(group: u32, n: u32) -> Places {
    let columns = min(vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u));
    var places = Places();
    places.at = vec4<u32>(group * params.plain_group) + columns * params.plain_column;
    return places;
}

// Places of four terms, of which `digits` are those of the first. Places of terms past the last have no meaning.
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

// A block of the gathered factor: `lines` are rows and `elements` are terms, or the other way around.
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

// A block of the plain factor. `step`, `count`: distance and number of a line's elements, if they are equally spaced.
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

// The block whose first term has these digits, of which `k_count` terms exist. Terms past the last are 0 in both factors, so that they add nothing. Rows
// and columns past the last hold elements of others, whose sums are not stored.
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

fn tile_of(workgroup: u32) -> Tile {
    let of_group = params.tiles_m * params.tiles_n;
    let batch = workgroup / of_group;
    let start = tile_start(workgroup % of_group, params.tiles_m, params.tiles_n);
    return Tile(batch / params.channel_groups, batch % params.channel_groups, start.x, start.y);
}

// Stores SLAB_ROWS rows of the tile from `first_row` on, whose sums are in workgroup memory. Neighbouring threads store neighbouring quads. Returns
// 0: convolutions need no sums of columns.
fn put_slab(tile: Tile, thread: u32, first_row: u32) -> vec4<f32> {
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
    return vec4<f32>();
}

@compute @workgroup_size(WORKGROUP)
fn conv_tiled(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    let tile = tile_of(workgroup);

    // 1. What this thread loads.
    var loader: Loader;
    let share = share_of(thread, params.gathered_is_along, params.plain_is_along);
    loader.is_gathered = share.is_left;
    loader.is_along = share.is_along;
    let first = select(tile.n, tile.m, loader.is_gathered) + share.quad * 4u;
    loader.first_k = share.k_quad * 4u;
    loader.across_count = rest_of(select(params.n, params.m, loader.is_gathered), first);
    loader.digits = select(params.plain_digits, params.term_digits, loader.is_gathered);
    loader.step = select(params.plain_step, params.term_step, loader.is_gathered);
    var across: Places;
    if (loader.is_gathered) {
        // Rows past the last are replaced by the last.
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
    let first_lines = read_block(loader, across, digits, rest_of(end, k));
    store_block(unpacked(loader, first_lines), share.place, share.quads, share.is_along);
    workgroupBarrier();

    // 3. The sums, in chains over the terms, and the chains in one more.
    let corner = corner_of(thread);
    var sums = Sums();
    var chains = Sums();
    var chain_end = params.chain;
    var buffer = 0u;
    for (var step = 0u; step < steps; step++) {
        // 3a. Loads of the next step; after the last one it is empty.
        k += STEP;
        digits = plus_digits(digits, loader.step, loader.digits);
        let lines = read_block(loader, across, digits, rest_of(end, k));
        // 3b. This step.
        sums = plus_step(sums, buffer, corner);
        if (step + 1u == chain_end) {
            chains = plus_sums(chains, sums);
            sums = Sums();
            chain_end += params.chain;
        }
        // 3c. No thread reads the other buffer: all have passed the barrier after the step before.
        buffer = STEP_SIZE - buffer;
        store_block(unpacked(loader, lines), buffer + share.place, share.quads, share.is_along);
        workgroupBarrier();
    }

    // 4. The output.
    put_tile(tile, thread, corner, plus_sums(chains, sums));
}
