"""Reading and writing at indices."""

from .. import _C
from .._C import Tensor
from .reductions import searchsorted

_f, _ops = _C.functions, _C.ops


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


def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """A copy with the slices of source reduced into these places: by prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    shape = [1] * input.ndim
    shape[dim] = -1
    wide = index.reshape(shape).expand(source.shape)
    return _ops.scatter_reduce(input, dim, wide, source, reduce, include_self=include_self)


def nonzero_static(input, *, size, fill_value=-1):
    """nonzero() with a fixed number of rows, filled up or cut."""
    found = _ops.nonzero(input)[:size]
    return _f.cat([found, found.new_full((size - found.shape[0], input.ndim), fill_value)])


def as_strided_scatter(input, src, size, stride, storage_offset=0):
    """A copy with src in these places of memory."""
    result = input.clone()
    result.as_strided(size, stride, storage_offset or 0).copy_(src)
    return result
