"""export(): a PyTorch model as a plan file, which deft.load_plan(), deft::load_plan and `deft infer` run without PyTorch."""

import torch
from torch.export.graph_signature import InputKind, OutputKind

import deft

from ._backend import constants_as_arguments, decompositions
from ._operators import RANDOM
from ._options import Options
from ._region import Region, capturing, is_work, why_not
from ._rewrite import rewrite


class ExportError(RuntimeError):
    """A model that no plan can hold."""


class _Whole(Region):
    """All of an exported program: nothing of it is left to torch, views of arguments neither."""

    def _new_bridge(self, weights):
        return None

    @staticmethod
    def _is_view_of_argument(node):
        return False


def _shared(tensors):
    """Deft's tensors on the memory of torch's; tied weights are one tensor."""
    made = {}
    for t in tensors:
        key = (t.data_ptr(), t.dtype, tuple(t.shape), t.stride())
        if key not in made:
            made[key] = deft.from_dlpack(t.detach())
        yield made[key]


def _program(model, args, kwargs, dynamic_shapes):
    with torch.no_grad():
        program = torch.export.export(model, tuple(args), kwargs, dynamic_shapes=dynamic_shapes)
        return program.run_decompositions(decompositions())


def _check(program, gm):
    for spec in program.graph_signature.output_specs:
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            raise ExportError(f"deft.torch.export: found a model that writes {spec.target!r}, expected one that only computes; "
                              "call model.eval() first")
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise ExportError(f"deft.torch.export: found an output of the kind {spec.kind.name}, expected tensors")
    for node in gm.graph.nodes:
        reason = "it draws random numbers" if node.target in RANDOM else why_not(node)
        if reason and (is_work(node) or node.op != "call_function"):
            raise ExportError(f"deft.torch.export: found {node.target}, expected operators that Deft runs: {reason}; "
                              "deft.torch.explain() lists them all")
    (output,) = [n for n in gm.graph.nodes if n.op == "output"]
    for value in output.args[0]:
        if not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("val"), torch.Tensor):
            raise ExportError(f"deft.torch.export: found a result {value!r}, expected tensors only")


def _weights(program):
    """For each placeholder its tensor; None for what the caller gives."""
    held = dict(program.state_dict)
    held.update(program.constants)
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    return [held[s.target] if s.kind in kinds else None for s in program.graph_signature.input_specs]


def _runner(gm, weights, options):
    """The program as a function of Deft's tensors."""
    region = _Whole(gm, options=options)

    def run(tensors):
        rest = iter(tensors)
        given = [next(rest) if w is None else w for w in weights]
        outputs = []
        results = region._run(given, region._symbols(given), outputs)
        found = iter(results)
        return [next(found) if kind == "result" else given[value] for kind, value in outputs]

    return run


def _tensors(args, kwargs, count):
    given = [t for t in torch.utils._pytree.tree_leaves((tuple(args), kwargs or {})) if isinstance(t, torch.Tensor)]
    if len(given) != count:
        raise ExportError(f"deft.torch.export: found {len(given)} tensors among the inputs, expected {count}: every input must "
                          "be a tensor; bind the others in a module around this one")
    return given


MOST_SIZES = 16  # plans that a compiled function keeps


def export(model, args, dynamic_shapes=None, *, path, more_args=(), kwargs=None, name=None, precision="as given"):
    """Writes `model`, with its weights, as a plan for these inputs into the file `path`, and gives `path` back.

    `more_args`: further tuples like `args`, in sizes that `dynamic_shapes` (as torch.export.export takes it) leaves open; the
    file gets a plan for each, and serves no others. It is for this kind of machine and this version of Deft, as those of
    `deft compile` are. `name` is what the file says it holds, the class of the model otherwise; `precision` as for
    deft.torch.compile()."""
    options = Options(precision=precision)
    program = _program(model, args, kwargs, dynamic_shapes)
    gm, constants = constants_as_arguments(program.graph_module)
    rewrite(gm)
    _check(program, gm)
    found = _weights(program) + constants
    shared = _shared([w for w in found if w is not None])
    weights = [None if w is None else next(shared) for w in found]
    if len(more_args) >= MOST_SIZES:
        raise ExportError(f"deft.torch.export: found {len(more_args)} more_args, expected at most {MOST_SIZES - 1}")
    calls = [_tensors(a, kwargs, sum(w is None for w in weights)) for a in (*more_args, args)]
    compiled = deft._C._Compiled(_runner(gm, weights, options), None, True)
    with capturing, deft.no_grad():
        for given in calls:
            compiled.run([deft.from_dlpack(t.detach()) for t in given])
        compiled.save(str(path), name or type(model).__name__)
    return path
