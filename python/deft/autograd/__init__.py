"""Gradients: backward(), grad(), and functions with a gradient of their own."""

from .. import _C
from .._C import Tensor, enable_grad, inference_mode, no_grad, set_grad_enabled
from . import function
from .function import Function

is_grad_enabled = _C.is_grad_enabled


def _as_tuple(value):
    return (value,) if isinstance(value, Tensor) or value is None else tuple(value)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Adds the gradients of the sum of tensors to .grad of all leaves, or of `inputs`."""
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        return _C._run_backward(tensors, grad_tensors, keep, create_graph)
    inputs = _as_tuple(inputs)
    if not inputs:
        raise RuntimeError("'inputs' argument to 'backward' cannot be empty.")
    for leaf, gradient in zip(inputs, grad(tensors, inputs, grad_tensors, keep, create_graph, allow_unused=True)):
        if gradient is not None:
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """The gradients of the sum of outputs with respect to inputs, as values."""
    if is_grads_batched:
        raise NotImplementedError("grad: is_grads_batched is not supported")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    allow = materialize_grads if allow_unused is None else allow_unused
    keep = create_graph if retain_graph is None else retain_graph
    inputs = _as_tuple(inputs)
    result = _C._grad(outputs, inputs, grad_outputs, keep, create_graph, allow)
    if materialize_grads:
        result = tuple(_C.functions.zeros_like(x) if g is None else g for g, x in zip(result, inputs))
    return result


class detect_anomaly:
    """Inside, backward() names the line whose gradient became NaN."""

    def __init__(self, check_nan=True):
        self._scope = _C._detect_anomaly(True)

    def __enter__(self):
        self._scope.__enter__()

    def __exit__(self, *error):
        self._scope.__exit__(*error)


class set_detect_anomaly(detect_anomaly):
    """Turns detect_anomaly on or off, also without `with`."""

    def __init__(self, mode, check_nan=True):
        self._scope = _C._detect_anomaly(mode)
        self._scope.__enter__()

    def __enter__(self):
        pass


class Variable(Tensor):
    """A tensor: torch's first name for one that may require gradients."""

    def __new__(cls, data, requires_grad=False, volatile=None):
        return data.detach().requires_grad_(requires_grad) if requires_grad != data.requires_grad else data


_FROM = {"gradcheck": "gradcheck", "gradgradcheck": "gradcheck"}


def __getattr__(name):
    import importlib

    from .._nearest import module_getattr

    if name in _FROM:
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
        return value
    return module_getattr(__name__, lambda: [*globals(), *_FROM], ("functional",))(name)
