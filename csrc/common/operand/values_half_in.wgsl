// A parameter of 16-bit elements at any word; `first` is even. Past the last column it repeats.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<u32>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    let last = (params.cols - 1u) >> 1u;
    let at = min(first >> 1u, last);
    return vec4<f32>(
        unpack(OPERAND_words[at + offsets.OPERAND]),
        unpack(OPERAND_words[min(at + 1u, last) + offsets.OPERAND])
    );
}
