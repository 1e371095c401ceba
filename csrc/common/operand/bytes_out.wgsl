// An output of bytes in chunks of up to eight that may begin at any element. At the edge of a chunk the other bytes of a word belong to a neighbour: to
// this thread or another, inside this operand or outside. They are not written; the chunk's bytes are replaced atomically.
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

// The low `count` bytes of a word, up to all four.
fn OPERAND_mask(count: u32) -> u32 {
    return select(0xffffffffu, (1u << (8u * (count & 3u))) - 1u, count < 4u);
}

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    let at = (first >> 2u) + offsets.OPERAND;
    let mask = vec2<u32>(OPERAND_mask(count), OPERAND_mask(max(count, 4u) - 4u));
    let shift = (first & 3u) * 8u;
    if (shift == 0u) {
        OPERAND_replace(at, mask.x, chunk.x);
        OPERAND_replace(at + 1u, mask.y, chunk.y);
    } else {
        let rest = 32u - shift;
        OPERAND_replace(at, mask.x << shift, chunk.x << shift);
        OPERAND_replace(at + 1u, (mask.x >> rest) | (mask.y << shift), (chunk.x >> rest) | (chunk.y << shift));
        OPERAND_replace(at + 2u, mask.y >> rest, chunk.y >> rest);
    }
}
