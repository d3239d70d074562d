"""Views, copies, and what lies where."""

import torch

import deft
import deft.nn.functional as F

from .table import aten, row


def some_dim(x, dim):
    return dim + x.dim() if dim < 0 else dim


def slice_of(x, dim, start, end, step=1):
    return x[(slice(None),) * some_dim(x, dim) + (slice(start, end, step),)]


def open_end(end):
    return None if end is None or end > 1 << 62 else end


@row("slice.Tensor")
def slice_(x, dim=0, start=None, end=None, step=1):
    return slice_of(x, dim, start, open_end(end), step)


@row("view.default", "_unsafe_view.default", "reshape.default")
def view(x, size):
    return x.reshape(size)


@row("expand.default")
def expand(x, size, implicit=False):
    return x.expand(size)


@row("squeeze.dims", "squeeze.dim")
def squeeze(x, dim):
    return deft.squeeze(x, dim) if dim != [] else x


row("squeeze.default")(lambda x: deft.squeeze(x))
row("permute.default")(lambda x, dims: deft.permute(x, dims))
row("transpose.int")(lambda x, a, b: deft.transpose(x, a, b))
row("t.default")(lambda x: deft.t(x))
row("unsqueeze.default")(lambda x, dim: deft.unsqueeze(x, dim))
row("select.int")(lambda x, dim, index: deft.select(x, dim, index))
row("alias.default", "detach.default", "lift_fresh_copy.default", "lift_fresh.default")(lambda x: x)
row("diagonal.default")(lambda x, offset=0, a=0, b=1: deft.diagonal(x, offset, a, b))
row("split.Tensor")(lambda x, size, dim=0: deft.split(x, size, dim))
row("split_with_sizes.default")(lambda x, sizes, dim=0: deft.split(x, list(sizes), dim))
row("unbind.int")(lambda x, dim=0: deft.unbind(x, dim))


def hint(value):
    return value.node.hint if isinstance(value, torch.SymInt) else value


def is_dense(x):
    expected = 1
    for stride, size in sorted((hint(s), hint(n)) for n, s in zip(x.shape, x.stride())):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def is_contiguous(x):
    """Of a tensor as traced, without a guard on its sizes."""
    expected = 1
    for stride, size in zip(reversed(x.stride()), reversed(x.shape)):
        if hint(size) > 1 and hint(stride) != expected:
            return False
        expected *= hint(size)
    return True


def has_fixed_strides(x):
    return all(isinstance(n, int) for n in (*x.shape, *x.stride()))


def is_not_whole(node):
    x = node.args[0].meta["val"]
    return None if is_dense(x) and x.storage_offset() == 0 else "as_strided of a part of a tensor reaches beyond it"


@row("as_strided.default", when=is_not_whole)
def as_strided(x, size, stride, storage_offset=None):
    return x.as_strided(size, stride, storage_offset or 0)


@row("as_strided_scatter.default", when=is_not_whole)
def as_strided_scatter(x, source, size, stride, storage_offset=None):
    y = x.clone()
    y.as_strided(size, stride, storage_offset or 0).copy_(source)
    return y


row("unfold.default")(lambda x, dim, size, step: x.unfold(dim, size, step))


@row("cat.default")
def cat(tensors, dim=0):
    some = [t for t in tensors if t.dim() != 1 or t.numel()] or tensors[:1]  # torch skips empty lists
    return deft.cat(some, dim) if len(some) > 1 else some[0].clone()


row("stack.default")(lambda tensors, dim=0: deft.stack(tensors, dim))
row("repeat.default")(lambda x, repeats: x.repeat(repeats))
row("flip.default")(lambda x, dims: deft.flip(x, dims) if dims else x.clone())
row("roll.default")(lambda x, shifts, dims=(): deft.roll(x, shifts, dims or None))
row("tril.default")(lambda x, diagonal=0: deft.tril(x, diagonal))
row("triu.default")(lambda x, diagonal=0: deft.triu(x, diagonal))


@row("constant_pad_nd.default")
def constant_pad(x, amounts, value=0):
    return F.pad(x, amounts, "constant", float(value))


def padding(mode):
    return lambda x, amounts: F.pad(x, amounts, mode)


for dims in "123":
    for kind, mode in (("reflection", "reflect"), ("replication", "replicate")):
        row(f"{kind}_pad{dims}d.default")(padding(mode))

FORMATS = {torch.channels_last: deft.channels_last, torch.contiguous_format: deft.contiguous_format}


def is_last(x):
    """A picture with channels innermost, and only so."""
    return x.dim() == 4 and x.is_contiguous(memory_format=deft.channels_last) and not x.is_contiguous()


def like_image(g, x):
    """g with channels innermost where those of x are: kernels would turn one of them."""
    return g.contiguous(memory_format=deft.channels_last) if is_last(x) else g


@row("clone.default")
def clone(x, memory_format=None):
    return x.clone(memory_format=FORMATS.get(memory_format))


@row("_to_copy.default")
def to_copy(x, dtype=None, non_blocking=False, memory_format=None):
    y = x.to(dtype) if dtype is not None and dtype != x.dtype else x
    if memory_format in FORMATS:
        return y.contiguous(memory_format=FORMATS[memory_format])
    return y


row("copy.default")(lambda x, source, non_blocking=False: source.to(x.dtype).expand(list(x.shape)).clone())


def written(x, part_of, value):
    """A copy of x with the part that `part_of` shows replaced."""
    y = x.clone()
    part_of(y).copy_(value)
    return y


@row("slice_scatter.default")
def slice_scatter(x, source, dim=0, start=None, end=None, step=1):
    return written(x, lambda y: slice_of(y, dim, start, open_end(end), step), source)


@row("select_scatter.default")
def select_scatter(x, source, dim, index):
    return written(x, lambda y: deft.select(y, dim, index), source)


@row("diagonal_scatter.default")
def diagonal_scatter(x, source, offset=0, a=0, b=1):
    return written(x, lambda y: deft.diagonal(y, offset, a, b), source)


@row("slice_backward.default")
def slice_backward(g, sizes, dim, start, end, step):
    zeros = deft.zeros(*sizes, dtype=g.dtype)
    return written(zeros, lambda y: slice_of(y, dim, start, open_end(end), step), g)


@row("select_backward.default")
def select_backward(g, sizes, dim, index):
    return written(deft.zeros(*sizes, dtype=g.dtype), lambda y: deft.select(y, dim, index), g)


aten_clone, aten_copy_ = aten.clone.default, aten.copy_.default

# Operators that mean memory: their first argument must lie as it was traced.
OF_MEMORY = {aten.as_strided.default, aten.as_strided_scatter.default}

# Operators whose result, or each of whose results, lies on the memory of their first argument.
VIEWS = {getattr(getattr(aten, n), o) for n, o in (
    ("view", "default"), ("permute", "default"), ("transpose", "int"), ("t", "default"), ("expand", "default"),
    ("unsqueeze", "default"), ("squeeze", "dim"), ("squeeze", "dims"), ("squeeze", "default"), ("slice", "Tensor"),
    ("select", "int"), ("alias", "default"), ("detach", "default"), ("diagonal", "default"), ("unfold", "default"),
    ("split", "Tensor"), ("split_with_sizes", "default"), ("unbind", "int"))}
