"""weight_norm, spectral_norm and orthogonal as parametrizations."""

from ... import _C
from ...nn import functional as F
from ..modules.module import Module
from .parametrize import register_parametrization


def _norm_except(v, dim):
    """The norm over all dimensions but one; over all if dim is -1 or None."""
    if dim is None or dim == -1:
        return v.norm()
    return _C.ops.norm(v, 2, [d for d in range(v.ndim) if d != dim % v.ndim], True)


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / _norm_except(weight_v, self.dim))

    def right_inverse(self, weight):
        return _norm_except(weight, self.dim), weight


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        self.dim, self.n_power_iterations, self.eps = dim, n_power_iterations, eps
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            self.register_buffer("_u", F.normalize(_C.functions.randn(matrix.shape[0], dtype=matrix.dtype), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(_C.functions.randn(matrix.shape[1], dtype=matrix.dtype), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight):
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix, count):
        with _C.no_grad():
            for _ in range(count):
                self._u.copy_(F.normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t() @ self._u, dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / self._u.clone().dot(matrix @ self._v.clone())

    def right_inverse(self, value):
        return value


def weight_norm(module, name="weight", dim=0):
    """A weight as direction and length."""
    return register_parametrization(module, name, _WeightNorm(-1 if dim is None else dim))


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """A weight divided by its largest singular value."""
    weight = getattr(module, name)
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
