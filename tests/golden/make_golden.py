#!/usr/bin/env python3
"""Makes the golden case files of this folder: expected values that this project did not compute.

usage: make_golden.py OUTPUT_FOLDER        (needs torch, scikit-learn, mpmath and numpy; no GPU)

Forward values come from torch.nn.functional on PyTorch's CPU in float64, fed inputs that were first rounded to the dtype of the case.
Backward values follow from the saved statistics that are an input of the case, rounded to their dtype, so they are computed in
float64 by the formulas of docs/numerics.md; the same formulas with unrounded statistics must agree with PyTorch's autograd.
PyTorch's float64 is no measure of float64 itself: those cases are computed with 50 digits and only compared with it.
"""
import os
import sys
import zlib

import mpmath
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import case_file
import golden_activation
import golden_attention
import golden_channel_norm
import golden_conv
import golden_cross_entropy
import golden_fft
import golden_functions
import golden_gemm
import golden_linalg
import golden_local_response_norm
import golden_positions

DTYPES = ["f32", "f16", "bf16", "f64"]
MAX_FILE_BYTES, MAX_TOTAL_BYTES = 2_000_000, 11_000_000
PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} in float64 on the CPU"
DIGITS = f"mpmath {mpmath.__version__} with 50 digits, compared with {PYTORCH}"
mpmath.mp.dps = 50


# ---- data: name -> values of x and, for the residual, of a second tensor ----

IMAGES = load_digits().data  # 1797 images of 8 x 8 pixels, 0..16


def digits(rows):
    return lambda rng: (IMAGES[:rows], IMAGES[rows : 2 * rows] / 16)


def large_mean(rows, cols):
    return lambda rng: (1000 + 0.1 * rng.standard_normal((rows, cols)), rng.standard_normal((rows, cols)))


def constant(rows, cols):
    return lambda rng: (np.full((rows, cols), 1000.1), np.full((rows, cols), 0.7))


def outlier(rows, cols):
    def make(rng):
        x = rng.standard_normal((rows, cols))
        x[np.arange(rows), rng.integers(0, cols, rows)] = 1e4
        return x, rng.standard_normal((rows, cols))

    return make


def normal(rows, cols):
    return lambda rng: (rng.standard_normal((rows, cols)), rng.standard_normal((rows, cols)))


# ---- the oracle ----


def forward(op, h, k, weight, bias, offset, eps):
    """y, mean, rstd in float64; mean and rstd have the outer dims."""
    shape = h.shape[len(h.shape) - k :]
    t = torch.from_numpy(h)
    w = None if weight is None else torch.from_numpy(weight + offset)
    b = None if bias is None else torch.from_numpy(bias)
    inner = tuple(range(h.ndim - k, h.ndim))
    if op == "layer_norm":
        y = F.layer_norm(t, shape, w, b, eps)
        variance, mean = torch.var_mean(t, dim=inner, correction=0)
        return y.numpy(), mean.numpy(), torch.rsqrt(variance + eps).numpy()
    y = F.rms_norm(t, shape, w, eps)
    return y.numpy(), None, torch.rsqrt((t * t).mean(dim=inner) + eps).numpy()


def exact_forward(op, h, k, weight, bias, offset, eps):
    """The same with 50 digits."""
    inner = tuple(range(h.ndim - k, h.ndim))
    h, weight, bias = many_digits(h), many_digits(weight), many_digits(bias)
    mean = h.mean(axis=inner, keepdims=True) if op == "layer_norm" else 0
    variance = ((h - mean) ** 2).mean(axis=inner, keepdims=True)
    rstd = np.vectorize(lambda v: 1 / mpmath.sqrt(v + mpmath.mpf(eps)), otypes=[object])(variance)
    y = (h - mean) * rstd * (1 if weight is None else weight + offset) + (0 if bias is None else bias)
    outer = h.shape[: h.ndim - k]
    mean = mean.reshape(outer).astype(np.float64) if op == "layer_norm" else None
    return y.astype(np.float64), mean, rstd.reshape(outer).astype(np.float64)


def many_digits(t):
    return None if t is None else np.vectorize(mpmath.mpf, otypes=[object])(t)


def autograd(op, h, k, weight, offset, eps, dy, dh):
    """dx, dweight, dbias by PyTorch, for a loss whose gradients with respect to y and h are dy and dh."""
    shape = h.shape[len(h.shape) - k :]
    x = torch.from_numpy(h).requires_grad_()
    w = torch.from_numpy(np.ones(shape) if weight is None else weight + offset).requires_grad_()
    b = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    y = F.layer_norm(x, shape, w, b, eps) if op == "layer_norm" else F.rms_norm(x, shape, w, eps) + b
    loss = (y * torch.from_numpy(dy)).sum()
    if dh is not None:
        loss = loss + (x * torch.from_numpy(dh)).sum()
    return [g.numpy() for g in torch.autograd.grad(loss, (x, w, b))]


