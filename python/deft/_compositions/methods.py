"""Methods of Tensor that functions do not have: in place, random draws, other sizes."""

import math

from .. import _C
from .._C import Tensor

_f, _ops = _C.functions, _C.ops


def _in_place(function):
    def run(self, *args, **kwargs):
        return self.copy_(function(self, *args, **kwargs))

    run.__name__ = run.__qualname__ = function.__name__ + "_"
    run.__doc__ = f"{function.__name__}(), in place."
    return run


def _index_copy_(self, dim, index, source):
    """Writes the slices of source at these places."""
    self[(slice(None),) * (dim % max(self.ndim, 1)) + (index,)] = source
    return self


def _index_fill_(self, dim, index, value):
    """Fills slices."""
    self[(slice(None),) * (dim % max(self.ndim, 1)) + (index,)] = value
    return self


def _put_(self, index, source, accumulate=False):
    """Writes values at these places of the flat tensor."""
    self.view(-1).index_put_((index.reshape(-1),), source.reshape(-1), accumulate)
    return self


def _fill_diagonal_(self, fill_value, wrap=False):
    """Fills the diagonal."""
    if wrap:
        raise NotImplementedError("fill_diagonal_: wrap=True is not supported")
    n = min(self.shape)
    index = _f.arange(n)
    self[(index,) * self.ndim] = fill_value
    return self


def _random_(self, *args, generator=None, **kwargs):
    """Whole numbers from `from` up to, not including, `to`."""
    low, high = kwargs.get("from", 0), kwargs.get("to")
    if len(args) == 1:
        high = args[0]
    elif len(args) == 2:
        low, high = args
    if high is None:
        exact = {_C.float32: 2**24 + 1, _C.float64: 2**53 + 1, _C.float16: 2**11 + 1, _C.bfloat16: 2**8 + 1, _C.int8: 128,
                 _C.uint8: 256, _C.bool: 2, _C.int32: 2**31 - 1, _C.int64: 2**63 - 1}
        high = exact[self.dtype]
    return self.copy_(_ops._randint(low, high, tuple(self.shape), generator=generator))


def _uniform(self, generator):
    """Draws from (0, 1], so that their logarithm is finite."""
    return 1 - _f.rand(tuple(self.shape), generator=generator, dtype=_C.float64 if self.dtype is _C.float64 else _C.float32)


def _exponential_(self, lambd=1, *, generator=None):
    """Draws waits of a rate."""
    return self.copy_(_uniform(self, generator).log() / -lambd)


def _geometric_(self, p, *, generator=None):
    """Draws numbers of trials until success."""
    return self.copy_((_uniform(self, generator).log() / math.log1p(-p)).ceil().clamp_min(1))


def _cauchy_(self, median=0, sigma=1, *, generator=None):
    """Draws from a Cauchy distribution."""
    return self.copy_(median + sigma * ((_uniform(self, generator) - 0.5) * math.pi).tan())


def _log_normal_(self, mean=1, std=2, *, generator=None):
    """Draws whose logarithm is normal."""
    return self.normal_(mean, std, generator=generator).exp_()


def _bernoulli_(self, p=0.5, *, generator=None):
    """Draws 1 with probability p, else 0."""
    chance = p if isinstance(p, Tensor) else _f.full(tuple(self.shape), float(p))
    return self.copy_(_ops.bernoulli(chance, generator=generator))


def _reshaping(function):
    """x.unsqueeze_(0) and the like: the tensor becomes another view of its memory."""

    def run(self, *args, **kwargs):
        if self.grad_fn is not None:
            raise _C.UnsupportedError(f"{function.__name__}_: the tensor has a history of gradients; use x = x.{function.__name__}(...)")
        self.data = function(self.detach(), *args, **kwargs)
        return self

    run.__name__ = run.__qualname__ = function.__name__ + "_"
    run.__doc__ = f"{function.__name__}(), in place."
    return run


