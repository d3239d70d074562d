"""D014, D015, D016, D017, D019, D026: work done in every step that need not be."""

import os
import sys

from ..findings import Finding
from .base import Rule, name_of, tensors_in

VIEWS = ("view", "_unsafe_view", "as_strided", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "detach", "alias",
         "unbind", "split", "split_with_sizes", "chunk", "narrow", "reshape", "_reshape_alias", "diagonal", "lift_fresh", "numpy_T", "unfold")
TINY = 1024  # elements of inputs and results together


class TinyTensors(Rule):
    """D014"""

    OPS_PER_STEP, OPS_PER_LINE, OPS_WITHOUT_STEPS = 200, 32, 1000
    STEPS, LINES_APART = 4, 4
    ROW_CALLS, ROW_ELEMENTS = 32, 1 << 16

    def __init__(self, session):
        super().__init__(session)
        self._lines = {}
        self._depth = 0
        self._rows = {}
        self._call = None

    def module_begins(self, module, inputs, depth, site):
        self._depth = depth
        if depth == 1:
            self._call = [site, 0, 0]

    def module_ends(self, module, output, depth, site):
        self._depth = depth - 1

    def op_ran(self, func, args, kwargs, out, site):
        if site is None or self._session.in_optimizer or self._session.in_backward or self._session.in_data:
            return
        name = name_of(func)
        if name in VIEWS or self._in_library_layer():
            return
        elements = 0
        for t in tensors_in(args, self._torch.Tensor):
            elements += t.numel()
        for t in tensors_in([out], self._torch.Tensor):
            elements += t.numel()
        if elements > TINY or elements == 0:
            return
        line = self._lines.setdefault(site, {"steps": {}, "elements": 0, "ops": 0})
        step = self._session.steps.number
        line["steps"][step] = line["steps"].get(step, 0) + 1
        line["elements"] += elements
        line["ops"] += 1

    def _in_library_layer(self):
        return False

    def report(self, findings):
        stepped = self._session.steps.number > 0
        loop = None
        for site in sorted(self._lines):
            line = self._lines[site]
            per_step = line["ops"] / len(line["steps"])
            if per_step < self.OPS_PER_LINE or (stepped and _longest_run(line["steps"]) < self.STEPS):
                continue
            if loop is None or loop["busiest"][0] != site[0] or site[1] - loop["last"] > self.LINES_APART:
                self._report_loop(loop, stepped, findings)
                loop = {"busiest": site, "most": 0, "per_step": 0, "ops": 0, "elements": 0}
            loop["per_step"] += per_step
            loop["ops"] += line["ops"]
            loop["elements"] += line["elements"]
            loop["last"] = site[1]
            if per_step > loop["most"]:
                loop["most"], loop["busiest"] = per_step, site
        self._report_loop(loop, stepped, findings)

    def _report_loop(self, loop, stepped, findings):
        if loop is None or loop["per_step"] < (self.OPS_PER_STEP if stepped else self.OPS_WITHOUT_STEPS):
            return
        mean = loop["elements"] / loop["ops"]
        share = self._session.share_of_line(loop["busiest"])
        gain = (1 + 0.3 * share, 1 / max(0.05, 1 - share), "medium", "the loop") if share else (1.05, 3.0, "low", "the loop")
        findings.append(Finding("D014", loop["busiest"], "{:.0f} ops {} around this line work on {:.0f} elements each on average: calling them takes "
                                "longer than their work.".format(loop["per_step"], "in each step" if stepped else "in a loop", mean), count=loop["ops"],
                                figures={"ops_per_step": round(loop["per_step"], 1), "mean_elements": round(mean, 1)}, gain=gain))


def _longest_run(steps):
    """Of steps in a row."""
    longest = run = 0
    last = None
    for step in sorted(steps):
        run = run + 1 if last is not None and step == last + 1 else 1
        longest, last = max(longest, run), step
    return longest


