"""Reductions, running results, order and histograms."""

import math
from collections import namedtuple

from .. import _C
from .._C import Tensor
from .joining import atleast_2d

_f, _ops = _C.functions, _C.ops
_Histogram = namedtuple("histogram", ["hist", "bin_edges"])


def _values_repr(self):
    return f"deft.return_types.{type(self).__name__}(\nvalues={self.values!r},\nindices={self.indices!r})"


_Pair = type(_f.zeros(1).sort())  # what max(), sort() and topk() give
_Pair.__repr__ = _values_repr


def _ValuesIndices(values, indices):
    return _Pair((values, indices))


def _dims(dim):
    return (dim,) if isinstance(dim, int) else tuple(dim)


def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean of what is not NaN."""
    count = input.isnan().logical_not().sum(dim, keepdim=keepdim) if dim is not None else input.isnan().logical_not().sum()
    total = input.nansum() if dim is None else input.nansum(dim, keepdim=keepdim)
    result = total / count
    return result if dtype is None else result.to(dtype)


def nanquantile(input, q, dim=None, keepdim=False):
    """quantile() of what is not NaN."""
    if not bool(input.isnan().any()):
        return input.quantile(q, dim, keepdim)
    flat = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    rows = flat.reshape(-1, flat.shape[-1])
    parts = [row[row.isnan().logical_not()] for row in rows.unbind(0)]
    results = [p.quantile(q) if p.numel() else p.new_full(q.shape if isinstance(q, Tensor) else (), math.nan) for p in parts]
    result = _f.stack(results, -1)
    result = result.reshape((*result.shape[:-1], *flat.shape[:-1]))
    if keepdim and dim is not None:
        result = result.unsqueeze(dim if dim < 0 else dim + result.ndim - len(flat.shape[:-1]))
    return result


def nanmedian(input, dim=None, keepdim=False):
    """median() of what is not NaN."""
    if dim is None:
        return input[input.isnan().logical_not()].median()
    count = input.isnan().logical_not().sum(dim, keepdim=True)
    ordered = input.sort(dim)  # NaN comes last
    at = ((count - 1) // 2).clamp_min(0)
    values, indices = ordered.values.gather(dim, at), ordered.indices.gather(dim, at)
    return _ValuesIndices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


def kthvalue(input, k, dim=-1, keepdim=False):
    """The k-th smallest."""
    if not 1 <= k <= input.shape[dim]:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    ordered = input.sort(dim)
    values, indices = ordered.values.narrow(dim, k - 1, 1), ordered.indices.narrow(dim, k - 1, 1)
    return _ValuesIndices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


def mode(input, dim=-1, keepdim=False):
    """The value that is there most often; of several the smallest."""
    ordered = input.sort(dim, stable=True)
    x = ordered.values.movedim(dim, -1)
    places = _f.arange(x.shape[-1])
    new = _f.cat([_f.ones_like(x[..., :1], dtype=_C.bool), x[..., 1:] != x[..., :-1]], -1)
    start = cummax(_ops.where(new, places, 0), -1).values
    best = (places - start).argmax(-1, keepdim=True)
    values, indices = x.gather(-1, best), ordered.indices.movedim(dim, -1).gather(-1, best)
    if keepdim:
        return _ValuesIndices(values.movedim(-1, dim), indices.movedim(-1, dim))
    return _ValuesIndices(values.squeeze(-1), indices.squeeze(-1))


def msort(input):
    """Rows in order of their values."""
    return input.sort(0).values


def _running(input, dim, better):
    """Values and places of the best so far: in steps of 1, 2, 4, ..."""
    with _C.no_grad():
        x = input.detach().movedim(dim, -1)
        places = _f.arange(x.shape[-1]).expand(x.shape)
        step = 1
        while step < x.shape[-1]:
            before, here = x[..., :-step], x[..., step:]
            keep = better(before, here)
            x = _f.cat([x[..., :step], _ops.where(keep, before, here)], -1)
            places = _f.cat([places[..., :step], _ops.where(keep, places[..., :-step], places[..., step:])], -1)
            step *= 2
        places = places.movedim(-1, dim).contiguous()
    return _ValuesIndices(input.gather(dim, places), places)


def cummax(input, dim):
    """The largest so far."""
    return _running(input, dim, lambda before, here: (before > here) | (before.isnan() & here.isnan().logical_not()))


def cummin(input, dim):
    """The smallest so far."""
    return _running(input, dim, lambda before, here: (before < here) | (before.isnan() & here.isnan().logical_not()))


def logcumsumexp(input, dim):
    """log of the running sum of exponentials."""
    x, step = input.movedim(dim, -1), 1
    while step < x.shape[-1]:
        x = _f.cat([x[..., :step], _ops.logaddexp(x[..., :-step], x[..., step:])], -1)
        step *= 2
    return x.movedim(-1, dim)


def _segments(y, x, dx, dim):
    last, n = y.movedim(dim, -1), y.shape[dim]
    height = (last[..., 1:] + last[..., :-1]) / 2
    if x is None:
        return height * (1 if dx is None else dx)
    across = x if x.ndim == 1 else x.movedim(dim, -1)
    if across.shape[-1] != n:
        raise RuntimeError(f"trapezoid: x has {across.shape[-1]} points and y {n}; they must be as many")
    return height * (across[..., 1:] - across[..., :-1])


def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The area under points."""
    return _segments(y, x, dx, dim).sum(-1)


