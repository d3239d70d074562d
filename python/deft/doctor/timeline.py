"""Turns what a window saw into exclusive buckets that sum to its wall time, and into tables by line, op and module."""

import collections

from .calls import io_call
from .kinds import kind_of

BUCKETS = ("data wait", "copies", "linear algebra", "other kernels", "autograd", "backward", "optimizer", "sync", "allocation", "Python",
           "logging and I/O")
ENGINE = "autograd::engine::evaluate_function"


class Interval:
    __slots__ = ("begin", "end", "kind", "label", "children", "sequence")

    def __init__(self, begin, end, kind, label, sequence=-1):
        self.begin, self.end, self.kind, self.label, self.sequence = begin, end, kind, label, sequence
        self.children = 0


def _intervals(window, events):
    """Ops and regions, outer ones before those they contain."""
    found = [Interval(b, e, "op", name, s) for name, b, e, s in events]
    found += [Interval(b, e, kind, label) for b, e, kind, label in window.regions if e <= window.last_end]
    return sorted(found, key=lambda i: (i.begin, -i.end, i.kind == "op"))


class _Sums:
    def __init__(self):
        self.buckets = dict.fromkeys(BUCKETS, 0)
        self.ops = {}
        self.modules = {}
        self.sites = collections.defaultdict(lambda: collections.defaultdict(int))
        self.module_of = {}  # sequence number of a recorded op -> module


class _Walk:
    """Goes through the intervals in order and gives each nanosecond to one bucket: that of the innermost interval."""

    def __init__(self, sums):
        self.sums = sums
        self.stack = []

    def add(self, interval):
        while self.stack and self.stack[-1].end <= interval.begin:
            self.pop()
        if self.stack:
            outer = self.stack[-1]
            interval.end = min(interval.end, outer.end)  # clocks differ by a microsecond
            outer.children += interval.end - interval.begin
        self.stack.append(interval)

    def pop(self):
        interval = self.stack.pop()
        own = max(0, interval.end - interval.begin - interval.children)
        bucket = self._bucket(interval)
        self.sums.buckets[bucket] += own
        self._note(interval, own, bucket)

    def _region(self):
        return next((i for i in reversed(self.stack) if i.kind in ("data", "optimizer", "backward")), None)

    def _bucket(self, interval):
        region = interval if interval.kind in ("data", "optimizer", "backward") else self._region()
        if region is not None and region.kind == "data":
            return "data wait"
        if region is not None and region.kind == "optimizer":
            return "optimizer"
        if region is not None and region.kind == "backward":
            if interval.kind == "op" and not interval.label.startswith(ENGINE):
                return "backward"
            return "autograd"
        return "Python" if interval.kind == "module" else kind_of(interval.label)

    def _note(self, interval, own, bucket):
        sums = self.sums
        if interval.kind == "module":
            row = sums.modules.setdefault(interval.label, [0, 0, 0, 0])
            row[0] += 1
            row[1] += interval.end - interval.begin
            row[2] += own
            return
        if interval.kind != "op":
            region = sums.sites[interval.kind]
            region[interval.label] += interval.end - interval.begin
            return
        backward = any(i.kind == "backward" for i in self.stack)
        row = sums.ops.setdefault((interval.label, bucket, backward), [0, 0])
        row[0] += 1
        row[1] += own
        if backward and interval.label.startswith(ENGINE):
            module = sums.module_of.get(interval.sequence)
            if module is not None:
                sums.modules[module][3] += interval.end - interval.begin
            return
        inner = next((i for i in reversed(self.stack) if i.kind == "module"), None)
        if inner is not None:
            if interval.sequence >= 0 and not backward:
                sums.module_of[interval.sequence] = inner.label
                sums.modules.setdefault(inner.label, [0, 0, 0, 0])
            for outer in reversed(self.stack):
                if outer is inner:
                    sums.modules.setdefault(inner.label, [0, 0, 0, 0])[2] += own
                    break


def analysed(window, events, offset, sampler):
    sums = _Sums()
    walk = _Walk(sums)
    wall = window.last_end - window.began
    root = Interval(window.began, window.last_end, "module", ("", ""))
    walk.add(root)
    for interval in _intervals(window, events):
        walk.add(interval)
    while walk.stack:
        walk.pop()
    sums.modules.pop(("", ""), None)
    places = window.session.places
    lines, written = _lines(sampler.weighed(window.began, window.last_end), places)
    _split_python(sums.buckets, written * 1e9)
    return {
        "steps": window.steps, "wall_s": wall / 1e9, "buckets": {k: v / 1e9 for k, v in sums.buckets.items()},
        "step_s": _step_times(window), "cpu_s": window.cpu_ended - window.cpu_began,
        "ops": [{"name": n, "bucket": b, "pass": "backward" if back else "forward", "calls": c, "s": t / 1e9}
                for (n, b, back), (c, t) in sums.ops.items()],
        "modules": [{"name": p, "type": k, "calls": c, "s": t / 1e9, "self_s": s / 1e9, "backward_s": back / 1e9}
                    for (p, k), (c, t, s, back) in sums.modules.items()],
        "lines": lines, "sampled": len(sampler.samples), "overhead_s": sampler.seconds, "profiled": bool(events),
        "regions": [{"kind": kind, "site": site, "s": t / 1e9} for kind, of in sums.sites.items() for site, t in of.items()],
    }


def _step_times(window):
    ends = [window.began, *window.step_ends]
    return [(b - a) / 1e9 for a, b in zip(ends, ends[1:])]


def _lines(samples, places):
    """Seconds by the user's innermost line, and what went into printing, logging and files."""
    by_line, io_by_line, written = collections.Counter(), collections.Counter(), 0.0
    for seconds, stack in samples:
        users = next(((code, instruction, line) for code, instruction, line in stack if places.is_users(code.co_filename)), None)
        if users is None:
            continue
        site = (users[0].co_filename, users[2])
        by_line[site] += seconds
        if io_call(stack, users):
            io_by_line[site] += seconds
            written += seconds
    lines = [{"file": f, "line": n, "s": s, "io_s": io_by_line.get((f, n), 0.0)} for (f, n), s in by_line.items()]
    return lines, written


def _split_python(buckets, written):
    """Samples in calls that write or read tell what part of the time outside of ops is not the interpreter's."""
    part = min(buckets["Python"], written)
    buckets["Python"] -= part
    buckets["logging and I/O"] += part
