#!/usr/bin/env python3
"""Times PyTorch, eager and compiled, on the labels of ours that the general peer script lacks: BatchNorm in training with a residual and
ReLU after it, and InstanceNorm. One JSON line per measurement on stdout, in the schema and by the method of our own measurements:
CUDA graphs that replay calls over inputs rotated past three times the L2 cache, at least 1.5 ms each, median of 15.

usage: channel_norm_bench.py [--ops batch_norm_train_add_relu,instance_norm] [--quick]
"""
import argparse
import json
import math
import statistics

import torch
import torch.nn.functional as F

SHAPES = {
    "batch_norm_train_add_relu": [
        (64, 64, 112, 112), (64, 256, 56, 56), (64, 512, 28, 28), (64, 2048, 7, 7), (256, 64, 56, 56), (2, 64, 512, 512),
    ],
    "instance_norm": [(8, 32, 256, 256), (8, 64, 128, 128), (8, 128, 64, 64), (1, 256, 128, 128)],
}
BURST_US, REPEATS = 1500.0, 15

device = torch.device("cuda")
l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 60 << 20)
stream = torch.cuda.Stream()
torch.cuda.set_stream(stream)
# Backward then runs on the thread and stream of its caller, where a graph can capture it.
torch.autograd.set_multithreading_enabled(False)


def timed(run, calls, repeats):
    """Median microseconds of one of the calls that `run` makes."""
    run()
    run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def measure(functions):
    """Microseconds of one call, and how it was timed. What the last round returned stays alive, so that outputs rotate too."""
    results = [None] * len(functions)

    def burst(calls):
        for i in range(calls):
            results[i % len(functions)] = functions[i % len(functions)]()

    burst(2 * len(functions))
    estimate = max(1.0, timed(lambda: burst(len(functions)), len(functions), 3))
    calls = len(functions) * max(1, math.ceil(BURST_US / (estimate * len(functions))))
    burst(calls)
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            burst(calls)
    except RuntimeError:
        torch.cuda.synchronize()
        return timed(lambda: burst(calls), calls, REPEATS), "stream"
    return timed(graph.replay, calls, REPEATS), "graph"


def emit(op, pass_, shape, dtype, peer, us, timing, nbytes):
    line = {"op": op, "pass": pass_, "shape": list(shape), "dtype": str(dtype).split(".")[-1], "peer": peer, "us": round(us, 3),
            "gbps": round(nbytes / us / 1e3, 1), "tflops": 0.0, "bytes": nbytes, "flops": 0, "timing": timing}
    print(json.dumps(line), flush=True)


def compare(op, shape, dtype, leaves, function, tensors, gradient_tensors):
    """Forward without a graph of gradients, then backward alone. `tensors`: how many of the size of x a pass reads and writes."""
    elements = math.prod(shape)
    size = elements * dtype.itemsize
    sets = max(2, min(64, math.ceil(3 * l2_bytes / size) + 1))
    for peer in ("eager", "compile"):
        try:
            torch._dynamo.reset()
            call = torch.compile(function, dynamic=False) if peer == "compile" else function
            inputs = [leaves() for _ in range(sets)]
            with torch.no_grad():
                us, timing = measure([lambda i=i: call(*i) for i in inputs])
            emit(op, "fw", shape, dtype, f"torch-{peer}", us, timing, tensors * size)
            outputs = [(call(*i), i) for i in inputs]
            cotangents = [torch.randn_like(y) for y, _ in outputs]
            us, timing = measure([
                lambda y=y, i=i, dy=dy: torch.autograd.grad(y, i, dy, retain_graph=True) for (y, i), dy in zip(outputs, cotangents)
            ])
            emit(op, "bw", shape, dtype, f"torch-{peer}", us, timing, gradient_tensors * size)
        except Exception as error:
            print(json.dumps({"skip": f"{op} {shape} {dtype} {peer}", "why": f"{type(error).__name__}: {error}"[:200]}), flush=True)
            torch.cuda.synchronize()


def normal(*shape, dtype):
    return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()


def batch_norm_train_add_relu(shape, dtype):
    """relu(batch_norm(x) + residual): three tensors forward; backward dy, x and y (or the residual) in, two gradients out."""
    channels = shape[1]
    running = torch.zeros(channels, device=device), torch.ones(channels, device=device)

    def leaves():
        parameters = [normal(channels, dtype=torch.float32) for _ in range(2)]
        return (normal(*shape, dtype=dtype), normal(*shape, dtype=dtype), *parameters)

    def function(x, residual, weight, bias):
        return F.relu(F.batch_norm(x, *running, weight, bias, True, 0.1, 1e-5) + residual)

    compare("batch_norm_train_add_relu", shape, dtype, leaves, function, 3, 5)


def instance_norm(shape, dtype):
    def leaves():
        return (normal(*shape, dtype=dtype), *(normal(shape[1], dtype=torch.float32) for _ in range(2)))

    def function(x, weight, bias):
        return F.instance_norm(x, None, None, weight, bias, True, 0.1, 1e-5)

    compare("instance_norm", shape, dtype, leaves, function, 2, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(SHAPES))
    parser.add_argument("--quick", action="store_true", help="the first three shapes")
    arguments = parser.parse_args()
    for op in (op for op in arguments.ops.split(",") if op in SHAPES):
        for shape in SHAPES[op][: 3 if arguments.quick else None]:
            for dtype in (torch.bfloat16, torch.float32):
                globals()[op](shape, dtype)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
