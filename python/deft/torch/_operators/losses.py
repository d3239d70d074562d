"""Losses of class numbers, forward and backward."""

import deft
import deft.nn.functional as F

from .pointwise import gradient
from .table import row

REDUCTIONS = ("none", "mean", "sum")


def total_weight(x, target, weight, reduction, ignore_index):
    if reduction == 0:
        return deft.zeros([], dtype=x.dtype)
    counts = target != ignore_index
    if weight is None:
        return counts.sum().to(x.dtype)
    return deft.where(counts, weight[deft.where(counts, target, 0)], 0).sum().to(x.dtype)


def loss_of(x, target, weight, reduction, ignore_index):
    return F.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])


@row("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(x, target, weight, reduction, ignore_index):
    return loss_of(x, target, weight, reduction, ignore_index), total_weight(x, target, weight, reduction, ignore_index)


@row("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(g, x, target, weight, reduction, ignore_index, total):
    return gradient(lambda t: loss_of(t, target, weight, reduction, ignore_index))(g, x)
