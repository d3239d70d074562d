"""Elementwise operators and their gradients."""

import math

import deft
import deft.nn.functional as F

from .table import ops, row, same
from .views import like_image

same("neg abs sign floor ceil trunc round exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos "
     "atan sinh cosh tanh asinh acosh atanh erf erfc erfinv isnan isinf logical_not bitwise_not sigmoid relu frac")
same("maximum minimum fmax fmin atan2 logaddexp logical_and logical_or logical_xor hypot")
same("mul div fmod remainder eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor", "Tensor")
same("mul div fmod remainder eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor", "Scalar")
same("add sub rsub copysign", "Tensor")
same("hardsigmoid hardswish selu mish", module=F)
same("silu", module=F)
same("addcmul addcdiv lerp sgn signbit")
same("bitwise_left_shift bitwise_right_shift ldexp", "Tensor")
row("round.decimals")(lambda x, decimals=0: deft.round(x, decimals=decimals))
row("fill.Scalar", "fill.Tensor")(lambda x, value: deft.where(deft.ones([], dtype=deft.bool), value, x).to(x.dtype))


@row("angle.default")
def angle(x):
    x = x if x.dtype.is_floating_point else x.to(deft.float32)
    return deft.where(deft.isnan(x), x, deft.where(x < 0, math.pi, deft.zeros([], dtype=x.dtype)))


@row("add.Scalar")
def add_scalar(x, y, alpha=1):
    return deft.add(x, y * alpha)


@row("sub.Scalar")
def sub_scalar(x, y, alpha=1):
    return deft.sub(x, y * alpha)


@row("rsub.Scalar")
def rsub_scalar(x, y, alpha=1):
    return deft.sub(y, deft.mul(x, alpha) if alpha != 1 else x)


@row("div.Tensor_mode", "div.Scalar_mode")
def div_mode(x, y, rounding_mode=None):
    return deft.div(x, y, rounding_mode=rounding_mode)


@row("floor_divide.default", "floor_divide.Scalar")
def floor_divide(x, y):
    return deft.div(x, y, rounding_mode="floor")


row("pow.Scalar", "pow.Tensor_Tensor")(lambda x, y: deft.pow(x, y))


@row("pow.Tensor_Scalar")
def power(x, exponent):
    return x * x * x if exponent == 3 else deft.pow(x, exponent)  # as torch computes cubes
row("square.default")(lambda x: deft.square(x))
row("lerp.Scalar", "lerp.Tensor")(lambda x, y, w: deft.lerp(x, y, w))
row("clamp.default", "clamp.Tensor")(lambda x, low=None, high=None: deft.clamp(x, low, high))
row("clamp_min.default", "clamp_min.Tensor")(lambda x, low: deft.clamp(x, low, None))
row("clamp_max.default", "clamp_max.Tensor")(lambda x, high: deft.clamp(x, None, high))
row("gelu.default")(lambda x, approximate="none": F.gelu(x, approximate=approximate))
row("leaky_relu.default")(lambda x, slope=0.01: F.leaky_relu(x, slope))
row("softplus.default")(lambda x, beta=1, threshold=20: F.softplus(x, beta, threshold))
row("hardtanh.default")(lambda x, low=-1, high=1: F.hardtanh(x, low, high))
row("log_sigmoid_forward.default")(lambda x: (F.logsigmoid(x), deft.zeros(0, dtype=x.dtype)))
row("threshold.default")(lambda x, threshold, value: F.threshold(x, threshold, value))
row("nan_to_num.default")(lambda x, nan=None, high=None, low=None: deft.nan_to_num(x, nan or 0.0, high, low))


@row("elu.default")
def elu(x, alpha=1, scale=1, input_scale=1):
    if input_scale != 1:
        raise NotImplementedError("elu with an input_scale")
    y = F.elu(x, alpha)
    return y if scale == 1 else y * scale


@row("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(condition, x, y):
    return deft.where(condition, x, y)


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x, mask, value):
    return deft.masked_fill(x, mask, value)


# --- gradients of elementwise operators


def gradient(function):
    """What torch calls name_backward(grad, x, ...), by Deft's own formula."""

    def run(g, x, *args):
        with deft.enable_grad():
            leaf = x.detach().requires_grad_()
            y = function(leaf, *args)
            (dx,) = deft.autograd.grad([y], [leaf], [g])
        return dx.detach()

    return run


row("gelu_backward.default")(lambda g, x, approximate="none": gradient(lambda t: F.gelu(t, approximate=approximate))(g, x))
row("silu_backward.default")(gradient(lambda x: F.silu(x)))
row("hardswish_backward.default")(gradient(lambda x: F.hardswish(x)))
row("hardsigmoid_backward.default")(gradient(lambda x: F.hardsigmoid(x)))
row("mish_backward.default")(gradient(lambda x: F.mish(x)))
row("hardtanh_backward.default")(lambda g, x, low, high: gradient(lambda t: F.hardtanh(t, low, high))(g, x))
row("softplus_backward.default")(lambda g, x, beta, threshold: gradient(lambda t: F.softplus(t, beta, threshold))(g, x))
row("hardshrink_backward.default")(lambda g, x, width: gradient(lambda t: F.hardshrink(t, width))(g, x))
row("softshrink_backward.default")(lambda g, x, width: gradient(lambda t: F.softshrink(t, width))(g, x))
row("tanh_backward.default")(lambda g, y: g * (1 - y * y))
row("sigmoid_backward.default")(lambda g, y: g * (y * (1 - y)))


@row("threshold_backward.default")
def threshold_backward(g, x, threshold):
    if threshold == 0 and g.dtype == x.dtype:
        return ops._relu_backward(like_image(g, x), x)  # passes know it
    return deft.where(x <= threshold, 0, g)


@row("leaky_relu_backward.default")
def leaky_relu_backward(g, x, slope, is_result):
    return deft.where(x > 0, g, g * slope)
