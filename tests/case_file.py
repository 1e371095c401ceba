"""Writes case files (docs/case-files.md): safetensors files whose headers name ops, their descriptors and the source of the expected values.

Tensors are `in.<slot>` in the dtype of the case and `out.<slot>`, the expected values, in float64. numpy has no bfloat16, so a tensor
here is a pair (dtype name, array): the array holds the values in float64 and is encoded when written.
"""
import json
import struct

import numpy as np

SAFETENSORS_DTYPE = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "u32": "U32", "bool": "BOOL", "u8": "U8", "i8": "I8"}
NUMPY_DTYPE = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "u32": "<u4", "bool": "?", "u8": "u1", "i8": "i1"}
SIZE = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2, "bool": 1, "u8": 1, "i8": 1}


def rounded(values, dtype):
    """The values after rounding to dtype (nearest even), in float64."""
    return decode(encode(values, dtype), dtype, np.shape(values))


def encode(values, dtype):
    if dtype not in ("f64", "f32", "f16", "bf16"):
        # Integers keep all their bits.
        return np.asarray(values).astype(NUMPY_DTYPE[dtype]).tobytes()
    values = np.asarray(values, np.float64)
    if dtype == "bf16":
        # Rounding float64 to float32 to odd first makes the second rounding the only one that counts.
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        exact = single.astype(np.float64) == values
        bits = single.view(np.uint32)
        toward_zero = np.where(np.abs(single.astype(np.float64)) > np.abs(values), bits - 1, bits).astype(np.uint32)
        bits = np.where(exact, bits, toward_zero | 1).astype(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return values.astype(NUMPY_DTYPE[dtype]).tobytes()


def decode(data, dtype, dims):
    if dtype == "bf16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64).reshape(dims)
    return np.frombuffer(data, NUMPY_DTYPE[dtype]).astype(np.float64).reshape(dims)


def write(path, op, descriptor, source, inputs, outputs, refused=(), options=None):
    """Writes a file of one case and returns its size.

    inputs: slot -> (dtype, values); outputs: slot -> values, which are written in float64, or (dtype, values); refused: devices that must refuse the case; options: what is asked of the plan.
    """
    metadata = {"op": op, "descriptor": compact(descriptor), "source": source}
    if refused:
        metadata["refused"] = ",".join(refused)
    if options:
        metadata["options"] = compact(options)
    return write_tensors(path, metadata, operands(inputs, outputs))


def write_pack(path, cases):
    """Writes a file of many cases and returns its size. A case is a tuple of its name, op, descriptor, source, inputs and outputs, as `write` takes them."""
    listed, tensors = [], {}
    for number, (name, op, descriptor, source, inputs, outputs) in enumerate(cases):
        listed.append({"name": name, "op": op, "descriptor": descriptor, "source": source})
        tensors |= {f"{number}.{tensor}": held for tensor, held in operands(inputs, outputs).items()}
    return write_tensors(path, {"cases": compact(listed)}, tensors)


def operands(inputs, outputs):
    """The tensors of a case: name -> (dtype, values)."""
    tensors = {f"in.{slot}": (dtype, values) for slot, (dtype, values) in inputs.items()}
    of_output = lambda values: values if isinstance(values, tuple) else ("f64", values)
    return tensors | {f"out.{slot}": of_output(values) for slot, values in outputs.items()}


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def write_tensors(path, metadata, tensors):
    header = {"__metadata__": metadata}
    body = []
    size = 0
    # Widest elements first keep every tensor aligned to its element.
    for name, (dtype, values) in sorted(tensors.items(), key=lambda t: (-SIZE[t[1][0]], t[0])):
        data = encode(values, dtype)
        header[name] = {"dtype": SAFETENSORS_DTYPE[dtype], "shape": list(np.shape(values)), "data_offsets": [size, size + len(data)]}
        body.append(data)
        size += len(data)
    text = compact(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(body))
    return 8 + len(text) + size
