"""torch.compile(model, backend="deft") against PyTorch itself: each operator of the table, small models, training loops.

Bounds: where both sides compute the same sums in another order, Deft may be off from the same in float64 by FACTOR times
what torch's own type is off, where the least that counts is the rounding of the largest value."""

import copy
import os
import pathlib
import sys
import tempfile
import threading
import unittest
import warnings

from torch_python import torch_python

python = torch_python()
if python is None:
    print("skipped: no PyTorch; ./dev torch installs it, or DEFT_TORCH_PYTHON names a Python of this version that has it")
    sys.exit(77)
if python != sys.executable:
    os.execv(python, [python, *sys.argv])

import torch
from torch import nn

import deft
import deft.torch
from deft.torch import _operators
from deft.torch._backend import Graph

FACTOR = 16
EPS = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-11}


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flat(v)]
    return []


def in_float64(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(in_float64(v) for v in value)
    return torch.float64 if value in (torch.float32, torch.bfloat16, torch.float16) else value


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def check(self, ours, theirs, exact, what=""):
        ours, theirs, exact = flat(ours), flat(theirs), flat(exact)
        self.assertEqual(len(ours), len(theirs), what)
        for a, b, e in zip(ours, theirs, exact):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype), what)
            if not b.is_floating_point():
                self.assertTrue(torch.equal(a, b), what)
            elif b.numel():
                self.assertTrue(torch.equal(a.isfinite(), b.isfinite()), f"{what}: other values are not finite")
                a, b, e = (torch.where(b.isfinite(), t.double(), 0) for t in (a, b, e))
                unit = max((b - e).abs().max().item(), 4 * EPS[theirs[0].dtype if theirs[0].dtype in EPS else torch.float32]
                           * e.abs().max().item())
                off = (a - e).abs().max().item()
                self.assertTrue(off <= FACTOR * unit, f"{what}: off by {off}, torch by {unit}")

    def explain(self, *args, **kwargs):
        return deft.torch.explain(*args, **kwargs)


# --- each operator

x = lambda *sizes: torch.randn(*sizes) if sizes else torch.randn(3, 5)
pos = lambda *sizes: torch.rand(*(sizes or (3, 5))) + 0.1
unit = lambda: torch.rand(3, 5) * 1.8 - 0.9
whole = lambda *sizes: torch.randint(-4, 5, sizes or (3, 5))
truth = lambda: torch.rand(3, 5) > 0.5
at = lambda n, *sizes: torch.randint(0, n, sizes)
f32 = torch.float32

