#!/usr/bin/env python3
"""ONNX Runtime as a peer of `deft bench gemm` and `deft bench conv`: answers one line per request (see bench/peer.h).

One session per case: a model of one node whose weights are constants, so that it packs them before. bf16: its f32 products
with the option that lets them round to bf16 on Arm; nothing elsewhere. int8: u8 x s8 with a requantised result. Time:
minimum of the process's CPU time with one thread, else the median of wall time.
"""
import json
import platform
import statistics
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROUND_S = 0.004
F32, U8, S8 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8
random = np.random.default_rng(1)


def values(shape, dtype):
    if dtype == F32:
        return random.standard_normal(shape).astype(np.float32)
    if dtype == U8:
        return random.integers(0, 256, shape).astype(np.uint8)
    return random.integers(-127, 128, shape).astype(np.int8)


def model(op, shape, weight_shape, dtype, **attributes):
    """One node from input x; weights and scales are constants."""
    constants = {"w": values(weight_shape, F32 if dtype == F32 else S8)}
    names = ["x", "w"]
    if dtype != F32:
        constants |= {"xs": np.float32(0.02), "xz": np.uint8(128), "ws": np.float32(0.02), "wz": np.int8(0),
                      "ys": np.float32(1), "yz": np.uint8(128)}
        names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        op = "QLinear" + op
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "case", [helper.make_tensor_value_info("x", dtype, shape)],
                              [helper.make_tensor_value_info("y", dtype, None)],
                              [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def model_of(name):
    op, dtype, *words = name.split()
    sizes = [tuple(map(int, w.split("x"))) for w in words if all(c in "0123456789x" for c in w)]
    arm = platform.machine() == "aarch64"
    if dtype not in ("f32", "u8s8", "int8") and not (dtype == "bf16" and arm and op == "gemm"):
        raise ValueError(f"no kernels for {dtype}")
    element = F32 if dtype in ("f32", "bf16") else U8
    if op == "gemm":
        m, n, k = sizes[0]
        return model("MatMul", (m, k), (k, n), element), (m, k), element
    if op == "conv":
        shape, (out, kh, kw), (stride,), (padding,) = sizes
        attributes = {"kernel_shape": [kh, kw], "strides": [stride] * 2, "pads": [padding] * 4}
        return model("Conv", shape, (out, shape[1], kh, kw), element, **attributes), shape, element
    raise ValueError(f"no case {op}")


class Rounds:
    def __init__(self, name, threads):
        proto, shape, element = model_of(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        if " bf16 " in name:
            options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        binding.bind_cpu_input("x", values(shape, element))
        y = session.run(None, {"x": values(shape, element)})[0]
        binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(y))
        self.work = lambda: session.run_with_iobinding(binding)
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.pick = min if threads == 1 else statistics.median
        self.samples = []
        self.work()
        self.calls = max(1, int(ROUND_S / max(self.round(1), 1e-7)))

    def round(self, calls):
        start = self.clock()
        for _ in range(calls):
            self.work()
        return (self.clock() - start) / calls

    def ns(self, rounds):
        self.samples += [self.round(self.calls) for _ in range(rounds)]
        return self.pick(self.samples) * 1e9


def main():
    peer = f"onnxruntime {onnxruntime.__version__}"
    current, rounds = None, None
    for line in sys.stdin:
        name, _, rest = line.strip().partition("\t")
        mode, _, count = rest.partition("\t")
        answer = {"case": name, "peer": peer, "ns_per_op": None}
        if name:
            try:
                if current != (name, mode):
                    current, rounds = None, None
                    rounds, current = Rounds(name, int(mode.removeprefix("threads="))), (name, mode)
                answer["ns_per_op"] = rounds.ns(int(count))
            except Exception as error:  # an unknown case is no reason to end
                answer["error"] = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
