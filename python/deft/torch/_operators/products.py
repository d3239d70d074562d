"""Products of matrices."""

import deft
import deft.nn.functional as F

from .pointwise import gradient
from .table import row


def is_turned(x):
    """The matrix whose transpose x is, if it is one: linear() takes weights so."""
    return x.dim() == 2 and x.stride()[0] == 1 and x.shape[1] > 1


def suits_linear(y):
    """On GPUs any matrix does as a weight; on CPUs one that linear() would pack from rows."""
    return is_turned(y) or y.device.type == "cuda"


@row("mm.default", rounds=(0, 1))
def mm(x, y):
    if suits_linear(y) and x.dtype == y.dtype:
        return F.linear(x, y.t())
    return deft.mm(x, y)


row("bmm.default", rounds=(0, 1))(lambda x, y: deft.bmm(x, y))


@row("addmm.default", rounds=(0, 1, 2))
def addmm(bias, x, y, beta=1, alpha=1):
    if beta == 1 and alpha == 1 and suits_linear(y) and bias.dim() == 1 and bias.shape[0] == y.shape[1]:
        return F.linear(x, y.t(), bias)
    return deft.addmm(bias, x, y, beta=beta, alpha=alpha)


@row("baddbmm.default", rounds=(0, 1, 2))
def baddbmm(bias, x, y, beta=1, alpha=1):
    return deft.baddbmm(bias, x, y, beta=beta, alpha=alpha)


row("addmv.default")(lambda bias, x, y, beta=1, alpha=1: deft.addmv(bias, x, y, beta=beta, alpha=alpha))
row("addbmm.default")(lambda bias, x, y, beta=1, alpha=1: deft.addbmm(bias, x, y, beta=beta, alpha=alpha))
row("addr.default")(lambda bias, x, y, beta=1, alpha=1: deft.addr(bias, x, y, beta=beta, alpha=alpha))
row("_cdist_forward.default")(lambda x, y, p, mode=None: deft.cdist(x, y, float(p)))
row("_cdist_backward.default")(lambda g, x, y, p, found: gradient(lambda t: deft.cdist(t, y, float(p)))(g, x))
row("mv.default")(lambda x, y: deft.mv(x, y))
row("dot.default")(lambda x, y: deft.dot(x, y))
