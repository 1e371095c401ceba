"""Golden cases of ops whose results are positions, search_sorted and nonzero, for make_golden.py."""
import zlib

import numpy as np
import torch

import case_file

PYTORCH = f"PyTorch {torch.__version__.split('+')[0]} on the CPU"
NUMPY = f"NumPy {np.__version__}"
TORCH_DTYPE = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "i8": torch.int8, "bool": torch.bool}


def tensor(values, dtype):
    return torch.from_numpy(np.ascontiguousarray(values)).to(TORCH_DTYPE[dtype])


def draw(rng, dims, dtype):
    """Numbers many of which are equal, zeros of both signs and infinities among them where the type has these."""
    if dtype in ("f64", "f32", "f16", "bf16"):
        values = np.round(rng.standard_normal(dims) * 8) / 4
        values = np.where(rng.random(dims) < 0.1, -0.0, values)
        values = np.where(rng.random(dims) < 0.03, np.inf, values)
        return case_file.rounded(np.where(rng.random(dims) < 0.03, -np.inf, values), dtype)
    low, high = {"u8": (0, 256), "bool": (0, 2), "i8": (-128, 128)}.get(dtype, (-1000, 1000))
    values = rng.integers(low, high, dims)
    # Numbers of 64 bits that no float64 tells apart.
    return np.where(rng.random(dims) < 0.2, 2**60 + values, values) if dtype == "i64" else values


def search(write, dtype, sorted_dims, values_dims, right, indices, has_nan=False):
    name = "-".join(["search_sorted", "x".join(map(str, sorted_dims)), "x".join(map(str, values_dims)) or "scalar", dtype] + ["right"] * right + ["i32"] * (indices == "i32") + ["nan"] * has_nan)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    lines, values = np.sort(draw(rng, sorted_dims, dtype), axis=-1), draw(rng, values_dims, dtype)
    if has_nan:
        lines[..., -3:] = np.nan
        values = np.where(rng.random(values_dims) < 0.2, np.nan, values)
    descriptor = {"sorted": {"dtype": dtype, "dims": list(sorted_dims)}, "values": {"dtype": dtype, "dims": list(values_dims)}}
    descriptor |= ({"right": True} if right else {}) | ({} if indices == "i64" else {"indices": indices})
    side = "right" if right else "left"
    # PyTorch leaves NaN open; NumPy has it above every number.
    of_line = lambda line, own: np.searchsorted(line, own, side=side)
    if lines.ndim == 1:
        found = np.asarray(of_line(lines, values))
    else:
        shared = np.broadcast_to(lines, values.shape[:-1] + lines.shape[-1:])
        found = np.stack([of_line(line, own) for line, own in zip(shared.reshape(-1, lines.shape[-1]), values.reshape(-1, values.shape[-1]))]).reshape(values.shape)
    if not has_nan:
        shared = lines if lines.ndim == 1 else np.broadcast_to(lines, values.shape[:-1] + lines.shape[-1:])
        own = torch.searchsorted(tensor(shared, dtype), tensor(values, dtype), right=right).numpy()
        assert (own == found).all(), f"{name}: PyTorch and NumPy differ"
    inputs = {"sorted": (dtype, lines), "values": (dtype, values)}
    write(f"{name}.safetensors", "search_sorted", descriptor, NUMPY if has_nan else f"{PYTORCH}, compared with {NUMPY}", inputs, {"indices": (indices, found)})


def nonzero(write, dtype, dims, per_axis, size=None, fill=None, indices="i64"):
    name = "-".join(["nonzero", "x".join(map(str, dims)) or "scalar", dtype] + ["per_axis"] * per_axis + [f"size{size}"] * (size is not None) + [f"fill{fill}"] * (fill is not None) + ["i32"] * (indices == "i32"))
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    x = np.where(rng.random(dims) < 0.6, 0, draw(rng, dims, dtype))
    if dtype in ("f64", "f32", "f16", "bf16"):
        x = np.where(rng.random(dims) < 0.1, np.nan, np.where(rng.random(dims) < 0.2, -0.0, x))
    t = tensor(x, dtype)
    rows = x.size if size is None else size
    t = t if per_axis else t.reshape(-1)
    found = torch.nonzero_static(t, size=rows, fill_value=-1 if fill is None else fill).numpy()
    count = torch.count_nonzero(t).item()
    own = torch.nonzero(t).numpy()[:rows]
    assert (found[: len(own)] == own).all() and count == torch.nonzero(t).shape[0], name
    descriptor = {"x": {"dtype": dtype, "dims": list(dims)}} | ({"per_axis": True} if per_axis else {})
    descriptor |= ({} if indices == "i64" else {"indices": indices}) | ({} if size is None else {"size": size}) | ({} if fill is None else {"fill": fill})
    descriptor["count"] = "i64"
    outputs = {"indices": (indices, found if per_axis else found.reshape(-1)), "count": ("i64", np.asarray(count))}
    write(f"{name}.safetensors", "nonzero", descriptor, PYTORCH, {"x": (dtype, x)}, outputs)


def cases(write):
    for dtype in ("f64", "f32", "f16", "bf16", "i64", "i32", "u8", "i8"):
        for right in (False, True):
            search(write, dtype, (37,), (5, 9), right, "i64")
            search(write, dtype, (2, 1, 50), (2, 3, 11), right, "i32")
        search(write, dtype, (64,), (), False, "i64")
        search(write, dtype, (0,), (7,), True, "i64")
        if dtype.startswith(("f", "bf")):
            for right in (False, True):
                search(write, dtype, (40,), (60,), right, "i64", has_nan=True)
    for dtype in ("f64", "f32", "f16", "bf16", "i64", "i32", "u8", "i8", "bool"):
        nonzero(write, dtype, (9, 23), False)
        nonzero(write, dtype, (3, 5, 7), True, size=30, fill=-5, indices="i32")
        nonzero(write, dtype, (4, 9), True, size=60)
        nonzero(write, dtype, (300,), False, size=50)
