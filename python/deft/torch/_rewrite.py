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
    for node in list(gm.graph.nodes):
        changed |= turn_early(gm, node) or split_early(gm, node)
    if changed:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return changed


CHECKS = {getattr(aten, n).default for n in ("_assert_scalar", "_assert_async", "_assert_tensor_metadata",
                                             "sym_constrain_range", "sym_constrain_range_for_size") if hasattr(aten, n)}


def drop_checks(gm):
    """What torch asserts of sizes: the file knows their ranges."""
    for node in reversed(list(gm.graph.nodes)):
        if node.target in CHECKS and not node.users:
            gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()


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


# --- views

VIEW_NODES = (aten.view.default, aten._unsafe_view.default)


def order_of(node):
    """A permute's or transpose's order of dimensions; None for others."""
    rank = node.meta["val"].dim() if isinstance(node.meta.get("val"), torch.Tensor) else 0
    if node.target is aten.permute.default:
        return [d % rank for d in node.args[1]]
    if node.target is aten.transpose.int and rank:
        order = list(range(rank))
        a, b = node.args[1] % rank, node.args[2] % rank
        order[a], order[b] = b, a
        return order
    return None


def sizes_of(node):
    sizes = list(node.meta["val"].shape)
    return sizes if all(isinstance(n, int) for n in sizes) else None


def groups_of(sizes, finer):
    """For each size the consecutive finer ones whose product it is; None where there are no such."""
    groups, rest = [], list(finer)
    for size in sizes:
        group, product = [], 1
        while rest and (product != size or not group):
            group.append(rest.pop(0))
            product *= group[-1]
        if product != size:
            return None
        groups.append(group)
    return groups if not rest else None


def split_early(gm, node):
    """view, permute, view that splits again: split, then permute. What lies between would be a copy where the first view
    joins what is not side by side, as heads and batch of attention."""
    if node.target not in VIEW_NODES:
        return False
    turned = node.args[0]
    order = order_of(turned)
    joined = turned.args[0] if order else None
    if not order or joined.target not in VIEW_NODES or sorted(order) == order:
        return False
    before, after = sizes_of(turned), sizes_of(node)
    groups = groups_of(before, after) if before and after and all(n > 0 for n in after) else None
    if not groups or len(after) == len(before):
        return False
    place = {d: i for i, d in enumerate(order)}  # where a dimension of `joined` is afterwards
    finer = [groups[place[d]] for d in range(len(order))]
    starts, start = [], 0
    for group in finer:
        starts.append(start)
        start += len(group)
    new_order = [starts[d] + k for d in order for k in range(len(finer[d]))]
    with gm.graph.inserting_before(node):
        split = gm.graph.call_function(aten.view.default, (joined.args[0], [n for group in finer for n in group]))
        split.meta["val"] = joined.meta["val"].new_empty([n for group in finer for n in group])
        result = gm.graph.call_function(aten.permute.default, (split, new_order))
    result.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    return True


def turn_early(gm, node):
    """stack() and a permute of it: the parts permuted, then side by side as they are wanted. One copy instead of two."""
    if node.target is not aten.stack.default or not all(sizes_of(p) for p in node.args[0]):
        return False
    rank = node.meta["val"].dim()
    dim = (node.args[1] if len(node.args) > 1 else 0) % rank
    labels, last = list(range(rank)), node
    while len(last.users) == 1:
        (user,) = last.users
        found = follow(user, labels)
        if found is None:
            break
        labels, last = found, user
    real = [d for d in labels if d is not None]
    if last is node or real == list(range(rank)):
        return False
    order = [d - (d > dim) for d in real if d != dim]
    with gm.graph.inserting_before(last):
        parts = []
        for part in node.args[0]:
            parts.append(gm.graph.call_function(aten.permute.default, (part, order)))
            parts[-1].meta["val"] = part.meta["val"].permute(order)
        result = gm.graph.call_function(aten.stack.default, (parts, real.index(dim)))
        result.meta["val"] = node.meta["val"].permute(real)
        for place, label in enumerate(labels):
            if label is None:
                value = result.meta["val"].unsqueeze(place)
                result = gm.graph.call_function(aten.unsqueeze.default, (result, place))
                result.meta["val"] = value
    result.meta = dict(last.meta)
    last.replace_all_uses_with(result)
    return True


def follow(node, labels):
    """Which dimensions are where after a node that only turns them; None for a new one of size 1."""
    order = order_of(node)
    if order:
        return [labels[d] for d in order]
    if node.target is aten.clone.default and node.kwargs.get("memory_format") is not torch.channels_last:
        return labels
    if node.target is aten.unsqueeze.default:
        at = node.args[1] % (len(labels) + 1)
        return labels[:at] + [None] + labels[at:]
    if node.target in (aten.squeeze.dim, aten.squeeze.dims):
        dims = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
        dims = {d % len(labels) for d in dims}
        if all(labels[d] is None for d in dims):
            return [label for d, label in enumerate(labels) if d not in dims]
    return None
