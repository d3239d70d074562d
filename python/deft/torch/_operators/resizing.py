"""Pictures in other sizes: interpolation, sampling at places, windows side by side, gradients of padding."""

import deft
import deft.nn.functional as F

from .pointwise import gradient
from .table import aten, row


def resized(x, size, scales, mode, corners=None):
    """torch takes the places of elements from the scales where they are given, and from the sizes otherwise."""
    scales = [s for s in scales if s is not None]
    if len(scales) == len(size) and not corners:
        y = F.interpolate(x, scale_factor=[float(s) for s in scales], mode=mode, align_corners=corners)
        if list(y.shape[2:]) == list(size):
            return y
    return F.interpolate(x, list(size), mode=mode, align_corners=corners)


def add_nearest(name, mode):
    def forward(x, size, *scales):
        return resized(x, size, scales, mode)

    def backward(g, size, sizes, *scales):
        return gradient(lambda t: resized(t, size, scales, mode))(g, deft.zeros(*sizes, dtype=g.dtype))

    row(f"{name}.default")(forward)
    row(f"{name}_backward.default")(backward)


def add_smooth(name, mode):
    def forward(x, size, corners, *scales):
        return resized(x, size, scales, mode, corners)

    def backward(g, size, sizes, corners, *scales):
        return gradient(lambda t: resized(t, size, scales, mode, corners))(g, deft.zeros(*sizes, dtype=g.dtype))

    row(f"{name}.default")(forward)
    row(f"{name}_backward.default")(backward)


for dims in "123":
    add_nearest(f"upsample_nearest{dims}d", "nearest")
    add_nearest(f"_upsample_nearest_exact{dims}d", "nearest-exact")
for name in ("linear1d", "bilinear2d", "trilinear3d"):
    add_smooth(f"upsample_{name}", name[:-2])
add_smooth("upsample_bicubic2d", "bicubic")

SAMPLING, BORDERS = ("bilinear", "nearest"), ("zeros", "border", "reflection")


def is_bicubic(node):
    place = 2 if node.target is aten.grid_sampler_2d.default else 3
    return "sampling a grid by cubic polynomials" if node.args[place] == 2 else None


@row("grid_sampler_2d.default", when=is_bicubic)
def grid_sampler(x, grid, mode, border, corners):
    return F.grid_sample(x, grid, SAMPLING[mode], BORDERS[border], corners)


@row("grid_sampler_2d_backward.default", when=is_bicubic)
def grid_sampler_backward(g, x, grid, mode, border, corners, mask):
    with deft.enable_grad():
        leaves = [x.detach().requires_grad_(), grid.detach().requires_grad_()]
        y = grid_sampler(*leaves, mode, border, corners)
        dx, dgrid = deft.autograd.grad([y], leaves, [g], allow_unused=True)
    dgrid = deft.zeros_like(grid) if dgrid is None else dgrid
    return dx.detach() if mask[0] else None, dgrid.detach() if mask[1] else None


@row("im2col.default")
def im2col(x, kernel, dilation, padding, stride):
    return F.unfold(x, kernel, dilation, padding, stride)


@row("col2im.default")
def col2im(x, size, kernel, dilation, padding, stride):
    return F.fold(x, size, kernel, dilation, padding, stride)


def pad_backward(mode):
    return lambda g, x, amounts: gradient(lambda t: F.pad(t, amounts, mode))(g, x)


for dims in "123":
    for kind, mode in (("reflection", "reflect"), ("replication", "replicate")):
        row(f"{kind}_pad{dims}d_backward.default")(pad_backward(mode))
