"""Masks of attention that hold no data, and those that look so and do hold some."""

import bridge_case  # starts a Python that has PyTorch, or skips

import unittest

import torch
import torch.nn.functional as F

import deft.torch
from deft.torch import _backend


def causal(n):
    at = torch.arange(n)
    return at[None, :] <= at[:, None]


def write_one(n):
    m = torch.ones(n, n, dtype=torch.bool).tril()
    m[0, 1] = True
    return m


def write_view(n):
    m = torch.ones(n, n, dtype=torch.bool).tril()
    m.view(-1)[1] = True
    return m


def write_in_place(n):
    m = torch.ones(n, n).tril().bool()
    m |= torch.arange(n) < 2
    return m


NOTHING_TO_READ = {  # how a mask is made -> what attention is told
    "causal": causal,
    "causal of four dimensions": lambda n: causal(n)[None, None].expand(2, 1, n, n),
    "causal as numbers": lambda n: torch.where(causal(n), 0.0, torch.finfo(torch.float32).min),
    "all": lambda n: torch.ones(1, n, dtype=torch.bool),
    "all of zeros": lambda n: torch.zeros(n, n),
}
TO_READ = {
    "a window": lambda n: causal(n) & (torch.arange(n)[None, :] > torch.arange(n)[:, None] - 3),
    "random": lambda n: torch.rand(n, n) < 2,
    "one value written": write_one,
    "a value of a view written": write_view,
    "written in place": write_in_place,
    "a bias": lambda n: torch.full((n, n), 0.5).tril(),
}


class Masks(unittest.TestCase):
    def run_with(self, make):
        """The arguments of the attention in the graph that AOTAutograd gets."""
        seen = []

        def watch(gm):
            seen.extend(dict(n.kwargs) for n in gm.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention))
            return keep(gm)

        keep, _backend._attention.keep_attention = _backend._attention.keep_attention, watch
        try:
            torch._dynamo.reset()
            q, k, v = (torch.randn(2, 3, 7, 8) for _ in range(3))

            def attend(q, k, v):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=make(q.shape[2]))

            found, expected = deft.torch.compile(attend)(q, k, v), attend(q, k, v)
        finally:
            _backend._attention.keep_attention = keep
        self.assertLessEqual((found - expected).abs().max().item(), 1e-5)
        return seen[0]

    def test_nothing_to_read(self):
        for name, make in NOTHING_TO_READ.items():
            with self.subTest(name):
                given = self.run_with(make)
                self.assertEqual((given["attn_mask"], given.get("is_causal", False)), (None, "causal" in name))

    def test_to_read(self):
        for name, make in TO_READ.items():
            with self.subTest(name):
                self.assertIsNotNone(self.run_with(make)["attn_mask"])

    def test_from_an_argument(self):
        def attend(x, mask):
            return F.scaled_dot_product_attention(x, x, x, mask & causal(5))

        fast = deft.torch.compile(attend)
        x = torch.randn(1, 2, 5, 4)
        for mask in (torch.ones(5, 5, dtype=torch.bool), torch.eye(5, dtype=torch.bool)):
            self.assertLessEqual((fast(x, mask) - attend(x, mask)).abs().max().item(), 1e-5)


if __name__ == "__main__":
    unittest.main()
