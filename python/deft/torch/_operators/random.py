"""Random operators: torch draws before the plan runs, in the order of the graph, so that torch.manual_seed() holds."""

import torch

from .table import aten

# operator -> (what to draw given the node's sizes and element type, what follows on Deft).


def draw_dropout(sizes, dtype, x, p, train):
    return torch.empty(sizes, dtype=torch.bool).bernoulli_(1 - p)


def dropout(mask, x, p, train):
    return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask


RANDOM = {
    aten.native_dropout.default: (draw_dropout, dropout),
    aten.rand.default: (lambda sizes, dtype, /, *a, **k: torch.rand(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.randn.default: (lambda sizes, dtype, /, *a, **k: torch.randn(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.rand_like.default: (lambda sizes, dtype, /, *a, **k: torch.rand(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.randn_like.default: (lambda sizes, dtype, /, *a, **k: torch.randn(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.randint.default: (lambda sizes, dtype, /, high, *a, **k: torch.randint(high, sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.randint.low: (lambda sizes, dtype, /, low, high, *a, **k: torch.randint(low, high, sizes, dtype=dtype),
                       lambda drawn, *a, **k: drawn),
    aten.randperm.default: (lambda sizes, dtype, /, n, **k: torch.randperm(n, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.normal_functional.default: (
        lambda sizes, dtype, /, x, mean=0.0, std=1.0, **k: torch.empty(sizes, dtype=dtype).normal_(mean, std),
        lambda drawn, *a, **k: drawn),
    aten.uniform.default: (
        lambda sizes, dtype, /, x, low=0.0, high=1.0, **k: torch.empty(sizes, dtype=dtype).uniform_(low, high),
        lambda drawn, *a, **k: drawn),
    aten.bernoulli.p: (lambda sizes, dtype, /, x, p=0.5, **k: torch.empty(sizes, dtype=dtype).bernoulli_(p),
                       lambda drawn, *a, **k: drawn),
}
