"""Joining, cutting and turning tensors."""

import itertools

from .. import _C
from .._C import Tensor

_f, _ops = _C.functions, _C.ops


def _listed(tensors):
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


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


def unsafe_chunk(input, chunks, dim=0):
    """chunk()."""
    return input.chunk(chunks, dim)


def unsafe_split(input, split_size, dim=0):
    """split()."""
    return input.split(split_size, dim)


def unsafe_split_with_sizes(input, split_sizes, dim=0):
    """split() into parts of these sizes."""
    return input.split(list(split_sizes), dim)


def constant_pad_nd(input, pad, value=0):
    """Padding with a number, from the last dimension on."""
    return _C.functional.pad(input, list(pad), "constant", value)
