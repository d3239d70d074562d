"""Each operator of the bridge's table against PyTorch's, alone in a graph: element types, layouts; and torch's own samples."""

import itertools
import operator as python_operator
import unittest

from bridge_case import Case, flat, in_float64, torch
from bridge_samples import NO_SAMPLE, calls_of, name_of
from torch.utils._pytree import tree_flatten, tree_unflatten

from deft.torch import _operators
from deft.torch._backend import Graph

TYPES = (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)


# Take what was computed in f32 before, or compute with a constant in f32; and those that give any place of equal values.
GIVEN_RESULTS = {"nll_loss_backward", "nll_loss2d_backward", "_cdist_backward", "hardsigmoid_backward"}
ANY_OF_EQUALS = {"kthvalue", "topk", "sort", "median.dim"}


def of_type(value, dtype):
    """Floating tensors in another type; numbers and lists as they are."""
    if isinstance(value, torch.Tensor):
        return (value * 4 if not dtype.is_floating_point else value).to(dtype) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(of_type(v, dtype) for v in value)
    return dtype if value is torch.float32 else value


def turned(t):
    """The same values, with the first dimension innermost."""
    return t.movedim(0, -1).contiguous().movedim(-1, 0) if t.dim() > 1 else t


def apart(t):
    """The same values, every second element of a larger memory."""
    if t.dim() == 0:
        return t
    whole = torch.zeros(*t.shape[:-1], 2 * t.shape[-1], dtype=t.dtype)
    whole[..., ::2] = t
    return whole[..., ::2]


def laid(value, how):
    if isinstance(value, torch.Tensor):
        return how(value)
    return type(value)(laid(v, how) for v in value) if isinstance(value, (list, tuple)) else value


def calls_in_samples():
    for operator in _operators.TABLE:
        name = name_of(operator)
        for args, kwargs in calls_of(name) or [] if name not in NO_SAMPLE else []:
            yield name, operator, args, kwargs


def has_values(t):
    return t is not None and t.numel() > 0


class Operators(Case):
    def graph_of(self, operator, args, kwargs):
        """The operator alone in a graph, the tensors that go into it, and what torch gives."""
        tensors, form = tree_flatten((list(args), kwargs))
        places = [i for i, t in enumerate(tensors) if isinstance(t, torch.Tensor)]
        graph = torch.fx.Graph()
        values = list(tensors)
        for i in places:
            values[i] = graph.placeholder(f"t{i}")
            values[i].meta["val"] = tensors[i]
        node_args, node_kwargs = tree_unflatten(values, form)
        node = graph.call_function(operator, tuple(node_args), node_kwargs)
        node.meta["val"] = expected = operator(*args, **kwargs)
        results = [node]
        if isinstance(expected, (tuple, list)):
            results = []
            for i, e in enumerate(expected):
                if has_values(e):
                    results.append(graph.call_function(python_operator.getitem, (node, i)))
                    results[-1].meta["val"] = e
        graph.output(tuple(results))
        expected = [e for e in (expected if isinstance(expected, (tuple, list)) else [expected]) if has_values(e)]
        return torch.fx.GraphModule(torch.nn.Module(), graph), [tensors[i] for i in places], expected

    def run_on_deft(self, operator, args, kwargs):
        """Captured, then by its plan."""
        gm, given, expected = self.graph_of(operator, args, kwargs)
        compiled = Graph(gm, "inference", set(), None)
        self.assertEqual(list(compiled.reasons.values()), [])
        for _ in range(2):
            found = compiled(list(given))
        self.assertEqual((compiled.refused, list(compiled.reasons.values())), ({}, []))
        return found, expected

    def check_call(self, name, operator, args, kwargs):
        found, expected = self.run_on_deft(operator, args, kwargs)
        exact = operator(*in_float64(args), **{k: in_float64(v) for k, v in kwargs.items()})
        self.check(found, expected, [e for e in flat(exact) if has_values(e)], name)
        return found, expected

    def test_each_row_has_a_sample(self):
        missing = [name_of(o) for o in _operators.TABLE if name_of(o) not in NO_SAMPLE and calls_of(name_of(o)) is None]
        self.assertEqual(missing, [])

    def test_each_row(self):
        for name, operator, args, kwargs in calls_in_samples():
            with self.subTest(name, args=[list(t.shape) for t in flat(args)]):
                found, expected = self.check_call(name, operator, args, kwargs)
                for a, b in zip(found, expected):
                    if name not in ("reshape",) and b.numel() > 1:
                        self.assertEqual([s for n, s in zip(b.shape, a.stride()) if n > 1],
                                         [s for n, s in zip(b.shape, b.stride()) if n > 1], f"{name}: other strides")

    def test_layouts(self):
        for name, operator, args, kwargs in calls_in_samples():
            if name.startswith(("as_strided", "view", "_unsafe_view")):
                continue  # of memory, not of values
            for how in (turned, apart):
                call = laid(args, how), {k: laid(v, how) for k, v in kwargs.items()}
                if self.torch_wants_them_contiguous(operator, args, kwargs, call):
                    continue
                with self.subTest(name, how=how.__name__, args=[list(t.shape) for t in flat(args)]):
                    self.check_call(name, operator, *call)

    def torch_wants_them_contiguous(self, operator, args, kwargs, call):
        """Some gradients read what forward saved as if it were contiguous."""
        try:
            found = operator(*call[0], **call[1])
        except RuntimeError:
            return True
        return not all(torch.allclose(a, b, 1e-3, 1e-3, equal_nan=True) for a, b in zip(flat(found), flat(operator(*args, **kwargs))))

    def test_types(self):
        """Wherever torch takes a type, Deft's result is torch's, or the operator is refused and runs in torch."""
        refused = set()
        for name, operator, args, kwargs in calls_in_samples():
            if not any(t.is_floating_point() for t in flat(args)):
                continue
            for dtype in TYPES:
                if name in GIVEN_RESULTS and dtype == torch.float64 or name in ANY_OF_EQUALS and not dtype.is_floating_point:
                    continue
                typed, keywords = of_type(args, dtype), {k: of_type(v, dtype) for k, v in kwargs.items()}
                with self.subTest(name, dtype=dtype, args=[list(t.shape) for t in flat(args)]):
                    try:
                        gm, given, expected = self.graph_of(operator, typed, keywords)
                    except (RuntimeError, ValueError, IndexError, TypeError):
                        continue  # torch takes no such type
                    compiled = Graph(gm, "inference", set(), None)
                    found = compiled(list(given))
                    if compiled.refused or compiled.reasons:
                        refused.add((name, dtype))
                        continue
                    try:
                        exact = operator(*in_float64(typed), **{k: in_float64(v) for k, v in keywords.items()})
                    except (RuntimeError, ValueError):
                        exact = expected
                    self.check(found, expected, [e for e in flat(exact) if has_values(e)], f"{name} {dtype}")
        floats = {n for n, d in refused if d.is_floating_point}
        self.assertEqual(floats, set(), "refused in floating types that torch takes")


if __name__ == "__main__":
    unittest.main()
