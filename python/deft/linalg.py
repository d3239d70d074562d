"""Linear algebra: norms, products, and systems of equations by elimination. Decompositions are not there."""

import math

from . import _C, _compositions
from ._C import functions as _f
from ._C import ops as _ops
from .autograd.function import Function, once_differentiable

multi_dot = _compositions.chain_matmul
matrix_power = _compositions.matrix_power
diagonal = _f.diagonal
matmul = _f.matmul


def vecdot(x, y, *, dim=-1):
    """The sums of the products of vectors along dim."""
    return (x * y).sum(dim)


def cross(input, other, *, dim=-1):
    """The vector that stands on both."""
    return _compositions.cross(input, other, dim)


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The norm of vectors."""
    x = x if dtype is None else x.to(dtype)
    if dim is None:
        return _ops.norm(x.reshape(-1), ord, 0).reshape((1,) * x.ndim if keepdim else ())
    return _ops.norm(x, ord, dim, keepdim)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """The norm of matrices: 'fro', or 1, -1, inf, -inf."""
    A = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return _ops.norm(A, 2, list(dim), keepdim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise _C.UnsupportedError(f"matrix_norm: ord is 'fro', 1, -1, inf or -inf; {ord} needs singular values, which are not there")
    rows, columns = (d % A.ndim for d in dim)
    along, over = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(along, keepdim=True)
    result = sums.amax(over, keepdim=True) if ord > 0 else sums.amin(over, keepdim=True)
    return result if keepdim else result.squeeze(max(rows, columns)).squeeze(min(rows, columns))


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """vector_norm(), or matrix_norm() where two dimensions are meant."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if (isinstance(dim, (tuple, list)) and len(dim) == 2) or (dim is None and A.ndim == 2) or isinstance(ord, str):
        return matrix_norm(A, ord, dim or (-2, -1), keepdim, dtype=dtype)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


def _check_square(A, name):
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.{name}: A must be batches of square matrices, but they are {tuple(A.shape)}")


def _eliminate(A, B):
    """A x = B by elimination with row swaps: (x, determinant). One step per column, all matrices of the batch at once."""
    n = A.shape[-1]
    count = math.prod(A.shape[:-2])
    a, b = A.reshape(count, n, n).clone(), B.reshape(count, n, B.shape[-1]).clone()
    batch, det = _f.arange(a.shape[0]), _f.ones(a.shape[0], dtype=A.dtype)
    for k in range(n):
        pivot = a[:, k:, k].abs().argmax(1) + k
        for m in (a, b):
            row = m[batch, pivot]
            m[batch, pivot] = m[:, k].clone()
            m[:, k] = row
        d = a[:, k, k]
        det = det * _ops.where(pivot == k, d, -d)
        below = a[:, k + 1 :, k] / d.unsqueeze(1)
        if k + 1 < n:
            a[:, k + 1 :] -= below.unsqueeze(2) * a[:, k].unsqueeze(1)
            b[:, k + 1 :] -= below.unsqueeze(2) * b[:, k].unsqueeze(1)
    for k in range(n - 1, -1, -1):
        rest = b[:, k] - (a[:, k, k + 1 :].unsqueeze(1) @ b[:, k + 1 :]).squeeze(1) if k + 1 < n else b[:, k]
        b[:, k] = rest / a[:, k, k].unsqueeze(1)
    return b.reshape(B.shape), det.reshape(A.shape[:-2])


class _Solve(Function):
    @staticmethod
    def forward(ctx, A, B):
        x, determinant = _eliminate(A, B)
        if not bool((determinant != 0).all()):
            raise RuntimeError("linalg.solve: The solver failed because the input matrix is singular.")
        ctx.save_for_backward(A, x)
        return x

    @staticmethod
    def backward(ctx, grad):
        A, x = ctx.saved_tensors
        of_b = _Solve.apply(A.transpose(-2, -1), grad)
        return -of_b @ x.transpose(-2, -1), of_b


class _Det(Function):
    @staticmethod
    def forward(ctx, A):
        determinant = _eliminate(A, A.new_zeros((*A.shape[:-1], 0)))[1]
        determinant = _ops.where(determinant.isnan(), 0.0, determinant)
        ctx.save_for_backward(A, determinant)
        return determinant

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        A, determinant = ctx.saved_tensors
        return (grad * determinant).reshape((*grad.shape, 1, 1)) * inv(A).transpose(-2, -1)


def solve(A, B, *, left=True):
    """x with A x = B."""
    _check_square(A, "solve")
    if not left:
        return solve(A.transpose(-2, -1), B.transpose(-2, -1)).transpose(-2, -1)
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    right = B.unsqueeze(-1) if vector else B
    lead = _lead(A.shape[:-2], right.shape[:-2])
    x = _Solve.apply(A.expand(*lead, *A.shape[-2:]).contiguous(), right.expand(*lead, *right.shape[-2:]).contiguous())
    return x.squeeze(-1) if vector else x


def _lead(a, b):
    from ._functions import broadcast_shapes

    return tuple(broadcast_shapes(tuple(a), tuple(b)))


def inv(A):
    """The inverse."""
    _check_square(A, "inv")
    return solve(A, _f.eye(A.shape[-1], dtype=A.dtype).expand_as(A).clone())


def det(A):
    """The determinant."""
    _check_square(A, "det")
    return _Det.apply(A)


def slogdet(A):
    """The sign of the determinant and the logarithm of its size."""
    d = det(A)
    return d.sign(), d.abs().log()


def cholesky(A, *, upper=False):
    """L with L L^T = A, column by column."""
    _check_square(A, "cholesky")
    n, columns = A.shape[-1], []
    for j in range(n):
        column = A[..., j:, j]
        if columns:
            done = _f.stack([c[..., j:] for c in columns], -1)
            column = column - (done @ done[..., :1, :].transpose(-2, -1)).squeeze(-1)
        if not bool((column[..., 0] > 0).all()):
            raise RuntimeError(f"linalg.cholesky: The factorization could not be completed because the input is not positive-definite "
                               f"(the leading minor of order {j + 1} is not positive-definite).")
        column = column / column[..., :1].sqrt()
        columns.append(_C.functional.pad(column, (j, 0)))
    result = _f.stack(columns, -1)
    return result.transpose(-2, -1) if upper else result


def qr(A, mode="reduced"):
    """Q with orthonormal columns and an upper triangular R, by reflections."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"linalg.qr: mode is 'reduced', 'complete' or 'r'; found '{mode}'")
    rows, columns = A.shape[-2:]
    R, Q = A, _f.eye(rows, dtype=A.dtype).expand(*A.shape[:-2], rows, rows)
    for k in range(min(rows - 1, columns)):
        x = _C.functional.pad(R[..., k:, k], (k, 0))
        size = _ops.norm(x, 2, -1, True)
        first = _f.zeros(rows, dtype=A.dtype)
        first[k] = 1
        v = x + _ops.where(x[..., k : k + 1] < 0, -size, size) * first
        v = (v / _ops.norm(v, 2, -1, True).clamp_min(1e-30)).unsqueeze(-1)
        R = R - 2 * v @ (v.transpose(-2, -1) @ R)
        Q = Q - 2 * (Q @ v) @ v.transpose(-2, -1)
    if mode == "reduced":
        Q, R = Q[..., : min(rows, columns)], R[..., : min(rows, columns), :]
    return (Q if mode != "r" else Q.new_empty(0)), R.triu()


def __getattr__(name):
    from ._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
