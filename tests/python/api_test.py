"""What users of PyTorch type besides the core: data in workers, optimizers and averages, parametrizations, processes, devices."""

import copy
import io
import math
import pickle
import time
import unittest

import deft
import deft.multiprocessing as mp
from deft import nn
from deft.utils import data


class Numbers(data.Dataset):
    def __init__(self, count=10):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return i, {"square": float(i * i), "name": str(i)}


def send_twice(queue, tensor):
    queue.put(tensor * 2)


class AtOnce(Numbers):
    def __getitems__(self, indices):
        return [-i for i in indices]


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(0 if info is None else info.id, 8, 1 if info is None else info.num_workers))


class Loading(unittest.TestCase):
    def test_persistent_workers_serve_several_epochs(self):
        loader = data.DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
        epochs = []
        for _ in range(3):
            epochs.append([x.tolist() for x, _ in loader])
            pids = [p.pid for p in loader._workers.processes]
        self.assertEqual(epochs, [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 3)
        self.assertEqual(pids, [p.pid for p in loader._workers.processes])
        next(iter(loader))  # an epoch that is left early does not disturb the next one
        self.assertEqual([x.tolist() for x, _ in loader], epochs[0])
        processes = loader._workers.processes
        del loader
        for process in processes:
            process.join(5)
            self.assertFalse(process.is_alive())

    def test_streams_start_again_with_each_epoch(self):
        loader = data.DataLoader(Stream(), batch_size=2, num_workers=2, persistent_workers=True)
        for _ in range(2):
            self.assertEqual(sorted(i for x in loader for i in x.tolist()), list(range(8)))

    def test_samples_at_once_and_single_ones(self):
        self.assertEqual(next(iter(data.DataLoader(AtOnce(), 3))).tolist(), [0, -1, -2])
        self.assertEqual(next(iter(data.DataLoader(data.TensorDataset(deft.arange(3), deft.ones(3)), batch_size=None))),
                         [deft.tensor(0), deft.tensor(1.0)])

    def test_distributed_sampler(self):
        parts = [list(data.DistributedSampler(Numbers(10), 4, rank, shuffle=False)) for rank in range(4)]
        self.assertEqual(parts, [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]])
        a, b = data.DistributedSampler(Numbers(10), 1, 0), data.DistributedSampler(Numbers(10), 1, 0)
        b.set_epoch(1)
        self.assertEqual((sorted(a), list(a) == list(a), list(a) == list(b)), (list(range(10)), True, False))


