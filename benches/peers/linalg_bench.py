#!/usr/bin/env python3
"""Times PyTorch, which calls cuBLAS, cuSOLVER and MAGMA, on systems of equations. One JSON line per measurement on stdout, in the schema and by the method of our own
measurements (channel_norm_bench.py has it).

usage: linalg_bench.py [--ops solve_triangular,cholesky]
"""
import argparse
import json
import math

import torch

import channel_norm_bench as method

# Matrices of a batch, rows, and right-hand sides.
SYSTEMS = [(1, 1024, 1024), (1, 4096, 512), (1, 4096, 1), (256, 64, 64), (4096, 32, 1)]
# Matrices of a batch, and rows.
FACTORS = [(1, 1024), (256, 64), (4096, 32)]


def strong(batch, n):
    """Matrices with a strong diagonal, so that numbers stay numbers."""
    a = torch.randn(batch, n, n, device=method.device) * (0.7 / math.sqrt(n))
    return a + torch.eye(n, device=method.device)


def solve_triangular():
    for batch, n, systems in SYSTEMS:
        leaves = lambda batch=batch, n=n, systems=systems: (strong(batch, n), torch.randn(batch, n, systems, device=method.device))
        nbytes = 4 * batch * (n * n // 2 + 2 * n * systems)
        yield (batch, n, systems), leaves, lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), nbytes, batch * n * n * systems


def cholesky():
    for batch, n in FACTORS:
        def leaves(batch=batch, n=n):
            m = torch.randn(batch, n, n, device=method.device) / math.sqrt(n)
            return (m @ m.mT + torch.eye(n, device=method.device),)
        yield (batch, n), leaves, torch.linalg.cholesky, 4 * batch * (n * n // 2 * 3), batch * n**3 // 3


CELLS = {"solve_triangular": solve_triangular, "cholesky": cholesky}


def compare(op, shape, leaves, function, nbytes, flops):
    sets = max(2, min(64, math.ceil(6 * method.l2_bytes / nbytes) + 1))
    inputs = [leaves() for _ in range(sets)]
    with torch.no_grad():
        us, timing = method.measure([lambda i=i: function(*i) for i in inputs])
    line = {"op": op, "pass": "fw", "shape": list(shape), "dtype": "float32", "peer": "torch-eager", "us": round(us, 3),
            "gbps": round(nbytes / us / 1e3, 1), "tflops": round(flops / us / 1e6, 2), "bytes": nbytes, "flops": flops, "timing": timing}
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(CELLS))
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for op in arguments.ops.split(","):
        for cell in CELLS[op]() if op in CELLS else ():
            try:
                compare(op, *cell)
            except Exception as error:
                print(json.dumps({"skip": f"{op} {cell[0]}", "why": f"{type(error).__name__}: {error}"[:200]}), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
