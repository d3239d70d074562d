"""Attention on GPUs. torch chooses one of several operators there (flash, memory-efficient, cuDNN), each with results that only its
own gradient reads. All of them become one operator, deft::attention, or plain products where Deft's kernel does not reach."""

import math

import torch

from ._operators.norms import statistics_type
from ._operators.table import TABLE, ops

aten = torch.ops.aten
LOW = (torch.float16, torch.bfloat16)
MOST_FEATURES = 128  # of a head, in Deft's kernel

_library = torch.library.Library("deft", "DEF")
_library.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale) -> (Tensor, Tensor)")
_library.define("attention_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor y, Tensor log_sum, "
                "bool causal, float scale) -> (Tensor, Tensor, Tensor)")


# --- As products

def scores(q, k, mask, causal, scale):
    s = torch.matmul(q * scale, k.transpose(-1, -2))
    if mask is not None:
        s = torch.where(mask, s, -math.inf) if mask.dtype == torch.bool else s + mask
    if causal:
        seen = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
        s = torch.where(seen, s, -math.inf)
    return s


def wide(*tensors):
    return [t.float() if t.dtype in LOW else t for t in tensors]


def forward_as_products(q, k, v, mask, causal, scale):
    """(result, natural logarithm of the sums of exponentials)"""
    dtype = q.dtype
    q, k, v = wide(q, k, v)
    s = scores(q, k, mask, causal, scale)
    top = s.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, 0.0, top)  # a query that sees no key
    e = torch.exp(s - top)
    total = e.sum(-1, keepdim=True)
    y = torch.matmul(e / torch.where(total == 0, 1.0, total), v)
    return y.to(dtype), (total.log() + top).squeeze(-1)


def backward_as_products(g, q, k, v, mask, y, log_sum, causal, scale):
    dtype = q.dtype
    g, q, k, v, y = wide(g, q, k, v, y)
    log_sum = torch.where(log_sum == -math.inf, 0.0, log_sum).unsqueeze(-1)
    p = torch.exp(scores(q, k, mask, causal, scale) - log_sum)
    ds = p * (torch.matmul(g, v.transpose(-1, -2)) - (g * y).sum(-1, keepdim=True)) * scale
    grads = torch.matmul(ds, k), torch.matmul(ds.transpose(-1, -2), q), torch.matmul(p.transpose(-1, -2), g)
    return tuple(t.to(dtype) for t in grads)


# --- The operator: log_sum has base 2, as Deft's kernel leaves it

def dense_like(t, sizes):
    """Dense, with the dimensions in memory in the order that those of `t` have."""
    order = sorted(range(t.dim()), key=lambda d: -t.stride(d))
    return t.new_empty([sizes[d] for d in order]).permute([order.index(d) for d in range(t.dim())])


def fake_forward(q, k, v, mask, causal, scale):
    return dense_like(q, [*q.shape[:-1], v.shape[-1]]), q.new_empty(q.shape[:-1], dtype=torch.float32)


def fake_backward(g, q, k, v, mask, y, log_sum, causal, scale):
    return tuple(dense_like(t, t.shape) for t in (q, k, v))


def forward_in_torch(q, k, v, mask, causal, scale):
    y, log_sum = forward_as_products(q, k, v, mask, causal, scale)
    return fake_forward(q, k, v, mask, causal, scale)[0].copy_(y), log_sum / math.log(2)


def backward_in_torch(g, q, k, v, mask, y, log_sum, causal, scale):
    grads = backward_as_products(g, q, k, v, mask, y, log_sum * math.log(2), causal, scale)
    return tuple(dense_like(t, t.shape).copy_(d) for t, d in zip((q, k, v), grads))


_library.impl("attention", forward_in_torch, "CompositeExplicitAutograd")
_library.impl("attention_backward", backward_in_torch, "CompositeExplicitAutograd")
torch.library.register_fake("deft::attention", fake_forward, lib=_library)
torch.library.register_fake("deft::attention_backward", fake_backward, lib=_library)


def save(ctx, inputs, output):
    q, k, v, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, *output)


def differentiate(ctx, g, of_log_sum):
    q, k, v, mask, y, log_sum = ctx.saved_tensors
    return *torch.ops.deft.attention_backward(g, q, k, v, mask, y, log_sum, ctx.causal, ctx.scale), None, None, None


