#!/usr/bin/env python3
"""Converts the node cases of the normalizations, LRN, Softmax, LogSoftmax, Gemm, MatMul, Conv and ConvTranspose in the onnx wheel to case files.

usage: convert.py [OUTPUT_FOLDER] [--write-list]

OUTPUT_FOLDER is target/onnx of the repository by default. Cases outside the scope of docs/numerics.md are printed with the reason and
must be those of out_of_scope.txt beside this script, which --write-list renews. ONNX's momentum is the weight of the running
statistics, ours that of the batch; ONNX's running variance is biased, so that what the batch adds to it is scaled. Gemm's C is our bias, times
its beta. Needs onnx==1.22.0, the last release whose wheel holds
the cases as files (a later one is refused); scripts/setup puts it into .dev/onnx.
"""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(ROOT, ".dev", "onnx"))
sys.path.insert(0, os.path.join(HERE, ".."))

import numpy as np
import onnx
import onnx.numpy_helper

import case_file

LIST = os.path.join(HERE, "out_of_scope.txt")
FLOATS = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32", np.dtype(np.float16): "f16"}
# ONNX name of the op -> our name, slots of its inputs and of its outputs, in order.
OPS = {
    "LayerNormalization": ("layer_norm", ["x", "weight", "bias"], ["y", "mean", "rstd"]),
    "RMSNormalization": ("rms_norm", ["x", "weight"], ["y"]),
}

# ONNX name of the op -> our name. Their inputs are x, weight, bias and, of batch_norm, running_mean and running_var.
CHANNEL_NORMS = {
    "BatchNormalization": "batch_norm",
    "GroupNormalization": "group_norm",
    "InstanceNormalization": "instance_norm",
}


# ONNX name -> whether it is the logarithm.
SOFTMAX = {"Softmax": False, "LogSoftmax": True}


class OutOfScope(Exception):
    pass


def tensor(path):
    proto = onnx.TensorProto()
    with open(path, "rb") as f:
        proto.ParseFromString(f.read())
    return onnx.numpy_helper.to_array(proto)


def named_tensors(names, folder, kind):
    """The present operands of a node, by position; an absent one has an empty name and no file."""
    files = iter(range(len(names)))
    return [tensor(os.path.join(folder, f"{kind}_{next(files)}.pb")) if name else None for name in names]


def dtype_of(array):
    if array.dtype not in FLOATS:
        raise OutOfScope(f"dtype {array.dtype}")
    return FLOATS[array.dtype]


def parameter(array, shape):
    """A parameter of the shape of the normalized dims; ONNX also allows shapes that broadcast to it."""
    if np.broadcast_shapes(array.shape, shape) != tuple(shape):
        raise OutOfScope(f"a parameter of shape {list(array.shape)} for normalized dims {list(shape)}")
    return np.broadcast_to(array, shape)


