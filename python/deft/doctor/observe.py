"""The process in which the script runs: `observe.py RECORD OPTIONS SCRIPT [arguments]`. RECORD is the number of an open file."""

import importlib
import json
import os
import runpy
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    del sys.path[0]
    runpy.run_path(os.path.join(here, "__main__.py"), run_name="loader")["load"](here)
    importlib.import_module("_deft_doctor.run_script").main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
