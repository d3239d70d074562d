"""The rules: each has methods named after what a session tells, and `report(findings)` at the end. The C++ doctor has the same ones for
programs on Deft (src/doctor/*_rules.cpp)."""

from . import data_rules, grad_rules, kept_graph, loop_rules, module_rules, time_rules


def make_rules(session):
    kinds = grad_rules.RULES + kept_graph.RULES + module_rules.RULES + loop_rules.RULES + data_rules.RULES + time_rules.RULES
    return [kind(session) for kind in kinds]
