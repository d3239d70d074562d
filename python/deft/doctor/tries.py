"""Techniques that are tried on every script that trains or evaluates a model, whether or not something was found."""

import ast

from .cures import HALF, ROUNDED, Cure
from .edits import Edit


def tries_of(report, sources):
    loops = [loop for loop in report["loops"] if loop["profile"]]
    loop = max(loops, key=lambda loop: loop["steps"] * loop["profile"]["step_ms_median"], default=None)
    source = sources.of(loop["file"]) if loop else None
    if source is None:
        return []
    call = _model_call(source, loop["line"])
    block = _block_of(source, loop["line"])
    if call is None or block is None:
        return []
    model = ast.get_source_segment(source.text, call.func)
    share = {bucket["name"]: bucket["percent"] for bucket in loop["profile"]["buckets"]}
    found = []
    if any(op["name"] == "aten::convolution" for op in loop["profile"]["ops"]):
        found.append(_before(source, block, loop, "channels_last", "{}.to(memory_format=torch.channels_last)".format(model), ROUNDED))
    if share["linear algebra"] + share["backward"] > 30:
        found.append(_autocast(source, call, loop))
    for backend in ("deft", "inductor"):
        if backend == "inductor" or _has_deft():
            found.append(_before(source, block, loop, "compile, " + backend, "{}.compile(backend=\"{}\")".format(model, backend), ROUNDED))
    return [cure for cure in found if cure is not None]


def _has_deft():
    import importlib.util

    try:
        return importlib.util.find_spec("deft._C") is not None
    except (ImportError, ValueError):
        return False


def _block_of(source, line):
    """The outermost loop around the line in its function."""
    found = None
    node = source.statement_at(line)
    while node is not None and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        if isinstance(node, (ast.For, ast.While)):
            found = node
        node = source.parents.get(node)
    return found


def _model_call(source, line):
    """`model(x)` in the loop that has the line: of a plain name or an attribute whose result goes on into a loss."""
    block = source.statement_at(line)
    while block is not None and not isinstance(block, (ast.For, ast.While)):
        block = source.parents.get(block)
    for node in ast.walk(block) if block is not None else ():
        if isinstance(node, ast.Call):
            name = ast.get_source_segment(source.text, node.func) or ""
            if name in ("model", "net", "self.model", "self.net", "network", "self.network"):
                return node
    return None


def _before(source, block, loop, technique, statement, bound):
    indent = source.indent_of(block.lineno)
    return Cure(technique, source, [Edit(block.lineno, 0, 0, indent + statement + "\n")], bound, loop=loop)


def _autocast(source, call, loop):
    statement = call
    while not isinstance(statement, ast.stmt):
        statement = source.parents[statement]
    if statement.lineno != call.lineno or not isinstance(statement, (ast.Assign, ast.Expr)):
        return None
    if any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(statement)):
        return None
    edits = source.wrapped(statement.lineno, statement.end_lineno, 'with torch.autocast("cpu", dtype=torch.bfloat16):')
    return Cure("autocast, bf16", source, edits, HALF, loop=loop)
