"""Clipping gradients, parameters as one vector, sequences of several lengths."""

from ... import _C
from ..._C import Tensor
from . import rnn
from .rnn import PackedSequence



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


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all elements together."""
    norms = [t.detach().norm(norm_type) for t in _as_list(tensors)]
    if not norms:
        return _C.functions.tensor(0.0)
    total = _C.functions.stack(norms).norm(norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, so it cannot be clipped.")
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales the gradients by max_norm / total_norm where that is below 1."""
    scale = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    with _C.no_grad():
        for p in _as_list(parameters):
            if p.grad is not None:
                p.grad.mul_(scale)


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """torch's first name of clip_grad_norm_()."""
    import warnings

    warnings.warn("nn.utils.clip_grad_norm is deprecated in favor of nn.utils.clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def skip_init(module_cls, *args, **kwargs):
    """A module whose parameters hold anything: for weights that are loaded next."""
    module = module_cls(*args, **kwargs)
    with _C.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = _C.functions.empty_like(tensor)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """The weights of convolutions in another layout: channels_last or contiguous_format."""
    from ..modules import layers

    for part in module.modules():
        if isinstance(part, (layers.Conv2d, layers.ConvTranspose2d)):
            part.weight.data = part.weight.detach().contiguous(memory_format=memory_format)
    return module


# Loaded when they are first used.
_FROM = {"weight_norm": "computed_weights", "remove_weight_norm": "computed_weights", "spectral_norm": "computed_weights",
         "remove_spectral_norm": "computed_weights", "fuse_conv_bn_eval": "fusion", "fuse_conv_bn_weights": "fusion",
         "fuse_linear_bn_eval": "fusion", "fuse_linear_bn_weights": "fusion"}


def __getattr__(name):
    import importlib

    from ..._nearest import module_getattr

    if name in _FROM:
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
        return value
    return module_getattr(__name__, lambda: [*globals(), *_FROM], ("parametrize", "parametrizations"))(name)


def __dir__():
    return sorted([*globals(), *_FROM, "parametrize", "parametrizations"])
