"""Deft: tensors, gradients and deep learning, small and fast, with PyTorch's names."""

from . import _C
from ._C import (
    CaptureError, DeviceError, DTypeError, Error, Generator, GradError, InferenceError, InplaceError, InternalError, LoadError,
    OutOfMemoryError, SaveError, ShapeError, Size, SyncError, Tensor, UnsupportedError,
    bfloat16, bool, channels_last, contiguous_format, device, double, dtype, enable_grad, float, float16, float32, float64,
    get_default_dtype, get_num_threads, get_rng_state, half, inference_mode, initial_seed, int, int8, int32, int64,
    is_autocast_enabled, is_grad_enabled, is_inference_mode_enabled, long, memory_format, no_grad, preserve_format,
    promote_types, seed, set_default_dtype, set_grad_enabled, set_num_threads, set_rng_state, uint8,
)
from . import _compositions, _functions, _modes, _tensor

__version__ = "0.1.0"

_C._set_mode_decorator(_modes.decorate)
globals().update({name: f for name, f in vars(_C.functions).items() if not name.startswith("__")})
globals().update({name: f for name, f in vars(_functions).items() if not name.startswith("_")})
_tensor.install(globals())
_compositions.install(globals())
globals().update(IndexError=_C.IndexError, ValueError=_C.ValueError)  # Deft's, which are Python's too

from . import autograd, nn
from ._compile import compile, load_plan

globals().update({name: getattr(nn.functional, name) for name in (
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "bilinear", "channel_shuffle", "feature_dropout", "pairwise_distance",
    "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "rrelu", "rrelu_", "threshold_", "celu_", "selu_")})
Tensor.prelu = nn.functional.prelu

inf, nan, pi, e = _functions._math.inf, _functions._math.nan, _functions._math.pi, _functions._math.e

# Loaded when they are first used: importing deft takes a fraction of a second.
_LAZY = ("optim", "amp", "utils", "cuda", "safetensors", "serialization", "torch", "backends", "linalg", "multiprocessing", "profiler",
         "random", "special", "version")
_FROM = {"load": "serialization", "save": "serialization", "autocast": "amp", "set_printoptions": "_tensor_text", "finfo": "_dtype_info",
         "iinfo": "_dtype_info", "GradScaler": "amp", "get_autocast_dtype": "amp", "set_float32_matmul_precision": "backends",
         "get_float32_matmul_precision": "backends"}


def __getattr__(name):
    if name in _FROM:
        import importlib

        value = getattr(importlib.import_module("." + _FROM[name], __name__), name)
        globals()[name] = value
        return value
    from ._nearest import module_getattr

    return module_getattr(__name__, lambda: [*globals(), *_LAZY, *_FROM], _LAZY)(name)
