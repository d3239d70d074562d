"""What the doctor found, with the texts of the rules in the C++ table."""

from . import rule_texts
from .places import expression


class Finding:
    def __init__(self, rule, site, message, severity=None, count=1, figures=None, gain=None, cure_at=None):
        """`gain`: (low, high, confidence, of what): how many times as fast the loop may become. `cure_at`: where the cure goes, if elsewhere."""
        self.id, self.site, self.message = rule, site, message
        self.severity = severity or rule_texts.of(rule)["severity"]
        self.count, self.figures, self.gain = count, figures or {}, gain
        self.cure_at = cure_at or site

    def json(self, places):
        text = rule_texts.of(self.id)
        predicted = None
        if self.gain:
            low, high, confidence, what = self.gain
            predicted = {"speedup_low": round(low, 3), "speedup_high": round(high, 3), "confidence": confidence, "of": what}
        return {"id": self.id, "name": text["name"], "severity": self.severity,
                "file": places.shown(self.site[0]) if self.site else None, "line": self.site[1] if self.site else None,
                "expression": expression(self.site) or None, "message": self.message, "fix": text["fix"], "count": self.count,
                "figures": self.figures, "predicted": predicted, "measured": None,
                "cure_at": {"file": places.shown(self.cure_at[0]), "line": self.cure_at[1]} if self.cure_at else None}


def megabytes(count):
    mb = count / 1e6
    return "{:.1f} MB".format(mb) if mb >= 0.1 else "{:.3g} MB".format(mb)


def listed(names):
    """'a, b, c and 4 more'"""
    shown = ", ".join(names[:3])
    return shown + " and {} more".format(len(names) - 3) if len(names) > 3 else shown
