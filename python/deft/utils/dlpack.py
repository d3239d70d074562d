"""Tensors to and from other libraries without a copy."""

from .._C import functions as _functions

from_dlpack = _functions.from_dlpack


def to_dlpack(tensor):
    """A capsule with the tensor, once."""
    return tensor.__dlpack__()
