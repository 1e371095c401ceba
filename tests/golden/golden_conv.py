"""Golden cases of convolution and its gradients for make_golden.py."""
import itertools
import zlib

import mpmath
import numpy as np
import torch
import torch.nn.functional as F

import case_file
from golden_activation import DIGITS, EXACT, PYTORCH, TORCH
from golden_gemm import many_digits

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

# What is computed: the dims of x and weight, the window, and options. Types are T (that of the factors) or W (f32, of f64 f64); `last` names the
# operands that are channels-last. A gradient has a type and a beta. `special` is a number in the middle of x.
FORMS = {
    "same2x3x7x5": dict(x=(2, 3, 7, 5), weight=(4, 3, 3, 3), padding=((1, 1), (1, 1)), bias="T", dx=("T", 0), dweight=("T", 0), dbias=("T", 0)),
    "last2x3x7x5": dict(x=(2, 3, 7, 5), weight=(4, 3, 3, 3), padding=((1, 1), (1, 1)), last="x weight y", bias="W", activation="relu", pre="T", dx=("W", 0.5), dweight=("W", 1), dbias=("W", -1)),
    "mixed1x4x5x6": dict(x=(1, 4, 5, 6), weight=(6, 4, 2, 3), last="x", activation="silu", y="W", dx=("T", 0), dweight=("T", 0)),
    "stride1x3x9x11": dict(x=(1, 3, 9, 11), weight=(5, 3, 3, 5), stride=(2, 3), padding=((1, 1), (2, 2)), bias="T", y="W", dx=("W", 0), dweight=("W", 0), dbias=("T", 0)),
    "dilated1x2x9x10": dict(x=(1, 2, 9, 10), weight=(3, 2, 3, 2), dilation=(2, 3), padding=((2, 1), (0, 3)), activation="gelu_tanh", bias="T", pre="W", dx=("T", -1), dweight=("T", 0.5)),
    "grouped2x6x7x8": dict(x=(2, 6, 7, 8), weight=(4, 3, 2, 3), stride=(2, 1), dilation=(1, 3), padding=((1, 0), (4, 5)), groups=2, bias="W", dx=("T", 0), dweight=("T", 0), dbias=("W", 0)),
    "depthwise2x5x6x7": dict(x=(2, 5, 6, 7), weight=(5, 1, 3, 3), padding=((1, 1), (1, 1)), groups=5, last="x weight y", activation="tanh", dx=("T", 0), dweight=("T", 0)),
    "multiplied1x3x8x5": dict(x=(1, 3, 8, 5), weight=(6, 1, 5, 3), stride=(2, 1), padding=((2, 2), (1, 1)), groups=3, dx=("T", 0), dweight=("W", 0)),
    "pixel2x5x4x3": dict(x=(2, 5, 4, 3), weight=(7, 5, 1, 1), bias="T", activation="gelu_erf", pre="T", dx=("T", 0), dweight=("T", 0), dbias=("T", 0.5)),
    "larger1x2x3x2": dict(x=(1, 2, 3, 2), weight=(3, 2, 7, 5), padding=((3, 4), (2, 3)), dx=("T", 0), dweight=("T", 0)),
    "sparse1x2x11x9": dict(x=(1, 2, 11, 9), weight=(3, 2, 2, 1), stride=(4, 3), bias="T", dx=("T", 0), dweight=("T", 0), dbias=("T", 0)),
    "eleven1x1x13x12": dict(x=(1, 1, 13, 12), weight=(2, 1, 11, 11), padding=((5, 5), (5, 5)), stride=(3, 4), dx=("T", 0), dweight=("T", 0)),
    "causal2x4x17": dict(x=(2, 4, 17), weight=(4, 1, 3), dilation=(2,), padding=((4, 0),), groups=4, bias="T", activation="sigmoid", dx=("T", 0), dweight=("T", 0), dbias=("T", 0)),
    "line2x3x23": dict(x=(2, 3, 23), weight=(5, 3, 4), stride=(3,), padding=((2, 1),), last="x y", dx=("T", 0), dweight=("T", 0)),
    "solid1x2x4x5x6": dict(x=(1, 2, 4, 5, 6), weight=(3, 2, 3, 2, 3), padding=((1, 1), (0, 1), (1, 1)), stride=(1, 2, 1), bias="T", dx=("T", 0), dweight=("T", 0), dbias=("T", 0)),
    "solid_last2x4x3x4x3": dict(x=(2, 4, 3, 4, 3), weight=(6, 2, 2, 2, 2), dilation=(2, 1, 1), groups=2, last="x weight y", dx=("T", 0), dweight=("T", 0)),
    "no_samples0x3x5x4": dict(x=(0, 3, 5, 4), weight=(2, 3, 3, 3), bias="T", dweight=("T", 0.5), dbias=("T", 0)),
    "nan2x3x5x6": dict(x=(2, 3, 5, 6), weight=(4, 3, 3, 3), padding=((1, 1), (1, 1)), special=np.nan, bias="T"),
    "inf2x3x5x6": dict(x=(2, 3, 5, 6), weight=(4, 3, 3, 3), padding=((1, 1), (1, 1)), special=np.inf, bias="T"),
}


