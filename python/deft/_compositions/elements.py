"""Functions of single elements."""

import math
from collections import namedtuple

from .. import _C
from .._C import Tensor

_f, _ops = _C.functions, _C.ops
_Frexp = namedtuple("frexp", ["mantissa", "exponent"])


def deg2rad(input):
    """Degrees as radians."""
    return input * (math.pi / 180)


def rad2deg(input):
    """Radians as degrees."""
    return input * (180 / math.pi)


def float_power(input, exponent):
    """A power, computed in float64."""
    wide = lambda x: x.double() if isinstance(x, Tensor) else x
    return _ops.pow(input.double() if isinstance(input, Tensor) else _f.tensor(input, dtype=_C.float64), wide(exponent))


def heaviside(input, values):
    """0 below zero, 1 above, values at zero."""
    return _ops.where(input == 0, values, (input > 0).to(input.dtype))


def ldexp(input, other):
    """input * 2**other."""
    return input * _ops.pow(_f.full_like(other, 2, dtype=input.dtype if input.is_floating_point() else _C.get_default_dtype()), other)


def logaddexp2(input, other):
    """log2(2**input + 2**other)."""
    ln2 = math.log(2)
    return _ops.logaddexp(input * ln2, other * ln2) / ln2


def logit(input, eps=None):
    """log(x / (1 - x))."""
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def sinc(input):
    """sin(pi x) / (pi x)."""
    x = input * math.pi
    zero = input == 0
    return _ops.where(zero, 1.0, x.sin() / x.masked_fill(zero, 1.0))


def sgn(input):
    """The sign."""
    return input.sign()


def signbit(input):
    """Whether the sign is set, also of -0.0."""
    return _ops.copysign(_f.ones_like(input, dtype=None if input.is_floating_point() else _C.float32), input.float() if not input.is_floating_point() else input) < 0


def positive(input):
    """The tensor itself."""
    return input


def real(input):
    """The real part: the tensor itself."""
    return input


def conj(input):
    """The conjugate: the tensor itself."""
    return input


def adjoint(input):
    """The last two dimensions swapped."""
    return input.transpose(-2, -1)


def isneginf(input):
    """Which are -inf."""
    return input == -math.inf if input.is_floating_point() else _f.zeros_like(input, dtype=_C.bool)


def isposinf(input):
    """Which are inf."""
    return input == math.inf if input.is_floating_point() else _f.zeros_like(input, dtype=_C.bool)


def isreal(input):
    """True everywhere."""
    return _f.ones_like(input, dtype=_C.bool)


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Which elements are among the others."""
    as_tensor = lambda x: x if isinstance(x, Tensor) else _f.tensor(x)
    found = (as_tensor(elements).unsqueeze(-1) == as_tensor(test_elements).reshape(-1)).any(-1)
    return found.logical_not() if invert else found


def gcd(input, other):
    """The greatest common divisor."""
    a, b = _ops.abs(input), _ops.abs(other)
    a, b = a + b * 0, b + a * 0
    while bool((b != 0).any()):
        a, b = _ops.where(b != 0, b, a), _ops.where(b != 0, a.remainder(b.masked_fill(b == 0, 1)), b)
    return a


def lcm(input, other):
    """The least common multiple."""
    d = gcd(input, other)
    return (input * other).abs() // d.masked_fill(d == 0, 1)


def fill(input, value):
    """The same shape, filled."""
    return input.clone().fill_(value)


def is_nonzero(input):
    """Whether the one element is not zero."""
    if input.numel() != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no values' if input.numel() == 0 else 'more than one value'} is ambiguous")
    return bool(input)


def is_signed(input):
    """Whether the type has negative numbers."""
    return input.dtype.is_signed


_round = _f.round


def round(input, *, decimals=0):
    """To the nearest number with this many decimals."""
    if decimals == 0:
        return _round(input)
    scale = 10.0**decimals
    return _round(input * scale) / scale


def angle(input):
    """pi for negative numbers, 0 for others."""
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    return _ops.where(x.isnan(), x, _ops.where(x < 0, math.pi, 0.0).to(x.dtype))


def conj_physical(input):
    """The conjugate: a copy."""
    return input.clone()


def resolve_conj(input):
    """The tensor itself: nothing is conjugated lazily."""
    return input


def resolve_neg(input):
    """The tensor itself: nothing is negated lazily."""
    return input


def is_conj(input):
    """Whether a conjugation is still to be done: never."""
    return False


def is_neg(input):
    """Whether a negation is still to be done: never."""
    return False


def is_same_size(input, other):
    """Whether two tensors have one shape."""
    return input.shape == other.shape


def frexp(input):
    """x as mantissa * 2**exponent, with mantissas from 0.5 to 1."""
    x = input.detach().double()
    plain = (x != 0) & x.isfinite()
    exponent = _ops.where(plain, _ops.where(plain, x, 1.0).abs().log2().floor() + 1, 0.0)
    half = (exponent / 2).floor()  # in two steps: 2**exponent may be out of range
    size = (x * _ops.pow(2.0, -half) * _ops.pow(2.0, half - exponent)).abs()
    off = _ops.where(plain & (size >= 1), 1, 0) - _ops.where(plain & (size < 0.5), 1, 0)  # where log2 rounded over a power of 2
    exponent = exponent + off
    scale = _ops.pow(2.0, -half) * _ops.pow(2.0, half - exponent)
    mantissa = (input.double() * scale if input.dtype is _C.float64 else (input * scale).to(input.dtype))
    return _Frexp(mantissa, exponent.to(_C.int32))
