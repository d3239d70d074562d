"""Softmax, attention and whole transformer layers."""

import math

import deft
import deft.nn.functional as F

from .norms import statistics_type
from .table import ops, row


@row("_softmax.default", "_safe_softmax.default")
def softmax(x, dim, half_to_float=False, dtype=None):
    return deft.softmax(x, dim, deft.float32 if half_to_float is True else dtype)


row("_log_softmax.default")(lambda x, dim, half_to_float: deft.log_softmax(x, dim, deft.float32 if half_to_float else None))
row("_softmax_backward_data.default")(lambda g, y, dim, dtype: ops._softmax_backward(g, y, dim).to(dtype))
row("_log_softmax_backward_data.default")(lambda g, y, dim, dtype: ops._log_softmax_backward(g, y, dim).to(dtype))


def scale_of(q, scale):
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def has_dropout(node):
    p = node.args[3] if len(node.args) > 3 else 0
    return "attention with dropout draws random numbers, which torch must do" if p else None


@row("_scaled_dot_product_flash_attention_for_cpu.default", when=has_dropout, rounds=(0, 1, 2))
def attention(q, k, v, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None):
    y, log_sum = ops._attention(q, k, v, attn_mask, is_causal, scale_of(q, scale))
    return y, log_sum * math.log(2)


def has_dropout_backward(node):
    return "attention with dropout draws random numbers, which torch must do" if node.args[6] else None


@row("_scaled_dot_product_flash_attention_for_cpu_backward.default", when=has_dropout_backward, rounds=(0, 1, 2, 3, 4))
def attention_backward(g, q, k, v, y, log_sum, dropout_p, is_causal, attn_mask=None, scale=None):
    log_sum = (log_sum.to(statistics_type(q)) * (1 / math.log(2))).contiguous()  # as the forward pass of Deft would have left it
    return tuple(ops._attention_backward(g, q, k, v, attn_mask, y, log_sum, is_causal, scale_of(q, scale)))


def has_mask_argument(node):
    found = len(node.args) > 18 and node.args[18] is not None or "mask" in node.kwargs
    return "a transformer layer with a mask" if found else None


@row("_transformer_encoder_layer_fwd.default", when=has_mask_argument)
def transformer_encoder_layer(x, width, heads, qkv_weight, qkv_bias, out_weight, out_bias, use_gelu, norm_first, eps,
                              weight1, bias1, weight2, bias2, up_weight, up_bias, down_weight, down_bias, *rest):
    """What nn.TransformerEncoderLayer calls where no gradients are wanted."""

    def attend(h):
        q, k, v = (t.unflatten(-1, (heads, width // heads)).transpose(1, 2)
                   for t in deft.chunk(F.linear(h, qkv_weight, qkv_bias), 3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return F.linear(y.transpose(1, 2).reshape(list(h.shape)), out_weight, out_bias)

    def feed(h):
        h = F.linear(h, up_weight, up_bias)
        return F.linear(F.gelu(h) if use_gelu else F.relu(h), down_weight, down_bias)

    def norm(h, weight, bias):
        return F.layer_norm(h, [width], weight, bias, eps)

    if norm_first:
        x = x + attend(norm(x, weight1, bias1))
        return x + feed(norm(x, weight2, bias2))
    x = norm(x + attend(x), weight1, bias1)
    return norm(x + feed(x), weight2, bias2)
