// How many keys a sample has: what its length says, from 0 to all.
fn length_of(sample: u32) -> u32 {
    let at = sample * params.strides[LSE].w;
    if (!HAS_LENGTHS) {
        return params.keys;
    }
    if (LENGTHS_ARE_WIDE) {
        let above = lengths_bits(2u * at + 1u);
        let length = select(min(lengths_bits(2u * at), params.keys), params.keys, above != 0u);
        return select(length, 0u, above >= 0x80000000u);
    }
    let length = lengths_bits(at);
    return select(min(length, params.keys), 0u, LENGTHS_ARE_SIGNED && length >= 0x80000000u);
}
