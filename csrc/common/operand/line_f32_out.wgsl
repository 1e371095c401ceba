// As line_f32_in, read and written; elements past `count` are not written.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_values: array<STORED>;

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    let at = vec4<u32>(first + offsets.OPERAND) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
    return vec4<f32>(OPERAND_values[at.x], OPERAND_values[at.y], OPERAND_values[at.z], OPERAND_values[at.w]);
}

fn OPERAND_put_line(first: u32, step: u32, count: u32, values: vec4<f32>) {
    let at = first + offsets.OPERAND;
    OPERAND_values[at] = values.x;
    if (count > 1u) {
        OPERAND_values[at + step] = values.y;
    }
    if (count > 2u) {
        OPERAND_values[at + 2u * step] = values.z;
    }
    if (count > 3u) {
        OPERAND_values[at + 3u * step] = values.w;
    }
}
