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
    aten.bernoulli.p: (lambda sizes, dtype, /, x, p=0.5, **k: torch.empty(sizes, dtype=dtype).bernoulli_(p),
                       lambda drawn, *a, **k: drawn),
}
