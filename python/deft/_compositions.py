"""Functions and methods of torch's that are compositions of the library's; what they are made of records their gradients."""

import itertools
import math
from collections import namedtuple

from . import _C
from ._C import Tensor

_f, _ops = _C.functions, _C.ops
_Histogram = namedtuple("histogram", ["hist", "bin_edges"])


def _values_repr(self):
    return f"deft.return_types.{type(self).__name__}(\nvalues={self.values!r},\nindices={self.indices!r})"


_Pair = type(_f.zeros(1).sort())  # what max(), sort() and topk() give
_Pair.__repr__ = _values_repr


def _ValuesIndices(values, indices):
    return _Pair((values, indices))


def _listed(tensors):
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def _dims(dim):
    return (dim,) if isinstance(dim, int) else tuple(dim)


# --- Products
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * the sum of the products of a batch."""
    return beta * input + alpha * (batch1 @ batch2).sum(0)


def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * mat @ vec."""
    return beta * input + alpha * (mat @ vec)


def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta * input + alpha * the outer product."""
    return beta * input + alpha * _f.outer(vec1, vec2)


def chain_matmul(*matrices):
    """The product of several matrices."""
    result, *rest = _listed(matrices)
    for matrix in rest:
        result = result @ matrix
    return result


def inner(input, other):
    """Sums over the last dimension of both."""
    return input * other if input.ndim == 0 or other.ndim == 0 else _ops._tensordot(input, other, [input.ndim - 1], [other.ndim - 1])


def vdot(input, other):
    """The dot product of two vectors."""
    return input.dot(other)


def kron(input, other):
    """Every element of input times all of other."""
    n = max(input.ndim, other.ndim)
    a, b = (x.reshape((1,) * (n - x.ndim) + tuple(x.shape)) for x in (input, other))
    wide = a.reshape([s for size in a.shape for s in (size, 1)]) * b.reshape([s for size in b.shape for s in (1, size)])
    return wide.reshape([p * q for p, q in zip(a.shape, b.shape)])


def matrix_power(input, n):
    """A square matrix times itself."""
    if n < 0:
        return matrix_power(inverse(input), -n)
    result = None
    while n:
        if n & 1:
            result = input if result is None else result @ input
        input, n = input @ input, n >> 1
    return _f.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand_as(input).clone() if result is None else result


def cross(input, other, dim=None):
    """The vector that stands on both."""
    if dim is None:
        dim = next((i for i, size in enumerate(input.shape) if size == 3), -1)
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(f"cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}")
    a, b = input.unbind(dim), other.unbind(dim)
    return _f.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], dim)


def inverse(input):
    """The inverse of square matrices."""
    from .linalg import inv

    return inv(input)


def det(input):
    """The determinant of square matrices."""
    from . import linalg

    return linalg.det(input)


def logdet(input):
    """The logarithm of the determinant."""
    return det(input).log()


def trace(input):
    """The sum of the diagonal."""
    return input.diagonal().sum()


def cdist(x1, x2, p=2.0, compute_mode=None):
    """Distances between all rows of the one and of the other."""
    return _ops.norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def dist(input, other, p=2):
    """The norm of the difference."""
    return (input - other).norm(p)


def renorm(input, p, dim, maxnorm):
    """Each part along dim scaled down to a norm of at most maxnorm."""
    others = [d for d in range(input.ndim) if d != dim % input.ndim]
    norms = _ops.norm(input, p, others, True)
    return input * _ops.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


# --- Joining and cutting
def atleast_1d(*tensors):
    """Numbers as vectors; several give a tuple."""
    return _each(tensors, lambda t: t.reshape(1) if t.ndim == 0 else t)


def atleast_2d(*tensors):
    """At least two dimensions, the new ones in front."""
    return _each(tensors, lambda t: t if t.ndim >= 2 else t.reshape(1, -1))


def atleast_3d(*tensors):
    """At least three dimensions."""
    return _each(tensors, lambda t: t if t.ndim >= 3 else t.unsqueeze(-1) if t.ndim == 2 else t.reshape(1, -1, 1))


def _each(tensors, function):
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    return tuple(function(t) for t in _listed(tensors))


def column_stack(tensors):
    """Vectors as columns beside matrices."""
    return _f.cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors], 1)


def dstack(tensors):
    """Tensors behind each other."""
    return _f.cat(list(atleast_3d(*tensors)) if len(tensors) > 1 else [atleast_3d(tensors[0])], 2)


def block_diag(*tensors):
    """Matrices along the diagonal of one matrix."""
    parts = [atleast_2d(t) for t in _listed(tensors)]
    width = sum(p.shape[1] for p in parts)
    rows, start = [], 0
    for p in parts:
        rows.append(_C.functional.pad(p, (start, width - start - p.shape[1])))
        start += p.shape[1]
    return _f.cat(rows)


def tensor_split(input, indices_or_sections, dim=0):
    """Parts that need not be of one size: their number, or where to cut."""
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    size = input.shape[dim]
    if isinstance(indices_or_sections, int):
        least, more = divmod(size, indices_or_sections)
        cuts = list(itertools.accumulate(least + (i < more) for i in range(indices_or_sections)))[:-1]
    else:
        cuts = list(indices_or_sections)
    ends = [range(size)[slice(0, c)].stop for c in cuts] + [size]
    return tuple(input.narrow(dim, start, max(end - start, 0)) for start, end in zip([0, *ends], ends))


def hsplit(input, indices_or_sections):
    """Columns apart."""
    return tensor_split(input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input, indices_or_sections):
    """Rows apart."""
    return tensor_split(input, indices_or_sections, 0)


def dsplit(input, indices_or_sections):
    """The third dimension apart."""
    return tensor_split(input, indices_or_sections, 2)


def split_with_sizes(input, split_sizes, dim=0):
    """Parts of these sizes."""
    return input.split(list(split_sizes), dim)


def cartesian_prod(*tensors):
    """All choices of one element of each."""
    tensors = _listed(tensors)
    grid = [g.reshape(-1) for g in _ops._meshgrid(tensors, "ij")]
    return grid[0] if len(grid) == 1 else _f.stack(grid, 1)


def combinations(input, r=2, with_replacement=False):
    """All choices of r elements."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    return input[_f.tensor(rows, dtype=_C.int64)] if rows else input.new_empty((0, r))