def _resize_(self, *sizes):
    """Another size; elements that are new hold anything."""
    size = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    count, here = math.prod(size), self.detach().reshape(-1)
    if count <= here.numel():
        self.data = here[:count].reshape(size)
    else:
        self.data = _f.cat([here, here.new_empty(count - here.numel())]).reshape(size)
    return self


def _resize_as_(self, other):
    """The size of another tensor."""
    return _resize_(self, *other.shape)


def _set_(self, source=None):
    """Uses the memory of another tensor."""
    self.data = self.new_empty(0) if source is None else source.detach()
    return self


def _apply_(self, callable):
    """Each element through a Python function."""
    flat = [callable(v) for v in self.reshape(-1).tolist()]
    return self.copy_(_f.tensor(flat, dtype=self.dtype).reshape(tuple(self.shape)))


def _map_(self, tensor, callable):
    """Each pair of elements through a Python function."""
    pairs = zip(self.reshape(-1).tolist(), tensor.expand_as(self).reshape(-1).tolist())
    return self.copy_(_f.tensor([callable(a, b) for a, b in pairs], dtype=self.dtype).reshape(tuple(self.shape)))


def _scatter_reduce_(self, dim, index, src, reduce, *, include_self=True):
    """scatter_reduce(), in place."""
    return self.copy_(_ops.scatter_reduce(self, dim, index, src, reduce, include_self=include_self))


def _sum_to_size(self, *size):
    """Summed over what was broadcast."""
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = self.ndim - len(size)
    x = self.sum(list(range(lead))) if lead else self
    over = [i for i, s in enumerate(size) if s == 1 and x.shape[i] != 1]
    return x.sum(over, keepdim=True) if over else x


def _get_device(self):
    """The number of the GPU, -1 for host memory."""
    return self.device.index if self.is_cuda else -1


def _narrow_copy(self, dim, start, length):
    """narrow(), copied."""
    return self.narrow(dim, start, length).clone()


def _polygamma(self, n):
    """The n-th derivative of digamma()."""
    from .gamma import polygamma

    return polygamma(n, self)


def _new(self, *args):
    """A tensor of this type: new(sizes...) or new(values)."""
    if args and not isinstance(args[0], int) and not isinstance(args[0], _C.Size):
        return self.new_tensor(args[0])
    return self.new_empty(tuple(args[0]) if args and isinstance(args[0], _C.Size) else args or (0,))


def _new_empty_strided(self, size, stride, *, dtype=None, device=None, requires_grad=False):
    """A tensor of this type with these steps in memory, not filled."""
    count = 1 + sum((s - 1) * t for s, t in zip(size, stride)) if all(size) else 0
    return self.new_empty(count, dtype=dtype, device=device).as_strided(size, stride).requires_grad_(requires_grad)


def _is_set_to(self, tensor):
    """Whether two tensors are the same elements of the same memory."""
    return self.data_ptr() == tensor.data_ptr() and self.shape == tensor.shape and self.stride() == tensor.stride()


def _dim_order(self):
    """The dimensions from the one with the largest step in memory to the one with the smallest."""
    return tuple(sorted(range(self.ndim), key=lambda d: -self.stride(d)))


def _to_dense(self, dtype=None):
    """The tensor itself: all are dense."""
    return self if dtype is None else self.to(dtype)


METHODS = {
    "new": _new, "new_empty_strided": _new_empty_strided, "is_set_to": _is_set_to, "dim_order": _dim_order, "to_dense": _to_dense,
    "polygamma": _polygamma,
    "index_copy_": _index_copy_, "index_fill_": _index_fill_, "put_": _put_, "fill_diagonal_": _fill_diagonal_, "random_": _random_,
    "exponential_": _exponential_, "geometric_": _geometric_, "cauchy_": _cauchy_, "log_normal_": _log_normal_,
    "bernoulli_": _bernoulli_, "resize_": _resize_, "resize_as_": _resize_as_, "set_": _set_, "apply_": _apply_, "map_": _map_,
    "scatter_reduce_": _scatter_reduce_, "sum_to_size": _sum_to_size, "get_device": _get_device, "narrow_copy": _narrow_copy,
}
