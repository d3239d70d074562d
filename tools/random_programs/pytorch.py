"""What PyTorch does with the programs of tools/torch_fuzz."""
import math
import operator

import torch
import torch.nn.functional as F

FLOATS = ["f32", "f64", "bf16", "f16"]


def torch_types():
    return {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8,
            "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool}


def name_of(dtype):
    return {t: n for n, t in torch_types().items()}[dtype]


def number(v):
    return float(v) if isinstance(v, str) else v


def make_input(item):
    t = torch.tensor(item["data"], dtype=torch.float64 if item["dtype"] in FLOATS else torch.int64)
    t = t.to(torch_types()[item["dtype"]]).reshape(item["sizes"])
    return t.requires_grad_() if item["grad"] else t


def weights_like(y):
    w = torch.tensor([(i * 7 % 5 - 1.5) / 2 for i in range(y.numel())], dtype=torch.float64)
    return w.to(y.dtype).reshape(y.shape)


def describe(t):
    data = t.detach()
    data = data.double() if data.is_floating_point() else data.to(torch_types()["i64"])
    return {"dtype": name_of(t.dtype), "sizes": list(t.shape), "grad": t.requires_grad, "data": data.reshape(-1).tolist()}


def apply(op, t, p):
    words = ("reduction", "mode", "reduce", "dtype", "how", "equation")
    p = {k: number(v) if k not in words else v for k, v in p.items()}
    x = t[0]
    dims = p.get("dims")
    some = dims if dims else None
    keep = p.get("keepdim", False)
    table = {
        "log_sigmoid": lambda: F.logsigmoid(x), "silu": lambda: F.silu(x), "mish": lambda: F.mish(x),
        "softsign": lambda: F.softsign(x), "tanhshrink": lambda: F.tanhshrink(x), "relu": lambda: F.relu(x),
        "hardsigmoid": lambda: F.hardsigmoid(x), "hardswish": lambda: at_nan(F.hardswish, x), "selu": lambda: at_nan(F.selu, x, 1.0507009873554805),
        "clamp": lambda: x.clamp(p.get("min"), p.get("max")), "clamp_tensor": lambda: x.clamp(t[1], t[2]),
        "hardtanh": lambda: at_nan(lambda v: F.hardtanh(v, p["min"], p["max"]), x),
        "threshold": lambda: F.threshold(x, p["threshold"], p["value"]),
        "leaky_relu": lambda: F.leaky_relu(x, p["slope"]), "elu": lambda: at_nan(lambda v: F.elu(v, p["alpha"]), x),
        "gelu": lambda: F.gelu(x, approximate="tanh" if p["tanh"] else "none"),
        "softplus": lambda: F.softplus(x, p["beta"], p["threshold"]),
        "nan_to_num": lambda: x.nan_to_num(p["nan"], p["posinf"], p["neginf"]),
        "lerp": lambda: torch.lerp(x, t[1], p["weight"]),
        "addcmul": lambda: torch.addcmul(x, t[1], t[2], value=p["value"]),
        "addcdiv": lambda: torch.addcdiv(x, t[1], t[2], value=p["value"]),
        "isclose": lambda: torch.isclose(x, t[1], 1e-2, 1e-3, p["equal_nan"]),
        "where": lambda: torch.where(x, t[1], p["right"] if "right" in p else t[2]),
        "to": lambda: x.to(torch_types()[p["dtype"]]), "clone": lambda: x.clone(),
        "full_like": lambda: torch.full_like(x, p["value"]), "fill_": lambda: x.fill_(p["value"]),
        "sum": lambda: x.sum(some, keep), "mean": lambda: x.mean(some, keep), "prod": lambda: prod(x, dims, keep),
        "amax": lambda: x.amax(dims, keep), "amin": lambda: x.amin(dims, keep), "any": lambda: x.any(some, keep),
        "all": lambda: x.all(some, keep), "nansum": lambda: x.nansum(some, keep),
        "logsumexp": lambda: x.logsumexp(list(range(x.dim())) if not dims else dims, keep),
        "count_nonzero": lambda: x.count_nonzero(some),
        "var": lambda: x.var(some, correction=p["correction"], keepdim=keep),
        "std": lambda: x.std(some, correction=p["correction"], keepdim=keep),
        "norm": lambda: torch.linalg.vector_norm(x, p["p"], some, keep),
        "argmax": lambda: x.argmax(p["dim"], keep), "argmin": lambda: x.argmin(p["dim"], keep),
        "max": lambda: x.max(), "min": lambda: x.min(), "median": lambda: x.median(),
        "max_dim": lambda: tuple(x.max(p["dim"], keep)), "min_dim": lambda: tuple(x.min(p["dim"], keep)),
        # PyTorch reads expanded i8 beyond its end, negates u8 in gradients, and shares with what takes no part.
        "median_dim": lambda: x.contiguous().median(p["dim"], keep)[0],
        "atan2": lambda: torch.atan2(*[v.long() if v.dtype == torch.uint8 else v for v in t]),
        "quantile": lambda: x.quantile(p["q"], p["dim"], keep), "normalize": lambda: F.normalize(x, p["p"], p["dim"]),
        "sort": lambda: torch.sort(x, stable=True, dim=p["dim"], descending=p["descending"])[0],
        "topk": lambda: x.topk(p["k"], p["dim"], p["largest"])[0], "unique": lambda: x.unique(),
        "reshape": lambda: x.reshape(p["sizes"]), "view": lambda: x.view(p["sizes"]),
        "flatten": lambda: x.flatten(p["start"], p["end"]), "unflatten": lambda: x.unflatten(p["dim"], p["sizes"]),
        "permute": lambda: x.permute(dims), "transpose": lambda: x.transpose(p["a"], p["b"]),
        "movedim": lambda: x.movedim(p["a"], p["b"]), "expand": lambda: x.expand(p["sizes"]),
        "squeeze": lambda: x.squeeze(p["dim"]) if "dim" in p else x.squeeze(), "unsqueeze": lambda: x.unsqueeze(p["dim"]),
        "select": lambda: x.select(p["dim"], p["index"]), "narrow": lambda: x.narrow(p["dim"], p["start"], p["length"]),
        "slice": lambda: sliced(x, p), "diagonal": lambda: x.diagonal(p["offset"], p["a"], p["b"]),
        "unfold": lambda: x.unfold(p["dim"], p["size"], p["step"]), "cat": lambda: torch.cat(t, p["dim"]),
        "stack": lambda: torch.stack(t, p["dim"]), "hstack": lambda: torch.hstack(t), "vstack": lambda: torch.vstack(t),
        "repeat": lambda: x.repeat(p["counts"]), "tile": lambda: x.tile(p["counts"]), "flip": lambda: x.flip(dims),
        "roll": lambda: x.roll(p["shift"], p["dim"]), "tril": lambda: x.tril(p["diagonal"]),
        "triu": lambda: x.triu(p["diagonal"]), "diag": lambda: x.diag(p["diagonal"]),
        "pad": lambda: F.pad(x, p["amounts"], p["mode"], p["value"] if p["mode"] == "constant" else None),
        "gather": lambda: x.gather(p["dim"], t[1]), "index_select": lambda: x.index_select(p["dim"], t[1]),
        "index_add": lambda: x.index_add(p["dim"], t[1], t[2]), "scatter": lambda: x.scatter(p["dim"], t[1], t[2]),
        "scatter_add": lambda: x.scatter_add(p["dim"], t[1], t[2]),
        "scatter_reduce": lambda: scatter_reduce(x, t[1], t[2], p),
        "masked_fill": lambda: x.masked_fill(t[1], p["value"]), "masked_select": lambda: x.masked_select(t[1]),
        "take": lambda: x.take(t[1]), "matmul": lambda: x @ t[1], "linear": lambda: F.linear(*t),
        "cumsum": lambda: x.cumsum(p["dim"]), "cumprod": lambda: x.cumprod(p["dim"]),
        "softmax": lambda: x.softmax(p["dim"]), "log_softmax": lambda: x.log_softmax(p["dim"]),
        "layer_norm": lambda: F.layer_norm(x, p["sizes"], *t[1:], eps=p["eps"]),
        "rms_norm": lambda: F.rms_norm(x, p["sizes"], t[1] if len(t) > 1 else None, p["eps"]),
        "group_norm": lambda: F.group_norm(x, p["groups"], *t[1:], eps=p["eps"]),
        "instance_norm": lambda: F.instance_norm(x, weight=t[1] if len(t) > 1 else None, eps=p["eps"]),
        "attention": lambda: F.scaled_dot_product_attention(*t, is_causal=p["causal"], enable_gqa=p["gqa"]),
        "mse_loss": lambda: F.mse_loss(*t, reduction=p["reduction"]),
        "l1_loss": lambda: F.l1_loss(*t, reduction=p["reduction"]),
        "smooth_l1_loss": lambda: F.smooth_l1_loss(*t, reduction=p["reduction"], beta=p["beta"]),
        "huber_loss": lambda: F.huber_loss(*t, reduction=p["reduction"], delta=p["delta"]),
        "bce_with_logits": lambda: F.binary_cross_entropy_with_logits(*t, reduction=p["reduction"]),
        "cosine_similarity": lambda: F.cosine_similarity(*t, dim=p["dim"]),
        "cross_entropy": lambda: F.cross_entropy(*t, ignore_index=p["ignore"], reduction=p["reduction"],
                                                 label_smoothing=p["smoothing"]),
        "conv1d": lambda: F.conv1d(*with_bias(t), *window(p), p["groups"]),
        "conv2d": lambda: F.conv2d(*with_bias(t), *window(p), p["groups"]),
        "conv_transpose2d": lambda: F.conv_transpose2d(*with_bias(t), p["stride"], p["padding"], p["extra"], p["groups"],
                                                       p["dilation"]),
        "max_pool2d": lambda: F.max_pool2d(x, p["kernel"], *window(p), p["ceil"]),
        "avg_pool2d": lambda: F.avg_pool2d(x, p["kernel"], *window(p)[:2], p["ceil"], p["count_pad"]),
        "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(x, p["sizes"]),
        "adaptive_max_pool2d": lambda: F.adaptive_max_pool2d(x, p["sizes"]),
        "interpolate": lambda: F.interpolate(x, p["sizes"], mode=p["mode"],
                                             align_corners=p["corners"] if p["mode"].startswith("bi") else None),
        "im2col": lambda: F.unfold(x, p["kernel"], p["dilation"], p["padding"], p["stride"]),
        "col2im": lambda: F.fold(x, p["sizes"], p["kernel"], p["dilation"], p["padding"], p["stride"]),
        "batch_norm": lambda: (F.batch_norm(x, t[1], t[2], *t[3:], training=p["training"], eps=1e-2), t[1], t[2]),
        "celu": lambda: at_nan(lambda v: F.celu(v, p["alpha"]), x), "relu6": lambda: at_nan(F.relu6, x),
        "hardshrink": lambda: at_nan(lambda v: F.hardshrink(v, p["lambda"]), x), "softshrink": lambda: at_nan(lambda v: F.softshrink(v, p["lambda"]), x),
        "softmin": lambda: F.softmin(x, p["dim"]), "diff": lambda: x.diff(p["n"], p["dim"]),
        "var_mean": lambda: torch.var_mean(x, some, correction=p["correction"], keepdim=keep),
        "aminmax": lambda: tuple(torch.aminmax(x, dim=p["dim"], keepdim=keep)),
        "repeat_interleave": lambda: x.repeat_interleave(p["count"], p["dim"]),
        "embedding": lambda: F.embedding(x, t[1], p["padding"]), "nonzero": lambda: x.nonzero().contiguous(),
        "one_hot": lambda: F.one_hot(x, p["classes"]), "index": lambda: x[places(t[1:], p["how"])],
        "index_put": lambda: put(x, places(t[1:-1], p["how"]), t[-1], p["accumulate"]),
        "scatter_number": lambda: x.scatter(p["dim"], t[1], p["value"]),
        "addmm": lambda: torch.addmm(*t, beta=p["beta"], alpha=p["alpha"]),
        "baddbmm": lambda: torch.baddbmm(*t, beta=p["beta"], alpha=p["alpha"]),
        "bmm": lambda: torch.bmm(*t), "dot": lambda: torch.dot(*t), "mv": lambda: torch.mv(*t),
        "outer": lambda: torch.outer(*t), "tensordot": lambda: torch.tensordot(*t, dims=p["dims"]),
        "bilinear": lambda: F.bilinear(*t), "einsum": lambda: torch.einsum(p["equation"], *t),
        "nll_loss": lambda: F.nll_loss(*t, ignore_index=p["ignore"], reduction=p["reduction"]),
        "bce": lambda: F.binary_cross_entropy(*t, reduction=p["reduction"]),
        "kl_div": lambda: F.kl_div(*t, reduction=p["reduction"], log_target=p["log"]),
        "cosine_embedding_loss": lambda: F.cosine_embedding_loss(*t, margin=p["margin"], reduction=p["reduction"]),
    }
    if op in table:
        result = table[op]()
    elif "left" in p:
        result = reverse(op, p["left"], x)
    else:
        rest = [p["right"]] if "right" in p else t[1:]
        result = getattr(x, op)(*rest) if hasattr(x, op) else getattr(torch, op)(x, *rest)
    return list(result) if isinstance(result, tuple) else [result]


def with_bias(t):
    return [*t, None] if len(t) == 2 else t


def window(p):
    return p["stride"], p["padding"], p["dilation"]


def at_nan(f, x, slope=1):
    """f with this slope at NaN: PyTorch's own differs between whole vectors and the rest."""
    unknown = x.isnan()
    return torch.where(unknown, x * slope, f(x.masked_fill(unknown, 1))) if unknown.any() else f(x)


def places(indices, how):
    return (slice(None), *indices) if how == "columns" else tuple(indices)


def put(x, where, value, accumulate):
    if not accumulate:
        y = x.clone()
        y[where] = value
        return y
    return torch.ops.aten.index_put(x, [None if isinstance(i, slice) else i for i in where], value, accumulate)


def reverse(op, a, x):
    named = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
             "remainder": operator.mod, "pow": operator.pow}
    return named[op](a, x)


