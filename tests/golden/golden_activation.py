"""Golden cases of activations, forward and backward, for make_golden.py."""
import zlib

import mpmath
import numpy as np
import torch
import torch.nn.functional as F

import case_file

PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} in float64 on the CPU"
DIGITS = f"mpmath {mpmath.__version__} with 50 digits, compared with {PYTORCH}"
mpmath.mp.dps = 50

TORCH = {
    "identity": lambda t: t * 1,
    "relu": F.relu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def gelu_argument(x):
    return mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)


EXACT = {
    "identity": lambda x: x,
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "gelu_erf": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": lambda x: x / (1 + mpmath.exp(-2 * gelu_argument(x))),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
}


def exact_slope(name, x):
    """The derivative with 50 digits; of the ReLU at 0 it is 0."""
    if name == "relu":
        return mpmath.mpf(x > 0)
    return mpmath.diff(EXACT[name], x)


def from_output(name, y):
    return {"relu": (y > 0).astype(np.float64), "sigmoid": y * (1 - y), "tanh": (1 - y) * (1 + y)}[name]


def data(kind, rng):
    if kind == "normal5x33":
        return 3 * rng.standard_normal((5, 33))
    # Both signs of zero and infinity's neighbours in f16, points near the zeros of derivatives, and the tails.
    points = [0.0, -0.0, 1e-7, -1e-7, 0.5, -0.5, -0.7517916, -1.2784645, 1.2784645, 5, -5, 12, -12, 30, -30, 88, -88, 104, -104, 60000, -60000]
    return np.array(points)


def case(write, name, kind, dtype):
    rng = np.random.default_rng(zlib.crc32(f"{name}-{kind}-{dtype}".encode()))
    x = case_file.rounded(data(kind, rng), dtype)
    dy = case_file.rounded(rng.standard_normal(x.shape), dtype)
    t = torch.from_numpy(x).requires_grad_()
    torch_y = TORCH[name](t)
    (torch_dx,) = torch.autograd.grad((torch_y * torch.from_numpy(dy)).sum(), t)
    # PyTorch adds 1 to the error function or the hyperbolic tangent, which in the tails leaves no digit of either: it is only compared with.
    many = [mpmath.mpf(v) for v in x.flatten()]
    y = np.array([float(EXACT[name](v)) for v in many]).reshape(x.shape)
    dx = np.array([float(exact_slope(name, v) * mpmath.mpf(d)) for v, d in zip(many, dy.flatten())]).reshape(x.shape)
    assert np.allclose(y, torch_y.detach().numpy(), rtol=1e-9, atol=1e-12), name
    assert np.allclose(dx, torch_dx.numpy(), rtol=1e-9, atol=1e-9), name
    tensor = {"dtype": dtype, "dims": list(x.shape)}
    descriptor = {"x": tensor, "activation": name}
    stem = f"{kind}-{dtype}-{name}.safetensors"
    write(f"activation-{stem}", "activation", descriptor, DIGITS, {"x": (dtype, x)}, {"y": y})
    saved = {} if name == "identity" else {"x": (dtype, x)}
    write(f"activation_backward-{stem}", "activation_backward", descriptor, DIGITS, {"dy": (dtype, dy)} | saved, {"dx": dx})
    if name in ("relu", "sigmoid", "tanh"):
        saved = case_file.rounded(y, dtype)
        operands = {"dy": (dtype, dy), "y": (dtype, saved)}
        slope = from_output(name, saved.astype(np.longdouble))
        outputs = {"dx": (dy * slope).astype(np.float64)}
        source = f"NumPy {np.__version__} in longdouble"
        write(f"activation_backward-{kind}-{dtype}-{name}-from_y.safetensors", "activation_backward", descriptor | {"from_y": True}, source, operands, outputs)


def cases(write):
    for dtype in ("f32", "f16", "bf16", "f64"):
        for name in TORCH:
            for kind in ("normal5x33", "points"):
                case(write, name, kind, dtype)
