"""A graph of ATen operators, or a part of one, as a plan of Deft."""

import math
import operator
import threading

import torch
from torch.autograd.graph import increment_version

import deft

from ._operators import (DTYPES, OF_MEMORY, RANDOM, ROUNDS, TABLE, VIEWS, WHEN, aten_clone, aten_convolution, aten_copy_,
                         has_fixed_strides, is_contiguous)
from ._options import Options

_C = deft._C

# What is computed of sizes, on Python's numbers.
SIZE_OPERATORS = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.neg,
                  operator.pow, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_,
                  operator.or_, math.floor, math.ceil, math.trunc, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_float,
                  torch.sym_int, torch.sym_ite, getattr(torch, "sym_sum", torch.sym_max)}
CONSTANTS = {torch.ops.aten.full.default, torch.ops.aten.scalar_tensor.default}
MOST_WEIGHT_CHANGES = 3  # after which weights are read where they are, unpacked
capturing = threading.RLock()  # one at a time
IGNORED = ("device", "layout", "pin_memory")
MOST_DIMS = 12


class Refused(Exception):
    """A node that Deft cannot run after all; None where it is not known which."""

    def __init__(self, node, reason):
        super().__init__(reason)
        self.node, self.reason = node, reason


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors_of(v)]
    return []


def device_of(graph):
    """The one that the graph's tensors are meant to lie on: a GPU where any does, else the CPU."""
    for node in graph.nodes:
        for t in tensors_of(node.meta.get("val")):
            if t.device.type != "cpu":
                return t.device
    return torch.device("cpu")


def device_fault(device):
    """Why Deft cannot work there, or None."""
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return f"Deft does not work on {device}"
    if (device.index or 0) < deft.cuda.device_count():
        return None
    return f"Deft does not see {device}: " + ("it was built without CUDA" if not deft.cuda.device_count() else "it sees fewer GPUs")


def tensor_fault(t, device):
    """Why Deft has no such tensor, or None. `device`: of the whole graph."""
    if t.device != device:
        return f"a tensor lies on {t.device}, the others on {device}"
    if t.layout != torch.strided:
        return f"a tensor has the layout {t.layout}"
    if t.dtype not in DTYPES:
        return f"Deft has no {t.dtype}"
    if t.dim() > MOST_DIMS:
        return f"a tensor has {t.dim()} dimensions"
    return None


def is_number(node):
    return isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def is_constant(node):
    """A number as a tensor, which is made where the graph's others lie."""
    return (node.op == "call_function" and node.target in CONSTANTS and node.meta["val"].dim() == 0
            and all(t.device.type != "cpu" for user in node.users for t in tensors_of(user.meta.get("val"))))


def why_not(node, device=torch.device("cpu")):
    """Why Deft does not run this node; None where it does. `device`: of the whole graph."""
    if node.op != "call_function":
        return None if node.op in ("placeholder", "output") else f"a graph with {node.op}"
    if node.target is operator.getitem:
        return None
    if is_number(node):
        if node.target in SIZE_OPERATORS or node.target is torch.ops.aten.sym_size.int:
            return None
        return f"Deft does not compute {node.target} of sizes"
    if node.target is aten_copy_:
        return None if node.args[0].op == "placeholder" else "a write that is not to an argument"
    if node.target in RANDOM:
        if node.target is torch.ops.aten.native_dropout.default and node.args[2] is not True:
            return "dropout outside training"
    elif node.target not in TABLE:
        return "Deft has no such operator"
    for n in [node, *node.all_input_nodes]:
        value = n.meta.get("val")
        if value is None:
            return "its shape is not known"
        for t in tensors_of(value):
            fault = tensor_fault(t, t.device if is_constant(n) else device)
            if fault:
                return fault
    if any(isinstance(s, torch.SymInt) and "u" in str(s.node.expr)[:1] for t in tensors_of(node.meta["val"]) for s in t.shape):
        return "the size of its result depends on values"
    return WHEN[node.target](node) if node.target in WHEN else None


def is_work(node):
    """Whether a node computes anything."""
    return (node.op == "call_function" and node.target not in VIEWS and node.target is not operator.getitem
            and not is_number(node))