def tensor(dtype, dims, is_last=False):
    if not is_last:
        return {"dtype": dtype, "dims": list(dims)}
    strides, step = [0] * len(dims), 1
    for axis in [1] + list(range(len(dims) - 1, 1, -1)) + [0]:
        strides[axis] = step
        step *= max(dims[axis], 1)
    return {"dtype": dtype, "dims": list(dims), "strides": strides}


def torch_conv(x, weight, bias, form):
    """By PyTorch, which pads both sides alike, unless the input is padded first."""
    rank = len(form["x"]) - 2
    padding = form.get("padding", ((0, 0),) * rank)
    sides = [side for axis in reversed(padding) for side in axis]
    options = {option: form[option] for option in ("stride", "dilation", "groups") if option in form}
    return CONVOLUTIONS[rank](F.pad(x, sides), weight, bias, **options)


def products(form, y_dims):
    """The indices of x, weight and y of each product, by the formula of the documentation."""
    rank = len(form["x"]) - 2
    stride, dilation = (form.get(option, (1,) * rank) for option in ("stride", "dilation"))
    padding = form.get("padding", ((0, 0),) * rank)
    filters, of_group = form["weight"][0], form["weight"][1]
    for o in itertools.product(*map(range, y_dims[2:])):
        for r in itertools.product(*map(range, form["weight"][2:])):
            i = tuple(s * o + d * r - p[0] for s, o, d, r, p in zip(stride, o, dilation, r, padding))
            if not all(0 <= i < dim for i, dim in zip(i, form["x"][2:])):
                continue
            for k in range(filters):
                first = k // (filters // form.get("groups", 1)) * of_group
                for c in range(of_group):
                    yield (slice(None), first + c) + i, (k, c) + r, (slice(None), k) + o


def zeros(dims):
    return np.full(dims, mpmath.mpf(0), dtype=object)