# Operator -> calls: lists of (args, kwargs) or args. "unary" of x() where nothing is said.
SAMPLES = {
    "sqrt log log2 log10 log1p rsqrt reciprocal": lambda: [[pos()]],
    "asin acos atanh erfinv": lambda: [[unit()]],
    "acosh": lambda: [[pos() + 1]],
    "isnan isinf": lambda: [[torch.tensor([1.0, float("nan"), float("inf")])]],
    "logical_not": lambda: [[truth()], [x()]],
    "bitwise_not": lambda: [[truth()], [whole()]],
    "atan2 maximum minimum fmax fmin logaddexp copysign.Tensor hypot": lambda: [[x(), x()], [x(3, 1), x(5)]],
    "logical_and logical_or logical_xor": lambda: [[truth(), truth()]],
    "mul.Tensor add.Tensor sub.Tensor rsub.Tensor": lambda: [[x(), x()], [x(3, 1), x(1, 5)], [whole(), x()], [whole(), whole()]],
    "div.Tensor": lambda: [[x(), pos()], [whole(), pos(5)]],
    "fmod.Tensor remainder.Tensor": lambda: [[x(), pos()], [whole(), whole().abs() + 1]],
    "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor": lambda: [[whole(), whole()], [x(), x(5)]],
    "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor": lambda: [[whole(), whole()], [truth(), truth()]],
    "mul.Scalar add.Scalar sub.Scalar rsub.Scalar": lambda: [[x(), 2.5], [whole(), 3]],
    "div.Scalar": lambda: [[x(), 2.5], [whole(), 3]],
    "fmod.Scalar remainder.Scalar": lambda: [[x(), 1.5]],
    "eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar": lambda: [[whole(), 1], [x(), 0.5]],
    "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar": lambda: [[whole(), 3]],
    "addcmul addcdiv": lambda: [([x(), x(), pos()], {"value": 2.0})],
    "lerp.Scalar": lambda: [[x(), x(), 0.3]],
    "lerp.Tensor": lambda: [[x(), x(), x()]],
    "div.Tensor_mode": lambda: [([x(), pos()], {"rounding_mode": "floor"}), ([whole(), whole().abs() + 1], {"rounding_mode": "trunc"})],
    "div.Scalar_mode": lambda: [([whole(), 3], {"rounding_mode": "floor"})],
    "floor_divide": lambda: [[whole(), whole().abs() + 1]],
    "floor_divide.Scalar": lambda: [[whole(), 2]],
    "pow.Tensor_Scalar": lambda: [[pos(), 2.5], [x(), 2], [whole(), 2]],
    "pow.Scalar": lambda: [[2.0, x()]],
    "pow.Tensor_Tensor": lambda: [[pos(), x()]],
    "clamp": lambda: [[x(), -0.5, 0.5], [x(), None, 0.5]],
    "clamp.Tensor": lambda: [[x(), x(), x() + 3]],
    "clamp_min": lambda: [[x(), 0.1]],
    "clamp_min.Tensor clamp_max.Tensor": lambda: [[x(), x()]],
    "clamp_max": lambda: [[x(), 0.1]],
    "gelu": lambda: [[x()], ([x()], {"approximate": "tanh"})],
    "leaky_relu": lambda: [[x(), 0.2]],
    "softplus": lambda: [[x(), 1.0, 20.0], [x(), 2.0, 1.0]],
    "hardtanh": lambda: [[x(), 0.0, 0.5]],
    "threshold": lambda: [[x(), 0.1, 2.0]],
    "nan_to_num": lambda: [[torch.tensor([1.0, float("nan"), float("-inf")])]],
    "elu": lambda: [[x(), 0.7], [x(), 1.5, 1.2]],
    "where.self": lambda: [[truth(), x(), x()], [truth(), x(), torch.tensor(0.0)]],
    "where.ScalarOther": lambda: [[truth(), x(), 1.0]],
    "where.ScalarSelf": lambda: [[truth(), 1.0, x()]],
    "where.Scalar": lambda: [[truth(), 1.0, 2.0]],
    "masked_fill.Scalar": lambda: [[x(), truth(), -1.0]],
    "masked_fill.Tensor": lambda: [[x(), truth(), torch.tensor(2.0)]],
    "gelu_backward": lambda: [[x(), x()], ([x(), x()], {"approximate": "tanh"})],
    "silu_backward hardswish_backward hardsigmoid_backward mish_backward": lambda: [[x(), x()]],
    "tanh_backward": lambda: [[x(), unit()]],
    "sigmoid_backward": lambda: [[x(), pos()]],
    "hardtanh_backward": lambda: [[x(), x(), -0.5, 0.5]],
    "softplus_backward": lambda: [[x(), x(), 1.0, 20.0]],
    "threshold_backward": lambda: [[x(), x(), 0]],
    "leaky_relu_backward": lambda: [[x(), x(), 0.2, False]],
    "slice.Tensor": lambda: [[x(), 1, 1, 4], [x(), 0, -2, 1 << 63 - 1, 1], [x(), 1, 0, 5, 2]],
    "view _unsafe_view": lambda: [[x(4, 6), [2, -1]]],
    "reshape": lambda: [[x(4, 6).t(), [8, 3]]],
    "expand": lambda: [[x(3, 1), [2, 3, 4]]],
    "squeeze": lambda: [[x(3, 1, 2)]],
    "squeeze.dim": lambda: [[x(3, 1, 2), 1]],
    "squeeze.dims": lambda: [[x(1, 3, 1), [0, 2]]],
    "permute": lambda: [[x(2, 3, 4), [2, 0, 1]]],
    "transpose.int": lambda: [[x(2, 3, 4), 0, -1]],
    "unsqueeze": lambda: [[x(), -1]],
    "select.int": lambda: [[x(), 1, -2]],
    "diagonal": lambda: [[x(2, 4, 4), 1, 1, 2]],
    "split.Tensor": lambda: [[x(7, 2), 3]],
    "split_with_sizes": lambda: [[x(7, 2), [3, 4]]],
    "unbind.int": lambda: [[x(), 1]],
    "as_strided": lambda: [[x(4, 6), [3, 2], [6, 1], 2], [x(6, 4).t(), [3, 2], [1, 4]]],
    "as_strided_scatter": lambda: [[x(4, 6), x(3, 2), [3, 2], [6, 1], 2]],
    "unfold": lambda: [[x(8), 0, 3, 2]],
    "cat stack": lambda: [[[x(), x()], 1], [[whole(), whole()]]],
    "repeat": lambda: [[x(), [2, 1, 3]]],
    "flip": lambda: [[x(), [0, 1]]],
    "roll": lambda: [[x(), [2, 1], [0, 1]]],
    "constant_pad_nd": lambda: [[x(), [1, 2], 0.5], [x(), [-1, 1, 2, 0]]],
    "reflection_pad1d replication_pad1d": lambda: [[x(2, 3, 6), [2, 1]]],
    "reflection_pad2d replication_pad2d": lambda: [[x(2, 3, 6, 6), [2, 1, 1, 2]]],
    "clone": lambda: [[x()], ([x(2, 3, 4, 4)], {"memory_format": torch.channels_last})],
    "_to_copy": lambda: [([x()], {"dtype": torch.bfloat16}), ([whole()], {"dtype": f32}), ([x()], {"dtype": torch.int64})],
    "copy": lambda: [[x(), x(5)]],
    "slice_scatter": lambda: [[x(), x(3, 2), 1, 1, 3]],
    "select_scatter": lambda: [[x(), x(5), 0, 1]],
    "slice_backward": lambda: [[x(3, 2), [3, 5], 1, 1, 3, 1]],
    "select_backward": lambda: [[x(5), [3, 5], 0, 1]],
    "full": lambda: [([[2, 3], 1.5], {"dtype": f32}), [[2], True], [[2], 7]],
    "full_like": lambda: [[x(), 3]],
    "new_full": lambda: [[x(), [2], 1.5]],
    "scalar_tensor": lambda: [([2.0], {"dtype": f32})],
    "zeros ones": lambda: [([[2, 3]], {"dtype": f32})],
    "new_zeros new_ones": lambda: [[x(), [2]]],
    "arange.start_step": lambda: [[1, 8, 2], ([0.0, 1.0, 0.25], {"dtype": f32})],
    "arange.start": lambda: [[2, 6]],
    "arange": lambda: [[5]],
    "sum.dim_IntList mean.dim": lambda: [[x(2, 3, 4), [0, 2]], [x(), [1], True]],
    "amax amin": lambda: [[x(), [1], True], [x()]],
    "any all": lambda: [[truth()]],
    "any.dim all.dim": lambda: [[truth(), 1, True]],
    "any.dims all.dims": lambda: [[truth(), [0, 1]]],
    "argmax argmin": lambda: [[x()], [x(), 1, True]],
    "max.dim min.dim": lambda: [[x(), 1]],
    "prod.dim_int": lambda: [[x(), 1]],
    "cumsum cumprod": lambda: [[x(), 1], [whole(), 0], ([whole()[:, :2], 1], {"dtype": torch.int32})],
    "logsumexp": lambda: [[x(), [1]]],
    "var.correction var_mean.correction": lambda: [([x(), [1]], {"correction": 0, "keepdim": True}), ([x(), [0, 1]], {})],
    "linalg_vector_norm": lambda: [[x(), 2, [1]], [x(), 1]],
    "topk": lambda: [[x(), 2]],
    "mm": lambda: [[x(3, 4), x(4, 5)], [x(3, 4), x(5, 4).t()]],
    "bmm": lambda: [[x(2, 3, 4), x(2, 4, 5)], [x(2, 3, 4), x(2, 5, 4).mT]],
    "addmm": lambda: [[x(5), x(3, 4), x(5, 4).t()], ([x(3, 5), x(3, 4), x(4, 5)], {"beta": 0.5, "alpha": 2})],
    "baddbmm": lambda: [([x(2, 3, 5), x(2, 3, 4), x(2, 4, 5)], {"alpha": 0.5})],
    "mv": lambda: [[x(3, 4), x(4)]],
    "dot": lambda: [[x(4), x(4)]],
    "convolution": lambda: [
        [x(2, 4, 7, 7), x(6, 4, 3, 3), x(6), [2, 2], [1, 1], [1, 1], False, [0, 0], 1],
        [x(2, 4, 7, 7), x(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4],
        [x(2, 4, 9), x(6, 4, 3), x(6), [1], [2], [2], False, [0], 1],
        [x(2, 4, 5, 5), x(4, 6, 3, 3), x(6), [2, 2], [1, 1], [1, 1], True, [1, 1], 1]],
    "convolution_backward": lambda: [
        [x(2, 6, 4, 4), x(2, 4, 7, 7), x(6, 4, 3, 3), [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]],
        [x(2, 4, 7, 7), x(2, 4, 7, 7), x(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [True, True, False]],
        [x(2, 6, 10, 10), x(2, 4, 5, 5), x(4, 6, 3, 3), [6], [2, 2], [1, 1], [1, 1], True, [1, 1], 1, [True, True, True]]],
    "max_pool2d_with_indices": lambda: [[x(2, 3, 7, 7), [3, 3], [2, 2], [1, 1]]],
    "max_pool2d_with_indices_backward": lambda: [max_pool_backward()],
    "avg_pool1d": lambda: [[x(2, 3, 8), [2]]],
    "avg_pool2d": lambda: [[x(2, 3, 7, 7), [3, 3], [2, 2], [1, 1], True, False]],
    "avg_pool3d": lambda: [[x(1, 2, 4, 4, 4), [2, 2, 2]]],
    "avg_pool2d_backward": lambda: [[x(2, 3, 4, 4), x(2, 3, 7, 7), [3, 3], [2, 2], [1, 1], False, True, None]],
    "_adaptive_avg_pool2d": lambda: [[x(2, 3, 7, 7), [2, 3]]],
    "_adaptive_avg_pool3d": lambda: [[x(1, 2, 4, 5, 6), [2, 2, 2]]],
    "_adaptive_avg_pool2d_backward": lambda: [[x(2, 3, 2, 3), x(2, 3, 7, 7)]],
    "adaptive_max_pool2d": lambda: [[x(2, 3, 7, 7), [2, 3]]],
    "upsample_nearest1d": lambda: [[x(2, 3, 4), [8]]],
    "upsample_nearest2d": lambda: [[x(2, 3, 4, 4), [8, 8]]],
    "native_layer_norm": lambda: [[x(2, 3, 8), [8], x(8), x(8), 1e-5], [x(2, 3, 8), [3, 8], None, None, 1e-5]],
    "native_layer_norm_backward": lambda: [[x(2, 3, 8), x(2, 3, 8), [8], x(2, 3, 1), pos(2, 3, 1), x(8), x(8), [True, True, True]]],
    "native_group_norm": lambda: [[x(2, 6, 4, 4), x(6), x(6), 2, 6, 16, 3, 1e-5]],
    "native_group_norm_backward": lambda: [[x(2, 6, 4, 4), x(2, 6, 4, 4), x(2, 3), pos(2, 3), x(6), 2, 6, 16, 3, [True] * 3]],
    "_native_batch_norm_legit_no_training": lambda: [[x(4, 3, 5), x(3), x(3), x(3), pos(3), 0.1, 1e-5]],
    "_native_batch_norm_legit_functional": lambda: [[x(4, 3, 5), x(3), x(3), x(3), pos(3), True, 0.1, 1e-5]],
    "_native_batch_norm_legit.no_stats": lambda: [[x(4, 3, 5), x(3), x(3), True, 0.1, 1e-5]],
    "native_batch_norm_backward": lambda: [
        [x(4, 3, 5), x(4, 3, 5), x(3), x(3), pos(3), x(3), pos(3), True, 1e-5, [True] * 3],
        [x(4, 3, 5), x(4, 3, 5), x(3), x(3), pos(3), x(3), pos(3), False, 1e-5, [True] * 3]],
    "_softmax _log_softmax": lambda: [[x(), 1, False]],
    "_safe_softmax": lambda: [[x(), 1]],
    "_softmax_backward_data _log_softmax_backward_data": lambda: [[x(), x().softmax(1), 1, f32]],
    "_scaled_dot_product_flash_attention_for_cpu": lambda: [
        [x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8)], [x(2, 3, 5, 8), x(2, 3, 5, 8), x(2, 3, 5, 8), 0.0, True]],
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda: [attention_backward(False), attention_backward(True)],
    "_transformer_encoder_layer_fwd": lambda: [encoder_layer(False, True), encoder_layer(True, False)],
    "nll_loss_forward": lambda: [[x(6, 5), at(5, 6), None, 1, -100], [x(6, 5), at(5, 6), pos(5), 1, 2],
                                 [x(6, 5), at(5, 6), pos(5), 2, 0]],
    "nll_loss2d_forward": lambda: [[x(2, 5, 3, 4), at(5, 2, 3, 4), pos(5), 1, 2]],
    "nll_loss_backward": lambda: [nll_backward([6], None, 1), nll_backward([6], pos(5), 1), nll_backward([6], pos(5), 2),
                                  nll_backward([6], pos(5), 0)],
    "nll_loss2d_backward": lambda: [nll_backward([2, 3, 4], pos(5), 1)],
    "embedding": lambda: [[x(9, 4), at(9, 2, 3)], [x(9, 4), at(9, 5).int()]],
    "embedding_dense_backward": lambda: [[x(2, 3, 4), at(9, 2, 3), 9, -1, False], [x(2, 3, 4), at(9, 2, 3), 9, 2, False]],
    "gather": lambda: [[x(), 1, at(5, 3, 2)]],
    "scatter.value": lambda: [[x(), 1, at(5, 3, 1), 2.0]],
    "scatter.src": lambda: [[x(), 0, at(3, 1, 5), x(1, 5)]],
    "scatter_add": lambda: [[x(), 1, at(5, 3, 2), x(3, 2)]],
    "index_select": lambda: [[x(), 1, at(5, 4)]],
    "index.Tensor _unsafe_index.Tensor": lambda: [[x(3, 5, 2), [at(3, 4), at(5, 4)]], [x(3, 5, 2), [None, at(5, 4)]]],
    "index_put _unsafe_index_put": lambda: [[x(), [at(3, 4)], x(4, 5), True], [x(), [None, at(5, 4)], x(3, 4), True],
                                              [x(2, 3, 5), [at(2, 4), None, at(5, 4)], x(4, 3), True],
                                              [x(2, 3, 5), [None, at(3, 4), at(5, 4)], x(4), True]],
}
# Rows that need no sample of their own: others show the same, or the result holds whatever was there.
NO_SAMPLE = {"empty.memory_format", "new_empty_strided", "empty_like", "new_empty", "empty_permuted", "lift_fresh", "lift_fresh_copy", "log_sigmoid_forward"}


def encoder_layer(use_gelu, norm_first):
    return [x(2, 5, 8), 8, 2, x(24, 8), x(24), x(8, 8), x(8), use_gelu, norm_first, 1e-5, x(8), x(8), x(8), x(8), x(16, 8), x(16),
            x(8, 16), x(8)]


def max_pool_backward():
    image = x(2, 3, 7, 7)
    y, indices = torch.ops.aten.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1])
    return [torch.randn_like(y), image, [3, 3], [2, 2], [1, 1], [1, 1], False, indices]


