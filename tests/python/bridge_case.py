"""What the tests of the bridge share: comparisons with PyTorch, small models.

Bounds: where both sides compute the same sums in another order, Deft may be off from the same in float64 by FACTOR times
what torch's own type is off, where the least that counts is the rounding of the largest value."""

import unittest

from torch_python import need_torch

need_torch()

import torch
from torch import nn

import deft
import deft.torch

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


def wrapped(function):
    class Model(nn.Module):
        def forward(self, *args):
            return function(*args)

    return Model()
