"""Golden cases of matrix products, forward and backward, for make_golden.py."""
import zlib

import mpmath
import numpy as np
import torch

import case_file
from golden_activation import DIGITS, EXACT, PYTORCH, TORCH, exact_slope, from_output


def swapped(t, is_transposed):
    return t.swapaxes(-1, -2) if is_transposed else t


def many_digits(t):
    return np.vectorize(mpmath.mpf, otypes=[object])(t) if t.size else t.astype(object)


def matmul(a, b):
    """Of many digits, also over nothing."""
    if a.shape[-1] == 0:
        return np.full(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), mpmath.mpf(0))
    return np.matmul(a, b)


def summed_to(gradient, shape):
    """Summed over the extents that the factor shares."""
    new = gradient.ndim - len(shape)
    gradient = gradient.sum(axis=tuple(range(new))) if new else gradient
    shared = tuple(i for i, dim in enumerate(shape) if dim == 1 and gradient.shape[i] != 1)
    return gradient.sum(axis=shared, keepdims=True) if shared else gradient


# What is computed: the dims of a and b as stored, strides of what is not dense, and options. Types are T (that of the factors) or W (f32,
# of f64 f64). `special` is a number in one row of a and its negative in one column of b.
FORMS = {
    "nn7x5x9": dict(a=(7, 9), b=(9, 5), bias="T"),
    "tn5x7x6": dict(a=(6, 5), b=(6, 7), ta=True, alpha=-0.25, bias="W", activation="relu", pre="T", da=("T", 0), db=("W", 0.5), dbias=("W", 1)),
    "nt6x5x11": dict(a=(6, 11), b=(5, 11), tb=True, alpha=0.5, activation="gelu_erf", out="W", saved="recompute", da=("W", -1), db=("T", 0)),
    "tt4x9x7": dict(a=(7, 4), b=(9, 7), ta=True, tb=True, alpha=0.5, bias="T", activation="gelu_tanh", pre="W", out="W", dbias=("T", 0)),
    "batch2x3x4x5x6": dict(a=(2, 3, 4, 6), b=(2, 3, 6, 5), alpha=0.5, bias="T", activation="silu", pre="T", da=("T", 0), db=("T", 1), dbias=("T", 0)),
    "heads2x3x4x5x6": dict(a=(2, 3, 4, 6), a_strides=(72, 6, 18, 1), b=(2, 3, 5, 6), b_strides=(90, 6, 18, 1), tb=True, alpha=0.408, da=("W", 0), db=("W", 0)),
    "shared2x3x4x5x6": dict(a=(2, 3, 6, 4), ta=True, b=(6, 5), bias="W", activation="sigmoid", saved="out", da=("T", 0), db=("W", 0), dbias=("W", 0)),
    "ones2x3x4x5x6": dict(a=(2, 3, 4, 6), b=(1, 1, 6, 5), activation="tanh", alpha=0.25, saved="out", out="W", db=("T", 0.5)),
    "repeated3x4x5x6": dict(a=(3, 4, 6), b=(3, 5, 6), b_strides=(0, 6, 1), tb=True, bias="T", activation="silu", saved="recompute", da=("T", 0), db=("T", 0), dbias=("T", 0)),
    "nothing3x5x0": dict(a=(3, 0), b=(0, 5), bias="T", activation="silu", pre="T", da=("T", 0), db=("T", 0), dbias=("T", 0.5)),
    "no_rows0x5x4": dict(a=(2, 0, 4), b=(4, 5), bias="T", db=("T", 0.5), dbias=("W", 0)),
    "columns6x5x7": dict(a=(6, 7), a_strides=(1, 8), b=(7, 5), b_strides=(7, 1), activation="relu", pre="T", da=("T", 0), db=("T", 0)),
    "long3x2x301": dict(a=(3, 301), b=(301, 2), bias="T", da=("T", 0), db=("T", 0), dbias=("T", 0)),
    "nan6x5x7": dict(a=(6, 7), b=(7, 5), special=np.nan, bias="T", activation="relu", saved="out", da=("T", 0), db=("T", 0), dbias=("T", 0)),
    "inf6x5x7": dict(a=(6, 7), b=(7, 5), special=np.inf, bias="T", activation="relu", saved="out", da=("T", 0)),
}


def tensor(dtype, dims, strides=None):
    return {"dtype": dtype, "dims": list(dims)} | ({"strides": list(strides)} if strides else {})


