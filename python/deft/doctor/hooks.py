"""Tells a session what a torch program does, through torch's public functions and hooks: optimizer steps, batches, backward passes,
modules, grad modes. Ops come from dispatch.py."""

import functools
import sys
import threading

from .steps import BACKWARD, BATCH, OPTIMIZER

NOTHING = -1
DEPTHS = {BATCH: 1, BACKWARD: 2, OPTIMIZER: 2}  # frames between the one that looks and the script's


class Hooks:
    def __init__(self, session, torch):
        self._session, self._torch = session, torch
        self._main = threading.get_ident()
        self._modules = ()
        self._depth = 0
        self._undo = []

    def install(self):
        torch, session = self._torch, self._session
        from torch.optim import optimizer as optimizers

        optimizers.register_optimizer_step_pre_hook(self._optimizer_begins)
        optimizers.register_optimizer_step_post_hook(self._optimizer_ends)
        self._wrap(torch.optim.Optimizer, "__init__", session.optimizer_made)
        self._wrap(torch.optim.Optimizer, "zero_grad", session.zero_grad, idle=NOTHING)
        self._wrap(torch.autograd, "backward", session.backward, idle=BACKWARD)
        self._wrap(torch.autograd, "grad", session.grad, idle=NOTHING)
        self._wrap(torch, "compile", session.compiles)
        self._wrap(torch, "set_num_threads", session.set_num_threads)
        self._wrap(torch.Tensor, "requires_grad_", session.requires_grad, idle=NOTHING)
        for mode in (torch.no_grad, torch.inference_mode):
            self._wrap(mode, "__enter__", session.grad_off)
        self._wrap(torch.nn.utils.rnn, "pad_sequence", session.pad_sequence)
        self._install_data()

    def _install_data(self):
        from torch.utils.data import DataLoader, dataloader

        self._wrap(DataLoader, "__init__", self._session.loader_made)
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", self._session.next_batch, idle=BATCH)
        self._wrap(DataLoader, "__iter__", self._session.loader_iter)

    def _wrap(self, owner, name, around, idle=None):
        """`around(call, args, kwargs)` runs in place of the function, on the thread that runs the script; while the session is idle only
        if the function is called as a sign of this kind from a new place."""
        original = getattr(owner, name, None)
        if original is None:
            return
        inherited = isinstance(owner, type) and name not in vars(owner)
        main, session, depth = self._main, self._session, DEPTHS.get(idle)

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            if session.done or session.busy or threading.get_ident() != main:
                return original(*args, **kwargs)
            if session.idle and idle is not None and (idle is NOTHING or session.is_known(idle, sys._getframe(depth))):
                return original(*args, **kwargs)
            return around(original, args, kwargs)

        setattr(owner, name, wrapper)
        self._undo.append((owner, name, original, inherited))

    def _optimizer_begins(self, optimizer, args, kwargs):
        if not self._session.idle:
            self._guarded(self._session.optimizer_begins, optimizer)

    def _optimizer_ends(self, optimizer, args, kwargs):
        session = self._session
        if session.idle and threading.get_ident() == self._main and session.is_known(OPTIMIZER, sys._getframe(DEPTHS[OPTIMIZER])):
            return
        self._guarded(session.optimizer_ends, optimizer)

    def watch_modules(self, on):
        """Calls of modules cost a little while they are watched."""
        if bool(self._modules) == on:
            return
        if not on:
            for handle in self._modules:
                handle.remove()
            self._modules = ()
            return
        module = self._torch.nn.modules.module
        self._depth = 0
        self._modules = (module.register_module_forward_pre_hook(self._module_begins),
                         module.register_module_forward_hook(self._module_ends, always_call=True))

    def _module_begins(self, module, inputs):
        session = self._session
        if session.busy or session.done or threading.get_ident() != self._main:
            return
        self._depth += 1
        session.module_begins(module, inputs, self._depth)

    def _module_ends(self, module, inputs, output):
        session = self._session
        if session.busy or session.done or threading.get_ident() != self._main or self._depth == 0:
            return
        session.module_ends(module, output, self._depth)
        self._depth -= 1

    def _guarded(self, tell, what):
        session = self._session
        if not (session.done or session.busy) and threading.get_ident() == self._main:
            tell(what)

    def remove(self):
        self.watch_modules(False)
        for owner, name, original, inherited in reversed(self._undo):
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._undo = []

