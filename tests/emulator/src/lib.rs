//! A CUDA driver without a GPU: this library stands in for `libcuda.so.1` and interprets the PTX of this repository's kernels on the CPU, so
//! that the CUDA trials of the parity matrix run on any machine.
//!
//! It proves what the code computes, not how fast, and not what `ptxas` makes of it: accesses outside allocations, misaligned vectors, hanging
//! barriers and copies that nobody waits for are errors with the block, the thread and the instruction. Approximate instructions are exact to
//! one rounding, tensor cores round once per instruction, and the memory model is sequential: a missing fence is not found.
//!
//! `driver` has the functions of the driver that this repository calls, `runtime` those of the CUDA runtime (the compiled kernels are linked
//! with `cudart.c` in its place), `image` finds the PTX in what the compiler registers, `ptx` and `program` decode it, `machine` runs it, `tensor_map` is what the copy engine is told of
//! tensors.
#![cfg(target_os = "linux")]

mod alu;
mod driver;
mod image;
mod machine;
mod program;
mod ptx;
mod runtime;
mod tensor_map;
