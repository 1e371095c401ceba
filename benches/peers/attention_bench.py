#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention, by each of its backends that serves a cell, on the cells of benches/src/cells/attention.rs. One JSON line per
measurement on stdout, in the schema and by the method of our own measurements (channel_norm_bench.py has it). FLOP count the keys that a query sees. sdpa_decode is one query of each
sample, of caches of 256 MB, and of smaller ones.

usage: attention_bench.py [--quick]
"""
import argparse
import json

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import channel_norm_bench as method

# batch, heads, queries and keys, elements of a head
SHAPES = [(16, 32, 1024, 64), (16, 16, 1024, 128), (4, 32, 4096, 64), (4, 16, 4096, 128), (1, 32, 16384, 64), (1, 16, 16384, 128)]
BACKENDS = {"torch-cudnn": SDPBackend.CUDNN_ATTENTION, "torch-flash": SDPBackend.FLASH_ATTENTION, "torch-efficient": SDPBackend.EFFICIENT_ATTENTION}


# batch and bytes of keys and values, the small ones in 16 bits alone; heads of queries and of keys, elements of a head
DECODE_CACHES, DECODE = ((1, 256 << 20), (8, 256 << 20), (64, 256 << 20), (1, 16 << 20), (8, 64 << 20), (64, 128 << 20)), (32, 8, 128)


def emit(op, pass_, shape, dtype, peer, us, timing, flops):
    line = {"op": op, "pass": pass_, "shape": list(shape), "dtype": str(dtype).split(".")[-1], "peer": peer, "us": round(us, 3),
            "tflops": round(flops / us / 1e6, 2), "flops": flops, "timing": timing}
    print(json.dumps(line), flush=True)


def compare(op, shape, dtype, peer):
    batch, heads, length, width = shape
    flops = 4 * batch * heads * length * length * width // (2 if op == "sdpa_causal" else 1)
    inputs = [tuple(method.normal(*shape, dtype=dtype) for _ in range(3)) for _ in range(2)]
    attention = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=op == "sdpa_causal")
    with sdpa_kernel(BACKENDS[peer]):
        with torch.no_grad():
            us, timing = method.measure([lambda i=i: attention(*i) for i in inputs])
        emit(op, "fw", shape, dtype, peer, us, timing, flops)
        outputs = [(attention(*i), i) for i in inputs]
        cotangents = [torch.randn_like(y) for y, _ in outputs]
        us, timing = method.measure([
            lambda y=y, i=i, dy=dy: torch.autograd.grad(y, i, dy, retain_graph=True) for (y, i), dy in zip(outputs, cotangents)
        ])
        emit(op, "bw", shape, dtype, peer, us, timing, 5 * flops // 2)


def decode(batch, cache_bytes, dtype, peer):
    heads, kv_heads, width = DECODE
    keys = cache_bytes // (2 * batch * kv_heads * width * dtype.itemsize)
    sets = [(method.normal(batch, heads, 1, width, dtype=dtype), *(method.normal(batch, kv_heads, keys, width, dtype=dtype) for _ in range(2))) for _ in range(2)]
    attention = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with sdpa_kernel(BACKENDS[peer]), torch.no_grad():
        us, timing = method.measure([lambda i=i: attention(*i) for i in sets])
    emit("sdpa_decode", "fw", (batch, heads, kv_heads, keys, width), dtype, peer, us, timing, 4 * batch * heads * keys * width)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first two shapes")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for op in ("sdpa", "sdpa_causal"):
        for shape in SHAPES[: 2 if arguments.quick else None]:
            for dtype in (torch.bfloat16, torch.float32)[: 1 if shape[2] > 4096 else None]:
                for peer in BACKENDS:
                    try:
                        compare(op, shape, dtype, peer)
                    except Exception as error:
                        print(json.dumps({"skip": f"{op} {shape} {dtype} {peer}", "why": f"{type(error).__name__}: {error}"[:200]}), flush=True)
                    torch.cuda.empty_cache()
    for batch, cache_bytes in DECODE_CACHES:
        for dtype in (torch.bfloat16, torch.float32)[: 2 if cache_bytes == 256 << 20 else 1]:
            for peer in BACKENDS:
                try:
                    decode(batch, cache_bytes, dtype, peer)
                except Exception as error:
                    print(json.dumps({"skip": f"sdpa_decode {batch} {dtype} {peer}", "why": f"{type(error).__name__}: {error}"[:200]}), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
