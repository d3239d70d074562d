"""torch.compile(model, backend="deft"): graphs from AOTAutograd, run by plans of Deft where it has their operators."""

import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

import deft

from . import _attention
from ._masks import simplify_masks
from ._operators import RANDOM, TABLE, aten_copy_, has_fixed_strides, is_contiguous
from ._options import NAMES, Options, check_names, read
from ._region import Refused, Region, capturing, device_fault, device_of, is_work, why_not
from ._rewrite import rewrite

_said = set()
MOST_RETRIES = 30


def say_once(text):
    if text not in _said:
        _said.add(text)
        warnings.warn(f"deft: {text}", stacklevel=3)


def use_library():
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    deft._C._bridge_library(table, torch.utils.dlpack.from_dlpack)


use_library()


class _Part(torch.nn.Module):
    """A region in a graph that torch runs."""

    def __init__(self, region):
        super().__init__()
        self.region = region

    def forward(self, *args):
        results = self.region(list(args))
        return results[0] if self.region.is_single else tuple(results)


class _Allowed(OperatorSupportBase):
    def __init__(self, nodes):
        self.nodes = nodes

    def is_node_supported(self, submodules, node):
        return node in self.nodes


def constants_as_arguments(gm):
    """Tensors that belong to the graph become arguments behind the others."""
    constants = []
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node in list(gm.graph.nodes):
        value = getattr(gm, str(node.target), None) if node.op == "get_attr" else None
        if not isinstance(value, torch.Tensor):
            continue
        with gm.graph.inserting_after(placeholders[-1] if placeholders else None):
            placeholders.append(gm.graph.placeholder(node.name + "_value"))
        placeholders[-1].meta["val"] = value
        node.replace_all_uses_with(placeholders[-1])
        gm.graph.erase_node(node)
        constants.append(value)
    if constants:
        gm.recompile()
    return gm, constants


def lie_as(t, traced):
    t = t.to(traced.dtype)
    if is_contiguous(traced):
        return t.contiguous()
    if not has_fixed_strides(traced) or all(n < 2 or a == b for n, a, b in zip(t.shape, t.stride(), traced.stride())):
        return t
    return torch.empty_strided(t.shape, traced.stride(), dtype=t.dtype, device=t.device).copy_(t)


class Graph:
    """One graph of AOTAutograd, as a function that takes one list and gives one."""

    def __init__(self, gm, kind, weights, record, options=Options(), saved_from=None):
        self.saved_from = saved_from
        self.kind, self.record, self.options = kind, record, options
        self.gm, self.constants = constants_as_arguments(gm)
        self.weights = weights
        self.refused = {}
        self.reasons = {}
        self.regions, self.parts = [], []
        self.run = None
        self.threads = 0
        self._arrange()
        if record is not None:
            record.append(self)

    def __call__(self, args):
        threads = torch.get_num_threads()
        if threads != deft.get_num_threads():
            deft.set_num_threads(threads)
        if self.constants:
            args += self.constants
        try:
            results = self.run(args)
        except Refused as refused:
            results = self._again(args, refused)
        args.clear()
        return results

    # --- after a node turned out not to run

    def _again(self, args, refused):
        with capturing:
            state = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
            for _ in range(MOST_RETRIES):
                if refused.node is None or refused.node.name in self.refused:
                    return self._give_up(refused.reason, args)
                self.refused[refused.node.name] = refused.reason
                self._arrange()
                torch.set_rng_state(state[0])
                torch.cuda.set_rng_state_all(state[1])
                try:
                    return self.run(args)
                except Refused as next_one:
                    refused = next_one
            return self._give_up(refused.reason, args)

    def _give_up(self, reason, args):
        say_once(f"the {self.kind} pass of a model runs in torch: {reason}")
        self.reasons = {n: reason for n in self.gm.graph.nodes if is_work(n)}
        self.regions, self.parts = [], []
        self.run = self._in_torch
        return self.run(args)

    def _in_torch(self, args):
        return list(self.gm(*self.as_traced(args)))

    def as_traced(self, args):
        """What the forward pass saved as it came, lying as torch's views expect it."""
        if self.kind != "backward":
            return args
        placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        return [lie_as(a, n.meta["val"]) if isinstance(a, torch.Tensor) else a for n, a in zip(placeholders, args)]

    # --- who runs what

    def _arrange(self):
        self.reasons = {}
        device = device_of(self.gm.graph)
        fault = device_fault(device)
        for node in self.gm.graph.nodes:
            reason = self.refused.get(node.name) or (fault if fault and is_work(node) else why_not(node, device))
            if reason:
                self.reasons[node] = reason
        if not self.reasons:
            region = Region(self.gm, self.weights, self.options, self.saved_from)
            self.regions, self.run = [region], region
            return
        work = [n for n in self.gm.graph.nodes if is_work(n) and n not in self.reasons]
        if not work or any(n.op != "call_function" for n in self.reasons):
            self.regions, self.run = [], self._in_torch
            if any(is_work(n) for n in self.gm.graph.nodes):
                say_once(f"the {self.kind} pass of a model runs in torch: {next(iter(self.reasons.values()))}")
            return
        self._divide()

    def _divide(self):
        """Connected parts that Deft runs, in a graph that torch runs. Writes to arguments come after everything."""
        copy = torch.fx.GraphModule(self.gm, torch.fx.Graph())
        names = {}
        result = copy.graph.graph_copy(self.gm.graph, names)
        copy.graph.output(result)
        writes = []
        for node in list(copy.graph.nodes):
            if node.target is aten_copy_:
                writes.append((node.args[0], node.args[1]))
                node.replace_all_uses_with(node.args[0])
                copy.graph.erase_node(node)
        (output,) = [n for n in copy.graph.nodes if n.op == "output"]
        count = len(output.args[0])
        output.args = (tuple(output.args[0]) + tuple(source for _, source in writes),)
        placeholders = [n for n in copy.graph.nodes if n.op == "placeholder"]
        targets = [placeholders.index(target) for target, _ in writes]
        copy.recompile()

        allowed = {names[n] for n in self.gm.graph.nodes
                   if n.op == "call_function" and n not in self.reasons and n.target is not aten_copy_}
        partitioner = CapabilityBasedPartitioner(copy, _Allowed(allowed), allows_single_node_partition=True)
        parts = [p for p in partitioner.propose_partitions() if any(is_work(n) for n in p.nodes)]
        fused = partitioner.fuse_partitions(parts)
        weights = {names[n].name for n in self.weights}
        self.regions, self.parts = [], []
        for node in fused.graph.nodes:
            if node.op != "call_module":
                continue
            part = fused.get_submodule(node.target)
            inside = [n for n in part.graph.nodes if n.op == "placeholder"]
            for here, there in zip(inside, node.args):
                here.meta = dict(there.meta)
            given = {h for h, t in zip(inside, node.args) if t.op == "placeholder" and t.name in weights}
            region = Region(part, given, self.options)
            self.regions.append(region)
            self.parts.append(_Part(region))
            setattr(fused, node.target, self.parts[-1])
        fused.recompile()

        def run(args):
            results = list(fused(*self.as_traced(args)))
            for target, value in zip(targets, results[count:]):
                args[target].copy_(value)
            return results[:count]

        self.run = run

    # --- for explain()

    def add_clock(self, clock):
        """Clocks on the whole graph and on its regions."""
        self.run = whole = clock(self.run)
        if isinstance(whole.function, Region):
            return whole, [whole]
        for part in self.parts:
            part.region = clock(part.region)
        return whole, [part.region for part in self.parts]

    def operators(self):
        for node in self.gm.graph.nodes:
            if is_work(node):
                yield node, self.reasons.get(node)


