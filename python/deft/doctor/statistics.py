"""Which of two ways is faster, from pairs of times taken in turn: the median of the pairs' ratios and the sign test's interval for it, as in
src/doctor/trial.cpp, which this follows."""

import math

CONFIDENCE = 0.99
FIRST_LOOK = 8  # fewer pairs have no interval of that confidence
LEAST, MOST = 0.02, 0.04  # a difference below LEAST is none; one surely below MOST is looked into no further
UNSTEADY = 0.1


def next_look(pairs):
    """Looks are rare, since each is a chance to be wrong."""
    return FIRST_LOOK if pairs < FIRST_LOOK else (pairs * 7 // 5 + 1) // 2 * 2


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(values):
    """(low, high): holds the median in at least CONFIDENCE of all cases."""
    ordered, low, high, below = sorted(values), -math.inf, math.inf, 0.0
    for k in range(len(ordered) // 2):
        below += math.comb(len(ordered), k) * 0.5 ** len(ordered)
        if 2 * below > 1 - CONFIDENCE:
            break
        low, high = ordered[k], ordered[-1 - k]
    return low, high


def spread(values):
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / 2 if len(ordered) > 1 else 0.0


class Pairs:
    """Seconds of the same steps, before and after."""

    def __init__(self):
        self.before, self.after = [], []

    def add(self, before, after):
        self.before.append(before)
        self.after.append(after)

    def __len__(self):
        return len(self.before)

    def _ratios(self):
        return [math.log(b / a) for b, a in zip(self.before, self.after)]

    def result(self):
        """(speed-up, low, high, verdict)"""
        if not self.before:
            return None, None, None, "undecided"
        ratios = self._ratios()
        low, high = median_interval(ratios)
        speedup, low, high = math.exp(median(ratios)), math.exp(low), math.exp(high) if high < math.inf else math.inf
        clear = spread(ratios) <= UNSTEADY or abs(math.log(speedup)) > spread(ratios)
        verdict = "undecided"
        if clear and low > 1 and speedup >= 1 + LEAST:
            verdict = "helps"
        elif clear and high < 1 and speedup <= 1 / (1 + LEAST):
            verdict = "hurts"
        elif low > 1 / (1 + MOST) and high < 1 + MOST:
            verdict = "no difference"
        return speedup, low, high, verdict
