#!/usr/bin/env python3
"""Times every engine of cuDNN on the f32 convolutions of conv2d_nchw and conv2d_nhwc, forward and both gradients: those that the heuristics propose
and, with default settings, all that exist. An engine whose numerical notes name neither tensor cores nor a transform is direct; the fastest direct
one is what a cell is judged against where PyTorch uses Winograd's algorithm. The largest error of each engine, relative to the sum of magnitudes,
is measured too, since notes have been wrong. One JSON line per engine on stdout, by the method of channel_norm_bench.py.

usage: conv_direct_bench.py [--shapes 0,1] [--layouts nchw,nhwc] [--passes forward,data,weight] [--tf32]
"""
import argparse
import ctypes
import json
import math
import statistics

import torch
import torch.nn.functional as F

# Those of benches/src/cells/conv.rs: samples, channels, height, width, filters, kernel, stride, padding.
SHAPES = [(64, 64, 56, 56, 64, 3, 1, 1), (64, 256, 14, 14, 256, 3, 1, 1), (64, 256, 56, 56, 64, 1, 1, 0), (64, 3, 224, 224, 64, 7, 2, 3),
          (2, 320, 64, 64, 320, 3, 1, 1), (1, 512, 128, 128, 512, 3, 1, 1)]
WORKSPACE_BYTES = 256 << 20
NOTES = ["tensor_core", "down_convert", "reduced_reduction", "fft", "nondeterministic", "winograd", "winograd_4x4", "winograd_6x6", "winograd_13x13",
         "strict_nan"]
DIRECT = {"nondeterministic", "strict_nan"}
# Numbers of cudnn_graph.h: types of descriptors, attributes and values.
CONVOLUTION, ENGINE, CONFIG, HEURISTICS, PLAN, GRAPH, PACK, TENSOR = 1, 2, 3, 4, 5, 15, 16, 17
OPERATIONS = {"forward": (10, 700), "weight": (11, 712), "data": (12, 706)}
HANDLE, DATA_TYPE, BOOL, INT64, FLOAT, POINTER, MODE, HEURISTICS_MODE, NOTE, CHILD = 0, 1, 2, 3, 4, 6, 7, 8, 11, 15
HEURISTICS_MODES = {"a": 3, "b": 1, "fallback": 2}

cudnn = ctypes.CDLL("libcudnn.so.9")
cudnn.cudnnBackendSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p]
cudnn.cudnnBackendGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
cudnn.cudnnGetVersion.restype = ctypes.c_size_t
for name in ("cudnnBackendFinalize", "cudnnBackendDestroyDescriptor", "cudnnCreate"):
    getattr(cudnn, name).argtypes = [ctypes.c_void_p]
cudnn.cudnnBackendExecute.argtypes = [ctypes.c_void_p] * 3
cudnn.cudnnSetStream.argtypes = [ctypes.c_void_p] * 2
CTYPES = {HANDLE: ctypes.c_void_p, DATA_TYPE: ctypes.c_int, BOOL: ctypes.c_bool, INT64: ctypes.c_int64, FLOAT: ctypes.c_float,
          POINTER: ctypes.c_void_p, MODE: ctypes.c_int, HEURISTICS_MODE: ctypes.c_int, NOTE: ctypes.c_int, CHILD: ctypes.c_void_p}


class Refused(Exception):
    pass


def check(status, what):
    if status:
        raise Refused(f"{what}: status {status}")


class Descriptor:
    def __init__(self, kind):
        self.raw, self.kind, self.kept = ctypes.c_void_p(), kind, []
        check(cudnn.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.raw)), f"create {kind}")

    def set(self, attribute, kind, values):
        self.kept += [value for value in values if isinstance(value, Descriptor)]
        array = (CTYPES[kind] * len(values))(*[value.raw if isinstance(value, Descriptor) else value for value in values])
        check(cudnn.cudnnBackendSetAttribute(self.raw, attribute, kind, len(values), array), f"set {attribute}")
        return self

    def get(self, attribute, kind, room):
        array, count = (CTYPES[kind] * max(room, 1))(), ctypes.c_int64()
        check(cudnn.cudnnBackendGetAttribute(self.raw, attribute, kind, room, ctypes.byref(count), array if room else None), f"get {attribute}")
        return list(array)[: count.value] if room else count.value

    def done(self):
        check(cudnn.cudnnBackendFinalize(self.raw), f"finalize {self.kind}")
        return self

    def __del__(self):
        cudnn.cudnnBackendDestroyDescriptor(self.raw)


