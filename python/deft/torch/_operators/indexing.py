"""Reading and writing by index."""

import torch

import deft
import deft.nn.functional as F

from .table import ops, row


def indices(t):
    return t.to(deft.int64) if t.dtype in (deft.int32, deft.uint8, deft.int8) else t


@row("embedding.default")
def embedding(weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return F.embedding(indices(index), weight)


@row("embedding_dense_backward.default",
     when=lambda node: "embedding with scale_grad_by_freq" if node.args[4] else None)
def embedding_backward(g, index, rows, padding_idx, scale_grad_by_freq):
    return ops._embedding_backward(g, indices(index), rows, padding_idx)


row("gather.default")(lambda x, dim, index, sparse_grad=False: deft.gather(x, dim, indices(index)))
row("scatter.value")(lambda x, dim, index, value: deft.scatter(x, dim, indices(index), value=value))
row("scatter.src")(lambda x, dim, index, source: deft.scatter(x, dim, indices(index), source))
row("scatter_add.default")(lambda x, dim, index, source: deft.scatter_add(x, dim, indices(index), source))
REDUCES = {"add": "sum", "multiply": "prod"}


@row("scatter_reduce.two", "scatter.reduce")
def scatter_reduce(x, dim, index, source, reduce, include_self=True):
    return deft.scatter_reduce(x, dim, indices(index), source, REDUCES.get(reduce, reduce), include_self=include_self)


@row("masked_scatter.default")
def masked_scatter(x, mask, source):
    """Never more elements than `source` has: torch's own check needs the values."""
    mask = mask.expand(list(x.shape))
    places = (mask.reshape([-1]).to(deft.int64).cumsum(0) - 1).clamp(0, max(source.numel() - 1, 0)).reshape(list(x.shape))
    return deft.where(mask, source.reshape([-1])[places], x) if source.numel() else x.clone()


@row("put.default")
def put(x, index, source, accumulate=False):
    flat = x.reshape([-1]).clone()
    flat.index_put_([indices(index).reshape([-1]) % flat.numel()], source.reshape([-1]), accumulate)
    return flat.reshape(list(x.shape))


row("take.default")(lambda x, index: x.reshape([-1])[indices(index)])
row("index_select.default")(lambda x, dim, index: deft.index_select(x, dim, indices(index)))


def has_mask(node):
    for index in node.args[1]:
        if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8):
            return "indexing by a mask has a result whose size depends on values"
    return None


@row("index.Tensor", when=has_mask)
def index(x, at):
    return x[tuple(slice(None) if i is None else indices(i) for i in at)]


@row("index_put.default", "_unsafe_index_put.default", when=has_mask)
def index_put(x, at, values, accumulate=False):
    indexed = [d for d, i in enumerate(at) if i is not None]
    order = indexed + [d for d in range(x.dim()) if d not in indexed]
    first = indexed[0]
    if first and indexed[-1] - first == len(indexed) - 1:  # the dimensions of the indices stand where the indexed ones did
        width = max(at[d].dim() for d in indexed)
        rank = width + x.dim() - len(indexed)
        values = values.expand([1] * (rank - values.dim()) + list(values.shape)) if values.dim() < rank else values
        values = values.permute([*range(first, first + width), *range(first), *range(first + width, rank)])
    turned = x.permute(order).clone(memory_format=deft.contiguous_format)
    turned.index_put_([indices(at[d]) for d in indexed], values.to(x.dtype), accumulate)
    return turned.permute([order.index(d) for d in range(x.dim())])


row("_unsafe_index.Tensor", when=has_mask)(index)
