"""Random programs for tools/torch_fuzz: inputs and ops, in any mix of types and shapes."""
import math
import random

import torch

from pytorch import FLOATS, apply, describe, make_input, name_of, run_backward, torch_types

DTYPES = ["f32", "f32", "f32", "f64", "f64", "bf16", "f16", "i64", "i64", "i32", "i8", "u8", "bool"]
UNARY = """neg abs sign square floor ceil trunc round frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin
cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv isnan isinf isfinite logical_not bitwise_not sigmoid
log_sigmoid relu relu6 selu silu mish softsign tanhshrink hardsigmoid hardswish""".split()
UNARY_INPLACE = """neg_ abs_ sign_ square_ floor_ exp_ sqrt_ sin_ tanh_ sigmoid_ relu_ reciprocal_""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow maximum minimum fmax fmin atan2 hypot xlogy logaddexp copysign
eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
bitwise_right_shift""".split()
BINARY_INPLACE = "add_ sub_ mul_ div_ floor_divide_ remainder_ fmod_ pow_".split()
# PyTorch has no form of these that takes a number.
TENSORS_ONLY = """maximum minimum fmax fmin atan2 hypot logaddexp logical_and logical_or logical_xor""".split()
NUMBERS = [0, 1, 2, -1, 3, 7, 300, 0.5, -1.5, 2.0, 0.0, True, False, float("inf"), float("nan")]