def case(write, kind, form, dtype):
    wide = "f64" if dtype == "f64" else "f32"
    of = lambda t: {None: None, "T": dtype, "W": wide}[t]
    rng = np.random.default_rng(zlib.crc32(f"conv-{kind}-{dtype}".encode()))
    name, last = form.get("activation", "identity"), form.get("last", "").split()
    x, weight = (case_file.rounded(rng.standard_normal(form[t]), dtype) for t in ("x", "weight"))
    if "special" in form:
        x[tuple(dim // 2 for dim in x.shape)] = form["special"]
    bias_type, y_type, pre_type = of(form.get("bias")), of(form.get("y", "T")), of(form.get("pre"))
    bias = case_file.rounded(rng.standard_normal(weight.shape[0]), bias_type) if bias_type else None

    # Forward by PyTorch.
    leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in (x, weight, np.zeros(weight.shape[0]) if bias is None else bias)]
    pre = torch_conv(*leaves, form)
    values = {"y": TORCH[name](pre).detach().numpy(), "pre": pre.detach().numpy()}
    dims = tuple(pre.shape)
    exact, source = dtype == "f64" and "special" not in form, PYTORCH
    if exact:
        many_x, many_weight, digits = many_digits(x), many_digits(weight), zeros(dims)
        for i, r, o in products(form, dims):
            digits[o] = digits[o] + many_x[i] * many_weight[r]
        if bias is not None:
            digits = digits + many_digits(bias).reshape((-1,) + (1,) * (len(dims) - 2))
        of_y = np.vectorize(EXACT[name], otypes=[object])(digits) if digits.size else digits
        for what, digits in (("pre", digits), ("y", of_y)):
            digits = digits.astype(np.float64)
            assert np.allclose(digits, values[what], rtol=1e-9, atol=1e-9), (kind, what)
            values[what] = digits
        source = DIGITS

    window = {option: form[option] for option in ("stride", "dilation", "padding", "groups") if option in form}
    descs = {"x": tensor(dtype, x.shape, "x" in last), "weight": tensor(dtype, weight.shape, "weight" in last)}
    options = {"activation": name, "y": y_type} | ({"bias": bias_type} if bias_type else {}) | ({"pre": pre_type} if pre_type else {})
    # y lies as x unless told otherwise.
    if ("x" in last) != ("y" in last):
        options["layouts"] = {"y": tensor(y_type, dims, "y" in last)}
    inputs = {"x": (dtype, x), "weight": (dtype, weight)} | ({} if bias is None else {"bias": (bias_type, bias)})
    outputs = {"y": values["y"]} | ({"pre": values["pre"]} if pre_type else {})
    write(f"conv-{kind}-{dtype}.safetensors", "conv", descs | window | options, source, inputs, outputs)

    # Gradients, of a random gradient of the pre-activation.
    dy = case_file.rounded(rng.standard_normal(dims), y_type)
    gradients = torch.autograd.grad(pre, leaves, torch.from_numpy(dy))
    gradients = dict(zip(("dx", "dweight", "dbias"), (g.numpy() for g in gradients)))
    if exact:
        many_dy = many_digits(dy)
        digits = {"dx": zeros(x.shape), "dweight": zeros(weight.shape), "dbias": zeros(weight.shape[:1])}
        for i, r, o in products(form, dims):
            digits["dx"][i] = digits["dx"][i] + many_dy[o] * many_weight[r]
            digits["dweight"][r] = digits["dweight"][r] + (many_x[i] * many_dy[o]).sum()
        if many_dy.size:
            digits["dbias"] = many_dy.sum(axis=tuple(axis for axis in range(len(dims)) if axis != 1))
        for what, values in digits.items():
            assert np.allclose(values.astype(np.float64), gradients[what], rtol=1e-9, atol=1e-9), (kind, what)
        gradients = digits
    of_dy = tensor(y_type, dims, "y" in last)
    given = {
        "dx": {"dy": (y_type, dy), "weight": (dtype, weight)},
        "dweight": {"x": (dtype, x), "dy": (y_type, dy)},
        "dbias": {"dy": (y_type, dy)},
    }
    for what, op in (("dx", "conv_backward_data"), ("dweight", "conv_backward_weight"), ("dbias", "conv_backward_bias")):
        if what not in form:
            continue
        gradient_type, beta = of(form[what][0]), form[what][1]
        if what == "dbias":
            # Of an f32 dy beside factors of 16 bits the bias may have their type.
            fields = {"dy": of_dy, "dbias": gradient_type}
        elif what == "dx":
            fields = {"dy": of_dy, "weight": descs["weight"], "dx": tensor(gradient_type, x.shape, "x" in last)} | window
        else:
            fields = {"x": descs["x"], "dy": of_dy, "dweight": tensor(gradient_type, weight.shape, "weight" in last)} | window
        gradient, operands = gradients[what], dict(given[what])
        if beta != 0:
            before = case_file.rounded(rng.standard_normal(gradient.shape), gradient_type)
            operands[what] = (gradient_type, before)
            gradient = gradient + beta * (many_digits(before) if exact else before)
        result = {what: np.asarray(gradient).astype(np.float64)}
        write(f"{op}-{kind}-{dtype}.safetensors", op, fields | {"beta": beta}, source, operands, result)


def cases(write):
    for dtype in ("f32", "f16", "bf16", "f64"):
        for kind, form in FORMS.items():
            case(write, kind, form, dtype)
