"""Where the script's thread is, every few milliseconds: a second thread looks at its frames, and changes nothing."""

import sys
import threading
import time

INTERVAL = 0.002
MOST_FRAMES = 48


class Sampler:
    def __init__(self, thread):
        self._thread = thread
        self._stop = threading.Event()
        self.samples = []  # (time in ns, seconds since the one before, ((code, instruction, line), ...) from the innermost frame)
        self.seconds = 0.0  # that looking took
        self._runner = None

    def start(self):
        self._stop.clear()
        self._runner = threading.Thread(target=self._run, name="deft-doctor-sampler", daemon=True)
        self._runner.start()

    def stop(self):
        self._stop.set()
        self._runner.join()

    def _run(self):
        last = time.perf_counter_ns()
        while not self._stop.wait(INTERVAL):
            now = time.perf_counter_ns()
            frame = sys._current_frames().get(self._thread)
            stack = []
            while frame is not None and len(stack) < MOST_FRAMES:
                stack.append((frame.f_code, frame.f_lasti, frame.f_lineno))
                frame = frame.f_back
            self.samples.append((now, (now - last) / 1e9, tuple(stack)))
            last = now
            self.seconds += (time.perf_counter_ns() - now) / 1e9
