"""Changes to AOTAutograd's graphs before they are divided: the same sums with fewer passes over memory."""

import torch

from ._operators import aten

SUM = aten.add.Tensor
SELECTS, SLICES = aten.select_backward.default, aten.slice_backward.default


def rewrite(gm):
    """In place; whether anything changed."""
    changed = False
    for node in reversed(list(gm.graph.nodes)):
        changed |= join_parts(gm, node) or join_bias(gm, node)
    if changed:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return changed


def terms(node):
    """What a sum adds up, through sums that nobody else reads."""
    if node.target is not SUM or node.kwargs or len(node.args) != 2:
        return [node]
    found = []
    for arg in node.args:
        if not isinstance(arg, torch.fx.Node):
            return [node]
        found += terms(arg) if len(arg.users) == 1 else [arg]
    return found


def join_parts(gm, node):
    """zeros with one part set, for each part, and their sum: the parts side by side. Gradients of x[0], x[1], ..., of
    chunk() and of slices look so. Other terms are added to that."""
    if node.target is not SUM or any(u.target is SUM and len(node.users) == 1 for u in node.users):
        return False  # a larger sum comes first
    found = terms(node)
    groups = {}
    for part in found:
        if part.target in (SELECTS, SLICES) and not part.kwargs and all(isinstance(n, int) for n in part.args[1]):
            groups.setdefault((part.target, tuple(part.args[1]), part.args[2]), []).append(part)
    changed = False
    for (kind, sizes, dim), parts in groups.items():
        whole = are_rows(parts, sizes[dim]) if kind is SELECTS else are_neighbours(parts, sizes[dim])
        if len(parts) < 2 or not whole:
            continue
        with gm.graph.inserting_before(node):
            joined = gm.graph.call_function(aten.stack.default if kind is SELECTS else aten.cat.default,
                                            ([p.args[0] for p in parts], dim))
        joined.meta = dict(node.meta)
        found = [joined] + [t for t in found if t not in parts]
        changed = True
    if changed:
        node.replace_all_uses_with(sum_of(gm, node, found))
    return changed


def sum_of(gm, node, found):
    total = found[0]
    for term in found[1:]:
        with gm.graph.inserting_before(node):
            total = gm.graph.call_function(SUM, (total, term))
        total.meta = dict(node.meta)
    return total


def are_rows(parts, size):
    parts.sort(key=lambda p: p.args[3] % size)
    return [p.args[3] % size for p in parts] == list(range(size))


def are_neighbours(parts, size):
    if any(p.args[5] != 1 or not all(isinstance(v, int) and v >= 0 for v in p.args[3:5]) for p in parts):
        return False
    parts.sort(key=lambda p: p.args[3])
    ends = [0] + [min(p.args[4], size) for p in parts]
    return ends[-1] == size and all(p.args[3] == end for p, end in zip(parts, ends))


def join_bias(gm, node):
    """view(x @ w) + bias as a product with a bias."""
    if node.target is not SUM or node.kwargs or len(node.args) != 2 or not all(isinstance(a, torch.fx.Node) for a in node.args):
        return False
    view, bias = node.args
    if view.target not in (aten.view.default, aten._unsafe_view.default) or len(view.users) != 1:
        return False
    product = view.args[0]
    if product.target is not aten.mm.default or len(product.users) != 1:
        return False
    width = product.meta["val"].shape[1]
    small, whole = bias.meta.get("val"), node.meta["val"]
    if not isinstance(small, torch.Tensor) or small.dim() != 1 or small.shape[0] != width or small.dtype != whole.dtype or (
            not isinstance(width, int)) or view.meta["val"].shape[-1] != width or view.meta["val"].dim() != whole.dim():
        return False
    with gm.graph.inserting_before(node):
        addmm = gm.graph.call_function(aten.addmm.default, (bias, *product.args))
        addmm.meta = dict(product.meta)
        joined = gm.graph.call_function(aten.view.default, (addmm, view.args[1]))
    joined.meta = dict(node.meta)
    node.replace_all_uses_with(joined)
    return True
