// Keys of elements of up to 32 bits.
alias Key = u32;

const KEY_BITS: u32 = 32u;
const LAST_KEY: u32 = 0xffffffffu; // no record comes behind it but those of later positions

fn is_less(a: Key, b: Key) -> bool {
    return a < b;
}

fn with_bit(key: Key, bit: u32) -> Key {
    return key | (1u << bit);
}

// Unsigned integers in the order of elements with these bits: 0 and -0 are one, NaN is above every number.
fn order_key(bits: Key) -> Key {
    let sign = params.sign.x;
    var key = bits ^ sign;
    if (IS_FLOAT) {
        let magnitude = bits & (sign - 1u);
        let all_bits = sign | (sign - 1u);
        if (magnitude > params.infinity.x) {
            key = all_bits;
        } else if ((bits & sign) != 0u && magnitude > 0u) {
            key = bits ^ all_bits;
        } else {
            key = magnitude | sign;
        }
    } else if (IS_BOOL) {
        key = select(0u, 1u, bits != 0u);
    }
    return select(key, ~key, IS_DESCENDING);
}
