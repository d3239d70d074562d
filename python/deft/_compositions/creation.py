"""Tensors from nothing: ranges, windows, random draws."""

import math

from .. import _C
from .._C import Tensor

_f, _ops = _C.functions, _C.ops


def empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False):
    """A tensor with these steps in memory, not filled."""
    count = 1 + sum((s - 1) * t for s, t in zip(size, stride)) if all(size) else 0
    return _f.empty(count, dtype=dtype, device=device).as_strided(size, stride).requires_grad_(requires_grad)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False):
    """Powers of a base, evenly spaced in the exponent."""
    exponents = _f.linspace(start, end, steps, dtype=_C.float64)
    result = _ops.pow(_f.full_like(exponents, base), exponents).to(dtype or _C.get_default_dtype())
    return (result if device is None else result.to(device)).requires_grad_(requires_grad)


def range_(start=0, end=None, step=1, **options):
    """arange() with the end included."""
    if end is None:
        start, end = 0, start
    options.setdefault("dtype", _C.get_default_dtype())
    return _f.arange(start, end + step * 1e-6 + (step if (end - start) % step == 0 else 0) * 0.5, step, **options)


def normal(mean, std=1.0, size=None, *, generator=None, dtype=None, device=None, requires_grad=False):
    """Draws from normal distributions."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        like = mean + std * 0 if isinstance(mean, Tensor) else std
        return _f.empty(like.shape, dtype=like.dtype).normal_(generator=generator) * std + mean
    return _f.empty(size or (), dtype=dtype, device=device).normal_(mean, std, generator=generator).requires_grad_(requires_grad)


def poisson(input, generator=None):
    """Draws from Poisson distributions: by counting exponential waits, for means below some hundred."""
    result, product, limit = _f.zeros_like(input), _f.ones_like(input), (-input.double()).exp()
    product = product.double()
    while True:
        product = product * _f.rand(tuple(input.shape), generator=generator, dtype=_C.float64)
        more = product > limit
        if not bool(more.any()):
            return result
        result = result + more.to(input.dtype)


def tril_indices(row, col, offset=0, *, dtype=None, device=None):
    """The places of the lower triangle."""
    return _f.stack(_ops.where(_f.ones(row, col).tril(offset) != 0)).to(dtype or _C.int64)


def triu_indices(row, col, offset=0, *, dtype=None, device=None):
    """The places of the upper triangle."""
    return _f.stack(_ops.where(_f.ones(row, col).triu(offset) != 0)).to(dtype or _C.int64)


def vander(x, N=None, increasing=False):
    """The powers of the elements as columns."""
    n = x.shape[0] if N is None else N
    powers = [_f.ones_like(x)]
    for _ in range(1, n):
        powers.append(powers[-1] * x)
    powers = powers[:n]
    return _f.stack(powers if increasing else powers[::-1], 1) if powers else x.new_empty((x.shape[0], 0))


def _window(length, periodic, options, formula):
    if length <= 1:
        return _f.ones(length, **options)
    angle = _f.arange(length, dtype=_C.float64) * (2 * math.pi / (length if periodic else length - 1))
    result = formula(angle).to(options.pop("dtype", None) or _C.get_default_dtype())
    return result.requires_grad_(options.get("requires_grad", False))


def hann_window(window_length, periodic=True, **options):
    """A raised cosine."""
    return _window(window_length, periodic, options, lambda a: 0.5 - 0.5 * a.cos())


def hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46, **options):
    """A raised cosine that does not reach zero."""
    return _window(window_length, periodic, options, lambda a: alpha - beta * a.cos())


def blackman_window(window_length, periodic=True, **options):
    """Two cosines."""
    return _window(window_length, periodic, options, lambda a: 0.42 - 0.5 * a.cos() + 0.08 * (2 * a).cos())


def bartlett_window(window_length, periodic=True, **options):
    """A triangle."""
    return _window(window_length, periodic, options, lambda a: 1 - (a / math.pi - 1).abs())


def typename(obj):
    """The name of a type."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
