"""Where the script's thread is, every few milliseconds: a second thread looks at its frames, and changes nothing."""

import sys
import threading
import time

INTERVAL = 0.002
SWITCH_INTERVAL = 0.0003  # a thread that runs Python gives way after this: with Python's 5 ms samples come too late
MOST_FRAMES = 48


class Sampler:
    def __init__(self, thread):
        self._thread = thread
        self._stop = threading.Event()
        self.samples = []  # (time in ns, ((code, instruction, line), ...) from the innermost frame)
        self.seconds = 0.0  # that looking took
        self._runner = None

    def start(self):
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._stop.clear()
        self._runner = threading.Thread(target=self._run, name="deft-doctor-sampler", daemon=True)
        self._runner.start()

    def stop(self):
        self._stop.set()
        self._runner.join()
        sys.setswitchinterval(self._switch_interval)

    def weighed(self, begin, end):
        """(seconds, stack) of each sample between these times: it stands for the halves of the time to its neighbours."""
        inside = [s for s in self.samples if begin <= s[0] <= end]
        times = [begin] + [(a[0] + b[0]) // 2 for a, b in zip(inside, inside[1:])] + [end]
        return [((b - a) / 1e9, stack) for (_, stack), a, b in zip(inside, times, times[1:])]

    def _run(self):
        while not self._stop.wait(INTERVAL):
            now = time.perf_counter_ns()
            frame = sys._current_frames().get(self._thread)
            stack = []
            while frame is not None and len(stack) < MOST_FRAMES:
                stack.append((frame.f_code, frame.f_lasti, frame.f_lineno))
                frame = frame.f_back
            self.samples.append((now, tuple(stack)))
            self.seconds += (time.perf_counter_ns() - now) / 1e9
