"""Whether a stack is in a call that prints, logs, or reads and writes files."""

import ast
import functools
import linecache
import re

WRITERS = ("print", "write", "writelines", "flush", "open", "dump", "savez", "savetxt", "savefig", "input", "readline", "readlines",
           "info", "debug", "warning", "writerow", "add_scalar", "add_scalars", "add_histogram", "add_image", "set_postfix", "set_description")
FOLDERS = re.compile(r"[/\\](logging|tqdm|tensorboard|tensorboardX|wandb|rich|mlflow|loguru)[/\\]|[/\\](csv|serialization|pprint)\.py$")
LINE = re.compile(r"\b(" + "|".join(WRITERS) + r")\s*\(")


def io_call(stack, users):
    for code, _, _ in stack:
        if code is users[0]:
            break
        if FOLDERS.search(code.co_filename):
            return True
    if stack[0][0] is not users[0]:
        return False
    return _writes(*users)


@functools.lru_cache(maxsize=None)
def _writes(code, instruction, line):
    """The call that the instruction makes; before Python 3.11, which does not tell it, any call of the line."""
    text = called_text(code, instruction)
    if text is None:
        return bool(LINE.search(linecache.getline(code.co_filename, line)))
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return False
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in WRITERS


def called_text(code, instruction):
    if not hasattr(code, "co_positions") or instruction < 0:
        return None
    positions = _positions(code)
    if instruction // 2 >= len(positions):
        return None
    first, last, begin, end = positions[instruction // 2]
    if None in (first, last, begin, end):
        return None
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    if not lines:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode(errors="replace")


@functools.lru_cache(maxsize=256)
def _positions(code):
    return list(code.co_positions())
