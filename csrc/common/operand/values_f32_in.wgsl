// A parameter of 32-bit elements at any of them. Past the last column it repeats.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<u32>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    let at = vec4<u32>(offsets.OPERAND) + min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.cols - 1u));
    return bitcast<vec4<f32>>(
        vec4<u32>(OPERAND_words[at.x], OPERAND_words[at.y], OPERAND_words[at.z], OPERAND_words[at.w])
    );
}
