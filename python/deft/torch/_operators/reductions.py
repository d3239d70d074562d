"""Reductions and running sums."""

import deft

from .table import row


@row("sum.dim_IntList", "sum.default")
def sum_(x, dim=None, keepdim=False, dtype=None):
    return deft.sum(x, dim or None, keepdim, dtype=dtype)


@row("mean.dim", "mean.default")
def mean(x, dim=None, keepdim=False, dtype=None):
    return deft.mean(x, dim or None, keepdim, dtype=dtype)


@row("amax.default")
def amax(x, dim=(), keepdim=False):
    return deft.amax(x, dim or None, keepdim)


@row("amin.default")
def amin(x, dim=(), keepdim=False):
    return deft.amin(x, dim or None, keepdim)


row("any.default")(lambda x: deft.any(x))
row("any.dim", "any.dims")(lambda x, dim=None, keepdim=False: deft.any(x, dim, keepdim))
row("all.default")(lambda x: deft.all(x))
row("all.dim", "all.dims")(lambda x, dim=None, keepdim=False: deft.all(x, dim, keepdim))


def running_type(x):
    return x.dtype if x.dtype.is_floating_point else deft.int64


row("max.default")(lambda x: deft.amax(x) if x.dtype != deft.bool else deft.any(x))
row("min.default")(lambda x: deft.amin(x) if x.dtype != deft.bool else deft.all(x))
row("argmax.default")(lambda x, dim=None, keepdim=False: deft.argmax(x, dim, keepdim))
row("argmin.default")(lambda x, dim=None, keepdim=False: deft.argmin(x, dim, keepdim))
row("max.dim")(lambda x, dim, keepdim=False: tuple(deft.max(x, dim, keepdim)))
row("min.dim")(lambda x, dim, keepdim=False: tuple(deft.min(x, dim, keepdim)))
row("prod.default")(lambda x, dtype=None: deft.prod(x, None, False, dtype=dtype))
row("prod.dim_int")(lambda x, dim, keepdim=False, dtype=None: deft.prod(x, dim, keepdim, dtype=dtype))
row("cumsum.default")(lambda x, dim, dtype=None: deft.cumsum(x, dim, dtype=dtype).to(dtype or running_type(x)))
row("cumprod.default")(lambda x, dim, dtype=None: deft.cumprod(x, dim, dtype=dtype).to(dtype or running_type(x)))
row("logsumexp.default")(lambda x, dim, keepdim=False: deft.logsumexp(x, dim, keepdim))


@row("var.correction")
def var(x, dim=None, correction=1, keepdim=False):
    return deft.var(x, dim, keepdim=keepdim, correction=1.0 if correction is None else float(correction))


@row("var_mean.correction")
def var_mean(x, dim=None, correction=1, keepdim=False):
    return deft.var_mean(x, dim, keepdim=keepdim, correction=1.0 if correction is None else float(correction))


@row("linalg_vector_norm.default")
def vector_norm(x, ord=2, dim=None, keepdim=False, dtype=None):
    return deft.norm(x.to(dtype) if dtype else x, float(ord), dim, keepdim)


@row("dist.default")
def dist(x, y, p=2):
    return deft.norm(x - y, float(p))


row("topk.default")(lambda x, k, dim=-1, largest=True, sorted=True: tuple(deft.topk(x, k, dim, largest, sorted)))
