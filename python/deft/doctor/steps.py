"""The steps of a script's loops, from what comes again and again: batches of a loader, steps of an optimizer, backward passes, calls of
a model. The surest of these signs that is there counts."""

BATCH, OPTIMIZER, BACKWARD, FORWARD, NONE = range(5)
KIND_NAMES = ("batches", "optimizer steps", "backward passes", "calls of a model")
GONE_AFTER = 64  # lesser signs of one kind: the surer one will not come again


class Steps:
    def __init__(self):
        self.kind = NONE
        self.number = 0
        self.signs = set()  # (kind, site) of this step
        self._seen = set()
        self._lesser = {}

    def happened(self, kind, what, site):
        """The signs of the step that ends here, or None. What happened belongs to the next step then."""
        ended = None
        if self._begins(kind, what):
            ended, self.signs = self.signs, set()
            self.number += 1
            self._seen, self._lesser = {what}, {}
        self.signs.add((kind, site))
        return ended

    def _begins(self, kind, what):
        if kind < self.kind:
            self.kind = kind
            return True
        if kind == self.kind:
            again = what in self._seen
            self._seen.add(what)
            return again
        count = self._lesser[what] = self._lesser.get(what, 0) + 1
        if count > GONE_AFTER:
            self.kind = kind
            return True
        return False
