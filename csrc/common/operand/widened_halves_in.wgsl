// An input of 16-bit elements, converted to f32, in chunks of up to four that may begin at any element, also in the high half of a word.
// Elements past `count` are 0.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    let at = (first >> 1u) + offsets.OPERAND;
    let last = ((first + count - 1u) >> 1u) + offsets.OPERAND;
    var words = vec2<u32>(OPERAND_words[at], OPERAND_words[min(at + 1u, last)]);
    if ((first & 1u) == 1u) {
        let next = vec2<u32>(words.y, OPERAND_words[min(at + 2u, last)]);
        words = (words >> vec2<u32>(16u)) | (next << vec2<u32>(16u));
    }
    let chunk = bitcast<vec4<u32>>(vec4<f32>(unpack(words.x), unpack(words.y)));
    return select(vec4<u32>(), chunk, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
}
