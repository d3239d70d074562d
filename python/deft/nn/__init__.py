"""Modules, and what they are made of."""

from . import functional, init, parameter, utils
from .modules import (
    activation, adaptive, containers, layers, lazy, loss, module, parallel, rnn, shapes, transformer,
)
from .modules.module import Module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter


def _is_layer(value):
    return isinstance(value, type) and issubclass(value, Module) and not value.__name__.startswith("_")


for _part in (activation, adaptive, containers, layers, lazy, loss, parallel, rnn, shapes, transformer):
    globals().update({name: value for name, value in vars(_part).items() if _is_layer(value)})
del _part
CrossMapLRN2d, NLLLoss2d = LocalResponseNorm, NLLLoss  # torch's first names


def __getattr__(name):
    from .._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