def fliplr(input):
    """Columns in the opposite order."""
    return input.flip(1)


def flipud(input):
    """Rows in the opposite order."""
    return input.flip(0)


def rot90(input, k=1, dims=(0, 1)):
    """Turned by k quarters."""
    a, b = dims
    k %= 4
    if k == 0:
        return input.clone()
    if k == 2:
        return input.flip(a, b)
    return input.flip(b).transpose(a, b) if k == 1 else input.flip(a).transpose(a, b)


def diagflat(input, offset=0):
    """The elements on the diagonal of a matrix."""
    return input.reshape(-1).diag(offset)


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """The last dimension on the diagonals of matrices."""
    size = input.shape[-1] + abs(offset)
    result = input.new_zeros((*input.shape[:-1], size, size))
    result.diagonal(offset, -2, -1).copy_(input)
    n = result.ndim
    order = list(range(n - 2))
    for where, which in sorted(((dim1 % n, n - 2), (dim2 % n, n - 1))):
        order.insert(where, which)
    return result.permute(order)


def _scattered(input, part, src):
    result = input.clone()
    part(result).copy_(src)
    return result


def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy with src on the diagonal."""
    return _scattered(input, lambda t: t.diagonal(offset, dim1, dim2), src)


def select_scatter(input, src, dim, index):
    """A copy with src at one place of a dimension."""
    return _scattered(input, lambda t: t.select(dim, index), src)


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy with src in a slice."""
    return _scattered(input, lambda t: t[(slice(None),) * (dim % t.ndim) + (slice(start, end, step),)], src)


# --- Elements
def deg2rad(input):
    """Degrees as radians."""
    return input * (math.pi / 180)


