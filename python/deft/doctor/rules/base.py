"""What rules share."""

import collections


class Rule:
    waiting = False  # for what becomes of something it saw

    def __init__(self, session):
        self._session = session
        self._torch = session.torch

    def report(self, findings):
        raise NotImplementedError

    def _text(self, site):
        return self._session.places.text(site)


def tensors_in(values, kind):
    for value in values:
        if isinstance(value, kind):
            yield value
        elif isinstance(value, (list, tuple)):
            for inner in value:
                if isinstance(inner, kind):
                    yield inner


def name_of(func):
    """'aten.add' of aten.add.Tensor"""
    return func._schema.name.split("::")[-1]


class Lines(collections.OrderedDict):
    """A finding for each line: the first one's message, and how often."""

    def add(self, site, message, **more):
        if site in self:
            self[site]["count"] += 1
        else:
            self[site] = dict(message=message, count=1, **more)


def edges_of(node):
    return [n for n, _ in node.next_functions if n is not None]


def number_of(node):
    """The sequence number of a node; None of one that has none: a leaf's, or a custom function's of an older torch."""
    get = getattr(node, "_sequence_nr", None)
    number = get() if get is not None else None
    return number if number is not None and number < 1 << 62 else None


def numbers_below(roots, limit=100000):
    """Sequence numbers of all nodes that a backward pass from these would run."""
    todo, seen, numbers = list(roots), set(roots), set()
    while todo and len(seen) < limit:
        node = todo.pop()
        number = number_of(node)
        if number is not None:
            numbers.add(number)
        for inner in edges_of(node):
            if inner not in seen:
                seen.add(inner)
                todo.append(inner)
    return numbers
