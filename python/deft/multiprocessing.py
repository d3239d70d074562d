"""Python's multiprocessing, with tensors in memory that processes share.

A tensor that is sent to another process moves into shared memory, and what one process writes the other sees."""

import mmap
import multiprocessing as _multiprocessing
import os
import sys
import threading
import time
import weakref
from multiprocessing import *  # noqa: F403
from multiprocessing import reduction as _reduction, resource_sharer as _resource_sharer, util as _util

from . import _C
from ._C import Tensor

get_context = _multiprocessing.get_context
_memories = weakref.WeakValueDictionary()  # by address


class _Memory(mmap.mmap):
    """Pages that a file descriptor stands for; they are gone when no process maps them."""

    def __new__(cls, descriptor, size):
        self = super().__new__(cls, descriptor, size)
        self.descriptor, self.size = descriptor, size
        weakref.finalize(self, os.close, descriptor)
        return self


def _map(descriptor, size):
    memory = _Memory(descriptor, size)
    data = _C.ops.frombuffer(memory, dtype=_C.uint8)
    _memories[data.data_ptr()] = memory
    return data.data_ptr(), memory


def _memory_of(tensor):
    """The shared memory that holds a tensor, and its address."""
    place = tensor.data_ptr()
    for address, memory in list(_memories.items()):
        if address <= place < address + memory.size:
            return address, memory
    return None, None


def is_shared(tensor):
    """Whether child processes share the memory."""
    return _memory_of(tensor)[1] is not None


def share(tensor):
    """Moves a tensor on the host into shared memory."""
    if tensor.is_cuda:
        return tensor  # processes share what lies on a GPU already
    if is_shared(tensor):
        return tensor
    if not sys.platform.startswith("linux"):
        raise _C.UnsupportedError("share_memory_: shared memory needs Linux; send tensors through queues by value")
    count = max(tensor.numel(), 1)
    descriptor = os.memfd_create("deft")
    os.ftruncate(descriptor, count * tensor.element_size())
    _, memory = _map(descriptor, count * tensor.element_size())
    plain = _C.ops.frombuffer(memory, dtype=tensor.dtype)[: tensor.numel()].reshape(tuple(tensor.shape))
    plain.copy_(tensor.detach())
    tensor.data = plain
    return tensor


def _received(descriptor, size, dtype, offset, shape, stride, requires_grad, kind):
    _, memory = _map(descriptor.detach(), size)
    tensor = _C.ops.frombuffer(memory, dtype=dtype).as_strided(shape, stride, offset)
    return kind._of(tensor.requires_grad_(requires_grad)) if kind is not Tensor else tensor.requires_grad_(requires_grad)


def _reduce_shared(tensor):
    if tensor.is_cuda or tensor.numel() == 0 or not sys.platform.startswith("linux") or (tensor.requires_grad and not tensor.is_leaf):
        return tensor.__reduce_ex__(2)
    share(tensor)
    address, memory = _memory_of(tensor)
    offset = (tensor.data_ptr() - address) // tensor.element_size()
    return _received, (_reduction.DupFd(memory.descriptor), memory.size, tensor.dtype, offset, tuple(tensor.shape), tensor.stride(),
                       tensor.requires_grad, type(tensor))


def _register():
    from .nn.parameter import Buffer, Parameter

    for kind in (Tensor, Parameter, Buffer):
        _reduction.ForkingPickler.register(kind, _reduce_shared)


_register()


def _wait_until_taken():
    """A child process that sent tensors lives until they were taken, ten seconds at most: it is what hands over their memory."""
    if _multiprocessing.parent_process() is None:
        return
    deadline = time.monotonic() + 10
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":  # a queue that still sends
            thread.join(10)
    while _resource_sharer._resource_sharer._cache and time.monotonic() < deadline:
        time.sleep(0.001)
    _resource_sharer.stop(timeout=1)  # what was asked for last may be on its way


def _wait_at_the_end(*_):
    # After queues were closed (10), before the address at which memory is asked for goes (0).
    _util.Finalize(None, _wait_until_taken, exitpriority=5)


_util.register_after_fork(_wait_until_taken, _wait_at_the_end)
_wait_at_the_end()


def get_all_sharing_strategies():
    """How memory is shared."""
    return {"file_descriptor"}


def get_sharing_strategy():
    """How memory is shared."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy):
    """Only 'file_descriptor' is there."""
    if new_strategy != "file_descriptor":
        raise ValueError(f"sharing strategy '{new_strategy}' is not there; 'file_descriptor' is")


def _spawned(fn, rank, args):
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass


class ProcessContext:
    """Processes that run one function with their numbers."""

    def __init__(self, processes):
        self.processes = processes

    def pids(self):
        """Their process ids."""
        return [p.pid for p in self.processes]

    def join(self, timeout=None):
        """Waits for all; one that failed ends the others."""
        for i, process in enumerate(self.processes):
            process.join(timeout)
            if process.exitcode:
                for other in self.processes:
                    other.terminate()
                raise RuntimeError(f"process {i} terminated with exit code {process.exitcode}")
        return all(p.exitcode is not None for p in self.processes)


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Runs fn(rank, *args) in several processes."""
    context = get_context(start_method)
    processes = [context.Process(target=_spawned, args=(fn, i, args), daemon=daemon) for i in range(nprocs)]
    for process in processes:
        process.start()
    started = ProcessContext(processes)
    if not join:
        return started
    while not started.join():
        pass


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Runs fn(rank, *args) in several processes."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
