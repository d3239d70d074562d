"""Optimizers: groups of parameters with options, and one call into the library per group and step."""

import copy
from collections import OrderedDict, defaultdict

from .. import _C
from .._C import Tensor


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


class Optimizer:
    """The base of all optimizers; derive from it and write step()."""

    def __init__(self, params, defaults):
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor")
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._grad_scale = 1.0  # set by GradScaler for one step
        self._pre_hooks, self._post_hooks = OrderedDict(), OrderedDict()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Adds parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections; a set has no order")
        params = [params] if isinstance(params, Tensor) else list(params)
        if params and isinstance(params[0], tuple):
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        param_group["params"] = params
        for name, value in self.defaults.items():
            if value is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, value)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if len({id(p) for p in params}) != len(params) or any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none=True):
        """Forgets the gradients of all parameters."""
        for group in self.param_groups:
            _C._zero_grad(group["params"], set_to_none)

    def step(self, closure=None):
        """Updates the parameters that have a gradient."""
        if type(self)._update is Optimizer._update:
            raise NotImplementedError
        loss = None
        if closure is not None:
            with _C.enable_grad():
                loss = closure()
        for hook in self._pre_hooks.values():
            hook(self, (closure,), {})
        for group in self.param_groups:
            self._update(group)
        for hook in self._post_hooks.values():
            hook(self, (closure,), {})
        return loss

    def _update(self, group):
        raise NotImplementedError

    def register_step_pre_hook(self, hook):
        """Calls hook(optimizer, args, kwargs) before each step."""
        return self._register(self._pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Calls hook(optimizer, args, kwargs) after each step."""
        return self._register(self._post_hooks, hook)

    def _register(self, hooks, hook):
        from ..nn.modules.module import RemovableHandle

        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    # --- State
    def _numbers(self):
        return {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}

    def state_dict(self):
        """Options, and states by the number of their parameter."""
        numbers = self._numbers()
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {numbers[id(p)] if isinstance(p, Tensor) else p: dict(s) for p, s in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Takes over options and states."""
        groups, saved = self.param_groups, state_dict["param_groups"]
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        params = [p for g in groups for p in g["params"]]
        numbers = [n for s in saved for n in s["params"]]
        by_number = dict(zip(numbers, params))
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            param = by_number.get(key, key)
            state[param] = {k: self._loaded(k, v, param) for k, v in value.items()} if isinstance(value, dict) else value
        self.state = state
        for group, s in zip(groups, saved):
            group.update({k: copy.deepcopy(v) for k, v in s.items() if k != "params"})

    @staticmethod
    def _loaded(name, value, param):
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)
        if name == "step":
            return float(value)
        return value.detach().clone().to(param.device)

    def __repr__(self):
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join(lines) + "\n)"

    def __getstate__(self):
        return {"defaults": self.defaults, "state": dict(self.state), "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.state = defaultdict(dict, self.state)
        self._grad_scale, self._pre_hooks, self._post_hooks = 1.0, OrderedDict(), OrderedDict()


def _check(**values):
    """lr=..., eps=... and so on must be at least 0, momentum-like ones below 1."""
    for name, value in values.items():
        items = value if name == "betas" else (value,)
        for i, v in enumerate(items):
            if isinstance(v, Tensor):
                v = v.item()
            if v < 0 or (name == "betas" and v >= 1):
                label = {"lr": "learning rate", "eps": "epsilon value"}.get(name, f"{name} value")
                if name == "betas":
                    raise ValueError(f"Invalid beta parameter at index {i}: {v}")
                raise ValueError(f"Invalid {label}: {v}")


class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
                 differentiable=False, fused=None):
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
                                      maximize=maximize))

    def _update(self, group):
        _C._sgd_step(group, self.state, self._grad_scale)


class Adam(Optimizer):
    """Adam: steps by averages of gradients and of their squares."""

    _decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, maximize=False,
                 capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        _check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
                                      decoupled_weight_decay=decoupled_weight_decay))

    def _update(self, group):
        _C._adam_step(group, self.state, self._grad_scale, group.get("decoupled_weight_decay", self._decoupled))


class AdamW(Adam):
    """Adam that decays weights apart from the gradient."""

    _decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False,
                 foreach=None, capturable=False, differentiable=False, fused=None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)


class RMSprop(Optimizer):
    """Steps divided by a moving root mean square."""

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False,
                 foreach=None, maximize=False, differentiable=False):
        _check(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
                                      maximize=maximize))

    def _update(self, group):
        _C._rmsprop_step(group, self.state, self._grad_scale)


class Adagrad(Optimizer):
    """Steps divided by the root of all squares so far."""

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
                 maximize=False, differentiable=False, fused=None):
        _check(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps)
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, maximize=maximize))

    def _update(self, group):
        _C._adagrad_step(group, self.state, self._grad_scale)


class Lamb(Optimizer):
    """Adam with steps scaled to the size of each parameter, for large batches."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0, *, maximize=False):
        _check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _update(self, group):
        _C._lamb_step(group, self.state, self._grad_scale)
