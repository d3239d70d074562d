"""Starting values of parameters."""

import math

from .. import _C

_functions = _C.functions


def calculate_gain(nonlinearity, param=None):
    """The recommended gain of a nonlinearity."""
    gains = {"sigmoid": 1, "tanh": 5.0 / 3, "relu": math.sqrt(2), "selu": 3.0 / 4, "linear": 1}
    if nonlinearity.startswith("conv"):
        return 1
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in gains:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return gains[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = tensor[0][0].numel() if tensor.ndim > 2 else 1
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor, mode):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Uniform in [a, b)."""
    with _C.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Normal with this mean and standard deviation."""
    with _C.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal within [a, b], by the inverse of the distribution function."""
    def cdf(x):
        return (1 + math.erf(x / math.sqrt(2))) / 2

    low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    with _C.no_grad():
        tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
        return tensor.erfinv_().mul_(std * math.sqrt(2)).add_(mean).clamp_(min=a, max=b)


def constant_(tensor, val):
    """All elements the same."""
    with _C.no_grad():
        return tensor.fill_(val)


def zeros_(tensor):
    """Zeros."""
    return constant_(tensor, 0)


def ones_(tensor):
    """Ones."""
    return constant_(tensor, 1)


def eye_(tensor):
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with _C.no_grad():
        return tensor.copy_(_functions.eye(*tensor.shape))


def dirac_(tensor, groups=1):
    """Convolution weights that keep their input."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out_per_group = tensor.shape[0] // groups
    middle = tuple(s // 2 for s in tensor.shape[2:])
    with _C.no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(out_per_group, tensor.shape[1])):
                tensor[(g * out_per_group + d, d) + middle] = 1
    return tensor


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Uniform with variance 2 / (fan in + fan out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal with variance 2 / (fan in + fan out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Uniform so that variances stay through layers of this nonlinearity."""
    if tensor.numel() == 0:
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -math.sqrt(3.0) * std, math.sqrt(3.0) * std, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal so that variances stay through layers of this nonlinearity."""
    if tensor.numel() == 0:
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def orthogonal_(tensor, gain=1, generator=None):
    """Orthogonal rows or columns, of a random matrix by Gram and Schmidt in float64."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    rows, cols = tensor.shape[0], tensor.numel() // max(tensor.shape[0], 1)
    with _C.no_grad():
        q = _functions.randn(max(rows, cols), min(rows, cols), generator=generator, dtype=_C.float64)
        for _ in range(2):  # the second pass repairs what rounding left
            for i in range(q.shape[1]):
                column = q[:, i]
                if i:
                    column = column - q[:, :i] @ (q[:, :i].t() @ column)
                q[:, i] = column / column.norm()
        q = q if rows >= cols else q.t()
        return tensor.copy_((q * gain).to(tensor.dtype).reshape(tensor.shape))


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal, with this share of zeros in each column."""
    rows, cols = tensor.shape
    zeros = int(math.ceil(sparsity * rows))
    with _C.no_grad():
        tensor.normal_(0, std, generator=generator)
        for c in range(cols):
            tensor[_functions.randperm(rows)[:zeros], c] = 0
    return tensor


def _with_a_warning(name):
    function = globals()[name + "_"]

    def run(*args, **kwargs):
        import warnings

        warnings.warn(f"nn.init.{name} is deprecated in favor of nn.init.{name}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"torch's first name of {name}_()."
    return run


uniform, normal, constant, eye, dirac, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal, sparse = map(
    _with_a_warning, ("uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform",
                      "kaiming_normal", "orthogonal", "sparse"))


def __getattr__(name):
    from .._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
