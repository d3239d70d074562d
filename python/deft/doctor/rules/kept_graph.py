"""D003: a graph that grows from step to step, as by `total += loss`, or tensors that are kept with theirs, as in a list.

A node holds the nodes it came from. Nodes are numbered in the order in which they are made, so one that reads a node with a number below
that of the step's start reaches into an earlier step; how often that happens on the way down is the number of steps kept alive. Steps are
the optimizer's, or backward passes where there is none. In an evaluation a batch or a call of the model is a round, and only a line that
reaches into its own nodes counts, as long as none of these runs backward: gradient accumulation is such a chain, too."""

import ast
import bisect
import gc
import linecache
import sys
import weakref

from ..findings import Finding, megabytes
from .base import Rule, edges_of, number_of, numbers_below, tensors_in

KEPT_STEPS = 3
SURVIVING_STEPS = 4
MOST_NODES = 200000
NODE_BYTES = 500


class _Chains:
    """Depths of nodes, in steps or in rounds."""

    def __init__(self, sites, same_line):
        self.starts = [0]
        self.lines = {}
        self._sites, self._same_line = sites, same_line
        self._depths = {}

    def epoch(self, number):
        return bisect.bisect_right(self.starts, number)

    def begin(self, number):
        if number > self.starts[-1]:
            self.starts.append(number)

    def look(self, node):
        """Fills in the depth of the node and of all below it."""
        stack = [(node, False)]
        while stack and len(self._depths) < MOST_NODES:
            node, below_known = stack.pop()
            number = number_of(node)
            if number is None or number in self._depths and not below_known:
                continue
            if not below_known:
                self._depths[number] = 0
                stack.append((node, True))
                stack.extend((n, False) for n in edges_of(node))
                continue
            self._depths[number] = max([0] + [self._through(node, number, n) for n in edges_of(node)])

    def _through(self, node, number, source):
        below = number_of(source)
        if below is None:
            return 0
        depth = self._depths.get(below, 0)
        if self.epoch(below) >= self.epoch(number):
            return depth
        site = self._sites.of(number)
        if site is None or self._same_line and self._sites.of(below) != site:
            return depth
        line = self.lines.setdefault(site, {"deepest": 0, "epochs": set(), "bytes": 0, "nodes": 0, "ran": False, "op": self._sites.op(number),
                                            "numbers": set()})
        line["deepest"] = max(line["deepest"], depth + 1)
        line["epochs"].add(self.epoch(number))
        line["numbers"].add(number)
        if depth + 1 >= 2:
            line["bytes"], line["nodes"] = self._held_by(source, self.epoch(below))
        return depth + 1

    def _held_by(self, node, epoch):
        """Bytes that the nodes of one step keep alive from here, without parameters, and their number."""
        todo, seen, storages = [node], {node}, {}
        while todo and len(seen) < 5000:
            node = todo.pop()
            for tensor in _saved(node):
                if not (tensor.is_leaf and tensor.requires_grad):
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
            for inner in edges_of(node):
                number = number_of(inner)
                if inner not in seen and number is not None and self.epoch(number) == epoch:
                    seen.add(inner)
                    todo.append(inner)
        return sum(storages.values()) + NODE_BYTES * len(seen), len(seen)


def _saved(node):
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except (RuntimeError, AttributeError):
                continue  # freed by backward
            for tensor in value if isinstance(value, tuple) else (value,):
                if hasattr(tensor, "untyped_storage"):
                    yield tensor


class _Sites:
    """Lines of nodes, by their numbers."""

    def __init__(self):
        self._numbers, self._places = [], []

    def add(self, number, site, op):
        if self._numbers and number <= self._numbers[-1] or len(self._numbers) > MOST_NODES:
            return
        self._numbers.append(number)
        self._places.append((site, op))

    def _at(self, number):
        at = bisect.bisect_right(self._numbers, number) - 1
        return self._places[at] if at >= 0 else (None, "")

    def of(self, number):
        return self._at(number)[0]

    def op(self, number):
        return self._at(number)[1]