class Maker:
    """Makes one program while it is run, so that most ops fit what there is."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.values = {}  # name -> tensor
        self.inputs = []
        self.steps = []
        self.wild = self.random.random() < 0.33

    def pick(self, *choices):
        return self.random.choice(choices)

    def sizes(self):
        r = self.random
        rank = r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        return [r.choice([1, 2, 3, 3, 4, 5, 0 if r.random() < 0.1 else 2]) for _ in range(rank)]

    def numbers(self, dtype, count):
        r = self.random
        if dtype == "bool":
            return [r.randint(0, 1) for _ in range(count)]
        if dtype not in FLOATS:
            low = 0 if dtype == "u8" else -9
            return [r.randint(low, 9) for _ in range(count)]
        wide = r.choice([1, 2, 3, 5])
        data = [math.ldexp(r.randint(-64 * wide, 64 * wide), -6) for _ in range(count)]  # exact in every type
        if self.wild:
            strange = [math.nan, math.inf, -math.inf, 0.0, 0.0, 1.0]
            data = [r.choice(strange) if r.random() < 0.25 else v for v in data]
        return data

    def input(self, sizes=None, dtype=None, data=None, grad=None):
        name = f"x{len(self.inputs)}"
        sizes = self.sizes() if sizes is None else list(sizes)
        dtype = dtype or self.random.choice(DTYPES)
        data = self.numbers(dtype, math.prod(sizes)) if data is None else data
        if grad is None:
            grad = self.random.random() < 0.7
        self.inputs.append({"name": name, "dtype": dtype, "sizes": sizes, "data": data,
                            "grad": dtype in FLOATS and grad})
        self.values[name] = make_input(self.inputs[-1])
        return name

    def some(self):
        """The name of a value: the newest ones first."""
        names = list(self.values)
        if not names or self.random.random() < 0.15:
            return self.input()
        return names[-1] if self.random.random() < 0.6 else self.random.choice(names)

    def floating(self):
        name = self.some()
        return name if self.values[name].is_floating_point() else self.input(dtype=self.random.choice(FLOATS))

    def partner(self, name):
        """A value that most often broadcasts with another."""
        r = self.random
        if r.random() < 0.1:
            return self.some()
        sizes = list(self.values[name].shape)
        sizes = [1 if r.random() < 0.2 else n for n in sizes]
        if r.random() < 0.3:
            sizes = sizes[r.randint(0, len(sizes)):]
        dtype = name_of(self.values[name].dtype) if r.random() < 0.6 else None
        return self.input(sizes, dtype)

    def dim(self, name, extra=0):
        rank = self.values[name].dim() + extra
        if self.random.random() < 0.05:
            return self.random.randint(-rank - 2, rank + 1)
        return self.random.randint(-max(rank, 1), max(rank, 1) - 1)

    def dims(self, name):
        rank = self.values[name].dim()
        return sorted(self.random.sample(range(rank), self.random.randint(0, rank)))

    def size_at(self, name, dim):
        shape = self.values[name].shape
        return shape[dim] if shape and -len(shape) <= dim < len(shape) else 1

    def index(self, sizes, limit, low=0):
        low *= limit
        data = [self.random.randint(low, max(limit - 1, 0)) for _ in range(math.prod(sizes))]
        if data and self.random.random() < 0.04:
            data[self.random.randrange(len(data))] = limit
        return self.input(sizes, "i64", data)

    def step(self):
        kind = self.random.choices([self.unary, self.binary, self.activation, self.reduction, self.along, self.view,
                                    self.joined, self.indexed, self.layer, self.loss, self.conversion],
                                   [5, 8, 2, 4, 3, 5, 2, 4, 2, 2, 2])[0]
        op, operands, p = kind()
        return {"op": op, "in": operands, "p": p, "out": []}

    def unary(self):
        x = self.some()
        inplace = self.random.random() < 0.15 and x.startswith("y")
        return self.random.choice(UNARY_INPLACE if inplace else UNARY), [x], {}

    def binary(self):
        r = self.random
        x = self.some()
        if r.random() < 0.15 and x.startswith("y"):
            op = r.choice(BINARY_INPLACE)
            return (op, [x], {"right": r.choice(NUMBERS)}) if r.random() < 0.4 else (op, [x, self.partner(x)], {})
        op = r.choice(BINARY)
        kind = r.random()
        if kind < 0.2 and op not in TENSORS_ONLY:
            return op, [x], {"right": r.choice(NUMBERS)}
        if kind < 0.25 and op in ("add", "sub", "mul", "div", "pow", "remainder"):
            return op, [x], {"left": r.choice(NUMBERS)}
        y = self.partner(x)
        return op, [x, y], {}

    def activation(self):
        r = self.random
        x = self.some()
        return r.choice([
            ("clamp", [x], r.choice([{"min": -1}, {"max": 2}, {"min": -0.5, "max": 1.5}, {"min": 0, "max": 1}])),
            ("hardtanh", [x], {"min": r.choice([-1, 0, -1.5]), "max": r.choice([1, 2.5])}),
            ("threshold", [x], {"threshold": r.choice([0, 0.5]), "value": r.choice([-3, 1.5, 300])}),
            ("leaky_relu", [x], {"slope": 0.125}), (r.choice(["elu", "celu"]), [x], {"alpha": 0.75}),
            (r.choice(["hardshrink", "softshrink"]), [x], {"lambda": 0.5}),
            ("gelu", [x], {"tanh": r.random() < 0.5}), ("softplus", [x], {"beta": 2, "threshold": 4}),
            ("nan_to_num", [x], {"nan": 0.5, "posinf": r.choice([None, 3]), "neginf": r.choice([None, -3])}),
            ("lerp", [x, self.partner(x)], {"weight": r.choice([0.25, 0.75, 1.5])}),
            ("addcmul", [x, self.partner(x), self.partner(x)], {"value": r.choice([1, 2, 0.5])}),
            ("addcdiv", [x, self.partner(x), self.partner(x)], {"value": r.choice([1, 0.5])}),
            ("clamp_tensor", [x, self.partner(x), self.partner(x)], {}),
            ("isclose", [x, self.partner(x)], {"equal_nan": r.random() < 0.5})])

    def reduction(self):
        r = self.random
        x = self.some()
        keep = r.random() < 0.4
        dims = {"dims": self.dims(x), "keepdim": keep}
        return r.choice([
            (r.choice(["sum", "mean", "prod", "amax", "amin", "any", "all", "nansum", "logsumexp"]), [x], dims),
            ("count_nonzero", [x], {"dims": self.dims(x), "keepdim": False}),
            (r.choice(["var", "std", "var_mean"]), [x], dict(dims, correction=r.choice([0, 1]))),
            ("aminmax", [x], {"dim": self.dim(x), "keepdim": keep}),
            ("norm", [x], dict(dims, p=r.choice([1, 2, 3, "inf", "-inf", 0]))),
            (r.choice(["argmax", "argmin"]), [x], {"dim": r.choice([None, self.dim(x)]), "keepdim": keep}),
            (r.choice(["max", "min", "median"]), [x], {}),
            (r.choice(["max_dim", "min_dim", "median_dim"]), [x], {"dim": self.dim(x), "keepdim": keep}),
            ("median" if self.repeats(x) else "quantile", [x],
             {"q": r.choice([0, 0.3, 0.5, 1, 1.5]), "dim": r.choice([None, self.dim(x)]), "keepdim": keep}),
            ("normalize", [x], {"p": r.choice([1, 2]), "dim": self.dim(x)})])

    def along(self):
        r = self.random
        x = self.some()
        dim = self.dim(x)
        return r.choice([
            (r.choice(["cumsum", "cumprod", "softmax", "log_softmax"]), [x], {"dim": dim}),
            ("sort", [x], {"dim": dim, "descending": r.random() < 0.5}),
            ("sort" if self.repeats(x) else "topk", [x],
             {"k": r.randint(0, self.size_at(x, dim) + r.choice([0, 0, 0, 1])), "dim": dim, "descending": True,
              "largest": r.random() < 0.5}),
            ("softmin", [x], {"dim": dim}), ("diff", [x], {"n": r.randint(1, 2), "dim": dim}), ("unique", [x], {})])

    def view(self):
        r = self.random
        x = self.some()
        t = self.values[x]
        shape, rank, dim = list(t.shape), t.dim(), self.dim(x)
        size = self.size_at(x, dim)
        permutation = r.sample(range(rank), rank)
        new = [-1] if r.random() < 0.4 else [math.prod(shape[:1]), -1] if r.random() < 0.7 else shape[::-1]
        return r.choice([
            (r.choice(["reshape", "view"]), [x], {"sizes": new}), ("permute", [x], {"dims": permutation}),
            ("flatten", [x], {"start": r.choice([0, 0, 1]), "end": -1}),
            ("unflatten", [x], {"dim": dim, "sizes": r.choice([[-1, 1], [size, 1], [2, -1]])}),
            (r.choice(["transpose", "movedim"]), [x], {"a": dim, "b": self.dim(x)}),
            ("expand", [x], {"sizes": [r.choice([2, 3])] * r.randint(0, 1) + [-1 if n != 1 else r.randint(1, 3)
                                                                          for n in shape]}),
            ("squeeze", [x], r.choice([{}, {"dim": dim}])), ("unsqueeze", [x], {"dim": self.dim(x, 1)}),
            ("select", [x], {"dim": dim, "index": r.randint(-size, size)}),
            ("narrow", [x], {"dim": dim, "start": r.randint(0, size), "length": r.randint(0, size)}),
            ("slice", [x], {"dim": dim, "start": r.choice([None, 1, -2]), "stop": r.choice([None, 2, -1, 9]),
                            "step": r.randint(1, 2)}),
            ("diagonal", [x], {"offset": r.randint(-2, 2), "a": 0, "b": 1}),
            ("unfold", [x], {"dim": dim, "size": r.randint(0, size + r.choice([0, 0, 1])), "step": r.randint(1, 3)}),
            ("repeat", [x], {"counts": [r.randint(0, 2) for _ in range(rank + r.randint(0, 1))]}),
            ("tile", [x], {"counts": [r.randint(1, 2) for _ in range(r.randint(0, rank + 1))]}),
            ("repeat_interleave", [x], {"count": r.randint(0, 2), "dim": dim}),
            ("flip", [x], {"dims": self.dims(x)}), ("roll", [x], {"shift": r.randint(-3, 3), "dim": dim}),
            (r.choice(["tril", "triu", "diag"]), [x], {"diagonal": r.randint(-1, 2)})])

    def joined(self):
        r = self.random
        x = self.some()
        others = [self.input(self.values[x].shape, None if r.random() < 0.3 else name_of(self.values[x].dtype))
                  for _ in range(r.randint(0, 2))]
        op = r.choice(["cat", "stack", "hstack", "vstack"])
        dim = self.dim(x, 1 if op == "stack" else 0)
        return op, [x, *others], {"dim": dim} if op in ("cat", "stack") else {}

    def indexed(self):
        r = self.random
        x = self.some()
        t = self.values[x]
        dim = self.dim(x)
        size, shape = self.size_at(x, dim), list(t.shape)
        kind = r.choice(["gather", "index_select", "index_add", "scatter", "scatter_add", "scatter_reduce", "masked_fill",
                         "masked_select", "where", "take", "where_number", "embedding", "nonzero", "one_hot", "index",
                         "index_put", "scatter_number"])
        if kind == "nonzero":
            return kind, [x], {}
        if kind == "one_hot":
            return kind, [self.index(self.sizes()[:2], 3)], {"classes": r.choice([3, 3, -1])}
        if kind == "embedding":
            table = x if t.dim() == 2 and t.is_floating_point() else self.input([4, 3], r.choice(FLOATS))
            return kind, [self.index(self.sizes()[:2], self.values[table].shape[0]), table], {"padding": r.choice([None, 0])}
        if kind in ("index", "index_put"):
            return self.indexed_by_list(kind, x)
        if kind in ("masked_fill", "masked_select"):
            mask = self.input(shape, "bool")
            return kind, [x, mask], {"value": r.choice(NUMBERS)} if kind == "masked_fill" else {}
        if kind == "where":
            return "where", [self.input(shape, "bool"), x, self.partner(x)], {}
        if kind == "where_number":
            return "where", [self.input(shape, "bool"), x], {"right": r.choice(NUMBERS)}
        if kind == "take":
            return kind, [x, self.index([r.randint(0, 3)], t.numel())], {}
        if kind in ("index_select", "index_add"):
            n = r.randint(0, 3)
            index = self.index([n], size)
            if kind == "index_select":
                return kind, [x, index], {"dim": dim}
            if shape and -len(shape) <= dim < len(shape):
                shape[dim] = n
            return kind, [x, index, self.input(shape, name_of(t.dtype))], {"dim": dim}
        small = [r.randint(1, n) if n else 0 for n in shape]
        if kind == "scatter_number":
            return kind, [x, self.index(small, size)], {"dim": dim, "value": r.choice([1, 0.5, True])}
        if kind.startswith("scatter") and shape and -len(shape) <= dim < len(shape):
            small[dim] = r.randint(0, 4)
        index = self.index(small, size)
        if kind == "gather":
            return kind, [x, index], {"dim": dim}
        if kind == "scatter":  # one place each: which of several values wins is nobody's promise
            if not shape or not -len(shape) <= dim < len(shape):
                return "gather", [x, index], {"dim": dim}
            index = self.input(shape, "i64", self.shuffled(shape, dim))
            return kind, [x, index, self.input(shape, name_of(t.dtype))], {"dim": dim}
        source = self.input(small, name_of(t.dtype))
        p = {"dim": dim}
        if kind == "scatter_reduce":
            p.update(reduce=r.choice(["sum", "prod", "amin", "amax", "mean"]), include_self=r.random() < 0.5)
        return kind, [x, index, source], p

    def indexed_by_list(self, kind, x):
        """x[i], x[:, i], x[i, j] or x[mask], read or written."""
        r = self.random
        shape = list(self.values[x].shape)
        how = r.choice(["mask", "rows", "columns", "pairs"]) if len(shape) > 1 else r.choice(["mask", "rows"])
        if how == "mask":
            indices = [self.input(shape, "bool")]
        else:
            sizes = r.choice([[2], [3], [2, 2], [0]])
            axes = {"rows": [0], "columns": [1], "pairs": [0, 1]}[how]
            indices = [self.index(sizes, shape[axis] if shape else 1, -1) for axis in axes]
        if kind == "index":
            return kind, [x, *indices], {"how": how}
        dtype = name_of(self.values[x].dtype)
        # Added: which of several values is written last is nobody's promise.
        return kind, [x, *indices, self.input([], dtype)], {"how": how, "accumulate": how != "mask" and dtype != "bool"}

    def epsilon(self, count):
        """One number is normalized to 0 divided by epsilon: to rounding, if that is small."""
        return self.pick(1e-3, 0.1) if count > 1 else 0.1

    def repeats(self, name):
        """Whether values or NaNs repeat: which of them is chosen, and gets the gradient, is nobody's promise."""
        return self.values[name].detach().double().nan_to_num(1e9).unique().numel() < self.values[name].numel()

    def shuffled(self, shape, dim):
        ranks = torch.tensor([self.random.random() for _ in range(math.prod(shape))]).reshape(shape)
        return ranks.argsort(dim).reshape(-1).tolist()

    def layer(self):
        r = self.random
        x = self.floating()
        t = self.values[x]
        dtype, shape = name_of(t.dtype), list(t.shape)
        last = shape[-1] if shape else 1
        kind = r.choice(["matmul", "linear", "layer_norm", "rms_norm", "group_norm", "instance_norm", "attention", "pad",
                         "max_pool2d", "avg_pool2d", "conv2d", "product", "batch_norm", "conv1d", "conv_transpose2d",
                         "adaptive_avg_pool2d", "adaptive_max_pool2d", "interpolate", "im2col", "col2im"])
        if kind == "product":
            return self.product(x)
        if kind == "batch_norm":
            channels = shape[1] if len(shape) > 1 else 1
            make = lambda data, grad: self.input([channels], dtype, data, grad)
            weight = [make(None, None), make(None, None)] if r.random() < 0.5 else []
            statistics = [make([v] * channels, False) for v in (0.5, 2.0)]
            return kind, [x, *statistics, *weight], {"training": r.random() < 0.6}
        if kind == "matmul":
            return kind, [x, self.input([last, r.randint(1, 3)], dtype)], {}
        if kind == "linear":
            return kind, [x, self.input([2, last], dtype)] + ([self.input([2], dtype)] if r.random() < 0.5 else []), {}
        if kind in ("layer_norm", "rms_norm"):
            weight = [self.input([last], dtype)] if r.random() < 0.5 else []
            return kind, [x, *weight], {"sizes": [last], "eps": self.epsilon(last)}
        if kind in ("group_norm", "instance_norm"):
            channels = shape[1] if len(shape) > 1 else 1
            weight = [self.input([channels], dtype)] if r.random() < 0.5 else []
            return kind, [x, *weight], {"groups": 1, "eps": self.epsilon(math.prod(shape[2:]))}
        if kind == "attention":
            heads = r.choice([1, 2])
            q, k = [2, heads, 3, 4], [2, 1 if r.random() < 0.3 else heads, 2, 4]
            make = lambda s: self.input(s, dtype)
            return kind, [make(q), make(k), make(k)], {"causal": r.random() < 0.3, "gqa": k[1] != q[1]}
        if kind == "pad":
            n = r.randint(1, max(1, min(2, len(shape))))
            amounts = [r.randint(-1, 2) for _ in range(2 * n)]
            mode = r.choice(["constant", "constant", "reflect", "replicate", "circular"])
            if mode != "constant" and len(shape) not in (n + 1, n + 2):
                mode = "constant"
            return kind, [x], {"amounts": amounts, "mode": mode, "value": r.choice([0, 1.5])}
        image = self.input([r.choice([1, 2]), 2, 4, 5], dtype)
        if kind.startswith("conv"):
            return self.convolution(kind, image, dtype)
        if kind.startswith("adaptive"):
            return kind, [image], {"sizes": [r.randint(1, 4), r.randint(1, 5)]}
        if kind == "interpolate":
            mode = r.choice(["nearest", "nearest-exact", "bilinear", "bicubic"])
            return kind, [image], {"sizes": [r.randint(1, 7), r.randint(1, 7)], "mode": mode,
                                   "corners": mode.startswith("bi") and r.random() < 0.5}
        window = {"kernel": [2, 2], "stride": [r.randint(1, 2)] * 2, "padding": [r.randint(0, 1)] * 2,
                  "dilation": [r.randint(1, 2)] * 2}
        if kind == "im2col":
            return kind, [image], window
        if kind == "col2im":
            return kind, [self.input([2, 8, 6], dtype)], {"sizes": [3, 4], "kernel": [2, 2], "stride": [1, 1],
                                                          "padding": [0, 0], "dilation": [1, 1]}
        return kind, [image], dict(window, ceil=r.random() < 0.3, count_pad=r.random() < 0.5)

    def convolution(self, kind, image, dtype):
        r = self.random
        groups = r.choice([1, 1, 2])
        bias = [self.input([4], dtype)] if r.random() < 0.5 else []
        p = {"stride": [r.randint(1, 2)] * 2, "padding": [r.randint(0, 1)] * 2, "dilation": [r.randint(1, 2)] * 2,
             "groups": groups, "extra": [0, 0]}
        if kind == "conv_transpose2d":
            p["extra"] = [r.randint(0, 1)] * 2
            return kind, [image, self.input([2, 4 // groups, 2, 3], dtype), *bias], p
        if kind == "conv1d":
            p = {k: v if k == "groups" else v[:1] for k, v in p.items()}
            return kind, [self.input([2, 2, 6], dtype), self.input([4, 2 // groups, 3], dtype), *bias], p
        return kind, [image, self.input([4, 2 // groups, 2, 3], dtype), *bias], p

    def product(self, x):
        r = self.random
        dtype = name_of(self.values[x].dtype)
        make = lambda *sizes: self.input(sizes, dtype)
        numbers = {"beta": r.choice([1, 0, 0.5]), "alpha": r.choice([1, 2])}
        equation, sizes = r.choice([("ij,jk->ik", [(2, 3), (3, 2)]), ("ij->ji", [(2, 3)]), ("ii->i", [(3, 3)]),
                                    ("ij,ij->", [(2, 3), (2, 3)]), ("bij,bjk->bik", [(2, 2, 3), (2, 3, 1)]),
                                    ("i,j->ij", [(2,), (3,)]), ("ij->", [(2, 3)]), ("...i,i->...", [(2, 2, 3), (3,)])])
        return r.choice([
            ("addmm", [self.input(r.choice([(2, 4), (4,), (1, 1)]), dtype), make(2, 3), make(3, 4)], numbers),
            ("baddbmm", [make(2, 2, 4), make(2, 2, 3), make(2, 3, 4)], numbers),
            ("matmul", [make(2, 1, 2, 3), make(3, 3, 4)], {}), ("bmm", [make(2, 2, 3), make(2, 3, 4)], {}),
            ("dot", [make(4), make(4)], {}), ("mv", [make(3, 4), make(4)], {}), ("outer", [make(3), make(2)], {}),
            ("tensordot", [make(2, 3, 4), make(3, 4, 2)], {"dims": r.randint(0, 2)}),
            ("bilinear", [make(2, 3), make(2, 4), make(2, 3, 4)], {}),
            ("einsum", [make(*s) for s in sizes], {"equation": equation})])

    def loss(self):
        r = self.random
        x = self.floating()
        t = self.values[x]
        dtype, shape = name_of(t.dtype), list(t.shape)
        reduction = {"reduction": r.choice(["none", "mean", "sum"])}
        kind = r.choice(["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "bce_with_logits", "cosine_similarity",
                         "cross_entropy", "nll_loss", "bce", "kl_div", "cosine_embedding_loss"])
        if kind in ("cross_entropy", "nll_loss"):
            more = r.choice([[], [2]])
            logits = self.input([3, 4, *more], dtype)
            weight = [self.input([4], dtype, [0.5, 1, 2, 0.25], False)] if r.random() < 0.4 else []
            p = dict(reduction, ignore=r.choice([-100, 1]), smoothing=r.choice([0, 0, 0.25]))
            if kind == "cross_entropy" and r.random() < 0.2:
                return kind, [logits, self.input([3, 4, *more], dtype), *weight], dict(p, ignore=-100)
            return kind, [logits, self.index([3, *more], 4), *weight], p
        if kind == "bce":
            share = lambda grad: self.input([2, 3], dtype, [r.randint(0, 16) / 16 for _ in range(6)], grad)
            return kind, [share(True), share(None)], reduction
        if kind == "cosine_embedding_loss":
            target = self.input([3], dtype, [r.choice([-1, 1]) for _ in range(3)], False)
            return kind, [self.input([3, 4], dtype), self.input([3, 4], dtype), target], dict(reduction, margin=0.25)
        other = [1 if r.random() < 0.1 else n for n in shape]
        y = self.input(other, dtype)
        if kind == "cosine_similarity":  # of one number repeated, all of the gradient is rounding
            y = y if other == shape else self.input(shape, dtype)
            return kind, [x, y], {"dim": self.dim(x)}
        if kind == "kl_div":
            return kind, [x, y], dict(reduction, log=r.random() < 0.5)
        return kind, [x, y], dict(reduction, beta=r.choice([0, 1, 0.5]), delta=r.choice([1, 0.5]))

    def conversion(self):
        r = self.random
        x = self.some()
        if r.random() < 0.2 and x.startswith("y"):
            return r.choice([("fill_", [x], {"value": r.choice(NUMBERS)}), ("copy_", [x, self.partner(x)], {})])
        return r.choice([("to", [x], {"dtype": r.choice(DTYPES)}), ("clone", [x], {}),
                         ("full_like", [x], {"value": r.choice(NUMBERS)})])


def make_program(number, seed):
    """A program, and what PyTorch does with it."""
    maker = Maker(seed)
    maker.input()
    result = {"values": [], "grads": {}}
    for i in range(maker.random.randint(1, 6)):
        step = maker.step()
        maker.steps.append(step)
        try:
            outputs = apply(step["op"], [maker.values[n] for n in step["in"]], step["p"])
        except NotImplementedError as e:
            result["error"] = {"step": i, "text": str(e)}
            break
        except (RuntimeError, IndexError, ValueError, TypeError) as e:
            result["error"] = {"step": i, "text": str(e)}
            break
        if any(t.dtype not in torch_types().values() for t in outputs):  # i8 with u8 gives i16, which Deft does not have
            maker.steps.pop()
            break
        step["out"] = [f"y{i}_{k}" for k in range(len(outputs))]
        maker.values.update(zip(step["out"], outputs))
        result["values"].append([describe(t) for t in outputs])
    names = [n for n in maker.values if n.startswith("y")]
    last = names[-1] if names else "x0"
    program = {"id": number, "inputs": maker.inputs, "steps": maker.steps, "backward": last}
    if "error" not in result:
        run_backward(result, program, maker.values)
    return program, result