def nll_backward(sizes, weight, reduction):
    given, target = x(sizes[0], 5, *sizes[1:]), at(5, *sizes)
    forward = torch.ops.aten.nll_loss_forward if len(sizes) == 1 else torch.ops.aten.nll_loss2d_forward
    loss, total = forward(given, target, weight, reduction, 2)
    return [torch.randn_like(loss), given, target, weight, reduction, 2, total]


def attention_backward(causal):
    q, k, v = x(2, 3, 5, 8), x(2, 5, 3, 8).transpose(1, 2), x(2, 3, 5, 8)
    y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return [torch.randn_like(y), q, k, v, y, sums, 0.0, causal]


def calls_of(name):
    for names, make in SAMPLES.items():
        if name in names.split():
            return [c if isinstance(c, tuple) else (c, {}) for c in make()]
    return [([x()], {})] if not name.count(".") else None


def name_of(operator):
    return str(operator).removeprefix("aten.").removesuffix(".default")


class Operators(Case):
    def run_on_deft(self, operator, args, kwargs):
        """The operator alone in a graph: captured, then by its plan."""
        tensors, form = torch.utils._pytree.tree_flatten((list(args), kwargs))
        places = [i for i, t in enumerate(tensors) if isinstance(t, torch.Tensor)]
        graph = torch.fx.Graph()
        values = list(tensors)
        for i in places:
            values[i] = graph.placeholder(f"t{i}")
            values[i].meta["val"] = tensors[i]
        node_args, node_kwargs = torch.utils._pytree.tree_unflatten(values, form)
        node = graph.call_function(operator, tuple(node_args), node_kwargs)
        node.meta["val"] = expected = operator(*args, **kwargs)
        results = [node]
        if isinstance(expected, (tuple, list)):
            results = []
            for i, e in enumerate(expected):
                if e is not None and e.numel():
                    results.append(graph.call_function(__import__("operator").getitem, (node, i)))
                    results[-1].meta["val"] = e
        graph.output(tuple(results))
        compiled = Graph(torch.fx.GraphModule(torch.nn.Module(), graph), "inference", set(), None)
        self.assertEqual(list(compiled.reasons.values()), [])
        for _ in range(2):
            found = compiled([tensors[i] for i in places])
        self.assertEqual((compiled.refused, list(compiled.reasons.values())), ({}, []))
        expected = [e for e in (expected if isinstance(expected, (tuple, list)) else [expected]) if e is not None and e.numel()]
        return found, expected

    def test_each_row(self):
        missing = []
        for operator in _operators.TABLE:
            name = name_of(operator)
            if name in NO_SAMPLE:
                continue
            calls = calls_of(name)
            if calls is None:
                missing.append(name)
                continue
            for args, kwargs in calls:
                with self.subTest(name, args=[list(t.shape) for t in flat(args)]):
                    found, expected = self.run_on_deft(operator, args, kwargs)
                    exact = operator(*in_float64(args), **{k: in_float64(v) for k, v in kwargs.items()})
                    exact = [e for e in flat(exact) if e.numel()] if not isinstance(exact, torch.Tensor) else [exact]
                    self.check(found, expected, exact, name)
                    for a, b in zip(found, expected):
                        if name not in ("reshape",) and b.numel() > 1:
                            self.assertEqual([s for n, s in zip(b.shape, a.stride()) if n > 1],
                                             [s for n, s in zip(b.shape, b.stride()) if n > 1], f"{name}: other strides")
        self.assertEqual(missing, [], "rows of the table without a sample")


