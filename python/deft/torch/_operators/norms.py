"""Layer, group and batch norm."""

import deft
import deft.nn.functional as F

from .table import ops, row
from .views import like_image


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


@row("_batch_norm_with_update_functional.default")
def batch_norm_with_update(x, weight, bias, mean, var, momentum, eps):
    y, save_mean, save_rstd, mean, var = batch_norm_training(x, weight, bias, mean, var, True, momentum, eps)
    return y, save_mean, save_rstd, deft.zeros(0, dtype=deft.uint8), mean, var


@row("batch_norm_backward.default")
def batch_norm_with_update_backward(g, x, weight, mean, var, save_mean, save_rstd, training, eps, mask, reserve):
    return batch_norm_backward(g, x, weight, mean, var, save_mean, save_rstd, training, eps, mask)


@row("_weight_norm_interface_backward.default")
def weight_norm_backward(g, v, scale, norms, dim):
    others = [d for d in range(v.dim()) if d != dim]
    norms = norms.to(v.dtype).reshape(list(scale.shape))
    along = (g * v).sum(others, True) / norms
    return scale / norms * (g - v * (along / norms)), along


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
    g = like_image(g, x)
    return chosen(ops._batch_norm_backward(g, x, weight, save_mean, save_rstd, training, [int(m) for m in mask], factors),
                  mask)


def statistics_type(x):
    return deft.float64 if x.dtype == deft.float64 else deft.float32
