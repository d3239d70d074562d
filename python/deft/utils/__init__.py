"""Data loading, checkpointing, DLPack."""

from .._nearest import module_getattr as _module_getattr

__getattr__ = _module_getattr(__name__, lambda: ("data", "checkpoint", "dlpack"), ("data", "checkpoint", "dlpack"))
