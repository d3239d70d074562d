"""Optimizers and learning-rate schedules."""

from . import lr_scheduler
from .optimizer import Adagrad, Adam, AdamW, Lamb, Optimizer, RMSprop, SGD


def __getattr__(name):
    from .._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
