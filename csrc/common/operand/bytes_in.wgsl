// An input of bytes in chunks of up to eight that may begin at any element. What lies past `count` is of no meaning.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    let at = (first >> 2u) + offsets.OPERAND;
    let last = ((first + count - 1u) >> 2u) + offsets.OPERAND;
    var words = vec2<u32>(OPERAND_words[at], OPERAND_words[min(at + 1u, last)]);
    let shift = (first & 3u) * 8u;
    if (shift > 0u) {
        let next = vec2<u32>(words.y, OPERAND_words[min(at + 2u, last)]);
        words = (words >> vec2<u32>(shift)) | (next << vec2<u32>(32u - shift));
    }
    return vec4<u32>(words, 0u, 0u);
}
