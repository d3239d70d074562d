"""Random operators: torch draws before the plan runs, in the order of the graph, so that torch.manual_seed() holds."""

import torch

from .table import aten

# operator -> (what to draw given the node's sizes, element type and device, what follows on Deft).


def draw_dropout(sizes, dtype, device, x, p, train):
    return torch.empty(sizes, dtype=torch.bool, device=device).bernoulli_(1 - p)


def draw_uniform(sizes, dtype, device, /, *args, **kwargs):
    return torch.rand(sizes, dtype=dtype, device=device)


def draw_normal(sizes, dtype, device, /, *args, **kwargs):
    return torch.randn(sizes, dtype=dtype, device=device)


def draw_coins(sizes, dtype, device, /, x, p=0.5, **kwargs):
    return torch.empty(sizes, dtype=dtype, device=device).bernoulli_(p)


def as_drawn(drawn, *args, **kwargs):
    return drawn


def dropout(mask, x, p, train):
    return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask


RANDOM = {
    aten.native_dropout.default: (draw_dropout, dropout),
    aten.rand.default: (draw_uniform, as_drawn),
    aten.randn.default: (draw_normal, as_drawn),
    aten.rand_like.default: (draw_uniform, as_drawn),
    aten.randn_like.default: (draw_normal, as_drawn),
    aten.randint.default: (lambda sizes, dtype, device, /, high, *a, **k: torch.randint(high, sizes, dtype=dtype, device=device),
                           as_drawn),
    aten.randint.low: (
        lambda sizes, dtype, device, /, low, high, *a, **k: torch.randint(low, high, sizes, dtype=dtype, device=device), as_drawn),
    aten.randperm.default: (lambda sizes, dtype, device, /, n, **k: torch.randperm(n, dtype=dtype, device=device), as_drawn),
    aten.normal_functional.default: (
        lambda sizes, dtype, device, /, x, mean=0.0, std=1.0, **k: torch.empty(sizes, dtype=dtype, device=device).normal_(mean, std),
        as_drawn),
    aten.uniform.default: (
        lambda sizes, dtype, device, /, x, low=0.0, high=1.0, **k: torch.empty(sizes, dtype=dtype, device=device).uniform_(low, high),
        as_drawn),
    aten.bernoulli.p: (draw_coins, as_drawn),
}