def scatter_reduce(x, index, source, p):
    mode = p["reduce"]
    if not p["include_self"] and mode in ("amin", "amax") and x.is_floating_point():
        x = x.scatter(p["dim"], index, math.inf if mode == "amin" else -math.inf)
        return x.scatter_reduce(p["dim"], index, source, mode)
    return x.scatter_reduce(p["dim"], index, source, mode, include_self=p["include_self"])


def prod(x, dims, keep):
    if not dims:
        return x.prod().reshape([1] * x.dim() if keep else [])
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keep)
    return x


def sliced(x, p):
    if x.dim() == 0 or not -x.dim() <= p["dim"] < x.dim():
        raise IndexError("slice")
    index = [slice(None)] * x.dim()
    index[p["dim"]] = slice(p["start"], p["stop"], p["step"])
    return x[tuple(index)]


def run_backward(result, program, values):
    last = values[program["backward"]]
    try:
        if last.requires_grad:
            last.backward(weights_like(last))
    except RuntimeError as e:
        result["error"] = {"step": len(program["steps"]), "text": str(e)}
        return
    for item in program["inputs"]:
        if values[item["name"]].grad is not None:
            result["grads"][item["name"]] = describe(values[item["name"]].grad)


def run(program, wide=False, noise=None):
    """Once more, with all floats as f64, and with every float moved by up to that part of it: noise is (seed, part)."""
    torch.set_default_dtype(torch.float64 if wide else torch.float32)  # of what whole numbers give
    try:
        return run_again(program, wide, noise)
    finally:
        torch.set_default_dtype(torch.float32)


