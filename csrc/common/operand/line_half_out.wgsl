// As line_half_in, read and written; elements past `count` are not written.
//
// The other half of a word may be an element of another thread's line, of another workgroup's tile, or of a neighbour of this operand.
// There is no data race, and no half is lost, since
// - every access to this binding is atomic;
// - a line changes no bits but those of its own elements, each of which has one writer in a dispatch: it clears them, then sets them, and
//   what others do to the other half in between changes none of these bits;
// - a word is stored as a whole only if both halves are elements of the line, so that it has no other writer;
// - an element is read only by the thread that writes it, and before it does.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_of(i: u32) -> f32 {
    return unpack(atomicLoad(&OPERAND_words[(i >> 1u) + offsets.OPERAND]) >> ((i & 1u) * 16u)).x;
}

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    let i = vec4<u32>(first) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
    return vec4<f32>(OPERAND_of(i.x), OPERAND_of(i.y), OPERAND_of(i.z), OPERAND_of(i.w));
}

// Writes the bits of a mask.
fn OPERAND_replace(at: u32, mask: u32, word: u32) {
    if (mask == 0xffffffffu) {
        atomicStore(&OPERAND_words[at], word);
    } else if (mask != 0u) {
        atomicAnd(&OPERAND_words[at], ~mask);
        atomicOr(&OPERAND_words[at], word & mask);
    }
}

fn OPERAND_put(i: u32, half: u32) {
    let shift = (i & 1u) * 16u;
    OPERAND_replace((i >> 1u) + offsets.OPERAND, 0xffffu << shift, half << shift);
}

fn OPERAND_put_line(first: u32, step: u32, count: u32, values: vec4<f32>) {
    let words = vec2<u32>(pack(values.xy), pack(values.zw));
    if (step == 1u) {
        let slots = vec2<u32>(0u, 2u);
        let low = select(vec2<u32>(), vec2<u32>(0xffffu), slots < vec2<u32>(count));
        let high = select(vec2<u32>(), vec2<u32>(0xffff0000u), slots + 1u < vec2<u32>(count));
        let mask = low | high;
        let at = (first >> 1u) + offsets.OPERAND;
        if ((first & 1u) == 0u) {
            OPERAND_replace(at, mask.x, words.x);
            OPERAND_replace(at + 1u, mask.y, words.y);
        } else {
            OPERAND_replace(at, mask.x << 16u, words.x << 16u);
            OPERAND_replace(at + 1u, (mask.x >> 16u) | (mask.y << 16u), (words.x >> 16u) | (words.y << 16u));
            OPERAND_replace(at + 2u, mask.y >> 16u, words.y >> 16u);
        }
        return;
    }
    OPERAND_put(first, words.x & 0xffffu);
    if (count > 1u) {
        OPERAND_put(first + step, words.x >> 16u);
    }
    if (count > 2u) {
        OPERAND_put(first + 2u * step, words.y & 0xffffu);
    }
    if (count > 3u) {
        OPERAND_put(first + 3u * step, words.y >> 16u);
    }
}
