"""The table of ATen operators that Deft runs: one row each. A row takes Deft's tensors where the operator takes torch's,
and numbers, element types and lists as they are; missing tensors are None."""

import math

import torch

import deft
import deft.nn.functional as F

aten = torch.ops.aten
prims = torch.ops.prims
ops = deft._C.ops

DTYPES = {
    torch.float32: deft.float32, torch.float64: deft.float64, torch.float16: deft.float16, torch.bfloat16: deft.bfloat16,
    torch.int8: deft.int8, torch.uint8: deft.uint8, torch.int32: deft.int32, torch.int64: deft.int64, torch.bool: deft.bool,
}

TABLE = {}  # operator -> function
WHEN = {}  # operator -> function(node) that says why a call of it cannot run on Deft, or None


def row(*operators, when=None):
    """Names such as "add.Tensor", of torch.ops.aten; one that this torch lacks is left out."""

    def add(function):
        for name in operators:
            packet, _, overload = name.partition(".")
            packet = getattr(aten, packet, None)
            if packet is not None and hasattr(packet, overload or "default"):
                operator = getattr(packet, overload or "default")
                TABLE[operator] = function
                if when:
                    WHEN[operator] = when
        return function

    return add


def same(names, overload="default", module=deft):
    for name in names.split():
        row(f"{name}.{overload}")(getattr(module, name))


# --- elementwise

same("neg abs sign floor ceil trunc round exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos "
     "atan sinh cosh tanh asinh acosh atanh erf erfc erfinv isnan isinf logical_not bitwise_not sigmoid relu frac")
same("maximum minimum fmax fmin atan2 logaddexp logical_and logical_or logical_xor hypot")
same("mul div fmod remainder eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor", "Tensor")
same("mul div fmod remainder eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor", "Scalar")
same("add sub rsub copysign", "Tensor")
same("hardsigmoid hardswish selu mish", module=F)
same("silu", module=F)
same("addcmul addcdiv lerp")


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


row("pow.Tensor_Scalar", "pow.Scalar", "pow.Tensor_Tensor")(lambda x, y: deft.pow(x, y))
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
row("threshold_backward.default")(lambda g, x, threshold: deft.where(x <= threshold, 0, g))
row("tanh_backward.default")(lambda g, y: g * (1 - y * y))
row("sigmoid_backward.default")(lambda g, y: g * (y * (1 - y)))


@row("leaky_relu_backward.default")
def leaky_relu_backward(g, x, slope, is_result):
    return deft.where(x > 0, g, g * slope)


# --- views and what lies where


def some_dim(x, dim):
    return dim + x.dim() if dim < 0 else dim


def slice_of(x, dim, start, end, step=1):
    return x[(slice(None),) * some_dim(x, dim) + (slice(start, end, step),)]


def open_end(end):
    return None if end is None or end > 1 << 62 else end


@row("slice.Tensor")
def slice_(x, dim=0, start=None, end=None, step=1):
    return slice_of(x, dim, start, open_end(end), step)


@row("view.default", "_unsafe_view.default", "reshape.default")
def view(x, size):
    return x.reshape(size)


@row("expand.default")
def expand(x, size, implicit=False):
    return x.expand(size)


@row("squeeze.dims", "squeeze.dim")
def squeeze(x, dim):
    return deft.squeeze(x, dim) if dim != [] else x


row("squeeze.default")(lambda x: deft.squeeze(x))
row("permute.default")(lambda x, dims: deft.permute(x, dims))
row("transpose.int")(lambda x, a, b: deft.transpose(x, a, b))
row("t.default")(lambda x: deft.t(x))
row("unsqueeze.default")(lambda x, dim: deft.unsqueeze(x, dim))
row("select.int")(lambda x, dim, index: deft.select(x, dim, index))
row("alias.default", "detach.default", "lift_fresh_copy.default", "lift_fresh.default")(lambda x: x)
row("diagonal.default")(lambda x, offset=0, a=0, b=1: deft.diagonal(x, offset, a, b))
row("split.Tensor")(lambda x, size, dim=0: deft.split(x, size, dim))
row("split_with_sizes.default")(lambda x, sizes, dim=0: deft.split(x, list(sizes), dim))
row("unbind.int")(lambda x, dim=0: deft.unbind(x, dim))


def hint(value):
    return value.node.hint if isinstance(value, torch.SymInt) else value


