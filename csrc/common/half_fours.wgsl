// Narrow chunks of 16-bit elements: 8 bytes, which are one quad of four elements. They are the first two words of a vec4.
const ELEMENTS: u32 = 4u;
const QUADS: u32 = 1u;

fn quad(chunk: vec4<u32>, part: u32) -> vec4<f32> {
    let words = select(chunk.xy, chunk.zw, part == 1u);
    return vec4<f32>(unpack(words.x), unpack(words.y));
}

fn chunk_of(quads: array<vec4<f32>, QUADS>) -> vec4<u32> {
    return vec4<u32>(pack_quads(quads[0], vec4<f32>()).xy, 0u, 0u);
}
