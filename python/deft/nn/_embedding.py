"""Rows of tables: embedding() with torch's options, and bags of rows."""

from .. import _C
from .._compositions import searchsorted

_f, _ops, _F = _C.functions, _C.ops, _C.functional


def _limit_norms(weight, rows, max_norm, norm_type):
    """Scales the rows that are used, in place, to a norm of at most max_norm."""
    with _C.no_grad():
        used = _ops._unique(rows.reshape(-1))[0]
        weight[used] = weight.detach()[used].renorm(norm_type, 0, max_norm)


def _share_gradient(found, rows, kept=None):
    """Divides each row's gradient by how often the row is used."""
    if not found.requires_grad:
        return
    counts = rows.reshape(-1).bincount(weights=kept)[rows].clamp_min(1)
    found.register_hook(lambda grad: grad / counts.unsqueeze(-1).to(grad.dtype))


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of a table by number. Rows that are used are first scaled to max_norm; scale_grad_by_freq divides each row's gradient by how
    often it is used."""
    if sparse:
        raise NotImplementedError("embedding: sparse gradients are not supported; leave sparse out")
    if max_norm is not None:
        _limit_norms(weight, input, max_norm, norm_type)
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    found = _F.embedding(input, weight, padding_idx)
    if scale_grad_by_freq:
        _share_gradient(found, input)
    return found


def _bags(input, offsets, include_last_offset):
    """The bag of each element of the flat input, and the number of bags."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences.")
        return _f.arange(input.shape[0]).unsqueeze(1).expand(input.shape).reshape(-1), input.shape[0]
    if input.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None or offsets.ndim != 1:
        raise ValueError(f"offsets has to be a 1D Tensor but got {offsets if offsets is None else f'{offsets.ndim}D'}")
    starts = offsets[:-1] if include_last_offset else offsets
    if starts.shape[0] and starts[0].item() != 0:
        raise ValueError(f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
                         f"However, got {starts[0].item()}")
    return searchsorted(starts, _f.arange(input.shape[0]), right=True) - 1, starts.shape[0]


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """The mean, sum or maximum of the rows of each bag."""
    if sparse:
        raise NotImplementedError("embedding_bag: sparse gradients are not supported; leave sparse out")
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode has to be one of sum, mean or max, found '{mode}'")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{mode}').")
    if scale_grad_by_freq and mode == "max":
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    bags, count = _bags(input, offsets, include_last_offset)
    flat = input.reshape(-1)
    if padding_idx is not None:
        kept = flat != (padding_idx if padding_idx >= 0 else padding_idx + weight.shape[0])
        flat, bags = flat[kept], bags[kept]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)[kept]
    rows = embedding(flat, weight, None, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    empty = weight.new_zeros((count, weight.shape[1]))
    if mode == "max":
        index = bags.unsqueeze(1).expand(rows.shape)
        return _ops.scatter_reduce(empty, 0, index, rows, "amax", include_self=False)
    total = empty.index_add(0, bags, rows)
    if mode == "sum":
        return total
    return total / bags.bincount(minlength=count).clamp_min(1).unsqueeze(1).to(total.dtype)