def run_again(program, wide, noise):
    random = torch.Generator().manual_seed(noise[0]) if noise else None

    def moved(t):
        if not noise or not t.is_floating_point():
            return t
        return t * (1 + noise[1] * (2 * torch.rand(t.shape, generator=random, dtype=torch.float64) - 1))

    result, values = {"values": [], "grads": {}}, {}
    for item in program["inputs"]:
        t = make_input(dict(item, dtype="f64", grad=False) if wide and item["dtype"] in FLOATS else item)
        values[item["name"]] = moved(t).requires_grad_(item["grad"])
    for i, step in enumerate(program["steps"]):
        p = dict(step["p"])
        if wide and step["op"] == "to" and p["dtype"] in FLOATS:
            p["dtype"] = "f64"
        inputs = [values[n] for n in step["in"]]
        try:
            outputs = apply(step["op"], inputs, p)
        except (NotImplementedError, RuntimeError, IndexError, ValueError, TypeError) as e:
            result["error"] = {"step": i, "text": str(e)}
            return result
        if not any(o.data_ptr() == t.data_ptr() for o in outputs for t in inputs):  # a view stays one
            outputs = [moved(o) for o in outputs]
        values.update(zip(step["out"], outputs))
        result["values"].append([describe(t) for t in outputs])
    if program["backward"] in values:
        run_backward(result, program, values)
    return result
