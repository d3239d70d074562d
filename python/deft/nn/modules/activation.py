"""Activations as modules."""

from ..._C import functions as _functions
from .. import functional as F
from ..init import constant_
from ..parameter import Parameter
from .module import Module


class _Plain(Module):
    def __init__(self):
        super().__init__()

    def forward(self, input):
        return self.function(input)


class _MayWriteInPlace(Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return self.function(input, self.inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


def _shown(module, *names):
    parts = [f"{name}={getattr(module, name)!r}" for name in names]
    return ", ".join(parts + (["inplace=True"] if getattr(module, "inplace", False) else []))


class Sigmoid(_Plain):
    """deft.nn.functional.sigmoid as a module."""

    function = staticmethod(F.sigmoid)


class Tanh(_Plain):
    """deft.nn.functional.tanh as a module."""

    function = staticmethod(F.tanh)


class LogSigmoid(_Plain):
    """deft.nn.functional.logsigmoid as a module."""

    function = staticmethod(F.logsigmoid)


class Softsign(_Plain):
    """deft.nn.functional.softsign as a module."""

    function = staticmethod(F.softsign)


class Tanhshrink(_Plain):
    """deft.nn.functional.tanhshrink as a module."""

    function = staticmethod(F.tanhshrink)


class ReLU(_MayWriteInPlace):
    """deft.nn.functional.relu as a module."""

    function = staticmethod(F.relu)


class ReLU6(_MayWriteInPlace):
    """deft.nn.functional.relu6 as a module."""

    function = staticmethod(F.relu6)


class SELU(_MayWriteInPlace):
    """deft.nn.functional.selu as a module."""

    function = staticmethod(F.selu)


class SiLU(_MayWriteInPlace):
    """deft.nn.functional.silu as a module."""

    function = staticmethod(F.silu)


class Mish(_MayWriteInPlace):
    """deft.nn.functional.mish as a module."""

    function = staticmethod(F.mish)


class Hardsigmoid(_MayWriteInPlace):
    """deft.nn.functional.hardsigmoid as a module."""

    function = staticmethod(F.hardsigmoid)


class Hardswish(_MayWriteInPlace):
    """deft.nn.functional.hardswish as a module."""

    function = staticmethod(F.hardswish)


class ELU(Module):
    """deft.nn.functional.elu as a module."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return _shown(self, "alpha")


class CELU(Module):
    """deft.nn.functional.celu as a module."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return _shown(self, "alpha")


class LeakyReLU(Module):
    """deft.nn.functional.leaky_relu as a module."""

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return _shown(self, "negative_slope")


class Hardtanh(Module):
    """deft.nn.functional.hardtanh as a module."""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return _shown(self, "min_val", "max_val")


class Threshold(Module):
    """deft.nn.functional.threshold as a module."""

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return _shown(self, "threshold", "value")


class GELU(Module):
    """deft.nn.functional.gelu as a module."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return _shown(self, "approximate")


class Softplus(Module):
    """deft.nn.functional.softplus as a module."""

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return _shown(self, "beta", "threshold")


class Hardshrink(Module):
    """deft.nn.functional.hardshrink as a module."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self):
        return str(self.lambd)


class Softshrink(Module):
    """deft.nn.functional.softshrink as a module."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.softshrink(input, self.lambd)

    def extra_repr(self):
        return str(self.lambd)


class GLU(Module):
    """deft.nn.functional.glu as a module."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return _shown(self, "dim")


class Softmax(Module):
    """deft.nn.functional.softmax as a module."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmax(input, self.dim)

    def extra_repr(self):
        return _shown(self, "dim")


class LogSoftmax(Module):
    """deft.nn.functional.log_softmax as a module."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.log_softmax(input, self.dim)

    def extra_repr(self):
        return _shown(self, "dim")


class Softmin(Module):
    """deft.nn.functional.softmin as a module."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmin(input, self.dim)

    def extra_repr(self):
        return _shown(self, "dim")


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
