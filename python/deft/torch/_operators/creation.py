"""New tensors."""

import deft

from .table import row


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
row("empty_strided.default")(lambda size, stride, dtype=None: deft.full(list(size), 0, dtype=dtype or deft.float32))
row("eye.default")(lambda n, dtype=None: deft.eye(n, dtype=dtype or deft.float32))
row("eye.m")(lambda n, m, dtype=None: deft.eye(n, m, dtype=dtype or deft.float32))
row("linspace.default")(lambda start, end, steps, dtype=None: deft.linspace(start, end, steps, dtype=dtype or deft.float32))
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
