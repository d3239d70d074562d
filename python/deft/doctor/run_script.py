"""Runs a script as Python would: as __main__, with its arguments, folder, exit code and traceback, and nothing else printed."""

import builtins
import importlib.machinery
import os
import signal
import sys
import types

from .record import Record
from .session import Session


def main(record, options, arguments):
    script = arguments[0]
    os.environ.pop("KINETO_LOG_LEVEL", None) if options.get("quiet_profiler") else None
    session = Session(script, options, Record(record))
    sys.argv = list(arguments)
    # Python follows links here.
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    session.start()
    error = _execute(script, session)
    session.finish(error)
    _end_as_python_does(error)


def _main_module(path):
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __builtins__=builtins, __file__=path, __cached__=None, __package__=None, __spec__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    sys.modules["__main__"] = module
    return module


def _execute(script, session):
    """What the script raised, or None."""
    path = os.path.abspath(script)
    module = _main_module(path)
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        session.script_begins()
        exec(code, module.__dict__)
    except BaseException as error:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        return error.with_traceback(traceback)
    return None


def _end_as_python_does(error):
    if error is None:
        return
    if isinstance(error, SystemExit):
        sys.exit(error.code)
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(1)
