// An input of 32-bit elements in chunks that may begin at any element. Elements past `count` are 0.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    if (WHOLE_CHUNKS) {
        let i = first + offsets.OPERAND;
        return vec4<u32>(OPERAND_words[i], OPERAND_words[i + 1u], OPERAND_words[i + 2u], OPERAND_words[i + 3u]);
    }
    let at = vec4<u32>(first + offsets.OPERAND) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
    let chunk = vec4<u32>(OPERAND_words[at.x], OPERAND_words[at.y], OPERAND_words[at.z], OPERAND_words[at.w]);
    return select(vec4<u32>(), chunk, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
}
