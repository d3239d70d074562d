"""Optimizers that are written in tensor operations: Adadelta, Adamax, NAdam, RAdam, Rprop, ASGD, Adafactor."""

import math

from .. import _C
from .._C import functions as _functions
from .optimizer import Optimizer, _check


class _PerParameter(Optimizer):
    """One parameter after the other: derive and write _begin(state, p, group) and _one(p, grad, state, group)."""

    def _update(self, group):
        with _C.no_grad():
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0.0
                    self._begin(state, p, group)
                state["step"] += 1
                grad = p.grad.detach()
                if group.get("maximize"):
                    grad = -grad
                if group.get("weight_decay") and not self._decoupled(group):
                    grad = grad + p.detach() * group["weight_decay"]
                self._one(p, grad, state, group)

    def _decoupled(self, group):
        return group.get("decoupled_weight_decay", False)

    def _begin(self, state, p, group):
        raise NotImplementedError

    def _one(self, p, grad, state, group):
        raise NotImplementedError


def _zeros(p):
    return _functions.zeros_like(p.detach())


class Adadelta(_PerParameter):
    """Steps scaled by the root mean square of steps so far over that of gradients."""

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False,
                 differentiable=False):
        _check(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _begin(self, state, p, group):
        state["square_avg"], state["acc_delta"] = _zeros(p), _zeros(p)

    def _one(self, p, grad, state, group):
        rho, eps, squares, deltas = group["rho"], group["eps"], state["square_avg"], state["acc_delta"]
        squares.mul_(rho).add_(grad * grad, alpha=1 - rho)
        delta = (deltas + eps).sqrt() / (squares + eps).sqrt() * grad
        deltas.mul_(rho).add_(delta * delta, alpha=1 - rho)
        p.add_(delta, alpha=-group["lr"])


class Adamax(_PerParameter):
    """Adam with the largest gradient instead of the mean square."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):
        _check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _begin(self, state, p, group):
        state["exp_avg"], state["exp_inf"] = _zeros(p), _zeros(p)

    def _one(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        state["exp_avg"].lerp_(grad, 1 - beta1)
        largest = state["exp_inf"]
        largest.copy_((largest * beta2).maximum(grad.abs() + group["eps"]))
        p.addcdiv_(state["exp_avg"], largest, value=-group["lr"] / (1 - beta1 ** state["step"]))


class NAdam(_PerParameter):
    """Adam with Nesterov momentum."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
                 decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False):
        _check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize))

    def _begin(self, state, p, group):
        state["mu_product"], state["exp_avg"], state["exp_avg_sq"] = 1.0, _zeros(p), _zeros(p)

    def _one(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        step, lr, decay = state["step"], group["lr"], group["momentum_decay"]
        if self._decoupled(group) and group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        mu = beta1 * (1 - 0.5 * 0.96 ** (step * decay))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        state["mu_product"] *= mu
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).add_(grad * grad, alpha=1 - beta2)
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt() + group["eps"]
        p.addcdiv_(grad, root, value=-lr * (1 - mu) / (1 - state["mu_product"]))
        p.addcdiv_(state["exp_avg"], root, value=-lr * mu_next / (1 - state["mu_product"] * mu_next))


class RAdam(_PerParameter):
    """Adam that starts without the variance while that is uncertain."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False):
        _check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize))

    def _begin(self, state, p, group):
        state["exp_avg"], state["exp_avg_sq"] = _zeros(p), _zeros(p)

    def _one(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        step, lr = state["step"], group["lr"]
        if self._decoupled(group) and group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).add_(grad * grad, alpha=1 - beta2)
        average = state["exp_avg"] / (1 - beta1**step)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / (1 - beta2**step)
        if length <= 5:
            p.add_(average, alpha=-lr)
            return
        rectified = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
        root = state["exp_avg_sq"].sqrt() + group["eps"]
        p.add_(average * math.sqrt(1 - beta2**step) / root, alpha=-lr * rectified)


class Rprop(_PerParameter):
    """Steps by the sign of the gradient, longer while it stays the same."""

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False,
                 differentiable=False):
        _check(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize))

    def _begin(self, state, p, group):
        state["prev"], state["step_size"] = _zeros(p), _functions.full_like(p.detach(), group["lr"])

    def _one(self, p, grad, state, group):
        (shorter, longer), (least, most) = group["etas"], group["step_sizes"]
        turn = (grad * state["prev"]).sign()
        factor = _functions.ones_like(grad).masked_fill(turn > 0, longer).masked_fill(turn < 0, shorter)
        state["step_size"].mul_(factor).clamp_(least, most)
        grad = grad.masked_fill(turn < 0, 0)
        p.sub_(grad.sign() * state["step_size"])
        state["prev"].copy_(grad)


class ASGD(_PerParameter):
    """Gradient descent that also keeps the average of the parameters, in state["ax"]."""

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        _check(lr=lr, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize))

    def _begin(self, state, p, group):
        state["eta"], state["mu"], state["ax"] = group["lr"], 1.0, _zeros(p)

    def _one(self, p, grad, state, group):
        step, eta = state["step"], state["eta"]
        p.mul_(1 - group["lambd"] * eta).add_(grad, alpha=-eta)
        if state["mu"] == 1:
            state["ax"].copy_(p)
        else:
            state["ax"].add_((p - state["ax"]) * state["mu"])
        state["eta"] = group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"]
        state["mu"] = 1 / max(1, step - group["t0"])


class Adafactor(_PerParameter):
    """Adam without momentum, with the squares of matrices kept by row and column."""

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None, maximize=False):
        _check(lr=lr, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, maximize=maximize))

    def _decoupled(self, group):
        return True

    def _begin(self, state, p, group):
        if p.ndim > 1:
            state["row_var"] = p.new_zeros((*p.shape[:-1], 1))
            state["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
        else:
            state["variance"] = _zeros(p)

    def _one(self, p, grad, state, group):
        from .._dtype_info import finfo

        eps1, eps2 = group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        rate = state["step"] ** group["beta2_decay"]
        rho = min(group["lr"], 1 / math.sqrt(state["step"]))
        alpha = max(eps2, p.norm(2).item() / math.sqrt(p.numel())) * rho
        if group["weight_decay"]:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        squares = grad * grad
        if grad.ndim > 1:
            row, column = state["row_var"], state["col_var"]
            row.lerp_(squares.mean(-1, keepdim=True), rate)
            column.lerp_(squares.mean(-2, keepdim=True), rate)
            variance = (row @ column) / row.mean(-2, keepdim=True).clamp_min(eps1)
        else:
            state["variance"].lerp_(squares, rate)
            variance = state["variance"].clone()
        update = variance.clamp_min(eps1 * eps1).rsqrt() * grad
        limit = max(1.0, update.norm(2).item() / (math.sqrt(update.numel()) * group["d"]))
        p.add_(update, alpha=-alpha / limit)