def boxed(graph):
    """As AOTAutograd knows it: torch copies the attributes of functions, not of objects."""

    def call(args):
        return graph(args)

    call._boxed_call = True
    return call


def decompositions():
    """torch's core ones, but for what Deft has a row for."""
    from torch._decomp import core_aten_decompositions

    table = dict(core_aten_decompositions().items())
    for operator in [*TABLE, *RANDOM]:
        table.pop(operator, None)
    return {**table, **_attention.decompositions()}


_table = None


def _compilers(record, options):
    def make(kind):
        def compiler(gm, example_inputs):
            context = TracingContext.try_get()
            indices = set()
            if kind == "inference" and context is not None and context.fw_metadata is not None:
                indices = set(context.fw_metadata.static_input_indices or ())
            placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
            weights = {n for i, n in enumerate(placeholders) if i in indices}
            metadata = context.fw_metadata if context is not None and kind == "forward" else None
            saved_from = metadata.num_forward_returns if metadata is not None else None
            try:
                rewrite(gm)
                with torch._subclasses.fake_tensor.unset_fake_temporarily():
                    return boxed(Graph(gm, kind, weights, record, options, saved_from))
            except Exception as error:  # a fault of ours must not reach the user's program
                say_once(f"the {kind} pass of a model runs in torch: {type(error).__name__}: {error}")
                return torch._functorch.aot_autograd.make_boxed_func(gm.forward)

        return compiler

    return {"fw_compiler": make("forward"), "bw_compiler": make("backward"), "inference_compiler": make("inference")}


def backend(gm, example_inputs, *, record=None, mode=None, options=None, **others):
    """What torch.compile calls. `options`: the fields of Options."""
    global _table
    options = read(options)
    if mode is not None:
        say_once(f"mode={mode!r} changes nothing: there is one way to run a plan")
    if _table is None:
        _table = decompositions()
    simplify_masks(gm)
    _attention.keep_attention(gm)
    compiled = aot_autograd(**_compilers(record, options), decompositions=_table, partition_fn=min_cut_rematerialization_partition,
                            keep_inference_input_mutations=True)
    try:
        return compiled(gm, example_inputs)
    except torch._dynamo.exc.TorchDynamoException:  # Dynamo's own: it traces again in another way
        raise
    except Exception as error:
        say_once(f"a model runs in torch, since AOTAutograd cannot trace it: {type(error).__name__}: {error}")
        return gm.forward


TORCHS = ["fullgraph", "dynamic", "disable"]  # options of torch.compile that mean the same here


def compile(model=None, **options):
    """torch.compile(model, backend="deft") with precision=, freezing= and plans= (see Options), and torch's own fullgraph=,
    dynamic= and disable=. dynamic=False: a graph for each size; True: sizes are symbols from the first call on; None: from
    the second size on."""
    check_names(options, NAMES + TORCHS)
    ours = {name: value for name, value in options.items() if name in NAMES}
    read(ours)
    return torch.compile(model, backend=backend, options=ours or None, **{n: v for n, v in options.items() if n in TORCHS})
