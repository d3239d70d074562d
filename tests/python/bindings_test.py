"""Every op of the library is bound, and what is bound has a signature and a text."""

import importlib
import inspect
import unittest

import deft
from deft import _C

# Ops that have no function of their own, and why.
NO_FUNCTION = {
    "elementwise_chain": "made by compile()",
    "fused_rows": "made by compile()",
    "fused_linear": "made by compile()",
    "fused_convolution": "made by compile()",
    "fused_batch_norm": "made by compile()",
    "fused_batch_norm_backward": "made by compile()",
    "conv_backward_weight": "the gradient of convolutions",
    "as_strided_scatter": "the gradient of as_strided",
    "masked_unpack": "the gradient of masked_select",
    "linear_index": "a part of indexing",
    "pair_loss": "what the losses of two tensors are made of",
    "index": "x[...]",
}


class Bindings(unittest.TestCase):
    def test_every_op_is_bound(self):
        bound = {op for _, op, _ in _C._entries()}
        missing = [n for n in _C._op_names() if n not in bound and n not in NO_FUNCTION and not n.endswith("_backward")]
        self.assertEqual(missing, [], "ops without a binding: add a line to python/src/bind_*.cpp")

    def test_exceptions_exist_and_are_not_bound(self):
        bound, names = {op for _, op, _ in _C._entries()}, set(_C._op_names())
        for name in NO_FUNCTION:
            self.assertNotIn(name, bound)
            self.assertIn(name, names)
        composed = {"isclose", "allclose", "equal", "nan_to_num"}
        self.assertEqual(bound - names - composed, set(), "bound for an op that is not in the table")

    def test_signatures_can_be_read(self):
        for name, function in vars(_C.ops).items():
            if name.startswith("__"):
                continue
            self.assertIsNotNone(inspect.signature(function), name)
        self.assertEqual(str(inspect.signature(deft.softmax)), "(input, dim, dtype=None)")
        self.assertEqual(str(inspect.signature(deft.Tensor.softmax)), "(self, /, dim, dtype=None)")

    def test_everything_public_is_described(self):
        places = [("deft.Tensor", deft.Tensor), *((m, importlib.import_module(m)) for m in (
            "deft", "deft.nn", "deft.nn.functional", "deft.nn.init", "deft.nn.utils", "deft.nn.utils.rnn", "deft.optim",
            "deft.optim.lr_scheduler", "deft.optim.swa_utils", "deft.amp", "deft.autograd", "deft.utils.data", "deft.cuda", "deft.linalg",
            "deft.special", "deft.safetensors", "deft.profiler", "deft.random"))]
        bare = [f"{where}.{name}" for where, place in places for name in dir(place)
                if not name.startswith("_") and callable(getattr(place, name)) and not (getattr(place, name).__doc__ or "").strip()]
        self.assertEqual(bare, [])
        bare = [name for name, f in vars(_C.ops).items() if callable(f) and not f.__doc__]
        self.assertEqual(bare, [], "bound without a sentence in python/src/descriptions.cpp")

    def test_methods_and_functions_are_where_the_table_says(self):
        for signature, _, where in _C._entries():
            name = signature.split("(")[0]
            if where & 1:
                self.assertTrue(hasattr(deft, name), signature)
            if where & 2:
                self.assertTrue(hasattr(deft.Tensor, name), signature)
            if where & 4:
                self.assertTrue(hasattr(deft.nn.functional, name), signature)


if __name__ == "__main__":
    unittest.main()
