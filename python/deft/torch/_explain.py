"""explain(): which operators of a model run on Deft, which in torch, and why."""

import copy
import time

import torch

from ._backend import backend
from ._region import tensors_of


class Explanation:
    """A table of operators: str() for people, to_dict() for programs."""

    def __init__(self, graphs, breaks, times):
        self.graphs = len(graphs)
        self.breaks = breaks  # reason -> how often: torch's graph breaks
        rows = {}
        for graph in graphs:
            for node, reason in graph.operators():
                key = (graph.kind, str(node.target), "torch" if reason else "deft", reason or "")
                rows[key] = rows.get(key, 0) + 1
        self.rows = [dict(zip(("graph", "operator", "where", "why"), key), count=n) for key, n in rows.items()]
        self.rows.sort(key=lambda r: (r["where"] == "deft", r["graph"], -r["count"]))
        total = sum(r["count"] for r in self.rows)
        self.share = sum(r["count"] for r in self.rows if r["where"] == "deft") / total if total else 1.0
        whole, deft = times
        self.time_share = deft / whole if whole else 1.0

    def to_dict(self):
        return {"graphs": self.graphs, "breaks": self.breaks, "share": self.share, "time_share": self.time_share,
                "rows": self.rows}

    def __str__(self):
        lines = [f"{self.graphs} graphs, {100 * self.share:.0f} % of the operators and {100 * self.time_share:.0f} % of the "
                 f"graphs' time on Deft"]
        lines += [f"graph break ({n}): {why}" for why, n in self.breaks.items()]
        width = max([len(r["operator"]) for r in self.rows] + [8])
        lines.append(f"{'operator':{width}}  {'graph':9}  {'count':>5}  where  why")
        for r in self.rows:
            lines.append(f"{r['operator']:{width}}  {r['graph']:9}  {r['count']:5}  {r['where']:5}  {r['why']}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


class _Clock:
    """Stands for something that is called and counts the time spent in it."""

    def __init__(self, function):
        self.function, self.seconds = function, 0.0

    def __call__(self, *args):
        start = time.perf_counter()
        try:
            return self.function(*args)
        finally:
            self.seconds += time.perf_counter() - start

    def __getattr__(self, name):
        return getattr(self.function, name)


def _run(compiled, model, args, kwargs):
    """A forward pass, and the backward pass where there is one, without touching .grad."""
    wanted = [p for p in getattr(model, "parameters", list)() if p.requires_grad]
    wanted += [t for t in tensors_of(list(args) + list(kwargs.values())) if t.requires_grad]
    found = compiled(*args, **kwargs)
    values = found.values() if isinstance(found, dict) else [found]
    results = [t for t in tensors_of(list(values)) if t.requires_grad]
    if results and wanted and torch.is_grad_enabled():
        torch.autograd.grad(results, wanted, [torch.ones_like(t) for t in results], allow_unused=True)


def explain(model, *args, **kwargs):
    """Compiles a copy of `model`, runs it on these inputs (with its backward pass where gradients are on), and says what
    runs where."""
    graphs = []

    def recording(gm, example_inputs, **options):
        return backend(gm, example_inputs, record=graphs, **options)

    torch._dynamo.reset()
    if isinstance(model, torch.nn.Module):
        model = copy.deepcopy(model)
    counters = torch._dynamo.utils.counters["graph_break"]
    before = dict(counters)
    compiled = torch.compile(model, backend=recording)
    _run(compiled, model, args, kwargs)
    clocks = [g.add_clock(_Clock) for g in graphs]
    _run(compiled, model, args, kwargs)
    times = [sum(whole.seconds for whole, _ in clocks), sum(r.seconds for _, parts in clocks for r in parts)]
    breaks = {str(why).splitlines()[0]: n - before.get(why, 0) for why, n in counters.items() if n > before.get(why, 0)}
    return Explanation(graphs, breaks, times)
