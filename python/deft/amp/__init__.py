"""Mixed precision: autocast and loss scaling."""

import functools
from collections import OrderedDict

from .. import _C
from .._C import Tensor
from .._modes import decorate


class autocast:
    """Inside, expensive operations compute in low precision; as context manager or decorator."""

    _entered = []

    def __init__(self, device_type="cpu", dtype=None, enabled=True, cache_enabled=None):
        if device_type not in ("cpu", "cuda"):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        if dtype is None:
            dtype = _C.float16 if device_type == "cuda" else _C.bfloat16
        if dtype not in (_C.float16, _C.bfloat16, _C.float32):
            raise RuntimeError(f"autocast: {dtype} is not supported; bfloat16 and float16 are")
        self.device, self.fast_dtype, self._enabled = device_type, dtype, enabled
        self._scopes = []

    def __enter__(self):
        scope = _C._AutocastScope(self.fast_dtype if self._enabled else None)
        scope.__enter__()
        self._scopes.append(scope)
        autocast._entered.append(self.fast_dtype)
        return self

    def __exit__(self, *error):
        autocast._entered.pop()
        self._scopes.pop().__exit__(*error)

    def clone(self):
        """The same, not entered."""
        return autocast(self.device, self.fast_dtype, self._enabled)

    def __call__(self, function):
        return decorate(self, function)


def is_autocast_available(device_type):
    """Whether autocast() takes this kind of device."""
    return device_type in ("cpu", "cuda")


def custom_fwd(fwd=None, *, device_type="cuda", cast_inputs=None):
    """For forward() of an autograd.Function: inputs cast, and autocast off, where cast_inputs is given."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def run(ctx, *args, **kwargs):
        ctx._autocast = _C.is_autocast_enabled()
        if cast_inputs is None or not ctx._autocast:
            return fwd(ctx, *args, **kwargs)
        cast = lambda v: v.to(cast_inputs) if isinstance(v, Tensor) and v.is_floating_point() and v.dtype is not _C.float64 else v
        with autocast(device_type, enabled=False):
            return fwd(ctx, *map(cast, args), **{k: cast(v) for k, v in kwargs.items()})

    return run


def custom_bwd(bwd=None, *, device_type="cuda"):
    """For backward() of an autograd.Function: autocast off, as gradients come in the types of forward()."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def run(*args, **kwargs):
        with autocast(device_type, enabled=False):
            return bwd(*args, **kwargs)

    return run


def get_autocast_dtype(device_type):
    """The type that autocast() chooses on its own, or the one it was entered with."""
    entered = autocast._entered[-1] if autocast._entered else None
    return entered if entered is not None else _C.float16 if device_type == "cuda" else _C.bfloat16


class GradScaler:
    """Scales the loss so that small gradients survive float16, and skips steps that overflowed."""

    def __init__(self, device="cuda", init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        if growth_factor <= 1.0 or backoff_factor >= 1.0:
            raise ValueError("The growth factor must be > 1.0 and the backoff factor < 1.0.")
        self._scale, self._growth_factor, self._backoff_factor = float(init_scale), growth_factor, backoff_factor
        self._growth_interval, self._enabled, self._growth_tracker = growth_interval, enabled, 0
        self._seen = OrderedDict()  # per optimizer since update(): "unscaled" or "stepped", and whether it overflowed

    def is_enabled(self):
        """Whether it does anything."""
        return self._enabled

    def scale(self, outputs):
        """The loss times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        return type(outputs)(self.scale(o) for o in outputs)

    def unscale_(self, optimizer):
        """Divides the gradients by the scale, once per step: before clipping."""
        if not self._enabled:
            return
        stage = self._seen.get(id(optimizer), (None, False))[0]
        if stage == "unscaled":
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == "stepped":
            raise RuntimeError("unscale_() is being called after step().")
        params = [p for g in optimizer.param_groups for p in g["params"]]
        self._seen[id(optimizer)] = ("unscaled", _C._unscale(params, 1.0 / self._scale))

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), unless a gradient overflowed."""
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if self._seen.get(id(optimizer), (None, False))[0] == "stepped":
            raise RuntimeError("step() has already been called since the last update().")
        if id(optimizer) not in self._seen:
            self.unscale_(optimizer)
        overflowed = self._seen[id(optimizer)][1]
        self._seen[id(optimizer)] = ("stepped", overflowed)
        return None if overflowed else optimizer.step(*args, **kwargs)

    def update(self, new_scale=None):
        """Once per iteration: backs off after an overflow, grows after enough clean steps."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._seen:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(overflowed for _, overflowed in self._seen.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._seen.clear()

    def get_scale(self):
        """The scale of the next loss."""
        return self._scale if self._enabled else 1.0

    def state_dict(self):
        """All it needs to go on."""
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict):
        """Goes on from a state."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._scale, self._growth_factor, self._backoff_factor = (
            state_dict["scale"], state_dict["growth_factor"], state_dict["backoff_factor"])
        self._growth_interval, self._growth_tracker = state_dict["growth_interval"], state_dict["_growth_tracker"]


def __getattr__(name):
    from .._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