handle = ctypes.c_void_p()
check(cudnn.cudnnCreate(ctypes.byref(handle)), "cudnnCreate")
stream = torch.cuda.Stream()
torch.cuda.set_stream(stream)
check(cudnn.cudnnSetStream(handle, stream.cuda_stream), "cudnnSetStream")
l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 60 << 20)


def tensor(number, like):
    desc = Descriptor(TENSOR).set(906, INT64, [number]).set(901, DATA_TYPE, [0]).set(900, INT64, [16])
    return desc.set(902, INT64, list(like.shape)).set(903, INT64, list(like.stride())).set(907, BOOL, [False]).set(908, BOOL, [False]).done()


def graph_of(direction, x, weight, y, stride, padding):
    window = Descriptor(CONVOLUTION).set(100, DATA_TYPE, [0]).set(101, MODE, [1]).set(106, INT64, [2])
    window = window.set(102, INT64, [1, 1]).set(103, INT64, [stride] * 2).set(104, INT64, [padding] * 2).set(105, INT64, [padding] * 2).done()
    kind, first = OPERATIONS[direction]
    operation = Descriptor(kind).set(first, FLOAT, [1.0]).set(first + 1, FLOAT, [0.0]).set(first + 2, CHILD, [window])
    operation = operation.set(first + 3, CHILD, [tensor(2, weight)]).set(first + 4, CHILD, [tensor(1, x)]).set(first + 5, CHILD, [tensor(3, y)]).done()
    return Descriptor(GRAPH).set(800, HANDLE, [handle]).set(801, CHILD, [operation]).done()


def configs(graph):
    """Pairs of where a configuration comes from and what makes it."""
    found = []
    for name, number in HEURISTICS_MODES.items():
        try:
            heuristics = Descriptor(HEURISTICS).set(201, CHILD, [graph]).set(200, HEURISTICS_MODE, [number]).done()
            some = [Descriptor(CONFIG) for _ in range(heuristics.get(202, CHILD, 0))]
            array, count = (ctypes.c_void_p * max(len(some), 1))(*[one.raw for one in some]), ctypes.c_int64()
            check(cudnn.cudnnBackendGetAttribute(heuristics.raw, 202, CHILD, len(some), ctypes.byref(count), array), "results")
            found += [(f"{name}{i}", one) for i, one in enumerate(some[: count.value])]
        except Refused:
            pass
    for index in range(graph.get(802, INT64, 1)[0]):
        try:
            engine = Descriptor(ENGINE).set(1300, CHILD, [graph]).set(1301, INT64, [index]).done()
            found.append(("default", Descriptor(CONFIG).set(300, CHILD, [engine]).done()))
        except Refused:
            pass
    return found


def engine_of(config):
    engine = Descriptor(ENGINE)
    array, count = (ctypes.c_void_p * 1)(engine.raw), ctypes.c_int64()
    check(cudnn.cudnnBackendGetAttribute(config.raw, 300, CHILD, 1, ctypes.byref(count), array), "engine")
    notes = engine.get(1303, NOTE, 16)
    return engine.get(1301, INT64, 1)[0], [NOTES[note] if note < len(NOTES) else str(note) for note in notes]


def timed(run, calls, repeats):
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        run()
        end.record(stream)
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def measure(calls):
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
        graph.replay()
        torch.cuda.synchronize()
        return timed(graph.replay, len(calls), 5)
    except RuntimeError:
        torch.cuda.synchronize()
        return timed(lambda: [call() for call in calls], len(calls), 5)


