// A 32-bit count that threads add to.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_clear() {
    atomicStore(&OPERAND_words[offsets.OPERAND], 0u);
}

fn OPERAND_add(count: u32) {
    atomicAdd(&OPERAND_words[offsets.OPERAND], count);
}
