"""Function: forward() and backward() in Python."""

import functools

from .. import _C
from .._C import Tensor


class FunctionCtx:
    """What forward() leaves for backward()."""

    _to_save = _dirty = _non_differentiable = None
    _materialize = True

    def save_for_backward(self, *tensors):
        """Keeps tensors; writes to them in between are noticed."""
        self._saved_shape = [t is not None for t in tensors]
        self._to_save = tuple(t for t in tensors if t is not None)

    def mark_dirty(self, *tensors):
        """These inputs were written in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """These outputs have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value):
        """Whether missing gradients come as zeros or as None."""
        self._materialize = bool(value)

    def _run_backward(self, *grads):
        if not all(self.__dict__.get("_saved_shape", ())):
            kept = iter(self.saved_tensors)
            self.saved_tensors = tuple(next(kept) if there else None for there in self._saved_shape)
        return self._backward(self, *grads)


class Function:
    """Derive from it, and write forward(ctx, ...) and backward(ctx, *grads) as static methods; call apply()."""

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function "
                                  "to use it with backward mode AD.")

    vjp = backward
    setup_context = None

    @classmethod
    def apply(cls, *args):
        """Runs forward(), and backward() when gradients come."""
        ctx = FunctionCtx()
        backward = cls.backward if cls.backward is not Function.backward else cls.vjp
        ctx._backward = backward
        ctx._argument_count = len(args)
        ctx._tensor_positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        recording = _C.is_grad_enabled()
        ctx.needs_input_grad = tuple(recording and isinstance(a, Tensor) and a.requires_grad for a in args)
        if cls.setup_context is None:
            forward = functools.partial(cls.forward, ctx)
        else:
            def forward(*values):
                output = cls.forward(*values)
                cls.setup_context(ctx, values, output)
                return output
        return _C._apply_function(cls, ctx, forward, getattr(backward, "_once", False), *args)


def once_differentiable(fn):
    """Marks a backward() that cannot be differentiated itself."""

    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with _C.no_grad():
            return fn(ctx, *args)

    wrapper._once = True
    return wrapper
