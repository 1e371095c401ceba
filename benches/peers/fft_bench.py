#!/usr/bin/env python3
"""Times PyTorch's Fourier transforms (cuFFT), eager. One JSON line per measurement on stdout, in the schema and by the method of our own
measurements (channel_norm_bench.py has it). Complex numbers are views of pairs, as ours are.

usage: fft_bench.py [--ops fft_complex,fft_from_real,fft_to_real] [--quick]
"""
import argparse
import math

import torch

import channel_norm_bench as method

SHAPES = [(16384, 1024), (4096, 4096), (256, 65536), (1, 1 << 20), (1024, 10007)]


def of(op, lines, points):
    """What makes the input, and the transform of it."""
    bins = points // 2 + 1
    if op == "fft_complex":
        return (lines, points, 2), lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))
    if op == "fft_from_real":
        return (lines, points), lambda x: torch.view_as_real(torch.fft.rfft(x))
    return (lines, bins, 2), lambda x: torch.fft.irfft(torch.view_as_complex(x), n=points, norm="forward")


OPS = ["fft_complex", "fft_from_real", "fft_to_real"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--quick", action="store_true", help="the first shape")
    arguments = parser.parse_args()
    for op in (op for op in arguments.ops.split(",") if op in OPS):
        for shape in SHAPES[: 1 if arguments.quick else None]:
            dims, transform = of(op, *shape)
            lines, points = shape
            nbytes = 4 * sum({"fft_complex": [2 * lines * points] * 2}.get(op, [lines * points, 2 * lines * (points // 2 + 1)]))
            sets = max(2, min(64, math.ceil(3 * method.l2_bytes / (4 * math.prod(dims))) + 1))
            with torch.no_grad():
                inputs = [method.normal(*dims, dtype=torch.float32) for _ in range(sets)]
                us, timing = method.measure([lambda x=x: transform(x) for x in inputs])
            method.emit(op, "fw", shape, torch.float32, "torch-eager", us, timing, nbytes)
            del inputs
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
