"""Cures, tried: the script as it is and the changed one run side by side in processes of their own, a few steps each in turn, and the one
whose turn it is not is stopped with all its workers. Losses and outputs of the first steps are compared before anything is timed."""

import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

from .edits import applied, line_after
from .process import descendants
from .statistics import Pairs, next_look

BLOCK_SECONDS = 0.1  # of steps that one side does in its turn
MOST_PAIRS = 60
START_SECONDS = 120  # until the loop is reached


class Failed(Exception):
    """Why a side has no times."""


class OutOfTime(Exception):
    pass


def start(options, arguments, numbers):
    """The process of a side: observe.py with these options, and these files open."""
    observe = os.path.join(os.path.dirname(os.path.abspath(__file__)), "observe.py")
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), observe, "0", json.dumps(options), *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=numbers, start_new_session=True)


class _Side:
    """One process, told how many steps to do."""

    def __init__(self, script, arguments, loop, texts, line):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._sources = tempfile.TemporaryFile()
        self._sources.write(json.dumps(texts).encode())
        self._sources.flush()
        options = {"kind": loop["kind"], "file": os.path.abspath(loop["file"]), "line": line, "orders": orders, "answers": answers,
                   "sources": self._sources.fileno(), "steps": 0, "after": 0}
        self.process = start(options, [script, *arguments], [orders, answers, self._sources.fileno()])
        os.close(orders)
        os.close(answers)
        self._buffer = b""

    def answer(self, until):
        """The next thing it says. Raises OutOfTime, or Failed where the process is gone."""
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise OutOfTime
            data = os.read(self._answers, 1 << 16)
            if not data:
                self.process.wait()
                code = self.process.returncode
                raise Failed("its process was ended by signal {}".format(-code) if code < 0 else "its process ended with exit code {}".format(code))
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def order(self, steps):
        os.write(self._orders, b"%d\n" % steps)

    def _signal(self, number):
        for process in descendants(self.process.pid):
            try:
                os.kill(process, number)
            except (ProcessLookupError, PermissionError):
                pass

    def pause(self):
        """It waits for an order itself; its workers would go on loading."""
        self._signal(signal.SIGSTOP)

    def go_on(self):
        self._signal(signal.SIGCONT)

    def end(self):
        for process in [*descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for number in (self._orders, self._answers):
            os.close(number)
        self._sources.close()


class Trials:
    def __init__(self, script, arguments, seconds, progress):
        self.script, self.arguments = script, arguments
        self.until = time.monotonic() + seconds
        self.progress = progress

    def left(self):
        return self.until - time.monotonic()

    def row(self, technique, cures, loop, bound, seconds):
        """A row of the report: the script as it is against the script with the cures' edits."""
        row = {"technique": technique, "stage": "{}:{}".format(loop["file"], loop["line"]), "before_ms": None, "after_ms": None, "speedup": None,
               "speedup_low": None, "speedup_high": None, "pairs": 0, "output_error": None, "kept": False, "reason": "", "same_results": None}
        until = min(self.until, time.monotonic() + seconds)
        pairs = Pairs()
        try:
            texts, line = _changed(cures, loop)
            error = self._pairs(pairs, loop, texts, line, bound, until, row)
            if error:
                row["reason"] = error
                return row
        except (Failed, ValueError) as failure:
            row["reason"] = str(failure)
            return row
        speedup, low, high, verdict = pairs.result()
        steps = row.pop("steps", 1)
        row.update(pairs=len(pairs), speedup=speedup, speedup_low=low or None, speedup_high=_finite(high), kept=verdict == "helps", verdict=verdict)
        if len(pairs):
            row.update(before_ms=1e3 * sorted(pairs.before)[len(pairs) // 2] / steps, after_ms=1e3 * sorted(pairs.after)[len(pairs) // 2] / steps)
        row["reason"] = {"helps": "faster beyond noise, same results", "hurts": "slower", "no difference": "no difference"}.get(
            verdict, "undecided: " + ("out of time" if len(pairs) < MOST_PAIRS else "the pairs differ more than the two ways do"))
        return row

    def _pairs(self, pairs, loop, texts, line, bound, until, row):
        """Fills in the pairs; several times where the script is short. A sentence where results differ."""
        chance = random.Random(1)
        steps = None
        while len(pairs) < MOST_PAIRS and time.monotonic() < until:
            known = len(pairs)
            before = _Side(self.script, self.arguments, loop, {}, loop["line"])
            after = _Side(self.script, self.arguments, loop, texts, line)
            try:
                error = self._check(before, after, bound, until, row)
                if error:
                    return error
                steps = steps or self._steps(before, after, until)
                row["steps"] = steps
                while len(pairs) < MOST_PAIRS:
                    order = [before, after] if chance.random() < 0.5 else [after, before]
                    times = {side: self._turn(side, steps, until) for side in order}
                    pairs.add(times[before], times[after])
                    if len(pairs) == next_look(len(pairs) - 1) and pairs.result()[3] != "undecided":
                        return None
            except _Ended:
                if len(pairs) == known:
                    return "the loop is too short to be timed: fewer than {} steps".format(6 + (steps or 1))
            except OutOfTime:
                return None if len(pairs) else "no time was left to reach the loop and time it"
            finally:
                before.end()
                after.end()
        return None

    def _check(self, before, after, bound, until, row):
        self.progress(row["technique"])
        answers = [side.answer(min(until, time.monotonic() + START_SECONDS)) for side in (before, after)]
        for answer, name in zip(answers, ("as it is", "changed")):
            if answer.get("error"):
                return "the script {} fails: {}".format(name, answer["error"])
            if answer.get("ended"):
                raise _Ended
        error = _difference(answers[0]["values"], answers[1]["values"])
        row["output_error"], row["same_results"] = _finite(error), error <= bound
        if not error <= bound:
            return "its losses or outputs are off by {:.2g} (relative; {:g} is allowed)".format(error, bound)
        return None

    def _steps(self, before, after, until):
        """Steps to a turn."""
        seconds = max(self._turn(side, 2, until) for side in (before, after)) / 2
        return max(1, min(200, round(BLOCK_SECONDS / max(seconds, 1e-5))))

    def _turn(self, side, steps, until):
        side.go_on()
        side.order(steps)
        answer = side.answer(until)
        side.pause()
        if answer.get("error"):
            raise Failed("the script fails: " + answer["error"])
        if answer.get("ended"):
            raise _Ended
        return answer["seconds"]


class _Ended(Exception):
    """The script came to its end."""


def _changed(cures, loop):
    """({path: text}, the loop's line in the changed text)"""
    by_source = {}
    for cure in cures:
        by_source.setdefault(cure.source, []).extend(cure.edits)
    texts = {source.path: applied(source, edits) for source, edits in by_source.items()}
    line = loop["line"]
    for source, edits in by_source.items():
        if source.path == os.path.abspath(loop["file"]):
            line = line_after(edits, line)
    return texts, line


def _difference(before, after):
    """The largest relative difference of two lists of losses and outputs; NaN differs from all but NaN."""
    if len(before) != len(after):
        return math.inf
    worst = 0.0
    for b, a in zip(before, after):
        if math.isnan(b) and math.isnan(a) or b == a:
            continue
        off = abs(b - a) / max(abs(b), abs(a), 1e-6)
        worst = off if math.isnan(off) else max(worst, off)
        if math.isnan(off):
            return math.inf
    return worst


def _finite(value):
    return value if value is not None and math.isfinite(value) else None
