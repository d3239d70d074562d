"""Some steps of a loop, timed: torch's profiler for the ops, regions told by hooks, and a sampler for lines."""

import os
import threading
import time

from .sampler import Sampler
from .timeline import analysed

MARK = "deft doctor: now "
MARKS = 6
MOST_SECONDS = 10
QUIET = "KINETO_LOG_LEVEL"


def _mark(profiler, number):
    """An event, and when it was by perf_counter: between these two."""
    before = time.perf_counter_ns()
    with profiler.record_function(MARK + str(number)):
        pass
    return before, time.perf_counter_ns()


class Window:
    def __init__(self, session, loop):
        self.session, self.loop = session, loop
        self.steps = 0
        self.regions = []  # (begin, end, kind, label), in ns of perf_counter
        self._open = []
        self._sampler = Sampler(threading.get_ident())
        self._paths = {}
        self._roots = {}
        self._profiler = None
        self.step_ends = []

    def start(self):
        self._start_profiler()
        self._sampler.start()
        self.began = self.last_end = time.perf_counter_ns()
        self.cpu_began = time.process_time()

    def _start_profiler(self):
        from torch.autograd import profiler

        if getattr(profiler, "_is_profiler_enabled", False):
            return  # the script's own
        known = os.environ.get(QUIET)
        os.environ[QUIET] = "99"
        try:
            self._profiler = profiler.profile(use_kineto=True)
            self._profiler.__enter__()
            self._marks = [_mark(profiler, number) for number in range(MARKS)]
        except (RuntimeError, AssertionError):
            self._profiler = None
        finally:
            if known is None:
                os.environ.pop(QUIET, None)
            else:
                os.environ[QUIET] = known

    def step_ended(self):
        self.steps += 1
        self.last_end = time.perf_counter_ns()
        self.step_ends.append(self.last_end)
        self.cpu_ended = time.process_time()

    def is_long(self):
        return time.perf_counter_ns() - self.began > MOST_SECONDS * 1e9

    def stop(self):
        """What the whole steps took, or None where there was none."""
        self._sampler.stop()
        events, offset = [], 0
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            events, offset = self._events()
        if self.steps == 0:
            return None
        if not self.step_ends:
            return None
        return analysed(self, events, offset, self._sampler)

    def _events(self):
        """((name, begin, end, sequence number) of the script's thread, on the clock of perf_counter."""
        raw = self._profiler.kineto_results.events()
        marks = {e.name(): e for e in raw if e.name().startswith(MARK)}
        if len(marks) < MARKS:
            return [], 0
        number = min(range(MARKS), key=lambda i: self._marks[i][1] - self._marks[i][0])  # the one that nothing came between
        mark = marks[MARK + str(number)]
        in_ns = hasattr(mark, "start_ns")
        begin = (lambda e: e.start_ns()) if in_ns else (lambda e: e.start_us() * 1000)
        length = (lambda e: e.duration_ns()) if in_ns else (lambda e: e.duration_us() * 1000)
        offset = sum(self._marks[number]) // 2 - begin(mark) - length(mark) // 2
        thread, last = mark.start_thread_id(), self.last_end
        events = []
        for e in raw:
            if e.start_thread_id() != thread:
                continue
            at = begin(e) + offset
            if self.began <= at < last and not e.name().startswith(MARK):
                events.append((e.name(), at, at + length(e), e.sequence_nr()))
        return events, offset

    # ---- Regions ----

    def region_begins(self, kind, label):
        self._open.append((time.perf_counter_ns(), kind, label))

    def region_ends(self, kind):
        if self._open and self._open[-1][1] == kind:
            begin, _, label = self._open.pop()
            self.regions.append((begin, time.perf_counter_ns(), kind, label))

    def module_begins(self, module, depth):
        if depth == 1 and id(module) not in self._roots:
            self._roots[id(module)] = module
            name = type(module).__name__
            for path, part in module.named_modules():
                self._paths.setdefault(id(part), (name + "." + path if path else name, type(part).__name__))
        label = self._paths.get(id(module)) or (type(module).__name__, type(module).__name__)
        self.region_begins("module", label)

    def module_ends(self, module):
        self.region_ends("module")
