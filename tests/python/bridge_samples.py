"""For each operator of the bridge's table some calls of it."""

from bridge_case import torch

x = lambda *sizes: torch.randn(*sizes) if sizes else torch.randn(3, 5)
pos = lambda *sizes: torch.rand(*(sizes or (3, 5))) + 0.1
unit = lambda: torch.rand(3, 5) * 1.8 - 0.9
whole = lambda *sizes: torch.randint(-4, 5, sizes or (3, 5))
truth = lambda: torch.rand(3, 5) > 0.5
at = lambda n, *sizes: torch.randint(0, n, sizes)
f32 = torch.float32

# Operator -> calls: lists of (args, kwargs) or args. "unary" of x() where nothing is said.
SAMPLES = {
    "sqrt log log2 log10 log1p rsqrt reciprocal": lambda: [[pos()]],
    "asin acos atanh erfinv": lambda: [[unit()]],
    "acosh": lambda: [[pos() + 1]],
    "isnan isinf": lambda: [[torch.tensor([1.0, float("nan"), float("inf")])]],
    "logical_not": lambda: [[truth()], [x()]],
    "bitwise_not": lambda: [[truth()], [whole()]],
    "atan2 maximum minimum fmax fmin logaddexp copysign.Tensor hypot": lambda: [[x(), x()], [x(3, 1), x(5)]],
    "logical_and logical_or logical_xor": lambda: [[truth(), truth()]],
    "mul.Tensor add.Tensor sub.Tensor rsub.Tensor": lambda: [[x(), x()], [x(3, 1), x(1, 5)], [whole(), x()], [whole(), whole()]],
    "div.Tensor": lambda: [[x(), pos()], [whole(), pos(5)]],
    "fmod.Tensor remainder.Tensor": lambda: [[x(), pos()], [whole(), whole().abs() + 1]],
    "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor": lambda: [[whole(), whole()], [x(), x(5)]],
    "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor": lambda: [[whole(), whole()], [truth(), truth()]],
    "mul.Scalar add.Scalar sub.Scalar rsub.Scalar": lambda: [[x(), 2.5], [whole(), 3]],
    "div.Scalar": lambda: [[x(), 2.5], [whole(), 3]],
    "fmod.Scalar remainder.Scalar": lambda: [[x(), 1.5]],
    "eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar": lambda: [[whole(), 1], [x(), 0.5]],
    "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar": lambda: [[whole(), 3]],
    "addcmul addcdiv": lambda: [([x(), x(), pos()], {"value": 2.0})],
    "lerp.Scalar": lambda: [[x(), x(), 0.3]],
    "lerp.Tensor": lambda: [[x(), x(), x()]],
    "div.Tensor_mode": lambda: [([x(), pos()], {"rounding_mode": "floor"}), ([whole(), whole().abs() + 1], {"rounding_mode": "trunc"})],
    "div.Scalar_mode": lambda: [([whole(), 3], {"rounding_mode": "floor"})],
    "floor_divide": lambda: [[whole(), whole().abs() + 1]],
    "floor_divide.Scalar": lambda: [[whole(), 2]],
    "pow.Tensor_Scalar": lambda: [[pos(), 2.5], [x(), 2], [whole(), 2]],
    "pow.Scalar": lambda: [[2.0, x()]],
    "pow.Tensor_Tensor": lambda: [[pos(), x()]],
    "clamp": lambda: [[x(), -0.5, 0.5], [x(), None, 0.5]],
    "clamp.Tensor": lambda: [[x(), x(), x() + 3]],
    "clamp_min": lambda: [[x(), 0.1]],
    "clamp_min.Tensor clamp_max.Tensor": lambda: [[x(), x()]],
    "clamp_max": lambda: [[x(), 0.1]],
    "gelu": lambda: [[x()], ([x()], {"approximate": "tanh"})],
    "leaky_relu": lambda: [[x(), 0.2]],
    "softplus": lambda: [[x(), 1.0, 20.0], [x(), 2.0, 1.0]],
    "hardtanh": lambda: [[x(), 0.0, 0.5]],
    "threshold": lambda: [[x(), 0.1, 2.0]],
    "nan_to_num": lambda: [[torch.tensor([1.0, float("nan"), float("-inf")])]],
    "elu": lambda: [[x(), 0.7], [x(), 1.5, 1.2]],
    "where.self": lambda: [[truth(), x(), x()], [truth(), x(), torch.tensor(0.0)]],
    "where.ScalarOther": lambda: [[truth(), x(), 1.0]],
    "where.ScalarSelf": lambda: [[truth(), 1.0, x()]],
    "where.Scalar": lambda: [[truth(), 1.0, 2.0]],
    "masked_fill.Scalar": lambda: [[x(), truth(), -1.0]],
    "masked_fill.Tensor": lambda: [[x(), truth(), torch.tensor(2.0)]],
    "gelu_backward": lambda: [[x(), x()], ([x(), x()], {"approximate": "tanh"})],
    "silu_backward hardswish_backward hardsigmoid_backward mish_backward": lambda: [[x(), x()]],
    "tanh_backward": lambda: [[x(), unit()]],
    "sigmoid_backward": lambda: [[x(), pos()]],
    "hardtanh_backward": lambda: [[x(), x(), -0.5, 0.5]],
    "softplus_backward": lambda: [[x(), x(), 1.0, 20.0]],
    "threshold_backward": lambda: [[x(), x(), 0]],
    "leaky_relu_backward": lambda: [[x(), x(), 0.2, False]],
    "slice.Tensor": lambda: [[x(), 1, 1, 4], [x(), 0, -2, 1 << 63 - 1, 1], [x(), 1, 0, 5, 2]],
    "view _unsafe_view": lambda: [[x(4, 6), [2, -1]]],
    "reshape": lambda: [[x(4, 6).t(), [8, 3]]],
    "expand": lambda: [[x(3, 1), [2, 3, 4]]],
    "squeeze": lambda: [[x(3, 1, 2)]],
    "squeeze.dim": lambda: [[x(3, 1, 2), 1]],
    "squeeze.dims": lambda: [[x(1, 3, 1), [0, 2]]],
    "permute": lambda: [[x(2, 3, 4), [2, 0, 1]]],
    "transpose.int": lambda: [[x(2, 3, 4), 0, -1]],
    "unsqueeze": lambda: [[x(), -1]],
    "select.int": lambda: [[x(), 1, -2]],
    "diagonal": lambda: [[x(2, 4, 4), 1, 1, 2]],
    "split.Tensor": lambda: [[x(7, 2), 3]],
    "split_with_sizes": lambda: [[x(7, 2), [3, 4]]],
    "unbind.int": lambda: [[x(), 1]],
    "as_strided": lambda: [[x(4, 6), [3, 2], [6, 1], 2], [x(6, 4).t(), [3, 2], [1, 4]]],
    "as_strided_scatter": lambda: [[x(4, 6), x(3, 2), [3, 2], [6, 1], 2]],
    "unfold": lambda: [[x(8), 0, 3, 2]],
    "cat stack": lambda: [[[x(), x()], 1], [[whole(), whole()]]],
    "repeat": lambda: [[x(), [2, 1, 3]]],
    "flip": lambda: [[x(), [0, 1]]],
    "roll": lambda: [[x(), [2, 1], [0, 1]]],
    "constant_pad_nd": lambda: [[x(), [1, 2], 0.5], [x(), [-1, 1, 2, 0]]],
    "reflection_pad1d replication_pad1d": lambda: [[x(2, 3, 6), [2, 1]]],
    "reflection_pad2d replication_pad2d": lambda: [[x(2, 3, 6, 6), [2, 1, 1, 2]]],
    "clone": lambda: [[x()], ([x(2, 3, 4, 4)], {"memory_format": torch.channels_last})],
    "_to_copy": lambda: [([x()], {"dtype": torch.bfloat16}), ([whole()], {"dtype": f32}), ([x()], {"dtype": torch.int64})],
    "copy": lambda: [[x(), x(5)]],
    "slice_scatter": lambda: [[x(), x(3, 2), 1, 1, 3]],
    "select_scatter": lambda: [[x(), x(5), 0, 1]],
    "slice_backward": lambda: [[x(3, 2), [3, 5], 1, 1, 3, 1]],
    "select_backward": lambda: [[x(5), [3, 5], 0, 1]],
    "full": lambda: [([[2, 3], 1.5], {"dtype": f32}), [[2], True], [[2], 7]],
    "full_like": lambda: [[x(), 3]],
    "new_full": lambda: [[x(), [2], 1.5]],
    "scalar_tensor": lambda: [([2.0], {"dtype": f32})],
    "zeros ones": lambda: [([[2, 3]], {"dtype": f32})],
    "new_zeros new_ones": lambda: [[x(), [2]]],
    "arange.start_step": lambda: [[1, 8, 2], ([0.0, 1.0, 0.25], {"dtype": f32})],
    "arange.start": lambda: [[2, 6]],
    "arange": lambda: [[5]],
    "sum.dim_IntList mean.dim": lambda: [[x(2, 3, 4), [0, 2]], [x(), [1], True]],
    "amax amin": lambda: [[x(), [1], True], [x()]],
    "any all": lambda: [[truth()]],
    "any.dim all.dim": lambda: [[truth(), 1, True]],
    "any.dims all.dims": lambda: [[truth(), [0, 1]]],
    "argmax argmin": lambda: [[x()], [x(), 1, True]],
    "max.dim min.dim": lambda: [[x(), 1]],
    "prod.dim_int": lambda: [[x(), 1]],
    "cumsum cumprod": lambda: [[x(), 1], [whole(), 0], ([whole()[:, :2], 1], {"dtype": torch.int32})],
    "logsumexp": lambda: [[x(), [1]]],
    "var.correction var_mean.correction": lambda: [([x(), [1]], {"correction": 0, "keepdim": True}), ([x(), [0, 1]], {})],
    "linalg_vector_norm": lambda: [[x(), 2, [1]], [x(), 1]],
    "topk": lambda: [[x(), 2]],
    "mm": lambda: [[x(3, 4), x(4, 5)], [x(3, 4), x(5, 4).t()]],
    "bmm": lambda: [[x(2, 3, 4), x(2, 4, 5)], [x(2, 3, 4), x(2, 5, 4).mT]],
    "addmm": lambda: [[x(5), x(3, 4), x(5, 4).t()], ([x(3, 5), x(3, 4), x(4, 5)], {"beta": 0.5, "alpha": 2})],
    "baddbmm": lambda: [([x(2, 3, 5), x(2, 3, 4), x(2, 4, 5)], {"alpha": 0.5})],
    "mv": lambda: [[x(3, 4), x(4)]],
    "dot": lambda: [[x(4), x(4)]],
    "convolution": lambda: [
        [x(2, 4, 7, 7), x(6, 4, 3, 3), x(6), [2, 2], [1, 1], [1, 1], False, [0, 0], 1],
        [x(2, 4, 7, 7), x(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4],
        [x(2, 4, 9), x(6, 4, 3), x(6), [1], [2], [2], False, [0], 1],
        [x(2, 4, 5, 5), x(4, 6, 3, 3), x(6), [2, 2], [1, 1], [1, 1], True, [1, 1], 1]],
    "convolution_backward": lambda: [
        [x(2, 6, 4, 4), x(2, 4, 7, 7), x(6, 4, 3, 3), [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]],
        [x(2, 4, 7, 7), x(2, 4, 7, 7), x(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [True, True, False]],
        [x(2, 6, 10, 10), x(2, 4, 5, 5), x(4, 6, 3, 3), [6], [2, 2], [1, 1], [1, 1], True, [1, 1], 1, [True, True, True]]],
    "max_pool2d_with_indices": lambda: [[x(2, 3, 7, 7), [3, 3], [2, 2], [1, 1]]],
    "max_pool2d_with_indices_backward": lambda: [max_pool_backward()],
    "avg_pool1d": lambda: [[x(2, 3, 8), [2]]],
    "avg_pool2d": lambda: [[x(2, 3, 7, 7), [3, 3], [2, 2], [1, 1], True, False]],
    "avg_pool3d": lambda: [[x(1, 2, 4, 4, 4), [2, 2, 2]]],
    "avg_pool2d_backward": lambda: [[x(2, 3, 4, 4), x(2, 3, 7, 7), [3, 3], [2, 2], [1, 1], False, True, None]],
    "_adaptive_avg_pool2d": lambda: [[x(2, 3, 7, 7), [2, 3]]],
    "_adaptive_avg_pool3d": lambda: [[x(1, 2, 4, 5, 6), [2, 2, 2]]],
    "_adaptive_avg_pool2d_backward": lambda: [[x(2, 3, 2, 3), x(2, 3, 7, 7)]],
    "adaptive_max_pool2d": lambda: [[x(2, 3, 7, 7), [2, 3]]],
    "upsample_nearest1d": lambda: [[x(2, 3, 4), [8]], [x(2, 3, 5), [7], 1.5]],
    "upsample_nearest2d": lambda: [[x(2, 3, 4, 4), [8, 8]], [x(2, 3, 5, 5), [7, 7], 1.5, 1.5]],
    "native_layer_norm": lambda: [[x(2, 3, 8), [8], x(8), x(8), 1e-5], [x(2, 3, 8), [3, 8], None, None, 1e-5]],
    "native_layer_norm_backward": lambda: [[x(2, 3, 8), x(2, 3, 8), [8], x(2, 3, 1), pos(2, 3, 1), x(8), x(8), [True, True, True]]],
    "native_group_norm": lambda: [[x(2, 6, 4, 4), x(6), x(6), 2, 6, 16, 3, 1e-5]],
    "native_group_norm_backward": lambda: [[x(2, 6, 4, 4), x(2, 6, 4, 4), x(2, 3), pos(2, 3), x(6), 2, 6, 16, 3, [True] * 3]],
    "_native_batch_norm_legit_no_training": lambda: [[x(4, 3, 5), x(3), x(3), x(3), pos(3), 0.1, 1e-5]],
    "_native_batch_norm_legit_functional": lambda: [[x(4, 3, 5), x(3), x(3), x(3), pos(3), True, 0.1, 1e-5]],
    "_native_batch_norm_legit.no_stats": lambda: [[x(4, 3, 5), x(3), x(3), True, 0.1, 1e-5]],
    "native_batch_norm_backward": lambda: [
        [x(4, 3, 5), x(4, 3, 5), x(3), x(3), pos(3), x(3), pos(3), True, 1e-5, [True] * 3],
        [x(4, 3, 5), x(4, 3, 5), x(3), x(3), pos(3), x(3), pos(3), False, 1e-5, [True] * 3]],
    "_softmax _log_softmax": lambda: [[x(), 1, False]],
    "_safe_softmax": lambda: [[x(), 1]],
    "_softmax_backward_data _log_softmax_backward_data": lambda: [[x(), x().softmax(1), 1, f32]],
    "_scaled_dot_product_flash_attention_for_cpu": lambda: [
        [x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8)], [x(2, 3, 5, 8), x(2, 3, 5, 8), x(2, 3, 5, 8), 0.0, True]],
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda: [attention_backward(False), attention_backward(True)],
    "deft.attention": lambda: [
        [x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 6), None, False, 0.5], [x(2, 3, 5, 8), x(2, 3, 5, 8), x(2, 3, 5, 8), None, True, 0.3],
        [x(2, 5, 3, 8).transpose(1, 2), x(2, 3, 7, 8), x(2, 3, 7, 8), x(2, 1, 5, 7), False, 0.3],
        [x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8), torch.arange(7) < 4 + at(3, 2, 1, 1, 1), False, 0.3]],
    "deft.attention_backward": lambda: [own_attention_backward(None, True), own_attention_backward(x(2, 1, 5, 5), False)],
    "_transformer_encoder_layer_fwd": lambda: [encoder_layer(False, True), encoder_layer(True, False)],
    "nll_loss_forward": lambda: [[x(6, 5), at(5, 6), None, 1, -100], [x(6, 5), at(5, 6), pos(5), 1, 2],
                                 [x(6, 5), at(5, 6), pos(5), 2, 0]],
    "nll_loss2d_forward": lambda: [[x(2, 5, 3, 4), at(5, 2, 3, 4), pos(5), 1, 2]],
    "nll_loss_backward": lambda: [nll_backward([6], None, 1), nll_backward([6], pos(5), 1), nll_backward([6], pos(5), 2),
                                  nll_backward([6], pos(5), 0)],
    "nll_loss2d_backward": lambda: [nll_backward([2, 3, 4], pos(5), 1)],
    "embedding": lambda: [[x(9, 4), at(9, 2, 3)], [x(9, 4), at(9, 5).int()]],
    "embedding_dense_backward": lambda: [[x(2, 3, 4), at(9, 2, 3), 9, -1, False], [x(2, 3, 4), at(9, 2, 3), 9, 2, False]],
    "gather": lambda: [[x(), 1, at(5, 3, 2)]],
    "scatter.value": lambda: [[x(), 1, at(5, 3, 1), 2.0]],
    "scatter.src": lambda: [[x(), 0, at(3, 1, 5), x(1, 5)]],
    "scatter_add": lambda: [[x(), 1, at(5, 3, 2), x(3, 2)]],
    "index_select": lambda: [[x(), 1, at(5, 4)]],
    "index.Tensor _unsafe_index.Tensor": lambda: [[x(3, 5, 2), [at(3, 4), at(5, 4)]], [x(3, 5, 2), [None, at(5, 4)]]],
    "index_put _unsafe_index_put": lambda: [[x(), [at(3, 4)], x(4, 5), True], [x(), [None, at(5, 4)], x(3, 4), True],
                                              [x(2, 3, 5), [at(2, 4), None, at(5, 4)], x(4, 3), True],
                                              [x(2, 3, 5), [None, at(3, 4), at(5, 4)], x(4), True]],
    "sgn signbit": lambda: [[x()]],
    "angle": lambda: [[x()], [torch.tensor([0.0, -0.0, float("nan"), -3.0])]],
    "bitwise_left_shift.Tensor bitwise_right_shift.Tensor": lambda: [[whole(), at(5, 3, 5)]],
    "ldexp.Tensor": lambda: [[x(), whole()]],
    "round.decimals": lambda: [([x()], {"decimals": 1})],
    "fill.Scalar": lambda: [[x(), 2.5], [whole(), 3]],
    "fill.Tensor": lambda: [[x(), torch.tensor(2.5)]],
    "hardshrink_backward softshrink_backward": lambda: [[x(), x(), 0.4]],
    "max min": lambda: [[x()], [whole()], [truth()]],
    "dist": lambda: [[x(), x(), 2], [x(), x(5), 1]],
    "sort": lambda: [[x(), 1], [x(), 0, True]],
    "sort.stable": lambda: [([whole()], {"stable": True, "dim": 1}), ([x()], {"stable": True, "dim": 0, "descending": True})],
    "median.dim": lambda: [[x(4, 5), 1], [x(4, 4), 0, True]],
    "kthvalue": lambda: [[x(4, 5), 2], [x(4, 5), 3, 0, True]],
    "median": lambda: [[x(4, 5)], [whole()]],
    "cummax cummin logcumsumexp": lambda: [[x(), 1], [x(), 0]],
    "searchsorted.Tensor": lambda: [[x(6).sort()[0], x()], ([x(3, 6).sort()[0], x()], {"right": True})],
    "bucketize.Tensor": lambda: [[x(), x(6).sort()[0]], ([x(), x(6).sort()[0]], {"right": True, "out_int32": True})],
    "histc": lambda: [[x(40), 7, -1, 1], [whole().float(), 4, -2, 3]],
    "addmv": lambda: [([x(3), x(3, 4), x(4)], {"alpha": 2})],
    "addbmm": lambda: [([x(3, 5), x(2, 3, 4), x(2, 4, 5)], {"beta": 0.5})],
    "addr": lambda: [([x(3, 5), x(3), x(5)], {"alpha": 2})],
    "_cdist_forward": lambda: [[x(4, 3), x(5, 3), 2.0, None], [x(2, 4, 3), x(2, 5, 3), 1.0, None]],
    "_cdist_backward": lambda: [cdist_backward(2.0), cdist_backward(1.0)],
    "scatter_reduce.two": lambda: [[x(), 1, at(5, 3, 4), x(3, 4), "sum"], ([x(), 0, at(3, 2, 5), x(2, 5), "mean"], {"include_self": False}),
                                   [x(), 1, at(5, 3, 4), x(3, 4), "amax"], [x(), 1, at(5, 3, 4), x(3, 4), "prod"]],
    "scatter.reduce": lambda: [([x(), 1, at(5, 3, 4), x(3, 4)], {"reduce": "add"}), ([x(), 1, at(5, 3, 4), x(3, 4)], {"reduce": "multiply"})],
    "masked_scatter": lambda: [[x(), truth(), x(20)], [x(), truth()[0], x(20)]],
    "put": lambda: [[x(), torch.tensor([0, 3, -1]), x(3)], [x(), at(15, 4), x(4), True]],
    "take": lambda: [[x(), at(15, 2, 3)], [x(), torch.tensor([-1, 3])]],
    "diagonal_scatter": lambda: [[x(4, 4), x(3), 1], [x(2, 4, 4), x(2, 4), 0, 1, 2]],
    "reflection_pad3d replication_pad3d": lambda: [[x(2, 3, 4, 4, 4), [2, 1, 1, 2, 0, 3]]],
    "reflection_pad1d_backward replication_pad1d_backward": lambda: [[x(2, 3, 9), x(2, 3, 6), [2, 1]]],
    "reflection_pad2d_backward replication_pad2d_backward": lambda: [[x(2, 3, 9, 9), x(2, 3, 6, 6), [2, 1, 1, 2]]],
    "reflection_pad3d_backward replication_pad3d_backward": lambda: [[x(2, 3, 7, 7, 7), x(2, 3, 4, 4, 4), [2, 1, 1, 2, 0, 3]]],
    "_batch_norm_with_update_functional": lambda: [[x(4, 3, 5), x(3), x(3), x(3), pos(3), 0.1, 1e-5]],
    "batch_norm_backward": lambda: [
        [x(4, 3, 5), x(4, 3, 5), x(3), x(3), pos(3), x(3), pos(3), True, 1e-5, [True] * 3, torch.empty(0, dtype=torch.uint8)]],
    "_weight_norm_interface_backward": lambda: [weight_norm_backward(0), weight_norm_backward(2)],
    "adaptive_avg_pool1d": lambda: [[x(2, 3, 8), [3]]],
    "adaptive_max_pool3d": lambda: [[x(1, 2, 4, 5, 6), [2, 2, 2]]],
    "max_pool3d_with_indices": lambda: [[x(1, 2, 5, 5, 5), [3, 3, 3], [2, 2, 2], [1, 1, 1]]],
    "max_pool3d_with_indices_backward": lambda: [max_pool3d_backward()],
    "avg_pool3d_backward": lambda: [[x(1, 2, 2, 2, 2), x(1, 2, 4, 4, 4), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None]],
    "_adaptive_avg_pool3d_backward": lambda: [[x(1, 2, 2, 2, 2), x(1, 2, 4, 5, 6)]],
    "adaptive_max_pool2d_backward": lambda: [adaptive_max_backward(2)],
    "adaptive_max_pool3d_backward": lambda: [adaptive_max_backward(3)],
    "upsample_nearest3d _upsample_nearest_exact3d": lambda: [[x(1, 2, 3, 4, 5), [6, 6, 6]]],
    "_upsample_nearest_exact1d": lambda: [[x(2, 3, 4), [7]], [x(2, 3, 4), [6], 1.5]],
    "_upsample_nearest_exact2d": lambda: [[x(2, 3, 4, 4), [7, 9]]],
    "upsample_nearest1d_backward _upsample_nearest_exact1d_backward": lambda: [[x(2, 3, 7), [7], [2, 3, 4]]],
    "upsample_nearest2d_backward _upsample_nearest_exact2d_backward": lambda: [[x(2, 3, 7, 9), [7, 9], [2, 3, 4, 4]]],
    "upsample_nearest3d_backward _upsample_nearest_exact3d_backward": lambda: [[x(1, 2, 6, 6, 6), [6, 6, 6], [1, 2, 3, 4, 5]]],
    "upsample_linear1d": lambda: [[x(2, 3, 4), [7], False], [x(2, 3, 4), [7], True], [x(2, 3, 5), [8], False, 1.7]],
    "upsample_bilinear2d upsample_bicubic2d": lambda: [[x(2, 3, 4, 4), [7, 9], False], [x(2, 3, 4, 4), [7, 9], True],
                                                       [x(2, 3, 5, 5), [8, 8], False, 1.7, 1.7]],
    "upsample_trilinear3d": lambda: [[x(1, 2, 3, 4, 5), [6, 6, 6], False]],
    "upsample_linear1d_backward": lambda: [[x(2, 3, 7), [7], [2, 3, 4], False]],
    "upsample_bilinear2d_backward upsample_bicubic2d_backward": lambda: [[x(2, 3, 7, 9), [7, 9], [2, 3, 4, 4], False],
                                                                         [x(2, 3, 7, 9), [7, 9], [2, 3, 4, 4], True]],
    "upsample_trilinear3d_backward": lambda: [[x(1, 2, 6, 6, 6), [6, 6, 6], [1, 2, 3, 4, 5], False]],
    "grid_sampler_2d": lambda: [[x(2, 3, 5, 5), x(2, 4, 4, 2) * 0.7, mode, border, corners]
                                for mode, border, corners in ((0, 0, False), (1, 1, True), (0, 2, False))],
    "grid_sampler_2d_backward": lambda: [[x(2, 3, 4, 4), x(2, 3, 5, 5), x(2, 4, 4, 2) * 0.7, 0, 0, False, [True, True]]],
    "im2col": lambda: [[x(2, 3, 6, 6), [3, 3], [1, 1], [1, 1], [2, 2]]],
    "col2im": lambda: [[x(2, 27, 9), [6, 6], [3, 3], [1, 1], [1, 1], [2, 2]]],
    "eye": lambda: [[3]],
    "eye.m": lambda: [[3, 4]],
    "linspace": lambda: [[0.0, 1.0, 7]],
}
# Rows that need no sample of their own: others show the same, or the result holds whatever was there.
NO_SAMPLE = {"empty.memory_format", "new_empty_strided", "empty_like", "new_empty", "empty_permuted", "empty_strided", "lift_fresh", "lift_fresh_copy", "log_sigmoid_forward"}


