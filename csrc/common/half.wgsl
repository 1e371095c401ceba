// Elements of 16 bits: a chunk of 16 bytes is two quads of four.
const ELEMENTS: u32 = 8u;
const QUADS: u32 = 2u;

fn quad(chunk: vec4<u32>, part: u32) -> vec4<f32> {
    let words = select(chunk.xy, chunk.zw, part == 1u);
    return vec4<f32>(unpack(words.x), unpack(words.y));
}

fn with_quad(chunk: vec4<u32>, part: u32, values: vec4<f32>) -> vec4<u32> {
    let words = vec2<u32>(pack(values.xy), pack(values.zw));
    return select(vec4<u32>(words, chunk.zw), vec4<u32>(chunk.xy, words), part == 1u);
}
