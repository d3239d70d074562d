"""The report, with the names of the C++ doctor's: workload, bottleneck, profile, findings, trials."""

import os
import platform

SCHEMA = 1
ADVICE = {
    "data wait": "it waits for data", "copies": "it copies", "linear algebra": "matrix products and convolutions take most of the time",
    "other kernels": "ops other than products take most of the time", "autograd": "the autograd engine takes most of the time",
    "backward": "the backward pass takes most of the time", "optimizer": "the optimizer takes most of the time",
    "sync": "it waits for the device", "allocation": "memory is allocated most of the time",
    "Python": "the Python interpreter takes most of the time: ops are small, or work is done in Python", "logging and I/O": "it prints, logs or reads files",
}


def report_of(run, script, arguments):
    state = run.state() or {}
    loops = state.get("loops", [])
    main = _longest(loops)
    return {
        "schema": SCHEMA, "kind": "script",
        "workload": {"name": os.path.basename(script), "script": script, "arguments": arguments, "seconds": state.get("seconds"), "exit_code": run.exit_code,
                     "interrupted": run.interrupted},
        "machine": {"system": platform.platform(), "cpus": os.cpu_count(), "threads": state.get("threads"), "python": state.get("python"),
                    "torch": state.get("torch")},
        "bottleneck": _bottleneck(main),
        "profile": main["profile"] if main else None,
        "loops": loops, "findings": state.get("findings", []), "trials": [], "remarks": [],
    }


def _longest(loops):
    """The loop in which the script spent most, as far as it was timed."""
    timed = [loop for loop in loops if loop["profile"]]
    return max(timed, key=lambda loop: loop["profile"]["step_ms_median"] * loop["steps"], default=None)


def _bottleneck(loop):
    if loop is None:
        return {"class": None, "sentence": None}
    most = max(loop["profile"]["buckets"], key=lambda bucket: bucket["s"])
    return {"class": most["name"], "sentence": "{}:{} spends {:.0f} % of its time on {}: {}.".format(
        loop["file"], loop["line"], most["percent"], most["name"], ADVICE[most["name"]])}