def encoder_layer(use_gelu, norm_first):
    return [x(2, 5, 8), 8, 2, x(24, 8), x(24), x(8, 8), x(8), use_gelu, norm_first, 1e-5, x(8), x(8), x(8), x(8), x(16, 8), x(16),
            x(8, 16), x(8)]


def max_pool_backward():
    image = x(2, 3, 7, 7)
    y, indices = torch.ops.aten.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1])
    return [torch.randn_like(y), image, [3, 3], [2, 2], [1, 1], [1, 1], False, indices]


def max_pool3d_backward():
    image = x(1, 2, 5, 5, 5)
    y, indices = torch.ops.aten.max_pool3d_with_indices(image, [3, 3, 3], [2, 2, 2], [1, 1, 1])
    return [torch.randn_like(y), image, [3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], False, indices]


def adaptive_max_backward(dims):
    image = x(1, 2, *(5, 6, 7)[:dims])
    y, indices = getattr(torch.ops.aten, f"adaptive_max_pool{dims}d")(image, [2] * dims)
    return [torch.randn_like(y), image, indices]


def cdist_backward(p):
    a, b = x(4, 3), x(5, 3)
    found = torch.ops.aten._cdist_forward(a, b, p, None)
    return [torch.randn_like(found), a, b, p, found]


