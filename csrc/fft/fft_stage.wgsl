// A stage of radix RADIX: input r of butterfly b is point b + r points / RADIX of a line, its results are `before` points apart.
const MOST_RADIX: u32 = (MOST_POINTS / RADIXu + WORKGROUP - 1u) / WORKGROUP;

fn stage_RADIX(index: u32, lines: u32, before: u32) {
    let step = params.line_points / RADIXu;
    let count = lines * step;
    var v: array<array<vec2<f32>, RADIX>, MOST_RADIX>;
    var to: array<u32, MOST_RADIX>;
    // 1. The inputs of a thread's butterflies, and their transforms.
    for (var i = 0u; i < MOST_RADIX; i++) {
        let b = index + i * WORKGROUP;
        if (b < count) {
            let line = b / step;
            let at = b - line * step;
            let group = at / before;
            let first = line * params.line_step + at;
            to[i] = first + group * before * (RADIXu - 1u);
            // Powers of up to 3 factors: w^r is the product of two others.
            var powers: array<vec2<f32>, RADIX>;
            powers[1] = root(at - group * before, before * RADIXu);
            for (var r = 2u; r < RADIXu; r++) {
                powers[r] = times(powers[r / 2u], powers[r - r / 2u]);
            }
            var inputs: array<vec2<f32>, RADIX>;
            inputs[0] = tile[held_at(first)];
            for (var r = 1u; r < RADIXu; r++) {
                inputs[r] = times(tile[held_at(first + r * step)], powers[r]);
            }
            v[i] = transform_RADIX(inputs);
        }
    }
    workgroupBarrier();
    // 2. Their results.
    for (var i = 0u; i < MOST_RADIX; i++) {
        if (index + i * WORKGROUP < count) {
            for (var r = 0u; r < RADIXu; r++) {
                tile[held_at(to[i] + r * before)] = v[i][r];
            }
        }
    }
    workgroupBarrier();
}
