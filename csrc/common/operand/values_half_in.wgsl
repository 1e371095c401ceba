// A parameter of 16-bit elements, four at a time from any even element on. Elements past the last are 0: the high half of the last word may
// belong to a neighbour.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    let last = (parameter_elements() - 1u) >> 1u;
    let at = min(first >> 1u, last);
    let values = vec4<f32>(
        unpack(OPERAND_words[at + offsets.OPERAND]),
        unpack(OPERAND_words[min(at + 1u, last) + offsets.OPERAND]),
    );
    return select(vec4<f32>(), values, vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(parameter_elements()));
}
