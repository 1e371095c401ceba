#!/usr/bin/env python3
"""Times in PyTorch the step that the example training_step times: a transformer of 6 layers, width 384, 6 heads, SwiGLU of 1024, 64 pieces of 256 letters of
an alphabet of 96, parameters in bf16 with masters of f32, which AdamW moves.

Prints a line a variant: eager, replayed from a CUDA graph, and torch.compile(mode="max-autotune"), each with attention composed of two products and a
softmax, and by scaled_dot_product_attention. With BINARY, the example, its figures stand between those of the variants.

usage: training_step_bench.py [BINARY] [--steps 100] [--pieces 64] [--no-compile]
"""
import argparse, math, statistics, subprocess, time
import torch, torch.nn.functional as F

LETTERS, WIDTH, LAYERS, HEADS, HIDDEN, LENGTH = 96, 384, 6, 6, 1024, 256
HEAD = WIDTH // HEADS


def parameters(device):
    torch.manual_seed(1)
    made = []

    def weight(rows, columns):
        made.append((torch.rand(rows, columns, device=device) * 2 - 1) * math.sqrt(3 / rows))

    weight(LETTERS, WIDTH)
    for _ in range(LAYERS):
        made.append(torch.ones(WIDTH, device=device))
        for _ in range(4):
            weight(WIDTH, WIDTH)
        made.append(torch.ones(WIDTH, device=device))
        weight(WIDTH, HIDDEN), weight(WIDTH, HIDDEN), weight(HIDDEN, WIDTH)
    made.append(torch.ones(WIDTH, device=device))
    weight(WIDTH, LETTERS)
    return made


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def loss_of(p, x, targets, cos, sin, mask, is_composed):
    p = iter(p)
    h = F.embedding(x, next(p))
    batch = x.shape[0]
    norm = lambda h: F.rms_norm(h, (WIDTH,), next(p), 1e-6)
    heads = lambda t: t.view(batch, LENGTH, HEADS, HEAD).transpose(1, 2)
    for _ in range(LAYERS):
        y = norm(h)
        q, k, v = turned(heads(y @ next(p)), cos, sin), turned(heads(y @ next(p)), cos, sin), heads(y @ next(p))
        if is_composed:
            scores = (q @ k.transpose(2, 3)) * HEAD**-0.5
            mixed = scores.masked_fill(mask, -math.inf).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + mixed.transpose(1, 2).reshape(batch, LENGTH, WIDTH) @ next(p)
        y = norm(h)
        h = h + (F.silu(y @ next(p)) * (y @ next(p))) @ next(p)
    logits = norm(h) @ next(p)
    return F.cross_entropy(logits.view(-1, LETTERS), targets)


class Step:
    def __init__(self, pieces, is_composed, is_compiled, device):
        self.masters = parameters(device)
        self.used = [p.to(torch.bfloat16).requires_grad_() for p in self.masters]
        for p in self.masters:
            p.grad = torch.zeros_like(p)
        self.optimizer = torch.optim.AdamW(self.masters, lr=torch.tensor(0.001, device=device), betas=(0.9, 0.99), weight_decay=0.1, fused=True, capturable=True)
        self.x = torch.randint(LETTERS, (pieces, LENGTH), device=device)
        self.targets = torch.randint(LETTERS, (pieces * LENGTH,), device=device)
        angles = torch.arange(LENGTH, device=device)[:, None] * 10000 ** (-torch.arange(HEAD // 2, device=device) / (HEAD // 2))
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        self.mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=device).triu(1)
        self.is_composed = is_composed
        self.loss_of = torch.compile(loss_of, mode="max-autotune") if is_compiled else loss_of

    def __call__(self):
        loss = self.loss_of(self.used, self.x, self.targets, self.cos, self.sin, self.mask, self.is_composed)
        loss.backward()
        torch._foreach_copy_([p.grad for p in self.masters], [p.grad for p in self.used])
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.used, self.masters)
        for p in self.used:
            p.grad = None
        return loss.detach()


def milliseconds(step, steps):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(-(-steps // 5)):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / -(-steps // 5) * 1e3)
    return statistics.median(times)


def captured(step):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pieces", type=int, default=64)
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()

    def ours(*words):
        if arguments.binary:
            told = subprocess.run([arguments.binary, str(arguments.steps), "cuda", str(arguments.pieces), *words], capture_output=True, text=True)
            print(f"baracuda-ops {' '.join(words):24} {(told.stdout.strip() or told.stderr.strip()).splitlines()[-1]}", flush=True)

    for is_composed in (True, False):
        word = "composed" if is_composed else "one op"
        ours(*["composed"] * is_composed)
        for kind in ["eager", "graph"] + ["max-autotune"] * (not arguments.no_compile):
            step = Step(arguments.pieces, is_composed, kind == "max-autotune", "cuda")
            try:
                run = captured(step) if kind == "graph" else step
                print(f"torch {kind:14} attention {word:10} {milliseconds(run, arguments.steps):8.3f} ms a step", flush=True)
            except RuntimeError as error:
                print(f"torch {kind:14} attention {word:10} failed: {str(error).splitlines()[0]}", flush=True)
            del step, run
        ours(*["composed"] * is_composed)


if __name__ == "__main__":
    main()
