"""`python -m deft`: the deft command of the wheel."""

import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "deft")
if not os.path.exists(program):
    sys.exit("deft: this build of the package has no command; a wheel and ./dev build have one")
os.execv(program, ["deft", *sys.argv[1:]])