class Modules(unittest.TestCase):
    def test_layers_without_bias(self):
        for layer in (nn.Linear(2, 3, bias=False), nn.Conv1d(2, 3, 1, bias=False), nn.LayerNorm(3, bias=False), nn.GRUCell(2, 3, bias=False)):
            self.assertEqual([n for n, _ in layer.named_parameters() if "bias" in n], [])
        self.assertEqual(nn.Linear(2, 3, bias=False)(deft.ones(1, 2)).shape, (1, 3))

    def test_layers_of_no_features(self):
        self.assertEqual(deft.nn.Linear(0, 2)(deft.ones(3, 0)).shape, (3, 2))

    def test_one_process_runs_what_several_would(self):
        net = deft.nn.Sequential(deft.nn.Linear(3, 4), deft.nn.Sequential(deft.nn.BatchNorm1d(4)))
        whole = deft.nn.SyncBatchNorm.convert_sync_batchnorm(net)
        self.assertIsInstance(whole[1][0], deft.nn.SyncBatchNorm)
        self.assertEqual(list(whole.state_dict()), ["0.weight", "0.bias", "1.0.weight", "1.0.bias", "1.0.running_mean", "1.0.running_var",
                                                    "1.0.num_batches_tracked"])
        x = deft.arange(12.0).reshape(4, 3)
        plain = deft.nn.BatchNorm1d(4)
        self.assertEqual(whole(x).tolist(), plain(whole[0](x)).tolist())
        self.assertEqual(whole[1][0].running_mean.tolist(), plain.running_mean.tolist())
        self.assertEqual(deft.nn.DataParallel(whole).eval()(x).tolist(), whole.eval()(x).tolist())
        with self.assertRaisesRegex(NotImplementedError, "one process per device"):
            deft.nn.DataParallel(net, device_ids=[0, 1])

    def test_parameters_without_a_shape(self):
        layer = deft.nn.LazyLinear(2)
        self.assertIsInstance(layer.weight, deft.nn.UninitializedParameter)
        weight = layer.weight
        layer(deft.ones(1, 5))
        self.assertIs(type(layer.weight), deft.nn.Parameter)
        self.assertIs(layer.weight, weight)
        buffer = deft.nn.UninitializedBuffer()
        buffer.materialize((2, 3), dtype=deft.int32)
        self.assertEqual((type(buffer), buffer.shape, buffer.dtype), (deft.nn.Buffer, (2, 3), deft.int32))

    def test_random_windows_stay_inside(self):
        x = deft.arange(2 * 3 * 9 * 9.0).reshape(2, 3, 9, 9)
        for layer in (deft.nn.FractionalMaxPool2d(3, output_size=(4, 5)), deft.nn.FractionalMaxPool2d((2, 3), output_ratio=0.5, return_indices=True)):
            pooled = layer(x)
            values = pooled[0] if isinstance(pooled, tuple) else pooled
            self.assertEqual(values.shape[2:], (4, 5) if layer.output_size else (4, 4))
            if isinstance(pooled, tuple):
                self.assertEqual(x.flatten(2).gather(2, pooled[1].flatten(2)).tolist(), values.flatten(2).tolist())
        with self.assertRaisesRegex(RuntimeError, "4 windows of 7 in 9"):
            deft.nn.functional.fractional_max_pool2d(x, 7, 4)

    def test_skip_init_keeps_names_and_sizes(self):
        layer = deft.nn.utils.skip_init(deft.nn.Linear, 3, 2, dtype=deft.float64)
        self.assertEqual((layer.weight.shape, layer.weight.dtype, layer.weight.requires_grad), ((2, 3), deft.float64, True))

    def test_first_names_warn(self):
        with self.assertWarnsRegex(FutureWarning, "constant_"):
            self.assertEqual(deft.nn.init.constant(deft.zeros(2), 3).tolist(), [3, 3])
        with self.assertWarnsRegex(FutureWarning, "clip_grad_norm_"):
            deft.nn.utils.clip_grad_norm([deft.nn.Parameter(deft.ones(1))], 1.0)

    def test_lazy_layers(self):
        model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
        optimizer_sees = list(model.parameters())
        self.assertEqual(model(deft.ones(2, 3, 5, 5)).shape, (2, 2))
        self.assertEqual([type(m) for m in model], [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear])
        self.assertEqual([a is b for a, b in zip(optimizer_sees, model.parameters())], [True] * 6)
        other = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
        other.load_state_dict(model.state_dict())
        self.assertTrue(deft.equal(other.eval()(deft.ones(1, 3, 5, 5)), model.eval()(deft.ones(1, 3, 5, 5))))

    def test_a_parameter_replaced_by_a_tensor(self):
        layer, scale = nn.Linear(2, 2, bias=False), deft.tensor(3.0, requires_grad=True)
        del layer.weight
        layer.weight = deft.eye(2) * scale
        layer(deft.ones(1, 2)).sum().backward()
        self.assertEqual(scale.grad.item(), 2)

    def test_parametrizations(self):
        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3), n_power_iterations=20)
        layer(deft.ones(1, 3))
        v = deft.randn(3)
        for _ in range(200):
            v = nn.functional.normalize(layer.weight.t() @ (layer.weight @ v), dim=0)
        self.assertAlmostEqual((layer.weight @ v).norm().item(), 1, places=3)
        weight = layer.weight.detach()
        again = copy.deepcopy(layer)
        self.assertTrue(deft.allclose(again.eval().weight, layer.eval().weight))
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
        self.assertIs(type(layer), nn.Linear)
        self.assertTrue(deft.allclose(layer.weight, weight, atol=1e-3))
        old = nn.utils.weight_norm(nn.Linear(3, 2))
        before = old(deft.ones(1, 3))
        nn.utils.remove_weight_norm(old)
        self.assertTrue(deft.allclose(old(deft.ones(1, 3)), before))
        self.assertEqual(sorted(n for n, _ in old.named_parameters()), ["bias", "weight"])

    def test_load_with_assign_and_from_older_files(self):
        model, given = nn.BatchNorm1d(2), {"weight": deft.ones(2) * 3, "bias": deft.zeros(2), "running_mean": deft.zeros(2), "running_var": deft.ones(2)}
        self.assertEqual(model.load_state_dict(given).missing_keys, [])
        model.load_state_dict(given, assign=True)
        given["running_mean"] += 5
        self.assertEqual(model.running_mean.tolist(), [5, 5])

    def test_averages_of_weights(self):
        model = nn.Linear(1, 1, bias=False)
        average = deft.optim.swa_utils.AveragedModel(model)
        for value in (1.0, 2.0, 6.0):
            nn.init.constant_(model.weight, value)
            average.update_parameters(model)
        self.assertAlmostEqual(average.module.weight.item(), 3.0, places=6)
        ema = deft.optim.swa_utils.AveragedModel(model, multi_avg_fn=deft.optim.swa_utils.get_ema_multi_avg_fn(0.5))
        ema.update_parameters(model)
        nn.init.constant_(model.weight, 0.0)
        ema.update_parameters(model)
        self.assertEqual(ema.module.weight.item(), 3.0)