def bench(direction, shape, layout, tf32):
    samples, channels, height, width, filters, kernel, stride, padding = shape
    form = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    make = lambda *dims: torch.randn(*dims, device="cuda").contiguous(memory_format=form)
    x, weight = make(samples, channels, height, width), make(filters, channels, kernel, kernel)
    y = torch.empty_like(F.conv2d(x[:1], weight, stride=stride, padding=padding).expand(samples, -1, -1, -1), memory_format=form)
    y = make(*y.shape)
    # What is expected, in f64, and the sums of magnitudes.
    def exact(a, b, c):
        a, b, c = a.double(), b.double(), c.double()
        if direction == "forward":
            return F.conv2d(a, b, stride=stride, padding=padding)
        if direction == "data":
            return torch.nn.grad.conv2d_input(a.shape, b, c, stride=stride, padding=padding)
        return torch.nn.grad.conv2d_weight(a, b.shape, c, stride=stride, padding=padding)
    few = x if direction == "weight" else x[:2]
    expected = exact(few, weight, y[: len(few)])
    magnitude = exact(few.abs(), weight.abs(), y[: len(few)].abs())
    written = {"forward": 2, "data": 0, "weight": 1}[direction]
    size = sum(t.numel() * 4 for t in (x, weight, y))
    sets = max(2, min(8, math.ceil(3 * l2_bytes / size) + 1))
    operands = [[x, weight, y]] + [[t.clone() for t in (x, weight, y)] for _ in range(sets - 1)]
    if written != 2:
        operands[0] = [t.clone() for t in operands[0]]
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    graph = graph_of(direction, x, weight, y, stride, padding)
    seen = {}
    for source, config in configs(graph):
        try:
            index, notes = engine_of(config)
            is_direct = set(notes) <= DIRECT
            if not is_direct and not tf32:
                continue
            plan = Descriptor(PLAN).set(400, HANDLE, [handle]).set(401, CHILD, [config]).done()
            needed = plan.get(402, INT64, 1)[0]
            if needed > WORKSPACE_BYTES:
                continue

            def call(three):
                pack = Descriptor(PACK).set(1000, INT64, [1, 2, 3]).set(1001, POINTER, [t.data_ptr() for t in three])
                pack = pack.set(1003, POINTER, [workspace.data_ptr()]).done()
                check(cudnn.cudnnBackendExecute(handle, plan.raw, pack.raw), "execute")

            three = [t.clone() for t in (x, weight, y)]
            three[written].fill_(float("nan"))
            call(three)
            torch.cuda.synchronize()
            got = three[written] if direction == "weight" else three[written][: len(few)]
            error = ((got.double() - expected).abs() / magnitude.clamp_min(1e-30)).max().item()
            us = measure([lambda three=three: call(three) for three in operands])
            flops = 2 * y.numel() * channels * kernel * kernel
            line = {"op": f"conv2d_{layout}", "pass": direction, "shape": list(shape), "engine": index, "from": source, "notes": notes,
                    "direct": is_direct, "us": round(us, 1), "tflops": round(flops / us * 1e-6, 1), "error": float(f"{error:.2e}"), "workspace": needed}
            print(json.dumps(line), flush=True)
        except (Refused, RuntimeError) as error:
            print(json.dumps({"skip": f"{direction} {layout} {shape} {source}", "why": str(error)[:120]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="0,1,2,3,4,5")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--passes", default="forward,data,weight")
    parser.add_argument("--tf32", action="store_true", help="engines with tensor cores and transforms too")
    arguments = parser.parse_args()
    print(json.dumps({"cudnn": cudnn.cudnnGetVersion(), "device": torch.cuda.get_device_name(0)}), flush=True)
    for index in map(int, arguments.shapes.split(",")):
        for layout in arguments.layouts.split(","):
            for direction in arguments.passes.split(","):
                try:
                    bench(direction, SHAPES[index], layout, arguments.tf32)
                except (Refused, RuntimeError) as error:
                    print(json.dumps({"skip": f"{direction} {layout} {SHAPES[index]}", "why": str(error)[:200]}), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
