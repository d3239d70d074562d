"""Products of matrices and vectors, distances."""

from .. import _C
from .joining import _listed

_f, _ops = _C.functions, _C.ops


def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * the sum of the products of a batch."""
    return beta * input + alpha * (batch1 @ batch2).sum(0)


def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * mat @ vec."""
    return beta * input + alpha * (mat @ vec)


def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta * input + alpha * the outer product."""
    return beta * input + alpha * _f.outer(vec1, vec2)


def chain_matmul(*matrices):
    """The product of several matrices."""
    result, *rest = _listed(matrices)
    for matrix in rest:
        result = result @ matrix
    return result


def inner(input, other):
    """Sums over the last dimension of both."""
    return input * other if input.ndim == 0 or other.ndim == 0 else _ops._tensordot(input, other, [input.ndim - 1], [other.ndim - 1])


def vdot(input, other):
    """The dot product of two vectors."""
    return input.dot(other)


def kron(input, other):
    """Every element of input times all of other."""
    n = max(input.ndim, other.ndim)
    a, b = (x.reshape((1,) * (n - x.ndim) + tuple(x.shape)) for x in (input, other))
    wide = a.reshape([s for size in a.shape for s in (size, 1)]) * b.reshape([s for size in b.shape for s in (1, size)])
    return wide.reshape([p * q for p, q in zip(a.shape, b.shape)])


def matrix_power(input, n):
    """A square matrix times itself."""
    if n < 0:
        return matrix_power(inverse(input), -n)
    result = None
    while n:
        if n & 1:
            result = input if result is None else result @ input
        input, n = input @ input, n >> 1
    return _f.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand_as(input).clone() if result is None else result


def cross(input, other, dim=None):
    """The vector that stands on both."""
    if dim is None:
        dim = next((i for i, size in enumerate(input.shape) if size == 3), -1)
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(f"cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}")
    a, b = input.unbind(dim), other.unbind(dim)
    return _f.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], dim)


def inverse(input):
    """The inverse of square matrices."""
    from ..linalg import inv

    return inv(input)


def det(input):
    """The determinant of square matrices."""
    from .. import linalg

    return linalg.det(input)


def logdet(input):
    """The logarithm of the determinant."""
    return det(input).log()


def trace(input):
    """The sum of the diagonal."""
    return input.diagonal().sum()


def cdist(x1, x2, p=2.0, compute_mode=None):
    """Distances between all rows of the one and of the other."""
    return _ops.norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def dist(input, other, p=2):
    """The norm of the difference."""
    return (input - other).norm(p)


def renorm(input, p, dim, maxnorm):
    """Each part along dim scaled down to a norm of at most maxnorm."""
    others = [d for d in range(input.ndim) if d != dim % input.ndim]
    norms = _ops.norm(input, p, others, True)
    return input * _ops.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


def norm_except_dim(v, pow=2, dim=0):
    """The norm over all dimensions but one; over all if dim is -1."""
    if dim == -1:
        return v.norm(pow)
    return _ops.norm(v, pow, [d for d in range(v.ndim) if d != dim], True)
