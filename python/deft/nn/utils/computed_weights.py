"""weight_norm and spectral_norm in torch's first form: the weight is computed before each forward()."""

from ... import _C
from .. import functional as F
from ..parameter import Parameter
from .parametrizations import _norm_except, _SpectralNorm


class _Computed:
    """A hook before forward() that sets an attribute."""

    def __call__(self, module, args):
        setattr(module, self.name, self.compute(module))

    def add_to(self, module):
        value = self.compute(module)
        setattr(module, self.name, value)
        self.handle = module.register_forward_pre_hook(self)
        return module


class _WeightNorm(_Computed):
    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute(self, module):
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / _norm_except(v, self.dim))


class _PowerNorm(_Computed):
    def __init__(self, name, norm):
        self.name, self.norm = name, norm

    def compute(self, module):
        self.norm.training = module.training
        return self.norm(getattr(module, self.name + "_orig"))


def weight_norm(module, name="weight", dim=0):
    """A weight as direction, name_v, and length, name_g."""
    weight = module._parameters[name]
    delattr(module, name)
    hook = _WeightNorm(name, dim)
    module.register_parameter(name + "_g", Parameter(_norm_except(weight.detach(), hook.dim).clone()))
    module.register_parameter(name + "_v", Parameter(weight.detach().clone()))
    return hook.add_to(module)


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """A weight, name_orig, divided by its largest singular value."""
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    weight = module._parameters[name]
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    hook = _PowerNorm(name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    module.register_buffer(name + "_u", hook.norm._u)
    module.register_buffer(name + "_v", hook.norm._v)
    return hook.add_to(module)


def _remove(module, name, kind, what):
    for hook in list(module.__dict__.get("_forward_pre_hooks", {}).values()):
        hook = hook[0] if isinstance(hook, tuple) else hook
        if isinstance(hook, kind) and hook.name == name:
            value = hook.compute(module).detach()
            hook.handle.remove()
            for suffix in ("_g", "_v", "_u", "_orig"):
                module._parameters.pop(name + suffix, None)
                module._buffers.pop(name + suffix, None)
            module.__dict__.pop(name, None)
            module.register_parameter(name, Parameter(value))
            return module
    raise ValueError(f"{what} of '{name}' not found in {module}")


def remove_weight_norm(module, name="weight"):
    """The weight is a plain parameter again."""
    return _remove(module, name, _WeightNorm, "weight_norm")


def remove_spectral_norm(module, name="weight"):
    """The weight is a plain parameter again."""
    return _remove(module, name, _PowerNorm, "spectral_norm")
