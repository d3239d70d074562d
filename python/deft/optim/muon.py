"""Muon: momentum whose matrix is made nearly orthogonal."""

import math

from .. import _C
from .._C import functions as _functions
from .optimizer import Optimizer, _check


def _orthogonalized(matrix, coefficients, eps, steps):
    """Singular values brought near 1 by a polynomial of the matrix, applied `steps` times, in bfloat16."""
    a, b, c = coefficients
    x = matrix.bfloat16()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.t()
    x = x / x.norm().clamp_min(eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x if wide else x.t()


class Muon(Optimizer):
    """For matrices; embeddings, biases and output layers want AdamW."""

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315),
                 eps=1e-7, ns_steps=5, adjust_lr_fn=None):
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                                      ns_coefficients=tuple(ns_coefficients), eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}")

    def _update(self, group):
        momentum, scale = group["momentum"], group["adjust_lr_fn"]
        with _C.no_grad():
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, grad = self.state[p], p.grad.detach()
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = _functions.zeros_like(p.detach())
                average = state["momentum_buffer"].mul_(momentum).add_(grad, alpha=1 - momentum)
                step = grad * (1 - momentum) + average * momentum if group["nesterov"] else average
                step = _orthogonalized(step, group["ns_coefficients"], group["eps"], group["ns_steps"])
                rows, columns = p.shape
                factor = 0.2 * math.sqrt(max(rows, columns)) if scale == "match_rms_adamw" else math.sqrt(max(1, rows / columns))
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(step.to(p.dtype), alpha=-group["lr"] * factor)
