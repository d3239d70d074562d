"""The process in which a script runs, from outside: its record, its exit code, and its end in any case."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from .record import last_state

GRACE = 1.5  # seconds after Ctrl-C for the script to end by itself


class ScriptRun:
    def __init__(self, script, arguments, options):
        self._file = tempfile.TemporaryFile()  # has no name: nothing stays behind
        observe = os.path.join(os.path.dirname(os.path.abspath(__file__)), "observe.py")
        command = [sys.executable, *subprocess._args_from_interpreter_flags(), observe, str(self._file.fileno()), json.dumps(options), script]
        self.interrupted = False
        self.killed = False
        self.process = subprocess.Popen(command + arguments, pass_fds=[self._file.fileno()])

    def wait(self):
        try:
            self.process.wait()
        except KeyboardInterrupt:
            self.interrupted = True
            self._end()

    def _end(self):
        """The script got the signal as well, from the terminal; one sent to this process alone is passed on."""
        until = time.monotonic() + GRACE
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        while self.process.poll() is None and time.monotonic() < until:
            try:
                self.process.wait(max(0.01, until - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                continue
        if self.process.poll() is None:
            self.killed = True
            for number in [*descendants(self.process.pid), self.process.pid]:
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()

    def _send(self, number):
        try:
            self.process.send_signal(number)
        except ProcessLookupError:
            pass

    @property
    def exit_code(self):
        """As a shell reports it."""
        code = self.process.returncode
        return 128 - code if code < 0 else code

    def state(self):
        return last_state(self._file)


def descendants(number):
    """Processes that this one started, and those they started."""
    parents = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit():
            try:
                with open("/proc/{}/stat".format(entry)) as file:
                    parents.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
            except OSError:
                continue
    found, todo = [], [number]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found
