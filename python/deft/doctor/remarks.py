"""What kept a run from telling more: one sentence each, with what was seen and what to do."""

import ast
import os

STDIN_CALLS = ("input",)


def remarks_of(run, report, tree, script):
    state = run.state()
    remarks = []
    if run.interrupted:
        remarks.append("the run was stopped by Ctrl-C{}; this is what was known until then".format(", and ended since it did not end by itself" if run.killed else ""))
    if state is None or not state["ended"]:
        remarks += _ended_early(run, state)
    error = (state or {}).get("error")
    if error and not run.interrupted:
        remarks += _failed(error, script)
    if state is not None and state["torch"] is None and not error:
        remarks.append("{} never imported torch, so there is nothing to look at; for plain Python use python -m cProfile".format(script))
    elif state is not None and state["ended"] and not error:
        remarks += _too_little(state, script)
    if state and (state["distributed"] or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        remarks.append("the script is one of several processes that train together: only this one was looked at; run it alone to see waits for data and mistakes "
                       "apart from those for the others")
    if state and state["compiled_at"]:
        remarks.append("torch.compile() was called at {}: from there on ops are not looked at one by one, since that would keep them from being compiled".format(
            state["compiled_at"]))
    if state and state["faults"]:
        remarks.append("a part of the doctor itself failed and was left out ({}); please report it".format(state["faults"][0]))
    if _reads_stdin(tree):
        remarks.append("the script reads from the terminal or stdin: it can be looked at as it runs, but not be run again for trials without that input")
    return remarks


def _ended_early(run, state):
    code = run.process.returncode
    if run.interrupted:
        return []
    if code < 0:
        return ["the script's process was ended by signal {}{}; what was seen until then is below".format(-code, ", which the system sends when memory runs "
                "out" if code == -9 else "")]
    how = "replaced or ended its own process (os._exit or exec)" if code is not None else "is still there"
    return ["the script {} with exit code {}, so only what was told before is known".format(how, code)]


def _failed(error, script):
    if error["type"] == "SystemExit":
        if error["exit_code"] == 2:
            return ["{} ended with exit code 2, as scripts do that miss arguments; put them behind it: deft doctor {} -- --epochs 1".format(script, script)]
        return [] if error["exit_code"] == 0 else ["{} ended itself with exit code {}; what was seen until then counts".format(script, error["exit_code"])]
    if error["type"] == "ModuleNotFoundError":
        return ["{} needs a package that this Python lacks ({}); run the doctor with the Python that the script runs with, by $DEFT_PYTHON or its virtual "
                "environment".format(script, error["text"])]
    return ["{} failed with {}{}, as it would without the doctor; what was seen until then counts".format(
        script, error["type"], " at " + error["at"] if error["at"] else "")]


def _too_little(state, script):
    loops = state["loops"]
    if not loops:
        return ["{} has no loop that was seen: no optimizer step, batch or call of a model came twice; give it more steps".format(script)]
    untimed = [loop for loop in loops if not loop["timed_steps"]]
    if len(untimed) == len(loops):
        return ["no loop ran long enough to be timed (the longest had {} steps): findings are complete, times are missing; let it run longer, or give --steps "
                "and --after".format(max(loop["steps"] for loop in loops))]
    return []


def _reads_stdin(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STDIN_CALLS:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "stdin" and getattr(node.value, "id", None) == "sys":
            return True
    return False