def backward(op, h, k, weight, offset, mean, rstd, dy, dh):
    """dx, dweight, dbias from the given statistics."""
    inner = tuple(range(h.ndim - k, h.ndim))
    outer = tuple(range(h.ndim - k))
    column = lambda t: t.reshape(t.shape + (1,) * k)
    xhat = (h - (0 if mean is None else column(mean))) * column(rstd)
    g = dy if weight is None else dy * (weight + offset)
    dx = g - xhat * (g * xhat).mean(axis=inner, keepdims=True)
    if op == "layer_norm":
        dx = dx - g.mean(axis=inner, keepdims=True)
    dx = dx * column(rstd) + (0 if dh is None else dh)
    return dx, (dy * xhat).sum(axis=outer), dy.sum(axis=outer), xhat, g


def check_backward(name, op, h, k, weight, offset, eps, exact, saved, dy, dh):
    """The formula with exact statistics is PyTorch's gradient; rounding the statistics moves it little."""
    torch_dx, torch_dweight, torch_dbias = autograd(op, h, k, weight, offset, eps, dy, dh)
    for statistics, share in ((exact, 1e-9), (saved, 1e-2)):
        dx, dweight, dbias, xhat, g = backward(op, h, k, weight, offset, *statistics, dy, dh)
        dx_scale = np.abs(statistics[1]).max() * np.abs(g).max() * (1 + np.abs(xhat).max())
        dweight_scale = (np.abs(dy) * (1 + np.abs(xhat))).sum(axis=tuple(range(h.ndim - k))).max()
        for what, ours, theirs, scale in (
            ("dx", dx, torch_dx, dx_scale),
            ("dweight", dweight, torch_dweight, dweight_scale),
            ("dbias", dbias, torch_dbias, np.abs(dy).sum()),
        ):
            error = np.abs(ours - theirs).max() / scale
            assert error <= share, f"{name}: {what} differs from autograd by {error:.2e} of its scale"


# ---- cases ----

# op -> the name of a case -> what case_file.write takes of it
packs = {}


def case(op, data_name, data, dtype, *, pass_, k=1, dims=None, weight=None, bias=None, eps=1e-5, offset=None,
         stats=False, residual=False, dx=True, dweight=False, dbias=None):
    """weight and bias (dbias in backward) are dtypes or None."""
    name = op if pass_ == "forward" else f"{op}_backward"
    options = [f"weight_{weight}" if weight else "", f"bias_{bias or dbias}" if bias or dbias else "",
               "offset" if offset is not None else "", "stats" if stats else "", "residual" if residual else "",
               "dweight" if dweight else "", "" if dx else "no_dx"]
    file = "-".join([name, data_name, dtype] + [o for o in options if o]) + ".safetensors"
    rng = np.random.default_rng(zlib.crc32(file.encode()))

    x, extra = (case_file.rounded(t.reshape(dims or t.shape), dtype) for t in data(rng))
    shape = x.shape[x.ndim - k :]
    # Parameters are drawn whether used or not, so that an option does not change the rest.
    gamma = case_file.rounded(rng.standard_normal(shape) * 0.2 + (1 if offset is None else 0), weight or dtype)
    beta = case_file.rounded(rng.standard_normal(shape) * 0.5, bias or dtype)
    gamma, beta = gamma if weight else None, beta if bias else None
    dy = case_file.rounded(rng.standard_normal(x.shape), dtype)
    dh = case_file.rounded(rng.standard_normal(x.shape), dtype) if residual else None

    h = x
    if residual:
        h = case_file.rounded(x + extra, dtype)
        once_more = case_file.rounded((x.astype(np.float32) + extra.astype(np.float32)).astype(np.float64), dtype)
        assert dtype == "f64" or (h == once_more).all(), f"{file}: the sum depends on where it is rounded"
    y, mean, rstd = forward(op, h, k, gamma, beta, offset or 0, eps)
    if dtype == "f64":
        torch_y, scale = y, 1 + np.abs(h).max() * rstd.max()
        y, mean, rstd = exact_forward(op, h, k, gamma, beta, offset or 0, eps)
        assert np.abs(y - torch_y).max() <= 1e-12 * scale, f"{file}: y differs from PyTorch's"

    descriptor = {"x": {"dtype": dtype, "dims": list(x.shape)}, "normalized_dims": k}
    if weight:
        descriptor["weight"] = weight
    if pass_ == "forward":
        inputs = {"x": (dtype, x)}
        outputs = {"y": y}
        if bias:
            descriptor["bias"] = bias
        if offset is not None:
            descriptor["weight_offset"] = offset
        descriptor["eps"] = eps
        if stats:
            descriptor["stats"] = True
            outputs |= {"rstd": rstd} | ({} if mean is None else {"mean": mean})
        if residual:
            descriptor["residual"] = True
            inputs["residual"] = (dtype, extra)
            outputs["h"] = h
        if bias:
            inputs["bias"] = (bias, beta)
    else:
        stat_dtype = "f64" if dtype == "f64" else "f32"
        saved = [None if t is None else case_file.rounded(t, stat_dtype) for t in (mean, rstd)]
        check_backward(file, op, h, k, gamma, offset or 0, eps, (mean, rstd), saved, dy, dh)
        operands = [h, gamma, *saved, dy, dh]
        if dtype == "f64":
            operands = [many_digits(t) for t in operands]
        values = backward(op, operands[0], k, operands[1], offset or 0, *operands[2:])
        inputs = {"dy": (dtype, dy), "x": (dtype, h), "rstd": (stat_dtype, saved[1])}
        outputs = {}
        if mean is not None:
            inputs["mean"] = (stat_dtype, saved[0])
        if dx:
            descriptor["dx"] = True
            outputs["dx"] = values[0].astype(np.float64)
        if dweight:
            descriptor["dweight"] = True
            outputs["dweight"] = values[1].astype(np.float64)
        if dbias:
            descriptor["dbias"] = dbias
            outputs["dbias"] = values[2].astype(np.float64)
        if residual:
            descriptor["dh"] = True
            inputs["dh"] = (dtype, dh)
        if offset is not None:
            descriptor["weight_offset"] = offset
    if weight:
        inputs["weight"] = (weight, gamma)
    source = (DIGITS if dtype == "f64" else PYTORCH) + ("; images of scikit-learn's load_digits" if data_name.startswith("digits") else "")
    write(file, name, descriptor, source, inputs, outputs)


