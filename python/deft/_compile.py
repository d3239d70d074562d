"""compile(): functions and modules as plans of the library."""

import functools

from . import _C
from ._C import Tensor


def _take_apart(value, tensors):
    """`value` with every tensor replaced by its number in `tensors`; the rest must be hashable to be part of the key."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(_take_apart(v, tensors) for v in value))
    if isinstance(value, dict):
        return ("dict", tuple((k, _take_apart(v, tensors)) for k, v in value.items()))
    return ("value", value)


def _put_together(form, tensors):
    kind, content = form
    if kind == "tensor":
        return tensors[content]
    if kind in ("list", "tuple"):
        items = [_put_together(f, tensors) for f in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {k: _put_together(f, tensors) for k, f in content}
    return content


class _CompiledFunction:
    """One set of plans per form of the arguments: which are tensors, and the values of the others."""

    def __init__(self, function, module, dynamic):
        self._function, self._module, self._symbolic, self._plans = function, module, dynamic is not False, {}
        functools.update_wrapper(self, function, updated=())

    def _make(self, form):
        # Plans hold these two; they must not hold the plans in turn, since no collector sees through the library.
        function, module, made = self._function, self._module, {}

        def run(tensors):
            args, kwargs = _put_together(form, tensors)
            results = []
            made["form"] = _take_apart(function(*args, **kwargs), results)
            return results

        def state():
            return hash(tuple(m.training for m in module.modules())) if module is not None else 0

        return _C._Compiled(run, state, self._symbolic), made

    def __call__(self, *args, **kwargs):
        tensors = []
        form = _take_apart((args, kwargs), tensors)
        plans = self._plans.get(form)
        if plans is None:
            plans = self._plans[form] = self._make(form)
        compiled, made = plans
        results = compiled.run(tensors)
        return _put_together(made["form"], results)

    def explain(self):
        """What the plans do, and what the compiler did and left."""
        return "\n".join(compiled.explain() for compiled, _ in self._plans.values())

    def stats(self):
        """Calls, replays and captures, over all plans."""
        total = {}
        for compiled, _ in self._plans.values():
            for name, value in compiled.stats().items():
                total[name] = total.get(name, 0) + value
        return total


class _OptimizedModule:
    """A module whose calls run as plans; everything else is the module's."""

    def __init__(self, module, dynamic):
        self.__dict__["_orig_mod"] = module
        self.__dict__["_compiled"] = _CompiledFunction(module.__call__, module, dynamic)

    def __call__(self, *args, **kwargs):
        if _C.is_grad_enabled() and any(p.requires_grad for p in self._orig_mod.parameters()):
            return self._orig_mod(*args, **kwargs)  # plans record no gradients
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        setattr(self._orig_mod, name, value)

    def explain(self):
        """What the plans do."""
        return self._compiled.explain()

    def stats(self):
        """Calls, replays and captures."""
        return self._compiled.stats()

    def __repr__(self):
        return f"OptimizedModule({self._orig_mod!r})"


def compile(model=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, disable=False, module=None):
    """A function or module whose calls are captured once and then run as a plan.

    A compiled function may be a whole training step with backward() and an optimizer's update written in tensor ops.
    A compiled module runs its plan where no gradients are wanted, and as it is where they are."""
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
                                 disable=disable)
    if disable:
        return model
    from .nn import Module

    if isinstance(model, Module):
        return _OptimizedModule(model, dynamic)
    return _CompiledFunction(model, module, dynamic)


class Plan:
    """A plan from a file: called with as many tensors as it was made for, it gives a tensor, or a tuple of several."""

    def __init__(self, compiled, name):
        self._compiled, self.name = compiled, name

    def __call__(self, *tensors):
        results = self._compiled.run(list(tensors))
        return results[0] if len(results) == 1 else results

    def explain(self):
        """What the plan does."""
        return self._compiled.explain()


def load_plan(path):
    """The plan in a file of deft.torch.export() or `deft compile`. It records no gradients."""
    return Plan(*_C._load_plan(str(path)))