class KeptGraph(Rule):
    def __init__(self, session):
        super().__init__(session)
        self._sites = _Sites()
        self._made = []  # weak references to what recorded ops returned
        self._by_step, self._by_round = _Chains(self._sites, False), _Chains(self._sites, True)
        self._has_optimizer = self._has_loader = False
        self._called = set()
        self._survivors = {}  # site where the tensors were made -> numbers of them at the ends of steps
        self._places = {}  # the same -> the line that keeps them

    def op_ran(self, func, args, kwargs, out, site):
        if self._session.in_backward or site is None or not self._torch.is_grad_enabled():
            return
        if any(t.requires_grad for t in tensors_in(args, self._torch.Tensor)):
            self._sites.add(self._session.seq() - 1, site, func._schema.name.split("::")[-1])
            self._made.extend(weakref.ref(t) for t in tensors_in([out], self._torch.Tensor))

    def backward_begins(self, roots, site):
        lines = [line for line in self._by_round.lines.values() if not line["ran"]]
        if lines and self._session.looking:
            numbers = numbers_below([r.grad_fn for r in roots if r.grad_fn is not None])
            for line in lines:
                line["ran"] = bool(line["numbers"] & numbers)

    def backward_ends(self, site):
        if not self._has_optimizer and self._session.looking:
            self._end(self._by_step)

    def optimizer_ends(self, optimizer, site):
        if not self._has_optimizer:
            self._has_optimizer = True
            self._by_step = _Chains(self._sites, False)
        self._end(self._by_step)

    def batch_loaded(self, iterator, batch, seconds, site):
        self._has_loader = True
        if self._session.looking:
            self._end(self._by_round)

    def module_begins(self, module, inputs, depth, site):
        if depth != 1 or self._has_loader:
            return
        if id(module) in self._called:
            self._called = set()
            self._end(self._by_round)
        self._called.add(id(module))

    def looked(self):
        self._scan()
        self._made = []

    def script_ends(self, error):
        if self._session.looking:
            self._end(self._by_round)

    def _end(self, chains):
        alive = self._scan()
        if chains is (self._by_step if len(self._by_step.starts) > 1 else self._by_round):
            self._count_survivors(chains, alive)
        chains.begin(self._session.seq())

    def _scan(self):
        """What recorded ops returned and is still there, after a look at its graph."""
        alive = [(ref, ref()) for ref in self._made]
        self._made = [ref for ref, t in alive if t is not None]
        alive = [t for _, t in alive if t is not None and t.grad_fn is not None]
        for t in alive:
            self._by_step.look(t.grad_fn)
            self._by_round.look(t.grad_fn)
        return alive

    def _count_survivors(self, chains, alive):
        """Of earlier steps, by the line that made them."""
        by_site = {}
        for t in alive:
            number = number_of(t.grad_fn)
            site = self._sites.of(number) if number is not None else None
            if site is not None and chains.epoch(number) < len(chains.starts):
                by_site.setdefault(site, []).append(t)
        for site, tensors in by_site.items():
            counts = self._survivors.setdefault(site, [])
            counts.append(len(tensors))
            if len(counts) >= SURVIVING_STEPS and site not in self._places:
                self._places[site] = holder_line(tensors[0], self._session.places)
        for site in self._survivors:
            if site not in by_site:
                self._survivors[site] = []

    def report(self, findings):
        named = set()
        for chains, unit in ((self._by_step, "step"), (self._by_round, "call")):
            for site, line in chains.lines.items():
                if line["deepest"] < KEPT_STEPS or line["ran"] or site in named:
                    continue
                named.add(site)
                findings.append(Finding(
                    "D003", site, "{} at this line keeps the graph of every {}: those of {} earlier ones hang on its result, and each adds {}."
                    .format(line["op"], unit, line["deepest"], megabytes(line["bytes"])), count=len(line["epochs"]),
                    figures={"mb_per_step": line["bytes"] / 1e6, "steps_kept": line["deepest"], "nodes_per_step": line["nodes"]},
                    gain=(1.0, 1.1, "low", "the loop")))
        if not named:
            self._report_survivors(findings)

    def _report_survivors(self, findings):
        for site, counts in self._survivors.items():
            if not _rises(counts):
                continue
            place = self._places.get(site) or site
            each = counts[-1] / len(counts)
            findings.append(Finding(
                "D003", place, "tensors made at {} are kept with their graphs from step to step: {} were alive after {} steps.".format(
                    self._text(site), counts[-1], len(counts)), count=counts[-1], figures={"tensors_per_step": round(each, 2)},
                gain=(1.0, 1.1, "low", "the loop")))


def _rises(counts):
    return len(counts) >= SURVIVING_STEPS and sum(b > a for a, b in zip(counts, counts[1:])) >= len(counts) - 2


def holder_line(tensor, places):
    """The line that puts it into the list that holds it, or None."""
    for holder in gc.get_referrers(tensor):
        if type(holder) is list:
            for name, frame_file in _names_of(holder, places):
                line = _append_line(name, frame_file)
                if line:
                    return frame_file, line
    return None


def _names_of(holder, places):
    frame = sys._getframe()
    while frame is not None:
        if places.is_users(frame.f_code.co_filename):
            for scope in (frame.f_locals, frame.f_globals):
                for name, value in list(scope.items()):
                    if value is holder:
                        yield name, frame.f_code.co_filename
                    elif getattr(value, "__dict__", None) and any(v is holder for v in vars(value).values()):
                        for attribute, v in vars(value).items():
                            if v is holder:
                                yield attribute, frame.f_code.co_filename
        frame = frame.f_back


def _append_line(name, file):
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend", "insert"):
            owner = node.func.value
            if getattr(owner, "id", None) == name or getattr(owner, "attr", None) == name:
                return node.lineno
        if isinstance(node, ast.AugAssign) and (getattr(node.target, "id", None) == name or getattr(node.target, "attr", None) == name):
            return node.lineno
    return None


RULES = [KeptGraph]
