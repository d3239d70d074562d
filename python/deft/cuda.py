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


def __getattr__(name):
    from ._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
