// What an index names. Indices have INDEX_WORDS words, the low one first; `params.extent` positions can be named. The function `index_bits` is made from
// the operand.
const NO_POSITION: u32 = 0xffffffffu;

// The position that the index at a place names, if there is one.
fn named_position(at: u32) -> u32 {
    var position = index_bits(INDEX_WORDS * at);
    var high = 0u;
    if (INDEX_WORDS == 2u) {
        high = index_bits(INDEX_WORDS * at + 1u);
    } else if (IS_SIGNED) {
        high = select(0u, 0xffffffffu, position >= 0x80000000u);
    }
    if (FROM_END && high == 0xffffffffu) {
        // Wraps past 0 to a position below the extent, or stays above it.
        position += params.extent;
        high = 0u;
    }
    return select(NO_POSITION, position, high == 0u && position < params.extent);
}
