// An output that this dispatch does not write.
const HAS_OPERAND: bool = false;

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {}
