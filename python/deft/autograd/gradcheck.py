"""Gradients against differences."""

from .. import _C
from . import grad

_f = _C.functions


def _tuple(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _slope(func, inputs, which, place, weights, eps):
    """The derivative of the weighted outputs with respect to one element, by a difference."""
    values = []
    for sign in (1, -1):
        moved = [x.detach().clone() if hasattr(x, "detach") else x for x in inputs]
        moved[which].reshape(-1)[place] += sign * eps
        with _C.no_grad():
            values.append(sum((o * w).sum().item() for o, w in zip(_tuple(func(*moved)), weights)))
    return (values[0] - values[1]) / (2 * eps)


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, **unused):
    """Whether the gradients of func are those that differences show. Inputs are best float64."""
    inputs = _tuple(inputs)
    outputs = [o for o in _tuple(func(*inputs))]
    for n, output in enumerate(outputs):
        for element in range(output.numel()):
            weights = [_f.zeros_like(o.detach()) for o in outputs]
            weights[n].reshape(-1)[element] = 1
            wanted = [x for x in inputs if getattr(x, "requires_grad", False)]
            if not wanted:
                raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
            found = grad(output, wanted, weights[n], retain_graph=True, allow_unused=True) if output.requires_grad else [None] * len(wanted)
            for x, g in zip(wanted, found):
                which = next(i for i, y in enumerate(inputs) if y is x)
                flat = [0.0] * x.numel() if g is None else g.reshape(-1).tolist()
                for place, value in enumerate(flat):
                    expected = _slope(func, inputs, which, place, weights, eps)
                    if not abs(value - expected) <= atol + rtol * abs(expected):
                        if raise_exception:
                            raise GradcheckError(f"Jacobian mismatch for output {n} with respect to input {which}: "
                                                 f"numerical {expected:g}, analytical {value:g}")
                        return False
    return True


def _cotangent(output):
    """A fixed one, with no two neighbours alike."""
    return (_f.arange(output.numel(), dtype=output.dtype) % 5 + 1).reshape(tuple(output.shape)) / 3


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, **unused):
    """gradcheck() of the gradient."""
    inputs = _tuple(inputs)
    trained = [i for i, x in enumerate(inputs) if getattr(x, "requires_grad", False)]

    def slopes(*xs):
        xs = [x.detach().requires_grad_() if i in trained and not x.requires_grad else x for i, x in enumerate(xs)]
        with _C.enable_grad():
            outputs = _tuple(func(*xs))
            total = sum((o * _cotangent(o)).sum() for o in outputs)
            return tuple(g for g in grad(total, [xs[i] for i in trained], create_graph=True, allow_unused=True) if g is not None)

    return gradcheck(slopes, inputs, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)


class GradcheckError(RuntimeError):
    """Gradients differ from what differences show."""
