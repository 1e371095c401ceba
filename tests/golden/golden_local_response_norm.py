"""Golden cases of LocalResponseNorm, forward and backward, for make_golden.py."""
import zlib

import mpmath
import numpy as np
import torch
import torch.nn.functional as F

import case_file

PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} in float64 on the CPU"
DIGITS = f"mpmath {mpmath.__version__} with 50 digits, compared with {PYTORCH}"


def exact(x, dy, size, alpha, beta, k, before):
    """y and dx with 50 digits; x and dy are [N, C, S], and `before` channels of a window lie before its own."""
    number = np.vectorize(mpmath.mpf, otypes=[object])
    x, dy = number(x), number(dy)
    channels = x.shape[1]
    scale, beta = mpmath.mpf(alpha) / size, mpmath.mpf(beta)
    d = np.empty_like(x)
    for c in range(channels):
        window = x[:, max(0, c - before) : c + size - before]
        d[:, c] = mpmath.mpf(k) + scale * (window * window).sum(axis=1)
    power = np.vectorize(lambda base, exponent: mpmath.power(base, exponent), otypes=[object])
    y = x * power(d, -beta)
    terms = dy * x * power(d, -beta - 1)
    dx = dy * power(d, -beta)
    for c in range(channels):
        window = terms[:, max(0, c - (size - before - 1)) : c + before + 1]
        dx[:, c] -= 2 * scale * beta * x[:, c] * window.sum(axis=1)
    return y.astype(np.float64), dx.astype(np.float64)


def case(write, data_name, dims, dtype, size, alpha=1e-4, beta=0.75, k=1.0, times=1.0, shift=0.0, is_last=False, longer_after=False):
    options = [data_name, dtype, f"size{size}", f"alpha{alpha:g}", f"beta{beta:g}", f"k{k:g}"]
    options += ["last"] * is_last + ["longer_after"] * longer_after
    files = ["-".join([name] + options) + ".safetensors" for name in ("local_response_norm", "local_response_norm_backward")]
    rng = np.random.default_rng(zlib.crc32(files[0].encode()))
    x = case_file.rounded(shift + times * rng.standard_normal(dims), dtype)
    dy = case_file.rounded(rng.standard_normal(dims), dtype)

    # PyTorch wants a spatial extent.
    flat = (dims[0], dims[1], int(np.prod(dims[2:])))
    t = torch.from_numpy(x.reshape(flat)).requires_grad_()
    # PyTorch has the longer side before the channel: among channels in reverse order it lies after it.
    turned = lambda values: values.flip(1) if longer_after else values
    torch_y = turned(F.local_response_norm(turned(t), size, alpha, beta, k))
    (torch_dx,) = torch.autograd.grad((torch_y * torch.from_numpy(dy.reshape(flat))).sum(), t)
    y, dx, source = torch_y.detach().numpy(), torch_dx.numpy(), PYTORCH
    if dtype == "f64":
        source = DIGITS
        before = (size - 1) // 2 if longer_after else size // 2
        y, dx = exact(x.reshape(flat), dy.reshape(flat), size, alpha, beta, k, before)
        assert np.allclose(y, torch_y.detach().numpy(), rtol=1e-12, atol=1e-12), files[0]
        assert np.allclose(dx, torch_dx.numpy(), rtol=1e-10, atol=1e-10), files[1]
    y, dx = y.reshape(dims), dx.reshape(dims)

    tensor = {"dtype": dtype, "dims": list(dims)}
    if is_last:
        n, c, *spatial = dims
        steps = [c * int(np.prod(spatial[i + 1 :])) for i in range(len(spatial))]
        tensor["strides"] = [c * int(np.prod(spatial)), 1] + steps
    descriptor = {"x": tensor, "size": size, "alpha": alpha, "beta": beta, "k": k}
    if longer_after:
        descriptor["longer_after"] = True
    write(files[0], "local_response_norm", descriptor, source, {"x": (dtype, x)}, {"y": y})
    write(files[1], "local_response_norm_backward", descriptor, source, {"dy": (dtype, dy), "x": (dtype, x)}, {"dx": dx})


def cases(write):
    for dtype in ("f32", "f16", "bf16", "f64"):
        for size in (1, 2, 3, 4, 5, 9, 12):
            case(write, "image2x7x3x5", (2, 7, 3, 5), dtype, size, alpha=0.5, k=2.0)
        for beta in (0.0, 0.5, 1.0, 2.3):
            case(write, "image2x8x4", (2, 8, 4), dtype, 5, alpha=0.3, beta=beta)
        case(write, "default1x6x4x4", (1, 6, 4, 4), dtype, 5)
        case(write, "rank2", (3, 9), dtype, 5, alpha=1.0)
        case(write, "one_channel", (2, 1, 5), dtype, 3, alpha=1.0)
        case(write, "large2x12x5", (2, 12, 5), dtype, 5, times=100.0)
        case(write, "mean2x12x5", (2, 12, 5), dtype, 5, shift=1000.0, times=0.1)
        case(write, "image2x16x3x3", (2, 16, 3, 3), dtype, 5, alpha=0.5, k=2.0, is_last=True)
        case(write, "image2x6x3x3", (2, 6, 3, 3), dtype, 4, alpha=0.5, k=2.0, is_last=True)
        case(write, "image2x6x3x3", (2, 6, 3, 3), dtype, 4, alpha=0.5, k=2.0, is_last=True, longer_after=True)
    for dtype in ("f32", "f64"):
        for size in (2, 8):
            case(write, "image2x7x3", (2, 7, 3), dtype, size, alpha=0.5, k=2.0, longer_after=True)
