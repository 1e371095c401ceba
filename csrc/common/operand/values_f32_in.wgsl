// A parameter of 32-bit elements, four at a time from any element on. Elements past the last are 0.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    let cols = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(offsets.OPERAND) + min(cols, vec4<u32>(parameter_elements() - 1u));
    let words = vec4<u32>(OPERAND_words[at.x], OPERAND_words[at.y], OPERAND_words[at.z], OPERAND_words[at.w]);
    return select(vec4<f32>(), bitcast<vec4<f32>>(words), cols < vec4<u32>(parameter_elements()));
}
