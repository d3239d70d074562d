"""Every op the script runs, as torch's dispatcher sees it, while a session looks for mistakes."""

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode


class Ops(TorchDispatchMode):
    def __init__(self, session):
        super().__init__()
        self._session = session
        self.entered = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        session = self._session
        if not session.busy and self.entered:
            session.busy = True
            try:
                session.op_ran(func, args, kwargs or {}, out)
            finally:
                session.busy = False
        return out

    def enter(self):
        """False where the script is inside a mode of its own."""
        if self.entered:
            return True
        if _get_current_dispatch_mode() is not None:
            return False
        self.entered = True
        self.__enter__()
        return True

    def leave(self):
        """Waits while a mode that the script entered later lies on top."""
        if not self.entered:
            return True
        if _get_current_dispatch_mode() is not self:
            return False
        self.__exit__(None, None, None)
        self.entered = False
        return True