def is_dense(x):
    expected = 1
    for stride, size in sorted((hint(s), hint(n)) for n, s in zip(x.shape, x.stride())):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def is_not_whole(node):
    x = node.args[0].meta["val"]
    return None if is_dense(x) and x.storage_offset() == 0 else "as_strided of a part of a tensor reaches beyond it"


@row("as_strided.default", when=is_not_whole)
def as_strided(x, size, stride, storage_offset=None):
    return x.as_strided(size, stride, storage_offset or 0)


@row("as_strided_scatter.default", when=is_not_whole)
def as_strided_scatter(x, source, size, stride, storage_offset=None):
    y = x.clone()
    y.as_strided(size, stride, storage_offset or 0).copy_(source)
    return y


row("unfold.default")(lambda x, dim, size, step: x.unfold(dim, size, step))


@row("cat.default")
def cat(tensors, dim=0):
    some = [t for t in tensors if t.dim() != 1 or t.numel()] or tensors[:1]  # torch skips empty lists
    return deft.cat(some, dim) if len(some) > 1 else some[0].clone()


row("stack.default")(lambda tensors, dim=0: deft.stack(tensors, dim))
row("repeat.default")(lambda x, repeats: x.repeat(repeats))
row("flip.default")(lambda x, dims: deft.flip(x, dims) if dims else x.clone())
row("roll.default")(lambda x, shifts, dims=(): deft.roll(x, shifts, dims or None))
row("tril.default")(lambda x, diagonal=0: deft.tril(x, diagonal))
row("triu.default")(lambda x, diagonal=0: deft.triu(x, diagonal))


@row("constant_pad_nd.default")
def constant_pad(x, amounts, value=0):
    return F.pad(x, amounts, "constant", float(value))


row("reflection_pad1d.default", "reflection_pad2d.default")(lambda x, amounts: F.pad(x, amounts, "reflect"))
row("replication_pad1d.default", "replication_pad2d.default")(lambda x, amounts: F.pad(x, amounts, "replicate"))

FORMATS = {torch.channels_last: deft.channels_last, torch.contiguous_format: deft.contiguous_format}


@row("clone.default")
def clone(x, memory_format=None):
    return x.clone(memory_format=FORMATS.get(memory_format))


@row("_to_copy.default")
def to_copy(x, dtype=None, non_blocking=False, memory_format=None):
    y = x.to(dtype) if dtype is not None and dtype != x.dtype else x
    if memory_format in FORMATS:
        return y.contiguous(memory_format=FORMATS[memory_format])
    return y


row("copy.default")(lambda x, source, non_blocking=False: source.to(x.dtype).expand(list(x.shape)).clone())


def written(x, part_of, value):
    """A copy of x with the part that `part_of` shows replaced."""
    y = x.clone()
    part_of(y).copy_(value)
    return y


@row("slice_scatter.default")
def slice_scatter(x, source, dim=0, start=None, end=None, step=1):
    return written(x, lambda y: slice_of(y, dim, start, open_end(end), step), source)


@row("select_scatter.default")
def select_scatter(x, source, dim, index):
    return written(x, lambda y: deft.select(y, dim, index), source)


@row("slice_backward.default")
def slice_backward(g, sizes, dim, start, end, step):
    zeros = deft.zeros(*sizes, dtype=g.dtype)
    return written(zeros, lambda y: slice_of(y, dim, start, open_end(end), step), g)


@row("select_backward.default")
def select_backward(g, sizes, dim, index):
    return written(deft.zeros(*sizes, dtype=g.dtype), lambda y: deft.select(y, dim, index), g)


# --- new tensors


def number(value, dtype):
    return value if dtype is None or dtype.is_floating_point else int(value)


@row("full.default")
def full(size, value, dtype=None):
    if dtype is None:
        dtype = deft.bool if isinstance(value, bool) else deft.int64 if isinstance(value, int) else deft.float32
    return deft.full(list(size), value, dtype=dtype)


@row("full_like.default")
def full_like(x, value, dtype=None, memory_format=None):
    return deft.full(list(x.shape), value, dtype=dtype or x.dtype)


@row("new_full.default")
def new_full(x, size, value, dtype=None):
    return deft.full(list(size), value, dtype=dtype or x.dtype)


