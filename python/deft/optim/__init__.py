"""Optimizers and learning-rate schedules."""

from . import lr_scheduler
from .optimizer import Adagrad, Adam, AdamW, Lamb, Optimizer, RMSprop, SGD

# Loaded when they are first used.
_FROM = {"Adadelta": "adaptive", "Adamax": "adaptive", "NAdam": "adaptive", "RAdam": "adaptive", "Rprop": "adaptive",
         "ASGD": "adaptive", "Adafactor": "adaptive", "LBFGS": "lbfgs", "Muon": "muon"}


def __getattr__(name):
    import importlib

    from .._nearest import module_getattr

    if name in _FROM:
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
        return value
    return module_getattr(__name__, lambda: [*globals(), *_FROM], ("swa_utils",))(name)


def __dir__():
    return sorted([*globals(), *_FROM, "swa_utils"])
