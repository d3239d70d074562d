"""Layers without parameters: shapes, pools, padding and resizing."""

from .. import functional as F
from .layers import _tuple
from .module import Module


class Identity(Module):
    """Gives back its input."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Flatten(Module):
    """Joins dimensions."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Takes a dimension apart."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input):
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class _MaxPool(Module):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def forward(self, input):
        return self.function(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self):
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class _AvgPool(Module):
    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride if stride is not None else kernel_size, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input):
        return self.function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                             self.divisor_override)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AdaptivePool(Module):
    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input):
        return self.function(input, self.output_size, self.return_indices)

    def extra_repr(self):
        return f"output_size={self.output_size}"


def _pools():
    for n in (1, 2, 3):
        for base, name, function in ((_MaxPool, f"MaxPool{n}d", f"max_pool{n}d"), (_AvgPool, f"AvgPool{n}d", f"avg_pool{n}d"),
                                     (_AdaptivePool, f"AdaptiveAvgPool{n}d", f"adaptive_avg_pool{n}d"),
                                     (_AdaptivePool, f"AdaptiveMaxPool{n}d", f"adaptive_max_pool{n}d")):
            body = {"function": staticmethod(getattr(F, function)), "__doc__": f"deft.nn.functional.{function} as a module.",
                    "__module__": __name__}
            globals()[name] = type(name, (base,), body)


_pools()


class _Pad(Module):
    dims, mode = 2, "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = _tuple(padding, 2 * self.dims)

    def forward(self, input):
        return F.pad(input, self.padding, self.mode, getattr(self, "value", None))

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


def _pads():
    for n in (1, 2, 3):
        for name, base, mode in ((f"ConstantPad{n}d", _ConstantPad, "constant"), (f"ZeroPad{n}d", _Pad, "constant"),
                                 (f"ReflectionPad{n}d", _Pad, "reflect"), (f"ReplicationPad{n}d", _Pad, "replicate"),
                                 (f"CircularPad{n}d", _Pad, "circular")):
            globals()[name] = type(name, (base,), {"dims": n, "mode": mode, "__doc__": f"Pads {n} dimensions.", "__module__": __name__})


_pads()


class Upsample(Module):
    """Resizes pictures."""

    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input):
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self):
        what = f"scale_factor={self._shown(self.scale_factor)}" if self.size is None else f"size={self.size}"
        return f"{what}, mode='{self.mode}'"

    @staticmethod
    def _shown(scale):
        return tuple(map(float, scale)) if isinstance(scale, tuple) else float(scale)


class UpsamplingNearest2d(Upsample):
    """Resizes pictures to the nearest element."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Resizes pictures with lines between corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "bilinear", True)


class ChannelShuffle(Module):
    """Mixes the channels of groups."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"


class _FractionalMaxPool(Module):
    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__} requires specifying either an output_size or an output_ratio, and not both")
        self.kernel_size, self.output_size, self.output_ratio, self.return_indices = kernel_size, output_size, output_ratio, return_indices
        self._random_samples = _random_samples

    def forward(self, input):
        return self.function(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest of windows at random places, so that sizes shrink by a fraction."""

    function = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest of windows at random places, so that sizes shrink by a fraction."""

    function = staticmethod(F.fractional_max_pool3d)


class _MaxUnpool(Module):
    dims = 2

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        n = self.dims
        self.kernel_size, self.padding = _tuple(kernel_size, n), _tuple(padding, n)
        self.stride = _tuple(stride if stride is not None else kernel_size, n)

    def forward(self, input, indices, output_size=None):
        return self.function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPool(Module):
    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input):
        return self.function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self):
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


def _special_pools():
    for n in (1, 2, 3):
        for base, name, function in ((_MaxUnpool, f"MaxUnpool{n}d", f"max_unpool{n}d"), (_LPPool, f"LPPool{n}d", f"lp_pool{n}d")):
            globals()[name] = type(name, (base,), {"dims": n, "function": staticmethod(getattr(F, function)),
                                                   "__doc__": f"deft.nn.functional.{function} as a module.", "__module__": __name__})


_special_pools()


class PixelShuffle(Module):
    """Channels to pixels."""

    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels to channels."""

    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"


class Unfold(Module):
    """Sliding blocks as columns."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns to sliding blocks, summed where they overlap."""

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = output_size, kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return (f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
                f"padding={self.padding}, stride={self.stride}")