row("scalar_tensor.default")(lambda value, dtype=None: deft.full([], value, dtype=dtype or deft.float32))
row("zeros.default", "empty.memory_format")(
    lambda size, dtype=None, memory_format=None: deft.full(list(size), 0, dtype=dtype or deft.float32))
row("ones.default")(lambda size, dtype=None: deft.full(list(size), 1, dtype=dtype or deft.float32))
row("zeros_like.default", "empty_like.default")(
    lambda x, dtype=None, memory_format=None: deft.full(list(x.shape), 0, dtype=dtype or x.dtype))
row("ones_like.default")(lambda x, dtype=None, memory_format=None: deft.full(list(x.shape), 1, dtype=dtype or x.dtype))
row("new_zeros.default", "new_empty.default")(
    lambda x, size, dtype=None: deft.full(list(size), 0, dtype=dtype or x.dtype))
row("new_empty_strided.default")(lambda x, size, stride, dtype=None: new_full(x, size, 0, dtype))
row("new_ones.default")(lambda x, size, dtype=None: deft.full(list(size), 1, dtype=dtype or x.dtype))
row("empty_permuted.default")(
    lambda size, order, dtype=None: deft.full([size[i] for i in order], 0, dtype=dtype or deft.float32).permute(
        [order.index(i) for i in range(len(order))]))


@row("arange.start_step", "arange.start")
def arange(start, end, step=1, dtype=None):
    if dtype is None:
        real = any(isinstance(v, float) for v in (start, end, step))
        dtype = deft.float32 if real else deft.int64
    return deft.arange(start, end, step, dtype=dtype)


row("arange.default")(lambda end, dtype=None: arange(0, end, 1, dtype))

# --- reductions


@row("sum.dim_IntList", "sum.default")
def sum_(x, dim=None, keepdim=False, dtype=None):
    return deft.sum(x, dim or None, keepdim, dtype=dtype)


@row("mean.dim", "mean.default")
def mean(x, dim=None, keepdim=False, dtype=None):
    return deft.mean(x, dim or None, keepdim, dtype=dtype)


@row("amax.default")
def amax(x, dim=(), keepdim=False):
    return deft.amax(x, dim or None, keepdim)


@row("amin.default")
def amin(x, dim=(), keepdim=False):
    return deft.amin(x, dim or None, keepdim)


row("any.default")(lambda x: deft.any(x))
row("any.dim", "any.dims")(lambda x, dim=None, keepdim=False: deft.any(x, dim, keepdim))
row("all.default")(lambda x: deft.all(x))
row("all.dim", "all.dims")(lambda x, dim=None, keepdim=False: deft.all(x, dim, keepdim))


def running_type(x):
    return x.dtype if x.dtype.is_floating_point else deft.int64


row("argmax.default")(lambda x, dim=None, keepdim=False: deft.argmax(x, dim, keepdim))
row("argmin.default")(lambda x, dim=None, keepdim=False: deft.argmin(x, dim, keepdim))
row("max.dim")(lambda x, dim, keepdim=False: tuple(deft.max(x, dim, keepdim)))
row("min.dim")(lambda x, dim, keepdim=False: tuple(deft.min(x, dim, keepdim)))
row("prod.default")(lambda x, dtype=None: deft.prod(x, None, False, dtype=dtype))
row("prod.dim_int")(lambda x, dim, keepdim=False, dtype=None: deft.prod(x, dim, keepdim, dtype=dtype))
row("cumsum.default")(lambda x, dim, dtype=None: deft.cumsum(x, dim, dtype=dtype).to(dtype or running_type(x)))
row("cumprod.default")(lambda x, dim, dtype=None: deft.cumprod(x, dim, dtype=dtype).to(dtype or running_type(x)))
row("logsumexp.default")(lambda x, dim, keepdim=False: deft.logsumexp(x, dim, keepdim))


@row("var.correction")
def var(x, dim=None, correction=1, keepdim=False):
    return deft.var(x, dim, keepdim=keepdim, correction=1.0 if correction is None else float(correction))


@row("var_mean.correction")
def var_mean(x, dim=None, correction=1, keepdim=False):
    return deft.var_mean(x, dim, keepdim=keepdim, correction=1.0 if correction is None else float(correction))


@row("linalg_vector_norm.default")
def vector_norm(x, ord=2, dim=None, keepdim=False, dtype=None):
    return deft.norm(x.to(dtype) if dtype else x, float(ord), dim, keepdim)


