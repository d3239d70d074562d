"""Parameters: tensors that a module owns and an optimizer trains."""

from .. import _C
from .._C import Tensor


class Parameter(Tensor):
    """A tensor that becomes a parameter of the module it is assigned to."""

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _C.functions.empty(0)
        self = Tensor.__new__(cls, data)
        if requires_grad:
            self.requires_grad_()
        _C._mark_parameter(self)
        return self

    @classmethod
    def _of(cls, tensor):
        return cls(tensor, tensor.requires_grad)

    def __reduce_ex__(self, protocol):
        return _rebuild_parameter, (self.detach(), self.requires_grad)


def _rebuild_parameter(data, requires_grad):
    return Parameter(data, requires_grad)


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to."""

    def __new__(cls, data=None, *, persistent=True):
        self = Tensor.__new__(cls, _C.functions.empty(0) if data is None else data)
        self.persistent = persistent
        return self

    @classmethod
    def _of(cls, tensor):
        return cls(tensor)


class _Uninitialized:
    """Mixed into what a lazy layer holds until its first input shows the sizes."""

    def materialize(self, shape, device=None, dtype=None):
        """Takes memory of this shape and becomes an ordinary parameter or buffer."""
        made = _C.functions.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.data = made
        self.__class__ = self._becomes

    def __repr__(self):
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter without a shape."""

    _becomes = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return Parameter.__new__(cls, _C.functions.empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer without a shape."""

    _becomes = Buffer

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        return Buffer.__new__(cls, _C.functions.empty(0, device=device, dtype=dtype), persistent=persistent)
