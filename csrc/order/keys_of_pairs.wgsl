// Keys of elements of 64 bits: two words, the low one first.
alias Key = vec2<u32>;

const KEY_BITS: u32 = 64u;
const LAST_KEY: vec2<u32> = vec2<u32>(0xffffffffu, 0xffffffffu); // no record comes behind it but those of later positions

fn is_less(a: Key, b: Key) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn with_bit(key: Key, bit: u32) -> Key {
    let word = 1u << (bit & 31u);
    return key | select(vec2<u32>(word, 0u), vec2<u32>(0u, word), bit >= 32u);
}

// Unsigned integers in the order of elements with these bits: 0 and -0 are one, NaN is above every number.
fn order_key(bits: Key) -> Key {
    var key = bits ^ params.sign;
    if (IS_FLOAT) {
        let magnitude = vec2<u32>(bits.x, bits.y & 0x7fffffffu);
        if (is_less(params.infinity, magnitude)) {
            key = LAST_KEY;
        } else if (bits.y >= 0x80000000u && (magnitude.x | magnitude.y) > 0u) {
            key = ~bits;
        } else {
            key = vec2<u32>(magnitude.x, magnitude.y | 0x80000000u);
        }
    }
    return select(key, ~key, IS_DESCENDING);
}