def rad2deg(input):
    """Radians as degrees."""
    return input * (180 / math.pi)


def float_power(input, exponent):
    """A power, computed in float64."""
    wide = lambda x: x.double() if isinstance(x, Tensor) else x
    return _ops.pow(input.double() if isinstance(input, Tensor) else _f.tensor(input, dtype=_C.float64), wide(exponent))


def heaviside(input, values):
    """0 below zero, 1 above, values at zero."""
    return _ops.where(input == 0, values, (input > 0).to(input.dtype))


def ldexp(input, other):
    """input * 2**other."""
    return input * _ops.pow(_f.full_like(other, 2, dtype=input.dtype if input.is_floating_point() else _C.get_default_dtype()), other)


def logaddexp2(input, other):
    """log2(2**input + 2**other)."""
    ln2 = math.log(2)
    return _ops.logaddexp(input * ln2, other * ln2) / ln2


def logit(input, eps=None):
    """log(x / (1 - x))."""
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def sinc(input):
    """sin(pi x) / (pi x)."""
    x = input * math.pi
    zero = input == 0
    return _ops.where(zero, 1.0, x.sin() / x.masked_fill(zero, 1.0))


def sgn(input):
    """The sign."""
    return input.sign()


def signbit(input):
    """Whether the sign is set, also of -0.0."""
    return _ops.copysign(_f.ones_like(input, dtype=None if input.is_floating_point() else _C.float32), input.float() if not input.is_floating_point() else input) < 0


def positive(input):
    """The tensor itself."""
    return input


def real(input):
    """The real part: the tensor itself."""
    return input


def conj(input):
    """The conjugate: the tensor itself."""
    return input


def adjoint(input):
    """The last two dimensions swapped."""
    return input.transpose(-2, -1)


def isneginf(input):
    """Which are -inf."""
    return input == -math.inf if input.is_floating_point() else _f.zeros_like(input, dtype=_C.bool)


def isposinf(input):
    """Which are inf."""
    return input == math.inf if input.is_floating_point() else _f.zeros_like(input, dtype=_C.bool)


def isreal(input):
    """True everywhere."""
    return _f.ones_like(input, dtype=_C.bool)


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Which elements are among the others."""
    as_tensor = lambda x: x if isinstance(x, Tensor) else _f.tensor(x)
    found = (as_tensor(elements).unsqueeze(-1) == as_tensor(test_elements).reshape(-1)).any(-1)
    return found.logical_not() if invert else found


def gcd(input, other):
    """The greatest common divisor."""
    a, b = _ops.abs(input), _ops.abs(other)
    a, b = a + b * 0, b + a * 0
    while bool((b != 0).any()):
        a, b = _ops.where(b != 0, b, a), _ops.where(b != 0, a.remainder(b.masked_fill(b == 0, 1)), b)
    return a


def lcm(input, other):
    """The least common multiple."""
    d = gcd(input, other)
    return (input * other).abs() // d.masked_fill(d == 0, 1)


def fill(input, value):
    """The same shape, filled."""
    return input.clone().fill_(value)


def is_nonzero(input):
    """Whether the one element is not zero."""
    if input.numel() != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no values' if input.numel() == 0 else 'more than one value'} is ambiguous")
    return bool(input)


def is_signed(input):
    """Whether the type has negative numbers."""
    return input.dtype.is_signed


_round = _f.round


def round(input, *, decimals=0):
    """To the nearest number with this many decimals."""
    if decimals == 0:
        return _round(input)
    scale = 10.0**decimals
    return _round(input * scale) / scale


# --- Reductions and running results
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


# --- Indexing
def index_copy(input, dim, index, source):
    """A copy with the slices of source at these places."""
    return input.clone().index_copy_(dim, index, source)


def index_fill(input, dim, index, value):
    """A copy with slices filled."""
    return input.clone().index_fill_(dim, index, value)


def index_put(input, indices, values, accumulate=False):
    """A copy with values at these indices."""
    return input.clone().index_put_(indices, values, accumulate)


def masked_scatter(input, mask, source):
    """A copy with the elements of source, in order, where mask is true."""
    mask = mask.expand_as(input) if mask.shape != input.shape else mask
    if mask.sum().item() > source.numel():
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes and mask to have at most {source.numel()} true elements")
    place = (mask.reshape(-1).long().cumsum(0) - 1).clamp_min(0).reshape(mask.shape)
    return _ops.where(mask, source.reshape(-1)[place], input) if source.numel() else input.clone()


_repeat_interleave = _f.repeat_interleave


def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Elements repeated, all as often or each by its own number."""
    if repeats is None:
        input, repeats, dim = _f.arange(input.shape[0]), input, 0
    if not isinstance(repeats, Tensor):
        return _repeat_interleave(input, repeats, dim)
    if dim is None:
        input, dim = input.reshape(-1), 0
    ends = repeats.reshape(-1).expand(input.shape[dim]).cumsum(0)
    total = int(ends[-1]) if ends.shape[0] else 0
    return input.index_select(dim, searchsorted(ends, _f.arange(total), right=True))


