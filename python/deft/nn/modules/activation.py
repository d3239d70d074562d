"""Activations as modules, made from a table: class, function, and arguments with their defaults."""

from ..._C import functions as _functions
from .. import functional as F
from ..init import constant_
from ..parameter import Parameter
from .module import Module

# (class, function, {argument: default}); `inplace` comes last where torch has it.
_TABLE = [
    ("ReLU", "relu", {"inplace": False}), ("ReLU6", "relu6", {"inplace": False}),
    ("SELU", "selu", {"inplace": False}), ("SiLU", "silu", {"inplace": False}), ("Mish", "mish", {"inplace": False}),
    ("ELU", "elu", {"alpha": 1.0, "inplace": False}), ("CELU", "celu", {"alpha": 1.0, "inplace": False}),
    ("LeakyReLU", "leaky_relu", {"negative_slope": 0.01, "inplace": False}),
    ("Hardtanh", "hardtanh", {"min_val": -1.0, "max_val": 1.0, "inplace": False}),
    ("Hardsigmoid", "hardsigmoid", {"inplace": False}), ("Hardswish", "hardswish", {"inplace": False}),
    ("Sigmoid", "sigmoid", {}), ("Tanh", "tanh", {}), ("LogSigmoid", "logsigmoid", {}), ("Softsign", "softsign", {}),
    ("Tanhshrink", "tanhshrink", {}), ("GELU", "gelu", {"approximate": "none"}),
    ("Softplus", "softplus", {"beta": 1.0, "threshold": 20.0}), ("Hardshrink", "hardshrink", {"lambd": 0.5}),
    ("Softshrink", "softshrink", {"lambd": 0.5}), ("GLU", "glu", {"dim": -1}),
    ("Threshold", "threshold", {"threshold": None, "value": None, "inplace": False}),
    ("Softmax", "softmax", {"dim": None}), ("LogSoftmax", "log_softmax", {"dim": None}), ("Softmin", "softmin", {"dim": None}),
]

_REQUIRED = {("Threshold", "threshold"), ("Threshold", "value")}


def _make(name, function_name, arguments):
    """A class with these arguments; written out as source, so that its signature and its call are plain."""
    heads = [a if (name, a) in _REQUIRED else f"{a}={v!r}" for a, v in arguments.items()]
    lines = [f"def __init__(self{''.join(', ' + h for h in heads)}):", "    Module.__init__(self)"]
    lines += [f"    self.{a} = {a}" for a in arguments]
    passed = "".join(f", {a}=self.{a}" for a in arguments)
    lines += ["def forward(self, input):", f"    return function(input{passed})"]
    shown = [a for a in arguments if a != "inplace"]
    text = (lambda a: f"str(self.{a})") if shown == ["lambd"] else (lambda a: f"f'{a}={{self.{a}!r}}'")
    lines += ["def extra_repr(self):", "    parts = [" + ", ".join(map(text, shown)) + "]"]
    if "inplace" in arguments:
        lines += ["    if self.inplace: parts.append('inplace=True')"]
    lines += ["    return ', '.join(parts)"]
    body = {}
    exec("\n".join(lines), {"Module": Module, "function": getattr(F, function_name)}, body)
    body["__doc__"] = f"deft.nn.functional.{function_name} as a module."
    body["__module__"] = __name__
    return type(name, (Module,), body)


for _name, _function, _arguments in _TABLE:
    globals()[_name] = _make(_name, _function, _arguments)


class PReLU(Module):
    """x where it is positive, a learned weight times x elsewhere."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(_functions.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class Softmax2d(Module):
    """Softmax over channels."""

    def forward(self, input):
        return F.softmax(input, -3)


class RReLU(Module):
    """leaky_relu with a random slope while training."""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}"
