"""PyTorch models on Deft's plans: torch.compile(model, backend="deft")."""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("deft.torch works with PyTorch, and `import torch` fails; install PyTorch, or use deft's own package: "
                      "deft.nn, deft.optim and deft.compile need nothing else") from error

from ._backend import backend, compile
from ._explain import Explanation, explain
from ._export import ExportError, export

__all__ = ["Explanation", "ExportError", "backend", "compile", "explain", "export"]
