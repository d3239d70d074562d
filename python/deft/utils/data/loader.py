"""The DataLoader: batches in this process, or by worker processes."""

import collections.abc
import itertools
import multiprocessing
import queue
import random
import signal
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


def default_convert(data):
    """NumPy's arrays and numbers as tensors, by parts; all else as it is."""
    if isinstance(data, Tensor) or isinstance(data, (str, bytes)):
        return data
    if type(data).__module__ == "numpy":
        return _functions.as_tensor(data) if getattr(data, "dtype", None) is not None and data.dtype.kind in "biuf" else data
    if isinstance(data, collections.abc.Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, collections.abc.Sequence):
        return [default_convert(value) for value in data]
    return data


def _samples(dataset, indices):
    """Many samples: at once where the dataset can."""
    many = getattr(dataset, "__getitems__", None)
    return many(indices) if many is not None else [dataset[i] for i in indices]


def default_collate(batch):
    """Samples as one batch: tensors stacked, numbers as tensors, dicts and tuples by their parts."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _functions.stack(batch)
    if type(first).__module__ == "numpy":
        return _functions.stack([_functions.as_tensor(b) for b in batch]) if getattr(first, "shape", ()) else _functions.tensor([b.item() for b in batch], dtype=_functions.as_tensor(first.reshape(1)).dtype)
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process gets it too, and ends this one
    _C.set_num_threads(1)
    _C._manual_seed(seed)
    random.seed(seed)
    _worker = WorkerInfo(number, count, seed, dataset)
    stream, current = None, None
    try:
        if init is not None:
            init(number)
    except BaseException as error:
        results.put((None, None, _Failure(error, f"DataLoader worker process {number}")))
        return
    while True:
        task = tasks.get()
        if task is None:
            return
        epoch, order, indices = task
        try:
            if isinstance(dataset, IterableDataset):
                if epoch != current:
                    stream, current = iter(dataset), epoch
                rows = list(itertools.islice(stream, batch_size))
                value = _End if not rows or (drop_last and len(rows) < batch_size) else collate(rows)
            else:
                value = collate(_samples(dataset, indices))
        except BaseException as error:
            value = _Failure(error, f"DataLoader worker process {number}")
        results.put((epoch, order, value))


class _End:
    """A worker's stream is over."""


class _Workers:
    """Processes that make batches ahead; batches come in order."""

    def __init__(self, loader):
        # Not the loader itself: it holds these, and ends them when it goes.
        self.prefetch, self.timeout, self.persistent, self.epoch = loader.prefetch_factor, loader.timeout, loader.persistent_workers, 0
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
        self.begin(())

    def begin(self, batches):
        """Starts an epoch; what is left of another one is not waited for."""
        self.batches, self.epoch = enumerate(batches), self.epoch + 1
        self.alive, self.turn, self.next_order, self.ready, self.open = set(range(len(self.processes))), 0, 0, {}, {}
        for _ in range(len(self.processes) * self.prefetch):
            self._ask()
        return self

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
        self.tasks[worker].put((self.epoch, order, indices))

    def _receive(self):
        while True:
            try:
                return self.results.get(timeout=self.timeout or 5)
            except queue.Empty:
                dead = [p.pid for p in self.processes if not p.is_alive()]
                if dead:
                    raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(map(str, dead))}) exited unexpectedly") from None
                if self.timeout:
                    raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds") from None

    def __iter__(self):
        epoch = self.epoch
        try:
            while self.open and epoch == self.epoch:
                order = self.next_order
                while order not in self.ready:
                    of, got, value = self._receive()
                    if of is None:
                        value.raise_()
                    if of == self.epoch:
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
            if not self.persistent:
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


class _First:
    """A collate_fn of single samples."""

    def __init__(self, function):
        self.function = function

    def __call__(self, rows):
        return self.function(rows[0])


_convert_first = _First(default_convert)


class DataLoader:
    """Batches of a dataset."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *,
                 prefetch_factor=None, persistent_workers=False, pin_memory_device="", in_order=True):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.")
        if num_workers == 0 and persistent_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self._workers = None
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
        self.collate_fn = collate_fn or (_convert_first if self._single else default_collate)
        if self._single and collate_fn is not None:
            self.collate_fn = _First(collate_fn)
        if iterable and self._single:
            self.batch_size = 1

    def __del__(self):
        workers = self.__dict__.get("_workers")
        if workers is not None and self.persistent_workers:
            workers.close()

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
            yield self.collate_fn(_samples(self.dataset, indices))

    def __iter__(self):
        if not self.num_workers:
            batches = self._in_process()
        else:
            if self._workers is None or not self.persistent_workers:
                self._workers = _Workers(self)
            batches = iter(self._workers.begin(self._batches()))
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
