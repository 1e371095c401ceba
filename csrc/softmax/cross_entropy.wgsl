// Cross-entropy of logits with class indices or probabilities: lines of any strides.
//
// logsumexp = max(x) + log(sum(exp(x - max(x)))); the loss of a line is logsumexp - x[target], 0 if its target is ignored, NaN if it is out of range. The sum of
// the losses of lines, or their mean over the lines that count, follows in dispatches of its own. With options the loss is that of cross_entropy.cu.
@compute @workgroup_size(WORKGROUP)
fn cross_entropy(at: Invocation) {
    let place = place_of(at);
    // 1. The sum of exponentials.
    let of_line = sum_of_line(at, place);
    var of_classes = ClassSum(0.0, 0u);
    if (HAS_SHARES) {
        of_classes = sum_of_classes(at, place, of_line);
    }
    if (at.index % THREADS > 0u || place.dim == 0u) {
        return;
    }
    // 2. The results of the line.
    let log_sum = logarithm(vec4<f32>(of_line.sum)).x;
    let goal = goal_of(place);
    let is_blank = of_line.sum == 0.0;
    var logsumexp = select(of_line.about + log_sum, infinite().x, is_blank);
    logsumexp = select(logsumexp, no_number(), of_line.is_improper);
    var loss = select(no_number(), 0.0, goal.is_ignored);
    var weight = 1.0;
    if (HAS_OPTIONS && goal.is_class && !HAS_PROBABILITIES) {
        weight = class_weights(goal.class_at, 1u).x;
    }
    if (goal.is_class && !is_blank && !of_line.is_improper) {
        var of_class = 0.0;
        if (!HAS_PROBABILITIES) {
            of_class = element_of(place, goal.class_at);
        }
        loss = select((of_line.about - of_class) + log_sum, -infinite().x, are_masked(vec4<f32>(of_class)).x);
        if (HAS_OPTIONS) {
            loss = loss_with_options(of_class, weight, of_line.about, log_sum, of_classes);
        }
    }
    put_logsumexp(place.logsumexp, bitcast<u32>(logsumexp));
    put_loss(select(place.number, place.loss, IS_EACH), bitcast<u32>(loss));
    put_weight(place.number, bitcast<u32>(select(0.0, weight, goal.is_class)));
}

// The sum of the losses of all classes, each by its share. Those that are infinite are kinds of bits: infinite 1, -infinite 2, NaN 4.
struct ClassSum {
    sum: f32,
    kinds: u32,
}

// The kinds of infinite losses with these shares.
fn kinds_of(are_infinite: vec4<bool>, shares: vec4<f32>) -> u32 {
    let above = select(0u, 1u, any(are_infinite & (shares > vec4<f32>())));
    let below = select(0u, 2u, any(are_infinite & (shares < vec4<f32>())));
    return above | below | select(0u, 4u, any(are_infinite & (shares == vec4<f32>())));
}

fn sum_of_classes(at: Invocation, place: Place, of_line: LineSum) -> ClassSum {
    let log_sum = logarithm(vec4<f32>(of_line.sum)).x;
    // Chains of 16 on each level.
    var sums = vec4<f32>();
    var above = vec4<f32>();
    var top = vec4<f32>();
    var kinds = 0u;
    var added = 0u;
    for (var k = 0u; column_of(at, k) < place.dim; k++) {
        let first = column_of(at, k);
        let x = chunk_of_line(place, first);
        let shares = class_shares(place, first, min(place.dim - first, 4u));
        let are_infinite = are_masked(x);
        kinds = kinds | kinds_of(are_infinite & (columns(first) < vec4<u32>(place.dim)), shares);
        sums = sums + select(shares * ((of_line.about - x) + log_sum), vec4<f32>(), are_infinite);
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
    workgroupBarrier();
    improper_threads[at.index] = kinds;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (at.index % THREADS < half) {
            improper_threads[at.index] = improper_threads[at.index] | improper_threads[at.index + half];
        }
        workgroupBarrier();
    }
    let of_team = improper_threads[at.index - at.index % THREADS];
    return ClassSum(team_sum(at, (mine.x + mine.y) + (mine.z + mine.w)), of_team);
}

fn loss_with_options(of_class: f32, weight: f32, about: f32, log_sum: f32, of_classes: ClassSum) -> f32 {
    let is_infinite = are_masked(vec4<f32>(of_class)).x;
    let kinds = of_classes.kinds | kinds_of(vec4<bool>(is_infinite), vec4<f32>(weight));
    var loss = 0.0;
    if (!HAS_PROBABILITIES) {
        loss = select((params.options.x * weight) * ((about - of_class) + log_sum), 0.0, is_infinite);
    }
    if (HAS_SHARES) {
        loss = loss + of_classes.sum;
    }
    if (HAS_Z) {
        let logsumexp = about + log_sum;
        loss = loss + params.options.z * logsumexp * logsumexp;
    }
    let infinite_loss = select(select(no_number(), infinite().x, kinds == 2u), -infinite().x, kinds == 1u);
    return select(infinite_loss, loss, kinds == 0u);
}