class Tensors(unittest.TestCase):
    def test_typed_tensors(self):
        t = deft.FloatTensor([1, 2])
        self.assertEqual((t.dtype, t.type(), deft.LongTensor(2, 3).shape), (deft.float32, "deft.FloatTensor", (2, 3)))
        self.assertTrue(isinstance(t, deft.FloatTensor) and not isinstance(t, deft.LongTensor))
        self.assertEqual(t.type("deft.LongTensor").dtype, deft.int64)

    def test_in_place_views_refuse_history(self):
        x = deft.ones(2, requires_grad=True) * 2
        with self.assertRaisesRegex(NotImplementedError, "history"):
            x.unsqueeze_(0)

    def test_default_device_and_tf32(self):
        deft.set_default_device("cpu")
        with deft.device("cpu") as device:
            self.assertEqual(deft.ones(1).device, device)
        self.assertEqual(deft.get_default_device(), deft.device("cpu"))
        deft.set_float32_matmul_precision("high")
        self.assertTrue(deft.backends.cuda.matmul.allow_tf32)
        deft.set_float32_matmul_precision("highest")
        self.assertEqual(deft.get_float32_matmul_precision(), "highest")

    def test_draws(self):
        deft.manual_seed(0)
        x = deft.empty(4000)
        self.assertAlmostEqual(x.exponential_(2.0).mean().item(), 0.5, delta=0.05)
        self.assertAlmostEqual(x.bernoulli_(0.3).mean().item(), 0.3, delta=0.05)
        self.assertEqual(sorted(set(x.random_(3).tolist())), [0, 1, 2])
        self.assertAlmostEqual(x.geometric_(0.25).mean().item(), 4, delta=0.5)
        self.assertAlmostEqual(deft.poisson(deft.full((4000,), 3.0)).mean().item(), 3, delta=0.2)
        state = deft.get_rng_state()
        with deft.random.fork_rng():
            deft.rand(5)
        self.assertTrue(deft.equal(state, deft.get_rng_state()))

    def test_errors_name_the_line_of_the_program(self):
        with self.assertRaisesRegex(deft.GradError, "called at api_test.py"):
            deft.ones(2).sum().backward()

    def test_save_maps_to_a_place(self):
        file = io.BytesIO()
        deft.save([deft.ones(2)], file)
        for place in ("cpu", deft.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage, lambda storage, location: storage.cpu()):
            file.seek(0)
            self.assertEqual(deft.load(file, map_location=place)[0].tolist(), [1, 1])

    def test_singular_systems(self):
        with self.assertRaisesRegex(RuntimeError, "singular"):
            deft.linalg.inv(deft.ones(2, 2))
        self.assertEqual(deft.det(deft.ones(2, 2)).item(), 0)
        with self.assertRaisesRegex(RuntimeError, "not positive-definite"):
            deft.linalg.cholesky(-deft.eye(2))

    def test_gradcheck_finds_wrong_gradients(self):
        class Wrong(deft.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2.1

        x = deft.ones(3, dtype=deft.float64, requires_grad=True)
        self.assertFalse(deft.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False))
        self.assertTrue(deft.autograd.gradgradcheck(lambda t: t**3, (x,)))


def add_one(tensor, queue, received):
    tensor += 1
    queue.put(tensor[1:])
    received.wait(60)  # who sends memory lives until it has arrived


class Processes(unittest.TestCase):
    def test_memory_is_shared_both_ways(self):
        context = mp.get_context("fork")
        queue, received, tensor = context.SimpleQueue(), context.Event(), deft.zeros(4).share_memory_()
        process = context.Process(target=add_one, args=(tensor, queue, received))
        process.start()
        back = queue.get()
        received.set()
        process.join()
        self.assertEqual(tensor.tolist(), [1, 1, 1, 1])
        tensor[2] = 7
        self.assertEqual(back.tolist(), [1, 7, 1])
        self.assertFalse(deft.zeros(1).is_shared())

    def test_a_process_may_end_before_its_tensor_is_taken(self):
        for method in ("fork", "spawn"):
            context = mp.get_context(method)
            queue = context.Queue()
            process = context.Process(target=send_twice, args=(queue, deft.ones(3)))
            process.start()
            time.sleep(0.3)
            self.assertEqual(queue.get(timeout=60).tolist(), [2, 2, 2])
            process.join(60)
            self.assertEqual(process.exitcode, 0)

    def test_plain_pickles_are_copies(self):
        tensor = deft.zeros(2).share_memory_()
        again = pickle.loads(pickle.dumps(tensor))
        tensor += 1
        self.assertEqual(again.tolist(), [0, 0])


class Profiler(unittest.TestCase):
    def test_names_and_calls(self):
        ready = []
        schedule = deft.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
        with deft.profiler.profile(schedule=schedule, on_trace_ready=ready.append) as prof:
            for _ in range(6):
                with deft.profiler.record_function("mine"):
                    deft.ones(16, 16) @ deft.ones(16, 16)
                prof.step()
        rows = {row.key: row for row in prof.key_averages()}
        self.assertEqual((rows["mine"].count, rows["matmul"].count, len(ready)), (2, 2, 1))
        self.assertGreaterEqual(rows["mine"].cpu_time_total, rows["matmul"].cpu_time_total)
        self.assertTrue(math.isfinite(rows["mine"].cpu_time))


if __name__ == "__main__":
    unittest.main()