torch.library.register_autograd("deft::attention", differentiate, setup_context=save, lib=_library)
attention, attention_backward = torch.ops.deft.attention.default, torch.ops.deft.attention_backward.default
TABLE[attention] = lambda q, k, v, mask, causal, scale: tuple(ops._attention(q, k, v, mask, causal, scale))


def own_backward(g, q, k, v, mask, y, log_sum, causal, scale):
    log_sum = log_sum.to(statistics_type(q)).contiguous()  # as the kernel of the forward pass leaves it
    return tuple(ops._attention_backward(g, q, k, v, mask, y, log_sum, causal, scale))


TABLE[attention_backward] = own_backward


# --- torch's operators

def fits_kernel(q, v, dtype=None):
    return (dtype or q.dtype) in LOW and max(q.shape[-1], v.shape[-1]) <= MOST_FEATURES


def attend(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention() in graphs of Dynamo: Deft's operator before torch has chosen one of its
    own, since that may be products of matrices where a mask is unusual."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else q.dtype
    has_gradient = attn_mask is not None and attn_mask.requires_grad
    if q.device.type != "cuda" or not fits_kernel(q, v, dtype) or dropout_p or has_gradient or q.dim() != 4:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale,
                                                                enable_gqa=enable_gqa)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.to(dtype)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return torch.ops.deft.attention(q, k, v, attn_mask, is_causal, scale)[0]


def keep_attention(gm):
    """In a graph of Dynamo, which AOTAutograd has not seen yet."""
    for module in gm.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        found = [n for n in module.graph.nodes if n.target is torch.nn.functional.scaled_dot_product_attention]
        for node in found:
            node.target = attend
        if found:
            module.recompile()


def run(q, k, v, mask, causal, scale):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return (attention if fits_kernel(q, v) else forward_as_products)(q, k, v, mask, causal, scale)


def run_backward(g, q, k, v, mask, y, log_sum, causal, scale):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return (attention_backward if fits_kernel(q, v) else backward_as_products)(g, q, k, v, mask, y, log_sum, causal, scale)


def nothing(q):
    return q.new_empty(0, dtype=torch.int64)


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    if dropout_p or return_debug_mask:
        return NotImplemented
    y, log_sum = run(q, k, v, None, is_causal, scale)
    return y, log_sum, nothing(q), nothing(q), q.shape[-2], k.shape[-2], nothing(q), nothing(q), q.new_empty(0)


def flash_backward(g, q, k, v, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
                   philox_offset, *, scale=None):
    if dropout_p:
        return NotImplemented
    return run_backward(g, q, k, v, None, out, logsumexp, is_causal, scale)


def efficient(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    if dropout_p or attn_bias is not None and attn_bias.requires_grad:
        return NotImplemented
    return *run(q, k, v, attn_bias, is_causal, scale), nothing(q), nothing(q)


def efficient_backward(g, q, k, v, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask,
                       is_causal=False, *, scale=None):
    if dropout_p or grad_input_mask[3]:
        return NotImplemented
    return *run_backward(g, q, k, v, attn_bias, out, logsumexp, is_causal, scale), None


def cudnn(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    if dropout_p or return_debug_mask:
        return NotImplemented
    y, log_sum = run(q, k, v, attn_bias, is_causal, scale)
    return y, log_sum, nothing(q), nothing(q), q.shape[-2], k.shape[-2], nothing(q), nothing(q), q.new_empty(0)


def cudnn_backward(g, q, k, v, out, logsumexp, philox_seed, philox_offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k,
                   dropout_p, is_causal, *, scale=None):
    if dropout_p:
        return NotImplemented
    return run_backward(g, q, k, v, attn_bias, out, logsumexp, is_causal, scale)


def decompositions():
    """For AOTAutograd."""
    return {getattr(aten, f"_scaled_dot_product_{name}").default: function for name, function in (
        ("flash_attention", flash), ("flash_attention_backward", flash_backward),
        ("efficient_attention", efficient), ("efficient_attention_backward", efficient_backward),
        ("cudnn_attention", cudnn), ("cudnn_attention_backward", cudnn_backward)) if hasattr(aten, f"_scaled_dot_product_{name}")}
