// Chunks of f32: 16 bytes, which are one quad of four elements.
const ELEMENTS: u32 = 4u;
const QUADS: u32 = 1u;

fn quad(chunk: vec4<u32>, part: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(chunk);
}

fn chunk_of(quads: array<vec4<f32>, QUADS>) -> vec4<u32> {
    return bitcast<vec4<u32>>(quads[0]);
}
