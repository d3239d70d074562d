"""Clipping gradients, parameters as one vector, sequences of several lengths."""

from ... import _C
from ..._C import Tensor
from . import rnn
from .rnn import PackedSequence

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters", "rnn"]


def _as_list(parameters):
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients together so that their norm is at most max_norm; returns the norm before."""
    norm = _C._clip_grad_norm(_as_list(parameters), float(max_norm), float(norm_type), error_if_nonfinite)
    return _C.functions.tensor(norm)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Limits every element of the gradients to [-clip_value, clip_value]."""
    _C._clip_grad_value(_as_list(parameters), float(clip_value))


def parameters_to_vector(parameters):
    """All parameters one after the other."""
    return _C.functions.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """The parts of a vector into the parameters."""
    start = 0
    for p in parameters:
        p.data = vec[start : start + p.numel()].view_as(p).data
        start += p.numel()
