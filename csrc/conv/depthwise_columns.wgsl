// Strips whose quads are four columns of one channel. A quad's windows are four neighbours among the twelve columns of the quad, of that before and of that
// behind it. The window of tap 0 begins at element SHIFT of these twelve.
const QUAD_COLUMNS: u32 = 4u; // columns of a quad
const QUAD_CHANNELS: u32 = 1u; // channels of a quad

// Packed lines of four columns; the last one is unused if a strip has one quad.
alias Row = array<vec4<u32>, 4>;

fn line_bits(at: u32, column: u32, is_there: bool) -> vec4<u32> {
    if (is_there && column < params.gathered_columns) {
        let count = min(params.gathered_columns - column, 4u);
        return gathered_bits(at + column * params.gathered.column, params.gathered.column, count);
    }
    return vec4<u32>();
}

fn read_row(place: Place, at: u32, is_there: bool) -> Row {
    // Left of the image the column wraps around.
    let first = place.column - 4u;
    return Row(
        line_bits(at, first, is_there),
        line_bits(at, first + 4u, is_there),
        line_bits(at, first + 8u, is_there),
        line_bits(at, first + 12u, is_there && STRIP > 1u),
    );
}

// The columns of a line, 0 for those outside the image.
fn line_values(bits: vec4<u32>, column: u32) -> vec4<f32> {
    let values = gathered_unpacked(bits);
    if (WHOLE_CHUNKS) {
        return values;
    }
    let columns = vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(), values, columns < vec4<u32>(params.gathered_columns));
}

// Four neighbours of twelve elements, from element `shift` on.
fn shifted(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, shift: u32) -> vec4<f32> {
    switch shift {
        case 0u: {
            return a;
        }
        case 1u: {
            return vec4<f32>(a.yzw, b.x);
        }
        case 2u: {
            return vec4<f32>(a.zw, b.xy);
        }
        case 3u: {
            return vec4<f32>(a.w, b.xyz);
        }
        case 4u: {
            return b;
        }
        case 5u: {
            return vec4<f32>(b.yzw, c.x);
        }
        case 6u: {
            return vec4<f32>(b.zw, c.xy);
        }
        case 7u: {
            return vec4<f32>(b.w, c.xyz);
        }
        default: {
            return c;
        }
    }
}

fn windows_of(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>) -> Windows {
    return Windows(
        shifted(a, b, c, SHIFT),
        shifted(a, b, c, SHIFT + 1u),
        shifted(a, b, c, SHIFT + 2u),
        shifted(a, b, c, SHIFT + 3u),
        shifted(a, b, c, SHIFT + 4u),
        shifted(a, b, c, SHIFT + 5u),
        shifted(a, b, c, SHIFT + 6u),
    );
}

// The windows of the first two quads of a strip.
fn strip_windows(place: Place, row: Row) -> array<Windows, 2> {
    let first = place.column - 4u;
    let a = line_values(row[0], first);
    let b = line_values(row[1], first + 4u);
    let c = line_values(row[2], first + 8u);
    let d = line_values(row[3], first + 12u);
    return array<Windows, 2>(windows_of(a, b, c), windows_of(b, c, d));
}

// Elements of the quad at a column of the output.
fn quad_count(place: Place, column: u32) -> u32 {
    return min(params.columns - column, 4u);
}