class OneRowAtATime(Rule):
    """D014, too: a model that is called with one row of a data set again and again."""

    CALLS, MEAN_ELEMENTS = 24, 1 << 16

    def __init__(self, session):
        super().__init__(session)
        self._lines = {}
        self._sliced = False
        self._ops = self._elements = 0

    def op_ran(self, func, args, kwargs, out, site):
        if self._open():
            for t in tensors_in([out], self._torch.Tensor):
                self._ops += 1
                self._elements += t.numel()

    _depth = 0

    def _open(self):
        return self._depth > 0

    def module_begins(self, module, inputs, depth, site):
        self._depth = depth
        if depth != 1 or site is None or isinstance(module, self._torch.nn.modules.loss._Loss) or self._session.in_backward:
            return
        self._ops = self._elements = 0
        rows = [t.shape[0] if t.dim() > 0 else 0 for t in tensors_in(inputs, self._torch.Tensor)]
        self._one = bool(rows) and all(r == 1 for r in rows)

    _one = False

    def module_ends(self, module, output, depth, site):
        self._depth = depth - 1
        if depth != 1 or site is None:
            return
        line = self._lines.setdefault(site, {"calls": 0, "ones": 0, "ops": 0, "elements": 0})
        line["calls"] += 1
        line["ones"] += self._one
        line["ops"] += self._ops
        line["elements"] += self._elements
        self._one = False

    def looked(self):
        """Eight steps are looked at: lines with eight calls and more count, as long as all of them are of one row."""

    def report(self, findings):
        for site, line in self._lines.items():
            mean = line["elements"] / max(1, line["ops"])
            if line["calls"] < 8 or line["ones"] != line["calls"] or mean > self.MEAN_ELEMENTS or line["ops"] == 0:
                continue
            if self._session.calls_at(site) < self.CALLS:
                continue
            findings.append(Finding("D014", site, "The model is called with one row again and again, {:.0f} ops for each, which work on {:.0f} elements on "
                                    "average: give it batches of 32 or more rows.".format(line["ops"] / line["calls"], mean), count=line["calls"],
                                    figures={"rows_per_call": 1, "mean_elements": round(mean, 1)}, gain=(1.5, 30.0, "medium", "the loop")))


class LayoutConversions(Rule):
    """D015"""

    IMAGE_BYTES, MATRIX_BYTES, SHARE, STEPS = 64 << 10, 1 << 20, 0.1, 4

    def __init__(self, session):
        super().__init__(session)
        self._lines = {}
        self._all = 0
        self._depth = 0

    def op_ran(self, func, args, kwargs, out, site):
        if site is None or self._session.in_data:
            return
        torch, name = self._torch, name_of(func)
        inputs, outputs = list(tensors_in(args, torch.Tensor)), list(tensors_in([out], torch.Tensor))
        if name in VIEWS or not outputs or self._session.in_optimizer:
            return
        count = sum(t.numel() * t.element_size() for t in inputs + outputs)
        self._all += count
        if self._session.in_backward or name not in ("clone", "copy_", "_to_copy") or not inputs:
            return
        source = inputs[-1]
        if not _changes_layout(source, outputs[0]):
            return
        line = self._lines.setdefault(site, {"steps": {}, "bytes": 0, "images": source.dim() >= 4})
        step = self._session.steps.number
        line["steps"][step] = line["steps"].get(step, 0) + 1
        line["bytes"] += count

    def report(self, findings):
        for site, line in self._lines.items():
            per_step = line["bytes"] / len(line["steps"]) / 2
            share = line["bytes"] / max(1, self._all)
            least = self.IMAGE_BYTES if line["images"] else self.MATRIX_BYTES
            if _longest_run(line["steps"]) < self.STEPS or per_step < least or share < self.SHARE:
                continue
            time = self._session.share_of_line(site)
            findings.append(Finding("D015", site, "{:.2f} MB are brought into another order in memory here in each of {} steps, {:.0f} % of all bytes that ops "
                                    "read and write.".format(per_step / 1e6, len(line["steps"]), 100 * share), count=sum(line["steps"].values()),
                                    figures={"mb_per_step": per_step / 1e6, "percent_of_bytes": 100 * share},
                                    gain=(1.0, 1 / (1 - min(0.8, max(time, share / 2))), "low", "the loop")))


def _changes_layout(source, target):
    """Neighbours in the result are none in the source."""
    if source.shape != target.shape or source.dim() < 2 or source.is_sparse or target.is_sparse:
        return False
    for size, before, after in zip(target.shape, source.stride(), target.stride()):
        if size > 1 and after == 1:
            return before > 1
    return False


class SlowAutocast(Rule):
    """D016: a CPU that computes 16-bit products by converting."""

    OPS = 16
    PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_convolution", "linear", "mkldnn_linear")

    def __init__(self, session):
        super().__init__(session)
        self._ops, self._site, self._type = 0, None, None

    def op_ran(self, func, args, kwargs, out, site):
        torch = self._torch
        if self._session.in_backward or name_of(func) not in self.PRODUCTS or not _cpu_autocast(torch):
            return
        types = [t.dtype for t in tensors_in(args, torch.Tensor) if t.device.type == "cpu"]
        if not types or types[0] not in (torch.bfloat16, torch.float16) or _has_fast(torch, types[0]):
            return
        self._ops += 1
        self._site = self._site or site
        self._type = str(types[0]).replace("torch.", "")

    def report(self, findings):
        if self._ops >= self.OPS and self._site:
            findings.append(Finding("D016", self._site, "autocast computes in {}, for which this CPU has no products faster than f32: {} ops paid for "
                                    "conversions alone.".format(self._type, self._ops), count=self._ops, figures={"ops": self._ops},
                                    gain=(1.0, 3.0, "medium", "the loop")))