# --- models

class Block(nn.Module):
    """A GPT: token and position embeddings, causal attention, tied head."""

    def __init__(self, vocabulary=50, width=32, heads=4, layers=1, drop=0.0):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))

    def forward(self, ids):
        h = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for i in range(len(self.qkv)):
            q, k, v = self.qkv[i](self.norms[2 * i](h)).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + self.out[i](y.transpose(1, 2).flatten(2))
            y = nn.functional.gelu(self.up[i](self.norms[2 * i + 1](h)))
            h = h + self.down[i](nn.functional.dropout(y, self.drop, self.training))
        return self.norms[-1](h) @ self.tokens.weight.t()


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 5))


def cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, groups=4), nn.BatchNorm2d(16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(16, 5))


MODELS = {
    "mlp": (mlp, lambda: torch.randn(8, 16)),
    "cnn": (cnn, lambda: torch.randn(4, 3, 12, 12)),
    "cnn, channels last": (lambda: cnn().to(memory_format=torch.channels_last),
                           lambda: torch.randn(4, 3, 12, 12).contiguous(memory_format=torch.channels_last)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), lambda: torch.randn(3, 7, 32)),
    "gpt": (Block, lambda: torch.randint(0, 50, (2, 9))),
    "gpt with dropout": (lambda: Block(drop=0.3), lambda: torch.randint(0, 50, (2, 9))),
    "upsampling": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2), nn.GroupNorm(2, 4), nn.LeakyReLU(), nn.AvgPool2d(2)),
                   lambda: torch.randn(2, 3, 5, 5)),
}


