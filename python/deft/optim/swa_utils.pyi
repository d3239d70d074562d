"""Averages of a model's weights: AveragedModel, with an exponential or a plain mean; update_bn; SWALR."""

# Written by tools/python_stubs.
# mypy: disable-error-code="override"
from builtins import bool as _bool, float as _float, int as _int
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .. import Tensor, Generator, dtype as _dtype, device as _device, memory_format, Number
from ..utils.data import Dataset
from ..optim import Optimizer
from ..nn import Parameter

_Self = TypeVar("_Self", bound=Module)

from ..optim.lr_scheduler import LRScheduler as LRScheduler

from ..nn import Module as Module

class AveragedModel(Module):
    """A copy of a model that holds the average of its weights."""
    def __init__(self, model: Any, device: _device | str | _int | None = ..., avg_fn: Any = ..., multi_avg_fn: Any = ..., use_buffers: _bool = ...) -> None: ...
    def update_parameters(self, model: Any) -> Any: ...

class SWALR(LRScheduler):
    """Goes to a constant learning rate within some epochs."""
    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: _int = ..., anneal_strategy: str = ..., last_epoch: _int = ...) -> None: ...
    def get_lr(self) -> Any: ...


def get_ema_avg_fn(decay: _float = ...) -> Any: ...
def get_ema_multi_avg_fn(decay: _float = ...) -> Any: ...
def get_swa_avg_fn() -> Any: ...
def get_swa_multi_avg_fn() -> Any: ...
def update_bn(loader: Any, model: Any, device: _device | str | _int | None = ...) -> Any: ...