row("topk.default")(lambda x, k, dim=-1, largest=True, sorted=True: tuple(deft.topk(x, k, dim, largest, sorted)))


# --- products


def is_turned(x):
    """The matrix whose transpose x is, if it is one: linear() takes weights so."""
    return x.dim() == 2 and x.stride()[0] == 1 and x.shape[1] > 1


@row("mm.default")
def mm(x, y):
    if is_turned(y) and x.dtype == y.dtype:
        return F.linear(x, y.t())
    return deft.mm(x, y)


row("bmm.default")(lambda x, y: deft.bmm(x, y))


@row("addmm.default")
def addmm(bias, x, y, beta=1, alpha=1):
    if beta == 1 and alpha == 1 and is_turned(y) and bias.dim() == 1 and bias.shape[0] == y.shape[1]:
        return F.linear(x, y.t(), bias)
    return deft.addmm(bias, x, y, beta=beta, alpha=alpha)


@row("baddbmm.default")
def baddbmm(bias, x, y, beta=1, alpha=1):
    return deft.baddbmm(bias, x, y, beta=beta, alpha=alpha)


row("mv.default")(lambda x, y: deft.mv(x, y))
row("dot.default")(lambda x, y: deft.dot(x, y))

# --- convolutions


def conv_name(x, transposed):
    return f"conv_transpose{x.dim() - 2}d" if transposed else f"conv{x.dim() - 2}d"


