// What forward and backward of cross-entropy share: lines of any strides, of which a team of THREADS threads takes one, their targets, and sums of
// exponentials in one pass.
struct Params {
    lines: u32,
    dim: u32, // elements of a line
    rank: u32, // extents
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
    ignored: u32, // the target of lines that do not count, if HAS_IGNORED; of 64 bits the lower half
    ignored_above: u32, // the upper half
    padding_after: u32,
    extents: array<vec4<u32>, 2>, // of the lines, innermost first
    strides: array<vec4<u32>, 10>, // of x, the targets, loss or dloss, logsumexp and dx, two vectors each
    steps: vec4<u32>, // of x and of dx, between the elements of a line, of the weight, and of probabilities
    options: vec4<f32>, // what the target's loss counts, that of each class beside it, and the square of logsumexp
}

@group(0) @binding(0) var<uniform> params: Params;

// Where a line begins in each operand; past the last line a line without elements.
struct Place {
    number: u32,
    dim: u32,
    x: u32,
    targets: u32,
    loss: u32,
    logsumexp: u32,
    dx: u32,
}

fn place_of(at: Invocation) -> Place {
    let number = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + at.index / THREADS;
    var place = Place(number, 0u, 0u, 0u, 0u, 0u, 0u);
    if (number >= params.lines) {
        return place;
    }
    place.dim = params.dim;
    var rest = number;
    for (var k = 0u; k < params.rank; k++) {
        let extent = params.extents[k >> 2u][k & 3u];
        let i = rest % extent;
        rest = rest / extent;
        place.x += i * params.strides[k >> 2u][k & 3u];
        place.targets += i * params.strides[2u + (k >> 2u)][k & 3u];
        place.loss += i * params.strides[4u + (k >> 2u)][k & 3u];
        place.logsumexp += i * params.strides[6u + (k >> 2u)][k & 3u];
        place.dx += i * params.strides[8u + (k >> 2u)][k & 3u];
    }
    return place;
}

// What the target of a line says. A line that is not there has none.
struct Goal {
    class_at: u32,
    is_ignored: bool,
    is_class: bool,
}

fn goal_of(place: Place) -> Goal {
    if (place.dim == 0u) {
        return Goal(0u, true, false);
    }
    if (HAS_PROBABILITIES) {
        // The line counts, and no class is its target.
        return Goal(place.dim, false, true);
    }
    var number = 0u;
    var above = 0u;
    if (IS_WIDE) {
        number = targets_bits(2u * place.targets);
        above = targets_bits(2u * place.targets + 1u);
    } else {
        number = targets_bits(place.targets);
    }
    let is_ignored = HAS_IGNORED && number == params.ignored && above == params.ignored_above;
    // A line has fewer than 2^31 elements, so that a negative target is none of them as an unsigned number, too.
    return Goal(number, is_ignored, !is_ignored && above == 0u && number < place.dim);
}

// -infinity and NaN. They are computed, since WGSL has no constants for them.
fn infinite() -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(params.all_bits << 23u));
}

fn no_number() -> f32 {
    return bitcast<f32>(params.all_bits & 0x7fc00000u);
}

// Whether values are NaN or +infinity.
fn are_improper(values: vec4<f32>) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(values);
    return ((bits & vec4<u32>(0x7fffffffu)) >= vec4<u32>(0x7f800000u)) & (bits != vec4<u32>(0xff800000u));
}

// One element of a line.
fn element_of(place: Place, i: u32) -> f32 {
    let bits = x_bits(place.x + i * params.steps.x);
    return select(bitcast<f32>(bits), unpack(bits).x, X_IS_HALF);
}

// What the losses of the classes from a column on count beside that of a target: of probabilities all of it.
fn class_shares(place: Place, first: u32, count: u32) -> vec4<f32> {
    let weights = class_weights(first, count);
    if (!HAS_PROBABILITIES) {
        return weights * params.options.y;
    }
    let chunk = targets_gather(place.targets + first * params.steps.w, params.steps.w, count);
    return weights * (params.options.x * values_of(chunk, TARGETS_ARE_HALF) + params.options.y);
}

// The chunk from a column on; elements past the end of the line are -infinity.
fn chunk_of_line(place: Place, first: u32) -> vec4<f32> {
    let count = min(place.dim - first, 4u);
    let x = values_of(x_gather(place.x + first * params.steps.x, params.steps.x, count), X_IS_HALF);
    return select(infinite(), x, columns(first) < vec4<u32>(place.dim));
}

// A line's sum of exponentials about `about`, which is one of its largest elements. An improper line has a NaN or +infinity; the sum of a line of -infinity
// alone is 0.
struct LineSum {
    about: f32,
    sum: f32,
    is_improper: bool,
}

var<workgroup> improper_threads: array<u32, WORKGROUP>;

// What exponentials are about moves only where an element is far above it, since each move rounds what is there: all that was there before counts little
// after it.
const MARGIN: f32 = 8.0;

fn sum_of_line(at: Invocation, place: Place) -> LineSum {
    var about = LEAST;
    // Chains of 16 on each level.
    var sums = vec4<f32>();
    var above = vec4<f32>();
    var top = vec4<f32>();
    var is_improper = false;
    var added = 0u;
    for (var k = 0u; column_of(at, k) < place.dim; k++) {
        let x = chunk_of_line(place, column_of(at, k));
        let improper = are_improper(x);
        is_improper = is_improper || any(improper);
        let left_out = improper | are_masked(x);
        let seen = select(x, vec4<f32>(LEAST), left_out);
        let largest = max(max(seen.x, seen.y), max(seen.z, seen.w));
        if (largest > about + MARGIN) {
            let factor = exponential(vec4<f32>(about - largest)).x;
            sums = sums * factor;
            above = above * factor;
            top = top * factor;
            about = largest;
        }
        sums = sums + select(exponential(seen - about), vec4<f32>(), left_out);
        added += 1u;
        if (added % 16u == 0u) {
            above = above + sums;
            sums = vec4<f32>();
            if (added % 256u == 0u) {
                top = top + above;
                above = vec4<f32>();
            }
        }
    }
    let mine = (sums + above) + top;
    tree[at.index] = about;
    improper_threads[at.index] = select(0u, 1u, is_improper);
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (at.index % THREADS < half) {
            tree[at.index] = max(tree[at.index], tree[at.index + half]);
            improper_threads[at.index] = improper_threads[at.index] | improper_threads[at.index + half];
        }
        workgroupBarrier();
    }
    let leader = at.index - at.index % THREADS;
    let of_line = tree[leader];
    let is_line_improper = improper_threads[leader] != 0u;
    let factor = exponential(vec4<f32>(about - of_line)).x;
    return LineSum(of_line, team_sum(at, ((mine.x + mine.y) + (mine.z + mine.w)) * factor), is_line_improper);
}
