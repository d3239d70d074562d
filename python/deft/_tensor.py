"""Methods of Tensor that are written in Python, and torch's other names for some of them."""

import copy

from . import _C
from ._C import Tensor, ops


def _backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of this tensor with respect to all leaves to their .grad."""
    if inputs is not None:
        from .autograd import backward

        return backward(self, gradient, retain_graph, create_graph, inputs=inputs)
    self._backward(gradient, create_graph if retain_graph is None else retain_graph, create_graph)


def _repr(self, *, tensor_contents=None):
    from ._tensor_text import tensor_text

    return tensor_text(self)


def _format(self, spec):
    if self.ndim == 0:
        return format(self.item(), spec)
    return object.__format__(self, spec)


def _numpy(self, *, force=False):
    """The values as a NumPy array that shares this tensor's memory."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("numpy(): NumPy is not installed; pip install numpy, or use tolist()", name="numpy") from error

    if force:
        self = self.detach().cpu()
    if self.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if not self.is_cpu:
        raise TypeError("can't convert a tensor on a GPU to NumPy. Use tensor.cpu() to copy it to host memory first.")
    if self.dtype is _C.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16: NumPy has no such type; use tensor.float().numpy()")
    return numpy.asarray(memoryview(self))


def _array(self, dtype=None, copy=None):
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def _iter(self):
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _reversed(self):
    return self.flip(0) if self.ndim else self


def _dir(self):
    return sorted(set(dir(type(self))) | set(getattr(self, "__dict__", ())))


def _deepcopy(self, memo):
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol")
    if id(self) in memo:
        return memo[id(self)]
    with _C.no_grad():
        new = type(self)._of(self.detach().clone()) if type(self) is not Tensor else self.detach().clone()
    new.requires_grad_(self.requires_grad)
    if self.grad is not None:
        new.grad = self.grad.detach().clone()
    if hasattr(self, "__dict__"):
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
    memo[id(self)] = new
    return new


def _rebuild(data, dtype, shape, requires_grad):
    tensor = ops.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else ops.zeros(shape, dtype=dtype)
    return tensor.requires_grad_(requires_grad)


def _reduce(self, protocol):
    if not self.is_leaf and self.requires_grad:
        raise RuntimeError("a tensor with history cannot be pickled; detach() it")
    return _rebuild, (_C._tensor_bytes(self), self.dtype, tuple(self.shape), self.requires_grad)


def _register_hook(self, hook):
    """Calls hook(grad) whenever the gradient of this tensor is computed; what it returns takes its place."""
    return _C._register_hook(self, hook)


def _register_post_accumulate_grad_hook(self, hook):
    """Calls hook(self) whenever .grad has been added to."""
    return _C._register_post_accumulate_grad_hook(self, hook)


def _std_mean(input, dim=None, *, correction=1, keepdim=False):
    """The standard deviation and the mean."""
    variance, mean = ops.var_mean(input, dim, correction=correction, keepdim=keepdim)
    return variance.sqrt(), mean


