"""Watches one run of a script. At first it looks for mistakes: every op, module and step is seen by the rules. Once each sign of a loop
has been seen in a few steps, it steps back; then some steps are timed with torch's profiler and a sampler, and from there on only signs
of steps are counted, until a loop comes that was not seen before."""

import os
import threading
import time

from . import torch_import
from .places import Places
from .steps import BACKWARD, BATCH, FORWARD, OPTIMIZER, Steps
from .window import Window

LOOKED_STEPS = 8  # of each loop, seen by the rules
MOST_OPS_BEFORE_STEPS = 50000  # of a part without any loop that trains or evaluates: preparing data, making weights
MOST_SECONDS_LOOKED = 20  # at one loop
RARELY = 16  # steps


class Loop:
    """One place where steps come from."""

    def __init__(self, kind, site, steps):
        self.kind, self.site = kind, site
        self.to_time = steps
        self.steps = 0
        self.segments = []
        self.pause = 0


class Session:
    def __init__(self, script, options, record):
        self.places = Places(script)
        self.options = options
        self.record = record
        self.torch = None
        self.busy = self.done = False
        self.idle = False  # everything was looked at and timed: only new places count
        self._known = set()
        self._passes = 0
        self._current = None
        self.rules = []
        self.handlers = {}
        self.steps = Steps()
        self.loops = {}
        self.looked = {}
        self.looking = False
        self.window = None
        self.ops = self.ops_without_step = 0
        self.off_sites = set()  # lines that turned gradients off
        self.forwards = {}  # line -> outermost calls of models that were seen there
        self.in_backward = self.in_optimizer = self.in_data = 0
        self.compiled_at = None
        self.last_loop = None
        self.last_sign = time.perf_counter()
        self.began = time.perf_counter()
        self.facts = {}
        self.faults = []  # of rules
        self.error = None
        self._looking_since = None

    # ---- The run ----

    def start(self):
        torch_import.when_imported(self._torch_ready)
        os.register_at_fork(after_in_child=self._in_child)

    def script_begins(self):
        self.began = time.perf_counter()

    def _in_child(self):
        self.done = True

    def _torch_ready(self, torch):
        from .dispatch import Ops
        from .hooks import Hooks
        from .rules import make_rules

        self.torch = torch
        self.facts["torch"] = torch.__version__
        self.seq = getattr(torch.autograd, "_get_sequence_nr", None) or torch._C._autograd._get_sequence_nr
        self.rules = make_rules(self)
        for rule in self.rules:
            for name in dir(rule):
                if not name.startswith("_") and name not in ("report", "waiting") and callable(getattr(rule, name)):
                    self.handlers.setdefault(name, []).append(getattr(rule, name))
        self.ops_mode = Ops(self)
        self.hooks = Hooks(self, torch)
        self.hooks.install()
        self.look(True)
        threading.Thread(target=self._wake, name="deft-doctor-watch", daemon=True).start()

    def _wake(self):
        """Where signs stay away, modules are watched again: the next loop may have nothing else."""
        while not self.done:
            time.sleep(0.1)
            if not self.looking and self.window is None and time.perf_counter() - self.last_sign > 0.1 and self.compiled_at is None:
                self.hooks.watch_modules(True)

    def finish(self, error):
        if self.done or self.torch is None:
            self.done = True
            self.record.write(self.state(error, ended=True))
            return
        self.busy = True
        self.tell("script_ends", error)
        self._close_window(aborted=True)
        self.look(False)
        self.hooks.remove()
        self.done = True
        self.record.write(self.state(error, ended=True))

    # ---- What rules use ----

    def tell(self, event, *arguments):
        for handler in self.handlers.get(event, ()):
            try:
                handler(*arguments)
            except Exception as error:  # a fault of the doctor's must not become one of the script's
                self.handlers[event] = [h for h in self.handlers[event] if h is not handler]
                self.faults.append("{} of {}: {}: {}".format(event, type(handler.__self__).__name__, type(error).__name__, error))

    def share_of_line(self, site):
        """Of the time of the loop in which it takes most; 0 where no loop was timed."""
        return max([0.0] + [sum(line["s"] for s in loop.segments for line in s["lines"] if (line["file"], line["line"]) == site) /
                            sum(s["wall_s"] for s in loop.segments) for loop in self.loops.values() if loop.segments])

    def share_of_region(self, kind, site):
        return max([0.0] + [sum(r["s"] for s in loop.segments for r in s["regions"] if r["kind"] == kind and r["site"] == site) /
                            sum(s["wall_s"] for s in loop.segments) for loop in self.loops.values() if loop.segments])

    def calls_at(self, site):
        """Steps of the loops in which a model was called at this line."""
        return self.forwards.get(site, 0)

    # ---- Windows ----

    def look(self, on):
        """Shows every op and module to the rules."""
        if on and self.compiled_at is not None:
            return
        if on == self.looking:
            return
        if on:
            self._close_window(aborted=True)
            self.looking = self.ops_mode.enter()
            self._looking_since = time.perf_counter()
            if self.looking:
                self.hooks.watch_modules(True)
        elif self.ops_mode.leave():
            self.looking = False
            self.tell("looked")
            if not self.done:
                self.record.write(self.state(None, ended=False))

    def sign(self, kind, what, site):
        if site is None:
            return
        self.idle = False
        self.last_sign = time.perf_counter()
        self.ops_without_step = 0
        ended = self.steps.happened(kind, what, site)
        if ended is not None:
            self._step_ended(ended)
        if not self.looking and self.looked.get((kind, site), 0) == 0:
            self.look(True)

    def is_known(self, kind, frame):
        """Whether a sign comes from a place that gave it before, while there is nothing to do but to count. Takes a microsecond."""
        key = (kind, id(frame.f_code), frame.f_lineno)
        if key not in self._known:
            self._known.add(key)
            self.idle = False
            return False
        if kind == self.steps.kind:
            self._current.steps += 1
            self.last_sign = time.perf_counter()
            self._passes += 1
            if self._passes % RARELY == 0:  # so that late changes are seen, such as a loss that becomes NaN
                self.idle = False
        return True

    def _step_ended(self, signs):
        self.tell("step_ended", self.steps.number)
        if not signs:
            return
        kind, site = min(signs)
        loop = self.loops.get((kind, site))
        if loop is None:
            loop = self.loops[(kind, site)] = Loop(kind, site, self.options["steps"])
        loop.steps += 1
        if self.looking:
            for sign in signs:
                self.looked[sign] = self.looked.get(sign, 0) + 1
            late = time.perf_counter() - self._looking_since > MOST_SECONDS_LOOKED
            if late or all(self.looked[sign] >= LOOKED_STEPS for sign in signs):
                for sign in signs:
                    self.looked[sign] = max(self.looked[sign], 1)
                self.look(False)
                loop.pause = self.options["after"]
        elif self.window is not None:
            self._step_timed(loop)
        elif loop.to_time > 0:
            loop.pause -= 1
            if loop.pause < 0:
                self._open_window(loop)
        self.hooks.watch_modules(self.compiled_at is None and (self.looking or loop.to_time > 0))
        self._current = loop
        self.idle = not self.looking and self.window is None and loop.to_time <= 0 and not any(r.waiting for r in self.rules)

    def _open_window(self, loop):
        self.busy = True
        try:
            self.window = Window(self, loop)
            self.window.start()
        finally:
            self.busy = False

    def _step_timed(self, loop):
        window = self.window
        if window.loop is not loop:
            self._close_window(aborted=True)
            return
        window.step_ended()
        if window.steps >= loop.to_time or window.is_long():
            self._close_window(aborted=False)

    def _close_window(self, aborted):
        window, self.window = self.window, None
        if window is None:
            return
        was_busy, self.busy = self.busy, True
        try:
            segment = window.stop()
            if segment is not None:
                window.loop.segments.append(segment)
                window.loop.to_time -= segment["steps"]
                if window.is_long():
                    window.loop.to_time = 0
            if not aborted and not self.done:
                self.record.write(self.state(None, ended=False))
        finally:
            self.busy = was_busy

    # ---- What hooks tell ----

    def op_ran(self, func, args, kwargs, out):
        self.ops += 1
        self.ops_without_step += 1
        if self.ops_without_step > MOST_OPS_BEFORE_STEPS and not self.in_data:
            self.ops_without_step = 0
            self.look(False)
            return
        self.tell("op_ran", func, args, kwargs, out, self.places.site(3))

    def module_begins(self, module, inputs, depth):
        self.idle = False
        if depth == 1 and not self.in_backward:
            site = self.places.site(3)
            self.sign(FORWARD, id(module), site)
            self.root_site = site
            self.forwards[site] = self.forwards.get(site, 0) + 1
        if self.looking:
            self.busy = True
            try:
                self.tell("module_begins", module, inputs, depth, self.root_site)
            finally:
                self.busy = False
        elif self.window:
            self.window.module_begins(module, depth)

    def module_ends(self, module, output, depth):
        if self.looking:
            self.busy = True
            try:
                self.tell("module_ends", module, output, depth, self.root_site)
            finally:
                self.busy = False
        elif self.window:
            self.window.module_ends(module)

    root_site = None

    def optimizer_begins(self, optimizer):
        self.in_optimizer += 1
        self._optimizer_site = self.places.site(3)
        if self.window:
            self.window.region_begins("optimizer", self._optimizer_site)
        if self.looking:
            self._quietly("optimizer_begins", optimizer, self._optimizer_site)

    _optimizer_site = None

    def optimizer_ends(self, optimizer):
        self.in_optimizer = max(0, self.in_optimizer - 1)
        if self.window:
            self.window.region_ends("optimizer")
        if self.looking:
            self._quietly("optimizer_ends", optimizer, self._optimizer_site)
        self.sign(OPTIMIZER, id(optimizer), self._optimizer_site)

    def _quietly(self, event, *arguments):
        self.busy = True
        try:
            self.tell(event, *arguments)
        finally:
            self.busy = False

    def optimizer_made(self, call, args, kwargs):
        result = call(*args, **kwargs)
        self._quietly("optimizer_made", args[0], self.places.site(3))
        return result

    def zero_grad(self, call, args, kwargs):
        site = self.places.site(3)
        if self.looking:
            self._quietly("zero_grad", args, kwargs, site)
        return self._in_region("optimizer", site, call, args, kwargs)

    def _in_region(self, kind, site, call, args, kwargs):
        window = self.window
        if window is None:
            return call(*args, **kwargs)
        window.region_begins(kind, site)
        try:
            return call(*args, **kwargs)
        finally:
            if self.window is window:
                window.region_ends(kind)

    def backward(self, call, args, kwargs):
        site = self.places.site(3)
        roots = args[0] if args else kwargs.get("tensors", ())
        return self._run_backward(call, args, kwargs, roots, site)

    def grad(self, call, args, kwargs):
        roots = args[0] if args else kwargs.get("outputs", ())
        return self._run_backward(call, args, kwargs, roots, self.places.site(3))

    def _run_backward(self, call, args, kwargs, roots, site):
        roots = [roots] if isinstance(roots, self.torch.Tensor) else list(roots)
        self.sign(BACKWARD, site, site)
        self._quietly("backward_begins", roots, site)
        self.in_backward += 1
        try:
            return self._in_region("backward", site, call, args, kwargs)
        finally:
            self.in_backward -= 1
            self._quietly("backward_ends", site)

    def next_batch(self, call, args, kwargs):
        if self.in_data:
            return call(*args, **kwargs)
        site = self.places.site(3)
        self.sign(BATCH, id(args[0]), site)
        self.in_data += 1
        began = time.perf_counter()
        try:
            batch = self._in_region("data", site, call, args, kwargs)
        finally:
            self.in_data -= 1
        self._quietly("batch_loaded", args[0], batch, time.perf_counter() - began, site)
        return batch

    def loader_made(self, call, args, kwargs):
        site = self.places.site(3)
        result = call(*args, **kwargs)
        self._quietly("loader_made", args[0], site)
        return result

    def loader_iter(self, call, args, kwargs):
        iterator = call(*args, **kwargs)
        self._quietly("loader_iter", args[0], iterator)
        return iterator

    def grad_off(self, call, args, kwargs):
        if self.looking:
            self._quietly("grad_off", self.places.site(3))
        elif self.window is None and self.compiled_at is None:
            site = self.places.site(3)
            if site not in self.off_sites:  # what comes may be an evaluation that was not seen yet
                self.off_sites.add(site)
                self.hooks.watch_modules(True)
        return call(*args, **kwargs)

    def requires_grad(self, call, args, kwargs):
        if self.looking and args:
            on = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
            self._quietly("requires_grad_set", args[0], on, self.places.site(3))
        return call(*args, **kwargs)

    def set_num_threads(self, call, args, kwargs):
        self._quietly("threads_set", self.places.site(3))
        return call(*args, **kwargs)

    def pad_sequence(self, call, args, kwargs):
        out = call(*args, **kwargs)
        sequences = args[0] if args else kwargs.get("sequences", ())
        if self.looking and not self.in_data:
            self._quietly("padded", [int(s.shape[0]) for s in sequences], int(max(s.shape[0] for s in sequences)), self.places.site(3))
        return out

    def compiles(self, call, args, kwargs):
        """Compiled functions run as they are: a mode would keep them from being compiled, so from here on no op is looked at."""
        self.compiled_at = self.compiled_at or self.places.site(3)
        self.look(False)
        self.hooks.watch_modules(False)
        return call(*args, **kwargs)

    # ---- What is known ----

    def state(self, error, ended):
        from .state import state_of

        return state_of(self, error, ended)
