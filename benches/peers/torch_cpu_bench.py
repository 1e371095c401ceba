#!/usr/bin/env python3
"""Times the cells of `bops bench --device cpu` in PyTorch on the same CPU, in turns, and compares.

For each label, as often as --rounds says, first `bops bench --device cpu --ops LABEL --json FILE` runs, then PyTorch on the cells that it timed, with
as many threads. A cell's time is the median over the rounds. One JSON line per cell and library goes to --json; a table and, per group of labels, the
least and the geometric mean of PyTorch's time over ours are printed.

PyTorch gets outputs in memory that it has used before, as bops does: the C library's allocator neither maps each large tensor anew nor gives its pages
back. Backward passes are torch.autograd.grad on a graph that is kept. Inputs rotate past three times the last-level cache.

usage: torch_cpu_bench.py BOPS [--ops layer_norm,...] [--quick] [--rounds 3] [--json FILE]
"""
import argparse, json, math, os, statistics, subprocess, sys, tempfile, time

TUNABLES = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"
if os.environ.get("GLIBC_TUNABLES") != TUNABLES:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": TUNABLES})

import torch, torch.nn.functional as F

CACHE, BURST_S, REPEATS = 32 << 20, 0.02, 7
DTYPES = {"bool": torch.bool, "float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
ACTIVATIONS = {
    "none": lambda x: x, "relu": F.relu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "gelu_erf": F.gelu, "silu": F.silu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh,
}
GROUPS = {
    "norms, softmax, ReLU, SiLU": ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "softmax", "log_softmax", "activation_relu", "activation_silu"),
    "GELU": ("activation_gelu",),
    "cross-entropy": ("cross_entropy",),
    "gemm float32": ("gemm", "linear"),
    "gemm bfloat16": ("gemm", "linear"),
    "conv float32 fw": ("conv2d",),
    "conv float32 bw": ("conv2d",),
    "conv bfloat16": ("conv2d",),
    "depthwise": ("depthwise",),
}


def randn(*shape, dtype, grad=True):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def image(shape, dtype, op):
    x = torch.randn(*shape[:4], dtype=dtype)
    return x.to(memory_format=torch.channels_last).requires_grad_() if op.endswith("nhwc") else x.requires_grad_()


def rows(function, with_weights):
    def of(shape, dtype, op):
        n = shape[1]
        return lambda: (randn(*shape, dtype=dtype), *(randn(n, dtype=dtype) for _ in range(with_weights))), lambda x, *rest: function(n, x, *rest)
    return of


def group_norm(shape, dtype, op):
    *_, groups = shape
    activation = F.silu if op.endswith("silu") else lambda x: x
    make = lambda: (image(shape, dtype, op), randn(shape[1], dtype=dtype), randn(shape[1], dtype=dtype))
    return make, lambda x, w, b: activation(F.group_norm(x, groups, w, b, 1e-6))


def batch_norm(shape, dtype, op):
    c = shape[1]
    mean, var = torch.zeros(c), torch.ones(c)
    if op == "batch_norm_train_add_relu":
        make = lambda: (image(shape, dtype, op), image(shape, dtype, op), randn(c, dtype=torch.float32), randn(c, dtype=torch.float32))
        return make, lambda x, r, w, b: F.relu(F.batch_norm(x, mean, var, w, b, True, 0.1, 1e-5) + r)
    make = lambda: (image(shape, dtype, op), randn(c, dtype=torch.float32), randn(c, dtype=torch.float32))
    return make, lambda x, w, b: F.batch_norm(x, mean, var, w, b, "train" in op, 0.1, 1e-5)


def instance_norm(shape, dtype, op):
    c = shape[1]
    make = lambda: (image(shape, dtype, op), randn(c, dtype=torch.float32), randn(c, dtype=torch.float32))
    return make, lambda x, w, b: F.instance_norm(x, None, None, w.to(x.dtype), b.to(x.dtype), True, 0.1, 1e-5)


def softmax(shape, dtype, op):
    make = lambda: (randn(*shape, dtype=dtype),)
    if op == "softmax_causal":
        mask = torch.full(shape[2:], float("-inf"), dtype=dtype).triu(shape[3] - shape[2] + 1)
        return make, lambda x: F.softmax(x + mask, -1)
    if op == "softmax_bias":
        bias = torch.randn(shape[0], 1, 1, shape[3], dtype=dtype)
        return make, lambda x: F.softmax(x + bias, -1)
    axis = 1 if op == "softmax_channel" else -1
    return make, (lambda x: F.log_softmax(x, axis)) if op == "log_softmax" else (lambda x: F.softmax(x, axis))


def cross_entropy(shape, dtype, op):
    return lambda: (randn(*shape, dtype=dtype), torch.randint(shape[1], (shape[0],))), F.cross_entropy


def sdpa(shape, dtype, op):
    make = lambda: tuple(randn(*shape, dtype=dtype) for _ in range(3))
    return make, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=op == "sdpa_causal")


