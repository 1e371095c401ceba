// y of chunks that span two channels.

// What y depends on in a channel.
struct Terms {
    shift: f32,
    correction: f32,
    rstd: f32,
    weight: f32,
    bias: f32,
}

fn terms_of(channel: u32, statistics: Statistics) -> Terms {
    return Terms(statistics.shift, statistics.correction, statistics.rstd, weight_of(channel), bias_of(channel));
}

fn y_of(chunk: vec4<u32>, addend: vec4<u32>, span: Span, own: Terms, next: Terms) -> vec4<u32> {
    var y: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        let is_far = is_next(span, part);
        let shift = select(vec4<f32>(own.shift), vec4<f32>(next.shift), is_far);
        let correction = select(vec4<f32>(own.correction), vec4<f32>(next.correction), is_far);
        let rstd = select(vec4<f32>(own.rstd), vec4<f32>(next.rstd), is_far);
        let weight = select(vec4<f32>(own.weight), vec4<f32>(next.weight), is_far);
        let bias = select(vec4<f32>(own.bias), vec4<f32>(next.bias), is_far);
        let d = (quad(chunk, part) - shift) - correction;
        y[part] = finish_quad(d * rstd, weight, bias, quad(addend, part));
    }
    return chunk_of(y);
}
