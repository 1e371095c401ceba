#!/usr/bin/env python3
"""Times PyTorch, eager and compiled, on the gradient of a convolution's bias, which the general peer script lacks: the sum of dy over samples and
positions. One JSON line per measurement on stdout, in the schema and by the method of our own measurements (channel_norm_bench.py has it). The
last number of a shape tells how far channels lie from each other.

usage: conv_bench.py [--ops conv_backward_bias] [--quick]
"""
import argparse
import json
import math

import torch

import channel_norm_bench as method

OP = "conv_backward_bias"
SHAPES = [(64, 64, 56, 56), (64, 256, 14, 14), (2, 320, 64, 64), (1, 512, 128, 128)]


def compare(shape, dtype, layout):
    size = math.prod(shape) * dtype.itemsize
    sets = max(2, min(64, math.ceil(3 * method.l2_bytes / size) + 1))
    gradients = [torch.randn(*shape, device=method.device, dtype=dtype).to(memory_format=layout) for _ in range(sets)]
    for peer in ("eager", "compile"):
        torch._dynamo.reset()
        function = lambda dy: dy.sum((0, 2, 3))
        call = torch.compile(function, dynamic=False) if peer == "compile" else function
        with torch.no_grad():
            us, timing = method.measure([lambda dy=dy: call(dy) for dy in gradients])
        method.emit(OP, "bw", (*shape, gradients[0].stride(1)), dtype, f"torch-{peer}", us, timing, size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=OP)
    parser.add_argument("--quick", action="store_true", help="the first three shapes")
    arguments = parser.parse_args()
    for shape in SHAPES[: 3 if arguments.quick else None] if OP in arguments.ops.split(",") else []:
        for dtype in (torch.bfloat16, torch.float32):
            for layout in (torch.contiguous_format, torch.channels_last):
                try:
                    compare(shape, dtype, layout)
                except Exception as error:
                    print(json.dumps({"skip": f"{OP} {shape} {dtype} {layout}", "why": f"{type(error).__name__}: {error}"[:200]}), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
