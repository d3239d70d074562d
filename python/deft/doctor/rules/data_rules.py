"""D018, D020: batches that are mostly padding, and loops that wait for them."""

import time

from ..findings import Finding
from .base import Rule
from .loop_rules import cpus_here


class PaddingWaste(Rule):
    """D018: by attention masks, by the equal ends of rows of whole numbers, by pad_sequence."""

    WASTE, BATCHES = 0.3, 8

    def __init__(self, session):
        super().__init__(session)
        self._lines = {}
        self._made_at = {}
        self._of = {}

    def loader_made(self, loader, site):
        self._made_at[id(loader)] = site

    def loader_iter(self, loader, iterator):
        self._of[id(iterator)] = self._made_at.get(id(loader))

    def padded(self, lengths, longest, site):
        self._count(site, sum(lengths), longest * len(lengths), None)

    def batch_loaded(self, iterator, batch, seconds, site):
        if not self._session.looking or site is None:
            return
        places = _padding(self._torch, batch)
        if places:
            self._count(site, places[0], places[1], self._of.get(id(iterator)))

    def _count(self, site, tokens, places, made_at):
        if site is None:
            return
        line = self._lines.setdefault(site, {"batches": 0, "tokens": 0, "places": 0, "made_at": made_at})
        line["batches"] += 1
        line["tokens"] += tokens
        line["places"] += places

    def report(self, findings):
        for site, line in self._lines.items():
            if line["batches"] < self.BATCHES - 1 or not line["places"]:
                continue
            waste = 1 - line["tokens"] / line["places"]
            if waste <= self.WASTE:
                continue
            made = " Its loader is made at {}.".format(self._text(line["made_at"])) if line["made_at"] else ""
            findings.append(Finding("D018", site, "{:.1f} % of the places in {} batches are padding, which is computed like the rest.{}".format(
                100 * waste, line["batches"], made), count=line["batches"], figures={"waste_percent": 100 * waste, "places": line["places"]},
                gain=(1 / (1 - 0.3 * waste), 1 / (1 - 0.9 * waste), "medium", "the loop")))


def _padding(torch, batch):
    """(tokens, places), or None where nothing looks padded."""
    if hasattr(batch, "keys"):
        for key in ("attention_mask", "mask", "src_mask", "padding_mask"):
            mask = batch[key] if key in batch else None
            if isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[1] > 1:
                return int((mask != 0).sum()), mask.numel()
        batch = list(batch.values())
    for t in batch if isinstance(batch, (list, tuple)) else [batch]:
        if isinstance(t, torch.Tensor) and t.dim() == 2 and t.shape[0] > 1 and t.shape[1] >= 8 and t.dtype in (torch.int64, torch.int32):
            return _equal_ends(torch, t)
    return None


def _equal_ends(torch, t):
    """Rows that end with the same number in several places, beside one that does not."""
    pad = t[:, -1].mode().values
    kept = (t != pad).flip(1).to(torch.int32).cummax(1).values.sum(1)
    longest, padded = int(kept.max()), int((kept < t.shape[1] - 1).sum())
    if longest < t.shape[1] - 1 or padded * 2 < t.shape[0]:
        return None
    return int(kept.sum()), t.numel()


class DataBoundLoop(Rule):
    """D020"""

    WAITING, LEAST_SECONDS, WARM_UP, LEAST_BATCHES = 0.2, 0.2, 2, 8

    def __init__(self, session):
        super().__init__(session)
        self._loops = {}
        self._loaders = {}
        self._made_at = {}

    def loader_made(self, loader, site):
        self._made_at[id(loader)] = site

    def loader_iter(self, loader, iterator):
        self._loaders[id(iterator)] = (self._made_at.get(id(loader)), getattr(loader, "num_workers", 0))
        if len(self._loaders) > 1000:
            self._loaders.clear()

    def batch_loaded(self, iterator, batch, seconds, site):
        now = time.perf_counter()
        made_at, workers = self._loaders.get(id(iterator), (None, 0))
        loop = self._loops.setdefault((site, made_at), {"batches": 0, "steps": 0, "waited": 0.0, "elapsed": 0.0, "last": None, "workers": workers,
                                                        "iterator": None})
        loop["batches"] += 1
        same = loop["iterator"] == id(iterator) and not self._session.looking and not loop.get("looked")
        if loop["batches"] > self.WARM_UP and same and loop["last"] is not None:
            loop["steps"] += 1
            loop["waited"] += seconds
            loop["elapsed"] += now - loop["last"]
        loop["last"], loop["iterator"], loop["looked"] = now, id(iterator), self._session.looking

    def report(self, findings):
        for (site, made_at), loop in self._loops.items():
            if site is None or loop["steps"] < self.LEAST_BATCHES or loop["elapsed"] < self.LEAST_SECONDS:
                continue
            share = loop["waited"] / loop["elapsed"]
            if share <= self.WAITING:
                continue
            how = "num_workers=0 loads in the loop itself" if loop["workers"] == 0 else "it has {} worker{}".format(
                loop["workers"], "" if loop["workers"] == 1 else "s")
            made = " Its loader is made at {}: {}.".format(self._text(made_at), how) if made_at else ""
            low, high = _gain(share, cpus_here())
            findings.append(Finding("D020", site, "The loop waits for batches {:.0f} % of its time: {:.2f} of {:.2f} ms per step.{}".format(
                100 * share, 1e3 * loop["waited"] / loop["steps"], 1e3 * loop["elapsed"] / loop["steps"], made), count=loop["steps"],
                figures={"waiting_percent": 100 * share, "wait_ms_per_step": 1e3 * loop["waited"] / loop["steps"],
                         "step_ms": 1e3 * loop["elapsed"] / loop["steps"], "num_workers": loop["workers"]},
                gain=(low, high, "medium", "the loop"), cure_at=made_at))


def _gain(share, cpus):
    """Workers overlap loading with the rest; as many as there are CPUs load side by side."""
    best = max(1 - share, share / max(1, cpus))
    return 1 + 0.2 * share, 1 / max(best, 0.02)


RULES = [PaddingWaste, DataBoundLoop]