def _cpu_autocast(torch):
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled()


_flags = None


def _has_fast(torch, dtype):
    global _flags
    if _flags is None:
        try:
            with open("/proc/cpuinfo") as file:
                _flags = set(next((line.split(":", 1)[1] for line in file if line.startswith(("flags", "Features"))), "").split())
        except OSError:
            _flags = set()
    if not _flags:
        return True  # not known: say nothing
    wanted = ("avx512_bf16", "amx_bf16", "bf16") if dtype == torch.bfloat16 else ("avx512_fp16", "amx_fp16", "asimdhp", "fphp")
    return any(flag in _flags for flag in wanted)


class Recompilations(Rule):
    """D017, D026: what torch.compile counted itself."""

    COMPILED_FRAMES = 8

    def __init__(self, session):
        super().__init__(session)
        self._counts = None

    def script_ends(self, error):
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None or self._session.compiled_at is None:
            return
        counters = utils.counters
        breaks = counters["graph_break"] or counters["unimplemented"]  # the name changes with torch's version
        self._counts = {"graphs": counters["stats"].get("unique_graphs", 0),
                        "breaks": {reason: n for reason, n in breaks.items() if "limit" not in reason.split("\n")[0]}}  # D017 tells of those

    def report(self, findings):
        if not self._counts:
            return
        site, breaks = self._session.compiled_at, self._counts["breaks"]
        if breaks:
            total = sum(breaks.values())
            reason = max(breaks, key=breaks.get).strip().split("\n")[0]
            findings.append(Finding("D026", site, "what is compiled here falls into {} parts, since torch.compile gave up {} time{}; most often because: "
                                    "{}.".format(total + 1, total, "" if total == 1 else "s", reason[:200].rstrip(".")), count=total,
                                    gain=(1.0, 1.3, "low", "the compiled function")))
        if self._counts["graphs"] - sum(breaks.values()) >= self.COMPILED_FRAMES:
            findings.append(Finding("D017", site, "{} graphs were compiled for the function compiled here: its inputs differ from call to call in a way that "
                                    "each needs its own.".format(self._counts["graphs"]), count=self._counts["graphs"],
                                    gain=(1.1, 5.0, "medium", "the loop")))


class OversubscribedThreads(Rule):
    """D019: of torch's pool; of workers of a loader."""

    def __init__(self, session):
        super().__init__(session)
        self._set_at = None
        self._most = 0
        self._loaders = {}

    def threads_set(self, site):
        self._set_at = site

    def step_ended(self, number):
        threads = self._torch.get_num_threads()
        if threads > self._most:
            self._most, self._found_at = threads, self._set_at

    _found_at = None

    def loader_made(self, loader, site):
        workers = getattr(loader, "num_workers", 0)
        if site is not None and workers:
            self._loaders[site] = max(workers, self._loaders.get(site, 0))

    def report(self, findings):
        cpus = cpus_here()
        if self._most > cpus:
            findings.append(Finding("D019", self._found_at, "{} asks for {} threads, but {} CPU{} may be used: they take turns, and each waits for those that do "
                                    "not run.".format("torch.set_num_threads()" if self._found_at else "the environment", self._most, cpus,
                                                      "" if cpus == 1 else "s"),
                                    figures={"threads": self._most, "cpus": cpus}, gain=(1.0, 2.0, "medium", "the script")))
        for site, workers in self._loaders.items():
            if workers > cpus:
                findings.append(Finding("D019", site, "the loader asks for {} workers, but {} CPU{} may be used: they and the training take turns.".format(
                    workers, cpus, "" if cpus == 1 else "s"), figures={"workers": workers, "cpus": cpus}, gain=(1.0, 1.5, "low", "the loop")))


def cpus_here():
    """Processors this process may use: its affinity and its cgroup's quota."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:
        cpus = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()[:2]
        if quota != "max":
            cpus = min(cpus, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return cpus


RULES = [TinyTensors, OneRowAtATime, LayoutConversions, SlowAutocast, Recompilations, OversubscribedThreads]
