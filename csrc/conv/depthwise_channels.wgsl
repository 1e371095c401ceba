// Strips whose quads are four channels of one column. The windows of a quad are the quads of neighbouring columns.
const QUAD_COLUMNS: u32 = 1u; // columns of a quad
const QUAD_CHANNELS: u32 = 4u; // channels of a quad

// Packed quads of neighbouring columns, as many as the windows of a strip see; the others are unused.
alias Row = array<vec4<u32>, MOST_QUADS + MOST_TAPS - 1u>;

fn line_bits(place: Place, at: u32, index: u32, is_there: bool) -> vec4<u32> {
    // Left of the image the column wraps around.
    let column = place.column + params.first_column + index;
    if (index < STRIP + KERNEL_COLUMNS - 1u && is_there && column < params.gathered_columns) {
        let count = min(params.channels - place.channel, 4u);
        return gathered_bits(at + column * params.gathered.column, params.gathered.channel, count);
    }
    return vec4<u32>();
}

fn read_row(place: Place, at: u32, is_there: bool) -> Row {
    return Row(
        line_bits(place, at, 0u, is_there),
        line_bits(place, at, 1u, is_there),
        line_bits(place, at, 2u, is_there),
        line_bits(place, at, 3u, is_there),
        line_bits(place, at, 4u, is_there),
        line_bits(place, at, 5u, is_there),
        line_bits(place, at, 6u, is_there),
        line_bits(place, at, 7u, is_there),
        line_bits(place, at, 8u, is_there),
        line_bits(place, at, 9u, is_there),
    );
}

// The windows of the four quads of a strip.
fn strip_windows(place: Place, row: Row) -> array<Windows, MOST_QUADS> {
    let a = gathered_unpacked(row[0]);
    let b = gathered_unpacked(row[1]);
    let c = gathered_unpacked(row[2]);
    let d = gathered_unpacked(row[3]);
    let e = gathered_unpacked(row[4]);
    let f = gathered_unpacked(row[5]);
    let g = gathered_unpacked(row[6]);
    let h = gathered_unpacked(row[7]);
    let i = gathered_unpacked(row[8]);
    let j = gathered_unpacked(row[9]);
    return array<Windows, MOST_QUADS>(
        Windows(a, b, c, d, e, f, g),
        Windows(b, c, d, e, f, g, h),
        Windows(c, d, e, f, g, h, i),
        Windows(d, e, f, g, h, i, j),
    );
}

// Elements of the quad at a column of the output.
fn quad_count(place: Place, column: u32) -> u32 {
    return min(params.channels - place.channel, 4u);
}