def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The area under points, up to each."""
    return _segments(y, x, dx, dim).cumsum(-1).movedim(-1, dim)


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Differences with both neighbours, of one kind at the edges."""
    if edge_order != 1:
        raise NotImplementedError("gradient: edge_order=2 is not supported")
    dims = tuple(range(input.ndim)) if dim is None else _dims(dim)
    spaces = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    results = []
    for d, h in zip(dims, spaces):
        x = input.movedim(d, -1)
        if isinstance(h, Tensor):
            near, far = h[1:-1] - h[:-2], h[2:] - h[1:-1]
            a, b, c = -far / (near * (near + far)), (far - near) / (near * far), near / (far * (near + far))
            middle = a * x[..., :-2] + b * x[..., 1:-1] + c * x[..., 2:]
            first, last = (x[..., 1:2] - x[..., :1]) / (h[1] - h[0]), (x[..., -1:] - x[..., -2:-1]) / (h[-1] - h[-2])
        else:
            middle, first, last = (x[..., 2:] - x[..., :-2]) / (2 * h), (x[..., 1:2] - x[..., :1]) / h, (x[..., -1:] - x[..., -2:-1]) / h
        results.append(_f.cat([first, middle, last], -1).movedim(-1, d))
    return tuple(results)


def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariances of rows."""
    x = atleast_2d(input)
    weights = None
    for w in (fweights, aweights):
        weights = w if weights is None else weights if w is None else weights * w
    if weights is None:
        centred, total = x - x.mean(1, keepdim=True), x.shape[1] - correction
        weighted = centred
    else:
        total_weight = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total_weight
        extra = (weights * aweights).sum() / total_weight if aweights is not None else 1
        total, weighted = total_weight - correction * extra, centred * weights
    result = weighted @ centred.t() / total
    return result.reshape(()) if input.ndim < 2 else result


def corrcoef(input):
    """The correlations of rows."""
    c = cov(input)
    if c.ndim == 0:
        return c / c
    scale = c.diagonal().sqrt()
    return (c / scale.unsqueeze(1) / scale.unsqueeze(0)).clamp(-1, 1)


def bincount(input, weights=None, minlength=0):
    """How often each number is there."""
    size = max(int(input.max().item()) + 1 if input.numel() else 0, minlength)
    if weights is None:
        return _f.zeros(size, dtype=_C.int64).scatter_add(0, input.long(), _f.ones_like(input, dtype=_C.int64))
    return _f.zeros(size, dtype=weights.dtype if weights.is_floating_point() else _C.float64).scatter_add(0, input.long(), weights)


def histc(input, bins=100, min=0, max=0):
    """How many elements are in each of the bins."""
    low, high = (min, max) if (min, max) != (0, 0) else (input.min().item(), input.max().item())
    if low == high:
        low, high = low - 1, high + 1
    inside = input[(input >= low) & (input <= high)].reshape(-1)
    places = ((inside - low) * (bins / (high - low))).floor().clamp(0, bins - 1).long()
    return bincount(places, minlength=bins).to(input.dtype)


def histogram(input, bins, *, range=None, weight=None, density=False):
    """Elements by bin, and the edges of the bins."""
    if isinstance(bins, Tensor):
        edges = bins
    else:
        low, high = range if range is not None else (input.min().item(), input.max().item())
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = _f.linspace(low, high, bins + 1, dtype=input.dtype)
    count = edges.shape[0] - 1
    flat = input.reshape(-1)
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    places = (searchsorted(edges, flat[inside], right=True) - 1).clamp(0, count - 1)
    weights = _f.ones_like(flat)[inside] if weight is None else weight.reshape(-1)[inside]
    hist = bincount(places, weights, count).to(input.dtype)
    return _Histogram(hist / (hist.sum() * edges.diff()) if density else hist, edges)


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where values belong in an ordered sequence."""
    if side is not None:
        right = side == "right"
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    values = input if isinstance(input, Tensor) else _f.tensor(input, dtype=sorted_sequence.dtype)
    x = values.reshape(1) if values.ndim == 0 else values
    n = sorted_sequence.shape[-1]
    row = sorted_sequence if sorted_sequence.ndim > 1 else None
    low = _f.zeros(x.shape, dtype=_C.int64)
    high = _f.full(x.shape, n, dtype=_C.int64)
    for _ in range(n.bit_length()):  # halves what is left
        middle = (low + high) // 2
        at = middle.clamp_max(n - 1)
        found = sorted_sequence[at] if row is None else row.gather(-1, at)
        further = ((found <= x) if right else (found < x)) & (low < high)
        low, high = _ops.where(further, middle + 1, low), _ops.where(further, high, middle)
    result = low.reshape(values.shape)
    return result.int() if out_int32 else result


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the bucket of each value."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Without repetitions of what came just before."""
    x = input.reshape(-1) if dim is None else input.movedim(dim, 0)
    if x.shape[0] == 0:
        kept, inverse = x, _f.zeros((0,), dtype=_C.int64)
    else:
        differs = (x[1:] != x[:-1]).reshape(x.shape[0] - 1, -1).any(1)
        new = _f.cat([_f.ones(1, dtype=_C.bool), differs])
        kept, inverse = x[new], new.long().cumsum(0) - 1
    values = kept if dim is None else kept.movedim(0, dim)
    results = [values]
    if return_inverse:
        results.append(inverse.reshape(input.shape) if dim is None else inverse)
    if return_counts:
        results.append(bincount(inverse, minlength=kept.shape[0]))
    return results[0] if len(results) == 1 else tuple(results)
