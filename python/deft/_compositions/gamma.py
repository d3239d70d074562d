"""The logarithm of the gamma function and its derivatives, computed in float64."""

import math

from .. import _C

_f, _ops = _C.functions, _C.ops
_SHIFT = 10  # the series in 1 / x are used from here on
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _wide(x):
    return x.detach().double()


def _narrow(value, like):
    return value.to(like.dtype if like.is_floating_point() else _C.get_default_dtype())


def _far(x):
    """x moved up to where the series hold, and where it was moved."""
    near = x < _SHIFT
    return _ops.where(near, x + _SHIFT, x), near


def _log_gamma(x):
    """For x > 0: Stirling's series."""
    y, near = _far(x)
    series = sum(b / (2 * k * (2 * k - 1)) * y ** (1 - 2 * k) for k, b in enumerate(_BERNOULLI, 1))
    far = (y - 0.5) * y.log() - y + 0.5 * math.log(2 * math.pi) + series
    product = x
    for k in range(1, _SHIFT):
        product = product * (x + k)
    return _ops.where(x == math.inf, math.inf, _ops.where(near, far - product.log(), far))


def _digamma(x):
    """For x > 0."""
    y, near = _far(x)
    far = y.log() - 0.5 / y - sum(b / (2 * k) * y ** (-2 * k) for k, b in enumerate(_BERNOULLI, 1))
    return _ops.where(x == math.inf, math.inf, _ops.where(near, far - sum(1 / (x + k) for k in range(_SHIFT)), far))


def _polygamma(n, x):
    """For n >= 1 and x > 0."""
    y, near = _far(x)
    factorial, sign = math.factorial, (-1.0) ** (n + 1)
    far = factorial(n - 1) * y ** -n + factorial(n) / 2 * y ** (-n - 1)
    far = far + sum(b * factorial(2 * k + n - 1) / factorial(2 * k) * y ** (-2 * k - n) for k, b in enumerate(_BERNOULLI, 1))
    return sign * _ops.where(near, far + factorial(n) * sum((x + k) ** (-n - 1) for k in range(_SHIFT)), far)


def _mirrored(x):
    """x or 1 - x, whichever is positive, and where x was not."""
    left = x < 0.5
    return _ops.where(left, 1 - x, x), left


def _lgamma_value(input):
    x = _wide(input)
    y, left = _mirrored(x)
    value = _log_gamma(y)
    wave = (x.remainder(2) * math.pi).sin().abs()
    pole = (x <= 0) & (x == x.floor())
    return _narrow(_ops.where(pole | (x == -math.inf), math.inf, _ops.where(left, (math.pi / wave).log() - value, value)), input)


def _digamma_value(input):
    x = _wide(input)
    y, left = _mirrored(x)
    value = _digamma(y)
    value = _ops.where(left, value - math.pi / (x.remainder(1) * math.pi).tan(), value)
    value = _ops.where((x < 0) & (x == x.floor()), math.nan, value)
    return _narrow(_ops.where(x == 0, -_ops.copysign(_f.full_like(x, math.inf), x), value), input)


def _polygamma_value(n, input):
    x = _wide(input)
    if n == 1:
        y, left = _mirrored(x)
        value = _polygamma(1, y)
        return _narrow(_ops.where(left, (math.pi / (x.remainder(1) * math.pi).sin()) ** 2 - value, value), input)
    return _narrow(_ops.where(x > 0, _polygamma(n, x.clamp_min(1e-300)), math.nan), input)


def _differentiable(value, derivative):
    """value(input) with a gradient of its own; made when it is first called."""
    made = []

    def run(input):
        if not made:
            from ..autograd import Function

            class Gamma(Function):
                @staticmethod
                def forward(ctx, x):
                    ctx.save_for_backward(x)
                    return value(x)

                @staticmethod
                def backward(ctx, grad):
                    return grad * derivative(ctx.saved_tensors[0])

            made.append(Gamma)
        return made[0].apply(input)

    return run


_polygammas = {}
_lgamma, _digamma_function = _differentiable(_lgamma_value, lambda x: digamma(x)), _differentiable(_digamma_value, lambda x: polygamma(1, x))


def lgamma(input):
    """log |gamma(x)|."""
    return _lgamma(input)


def digamma(input):
    """The derivative of lgamma()."""
    return _digamma_function(input)


def polygamma(n, input):
    """The n-th derivative of digamma(); beyond the first for positive numbers."""
    if n == 0:
        return digamma(input)
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n not in _polygammas:
        _polygammas[n] = _differentiable(lambda x: _polygamma_value(n, x), lambda x: polygamma(n + 1, x))
    return _polygammas[n](input)


def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of p dimensions."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    parts = sum(lgamma(input - i / 2) for i in range(p))
    return parts + p * (p - 1) / 4 * math.log(math.pi)
