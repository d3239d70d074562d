"""What a session knows, as data for the report."""

import platform
import sys
import time

from .steps import KIND_NAMES
from .timeline import BUCKETS

MOST_LINES, MOST_OPS, MOST_MODULES = 60, 200, 200


def state_of(session, error, ended):
    findings = []
    for rule in session.rules:
        rule.report(findings)
    order = {"error": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda f: (order[f.severity], f.id, f.site or ("", 0)))
    return {
        "ended": ended, "error": _error_json(session, error), "seconds": time.perf_counter() - session.began,
        "torch": session.facts.get("torch"), "python": platform.python_version(), "executable": sys.executable,
        "threads": session.torch.get_num_threads() if session.torch else None,
        "compiled_at": session.places.text(session.compiled_at) if session.compiled_at else None,
        "faults": session.faults,
        "distributed": _is_distributed(session),
        "loops": [_loop_json(session, loop) for loop in session.loops.values()],
        "findings": [f.json(session.places) for f in findings],
    }


def _is_distributed(session):
    distributed = getattr(session.torch, "distributed", None)
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def _error_json(session, error):
    if error is None:
        return None
    site, traceback = None, error.__traceback__
    while traceback is not None:
        if session.places.is_users(traceback.tb_frame.f_code.co_filename):
            site = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    code = getattr(error, "code", None) if isinstance(error, SystemExit) else None
    return {"type": type(error).__name__, "text": str(error)[:500], "at": session.places.text(site) if site else None,
            "exit_code": code if isinstance(code, int) else 0 if code is None and isinstance(error, SystemExit) else 1}


def _loop_json(session, loop):
    segments = loop.segments
    out = {"kind": KIND_NAMES[loop.kind], "file": session.places.shown(loop.site[0]), "line": loop.site[1], "steps": loop.steps,
           "timed_steps": sum(s["steps"] for s in segments), "profile": None}
    if segments:
        out["profile"] = _profile_json(session, segments)
    return out


def _profile_json(session, segments):
    wall = sum(s["wall_s"] for s in segments)
    buckets = {name: sum(s["buckets"][name] for s in segments) for name in BUCKETS}
    times = sorted(t for s in segments for t in s["step_s"])
    percent = (lambda seconds: round(100 * seconds / wall, 2)) if wall else (lambda seconds: None)
    return {
        "wall_s": wall, "sum_s": sum(buckets.values()), "step_ms_median": 1e3 * times[len(times) // 2],
        "cpu_utilisation_percent": percent(sum(s["cpu_s"] for s in segments) / max(1, session.torch.get_num_threads())),
        "overhead_percent": percent(sum(s["overhead_s"] for s in segments)), "profiled": all(s["profiled"] for s in segments),
        "buckets": [{"name": name, "s": seconds, "percent": percent(seconds)} for name, seconds in buckets.items()],
        "lines": [dict(line, file=session.places.shown(line["file"]), percent=percent(line["s"])) for line in
                  _merged(segments, "lines", ("file", "line"), ("s", "io_s"))[:MOST_LINES]],
        "ops": [dict(op, percent=percent(op["s"])) for op in
                _merged(segments, "ops", ("name", "bucket", "pass"), ("s", "calls"))[:MOST_OPS]],
        "modules": [dict(m, percent=percent(m["s"] + m["backward_s"])) for m in
                    _merged(segments, "modules", ("name", "type"), ("s", "calls", "self_s", "backward_s"))[:MOST_MODULES]],
    }


def _merged(segments, table, keys, sums):
    rows = {}
    for segment in segments:
        for row in segment[table]:
            key = tuple(row[k] for k in keys)
            merged = rows.setdefault(key, dict.fromkeys(sums, 0))
            for name in sums:
                merged[name] += row[name]
    out = [dict(zip(keys, key), **values) for key, values in rows.items()]
    return sorted(out, key=lambda row: -row["s"])
