"""Golden cases of BatchNorm, GroupNorm and InstanceNorm, forward and backward, in the way of make_golden.py.

Forward values come from PyTorch in float64. Backward values follow from the saved statistics, which are inputs of the case, by the
formulas of the op's documentation; the same formulas with unrounded statistics must agree with PyTorch's autograd through the norm, the
residual and the activation. Cases in float64 are computed with 50 digits and compared with PyTorch.
"""
import math
import zlib

import mpmath
import numpy as np
import torch
import torch.nn.functional as F

import case_file

mpmath.mp.dps = 50
TORCH_ACTIVATION = {
    "identity": lambda t: t,
    "relu": F.relu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


# ---- formulas, on arrays of float64 or of 50 digits ----


def each(of_float, of_digits):
    """A function of one number, on arrays of either kind."""

    def apply(t):
        is_float = t.dtype == np.float64
        return np.vectorize(of_float if is_float else of_digits, otypes=[np.float64 if is_float else object])(t)

    return apply


exp, tanh = each(math.exp, mpmath.exp), each(math.tanh, mpmath.tanh)
erfc = each(math.erfc, mpmath.erfc)
rsqrt = each(lambda v: 1 / math.sqrt(v), lambda v: 1 / mpmath.sqrt(v))


def constant_like(t, value):
    """pi and its kin, in the digits of t."""
    return float(value) if t.dtype == np.float64 else +value


def activation(name, pre):
    """act(pre) and act'(pre)."""
    one = pre * 0 + 1
    if name == "identity":
        return pre, one
    if name == "relu":
        return np.where(pre <= 0, pre * 0, pre), np.where(pre <= 0, pre * 0, one)
    if name == "gelu_erf":
        half = erfc(-pre / constant_like(pre, mpmath.sqrt(2))) / 2
        return pre * half, half + pre * exp(-pre * pre / 2) / constant_like(pre, mpmath.sqrt(2 * mpmath.pi))
    if name == "gelu_tanh":
        scale, cubic = constant_like(pre, mpmath.sqrt(2 / mpmath.pi)), constant_like(pre, mpmath.mpf(0.044715))
        t = tanh(scale * (pre + cubic * pre**3))
        return pre * (1 + t) / 2, (1 + t) / 2 + pre * (1 - t * t) * scale * (1 + 3 * cubic * pre * pre) / 2
    if name == "tanh":
        t = tanh(pre)
        return t, 1 - t * t
    s = 1 / (1 + exp(-pre))
    return (pre * s, s * (1 + pre * (1 - s))) if name == "silu" else (s, s * (1 - s))


def many_digits(t):
    return None if t is None else np.vectorize(mpmath.mpf, otypes=[object])(t)


class Shape:
    """What shares statistics. Rows are groups; `groups` None is one channel of all samples."""

    def __init__(self, dims, groups):
        self.dims, self.groups = dims, groups
        self.batch, self.channels = dims[:2]

    def rows(self, t):
        t = t.reshape(self.batch, self.channels, -1)
        if self.groups is None:
            return t.swapaxes(0, 1).reshape(self.channels, -1)
        return t.reshape(self.batch * self.groups, -1)

    def tensor(self, rows):
        if self.groups is None:
            return rows.reshape(self.channels, self.batch, -1).swapaxes(0, 1).reshape(self.dims)
        return rows.reshape(self.dims)

    def of_groups(self, statistics):
        """One number a group, for each element."""
        return self.tensor(np.repeat(statistics.reshape(-1, 1), self.rows(np.zeros(self.dims)).shape[1], axis=1))

    def of_channels(self, parameter):
        return parameter.reshape((1, -1) + (1,) * (len(self.dims) - 2))

    def sum_channels(self, t):
        return t.sum(axis=(0,) + tuple(range(2, len(self.dims))))


def statistics(shape, x, eps):
    rows = shape.rows(x)
    if x.dtype == np.float64:
        var, mean = (t.numpy() for t in torch.var_mean(torch.from_numpy(rows), dim=1, correction=0))
        return mean, var, rsqrt(var + eps)
    mean = rows.mean(axis=1)
    var = ((rows - mean.reshape(-1, 1)) ** 2).mean(axis=1)
    return mean, var, rsqrt(var + eps)


def forward(shape, x, mean, rstd, weight, bias, residual, act):
    xhat = (x - shape.of_groups(mean)) * shape.of_groups(rstd)
    pre = xhat
    pre = pre if weight is None else pre * shape.of_channels(weight)
    pre = pre if bias is None else pre + shape.of_channels(bias)
    pre = pre if residual is None else pre + residual
    return xhat, pre, *activation(act, pre)


def backward(shape, dy, x, mean, rstd, weight, bias, residual, act, y=None, inference=False):
    xhat, pre, _, slope = forward(shape, x, mean, rstd, weight, bias, residual, act)
    dpre = dy * (slope if y is None else np.where(y <= 0, dy * 0, dy * 0 + 1))
    g = dpre if weight is None else dpre * shape.of_channels(weight)
    dx = g
    if not inference:
        of = lambda t: shape.of_groups(shape.rows(t).mean(axis=1))
        dx = g - of(g) - xhat * of(g * xhat)
    return {
        "dx": dx * shape.of_groups(rstd),
        "dresidual": dpre,
        "dweight": shape.sum_channels(dpre * xhat),
        "dbias": shape.sum_channels(dpre),
    }


def in_torch(op, x, groups, weight, bias, residual, act, eps, running, momentum, inference):
    """y by PyTorch; `running` is updated."""
    mean, var = running if running else (None, None)
    if op == "batch_norm":
        t = F.batch_norm(x, mean, var, weight, bias, not inference, momentum, eps)
    elif op == "group_norm":
        # PyTorch 2.11 has no gradient for a bias without a weight.
        weight = torch.ones_like(bias).detach() if weight is None and bias is not None else weight
        t = F.group_norm(x, groups, weight, bias, eps)
    else:
        t = F.instance_norm(x, mean, var, weight, bias, not inference, momentum, eps)
    return TORCH_ACTIVATION[act](t if residual is None else t + residual)


def tensors(*arrays):
    return [None if t is None else torch.from_numpy(np.array(t)) for t in arrays]


# ---- data ----


def data(name, rng, dims):
    if name == "constant":
        return np.full(dims, 1000.1)
    x = rng.standard_normal(dims)
    return 1000 + 0.1 * x if name == "large_mean" else x


# ---- cases ----


def case(write, op, name, dims, dtype, *, pass_, groups=None, weight=None, bias=None, eps=1e-5, act="identity", residual=False,
         momentum=None, batches=None, inference=False, stats=False, nhwc=False, from_y=False, wanted=None):
    """weight and bias are dtypes or None; batches is the count of the cumulative mode; wanted are the gradients, all by default."""
    options = [f"groups{groups}" if groups else "", "nhwc" if nhwc else "", f"weight_{weight}" if weight else "",
               f"bias_{bias}" if bias else "", "" if eps == 1e-5 else f"eps{eps:g}", "" if act == "identity" else act,
               "residual" if residual else "", "" if momentum is None else f"momentum{momentum:g}",
               "" if batches is None else f"batches{batches}", "inference" if inference else "", "stats" if stats else "",
               "from_y" if from_y else "", "" if wanted is None else "_".join(wanted)]
    slot_op = op if pass_ == "forward" else f"{op}_backward"
    file = "-".join([slot_op, name + "x".join(map(str, dims)), dtype] + [o for o in options if o]) + ".safetensors"
    rng = np.random.default_rng(zlib.crc32(file.encode()))
    stat_dtype = "f64" if dtype == "f64" else "f32"

    # Everything is drawn whether used or not, so that an option does not change the rest.
    x = case_file.rounded(data(name, rng, dims), dtype)
    dy = case_file.rounded(rng.standard_normal(dims), dtype)
    extra = case_file.rounded(rng.standard_normal(dims), dtype)
    gamma = case_file.rounded(1 + 0.3 * rng.standard_normal(dims[1]), weight or dtype)
    beta = case_file.rounded(0.5 * rng.standard_normal(dims[1]), bias or dtype)
    running = [case_file.rounded(t, stat_dtype) for t in (0.3 * rng.standard_normal(dims[1]), 0.5 + rng.random(dims[1]))]
    gamma, beta, extra = gamma if weight else None, beta if bias else None, extra if residual else None

    shape = Shape(dims, {"batch_norm": None, "group_norm": groups, "instance_norm": None if inference else dims[1]}[op])
    weigh = momentum if batches is None else 1 / (batches + 1)
    has_running = weigh is not None or inference
    is_exact = dtype == "f64"
    work = many_digits if is_exact else lambda t: t
    wx, wdy, wgamma, wbeta, wextra, wmean, wvar = map(work, (x, dy, gamma, beta, extra, *running))
    if inference:
        mean, rstd = wmean, rsqrt(wvar + eps)
    else:
        mean, var, rstd = statistics(shape, wx, eps)

    # PyTorch, with gradients.
    tx, tgamma, tbeta, textra, tmean, tvar = tensors(x, gamma, beta, extra, *running)
    leaves = {"dx": tx, "dresidual": textra, "dweight": tgamma, "dbias": tbeta}
    leaves = {n: t.requires_grad_() for n, t in leaves.items() if t is not None}
    ty = in_torch(op, tx, groups, tgamma, tbeta, textra, act, eps, (tmean, tvar) if has_running else None, weigh or 0.0, inference)
    torch_y = ty.detach().numpy()
    torch_gradients = {n: g.numpy() for n, g in zip(leaves, torch.autograd.grad((ty * torch.from_numpy(dy)).sum(), list(leaves.values())))}

    xhat, pre, y, _ = forward(shape, wx, mean, rstd, wgamma, wbeta, wextra, act)
    floats = lambda t: np.asarray(t, np.float64)
    scale = 1 + np.abs(floats(pre)).max() + np.abs(x).max() * floats(rstd).max()
    assert np.abs(floats(y) - torch_y).max() <= 1e-12 * scale, f"{file}: y differs from PyTorch's"

    dims_of_statistics = {"batch_norm": [dims[1]], "group_norm": [dims[0], groups or 0], "instance_norm": [dims[0], dims[1]]}[op]
    strides = None
    if nhwc:
        spatial = int(np.prod(dims[2:]))
        inner = [int(np.prod(dims[i + 1 :])) * dims[1] for i in range(2, len(dims))]
        strides = [dims[1] * spatial, 1, *inner]
    descriptor = {"x": {"dtype": dtype, "dims": list(dims)} | ({"strides": strides} if strides else {})}
    descriptor |= {n: v for n, v in (("groups", groups), ("weight", weight), ("bias", bias)) if v}
    if pass_ == "forward" or inference:
        descriptor["eps"] = eps
    if act != "identity":
        descriptor["activation"] = act
    if residual:
        descriptor["residual"] = True
    if inference:
        descriptor["inference"] = True

    inputs = {"x": (dtype, x)}
    outputs = {}
    parameters = {"weight": (weight, gamma), "bias": (bias, beta)}
    if pass_ == "forward":
        inputs |= {n: p for n, p in parameters.items() if p[0]}
        if residual:
            inputs["residual"] = (dtype, extra)
        outputs["y"] = floats(y) if is_exact else torch_y
        if momentum is not None:
            descriptor["momentum"] = momentum
        if batches is not None:
            descriptor["cumulative"] = True
            inputs["num_batches"] = ("i64", np.array([batches]))
            outputs["num_batches"] = np.array([batches + 1.0])
        if has_running:
            inputs |= {"running_mean": (stat_dtype, running[0]), "running_var": (stat_dtype, running[1])}
        if weigh is not None:
            n = shape.rows(x).shape[1]
            m = mpmath.mpf(1) / (batches + 1) if is_exact and batches is not None else weigh
            of_batch = [t.reshape(-1, dims[1]).mean(axis=0) for t in (mean, var * n / (n - 1))]
            updated = [(1 - m) * before + m * now for before, now in zip((wmean, wvar), of_batch)]
            for slot, ours, theirs in zip(("running_mean", "running_var"), updated, (tmean, tvar)):
                assert np.abs(floats(ours) - theirs.numpy()).max() <= 1e-12 * (1 + np.abs(x).max()), f"{file}: {slot}"
                outputs[slot] = floats(ours) if is_exact else theirs.numpy()
        if stats:
            descriptor["stats"] = True
            outputs |= {"mean": floats(mean).reshape(dims_of_statistics), "rstd": floats(rstd).reshape(dims_of_statistics)}
    else:
        inputs["dy"] = (dtype, dy)
        recomputes = act != "identity" and not from_y
        y_given = None
        if from_y:
            descriptor["from_y"] = True
            y_given = case_file.rounded(torch_y, dtype)
            inputs["y"] = (dtype, y_given)
        if weight:
            inputs["weight"] = parameters["weight"]
        if bias and recomputes:
            inputs["bias"] = parameters["bias"]
        if residual and recomputes:
            inputs["residual"] = (dtype, extra)
        if inference:
            inputs |= {"running_mean": (stat_dtype, running[0]), "running_var": (stat_dtype, running[1])}
            saved = (mean, rstd)
        else:
            rounded = [case_file.rounded(floats(t), stat_dtype) for t in (mean, rstd)]
            inputs |= {n: (stat_dtype, t.reshape(dims_of_statistics)) for n, t in zip(("mean", "rstd"), rounded)}
            saved = [work(t) for t in rounded]
        arguments = (wgamma, wbeta, wextra, act)
        exact = backward(shape, wdy, wx, mean, rstd, *arguments, inference=inference)
        for n, theirs in torch_gradients.items():
            g = np.abs(dy).max() * (1 if gamma is None else np.abs(gamma).max())
            size = g * (1 + np.abs(floats(xhat)).max()) ** 2 * max(1, floats(rstd).max()) * max(1, x.size // dims[1])
            error = np.abs(floats(exact[n]) - theirs).max() / size
            assert error <= 1e-9, f"{file}: {n} differs from autograd by {error:.2e} of its scale"
        values = backward(shape, wdy, wx, *saved, *arguments, y=y_given, inference=inference)
        for n in wanted or torch_gradients:
            descriptor[n] = True
            outputs[n] = floats(values[n])
    torch_version = f"PyTorch {torch.__version__.split('+')[0]} in float64 on the CPU"
    source = f"mpmath {mpmath.__version__} with 50 digits, compared with {torch_version}" if is_exact else torch_version
    write(file, slot_op, descriptor, source, inputs, outputs)


ACTIVATIONS = ["relu", "gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh"]


def passes(write, op):
    def forward_case(name, dims, dtype, **options):
        case(write, op, name, dims, dtype, pass_="forward", **options)

    def backward_case(name, dims, dtype, **options):
        case(write, op, name, dims, dtype, pass_="backward", **options)

    return forward_case, backward_case


def batch_norm_cases(write):
    fw, bw = passes(write, "batch_norm")
    dims, both = (3, 4, 3, 5), dict(weight="f32", bias="f32")
    fw("normal", dims, "f32")
    for t in ("f32", "f16", "bf16", "f64"):
        fw("normal", dims, t, weight=t, bias=t, momentum=0.3, stats=True)
        bw("normal", dims, t, weight=t, bias=t)
    for act in ACTIVATIONS:
        fw("normal", dims, "f32", act=act, **both)
        bw("normal", dims, "f32", act=act, **both)
    for t in ("bf16", "f64"):
        fw("normal", dims, t, act="silu", nhwc=True, **both)
        bw("normal", dims, t, act="silu", nhwc=True, **both)
        bw("normal", dims, t, act="gelu_erf", **both)
    for t, nhwc in (("f32", False), ("bf16", True), ("f64", False)):
        fw("normal", dims, t, act="relu", residual=True, momentum=0.1, stats=True, nhwc=nhwc, **both)
        bw("normal", dims, t, act="relu", residual=True, nhwc=nhwc, **both)
        bw("normal", dims, t, act="relu", residual=True, nhwc=nhwc, from_y=True, **both)
        fw("normal", dims, t, momentum=None, batches=3, stats=True, nhwc=nhwc, **both)
        fw("normal", dims, t, inference=True, eps=1e-3, nhwc=nhwc, **both)
        bw("normal", dims, t, inference=True, eps=1e-3, nhwc=nhwc, **both)
    fw("normal", dims, "f32", residual=True)
    bw("normal", dims, "f32", residual=True, bias="f32")
    fw("normal", dims, "f32", batches=0, weight="f32")
    for momentum in (0, 1):
        fw("normal", dims, "f32", momentum=momentum)
    fw("normal", dims, "f32", inference=True, act="relu", residual=True, **both)
    bw("normal", dims, "f32", inference=True, act="relu", residual=True, **both)
    bw("normal", dims, "f32", inference=True, act="silu", **both)
    bw("normal", dims, "f32", act="gelu_tanh", wanted=("dweight", "dbias"), **both)
    bw("normal", dims, "f32", act="tanh", wanted=("dx",), **both)
    sizes = [(1, 3, 9, 11), (17, 5), (4, 3, 31), (2, 3, 3, 4, 5), (2, 3)]
    for t, size in zip(("f32", "bf16", "f32", "f16", "f32"), sizes):
        fw("normal", size, t, momentum=0.1, stats=True, **both)
        bw("normal", size, t, **both)
    for name in ("large_mean", "constant"):
        for t in ("f32", "bf16", "f64"):
            fw(name, (3, 3, 5, 7), t, momentum=0.1, stats=True, **both)
            bw(name, (3, 3, 5, 7), t, nhwc=True, **both)


def group_norm_cases(write):
    fw, bw = passes(write, "group_norm")
    dims, both = (2, 6, 3, 5), dict(weight="f32", bias="f32")
    fw("normal", dims, "f32", groups=3)
    for groups in (1, 2, 6):
        for nhwc in (False, True):
            fw("normal", dims, "f32", groups=groups, stats=True, nhwc=nhwc, **both)
            bw("normal", dims, "f32", groups=groups, nhwc=nhwc, **both)
    for t in ("f32", "f16", "bf16", "f64"):
        fw("normal", dims, t, groups=3, act="silu", weight=t, bias=t, eps=1e-6, stats=True)
        bw("normal", dims, t, groups=3, act="silu", weight=t, bias=t)
        fw("normal", dims, t, groups=2, weight=t, nhwc=True)
        bw("normal", dims, t, groups=2, weight=t, nhwc=True)
    for act in ACTIVATIONS:
        fw("normal", dims, "f32", groups=2, act=act, **both)
        bw("normal", dims, "f32", groups=2, act=act, **both)
    bw("normal", dims, "f32", groups=2, act="silu", wanted=("dweight", "dbias"), **both)
    bw("normal", dims, "f32", groups=2, bias="f32", wanted=("dx",), act="gelu_erf")
    sizes = [((1, 4, 9, 11), 2), ((3, 12), 4), ((2, 3, 31), 1), ((2, 4, 3, 4, 5), 2), ((1, 6, 1, 1), 2)]
    for t, (size, groups) in zip(("f32", "bf16", "f32", "f16", "f32"), sizes):
        fw("normal", size, t, groups=groups, stats=True, **both)
        bw("normal", size, t, groups=groups, **both)
    for name in ("large_mean", "constant"):
        for t in ("f32", "bf16", "f64"):
            fw(name, (2, 4, 5, 7), t, groups=2, stats=True, **both)
            bw(name, (2, 4, 5, 7), t, groups=2, nhwc=True, **both)


def instance_norm_cases(write):
    fw, bw = passes(write, "instance_norm")
    dims, both = (3, 4, 3, 5), dict(weight="f32", bias="f32")
    fw("normal", dims, "f32")
    for t in ("f32", "f16", "bf16", "f64"):
        fw("normal", dims, t, weight=t, bias=t, momentum=0.3, stats=True)
        bw("normal", dims, t, weight=t, bias=t, nhwc=True)
        fw("normal", dims, t, inference=True, eps=1e-3, nhwc=True, **both)
        bw("normal", dims, t, inference=True, eps=1e-3, act="silu", **both)
    for act in ("relu", "gelu_tanh", "silu"):
        fw("normal", dims, "f32", act=act, momentum=0.1, **both)
        bw("normal", dims, "f32", act=act, **both)
    for t, size in zip(("f32", "bf16", "f32"), [(1, 3, 9, 11), (2, 3, 31), (2, 3, 3, 4, 5)]):
        fw("normal", size, t, stats=True, **both)
        bw("normal", size, t, **both)
    for name in ("large_mean", "constant"):
        for t in ("f32", "bf16", "f64"):
            fw(name, (2, 3, 5, 7), t, momentum=0.1, stats=True, **both)
            bw(name, (2, 3, 5, 7), t, **both)


def cases(write):
    """All of them; `write` takes a file's name, op, descriptor, source, inputs and outputs."""
    batch_norm_cases(write)
    group_norm_cases(write)
    instance_norm_cases(write)
