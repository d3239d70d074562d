"""D001, D002, D004, D006, D007, D021, D022: gradients that are on where they are not needed, off where they are, or wrong."""

import bisect
import weakref

from ..findings import Finding, megabytes
from .base import Lines, Rule, name_of, number_of, numbers_below, tensors_in

MOST_PENDING = 4096


class BackwardInNoGrad(Rule):
    """D001"""

    def __init__(self, session):
        super().__init__(session)
        self._lines = Lines()
        self._made_off = {}  # id of a tensor -> (weak reference, where it was made)
        self._off_at = None

    def grad_off(self, site):
        self._off_at = site

    def op_ran(self, func, args, kwargs, out, site):
        if self._torch.is_grad_enabled() or self._session.in_optimizer or self._session.in_backward or site is None:
            return
        for t in tensors_in([out], self._torch.Tensor):
            if t.is_floating_point():
                if len(self._made_off) > MOST_PENDING:
                    self._made_off.clear()
                self._made_off[id(t)] = (weakref.ref(t), self._off_at)

    def backward_begins(self, roots, site):
        for root in roots:
            if not root.requires_grad:
                known = self._made_off.get(id(root))
                off_at = self._off_at if not self._torch.is_grad_enabled() else known[1] if known and known[0]() is root else None
                if off_at is not None:
                    self._lines.add(site, "backward() finds no graph: its tensor was computed with gradients off, turned off at {}."
                                    .format(self._text(off_at)), severity="error")
            elif not self._torch.is_grad_enabled():
                self._lines.add(site, "backward() is called with gradients off, turned off at {}: it works, but nothing computed in there "
                                "reaches the next one.".format(self._text(self._off_at)), severity="note")

    def report(self, findings):
        for site, found in self._lines.items():
            findings.append(Finding("D001", site, found["message"], severity=found["severity"], count=found["count"]))


class RequiresGradInNoGrad(Rule):
    """D002"""

    def __init__(self, session):
        super().__init__(session)
        self._asked = {}  # id -> [weak reference, site, off at, unrecorded ops]
        self._off_at = None

    def grad_off(self, site):
        self._off_at = site

    def requires_grad_set(self, tensor, on, site):
        self._asked.pop(id(tensor), None)
        torch = self._torch
        if not on or torch.is_grad_enabled() or tensor.requires_grad or site is None or isinstance(tensor, torch.nn.Parameter):
            return
        self._asked[id(tensor)] = [weakref.ref(tensor), site, self._off_at, 0]

    def op_ran(self, func, args, kwargs, out, site):
        if not self._asked:
            return
        for t in tensors_in(args, self._torch.Tensor):
            asked = self._asked.get(id(t))
            if asked is None or asked[0]() is not t:
                continue
            if self._torch.is_grad_enabled():
                del self._asked[id(t)]
            elif name_of(func) not in ("detach", "alias"):
                asked[3] += 1

    def report(self, findings):
        for _, site, off_at, unrecorded in self._asked.values():
            if unrecorded:
                findings.append(Finding("D002", site, "requires_grad_() is called with gradients off, turned off at {}, and {} op{} used the "
                                        "tensor there: none was recorded.".format(self._text(off_at), unrecorded, "" if unrecorded == 1 else "s")))


