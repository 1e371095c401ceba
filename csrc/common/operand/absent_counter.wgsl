// A counter that this dispatch does not use.
const HAS_OPERAND: bool = false;

fn OPERAND_count() -> vec2<u32> {
    return vec2<u32>();
}

fn OPERAND_put(value: vec2<u32>) {}
