"""Pooling."""

import deft.nn.functional as F

from .pointwise import gradient
from .table import ops, row
from .views import like_image


def batched(function, spatial):
    """Without a batch dimension one is put in front."""

    def run(x, *args, **kwargs):
        if x.dim() == spatial + 2:
            return function(x, *args, **kwargs)
        result = function(x.unsqueeze(0), *args, **kwargs)
        return tuple(t.squeeze(0) for t in result) if isinstance(result, tuple) else result.squeeze(0)

    return run


@row("max_pool2d_with_indices.default")
def max_pool(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    return tuple(F.max_pool2d(x, kernel, stride or None, padding, dilation, ceil_mode, return_indices=True))


@row("max_pool2d_with_indices_backward.default")
def max_pool_backward(g, x, kernel, stride, padding, dilation, ceil_mode, indices):
    if x.dim() == 3:
        return max_pool_backward(g.unsqueeze(0), x.unsqueeze(0), kernel, stride, padding, dilation, ceil_mode,
                                 indices.unsqueeze(0)).squeeze(0)
    kernel = list(kernel) * (2 // len(kernel))
    return ops._max_pool_backward(like_image(g, x), x, indices, kernel, stride, padding, dilation, ceil_mode)


@row("avg_pool2d.default")
def avg_pool(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    return F.avg_pool2d(x, kernel, stride or None, padding, ceil_mode, count_include_pad, divisor)


@row("avg_pool1d.default")
def avg_pool1d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True):
    return F.avg_pool1d(x, kernel, stride or None, padding, ceil_mode, count_include_pad)


@row("avg_pool3d.default")
def avg_pool3d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    return F.avg_pool3d(x, kernel, stride or None, padding, ceil_mode, count_include_pad, divisor)


@row("avg_pool2d_backward.default")
def avg_pool_backward(g, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    if x.dim() == 3:
        return avg_pool_backward(g.unsqueeze(0), x.unsqueeze(0), kernel, stride, padding, ceil_mode, count_include_pad,
                                 divisor).squeeze(0)
    kernel = list(kernel) * (2 // len(kernel))
    return ops._avg_pool_backward(g, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


row("adaptive_avg_pool1d.default")(lambda x, size: ops._adaptive_avg_pool1d(x, size))
row("_adaptive_avg_pool2d.default")(lambda x, size: ops._adaptive_avg_pool2d(x, size))
row("_adaptive_avg_pool3d.default")(lambda x, size: ops._adaptive_avg_pool3d(x, size))


@row("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(g, x):
    if x.dim() == 3:
        return adaptive_avg_pool_backward(g.unsqueeze(0), x.unsqueeze(0)).squeeze(0)
    return ops._adaptive_avg_pool_backward(g, x, list(g.shape[2:]))


row("adaptive_max_pool2d.default")(lambda x, size: tuple(ops._adaptive_max_pool2d(x, size, True)))
row("adaptive_max_pool3d.default")(lambda x, size: tuple(ops._adaptive_max_pool3d(x, size, True)))


# --- gradients by Deft's own formulas

@row("max_pool3d_with_indices.default")
def max_pool3d(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    return tuple(F.max_pool3d(x, kernel, stride or None, padding, dilation, ceil_mode, return_indices=True))


@row("max_pool3d_with_indices_backward.default")
def max_pool3d_backward(g, x, kernel, stride, padding, dilation, ceil_mode, indices):
    return gradient(lambda t: F.max_pool3d(t, kernel, stride or None, padding, dilation, ceil_mode))(g, x)


@row("avg_pool3d_backward.default")
def avg_pool3d_backward(g, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    return gradient(lambda t: F.avg_pool3d(t, kernel, stride or None, padding, ceil_mode, count_include_pad, divisor))(g, x)


@row("_adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool3d_backward(g, x):
    return gradient(lambda t: ops._adaptive_avg_pool3d(t, list(g.shape[-3:])))(g, x)


@row("adaptive_max_pool2d_backward.default")
def adaptive_max_pool2d_backward(g, x, indices):
    return gradient(lambda t: ops._adaptive_max_pool2d(t, list(g.shape[-2:]), True)[0])(g, x)


@row("adaptive_max_pool3d_backward.default")
def adaptive_max_pool3d_backward(g, x, indices):
    return gradient(lambda t: ops._adaptive_max_pool3d(t, list(g.shape[-3:]), True)[0])(g, x)