def weight_norm_backward(dim):
    v, g = x(4, 3, 5), pos(*(4, 1, 1) if dim == 0 else (1, 1, 5))
    w, norms = torch.ops.aten._weight_norm_interface(v, g, dim)
    return [torch.randn_like(w), v, g, norms, dim]


def nll_backward(sizes, weight, reduction):
    given, target = x(sizes[0], 5, *sizes[1:]), at(5, *sizes)
    forward = torch.ops.aten.nll_loss_forward if len(sizes) == 1 else torch.ops.aten.nll_loss2d_forward
    loss, total = forward(given, target, weight, reduction, 2)
    return [torch.randn_like(loss), given, target, weight, reduction, 2, total]


def attention_backward(causal):
    q, k, v = x(2, 3, 5, 8), x(2, 5, 3, 8).transpose(1, 2), x(2, 3, 5, 8)
    y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return [torch.randn_like(y), q, k, v, y, sums, 0.0, causal]


def own_attention_backward(mask, causal):
    q, k, v = x(2, 3, 5, 8), x(2, 5, 3, 8).transpose(1, 2), x(2, 3, 5, 8)
    y, log_sum = torch.ops.deft.attention(q, k, v, mask, causal, 0.3)
    return [torch.randn_like(y), q, k, v, mask, y, log_sum, causal, 0.3]


def calls_of(name):
    for names, make in SAMPLES.items():
        if name in names.split():
            return [c if isinstance(c, tuple) else (c, {}) for c in make()]
    return [([x()], {})] if not name.count(".") else None


def name_of(operator):
    return str(operator).removeprefix("aten.").removesuffix(".default")
