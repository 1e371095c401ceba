// An output of 16-bit elements in chunks that may begin at any element. At the edge of a chunk the other half of a word belongs to a
// neighbour: to this thread or another, inside this operand or outside. It is not written; the chunk's half is replaced atomically.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_replace(at: u32, mask: u32, word: u32) {
    if (mask == 0xffffffffu) {
        atomicStore(&OPERAND_words[at], word);
    } else if (mask != 0u) {
        atomicAnd(&OPERAND_words[at], ~mask);
        atomicOr(&OPERAND_words[at], word & mask);
    }
}

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    let at = (first >> 1u) + offsets.OPERAND;
    let slots = vec4<u32>(0u, 2u, 4u, 6u);
    let low = select(vec4<u32>(), vec4<u32>(0xffffu), slots < vec4<u32>(count));
    let high = select(vec4<u32>(), vec4<u32>(0xffff0000u), slots + 1u < vec4<u32>(count));
    let mask = low | high;
    if ((first & 1u) == 0u) {
        OPERAND_replace(at, mask.x, chunk.x);
        OPERAND_replace(at + 1u, mask.y, chunk.y);
        OPERAND_replace(at + 2u, mask.z, chunk.z);
        OPERAND_replace(at + 3u, mask.w, chunk.w);
    } else {
        OPERAND_replace(at, mask.x << 16u, chunk.x << 16u);
        OPERAND_replace(at + 1u, (mask.x >> 16u) | (mask.y << 16u), (chunk.x >> 16u) | (chunk.y << 16u));
        OPERAND_replace(at + 2u, (mask.y >> 16u) | (mask.z << 16u), (chunk.y >> 16u) | (chunk.z << 16u));
        OPERAND_replace(at + 3u, (mask.z >> 16u) | (mask.w << 16u), (chunk.z >> 16u) | (chunk.w << 16u));
        OPERAND_replace(at + 4u, mask.w >> 16u, chunk.w >> 16u);
    }
}
