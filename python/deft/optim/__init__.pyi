"""Optimizers and learning-rate schedules."""

# Written by tools/python_stubs.
# mypy: disable-error-code="override"
from builtins import bool as _bool, float as _float, int as _int
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .. import Tensor, Generator, dtype as _dtype, device as _device, memory_format, Number
from . import lr_scheduler as lr_scheduler, optimizer as optimizer, swa_utils as swa_utils
from ..utils.data import Dataset
from ..nn import Module
from ..nn import Parameter

_Self = TypeVar("_Self", bound=Module)

class Optimizer:
    """The base of all optimizers; derive from it and write step()."""
    def __init__(self, params: Iterable[Any], defaults: Any) -> None: ...
    def add_param_group(self, param_group: Any) -> Any: ...
    def load_state_dict(self, state_dict: Any) -> Any: ...
    def register_step_post_hook(self, hook: Any) -> Any: ...
    def register_step_pre_hook(self, hook: Any) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...
    def step(self, closure: Any = ...) -> Any: ...
    def zero_grad(self, set_to_none: _bool = ...) -> None: ...

class Adagrad(Optimizer):
    """Steps divided by the root of all squares so far."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., lr_decay: _int = ..., weight_decay: _float = ..., initial_accumulator_value: _int = ..., eps: _float = ..., foreach: Any = ..., *, maximize: _bool = ..., differentiable: _bool = ..., fused: Any = ...) -> None: ...

class Adam(Optimizer):
    """Adam: steps by averages of gradients and of their squares."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., betas: tuple[_float, _float] = ..., eps: _float = ..., weight_decay: _float = ..., amsgrad: _bool = ..., *, foreach: Any = ..., maximize: _bool = ..., capturable: _bool = ..., differentiable: _bool = ..., fused: Any = ..., decoupled_weight_decay: _bool = ...) -> None: ...

class LBFGS(Optimizer):
    """Quasi-Newton steps; step() calls the closure several times."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., max_iter: _int = ..., max_eval: Any = ..., tolerance_grad: _float = ..., tolerance_change: _float = ..., history_size: _int = ..., line_search_fn: Any = ...) -> None: ...
    def step(self, closure: Any) -> Any: ...

class Lamb(Optimizer):
    """Adam with steps scaled to the size of each parameter, for large batches."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., betas: tuple[_float, _float] = ..., eps: _float = ..., weight_decay: _float = ..., *, maximize: _bool = ...) -> None: ...

class Muon(Optimizer):
    """For matrices; embeddings, biases and output layers want AdamW."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., weight_decay: _float = ..., momentum: _float = ..., nesterov: _bool = ..., ns_coefficients: Any = ..., eps: _float = ..., ns_steps: _int = ..., adjust_lr_fn: Any = ...) -> None: ...

class RMSprop(Optimizer):
    """Steps divided by a moving root mean square."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., alpha: Number = ..., eps: _float = ..., weight_decay: _float = ..., momentum: _float = ..., centered: _bool = ..., capturable: _bool = ..., foreach: Any = ..., maximize: _bool = ..., differentiable: _bool = ...) -> None: ...

class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., momentum: _float = ..., dampening: _float = ..., weight_decay: _float = ..., nesterov: _bool = ..., *, maximize: _bool = ..., foreach: Any = ..., differentiable: _bool = ..., fused: Any = ...) -> None: ...

class ASGD(Optimizer):
    """Gradient descent that also keeps the average of the parameters, in state["ax"]."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., lambd: _float = ..., alpha: Number = ..., t0: _float = ..., weight_decay: _float = ..., foreach: Any = ..., maximize: _bool = ..., differentiable: _bool = ..., capturable: _bool = ...) -> None: ...

class Adadelta(Optimizer):
    """Steps scaled by the root mean square of steps so far over that of gradients."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., rho: _float = ..., eps: _float = ..., weight_decay: _float = ..., foreach: Any = ..., *, capturable: _bool = ..., maximize: _bool = ..., differentiable: _bool = ...) -> None: ...

class Adafactor(Optimizer):
    """Adam without momentum, with the squares of matrices kept by row and column."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., beta2_decay: _float = ..., eps: Any = ..., d: _float = ..., weight_decay: _float = ..., *, foreach: Any = ..., maximize: _bool = ...) -> None: ...

class AdamW(Adam):
    """Adam that decays weights apart from the gradient."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., betas: tuple[_float, _float] = ..., eps: _float = ..., weight_decay: _float = ..., amsgrad: _bool = ..., *, maximize: _bool = ..., foreach: Any = ..., capturable: _bool = ..., differentiable: _bool = ..., fused: Any = ...) -> None: ...

class Adamax(Optimizer):
    """Adam with the largest gradient instead of the mean square."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., betas: tuple[_float, _float] = ..., eps: _float = ..., weight_decay: _float = ..., foreach: Any = ..., *, maximize: _bool = ..., differentiable: _bool = ..., capturable: _bool = ...) -> None: ...

class NAdam(Optimizer):
    """Adam with Nesterov momentum."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., betas: tuple[_float, _float] = ..., eps: _float = ..., weight_decay: _float = ..., momentum_decay: _float = ..., decoupled_weight_decay: _bool = ..., *, foreach: Any = ..., maximize: _bool = ..., capturable: _bool = ..., differentiable: _bool = ...) -> None: ...

class RAdam(Optimizer):
    """Adam that starts without the variance while that is uncertain."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., betas: tuple[_float, _float] = ..., eps: _float = ..., weight_decay: _float = ..., decoupled_weight_decay: _bool = ..., *, foreach: Any = ..., maximize: _bool = ..., capturable: _bool = ..., differentiable: _bool = ...) -> None: ...

class Rprop(Optimizer):
    """Steps by the sign of the gradient, longer while it stays the same."""
    def __init__(self, params: Iterable[Any], lr: _float | Tensor = ..., etas: Any = ..., step_sizes: Any = ..., *, capturable: _bool = ..., foreach: Any = ..., maximize: _bool = ..., differentiable: _bool = ...) -> None: ...
