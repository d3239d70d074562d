"""Sizes that an exported program leaves open: which there are, and inputs in other sizes."""

import inspect
import itertools

import sympy
import torch
from torch.utils._pytree import tree_leaves, tree_map

MOST_OPEN = 3  # there is a program for each choice of those that are 1
MOST_TRIES = 8  # captures from which the rules of a file are learned
STEPS = (0, 1, 3, 5, 9, 11, 15, 17, 21, 27)


def leaves(args, kwargs):
    return [t for t in tree_leaves((tuple(args), kwargs or {})) if isinstance(t, torch.Tensor)]


class OpenSizes:
    """The symbols in the shapes of a program's inputs."""

    def __init__(self, program, shapes, tensors):
        self.shapes = [[s.node.expr if isinstance(s, torch.SymInt) else s for s in shape] for shape in shapes]
        self.tensors = tensors
        self.given, self.places = {}, {}
        for i, (shape, t) in enumerate(zip(self.shapes, tensors)):
            for d, (size, n) in enumerate(zip(shape, t.shape)):
                self._meet(size, n, (i, d))
        self.ranges = {s: program.range_constraints.get(s) for s in self.given}

    def _meet(self, size, n, place):
        symbols = getattr(size, "free_symbols", ())
        if len(symbols) != 1:
            return
        (symbol,) = symbols
        if size == symbol:
            self.places.setdefault(symbol, place)
        if symbol not in self.given:
            self.given[symbol] = int(sympy.solve(size - n, symbol)[0])

    def bounds(self, symbol):
        found = self.ranges[symbol]
        low, high = (found.lower, found.upper) if found is not None else (2, sympy.oo)
        return max(2, int(low)), int(high) if high < 1 << 40 else 1 << 40

    def that_may_be_one(self):
        """torch.export traces sizes of 2 and more, and says so as if 1 were forbidden."""
        return [s for s, found in self.ranges.items() if s in self.places and (found is None or found.lower <= 2)]

    def limits(self, ones):
        """(input, dimension, least, most), for the file; `ones` may be 1 as well."""
        return [(*place, 1 if s in ones else self.bounds(s)[0], self.bounds(s)[1]) for s, place in self.places.items()]

    def calls(self):
        """Sizes for each call of which the file learns; each size another every time, and other than the others'."""
        choices = []
        for k, symbol in enumerate(self.given):
            low, high = self.bounds(symbol)
            steps = STEPS[k % 3:] + STEPS[:k % 3]
            values = [n for n in (self.given[symbol], *(low + s for s in steps)) if low <= n <= high]
            choices.append(list(dict.fromkeys(values)))
        for i in range(MOST_TRIES):
            yield dict(zip(self.given, (values[i % len(values)] for values in choices)))

    def few(self):
        """All sizes there may be, where they are few; None otherwise."""
        spans = [range(low, high + 1) for low, high in map(self.bounds, self.given)]
        count = 1
        for span in spans:
            count *= len(span)
        return [dict(zip(self.given, n)) for n in itertools.product(*spans)] if count < MOST_TRIES else None

    def inputs(self, sizes):
        """The inputs that were given, cut off or repeated."""
        return [resized(t, [int(s.subs(sizes)) if isinstance(s, sympy.Expr) else int(s) for s in shape])
                for t, shape in zip(self.tensors, self.shapes)]


def resized(t, shape):
    given = t
    for d, n in enumerate(shape):
        if t.shape[d] != n:
            t = t.index_select(d, torch.arange(n) % t.shape[d])
    is_last = given.dim() == 4 and given.is_contiguous(memory_format=torch.channels_last) and not given.is_contiguous()
    return t.contiguous(memory_format=torch.channels_last) if is_last else t


def with_ones(model, args, kwargs, open_sizes, ones):
    """The arguments with these sizes 1, and what of them stays open, for torch.export."""
    sizes = {s: 1 if s in ones else n for s, n in open_sizes.given.items()}
    made = iter(zip(open_sizes.inputs(sizes), open_sizes.shapes))
    specs = {}

    def replace(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        t, shape = next(made)
        specs[id(t)] = {d: torch.export.Dim.AUTO for d, s in enumerate(shape)
                        if getattr(s, "free_symbols", None) and not s.free_symbols & ones}
        return t

    args, kwargs = tree_map(replace, (tuple(args), kwargs or {}))
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    return args, kwargs, {name: tree_map(lambda t: specs.get(id(t)), value) for name, value in bound.arguments.items()}