IN_INFERENCE = ("mlp", "cnn", "encoder layer", "gpt")
IN_TRAINING = ("cnn", "cnn, channels last", "encoder layer", "gpt with dropout", "upsampling")


def bridged(model, record=None):
    return torch.compile(model, backend=lambda gm, inputs, **k: deft.torch.backend(gm, inputs, record=record, **k))


def wholly(record):
    return all(not graph.reasons for graph in record)


def state_after(model, call, inputs):
    torch.manual_seed(3)
    y = call(inputs)
    loss = y.square().mean()
    loss.backward()
    return [y.detach(), loss.detach()] + [p.grad for p in model.parameters()] + [b for b in model.buffers() if b.is_floating_point()]


class Models(Case):
    def test_inference(self):
        for name in IN_INFERENCE:
            make, inputs = MODELS[name]
            with self.subTest(name), torch.no_grad():
                model, given, record = make().eval(), inputs(), []
                exact = copy.deepcopy(model).double()(in_float64(given))
                fast = bridged(model, record)
                for _ in range(3):
                    self.check(fast(given), model(given), exact, name)
                self.assertTrue(wholly(record), [g.reasons for g in record])

    def test_training_step(self):
        for name in IN_TRAINING:
            make, inputs = MODELS[name]
            with self.subTest(name):
                model, given, record = make().train(), inputs(), []
                plain, exact = copy.deepcopy(model), copy.deepcopy(model).double()
                fast = bridged(model, record)
                for _ in range(2):  # the captures, and the plans
                    for m in (model, plain, exact):
                        m.zero_grad()
                    ours, theirs = state_after(model, fast, given), state_after(plain, plain, given)
                    self.check(ours, theirs, state_after(exact, exact, in_float64(given)), name)
                self.assertTrue(wholly(record), [g.reasons for g in record])
                self.assertEqual(len(record), 2)

    def losses(self, model, optimizer, call, data, target):
        found = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(call(data), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    def test_training_loops_agree(self):
        for make_optimizer in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=0.01)):
            model = mlp()
            plain = copy.deepcopy(model)
            data, target = torch.randn(32, 16), torch.randint(0, 5, (32,))
            ours = self.losses(model, make_optimizer(model.parameters()), bridged(model), data, target)
            theirs = self.losses(plain, make_optimizer(plain.parameters()), plain, data, target)
            self.assertLess(theirs[-1], 0.8 * theirs[0])
            for a, b in zip(ours, theirs):
                self.assertTrue(abs(a - b) <= 1e-4 * abs(b), (ours, theirs))

    def test_parts_are_joined(self):
        def function(a):
            q, k, v = a[0], a[1], a[2]
            left, right = a[..., :3], a[..., 3:]
            return (q * k + v).sum() + (left.exp().sum() * right.sin().sum())

        record = []
        fast = bridged(function, record)
        given, plain = (torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
        fast(given).backward()
        function(plain).backward()
        torch.testing.assert_close(given.grad, plain.grad)
        targets = {str(n.target) for n in record[-1].gm.graph.nodes}
        self.assertIn("aten.stack.default", targets)
        self.assertNotIn("aten.select_backward.default", targets)

    def test_heads_are_split_without_copies(self):
        """Batch and heads that a model joins and splits again, and parts that are stacked and turned, forward and backward."""
        def function(a):
            q, k, v = a.view(7, 2, 3, 12).permute(2, 0, 1, 3)
            q, k, v = (t.reshape(7, 8, 3).transpose(0, 1).reshape(2, 4, 7, 3) for t in (q, k, v))
            return nn.functional.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3).reshape(14, 12)

        record = []
        fast, given = bridged(function, record), torch.randn(7, 2, 36, requires_grad=True)
        plain, exact = given.detach().clone().requires_grad_(), given.detach().double().requires_grad_()
        for _ in range(2):
            for x in (given, plain, exact):
                x.grad = None
            results = [f(x) for f, x in ((fast, given), (function, plain), (function, exact))]
            for y in results:
                y.square().sum().backward()
            self.check([results[0], given.grad], [results[1], plain.grad], [results[2], exact.grad])
        self.assertTrue(wholly(record), [g.reasons for g in record])
        before = record[0].regions[0].bridge.explain().split("scaled_dot_product_attention")[0]
        self.assertNotIn(" = clone(", before)

    def test_saved_tensors_reach_torch_as_it_traced_them(self):
        """The backward pass runs in torch, and views what the forward pass of Deft left with channels innermost."""
        model, given = cnn().train(), torch.randn(4, 3, 12, 12)
        plain, exact, record = copy.deepcopy(model), copy.deepcopy(model).double(), []
        backward = torch.ops.aten.native_batch_norm_backward.default
        row = _operators.TABLE.pop(backward)
        try:
            fast = bridged(model, record)
            for _ in range(2):
                for m in (model, plain, exact):
                    m.zero_grad()
                self.check(state_after(model, fast, given), state_after(plain, plain, given),
                           state_after(exact, exact, given.double()))
            self.assertEqual([bool(g.reasons) for g in record], [False, True])
        finally:
            _operators.TABLE[backward] = row

    def test_copies_of_what_is_written_stay(self):
        def function(a):
            before = a.clone()
            a.add_(1)
            return before, a * 2

        fast = bridged(function)
        for _ in range(3):
            given = torch.zeros(3)
            before, after = fast(given)
            self.assertEqual((before.tolist(), after.tolist(), given.tolist()), ([0.0] * 3, [2.0] * 3, [1.0] * 3))

    def test_memory_formats(self):
        """Results lie as torch's do, in inference and training."""
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
        fast = bridged(model)
        for form in (torch.contiguous_format, torch.channels_last):
            given = torch.randn(2, 3, 8, 8).contiguous(memory_format=form).requires_grad_()
            for grad in (True, False):
                with torch.set_grad_enabled(grad):
                    for _ in range(2):
                        ours, theirs = fast(given), model(given)
                        self.assertEqual(ours.stride(), theirs.stride())
                        torch.testing.assert_close(ours, theirs)

    def test_threads_are_torchs(self):
        before = torch.get_num_threads()
        fast = bridged(mlp())
        try:
            for n in (1, 2):
                torch.set_num_threads(n)
                fast(torch.randn(2, 16))
                self.assertEqual(deft.get_num_threads(), n)
        finally:
            torch.set_num_threads(before)

    def test_lstm(self):
        model, given = nn.LSTM(6, 8, batch_first=True), torch.randn(2, 5, 6)
        fast = bridged(model)
        with torch.no_grad():
            for a, b in zip(flat(fast(given)), flat(model(given))):
                torch.testing.assert_close(a, b)

    def test_autocast_stays_in_its_types(self):
        model, given, record = mlp(), torch.randn(8, 16), []
        fast = bridged(model, record)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, theirs = fast(given), model(given)
        self.assertEqual((ours.dtype, theirs.dtype), (torch.bfloat16, torch.bfloat16))
        self.check([ours], [theirs], [model(given)])
        ours.float().sum().backward()
        self.assertTrue(wholly(record), [g.reasons for g in record])

    def test_sizes_that_change(self):
        model, record = cnn().eval(), []
        fast = bridged(model, record)
        with torch.no_grad():
            for n in (4, 7, 3, 1, 7, 4):
                given = torch.randn(n, 3, 12, 12)
                torch.testing.assert_close(fast(given), model(given))
        train = bridged(mlp())
        for n in (4, 7, 3):
            given = torch.randn(n, 16)
            loss = train(given).square().sum()
            loss.backward()