def gemm(shape, dtype, op):
    m, k, n = shape
    kind, _, activation = op.partition("_")
    activation = ACTIVATIONS[activation.removeprefix("bias_")]
    if op == "gemm_none":
        return lambda: (randn(m, k, dtype=dtype), randn(k, n, dtype=dtype)), torch.matmul
    if kind == "linear":
        return lambda: (randn(m, k, dtype=dtype), randn(n, k, dtype=dtype), randn(n, dtype=dtype)), lambda a, b, c: activation(F.linear(a, b, c))
    return lambda: (randn(m, k, dtype=dtype), randn(k, n, dtype=dtype), randn(n, dtype=dtype)), lambda a, b, c: activation(torch.addmm(c, a, b))


def gemm_batch(shape, dtype, op):
    batch, m, k, n = shape
    return lambda: (randn(batch, m, k, dtype=dtype), randn(batch, k, n, dtype=dtype)), torch.matmul


def conv(shape, dtype, op):
    b, c, h, w, filters, kernel, stride, padding = shape
    groups = c if op.startswith("depthwise") else 1
    make = lambda: (image((b, c, h, w), dtype, op), image((filters, c // groups, kernel, kernel), dtype, op))
    return make, lambda x, weight: F.conv2d(x, weight, None, stride, padding, 1, groups)


def activation(shape, dtype, op):
    return lambda: (randn(*shape, dtype=dtype),), ACTIVATIONS[op.removeprefix("activation_")]


def unary(shape, dtype, op):
    name = op.removeprefix("unary_")
    positive = name in ("log", "log1p", "sqrt")
    function = torch.special.erf if name == "erf" else getattr(torch, name)
    return lambda: ((torch.randn(*shape).abs() if positive else torch.randn(*shape)).to(dtype),), function


def binary(shape, dtype, op):
    function = {"binary_add": torch.add, "binary_div": torch.div, "binary_pow": torch.pow, "compare_lt": torch.lt}[op]
    first = (lambda: torch.randn(*shape).abs().to(dtype)) if op == "binary_pow" else (lambda: torch.randn(*shape, dtype=dtype))
    return lambda: (first(), torch.randn(*shape, dtype=dtype)), function


def broadcast(shape, dtype, op):
    other = {"add_row": shape[-1:], "add_column": [shape[0], 1], "add_channel": [1, shape[1], 1, 1], "add_transposed": shape}[op]
    second = (lambda: torch.randn(*other, dtype=dtype).T) if op == "add_transposed" else (lambda: torch.randn(*other, dtype=dtype))
    return lambda: (torch.randn(*shape, dtype=dtype), second()), torch.add


def cast(shape, dtype, op):
    to = torch.float32 if op.endswith("f32") else torch.bfloat16
    return lambda: (torch.randn(*shape, dtype=dtype),), lambda x: x.to(to)


def reduce(shape, dtype, op):
    *_, kind, axes = op.split("_")
    axes = [int(axis) for axis in axes.split("x")]
    return lambda: (torch.randn(*shape, dtype=dtype),), lambda x: getattr(torch, kind)(x, dim=axes)


CELLS = {
    "layer_norm": rows(lambda n, x, w, b: F.layer_norm(x, (n,), w, b, 1e-5), 2),
    "rms_norm": rows(lambda n, x, w: F.rms_norm(x, (n,), w, 1e-6), 1),
    "group_norm": group_norm, "group_norm_silu": group_norm, "group_norm_nhwc": group_norm,
    "batch_norm_train": batch_norm, "batch_norm_train_nhwc": batch_norm, "batch_norm_eval": batch_norm, "batch_norm_train_add_relu": batch_norm,
    "instance_norm": instance_norm,
    "softmax": softmax, "log_softmax": softmax, "softmax_channel": softmax, "softmax_causal": softmax, "softmax_bias": softmax,
    "cross_entropy": cross_entropy,
    "sdpa": sdpa, "sdpa_causal": sdpa,
    "local_response_norm": lambda shape, dtype, op: (lambda: (image(shape, dtype, op),), lambda x: F.local_response_norm(x, 5)),
    **{f"activation_{name}": activation for name in ACTIVATIONS if name != "none"},
    **{f"gemm_bias_{name}": gemm for name in ACTIVATIONS},
    **{f"linear_bias_{name}": gemm for name in ("none", "gelu_tanh", "silu")},
    "gemm_none": gemm, "gemm_batch": gemm_batch,
    "conv2d_nchw": conv, "conv2d_nhwc": conv, "depthwise_nchw": conv, "depthwise_nhwc": conv,
    **{f"unary_{name}": unary for name in ("exp", "log", "log1p", "erf", "sin", "sqrt", "neg", "sigmoid", "tanh")},
    **{name: binary for name in ("binary_add", "binary_div", "binary_pow", "compare_lt")},
    **{name: broadcast for name in ("add_row", "add_column", "add_channel", "add_transposed")},
    "cast": cast,
    **{f"reduce_{kind}_{axes}": reduce for kind in ("sum", "amax") for axes in ("0", "1", "0x2x3", "0x1x2")},
    "reduce_mean_1": reduce,
    "cumsum_0": lambda shape, dtype, op: (lambda: (torch.randn(*shape, dtype=dtype),), lambda x: torch.cumsum(x, 0)),
    "cumsum_1": lambda shape, dtype, op: (lambda: (torch.randn(*shape, dtype=dtype),), lambda x: torch.cumsum(x, 1)),
    "searchsorted": lambda shape, dtype, op: (lambda: (torch.randn(shape[0], dtype=dtype).sort().values, torch.randn(shape[1], dtype=dtype)), torch.searchsorted),
    "nonzero": lambda shape, dtype, op: (lambda: (torch.randn(*shape) > 0,), lambda x: torch.nonzero(x if x.dim() > 1 else x.flatten())),
    "logcumsumexp_1": lambda shape, dtype, op: (lambda: (torch.randn(*shape, dtype=dtype),), lambda x: torch.logcumsumexp(x, 1)),
}


def time_us(calls):
    """Median time of one call; calls: one closure per set of inputs. The last output of each set stays alive, so that outputs rotate, too."""
    held, n = [None] * len(calls), len(calls)

    def burst(count):
        start = time.perf_counter()
        for i in range(count):
            held[i % n] = calls[i % n]()
        return time.perf_counter() - start

    burst(n)
    estimate = burst(1)
    count = 1 if estimate > BURST_S else n * max(1, math.ceil(BURST_S / (estimate * n)))
    return statistics.median(burst(count) / count for _ in range(REPEATS)) * 1e6


def torch_us(cell):
    dtype = DTYPES[cell["dtype"]]
    op = cell["op"]
    make, function = (cast if op.startswith("cast") else CELLS[op])(cell["shape"], dtype, op)
    first = make()
    in_bytes = max(tensor.numel() * tensor.element_size() for tensor in first)
    data = [first] + [make() for _ in range(max(2, min(64, -(-3 * CACHE // in_bytes) + 1)) - 1)]
    if cell["pass"] == "fw":
        with torch.no_grad():
            return time_us([lambda d=d: function(*d) for d in data])
    graphs = []
    for d in data:
        y = function(*d)
        graphs.append((y, [t for t in d if t.requires_grad], torch.randn_like(y)))
    return time_us([lambda g=g: torch.autograd.grad(g[0], g[1], g[2], retain_graph=True) for g in graphs])


def model():
    with open("/proc/cpuinfo") as file:
        return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))


def key(line):
    return line["op"], line["pass"], tuple(line["shape"]), line["dtype"]


def ours(bops, label, is_quick):
    quick = ["--quick"] if is_quick else []
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as file:
        subprocess.run([bops, "bench", "--device", "cpu", "--ops", label, "--json", file.name, *quick], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [json.loads(line) for line in file]


def belongs(group, line):
    if not line["op"].startswith(GROUPS[group]):
        return False
    dtype = {"tf32": "float32"}.get(line["dtype"], line["dtype"])
    words = group.split()
    return all(dtype == word for word in words if word in ("float32", "bfloat16")) and all(line["pass"] == word for word in words if word in ("fw", "bw"))


def summary(found):
    for group in GROUPS:
        ratios = [ratio for line, ratio in found if belongs(group, line)]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{group:28} {len(ratios):3} cells, PyTorch's time over ours: least {min(ratios):.2f}, geometric mean {mean:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bops")
    parser.add_argument("--ops", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    out = open(arguments.json, "a") if arguments.json else None
    found = []
    for label in arguments.ops.split(",") if arguments.ops else CELLS:
        times, lines = {}, {}
        for _ in range(arguments.rounds):
            for line in ours(arguments.bops, label, arguments.quick):
                lines[key(line)] = line
                mine, theirs = times.setdefault(key(line), ([], []))
                mine.append(line["us"])
                theirs.append(torch_us(line))
        for at, line in lines.items():
            mine, theirs = map(statistics.median, times[at])
            share = lambda us: round(line["bytes"] / us / 1e3, 1)
            peer = {"peer": f"torch-cpu-{torch.__version__.split('+')[0]}", "us": round(theirs, 3), "gbps": share(theirs), "tflops": round(line["flops"] / theirs / 1e6, 2)}
            line = {**line, "device": model(), "us": round(mine, 3), "gbps": share(mine), "tflops": round(line["flops"] / mine / 1e6, 2)}
            for one in (line, {**{k: v for k, v in line.items() if k not in ("kernel", "choice", "library", "commit", "dirty")}, **peer}):
                if out:
                    print(json.dumps(one), file=out, flush=True)
            found.append((line, theirs / mine))
            shape = "x".join(map(str, line["shape"]))
            print(f"{line['op']:26} {line['pass']} {shape:22} {line['dtype']:9} {line['kernel']:32} {mine:11.1f} us {line['gbps']:6.1f} GB/s  PyTorch {theirs:11.1f} us  {theirs / mine:6.2f}x", flush=True)
    summary(found)


if __name__ == "__main__":
    main()
