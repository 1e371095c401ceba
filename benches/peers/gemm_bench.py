#!/usr/bin/env python3
"""Times PyTorch, which calls cuBLAS, on the products without bias and activation that the general peer script lacks: of two matrices, of a
batch, and attention's scores and values with heads beside positions. One JSON line per measurement on stdout, in the schema and by the
method of our own measurements (channel_norm_bench.py has it).

usage: gemm_bench.py [--ops gemm_none,gemm_batch,gemm_scores,gemm_values] [--quick]
"""
import argparse
import json
import math

import torch

import channel_norm_bench as method

# M, K, N
SHAPES = [
    (8192, 4096, 4096), (8192, 4096, 14336), (4096, 1024, 4096), (16384, 768, 3072), (256, 4096, 4096), (16, 4096, 4096),
    (256, 16384, 256), (8192, 768, 50257),
]
BATCH, POSITIONS, HEADS, WIDTH = 4, 2048, 16, 128


def heads():
    """[batch, positions, heads, width], seen as [batch, heads, positions, width]."""
    return torch.randn(BATCH, POSITIONS, HEADS, WIDTH, device=method.device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()


def cells(op, is_quick):
    """Shape, type, what makes the factors, the product."""
    if op == "gemm_none":
        for m, k, n in SHAPES[: 3 if is_quick else None]:
            leaves = lambda m=m, k=k, n=n: (method.normal(m, k, dtype=torch.bfloat16), method.normal(k, n, dtype=torch.bfloat16))
            yield (m, k, n), torch.bfloat16, leaves, torch.matmul
        leaves = lambda: (method.normal(4096, 4096, dtype=torch.float32), method.normal(4096, 4096, dtype=torch.float32))
        yield (4096, 4096, 4096), torch.float32, leaves, torch.matmul
    elif op == "gemm_batch":
        leaves = lambda: tuple(method.normal(4096, 64, 64, dtype=torch.bfloat16) for _ in range(2))
        yield (4096, 64, 64, 64), torch.bfloat16, leaves, torch.matmul
    elif op == "gemm_scores":
        scale = 1 / math.sqrt(WIDTH)
        yield (BATCH, POSITIONS, HEADS, WIDTH), torch.bfloat16, lambda: (heads(), heads()), lambda q, k: (q * scale) @ k.transpose(-1, -2)
    elif op == "gemm_values":
        leaves = lambda: (method.normal(BATCH, HEADS, POSITIONS, POSITIONS, dtype=torch.bfloat16), heads())
        yield (BATCH, POSITIONS, HEADS, WIDTH), torch.bfloat16, leaves, torch.matmul


def emit(op, pass_, shape, dtype, us, timing, nbytes, flops):
    line = {"op": op, "pass": pass_, "shape": list(shape), "dtype": str(dtype).split(".")[-1], "peer": "torch-eager", "us": round(us, 3),
            "gbps": round(nbytes / us / 1e3, 1), "tflops": round(flops / us / 1e6, 2), "bytes": nbytes, "flops": flops, "timing": timing}
    print(json.dumps(line), flush=True)


def compare(op, shape, dtype, leaves, function):
    first = leaves()
    with torch.no_grad():
        out = function(*first)
    nbytes = sum(t.numel() for t in (*first, out)) * dtype.itemsize
    flops = 2 * out.numel() * first[0].shape[-1]
    sets = max(2, min(64, math.ceil(6 * method.l2_bytes / nbytes) + 1))
    inputs = [leaves() for _ in range(sets)]
    with torch.no_grad():
        us, timing = method.measure([lambda i=i: function(*i) for i in inputs])
    emit(op, "fw", shape, dtype, us, timing, nbytes, flops)
    outputs = [(function(*i), i) for i in inputs]
    cotangents = [torch.randn_like(y) for y, _ in outputs]
    us, timing = method.measure([
        lambda y=y, i=i, dy=dy: torch.autograd.grad(y, i, dy, retain_graph=True) for (y, i), dy in zip(outputs, cotangents)
    ])
    emit(op, "bw", shape, dtype, us, timing, 2 * nbytes, 2 * flops)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="gemm_none,gemm_batch,gemm_scores,gemm_values")
    parser.add_argument("--quick", action="store_true", help="the first three shapes of gemm_none")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for op in arguments.ops.split(","):
        for cell in cells(op, arguments.quick):
            try:
                compare(op, *cell)
            except Exception as error:
                print(json.dumps({"skip": f"{op} {cell[0]}", "why": f"{type(error).__name__}: {error}"[:200]}), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
