"""LBFGS: steps along the curvature that the last gradients show."""

import math

from .. import _C
from .._C import functions as _functions
from .optimizer import Optimizer


def _cubic_minimum(x1, f1, g1, x2, f2, g2, bounds=None):
    """Where the cubic through two points with two slopes is lowest."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    if x1 <= x2:
        best = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        best = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(best, low), high)


def _strong_wolfe(evaluate, x, t, d, f, g, gtd, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_ls=25):
    """A step length that lowers both the value and the slope enough: (value, gradient, length, evaluations)."""
    size = d.abs().max().item()
    f_new, g_new = evaluate(x, t, d)
    evaluations, slope = 1, g_new.dot(d).item()
    t_old, f_old, g_old, slope_old, done, i = 0.0, f, g, gtd, False, 0
    bracket = None
    while i < max_ls:
        if f_new > f + c1 * t * gtd or (i > 1 and f_new >= f_old) or slope >= 0:
            bracket = [(t_old, f_old, g_old, slope_old), (t, f_new, g_new, slope)]
        if bracket is None and abs(slope) <= -c2 * gtd:
            bracket, done = [(t, f_new, g_new, slope)], True
        if bracket is not None:
            if slope < 0 and abs(slope) <= -c2 * gtd and not f_new > f + c1 * t * gtd and not (i > 1 and f_new >= f_old):
                bracket, done = [(t, f_new, g_new, slope)], True
            break
        least, most, previous = t + 0.01 * (t - t_old), t * 10, t
        t = _cubic_minimum(t_old, f_old, slope_old, t, f_new, slope, (least, most))
        t_old, f_old, g_old, slope_old = previous, f_new, g_new.clone(), slope
        f_new, g_new = evaluate(x, t, d)
        evaluations, slope, i = evaluations + 1, g_new.dot(d).item(), i + 1
    if bracket is None:
        bracket = [(0.0, f, g, gtd), (t, f_new, g_new, slope)]
    return _zoom(evaluate, x, d, f, gtd, bracket, done, i, evaluations, c1, c2, tolerance_change, max_ls, size)


def _zoom(evaluate, x, d, f, gtd, bracket, done, i, evaluations, c1, c2, tolerance_change, max_ls, size):
    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and i < max_ls:
        (t0, f0, _, s0), (t1, f1, _, s1) = bracket
        if abs(t1 - t0) * size < tolerance_change:
            break
        t = _cubic_minimum(t0, f0, s0, t1, f1, s1)
        least, most = min(t0, t1), max(t0, t1)
        margin = 0.1 * (most - least)
        if min(most - t, t - least) < margin:
            if stuck or t >= most or t <= least:
                t, stuck = (most - margin if abs(t - most) < abs(t - least) else least + margin), False
            else:
                stuck = True
        else:
            stuck = False
        f_new, g_new = evaluate(x, t, d)
        evaluations, slope, i = evaluations + 1, g_new.dot(d).item(), i + 1
        point = (t, f_new, g_new.clone(), slope)
        if f_new > f + c1 * t * gtd or f_new >= bracket[low][1]:
            bracket[high] = point
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(slope) <= -c2 * gtd:
                done = True
            elif slope * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
    t, f_new, g_new, _ = bracket[low if len(bracket) > 1 else 0]
    return f_new, g_new, t, evaluations


class LBFGS(Optimizer):
    """Quasi-Newton steps; step() calls the closure several times."""

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
                 line_search_fn=None):
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                                      tolerance_grad=tolerance_grad, tolerance_change=tolerance_change, history_size=history_size,
                                      line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _gradient(self):
        return _functions.cat([_functions.zeros(p.numel(), dtype=p.dtype) if p.grad is None else p.grad.detach().reshape(-1) for p in self._params])

    def _add(self, t, d):
        start = 0
        for p in self._params:
            p.add_(d[start : start + p.numel()].view_as(p), alpha=t)
            start += p.numel()

    def _evaluate(self, closure, x, t, d):
        self._add(t, d)
        value = float(closure())
        gradient = self._gradient()
        for p, old in zip(self._params, x):
            p.copy_(old)
        return value, gradient

    def _direction(self, state, gradient):
        """The gradient times the inverse curvature, by the two loops over the last steps."""
        olds, news, ro, scale = state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"]
        q, alphas = -gradient, []
        for y, s, r in zip(reversed(olds), reversed(news), reversed(ro)):
            alphas.append(s.dot(q).item() * r)
            q = q.add(y, alpha=-alphas[-1])
        d = q * scale
        for y, s, r, a in zip(olds, news, ro, reversed(alphas)):
            d = d.add(s, alpha=a - y.dot(d).item() * r)
        return d

    def _remember(self, state, gradient, size):
        y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        ys = y.dot(s).item()
        if ys <= 1e-10:
            return
        if len(state["old_dirs"]) == size:
            for name in ("old_dirs", "old_stps", "ro"):
                state[name].pop(0)
        state["old_dirs"].append(y)
        state["old_stps"].append(s)
        state["ro"].append(1.0 / ys)
        state["H_diag"] = ys / y.dot(y).item()

    def step(self, closure):
        """Up to max_iter steps; gives the first loss."""
        group, state = self.param_groups[0], self.state[self._params[0]]
        if not state:
            state.update(func_evals=0, n_iter=0, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)

        def evaluate():
            with _C.enable_grad():
                return closure()

        with _C.no_grad():
            return self._steps(evaluate, group, state)

    def _steps(self, closure, group, state):
        first = closure()
        loss, evaluations, gradient = float(first), 1, self._gradient()
        state["func_evals"] += 1
        if gradient.abs().max().item() <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                d = -gradient
                t = min(1.0, 1.0 / gradient.abs().sum().item()) * group["lr"]
            else:
                self._remember(state, gradient, group["history_size"])
                d, t = self._direction(state, gradient), group["lr"]
            before, state["prev_flat_grad"] = loss, gradient.clone()
            slope = gradient.dot(d).item()
            state["d"], state["t"] = d, t
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if group["line_search_fn"] is not None:
                x = [p.detach().clone() for p in self._params]
                loss, gradient, t, used = _strong_wolfe(lambda *a: self._evaluate(closure, *a), x, t, d, loss, gradient, slope)
                state["t"] = t
                self._add(t, d)
            else:
                self._add(t, d)
                if n != group["max_iter"]:
                    loss, gradient, used = float(closure()), self._gradient(), 1
            evaluations += used
            state["func_evals"] += used
            if evaluations >= group["max_eval"] or gradient.abs().max().item() <= group["tolerance_grad"]:
                break
            if (d * t).abs().max().item() <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                break
        return first
