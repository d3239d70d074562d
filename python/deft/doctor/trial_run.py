"""The script as one side of a trial: it runs as it is or changed, tells its losses over the first steps of a loop, and then does as many
steps as it is told, timing them."""

import json
import os
import random
import sys
import time

from .session import Session
from .steps import KIND_NAMES

CHECKED_STEPS = 6


class TrialSession(Session):
    """Counts steps only. `options`: kind, file and line of the loop, and the numbers of two pipes."""

    def __init__(self, script, options):
        super().__init__(script, options, record=None)
        self._target = (KIND_NAMES.index(options["kind"]), (options["file"], options["line"]))
        self._orders, self._answers = os.fdopen(options["orders"], "r"), options["answers"]
        self._values = []
        self._done_steps = 0
        self._left = 0
        self._process = os.getpid()

    def start(self):
        random.seed(1)
        super().start()

    def _torch_ready(self, torch):
        from .hooks import Hooks

        self.torch = torch
        self.hooks = Hooks(self, torch)
        self.hooks.install()
        self.hooks.watch_modules(True)
        torch.manual_seed(1)  # both sides draw the same numbers also where the script takes no seed
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(1)

    def look(self, on):
        pass

    def tell(self, event, *arguments):
        pass

    def _run_backward(self, call, args, kwargs, roots, site):
        out = super()._run_backward(call, args, kwargs, roots, site)
        roots = [roots] if isinstance(roots, self.torch.Tensor) else list(roots)
        if self._done_steps < CHECKED_STEPS:
            self._values += [float(r.detach().double().sum()) for r in roots[:1]]
        return out

    def module_ends(self, module, output, depth):
        if depth == 1 and self._done_steps < CHECKED_STEPS and not self.in_backward and isinstance(output, self.torch.Tensor):
            if output.is_floating_point():
                self.busy = True
                self._values.append(float(output.detach().double().mean()))
                self.busy = False

    def _step_ended(self, signs):
        if not signs or min(signs) != self._target:
            return
        self._done_steps += 1
        if self._done_steps < CHECKED_STEPS:
            return
        if self._done_steps == CHECKED_STEPS:
            self.hooks.watch_modules(self._target[0] == KIND_NAMES.index("calls of a model"))
            self._answer({"values": self._values[-4 * CHECKED_STEPS:]})
            self._take_order()
            return
        self._left -= 1
        if self._left == 0:
            self._answer({"seconds": time.perf_counter() - self._began})
            self._take_order()

    def _take_order(self):
        """Waits for the number of steps to do; without one the other side is gone."""
        line = self._orders.readline()
        self._left = int(line) if line.strip() else 0
        if self._left == 0:
            os._exit(0)
        self._began = time.perf_counter()

    def _answer(self, what):
        if os.getpid() == self._process:
            os.write(self._answers, (json.dumps(what) + "\n").encode())

    def finish(self, error):
        failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        self._answer({"ended": True, "error": "{}: {}".format(type(error).__name__, error)[:300] if failed else None, "values": self._values})
        os._exit(0)
