// Tensors with other extents, and the gradient of that. A thread makes a chunk of up to ELEMENTS elements of the target, y or dx, along a line; each is a sum over
// those of the source, x or dy, that are part of it. The functions `element_at`, `bits`, `pack_units` and `store` are made from the operands.
const SAMPLINGS: u32 = 3u;

struct Params {
    chunks: u32,
    groups_x: u32,
    chunks_of_line: u32,
    unused: u32,
    axes: array<vec4<u32>, AXES>, // innermost first: extent, strides of the target and of the source, and which of the samplings, SAMPLINGS for none
    samplings: array<vec4<i32>, 6>, // two for each: slope, start and unit; elements of x, of y, and the stride of the source
}

@group(0) @binding(0) var<uniform> params: Params;

struct Place {
    y_at: u32,
    count: u32,
}

// How the positions of an extent of y lie in that of x: position o at (slope o + start) / unit.
struct Sampling {
    slope: i32,
    start: i32,
    unit: i32,
    elements: i32, // of x
    positions: i32, // of y
    step: u32,
}

fn sampling_of(number: u32) -> Sampling {
    let places = params.samplings[2u * number];
    let extents = params.samplings[2u * number + 1u];
    return Sampling(places.x, places.y, places.z, extents.x, extents.y, u32(extents.z));
}

// The element of x below a position of y, and how far behind it the position lies. No position lies more than an element before the first.
struct Below {
    element: i32,
    behind: f32,
}

fn below(s: Sampling, position: i32) -> Below {
    let ahead = s.slope * position + s.start + s.unit;
    let quotient = ahead / s.unit;
    return Below(quotient - 1, f32(ahead - quotient * s.unit) / f32(s.unit));
}

// The weight of an element by its number among those around a position.
fn weight_of(behind: f32, tap: u32) -> f32 {
    if (TAPS == 1u) {
        return 1.0;
    }
    if (TAPS == 2u) {
        return select(behind, 1.0 - behind, tap == 0u);
    }
    let a = -0.75;
    if (tap == 1u || tap == 2u) {
        let d = select(1.0 - behind, behind, tap == 1u);
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    }
    let d = select(2.0 - behind, behind + 1.0, tap == 0u);
    return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
}

const BEFORE: i32 = select(0, 1, TAPS == 4u);

fn clamped(s: Sampling, element: i32) -> i32 {
    return clamp(element, 0, s.elements - 1);
}

// The first position of y whose element below is `element` or a later one.
fn first_position(s: Sampling, element: i32) -> i32 {
    let ahead = element * s.unit - s.start;
    if (ahead <= 0) {
        return 0;
    }
    if (s.slope == 0) {
        return s.positions;
    }
    return min((ahead - 1) / s.slope + 1, s.positions);
}

// What is part of an element of the target along an extent: of y the elements of x by their numbers, of dx the positions of y from `first` to before `end`.
struct Parts {
    s: Sampling,
    at: i32,
    first: i32,
    end: i32,
    place: Below,
}

fn parts_of(number: u32, at: u32) -> Parts {
    var parts: Parts;
    parts.end = 1;
    if (number >= SAMPLED) {
        return parts;
    }
    parts.s = sampling_of(number);
    parts.at = i32(at);
    if (IS_BACKWARD) {
        // Elements beyond either end are the last there.
        if (parts.at > 0) {
            parts.first = first_position(parts.s, parts.at + BEFORE + 1 - i32(TAPS));
        }
        parts.end = parts.s.positions;
        if (parts.at + 1 < parts.s.elements) {
            parts.end = first_position(parts.s, parts.at + BEFORE + 1);
        }
    } else {
        parts.place = below(parts.s, parts.at);
        parts.end = i32(TAPS);
    }
    return parts;
}

struct Part {
    offset: u32,
    weight: f32,
}

fn part_of(parts: Parts, number: u32, k: i32) -> Part {
    if (number >= SAMPLED) {
        return Part(0u, 1.0);
    }
    if (!IS_BACKWARD) {
        let element = clamped(parts.s, parts.place.element + k - BEFORE);
        return Part(u32(element) * parts.s.step, weight_of(parts.place.behind, u32(k)));
    }
    let place = below(parts.s, k);
    var sum = 0.0;
    for (var tap = 0u; tap < TAPS; tap++) {
        if (clamped(parts.s, place.element + i32(tap) - BEFORE) == parts.at) {
            sum += weight_of(place.behind, tap);
        }
    }
    return Part(u32(k) * parts.s.step, sum);
}

// Sums along columns, of these along rows, and of these along planes. Elements of weight 0 are not read.
fn sum_of(start: u32, positions: array<u32, SAMPLINGS>) -> f32 {
    let columns = parts_of(0u, positions[0]);
    let rows = parts_of(1u, positions[1]);
    let planes = parts_of(2u, positions[2]);
    var sum = 0.0;
    for (var p = planes.first; p < planes.end; p++) {
        let plane = part_of(planes, 2u, p);
        var of_rows = 0.0;
        for (var r = rows.first; r < rows.end; r++) {
            let row = part_of(rows, 1u, r);
            var of_columns = 0.0;
            for (var c = columns.first; c < columns.end; c++) {
                let column = part_of(columns, 0u, c);
                if (plane.weight != 0.0 && row.weight != 0.0 && column.weight != 0.0) {
                    of_columns += column.weight * element_at(start + plane.offset + row.offset + column.offset);
                }
            }
            if (row.weight != 0.0) {
                of_rows += row.weight * of_columns;
            }
        }
        if (plane.weight != 0.0) {
            sum += plane.weight * of_rows;
        }
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn resize(at: Invocation) {
    let chunk = workgroup_number(at, params.groups_x) * WORKGROUP + at.index;
    if (chunk >= params.chunks) {
        return;
    }
    // 1. The part of a line.
    var rest = chunk / params.chunks_of_line;
    let line = params.axes[0];
    let first = (chunk - rest * params.chunks_of_line) * ELEMENTS;
    var place = Place(first * line.y, count_before(line.x, first));
    var start = 0u;
    var positions: array<u32, SAMPLINGS>;
    for (var k = 1u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        place.y_at += i * axis.y;
        if (axis.w < SAMPLINGS) {
            positions[axis.w] = i;
        } else {
            start += i * axis.z;
        }
        rest = outer;
    }
    // 2. Its elements.
    var units: array<u32, ELEMENTS>;
    for (var e = 0u; e < ELEMENTS; e++) {
        if (e < place.count) {
            var source_at = start;
            if (line.w < SAMPLINGS) {
                positions[line.w] = first + e;
            } else {
                source_at += (first + e) * line.z;
            }
            units[e] = bits(sum_of(source_at, positions));
        }
    }
    store(place, pack_units(units));
}