class State(Case):
    """What the user does between calls."""

    def test_weights_that_change(self):
        model, given = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), torch.randn(32, 64)
        fast = bridged(model)

        def check(what):
            with torch.no_grad():
                for _ in range(3):
                    torch.testing.assert_close(fast(given), model(given), msg=what)

        check("the first calls")
        with torch.no_grad():
            model[0].weight.mul_(2)
        check("a write in place")
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
        check("load_state_dict")
        model[0].weight.data = torch.randn(64, 64)
        check("another memory")
        model[0].weight.data.copy_(torch.randn(64, 64))
        check("a write that counts no version")
        model[2].bias = nn.Parameter(torch.randn(8))
        check("another parameter")
        for k in range(5):
            with torch.no_grad():
                model[0].weight.add_(0.1)
            check(f"write {k}")

    def test_folded_batch_norm_follows(self):
        model, given = cnn().eval(), torch.randn(2, 3, 12, 12)
        fast = bridged(model)
        with torch.no_grad():
            for k in range(6):
                for _ in range(2):
                    torch.testing.assert_close(fast(given), model(given))
                model[1].running_mean.add_(0.5)
                model[4].weight.mul_(1.1)

    def test_buffers_are_written(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(3))

            def forward(self, x):
                self.seen.add_(x.sum(0))
                return x * self.seen

        for grad in (True, False):
            model = Counter()
            plain = copy.deepcopy(model)
            fast, before = bridged(model), model.seen._version
            for _ in range(3):
                given = torch.randn(2, 3, requires_grad=grad)
                with torch.set_grad_enabled(grad):
                    torch.testing.assert_close(fast(given), plain(given))
                torch.testing.assert_close(model.seen, plain.seen)
            self.assertGreaterEqual(model.seen._version, before + 3)

    def test_inputs_are_written(self):
        fast = bridged(lambda a: a.add_(1).mul(2))
        for _ in range(3):
            given = torch.zeros(3)
            version = given._version
            torch.testing.assert_close(fast(given), torch.full((3,), 2.0))
            torch.testing.assert_close(given, torch.ones(3))
            self.assertGreater(given._version, version)

    def test_results_are_the_callers(self):
        fast = bridged(mlp())
        with torch.no_grad():
            a = fast(torch.ones(2, 16))
            kept = a.clone()
            b = fast(torch.zeros(2, 16))
            self.assertTrue(torch.equal(a, kept))
            self.assertFalse(torch.equal(a, b))
            del a, b
            view = fast(torch.ones(2, 16))[1:]
            fast(torch.zeros(2, 16))
            torch.testing.assert_close(view, kept[1:])

    def test_modes(self):
        model, given = mlp(), torch.randn(2, 16)
        fast = bridged(model)
        self.assertTrue(fast(given).requires_grad)
        with torch.no_grad():
            self.assertFalse(fast(given).requires_grad)
        with torch.inference_mode():
            y = fast(given)
            self.assertTrue(y.is_inference())
            torch.testing.assert_close(y, model(given))

    def test_random_numbers_follow_torch(self):
        model, given = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3)), torch.randn(4, 8)
        fast = bridged(model)
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            ours = fast(given), torch.rand(1)
            torch.manual_seed(seed)
            theirs = model(given), torch.rand(1)
            torch.testing.assert_close(ours, theirs)

    def test_threads(self):
        model, given = cnn().eval(), torch.randn(2, 3, 12, 12)
        fast, wrong = bridged(model), []
        with torch.no_grad():
            expected = model(given)

        def work():
            with torch.no_grad():
                for _ in range(20):
                    if not torch.allclose(fast(given), expected, atol=1e-5):
                        wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Torch(Case):
    """What Deft lacks runs in torch and is said."""

    def test_by_name(self):
        model, given = mlp(), torch.randn(2, 16)
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(model, backend="deft")(given), model(given))

    def test_unknown_options_are_errors(self):
        with self.assertRaisesRegex(Exception, "found an option 'freezin', expected one of .*; the nearest is 'freezing'"):
            torch.compile(lambda a: a + 1, backend="deft", options={"freezin": True})(torch.ones(2))
        with self.assertRaisesRegex(ValueError, "the nearest is 'precision'"):
            deft.torch.compile(mlp(), precison="bf16")
        for wrong in ({"precision": "f8"}, {"freezing": 1}, {"plans": 0}):
            with self.assertRaisesRegex(ValueError, f"deft.torch: found {next(iter(wrong))}="):
                deft.torch.compile(mlp(), **wrong)

    def test_precision(self):
        """Products are rounded, results keep their types, forward and backward."""
        model, given = mlp(), torch.randn(8, 16)
        plain = copy.deepcopy(model)
        fast = deft.torch.compile(model, precision="bf16")
        for _ in range(2):
            model.zero_grad()
            y = fast(given)
            y.square().sum().backward()
        z = plain(given)
        z.square().sum().backward()
        self.assertEqual(y.dtype, torch.float32)
        for ours, theirs in [(y, z)] + [(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters())]:
            off = ((ours - theirs).abs().max() / theirs.abs().max()).item()
            self.assertTrue(2.0**-16 < off < 2.0**-4, off)

    def test_freezing(self):
        """No call looks at the weights: one that the model got later is not seen."""
        model, given = cnn().eval(), torch.randn(4, 3, 12, 12)
        fast = deft.torch.compile(model, freezing=True)
        with torch.no_grad():
            before = model(given)
            for _ in range(2):
                torch.testing.assert_close(fast(given), before)
            model[4].weight = nn.Parameter(torch.zeros(16, 2, 3, 3))
            torch.testing.assert_close(fast(given), before)
            self.assertFalse(torch.allclose(model(given), before))

    def test_plans_are_bounded(self):
        record = []
        fast = torch.compile(lambda a: a.exp() + 1, backend=lambda gm, inputs, **k: deft.torch.backend(
            gm, inputs, record=record, options={"plans": 2}, **k), dynamic=True)
        for n in (4, 5, 6, 7, 7, 6):
            torch.testing.assert_close(fast(torch.ones(n, 3)), torch.ones(n, 3).exp() + 1)
        stats = record[-1].regions[0].bridge.stats()
        self.assertEqual((len(record), stats["plans"], stats["captures"], stats["replays"]), (1, 2, 4, 2))

    def test_parts_run_in_torch(self):
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)

            def forward(self, x):
                return self.norm(self.b(torch.special.i0(self.a(x)).relu())) + torch.special.i0(x)

        model, given = Mixed(), torch.randn(4, 8)
        plain, exact, record = copy.deepcopy(model), copy.deepcopy(model).double(), []
        fast = bridged(model, record)
        for _ in range(3):
            ours, theirs = state_after(model, fast, given), state_after(plain, plain, given)
            self.check(ours, theirs, state_after(exact, exact, given.double()))
        self.assertTrue(all(g.regions and g.reasons for g in record))
        said = deft.torch.explain(model, given)
        self.assertIn("aten.i0.default", str(said))
        self.assertEqual(said.to_dict()["graphs"], 2)
        self.assertTrue(0 < said.share < 1 and 0 < said.time_share < 1)
        self.assertTrue(all(r["why"] for r in said.rows if r["where"] == "torch"))

    def test_explain_leaves_the_model_alone(self):
        model = cnn()
        before = copy.deepcopy(model.state_dict())
        said = deft.torch.explain(model, torch.randn(4, 3, 12, 12))
        self.assertEqual((said.share, said.breaks), (1.0, {}))
        self.assertTrue(all(p.grad is None for p in model.parameters()))
        for k, v in model.state_dict().items():
            self.assertTrue(torch.equal(v, before[k]), k)

    def test_complex_numbers_run_in_torch(self):
        fast = bridged(lambda a: torch.fft.rfft(a).abs() + a.sum())
        given = torch.randn(8)
        for _ in range(2):
            torch.testing.assert_close(fast(given), torch.fft.rfft(given).abs() + given.sum())

    def test_tensors_in_the_graph(self):
        table = torch.randn(4)

        def function(a):
            return a + torch.tensor([1.0, 2.0, 3.0, 4.0]) * table

        fast, given = bridged(function), torch.randn(4)
        for _ in range(2):
            torch.testing.assert_close(fast(given), function(given))

    def test_another_type_runs_in_torch(self):
        fast = bridged(lambda a: a * 2)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                self.assertEqual(fast(torch.ones(3, dtype=torch.int16)).dtype, torch.int16)
        self.assertEqual(sum("int16" in str(w.message) for w in said), 1)

    def test_faults_of_rows_are_survived(self):
        gelu = torch.ops.aten.gelu.default
        row = _operators.TABLE[gelu]
        try:
            for broken in (lambda x, approximate="none": x.nothing(), lambda x, approximate="none": x.double(),
                           lambda x, approximate="none": x[:1]):
                torch._dynamo.reset()
                _operators.TABLE[gelu] = broken
                record = []
                fast = bridged(lambda a: nn.functional.gelu(a + 1) * 2, record)
                given = torch.randn(3, 4)
                for _ in range(2):
                    torch.testing.assert_close(fast(given), nn.functional.gelu(given + 1) * 2)
                self.assertEqual(len(record[0].refused), 1)
        finally:
            _operators.TABLE[gelu] = row

    def test_errors_are_torchs(self):
        fast = bridged(nn.Embedding(4, 2))
        with torch.no_grad():
            self.assertEqual(tuple(fast(torch.tensor([1, 3])).shape), (2, 2))
            with self.assertRaises(IndexError):
                fast(torch.tensor([1, 9]))
            self.assertEqual(tuple(fast(torch.tensor([1, 3])).shape), (2, 2))

    def test_without_the_table_of_functions(self):
        """As with a torch that has no __dlpack_c_exchange_api__."""
        table = torch.Tensor.__dlpack_c_exchange_api__ if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") else None
        model, given = cnn(), torch.randn(4, 3, 12, 12)
        plain = copy.deepcopy(model)
        deft._C._bridge_library(None, torch.utils.dlpack.from_dlpack)
        try:
            self.assertFalse(deft._C._bridge_uses_table())
            fast = bridged(model)
            for _ in range(2):
                for a, b in zip(state_after(model, fast, given), state_after(plain, plain, given)):
                    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        finally:
            deft._C._bridge_library(table, torch.utils.dlpack.from_dlpack)

    def test_import_deft_does_not_import_torch(self):
        import subprocess

        code = "import sys, deft, deft.nn, deft.optim; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)


