"""Masks of attention that hold no data: transformers build the causal mask, or one that hides nothing, from ranges and comparisons.
They are computed once, when a graph is compiled, and what they mean is told to the attention instead."""

import torch

SDPA = torch.nn.functional.scaled_dot_product_attention
MOST_NODES, MOST_VALUES = 200, 2**26

# What depends on the shape, type and device of its first argument alone.
OF_SHAPE = {"new_ones", "new_zeros", "new_full", "ones_like", "zeros_like", "full_like"}
PURE = OF_SHAPE | {
    "arange", "full", "ones", "zeros", "tensor", "tril", "triu", "le", "lt", "ge", "gt", "eq", "ne", "and_", "or_", "and", "or", "xor",
    "invert", "not_", "bitwise_and", "bitwise_or", "bitwise_not", "logical_and", "logical_or", "logical_not", "add", "sub", "mul",
    "cumsum", "diff", "cat", "stack", "where", "masked_fill", "getitem", "expand", "view", "reshape", "unsqueeze", "squeeze",
    "transpose", "permute", "to", "bool", "float", "long", "int", "type", "contiguous", "clone", "expand_as", "broadcast_to", "repeat",
    "index", "select", "slice", "narrow", "type_as", "flatten", "__and__", "__or__"}


class NotConstant(Exception):
    pass


def name_of(node):
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", "").removesuffix("_default")


def writes(node):
    """Whether it may write to an argument: x.add_(1), x[0] = 1, x += 1, f(..., out=x)."""
    name = name_of(node)
    in_place = name == "setitem" or name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "iand", "ior", "ixor", "ipow", "imod")
    in_place |= name.endswith("_") and not name.endswith("__") and getattr(node.target, "__module__", None) != "_operator"
    return node.op.startswith("call_") and (in_place or "out" in node.kwargs)


def memory_of(node):
    """What the tensors of all views of the same memory share."""
    example = node.meta.get("example_value")
    return example.untyped_storage()._cdata if isinstance(example, torch.Tensor) else None


def written(graph):
    """Memory that some node may write to."""
    return {memory_of(n) for node in graph.nodes if writes(node) for n in node.all_input_nodes} - {None}


class Evaluation:
    """Values of nodes that no argument of the graph reaches."""

    def __init__(self, graph):
        self.values, self.written = {}, written(graph)

    def of(self, node):
        if node not in self.values:
            if len(self.values) > MOST_NODES:
                raise NotConstant
            self.values[node] = self._compute(node)
        return self.values[node]

    def _compute(self, node):
        example = node.meta.get("example_value")
        if node.op not in ("call_function", "call_method") or name_of(node) not in PURE or memory_of(node) in self.written:
            raise NotConstant
        if isinstance(example, torch.Tensor):
            if not all(isinstance(n, int) for n in example.shape) or example.numel() > MOST_VALUES:
                raise NotConstant
        args, kwargs = list(node.args), dict(node.kwargs)
        if name_of(node) in OF_SHAPE and args and isinstance(args[0], torch.fx.Node):
            like = args[0].meta.get("example_value")
            if not isinstance(like, torch.Tensor) or not all(isinstance(n, int) for n in like.shape):
                raise NotConstant
            args[0] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        args, kwargs = torch.fx.map_arg((tuple(args), kwargs), self.of)
        if any(isinstance(leaf, torch.SymInt) for leaf in torch.utils._pytree.tree_leaves((args, kwargs))):
            raise NotConstant
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)


def meaning(mask):
    """What a mask [..., queries, keys] says: "all", "causal", or None for anything else."""
    if mask.dim() < 2 or mask.numel() == 0:
        return None
    if mask.is_floating_point():
        hidden = mask <= torch.finfo(mask.dtype).min
        if not bool((hidden | (mask == 0)).all()):
            return None
        mask = ~hidden
    elif mask.dtype != torch.bool:
        return None
    if bool(mask.all()):
        return "all"
    queries, keys = mask.shape[-2:]
    causal = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    return "causal" if queries <= keys and bool((mask == causal).all()) else None


def arguments_of(node):
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    return {**dict(zip(names, node.args)), **node.kwargs}


def explain_mask(node, evaluation):
    given = arguments_of(node)
    mask = given.get("attn_mask")
    if not isinstance(mask, torch.fx.Node) or given.get("is_causal"):
        return None
    queries, keys = (given[name].meta["example_value"].shape[-2] for name in ("query", "key"))
    try:
        value = evaluation.of(mask)
    except NotConstant:
        return None
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return None
    found = meaning(value)
    # A mask of one row or column says nothing about positions.
    return found if found == "all" or found and tuple(value.shape[-2:]) == (queries, keys) else None


def simplify_masks(gm):
    """In a graph of Dynamo: attention without a mask where it hides nothing, and causal where that is what it says."""
    evaluation = Evaluation(gm.graph)
    changed = False
    with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
        for node in gm.graph.find_nodes(op="call_function", target=SDPA):
            found = explain_mask(node, evaluation)
            if not found:
                continue
            given = arguments_of(node)
            given["attn_mask"] = None
            if found == "causal":
                given["is_causal"] = True
            node.args, node.kwargs = (given.pop("query"), given.pop("key"), given.pop("value")), given
            changed = True
    if changed:
        gm.graph.eliminate_dead_code()
        gm.recompile()
