"""What the library runs on, and how exact it is."""

import types as _types

from . import _C


def _answers(**values):
    """A namespace of functions that give these values."""
    space = _types.SimpleNamespace()
    for name, value in values.items():
        setattr(space, name, lambda value=value: value)
    return space


class _Cudnn:
    """Kernels of cuDNN on GPUs. Which one is fastest is always measured; `benchmark` is kept and changes nothing."""

    enabled, benchmark, allow_tf32, benchmark_limit = True, False, False, 10

    @property
    def deterministic(self):
        return _C._is_deterministic()

    @deterministic.setter
    def deterministic(self, value):
        _C._deterministic(bool(value))

    def is_available(self):
        return _C._device_count() > 0

    def version(self):
        return None


class _Matmul:
    """Products on GPUs: allow_tf32 rounds their f32 inputs to 10 bits of mantissa."""

    @property
    def allow_tf32(self):
        return _C._allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, value):
        _C._set_allow_tf32(bool(value))


cudnn = _Cudnn()
cuda = _types.SimpleNamespace(matmul=_Matmul(), is_built=lambda: _C._has_cuda())
mps, mkldnn, mkl, openmp, xpu = (_answers(is_available=False, is_built=False) for _ in range(5))


def get_float32_matmul_precision():
    """'highest': products of float32 are exact; 'high': GPUs may use TF32."""
    return "high" if _C._allow_tf32() else "highest"


def set_float32_matmul_precision(precision):
    """'highest', or 'high' and 'medium', which let GPUs use TF32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"set_float32_matmul_precision: expected 'highest', 'high' or 'medium', found '{precision}'")
    _C._set_allow_tf32(precision != "highest")


def __getattr__(name):
    from ._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
