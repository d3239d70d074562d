"""Convolutions and their gradients."""

import deft
import deft.nn.functional as F

from .table import aten, ops, row
from .views import like_image


aten_convolution = aten.convolution.default


def conv_name(x, transposed):
    return f"conv_transpose{x.dim() - 2}d" if transposed else f"conv{x.dim() - 2}d"


@row("convolution.default", rounds=(0, 1, 2))
def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    function = getattr(F, conv_name(weight, transposed))
    if transposed:
        return function(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return function(x, weight, bias, stride, padding, dilation, groups)


@row("convolution_backward.default", rounds=(0, 1, 2))
def convolution_backward(g, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    dx = dw = db = None
    g = like_image(g, x)
    kernel = list(weight.shape[2:])
    if transposed:
        if mask[0]:
            dx = convolution(g, weight, None, stride, padding, dilation, False, None, groups)
            for d in range(2, x.dim()):
                dx = deft.narrow(dx, d, 0, x.shape[d])
        if mask[1]:
            dw = ops._conv_backward_weight(g, x, kernel, stride, padding, dilation, groups)
    else:
        if mask[0]:
            dx = ops._conv_backward_input(g, list(x.shape), weight, stride, padding, dilation, groups)
        if mask[1]:
            dw = ops._conv_backward_weight(x, g, kernel, stride, padding, dilation, groups)
    if mask[2]:
        db = deft.sum(g, [0, *range(2, g.dim())])
    return dx, dw, db
