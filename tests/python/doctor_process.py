"""Runs scripts under the doctor in forks of a process that has torch already: importing it takes longer than most of the scripts."""

import os
import pathlib
import runpy
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "python" / "deft" / "doctor"
SCRIPTS = pathlib.Path(__file__).resolve().parent / "doctor_scripts"

runpy.run_path(str(FOLDER / "__main__.py"), run_name="loader")["load"](str(FOLDER))
from _deft_doctor import run_script
from _deft_doctor.record import last_state

OPTIONS = {"steps": 20, "after": 2}


class Outcome:
    def __init__(self, state, code, out, err):
        self.state, self.code, self.out, self.err = state, code, out, err

    def findings(self):
        return {(f["id"], f["line"]) for f in self.state["findings"]}


def _child(script, arguments, doctor, record, out, err):
    os.dup2(out, 1)
    os.dup2(err, 2)
    code = 0
    try:
        if doctor:
            run_script.main(record, OPTIONS, [str(script), *arguments])
        else:
            sys.argv = [str(script), *arguments]
            sys.path.insert(0, str(pathlib.Path(script).parent))
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(script, *arguments, doctor=True):
    with tempfile.TemporaryFile() as record, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        number = os.fork()
        if number == 0:
            _child(script, arguments, doctor, record.fileno(), out.fileno(), err.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        out.seek(0)
        err.seek(0)
        return Outcome(last_state(record) if doctor else None, code, out.read(), err.read().decode(errors="replace"))
