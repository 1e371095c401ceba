"""Golden cases of convolutions and their gradients, for make_golden.py."""
import itertools
import zlib

import mpmath
import numpy as np
import torch
import torch.nn.functional as F

import case_file
from golden_activation import DIGITS, EXACT, PYTORCH, TORCH
from golden_gemm import many_digits

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# What is computed: the dims of x and of the weight, which of them lie channels-last, padding before and after each extent, and options; then
# the types of a form's files. Operands are of type T (that of the factors) or W (f32, of f64 f64). `dx` and `dweight` have a type and beta, and
# `dbias` has. `special` is a number in one sample of x.
FORMS = {
    "image7x9": dict(x=(2, 3, 7, 9), weight=(4, 3, 3, 3), padding=[(1, 1), (1, 1)], bias="T", activation="relu", pre="T",
                     dx=("T", 0), dweight=("T", 0), dbias=("T", 0), types=("f32", "f64")),
    "stride2x3": dict(x=(2, 4, 8, 7), weight=(6, 4, 3, 2), last="xw", stride=(2, 3), padding=[(1, 0), (0, 2)], bias="W", activation="gelu_erf",
                      y="W", dx=("W", 0.5), dweight=("T", 0), dbias=("W", 0), types=("f16", "bf16")),
    "dilated": dict(x=(1, 2, 11, 9), weight=(3, 2, 3, 3), last="x", dilation=(2, 3), padding=[(2, 2), (3, 3)], activation="silu", pre="W",
                    dx=("T", 1), dweight=("W", 0), types=("f64", "bf16")),
    "groups3": dict(x=(2, 6, 5, 6), weight=(9, 2, 3, 3), last="w", groups=3, padding=[(1, 1), (1, 1)], bias="T", activation="gelu_tanh",
                    y="W", pre="T", dx=("W", 0), dweight=("T", -1), dbias=("T", 0.5), types=("f32", "f16")),
    "depthwise": dict(x=(2, 5, 7, 7), weight=(10, 1, 3, 3), last="xw", groups=5, stride=(2, 2), padding=[(1, 1), (1, 1)], bias="W",
                      activation="sigmoid", dx=("T", 0), dweight=("W", 1), dbias=("W", 1), types=("f64", "f16")),
    "pointwise": dict(x=(3, 7, 4, 5), weight=(5, 7, 1, 1), last="xw", activation="tanh", y="W", pre="W",
                      dx=("W", 0), dweight=("W", 0.5), types=("f32", "bf16")),
    "causal": dict(x=(2, 4, 13), weight=(4, 2, 5), groups=2, dilation=(2,), padding=[(8, 0)], bias="T", activation="silu",
                   dx=("T", 0.5), dweight=("T", 0), dbias=("T", -1), types=("f16", "f64")),
    "volume": dict(x=(1, 3, 5, 6, 4), weight=(4, 3, 2, 3, 3), stride=(1, 2, 1), padding=[(0, 1), (1, 1), (1, 0)], bias="W", y="W", pre="T",
                   dx=("T", 0), dweight=("T", 0), dbias=("T", 0), types=("bf16", "f32")),
    "kernel7x5": dict(x=(2, 3, 3, 4), weight=(2, 3, 7, 5), last="x", padding=[(3, 3), (2, 2)], activation="relu",
                      dx=("W", -1), dweight=("W", 0), types=("f16", "f32")),
    # Rows and columns of x that no output reads have a gradient of 0.
    "gaps": dict(x=(2, 3, 11, 10), weight=(4, 3, 2, 2), last="w", stride=(4, 3), bias="T", activation="gelu_erf",
                 dx=("T", 0), dweight=("T", 0.5), types=("bf16", "f64")),
    "no_samples": dict(x=(0, 3, 5, 5), weight=(4, 3, 3, 3), bias="T", activation="relu", dx=("T", 0), dweight=("T", 0.5), dbias=("T", 0),
                       types=("f32",)),
    "nan": dict(x=(2, 3, 6, 6), weight=(4, 3, 3, 3), special=np.nan, padding=[(1, 1), (1, 1)], activation="relu", dweight=("T", 0), types=("bf16",)),
    "inf": dict(x=(2, 3, 6, 6), weight=(4, 3, 3, 3), last="xw", special=np.inf, activation="identity", dweight=("T", 0), types=("f16",)),
}