class UnusedGraph(Rule):
    """D004: outermost calls of modules whose graphs no backward pass runs."""

    GIVE_UP = 4  # steps after the last look

    def __init__(self, session):
        super().__init__(session)
        self._pending = []  # [first number, last number, line, number of the call at that line], in order
        self._lines = {}
        self._any_backward = False
        self._open = None
        self._closed_steps = 0

    @property
    def waiting(self):
        return bool(self._pending)

    def module_begins(self, module, inputs, depth, site):
        if depth != 1 or site is None or not self._torch.is_grad_enabled() or self._session.in_backward:
            return
        self._open = [self._session.seq(), 0, site, 0]
        self._bytes = 0
        self._name = type(module).__name__
        self._continues = any(self._find(t.grad_fn) for t in tensors_in(inputs, self._torch.Tensor) if t.grad_fn is not None)

    def op_ran(self, func, args, kwargs, out, site):
        if self._open is not None and self._torch.is_grad_enabled():
            recorded = any(t.requires_grad for t in tensors_in(args, self._torch.Tensor))
            if recorded:
                self._bytes += sum(t.numel() * t.element_size() for t in tensors_in([out], self._torch.Tensor))

    def module_ends(self, module, output, depth, site):
        if depth != 1 or self._open is None:
            return
        call, self._open = self._open, None
        call[1] = self._session.seq() - 1
        if call[1] < call[0] or self._continues:
            return
        line = self._lines.setdefault(site, {"calls": 0, "unused": 0, "bytes": 0, "last": -2, "streak": 0, "longest": 0, "module": self._name})
        call[3] = line["calls"]
        line["calls"] += 1
        line["bytes"] = max(line["bytes"], self._bytes)
        if len(self._pending) < MOST_PENDING:
            self._pending.append(call)

    def _find(self, node):
        number = number_of(node)
        if number is None:
            return None
        at = bisect.bisect_right(self._pending, [number, float("inf")]) - 1
        return self._pending[at] if at >= 0 and self._pending[at][0] <= number <= self._pending[at][1] else None

    def backward_begins(self, roots, site):
        self._any_backward = True
        if not self._pending:
            return
        numbers = sorted(numbers_below([r.grad_fn for r in roots if r.grad_fn is not None]))
        self._pending = [c for c in self._pending if not _any_between(numbers, c[0], c[1])]

    def step_ended(self, number):
        if self._session.looking or not self._pending:
            self._closed_steps = 0
            return
        self._closed_steps += 1
        if self._closed_steps > self.GIVE_UP:
            self._count_pending()

    def script_ends(self, error):
        if error is not None:  # the last call's backward may be what failed
            self._pending = self._pending[:-1]
        self._count_pending()

    def _count_pending(self):
        for _, _, site, number in self._pending:
            line = self._lines[site]
            line["unused"] += 1
            line["streak"] = line["streak"] + 1 if number == line["last"] + 1 else 1
            line["last"] = number
            line["longest"] = max(line["longest"], line["streak"])
        self._pending = []

    def report(self, findings):
        for site, line in self._lines.items():
            if line["longest"] < (2 if self._any_backward else 1):
                continue
            count = line["calls"]
            findings.append(Finding(
                "D004", site, "{} records a graph here that is never run backward: {} of {} call{}, each with about {} kept for it.".format(
                    line["module"], line["unused"], count, "" if count == 1 else "s", megabytes(line["bytes"])),
                count=line["unused"], figures={"mb_per_call": line["bytes"] / 1e6, "calls": count},
                gain=(1.0, 1.35, "medium", "these calls")))


def _any_between(numbers, first, last):
    at = bisect.bisect_left(numbers, first)
    return at < len(numbers) and numbers[at] <= last


class OutsideNoGrad(Rule):
    """D006: after a forward pass without gradients, an op on its results that records all the same."""

    def __init__(self, session):
        super().__init__(session)
        self._results = set()  # storages
        self._forward = None
        self._lines = {}
        self._joined = {}

    def module_begins(self, module, inputs, depth, site):
        if depth == 1:
            if self._torch.is_grad_enabled() or self._session.in_backward:
                if any(p.requires_grad for p in module.parameters()):
                    self._forward = None
            else:
                self._forward = site
                self._results = set()

    def optimizer_begins(self, optimizer, site):
        self._forward = None

    def op_ran(self, func, args, kwargs, out, site):
        if self._forward is None or self._session.in_backward:
            return
        torch = self._torch
        if not torch.is_grad_enabled():
            self._results.update(_storage(t) for t in tensors_in([out], torch.Tensor))
            return
        inputs = list(tensors_in(args, torch.Tensor))
        if not any(_storage(t) in self._results and not t.requires_grad for t in inputs):
            return
        if any(t.requires_grad for t in inputs):
            line = self._lines.setdefault(site, {"op": name_of(func), "count": 0, "forward": self._forward, "ran": False})
            line["count"] += 1
            if len(self._joined) < MOST_PENDING:
                self._joined[self._session.seq() - 1] = site
        else:
            self._results.update(_storage(t) for t in tensors_in([out], torch.Tensor))

    def backward_begins(self, roots, site):
        self._forward = None
        if self._joined:
            for number in numbers_below([r.grad_fn for r in roots if r.grad_fn is not None]).intersection(self._joined):
                self._lines[self._joined.pop(number)]["ran"] = True

    def report(self, findings):
        for site, line in self._lines.items():
            if not line["ran"] and line["count"] >= 2 and site is not None:
                findings.append(Finding("D006", site, "{} at this line uses results of the forward pass without gradients at {}, but is outside "
                                        "of the block: it records a graph that is never run backward.".format(line["op"], self._text(line["forward"])),
                                        count=line["count"], gain=(1.0, 1.05, "low", "the evaluation")))


def _storage(t):
    try:
        return t.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return id(t)


