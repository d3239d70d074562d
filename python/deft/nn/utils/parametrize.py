"""Parametrizations: a parameter that is computed from others by a module."""

from contextlib import contextmanager

from ... import _C
from ..modules.containers import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

_caching = 0


class ParametrizationList(ModuleList):
    """What one tensor of a module is computed from: the original, and modules that it passes through."""

    def __init__(self, modules, original):
        super().__init__(modules)
        value = original.detach()
        with _C.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        self.__dict__["_count"] = len(value) if isinstance(value, (tuple, list)) else None
        values = value if self._count is not None else [value]
        for i, v in enumerate(values):
            name = "original" if self._count is None else f"original{i}"
            v = v.clone()
            if isinstance(original, Parameter):
                self.register_parameter(name, original if self._count is None and v.shape == original.shape else Parameter(v, original.requires_grad))
            else:
                self.register_buffer(name, v)
        if self._count is None and isinstance(original, Parameter) and original.shape == values[0].shape:
            with _C.no_grad():
                self.original.copy_(values[0])

    def forward(self):
        first, *rest = list(self)
        if self._count is None:
            x = first(self.original)
        else:
            x = first(*(getattr(self, f"original{i}") for i in range(self._count)))
        for module in rest:
            x = module(x)
        return x


def _property(name):
    def get(self):
        if _caching:
            kept = self.__dict__.setdefault("_parametrized_values", {})
            if name not in kept:
                kept[name] = self.parametrizations[name]()
            return kept[name]
        return self.parametrizations[name]()

    def set(self, value):
        parts = self.parametrizations[name]
        with _C.no_grad():
            for module in reversed(list(parts)):
                value = module.right_inverse(value)
            values = value if parts._count is not None else [value]
            for i, v in enumerate(values):
                getattr(parts, "original" if parts._count is None else f"original{i}").copy_(v)

    return property(get, set)


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """From now on the tensor is parametrization(original)."""
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)
        return module
    original = module._parameters.get(tensor_name)
    original = module._buffers.get(tensor_name) if original is None else original
    if original is None:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    if not is_parametrized(module):
        kind = type(module)
        made = type("Parametrized" + kind.__name__, (kind,), {"__deepcopy__": None, "_parametrized_from": kind})
        del made.__deepcopy__
        module.__class__ = made
        module.parametrizations = ModuleDict()
    parts = ParametrizationList([parametrization], original)
    delattr(module, tensor_name)
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = parts
    return module


def is_parametrized(module, tensor_name=None):
    """Whether a module, or one tensor of it, is computed."""
    made = module._modules.get("parametrizations") if isinstance(module, Module) else None
    return made is not None and (tensor_name is None or tensor_name in made)


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """The tensor is a plain parameter again, with its value of now or with its original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parts = module.parametrizations[tensor_name]
    if not leave_parametrized and parts._count is not None:
        raise ValueError("Cannot leave unparametrized a tensor that is parametrized in terms of a sequence of tensors.")
    value = parts().detach() if leave_parametrized else parts.original.detach()
    trained = any(p.requires_grad for p in parts.parameters(recurse=False))
    is_parameter = bool(parts._parameters)
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if is_parameter:
        module.register_parameter(tensor_name, Parameter(value, trained))
    else:
        module.register_buffer(tensor_name, value)
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type(module)._parametrized_from
    return module


@contextmanager
def cached():
    """Inside, what is computed is computed once."""
    global _caching
    import gc

    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            for thing in gc.get_objects():
                if isinstance(thing, Module):
                    thing.__dict__.pop("_parametrized_values", None)
