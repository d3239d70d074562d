#!/usr/bin/env python3
"""PyTorch or ONNX Runtime as a peer of `deft bench models`: answers one line per request (see bench/peer.h).

usage: peer_models.py [torch | torch-compile | onnxruntime]    PyTorch trains and infers, ONNX Runtime infers what PyTorch exports.
Best settings: channels_last or not, whichever is faster, no gradients in inference, all graph optimisations, bf16 fast math
where there is one. Time: median of calls, wall clock.
"""
import io
import json
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
LENGTH = 128


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


class BasicBlock(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        same = stride == 1 and inputs == width
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet(block, expansion, blocks):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        for i in range(count):
            layers.append(block(inputs, 64 << stage, 2 if stage and i == 0 else 1))
            inputs = (64 << stage) * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.qkv, self.mix = heads, nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x, causal=False):
        n, length, hidden = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        else:
            scores = q @ k.transpose(-1, -2) / (hidden // self.heads) ** 0.5
            if causal:
                scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
            y = scores.softmax(-1) @ v
        return self.mix(y.transpose(1, 2).reshape(n, length, hidden))


class BertLayer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(hidden, heads), nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, hidden, layers, heads):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, hidden), nn.Embedding(512, hidden)
        self.types, self.norm = nn.Embedding(2, hidden), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(BertLayer(hidden, heads) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, tokens):
        x = self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]] + self.types.weight[0])
        for layer in self.layers:
            x = layer(x)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class Gpt2Layer(BertLayer):
    def forward(self, x):
        x = x + self.attention(self.norm1(x), causal=True)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(50257, 768), nn.Embedding(1024, 768), nn.LayerNorm(768)
        self.layers = nn.ModuleList(Gpt2Layer(768, 12) for _ in range(12))

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.words.weight)


def workload(name, batch):
    """model, inputs, targets"""
    if name == "mlp":
        model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return model, torch.randn(batch, 784), torch.randint(0, 10, (batch,))
    if name in ("resnet18", "resnet50"):
        model = resnet(BasicBlock, 1, (2, 2, 2, 2)) if name == "resnet18" else resnet(Bottleneck, 4, (3, 4, 6, 3))
        return model, torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    if name in ("bert-base", "bert-large"):
        model = Bert(768, 12, 12) if name == "bert-base" else Bert(1024, 24, 16)
        return model, torch.randint(1, 30522, (batch, LENGTH)), torch.randint(0, 2, (batch,))
    if name == "gpt2":
        return Gpt2(), torch.randint(0, 50257, (batch, LENGTH)), torch.randint(0, 50257, (batch * LENGTH,))
    raise KeyError(f"no model {name}")


def torch_call(name, batch, train, kind, device, compiled=False):
    def make(last):
        model, x, y = workload(name, batch)
        model, x, y = model.to(device), x.to(device), y.to(device)
        low = torch.bfloat16
        if kind == "bf16":
            model, x = model.to(low), x.to(low) if x.is_floating_point() else x
        if last and x.dim() == 4:
            model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        model.train(train)
        if compiled:  # with CUDA graphs in inference, where launches count
            model = torch.compile(model, mode="default" if train or device == "cpu" else "reduce-overhead")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step():
            with torch.autocast(device, low, enabled=kind == "amp"):
                out = model(x)
                loss = F.cross_entropy(out.reshape(-1, out.shape[-1]).float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        def infer():
            with torch.inference_mode(), torch.autocast(device, low, enabled=kind == "amp"):
                model(x)

        return step if train else infer

    images = name.startswith("resnet")
    calls = [make(True)] if compiled and images else [make(False)] + ([make(True)] if images else [])
    return min((timed(call, device) for call in calls), key=lambda call: (call(), call())[1])


DEVICE_CALLS = 4  # in a row, as Deft is measured


def timed(call, device):
    """A function that gives the seconds of one call"""
    def run():
        calls = 1 if device == "cpu" else DEVICE_CALLS
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    return run


def onnxruntime_call(name, batch, train, kind, threads):
    import onnxruntime

    if train:
        raise KeyError("inference only")
    model, x, _ = workload(name, batch)
    file = io.BytesIO()
    torch.onnx.export(model.eval(), (x,), file, input_names=["x"], output_names=["y"], opset_version=17, dynamo=False)

    def make(without):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        if kind != "f32":  # f32 weights, products in bf16
            options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
        session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"],
                                               disabled_optimizers=without)
        return timed(lambda: session.run(None, {"x": x.numpy()}), "cpu")

    # That fusion makes an op of products that has no bf16 path.
    calls = [make([])] + ([make(["MatMulAddFusion"])] if kind != "f32" else [])
    return min(calls, key=lambda call: min(call() for _ in range(3)))


def call_of(backend, case, where):
    word, name, batch, run, kind = case.split()
    if word != "model":
        raise KeyError(f"not a model: {case}")
    device = "cuda" if where.startswith("cuda") else "cpu"
    threads = int(where.partition("=")[2] or 1)
    if device == "cpu":
        torch.set_num_threads(threads)
    else:
        torch.backends.cudnn.benchmark = True
    if backend == "onnxruntime":
        return onnxruntime_call(name, int(batch), run == "train", kind, threads)
    return torch_call(name, int(batch), run == "train", kind, device, backend == "torch-compile")


def main():
    backend = sys.argv[1] if len(sys.argv) > 1 else "torch"
    peer = f"torch {torch.__version__}" + (" compile" if backend == "torch-compile" else "")
    if backend == "onnxruntime":
        import onnxruntime
        peer = f"onnxruntime {onnxruntime.__version__}"
    current, call, samples = None, None, []
    for line in sys.stdin:
        name, _, rest = line.strip().partition("\t")
        mode, _, count = rest.partition("\t")
        answer = {"case": name, "peer": peer, "ns_per_op": None}
        if name:
            try:
                if current != (name, mode):
                    call, samples, current = None, [], (name, mode)
                    call = call_of(backend, name, mode)
                    call()
                if call:
                    samples += [call() for _ in range(int(count))]
                    answer["ns_per_op"] = statistics.median(samples) * 1e9
            except Exception as error:  # an unknown case is no reason to end
                answer["error"] = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
