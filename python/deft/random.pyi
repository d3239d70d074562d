"""The generator that draws come from unless they are given one."""

# Written by tools/python_stubs.
# mypy: disable-error-code="override"
from builtins import bool as _bool, float as _float, int as _int
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from . import Tensor, Generator, dtype as _dtype, device as _device, memory_format, Number
from .utils.data import Dataset
from .nn import Module
from .optim import Optimizer
from .nn import Parameter

_Self = TypeVar("_Self", bound=Module)


def contextmanager(func: Any) -> Any: ...
def fork_rng(devices: Any = ..., enabled: _bool = ..., device_type: str = ...) -> Any: ...
def get_rng_state(*args: Any, **kwargs: Any) -> Any: ...
def initial_seed(*args: Any, **kwargs: Any) -> Any: ...
def manual_seed(seed: Any) -> Any: ...
def seed(*args: Any, **kwargs: Any) -> Any: ...
def set_rng_state(*args: Any, **kwargs: Any) -> Any: ...