class InferenceTensorInTraining(Rule):
    """D007: torch refuses it; the line is that of the error."""

    def __init__(self, session):
        super().__init__(session)
        self._found = None

    def script_ends(self, error):
        text = str(error or "")
        if not isinstance(error, RuntimeError) or not ("nference tensor" in text or "InferenceMode" in text):
            return
        site, traceback = None, error.__traceback__
        while traceback is not None:
            if self._session.places.is_users(traceback.tb_frame.f_code.co_filename):
                site = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
            traceback = traceback.tb_next
        self._found = (site, text.split("\n")[0].split(". ")[0])

    def report(self, findings):
        if self._found:
            findings.append(Finding("D007", self._found[0], "torch refuses it: {}.".format(self._found[1].rstrip("."))))


class NotFinite(Rule):
    """D021: the first op whose result holds NaN or infinity while its inputs do not; later on, the loss."""

    MOST_ELEMENTS = 1 << 22
    MASKS = ("full", "full_like", "fill_", "masked_fill", "masked_fill_", "scalar_tensor", "_to_copy", "copy_", "where", "empty", "empty_like",
             "empty_strided", "new_empty", "new_full", "triu", "tril", "lift_fresh", "detach", "clone", "new_empty_strided", "expand")

    def __init__(self, session):
        super().__init__(session)
        self._found = None
        self._loss = None

    def op_ran(self, func, args, kwargs, out, site):
        if self._found or site is None or name_of(func) in self.MASKS or self._session.in_optimizer:
            return
        torch = self._torch
        for t in tensors_in([out], torch.Tensor):
            if not _checked(t, self.MOST_ELEMENTS) or bool(torch.isfinite(t).all()):
                continue
            inputs = [i for i in tensors_in(args, torch.Tensor) if i is not t and _checked(i, self.MOST_ELEMENTS)]
            if not inputs or all(bool(torch.isfinite(i).all()) for i in inputs):
                kind = "NaN" if bool(torch.isnan(t).any()) else "infinity"
                if kind == "NaN" or not func._schema.is_mutable:
                    self._candidate(kind, name_of(func), site)
            return

    def _candidate(self, kind, op, site):
        if kind == "NaN":
            self._found = (site, "{} made {} of finite numbers here, in step {}.".format(op, kind, self._session.steps.number + 1))
        elif self._loss is None:
            self._loss = (site, "{} made {} of finite numbers here, in step {}, and the loss is not finite.".format(
                op, kind, self._session.steps.number + 1), False)

    def backward_begins(self, roots, site):
        if self._found or self._session.in_backward:
            return
        torch = self._torch
        for root in roots:
            if root.numel() == 1 and root.device.type == "cpu" and root.is_floating_point() and not bool(torch.isfinite(root.detach())):
                if self._loss is not None and not self._loss[2]:
                    self._found = self._loss[:2]
                else:
                    self._found = (site, "the loss that backward() starts from here was not finite in step {}.".format(
                        self._session.steps.number + 1))

    def report(self, findings):
        if self._found:
            findings.append(Finding("D021", *self._found))


def _checked(t, most):
    return t.device.type == "cpu" and t.is_floating_point() and 0 < t.numel() <= most and t.layout.__str__() == "torch.strided"


class GradsNeverCleared(Rule):
    """D022: the gradients a step uses are those of the step before, and more was added to them."""

    STREAK = 3

    def __init__(self, session):
        super().__init__(session)
        self._optimizers = {}

    def zero_grad(self, args, kwargs, site):
        self._cleared()

    def op_ran(self, func, args, kwargs, out, site):
        if self._optimizers and not self._session.in_optimizer and name_of(func) in ("zero_", "fill_", "_foreach_zero_"):
            self._cleared()

    def _cleared(self):
        for seen in self._optimizers.values():
            seen["grads"] = {}

    def optimizer_begins(self, optimizer, site):
        seen = self._optimizers.setdefault(id(optimizer), {"grads": {}, "steps": 0, "dirty": 0, "streak": 0, "longest": 0})
        now = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None and len(now) < 4:
                    now[id(p)] = (p.grad, p.grad._version)
        grown = any(p in seen["grads"] and seen["grads"][p][0] is g and version > seen["grads"][p][1] for p, (g, version) in now.items())
        seen.update(grads=now, site=site, steps=seen["steps"] + 1, dirty=seen["dirty"] + grown, streak=seen["streak"] + 1 if grown else 0)
        seen["longest"] = max(seen["longest"], seen["streak"])

    def looked(self):
        self._cleared()  # holds no gradients of the script's

    def report(self, findings):
        for seen in self._optimizers.values():
            if seen["longest"] >= self.STREAK:
                findings.append(Finding("D022", seen["site"], "{} of {} steps used gradients to which those of earlier steps had been added: nothing "
                                        "cleared them in between.".format(seen["dirty"], seen["steps"]), count=seen["dirty"]))


RULES = [BackwardInNoGrad, RequiresGradInNoGrad, UnusedGraph, OutsideNoGrad, InferenceTensorInTraining, NotFinite, GradsNeverCleared]
