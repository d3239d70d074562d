"""The generator that draws come from unless they are given one."""

from contextlib import contextmanager

from ._C import get_rng_state, initial_seed, seed, set_rng_state
from ._functions import manual_seed


@contextmanager
def fork_rng(devices=None, enabled=True, device_type="cuda"):
    """What is drawn inside does not move the generator on."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
