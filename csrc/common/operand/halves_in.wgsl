// An input of 16-bit elements in chunks that may begin at any element, also in the high half of a word. Elements past `count` are 0.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    let at = (first >> 1u) + offsets.OPERAND;
    let last = ((first + count - 1u) >> 1u) + offsets.OPERAND;
    var chunk = vec4<u32>(
        OPERAND_words[at],
        OPERAND_words[min(at + 1u, last)],
        OPERAND_words[min(at + 2u, last)],
        OPERAND_words[min(at + 3u, last)],
    );
    if ((first & 1u) == 1u) {
        let next = vec4<u32>(chunk.yzw, OPERAND_words[min(at + 4u, last)]);
        chunk = (chunk >> vec4<u32>(16u)) | (next << vec4<u32>(16u));
    }
    let slots = vec4<u32>(0u, 2u, 4u, 6u);
    let low = select(vec4<u32>(), vec4<u32>(0xffffu), slots < vec4<u32>(count));
    let high = select(vec4<u32>(), vec4<u32>(0xffff0000u), slots + 1u < vec4<u32>(count));
    return chunk & (low | high);
}
