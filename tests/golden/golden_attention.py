"""Golden cases of attention, forward and backward, for make_golden.py."""
import zlib

import numpy as np
import torch
import torch.nn.functional as F

import case_file

PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} in float64 on the CPU"


def seen_keys(queries, lengths, keys, causal, left, right):
    """[B, 1, Sq, Sk]: whether a query sees a key."""
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    masks = []
    for length in lengths:
        own = i if causal == "top_left" else i + length - queries
        seen = j < length
        if causal:
            seen = seen & (j <= own)
        if left is not None:
            seen = seen & (j >= own - left)
        if right is not None:
            seen = seen & (j <= own + right)
        masks.append(np.broadcast_to(seen, (queries, keys)))
    return torch.from_numpy(np.stack(masks)[:, None])


def case(write, dtype, extents, causal=None, left=None, right=None, lengths=None, bias_dims=None, soft_cap=None, scale=None):
    b, hq, hk, sq, sk, d, dv = extents
    options = ["x".join(map(str, extents)), dtype] + [causal] * bool(causal)
    options += [f"{name}{value:g}" for name, value in (("left", left), ("right", right), ("cap", soft_cap), ("scale", scale)) if value is not None]
    options += ["lengths"] * (lengths is not None) + (["bias" + "x".join(map(str, bias_dims))] if bias_dims else [])
    files = ["-".join([name] + options) + ".safetensors" for name in ("attention", "attention_backward")]
    rng = np.random.default_rng(zlib.crc32(files[0].encode()))
    draw = lambda *dims: case_file.rounded(rng.standard_normal(dims), dtype)
    q, k, v, dy = draw(b, hq, sq, d), draw(b, hk, sk, d), draw(b, hk, sk, dv), draw(b, hq, sq, dv)
    tensors = {"q": q, "k": k, "v": v} | ({"bias": draw(*bias_dims)} if bias_dims else {})
    t = {name: torch.from_numpy(value).requires_grad_() for name, value in tensors.items()}
    seen = seen_keys(sq, lengths if lengths is not None else [sk] * b, sk, causal, left, right)
    factor = 1 / np.sqrt(d) if scale is None else scale
    mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    mask = mask + t["bias"] if bias_dims else mask
    group = hq // hk
    keys, values = (t[name].repeat_interleave(group, 1) for name in ("k", "v"))
    product = factor * t["q"] @ keys.transpose(2, 3)
    score = (soft_cap * torch.tanh(product / soft_cap) if soft_cap else product) + mask
    lse = torch.logsumexp(score, 3)
    # Of PyTorch's own op; a soft cap it has not.
    own = F.scaled_dot_product_attention(t["q"], t["k"], t["v"], attn_mask=mask, scale=factor, enable_gqa=True)
    y = torch.exp(score - lse[..., None]) @ values if soft_cap else own
    grads = torch.autograd.grad((y * torch.from_numpy(dy)).sum(), list(t.values()))
    torch_grads = {f"d{name}": grad.numpy() for name, grad in zip(t, grads)}

    # From y and lse as they were rounded.
    accumulator = "f64" if dtype == "f64" else "f32"
    y, lse = y.detach().numpy(), lse.detach().numpy()
    saved_y, saved_lse = case_file.rounded(y, dtype), case_file.rounded(lse, accumulator)

    def gradients(y, lse):
        p = np.exp(score.detach().numpy() - lse[..., None])
        rk, rv = (tensors[name].repeat(group, 1) for name in ("k", "v"))
        ds = p * (dy @ rv.transpose(0, 1, 3, 2) - (dy * y).sum(axis=3, keepdims=True))
        grads = {}
        if bias_dims:
            own = (1,) * (4 - len(bias_dims)) + tuple(bias_dims)
            axes = tuple(axis for axis in range(4) if own[axis] == 1)
            grads["dbias"] = ds.sum(axis=axes, keepdims=True).reshape(bias_dims)
        if soft_cap:
            ds = ds * (1 - np.tanh(product.detach().numpy() / soft_cap) ** 2)
        shared = lambda grad: grad.reshape(b, hk, group, *grad.shape[2:]).sum(axis=2)
        grads["dq"] = factor * ds @ rk
        grads["dk"] = shared(factor * ds.transpose(0, 1, 3, 2) @ q)
        grads["dv"] = shared(p.transpose(0, 1, 3, 2) @ dy)
        return {name: grads[name] for name in ("dq", "dk", "dv", "dbias") if name in grads}

    for name, grad in gradients(y, lse).items():
        assert np.allclose(grad, torch_grads[name], rtol=1e-9, atol=1e-9), f"{files[1]}: {name} differs from autograd"

    tensor = lambda dims, of=dtype: {"dtype": of, "dims": list(dims)}
    descriptor = {"q": tensor(q.shape), "k": tensor(k.shape), "v": tensor(v.shape)}
    descriptor |= {"scale": scale} if scale is not None else {}
    descriptor |= {"causal": causal} if causal else {}
    descriptor |= {"window_left": left} if left is not None else {}
    descriptor |= {"window_right": right} if right is not None else {}
    descriptor |= {"soft_cap": soft_cap} if soft_cap else {}
    descriptor |= {"bias": tensor(bias_dims)} if bias_dims else {}
    descriptor |= {"lengths": "i32"} if lengths is not None else {}
    inputs = {name: (dtype, value) for name, value in tensors.items()}
    if lengths is not None:
        inputs["lengths"] = ("i32", np.array(lengths, dtype=np.float64))
    write(files[0], "attention", descriptor | {"stats": True}, PYTORCH, inputs, {"y": y, "lse": lse})
    outputs = gradients(saved_y, saved_lse)
    inputs = inputs | {"y": (dtype, saved_y), "lse": (accumulator, saved_lse), "dy": (dtype, dy)}
    write(files[1], "attention_backward", descriptor | {name: {} for name in outputs}, PYTORCH, inputs, outputs)


def cases(write):
    for t in ("f32", "f16", "bf16"):
        make = lambda *args, **options: case(write, t, *args, **options)
        make((2, 4, 2, 9, 9, 16, 16), causal="top_left")
        make((3, 2, 2, 5, 12, 8, 8), causal="bottom_right", lengths=[12, 7, 5])
        make((2, 2, 1, 6, 10, 8, 8), bias_dims=(2, 1, 10), soft_cap=3.0)
    make = lambda *args, **options: case(write, "f32", *args, **options)
    make((2, 2, 2, 9, 9, 16, 16))
    make((1, 4, 1, 7, 19, 8, 24), causal="bottom_right")
    make((1, 2, 2, 17, 17, 8, 8), left=3, right=2)
    make((1, 2, 1, 12, 33, 33, 5), soft_cap=1.5, scale=0.4)
    make((2, 2, 2, 6, 10, 8, 8), bias_dims=(2, 2, 6, 10), causal="bottom_right")