@row("convolution.default")
def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    function = getattr(F, conv_name(weight, transposed))
    if transposed:
        return function(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return function(x, weight, bias, stride, padding, dilation, groups)


@row("convolution_backward.default")
def convolution_backward(g, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    dx = dw = db = None
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


# --- pooling


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
    return ops._max_pool_backward(g, x, indices, kernel, stride, padding, dilation, ceil_mode)


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


row("_adaptive_avg_pool2d.default")(lambda x, size: ops._adaptive_avg_pool2d(x, size))
row("_adaptive_avg_pool3d.default")(lambda x, size: ops._adaptive_avg_pool3d(x, size))


@row("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(g, x):
    if x.dim() == 3:
        return adaptive_avg_pool_backward(g.unsqueeze(0), x.unsqueeze(0)).squeeze(0)
    return ops._adaptive_avg_pool_backward(g, x, list(g.shape[2:]))


row("adaptive_max_pool2d.default")(lambda x, size: tuple(ops._adaptive_max_pool2d(x, size, True)))

row("upsample_nearest2d.default", "upsample_nearest1d.default")(
    lambda x, size, *scales: F.interpolate(x, size, mode="nearest"))

# --- norms


@row("native_layer_norm.default")
def layer_norm(x, shape, weight, bias, eps):
    y, mean, rstd = ops._layer_norm(x, shape, weight, bias, eps)
    kept = list(x.shape[: x.dim() - len(shape)]) + [1] * len(shape)
    return y, mean.reshape(kept), rstd.reshape(kept)


def statistics(t, sizes, dtype):
    return t.reshape(sizes).to(deft.float64 if dtype == deft.float64 else deft.float32).contiguous()


@row("native_layer_norm_backward.default")
def layer_norm_backward(g, x, shape, mean, rstd, weight, bias, mask):
    lead = list(x.shape[: x.dim() - len(shape)])
    mean, rstd = statistics(mean, lead, x.dtype), statistics(rstd, lead, x.dtype)
    wanted = [int(m) for m in mask]
    return chosen(ops._layer_norm_backward(g, x, shape, weight, mean, rstd, wanted), mask)


def chosen(grads, mask):
    return tuple(t if m else None for t, m in zip(grads, mask))


@row("native_group_norm.default")
def group_norm(x, weight, bias, n, c, space, groups, eps):
    return tuple(ops._group_norm(x, groups, weight, bias, eps))


@row("native_group_norm_backward.default")
def group_norm_backward(g, x, mean, rstd, weight, n, c, space, groups, mask):
    mean, rstd = statistics(mean, [n, groups], x.dtype), statistics(rstd, [n, groups], x.dtype)
    return chosen(ops._group_norm_backward(g, x, groups, weight, mean, rstd, [int(m) for m in mask]), mask)


@row("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(x, weight, bias, mean, var, momentum, eps):
    y = F.batch_norm(x, mean, var, weight, bias, False, momentum, eps)
    return y, deft.zeros(0, dtype=mean.dtype), deft.zeros(0, dtype=mean.dtype)


@row("_native_batch_norm_legit_functional.default")
def batch_norm_training(x, weight, bias, mean, var, training, momentum, eps):
    if not training:
        return (*batch_norm_inference(x, weight, bias, mean, var, momentum, eps), mean, var)
    mean, var = mean.clone(), var.clone()
    return (*ops._batch_norm(x, weight, bias, mean, var, True, momentum, eps), mean, var)


@row("_native_batch_norm_legit.no_stats")
def batch_norm_no_statistics(x, weight, bias, training, momentum, eps):
    return tuple(ops._batch_norm(x, weight, bias, None, None, True, momentum, eps))


@row("native_batch_norm_backward.default")
def batch_norm_backward(g, x, weight, mean, var, save_mean, save_rstd, training, eps, mask):
    c = [x.shape[1]]
    if not training:
        save_mean, save_rstd = mean, deft.rsqrt(var.to(statistics_type(x)) + eps)
    save_mean, save_rstd = statistics(save_mean, c, x.dtype), statistics(save_rstd, c, x.dtype)
    factors = x.dtype if weight is None else weight.dtype
    return chosen(ops._batch_norm_backward(g, x, weight, save_mean, save_rstd, training, [int(m) for m in mask], factors),
                  mask)


def statistics_type(x):
    return deft.float64 if x.dtype == deft.float64 else deft.float32


# --- softmax and attention


@row("_softmax.default", "_safe_softmax.default")
def softmax(x, dim, half_to_float=False, dtype=None):
    return deft.softmax(x, dim, deft.float32 if half_to_float is True else dtype)


row("_log_softmax.default")(lambda x, dim, half_to_float: deft.log_softmax(x, dim, deft.float32 if half_to_float else None))
row("_softmax_backward_data.default")(lambda g, y, dim, dtype: ops._softmax_backward(g, y, dim).to(dtype))
row("_log_softmax_backward_data.default")(lambda g, y, dim, dtype: ops._log_softmax_backward(g, y, dim).to(dtype))


def scale_of(q, scale):
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def has_dropout(node):
    p = node.args[3] if len(node.args) > 3 else 0
    return "attention with dropout draws random numbers, which torch must do" if p else None


@row("_scaled_dot_product_flash_attention_for_cpu.default", when=has_dropout)
def attention(q, k, v, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None):
    y, log_sum = ops._attention(q, k, v, attn_mask, is_causal, scale_of(q, scale))
    return y, log_sum * math.log(2)


def has_dropout_backward(node):
    return "attention with dropout draws random numbers, which torch must do" if node.args[6] else None


@row("_scaled_dot_product_flash_attention_for_cpu_backward.default", when=has_dropout_backward)
def attention_backward(g, q, k, v, y, log_sum, dropout_p, is_causal, attn_mask=None, scale=None):
    log_sum = (log_sum * (1 / math.log(2))).contiguous()  # as the forward pass of Deft would have left it
    return tuple(ops._attention_backward(g, q, k, v, attn_mask, y, log_sum, is_causal, scale_of(q, scale)))


def has_mask_argument(node):
    return "a transformer layer with a mask" if len(node.args) > 18 and node.args[18] is not None or "mask" in node.kwargs else None


@row("_transformer_encoder_layer_fwd.default", when=has_mask_argument)
def transformer_encoder_layer(x, width, heads, qkv_weight, qkv_bias, out_weight, out_bias, use_gelu, norm_first, eps,
                              weight1, bias1, weight2, bias2, up_weight, up_bias, down_weight, down_bias, *rest):
    """What nn.TransformerEncoderLayer calls where no gradients are wanted."""

    def attend(h):
        q, k, v = (t.unflatten(-1, (heads, width // heads)).transpose(1, 2)
                   for t in deft.chunk(F.linear(h, qkv_weight, qkv_bias), 3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return F.linear(y.transpose(1, 2).reshape(list(h.shape)), out_weight, out_bias)

    def feed(h):
        h = F.linear(h, up_weight, up_bias)
        return F.linear(F.gelu(h) if use_gelu else F.relu(h), down_weight, down_bias)

    def norm(h, weight, bias):
        return F.layer_norm(h, [width], weight, bias, eps)

    if norm_first:
        x = x + attend(norm(x, weight1, bias1))
        return x + feed(norm(x, weight2, bias2))
    x = norm(x + attend(x), weight1, bias1)
    return norm(x + feed(x), weight2, bias2)


# --- reading by index


def indices(t):
    return t.to(deft.int64) if t.dtype in (deft.int32, deft.uint8, deft.int8) else t


@row("embedding.default")
def embedding(weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return F.embedding(indices(index), weight)


@row("embedding_dense_backward.default",
     when=lambda node: "embedding with scale_grad_by_freq" if node.args[4] else None)
def embedding_backward(g, index, rows, padding_idx, scale_grad_by_freq):
    return ops._embedding_backward(g, indices(index), rows, padding_idx)


row("gather.default")(lambda x, dim, index, sparse_grad=False: deft.gather(x, dim, indices(index)))
row("scatter.value")(lambda x, dim, index, value: deft.scatter(x, dim, indices(index), value=value))
row("scatter.src")(lambda x, dim, index, source: deft.scatter(x, dim, indices(index), source))
row("scatter_add.default")(lambda x, dim, index, source: deft.scatter_add(x, dim, indices(index), source))
row("index_select.default")(lambda x, dim, index: deft.index_select(x, dim, indices(index)))


def has_mask(node):
    for index in node.args[1]:
        if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8):
            return "indexing by a mask has a result whose size depends on values"
    return None


@row("index.Tensor", when=has_mask)
def index(x, at):
    return x[tuple(slice(None) if i is None else indices(i) for i in at)]


@row("index_put.default", "_unsafe_index_put.default", when=has_mask)
def index_put(x, at, values, accumulate=False):
    indexed = [d for d, i in enumerate(at) if i is not None]
    order = indexed + [d for d in range(x.dim()) if d not in indexed]
    first = indexed[0]
    if first and indexed[-1] - first == len(indexed) - 1:  # the dimensions of the indices stand where the indexed ones did
        width = max(at[d].dim() for d in indexed)
        rank = width + x.dim() - len(indexed)
        values = values.expand([1] * (rank - values.dim()) + list(values.shape)) if values.dim() < rank else values
        values = values.permute([*range(first, first + width), *range(first), *range(first + width, rank)])
    turned = x.permute(order).clone(memory_format=deft.contiguous_format)
    turned.index_put_([indices(at[d]) for d in indexed], values.to(x.dtype), accumulate)
    return turned.permute([order.index(d) for d in range(x.dim())])


row("_unsafe_index.Tensor", when=has_mask)(index)

# Random operators: torch draws before the plan runs, in the order of the graph, so that torch.manual_seed() holds.
# operator -> (what to draw given the node's sizes and element type, what follows on Deft).


def draw_dropout(sizes, dtype, x, p, train):
    return torch.empty(sizes, dtype=torch.bool).bernoulli_(1 - p)


def dropout(mask, x, p, train):
    return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask


RANDOM = {
    aten.native_dropout.default: (draw_dropout, dropout),
    aten.rand.default: (lambda sizes, dtype, /, *a, **k: torch.rand(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.randn.default: (lambda sizes, dtype, /, *a, **k: torch.randn(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.rand_like.default: (lambda sizes, dtype, /, *a, **k: torch.rand(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.randn_like.default: (lambda sizes, dtype, /, *a, **k: torch.randn(sizes, dtype=dtype), lambda drawn, *a, **k: drawn),
    aten.bernoulli.p: (lambda sizes, dtype, /, x, p=0.5, **k: torch.empty(sizes, dtype=dtype).bernoulli_(p),
                       lambda drawn, *a, **k: drawn),
}

aten_copy_ = aten.copy_.default

# Operators that mean memory: their first argument must lie as it was traced.
OF_MEMORY = {aten.as_strided.default, aten.as_strided_scatter.default}

# Operators whose result, or each of whose results, lies on the memory of their first argument.
VIEWS = {getattr(getattr(aten, n), o) for n, o in (
    ("view", "default"), ("permute", "default"), ("transpose", "int"), ("t", "default"), ("expand", "default"),
    ("unsqueeze", "default"), ("squeeze", "dim"), ("squeeze", "dims"), ("squeeze", "default"), ("slice", "Tensor"),
    ("select", "int"), ("alias", "default"), ("detach", "default"), ("diagonal", "default"), ("unfold", "default"),
    ("split", "Tensor"), ("split_with_sizes", "default"), ("unbind", "int"))}
