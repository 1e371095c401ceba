// An input that this dispatch does not use; its elements are 0.
const HAS_OPERAND: bool = false;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    return vec4<u32>();
}
