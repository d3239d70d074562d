"""Trading time for memory: parts of the forward pass are computed again in backward."""

from .. import _C
from .._compile import _put_together, _take_apart


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, determinism_check="default", debug=False, **kwargs):
    """function(*args), recorded without what its operations would save."""
    tensors, out = [], {}
    form = _take_apart((args, kwargs), tensors)

    def run(*inputs):
        again_args, again_kwargs = _put_together(form, inputs)
        results = []
        out["form"] = _take_apart(function(*again_args, **again_kwargs), results)
        return results

    results = _C._checkpoint(run, tensors)
    return _put_together(out["form"], results)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """A Sequential or list of functions, cut into segments that are checkpointed, all but the last."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(functions) // segments

    def run(part):
        def forward(x):
            for f in part:
                x = f(x)
            return x

        return forward

    start = 0
    for _ in range(segments - 1):
        input = checkpoint(run(functions[start : start + size]), input, use_reentrant=use_reentrant, **kwargs)
        start += size
    return run(functions[start:])(input)