def write(file, op, *contents):
    """Adds a case to the pack of its op. The random data of a case depend on the name of the file that it would fill alone."""
    name = file.removeprefix(f"{op}-").removesuffix(".safetensors")
    cases = packs.setdefault(op, {})
    assert name not in cases, f"{file} twice"
    cases[name] = (op, *contents)


def layer_norm_cases():
    def fw(*args, **options):
        case("layer_norm", *args, pass_="forward", **options)

    def bw(*args, **options):
        case("layer_norm", *args, pass_="backward", **options)

    fw("digits256", digits(256), "f32", weight="f32", bias="f32", stats=True)
    bw("digits256", digits(256), "f32", weight="f32", dweight=True, dbias="f32")
    fw("digits256x8x8", digits(256), "bf16", k=2, dims=(256, 8, 8), weight="f32", bias="f32", stats=True)
    for t in DTYPES:
        rows = digits(24)
        images = dict(k=2, dims=(24, 8, 8))
        fw("digits", rows, t)
        fw("digits", rows, t, weight=t, eps=1e-6)
        fw("digits", rows, t, bias=t, stats=True, eps=1e-3)
        fw("digits", rows, t, weight=t, bias=t, stats=True, residual=True)
        fw("digits24x8x8", rows, t, weight="f32", bias="f32", stats=True, **images)
        fw("digits24x8x8", rows, t, residual=True, **images)
        bw("digits", rows, t)
        bw("digits", rows, t, weight=t, dweight=True)
        bw("digits", rows, t, dbias=t)
        bw("digits", rows, t, weight=t)
        bw("digits", rows, t, weight=t, dweight=True, dbias=t, residual=True)
        bw("digits24x8x8", rows, t, weight="f32", dweight=True, dbias="f32", dx=False, **images)
        bw("digits24x8x8", rows, t, weight="f32", dweight=True, dbias="f32", **images)
        hard(fw, bw, t, dict(weight="f32", bias="f32", stats=True), dict(weight="f32", dweight=True, dbias="f32"))
    fw("constant16384", constant(1, 16384), "f32", stats=True)
    bw("constant16384", constant(1, 16384), "f32")


