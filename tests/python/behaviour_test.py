"""What shows only over time: memory, threads, interrupts, processes."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import deft
from deft import nn


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@unittest.skipUnless(os.path.exists("/proc/self/statm"), "needs /proc")
class Memory(unittest.TestCase):
    def grows_by(self, step, count):
        for _ in range(count // 10):
            step()
        gc.collect()
        before = resident_bytes()
        for _ in range(count):
            step()
        gc.collect()
        return resident_bytes() - before

    def test_100000_steps_of_a_small_loop(self):
        w, b = deft.ones(8, requires_grad=True), deft.ones(8)

        def step():
            loss = (w * b).sum()
            loss.backward()
            w.grad = None
            b[0] = loss.item()

        self.assertLess(self.grows_by(step, 100_000), 4 << 20)

    def test_training_steps(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
        optimizer = deft.optim.AdamW(model.parameters(), lr=1e-3)
        x = deft.randn(4, 8)

        def step():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        self.assertLess(self.grows_by(step, 5000), 4 << 20)

    def test_hooks_functions_and_views(self):
        class Twice(deft.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        def step():
            w = deft.ones(1000, requires_grad=True)
            handle = w.register_hook(lambda g: g * 1)
            (Twice.apply(w)[::2] * deft.tensor([1.0])).sum().backward()
            handle.remove()
            str(w[:3].numpy(force=True)), w.detach().tolist()

        self.assertLess(self.grows_by(step, 3000), 4 << 20)

    def test_errors_let_go_of_tensors(self):
        def step():
            for wrong in (lambda: deft.ones(2000) + deft.ones(3000), lambda: deft.ones(2000).view(3), lambda: deft.ones(2).nothing):
                try:
                    wrong()
                except (RuntimeError, AttributeError):
                    pass

        self.assertLess(self.grows_by(step, 5000), 4 << 20)


class Threads(unittest.TestCase):
    def test_others_run_while_an_op_runs(self):
        a = deft.ones(1200, 1200)
        seen, done = [], threading.Event()

        def work():
            for _ in range(10):
                began = time.perf_counter()
                a @ a
                seen.append((began, time.perf_counter()))
            done.set()

        ticks = []
        thread = threading.Thread(target=work)
        thread.start()
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)
        thread.join()
        inside = sum(any(begin < t < end for begin, end in seen) for t in ticks)
        self.assertGreater(inside, 3)  # with the lock held this thread would see only what is between two products

    def test_workers_are_forked_while_threads_run(self):
        class Products(deft.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, i):
                return (a @ a).sum() + i

        a, stop = deft.ones(300, 300), threading.Event()
        busy = threading.Thread(target=lambda: [a @ a for _ in iter(stop.is_set, True)])
        busy.start()
        try:
            for _ in range(2):
                batches = list(deft.utils.data.DataLoader(Products(), batch_size=4, num_workers=2))
                self.assertEqual([b[0].item() for b in batches], [300.0**3, 300.0**3 + 4])
        finally:
            stop.set()
            busy.join()

    def test_many_threads_train(self):
        results = []

        def train(seed):
            w = deft.full((4,), float(seed), requires_grad=True)
            for _ in range(200):
                (w * w).sum().backward()
                with deft.no_grad():
                    w -= 0.01 * w.grad
                w.grad = None
            results.append((seed, w.detach().sum().item()))

        threads = [threading.Thread(target=train, args=(i,)) for i in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 4)
        for seed, total in results:
            self.assertAlmostEqual(total, 4 * seed * 0.98**200, places=4)


class Interrupts(unittest.TestCase):
    def interrupted(self, code):
        """Runs code that prints 'ready' and goes on for ever; gives what it says after Ctrl-C, and how long that took."""
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 start_new_session=True)
        self.assertEqual(child.stdout.readline().strip(), "ready")
        time.sleep(0.3)
        began = time.perf_counter()
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all processes of the program
        out, err = child.communicate(timeout=60)
        return out, err, child, time.perf_counter() - began

    def test_a_training_loop(self):
        out, err, child, seconds = self.interrupted("""
            import deft
            w = deft.ones(64, 64, requires_grad=True)
            print("ready", flush=True)
            try:
                while True:
                    (w @ w).sum().backward()
            except KeyboardInterrupt:
                print("stopped", flush=True)
        """)
        self.assertIn("stopped", out)
        self.assertEqual((child.returncode, err), (0, ""))
        self.assertLess(seconds, 20)

    def test_worker_processes_end_too(self):
        out, err, child, _ = self.interrupted("""
            import multiprocessing, time, deft
            class Rows(deft.utils.data.Dataset):
                def __len__(self): return 10**9
                def __getitem__(self, i): return deft.ones(8)
            try:
                for i, batch in enumerate(deft.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2)):
                    if i == 3: print("ready", flush=True)
                    time.sleep(0.001)
            except KeyboardInterrupt:
                pass
            print("left:", len(multiprocessing.active_children()), flush=True)
        """)
        self.assertIn("left: 0", out)
        self.assertEqual(child.returncode, 0)
        self.assertNotIn("Traceback", err)
        with self.assertRaises(ProcessLookupError):  # nobody of its group is left
            for _ in range(100):
                os.killpg(child.pid, 0)
                time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
