#!/usr/bin/env python3
"""Times PyTorch, eager and compiled, on activations of one long tensor, forward and backward from the input. One JSON line per measurement
on stdout, in the schema and by the method of our own measurements (channel_norm_bench.py has it).

usage: activation_bench.py [--ops activation_relu,activation_silu] [--quick]
"""
import argparse

import torch
import torch.nn.functional as F

import channel_norm_bench as method

SHAPES = [(16384, 4096), (8192, 3072)]
ACTIVATIONS = {
    "activation_relu": F.relu,
    "activation_gelu_erf": F.gelu,
    "activation_gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "activation_silu": F.silu,
    "activation_sigmoid": torch.sigmoid,
    "activation_tanh": torch.tanh,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(ACTIVATIONS))
    parser.add_argument("--quick", action="store_true", help="the first shape")
    arguments = parser.parse_args()
    for op in (op for op in arguments.ops.split(",") if op in ACTIVATIONS):
        for shape in SHAPES[: 1 if arguments.quick else None]:
            for dtype in (torch.bfloat16, torch.float32):
                leaves = lambda shape=shape, dtype=dtype: (method.normal(*shape, dtype=dtype),)
                method.compare(op, shape, dtype, leaves, ACTIVATIONS[op], 2, 3)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