def take_along_dim(input, indices, dim=None):
    """gather() of what broadcasts."""
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    dim %= input.ndim
    shape = [max(a, b) if i != dim else None for i, (a, b) in enumerate(zip(input.shape, indices.shape))]
    wide = lambda t: t.expand([t.shape[dim] if s is None else s for s in shape])
    return wide(input).gather(dim, wide(indices))


def put(input, index, source, accumulate=False):
    """A copy with values at these places of the flat tensor."""
    return input.clone().put_(index, source, accumulate)


def unravel_index(indices, shape):
    """Flat places as one index per dimension."""
    results = []
    for size in reversed(tuple(shape)):
        results.append(indices % size)
        indices = indices // size
    return tuple(reversed(results))


# --- Tensors from nothing
def empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False):
    """A tensor with these steps in memory, not filled."""
    count = 1 + sum((s - 1) * t for s, t in zip(size, stride)) if all(size) else 0
    return _f.empty(count, dtype=dtype, device=device).as_strided(size, stride).requires_grad_(requires_grad)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False):
    """Powers of a base, evenly spaced in the exponent."""
    exponents = _f.linspace(start, end, steps, dtype=_C.float64)
    result = _ops.pow(_f.full_like(exponents, base), exponents).to(dtype or _C.get_default_dtype())
    return (result if device is None else result.to(device)).requires_grad_(requires_grad)


def range_(start=0, end=None, step=1, **options):
    """arange() with the end included."""
    if end is None:
        start, end = 0, start
    options.setdefault("dtype", _C.get_default_dtype())
    return _f.arange(start, end + step * 1e-6 + (step if (end - start) % step == 0 else 0) * 0.5, step, **options)


