"""Pooling that is built of other operations: p-norms, the way back, random windows."""

import math

from .. import _C

_f, _F = _C.functions, _C.functional


def _tuple(value, n):
    return (value,) * n if isinstance(value, int) else tuple(value)


def _lp_pool(n):
    def run(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        kernel = _tuple(kernel_size, n)
        mean = getattr(_F, f"avg_pool{n}d")(input.pow(norm_type), kernel, stride if stride is not None else kernel, 0, ceil_mode)
        return (mean.sign() * mean.abs().relu() * math.prod(kernel)).pow(1.0 / norm_type)

    run.__name__ = run.__qualname__ = f"lp_pool{n}d"
    run.__doc__ = "The p-norm of windows."
    return run


lp_pool1d, lp_pool2d, lp_pool3d = _lp_pool(1), _lp_pool(2), _lp_pool(3)


def _max_unpool(n):
    def run(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        kernel = _tuple(kernel_size, n)
        step, pad = kernel if stride is None else _tuple(stride, n), _tuple(padding, n)
        sizes = [(input.shape[i - n] - 1) * step[i] - 2 * pad[i] + kernel[i] for i in range(n)]
        if output_size is not None:
            wanted = list(output_size)[-n:]
            if any(not s - t < w < s + t for s, w, t in zip(sizes, wanted, step)):
                raise ValueError(f"invalid output_size {wanted}: each must be within one stride of {sizes}")
            sizes = wanted
        lead = tuple(input.shape[:-n])
        flat = input.new_zeros((*lead, math.prod(sizes))).scatter(-1, indices.reshape(*lead, -1), input.reshape(*lead, -1))
        return flat.reshape(*lead, *sizes)

    run.__name__ = run.__qualname__ = f"max_unpool{n}d"
    run.__doc__ = "The pooled values back in their places, zeros elsewhere."
    return run


max_unpool1d, max_unpool2d, max_unpool3d = _max_unpool(1), _max_unpool(2), _max_unpool(3)


def _with_indices(n):
    def run(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True):
        return getattr(_F, f"max_pool{n}d")(input, kernel_size, stride, padding, dilation, ceil_mode, True)

    run.__name__ = run.__qualname__ = f"max_pool{n}d_with_indices"
    run.__doc__ = "The largest of windows, and their places."
    return run


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(_with_indices, (1, 2, 3))


def _adaptive_with_indices(n):
    def run(input, output_size, return_indices=True):
        from . import functional

        return getattr(functional, f"adaptive_max_pool{n}d")(input, output_size, True)

    run.__name__ = run.__qualname__ = f"adaptive_max_pool{n}d_with_indices"
    run.__doc__ = "Pools to the given size: the largest, and their places."
    return run


adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = map(_adaptive_with_indices, (1, 2, 3))


def _random_windows(samples, size, out, kernel):
    """Where windows begin and what they cover: [batch, channels, out, kernel]."""
    if out == 1:
        start = _f.full((*samples.shape, 1), size - kernel, dtype=_C.int64)
    else:
        step = (size - kernel) / (out - 1)
        s = samples.unsqueeze(-1)
        start = ((_f.arange(out, dtype=samples.dtype) + s) * step).long() - (s * step).long()
        start[..., -1] = size - kernel
    return start.unsqueeze(-1) + _f.arange(kernel)


def _fractional_sizes(input, n, kernel, output_size, output_ratio):
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"fractional_max_pool{n}d requires specifying either an output_size or an output_ratio, and not both")
    if output_size is not None:
        sizes = _tuple(output_size, n)
    else:
        ratios = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
        sizes = tuple(int(s * r) for s, r in zip(input.shape[-n:], ratios))
    for size, out, k in zip(input.shape[-n:], sizes, kernel):
        if out < 1 or out + k - 1 > size:
            raise RuntimeError(f"fractional_max_pool{n}d: found {out} windows of {k} in {size} elements, expected room for all of them")
    return sizes


def _fractional(n):
    def with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        kernel = _tuple(kernel_size, n)
        sizes = _fractional_sizes(input, n, kernel, output_size, output_ratio)
        x = input if input.ndim == n + 2 else input.unsqueeze(0)
        if _random_samples is None:
            _random_samples = _f.rand(x.shape[0], x.shape[1], n, dtype=x.dtype, device=x.device)
        order = range(n) if n == 3 else reversed(range(n))  # torch's order of the samples
        place, count = 0, 1
        for axis, sample in zip(range(n), order):
            size, out, k = x.shape[axis - n], sizes[axis], kernel[axis]
            windows = _random_windows(_random_samples[..., sample], size, out, k)
            shape = [1] * (2 * n)
            shape[axis], shape[n + axis] = out, k
            place, count = place * size + windows.reshape(*windows.shape[:2], *shape), count * k
        place = place.reshape(x.shape[0], x.shape[1], -1, count)
        found = x.reshape(x.shape[0], x.shape[1], -1).gather(2, place.flatten(2)).reshape(place.shape)
        best = found.detach().argmax(-1, keepdim=True)
        shape = (*(x.shape[:2] if input.ndim == n + 2 else input.shape[:1]), *sizes)
        return found.gather(-1, best).reshape(shape), place.gather(-1, best).reshape(shape)

    def run(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        values, indices = with_indices(input, kernel_size, output_size, output_ratio, True, _random_samples)
        return (values, indices) if return_indices else values

    for function, name in ((with_indices, f"fractional_max_pool{n}d_with_indices"), (run, f"fractional_max_pool{n}d")):
        function.__name__ = function.__qualname__ = name
        function.__doc__ = "The largest of windows that begin at random places, a given number of them along each axis."
    return run, with_indices


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional(3)
