"""A report as `deft doctor` makes it, for tests of the page: every part filled, figures made up."""
import math

BUCKETS = [("data wait", 14.2), ("copies", 0.0), ("linear algebra", 31.5), ("other kernels", 11.8), ("autograd", 9.1),
           ("dispatch", 22.4), ("optimizer", 0.0), ("sync", 0.0), ("allocation", 6.3), ("other", 4.7)]
OPS = [("conv2d", "linear algebra", "cnn.cpp:31", 812, 61, 19.6, "compute-bound", 73),
       ("conv2d", "linear algebra", "cnn.cpp:33", 401, 78, 55, "compute-bound", 88),
       ("linear", "linear algebra", "cnn.cpp:40", 160, 9.4, 0.5, "memory-bound", 81),
       ("batch_norm", "other kernels", "cnn.cpp:32", 120, 5.2, 0.31, "memory-bound", 64),
       ("relu", "other kernels", "cnn.cpp:32", 66, 1.4, 0.125, "memory-bound", 55),
       ("max_pool2d", "other kernels", "cnn.cpp:34", 55, 2.1, 0.2, "overhead-bound", 21),
       ("log_softmax", "other kernels", "eval.cpp:52", 31, 0.08, 0.6, "overhead-bound", 3),
       ("argmax", "other kernels", "eval.cpp:53", 12, 0.02, 0.24, "overhead-bound", 2),
       ("reshape", "other kernels", "cnn.cpp:39", 5, None, None, None, None)]
CATEGORIES = ["parameters", "gradients", "optimizer", "saved for backward", "workspace", "data", "other"]


def ops():
    return [{"name": name, "pass": "forward", "type": "f32", "bucket": bucket, "site": site, "calls": 2048, "ms": ms,
             "overhead_ms": 20.1, "percent": ms / 20, "gflops": gflops, "gb_per_s": gflops and gflops / intensity,
             "flops_per_byte": intensity, "bound": bound, "of_limit_percent": limit}
            for name, bucket, site, ms, gflops, intensity, bound, limit in OPS]


def timeline():
    rows = []
    for i in range(120):
        phase = i % 30
        saved = 0 if i < 10 else 80.2 * math.sin(math.pi * phase / 30) ** 0.7
        rows.append({"ms": i * 1.7, "parameters": 4.1, "gradients": 4.1 if phase > 20 else 0,
                     "optimizer": 8.2 if i > 30 else 0,
                     "saved for backward": saved, "workspace": 10 if phase % 3 == 0 else 4, "data": 5,
                     "other": 6.3 + i % 4})
    return rows


def memory():
    rows = timeline()
    peak = max(rows, key=lambda r: sum(r[c] for c in CATEGORIES))
    return {"peak_mb": sum(peak[c] for c in CATEGORIES), "peak_by_category_mb": {c: peak[c] for c in CATEGORIES},
            "timeline": rows, "device": None,
            "holders": [{"op": "conv2d", "site": "cnn.cpp:31", "category": "saved for backward", "mb": 30.1,
                         "count": 12},
                        {"op": "batch_norm", "site": "cnn.cpp:32", "category": "saved for backward", "mb": 28.4,
                         "count": 12},
                        {"op": "relu", "site": "cnn.cpp:32", "category": "saved for backward", "mb": 14.2,
                         "count": 12}]}


def latency():
    def column(name, samples, p50, p90, p99, p999):
        return {"name": name, "samples": samples, "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "p999_ms": p999,
                "mean_ms": p50 * 1.04}
    bins, start = [], 0.9
    for i in range(28):
        end = start * 1.03
        bins.append({"from_ms": start, "to_ms": end,
                     "count": round(90 * math.exp(-((i - 5) / 4) ** 2) + (3 if i % 9 == 0 else 0))})
        start = end
    return {"covers": "one batch of 1: load, normalise, forward", "histogram": bins, "verdict": "stable (spread 3 %)",
            "columns": [column("cold", 1, 30.0, 30.0, 30.0, 30.0), column("warm", 500, 1.05, 1.16, 1.4, 2.0),
                        column("after idle", 20, 1.5, 1.9, 2.2, 2.2),
                        column("open loop, 700 per s", 400, 1.2, 2.2, 6.0, 8.0)]}


def trial(technique, stage, speedup, kept, reason, before=1.9):
    return {"technique": technique, "stage": stage, "before_ms": before, "after_ms": before / speedup,
            "speedup": speedup,
            "speedup_low": speedup * 0.95, "speedup_high": speedup * 1.05, "pairs": 15, "peak_mb_before": 120.0,
            "peak_mb_after": 120.0 / speedup, "output_error": 0.0 if kept else 0.0042, "accuracy_before": 0.912,
            "accuracy_after": 0.911, "kept": kept, "reason": reason}


