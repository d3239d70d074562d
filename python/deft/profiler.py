"""torch.profiler's interface to the library's profiler: what ops and named parts of a program take."""

import enum
import os
import time

from . import _C


class ProfilerActivity(enum.Enum):
    """What is looked at: the host always, GPUs where there are any."""

    CPU = "cpu"
    CUDA = "cuda"


class ProfilerAction(enum.Enum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class record_function:
    """A part of the program with a name, as context manager or decorator."""

    def __init__(self, name, args=None):
        self.name = name

    def __enter__(self):
        self._zone = _C._Zone(self.name)
        self._zone.__enter__()
        return self

    def __exit__(self, *error):
        self._zone.__exit__(*error)

    def clone(self):
        """The same, not entered."""
        return record_function(self.name)

    def __call__(self, function):
        from ._modes import decorate

        return decorate(self, function)


def schedule(*, wait, warmup, active, repeat=0, skip_first=0):
    """Which steps are recorded: after skip_first, cycles of wait, warmup and active steps."""

    def action(step):
        step -= skip_first
        length = wait + warmup + active
        if step < 0 or (repeat and step >= repeat * length):
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """Writes the trace of each cycle into a folder."""

    def write(prof):
        os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker_name or os.getpid()}.{time.time_ns()}.pt.trace.json"))

    return write


def _readable(microseconds):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


class Row:
    """One name: how often it ran, and its time in microseconds with and without what ran inside."""

    def __init__(self, key):
        self.key, self.count, self.self_cpu_time_total, self.cpu_time_total = key, 0, 0.0, 0.0

    @property
    def cpu_time(self):
        """The mean of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    def __repr__(self):
        return f"<Row key={self.key} self_cpu_time={_readable(self.self_cpu_time_total)} cpu_time={_readable(self.cpu_time_total)} count={self.count}>"


class Rows(list):
    """The rows of a profile; print table()."""

    @property
    def self_cpu_time_total(self):
        """All of them together."""
        return sum(row.self_cpu_time_total for row in self)

    def total_average(self):
        """One row for all."""
        row = Row("Total")
        row.count = sum(r.count for r in self)
        row.self_cpu_time_total = row.cpu_time_total = self.self_cpu_time_total
        return row

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, header=None,
              top_level_events_only=False):
        """The rows as text, sorted by cpu_time_total, self_cpu_time_total, cpu_time or count."""
        rows = list(self)
        if sort_by is not None:
            name = sort_by.replace("cuda", "cpu").replace("device", "cpu")
            if name not in ("cpu_time_total", "self_cpu_time_total", "cpu_time", "count"):
                raise AttributeError(f"table: sort_by is cpu_time_total, self_cpu_time_total, cpu_time or count; found '{sort_by}'")
            rows.sort(key=lambda row: -getattr(row, name))
        rows = rows if row_limit < 0 else rows[:row_limit]
        width = min(max([len(row.key) for row in rows] + [4]), max_name_column_width)
        total = self.self_cpu_time_total or 1.0
        rule = "  ".join(["-" * width] + ["-" * 12] * 6)
        lines = [] if header is None else [header]
        lines += [rule, "  ".join(["Name".ljust(width)] + [t.rjust(12) for t in ("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")]), rule]
        for row in rows:
            cells = (f"{100 * row.self_cpu_time_total / total:.2f}%", _readable(row.self_cpu_time_total),
                     f"{100 * row.cpu_time_total / total:.2f}%", _readable(row.cpu_time_total), _readable(row.cpu_time), str(row.count))
            lines.append("  ".join([row.key[:width].ljust(width)] + [c.rjust(12) for c in cells]))
        return "\n".join([*lines, rule, f"Self CPU time total: {_readable(self.self_cpu_time_total)}"]) + "\n"


def _rows(flame):
    rows = {}
    for stack, calls, seconds in flame:
        names = stack.split(";")
        row = rows.setdefault(names[-1], Row(names[-1]))
        if names[-2:-1] != names[-1:]:  # the kernel of an op has its name
            row.count += calls
        rows[names[-1]].self_cpu_time_total += seconds * 1e6
        for name in set(names):
            rows.setdefault(name, Row(name)).cpu_time_total += seconds * 1e6
    return Rows(sorted(rows.values(), key=lambda row: -row.cpu_time_total))


class profile:
    """Looks at the thread inside; key_averages() says what took the time."""

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False,
                 with_stack=False, with_flops=False, with_modules=False, experimental_config=None, acc_events=False, use_cuda=None):
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self._session = self._done = None

    def _action(self):
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def start(self):
        """Begins."""
        if self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._session = _C._ProfileSession(True)

    def stop(self):
        """Ends, and hands the trace over."""
        if self._session is not None:
            self._session.stop()
            self._session, self._done = None, self._session
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def step(self):
        """The next step of the schedule."""
        ended = self._action() is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if ended:
            self.stop()
        if self.schedule is not None and self._session is None:
            self.start()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def _result(self):
        if self._done is None:
            raise RuntimeError("profile: nothing has been recorded yet; leave the block, or let a recorded cycle end")
        return self._done

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        """Sums by name."""
        return _rows(self._result().flame)

    def events(self):
        """The ops by the line that called them: dicts with calls, seconds, flops and bytes."""
        return self._result().ops

    def export_chrome_trace(self, path):
        """Writes the trace as JSON for Perfetto and chrome://tracing."""
        self._result().write_trace(os.fspath(path))


def __getattr__(name):
    from ._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
