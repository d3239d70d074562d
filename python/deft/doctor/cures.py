"""Changes to the script that cure a finding, and those that are tried on every script: each a list of edits of one file."""

import ast
import os

from .edits import Edit, Source
from .rules.loop_rules import cpus_here

EXACT, ROUNDED, HALF = 1e-6, 1e-3, 3e-2  # how far losses may be off, relative: same sums; other order of sums; 16-bit products


class Cure:
    def __init__(self, technique, source, edits, bound, finding=None, loop=None):
        self.technique, self.source, self.edits, self.bound = technique, source, edits, bound
        self.finding, self.loop = finding, loop
        self.keeps_memory = finding is not None and finding["id"] in ("D003", "D004")  # worth it even where it is not faster


class Sources:
    def __init__(self):
        self._known = {}

    def of(self, path):
        path = os.path.abspath(path)
        if path not in self._known:
            try:
                self._known[path] = Source(path)
            except (OSError, SyntaxError, UnicodeDecodeError):
                self._known[path] = None
        return self._known[path]


def cures_of(report, sources):
    """For each finding that has one; then what is worth a try anyway."""
    found = []
    for finding in report["findings"]:
        make = MAKERS.get(finding["id"])
        at = finding["cure_at"]
        source = sources.of(at["file"]) if make and at else None
        if source is None:
            continue
        made = make(source, at["line"])
        if made:
            technique, edits, bound = made
            found.append(Cure(technique, source, edits, bound, finding, _loop_of(finding, report["loops"], sources)))
    return found


def _blocks_around(source, line):
    """Loops that contain the line, from the outermost; a loop's own line counts as inside."""
    return [n for n in ast.walk(source.tree) if isinstance(n, (ast.For, ast.While, ast.AsyncFor)) and n.lineno <= line <= n.end_lineno]


def _loop_of(finding, loops, sources):
    """The loop that shows what the cure does: that of the finding's line, else the one that takes most time."""
    source = sources.of(finding["file"]) if finding["file"] else None
    best, best_depth = None, 0
    for loop in loops:
        if source is None or sources.of(loop["file"]) is not source:
            continue
        common = set(_blocks_around(source, finding["line"])) & set(_blocks_around(source, loop["line"]))
        if len(common) > best_depth or (len(common) == best_depth and best and loop["steps"] > best["steps"]):
            best, best_depth = loop, len(common)
    return best or max(loops, key=lambda loop: loop["steps"] * (loop["profile"] or {"step_ms_median": 0})["step_ms_median"], default=None)


def _mentions(node, names):
    return any(isinstance(n, ast.Attribute) and n.attr in names for n in ast.walk(node))


def _imports_torch(source):
    return any(isinstance(n, ast.Import) and any(a.name == "torch" and a.asname is None for a in n.names) for n in ast.walk(source.tree))


def no_grad(source, line):
    """D004: the largest statement around the call that does not train goes into a no_grad block."""
    statement = source.statement_at(line)
    if statement is None or not _imports_torch(source):
        return None
    while True:
        outer = source.parents.get(statement)
        if not isinstance(outer, (ast.For, ast.While, ast.If, ast.With)) or _mentions(outer, ("backward", "step", "zero_grad")):
            break
        statement = outer
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Return)) or getattr(statement, "decorator_list", None):
        if not isinstance(statement, ast.Return):
            return None
    if _mentions(statement, ("backward",)) or source.begin(statement)[1] != len(source.indent_of(statement.lineno)):
        return None
    return "no_grad", source.wrapped(statement.lineno, statement.end_lineno, "with torch.no_grad():"), EXACT


def detach(source, line):
    """D003: what is added or appended goes without its graph."""
    statement = source.statement_at(line)
    value = None
    if isinstance(statement, ast.AugAssign):
        value = statement.value
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp) and isinstance(statement.value.op, ast.Add):
        target = ast.dump(statement.targets[0]).replace("Store()", "Load()")
        value = statement.value.right if ast.dump(statement.value.left) == target else statement.value.left
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args and isinstance(
            statement.value.func, ast.Attribute) and statement.value.func.attr in ("append", "insert"):
        value = statement.value.args[-1]
    if value is None or isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Constant)):
        return None
    return "detach", _after(source, value, ".detach()"), EXACT


def _after(source, node, text):
    end_line, end = source.end(node)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return [Edit(end_line, end, end, text)]
    line, begin = source.begin(node)
    return [Edit(line, begin, begin, "("), Edit(end_line, end, end, ")" + text)]


def set_to_none(source, line):
    """D024"""
    call = _call(source, line, ("zero_grad",))
    if call is None or len(call.args) + len(call.keywords) != 1:
        return None
    argument = call.args[0] if call.args else call.keywords[0]
    (line, begin), (end_line, end) = source.begin(argument), source.end(argument)
    return ("zero_grad to None", [Edit(line, begin, end, "")], EXACT) if line == end_line else None


def _call(source, line, names):
    calls = [c for c in source.calls_at(line) if (c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "")) in names]
    return calls[-1] if calls else None


def _with_keywords(source, call, keywords):
    """Edits that set keyword arguments of a call."""
    edits, new = [], []
    for name, value in keywords:
        known = next((k for k in call.keywords if k.arg == name), None)
        if known is None:
            new.append("{}={}".format(name, value))
            continue
        (line, begin), (end_line, end) = source.begin(known.value), source.end(known.value)
        if line != end_line:
            return None
        edits.append(Edit(line, begin, end, value))
    arguments = call.args + [k.value for k in call.keywords]
    if new and arguments:
        last = max(arguments, key=lambda a: (a.end_lineno, a.end_col_offset))
        line, end = source.end(last)
        edits.append(Edit(line, end, end, "".join(", " + text for text in new)))
    elif new:
        line, end = source.end(call)
        edits.append(Edit(line, end - 1, end - 1, ", ".join(new)))
    return edits


def fused(source, line):
    """D025"""
    call = _call(source, line, ("SGD", "Adam", "AdamW", "Adagrad"))
    edits = _with_keywords(source, call, [("fused", "True")]) if call else None
    return ("fused optimizer", edits, ROUNDED) if edits else None


def workers(source, line):
    """D020"""
    call = _call(source, line, ("DataLoader",))
    if call is None:
        return None
    edits = _with_keywords(source, call, [("num_workers", str(cpus_here())), ("persistent_workers", "True")])
    return ("{} loader workers".format(cpus_here()), edits, EXACT) if edits else None


def threads(source, line):
    """D019"""
    call = _call(source, line, ("set_num_threads",))
    if call is None or len(call.args) != 1:
        return None
    (line, begin), (end_line, end) = source.begin(call.args[0]), source.end(call.args[0])
    return ("{} threads".format(cpus_here()), [Edit(line, begin, end, str(cpus_here()))], ROUNDED) if line == end_line else None


MAKERS = {"D003": detach, "D004": no_grad, "D019": threads, "D020": workers, "D024": set_to_none, "D025": fused}