def sample():
    return {
        "schema": 1, "kind": "deft doctor", "version": "0.1.0",
        "machine": {"cpu": "Neoverse-V1", "threads": 2, "gpu": None},
        "workload": {"name": "cnn on fashion", "task": "infer", "model": "cnn", "data": "fashion", "batch": 1,
                     "device": "cpu", "samples": 2048},
        "bottleneck": {"class": "overhead-bound",
                       "sentence": "38 % of the time goes into starting 1.2 million small ops, not into "
                       "their arithmetic: larger batches or compile() would help most."},
        "profile": {"wall_s": 2.0, "sum_s": 1.995, "overhead_percent": 0.8, "zones": 120000, "dropped": 0,
                    "cpu_utilisation_percent": 92, "device_utilisation_percent": None,
                    "buckets": [{"name": n, "s": p / 50, "percent": p} for n, p in BUCKETS],
                    "roofline": {"gflops": {"f32": 166.0, "bf16": 660.0}, "copy_gb_per_s": 40.1,
                                 "read_gb_per_s": 45.0},
                    "ops": ops(),
                    "modules": [{"name": "", "type": "Cnn(classes=10)", "calls": 2048, "ms": 1600.0,
                                 "self_ms": 60.0, "percent": 80.0},
                                {"name": "features.0", "type": "Conv2d(in=1, out=32, kernel=3x3, padding=1)",
                                 "calls": 2048,
                                 "ms": 812.0, "self_ms": 812.0, "percent": 40.6}]},
        "memory": memory(), "latency": latency(),
        "energy": {"joules_per_sample": None, "watts": None, "idle_watts": None, "method": None, "sampling_hz": None,
                   "reason": "no RAPL counter in /sys/class/powercap and no NVML"},
        "findings": [
            {"id": "D004", "name": "forward-without-backward", "severity": "warning",
             "file": "apps/deft/doctor_workload.cpp",
             "line": 88,
             "message": "2,048 forward passes recorded a graph that no backward pass ever used: 1.5 MB saved in each.",
             "fix": "Put the loop under InferenceModeGuard, or NoGradGuard where its results are trained on later.",
             "count": 2048,
             "figures": {"mb_per_step": 1.5}},
            {"id": "D007", "name": "inference-tensor-in-training", "severity": "error", "file": "train.cpp",
             "line": 17,
             "message": "A tensor made under inference_mode was used where a gradient is needed.",
             "fix": "Make it under no_grad.",
             "count": 1, "figures": {}},
            {"id": "D014", "name": "tiny-batch", "severity": "note", "file": "", "line": 0,
             "message": "Batches hold one sample.",
             "fix": "Use batches of 64.", "count": 2048, "figures": {"samples_per_batch": 1}}],
        "trials": [
            trial("prefetch 4", "input pipeline", 1.18, True, "helps beyond noise"),
            trial("inference mode", "grad mode and eval", 1.58, True, "helps beyond noise"),
            trial("autocast bf16", "precision", 0.93, False, "slower"),
            trial("channels_last", "layout", 1.01, False, "no difference beyond noise"),
            trial("compile", "compile", 1.31, True, "helps beyond noise"),
            trial("batches of 64", "threads and batch size", 2.7, True, "helps beyond noise"),
            {"technique": "int8", "stage": "quantization", "kept": None, "reason": "not available yet"}],
        "waterfall": [{"step": "as it was", "samples_per_s": 520.0, "speedup": 1.0},
                      {"step": "+ prefetch 4", "samples_per_s": 614.0, "speedup": 1.18},
                      {"step": "+ inference mode", "samples_per_s": 970.0, "speedup": 1.87},
                      {"step": "+ compile", "samples_per_s": 1270.0, "speedup": 2.44},
                      {"step": "+ batches of 64", "samples_per_s": 3430.0, "speedup": 6.6},
                      {"step": "verified together", "samples_per_s": 3390.0, "speedup": 6.52}],
        "next": [{"what": "run in inference mode", "gain": 1.58, "how": "deft infer --plan deft.plan.json"},
                 {"what": "use batches of 64", "gain": 2.7, "how": "deft infer --plan deft.plan.json"},
                 {"what": "fix D004: put the loop under InferenceModeGuard", "gain": None,
                  "how": "deft explain D004"}],
        "tables": {"modes": [{"mode": "training with gradients", "epoch_s": 4.0, "peak_mb": 200.0, "speedup": 1.0},
                             {"mode": "validation with gradients", "epoch_s": 1.9, "peak_mb": 180.0, "speedup": 2.1},
                             {"mode": "validation in no_grad", "epoch_s": 1.5, "peak_mb": 60.0, "speedup": 2.67},
                             {"mode": "inference in no_grad + half precision", "epoch_s": 0.9, "peak_mb": 40.0,
                              "speedup": 4.44}],
                   "families": [{"model": "resnet50", "batch": 8, "peak_mb": 300.0, "ms_per_batch": 300.0,
                                 "samples_per_s": 26.0},
                                {"model": "bert-base", "batch": 4, "peak_mb": 610.0, "ms_per_batch": 410.0,
                                 "samples_per_s": 9.8}]},
        "plan": {"schema": 1, "kind": "deft plan", "version": "0.1.0", "machine": "aarch64 Neoverse-V1, 2 threads",
                 "workload": "cnn on fashion, infer", "grad_mode": "inference", "eval": True, "workers": 0,
                 "prefetch": 4,
                 "batch": 64, "buckets": [], "dtype": "f32", "autocast": "off", "layout": "channels_last",
                 "compile": {"on": True, "off_passes": []}, "threads": 2},
        "written": {"plan": "deft.plan.json", "page": "report.html"}}