def convert(value):
    """torch's element types as Deft's; arguments that mean nothing here are dropped by the caller."""
    if isinstance(value, torch.dtype):
        return DTYPES[value]
    if isinstance(value, (tuple, list)):
        return type(value)(convert(v) for v in value)
    return value


def same_strides(sizes, a, b):
    return all(x == y for n, x, y in zip(sizes, a, b) if n > 1) or any(n == 0 for n in sizes)


def is_compact(t):
    """Keeping it keeps little else: parts of queries, keys and values side by side do."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) <= 3 * t.numel()


def lay_out(t, strides):
    """`t` with these strides: what was traced holds for views that come later."""
    sizes = list(t.shape)
    if same_strides(sizes, t.stride(), strides):
        return t
    for d, stride in enumerate(strides):
        if stride == 0 and sizes[d] > 1:
            t = deft.narrow(t, d, 0, 1)
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d]))
    dense = t.permute(order)
    dense = dense.clone(memory_format=deft.contiguous_format)
    t = dense.permute([order.index(d) for d in range(len(sizes))]).expand(sizes)
    if same_strides(sizes, t.stride(), strides):
        return t
    span = 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
    whole = deft.full([span], 0, dtype=t.dtype).as_strided(sizes, list(strides))
    whole.copy_(t)
    return whole


def rounded(value, dtype):
    return value.to(dtype) if isinstance(value, deft.Tensor) and value.dtype == deft.float32 else value


class Region:
    """`saved_from`: results from there on are only read by the backward pass and lie as they were made, pictures with
    channels innermost, since convolutions want them so; see Graph.as_traced()."""

    def __init__(self, gm, weights=(), options=Options(), saved_from=None):
        self.options, self.saved_from = options, saved_from
        self.precision = {"bf16": deft.bfloat16, "f16": deft.float16}.get(options.precision)
        self.graph = gm.graph
        self.device = device_of(gm.graph)
        self.gpu = -1 if self.device.type == "cpu" else self.device.index or 0
        self.placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.number_of = {n: i for i, n in enumerate(self.placeholders)}
        (result,) = [n for n in self.graph.nodes if n.op == "output"]
        self.results = result.args[0]
        self.is_single = not isinstance(self.results, (tuple, list))
        self.randoms = [n for n in self.graph.nodes if n.op == "call_function" and n.target in RANDOM]
        self.mutated = [self.number_of[n.args[0]] for n in self.graph.nodes if n.target is aten_copy_]
        flags = [n in weights and self.number_of[n] not in self.mutated for n in self.placeholders]
        self.has_weights = any(flags)
        self.bridge = self._new_bridge(flags)
        self.last_use = self._last_uses()
        self.free_copies = {n for n in self.graph.nodes if self._is_free_copy(n)}
        self.random_sizes = {}
        # (which result, its node): on the memory of an argument
        self.views = [(k, n) for k, n in enumerate(self._result_list()) if self._is_view_of_argument(n)]

    def _new_bridge(self, weights):
        return _C._Bridge(weights + [False] * len(self.randoms), self.options.plans, self.options.freezing, self.gpu)

    def _is_free_copy(self, node):
        """A copy that only changes where its values lie: nothing here depends on that, and nobody writes what it copies."""
        if node.target is not aten_clone or node.kwargs.get("memory_format") is torch.channels_last:
            return False
        source = node.args[0]
        while source.op == "call_function" and (source.target in VIEWS or source.target in (aten_clone, operator.getitem)):
            source = source.args[0]
        return self.number_of.get(source) not in self.mutated

    def _result_list(self):
        return [self.results] if self.is_single else self.results

    def _last_uses(self):
        last = {}
        for node in self.graph.nodes:
            for n in node.all_input_nodes:
                last[n] = node
        gone = {}
        for n, user in last.items():
            gone.setdefault(user, []).append(n)
        return gone

    def __call__(self, args):
        """Takes a list of torch's tensors and numbers, gives a list."""
        if self.randoms:
            args = args + self._draw(args)
        results = self.bridge.run(args, self._stream())
        if results is None:
            results = self._capture(args)
        for k, node in self.views:
            results[k] = self._in_torch(node, args)
        if self.mutated:
            increment_version([args[i] for i in self.mutated])
        return results

    def _stream(self):
        """torch's current one: the plan works behind what it holds, and before what it is given next."""
        return 0 if self.gpu < 0 else torch._C._cuda_getCurrentRawStream(self.gpu)

    # --- what torch does for the plan

    def _symbols(self, args):
        symbols = {}
        for node, value in zip(self.placeholders, args):
            traced = node.meta.get("val")
            if isinstance(traced, torch.SymInt):
                symbols[traced.node.expr] = value
            elif isinstance(traced, torch.Tensor):
                for size, n in zip(traced.shape, value.shape):
                    if isinstance(size, torch.SymInt):
                        symbols[size.node.expr] = n
        return symbols

    @staticmethod
    def _number(value, symbols):
        if not isinstance(value, torch.SymInt):
            return int(value)
        return int(value.node.expr.subs(symbols))

    def _draw(self, args):
        key = tuple(a for a in args if isinstance(a, int)) + tuple(
            tuple(a.shape) for n, a in zip(self.placeholders, args) if isinstance(a, torch.Tensor)) if self._is_dynamic() else ()
        sizes = self.random_sizes.get(key)
        if sizes is None:
            symbols = self._symbols(args)
            sizes = [[self._number(s, symbols) for s in tensors_of(n.meta["val"])[0].shape] for n in self.randoms]
            self.random_sizes[key] = sizes
        return [RANDOM[n.target][0](s, tensors_of(n.meta["val"])[0].dtype, self.device, *n.args, **n.kwargs)
                for n, s in zip(self.randoms, sizes)]

    def _is_dynamic(self):
        return any(isinstance(n.meta.get("val"), torch.SymInt) or any(
            isinstance(s, torch.SymInt) for t in tensors_of(n.meta.get("val")) for s in t.shape) for n in self.placeholders)

    def _in_torch(self, node, args):
        if node.op == "placeholder":
            return args[self.number_of[node]]
        if is_number(node) and not isinstance(node.meta["val"], torch.SymInt):
            return node.meta["val"]
        values = torch.fx.map_arg((node.args, node.kwargs), lambda n: self._in_torch(n, args))
        return node.target(*values[0], **values[1])

    # --- what Deft does

    def _capture(self, args):
        with capturing:
            return self._capture_alone(args)

    def _capture_alone(self, args):
        if self.has_weights and self.bridge.stats()["weight_changes"] >= MOST_WEIGHT_CHANGES:
            self.has_weights = False
            self.bridge = self._new_bridge([False] * len(self.placeholders))
        symbols = self._symbols(args)
        outputs, fault = [], []

        def run(given):
            try:
                return self._run(given, symbols, outputs)
            except Refused as refused:
                fault.append(refused)
                raise

        try:
            with deft.device("cpu") if self.gpu < 0 else deft.device("cuda", self.gpu):  # where constants are made
                return self.bridge.add(args, run, outputs, self._stream())
        except Refused:
            raise
        except Exception as error:
            raise (fault[0] if fault else Refused(None, f"{type(error).__name__}: {error}")) from error

    def _run(self, given, symbols, outputs):
        env = dict(zip(self.placeholders, given))
        drawn = dict(zip(self.randoms, given[len(self.placeholders):]))
        kept = set(self._result_nodes())
        for node in self.graph.nodes:
            if node.op == "call_function":
                env[node] = self._run_node(node, env, drawn, symbols)
                for n in self.last_use.get(node, ()):
                    if n not in kept:
                        env.pop(n, None)
        return self._collect(env, symbols, outputs)

    def _result_nodes(self):
        return [v for v in self._result_list() if isinstance(v, torch.fx.Node)]

    def _run_node(self, node, env, drawn, symbols):
        try:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: env[n])
            if node.target is aten_copy_:
                return args[0].copy_(args[1])
            if node in self.free_copies:
                return args[0]
            if is_number(node):
                return args[0].shape[args[1]] if node.target not in SIZE_OPERATORS else node.target(*args)
            if node.target is operator.getitem:
                return args[0][args[1]]
            args = [convert(a) for a in args]
            if node.target in OF_MEMORY:
                traced = node.args[0].meta["val"]
                args[0] = lay_out(args[0], [self._number(s, symbols) for s in traced.stride()])
            kwargs = {k: convert(v) for k, v in kwargs.items() if k not in IGNORED}
            if self.saved_from is not None and node.target is aten_convolution and args[0].dim() == 4:
                args[0] = args[0].contiguous(memory_format=deft.channels_last)
            if self.precision and node.target in ROUNDS:
                result = self._run_rounded(node, args, kwargs)
            elif node in drawn:
                result = RANDOM[node.target][1](drawn[node], *args, **kwargs)
            else:
                result = TABLE[node.target](*args, **kwargs)
        except Exception as error:
            raise Refused(node, f"{type(error).__name__}: {error}") from error
        self._check(node, result)
        return result

    def _run_rounded(self, node, args, kwargs):
        places = ROUNDS[node.target]
        args = [rounded(a, self.precision) if i in places else a for i, a in enumerate(args)]
        result = TABLE[node.target](*args, **kwargs)
        if isinstance(result, deft.Tensor):
            return result.to(DTYPES[node.meta["val"].dtype])
        return tuple(r if r is None else r.to(DTYPES[t.dtype]) for r, t in zip(result, node.meta["val"]))

    @staticmethod
    def _check(node, result):
        """Never another type or shape than torch's."""
        traced = node.meta["val"]
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        expected = list(traced) if isinstance(traced, (tuple, list)) else [traced]
        if len(results) != len(expected):
            raise Refused(node, f"{len(results)} results instead of {len(expected)}")
        unused = {u.args[1] for u in node.users if u.target is operator.getitem} if len(expected) > 1 else {0}
        for i, (found, wanted) in enumerate(zip(results, expected)):
            if wanted is None or i not in unused:
                continue
            if found is None or found.dtype != DTYPES[wanted.dtype]:
                if found is not None and isinstance(result, tuple) and found.dtype.is_floating_point:
                    continue
                raise Refused(node, f"a result of type {None if found is None else found.dtype} instead of {wanted.dtype}")
            if found.dim() != wanted.dim() or any(
                    isinstance(n, int) and n != m for n, m in zip(wanted.shape, found.shape)):
                raise Refused(node, f"a result of shape {list(found.shape)} instead of {list(wanted.shape)}")

    def _collect(self, env, symbols, outputs):
        results = []
        for k, value in enumerate(self._result_list()):
            if not isinstance(value, torch.fx.Node):
                outputs.append(("value", value))
            elif value.op == "placeholder":
                outputs.append(("argument", self.number_of[value]))
            elif value.target is aten_copy_:
                outputs.append(("argument", self.number_of[value.args[0]]))
            elif self._is_view_of_argument(value):
                outputs.append(("value", None))
            elif not isinstance(env[value], deft.Tensor):
                outputs.append(("value", env[value]))
            else:
                outputs.append(("result", len(results)))
                results.append(self._result(k, env[value], value.meta["val"], symbols))
        return results

    def _result(self, k, found, traced, symbols):
        saved = self.saved_from is not None and k >= self.saved_from
        if saved and is_compact(found) and (is_contiguous(traced) or has_fixed_strides(traced)):
            return found
        if found.dtype != DTYPES[traced.dtype]:  # statistics of norms in f32, which only backward reads so
            found = found.to(DTYPES[traced.dtype])
        return lay_out(found, [self._number(s, symbols) for s in traced.stride()])

    @staticmethod
    def _is_view_of_argument(node):
        if not isinstance(node, torch.fx.Node) or node.op != "call_function":
            return False
        while node.op == "call_function" and (node.target in VIEWS or node.target is operator.getitem):
            if node.target is operator.getitem and node.args[0].target not in VIEWS:
                return False
            node = node.args[0]
        return node.op == "placeholder"