def rms_norm_cases():
    def fw(*args, **options):
        case("rms_norm", *args, pass_="forward", **options)

    def bw(*args, **options):
        case("rms_norm", *args, pass_="backward", **options)

    fw("digits256", digits(256), "f32", weight="f32", stats=True)
    bw("digits256", digits(256), "f32", weight="f32", dweight=True)
    for t in DTYPES:
        rows = digits(24)
        images = dict(k=2, dims=(24, 8, 8))
        fw("digits", rows, t)
        fw("digits", rows, t, weight=t, stats=True, eps=1e-6)
        fw("digits", rows, t, weight=t, stats=True, residual=True)
        fw("digits", rows, t, weight="f32", offset=1.0)
        fw("digits24x8x8", rows, t, weight="f32", offset=1.0, stats=True, residual=True, **images)
        bw("digits", rows, t)
        bw("digits", rows, t, weight=t, dweight=True, residual=True)
        bw("digits", rows, t, weight="f32", offset=1.0, dweight=True)
        bw("digits24x8x8", rows, t, weight="f32", dweight=True, dx=False, **images)
        hard(fw, bw, t, dict(weight="f32", stats=True), dict(weight="f32", dweight=True))


def hard(fw, bw, dtype, forward_options, backward_options):
    """Data on which short cuts show, at sizes that are multiples of nothing."""
    odd = {"f32": [(1, 1), (3, 1), (7, 17), (5, 1023)], "f16": [(1, 1), (7, 17)], "bf16": [(7, 17), (2, 4097)],
           "f64": [(3, 1), (7, 17)]}[dtype]
    data = [("large_mean", large_mean(9, 129)), ("constant", constant(3, 300)), ("outlier", outlier(4, 513))]
    data += [(f"odd{rows}x{cols}", normal(rows, cols)) for rows, cols in odd]
    for name, values in data:
        fw(name, values, dtype, **forward_options)
        bw(name, values, dtype, **backward_options)
    fw("residual7x17", normal(7, 17), dtype, residual=True, **forward_options)


# ---- softmax ----


def masked(length):
    """Scores of causal attention: what is hidden is -infinity."""
    hidden = np.triu(np.ones((length, length), bool), 1)
    return lambda rng: np.where(hidden, -np.inf, rng.standard_normal((length, length)))


def exact_softmax(x, axis, log, scale):
    """With 50 digits; scale as in float64."""
    t = many_digits(x) * mpmath.mpf(scale)
    t = t - t.max(axis=axis, keepdims=True)
    exponential = np.vectorize(mpmath.exp, otypes=[object])(t)
    total = exponential.sum(axis=axis, keepdims=True)
    y = t - np.vectorize(mpmath.log, otypes=[object])(total) if log else exponential / total
    return y.astype(np.float64)


def softmax_backward(y, dy, axis, log, scale):
    if log:
        exponential = np.vectorize(mpmath.exp, otypes=[object])(y) if y.dtype == object else np.exp(y)
        return scale * (dy - exponential * dy.sum(axis=axis, keepdims=True))
    return scale * y * (dy - (dy * y).sum(axis=axis, keepdims=True))


def softmax_case(data_name, data, dtype, axis, *, dims=None, log=False, scale=1.0, output=None):
    """Forward, and backward from forward's output rounded to the dtype of the output, by default that of x."""
    options = [data_name, dtype, f"axis{axis}"] + (["log"] if log else []) + ([f"scale{scale:g}"] if scale != 1 else [])
    options += [f"to_{output}"] if output else []
    of_y = output or dtype
    files = ["-".join([name] + options) + ".safetensors" for name in ("softmax", "softmax_backward")]
    rng = np.random.default_rng(zlib.crc32(files[0].encode()))
    x = data(rng)
    x = x[0] if isinstance(x, tuple) else x
    x = case_file.rounded(x.reshape(dims or x.shape), dtype)
    dy = case_file.rounded(rng.standard_normal(x.shape), of_y)

    t = torch.from_numpy(x).requires_grad_()
    torch_y = (F.log_softmax if log else F.softmax)(scale * t, axis)
    (torch_dx,) = torch.autograd.grad((torch_y * torch.from_numpy(dy)).sum(), t)
    y = torch_y.detach().numpy()
    if output:
        # What PyTorch makes of x in its own type and of that type of the output.
        narrow = torch.from_numpy(x).to({"f16": torch.float16, "bf16": torch.bfloat16}[dtype]).requires_grad_()
        own = (F.log_softmax if log else F.softmax)(scale * narrow.to(torch.float32) if scale != 1 else narrow, axis, dtype=torch.float32)
        own.backward(torch.from_numpy(dy).to(torch.float32))
        assert own.dtype == torch.float32 and narrow.grad.dtype == narrow.dtype
        assert np.allclose(own.detach().numpy(), y, rtol=1e-5, atol=1e-6), f"{files[0]}: y differs from PyTorch's"
        assert np.allclose(narrow.grad.double().numpy(), torch_dx.numpy(), rtol=1e-2, atol=1e-3), f"{files[1]}: dx differs from PyTorch's"
    # Autograd multiplies infinities by 0 where an element is hidden.
    is_same = np.isclose(softmax_backward(y, dy, axis, log, scale), torch_dx.numpy(), rtol=1e-9, atol=1e-9 * np.abs(dy).sum())
    assert (is_same | ~np.isfinite(x)).all(), f"{files[1]}: dx differs from autograd"
    if dtype == "f64":
        y = exact_softmax(x, axis, log, scale)
        assert np.allclose(y, torch_y.detach().numpy(), rtol=1e-12, atol=1e-12 * np.abs(x[np.isfinite(x)]).max(initial=1))
    saved = case_file.rounded(y, of_y)
    operands = [many_digits(saved), many_digits(dy)] if dtype == "f64" else [saved, dy]
    dx = softmax_backward(*operands, axis, log, scale).astype(np.float64)

    tensor, tensor_y = ({"dtype": of, "dims": list(x.shape)} for of in (dtype, of_y))
    rest = {"axis": axis} | ({"log": True} if log else {}) | ({"scale": scale} if scale != 1 else {})
    forward, backward = ({"output": output}, {"input": dtype}) if output else ({}, {})
    source = (DIGITS if dtype == "f64" else PYTORCH) + ("; images of scikit-learn's load_digits" if data_name == "digits" else "")
    for file, name, descriptor, inputs, outputs in (
        (files[0], "softmax", {"x": tensor} | rest | forward, {"x": (dtype, x)}, {"y": y}),
        (files[1], "softmax_backward", {"y": tensor_y} | rest | backward, {"y": (of_y, saved), "dy": (of_y, dy)}, {"dx": dx}),
    ):
        write(file, name, descriptor, source, inputs, outputs)