def convert(case, folder):
    """(op, descriptor, inputs, outputs) of one node case."""
    model = onnx.load(os.path.join(case, "model.onnx"))
    if len(model.graph.node) != 1:
        raise OutOfScope("the op spelled out in other ops; the case without the suffix holds the same values")
    node = model.graph.node[0]
    if node.op_type in CHANNEL_NORMS:
        return convert_channel_norm(node, folder, model.opset_import[0].version)
    if node.op_type in SOFTMAX:
        return convert_softmax(node, folder)
    if node.op_type == "LRN":
        return convert_local_response_norm(node, folder)
    if node.op_type == "Gemm":
        return convert_gemm(node, folder)
    if node.op_type == "MatMul":
        return convert_matmul(node, folder)
    if node.op_type == "Conv":
        return convert_conv(node, folder)
    if node.op_type == "ConvTranspose":
        return convert_conv_transpose(node, folder)
    op, input_slots, output_slots = OPS[node.op_type]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if attributes.get("stash_type", 1) != 1:
        raise OutOfScope(f"stash_type {attributes['stash_type']}: statistics have the accumulator's dtype")
    ins = dict(zip(input_slots, named_tensors(node.input, folder, "input")))
    outs = dict(zip(output_slots, named_tensors(node.output, folder, "output")))
    x = ins["x"]
    axis = attributes.get("axis", -1)
    k = -axis if axis < 0 else x.ndim - axis
    shape = x.shape[x.ndim - k :]
    # The attribute is a float32; its exact value, widened, is the one to use.
    eps = float(np.float32(attributes.get("epsilon", 1e-5)))

    descriptor = {"x": {"dtype": dtype_of(x), "dims": list(x.shape)}, "normalized_dims": k}
    inputs = {"x": (dtype_of(x), x.astype(np.float64))}
    for slot in ("weight", "bias"):
        if ins.get(slot) is not None:
            descriptor[slot] = dtype_of(ins[slot])
            inputs[slot] = (dtype_of(ins[slot]), parameter(ins[slot], shape).astype(np.float64))
    descriptor["eps"] = eps
    outputs = {"y": outs["y"].astype(np.float64)}
    # ONNX keeps the normalized dims of the statistics as ones.
    for slot in ("mean", "rstd"):
        if outs.get(slot) is not None:
            outputs[slot] = outs[slot].astype(np.float64).reshape(x.shape[: x.ndim - k])
    if len(outputs) > 1:
        descriptor["stats"] = True
    return op, descriptor, inputs, outputs


def convert_channel_norm(node, folder, opset):
    """(op, descriptor, inputs, outputs) of a BatchNormalization, GroupNormalization or InstanceNormalization node."""
    op = CHANNEL_NORMS[node.op_type]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if attributes.get("stash_type", 1) != 1:
        raise OutOfScope(f"stash_type {attributes['stash_type']}: statistics have the accumulator's dtype")
    if op == "group_norm" and opset < 21:
        raise OutOfScope(f"opset {opset}: one scale and bias for each group, not for each channel")
    x, weight, bias, *running = named_tensors(node.input, folder, "input")
    y, *updated = named_tensors(node.output, folder, "output")
    descriptor = {"x": {"dtype": dtype_of(x), "dims": list(x.shape)}, "weight": dtype_of(weight), "bias": dtype_of(bias)}
    inputs = {slot: (dtype_of(t), t.astype(np.float64)) for slot, t in (("x", x), ("weight", weight), ("bias", bias))}
    outputs = {"y": y.astype(np.float64)}
    # Attributes are float32; their exact values, widened, are the ones to use.
    descriptor["eps"] = float(np.float32(attributes.get("epsilon", 1e-5)))
    if op == "group_norm":
        descriptor["groups"] = attributes["num_groups"]
    if running:
        before = [t.astype(np.float64) for t in running]
        inputs |= {slot: (dtype_of(running[0]), t) for slot, t in zip(("running_mean", "running_var"), before)}
    if running and not attributes.get("training_mode", 0):
        descriptor["inference"] = True
    elif running:
        kept = float(np.float32(attributes.get("momentum", 0.9)))
        n = x.size // x.shape[1]
        mean, var = (t.astype(np.float64) for t in updated)
        descriptor["momentum"] = 1 - kept
        outputs |= {"running_mean": mean, "running_var": kept * before[1] + (var - kept * before[1]) * n / (n - 1)}
    return op, descriptor, inputs, outputs


