"""safetensors files."""

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


def load_file(filename: Any, device: _device | str | _int | None = ...) -> Any: ...
def load_metadata(filename: Any) -> Any: ...
def save_file(tensors: Sequence[Tensor], filename: Any, metadata: Any = ...) -> Any: ...
