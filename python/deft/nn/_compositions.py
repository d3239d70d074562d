"""Functions of deft.nn.functional that are built of others: losses, sampling, forms in place."""

from .. import _C
from .._C import Tensor

_f, _ops, _F = _C.functions, _C.ops, _C.functional


def _reduced(loss, reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, reduction="mean"):
    """How far other classes come within a margin of the right one."""
    single = input.ndim == 1
    x, t = (input.unsqueeze(0), target.reshape(1)) if single else (input, target)
    right = t.unsqueeze(1)
    gaps = (margin - x.gather(1, right) + x).clamp_min(0)
    gaps = gaps if p == 1 else gaps * gaps
    if weight is not None:
        gaps = gaps * weight[t].unsqueeze(1)
    others = _f.ones_like(x).scatter(1, right, 0.0)
    loss = (gaps * others).sum(1) / x.shape[1]
    return _reduced(loss.squeeze(0) if single else loss, reduction)


def multilabel_margin_loss(input, target, reduction="mean"):
    """The margin between classes in the target, up to the first -1, and all others."""
    single = input.ndim == 1
    x, t = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
    named = (t < 0).long().cumsum(1) == 0
    at = t.masked_fill(named.logical_not(), 0)
    is_target = _f.zeros_like(x).scatter_add(1, at, named.to(x.dtype)) > 0
    gaps = (1 - x.gather(1, at).unsqueeze(2) + x.unsqueeze(1)).clamp_min(0)
    counts = named.unsqueeze(2) & is_target.logical_not().unsqueeze(1)
    loss = (gaps * counts.to(x.dtype)).sum((1, 2)) / x.shape[1]
    return _reduced(loss.squeeze(0) if single else loss, reduction)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """triplet_margin_loss() with any distance."""
    if distance_function is None:
        from .functional import pairwise_distance as distance_function
    near, far = distance_function(anchor, positive), distance_function(anchor, negative)
    if swap:
        far = _ops.minimum(far, distance_function(positive, negative))
    return _reduced((near - far + margin).clamp_min(0), reduction)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The negative log likelihood of label sequences under all alignments."""
    single = log_probs.ndim == 2
    x = log_probs.unsqueeze(1) if single else log_probs
    numbers = lambda v: [int(n) for n in (v.reshape(-1).tolist() if isinstance(v, Tensor) else v if isinstance(v, (list, tuple)) else [v])]
    sizes = numbers(target_lengths)
    loss = _C._ctc_losses(x, _label_rows(targets, sizes), numbers(input_lengths), blank, zero_infinity)
    if reduction == "mean":
        return (loss / _f.tensor([float(max(s, 1)) for s in sizes], dtype=loss.dtype, device=loss.device)).mean()
    return _reduced(loss.squeeze(0) if single else loss, reduction)


def _label_rows(targets, sizes):
    values = targets.tolist()
    if targets.ndim == 2:
        return [row[:size] for row, size in zip(values, sizes)]
    rows, start = [], 0
    for size in sizes:
        rows.append(values[start : start + size])
        start += size
    return rows


def affine_grid(theta, size, align_corners=False):
    """The places that an affine map takes the elements of a picture from, for grid_sample()."""
    axes = []
    for n in reversed(tuple(size)[2:]):
        axis = _f.linspace(-1, 1, n, dtype=theta.dtype) if n > 1 else _f.zeros(1, dtype=theta.dtype)
        axes.append(axis if align_corners else axis * ((n - 1) / n))
    grids = _ops._meshgrid(list(reversed(axes)), "ij")
    points = _f.stack([*reversed(grids), _f.ones_like(grids[0])], -1)
    flat = points.reshape(1, -1, points.shape[-1]) @ theta.transpose(1, 2)
    return flat.reshape(size[0], *tuple(size)[2:], len(axes))


def _reflected(x, low, high):
    """x folded back into [low, high]."""
    span = high - low
    if span == 0:
        return _f.zeros_like(x)
    x = (x - low).abs()
    extra = x.remainder(span)
    return _ops.where((x / span).floor().remainder(2) == 0, extra + low, span - extra + low)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """The values of a picture or volume at places given as numbers from -1 to 1."""
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: mode is bilinear or nearest and padding_mode zeros, border or reflection; found '{mode}' and '{padding_mode}'")
    n = grid.shape[-1]
    sizes = list(input.shape[2:])
    places = []
    for axis in range(n):  # the last number of a place is of the first axis
        size, x = sizes[axis], grid[..., n - 1 - axis]
        x = (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2
        if padding_mode == "reflection":
            x = _reflected(x, 0.0, size - 1.0) if align_corners else _reflected(x, -0.5, size - 0.5)
        places.append(x if padding_mode == "zeros" else x.clamp(0, size - 1))
    batch = _f.arange(input.shape[0]).reshape(-1, *([1] * n))
    last = input.movedim(1, -1)

    def pick(index):
        inside = None
        safe = []
        for i, size in zip(index, sizes):
            ok = (i >= 0) & (i < size)
            inside = ok if inside is None else inside & ok
            safe.append(i.clamp(0, size - 1).long())
        return last[(batch, *safe)] * inside.unsqueeze(-1).to(input.dtype)

    if mode == "nearest":
        result = pick([x.detach().round() for x in places])
    else:
        result, floors = 0, [x.detach().floor() for x in places]
        for corner in range(2**n):
            bits = [corner >> a & 1 for a in range(n)]
            share = 1
            for x, floor, bit in zip(places, floors, bits):
                share = share * ((x - floor) if bit else (1 - (x - floor)))
            result = result + pick([floor + bit for floor, bit in zip(floors, bits)]) * share.unsqueeze(-1)
    return result.movedim(-1, 1)


def pdist(input, p=2.0):
    """The distances between all pairs of rows."""
    first, second = [], []
    for i in range(input.shape[0]):
        for j in range(i + 1, input.shape[0]):
            first.append(i)
            second.append(j)
    if not first:
        return input.new_zeros(0)
    return _ops.norm(input[_f.tensor(first)] - input[_f.tensor(second)], p, -1)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout() of whole channels."""
    if not training or p == 0:
        return input
    alpha = -1.7580993408473766
    keep = _ops.bernoulli(_f.full((*input.shape[:2], *[1] * (input.ndim - 2)), 1 - p, dtype=input.dtype))
    a = ((1 - p) * (1 + p * alpha * alpha)) ** -0.5
    result = a * (input * keep + alpha * (1 - keep)) - a * alpha * p
    return input.copy_(result) if inplace else result


def _inplace_of(name):
    def run(input, *args, **kwargs):
        return input.copy_(getattr(_F, name)(input, *args, **kwargs))

    run.__name__ = run.__qualname__ = name + "_"
    run.__doc__ = f"{name}(), in place."
    return run


hardtanh_, threshold_, selu_, elu_, celu_, leaky_relu_ = map(_inplace_of, ("hardtanh", "threshold", "selu", "elu", "celu", "leaky_relu"))
