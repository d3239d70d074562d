"""The report in files: JSON, SARIF or a page, by the ending."""

import json
import os

from . import report_html, sarif
from .script import BadScript

WRITERS = {".json": lambda report: json.dumps(report, indent=2) + "\n", ".sarif": sarif.text_of, ".html": report_html.page_of}


def check(paths):
    """Before anything runs. Raises BadScript."""
    for path in paths:
        if os.path.splitext(path)[1].lower() not in WRITERS:
            raise BadScript("--report {}: expected a name that ends with .json, .sarif or .html".format(path))
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise BadScript("--report {}: there is no folder {}; make it first".format(path, folder))
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise BadScript("--report {}: it cannot be written; check the permissions".format(path))


def write(path, report):
    text = WRITERS[os.path.splitext(path)[1].lower()](report)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