def normal(mean, std=1.0, size=None, *, generator=None, dtype=None, device=None, requires_grad=False):
    """Draws from normal distributions."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        like = mean + std * 0 if isinstance(mean, Tensor) else std
        return _f.empty(like.shape, dtype=like.dtype).normal_(generator=generator) * std + mean
    return _f.empty(size or (), dtype=dtype, device=device).normal_(mean, std, generator=generator).requires_grad_(requires_grad)


def poisson(input, generator=None):
    """Draws from Poisson distributions: by counting exponential waits, for means below some hundred."""
    result, product, limit = _f.zeros_like(input), _f.ones_like(input), (-input.double()).exp()
    product = product.double()
    while True:
        product = product * _f.rand(tuple(input.shape), generator=generator, dtype=_C.float64)
        more = product > limit
        if not bool(more.any()):
            return result
        result = result + more.to(input.dtype)


def tril_indices(row, col, offset=0, *, dtype=None, device=None):
    """The places of the lower triangle."""
    return _f.stack(_ops.where(_f.ones(row, col).tril(offset) != 0)).to(dtype or _C.int64)


def triu_indices(row, col, offset=0, *, dtype=None, device=None):
    """The places of the upper triangle."""
    return _f.stack(_ops.where(_f.ones(row, col).triu(offset) != 0)).to(dtype or _C.int64)


def vander(x, N=None, increasing=False):
    """The powers of the elements as columns."""
    n = x.shape[0] if N is None else N
    powers = [_f.ones_like(x)]
    for _ in range(1, n):
        powers.append(powers[-1] * x)
    powers = powers[:n]
    return _f.stack(powers if increasing else powers[::-1], 1) if powers else x.new_empty((x.shape[0], 0))


def _window(length, periodic, options, formula):
    if length <= 1:
        return _f.ones(length, **options)
    angle = _f.arange(length, dtype=_C.float64) * (2 * math.pi / (length if periodic else length - 1))
    result = formula(angle).to(options.pop("dtype", None) or _C.get_default_dtype())
    return result.requires_grad_(options.get("requires_grad", False))


def hann_window(window_length, periodic=True, **options):
    """A raised cosine."""
    return _window(window_length, periodic, options, lambda a: 0.5 - 0.5 * a.cos())


def hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46, **options):
    """A raised cosine that does not reach zero."""
    return _window(window_length, periodic, options, lambda a: alpha - beta * a.cos())


def blackman_window(window_length, periodic=True, **options):
    """Two cosines."""
    return _window(window_length, periodic, options, lambda a: 0.42 - 0.5 * a.cos() + 0.08 * (2 * a).cos())


def bartlett_window(window_length, periodic=True, **options):
    """A triangle."""
    return _window(window_length, periodic, options, lambda a: 1 - (a / math.pi - 1).abs())


def typename(obj):
    """The name of a type."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- In place
def _in_place(function):
    def run(self, *args, **kwargs):
        return self.copy_(function(self, *args, **kwargs))

    run.__name__ = run.__qualname__ = function.__name__ + "_"
    run.__doc__ = f"{function.__name__}(), in place."
    return run


def _index_copy_(self, dim, index, source):
    """Writes the slices of source at these places."""
    self[(slice(None),) * (dim % max(self.ndim, 1)) + (index,)] = source
    return self


def _index_fill_(self, dim, index, value):
    """Fills slices."""
    self[(slice(None),) * (dim % max(self.ndim, 1)) + (index,)] = value
    return self


def _put_(self, index, source, accumulate=False):
    """Writes values at these places of the flat tensor."""
    self.view(-1).index_put_((index.reshape(-1),), source.reshape(-1), accumulate)
    return self


def _fill_diagonal_(self, fill_value, wrap=False):
    """Fills the diagonal."""
    if wrap:
        raise NotImplementedError("fill_diagonal_: wrap=True is not supported")
    n = min(self.shape)
    index = _f.arange(n)
    self[(index,) * self.ndim] = fill_value
    return self


def _random_(self, *args, generator=None, **kwargs):
    """Whole numbers from `from` up to, not including, `to`."""
    low, high = kwargs.get("from", 0), kwargs.get("to")
    if len(args) == 1:
        high = args[0]
    elif len(args) == 2:
        low, high = args
    if high is None:
        exact = {_C.float32: 2**24 + 1, _C.float64: 2**53 + 1, _C.float16: 2**11 + 1, _C.bfloat16: 2**8 + 1, _C.int8: 128,
                 _C.uint8: 256, _C.bool: 2, _C.int32: 2**31 - 1, _C.int64: 2**63 - 1}
        high = exact[self.dtype]
    return self.copy_(_ops._randint(low, high, tuple(self.shape), generator=generator))


def _uniform(self, generator):
    """Draws from (0, 1], so that their logarithm is finite."""
    return 1 - _f.rand(tuple(self.shape), generator=generator, dtype=_C.float64 if self.dtype is _C.float64 else _C.float32)


def _exponential_(self, lambd=1, *, generator=None):
    """Draws waits of a rate."""
    return self.copy_(_uniform(self, generator).log() / -lambd)


def _geometric_(self, p, *, generator=None):
    """Draws numbers of trials until success."""
    return self.copy_((_uniform(self, generator).log() / math.log1p(-p)).ceil().clamp_min(1))


