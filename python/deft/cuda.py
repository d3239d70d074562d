"""NVIDIA GPUs."""

from . import _C


def device_count():
    """The number of GPUs that can be used; 0 in a build without CUDA."""
    return _C._device_count()


def is_available():
    """Whether there is a GPU that can be used."""
    return device_count() > 0


def is_initialized():
    """Whether GPUs are in use; they start with the first tensor."""
    return is_available()


def manual_seed(seed):
    """Seeds the generator, which all devices share."""
    _C._manual_seed(seed)


manual_seed_all = manual_seed


def synchronize(device=None):
    """Waits for all work on a GPU."""
    if is_available():
        _C._synchronize(0 if device is None else _C.device(device).index if isinstance(device, str) else int(device))


def _index(device=None):
    if device is None:
        return _current
    return device if isinstance(device, int) else _C.device(device).index if isinstance(device, str) else device.index or 0


_current = 0


def _require(what):
    if not is_available():
        raise AssertionError(f"cuda.{what}: Deft is not compiled with CUDA enabled, or the machine has no NVIDIA GPU")


def current_device():
    """The number of the GPU that is meant where none is named."""
    _require("current_device")
    return _current


def set_device(device):
    """Which GPU is meant where none is named."""
    _require("set_device")
    globals()["_current"] = _index(device)


class device:
    """Inside, another GPU is meant where none is named."""

    def __init__(self, device):
        self.index = _index(device)

    def __enter__(self):
        self.before = _current
        globals()["_current"] = self.index
        return self

    def __exit__(self, *error):
        globals()["_current"] = self.before


def get_device_properties(device=None):
    """Name, memory and compute capability of a GPU."""
    _require("get_device_properties")
    import types

    return types.SimpleNamespace(**_C._properties(_index(device)))


def get_device_name(device=None):
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """(major, minor) of a GPU's compute capability."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported(including_emulation=True):
    """Whether the GPU computes in bfloat16."""
    return is_available() and get_device_capability()[0] >= 8


def memory_allocated(device=None):
    """Bytes that tensors hold on a GPU."""
    return _C._memory_use(_index(device))["live"] if is_available() else 0


def memory_reserved(device=None):
    """Bytes taken from the driver, with those kept for reuse."""
    return _C._memory_use(_index(device))["reserved"] if is_available() else 0


def max_memory_allocated(device=None):
    """The most bytes that tensors held since reset_peak_memory_stats()."""
    return _C._memory_use(_index(device))["peak"] if is_available() else 0


def reset_peak_memory_stats(device=None):
    """Starts max_memory_allocated() anew."""
    if is_available():
        _C._reset_peak_memory(_index(device))


def empty_cache():
    """Gives memory that is kept for reuse back to the driver."""
    for i in range(device_count()):
        _C._release_cached_memory(i)


def get_rng_state(device=None):
    """The generator's state, which all devices share."""
    return _C.get_rng_state()


def set_rng_state(new_state, device=None):
    """Goes back to a state."""
    _C.set_rng_state(new_state)


OutOfMemoryError = _C.OutOfMemoryError


def __getattr__(name):
    from ._nearest import module_getattr

    if name == "amp":
        from . import amp as value
    else:
        value = module_getattr(__name__, lambda: [*globals(), "amp"])(name)
    return value
