"""D023, D024, D025: what the timed steps show: printing in every step, gradients filled with zeros, an optimizer that goes parameter by
parameter."""

from ..findings import Finding
from .base import Rule


class SlowOutput(Rule):
    """D023"""

    SHARE, LEAST_SECONDS = 0.05, 0.02

    def report(self, findings):
        for loop in self._session.loops.values():
            wall = sum(s["wall_s"] for s in loop.segments)
            steps = sum(s["steps"] for s in loop.segments)
            spent = {}
            for segment in loop.segments:
                for line in segment["lines"]:
                    if line["io_s"]:
                        spent[line["file"], line["line"]] = spent.get((line["file"], line["line"]), 0) + line["io_s"]
            for site, seconds in spent.items():
                share = seconds / wall
                if share < self.SHARE or seconds < self.LEAST_SECONDS:
                    continue
                findings.append(Finding("D023", site, "printing, logging or writing here takes {:.0f} % of the time of {} steps: {:.2f} ms in each.".format(
                    100 * share, steps, 1e3 * seconds / steps), count=steps, figures={"percent": 100 * share, "ms_per_step": 1e3 * seconds / steps},
                    gain=(1 / (1 - 0.6 * share), 1 / (1 - min(0.95, 1.1 * share)), "high", "the loop")))


class FilledGradients(Rule):
    """D024"""

    def __init__(self, session):
        super().__init__(session)
        self._lines = {}

    def zero_grad(self, args, kwargs, site):
        to_none = args[1] if len(args) > 1 else kwargs.get("set_to_none", True)
        if site is None or to_none:
            return
        line = self._lines.setdefault(site, {"count": 0, "bytes": 0})
        line["count"] += 1
        line["bytes"] = max(line["bytes"], sum(p.grad.numel() * p.grad.element_size() for g in args[0].param_groups for p in g["params"]
                                               if p.grad is not None))

    def report(self, findings):
        for site, line in self._lines.items():
            if line["count"] < 3 or not line["bytes"]:
                continue
            share = self._session.share_of_region("optimizer", site)
            findings.append(Finding("D024", site, "zero_grad(set_to_none=False) fills {:.2f} MB of gradients with zeros in each step, and backward adds to "
                                    "them.".format(line["bytes"] / 1e6), count=line["count"], figures={"mb_per_step": line["bytes"] / 1e6},
                                    gain=(1.0, 1 / (1 - min(0.9, share + 0.05)), "medium" if share else "low", "the loop")))


class ParameterByParameter(Rule):
    """D025"""

    SHARE, PARAMETERS = 0.1, 8
    FUSED = ("Adam", "AdamW", "SGD", "Adagrad")

    def __init__(self, session):
        super().__init__(session)
        self._optimizers = {}
        self._made_at = {}

    def optimizer_made(self, optimizer, site):
        self._made_at[id(optimizer)] = site

    def optimizer_begins(self, optimizer, site):
        group = optimizer.param_groups[0]
        count = sum(len(g["params"]) for g in optimizer.param_groups)
        slow = not group.get("fused") and not group.get("foreach") and "foreach" in group
        on_cpu = all(p.device.type == "cpu" for g in optimizer.param_groups for p in g["params"])
        if site is not None and slow and on_cpu and count >= self.PARAMETERS and type(optimizer).__name__ in self.FUSED and self._can_fuse():
            self._optimizers[site] = (type(optimizer).__name__, count, self._made_at.get(id(optimizer)))

    def _can_fuse(self):
        version = self._torch.__version__.split(".")
        return (int(version[0]), int(version[1])) >= (2, 4)

    def report(self, findings):
        for site, (name, count, made_at) in self._optimizers.items():
            share = self._session.share_of_region("optimizer", site)
            if share < self.SHARE:
                continue
            findings.append(Finding("D025", site, "{} updates {} parameters one by one, in {:.0f} % of the time; fused=True does it in one pass.".format(
                name, count, 100 * share), count=count, figures={"percent": 100 * share, "parameters": count},
                gain=(1 / (1 - 0.15 * share), 1 / (1 - 0.85 * share), "medium", "the loop"), cure_at=made_at))


RULES = [SlowOutput, FilledGradients, ParameterByParameter]