def convert_local_response_norm(node, folder):
    """(op, descriptor, inputs, outputs) of an LRN node."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    (x,) = named_tensors(node.input, folder, "input")
    (y,) = named_tensors(node.output, folder, "output")
    # The longer side of ONNX's even windows lies after the channel.
    longer_after = attributes["size"] % 2 == 0
    descriptor = {"x": {"dtype": dtype_of(x), "dims": list(x.shape)}, "size": attributes["size"], "longer_after": longer_after}
    # Attributes are float32; their exact values, widened, are the ones to use.
    for field, name, default in (("alpha", "alpha", 1e-4), ("beta", "beta", 0.75), ("k", "bias", 1.0)):
        descriptor[field] = float(np.float32(attributes.get(name, default)))
    return "local_response_norm", descriptor, {"x": (dtype_of(x), x.astype(np.float64))}, {"y": y.astype(np.float64)}


def convert_softmax(node, folder):
    """(op, descriptor, inputs, outputs) of a Softmax or LogSoftmax node."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    (x,) = named_tensors(node.input, folder, "input")
    (y,) = named_tensors(node.output, folder, "output")
    axis = attributes.get("axis", -1)
    descriptor = {"x": {"dtype": dtype_of(x), "dims": list(x.shape)}, "axis": axis % x.ndim}
    if SOFTMAX[node.op_type]:
        descriptor["log"] = True
    return "softmax", descriptor, {"x": (dtype_of(x), x.astype(np.float64))}, {"y": y.astype(np.float64)}


def convert_gemm(node, folder):
    """(op, descriptor, inputs, outputs) of a Gemm node."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    a, b, *c = named_tensors(node.input, folder, "input")
    (y,) = named_tensors(node.output, folder, "output")
    descriptor = {"a": {"dtype": dtype_of(a), "dims": list(a.shape)}, "b": {"dtype": dtype_of(b), "dims": list(b.shape)}}
    for field, name in (("transpose_a", "transA"), ("transpose_b", "transB")):
        if attributes.get(name, 0):
            descriptor[field] = True
    # Attributes are float32; their exact values, widened, are the ones to use.
    descriptor["alpha"] = float(np.float32(attributes.get("alpha", 1.0)))
    inputs = {slot: (dtype_of(t), t.astype(np.float64)) for slot, t in (("a", a), ("b", b))}
    if c and c[0] is not None:
        n = y.shape[-1]
        if c[0].ndim > 1 and c[0].shape[0] != 1:
            raise OutOfScope(f"a C of shape {list(c[0].shape)}: the bias is one for each column")
        bias = np.broadcast_to(c[0].reshape(-1), (n,)).astype(np.float64) * float(np.float32(attributes.get("beta", 1.0)))
        descriptor["bias"] = dtype_of(c[0])
        inputs["bias"] = (dtype_of(c[0]), case_file.rounded(bias, dtype_of(c[0])))
    return "gemm", descriptor, inputs, {"out": y.astype(np.float64)}


def convert_matmul(node, folder):
    """(op, descriptor, inputs, outputs) of a MatMul node."""
    a, b = named_tensors(node.input, folder, "input")
    (y,) = named_tensors(node.output, folder, "output")
    if min(a.ndim, b.ndim) < 2:
        raise OutOfScope(f"factors of rank {a.ndim} and {b.ndim}: a vector is a matrix with an extent of 1")
    descriptor = {"a": {"dtype": dtype_of(a), "dims": list(a.shape)}, "b": {"dtype": dtype_of(b), "dims": list(b.shape)}}
    inputs = {slot: (dtype_of(t), t.astype(np.float64)) for slot, t in (("a", a), ("b", b))}
    return "gemm", descriptor, inputs, {"out": y.astype(np.float64)}


def window(attributes, large, small, kernel, is_transposed):
    """Strides, dilations, padding and groups of a convolution from the extents `large` to `small`."""
    strides, dilations = (attributes.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    pads = attributes.get("pads", [0] * 2 * len(kernel))
    padding = list(zip(pads[: len(kernel)], pads[len(kernel) :]))
    # Where the extents of a result are asked for, the padding follows from them.
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") or (is_transposed and "output_shape" in attributes):
        reach = [s * (o - 1) + d * (k - 1) + 1 for s, o, d, k in zip(strides, small, dilations, kernel)]
        total = [max(r - i, 0) for r, i in zip(reach, large)]
        padding = [(t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2) for t in total]
    fields = {"stride": strides, "dilation": dilations, "padding": [list(sides) for sides in padding]}
    return fields | {"groups": attributes.get("group", 1)}


def convert_conv(node, folder):
    """(op, descriptor, inputs, outputs) of a Conv node."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    x, weight, *bias = named_tensors(node.input, folder, "input")
    (y,) = named_tensors(node.output, folder, "output")
    tensors = {"x": x, "weight": weight}
    descriptor = {slot: {"dtype": dtype_of(t), "dims": list(t.shape)} for slot, t in tensors.items()}
    descriptor |= window(attributes, x.shape[2:], y.shape[2:], weight.shape[2:], False)
    if bias and bias[0] is not None:
        tensors["bias"] = bias[0]
        descriptor["bias"] = dtype_of(bias[0])
    inputs = {slot: (dtype_of(t), t.astype(np.float64)) for slot, t in tensors.items()}
    return "conv", descriptor, inputs, {"y": y.astype(np.float64)}


