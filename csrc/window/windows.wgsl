// What the kernels of pooling share: which elements a window has, which windows see an element, and sums in short chains.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

const CHAIN: u32 = 16u;
const MAX: u32 = 0u;
const AVERAGE: u32 = 1u;
const NORM1: u32 = 2u;
const NORM2: u32 = 3u;

// A spatial axis.
struct Axis {
    input: u32,
    output: u32,
    kernel: u32, // places of a window, of adaptive windows of the longest
    stride: u32,
    dilation: u32,
    before: u32,
    after: u32,
}

fn axis_of(at: u32) -> Axis {
    let first = params.axes[2u * at];
    let second = params.axes[2u * at + 1u];
    return Axis(first.x, first.y, first.z, first.w, second.x, second.y, second.z);
}

// The place of a part: its sample, its channel and its spatial positions.
struct PoolPlace {
    sample: u32,
    channel: u32,
    at: vec3<u32>,
}

// `extents`: of the tensor whose elements the parts are.
fn place_of(number: u32, extents: vec3<u32>) -> PoolPlace {
    var place: PoolPlace;
    var rest = number;
    if (IS_CHANNELS_LAST) {
        place.channel = rest % params.channels;
        rest = rest / params.channels;
    }
    place.at.z = rest % extents.z;
    rest = rest / extents.z;
    place.at.y = rest % extents.y;
    rest = rest / extents.y;
    place.at.x = rest % extents.x;
    rest = rest / extents.x;
    if (!IS_CHANNELS_LAST) {
        place.channel = rest % params.channels;
        rest = rest / params.channels;
    }
    place.sample = rest;
    return place;
}

// Where the element of a plane at spatial positions lies in an operand, by its number among the strides.
fn offset_of(operand: u32, place: PoolPlace, at: vec3<u32>) -> u32 {
    let first = params.strides[2u * operand];
    let last = params.strides[2u * operand + 1u].x;
    return place.sample * first.x + place.channel * first.y + at.x * first.z + at.y * first.w + at.z * last;
}

// Where parts of an extent begin and end that meet part `at` of `count` equal ones, among `others` equal ones.
fn shared_begin(at: u32, count: u32, others: u32) -> u32 {
    return at * others / count;
}

fn shared_end(at: u32, count: u32, others: u32) -> u32 {
    return ((at + 1u) * others + count - 1u) / count;
}

// What a window has along an axis: places, of which those from `first` to before `end` lie in x.
struct Span {
    start: i32, // where place 0 lies
    step: u32, // from one place to the next
    places: u32, // of the window
    first: u32,
    end: u32,
    padded: u32, // places up to the end of the padding
}

fn span_of(axis: Axis, output: u32) -> Span {
    if (IS_ADAPTIVE) {
        let begin = shared_begin(output, axis.output, axis.input);
        let places = shared_end(output, axis.output, axis.input) - begin;
        return Span(i32(begin), 1u, places, 0u, places, places);
    }
    let step = axis.dilation;
    let start = i32(output * axis.stride) - i32(axis.before);
    let left = i32(axis.input) - start;
    var first = 0u;
    if (start < 0) {
        first = (u32(-start) + step - 1u) / step;
    }
    let end = min((u32(max(left, 0)) + step - 1u) / step, axis.kernel);
    let padded = min((u32(max(left + i32(axis.after), 0)) + step - 1u) / step, axis.kernel);
    return Span(start, step, axis.kernel, min(first, end), end, padded);
}

fn element_of(span: Span, at: u32) -> u32 {
    return u32(span.start + i32(at * span.step));
}

fn elements_of(span: Span) -> u32 {
    return span.end - span.first;
}

// Windows that may see an element of an axis, from the first to before the last: those that reach over it.
fn seen_by(axis: Axis, element: u32) -> vec2<u32> {
    if (IS_ADAPTIVE) {
        return vec2<u32>(shared_begin(element, axis.input, axis.output), shared_end(element, axis.input, axis.output));
    }
    let reach = axis.dilation * (axis.kernel - 1u);
    let at = element + axis.before;
    var first = 0u;
    if (at > reach) {
        first = (at - reach + axis.stride - 1u) / axis.stride;
    }
    return vec2<u32>(first, min(at / axis.stride + 1u, axis.output));
}

const NO_PLACE: u32 = 0xffffffffu;

// The place of an element in a window that reaches over it, unless it lies between two places.
fn place_in(span: Span, element: u32) -> u32 {
    let behind = u32(i32(element) - span.start);
    let place = behind / span.step;
    return select(NO_PLACE, place, place * span.step == behind && place < span.places);
}

// What an average is multiplied with.
fn share_of(d: Span, h: Span, w: Span) -> f32 {
    if (HAS_FACTOR) {
        return bitcast<f32>(params.factor);
    }
    var places = d.padded * h.padded * w.padded;
    if (EXCLUDES_PADDING) {
        places = elements_of(d) * elements_of(h) * elements_of(w);
    }
    return 1.0 / f32(max(places, 1u));
}

// A sum of terms in chains of CHAIN: that of a chain, those of chains, and those of that many chains.
struct PoolSum {
    chain: f32,
    middle: f32,
    top: f32,
    chains: u32,
}

fn ended(sum: PoolSum) -> PoolSum {
    var next = PoolSum(0.0, sum.middle + sum.chain, sum.top, sum.chains + 1u);
    if (next.chains % CHAIN == 0u) {
        next.top += next.middle;
        next.middle = 0.0;
    }
    return next;
}

fn total(sum: PoolSum) -> f32 {
    return sum.top + sum.middle + sum.chain;
}

// The number that the bits of an element are.
fn value_of(bits: u32) -> f32 {
    if (X_IS_HALF) {
        return unpack(bits).x;
    }
    return bitcast<f32>(bits);
}

// The bits of a result.
fn bits_of(value: f32) -> u32 {
    if (X_IS_HALF) {
        return round_to_half(value);
    }
    return bitcast<u32>(value);
}