def _unique(self, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different values, in order."""
    if dim is not None:
        raise NotImplementedError("unique: dim is not supported yet")
    values, inverse, counts = ops._unique(self)
    if return_inverse and return_counts:
        return values, inverse, counts
    if return_inverse:
        return values, inverse
    return (values, counts) if return_counts else values


def _where(self, condition, other):
    """Elements of self where condition is true, else of other."""
    return ops._where_method(self, condition, other)


def _nonzero(input, *, as_tuple=False):
    """The indices of elements that are not zero."""
    return ops.where(input if input.dtype is _C.bool else input != 0) if as_tuple else ops.nonzero(input)


def _grad_fn(self):
    """The operation that made this tensor, or None."""
    return _C._grad_fn(self)


_TYPE_NAMES = {_C.float32: "Float", _C.float64: "Double", _C.float16: "Half", _C.bfloat16: "BFloat16", _C.int8: "Char",
               _C.uint8: "Byte", _C.int32: "Int", _C.int64: "Long", _C.bool: "Bool"}


def _type(self, dtype=None, non_blocking=False):
    """The name of the type, or the tensor in another type."""
    if dtype is None:
        return f"deft.{'cuda.' if self.is_cuda else ''}{_TYPE_NAMES[self.dtype]}Tensor"
    if isinstance(dtype, str):
        names = {name: d for d, name in _TYPE_NAMES.items()}
        dtype = names[dtype.split(".")[-1].removesuffix("Tensor")]
    return self.to(dtype.dtype if isinstance(dtype, _TypedTensor) else dtype)


class _TypedTensor(type):
    """FloatTensor, LongTensor and the like: they make tensors of one type, and isinstance() asks for it."""

    def __instancecheck__(cls, value):
        return isinstance(value, Tensor) and value.dtype is cls.dtype and not value.is_cuda

    def __call__(cls, *args):
        if args and isinstance(args[0], int):
            return ops.empty(args, dtype=cls.dtype)
        if args and isinstance(args[0], _C.Size):
            return ops.empty(tuple(args[0]), dtype=cls.dtype)
        return ops.tensor(args[0] if args else [], dtype=cls.dtype)


def typed_tensors():
    """FloatTensor, LongTensor, ... by name."""
    return {name + "Tensor": _TypedTensor(name + "Tensor", (), {"dtype": d, "__module__": "deft", "__doc__": f"Tensors of {d!r}."})
            for d, name in _TYPE_NAMES.items()}


def _array_wrap(self, array, context=None, return_scalar=False):
    """What a NumPy function made of a tensor, as a tensor."""
    return ops.as_tensor(array.astype("bool") if array.dtype.kind == "b" else array)


def _share_memory_(self):
    """Moves the values into memory that child processes share."""
    from .multiprocessing import share

    return share(self)


def _is_shared(self):
    """Whether child processes share the memory."""
    from .multiprocessing import is_shared

    return is_shared(self)


_IN_PYTHON = {
    "type": _type,
    "__array_wrap__": _array_wrap,
    "share_memory_": _share_memory_,
    "is_shared": _is_shared,
    "backward": _backward,
    "__repr__": _repr,
    "__str__": _repr,
    "__format__": _format,
    "numpy": _numpy,
    "__array__": _array,
    "__iter__": _iter,
    "__reversed__": _reversed,
    "__dir__": _dir,
    "__deepcopy__": _deepcopy,
    "__reduce_ex__": _reduce,
    "register_hook": _register_hook,
    "register_post_accumulate_grad_hook": _register_post_accumulate_grad_hook,
    "unique": _unique,
    "where": _where,
    "nonzero": _nonzero,
}

# torch's other names of the same functions and methods.
ALIASES = {
    "absolute": "abs", "negative": "neg", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arccosh": "acosh",
    "arcsinh": "asinh", "arctanh": "atanh", "arctan2": "atan2", "subtract": "sub", "multiply": "mul", "divide": "div",
    "true_divide": "div", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "fix": "trunc", "clip": "clamp", "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
    "concat": "cat", "concatenate": "cat", "ger": "outer", "row_stack": "vstack",
}


def _add_aliases(namespace):
    for alias, name in ALIASES.items():
        for suffix in ("", "_"):
            if hasattr(Tensor, name + suffix):
                setattr(Tensor, alias + suffix, getattr(Tensor, name + suffix))
            if name + suffix in namespace:
                namespace[alias + suffix] = namespace[name + suffix]


def install(namespace):
    """Completes Tensor, and adds the functions of this file to the package's namespace."""
    for name, function in _IN_PYTHON.items():
        setattr(Tensor, name, function)
    Tensor.grad_fn = property(_grad_fn)
    _C.Size.__add__ = lambda self, other: _C.Size((*self, *other))
    Tensor.__array_priority__ = 1000  # NumPy leaves array + tensor to the tensor
    namespace.update(typed_tensors(), unique=_unique, nonzero=_nonzero, std_mean=_std_mean)
    _add_aliases(namespace)
