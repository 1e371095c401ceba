// Chunks of 16-bit elements: 16 bytes, which are two quads of four elements.
const ELEMENTS: u32 = 8u;
const QUADS: u32 = 2u;

fn quad(chunk: vec4<u32>, part: u32) -> vec4<f32> {
    let words = select(chunk.xy, chunk.zw, part == 1u);
    return vec4<f32>(unpack(words.x), unpack(words.y));
}

fn chunk_of(quads: array<vec4<f32>, QUADS>) -> vec4<u32> {
    return pack_quads(quads[0], quads[1]);
}
