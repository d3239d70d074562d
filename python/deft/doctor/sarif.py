"""Findings as SARIF 2.1.0, as the C++ doctor writes them."""

import json
import os
import urllib.parse

from . import rule_texts


def text_of(report):
    table = list(rule_texts.table().values())
    index = {rule["id"]: i for i, rule in enumerate(table)}
    run = {"tool": {"driver": {"name": "deft doctor", "rules": [_rule(rule) for rule in table]}},
           "originalUriBaseIds": {"SRCROOT": {"uri": "file://" + urllib.parse.quote(os.getcwd()) + "/"}},
           "results": [_result(f, index) for f in report["findings"]]}
    return json.dumps({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule):
    return {"id": rule["id"], "name": rule["name"], "shortDescription": {"text": rule["title"]}, "fullDescription": {"text": rule["story"]},
            "help": {"text": "{}\n\nWhat to do: {}".format(rule["story"], rule["fix"])}, "defaultConfiguration": {"level": rule["severity"]}}


def _result(f, index):
    result = {"ruleId": f["id"], "ruleIndex": index[f["id"]], "level": f["severity"], "message": {"text": f["message"] + " " + f["fix"]},
              "occurrenceCount": f["count"], "properties": f["figures"]}
    if f["file"]:
        path = f["file"].replace(os.sep, "/")
        artifact = {"uri": "file://" + urllib.parse.quote(path)} if os.path.isabs(f["file"]) else {"uri": urllib.parse.quote(path), "uriBaseId": "SRCROOT"}
        region = {"startLine": max(1, f["line"])}
        if f["expression"]:
            region["snippet"] = {"text": f["expression"]}
        result["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]
    return result