def _cauchy_(self, median=0, sigma=1, *, generator=None):
    """Draws from a Cauchy distribution."""
    return self.copy_(median + sigma * ((_uniform(self, generator) - 0.5) * math.pi).tan())


def _log_normal_(self, mean=1, std=2, *, generator=None):
    """Draws whose logarithm is normal."""
    return self.normal_(mean, std, generator=generator).exp_()


def _bernoulli_(self, p=0.5, *, generator=None):
    """Draws 1 with probability p, else 0."""
    chance = p if isinstance(p, Tensor) else _f.full(tuple(self.shape), float(p))
    return self.copy_(_ops.bernoulli(chance, generator=generator))


def _reshaping(function):
    """x.unsqueeze_(0) and the like: the tensor becomes another view of its memory."""

    def run(self, *args, **kwargs):
        if self.grad_fn is not None:
            raise _C.UnsupportedError(f"{function.__name__}_: the tensor has a history of gradients; use x = x.{function.__name__}(...)")
        self.data = function(self.detach(), *args, **kwargs)
        return self

    run.__name__ = run.__qualname__ = function.__name__ + "_"
    run.__doc__ = f"{function.__name__}(), in place."
    return run


def _resize_(self, *sizes):
    """Another size; elements that are new hold anything."""
    size = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    count, here = math.prod(size), self.detach().reshape(-1)
    if count <= here.numel():
        self.data = here[:count].reshape(size)
    else:
        self.data = _f.cat([here, here.new_empty(count - here.numel())]).reshape(size)
    return self


def _resize_as_(self, other):
    """The size of another tensor."""
    return _resize_(self, *other.shape)


def _set_(self, source=None):
    """Uses the memory of another tensor."""
    self.data = self.new_empty(0) if source is None else source.detach()
    return self


def _apply_(self, callable):
    """Each element through a Python function."""
    flat = [callable(v) for v in self.reshape(-1).tolist()]
    return self.copy_(_f.tensor(flat, dtype=self.dtype).reshape(tuple(self.shape)))


def _map_(self, tensor, callable):
    """Each pair of elements through a Python function."""
    pairs = zip(self.reshape(-1).tolist(), tensor.expand_as(self).reshape(-1).tolist())
    return self.copy_(_f.tensor([callable(a, b) for a, b in pairs], dtype=self.dtype).reshape(tuple(self.shape)))


def _scatter_reduce_(self, dim, index, src, reduce, *, include_self=True):
    """scatter_reduce(), in place."""
    return self.copy_(_ops.scatter_reduce(self, dim, index, src, reduce, include_self=include_self))


def _sum_to_size(self, *size):
    """Summed over what was broadcast."""
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = self.ndim - len(size)
    x = self.sum(list(range(lead))) if lead else self
    over = [i for i, s in enumerate(size) if s == 1 and x.shape[i] != 1]
    return x.sum(over, keepdim=True) if over else x


def _get_device(self):
    """The number of the GPU, -1 for host memory."""
    return self.device.index if self.is_cuda else -1


def _narrow_copy(self, dim, start, length):
    """narrow(), copied."""
    return self.narrow(dim, start, length).clone()


