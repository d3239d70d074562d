"""Batch norm folded into the layer before it, for inference."""

import copy

from ..parameter import Parameter


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """Weight and bias of a convolution with its batch norm."""
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else bn_w * scale
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    bias = (0 if conv_b is None else conv_b) - bn_rm
    bias = bias * scale if bn_b is None else bias * scale + bn_b
    return (Parameter((conv_w * scale.reshape(shape)).detach().to(conv_w.dtype), conv_w.requires_grad),
            Parameter(bias.detach(), True if conv_b is None else conv_b.requires_grad))


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A convolution that does what both do in inference."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight,
                                                    bn.bias, transpose)
    return fused


fuse_linear_bn_weights, fuse_linear_bn_eval = fuse_conv_bn_weights, fuse_conv_bn_eval