def tensor(dtype, dims, is_last=False):
    """A dense tensor, contiguous or channels-last."""
    of = {"dtype": dtype, "dims": list(dims)}
    if not is_last:
        return of
    order = [1, *range(len(dims) - 1, 1, -1), 0]
    strides, step = [0] * len(dims), 1
    for axis in order:
        strides[axis], step = step, step * max(dims[axis], 1)
    return of | {"strides": strides}


def windows(padded, out, stride, dilation, kernel):
    """For each position of the kernel, the part of padded x that it meets."""
    for r in itertools.product(*map(range, kernel)):
        spatial = tuple(slice(d * at, d * at + s * (o - 1) + 1, s) for at, o, s, d in zip(r, out, stride, dilation))
        yield r, (slice(None), slice(None), *spatial)


class Exact:
    """The convolution and its gradients with many digits, each a sum over positions of the kernel of products of matrices."""

    def __init__(self, form, x, weight, out):
        self.groups, self.out, kernel = form.get("groups", 1), out, weight.shape[2:]
        rank = len(kernel)
        self.padding = form.get("padding", [(0, 0)] * rank)
        self.weight = many_digits(weight)
        self.padded = many_digits(np.pad(x, [(0, 0), (0, 0), *self.padding]))
        self.windows = list(windows(self.padded, out, form.get("stride", (1,) * rank), form.get("dilation", (1,) * rank), kernel))

    def grouped(self, t):
        """[N, groups, channels of a group, positions]."""
        return t.reshape(t.shape[0], self.groups, t.shape[1] // self.groups, -1)

    def of_weight(self, r):
        """[groups, Co, Ci] at one position of the kernel."""
        return self.weight[(..., *r)].reshape(self.groups, -1, self.weight.shape[1])

    def forward(self):
        sums = sum(np.matmul(self.of_weight(r), self.grouped(self.padded[at])) for r, at in self.windows)
        return sums.reshape(self.padded.shape[0], self.weight.shape[0], *self.out)

    def dx(self, dy):
        dx = np.full(self.padded.shape, mpmath.mpf(0))
        for r, at in self.windows:
            dx[at] += np.matmul(self.of_weight(r).swapaxes(-1, -2), self.grouped(dy)).reshape(dx[at].shape)
        inner = tuple(slice(before, dim - after) for dim, (before, after) in zip(dx.shape[2:], self.padding))
        return dx[(slice(None), slice(None), *inner)]

    def dweight(self, dy):
        dweight = np.full(self.weight.shape, mpmath.mpf(0))
        for r, at in self.windows:
            products = np.matmul(self.grouped(dy), self.grouped(self.padded[at]).swapaxes(-1, -2)).sum(axis=0)
            dweight[(..., *r)] = products.reshape(dweight.shape[:2])
        return dweight


def case(write, kind, form, dtype):
    wide = "f64" if dtype == "f64" else "f32"
    of = lambda t: {None: None, "T": dtype, "W": wide}[t]
    rng = np.random.default_rng(zlib.crc32(f"conv-{kind}-{dtype}".encode()))
    x, weight = (case_file.rounded(rng.standard_normal(form[t]) * scale, dtype) for t, scale in (("x", 1), ("weight", 0.5)))
    rank, last = x.ndim - 2, form.get("last", "")
    if "special" in form:
        x[(1, 2, 3, 2)[: x.ndim]] = form["special"]
    bias_type, y_type, pre_type = of(form.get("bias")), of(form.get("y", "T")), of(form.get("pre"))
    bias = case_file.rounded(rng.standard_normal(weight.shape[0]), bias_type) if bias_type else None
    stride, dilation = (form.get(t, (1,) * rank) for t in ("stride", "dilation"))
    padding, groups, name = form.get("padding", [(0, 0)] * rank), form.get("groups", 1), form.get("activation", "identity")

    # By PyTorch, which pads both sides alike: the padding is an op of its own.
    leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in (x, weight, np.zeros(weight.shape[0]) if bias is None else bias)]
    padded = F.pad(leaves[0], [side for sides in reversed(padding) for side in sides])
    pre = CONV[rank](padded, leaves[1], leaves[2], stride, 0, dilation, groups)
    values = {"y": TORCH[name](pre).detach().numpy(), "pre": pre.detach().numpy()}
    out = pre.shape[2:]
    is_exact, source = dtype == "f64", PYTORCH
    if is_exact:
        exact = Exact(form, x, weight, out)
        column = (slice(None),) + (None,) * rank
        digits = exact.forward() + (0 if bias is None else many_digits(bias)[column])
        for what, digits in (("pre", digits), ("y", np.vectorize(EXACT[name], otypes=[object])(digits))):
            digits = digits.astype(np.float64)
            assert np.allclose(digits, values[what], rtol=1e-9, atol=1e-9), (kind, what)
            values[what] = digits
        source = DIGITS

    window = {} if "stride" not in form else {"stride": list(stride)}
    window |= {} if "dilation" not in form else {"dilation": list(dilation)}
    window |= {} if "padding" not in form else {"padding": [list(sides) for sides in padding]}
    window |= {} if groups == 1 else {"groups": groups}
    of_x, of_weight = tensor(dtype, x.shape, "x" in last), tensor(dtype, weight.shape, "w" in last)
    options = ({"bias": bias_type} if bias_type else {}) | {"activation": name, "y": y_type} | ({"pre": pre_type} if pre_type else {})
    inputs = {"x": (dtype, x), "weight": (dtype, weight)} | ({} if bias is None else {"bias": (bias_type, bias)})
    outputs = {"y": values["y"]} | ({"pre": values["pre"]} if pre_type else {})
    write(f"conv-{kind}-{dtype}.safetensors", "conv", {"x": of_x, "weight": of_weight} | window | options, source, inputs, outputs)

    # The gradients, of a dy for the pre-activation.
    dy = case_file.rounded(rng.standard_normal(pre.shape), y_type)
    gradients = torch.autograd.grad(pre, leaves, torch.from_numpy(dy))
    gradients = dict(zip(("dx", "dweight", "dbias"), (g.numpy() for g in gradients)))
    if all(before == after for before, after in padding):
        # The gradient of the data is the transposed convolution, whose output padding follows from the extents of x.
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:])]
        sides = [before for before, _ in padding]
        rest = [i - ((o - 1) * s - 2 * p + k) for i, o, s, p, k in zip(x.shape[2:], out, stride, sides, reach)]
        dx = TRANSPOSED[rank](torch.from_numpy(dy), leaves[1], None, stride, sides, rest, groups, dilation)
        assert np.allclose(dx.detach().numpy(), gradients["dx"], rtol=1e-9, atol=1e-9), kind
    if is_exact:
        many = many_digits(dy)
        digits = {"dx": exact.dx(many), "dweight": exact.dweight(many), "dbias": many.sum(axis=(0, *range(2, many.ndim)))}
        for what, digits in digits.items():
            assert np.allclose(digits.astype(np.float64), gradients[what], rtol=1e-9, atol=1e-9), (kind, what)
            gradients[what] = digits
    of_dy = tensor(y_type, dy.shape, "x" in last)
    factors = {
        "dx": ("conv_backward_data", {"dy": of_dy, "weight": of_weight}, {"weight": (dtype, weight)}, ("x" in last, x.shape)),
        "dweight": ("conv_backward_weight", {"x": of_x, "dy": of_dy}, {"x": (dtype, x)}, ("w" in last, weight.shape)),
        "dbias": ("conv_backward_bias", {"dy": of_dy}, {}, None),
    }
    for what, (op, descriptor, inputs, lies) in factors.items():
        if what not in form:
            continue
        gradient, (gradient_type, beta) = gradients[what], form[what]
        gradient_type = of(gradient_type)
        descriptor |= {what: gradient_type} if lies is None else {what: tensor(gradient_type, lies[1], lies[0])} | window
        inputs = inputs | {"dy": (y_type, dy)}
        if beta != 0:
            before = case_file.rounded(rng.standard_normal(gradient.shape), gradient_type)
            descriptor["beta"] = beta
            inputs[what] = (gradient_type, before)
            gradient = gradient + beta * (many_digits(before) if is_exact else before)
        outputs = {what: np.asarray(gradient).astype(np.float64)}
        write(f"{op}-{kind}-{dtype}.safetensors", op, descriptor, source, inputs, outputs)


def cases(write):
    for kind, form in FORMS.items():
        for dtype in form["types"]:
            case(write, kind, form, dtype)
