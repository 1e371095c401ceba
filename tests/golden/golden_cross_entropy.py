"""Golden cases of cross-entropy with classes and with probabilities, forward and backward, for make_golden.py.

PyTorch's float64 is no measure of float64 itself, so there are no cases of it.
"""
import zlib

import numpy as np
import torch
import torch.nn.functional as F

import case_file

PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} in float64 on the CPU"

# name -> reduction, weight, label smoothing
OPTIONS = {
    "mean": ("mean", False, 0.0),
    "sum-weight": ("sum", True, 0.0),
    "mean-smoothing": ("mean", False, 0.1),
    "none-weight-smoothing": ("none", True, 0.25),
}


def case(write, dims, axis, dtype, targets, name):
    reduction, has_weight, smoothing = OPTIONS[name]
    stem = f"{'x'.join(map(str, dims))}-{dtype}-{targets}-{name}"
    rng = np.random.default_rng(zlib.crc32(f"cross_entropy-{stem}".encode()))
    classes = dims[axis]
    lines = [dim for at, dim in enumerate(dims) if at != axis]
    x = case_file.rounded(3 * rng.standard_normal(dims), dtype)
    is_soft = targets != "i64"
    if is_soft:
        drawn = rng.random(dims) ** 4
        given = case_file.rounded(drawn / drawn.sum(axis, keepdims=True), targets)
        of_torch = torch.from_numpy(given)
    else:
        given = rng.integers(0, classes, lines)
        given[rng.random(lines) < 0.2] = -100
        of_torch = torch.from_numpy(given)
    weight = case_file.rounded(0.25 + rng.random(classes), dtype) if has_weight else None
    t = torch.from_numpy(x).requires_grad_()
    of_weight = None if weight is None else torch.from_numpy(weight)
    # PyTorch has the classes at axis 1, or at axis 0 of one line.
    loss = F.cross_entropy(t.movedim(axis, 1), of_torch.movedim(axis, 1) if is_soft else of_torch, of_weight, reduction=reduction, label_smoothing=smoothing)
    if is_soft:
        divisor = float(np.prod(lines))
    else:
        counts = given[given >= 0]
        divisor = float(len(counts)) if weight is None else float(weight[counts].sum())
    dloss = case_file.rounded(rng.standard_normal(loss.shape), "f32")
    (dx,) = torch.autograd.grad((loss * torch.from_numpy(np.asarray(dloss))).sum(), t)
    descriptor = {"x": {"dtype": dtype, "dims": list(dims)}, "axis": axis, "targets": targets}
    if not is_soft:
        descriptor["ignore_index"] = -100
    if reduction != "mean":
        descriptor["reduction"] = reduction
    inputs = {"x": (dtype, x), "targets": (targets, given)}
    if weight is not None:
        descriptor["weight"] = dtype
        inputs["weight"] = (dtype, weight)
    if smoothing:
        descriptor["label_smoothing"] = smoothing
    outputs = {"loss": loss.detach().numpy()}
    if reduction == "mean":
        outputs["divisor"] = np.array(divisor)
    write(f"cross_entropy-{stem}.safetensors", "cross_entropy", descriptor, PYTORCH, inputs, outputs)
    inputs = inputs | {"dloss": ("f32", np.asarray(dloss))}
    if reduction == "mean":
        inputs["divisor"] = ("f32", np.array(divisor))
    write(f"cross_entropy_backward-{stem}.safetensors", "cross_entropy_backward", descriptor, PYTORCH, inputs, {"dx": dx.numpy()})


def cases(write):
    for dtype in ("f32", "f16", "bf16"):
        for dims, axis in (((5, 33), 1), ((2, 7, 6), 1)):
            for name in OPTIONS:
                for targets in dict.fromkeys(("i64", dtype, "f32")):
                    case(write, dims, axis, dtype, targets, name)
