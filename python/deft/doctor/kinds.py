"""The bucket of an op, by its name."""

LINEAR = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "linear", "dot", "vdot", "mv", "addmv", "addr", "outer", "einsum", "tensordot",
          "convolution", "_convolution", "conv1d", "conv2d", "conv3d", "mkldnn_convolution", "_slow_conv2d_forward", "thnn_conv2d",
          "slow_conv3d_forward", "slow_conv_transpose2d", "convolution_overrideable", "_conv_depthwise2d", "cudnn_convolution",
          "scaled_dot_product_attention", "mkldnn_linear", "mkldnn_rnn_layer", "lstm", "gru", "_scaled_mm", "_int_mm", "cdist",
          "_cdist_forward", "bilinear", "_trilinear")
LINEAR_BEGINS = ("linalg_", "_linalg_", "_scaled_dot_product", "_flash_attention", "_efficient_attention", "mkldnn_", "cudnn_convolution",
                 "_thnn_fused", "_cudnn_rnn", "cholesky", "triangular_solve")
COPIES = ("copy_", "_to_copy", "to", "clone", "contiguous", "_copy_from", "type_as", "float", "half", "bfloat16")
ALLOCATION = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "empty_permuted")
SYNC = ("item", "_local_scalar_dense", "is_nonzero")
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


def kind_of(name):
    if name in WAITS:
        return "sync"
    if name.startswith(("cudaMemcpy", "Memcpy")):
        return "copies"
    op = name.split("::", 1)[1] if "::" in name else name
    if op in LINEAR or op.startswith(LINEAR_BEGINS):
        return "linear algebra"
    for names, kind in ((COPIES, "copies"), (ALLOCATION, "allocation"), (SYNC, "sync")):
        if op in names:
            return kind
    return "other kernels"