def convert_conv_transpose(node, folder):
    """(op, descriptor, inputs, outputs) of a ConvTranspose node."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    x, weight, *bias = named_tensors(node.input, folder, "input")
    (y,) = named_tensors(node.output, folder, "output")
    tensors = {"x": x, "weight": weight}
    descriptor = {slot: {"dtype": dtype_of(t), "dims": list(t.shape)} for slot, t in tensors.items()}
    descriptor |= window(attributes, y.shape[2:], x.shape[2:], weight.shape[2:], True)
    # The attribute, or what extents that are asked for leave over.
    numbers = zip(y.shape[2:], x.shape[2:], weight.shape[2:], descriptor["stride"], descriptor["dilation"], descriptor["padding"])
    descriptor["output_padding"] = [o - ((i - 1) * s - sum(sides) + d * (k - 1) + 1) for o, i, k, s, d, sides in numbers]
    if bias and bias[0] is not None:
        tensors["bias"] = bias[0]
        descriptor["bias"] = dtype_of(bias[0])
    inputs = {slot: (dtype_of(t), t.astype(np.float64)) for slot, t in tensors.items()}
    return "conv_transpose", descriptor, inputs, {"y": y.astype(np.float64)}


def main(argv):
    write_list = "--write-list" in argv
    folders = [a for a in argv if not a.startswith("--")]
    if len(folders) > 1 or set(argv) - set(folders) - {"--write-list"}:
        sys.exit(__doc__)
    out = folders[0] if folders else os.path.join(ROOT, "target", "onnx")
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
    if not os.path.isdir(data):
        sys.exit(f"onnx {onnx.__version__} in {os.path.dirname(onnx.__file__)} holds no node cases; 1.22.0 does")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    converted, refused = 0, []
    prefixes = ("test_layer_normalization", "test_rms_normalization")
    prefixes += ("test_batchnorm", "test_group_normalization", "test_instancenorm")
    prefixes += ("test_softmax", "test_logsoftmax", "test_lrn", "test_gemm_", "test_matmul_")
    prefixes += ("test_basic_conv_", "test_conv_with_", "test_convtranspose")
    for name in sorted(n for n in os.listdir(data) if n.startswith(prefixes)):
        case = os.path.join(data, name)
        for i in range(sum(d.startswith("test_data_set_") for d in os.listdir(case))):
            try:
                op, descriptor, inputs, outputs = convert(case, os.path.join(case, f"test_data_set_{i}"))
            except OutOfScope as reason:
                refused.append(f"{name}: {reason}")
                continue
            source = f"onnx {onnx.__version__} {name}/test_data_set_{i}"
            file = f"{op}-onnx-{name.removeprefix('test_')}-{i}.safetensors"
            case_file.write(os.path.join(out, file), op, descriptor, source, inputs, outputs)
            converted += 1
    text = "".join(line + "\n" for line in refused)
    print(text, end="")
    print(f"{converted} cases converted to {out}, {len(refused)} out of scope as listed above")
    if write_list:
        with open(LIST, "w") as f:
            f.write(text)
    elif text != (open(LIST).read() if os.path.exists(LIST) else ""):
        sys.exit(f"the list above differs from {LIST}; --write-list renews it")
    if converted == 0:
        sys.exit("no case was converted")


if __name__ == "__main__":
    main(sys.argv[1:])
