"""Gradients by hand: a Function of one's own, hooks, checkpointing, second derivatives, a Jacobian, gradcheck."""

import deft as torch
from deft import nn
from deft.utils.checkpoint import checkpoint


class Clip(torch.autograd.Function):
    """Clamps, and lets gradients pass as if it did not."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


x = torch.tensor([-2.0, 0.5, 3.0], requires_grad=True)
(Clip.apply(x, 1.0) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(x.grad)

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
seen = []
handles = [model[1].register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape))),
           model[1].register_full_backward_hook(lambda module, grad_in, grad_out: seen.append(tuple(grad_out[0].shape))),
           model[0].weight.register_hook(lambda grad: grad * 0)]
model(torch.ones(2, 3)).sum().backward()
for handle in handles:
    handle.remove()
print(seen, bool((model[0].weight.grad == 0).all()))

a = torch.ones(2, 3, requires_grad=True)
plain, = torch.autograd.grad(model(a).sum(), a)
kept, = torch.autograd.grad(checkpoint(model, a, use_reentrant=False).sum(), a)
print(torch.allclose(plain, kept))

z = torch.tensor([1.0, 2.0], requires_grad=True)
first, = torch.autograd.grad((z**3).sum(), z, create_graph=True)
second, = torch.autograd.grad(first.sum(), z)
print(first.detach(), second)
print(torch.autograd.functional.jacobian(lambda t: t * t.sum(), torch.tensor([1.0, 2.0])))
print(torch.autograd.gradcheck(lambda t: t.tanh() @ t, (torch.randn(3, dtype=torch.float64, requires_grad=True),)))
