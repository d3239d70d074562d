"""Layers that learn the size of their input from the first call."""

from . import layers
from ..parameter import Parameter, UninitializedParameter


class _Lazy:
    """Mixed into a layer: its parameters are made when the first input shows how wide it is."""

    def __init__(self, *args, **kwargs):
        self.__dict__["_waiting"] = (args, kwargs)
        super().__init__(self._placeholder, *args, **kwargs)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = UninitializedParameter(parameter.requires_grad)

    def _become(self, width):
        args, kwargs = self.__dict__.pop("_waiting")
        training, hooks = self.training, {k: v for k, v in self.__dict__.items() if k.endswith("_hooks")}
        made = self._target(width, *args, **kwargs)
        for name, parameter in self._parameters.items():  # optimizers hold these objects
            if parameter is not None:
                parameter.data = made._parameters[name].data
                parameter.__class__ = Parameter
        made._parameters.update(self._parameters)
        hooked = self._hooked
        self.__class__ = self._target
        self.__dict__.update(made.__dict__)
        self.__dict__.update(hooks, training=training, _hooked=hooked)

    def has_uninitialized_params(self):
        """Whether no input has been seen yet."""
        return "_waiting" in self.__dict__

    def forward(self, input):
        self._become(input.shape[self._axis(input)])
        return self.forward(input)

    def _load_from_state_dict(self, state_dict, prefix, *others):
        for name, axis in self._width_of:
            value = state_dict.get(prefix + name)
            if value is not None:
                self._become(value.shape[axis] * (getattr(self, "groups", 1) if axis == 1 and hasattr(self, "kernel_size") else 1))
                break
        return type(self)._load_from_state_dict(self, state_dict, prefix, *others)


def _make(name, target, placeholder, axis, width_of):
    body = {"_target": target, "_placeholder": placeholder, "_axis": staticmethod(axis), "_width_of": width_of,
            "__doc__": f"{target.__name__} that learns the size of its input from the first call.", "__module__": __name__}
    return type(name, (_Lazy, target), body)


def _all():
    globals()["LazyLinear"] = _make("LazyLinear", layers.Linear, 1, lambda x: -1, [("weight", 1)])
    for n in (1, 2, 3):
        channel = lambda x, n=n: x.ndim - n - 1
        for kind, width in (("Conv", 1), ("ConvTranspose", 0)):
            name = f"{kind}{n}d"
            globals()["Lazy" + name] = _make("Lazy" + name, getattr(layers, name), 1, channel, [("weight", width)])
        for kind in ("BatchNorm", "InstanceNorm"):
            name = f"{kind}{n}d"
            globals()["Lazy" + name] = _make("Lazy" + name, getattr(layers, name), 1,
                                             (lambda x: 1) if kind == "BatchNorm" else channel, [("running_mean", 0), ("weight", 0)])


_all()
