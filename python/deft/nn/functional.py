"""Layers as functions, with torch's names and arguments."""

import math as _math

from .. import _C
from .._C import ops as _ops

# Every function that the library has under this name; the rest of this file are compositions of them.
globals().update({name: value for name, value in vars(_C.functional).items() if not name.startswith("__")})

from ._compositions import (
    affine_grid, celu_, ctc_loss, elu_, feature_alpha_dropout, grid_sample, hardtanh_, leaky_relu_, multi_margin_loss,
    multilabel_margin_loss, pdist, selu_, threshold_, triplet_margin_with_distance_loss,
)
from ._embedding import embedding, embedding_bag
from ._pooling import (
    adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices, fractional_max_pool2d,
    fractional_max_pool2d_with_indices, fractional_max_pool3d, fractional_max_pool3d_with_indices, lp_pool1d, lp_pool2d, lp_pool3d,
    max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices, max_unpool1d, max_unpool2d, max_unpool3d,
)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Samples from a categorical distribution that gradients can pass."""
    noise = -_C.functions.rand_like(logits).clamp_min(1e-20).log()
    y = ((logits - noise.clamp_min(1e-20).log()) / tau).softmax(dim)
    if not hard:
        return y
    index = y.max(dim, keepdim=True).indices
    sharp = _C.functions.zeros_like(logits).scatter(dim, index, 1.0)
    return sharp - y.detach() + y


def prelu(input, weight):
    """x where it is positive, weight * x elsewhere; one weight, or one per channel."""
    if weight.numel() > 1 and input.ndim > 1:
        weight = weight.reshape([-1 if i == 1 else 1 for i in range(input.ndim)])
    return _ops.maximum(input, 0) + weight * _ops.minimum(input, 0)


def glu(input, dim=-1):
    """The first half times the sigmoid of the second."""
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """leaky_relu with a random slope while training."""
    if training:
        slope = _C.functions.rand_like(input) * (upper - lower) + lower
        result = _ops.maximum(input, 0) + slope * _ops.minimum(input, 0)
    else:
        result = leaky_relu(input, (lower + upper) / 2)
    return input.copy_(result) if inplace else result


def relu_(input):
    """relu, in place."""
    return relu(input, True)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divides by a norm over neighbouring channels."""
    squares = input.square().unsqueeze(1)
    flat = squares.flatten(3) if squares.ndim > 3 else squares.unsqueeze(-1)
    padded = pad(flat, (0, 0, size // 2, (size - 1) // 2))
    mean = avg_pool2d(padded, (size, 1), stride=1).reshape(input.shape)
    return input / (mean * alpha + k).pow(beta)


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels."""
    result = _ops._feature_dropout(input.unsqueeze(0), p, training).squeeze(0) if input.ndim == 2 else _ops._feature_dropout(input, p, training)
    return input.copy_(result) if inplace else result


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels."""
    result = _ops._feature_dropout(input, p, training)
    return input.copy_(result) if inplace else result


dropout3d = dropout2d
feature_dropout = dropout2d


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of selu's outputs."""
    if not training or p == 0:
        return input
    alpha = -1.7580993408473766
    keep = _ops.bernoulli(_C.functions.full_like(input, 1 - p))
    a = ((1 - p) * (1 + p * alpha * alpha)) ** -0.5
    result = a * (input * keep + alpha * (1 - keep)) - a * alpha * p
    return input.copy_(result) if inplace else result


def _adaptive(n):
    def pool(kind):
        def run(input, output_size, return_indices=False):
            sizes = (output_size,) * n if isinstance(output_size, int) else tuple(output_size)
            sizes = tuple(input.shape[i - n] if s is None else s for i, s in enumerate(sizes))
            if kind == "avg":
                return getattr(_ops, f"_adaptive_avg_pool{n}d")(input, sizes)
            return getattr(_ops, f"_adaptive_max_pool{n}d")(input, sizes, return_indices)

        run.__name__ = run.__qualname__ = f"adaptive_{kind}_pool{n}d"
        run.__doc__ = "Pools to the given size; None keeps a size."
        return run

    return pool("avg"), pool("max")


adaptive_avg_pool1d, adaptive_max_pool1d = _adaptive(1)
adaptive_avg_pool2d, adaptive_max_pool2d = _adaptive(2)
adaptive_avg_pool3d, adaptive_max_pool3d = _adaptive(3)


def pixel_shuffle(input, upscale_factor):
    """Channels to pixels."""
    *lead, c, h, w = input.shape
    r = upscale_factor
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    n = len(lead)
    return x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2).reshape(*lead, c // (r * r), h * r, w * r)


def pixel_unshuffle(input, downscale_factor):
    """Pixels to channels."""
    *lead, c, h, w = input.shape
    r = downscale_factor
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    n = len(lead)
    return x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3).reshape(*lead, c * r * r, h // r, w // r)


def channel_shuffle(input, groups):
    """Mixes the channels of groups."""
    n, c, *rest = input.shape
    return input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest)


native_channel_shuffle = channel_shuffle


def conv_tbc(input, weight, bias, pad=0):
    """A convolution over the first of [time, batch, channels]."""
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The norm of the difference of rows."""
    return _ops.norm(x1 - x2 + eps, p, -1, keepdim)


def _reduced(loss, reduction):
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.mean()
    raise ValueError(f"{reduction} is not a valid value for reduction")


def soft_margin_loss(input, target, reduction="mean"):
    """log(1 + exp(-target * input))."""
    return _reduced(softplus(-target * input), reduction)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """max(0, -target * (input1 - input2) + margin)."""
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def hinge_embedding_loss(input, target, margin=1.0, reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1."""
    return _reduced(_ops.where(target == 1, input, (margin - input).clamp_min(0)), reduction)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = _ops.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced((near - far + margin).clamp_min(0), reduction)


def poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-8, reduction="mean"):
    """The negative log likelihood of counts."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * _math.pi * target).log()
        loss = loss + _ops.where(target > 1, stirling, 0.0)
    return _reduced(loss, reduction)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log likelihood of normal distributions."""
    if isinstance(var, float):
        var = _C.functions.full_like(input, var)
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape and var.ndim == input.ndim - 1:
        var = var.unsqueeze(-1)
    with _C.no_grad():
        limit = var.clamp_min(eps) - var
    var = var + limit
    loss = 0.5 * (var.log() + (input - target).square() / var)
    return _reduced(loss + 0.5 * _math.log(2 * _math.pi) if full else loss, reduction)


def multilabel_soft_margin_loss(input, target, weight=None, reduction="mean"):
    """The mean over classes of the two-class loss."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduced(loss.mean(-1), reduction)


def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """rrelu, in place."""
    return rrelu(input, lower, upper, training, True)


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """Images in another size; recompute_scale_factor places samples by the sizes, not by scale_factor."""
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not supported; smooth the input first, or leave it out")
    if recompute_scale_factor and scale_factor is not None:
        n = input.ndim - 2
        factors = (scale_factor,) * n if isinstance(scale_factor, (int, float)) else scale_factor
        size, scale_factor = [int(s * f) for s, f in zip(input.shape[2:], factors)], None
    return _C.functional.interpolate(input, size, scale_factor, mode, align_corners)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax(-x)."""
    return _C.functional.softmin(input if dtype is None else input.to(dtype), dim)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate() with the nearest element."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate() with lines between corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


upsample = interpolate


def __getattr__(name):
    from .._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
