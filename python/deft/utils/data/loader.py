"""The DataLoader: batches in this process, or by worker processes."""

import collections.abc
import itertools
import multiprocessing
import queue
import random
import traceback

from ... import _C
from ..._C import Tensor
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler

_functions = _C.functions
_worker = None


class WorkerInfo:
    """What a worker process knows of itself."""

    def __init__(self, id, num_workers, seed, dataset):
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset


def get_worker_info():
    """In a worker process its number, seed and dataset; None elsewhere."""
    return _worker


def default_collate(batch):
    """Samples as one batch: tensors stacked, numbers as tensors, dicts and tuples by their parts."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _functions.stack(batch)
    if type(first).__module__ == "numpy":
        return _functions.stack([_functions.as_tensor(b) for b in batch]) if getattr(first, "shape", ()) else _functions.tensor([b.item() for b in batch])
    if isinstance(first, bool) or isinstance(first, int):
        return _functions.tensor(list(batch))
    if isinstance(first, float):
        return _functions.tensor(list(batch), dtype=_C.float64)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: default_collate([b[key] for b in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(parts) for parts in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        if any(len(b) != len(first) for b in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(parts) for parts in zip(*batch)]
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}")


class _Failure:
    """An exception in a worker, on its way to the one who waits."""

    def __init__(self, error, where):
        self.kind, self.text = type(error), f"Caught {type(error).__name__} in {where}.\n{traceback.format_exc()}"

    def raise_(self):
        try:
            error = self.kind(self.text)
        except Exception:
            error = RuntimeError(self.text)
        raise error


def _serve(dataset, collate, tasks, results, number, count, seed, init, batch_size, drop_last):
    """The life of a worker process: numbers of samples in, batches out."""
    global _worker
    _C.set_num_threads(1)
    _C._manual_seed(seed)
    random.seed(seed)
    _worker = WorkerInfo(number, count, seed, dataset)
    stream = None
    try:
        if init is not None:
            init(number)
        if isinstance(dataset, IterableDataset):
            stream = iter(dataset)
    except BaseException as error:
        results.put((None, _Failure(error, f"DataLoader worker process {number}")))
        return
    while True:
        task = tasks.get()
        if task is None:
            return
        order, indices = task
        try:
            if stream is None:
                value = collate([dataset[i] for i in indices])
            else:
                rows = list(itertools.islice(stream, batch_size))
                value = _End if not rows or (drop_last and len(rows) < batch_size) else collate(rows)
        except BaseException as error:
            value = _Failure(error, f"DataLoader worker process {number}")
        results.put((order, value))


class _End:
    """A worker's stream is over."""


class _Workers:
    """Processes that make batches ahead; batches come in order."""

    def __init__(self, loader, batches):
        self.loader, self.batches = loader, enumerate(batches)
        context = loader.multiprocessing_context or "fork"
        context = multiprocessing.get_context(context) if isinstance(context, str) else context
        self.results, self.tasks, self.processes = context.Queue(), [], []
        seed = int(_C.ops._randint(0, 2**62, (), generator=loader.generator).item())
        for number in range(loader.num_workers):
            tasks = context.Queue()
            process = context.Process(
                target=_serve, daemon=True,
                args=(loader.dataset, loader.collate_fn, tasks, self.results, number, loader.num_workers, seed + number,
                      loader.worker_init_fn, loader.batch_size, loader.drop_last))
            process.start()
            self.tasks.append(tasks)
            self.processes.append(process)
        self.alive, self.turn, self.next_order, self.ready, self.open = set(range(loader.num_workers)), 0, 0, {}, {}
        for _ in range(loader.num_workers * loader.prefetch_factor):
            self._ask()

    def _ask(self):
        if not self.alive:
            return
        try:
            order, indices = next(self.batches)
        except StopIteration:
            return
        workers = sorted(self.alive)
        worker = workers[self.turn % len(workers)]
        self.turn += 1
        self.open[order] = worker
        self.tasks[worker].put((order, indices))

    def _receive(self):
        while True:
            try:
                return self.results.get(timeout=self.loader.timeout or 5)
            except queue.Empty:
                dead = [p.pid for p in self.processes if not p.is_alive()]
                if dead:
                    raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(map(str, dead))}) exited unexpectedly") from None
                if self.loader.timeout:
                    raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds") from None

    def __iter__(self):
        try:
            while self.open:
                order = self.next_order
                while order not in self.ready:
                    got, value = self._receive()
                    if got is None:
                        value.raise_()
                    self.ready[got] = value
                self.next_order += 1
                value, worker = self.ready.pop(order), self.open.pop(order)
                if value is _End:
                    self.alive.discard(worker)
                    continue
                self._ask()
                if isinstance(value, _Failure):
                    value.raise_()
                yield value
        finally:
            self.close()

    def close(self):
        """Ends the processes."""
        for tasks in self.tasks:
            tasks.put(None)
        for process in self.processes:
            process.join(timeout=1)
            if process.is_alive():
                process.terminate()
        self.results.cancel_join_thread()
        for tasks in self.tasks:
            tasks.cancel_join_thread()


class DataLoader:
    """Batches of a dataset."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *,
                 prefetch_factor=None, persistent_workers=False, pin_memory_device=""):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.")
        self.dataset, self.num_workers, self.timeout, self.pin_memory = dataset, num_workers, timeout, pin_memory
        self.worker_init_fn, self.multiprocessing_context, self.generator = worker_init_fn, multiprocessing_context, generator
        self.prefetch_factor, self.persistent_workers = prefetch_factor or 2, persistent_workers
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle, sampler and batch_sampler options")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if sampler is None and not iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None and not iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler = batch_size, drop_last, sampler, batch_sampler
        self._single = batch_sampler is None and batch_size is None  # samples as they are, not in batches
        self.collate_fn = collate_fn or ((lambda rows: rows[0]) if self._single else default_collate)
        if self._single and collate_fn is not None:
            self.collate_fn = lambda rows: collate_fn(rows[0])
        if iterable and self._single:
            self.batch_size = 1

    def _batches(self):
        if isinstance(self.dataset, IterableDataset):
            return itertools.repeat(None)
        return ([i] for i in self.sampler) if self._single else iter(self.batch_sampler)

    def _in_process(self):
        if isinstance(self.dataset, IterableDataset):
            stream = iter(self.dataset)
            while rows := list(itertools.islice(stream, self.batch_size)):
                if len(rows) < self.batch_size and self.drop_last:
                    return
                yield self.collate_fn(rows)
            return
        for indices in self._batches():
            yield self.collate_fn([self.dataset[i] for i in indices])

    def __iter__(self):
        batches = iter(_Workers(self, self._batches())) if self.num_workers else self._in_process()
        return map(_pinned, batches) if self.pin_memory and _C._device_count() else batches

    def __len__(self):
        if isinstance(self.dataset, IterableDataset):
            length = len(self.dataset)
            return length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        return len(self.sampler) if self._single else len(self.batch_sampler)


def _pinned(value):
    if isinstance(value, Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {k: _pinned(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_pinned(v) for v in value)
    return value
