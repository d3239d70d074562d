"""Functions of deft itself that are written in Python."""

import math as _math

from . import _C
from ._C import Tensor as _Tensor
from ._C import ops as _ops


def manual_seed(seed):
    """Restarts the generator from a seed."""
    _C._manual_seed(seed)


def einsum(equation, *operands):
    """Einstein's summation: einsum('bij,bjk->bik', a, b)."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return _ops._einsum(equation.replace(" ", ""), operands)


def tensordot(a, b, dims=2):
    """Sums over some dimensions of a and b: a number of them, or two lists."""
    if isinstance(dims, int):
        dims = (list(range(a.ndim - dims, a.ndim)), list(range(dims)))
    first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    return _ops._tensordot(a, b, first, second)


def meshgrid(*tensors, indexing="ij"):
    """A grid of coordinates from one-dimensional tensors."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    return _ops._meshgrid(tensors, indexing)


def randint(low, high=None, size=None, **options):
    """Whole numbers in [low, high): randint(high, size) or randint(low, high, size)."""
    if size is None:
        low, high, size = 0, low, high
    return _ops._randint(low, high, size, **options)


def randint_like(input, low, high=None, **options):
    """Whole numbers in [low, high) in the shape of a tensor."""
    options.setdefault("dtype", input.dtype)
    return randint(low, high, tuple(input.shape), **options) if high is not None else randint(0, low, tuple(input.shape), **options)


def is_tensor(obj):
    """Whether this is a Tensor."""
    return isinstance(obj, _Tensor)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """The values as a tensor, sharing memory where that is possible."""
    tensor = _ops.tensor(obj, dtype=dtype, device=device) if copy else _ops.as_tensor(obj, dtype, device)
    return tensor.requires_grad_() if requires_grad else tensor


def broadcast_shapes(*shapes):
    """The shape that all these broadcast to."""
    sizes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    result = [1] * max(map(len, sizes), default=0)
    for shape in sizes:
        for i, size in enumerate(reversed(shape)):
            if size != 1 and result[-1 - i] not in (1, size):
                raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {sizes}")
            result[-1 - i] = max(result[-1 - i], size) if size else 0
    return _C.Size(result)


def broadcast_tensors(*tensors):
    """The tensors expanded to one shape."""
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


def result_type(tensor1, tensor2):
    """The type of a result of the two."""
    one = lambda t: t.new_empty(()) if isinstance(t, _Tensor) and t.ndim == 0 else t.new_empty((0,)) if isinstance(t, _Tensor) else t
    return _ops.add(one(tensor1), one(tensor2)).dtype


def can_cast(from_, to):
    """Whether a cast keeps the kind of numbers."""
    kind = lambda d: 2 if d.is_floating_point else 0 if d is _C.bool else 1
    return kind(from_) <= kind(to)


def set_default_device(device):
    """Where tensors are made that are not told where."""
    _C._set_default_device(device)


def get_default_device():
    """What set_default_device() was told."""
    return _C._default_device()


def get_device(input):
    """The number of the GPU that holds a tensor, -1 for host memory."""
    return input.get_device()


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Results are always the same in Deft; on a GPU this also rules out the few kernels whose sums differ by order."""
    _C._deterministic(mode)


def are_deterministic_algorithms_enabled():
    """What use_deterministic_algorithms() was told."""
    return _C._is_deterministic()


def set_default_tensor_type(t):
    """The type of new floating tensors, by the name of a class: "deft.DoubleTensor", or the class itself."""
    name = (t if isinstance(t, str) else t.__name__).split(".")[-1]
    types = {"FloatTensor": _C.float32, "DoubleTensor": _C.float64, "HalfTensor": _C.float16, "BFloat16Tensor": _C.bfloat16}
    if name not in types:
        raise TypeError(f"only floating-point types are supported as the default type, found {name}")
    _C.set_default_dtype(types[name])