def softmax_cases():
    def make(*args, **options):
        softmax_case(*args, **options)

    for t in DTYPES:
        for log in (False, True):
            make("digits", digits(12), t, 1, log=log)
            make("large_mean", large_mean(3, 129), t, 1, log=log)
            make("outlier", outlier(2, 257), t, 1, log=log)
            make("masked", masked(17), t, 1, log=log)
            for axis in range(4):
                make("image2x5x3x7", normal(6, 35), t, axis, dims=(2, 5, 3, 7), log=log, scale=0.125 if axis == 3 else 1.0)
        make("odd7x17", normal(7, 17), t, 1, scale=0.1118)
        make("odd7x17", normal(7, 17), t, 1, scale=-1.0)
        make("odd7x17", normal(7, 17), t, 0, log=True, scale=-0.7)
        make("one3x1", normal(3, 1), t, 1)
        make("image1x40x2x3x3", normal(20, 36), t, 1, dims=(1, 40, 2, 3, 3))
    make("odd2x4097", normal(2, 4097), "f32", 1, log=True)
    for t in ("f16", "bf16"):
        for log in (False, True):
            make("digits", digits(12), t, 1, log=log, output="f32")
            make("large_mean", large_mean(3, 129), t, 1, log=log, output="f32")
            make("image2x5x3x7", normal(6, 35), t, 1, dims=(2, 5, 3, 7), log=log, output="f32")
        make("odd7x17", normal(7, 17), t, 1, scale=-0.7, output="f32")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    layer_norm_cases()
    rms_norm_cases()
    golden_channel_norm.cases(write)
    golden_local_response_norm.cases(write)
    golden_attention.cases(write)
    golden_activation.cases(write)
    golden_gemm.cases(write)
    golden_conv.cases(write)
    golden_positions.cases(write)
    golden_fft.cases(write)
    golden_linalg.cases(write)
    golden_cross_entropy.cases(write)
    softmax_cases()
    sizes = {}
    for op, cases in packs.items():
        sizes[f"{op}.safetensors"] = case_file.write_pack(os.path.join(folder, f"{op}.safetensors"), [(name, *case) for name, case in cases.items()])
    sizes |= golden_functions.write(folder)
    total, largest = sum(sizes.values()), max(sizes.values())
    assert largest <= MAX_FILE_BYTES and total <= MAX_TOTAL_BYTES, f"{sizes}, {total} bytes in all"
    for file in sorted(set(os.listdir(folder)) - set(sizes)):
        if file.endswith(".safetensors"):
            os.remove(os.path.join(folder, file))
            print(f"removed {file}, which is the pack of no op and of no type")
    print(f"{sum(map(len, packs.values())) + golden_functions.COUNT} cases in {len(sizes)} files, {total} bytes, largest {largest}")


if __name__ == "__main__":
    main()
