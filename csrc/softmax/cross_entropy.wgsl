// Cross-entropy of logits with class indices: lines of any strides.
//
// logsumexp = max(x) + log(sum(exp(x - max(x)))); the loss of a line is logsumexp - x[target], 0 if its target is ignored, NaN if it is out of range. The sum of
// the losses of lines, or their mean over the lines that count, follows in dispatches of its own.
@compute @workgroup_size(WORKGROUP)
fn cross_entropy(at: Invocation) {
    let place = place_of(at);
    // 1. The sum of exponentials.
    let of_line = sum_of_line(at, place);
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
    if (goal.is_class && !is_blank && !of_line.is_improper) {
        let of_class = element_of(place, goal.class_at);
        loss = select((of_line.about - of_class) + log_sum, -infinite().x, are_masked(vec4<f32>(of_class)).x);
    }
    put_logsumexp(place.logsumexp, bitcast<u32>(logsumexp));
    put_loss(select(place.number, place.loss, IS_EACH), bitcast<u32>(loss));
    put_weight(place.number, bitcast<u32>(select(0.0, 1.0, goal.is_class)));
}