def case(write, kind, form, dtype):
    wide = "f64" if dtype == "f64" else "f32"
    of = lambda t: {None: None, "T": dtype, "W": wide}[t]
    rng = np.random.default_rng(zlib.crc32(f"gemm-{kind}-{dtype}".encode()))
    ta, tb, alpha = form.get("ta", False), form.get("tb", False), form.get("alpha", 1.0)
    name, saved = form.get("activation", "identity"), form.get("saved", "pre")
    a, b = (case_file.rounded(rng.standard_normal(form[t]), dtype) for t in "ab")
    if "special" in form:
        a[1, 2], b[3, 4] = form["special"], -form["special"]
    if 0 in form.get("b_strides", ()):
        b[:] = b[:1]
    n = b.shape[-2] if tb else b.shape[-1]
    bias_type = of(form.get("bias"))
    bias = case_file.rounded(rng.standard_normal(n), bias_type) if bias_type else None

    # Forward by PyTorch; one b for a whole batch as PyTorch broadcasts it.
    once = b[:1] if 0 in form.get("b_strides", ()) else b
    leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in (a, once, np.zeros(n) if bias is None else bias)]
    pre = alpha * (swapped(leaves[0], ta) @ swapped(leaves[1], tb)) + leaves[2]
    values = {"out": TORCH[name](pre).detach().numpy(), "pre": pre.detach().numpy()}
    source = PYTORCH
    exact = dtype == "f64" and "special" not in form
    if exact:
        many = [many_digits(t) for t in (a, once)]
        exact_pre = mpmath.mpf(alpha) * matmul(swapped(many[0], ta), swapped(many[1], tb)) + (0 if bias is None else many_digits(bias))
        exact_out = np.vectorize(EXACT[name], otypes=[object])(exact_pre) if exact_pre.size else exact_pre
        for what, digits in (("pre", exact_pre), ("out", exact_out)):
            digits = digits.astype(np.float64)
            assert np.allclose(digits, values[what], rtol=1e-9, atol=1e-9), (kind, what)
            values[what] = digits
        source = DIGITS

    product = {"a": tensor(dtype, a.shape, form.get("a_strides")), "b": tensor(dtype, b.shape, form.get("b_strides"))}
    product |= {"transpose_a": True} if ta else {}
    product |= {"transpose_b": True} if tb else {}
    product |= {"alpha": alpha, "activation": name}
    out_type, pre_type = of(form.get("out", "T")), of(form.get("pre"))
    inputs = {"a": (dtype, a), "b": (dtype, b)} | ({} if bias is None else {"bias": (bias_type, bias)})
    outputs = {"out": values["out"]} | ({"pre": values["pre"]} if pre_type else {})
    options = {"out": out_type} | ({"pre": pre_type} if pre_type else {}) | ({"bias": bias_type} if bias_type else {})
    write(f"gemm-{kind}-{dtype}.safetensors", "gemm", product | options, source, inputs, outputs)
    wanted = {d: form[d] for d in ("da", "db", "dbias") if d in form}
    if not wanted:
        return

    # Backward: dpre from what is saved, as it is rounded, then the gradients of the product.
    dout = case_file.rounded(rng.standard_normal(pre.shape), out_type)
    given, needs = {"dout": (out_type, dout)}, name != "identity"
    if needs and saved == "out":
        out = case_file.rounded(values["out"], out_type)
        given["out"] = (out_type, out)
        slope = from_output(name, many_digits(out) if exact and name != "relu" else out)
        # A NaN stays above 0 for the ReLU, whose gradient takes a branch.
        dpre = np.where(out <= 0, 0, dout) if name == "relu" else dout * slope
    else:
        at = values["pre"]
        if needs and saved == "pre":
            saved_type = pre_type or dtype
            at = case_file.rounded(at, saved_type)
            given["pre"] = (saved_type, at)
        leaf = torch.from_numpy(at.copy()).requires_grad_()
        (dpre,) = torch.autograd.grad(TORCH[name](leaf), leaf, torch.from_numpy(dout))
        dpre = dpre.numpy()
        if exact:
            at = exact_pre if saved == "recompute" else many_digits(at)
            slope = np.vectorize(lambda x: exact_slope(name, x), otypes=[object])(at) if at.size else at
            exact_dpre = many_digits(dout) * slope
            assert np.allclose(exact_dpre.astype(np.float64), dpre, rtol=1e-9, atol=1e-9), kind
            dpre = exact_dpre
    gradients = torch.autograd.grad(pre, leaves, torch.from_numpy(dpre.astype(np.float64)))
    gradients = dict(zip(("da", "db", "dbias"), (g.numpy() for g in gradients)))
    if exact:
        left, right = (swapped(m, t) for m, t in zip(many, (ta, tb)))
        dpre = dpre if dpre.dtype == object else many_digits(dpre)
        da = swapped(mpmath.mpf(alpha) * matmul(dpre, right.swapaxes(-1, -2)), ta)
        db = swapped(mpmath.mpf(alpha) * matmul(left.swapaxes(-1, -2), dpre), tb)
        digits = {"da": da, "db": summed_to(db, once.shape), "dbias": dpre.reshape(-1, n).sum(axis=0)}
        for what, values in digits.items():
            values = np.asarray(values)
            assert np.allclose(values.astype(np.float64), gradients[what], rtol=1e-9, atol=1e-9), (kind, what)
            gradients[what] = values
    recomputes = needs and saved == "recompute"
    if recomputes or "db" in wanted:
        given["a"] = (dtype, a)
    if recomputes or "da" in wanted:
        given["b"] = (dtype, b)
    if recomputes and bias is not None:
        given["bias"] = (bias_type, bias)
    results, fields = {}, {}
    for what, (gradient_type, beta) in wanted.items():
        gradient, gradient_type = gradients[what], of(gradient_type)
        fields[what] = {"dtype": gradient_type, "beta": beta}
        if beta != 0:
            before = case_file.rounded(rng.standard_normal(gradient.shape), gradient_type)
            given[what] = (gradient_type, before)
            gradient = gradient + beta * (many_digits(before) if exact else before)
        results[what] = np.asarray(gradient).astype(np.float64)
    options = {"saved": saved, "out": out_type} | ({"pre": given["pre"][0]} if "pre" in given else {})
    options |= {"bias": bias_type} if bias_type else {}
    write(f"gemm_backward-{kind}-{dtype}.safetensors", "gemm_backward", product | options | fields, source, given, results)


def cases(write):
    for dtype in ("f32", "f16", "bf16", "f64"):
        for kind, form in FORMS.items():
            case(write, kind, form, dtype)
