"""Jacobians, Hessians and their products with vectors."""

from .. import _C
from .._C import Tensor
from . import grad

_f = _C.functions


def _inputs(inputs, create_graph):
    many = isinstance(inputs, (tuple, list))
    given = tuple(inputs) if many else (inputs,)
    if create_graph:
        return many, tuple(x if x.requires_grad else x.detach().requires_grad_() for x in given)
    return many, tuple(x.detach().requires_grad_() for x in given)


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


def _gradients(output, inputs, v=None, create_graph=True, strict=False):
    found = grad(output, inputs, v, retain_graph=True, create_graph=create_graph, allow_unused=not strict)
    return tuple(_f.zeros_like(x) if g is None else g for g, x in zip(found, inputs))


def _given(many, values, create_graph):
    values = tuple(v if create_graph else v.detach() for v in values)
    return values if many else values[0]


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The derivatives of all outputs with respect to all inputs."""
    many, inputs = _inputs(inputs, create_graph)
    outputs = func(*inputs)
    several = isinstance(outputs, tuple)
    rows = []
    for output in _tuple(outputs):
        flat = output.reshape(-1)
        lines = [_gradients(flat[i], inputs, None, create_graph, strict) if flat.requires_grad
                 else tuple(_f.zeros_like(x) for x in inputs) for i in range(flat.numel())]
        parts = tuple(_f.stack([line[k] for line in lines]).reshape((*output.shape, *x.shape)) for k, x in enumerate(inputs))
        rows.append(_given(many, parts, create_graph))
    return tuple(rows) if several else rows[0]


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a scalar function."""
    many = isinstance(inputs, (tuple, list))

    def slopes(*xs):
        value = func(*xs)
        if value.numel() != 1:
            raise RuntimeError("hessian: the function must give one element")
        return _gradients(value.reshape(()), xs)

    result = jacobian(slopes, tuple(inputs) if many else (inputs,), create_graph, strict)
    return result if many else result[0][0]


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The outputs, and v times the Jacobian."""
    many, inputs = _inputs(inputs, create_graph)
    outputs = func(*inputs)
    found = _gradients(outputs, inputs, v, create_graph, strict)
    shown = outputs if create_graph else outputs.detach() if isinstance(outputs, Tensor) else tuple(o.detach() for o in outputs)
    return shown, _given(many, found, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The outputs, and the Jacobian times v: the derivative of vjp() with respect to its vector."""
    many, inputs = _inputs(inputs, create_graph)
    vectors = tuple(_f.ones_like(x) for x in inputs) if v is None else _tuple(v)
    outputs = func(*inputs)
    several = isinstance(outputs, tuple)
    results = []
    for output in _tuple(outputs):
        dummy = _f.zeros_like(output).requires_grad_()
        back = _gradients(output, inputs, dummy)
        results.append(sum_of_grad(back, dummy, vectors))
    shown = tuple(o if create_graph else o.detach() for o in _tuple(outputs))
    results = tuple(r if create_graph else r.detach() for r in results)
    return (shown, results) if several else (shown[0], results[0])


def sum_of_grad(values, at, weights):
    """The gradient of a weighted sum of values."""
    total = sum(((g * w).sum() for g, w in zip(values, weights) if g.requires_grad), _f.zeros(()))
    found = grad(total, at, create_graph=True, allow_unused=True)[0] if total.requires_grad else None
    return _f.zeros_like(at) if found is None else found


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """The value, and v times the Hessian."""
    many, inputs = _inputs(inputs, create_graph)
    value = func(*inputs)
    vectors = tuple(_f.ones_like(x) for x in inputs) if v is None else _tuple(v)
    slopes = _gradients(value, inputs)
    total = sum((g * w).sum() for g, w in zip(slopes, vectors))
    found = _gradients(total, inputs, None, create_graph) if total.requires_grad else tuple(_f.zeros_like(x) for x in inputs)
    return (value if create_graph else value.detach()), _given(many, found, create_graph)


hvp = vhp  # Hessians of what can be differentiated twice are symmetric
