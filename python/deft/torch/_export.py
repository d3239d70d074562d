"""export(): a PyTorch model as a plan file, which deft.load_plan(), deft::load_plan and `deft infer` run without PyTorch."""

import itertools

import torch
from torch.export.graph_signature import InputKind, OutputKind

import deft

from ._backend import constants_as_arguments, decompositions
from ._operators import RANDOM
from ._options import Options
from ._region import Region, capturing, is_work, why_not
from ._rewrite import drop_checks, rewrite
from ._sizes import MOST_OPEN, OpenSizes, leaves, with_ones


class ExportError(RuntimeError):
    """A model that no plan can hold."""


class _Whole(Region):
    """All of an exported program: nothing of it is left to torch, views of arguments neither."""

    def _new_bridge(self, weights):
        return None

    @staticmethod
    def _is_view_of_argument(node):
        return False


def _shared(tensors, made):
    """Deft's tensors on the memory of torch's; tied weights are one tensor, in all programs of a file."""
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


class _Program:
    """A traced model as a function of Deft's tensors."""

    def __init__(self, model, args, kwargs, dynamic_shapes, options, made):
        program = self.program = _program(model, args, kwargs, dynamic_shapes)
        gm, constants = constants_as_arguments(program.graph_module)
        drop_checks(gm)
        rewrite(gm)
        _check(program, gm)
        found = _weights(program) + constants
        shared = _shared([w for w in found if w is not None], made)
        weights = [None if w is None else next(shared) for w in found]
        self.run = _runner(gm, weights, options)
        self.tensors = self.check(args, kwargs, sum(w is None for w in weights))
        placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        shapes = [n.meta["val"].shape for n, w in zip(placeholders, weights) if w is None]
        self.sizes = OpenSizes(program, shapes, self.tensors)

    def check(self, args, kwargs, count=None):
        given = leaves(args, kwargs)
        count = len(self.tensors) if count is None else count
        if len(given) != count:
            raise ExportError(f"deft.torch.export: found {len(given)} tensors among the inputs, expected {count}: every input "
                              "must be a tensor; bind the others in a module around this one")
        return given


def _with_ones(whole, model, args, kwargs, options, made):
    """Programs for each choice of open sizes that are 1, the most of them first: torch traces 1 and other sizes apart."""
    open_ones = whole.sizes.that_may_be_one()
    if len(open_ones) > MOST_OPEN:
        raise ExportError(f"deft.torch.export: found {len(open_ones)} sizes that are open, expected at most {MOST_OPEN}; give "
                          "sizes that are always equal one Dim, or min= where they are never 1")
    for count in range(len(open_ones), 0, -1):
        for ones in itertools.combinations(open_ones, count):
            given, keywords, dims = with_ones(model, args, kwargs, whole.sizes, set(ones))
            try:
                yield set(ones), _Program(model, given, keywords, dims, options, made)
            except (torch._dynamo.exc.TorchDynamoException, ValueError, torch._dynamo.exc.UserError):
                continue  # a model that has no such size


class _Choice:
    """Which program takes the tensors of a call."""

    def __init__(self, whole):
        self.whole, self.others, self.places = whole, [], whole.sizes.places

    def __call__(self, tensors):
        ones = {s for s, (i, d) in self.places.items() if tensors[i].shape[d] == 1}
        for theirs, program in self.others:
            if theirs == ones:
                return program.run(tensors)
        return self.whole.run(tensors)


def _call(compiled, tensors):
    compiled.run([deft.from_dlpack(t.detach()) for t in tensors])


def _learn(compiled, program):
    """Calls in several sizes, until a rule for all of them is found and was right once."""
    sizes = program.sizes
    if not sizes.given:
        return _call(compiled, program.tensors)
    few = sizes.few()
    if few is not None:
        for choice in few:
            _call(compiled, sizes.inputs(choice))
        return None
    before = compiled.templates()
    for choice in sizes.calls():
        _call(compiled, sizes.inputs(choice))
        if compiled.templates() > before:
            return None
    why = [line for line in compiled.explain().splitlines() if "not in use: " in line or "no template: " in line]
    why = why[-1].split("not in use: ")[-1].split("no template: ")[-1] if why else "the captures differ"
    raise ExportError(f"deft.torch.export: found no rule for all sizes: {why}; give the sizes you need by more_args")


MOST_SIZES = 16  # plans that a compiled function keeps


def export(model, args, dynamic_shapes=None, *, path, more_args=(), kwargs=None, name=None, precision="as given"):
    """Writes `model`, with its weights, as a plan for these inputs into the file `path`, and gives `path` back.

    The file serves inputs of the sizes of `args`, and of all others that `dynamic_shapes` (as torch.export.export takes it)
    leaves open; their plans are made when they are first needed. `more_args`: further tuples like `args`; with them the file
    holds plans for these sizes and serves no others. It is for this kind of machine and this version of Deft, as those of
    `deft compile` are. `name` is what the file says it holds, the class of the model otherwise; `precision` as for
    deft.torch.compile()."""
    options, made = Options(precision=precision), {}
    if len(more_args) >= MOST_SIZES:
        raise ExportError(f"deft.torch.export: found {len(more_args)} more_args, expected at most {MOST_SIZES - 1}")
    whole = _Program(model, args, kwargs, dynamic_shapes, options, made)
    choice = _Choice(whole)
    if whole.sizes.given and not more_args:
        choice.others = list(_with_ones(whole, model, args, kwargs, options, made))
    compiled = deft._C._Compiled(choice, None, True, whole.sizes.limits({s for ones, _ in choice.others for s in ones}))
    with capturing, deft.no_grad():
        if more_args:
            for given in (*more_args, args):
                _call(compiled, whole.check(given, kwargs))
        else:
            for program in (whole, *(p for _, p in reversed(choice.others))):
                _learn(compiled, program)
        compiled.save(str(path), name or type(model).__name__, not more_args)
    return path
