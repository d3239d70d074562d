"""What the script's process tells the doctor's: states of its record, one JSON line each, in a file without a name. The last whole line
counts, so that a process that was killed has said what it knew."""

import json
import os


class Record:
    def __init__(self, number):
        self._number = number
        self._process = os.getpid()

    def write(self, state):
        if os.getpid() != self._process:
            return
        data = (json.dumps(state) + "\n").encode()
        while data:
            data = data[os.write(self._number, data):]


def last_state(file):
    """Of what was written to the file, or None."""
    file.seek(0)
    for line in reversed(file.read().split(b"\n")[:-1]):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return None