class Export(Case):
    """Models as files that run without torch."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model.plan")

    def exported(self, model, *given, **options):
        self.assertEqual(deft.torch.export(model, given, path=self.path, **options), self.path)
        return deft.load_plan(self.path)

    def check_plan(self, plan, model, *given):
        with torch.no_grad():
            ours = plan(*(deft.from_dlpack(t) for t in given))
            ours = [torch.from_dlpack(t) for t in (ours if isinstance(ours, tuple) else [ours])]
            exact = copy.deepcopy(model).double()(*in_float64(list(given)))
            self.check(ours, flat(model(*given)), flat(exact))
        return ours

    def test_models(self):
        for name in IN_INFERENCE:
            with self.subTest(name):
                make, inputs = MODELS[name]
                model, given = make().eval(), inputs()
                plan = self.exported(model, given)
                self.assertEqual(plan.name, type(model).__name__)
                self.check_plan(plan, model, given)
                with self.assertRaisesRegex(ValueError, "no plan of the file serves"):
                    plan(deft.from_dlpack(given[:1]))

    def test_several_inputs_and_results(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)
                self.b = nn.Linear(4, 4)
                self.b.weight = self.a.weight

            def forward(self, x, y, scale):
                return self.a(x) * scale, self.b(y), x, y[1:]

        model, given = Two(), (torch.randn(3, 4), torch.randn(2, 4), torch.tensor(2.0))
        self.check_plan(self.exported(model, *given, name="two"), model, *given)

    def test_several_sizes(self):
        model = cnn().eval()
        given = [torch.randn(n, 3, 12, 12) for n in (4, 1, 7)]
        plan = self.exported(model, given[0], dynamic_shapes=({0: torch.export.Dim.AUTO},), more_args=[(g,) for g in given[1:]])
        for g in given:
            self.check_plan(plan, model, g)
        with self.assertRaisesRegex(ValueError, "no plan of the file serves"):
            plan(deft.from_dlpack(torch.randn(5, 3, 12, 12)))

    def test_weights_are_in_the_file(self):
        model, given = mlp(), torch.randn(8, 16)
        plan = self.exported(model, given)
        before = model(given).detach()
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        torch.testing.assert_close(torch.from_dlpack(plan(deft.from_dlpack(given))), before)

    def test_the_command_line_gives_the_same_bits(self):
        """C++ alone, by `deft infer`: the file is its only input."""
        import json
        import subprocess

        program = pathlib.Path(deft.__file__).parents[2] / "bin/deft"
        if not program.exists():
            self.skipTest("deft's command line is not built")
        model, given = cnn().eval(), torch.randn(6, 3, 12, 12)
        plan = self.exported(model, given)
        (ours,) = self.check_plan(plan, model, given)
        array = os.path.join(self.folder.name, "pictures.npy")
        __import__("numpy").save(array, given.numpy())
        run = subprocess.run([program, "infer", "--plan", self.path, "-i", array, "--top", "5", "--logits", "-o", "json"],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = json.loads(run.stdout)["results"]
        self.assertEqual(len(rows), 30)
        for row in rows:
            self.assertEqual(row["logit"], ours[row["case"], row["class"]].item())

    def test_what_no_plan_holds(self):
        given = torch.randn(4, 3, 12, 12)
        for model, why in ((cnn(), "a model that writes .*running_mean.*call model.eval"),
                           (nn.Sequential(nn.Dropout()), "it draws random numbers"),
                           (wrapped(torch.special.i0), "found aten.i0.default.*Deft has no such operator"),
                           (wrapped(lambda t: (t, 3)), "found a result 3, expected tensors only")):
            with self.subTest(why), self.assertRaisesRegex(deft.torch.ExportError, why):
                deft.torch.export(model, (given,), path=self.path)
        self.assertFalse(os.path.exists(self.path))


def wrapped(function):
    class Model(nn.Module):
        def forward(self, *args):
            return function(*args)

    return Model()


if __name__ == "__main__":
    unittest.main()
