"""Hooks around the backward pass of a module: identities at its inputs and outputs see the gradients."""

from ..._C import Tensor
from ...autograd import Function


class _Watch(Function):
    @staticmethod
    def forward(ctx, seen, *tensors):
        ctx.seen = seen
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None,) + tuple(ctx.seen(grads))


def _replaced(result, grads):
    if result is None:
        return grads
    return result if isinstance(result, tuple) else (result,)


class BackwardHooks:
    def __init__(self, module, hooks, pre_hooks):
        self.module, self.hooks, self.pre_hooks, self.grad_outputs, self.inputs = module, hooks, pre_hooks, None, False

    def _through(self, values, seen):
        positions = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not positions:
            return values, False
        watched = _Watch.apply(seen, *(values[i] for i in positions))
        values = list(values)
        for i, v in zip(positions, watched):
            values[i] = v
        return tuple(values), True

    def watch_inputs(self, args):
        args, self.inputs = self._through(args, self._see_inputs)
        return args

    def watch_outputs(self, result):
        single = isinstance(result, Tensor)
        values, _ = self._through((result,) if single else tuple(result), self._see_outputs)
        return values[0] if single else values

    def _see_outputs(self, grads):
        for hook in self.pre_hooks:
            grads = _replaced(hook(self.module, grads), grads)
        self.grad_outputs = grads
        if not self.inputs:  # no input needs a gradient: this is the last moment
            for hook in self.hooks:
                hook(self.module, (None,), grads)
        return grads

    def _see_inputs(self, grads):
        for hook in self.hooks:
            grads = _replaced(hook(self.module, grads, self.grad_outputs), grads)
        return grads
