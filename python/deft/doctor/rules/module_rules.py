"""D005, D008, D009, D010: layers in the wrong mode, and parameters that move or stay against the script's wish."""

from ..findings import Finding, listed
from .base import Rule


def _is_dropout(torch, module):
    return isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0


def _is_batch_norm(torch, module):
    return isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.track_running_stats and not isinstance(
        module, torch.nn.modules.instancenorm._InstanceNorm)


class TrainModeInEvaluation(Rule):
    """D005"""

    def __init__(self, session):
        super().__init__(session)
        self._lines = {}

    def module_begins(self, module, inputs, depth, site):
        if depth != 1 or site is None or self._torch.is_grad_enabled() or self._session.in_backward:
            return
        line = self._lines.get(site)
        if line is None:
            layers = [name or type(m).__name__ for name, m in module.named_modules()
                      if m.training and (_is_dropout(self._torch, m) or _is_batch_norm(self._torch, m))]
            if not layers:
                return
            line = self._lines[site] = {"layers": listed(layers), "count": 0}
        if module.training:
            line["count"] += 1

    def report(self, findings):
        for site, line in self._lines.items():
            findings.append(Finding("D005", site, "the module is called with gradients off but in train mode: {} behave as in training, so results "
                                    "are random or depend on the batch.".format(line["layers"]), count=max(1, line["count"])))


class MovingStatistics(Rule):
    """D008"""

    def __init__(self, session):
        super().__init__(session)
        self._norms = {}
        self._names = {}

    def module_begins(self, module, inputs, depth, site):
        if depth == 1:
            self._root = module
        if not module.training or not _is_batch_norm(self._torch, module) or not self._torch.is_grad_enabled() or self._session.in_backward:
            return
        if module.weight is None:
            return
        norm = self._norms.setdefault(id(module), {"site": site, "name": None, "frozen": 0, "trained": 0, "module": module})
        frozen = not module.weight.requires_grad and not module.bias.requires_grad
        norm["frozen" if frozen else "trained"] += 1
        if frozen and norm["name"] is None:
            norm["name"] = next((n for n, m in self._root.named_modules() if m is module), "") or type(module).__name__

    def report(self, findings):
        by_line = {}
        for norm in self._norms.values():
            if norm["frozen"] >= 2 and not norm["trained"] and norm["site"] is not None:
                by_line.setdefault(norm["site"], []).append(norm)
        for site, norms in by_line.items():
            findings.append(Finding("D008", site, "the parameters of {} are frozen, but it is in train mode: each of {} forward passes moved its "
                                    "running statistics.".format(listed(sorted(n["name"] for n in norms)), norms[0]["frozen"]),
                                    count=norms[0]["frozen"], figures={"layers": len(norms)}))


class _Names:
    """Names of parameters, from the modules that were called."""

    def __init__(self):
        self._names, self._owners, self._known = {}, {}, set()

    def learn(self, module, depth):
        if depth == 1 and id(module) not in self._known and len(self._known) < 256:
            self._known.add(id(module))
            for name, p in module.named_parameters():
                self._names.setdefault(id(p), name)
                self._owners.setdefault(id(p), (id(module), name.rpartition(".")[0]))

    def of(self, p, number):
        return self._names.get(id(p), "parameter {}".format(number))

    def owner(self, p):
        return self._owners.get(id(p))


def _params(optimizer):
    return [(p, group) for group in optimizer.param_groups for p in group["params"]]


class FrozenWeightsDecayed(Rule):
    """D009: weight decay shrinks what gradients never reach. Where other parameters of the same module learn, one whose gradient is zero is
    not frozen: the result does not depend on it."""

    STEPS = 5

    def __init__(self, session):
        super().__init__(session)
        self._names = _Names()
        self._optimizers = {}

    def module_begins(self, module, inputs, depth, site):
        self._names.learn(module, depth)

    def optimizer_begins(self, optimizer, site):
        seen = self._optimizers.setdefault(id(optimizer), {"params": {}})
        seen["site"] = site
        still, learning = [], set()
        for number, (p, group) in enumerate(_params(optimizer)):
            if p.grad is None or not p.requires_grad or p.grad.device.type != "cpu" or p.grad.is_sparse:
                continue
            if _is_zero(p.grad):
                still.append((number, p, group))
            else:
                learning.add(self._names.owner(p))
        learning.discard(None)
        now = {}
        for number, p, group in still:
            decay = group.get("weight_decay") or 0
            if decay > 0 and self._names.owner(p) not in learning and not _is_zero(p.detach()):
                before = seen["params"].get(id(p))
                now[id(p)] = (self._names.of(p, number), decay, (before[2] if before else 0) + 1)
        seen["params"] = now

    def report(self, findings):
        for seen in self._optimizers.values():
            shrunk = sorted(p for p in seen["params"].values() if p[2] >= self.STEPS)
            if shrunk and seen["site"]:
                findings.append(Finding(
                    "D009", seen["site"], "gradients of {} were exactly zero in the last {} steps, yet weight decay of {:g} shrinks {} in each.".format(
                        listed([p[0] for p in shrunk]), max(p[2] for p in shrunk), max(p[1] for p in shrunk), "it" if len(shrunk) == 1 else "them"),
                    count=max(p[2] for p in shrunk), figures={"parameters": len(shrunk)}))


def _is_zero(t):
    flat = t.reshape(-1) if t.is_contiguous() else t
    if flat.dim() == 1 and flat.numel() > 8 and bool((flat[:8] != 0).any()):
        return False
    return not bool((t != 0).any())


class UnusedParameters(Rule):
    """D010"""

    STEPS = 3

    def __init__(self, session):
        super().__init__(session)
        self._names = _Names()
        self._optimizers = {}

    def module_begins(self, module, inputs, depth, site):
        self._names.learn(module, depth)

    def optimizer_begins(self, optimizer, site):
        params = _params(optimizer)
        seen = self._optimizers.get(id(optimizer))
        if seen is None or len(seen["reached"]) != len(params):
            seen = self._optimizers[id(optimizer)] = {"steps": 0, "reached": [False] * len(params), "trained": [False] * len(params), "names": []}
        seen["site"] = site
        seen["steps"] += 1
        for i, (p, _) in enumerate(params):
            if not seen["reached"][i]:
                seen["trained"][i] = p.requires_grad
                seen["reached"][i] = p.grad is not None
        if seen["steps"] == self.STEPS:
            seen["names"] = [self._names.of(p, i) for i, (p, _) in enumerate(params)]

    def report(self, findings):
        for seen in self._optimizers.values():
            if seen["steps"] < self.STEPS or not any(seen["reached"]) or seen["site"] is None:
                continue
            unused = [name for name, reached, trained in zip(seen["names"], seen["reached"], seen["trained"]) if trained and not reached]
            if unused:
                findings.append(Finding("D010", seen["site"], "{} of {} parameters got no gradient in {} steps: {}.".format(
                    len(unused), len(seen["reached"]), seen["steps"], listed(unused)), count=len(unused), figures={"parameters": len(unused)}))


RULES = [TrainModeInEvaluation, MovingStatistics, FrozenWeightsDecayed, UnusedParameters]