FUNCTIONS = (
    addbmm, addmv, addr, chain_matmul, inner, vdot, kron, matrix_power, cross, inverse, det, logdet, trace, cdist, dist, renorm,
    atleast_1d, atleast_2d, atleast_3d, column_stack, dstack, block_diag, tensor_split, hsplit, vsplit, dsplit, split_with_sizes,
    cartesian_prod, combinations, fliplr, flipud, rot90, diagflat, diag_embed, diagonal_scatter, select_scatter, slice_scatter, deg2rad,
    rad2deg, float_power, heaviside, ldexp, logaddexp2, logit, sinc, sgn, signbit, positive, real, conj, adjoint, isneginf, isposinf,
    isreal, isin, gcd, lcm, fill, is_nonzero, is_signed, round, nanmean, nanquantile, nanmedian, kthvalue, mode, msort, cummax, cummin,
    logcumsumexp, trapezoid, cumulative_trapezoid, gradient, cov, corrcoef, bincount, histc, histogram, searchsorted, bucketize,
    unique_consecutive, index_copy, index_fill, index_put, masked_scatter, repeat_interleave, take_along_dim, put, unravel_index, empty_strided, logspace,
    normal, poisson, tril_indices, triu_indices, vander, hann_window, hamming_window, blackman_window, bartlett_window, typename,
)
_NO_METHODS = {chain_matmul, atleast_1d, atleast_2d, atleast_3d, column_stack, dstack, block_diag, cartesian_prod, combinations, isin,
               trapezoid, cumulative_trapezoid, gradient, searchsorted, bucketize, unravel_index, empty_strided, logspace, normal, poisson,
               tril_indices, triu_indices, vander, hann_window, hamming_window, blackman_window, bartlett_window, typename, cdist, fill}
_IN_PLACE = (addbmm, addmv, addr, deg2rad, rad2deg, float_power, heaviside, ldexp, logit, sinc, sgn, gcd, lcm, renorm, masked_scatter,
             round, *(getattr(_f, n) for n in ("addmm", "baddbmm", "cumsum", "cumprod", "tril", "triu")))
_RESHAPING = ("squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims")
_METHODS = {
    "index_copy_": _index_copy_, "index_fill_": _index_fill_, "put_": _put_, "fill_diagonal_": _fill_diagonal_, "random_": _random_,
    "exponential_": _exponential_, "geometric_": _geometric_, "cauchy_": _cauchy_, "log_normal_": _log_normal_,
    "bernoulli_": _bernoulli_, "resize_": _resize_, "resize_as_": _resize_as_, "set_": _set_, "apply_": _apply_, "map_": _map_,
    "scatter_reduce_": _scatter_reduce_, "sum_to_size": _sum_to_size, "get_device": _get_device, "narrow_copy": _narrow_copy,
    "argwhere": _f.nonzero if hasattr(_f, "nonzero") else _ops.nonzero,
}
_NEVER = ("is_sparse", "is_quantized", "is_meta", "is_mps", "is_xpu", "is_nested", "is_mkldnn", "is_sparse_csr")


def install(namespace):
    """Adds these functions to the package's namespace, and their methods to Tensor."""
    namespace.update({f.__name__: f for f in FUNCTIONS})
    namespace.update(trapz=trapezoid, range=range_, argwhere=_METHODS["argwhere"], newaxis=None)
    for f in FUNCTIONS:
        if f not in _NO_METHODS:
            setattr(Tensor, f.__name__, f)
    for f in _IN_PLACE:
        setattr(Tensor, f.__name__ + "_", _in_place(f))
    for name in _RESHAPING:
        setattr(Tensor, name + "_", _reshaping(getattr(Tensor, name)))
    for name, method in _METHODS.items():
        setattr(Tensor, name, method)
    for name in _NEVER:
        setattr(Tensor, name, False)
    Tensor.H = Tensor.mH = property(adjoint, doc="The last two dimensions swapped.")
    for name in _IN_PLACE_FUNCTIONS:
        namespace[name] = getattr(Tensor, name)
    namespace.update({name: getattr(_C.functional, name) for name in _FROM_FUNCTIONAL if hasattr(_C.functional, name)})


# Methods that torch has as functions too, and functions that it has both in torch and in nn.functional.
_IN_PLACE_FUNCTIONS = ("clamp_", "clamp_min_", "clamp_max_", "detach_", "fill_", "zero_", "nan_to_num_", "index_put_", "deg2rad_",
                       "rad2deg_", "gcd_", "lcm_", "ldexp_", "logit_", "sinc_", "xlogy_", "resize_as_", "relu_")
_FROM_FUNCTIONAL = ("avg_pool1d", "max_pool1d", "max_pool2d", "max_pool3d", "batch_norm", "layer_norm", "group_norm", "rms_norm",
                    "instance_norm", "celu", "cosine_similarity", "embedding", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                    "conv_transpose3d")
